"""Tables, columns, labels, arrays and tensors as the parts that a file holds: numbers, texts and lists of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyrofair.exceptions import DataError

__all__ = ["DATA", "Kind", "is_held"]

State = dict[str, Any]
HELD = re.compile(r"u?int(8|16|32|64)|float(16|32|64)|bool")
"""The types of numbers that a file holds as they are."""
OTHER = re.compile(
    r"object|U?Int(8|16|32|64)|Float(32|64)|boolean|timedelta64\[(s|ms|us|ns)\]"
    r"|datetime64\[(s|ms|us|ns)(, (?!dateutil)[\w+:/-]+)?\]"
)
"""The other types of columns, by the names that pandas gives them."""
ARROW = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double", "string",
         "large_string")  # fmt: skip
"""The Arrow types of columns that are saved."""
LONGEST = 400
"""The texts of a column that repeats them may take so many times the memory of its rows' codes."""


@dataclass(frozen=True)
class Kind:
    """How objects of one class, or of classes derived from it, are saved.

    ``take`` returns the parts of an object by name, and ``make`` an object from them; neither sees a file. If an object
    cannot be saved, ``take`` raises a DataError that names the way out; if parts make no object, ``make`` raises.
    """

    name: str
    of: type
    take: Callable[[Any], State]
    make: Callable[..., Any]


def is_held(dtype: np.dtype[Any]) -> bool:
    """Return whether a file holds numbers of a type as they are."""
    return HELD.fullmatch(dtype.name) is not None


def _refusal(what: str, advice: str) -> DataError:
    return DataError(f"it holds {what}, which no file does. {advice}")


# -- types and arrays --------------------------------------------------------------------------------------------------


def _take_dtype(dtype: Any) -> State:
    if isinstance(dtype, pd.CategoricalDtype):
        return {"name": "category", "categories": dtype.categories, "ordered": bool(dtype.ordered)}
    if isinstance(dtype, pd.StringDtype):
        return {"name": f"{'NA' if dtype.na_value is pd.NA else 'nan'} {dtype.storage}"}
    if isinstance(dtype, pd.ArrowDtype) and str(dtype.pyarrow_dtype) in ARROW:
        return {"name": f"arrow {dtype.pyarrow_dtype}"}
    if HELD.fullmatch(str(dtype)) or OTHER.fullmatch(str(dtype)):
        return {"name": str(dtype)}
    raise _refusal(f"a column of the type {dtype}", "Convert it to numbers, text or pandas categories before fitting.")


def _make_dtype(name: str, categories: Any = None, ordered: bool = False) -> Any:
    kind, _, detail = name.partition(" ")
    if name == "category":
        return pd.CategoricalDtype(categories, ordered=bool(ordered))
    if kind == "arrow":
        import pyarrow as pa

        return pd.ArrowDtype(pa.type_for_alias(ARROW[ARROW.index(detail)]))
    if kind in ("NA", "nan"):
        return pd.StringDtype(detail) if kind == "NA" else pd.StringDtype(detail, na_value=np.nan)
    if HELD.fullmatch(name) or OTHER.fullmatch(name):
        return pd.api.types.pandas_dtype(name)
    raise ValueError(f"{name!r} is not a type of a column")


def _take_array(values: NDArray[Any]) -> State:
    """Return times as integers, texts of one length as their code points, and objects as distinct ones and codes."""
    if values.dtype.kind in "mM":
        return {"numbers": values.view(np.int64), "dtype": values.dtype}
    if values.dtype.kind == "U":
        length = max(1, values.dtype.itemsize // 4)
        plain = np.ascontiguousarray(values, dtype=f"=U{length}").reshape(-1)
        return {"points": plain.view(np.uint32).reshape(*values.shape, length)}
    if values.dtype.kind != "O":
        raise _refusal(f"{type(values).__name__} of the type {values.dtype}", "Convert it first, such as to float64.")
    levels: dict[tuple[type, str], int] = {}
    distinct: list[Any] = []
    codes = np.empty(values.size, dtype=np.int32)
    for i, value in enumerate(values.ravel().tolist()):
        codes[i] = code = levels.setdefault((type(value), value if type(value) is str else repr(value)), len(distinct))
        if code == len(distinct):
            distinct.append(value)
    return {"objects": distinct, "codes": codes.reshape(values.shape)}


def _make_array(
    numbers: Any = None, dtype: Any = None, points: Any = None, objects: Any = None, codes: Any = None
) -> NDArray[Any]:
    if numbers is not None:
        return np.asarray(numbers.view({"m": dtype, "M": dtype}[dtype.kind]))
    if points is not None:
        if points.dtype != np.uint32 or points.ndim == 0 or (points > sys.maxunicode).any():
            raise ValueError("it has a text of no characters")
        return np.asarray(points.reshape(-1).view(f"=U{points.shape[-1]}").reshape(points.shape[:-1]))
    if codes.dtype != np.int32 or (codes.size and not 0 <= codes.min() <= codes.max() < len(objects)):
        raise ValueError("it has codes without a value")
    levels = np.fromiter(objects, dtype=object, count=len(objects))
    return np.asarray(levels[codes], dtype=object).reshape(codes.shape)


def _make_tensor(values: NDArray[Any], grad: bool) -> Tensor:
    found = torch.from_numpy(values)
    return found.requires_grad_(bool(grad)) if found.is_floating_point() else found


def _take_scalar(value: np.generic) -> State:
    if not is_held(value.dtype):
        raise _refusal(f"a number of the type {value.dtype}", "Convert it first, such as to float64.")
    return {"dtype": value.dtype, "value": value.item()}


# -- columns and tables ------------------------------------------------------------------------------------------------


def _values(of: Any) -> Any:
    """Return the values of a series or an index as an array, one of pandas if its type is."""
    return of.to_numpy() if isinstance(of.dtype, np.dtype) else of.array[:]  # of no other object


def _take_column(values: Any) -> State:
    dtype = values.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return {"dtype": dtype, "codes": np.asarray(values.codes)}
    if isinstance(dtype, pd.DatetimeTZDtype):
        return {"dtype": dtype, "times": values.asi8}
    objects = np.array(values, dtype=object)
    objects[np.asarray(values.isna(), dtype=bool)] = None
    return {"dtype": dtype, "objects": objects}


def _make_column(dtype: Any, codes: Any = None, times: Any = None, objects: Any = None) -> Any:
    if codes is not None:
        return pd.Categorical.from_codes(codes, dtype=dtype)
    if times is not None:
        return pd.DatetimeIndex(times.view(f"M8[{dtype.unit}]"), tz="UTC").tz_convert(dtype.tz).array
    if sum(len(each) for each in objects if isinstance(each, str)) > LONGEST * (len(objects) + 1):
        raise ValueError(f"a column has texts of more than {LONGEST} characters on average")
    return pd.array(objects, dtype=dtype)


def _make_table(columns: dict[str, Any], names: Any, index: Any) -> pd.DataFrame:
    if any(len(each) != len(index) for each in columns.values()) or len(columns) != len(names):
        raise ValueError("its columns differ in length")
    if not columns and len(index) and isinstance(index, pd.RangeIndex):
        raise ValueError("it has rows of no columns")
    held = {i: _make_series(each, index, None) for i, each in enumerate(columns.values())}
    found = pd.DataFrame(held, index=index)
    found.columns = names
    return found


def _take_table(table: pd.DataFrame) -> State:
    columns = {str(i): _values(table.iloc[:, i]) for i in range(table.shape[1])}
    return {"columns": columns, "names": table.columns, "index": table.index}


def _make_series(values: Any, index: Any, name: Any) -> pd.Series[Any]:
    found: pd.Series[Any] = pd.Series(values, index, name=name, dtype=values.dtype, copy=False)
    return found


def _take_levels(index: pd.MultiIndex) -> State:
    table = index.to_frame(index=False, name=list(range(index.nlevels)))
    return {"table": table, "names": list(index.names)}


def _make_index(values: Any, name: Any) -> pd.Index[Any]:
    found: pd.Index[Any] = pd.Index(values, name=name, dtype=values.dtype)
    return found


_RANGE = ("start", "stop", "step", "name")
DATA = (
    Kind("scalar", np.generic, _take_scalar, lambda dtype, value: np.dtype(dtype).type(value)),
    Kind("NA", type(pd.NA), lambda _: {}, lambda: pd.NA),
    Kind("dtype", np.dtype, _take_dtype, _make_dtype),
    Kind("column type", pd.api.extensions.ExtensionDtype, _take_dtype, _make_dtype),
    Kind("values", np.ndarray, _take_array, _make_array),
    Kind("tensor", Tensor, lambda t: {"values": t.detach().cpu().numpy(), "grad": t.requires_grad}, _make_tensor),
    Kind("column", pd.api.extensions.ExtensionArray, _take_column, _make_column),
    Kind("range", pd.RangeIndex, lambda i: {each: getattr(i, each) for each in _RANGE}, pd.RangeIndex),
    Kind("levels", pd.MultiIndex, _take_levels, lambda table, names: pd.MultiIndex.from_frame(table, names=names)),
    Kind("index", pd.Index, lambda i: {"values": _values(i), "name": i.name}, _make_index),
    Kind("series", pd.Series, lambda s: {"values": _values(s), "index": s.index, "name": s.name}, _make_series),
    Kind("table", pd.DataFrame, _take_table, _make_table),
)  # fmt: skip
"""The kinds of data; the first that fits is that of an object."""
