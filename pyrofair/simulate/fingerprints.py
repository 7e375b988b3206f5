"""Fingerprints of what the numbers of a study depend on: functions by name and source, objects by their settings."""

from __future__ import annotations

import ast
import dis
import functools
import hashlib
import inspect
import json
import textwrap
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
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
"""Names of files that many texts have, so that what Python holds as the source may be another text."""


def fingerprint(value: object) -> str:
    """Return a digest of what a value is: equal in another process, and after a change of comments or layout.

    Of a function it holds the qualified name, the source (the byte code, where there is none), the defaults, what it
    closes over, and what it reads by a global name: data, and functions of its own module; of an estimator the class
    and the settings; of a frozen dataclass the fields; of tables, arrays and tensors the numbers. Functions of other
    modules, the classes of objects, and the releases of libraries are not part of it.
    """
    called: dict[str, FunctionType] = {}
    found: list[Any] = [_described(value, (), called)]
    described: dict[str, Any] = {}
    while new := called.keys() - described.keys():
        described |= {name: _described(called[name], (), called) for name in new}
    text = json.dumps([*found, described], sort_keys=True)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _described(value: Any, above: tuple[int, ...], called: dict[str, FunctionType]) -> Any:
    """Return a value as JSON holds it; what holds itself is described once, functions called by name are added."""
    if value is None or isinstance(value, bool | int | float | str | bytes | complex):
        return f"{type(value).__name__} {value!r}"
    if id(value) in above:
        return f"again {above.index(id(value))}"
    inner = functools.partial(_described, above=(*above, id(value)), called=called)
    if isinstance(value, np.ndarray | np.generic | pd.DataFrame | pd.Series | pd.Index):
        return str(joblib.hash(value))
    if isinstance(value, torch.Tensor):
        return ["tensor", str(joblib.hash(value.detach().cpu().numpy()))]
    if isinstance(value, Mapping):
        return ["mapping", sorted(json.dumps([inner(key), inner(each)], sort_keys=True) for key, each in value.items())]
    if isinstance(value, Set):
        return ["set", sorted(json.dumps(inner(each), sort_keys=True) for each in value)]
    if isinstance(value, list | tuple | range):
        return [type(value).__name__, [inner(each) for each in value]]
    if isinstance(value, functools.partial):
        return ["partial", inner(value.func), inner(value.args), inner(value.keywords)]
    if isinstance(value, MethodType):
        return ["method", value.__name__, inner(value.__self__)]
    if isinstance(value, FunctionType):
        return _function(value, inner, called)
    if isinstance(value, type | BuiltinFunctionType | ModuleType):
        return f"{getattr(value, '__module__', '')} {getattr(value, '__qualname__', value.__name__)}"
    return [inner(type(value)), inner(_settings(value))]


def _settings(value: Any) -> Mapping[str, Any]:
    """Return the settings of an object: of a dataclass, of an estimator, of a module of torch, or all it holds."""
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value) if each.compare}
    if hasattr(value, "get_params"):
        return dict(value.get_params(deep=False))
    if isinstance(value, torch.nn.Module):
        return {"module": repr(value), **value.state_dict()}
    return dict(getattr(value, "__dict__", {}))


def _function(function: FunctionType, inner: Any, called: dict[str, FunctionType]) -> Any:
    closed = [_content(cell) for cell in function.__closure__ or ()]
    read = {name: function.__globals__[name] for name in _global_names(function.__code__) & function.__globals__.keys()}
    called |= {
        f"{each.__module__} {name}": each
        for name, each in read.items()
        if isinstance(each, FunctionType) and each.__module__ == function.__module__
    }
    name = f"{function.__module__} {function.__qualname__}"
    return ["function", name, _source(function), inner(function.__defaults__), inner(function.__kwdefaults__),
            [inner(each) for each in closed],
            {name: inner(each) for name, each in read.items() if isinstance(each, DATA)}]  # fmt: skip


def _global_names(code: CodeType) -> set[str]:
    """Return the global names that a function reads, or one that is defined in it."""
    own = {each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return own.union(*(_global_names(each) for each in code.co_consts if isinstance(each, CodeType)))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet set
        return None


def _source(function: FunctionType) -> Any:
    """Return the source without comments and layout, or the byte code."""
    if function.__code__.co_filename in SHARED_NAMES:
        return _code(function.__code__)
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return _code(function.__code__)
    try:
        return ast.unparse(ast.parse(text))
    except SyntaxError:  # the lines of a lambda are part of a statement
        return text


def _code(code: CodeType) -> Any:
    constants = [_code(each) if isinstance(each, CodeType) else _described(each, (), {}) for each in code.co_consts]
    return [code.co_code.hex(), list(code.co_names), constants]
