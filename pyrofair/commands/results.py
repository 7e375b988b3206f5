"""The folder of the results of a command: claimed before any work, written whole, and of one run."""

from __future__ import annotations

import hashlib
import platform
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrofair._version import __version__
from pyrofair.commands.options import Option, Settings, UsageError, config_option, grouped, write_settings
from pyrofair.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RESULT_OPTIONS", "ResultsFolder"]

RESULT_OPTIONS = grouped(
    "the results",
    Option("output", "the folder of the results (default COMMAND-DATA)", metavar="FOLDER"),
    Option("overwrite", "replace the results of another run in that folder", bool),
    Option("seed", "seeds all that is drawn at random", int, default=0, least=0, most=2**31 - 1),
    Option("threads", "threads of numerical libraries", int, default=1, least=1, most=1024),
    config_option(),
    Option("traceback", "show where an error was raised", bool),
)  # fmt: skip
RUN, SETTINGS = "run.json", "settings.toml"
UNIDENTIFYING = ("output", "threads")
"""Options that change no number."""


class _NotWrittenError(Exception):
    """A file of the results cannot be written."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(name)
        self.name = name
        self.cause = error.__cause__ if isinstance(error.__cause__, OSError) else error


@dataclass(eq=False)
class ResultsFolder:
    """The folder of a run, whose files are written whole or not at all.

    ``run.json`` identifies the run: its settings, the digests of its files, and the version of the package. Files of
    another run are kept, unless they are to be overwritten. Before :meth:`write` there is a lock in the folder and
    nothing else new.
    """

    folder: Path
    settings: Settings
    run: dict[str, Any]
    names: tuple[str, ...]
    contents: dict[str, Callable[[Path], object]] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def claimed(cls, settings: Settings, files: Sequence[str], names: Sequence[str]) -> Iterator[ResultsFolder]:
        """Hold the folder of a run, which reads some files and may write files of some names, until all is written.

        A UsageError if it cannot be made or written to, if another run works in it, or if it holds any of these files
        of another run. A folder that is empty in the end, and was not there before, is deleted.
        """
        from pyrofair._files import FolderLock, made_folder, sweep
        from pyrofair._validation import path_fault

        stem = Path(settings["data"]).name.split(".")[0] or "data"
        folder, known = Path(settings["output"] or f"{settings.command}-{stem}"), (*names, RUN, SETTINGS)
        run = {
            "command": settings.command,
            "version": __version__,
            "settings": {name: value for name, value in settings.recorded().items() if name not in UNIDENTIFYING},
            "files": {str(Path(each)): hashlib.sha256(Path(each).read_bytes()).hexdigest() for each in files},
        }
        new, lock = not (path_fault(str(folder)) or folder.exists()), None
        try:
            lock = FolderLock(made_folder(folder))
            _refuse_other(folder, known, run, overwrite=settings["overwrite"])
            sweep(folder)
            yield cls(folder, settings, run, known)
        except DataError as error:
            if lock is not None:
                raise
            raise UsageError(str(error)) from error
        finally:
            if lock is not None:
                lock.release()
            if new:
                with suppress(OSError):
                    folder.rmdir()

    def add(self, name: str, write: Callable[[Path], object]) -> None:
        """Add a file that a function writes to a path."""
        if name not in self.names:
            raise AssertionError(f"{name} is not among the names that were claimed")
        self.contents[name] = write

    def add_text(self, name: str, text: str) -> None:
        """Add a text."""
        self.add(name, lambda path: path.write_text(text.rstrip("\n") + "\n", encoding="utf-8"))

    def add_table(self, name: str, table: pd.DataFrame) -> None:
        """Add a table as CSV, unless it is empty."""
        from pyrofair._files import csv_text

        if len(table):
            self.add_text(name, csv_text(table))

    def add_figure(self, name: str, figure: Any) -> None:
        """Add a picture."""

        def write(path: Path) -> None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Glyph")  # a sign that the font lacks is drawn as a box
                figure.savefig(path, dpi=150, format="png")

        self.add(name, write)

    def finish(self, text: str, lines: Any, *, short: str = "", spare: str = "") -> bool:
        """Write all files with a text as the report, print it or a ``short`` one, and return whether all are saved.

        What cannot be saved is printed all the same, and the error names the file. One that is ``spare``, and cannot be
        made, is left out, and the report says so.
        """
        self.add_text("report.txt", text)
        try:
            paths = self.write()
        except _NotWrittenError as error:
            text = text.replace(f", saved as {spare}", "")
            if error.name == spare and not isinstance(error.cause, OSError):
                del self.contents[spare]
                self.finish(f"{text}\n{spare} could not be saved: {type(error.cause).__name__}: {error.cause}", lines)
                return False
            lines.write(text)
            if not isinstance(error.cause, OSError):
                raise error.cause from None
            lines.complain(
                f"The file {str(self.folder / error.name)!r} cannot be written: {error.cause}. The report above is "
                "not saved."
            )
            return False
        lines.folder = str(self.folder)
        lines.write(short or text)
        lines.write(f"\nThe results are in {self.folder}: {', '.join(path.name for path in paths)}")
        return True

    def write(self) -> list[Path]:
        """Write all files, delete those that an earlier run left and this one has not, and return the paths.

        The record of the run comes first, as unfinished, and last: a run that is killed in between can be repeated.
        """
        from pyrofair._files import run_record, temporary_beside, write_whole
        from pyrofair.audits.display.export import known_versions

        versions = known_versions() | {"platform": platform.platform()}
        rerun = f"pyrofair {self.settings.command} --config {self.folder / SETTINGS}"
        comments = [
            f"Settings of pyrofair {self.settings.command}, version {__version__}. The same again, in the folder where "
            "it was run:",
            rerun,
        ]
        self.add_text(SETTINGS, write_settings(self.settings, comments))
        beside = {name: temporary_beside(self.folder / name) for name in self.contents}
        name = ""
        try:
            for name, write in self.contents.items():
                write(beside[name])
            write_whole(self.folder / (name := RUN), run_record(self.run, finished=False))
            for name in {*self.names} - {*self.contents, RUN}:
                (self.folder / name).unlink(missing_ok=True)
            for name, path in beside.items():
                path.replace(self.folder / name)
            write_whole(self.folder / (name := RUN), run_record(self.run, finished=True, versions=versions))
        except Exception as error:  # of the disk, or of what makes the file
            raise _NotWrittenError(name, error) from error
        finally:
            for path in beside.values():
                path.unlink(missing_ok=True)
        return [self.folder / name for name in (*self.contents, RUN)]


def _refuse_other(folder: Path, known: Sequence[str], run: dict[str, Any], *, overwrite: bool) -> None:
    """Refuse a folder with files of another run, which are not to be overwritten."""
    from pyrofair._cells import differences
    from pyrofair._files import read_run

    found = [name for name in known if (folder / name).exists()]
    if overwrite or not found or (there := read_run(folder)) == run:
        return
    which = f", which no {RUN} identifies" if there is None else f": {'; '.join(differences(there, run))}"
    raise UsageError(
        f"the folder {str(folder)!r} holds {', '.join(found)} of another run{which}. Name another one, --output "
        "FOLDER, or pass --overwrite to replace them."
    )
