"""How strong an unmeasured common cause would have to be to change what an audit concludes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray

from pyrofair._validation import listed, require_choice, require_instance, require_real, shown
from pyrofair.audits.display.page import table_fragment
from pyrofair.audits.models import ScoresAre
from pyrofair.effects.scoring import Decisions
from pyrofair.exceptions import DataError
from pyrofair.graph import UnfairPaths
from pyrofair.robustness.sensitivity.benchmarks import strengths_of_columns
from pyrofair.robustness.sensitivity.descent import move_means
from pyrofair.robustness.sensitivity.hidden_causes import HiddenCause, choose_causes, hidden_causes
from pyrofair.robustness.sensitivity.plots import plot_confounding
from pyrofair.robustness.sensitivity.problem import QUANTITIES, Ends, describe_ends, describe_flips, read_problem
from pyrofair.sources.onestep import OneStep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Confounding", "confounding"]

Array = NDArray[np.float64]
GAMMAS = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0)
MOST_GAMMA = 1e4
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class Confounding:
    """The result of :func:`confounding`; print it for a reading in plain text.

    Attributes
    ----------
    table : DataFrame
        For each hidden cause, gamma and quantity (p_y0, p_ypi, mean_unfair_effect, piu): low and high, the ends of what
        is possible with a cause of that strength; lower and upper, between which both ends lie with the level; sharp,
        whether a cause of that strength attains the ends. ``piu`` is from the ends of the two marginals: between low
        and high PIU lies whatever the joint distribution of both decisions.
    flips_at : DataFrame
        For each hidden cause and conclusion, the least gamma at which it no longer holds: of the estimate (``point``)
        and with its interval (``interval``). NaN where it does not hold at gamma = 1, inf where it holds at each gamma
        of the sweep. Between two values of the sweep it is interpolated.
    assumptions : dict
        For each hidden cause, what it is and what its ends are. All else that the source assumes stays assumed.
    context : dict
        model, decisions, rows, level, the unfair paths, gammas, the settings ``above`` and ``at_most``, and ``doubt``:
        why the numbers are in doubt at gamma = 1 already, or an empty text.
    """

    table: pd.DataFrame
    flips_at: pd.DataFrame
    assumptions: dict[str, str]
    context: dict[str, Any]
    _source: OneStep = field(repr=False)
    _causes: tuple[HiddenCause, ...] = field(repr=False)

    def benchmark(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return by how much the odds of the sensitive attribute change where an observed column is left out.

        It answers "a hidden cause as strong as age": each column is dropped from what a propensity is given, and that
        is fitted again. What a column adds to all others is what a hidden cause is assumed to add to all columns.

        Parameters
        ----------
        columns
            The columns to drop, by default all of those that the propensities of the hidden causes are given.

        Returns
        -------
        DataFrame
            For each hidden cause (``of``, the propensity's features) and column: quantiles over rows of the larger of
            the odds ratio and its inverse, ``q50``, ``q90``, ``q99`` and ``max``. The row ``(none)`` drops nothing and
            changes the folds: so much is noise of the fit.

        Raises
        ------
        DataError
            If a column is none of those that a propensity is given.
        """
        return strengths_of_columns(self._source.nuisances_, self._causes, self._source.estimand_, columns)

    def plot(self, quantity: str = "mean_unfair_effect", *, benchmark: pd.DataFrame | None = None) -> Figure:
        """Draw the ends of a quantity against gamma, a panel for each hidden cause.

        Parameters
        ----------
        quantity
            ``"mean_unfair_effect"``, ``"piu"``, ``"p_y0"`` or ``"p_ypi"``.
        benchmark
            What :meth:`benchmark` returned, to mark the strength (``q90``) of observed columns.
        """
        require_choice("quantity", quantity, QUANTITIES)
        if benchmark is not None:
            require_instance("benchmark", benchmark, pd.DataFrame, "what .benchmark() returns")
            if missing := {"hidden_causes", "of", "column", "q90"} - {*benchmark.columns}:
                raise DataError(
                    f"benchmark has no column {', '.join(sorted(missing))}: it must be what .benchmark() returns."
                )
        return plot_confounding(self.table, self.flips_at, quantity, self.context, benchmark)

    def __str__(self) -> str:
        first = self.context
        lines = [
            f"Unmeasured confounding of {first['model']} ({first['decisions']}), {first['rows']:,} rows; unfair: "
            f"{', '.join(first['unfair'])}.",
            "gamma bounds the odds ratio by which a hidden cause moves the sensitive attribute.",
            *([f"In doubt without any hidden cause: {first['doubt']}."] if first["doubt"] else []),
        ]
        for name, own in self.table[self.table["quantity"] == "mean_unfair_effect"].groupby("hidden_cause", sort=False):
            lines.append(f"{name}: mean unfair effect")
            lines += describe_ends(own, "gamma", first["level"])
        lines += self._flips()
        lines += ["Assumptions:", *(f"  {name}: {text}" for name, text in self.assumptions.items())]
        return "\n".join(lines)

    def __repr__(self) -> str:
        causes = ", ".join(self.assumptions)
        return f"<Confounding of {self.context['model']} by {causes}; print it for a reading>"

    def _repr_html_(self) -> str:
        return table_fragment("Unmeasured confounding", self.table, " ".join(self._flips()))

    def _flips(self) -> list[str]:
        conclusions = self.flips_at["hidden_cause"] + ": '" + self.flips_at["conclusion"] + "'"
        return describe_flips(conclusions, self.flips_at["interval"], "gamma", self.context["gammas"])


def confounding(
    model: Any,
    source: OneStep | UnfairPaths,
    df: pd.DataFrame,
    *,
    gammas: npt.ArrayLike = GAMMAS,
    hidden_causes: Sequence[str] | str | None = None,
    decisions: Decisions = "threshold",
    threshold: float = 0.5,
    above: float = 0.0,
    at_most: float | None = None,
    level: float = 0.95,
    scores: ScoresAre = "auto",
    sample_weight: npt.ArrayLike | None = None,
    random_state: int | np.random.Generator | None = None,
) -> Confounding:
    """Bound the unfair effect under hidden common causes of limited strength (the marginal sensitivity model).

    *Assumes* all that the source does, but for one hidden common cause U at a time, whose strength is limited: the odds
    of the sensitive attribute A given U are within a factor gamma of those without U. ``"A <-> M"`` is a cause of A and
    of its child M alone, and moves the paths through A -> M; ``"D <-> M"`` one of M and of mediators before it that
    read the other value; ``"A <-> all"`` one of A and of all that it causes. At gamma = 1 the numbers are those of the
    source.

    Parameters
    ----------
    model
        A fitted model, or scores of the rows, as for :func:`pyrofair.audit`.
    source
        The unfair paths, or a :class:`~pyrofair.OneStep` of the prefix form, fitted or not.
    df
        n rows with the columns of the graph.
    gammas
        Limits of the odds ratio, of at least 1; 1 is added.
    hidden_causes
        The names of hidden causes, such as ``"A <-> M"``, either end first; by default all.
    decisions, threshold
        Thresholded decisions, or the scores themselves.
    above, at_most
        The conclusions whose flips are looked for: that PIU is above a limit (0: the mean unfair effect is not 0) and,
        unless None, that it is at most another one, in either case by the ends from the two marginals.
    level
        The level of intervals.
    scores
        What given scores are, as for :func:`pyrofair.audit`; an outcome is averaged like a feature, and may have a
        hidden cause as well.
    sample_weight
        Weights of the rows, shape (n,).
    random_state
        Seeds the source made of unfair paths.

    Returns
    -------
    Confounding

    Raises
    ------
    DataError
        If a setting, the model or the table is unfit, a hidden cause is not known, or the source is in the graph form.

    References
    ----------
    Tan (2006); Zhao, Small and Bhattacharya (2019); Dorn and Guo (2023); Dorn, Guo and Kallus (2024). That a hidden
    cause moves one edge, and all else, is derived in the page on the mathematics.

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    >>> df = pd.DataFrame({"A": [0] * 40 + [1] * 60, "M": [0] * 30 + [1] * 10 + [0] * 15 + [1] * 45})
    >>> scores = 0.2 + 0.3 * df["A"] + 0.2 * df["M"] + 0.2 * df["A"] * df["M"]
    >>> class Model:
    ...     def predict_proba(self, X):
    ...         p = 0.2 + 0.3 * X["A"] + 0.2 * X["M"] + 0.2 * X["A"] * X["M"]
    ...         return np.column_stack([1 - p, p])
    >>> source = OneStep(graph.unfair("A -> M -> Y"), propensity="saturated", regression="saturated")
    >>> found = confounding(Model(), source, df, gammas=[1, 2], decisions="score")
    >>> effect = found.table[found.table["quantity"] == "mean_unfair_effect"]
    >>> effect[["hidden_cause", "gamma", "low", "high"]].round(3).to_string(index=False, header=False).split()[:4]
    ['A', '<->', 'M', '1.0']
    """
    limits = _read_gammas(gammas)
    problem = read_problem(
        model,
        source,
        df,
        decisions=decisions,
        threshold=threshold,
        above=above,
        at_most=at_most,
        level=level,
        scores=scores,
        sample_weight=sample_weight,
        random_state=random_state,
    )
    causes = choose_causes(_causes_of(problem.form), hidden_causes, problem.source.estimand_)
    lines, flips = [], []
    for cause in causes:
        moves = move_means(problem.form, problem.rows, problem.scores, cause, limits)
        names = ("y0", "ypi", "effect", "total")
        ends = Ends(**{each: problem.ends(each, *_up_and_down(getattr(moves, each))) for each in names})
        sharp = dict(zip(QUANTITIES, (*cause.sharp, cause.sharp[2]), strict=True))
        for i, gamma in enumerate(limits):
            for quantity, values in ends.quantities(i).items():
                point = values[1] - values[0] <= ROUNDING  # a valid interval of one point is attained
                lines.append((cause.name, gamma, quantity, *values, sharp[quantity] or gamma == 1.0 or point))
        for each in ends.flips(np.log(limits), problem.context):
            at = {name: float(np.exp(each[name])) for name in ("point", "interval")}
            flips.append({"hidden_cause": cause.name, **each, **at})
    columns = ["hidden_cause", "gamma", "quantity", "low", "high", "lower", "upper", "sharp"]
    return Confounding(
        pd.DataFrame(lines, columns=columns),
        pd.DataFrame(flips),
        {cause.name: cause.assumption for cause in causes},
        problem.context | {"gammas": limits},
        problem.source,
        causes,
    )


_causes_of = hidden_causes


def _up_and_down(moves: Array) -> tuple[Array, Array]:
    return moves[:, ::2], moves[:, 1::2]


def _read_gammas(gammas: object) -> tuple[float, ...]:
    given = listed(gammas)
    if not given:
        raise DataError(f"gammas={shown(gammas)} must be a list of limits of odds ratios, such as [1, 1.5, 2, 3].")
    hint = "It limits an odds ratio and its inverse: 2 lets a hidden cause double the odds, or halve them."
    found = [require_real(f"gammas[{i}]", each, least=1.0, most=MOST_GAMMA, hint=hint) for i, each in enumerate(given)]
    return tuple(sorted({1.0, *found}))
