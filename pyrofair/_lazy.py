"""Names of a package that are loaded when first used (PEP 562): what needs no torch does not load it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = ["when_used"]


def when_used(
    package: str, places: Mapping[str, str], exported: Sequence[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package: ``places`` gives, by module, its names, apart by spaces.

    ``exported`` are all names of the package. None of them is the name of one of its modules: Python sets that one when
    the module is loaded.
    """
    modules = {name: module for module, names in places.items() for name in names.split()}

    def load(name: str) -> Any:
        if name in places:
            return import_module(f"{package}.{name}")
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted({*exported, *(name for name in vars(sys.modules[package]) if name.startswith("__"))})
