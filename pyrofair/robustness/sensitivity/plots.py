"""Figures of sensitivity analyses: the ends of a quantity against the strength of what is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from pyrofair._figures import ShownFigure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_confounding", "plot_cross_world", "plot_switching"]

BLUE, RED, GREY = "#0072B2", "#D55E00", "#666666"
ACROSS = 3
MOST_MARKED = 3
LEGEND_WIDTH = 7.0
"""Inches that a legend of two columns needs."""
APART = 0.09
"""Labels that are closer than this share of the axis would overlap."""
BEHIND = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
TITLES = {
    "mean_unfair_effect": "mean unfair effect",
    "piu": "PIU, by the two marginals",
    "p_y0": "P(Y0 = 1)",
    "p_ypi": "P(Ypi = 1)",
}


def plot_confounding(
    table: pd.DataFrame,
    flips: pd.DataFrame,
    quantity: str,
    context: dict[str, Any],
    benchmark: pd.DataFrame | None = None,
) -> Figure:
    """Draw the ends of a quantity against gamma, a panel for each hidden cause."""
    causes = list(dict.fromkeys(table["hidden_cause"]))
    across = min(ACROSS, len(causes))
    down = -(-len(causes) // across)
    width = max(LEGEND_WIDTH, 0.6 + 3.6 * across)
    figure = ShownFigure(figsize=(width, 0.8 + 2.9 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for axes, cause in zip(panels.ravel(), causes, strict=False):
        own = table[(table["hidden_cause"] == cause) & (table["quantity"] == quantity)]
        _draw(axes, own, cause)
        if quantity == "mean_unfair_effect":
            axes.axhline(0.0, color="black", linewidth=0.8)
        if quantity in ("mean_unfair_effect", "piu"):
            _mark_flip(axes, flips[flips["hidden_cause"] == cause])
        if benchmark is not None:
            _mark_columns(axes, benchmark, cause, float(table["gamma"].max()))
    for axes in panels.ravel()[len(causes) :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel(TITLES[quantity])
    for axes in panels.ravel()[max(0, len(causes) - across) : len(causes)]:
        axes.set_xlabel("gamma (limit of the odds ratio)")
        axes.tick_params(labelbottom=True)
    handles = [
        Patch(color=BLUE, alpha=0.35, label="possible with a hidden cause of this strength"),
        Patch(color=BLUE, alpha=0.12, label=f"{context['level']:.0%} interval of both ends"),
        Line2D([], [], color=RED, linestyle="--", label="conclusion lost, its interval considered"),
    ]
    if benchmark is not None:
        handles.append(Line2D([], [], color=GREY, linestyle=":", label="an observed column left out (90 % of rows)"))
    figure.legend(handles=handles, ncols=2, loc="outside lower center", frameon=False, fontsize=8)
    return figure


def _draw(axes: Axes, own: pd.DataFrame, cause: str) -> None:
    gamma = own["gamma"].to_numpy(np.float64)
    axes.fill_between(gamma, own["lower"], own["upper"], color=BLUE, alpha=0.12, linewidth=0)
    axes.fill_between(gamma, own["low"], own["high"], color=BLUE, alpha=0.35, linewidth=0)
    for end in ("low", "high"):
        axes.plot(gamma, own[end], color=BLUE, linewidth=1.2, linestyle="-" if own["sharp"].all() else (0, (4, 2)))
    axes.set_title(cause + ("" if own["sharp"].all() else " (valid, not sharp)"), fontsize=10)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(_apart(gamma)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _apart(gamma: NDArray[np.float64]) -> list[float]:
    """Return the values of a sweep that have room for a label on a logarithmic axis, the largest among them."""
    at = np.log(np.unique(gamma))[::-1]
    found: list[float] = []
    for each in at:
        if not found or found[-1] - each >= APART * (at[0] - at[-1]):
            found.append(float(each))
    return [float(np.exp(each)) for each in found[::-1]]


def _mark_flip(axes: Axes, flips: pd.DataFrame) -> None:
    at = flips["interval"].to_numpy(np.float64)[:1]
    if len(at) and np.isfinite(at[0]):
        axes.axvline(at[0], color=RED, linestyle="--", linewidth=1.2)
        axes.annotate(f"{at[0]:.3g}", (at[0], 0.97), xycoords=("data", "axes fraction"), xytext=(3, 0), fontsize=8,
                      textcoords="offset points", color=RED, va="top", bbox=BEHIND)  # fmt: skip


def _mark_columns(axes: Axes, benchmark: pd.DataFrame, cause: str, most: float) -> None:
    """Mark the strongest columns of the first propensity that a hidden cause moves."""
    own = benchmark[[cause in names.split(", ") for names in benchmark["hidden_causes"]]]
    if own.empty:
        return
    own = own[(own["of"] == own["of"].iloc[0]) & (own["column"] != "(none)") & (own["q90"] <= most)]
    strongest = own.nlargest(MOST_MARKED, "q90")
    before, level = -np.inf, 0
    for column, at in sorted(zip(strongest["column"], strongest["q90"], strict=True), key=lambda each: each[1]):
        axes.axvline(at, color=GREY, linestyle=":", linewidth=1)
        level = level + 1 if np.log(at) - before < APART * np.log(most) else 0
        before = np.log(at)
        axes.annotate(column, (at, 0.03 + 0.3 * level), xycoords=("data", "axes fraction"), xytext=(2, 0), fontsize=7,
                      textcoords="offset points", color=GREY, rotation=90, bbox=BEHIND)  # fmt: skip


def plot_cross_world(table: pd.DataFrame, flips: pd.DataFrame, quantity: str, context: dict[str, Any]) -> Figure:
    """Draw the ends of a quantity against the share of units with any coupling across worlds."""
    own = table[table["quantity"] == quantity]
    marked = flips if quantity in ("mean_unfair_effect", "piu") else flips.iloc[:0]
    figure = _plot_sweep(
        own,
        marked,
        "delta",
        TITLES[quantity],
        context,
        axis="delta (share of units with any coupling across worlds)",
        filled="possible with this share",
    )
    if quantity == "mean_unfair_effect":
        figure.axes[0].axhline(0.0, color="black", linewidth=0.8)
    return figure


def plot_switching(table: pd.DataFrame, flips: pd.DataFrame, context: dict[str, Any]) -> Figure:
    """Draw the ends of PIU against the probability beyond its minimum that a mediator changes."""
    nodes = ", ".join(context["mediators"])
    return _plot_sweep(
        table,
        flips[np.isfinite(flips["interval"])],
        "gamma",
        "PIU",
        context,
        axis=f"gamma (chance that {nodes} change, beyond the least)",
        filled="possible with so much switching",
    )


def _plot_sweep(
    own: pd.DataFrame,
    flips: pd.DataFrame,
    parameter: str,
    title: str,
    context: dict[str, Any],
    *,
    axis: str,
    filled: str,
) -> Figure:
    """Draw the ends of one quantity against a parameter on a linear axis."""
    figure = ShownFigure(figsize=(LEGEND_WIDTH, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.fill_between(own[parameter], own["lower"], own["upper"], color=BLUE, alpha=0.12, linewidth=0)
    axes.fill_between(own[parameter], own["low"], own["high"], color=BLUE, alpha=0.35, linewidth=0)
    sharp = bool(own["sharp"].all())
    for end in ("low", "high"):
        axes.plot(own[parameter], own[end], color=BLUE, linewidth=1.2, linestyle="-" if sharp else (0, (4, 2)))
    _mark_flip(axes, flips)
    axes.set_xlabel(axis)
    axes.set_ylabel(title + ("" if sharp else " (valid, not sharp)"))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    handles: list[Patch | Line2D] = [
        Patch(color=BLUE, alpha=0.35, label=filled),
        Patch(color=BLUE, alpha=0.12, label=f"{context['level']:.0%} interval of both ends"),
    ]
    if not flips.empty:
        handles.append(Line2D([], [], color=RED, linestyle="--", label="conclusion lost, its interval considered"))
    figure.legend(handles=handles, ncols=2, loc="outside lower center", frameon=False, fontsize=8)
    return figure
