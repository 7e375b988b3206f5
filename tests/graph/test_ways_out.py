"""What can be done where an effect is not identified: relabellings against brute force, measured nodes, bounds."""

from __future__ import annotations

import pickle
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from pyrofair import CausalGraph, FormulaNotApplicableError, GraphError, NotIdentifiedError, UnfairPaths, identify
from pyrofair.commands.line import main
from pyrofair.graph.identification import Target
from pyrofair.graph.ways_out import MOST_RELABELLINGS, WaysOut

ADULT = "{A C} -> M; {A C M} -> L; {A C M L} -> R; {A C M L R} -> Y"
TARGETS: tuple[Target, ...] = ("prediction", "outcome")


def ways_out(
    edges: str, *paths: str, latent: str = "", target: Target = "prediction", **named: Any
) -> tuple[NotIdentifiedError, WaysOut]:
    graph = CausalGraph(edges, sensitive="A", outcome="Y", latent=list(latent))
    with pytest.raises(NotIdentifiedError) as caught:
        identify(graph.unfair(*paths, **named), target)
    return caught.value, caught.value.way_out


def random_graph(rng: np.random.Generator, most: int = 10) -> CausalGraph:
    """Draw a graph of at most so many paths, with up to three latent nodes, mediators and causes of A among them."""
    while True:
        inner = [f"V{i}" for i in range(int(rng.integers(1, 5)))]
        order = [*inner[:1], "A", *inner[1:], "Y"] if rng.random() < 0.3 else ["A", *inner, "Y"]
        edges = [(a, b) for i, a in enumerate(order) for b in order[i + 1 :] if rng.random() < 0.6]
        causes = [f"U{i}" for i in range(int(rng.integers(0, 4)))]
        for cause in causes:
            edges += [(cause, str(node)) for node in rng.choice(order, size=2, replace=False)]
        hidden = [*causes, *(node for node in inner if rng.random() < 0.15)]
        try:
            graph = CausalGraph(
                edges, sensitive="A", outcome="Y", latent=[h for h in hidden if any(h in e for e in edges)]
            )
        except GraphError:
            continue
        if len(graph.directed_paths("A", "Y")) <= most:
            return graph


def verdict(unfair: UnfairPaths, target: Target) -> str:
    try:
        identify(unfair, target)
    except FormulaNotApplicableError:
        return "other"
    except NotIdentifiedError:
        return "none"
    return "edge"


def minimal(changes: list[frozenset[Any]]) -> set[frozenset[Any]]:
    return {one for one in changes if not any(other < one for other in changes)}


def check_against_brute_force(graph: CausalGraph, unfair: UnfairPaths, target: Target) -> int:
    """Return how many relabellings there are, having compared them with every set of paths."""
    own = verdict(unfair, target)
    if own == "edge":
        return 0
    with pytest.raises(NotIdentifiedError) as caught:
        identify(unfair, target)
    found: WaysOut = caught.value.way_out
    paths = tuple(graph.directed_paths("A", "Y"))
    by_edge, by_any = [], []
    for size in range(len(paths) + 1):
        for chosen in combinations(paths, size):
            judged = verdict(graph.unfair(*chosen), target)
            change = frozenset({*chosen} ^ {*unfair.paths})
            by_any += [change] if judged != "none" else []
            by_edge += [change] if judged == "edge" else []
    expected = {(change, "edge") for change in minimal(by_edge)}
    if own == "none":
        expected |= {(change, "other") for change in minimal(by_any) if change not in by_edge}
    listed = [(frozenset({*each.add} | {*each.remove}), each.formula) for each in found.relabellings]
    assert len(listed) == len(set(listed)) == min(len(expected), MOST_RELABELLINGS)
    assert set(listed) <= expected
    for each, (change, formula) in zip(found.relabellings, listed, strict=True):
        assert {*each.unfair.paths} == {*unfair.paths} ^ change
        assert ({*each.add} <= {*unfair.fair_paths}, {*each.remove} <= {*unfair.paths}) == (True, True)
        assert verdict(each.unfair, target) == formula
        assert each.size == len(change)
        if each.code:
            assert eval(each.code, {"graph": graph}).paths == each.unfair.paths
    if len(expected) > MOST_RELABELLINGS:
        sizes = sorted(len(change) for change, formula in expected if formula == listed[0][1])
        assert sorted(each.size for each in found.relabellings) == sizes[:MOST_RELABELLINGS]
    else:
        assert set(listed) == expected
    assert found.number >= len(listed)
    assert found.only_formula is (own == "other")
    return len(listed)


def check_what_to_measure(graph: CausalGraph, unfair: UnfairPaths, target: Target) -> int:
    with pytest.raises(NotIdentifiedError) as caught:
        identify(unfair, target)
    found = []
    for size in range(1, len(graph.latent) + 1):
        for nodes in combinations(graph.latent, size):
            rest = [node for node in graph.latent if node not in nodes]
            try:
                other = CausalGraph(list(graph.edges), sensitive="A", outcome="Y", latent=rest)
            except GraphError:
                continue
            if verdict(other.unfair(*unfair.paths), target) == "edge":
                found.append(frozenset(nodes))
    expected = {each for each in minimal(found) if len(each) <= 3}
    assert {frozenset(each) for each in caught.value.way_out.measure} == expected
    return len(expected)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.some(4)
def test_relabellings_are_all_the_smallest_changes_that_are_identified(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = measured = 0
    for _ in range(5):
        graph = random_graph(rng, most=6)
        unfair = graph.unfair(*(path for path in graph.directed_paths("A", "Y") if rng.random() < 0.5))
        for target in TARGETS:
            for each in (unfair, unfair.reversed()) if rng.random() < 0.2 else (unfair,):
                found += check_against_brute_force(graph, each, target)
                if verdict(each, target) != "edge":
                    measured += check_what_to_measure(graph, each, target)
    assert found + measured > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_relabellings_of_many_graphs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(10):
        graph = random_graph(rng)
        unfair = graph.unfair(*(path for path in graph.directed_paths("A", "Y") if rng.random() < 0.5))
        for target in TARGETS:
            check_against_brute_force(graph, unfair, target)
            if verdict(unfair, target) != "edge":
                check_what_to_measure(graph, unfair, target)


# --- what is said -----------------------------------------------------------------------------------------------------

KITE = "A -> M -> D -> Y; A -> D; A -> Y; M -> Y"


def test_a_recanting_witness() -> None:
    error, found = ways_out(KITE, "A -> M -> Y")
    assert [each.code for each in found.relabellings] == [
        "graph.unfair('A -> M -> D -> Y', 'A -> M -> Y')",
        "graph.unfair()",
    ]
    assert [(tuple(each.add), tuple(each.remove)) for each in found.relabellings] == [
        ((("A", "M", "D", "Y"),), ()),
        ((), (("A", "M", "Y"),)),
    ]
    assert [each.empty for each in found.relabellings] == [False, True]
    assert (found.number, found.only_formula, found.prediction, found.measure) == (2, False, None, ())
    assert [each.call for each in found.bounds] == [
        "pf.MilesBounds(unfair)",
        "pf.sharp_bounds(unfair, df, score=model)",
        "pf.SEM(program, unfair)",
    ]
    assert str(error) == f"{error.cause}\n{found}"
    assert error.cause.startswith("Not identified: 'M' is a recanting witness.")
    assert "graph.unfair('A -> M -> D -> Y', 'A -> M -> Y')  # adds A -> M -> D -> Y" in str(found)
    assert "graph.unfair()  # takes away A -> M -> Y, so that no path is unfair" in str(found)


def test_errors_survive_pickling() -> None:
    error, found = ways_out(KITE, "A -> M -> Y")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.way_out, type(again)) == (str(error), found, NotIdentifiedError)
    assert str(NotIdentifiedError("why")) == "why"


def test_the_closed_form_is_named_wherever_it_applies() -> None:
    edges, call = "A -> R; A -> M; R -> M; {A R M} -> Y", "pf.MilesBounds(unfair)"

    def names_it(target: Any, edges: str, *paths: str, latent: str = "") -> bool:
        _, found = ways_out(edges, *paths, latent=latent, target=target)
        return call in [each.call for each in found.bounds]

    for target in TARGETS:
        assert names_it(target, edges, "A -> Y", "A -> R -> Y")
        assert names_it(target, f"{edges}; H -> {{R Y}}", "A -> Y", "A -> R -> Y", latent="H")
        assert names_it(target, edges, "A -> R -> Y")
        assert names_it(target, "A -> R -> M -> Y; R -> Y", "A -> R -> Y")
        assert not names_it(target, f"{edges}; C -> Y; C -> M", "A -> Y", "A -> R -> Y")
        assert not names_it(target, edges, "A -> R -> M -> Y")
        assert not names_it(target, f"{edges}; H -> {{A M}}", "A -> Y", "A -> R -> Y", latent="H")
    for joined in ("M Y", "M R", "A Y"):
        own = f"{edges}; H -> {{{joined}}}", "A -> Y", "A -> R -> Y"
        assert names_it("prediction", *own, latent="H")
        assert not names_it("outcome", *own, latent="H")
    _, found = ways_out(edges, "A -> R -> Y", target="outcome")
    assert "Closed-form bounds of the regression of Y on its parents: pf.MilesBounds(unfair), where M takes few" in str(
        found
    )


def test_a_district_with_two_values() -> None:
    _, found = ways_out(f"{ADULT}; U -> {{M L}}", latent="U", direct=True, through="M")
    assert [each.code for each in found.relabellings] == [
        "graph.unfair(direct=True, through=['M', 'L'])",
        "graph.unfair('A -> Y')",
    ]
    assert found.measure == (("U",),)
    _, found = ways_out(f"{ADULT}; U -> {{A M}}", "A -> Y", latent="U")
    assert found.relabellings == ()
    assert "No other set of unfair paths is identified" in str(found)
    _, found = ways_out(f"{ADULT}; U -> {{A M}}; V -> {{A M}}", "A -> Y", latent="UV")
    assert found.measure == (("U", "V"),)
    assert "if measured: U with V." in str(found)


def test_a_latent_cause_of_the_outcome_leaves_the_prediction() -> None:
    _, found = ways_out("A -> M; {A M} -> Y; U -> {M Y}", "A -> Y", latent="U", target="outcome")
    assert found.prediction is True
    assert "made from A, M is identified" in str(found)
    assert 'pf.identify(unfair, target="prediction")' in str(found)
    assert found.bounds[0].call == "pf.sharp_bounds(unfair, df)"
    _, found = ways_out("A -> M -> D -> Y; M -> Y", "A -> M -> Y", target="outcome")
    assert found.prediction is False
    assert "The effect on a prediction is not identified by this formula either." in str(found)


@pytest.mark.parametrize(
    ("edges", "latent", "target", "words"),
    [
        ("A -> M -> Y; U -> {A Y}", "U", "outcome", "Tian and Pearl, 2002"),
        ("W -> R -> A -> M -> Y; U -> {W A}; V -> {W M}", "UV", "prediction", "Shpitser and Pearl, 2006"),
        ("C -> A; A -> {M L}; {M L} -> Y; U -> {C M}; V -> {C L}", "UV", "prediction", "does not need"),
    ],
    ids=["front door", "napkin", "collider"],
)
def test_only_the_formula_fails(edges: str, latent: str, target: Target, words: str) -> None:
    error, found = ways_out(edges, "A -> M -> Y", latent=latent, target=target)
    assert isinstance(error, FormulaNotApplicableError)
    assert found.only_formula
    assert words in found.other_formula
    assert "Only this formula fails: the effect is identified by another one" in str(error)
    assert "No other set" not in str(error)


def test_paths_of_names_that_need_quotes() -> None:
    graph = CausalGraph('A -> "work hours" -> D -> Y; "work hours" -> Y; A -> Y', sensitive="A", outcome="Y")
    with pytest.raises(NotIdentifiedError) as caught:
        identify(graph.unfair(("A", "work hours", "Y")))
    first = caught.value.way_out.relabellings[0]
    assert eval(first.code, {"graph": graph}).paths == first.unfair.paths
    assert first.options == """--unfair '"A" -> "work hours" -> "D" -> "Y"; "A" -> "work hours" -> "Y"'"""


def test_the_command_writes_them_as_options(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["identify", "--graph", KITE, "--sensitive", "A", "--outcome", "Y", "--unfair", "A -> M -> Y"]
    with pytest.raises(SystemExit, match="4"):
        main(asked)
    err = capsys.readouterr().err
    assert "    --unfair 'A -> M -> D -> Y; A -> M -> Y'  # adds A -> M -> D -> Y\n" in err
    assert (
        "From Python: pf.MilesBounds(unfair), pf.sharp_bounds(unfair, df, score=model), pf.SEM(program, unfair)." in err
    )
    main([*asked[:-1], "A -> M -> D -> Y; A -> M -> Y"])
    capsys.readouterr()
    latent = ["--graph", "A -> M; {A M} -> Y; U -> {M Y}", "--latent", "U", "--sensitive", "A", "--outcome", "Y"]
    with pytest.raises(SystemExit, match="4"):
        main(["identify", *latent, "--direct", "--target", "outcome"])
    assert "plays no part: --target prediction." in capsys.readouterr().err
