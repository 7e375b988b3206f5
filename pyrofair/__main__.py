"""The command line: ``python -m pyrofair compare adult``, ``python -m pyrofair reproduce all``."""

from __future__ import annotations

import argparse
import io
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from pyrofair._random import one_thread
from pyrofair._version import __version__
from pyrofair.exceptions import DataError
from pyrofair.reproduce import EXPERIMENTS, SETTINGS, claim_cells, claim_folder, compare, reproduce, settings_of

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; see ``python -m pyrofair --help``."""
    parser = argparse.ArgumentParser(prog="python -m pyrofair", description=__doc__)
    parser.add_argument("--version", action="version", version=f"pyrofair {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_compare(commands)
    _add_reproduce(commands)
    options = parser.parse_args(arguments)
    lines = _Lines()
    with one_thread(), threadpool_limits(1):  # of two threads, each mostly waits for the other in small networks
        folder = (_compare if options.command == "compare" else _reproduce)(options, parser, lines)
    if lines.failure is not None:
        parser.exit(1, f"Standard output cannot be written to ({lines.failure}); the results are in {folder}.\n")


def _add_compare(commands: Any) -> None:
    job = commands.add_parser("compare", help="compare the paper's methods on packaged data")
    job.add_argument("data", choices=sorted(SETTINGS))
    job.add_argument("--strength", type=float, default=1.0, help="strength of the penalties in the audit (default 1)")
    job.add_argument("--replicates", type=int, default=50, help="bootstrap replicates (default 50, at least 50)")
    job.add_argument("--seed", type=int, default=0, help="seeds the split, the training and the bootstrap (default 0)")
    job.add_argument("--output", type=Path, default=None, help="folder for the results (default compare-DATA)")
    job.add_argument("--overwrite", action="store_true", help="replace files of another run in that folder")


def _add_reproduce(commands: Any) -> None:
    job = commands.add_parser("reproduce", help="make the paper's tables and figures, ours beside the printed numbers")
    job.add_argument("name", choices=[*EXPERIMENTS, "all"])
    job.add_argument("--quick", action="store_true", help="few rows, seeds and strengths: whether it runs, no more")
    job.add_argument("--jobs", type=int, default=1, help="processes (default 1); the numbers do not depend on it")
    job.add_argument("--output", type=Path, default=None, help="folder for the results (default reproduction)")
    job.add_argument("--overwrite", action="store_true", help="replace the results of another run in that folder")


def _compare(options: argparse.Namespace, parser: argparse.ArgumentParser, lines: _Lines) -> Path:
    """Compare the methods on a data set, and return the folder of the results."""
    if options.replicates < 50:
        parser.error("--replicates must be at least 50, or the intervals mean little")
    if not 0.0 <= options.strength < math.inf:
        parser.error("--strength must be a finite number that is not negative")
    if options.seed < 0:
        parser.error("--seed must not be negative")
    folder: Path = options.output or Path(f"compare-{options.data}")
    settings = {"strength": options.strength, "n_boot": options.replicates, "seed": options.seed}
    try:
        replaced = claim_folder(folder, settings_of(options.data, **settings), overwrite=options.overwrite)
    except DataError as error:
        parser.error(str(error))
    if replaced:
        lines.write(f"replacing {', '.join(replaced)} in {folder}")
    result = compare(options.data, folder=folder, report=lines.write, **settings)
    paths = result.save(folder, overwrite=options.overwrite)
    lines.write(result.text)
    for path in paths:
        lines.write(f"wrote {path}")
    return folder


def _reproduce(options: argparse.Namespace, parser: argparse.ArgumentParser, lines: _Lines) -> Path:
    """Make tables and figures of the paper, and return the folder of the results."""
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    folder: Path = options.output or Path("reproduction-quick" if options.quick else "reproduction")
    names = list(EXPERIMENTS) if options.name == "all" else [options.name]
    try:
        claim_cells(folder, quick=options.quick, overwrite=options.overwrite)
    except DataError as error:
        parser.error(str(error))
    try:
        paths = reproduce(names, folder, quick=options.quick, jobs=options.jobs, report=lines.write)
    except DataError as error:
        parser.exit(1, f"{error}\n")
    for path in paths:
        lines.write(f"wrote {path}")
    return folder


class _Lines:
    """Print lines until standard output fails (a closed pipe, a full disk), which must not end the work."""

    def __init__(self) -> None:
        self.failure: OSError | ValueError | None = None

    def write(self, text: str) -> None:
        if self.failure is None:
            try:
                print(text, flush=True)
            except (OSError, ValueError) as error:  # a closed file raises a ValueError, a code page a UnicodeError
                self.failure = error
                # What is left in the buffer would fail again when Python ends.
                sys.stdout = io.StringIO()


if __name__ == "__main__":
    main()
