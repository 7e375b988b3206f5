"""The command ``pyrofair compare``: the paper's methods on packaged data, beside one another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyrofair.commands.options import DONE, FAILED, Data, Option, Settings, command

__all__ = ["run"]

EXAMPLE = "example:\n\n  pyrofair compare adult\n\nRun the same command again to resume a run."

OPTIONS = (
    Data("the data set", choices=("adult", "german")),
    Option("strength", "strength of the penalties in the audit", float, default=1.0, least=0.0),
    Option("replicates", "bootstrap replicates; intervals mean little with fewer than 50", int, default=50, least=50),
    Option("seed", "seeds the split, the training and the bootstrap", int, default=0, least=0),
    Option("all", "audit PSCF in all its modes, and trace more strengths", type=bool),
    Option("output", "folder for the results (default compare-DATA)", metavar="FOLDER"),
    Option("overwrite", "replace files of another run in that folder", type=bool),
    Option("traceback", "show where an error was raised", type=bool),
)


@command("compare", "compare the paper's methods on packaged data", EXAMPLE, OPTIONS)
def run(settings: Settings, lines: Any) -> int:
    """Train and audit the paper's methods on Adult or German Credit, which are in the package."""
    from threadpoolctl import threadpool_limits

    from pyrofair._cells import CellFolder
    from pyrofair._random import one_thread
    from pyrofair.commands.comparison import FILES, compare

    own = {"strength": settings["strength"], "n_boot": settings["replicates"], "seed": settings["seed"]}
    identity = {"command": "compare", "data": settings["data"], **own}
    folder = Path(settings["output"] or f"compare-{settings['data']}")
    cells = CellFolder.claimed(folder, identity, overwrite=settings["overwrite"], share=False, files=FILES)
    try:
        lines.folder = str(folder)
        if replaced := [name for name in FILES if (folder / name).exists()]:
            lines.write(f"replacing {', '.join(replaced)} in {folder}")
        with one_thread(), threadpool_limits(1):  # of two threads, each mostly waits for the other in small networks
            result = compare(settings["data"], cells, every=settings["all"], report=lines.write, **own)
        try:
            paths = result.save(folder)
        except OSError as error:
            lines.write(result.text)
            lines.complain(f"The results cannot be written: {error}. The text above is not saved.")
            return FAILED
    finally:
        cells.release()
    lines.write("\n".join([result.text, *(f"wrote {path}" for path in paths)]))
    return DONE
