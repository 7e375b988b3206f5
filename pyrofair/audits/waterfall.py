"""The picture of a decomposition: a waterfall from the mean of one group to that of the other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from pyrofair._figures import ShownFigure

__all__ = ["draw_waterfall", "points"]

UNFAIR, FAIR, NEUTRAL, RANGE, GROUP, INK, SOFT = (
    "#B3261E", "#2F5D9B", "#6B7580", "#B9B9B9", "#DFE3E8", "#222222", "#5A5A5A",
)  # fmt: skip
WIDEST = 36
"""The most characters of a line of a label."""
HEIGHT, THIN, BELOW = 0.5, 0.11, 0.36
"""The heights of bars and of ranges over orders, and how far below the bar these are."""


def points(value: float) -> str:
    """Return a difference of shares in points with its sign, one digit after the point."""
    rounded = round(100.0 * value, 1) + 0.0
    return "" if np.isnan(value) else f"{rounded:+.1f}".replace("-", "\N{MINUS SIGN}")


def draw_waterfall(
    parts: pd.DataFrame,
    gap: Any,
    groups: tuple[tuple[str, float], tuple[str, float]],
    labels: Mapping[str, str],
    unfair: Collection[str] | None,
    title: str,
    beneath: str,
    level: float,
) -> Figure:
    """Draw parts, a row each, between the means of two ``groups``, each with its name.

    ``gap`` is the row of their difference, ``labels`` the words for each part, and ``unfair`` those that are called so.
    """
    k = len(parts) + 2
    names = [groups[0][0], *(fill(labels[each], WIDEST) for each in parts["part"]), groups[1][0]]
    longest = max(len(line) for name in names for line in name.split("\n"))
    height, left = 1.5 + 0.44 * k, 0.02 + 0.0088 * longest
    figure = ShownFigure(figsize=(10.2, height), dpi=120)
    axes = figure.add_axes((left, 0.75 / height, 0.99 - left, 0.44 * k / height))
    (_, first), (_, last) = groups
    reach, at = [first, last], first
    rows: list[Any] = list(parts.itertuples())
    for row in rows:
        reach += [at + each for each in (row.lower, row.upper, row.smallest, row.largest) if np.isfinite(each)]
        at += row.estimate
    low, high = min(0.0, *reach), max(reach)
    unit = high - low
    column = high + 0.13 * unit
    _draw_group(axes, k - 1, first, unit)
    at = first
    for i, row in enumerate(rows):
        y = k - 2 - i
        axes.plot([at, at], [y + HEIGHT / 2.0, y + 1.0 - HEIGHT / 2.0], color=NEUTRAL, linewidth=0.9)
        _draw_part(axes, y, at, row, _colour(row.part, unfair), column, unit)
        at += row.estimate
    axes.plot([at, at], [HEIGHT / 2.0, 1.0 - HEIGHT / 2.0], color=NEUTRAL, linewidth=0.9)
    _draw_group(axes, 0, last, unit)
    axes.plot([column - 0.1 * unit, column + 0.22 * unit], [0.42, 0.42], color=NEUTRAL, linewidth=0.9)
    _write(axes, 0, column, unit, points(gap.estimate), gap.lower, gap.upper, INK)
    ordered = parts["smallest"].notna().any()
    heads = ("points", f"{level:.0%} interval", "by order" if ordered else "")
    for text, x, side in zip(
        heads, (column, column + 0.015 * unit, column + 0.29 * unit), ("right", "left", "left"), strict=True
    ):
        axes.text(x, k - 1, text, va="center", ha=side, fontsize=10, color=SOFT)
    axes.set_yticks(range(k), names[::-1], fontsize=11)
    for tick, name in zip(axes.get_yticklabels(), ["", *parts["part"][::-1], ""], strict=True):
        tick.set_color(UNFAIR if unfair and name in unfair else INK)
        tick.set_fontweight("normal" if name else "bold")
    axes.set_xlim(low, column + 0.54 * unit)
    axes.set_ylim(-0.5, k - 0.5)
    ticks = [each for each in axes.get_xticks() if low <= each <= high]
    axes.set_xticks(ticks, [f"{100.0 * each:.0f}%" for each in ticks], fontsize=10, color=SOFT)
    for each in ticks:
        axes.axvline(each, color="#EEF0F2", linewidth=0.9, zorder=0)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    figure.text(0.015, 1.0 - 0.08 / height, title, fontsize=14, fontweight="bold", va="top", color=INK)
    figure.text(0.015, 1.0 - 0.4 / height, beneath, fontsize=10, color=SOFT, va="top", linespacing=1.3)
    _add_legend(figure, unfair, level, ordered=bool(ordered))
    return figure


def _colour(part: str, unfair: Collection[str] | None) -> str:
    if part == "confounding":
        return NEUTRAL
    return UNFAIR if unfair and part in unfair else FAIR


def _draw_group(axes: Axes, y: int, mean: float, unit: float) -> None:
    axes.barh(y, mean, height=HEIGHT, color=GROUP)
    inside = abs(mean) > 0.12 * unit
    axes.text(mean + (-0.01 if inside else 0.01) * unit, y, f"{100.0 * mean:.1f}%", va="center",
              ha="right" if inside else "left", fontsize=11, fontweight="bold", color=INK)  # fmt: skip


def _draw_part(axes: Axes, y: int, at: float, row: Any, colour: str, column: float, unit: float) -> None:
    axes.barh(y, row.estimate, left=at, height=HEIGHT, color=colour, zorder=2)
    if np.isfinite(row.smallest):
        axes.barh(y - BELOW, row.largest - row.smallest, left=at + row.smallest, height=THIN, color=RANGE, zorder=1)
        text = f"{points(row.smallest)} to {points(row.largest)}"
        axes.text(column + 0.29 * unit, y, text, va="center", ha="left", fontsize=10, color=SOFT)
    reach = [[row.estimate - row.lower], [row.upper - row.estimate]]
    if np.isfinite(row.lower):
        axes.errorbar(at + row.estimate, y, xerr=reach, color=INK, linewidth=1.2, capsize=3, zorder=4)
    _write(axes, y, column, unit, points(row.estimate), row.lower, row.upper, colour if colour == UNFAIR else INK)


def _write(axes: Axes, y: int, column: float, unit: float, text: str, lower: float, upper: float, colour: str) -> None:
    axes.text(column, y, text, va="center", ha="right", fontsize=11, fontweight="bold", color=colour)
    span = f"{points(lower)} to {points(upper)}" if np.isfinite(lower) else "no interval"
    axes.text(column + 0.015 * unit, y, span, va="center", ha="left", fontsize=10, color=SOFT)


def _add_legend(figure: Figure, unfair: Collection[str] | None, level: float, *, ordered: bool) -> None:
    handles: list[Any] = [Patch(color=FAIR, label="a part of the effect")]
    if unfair:
        handles = [Patch(color=UNFAIR, label="called unfair"), Patch(color=FAIR, label="not called unfair")]
    handles.append(Patch(color=NEUTRAL, label="confounding"))
    handles.append(Line2D([], [], color=INK, marker="|", markersize=7, label=f"{level:.0%}, all parts together"))
    handles += [Patch(color=RANGE, label="range over orders")] if ordered else []
    near = {"bbox_to_anchor": (0.005, -0.005), "handlelength": 1.2, "columnspacing": 1.3, "handletextpad": 0.5}
    figure.legend(handles=handles, loc="lower left", ncols=5, frameon=False, fontsize=9.5, **near)
