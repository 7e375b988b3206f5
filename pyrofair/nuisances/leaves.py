"""Gradient-boosted trees with other weights: the same trees, the values of their leaves fitted again."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

from pyrofair.exceptions import DataError

__all__ = ["find_leaves", "move_leaves", "value_leaves"]

Array = NDArray[np.float64]
SMALLEST = 1e-12
"""A leaf without more curvature than this keeps the value 0."""


def _with_values(tree: TreePredictor, values: Array) -> TreePredictor:
    nodes = tree.nodes.copy()
    nodes["value"] = values
    return TreePredictor(nodes, tree.binned_left_cat_bitsets, tree.raw_left_cat_bitsets)


def find_leaves(model: HistGradientBoostingClassifier, X: Array) -> list[NDArray[np.uint8]]:
    """Return for each tree of a model for two classes the node in which each row (m, p) ends, (m,)."""
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
