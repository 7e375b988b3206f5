"""Boosted trees of scikit-learn: what is saved of them, and what is checked before compiled code walks down them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import sklearn
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.ensemble._hist_gradient_boosting.binning import _BinMapper
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

from pyrofair.exceptions import DataError

__all__ = ["restore_boosted", "take_boosted"]

State = dict[str, Any]
KEPT = ("classes_", "feature_names_in_", "_n_features", "n_trees_per_iteration_", "_baseline_prediction",
        "train_score_", "validation_score_")  # fmt: skip
"""The attributes that predictions need besides the trees; scikit-learn makes all others again of columns."""


def take_boosted(model: HistGradientBoostingClassifier, state: State) -> State:
    """Return the settings of boosted trees for two classes, their nodes as bytes, and the categories of columns."""
    kept = {name: each for name, each in state.items() if name in KEPT or name in model.get_params(deep=False)}
    if "_predictors" not in state:
        return kept
    if model.n_trees_per_iteration_ != 1:
        raise DataError("Boosted trees for more than two classes cannot be saved.")
    known = () if model._preprocessor is None else model._preprocessor.named_transformers_["encoder"].categories_
    return kept | {
        "sklearn": sklearn.__version__,
        "known": dict(zip(np.flatnonzero(model.is_categorical_).tolist() if known else [], known, strict=True)),
        "bins": model._bin_mapper.bin_thresholds_,
        "trees": [[tree.nodes.view(np.uint8), tree.raw_left_cat_bitsets] for (tree,) in model._predictors],
    }


def restore_boosted(model: HistGradientBoostingClassifier) -> None:
    """Let scikit-learn read a table that holds each category, as in a fit, and add the trees.

    A set of categories is asked of columns of categories alone, so that a walk down a tree stays inside its memory.
    """
    if "trees" not in vars(model):
        return
    version, known, bins, trees = (vars(model).pop(name) for name in ("sklearn", "known", "bins", "trees"))
    if version != sklearn.__version__:
        what = f"The file holds trees that scikit-learn {version} fitted, and {sklearn.__version__} is installed"
        raise DataError(f"{what}. Install that version, or fit again.")
    if len({*map(id, bins)}) < len(bins):
        raise ValueError("it has one column twice")
    names = vars(model).get("feature_names_in_")
    model._preprocess_X(_table(names, known, len(bins)), reset=True)
    remapped = model._is_categorical_remapped
    categorical = np.zeros(len(bins), dtype=bool) if remapped is None else np.asarray(remapped)
    mapper = model._bin_mapper = _BinMapper()
    mapper.bin_thresholds_, mapper.is_categorical_ = bins, categorical.astype(np.uint8)
    model._predictors = [[_tree(nodes.view(PREDICTOR_RECORD_DTYPE), sets, categorical)] for nodes, sets in trees]
    largest = sum(float(np.abs(tree.nodes["value"]).max()) for (tree,) in model._predictors)
    if not np.isfinite(largest + np.abs(model._baseline_prediction).sum()) or len(model.classes_) != 2:
        raise ValueError("its trees add up to no number")
    model._loss = model._get_loss(None)


def _table(names: Any, known: dict[int, NDArray[Any]], width: int) -> pd.DataFrame | NDArray[np.float64]:
    """Return a table of so many columns that holds each of their categories."""
    if any(not 0 <= at < width or not 0 < len(each) < 256 for at, each in known.items()):
        raise ValueError("it has a column of no categories, or of more than 255")
    n = max([1, *map(len, known.values())])
    columns = [known[at][np.arange(n) % len(known[at])] if at in known else np.zeros(n) for at in range(width)]
    if names is None:
        return np.column_stack(columns).astype(np.float64)
    held = {at: pd.Categorical(each) if at in known else each for at, each in enumerate(columns)}
    return pd.DataFrame(held).set_axis(list(names), axis=1)


def _tree(nodes: NDArray[Any], sets: NDArray[Any], categorical: NDArray[np.bool_]) -> TreePredictor:
    """Return a tree, unless its nodes lead out of it, or to a column or a set that is not there.

    Compiled code follows each number in them without a check. A tree goes down from its root only, each node once.
    """
    at = np.flatnonzero(nodes["is_leaf"] == 0)
    inner = nodes[at]
    below = np.stack([inner["left"], inner["right"]]).astype(np.int64)
    by_set = inner["is_categorical"] != 0
    if (
        (below <= at).any()
        or not np.array_equal(np.sort(below.ravel()), np.arange(1, len(nodes)))
        or ((inner["feature_idx"] < 0) | (inner["feature_idx"] >= len(categorical))).any()
        or (by_set != categorical[inner["feature_idx"]]).any()
        or sets.dtype != np.uint32
        or sets.shape != (len(sets), 8)
        or (inner["bitset_idx"][by_set] >= len(sets)).any()
        or np.isnan(inner["num_threshold"]).any()
    ):
        raise ValueError("a tree of it leads out of its nodes, columns or sets")
    return TreePredictor(nodes, np.zeros_like(sets), sets)
