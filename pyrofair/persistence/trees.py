"""Boosted trees of scikit-learn as arrays, which are checked before compiled code walks down them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import sklearn
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

from pyrofair.exceptions import DataError

__all__ = ["make_boosted", "take_boosted"]

FIELDS = PREDICTOR_RECORD_DTYPE.names
SETS = ("binned_left_cat_bitsets", "raw_left_cat_bitsets")
"""The sets of categories that go to the left, 256 bits each."""
SHORT = {"max_iter": 1, "early_stopping": False, "warm_start": False, "verbose": 0, "random_state": 0,
         "min_samples_leaf": 1_000_000}  # fmt: skip
"""The settings of a fit that is there for its frame alone: a root, for which no histogram takes memory."""
LARGEST = 2_000_000
"""The most numbers of the table that the frame is fitted to."""


def take_boosted(model: HistGradientBoostingClassifier) -> dict[str, Any]:
    """Return boosted trees for two classes as arrays: the nodes of all trees one after the other, field by field."""
    state: dict[str, Any] = {"settings": model.get_params(deep=False)}
    if not hasattr(model, "_predictors"):
        return state
    if model.n_trees_per_iteration_ != 1:
        raise DataError("Boosted trees for more than two classes cannot be saved.")
    trees = [tree for (tree,) in model._predictors]
    nodes = np.concatenate([tree.nodes for tree in trees])
    known = () if model._preprocessor is None else model._preprocessor.named_transformers_["encoder"].categories_
    return state | {
        "version": sklearn.__version__,
        "classes": model.classes_,
        "columns": [str(name) for name in getattr(model, "feature_names_in_", ())] or int(model.n_features_in_),
        "categories": dict(zip(np.flatnonzero(known and model.is_categorical_).tolist(), known, strict=True)),
        "baseline": float(model._baseline_prediction.item()),
        "sizes": np.array([len(tree.nodes) for tree in trees], dtype=np.int64),
        "nodes": {name: np.ascontiguousarray(nodes[name]) for name in FIELDS},
        "bits": np.array([len(tree.raw_left_cat_bitsets) for tree in trees], dtype=np.int64),
        **{name: np.concatenate([getattr(tree, name) for tree in trees]) for name in SETS},
        "scores": [np.asarray(getattr(model, name)) for name in ("train_score_", "validation_score_")],
    }


def make_boosted(settings: Mapping[str, Any], **state: Any) -> HistGradientBoostingClassifier:
    """Return boosted trees made of arrays.

    A model of one tree, fitted to a table of such columns that holds each category, has everything besides the trees.
    Trees go down from their root only, each node once, and name no column, set or node that is not there; a set of
    categories is asked of columns of categories alone: a walk down them ends, stays inside their memory, and adds up to
    a number.
    """
    model = HistGradientBoostingClassifier()
    if "nodes" not in state:
        return model.set_params(**settings)
    if (version := state["version"]) != sklearn.__version__:
        raise DataError(
            f"The file holds trees that scikit-learn {version} fitted, and {sklearn.__version__} is installed. Install "
            "that version, or fit again."
        )
    classes = np.asarray(state["classes"])
    table, n = _table(state["columns"], state["categories"])
    model.set_params(**{**settings, **SHORT}).fit(table, classes[np.arange(n) % 2])
    if len(classes) != 2 or not np.array_equal(model.classes_, classes):
        raise ValueError("its classes are not two in order")
    known, columns = model._bin_mapper.is_categorical_, int(model.n_features_in_)
    categorical = np.zeros(columns, dtype=bool) if known is None else np.asarray(known, dtype=bool)
    if categorical.shape != (columns,):
        raise ValueError("its columns are not those of its trees")
    baseline, trees = float(state["baseline"]), _trees(state, categorical)
    if not np.isfinite(abs(baseline) + sum(float(np.abs(tree.nodes["value"]).max()) for tree in trees)):
        raise ValueError("its trees add up to no number")
    model.set_params(**settings)
    model._predictors, model._baseline_prediction = [[tree] for tree in trees], np.array([[baseline]])
    model.train_score_, model.validation_score_ = (np.asarray(each) for each in state["scores"])
    return model


def _table(columns: Any, categories: Mapping[int, NDArray[Any]]) -> tuple[Any, int]:
    """Return a table of such columns that holds each category, and its number of rows."""
    width = len(columns) if isinstance(columns, list) else int(columns)
    n = max([2, *(len(known) for known in categories.values())])
    if not 0 < width * n <= LARGEST or any(not 0 <= at < width for at in categories):
        raise ValueError(f"it has trees of {width} columns and {n} categories")
    codes = {at: np.arange(n) % max(len(known), 1) for at, known in categories.items()}
    if isinstance(columns, list):
        held: dict[str, Any] = {name: np.zeros(n) for name in columns}
        for at, known in categories.items():
            held[columns[at]] = pd.Categorical.from_codes(codes[at], categories=pd.Index(known))
        return pd.DataFrame(held), n
    numbers = np.zeros((n, width))
    for at, known in categories.items():
        numbers[:, at] = np.asarray(known, dtype=np.float64)[codes[at]]
    return numbers, n


def _trees(state: Mapping[str, Any], categorical: NDArray[np.bool_]) -> list[TreePredictor]:
    """Return the trees, after their nodes were checked: compiled code follows each number in them without a check."""
    n = len(state["nodes"]["left"])
    sizes, bits = (_typed(state[name], np.int64, (len(state[name]),)) for name in ("sizes", "bits"))
    if (sizes <= 0).any() or (sizes > n).any() or len(sizes) != len(bits) or sizes.sum() != n:
        raise ValueError("its trees differ in size from what they declare")
    nodes = np.zeros(n, dtype=PREDICTOR_RECORD_DTYPE)
    for name in FIELDS:
        nodes[name] = _typed(state["nodes"][name], PREDICTOR_RECORD_DTYPE[name], (n,))
    sets = [_typed(state[name], np.uint32, (len(state[name]), 8)) for name in SETS]
    if (bits < 0).any() or any((bits > len(each)).any() or len(each) != bits.sum() for each in sets):
        raise ValueError("its trees differ in sets from what they declare")
    found = []
    for end, size, last, count in zip(np.cumsum(sizes), sizes, np.cumsum(bits), bits, strict=True):
        own = nodes[end - size : end].copy()
        _require_inside(own, int(count), categorical)
        found.append(TreePredictor(own, *(each[last - count : last].copy() for each in sets)))
    return found


def _require_inside(nodes: NDArray[Any], sets: int, categorical: NDArray[np.bool_]) -> None:
    """Refuse nodes of one tree that lead out of it, or to a column or set that is not there."""
    inner, at = nodes["is_leaf"] == 0, np.arange(len(nodes))
    below = np.stack([nodes["left"], nodes["right"]]).astype(np.int64)[:, inner]
    column, by_set = nodes["feature_idx"][inner], inner & (nodes["is_categorical"] != 0)
    if (
        (below <= at[inner]).any()
        or not np.array_equal(np.sort(below.ravel()), at[1:])  # each node but the root is below one other
        or ((column < 0) | (column >= len(categorical))).any()
        or (nodes["bitset_idx"][by_set] >= sets).any()
        or not all(np.isin(nodes[name], (0, 1)).all() for name in ("is_leaf", "is_categorical", "missing_go_to_left"))
    ):
        raise ValueError("a tree of it leads out of its nodes, columns or sets")
    if (by_set[inner] != categorical[column]).any():
        raise ValueError("a tree of it splits numbers by a set of categories, or categories as numbers")
    if np.isnan(nodes["num_threshold"]).any():
        raise ValueError("a tree of it splits at no number")


def _typed(values: Any, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an array of a type and a shape, which is refused if it has others: nothing is converted."""
    if not isinstance(values, np.ndarray) or values.dtype != dtype or values.shape != shape:
        raise ValueError("its trees are held in arrays of another type or shape")
    return np.ascontiguousarray(values)
