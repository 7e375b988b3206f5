"""Progress of what takes more than five seconds: one line, where somebody sees it, that is gone in the end."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tqdm import TqdmWarning

with warnings.catch_warnings():
    # In a notebook without ipywidgets it warns when imported, and shows the same bar as in a terminal.
    warnings.simplefilter("ignore", TqdmWarning)
    from tqdm.auto import tqdm

__all__ = ["progress_bar", "without_bars"]

AFTER = 5.0
"""Seconds after which a bar appears."""
_HIDDEN: ContextVar[bool] = ContextVar("hidden", default=False)


@contextmanager
def without_bars(hide: bool = True) -> Iterator[None]:
    """Show no bar inside, of whatever is called there, if ``hide``."""
    token = _HIDDEN.set(hide or _HIDDEN.get())
    try:
        yield
    finally:
        _HIDDEN.reset(token)


def progress_bar(
    desc: str, items: Iterable[Any] | None = None, *, total: int | None = None, shown: bool = True, **settings: Any
) -> Any:
    """Return a bar over items, or one that is updated by hand; ``settings`` are those of tqdm."""
    hidden = _HIDDEN.get() or not (shown and _is_seen())
    return tqdm(items, desc=desc, total=total, disable=hidden, delay=AFTER, leave=False, **settings)


def _is_seen() -> bool:
    """Return whether somebody sees standard error: it is a terminal, or that of a notebook."""
    try:
        return type(sys.stderr).__module__.startswith("ipykernel.") or sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False
