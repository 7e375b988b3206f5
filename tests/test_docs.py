"""The pages agree with the code: commands, names, links and examples; some words are not used."""

from __future__ import annotations

import ast
import doctest
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

import pyrofair

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    ROOT / "README.md",
    ROOT / "pyrofair" / "datasets" / "data" / "NOTICE.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("README.md")),
]
SHELL = re.compile(r"^```(?:bash|sh|shell|console|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = """\
pyrofair audit applicants.csv --graph '{sex skill} -> job; {sex skill job} -> hired' --sensitive sex --outcome hired \\
    --baseline male --contrast female --positive yes --direct --score p --fail-above 0.1"""
IGNORED = {"build", "dist", "__pycache__", "reproduction", "reproduction-quick"}
BINARY = {".png", ".xz", ".pyc"}


def files() -> Iterator[Path]:
    """Every text file of the project."""
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        hidden = [part for part in parts[:-1] if part.startswith(".") and part != ".ci"]
        built = [part for part in parts if part in IGNORED or part.endswith(".egg-info") or part.startswith("compare-")]
        if path.is_file() and path.name != ".git" and not hidden and not built and path.suffix not in BINARY:
            yield path


# --- commands --------------------------------------------------------------------------------------------------------


def test_readme_has_three_commands() -> None:
    assert [block.strip() for block in SHELL.findall(README)] == [
        "pip install . && python -m pyrofair compare adult",
        COMMAND,
        'pip install -e ".[test]" && ruff check . && ruff format --check . && mypy && pytest',
    ]


def test_the_command_in_the_readme_is_understood() -> None:
    """Its options exist, and its table does not: that is what it stops at."""
    done = subprocess.run(
        [sys.executable, "-m", "pyrofair", *shlex.split(COMMAND.replace("\\\n", " "))[1:]],
        cwd=ROOT / "docs",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "applicants.csv" in done.stderr
    assert "usage:" not in done.stderr


def test_ci_runs_the_readme_command(tmp_path: Path) -> None:
    script = ROOT / ".ci" / "run"
    printed = subprocess.run([script, "--print"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == SHELL.findall(README)[2].strip()
    assert "pytest" not in script.read_text(encoding="utf-8")


def test_hooks_need_no_network() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"repo: *(\S+)", hooks)) == {"local"}
    assert set(re.findall(r"language: *(\S+)", hooks)) == {"system"}


# --- names -----------------------------------------------------------------------------------------------------------


def test_every_public_name_is_documented() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    rows = [name for block in re.findall(r"(?ms)^```\{names\}\n(.*?)^```", page) for name in block.split()]
    assert len(rows) == len(set(rows))
    top = {*pyrofair.__all__}
    folders = [name for name in pyrofair.__all__ if isinstance(getattr(pyrofair, name), ModuleType)]
    below = {f"{name}.{each}" for name in folders for each in getattr(pyrofair, name).__all__ if each not in top}
    assert {*rows, "__version__"} == top | below


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "decisions" / "0001-dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z0-9-]+) >= ([\d.]+) \| \S", page, re.MULTILINE)
    assert sorted(f"{name}>={bound}" for name, bound in rows) == sorted(project["dependencies"])


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    pages = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert LINK.findall(index) == pages
    for number, name in enumerate(pages, 1):
        text = (folder / name).read_text(encoding="utf-8")
        assert name.startswith(f"{number:04d}-")
        assert text.startswith(f"# {number}. ")
        assert [word for word in ("**Context.**", "**Decision.**", "**Consequence.**") if word not in text] == []


def test_the_source_distribution_holds_all_that_tests_need() -> None:
    manifest = (ROOT / "MANIFEST.in").read_text(encoding="utf-8")
    listed = {name for line in re.findall(r"^(?:include|graft) (.*)$", manifest, re.MULTILINE) for name in line.split()}
    added_by_setuptools = {"pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "pyrofair"}
    kept = {path.relative_to(ROOT).parts[0] for path in files()} | {".ci", ".gitignore", ".pre-commit-config.yaml"}
    assert listed | added_by_setuptools == kept
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license"] == "MIT AND CC-BY-4.0"


def test_one_version() -> None:
    version = pyrofair.__version__
    assert f"## [{version}]" in (ROOT / "docs" / "changelog.md").read_text(encoding="utf-8")
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


# --- links and code --------------------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            if link.startswith(("http://", "https://")):
                continue
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if not target.is_relative_to(ROOT) or not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append((page.name, link))
    assert broken == []


def test_names_of_the_package_in_pages_exist() -> None:
    """A name in backticks that looks like a method or function of the package is one."""
    for page in PAGES:
        for name in set(re.findall(r"`(?:pyrofair|pf)\.([\w.]+)", page.read_text(encoding="utf-8"))):
            thing: object = pyrofair
            for part in name.split("."):
                assert hasattr(thing, part), f"{page.name}: {name}"
                thing = getattr(thing, part)


def run_blocks(blocks: list[str], page: str) -> dict[str, Any]:
    """Run blocks one after the other, as pasted; levels that occur in one group only are warned of, and may be."""
    names: dict[str, Any] = {}
    with threadpool_limits(1), warnings.catch_warnings():  # more threads spin when the machine is busy
        warnings.simplefilter("ignore", pyrofair.PositivityWarning)
        for code in blocks:
            exec(compile(code, page, "exec"), names)
    return names


def test_the_readme_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    audit, _, program = PYTHON.findall(README)
    (home,) = PYTHON.findall((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    assert {*home.splitlines()} < {*audit.splitlines()}
    names = run_blocks([audit], "README.md")
    assert "Audit of 1 model(s) on 10,869 rows" in capsys.readouterr().out
    rows = names["report"].table.query("decisions == 'threshold'").set_index("quantity")
    claimed = re.search(r"at least (\d+) % of all decisions, and at most (\d+) %", README.replace("\n", " "))
    assert claimed is not None
    ends = rows.loc["piu_lower", "lower"], rows.loc["piu_upper", "upper"]
    assert [round(100 * end) for end in ends] == pytest.approx([int(end) for end in claimed.groups()], abs=1)
    names = run_blocks([program], "README.md")
    assert (names["switched"]["M"] - names["baseline"]["M"]).round(4).tolist() == [2.0] * 5


@pytest.mark.slow
def test_the_picture_of_the_readme_is_made_by_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_blocks(PYTHON.findall(README)[:2], "README.md")
    assert {path.name for path in tmp_path.iterdir()} == {"audit.html", "adult.png"}
    rows = names["both"].table.query("decisions == 'threshold'").pivot(index="quantity", columns="model")
    estimate = rows["estimate"]
    assert estimate.loc["piu_lower", "effect_gap"] < 0.06 < estimate.loc["piu_upper", "effect_gap"]
    assert estimate.loc["piu_upper", "disagreement"] < 0.1
    assert estimate.loc["accuracy"].min() > estimate.loc["majority_rate"].max() + 0.02


SHORTER = {
    "n = 4_000": "n = 1_800",
    "2_700": "1_200",
    "draws=20": "draws=5",
    "epochs=40": "epochs=20",
    "[0.0, 0.25, 0.5, 1.0]": "[0.0, 1.0]",
}


@pytest.mark.parametrize("changes", [SHORTER, pytest.param({}, marks=pytest.mark.slow)], ids=["shorter", "as it is"])
def test_the_first_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]) -> None:
    """From a CSV file to a chosen classifier, which is fairer at a small price."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "start-here.md").read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in page
        page = page.replace(old, new)
    names = run_blocks(PYTHON.findall(page), "start-here.md")
    final = names["final"].table.query("decisions == 'threshold'").pivot(index="quantity", columns="model")["estimate"]
    assert final.loc["piu_upper", "chosen"] < final.loc["piu_lower", "trees"]
    assert final.loc["accuracy", "chosen"] > final.loc["majority_rate", "chosen"]
    written = {"loans.csv", "audit.csv", "audit.html", "audit.png", "stages.png", "path.png", "final.png"}
    assert {path.name for path in tmp_path.iterdir()} == written
    assert set(re.findall(r'"(\w+\.(?:csv|html|png))"', page)) == written


PLAIN = {"names=words, ": 'names=words, propensity="logistic", regression="logistic", folds=2, splits=1, '}


@pytest.mark.parametrize("changes", [PLAIN, pytest.param({}, marks=pytest.mark.slow)], ids=["plain", "as it is"])
def test_the_page_on_decompositions_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]
) -> None:
    """It draws the first picture of the README, and its numbers and those of the README are what it finds."""
    monkeypatch.chdir(tmp_path)
    page = code = (ROOT / "docs" / "decompose.md").read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in page
        code = code.replace(old, new)
    parts = run_blocks(PYTHON.findall(code), "decompose.md")["parts"]
    assert (tmp_path / "decompose.png").stat().st_size > 0
    table = 100.0 * parts.table.query("decisions == 'threshold'").set_index(["part", "model"])["estimate"]
    own = table.xs("boosted", level="model")
    assert own.drop(["gap", "total effect"]).sum() == pytest.approx(own["gap"], abs=1e-9)
    if changes:
        return
    rows = re.findall(r"^\| (by way of marital status|directly) \| (\S+) \| (\S+) \|", page, re.MULTILINE)
    for part, *claimed in rows:
        assert table[part].to_list() == pytest.approx([float(each) for each in claimed], abs=0.3)
    (gap,) = re.findall(r"of ([\d.]+)\spoints, comes by way of marital status", README)
    assert table["gap", "boosted"] == pytest.approx(float(gap), abs=0.1)


def test_the_site_has_the_same_needs_in_both_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(extras["docs"]) <= set(extras["test"])


def run_page(name: str, plain: bool = True) -> dict[str, Any]:
    """Run a page's blocks in one namespace: sessions as doctests, and the other blocks if they are ``plain``."""
    page = ROOT / "docs" / f"{name}.md"
    names: dict[str, Any] = {"__name__": f"page_{name}"}
    with threadpool_limits(1):
        for number, code in enumerate(PYTHON.findall(page.read_text(encoding="utf-8"))):
            if code.startswith(">>>"):
                test = doctest.DocTestParser().get_doctest(code, names, f"{page.name} {number}", str(page), None)
                assert doctest.DocTestRunner().run(test, clear_globs=False).failed == 0
                names |= test.globs
            elif plain:
                exec(compile(code, f"{page.name} {number}", "exec"), names)
    return names


@pytest.mark.parametrize("name", ["sources", "not-identified", "saving"])
def test_a_page_with_sessions_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run_page(name)


def test_each_case_that_is_not_identified_has_a_section() -> None:
    text = (ROOT / "docs" / "not-identified.md").read_text(encoding="utf-8")
    headings = {re.sub(r"[^a-z -]", "", line.lower()).replace(" ", "-") for line in re.findall("^## (.*)$", text, re.M)}
    assert set(re.findall(r"\(#([a-z-]+)\)", text)) == headings


def test_the_page_on_disputed_graphs_runs() -> None:
    """But for its example on Adult, which takes a minute."""
    assert "costs" in run_page("disputed-graphs", plain=False)


def test_the_page_on_several_groups_runs() -> None:
    rows = run_page("several-groups")["penalised_and_plain"].worst
    worst = rows.query("quantity == 'mean_unfair_effect' and decisions == 'score'").set_index("model")
    assert worst.loc["penalised", "size"] < worst.loc["plain", "size"] / 2


def test_the_page_on_real_tables_runs() -> None:
    names = run_page("real-tables")
    assert names["report"].context.missing["column"].tolist() == ["hours"]
    assert len(names["hidden"].context.disclosure) > 0
    assert any("group" in line for line in names["grouped"].context.assumptions)


def test_the_page_on_large_data_runs() -> None:
    details = run_page("large-data")["report"].details()
    assert "Audit of 1 model(s) on 6,000 rows; 95% Wald intervals" in details
    assert "comes from the samples" in details


@pytest.mark.filterwarnings("ignore:Setting a")  # by fairlearn's reductions
def test_the_page_on_models_and_data_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run_page("models-and-data")
    printed = capsys.readouterr().out
    assert "encode inside the model, make_pipeline(make_column_transformer(" in printed
    assert "demographic parity difference 0." in printed


# --- words -----------------------------------------------------------------------------------------------------------


def test_no_file_names_a_path_outside_the_project() -> None:
    paths = ["/" + "work/", "shared" + "/", "err" + "ata", "design" + ".md", "style" + ".md", "/" + "opt/"]
    found = [
        (str(path.relative_to(ROOT)), outside)
        for path in files()
        for outside in paths
        if outside in path.read_text(encoding="utf-8", errors="replace").lower()
    ]
    assert found == []


def test_we_assess_and_mitigate() -> None:
    promises = re.compile(
        r"de-?bias" + r"|guarantee\w* fair|certif\w+ fair|fairness guarantee|class Fair", re.IGNORECASE
    )
    texts = [path for path in files() if path.parts[len(ROOT.parts)] != "tests"]
    found = [(str(path.relative_to(ROOT)), hit) for path in texts for hit in promises.findall(path.read_text("utf-8"))]
    assert found == []


def test_no_classes_are_called_fair() -> None:
    names = [
        node.name
        for path in (ROOT / "pyrofair").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert [name for name in names if re.search(r"(?<!Un)Fair", name)] == []
