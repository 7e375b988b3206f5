"""Which laws does the g-formula need, in which order, and with which value of the sensitive attribute?"""

from __future__ import annotations

from dataclasses import dataclass

from pyrofair.estimands import Estimand, RegimeEstimand
from pyrofair.graph import CausalGraph

__all__ = ["LawGraph"]


@dataclass(frozen=True)
class LawGraph:
    """The nodes of an identified pair of worlds, the shared ones before those that are drawn anew in each.

    Parameters
    ----------
    graph
        A graph whose order has the shared nodes first, and whose edges are what laws read.
    roots
        The nodes that the sensitive attribute does not cause.
    caused
        The shared nodes that it causes.
    units
        The shared nodes that a drawn law or the classifier reads.
    drawn
        The nodes that unfair paths touch, each after those that it reads.
    given
        For each caused and drawn node the nodes that its law reads, the sensitive attribute among them if so.
    arms
        For both worlds the value of the sensitive attribute that each node's law reads, or None.
    outcome_arms
        For both worlds the value that the outcome reads, or that of the fair paths if it reads none.
    """

    graph: CausalGraph
    roots: tuple[str, ...]
    caused: tuple[str, ...]
    units: tuple[str, ...]
    drawn: tuple[str, ...]
    given: dict[str, tuple[str, ...]]
    arms: tuple[dict[str, int | None], dict[str, int | None]]
    outcome_arms: tuple[int, int]

    @property
    def switched(self) -> tuple[str, ...]:
        """The drawn nodes that read different values of the sensitive attribute in the two worlds."""
        return tuple(node for node in self.drawn if self.arms[0].get(node) != self.arms[1].get(node))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What numbers made of learned laws rest on besides, a sentence each."""
        shared, drawn = (", ".join(nodes) or "nothing" for nodes in (self.units, self.drawn))
        return (
            f"A unit is a value of what both worlds share: {shared}. In each world {drawn} is drawn anew by learned "
            "laws; intervals rest on laws fitted again, not on whether their form is right (see laws_.calibration()).",
            f"Laws are asked only where {self.graph.sensitive} and its companions were met (see overlap()).",
        )

    @classmethod
    def of(cls, estimand: Estimand) -> LawGraph:
        """Read the laws off an estimand.

        Shared nodes never read drawn ones: a path through a drawn node goes on along the same first edge, and would be
        unfair. So they may come first. A node that a latent one joins to others is given all nodes before it.
        """
        unfair, part = estimand.unfair, estimand.switched
        shared = set(unfair.shared)
        roots = part.order[: part.roots]
        caused = tuple(node for node in part.order[part.roots :] if node in shared)
        drawn = tuple(node for node in part.order if node not in shared and node not in roots)
        order = (*roots, *caused, *drawn)
        given = {}
        for factor in part.factors:
            if factor.node in (*caused, *drawn):
                joined = bool(unfair.graph.latent) and factor.given == factor.before
                before = order[: order.index(factor.node)]
                reads = before if joined else tuple(node for node in before if node in factor.given)
                given[factor.node] = ((unfair.graph.sensitive,) if factor.arm is not None else ()) + reads
        inputs = set(unfair.graph.inputs)
        read = inputs.union(*(given[node] for node in drawn))
        units = tuple(node for node in (*roots, *caused) if node in read)
        return cls(
            _ordered(unfair.graph, order, given, len(roots)),
            roots,
            caused,
            units,
            drawn,
            given,
            (_arms(estimand.baseline), _arms(part)),
            (estimand.baseline.paper_group, part.paper_group),
        )


def _arms(part: RegimeEstimand) -> dict[str, int | None]:
    return {factor.node: factor.arm for factor in part.factors}


def _ordered(graph: CausalGraph, order: tuple[str, ...], given: dict[str, tuple[str, ...]], roots: int) -> CausalGraph:
    """Return a graph with these nodes in this order whose edges are what laws read."""
    nodes = [*order[:roots], graph.sensitive, *order[roots:], graph.outcome]
    edges = [(parent, node) for node in nodes for parent in given.get(node, ())]
    edges += [(node, graph.sensitive) for node in order[:roots]]
    edges += [(node, graph.outcome) for node in nodes[:-1] if node in graph.inputs]
    place = {node: i for i, node in enumerate(nodes)}
    edges.sort(key=lambda edge: (place[edge[1]], place[edge[0]]))
    return CausalGraph(
        edges,
        sensitive=graph.sensitive,
        outcome=graph.outcome,
        baseline=graph.baseline,
        contrast=graph.contrast,
        positive=graph.positive,
        columns={node: columns for node, columns in graph.columns.items() if node in place},
    )
