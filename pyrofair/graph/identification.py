"""Identification: whether the observed data determine both potential outcomes, and by which formula."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import networkx as nx

from pyrofair._validation import require_choice
from pyrofair.exceptions import FormulaNotApplicableError, GraphError, NotIdentifiedError
from pyrofair.graph.estimand import Estimand, Factor, RegimeEstimand, Target
from pyrofair.graph.path_sets import Path, parting_node, show_path
from pyrofair.graph.paths import Regime, UnfairPaths, witness_message

__all__ = ["identify"]


def identify(unfair: UnfairPaths, target: Target = "prediction") -> Estimand:
    """Derive the formula of both potential outcomes from the graph, edge by edge.

    Each child of the sensitive attribute reads one value of it, its arm. The distribution of the features in a world is
    the product of P(V | parents, A = arm of V). With latent nodes the graph is projected on the observed ones first,
    the arms carried along, and the children in one district must read one value.

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
    if not isinstance(unfair, UnfairPaths):
        raise GraphError(f"identify needs unfair paths, graph.unfair('A -> Y') say; got {type(unfair).__name__}.")
    require_choice("target", target, ("prediction", "outcome"), error=GraphError)
    projection = _Projection(unfair, target)
    worlds = [(regime, projection.arms(regime)) for regime in unfair.regimes]
    for regime, arms in worlds:
        projection.check_identified(arms, regime)
    for regime, arms in worlds:
        projection.check_formula(arms, regime)
    baseline, switched = (projection.estimand(arms, regime) for regime, arms in worlds)
    return Estimand(unfair, target, baseline, switched)


class _Projection:
    """The graph as the target sees it: observed ancestors, latent ones projected into two-headed edges."""

    def __init__(self, unfair: UnfairPaths, target: Target) -> None:
        graph = unfair.graph
        self.unfair, self.graph, self.target = unfair, graph, target
        self.sensitive, self.outcome = graph.sensitive, graph.outcome
        ends = graph.inputs if target == "prediction" else graph.parents(self.outcome)
        causes = {*graph.with_ancestors(ends), self.sensitive}
        inner = [node for node in graph.order if node in causes]
        self.nodes = [node for node in inner if node not in graph.latent]
        if target == "outcome":
            self.nodes.append(self.outcome)
        self.latent = [node for node in inner if node in graph.latent]
        self.index = {node: index for index, node in enumerate(self.nodes)}
        # The observed nodes that each node leads to directly or through latent nodes only, effects before their causes.
        reach: dict[str, set[str]] = {}
        for node in reversed(inner):
            below = ({child} if child in self.index else reach.get(child, set()) for child in graph.children(node))
            reach[node] = set().union(*below)
        self.directed: nx.DiGraph[Any] = nx.DiGraph()
        self.directed.add_nodes_from(self.nodes)
        self.directed.add_edges_from((node, child) for node in inner if node in self.index for child in reach[node])
        self.caused = nx.descendants(self.directed, self.sensitive)
        self.confounded: nx.Graph[Any] = nx.Graph()
        self.confounded.add_nodes_from(self.nodes)
        for node in self.latent:
            self.confounded.add_edges_from((*pair, {"latent": node}) for pair in combinations(sorted(reach[node]), 2))
        self.joined = {node for edge in self.confounded.edges for node in edge}

    def estimand(self, arms: dict[str, int], regime: Regime) -> RegimeEstimand:
        """Return the estimand of a regime that has passed the checks."""
        order = [node for node in self.nodes if node not in (self.sensitive, self.outcome)]
        roots = [node for node in order if node not in self.caused]
        factors = [self._factor(node, tuple(order[:i]), arms) for i, node in enumerate(order)]
        if self.target == "prediction":
            direct = (self.sensitive, self.outcome)
            outcome_arm = regime.value(direct) if direct in self.graph.edges else None
            outcome_given = tuple(node for node in self.graph.inputs if node != self.sensitive)
        else:
            own = self._factor(self.outcome, tuple(order), arms)
            outcome_arm, outcome_given = own.arm, own.given
        return RegimeEstimand(regime, tuple(order), len(roots), tuple(factors), outcome_arm, outcome_given)

    def _factor(self, node: str, before: Path, arms: dict[str, int]) -> Factor:
        """Return the distribution of a node given its parents; given all nodes before it, if a latent node joins it."""
        district = nx.node_connected_component(self.confounded, node)
        values = {arms[child] for child in district if child in arms} if node in self.caused else set()
        causes = {*self.directed.predecessors(node)} - {self.sensitive}
        parents = tuple(sorted(causes, key=self.index.__getitem__))
        return Factor(node, parents if len(district) == 1 else before, before, next(iter(values), None))

    def arms(self, regime: Regime) -> dict[str, int]:
        """Return the value that each projected child of the sensitive attribute reads; refuse one that reads both."""
        latent = self.graph.latent
        unread = [(node, self.outcome) for node in latent] if self.target == "prediction" else []
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
        inside = self.directed.copy()
        inside.remove_node(self.sensitive)
        ends = {self.outcome} if self.target == "outcome" else set(self.graph.inputs) - {self.sensitive}
        needed = ends.union(*nx.bfs_layers(inside.reverse(copy=False), ends))
        districts = list(nx.connected_components(self.confounded.subgraph(needed)))
        for district in districts:
            if len({arms[child] for child in district if child in arms}) > 1:
                readings = ", ".join(
                    f"{child} reads {arms[child]}" for child in self.nodes if child in district & {*arms}
                )
                raise NotIdentifiedError(
                    f"Not identified: the district {_braces(self.nodes, district)} is joined by "
                    f"{self._joined_by(district)}, and in {regime.symbol} its nodes read different values of "
                    f"{self.sensitive!r} ({readings}). "
                    "Measure the latent node, or call the paths through all of these unfair."
                )
        for district in districts:
            if not self._reachable(district):
                whole = nx.node_connected_component(self.confounded, self.sensitive)
                raise NotIdentifiedError(
                    f"Not identified: {self.sensitive!r} shares a district with what it causes: "
                    f"{_braces(self.nodes, whole | district)}, joined by {self._joined_by(whole | district)}. No "
                    f"data on these columns determine the effect of {self.sensitive!r} on "
                    f"{_braces(self.nodes, district)}. Measure the latent node."
                )

    def check_formula(self, arms: dict[str, int], regime: Regime) -> None:
        """Refuse a regime that the edge formula gets wrong, though another one may be right."""
        for district in nx.connected_components(self.confounded):
            if len({arms[child] for child in district if child in arms}) > 1:
                raise FormulaNotApplicableError(
                    f"The edge formula does not apply: the children of {self.sensitive!r} in the district "
                    f"{_braces(self.nodes, district)}, joined by {self._joined_by(district)}, read different values "
                    f"of it in {regime.symbol}. The effect is identified, but by another formula that is not "
                    "implemented here."
                )
        own = nx.node_connected_component(self.confounded, self.sensitive)
        caused = own & self.caused
        if caused:
            raise FormulaNotApplicableError(
                f"The edge formula does not apply: {self.sensitive!r} shares the district "
                f"{_braces(self.nodes, own)} with {_braces(self.nodes, caused)}, which it causes, joined by "
                f"{self._joined_by(own)}. The effect is identified, but by another formula (front door and its like) "
                "that is not implemented here."
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


def _braces(order: Sequence[str], nodes: set[str]) -> str:
    return "{" + ", ".join(node for node in order if node in nodes) + "}"
