"""The style of all figures: colours, sizes, titles, rows, labels; and figures as a notebook or a page shows them."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import pairwise
from textwrap import fill
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike, NDArray

from pyrofair._validation import in_order

__all__ = [
    "BLUE",
    "COLOURS",
    "GREEN",
    "GREY",
    "INK",
    "LEGEND",
    "LINES",
    "LONGEST",
    "MARKERS",
    "RED",
    "TEXT",
    "UNFAIR",
    "ShownAxes",
    "ShownFigure",
    "as_svg",
    "finish",
    "in_percent",
    "label_places",
    "make_figure",
    "make_rows",
    "write_beside",
]

BLUE, RED, GREEN, GREY, INK = "#0072B2", "#D55E00", "#009E73", "#5A5A5A", "#222222"
COLOURS = (RED, BLUE, GREEN, "#CC79A7", "#E69F00")
"""Colours that people with a colour vision deficiency can tell apart (Okabe and Ito, 2008)."""
MARKERS = ("o", "s", "D", "^", "v", "P")
LINES: tuple[Any, ...] = ("-", "--", "-.", ":")
"""Lines that a print in grey tells apart as well."""
UNFAIR = "#B3261E"
"""The red of reports. Texts are in this, INK, GREY or BLUE, whose contrast with white is above 4.5."""
TEXT, TITLE = 10.0, 11.0
LEGEND: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "fontsize": TEXT}
LONGEST = 26
"""The characters of a line of a name; with longer ones the panels would be too narrow for their titles."""
SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "pyrofair", "text.usetex": False}
"""Texts are texts, and equal figures have equal drawings."""
STEPS = 30
"""The points of a line that a label must not cover."""
FAR = 12.0
"""A label further away, in points, has a line to its place."""
OFFSETS = [
    (distance * np.cos(angle), distance * np.sin(angle))
    for distance in (8.0, 16.0, 26.0, 38.0, 52.0)
    for angle in np.deg2rad([45, 135, 315, 225, 90, 270, 0, 180])
]


def _png(figure: Any) -> bytes:
    """Return a figure as the bytes of a PNG file."""
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=100)
    return written.getvalue()


class ShownFigure(Figure):
    """A figure with a picture of itself: without pyplot a notebook would show the text ``<Figure ...>``."""

    def _repr_png_(self) -> bytes:
        return _png(self)


class ShownAxes(Axes):
    """The axes of a figure of their own, shown as that figure."""

    def _repr_png_(self) -> bytes:
        return _png(self.figure)


def make_figure(width: float, height: float, title: str = "") -> ShownFigure:
    """Return a figure of so many inches under a title, in lines, whose parts make room for each other."""
    figure = ShownFigure(figsize=(width, height), layout="constrained")
    if title:
        figure.suptitle(fill(title, int(11.0 * width)), fontsize=TITLE, color=INK)
    return figure


def make_rows(
    names: Sequence[object], widths: Sequence[float], width: float, title: str = ""
) -> tuple[ShownFigure, list[Axes], NDArray[np.float64]]:
    """Return a figure of panels side by side whose rows have names, as far apart as these need, and their heights."""
    lines = ["\n".join(fill(part, LONGEST) for part in str(each).split("\n")) for each in names]
    pitch = max(0.42, 0.12 + 0.17 * max((1 + each.count("\n") for each in lines), default=1))
    figure = make_figure(width, 1.7 + pitch * len(lines), title)
    panels = list(figure.subplots(1, len(widths), width_ratios=widths, sharey=True, squeeze=False)[0])
    height = np.arange(len(lines), dtype=np.float64)[::-1]
    panels[0].set_yticks(height, lines)
    panels[0].set_ylim(-0.6, len(lines) - 0.4)
    for axes in panels:
        axes.locator_params(axis="x", nbins=5)
        finish(axes, "x")
    return figure, panels, height


def write_beside(axes: Axes, height: NDArray[np.float64], texts: Sequence[str]) -> None:
    """Write a text at the end of each row, to the right of a panel."""
    for at, text in zip(height, texts, strict=True):
        axes.annotate(text, (1.0, at), xycoords=("axes fraction", "data"), xytext=(8, 0), textcoords="offset points",
                      va="center", fontsize=TEXT, color=INK, annotation_clip=False)  # fmt: skip


def finish(axes: Axes, grid: Literal["both", "x", "y"] = "both") -> None:
    """Draw a light grid, and no frame to the right or above."""
    axes.grid(axis=grid, alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def in_percent(axis: Axis) -> None:
    """Set the numbers of an axis of shares to percent, or of differences to points; the unit is in its title."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100.0 * value:.4g}"))


def label_places(axes: Axes, places: ArrayLike, texts: Sequence[str], lines: Sequence[ArrayLike] = ()) -> None:
    """Write a text near each of n places (n, 2), clear of others and of ``lines`` (k, 2), if possible; it goes last."""
    figure: Any = axes.figure
    figure.draw_without_rendering()
    at, panel, pixels = np.asarray(places, dtype=np.float64), axes.get_window_extent(), figure.dpi / 72.0
    drawn = axes.transData.transform(at)
    joined = [axes.transData.transform(np.asarray(each, dtype=np.float64)) for each in lines]
    steps = np.linspace(0.0, 1.0, STEPS)[:, None]
    on = [start + steps * (end - start) for each in joined for start, end in pairwise(each)]
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in np.vstack([drawn, *on])]
    arrow = {"arrowstyle": "-", "color": GREY, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
    for place, middle, text in zip(at, drawn, texts, strict=True):
        own = axes.annotate(text, place, xytext=(0, 0), textcoords="offset points", ha="center", va="center",
                            arrowprops=arrow, fontsize=TEXT, color=INK)  # fmt: skip
        size = np.array(Text.get_window_extent(own).size)  # without the line
        best = (np.inf, np.zeros(2), panel, 0.0)
        for dx, dy in OFFSETS:
            offset = np.array([dx, dy]) * pixels + np.sign(np.round([dx, dy], 6)) * size / 2.0
            box = Bbox.from_bounds(*(middle + offset - size / 2.0), *size)
            outside = not (panel.contains(*box.min) and panel.contains(*box.max))
            far = float(np.hypot(dx, dy))
            cost = 100.0 * outside + 10.0 * sum(box.overlaps(each) for each in taken) + far / 100.0
            best = min(best, (cost, offset, box, far), key=lambda each: each[0])
        own.set_position(tuple(best[1] / pixels))
        if own.arrow_patch is not None:
            own.arrow_patch.set_visible(best[3] > FAR)
        taken.append(best[2])


def as_svg(
    draw: Callable[[], Any], name: str, title: str, description: str, colours: Mapping[str, str], kind: str
) -> str:
    """Return the figure that a function draws as an SVG element of a page, with a text alternative.

    ``colours`` are the page's variables and the colours that these replace; ``name`` begins the identifiers in it, and
    ``kind`` is its class. Texts are escaped, and characters that no page can hold are left out.
    """
    file = io.StringIO()
    with mpl.rc_context(SETTINGS), warnings.catch_warnings(action="ignore"):  # such as of a font without a letter
        draw().savefig(file, format="svg", transparent=True, metadata={"Date": None})
    drawn = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", file.getvalue(), flags=re.DOTALL)
    drawn = re.sub(r"<[^>]*>", lambda tag: _for_page(tag[0], name, colours), drawn[drawn.index("<svg") + 4 :])
    opening, _, rest = drawn.partition(">")  # the first tag, without its name
    return (
        f'<svg class="{kind}" role="img" aria-labelledby="{name}-title {name}-desc"{opening}>'
        f'<title id="{name}-title">{_escaped(title)}</title><desc id="{name}-desc">{_escaped(description)}</desc>'
        f"{''.join(each for each in rest.strip() if each >= ' ' or each == chr(10))}"
    )


def _for_page(tag: str, name: str, colours: Mapping[str, str]) -> str:
    """Return a tag with identifiers of its own, and with the colours and the font of the page."""
    tag = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", tag)
    tag = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", re.sub(r"font-family: [^;\"]*", "", tag))
    for variable, colour in colours.items():
        tag = tag.replace(colour.lower(), f"var(--{variable})")
    return tag.replace("#000000", "var(--ink)")


def _escaped(text: str) -> str:
    """Return a text for a page, without characters that no page can hold."""
    return escape(in_order("".join(each for each in text if each >= " ")))
