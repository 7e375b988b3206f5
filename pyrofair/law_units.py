"""Which values of what both worlds share are there, and how much does each count?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["Units", "collect_units", "sample_units", "thin_units"]


@dataclass(frozen=True)
class Units:
    """The k units: a row of the shared columns for each, and their weights (k,), which sum to 1."""

    rows: pd.DataFrame
    weight: NDArray[np.float64]


def collect_units(table: pd.DataFrame, weight: NDArray[np.float64]) -> Units:
    """Gather the rows with the same values into one unit.

    Rows without weight have theirs too, so that other weights give the same units in the same order.

    Parameters
    ----------
    table
        The shared columns of n rows, perhaps none.
    weight
        How much each row counts, shape (n,).

    Examples
    --------
    >>> collect_units(pd.DataFrame({"Q": [1, 0, 1]}), np.ones(3)).weight.round(2).tolist()
    [0.67, 0.33]
    """
    if len(table.columns):
        cell = table.groupby(list(table.columns), sort=False, observed=True).ngroup().to_numpy()
    else:
        cell = np.zeros(len(table), dtype=np.int64)
    first = np.unique(cell, return_index=True)[1]
    total = np.asarray(np.bincount(cell, weight), dtype=np.float64)
    return Units(table.iloc[first].reset_index(drop=True), total / total.sum())


def thin_units(units: Units, most: int, seed: int) -> Units:
    """Return the units, or a sample of at most so many."""
    return units if len(units.weight) <= most else sample_units(units, most, seed)


def sample_units(units: Units, n: int, seed: int) -> Units:
    """Sample n units in proportion to their weights, at even steps from a random start; one met twice counts twice."""
    start = np.random.default_rng(seed).random()
    chosen = np.searchsorted(np.cumsum(units.weight), (np.arange(n) + start) / n).clip(max=len(units.weight) - 1)
    place, counts = np.unique(chosen, return_counts=True)
    return Units(units.rows.iloc[place].reset_index(drop=True), counts / float(n))
