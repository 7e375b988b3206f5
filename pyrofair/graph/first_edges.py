"""Sets of first edges, and the worlds in which all paths that begin with them are switched."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations

from pyrofair.exceptions import NotIdentifiedError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.identification import RegimeEstimand, Target, derive
from pyrofair.graph.paths import PathSet, UnfairPaths

__all__ = ["Block", "Switched", "beginning_with", "heads_of", "partitions_of", "subsets_of", "world_of"]

Block = tuple[str, ...]
"""Heads of first edges that are switched together."""
Switched = frozenset[str]
"""The heads of all first edges that are switched in a world."""


def heads_of(paths: PathSet, graph: CausalGraph) -> Block:
    """Return the nodes that some paths meet first after the sensitive attribute, in the order of declaration."""
    return tuple(node for node in graph.nodes if node in paths.first_steps)


def beginning_with(heads: Collection[str], graph: CausalGraph) -> UnfairPaths:
    """Return the directed paths from the sensitive attribute to the outcome whose first edge leads to one of ``heads``.

    >>> graph = CausalGraph("A -> M -> Y; A -> L -> Y; A -> Y; M -> L", sensitive="A", outcome="Y")
    >>> beginning_with(["M"], graph).paths
    PathSet('A -> M -> Y', 'A -> M -> L -> Y')
    """
    every = graph.directed_paths(graph.sensitive, graph.outcome)
    barred = {(graph.sensitive, head) for head in every.first_steps if head not in heads}
    return UnfairPaths(graph, every.without_edges(barred))


def world_of(unfair: UnfairPaths, target: Target) -> RegimeEstimand | None:
    """Return the world in which some paths are switched; None if the data do not identify it."""
    try:
        return derive(unfair, target).switched
    except NotIdentifiedError:
        return None


def subsets_of(blocks: Sequence[Block]) -> list[Switched]:
    """Return the union of every set of blocks, the smallest sets first."""
    sizes = range(len(blocks) + 1)
    return [Switched().union(*chosen) for size in sizes for chosen in combinations(blocks, size)]


def partitions_of(items: Block) -> Iterator[list[Block]]:
    """Yield every way to part some heads into blocks."""
    if not items:
        yield []
        return
    head, rest = items[0], items[1:]
    for blocks in partitions_of(rest):
        yield [(head,), *blocks]
        for i, block in enumerate(blocks):
            yield [*blocks[:i], (head, *block), *blocks[i + 1 :]]
