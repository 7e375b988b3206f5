"""Does the house stand as docs/architecture.md says? Floors, imports, circles, length, and how each module opens."""

from __future__ import annotations

import ast
import importlib.util
import re
import types
from pathlib import Path

import networkx as nx
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 400
WITHOUT_ALL = {"_version"}


def load(path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOUSE = load(ROOT / "docs" / "draw_architecture.py")
PAGE = HOUSE.PAGE.read_text(encoding="utf-8")
FLOORS: dict[str, int] = HOUSE.read_floors(PAGE)
FILES: dict[str, Path] = HOUSE.modules()
IMPORTS: dict[str, set[str]] = HOUSE.import_graph()
SOURCES = set(re.findall(r"`(\w+)`", re.search(r"^The sources: ([^.]*)\.", PAGE, re.MULTILINE)[1]))


def test_every_module_stands_on_one_floor() -> None:
    assert set(FLOORS) == set(FILES), "correct the table in docs/architecture.md"


def test_a_module_on_two_floors_is_refused() -> None:
    with pytest.raises(ValueError, match="a stands on the floors 0 and 1"):
        HOUSE.read_floors("| 0 | `a` | x |\n| 1 | `a`, `b` | y |\n")


@pytest.mark.parametrize("name", sorted({*FILES} & {*FLOORS}))
def test_imports_never_go_up(name: str) -> None:
    above = {other: FLOORS[other] for other in IMPORTS[name] & {*FLOORS} if FLOORS[other] > FLOORS[name]}
    assert not above, f"{name} on floor {FLOORS[name]} imports from above: {above}"


def test_imports_never_run_in_a_circle() -> None:
    graph = nx.DiGraph([(one, other) for one, others in IMPORTS.items() for other in others])
    assert list(nx.simple_cycles(graph)) == []


def test_only_the_top_floor_imports_a_source() -> None:
    assert set(FLOORS) >= SOURCES
    assert SOURCES
    top = max(FLOORS.values())
    importers = {name for name, others in IMPORTS.items() if others & SOURCES and name not in SOURCES}
    assert {name for name in importers if FLOORS.get(name) != top} == set()


@pytest.mark.parametrize("name", FILES)
def test_no_file_is_long(name: str) -> None:
    lines = len(FILES[name].read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST, f"{name} has {lines} lines; give it one reason to exist, and split it"


@pytest.mark.parametrize("name", FILES)
def test_a_module_opens_with_a_sentence_and_its_names(name: str) -> None:
    tree = ast.parse(FILES[name].read_text(encoding="utf-8"))
    first = (ast.get_docstring(tree) or "").split("\n\n")[0]
    assert re.match(r"[A-Z].*[.?!]$", first, re.DOTALL), f"{name} does not open with one sentence: {first!r}"
    if name in WITHOUT_ALL:
        return
    listed = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]
    ]
    assert len(listed) == 1, f"{name} has no __all__"
    bound = {
        each.asname or each.name for node in tree.body if isinstance(node, ast.ImportFrom) for each in node.names
    } | {
        target
        for node in tree.body
        for target in (
            [node.name]
            if isinstance(node, ast.ClassDef | ast.FunctionDef)
            else [ast.unparse(each) for each in node.targets]
            if isinstance(node, ast.Assign)
            else [ast.unparse(node.target)]
            if isinstance(node, ast.AnnAssign)
            else []
        )
    }
    assert set(listed[0]) <= bound


def test_the_picture_is_up_to_date() -> None:
    shown = Image.open(HOUSE.PICTURE).text[HOUSE.KEY]
    assert shown == HOUSE.describe(FLOORS, HOUSE.drawn_arrows(IMPORTS)), "run python docs/draw_architecture.py"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from pyrofair.graph import CausalGraph", {"graph"}),
        ("import pyrofair.graph", {"graph"}),
        ("from pyrofair import graph, audit", {"graph", "__init__"}),
        ("from .graph import CausalGraph", {"graph"}),
        ("def f():\n    from pyrofair.graph import CausalGraph", {"graph"}),
        ("if TYPE_CHECKING:\n    from pyrofair.graph import CausalGraph", set()),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import pyrofair.graph", {"graph"}),
        ("import numpy", set()),
    ],
)
def test_the_reader_of_imports(tmp_path: Path, code: str, found: set[str]) -> None:
    path = tmp_path / "room.py"
    path.write_text(code, encoding="utf-8")
    assert HOUSE.runtime_imports(path, {"graph", "__init__"}) == found
