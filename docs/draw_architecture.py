"""Draw docs/architecture.png from the code: floors as rows, modules as rooms, imports as arrows.

Run it as ``python docs/draw_architecture.py``. Floors and wings are read from tables in architecture.md, the imports
from the syntax trees of the package, so that page, picture and test have one source.

No two rooms can overlap and no arrow can run over a room: a floor has as many rows as its rooms need, an arrow that
passes a row takes a place in it like a room, and places in a row keep their distance. All arrows to one room join.
"""

from __future__ import annotations

import ast
import random
import re
from bisect import bisect_right, insort
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, PathPatch, Polygon
from matplotlib.path import Path as Curve

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "pyrofair"
PAGE = HERE / "architecture.md"
PICTURE = HERE / "architecture.png"

GROUND = {"exceptions", "_version"}
FRONT_DOOR = "__init__"
WAIST = "potential_outcomes"
INK, ROOM, BAND = "#1A1A1A", "white", ("#F7F8FA", "#EDF0F4")
AMBER = ("#FBE3B5", "#B07A10")  # the waist: its room, the arrows to it
PLAIN = ("white", "#8A949E")  # rooms of no wing
TINTS = (
    ("#D6E6F7", "#5C8FC4"),
    ("#D8EFD9", "#5BA463"),
    ("#E7DDF4", "#9475C0"),
    ("#F9DCE0", "#CC7A86"),
    ("#D5EEEE", "#4FA0A0"),
    ("#E6E3DC", "#8C7F66"),
    ("#F0F3C8", "#9BA33A"),
)
HEIGHT, STEP, LEFT, RIGHT, FOOT = 0.34, 0.74, 2.75, 0.3, 0.55  # inches
WIDE = 7.2  # of the rooms of a row together; a floor with more has more rows
APART = 11.4  # from the leftmost place of a row to the rightmost, if they fit
LANE = 0.06  # the width of the place of a passing arrow
STARTS, SWEEPS = 100, 14
KEY = "Imports"


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


def read_wings(text: str) -> dict[str, str]:
    """Return the wing of each module that has one, from the table ``| wing | modules |`` of the page.

    Raises ``ValueError`` for a module that stands in two wings.
    """
    wings: dict[str, str] = {}
    table = re.search(r"^\| *wing *\|.*\n\|[-:| ]*\n((?:\|.*\n)*)", text, re.MULTILINE)
    for row in re.finditer(r"^\| *([^|]*?) *\|([^|]*)\|", table[1] if table else "", re.MULTILINE):
        for module in re.findall(r"`(\w+)`", row[2]):
            if module in wings:
                raise ValueError(f"{module} stands in the wings {wings[module]!r} and {row[1]!r} of architecture.md")
            wings[module] = row[1]
    return wings


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


def describe(floors: dict[str, int], wings: dict[str, str], arrows: list[tuple[str, str]]) -> str:
    """Write what a picture shows as text, which is kept inside the file to tell whether it is out of date."""
    rooms = ", ".join(" ".join(filter(None, (name, str(n), wings.get(name)))) for name, n in sorted(floors.items()))
    return f"{rooms}; " + ", ".join(f"{one}->{other}" for one, other in arrows)


Place = tuple[str, int]  # a room and its row; or, above the row of that room, where the arrows to it pass
Rows = list[list[Place]]
Piece = tuple[Place, Place]  # of an arrow: from a place to one in the next row below


def _stack(floors: dict[str, int], arrows: list[tuple[str, str]]) -> tuple[list[int], dict[str, int]]:
    """Split floors into rows, so that every arrow runs down and no row is crowded.

    Returns the floor of each row, from below, and the row of each room.
    """
    order: nx.DiGraph[str] = nx.DiGraph(arrows)
    order.add_nodes_from(floors)
    above: dict[str, int] = {}
    for name in nx.topological_sort(order):
        above[name] = 1 + max(
            (above[one] for one in order.predecessors(name) if floors[one] == floors[name]), default=0
        )
    levels: list[int] = []
    row: dict[str, int] = {}
    for floor in sorted(set(floors.values())):
        waiting = sorted((name for name in floors if floors[name] == floor), key=lambda name: (-above[name], name))
        while waiting:
            free = WIDE
            for name in list(waiting):
                below = [other for other in order.successors(name) if floors[other] >= floor]
                if all(row.get(other, len(levels)) < len(levels) for other in below) and width_of((name, 0)) <= free:
                    free -= width_of((name, 0))
                    row[name] = len(levels)
                    waiting.remove(name)
            if free == WIDE:
                raise ValueError(f"no row can be made of {waiting}: an import goes up, or a name is too long to draw")
            levels.append(floor)
    return levels, row


def width_of(place: Place, row: dict[str, int] | None = None) -> float:
    """Return the width of a room, or of the lane in which arrows to a room pass another row."""
    name, level = place
    return 0.082 * len(name) + 0.2 if row is None or row[name] == level else LANE


def _pieces(row: dict[str, int], arrows: list[tuple[str, str]]) -> list[Piece]:
    """Cut arrows at the rows that they pass; arrows to one room share their places, so they join."""
    found: set[Piece] = set()
    for one, other in arrows:
        way = [(one, row[one]), *((other, level) for level in range(row[one] - 1, row[other] - 1, -1))]
        found.update(pairwise(way))
    return sorted(found)


def _crossings(upper: list[Place], lower: list[Place], below: dict[Place, list[Place]]) -> int:
    at = {place: i for i, place in enumerate(lower)}
    seen: list[int] = []
    count = 0
    for place in upper:
        ends = sorted(at[other] for other in below[place])
        count += sum(len(seen) - bisect_right(seen, end) for end in ends)
        for end in ends:
            insort(seen, end)
    return count


def _order(rows: Rows, pieces: list[Piece], wing: dict[str, int]) -> Rows:
    """Order the places of each row so that few arrows cross: barycentres, swaps of neighbours, several starts."""
    below: dict[Place, list[Place]] = {place: [] for each in rows for place in each}
    above: dict[Place, list[Place]] = {place: [] for each in rows for place in each}
    for one, other in pieces:
        below[one].append(other)
        above[other].append(one)
    draw = random.Random(1)

    def around(now: Rows, level: int) -> int:
        return sum(_crossings(now[k], now[k - 1], below) for k in (level, level + 1) if 0 < k < len(now))

    best, fewest = rows, float("inf")
    for _ in range(STARTS):
        now = [sorted(each, key=lambda place: wing.get(place[0], 2) + 2 * draw.random()) for each in rows]
        for sweep in range(SWEEPS):
            for level in range(len(now)) if sweep % 2 else reversed(range(len(now))):
                near = [k for k in (level - 1, level + 1) if 0 <= k < len(now)]
                share = {place: (i + 0.5) / len(now[k]) for k in near for i, place in enumerate(now[k])}
                share |= {place: (i + 0.5) / len(now[level]) for i, place in enumerate(now[level])}
                first, second = (below, above) if sweep % 2 else (above, below)

                def centre(place: Place) -> float:
                    ends = first[place] + (second[place] if sweep > SWEEPS // 2 else [])  # noqa: B023
                    return sum(share[end] for end in ends) / len(ends) if ends else share[place]  # noqa: B023

                now[level].sort(key=centre)
        improved = True
        while improved:
            improved = False
            for level, each in enumerate(now):
                cost = around(now, level)
                for i in range(len(each) - 1):
                    each[i : i + 2] = each[i : i + 2][::-1]
                    new = around(now, level)
                    if new < cost:
                        cost, improved = new, True
                    else:
                        each[i : i + 2] = each[i : i + 2][::-1]
        total = sum(_crossings(now[k], now[k - 1], below) for k in range(1, len(now)))
        if total < fewest:
            best, fewest = [list(each) for each in now], total
    return best


def _spread(rows: Rows, pieces: list[Piece], row: dict[str, int]) -> dict[Place, float]:
    """Place the centres of each row near what they are joined to, in order, at a distance from each other."""
    joined: dict[Place, list[tuple[Place, float]]] = {place: [] for each in rows for place in each}
    for one, other in pieces:
        weight = 25.0 if one[0] == other[0] else 1.0  # what merely passes does so straight
        joined[one].append((other, weight))
        joined[other].append((one, weight))
    offsets: list[list[float]] = []
    for each in rows:
        offsets.append([0.0])
        for one, other in pairwise(each):
            widths = width_of(one, row), width_of(other, row)
            gap = 0.26 if min(widths) > LANE else 0.16 if max(widths) > LANE else 0.1
            offsets[-1].append(offsets[-1][-1] + sum(widths) / 2 + gap)
    span = max(APART, *(each[-1] for each in offsets))
    x = {
        place: (span - steps[-1]) / 2 + step
        for each, steps in zip(rows, offsets, strict=True)
        for place, step in zip(each, steps, strict=True)
    }
    for sweep in range(1500):
        for level in range(len(rows)) if sweep % 2 else reversed(range(len(rows))):
            blocks: list[tuple[float, float, int]] = []  # weighted sum, weight, places: the pooled ones share a shift
            for place, step in zip(rows[level], offsets[level], strict=True):
                near = [*joined[place], (place, 0.3)]
                weight = sum(w for _, w in near)
                block = (sum(w * x[other] for other, w in near) - weight * step, weight, 1)
                while blocks and blocks[-1][0] / blocks[-1][1] > block[0] / block[1]:
                    last = blocks.pop()
                    block = (last[0] + block[0], last[1] + block[1], last[2] + block[2])
                blocks.append(block)
            shifts = [total / weight for total, weight, count in blocks for _ in range(count)]
            for place, step, shift in zip(rows[level], offsets[level], shifts, strict=True):
                x[place] = step + min(max(shift, 0.0), span - offsets[level][-1])
    return x


def plan(
    floors: dict[str, int], wing: dict[str, int], arrows: list[tuple[str, str]]
) -> tuple[list[int], dict[str, int], list[Piece], dict[Place, float]]:
    """Return the floor of each row, the row of each room, the pieces of arrows, and the centre of each place."""
    levels, row = _stack(floors, arrows)
    pieces = _pieces(row, arrows)
    places = sorted({*row.items(), *(place for piece in pieces for place in piece)})
    rows = [[place for place in places if place[1] == level] for level in range(len(levels))]
    return levels, row, pieces, _spread(_order(rows, pieces, wing), pieces, row)


def draw(
    floors: dict[str, int], subjects: dict[int, str], wings: dict[str, str], arrows: list[tuple[str, str]], path: Path
) -> None:
    """Draw the house and save it."""
    shown = {name: floor for name, floor in floors.items() if name != "_version"}
    names = list(dict.fromkeys(wings.values()))
    levels, row, pieces, x = plan(shown, {name: names.index(wing) for name, wing in wings.items()}, arrows)
    shift = LEFT - min(x[place] - width_of(place, row) / 2 for place in x)
    x = {place: at + shift for place, at in x.items()}
    y = {place: FOOT + (place[1] + 0.5) * STEP for place in x}
    wide = max(x[place] + width_of(place, row) / 2 for place in x) + RIGHT
    top = FOOT + len(levels) * STEP
    tint = {name: TINTS[names.index(wings[name]) % len(TINTS)] if name in wings else PLAIN for name in row}
    tint[WAIST] = AMBER

    figure = Figure(figsize=(wide, top))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, wide), ylim=(0, top))
    axes.set_axis_off()
    for floor in sorted(set(levels)):
        low = FOOT + levels.index(floor) * STEP
        high = low + levels.count(floor) * STEP
        axes.axhspan(low, high, color=BAND[floor % 2], zorder=0)
        middle = (low + high) / 2
        axes.text(0.3, middle, str(floor), fontsize=19, color="#8294A6", ha="center", va="center", weight="bold")
        text = _wrap(re.sub(r"[*`]", "", subjects[floor]), 28)
        axes.text(0.6, middle, text, fontsize=9.5, color="#44515E", va="center", linespacing=1.25)

    def room(left: float, low: float, width: float, name: str, colours: tuple[str, str], waist: bool) -> None:
        line: dict[str, Any] = {
            "facecolor": colours[0],
            "edgecolor": INK,
            "linewidth": 1.7 if waist else 0.8,
            "zorder": 3,
        }
        axes.add_patch(FancyBboxPatch((left, low), width, HEIGHT, boxstyle="round,pad=0,rounding_size=0.07", **line))
        font: dict[str, Any] = {"fontsize": 9, "family": "monospace", "color": INK, "zorder": 4}
        axes.text(left + width / 2, low + HEIGHT / 2 - 0.01, name, ha="center", va="center", **font)

    for name, level in row.items():
        width = width_of((name, level))
        at = (x[name, level] - width / 2, y[name, level] - HEIGHT / 2)
        room(*at, width, name, tint[name], name == WAIST)
    starts: dict[Piece, float] = {}  # arrows leave a room side by side, in the order of where they go
    for place in x:
        ends = sorted((other for one, other in pieces if one == place), key=x.__getitem__)
        step = min(0.14, (width_of(place, row) - 0.2) / max(len(ends) - 1, 1)) if row[place[0]] == place[1] else 0.0
        starts |= {(place, other): x[place] + (i - (len(ends) - 1) / 2) * step for i, other in enumerate(ends)}
    for one, other in pieces:
        x0, y0, x1, y1 = starts[one, other], y[one] - HEIGHT / 2, x[other], y[other] + HEIGHT / 2
        colour = tint[other[0]][1]
        ending = row[other[0]] == other[1]
        tip = y1 + (0.09 if ending else 0.0)
        bend = (y0 - tip) * 0.62
        points = [(x0, y0), (x0, y0 - bend), (x1, tip + bend), (x1, tip)]
        codes = [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4]
        if ending:
            head = [(x1 - 0.045, y1 + 0.1), (x1 + 0.045, y1 + 0.1), (x1, y1 + 0.01)]
            axes.add_patch(Polygon(head, closed=True, facecolor=colour, edgecolor="none", zorder=2))
        else:
            points.append((x1, y1 - HEIGHT))
            codes.append(Curve.LINETO)
        axes.add_patch(PathPatch(Curve(points, codes), fill=False, edgecolor=colour, linewidth=1.0, zorder=1))

    left = 0.6
    for name, colours in [*((name, TINTS[i % len(TINTS)]) for i, name in enumerate(names)), ("the waist", AMBER)]:
        room(left, (FOOT - HEIGHT) / 2, 0.34, "", colours, name == "the waist")
        axes.text(left + 0.44, FOOT / 2 - 0.01, name, fontsize=10, color="#44515E", va="center")
        left += 0.95 + 0.085 * len(name)
    figure.savefig(path, dpi=130, metadata={KEY: describe(floors, wings, arrows), "Software": None})


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
    floors = read_floors(text)
    if astray := set(floors) ^ set(modules()):
        raise SystemExit(f"correct the tables in architecture.md: {sorted(astray)} stand in the package or there alone")
    draw(floors, read_subjects(text), read_wings(text), drawn_arrows(import_graph()), PICTURE)


if __name__ == "__main__":
    main()
