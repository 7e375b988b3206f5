"""A joint test of whether the two observed groups, weighted alone, estimate the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr

from pyrofair._validation import require_callable, require_real
from pyrofair.effects.adapters import ScoresOf
from pyrofair.effects.estimates import Estimate
from pyrofair.effects.potential_outcomes import FEWEST_ROWS, SMALLEST_SHARE, CounterfactualSample, Stratified, Worlds
from pyrofair.effects.row_functions import Scores
from pyrofair.effects.scoring import checked_scores
from pyrofair.exceptions import DataError

__all__ = [
    "DISAGREE",
    "GROUP_COLUMNS",
    "GROUP_QUANTITIES",
    "compare_estimates",
    "compare_groups",
    "compare_scored",
    "disagreeing",
    "join_seeds",
    "judge_jointly",
]

GROUP_QUANTITIES = ("p_y0", "p_ypi", "mean_unfair_effect")
ESTIMATES = ("group_0", "group_1", "difference", "lower", "upper", "p_value", "agree", "ess_0", "ess_1", "note")
GROUP_COLUMNS = ("quantity", *ESTIMATES)
DISAGREE = "the two observed groups disagree"
TOO_LITTLE = "too little overlap to compare"
ROUNDING = 1e-9


def compare_groups(
    source: Any,
    score: Callable[[pd.DataFrame], npt.ArrayLike],
    df: pd.DataFrame | None = None,
    *,
    sample_weight: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Estimate both marginals and the effect from either observed group alone, and test whether the two agree.

    Where the graph and the propensities are right, the two groups estimate the same numbers. An interval is that of a
    difference of weighted means over different rows, the weights taken as known, which is wider than needed where they
    are estimated by a right model. Whether the groups agree is one test of the three quantities together: a normal
    p-value of each, corrected for their number (Sidak). :func:`pyrofair.audit` judges the same differences by its
    bootstrap.

    Parameters
    ----------
    source
        A fitted source; one that is not :class:`~pyrofair.effects.Stratified` gives an empty table.
    score
        Returns the scores, or the decisions in 0 and 1, of m rows as the classifier reads them, shape (m,).
    df, sample_weight
        Rows to weight, by default those that the source was fitted on, and their weights, shape (n,).
    level
        The level of each interval, and of the test of all rows together.

    Returns
    -------
    DataFrame
        A row for each of p_y0, p_ypi and mean_unfair_effect: group_0, group_1, difference, its interval (lower, upper),
        p_value of the joint test, agree (p_value is at least 1 - level; missing where a group has too little overlap),
        ess_0, ess_1 (effective sizes in rows) and note. Empty if a group cannot be weighted alone. :func:`disagreeing`
        selects the rows that disagree.

    Raises
    ------
    DataError
        If the level is no probability, the score is not a function of a row, or as for the ``worlds`` of the source.

    Examples
    --------
    >>> from pyrofair import IPW, CausalGraph
    >>> unfair = CausalGraph("{A C} -> Y", sensitive="A", outcome="Y").unfair("A -> Y")
    >>> df = pd.DataFrame({"A": [0, 1, 0, 1] * 99, "C": [0, 0, 1, 1] * 99, "Y": [0, 1, 1, 1] * 99})
    >>> source = IPW(unfair, propensity="saturated").fit(df)
    >>> bool(compare_groups(source, lambda rows: 0.2 + 0.5 * rows["C"])["agree"].all())
    True
    """
    require_real("level", level, above=0.0, below=1.0, such_as=0.95)
    require_callable("score", score, "a function of rows that returns a score for each")

    def ask(tables: Sequence[pd.DataFrame]) -> list[Scores]:
        return checked_scores("score", ScoresOf(score), tables, source.unfair.graph)

    return compare_scored(source, ask, df, sample_weight, level)


def compare_scored(
    source: Any,
    ask: Callable[[Sequence[pd.DataFrame]], Sequence[Scores]],
    df: pd.DataFrame | None = None,
    sample_weight: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Compare as :func:`compare_groups` does, by what gives the scores of several tables, taken as they are."""
    single = source.by_group() if isinstance(source, Stratified) else {}
    if len(single) < 2:
        return pd.DataFrame(columns=list(GROUP_COLUMNS))
    worlds: list[Worlds] = [each.worlds(df=df, sample_weight=sample_weight) for each in single.values()]
    scores = ask([world.rows for pair in worlds for world in pair])
    zero = _estimates(worlds[0], scores[:2])
    one = _estimates(worlds[1], scores[2:], after=len(worlds[0][0].rows))
    rows, spread = [], []
    for quantity, first, second in zip(GROUP_QUANTITIES, zero, one, strict=True):
        gap = second - first
        compared = compare_estimates(first.value, second.value, *gap.interval(level), quantity, worlds)
        rows.append({"quantity": quantity} | compared)
        spread.append(gap.spread)
    return judge_jointly(pd.DataFrame(rows, columns=list(GROUP_COLUMNS)), np.array(spread), level)


def judge_jointly(
    groups: pd.DataFrame, spread: NDArray[np.float64], level: float, gaps: NDArray[np.float64] | None = None
) -> pd.DataFrame:
    """Return k comparisons with their joint p-values, and whether each agrees, by one test of all together.

    A difference over its standard error ``spread`` (k,) is judged by the largest that chance makes among all. With
    replicates ``gaps`` (replicates, k) the level quantile of max abs(gap - mean) / sd is the critical value; p-values
    are corrected (Sidak) for the number of independent normal comparisons that would have the same. Without replicates
    the comparisons count as independent. Those with a note or without an interval stay undecided.
    """
    judged = groups["note"].eq("").to_numpy(bool) & groups["lower"].notna().to_numpy(bool)
    gap = groups["difference"].to_numpy(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(np.abs(gap) <= ROUNDING, 0.0, np.abs(gap) / np.where(spread > ROUNDING, spread, 0.0))
    number = float(judged.sum())
    varied = judged & (spread > ROUNDING)
    if gaps is not None and varied.any():
        largest = np.sort((np.abs(gaps[:, varied] - gaps[:, varied].mean(axis=0)) / spread[varied]).max(axis=1))
        critical = largest[min(int(np.ceil((len(largest) + 1) * level)), len(largest)) - 1]
        number = float(np.log(level) / np.log1p(-2.0 * ndtr(-critical)))
    p_value = np.where(judged, _of_several(2.0 * ndtr(-t), max(number, 1.0)), np.nan)
    return _decide(groups.assign(p_value=p_value), p_value, level)


def join_seeds(groups: pd.DataFrame) -> pd.DataFrame:
    """Return comparisons of several seeds, with p-values joint within a seed, decided by one test of all at 95 %."""
    if groups.empty:
        return groups
    return _decide(groups, _of_several(groups["p_value"].to_numpy(np.float64), groups["seed"].nunique()), 0.95)


def _of_several(p_value: NDArray[np.float64], number: float) -> NDArray[np.float64]:
    """Return the probability that one of so many independent p-values is as small as each of these (Sidak)."""
    return np.asarray(-np.expm1(number * np.log1p(-np.minimum(p_value, 1.0 - 1e-16))))


def _decide(groups: pd.DataFrame, p_value: NDArray[np.float64], level: float) -> pd.DataFrame:
    agree = [pd.NA if np.isnan(p) else bool(p >= 1.0 - level) for p in p_value]
    return groups.assign(agree=pd.Series(agree, index=groups.index, dtype=object))


def compare_estimates(
    zero: float, one: float, lower: float, upper: float, quantity: str, worlds: Sequence[Sequence[CounterfactualSample]]
) -> dict[str, Any]:
    """Return the columns of a comparison but its quantity, undecided until :func:`judge_jointly`.

    ``zero`` and ``one`` are the estimates of both groups, lower and upper the interval of ``one - zero``, or NaN;
    ``worlds`` the two worlds of either group. A group of fewer than 10 effective rows in a world, or of fewer than 5 %
    of its rows, may depend on a single weight: a note says so, and fewer than 10 rows have no interval.
    """
    used = [{"p_y0": pair[:1], "p_ypi": pair[1:]}.get(quantity, pair) for pair in worlds]
    sizes = [min(world.effective_size for world in pair) for pair in used]
    thin = any(w.effective_size < max(FEWEST_ROWS, SMALLEST_SHARE * len(w.rows)) for pair in used for w in pair)
    note = TOO_LITTLE if thin else ""
    if min(sizes) < FEWEST_ROWS:
        lower = upper = np.nan
    return dict(zip(ESTIMATES, (zero, one, one - zero, lower, upper, np.nan, pd.NA, *sizes, note), strict=True))


def disagreeing(groups: pd.DataFrame, where: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Return the comparisons that disagree by the joint test, ``where`` further columns have some values."""
    if groups.empty:
        return groups
    apart = groups["note"].eq("") & np.array([value is not pd.NA and not value for value in groups["agree"]])
    for column, value in (where or {}).items():
        apart &= groups[column] == value
    return groups[apart]


def _estimates(pair: Worlds, scores: Sequence[Scores], after: int = 0) -> tuple[Estimate, Estimate, Estimate]:
    """Return the estimates of both marginals and of the effect from a group, whose rows come after so many others."""
    if len(scores[0]) != len(scores[1]):
        raise DataError("The two worlds of a group have different rows, so their difference has no interval.")
    at, found = np.arange(after, after + len(scores[0])), []
    for weight, own in zip((world.weight for world in pair), scores, strict=True):
        total = weight.sum()
        center = weight @ own / total if abs(total - 1.0) < ROUNDING else 0.0  # the latter: Horvitz-Thompson
        found.append(Estimate(float(weight @ own), np.asarray(weight * (own - center), dtype=np.float64), at))
    return found[0], found[1], found[1] - found[0]
