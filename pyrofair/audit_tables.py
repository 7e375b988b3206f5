"""An audit's estimates and replicates as tables: every quantity with its interval, or with why it has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pyrofair.bounds import test_set_bound
from pyrofair.measures import DECISIONS
from pyrofair.overlap import SMALLEST_SHARE
from pyrofair.potential_outcomes import CounterfactualSample
from pyrofair.replicates import Estimator, Key, Views

__all__ = ["FEWEST_DRAWS", "MOST_LOST", "QUANTITIES", "group_table", "main_table", "mean_by_strength"]

MOST_LOST = 0.2
"""The largest share of replicates that may lack a value for an interval to be given."""
FEWEST_DRAWS = 2
"""Fewer replicates have no spread."""
SMALLEST_SIZE = 10
"""The smallest effective size, in rows, with which a group is compared with the other."""
TOO_LITTLE = "too little overlap to compare"
ROUNDING = 1e-9

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
    """
    sizes = _sizes(estimator)
    column = estimator.models[0].graph.outcome_column
    rows = []
    for model in estimator.models:
        for kind in DECISIONS:
            for quantity in (*QUANTITIES, *(q for q in GIVEN_UNITS if ("", model.name, kind, q) in point)):
                if kind == "score" and quantity in FROM_OUTCOMES:
                    continue
                key: Key = ("", model.name, kind, quantity)
                estimate = point.get(key, np.nan)
                low, high, said = _interval(draws, key, level)
                said = [notes[key]] if key in notes else said
                if key not in point:
                    why = f"df has no outcome column {column!r}" if quantity in FROM_OUTCOMES else failure
                    said = [f"cannot be made: {why}"]
                elif quantity == "accuracy" and (estimator.weight == estimator.weight[0]).all():
                    low, high = _accuracy_interval(estimate, len(estimator.weight))
                    said = ["exact test-set bound, 5 % on each side, if no model was trained on these rows"]
                rows.append((model.name, kind, quantity, estimate, low, high, sizes[quantity], "; ".join(said)))
    columns = ["model", "decisions", "quantity", "estimate", "lower", "upper", "ess", "note"]
    return pd.DataFrame(rows, columns=columns)


def _sizes(estimator: Estimator) -> dict[str, float]:
    """Return the effective sample size that each quantity rests on, in rows."""
    w = estimator.weight
    sizes = dict.fromkeys((*QUANTITIES, *GIVEN_UNITS), np.nan)
    sizes["positive_rate"] = float(w.sum() ** 2 / (w @ w))
    if estimator.outcome is not None:
        sizes |= dict.fromkeys(FROM_OUTCOMES, sizes["positive_rate"])
    if "" in estimator.worlds:
        first, second = (world.effective_size for world in estimator.worlds[""][0])
        if hasattr(estimator.sources[""], "effective_size"):  # units stand for different numbers of rows
            first = second = estimator.sources[""].effective_size(estimator.table, w)
        sizes |= dict.fromkeys((*QUANTITIES[5:], *GIVEN_UNITS), min(first, second)) | {"p_y0": first, "p_ypi": second}
    return sizes


def _accuracy_interval(accuracy: float, n: int) -> tuple[float, float]:
    low, high = test_set_bound(round((1.0 - accuracy) * n), n)
    return 1.0 - high, 1.0 - low


def _interval(draws: pd.DataFrame, key: Key, level: float) -> tuple[float, float, list[str]]:
    """Return a percentile interval, NaN where it cannot be had, and what is to be said of it."""
    if draws.empty or key not in draws.columns:
        return np.nan, np.nan, []
    values = draws[key].dropna().to_numpy()
    lost = len(draws) - len(values)
    if len(draws) < FEWEST_DRAWS:
        return np.nan, np.nan, [f"no interval: {len(draws)} replicate has no spread"]
    if lost > MOST_LOST * len(draws) or len(values) < FEWEST_DRAWS:
        return np.nan, np.nan, [f"no interval: the estimate left [0, 1] in {lost} of {len(draws)} replicates"]
    low, high = np.quantile(values, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    said = [f"the interval leaves out {lost} of {len(draws)} replicates, which left [0, 1]"] if lost else []
    return float(low), float(high), said


def group_table(
    point: Mapping[Key, float], draws: pd.DataFrame, level: float, worlds: Mapping[str, Views]
) -> pd.DataFrame:
    """Compare the two groups' estimates of the same quantity; empty where a group cannot be weighted alone.

    Parameters
    ----------
    point
        The estimates.
    draws
        The replicates, a column for each key.
    level
        The level of the interval of the difference, which holds 0 where the two agree.
    worlds
        The worlds of each group: ess_0 and ess_1 are effective sizes there. Where one is below 10 rows, or below 5 % of
        the group's rows, a single weight may rule the estimate, and whether the groups agree is left open.
    """
    rows = []
    for label, name, kind, quantity in point:
        one, other = (label, name, kind, quantity), ("group 1", name, kind, quantity)
        if label != "group 0" or other not in point:
            continue
        low = high = np.nan
        if len(draws) >= FEWEST_DRAWS:
            gaps = draws[other].to_numpy() - draws[one].to_numpy()
            low, high = np.quantile(gaps, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
        used = [_worlds_of(quantity, worlds[each]) for each in (label, "group 1")]
        sizes = [min(world.effective_size for world in pair) for pair in used]
        note = "" if all(_has_overlap(world) for pair in used for world in pair) else TOO_LITTLE
        agree = pd.NA if note or np.isnan(low) else bool(low <= ROUNDING and high >= -ROUNDING)
        gap = point[other] - point[one]
        rows.append((name, kind, quantity, point[one], point[other], gap, low, high, agree, *sizes, note))
    columns = ["model", "decisions", "quantity", "group_0", "group_1", "difference", "lower", "upper", "agree"]
    return pd.DataFrame(rows, columns=[*columns, "ess_0", "ess_1", "note"])


def _worlds_of(quantity: str, views: Views) -> Sequence[CounterfactualSample]:
    """Return the worlds that a quantity rests on."""
    worlds = views[0]
    return {"p_y0": worlds[:1], "p_ypi": worlds[1:]}.get(quantity, worlds)


def _has_overlap(world: CounterfactualSample) -> bool:
    return world.effective_size >= max(SMALLEST_SIZE, SMALLEST_SHARE * len(world.rows))


def mean_by_strength(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of each numeric column at each strength; NaN where one value is.

    >>> mean_by_strength(pd.DataFrame({"strength": [0.0, 0.0], "accuracy": [0.5, 1.0]}))["accuracy"].tolist()
    [0.75]
    """
    return rows.groupby("strength").agg(lambda values: values.mean(skipna=False))  # pandas 3 has mean(skipna=...)
