"""Save an object to a file, and load it again, in this process or another."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

from pyrofair._random import neutral_torch
from pyrofair._validation import require_flag, require_instance, require_path, shown
from pyrofair._version import __version__
from pyrofair.exceptions import DataError, PyrofairError, PyrofairWarning
from pyrofair.persistence.classes import KINDS, TOP
from pyrofair.persistence.codec import Reader, Writer
from pyrofair.persistence.files import Content, from_bytes, read_file, require_free, to_bytes, write_file

__all__ = ["load", "save"]

FILE = "the path of a file, such as 'model.pyrofair'"


def save(obj: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write an object to a file, from which :func:`load` makes one that gives the same numbers.

    The file is read back before it is put in its place, whole or not at all. It holds no code: if an object runs code
    of yours, such as the program of an :class:`pyrofair.SEM`, you give it to :func:`load` again.

    The file of a source, or of learned mechanisms, holds the rows that it was fitted on. A classifier is saved without
    its fitted source, and its file holds no row.

    Parameters
    ----------
    obj
        A ``PenalizedClassifier``, ``PSCF``, ``IPW``, ``OneStep``, ``GComputation``, ``SEM``, ``Contrasts``,
        ``Several``, ``MilesBounds``, ``LearnedMechanisms``, ``Posterior``, ``PenaltyPath``,
        ``CausalGraph`` or ``UnfairPaths``, fitted or not.
    path
        The file, such as ``"model.pyrofair"``, in a folder that exists.
    overwrite
        Whether a file that is there is replaced.

    Raises
    ------
    DataError
        If a part of the object cannot be saved, named with its place and the way out; if the file exists, or cannot be
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
    place = require_path("path", path, FILE).absolute()
    require_flag("overwrite", overwrite)
    name = type(obj).__name__
    if name not in TOP or type(obj) not in KINDS:
        hint = " Pass an object, not its class." if isinstance(obj, type) else ""
        hint = hint or (" The tables of an audit are DataFrames: report.table.to_csv(...)." * hasattr(obj, "groups"))
        raise DataError(f"obj is of the class {name}; what can be saved is a {', '.join(TOP)}.{hint}")
    require_free(place, overwrite=overwrite)
    content, codes = _content(obj)
    data = to_bytes(content)
    try:
        again, _ = _content(_read(from_bytes(data, "What was made"), codes, skops=True))
        if again.structure != content.structure or not all(
            map(_is_same, again.arrays.values(), content.arrays.values())
        ):
            raise ValueError("it is not the same")
    except Exception as error:
        what = f"The {name} cannot be read back, and was not written: {type(error).__name__}: {error}"
        raise DataError(f"{what}. Please report its settings, and the types of its columns.") from error
    write_file(place, data, overwrite=overwrite)


def _is_same(one: Any, other: Any) -> bool:
    first, second = bytes(one.tobytes()), bytes(other.tobytes())
    return first == second or first[:2] == second[:2] == b"PK"  # an archive that skops writes holds the time


def _content(obj: Any) -> tuple[Content, dict[str, Any]]:
    """Return what a file of an object holds, and the code that it does not, by name."""
    writer = Writer()
    with neutral_torch():
        written = writer.write(obj)
    structure = {"class": type(obj).__name__, "version": __version__, "code": writer.described, "object": written}
    return Content(structure, writer.arrays), writer.codes


def load(path: str | os.PathLike[str], *, given: Mapping[str, Any] | None = None, skops: bool = False) -> Any:
    """Return the object that :func:`save` wrote to a file.

    A file of unknown origin may be loaded: it names classes of a closed list, and nothing of it is run or imported.

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
        If there is no such file, or it is damaged, cut off, not a file of this package, or of another format; if what
        must be given again is missing or is another.

    Warns
    -----
    PyrofairWarning
        If another version of the package wrote the file.

    Examples
    --------
    >>> import tempfile
    >>> from pyrofair import CausalGraph
    >>> graph = CausalGraph("A -> Y", sensitive="A", outcome="Y")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(graph, f"{folder}/graph.pyrofair")
    ...     load(f"{folder}/graph.pyrofair") == graph
    True
    """
    place = require_path("path", path, FILE).absolute()
    if given is not None:
        require_instance("given", given, Mapping, "a dictionary from names to code of yours, or None")
    require_flag("skops", skops)
    content = read_file(place)
    name = f"The file {str(place)!r}"
    try:
        wrote = str(content.structure["version"])
        found = _read(content, dict(given or {}), skops=skops)
        if type(found).__name__ not in TOP or type(found).__name__ != content.structure["class"]:
            raise ValueError(f"it holds a {type(found).__name__}")
    except Exception as error:  # a structure that means nothing may raise an error of any class
        why = str(error) if isinstance(error, PyrofairError) else f"{type(error).__name__}: {shown(str(error))}."
        raise DataError(f"{name} cannot be loaded by version {__version__} of the package: {why}") from error
    if wrote != __version__:
        text = f"{name} was written by version {wrote} of the package, and this is {__version__}: numbers may differ."
        warnings.warn(text, PyrofairWarning, stacklevel=2)
    return found


def _read(content: Content, given: Mapping[str, Any], *, skops: bool) -> Any:
    with neutral_torch():
        return Reader(content, given, skops=skops).read(content.structure["object"])
