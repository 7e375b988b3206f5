"""The picture of a decomposition: a waterfall from the mean of one group to that of the other, for each contrast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from pyrofair._figures import BLUE, GREY, INK, TEXT, UNFAIR, ShownFigure
from pyrofair.audits.display.words import MINUS, points

__all__ = ["Panel", "draw_waterfalls"]

RANGE, GROUP, RULE = "#B9B9B9", "#DFE3E8", "#EEF0F2"
WIDEST = 36
"""The most characters of a line of a label."""
BAR, THIN, BELOW = 0.5, 0.11, 0.37
"""The heights of bars and of ranges over orders, and how far below the bar these are."""
WIDTH, ROW, LINE, BENEATH, TICKS, LEGEND = 10.2, 0.46, 0.19, 0.2, 0.45, 0.35
"""In inches: the picture, and from above to below a row, lines of a label and beneath a title, the axis, the legend."""
POINTS, INTERVAL, ORDERS, END = 0.6, 0.68, 1.9, 3.12
"""In inches beyond the bars: where the columns of numbers begin, or end (points), and their end."""


@dataclass(frozen=True, eq=False)
class Panel:
    """Parts, a row each, between the means of two groups.

    ``gap`` is the row of their difference, ``labels`` the words for all rows, and ``unfair`` parts that are called so.
    """

    parts: pd.DataFrame
    gap: Any
    means: tuple[float, float]
    labels: Sequence[str]
    unfair: Sequence[str]
    title: str
    beneath: str

    @property
    def names(self) -> list[str]:
        """The labels in lines."""
        return [fill(each, WIDEST) for each in self.labels]

    @property
    def reach(self) -> list[float]:
        """Every place that is drawn."""
        at, last = self.means
        found, rows = [0.0, at, last], self.parts.itertuples()  # type: list[float], Any
        for row in rows:
            found += [at + each for each in (row.lower, row.upper, row.smallest, row.largest) if np.isfinite(each)]
            at += row.estimate
        return [*found, at]


def draw_waterfalls(panels: Sequence[Panel], level: float) -> Figure:
    """Draw panels under each other, on one scale."""
    lines = [line for each in panels for name in each.names for line in name.split("\n")]
    left, ordered = 0.2 + 0.093 * max(map(len, lines)), any(each.parts["smallest"].notna().any() for each in panels)
    width = WIDTH - left - (END if ordered else ORDERS)
    pitch = max(ROW, 0.1 + LINE * max(1 + name.count("\n") for each in panels for name in each.names))
    more = " A part depends on the order in which arrows are switched: drawn is its average, in grey its range."
    above = [fill(each.beneath + more * ordered, 130) for each in panels]
    rows = [pitch * len(each.names) for each in panels]
    heights = [0.65 + BENEATH * text.count("\n") + each + TICKS for each, text in zip(rows, above, strict=True)]
    figure = ShownFigure(figsize=(WIDTH, whole := sum(heights) + LEGEND), dpi=120)
    top, reach = whole, [each for panel in panels for each in panel.reach]
    for panel, text, row, height in zip(panels, above, rows, heights, strict=True):
        figure.text(0.015, (top - 0.08) / whole, panel.title, fontsize=14, fontweight="bold", va="top", color=INK)
        figure.text(0.015, (top - 0.4) / whole, text, fontsize=TEXT, color=GREY, va="top", linespacing=1.3)
        top -= height
        axes = figure.add_axes((left / WIDTH, (top + TICKS) / whole, width / WIDTH, row / whole))
        axes.set_xlim(min(reach), max(reach) + 0.01 * np.ptp(reach))
        axes.set_ylim(-0.5, len(panel.names) - 0.5)
        _draw_panel(axes, panel, level, width)
    together = f"{level:.0%}, all parts{' and levels' if len(panels) > 1 else ''} together"
    _add_legend(figure, any(each.unfair for each in panels), together, ordered=ordered)
    return figure


def _draw_panel(axes: Axes, panel: Panel, level: float, width: float) -> None:
    names, (at, last) = panel.names, panel.means
    parts: Any = panel.parts.itertuples()
    k, unit = len(names), float(np.ptp(axes.get_xlim()))
    ordered = panel.parts["smallest"].notna().any()

    def write(y: int, inches: float, text: str, **how: Any) -> None:
        usual: dict[str, Any] = {"va": "center", "fontsize": TEXT, "color": GREY}
        axes.text(1.0 + inches / width, y, text, transform=axes.get_yaxis_transform(), **usual | how)

    def write_row(y: int, row: Any, colour: str) -> None:
        write(y, POINTS, points(row.estimate), ha="right", fontsize=11, fontweight="bold", color=colour)
        span = f"{points(row.lower)} to {points(row.upper)}" if np.isfinite(row.lower) else "no interval"
        write(y, INTERVAL, span)

    _draw_group(axes, k - 1, at, unit)
    write(k - 1, POINTS, "points", ha="right")
    write(k - 1, INTERVAL, f"{level:.0%} interval")
    write(k - 1, ORDERS, "by order" if ordered else "")
    for y, row in zip(range(k - 2, 0, -1), parts, strict=True):
        colour = UNFAIR if row.part in panel.unfair else GREY if row.part == "confounding" else BLUE
        axes.plot([at, at], [y + BAR / 2.0, y + 1.0 - BAR / 2.0], color=GREY, linewidth=0.9)
        axes.barh(y, row.estimate, left=at, height=BAR, color=colour, zorder=2)
        if np.isfinite(row.smallest):
            axes.barh(y - BELOW, row.largest - row.smallest, left=at + row.smallest, height=THIN, color=RANGE, zorder=1)
            write(y, ORDERS, f"{points(row.smallest)} to {points(row.largest)}")
        if np.isfinite(row.lower):
            whisker = [[row.estimate - row.lower], [row.upper - row.estimate]]
            axes.errorbar(at + row.estimate, y, xerr=whisker, color=INK, linewidth=1.2, capsize=3, zorder=4)
        write_row(y, row, UNFAIR if colour == UNFAIR else INK)
        at += row.estimate
    axes.plot([at, at], [BAR / 2.0, 1.0 - BAR / 2.0], color=GREY, linewidth=0.9)
    _draw_group(axes, 0, last, unit)
    rule = [1.0 + 0.05 / width, 1.0 + (ORDERS - 0.1) / width]
    axes.plot(rule, [0.45, 0.45], color=GREY, linewidth=0.9, transform=axes.get_yaxis_transform(), clip_on=False)
    write_row(0, panel.gap, INK)
    axes.set_yticks(range(k), names[::-1], fontsize=11)
    for tick, name in zip(axes.get_yticklabels(), ["", *panel.parts["part"][::-1], ""], strict=True):
        tick.set_color(UNFAIR if name in panel.unfair else INK)
        tick.set_fontweight("normal" if name else "bold")
    low, high = axes.get_xlim()
    ticks = [each for each in axes.get_xticks() if low <= each <= high]
    axes.set_xticks(ticks, [f"{100.0 * each:.0f}%".replace("-", MINUS) for each in ticks], fontsize=TEXT, color=GREY)
    for each in ticks:
        axes.axvline(each, color=RULE, linewidth=0.9, zorder=0)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _draw_group(axes: Axes, y: int, mean: float, unit: float) -> None:
    axes.barh(y, mean, height=BAR, color=GROUP)
    inside = abs(mean) > 0.12 * unit
    axes.text(mean + (-0.01 if inside else 0.01) * unit, y, f"{100.0 * mean:.1f}%", va="center",
              ha="right" if inside else "left", fontsize=11, fontweight="bold", color=INK)  # fmt: skip


def _add_legend(figure: Figure, unfair: bool, together: str, *, ordered: bool) -> None:
    handles: list[Any] = [Patch(color=BLUE, label="a part of the effect")]
    if unfair:
        handles = [Patch(color=UNFAIR, label="called unfair"), Patch(color=BLUE, label="not called unfair")]
    handles.append(Patch(color=GREY, label="confounding"))
    handles.append(Line2D([], [], color=INK, marker="|", markersize=7, label=together))
    handles += [Patch(color=RANGE, label="range over orders")] if ordered else []
    near = {"bbox_to_anchor": (0.005, -0.005), "handlelength": 1.2, "columnspacing": 1.3, "handletextpad": 0.5}
    figure.legend(handles=handles, loc="lower left", ncols=5, frameon=False, fontsize=TEXT, **near)
