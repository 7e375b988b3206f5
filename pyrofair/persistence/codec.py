"""Values as JSON and arrays, and back: data by its types, objects of a closed list of classes, and no code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyrofair._validation import did_you_mean, shown
from pyrofair.exceptions import DataError
from pyrofair.persistence.data import DATA, Kind, is_held
from pyrofair.persistence.files import Content

__all__ = ["Code", "NotGiven", "Reader", "Writer"]

DEEPEST = 100
"""Values are nested in each other at most so deep."""
CODE = {"program": True, "model": True, "guide": True, "source": True, "parameters": False, "numbers": True,
        "penalty": False, "optimizer": False, "families": True}  # fmt: skip
"""The attributes that may hold code of the user's, and whether an object is of no use without it."""
GROUPS: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
Json = Any


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


class Writer:
    """Turns a value into JSON and arrays. A value that cannot be saved is a DataError that names where it stands.

    ``find`` returns the kind of an object, or None if it is code or of a class that no file holds; ``describe`` what
    the program of a user's does, to be compared when it is given again.
    """

    def __init__(self, find: Callable[[Any], Kind | None], describe: Callable[[Any], Any]) -> None:
        self.find, self.describe = find, describe
        self.arrays: dict[str, NDArray[Any]] = {}
        self.codes: dict[str, Code] = {}
        self.described: list[dict[str, Any]] = []
        self._numbers: dict[int, int | None] = {}
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
        if type(value) is list:
            return [self._item(i, each) for i, each in enumerate(value)]
        if type(value) in GROUPS.values():
            ordered = value if isinstance(value, tuple) else sorted(value, key=repr)
            return {type(value).__name__: [self._item(i, each) for i, each in enumerate(ordered)]}
        if type(value) is dict:
            return {"dict": [[self.write(key), self._item(key, each)] for key, each in value.items()]}
        if (number := self._numbers.get(id(value), -1)) is None:
            raise DataError(f"{self._where()} holds itself, and such an object cannot be saved.")
        if number >= 0:
            return {"ref": number}  # one object is one after loading
        self._numbers[id(value)] = None
        found = self._object(value)
        self._kept.append(value)
        self._numbers[id(value)] = len(self._kept) - 1
        return found

    def _item(self, key: Any, value: Any) -> Json:
        with self._at(str(key)):
            return self.write(value)

    def _object(self, value: Any) -> Json:
        if type(value) is np.ndarray and is_held(value.dtype):
            name = str(len(self.arrays))
            self.arrays[name] = np.array(value, dtype=value.dtype.newbyteorder("="), order="C")
            by_columns = value.flags.f_contiguous and not value.flags.c_contiguous
            return {"array": name} | ({"order": "F"} if by_columns else {})
        if isinstance(value, Code):
            return self._code(value)
        try:
            kind = self.find(value) or next((each for each in DATA if isinstance(value, each.of)), None)
            state = {} if kind is None else kind.take(value)
        except DataError as error:
            raise DataError(f"{self._where()}: {error}" if self._path else str(error)) from error
        if kind is not None:
            return {"object": kind.name, "state": {name: self._item(name, each) for name, each in state.items()}}
        place = next((name for name in self._path[:-3:-1] if name in CODE), None)
        if place is None:
            raise DataError(
                f"{self._where()} is {_named(value)}, which is none of the classes that a file holds, and code is not "
                "saved. Save the parts that are, or what it was made of."
            )
        name = place if self._path[-1] == place else ".".join(self._path[-2:])
        return self._code(Code(name, value, CODE[place]))

    def _code(self, code: Code) -> Json:
        name = next((name for name, known in self.codes.items() if known.value is code.value), code.name)
        number = 2
        while name in self.codes and self.codes[name].value is not code.value:
            name, number = f"{code.name}_{number}", number + 1
        if name not in self.codes:
            self.codes[name] = code
            made = self.describe(code.value) if code.name == "program" else None
            described = {"name": name, "is": _named(code.value), "needed": False, "made": self._item(name, made)}
            self.described.append(described)
        next(each for each in self.described if each["name"] == name)["needed"] |= code.needed
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

    It makes data, and objects of the kinds in ``kinds``; it imports nothing that a file names, and calls nothing but
    the kinds' own ``make``. Each array is taken once, so that all of them fit the size of the file.
    """

    def __init__(
        self, kinds: Mapping[str, Kind], content: Content, given: Mapping[str, Any],
        compare: Callable[[str, Any, Any], None],
    ) -> None:  # fmt: skip
        self.kinds, self.arrays = {**kinds, **{each.name: each for each in DATA}}, dict(content.arrays)
        self.known: list[Any] = []
        self.depth = 0
        self.codes: dict[str, Any] = {}
        described: list[dict[str, Any]] = content.structure["code"]
        _require_given(described, given)
        for each in described:
            name = each["name"]
            self.codes[name] = given.get(name, NotGiven(name, each["is"]))
            before = self.read(each["made"])
            if name in given and before is not None:
                compare(name, before, given[name])

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
            found = self.kinds[value].make(**{str(name): self.read(each) for name, each in node["state"].items()})
        elif kind == "code":
            found = self.codes[value]
        else:
            raise ValueError(f"it holds {shown(kind)}, which means nothing")
        self.known.append(found)
        return found


def _require_given(described: list[dict[str, Any]], given: Mapping[str, Any]) -> None:
    """Refuse code that a file does not take, and a file without the code that it needs."""
    names = [each["name"] for each in described]
    if unknown := [name for name in given if name not in names]:
        raise DataError(
            f"given names {shown(unknown[0])}, which this file does not take. It takes "
            f"{', '.join(map(repr, names)) or 'nothing'}.{did_you_mean(unknown[0], names)}"
        )
    if missing := [each for each in described if each["needed"] and each["name"] not in given]:
        listed = "; ".join(f"{each['name']!r}, which was {each['is']}" for each in missing)
        raise DataError(
            f"What was saved runs code of yours, and code is in no file: {listed}. Give it again: "
            f"pyrofair.load(path, given={{{missing[0]['name']!r}: ...}})."
        )
