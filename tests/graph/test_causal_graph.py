"""The causal graph: every form it is written in, what it answers, that nothing changes it, and what it refuses."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import networkx as nx
import pytest

from pyrofair import CausalGraph, DataError, GraphError
from pyrofair.graph.changes import join_nodes
from pyrofair.graph.parse import EdgeList

EDGES = "Q -> A; {Q A} -> D; {Q A} -> M; {Q A D M} -> Y"
PAIRS = [("Q", "A"), ("Q", "D"), ("A", "D"), ("Q", "M"), ("A", "M"), ("Q", "Y"), ("A", "Y"), ("D", "Y"), ("M", "Y")]


def hiring(edges: Any = EDGES, **settings: Any) -> CausalGraph:
    return CausalGraph(edges, **{"sensitive": "A", "outcome": "Y", **settings})


# --- what it is made from --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edges",
    [
        EDGES,
        EDGES.replace(";", "\n").replace("->", "→"),
        "digraph { Q -> A; {Q A} -> D; {Q A} -> M; {Q A D M} -> Y }",
        nx.DiGraph(PAIRS),
        PAIRS,
        iter(PAIRS),
        EdgeList(("Q", "A", "D", "M", "Y"), tuple(PAIRS)),
    ],
    ids=["edge string", "arrows and lines", "DOT", "networkx", "pairs", "iterator", "edge list"],
)
def test_every_form_gives_the_same_graph(edges: Any) -> None:
    graph = hiring(edges)
    assert graph.nodes == ("Q", "A", "D", "M", "Y")
    assert set(graph.edges) == set(PAIRS)
    assert graph.order == hiring().order
    assert graph.directed_paths("A", "Y") == hiring().directed_paths("A", "Y")


def test_latent_nodes_of_the_source_and_of_the_argument_join() -> None:
    graph = hiring("digraph { V [latent=true]; U -> A; U -> M; V -> M; A -> M; M -> Y }", latent="U")
    assert graph.latent == ("V", "U")
    assert graph.observed == ("A", "M", "Y")


# --- what it answers -------------------------------------------------------------------------------------------------


def test_each_column_has_one_node() -> None:
    graph = hiring(columns={"D": ["d1", "d2"]})
    assert graph.node_of == {"Q": "Q", "A": "A", "d1": "D", "d2": "D", "M": "M", "Y": "Y"}


def test_relations_come_in_the_order_of_declaration() -> None:
    graph = hiring("Z -> Y; A -> M; {B A} -> M; B -> A; M -> K; {M A} -> Y")
    assert graph.nodes == ("Z", "Y", "A", "M", "B", "K")
    assert graph.parents("M") == ("A", "B")
    assert graph.parents("Y") == ("Z", "A", "M")
    assert graph.children("A") == ("Y", "M")
    assert graph.ancestors("Y") == ("Z", "A", "M", "B")
    assert graph.descendants("A") == ("Y", "M", "K")
    assert graph.parents("Z") == graph.descendants("K") == ()


def test_order_is_topological_and_ties_go_to_first_appearance() -> None:
    assert hiring().order == ("Q", "A", "D", "M", "Y")
    assert hiring("{A Q} -> M; {A Q} -> D; {A Q M D} -> Y").order == ("Q", "A", "M", "D", "Y")
    # What A does not cause comes before it, wherever it is declared; what it causes waits for its parents.
    late = hiring("A -> M; {A Z B} -> Y; M -> L; L -> Y; B -> Z; A -> K")
    assert late.order == ("B", "Z", "A", "M", "L", "Y", "K")
    assert hiring("A -> {Y K}; K -> J").order == ("A", "Y", "K", "J")


def test_directed_paths_are_all_there_depth_first() -> None:
    graph = hiring("A -> M -> D -> Y; A -> D; A -> Y; M -> Y; D -> K")
    assert graph.directed_paths("A", "Y") == [("A", "M", "D", "Y"), ("A", "M", "Y"), ("A", "D", "Y"), ("A", "Y")]
    assert graph.directed_paths("M", "Y") == [("M", "D", "Y"), ("M", "Y")]
    assert graph.directed_paths("K", "Y") == []
    expected = {tuple(path) for path in nx.all_simple_paths(nx.DiGraph(graph.edges), "A", "Y")}
    assert set(graph.directed_paths("A", "Y")) == expected


def test_columns_of_nodes() -> None:
    graph = CausalGraph(
        "{sex C} -> R; {sex R C} -> risk; H -> R",
        sensitive="sex",
        outcome="risk",
        columns={"R": ["credit amount", "duration"], "C": "age", "risk": ["good"]},
        latent=["H"],
    )
    assert graph.columns == {"sex": ["sex"], "C": ["age"], "R": ["credit amount", "duration"], "risk": ["good"]}
    assert graph.columns_of(["R", "sex"]) == ["credit amount", "duration", "sex"]
    assert graph.sensitive_column == "sex"
    assert graph.outcome_column == "good"
    assert graph.observed == ("sex", "C", "R", "risk")
    assert graph.inputs == ("sex", "C", "R")
    assert graph.input_columns == ["sex", "age", "credit amount", "duration"]


def test_a_classifier_reads_the_observed_parents_of_the_outcome_only() -> None:
    graph = hiring("A -> M -> D -> Y; H -> Y; Z -> M", latent=["H"])
    assert graph.inputs == ("D",)


def test_labels_go_by_name_and_not_by_order() -> None:
    graph = hiring(baseline="m", contrast="f")
    assert (graph.label(0), graph.label(1)) == ("m", "f")
    assert str(graph).splitlines()[-2] == "# sensitive attribute: A (0 is 'm', 1 is 'f')"


@pytest.mark.parametrize(
    ("edges", "more"),
    [
        ("Q; A -> M; {A M} -> Y", {}),
        ([("native country", "A"), ("a -> b", "A"), ("A", "Y")], {"baseline": "m\nf", "columns": {"A": "sex"}}),
        ("A <-> M; A -> {M Y}", {"latent": ["M"]}),
    ],
)
def test_the_text_of_a_graph_is_one_that_it_is_read_from(edges: Any, more: dict[str, Any]) -> None:
    graph = hiring(edges, **more)
    again = CausalGraph(str(graph), sensitive="A", outcome="Y", latent=graph.latent)
    assert {*again.nodes} == {*graph.nodes}
    assert {*again.edges} == {*graph.edges}


def test_tiers_have_all_edges_to_later_ones() -> None:
    tiers = [["sex", "age"], [], ["job", "hours"], ["granted"]]
    graph = CausalGraph.from_tiers(tiers, sensitive="sex", outcome="granted")
    later = {("sex", "job"), ("sex", "hours"), ("age", "job"), ("age", "hours")}
    assert {*graph.edges} == later | {(each, "granted") for each in ("sex", "age", "job", "hours")}
    joined = CausalGraph.from_tiers(tiers, within=True, sensitive="sex", outcome="granted", baseline="m", contrast="f")
    assert {*joined.edges} - {*graph.edges} == {("sex", "age"), ("job", "hours")}
    assert joined.contrast == "f"


@pytest.mark.parametrize(
    ("tiers", "message"),
    [
        ("sex job", "tiers='sex job' must be a list of lists"),
        (["sex", "job"], r"tiers\[0\]='sex'"),
        ([["sex"], ["job", "sex"]], "name 'sex' twice"),
        ([["sex"]], "have 1 node"),
        ([["granted"], ["sex"]], "no directed path from 'sex'"),
    ],
)
def test_tiers_refused(tiers: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        CausalGraph.from_tiers(tiers, sensitive="sex", outcome="granted")


def test_with_latent_keeps_everything_else() -> None:
    graph = hiring(baseline="a", contrast="b", positive="yes", columns={"D": ["d1", "d2"], "M": ["m"]})
    hidden = graph.with_latent("D")
    assert hidden.latent == ("D",)
    assert hidden.columns == {"Q": ["Q"], "A": ["A"], "M": ["m"], "Y": ["Y"]}
    assert (hidden.nodes, hidden.edges) == (graph.nodes, graph.edges)
    assert (hidden.baseline, hidden.contrast, hidden.positive) == ("a", "b", "yes")
    assert hidden.with_latent("Q").latent == ("Q", "D")
    assert hidden.with_latent() == hidden
    assert graph.latent == ()


# --- a value ---------------------------------------------------------------------------------------------------------


def test_it_cannot_be_changed() -> None:
    graph = hiring()
    for field in dataclasses.fields(graph):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(graph, field.name, None)
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(graph, field.name)
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.other = 1  # type: ignore[attr-defined]
    graph.columns["A"].append("B")
    graph.columns["Z"] = ["Z"]
    assert graph.columns == hiring().columns


def test_it_does_not_share_what_it_was_made_from() -> None:
    pairs, columns, source = list(PAIRS), {"M": ["m1", "m2"]}, nx.DiGraph(PAIRS)
    one, two = hiring(pairs, columns=columns), hiring(source)
    pairs.append(("Q", "Z"))
    columns["M"].append("m3")
    source.remove_node("D")
    assert one.columns["M"] == ["m1", "m2"]
    assert "Z" not in one.nodes
    assert "D" in two.nodes


def test_equality_and_hash() -> None:
    assert hiring() == hiring(PAIRS)
    assert len({hiring(), hiring(PAIRS), hiring(contrast=2)}) == 2
    for other in (
        hiring(baseline=2),
        hiring(positive=0),
        hiring(columns={"M": "m"}),
        hiring().with_latent("M"),
        hiring(PAIRS[:-1]),
        hiring("{A Q} -> M; {A Q} -> D; {A Q M D} -> Y; Q -> A"),
    ):
        assert other != hiring()


@pytest.mark.parametrize("copied", [lambda g: pickle.loads(pickle.dumps(g)), copy.deepcopy, copy.copy])
def test_copies_are_equal_before_and_after_use(copied: Any) -> None:
    graph = hiring(columns={"M": ["m1", "m2"]}, baseline="m", contrast="f")
    assert copied(graph) == graph
    order = graph.order
    assert copied(graph).order == order
    assert hash(copied(graph)) == hash(graph)
    assert copied(graph).parents("Y") == graph.parents("Y")


# --- what it refuses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edges", "settings", "message"),
    [
        (
            "A -> B -> C -> A; A -> Y",
            {},
            r"The edges run in a cycle: A -> B -> C -> A\..*split the node in two by time",
        ),
        ("A -> Y; Y -> Z -> A", {}, "cycle"),
        ("A -> Y", {"sensitive": "B"}, r"'B', named as the sensitive attribute, is not in the graph\. Its nodes: A, Y"),
        ("age -> job", {"sensitive": "Age", "outcome": "job"}, r"Its nodes: age, job\. Did you mean 'age'\?"),
        ("A -> Y", {"outcome": "yy"}, "'yy', named as the outcome, is not in the graph"),
        ("A -> Y", {"latent": ["H"]}, "'H', named as a latent node, is not in the graph"),
        ("A -> Y", {"latent": "AY"}, "'AY', named as a latent node"),
        ("A -> Y", {"columns": {"M": "m"}}, "'M', named as a node with columns, is not in the graph"),
        ("A -> Y", {"outcome": "A"}, "'A' is named as sensitive attribute and as outcome; name two nodes"),
        ("A -> M -> Y", {"latent": ["A"]}, "sensitive attribute 'A' is declared latent; it must be a column"),
        ("A -> M -> Y", {"latent": ["Y"]}, "outcome 'Y' is declared latent"),
        ("A -> Y", {"columns": {"A": ["a", "b"]}}, r"attribute 'A' must stand for one column, .*\['a'.*from_one_hot"),
        ("A -> Y", {"columns": {"Y": ["a", "b"]}}, "outcome 'Y' must stand for one column"),
        ("A -> Y", {"baseline": 1, "contrast": 1}, "baseline and contrast are both 1; they are the two values of 'A'"),
        ("A -> M; Z -> Y", {}, "There is no directed path from 'A' to 'Y', so the sensitive attribute has no effect"),
        ("Y -> A", {}, "There is no directed path from 'A' to 'Y'"),
        ("A -> Y -> {Z V}; A -> V", {}, r"The outcome 'Y' has observed children: Z, V\. A prediction is made before"),
        (
            "A -> M -> Y",
            {"latent": ["M"], "columns": {"M": "m"}},
            "'M' is declared latent and given columns; a latent node has none",
        ),
        ("A -> M -> Y", {"columns": {"M": []}}, "'M' is given no columns. Name at least one, or declare it latent"),
        ("A -> M -> Y", {"columns": {"M": "A"}}, "The column 'A' stands in 'A' and 'M'; a column belongs to one node"),
        ("A -> M -> Y", {"columns": {"M": ["m", "m"]}}, "The column 'm' stands in 'M', twice"),
        ("A <- Y", {}, "Turn the edge around"),
        ([("A", "Y"), "AY"], {}, "is not a .parent, child. pair of names"),
        (None, {}, "no graph can be read from None"),
        ("A -> Y", {"labels": {0: "w", 2: "b"}}, "labels name 2, .* baseline 0 nor the contrast 1"),
        ("A -> Y", {"labels": {0: "w", 1: "w "}}, "labels=.*'w '.* look alike"),
        ("A -> Y", {"labels": {0: "1"}}, "labels=.*look alike"),
        ("A -> Y", {"labels": {0: " "}}, "labels=.*' '"),
        ("A -> Y", {"labels": {0: "a\nb"}}, "texts of one line"),
        ("A -> Y", {"labels": {0: "\udc80"}}, "labels=.*can be written"),
        ("A -> Y", {"labels": {0: 1}}, r"labels\[0\]=1 must be a text"),
    ],
)
def test_refused(edges: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        hiring(edges, **settings)


def test_a_latent_child_of_the_outcome_is_allowed() -> None:
    assert hiring("A -> Y -> H", latent=["H"]).inputs == ("A",)


@pytest.mark.parametrize(
    "ask",
    [
        lambda g: g.parents("m"),
        lambda g: g.children("m"),
        lambda g: g.ancestors("m"),
        lambda g: g.descendants("m"),
        lambda g: g.directed_paths("m", "Y"),
        lambda g: g.directed_paths("A", "m"),
        lambda g: g.with_latent("m"),
        lambda g: g.columns_of(["A", "m"]),
    ],
)
def test_questions_about_unknown_nodes(ask: Any) -> None:
    named = "(node|source of paths|target of paths)"
    with pytest.raises(GraphError, match=rf"'m', named as a {named}, is not in the graph.*Did you mean 'M'\?"):
        ask(hiring())


# --- drawn -----------------------------------------------------------------------------------------------------------


# --- undirected edges ------------------------------------------------------------------------------------------------


def expanded(edges: str, **settings: Any) -> list[str]:
    return list(CausalGraph.expand(edges, sensitive="A", outcome="Y", **settings))


def test_undirected_edges_are_expanded_to_all_graphs() -> None:
    found = CausalGraph.expand("A -> {M L}; M - L; {M L} -> Y", sensitive="A", outcome="Y", columns={"M": ["m1", "m2"]})
    assert {name: ("M", "L") in graph.edges for name, graph in found.items()} == {"M -> L": True, "L -> M": False}
    assert found["M -> L"].columns["M"] == ["m1", "m2"]
    assert expanded("A -> Y") == [""]
    # A cycle, an outcome with children, and no path to the outcome are left out.
    assert expanded("A -> M -> L -> Y; A - L") == ["A -> L"]
    assert expanded("A -> M; M - Y") == ["M -> Y"]
    assert expanded("A - Y") == ["A -> Y"]
    assert len(expanded("A -> {B C D} -> Y; B - C - D")) == 4
    assert len(expanded("A -> {B C D} -> Y; B - C - D; B - D")) == 6
    assert expanded(
        'A -> "work-hours" -> Y; A - "work-hours"; A -> Y'.replace('A -> "work-hours" -> Y', '"work-hours" -> Y')
    ) == ["A -> work-hours", "work-hours -> A"]
    assert expanded("A -> Y; Q -> Y; A - Q", forbidden=[("A", "Q")]) == ["Q -> A"]
    assert len(expanded("A -> Y; {B C} -> Y; A - {B C}")) == 4


@pytest.mark.parametrize(
    ("edges", "settings", "message"),
    [
        ("A -> M - L -> Y", {}, "has directed and undirected edges"),
        ("A -> M; A - M; M -> Y", {}, "A - M is undirected and directed as well"),
        ("A - A; A -> Y", {}, "has an edge to itself"),
        ("A -> Y; Q - A", {"forbidden": [("A", "Q"), ("Q", "A")]}, "forbidden leaves no orientation"),
        ("A -> M; M - L", {}, "'Y', named as the outcome, is not in the graph"),
        ("; ".join(["A -> Y", *(f"V{i} - Y" for i in range(11))]), {}, "There are 11 undirected edges"),
        ([("A", "Y")], {}, "undirected edges are read from an edge string"),
    ],
)
def test_undirected_edges_that_are_refused(edges: Any, settings: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        expanded(edges, **settings)


def test_beside_a_named_baseline_each_other_level_is_the_contrast() -> None:
    def made(**given: Any) -> CausalGraph:
        return CausalGraph("A -> Y", sensitive="A", outcome="Y", **given)

    assert [made().contrast, made(baseline=False).contrast, made(baseline="w", contrast="b").contrast] == [1, 1, "b"]
    each = made(baseline="w")
    assert each.contrast is None
    assert each == made(baseline="w", contrast="b").with_contrast(None)
    assert made(baseline=0, contrast=None).contrast is None
    assert "0 is 'w', 1 is each other level" in str(each)
    assert each.label(0) == "w"
    with pytest.raises(DataError, match="baseline 'w' of 'A' and no contrast"):
        each.label(1)


def test_labels_are_what_reports_call_levels_and_change_nothing_else() -> None:
    plain, labels = hiring(baseline=0, contrast=None), {0: "white", 1: "black", 2: "asian"}
    graph = hiring(baseline=0, contrast=None, labels=labels)
    assert graph == plain
    assert hash(graph) == hash(plain)
    assert graph.labels == labels
    assert [graph.named(each) for each in (0, 2, 3)] == ["white", "asian", 3]
    assert [plain.named(each) for each in (0, 2)] == [0, 2]
    assert (graph.baseline, graph.with_contrast(2).label(1)) == (0, 2)
    assert graph.with_contrast(2).labels == {0: "white", 2: "asian"}
    assert graph.with_latent("D").labels == pickle.loads(pickle.dumps(graph)).labels == labels
    assert hiring(baseline=1, contrast=2, labels={1: "m", 2: "f"}).coded().labels == {0: "m", 1: "f"}
    assert join_nodes(graph, ["A", "Q"], "AQ", "a, q", "b, q").labels == {}
    assert "0 is 'white' (coded 0), 1 is 'asian' (coded 2)" in str(graph.with_contrast(2))
    assert "1 is each other level: 'black' (coded 1), 'asian' (coded 2)" in str(graph)
    assert "'asian' on all paths" in str(graph.with_contrast(2).unfair(direct=True).reversed())
    tiers = CausalGraph.from_tiers([["A"], ["Y"]], sensitive="A", outcome="Y", labels={1: "black"})
    assert tiers.labels == {1: "black"}
