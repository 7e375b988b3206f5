"""Draw docs/architecture.png from the code: floors as rows, modules as rooms, imports as arrows.

Run it as ``python docs/draw_architecture.py``. The floors are read from the table in architecture.md, the imports from
the syntax trees of the package, so that page, picture and test have one source.
"""

from __future__ import annotations

import ast
import math
import random
import re
from itertools import combinations
from pathlib import Path

import networkx as nx
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "pyrofair"
PAGE = HERE / "architecture.md"
PICTURE = HERE / "architecture.png"

GROUND = {"exceptions", "_version"}
FRONT_DOOR = "__init__"
WAIST = "potential_outcomes"
INK, ARROW, ROOM, BAND = "#1A1A1A", "#5B7A99", "white", ("#EEF2F6", "#E3E9EF")
HEIGHT, STEP, GAP, LEFT, WIDTH = 0.34, 0.7, 0.24, 2.9, 12.2  # inches
KEY = "Imports"
MOVES = 10_000


def read_floors(text: str) -> dict[str, int]:
    """Return the floor of each module, from the table ``| floor | modules | ... |`` of the page.

    Raises ``ValueError`` for a module that stands on two floors.
    """
    floors: dict[str, int] = {}
    for row in re.finditer(r"^\| *(\d+) *\| *([^|]*)\|", text, re.MULTILINE):
        for module in re.findall(r"`(\w+)`", row[2]):
            if module in floors:
                raise ValueError(f"{module} stands on the floors {floors[module]} and {row[1]} of architecture.md")
            floors[module] = int(row[1])
    return floors


def read_subjects(text: str) -> dict[int, str]:
    """Return what each floor is about."""
    return {int(row[1]): row[2].strip() for row in re.finditer(r"^\| *(\d+) *\|[^|]*\|([^|]*)\|", text, re.MULTILINE)}


def modules(package: Path = PACKAGE) -> dict[str, Path]:
    """Return the files of the package by module name."""
    return {path.stem: path for path in sorted(package.glob("*.py"))}


def runtime_imports(path: Path, known: set[str], package: str = PACKAGE.name) -> set[str]:
    """Return the modules of the package that a file imports when it runs, at any depth of its code.

    What stands below ``if TYPE_CHECKING:`` is left out: it is read by type checkers only.
    """
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for child in node.orelse:
                visit(child)
            return
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package if node.level else ""
            stem = ".".join(part for part in (base, node.module or "") if part)
            names = [f"{stem}.{alias.name}" for alias in node.names]
        else:
            names = []
        for name in names:
            root, *rest = name.split(".")
            if root == package:
                found.add(rest[0] if rest and rest[0] in known else FRONT_DOOR)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return found - {path.stem}


def import_graph(package: Path = PACKAGE) -> dict[str, set[str]]:
    """Return for each module those that it imports at run time."""
    files = modules(package)
    return {name: runtime_imports(path, set(files), package.name) for name, path in files.items()}


def drawn_arrows(imports: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return the arrows worth drawing: none to the ground floor, from the front door, or implied by others."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(name for name in imports if name != FRONT_DOOR)
    graph.add_edges_from(
        (one, other) for one, others in imports.items() for other in others - GROUND - {FRONT_DOOR} if one != FRONT_DOOR
    )
    return sorted(nx.transitive_reduction(graph).edges)


def describe(floors: dict[str, int], arrows: list[tuple[str, str]]) -> str:
    """Write what a picture shows as text, which is kept inside the file to tell whether it is out of date."""
    rooms = ", ".join(f"{name} {floor}" for name, floor in sorted(floors.items()))
    return f"{rooms}; " + ", ".join(f"{one}->{other}" for one, other in arrows)


def _room_width(name: str) -> float:
    return 0.082 * len(name) + 0.2


Centres = dict[str, tuple[float, float]]


def _cost(centres: Centres, arrows: list[tuple[str, str]]) -> float:
    """Add up crossings, rooms that touch or are run over, arrows that run together, and sideways lengths."""
    cost = 0.0
    for (one, (x, y)), (other, (u, v)) in combinations(centres.items(), 2):
        if y == v and abs(x - u) < (_room_width(one) + _room_width(other)) / 2 + GAP:
            cost += 20.0
    half = HEIGHT / STEP / 2  # of a room, in rows
    ends = ((*centres[one], *centres[other]) for one, other in arrows)
    lines = [(x0, y0 - half, x1, y1 + half) for x0, y0, x1, y1 in ends]
    cost += sum(abs(x0 - x1) * 0.5 for x0, _, x1, _ in lines)
    for first, second in combinations(lines, 2):
        cost += _entangled(first, second)
    for x0, y0, x1, y1 in lines:
        for name, (x, y) in centres.items():
            if y1 < y < y0:
                at = [x0 + (x1 - x0) * (y0 - level) / (y0 - y1) for level in (y - half, y + half)]
                if min(at) - 0.1 < x + _room_width(name) / 2 and max(at) + 0.1 > x - _room_width(name) / 2:
                    cost += 20.0
    return cost


def _entangled(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    """Tell how badly two arrows get in each other's way: 1 for a crossing, more if they run close together."""
    low, high = max(first[3], second[3]), min(first[1], second[1])
    if low >= high:
        return 0.0
    apart = []
    for y in (high, low):
        x, u = (x0 + (x1 - x0) * (y0 - y) / (y0 - y1) for x0, y0, x1, y1 in (first, second))
        apart.append(x - u)
    crossing = apart[0] * apart[1] < -1e-9
    close = sum(abs(gap) < 0.12 for gap in apart) == 2 or (abs(sum(apart)) / 2 < 0.1 and not crossing)
    return float(crossing) + 3.0 * float(close)


def _arrange(floors: dict[str, int], arrows: list[tuple[str, str]]) -> tuple[list[int], Centres]:
    """Split floors into rows so that no import runs sideways, and place the rooms so that arrows stay clear."""
    depth: dict[str, int] = {}
    order: nx.DiGraph[str] = nx.DiGraph(arrows)
    order.add_nodes_from(floors)
    for name in reversed(list(nx.topological_sort(order))):
        below = [depth[other] for other in order.successors(name) if floors[other] == floors[name]]
        depth[name] = 1 + max(below, default=-1)
    keys = sorted({(floors[name], depth[name]) for name in floors})
    level = {name: keys.index((floors[name], depth[name])) for name in floors}
    draw = random.Random(1)
    places = [LEFT + 0.1 * i for i in range(int((WIDTH - LEFT - 0.2) / 0.1))]

    def somewhere(name: str) -> float:
        half = _room_width(name) / 2
        return draw.choice([x for x in places if LEFT + half <= x <= WIDTH - 0.3 - half])

    best: Centres = {}
    lowest = float("inf")
    for _ in range(3):
        now = {name: (somewhere(name), float(level[name])) for name in floors}
        cost = _cost(now, arrows)
        for step in range(MOVES):
            name = draw.choice(list(now))
            moved = {**now, name: (somewhere(name), now[name][1])}
            new = _cost(moved, arrows)
            if new <= cost or draw.random() < math.exp((cost - new) / (6.0 * (1 - step / MOVES) ** 2 + 0.02)):
                now, cost = moved, new
            if cost < lowest:
                best, lowest = now, cost
    return [floor for floor, _ in keys], best


def draw(floors: dict[str, int], subjects: dict[int, str], arrows: list[tuple[str, str]], path: Path) -> None:
    """Draw the house and save it."""
    shown = {name: floor for name, floor in floors.items() if name != "_version"}
    levels, centres = _arrange(shown, arrows)
    top = len(levels) * STEP
    figure = Figure(figsize=(WIDTH, top))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(0, top))
    axes.set_axis_off()
    middle = {name: (x, (level + 0.5) * STEP) for name, (x, level) in centres.items()}
    for floor in sorted(set(levels)):
        low = levels.index(floor) * STEP
        high = low + levels.count(floor) * STEP
        axes.axhspan(low, high, color=BAND[floor % 2], zorder=0)
        y = (low + high) / 2
        axes.text(0.3, y, str(floor), fontsize=17, color="#8294A6", ha="center", va="center", weight="bold")
        text = re.sub(r"[*`]", "", subjects[floor])
        axes.text(0.6, y, _wrap(text, 34), fontsize=8, color="#44515E", va="center", linespacing=1.25)
    boxes = {}
    for name, (x, y) in middle.items():
        width = _room_width(name)
        boxes[name] = FancyBboxPatch(
            (x - width / 2, y - HEIGHT / 2),
            width,
            HEIGHT,
            boxstyle="round,pad=0,rounding_size=0.07",
            facecolor="#FBE3B5" if name == WAIST else ROOM,
            edgecolor=INK,
            linewidth=1.6 if name == WAIST else 0.8,
            zorder=3,
        )
        axes.add_patch(boxes[name])
        axes.text(x, y, name, fontsize=9, family="monospace", ha="center", va="center", color=INK, zorder=4)
    for one, other in arrows:
        axes.add_patch(
            FancyArrowPatch(
                (middle[one][0], middle[one][1] - HEIGHT / 2),
                (middle[other][0], middle[other][1] + HEIGHT / 2),
                arrowstyle="-|>,head_length=0.35,head_width=0.16",
                mutation_scale=11,
                shrinkA=0,
                shrinkB=1,
                color=ARROW,
                alpha=0.75,
                linewidth=0.9,
                zorder=2,
            )
        )
    figure.savefig(path, dpi=130, metadata={KEY: describe(floors, arrows), "Software": None})


def _wrap(text: str, width: int) -> str:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def main() -> None:
    """Draw the picture beside this file."""
    text = PAGE.read_text(encoding="utf-8")
    draw(read_floors(text), read_subjects(text), drawn_arrows(import_graph()), PICTURE)


if __name__ == "__main__":
    main()
