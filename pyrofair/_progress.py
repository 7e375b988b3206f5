"""Progress of what takes more than five seconds: one line, where somebody sees it, that is gone in the end."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

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


def _tqdm() -> Any:
    """Return tqdm's bar, which is loaded where one is shown."""
    from tqdm import TqdmWarning

    with warnings.catch_warnings():
        # In a notebook without ipywidgets it warns when imported, and shows the same bar as in a terminal.
        warnings.simplefilter("ignore", TqdmWarning)
        from tqdm.auto import tqdm
    return tqdm


if "IPython" in sys.modules:  # before Pyro, which imports it as well, and lets it warn
    _tqdm()


class _Hidden:
    """A bar that nobody sees: it gives its items, and whatever is done to it has no effect."""

    n = 0

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __enter__(self) -> _Hidden:
        return self

    def __exit__(self, *raised: object) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given, **settings: None


def progress_bar(
    desc: str, items: Iterable[Any] | None = None, *, total: int | None = None, shown: bool = True, **settings: Any
) -> Any:
    """Return a bar over items, or one that is updated by hand; ``settings`` are those of tqdm."""
    if _HIDDEN.get() or not (shown and _is_seen()):
        return _Hidden(() if items is None else items)
    return _tqdm()(items, desc=desc, total=total, delay=AFTER, leave=False, **settings)


def _is_seen() -> bool:
    """Return whether somebody sees standard error: it is a terminal, or that of a notebook."""
    try:
        return type(sys.stderr).__module__.startswith("ipykernel.") or sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False
