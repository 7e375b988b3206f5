"""Save an object to a file, and load it again, in this process or another."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import sklearn
import torch

from pyrofair._random import neutral_torch
from pyrofair._validation import require_flag, require_instance, shown
from pyrofair._version import __version__
from pyrofair.exceptions import DataError, PyrofairError, PyrofairWarning
from pyrofair.persistence.classes import KINDS, TOP
from pyrofair.persistence.codec import Reader, Writer
from pyrofair.persistence.files import Content, read_file, require_free, require_path, to_bytes, write_file

__all__ = ["load", "save"]

MEANINGLESS = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RuntimeError, RecursionError,
               StopIteration, AssertionError, MemoryError, NotImplementedError)  # fmt: skip
"""What reading a structure that means nothing may raise."""


def save(obj: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write an object to a file, from which :func:`load` makes one that gives the same numbers.

    The file is in the format of safetensors: arrays, one of them the structure as JSON, and a digest. It is read back
    before it is put in its place, whole or not at all. It holds no code: what runs code of yours, such as the program
    of an :class:`pyrofair.SEM`, is given to :func:`load` again. Equal objects make equal files.

    A source holds the rows that it was fitted on, for its worlds are made of them, and so do learned mechanisms; a
    classifier is saved without its fitted source, and holds no row.

    Parameters
    ----------
    obj
        A ``PenalizedClassifier``, ``PSCF``, ``IPW``, ``OneStep``, ``GComputation``, ``SEM``, ``Contrasts``,
        ``Several``, ``MilesBounds``, ``SwitchingBounds``, ``LearnedMechanisms``, ``Posterior``, ``PenaltyPath``,
        ``CausalGraph`` or ``UnfairPaths``, fitted or not.
    path
        The file, such as ``"model.pyrofair"``, in a folder that exists.
    overwrite
        Whether a file that is there is replaced.

    Raises
    ------
    DataError
        If the object holds what cannot be saved, named with its place and the way out; if the file exists, or cannot be
        written. Nothing has been written then.

    Examples
    --------
    >>> import tempfile, os
    >>> from pyrofair import CausalGraph
    >>> unfair = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y").unfair("A -> Y")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(unfair, os.path.join(folder, "paths.pyrofair"))
    ...     load(os.path.join(folder, "paths.pyrofair")) == unfair
    True
    """
    place = require_path(path)
    require_flag("overwrite", overwrite)
    if type(obj) not in TOP:
        names = ", ".join(each.__name__ for each in TOP)
        kind = type(obj).__name__
        article = "an" if kind[0] in "AEIOUaeiou" else "a"
        raise DataError(f"obj is {article} {kind}; what can be saved is a {names}.{_aside(obj)}")
    require_free(place, overwrite=overwrite)
    content, writer = _content(obj)
    data = to_bytes(content)
    given = {name: code.value for name, code in writer.codes.items()}
    try:
        again = _read(content, given, skops=True)
    except MEANINGLESS as error:
        raise DataError(
            f"The {type(obj).__name__} cannot be read back, and was not written: {type(error).__name__}: "
            f"{shown(str(error))}. Please report what it holds: its settings, and the types of its columns."
        ) from error
    _require_same(content, _content(again)[0], writer.by_skops)
    write_file(place, data, overwrite=overwrite)


def _aside(obj: object) -> str:
    """Return a sentence on what is near to be saved."""
    if isinstance(obj, type):
        return " Pass an object, not its class."
    if hasattr(obj, "table") and hasattr(obj, "groups"):
        return " The tables of an audit are DataFrames: report.table.to_csv(...)."
    return ""


def _content(obj: Any) -> tuple[Content, Writer]:
    writer = Writer(KINDS)
    with neutral_torch():
        written = writer.write(obj)
    structure = {
        "class": type(obj).__name__,
        "versions": {
            "pyrofair": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "pandas": pd.__version__,
            "scikit-learn": sklearn.__version__,
            "torch": torch.__version__,
        },
        "code": writer.described,
        "object": written,
    }
    return Content(structure, writer.arrays), writer


def _require_same(content: Content, again: Content, by_skops: list[str]) -> None:
    """Refuse to write what is not read back as it was."""
    if content.structure == again.structure and all(
        np.array_equal(each.view(np.uint8) if each.ndim else each, again.arrays[name].view(np.uint8) if each.ndim else
                       again.arrays[name])
        for name, each in content.arrays.items()
        if name not in by_skops
    ):  # fmt: skip
        return
    raise DataError(
        f"The {content.structure['class']} is not the same when it is read back, and was not written. Please report "
        "what it holds: its settings, and the types of its columns."
    )


def load(path: str | os.PathLike[str], *, given: Mapping[str, Any] | None = None, skops: bool = False) -> Any:
    """Return the object that :func:`save` wrote to a file.

    A file of unknown origin may be loaded: it names classes of a closed list, nothing of it is run or imported, its
    digest is compared, sizes are those of the file, and trees are checked before they are walked down.

    Parameters
    ----------
    path
        The file.
    given
        Code of yours that the object runs, by name: ``{"program": hiring}`` for an ``SEM``, ``{"model": module}`` for a
        classifier with a torch module of your own. The error of a call without it names what is needed. A program with
        other sites or other values is refused.
    skops
        Whether estimators that skops wrote are read, such as a propensity of another class of scikit-learn. Their
        compiled parts are not checked: pass it for files that you trust.

    Returns
    -------
    The object. A ``PenalizedClassifier`` comes without its fitted source (``source_`` is None).

    Raises
    ------
    DataError
        If there is no such file, or it is damaged, cut off, no file of this package, or of another format; if what must
        be given again is missing or is another.

    Warns
    -----
    PyrofairWarning
        If another version of the package wrote the file.
    """
    place = require_path(path)
    if given is not None:
        require_instance("given", given, Mapping, "a dictionary from names to code of yours, or None")
    require_flag("skops", skops)
    content = read_file(place)
    name = f"The file {str(place)!r}"
    try:
        wrote = str(content.structure["versions"]["pyrofair"])
        found = _read(content, dict(given or {}), skops=skops)
        if type(found) not in TOP or type(found).__name__ != content.structure["class"]:
            raise ValueError(f"it holds a {type(found).__name__}")
    except DataError as error:
        raise DataError(f"{name} cannot be loaded: {error}") from error
    except PyrofairError as error:
        raise DataError(f"{name} does not fit this version of the package: {error}") from error
    except MEANINGLESS as error:
        raise DataError(
            f"{name} has a structure that means nothing to this version of the package, {__version__}: "
            f"{type(error).__name__}: {shown(str(error))}."
        ) from error
    if wrote != __version__:
        warnings.warn(
            f"{name} was written by version {wrote} of the package, and this is {__version__}: its numbers may differ.",
            PyrofairWarning,
            stacklevel=2,
        )
    return found


def _read(content: Content, given: Mapping[str, Any], *, skops: bool) -> Any:
    with neutral_torch():
        return Reader(KINDS, content, given, skops=skops).read(content.structure["object"])
