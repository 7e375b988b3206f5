"""Unfair paths and their regimes; sets of paths as automata equal what listing every path gives."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pyro
import pyro.distributions as dist
import pytest
import torch

from pyrofair import SEM, CausalGraph, GraphError, NotIdentifiedError, identify
from pyrofair.classifiers.pscf.replay import read_plan
from pyrofair.graph.identification import Projection
from pyrofair.graph.paths import Path, PathSet, Regime, UnfairPaths, parting_node, show_count, show_paths
from pyrofair.programs.structural_equations import Equations, State

HIRING = CausalGraph("Q -> A; {Q A} -> D; {Q A} -> M; {Q A D M} -> Y", sensitive="A", outcome="Y")
ADULT = CausalGraph("{A C} -> M; {A C M} -> L; {A C M L} -> R; {A C M L R} -> Y", sensitive="A", outcome="Y")
GERMAN = CausalGraph("{A C} -> S; {A C} -> R; {A C S R} -> Y", sensitive="A", outcome="Y")
TWO_MEDIATORS = CausalGraph("A -> M -> D -> Y; A -> D; A -> Y; M -> Y", sensitive="A", outcome="Y")


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


# --- recanting witnesses ---------------------------------------------------------------------------------------------


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


Pairs = list[tuple[str, str]]


def listed(edges: Pairs, source: str, target: str, nodes: tuple[str, ...]) -> list[Path]:
    """List every path, depth first in the order of the nodes."""
    if source == target:
        return [(source,)]
    children = sorted((child for parent, child in edges if parent == source), key=nodes.index)
    return [(source, *rest) for child in children for rest in listed(edges, child, target, nodes)]


def random_graph(draw: random.Random) -> CausalGraph:
    order = [f"V{i}" for i in range(draw.randint(2, 6))]
    names = ["A", *order, "Y"]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    share = draw.choice([0.3, 0.6, 0.9])
    edges = [pair for pair in pairs if draw.random() < share]
    draw.shuffle(edges)
    edges = [*edges, ("A", "V0"), ("V0", "Y")] if ("A", "Y") not in edges else edges
    hidden = [node for node in order if draw.random() < 0.25 and any(node in edge for edge in edges)]
    return CausalGraph(list(dict.fromkeys(edges)), sensitive="A", outcome="Y", latent=hidden)


def random_set(graph: CausalGraph, every: list[Path], draw: random.Random) -> tuple[UnfairPaths, set[Path]]:
    """Name a set in one of the ways there are, and list what it should hold."""
    inner = sorted({node for path in every for node in path[1:-1]})
    explicit = [path for path in every if draw.random() < draw.choice([0.1, 0.5])]
    through = [node for node in inner if draw.random() < 0.25]
    direct = ("A", "Y") in every and draw.random() < 0.5
    length = draw.randint(2, 4)
    tests: list[Callable[[Path], bool]] = [lambda path: len(path) == length] if draw.random() < 0.3 else []
    unfair = graph.unfair(*explicit, *tests, through=through, direct=direct)
    expected = {
        path
        for path in every
        if path in explicit
        or {*path[1:-1]} & {*through}
        or (direct and len(path) == 2)
        or any(test(path) for test in tests)
    }
    return (unfair.complement(), {*every} - expected) if draw.random() < 0.4 else (unfair, expected)


def witnesses_by_listing(unfair: list[Path], fair: list[Path]) -> list[tuple[str, Path, Path]]:
    found: dict[str, tuple[str, Path, Path]] = {}
    for one in unfair:
        for other in fair:
            if one[1] == other[1] and len(one) > 2:
                node = parting_node(one, other)
                found.setdefault(node, (node, one, other))
    return list(found.values())


@pytest.mark.parametrize("block", range(8))
def test_random_sets_equal_their_lists(block: int) -> None:
    draw = random.Random(block)
    seen = {"witness": 0, "mixed": 0, "complete": 0}
    for _ in range(50):
        graph = random_graph(draw)
        every = listed(list(graph.edges), "A", "Y", graph.nodes)
        paths = graph.directed_paths("A", "Y")
        assert paths == every
        unfair, expected = random_set(graph, every, draw)
        own, fair = [p for p in every if p in expected], [p for p in every if p not in expected]
        assert unfair.paths == own
        assert unfair.paths == tuple(own)
        assert unfair.fair_paths == fair
        assert list(unfair.paths) == own
        assert len(unfair.paths) == unfair.paths.size == len(own)
        assert bool(unfair.paths) is bool(own)
        assert [unfair.paths[i] for i in range(-len(own), len(own))] == own + own
        assert unfair.paths[1:3] == tuple(own[1:3])
        assert unfair.paths[::-1] == tuple(own[::-1])
        assert [path in unfair.paths for path in every] == [path in expected for path in every]
        assert hash(unfair.paths) == hash(tuple(own))
        assert unfair == graph.unfair(*own)
        assert hash(unfair) == hash(graph.unfair(*own))
        assert unfair.complement().complement() == unfair
        assert set(unfair.edges) == {edge for path in own for edge in pairwise(path)}
        assert set(unfair.touched) == {node for path in own for node in path} - {"Y"}
        assert [unfair.regimes[1].value(path) for path in every] == [int(path in expected) for path in every]
        assert unfair.recanting_witnesses() == witnesses_by_listing(own, fair)
        if witnesses_by_listing(own, fair):
            seen["witness"] += 1
            with pytest.raises(NotIdentifiedError, match="is a recanting witness"):
                _ = unfair.regimes[1].arms
        else:
            assert unfair.regimes[1].arms == {path[1]: int(path in expected) for path in every}
        seen["mixed"] += bool(own) and bool(fair)
        seen["complete"] += not fair
    assert seen["witness"] >= 10
    assert seen["mixed"] >= 20
    assert seen["complete"] >= 1


def arms_by_listing(unfair: UnfairPaths, regime: Regime, target: str) -> dict[str, int] | tuple[str, Path, Path]:
    """Return what each observed child reads of the sensitive attribute, or a child with its two paths."""
    graph = unfair.graph
    carried: dict[str, dict[int, Path]] = {}
    for path in listed(list(graph.edges), "A", "Y", graph.nodes):
        if target == "outcome" or path[-2] not in graph.latent:
            child = next(node for node in path[1:] if node not in graph.latent)
            value = regime.on_unfair if path in unfair.paths else regime.on_fair
            carried.setdefault(child, {}).setdefault(value, path)
    for child, by_value in carried.items():
        if len(by_value) > 1:
            return child, by_value[regime.on_unfair], by_value[regime.on_fair]
    return {child: next(iter(by_value)) for child, by_value in carried.items()}


@pytest.mark.parametrize("target", ["prediction", "outcome"])
def test_random_arms_with_latent_nodes_equal_those_of_the_list(target: Any) -> None:
    draw = random.Random(7)
    refused = listed_paths = 0
    for _ in range(250):
        graph = random_graph(draw)
        unfair, _ = random_set(graph, listed(list(graph.edges), "A", "Y", graph.nodes), draw)
        projection = Projection(unfair, target)
        for regime in unfair.regimes:
            expected = arms_by_listing(unfair, regime, target)
            if isinstance(expected, dict):
                listed_paths += 1
                found = projection.arms(regime)
                assert found == {child: value for child, value in expected.items() if child in projection.nodes}
            else:
                refused += 1
                with pytest.raises(NotIdentifiedError) as caught:
                    projection.arms(regime)
                shown = str(caught.value)
                conflicts = [
                    (one, other)
                    for one in unfair.paths
                    for other in unfair.fair_paths
                    if " -> ".join(one) in shown and " -> ".join(other) in shown
                ]
                assert conflicts
    assert refused >= 40
    assert listed_paths >= 200


# --- what sites read in a world --------------------------------------------------------------------------------------


def equations_of(unfair: UnfairPaths) -> Equations:
    """A program that reads what the graph has, as far as states go."""
    graph = unfair.graph
    info = SimpleNamespace(sites=graph.order, causes=lambda site, _: (graph.parents(site), ()))
    return Equations(cast("Any", None), unfair, cast("Any", info), {node: node for node in graph.order})


def states_by_listing(equations: Equations, regime: Regime) -> dict[str, Any]:
    graph = equations.unfair.graph

    def state(node: str, way: Path) -> Any:
        return tuple(
            regime.value((parent, *way)) if parent == "A" else state(parent, (parent, *way))
            for parent in graph.parents(node)
        )

    shown: dict[str, Any] = {}
    for node in equations.sites:
        ways = listed(list(graph.edges), node, "Y", graph.nodes)
        if ways:
            shown[node] = state(node, min(ways, key=len))
        else:
            shown[node] = tuple(regime.on_fair if p == "A" else shown[p] for p in graph.parents(node))
    return shown


def spelled_out(state: State | int) -> Any:
    return tuple(map(spelled_out, state.parts)) if isinstance(state, State) else state


def test_random_states_equal_those_along_every_way() -> None:
    draw = random.Random(3)
    differ = 0
    for _ in range(200):
        graph = random_graph(draw)
        unfair, _ = random_set(graph, listed(list(graph.edges), "A", "Y", graph.nodes), draw)
        equations = equations_of(unfair)
        low, high = (equations.states(regime) for regime in unfair.regimes)
        for found, regime in ((low, unfair.regimes[0]), (high, unfair.regimes[1])):
            assert {site: spelled_out(state) for site, state in found.items()} == states_by_listing(equations, regime)
        for site in equations.sites:  # one object where they are equal
            assert (low[site] is high[site]) is (spelled_out(low[site]) == spelled_out(high[site]))
        steps = equations.in_order(high)
        assert len(set(steps)) == len(steps)
        for index, (site, state) in enumerate(steps):
            for parent, part in zip(equations.causes[site], state.parts, strict=True):
                assert parent == "A" or (parent, part) in steps[:index]
        differ += low != high
    assert differ >= 100


# --- large graphs ----------------------------------------------------------------------------------------------------


def all_connected(mediators: int) -> Pairs:
    names = ["A", *(f"M{i}" for i in range(mediators)), "Y"]
    return [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]


def parallel(mediators: int) -> Pairs:
    return [("A", "Y"), *(edge for i in range(mediators) for edge in (("A", f"M{i}"), (f"M{i}", "Y")))]


def chain(nodes: int) -> Pairs:
    return [*pairwise(["A", *(f"M{i}" for i in range(nodes)), "Y"]), ("A", "Y")]


def sparse(nodes: int) -> Pairs:
    draw = random.Random(0)
    names = ["A", *(f"M{i}" for i in range(nodes - 2)), "Y"]
    drawn = [(p, v) for i, v in enumerate(names[1:], 1) for p in draw.sample(names[max(0, i - 8) : i], min(i, 3))]
    return [*drawn, ("A", "Y")] if ("A", "Y") not in drawn else drawn


LARGE = {
    "12 all connected": (all_connected(12), 2**12),
    "20 all connected": (all_connected(20), 2**20),
    "100 all connected": (all_connected(100), 2**100),
    "200 parallel": (parallel(200), 201),
    "300 sparse": (sparse(300), None),
    "chain of 1,200": (chain(1200), 2),
}


@pytest.fixture
def few_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse to list more paths than a text shows."""
    listing = PathSet.__iter__

    def limited(self: PathSet) -> Iterator[Path]:
        for count, path in enumerate(listing(self)):
            assert count < 10, "every path is being listed"
            yield path

    monkeypatch.setattr(PathSet, "__iter__", limited)


@pytest.mark.usefixtures("few_paths")
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.some(3)
def test_large_graphs_list_no_paths(name: str) -> None:
    edges, count = LARGE[name]
    graph = CausalGraph(edges, sensitive="A", outcome="Y")
    every = graph.directed_paths("A", "Y")
    assert len(every.states) <= len(graph.nodes)
    assert count is None or every.size == count
    direct = graph.unfair("A -> Y")
    mediator = "M0" if "M0" in every.nodes else every[0][1]
    crossing = graph.unfair(through=mediator)
    assert crossing.paths.size + crossing.fair_paths.size == every.size
    assert direct.paths == (("A", "Y"),)
    for unfair in (direct, direct.complement(), crossing, crossing.complement()):
        assert len(unfair.paths.states) + len(unfair.fair_paths.states) <= 2 * len(graph.nodes) + 2
        assert unfair.complement().complement() == unfair
        assert pickle.loads(pickle.dumps(unfair)) == unfair
        assert len(str(unfair)) < 100_000 + 20 * len(graph.nodes)
        assert len(repr(unfair)) < 100_000
        assert {*unfair.touched, "Y"} == unfair.paths.nodes
        assert not {*unfair.shared} & {*unfair.touched}
        assert read_plan(direct).redrawn == ()
    for unfair in (direct, direct.complement(), direct.reversed()):
        assert unfair.recanting_witnesses() == []
        for target in ("prediction", "outcome"):
            found = identify(unfair, target=target)
            assert found.switched.outcome_arm == unfair.regimes[1].arms["Y"] == unfair.regimes[1].value(("A", "Y"))
            assert len(found.switched.factors) == len(found.switched.order)


@pytest.mark.usefixtures("few_paths")
def test_a_witness_among_2_to_the_20_paths() -> None:
    graph = CausalGraph(all_connected(20), sensitive="A", outcome="Y")
    unfair = graph.unfair("A -> M0 -> Y", through="M7")
    found = unfair.recanting_witnesses()
    assert [node for node, _, _ in found[:2]] == ["M6", "M5"]
    for node, one, other in found:
        assert one in unfair.paths
        assert other in unfair.fair_paths
        assert parting_node(one, other) == node
    with pytest.raises(NotIdentifiedError, match="'M6' is a recanting witness") as caught:
        identify(unfair)
    assert len(str(caught.value)) < 2000
    equations = equations_of(unfair)
    low, high = (equations.states(regime) for regime in unfair.regimes)
    assert low["Y"] is not high["Y"]
    # A node's value depends on whether the path goes on through M7, or from M0 straight to Y, or neither.
    assert len(equations.in_order({"Y": high["Y"]})) <= 4 * len(graph.nodes)


@pytest.mark.usefixtures("few_paths")
@pytest.mark.parametrize("name", LARGE)
def test_states_of_sites_in_large_graphs(name: str) -> None:
    graph = CausalGraph(LARGE[name][0], sensitive="A", outcome="Y")
    equations = equations_of(graph.unfair("A -> Y"))
    low, high = (equations.states(regime) for regime in equations.unfair.regimes)
    assert [site for site in equations.sites if low[site] is not high[site]] == ["Y"]
    assert len(equations.in_order(high)) <= 2 * len(graph.nodes)


def test_a_program_with_many_witnesses() -> None:
    """Linear equations whose edges have the weight 1: the effect is the number of unfair paths."""
    mediators = [f"M{i}" for i in range(8)]

    def program(n: int) -> None:
        with pyro.plate("units", n):
            total = pyro.sample("A", dist.Bernoulli(0.5))
            for node in mediators:
                value = pyro.deterministic(node, total + pyro.sample(f"U_{node}", dist.Normal(0.0, 1.0)))
                total = total + value
            pyro.sample("Y", dist.Bernoulli(logits=total))

    graph = CausalGraph(all_connected(8), sensitive="A", outcome="Y")
    for unfair in (graph.unfair("A -> M0 -> Y", through="M5"), graph.unfair(through=["M1", "M6"]).complement()):
        sem = SEM(program, unfair)
        baseline, switched = sem.nodes(50, random_state=0)
        effect = torch.tensor(switched[mediators].to_numpy() - baseline[mediators].to_numpy()).sum(1) + unfair.regimes[
            1
        ].value(("A", "Y"))
        # Each mediator is shown as its edge to Y carries it: the paths that end in that edge.
        assert torch.allclose(
            effect.double(), torch.full((50,), float(unfair.paths.size), dtype=torch.float64), atol=1e-3
        )


# --- texts and limits ------------------------------------------------------------------------------------------------


def test_texts_of_many_paths_are_short() -> None:
    graph = CausalGraph(all_connected(20), sensitive="A", outcome="Y")
    unfair = graph.unfair(direct=True)
    lines = str(unfair).splitlines()
    assert lines[0] == "unfair: A -> Y"
    assert len(lines) == 11
    assert lines[9] == "fair:   ... (1,048,575 paths)"
    assert repr(unfair) == "UnfairPaths('A -> Y')"
    assert repr(unfair.complement()).endswith("... 1,048,575 paths)")
    assert show_paths(graph.directed_paths("A", "Y")).endswith("; ... (1,048,576 paths)")
    assert str(graph.unfair()).splitlines()[1:3] == ["fair:   A -> Y", "fair:   A -> M0 -> Y"]  # the shortest of many
    assert show_paths(PathSet(())) == "none"
    assert repr(PathSet(())) == "PathSet()"
    assert show_count(10**12) == "1,000,000,000,000"
    assert show_count(2**200 + 1) == "at least 2^200"
    with pytest.raises(GraphError, match=r"A -> Z -> Y|'Z', named as a node") as caught:
        graph.unfair("A -> Z -> Y")
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("seed", range(5))
def test_the_shortest_paths_are_found_without_listing_all(seed: int) -> None:
    graph = random_graph(random.Random(seed))
    every = graph.directed_paths("A", "Y")
    for count in (1, 3, 100):
        assert every.shortest(count) == tuple(sorted(every, key=len)[:count])


def test_a_function_of_a_path_has_a_limit() -> None:
    graph = CausalGraph(all_connected(20), sensitive="A", outcome="Y")
    with pytest.raises(GraphError, match=r"there are 1,048,576 of them .* more than 100,000\. Name the paths, or the"):
        graph.unfair(predicate=lambda path: len(path) == 2)


def test_a_set_of_paths_is_a_sequence() -> None:
    paths = CausalGraph("A -> D -> Y; A -> Y", sensitive="A", outcome="Y").directed_paths("A", "Y")
    assert (paths.index(("A", "Y")), paths.count(("A", "Y"))) == (1, 1)
    assert not any(other in paths for other in ("A -> Y", ("A",), ("D", "Y")))
    assert paths != [("A", "Y")]
    with pytest.raises(IndexError, match="no path 2; the set has 2"):
        _ = paths[2]
    with pytest.raises(OverflowError):
        len(CausalGraph(all_connected(100), sensitive="A", outcome="Y").directed_paths("A", "Y"))


def test_a_set_may_be_built_from_a_tuple_of_paths() -> None:
    graph = CausalGraph("A -> D -> Y; A -> Y", sensitive="A", outcome="Y")
    assert UnfairPaths(graph, (("A", "Y"),)) == graph.unfair("A -> Y")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="is not a directed path"):
        UnfairPaths(graph, (("A", "D"),))  # type: ignore[arg-type]


def test_latent_chains_are_walked_once() -> None:
    """Between two observed nodes there may be 2^30 ways through latent ones."""
    names = [f"H{i}" for i in range(30)]
    edges = [(a, b) for i, a in enumerate(["A", *names, "D"]) for b in [*names, "D"][i:]]
    graph = CausalGraph([*edges, ("D", "Y"), ("A", "Y")], sensitive="A", outcome="Y", latent=names)
    assert graph.unfair("A -> Y").fair_paths.size == 2**30
    assert str(identify(graph.unfair("A -> Y")).switched).endswith("P(Y=1 | A=1, D) P(D | A=0)")
