"""Whether values are of the types that a class declares, so that a file makes no object that fails later."""

from __future__ import annotations

import collections.abc
import contextlib
import types
from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from pyrofair._validation import shown

__all__ = ["require_types"]

NUMBERS = {"f": "fiub", "i": "iub", "u": "iub", "b": "b"}
"""The kinds of numbers that an array may have where its type is declared."""
SCALARS: dict[Any, Any] = {float: float | int | np.floating | np.integer, int: int | np.integer, bool: bool | np.bool_}


def require_types(of: type, state: Mapping[str, Any], stands_for: type) -> None:
    """Refuse an attribute whose value is not of the type that the class declares for it, if it declares one.

    A value of the class ``stands_for`` takes the place of a function that is given later.
    """
    hints = _hints(of)
    for name, value in state.items():
        if name in hints and not isinstance(value, stands_for) and not _fits(value, hints[name]):
            raise TypeError(f"{of.__name__}.{name} is of the type {type(value).__name__}: {shown(value)}")


@lru_cache
def _hints(of: type) -> dict[str, Any]:
    """Return the declared types; a type that takes no parameters when the program runs is itself."""
    found: dict[str, Any] = {}
    for base in (each for each in reversed(of.__mro__) if each.__module__.startswith("pyrofair.")):
        for name, text in vars(base).get("__annotations__", {}).items():
            own = {"__annotations__": {name: str(text).replace("pd.Index[Any]", "pd.Index")}}
            with contextlib.suppress(NameError):  # a class that type checkers alone import
                found |= get_type_hints(type(of.__name__, (), own | {"__module__": base.__module__}))
    return {name: hint for name, hint in found.items() if get_origin(hint) is not ClassVar}


def _fits(value: Any, hint: Any) -> bool:
    while hasattr(base := get_origin(hint) or hint, "__value__"):  # a name made by a `type` statement, as NDArray is
        hint = base.__value__[inner] if (inner := get_args(hint)) else base.__value__
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in inner)
    if origin is np.ndarray:
        dtype = get_args(inner[1])[0]
        kind = "" if dtype is Any else np.dtype(dtype).kind
        return isinstance(value, np.ndarray) and value.dtype.kind in NUMBERS.get(kind, kind or value.dtype.kind)
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is not None:
        return isinstance(value, origin) and not isinstance(value, str) and _holds(value, origin, inner)
    if hint is None or hint in SCALARS:
        return value is None if hint is None else isinstance(value, SCALARS[hint])
    if getattr(hint, "_is_protocol", False):
        return all(hasattr(value, name) for name in vars(hint) if not name.startswith("_"))
    return not isinstance(hint, type) or isinstance(value, hint) or (hint is Hashable and value.__hash__ is not None)


def _holds(value: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    """Return whether the values in a container are of the types declared."""
    if isinstance(value, Mapping):
        return all(_fits(key, inner[0]) and _fits(each, inner[1]) for key, each in value.items())
    if origin is tuple and inner[-1] is not Ellipsis:
        return len(value) == len(inner) and all(_fits(*pair) for pair in zip(value, inner, strict=True))
    return not isinstance(value, collections.abc.Sequence) or all(_fits(each, inner[0]) for each in value)
