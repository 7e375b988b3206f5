"""Drawings: what is drawn, in which colour, and that nothing covers anything else."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from numpy.typing import NDArray

from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.drawing import draw_graph

HIRING = CausalGraph("A -> D; A -> M; Q -> D; Q -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
COLUMNS = {"C": ["age", "native-country"], "R": ["workclass", "occupation", "hours-per-week"]}
ADULT = CausalGraph(
    "{A C} -> M; {A C M} -> L; {A C M L} -> R; {A C M L R} -> Y", sensitive="A", outcome="Y", columns=COLUMNS
)
LATENT = CausalGraph("A -> R; {A R} -> Y; H -> {R Y}", sensitive="A", outcome="Y", latent=["H"])
LONG = CausalGraph(
    '"parental occupation" -> years_of_schooling_completed -> "first job after school" -> B -> C -> D',
    sensitive="parental occupation",
    outcome="D",
)
WIDE = CausalGraph("{a b c d e f g h} -> Y; A -> {a c e g}; A -> Y", sensitive="A", outcome="Y")
SMALL = CausalGraph("A -> Y", sensitive="A", outcome="Y")
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
    assert draw_graph(HIRING, HIRING.unfair("A -> Y", "A -> D -> Y"), ax) is ax
    assert len(arrows(ax, RED)) == 3
    assert len(arrows(ax, GREY)) == 5
    assert min(a.get_linewidth() for a in arrows(ax, RED)) > max(a.get_linewidth() for a in arrows(ax, GREY))
    assert min(a.get_zorder() for a in arrows(ax, RED)) > max(a.get_zorder() for a in arrows(ax, GREY))


def test_latent_nodes_are_grey_and_dashed(ax: Axes) -> None:
    draw_graph(LATENT, ax=ax)
    drawn = boxes(ax)
    assert set(drawn) == set("HARY")
    assert to_hex(drawn["H"].get_facecolor()) == "#dddddd"
    assert {to_hex(drawn[node].get_facecolor()) for node in "ARY"} == {"#ffffff"}
    assert {node for node, box in drawn.items() if box.get_linestyle() == "--"} == {"H"}
    assert sum(arrow.get_linestyle() == "--" for arrow in arrows(ax, GREY)) == 2


def test_sensitive_attribute_and_outcome_have_a_bold_outline(ax: Axes) -> None:
    draw_graph(HIRING, ax=ax)
    widths = {node: box.get_linewidth() for node, box in boxes(ax).items()}
    assert min(widths["A"], widths["Y"]) > max(widths["D"], widths["M"], widths["Q"])


@pytest.mark.parametrize(
    ("graph", "through", "expected"),
    [
        (HIRING, (), []),
        (HIRING, "M", ["unfair path"]),
        (LATENT, (), ["latent"]),
        (LATENT, "R", ["unfair path", "latent"]),
    ],
)
def test_legend_names_what_is_there(ax: Axes, graph: CausalGraph, through: str, expected: list[str]) -> None:
    draw_graph(graph, graph.unfair(through=through), ax)
    legend = ax.get_legend()
    assert ([text.get_text() for text in legend.get_texts()] if legend is not None else []) == expected


def test_columns_are_written_smaller_below_their_node(ax: Axes) -> None:
    graph = CausalGraph(
        'C -> Q; "x_1$"', sensitive="C", outcome="Q", columns={"C": ["age"], "x_1$": ["age_2", "native-country"]}
    )
    draw_graph(graph, ax=ax)
    sizes = {text.get_text(): float(text.get_fontsize()) for text in ax.texts}
    assert list(sizes) == ["C", "age", "Q", "x_1$", "age_2,\nnative-country"]
    assert sizes["age_2,\nnative-country"] < sizes["C"] == sizes["x_1$"]


def test_layers_run_from_causes_to_effects(ax: Axes) -> None:
    draw_graph(CausalGraph(ADULT.edges, sensitive="A", outcome="Y"), ax=ax)
    x = {text.get_text(): text.get_position()[0] for text in ax.texts}
    assert all(x[parent] < x[child] for parent, child in ADULT.edges)
    assert x["A"] == x["C"]


@pytest.mark.parametrize("graph", [HIRING, ADULT, LATENT, LONG, WIDE])
@pytest.mark.parametrize("own_figure", [True, False])
@pytest.mark.some(5)
def test_nothing_covers_anything_else(graph: CausalGraph, own_figure: bool, ax: Axes) -> None:
    unfair = graph.unfair(graph.directed_paths(graph.sensitive, graph.outcome)[0])
    drawn = draw_graph(graph, unfair, None if own_figure else ax)
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
    draw_graph(HIRING, HIRING.unfair("A -> Y"), ax)
    HIRING.draw()
    assert plt.get_fignums() == []
    assert dict(mpl.rcParams) == before


def test_figures_grow_with_the_graph() -> None:
    drawn = [draw_graph(graph).figure for graph in (SMALL, LONG, WIDE)]
    small, long, wide = (figure.get_size_inches() for figure in drawn if isinstance(figure, Figure))
    assert small[0] < wide[0] < long[0]
    assert small[1] < long[1] < wide[1]


def test_crowded_axes_shrink_the_text() -> None:
    sizes = []
    for width in (3, 6):
        own = draw_graph(LONG, ax=Figure(figsize=(width, 4)).add_subplot())
        sizes.append(own.texts[0].get_fontsize())
    assert sizes[1] == pytest.approx(2 * sizes[0])
