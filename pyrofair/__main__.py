"""The command line: ``python -m pyrofair compare adult``."""

from __future__ import annotations

import argparse
import io
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from threadpoolctl import threadpool_limits

from pyrofair._random import one_thread
from pyrofair._version import __version__
from pyrofair.exceptions import DataError
from pyrofair.reproduce import SETTINGS, claim_folder, compare, settings_of

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; see ``python -m pyrofair --help``."""
    parser = argparse.ArgumentParser(prog="python -m pyrofair", description=__doc__)
    parser.add_argument("--version", action="version", version=f"pyrofair {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    job = commands.add_parser("compare", help="compare the paper's methods on packaged data")
    job.add_argument("data", choices=sorted(SETTINGS))
    job.add_argument("--strength", type=float, default=1.0, help="strength of the penalties in the audit (default 1)")
    job.add_argument("--replicates", type=int, default=50, help="bootstrap replicates (default 50, at least 50)")
    job.add_argument("--seed", type=int, default=0, help="seeds the split, the training and the bootstrap (default 0)")
    job.add_argument("--output", type=Path, default=None, help="folder for the results (default compare-DATA)")
    job.add_argument("--overwrite", action="store_true", help="replace files of another run in that folder")
    options = parser.parse_args(arguments)
    if options.replicates < 50:
        parser.error("--replicates must be at least 50, or the intervals mean little")
    if not 0.0 <= options.strength < math.inf:
        parser.error("--strength must be a finite number that is not negative")
    if options.seed < 0:
        parser.error("--seed must not be negative")
    folder = options.output or Path(f"compare-{options.data}")
    settings = {"strength": options.strength, "n_boot": options.replicates, "seed": options.seed}
    try:
        replaced = claim_folder(folder, settings_of(options.data, **settings), overwrite=options.overwrite)
    except DataError as error:
        parser.error(str(error))
    lines = _Lines()
    if replaced:
        lines.write(f"replacing {', '.join(replaced)} in {folder}")
    with one_thread(), threadpool_limits(1):  # of two threads, each mostly waits for the other in small networks
        result = compare(options.data, report=lines.write, **settings)
    paths = result.save(folder, overwrite=options.overwrite)
    lines.write(result.text)
    for path in paths:
        lines.write(f"wrote {path}")
    if lines.failure is not None:
        parser.exit(1, f"Standard output cannot be written to ({lines.failure}); the results are in {folder}.\n")


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
