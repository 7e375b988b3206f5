"""Gradient-boosted trees with other weights: the same trees, the values of their leaves fitted again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.ensemble import HistGradientBoostingClassifier

from pyrofair.exceptions import DataError

__all__ = ["LeafValues", "Leaves", "is_grown"]

DIGITS = 11
"""Leaves of a tree whose values agree to so many digits are one leaf."""
SMALLEST = 1e-12
"""A leaf without more curvature than this keeps the value 0."""

Codes = Sequence[NDArray[np.uint16]]
"""For each tree the leaf of every row."""


@dataclass(frozen=True)
class LeafValues:
    """By how much other weights move the log-odds: at the start, and in each leaf of each tree."""

    start: float
    trees: tuple[NDArray[np.float64], ...]

    def at(self, codes: Codes) -> NDArray[np.float64]:
        """Return by how much the log-odds of rows move, given their leaves."""
        found = np.full(len(codes[0]) if codes else 1, self.start)
        for tree, code in zip(self.trees, codes, strict=True):
            found += tree[code]
        return found

    def less(self, other: LeafValues) -> LeafValues:
        """Return the differences from others."""
        trees = tuple(own - each for own, each in zip(self.trees, other.trees, strict=True))
        return LeafValues(self.start - other.start, trees)


@dataclass(frozen=True)
class Leaves:
    """The leaves of fitted trees in which n rows are, and what the values of these leaves are fitted to.

    ``codes`` are those of all rows, ``values`` what each tree adds to the log-odds in its leaves, ``raw`` (n,) the
    log-odds that the trees predict, and ``before`` the values that the rows ``train`` give the leaves with the weights
    of the fit. The trees may have stopped early or been fitted on fewer rows, so that a refit moves their values by
    the difference that other weights make, and equal weights change nothing.
    """

    model: HistGradientBoostingClassifier
    codes: Codes
    values: tuple[NDArray[np.float64], ...]
    raw: NDArray[np.float64]
    train: NDArray[np.int64]
    before: LeafValues | None = None

    @classmethod
    def of(
        cls,
        model: HistGradientBoostingClassifier,
        X: pd.DataFrame,
        a: NDArray[np.int8],
        weight: NDArray[np.float64],
        train: NDArray[np.int64],
    ) -> Leaves:
        """Return the leaves of a model in which the rows of a table are; it was fitted on the rows ``train``."""
        codes, values, raw = [], [], np.zeros(len(X))
        for stage in _stages(model, X):
            known, code = np.unique(np.round(stage - raw, DIGITS), return_inverse=True)
            codes.append(code.astype(np.uint16))
            values.append(known)
            raw = stage
        found = cls(model, codes, tuple(values), raw, train)
        return cls(model, codes, found.values, raw, train, found._fit(a, weight))

    def refit(self, a: NDArray[np.int8], weight: NDArray[np.float64]) -> LeafValues:
        """Return by how much other weights (n,) move the values of the leaves."""
        assert self.before is not None
        return self._fit(a, weight).less(self.before)

    def predict(self, X: pd.DataFrame, moved: LeafValues) -> NDArray[np.float64]:
        """Return P(A = 1) of other rows by moved leaves, shape (m,)."""
        codes, raw = [], np.zeros(len(X))
        for stage, known in zip(_stages(self.model, X), self.values, strict=True):
            middle = (known[1:] + known[:-1]) / 2.0
            codes.append(np.searchsorted(middle, stage - raw).astype(np.uint16))
            raw = stage
        return np.asarray(expit(raw + moved.at(codes)))

    def _fit(self, a: NDArray[np.int8], weight: NDArray[np.float64]) -> LeafValues:
        """Return the values that one Newton step for each tree gives its leaves, one tree after the other."""
        y, w = (a[self.train] == 1).astype(np.float64), weight[self.train]
        share = float(w @ y / w.sum()) if w.any() else 0.0
        if not 0.0 < share < 1.0:
            raise DataError(
                "With these weights a fold of boosted propensities has rows of one group only. Use fewer folds, "
                "propensity='logistic', or in an audit bootstrap='bayesian'."
            )
        rate, start = self.model.learning_rate, float(logit(share))
        odds = np.full(len(y), start)
        trees = []
        for code, known in zip(self.codes, self.values, strict=True):
            p, leaf = expit(odds), code[self.train]
            slope = np.bincount(leaf, w * (y - p), minlength=len(known))
            curvature = np.bincount(leaf, w * p * (1.0 - p), minlength=len(known))
            step = np.divide(slope, curvature, out=np.zeros(len(known)), where=curvature > SMALLEST)
            trees.append(rate * step)
            odds += trees[-1][leaf]
        return LeafValues(start, tuple(trees))


def is_grown(model: Any) -> bool:
    """Return whether a model is one of boosted trees for two classes."""
    return isinstance(model, HistGradientBoostingClassifier) and len(model.classes_) == 2


def _stages(model: HistGradientBoostingClassifier, X: pd.DataFrame) -> Any:
    """Yield the log-odds of rows after each tree, each (n,)."""
    return (np.asarray(stage, dtype=np.float64).reshape(len(X)) for stage in model.staged_decision_function(X))
