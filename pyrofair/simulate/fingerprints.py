"""Fingerprints of what the numbers of a study depend on: functions by their source, objects by their settings."""

from __future__ import annotations

import ast
import dis
import functools
import hashlib
import inspect
import textwrap
import uuid
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import joblib
import numpy as np
import pandas as pd
import torch

__all__ = ["fingerprint"]

DATA = (bool, int, float, complex, str, bytes, list, tuple, range, Mapping, Set, np.ndarray, np.generic,
        pd.DataFrame, pd.Series, pd.Index, torch.Tensor)  # fmt: skip
"""The types of data that a function may read by a global name."""
SHARED_NAMES = ("<string>", "<stdin>")
"""Names of files that many texts have: Python may hold another text as the source."""


def fingerprint(value: object) -> str:
    """Return a digest of a value: equal in another process, and after a change of comments or layout.

    The digest of a function is of its qualified name, source, defaults, the values that it closes over, and those that
    it reads by a global name: data, and functions of its own module. Estimators count by class and settings, frozen
    dataclasses by their fields, tables, arrays and tensors by their numbers. Functions of other modules, the classes of
    objects, and the releases of libraries are not part of it. A function whose source cannot be read, such as one typed
    at a prompt, has another digest each time, so that its cells are computed again.
    """
    called: dict[str, FunctionType] = {}
    found, described = _described(value, (), called), dict[str, Any]()
    while new := sorted(called.keys() - described.keys()):
        described |= {name: _described(called[name], (), called) for name in new}
    text = repr((found, sorted(described.items())))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _described(value: Any, above: tuple[int, ...], called: dict[str, FunctionType]) -> Any:
    """Return a value as tuples of texts and numbers; functions that it calls by name are added to those called."""
    if value is None or isinstance(value, bool | int | float | str | bytes | complex):
        return type(value).__name__, value
    if id(value) in above:
        return "again", above.index(id(value))
    inner = functools.partial(_described, above=(*above, id(value)), called=called)
    if isinstance(value, torch.Tensor):
        return "tensor", joblib.hash(value.detach().cpu().numpy())
    if isinstance(value, np.ndarray | np.generic | pd.DataFrame | pd.Series | pd.Index):
        return "data", joblib.hash(value)
    if isinstance(value, Mapping | Set):
        items = value.items() if isinstance(value, Mapping) else ((each, None) for each in value)
        return type(value).__name__, sorted(repr((inner(key), inner(each))) for key, each in items)
    if isinstance(value, list | tuple | range):
        return type(value).__name__, [inner(each) for each in value]
    if isinstance(value, functools.partial):
        return "partial", inner(value.func), inner(value.args), inner(value.keywords)
    if isinstance(value, MethodType):
        return "method", value.__name__, inner(value.__self__)
    if isinstance(value, FunctionType):
        return _function(value, inner, called)
    if isinstance(value, type | BuiltinFunctionType | ModuleType):
        return getattr(value, "__module__", ""), getattr(value, "__qualname__", value.__name__)
    return inner(type(value)), inner(_settings(value))


def _settings(value: Any) -> dict[str, Any]:
    """Return the settings of an object: of a dataclass, of an estimator, of a module of torch, or all it holds."""
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value) if each.compare}
    if hasattr(value, "get_params"):
        return dict(value.get_params(deep=False))
    if isinstance(value, torch.nn.Module):
        return {"module": repr(value), **value.state_dict()}
    return dict(getattr(value, "__dict__", {}))


def _function(function: FunctionType, inner: Any, called: dict[str, FunctionType]) -> Any:
    known, code = function.__globals__, function.__code__
    read = {name: known[name] for name in _global_names(code) & known.keys()}
    called |= {
        f"{each.__module__} {name}": each
        for name, each in read.items()
        if isinstance(each, FunctionType) and each.__module__ == function.__module__
    }
    read = {name: each for name, each in read.items() if isinstance(each, DATA)}
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]
    held = function.__defaults__, function.__kwdefaults__, cells, read
    return function.__module__, function.__qualname__, _source(function), *map(inner, held)


def _global_names(code: CodeType) -> set[str]:
    """Return the global names that a function reads, or one that is defined in it."""
    own = {each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return own.union(*(_global_names(each) for each in code.co_consts if isinstance(each, CodeType)))


def _source(function: FunctionType) -> Any:
    """Return the source without comments and layout; one that cannot be read is a new text each time."""
    code = function.__code__
    try:
        text = "" if code.co_filename in SHARED_NAMES else textwrap.dedent(inspect.getsource(function))
        if code.co_name == "<lambda>" and text:  # its lines may hold several
            return text, [(line and line - code.co_firstlineno, at) for line, _, at, _ in code.co_positions()]
        if text:
            return ast.unparse(ast.parse(text))
    except (OSError, TypeError, SyntaxError):  # no file, or one that has changed since it was read
        pass
    return uuid.uuid4().hex
