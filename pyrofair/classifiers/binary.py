"""The base of both classifiers: two classes, labels, weights, and an accuracy whose rows are matched by index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import column_or_1d

from pyrofair._validation import require_unmasked
from pyrofair.exceptions import DataError
from pyrofair.tables.labels import read_outcome, sort_labels
from pyrofair.tables.reading import as_pandas, read_weight, require_aligned

__all__ = ["BinaryClassifier"]


class BinaryClassifier(ClassifierMixin):  # type: ignore[misc]
    """Scikit-learn's classifier mixin for two classes, strict about which rows belong together."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _read_column(self, y: Any) -> NDArray[Any]:
        """Return the labels as a vector (n,), whatever they are."""
        if y is None:
            raise DataError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        require_unmasked("y", y)
        return np.asarray(column_or_1d(y, warn=True))

    def _code(self, values: NDArray[Any], positive: Any) -> NDArray[np.int8]:
        """Learn the two classes, and return for each row (n,) whether it has the positive one."""
        coded, labels = read_outcome(values, positive, what="y")
        self.classes_ = sort_labels(values, labels)
        return coded

    def _keep_weighted(
        self, table: pd.DataFrame, target: NDArray[np.int8], weight: NDArray[np.float64]
    ) -> tuple[pd.DataFrame, NDArray[np.int8], NDArray[np.float64]]:
        """Return the rows that have a positive weight, which must hold both classes."""
        kept = np.flatnonzero(weight > 0)
        if len(np.unique(target[kept])) < 2:
            raise DataError("The rows with positive weight hold one class only; a classifier needs both classes.")
        return table.iloc[kept], target[kept], weight[kept]

    def score(self, X: Any, y: Any, sample_weight: object = None) -> float:
        """Return the share of rows whose label is predicted, weighted by ``sample_weight`` (m,).

        Outcomes y (m,) and weights must have the index of a table X, in its order, if they have one; else it is a
        DataError.
        """
        X = as_pandas(X)
        if isinstance(X, pd.DataFrame):
            require_aligned(X, y)
        require_unmasked("y", y)
        predicted: NDArray[np.generic] = self.predict(X)
        weight = read_weight(sample_weight, X if isinstance(X, pd.DataFrame) else len(predicted))
        return float(accuracy_score(y, predicted, sample_weight=None if sample_weight is None else weight))
