"""Progress of what takes more than five seconds: one line, where somebody sees it, that is gone in the end."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from typing import Any

from tqdm import TqdmWarning

with warnings.catch_warnings():
    # In a notebook without ipywidgets it warns when imported, and shows the same bar as in a terminal.
    warnings.simplefilter("ignore", TqdmWarning)
    from tqdm.auto import tqdm

__all__ = ["progress_bar"]

AFTER = 5.0
"""Seconds after which a bar appears."""


def progress_bar(
    desc: str, items: Iterable[Any] | None = None, *, total: int | None = None, shown: bool = True, **settings: Any
) -> Any:
    """Return a bar over items, or one that is updated by hand; ``settings`` are those of tqdm."""
    hidden = not (shown and _is_seen())
    return tqdm(items, desc=desc, total=total, disable=hidden, delay=AFTER, leave=False, **settings)


def _is_seen() -> bool:
    """Return whether somebody sees standard error: it is a terminal, or that of a notebook."""
    try:
        return type(sys.stderr).__module__.startswith("ipykernel.") or sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False
