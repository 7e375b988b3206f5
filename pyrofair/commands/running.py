"""How a command computes: threads bounded, and warnings gathered to be printed as lines."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyrofair.commands.options import Settings
from pyrofair.commands.results import ResultsFolder
from pyrofair.exceptions import PyrofairError

__all__ = ["as_options", "computing", "shows_progress"]

AS_OPTIONS = (
    (re.compile(r"\b(propensity|regression)=\.\.\."), r"--\1"),
    (re.compile(r"keep it once: df\.drop_duplicates\(\)"), "keep it once in the file"),
    (re.compile(r"write them out: df\.loc\[.*?\)\]"), "write each row into the file as often, without --weight"),
    (re.compile(r"\bsample_weight holds"), "--weight holds"),
)
"""What messages of the package say in Python, and how it is said on the command line."""


def as_options(text: str) -> str:
    """Return a text in which what is said in Python is said by options of the command line."""
    for python, option in AS_OPTIONS:
        text = python.sub(option, text)
    return text


@contextmanager
def computing(settings: Settings, folder: ResultsFolder, known: Sequence[str] = ()) -> Iterator[list[str]]:
    """Run with the threads of the settings; the list is filled with the texts of warnings, each once.

    After an error a folder that holds no results is deleted. An error of the package is given the warnings as notes,
    those ``known`` before among them, for no report will show them and they may name its cause.
    """
    from threadpoolctl import threadpool_limits

    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught, threadpool_limits(settings["threads"]):
        warnings.simplefilter("always")
        try:
            yield texts
        except BaseException as error:
            folder.abandon()
            if isinstance(error, PyrofairError):
                for text in dict.fromkeys([*known, *_texts_of(caught)]):
                    error.add_note(f"Warning: {as_options(text)}")
            raise
        texts += _texts_of(caught)


def _texts_of(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """Return the texts of warnings that concern users, each once."""
    return list(dict.fromkeys(str(each.message) for each in caught if _concerns_users(each.category)))


def _concerns_users(category: type[Warning]) -> bool:
    """Whether a warning is of more than the development of a library."""
    return not issubclass(category, DeprecationWarning | PendingDeprecationWarning | FutureWarning | ImportWarning)


def shows_progress() -> bool:
    """Whether progress bars are shown: where standard error is a terminal."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False
