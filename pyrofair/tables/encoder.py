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
        parts = []
        if self.numeric_:
            parts.append(self.scaler_.transform(self._numbers(X)))
        if self.categories_:
            parts.append(self.one_hot_.transform(self._codes(X)).toarray())
        return np.hstack(parts) if parts else np.empty((len(X), 0))

    def transform_sparse(self, X: pd.DataFrame) -> sparse.csr_array[np.float64]:
        """Return the matrix of :meth:`transform` in compressed rows, which wide categories need."""
        X = self._read(X)
        parts = [sparse.csr_array(self.scaler_.transform(self._numbers(X)))] if self.numeric_ else []
        if self.categories_:
            parts.append(sparse.csr_array(self.one_hot_.transform(self._codes(X))))
        return sparse.csr_array(sparse.hstack(parts)) if parts else sparse.csr_array((len(X), 0))

    def transform_coded(self, X: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.integer[Any]]]:
        """Return the standardised numbers (n, p), and the codes of the categories (n, c) in few bytes each."""
        X = self._read(X)
        numbers = self.scaler_.transform(self._numbers(X)) if self.numeric_ else np.empty((len(X), 0))
        most = max(map(len, self.categories_.values()), default=1)
        codes = np.empty((len(X), len(self.categories_)), dtype=np.min_scalar_type(most), order="F")
        for j, (name, levels) in enumerate(self.categories_.items()):
            codes[:, j] = encode_levels(X[name], levels)
        return numbers, codes

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

    def _codes(self, X: pd.DataFrame) -> NDArray[np.int64]:
        return np.column_stack([encode_levels(X[name], levels) for name, levels in self.categories_.items()])
