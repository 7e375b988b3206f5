"""A table as a matrix: numbers standardised, categories one-hot."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.validation import check_is_fitted

from pyrofair.exceptions import DataError
from pyrofair.tables.labels import as_levels, encode_levels, is_categorical, show_labels
from pyrofair.tables.reading import read_table, read_weight
from pyrofair.tables.recorded import Missing, as_recorded, fills_of, require_missing

__all__ = ["TableEncoder"]

MOST_ENTRIES = 250_000_000
"""The most numbers of an encoded table, 2 GB in double precision."""


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Numbers standardised, categories one-hot: a table as a matrix.

    A column with a pandas categorical type keeps all its declared categories, seen or not; other text columns have the
    categories seen in ``fit``. With ``missing="recorded"`` a column may have missing values if it had some in ``fit``:
    they are a level of categories, and of numbers the mean beside a flag.

    Examples
    --------
    >>> df = pd.DataFrame({"age": [20, 40], "job": ["cook", "nurse"]})
    >>> TableEncoder().fit_transform(df)
    array([[-1.,  1.,  0.],
           [ 1.,  0.,  1.]])
    """

    def __init__(self, *, missing: Missing = "refuse") -> None:
        self.missing = missing

    def fit(self, X: pd.DataFrame, y: object = None, sample_weight: object = None) -> Self:
        """Learn the categories, and the mean and scale of numbers, from a table of n rows and weights (n,) or None."""
        require_missing(self.missing)
        X = read_table(X, list(X.columns) if isinstance(X, pd.DataFrame) else [], what="X", missing=self.missing)
        fitted = copy.copy(self)  # whatever goes wrong below, nothing of self has changed
        fitted.reads_, fitted.fills_ = list(X.columns), fills_of(X)
        X = as_recorded(X, fitted.fills_)
        weight: NDArray[np.float64] | None = read_weight(sample_weight, X, table="X")
        if np.all(weight == 1.0):
            weight = None
        fitted.categories_ = {name: as_levels(X[name]) for name in X.columns if is_categorical(X[name])}
        fitted.numeric_ = [name for name in X.columns if name not in fitted.categories_]
        if fitted.numeric_:
            fitted.scaler_ = StandardScaler().fit(fitted._numbers(X), sample_weight=weight)
        if fitted.categories_:
            fitted.one_hot_ = fitted._one_hot()
        self.__dict__ = fitted.__dict__
        return self

    def _one_hot(self) -> OneHotEncoder:
        levels = [np.arange(len(categories)) for categories in self.categories_.values()]
        return OneHotEncoder(categories=levels).fit(np.zeros((1, len(levels)), dtype=np.int64))

    def transform(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return the matrix of shape (n, k).

        A DataError for a column of numbers in ``fit`` that holds none now, a category neither seen in ``fit`` nor
        declared, or a matrix of more than 2 GB.
        """
        X = self._read(X)
        if len(X) * self.width_ > MOST_ENTRIES:
            widest = max(self.categories_, key=lambda name: len(self.categories_[name]), default="")
            raise DataError(
                f"The matrix of {len(X):,} rows and {self.width_:,} encoded columns would take "
                f"{8 * len(X) * self.width_ / 1e9:.0f} GB. The column {widest!r} has "
                f"{len(self.categories_.get(widest, ())):,} categories: join rare ones, or pass another encoder."
            )
        parts = (part if isinstance(part, np.ndarray) else part.toarray() for part in self._parts(X))
        return np.hstack([np.empty((len(X), 0)), *parts])

    def transform_sparse(self, X: pd.DataFrame) -> sparse.csr_array[np.float64]:
        """Return the matrix of :meth:`transform` in compressed rows, which wide categories need."""
        X = self._read(X)
        parts = map(sparse.csr_array, self._parts(X))
        return sparse.csr_array(sparse.hstack([sparse.csr_array((len(X), 0)), *parts]))

    def _parts(self, X: pd.DataFrame) -> list[Any]:
        """Return the standardised numbers, an array, and the categories as zeros and ones, sparse."""
        parts = [self.scaler_.transform(self._numbers(X))] if self.numeric_ else []
        if self.categories_:
            codes = [encode_levels(X[name], levels) for name, levels in self.categories_.items()]
            parts.append(self.one_hot_.transform(np.column_stack(codes)))
        return parts

    @property
    def width_(self) -> int:
        """The number of columns of the matrix."""
        return len(self.numeric_) + sum(map(len, self.categories_.values()))

    def _read(self, X: object) -> pd.DataFrame:
        """Return the columns of ``fit``, numbers where it found numbers, and missing values as recorded ones."""
        check_is_fitted(self)
        table = read_table(X, self.reads_, what="X", fitted=True, missing=self.missing)
        for name in self.numeric_:
            if is_categorical(table[name]) and table[name].notna().any():
                raise DataError(
                    f"The column {name!r} held numbers in fit and now has the type {table[name].dtype}, with values "
                    f"such as {show_labels(table[name].dropna()[:1])}. Convert it: df[{name!r}].astype(float)."
                )
        return as_recorded(table, self.fills_)

    def _numbers(self, X: pd.DataFrame) -> NDArray[np.float64]:
        return np.asarray(X[self.numeric_].to_numpy(dtype=np.float64))
