"""Whether values are of the types that a dataclass declares, so that a file makes no object that fails later."""

from __future__ import annotations

import collections.abc
import types
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from pyrofair._validation import shown
from pyrofair.persistence.codec import NotGiven

__all__ = ["require_types"]

NUMBERS = {"f": "fiub", "i": "iub", "u": "iub", "b": "b"}
"""The kinds of numbers that an array may have where its type is declared."""


def require_types(of: type, state: Mapping[str, Any]) -> None:
    """Refuse a field of a dataclass whose value is not of the type that the class declares."""
    hints = _hints(of)
    for name, value in state.items():
        if not _fits(value, hints[name]):
            raise TypeError(f"{of.__name__}.{name} is of the type {type(value).__name__}: {shown(value)}")


@lru_cache
def _hints(of: type) -> dict[str, Any]:
    """Return the types of the fields; a type that takes no parameters when the program runs is itself."""
    found: dict[str, Any] = {}
    for each in fields(of):
        text = str(each.type).replace("pd.Index[Any]", "pd.Index")
        module = next(base.__module__ for base in of.__mro__ if each.name in vars(base).get("__annotations__", ()))
        bearer = type(of.__name__, (), {"__annotations__": {each.name: text}, "__module__": module})
        found |= get_type_hints(bearer)
    return found


def _fits(value: Any, hint: Any) -> bool:
    hint = _without_names(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(value, NotGiven):
        return True
    if hint is None or hint is type(None):
        return value is None
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in inner)
    if origin is np.ndarray:
        return _is_array(value, get_args(inner[1])[0])
    if origin is not None:
        return _holds(value, origin, inner)
    if hint is float:
        return isinstance(value, float | int | np.floating | np.integer)
    if hint in (int, bool):
        return isinstance(value, {int: int | np.integer, bool: bool | np.bool_}[hint])
    if hint is Hashable:
        return _is_hashable(value)
    if getattr(hint, "_is_protocol", False):
        return all(hasattr(value, name) for name in vars(hint) if not name.startswith("_"))
    return isinstance(value, hint) if isinstance(hint, type) else True


def _without_names(hint: Any) -> Any:
    """Return the type that a name made by a `type` statement stands for, as numpy's NDArray since Python 3.12."""
    while hasattr(base := get_origin(hint) or hint, "__value__"):
        inner = get_args(hint)
        hint = base.__value__[inner] if inner else base.__value__
    return hint


def _is_array(value: Any, dtype: Any) -> bool:
    if not isinstance(value, np.ndarray):
        return False
    return dtype is Any or value.dtype.kind in NUMBERS.get(np.dtype(dtype).kind, value.dtype.kind)


def _holds(value: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    """Return whether a container is one, with values of the types declared."""
    if origin is collections.abc.Callable:
        return callable(value)
    if not isinstance(value, origin) or isinstance(value, str):
        return False
    if isinstance(value, Mapping):
        return all(_fits(key, inner[0]) and _fits(each, inner[1]) for key, each in value.items())
    if origin is tuple and inner[-1] is not Ellipsis:
        return len(value) == len(inner) and all(_fits(*pair) for pair in zip(value, inner, strict=True))
    if origin in (tuple, list, Sequence):
        return all(_fits(each, inner[0]) for each in value)
    return True


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
