"""Rows of one table found in another, by their content, and by their index where contents repeat."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

__all__ = ["describe_copies", "hash_groups", "hash_rows", "match_rows"]

SIGMAS = 3.0
"""By how many standard deviations contents must agree more than chance makes, before rows are taken for the same."""
CHANCE = 1e-6
"""How unlikely equal contents under equal labels must be before an index is believed."""
SHOWN = 8
"""How many columns a message names."""
TOLERANCE = 1e-6
"""Numbers under one label are the same up to this, relative to their size: single precision keeps 7 digits."""
COPIED, VARIED = 0.2, 0.1
"""Rows are copies where so large a share repeats another one, and a column of numbers has so many values per row."""
SURPLUS, NEIGHBOURS = 0.05, 50
"""So large a share must repeat an earlier row beyond what chance makes, among so many rows of similar numbers."""


def describe_copies(
    df: pd.DataFrame, read: Collection[str], sample_weight: object = None, groups: NDArray[Any] | None = None
) -> list[str]:
    """Return a warning if rows are exact copies, not within one of ``groups`` (n,), or stand for many by weight."""
    if _are_counts(sample_weight) and not df[[*read]].duplicated().any():
        return [
            f"sample_weight holds whole numbers, and no row repeats another one: {len(df):,} rows with weights are "
            "taken for as many units. If each stands for the units that it counts, write them out: "
            "df.loc[df.index.repeat(sample_weight)]."
        ]
    numbers = [name for name in read if is_numeric_dtype(df[name].dtype)]
    most = max(numbers, key=lambda name: df[name].nunique(), default=None)
    if most is None or df[most].nunique() < VARIED * len(df):
        return []
    compared = [name for name in df if name in read or _repeats(df[name])]
    if groups is not None:
        df = df[~df[compared].assign(**{str(max(map(str, compared))) + "'": groups}).duplicated().to_numpy()]
    repeated = df[compared].duplicated(keep=False).to_numpy()
    if repeated.mean() < COPIED or not _exceeds_chance(df[compared], most):
        return []
    return [
        f"{int(repeated.sum()):,} of {len(df):,} rows repeat another one in all {len(compared)} columns "
        f"({', '.join(map(str, compared[:SHOWN]))}{', ...' * (len(compared) > SHOWN)}), though {most!r} has "
        f"{df[most].nunique():,} different values: copies of a row are counted as independent units, so that "
        "intervals are too narrow and models learn the rows that they judge. If one unit stands there several times, "
        "keep it once, df.drop_duplicates(), or name the column of units: groups='unit'."
    ]


def _exceeds_chance(df: pd.DataFrame, most: Any) -> bool:
    """Return whether rows repeat earlier ones more than where neighbours by one column exchange the others."""
    n, rest = len(df), [name for name in df if name != most]
    order = np.argsort(df[most].to_numpy(dtype=np.float64, na_value=np.nan), kind="stable")
    mixed = order[np.lexsort((np.random.default_rng(0).random(n), np.arange(n) // NEIGHBOURS))]
    others = df[rest].iloc[mixed].reset_index(drop=True)
    found = int(df.duplicated().sum())
    by_chance = int(others.assign(**{str(most): df[most].to_numpy()[order]}).duplicated().sum())
    return bool(found - by_chance > max(SURPLUS * n, SIGMAS * np.sqrt(found)))


def _are_counts(sample_weight: Any) -> bool:
    """Whether weights are numbers of units: whole, not all equal, and at least two on average."""
    if sample_weight is None or np.ndim(sample_weight) != 1:
        return False
    weight = np.asarray(sample_weight, dtype=np.float64)
    return bool((weight == np.rint(weight)).all() and weight.mean() >= 2.0 and weight.min() < weight.max())


def _repeats(values: pd.Series[Any]) -> bool:
    """Whether a column outside the graph holds a value twice; lists and the like cannot be compared."""
    with contextlib.suppress(TypeError):
        return not values.is_unique
    return False


def hash_rows(table: pd.DataFrame, *, single: bool = False) -> NDArray[np.uint64]:
    """Return a hash of the content of each row, shape (n,), whatever its index, the column order and the types.

    A number has one hash as an integer, a float or a boolean, in a column of numbers, objects or categories; so has a
    missing value, which is like no other. With ``single`` numbers are rounded to single precision, so that a copy in
    ``float32`` has the hashes of its original in ``float64``, and numbers written as text count as numbers.
    """
    columns = {str(name): _canonical(table[name], single) for name in sorted(table.columns, key=str)}
    return np.asarray(pd.util.hash_pandas_object(pd.DataFrame(columns), index=False), dtype=np.uint64)


def hash_groups(labels: NDArray[Any] | None) -> NDArray[np.int64] | None:
    """Return a number for the label of each row's group, (n,), the same in every table; None without groups."""
    return None if labels is None else hash_rows(pd.DataFrame({"groups": labels})).view(np.int64)


def _canonical(values: pd.Series[Any], single: bool) -> NDArray[np.uint64]:
    """Return a hash of each value, equal for equal values of different types."""
    if is_numeric_dtype(values.dtype):
        return _hash_numbers(values.to_numpy(dtype=np.float64, na_value=np.nan), single)
    codes, levels = pd.factorize(np.asarray(values.astype(object).where(values.notna(), None)), use_na_sentinel=False)
    levels = np.array([np.nan if level is None else level for level in levels], dtype=object)  # a gap is no text
    numbers = [isinstance(level, Real | np.bool_) or (single and _is_written(level)) for level in levels]
    hashed = pd.util.hash_array(np.array([str(level) for level in levels], dtype=object), categorize=False)
    if any(numbers):
        as_numbers = np.array([float(level) if real else 0.0 for level, real in zip(levels, numbers, strict=True)])
        hashed = np.where(numbers, _hash_numbers(as_numbers, single), hashed)
    return np.asarray(hashed[codes], dtype=np.uint64)


def _is_written(value: Any) -> bool:
    """Whether a value is a number as text."""
    with contextlib.suppress(ValueError):
        return isinstance(value, str) and bool(np.isfinite(float(value)))
    return False


def _hash_numbers(values: NDArray[np.float64], single: bool) -> NDArray[np.uint64]:
    if single:
        with np.errstate(over="ignore"):
            values = values.astype(np.float32).astype(np.float64)
    values = np.where(np.isnan(values), np.nan, values + 0.0)  # -0 becomes 0, and all missing values are one
    return np.asarray(pd.util.hash_array(values), dtype=np.uint64)


def match_rows(table: pd.DataFrame, others: pd.DataFrame) -> NDArray[np.int64]:
    """Return for each row of a table (n,) its index among the rows of another table, or -1 if it is none of these.

    All rows are matched if both tables hold the same contents equally often. Of tables that overlap in part, rows are
    matched that have one label and one content in both, if these agree too well for chance; otherwise those whose
    content occurs once in either table, if these are more than independent samples of one population would share. Where
    not all rows are matched, contents are compared in single precision too, and numbers as text with numbers.

    >>> fitted = pd.DataFrame({"M": [0.5, 1.5, 2.5]})
    >>> match_rows(fitted.iloc[::-1], fitted), match_rows(pd.DataFrame({"M": [2.5, 3.5]}), fitted)
    (array([2, 1, 0]), array([ 2, -1]))
    """
    exact = _Contents.of(table).match(_Contents.of(others))
    if (exact >= 0).all():
        return exact
    rounded = _Contents.of(table, single=True).match(_Contents.of(others, single=True))
    return rounded if (rounded >= 0).sum() > (exact >= 0).sum() else exact


@dataclass(frozen=True)
class _Contents:
    """A table of n rows and their hashes (n,), whether of numbers in single precision."""

    table: pd.DataFrame
    hashes: NDArray[np.uint64]
    single: bool

    @classmethod
    def of(cls, table: pd.DataFrame, *, single: bool = False) -> _Contents:
        return cls(table, hash_rows(table, single=single), single)

    def match(self, other: _Contents) -> NDArray[np.int64]:
        if np.array_equal(self.hashes, other.hashes):
            return np.arange(len(self.hashes))
        for way in (self._permuted, self._by_label, self._by_content):
            if (found := way(other)) is not None:
                return found
        return np.full(len(self.hashes), -1)

    def _permuted(self, other: _Contents) -> NDArray[np.int64] | None:
        """Match all rows if the contents are the same, those with one label and one content to each other first."""
        if not np.array_equal(np.sort(self.hashes), np.sort(other.hashes)):
            return None
        if self.table.index.is_unique and other.table.index.is_unique:
            own, theirs = (pd.MultiIndex.from_arrays([each.table.index, each.hashes]) for each in (self, other))
            at = theirs.get_indexer(own)
            if (at >= 0).all():
                return np.asarray(at, dtype=np.int64)
        found = np.empty(len(self.hashes), dtype=np.int64)
        found[np.argsort(self.hashes, kind="stable")] = np.argsort(other.hashes, kind="stable")
        return found

    def _by_label(self, other: _Contents) -> NDArray[np.int64] | None:
        """Match rows by their labels if all rows with one label have one content, and chance would not make it so."""
        if not (self.table.index.is_unique and other.table.index.is_unique):
            return None
        at = other.table.index.get_indexer(self.table.index).astype(np.int64)
        common = at >= 0
        if not common.any() or not self._same_as(other, common, at[common]):
            return None
        share = np.unique(other.hashes, return_counts=True)[1] / len(other.hashes)
        return at if float(share @ share) ** int(common.sum()) < CHANCE else None

    def _same_as(self, other: _Contents, rows: NDArray[np.bool_], at: NDArray[np.int64]) -> bool:
        """Whether some rows hold what rows of the other do; in single precision numbers may differ by a rounding."""
        if np.array_equal(self.hashes[rows], other.hashes[at]):
            return True
        return self.single and all(
            _are_close(self.table.loc[rows, name], other.table[name].iloc[at]) for name in self.table.columns
        )

    def _by_content(self, other: _Contents) -> NDArray[np.int64] | None:
        """Match rows whose content occurs once in either table, if these are more than chance makes.

        Pooled and dealt out at random, a content that occurs twice falls on both tables with the probability
        2 n m / ((n + m) (n + m - 1)).
        """
        n, m = len(self.hashes), len(other.hashes)
        mine, theirs = (np.flatnonzero(~pd.Series(each.hashes).duplicated(keep=False)) for each in (self, other))
        both, at, their_at = np.intersect1d(self.hashes[mine], other.hashes[theirs], return_indices=True)
        within = sum(_twice(each.hashes, apart.hashes) for each, apart in ((self, other), (other, self)))
        split, pairs = len(both), len(both) + within
        p = 2.0 * n * m / ((n + m) * (n + m - 1.0))
        if not split or (within and split <= pairs * p + SIGMAS * np.sqrt(pairs * p * (1.0 - p))):
            return None
        found = np.full(n, -1)
        found[mine[at]] = theirs[their_at]
        return found


def _are_close(values: pd.Series[Any], others: pd.Series[Any]) -> bool:
    """Whether values are the same, numbers up to a rounding."""
    if is_numeric_dtype(values.dtype) and is_numeric_dtype(others.dtype):
        one, other = (each.to_numpy(dtype=np.float64, na_value=np.nan) for each in (values, others))
        near = TOLERANCE * float(np.abs(other[~np.isnan(other)]).sum()) / max(1, len(other))
        return bool(np.isclose(one, other, rtol=TOLERANCE, atol=near, equal_nan=True).all())
    return np.array_equal(_canonical(values, True), _canonical(others, True))


def _twice(hashes: NDArray[np.uint64], others: NDArray[np.uint64]) -> int:
    """Count contents that occur twice here and never in the others."""
    values, count = np.unique(hashes, return_counts=True)
    return int((~np.isin(values[count == 2], others)).sum())
