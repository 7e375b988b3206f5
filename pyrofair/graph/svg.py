"""Drawings of causal graphs as SVG for a page, whose colours they take, with a text alternative."""

from __future__ import annotations

import re
import warnings
from html import escape
from io import StringIO
from typing import Any

import matplotlib as mpl

from pyrofair._validation import in_order
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.drawing import COLOURS, draw_graph
from pyrofair.graph.paths import UnfairPaths, show_path

__all__ = ["graph_svg"]

MOST_DRAWN = 60
SHOWN = 20
SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "pyrofair", "text.usetex": False}
"""Texts are texts, and equal graphs have equal drawings."""


def graph_svg(graph: CausalGraph, unfair: UnfairPaths | None = None, *, name: str = "graph") -> str | None:
    """Return the drawing of a graph as an SVG element, or None of a graph too large to be read or to be drawn.

    Its colours are the variables ``--red``, ``--edge``, ``--ink``, ``--latent`` and ``--node`` of the page. ``name``
    begins the identifiers in it. Texts of nodes are escaped, and characters that no page can hold are left out.

    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    >>> svg = graph_svg(graph, graph.unfair("A -> Y"))
    >>> svg[:4], "Unfair paths, drawn thick and red: A -> Y" in svg.replace("&gt;", ">")
    ('<svg', True)
    """
    if len(graph.nodes) > MOST_DRAWN or len(graph.edges) > 4 * MOST_DRAWN:
        return None
    file = StringIO()
    try:
        with mpl.rc_context(SETTINGS), warnings.catch_warnings(action="ignore"):  # such as of a font without a letter
            figure: Any = draw_graph(graph, unfair).figure
            figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    except Exception:  # a page without a drawing is better than none
        return None
    drawn = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", file.getvalue(), flags=re.DOTALL)
    drawn = re.sub(r"<[^>]*>", lambda tag: _for_page(tag[0], name), drawn[drawn.index("<svg") + 4 :])
    opening, _, rest = drawn.partition(">")  # the first tag, without its name
    title = f"Causal graph from {_escaped(graph.sensitive)} to {_escaped(graph.outcome)}"
    return (
        f'<svg class="graph" role="img" aria-labelledby="{name}-title {name}-desc"{opening}>'
        f'<title id="{name}-title">{title}</title><desc id="{name}-desc">{_escaped(describe(graph, unfair))}</desc>'
        f"{''.join(each for each in rest.strip() if each >= ' ' or each == chr(10))}"
    )


def _for_page(tag: str, name: str) -> str:
    """Return a tag with identifiers of its own, and with the colours and the font of the page."""
    tag = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", tag)
    tag = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", re.sub(r"font-family: [^;\"]*", "", tag))
    for variable, colour in COLOURS.items():
        tag = tag.replace(colour.lower(), f"var(--{variable})")
    return tag


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


def _escaped(text: str) -> str:
    return escape(in_order("".join(each for each in text if each >= " ")))
