"""A folder of finished results: a Parquet file for each cell of a run, whole or absent, so that a rerun goes on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import time
import traceback
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from pyrofair._validation import shown
from pyrofair.exceptions import DataError, PyrofairWarning

__all__ = [
    "Cell",
    "CellFolder",
    "Failure",
    "Key",
    "attempt",
    "cell_name",
    "differences",
    "made_folder",
    "write_whole",
]

Key = Mapping[str, Any]
"""What identifies a cell: text, numbers, booleans and lists of them by name, as JSON holds them."""

RUN = "run.json"
"""The file that identifies the run whose cells are in a folder."""
FORMAT = 1
METADATA = b"pyrofair"
OLD = 3600.0
"""Seconds after which a temporary file was left by a process that was killed."""


@dataclass(frozen=True, eq=False)
class Cell:
    """A finished result: its key, its table, and what else is said about it, such as its ``seconds``."""

    key: dict[str, Any]
    table: pd.DataFrame
    about: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Failure:
    """A cell that ended in an error: its key, the error's type and message, and the traceback as text."""

    key: dict[str, Any]
    error: str
    traceback: str
    about: dict[str, Any] = field(default_factory=dict)


def cell_name(key: Key) -> str:
    """Return a name for the file of a cell, of at most 90 ASCII characters, distinct for distinct keys."""
    text = _json(dict(key), "The key of a cell")
    words = re.sub(r"[^A-Za-z0-9.+-]+", "_", "-".join(str(key[name]) for name in sorted(key))).strip("._-")
    return f"{words[:56] or 'cell'}-{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def attempt(key: Key, make: Callable[[], pd.DataFrame], about: Mapping[str, Any] | None = None) -> Cell | Failure:
    """Return the table that ``make`` returns as a cell, or its error with the traceback; an interrupt is raised."""
    started = time.perf_counter()
    try:
        table = make()
    except (Exception, SystemExit) as error:
        seconds = time.perf_counter() - started
        text = "".join(traceback.format_exception(error))
        return Failure(dict(key), _error(error), text, {**(about or {}), "seconds": seconds})
    return Cell(dict(key), table, {**(about or {}), "seconds": time.perf_counter() - started})


@dataclass(frozen=True)
class CellFolder:
    """The finished cells of one run, each a file of its own.

    A cell is written to a temporary file beside its place, forced to the disk, and renamed: at any time it is there
    whole, or not. A process that is killed loses the cell that it was computing and no other; several processes may
    write at once. Cells are in ``cells/*.parquet``, with key and what is said about them in the metadata ``pyrofair``
    of the schema; errors, with tracebacks, in ``failures/*.json``; the settings of the run in ``run.json``.

    Use :meth:`claimed` before any work; an instance may be sent to other processes.
    """

    folder: Path

    @classmethod
    def claimed(cls, folder: str | os.PathLike[str], run: Mapping[str, Any], *, overwrite: bool = False) -> CellFolder:
        """Return a folder for the cells of a run, made if it does not exist, with those that are finished in it.

        Parameters
        ----------
        folder
            The folder.
        run
            All settings that the numbers of every cell depend on, as JSON holds them. Two calls with equal settings are
            one run.
        overwrite
            Whether cells of another run are deleted.

        Raises
        ------
        DataError
            If the folder cannot be made or written to, or holds cells of another run: the message names what differs.
        """
        here = _identity(run)
        claimed = cls(made_folder(folder))
        there = claimed._run()
        if overwrite and _identifies(there) and there != here:
            claimed._empty()
        for part in (claimed.cells, claimed.failed):
            made_folder(part)
        if not (claimed.folder / RUN).exists() and not any(claimed.cells.iterdir()):
            write_whole(claimed.folder / RUN, (json.dumps(here, indent=2) + "\n").encode(), replace=False)
        claimed._refuse_other(here)
        claimed._sweep()
        return claimed

    def is_of(self, run: Mapping[str, Any]) -> bool:
        """Return whether the folder is marked as that of a run with these settings."""
        return bool(self._run() == _identity(run))

    @property
    def cells(self) -> Path:
        """The folder of the finished cells."""
        return self.folder / "cells"

    @property
    def failed(self) -> Path:
        """The folder of the errors."""
        return self.folder / "failures"

    def path(self, key: Key) -> Path:
        """Return the file of a finished cell."""
        return self.cells / f"{cell_name(key)}.parquet"

    def has(self, key: Key) -> bool:
        """Return whether there is a file of a finished cell; it has not been read."""
        return self.path(key).exists()

    def holds(self, result: Cell | Failure) -> bool:
        """Return whether there is a file of such a result of its cell."""
        return self.has(result.key) if isinstance(result, Cell) else self._failure_path(result.key).exists()

    def read(self, key: Key) -> Cell | Failure | None:
        """Return a finished cell, or how it failed, or None.

        A damaged file is warned of, named, and counts as none; writing the cell again replaces it.
        """
        path = self.path(key)
        failure = self._failure_path(key)
        try:
            if path.exists():
                return _read_cell(path, key)
            if failure.exists():
                return _read_failure(failure, key)
        except Exception as error:  # pyarrow has many errors for a damaged file, and OSError is one of them
            damaged = path if path.exists() else failure
            warnings.warn(
                f"The file {str(damaged)!r} is damaged and is not used ({_error(error)}): its cell is computed again.",
                PyrofairWarning,
                stacklevel=2,
            )
        return None

    def write(self, result: Cell | Failure) -> Path:
        """Write a finished cell or an error at once, and return its file; a finished cell replaces its error."""
        failure = self._failure_path(result.key)
        if isinstance(result, Failure):
            content = {"key": result.key, "error": result.error, "traceback": result.traceback, "about": result.about}
            write_whole(failure, (_json(content, "What is said about a cell", indent=2) + "\n").encode())
            return failure
        write_whole(self.path(result.key), _parquet(result))
        failure.unlink(missing_ok=True)
        return self.path(result.key)

    def once(
        self, key: Key, make: Callable[[], pd.DataFrame], about: Mapping[str, Any] | None = None, *, retry: bool = True
    ) -> Cell | Failure:
        """Return a cell that is finished, or else compute it and write the result, an error included.

        A cell that failed before is tried again, unless ``retry`` is False.
        """
        found = self.read(key)
        if isinstance(found, Cell) or (found is not None and not retry):
            return found
        result = attempt(key, make, about)
        self.write(result)
        return result

    def _failure_path(self, key: Key) -> Path:
        return self.failed / f"{cell_name(key)}.json"

    def _run(self) -> Any:
        """Return what identifies the run of the folder, or None."""
        try:
            return json.loads((self.folder / RUN).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def _empty(self) -> None:
        """Delete the cells of a run, and what identifies it last."""
        for path in (*self.cells.glob("*.parquet"), *self.failed.glob("*.json"), self.folder / RUN):
            path.unlink(missing_ok=True)

    def _refuse_other(self, here: dict[str, Any]) -> None:
        there = self._run()
        if there == here:
            return
        number = sum(1 for _ in self.cells.glob("*.parquet"))
        text = f"The folder {str(self.folder)!r} holds {number} finished cell{'s' * (number != 1)} of another run"
        if not _identifies(there):
            raise DataError(f"{text}, which its {RUN} does not identify. Name another folder.")
        raise DataError(
            f"{text}: {'; '.join(differences(there['run'], here['run']))}. Name another folder, or pass "
            "overwrite=True (--overwrite) to delete them."
        )

    def _sweep(self) -> None:
        """Delete the temporary files of processes that were killed; those of others that write now are recent."""
        for part in (self.folder, self.cells, self.failed):
            for path in part.glob(".*.tmp"):
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > OLD:
                        path.unlink()


def _identity(run: Mapping[str, Any]) -> dict[str, Any]:
    return {"format": FORMAT, "run": json.loads(_json(dict(run), "The settings of a run"))}


def made_folder(folder: str | os.PathLike[str]) -> Path:
    """Return a folder, made if need be, as an absolute path; a DataError if it cannot be made or written to."""
    if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
        raise DataError(f"folder={shown(folder)} must be the path of a folder.")
    path = Path(folder).absolute()
    above = next((each for each in (path, *path.parents) if each.exists() and not each.is_dir()), None)
    if above is not None:
        raise DataError(f"The output folder {str(folder)!r} cannot be made: {str(above)!r} is a file. Name another.")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise DataError(f"The output folder {str(folder)!r} cannot be written to: {error}. Name another.") from error
    return path


def differences(there: Any, here: Any, name: str = "") -> Iterator[str]:
    """Yield in words, a line for each, where two values as JSON holds them differ."""
    if isinstance(there, dict) and isinstance(here, dict):
        for each in [*there, *(new for new in here if new not in there)]:
            inner = f"{name}.{each}" if name else str(each)
            if each not in here:
                yield f"{inner} is {shown(there[each])} there and not given here"
            elif each not in there:
                yield f"{inner} is {shown(here[each])} here and not given there"
            else:
                yield from differences(there[each], here[each], inner)
    elif there != here:
        yield f"{name} is {shown(there)} there and {shown(here)} here"


def _json(value: Any, what: str, indent: int | None = None) -> str:
    """Return a value as JSON text with sorted names; what JSON does not hold exactly is a DataError."""
    try:
        return json.dumps(value, sort_keys=indent is None, allow_nan=False, indent=indent, default=_plain)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what}, {shown(value)}, must be text, finite numbers and lists of them: {error}.") from None


def _plain(value: Any) -> Any:
    """Return a NumPy number as Python's, and a tuple-like array as a list."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not")


def _error(error: BaseException) -> str:
    """Return the type and the message of an error, in a line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _parquet(cell: Cell) -> bytes:
    """Return a cell as the bytes of a Parquet file that holds a digest of its content."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(cell.table)
    content: dict[str, Any] = {"key": cell.key, "about": cell.about}
    text = _json(content, "What is said about a cell")
    content["digest"] = _digest(table, text)
    metadata = {**(table.schema.metadata or {}), METADATA: _json(content, "What is said about a cell").encode()}
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(metadata), sink)
    return bytes(sink.getvalue())


def _read_cell(path: Path, key: Key) -> Cell:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(pa.BufferReader(path.read_bytes()))
    content = json.loads((table.schema.metadata or {})[METADATA])
    digest = content.pop("digest")
    if digest != _digest(table, _json(content, "What is said about a cell")):
        raise ValueError("its content is not what was written")
    _require_key(content["key"], key)
    return Cell(dict(key), table.to_pandas(), content["about"])


def _read_failure(path: Path, key: Key) -> Failure:
    content = json.loads(path.read_text(encoding="utf-8"))
    _require_key(content["key"], key)
    return Failure(dict(key), content["error"], content["traceback"], content["about"])


def _require_key(found: Key, key: Key) -> None:
    if _json(found, "The key of a cell") != _json(dict(key), "The key of a cell"):
        raise ValueError(f"it is of the cell {shown(found)}")


def _digest(table: Any, text: str) -> str:
    """Return a digest of the names, types and values of an Arrow table, and of a text."""
    columns = [(each.name, str(each.type)) for each in table.schema]
    by_pandas = (table.schema.metadata or {}).get(b"pandas")  # the index, and the names of columns
    content = repr((columns, by_pandas, [column.to_pylist() for column in table.columns], text))
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def write_whole(path: Path, content: bytes, *, replace: bool = True) -> None:
    """Write a file whole: to a temporary file in its folder, forced to the disk, then renamed.

    Without ``replace`` a file that is there, or that another process has made meanwhile, is kept.
    """
    temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            temporary.replace(path)
        else:
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
        if os.name == "posix":  # the name is forced to the disk, too
            descriptor = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    finally:
        temporary.unlink(missing_ok=True)


def _identifies(run: Any) -> bool:
    return isinstance(run, dict) and run.get("format") == FORMAT and isinstance(run.get("run"), dict)
