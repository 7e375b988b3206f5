"""A learner fitted in folds: each row judged by the fit that did not see it, and all refitted for a replicate."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.nuisances.columns import Design, take
from pyrofair.nuisances.folds import FOLDS, fold_of, split_folds
from pyrofair.nuisances.learners import Learner, LearnerName, Saturated, make_learner, smaller_group

__all__ = ["CrossFit"]

Array = NDArray[np.float64]
Groups = NDArray[Any] | None
Parts = list[tuple[NDArray[np.int64], NDArray[np.int64], Design, Design]]
"""Of each fold the rows that it is fitted on and those that it judges, and both as the learner reads them."""


class CrossFit:
    """An estimate of P(A = 1 | some columns) by a learner, cross-fitted if it must be, in folds with both groups.

    ``fitted`` is that of the fitted rows, out of fold; ``fits`` are those of the folds, made with ``weight``; ``fold``
    is the one that judges each row, -1 if it had no weight. A new row is judged by the average of all fits. A learner
    that sees the row it judges takes chance for overlap, the more so the more flexible it is. ``folds=1`` fits all
    rows, which serves learners of few parameters, unless all but cells are ``always`` to be cross-fitted.
    """

    learner: Learner
    fits: list[Learner]
    fitted: Array
    weight: Array
    fold: NDArray[np.int64]

    def __init__(self, spec: LearnerName | Any, seed: int = 0, folds: int = FOLDS, *, always: bool = False):
        self.spec, self.seed, self.folds, self.always = spec, seed, folds, always

    def fit(self, X: pd.DataFrame, a: NDArray[np.int8], weight: Array, groups: Groups = None) -> Self:
        """Fit on n rows, the values ``a`` in 0 and 1, and weights; rows of a group are judged by fits without it."""
        self.learner = make_learner(self.spec, X, self.seed, "propensity", smaller_group(a, weight))
        folds = [(np.arange(len(a)),) * 2]
        if self.learner.crossed or (self.always and not isinstance(self.learner, Saturated)):
            folds = split_folds(a, weight, self.folds, self.seed, groups)
        self.weight, self.fold = weight, fold_of(folds, len(a))
        self._design, self._parts = self._read(X)
        self.fits = [
            self.learner.fit(own, a[train, None], weight[train], None if groups is None else groups[train])
            for train, _, own, _ in self._parts
        ]
        self.fitted = self._judge()
        return self

    def predict(self, X: pd.DataFrame) -> Array:
        """Return P(A = 1) of the rows of a table with the same columns, shape (m,), the average of all fits."""
        design = self.learner.design(X)
        return np.asarray(np.mean([fit(design)[:, 0] for fit in self.fits], axis=0))

    def refit(self, X: pd.DataFrame, a: NDArray[np.int8], weight: Array, groups: Groups = None) -> CrossFit:
        """Return the estimate on the same rows with other weights; a fold that has lost a group is a DataError."""
        if not self.learner.warm:
            return copy.copy(self).fit(X, a, weight, groups)
        if "_design" not in self.__dict__:
            self._design, self._parts = self._read(X)
        other = copy.copy(self)
        other._design, other._parts, other.weight = self._design, self._parts, weight
        other.fits = [
            fit.refit(own, a[train, None], weight[train], self.weight[train])
            for fit, (train, _, own, _) in zip(self.fits, self._parts, strict=True)
        ]
        other.fitted = other._judge()
        return other

    def _read(self, X: pd.DataFrame) -> tuple[Design, Parts]:
        """Return the rows as the learner reads them, and those that each fold is fitted on and judges."""
        design, known = self.learner.design(X), self.fold >= 0
        if not self.fold.any():  # one fold of all rows
            return design, [(np.arange(len(X)), np.arange(len(X)), design, design)]
        count = int(self.fold.max()) + 1
        parts = []
        for i in range(count):
            train = np.flatnonzero(known & ((self.fold != i) | (count == 1)))
            test = np.flatnonzero(self.fold == i)
            parts.append((train, test, take(design, train), take(design, test)))
        return design, parts

    def _judge(self) -> Array:
        """Return the probabilities of the fitted rows, of those in no fold by the average of all fits."""
        found, absent = np.full(len(self.fold), np.nan), np.flatnonzero(self.fold < 0)
        for fit, (_, test, _, asked) in zip(self.fits, self._parts, strict=True):
            found[test] = fit.own(asked)[:, 0]
        if len(absent):
            rows = take(self._design, absent)
            found[absent] = np.mean([fit(rows)[:, 0] for fit in self.fits], axis=0)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_design", "_parts")}
