"""Checks of an audit's overlap, of its intervals and of the rows that each world rests on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.audits.bootstrap import AUDITED, Replicates
from pyrofair.audits.tables import MAX_MISSING_SHARE
from pyrofair.effects.potential_outcomes import (
    FEWEST_ROWS,
    MEAN_WEIGHT,
    SMALLEST_SHARE,
    Diagnosed,
    Refittable,
    SampleSplit,
    Stratified,
    Views,
)
from pyrofair.exceptions import PositivityWarning, PyrofairWarning

__all__ = ["check_intervals", "check_overlap", "find_small_groups", "most_failed"]


def find_small_groups(
    fitted: Any, table: pd.DataFrame, weight: NDArray[np.float64], views: Views | None
) -> tuple[str, str]:
    """Return for each world why an observed group has too few effective rows for an interval; empty where none has.

    Counted are the fitted rows of each group that the world rests on, and the n audited rows, of the given weight (n,),
    that carry its weights or show its units.
    """
    if views is None or not isinstance(fitted, Diagnosed):
        return "", ""
    sizes, found = fitted.group_sizes(), []
    for regime, world in zip(fitted.unfair.regimes, views[0], strict=True):
        few = [f"{size}, fewer than {FEWEST_ROWS}" for size in sizes[regime.name] if size.is_small]
        if isinstance(fitted, SampleSplit):
            size = fitted.effective_size(table, weight)
        else:
            size = world.effective_size if world.unit is None else np.inf
        if size < FEWEST_ROWS and not few:
            few = [f"the effective size of the world {regime.name!r} is {size:.1f} row(s), fewer than {FEWEST_ROWS}"]
        found.append("; ".join(few))
    return found[0], found[1]


def check_overlap(
    fitted: Any, table: pd.DataFrame, weight: NDArray[np.float64], worlds: Mapping[str, Views], *, fresh: bool
) -> list[str]:
    """Return which audited rows (n, of the given weight) are trimmed, and which worlds they support badly.

    Warns of it unless the source is ``fresh``: fitted on these rows, it has warned already.
    """
    if AUDITED not in worlds:
        return []
    found = []
    kept = _kept(fitted, table)
    if not kept.all():
        found.append(
            f"trim={fitted.trim:g} leaves {int((~kept).sum()):,} of {len(kept):,} audited rows without weight: the "
            "unfair effect and PIU are those among the others, while accuracy and the positive prediction rate are "
            "over all rows."
        )
    if fresh:
        return found
    for regime, world in zip(fitted.unfair.regimes, worlds[AUDITED][0], strict=True):
        problems = []
        counted = kept & (weight > 0.0)
        if isinstance(fitted, Stratified) and counted.any():
            low, high = MEAN_WEIGHT
            mean = np.average(fitted.weights(regime, table)[counted], weights=weight[counted])
            if not low <= mean <= high:
                problems.append(f"the mean weight is {mean:.3g}, outside [{low}, {high}]")
        if world.effective_size < SMALLEST_SHARE * world.units:
            problems.append(
                f"the effective size {world.effective_size:.1f} is below {SMALLEST_SHARE:.0%} of {world.units} rows"
            )
        elif isinstance(fitted, Stratified) and world.effective_size < FEWEST_ROWS:
            problems.append(f"the effective size {world.effective_size:.1f} is below {FEWEST_ROWS} rows")
        if problems:
            found.append(f"Poor overlap among the audited rows, world {regime.name!r}: {'; '.join(problems)}.")
    for text in found:
        warnings.warn(text, PositivityWarning, stacklevel=3)
    return found


def _kept(fitted: Any, table: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which rows are not trimmed, shape (n,): those that have a weight if their group is weighted."""
    if not isinstance(fitted, Stratified) or fitted.trim is None:
        return np.ones(len(table), dtype=bool)
    alone = fitted.by_group(["group 0", "group 1"]).values()
    weights = [each.weights(regime, table) for each in alone for regime in fitted.unfair.regimes]
    return np.asarray(np.sum(weights, axis=0) > 0.0)


def most_failed(replicates: Replicates) -> bool:
    """Return whether so many replicates failed that the others make no interval."""
    return len(replicates.failures) > MAX_MISSING_SHARE * replicates.tried


def check_intervals(replicates: Replicates, fitted: Any, worlds: Mapping[str, Views], level: float) -> list[str]:
    """Warn of what makes intervals doubtful, and return the warnings as text."""
    found = []
    tried, failures = replicates.tried, replicates.failures
    if most_failed(replicates):
        found.append(
            f"{len(failures)} of {tried} bootstrap replicates failed, so there are no intervals. The first failure: "
            f"{failures[0]}"
        )
    elif 0 < tried * (1.0 - level) < 2.0 - 1e-9:
        found.append(
            f"{tried} bootstrap replicates are too few for {level:.0%} intervals, whose ends are then the smallest and "
            f"the largest replicate; use n_boot={int(np.ceil(2.0 / (1.0 - level) - 1e-9))} or more."
        )
    if tried and worlds and not isinstance(fitted, Refittable):
        name = type(fitted).__name__
        first = worlds[AUDITED][0][0]
        if first.unit is not None:
            found.append(
                f"{name} is taken as it is: the intervals cover the drawing of {first.units:,} units and of audited "
                "rows, not what may be wrong with it or its parameters."
            )
        else:
            found.append(
                f"{name} cannot be refitted, so the intervals leave out the uncertainty of its nuisances"
                + ("." if first.origin is not None else "; they cover the drawing of units and of audited rows.")
            )
    for text in found:
        warnings.warn(text, PyrofairWarning, stacklevel=3)
    return found
