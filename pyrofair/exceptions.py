"""The errors and warnings of the package, all under one root.

Each message states the fact, the value that broke the rule, what was available, and the next step.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = [
    "DataError",
    "FormulaNotApplicableError",
    "GraphError",
    "NotIdentifiedError",
    "PositivityError",
    "PositivityWarning",
    "PyrofairError",
    "PyrofairWarning",
    "shortened",
]


LONGEST = 1_800
"""The most characters of a message; of a longer one, its middle is left out."""


_NUMPY = re.compile(r"""\bnp\.[a-z]+(?:\d+|_)\(('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^()'"]*)\)|\bnp\.(True|False)_""")


def plain(text: str) -> str:
    """Return a message in which NumPy's values are written as Python's.

    >>> plain("row np.int64(2) of np.str_('a (b)') is np.True_")
    "row 2 of 'a (b)' is True"
    """
    return _NUMPY.sub(lambda found: found[1] or found[2], text)


def shortened(text: str) -> str:
    """Return a message without its middle if it is too long to be read: values lie there, and advice at the end."""
    cut = len(text) - LONGEST
    return text if cut <= 0 else f"{text[: LONGEST // 2]} [... {cut:,} characters ...] {text[-LONGEST // 2 :]}"


class _Short(Exception):
    """An exception whose message is short enough to be read."""

    def __init__(self, message: object = "") -> None:
        super().__init__(shortened(plain(str(message))))


class PyrofairError(_Short, ValueError):
    """Root of the errors raised here; a ``ValueError``, so that generic callers catch it too.

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> try:
    ...     CausalGraph("A -> Y", sensitive="A", outcome="B")
    ... except PyrofairError as error:
    ...     print(type(error).__name__)
    GraphError
    """


class GraphError(PyrofairError):
    """The causal graph, or a set of paths in it, is not what the method needs.

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> CausalGraph("A -> Y", sensitive="A", outcome="Y").unfair("A -> B")
    Traceback (most recent call last):
        ...
    pyrofair.exceptions.GraphError: 'B', named as a node, is not in the graph. Its nodes: A, Y.
    """


class DataError(PyrofairError):
    """A table, a label or a model does not fit the graph or the fitted object.

    Examples
    --------
    >>> from pyrofair import piu_bounds
    >>> piu_bounds(0.5, 1.2)
    Traceback (most recent call last):
        ...
    pyrofair.exceptions.DataError: p1 holds 1.2, which is not in [0, 1]. ...
    """


class NotIdentifiedError(PyrofairError):
    """The data do not determine the effect, whatever the sample size: the message names the cause.

    Parameters
    ----------
    cause
        Why, as text.
    way_out
        What can be done, a :class:`pyrofair.graph.WaysOut`, where :func:`pyrofair.identify` raised the error; the
        message ends with it. None elsewhere.

    Examples
    --------
    >>> from pyrofair import CausalGraph, identify
    >>> graph = CausalGraph("A -> R -> M -> Y; R -> Y", sensitive="A", outcome="Y")
    >>> identify(graph.unfair("A -> R -> Y"))
    Traceback (most recent call last):
        ...
    pyrofair.exceptions.NotIdentifiedError: Not identified: 'R' is a recanting witness. ...
    """

    def __init__(self, cause: str, way_out: Any = None) -> None:
        super().__init__(cause)
        self.cause = cause
        self.way_out = way_out

    def __str__(self) -> str:
        return self.cause if self.way_out is None else f"{self.cause}\n{self.way_out}"


class FormulaNotApplicableError(NotIdentifiedError):
    """The edge g-formula used here does not apply, though another formula may identify the effect.

    Examples
    --------
    >>> from pyrofair import CausalGraph, identify
    >>> graph = CausalGraph("A -> M -> Y; A <-> Y", sensitive="A", outcome="Y")
    >>> identify(graph.unfair("A -> M -> Y"), target="outcome")
    Traceback (most recent call last):
        ...
    pyrofair.exceptions.FormulaNotApplicableError: The edge formula does not apply: ...
    """


class PositivityError(PyrofairError):
    """A part of the target population too large to ignore has no counterpart in the weighted group.

    Examples
    --------
    >>> import pandas as pd
    >>> from pyrofair import IPW, CausalGraph
    >>> unfair = CausalGraph("{A C} -> M; {A C M} -> Y", sensitive="A", outcome="Y").unfair("A -> Y")
    >>> df = pd.DataFrame({"A": [0, 0, 1, 1] * 9, "C": [0, 0, 0, 1] * 9, "M": 0, "Y": [0, 1, 1, 1] * 9})
    >>> IPW(unfair, propensity="saturated").fit(df)
    Traceback (most recent call last):
        ...
    pyrofair.exceptions.PositivityError: 25% of the target population has no counterpart ...
    """


class PyrofairWarning(_Short, UserWarning):
    """Root of the warnings: legal input whose result should be read with care.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():  # in a pipeline: stop at a warning
    ...     warnings.simplefilter("error", PyrofairWarning)
    """


class PositivityWarning(PyrofairWarning):
    """The weighted group supports the target population badly.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():  # after the report has been read: poor overlap is known
    ...     warnings.simplefilter("ignore", PositivityWarning)
    """
