"""Sets of unfair paths and their two regimes: which value of the sensitive attribute each path and child reads."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from pyrofair.exceptions import GraphError, NotIdentifiedError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.paths import UnfairPaths

HIRING = CausalGraph("Q -> A; {Q A} -> D; {Q A} -> M; {Q A D M} -> Y", sensitive="A", outcome="Y")
ADULT = CausalGraph("{A C} -> M; {A C M} -> L; {A C M L} -> R; {A C M L R} -> Y", sensitive="A", outcome="Y")
GERMAN = CausalGraph("{A C} -> S; {A C} -> R; {A C S R} -> Y", sensitive="A", outcome="Y")
TWO_MEDIATORS = CausalGraph("A -> M -> D -> Y; A -> D; A -> Y; M -> Y", sensitive="A", outcome="Y")
KITE = CausalGraph("A -> M1; M1 -> M2; {A M1 M2} -> Y", sensitive="A", outcome="Y")


def edge_not_node(extra: str = "") -> CausalGraph:
    return CausalGraph(f"A -> Z -> D -> Y; A -> D; A -> Y{extra}", sensitive="A", outcome="Y")


# --- which paths -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unfair",
    [
        HIRING.unfair("A -> Y", "A -> D -> Y"),
        HIRING.unfair("A -> D -> Y", "A -> Y", "A→Y"),
        HIRING.unfair(("A", "Y"), ["A", "D", "Y"]),
        HIRING.unfair("A -> Y", through="D"),
        HIRING.unfair(direct=True, through=["D"]),
        HIRING.unfair(lambda path: "M" not in path),
        HIRING.unfair(lambda path: len(path) == 2, lambda path: path[1] == "D"),
        HIRING.unfair("A -> Y", predicate=lambda path: "D" in path),
        HIRING.unfair(through="M").complement(),
        HIRING.unfair("A -> M -> Y").complement().complement().complement(),
    ],
)
def test_every_way_to_name_a_set(unfair: UnfairPaths) -> None:
    assert unfair == HIRING.unfair("A -> Y", "A -> D -> Y")
    assert unfair.paths == (("A", "D", "Y"), ("A", "Y"))
    assert unfair.fair_paths == (("A", "M", "Y"),)
    assert unfair.edges == (("A", "D"), ("A", "Y"), ("D", "Y"))


def test_no_path_and_all_paths() -> None:
    nothing, everything = HIRING.unfair(), HIRING.unfair(lambda path: True)
    assert nothing.paths == everything.fair_paths == ()
    assert nothing.fair_paths == everything.paths == tuple(HIRING.directed_paths("A", "Y"))
    assert nothing.complement() == everything
    assert nothing.touched == nothing.edges == ()


def test_through_takes_every_path_through_any_of_the_nodes() -> None:
    assert ADULT.unfair(through="L").paths == tuple(p for p in ADULT.directed_paths("A", "Y") if "L" in p)
    assert len(ADULT.unfair(through="M").paths) == 4
    assert set(ADULT.unfair(through=["M", "L"]).fair_paths) == {("A", "R", "Y"), ("A", "Y")}


@pytest.mark.parametrize(
    ("unfair", "touched", "shared"),
    [
        (HIRING.unfair(direct=True, through="D"), ("A", "D"), ("Q", "M")),
        (HIRING.unfair(direct=True), ("A",), ("Q", "D", "M")),
        (HIRING.unfair(), (), ("Q", "D", "M")),
        (ADULT.unfair(direct=True, through="M"), ("A", "M", "L", "R"), ("C",)),
        (GERMAN.unfair(direct=True, through="S"), ("A", "S"), ("C", "R")),
        (TWO_MEDIATORS.unfair("A -> D -> Y"), ("A", "D"), ("M",)),
    ],
)
def test_touched_and_shared(unfair: UnfairPaths, touched: tuple[str, ...], shared: tuple[str, ...]) -> None:
    assert unfair.touched == touched
    assert unfair.shared == shared


def test_shared_holds_observed_ancestors_of_the_prediction_only() -> None:
    graph = CausalGraph(
        "B -> C -> A; A -> M -> Y; A -> L; M -> K; Z -> Y; H -> M; W -> K", sensitive="A", outcome="Y", latent=["H"]
    )
    assert graph.unfair().shared == ("B", "C", "M", "Z")
    assert graph.unfair(through="M").shared == ("B", "C", "Z")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "A -> Q -> Y",
            r"A -> Q -> Y is not a directed path from 'A' to 'Y': there is no edge A -> Q\. The paths: A -> D",
        ),
        ("A -> D -> M -> Y", "there is no edge D -> M"),
        ("A -> D", "it must run from the one to the other"),
        ("Q -> Y", "Q -> Y is not a directed path from 'A' to 'Y': it must run from the one to the other"),
        ("A -> d -> Y", r"'d', named as a node, is not in the graph.*Did you mean 'D'\?"),
        ("A -> {D M} -> Y", "is not one path through single nodes"),
        ("A", "a path has at least two nodes"),
        (["A -> Y"], "a path has at least two nodes"),
        (3, "3 is not a path"),
    ],
)
def test_paths_that_do_not_exist(name: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        HIRING.unfair(name)


@pytest.mark.parametrize("node", ["Q", "A", "Y", "Z"])
def test_through_a_node_without_paths(node: str) -> None:
    with pytest.raises(GraphError, match=f"No directed path from 'A' to 'Y' runs through '{node}'.*A -> D -> Y; "):
        HIRING.unfair(through=["M", node])


def test_direct_needs_an_edge() -> None:
    graph = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y")
    with pytest.raises(GraphError, match=r"A -> Y is not a directed path .* no edge A -> Y\. The paths: A -> M -> Y"):
        graph.unfair(direct=True)


# --- the two regimes -------------------------------------------------------------------------------------------------


def test_regimes_of_hiring() -> None:
    unfair = HIRING.unfair("A -> Y", "A -> D -> Y")
    baseline, switched = unfair.regimes
    assert (baseline.name, switched.name) == ("baseline", "unfair")
    assert baseline.arms == {"D": 0, "M": 0, "Y": 0}
    assert switched.arms == {"D": 1, "M": 0, "Y": 1}
    assert [switched.value(path) for path in HIRING.directed_paths("A", "Y")] == [
        int(path in unfair.paths) for path in HIRING.directed_paths("A", "Y")
    ]
    assert (baseline.symbol, switched.symbol) == ("Y(A<=0)", "Y(A<=1||pi)")
    assert (baseline.latex, switched.latex) == (r"Y_{A \Leftarrow 0}", r"Y_{A \Leftarrow 1 \parallel \pi}")


def test_reversed_swaps_the_roles_of_the_two_values() -> None:
    unfair = HIRING.unfair("A -> Y", "A -> D -> Y")
    baseline, switched = unfair.reversed().regimes
    assert baseline.arms == {"D": 1, "M": 1, "Y": 1}
    assert switched.arms == {"D": 0, "M": 1, "Y": 0}
    assert (baseline.symbol, switched.symbol) == ("Y(A<=1)", "Y(A<=0||pi)")
    assert unfair.reversed() != unfair
    assert unfair.reversed().paths == unfair.paths
    assert unfair.reversed().reversed() == unfair
    assert tuple(regime.reversed() for regime in unfair.regimes) == unfair.reversed().regimes


def test_arms_leave_out_children_that_do_not_lead_to_the_outcome() -> None:
    graph = CausalGraph("A -> {M K L}; M -> Y; L -> K", sensitive="A", outcome="Y")
    assert graph.unfair("A -> M -> Y").regimes[1].arms == {"M": 1}


def test_arms_are_of_edges_and_not_of_nodes() -> None:
    """D lies on the unfair path A -> Z -> D -> Y, and still reads 0: its own edge from A is fair."""
    assert edge_not_node().unfair("A -> Z -> D -> Y").regimes[1].arms == {"Z": 1, "D": 0, "Y": 0}


# --- recanting witnesses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unfair", "witnesses"),
    [
        (TWO_MEDIATORS.unfair("A -> M -> Y"), [("M", ("A", "M", "Y"), ("A", "M", "D", "Y"))]),
        (TWO_MEDIATORS.unfair("A -> M -> D -> Y"), [("M", ("A", "M", "D", "Y"), ("A", "M", "Y"))]),
        (TWO_MEDIATORS.unfair("A -> M -> Y", "A -> M -> D -> Y"), []),
        (TWO_MEDIATORS.unfair("A -> D -> Y"), []),
        (TWO_MEDIATORS.unfair("A -> Y"), []),
        (TWO_MEDIATORS.unfair(), []),
        (edge_not_node().unfair("A -> Z -> D -> Y"), []),
        (edge_not_node("; Z -> Y").unfair("A -> Z -> D -> Y"), [("Z", ("A", "Z", "D", "Y"), ("A", "Z", "Y"))]),
        (KITE.unfair("A -> M1 -> M2 -> Y"), [("M1", ("A", "M1", "M2", "Y"), ("A", "M1", "Y"))]),
    ],
)
def test_witnesses(unfair: UnfairPaths, witnesses: list[Any]) -> None:
    assert unfair.recanting_witnesses() == witnesses
    swapped = [(node, fair, path) for node, path, fair in witnesses]
    assert unfair.complement().recanting_witnesses() == swapped
    if witnesses:
        node, path, fair = (" -> ".join(each) if isinstance(each, tuple) else each for each in witnesses[0])
        with pytest.raises(
            NotIdentifiedError,
            match=rf"'{node}' is a recanting witness\. The unfair path {path} and the fair path {fair} part only there",
        ):
            _ = unfair.regimes[1].arms
    else:
        assert unfair.regimes[1].arms
    assert set(unfair.regimes[0].arms.values()) == {0}


def test_the_witness_is_where_the_paths_part_and_not_the_first_child() -> None:
    graph = CausalGraph("A -> B -> C -> D -> Y; C -> Y; A -> Y", sensitive="A", outcome="Y")
    assert graph.unfair("A -> B -> C -> D -> Y").recanting_witnesses() == [
        ("C", ("A", "B", "C", "D", "Y"), ("A", "B", "C", "Y"))
    ]


def test_each_witness_is_listed_once() -> None:
    unfair = ADULT.unfair("A -> M -> L -> R -> Y")
    found = unfair.recanting_witnesses()
    assert [node for node, _, _ in found] == ["L", "M"]
    for node, path, fair in found:
        at = path.index(node)
        assert path[: at + 1] == fair[: at + 1]
        assert path[at + 1] != fair[at + 1]


# --- a value ---------------------------------------------------------------------------------------------------------


def test_sets_are_values() -> None:
    unfair = HIRING.unfair("A -> Y")
    with pytest.raises(dataclasses.FrozenInstanceError):
        unfair.paths = ()  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        unfair.regimes[0].on_fair = 1  # type: ignore[misc]
    _ = unfair.fair_paths
    assert len({unfair, HIRING.unfair(direct=True), unfair.reversed(), HIRING.unfair("A -> D -> Y")}) == 3
    for copied in (pickle.loads(pickle.dumps(unfair)), copy.deepcopy(unfair)):
        assert copied == unfair
        assert copied.regimes == unfair.regimes


def test_text() -> None:
    assert str(HIRING.unfair("A -> Y", "A -> D -> Y")).splitlines() == [
        "unfair: A -> D -> Y",
        "unfair: A -> Y",
        "fair:   A -> M -> Y",
        "shared by both worlds: Q, M",
    ]
    graph = CausalGraph("A -> Y", sensitive="A", outcome="Y")
    assert str(graph.unfair()).splitlines() == [
        "unfair: no path",
        "fair:   A -> Y",
        "shared by both worlds: nothing observed",
    ]


def test_drawing() -> None:
    ax = HIRING.unfair("A -> Y", "A -> D -> Y").draw(ax=Figure().add_subplot())
    colors = [to_hex(patch.get_edgecolor()) for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    assert colors.count("#cc3311") == 3
    assert len(colors) == len(HIRING.edges)


def test_swapped_roles_are_told() -> None:
    graph = CausalGraph("A -> Y", sensitive="A", outcome="Y", baseline="f", contrast="m")
    unfair = graph.unfair("A -> Y")
    assert "swapped: the baseline world has A='m' on all paths, and the other 'f'" in str(unfair.reversed())
    assert "swapped" not in str(unfair)
    assert repr(unfair) == "UnfairPaths('A -> Y')"
    assert repr(unfair.reversed().regimes[1]) == "Regime('unfair', unfair paths carry 0, fair ones 1)"
