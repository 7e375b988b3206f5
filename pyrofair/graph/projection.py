"""What a target depends on, with latent nodes projected out: observed nodes, their edges and their common causes."""

from __future__ import annotations

from dataclasses import dataclass

from pyrofair.graph.causal_graph import CausalGraph

__all__ = ["LatentProjection"]


@dataclass(frozen=True)
class LatentProjection:
    """The sensitive attribute and the ancestors of a target, with what the latent ones among them join.

    Parameters
    ----------
    nodes, latent
        The observed nodes, and the latent ones, in topological order.
    below
        For each of both the observed nodes that it leads to directly, or through latent nodes only. Of an observed node
        these are its children in the projected graph; of a latent one, the nodes that it is a common cause of.
    """

    nodes: tuple[str, ...]
    latent: tuple[str, ...]
    below: dict[str, frozenset[str]]

    @classmethod
    def of(cls, graph: CausalGraph, *, known: bool) -> LatentProjection:
        """Return the projection for a known function of the outcome's observed parents, or for the observed outcome."""
        ends = graph.inputs if known else (graph.outcome,)
        causes = {*graph.with_ancestors(ends), graph.sensitive}
        inner = [node for node in graph.order if node in causes]
        nodes = tuple(node for node in inner if node not in graph.latent)
        below: dict[str, frozenset[str]] = {}
        for node in reversed(inner):  # effects before their causes
            reached = (frozenset({child}) if child in nodes else below.get(child, ()) for child in graph.children(node))
            below[node] = frozenset().union(*reached)
        return cls(nodes, tuple(node for node in inner if node in graph.latent), below)
