"""How a command computes: threads bounded, and warnings gathered to be printed as lines."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from pyrofair.commands.options import Settings
from pyrofair.commands.results import ResultsFolder

__all__ = ["computing", "shows_progress"]


@contextmanager
def computing(settings: Settings, folder: ResultsFolder) -> Iterator[list[str]]:
    """Run with the threads of the settings; the list is filled with the texts of warnings, each once.

    After an error a folder that holds no results is deleted.
    """
    from threadpoolctl import threadpool_limits

    texts: list[str] = []
    try:
        with warnings.catch_warnings(record=True) as caught, threadpool_limits(settings["threads"]):
            warnings.simplefilter("always")
            yield texts
            texts += dict.fromkeys(str(each.message) for each in caught if _concerns_users(each.category))
    except BaseException:
        folder.abandon()
        raise


def _concerns_users(category: type[Warning]) -> bool:
    """Whether a warning is of more than the development of a library."""
    return not issubclass(category, DeprecationWarning | PendingDeprecationWarning | FutureWarning | ImportWarning)


def shows_progress() -> bool:
    """Whether progress bars are shown: where standard error is a terminal."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False
