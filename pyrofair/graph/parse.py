"""Graphs as they are written: edge strings, DOT, networkx graphs or pairs, all read into one :class:`EdgeList`."""

from __future__ import annotations

import contextlib
import io
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate, pairwise, product
from pathlib import Path
from typing import Any, TypeAlias

import networkx as nx

from pyrofair._validation import listed, require_path, shown
from pyrofair.exceptions import GraphError

__all__ = ["EdgeList", "GraphSource", "read_edges", "read_path", "read_undirected", "write_edges"]

GraphSource: TypeAlias = "str | os.PathLike[str] | nx.DiGraph[str] | Iterable[tuple[str, str]]"
"""What `read_edges` reads."""

_FORMS = "an edge string 'A -> D; D -> Y', a .dot or .gv file, a networkx.DiGraph, or a list of (parent, child) pairs"
# A bare name starts with anything but a dot and holds no ASCII punctuation but "_" and ".", no arrow, no typographic
# dash or quote and no invisible mark: these are typing accidents far more often than names, and quotes let them in.
_NAME = re.compile(
    r"(?!\.)(?:[\w.]|[^\x00-\x7f\s\u200b\u200e-\u206f\u2190-\u21ff\u2212\u27f0-\u27ff\u2900-\u297f\ufeff])+"
)
_BACKWARDS = "Turn the edge around: A <- B is written B -> A."
_BOTH_WAYS = "A <-> B is a latent common cause of two nodes, and no step of a path."
_HINTS = {"<->": _BOTH_WAYS, "↔": _BOTH_WAYS, "<-": _BACKWARDS, "←": _BACKWARDS}
_SYNTAX = (
    "Write an edge from cause to effect, A -> B; a group in braces, {A Q} -> B; a name with spaces or punctuation in "
    "double quotes, \"native-country\" -> B; and separate statements by ';' or new lines."
)
_DOT_QUOTED_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|/\*.*?(?:\*/|\Z)|(?://|\#)[^\n]*', re.DOTALL)
_COMMENT = re.compile(r"^[^\S\n]*#.*$", re.MULTILINE)
_DOT_START = re.compile(r'\s*+((strict\s++)?(di)?graph|dag)\s*+("[^"]*"|[\w.]+)?\s*+\{', re.IGNORECASE)
_SIDE = r'(?:"(?:\\.|[^"\\])*"|\{[^{}]*\}|[^\s{}\[\];,"<>=-]+)'
_ARROW = r"(<->|<-|->|--)"
_CHAIN = re.compile(rf'({_SIDE})((?:\s*{_ARROW}\s*{_SIDE})+)(?:\s*(\[[^\]]*\]))?|"(?:\\.|[^"\\])*"|\[[^\]]*\]')
"""A chain of arrows with its attributes; or a text or attributes of something else, which may hold what looks like one.
"""
_DOT_NOT_NODES = ("node", "edge", "graph", r"\n", r'"\n"', r"\r\n", r'"\r\n"')  # defaults, and artefacts of pydot
MOST_NESTED = 9
"""How deep braces may stand within each other: pydot takes twice as long for each."""
_YES, _NO = ("true", "1", "yes"), ("false", "0", "no")
_HIDES = {"latent": True, "unobserved": True, "observed": False}
"""The attributes by which a node is latent or not, each with whether it is if the attribute is true."""
_ENDS = {"forward": ("head",), "back": ("tail",), "both": ("tail", "head"), "none": ()}
"""At which ends an edge of DOT has a mark, by its attribute ``dir``."""
_EDGE_WORDS = ("dir", "arrowhead", "arrowtail", "style")


@dataclass(frozen=True)
class EdgeList:
    """The nodes and directed edges of a graph, in the order in which its source names them.

    Each edge (parent, child) stands once; ``latent`` are the nodes that the source itself marks as latent, or draws as
    ``<->``; ``exposures`` and ``outcomes`` those that it marks by these words.
    """

    nodes: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    latent: tuple[str, ...] = ()
    exposures: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()


def read_edges(source: GraphSource) -> EdgeList:
    """Read the nodes and edges of a directed graph from any of the forms in which one is written.

    * An edge string: statements separated by ``;`` or newlines, each a chain ``A -> B -> C`` whose links are names or
      groups ``{A Q}``. ``→`` reads like ``->``; a name with spaces or punctuation stands in double quotes; a name or
      group alone declares nodes without edges. ``A <-> B`` is a latent common cause of both, a node named ``U_A_B``.
      Lines that begin with ``#`` are comments. The text of a :class:`CausalGraph` is one.
    * DOT text that starts with ``digraph``, that of dagitty, ``dag { ... }``, or a path that ends in ``.dot`` or
      ``.gv`` (a string that holds an arrow is never a path). The node attribute ``latent=true`` marks a latent node, as
      ``observed=no`` does, ``exposure`` and ``outcome`` are told, and the edge attribute ``dir=back`` turns an edge
      round; ``dir=both`` is ``<->``. An edge drawn without an arrowhead is refused.
    * A ``networkx.DiGraph`` with names as nodes, and the same attributes.
    * An iterable of (parent, child) pairs of names. A set has no order, so it is read in sorted order.

    What cannot be read, is not directed, or has an edge from a node to itself is a GraphError. Cycles pass.

    Examples
    --------
    >>> read_edges("A -> D; {A D} -> Y").edges
    (('A', 'D'), ('A', 'Y'), ('D', 'Y'))
    >>> read_edges("digraph { U [latent=true]; U -> {D Y} }")
    EdgeList(nodes=('U', 'D', 'Y'), edges=(('U', 'D'), ('U', 'Y')), latent=('U',), exposures=(), outcomes=())
    >>> read_edges("dag { A [exposure,pos='0,1'] Y [outcome] A -> Y; A <-> Y }".replace("'", '"')).nodes
    ('A', 'Y', 'U_A_Y')
    """
    if isinstance(source, nx.Graph):
        return _from_networkx(source)
    if isinstance(source, os.PathLike):
        return _from_file(source)
    if isinstance(source, str):
        if _DOT_START.match(_DOT_QUOTED_OR_COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else " ", source)):
            return _from_dot(source, "the DOT text")
        if not any(mark in source for mark in ("->", "→", "\n")) and source.strip().lower().endswith((".dot", ".gv")):
            return _from_file(source.strip())
        draft = _Draft()
        draft.read(source, ("<->",))
        return draft.finish(f"the edge string {source!r}")
    no_pairs = isinstance(source, bytes) or (isinstance(source, Mapping) and not isinstance(source, Set))
    if no_pairs or hasattr(source, "columns") or (pairs := listed(source)) is None:
        raise GraphError(f"no graph can be read from {shown(source)}, of type {type(source).__name__}. Pass {_FORMS}.")
    return _from_pairs(pairs, ordered=not isinstance(source, Set))


def read_path(path: str | Sequence[str]) -> tuple[str, ...]:
    """Read one directed path of at least two different nodes, written ``"A -> D -> Y"`` or as a sequence of names."""
    if isinstance(path, str):
        statements = [sides for sides, *_ in _statements(path)]
        if len(statements) != 1 or any(len(side) > 1 for side in statements[0]):
            raise GraphError(f"{path!r} is not one path through single nodes. Write one, 'A -> D -> Y', a string each.")
        names = tuple(name for (name,) in statements[0])
    elif isinstance(path, Sequence) and all(isinstance(name, str) for name in path):
        names = tuple(path)
    else:
        raise GraphError(f"{path!r} is not a path. Write it as 'A -> D -> Y' or as a sequence of names.")
    if len(names) < 2:
        raise GraphError(f"a path has at least two nodes, and {path!r} has {len(names)}. Write it as 'A -> D -> Y'.")
    if twice := [name for position, name in enumerate(names) if name in names[:position]]:
        raise GraphError(f"the path {path!r} meets {twice[0]!r} twice; a directed path meets each node once.")
    return names


def write_edges(parents: Sequence[str], child: str) -> str:
    """Return a statement of an edge string: the edges from all parents of a node, or the node alone.

    >>> write_edges(["A", "native-country"], "Y")
    '{A "native-country"} -> Y'
    """
    *names, own = (name if _NAME.fullmatch(name) else f'"{name}"' for name in (*parents, child))
    left = f"{{{' '.join(names)}}}" if len(names) > 1 else "".join(names)
    return f"{left} -> {own}" if names else own


def read_undirected(text: str) -> tuple[EdgeList, tuple[tuple[str, str], ...]]:
    """Read an edge string in which some statements are undirected, ``A - B``: the edges, and the undirected ones.

    >>> read_undirected("A -> M; M - L; {M L} -> Y")[1]
    (('M', 'L'),)
    """
    if not isinstance(text, str):
        raise GraphError(f"undirected edges are read from an edge string such as 'A -> M; M - L', not {shown(text)}.")
    draft = _Draft()
    draft.read(text, ("<->", "-"))
    listed, undirected = draft.finish(f"the edge string {text!r}"), draft.links["-"]
    if known := [pair for pair in undirected if pair in listed.edges or pair[::-1] in listed.edges]:
        raise GraphError(f"{known[0][0]} - {known[0][1]} is undirected and directed as well. Keep one of the two.")
    return listed, tuple(undirected)


class _Draft:
    """A graph being read: dictionaries serve as ordered sets, so that first appearance decides the order."""

    def __init__(self) -> None:
        self.latent: dict[str, bool] = {}
        self.edges: dict[tuple[str, str], None] = {}
        self.links: dict[str, dict[tuple[str, str], None]] = {"<->": {}, "-": {}}
        self.marked: dict[str, list[str]] = {"exposure": [], "outcome": []}

    def add(self, *sides: Iterable[str]) -> None:
        """Declare the nodes of all sides, and the edges from each side to the next."""
        for name in (name for side in sides for name in side):
            if not name.strip():
                raise GraphError(f"a node is called {name!r}. Give it a name that is not blank.")
            self.latent.setdefault(name, False)
        for edge in (edge for left, right in pairwise(sides) for edge in product(left, right)):
            if edge[0] == edge[1]:
                raise GraphError(f"{edge[0]!r} has an edge to itself, and no cause is its own effect. Remove the edge.")
            self.edges.setdefault(edge)

    def read(self, text: str, marks: Sequence[str]) -> None:
        """Take over the statements of an edge string, whose links besides ``->`` are some marks."""
        for sides, mark, right in _statements(text, marks):
            self.add(*sides)
            if mark:
                self.link(mark, sides[-1], right)

    def link(self, mark: str, left: Iterable[str], right: Iterable[str]) -> None:
        """Link each two nodes of both sides by ``<->``, a latent common cause, or ``-``, an edge of any direction."""
        for one, other in product(left, right):
            if one == other:
                raise GraphError(f"{one!r} has an edge to itself, {one} {mark} {one}. Remove it.")
            self.add([one, other])
            if (other, one) not in self.links[mark]:
                self.links[mark][one, other] = None

    def mark(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Take over whether the attributes of a node say that it is latent, the exposure or the outcome."""
        told = {str(key).lower(): str(value).strip('"').lower() for key, value in attributes.items()}
        if told.get("selected") in _YES:
            raise GraphError(
                f"node {name!r} is marked as selected: rows are in the table because of it, which no estimate here "
                "corrects. Take the mark away if the rows are those that you ask about."
            )
        for word, nodes in self.marked.items():
            nodes += [name] if told.get(word) in _YES and name not in nodes else []
        said = {word: told[word] for word in _HIDES if word in told}
        shown = ", ".join(f"{word}={value}" for word, value in said.items())
        if not {*said.values()} <= {*_YES, *_NO}:
            raise GraphError(f"node {name!r} has {shown}. Write one of {', '.join(_YES + _NO)}.")
        if len(hidden := {(value in _YES) == _HIDES[word] for word, value in said.items()}) > 1:
            raise GraphError(f"node {name!r} is latent and observed: it has {shown}. Keep one of them.")
        self.latent[name] = next(iter(hidden), self.latent[name])

    def join(self, sides: Sequence[Sequence[str]], attributes: Mapping[str, Any]) -> None:
        """Declare the edges of a chain in the direction that their attributes give them."""
        for left, right in pairwise(sides):
            if left and right:
                ends = _arrowheads(f"{left[0]} -> {right[0]}", attributes)
                if ends == (True, True):
                    self.link("<->", left, right)
                else:
                    self.add(*((right, left) if ends[0] else (left, right)))

    def finish(self, what: str) -> EdgeList:
        if not self.latent:
            raise GraphError(f"{what} names no node. Pass {_FORMS}.")
        for one, other in self.links["<->"]:
            name = f"U_{one}_{other}"
            while name in self.latent:
                name += "_"
            self.latent[name] = True
            self.add([name], [one, other])
        latent = tuple(name for name, hidden in self.latent.items() if hidden)
        return EdgeList(tuple(self.latent), tuple(self.edges), latent, *map(tuple, self.marked.values()))


def _arrowheads(edge: str, attributes: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether an edge has an arrowhead at its tail, and at its head; one without any is a GraphError."""
    said = {str(word): str(value).strip('"') for word, value in attributes.items() if str(word).lower() in _EDGE_WORDS}
    what = f"the edge {edge} ({', '.join(f'{word}={value}' for word, value in said.items())})"
    if other := next((word for word in said if word not in _EDGE_WORDS), None):
        lower = f"{other}={said[other]}".lower()
        raise GraphError(f"{what} has an attribute that DOT writes in lower case: {lower}.")
    if (ends := _ENDS.get(said.get("dir", "forward"))) is None:
        raise GraphError(f"{what} has an unknown direction. Write dir={', '.join(_ENDS)}.")
    if "invis" in said.get("style", ""):
        raise GraphError(f"{what} is invisible. Leave it out, or draw it if it is an effect.")
    tail, head = (said.get(f"arrow{end}", "normal") if end in ends else "none" for end in ("tail", "head"))
    drawn = [mark for mark in (tail, head) if mark != "none"]
    if not drawn or any(re.search("none|inv|dot", mark) for mark in drawn):
        raise GraphError(
            f"{what} has no arrowhead, so its direction is not known. Draw it from cause to effect, or try both "
            "directions: CausalGraph.expand('A - B; ...')."
        )
    return tail != "none", head != "none"


def _statements(text: str, marks: Sequence[str] = ()) -> Iterator[tuple[list[list[str]], str, list[str]]]:
    """Parse an edge string into chains (lists of sides, names between arrows), the mark that follows, and its side."""
    quoted: list[str] = []

    def hide(found: re.Match[str]) -> str:
        quoted.append(found[1])
        return f' "{len(quoted) - 1}" '  # a number in quotes stands for the quoted name

    def written(piece: str) -> str:
        return re.sub(r'"(\d+)"', lambda number: f'"{quoted[int(number[1])]}"', piece.strip())

    def name(word: str, statement: str) -> str:
        if number := re.fullmatch(r'"(\d+)"', word):
            return quoted[int(number[1])]
        if _NAME.fullmatch(word):
            return word
        fact = f"{written(word)!r} is neither a name nor a group of names" if word else "an arrow has no node beside it"
        hint = next((hint for mark, hint in _HINTS.items() if mark in statement), _SYNTAX)
        raise GraphError(f"{fact} in the edge string {written(statement)!r}. {hint}")

    def side_of(text: str, statement: str) -> list[str]:
        group = re.fullmatch(r"\{([^{}]*)\}", text.strip())
        words = [word for word in re.split(r"[\s,]+", group[1]) if word] if group else []
        return [name(word, statement) for word in words or [text.strip()]]

    plain = re.sub(r'"([^"\n]*)"', hide, _COMMENT.sub("", text))
    plain = re.sub(r"\s*(<->|↔|->|→)\s*", lambda arrow: arrow[1].replace("→", "->").replace("↔", "<->"), plain)
    plain = re.sub(r"\{[^{};]*\}", lambda group: group[0].replace("\n", " "), plain)
    arrows = re.compile(f"({'|'.join(sorted((*marks, '->'), key=len, reverse=True))})")
    for statement in filter(str.strip, re.split("[;\n]", plain)):
        first, *rest = arrows.split(statement)
        if "-" in rest and {"-"} != {*rest[::2]}:  # native-country -> Y is no undirected edge
            raise GraphError(
                f"{written(statement)!r} has directed and undirected edges. Write each in a statement of its own, "
                "'A -> M; M - L', and a name with a dash in double quotes."
            )
        chain = [side_of(first, statement)]
        for mark, text in zip(rest[::2], rest[1::2], strict=True):
            side = side_of(text, statement)
            if mark != "->":
                yield chain, mark, side
                chain = []
            chain.append(side)
        yield chain, "", []


def _from_pairs(pairs: Sequence[Any], *, ordered: bool) -> EdgeList:
    draft = _Draft()
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
            raise GraphError(f"{shown(pair)} is not a (parent, child) pair of names. Pass {_FORMS}.")
    for parent, child in pairs if ordered else sorted(pairs):
        draft.add([parent], [child])
    return draft.finish(f"the list {list(pairs)!r}")


def _from_networkx(graph: nx.Graph[Any]) -> EdgeList:
    if not graph.is_directed() or graph.is_multigraph():
        raise GraphError(f"a causal graph is a networkx.DiGraph, and this is a {type(graph).__name__}. Convert it.")
    draft = _Draft()
    for name, attributes in graph.nodes(data=True):
        if not isinstance(name, str):
            raise GraphError(f"node {name!r} of the networkx graph is not a str. Rename it: networkx.relabel_nodes.")
        draft.add([name])
        draft.mark(name, attributes)
    for parent, child, attributes in graph.edges(data=True):
        draft.join([[parent], [child]], attributes)
    return draft.finish("the networkx graph")


def _from_file(file: str | os.PathLike[str]) -> EdgeList:
    path = require_path("edges", file, "the path of a graph", error=GraphError)
    if path.suffix.lower() not in (".dot", ".gv"):
        raise GraphError(f"the graph file {str(path)!r} does not end in .dot or .gv. Pass {_FORMS}.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise GraphError(f"the graph file {str(path)!r} cannot be read from {Path.cwd()}: {error}.") from error
    return _from_dot(text, f"the graph file {str(path)!r}")


def _from_dot(text: str, what: str) -> EdgeList:
    with warnings.catch_warnings():
        # pydot 4.0 builds its grammar, when it is first imported, in ways that pyparsing 3.3 deprecates.
        warnings.simplefilter("ignore")
        import pydot.dot_parser
    plain = _DOT_QUOTED_OR_COMMENT.sub(" ", text)
    if "<-" in plain or plain.lstrip()[:3].lower() == "dag":
        text = _as_dot(text)
        plain = _DOT_QUOTED_OR_COMMENT.sub(" ", text)
    if max(accumulate((mark == "{") - (mark == "}") for mark in plain), default=0) > MOST_NESTED:
        raise GraphError(f"{what} has more than {MOST_NESTED} braces within each other. Write subgraphs side by side.")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):  # pydot prints its syntax errors
        # It drops what follows the last graph that it can read; one more at the end shows that it read all.
        graphs = pydot.graph_from_dot_data(f"{text}\ndigraph {{}}") or pydot.graph_from_dot_data(text)
    if not graphs:
        raise GraphError(f"{what} is not valid DOT:\n{printed.getvalue().rstrip()}")
    if len(graphs) != 2:
        raise GraphError(f"{what} must hold one digraph and nothing else. Check what follows its last brace.")
    if graphs[0].get_type() != "digraph" or "--" in plain:
        raise GraphError(f"{what} has edges without direction. Write a digraph, with '->' from cause to effect.")
    draft = _Draft()
    _walk_dot(graphs[0].obj_dict, draft, {"node": {}, "edge": {}})
    return draft.finish(what)


def _as_dot(text: str) -> str:
    """Return a graph of dagitty, or DOT with arrows of dagitty, as DOT: each arrow points right or has a ``dir``.

    >>> _as_dot("dag { A <- U -> Y A <-> Y }")
    'digraph { A -> U [dir=back]; U -> Y [] A -> Y [dir=both] }'
    """
    turned = {"<->": "dir=both", "<-": "dir=back"}

    def pairs(found: re.Match[str]) -> str:
        if found[2] is None:
            return found[0]
        left, own, edges = found[1], (found[4] or "[]")[1:-1].strip(), []
        for arrow, right in re.findall(rf"{_ARROW}\s*({_SIDE})", found[2]):
            marks = ", ".join(filter(None, (turned.get(arrow), own)))
            edges.append(f"{left} {'--' if arrow == '--' else '->'} {right} [{marks}]")
            left = right
        return "; ".join(edges)

    text = _DOT_QUOTED_OR_COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else " ", text)
    return re.sub(r"^\s*dag\b", "digraph", _CHAIN.sub(pairs, text), flags=re.IGNORECASE)


def _walk_dot(graph: Mapping[str, Any], draft: _Draft, defaults: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Read a (sub)graph of pydot statement by statement, and return the nodes that it names.

    ``networkx.nx_pydot`` drops subgraphs, default attributes and the order of statements. ``defaults`` are those of
    nodes and edges so far, which end with the subgraph that sets them.
    """
    named, defaults = list[str](), dict(defaults)
    statements = [one for part in ("nodes", "edges", "subgraphs") for many in graph[part].values() for one in many]
    for statement in sorted(statements, key=lambda one: one["sequence"]):
        given = statement["attributes"].items()  # without a value, as in U [latent], one is true
        attributes = {key.strip('"'): "true" if value is None else value for key, value in given}
        if statement["type"] == "node" and statement["name"] in _DOT_NOT_NODES:
            if statement["name"] in defaults:
                defaults[statement["name"]] = {**defaults[statement["name"]], **attributes}
            continue
        sides: list[list[str]] = []
        for point in statement["points"] if statement["type"] == "edge" else [statement]:
            if isinstance(point, Mapping) and point["type"] == "subgraph":
                sides.append(_walk_dot(point, draft, defaults))
                continue
            name = _dot_name(point if isinstance(point, str) else point["name"])
            if name not in draft.latent:
                draft.add([name])
                draft.mark(name, defaults["node"])
            sides.append([name])
        if len(sides) > 1 and not all(sides):
            raise GraphError("an edge of the DOT graph starts or ends in an empty group. Name nodes in its braces.")
        draft.join(sides, {**defaults["edge"], **attributes})
        if statement["type"] == "node":
            draft.mark(sides[0][0], attributes)
        named += [name for side in sides for name in side]
    return named


def _dot_name(written: str) -> str:
    """Turn an identifier of DOT, with its quotes and port, into the name of a node."""
    if quoted := re.match(r'"((?:\\.|[^"\\])*)"', written, re.DOTALL):
        return quoted[1].replace('\\"', '"')
    name = written.split(":")[0]
    if name.startswith("<") or name.lower() in (*_DOT_NOT_NODES, "digraph", "subgraph", "strict"):
        raise GraphError(
            f"{name!r} is HTML or a keyword of DOT, not a node. Put a node's name in double quotes, and write the "
            "nodes of a subgraph in braces wherever an edge uses it."
        )
    return name
