"""A folder of finished results: a Parquet file for each cell of a run, whole or absent, so that a rerun goes on."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from pyrofair._files import RUN, FolderLock, made_folder, read_run, run_record, sweep, write_whole
from pyrofair._validation import shown
from pyrofair.exceptions import DataError, PyrofairWarning

__all__ = ["Cell", "CellFolder", "Failure", "Key", "attempt", "cell_name", "differences"]

Key = Mapping[str, Any]
"""What identifies a cell: text, numbers, booleans and lists of them by name, as JSON holds them."""

METADATA = b"pyrofair"


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
    """The finished cells of one run, each a file of its own, whole or absent; several processes may write at once.

    Cells are in ``cells/*.parquet``, with key and what is said about them in the metadata ``pyrofair`` of the schema;
    errors, with tracebacks, in ``failures/*.json``; the settings of the run in ``run.json``. Use :meth:`claimed` before
    any work, and :meth:`release` after the last file; an instance may be sent to other processes.
    """

    folder: Path
    lock: FolderLock | None = field(default=None, compare=False)

    @classmethod
    def claimed(
        cls,
        folder: str | os.PathLike[str],
        run: Mapping[str, Any],
        *,
        overwrite: bool = False,
        share: bool = True,
        files: Sequence[str] = (),
    ) -> CellFolder:
        """Return a folder for the cells of a run, made if it does not exist, with those that are finished in it.

        ``run`` are all settings that the numbers of every cell depend on, as JSON holds them: equal settings are one
        run. With ``share`` several processes may claim it, and with ``overwrite`` cells of another run are deleted.
        ``files`` are further files of the run in the folder. A DataError if the folder cannot be made or written to,
        another run works in it, or it holds files of another run: the message names what differs.
        """
        here = dict(json.loads(_json(dict(run), "The settings of a run")))
        claimed = cls(path := made_folder(folder), FolderLock(path, share=share))
        try:
            claimed._claim(here, files, overwrite=overwrite)
            if share:
                claimed._held.share()
        except BaseException:
            claimed.release()
            raise
        return claimed

    @property
    def _held(self) -> FolderLock:
        assert self.lock is not None, "the folder was not claimed"
        return self.lock

    def _claim(self, here: dict[str, Any], files: Sequence[str], *, overwrite: bool) -> None:
        """Mark the folder as that of a run, and delete what killed processes left."""
        there = read_run(self.folder)
        found = [name for name in files if (self.folder / name).exists()]
        if found and there != here and not overwrite:
            raise DataError(
                f"The folder {str(self.folder)!r} holds {', '.join(found)} of another run. Name another folder, or "
                "pass overwrite=True (--overwrite) to replace them."
            )
        if overwrite and there not in (None, here):
            if not self._held.alone:
                raise DataError(f"A run with other settings is working in the folder {str(self.folder)!r}.")
            self._empty()
        for part in (self.cells, self.failed):
            made_folder(part)
        if not (self.folder / RUN).exists() and not any(self.cells.iterdir()):
            write_whole(self.folder / RUN, run_record(here))
        self._refuse_other(here)
        if self._held.alone:
            for part in (self.folder, self.cells, self.failed):
                sweep(part)

    def release(self) -> None:
        """Let other runs claim the folder."""
        if self.lock is not None:
            self.lock.release()

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
        """Return a finished cell, or how it failed, or None; a damaged file is warned of and counts as none."""
        path = self.path(key) if self.has(key) else self._failure_path(key)
        try:
            return _read(path, key) if path.exists() else None
        except Exception as error:  # pyarrow has many errors for a damaged file, and OSError is one of them
            text = f"The file {str(path)!r} is damaged and is not used ({_error(error)}): its cell is computed again."
            warnings.warn(text, PyrofairWarning, stacklevel=2)
        return None

    def write(self, result: Cell | Failure) -> Path:
        """Write a finished cell or an error at once, and return its file; a finished cell replaces its error."""
        failure = self._failure_path(result.key)
        if isinstance(result, Failure):
            write_whole(failure, (_json(vars(result), "What is said about a cell", indent=2) + "\n").encode())
            return failure
        write_whole(self.path(result.key), _parquet(result))
        failure.unlink(missing_ok=True)
        return self.path(result.key)

    def keep(self, result: Cell | Failure) -> None:
        """Write a result if that can be done; if not, as on a full disk, a warning names the file."""
        try:
            self.write(result)
        except OSError as error:
            what = f"The file {str(self.path(result.key))!r} cannot be written ({_error(error)})"
            text = f"{what}: its cell is in the result of this call alone."
            warnings.warn(text, PyrofairWarning, stacklevel=2)

    def _failure_path(self, key: Key) -> Path:
        return self.failed / f"{cell_name(key)}.json"

    def _empty(self) -> None:
        """Delete the cells of a run, and what identifies it last."""
        cells = (each for end in (".parquet", ".pyrofair") for each in self.cells.glob(f"*{end}"))
        for path in (*cells, *self.failed.glob("*.json"), self.folder / RUN):
            path.unlink(missing_ok=True)

    def _refuse_other(self, here: dict[str, Any]) -> None:
        there = read_run(self.folder)
        if there == here:
            return
        number = sum(1 for _ in self.cells.glob("*.parquet"))
        text = f"The folder {str(self.folder)!r} holds {number} finished cell{'s' * (number != 1)} of another run"
        if there is None:
            raise DataError(f"{text}, which its {RUN} does not identify. Name another folder.")
        raise DataError(
            f"{text}: {'; '.join(differences(there, here))}. Name another folder, or pass "
            "overwrite=True (--overwrite) to delete them."
        )


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


def _read(path: Path, key: Key) -> Cell | Failure:
    """Return a cell or an error from its file; a ValueError or the like if that is damaged, or of another cell."""
    if path.suffix == ".json":
        content = json.loads(path.read_text(encoding="utf-8"))
        result: Cell | Failure = Failure(dict(key), content["error"], content["traceback"], content["about"])
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pq.read_table(pa.BufferReader(path.read_bytes()))
        content = json.loads((table.schema.metadata or {})[METADATA])
        if content.pop("digest") != _digest(table, _json(content, "What is said about a cell")):
            raise ValueError("its content is not what was written")
        result = Cell(dict(key), table.to_pandas(), content["about"])
    if _json(content["key"], "The key of a cell") != _json(dict(key), "The key of a cell"):
        raise ValueError(f"it is of the cell {shown(content['key'])}")
    return result


def _digest(table: Any, text: str) -> str:
    """Return a digest of the names, types and values of an Arrow table, and of a text."""
    columns = [(each.name, str(each.type)) for each in table.schema]
    by_pandas = (table.schema.metadata or {}).get(b"pandas")  # the index, and the names of columns
    content = repr((columns, by_pandas, [column.to_pylist() for column in table.columns], text))
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
