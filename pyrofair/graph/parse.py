"""How is a graph written down? As edge strings, DOT, networkx graphs or pairs, all read into one `EdgeList`."""

from __future__ import annotations

import contextlib
import io
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias

import networkx as nx

from pyrofair._validation import listed, shown
from pyrofair.exceptions import GraphError

__all__ = ["EdgeList", "GraphSource", "read_edges", "read_path"]

GraphSource: TypeAlias = "str | os.PathLike[str] | nx.DiGraph[str] | Iterable[tuple[str, str]]"
"""What `read_edges` reads."""

_FORMS = "an edge string 'A -> D; D -> Y', a .dot or .gv file, a networkx.DiGraph, or a list of (parent, child) pairs"
_ARROWS = ("->", "→")
_WRITE_EDGE = "Write an edge from cause to effect, A -> B."
_WRITE_GROUP = "Write a group as {A Q} -> Y."
_BACKWARDS = ("the arrow points backwards", "Turn the edge around: A <- B is written B -> A.")
_BOTH_WAYS = (
    "an arrow both ways stands for a hidden common cause, and here that is a node of its own",
    'Declare a latent node: U -> A; U -> B with latent=["U"].',
)
_OTHER_LINKS = {
    "<-": _BACKWARDS,
    "←": _BACKWARDS,
    "<->": _BOTH_WAYS,
    "↔": _BOTH_WAYS,
    "--": ("'--' has no direction", _WRITE_EDGE),
}
# A bare name starts with anything but a dot and holds no ASCII punctuation but "_" and ".", no arrow, no typographic
# dash or quote and no invisible mark: these are typing accidents far more often than names, and quotes let them in.
_TOKEN = re.compile(
    r"""
      (?P<newline>\n)
    | (?P<space>\s+?)
    | (?P<link>[-<>=~]{2,} | [\u2190-\u21ff\u27f0-\u27ff\u2900-\u297f])
    | (?P<mark>[{};,])
    | "(?P<quoted>[^"\n]*)"
    | (?P<name>(?!\.)(?:[\w.] | [^\x00-\x7f\s\u200b\u200e-\u206f\u2190-\u21ff\u2212\u27f0-\u27ff\u2900-\u297f\ufeff])+)
    """,
    re.VERBOSE,
)
# The grammar of statements, over the kinds of the tokens.
_SIDE = re.compile(r"n|\{[n,\n]*n[n,\n]*\}")
_CHAIN = re.compile(rf"(?:{_SIDE.pattern})(?:\n*>\n*(?:{_SIDE.pattern}))*")
_END = re.compile(r";|\n(?!\n*>)|$")
_DOT_QUOTED_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|/\*.*?\*/|(?://|\#)[^\n]*', re.DOTALL)
_DOT_START = re.compile(r'\s*(strict\s+)?(di)?graph\s*("[^"]*"|[\w.]+)?\s*\{', re.IGNORECASE)
_DOT_NOT_NODES = ("node", "edge", "graph", r"\n", r'"\n"', r"\r\n", r'"\r\n"')  # defaults, and artefacts of pydot
_YES, _NO = ("true", "1", "yes"), ("false", "0", "no")


@dataclass(frozen=True)
class EdgeList:
    """The nodes and directed edges of a graph, in the order in which its source names them.

    Parameters
    ----------
    nodes
        Names, in order of first appearance.
    edges
        Pairs (parent, child), each once.
    latent
        The nodes that the source itself marks as latent.
    """

    nodes: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    latent: tuple[str, ...] = ()


def read_edges(source: GraphSource) -> EdgeList:
    """Read the nodes and edges of a directed graph from any of the forms in which one is written.

    Parameters
    ----------
    source
        One of

        * an edge string: statements separated by ``;`` or newlines, each a chain ``A -> B -> C`` whose links are names
          or groups ``{A Q}``. ``→`` reads like ``->``; a name with spaces or punctuation stands in double quotes; a
          name or group alone declares nodes without edges;
        * DOT text that starts with ``digraph``, or a path that ends in ``.dot`` or ``.gv`` (a string that holds an
          arrow is never a path). The node attribute ``latent=true`` marks a latent node;
        * a ``networkx.DiGraph`` with names as nodes; the node attribute ``latent=True`` marks a latent node;
        * an iterable of (parent, child) pairs of names. A set has no order, so it is read in sorted order.

    Returns
    -------
    EdgeList

    Raises
    ------
    GraphError
        When the source cannot be read, is not directed, or has an edge from a node to itself. Cycles pass.

    Examples
    --------
    >>> read_edges("A -> D; {A D} -> Y").edges
    (('A', 'D'), ('A', 'Y'), ('D', 'Y'))
    >>> read_edges("digraph { U [latent=true]; U -> {D Y} }")
    EdgeList(nodes=('U', 'D', 'Y'), edges=(('U', 'D'), ('U', 'Y')), latent=('U',))
    """
    if isinstance(source, nx.Graph):
        return _from_networkx(source)
    if isinstance(source, os.PathLike):
        return _from_file(Path(source))
    if isinstance(source, str):
        if _DOT_START.match(_DOT_QUOTED_OR_COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else " ", source)):
            return _from_dot(source, "the DOT text")
        if not any(mark in source for mark in (*_ARROWS, "\n")) and source.strip().lower().endswith((".dot", ".gv")):
            return _from_file(Path(source.strip()))
        return _from_string(source)
    if isinstance(source, bytes) or (pairs := listed(source)) is None:
        raise GraphError(f"no graph can be read from {shown(source)}, of type {type(source).__name__}. Pass {_FORMS}.")
    return _from_pairs(pairs, ordered=not isinstance(source, Set))


def read_path(path: str | Sequence[str]) -> tuple[str, ...]:
    """Read one directed path, written as ``"A -> D -> Y"`` or as a sequence of names.

    Parameters
    ----------
    path
        At least two different names, from the first node of the path to the last.

    Returns
    -------
    tuple of str
        The nodes along the path.

    Raises
    ------
    GraphError
        When this is not one path, or when the path meets a node twice.

    Examples
    --------
    >>> read_path("A -> D -> Y")
    ('A', 'D', 'Y')
    """
    if isinstance(path, str):
        statements = list(_statements(path))
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


class _Draft:
    """A graph being read: dictionaries serve as ordered sets, so that first appearance decides the order."""

    def __init__(self) -> None:
        self.latent: dict[str, bool] = {}
        self.edges: dict[tuple[str, str], None] = {}

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

    def mark(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Take over the attribute ``latent`` of a node."""
        if "latent" in attributes:
            value = attributes["latent"]
            word = str(value).strip('"').lower()
            if word not in (*_YES, *_NO):
                raise GraphError(f"node {name!r} has latent={value!r}. Write one of {', '.join(_YES + _NO)}.")
            self.latent[name] = word in _YES

    def finish(self, what: str) -> EdgeList:
        if not self.latent:
            raise GraphError(f"{what} names no node. Pass {_FORMS}.")
        latent = tuple(name for name, hidden in self.latent.items() if hidden)
        return EdgeList(tuple(self.latent), tuple(self.edges), latent)


class _Token(NamedTuple):
    kind: str  # one of the letters that _SIDE, _CHAIN and _END are written in: n (name) > { } , ; and newline
    text: str
    name: str
    start: int


def _refuse(text: str, token: _Token, problem: str, remedy: str) -> NoReturn:
    """Raise the error that shows the line of the token with a caret below it."""
    begin = text.rfind("\n", 0, token.start) + 1
    line, column = text[begin:].split("\n", 1)[0], token.start - begin
    where = f"line {text.count(chr(10), 0, begin) + 1}, column {column + 1}"
    raise GraphError(f"{where}: {problem}. {remedy}\n    {line}\n    {' ' * column}{'^' * len(token.text)}")


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            bad = _Token("", text[position], "", position)
            if bad.text == '"':
                _refuse(text, bad, "this quote is not closed", 'Write a name on one line, as in "marital status" -> Y.')
            remedy = 'Write an edge as A -> B, and a name with punctuation in double quotes, "native-country" -> Y.'
            _refuse(text, bad, f"{bad.text!r} cannot be read outside double quotes", remedy)
        name = found["quoted"] if found["name"] is None else found["name"]
        kind = "n" if name is not None else ">" if found["link"] else found[0]
        token = _Token(kind, found[0], name or "", position)
        if found["link"] and token.text not in _ARROWS:
            _refuse(text, token, *_OTHER_LINKS.get(token.text, (f"{token.text!r} is not an arrow", _WRITE_EDGE)))
        if not found["space"]:
            yield token
        position = found.end()


def _statements(text: str) -> Iterator[list[tuple[str, ...]]]:
    """Parse an edge string: each statement is the list of its sides, the names or groups between the arrows."""
    tokens = list(_tokens(text))
    kinds = "".join(token.kind for token in tokens)
    start = 0
    while start < len(kinds):
        if kinds[start] in ";\n":
            start += 1
            continue
        chain = _CHAIN.match(kinds, start)
        end = chain.end() if chain else start
        if chain is None or not _END.match(kinds, end):
            _explain(text, tokens, kinds, start, end)
        spans = (side.span() for side in _SIDE.finditer(kinds, start, end))
        yield [tuple(token.name for token in tokens[slice(*span)] if token.kind == "n") for span in spans]
        start = end


def _explain(text: str, tokens: list[_Token], kinds: str, start: int, end: int) -> NoReturn:
    """Say what is wrong with the statement that begins at token ``start`` and reads well up to token ``end``."""
    following = [index for index in range(end, len(kinds)) if kinds[index] != "\n"]
    token = tokens[following[0]]
    if token.kind == ">" and start < end:
        if len(following) == 1 or tokens[following[1]].kind != "{":
            _refuse(text, token, f"nothing stands after {token.text!r}", _WRITE_EDGE)
        token = tokens[following[1]]
    elif token.kind == "}":
        _refuse(text, token, "this brace was never opened", _WRITE_GROUP)
    elif start < end:
        begin = kinds.rfind(">", start, end) + 1 or start
        run = next(index for index in range(end, len(kinds) + 1) if kinds[index : index + 1] not in tuple("n,{}"))
        names = " ".join(part.text for part in tokens[begin:run] if part.kind == "n")
        before = text[tokens[start].start : tokens[begin].start]
        after = re.split("[;\n]", text[tokens[run - 1].start + len(tokens[run - 1].text) :])[0].rstrip()
        remedy = f"Write a group in braces, {before}{{{names}}}{after}, or separate two statements with ';'."
        _refuse(text, token, f"no arrow stands before {token.text!r}", remedy)
    if token.kind != "{":
        _refuse(text, token, f"nothing stands before {token.text!r}", _WRITE_EDGE)
    stop = next((part.text for part in tokens[tokens.index(token) + 1 :] if part.kind not in "n,\n"), "the end")
    _refuse(text, token, "these braces are empty" if stop == "}" else f"no '}}' before {stop!r}", _WRITE_GROUP)


def _from_string(text: str) -> EdgeList:
    draft = _Draft()
    for sides in _statements(text):
        draft.add(*sides)
    return draft.finish(f"the edge string {text!r}")


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
    for parent, child in graph.edges:
        draft.add([parent], [child])
    return draft.finish("the networkx graph")


def _from_file(path: Path) -> EdgeList:
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
    said = io.StringIO()
    with contextlib.redirect_stdout(said):  # pydot prints its syntax errors
        graphs = pydot.graph_from_dot_data(text)
    if not graphs:
        raise GraphError(f"{what} is not valid DOT:\n{said.getvalue().rstrip()}")
    with contextlib.redirect_stdout(said):
        # pydot drops what follows the last graph that it can read; one more graph at the end shows that it read all.
        proof = pydot.graph_from_dot_data(f"{text}\ndigraph {{}}")
    if len(graphs) != 1 or len(proof or ()) != 2:
        raise GraphError(f"{what} must hold one digraph and nothing else. Check what follows its last brace.")
    if graphs[0].get_type() != "digraph" or "--" in _DOT_QUOTED_OR_COMMENT.sub(" ", text):
        raise GraphError(f"{what} has edges without direction. Write a digraph, with '->' from cause to effect.")
    draft = _Draft()
    _walk_dot(graphs[0].obj_dict, draft, {})
    return draft.finish(what)


def _walk_dot(graph: Mapping[str, Any], draft: _Draft, defaults: Mapping[str, Any]) -> list[str]:
    """Read a (sub)graph of pydot statement by statement, and return the nodes that it names."""
    named: list[str] = []
    statements = [one for kind in ("nodes", "edges", "subgraphs") for many in graph[kind].values() for one in many]
    for statement in sorted(statements, key=lambda one: one["sequence"]):
        attributes = {key.strip('"'): value for key, value in statement["attributes"].items()}
        if statement["type"] == "node" and statement["name"] in _DOT_NOT_NODES:
            defaults = {**defaults, **attributes} if statement["name"] == "node" else defaults
            continue
        sides: list[list[str]] = []
        for point in statement["points"] if statement["type"] == "edge" else [statement]:
            if isinstance(point, Mapping) and point["type"] == "subgraph":
                sides.append(_walk_dot(point, draft, defaults))
                continue
            name = _dot_name(point if isinstance(point, str) else point["name"])
            if name not in draft.latent:
                draft.add([name])
                draft.mark(name, defaults)
            sides.append([name])
        if len(sides) > 1 and not all(sides):
            raise GraphError("an edge of the DOT graph starts or ends in an empty group. Name nodes in its braces.")
        draft.add(*sides)
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
