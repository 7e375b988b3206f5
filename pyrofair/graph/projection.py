"""What a target depends on, with latent nodes projected out: observed nodes, their edges and their common causes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import networkx as nx

from pyrofair.graph.causal_graph import CausalGraph

__all__ = ["LatentProjection", "sharing_causes"]


@dataclass(frozen=True)
class LatentProjection:
    """The sensitive attribute and the ancestors of a target, with what the latent ones among them join.

    Observed ``nodes`` and ``latent`` ones are in topological order. ``below`` has for each the observed nodes that it
    leads to directly, or through latent nodes only: the children of an observed node in the projected graph, and what a
    latent one is a common cause of.
    """

    nodes: tuple[str, ...]
    latent: tuple[str, ...]
    below: dict[str, frozenset[str]]

    @classmethod
    def of(cls, graph: CausalGraph, *, known: bool, beside: Iterable[str] = ()) -> LatentProjection:
        """Return the projection for a ``known`` function of the outcome's observed parents, or the observed outcome."""
        ends = graph.inputs if known else (graph.outcome,)
        causes = {*graph.with_ancestors((*ends, *beside)), graph.sensitive}
        inner = [node for node in graph.order if node in causes]
        nodes = tuple(node for node in inner if node not in graph.latent)
        below: dict[str, frozenset[str]] = {}
        for node in reversed(inner):  # effects before their causes
            reached = (frozenset({child}) if child in nodes else below.get(child, ()) for child in graph.children(node))
            below[node] = frozenset().union(*reached)
        return cls(nodes, tuple(node for node in inner if node in graph.latent), below)

    def districts(self, nodes: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Return the sets of some observed nodes that latent nodes join, in the order of their first nodes."""
        joined: nx.Graph[str] = nx.Graph()
        joined.add_nodes_from(nodes)
        for latent in self.latent:
            nx.add_path(joined, [node for node in nodes if node in self.below[latent]])
        found = [tuple(node for node in nodes if node in part) for part in nx.connected_components(joined)]
        return tuple(sorted(found, key=lambda part: nodes.index(part[0])))


def sharing_causes(graph: CausalGraph, *, known: bool) -> tuple[str, ...]:
    """Return the observed nodes outside a target's projection that share latent causes with nodes inside.

    They carry information on the errors of the nodes that the target depends on when the sensitive attribute is set.
    The observed outcome carries none on a known function.
    """
    own = LatentProjection.of(graph, known=known)
    nodes = [node for node in graph.observed if node != graph.outcome or not known]
    whole = LatentProjection.of(graph, known=known, beside=nodes)
    inside = graph.dag.subgraph({*graph.nodes} - {graph.sensitive})
    ends = {*(graph.inputs if known else (graph.outcome,))} - {graph.sensitive}
    needed = ends.union(*(nx.ancestors(inside, node) for node in ends))
    told = [part for part in whole.districts(whole.nodes) if needed & {*part}]
    return tuple(node for part in told for node in part if node not in own.nodes)
