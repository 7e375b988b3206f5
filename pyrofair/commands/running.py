"""How a command computes: threads bounded, and all warnings gathered for its report."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyrofair.commands.options import Settings
from pyrofair.exceptions import PyrofairError

__all__ = ["as_options", "computing"]

AS_OPTIONS = (
    (re.compile(r"(?:pass )?missing=.recorded."), "--missing-as-value"),
    (re.compile(r"\b(propensity|regression)=\.\.\."), r"--\1"),
    (re.compile(r"keep it once: df\.drop_duplicates\(\)"), "keep it once in the file"),
    (re.compile(r"write them out: df\.loc\[.*?\)\]"), "write each row into the file as often, without --weight"),
    (re.compile(r"\bsample_weight holds"), "--weight holds"),
)
"""What messages of the package say in Python, and how it is said on the command line."""

OF_DEVELOPERS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning)


def as_options(text: str) -> str:
    """Return a text in which what is said in Python is said by options of the command line."""
    for python, option in AS_OPTIONS:
        text = python.sub(option, text)
    return text


@contextmanager
def computing(settings: Settings) -> Iterator[Callable[[], list[str]]]:
    """Run with the threads of the settings; the function returns the texts of warnings so far, each once.

    An error of the package is given them as notes, for no report will show them and they may name its cause.
    """
    from threadpoolctl import threadpool_limits

    def texts() -> list[str]:
        concern = (each.message for each in caught if not issubclass(each.category, OF_DEVELOPERS))
        return list(dict.fromkeys(map(str, concern)))

    with warnings.catch_warnings(record=True) as caught, threadpool_limits(settings["threads"]):
        warnings.simplefilter("always")
        try:
            yield texts
        except PyrofairError as error:
            for text in texts():
                error.add_note(f"Warning: {as_options(text)}")
            raise
