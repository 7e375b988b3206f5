"""Gradient-boosted trees with other weights or responses: the same trees, the values of their leaves fitted again."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.special import expit, logit
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

from pyrofair.exceptions import DataError

__all__ = ["RIDGE", "LeafMeans", "find_leaves", "move_leaves", "step_leaves", "value_leaves"]

Array = NDArray[np.float64]
SMALLEST = 1e-12
"""A leaf without more curvature than this keeps the value 0."""
RIDGE = 20.0
"""Other responses shrink the differences between leaves as if so many rows had none."""


def _with_values(tree: TreePredictor, values: Array) -> TreePredictor:
    nodes = tree.nodes.copy()
    nodes["value"] = values
    return TreePredictor(nodes, tree.binned_left_cat_bitsets, tree.raw_left_cat_bitsets)


def find_leaves(
    model: HistGradientBoostingClassifier | HistGradientBoostingRegressor, X: Array
) -> list[NDArray[np.uint8]]:
    """Return for each tree of a model for one response the node in which each row (m, p) ends, (m,)."""
    rows = model._preprocess_X(X, reset=False)
    known, columns = model._bin_mapper.make_known_categories_bitsets()
    numbered = (_with_values(tree, np.arange(len(tree.nodes), dtype=np.float64)) for (tree,) in model._predictors)
    return [tree.predict(rows, known, columns, 1).astype(np.uint8) for tree in numbered]


def value_leaves(
    model: HistGradientBoostingClassifier, leaves: Sequence[NDArray[np.uint8]], a: NDArray[np.int8], weight: Array
) -> list[Array]:
    """Return the log-odds that weights (m,) start from, and what one Newton step gives each tree's nodes in turn."""
    y = (a == 1).astype(np.float64)
    share = float(weight @ y / weight.sum()) if weight.any() else 0.0
    if not 0.0 < share < 1.0:
        raise DataError(
            "With these weights a fold of boosted propensities has rows of one group only. Use fewer folds, "
            "propensity='logistic', or in an audit bootstrap='bayesian'."
        )
    odds = np.full(len(y), logit(share))
    found = [np.array(logit(share))]
    for leaf, (tree,) in zip(leaves, model._predictors, strict=True):
        p, size = expit(odds), len(tree.nodes)
        slope = np.bincount(leaf, weight * (y - p), size)
        curvature = np.bincount(leaf, weight * p * (1.0 - p), size)
        step = np.divide(slope, curvature, out=np.zeros(size), where=curvature > SMALLEST)
        found.append(model.learning_rate * step)
        odds += found[-1][leaf]
    return found


def move_leaves(
    model: HistGradientBoostingClassifier, was: Sequence[Array], now: Sequence[Array]
) -> HistGradientBoostingClassifier:
    """Return the model whose values are moved by the difference that other weights make.

    The trees may have stopped early or been fitted on fewer rows; equal weights change nothing.
    """
    other = copy.copy(model)
    other._baseline_prediction = model._baseline_prediction + (now[0] - was[0])
    moves = zip(model._predictors, was[1:], now[1:], strict=True)
    other._predictors = [[_with_values(tree, tree.nodes["value"] + (new - old))] for (tree,), old, new in moves]
    return other


def step_leaves(
    known: Sequence[NDArray[Any]], asked: Sequence[Sequence[NDArray[Any]]], weight: Array, y: Array, rate: float
) -> list[Array]:
    """Return the means of a response (m,) of rows in ``known`` leaves by tree, for each set of rows in ``asked`` ones.

    Each tree in turn adds a share, the ``rate``, of the mean residual of each leaf, as when the trees were grown.
    """
    mean, total = weight @ y / weight.sum(), 0.0 * y
    found = [np.zeros(len(leaves[0])) for leaves in asked]
    for i, leaf in enumerate(known):
        sums, held = np.bincount(leaf, weight * (y - mean - total), 256), np.bincount(leaf, weight, 256)
        step = rate * np.divide(sums, held, out=np.zeros(256), where=held > 0.0)
        total += step[leaf]
        for own, leaves in zip(found, asked, strict=True):
            own += step[leaves[i]]
    return [(mean + own).clip(y.min(), y.max()) for own in found]


class LeafMeans:
    """The means of any responses given the leaves of trees that were grown for another one: ridge regression on them.

    ``leaves`` are those of all n rows, by tree, and ``rows`` (m,) with ``weight`` (m,) are those to learn from.
    """

    def __init__(self, leaves: Sequence[NDArray[Any]], rows: NDArray[np.int64], weight: Array) -> None:
        codes = [np.unique(leaf, return_inverse=True)[1] for leaf in leaves]
        starts = np.cumsum([0, *(code.max() + 1 for code in codes)])
        at = np.column_stack([code + start for code, start in zip(codes, starts[:-1], strict=True)])
        n, trees = at.shape
        ends = np.arange(0, at.size + 1, trees)
        self._held = sparse.csr_matrix((np.ones(at.size), at.ravel(), ends), shape=(n, int(starts[-1])))
        self._learned = self._held[rows]
        self._weight, self._mean = weight, self._learned.T @ weight / weight.sum()
        held: Any = self._learned.T @ self._learned.multiply(weight[:, None])
        cross = held.toarray() - weight.sum() * np.outer(self._mean, self._mean)
        cross[np.diag_indices_from(cross)] += RIDGE
        self._root = linalg.cho_factor(cross)

    def __call__(self, y: Array) -> Array:
        """Return the means of all rows (n,) from the responses of those to learn from (m,), in their range."""
        mean = self._weight @ y / self._weight.sum()
        slopes = linalg.cho_solve(self._root, self._learned.T @ (self._weight * (y - mean)))
        return np.asarray((mean + self._held @ slopes - self._mean @ slopes).clip(y.min(), y.max()))
