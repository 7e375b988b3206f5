"""A sensitivity analysis: an assumption is given up by growing amounts, and bounds that never narrow are reported.

An analysis is a :class:`Parameter` and, for each assumption that is given up, a :class:`Departure`: influence values of
both bounds for each value of the parameter. All else is here: nested intervals, PIU, where conclusions flip, the text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

from pyrofair._validation import listed, require_choice, require_real, shown
from pyrofair.audits.display.page import missing_fragment, missing_tables, table_fragment
from pyrofair.exceptions import DataError
from pyrofair.robustness.sensitivity.plots import plot_sweep
from pyrofair.robustness.sensitivity.problem import Problem

if TYPE_CHECKING:
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
class Sweep(ABC):
    """The result of a sensitivity analysis, and how it shows itself."""

    title: ClassVar[str]
    parameter: ClassVar[Parameter]
    beside: ClassVar[tuple[str, ...]] = ()
    """Columns of what else is limited."""

    table: pd.DataFrame
    flips_at: pd.DataFrame
    assumptions: Any
    context: dict[str, Any]

    @abstractmethod
    def _about(self) -> str:
        """Return what the parameter limits."""

    def _parts(self) -> Iterator[tuple[str, pd.DataFrame]]:
        """Yield what the text shows, rows of the table with a heading."""
        yield "Mean unfair effect", self.table[self.table["quantity"] == "mean_unfair_effect"]

    def _stated(self) -> list[str]:
        return list(self.assumptions)

    def __str__(self) -> str:
        first, name = self.context, self.parameter.name
        lines = [
            f"{self.title} of {first['model']} ({first['decisions']}), {first['rows']:,} rows; unfair: "
            f"{', '.join(first['unfair'])}.",
            self._about(),
        ]
        if first["doubt"]:
            lines.append(f"In doubt at {name} = {self.parameter.neutral:g} already: {first['doubt']}.")
        for heading, rows in self._parts():
            lines.append(f"{heading}:")
            names = [name for name in (self.parameter.name, *self.beside) if not rows[name].isna().any()]
            lines += [
                f"  {', '.join(f'{name} {each[name]:g}' for name in names)}: [{each['low']:.3f}, {each['high']:.3f}], "
                f"{first['level']:.0%} interval [{each['lower']:.3f}, {each['upper']:.3f}]"
                f"{'' if each['sharp'] else ' (valid, not sharp)'}"
                for each in rows.to_dict("records")
            ]
        stated = [*self._stated(), first["units"], *first["records"]]
        if unused := ", ".join(first["unused"]):
            stated.append(f"{unused} shares a declared latent cause and is not used: no interval is called sharp.")
        shares = [line for table in missing_tables(first["missing"]) for line in table.lines()]
        return "\n".join([*lines, *self._flips(), "Assumptions:", *(f"  {text}" for text in stated), *shares])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.context['model']}; print it for a reading>"

    def _repr_html_(self) -> str:
        note = " ".join([*self._flips(), *self.context["records"]])
        return table_fragment(self.title, self.table, note) + missing_fragment(self.context["missing"])

    def _plot(self, quantity: str, benchmark: pd.DataFrame | None = None, *, axis: str = "", title: str = "") -> Figure:
        """Draw the bounds of a quantity against the parameter; ``axis`` and ``title`` replace the names of both."""
        require_choice("quantity", quantity, QUANTITIES)
        own, level = self.table[self.table["quantity"] == quantity], self.context["level"]
        return plot_sweep(
            own, self.flips_at, self.parameter, quantity, level, benchmark, beside=self.beside, axis=axis, title=title
        )

    def _flips(self) -> list[str]:
        """Return for each conclusion up to which value of the parameter it holds, its interval considered."""
        name, most, found = self.parameter.name, max(self.context[f"{self.parameter.name}s"]), []
        for each in self.flips_at.to_dict("records"):
            cause = f"{each['hidden_cause']}: " if "hidden_cause" in each else ""
            what, at = f"{cause}'{each['conclusion']}'", each["interval"]
            if np.isnan(at):
                found.append(f"{what} does not hold at {name} = {self.parameter.neutral:g}, its interval considered.")
            elif np.isinf(at):
                found.append(f"{what} holds at every {name} tried (up to {most:g}).")
            else:
                found.append(f"{what} holds up to {name} = {at:.3g}.")
        return found
