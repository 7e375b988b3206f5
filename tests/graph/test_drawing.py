"""Drawings: what is drawn, in which colour, and that nothing covers anything else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from numpy.typing import NDArray

from pyrofair.exceptions import GraphError
from pyrofair.graph.drawing import draw_dag
from pyrofair.graph.parse import EdgeList, read_edges

HIRING = read_edges("A -> D; A -> M; Q -> D; Q -> M; {A Q D M} -> Y")
ADULT = read_edges("{A C} -> M; {A C M} -> L; {A C M L} -> R; {A C M L R} -> Y")
LATENT = read_edges("digraph { H [latent=true]; A -> R; {A R} -> Y; H -> {R Y} }")
LONG = read_edges('"parental occupation" -> years_of_schooling_completed -> "first job after school" -> B -> C -> D')
WIDE = read_edges("{a b c d e f g h} -> Y; A -> {a c e g}; A -> Y")
LABELS = {"C": "C\nage, native-country", "R": "R\nworkclass, occupation, hours-per-week"}
RED, GREY = "#cc3311", "#4d4d4d"


@pytest.fixture(autouse=True)
def _agg() -> Iterator[None]:
    with mpl.rc_context():
        plt.switch_backend("Agg")
        yield
    plt.close("all")


@pytest.fixture
def ax() -> Axes:
    return Figure(figsize=(6, 4)).add_subplot()


def arrows(ax: Axes, color: str) -> list[FancyArrowPatch]:
    return [p for p in ax.patches if isinstance(p, FancyArrowPatch) and to_hex(p.get_edgecolor()) == color]


def boxes(ax: Axes) -> dict[str, FancyBboxPatch]:
    """Boxes by the name written in them: both are drawn node by node, in the same order."""
    found = [patch for patch in ax.patches if isinstance(patch, FancyBboxPatch)]
    return {text.get_text(): box for text, box in zip(ax.texts, found, strict=True)}


def test_red_edges_are_thick_and_on_top(ax: Axes) -> None:
    red = frozenset({("A", "Y"), ("A", "D"), ("D", "Y")})
    assert draw_dag(HIRING.nodes, HIRING.edges, red=red, ax=ax) is ax
    assert len(arrows(ax, RED)) == 3
    assert len(arrows(ax, GREY)) == 5
    assert min(a.get_linewidth() for a in arrows(ax, RED)) > max(a.get_linewidth() for a in arrows(ax, GREY))
    assert min(a.get_zorder() for a in arrows(ax, RED)) > max(a.get_zorder() for a in arrows(ax, GREY))


def test_latent_nodes_are_grey_and_dashed(ax: Axes) -> None:
    draw_dag(LATENT.nodes, LATENT.edges, latent=LATENT.latent, ax=ax)
    drawn = boxes(ax)
    assert set(drawn) == set("HARY")
    assert to_hex(drawn["H"].get_facecolor()) == "#dddddd"
    assert {to_hex(drawn[node].get_facecolor()) for node in "ARY"} == {"#ffffff"}
    assert {node for node, box in drawn.items() if box.get_linestyle() == "--"} == {"H"}
    assert sum(arrow.get_linestyle() == "--" for arrow in arrows(ax, GREY)) == 2


def test_sensitive_attribute_and_outcome_have_a_bold_outline(ax: Axes) -> None:
    draw_dag(HIRING.nodes, HIRING.edges, sensitive="A", outcome="Y", ax=ax)
    widths = {node: box.get_linewidth() for node, box in boxes(ax).items()}
    assert min(widths["A"], widths["Y"]) > max(widths["D"], widths["M"], widths["Q"])


@pytest.mark.parametrize(
    ("red", "latent", "expected"),
    [
        ((), (), []),
        ([("A", "R")], (), ["unfair path"]),
        ((), ["H"], ["latent"]),
        ([("A", "R")], ["H"], ["unfair path", "latent"]),
    ],
)
def test_legend_names_what_is_there(
    ax: Axes, red: list[tuple[str, str]], latent: list[str], expected: list[str]
) -> None:
    draw_dag(LATENT.nodes, LATENT.edges, red=red, latent=latent, ax=ax)
    legend = ax.get_legend()
    assert ([text.get_text() for text in legend.get_texts()] if legend is not None else []) == expected


def test_labels_replace_names_and_set_details_smaller(ax: Axes) -> None:
    draw_dag(["C", "x_1$", "Q"], [("C", "Q")], labels={"C": LABELS["C"], "Q": "skill"}, ax=ax, title="Adult")
    sizes = {text.get_text(): float(text.get_fontsize()) for text in ax.texts}
    assert list(sizes) == ["C", "age,\nnative-country", "x_1$", "skill"]
    assert sizes["age,\nnative-country"] < sizes["C"] == sizes["skill"]
    assert ax.get_title() == "Adult"


def test_layers_run_from_causes_to_effects(ax: Axes) -> None:
    draw_dag(ADULT.nodes, ADULT.edges, ax=ax)
    x = {text.get_text(): text.get_position()[0] for text in ax.texts}
    assert all(x[parent] < x[child] for parent, child in ADULT.edges)
    assert x["A"] == x["C"]


@pytest.mark.parametrize("graph", [HIRING, ADULT, LATENT, LONG, WIDE])
@pytest.mark.parametrize("own_figure", [True, False])
def test_nothing_covers_anything_else(graph: EdgeList, own_figure: bool, ax: Axes) -> None:
    labels = {node: label for node, label in LABELS.items() if node in graph.nodes}
    drawn = draw_dag(graph.nodes, graph.edges, red=graph.edges[:2], labels=labels, ax=None if own_figure else ax)
    drawn.figure.draw_without_rendering()  # type: ignore[union-attr]
    legend = drawn.get_legend()
    assert legend is not None
    nodes = [patch for patch in drawn.patches if isinstance(patch, FancyBboxPatch)]
    extents = [node.get_window_extent() for node in nodes]
    curves = {patch: along(patch) for patch in drawn.patches if isinstance(patch, FancyArrowPatch)}
    for number, (node, extent) in enumerate(zip(nodes, extents, strict=True)):
        assert not any(extent.overlaps(other) for other in [*extents[:number], legend.get_window_extent()])
        own = [text.get_window_extent() for text in drawn.texts if extent.overlaps(text.get_window_extent())]
        assert own
        assert all(extent.padded(1).contains(*corner) for text in own for corner in (text.min, text.max))
        for arrow, points in curves.items():
            if node not in (arrow.patchA, arrow.patchB):
                assert not any(extent.contains(*point) for point in points)
    shown = drawn.figure.bbox.padded(1)
    artists = [*nodes, *curves, *drawn.texts, legend]
    assert all(shown.contains(*corner) for it in artists for corner in it.get_window_extent().corners())


def along(arrow: FancyArrowPatch) -> NDArray[np.float64]:
    """Points on the quadratic arc that an arrow draws first, before its head, in pixels."""
    start, middle, end = arrow.get_transform().transform(np.asarray(arrow.get_path().vertices)[:3])
    steps = np.linspace(0, 1, 60)[:, None]
    points: NDArray[np.float64] = (1 - steps) ** 2 * start + 2 * steps * (1 - steps) * middle + steps**2 * end
    return points


def test_figures_and_settings_are_left_alone(ax: Axes) -> None:
    before = dict(mpl.rcParams)
    draw_dag(HIRING.nodes, HIRING.edges, red=HIRING.edges[:1], title="t", ax=ax)
    assert plt.get_fignums() == []
    own = draw_dag(HIRING.nodes, HIRING.edges)
    assert plt.get_fignums() == [own.figure.number]  # type: ignore[union-attr]
    assert dict(mpl.rcParams) == before


def test_figures_grow_with_the_graph() -> None:
    drawn = [draw_dag(graph.nodes, graph.edges).figure for graph in (read_edges("A -> Y"), LONG, WIDE)]
    small, long, wide = (figure.get_size_inches() for figure in drawn if isinstance(figure, Figure))
    assert small[0] < wide[0] < long[0]
    assert small[1] < long[1] < wide[1]


def test_crowded_axes_shrink_the_text() -> None:
    sizes = []
    for width in (3, 6):
        own = draw_dag(LONG.nodes, LONG.edges, ax=Figure(figsize=(width, 4)).add_subplot())
        sizes.append(own.texts[0].get_fontsize())
    assert sizes[1] == pytest.approx(2 * sizes[0])


def test_figures_render(tmp_path: Path) -> None:
    own = draw_dag(ADULT.nodes, ADULT.edges, red=[("A", "Y")], latent=["C"], labels=LABELS, title="Adult").figure
    assert isinstance(own, Figure)
    own.savefig(tmp_path / "adult.png")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": (), "edges": ()}, "there is no node to draw"),
        ({"edges": [("A", "B")]}, r"'B' is not a node of the drawing\. The nodes: 'A', 'Y'"),
        ({"latent": ["U"]}, "'U' is not a node"),
        ({"sensitive": "S"}, "'S' is not a node"),
        ({"outcome": "S"}, "'S' is not a node"),
        ({"red": [("Y", "A")]}, r"Y -> A is to be red, and is not an edge\. The edges: \[\('A', 'Y'\)\]"),
        ({"labels": {"U": "text"}}, "'U' is not a node"),
        ({"edges": [("A", "Y"), ("Y", "A")]}, "the graph has the cycle A -> Y -> A"),
    ],
)
def test_refused(ax: Axes, change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"nodes": ("A", "Y"), "edges": [("A", "Y")], **change}
    with pytest.raises(GraphError, match=message):
        draw_dag(**arguments, ax=ax)  # type: ignore[arg-type]
