"""The command ``pyrofair reproduce``: the paper's tables and figures, ours beside the printed numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyrofair.commands.options import DONE, FAILED, Command, Option, Settings, UsageError

__all__ = ["COMMAND", "EXPERIMENTS"]

EXPERIMENTS = ("table1", "fig2", "fig4", "fig5", "table-logistic", "testsetbound", "additive", "oracle", "extended")
"""The names of the experiments, which are loaded only to be run."""
OPTIONS = (
    Option("name", "the table or figure", choices=(*EXPERIMENTS, "all"), positional=True, required=True),
    Option("quick", "few rows, seeds and strengths: whether it runs, no more", type=bool),
    Option("jobs", "processes; the numbers do not depend on it", type=int, default=1, least=1, metavar="NUMBER"),
    Option("output", "folder for the results (default reproduction)", metavar="FOLDER"),
    Option("overwrite", "replace the results of another run in that folder", type=bool),
    Option("traceback", "show where an error was raised", type=bool),
)
EXAMPLE = """\
example:

  pyrofair reproduce fig5 --jobs 4

A run that is ended goes on from what was finished when the same command is given again.
"""


def run(settings: Settings, lines: Any) -> int:
    """Make tables and figures of the paper."""
    import sys

    from threadpoolctl import threadpool_limits

    from pyrofair import reproduce
    from pyrofair._random import one_thread
    from pyrofair.exceptions import DataError

    quick = settings["quick"]
    folder = Path(settings["output"] or ("reproduction-quick" if quick else "reproduction"))
    names = list(reproduce.EXPERIMENTS) if settings["name"] == "all" else [settings["name"]]
    with one_thread(), threadpool_limits(1):  # of two threads, each mostly waits for the other in small networks
        try:
            reproduce.claim_cells(folder, quick=quick, overwrite=settings["overwrite"])
        except DataError as error:
            raise UsageError(str(error)) from error
        lines.folder = str(folder)
        try:
            paths = reproduce.reproduce(names, folder, quick=quick, jobs=settings["jobs"], report=lines.write)
        except DataError as error:
            print(error, file=sys.stderr)
            return FAILED
    for path in paths:
        lines.write(f"wrote {path}")
    return DONE


COMMAND = Command(
    "reproduce",
    "make the paper's tables and figures, ours beside the printed numbers",
    "Make tables (CSV and Markdown) and figures (PNG) of the paper, with verdicts on its claims.",
    EXAMPLE,
    OPTIONS,
    run,
)
