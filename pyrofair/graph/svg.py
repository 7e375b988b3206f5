"""Drawings of causal graphs as SVG whose colours the page chooses, with a text alternative."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.drawing import Box, Edge, arrange, extent
from pyrofair.graph.paths import UnfairPaths, show_path

__all__ = ["graph_svg"]

SCALE = 96.0
"""Pixels an inch."""
MOST_DRAWN = 60
SHOWN = 20
STEPS = np.linspace(0.0, 1.0, 401)
NAME, DETAIL = 11.0, 8.0
"""Font sizes in points, as in the other drawings."""


def graph_svg(graph: CausalGraph, unfair: UnfairPaths | None = None, *, name: str = "graph") -> str | None:
    """Return the drawing of a graph as an SVG element, or None of a graph too large to be read.

    Its classes, ``edge``, ``unfair``, ``node``, ``role`` and ``latent``, are for the page to style. ``name`` begins the
    identifiers in it. Texts of nodes are escaped.

    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    >>> svg = graph_svg(graph, graph.unfair("A -> Y"))
    >>> svg.count("<path class='edge unfair'"), svg.count("<path class='edge'")
    (1, 2)
    """
    if len(graph.nodes) > MOST_DRAWN or len(graph.edges) > 4 * MOST_DRAWN:
        return None
    boxes, bends = arrange(graph)
    low, high = extent(boxes, bends)
    width, height = (high - low) * SCALE
    red = frozenset(unfair.edges if unfair is not None else ())

    def at(point: NDArray[np.float64]) -> str:
        return f"{(point[0] - low[0]) * SCALE:.1f} {(high[1] - point[1]) * SCALE:.1f}"

    parts = [
        f"<svg class='graph' viewBox='0 0 {width:.0f} {height:.0f}' width='{width:.0f}' height='{height:.0f}' "
        f"role='img' aria-labelledby='{name}-title {name}-desc' xmlns='http://www.w3.org/2000/svg'>",
        f"<title id='{name}-title'>Causal graph from {_escaped(graph.sensitive)} to {_escaped(graph.outcome)}</title>",
        f"<desc id='{name}-desc'>{_escaped(describe(graph, unfair))}</desc>",
        "<defs>",
        *(
            f"<marker id='{name}-{kind}' viewBox='0 0 10 8' refX='9' refY='4' markerWidth='{size}' "
            f"markerHeight='{size}' markerUnits='userSpaceOnUse' orient='auto'>"
            f"<path class='head {kind}' d='M0 0L10 4L0 8z'/></marker>"
            for kind, size in (("fair", 10), ("unfair", 13))
        ),
        "</defs>",
    ]
    for edge in sorted(bends, key=lambda each: each in red):  # the unfair ones on top
        start, control, end = _clipped(boxes, edge, bends[edge])
        kind = "unfair" if edge in red else "fair"
        classes = f"edge{' unfair' if edge in red else ''}{' latent' if set(edge) & set(graph.latent) else ''}"
        parts.append(
            f"<path class='{classes}' d='M{at(start)}Q{at(control)} {at(end)}' marker-end='url(#{name}-{kind})'/>"
        )
    for node, box in boxes.items():
        classes = "node"
        classes += " latent" if node in graph.latent else ""
        classes += " role" if node in (graph.sensitive, graph.outcome) else ""
        corner = at(np.array([box.x - box.width / 2, box.y + box.height / 2])).split()
        radius = box.width / 2 * SCALE if box.width == box.height else 12
        parts.append(
            f"<rect class='{classes}' x='{corner[0]}' y='{corner[1]}' width='{box.width * SCALE:.1f}' "
            f"height='{box.height * SCALE:.1f}' rx='{radius:.1f}'/>"
        )
        parts += _texts(box, at)
    return "".join([*parts, "</svg>"])


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


def _clipped(boxes: dict[str, Box], edge: Edge, bend: float) -> tuple[NDArray[np.float64], ...]:
    """Return the control points of an edge's arc between the borders of its two boxes."""
    first, last = (np.array([boxes[node].x, boxes[node].y]) for node in edge)
    dx, dy = last - first
    middle = (first + last) / 2 + bend * np.array([dy, -dx])
    t = STEPS[:, None]
    points = (1 - t) ** 2 * first + 2 * t * (1 - t) * middle + t**2 * last
    outside = ~(boxes[edge[0]].covers(points, 0.0) | boxes[edge[1]].covers(points, 0.02))
    at = np.flatnonzero(outside)
    low, high = (STEPS[at[0]], STEPS[at[-1]]) if len(at) else (0.0, 1.0)

    def bezier(t: float, s: float) -> NDArray[np.float64]:
        """Return the polar form of the arc, whose values at the ends are its control points."""
        found = (1 - t) * (1 - s) * first + ((1 - t) * s + t * (1 - s)) * middle + t * s * last
        return np.asarray(found, dtype=np.float64)

    return bezier(low, low), bezier(low, high), bezier(high, high)


def _texts(box: Box, at: object) -> list[str]:
    """Return the lines of a node, from the top of its box."""
    assert callable(at)
    lines = [(line, NAME, "name") for line in box.name.split("\n")]
    lines += [(line, DETAIL, "detail") for line in box.detail.split("\n") if line]
    total = sum(size for _, size, _ in lines) * 1.2 / 72
    y, found = box.y + total / 2, []
    for line, size, kind in lines:
        y -= size * 1.2 / 72
        x, bottom = at(np.array([box.x, y + 0.28 * size * 1.2 / 72])).split()
        found.append(
            f"<text class='{kind}' x='{x}' y='{bottom}' font-size='{size * SCALE / 72:.1f}' text-anchor='middle'>"
            f"{_escaped(line)}</text>"
        )
    return found


def _escaped(text: object) -> str:
    """Return a text in which no character is markup; those that XML forbids are left out of drawings."""
    kept = "".join(each for each in str(text) if each >= " ")
    for one, other in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("'", "&#39;"), ('"', "&quot;")):
        kept = kept.replace(one, other)
    return kept
