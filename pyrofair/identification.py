"""Can the data tell the effect along the unfair paths, and by which formula?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from pyrofair.exceptions import FormulaNotApplicableError, GraphError, NotIdentifiedError
from pyrofair.paths import Path, Regime, UnfairPaths, parting_node, show_path, witness_message

__all__ = ["Estimand", "Factor", "RegimeEstimand", "Weight", "identify"]

Target = Literal["prediction", "outcome"]


@dataclass(frozen=True)
class Factor:
    """One law in the g-formula: P(node | given, A = arm).

    Parameters
    ----------
    node
        The node whose law it is.
    given
        The nodes it is conditioned on, without the sensitive attribute.
    before
        All observed nodes before it in the order, without the sensitive attribute.
    arm
        The value of the sensitive attribute it is conditioned on, or None where that does not enter.
    """

    node: str
    given: tuple[str, ...]
    before: tuple[str, ...]
    arm: int | None


@dataclass(frozen=True)
class Weight:
    """A weight on observed rows: a product of powers of propensities P(A = a | prefix).

    Parameters
    ----------
    group
        The group whose rows are weighted: 0, 1, or None for all rows.
    powers
        Pairs of (value of A, prefix of nodes) and the power of that propensity.
    """

    group: int | None
    powers: tuple[tuple[tuple[int, tuple[str, ...]], int], ...]
    sensitive: str = "A"

    @property
    def prefixes(self) -> tuple[tuple[str, ...], ...]:
        """The prefixes whose propensities it needs, shortest first."""
        return tuple(sorted({prefix for (_, prefix), _ in self.powers}, key=len))

    def evaluate(self, propensity: Callable[[tuple[str, ...]], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the weight of each row, shape (n,), from a function that gives P(A = 1 | prefix) of each row.

        It is zero times infinity, hence NaN, on rows where the formula is undefined; the caller decides what they mean.
        """
        result = np.asarray(1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            for (value, prefix), power in self.powers:
                p1 = propensity(prefix)
                result = result * (p1 if value else 1.0 - p1) ** float(power)
        return np.asarray(result, dtype=np.float64)

    def __str__(self) -> str:
        above, below = (self._product(sign, self._text) for sign in (1, -1))
        indicator = f"1[{self.sensitive}={self.group}] " if self.group is not None else ""
        return f"{indicator}{above or '1'} / [{below}]" if below else f"{indicator}{above or '1'}"

    @property
    def latex(self) -> str:
        """The weight as LaTeX."""
        above, below = (self._product(sign, self._tex) for sign in (1, -1))
        indicator = rf"\mathbf{{1}}({self.sensitive}={self.group}) " if self.group is not None else ""
        return rf"{indicator}\frac{{{above or '1'}}}{{{below or '1'}}}"

    def _product(self, sign: int, write: Callable[[int, tuple[str, ...]], str]) -> str:
        return " ".join(
            " ".join([write(value, prefix)] * abs(power)) for (value, prefix), power in self.powers if power * sign > 0
        )

    def _text(self, value: int, prefix: tuple[str, ...]) -> str:
        return f"P({self.sensitive}={value}{' | ' + ', '.join(prefix) if prefix else ''})"

    def _tex(self, value: int, prefix: tuple[str, ...]) -> str:
        return self._text(value, prefix).replace(" | ", r" \mid ")


@dataclass(frozen=True)
class RegimeEstimand:
    """The law of the features in one world, as a product of factors, and the weights that reproduce it.

    Parameters
    ----------
    regime
        The world.
    order
        The observed ancestors of the target without the sensitive attribute, in topological order.
    roots
        How many of them come first that the sensitive attribute does not cause.
    factors
        One factor for each node of the order.
    outcome_arm
        The value of the sensitive attribute that the target itself reads, or None if it does not read it.
    """

    regime: Regime
    order: tuple[str, ...]
    roots: int
    factors: tuple[Factor, ...]
    outcome_arm: int | None

    @property
    def paper_group(self) -> int:
        """The group that the paper weights: the arm of the outcome, or of the fair paths where it has none."""
        return self.regime.on_fair if self.outcome_arm is None else self.outcome_arm

    def weight(self, group: int | None, upto: int | None = None) -> Weight:
        """Return the weight that turns the rows of a group into this world.

        Density ratios become odds by Bayes: P(V | pre, A=a) / P(V | pre, A=g) = P(A=a | pre, V) P(A=g | pre) /
        (P(A=g | pre, V) P(A=a | pre)).

        Parameters
        ----------
        group
            0, 1, or None to pool both groups (their weights times the probability of the group given the features).
        upto
            Stop after so many nodes of the order: the weight then reproduces the law of these nodes alone.
        """
        last = len(self.order) if upto is None else upto
        base = 1 if group is None else group
        powers: Counter[tuple[int, tuple[str, ...]]] = Counter()
        powers[base, self.order[: min(self.roots, last)]] -= 1
        for factor in self.factors[self.roots : last]:
            if factor.arm is None or factor.arm == base:
                continue
            after = (*factor.before, factor.node)
            powers[factor.arm, after] += 1
            powers[base, factor.before] += 1
            powers[base, after] -= 1
            powers[factor.arm, factor.before] -= 1
        if group is None:
            powers[base, self.order[:last]] += 1
        kept = sorted(
            ((key, power) for key, power in powers.items() if power), key=lambda kv: (len(kv[0][1]), kv[0][0])
        )
        return Weight(group, tuple(kept), self.regime.unfair.graph.sensitive)

    def needed_values(self, place: int, group: int | None) -> set[int]:
        """Return the values of the sensitive attribute that the order's node ``place`` must occur with.

        These are the group itself and the arms of the laws conditioned on that node.
        """
        later = {factor.arm for factor in self.factors[place + 1 :] if factor.arm is not None}
        return {int(value) for value in (*later, *(() if group is None else (group,)))}

    def __str__(self) -> str:
        graph = self.regime.unfair.graph
        sensitive = graph.sensitive
        reads = [node for node in graph.inputs if node != sensitive]
        own = [f"{sensitive}={self.outcome_arm}"] if self.outcome_arm is not None else []
        laws = " ".join(
            _law(f.node, [*f.given, *([f"{sensitive}={f.arm}"] if f.arm is not None else [])])
            for f in reversed(self.factors)
        )
        total = f"sum over {', '.join(self.order)} of " if self.order else ""
        return f"P({self.regime.symbol} = 1) = {total}{_law(graph.outcome + '=1', [*own, *reads])} {laws}".rstrip()

    @property
    def latex(self) -> str:
        """The g-formula as LaTeX."""
        text = str(self).split(" = ", 2)[2].replace(" | ", r" \mid ")
        if " of " in text:
            over, rest = text.removeprefix("sum over ").split(" of ", 1)
            text = rf"\sum_{{{over}}} {rest}"
        return rf"P({self.regime.latex} = 1) = {text}"


@dataclass(frozen=True)
class Estimand:
    """What the data tell about the two potential outcomes, and on which assumptions.

    Parameters
    ----------
    unfair
        The unfair paths.
    target
        ``"prediction"`` (a known function of the features) or ``"outcome"`` (the observed one).
    baseline, switched
        The estimands of the two worlds.
    """

    unfair: UnfairPaths
    target: Target
    baseline: RegimeEstimand
    switched: RegimeEstimand

    def of(self, regime: Regime) -> RegimeEstimand:
        """Return the estimand of a regime; equal regimes have equal ones."""
        for part in (self.baseline, self.switched):
            if (regime.on_fair, regime.on_unfair) == (part.regime.on_fair, part.regime.on_unfair):
                return part
        raise GraphError(f"The regime {regime.symbol} is not one of {self.unfair.regimes}; identify its own paths.")

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions on which the formulas rest, a sentence each."""
        graph = self.unfair.graph
        sensitive = graph.sensitive
        found = [
            "The graph is right: no edge and no latent common cause is missing beyond those declared"
            + (f" ({', '.join(graph.latent)})." if graph.latent else "."),
            f"Every combination of features that occurs in a world occurs in the weighted group (positivity of "
            f"P({sensitive} | features)).",
            f"{sensitive} is ignorable given what it does not cause.",
        ]
        arms = {factor.arm for factor in self.switched.factors if factor.arm is not None} | {self.switched.outcome_arm}
        if len(arms - {None}) > 1:
            found.append(
                f"Independent errors across worlds (NPSEM-IE): P({self.switched.regime.symbol}) joins nodes that read "
                f"{sensitive}=0 with nodes that read {sensitive}=1, which no experiment shows. Single-world "
                "ignorability, as the paper states it, is not enough."
            )
        if self.target == "prediction":
            found.append(
                "The outcome is the prediction, a known function of the features, so a latent cause of the observed "
                "outcome alone confounds nothing."
            )
        return tuple(found)

    @property
    def latex(self) -> str:
        """Both formulas as one LaTeX ``aligned`` block."""
        rows = (part.latex.replace(" = 1) = ", " = 1) &= ", 1) for part in (self.baseline, self.switched))
        return "\\begin{aligned}\n" + " \\\\\n".join(rows) + "\n\\end{aligned}"

    def __str__(self) -> str:
        graph = self.unfair.graph
        lines = [f"Target: the {self.target}; {graph.sensitive}=0 is {graph.baseline!r}, 1 is {graph.contrast!r}."]
        for part in (self.baseline, self.switched):
            lines.append(str(part))
            lines.append(f"  weight on group {part.paper_group}: {part.weight(part.paper_group)}")
        lines.append("Assumptions:")
        lines.extend(f"  {i}. {text}" for i, text in enumerate(self.assumptions, 1))
        return "\n".join(lines)


def identify(unfair: UnfairPaths, target: Target = "prediction") -> Estimand:
    """Derive the formula of both potential outcomes from the graph, edge by edge.

    Each child of the sensitive attribute reads one value of it, its arm. The law of the features in a world is the
    product of P(V | parents, A = arm of V). With latent nodes the graph is projected on the observed ones first, the
    arms carried along, and the children in one district must read one value.

    Parameters
    ----------
    unfair
        The unfair paths.
    target
        Whether the outcome is the classifier's prediction, a known function of its observed parents, or the observed
        outcome itself.

    Returns
    -------
    Estimand

    Raises
    ------
    NotIdentifiedError
        With the cause: a recanting witness and two paths, or a district and its latent nodes.
    FormulaNotApplicableError
        If this formula does not apply although another one (front door, say) identifies the effect.

    References
    ----------
    Chikahara et al. (2021), appendices B and D; Avin, Shpitser and Pearl (2005); Shpitser (2013).

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> graph = CausalGraph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
    >>> found = identify(graph.unfair("A -> Y", "A -> D -> Y"))
    >>> print(found.switched.weight(group=1))
    1[A=1] P(A=1 | Q, D) P(A=0 | Q, D, M) / [P(A=1 | Q) P(A=0 | Q, D) P(A=1 | Q, D, M)]
    """
    if target not in ("prediction", "outcome"):
        raise GraphError(f"target is {target!r}; it is 'prediction' or 'outcome'.")
    projection = _Projection(unfair, target)
    baseline, switched = (projection.estimand(regime) for regime in unfair.regimes)
    return Estimand(unfair, target, baseline, switched)


class _Projection:
    """The graph as the target sees it: observed ancestors, latent ones projected into two-headed edges."""

    def __init__(self, unfair: UnfairPaths, target: Target) -> None:
        graph = unfair.graph
        self.unfair, self.graph, self.target = unfair, graph, target
        self.sensitive, self.outcome = graph.sensitive, graph.outcome
        ends = graph.inputs if target == "prediction" else graph.parents(self.outcome)
        causes = {cause for node in ends for cause in (node, *graph.ancestors(node))} | {self.sensitive}
        inner = [node for node in graph.order if node in causes]
        self.nodes = [node for node in inner if node not in graph.latent]
        if target == "outcome":
            self.nodes.append(self.outcome)
        self.latent = [node for node in inner if node in graph.latent]
        self.reach = {node: self._reach(node) for node in (*self.nodes, *self.latent)}
        self.directed: nx.DiGraph[str] = nx.DiGraph()
        self.directed.add_nodes_from(self.nodes)
        self.directed.add_edges_from((node, child) for node in self.nodes for child in self.reach[node])
        self.confounded: nx.Graph[str] = nx.Graph()
        self.confounded.add_nodes_from(self.nodes)
        for node in self.latent:
            self.confounded.add_edges_from(
                (one, other, {"latent": node}) for one in self.reach[node] for other in self.reach[node] if one < other
            )

    def _reach(self, node: str) -> list[str]:
        """Return the observed nodes that a node leads to directly or through latent nodes only."""
        found: set[str] = set()
        waiting = list(self.graph.children(node))
        while waiting:
            child = waiting.pop()
            if child in self.latent:
                waiting.extend(self.graph.children(child))
            else:
                found.add(child)
        return [child for child in self.nodes if child in found]

    def estimand(self, regime: Regime) -> RegimeEstimand:
        """Return the estimand of a regime, or say why there is none."""
        arms = self._arms(regime)
        self._check_districts(arms, regime)
        below = nx.descendants(self.directed, self.sensitive)
        order = [node for node in self.nodes if node not in (self.sensitive, self.outcome)]
        roots = [node for node in order if node not in below]
        district_of = {n: d for d in nx.connected_components(self.confounded) for n in d}
        factors = []
        for place, node in enumerate(order):
            before = tuple(order[:place])
            district = district_of[node]
            values = {arms[child] for child in district if child in arms} if node in below else set()
            if len(district) == 1:
                given = tuple(n for n in before if n in self.directed.predecessors(node))
            else:
                given = before
            factors.append(Factor(node, given, before, values.pop() if values else None))
        if self.target == "prediction":
            direct = (self.sensitive, self.outcome)
            outcome_arm = regime.value(direct) if direct in self.graph.edges else None
        else:
            values = {arms[child] for child in district_of[self.outcome] if child in arms}
            outcome_arm = values.pop() if values else None
        return RegimeEstimand(regime, tuple(order), len(roots), tuple(factors), outcome_arm)

    def _arms(self, regime: Regime) -> dict[str, int]:
        """Return the value that each projected child of the sensitive attribute reads."""
        carried: dict[str, dict[int, Path]] = {}
        for path in self.graph.directed_paths(self.sensitive, self.outcome):
            if self.target == "prediction" and path[-2] in self.graph.latent:
                continue
            child = next(node for node in path[1:] if node not in self.graph.latent)
            carried.setdefault(child, {}).setdefault(regime.value(path), path)
        for child, by_value in carried.items():
            if len(by_value) > 1:
                unfair, fair = by_value[regime.on_unfair], by_value[regime.on_fair]
                witness = parting_node(unfair, fair)
                if witness != self.sensitive:
                    raise NotIdentifiedError(witness_message(witness, unfair, fair))
                hidden = [node for node in (*unfair, *fair) if node in self.graph.latent]
                raise NotIdentifiedError(
                    f"Not identified: with {', '.join(hidden)} latent, the edge {self.sensitive} -> {child} stands for "
                    f"the unfair path {show_path(unfair)} and for the fair path {show_path(fair)}, so {child!r} would "
                    f"read both values of {self.sensitive!r}. Measure {', '.join(hidden)}, or call both paths unfair."
                )
        return {child: next(iter(by_value)) for child, by_value in carried.items() if child in self.nodes}

    def _check_districts(self, arms: dict[str, int], regime: Regime) -> None:
        inside = self.directed.copy()
        inside.remove_node(self.sensitive)
        ends = {self.outcome} if self.target == "outcome" else set(self.graph.inputs) - {self.sensitive}
        needed = {cause for end in ends for cause in (end, *nx.ancestors(inside, end))}
        districts = list(nx.connected_components(self.confounded.subgraph(needed)))
        for district in districts:
            if len({arms[child] for child in district if child in arms}) > 1:
                readings = ", ".join(
                    f"{child} reads {arms[child]}" for child in self.nodes if child in district & {*arms}
                )
                raise NotIdentifiedError(
                    f"Not identified: the district {_braces(self.nodes, district)} is joined by "
                    f"{self._joined_by(district)}, and in {regime.symbol} its nodes read different values of "
                    f"{self.sensitive!r} ({readings}). Measure the latent node, or let these children be unfair together."
                )
        for district in districts:
            if not self._reachable(district):
                whole = nx.node_connected_component(self.confounded, self.sensitive)
                raise NotIdentifiedError(
                    f"Not identified: {self.sensitive!r} shares a district with what it causes: "
                    f"{_braces(self.nodes, whole | district)}, joined by {self._joined_by(whole | district)}. No data on "
                    f"these columns tell {self.sensitive!r}'s effect on {_braces(self.nodes, district)}. "
                    "Measure the latent node."
                )
        for district in nx.connected_components(self.confounded):
            if len({arms[child] for child in district if child in arms}) > 1:
                raise FormulaNotApplicableError(
                    f"The edge formula does not apply: the children of {self.sensitive!r} in the district "
                    f"{_braces(self.nodes, district)}, joined by {self._joined_by(district)}, read different values "
                    f"of it in {regime.symbol}. The effect is identified, but by another formula that is not "
                    "implemented here."
                )
        own = nx.node_connected_component(self.confounded, self.sensitive)
        caused = own & nx.descendants(self.directed, self.sensitive)
        if caused:
            raise FormulaNotApplicableError(
                f"The edge formula does not apply: {self.sensitive!r} shares the district "
                f"{_braces(self.nodes, own)} with {_braces(self.nodes, caused)}, which it causes, joined by "
                f"{self._joined_by(own)}. The effect is identified, but by another formula (front door and its like) "
                "that is not implemented here."
            )

    def _reachable(self, district: set[str]) -> bool:
        """Tell whether a district's law is identified: whether every other node can be fixed, one after another.

        A node can be fixed when its district holds none of its own descendants among the nodes still random.
        """
        random = set(self.nodes)
        while random != district:
            directed, confounded = self.directed.subgraph(random), self.confounded.subgraph(random)
            fixable = (
                node
                for node in self.nodes
                if node in random - district
                and not nx.descendants(directed, node) & nx.node_connected_component(confounded, node)
            )
            node = next(fixable, None)
            if node is None:
                return False
            random.remove(node)
        return True

    def _joined_by(self, district: set[str]) -> str:
        links = self.confounded.subgraph(district).edges(data="latent")
        return ", ".join(sorted({f"the latent node {latent}" for _, _, latent in links})) or "no latent node"


def _law(node: str, given: Sequence[str]) -> str:
    return f"P({node}{' | ' + ', '.join(given) if given else ''})"


def _braces(order: Sequence[str], nodes: set[str]) -> str:
    return "{" + ", ".join(node for node in order if node in nodes) + "}"
