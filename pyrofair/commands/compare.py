"""The command ``pyrofair compare``: the paper's methods on packaged data, beside one another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyrofair.commands.options import DONE, Command, Option, Settings, UsageError

__all__ = ["COMMAND"]

OPTIONS = (
    Option("data", "the data set", choices=("adult", "german"), positional=True, required=True),
    Option("strength", "strength of the penalties in the audit", type=float, default=1.0, least=0.0,
           metavar="NUMBER"),
    Option("replicates", "bootstrap replicates, at least 50, or the intervals mean little", type=int, default=50,
           least=50, metavar="NUMBER"),
    Option("seed", "seeds the split, the training and the bootstrap", type=int, default=0, least=0, metavar="NUMBER"),
    Option("output", "folder for the results (default compare-DATA)", metavar="FOLDER"),
    Option("overwrite", "replace files of another run in that folder", type=bool),
    Option("traceback", "show where an error was raised", type=bool),
)  # fmt: skip
EXAMPLE = """\
example:

  pyrofair compare adult

A run that is ended goes on from what was finished when the same command is given again.
"""


def run(settings: Settings, lines: Any) -> int:
    """Compare the methods on a data set, and print the reading."""
    from threadpoolctl import threadpool_limits

    from pyrofair import reproduce
    from pyrofair._random import one_thread
    from pyrofair.exceptions import DataError

    data = settings["data"]
    folder = Path(settings["output"] or f"compare-{data}")
    own = {"strength": settings["strength"], "n_boot": settings["replicates"], "seed": settings["seed"]}
    with one_thread(), threadpool_limits(1):  # of two threads, each mostly waits for the other in small networks
        try:
            identity = reproduce.settings_of(data, **own)
            replaced = reproduce.claim_folder(folder, identity, overwrite=settings["overwrite"])
        except DataError as error:
            raise UsageError(str(error)) from error
        lines.folder = str(folder)
        if replaced:
            lines.write(f"replacing {', '.join(replaced)} in {folder}")
        result = reproduce.compare(data, folder=folder, report=lines.write, **own)
        paths = result.save(folder, overwrite=settings["overwrite"])
    lines.write(result.text)
    for path in paths:
        lines.write(f"wrote {path}")
    return DONE


COMMAND = Command(
    "compare",
    "compare the paper's methods on packaged data",
    "Train and audit the paper's methods on Adult or German Credit, which are in the package.",
    EXAMPLE,
    OPTIONS,
    run,
)
