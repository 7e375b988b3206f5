"""Identification: whether the observed data determine both potential outcomes, and by which printable estimand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from pyrofair._validation import require_choice, require_instance
from pyrofair.exceptions import FormulaNotApplicableError, GraphError, NotIdentifiedError
from pyrofair.graph.paths import (
    Path,
    Regime,
    UnfairPaths,
    parting_node,
    show_count,
    show_path,
    show_paths,
    witness_message,
)
from pyrofair.graph.projection import LatentProjection

__all__ = ["Estimand", "Factor", "Projection", "RegimeEstimand", "Target", "Weight", "derive"]

LONGEST_SHOWN = 3000
"""The longest formula, in characters, that a notebook sets."""

Target = Literal["prediction", "outcome"]
Event = tuple[str, int | None]
"""A node, and the value it takes where one is named."""


@dataclass(frozen=True)
class Factor:
    """P(node | given, A = arm) in the g-formula (arm None: without A), and the observed nodes ``before``, without A."""

    node: str
    given: tuple[str, ...]
    before: tuple[str, ...]
    arm: int | None


@dataclass(frozen=True, repr=False)
class Weight:
    """A weight on the rows of a group (0, 1, or None for all): a product of powers of propensities P(A = a | prefix).

    ``powers`` are pairs of (value of A, prefix of nodes) and the power of that propensity; ``sensitive`` names A.
    """

    group: int | None
    powers: tuple[tuple[tuple[int, tuple[str, ...]], int], ...]
    sensitive: str = "A"

    @property
    def prefixes(self) -> tuple[tuple[str, ...], ...]:
        """The prefixes whose propensities it needs, shortest first."""
        return tuple(sorted({prefix for (_, prefix), _ in self.powers}, key=len))

    def evaluate(self, propensity: Callable[[tuple[str, ...]], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the weight of each row (n,) by a function that gives P(A = 1 | prefix); NaN where it is undefined."""
        result = np.asarray(1.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            for (value, prefix), power in self.powers:
                p1 = propensity(prefix)
                result = result * (p1 if value else 1.0 - p1) ** float(power)
        return np.asarray(result, dtype=np.float64)

    def __str__(self) -> str:
        above, below = self._products(tex=False)
        indicator = f"1[{self.sensitive}={self.group}] " if self.group is not None else ""
        return f"{indicator}{above or '1'}{below and f' / [{below}]'}"

    @property
    def latex(self) -> str:
        """The weight as LaTeX."""
        above, below = self._products(tex=True)
        indicator = rf"\mathbf{{1}}({_tex_name(self.sensitive)}={self.group}) " if self.group is not None else ""
        return rf"{indicator}\frac{{{above or '1'}}}{{{below or '1'}}}"

    def __repr__(self) -> str:
        whose = "both groups" if self.group is None else f"group {self.group}"
        return f"<Weight on {whose}: {len(self.powers)} propensities; print it for the formula>"

    def _repr_latex_(self) -> str | None:
        return _shown_latex(self.latex)

    def _products(self, *, tex: bool) -> tuple[str, str]:
        """Write the numerator and the denominator."""
        parts: tuple[list[str], list[str]] = [], []
        for (value, prefix), power in self.powers:
            written = _probability((self.sensitive, value), [(node, None) for node in prefix], tex=tex)
            parts[power < 0].extend([written] * abs(power))
        return " ".join(parts[0]), " ".join(parts[1])


@dataclass(frozen=True, repr=False)
class RegimeEstimand:
    """The distribution of the features in one world, as a product of factors, and the weights that reproduce it.

    ``order`` are the observed ancestors of the target without the sensitive attribute, in topological order, first the
    ``roots`` many that it does not cause, with one of ``factors`` each. The target itself reads ``outcome_arm`` (None:
    not the sensitive attribute) and is conditioned on ``outcome_given``, without the sensitive attribute.
    """

    regime: Regime
    order: tuple[str, ...]
    roots: int
    factors: tuple[Factor, ...]
    outcome_arm: int | None
    outcome_given: tuple[str, ...]

    @property
    def paper_group(self) -> int:
        """The group that the paper weights: the arm of the outcome, or of the fair paths where it has none."""
        return self.regime.on_fair if self.outcome_arm is None else self.outcome_arm

    def weight(self, group: int | Literal["pooled"] | None, upto: int | None = None) -> Weight:
        """Return the weight that turns the rows of a group into this world.

        Density ratios become odds by Bayes: P(V | pre, A=a) / P(V | pre, A=g) = P(A=a | pre, V) P(A=g | pre) /
        (P(A=g | pre, V) P(A=a | pre)), and P(V | pre, A=a) / P(V | pre) = P(A=a | pre, V) / P(A=a | pre).

        For both groups, ``"pooled"`` or None, it is the weight of a group times the probability of that group given the
        features, the same for both. With ``upto`` it reproduces the distribution of so many nodes of the order alone.
        """
        if group is not None:
            require_choice("group", group, (0, 1, "pooled"), error=GraphError)
        group = None if group == "pooled" else group
        last = len(self.order) if upto is None else upto
        powers: Counter[tuple[int, tuple[str, ...]]] = Counter()
        if group is not None:
            powers[group, self.order[: min(self.roots, last)]] -= 1
        for factor in self.factors[self.roots : last]:
            if factor.arm is None or factor.arm == group:
                continue
            after = (*factor.before, factor.node)
            powers[factor.arm, after] += 1
            powers[factor.arm, factor.before] -= 1
            if group is not None:
                powers[group, after] -= 1
                powers[group, factor.before] += 1
        kept = sorted((one for one in powers.items() if one[1]), key=lambda one: (len(one[0][1]), one[0][0]))
        return Weight(group, tuple(kept), self.regime.unfair.graph.sensitive)

    def ordered(self, order: tuple[str, ...]) -> RegimeEstimand:
        """Return the same distribution with the factors in another topological order that has the same roots first."""
        if order == self.order:
            return self
        own = {factor.node: factor for factor in self.factors}
        factors = []
        for i, node in enumerate(order):
            factor, before = own[node], order[:i]
            joined = factor.given == factor.before and bool(self.regime.unfair.graph.latent)
            given = before if joined else tuple(each for each in before if each in factor.given)
            factors.append(Factor(node, given, before, factor.arm))
        return replace(self, order=order, factors=tuple(factors))

    def needed_values(self, index: int, group: int | None) -> set[int]:
        """Return the values of A that a node of the order must occur with: the group, and later nodes' arms."""
        later = {factor.arm for factor in self.factors[index + 1 :]} | {group}
        return {int(value) for value in later if value is not None}

    def needed_groups(self, group: int | None) -> tuple[int, ...]:
        """Return the groups whose rows an estimate depends on when a group, or both (None), are weighted, if any."""
        arms = {factor.arm for factor in self.factors} | {group}
        return tuple(value for value in (0, 1) if value in arms)

    def __str__(self) -> str:
        over = f"sum over {', '.join(self.order)} of " if self.order else ""
        return f"P({self.regime.symbol} = 1) = {over}{self._factors(tex=False)}"

    @property
    def latex(self) -> str:
        """The g-formula as LaTeX."""
        over = rf"\sum_{{{', '.join(map(_tex_name, self.order))}}} " if self.order else ""
        return rf"P({self.regime.latex} = 1) = {over}{self._factors(tex=True)}"

    def __repr__(self) -> str:
        return f"<RegimeEstimand of {self.regime.symbol}: {len(self.factors)} factors; print it for the formula>"

    def _repr_latex_(self) -> str | None:
        return _shown_latex(self.latex)

    def _factors(self, *, tex: bool) -> str:
        """Write the distribution of the outcome and those of the features, the last in the order first."""
        graph = self.regime.unfair.graph

        def read(arm: int | None) -> list[Event]:
            return [] if arm is None else [(graph.sensitive, arm)]

        given: list[Event] = [(node, None) for node in self.outcome_given]
        written = [_probability((graph.outcome, 1), [*read(self.outcome_arm), *given], tex=tex)]
        for factor in reversed(self.factors):
            given = [(node, None) for node in factor.given]
            written.append(_probability((factor.node, None), [*given, *read(factor.arm)], tex=tex))
        return " ".join(written)


@dataclass(frozen=True, repr=False)
class Estimand:
    """The two potential outcomes as functions of the distribution of the data, and the assumptions that make them so.

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
        require_instance("regime", regime, Regime, "one of unfair.regimes", error=GraphError)
        for part in (self.baseline, self.switched):
            if regime == part.regime:
                return part
        given, own = (show_paths(each.paths) for each in (regime.unfair, self.unfair))
        raise GraphError(
            f"The regime {regime.symbol} of the unfair paths {given} is not one of the two that were identified, whose "
            f"unfair paths are {own}. Take it from unfair.regimes of the same paths."
        )

    @property
    def joins_worlds(self) -> bool:
        """Whether the unfair-path world joins nodes that read different values of the sensitive attribute.

        If all that it causes reads one value, the features are those of a single world. What a classifier itself reads
        does not count, for it is known: P(Y(1, M(0)) = 1) is the mean of c(1, M(0)). The mechanism of an observed
        outcome is no known function, and does count.
        """
        own = {self.switched.outcome_arm} if self.target == "outcome" else set()
        return len(({factor.arm for factor in self.switched.factors} | own) - {None}) > 1

    @property
    def support(self) -> str:
        """The assumption that weights need, and learned mechanisms do not."""
        return (
            "Every combination of features that occurs in a world occurs in the weighted group (positivity of "
            f"P({self.unfair.graph.sensitive} | features))."
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions on which the formulas rest, a sentence each."""
        graph, sensitive = self.unfair.graph, self.unfair.graph.sensitive
        found = [
            "The graph is right: no edge and no latent common cause is missing beyond those declared"
            + (f" ({', '.join(graph.latent)})." if graph.latent else "."),
            self.support,
            f"{sensitive} is ignorable given what it does not cause.",
        ]
        if self.joins_worlds:
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

    def __repr__(self) -> str:
        paths = show_count(self.unfair.paths.size)
        return f"<Estimand of the {self.target}, unfair paths: {paths}; print it for formulas, weights and assumptions>"

    def _repr_latex_(self) -> str | None:
        """Return the formulas as a notebook shows them; None, for the text, where they would be unreadable."""
        return _shown_latex(self.latex)

    def __str__(self) -> str:
        graph = self.unfair.graph
        lines = [
            f"Target: the {self.target}; {graph.sensitive}={graph.coding}; {graph.outcome}=1 is {graph.positive!r}."
        ]
        for part in (self.baseline, self.switched):
            lines += [str(part), f"  weight on group {part.paper_group}: {part.weight(part.paper_group)}"]
        return "\n".join([*lines, "Assumptions:", *(f"  {i}. {one}" for i, one in enumerate(self.assumptions, 1))])


def _shown_latex(formula: str) -> str | None:
    return f"$$\n{formula}\n$$" if len(formula) <= LONGEST_SHOWN else None


def _probability(event: Event, given: Sequence[Event], *, tex: bool) -> str:
    r"""Write a probability: P(Y=1 | A=0, M) as text, and with \mid and escaped names as LaTeX."""

    def write(node: str, value: int | None) -> str:
        return (_tex_name(node) if tex else node) + ("" if value is None else f"={value}")

    condition = (r" \mid " if tex else " | ") + ", ".join(write(*one) for one in given) if given else ""
    return f"P({write(*event)}{condition})"


def _tex_name(name: str) -> str:
    """Write a node's name as LaTeX: one letter as it is, any other as escaped text."""
    if len(name) == 1 and name.isalpha():
        return name
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    escaped = "".join(special.get(c, f"\\{c}" if c in "_%&#${}" else c) for c in name)
    return rf"\text{{{escaped}}}"


def derive(unfair: UnfairPaths, target: Target) -> Estimand:
    """Derive the formulas, or raise the error that names why there are none, without what can be done then."""
    projection = Projection(unfair, target)
    worlds = [(regime, projection.arms(regime)) for regime in unfair.regimes]
    for check in (projection.check_identified, projection.check_formula):
        for regime, arms in worlds:
            check(arms, regime)
    baseline, switched = (projection.estimand(arms, regime) for regime, arms in worlds)
    return Estimand(unfair, target, baseline, switched)


class Projection:
    """The graph as the target sees it: observed ancestors, latent ones projected into two-headed edges."""

    def __init__(self, unfair: UnfairPaths, target: Target) -> None:
        graph = unfair.graph
        self.unfair, self.graph, self.target = unfair, graph, target
        self.sensitive, self.outcome = graph.sensitive, graph.outcome
        observed = LatentProjection.of(graph, known=target == "prediction")
        self.nodes, self.latent = observed.nodes, observed.latent
        self.index = {node: index for index, node in enumerate(self.nodes)}
        self.directed: nx.DiGraph[Any] = nx.DiGraph()
        self.directed.add_nodes_from(self.nodes)
        self.directed.add_edges_from((node, child) for node in self.nodes for child in observed.below[node])
        self.caused = nx.descendants(self.directed, self.sensitive)
        self.confounded: nx.Graph[Any] = nx.Graph()
        self.confounded.add_nodes_from(self.nodes)
        for node in self.latent:
            self.confounded.add_edges_from(
                (*pair, {"latent": node}) for pair in combinations(sorted(observed.below[node]), 2)
            )
        self.joined = {node for edge in self.confounded.edges for node in edge}

    @property
    def hidden_last_edges(self) -> list[tuple[str, str]]:
        """The edges from latent nodes to the outcome, along which no effect on a prediction runs."""
        return [(node, self.outcome) for node in self.graph.latent] if self.target == "prediction" else []

    @property
    def districts(self) -> list[set[str]]:
        """The districts of the nodes that lead to the target other than through the sensitive attribute."""
        inside = self.directed.copy()
        inside.remove_node(self.sensitive)
        ends = {self.outcome} if self.target == "outcome" else set(self.graph.inputs) - {self.sensitive}
        needed = ends.union(*nx.bfs_layers(inside.reverse(copy=False), ends))
        return list(nx.connected_components(self.confounded.subgraph(needed)))

    @property
    def all_districts(self) -> list[set[str]]:
        """The districts of all nodes that cause the target, as the edge formula conditions on them."""
        return list(nx.connected_components(self.confounded))

    @property
    def reachable(self) -> bool:
        """Whether the effect on every needed district is identified, whatever paths are unfair."""
        return all(map(self._reachable, self.districts))

    @property
    def separate(self) -> bool:
        """Whether the sensitive attribute shares a district with nothing that it causes."""
        return not nx.node_connected_component(self.confounded, self.sensitive) & self.caused

    @property
    def tian(self) -> bool:
        """Whether the sensitive attribute shares a district with none of its children."""
        own = nx.node_connected_component(self.confounded, self.sensitive)
        return not own & {*self.directed.successors(self.sensitive)}

    def estimand(self, arms: dict[str, int], regime: Regime) -> RegimeEstimand:
        """Return the estimand of a regime that has passed the checks."""
        order = tuple(node for node in self.nodes if node not in (self.sensitive, self.outcome))
        roots = sum(node not in self.caused for node in order)
        factors = tuple(self._factor(node, order[:i], arms) for i, node in enumerate(order))
        if self.target == "prediction":
            direct = (self.sensitive, self.outcome)
            outcome_arm = regime.value(direct) if direct in self.graph.edges else None
            outcome_given = tuple(node for node in self.graph.inputs if node != self.sensitive)
        else:
            own = self._factor(self.outcome, order, arms)
            outcome_arm, outcome_given = own.arm, own.given
        return RegimeEstimand(regime, order, roots, factors, outcome_arm, outcome_given)

    def _factor(self, node: str, before: Path, arms: dict[str, int]) -> Factor:
        """Return the distribution of a node given its parents; given all nodes before it, if a latent node joins it."""
        district = nx.node_connected_component(self.confounded, node)
        values = {arms[child] for child in district if child in arms} if node in self.caused else set()
        causes = {*self.directed.predecessors(node)} - {self.sensitive}
        parents = tuple(sorted(causes, key=self.index.__getitem__))
        return Factor(node, parents if len(district) == 1 else before, before, next(iter(values), None))

    def arms(self, regime: Regime) -> dict[str, int]:
        """Return the value that each projected child of the sensitive attribute reads; refuse one that reads both."""
        latent, unread = self.graph.latent, self.hidden_last_edges
        carried: dict[str, dict[int, Path]] = {}
        for value, paths in [(regime.on_unfair, self.unfair.paths), (regime.on_fair, self.unfair.fair_paths)]:
            for child, path in paths.without_edges(unread).first_past(latent).items():
                carried.setdefault(child, {}).setdefault(value, path)
        for child, by_value in carried.items():
            if len(by_value) > 1:
                unfair, fair = by_value[regime.on_unfair], by_value[regime.on_fair]
                witness = parting_node(unfair, fair)
                if witness != self.sensitive:
                    raise NotIdentifiedError(witness_message(witness, unfair, fair))
                hidden = ", ".join(dict.fromkeys(node for node in (*unfair, *fair) if node in self.graph.latent))
                raise NotIdentifiedError(
                    f"Not identified: with {hidden} latent, the edge {self.sensitive} -> {child} stands for the unfair "
                    f"path {show_path(unfair)} and for the fair path {show_path(fair)}, so {child!r} would read both "
                    f"values of {self.sensitive!r}. Measure {hidden}, or call both paths unfair."
                )
        return {child: next(iter(by_value)) for child, by_value in carried.items() if child in self.index}

    def check_identified(self, arms: dict[str, int], regime: Regime) -> None:
        """Refuse a regime that no formula identifies: a district that reads both values, or is not reachable."""
        districts = self.districts
        for district in districts:
            read = {child: arms[child] for child in self.nodes if child in district & arms.keys()}
            if len({*read.values()}) > 1:
                readings = ", ".join(f"{child} reads {value}" for child, value in read.items())
                raise NotIdentifiedError(
                    f"Not identified: the district {self._braces(district)} is joined by {self._joined_by(district)}, "
                    f"and in {regime.symbol} its nodes read different values of {self.sensitive!r} ({readings}). "
                    "Measure the latent node, or call the paths through all of these unfair."
                )
        for district in districts:
            if not self._reachable(district):
                whole = nx.node_connected_component(self.confounded, self.sensitive) | district
                raise NotIdentifiedError(
                    f"Not identified: {self.sensitive!r} shares a district with what it causes: {self._braces(whole)}, "
                    f"joined by {self._joined_by(whole)}. No data on these columns determine the effect of "
                    f"{self.sensitive!r} on {self._braces(district)}. Measure the latent node."
                )

    def check_formula(self, arms: dict[str, int], regime: Regime) -> None:
        """Refuse a regime that the edge formula gets wrong, though another one may be right."""
        for district in self.all_districts:
            if len({arms[child] for child in district if child in arms}) > 1:
                raise FormulaNotApplicableError(
                    f"The edge formula does not apply: the children of {self.sensitive!r} in the district "
                    f"{self._braces(district)}, joined by {self._joined_by(district)}, read different values of it in "
                    f"{regime.symbol}. The effect is identified, but by another formula that is not implemented here."
                )
        own = nx.node_connected_component(self.confounded, self.sensitive)
        if caused := own & self.caused:
            raise FormulaNotApplicableError(
                f"The edge formula does not apply: {self.sensitive!r} shares the district {self._braces(own)} with "
                f"{self._braces(caused)}, which it causes, joined by {self._joined_by(own)}. The effect is identified, "
                "but by another formula (front door and its like) that is not implemented here."
            )

    def _reachable(self, district: set[str]) -> bool:
        """Whether a district's distribution is identified: every other node can be fixed, one after another.

        A node can be fixed when its district holds none of its own descendants among the nodes still random.
        """
        random = self.joined | district  # any other node can be fixed at once
        while random != district:
            directed, confounded = self.directed.subgraph(random), self.confounded.subgraph(random)
            fixable = {
                node
                for part in nx.connected_components(confounded)
                for node in part - district
                if len(part) == 1 or not nx.descendants(directed, node) & part
            }
            if not fixable:
                return False
            random -= fixable
        return True

    def _joined_by(self, district: set[str]) -> str:
        links = set(nx.get_edge_attributes(self.confounded.subgraph(district), "latent").values())
        latent = [node for node in self.latent if node in links]
        return f"latent {', '.join(latent)}" if latent else "no latent node"

    def _braces(self, nodes: set[str]) -> str:
        return f"{{{', '.join(node for node in self.nodes if node in nodes)}}}"
