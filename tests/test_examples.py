"""Each example is a notebook made of its script; executed once, warnings being errors, it shows what it should."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOKS = ROOT / ".ci" / "notebooks.py"
LONGEST = 80
"""The most lines of text that a cell may print."""


def limit_processor_time() -> None:
    """End a process that hangs; a busy machine does not use up its processor time."""
    import resource  # not on Windows

    resource.setrlimit(resource.RLIMIT_CPU, (600, 600))


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    # One thread of OpenMP: more of them spin when the machine is busy. The kernel chooses how pictures are shown.
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=environment | {"OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        preexec_fn=None if sys.platform == "win32" else limit_processor_time,
        check=False,
    )


def written(code: str) -> list[str]:
    """The files that an example writes to its folder."""
    return sorted(re.findall(r'folder / "([\w-]+\.(?:csv|html|png))"', code))


def test_the_folder_holds_scripts_their_notebooks_and_an_index() -> None:
    assert EXAMPLES
    names = {path.name for path in EXAMPLES[0].parent.iterdir()} - {"__pycache__"}
    assert names == {path.stem + suffix for path in EXAMPLES for suffix in (".py", ".ipynb")} | {"README.md"}
    index = (EXAMPLES[0].parent / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((\w+\.ipynb)\)", index) == [f"{path.stem}.ipynb" for path in EXAMPLES]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_notebook_is_that_of_its_script(path: Path) -> None:
    """It has no outputs, and is not older than its script: run ``python .ci/notebooks.py`` otherwise."""
    specification = importlib.util.spec_from_file_location("notebooks", NOTEBOOKS)
    assert specification is not None
    assert specification.loader is not None
    notebooks = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(notebooks)
    assert path.with_suffix(".ipynb").read_text(encoding="utf-8") == notebooks.make(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_a_plain_script_that_ends_with_what_its_numbers_rest_on(path: Path) -> None:
    code = path.read_text(encoding="utf-8")
    ast.parse(code)  # no magic commands
    headings = re.findall(r"^# (#+ .*)$", code, re.MULTILINE)
    assert [line.startswith("# ") for line in headings] == [True] + [False] * (len(headings) - 1)
    assert headings[-1] == "## What the numbers rest on"
    assert written(code)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    done = run(NOTEBOOKS, "--run", tmp_path, path.stem, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    code = path.read_text(encoding="utf-8")
    assert sorted(each.name for each in (tmp_path / "build" / "examples").iterdir()) == written(code)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([f"{path.stem}.ipynb", "build"])
    executed = json.loads((tmp_path / f"{path.stem}.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in executed["cells"] if cell["cell_type"] == "code"]
    outputs: list[dict[str, Any]] = [output for cell in cells for output in cell["outputs"]]
    # Neither a warning nor a progress bar, no object without a picture or table of itself, no flood.
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    pictures = [output["data"] for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) >= len([name for name in written(code) if name.endswith(".png")])
    for output in outputs:
        data = output.get("data", {})
        text = "".join(output.get("text", data.get("text/plain", "")))
        if not {"image/png", "text/html", "text/latex"} & data.keys():
            assert " object at 0x" not in text
            assert not re.match(r"<\w+[ (]", text)
            assert text.count("\n") < LONGEST


def test_a_script_runs_as_such(tmp_path: Path) -> None:
    """Notebooks run the same cells, so that one is enough to see that nothing in them needs a kernel."""
    path = ROOT / "examples" / "custom_graph.py"
    done = run("-W", "error", path, tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == written(path.read_text(encoding="utf-8"))
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
