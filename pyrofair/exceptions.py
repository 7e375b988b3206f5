"""The errors and warnings of the package, all under one root.

Each message states the fact, the value that broke the rule, what was available, and the next step.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from numbers import Integral

__all__ = [
    "DataError",
    "FormulaNotApplicableError",
    "GraphError",
    "NotIdentifiedError",
    "PositivityError",
    "PositivityWarning",
    "PyrofairError",
    "PyrofairWarning",
    "did_you_mean",
    "require_count",
]


class PyrofairError(ValueError):
    """Root of the errors raised here; a ``ValueError``, so that generic callers catch it too."""


class GraphError(PyrofairError):
    """The causal graph, or a set of paths in it, is not what the method needs."""


class DataError(PyrofairError):
    """A table, a label or a model does not fit the graph or the fitted object."""


class NotIdentifiedError(PyrofairError):
    """The data cannot tell the effect, whatever the sample size: the message names the cause."""


class FormulaNotApplicableError(NotIdentifiedError):
    """The edge g-formula used here does not apply, though another formula may identify the effect."""


class PositivityError(PyrofairError):
    """A part of the target population too large to ignore has no counterpart in the weighted group."""


class PyrofairWarning(UserWarning):
    """Root of the warnings: legal input whose result should be read with care."""


class PositivityWarning(PyrofairWarning):
    """The weighted group supports the target population badly."""


def require_count(name: str, value: object) -> None:
    """Refuse a setting that is no whole number of at least 1.

    Raises
    ------
    DataError
        With the setting and its value.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise DataError(f"{name}={value!r} must be a whole number of at least 1.")


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Return a sentence that suggests the known name nearest to a wrong one, whatever its case; empty if none is near.

    >>> did_you_mean("m", ["A", "M"])
    " Did you mean 'M'?"
    """
    spelled = {str(each).casefold(): each for each in known}
    close = difflib.get_close_matches(str(name).casefold(), spelled, n=1)
    return f" Did you mean {spelled[close[0]]!r}?" if close else ""
