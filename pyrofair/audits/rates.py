"""Selection rates, and true and false positive rates, of each observed group, with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from pyrofair.audits.clusters import note_on_few
from pyrofair.audits.inputs import AuditedRows
from pyrofair.effects.estimates import AUDITED, Estimates, Key, kish_size
from pyrofair.effects.row_functions import Scores
from pyrofair.effects.scoring import decide
from pyrofair.graph import CausalGraph

__all__ = ["DIFFERENCE", "RATES", "estimate_rates", "sizes_of_rate", "tell_rates"]

RATES: Mapping[str, int | None] = {"selection_rate": None, "true_positive_rate": 1, "false_positive_rate": 0}
"""The rates, each with the observed outcome of the rows that it is a share of; None: all."""
DIFFERENCE = "difference"
"""In place of a group: the rate of the contrast less that of the baseline."""
COLUMNS = ["model", "group", "quantity", "estimate", "lower", "upper", "rows", "note"]


def estimate_rates(
    observed: Mapping[str, Scores], rows: AuditedRows, threshold: float, graph: CausalGraph, level: float
) -> pd.DataFrame:
    """Return the rates of thresholded decisions by the scores of n rows of each model: see :func:`tell_rates`."""
    a, outcome, weight, clusters = rows.a, rows.outcome, rows.weight, rows.clusters
    yes = {(name, "threshold", "positive"): decide(each, "threshold", threshold) for name, each in observed.items()}
    whole = Estimates(pd.DataFrame(yes), weight, groups=None if clusters is None else clusters.code)

    def of(value: int, label: int | None) -> tuple[int, Estimates | None]:
        member = (a == value) & (weight > 0.0)
        at = np.flatnonzero(member if label is None or outcome is None else member & (outcome == label))
        return len(at), whole.within(at, sizes_of_rate(observed, kish_size(weight[at]))) if len(at) else None

    return tell_rates([*observed], of, graph, level, known=outcome is not None)


def sizes_of_rate(models: Sequence[str] | Mapping[str, Any], size: float) -> dict[str, dict[str, float]]:
    """Return of how many effective rows the rate of each model is a share."""
    return {name: {"positive_rate": size} for name in models}


def tell_rates(
    models: Sequence[str],
    of: Callable[[int, int | None], tuple[int, Estimates | None]],
    graph: CausalGraph,
    level: float,
    *,
    known: bool,
    joint: bool = True,
) -> pd.DataFrame:
    """Return a row for each model, rate and group, and for the difference of both groups.

    ``of`` gives the rows with a value of the sensitive attribute and an outcome (None: any), and their estimates.
    Without ``known`` outcomes there are selection rates alone; unless errors of both groups are known ``joint``-ly, the
    difference has no interval.
    """
    asked = {name: label for name, label in RATES.items() if known or label is None}
    parts, rows = {(value, label): of(value, label) for value in (0, 1) for label in asked.values()}, []
    for model, (quantity, label) in product(models, asked.items()):
        key, found = Key(AUDITED, model, "threshold", "positive_rate"), []
        for value in (0, 1):
            count, own = parts[value, label]
            made = (None, np.inf) if own is None else (own.of(key), own.clusters)
            found.append((str(graph.label(value)), count, *made))
        (_, n, one, few), (_, m, other, fewer) = found
        gap = None if one is None or other is None else other - one
        for name, count, estimate, size in [*found, (DIFFERENCE, n + m, gap, min(few, fewer) if joint else 0.0)]:
            note = note_on_few(size) if joint or name != DIFFERENCE else "no interval: groups may have rows of both"
            ends = (np.nan, np.nan) if note or estimate is None else estimate.interval(level)
            share = np.nan if estimate is None else estimate.estimate
            rows.append((model, name, quantity, share, *ends, count, "no row" if estimate is None else note))
    return pd.DataFrame(rows, columns=COLUMNS)
