"""Each example runs to its end, warnings being errors, and writes the files that it names."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))


def test_there_are_examples_and_all_are_scripts() -> None:
    assert EXAMPLES
    others = {path.name for path in EXAMPLES[0].parent.iterdir() if path.suffix not in (".py", ".md")}
    assert others - {"__pycache__"} == set()


def limit_processor_time() -> None:
    """End a process that hangs; a busy machine does not use up its processor time."""
    resource.setrlimit(resource.RLIMIT_CPU, (600, 600))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    # One thread of OpenMP: more of them spin when the machine is busy.
    environment = os.environ | {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-W", "error", path, tmp_path / "out"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        preexec_fn=limit_processor_time,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    written = re.findall(r"[\w-]+\.(?:png|csv)", done.stdout.splitlines()[-1])
    assert written
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == sorted(written)
    assert [each for each in tmp_path.iterdir() if each.name != "out"] == []
