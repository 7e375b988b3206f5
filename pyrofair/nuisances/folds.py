"""The folds of cross-fitting: of rows, or of whole groups of rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from pyrofair.exceptions import DataError, PyrofairWarning

__all__ = ["FOLDS", "Folds", "fold_of", "hold_out", "split_folds", "warn_of_one_fold"]

FOLDS = 5
"""The folds of cross-fitting, by default."""
HELD_OUT = 10
"""One part of so many is held out for early stopping."""
Folds = list[tuple[NDArray[np.int64], NDArray[np.int64]]]
"""For each fold the rows that it is fitted on, and those that it judges."""


def split_folds(
    a: NDArray[Any] | None, weight: NDArray[np.float64], folds: int, seed: int, groups: NDArray[Any] | None = None
) -> Folds:
    """Split the rows of positive weight (n,) into folds; one fold is all of them.

    Every fold is fitted on rows of both values of ``a`` (n,) in 0 and 1; without it (None) all rows are alike. Rows of
    one of the ``groups`` (n,), such as a household or the copies of a row, are judged by fits that saw none of them.
    """
    kept = np.flatnonzero(weight > 0.0)
    label = np.zeros(len(kept), dtype=np.int8) if a is None else a[kept]
    own = None if groups is None else groups[kept]
    values = (0,) if a is None else (0, 1)
    smallest = min(_units(label == value, own) for value in values)
    if smallest < folds:
        raise _too_few(smallest, folds, grouped=own is not None)
    if folds == 1:
        return [(kept, kept)]
    if own is None:
        split = StratifiedKFold(folds, shuffle=True, random_state=seed).split(kept, label)
        return [(kept[train], kept[test]) for train, test in split]
    fold = _deal(label, own, folds, seed)
    if any(not (fold[label == value] != i).any() for value in values for i in range(folds)):
        raise _too_few(smallest, folds, grouped=True)
    return [(kept[fold != i], kept[fold == i]) for i in range(folds)]


def _units(member: NDArray[np.bool_], groups: NDArray[Any] | None) -> int:
    """Return how many rows, or different groups of rows, are among some."""
    return int(member.sum()) if groups is None else len(np.unique(groups[member]))


def _deal(label: NDArray[Any], groups: NDArray[Any], folds: int, seed: int) -> NDArray[np.int64]:
    """Return the fold of each row (m,), whole groups in one, the largest first: each to where its rows are fewest.

    So the squared shares that folds have of either label stay small, as in scikit-learn's StratifiedGroupKFold, which
    takes a second for every ten thousand groups.
    """
    code = np.unique(groups, return_inverse=True)[1]
    counts = np.column_stack([np.bincount(code, label == value) for value in (0, 1)])
    shares = counts / np.maximum(counts.sum(axis=0), 1.0)
    order = np.random.default_rng(seed).permutation(len(counts))
    order = order[np.argsort(-counts.sum(axis=1)[order], kind="stable")]
    held, fold = np.zeros((folds, 2)), np.empty(len(counts), dtype=np.int64)
    for group in order:
        fold[group] = i = (held @ shares[group]).argmin()
        held[i] += shares[group]
    return fold[code]


def _too_few(smallest: int, folds: int, *, grouped: bool) -> DataError:
    return DataError(
        f"A group has {smallest} {'clusters' if grouped else 'rows'} with a weight, too few for {folds}-fold "
        "cross-fitting; use 'logistic' models, or fewer folds (folds=1 fits on all rows)."
    )


def warn_of_one_fold() -> None:
    """Warn that flexible models judge the rows that they were fitted on."""
    warnings.warn(
        "folds=1: these rows are judged by models that saw them, so that the intervals are too short. Use "
        f"folds={FOLDS}, or 'logistic' models.",
        PyrofairWarning,
        stacklevel=3,
    )


def hold_out(
    a: NDArray[Any], weight: NDArray[np.float64], seed: int, groups: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows to learn from and a tenth, or what whole groups allow, to stop early by."""
    kept = weight > 0.0
    fewest = min(_units(kept & (a == value), groups) for value in (0, 1))
    return split_folds(a, weight, int(np.clip(fewest, 2, HELD_OUT)), seed, groups)[0]


def fold_of(folds: Folds, n: int, position: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return the fold that judges each row, given its position among n fitted rows (None: it is one); -1 if none."""
    found = np.full(n, -1)
    for i, (_, test) in enumerate(folds):
        found[test] = i
    return found if position is None else np.where(position >= 0, found[position], -1)
