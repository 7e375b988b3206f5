"""Tables, columns, labels, arrays and tensors as the parts that a file holds: numbers, texts and lists of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor

from pyrofair.exceptions import DataError

__all__ = ["DATA", "Kind", "bytes_of", "is_held"]

State = dict[str, Any]
HELD_IN_MEMORY = (np.ndarray, pd.api.extensions.ExtensionArray, pd.Index, pd.Series, Tensor)
HELD = re.compile(r"u?int(8|16|32|64)|float(16|32|64)|bool")
"""The types of numbers that a file holds as they are."""
OTHER = re.compile(
    r"object|str|U?Int(8|16|32|64)|Float(32|64)|boolean|timedelta64\[(s|ms|us|ns)\]"
    r"|datetime64\[(s|ms|us|ns)(, (?!dateutil)[\w+:/-]+)?\]"
)
"""The other types of columns, by the names that pandas gives them."""
ARROW = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double", "string",
         "large_string")  # fmt: skip
"""The Arrow types of columns that are saved."""
WIDEST, ROOM = 64, 2**16
"""An array of texts, each of which takes the memory of the longest, takes so many times their own, or these bytes."""


@dataclass(frozen=True)
class Kind:
    """How objects of one class, or of classes derived from it, are saved.

    ``take`` returns the parts of an object by name, and ``make`` an object from them; neither sees a file. If an object
    cannot be saved, ``take`` raises a DataError that names the way out; if parts make no object, ``make`` raises.
    """

    name: str
    of: type | tuple[type, ...]
    take: Callable[[Any], State]
    make: Callable[..., Any]


def bytes_of(value: Any) -> int:
    """Return the memory of arrays and tables in a value, ranges as if they were written out."""
    if isinstance(value, pd.RangeIndex):
        return 8 * len(value)
    if isinstance(value, dict):
        return bytes_of([*value.values()])
    if isinstance(value, list | tuple | set | frozenset):
        return 8 * len(value) + sum(map(bytes_of, value))
    if isinstance(value, pd.DataFrame):
        return int(value.memory_usage(index=False).sum())
    return int(getattr(value, "nbytes", 0)) if isinstance(value, HELD_IN_MEMORY) else 0


def is_held(dtype: np.dtype[Any]) -> bool:
    """Return whether a file holds numbers of a type as they are."""
    return HELD.fullmatch(dtype.name) is not None


# -- types and arrays --------------------------------------------------------------------------------------------------


def _take_dtype(dtype: Any) -> State:
    if isinstance(dtype, pd.CategoricalDtype):
        return {"name": "category", "categories": dtype.categories, "ordered": bool(dtype.ordered)}
    if isinstance(dtype, pd.StringDtype):
        return {"name": f"{'NA' if dtype.na_value is pd.NA else 'nan'} {dtype.storage}"}
    if isinstance(dtype, pd.ArrowDtype) and str(dtype.pyarrow_dtype) in ARROW:
        return {"name": f"arrow {dtype.pyarrow_dtype}"}
    name = "str" if dtype.kind == "U" else str(dtype)
    if HELD.fullmatch(name) or OTHER.fullmatch(name):
        return {"name": name}
    raise DataError(f"it holds values of the type {dtype}, which no file does. Convert them to numbers or text before.")


def _make_dtype(name: str, categories: Any = None, ordered: bool = False) -> Any:
    kind, _, detail = name.partition(" ")
    if name == "category":
        return pd.CategoricalDtype(categories, ordered=bool(ordered))
    if kind == "arrow":
        return pd.ArrowDtype(pa.type_for_alias(ARROW[ARROW.index(detail)]))
    if kind in ("NA", "nan"):
        return pd.StringDtype(detail) if kind == "NA" else pd.StringDtype(detail, na_value=np.nan)
    if HELD.fullmatch(name) or OTHER.fullmatch(name):
        return np.dtype(str) if name == "str" else pd.api.types.pandas_dtype(name)
    raise ValueError(f"{name!r} is not a type of a column")


def _take_values(values: Any) -> State:
    """Return categories as codes, times as integers, and other values as a list."""
    dtype = values.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return {"dtype": dtype, "codes": np.asarray(values.codes)}
    if dtype.kind in "mM" and not isinstance(dtype, pd.ArrowDtype):
        return {"dtype": dtype, "times": values.view(np.int64)}
    items = np.array(values, dtype=object)
    if not isinstance(values, np.ndarray):
        items[np.asarray(values.isna(), dtype=bool)] = None
    return {"dtype": dtype, "items": items.tolist()}


def _make_values(dtype: Any, items: Any = None, times: Any = None, codes: Any = None) -> Any:
    if codes is not None:
        return pd.Categorical.from_codes(codes, dtype=dtype)
    if isinstance(dtype, pd.DatetimeTZDtype):
        return pd.DatetimeIndex(times.view(f"M8[{dtype.unit}]"), tz="UTC").tz_convert(dtype.tz).array
    if times is not None:
        return times.view({"m": dtype, "M": dtype}[dtype.kind])
    found = np.array(items, dtype=object)
    if not isinstance(dtype, np.dtype):
        return pd.array(found, dtype=dtype)
    if dtype.kind == "U":
        lengths = [len(each) for each in found.flat]
        if 4 * max(lengths, default=0) * len(lengths) > WIDEST * sum(lengths) + ROOM:
            raise ValueError(f"an array of {len(lengths)} texts has one of {max(lengths)} characters")
    return found.astype(dtype)


def _take_scalar(value: np.generic) -> State:
    if not is_held(value.dtype):
        raise DataError(f"it is a number of the type {value.dtype}, which no file holds. Convert it first.")
    return {"dtype": value.dtype, "value": value.item()}


# -- tables ------------------------------------------------------------------------------------------------------------


def _values(of: Any) -> Any:
    """Return the values of a series or an index as an array, one of pandas if its type is."""
    return of.to_numpy() if isinstance(of.dtype, np.dtype) else of.array[:]  # of no other object


def _take_table(table: pd.DataFrame) -> State:
    columns = [_values(table.iloc[:, i]) for i in range(table.shape[1])]
    return {"columns": columns, "names": table.columns, "index": table.index.view()}  # no index of another table


def _make_table(columns: list[Any], names: Any, index: Any) -> pd.DataFrame:
    if any(len(each) != len(index) for each in columns) or len(columns) != len(names):
        raise ValueError("its columns differ in length")
    if not columns and len(index) and isinstance(index, pd.RangeIndex):
        raise ValueError("it has rows of no columns")
    held = {i: _make_series(each, index, None) for i, each in enumerate(columns)}
    return pd.DataFrame(held, index).set_axis(names, axis=1)


def _make_series(values: Any, index: Any, name: Any) -> pd.Series[Any]:
    found: pd.Series[Any] = pd.Series(values, index, name=name, dtype=values.dtype, copy=False)
    return found


def _take_levels(index: pd.MultiIndex) -> State:
    return {"table": index.to_frame(index=False, name=list(range(index.nlevels))), "names": list(index.names)}


def _make_index(values: Any, name: Any) -> pd.Index[Any]:
    found: pd.Index[Any] = pd.Index(values, name=name, dtype=values.dtype)
    return found


_RANGE = ("start", "stop", "step", "name")
_EXTENSIONS = pd.api.extensions
DATA = (
    Kind("scalar", np.generic, _take_scalar, lambda dtype, value: np.dtype(dtype).type(value)),
    Kind("NA", type(pd.NA), lambda _: {}, lambda: pd.NA),
    Kind("type", (np.dtype, _EXTENSIONS.ExtensionDtype), _take_dtype, _make_dtype),
    Kind("values", (np.ndarray, _EXTENSIONS.ExtensionArray), _take_values, _make_values),
    Kind("tensor", Tensor, lambda t: {"values": t.detach().cpu().numpy()}, lambda values: torch.from_numpy(values)),
    Kind("range", pd.RangeIndex, lambda i: {each: getattr(i, each) for each in _RANGE}, pd.RangeIndex),
    Kind("levels", pd.MultiIndex, _take_levels, lambda table, names: pd.MultiIndex.from_frame(table, names=names)),
    Kind("index", pd.Index, lambda i: {"values": _values(i), "name": i.name}, _make_index),
    Kind("series", pd.Series, lambda s: {"values": _values(s), "index": s.index, "name": s.name}, _make_series),
    Kind("table", pd.DataFrame, _take_table, _make_table),
)
"""The kinds of data; the first that fits is that of an object."""
