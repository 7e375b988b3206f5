"""How learners read the columns of a table: categories as codes, numbers in bins that are made once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.tables.labels import as_levels, encode_levels, is_categorical

__all__ = ["MOST_LEVELS", "Bins", "Cells", "Design", "number_cells", "take", "text_levels"]

MOST_LEVELS = 255
"""Trees split so many levels of a category as a set, and more by their order; numbers have so many bins."""
MOST_CELLS = 2.0**62
Design: TypeAlias = Any
"""Rows of columns as a learner reads them: an array, a sparse one, a table, or :class:`Cells`."""


def text_levels(X: pd.DataFrame) -> dict[str, pd.Index[Any]]:
    """Return the levels of columns of categories, by their number of rows if more than trees can split as sets."""
    found = {name: as_levels(X[name]) for name in X.columns if is_categorical(X[name])}
    for name, levels in found.items():
        if len(levels) > MOST_LEVELS:
            rows = np.bincount(encode_levels(X[name], levels), minlength=len(levels))
            found[name] = levels[np.argsort(-rows, kind="stable")]
    return found


def number_cells(X: pd.DataFrame, levels: Mapping[str, pd.Index[Any]]) -> NDArray[Any]:
    """Return a number for each combination of levels, in their order (n,): an object where 64 bits are too few."""
    number: NDArray[Any] = np.zeros(len(X), dtype=np.int64)
    if np.prod([float(len(each)) for each in levels.values()]) >= MOST_CELLS:
        number = number.astype(object)
    for name, each in levels.items():
        number = number * len(each) + encode_levels(X[name], each)
    return number


@dataclass(frozen=True, eq=False)
class Cells:
    """Rows of numbers as their different ones, (k, p), and which of these each row is, (m,): few are predicted."""

    different: NDArray[np.float64]
    index: NDArray[np.int64]

    @classmethod
    def of(cls, rows: NDArray[np.float64]) -> Cells:
        """Gather equal rows."""
        index = np.asarray(pd.DataFrame(rows).groupby(list(range(rows.shape[1])), sort=False).ngroup(), dtype=np.int64)
        first = np.unique(index, return_index=True)[1]
        return cls(rows[first], index)

    @property
    def rows(self) -> NDArray[np.float64]:
        """All rows, (m, p)."""
        return self.different[self.index]

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of all rows."""
        return len(self.index), self.different.shape[1]

    def __getitem__(self, at: NDArray[np.int64]) -> Cells:
        if len(at) < len(self.different):
            return Cells(self.different[self.index[at]], np.arange(len(at), dtype=np.int64))
        return Cells(self.different, self.index[at])


@dataclass(frozen=True, eq=False)
class Bins:
    """Categories by their codes, numbers by the ranks of their values or, of more than 255, by as many quantile bins.

    Made once of a table, they serve all fits on its rows, with weights or without: trees sort and bin weighted numbers
    anew in each fit, which takes ten times as long as to grow them. No outlier takes up all splits.
    """

    names: tuple[str, ...]
    levels: dict[str, pd.Index[Any]]
    cuts: dict[str, NDArray[np.float64]]

    @classmethod
    def of(cls, X: pd.DataFrame) -> Bins:
        """Return the levels and bins of a table; trees see its columns by name, in whatever order they come."""
        levels, names = text_levels(X), tuple(sorted(X.columns))
        numbers = [name for name in names if not 0 < len(levels.get(name, ())) <= MOST_LEVELS]
        return cls(names, levels, {name: _cuts(_numbers(X[name], levels.get(name))) for name in numbers})

    @property
    def categorical(self) -> tuple[bool, ...]:
        """Which columns are categories that trees split as sets."""
        return tuple(name not in self.cuts for name in self.names)

    def __call__(self, X: pd.DataFrame) -> Cells:
        """Return the codes and bins of a table with the same columns."""
        parts = [_numbers(X[name], self.levels.get(name)) for name in self.names]
        cuts = [self.cuts.get(name) for name in self.names]
        placed = [part if cut is None else np.searchsorted(cut, part) for part, cut in zip(parts, cuts, strict=True)]
        return Cells.of(np.column_stack(placed).astype(np.float64))


def _numbers(column: pd.Series[Any], levels: pd.Index[Any] | None) -> NDArray[np.float64]:
    return column.to_numpy(np.float64) if levels is None else encode_levels(column, levels).astype(np.float64)


def _cuts(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the middles between the different values of a column or, where these are many, between its quantiles."""
    known: NDArray[np.float64] = np.unique(numbers)
    if len(known) <= MOST_LEVELS:
        return np.asarray((known[1:] + known[:-1]) / 2.0)
    inner = np.linspace(0.0, 1.0, MOST_LEVELS + 1)[1:-1]
    return np.asarray(np.unique(np.quantile(numbers, inner, method="midpoint")))


def take(design: Design, index: NDArray[np.int64]) -> Design:
    """Return some rows of a design."""
    return design.iloc[index] if isinstance(design, pd.DataFrame) else design[index]
