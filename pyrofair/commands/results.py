"""The folder of the results of a command: claimed before any work, written whole, and of one run."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrofair._version import __version__
from pyrofair.commands.options import Option, Settings, UsageError, config_option, grouped, write_settings
from pyrofair.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RESULT_OPTIONS", "ResultsFolder", "default_folder", "digest_files"]

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
FORMAT = 1
UNIDENTIFYING = ("output", "threads")
"""Options that change no number."""
PACKAGES = (
    "arviz", "joblib", "matplotlib", "networkx", "numpy", "pandas", "pyarrow", "pyro-ppl", "scikit-learn", "scipy",
    "torch",
)  # fmt: skip


def default_folder(settings: Settings) -> Path:
    """Return the folder of the results: the one named, or one called after the command and the data."""
    stem = Path(settings["data"]).name.split(".")[0] or "data"
    return Path(settings["output"] or f"{settings.command}-{stem}")


def digest_files(paths: Sequence[str]) -> dict[str, str]:
    """Return the SHA-256 of each file, and of the files of a folder."""
    found = {}
    for path in map(Path, paths):
        digest = hashlib.sha256()
        for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if each.is_file():
                with each.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        found[str(path)] = digest.hexdigest()
    return found


@dataclass(eq=False)
class ResultsFolder:
    """The folder of a run, whose files are written whole or not at all.

    ``run.json`` identifies the run: its settings, the digests of its files, and the version of the package. Files of
    another run are kept, unless they are to be overwritten. Nothing in the folder changes before :meth:`write`.
    """

    folder: Path
    settings: Settings
    run: dict[str, Any]
    names: tuple[str, ...]
    made: bool
    contents: dict[str, Callable[[Path], object]] = field(default_factory=dict)

    @classmethod
    def claimed(cls, settings: Settings, files: Sequence[str], names: Sequence[str]) -> ResultsFolder:
        """Return the folder of a run, which reads some files and may write files of some names.

        A UsageError if it cannot be made or written to, or holds any of these of another run.
        """
        from pyrofair._cells import differences, made_folder

        folder = default_folder(settings)
        known = (*names, RUN, SETTINGS)
        run = {
            "command": settings.command,
            "version": __version__,
            "settings": {name: value for name, value in settings.recorded().items() if name not in UNIDENTIFYING},
            "files": digest_files(files),
        }
        found = [name for name in known if (folder / name).exists()]
        if found and not settings["overwrite"]:
            there = _read_run(folder / RUN)
            if there is None:
                raise UsageError(
                    f"the folder {str(folder)!r} holds {', '.join(found)} of another run, which no {RUN} identifies. "
                    "Name another one, --output FOLDER, or pass --overwrite to replace them."
                )
            if there != run:
                apart = "; ".join(differences(there, run))
                raise UsageError(
                    f"the folder {str(folder)!r} holds the results of another run: {apart}. Name another one, --output "
                    "FOLDER, or pass --overwrite to replace them."
                )
        new = not folder.exists()
        try:
            made_folder(folder)
        except DataError as error:
            raise UsageError(str(error)) from error
        return cls(folder, settings, run, known, new)

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
        if len(table):
            self.add(name, lambda path: table.to_csv(path, index=False))

    def add_figure(self, name: str, figure: Any) -> None:
        """Add a picture."""

        def write(path: Path) -> None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Glyph")  # a sign that the font lacks is drawn as a box
                figure.savefig(path, dpi=150, format="png")

        self.add(name, write)

    def write(self) -> list[Path]:
        """Write all files, delete those that an earlier run left and this one has not, and return the paths."""
        rerun = f"pyrofair {self.settings.command} --config {self.folder / SETTINGS}"
        comments = [
            f"Settings of pyrofair {self.settings.command}, version {__version__}. The same again, in the folder where "
            "it was run:",
            rerun,
        ]
        self.add_text(SETTINGS, write_settings(self.settings, comments))
        about = {"format": FORMAT, "run": self.run, "versions": _versions()}
        self.add_text(RUN, json.dumps(about, indent=2))
        beside: dict[str, Path] = {}
        try:
            for name, write in self.contents.items():
                beside[name] = self.folder / f".{uuid.uuid4().hex}{Path(name).suffix}"
                write(beside[name])
            (self.folder / RUN).unlink(missing_ok=True)  # until all files are those of one run, none is named
            for name in self.names:
                if name not in self.contents:
                    (self.folder / name).unlink(missing_ok=True)
            for name, path in beside.items():
                os.replace(path, self.folder / name)  # the record of the run is the last
        finally:
            for path in beside.values():
                path.unlink(missing_ok=True)
        return [self.folder / name for name in self.contents]

    def abandon(self) -> None:
        """Delete the folder if this run made it and wrote nothing."""
        if self.made:
            with suppress(OSError):
                self.folder.rmdir()


def _read_run(path: Path) -> dict[str, Any] | None:
    """Return what identifies the run of a folder, or None."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    known = isinstance(content, dict) and content.get("format") == FORMAT and isinstance(content.get("run"), dict)
    return content["run"] if known else None


def _versions() -> Mapping[str, str]:
    """Return the versions of Python and of the packages that numbers depend on."""
    from importlib import metadata  # it takes longer to load than all else that help needs

    found = {"pyrofair": __version__, "python": platform.python_version(), "platform": platform.platform()}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
