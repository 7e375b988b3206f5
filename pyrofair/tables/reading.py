"""DataFrames and weights of the user, checked for what no method could use: the only way in for a table."""

from __future__ import annotations

import datetime
import re
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_complex_dtype, is_integer_dtype, is_numeric_dtype, is_object_dtype

from pyrofair._validation import did_you_mean, look, require_unmasked, text_fault
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.tables.labels import is_categorical, show_labels
from pyrofair.tables.recorded import Missing

if TYPE_CHECKING:
    import pyarrow as pa

    from pyrofair.graph.causal_graph import CausalGraph

__all__ = [
    "as_arrow",
    "as_pandas",
    "describe_reading",
    "feature_columns",
    "from_arrow",
    "read_again",
    "read_groups",
    "read_table",
    "read_weight",
    "require_aligned",
    "warn_unused",
]

INDEX = "__index_level_"
"""How pandas names an index without a name in a file."""
EXACT = 2.0**53
"""Integers below this size have a double-precision number of their own."""
FARTHEST = 1e150
"""Numbers beyond this size, or below one over it, have no square in double precision."""
DATES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64)
MOST_CODES = 20
"""Numbers held as text are categories up to so many different ones, such as codes of months; more are refused."""
SAME_MEAN = 1e-12
"""Weights whose mean is so near 1 are left as they are, so that reading them twice changes nothing."""


def as_pandas(df: Any) -> Any:
    """Return a table of another library, read through Arrow's stream, as a DataFrame of its types; else as it is."""
    table = as_arrow(df)
    return df if table is None else from_arrow(table)


def from_arrow(table: pa.Table) -> pd.DataFrame:
    """Return an Arrow table as it is, whatever pandas noted of it: no column is an index, and integers stay exact."""
    table = table.replace_schema_metadata(None)
    table = table.select([name for name in table.column_names if not name.startswith(INDEX)])
    frame: pd.DataFrame = table.to_pandas()
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = str(column.type)
        if frame[name].dtype == np.float64 and kind.lstrip("u").startswith("int") and frame[name].abs().max() >= EXACT:
            whole = pd.api.types.pandas_dtype(kind.replace("i", "I").replace("u", "U"))
            frame[name] = column.to_pandas(types_mapper=partial(dict.get, {column.type: whole}))
    return frame


def as_arrow(df: Any) -> pa.Table | None:
    """Return a table of polars, pyarrow or another library as an Arrow table, and None for pandas and anything else."""
    if isinstance(df, pd.DataFrame) or not hasattr(df, "__arrow_c_stream__"):
        return None
    if not hasattr(df, "columns"):  # a stream that is empty once it was read, or a single column
        return None
    import pyarrow as pa  # tables of pandas do not need it

    table = df if isinstance(df, pa.Table) else pa.table(df)
    if twice := sorted({name for name in table.column_names if table.column_names.count(name) > 1}):
        raise DataError(f"The table has the column {twice[0]!r} more than once; keep one of them.")
    for position, field in enumerate(table.schema):
        kind = field.type
        if pa.types.is_dictionary(kind) and pa.types.is_unsigned_integer(kind.index_type):
            # Signed codes are what every release of pyarrow converts to pandas.
            wide = pa.dictionary(
                pa.int64() if kind.index_type.bit_width == 64 else pa.int32(), kind.value_type, kind.ordered
            )
            chunks = [
                pa.DictionaryArray.from_arrays(
                    each.indices.cast(wide.index_type), each.dictionary, ordered=kind.ordered
                )
                for each in table.column(position).chunks
            ]
            table = table.set_column(position, field.name, pa.chunked_array(chunks, wide))
    return table


def read_table(
    df: object, columns: Sequence[str], *, what: str = "the data", fitted: bool = False, missing: Missing | None = None
) -> pd.DataFrame:
    """Return the named columns of a DataFrame of n rows, in the order of the names; ``what`` names it in messages.

    ``fitted``: they are columns that an estimator was fitted on, rather than nodes of a graph. Missing values are kept
    with ``missing="recorded"``, and so are columns of nothing else if they were fitted on; ``"refuse"`` names this
    option in the message, None is for readers without it.

    Numbers of half precision become single: pandas makes no index of them. A DataError if the DataFrame has no rows,
    lacks or duplicates a column, or if a named column holds missing or infinite values, or no value at all, numbers
    beyond double precision, numbers or dates of the type object, more than 20 different ones held as text, or values
    that are neither numbers nor categories.
    """
    df = as_pandas(df)
    if not isinstance(df, pd.DataFrame):
        names, own = f" ({', '.join(columns)})" if columns else "", type(df)
        found = f"{own.__module__.split('.')[0]}.DataFrame" if own.__name__ == "DataFrame" else own.__name__
        raise DataError(
            f"{what} must be a pandas DataFrame whose columns carry the graph's names{names}; got {found}."
            f"{' Convert it: df.to_pandas().' if hasattr(df, 'to_pandas') else ''}"
            f"{' Collect it first: df.collect().' if hasattr(df, 'collect') else ''}"
            f"{' pf.sample_rows(df, columns, n) draws rows of it.' if hasattr(df, 'npartitions') else ''}"
        )
    if isinstance(df.columns, pd.MultiIndex):
        raise DataError(
            f"{what} has columns of {df.columns.nlevels} levels (a MultiIndex), such as {df.columns[0]!r}; a node's "
            "column has one name. Flatten them: df.columns = ['_'.join(map(str, name)) for name in df.columns]."
        )
    if absent := [name for name in columns if name not in df.columns]:
        hint = did_you_mean(absent[0], df.columns)
        if absent[0] in df.index.names:
            hint = f" {absent[0]!r} is the index of the table: df.reset_index() makes a column of it."
        elif absent[0] in map(str, df.columns):
            hint = " Its names are no text: df.rename(columns=str)."
        latent = "A node that was never measured is declared latent: graph.with_latent(...)."
        raise DataError(
            f"{what} lacks the column{'s' * (len(absent) > 1)} {', '.join(map(repr, absent))}. It has: "
            f"{', '.join(map(str, df.columns))}.{hint} {'Pass all columns of the fit.' if fitted else latent}"
        )
    if twice := sorted({str(name) for name in df.columns[df.columns.duplicated()] if name in columns}):
        raise DataError(f"{what} has the column {twice[0]!r} more than once; keep one of them.")
    looks = {look(str(name)) for name in columns}
    if fault := text_fault(name for name in df.columns if look(str(name)) in looks):
        raise DataError(f"The columns of {what} cannot be told apart by their names: {fault}. Rename or drop one.")
    if len(df) == 0:
        raise DataError(f"{what} has no rows: found 0 sample(s), while a minimum of 1 is required.")
    table = df.loc[:, list(columns)]
    for name in columns:
        if not (fitted and missing == "recorded" and table[name].isna().all()):
            _check_values(table[name], what, missing)
    half = [name for name in columns if table[name].dtype == np.float16]
    return table.astype(dict.fromkeys(half, np.float32)) if half else table


def _check_values(values: pd.Series[Any], what: str, missing: Missing | None) -> None:
    """Refuse a column with missing values, unless they are recorded ones, or of a type that no method reads."""
    gaps = values.isna()
    if gaps.all() or (gaps.any() and missing != "recorded"):
        known = ', or pass missing="recorded" to count them as a value' if missing else " (it reads no gaps)"
        cure = "" if gaps.all() else known
        raise DataError(
            f"{what} has {int(gaps.sum())} missing value(s) (NaN) in the column {values.name!r}, the first in row "
            f"{values.index[int(np.argmax(gaps))]!r}. Drop or impute them before{cure}; nothing is dropped for you."
        )
    values = values[~gaps] if gaps.any() else values
    name, dtype = values.name, values.dtype
    column, as_categories = f"The column {name!r} of {what}", f"df[{name!r}].astype(str).astype('category')"
    days = f"such as the days since a date: (pd.to_datetime(df[{name!r}]) - pd.Timestamp('2000-01-01')).dt.days"
    if is_complex_dtype(dtype):
        raise DataError(f"Complex data not supported: the column {name!r} of {what}.")
    if is_numeric_dtype(dtype) or is_bool_dtype(dtype):
        _check_numbers(values, what)
        return
    if not is_categorical(values):
        raise DataError(
            f"{column} has the type {dtype}, which is neither a number nor a category. Make a number of it, {days}; or "
            f"categories: {as_categories}."
        )
    if is_object_dtype(dtype):
        if not all(isinstance(value, Hashable) for value in values):
            raise DataError(
                f"{column} holds lists or other containers, which are no categories. Spread them over several columns, "
                "one value each."
            )
        if all(isinstance(value, Number) and not isinstance(value, bool | np.bool_) for value in values):
            raise DataError(
                f"{column} has the type object and holds numbers, such as {show_labels(values[:1])}, which would be "
                f"read as categories. Make numbers of them, df[{name!r}].astype(float), of all such columns at once, "
                f"df.infer_objects(), or declare that they are categories: df[{name!r}].astype('category')."
            )
        if any(isinstance(value, DATES) for value in values):
            raise DataError(
                f"{column} has the type object and holds dates or times, such as {show_labels(values[:1])}. Make a "
                f"number of it, {days}; or categories: {as_categories}."
            )
    if fault := text_fault(values.cat.categories if isinstance(dtype, pd.CategoricalDtype) else values.unique()):
        raise DataError(
            f"{column} holds categories that cannot be told apart: {fault}. Make one of them: "
            f"df[{name!r}].replace({{...: ...}})."
        )
    if (held := _held_as_text(values)) and values.nunique() > MOST_CODES:
        raise DataError(
            f"{column} holds {values.nunique()} different {held} as text, such as {show_labels(values[:1])}, which "
            f"would be read as categories. Make numbers of them, "
            f"{days if held == 'dates' else f'pd.to_numeric(df[{name!r}])'}; or, if they are codes, declare them: "
            f"df[{name!r}].astype('category')."
        )


def _held_as_text(values: pd.Series[Any]) -> str:
    """Return ``"numbers"`` or ``"dates"`` if all values of a column of text are such, else nothing."""
    if isinstance(values.dtype, pd.CategoricalDtype) or not is_categorical(values):
        return ""  # a categorical type is a declaration of the user
    values = values.dropna()
    for held, parse in (("numbers", float), ("dates", datetime.datetime.fromisoformat)):
        if _parses(values.iloc[:1], parse) and _parses(values.unique(), parse):
            return held
    return ""


def _parses(values: Iterable[Any], parse: Callable[[str], object]) -> bool:
    """Whether all values are text that a function reads without error."""
    try:
        return all(isinstance(value, str) and (parse(value), True)[1] for value in values)
    except ValueError:
        return False


def _check_numbers(values: pd.Series[Any], what: str) -> None:
    """Refuse numbers that are infinite, or whose squares or differences double precision cannot represent."""
    name, numbers = values.name, values.to_numpy(dtype=np.float64)
    if (infinite := ~np.isfinite(numbers)).any():
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
    if is_integer_dtype(values.dtype) and largest >= EXACT:
        raise DataError(
            f"The column {name!r} of {what} holds integers up to {largest:g} in size; from 2**53 double precision "
            f"does not separate neighbours. Subtract an offset, df[{name!r}] - df[{name!r}].min(), make categories, "
            f"df[{name!r}].astype('category'), or leave an identifier out of the graph."
        )


def describe_reading(
    df: pd.DataFrame, graph: CausalGraph, others: Iterable[str] = (), groups: object = None
) -> list[str]:
    """Return what a user should know of how a table is read: columns left out, and numbers and dates held as text."""
    df = as_pandas(df)
    known = {*graph.columns_of(graph.observed), *others, *([groups] if isinstance(groups, str) else [])}
    unused = [str(name) for name in df.columns if name not in known]
    texts = [f"Columns outside the graph are ignored: {', '.join(unused)}."] if unused else []
    for name in df.columns:
        if name in known and (held := _held_as_text(df[name])) and df[name].nunique() > 2:
            texts.append(
                f"The column {name!r} holds {held} as text, such as {show_labels(df[name].dropna()[:1])}, and is read "
                f"as {df[name].nunique()} categories. Make numbers of them, or declare them: "
                f"df[{name!r}].astype('category')."
            )
    return texts


def warn_unused(df: pd.DataFrame, graph: CausalGraph, others: Iterable[str] = (), groups: object = None) -> None:
    """Warn of how a table is read, at the line that calls the caller; see :func:`describe_reading`."""
    for text in describe_reading(df, graph, others, groups):
        warnings.warn(text, PyrofairWarning, stacklevel=3)


@contextmanager
def read_again(table: pd.DataFrame, graph: CausalGraph) -> Iterator[None]:
    """Do not repeat, in a block that reads a table again, what its first reading has warned of."""
    with warnings.catch_warnings():
        for text in describe_reading(table, graph):
            warnings.filterwarnings("ignore", re.escape(text), PyrofairWarning)
        yield


def read_weight(
    sample_weight: object, rows: pd.DataFrame | pd.Series[Any] | pd.Index[Any] | int, *, table: str = "df"
) -> NDArray[np.float64]:
    """Return sample weights (n,) whose positive values have the mean 1; ones by default.

    A common factor changes nothing, and a row of weight 0 is as good as absent. ``rows`` is the table, its index, or
    the number n of rows, and ``table`` what messages call it. One number may stand for all rows. A Series with another
    index, no numbers, a masked array, another number of them than n, one that is negative, missing or infinite, and
    zeros only are a DataError.
    """
    n = rows if isinstance(rows, int) else len(rows)
    if sample_weight is None:
        return np.ones(n)
    require_unmasked("sample_weight", sample_weight)
    if not isinstance(rows, int):
        _require_index(rows if isinstance(rows, pd.Index) else rows.index, sample_weight, "sample_weight", table)
    try:
        if getattr(getattr(sample_weight, "dtype", None), "kind", "") in tuple("cmM"):
            raise TypeError  # complex numbers, dates and durations
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


def read_groups(groups: Any, df: pd.DataFrame, graph: CausalGraph) -> NDArray[Any] | None:
    """Return the label of each row's group, such as its household, (n,); None: each row is a group by itself.

    ``groups`` is the name of a column of ``df`` outside the graph, or labels of its rows. A DataError if it is a column
    of the graph, lacks a label, has another number of them than rows, or holds a single one.
    """
    if groups is None:
        return None
    name = groups if isinstance(groups, str) else getattr(groups, "name", None)
    if name in graph.columns_of(graph.observed):
        raise DataError(
            f"groups={name!r} is a column of the graph, on which estimates are conditioned, so that it cannot be what "
            "independent units are too. Name a column outside the graph, or leave this one out of it."
        )
    if isinstance(groups, str):
        if groups not in df.columns:
            raise DataError(f"groups={groups!r} is no column of df.{did_you_mean(groups, map(str, df.columns))}")
        groups = df[groups]
    require_unmasked("groups", groups)
    require_aligned(df, groups, "groups", table="df")
    labels = pd.Series(groups if np.ndim(groups) == 1 else [])
    if len(labels) < len(df):
        raise DataError(f"groups has the shape {np.shape(groups)}, expected {(len(df),)}: one label for each row.")
    if missing := int(labels.isna().sum()):
        raise DataError(f"groups lacks a label in {missing:,} of {len(df):,} rows; give each row the group it is of.")
    if labels.nunique() < 2:
        raise DataError(f"groups holds one label, {labels.iloc[0]!r}: a single group is no sample. Leave groups out.")
    return np.asarray(labels)


def require_aligned(X: pd.DataFrame, other: object, what: str = "y", *, table: str = "X") -> None:
    """Refuse what has another length or another index than a table, for its rows would be matched by accident."""
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


def feature_columns(graph: CausalGraph) -> list[str]:
    """Return the columns of all observed nodes but the outcome, node by node: what a source is fitted on."""
    return graph.columns_of(node for node in graph.observed if node != graph.outcome)
