"""Files and folders: written whole, one run in a folder at a time, and tables as CSV that no spreadsheet evaluates."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sys
import tempfile
import time
import uuid
import warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrofair._validation import require_path
from pyrofair.exceptions import DataError, PyrofairWarning

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "RUN",
    "FolderLock",
    "csv_text",
    "made_folder",
    "read_run",
    "run_record",
    "sweep",
    "temporary_beside",
    "write_whole",
]

RUN, FORMAT = "run.json", 1
"""The file that identifies the run whose results are in a folder, and the version of its format."""
LOCK = ".lock"
"""The file by which processes agree who works in a folder."""
TAKEN = (errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK)
UNSUPPORTED = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""What file systems without locks, or that cannot force a file to the disk, answer."""
PATIENCE = 2.0
"""Seconds in which another run has claimed a folder that both may use."""
PLACES = 64
"""The bytes of the lock's file on Windows: who works alone locks all of them, and who shares locks one."""
TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp")
FORMULA = ("=", "+", "-", "@")
"""A cell that begins with one of these is a formula to a spreadsheet, unless it is a number."""

if sys.platform == "win32":
    import msvcrt
    import random

    def _lock(file: int, *, alone: bool) -> None:
        os.lseek(file, 0 if alone else random.randrange(PLACES), os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, PLACES if alone else 1)

else:
    import fcntl

    def _lock(file: int, *, alone: bool) -> None:
        fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)


# -- folders -----------------------------------------------------------------------------------------------------------


def made_folder(folder: str | os.PathLike[str]) -> Path:
    """Return a folder, made if need be, as an absolute path; a DataError if it cannot be made or written to."""
    path = require_path("folder", folder, "the path of a folder").absolute()
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


def run_record(run: Mapping[str, Any], **about: Any) -> bytes:
    """Return the content of the file that identifies the run of a folder, with what else is said about it."""
    return f"{json.dumps({'format': FORMAT, 'run': run, **about}, indent=2)}\n".encode()


def read_run(folder: Path) -> dict[str, Any] | None:
    """Return what identifies the run of a folder, or None."""
    try:
        content = json.loads((folder / RUN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    known = isinstance(content, dict) and content.get("format") == FORMAT and isinstance(content.get("run"), dict)
    return content["run"] if known else None


class FolderLock:
    """The right to work in a folder, which ends with the process at the latest; a DataError if another run has it.

    Others that ``share`` the folder may work in it at the same time: ``alone`` tells whether nobody does. A copy in
    another process holds nothing. On a file system without locks there is a warning instead.
    """

    def __init__(self, folder: Path, *, share: bool = False) -> None:
        self.path = folder / LOCK
        self._close: weakref.finalize[..., FolderLock] | None = None
        self._take((True, False) if share else (True,), PATIENCE if share else 0.0)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "alone": False, "_file": -1, "_close": None}

    def _take(self, ways: Sequence[bool], patience: float) -> None:
        """Take the lock in the first way that is free: alone or not."""
        until = time.monotonic() + patience
        while True:
            try:
                file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                text = f"The file {str(self.path)!r} cannot be written: {error.strerror}. Name another folder."
                raise DataError(text) from error
            for self.alone in ways:
                try:
                    _lock(file, alone=self.alone)
                    if os.path.samestat(os.fstat(file), self.path.stat()):
                        self._file, self._close = file, weakref.finalize(self, os.close, file)
                        return
                except OSError as error:
                    if error.errno not in (*TAKEN, errno.ENOENT):  # whoever held it deletes the file
                        os.close(file)
                        return self._warn(error)
            os.close(file)
            if time.monotonic() >= until:
                raise DataError(
                    f"Another run is working in the folder {str(self.path.parent)!r}. Wait until it has ended, or name "
                    "another folder."
                )
            time.sleep(0.02)

    def _warn(self, error: OSError) -> None:
        self.path.unlink(missing_ok=True)
        warnings.warn(
            f"The file system of {str(self.path.parent)!r} has no locks ({error}), so two runs in this folder at once "
            "would not notice each other. Start one at a time.",
            PyrofairWarning,
            stacklevel=5,
        )

    def share(self) -> None:
        """Let others in that share the folder."""
        if self._close is not None and self.alone:
            self._close()
            self._take((False,), PATIENCE)

    def release(self) -> None:
        """Give the folder back; the last one deletes the file."""
        if self._close is None or not self._close.alive:
            return
        with contextlib.suppress(OSError):  # others still share it
            if os.name == "posix":
                _lock(self._file, alone=True)
                self.path.unlink()
        self._close()
        if os.name != "posix":
            with contextlib.suppress(OSError):  # an open file cannot be deleted there
                self.path.unlink()


# -- files -------------------------------------------------------------------------------------------------------------


def temporary_beside(path: Path) -> Path:
    """Return a new, hidden name in the folder of a file."""
    return path.parent / f".{uuid.uuid4().hex}.tmp"


def sweep(folder: Path) -> None:
    """Delete what killed processes left of files that they wrote; nobody else may work in the folder."""
    for path in folder.iterdir():
        if TEMPORARY.fullmatch(path.name):
            with contextlib.suppress(OSError):
                path.unlink()


def write_whole(path: Path, content: bytes, *, replace: bool = True) -> None:
    """Write a file whole, forced to the disk; without ``replace`` one that is there is a FileExistsError."""
    temporary = temporary_beside(path)
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            _force(file.fileno())
        _put(temporary, path, replace=replace)
    except OSError as error:  # it names the temporary file
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":  # the name is forced to the disk, too; the file is there whole by now
        with contextlib.suppress(OSError):
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                _force(folder)
            finally:
                os.close(folder)


def _put(temporary: Path, path: Path, *, replace: bool) -> None:
    if not replace:
        try:
            return os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            if path.exists():
                raise FileExistsError(errno.EEXIST, "it exists", str(path)) from None
    temporary.replace(path)


def _force(file: int) -> None:
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise


def csv_text(table: pd.DataFrame) -> str:
    """Return a table as CSV whose texts begin with an apostrophe where a spreadsheet would take them for a formula.

    Names of models, columns and labels come from others; opened in a spreadsheet, a cell such as ``=HYPERLINK(...)``
    would be evaluated. Numbers keep their sign.
    """
    made = table.copy()
    for place, dtype in enumerate(table.dtypes):
        if dtype.kind not in "biufc":
            made.isetitem(place, [_plain_cell(each) for each in table.iloc[:, place].astype(object)])
    made.columns = made.columns.map(lambda name: _plain_cell(str(name)))
    return made.to_csv(index=False, lineterminator="\n")


def _plain_cell(value: Any) -> Any:
    with contextlib.suppress(ValueError):
        float(value if isinstance(value, str) else 0)
        return value
    return f"'{value}" if value[:1] in ("\t", "\r") or value.lstrip()[:1] in FORMULA else value
