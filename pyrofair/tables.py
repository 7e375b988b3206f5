"""A table comes in here and nowhere else: checked against the graph, and encoded as numbers."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_complex_dtype, is_numeric_dtype, is_object_dtype
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.validation import check_is_fitted

from pyrofair._validation import did_you_mean
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph import CausalGraph

__all__ = [
    "TableEncoder",
    "feature_columns",
    "is_categorical",
    "read_outcome",
    "read_sensitive",
    "read_table",
    "read_weight",
    "require_aligned",
    "sort_labels",
    "warn_unused",
]


def read_table(df: object, columns: Sequence[str], *, what: str = "the data") -> pd.DataFrame:
    """Return the named columns of a DataFrame, or say what is wrong with them.

    Parameters
    ----------
    df
        A DataFrame of n rows. Column order does not matter, and further columns are left out.
    columns
        The columns to read.
    what
        What the table is called in messages.

    Raises
    ------
    DataError
        If it is no DataFrame, has no rows, lacks or duplicates a column, or if a used column holds missing or infinite
        values, or values that are neither numbers nor categories.
    """
    if not isinstance(df, pd.DataFrame):
        names = f" ({', '.join(columns)})" if columns else ""
        raise DataError(
            f"{what} must be a pandas DataFrame whose columns carry the graph's names{names}; "
            f"got {_type_name(df)}.{' Convert it: df.to_pandas().' if hasattr(df, 'to_pandas') else ''}"
        )
    if isinstance(df.columns, pd.MultiIndex):
        raise DataError(
            f"{what} has columns of {df.columns.nlevels} levels (a MultiIndex), such as {df.columns[0]!r}; a node's "
            "column has one name. Flatten them: df.columns = ['_'.join(map(str, name)) for name in df.columns]."
        )
    absent = [name for name in columns if name not in df.columns]
    if absent:
        raise DataError(
            f"{what} lacks the column{'s' * (len(absent) > 1)} {', '.join(map(repr, absent))}. It has: "
            f"{', '.join(map(str, df.columns))}.{did_you_mean(absent[0], df.columns)} A node that was never measured "
            "is declared latent: graph.with_latent(...)."
        )
    twice = sorted({str(name) for name in df.columns[df.columns.duplicated()] if name in columns})
    if twice:
        raise DataError(f"{what} has the column {twice[0]!r} more than once; keep one of them.")
    if len(df) == 0:
        raise DataError(f"{what} has no rows: found 0 sample(s), while a minimum of 1 is required.")
    table = df.loc[:, list(columns)]
    for name in columns:
        _check_values(table[name], what)
    return table


def _type_name(value: object) -> str:
    """Return the name of a type, with its package where pandas has a type of that name."""
    kind = type(value)
    return kind.__name__ if kind.__name__ != "DataFrame" else f"{kind.__module__.split('.')[0]}.{kind.__name__}"


def _check_values(values: pd.Series[Any], what: str) -> None:
    missing = values.isna()
    if missing.any():
        raise DataError(
            f"{what} has {int(missing.sum())} missing value(s) (NaN) in the column {values.name!r}, the first in row "
            f"{values.index[int(np.argmax(missing))]!r}. Drop or impute them before; nothing is dropped for you."
        )
    if is_complex_dtype(values.dtype):
        raise DataError(f"Complex data not supported: the column {values.name!r} of {what}.")
    if is_numeric_dtype(values.dtype):
        infinite = ~np.isfinite(values.to_numpy(dtype=np.float64))
        if infinite.any():
            raise DataError(
                f"{what} has an infinite value (inf) in the column {values.name!r}, the first in row "
                f"{values.index[int(np.argmax(infinite))]!r}."
            )
    elif not is_categorical(values):
        raise DataError(
            f"The column {values.name!r} of {what} has the type {values.dtype}, which is neither a number nor a "
            "category. Convert it to one of them."
        )
    elif is_object_dtype(values.dtype) and not all(isinstance(value, Hashable) for value in values):
        raise DataError(
            f"The column {values.name!r} of {what} holds lists or other containers, which are no categories. Spread "
            "them over several columns, one value each."
        )


def _show(values: Iterable[Any], most: int = 5) -> str:
    """Write values as text, those of numpy as Python's."""
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    return ", ".join(map(repr, plain[:most]))


def is_categorical(values: pd.Series[Any]) -> bool:
    """Tell whether a column holds categories (categorical, text or object) rather than numbers."""
    dtype = values.dtype
    return isinstance(dtype, pd.CategoricalDtype | pd.StringDtype) or is_object_dtype(dtype)


def warn_unused(df: pd.DataFrame, graph: CausalGraph, others: Iterable[str] = ()) -> None:
    """Warn of columns outside the graph, which are ignored, but for others that are used."""
    known = {*graph.columns_of(graph.observed), *others}
    unused = [str(name) for name in df.columns if name not in known]
    told: set[tuple[str, ...]] = graph.__dict__.setdefault("_told_unused", set())
    if unused and tuple(unused) not in told:  # once for a graph: fit, audit and score read the same table
        told.add(tuple(unused))
        warnings.warn(f"Columns outside the graph are ignored: {', '.join(unused)}.", PyrofairWarning, stacklevel=3)


def read_sensitive(df: pd.DataFrame, graph: CausalGraph, *, both: bool = True) -> NDArray[np.int8]:
    """Return the sensitive attribute as 0 (baseline) and 1 (contrast), shape (n,).

    Parameters
    ----------
    df
        A table that holds its column.
    graph
        The graph that names its two values.
    both
        Whether both groups must occur.

    Raises
    ------
    DataError
        If a third value occurs, or only one group.
    """
    name = graph.sensitive_column
    values = df[name]
    coded = _code(values, [graph.baseline, graph.contrast])
    if (coded < 0).any():
        never = [role for role, value in (("baseline", 0), ("contrast", 1)) if not (coded == value).any()]
        raise DataError(
            f"The sensitive attribute {name!r} holds {_show(values[coded < 0].unique())} besides "
            f"baseline={graph.baseline!r} and contrast={graph.contrast!r}"
            f"{', and never the ' + ' or the '.join(never) if never else ''}. It must be binary: recode it, or name "
            "its two values when making the graph: CausalGraph(..., baseline=..., contrast=...)."
        )
    if both:
        for value in (0, 1):
            if not (coded == value).any():
                raise DataError(
                    f"The sensitive attribute {name!r} never takes the value {graph.label(value)!r} in these "
                    f"{len(coded)} rows; both groups are needed to compare them."
                )
    return coded


def read_outcome(y: object, positive: Hashable, *, what: str = "the outcome") -> tuple[NDArray[np.int8], list[Any]]:
    """Return the outcome as 0 and 1, shape (n,), and its two labels, negative first.

    Raises
    ------
    DataError
        If it holds a missing value, a third value, one value only, or never the positive one.
    """
    values = pd.Series(np.asarray(y) if not isinstance(y, pd.Series) else y)
    if values.isna().any():
        raise DataError(f"{what} has missing values (NaN); drop these rows before.")
    labels = list(values.unique())
    if len(labels) > 2:
        raise DataError(f"{what} must be binary, but holds {len(labels)} classes: {_show(labels)}.")
    if positive not in labels:
        raise DataError(
            f"{what} never takes the positive value {positive!r}; it holds {_show(labels)}. Name it "
            "when making the graph: positive=..."
        )
    if len(labels) < 2:
        raise DataError(f"{what} has one class only, {_show(labels)}; a classifier needs both.")
    negative = next(label for label in labels if label != positive)
    return _code(values, [negative, positive]), [negative, positive]


def sort_labels(values: NDArray[Any], labels: Sequence[Any]) -> NDArray[Any]:
    """Return the two labels of an outcome in order and in its type, as scikit-learn's ``classes_``.

    Parameters
    ----------
    values
        The outcome, shape (n,).
    labels
        What :func:`read_outcome` found in it.

    Raises
    ------
    DataError
        If they are of two types, which have no order.
    """
    try:
        return np.asarray(np.unique(values))
    except TypeError as error:
        raise DataError(f"y mixes labels of two types, {labels[0]!r} and {labels[1]!r}; use one type.") from error


def _code(values: pd.Series[Any], labels: Sequence[Any]) -> NDArray[np.int8]:
    coded = np.full(len(values), -1, dtype=np.int8)
    for i, label in enumerate(labels):
        coded[np.asarray(values == label, dtype=bool)] = i
    return coded


def read_weight(sample_weight: object, n: int) -> NDArray[np.float64]:
    """Return sample weights as an array of shape (n,), ones by default.

    Raises
    ------
    DataError
        If they are no numbers, their number differs from n, or one is negative, missing or infinite, or all are zero.
    """
    if sample_weight is None:
        return np.ones(n)
    try:
        weight = np.array(sample_weight, dtype=np.float64)  # a copy: pandas hands out views that torch must not alias
    except (TypeError, ValueError) as error:
        raise DataError(
            f"sample_weight={sample_weight!r:.60} holds no numbers; give one for each of {n} rows."
        ) from error
    if weight.ndim == 0:
        weight = np.full(n, float(weight))
    if weight.shape != (n,):
        raise DataError(f"sample_weight.shape == {weight.shape}, expected {(n,)}: one weight for each row.")
    if not np.isfinite(weight).all() or (weight < 0).any() or not weight.any():
        raise DataError("sample_weight must be finite, not negative, and not zero for every row.")
    return weight


def require_aligned(X: pd.DataFrame, other: object, what: str = "y", *, table: str = "X") -> None:
    """Refuse a Series whose index is not that of the table, for its rows would be matched by accident.

    Parameters
    ----------
    X
        The table.
    other
        What belongs to its rows.
    what, table
        What messages call the one and the other.

    Raises
    ------
    DataError
        If the lengths or the indices differ.
    """
    size = len(other) if hasattr(other, "__len__") else -1
    if size != len(X):
        raise DataError(f"{table} has {len(X)} rows and {what} has {size}; they must be the same rows.")
    if isinstance(other, pd.Series | pd.DataFrame) and not other.index.equals(X.index):
        code = what if what.isidentifier() else "scores"
        permuted = X.index.is_unique and other.index.is_unique and not len(X.index.difference(other.index))
        align = f"Align them ({code} = {code}.loc[{table}.index])" if permuted else "Give both one index"
        raise DataError(
            f"The index of {what} is not that of {table}, so their rows would be matched by position only. {align}, or "
            f"pass {code}.to_numpy() if the order is right."
        )


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Numbers standardised, categories one-hot: a table as a matrix.

    A column with a pandas categorical type keeps all its declared categories, seen or not; other text columns have the
    categories seen in ``fit``.

    Examples
    --------
    >>> df = pd.DataFrame({"age": [20, 40], "job": ["cook", "nurse"]})
    >>> TableEncoder().fit_transform(df)
    array([[-1.,  1.,  0.],
           [ 1.,  0.,  1.]])
    """

    def fit(self, X: pd.DataFrame, y: object = None, sample_weight: NDArray[np.float64] | None = None) -> Self:
        """Learn the categories, and the mean and scale of numbers (weighted, if weights are given).

        Parameters
        ----------
        X
            A table of n rows.
        y
            Not used.
        sample_weight
            Weights of shape (n,).
        """
        self.categories_ = {name: _categories(X[name]) for name in X.columns if is_categorical(X[name])}
        self.numeric_ = [name for name in X.columns if name not in self.categories_]
        if self.numeric_:
            self.scaler_ = StandardScaler().fit(self._numbers(X), sample_weight=sample_weight)
        if self.categories_:
            levels = [np.arange(len(categories)) for categories in self.categories_.values()]
            self.one_hot_ = OneHotEncoder(categories=levels, sparse_output=False).fit(self._codes(X))
        return self

    def transform(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return the matrix of shape (n, k).

        Raises
        ------
        DataError
            For a category that ``fit`` neither saw nor found declared.
        """
        check_is_fitted(self)
        parts = []
        if self.numeric_:
            parts.append(self.scaler_.transform(self._numbers(X)))
        if self.categories_:
            parts.append(self.one_hot_.transform(self._codes(X)))
        return np.hstack(parts) if parts else np.empty((len(X), 0))

    def _numbers(self, X: pd.DataFrame) -> NDArray[np.float64]:
        return np.asarray(X[self.numeric_].to_numpy(dtype=np.float64))

    def _codes(self, X: pd.DataFrame) -> NDArray[np.int64]:
        return np.column_stack([encode_levels(X[name], levels) for name, levels in self.categories_.items()])


def _categories(values: pd.Series[Any]) -> pd.Index[Any]:
    if isinstance(values.dtype, pd.CategoricalDtype):
        levels: pd.Index[Any] = values.cat.categories
    else:
        levels = pd.Index(sorted(values.unique(), key=lambda value: (str(type(value)), value)))
    return levels


def encode_levels(values: pd.Series[Any], levels: pd.Index[Any]) -> NDArray[np.int64]:
    """Return the place of each value among the known levels, shape (n,).

    Raises
    ------
    DataError
        For a value that is not among them.
    """
    codes = levels.get_indexer(pd.Index(values)).astype(np.int64)
    if (codes < 0).any():
        raise DataError(
            f"The column {values.name!r} holds {_show(values[codes < 0].unique())}, not seen in fit. Known: "
            f"{_show(levels, 20)}. To allow a rare level, declare it before fitting: "
            f"df[{values.name!r}].astype(pd.CategoricalDtype([...]))."
        )
    return codes


def as_levels(values: pd.Series[Any]) -> pd.Index[Any]:
    """Return the distinct values of any column, in order, as levels for :func:`encode_levels`."""
    return _categories(values) if is_categorical(values) else pd.Index(np.unique(values.to_numpy()))


def feature_columns(graph: CausalGraph) -> list[str]:
    """Return the columns of all observed nodes but the outcome, node by node: what a source is fitted on."""
    return graph.columns_of(node for node in graph.observed if node != graph.outcome)
