"""What a lower folder uses by default and a higher one holds: a table of names, loaded when first used.

``CausalGraph.check`` and ``audit`` without a source need code of folders above their own. They ask for it by its role;
``pyrofair/__init__`` says which name plays each role, so no folder names one above it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["default_of", "set_default"]

_PLACES: dict[str, str] = {}


def set_default(role: str, place: str) -> None:
    """Let ``place``, a ``"module:name"``, play a role; nothing is imported."""
    _PLACES[role] = place


def default_of(role: str) -> Any:
    """Return what plays a role; a LookupError if nothing does."""
    if role not in _PLACES:
        raise LookupError(
            f"Nothing plays the role {role!r}; known are {', '.join(map(repr, _PLACES)) or 'none'}. "
            f"pyrofair/__init__.py sets them: set_default({role!r}, 'module:name')."
        )
    module, _, name = _PLACES[role].partition(":")
    return getattr(import_module(module), name)
