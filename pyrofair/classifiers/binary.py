"""What both classifiers share: two classes, and an accuracy whose rows are matched by index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score

from pyrofair._validation import require_unmasked
from pyrofair.tables.reading import read_weight, require_aligned

__all__ = ["BinaryClassifier"]


class BinaryClassifier(ClassifierMixin):  # type: ignore[misc]
    """Scikit-learn's classifier mixin for two classes, strict about which rows belong together."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def score(self, X: Any, y: Any, sample_weight: object = None) -> float:
        """Return the share of rows whose label is predicted.

        Parameters
        ----------
        X
            A table of m rows, as ``predict`` takes it.
        y
            Their outcomes, shape (m,). A Series must have the index of X, in its order, as in ``fit``.
        sample_weight
            Weights of shape (m,), which must have that index too if they have one.

        Raises
        ------
        DataError
            If X, y and the weights are not of the same rows, or the weights are no weights.
        """
        if isinstance(X, pd.DataFrame):
            require_aligned(X, y)
        require_unmasked("y", y)
        predicted: NDArray[np.generic] = self.predict(X)
        weight = read_weight(sample_weight, X if isinstance(X, pd.DataFrame) else len(predicted))
        return float(accuracy_score(y, predicted, sample_weight=None if sample_weight is None else weight))
