"""Values as JSON and arrays, and back: data by its types, objects of a closed list of classes, and no code."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyrofair._validation import did_you_mean, shown
from pyrofair.exceptions import DataError
from pyrofair.persistence.files import Content

__all__ = ["Code", "Kind", "Kinds", "NotGiven", "Reader", "Writer"]

DEEPEST = 100
"""Values are nested in each other at most so deep."""
MASKED = {str(dtype): dtype for dtype in (
    pd.BooleanDtype(), pd.Int8Dtype(), pd.Int16Dtype(), pd.Int32Dtype(), pd.Int64Dtype(), pd.UInt8Dtype(),
    pd.UInt16Dtype(), pd.UInt32Dtype(), pd.UInt64Dtype(), pd.Float32Dtype(), pd.Float64Dtype(),
)}  # fmt: skip
"""The pandas types of numbers that may be missing."""
ARROW = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double", "string",
         "large_string")  # fmt: skip
"""The Arrow types of columns that are saved."""
HELD = [
    "float64",
    "float32",
    "float16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint64",
    "uint32",
    "uint16",
    "uint8",
    "bool",
]
"""The types of numbers that a file holds as they are."""
SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
UNITS = ("s", "ms", "us", "ns")
FEW = 10_000
"""A range of rows may be so long besides the number of bytes of the file."""
LAST = {"MT19937": 624, "Philox": 4}
"""The last position of generators that make several numbers at once."""
Json = Any


@dataclass(frozen=True)
class Kind:
    """How objects of one class are saved.

    ``take`` returns the state of an object as values by name, and ``make`` an object from them; neither sees a file.
    What cannot be saved is a DataError of ``take`` that names the way out, and what makes no object one of ``make``.
    """

    name: str
    of: type
    take: Callable[[Any], dict[str, Any]]
    make: Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class Kinds:
    """The closed list of classes and functions that a file can name, and what saves estimators of scikit-learn."""

    classes: Mapping[type, Kind]
    functions: Mapping[str, Callable[..., Any]]
    to_skops: Callable[[Any], bytes | None]
    from_skops: Callable[[bytes], Any]
    fingerprint: Callable[[Any], Any]
    compare: Callable[[str, Any, Any], None]


@dataclass(frozen=True, eq=False)
class Code:
    """A function, a module or an object of the user's, which is not saved, under the name by which it is given again.

    ``needed``: nothing can be loaded without it.
    """

    name: str
    value: Any
    needed: bool


@dataclass(frozen=True)
class NotGiven:
    """Stands for a function that was not given again; calling it is a DataError."""

    name: str
    what: str

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Refuse."""
        raise DataError(
            f"This object was loaded without its {self.name} ({self.what}), which is code and in no file. Load it with "
            f"given={{{self.name!r}: ...}}."
        )


CODE = {"program": True, "model": True, "guide": True, "source": True, "parameters": False, "numbers": True,
        "penalty": False, "optimizer": False, "families": True}  # fmt: skip
"""The attributes that may hold code of the user's, and whether an object is of no use without it."""


class Writer:
    """Turns a value into JSON and arrays. What cannot be saved is a DataError that names where it stands."""

    def __init__(self, kinds: Kinds) -> None:
        self.kinds = kinds
        self.arrays: dict[str, NDArray[Any]] = {}
        self.codes: dict[str, Code] = {}
        self.described: list[dict[str, Any]] = []
        self.by_skops: list[str] = []
        self._numbers: dict[int, int] = {}
        self._open: set[int] = set()
        self._kept: list[Any] = []
        self._path: list[str] = []

    @contextmanager
    def _at(self, name: str) -> Iterator[None]:
        self._path.append(name)
        if len(self._path) > DEEPEST:
            raise DataError(f"The object is nested more than {DEEPEST} levels deep, at {self._where(12)}.")
        yield
        self._path.pop()

    def _where(self, last: int = 20) -> str:
        return ".".join(self._path[-last:]) or "it"

    def write(self, value: Any) -> Json:
        """Return a value as JSON; what it refers to is in ``arrays``."""
        if value is None or isinstance(value, bool | str) or type(value) is int:
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, np.generic) and value.dtype.kind in "biufc":
            self._require_held(value.dtype)
            return {"scalar": value.dtype.name, "of": self.write(value.item())}
        if value is pd.NA:
            return {"scalar": "NA"}
        if type(value) is list:
            return [self._item(i, each) for i, each in enumerate(value)]
        if type(value) in (tuple, set, frozenset):
            ordered = value if isinstance(value, tuple) else sorted(value, key=repr)
            return {type(value).__name__: [self._item(i, each) for i, each in enumerate(ordered)]}
        if type(value) is dict:
            return {"dict": [[self.write(key), self._item(key, each)] for key, each in value.items()]}
        if self._is_dtype(value):
            return {"dtype": self._dtype(value)}
        return self._shared(value)

    def _item(self, key: Any, value: Any) -> Json:
        with self._at(str(key)):
            return self.write(value)

    def _shared(self, value: Any) -> Json:
        """Return an object, the second time by its number: what was one object is one after loading."""
        if (number := self._numbers.get(id(value))) is not None:
            return {"ref": number}
        if id(value) in self._open:
            raise DataError(f"{self._where()} holds itself, and such an object cannot be saved.")
        self._open.add(id(value))
        found = self._object(value)
        self._open.discard(id(value))
        self._kept.append(value)
        self._numbers[id(value)] = len(self._numbers)
        return found

    def _object(self, value: Any) -> Json:
        if type(value) is np.ndarray:
            return self._array(value)
        if type(value) is Tensor:
            return {"tensor": self._held(value.detach().cpu().numpy()), "grad": bool(value.requires_grad)}
        if isinstance(value, pd.Index):
            return self._index(value)
        if type(value) is pd.Series:
            return {
                "series": self._column(value.array),
                "index": self.write(value.index),
                "name": self.write(value.name),
            }
        if type(value) is pd.DataFrame:
            columns = [self._item(name, value.iloc[:, i].array) for i, name in enumerate(value.columns)]
            return {"table": columns, "index": self.write(value.index), "columns": self.write(value.columns)}
        if isinstance(value, pd.api.extensions.ExtensionArray):
            return {"column": self._column(value)}
        if type(value) in (np.random.RandomState, np.random.Generator):
            return self._generator(value)
        return self._instance(value)

    def _instance(self, value: Any) -> Json:
        kind = self.kinds.classes.get(type(value))
        if kind is not None:
            try:
                state = kind.take(value)
            except DataError as error:
                raise DataError(f"{self._where()}: {error}" if self._path else str(error)) from error
            return {"object": kind.name, "state": {name: self._item(name, each) for name, each in state.items()}}
        for name, function in self.kinds.functions.items():
            if value is function:
                return {"function": name}
        if isinstance(value, Code):
            return self._code(value)
        place = next((name for name in reversed(self._path) if name in CODE), None)
        is_here = place is not None and (self._path[-1] == place or place in self._path[-2:])
        if (data := self.kinds.to_skops(value)) is not None:
            name = self._held(np.frombuffer(data, dtype=np.uint8))
            self.by_skops.append(name)
            return {"skops": name}
        if not is_here or place is None:
            raise DataError(
                f"{self._where()} is {_named(value)}, which is none of the classes that a file holds, and code is not "
                "saved. Save the parts that are, or what it was made of."
            )
        name = place if self._path[-1] == place else ".".join(self._path[-2:])
        return self._code(Code(name, value, CODE[place]))

    def _code(self, code: Code) -> Json:
        same = (name for name, known in self.codes.items() if known.value is code.value)
        name = next(same, code.name)
        number = 2
        while name in self.codes and self.codes[name].value is not code.value:
            name, number = f"{code.name}_{number}", number + 1
        if name not in self.codes:
            self.codes[name] = code
            made = self.kinds.fingerprint(code.value) if code.name == "program" else None
            with self._at("fingerprint"):
                described = {"name": name, "is": _named(code.value), "needed": code.needed, "made": self.write(made)}
            self.described.append(described)
        if code.needed:
            next(each for each in self.described if each["name"] == name)["needed"] = True
        return {"code": name}

    # -- arrays and tables --------------------------------------------------------------------------------------------

    def _require_held(self, dtype: np.dtype[Any]) -> None:
        if dtype.name not in HELD:
            raise DataError(
                f"{self._where()} holds numbers of the type {dtype}, which no file holds. Convert them first, such as "
                "to float64."
            )

    def _held(self, values: NDArray[Any]) -> str:
        self._require_held(values.dtype)
        name = str(len(self.arrays))
        self.arrays[name] = np.array(values, dtype=values.dtype.newbyteorder("="), order="C")
        return name

    def _array(self, values: NDArray[Any]) -> Json:
        if values.dtype.kind == "O":
            return self._objects(values)
        if values.dtype.kind == "U":
            return self._text(values)
        if values.dtype.kind in "mM":
            return {"array": self._held(values.view(np.int64)), "as": values.dtype.str}
        by_columns = values.flags.f_contiguous and not values.flags.c_contiguous
        return {"array": self._held(values)} | ({"order": "F"} if by_columns else {})

    def _text(self, values: NDArray[Any]) -> Json:
        """Return an array of texts of one length as their code points, which take the memory of the array itself."""
        length = max(1, values.dtype.itemsize // 4)
        plain = np.ascontiguousarray(values, dtype=f"=U{length}").reshape(-1)
        return {"array": self._held(plain.view(np.uint32).reshape(*values.shape, length)), "as": f"U{length}"}

    def _objects(self, values: NDArray[Any]) -> Json:
        """Return an array of objects as its distinct values and their codes."""
        levels: dict[tuple[type, str], int] = {}
        distinct: list[Any] = []
        codes = np.empty(values.size, dtype=np.int32)
        for i, value in enumerate(values.ravel().tolist()):
            key = (type(value), value if type(value) is str else repr(value))
            if key not in levels:
                levels[key] = len(distinct)
                distinct.append(value)
            codes[i] = levels[key]
        return {"objects": [self._item(i, each) for i, each in enumerate(distinct)],
                "codes": self._held(codes.reshape(values.shape))}  # fmt: skip

    def _index(self, index: pd.Index[Any]) -> Json:
        name = {"name": self.write(index.name)}
        if type(index) is pd.RangeIndex:
            return {"range": [index.start, index.stop, index.step]} | name
        if isinstance(index, pd.MultiIndex):
            levels = [self.write(level) for level in index.levels]
            codes = [self._held(np.asarray(each, dtype=np.int64)) for each in index.codes]
            return {"multi": levels, "codes": codes, "names": self.write(list(index.names))}
        if isinstance(index, pd.PeriodIndex | pd.IntervalIndex):
            raise DataError(f"{self._where()} is a {type(index).__name__}, which no file holds. Use plain labels.")
        return {"index": self._column(index.array)} | name

    def _column(self, values: Any) -> Json:
        """Return a pandas array with its type."""
        if type(values) in (np.ndarray, pd.arrays.NumpyExtensionArray):
            return self._array(np.asarray(values))
        dtype = values.dtype
        if isinstance(dtype, np.dtype):  # times without a zone
            return self._array(np.asarray(values))
        as_dtype = {"as": self._dtype(dtype)}
        if isinstance(dtype, pd.CategoricalDtype):
            return {"codes": self._held(np.asarray(values.codes))} | as_dtype
        missing = np.asarray(values.isna(), dtype=bool)
        if str(dtype) in MASKED:
            plain = values.to_numpy(dtype=dtype.numpy_dtype, na_value=dtype.numpy_dtype.type(0))
            return {"numbers": self._held(plain), "missing": self._held(missing)} | as_dtype
        if isinstance(dtype, pd.DatetimeTZDtype):
            return {"times": self._held(values.asi8)} | as_dtype
        plain = np.array(values, dtype=object)
        plain[missing] = None
        return {"objects": self._objects(plain)} | as_dtype

    @staticmethod
    def _is_dtype(value: Any) -> bool:
        return isinstance(value, np.dtype | pd.api.extensions.ExtensionDtype)

    def _dtype(self, dtype: Any) -> Json:
        if isinstance(dtype, np.dtype) and (dtype.name in HELD or dtype.kind == "O"):
            return dtype.name
        if isinstance(dtype, np.dtype) and dtype.kind in "mM":
            return dtype.str
        if isinstance(dtype, pd.CategoricalDtype):
            known = None if dtype.categories is None else self.write(dtype.categories)
            return {"categories": known, "ordered": bool(dtype.ordered)}
        if str(dtype) in MASKED and type(dtype) is type(MASKED[str(dtype)]):
            return {"masked": str(dtype)}
        if isinstance(dtype, pd.StringDtype):
            return {"string": dtype.storage, "missing": "NA" if dtype.na_value is pd.NA else "nan"}
        if isinstance(dtype, pd.DatetimeTZDtype):
            return {"zone": str(dtype.tz), "unit": dtype.unit}
        if isinstance(dtype, pd.ArrowDtype) and str(dtype.pyarrow_dtype) in ARROW:
            return {"arrow": str(dtype.pyarrow_dtype)}
        raise DataError(
            f"{self._where()} has the type {dtype}, which no file holds. Convert it before fitting, to numbers, text "
            "or pandas categories."
        )

    def _generator(self, value: Any) -> Json:
        state = value.get_state(legacy=False) if isinstance(value, np.random.RandomState) else value.bit_generator.state
        return {"generator": type(value).__name__, "of": self.write(state)}


def _named(value: Any) -> str:
    """Return what a value is, for a message."""
    if isinstance(value, NotGiven):
        return value.what
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str):
        return f"{'the class' if isinstance(value, type) else 'the function'} {name}"
    return f"an object of the class {type(value).__qualname__}"


class Reader:
    """Turns JSON and arrays into the value again.

    It makes data, and objects of the classes in ``kinds``; it imports nothing that a file names, and calls nothing but
    what these classes' own ``make`` calls. Codes, positions, lengths and shapes are compared with what is there.
    """

    def __init__(self, kinds: Kinds, content: Content, given: Mapping[str, Any], *, skops: bool) -> None:
        self.kinds, self.arrays, self.skops = kinds, content.arrays, skops
        self.classes = {kind.name: kind for kind in kinds.classes.values()}
        self.known: list[Any] = []
        self.taken: set[str] = set()
        self.longest = FEW + sum(each.nbytes for each in content.arrays.values())
        self.depth = 0
        self.codes: dict[str, Any] = {}
        self._take_codes(content.structure["code"], given)

    def _take_codes(self, described: list[dict[str, Any]], given: Mapping[str, Any]) -> None:
        names = [each["name"] for each in described]
        if unknown := [name for name in given if name not in names]:
            raise DataError(
                f"given names {shown(unknown[0])}, which this file does not take. It takes "
                f"{', '.join(map(repr, names)) or 'nothing'}.{did_you_mean(unknown[0], names)}"
            )
        missing = [each for each in described if each["needed"] and each["name"] not in given]
        if missing:
            listed = "; ".join(f"{each['name']!r}, which was {each['is']}" for each in missing)
            raise DataError(
                f"What was saved runs code of yours, and code is in no file: {listed}. Give it again: "
                f"pyrofair.load(path, given={{{missing[0]['name']!r}: ...}})."
            )
        for each in described:
            name = each["name"]
            self.codes[name] = given.get(name, NotGiven(name, each["is"]))
            before = self.read(each["made"])
            if name in given and before is not None:
                self.kinds.compare(name, before, given[name])

    def read(self, node: Json) -> Any:
        """Return the value of a node; one that means nothing raises any of the errors that :func:`load` turns."""
        if node is None or isinstance(node, bool | str | int | float):
            return node
        self.depth += 1
        if self.depth > 2 * DEEPEST:
            raise ValueError("it is nested too deep")
        found = [self.read(each) for each in node] if isinstance(node, list) else self._read(node)
        self.depth -= 1
        return found

    def _read(self, node: dict[str, Json]) -> Any:
        kind = next(iter(node))
        if kind == "float":
            return SPECIAL[node[kind]]
        if kind == "scalar":
            return self._scalar(node)
        if kind in ("tuple", "set", "frozenset"):
            made: Any = {"tuple": tuple, "set": set, "frozenset": frozenset}[kind]
            return made(self.read(each) for each in node[kind])
        if kind == "dict":
            return {self.read(key): self.read(value) for key, value in node[kind]}
        if kind == "dtype":
            return self._dtype(node[kind])
        if kind == "ref":
            return self.known[_position(node[kind], len(self.known))]
        found = self._shared(kind, node)
        self.known.append(found)
        return found

    def _shared(self, kind: str, node: dict[str, Json]) -> Any:
        if kind in ("array", "objects"):
            return self._column(node)
        if kind == "tensor":
            found = torch.from_numpy(self._held(node[kind]))
            return found.requires_grad_(bool(node["grad"])) if found.is_floating_point() else found
        if kind in ("range", "multi", "index"):
            return self._index(kind, node)
        if kind == "series":
            values = self._column(node[kind])
            index, name = self.read(node["index"]), self.read(node["name"])
            return pd.Series(values, index=index, name=name, dtype=values.dtype, copy=False)
        if kind == "table":
            return self._table(node)
        if kind == "column":
            return self._column(node[kind])
        if kind == "generator":
            return self._generator(node)
        if kind == "object":
            made = self.classes[node[kind]]
            return made.make({str(name): self.read(each) for name, each in node["state"].items()})
        if kind == "function":
            return self.kinds.functions[node[kind]]
        if kind == "code":
            return self.codes[node[kind]]
        if kind == "skops":
            return self._from_skops(node[kind])
        raise ValueError(f"it holds {shown(kind)}, which means nothing")

    def _from_skops(self, name: str) -> Any:
        if not self.skops:
            raise DataError(
                "The file holds an estimator of scikit-learn that skops wrote, whose compiled parts are not checked "
                "before they are used. If you trust the file, load it with skops=True."
            )
        return self.kinds.from_skops(self._held(name).tobytes())

    def _scalar(self, node: dict[str, Json]) -> Any:
        name = node["scalar"]
        if name == "NA":
            return pd.NA
        return np.dtype(HELD[HELD.index(name)]).type(self.read(node["of"]))

    # -- arrays and tables --------------------------------------------------------------------------------------------

    def _held(self, name: str) -> NDArray[Any]:
        """Return a copy of an array, which can be written to; each is taken once, so that all fit the file's size."""
        if name in self.taken:
            raise ValueError(f"it holds the array {shown(name)} twice")
        self.taken.add(name)
        return np.array(self.arrays[name])

    def _column(self, node: dict[str, Json]) -> Any:
        """Return an array, or a pandas array."""
        if "array" in node:
            found = self._held(node["array"])
            if "as" in node:
                dtype = np.dtype(str(node["as"]))
                if dtype.kind == "U":
                    return _read_text(found, dtype)
                if dtype.kind not in "mM" or dtype.itemsize != 8:
                    raise ValueError(f"{dtype} is no type of times")
                return found.view(dtype)
            return np.asfortranarray(found) if node.get("order") == "F" else found
        if "as" not in node:
            return self._objects(node)
        dtype = self._dtype(node["as"])
        if "codes" in node and isinstance(dtype, pd.CategoricalDtype):
            return pd.Categorical.from_codes(self._held(node["codes"]), dtype=dtype)
        if "numbers" in node:
            numbers, missing = self._held(node["numbers"]), self._held(node["missing"])
            found_array: Any = pd.array(numbers, dtype=dtype)
            found_array[missing] = pd.NA
            return found_array
        if "times" in node:
            times = pd.DatetimeIndex(self._held(node["times"]).view(f"M8[{dtype.unit}]"), tz="UTC")
            return times.tz_convert(dtype.tz).array
        return pd.array(self._objects(node["objects"]), dtype=dtype)

    def _objects(self, node: dict[str, Json]) -> NDArray[Any]:
        levels = np.empty(len(node["objects"]), dtype=object)
        for i, each in enumerate(node["objects"]):
            levels[i] = self.read(each)
        codes = self._held(node["codes"])
        if codes.dtype.kind not in "iu" or (codes.size and not 0 <= codes.min() <= codes.max() < len(levels)):
            raise ValueError("it has codes without a value")
        found = levels[codes]
        return np.asarray(found, dtype=object).reshape(codes.shape)

    def _index(self, kind: str, node: dict[str, Json]) -> pd.Index[Any]:
        if kind == "range":
            start, stop, step = (int(each) for each in node["range"])
            if len(range(start, stop, step)) > self.longest:
                raise ValueError("it has a range of more rows than it has bytes")
            return pd.RangeIndex(start, stop, step, name=self.read(node["name"]))
        if kind == "multi":
            levels = [self.read(each) for each in node["multi"]]
            codes: list[Any] = [self._held(each) for each in node["codes"]]
            return pd.MultiIndex(levels, codes, names=self.read(node["names"]))
        values = self._column(node["index"])
        found: pd.Index[Any] = pd.Index(values, name=self.read(node["name"]), dtype=values.dtype)
        return found

    def _table(self, node: dict[str, Json]) -> pd.DataFrame:
        columns = [self.read(each) for each in node["table"]]
        index, names = self.read(node["index"]), self.read(node["columns"])
        if any(len(each) != len(index) for each in columns) or len(columns) != len(names):
            raise ValueError("its columns differ in length")
        held = {i: pd.Series(each, index=index, dtype=each.dtype, copy=False) for i, each in enumerate(columns)}
        found = pd.DataFrame(held, index=index)
        found.columns = names
        return found

    def _dtype(self, node: Json) -> Any:
        if isinstance(node, str):
            dtype = np.dtype(node)
            if dtype.name not in HELD and dtype.kind not in "OmM":
                raise ValueError(f"{dtype} is no type of a column")
            return dtype
        if "categories" in node:
            known = None if node["categories"] is None else self.read(node["categories"])
            return pd.CategoricalDtype(known, ordered=bool(node["ordered"]))
        if "masked" in node:
            return MASKED[node["masked"]]
        if "string" in node:
            storage = ("python", "pyarrow")[("python", "pyarrow").index(node["string"])]
            if node["missing"] == "NA":
                return pd.StringDtype(storage)
            if "na_value" not in signature(pd.StringDtype).parameters:
                raise ValueError("it has columns of text of a type that pandas 2.3 brought; install a newer pandas")
            return pd.StringDtype(storage, na_value=np.nan)
        if "zone" in node:
            unit: Any = UNITS[UNITS.index(node["unit"])]
            return pd.DatetimeTZDtype(unit, tz=str(node["zone"]))
        return pd.ArrowDtype(_arrow(ARROW[ARROW.index(node["arrow"])]))

    def _generator(self, node: dict[str, Json]) -> Any:
        state = self.read(node["of"])
        names = ("MT19937",) if node["generator"] == "RandomState" else GENERATORS
        kind = names[names.index(state["bit_generator"])]
        _require_position(kind, state)
        made: Any = getattr(np.random, kind)(0)
        made.state = state
        if node["generator"] == "Generator":
            return np.random.Generator(made)
        found = np.random.RandomState(made)
        found.set_state(state)
        return found


def _position(number: Any, size: int) -> int:
    if type(number) is not int or not 0 <= number < size:
        raise ValueError(f"it refers to the object {shown(number)} of {size}")
    return number


def _require_position(kind: str, state: Mapping[str, Any]) -> None:
    """Refuse a position at which a generator of numpy would read outside its memory; it does not look itself."""
    place, key = {"MT19937": (state["state"], "pos"), "Philox": (state, "buffer_pos")}.get(kind, ({}, ""))
    if key and not (isinstance(place[key], int | np.integer) and 0 <= place[key] <= LAST[kind]):
        raise ValueError(f"its generator stands at {shown(place[key])}")


def _read_text(points: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Return code points, one text along the last axis, as an array of texts."""
    if points.dtype != np.uint32 or points.ndim == 0 or dtype.itemsize != 4 * points.shape[-1]:
        raise ValueError("it has texts of another length")
    if (points > sys.maxunicode).any():
        raise ValueError("it has a text of no characters")
    texts: NDArray[Any] = np.ascontiguousarray(points).reshape(-1).view(dtype).reshape(points.shape[:-1])
    return texts


def _arrow(name: str) -> Any:
    import pyarrow as pa

    return pa.type_for_alias(name)
