"""Figures of an audit, of a family of audits, of a penalty path, and of the marginals that a penalty allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from pyrofair._figures import (
    BLUE,
    COLOURS,
    GREY,
    LEGEND,
    LINES,
    LONGEST,
    RED,
    TEXT,
    ShownAxes,
    finish,
    in_percent,
    label_places,
    make_figure,
    make_rows,
    write_beside,
)
from pyrofair._validation import listed, require_instance, require_real, shown
from pyrofair.audits.display.words import of_decisions, shorten
from pyrofair.effects.bounds import feasible_interval
from pyrofair.effects.estimates import reach_of
from pyrofair.exceptions import DataError

__all__ = [
    "mean_by_strength",
    "plot_audit",
    "plot_feasible_region",
    "plot_frontier",
    "plot_members",
    "plot_stages",
    "plot_thresholds",
    "plot_trade_off",
]

BAND = 0.18
"""How opaque a band over seeds is, or of an interval."""
TICK, CROSS = "\N{CHECK MARK}", "\N{BALLOT X}"
CORNERS = {
    (0, 0): "all rejected,\nin both worlds",
    (1, 1): "all accepted,\nin both worlds",
    (0, 1): "accepted only\nif switched",
    (1, 0): "rejected only\nif switched",
}
"""What the corners of the square of marginals are."""


def plot_audit(
    table: pd.DataFrame,
    decisions: str = "threshold",
    *,
    title: str = "",
    verdicts: Mapping[str, str] | None = None,
    level: float = 0.95,
    paper_bound: bool = False,
) -> Figure:
    """Draw accuracy, the signed mean unfair effect and the bounds on PIU of each model of an audit's table."""
    _check_decisions(table, decisions)
    models = list(dict.fromkeys(table["model"][table["decisions"] == decisions]))  # some give decisions alone
    figure, (left, middle, right), height = make_rows(models, (2, 2.4, 3), 12.0, title)
    _draw_accuracy(left, table, models, height)
    effect = _column(table, decisions, "mean_unfair_effect", models)
    _whiskers(middle, effect, height, BLUE)
    middle.axvline(0.0, color=GREY, linewidth=1)
    middle.set_xlabel(f"mean unfair effect (points),\n{of_decisions(decisions)}")
    _draw_piu(right, table, decisions, models, height)
    right.set_xlabel(f"individual unfairness (PIU, %),\n{of_decisions(decisions)}")
    handles = [
        Patch(color=RED, alpha=0.35, label="PIU, lower to upper bound"),
        Line2D([], [], color=BLUE, linewidth=2, label=f"{level:.0%} confidence interval of each number"),
    ]
    if paper_bound:
        paper = _column(table, decisions, "piu_paper_bound", models)["estimate"].to_numpy()
        for drawn, marker, size, label in (
            (paper < 1.0, "D", 5, "paper's bound"),
            (paper >= 1.0, ">", 7, "paper's bound (uninformative)"),
        ):
            at = np.where(drawn, np.minimum(paper, 1.0), np.nan)
            right.plot(at, height, marker, color=GREY, markersize=size, clip_on=False)
            if drawn.any():
                handles.append(Line2D([], [], color=GREY, marker=marker, markersize=6, linestyle="", label=label))
    write_beside(right, height, [fill((verdicts or {}).get(model, ""), LONGEST) for model in models])
    figure.legend(handles=handles, ncols=4, **LEGEND)
    for axes in figure.axes:
        in_percent(axes.xaxis)
    return figure


def _draw_accuracy(axes: Axes, table: pd.DataFrame, models: Sequence[str], height: Any) -> None:
    accuracy = _column(table, "threshold", "accuracy", models)
    majority = _column(table, "threshold", "majority_rate", models)["estimate"]
    exact = bool(accuracy["note"].astype(str).str.contains("test-set").any())
    axes.set_xlabel("accuracy, %" + "\n(exact interval)" * exact)
    if accuracy["estimate"].isna().all():
        axes.text(0.5, 0.5, "no outcomes", transform=axes.transAxes, ha="center", color=GREY, fontsize=TEXT)
        axes.set_xticks([])
        return
    _whiskers(axes, accuracy, height, BLUE)
    axes.axvline(majority.iloc[0], color=GREY, linestyle="--", linewidth=1)
    axes.annotate("majority class", (majority.iloc[0], 1.0), xycoords=("data", "axes fraction"), color=GREY,
                  xytext=(0, 3), textcoords="offset points", fontsize=TEXT, ha="center")  # fmt: skip


def _draw_piu(axes: Axes, table: pd.DataFrame, decisions: str, models: Sequence[str], height: Any) -> None:
    low, high = (_column(table, decisions, f"piu_{end}", models) for end in ("lower", "upper"))
    axes.barh(height, high["estimate"] - low["estimate"], left=low["estimate"], height=0.34, color=RED, alpha=0.35)
    for end in (low, high):
        _whiskers(axes, end, height, BLUE, marker="|")
    for at in height[low["estimate"].isna().to_numpy()]:
        axes.text(0.5, at, "not available", ha="center", va="center", color=GREY, fontsize=TEXT)
    axes.set_xlim(-0.02, 1.02)


def plot_stages(
    stages: pd.DataFrame, model: str | None, limit: float, *, title: str = "", weighted: Callable[[str], str] = str
) -> Figure:
    """Draw the stages of an audit by world: mean weights, effective sizes, and balance and correction by their z.

    With several models each z is the largest of them. ``weighted`` makes of what a weight is given the name of its
    propensity.
    """
    models = list(dict.fromkeys(stages["model"]))
    if model is not None and model not in models:
        raise DataError(f"model={shown(model)} must be one of {', '.join(map(repr, models))}, or None for all.")
    own = stages if model is None else stages[stages["model"] == model]
    chosen = [rows for _, rows in own.groupby(["regime", "nodes"], sort=False)]
    first = pd.DataFrame([each.iloc[0] for each in chosen])
    worlds = first["regime"].replace("unfair", "unfair-path")
    names = [
        f"{world} world: {nodes}\n{weighted(given)}"
        for world, nodes, given in zip(worlds, first["nodes"], first["given"], strict=True)
    ]
    figure, (left, middle, right), height = make_rows(names, (3, 2, 4), 12.0, title)
    off = np.where(np.isfinite(first["mean_weight"]), first["mean_weight"] - 1.0, np.nan)
    z = first["mean_weight_z"].to_numpy(np.float64)
    half = reach_of(0.95) * np.abs(np.divide(off, z, out=np.zeros_like(off), where=z != 0.0))
    left.axvline(1.0, color=GREY, linewidth=1)
    bad = (first["problem"] != "").to_numpy() if "problem" in first else np.zeros(len(first), dtype=bool)
    for which, colour in ((~bad, BLUE), (bad, RED)):
        left.errorbar(1.0 + off[which], height[which], xerr=half[which], fmt="o", color=colour, capsize=3)
    reach = max(0.15, 1.15 * float(np.nanmax(np.abs(off) + half, initial=0.0)))
    left.set_xlim(1.0 - reach, 1.0 + reach)
    left.set_xlabel("mean weight, 95 % interval\n(should contain 1)")
    middle.barh(height, first["ess"], height=0.5, color=np.where(bad, RED, BLUE).tolist(), alpha=0.5)
    for at, size in zip(height, first["ess"], strict=True):
        middle.annotate(f"{size:,.0f}", (size, at), xytext=(3, 0), textcoords="offset points", va="center")
    middle.set_xlim(0.0, 1.45 * max(float(first["ess"].max()), 1.0))
    middle.set_xlabel("effective size, rows")
    furthest, wrong = limit, [["weights unusable"] if each else [] for each in bad]
    for name, marker, shift in (("balance", "o", 0.17), ("correction", "s", -0.17)):
        for told, at, each in zip(wrong, height + shift, chosen, strict=True):
            size = each.loc[each["counts"], f"{name}_z"].abs()
            if size.isna().all():
                continue
            most, whose = float(size.max()), each.loc[size.idxmax(), "model"]
            furthest = max(furthest, most)
            colour = RED if most > limit else BLUE
            right.hlines(at, 0.0, most, color=colour, linewidth=1.5)
            right.plot(most, at, marker, color=colour, markersize=6)
            if model is None and len(models) > 1:
                right.annotate(shorten(whose, 22), (most, at), xytext=(6, 0), textcoords="offset points", va="center")
            told += [name] if most > limit else []
    right.axvspan(limit, 1.1 * furthest + 0.5, color=RED, alpha=0.1)
    right.set_xlim(0.0, 1.1 * furthest + 0.5)
    right.set_xlabel("largest |z| of balance and correction")
    write_beside(right, height, [f"{CROSS} {', '.join(each)}" if each else f"{TICK} weight ok" for each in wrong])
    handles = [
        Line2D([], [], color=BLUE, marker="o", label="balance: large if weights are wrong"),
        Line2D([], [], color=BLUE, marker="s", label="correction: large if regressions are wrong"),
        Patch(color=RED, alpha=0.3, label=f"beyond {limit:.2g}, or weights unusable: the verdict is withheld"),
    ]
    figure.legend(handles=handles, ncols=3, **LEGEND)
    return figure


def plot_thresholds(table: pd.DataFrame, threshold: float, level: float, title: str) -> Figure:
    """Draw the mean unfair effect and the bounds on PIU of each model against the threshold of its decisions."""
    figure = make_figure(11.0, 4.6, title)
    left, right = figure.subplots(1, 2)
    handles: list[Any] = []
    models: Any = table.sort_values("threshold").groupby("model", sort=False)
    for model, colour, line in zip(table["model"].unique(), cycle(COLOURS), cycle(LINES), strict=False):
        quantities: Any = models.get_group(model).groupby("quantity")
        effect, low, high = map(quantities.get_group, ("mean_unfair_effect", "piu_lower", "piu_upper"))
        at = effect["threshold"]
        left.fill_between(at, effect["lower"], effect["upper"], color=colour, alpha=BAND, linewidth=0)
        left.plot(at, effect["estimate"], line, marker="o", markersize=4, color=colour)
        right.fill_between(at, low["estimate"], high["estimate"], color=colour, alpha=2 * BAND, linewidth=0)
        right.fill_between(at, low["lower"], high["upper"], color=colour, alpha=BAND / 2, linewidth=0)
        for each in (low, high):
            right.plot(at, each["estimate"], line, color=colour)
        handles.append(Line2D([], [], color=colour, linestyle=line, marker="o", markersize=4, label=str(model)))
    left.axhline(0.0, color=GREY, linewidth=1)
    left.set_ylabel("mean unfair effect, points")
    right.set_ylabel("PIU, lower to upper bound, %")
    right.set_ylim(bottom=min(0.0, right.get_ylim()[0]))
    for axes in (left, right):
        axes.axvline(threshold, color=GREY, linewidth=1, linestyle=":")
        axes.set_xlabel("threshold: decisions are positive above it")
        in_percent(axes.yaxis)
        finish(axes)
    handles += [
        Patch(color=GREY, alpha=BAND, label=f"{level:.0%} interval"),
        Line2D([], [], color=GREY, linewidth=1, linestyle=":", label=f"the audit's threshold, {threshold:g}"),
    ]
    figure.legend(handles=handles, ncols=3, **LEGEND)
    return figure


def _check_decisions(table: pd.DataFrame, decisions: str) -> None:
    known = list(dict.fromkeys(table["decisions"])) if "decisions" in table else []
    if not isinstance(decisions, str) or decisions not in known:
        raise DataError(
            f"There are no rows with decisions={shown(decisions)} to draw; the table has {known or 'no rows'}."
        )


def _column(table: pd.DataFrame, decisions: str, quantity: str, models: Sequence[str]) -> pd.DataFrame:
    chosen = table[(table["decisions"] == decisions) & (table["quantity"] == quantity)]
    return chosen.set_index("model").reindex(pd.Index(models))


def plot_members(rows: pd.DataFrame, members: Mapping[str, str], what: str, level: float, title: str = "") -> Figure:
    """Draw the mean unfair effect and the interval of PIU of a model for each member of a family, a forest.

    ``rows`` are the quantities, by member and quantity in the index; ``low`` and ``high`` bound what is not identified.
    ``members`` are in their order, from the top, each with what stands beside its bar; ``what`` is judged.
    """
    names = list(members)
    longest = max(map(len, members.values()), default=0)
    figure, (left, right), height = make_rows(names, (2, 3), 9.5 + 0.07 * longest, title)

    def column(quantity: str, *named: str) -> NDArray[np.float64]:
        own = rows.xs(quantity, level="quantity").reindex(pd.Index(names))
        present = next(each for each in named if each in own)
        return own[present].to_numpy(np.float64)

    effect = [column("mean_unfair_effect", end, "estimate") for end in ("low", "high")]
    piu = [column(quantity, "estimate") for quantity in ("piu_lower", "piu_upper")]
    far = column("piu_lower", "lower"), column("piu_upper", "upper")
    limits = column("mean_unfair_effect", "lower"), column("mean_unfair_effect", "upper")
    handles = _bars(left, height, effect, limits, BLUE, "mean unfair effect", "mean unfair effect, its bounds")
    handles += _bars(right, height, piu, far, RED, "PIU, both bounds nearly equal", "PIU, lower to upper bound")
    left.axvline(0.0, color=GREY, linewidth=0.8)
    left.set_xlabel(f"mean unfair effect (points),\n{what}")
    most = max(float(np.nanmax([*piu, *far], initial=0.0)), 0.01)
    least = min(float(np.nanmin([*piu, *far], initial=0.0)), 0.0)
    right.set_xlim(least - 0.01 * most, 1.04 * most)
    right.set_xlabel(f"individual unfairness (PIU, %),\n{what}")
    write_beside(right, height, list(members.values()))
    handles.append(Line2D([], [], color=GREY, linewidth=1.2, label=f"thin lines: {level:.0%} confidence intervals"))
    figure.legend(handles=handles, ncols=3, **LEGEND)
    for axes in (left, right):
        in_percent(axes.xaxis)
    return figure


def _bars(
    axes: Axes, height: NDArray[np.float64], ends: Sequence[NDArray[np.float64]], far: Sequence[Any], colour: str,
    dot: str, bar: str,
) -> list[Any]:  # fmt: skip
    """Draw bars between both ends, or dots where these are near, and thin lines; return the legend's entries."""
    low, high = ends
    known = np.isfinite(low) & np.isfinite(high)
    axes.barh(height[known], (high - low)[known], left=low[known], height=0.4, color=colour, alpha=0.4)
    axes.hlines(height[known], far[0][known], far[1][known], color=colour, linewidth=1.2)
    size = max(float(np.nanmax(np.abs([*ends, *far]), initial=0.0)), 1e-9)
    point = known & (np.abs(high - low) < 0.01 * size)
    axes.plot(low[point], height[point], "o", color=colour, markersize=5)
    dots = [Line2D([], [], color=colour, marker="o", markersize=5, linestyle="", label=dot)] if point.any() else []
    return [*dots, *([Patch(color=colour, alpha=0.4, label=bar)] if (known & ~point).any() else [])]


def _whiskers(axes: Axes, rows: pd.DataFrame, height: Any, colour: str, marker: str = "o") -> None:
    axes.hlines(height, rows["lower"], rows["upper"], color=colour, linewidth=2)
    axes.plot(rows["estimate"], height, marker, color=colour, markersize=6 if marker == "o" else 11)


def mean_by_strength(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of each numeric column at each strength; NaN where one value is."""
    groups = rows.groupby("strength")
    return groups.mean().where(groups.count().eq(groups.size(), axis=0))  # mean(skipna=False) is new in pandas 3


def plot_trade_off(
    table: pd.DataFrame, decisions: str = "threshold", intervals: pd.DataFrame | None = None, *, title: str = ""
) -> Figure:
    """Draw a penalty path's table: accuracy, mean unfair effect and PIU by strength, and accuracy against PIU.

    Lines are means over seeds, with a gap where a seed has no value, and each dot is one seed, so that two groups of
    solutions show as two. A column ``method`` has a colour each. The first three panels are the paper's figure 3.
    """
    _check_decisions(table, decisions)
    rows = table[table["decisions"] == decisions]
    rows = rows if "method" in rows else rows.assign(method="penalised")
    reach = None if intervals is None or intervals.empty else _far_ends(intervals, decisions)
    figure = make_figure(11.0, 8.0, f"By strength of the penalty; {title}" if title else "")
    (accuracy, effect), (piu, frontier) = figure.subplots(2, 2)
    labelled: list[pd.DataFrame] = []
    for colour, (_, own) in zip(cycle(COLOURS), rows.groupby("method", sort=False), strict=False):
        _draw_by_strength(accuracy, own, "accuracy", colour)
        _draw_by_strength(effect, own, "mean_unfair_effect", colour)
        _draw_by_strength(piu, own, "piu_upper", colour)
        mean = mean_by_strength(own[["strength", "accuracy", "piu_lower", "piu_upper", "piu_paper_bound"]])
        piu.plot(mean.index, mean["piu_lower"], "--", color=colour, linewidth=1)
        piu.plot(mean.index, mean["piu_paper_bound"], ":", color=colour)
        _draw_frontier(frontier, own, mean, reach, colour)
        labelled.append(mean.dropna(subset=["piu_upper", "accuracy"]))
    frontier.set_ylim(frontier.get_ylim())  # as large as the frontier is: the first panel has the majority class
    for axes in (accuracy, frontier):
        axes.axhline(rows["majority_rate"].mean(), color=GREY, linestyle="--", linewidth=1)
        axes.set_ylabel("accuracy, %")
    effect.axhline(0.0, color=GREY, linewidth=0.8)
    effect.set_ylabel("mean unfair effect, points")
    piu.set_ylim(0.0, 1.05 * max(min(1.0, rows["piu_paper_bound"].max()), 0.1))
    piu.set_ylabel("PIU, lower to upper bound, %")
    frontier.set_xlabel("PIU, lower to upper bound, %")
    in_percent(frontier.xaxis)
    frontier.set_xlim(left=min(0.0, frontier.get_xlim()[0]))
    for axes in (accuracy, effect, piu):
        axes.set_xlabel("strength of the penalty")
    for axes in figure.axes:
        in_percent(axes.yaxis)
        finish(axes)
    methods = zip(cycle(COLOURS), dict.fromkeys(rows["method"]), strict=False)
    handles = [
        *(Line2D([], [], color=colour, marker=".", label=method) for colour, method in methods),
        Line2D([], [], color=GREY, linestyle="--", linewidth=1, label="accuracy: majority class"),
        Line2D([], [], color=GREY, label="PIU: upper bound"),
        Line2D([], [], color=GREY, linestyle="--", linewidth=1, label="PIU: lower bound"),
        Line2D([], [], color=GREY, linestyle=":", label="PIU: paper's bound"),
        Patch(color=GREY, alpha=BAND, label="lowest to highest seed"),
        Line2D([], [], color=GREY, linewidth=4, alpha=0.3, label="accuracy against PIU: lower to upper bound"),
    ]
    if reach is not None:
        handles.append(
            Line2D([], [], color=GREY, marker="|", label="accuracy against PIU: 95 % limit of the upper bound")
        )
    figure.legend(handles=handles, ncols=3, **LEGEND)
    ends = pd.concat([each.iloc[[0, -1] if len(each) > 1 else slice(None)] for each in labelled])
    label_places(frontier, ends[["piu_upper", "accuracy"]], [f"{each:g}" for each in ends.index])
    return figure


def plot_frontier(
    table: pd.DataFrame,
    decisions: str,
    intervals: pd.DataFrame,
    at_most: float | None = None,
    chosen: float | None = None,
    *,
    title: str = "",
) -> Figure:
    """Draw a penalty path's accuracy against the upper bound on PIU: a labelled point for each strength."""
    _check_decisions(table, decisions)
    rows = table[table["decisions"] == decisions]
    mean, majority = mean_by_strength(rows[["strength", "accuracy", "piu_upper"]]), rows["majority_rate"].mean()
    figure = make_figure(8.0, 5.6, f"Accuracy against the upper bound on PIU; {title}" if title else "")
    axes = figure.add_subplot()
    axes.plot(mean["piu_upper"], mean["accuracy"], "-", color=GREY, linewidth=0.8, alpha=0.6)
    axes.plot(mean["piu_upper"], mean["accuracy"], "o", color=RED, markersize=6)
    if not intervals.empty:
        far = _far_ends(intervals, decisions).reindex(mean.index)
        axes.hlines(mean["accuracy"], mean["piu_upper"], far, color=RED, linewidth=1.2)
        axes.plot(far, mean["accuracy"], "|", color=RED)
        own = intervals[(intervals["decisions"] == "threshold") & (intervals["quantity"] == "accuracy")]
        around = mean_by_strength(own[["strength", "lower", "upper"]]).reindex(mean.index)
        axes.vlines(mean["piu_upper"], around["lower"], around["upper"], color=BLUE, linewidth=1.2)
    handles = [
        Line2D([], [], color=RED, marker="o", linestyle="", label="strength of the penalty (mean over seeds)"),
        Line2D([], [], color=RED, marker="|", label="up to the 95 % limit of PIU"),
        Line2D([], [], color=BLUE, label="interval of accuracy"),
        Line2D([], [], color=GREY, linestyle="--", label=f"majority class: {majority:.1%}"),
    ]
    axes.set_ylim(axes.get_ylim())  # as large as the points are: the majority class may lie far below
    axes.axhline(majority, color=GREY, linestyle="--", linewidth=1)
    if at_most is not None:
        axes.axvline(at_most, color="black", linewidth=1)
        handles.append(Line2D([], [], color="black", linewidth=1, label=f"limit {100.0 * at_most:.3g} %"))
    if chosen is not None:
        at = mean.loc[chosen]
        axes.plot(at["piu_upper"], at["accuracy"], "o", markersize=16, markerfacecolor="none", color="black")
        handles.append(
            Line2D([], [], color="black", marker="o", markersize=11, markerfacecolor="none", linestyle="",
                   label=f"chosen: strength {chosen:g}")
        )  # fmt: skip
    axes.set_xlabel(f"upper bound on PIU, {of_decisions(decisions)}, %")
    axes.set_ylabel("accuracy, %")
    axes.set_xlim(left=-0.01 * axes.get_xlim()[1])  # a point at 0 is drawn whole
    for axis in (axes.xaxis, axes.yaxis):
        in_percent(axis)
    figure.legend(handles=handles, ncols=2, **LEGEND)
    finish(axes)
    known = mean.dropna()
    at = known[["piu_upper", "accuracy"]]
    label_places(axes, at, [f"{strength:g}" for strength in known.index], [at])
    return figure


def _draw_by_strength(axes: Axes, own: pd.DataFrame, quantity: str, colour: str) -> None:
    """Draw the mean over seeds of a quantity against the strength, a band over them, and each seed as a dot."""
    mean = mean_by_strength(own[["strength", quantity]])[quantity]
    seeds = own.groupby("strength")[quantity]
    axes.plot(mean.index, mean, color=colour)
    axes.plot(own["strength"], own[quantity], ".", color=colour, alpha=0.6)
    if seeds.size().max() > 1:
        low, high = (each.where(mean.notna()) for each in (seeds.min(), seeds.max()))
        axes.fill_between(mean.index, low, high, color=colour, alpha=BAND, linewidth=0)


def _draw_frontier(
    axes: Axes, own: pd.DataFrame, mean: pd.DataFrame, reach: pd.Series[float] | None, colour: str
) -> None:
    """Draw accuracy against PIU: each seed's upper end, and for each strength the mean interval of PIU."""
    axes.plot(own["piu_upper"], own["accuracy"], ".", color=colour, alpha=0.4)
    axes.hlines(mean["accuracy"], mean["piu_lower"], mean["piu_upper"], color=colour, linewidth=4, alpha=0.3)
    if reach is not None:
        ends = reach.reindex(mean.index)
        axes.hlines(mean["accuracy"], mean["piu_upper"], ends, color=colour, linewidth=1)
        axes.plot(ends, mean["accuracy"], "|", color=colour)
    axes.plot(mean["piu_upper"], mean["accuracy"], "o-", color=colour, markersize=4)


def _far_ends(intervals: pd.DataFrame, decisions: str) -> pd.Series[float]:
    """Return the mean over seeds, by strength, of the upper end of the interval of PIU's upper bound."""
    own = intervals[(intervals["decisions"] == decisions) & (intervals["quantity"] == "piu_upper")]
    return mean_by_strength(own[["strength", "upper"]])["upper"]


def plot_feasible_region(levels: float | Sequence[float] = (0.2, 0.8), ax: Axes | None = None) -> Axes:
    """Draw the pairs of marginals that a level of the paper's penalty allows, and those that a level of FIO's allows.

    Parameters
    ----------
    levels
        Levels of the penalty, or one; FIO's level is half of each, as in the paper.
    ax
        The axes to draw on; by default those of a new figure, ``.figure`` of what is returned.

    References
    ----------
    Chikahara et al. (2021), eq. (11), eq. (12) and figure 2.

    Examples
    --------
    >>> plot_feasible_region(0.2).get_xlabel()
    'P(Y0 = 1), baseline world'
    """
    if ax is not None:
        require_instance("ax", ax, Axes, "axes of Matplotlib, or None")
    own = make_figure(5.4, 6.4, "Marginals that a penalty allows")
    axes = own.add_subplot(axes_class=ShownAxes) if ax is None else ax
    p0 = np.linspace(0.0, 1.0, 401)
    several = None if isinstance(levels, str | bytes) else listed(levels)
    each = (levels,) if several is None else several
    if not each:
        raise DataError(f"levels={shown(levels)} must hold one level at least, such as 0.2.")
    drawn = sorted((require_real("levels", level, least=0.0, most=1.0) for level in each), reverse=True)
    styles = cycle(("-", "--", ":", "-."))
    for shade, (level, style) in enumerate(zip(drawn, styles, strict=False), 1):
        low, high = feasible_interval(p0, level)
        alpha = 0.2 + 0.5 * (shade - 1) / max(len(drawn) - 1, 1)
        axes.fill_between(p0, low, high, color=RED, alpha=alpha, linewidth=0, label=f"penalty at most {level:g}")
        gap = level / 2.0
        axes.plot(p0, p0 - gap, style, color=BLUE, label=f"mean unfair effect within {gap:g} of 0 (FIO)")
        axes.plot(p0, p0 + gap, style, color=BLUE)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set(xlabel="P(Y0 = 1), baseline world", ylabel="P(Ypi = 1), unfair-path world")
    for (x, y), name in CORNERS.items():
        axes.text(0.03 + 0.94 * x, 0.03 + 0.94 * y, name, ha="right" if x else "left", va="top" if y else "bottom",
                  bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 2.0})  # fmt: skip
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.01), ncols=1, frameon=False, fontsize=TEXT)
    return axes
