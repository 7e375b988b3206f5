"""The nodes and edges of an identified pair of worlds as distributions learn them."""

from __future__ import annotations

from dataclasses import dataclass

from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.identification import Estimand

__all__ = ["MechanismGraph"]


@dataclass(frozen=True)
class MechanismGraph:
    """The nodes of an identified pair of worlds, the shared ones before those that are drawn anew in each.

    The order of ``graph`` has the shared nodes first, and its edges are what distributions read. The sensitive
    attribute causes no ``roots``; of the shared nodes it causes those ``caused``, and a drawn distribution or the
    classifier reads those in ``units``. Unfair paths touch the nodes ``drawn``, each after those that it reads.
    ``given`` are the nodes that the distribution of each caused or drawn node reads. In both worlds, ``arms`` are the
    values of the sensitive attribute that each node's distribution reads (or None), and ``outcome_arms`` those that
    the outcome reads, or those of the fair paths if it reads none.
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
    def assumptions(self) -> tuple[str, ...]:
        """What numbers made of learned mechanisms depend on besides, a sentence each."""
        shared, drawn = (", ".join(nodes) or "nothing" for nodes in (self.units, self.drawn))
        return (
            f"A unit is a value of the shared features: {shared}. In each world {drawn} is drawn anew by learned "
            "mechanisms; intervals depend on mechanisms fitted again, not on whether their form is right (see "
            "mechanisms_.calibration()).",
            f"Mechanisms are used only where {self.graph.sensitive} and its companions were observed (see overlap()).",
        )

    @classmethod
    def of(cls, estimand: Estimand) -> MechanismGraph:
        """Read the distributions off an estimand.

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
        read = set(unfair.graph.inputs).union(*(given[node] for node in drawn))
        parts = (estimand.baseline, part)
        return cls(
            graph=_ordered(unfair.graph, order, given, len(roots)),
            roots=roots,
            caused=caused,
            units=tuple(node for node in (*roots, *caused) if node in read),
            drawn=drawn,
            given=given,
            arms=({each.node: each.arm for each in parts[0].factors}, {each.node: each.arm for each in part.factors}),
            outcome_arms=(parts[0].paper_group, part.paper_group),
        )


def _ordered(graph: CausalGraph, order: tuple[str, ...], given: dict[str, tuple[str, ...]], roots: int) -> CausalGraph:
    """Return a graph with these nodes in this order whose edges are what distributions read."""
    nodes = [*order[:roots], graph.sensitive, *order[roots:], graph.outcome]
    edges = [(parent, node) for node in nodes for parent in given.get(node, ())]
    edges += [(node, graph.sensitive) for node in order[:roots]]
    edges += [(node, graph.outcome) for node in nodes[:-1] if node in graph.inputs]
    position = {node: i for i, node in enumerate(nodes)}
    edges.sort(key=lambda edge: (position[edge[1]], position[edge[0]]))
    return CausalGraph(
        edges,
        sensitive=graph.sensitive,
        outcome=graph.outcome,
        baseline=graph.baseline,
        contrast=graph.contrast,
        positive=graph.positive,
        labels=graph.labels,
        columns={node: columns for node, columns in graph.columns.items() if node in position},
    )
