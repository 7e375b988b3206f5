"""Drawings of causal graphs as SVG for a page, whose colours they take, with a text alternative."""

from __future__ import annotations

from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.paths import UnfairPaths, show_path

__all__ = ["graph_svg"]

MOST_DRAWN = 60
SHOWN = 20


def graph_svg(graph: CausalGraph, unfair: UnfairPaths | None = None, *, name: str = "graph") -> str | None:
    """Return the drawing of a graph as an SVG element, or None of a graph too large to be read or to be drawn.

    Its colours are the variables ``--red``, ``--edge``, ``--ink``, ``--latent`` and ``--node`` of the page. ``name``
    begins the identifiers in it. Texts of nodes are escaped, and characters that no page can hold are left out.

    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    >>> svg = graph_svg(graph, graph.unfair("A -> Y"))
    >>> svg[:4], "Unfair paths, drawn thick and red: A -> Y" in svg.replace("&gt;", ">")
    ('<svg', True)
    """
    from pyrofair._figures import as_svg
    from pyrofair.graph.drawing import COLOURS, draw_graph

    if len(graph.nodes) > MOST_DRAWN or len(graph.edges) > 4 * MOST_DRAWN:
        return None
    title = f"Causal graph from {graph.sensitive} to {graph.outcome}"
    try:
        return as_svg(lambda: draw_graph(graph, unfair).figure, name, title, describe(graph, unfair), COLOURS, "graph")
    except Exception:  # a page without a drawing is better than none
        return None


def describe(graph: CausalGraph, unfair: UnfairPaths | None) -> str:
    """Return a graph in words: its arrows, and which paths are unfair."""
    arrows = "; ".join(
        f"{' and '.join(graph.parents(node))} cause {node}" for node in graph.order if graph.parents(node)
    )
    text = f"{len(graph.nodes)} nodes. {arrows}."
    if graph.latent:
        text += f" Latent: {', '.join(graph.latent)}."
    if unfair is not None:
        listed = "; ".join(show_path(path) for path in unfair.paths[:SHOWN]) or "none"
        rest = f"; and {unfair.paths.size - SHOWN} more" if unfair.paths.size > SHOWN else ""
        text += f" Unfair paths, drawn thick and red: {listed}{rest}."
    return text
