"""How strong an unmeasured common cause would have to be to change what an audit concludes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pyrofair._progress import progress_bar
from pyrofair._validation import require_instance, require_real
from pyrofair.audits.audit_view import figure_markup
from pyrofair.audits.display.page import make_table
from pyrofair.audits.models import ScoresAre
from pyrofair.audits.view import Block
from pyrofair.effects.scoring import Decisions
from pyrofair.exceptions import DataError
from pyrofair.graph import UnfairPaths
from pyrofair.robustness.sensitivity.benchmarks import strengths_of_columns
from pyrofair.robustness.sensitivity.descent import Descent
from pyrofair.robustness.sensitivity.hidden_causes import HiddenCause, choose_causes
from pyrofair.robustness.sensitivity.hidden_causes import hidden_causes as causes_of
from pyrofair.robustness.sensitivity.problem import Asked, Problem, read_problem
from pyrofair.robustness.sensitivity.sweep import QUANTITIES, Departure, Parameter, Sweep, sweep
from pyrofair.sources.onestep import OneStep
from pyrofair.tables.recorded import Missing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Confounding", "confounding"]

GAMMA = Parameter(
    "gamma",
    neutral=1.0,
    most=1e4,
    what="limits of odds ratios, such as [1, 1.5, 2, 3]",
    axis="gamma (limit of the odds ratio)",
    hint="It limits an odds ratio and its inverse: 2 lets a hidden cause double the odds, or halve them.",
    logarithmic=True,
)
GAMMAS = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0)


@dataclass(frozen=True, eq=False, repr=False)
class Confounding(Sweep):
    """The result of :func:`confounding`; print it for a verdict and a few numbers.

    Attributes
    ----------
    table : DataFrame
        For each hidden cause, gamma and quantity (p_y0, p_ypi, mean_unfair_effect, piu): later_ratio, the second limit
        of ``"A <-> all"``, NaN for others; low and high, the bounds with a cause of that strength; lower and upper,
        between which both bounds lie with the level; sharp, whether a cause of that strength attains the bounds (not of
        more than 16 different values, whose tails are cut at quantiles).
        No interval is narrower than one of a smaller gamma. ``piu`` is from the bounds of the two marginals: it holds
        whatever the joint distribution of both decisions.
    flips_at : DataFrame
        For each hidden cause and conclusion, the least gamma at which it no longer holds: of the estimate (``point``)
        and with its interval (``interval``). NaN if it does not hold at gamma = 1, inf if it holds at each gamma of the
        sweep. Between two values of the sweep it is interpolated.
    assumptions : dict
        For each hidden cause, what it is and how tight its bounds are. All else that the source assumes stays assumed.
    context : dict
        model, decisions, rows, level, the unfair paths, gammas, the settings ``above`` and ``at_most``, ``doubt``: why
        the numbers are in doubt at gamma = 1 already, or an empty text; and ``unused``: observed nodes outside the
        numbers that share a declared latent cause with nodes inside.
    """

    title = "Unmeasured confounding"
    parameter = GAMMA
    beside = ("later_ratio",)

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
        if benchmark is not None:
            require_instance("benchmark", benchmark, pd.DataFrame, "what .benchmark() returns")
            if missing := {"hidden_causes", "of", "column", "q90"} - {*benchmark.columns}:
                raise DataError(
                    f"benchmark has no column {', '.join(sorted(missing))}: it must be what .benchmark() returns."
                )
        return self._plot(quantity, benchmark)

    def block(self, name: str, title: str) -> Block:
        """Return the analysis as a part of the report of an audit, with a line for each hidden cause."""
        effects = self.table[self.table["quantity"] == "mean_unfair_effect"]
        lines, most = [], max(self.context["gammas"])
        effects = effects[effects["gamma"].isin(self.context["gammas"][::2])]  # the CSV has all
        for cause in self._causes:
            own = effects[effects["hidden_cause"] == cause.name].to_dict("records")
            spans = {f"gamma {each['gamma']:g}": self._between(each) for each in own}
            at = self.flips_at.loc[self.flips_at["hidden_cause"] == cause.name, "interval"].iloc[0]
            held = "not at 1" if np.isnan(at) else f"beyond {most:g}" if np.isinf(at) else f"{at:.3g}"
            lines.append({"hidden cause": cause.name, "holds up to": held, **spans})
        note = (
            f"gamma: the factor by which a hidden cause may move the odds of {self._source.unfair.graph.sensitive}. Up "
            f"to which it holds that {self.flips_at['conclusion'].iloc[0]}, its interval considered, comes first."
        )
        table = make_table(
            name, f"{title}: bounds of the mean unfair effect", pd.DataFrame(lines), self.table, note=note
        )
        picture = partial(figure_markup, partial(self._plot, self.main), f"{name}-drawing", title, self._about())
        return Block(f"{name}-part", title, tables=[table], folded=self.details().splitlines(), markup=picture)

    def _about(self) -> str:
        sensitive = self._source.unfair.graph.sensitive
        return f"gamma limits by what factor a hidden cause U moves the odds of {sensitive}, given what is named below."

    def _parts(self) -> Iterator[tuple[str, str, pd.DataFrame]]:
        effects = self.table[self.table["quantity"] == self.main]
        for cause in self._causes:
            own = effects[effects["hidden_cause"] == cause.name]
            yield cause.name, f"{cause.name}: mean unfair effect ({cause.limits})", own

    def _stated(self) -> list[str]:
        return [f"{name}: {text}" for name, text in self.assumptions.items()]


def confounding(
    model: Any,
    source: OneStep | UnfairPaths,
    df: pd.DataFrame,
    *,
    gammas: npt.ArrayLike = GAMMAS,
    later_ratio: float | None = None,
    hidden_causes: Sequence[str] | str | None = None,
    decisions: Decisions = "threshold",
    threshold: float = 0.5,
    above: float = 0.0,
    at_most: float | None = None,
    level: float = 0.95,
    scores: ScoresAre = "auto",
    sample_weight: npt.ArrayLike | None = None,
    groups: npt.ArrayLike | str | None = None,
    missing: Missing = "refuse",
    random_state: int | np.random.Generator | None = None,
) -> Confounding:
    """Bound the unfair effect under hidden common causes of limited strength (the marginal sensitivity model).

    *Assumes* all that the source does, but for one hidden common cause U at a time, whose strength is limited: the odds
    of the sensitive attribute A given U are within a factor gamma of those without U. ``"A <-> M"`` is a cause of A and
    of its child M alone, and moves the paths through A -> M; ``"D <-> M"`` one of M and of mediators before it that
    read the other value, and its odds of A are those given the features before M; ``"A <-> all"`` one of A and of all
    that it causes, which has a second limit, ``later_ratio``. With limits of 1 the numbers are those of the source.

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
    later_ratio
        Of ``"A <-> all"``, where the unfair-path world joins features that read different values of A: by what factor
        the distribution of the later ones, given those before, may differ from the observed one. At least 1; None takes
        gamma. A cause of mediators that A is independent of has the odds ratio 1, and may exceed this limit alone.
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
    groups, missing
        Groups of rows, such as households, and what becomes of missing values, as for :func:`pyrofair.audit`.
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
    limits = GAMMA.read(gammas)
    if later_ratio is not None:
        later_ratio = require_real("later_ratio", later_ratio, least=1.0, most=GAMMA.most)
    asked = Asked(decisions, threshold, above, at_most, level, scores, sample_weight, groups, missing, random_state)
    problem = read_problem(model, source, df, asked)
    causes = choose_causes(causes_of(problem.form), hidden_causes, problem.source.estimand_)
    ratios = limits if later_ratio is None else (later_ratio,) * len(limits)
    down = Descent(problem.form, problem.rows, problem.scores)
    seen = progress_bar("hidden causes", causes)
    table, flips = sweep(problem, GAMMA, limits, [_depart(problem, down, cause, limits, ratios) for cause in seen])
    return Confounding(
        table,
        flips,
        {cause.name: cause.assumption for cause in causes},
        problem.context | {"gammas": limits},
        problem.source,
        causes,
    )


def _depart(
    problem: Problem, down: Descent, cause: HiddenCause, limits: Sequence[float], ratios: Sequence[float]
) -> Departure:
    """Return how far a hidden cause moves both marginals, their difference and their sum."""
    moves, exact = down.moves(cause, limits, ratios)
    bounds = {name: (problem.means[name] + down, problem.means[name] + up) for name, (down, up) in moves.items()}
    sharp = dict(zip(QUANTITIES, (*cause.sharp, cause.sharp[2]), strict=True))
    later = any(block.kind == "later" for block in cause.blocks[1])
    return Departure(
        {"hidden_cause": cause.name},
        bounds,
        lambda quantity, _: exact and sharp[quantity],
        {"later_ratio": ratios if later else [np.nan] * len(limits)},
    )
