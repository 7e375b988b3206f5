"""Pictures of an audit, of a path of strengths, and of what a penalty allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from pyrofair.bounds import feasible_interval

__all__ = ["plot_audit", "plot_feasible_region", "plot_trade_off"]

BLUE, RED, GREY, GREEN = "#0072B2", "#D55E00", "#666666", "#009E73"
COLOURS = (RED, BLUE, GREEN, "#CC79A7", "#E69F00")


def plot_audit(table: pd.DataFrame, decisions: str = "threshold") -> Figure:
    """Draw the accuracy of each model, and beside it the interval that holds its PIU.

    Parameters
    ----------
    table
        The table of an audit.
    decisions
        ``"threshold"`` or ``"score"``, for the right-hand panel.
    """
    models = list(dict.fromkeys(table["model"]))
    place = np.arange(len(models))[::-1]
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10.0, 1.6 + 0.5 * len(models)), width_ratios=(2, 3), sharey=True, layout="constrained"
    )
    accuracy = _column(table, "threshold", "accuracy", models)
    majority = _column(table, "threshold", "majority_rate", models)["estimate"]
    _whiskers(left, accuracy, place, BLUE)
    if majority.notna().any():
        left.axvline(majority.iloc[0], color=GREY, linestyle="--", linewidth=1)
        left.annotate("majority class", (majority.iloc[0], 1.0), xycoords=("data", "axes fraction"), color=GREY,
                      xytext=(0, 3), textcoords="offset points", fontsize=8, ha="center")  # fmt: skip
    left.set_xlabel("accuracy (exact 90 % interval)")
    low, high = (_column(table, decisions, f"piu_{end}", models) for end in ("lower", "upper"))
    right.barh(place, high["estimate"] - low["estimate"], left=low["estimate"], height=0.34, color=RED, alpha=0.35)
    for end in (low, high):
        _whiskers(right, end, place, RED, marker="|")
    paper = _column(table, decisions, "piu_paper_bound", models)["estimate"].to_numpy()
    inside = np.where(paper <= 1.0, paper, np.nan)
    right.plot(inside, place, "D", color=GREY, markersize=5)
    right.plot(np.where(paper > 1.0, 1.0, np.nan), place, ">", color=GREY, markersize=7, clip_on=False)
    right.set_xlim(-0.02, 1.02)
    right.set_xlabel("probability of individual unfairness, " + ("decisions" if decisions == "threshold" else "scores"))
    figure.legend(
        handles=[
            Patch(color=RED, alpha=0.35, label="PIU lies here (sharp)"),
            Line2D([], [], color=RED, label="interval of each end"),
            Line2D([], [], color=GREY, marker="D", linestyle="", label="the paper's bound (> at 1: vacuous)"),
        ],
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=8,
    )
    left.set_yticks(place, models)
    for axes in (left, right):
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    plt.close(figure)
    return figure


def _column(table: pd.DataFrame, decisions: str, quantity: str, models: Sequence[str]) -> pd.DataFrame:
    chosen = table[(table["decisions"] == decisions) & (table["quantity"] == quantity)]
    return chosen.set_index("model").reindex(pd.Index(models))


def _whiskers(axes: Axes, rows: pd.DataFrame, place: Any, colour: str, marker: str = "o") -> None:
    axes.hlines(place, rows["lower"], rows["upper"], color=colour, linewidth=2)
    axes.plot(rows["estimate"], place, marker, color=colour, markersize=6 if marker == "o" else 11)


def plot_trade_off(table: pd.DataFrame, decisions: str = "threshold") -> Figure:
    """Draw accuracy, mean unfair effect and the bounds on PIU against the strength of the penalty.

    The line is the mean over seeds, each dot one seed, so that a cell with two kinds of solution shows as two.

    Parameters
    ----------
    table
        The table of a penalty path; with a column ``method`` each method has its colour.
    decisions
        ``"threshold"`` or ``"score"``.

    References
    ----------
    Chikahara et al. (2021), figure 3.
    """
    rows = table[table["decisions"] == decisions]
    rows = rows if "method" in rows else rows.assign(method="penalised")
    figure, panels = plt.subplots(1, 3, figsize=(12.0, 3.6), layout="constrained")
    titles = {"accuracy": "accuracy", "mean_unfair_effect": "mean unfair effect", "piu_upper": "PIU: where it can lie"}
    for axes, (quantity, title) in zip(panels, titles.items(), strict=True):
        for colour, (method, own) in zip(COLOURS, rows.groupby("method", sort=False), strict=False):
            mean = own.groupby("strength")[[quantity, "piu_lower", "piu_paper_bound"]].mean()
            axes.plot(mean.index, mean[quantity], color=colour, label=method)
            axes.plot(own["strength"], own[quantity], ".", color=colour, alpha=0.6)
            if quantity == "piu_upper":
                axes.plot(mean.index, mean["piu_lower"], "--", color=colour, linewidth=1)
                axes.plot(mean.index, mean["piu_paper_bound"], ":", color=colour)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("strength of the penalty")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].axhline(rows["majority_rate"].mean(), color=GREY, linestyle="--", linewidth=1, label="majority class")
    panels[0].legend(framealpha=0.8, edgecolor="none", fontsize=8)
    panels[1].axhline(0.0, color=GREY, linewidth=0.8)
    panels[2].set_ylim(0.0, max(1.05 * min(1.0, rows["piu_paper_bound"].max()), 0.1))
    panels[2].legend(
        handles=[
            Line2D([], [], color=GREY, linestyle=":", label="the paper's bound"),
            Line2D([], [], color=GREY, label="sharp upper end"),
            Line2D([], [], color=GREY, linestyle="--", linewidth=1, label="sharp lower end"),
        ],
        framealpha=0.8,
        edgecolor="none",
        fontsize=8,
    )
    plt.close(figure)
    return figure


def plot_feasible_region(levels: Sequence[float] = (0.2, 0.8), ax: Axes | None = None) -> Axes:
    """Draw which pairs of marginals a level of the paper's penalty allows, and which a level of FIO's does.

    Parameters
    ----------
    levels
        Levels of the penalty; FIO's level is half of each, as in the paper.
    ax
        The axes to draw on; by default a new figure.

    References
    ----------
    Chikahara et al. (2021), eq. (11), eq. (12) and figure 2.
    """
    axes = plt.subplots(figsize=(4.0, 4.0), layout="constrained")[1] if ax is None else ax
    p0 = np.linspace(0.0, 1.0, 401)
    for level in sorted(levels, reverse=True):
        low, high = feasible_interval(p0, level)
        label = f"{level:g}" if level == max(levels) else None
        axes.fill_between(p0, low, high, color=RED, alpha=0.3, linewidth=0, label="penalty" if label else None)
        gap = level / 2.0
        axes.fill_between(
            p0, np.clip(p0 - gap, 0, 1), np.clip(p0 + gap, 0, 1), color=BLUE, alpha=0.2, linewidth=0,
            label="mean effect (FIO)" if label else None,
        )  # fmt: skip
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="P(Y0 = 1)", ylabel="P(Ypi = 1)", aspect="equal")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.12), ncols=2, frameon=False, fontsize=8)
    return axes
