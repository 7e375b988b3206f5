"""Drawings of causal graphs: layers from causes to effects, unfair edges in red, latent nodes in grey."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import networkx as nx
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch
from matplotlib.textpath import text_to_path
from numpy.typing import NDArray
from scipy.spatial import KDTree

from pyrofair._figures import ShownAxes, ShownFigure
from pyrofair._validation import require_instance
from pyrofair.graph.paths import UnfairPaths

if TYPE_CHECKING:
    from pyrofair.graph.causal_graph import CausalGraph

__all__ = ["COLOURS", "draw_graph"]

Edge: TypeAlias = tuple[str, str]
Points: TypeAlias = NDArray[np.float64]

_RED, _GREY, _INK, _LATENT = "#CC3311", "#4D4D4D", "#1A1A1A", "#DDDDDD"  # Tol's red, distinct from grey to every eye
COLOURS = {"red": _RED, "edge": _GREY, "ink": _INK, "latent": _LATENT, "node": "#FFFFFF"}
"""What is drawn in which colour."""
_NAME_SIZE, _DETAIL_SIZE, _LINE = 11.0, 8.0, 1.2  # font sizes in points; line height in font sizes
_NAME_WRAP, _DETAIL_WRAP = 14, 16  # characters
_PAD, _LAYER_GAP, _NODE_GAP, _MARGIN, _LEGEND = 0.09, 0.58, 0.42, 0.08, 0.32  # inches
_LARGEST = 1.2  # how much larger than in a figure of its own a graph is drawn in given axes
_CLEARANCE = 0.08  # inches between an edge and what it passes
_BENDS = (0.0, *(sign * size / 20 for size in range(2, 17) for sign in (-1, 1)))
_STEPS = np.linspace(0, 1, 41)[:, None]


@dataclass(frozen=True)
class Box:
    """A node to draw: its text and the box around it, in inches."""

    name: str
    detail: str
    width: float
    height: float
    x: float = 0.0
    y: float = 0.0

    def covers(self, points: Points, margin: float) -> NDArray[np.bool_]:
        """Return which points (n, 2) lie within the box and a margin around it, (n,)."""
        reach = np.array([self.width, self.height]) / 2 + margin
        inside: NDArray[np.bool_] = np.abs(points - [self.x, self.y]) < reach
        return inside[:, 0] & inside[:, 1]


def draw_graph(graph: CausalGraph, unfair: UnfairPaths | None = None, ax: Axes | None = None) -> Axes:
    """Draw a graph from left (causes) to right (effects) and return its axes, in inches.

    Latent nodes are grey with dashed outlines and edges, the sensitive attribute and the outcome have a bold outline,
    the edges of unfair paths are thick, red and on top, and the columns of a node stand below its name if they have
    other names. Without ``ax`` a figure is made, as large as the graph needs; pyplot does not keep it.
    """
    if unfair is not None:
        require_instance("unfair", unfair, UnfairPaths, "unfair paths, made by graph.unfair(...), or None")
    if ax is not None:
        require_instance("ax", ax, Axes, "axes of Matplotlib, or None")
    latent, roles = graph.latent, (graph.sensitive, graph.outcome)
    red = frozenset(unfair.edges if unfair is not None else ())
    boxes, bends = _arrange(graph)
    keys: list[Artist] = [Line2D([], [], color=_RED, linewidth=2.0, label="unfair path")] if red else []
    keys += [Patch(facecolor=_LATENT, edgecolor=_INK, linestyle="--", label="latent")] if latent else []
    low, high = _extent(boxes, bends)
    low[1] -= _LEGEND if keys else 0.0
    below = ((low[0] + high[0]) / 2, low[1])
    scale = 1.0
    if ax is None:
        size = tuple(high - low + _MARGIN)
        ax = ShownFigure(figsize=size, layout="constrained").add_subplot(axes_class=ShownAxes)
    else:
        room = float(np.min(np.array(ax.bbox.size) / ax.figure.dpi / (high - low)))
        scale = min(room, _LARGEST)
        spare = (high - low) * (room / scale - 1) / 2
        low, high = low - spare, high + spare
    outlines = {node: _outline(box, node in latent, node in roles, scale) for node, box in boxes.items()}
    for node, box in boxes.items():
        ax.add_patch(outlines[node])
        _write(ax, box, scale)
    for edge, bend in bends.items():
        ends = [(boxes[node], outlines[node]) for node in edge]
        ax.add_patch(_arrow(*ends, bend=bend, red=edge in red, dashed=not {*edge}.isdisjoint(latent), scale=scale))
    if keys:
        legend = ax.legend(handles=keys, loc="lower center", ncols=2, frameon=False, fontsize=_DETAIL_SIZE * scale)
        legend.set_bbox_to_anchor(below, ax.transData)
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    ax.set_aspect("equal", adjustable="box")
    ax.set_axis_off()
    return ax


def _arrange(graph: CausalGraph) -> tuple[dict[str, Box], dict[Edge, float]]:
    """Return the box of each node and the bend of each edge."""
    texts = {node: f"{node}\n{', '.join(own)}" if own != [node] else node for node, own in graph.columns.items()}
    boxes = _positioned(graph, {node: _measured(texts.get(node, node)) for node in graph.nodes})
    return boxes, _route(boxes, list(graph.edges))


def _measured(text: str) -> Box:
    """Wrap a label, its first line as the name and the others as details, and measure its box."""
    first, *rest = text.split("\n")
    name = _wrapped(first, _NAME_WRAP)
    detail = [line for part in rest for line in _wrapped(part, _DETAIL_WRAP)]
    sizes = [*((line, _NAME_SIZE) for line in name), *((line, _DETAIL_SIZE) for line in detail)]
    height = sum(size for _, size in sizes) * _LINE / 72 + 2 * _PAD

    measure = text_to_path.get_text_width_height_descent
    widths = [measure(line, FontProperties(size=size), ismath=False)[0] / 72 for line, size in sizes]
    width = max(map(float, widths)) + 2 * _PAD

    return Box("\n".join(name), "\n".join(detail), max(width, height), height)


def _wrapped(text: str, width: int) -> list[str]:
    """Break lines at spaces and after underscores."""
    lines = textwrap.wrap(text.replace("_", "_ "), width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("_ ", "_") for line in lines] or [""]


def _layers(causal: CausalGraph) -> list[list[str]]:
    """Layer by longest path, causes without causes as late as their effects allow, and order to cross less."""
    graph = causal.dag
    depth = {node: index for index, layer in enumerate(nx.topological_generations(graph)) for node in layer}
    for node in graph:
        if graph.in_degree(node) == 0 and graph.out_degree(node) > 0:
            depth[node] = min(depth[child] for child in graph.successors(node)) - 1
    layers = [[node for node in graph if depth[node] == index] for index in range(max(depth.values()) + 1)]
    for sweep in range(6):
        position = {node: index - (len(layer) - 1) / 2 for layer in layers for index, node in enumerate(layer)}
        neighbours = graph.successors if sweep % 2 else graph.predecessors
        for layer in layers:
            near = {node: [position[other] for other in neighbours(node)] or position[node] for node in layer}
            layer.sort(key=lambda node: np.mean(near[node]))
            position.update({node: index - (len(layer) - 1) / 2 for index, node in enumerate(layer)})
    return layers


def _positioned(graph: CausalGraph, boxes: dict[str, Box]) -> dict[str, Box]:
    """Give each box its position: layers from left to right, and within a layer from top to bottom."""
    layers = _layers(graph)
    heights = [sum(boxes[node].height + _NODE_GAP for node in layer) - _NODE_GAP for layer in layers]
    placed: dict[str, Box] = {}
    x = 0.0
    for layer, height in zip(layers, heights, strict=True):
        width, y = max(boxes[node].width for node in layer), height / 2
        for node in layer:
            placed[node] = replace(boxes[node], x=x + width / 2, y=y - boxes[node].height / 2)
            y -= boxes[node].height + _NODE_GAP
        x += width + max(_LAYER_GAP, max(heights) / 6)  # tall layers further apart, lest edges get steep
    return {node: placed[node] for node in boxes}


def _curve(boxes: Mapping[str, Box], edge: Edge, bend: float) -> Points:
    """Points along the arc that matplotlib draws for ``connectionstyle="arc3,rad=bend"``."""
    start, end = (np.array([boxes[node].x, boxes[node].y]) for node in edge)
    dx, dy = end - start
    middle = (start + end) / 2 + bend * np.array([dy, -dx])
    return np.asarray((1 - _STEPS) ** 2 * start + 2 * _STEPS * (1 - _STEPS) * middle + _STEPS**2 * end)


def _route(boxes: Mapping[str, Box], edges: list[Edge]) -> dict[Edge, float]:
    """Bend each edge as little as keeps it clear of other nodes and, where possible, of other edges."""
    lengths = {edge: math.dist(*((boxes[node].x, boxes[node].y) for node in edge)) for edge in edges}

    def visible(edge: Edge, bend: float) -> Points:
        points = _curve(boxes, edge, bend)
        return points[~(boxes[edge[0]].covers(points, 0) | boxes[edge[1]].covers(points, 0))]

    def cost(edge: Edge, bend: float, others: KDTree) -> float:
        points = visible(edge, bend)
        hits = sum(int(box.covers(points, _CLEARANCE).sum()) for node, box in boxes.items() if node not in edge)
        crowded = int(np.isfinite(others.query(points, distance_upper_bound=_CLEARANCE)[0]).sum())
        return (100 * hits + 3 * crowded) * lengths[edge] / len(_STEPS) + 3 * abs(bend)  # hits and crowds in inches

    bends: dict[Edge, float] = {}
    for edge in sorted(edges, key=lengths.__getitem__) * 2:  # the second round sees every other edge
        others = [visible(other, bend) for other, bend in bends.items() if other != edge]
        tree = KDTree(np.concatenate([np.empty((0, 2)), *others]))
        bends[edge] = min(_BENDS, key=lambda bend: cost(edge, bend, tree))
    return {edge: bends[edge] for edge in edges}


def _extent(boxes: Mapping[str, Box], bends: Mapping[Edge, float]) -> tuple[Points, Points]:
    """Return the lower left and the upper right corner of a drawing, in inches."""
    centers = np.array([[box.x, box.y] for box in boxes.values()])
    halves = np.array([[box.width, box.height] for box in boxes.values()]) / 2
    points = np.concatenate([centers - halves, centers + halves, *(_curve(boxes, *item) for item in bends.items())])
    return points.min(axis=0) - _MARGIN, points.max(axis=0) + _MARGIN


def _arrow(
    start: tuple[Box, Patch], end: tuple[Box, Patch], *, bend: float, red: bool, dashed: bool, scale: float
) -> FancyArrowPatch:
    return FancyArrowPatch(
        (start[0].x, start[0].y),
        (end[0].x, end[0].y),
        patchA=start[1],
        patchB=end[1],
        connectionstyle=f"arc3,rad={bend}",
        arrowstyle="-|>,head_length=0.45,head_width=0.2",
        mutation_scale=(13 if red else 11) * scale,
        shrinkA=0,
        shrinkB=1.0 * scale,
        color=_RED if red else _GREY,
        linewidth=(2.0 if red else 1.0) * scale,
        linestyle="--" if dashed else "-",
        zorder=1.5 if red else 1,
    )


def _outline(box: Box, latent: bool, bold: bool, scale: float) -> FancyBboxPatch:
    return FancyBboxPatch(
        (box.x - box.width / 2, box.y - box.height / 2),
        box.width,
        box.height,
        boxstyle="circle,pad=0" if box.width == box.height else f"round,pad=0,rounding_size={_PAD * 2}",
        facecolor=_LATENT if latent else "white",
        edgecolor=_INK,
        linewidth=(2.0 if bold else 0.9) * scale,
        linestyle="--" if latent else "-",
        zorder=2,
    )


def _write(ax: Axes, box: Box, scale: float) -> None:
    top = box.y + box.height / 2 - _PAD
    for text, size in ((box.name, _NAME_SIZE), (box.detail, _DETAIL_SIZE)):
        height = size * _LINE * (text.count("\n") + 1) / 72
        if text:  # as written: no mathematics is read into a "$" or "_" of a name
            written = ax.text(box.x, top - height / 2, text, parse_math=False, usetex=False, linespacing=_LINE)
            written.set(size=size * scale, color=_INK, ha="center", va="center")
        top -= height
