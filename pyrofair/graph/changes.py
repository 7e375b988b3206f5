"""Changes of a causal graph that keep the sides of its paths: an edge taken away, a column on its own, nodes joined."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace

import networkx as nx

from pyrofair.exceptions import GraphError
from pyrofair.graph.causal_graph import CausalGraph, unused_name
from pyrofair.graph.paths import PathSet, UnfairPaths

__all__ = ["into_from_below", "join_nodes", "split_column", "split_node", "with_hidden_truth", "without_edges"]

Edge = tuple[str, str]


def without_edges(unfair: UnfairPaths, edges: Collection[Edge]) -> UnfairPaths | None:
    """Return the same unfair paths in the graph without some edges, or None if none of them is left."""
    paths = unfair.paths.without_edges(edges)
    if not paths:
        return None
    graph = unfair.graph
    kept = tuple(edge for edge in graph.edges if edge not in edges)
    return replace(unfair, graph=graph.remade(edges=kept), paths=paths)


def split_column(unfair: UnfairPaths, column: str) -> tuple[UnfairPaths, str]:
    """Return the graph with a column of a node of several as a node of its own, and the name of that node.

    The column reads what its node reads, and its node and all that reads it read the column: any distribution of the
    columns is possible as before. A path is unfair if it was before the column and the rest were told apart.
    """
    graph = unfair.graph
    node = graph.node_of[column]
    rest = [each for each in graph.columns[node] if each != column]
    if not rest or node in (graph.sensitive, graph.outcome):
        raise GraphError(f"{column!r} is the only column of {node!r}; there is nothing to split.")
    own = column if column not in graph.nodes else unused_name(column, graph.nodes)
    edges: list[Edge] = []
    for parent, child in graph.edges:
        if child == node:
            edges += [(parent, own), (parent, node)]
        elif parent == node:
            edges += [(own, child), (node, child)]
        else:
            edges.append((parent, child))
    edges.append((own, node))
    at = graph.nodes.index(node)
    nodes = (*graph.nodes[:at], own, *graph.nodes[at:])
    made = graph.remade(nodes, edges, columns={**dict(graph.column_map), node: tuple(rest), own: (column,)})
    return replace(unfair, graph=made, paths=_same_sides(unfair.paths, made, {own: node})), own


def with_hidden_truth(unfair: UnfairPaths, records: Collection[str], acts_on: Collection[Edge]) -> UnfairPaths:
    """Return the graph in which some nodes are records of a latent truth, and the same unfair paths in it.

    The truth has the causes of its record, the record among its effects, and for each edge of ``acts_on``, from one of
    these nodes to an effect, an edge to that effect as well, or to the truth behind it.
    """
    graph, taken = unfair.graph, list(unfair.graph.nodes)
    truth: dict[str, str] = {}
    for node in records:
        truth[node] = unused_name(f"true_{node}", taken)
        taken.append(truth[node])
    edges = [*graph.edges, *((name, node) for node, name in truth.items())]
    edges += [(parent, truth[child]) for parent, child in graph.edges if child in truth]
    edges += [(truth[parent], truth.get(child, child)) for parent, child in acts_on]
    nodes = (*graph.nodes, *truth.values())
    made = graph.remade(nodes, edges, latent=(*graph.latent, *truth.values()))
    return replace(unfair, graph=made, paths=_same_sides(unfair.paths, made, {v: k for k, v in truth.items()}))


def into_from_below(graph: CausalGraph, node: str) -> tuple[Edge, ...]:
    """Return the edges into a node from the sensitive attribute and from all that it causes."""
    below = {graph.sensitive, *nx.descendants(graph.dag, graph.sensitive)}
    return tuple(edge for edge in graph.edges if edge[1] == node and edge[0] in below)


def join_nodes(
    graph: CausalGraph, joined: Sequence[str], name: str, baseline: Hashable, contrast: Hashable
) -> CausalGraph:
    """Return the graph in which one sensitive node and column of this name has the causes and effects of several."""

    def of(node: str) -> str:
        return name if node in joined else node

    edges = dict.fromkeys((of(parent), of(child)) for parent, child in graph.edges if of(parent) != of(child))
    nodes = tuple(dict.fromkeys(map(of, graph.nodes)))
    columns = {node: names for node, names in graph.column_map if node not in joined} | {name: (name,)}
    return graph.remade(nodes, edges, sensitive=name, baseline=baseline, contrast=contrast, columns=columns)


def split_node(graph: CausalGraph, node: str, names: Sequence[str]) -> CausalGraph:
    """Return the graph with columns of these names for the sensitive attribute, the first of them sensitive."""

    def of(each: str) -> Sequence[str]:
        return names if each == node else (each,)

    edges = tuple((one, two) for parent, child in graph.edges for one in of(parent) for two in of(child))
    nodes = tuple(name for each in graph.nodes for name in of(each))
    columns = {each: own for each, own in graph.column_map if each != node}
    return graph.remade(nodes, edges, sensitive=names[0], baseline=0, contrast=1, columns=columns)


def _same_sides(paths: PathSet, graph: CausalGraph, node_of: Mapping[str, str]) -> PathSet:
    """Return the paths of a graph that are in a set when each node stands for what it was a part of."""
    if paths.start is None:
        return paths

    def step(state: int, before: str, node: str) -> int | None:
        before, node = node_of.get(before, before), node_of.get(node, node)
        return state if before == node else paths.step(state, node)

    every = graph.directed_paths(graph.sensitive, graph.outcome)
    return every.select(paths.start, step, lambda state: not paths.states[state][1])
