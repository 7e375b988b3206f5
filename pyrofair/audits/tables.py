"""An audit's estimates and replicates as tables: every quantity with its interval, or with why it has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.audits.bootstrap import Estimator, Key, Views
from pyrofair.audits.measures import DECISIONS
from pyrofair.effects.bounds import test_set_bound
from pyrofair.effects.group_agreement import DISAGREE, GROUP_COLUMNS, compare_estimates, disagreeing, judge_jointly
from pyrofair.effects.potential_outcomes import SampleSplit

__all__ = [
    "FEWEST_DRAWS",
    "MOST_LOST",
    "QUANTITIES",
    "absolute_interval",
    "group_table",
    "main_table",
    "mean_by_strength",
]

MOST_LOST = 0.2
"""The largest share of replicates that may lack a value for an interval to be given."""
FEWEST_DRAWS = 2
"""Fewer replicates have no spread."""

FROM_OUTCOMES = ("accuracy", "majority_rate")
QUANTITIES = (
    "accuracy",
    "positive_rate",
    "majority_rate",
    "p_y0",
    "p_ypi",
    "mean_unfair_effect",
    "piu_paper_bound",
    "piu_lower",
    "piu_upper",
)
GIVEN_UNITS = ("piu_double_disagreement",)
"""What there is besides if both worlds are compared unit by unit, and a unit's scores are means."""


def main_table(
    estimator: Estimator,
    point: Mapping[Key, float],
    notes: Mapping[Key, str],
    draws: pd.DataFrame,
    level: float,
    failure: str,
    small: Mapping[str, Sequence[str]] | None = None,
    groups: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return a row for each model, kind of decisions and quantity, whether it could be estimated or not.

    Parameters
    ----------
    estimator
        What estimated.
    point, notes
        The estimates and the notes on them.
    draws
        The replicates, a column for each key.
    level
        The level of the intervals.
    failure
        Why no world could be made, if so.
    small
        For each model and world why it rests on too few rows for an interval, if so.
    groups
        The comparison of the two observed groups: a note on the effect tells where they disagree.
    """
    apart = pd.DataFrame() if groups is None else disagreeing(groups)
    disagree = set() if apart.empty else set(zip(apart["model"], apart["decisions"], strict=True))
    column = estimator.models[0].graph.outcome_column
    rows = []
    for model in estimator.models:
        sizes = _sizes(estimator, estimator.label_of(model.name))
        for kind in DECISIONS:
            for quantity in (*QUANTITIES, *(q for q in GIVEN_UNITS if ("", model.name, kind, q) in point)):
                if kind == "score" and quantity in FROM_OUTCOMES:
                    continue
                key: Key = ("", model.name, kind, quantity)
                estimate = point.get(key, np.nan)
                low, high, said = _interval(draws, key, level, estimator)
                said = [notes[key]] if key in notes else said
                if few := _small(quantity, (small or {}).get(model.name, ())):
                    low, high, said = np.nan, np.nan, [*([notes[key]] if key in notes else []), f"no interval: {few}"]
                if key not in point:
                    why = f"df has no outcome column {column!r}" if quantity in FROM_OUTCOMES else failure
                    said = [f"cannot be made: {why}"]
                elif quantity == "accuracy" and (estimator.weight == estimator.weight[0]).all():
                    low, high = _accuracy_interval(estimate, len(estimator.weight))
                    said = ["exact test-set bound, 5 % on each side, if no model was trained on these rows"]
                if quantity == "mean_unfair_effect" and (model.name, kind) in disagree:
                    said = [*said, DISAGREE]
                rows.append((model.name, kind, quantity, estimate, low, high, sizes[quantity], "; ".join(said)))
    columns = ["model", "decisions", "quantity", "estimate", "lower", "upper", "ess", "note"]
    return pd.DataFrame(rows, columns=columns)


def _sizes(estimator: Estimator, label: str) -> dict[str, float]:
    """Return the effective sample size that each quantity rests on, in rows."""
    w = estimator.weight
    sizes = dict.fromkeys((*QUANTITIES, *GIVEN_UNITS), np.nan)
    sizes["positive_rate"] = float(w.sum() ** 2 / (w @ w))
    if estimator.outcome is not None:
        sizes |= dict.fromkeys(FROM_OUTCOMES, sizes["positive_rate"])
    if label in estimator.worlds:
        first, second = (world.effective_size for world in estimator.worlds[label][0])
        source = estimator.sources[label]
        if isinstance(source, SampleSplit):  # units stand for different numbers of rows
            first = second = source.effective_size(estimator.table, w)
        sizes |= dict.fromkeys((*QUANTITIES[5:], *GIVEN_UNITS), min(first, second)) | {"p_y0": first, "p_ypi": second}
    return sizes


def _accuracy_interval(accuracy: float, n: int) -> tuple[float, float]:
    low, high = test_set_bound(round((1.0 - accuracy) * n), n)
    return 1.0 - high, 1.0 - low


def _small(quantity: str, small: Sequence[str]) -> str:
    """Say why the worlds that a quantity rests on have too few rows, if so."""
    if quantity not in (*QUANTITIES[3:], *GIVEN_UNITS):
        return ""
    used = {"p_y0": small[:1], "p_ypi": small[1:]}.get(quantity, small)
    return next((text for text in used if text), "")


def _interval(draws: pd.DataFrame, key: Key, level: float, estimator: Estimator) -> tuple[float, float, list[str]]:
    """Return a percentile interval, NaN where it cannot be had, and what is to be said of it."""
    if draws.empty or key not in draws.columns:
        return np.nan, np.nan, []
    kept = draws[key].notna()
    lost = int((~kept).sum())
    if len(draws) < FEWEST_DRAWS:
        return np.nan, np.nan, [f"no interval: {len(draws)} replicate has no spread"]
    if lost > MOST_LOST * len(draws) or len(draws) - lost < FEWEST_DRAWS:
        return np.nan, np.nan, [f"no interval: the estimate left [0, 1] in {lost} of {len(draws)} replicates"]
    ends = [(1.0 - level) / 2.0, (1.0 + level) / 2.0]
    said = [f"the interval leaves out {lost} of {len(draws)} replicates, which left [0, 1]"] if lost else []
    signed = _inside_the_kink(draws[kept], key, estimator)
    if signed is None:
        low, high = np.quantile(draws[key][kept].to_numpy(), ends)
        return float(low), float(high), said
    low, high = absolute_interval(*np.quantile(signed, ends))
    return (1.0 - high, 1.0 - low, said) if key[-1] == "piu_upper" else (low, high, said)


def absolute_interval(low: float, high: float) -> tuple[float, float]:
    """Return the interval of an absolute value: the image of that of the signed one, so that both hold 0 or neither.

    Percentiles of absolute values never hold 0, however small the value.

    Examples
    --------
    >>> absolute_interval(-0.5, 0.25), absolute_interval(-0.5, -0.25)
    ((0.0, 0.5), (0.25, 0.5))
    """
    return float(max(low, -high, 0.0)), float(max(high, -low))


def _inside_the_kink(draws: pd.DataFrame, key: Key, estimator: Estimator) -> NDArray[np.float64] | None:
    """Return the replicates of what an end of PIU is made of by ``abs`` or ``1 - abs``; None if it is no such end.

    Without units these are b - a and 1 - a - b. Ends given units need none: in several views they are sums with
    signs held (see unit_bounds), which replicates carry across 0 as they do the effect, and with units in a single view
    nothing is estimated within a unit, so that the mean of absolute values has no kink.
    """
    _, name, kind, quantity = key
    label = estimator.label_of(name)
    if quantity not in ("piu_lower", "piu_upper") or label not in estimator.worlds:
        return None
    if estimator.worlds[label][0][0].unit is not None:
        return None
    a, b = (draws["", name, kind, each].to_numpy() for each in ("p_y0", "p_ypi"))
    return np.asarray(b - a if quantity == "piu_lower" else 1.0 - a - b)


def group_table(
    point: Mapping[Key, float], draws: pd.DataFrame, level: float, worlds: Mapping[str, Views]
) -> pd.DataFrame:
    """Compare the two groups' estimates of the same quantity; empty where a group cannot be weighted alone.

    All comparisons are one test: lower and upper are the percentile interval of each difference for itself, but agree
    tells whether the difference over its spread exceeds what chance makes of the largest of them all.

    Parameters
    ----------
    point
        The estimates.
    draws
        The replicates, a column for each key.
    level
        The level of the interval of each difference, and of the test of all of them together.
    worlds
        The worlds of each group: ess_0 and ess_1 are effective sizes there. Where one is below 10 rows, or below 5 % of
        the group's rows, a single weight may rule the estimate, and whether the groups agree is left open.
    """
    rows: list[dict[str, Any]] = []
    replicates: list[NDArray[np.float64]] = []
    for label, name, kind, quantity in point:
        one, other = (label, name, kind, quantity), ("group 1", name, kind, quantity)
        if label != "group 0" or other not in point:
            continue
        low = high = np.nan
        gaps = np.full(len(draws), np.nan)
        if len(draws) >= FEWEST_DRAWS:
            gaps = (draws[other] - draws[one]).to_numpy(np.float64)
            low, high = np.quantile(gaps, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
        pairs = worlds[label][0], worlds["group 1"][0]
        compared = compare_estimates(point[one], point[other], float(low), float(high), quantity, pairs)
        rows.append({"model": name, "decisions": kind, "quantity": quantity} | compared)
        replicates.append(gaps)
    table = pd.DataFrame(rows, columns=["model", "decisions", *GROUP_COLUMNS])
    if len(draws) < FEWEST_DRAWS or table.empty:
        return table
    found = np.column_stack(replicates)
    return judge_jointly(table, found.std(axis=0, ddof=1), level, found)


def mean_by_strength(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of each numeric column at each strength; NaN where one value is.

    >>> mean_by_strength(pd.DataFrame({"strength": [0.0, 0.0], "accuracy": [0.5, 1.0]}))["accuracy"].tolist()
    [0.75]
    """
    groups = rows.groupby("strength")
    return groups.mean().where(groups.count().eq(groups.size(), axis=0))  # mean(skipna=False) is new in pandas 3
