"""How far the probability of individual unfairness moves with how often unfair mediators change between the worlds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray

from pyrofair._validation import listed, require_real, shown
from pyrofair.audits.models import ScoresAre
from pyrofair.effects.potential_outcomes import CounterfactualSample
from pyrofair.effects.scoring import Decisions
from pyrofair.exceptions import DataError
from pyrofair.graph import UnfairPaths
from pyrofair.nuisances.rows import Rows
from pyrofair.robustness.sensitivity.benchmarks import read_shared_columns
from pyrofair.robustness.sensitivity.crossing import crossing
from pyrofair.robustness.sensitivity.plots import plot_switching
from pyrofair.robustness.sensitivity.problem import Problem, Sweep, read_problem
from pyrofair.robustness.sensitivity.switches import Switches, changes_without, mediators_of, switch_ends
from pyrofair.sources.onestep import OneStep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Switching", "switching"]

Array = NDArray[np.float64]
GAMMAS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class Switching(Sweep):
    """The result of :func:`switching`; print it for a reading in plain text.

    Attributes
    ----------
    table : DataFrame
        For each gamma: low and high, the ends of PIU where mediators change with at most the least probability plus
        gamma, given what both worlds share; lower and upper, between which both ends lie with the level; sharp, whether
        a joint distribution of both worlds attains the ends. Ends are estimated apart: they move outward with gamma but
        for sampling error, and where they cross, the smaller one is low, and the limits hold both.
    least : tuple of float
        The mean of the least probability with which mediators change (their total variation given what both worlds
        share), and the limits of its interval.
    flips_at : DataFrame
        For each conclusion the least gamma at which it no longer holds: of the estimate (``point``) and with its
        interval (``interval``). NaN where it does not hold at gamma = 0, inf where it holds at each gamma of the sweep.
    assumptions : tuple of str
        What gamma limits, and what stays assumed.
    context : dict
        model, decisions, rows, level, the unfair paths, mediators, gammas, and the settings ``above`` and ``at_most``.
    """

    title = "Switching of mediators"
    parameter = "gamma"

    table: pd.DataFrame
    least: tuple[float, float, float]
    flips_at: pd.DataFrame
    assumptions: tuple[str, ...]
    context: dict[str, Any]
    _problem: Problem = field(repr=False)

    def benchmark(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the gamma that an observed column would amount to, were it left out of what both worlds share.

        A column that both worlds share ties their mediators: each unit changes with the least probability given all
        columns. Given all but this one, the least probability is smaller, and the same coupling is beyond it, by gamma
        on average. A shared cause that nobody measured would do the same in the other direction.

        Parameters
        ----------
        columns
            Columns that the sensitive attribute does not cause, by default all.

        Returns
        -------
        DataFrame
            For each column: ``least``, the mean least probability of a change without it, and ``gamma``, by how much it
            is smaller than that with it. Plug-in estimates, without intervals; those below 0 by error are given as 0.

        Raises
        ------
        DataError
            If the sensitive attribute causes a column, or there is none.
        """
        form, rows = self._problem.form, self._problem.rows
        _, asked = read_shared_columns(form, columns)
        whole = changes_without(form, rows, None)
        found = [(name, changes_without(form, rows, name)) for name in asked]
        return pd.DataFrame(
            [(name, least, max(whole - least, 0.0)) for name, least in found], columns=["column", "least", "gamma"]
        )

    def plot(self) -> Figure:
        """Draw the ends of PIU against gamma."""
        return plot_switching(self.table, self.flips_at, self.context)

    def __str__(self) -> str:
        least, lower, upper = self.least
        return self._reading(
            f"{', '.join(self.context['mediators'])} change between the worlds for at least {least:.3f} of the units "
            f"({self.context['level']:.0%} interval [{lower:.3f}, {upper:.3f}]); gamma is the probability beyond that.",
            "PIU",
            self.table,
        )


def switching(
    model: Any,
    source: OneStep | UnfairPaths,
    df: pd.DataFrame,
    *,
    gammas: npt.ArrayLike = GAMMAS,
    decisions: Decisions = "threshold",
    threshold: float = 0.5,
    above: float = 0.0,
    at_most: float | None = None,
    level: float = 0.95,
    scores: ScoresAre = "auto",
    sample_weight: npt.ArrayLike | None = None,
    random_state: int | np.random.Generator | None = None,
) -> Switching:
    """Bound PIU where unfair mediators change between the worlds with a limited probability.

    PIU depends on the joint distribution of a unit's mediators in both worlds, which no data show. Given what both
    worlds share, the mediators that unfair paths touch must change with at least the total variation between their two
    distributions. *Assumes* all that the source does, and that they change, together, with at most gamma more, at each
    value of what is shared: gamma = 0 is minimal change, gamma = 1 any joint distribution, which gives the ends of PIU
    given what both worlds share.

    Parameters
    ----------
    model
        A fitted model, a function of the features: it is asked for the score of each row with either value of the
        sensitive attribute.
    source, df
        As for :func:`confounding`. Mediators may have any columns; their densities in both worlds are compared by
        propensities.
    gammas
        Probabilities in [0, 1]; 0 is added.
    above, at_most
        The conclusions whose flips are looked for: that PIU is above a limit, by the lower end, and, unless None, that
        it is at most another one, by the upper end.
    decisions, threshold, level, scores, sample_weight, random_state
        As for :func:`confounding`. A decision that is drawn with a score is assumed to be drawn alike, given the
        features, whether the unit's mediators change or not; ends between gamma = 0 and 1 are then valid and not sharp.

    Returns
    -------
    Switching

    Raises
    ------
    DataError
        If a setting, the model or the table is unfit, no unfair path runs through a mediator, or the scores are an
        outcome.

    References
    ----------
    The least probability of a change is attained by the maximal coupling (Lindvall, 2002). With gamma = 1 and nothing
    shared the ends are those of Chikahara et al. (2021), eq. (A19).

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    >>> df = pd.DataFrame({"A": [0] * 40 + [1] * 60, "M": [0] * 30 + [1] * 10 + [0] * 15 + [1] * 45})
    >>> class Model:
    ...     def predict_proba(self, X):
    ...         p = 0.1 + 0.8 * (X["A"] != X["M"])
    ...         return np.column_stack([1 - p, p])
    >>> source = OneStep(graph.unfair("A -> Y", "A -> M -> Y"), propensity="saturated", regression="saturated", folds=1)
    >>> found = switching(Model(), source, df, gammas=[0, 0.1, 1])
    >>> found.table[["gamma", "low", "high"]].round(3).values.tolist()
    [[0.0, 0.5, 0.5], [0.1, 0.4, 0.5], [1.0, 0.0, 0.5]]
    >>> [round(each, 3) for each in found.least[:1]]
    [0.5]
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
    estimand = problem.source.estimand_
    sensitive = estimand.unfair.graph.sensitive
    if estimand.target == "outcome":
        raise DataError(
            f"The scores are an outcome, of which only one is observed for a row, that with its own {sensitive}; "
            "switching compares both for the same mediators. Pass the model, or scores of a function of the features."
        )
    nodes = mediators_of(problem.form)
    both = _both_scores(problem)
    found = switch_ends(problem.form, problem.rows, both, limits)
    ends = _read_ends(problem, found)
    hard = decisions == "threshold"
    table = pd.DataFrame(ends.clip(0.0, 1.0), columns=["low", "high", "lower", "upper"])
    table.insert(0, "gamma", limits)
    table.insert(1, "quantity", "piu")
    table["sharp"] = hard | table["gamma"].isin([0.0, 1.0])
    shared = ", ".join(estimand.unfair.shared) or "nothing"
    named = ", ".join(nodes)
    return Switching(
        table,
        _least(problem, found),
        pd.DataFrame(_find_flips(limits, ends, above, at_most)),
        (
            f"Given what both worlds share ({shared}), {named} differ between the worlds with at most the total "
            "variation of their two distributions plus gamma. Where they agree, decisions differ by the direct effect "
            f"of {sensitive} alone; where not, they have any joint distribution. "
            + (
                "A joint distribution of both worlds attains each end."
                if hard
                else "A decision is drawn with the score of its features, alike for units whose mediators change and "
                "for others. Between gamma = 0 and 1 the interval is valid and not sharp."
            ),
            "No hidden cause: the distributions in single worlds are identified.",
        ),
        problem.context | {"gammas": limits, "mediators": nodes},
        problem,
    )


def _both_scores(problem: Problem) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return the scores in the baseline and the switched world, of the rows and of the fitted rows, (n,) each."""
    form, fitted = problem.form, problem.form.nuisances.rows
    arms = [world.part.outcome_arm for world in form.worlds]
    graph = form.estimand.unfair.graph
    if problem.model.is_scores and arms[0] is not None:
        raise DataError(
            f"The model is given as scores, and switching needs the score of each row with {graph.sensitive_column} "
            "of the baseline and of the contrast. Pass the model itself."
        )

    def of(rows: Rows) -> tuple[Array, Array]:
        found = []
        for arm in arms:
            read, origin = rows.as_read(np.arange(len(rows.a)), arm, graph, fitted)
            own = origin if rows is problem.rows else np.full(len(origin), -1)
            sample = CounterfactualSample(read, np.ones(len(read)), origin=own)
            found.append(np.asarray(problem.scorer(sample), dtype=np.float64)[:, 0])
        return found[0], found[1]

    own = of(problem.rows)
    return own, own if problem.rows.position is None else of(fitted)


def _read_ends(problem: Problem, found: Switches) -> Array:
    """Return for each gamma both ends and the limits of both, (G, 4), not yet cut off at 0 and 1."""
    (low, reach_low), (rest, reach_high) = (problem.means(values) for values in (found.lower, found.rest))
    high = 1.0 - rest
    ends = np.column_stack([low, high, low - reach_low, high + reach_high])
    # Ends are estimated apart; where they cross, limits are the outer ones of the intervals of both.
    exchanged = np.column_stack(
        [high, low, np.minimum(ends[:, 2], high - reach_high), np.maximum(ends[:, 3], low + reach_low)]
    )
    return np.where((low > high)[:, None], exchanged, ends)


def _least(problem: Problem, found: Switches) -> tuple[float, float, float]:
    (kept,), (reach,) = problem.means(found.kept[:, None])
    least, lower, upper = (min(max(1.0 - float(each), 0.0), 1.0) for each in (kept, kept + reach, kept - reach))
    return least, lower, upper


def _find_flips(gammas: Sequence[float], ends: Array, above: float, at_most: float | None) -> list[dict[str, Any]]:
    """Return for each conclusion the least gamma at which its margin, without and with its interval, is 0."""
    at = np.array(gammas)
    low, high, lower, upper = ends.T

    def flip(text: str, point: Array, interval: Array) -> dict[str, Any]:
        return {"conclusion": text, "point": crossing(at, point), "interval": crossing(at, interval)}

    found = [flip(f"PIU is above {above:g}", low - above, lower - above)]
    if at_most is not None:
        found.append(flip(f"PIU is at most {at_most:g}", at_most - high, at_most - upper))
    return found


def _read_gammas(gammas: object) -> tuple[float, ...]:
    given = listed(gammas)
    if not given:
        raise DataError(f"gammas={shown(gammas)} must be a list of probabilities, such as [0, 0.05, 0.1, 1].")
    hint = "It is the probability, beyond the least one, that mediators change."
    found = [require_real(f"gammas[{i}]", each, least=0.0, most=1.0, hint=hint) for i, each in enumerate(given)]
    return tuple(sorted({0.0, *found}))
