"""A table comes in here and nowhere else: checked against the graph, and encoded as numbers."""

from __future__ import annotations

import copy
import datetime
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from numbers import Number
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_complex_dtype, is_integer_dtype, is_numeric_dtype, is_object_dtype
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.validation import check_is_fitted

from pyrofair._validation import did_you_mean, require_unmasked
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph.causal_graph import CausalGraph

__all__ = [
    "TableEncoder",
    "as_column",
    "as_levels",
    "encode_levels",
    "feature_columns",
    "is_categorical",
    "is_text",
    "read_outcome",
    "read_sensitive",
    "read_table",
    "read_weight",
    "repeat_label",
    "require_aligned",
    "sort_labels",
    "span_of",
    "warn_unused",
]

EXACT = 2.0**53
"""Integers up to this size have a double-precision number of their own."""
FARTHEST = 1e150
"""Numbers beyond this size, or below one over it, have no square in double precision."""
MOST_CODES = 20
"""Numbers held as text are categories up to so many different ones, such as codes of months; more are refused."""
DAYS = "(pd.to_datetime(df[{name}]) - pd.Timestamp('2000-01-01')).dt.days"
MOST_ENTRIES = 250_000_000
"""The most numbers of an encoded table, 2 GB in double precision."""
SAME_MEAN = 1e-12
"""Weights whose mean is so near 1 are left as they are, so that reading them twice changes nothing."""


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
        values, numbers beyond double precision, numbers or dates of the type object, more than 20 different ones held
        as text, or values that are neither numbers nor categories.
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
    name, dtype = values.name, values.dtype
    if is_complex_dtype(dtype):
        raise DataError(f"Complex data not supported: the column {name!r} of {what}.")
    if is_numeric_dtype(dtype) or is_bool_dtype(dtype):
        _check_numbers(values, what)
    elif not is_categorical(values):
        raise DataError(
            f"The column {name!r} of {what} has the type {dtype}, which is neither a number nor a category. Make a "
            f"number of it, such as the days since a date: {DAYS.format(name=repr(name))}; or categories: "
            f"df[{name!r}].astype(str).astype('category')."
        )
    else:
        if is_object_dtype(dtype):
            _check_objects(values, what)
        held = _held_as_text(values)
        if held and values.nunique() > MOST_CODES:
            cure = f"pd.to_numeric(df[{name!r}])"
            if held == "dates":
                cure = f"such as the days since a date: {DAYS.format(name=repr(name))}"
            raise DataError(
                f"The column {name!r} of {what} holds {values.nunique()} different {held} as text, such as "
                f"{_show(values[:1])}, which would be read as categories. Make numbers of them, {cure}; or, if they "
                f"are codes, say so: df[{name!r}].astype('category')."
            )


def _held_as_text(values: pd.Series[Any]) -> str:
    """Say what a column of text holds: ``"numbers"`` or ``"dates"`` if all are such, else nothing.

    A categorical type is taken at its word.
    """
    if isinstance(values.dtype, pd.CategoricalDtype) or not is_categorical(values):
        return ""
    for held, parse in (("numbers", float), ("dates", datetime.datetime.fromisoformat)):
        if _parses(values.iloc[:1], parse) and _parses(values.unique(), parse):
            return held
    return ""


def _parses(values: Iterable[Any], parse: Callable[[str], object]) -> bool:
    """Tell whether all values are text that a function reads without error."""
    try:
        return all(isinstance(value, str) and (parse(value), True)[1] for value in values)
    except ValueError:
        return False


def _check_numbers(values: pd.Series[Any], what: str) -> None:
    """Refuse numbers that are infinite, or whose squares or differences double precision cannot tell."""
    name, numbers = values.name, values.to_numpy(dtype=np.float64)
    infinite = ~np.isfinite(numbers)
    if infinite.any():
        raise DataError(
            f"{what} has an infinite value (inf) in the column {name!r}, the first in row "
            f"{values.index[int(np.argmax(infinite))]!r}."
        )
    largest = float(np.abs(numbers).max(initial=0.0))
    if largest and not 1.0 / FARTHEST <= largest <= FARTHEST:
        raise DataError(
            f"The column {name!r} of {what} holds numbers up to {largest:g} in size, whose squares leave double "
            f"precision. Give it in another unit: df[{name!r}] / {largest:.0e}."
        )
    if is_integer_dtype(values.dtype) and largest > EXACT:
        raise DataError(
            f"The column {name!r} of {what} holds integers up to {largest:g} in size; beyond 2**53 double precision "
            f"does not tell neighbours apart. Subtract an offset, df[{name!r}] - df[{name!r}].min(), make categories, "
            f"df[{name!r}].astype('category'), or leave an identifier out of the graph."
        )


def _check_objects(values: pd.Series[Any], what: str) -> None:
    """Refuse a column of Python objects that hides numbers or dates, or holds containers."""
    name = values.name
    if not all(isinstance(value, Hashable) for value in values):
        raise DataError(
            f"The column {name!r} of {what} holds lists or other containers, which are no categories. Spread "
            "them over several columns, one value each."
        )
    if all(isinstance(value, Number) and not isinstance(value, bool | np.bool_) for value in values):
        raise DataError(
            f"The column {name!r} of {what} has the type object and holds numbers, such as {_show(values[:1])}, which "
            f"would be read as categories. Make numbers of them, df[{name!r}].astype(float), of all such columns at "
            f"once, df.infer_objects(), or say that they are categories: df[{name!r}].astype('category')."
        )
    if any(isinstance(value, datetime.date | datetime.time | datetime.timedelta | np.datetime64) for value in values):
        raise DataError(
            f"The column {name!r} of {what} has the type object and holds dates or times, such as {_show(values[:1])}. "
            f"Make a number of it, such as the days since a date: {DAYS.format(name=repr(name))}; or categories: "
            f"df[{name!r}].astype(str).astype('category')."
        )


def _show(values: Iterable[Any], most: int = 5) -> str:
    """Write values as text, those of numpy as Python's."""
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    return ", ".join(map(repr, plain[:most]))


def is_categorical(values: pd.Series[Any]) -> bool:
    """Tell whether a column holds categories (categorical, text or object) rather than numbers."""
    dtype = values.dtype
    return isinstance(dtype, pd.CategoricalDtype) or is_object_dtype(dtype) or is_text(dtype)


def is_text(dtype: object) -> bool:
    """Tell whether a pandas type is one of text: ``str``, ``string`` in any storage, or a string type of Arrow."""
    return isinstance(dtype, pd.StringDtype) or (isinstance(dtype, pd.ArrowDtype) and dtype.type is str)


def warn_unused(df: pd.DataFrame, graph: CausalGraph, others: Iterable[str] = ()) -> None:
    """Warn of columns outside the graph, which are ignored, but for others that are used; and of numbers as text.

    Each warning is given once for a graph: fit, audit and score read the same table.
    """
    known = {*graph.columns_of(graph.observed), *others}
    unused = [str(name) for name in df.columns if name not in known]
    told: set[tuple[str, ...]] = graph.__dict__.setdefault("_told_unused", set())
    if unused and tuple(unused) not in told:
        told.add(tuple(unused))
        warnings.warn(f"Columns outside the graph are ignored: {', '.join(unused)}.", PyrofairWarning, stacklevel=3)
    for name in df.columns:
        told_of = ("text", str(name))
        if name in known and told_of not in told and (held := _held_as_text(df[name])) and df[name].nunique() > 2:
            told.add(told_of)
            warnings.warn(
                f"The column {name!r} holds {held} as text, such as {_show(df[name].iloc[:1])}, and is read as "
                f"{df[name].nunique()} categories. Make numbers of them, or say so: df[{name!r}].astype('category').",
                PyrofairWarning,
                stacklevel=3,
            )


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
    require_unmasked(what, y)
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
        own = np.asarray(values == label, dtype=bool)
        if (coded[own] >= 0).any():
            raise DataError(
                f"The labels {_show(labels)} are the same number in the type {values.dtype} of {values.name!r}, so "
                "that rows cannot be told apart. Use short labels, such as 0 and 1."
            )
        coded[own] = i
    return coded


def read_weight(
    sample_weight: object, rows: pd.DataFrame | pd.Series[Any] | pd.Index[Any] | int, *, table: str = "df"
) -> NDArray[np.float64]:
    """Return sample weights as an array of shape (n,) whose positive values have the mean 1; ones by default.

    Weights are relative: a common factor changes nothing, and a row of weight 0 is as good as absent.

    Parameters
    ----------
    sample_weight
        None, a number for each row, or one number for all. A Series or DataFrame must have the index of the rows, in
        its order: it is refused otherwise, for its values would meet other rows.
    rows
        The table, or its index; or the number n of rows that have no index.
    table
        What messages call the table.

    Raises
    ------
    DataError
        If they are no numbers, or masked, their number or index differs from that of the rows, or one is negative,
        missing or infinite, or all are zero.

    Examples
    --------
    >>> read_weight([0.0, 2.0, 6.0], 3).tolist()
    [0.0, 0.5, 1.5]
    """
    n = rows if isinstance(rows, int) else len(rows)
    if sample_weight is None:
        return np.ones(n)
    require_unmasked("sample_weight", sample_weight)
    if not isinstance(rows, int):
        _require_index(rows if isinstance(rows, pd.Index) else rows.index, sample_weight, "sample_weight", table)
    kind = getattr(getattr(sample_weight, "dtype", None), "kind", "")
    try:
        if kind in tuple("cmM"):
            raise TypeError
        weight = np.array(sample_weight, dtype=np.float64)  # a copy: pandas hands out views that torch must not alias
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"sample_weight={sample_weight!r:.60} holds no numbers; give one for each of {n} rows."
        ) from error
    if weight.ndim == 0:
        weight = np.full(n, float(weight))
    if weight.shape != (n,):
        raise DataError(f"sample_weight.shape == {weight.shape}, expected {(n,)}: one weight for each row.")
    wrong = weight[~np.isfinite(weight) | (weight < 0)]
    if wrong.size or not weight.any():
        found = f"it holds {wrong[0].item()!r}" if wrong.size else "all are 0.0"
        raise DataError(f"sample_weight must be finite, not negative, and not zero for every row; {found}.")
    positive = weight[weight > 0.0]
    if (positive == positive[0]).all():
        return (weight > 0.0).astype(np.float64)
    largest = positive.max()
    mean = float((positive / largest).mean()) * largest
    return weight if abs(mean - 1.0) < SAME_MEAN else weight / largest / (mean / largest)


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
    try:
        size = len(other)  # type: ignore[arg-type]
    except TypeError:  # a number, or an array without an axis
        size = -1
    if size != len(X):
        raise DataError(f"{table} has {len(X)} rows and {what} has {size}; they must be the same rows.")
    _require_index(X.index, other, what, table)


def _require_index(index: pd.Index[Any], other: object, what: str, table: str) -> None:
    if isinstance(other, pd.Series | pd.DataFrame) and len(other) == len(index) and not other.index.equals(index):
        code = what if what.isidentifier() else "scores"
        permuted = index.is_unique and other.index.is_unique and not len(index.difference(other.index))
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

    def fit(self, X: pd.DataFrame, y: object = None, sample_weight: object = None) -> Self:
        """Learn the categories, and the mean and scale of numbers (weighted, if weights are given).

        Parameters
        ----------
        X
            A table of n rows.
        y
            Not used.
        sample_weight
            Weights of shape (n,), as :func:`read_weight` takes them.

        Raises
        ------
        DataError
            For what :func:`read_table` or :func:`read_weight` refuses.
        """
        X = read_table(X, list(X.columns) if isinstance(X, pd.DataFrame) else [], what="X")
        fitted = copy.copy(self)  # whatever goes wrong below, nothing of self has changed
        weight: NDArray[np.float64] | None = read_weight(sample_weight, X, table="X")
        if np.all(weight == 1.0):
            weight = None
        fitted.categories_ = {name: _categories(X[name]) for name in X.columns if is_categorical(X[name])}
        fitted.numeric_ = [name for name in X.columns if name not in fitted.categories_]
        if fitted.numeric_:
            fitted.scaler_ = StandardScaler().fit(fitted._numbers(X), sample_weight=weight)
        if fitted.categories_:
            levels = [np.arange(len(categories)) for categories in fitted.categories_.values()]
            fitted.one_hot_ = OneHotEncoder(categories=levels).fit(fitted._codes(X))
        self.__dict__ = fitted.__dict__
        return self

    def transform(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return the matrix of shape (n, k).

        Raises
        ------
        DataError
            For what :func:`read_table` refuses, numbers in ``fit`` that are none now, a category that ``fit`` neither
            saw nor found declared, or a matrix of more than 2 GB.
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

    @property
    def width_(self) -> int:
        """The number of columns of the matrix."""
        return len(self.numeric_) + sum(map(len, self.categories_.values()))

    def _read(self, X: object) -> pd.DataFrame:
        """Return the columns of ``fit``, numbers where it found numbers."""
        check_is_fitted(self)
        table = read_table(X, [*self.numeric_, *self.categories_], what="X")
        for name in self.numeric_:
            if is_categorical(table[name]):
                raise DataError(
                    f"The column {name!r} held numbers in fit and now has the type {table[name].dtype}, with values "
                    f"such as {_show(table[name][:1])}. Convert it: df[{name!r}].astype(float)."
                )
        return table

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


def as_column(name: str, values: NDArray[Any], dtype: Any) -> pd.Series[Any]:
    """Return values, or labels, in the pandas type of a column; numbers that it cannot hold exactly stay as they are.

    The index is 0 to n - 1, and memory is shared with the values where their type is that of the column.

    Parameters
    ----------
    name
        The column, for messages.
    values
        Numbers or labels, shape (n,).
    dtype
        The pandas type.

    Raises
    ------
    DataError
        If the type is one of categories or text, and the values are not among its levels, or are numbers.

    Examples
    --------
    >>> as_column("M", np.array([1.0, 0.0]), np.dtype("int8")).to_numpy()
    array([1, 0], dtype=int8)
    >>> as_column("M", np.array([1.5, 0.0]), np.dtype("int8")).to_numpy()
    array([1.5, 0. ])
    """
    numbers = values.dtype.kind in "fiub"
    if is_object_dtype(dtype) and not numbers:
        return pd.Series(values.astype(object), dtype=object)
    if isinstance(dtype, pd.CategoricalDtype):
        codes = dtype.categories.get_indexer(pd.Index(values))
        if (codes < 0).any():
            raise DataError(
                f"The column {name!r} has the categories {_show(dtype.categories, 20)}, and a world takes the value "
                f"{_show(values[codes < 0], 1)}. If it is a code, name the labels: levels={{{name!r}: [...]}}."
            )
        return pd.Series(pd.Categorical.from_codes(codes, dtype=dtype))
    if is_text(dtype) or is_object_dtype(dtype):
        if numbers:
            raise DataError(
                f"The column {name!r} holds text, and a world takes the value {values[0]}. If it is a code, name the "
                f"labels: levels={{{name!r}: [...]}}."
            )
        text: pd.Series[Any] = pd.Series(values.astype(object)).astype(dtype)
        return text
    if not numbers or not _holds(dtype, values):
        return pd.Series(values, copy=False)
    if isinstance(dtype, np.dtype):
        return pd.Series(values.astype(dtype, copy=False), copy=False)
    return pd.Series(values.astype(getattr(dtype, "numpy_dtype", None) or np.float64)).astype(dtype)


def span_of(dtype: Any) -> tuple[int, int]:
    """Return the least and the greatest number of a pandas type of integers."""
    span = np.iinfo(np.dtype(f"{dtype.kind}{dtype.itemsize}"))
    return int(span.min), int(span.max)


def _holds(dtype: Any, numbers: NDArray[Any]) -> bool:
    """Tell whether a type of numbers holds these exactly, but for the precision of fractions."""
    if is_bool_dtype(dtype):
        return bool(((numbers == 0) | (numbers == 1)).all())
    if not is_integer_dtype(dtype):
        return True
    low, high = span_of(dtype)
    return bool(((numbers == np.rint(numbers)) & (numbers >= low) & (numbers <= high)).all())


def repeat_label(values: pd.Series[Any], label: Hashable, index: pd.Index[Any]) -> pd.Series[Any]:
    """Return a label on an index, in the type that it has in a column which holds it."""
    place = int(np.argmax(np.asarray(values == label, dtype=bool)))
    return values.iloc[np.full(len(index), place)].set_axis(index)


def feature_columns(graph: CausalGraph) -> list[str]:
    """Return the columns of all observed nodes but the outcome, node by node: what a source is fitted on."""
    return graph.columns_of(node for node in graph.observed if node != graph.outcome)
