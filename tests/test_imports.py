"""Folders import from lower floors only, no import circle, and each module opens alike."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import networkx as nx
import pytest

import pyrofair as pf
from pyrofair._defaults import default_of

PACKAGE = Path(__file__).resolve().parents[1] / "pyrofair"
FLOORS = [
    {
        "exceptions",
        "_validation",
        "_random",
        "_devices",
        "_arviz",
        "_figures",
        "_progress",
        "_cells",
        "_files",
        "_lazy",
        "_workers",
        "_defaults",
        "_version",
    },
    {"graph"},
    {"tables"},
    {"effects", "programs", "datasets"},
    {"nuisances", "inference"},
    {"mechanisms"},
    {"sources"},
    {"classifiers"},
    {"audits"},
    {"robustness"},
    {"persistence"},
    {"simulate"},
    {"commands"},
    {"__main__"},
]
FLOOR = {name: floor for floor, names in enumerate(FLOORS) for name in names}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


FILES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"}


parsed = cache(ast.parse)


def executed(body: list[ast.stmt], inside: bool = False, lazy: bool = False) -> Iterator[tuple[ast.stmt, bool]]:
    """Yield the statements that run, and whether inside a function; what stands under TYPE_CHECKING does not run.

    In a folder that loads names when they are used (``lazy``), it does: these names are those, as if in a function.
    """
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from executed(node.body, inside=True) if lazy else ()
            yield from executed(node.orelse, inside)
            continue
        yield node, inside
        deeper = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for part in ("body", "orelse", "finalbody"):
            yield from executed(getattr(node, part, []), deeper)
        for handler in getattr(node, "handlers", []):
            yield from executed(handler.body, deeper)


def imported(code: str, known: set[str], *, deferred: bool = True) -> set[str]:
    """Return the modules of the package that code imports: when it is loaded, or (deferred) in a function as well."""
    found = set()
    for node, inside in executed(parsed(code).body, lazy="when_used(__name__" in code):
        if inside and not deferred:
            continue
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports name the whole module"
            names = [f"{node.module}.{each.name}" for each in node.names]
        else:
            continue
        for name in names:
            name = name.removeprefix("pyrofair.") if name.startswith("pyrofair.") else ""
            found |= {part for part in (name, name.rpartition(".")[0]) if part in known}
    return found


@cache
def graph_of(*, deferred: bool) -> nx.DiGraph[str]:
    arrows = nx.DiGraph()
    arrows.add_nodes_from(FILES)
    for name, path in FILES.items():
        for other in imported(path.read_text(encoding="utf-8"), set(FILES), deferred=deferred) - {name}:
            arrows.add_edge(name, other)
    return arrows


DELEGATED = ("graph.causal_graph", "programs.vectors")
"""The one import that points upward: `CausalGraph.from_pyro` reads the sites of a program."""
CORE = {*FLOOR} - {"robustness", "simulate", "persistence", "reproduce", "commands", "__main__"}


def test_every_module_is_on_a_floor() -> None:
    assert {name.split(".")[0] for name in FILES} == set(FLOOR)


def test_a_folder_imports_from_lower_floors_only() -> None:
    folders = {(name, name.split(".")[0], other.split(".")[0]) for name, other in graph_of(deferred=False).edges}
    assert [each for each in folders if each[1] != each[2] and FLOOR[each[2]] >= FLOOR[each[1]] > 0] == []


def test_imports_never_run_in_a_circle() -> None:
    """Deferred ones count, but for `CausalGraph.from_pyro`, which delegates to the folder of programs."""
    assert list(nx.simple_cycles(graph_of(deferred=False))) == []
    deferred = graph_of(deferred=True).copy()
    deferred.remove_edge(*DELEGATED)
    assert [sorted(each) for each in nx.strongly_connected_components(deferred) if len(each) > 1] == []


def test_deferred_imports_are_for_speed_and_never_upward() -> None:
    upward = {(a, b) for a, b in graph_of(deferred=True).edges if FLOOR[a.split(".")[0]] < FLOOR[b.split(".")[0]]}
    assert upward == {DELEGATED}


def test_the_core_never_imports_robustness() -> None:
    folders = {(name, name.split(".")[0], other.split(".")[0]) for name, other in graph_of(deferred=True).edges}
    assert [each for each in folders if each[1] in CORE and each[2] == "robustness"] == []


def test_defaults_of_higher_folders_are_set_on_top() -> None:
    assert default_of("source of audits") is pf.OneStep
    assert default_of("check of a graph") is pf.robustness.check_graph
    assert default_of("audit of each contrast") is pf.audit_contrasts
    with pytest.raises(LookupError, match=r"'colour'.*'source of audits', .*'check of a graph'.*pyrofair/__init__.py"):
        default_of("colour")


def test_names_of_folders_that_moved_are_found() -> None:
    assert pf.sensitivity.confounding is pf.robustness.sensitivity.confounding
    assert pf.partial_identification.sharp_bounds is pf.sharp_bounds
    assert pf.checks.check_graph is pf.robustness.check_graph


@pytest.mark.parametrize("folder", ["effects", "classifiers.penalized", "classifiers.training", "audits"])
def test_what_consumes_worlds_knows_no_source(folder: str) -> None:
    """The default source of `audit(models, unfair, df)` plays a role, see `_defaults`."""
    arrows = graph_of(deferred=True).copy()
    arrows.remove_edge(*DELEGATED)
    for name in FILES:
        if name == folder or name.startswith(f"{folder}."):
            known = {other for other in nx.descendants(arrows, name) if other.startswith("sources.")}
            assert known == set(), f"{name} knows {sorted(known)}"


def test_a_module_opens_with_a_sentence_and_its_names() -> None:
    for name, path in FILES.items():
        tree = parsed(path.read_text(encoding="utf-8"))
        first = (ast.get_docstring(tree) or "").split("\n\n")[0]
        assert re.match(r"[A-Z].*\.$", first, re.DOTALL), f"{name} does not open with one sentence: {first!r}"
        if name != "_version":
            assert any(ast.unparse(node).startswith("__all__ = ") for node in tree.body), f"{name} has no __all__"
        if path.name == "__init__.py":
            assert len((ast.get_docstring(tree) or "").splitlines()) >= 3, f"{name} does not describe input and output"


WHAT_LOADS_LITTLE = {
    "graphs and data": (
        """
import pyrofair as pf
graph = pf.CausalGraph("A -> M; {A M} -> Y", sensitive="A", outcome="Y")
pf.identify(graph.unfair("A -> Y"))
pf.datasets.load_german()
""",
        {"torch", "pyro", "arviz", "matplotlib", "sklearn", "tqdm"},
    ),
    "an audit by OneStep": (
        """
import sys, warnings
import numpy as np, pandas as pd, pyrofair as pf
from sklearn.linear_model import LogisticRegression
from pyrofair.commands import main
warnings.simplefilter("ignore")
graph, rng = pf.CausalGraph("A -> M; {A M} -> Y", sensitive="A", outcome="Y"), np.random.default_rng(0)
df = pd.DataFrame({"A": np.arange(300) % 2, "M": rng.integers(2, size=300)})
df["Y"] = (df["M"] + df["A"] > rng.normal(size=300)).astype(int)
fitted = LogisticRegression().fit(df[["A", "M"]], df["Y"])
models = {"fitted": fitted, "scores": pf.ScoresOf(fitted.predict_proba), "decisions": pf.DecisionsOf(fitted)}
for form in ("prefix", "graph"):
    source = pf.OneStep(graph.unfair("A -> Y"), form=form, propensity="saturated", regression="saturated")
    audit = pf.audit(models, source, df)
    assert str(audit) and "matplotlib" not in sys.modules
audit.to_html()
df.assign(p=df["M"]).to_csv("table.csv", index=False)
question = "--graph graph.txt --sensitive A --outcome Y --unfair A->Y --score p"
main(f"audit table.csv {question} --propensity saturated --regression saturated".split())
""",
        {"torch", "pyro", "arviz", "tqdm"},
    ),
}


@pytest.mark.parametrize("what", WHAT_LOADS_LITTLE)
def test_what_needs_little_loads_little(what: str, tmp_path: Path) -> None:
    code, heavy = WHAT_LOADS_LITTLE[what]
    (tmp_path / "graph.txt").write_text("A -> M; {A M} -> Y")
    code += f"\nimport sys\nprint('loaded:', *sorted({heavy} & set(sys.modules)))"
    where = os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": where},
    )
    assert done.stdout.splitlines()[-1:] == ["loaded:"], done.stdout + done.stderr


def test_names_on_top_are_those_that_the_folders_export() -> None:
    for name in pf.__all__:
        assert getattr(pf, name) is not None
        assert name in dir(pf)
    for folder in (pf.audits, pf.effects, pf.sources):
        assert {*folder.__all__} <= {*dir(folder)}
        assert {name for name in folder.__all__ if isinstance(getattr(folder, name), ModuleType)} == set()
        with pytest.raises(AttributeError, match="no attribute 'learn_laws'"):
            _ = folder.learn_laws
    with pytest.raises(AttributeError, match="no attribute 'learn_laws'"):
        _ = pf.learn_laws
