"""Values as JSON and arrays, and back: data by its types, objects of a closed list of classes, and no code."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyrofair._validation import did_you_mean, shown
from pyrofair.exceptions import DataError
from pyrofair.persistence.classes import KINDS, find_kind, refuse_skops
from pyrofair.persistence.data import DATA, bytes_of, is_held
from pyrofair.persistence.files import Content
from pyrofair.persistence.programs import compare_programs, describe_program

__all__ = ["NotGiven", "Reader", "Writer"]

DEEPEST = 100
"""Values are nested in each other at most so deep."""
CODE = {"program": True, "model": True, "guide": True, "source": True, "parameters": False, "numbers": True,
        "penalty": False, "optimizer": False, "families": True}  # fmt: skip
"""The attributes that may hold code of the user's, and whether an object is of no use without it."""
MOST, SPARE = 64, 2**20
"""What is made of a file takes at most so many times its size, and so many bytes besides."""
GROUPS: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
Json = Any


@dataclass(frozen=True)
class NotGiven:
    """Stands for a function that was not given again; calling it is a DataError."""

    name: str
    what: str

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Refuse."""
        what = f"This object was loaded without its {self.name} ({self.what}), which is code and in no file"
        raise DataError(f"{what}. Load it with given={{{self.name!r}: ...}}.")


class Writer:
    """Turns a value into JSON and arrays. A value that cannot be saved is a DataError that names where it stands."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self.codes: dict[str, Any] = {}
        self.described: dict[str, dict[str, Any]] = {}
        self._known: dict[int, tuple[int, Any]] = {}
        self._path: list[str] = []

    def _where(self, last: int = 20) -> str:
        return ".".join(self._path[-last:]) or "it"

    def write(self, value: Any) -> Json:
        """Return a value as JSON; what it refers to is in ``arrays``."""
        if value is None or isinstance(value, bool | str) or type(value) is int:
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if type(value) is list:
            return [self._item(i, each) for i, each in enumerate(value)]
        if type(value) in GROUPS.values():
            ordered = value if isinstance(value, tuple) else sorted(value, key=repr)
            return {type(value).__name__: [self._item(i, each) for i, each in enumerate(ordered)]}
        if type(value) is dict:
            return {"dict": [[self.write(key), self._item(key, each)] for key, each in value.items()]}
        if id(value) in self._known:
            return {"ref": self._known[id(value)][0]}  # one object is one after loading
        found = self._object(value)
        self._known[id(value)] = len(self._known), value  # which keeps its id
        return found

    def _item(self, key: Any, value: Any) -> Json:
        self._path.append(str(key))
        if len(self._path) > DEEPEST:
            raise DataError(f"The object is nested more than {DEEPEST} levels deep, at {self._where(12)}.")
        found = self.write(value)
        self._path.pop()
        return found

    def _object(self, value: Any) -> Json:
        if type(value) is np.ndarray and is_held(value.dtype):
            name = str(len(self.arrays))
            self.arrays[name] = np.array(value, dtype=value.dtype.newbyteorder("="), order="C")
            by_columns = value.flags.f_contiguous and not value.flags.c_contiguous
            return {"array": name} | ({"order": "F"} if by_columns else {})
        try:
            kind = find_kind(value) or next((each for each in DATA if isinstance(value, each.of)), None)
            state = {} if kind is None else kind.take(value)
        except DataError as error:
            raise DataError(f"{self._where()}: {error}" if self._path else str(error)) from error
        if kind is None:
            return self._code(value)
        return {"object": kind.name, "state": {name: self._item(name, each) for name, each in state.items()}}

    def _code(self, value: Any) -> Json:
        place = next((name for name in self._path[:-3:-1] if name in CODE), None)
        if place is None:
            what = f"{self._where()} is {_named(value)}, which is none of the classes that a file holds"
            raise DataError(f"{what}, and code is not saved. Save the parts that are, or what it was made of.")
        name = next((name for name, known in self.codes.items() if known is value), None)
        if name is None:
            name = first = place if self._path[-1] == place else ".".join(self._path[-2:])
            while name in self.codes:
                name = f"{first}_{1 + len(self.codes)}"
            self.codes[name] = value
            made = describe_program(value) if place == "program" else None
            self.described[name] = {"is": _named(value), "needed": False, "made": self.write(made)}
        self.described[name]["needed"] |= CODE[place]
        return {"code": name}


def _named(value: Any) -> str:
    """Return what a value is, for a message."""
    if isinstance(value, NotGiven):
        return value.what
    if isinstance(name := getattr(value, "__qualname__", None), str):
        return f"{'the class' if isinstance(value, type) else 'the function'} {name}"
    return f"an object of the class {type(value).__qualname__}"


class Reader:
    """Turns JSON and arrays into the value again.

    It makes data, and objects of the closed list; it imports nothing that a file names, and calls nothing but the
    kinds' own ``make``. Each array is taken once, and what an object is made of is counted before: all of it together
    takes at most :data:`MOST` times the size of the file, so that no file makes more than it holds.
    """

    def __init__(self, content: Content, given: Mapping[str, Any], *, skops: bool = False) -> None:
        self.kinds = {each.name: each for each in (*DATA, *KINDS.values())}
        if not skops:
            self.kinds["skops"] = replace(self.kinds["skops"], make=refuse_skops)
        self.arrays = dict(content.arrays)
        self.left = MOST * content.size + SPARE
        self.known: list[Any] = []
        self.depth = 0
        described: dict[str, dict[str, Any]] = content.structure["code"]
        _require_given(described, given)
        self.codes = {name: given.get(name, NotGiven(name, each["is"])) for name, each in described.items()}
        for name, each in described.items():
            before = self.read(each["made"])
            if name in given and before is not None:
                compare_programs(name, before, given[name])

    def read(self, node: Json) -> Any:
        """Return the value of a node; one that means nothing raises an error of any class."""
        if node is None or isinstance(node, bool | str | int | float):
            return node
        self.depth += 1
        if self.depth > 3 * DEEPEST:
            raise ValueError("it is nested too deep")
        found = [self.read(each) for each in node] if isinstance(node, list) else self._read(node)
        self.depth -= 1
        return found

    def _read(self, node: dict[str, Json]) -> Any:
        kind, value = next(iter(node.items()))
        if kind == "float":
            return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[value]
        if kind in GROUPS:
            return GROUPS[kind](self.read(each) for each in value)
        if kind == "dict":
            return {self.read(key): self.read(each) for key, each in value}
        if kind == "ref":
            if type(value) is not int or not 0 <= value < len(self.known):
                raise ValueError(f"it refers to the object {shown(value)} of {len(self.known)}")
            return self.known[value]
        if kind == "array":
            found = np.array(self.arrays.pop(value), order=node.get("order", "C"))  # a copy, which can be written to
        elif kind == "object":
            state = {str(name): self.read(each) for name, each in node["state"].items()}
            self.left -= bytes_of(state)
            if self.left < 0:
                raise ValueError(f"it declares more than {MOST} times what the file holds")
            found = self.kinds[value].make(**state)
        elif kind == "code":
            found = self.codes[value]
        else:
            raise ValueError(f"it holds {shown(kind)}, which means nothing")
        self.known.append(found)
        return found


def _require_given(described: Mapping[str, Mapping[str, Any]], given: Mapping[str, Any]) -> None:
    """Refuse code that a file does not take, and a file without the code that it needs."""
    if unknown := [name for name in given if name not in described]:
        taken = f"It takes {', '.join(map(repr, described)) or 'nothing'}.{did_you_mean(unknown[0], described)}"
        raise DataError(f"given names {shown(unknown[0])}, which this file does not take. {taken}")
    if missing := {name: each["is"] for name, each in described.items() if each["needed"] and name not in given}:
        listed = "; ".join(f"{name!r}, which was {what}" for name, what in missing.items())
        raise DataError(
            f"What was saved runs code of yours, and code is in no file: {listed}. Give it again: "
            f"pyrofair.load(path, given={{{next(iter(missing))!r}: ...}})."
        )
