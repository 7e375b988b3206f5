"""Figures of the paper's experiments: ours, with the printed numbers beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from claims import Printed
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import pyrofair as pf

BLUE, RED, GREY, GREEN, PINK = "#0072B2", "#D55E00", "#666666", "#009E73", "#CC79A7"
COLOURS = (RED, BLUE, GREEN, PINK, "#E69F00", "black", "#56B4E9", GREY)
STATISTICS = {
    "mean_unfair_effect": "(i) mean unfair effect",
    "true_sd": "(ii) spread of conditional effects",
    "piu_paper_bound": "(iii) upper bound on PIU",
    "true_piu": "(iv) PIU",
}
TRACED = {
    "accuracy": "test accuracy",
    "positive_rate": "positive rate",
    "mean_unfair_effect": "mean unfair effect",
    "piu_paper_bound": "upper bound on PIU",
}
MARK: dict[str, Any] = {"marker": "D", "color": "black", "markerfacecolor": "white", "markersize": 6}
PRINTED = Line2D([], [], linestyle="", label="printed", **MARK)
MAJORITY = Line2D([], [], color=GREY, linestyle="--", label="majority class")


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def _legend(figure: Figure, handles: Sequence[Line2D], columns: int) -> Figure:
    figure.legend(handles=handles, ncols=columns, loc="outside lower center", frameon=False, fontsize=8)
    return figure


def _plain(axes: Axes, grid: str = "x") -> None:
    axes.grid(axis=grid, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _mark(axes: Axes, x: float, y: float, sd: float | None) -> None:
    """Draw a printed number with its standard deviation."""
    axes.errorbar(x, y, xerr=sd, fmt="none", ecolor="black", capsize=2)
    axes.plot(x, y, linestyle="", **MARK)


def draw_accuracies(
    rows: pd.DataFrame, printed: Mapping[tuple[str, str], Printed], rates: pd.DataFrame, titles: Mapping[str, str]
) -> Figure:
    """Draw our accuracies by data set and method, the printed ones, the majority class and the Bayes rate.

    ``rows`` has data, method, accuracy and accuracy_sd in %; ``rates`` has majority and bayes by data set.
    """
    methods = list(dict.fromkeys(rows["method"]))
    height = np.arange(len(methods))[::-1]
    figure = _figure(3.2 + 3.2 * len(titles), 1.6 + 0.33 * len(methods))
    panels = np.atleast_1d(figure.subplots(1, len(titles), sharey=True))
    for axes, (data, title) in zip(panels, titles.items(), strict=True):
        own = rows[rows["data"] == data].set_index("method").reindex(methods)
        axes.errorbar(own["accuracy"], height, xerr=own["accuracy_sd"], fmt="o", color=BLUE, capsize=3)
        for at, method in zip(height, methods, strict=True):
            if (claim := printed.get((data, method))) is not None:
                _mark(axes, claim.value, at + 0.22, claim.sd)
        axes.axvline(rates.loc[data, "majority"], color=GREY, linestyle="--", linewidth=1)
        if np.isfinite(rates.loc[data, "bayes"]):
            axes.axvline(rates.loc[data, "bayes"], color=GREEN, linestyle=":", linewidth=1.5)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("test accuracy, %")
        _plain(axes)
    panels[0].set_yticks(height, methods)
    ours = Line2D([], [], color=BLUE, marker="o", linestyle="", label="ours, standard deviation over seeds")
    bayes = Line2D([], [], color=GREEN, linestyle=":", label="Bayes rate (scenarios alone)")
    return _legend(figure, [ours, PRINTED, MAJORITY, bayes], 4 if len(titles) > 1 else 2)


def draw_effects(
    rows: pd.DataFrame, titles: Mapping[str, str], printed: Mapping[tuple[str, str], Printed] | None = None
) -> Figure:
    """Draw the four statistics of unfair effects by method, a column for each data set; the paper's figure 4.

    ``rows`` has data, method, and each statistic with its standard deviation (``_sd``); one that is not available is
    NaN. Printed are values of PIU, in %.
    """
    methods = list(dict.fromkeys(rows["method"]))
    height = np.arange(len(methods))[::-1]
    figure = _figure(3.2 + 2.7 * 4, 0.9 + (0.7 + 0.27 * len(methods)) * len(titles))
    panels = figure.subplots(len(titles), 4, sharey=True, squeeze=False)
    for line, (data, title) in zip(panels, titles.items(), strict=True):
        own = rows[rows["data"] == data].set_index("method").reindex(methods)
        for axes, (name, label) in zip(line, STATISTICS.items(), strict=True):
            if own[name].isna().all():
                axes.text(0.5, 0.5, f"{label}:\nneeds the equations", transform=axes.transAxes, ha="center", color=GREY)
                axes.set_axis_off()
                continue
            axes.barh(height, own[name], xerr=own[f"{name}_sd"], height=0.6, color=BLUE, alpha=0.75, capsize=2)
            for at, method in zip(height, methods, strict=True):
                if name == "true_piu" and printed and (data, method) in printed:
                    claim = printed[data, method]
                    _mark(axes, claim.value / 100, at, (claim.sd or 0.0) / 100)
            axes.axvline(0.0, color=GREY, linewidth=0.8)
            axes.set_xlabel(label, fontsize=9)
            _plain(axes)
        line[0].set_yticks(height, methods, fontsize=8)
        line[0].set_title(title, fontsize=10, loc="left", fontweight="bold")
    ours = Line2D([], [], color=BLUE, linewidth=6, alpha=0.75, label="ours, standard deviation over seeds")
    return _legend(figure, [ours, PRINTED] if printed else [ours], 2)


def draw_path(rows: pd.DataFrame, methods: Sequence[str], majority: float, printed: Mapping[str, Printed]) -> Figure:
    """Draw accuracy, positive rate, mean unfair effect and bound against the strength; the paper's figure 5.

    Solid lines are of thresholded decisions, dashed ones of scores.
    """
    figure = _figure(13.5, 3.9)
    panels = figure.subplots(1, 4)
    for axes, (name, title) in zip(panels, TRACED.items(), strict=True):
        for colour, method in zip(COLOURS, methods, strict=False):
            for decisions, style, width in (("threshold", "-", 1.6), ("score", "--", 1.1)):
                if name == "accuracy" and decisions == "score":
                    continue
                own = rows[(rows["method"] == method) & (rows["decisions"] == decisions)]
                mean = own.groupby("strength")[name].mean()
                axes.plot(mean.index, mean, style, color=colour, linewidth=width)
            if name == "accuracy" and method in printed:
                axes.axhline(printed[method].value / 100, color=colour, linestyle=":", linewidth=1)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("strength of the penalty")
        _plain(axes, "both")
    panels[0].axhline(majority / 100, color=GREY, linestyle="-.", linewidth=1)
    panels[2].axhline(0.0, color=GREY, linewidth=0.8)
    styles = {"-": "thresholded decisions", "--": "scores", "-.": "left: majority class", ":": "left: printed, table 1"}
    handles = [Line2D([], [], color=c, label=method) for c, method in zip(COLOURS, methods, strict=False)]
    handles += [Line2D([], [], color=GREY, linestyle=style, label=label) for style, label in styles.items()]
    return _legend(figure, handles, len(handles))


def draw_region(points: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the marginals that both constraints allow, the paper's figure 2, and those of trained classifiers.

    ``points`` has, by the name of a method, strength, p_y0 and p_ypi along its path.
    """
    figure = _figure(9.6, 5.3)
    panels = figure.subplots(1, 2)
    pf.audits.plot_feasible_region((0.2, 0.8), panels[0])
    axes = panels[1]
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    for colour, marker, (name, own) in zip(COLOURS, "os^D", points.items(), strict=False):
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
    figure = _figure(3.0 + 4.0 * len(titles), 1.5 + 0.45 * len(methods))
    panels = np.atleast_1d(figure.subplots(1, len(titles), sharey=True))
    for axes, (data, title) in zip(panels, titles.items(), strict=True):
        own = rows[rows["data"] == data].set_index("method").reindex(methods)
        axes.hlines(height, own["low"], own["high"], color=BLUE, linewidth=2)
        axes.plot(own["error"], height, "o", color=BLUE)
        axes.hlines(height + 0.25, own["low_printed"], own["high_printed"], color="black", linewidth=1)
        axes.plot(own["error_printed"], height + 0.25, linestyle="", **MARK)
        axes.axvline(float(own["majority_error"].mean()), color=GREY, linestyle="--", linewidth=1)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("test error and its 90 % interval, %")
        _plain(axes)
    panels[0].set_yticks(height, methods)
    ours = Line2D([], [], color=BLUE, marker="o", label="ours, the first split")
    return _legend(figure, [ours, PRINTED, MAJORITY], 3)


def draw_frontier(
    paths: Mapping[str, pd.DataFrame], printed: Mapping[str, tuple[Printed, Printed]], rates: Mapping[str, float]
) -> Figure:
    """Draw accuracy against true PIU, both in %, along each method's strengths, and the printed points.

    ``paths`` has strength, true_piu and accuracy by method, means over seeds; ``printed`` pairs accuracy and PIU.
    """
    figure = _figure(7.2, 5.0)
    axes = figure.subplots()
    for colour, marker, (name, own) in zip(COLOURS, cycle("os^vPX*<"), paths.items(), strict=False):
        line = own.sort_values("strength")
        axes.plot(line["true_piu"], line["accuracy"], f"{marker}-", color=colour, markersize=5, lw=1.2, label=name)
    for down, (name, (accuracy, piu)) in zip((6, -26), printed.items(), strict=False):
        at = piu.value, accuracy.value
        axes.errorbar(*at, yerr=accuracy.sd, fmt="none", ecolor="black", capsize=2)
        _mark(axes, *at, piu.sd)
        axes.annotate(f"{name}, printed", at, xytext=(7, down), textcoords="offset points", fontsize=8)
    labels: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom", "fontsize": 8}
    for label, value, colour, style in (
        ("Bayes rate", rates["bayes"], GREEN, ":"),
        ("majority class", rates["majority"], GREY, "--"),
    ):
        axes.axhline(value, color=colour, linestyle=style, linewidth=1.2)
        axes.annotate(label, (0.995, value), color=colour, **labels)
    axes.set(xlabel="true PIU of decisions, %", ylabel="test accuracy, %")
    _plain(axes, "both")
    axes.legend(frameon=False, fontsize=8)
    return figure
