"""Figures of the paper's experiments: ours, with the printed numbers beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pyrofair._figures import ShownFigure
from pyrofair.audits.plots import BLUE, COLOURS, GREEN, GREY, RED, plot_feasible_region
from pyrofair.reproduce.printed import Printed

__all__ = ["draw_accuracies", "draw_effects", "draw_frontier", "draw_intervals", "draw_path", "draw_region"]

STATISTICS = {
    "mean_unfair_effect": "(i) mean unfair effect",
    "true_sd": "(ii) spread of conditional effects",
    "piu_paper_bound": "(iii) upper bound on PIU",
    "true_piu": "(iv) PIU",
}
LEGEND: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "fontsize": 8}
PRINTED_MARK: dict[str, Any] = {"marker": "D", "color": "black", "markerfacecolor": "white", "markersize": 6}


def draw_accuracies(
    rows: pd.DataFrame, printed: Mapping[tuple[str, str], Printed], rates: pd.DataFrame, titles: Mapping[str, str]
) -> Figure:
    """Draw our accuracies by data set and method, the printed ones, the majority class and the Bayes rate.

    ``rows`` has data, method, accuracy and accuracy_sd in %; ``rates`` has majority and bayes by data set.
    """
    methods = list(dict.fromkeys(rows["method"]))
    height = np.arange(len(methods))[::-1]
    figure = ShownFigure(figsize=(3.2 + 3.2 * len(titles), 1.6 + 0.33 * len(methods)), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(titles), sharey=True))
    for axes, (data, title) in zip(panels, titles.items(), strict=True):
        own = rows[rows["data"] == data].set_index("method").reindex(methods)
        axes.errorbar(own["accuracy"], height, xerr=own["accuracy_sd"], fmt="o", color=BLUE, capsize=3)
        for (where, method), claim in printed.items():
            if where == data and method in methods:
                at = height[methods.index(method)] + 0.22
                axes.errorbar(claim.value, at, xerr=claim.sd, fmt="none", ecolor="black", capsize=2)
                axes.plot(claim.value, at, linestyle="", **PRINTED_MARK)
        axes.axvline(rates.loc[data, "majority"], color=GREY, linestyle="--", linewidth=1)
        bayes: Any = rates.loc[data, "bayes"]
        if np.isfinite(bayes):
            axes.axvline(bayes, color=GREEN, linestyle=":", linewidth=1.5)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("test accuracy, %")
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(height, methods)
    handles = [
        Line2D([], [], color=BLUE, marker="o", linestyle="", label="ours, standard deviation over seeds"),
        Line2D([], [], linestyle="", label="printed", **PRINTED_MARK),
        Line2D([], [], color=GREY, linestyle="--", label="majority class"),
        Line2D([], [], color=GREEN, linestyle=":", label="Bayes rate (scenarios alone)"),
    ]
    figure.legend(handles=handles, ncols=4 if len(titles) > 1 else 2, **LEGEND)
    return figure


def draw_effects(
    rows: pd.DataFrame, titles: Mapping[str, str], printed: Mapping[tuple[str, str], Printed] | None = None
) -> Figure:
    """Draw the four statistics of unfair effects by method, a column for each data set; the paper's figure 4.

    ``rows`` has data, method, and each statistic with its standard deviation (``_sd``); one that is not available is
    NaN. Printed are values of PIU, in %.
    """
    methods = list(dict.fromkeys(rows["method"]))
    height = np.arange(len(methods))[::-1]
    figure = ShownFigure(figsize=(3.2 + 2.7 * 4, 0.9 + (0.7 + 0.27 * len(methods)) * len(titles)), layout="constrained")
    panels = figure.subplots(len(titles), 4, sharey=True, squeeze=False)
    for line, (data, title) in zip(panels, titles.items(), strict=True):
        own = rows[rows["data"] == data].set_index("method").reindex(methods)
        for axes, (name, label) in zip(line, STATISTICS.items(), strict=True):
            if own[name].isna().all():
                axes.text(0.5, 0.5, f"{label}:\nneeds the equations", transform=axes.transAxes, ha="center", color=GREY)
                axes.set_axis_off()
                continue
            axes.barh(height, own[name], xerr=own[f"{name}_sd"], height=0.6, color=BLUE, alpha=0.75, capsize=2)
            if name == "true_piu":
                for (where, method), claim in (printed or {}).items():
                    if where == data and method in methods:
                        at = height[methods.index(method)]
                        axes.errorbar(claim.value / 100, at, xerr=(claim.sd or 0) / 100, fmt="none", ecolor="black")
                        axes.plot(claim.value / 100, at, linestyle="", **PRINTED_MARK)
            axes.axvline(0.0, color=GREY, linewidth=0.8)
            axes.set_xlabel(label, fontsize=9)
            axes.grid(axis="x", alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
        line[0].set_yticks(height, methods, fontsize=8)
        line[0].set_title(title, fontsize=10, loc="left", fontweight="bold")
    handles = [Line2D([], [], color=BLUE, linewidth=6, alpha=0.75, label="ours, standard deviation over seeds")]
    if printed:
        handles.append(Line2D([], [], linestyle="", label="printed", **PRINTED_MARK))
    figure.legend(handles=handles, ncols=2, **LEGEND)
    return figure


def draw_path(rows: pd.DataFrame, methods: Sequence[str], majority: float, printed: Mapping[str, Printed]) -> Figure:
    """Draw accuracy, positive rate, mean unfair effect and bound against the strength; the paper's figure 5.

    Solid lines are of thresholded decisions, dashed ones of scores.
    """
    figure = ShownFigure(figsize=(13.5, 3.9), layout="constrained")
    panels = figure.subplots(1, 4)
    titles = {
        "accuracy": "test accuracy",
        "positive_rate": "positive rate",
        "mean_unfair_effect": "mean unfair effect",
        "piu_paper_bound": "upper bound on PIU",
    }
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        for colour, method in zip(COLOURS, methods, strict=False):
            for decisions, style in (("threshold", "-"), ("score", "--")):
                if name == "accuracy" and decisions == "score":
                    continue
                own = rows[(rows["method"] == method) & (rows["decisions"] == decisions)]
                mean = own.groupby("strength")[name].mean()
                axes.plot(mean.index, mean, style, color=colour, linewidth=1.6 if style == "-" else 1.1)
            if name == "accuracy" and method in printed:
                axes.axhline(printed[method].value / 100, color=colour, linestyle=":", linewidth=1)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("strength of the penalty")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].axhline(majority / 100, color=GREY, linestyle="-.", linewidth=1)
    panels[2].axhline(0.0, color=GREY, linewidth=0.8)
    handles = [
        *(Line2D([], [], color=c, label=method) for c, method in zip(COLOURS, methods, strict=False)),
        Line2D([], [], color=GREY, label="thresholded decisions"),
        Line2D([], [], color=GREY, linestyle="--", label="scores"),
        Line2D([], [], color=GREY, linestyle="-.", label="left: majority class"),
        Line2D([], [], color=GREY, linestyle=":", label="left: printed in table 1"),
    ]
    figure.legend(handles=handles, ncols=4 + len(methods), **LEGEND)
    return figure


def draw_region(points: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the marginals that both constraints allow, the paper's figure 2, and those of trained classifiers.

    ``points`` has, by the name of a method, strength, p_y0 and p_ypi along its path.
    """
    figure = ShownFigure(figsize=(9.6, 5.3), layout="constrained")
    panels = figure.subplots(1, 2)
    plot_feasible_region((0.2, 0.8), panels[0])
    axes = panels[1]
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    styles = zip((RED, BLUE, GREEN, "#CC79A7"), ("o", "s", "^", "D"), points.items(), strict=False)
    for colour, marker, (name, own) in styles:
        line = own.sort_values("strength")
        axes.plot(line["p_y0"], line["p_ypi"], "-", color=colour, linewidth=1, alpha=0.6)
        size = 15 + 45 * line["strength"] / max(line["strength"].max(), 1e-9)
        axes.scatter(line["p_y0"], line["p_ypi"], s=size, color=colour, marker=marker, label=name)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="P(Y0 = 1)", ylabel="P(Ypi = 1)", aspect="equal")
    axes.set_title("trained classifiers, test rows: larger marks are stronger penalties", fontsize=9)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def draw_intervals(rows: pd.DataFrame, titles: Mapping[str, str]) -> Figure:
    """Draw test errors and their test set bounds by method, ours and those printed.

    ``rows`` has data, method, and error, low, high in % with the suffixes ``_printed`` and none.
    """
    methods = list(dict.fromkeys(rows["method"]))
    height = np.arange(len(methods))[::-1]
    figure = ShownFigure(figsize=(3.0 + 4.0 * len(titles), 1.5 + 0.45 * len(methods)), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(titles), sharey=True))
    for axes, (data, title) in zip(panels, titles.items(), strict=True):
        own = rows[rows["data"] == data].set_index("method").reindex(methods)
        axes.hlines(height, own["low"], own["high"], color=BLUE, linewidth=2)
        axes.plot(own["error"], height, "o", color=BLUE)
        axes.hlines(height + 0.25, own["low_printed"], own["high_printed"], color="black", linewidth=1)
        axes.plot(own["error_printed"], height + 0.25, linestyle="", **PRINTED_MARK)
        axes.axvline(float(own["majority_error"].mean()), color=GREY, linestyle="--", linewidth=1)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("test error and its 90 % interval, %")
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(height, methods)
    handles = [
        Line2D([], [], color=BLUE, marker="o", label="ours, the first split"),
        Line2D([], [], label="printed", **PRINTED_MARK),
        Line2D([], [], color=GREY, linestyle="--", label="majority class"),
    ]
    figure.legend(handles=handles, ncols=3, **LEGEND)
    return figure


def draw_frontier(
    paths: Mapping[str, pd.DataFrame], printed: Mapping[str, tuple[Printed, Printed]], rates: Mapping[str, float]
) -> Figure:
    """Draw accuracy against true PIU, both in %, along each method's strengths, and the printed points.

    ``paths`` has strength, true_piu and accuracy by method, means over seeds; ``printed`` pairs accuracy and PIU.
    """
    figure = ShownFigure(figsize=(7.2, 5.0), layout="constrained")
    axes = figure.subplots()
    markers = ("o", "s", "^", "v", "P", "X", "*", "<")
    colours = (*COLOURS, "black", "#56B4E9", GREY)
    for colour, marker, (name, own) in zip(colours, markers, paths.items(), strict=False):
        line = own.sort_values("strength")
        axes.plot(line["true_piu"], line["accuracy"], marker=marker, color=colour, markersize=5, linewidth=1.2,
                  label=name)  # fmt: skip
    for down, (name, (accuracy, piu)) in zip((6, -26), printed.items(), strict=False):
        axes.errorbar(piu.value, accuracy.value, xerr=piu.sd, yerr=accuracy.sd, fmt="none", ecolor="black", capsize=2)
        axes.plot(piu.value, accuracy.value, linestyle="", **PRINTED_MARK)
        axes.annotate(f"{name}, printed", (piu.value, accuracy.value), xytext=(7, down), textcoords="offset points",
                      fontsize=8)  # fmt: skip
    axes.axhline(rates["bayes"], color=GREEN, linestyle=":", linewidth=1.2)
    axes.annotate("Bayes rate", (0.995, rates["bayes"]), xycoords=("axes fraction", "data"), ha="right", va="bottom",
                  fontsize=8, color=GREEN)  # fmt: skip
    axes.axhline(rates["majority"], color=GREY, linestyle="--", linewidth=1)
    axes.annotate("majority class", (0.995, rates["majority"]), xycoords=("axes fraction", "data"), ha="right",
                  va="bottom", fontsize=8, color=GREY)  # fmt: skip
    axes.set(xlabel="true PIU of decisions, %", ylabel="test accuracy, %")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return figure
