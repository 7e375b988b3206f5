"""The stages of a one-step estimate, and the diagnostics of their weights, regressions and corrections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.effects.potential_outcomes import FEWEST_ROWS, kish_size
from pyrofair.sources.propensity import Nuisances, Rows

__all__ = [
    "COLUMNS",
    "Stage",
    "StageValues",
    "add_problems",
    "describe_lacking",
    "describe_scores",
    "describe_stages",
    "join_stages",
    "mean_and_z",
    "stage_table",
]

Array = NDArray[np.float64]
COLUMNS = ("regime", "nodes", "arm", "given", "mean_weight", "mean_weight_z", "ess", "max_weight", "problem")
OFF, SURE = 0.1, 3.0
"""A mean weight farther from 1 than this, by more than so many standard errors, shows that overlap fails."""
FEW = 100.0
"""The smallest effective size of a stage, in rows, unless most of its arm's rows are left."""
MOST_KEPT = 0.3
"""A stage whose effective size is this share of its arm's rows lacks rows, not overlap."""
LARGEST = 0.1
"""The largest weight, as a share of all rows."""


HARDLY = 0.03
"""Rows whose group has a probability below this, times its share of all rows, hardly have a counterpart in it."""
MOST_LACKING = 0.01
"""The most of a world that may hardly have a counterpart."""


@dataclass(frozen=True)
class Stage:
    """A run of nodes that read one ``arm`` of the sensitive attribute (or None), after ``start`` nodes, ``given``."""

    regime: str
    nodes: tuple[str, ...]
    arm: int | None
    given: tuple[str, ...]
    start: int


@dataclass(frozen=True)
class StageValues:
    """The weight of each row at a stage (n,), its regression given what comes before, and its correction (n, Q)."""

    stage: Stage
    weight: Array
    start: Array
    correction: Array

    @classmethod
    def empty(cls, stage: Stage, weight: Array, columns: int) -> StageValues:
        """Return values to be added to."""
        return cls(stage, weight, np.zeros((len(weight), columns)), np.zeros((len(weight), columns)))


def stage_table(stages: Sequence[tuple[Stage, Array]], rows: Rows) -> pd.DataFrame:
    """Return the diagnostics of the weights (n,) of stages, a row each: see ``InfluenceBased.stages``."""
    return pd.DataFrame([_describe(stage, weight, rows) for stage, weight in stages], columns=list(COLUMNS))


def _describe(stage: Stage, weight: Array, rows: Rows) -> dict[str, Any]:
    counted = np.isfinite(weight)
    mean, z = mean_and_z(np.where(counted, weight, 0.0)[:, None] - 1.0, rows.weight)
    carried = rows.weight * weight
    size = kish_size(carried)
    found = {
        "regime": stage.regime,
        "nodes": ", ".join(stage.nodes),
        "arm": stage.arm,
        "given": ", ".join(stage.given),
        "mean_weight": float(mean[0] + 1.0) if counted.all() else np.inf,
        "mean_weight_z": float(z[0]),
        "ess": size,
        "max_weight": float(carried.max(initial=0.0)),
    }
    return found | {"problem": _problem(found, rows, stage)}


def _problem(found: dict[str, Any], rows: Rows, stage: Stage) -> str:
    """Return what makes a stage's weights unusable, or an empty string."""
    n = float((rows.weight > 0.0).sum())
    group = kish_size(rows.weight * rows.member(stage.arm))
    what = []
    if not np.isfinite(found["max_weight"]):
        what.append("a propensity of exactly 0 or 1 leaves rows without a finite weight")
    elif abs(found["mean_weight"] - 1.0) > OFF and abs(found["mean_weight_z"]) > SURE:
        what.append(f"the mean weight is {found['mean_weight']:.2f}, not 1 (z {found['mean_weight_z']:.1f})")
    if found["ess"] < FEWEST_ROWS or (found["ess"] < FEW and found["ess"] < MOST_KEPT * group):
        what.append(f"the effective size is {found['ess']:.0f} of {group:.0f} rows")
    if np.isfinite(found["max_weight"]) and found["max_weight"] > LARGEST * n:
        what.append(f"one row weighs {found['max_weight']:.0f} of {n:.0f}")
    return "; ".join(what)


def describe_lacking(nuisances: Nuisances, rows: Rows, arm: int | None, given: tuple[str, ...], weight: Array) -> str:
    """Return how much of a world hardly occurs in a group with what is given, if that is too much.

    ``weight`` (n,) carries the rows of both groups to what is given in that world. A mean weight near 1 does not show
    this, where the group is nearly certain to be the other one for a small part of the world only.
    """
    if arm is None or not given:
        return ""
    one = nuisances.probability(rows, given)
    least = HARDLY * float(np.average(rows.member(arm), weights=rows.weight))
    carried = rows.weight * np.where(np.isfinite(weight), weight, 0.0)
    mass = float(carried[(one if arm else 1.0 - one) < least].sum() / carried.sum())
    if mass <= MOST_LACKING:
        return ""
    columns = ", ".join(nuisances.graph.columns_of(given))
    return f"{mass:.1%} of that world hardly occurs in the group: its chance given {columns} is below {least:.2g}"


def describe_stages(values: Sequence[StageValues], rows: Rows) -> pd.DataFrame:
    """Return the diagnostics of stages for each column of scores: see ``InfluenceValues.stages``.

    ``balance`` is the weighted mean of a stage's regression less the estimate of its target by the stages before: not 0
    where the weights are wrong. ``correction`` is the weighted mean of its residuals: not 0 where the regression is.
    """
    tables = []
    for regime in dict.fromkeys(each.stage.regime for each in values):
        own = sorted((each for each in values if each.stage.regime == regime), key=lambda each: each.stage.start)
        base = own[0].start.copy()
        for each in own:
            balance = each.weight[:, None] * each.start - base
            base += each.correction
            described = pd.DataFrame([_describe(each.stage, each.weight, rows)])
            tables.append(describe_scores(described, balance, each.correction, rows.weight))
    return join_stages(tables)


def describe_scores(described: pd.DataFrame, balance: Array, correction: Array, weight: Array) -> pd.DataFrame:
    """Return a stage's row of diagnostics once for each column of scores, with its balance and correction (n, Q)."""
    table = pd.concat([described] * balance.shape[1], ignore_index=True)
    table.insert(0, "column", np.arange(len(table)))
    for name, part in (("balance", balance), ("correction", correction)):
        table[name], table[f"{name}_z"] = mean_and_z(part, weight)
    return table


def join_stages(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the tables of stages as one; without any, one without rows."""
    names = ["column", *COLUMNS, "balance", "balance_z", "correction", "correction_z"]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=names)


def add_problems(table: pd.DataFrame, problems: Sequence[str]) -> pd.DataFrame:
    """Return diagnostics of stages with further problems, one text a row, empty where there is none."""
    both = zip(table["problem"], problems, strict=True)
    return table.assign(problem=["; ".join(filter(None, texts)) for texts in both])


def mean_and_z(values: Array, weight: Array) -> tuple[Array, Array]:
    """Return the weighted means of columns (n, Q), and each over its standard error (0 where both are 0)."""
    total = weight.sum()
    mean = weight @ values / total
    error = np.sqrt((weight**2) @ (values - mean) ** 2) / total
    return mean, np.divide(mean, error, out=np.zeros_like(mean), where=error > 1e-15)
