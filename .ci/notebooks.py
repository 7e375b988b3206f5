"""Makes the notebooks of the examples from their scripts, and executes them.

``python .ci/notebooks.py`` writes ``examples/NAME.ipynb``, without outputs, for each script ``examples/NAME.py``; run
it after a change of a script. ``python .ci/notebooks.py --run FOLDER [NAME ...]`` executes notebooks, warnings being
errors: each is written to FOLDER with its outputs, its pictures and tables to ``FOLDER/build/examples``. A name may be
the path of a notebook elsewhere, ``.../NAME.ipynb``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

STRICT = r"""
import warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", module=r"ipykernel|IPython|jupyter_client|tornado|traitlets|zmq")  # not the example's
import pyrofair._progress
pyrofair._progress.AFTER = float("inf")  # nobody watches, and a busy machine would leave bars in the outputs
"""
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def make(script: Path) -> str:
    """Return the notebook of a script as text: the same script gives the same text."""
    read = jupytext.read(script, fmt="py:percent")
    cells = []
    for cell in read.cells:
        # A cell that does not change keeps its id, wherever it moves.
        name = hashlib.sha256(f"{cell.source} {sum(cell.source == other['source'] for other in cells)}".encode())
        of_type = {"execution_count": None, "outputs": []} if cell.cell_type == "code" else {}
        tags = {"tags": cell.metadata["tags"]} if "tags" in cell.metadata else {}
        cells.append(
            {"cell_type": cell.cell_type, "id": name.hexdigest()[:8], "metadata": tags, "source": cell.source} | of_type
        )
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    nbformat.validate(nbformat.from_dict(notebook))
    for each in cells:  # as Jupyter writes them: a list of lines
        each["source"] = each["source"].splitlines(keepends=True)
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def run(notebook: Path, folder: Path) -> None:
    """Execute a notebook in a folder, warnings being errors there, and write it there with its outputs."""
    read = nbformat.read(notebook, as_version=4)
    strict = nbformat.v4.new_code_cell(STRICT)
    read.cells.insert(0, strict)
    folder.mkdir(parents=True, exist_ok=True)
    client = NotebookClient(read, timeout=None, resources={"metadata": {"path": str(folder)}})
    # The kernel is this interpreter, whatever kernels the user has installed.
    client.create_kernel_manager().kernel_spec.argv = [
        sys.executable,
        "-m",
        "ipykernel_launcher",
        "-f",
        "{connection_file}",
    ]
    try:
        client.execute()
    finally:
        read.cells.remove(strict)
        nbformat.write(read, folder / notebook.name)


def main() -> None:
    """Make all notebooks, or execute some."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", metavar="FOLDER", type=Path, help="execute notebooks, and write them there")
    parser.add_argument("names", metavar="NAME", nargs="*", help="with --run: some notebooks, or paths")
    given = parser.parse_args()
    scripts = sorted(EXAMPLES.glob("*.py"))
    if given.run is None:
        for script in scripts:
            script.with_suffix(".ipynb").write_text(make(script), encoding="utf-8", newline="\n")
    else:
        for name in given.names or [script.stem for script in scripts]:
            run(Path(name) if name.endswith(".ipynb") else EXAMPLES / f"{name}.ipynb", given.run.resolve())


if __name__ == "__main__":
    main()
