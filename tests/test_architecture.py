"""The import graph has no circle, audits and classifiers know no source, and each module opens alike."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "pyrofair"
FILES = {path.stem: path for path in sorted(PACKAGE.glob("*.py"))}
SOURCES = {"ipw", "sem", "gcomputation"}
KNOW_NO_SOURCE = ("functionals", "bounds", "classifiers", "audit", "penalty_path")


def executed(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run, inside functions too; what stands under TYPE_CHECKING does not."""
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from executed(node.orelse)
            continue
        yield node
        for part in ("body", "orelse", "finalbody"):
            yield from executed(getattr(node, part, []))
        for handler in getattr(node, "handlers", []):
            yield from executed(handler.body)


def imported(code: str, known: set[str]) -> set[str]:
    found = set()
    for node in executed(ast.parse(code).body):
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = "pyrofair." * bool(node.level) + (node.module or "")
            names = [origin.rstrip("."), *(f"{origin.rstrip('.')}.{each.name}" for each in node.names)]
        else:
            continue
        found |= {part for name in names if name.startswith("pyrofair.") for part in name.split(".")[1:2]}
    return found & known


IMPORTS = nx.DiGraph(
    [
        (name, other)
        for name, path in FILES.items()
        for other in imported(path.read_text(encoding="utf-8"), set(FILES))
        if name != "__init__"
    ]
)


def test_imports_never_run_in_a_circle() -> None:
    assert list(nx.simple_cycles(IMPORTS)) == []


@pytest.mark.parametrize("name", KNOW_NO_SOURCE)
def test_what_consumes_worlds_knows_no_source_even_by_way_of_others(name: str) -> None:
    assert nx.descendants(IMPORTS, name).isdisjoint(SOURCES)


@pytest.mark.parametrize("name", FILES)
def test_a_module_opens_with_a_sentence_and_its_names(name: str) -> None:
    tree = ast.parse(FILES[name].read_text(encoding="utf-8"))
    first = (ast.get_docstring(tree) or "").split("\n\n")[0]
    assert re.match(r"[A-Z].*[.?!]$", first, re.DOTALL), f"{name} does not open with one sentence: {first!r}"
    if name != "_version":
        assert any(ast.unparse(node).startswith("__all__ = ") for node in tree.body), f"{name} has no __all__"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from pyrofair.graph import CausalGraph", {"graph"}),
        ("import pyrofair.graph", {"graph"}),
        ("from pyrofair import graph, audit", {"graph"}),
        ("from .graph import CausalGraph", {"graph"}),
        ("def f():\n    from pyrofair.graph import CausalGraph", {"graph"}),
        ("try:\n    import pyrofair.graph\nexcept ImportError:\n    pass", {"graph"}),
        ("if TYPE_CHECKING:\n    from pyrofair.graph import CausalGraph", set()),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import pyrofair.graph", {"graph"}),
        ("import numpy", set()),
    ],
)
def test_the_reader_of_imports(code: str, found: set[str]) -> None:
    assert imported(code, {"graph"}) == found
