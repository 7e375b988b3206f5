"""Selection rates, and true and false positive rates, of each observed group, with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.audits.clusters import Clusters
from pyrofair.effects.estimates import AUDITED, Estimate, Estimates, Key, kish_size
from pyrofair.effects.potential_outcomes import FEWEST_ROWS
from pyrofair.effects.scoring import decide
from pyrofair.graph import CausalGraph

__all__ = ["DIFFERENCE", "RATES", "estimate_rates", "sizes_of_rate", "tell_rates"]

RATES: Mapping[str, int | None] = {"selection_rate": None, "true_positive_rate": 1, "false_positive_rate": 0}
"""The rates, each with the observed outcome of the rows that it is a share of; None: all."""
DIFFERENCE = "difference"
"""In place of a group: the rate of the contrast less that of the baseline."""
COLUMNS = ["model", "group", "quantity", "estimate", "lower", "upper", "rows", "note"]


def estimate_rates(
    observed: Mapping[str, NDArray[np.floating[Any]]],
    threshold: float,
    a: NDArray[np.int8],
    outcome: NDArray[np.int8] | None,
    weight: NDArray[np.float64],
    graph: CausalGraph,
    level: float,
    clusters: Clusters | None,
) -> pd.DataFrame:
    """Return the rates of thresholded decisions by the scores of n rows of each model: see :func:`tell_rates`."""
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
    parts = {each: of(*each) for each in product((0, 1), dict.fromkeys(RATES.values())) if known or each[1] is None}
    names, rows = [*(str(graph.label(value)) for value in (0, 1)), DIFFERENCE], []
    for model, (quantity, label) in product(models, RATES.items()):
        if label is not None and not known:
            continue
        own = [parts[value, label] for value in (0, 1)]
        found = [
            None if each is None else each.of(Key(AUDITED, model, "threshold", "positive_rate")) for _, each in own
        ]
        sizes = [np.inf if each is None else each.clusters for _, each in own]
        gap = None if found[0] is None or found[1] is None else found[1] - found[0]
        few = [*sizes, min(sizes) if joint else 0.0]
        counts = [*(count for count, _ in own), sum(count for count, _ in own)]
        for name, estimate, size, count in zip(names, [*found, gap], few, counts, strict=True):
            rows.append((model, name, quantity, *_interval(estimate, size, level), count, _note(estimate, size)))
    return pd.DataFrame(rows, columns=COLUMNS)


def _interval(estimate: Estimate | None, groups: float, level: float) -> tuple[float, float, float]:
    if estimate is None:
        return np.nan, np.nan, np.nan
    return estimate.estimate, *(estimate.interval(level) if groups >= FEWEST_ROWS else (np.nan, np.nan))


def _note(estimate: Estimate | None, groups: float) -> str:
    if estimate is None:
        return "no row"
    few = f"{groups:.1f} effective groups, fewer than {FEWEST_ROWS}" if groups else "the same groups are in both"
    return "" if groups >= FEWEST_ROWS else f"no interval: {few}"
