"""Does the house stand as docs/architecture.md says? Floors, imports, circles, length, and how each module opens."""

from __future__ import annotations

import ast
import importlib.util
import re
import types
from itertools import pairwise
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
WINGS: dict[str, str] = HOUSE.read_wings(PAGE)
SOURCES = set(re.findall(r"`(\w+)`", re.search(r"^The sources: ([^.]*)\.", PAGE, re.MULTILINE)[1]))
NEAR_A_SOURCE = set(re.findall(r"`(\w+)`", re.search(r"that is named\s+here: ((?:`\w+`(?:,\s+)?)+)", PAGE)[1]))
KNOW_NO_SOURCE = {"training & audit", "graph & tables"}


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


def test_every_room_between_ground_and_top_stands_in_one_wing() -> None:
    ends = {0, max(FLOORS.values())}
    between = {name for name, floor in FLOORS.items() if floor not in ends} - {HOUSE.WAIST}
    assert set(WINGS) == between, "correct the table of wings in docs/architecture.md"


def test_a_module_in_two_wings_is_refused() -> None:
    with pytest.raises(ValueError, match="a stands in the wings 'x' and 'y'"):
        HOUSE.read_wings("| wing | modules |\n|---|---|\n| x | `a` |\n| y | `a`, `b` |\n")


def test_only_the_top_floor_and_rooms_named_in_the_page_import_a_source() -> None:
    assert set(FLOORS) >= SOURCES
    assert SOURCES
    top = max(FLOORS.values())
    importers = {name for name, others in IMPORTS.items() if others & SOURCES and name not in SOURCES}
    assert {name for name in importers if FLOORS.get(name) != top} == NEAR_A_SOURCE


def test_a_room_that_imports_a_source_stands_in_its_wing() -> None:
    for name in NEAR_A_SOURCE:
        assert {WINGS[source] for source in IMPORTS[name] & SOURCES} == {WINGS[name]}


def test_classifiers_functionals_and_audits_know_no_source_even_by_way_of_others() -> None:
    assert {WINGS[name] for name in ("classifiers", "functionals", "audit", "penalty_path")} == {"training & audit"}
    assert {WINGS[source] for source in SOURCES}.isdisjoint(KNOW_NO_SOURCE)
    graph = nx.DiGraph([(one, other) for one, others in IMPORTS.items() for other in others])
    knowing = set().union(*(nx.ancestors(graph, source) for source in SOURCES)) - SOURCES
    assert {name for name in knowing if FLOORS.get(name) != max(FLOORS.values())} == NEAR_A_SOURCE


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


def test_in_the_picture_nothing_overlaps_and_rows_keep_to_a_floor() -> None:
    levels, row, pieces, x = HOUSE.plan(FLOORS, {}, HOUSE.drawn_arrows(IMPORTS))
    assert {name: levels[level] for name, level in row.items()} == FLOORS
    assert all(upper[1] == lower[1] + 1 for upper, lower in pieces)
    for level in range(len(levels)):
        each = sorted((place for place in x if place[1] == level), key=x.__getitem__)
        for one, other in pairwise(each):
            apart = x[other] - x[one] - (HOUSE.width_of(one, row) + HOUSE.width_of(other, row)) / 2
            assert apart > 0.09, f"{one} and {other} are {apart:.2f} inches apart"


def test_the_picture_is_up_to_date() -> None:
    shown = Image.open(HOUSE.PICTURE).text[HOUSE.KEY]
    assert shown == HOUSE.describe(FLOORS, WINGS, HOUSE.drawn_arrows(IMPORTS)), "run python docs/draw_architecture.py"


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
