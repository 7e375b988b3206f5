"""Figures of sensitivity analyses: the bounds of a quantity against how far an assumption is given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

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

    from pyrofair.robustness.sensitivity.sweep import Parameter

__all__ = ["plot_sweep"]

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


def plot_sweep(
    rows: pd.DataFrame,
    flips: pd.DataFrame,
    parameter: Parameter,
    quantity: str,
    level: float,
    benchmark: pd.DataFrame | None = None,
    *,
    beside: Sequence[str] = (),
    axis: str = "",
    title: str = "",
) -> Figure:
    """Draw the bounds of a quantity against the parameter of a sweep, a panel for each hidden cause if there are any.

    ``beside`` names columns of what else is limited. ``axis`` and ``title`` replace the names of the parameter and of
    the quantity.
    """
    causes = list(dict.fromkeys(rows.get("hidden_cause", [""])))
    across = min(ACROSS, len(causes))
    down = -(-len(causes) // across)
    figure = ShownFigure(figsize=(max(LEGEND_WIDTH, 0.6 + 3.6 * across), 1.0 + 2.9 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for axes, cause in zip(panels.ravel(), causes, strict=False):
        own, lost = (each[each["hidden_cause"] == cause] if cause else each for each in (rows, flips))
        _draw(axes, own, parameter, cause, beside)
        if quantity == "mean_unfair_effect":
            axes.axhline(0.0, color="black", linewidth=0.8)
        if quantity in ("mean_unfair_effect", "piu"):
            _mark_flip(axes, lost)
        if benchmark is not None:
            _mark_columns(axes, benchmark, cause, float(rows[parameter.name].max()))
    for axes in panels.ravel()[len(causes) :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel(title or TITLES[quantity])
    for axes in panels.ravel()[max(0, len(causes) - across) : len(causes)]:
        axes.set_xlabel(axis or parameter.axis)
        axes.tick_params(labelbottom=True)
    handles = [
        Patch(color=BLUE, alpha=0.35, label=f"possible with this {parameter.name}"),
        Patch(color=BLUE, alpha=0.12, label=f"{level:.0%} interval of both bounds"),
        Line2D([], [], color=RED, linestyle="--", label="conclusion no longer significant"),
    ]
    if benchmark is not None:
        handles.append(Line2D([], [], color=GREY, linestyle=":", label="an observed column left out (90 % of rows)"))
    figure.legend(handles=handles, ncols=2, loc="outside lower center", frameon=False, fontsize=8)
    return figure


def _draw(axes: Axes, own: pd.DataFrame, parameter: Parameter, cause: str, beside: Sequence[str]) -> None:
    at = own[parameter.name].to_numpy(np.float64)
    sharp = bool(own["sharp"].all())
    axes.fill_between(at, own["lower"], own["upper"], color=BLUE, alpha=0.12, linewidth=0)
    axes.fill_between(at, own["low"], own["high"], color=BLUE, alpha=0.35, linewidth=0)
    for end in ("low", "high"):
        axes.plot(at, own[end], color=BLUE, linewidth=1.2, linestyle="-" if sharp else (0, (4, 2)))
    title = cause + " (valid, not sharp)" * (not sharp)
    for name in beside:
        limits = own[name].dropna().to_numpy()
        if len(limits):
            title += f"\n{name} = {parameter.name if (limits == at).all() else f'{limits[0]:g}'}"
    axes.set_title(title, fontsize=10)
    if parameter.logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(_apart(at)))
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
