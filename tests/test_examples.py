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
BAR = re.compile(r"[\w ]+: +\d+%\|")
LONGEST = 80
"""The most lines of text that a cell may print."""
PLAIN = 'propensity="logistic", regression="logistic", folds=2'
SMALLER: dict[str, dict[str, str]] = {
    "1_hiring_sem": {
        "head(200)": "head(50)",
        "draws=200": "draws=20",
        "epochs=60": "epochs=5",
        "n=20_000": "n=2_000",
        "worlds(20_000": "worlds(2_000",
        "draws=100)": "draws=10)",
        "head(1_000)": "head(200)",
    },
    "2_adult_audit": {
        "sample(12_000": "sample(6_000",
        "sample(4_000": "sample(2_500",
        "epochs=12": "epochs=2",
        "[0.0, 0.25, 0.5, 1.0, 2.0]": "[0.0, 1.0]",
        "at_most=0.2": "at_most=0.9",
        "pf.OneStep(unfair, ": f"pf.OneStep(unfair, {PLAIN}, ",
    },
    "3_overlap": {"400_000": "20_000", "draw(3_000": "draw(600", "range(10)": "range(2)", "n_boot=40": "n_boot=20"},
    "4_learned_mechanisms": {
        "draw(1_000": "draw(400",
        "epochs=40": "epochs=5",
        "steps=700": "steps=100",
        "draws=120, warmup=100": "draws=20, warmup=20",
        "steps=800": "steps=200",
        "n=80_000": "n=2_000",
        "n=100_000": "n=10_000",
        "epochs=60": "epochs=4",
        "n=5_000": "n=1_000",
    },
    "5_simulation_study": {
        "epochs=60": "epochs=5",
        "[250, 1_000]": "[250]",
        '(summary["n"] == 1_000)': '(summary["n"] == 250)',
        "seeds=3": "seeds=2",
        '"truth_size": 5_000, "test_size": 2_000': '"truth_size": 500, "test_size": 500',
    },
    "6_law_school": {
        "draw(2_000": "draw(500",
        "head(1_000)": "head(200)",
        "steps=1_000": "steps=100",
        '"epochs": 150': '"epochs": 5',
        "n=5_000": "n=1_000",
    },
    "7_where_a_gap_comes_from": {
        "sample(6_000": "sample(2_000",
        "max_iter=100": "max_iter=10",
        "outcome=False, ": f"outcome=False, {PLAIN}, splits=1, ",
        "pf.audit(models, unfair": f"pf.audit(models, pf.OneStep(unfair, {PLAIN})",
        'order=["Y", "M", "L", "R"], ': f'order=["Y", "M", "L", "R"], outcome=True, {PLAIN}, splits=1, ',
    },
    "choosing_a_penalty": {
        "draw(2_000": "draw(1_200",
        "test_size=600": "test_size=400",
        "epochs=30": "epochs=5",
        "at_most=0.2": "at_most=0.9",
        "[0.0, 0.5, 2.0]": "[0.0, 2.0]",
        "n_trials=4": "n_trials=2",
        "pf.OneStep(hiring.unfair, ": f"pf.OneStep(hiring.unfair, {PLAIN}, ",
        "seeds=2, progress=False": f"seeds=2, judge=pf.OneStep(hiring.unfair, {PLAIN}), progress=False",
    },
}
"""What the long notebooks are run with for each commit: they run through, and what they claim is not looked at."""
CLAIMS = {
    "1_hiring_sem": """
assert (heavy.worlds[1].sd == 0).all(axis=None)
assert (shown[couplings].min(axis=1) >= shown["mean unfair effect"].abs() - 0.01).all()
true = shown.loc["plain", couplings]
assert all(low - 0.01 <= true.min() <= true.max() <= high + 0.01 for low, high in intervals.values())
""",
    "2_adult_audit": """
assert set(report.verdicts["status"]) == {"unfair"}
assert not paper.groups.query(wanted)["agree"].any()
""",
    "3_overlap": """
assert by_shift["root mean square error"].is_monotonic_increasing
assert by_shift["ess"].is_monotonic_decreasing
off = by_model.drop(columns="truth").sub(by_model["truth"], axis=0).abs().max(axis=1)
assert off["logistic"] > 5 * off["boosted"]
assert effects["agree"].tolist() == [False, True]
assert wanted["estimate"].diff().abs().max() < 0.03
assert wanted["note"].astype(bool).tolist() == [True, False]
""",
    "4_learned_mechanisms": """
assert summary.loc["d[1]", "sd, mean-field"] < 0.8 * summary.loc["d[1]", "sd"]
assert numbers.loc["piu_lower", "lower"] <= truth.value <= numbers.loc["piu_upper", "upper"]
assert abs(outcome["PSCF"]["mean unfair effect"]) < abs(outcome["plain"]["mean unfair effect"]) / 2
""",
    "5_simulation_study": """
same = found.table[found.table["seed"] == 0].reset_index(drop=True)
assert same["seconds"].tolist() == first.table["seconds"].tolist()  # read from the folder, not computed again
""",
    "6_law_school": """
assert inside.mean() > 0.8
assert [name.split("[")[0] for name in summary.index] == [name for name in truth for _ in truth[name].reshape(-1)]
""",
    "7_where_a_gap_comes_from": """
gap = parts.table.query("model == 'without sex' and part == 'gap' and decisions == 'threshold'")
assert [*(gap["lower"] > 0)] == [True]
""",
}
"""What the text of a notebook claims, checked in its names after its last cell, at its own sizes."""
ANY_SIZE = """
import warnings
import pyrofair as pf
warnings.simplefilter("ignore", pf.PyrofairWarning)  # of so few rows and steps
"""


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
    return sorted(re.findall(r'folder / "([\w-]+\.(?:csv|html))"', code))


def test_the_folder_holds_scripts_their_notebooks_and_an_index() -> None:
    assert EXAMPLES
    names = {path.name for path in EXAMPLES[0].parent.iterdir()} - {"__pycache__"}
    notebooks = {path.stem + suffix for path in EXAMPLES for suffix in (".py", ".ipynb")}
    assert names == notebooks | {"README.md", "paper"}
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
def test_example_is_a_plain_script_that_ends_with_its_assumptions(path: Path) -> None:
    code = path.read_text(encoding="utf-8")
    ast.parse(code)  # no magic commands
    headings = re.findall(r"^# (#+ .*)$", code, re.MULTILINE)
    assert [line.startswith("# ") for line in headings] == [True] + [False] * (len(headings) - 1)
    assert headings[-1] == "## Assumptions"
    assert [line for line in headings if len(line.lstrip("# ").split()) > 6] == []  # the site's navigation
    assert re.findall(r"sys\.argv|^ *assert |import matplotlib|\baxes\.", code, re.MULTILINE) == []
    assert ".plot" in code


def changed(path: Path, folder: Path, replacing: dict[str, str], **more: str) -> Path:
    """Write the notebook of a script with smaller sizes, a ``first`` cell or a ``last`` one."""
    notebook = json.loads(path.with_suffix(".ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    text = "".join("".join(cell["source"]) for cell in cells)
    assert [old for old in replacing if old not in text] == []
    for cell in cells:
        source = "".join(cell["source"])
        for old, new in replacing.items():
            source = source.replace(old, new)
        cell["source"] = source
    for place, source in more.items():
        added = {**cells[0], "id": place, "source": source}
        notebook["cells"].insert(0 if place == "first" else len(notebook["cells"]), added)
    folder.mkdir()
    made = folder / f"{path.stem}.ipynb"
    made.write_text(json.dumps(notebook), encoding="utf-8")
    return made


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.slow
def test_notebook_runs_and_its_claims_hold(path: Path, tmp_path: Path) -> None:
    notebook = changed(path, tmp_path / "claims", {}, last=CLAIMS.get(path.stem, ""))
    done = run(NOTEBOOKS, "--run", tmp_path / "out", notebook, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    check_outputs(path, tmp_path / "out")


@pytest.mark.parametrize("name", SMALLER)
@pytest.mark.some(2)
def test_notebook_runs_with_smaller_sizes(name: str, tmp_path: Path) -> None:
    path, folder = ROOT / "examples" / f"{name}.py", tmp_path / "out"
    notebook = changed(path, tmp_path / "small", SMALLER[name], first=ANY_SIZE)
    done = run(NOTEBOOKS, "--run", folder, notebook, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    check_outputs(path, folder)


def check_outputs(path: Path, tmp_path: Path) -> None:
    """Check what an executed notebook shows and writes."""
    code = path.read_text(encoding="utf-8")
    assert sorted(each.name for each in tmp_path.glob("build/examples/*")) == written(code)
    assert {each.name for each in tmp_path.iterdir()} == {f"{path.stem}.ipynb", *(["build"] if written(code) else [])}
    executed = json.loads((tmp_path / f"{path.stem}.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in executed["cells"] if cell["cell_type"] == "code"]
    outputs: list[dict[str, Any]] = [output for cell in cells for output in cell["outputs"]]
    # No warning, no object without a picture or table of itself, no flood. On a slow machine bars of progress appear.
    written_to_stderr = "".join("".join(each["text"]) for each in outputs if each.get("name") == "stderr")
    assert [line for line in written_to_stderr.split("\r") if line.strip() and not BAR.match(line)] == []
    pictures = [output["data"] for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) >= len(re.findall(r"\.plot(?:_stages|\.\w+)?\(", code))
    for output in outputs:
        data = output.get("data", {})
        text = "".join(output.get("text", data.get("text/plain", "")))
        if not {"image/png", "text/html", "text/latex"} & data.keys():
            assert " object at 0x" not in text
            assert not re.match(r"<\w+[ (]", text)
            assert text.count("\n") < LONGEST


def test_a_script_runs_as_such(tmp_path: Path) -> None:
    """Notebooks run the same cells; a short one is run for each commit as it stands."""
    path = ROOT / "examples" / "custom_graph.py"
    done = run("-W", "error", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "unfair to at" in done.stdout
    assert list(tmp_path.iterdir()) == []
