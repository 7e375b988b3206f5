"""A sensitivity analysis: an assumption is given up by growing amounts, and bounds that never narrow are reported.

An analysis is a :class:`Parameter` and, for each assumption that is given up, a :class:`Departure`: influence values of
both bounds for each value of the parameter. All else is here: nested intervals, PIU, where conclusions flip, the text.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

from pyrofair._figures import BLUE, GREY, INK, LEGEND, RED, TEXT, finish, in_percent, make_figure
from pyrofair._validation import listed, require_choice, require_real, shown
from pyrofair.audits.audit_view import RIGHT_GRAPH, figure_markup, graph_block, missing_blocks
from pyrofair.audits.display.export import known_versions
from pyrofair.audits.display.page import Table, make_table
from pyrofair.audits.display.words import Answer, between, describe_comparison, span
from pyrofair.audits.view import Block, Report, View
from pyrofair.exceptions import DataError
from pyrofair.robustness.sensitivity.problem import Problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["QUANTITIES", "Departure", "Parameter", "Sweep", "crossing", "nested", "sweep"]

Array = NDArray[np.float64]
QUANTITIES = ("p_y0", "p_ypi", "mean_unfair_effect", "piu")
VALUES = ("low", "high", "lower", "upper")
LOW, HIGH = slice(0, None, 2), slice(1, None, 2)
"""Of these, a bound with its limit."""
WITHIN = {"mean_unfair_effect": (-1.0, 1.0), "sum": (0.0, 2.0)}
"""Where bounds lie that are not of a probability."""
ROUNDING = 1e-12
ACROSS = 3
MOST_MARKED = MOST_PATHS = 3
LEGEND_WIDTH = 7.0
"""Inches that a legend of two columns needs."""
APART = 0.09
"""Labels that are closer than this share of the axis would overlap."""
BEHIND = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
MORE = 'More: .details(), .table, .flips_at, .plot(), .to_html("sensitivity.html").'
TITLES = {
    "mean_unfair_effect": "mean unfair effect",
    "piu": "PIU, by the two marginals",
    "p_y0": "P(Y0 = 1)",
    "p_ypi": "P(Ypi = 1)",
}


@dataclass(frozen=True)
class Parameter:
    """How far an assumption is given up: from ``neutral``, not at all, to ``most``.

    ``what`` and ``hint`` are for messages, ``axis`` for pictures; at ``logarithmic`` distances conclusions are
    interpolated, and pictures drawn.
    """

    name: str
    neutral: float
    most: float
    what: str
    axis: str
    hint: str = ""
    logarithmic: bool = False

    def read(self, given: object) -> tuple[float, ...]:
        """Return the values asked for and the neutral one, in order."""
        values = listed(given)
        if not values:
            raise DataError(f"{self.name}s={shown(given)} must be a list of {self.what}.")
        found = [
            require_real(f"{self.name}s[{i}]", each, least=self.neutral, most=self.most, hint=self.hint)
            for i, each in enumerate(values)
        ]
        return tuple(sorted({self.neutral, *found}))


@dataclass(frozen=True, eq=False)
class Departure:
    """An assumption that is given up, by G values of a parameter; ``labels`` are its columns in tables.

    ``bounds`` has the influence values (n, G) of the lower and of the upper bound: of ``p_y0``, ``p_ypi``,
    ``mean_unfair_effect`` and ``sum`` of both probabilities, from which PIU follows, or of ``piu`` alone. ``sharp`` is
    whether a model without the assumption attains the bounds of a quantity at a value of the parameter. ``beside`` has
    for each value what else is limited, a column each.
    """

    labels: Mapping[str, str]
    bounds: Mapping[str, tuple[Array, Array]]
    sharp: Callable[[str, float], bool]
    beside: Mapping[str, Sequence[float]] = field(default_factory=dict)


def sweep(
    problem: Problem, parameter: Parameter, values: Sequence[float], departures: Sequence[Departure]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the table of bounds by departure, value and quantity, and that of the values at which conclusions flip."""
    rows, flips = [], []
    for each in departures:
        found = {
            name: nested(problem.ends(name, *both)).clip(*WITHIN.get(name, (0.0, 1.0)))
            for name, both in each.bounds.items()
        }
        piu = _Piu.of(found)
        found["piu"] = piu.ends
        point = {name: ends[:, 1] - ends[:, 0] <= ROUNDING for name, ends in found.items()}
        if "sum" in found:  # two marginals that are known attain the bounds on PIU
            point["piu"] |= point["mean_unfair_effect"] & point["sum"]
        for i, value in enumerate(values):
            own = {parameter.name: value, **{name: limits[i] for name, limits in each.beside.items()}}
            for quantity in QUANTITIES if "sum" in found else ("piu",):
                sharp = bool(point[quantity][i]) or (each.sharp(quantity, value) and not problem.context["unused"])
                ends = dict(zip(VALUES, found[quantity][i].tolist(), strict=True))
                rows.append({**each.labels, **own, "quantity": quantity, **ends, "sharp": sharp})
        flips += [{**each.labels, **flip} for flip in piu.flips(parameter, np.array(values), problem.context)]
    return pd.DataFrame(rows), pd.DataFrame(flips)


def nested(ends: Array) -> Array:
    """Return bounds and their limits (G, 4) that widen from row to row, as the sets that they bound do.

    Columns are the lower and the upper bound, the lower limit of the first and the upper limit of the second. Both are
    estimated apart. If they cross, by sampling error, the smaller one is the lower bound, and the limits contain the
    intervals of both. Bounds inside those of a smaller departure give way to these.

    >>> nested(np.array([[0.2, 0.2, 0.1, 0.3], [0.25, 0.24, 0.2, 0.3]])).round(2).tolist()
    [[0.2, 0.2, 0.1, 0.3], [0.2, 0.25, 0.1, 0.3]]
    """
    low, high, lower, upper = ends.T
    crossed = low > high
    lower, upper = (
        np.where(crossed, np.minimum(lower, 2.0 * high - upper), lower),
        np.where(crossed, np.maximum(upper, 2.0 * low - lower), upper),
    )
    low, high = np.minimum(low, high), np.maximum(low, high)
    down, up = np.minimum.accumulate, np.maximum.accumulate
    return np.column_stack([down(low), up(high), down(lower), up(upper)])


@dataclass(frozen=True, eq=False)
class _Piu:
    """Bounds on PIU, ``ends`` (G, 4): at least each of ``lows``, at most each of ``highs``, (G, 2) with limits."""

    lows: Sequence[Array]
    highs: Sequence[Array]
    ends: Array
    above_nothing: str

    @classmethod
    def of(cls, found: Mapping[str, Array]) -> _Piu:
        """Return the bounds that those of both marginals imply, or those of PIU itself."""
        if "sum" in found:
            effect, total = found["mean_unfair_effect"], found["sum"]
            lows, highs = [effect[:, LOW], -effect[:, HIGH]], [total[:, HIGH], 2.0 - total[:, LOW]]
            above_nothing = "the mean unfair effect is not 0"
        else:
            lows, highs, above_nothing = [found["piu"][:, LOW]], [found["piu"][:, HIGH]], "PIU is above 0"
        both = np.stack([np.max(lows, axis=0), np.min(highs, axis=0)], axis=2)
        return cls(lows, highs, nested(both.reshape(-1, 4)).clip(0.0, 1.0) + 0.0, above_nothing)

    def flips(self, parameter: Parameter, values: Array, context: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield for each conclusion the least value at which it is lost: of the estimate, and with its interval."""
        above, at_most = context["above"], context["at_most"]
        said = f"PIU is above {above:g}" if above else self.above_nothing
        conclusions = [(said, [np.minimum(each, self.ends[:, LOW]) - above for each in self.lows])]
        if at_most is not None:
            margins = [at_most - np.maximum(each, self.ends[:, HIGH]) for each in self.highs]
            conclusions.append((f"PIU is at most {at_most:g}", margins))
        at = np.log(values) if parameter.logarithmic else values
        for text, margins in conclusions:
            found = [crossing(at, [each[:, i] for each in margins]) for i in (0, 1)]
            point, interval = np.exp(found).tolist() if parameter.logarithmic else found
            yield {"conclusion": text, "point": point, "interval": interval}


def crossing(at: Array, margins: Sequence[Array]) -> float:
    """Return where the last of several margins (k,) at increasing values (k,) is 0 first: inf if one never is.

    Only margins that are positive at the first value count; NaN without any. Between values a margin is a monotone
    cubic.

    >>> round(crossing(np.array([0.0, 1.0, 2.0]), [np.array([1.0, 0.5, -0.5]), np.array([-1.0, -1.0, -1.0])]), 1)
    1.6
    """
    return max((_first_zero(at, margin) for margin in margins if margin[0] > 0.0), default=np.nan)


def _first_zero(at: Array, margin: Array) -> float:
    lost = np.flatnonzero(margin <= 0.0)
    if not len(lost):
        return np.inf
    roots = PchipInterpolator(at, margin).solve(0.0, extrapolate=False)
    inside = roots[(roots > at[lost[0] - 1]) & (roots <= at[lost[0]])]
    return float(inside[0]) if len(inside) else float(at[lost[0]])


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Report):
    """The result of a sensitivity analysis, and how it shows itself."""

    title: ClassVar[str]
    parameter: ClassVar[Parameter]
    main: ClassVar[str] = "mean_unfair_effect"
    """The quantity that the short report and the page show first."""
    beside: ClassVar[tuple[str, ...]] = ()
    """Columns of what else is limited."""

    table: pd.DataFrame
    flips_at: pd.DataFrame
    assumptions: Any
    context: dict[str, Any]

    @abstractmethod
    def _about(self) -> str:
        """Return what the parameter limits."""

    def _parts(self) -> Iterator[tuple[str, str, pd.DataFrame]]:
        """Yield each departure: its name, a heading, and the rows of the main quantity."""
        yield "", self._named(self.main), self.table[self.table["quantity"] == self.main]

    def _named(self, quantity: str) -> str:
        return "PIU" if quantity == self.main == "piu" else TITLES[quantity]

    def _stated(self) -> list[str]:
        return list(self.assumptions)

    def _lead(self) -> list[str]:
        """Return what was analysed, and what the parameter limits."""
        first, name = self.context, self.parameter.name
        paths, more = first["unfair"][:MOST_PATHS], len(first["unfair"]) - MOST_PATHS
        lines = [
            f"{self.title} of {first['model']} ({first['decisions']}), {first['rows']:,} rows; unfair: "
            f"{', '.join(paths)}{f' and {more} more' if more > 0 else ''}.",
            self._about(),
        ]
        doubt = f"In doubt at {name} = {self.parameter.neutral:g} already: {first['doubt']}."
        return [*lines, doubt] if first["doubt"] else lines

    def __str__(self) -> str:
        lines = [*self._lead(), ""]
        for cause, _, rows in self._parts():
            lines += self._flips(cause)
            ends: Any = (rows.iloc[[0, -1]] if len(rows) > 1 else rows).to_dict("records")
            name = self.parameter.name
            spans = [f"{self._between(each)} at {name} = {each[name]:g}" for each in ends]
            lines.append(f"  {self._named(self.main)}: {'; '.join(spans)}")
        return "\n".join([*lines, "", MORE])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.context['model']}; print it for a verdict>"

    def _table(self, i: int, heading: str, rows: pd.DataFrame) -> Table:
        """Return the bounds of a departure at each value, as texts."""
        names = [name for name in (self.parameter.name, *self.beside) if not rows[name].isna().any()]
        ends: Any = rows.assign(estimate=np.nan).itertuples()
        shown = (
            rows[names]
            .rename(columns=lambda name: name.replace("_", " "))
            .assign(
                bounds=[span(each, points=self.main == "mean_unfair_effect") for each in ends],
                attained=np.where(rows["sharp"], "sharp", "valid, not sharp"),
            )
        )
        note = f"In brackets {self.context['level']:.0%} intervals of both bounds. The CSV has every quantity."
        return make_table(f"bounds-{i}", heading, shown.rename(columns={"attained": ""}), self.table, note=note)

    @property
    def view(self) -> View:
        """The report as data."""
        context, name, paths = self.context, self.parameter.name, self.context["paths"]
        parts = [*self._parts()]
        stated = [*self._stated(), context["units"], *context["records"]]
        if unused := ", ".join(context["unused"]):
            stated.append(f"{unused} shares a declared latent cause and is not used: no interval is called sharp.")
        return View(
            title=self.title,
            question=[
                f"How far may an assumption fail before the verdict on {context['model']} changes?",
                f"{describe_comparison(paths)}; {context['rows']:,} rows.",
                self._about(),
            ],
            lead=self._lead(),
            blocks=[
                Block(
                    "bounds",
                    f"Bounds against {name}",
                    tables=[self._table(i, heading, rows) for i, (_, heading, rows) in enumerate(parts)],
                    markup=lambda: figure_markup(
                        partial(self._plot, self.main), "bounds-drawing", self.title, self._about()
                    ),
                ),
                Block("conclusions", "Conclusions", [each for cause, *_ in parts for each in self._flips(cause)]),
                *missing_blocks(context["missing"]),
                graph_block(paths),
            ],
            schema="pyrofair-sensitivity",
            data=self._data,
            answers=[(cause or context["model"], self._answer(cause, rows)) for cause, _, rows in parts],
            basis=[RIGHT_GRAPH, f"Intervals hold with {context['level']:.0%}; the assumptions below."],
            changes=[
                f"Compare the {name} at which the verdict changes with observed columns, or with what you know.",
                *[f"Try values beyond {self._most:g} before you rely on a verdict that holds at all of them."]
                * (self._most < self.parameter.most),
            ],
            assumptions=[("Assumptions:", stated)],
        )

    def _answer(self, cause: str, rows: pd.DataFrame) -> Answer:
        """Return how far a conclusion holds, and the bounds at the largest value."""
        own = self.flips_at[self.flips_at["hidden_cause"] == cause] if cause else self.flips_at
        at, name, last = own["interval"].iloc[0], self.parameter.name, rows.iloc[-1]
        head = "Does not hold" if np.isnan(at) else "Holds at all tried" if np.isinf(at) else f"Up to {name} = {at:.3g}"
        told = f"{self._named(self.main)} at {name} = {last[name]:g}: {self._between(last)}."
        return Answer(head, " ".join([*self._flips(cause), f"{told[0].upper()}{told[1:]}"]), "open")

    def _between(self, row: Any) -> str:
        return between(row["low"], row["high"], points=self.main == "mean_unfair_effect")

    @property
    def _most(self) -> float:
        return float(max(self.context[f"{self.parameter.name}s"]))

    def _data(self, rows: bool) -> dict[str, Any]:
        plain = {
            name: each for name, each in self.context.items() if isinstance(each, int | float | str | list | tuple)
        }
        return {
            "versions": known_versions(),
            "context": plain,
            "table": self.table,
            "flips_at": self.flips_at,
            "missing": self.context["missing"],
            "assumptions": self.assumptions,
        }

    def _plot(self, quantity: str, benchmark: pd.DataFrame | None = None) -> Figure:
        """Draw the bounds of a quantity against the parameter, a panel for each hidden cause if there are any."""
        require_choice("quantity", quantity, QUANTITIES)
        rows = self.table[self.table["quantity"] == quantity]
        causes = list(dict.fromkeys(rows.get("hidden_cause", [""])))
        across = min(ACROSS, len(causes))
        down = -(-len(causes) // across)
        context = self.context
        heading = (
            f"{self.title} of {context['model']}. {describe_comparison(context['paths'])}; {context['rows']:,} rows"
        )
        figure = make_figure(max(LEGEND_WIDTH, 0.6 + 3.6 * across), 1.5 + 2.9 * down, heading)
        panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
        for axes, cause in zip(panels.ravel(), causes, strict=False):
            own, lost = (each[each["hidden_cause"] == cause] if cause else each for each in (rows, self.flips_at))
            _draw(axes, own, self.parameter, cause, self.beside)
            if quantity == "mean_unfair_effect":
                axes.axhline(0.0, color="black", linewidth=0.8)
            if quantity in ("mean_unfair_effect", "piu"):
                _mark_flips(axes, lost)
            if benchmark is not None:
                _mark_columns(axes, benchmark, cause, float(rows[self.parameter.name].max()), lost)
        for axes in panels.ravel()[len(causes) :]:
            axes.set_visible(False)
        for axes in panels[:, 0]:
            axes.set_ylabel(f"{self._named(quantity)}, {'points' if quantity == 'mean_unfair_effect' else '%'}")
        for axes in panels.ravel()[max(0, len(causes) - across) : len(causes)]:
            axes.set_xlabel(self.parameter.axis.format(", ".join(context.get("mediators", ()))))
            axes.tick_params(labelbottom=True)
        handles: list[Any] = [
            Patch(color=BLUE, alpha=0.35, label=f"possible with this {self.parameter.name}"),
            Patch(color=BLUE, alpha=0.12, label=f"{self.context['level']:.0%} interval of both bounds"),
        ]
        if quantity in ("mean_unfair_effect", "piu") and np.isfinite(self.flips_at["interval"]).any():
            handles.append(Line2D([], [], color=RED, linestyle="--", label="a conclusion no longer significant"))
        if benchmark is not None:
            handles.append(
                Line2D([], [], color=GREY, linestyle=":", label="an observed column left out (90 % of rows)")
            )
        figure.legend(handles=handles, ncols=2, **LEGEND)
        return figure

    def _flips(self, cause: str = "") -> list[str]:
        """Return for each conclusion, of one cause if named, up to which value it holds, its interval considered."""
        name, found = self.parameter.name, []
        for each in self.flips_at.to_dict("records"):
            if cause and each["hidden_cause"] != cause:
                continue
            what, at = f"{cause}{': ' * bool(cause)}'{each['conclusion']}'", each["interval"]
            if np.isnan(at):
                found.append(f"{what} does not hold at {name} = {self.parameter.neutral:g}, its interval considered.")
            elif np.isinf(at):
                found.append(f"{what} holds at every {name} tried (up to {self._most:g}).")
            else:
                found.append(f"{what} holds up to {name} = {at:.3g}.")
        return found


# -- pictures ---------------------------------------------------------------------------------------------------------


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
    axes.set_title(title, fontsize=TEXT)
    in_percent(axes.yaxis)
    if parameter.logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(_apart(at)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    finish(axes)


def _apart(gamma: NDArray[np.float64]) -> list[float]:
    """Return the values of a sweep that have room for a label on a logarithmic axis, the largest among them."""
    at = np.log(np.unique(gamma))[::-1]
    found: list[float] = []
    for each in at:
        if not found or found[-1] - each >= APART * (at[0] - at[-1]):
            found.append(float(each))
    return [float(np.exp(each)) for each in found[::-1]]


def _mark_flips(axes: Axes, flips: pd.DataFrame) -> None:
    for at in flips["interval"][np.isfinite(flips["interval"])]:
        axes.axvline(at, color=RED, linestyle="--", linewidth=1.2)
        axes.annotate(f"{at:.3g}", (at, 0.97), xycoords=("data", "axes fraction"), xytext=(3, 0),
                      textcoords="offset points", color=INK, va="top", bbox=BEHIND)  # fmt: skip


def _mark_columns(axes: Axes, benchmark: pd.DataFrame, cause: str, most: float, flips: pd.DataFrame) -> None:
    """Mark the strongest columns of the first propensity that a hidden cause moves.

    A name is to the right of its line, or to the left if the next line is near; between two near lines it is higher.
    """
    own = benchmark[[cause in names.split(", ") for names in benchmark["hidden_causes"]]]
    if own.empty:
        return
    own = own[(own["of"] == own["of"].iloc[0]) & (own["column"] != "(none)") & (own["q90"] <= most)]
    strongest = own.nlargest(MOST_MARKED, "q90").sort_values("q90")
    lines = np.log([*strongest["q90"], *flips["interval"], most])
    for column, at in zip(strongest["column"], strongest["q90"], strict=True):
        axes.axvline(at, color=GREY, linestyle=":", linewidth=1)
        away = (lines - np.log(at)) / np.log(most)
        left, right = ((np.abs(away) < APART) & (side * away > 1e-9) for side in (-1, 1))
        turned = bool(right.any() or away.max() < APART) and not left.any()
        axes.annotate(column, (at, 0.5 if left.any() and right.any() else 0.03), xycoords=("data", "axes fraction"),
                      xytext=(-2 if turned else 2, 0), ha="right" if turned else "left", textcoords="offset points",
                      color=GREY, rotation=90, bbox=BEHIND)  # fmt: skip
