"""Parts of scikit-learn that the package fits itself, as arrays that are checked: boosted trees, linear models."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import sklearn
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

from pyrofair.exceptions import DataError

__all__ = ["make_boosted", "require_same_sklearn", "take_boosted"]

SETS = ("binned_left_cat_bitsets", "raw_left_cat_bitsets")
"""The sets of categories that go to the left, 256 bits each."""

SHORT = {"max_iter": 1, "early_stopping": False, "warm_start": False, "verbose": 0, "random_state": 0,
         "min_samples_leaf": 1_000_000}  # fmt: skip
"""The settings of a fit that is there for its frame alone: a root, for which no histogram takes memory."""


def require_same_sklearn(version: str) -> None:
    """Refuse trees of another scikit-learn, whose memory they need not fit."""
    if version != sklearn.__version__:
        raise DataError(
            f"The file holds trees that scikit-learn {version} fitted, and {sklearn.__version__} is installed. Install "
            f"that version, or fit again."
        )


def take_boosted(model: HistGradientBoostingClassifier) -> dict[str, Any]:
    """Return boosted trees for two classes as arrays: the nodes of all trees one after the other, field by field."""
    state: dict[str, Any] = {"settings": model.get_params(deep=False)}
    if not hasattr(model, "_predictors"):
        return state
    trees = [tree for (tree,) in model._predictors] if model.n_trees_per_iteration_ == 1 else None
    if trees is None:
        raise DataError("Boosted trees for more than two classes cannot be saved.")
    nodes = np.concatenate([tree.nodes for tree in trees])
    columns = [str(name) for name in getattr(model, "feature_names_in_", ())]
    state |= {
        "version": sklearn.__version__,
        "classes": model.classes_,
        "columns": columns or int(model.n_features_in_),
        "categories": _categories(model, columns),
        "baseline": float(model._baseline_prediction.item()),
        "sizes": np.array([len(tree.nodes) for tree in trees], dtype=np.int64),
        "nodes": {name: np.ascontiguousarray(nodes[name]) for name in PREDICTOR_RECORD_DTYPE.names},
        "bits": np.array([len(tree.raw_left_cat_bitsets) for tree in trees], dtype=np.int64),
        **{name: np.concatenate([getattr(tree, name) for tree in trees]) for name in SETS},
        "scores": [np.asarray(getattr(model, name)) for name in ("train_score_", "validation_score_")],
    }
    return state


def _categories(model: HistGradientBoostingClassifier, columns: list[str]) -> dict[Any, NDArray[Any]]:
    """Return for each column of categories, by its position, those that its encoder knows, in order."""
    if model._preprocessor is None:
        return {}
    encoder = model._preprocessor.named_transformers_["encoder"]
    positions = np.flatnonzero(model.is_categorical_)
    return {int(at): known for at, known in zip(positions, encoder.categories_, strict=True)}


def make_boosted(state: Mapping[str, Any]) -> HistGradientBoostingClassifier:
    """Return boosted trees made of arrays.

    A model of one tree, fitted to a table of such columns that holds each category, has everything besides the trees.
    Trees go down from their root only, each node once, and name no column, set or node that is not there; a set of
    categories is asked of columns of categories alone: a walk down them ends, stays inside their memory, and adds up to
    a number.
    """
    settings = dict(state["settings"])
    if "nodes" not in state:
        return HistGradientBoostingClassifier(**settings)
    require_same_sklearn(state["version"])
    classes = np.asarray(state["classes"])
    if len(classes) != 2:
        raise ValueError("it has trees for other than two classes")
    made = _frame({**settings, **SHORT}, state["columns"], state["categories"], classes)
    if not np.array_equal(made.classes_, classes):
        raise ValueError("its classes are not in order")
    made.set_params(**settings)
    baseline, trees = float(state["baseline"]), _trees(state, _categorical(made))
    if not np.isfinite(abs(baseline) + sum(float(np.abs(tree.nodes["value"]).max()) for tree in trees)):
        raise ValueError("its trees add up to no number")
    made._predictors = [[tree] for tree in trees]
    made._baseline_prediction = np.array([[baseline]])
    made.train_score_, made.validation_score_ = (np.asarray(each) for each in state["scores"])
    return made


def _frame(
    settings: dict[str, Any], columns: Any, categories: Mapping[int, NDArray[Any]], classes: NDArray[Any]
) -> HistGradientBoostingClassifier:
    """Return a model of one tree with some settings, columns, categories and classes; folds mostly share one."""
    held = tuple((at, *zip(map(type, known.tolist()), known.tolist(), strict=True)) for at, known in categories.items())
    named = tuple(columns) if isinstance(columns, list) else int(columns)
    try:
        return copy.deepcopy(
            _cached_frame(tuple(settings.items()), named, held, tuple(classes.tolist()), classes.dtype)
        )
    except TypeError:  # a setting that is a list or an array
        return _fit_frame(settings, columns, categories, classes)


@lru_cache(maxsize=32)
def _cached_frame(settings: Any, columns: Any, held: Any, classes: Any, dtype: Any) -> HistGradientBoostingClassifier:
    categories = {at: np.array([value for _, value in known], dtype=object) for at, *known in held}
    return _fit_frame(
        dict(settings),
        list(columns) if isinstance(columns, tuple) else columns,
        categories,
        np.array(classes, dtype=dtype),
    )


def _fit_frame(
    settings: dict[str, Any], columns: Any, categories: Mapping[int, NDArray[Any]], classes: NDArray[Any]
) -> HistGradientBoostingClassifier:
    table, n = _table(columns, categories)
    return HistGradientBoostingClassifier(**settings).fit(table, classes[np.arange(n) % 2])


def _table(columns: Any, categories: Mapping[int, NDArray[Any]]) -> tuple[Any, int]:
    """Return a table of such columns that holds each category, and its number of rows."""
    n = max([2, *(len(known) for known in categories.values())])
    if not isinstance(columns, list):
        size = int(columns)
        if not 0 < size <= 100_000 or any(not 0 <= at < size for at in categories):
            raise ValueError(f"it has trees of {size} columns")
        coded = np.zeros((n, size))
        for at, known in categories.items():
            coded[:, at] = np.asarray(known, dtype=np.float64)[np.arange(n) % max(len(known), 1)]
        return coded, n
    held: dict[str, Any] = {name: np.zeros(n) for name in columns}
    for at, known in categories.items():
        codes = np.arange(n) % max(len(known), 1)
        held[columns[at]] = pd.Categorical.from_codes(codes, categories=pd.Index(known))
    return pd.DataFrame(held), n


def _categorical(made: HistGradientBoostingClassifier) -> NDArray[np.bool_]:
    """Return for each column, in the order in which trees read them, whether it has categories that a set can hold."""
    known, n = made._bin_mapper.is_categorical_, int(made.n_features_in_)
    found = np.zeros(n, dtype=bool) if known is None else np.asarray(known, dtype=bool)
    if found.shape != (n,):
        raise ValueError("its columns are not those of its trees")
    return found


def _trees(state: Mapping[str, Any], categorical: NDArray[np.bool_]) -> list[TreePredictor]:
    """Return the trees, after their nodes were checked: compiled code follows each number in them without a check."""
    fields, features = state["nodes"], len(categorical)
    n = len(fields["left"])
    sizes, bits = (_counts(state[name]) for name in ("sizes", "bits"))
    if (sizes <= 0).any() or (sizes > n).any() or len(sizes) != len(bits) or sizes.sum() != n:
        raise ValueError("its trees differ in size from what they declare")
    nodes = np.zeros(n, dtype=PREDICTOR_RECORD_DTYPE)
    for name in PREDICTOR_RECORD_DTYPE.names:
        nodes[name] = _typed(fields[name], PREDICTOR_RECORD_DTYPE[name], (n,))
    sets = [_typed(state[name], np.dtype(np.uint32), (len(state[name]), 8)) for name in SETS]
    if (bits < 0).any() or any((bits > len(each)).any() or len(each) != bits.sum() for each in sets):
        raise ValueError("its trees differ in sets from what they declare")
    found = []
    for end, size, last, count in zip(np.cumsum(sizes), sizes, np.cumsum(bits), bits, strict=True):
        own = nodes[end - size : end].copy()
        inner, at = own["is_leaf"] == 0, np.arange(size)
        below = np.stack([own["left"], own["right"]]).astype(np.int64)[:, inner]
        column, by_set = own["feature_idx"][inner], inner & (own["is_categorical"] != 0)
        wrong = (
            (below <= at[inner]).any()
            or not np.array_equal(np.sort(below.ravel()), at[1:])  # each node but the root is below one other
            or ((column < 0) | (column >= features)).any()
            or (own["bitset_idx"][by_set] >= count).any()
            or not all(np.isin(own[name], (0, 1)).all() for name in ("is_leaf", "is_categorical", "missing_go_to_left"))
        )
        if wrong:
            raise ValueError("a tree of it leads out of its nodes, columns or sets")
        if (by_set[inner] != categorical[column]).any():
            raise ValueError("a tree of it splits numbers by a set of categories, or categories as numbers")
        if np.isnan(own["num_threshold"]).any():
            raise ValueError("a tree of it splits at no number")
        found.append(TreePredictor(own, *(s[last - count : last].copy() for s in sets)))
    return found


def _counts(values: Any) -> NDArray[np.int64]:
    return _typed(values, np.dtype(np.int64), (len(values),))


def _typed(values: Any, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an array of a type and a shape, which is refused where it has others: nothing is converted."""
    if not isinstance(values, np.ndarray) or values.dtype != dtype or values.shape != shape:
        raise ValueError("its trees are held in arrays of another type or shape")
    return np.ascontiguousarray(values)
