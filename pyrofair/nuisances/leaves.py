"""Gradient-boosted trees with other weights or responses: the same trees, the values of their leaves fitted again.

Responses of an estimate have ridge regressions on the leaves: steps leave what does not follow the trees to weights,
and intervals do not count how these err. Tails of a response, many and each of few rows, have steps: a ridge on so many
leaves follows chance, and widened the bounds of sensitivity analyses by a twentieth.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.special import expit, logit
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

from pyrofair.exceptions import DataError
from pyrofair.nuisances.newton import information

__all__ = ["RIDGE", "LeafMeans", "find_leaves", "move_leaves", "step_leaves", "sum_leaves", "value_leaves"]

Array = NDArray[np.float64]
Trees: TypeAlias = HistGradientBoostingClassifier | HistGradientBoostingRegressor
SMALLEST = 1e-12
"""A leaf without more curvature than this keeps the value 0."""
RIDGE = 20.0
"""Other responses shrink the differences between leaves as if so many rows had none."""


def _with_values(tree: TreePredictor, values: Array) -> TreePredictor:
    nodes = tree.nodes.copy()
    nodes["value"] = values
    return TreePredictor(nodes, tree.binned_left_cat_bitsets, tree.raw_left_cat_bitsets)


def _with_trees(model: Trees, start: Any, values: Sequence[Array]) -> Any:
    """Return a model of the same trees with another start and other values of their nodes."""
    other = copy.copy(model)
    other._baseline_prediction = start
    other._predictors = [[_with_values(tree, own)] for (tree,), own in zip(model._predictors, values, strict=True)]
    return other


def find_leaves(model: Trees, X: Array) -> list[NDArray[np.uint8]]:
    """Return for each tree of a model for one response the node in which each row (m, p) ends, (m,)."""
    rows = model._preprocess_X(X, reset=False)
    known, columns = model._bin_mapper.make_known_categories_bitsets()
    numbered = (_with_values(tree, np.arange(len(tree.nodes), dtype=np.float64)) for (tree,) in model._predictors)
    return [tree.predict(rows, known, columns, 1).astype(np.uint8) for tree in numbered]


def sum_leaves(model: Trees, leaves: Sequence[NDArray[np.uint8]]) -> Array:
    """Return the mean or log-odds (m,) that a model gives to rows which end in these nodes of its trees."""
    found = np.full(len(leaves[0]), float(model._baseline_prediction.item()))
    for leaf, (tree,) in zip(leaves, model._predictors, strict=True):
        found += tree.nodes["value"][leaf]
    return found


def value_leaves(
    model: HistGradientBoostingClassifier, leaves: Sequence[NDArray[np.uint8]], ones: Array, weight: Array
) -> list[Array]:
    """Return the starting log-odds, and each tree's values by a Newton step, of different rows by weight and ones."""
    share = float(ones.sum() / weight.sum()) if weight.any() else 0.0
    if not 0.0 < share < 1.0:
        raise DataError(
            "With these weights a fold of boosted propensities has rows of one group only. Use fewer folds, "
            "propensity='logistic', or in an audit bootstrap='bayesian'."
        )
    odds = np.full(len(ones), logit(share))
    found = [np.array(logit(share))]
    for leaf, (tree,) in zip(leaves, model._predictors, strict=True):
        p, size = expit(odds), len(tree.nodes)
        slope = np.bincount(leaf, ones - weight * p, size)
        curvature = np.bincount(leaf, weight * p * (1.0 - p), size)
        step = np.divide(slope, curvature, out=np.zeros(size), where=curvature > SMALLEST)
        found.append(model.learning_rate * step)
        odds += found[-1][leaf]
    return found


def move_leaves(
    model: HistGradientBoostingClassifier, was: Sequence[Array], now: Sequence[Array]
) -> HistGradientBoostingClassifier:
    """Return the model whose values are moved by the difference that other weights make; equal ones change nothing."""
    moves = zip(model._predictors, was[1:], now[1:], strict=True)
    values = [tree.nodes["value"] + (new - old) for (tree,), old, new in moves]
    return _with_trees(model, model._baseline_prediction + (now[0] - was[0]), values)


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
    """The means of any response given the leaves of trees that were grown for another one: ridge regression on them.

    ``leaves`` are the nodes in which k different rows end, by tree, ``index`` (m,) which of these each row to learn
    from is, and ``weight`` (m,) its weight.
    """

    def __init__(
        self, model: Trees, leaves: Sequence[NDArray[np.uint8]], index: NDArray[np.int64], weight: Array
    ) -> None:
        trees = [tree.nodes["is_leaf"] for (tree,) in model._predictors]
        self._model, self._index, self._weight = model, index, weight
        self._ends, self._starts = np.concatenate(trees).astype(bool), np.cumsum([0, *map(len, trees)])
        number = np.cumsum(self._ends) - 1
        at = np.column_stack([number[leaf.astype(np.int64) + i] for leaf, i in zip(leaves, self._starts, strict=False)])
        rows, shape = np.arange(0, at.size + 1, at.shape[1]), (len(at), number[-1] + 1)
        self._held = sparse.csr_array((np.ones(at.size), at.ravel(), rows), shape)
        total = np.bincount(index, weight, len(at)).astype(np.float64)
        self._mean = self._held.T @ total / total.sum()
        cross = information(self._held, total) - total.sum() * np.outer(self._mean, self._mean)
        cross[np.diag_indices_from(cross)] += RIDGE
        self._root = linalg.cho_factor(cross)

    def __call__(self, y: Array) -> Any:
        """Return the model of the same trees for the responses of the rows to learn from (m,)."""
        mean = self._weight @ y / self._weight.sum()
        off = np.bincount(self._index, self._weight * (y - mean), self._held.shape[0])
        values = np.zeros(len(self._ends))
        values[self._ends] = slopes = linalg.cho_solve(self._root, self._held.T @ off)
        start = np.array(mean - self._mean @ slopes)
        return _with_trees(self._model, start, np.split(values, self._starts[1:-1]))
