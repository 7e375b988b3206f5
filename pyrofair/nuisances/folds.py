"""The folds of cross-fitting: of rows, or of whole groups of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from pyrofair.exceptions import DataError

__all__ = ["FOLDS", "Folds", "fold_of", "split_folds"]

FOLDS = 5
"""The folds of cross-fitting, by default."""
Folds = list[tuple[NDArray[np.int64], NDArray[np.int64]]]
"""For each fold the rows that it is fitted on, and those that it judges."""


def split_folds(
    a: NDArray[np.int8], weight: NDArray[np.float64], folds: int, seed: int, groups: NDArray[Any] | None = None
) -> Folds:
    """Split the rows of positive weight (n,) into folds with rows of both values of a (n,); one fold is all of them.

    Rows of one of the ``groups`` (n,), such as a household, are judged by fits that saw none of them.
    """
    kept = np.flatnonzero(weight > 0.0)
    smallest = int(np.bincount(a[kept], minlength=2).min())
    if smallest < folds:
        raise DataError(
            f"A group has {smallest} rows with a weight, too few for {folds}-fold cross-fitting; use "
            "propensity='logistic', or fewer folds (folds=1 fits on all rows)."
        )
    if folds == 1:
        return [(kept, kept)]
    make: Any = StratifiedKFold if groups is None else StratifiedGroupKFold
    split = make(folds, shuffle=True, random_state=seed)
    parts = split.split(kept, a[kept], None if groups is None else groups[kept])
    return [(kept[train], kept[test]) for train, test in parts]


def fold_of(folds: Folds, n: int, position: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Return the fold that judges each row, given its position among n fitted rows (None: it is one); -1 if none."""
    found = np.full(n, -1)
    for i, (_, test) in enumerate(folds):
        found[test] = i
    return found if position is None else np.where(position >= 0, found[position], -1)
