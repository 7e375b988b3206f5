"""The tables of an audit: every quantity with its interval or the reason why it has none, and the groups compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._arviz import equal_tailed
from pyrofair.audits.bootstrap import AUDITED, Estimator, Key
from pyrofair.effects.bounds import test_set_bound
from pyrofair.effects.group_agreement import DISAGREE, GROUP_COLUMNS, compare_estimates, disagreeing, judge_jointly
from pyrofair.effects.potential_outcomes import SampleSplit, Views
from pyrofair.effects.scoring import DECISIONS

__all__ = [
    "FROM_OUTCOMES",
    "MAX_MISSING_SHARE",
    "QUANTITIES",
    "absolute_interval",
    "group_table",
    "main_table",
    "mean_by_strength",
]

MAX_MISSING_SHARE = 0.2
"""The largest share of replicates that may lack a value for an interval to be given."""
MIN_REPLICATES = 2
"""Fewer replicates have no spread."""

FROM_OUTCOMES = ("accuracy", "majority_rate")
FROM_BOTH_WORLDS = ("mean_unfair_effect", "piu_paper_bound", "piu_lower", "piu_upper")
QUANTITIES = ("accuracy", "positive_rate", "majority_rate", "p_y0", "p_ypi", *FROM_BOTH_WORLDS)
GIVEN_UNITS = "piu_double_disagreement"
"""The additional quantity of worlds that are compared unit by unit, where a unit's scores are means."""


def absolute_interval(low: float, high: float) -> tuple[float, float]:
    """Return the interval of an absolute value: the image of that of the signed one, so that both hold 0 or neither.

    Percentiles of absolute values never hold 0, however small the value.
    """
    return float(max(low, -high, 0.0)), float(max(high, -low))


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
    """Return a row for each model, decisions and quantity, whether it could be estimated or not.

    ``failure`` is the reason why no world could be made, ``small`` why each world of a model rests on too few rows for
    an interval; a note on the effect reports where the observed ``groups`` disagree.
    """
    apart = pd.DataFrame() if groups is None else disagreeing(groups)
    disagree = set() if apart.empty else set(zip(apart["model"], apart["decisions"], strict=True))
    column = estimator.models[0].graph.outcome_column
    rows = []
    sizes = {model.name: _sizes(estimator, estimator.label_of(model.name)) for model in estimator.models}
    for name, decisions, quantity in product(sizes, DECISIONS, (*QUANTITIES, GIVEN_UNITS)):
        key = Key(AUDITED, name, decisions, quantity)
        if (decisions == "score" and quantity in FROM_OUTCOMES) or (quantity == GIVEN_UNITS and key not in point):
            continue
        estimate = point.get(key, np.nan)
        low, high, found = _interval(draws, key, level, estimator)
        own = [notes[key]] if key in notes else []
        if key not in point:
            reason = f"df has no outcome column {column!r}" if quantity in FROM_OUTCOMES else failure
            found = [f"cannot be made: {reason}"]
        elif few := _few_rows(quantity, (small or {}).get(name, ())):
            low, high, found = np.nan, np.nan, [*own, f"no interval: {few}"]
        elif quantity == "accuracy" and (estimator.weight == estimator.weight[0]).all():
            n = len(estimator.weight)
            low, high = (1.0 - error for error in test_set_bound(round((1.0 - estimate) * n), n)[::-1])
            found = ["exact test-set bound, 5 % on each side, if no model was trained on these rows"]
        else:
            found = own or found
        if quantity == "mean_unfair_effect" and (name, decisions) in disagree:
            found = [*found, DISAGREE]
        rows.append((name, decisions, quantity, estimate, low, high, sizes[name][quantity], "; ".join(found)))
    columns = ["model", "decisions", "quantity", "estimate", "lower", "upper", "ess", "note"]
    return pd.DataFrame(rows, columns=columns)


def _sizes(estimator: Estimator, label: str) -> dict[str, float]:
    """Return the effective sample size that each quantity rests on, in rows."""
    w = estimator.weight
    sizes = dict.fromkeys((*QUANTITIES, GIVEN_UNITS), np.nan)
    sizes["positive_rate"] = float(w.sum() ** 2 / (w @ w))
    if estimator.outcome is not None:
        sizes |= dict.fromkeys(FROM_OUTCOMES, sizes["positive_rate"])
    if label in estimator.worlds:
        first, second = (world.effective_size for world in estimator.worlds[label][0])
        source = estimator.sources[label]
        if isinstance(source, SampleSplit):  # units stand for different numbers of rows
            first = second = source.effective_size(estimator.table, w)
        sizes |= dict.fromkeys((*FROM_BOTH_WORLDS, GIVEN_UNITS), min(first, second)) | {"p_y0": first, "p_ypi": second}
    return sizes


def _few_rows(quantity: str, small: Sequence[str]) -> str:
    """Return why the worlds that a quantity rests on have too few rows, or an empty string."""
    if quantity in (*FROM_OUTCOMES, "positive_rate"):
        return ""
    used = {"p_y0": small[:1], "p_ypi": small[1:]}.get(quantity, small)
    return next((text for text in used if text), "")


def _interval(draws: pd.DataFrame, key: Key, level: float, estimator: Estimator) -> tuple[float, float, list[str]]:
    """Return a percentile interval, NaN where there is none, and notes on it."""
    if draws.empty or key not in draws.columns:
        return np.nan, np.nan, []
    kept = draws[key].notna()
    lost = int((~kept).sum())
    if len(draws) < MIN_REPLICATES:
        return np.nan, np.nan, [f"no interval: {len(draws)} replicate has no spread"]
    if lost > MAX_MISSING_SHARE * len(draws) or len(draws) - lost < MIN_REPLICATES:
        return np.nan, np.nan, [f"no interval: the estimate left [0, 1] in {lost} of {len(draws)} replicates"]
    notes = [f"the interval leaves out {lost} of {len(draws)} replicates, which left [0, 1]"] if lost else []
    signed = _inside_the_kink(draws[kept], key, estimator)
    if signed is None:
        low, high = equal_tailed(draws[key][kept].to_numpy(), level)
        return float(low), float(high), notes
    low, high = absolute_interval(*equal_tailed(signed, level))
    return (1.0 - high, 1.0 - low, notes) if key.quantity == "piu_upper" else (low, high, notes)


def _inside_the_kink(draws: pd.DataFrame, key: Key, estimator: Estimator) -> NDArray[np.float64] | None:
    """Return the replicates of what an end of PIU is made of by ``abs`` or ``1 - abs``; None if it is no such end.

    Without units these are b - a and 1 - a - b. Ends given units need none: in several views they are sums with
    signs held (see conditional_bounds), which replicates carry across 0 as they do the effect, and with units in a
    single view nothing is estimated within a unit, so that the mean of absolute values has no kink.
    """
    label = estimator.label_of(key.model)
    if key.quantity not in ("piu_lower", "piu_upper") or label not in estimator.worlds:
        return None
    if estimator.worlds[label][0][0].unit is not None:
        return None
    a, b = (draws[key._replace(quantity=each)].to_numpy() for each in ("p_y0", "p_ypi"))
    return np.asarray(b - a if key.quantity == "piu_lower" else 1.0 - a - b)


def group_table(
    point: Mapping[Key, float], draws: pd.DataFrame, level: float, worlds: Mapping[str, Views]
) -> pd.DataFrame:
    """Compare the two groups' estimates of the same quantity; empty where a group cannot be weighted alone.

    All comparisons are one test: lower and upper are the percentile interval of each difference for itself, but agree
    reports whether the difference over its spread exceeds what chance makes of the largest of them all. Where an
    effective size in the groups' ``worlds`` is below 10 rows, or below 5 % of the group's rows, agree is left open.
    """
    rows = []
    gaps = np.full((len(draws), 0), np.nan)
    for key in point:
        other = key._replace(source="group 1")
        if key.source != "group 0" or other not in point:
            continue
        low = high = np.nan
        if len(draws) >= MIN_REPLICATES:
            gap = (draws[other] - draws[key]).to_numpy(np.float64)
            low, high = map(float, equal_tailed(gap, level))
            gaps = np.column_stack([gaps, gap])
        pairs = worlds["group 0"][0], worlds["group 1"][0]
        compared = compare_estimates(point[key], point[other], low, high, key.quantity, pairs)
        rows.append({"model": key.model, "decisions": key.decisions, "quantity": key.quantity} | compared)
    table = pd.DataFrame(rows, columns=["model", "decisions", *GROUP_COLUMNS])
    return table if not gaps.size else judge_jointly(table, gaps.std(axis=0, ddof=1), level, gaps)


def mean_by_strength(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of each numeric column at each strength; NaN where one value is."""
    groups = rows.groupby("strength")
    return groups.mean().where(groups.count().eq(groups.size(), axis=0))  # mean(skipna=False) is new in pandas 3
