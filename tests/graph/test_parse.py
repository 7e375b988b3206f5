"""The forms in which a graph is written, and the errors that teach them."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pandas as pd
import pytest

from pyrofair import CausalGraph, GraphError
from pyrofair.graph.parse import EdgeList, read_edges, read_path

CHAIN = (("A", "B"), ("B", "C"))
GROUPS = (("A", "D"), ("A", "M"), ("Q", "D"), ("Q", "M"))


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        ("A -> B -> C", CHAIN),
        ("A → B→C", CHAIN),
        ("A -> B; B -> C", CHAIN),
        ("A -> B\nB -> C\n", CHAIN),
        ("A -> B\r\n\r\nB -> C", CHAIN),
        (";; A -> B ;\n; B -> C;", CHAIN),
        ("A ->\n  B\n\n  -> C", CHAIN),
        ("{A Q} -> {D M}", GROUPS),
        ("{A, Q} -> {D,M}", GROUPS),
        ("{A,Q,}->{D M}", GROUPS),
        ("{\n A\n Q\n}\n-> {D\nM}", GROUPS),
        ("{A A} -> B", (("A", "B"),)),
        ('"marital status" -> Y', (("marital status", "Y"),)),
        ('{"native-country" "a -> {b}; c"}->Y', (("native-country", "Y"), ("a -> {b}; c", "Y"))),
        ('"A" -> B; A -> C', (("A", "B"), ("A", "C"))),
        ("größe → 国; día.1 -> _x", (("größe", "国"), ("día.1", "_x"))),
        ("cafe\u0301 -> हिन्दी", (("cafe\u0301", "हिन्दी"),)),
        ("graph.dot -> digraph", (("graph.dot", "digraph"),)),
        ("1 -> 2", (("1", "2"),)),
        ("# A -> D; E\n  # {x}\nA -> B  ->C", CHAIN),
    ],
)
def test_edge_strings(text: str, edges: tuple[tuple[str, str], ...]) -> None:
    assert read_edges(text).edges == edges


def test_nodes_come_in_order_of_first_appearance() -> None:
    read = read_edges("Z; {Q P}; P -> {M A}; A -> Y")
    assert read == EdgeList(nodes=("Z", "Q", "P", "M", "A", "Y"), edges=(("P", "M"), ("P", "A"), ("A", "Y")), latent=())


NO_NODE = "an arrow has no node beside it in the edge string "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A -> D; Y <- D", r"'Y <- D' is neither a name.*\. Turn the edge around: A <- B is written B -> A"),
        ("A ← B", "Turn the edge around"),
        ("A <-> A", "'A' has an edge to itself, A <-> A"),
        ("A <->", NO_NODE),
        ("A -- B", r"'A -- B' is neither a name .*Write an edge from cause to effect, A -> B"),
        ("A ->-> B", NO_NODE + "'A->->B'"),
        ("A ⟶ B", "'A ⟶ B' is neither"),
        ("-> B", NO_NODE + "'->B'"),
        (", A -> B", "', A' is neither"),
        ("A ->", NO_NODE + "'A->'"),
        ("A -> -> B", NO_NODE),
        ("A -> }", "'}' is neither"),
        ("} -> B", r"'}' is neither .*; a group in braces, \{A Q\} -> B"),
        ("{A Q -> Y", "'{A Q' is neither"),
        ("{A; Q} -> Y", "'{A' is neither"),
        ("{A {Q}} -> Y", "'{A {Q}}' is neither"),
        ("{} -> Y", "'{}' is neither"),
        ("A -> { , }", "'{ , }' is neither"),
        ("A B -> C", r"'A B' is neither a name nor a group of names in the edge string 'A B->C'"),
        ("A, B -> C; D", r"'A, B' is neither"),
        ('X -> A "b c" D -> E', r"""'A\s+"b c"\s+D' is neither"""),
        ("X -> A {B C}\nD", r"'A \{B C\}' is neither"),
        ("A B", r"'A B' is neither .*separate statements by ';' or new lines"),
        ("native-country -> Y", r"'native-country' is neither.*\"native-country\" -> B"),
        ("{native-country Q} -> Y", r"'native-country' is neither.*\"native-country\" -> B"),
        ("A -> B(1)", r"'B\(1\)' is neither"),
        ('"marital status -> Y', "'\"marital status' is neither"),
        ('"marital\nstatus" -> Y', "'\"marital' is neither"),
        ('"" -> Y', r"a node is called ''\. Give it a name that is not blank"),
        ("A -> A", "'A' has an edge to itself"),
        ("", "the edge string '' names no node. Pass an edge string"),
    ],
)
def test_edge_strings_refused(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        read_edges(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("digraph { A; A -> B -> C }", EdgeList(("A", "B", "C"), CHAIN)),
        ("strict digraph g { A -> B; A -> B; B -> C; }", EdgeList(("A", "B", "C"), CHAIN)),
        ('  DiGraph "my graph"{A->B B->C}', EdgeList(("A", "B", "C"), CHAIN)),
        ('/* A -- B */ // {\n# C\ndigraph { A -> B [label="--"] B -> C // --\n}\n', EdgeList(("A", "B", "C"), CHAIN)),
        ("digraph { {A Q} -> {D; M} -> Y }", EdgeList(("A", "Q", "D", "M", "Y"), (*GROUPS, ("D", "Y"), ("M", "Y")))),
        ("digraph { A -> {B -> C} }", EdgeList(("A", "B", "C"), (("B", "C"), ("A", "B"), ("A", "C")))),
        ("digraph { subgraph cluster_0 { label=x; A -> B; subgraph { B -> C } } }", EdgeList(("A", "B", "C"), CHAIN)),
        ("digraph { rankdir=LR; graph [x=1]; node [shape=box]; edge [y=2]; Q; A -> B }", "Q A B"),
        ('digraph { "x:1":p:n -> B:s; "a \\"b\\"" -> "node" }', ("x:1", "B", 'a "b"', "node")),
    ],
)
def test_dot_text(text: str, expected: EdgeList | str | tuple[str, ...]) -> None:
    read = read_edges(text)
    if isinstance(expected, EdgeList):
        assert read == expected
    else:
        assert read.nodes == (tuple(expected.split()) if isinstance(expected, str) else expected)


@pytest.mark.parametrize(
    ("text", "latent"),
    [
        ("U [latent=true]; V [latent=1]; W [latent=yes]; X [latent=True]", "U V W X"),
        ('U ["latent"="TRUE" color=red]; V [latent=false]; W [latent=0]; X [latent=no]', "U"),
        ("U; U [latent=true]; V [latent=true]; V [latent=false]", "U"),
        ("U -> A; U [latent=true]", "U"),
        ("A; node [latent=true]; A; U -> A; {node [latent=false] B}; V", "U V"),
        ("subgraph cluster_hidden { node [latent=true]; U V } -> A", "U V"),
        ('U [observed="no"]; V [Observed=FALSE]; W [observed=yes]; X [unobserved]; Y [latent]', "U V X Y"),
    ],
)
def test_dot_latent_nodes(text: str, latent: str) -> None:
    assert read_edges(f"digraph {{ {text} }}").latent == tuple(latent.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph { A -- B }", "the DOT text has edges without direction. Write a digraph"),
        ("digraph { A -- B }", "edges without direction"),
        ("digraph { A -> ", r"(?s)the DOT text is not valid DOT:.*line:1"),
        ("digraph { A -> B } C -> D", "must hold one digraph and nothing else"),
        ("digraph { A -> B } digraph { C -> D }", "must hold one digraph and nothing else"),
        ("digraph { }", "the DOT text names no node"),
        ("digraph { A [latent=maybe] }", "node 'A' has latent=maybe. Write one of true, 1, yes, false, 0, no"),
        ("digraph { A [latent=true, observed=yes] }", "node 'A' is latent and observed: .* latent=true, observed=yes"),
        (f"digraph {'{' * 10} A {'}' * 10}", "more than 9 braces within each other"),
        ("digraph { A -> Q [dir=none] }", "A -> Q .dir=none. has no arrowhead.*CausalGraph.expand"),
        ("digraph { A -> Q [arrowhead=none] }", "A -> Q .arrowhead=none. has no arrowhead"),
        ("digraph { A -> Q [dir=both, arrowtail=odot] }", "arrowtail=odot. has no arrowhead"),
        ("digraph { A -> Q [arrowhead=inv] }", "arrowhead=inv. has no arrowhead"),
        ("digraph { A -> Q [dir=up] }", "A -> Q .dir=up. has an unknown direction.*forward, back, both, none"),
        ("digraph { A -> Q [DIR=Back] }", "A -> Q .DIR=Back. .*lower case: dir=back"),
        ("digraph { A -> Q [style=invis] }", "A -> Q .style=invis. is invisible"),
        ("digraph { edge [dir=none]; B -> {A Q} }", "B -> A .dir=none. has no arrowhead"),
        ("digraph { A -> {} }", "an edge of the DOT graph starts or ends in an empty group"),
        ("digraph { <b> -> C }", "'<b>' is HTML or a keyword of DOT"),
        ("digraph { subgraph z {K}; subgraph z -> Y }", "'subgraph' is HTML or a keyword of DOT"),
        ("digraph { A -> A }", "'A' has an edge to itself"),
    ],
)
def test_dot_text_refused(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(GraphError, match=message):
        read_edges(text)
    assert capsys.readouterr().out == ""


CAUSE = (("U_A_B", "A"), ("U_A_B", "B"))


@pytest.mark.parametrize(
    ("text", "edges", "latent"),
    [
        ("A <-> B", CAUSE, "U_A_B"),
        ("A ↔ B; B <-> A", CAUSE, "U_A_B"),
        ("A <-> B -> C; U_A_B -> A", (("B", "C"), ("U_A_B", "A"), ("U_A_B_", "A"), ("U_A_B_", "B")), "U_A_B_"),
        ("{A B} <-> C", (("U_A_C", "A"), ("U_A_C", "C"), ("U_B_C", "B"), ("U_B_C", "C")), "U_A_C U_B_C"),
        ("digraph { A -> B [dir=both] }", CAUSE, "U_A_B"),
        ('digraph { A <-> B [label="A <- B"]; // A <-> C\n }', CAUSE, "U_A_B"),
        ("digraph { A -> B [arrowtail=vee, dir=both] }", CAUSE, "U_A_B"),
        ("dag { A <-> B }", CAUSE, "U_A_B"),
        ("dag{x->m->y ; x <- u -> y}", (("x", "m"), ("m", "y"), ("u", "x"), ("u", "y")), ""),
        ('dag { u [latent, pos="-1,2"]; u -> {"a b" c} }', (("u", "a b"), ("u", "c")), "u"),
    ],
)
def test_latent_common_causes(text: str, edges: tuple[tuple[str, str], ...], latent: str) -> None:
    read = read_edges(text)
    assert {*read.edges} == {*edges}
    assert read.latent == tuple(latent.split())


DAGITTY = """
dag {
bb="-2,-1,2,3"
"native country" [pos="-1.2,0.4"]
A [exposure,pos="-0.3,1"]
M
Y [outcome,pos="1.1,1"]
A -> M [beta=0.3]
{A M "native country"} -> Y
M <-> Y
}
"""


def test_a_graph_of_dagitty_names_its_roles() -> None:
    graph = CausalGraph(DAGITTY)
    assert (graph.sensitive, graph.outcome, graph.latent) == ("A", "Y", ("U_M_Y",))
    assert graph.parents("Y") == ("native country", "A", "M", "U_M_Y")
    assert CausalGraph(DAGITTY, sensitive="M").sensitive == "M"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dag { A -- B }", "edges without direction"),
        ("dag { S [selected] S -> A }", "'S' is marked as selected"),
        ("dag { A -> B", "not valid DOT"),
    ],
)
def test_what_dagitty_draws_and_no_graph_here_means(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        read_edges(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A -> Y", "sensitive=None, .* no node as exposure"),
        ("dag { A [exposure] B [exposure] Y [outcome] {A B} -> Y }", "marks A, B as exposure.*sensitive='...'"),
        ("dag { A [exposure] A -> Y }", "outcome=None"),
    ],
)
def test_roles_that_nobody_names(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        CausalGraph(text)


TURNED = {
    "A -> Q [dir=back]": (("Q", "A"),),
    'A -> Q ["dir"="back"]': (("Q", "A"),),
    "A:n -> Q:s [label=x] [dir=back]": (("Q", "A"),),
    "A -> Q -> R [dir=back]": (("Q", "A"), ("R", "Q")),
    "A -> {Q R} [dir=back]": (("Q", "A"), ("R", "A")),
    "A -> Q [arrowhead=none, arrowtail=vee, dir=both]": (("Q", "A"),),
    "A -> Q [arrowtail=normal, style=dashed]": (("A", "Q"),),
    "EDGE [dir=back]; A -> Q; edge [dir=forward]; R -> S": (("Q", "A"), ("R", "S")),
    "subgraph s { edge [dir=back]; A -> Q }; R -> S": (("Q", "A"), ("R", "S")),
    "edge [dir=back]; { A -> Q } R -> S": (("Q", "A"), ("S", "R")),
    "dir=back; graph [dir=back]; A -> Q": (("A", "Q"),),
}


@pytest.mark.parametrize("text", TURNED)
def test_dot_edges_have_the_direction_in_which_they_are_drawn(text: str) -> None:
    assert read_edges(f"digraph {{ {text} }}").edges == TURNED[text]


@pytest.mark.parametrize("suffix", [".dot", ".gv", ".DOT"])
def test_dot_files(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"graph{suffix}"
    file.write_text("\ufeffdigraph { U [latent=true]; U -> é }\n", encoding="utf-8")
    expected = EdgeList(("U", "é"), (("U", "é"),), ("U",))
    assert read_edges(file) == read_edges(str(file)) == expected


def test_dot_files_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"the graph file 'missing\.dot' cannot be read from .*No such file"):
        read_edges("missing.dot")
    with pytest.raises(GraphError, match=r"missing\.gv"):
        read_edges(tmp_path / "missing.gv")
    with pytest.raises(GraphError, match=r"graph\.txt' does not end in \.dot or \.gv"):
        read_edges(tmp_path / "graph.txt")
    file = tmp_path / "graph.dot"
    file.write_bytes(b"digraph { \xff }")
    with pytest.raises(GraphError, match="utf-8"):
        read_edges(file)
    file.write_text("A -> B")
    with pytest.raises(GraphError, match=r"graph\.dot' is not valid DOT"):
        read_edges(file)


def test_networkx_graphs() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph([("B", "C"), ("A", "B")])
    graph.add_node("U", latent=True)
    graph.add_node("V", observed="yes")
    assert read_edges(graph) == EdgeList(("B", "C", "A", "U", "V"), (("B", "C"), ("A", "B")), ("U",))
    graph.edges["A", "B"]["dir"] = "back"
    assert read_edges(graph).edges == (("B", "C"), ("B", "A"))


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (nx.Graph([("A", "B")]), r"a causal graph is a networkx\.DiGraph, and this is a Graph"),
        (nx.MultiDiGraph([("A", "B")]), "this is a MultiDiGraph"),
        (nx.DiGraph([("A", 1)]), r"node 1 of the networkx graph is not a str.*relabel_nodes"),
        (nx.DiGraph([("A", "A")]), "'A' has an edge to itself"),
        (nx.DiGraph(), "the networkx graph names no node"),
        (nx.DiGraph([("A", "B", {"arrowhead": "none"})]), "A -> B .arrowhead=none. has no arrowhead"),
    ],
)
def test_networkx_graphs_refused(graph: nx.DiGraph[str], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        read_edges(graph)


def test_pairs() -> None:
    expected = EdgeList(("A", "B", "C"), CHAIN)
    assert read_edges([("A", "B"), ("B", "C"), ("A", "B")]) == expected
    assert read_edges(iter(CHAIN)) == expected
    assert read_edges([["A", "B"], ["B", "C"]]) == expected  # type: ignore[list-item]
    assert read_edges({("B", "C"), ("A", "B")}) == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (["A -> B"], r"'A -> B' is not a \(parent, child\) pair of names\. Pass an edge string"),
        ([("A", "B"), ("A", "B", "C")], r"\('A', 'B', 'C'\) is not a"),
        ([("A", 1)], r"\('A', 1\) is not a"),
        ({("A", "B"): 0}, "of type dict"),
        (pd.DataFrame(0, ["A", "B"], ["A", "B"]), "of type DataFrame"),
        ([("A", " ")], "a node is called ' '"),
        ([("A", "A")], "'A' has an edge to itself"),
        ([], "names no node"),
        (3, "no graph can be read from 3, of type int"),
        (None, "of type NoneType"),
        (b"A -> B", "of type bytes"),
    ],
)
def test_pairs_refused(source: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        read_edges(source)


@pytest.mark.parametrize("path", ["A -> D -> Y", "A→D->\nY", " \nA -> D -> Y;", ["A", "D", "Y"], ("A", "D", "Y")])
def test_paths(path: str | list[str]) -> None:
    assert read_path(path) == ("A", "D", "Y")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("A -> {D M} -> Y", "is not one path through single nodes. Write one, 'A -> D -> Y', a string each"),
        ("A -> Y; A -> D", "is not one path"),
        ("", "'' is not one path"),
        ("A", "a path has at least two nodes, and 'A' has 1"),
        (["A"], r"\['A'\] has 1"),
        ("A -> D -> A", "meets 'A' twice"),
        ("A <- D", "Turn the edge around"),
        ("A D", "'A D' is neither a name nor a group"),
        ([("A", "D"), ("D", "Y")], r"\[\('A', 'D'\), \('D', 'Y'\)\] is not a path"),
        (3, "3 is not a path. Write it as 'A -> D -> Y' or as a sequence of names"),
    ],
)
def test_paths_refused(path: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        read_path(path)
