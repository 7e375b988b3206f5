"""Folders import from lower floors only, no import circle, and each module opens alike."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

import pyrofair as pf

PACKAGE = Path(__file__).resolve().parents[1] / "pyrofair"
FLOORS = [
    {"exceptions", "_validation", "_random", "_arviz", "_figures", "_progress", "_cells", "_version"},
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


def executed(body: list[ast.stmt], inside: bool = False) -> Iterator[tuple[ast.stmt, bool]]:
    """Yield the statements that run, and whether inside a function; what stands under TYPE_CHECKING does not run."""
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
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
    for node, inside in executed(ast.parse(code).body):
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


def graph_of(*, deferred: bool) -> nx.DiGraph[str]:
    arrows = nx.DiGraph()
    arrows.add_nodes_from(FILES)
    for name, path in FILES.items():
        for other in imported(path.read_text(encoding="utf-8"), set(FILES), deferred=deferred) - {name}:
            arrows.add_edge(name, other)
    return arrows


IMPORTS = graph_of(deferred=False)


def test_every_module_is_on_a_floor() -> None:
    assert {name.split(".")[0] for name in FILES} == set(FLOOR)


@pytest.mark.parametrize("name", FILES)
def test_a_folder_imports_from_lower_floors_only(name: str) -> None:
    folder = name.split(".")[0]
    others = {other.split(".")[0] for other in IMPORTS.successors(name)} - {folder}
    assert [other for other in sorted(others) if FLOOR[other] >= FLOOR[folder] > 0] == []


def test_imports_never_run_in_a_circle() -> None:
    assert list(nx.simple_cycles(IMPORTS)) == []


def test_the_only_deferred_imports_are_for_speed_or_downward() -> None:
    arrows = set(graph_of(deferred=True).edges) - set(IMPORTS.edges)
    upward = {(a, b) for a, b in arrows if FLOOR[a.split(".")[0]] < FLOOR[b.split(".")[0]]}
    delegates = {("graph.causal_graph", "programs.vectors"), ("graph.causal_graph", "robustness.independences")}
    assert upward == delegates, "CausalGraph.from_pyro and CausalGraph.check alone delegate upward"


@pytest.mark.parametrize("folder", ["effects", "classifiers.penalized", "classifiers.training", "audits"])
def test_what_consumes_worlds_knows_no_source(folder: str) -> None:
    for name in FILES:
        if name == folder or name.startswith(f"{folder}."):
            known = {other for other in nx.descendants(IMPORTS, name) if other.startswith("sources.")}
            assert known == set(), f"{name} knows {sorted(known)}"


def test_audits_know_sources_only_where_none_is_given() -> None:
    """`audit(models, unfair, df)` makes its source when called (decision 47), `audit_graphs` bounds (decision 70)."""
    arrows = graph_of(deferred=True).edges
    known = {(a, b) for a, b in arrows if a.split(".")[0] in ("effects", "audits") and b.split(".")[0] == "sources"}
    assert known == {("audits.audit", "sources.onestep")}


@pytest.mark.parametrize("name", FILES)
def test_a_module_opens_with_a_sentence_and_its_names(name: str) -> None:
    tree = ast.parse(FILES[name].read_text(encoding="utf-8"))
    first = (ast.get_docstring(tree) or "").split("\n\n")[0]
    assert re.match(r"[A-Z].*\.$", first, re.DOTALL), f"{name} does not open with one sentence: {first!r}"
    if name != "_version":
        assert any(ast.unparse(node).startswith("__all__ = ") for node in tree.body), f"{name} has no __all__"
    if FILES[name].name == "__init__.py":
        assert len((ast.get_docstring(tree) or "").splitlines()) >= 3, f"{name} does not describe input and output"


def test_graphs_and_data_load_neither_torch_nor_pyro_nor_arviz_nor_matplotlib() -> None:
    code = """
import sys
import pyrofair as pf
graph = pf.CausalGraph("A -> M; {A M} -> Y", sensitive="A", outcome="Y")
pf.identify(graph.unfair("A -> Y"))
pf.datasets.load_german()
print(*sorted({"torch", "pyro", "arviz", "matplotlib", "sklearn"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_names_on_top_are_those_that_the_folders_export() -> None:
    for name in pf.__all__:
        assert getattr(pf, name) is not None
        assert name in dir(pf)
    with pytest.raises(AttributeError, match="no attribute 'learn_laws'"):
        _ = pf.learn_laws
