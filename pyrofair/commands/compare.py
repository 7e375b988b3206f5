"""The command ``pyrofair compare``: the paper's methods on packaged data, beside one another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyrofair.commands.options import DONE, Command, Data, Option, Settings, UsageError

__all__ = ["COMMAND"]

OPTIONS = (
    Data("the data set", choices=("adult", "german")),
    Option("strength", "strength of the penalties in the audit", float, default=1.0, least=0.0),
    Option("replicates", "bootstrap replicates, at least 50, or the intervals mean little", int, default=50, least=50),
    Option("seed", "seeds the split, the training and the bootstrap", int, default=0, least=0),
    Option("output", "folder for the results (default compare-DATA)", metavar="FOLDER"),
    Option("overwrite", "replace files of another run in that folder", bool),
    Option("traceback", "show where an error was raised", bool),
)  # fmt: skip
EXAMPLE = """\
example:

  pyrofair compare adult

Run the same command again to resume a run.
"""


def run(settings: Settings, lines: Any) -> int:
    """Compare the methods on a data set, and print the reading."""
    from threadpoolctl import threadpool_limits

    from pyrofair._random import one_thread
    from pyrofair.commands.comparison import FILES, STRENGTHS, compare

    data, own = settings["data"], {"strength": settings["strength"], "seed": settings["seed"]}
    folder = Path(settings["output"] or f"compare-{data}")
    run = {"command": "compare", "data": data, "strengths": STRENGTHS, "replicates": settings["replicates"], **own}
    with one_thread(), threadpool_limits(1):  # of two threads, each mostly waits for the other in small networks
        cells, replaced = _claimed(folder, run, FILES, overwrite=settings["overwrite"])
        lines.folder = str(folder)
        if replaced:
            lines.write(f"replacing {', '.join(replaced)} in {folder}")
        result = compare(data, cells, n_boot=settings["replicates"], report=lines.write, **own)
        paths = result.save(folder)
    lines.write(result.text)
    for path in paths:
        lines.write(f"wrote {path}")
    return DONE


def _claimed(folder: Path, run: dict[str, Any], files: tuple[str, ...], *, overwrite: bool) -> tuple[Any, list[str]]:
    """Return the cells of a folder, made before any work, and the names of the files that will be replaced in it.

    A UsageError refuses a folder that cannot be made or written to, or has files of a run with other settings.
    """
    from pyrofair._cells import CellFolder, made_folder
    from pyrofair.exceptions import DataError

    try:
        cells = CellFolder(made_folder(folder))
        found = [name for name in files if (folder / name).exists()]
        if found and not overwrite and not cells.is_of(run):
            raise UsageError(
                f"The output folder {str(folder)!r} holds {', '.join(found)} of another run. Name another folder, or "
                "pass --overwrite to replace them."
            )
        return CellFolder.claimed(folder, run, overwrite=overwrite), found
    except DataError as error:
        raise UsageError(str(error)) from error


COMMAND = Command(
    "compare",
    "compare the paper's methods on packaged data",
    "Train and audit the paper's methods on Adult or German Credit, which are in the package.",
    EXAMPLE,
    OPTIONS,
    run,
)
