"""Causal graphs whose nodes are columns of a table, with a sensitive attribute and an outcome."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, Literal, cast

import networkx as nx

from pyrofair._defaults import default_of
from pyrofair._validation import (
    did_you_mean,
    listed,
    look,
    plain_value,
    require_callable,
    require_choice,
    require_flag,
    require_instance,
    require_label,
    require_names,
    shown,
    text_fault,
)
from pyrofair.exceptions import DataError, GraphError
from pyrofair.graph.parse import EdgeList, GraphSource, read_edges, read_undirected, write_edges
from pyrofair.graph.paths import PathSet, UnfairPaths, select_paths, smallest_automaton

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes

    from pyrofair.robustness.independences import GraphCheck

__all__ = ["CausalGraph", "unused_name"]


def _require_node(nodes: Sequence[str], name: str, role: str) -> None:
    """Refuse a name that is no node."""
    if not isinstance(name, str) or name not in nodes:
        raise GraphError(
            f"{shown(name)}, named as {role}, is not in the graph. Its nodes: {', '.join(nodes)}."
            f"{did_you_mean(name, nodes)}"
        )


def _read_columns(
    listed: EdgeList, columns: Mapping[str, str | Sequence[str]], latent: tuple[str, ...]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the columns of each observed node: those given, or one of the same name; no column twice."""
    for node in columns:
        _require_node(listed.nodes, node, "a node with columns")
        if node in latent:
            raise GraphError(f"{node!r} is declared latent and given columns; a latent node has none.")
    table = {node: _as_tuple(columns.get(node, node)) for node in listed.nodes if node not in latent}
    owner: dict[str, str] = {}
    for node, names in table.items():
        if not names:
            raise GraphError(f"{node!r} is given no columns. Name at least one, or declare it latent.")
        for name in names:
            if name in owner:
                both = f"{owner[name]!r} and {node!r}" if owner[name] != node else f"{node!r}, twice"
                raise GraphError(f"The column {name!r} stands in {both}; a column belongs to one node, once.")
            owner[name] = node
    return tuple(table.items())


def _as_tuple(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def unused_name(name: str, taken: Collection[str]) -> str:
    """Return a name for a site that no column has: ``H_D_`` where ``H_D`` is taken."""
    while name in taken:
        name += "_"
    return name


MOST_UNDIRECTED = 10
"""How many undirected edges are expanded to all their orientations."""
MOST_DRAWN = 40
"""How many nodes a graph may have for a notebook to draw it."""


@dataclass(frozen=True, init=False, repr=False)
class CausalGraph:
    """A directed acyclic graph over named nodes, each standing for one or several columns of a table.

    Parameters
    ----------
    edges
        An edge string (``"A -> D; {A Q} -> Y"``), a list of ``(parent, child)`` pairs, a :class:`networkx.DiGraph`, or
        the path of a DOT file.
    sensitive, outcome
        The node of the sensitive attribute and that of the outcome (one column each); by default the one that the
        graph marks as ``exposure`` and as ``outcome``, as dagitty does.
    baseline, contrast
        The two values of the sensitive attribute that the paper writes 0 and 1, matched by equality, by default 0
        and 1. Beside another baseline ``contrast`` is None by default: each other level, which :func:`pyrofair.audit`
        compares with the baseline one by one.
    positive
        The value of the outcome that counts as 1. The other value is whatever second value the data hold.
    columns
        For a node that is not one column of the same name: the list of its columns.
    latent
        The nodes without columns.
    labels
        How reports write values of the sensitive attribute, such as ``{0: "white", 1: "black"}``. Tables, models and
        files keep the values, and graphs that differ in labels alone are equal.

    Raises
    ------
    GraphError
        For a cycle, an unknown node, a sensitive attribute without a path to the outcome, an outcome with observed
        children, a column that stands in two nodes, a label of another value than baseline and contrast.

    References
    ----------
    Chikahara et al. (2021), section 2.1 and figure 1.

    Examples
    --------
    >>> graph = CausalGraph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
    >>> graph.parents("Y")
    ('A', 'Q', 'D', 'M')
    >>> graph.directed_paths("A", "Y")
    PathSet('A -> D -> Y', 'A -> M -> Y', 'A -> Y')
    """

    nodes: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    sensitive: str
    outcome: str
    baseline: Hashable
    contrast: Hashable
    positive: Hashable
    latent: tuple[str, ...]
    column_map: tuple[tuple[str, tuple[str, ...]], ...]
    label_map: tuple[tuple[Hashable, str], ...] = field(compare=False)

    def __init__(
        self,
        edges: GraphSource | EdgeList,
        *,
        sensitive: str | None = None,
        outcome: str | None = None,
        baseline: Hashable = 0,
        contrast: Hashable = ...,
        positive: Hashable = 1,
        columns: Mapping[str, str | Sequence[str]] | None = None,
        latent: Iterable[str] = (),
        labels: Mapping[Any, str] | None = None,
    ) -> None:
        hidden = require_names("latent", latent, "node names", one=True, error=GraphError)
        listed = edges if isinstance(edges, EdgeList) else read_edges(edges)
        sensitive = _marked("sensitive", listed.exposures, "exposure") if sensitive is None else sensitive
        outcome = _marked("outcome", listed.outcomes, "outcome") if outcome is None else outcome
        _require_roles(sensitive, outcome, baseline, contrast, positive, columns, labels)
        if contrast is ...:
            contrast = 1 if baseline == 0 else None
        baseline, contrast, positive = map(plain_value, (baseline, contrast, positive))
        for name, role in [(sensitive, "the sensitive attribute"), (outcome, "the outcome")]:
            _require_node(listed.nodes, name, role)
        for name in hidden:
            _require_node(listed.nodes, name, "a latent node")
        hidden = tuple(node for node in listed.nodes if node in {*hidden, *listed.latent})
        column_map = _read_columns(listed, columns or {}, hidden)
        own = [name for _, names in column_map for name in names]
        for what, names in (
            ("nodes", listed.nodes),
            ("columns", own),
            ("values", (baseline,) if contrast is None else (baseline, contrast)),
            ("positive", (positive,)),
        ):
            if fault := text_fault(names):
                raise GraphError(f"{what.capitalize()} cannot be told apart, or not be written: {fault}. Rename one.")
        roles = (sensitive, outcome, baseline, contrast, positive)
        named = _read_labels(labels, baseline, contrast)
        given = (listed.nodes, listed.edges, *roles, hidden, column_map, named)
        for each, value in zip(fields(self), given, strict=True):
            object.__setattr__(self, each.name, value)
        self._validate()

    @classmethod
    def from_pyro(
        cls,
        program: Callable[[int], object],
        *,
        nodes: Sequence[str],
        sensitive: str,
        outcome: str,
        baseline: Hashable = 0,
        contrast: Hashable = 1,
        positive: Hashable = 1,
        columns: Mapping[str, str | Sequence[str]] | None = None,
        labels: Mapping[Any, str] | None = None,
    ) -> CausalGraph:
        """Read the graph off a Pyro program: the exact parents of each node, through computed steps and noise.

        Noise that feeds two nodes becomes a latent node; noise of one node is left out.

        Parameters
        ----------
        program
            A Pyro program of the number of units.
        nodes
            Sites in its plate of units. With ``columns``, each column is a site, or names a component of a vector site,
            in order; by default these are ``M[0]``, ``M[1]``, ...
        sensitive, outcome, baseline, contrast, positive, columns, labels
            As for the class.

        Raises
        ------
        GraphError
            If a node is no such site, or the program cannot be read (see :func:`pyrofair.programs.sites.read_sites`).

        Examples
        --------
        >>> import pyro, pyro.distributions as dist
        >>> def program(n):
        ...     with pyro.plate("units", n):
        ...         A = pyro.sample("A", dist.Bernoulli(0.5))
        ...         M = pyro.sample("M", dist.Normal(2 * A, 1.0))
        ...         pyro.sample("Y", dist.Bernoulli(logits=M))
        >>> CausalGraph.from_pyro(program, nodes=["A", "M", "Y"], sensitive="A", outcome="Y").edges
        (('A', 'M'), ('M', 'Y'))
        """
        from pyrofair.programs.vectors import read_scalar_sites  # other graphs need no Pyro

        _require_roles(sensitive, outcome, baseline, contrast, positive, columns, labels)
        nodes = require_names("nodes", nodes, "node names", error=GraphError)
        require_callable("program", program, "a Pyro program of the number of units", error=GraphError)
        own = {node: _as_tuple(names) for node, names in (columns or {}).items()}
        read = read_scalar_sites(program, {**dict.fromkeys(nodes, ()), **own}, nodes_only=True)
        graph = read.info.graph_of(nodes, read.columns)
        roles: Any = {"sensitive": sensitive, "outcome": outcome, "baseline": baseline, "contrast": contrast}
        return cls(graph, **roles, positive=positive, columns=read.columns, labels=labels)

    @classmethod
    def from_tiers(cls, tiers: Iterable[Iterable[str]], *, within: bool = False, **settings: Any) -> CausalGraph:
        """Return the graph with every edge from earlier to later tiers, a graph to begin with: cut edges down.

        Its text, ``str(graph)``, is an edge string to edit. Each edge that is cut is an assumption: that one node does
        not act on the other but through nodes between them.

        Parameters
        ----------
        tiers
            Tiers of node names from the earliest to the latest, such as what is given at birth, schooling, work, and
            the decision.
        within
            Whether the nodes of a tier have edges as well, each to those named after it. By default they have none:
            given earlier tiers they are assumed independent, which ``graph.check(df)`` tests.
        **settings
            As for the class: ``sensitive``, ``outcome``, ``columns``, ...

        Raises
        ------
        GraphError
            If there are fewer than two nodes, or one is named twice.

        Examples
        --------
        >>> tiers = [["sex", "age"], ["education"], ["granted"]]
        >>> print(CausalGraph.from_tiers(tiers, sensitive="sex", outcome="granted"))
        age
        sex
        {sex age} -> education
        {sex age education} -> granted
        # sensitive attribute: sex (0 is 0, 1 is 1)
        # outcome: granted (1 is 1)
        """
        require_flag("within", within)
        such = "such as [['sex', 'age'], ['job'], ['granted']]"
        if isinstance(tiers, str | bytes | Mapping) or (given := listed(tiers)) is None:
            raise GraphError(f"tiers={shown(tiers)} must be a list of lists of node names, {such}.")
        read = [require_names(f"tiers[{i}]", tier, "node names", error=GraphError) for i, tier in enumerate(given)]
        nodes = [(at, name) for at, tier in enumerate(read) for name in tier]
        names = [name for _, name in nodes]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise GraphError(f"tiers name {twice!r} twice; a node is in one tier.")
        if len(names) < 2:
            raise GraphError(f"tiers have {len(names)} node(s), and a graph has at least two, {such}.")
        edges = [(one, other) for (at, one), (later, other) in combinations(nodes, 2) if at < later or within]
        return cls(EdgeList(tuple(names), tuple(edges)), **settings)

    @classmethod
    def expand(
        cls, edges: str, *, forbidden: Collection[tuple[str, str]] = (), **settings: Any
    ) -> dict[str, CausalGraph]:
        """Return each graph that an edge string with undirected edges ``A - B`` stands for, by its orientations.

        Undirected edges are oriented in all ways that make a causal graph: no cycle, no observed child of the outcome,
        a path from the sensitive attribute to the outcome.

        Parameters
        ----------
        edges
            An edge string, undirected edges in statements of their own; at most 10 of them.
        forbidden
            Orientations that make no sense, (cause, effect): ``[("job", "sex")]``.
        **settings
            As for the class: ``sensitive``, ``outcome``, ``columns``, ...

        Returns
        -------
        dict
            The graphs, the key of each its orientations: ``"M -> L"``.

        Raises
        ------
        GraphError
            If an undirected edge cannot be read, or there are more than 10; if no orientation makes a causal graph.

        Examples
        --------
        >>> found = CausalGraph.expand("A -> {M L}; M - L; {M L} -> Y", sensitive="A", outcome="Y")
        >>> list(found)
        ['M -> L', 'L -> M']
        """
        drawn, undirected = read_undirected(edges)
        if len(undirected) > MOST_UNDIRECTED:
            raise GraphError(
                f"There are {len(undirected)} undirected edges, {2 ** len(undirected):,} orientations; at most "
                f"{MOST_UNDIRECTED} are expanded. Orient some of them."
            )
        barred = {*read_edges(forbidden).edges} if listed(forbidden) != () else set()
        found: dict[str, CausalGraph] = {}
        errors: list[GraphError] = []
        for chosen in product(*((pair, (pair[1], pair[0])) for pair in undirected)):
            if barred & {*chosen}:
                continue
            try:
                graph = cls(EdgeList(drawn.nodes, (*drawn.edges, *chosen), drawn.latent), **settings)
                found["; ".join(f"{cause} -> {effect}" for cause, effect in chosen)] = graph
            except GraphError as error:
                errors.append(error)
        if not found:
            raise next(iter(errors), GraphError("forbidden leaves no orientation of the undirected edges."))
        return found

    @property
    def columns(self) -> dict[str, list[str]]:
        """The columns of each observed node, in the order of declaration."""
        return {node: list(names) for node, names in self.column_map}

    @property
    def node_of(self) -> dict[str, str]:
        """The node of each column."""
        return {column: node for node, names in self.column_map for column in names}

    @cached_property
    def observed(self) -> tuple[str, ...]:
        """The nodes that are not latent."""
        return tuple(node for node in self.nodes if node not in self.latent)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The nodes that a classifier reads: the observed parents of the outcome."""
        return tuple(node for node in self.parents(self.outcome) if node not in self.latent)

    @property
    def input_columns(self) -> list[str]:
        """The columns that a classifier reads, node by node."""
        return self.columns_of(self.inputs)

    def columns_of(self, nodes: Iterable[str]) -> list[str]:
        """Return the columns of observed nodes, in the order given."""
        chosen = require_names("nodes", nodes, "node names", error=GraphError)
        for node in chosen:
            if node not in self._columns:
                self._require(node)
                raise GraphError(f"{node!r}, named in nodes, is latent and has no columns. Leave it out.")
        return [column for node in chosen for column in self._columns[node]]

    @cached_property
    def sensitive_column(self) -> str:
        """The column of the sensitive attribute."""
        return self._columns[self.sensitive][0]

    @cached_property
    def outcome_column(self) -> str:
        """The column of the outcome."""
        return self._columns[self.outcome][0]

    def label(self, value: int) -> Hashable:
        """Return the label of the sensitive attribute's value 0 (baseline) or 1 (contrast)."""
        require_choice("value", value, (0, 1))
        return self.require_contrast().contrast if value else self.baseline

    @property
    def labels(self) -> dict[Hashable, str]:
        """How reports write values of the sensitive attribute; empty if they write the values."""
        return dict(self.label_map)

    def named(self, level: Any) -> Any:
        """Return what a report writes for a value of the sensitive attribute: its label, or the value.

        >>> graph = CausalGraph("A -> Y", sensitive="A", outcome="Y", labels={1: "black"})
        >>> graph.named(1), graph.named(0)
        ('black', 0)
        """
        return self.labels.get(level, level)

    def require_contrast(self) -> CausalGraph:
        """Return the graph, or raise a DataError if each other level is its contrast, and one is asked for."""
        if self.contrast is None:
            raise DataError(
                f"The graph names the baseline {self.baseline!r} of {self.sensitive!r} and no contrast, and one is "
                f"needed here: graph.with_contrast('one of the other levels'). pf.audit(models, unfair, df) compares "
                "each other level with the baseline, and pf.Contrasts(source) trains with all of them."
            )
        return self

    @property
    def coding(self) -> str:
        """The two values of the sensitive attribute in words."""

        def told(level: Hashable) -> str:
            return f"{self.labels[level]!r} (coded {level!r})" if level in self.labels else repr(level)

        others = ", ".join(told(each) for each in self.labels if each != self.baseline)
        every = f"each other level{others and f': {others}'}"
        return f"0 is {told(self.baseline)}, 1 is {every if self.contrast is None else told(self.contrast)}"

    @cached_property
    def dag(self) -> nx.DiGraph[str]:
        """The graph as networkx holds it."""
        dag: nx.DiGraph[str] = nx.DiGraph()
        dag.add_nodes_from(self.nodes)
        dag.add_edges_from(self.edges)
        return dag

    @cached_property
    def order(self) -> tuple[str, ...]:
        """A topological order: first what the sensitive attribute does not cause, then it, then what it causes.

        Ties are broken by first appearance in the declaration.
        """
        rank = dict.fromkeys(nx.descendants(self.dag, self.sensitive), 2) | {self.sensitive: 1}
        return tuple(
            nx.lexicographical_topological_sort(self.dag, key=lambda node: (rank.get(node, 0), self._index[node]))
        )

    def parents(self, node: str) -> tuple[str, ...]:
        """Return the parents of a node, in the order of declaration."""
        self._require(node)
        return self._parents[node]

    def children(self, node: str) -> tuple[str, ...]:
        """Return the children of a node, in the order of declaration."""
        self._require(node)
        return self._sorted(self.dag.successors(node))

    def ancestors(self, node: str) -> tuple[str, ...]:
        """Return the ancestors of a node, without itself, in the order of declaration."""
        self._require(node)
        return self._sorted(nx.ancestors(self.dag, node))

    def descendants(self, node: str) -> tuple[str, ...]:
        """Return the descendants of a node, without itself, in the order of declaration."""
        self._require(node)
        return self._sorted(nx.descendants(self.dag, node))

    def with_ancestors(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Return nodes and the ancestors of any of them, in the order of declaration."""
        found = {*require_names("nodes", nodes, "node names", error=GraphError)}
        for node in tuple(found):
            self._require(node)
            found |= nx.ancestors(self.dag, node)
        return self._sorted(found)

    def directed_paths(self, source: str, target: str) -> PathSet:
        """Return every directed path from one node to another, depth first in the order of declaration.

        A :class:`PathSet` is a sequence of tuples of node names, with ``len``, ``in`` and ``[]``.
        """
        self._require(source, "source of paths")
        self._require(target, "target of paths")
        useful = frozenset(self.with_ancestors([target]))

        def follow(node: str) -> tuple[str, ...]:
            return () if node == target else self._sorted(useful.intersection(self.dag.successors(node)))

        if source not in useful:
            return PathSet(())
        return smallest_automaton(source, str, follow, target.__eq__)

    def unfair(
        self,
        *paths: str | Sequence[str] | Callable[[tuple[str, ...]], bool],
        direct: bool = False,
        through: str | Iterable[str] | None = None,
        predicate: Callable[[tuple[str, ...]], bool] | None = None,
    ) -> UnfairPaths:
        """Call a set of directed paths from the sensitive attribute to the outcome unfair.

        The set is the union of all that is named; nothing named is the empty set, which audits, bounds and training
        refuse.

        Parameters
        ----------
        *paths
            Paths as ``"A -> D -> Y"`` or as sequences of node names, or functions of a path that return whether it is
            unfair, in graphs of at most 100,000 paths.
        direct
            Whether the edge from the sensitive attribute to the outcome is unfair.
        through
            Nodes: every path through any of them is unfair.
        predicate
            A function of a path, a tuple of node names, that returns whether it is unfair.

        Raises
        ------
        GraphError
            If a path does not exist in the graph, or no path runs through a node named in ``through``.

        Examples
        --------
        >>> graph = CausalGraph("A -> D -> Y; A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
        >>> graph.unfair(direct=True, through=["D"]).paths
        PathSet('A -> D -> Y', 'A -> Y')
        """
        require_flag("direct", direct)
        if predicate is not None:
            require_callable("predicate", predicate, "a function of a path, or None", error=GraphError)
        tests = [p for p in (*paths, predicate) if callable(p)]
        named = [p for p in paths if not callable(p)]
        nodes = require_names("through", () if through is None else through, "node names", one=True, error=GraphError)
        return UnfairPaths(self, select_paths(self, named, direct=direct, through=nodes, tests=tests))

    def with_latent(self, *nodes: str) -> CausalGraph:
        """Return the same graph with further nodes declared latent, for example because a table lacks their columns.

        >>> graph = CausalGraph("A -> Z -> Y; A -> Y", sensitive="A", outcome="Y")
        >>> graph.with_latent("Z").latent
        ('Z',)
        """
        for node in nodes:
            self._require(node)
        kept = {node: names for node, names in self.column_map if node not in nodes}
        return self.remade(columns=kept, latent=(*self.latent, *nodes))

    def with_contrast(self, contrast: Hashable) -> CausalGraph:
        """Return the same graph with another value of the sensitive attribute that the baseline is compared with.

        None is each other level of a table, for audits.

        >>> graph = CausalGraph("A -> Y", sensitive="A", outcome="Y", baseline="white", contrast="black")
        >>> graph.with_contrast("asian").contrast
        'asian'
        """
        return self.remade(contrast=contrast)

    def coded(self) -> CausalGraph:
        """Return the same graph with the values of the sensitive attribute, and of the outcome, coded as 0 and 1."""
        levels = {0: self.baseline, 1: self.contrast}
        labels = {code: self.labels[level] for code, level in levels.items() if level in self.labels}
        return self.remade(baseline=0, contrast=1, positive=1, labels=labels)

    def remade(
        self, nodes: Iterable[str] | None = None, edges: Iterable[tuple[str, str]] | None = None, **changed: Any
    ) -> CausalGraph:
        """Return the graph with other nodes, edges, roles or columns, and all else as it is."""
        roles = ("sensitive", "outcome", "baseline", "contrast", "positive", "latent")
        settings: Any = {role: getattr(self, role) for role in roles} | {"columns": self._columns} | changed
        if "labels" not in changed:  # those of levels that the new graph compares
            levels = {} if "sensitive" in changed else self.labels
            compared = None if settings["contrast"] is None else (settings["baseline"], settings["contrast"])
            settings["labels"] = {each: levels[each] for each in levels if compared is None or each in compared}
        own, drawn = (self.nodes if nodes is None else nodes), (self.edges if edges is None else edges)
        return CausalGraph(EdgeList(tuple(own), tuple(drawn), tuple(settings["latent"])), **settings)

    def check(
        self,
        df: pd.DataFrame,
        *,
        level: float = 0.05,
        regression: Any = "flexible",
        folds: int = 5,
        groups: Any = None,
        missing: Literal["refuse", "recorded"] = "refuse",
        random_state: int | np.random.Generator | None = None,
    ) -> GraphCheck:
        """Test the conditional independences that the graph implies on a table.

        Parameters and result are those of :func:`pyrofair.robustness.independences.check_graph`.
        """
        check: Callable[..., GraphCheck] = default_of("check of a graph")
        how: Any = {"level": level, "regression": regression, "folds": folds, "groups": groups, "missing": missing}
        return check(self, df, **how, random_state=random_state)

    def draw(self, unfair: UnfairPaths | None = None, ax: Axes | None = None) -> Axes:
        """Draw the graph on axes, by default of a new figure: unfair paths in red, latent nodes in grey."""
        from pyrofair.graph.drawing import draw_graph  # Matplotlib is loaded for pictures only

        return draw_graph(self, unfair, ax)

    def _repr_png_(self) -> bytes | None:
        """Return the drawing that a notebook shows; None, for the text, where it would be unreadable."""
        return self.picture()

    def picture(self, unfair: UnfairPaths | None = None) -> bytes | None:
        """Return the drawing as the bytes of a PNG file, or None of a graph too large to be read."""
        if len(self.nodes) > MOST_DRAWN or len(self.edges) > 4 * MOST_DRAWN:
            return None
        drawn: Any = self.draw(unfair)
        png: bytes = drawn._repr_png_()
        return png

    def __repr__(self) -> str:
        few = ", ".join(self.nodes[:8]) + (", ..." if len(self.nodes) > 8 else "")
        return (
            f"<CausalGraph {self.sensitive} -> {self.outcome}: {len(self.nodes)} nodes ({few}), {len(self.edges)} "
            "edges; print it for all>"
        )

    def __str__(self) -> str:
        """Return an edge string of the same nodes and edges; what else there is stands in comments."""
        lines = [write_edges(self.parents(node), node) for node in self.order]
        lines.append(f"# sensitive attribute: {self.sensitive} ({self.coding})")
        lines.append(f"# outcome: {self.outcome} (1 is {self.positive!r})")
        lines += [f"# {node}: columns {', '.join(names)}" for node, names in self.column_map if names != (node,)]
        lines += [f"# latent: {', '.join(self.latent)}"] if self.latent else []
        return "\n".join(lines)

    def _sorted(self, nodes: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(set(nodes), key=self._index.__getitem__))

    @cached_property
    def _columns(self) -> dict[str, tuple[str, ...]]:
        return dict(self.column_map)

    @cached_property
    def _parents(self) -> dict[str, tuple[str, ...]]:
        return {node: self._sorted(self.dag.predecessors(node)) for node in self.nodes}

    @cached_property
    def _index(self) -> dict[str, int]:
        return {node: index for index, node in enumerate(self.nodes)}

    def _require(self, node: str, role: str = "node") -> None:
        if not isinstance(node, str) or node not in self._index:
            _require_node(self.nodes, node, f"a {role}")

    def _validate(self) -> None:
        if not nx.is_directed_acyclic_graph(self.dag):
            cycle = [edge[0] for edge in nx.find_cycle(self.dag)]
            raise GraphError(
                f"The edges run in a cycle: {' -> '.join([*cycle, cycle[0]])}. A causal graph has none: remove one of "
                "these edges, or split the node in two by time."
            )
        if self.sensitive == self.outcome:
            raise GraphError(f"{self.sensitive!r} is named as sensitive attribute and as outcome; name two nodes.")
        for node, role in [(self.sensitive, "sensitive attribute"), (self.outcome, "outcome")]:
            if node in self.latent:
                raise GraphError(f"The {role} {node!r} is declared latent; it must be a column of the data.")
            if len(own := self.columns_of([node])) != 1:
                hot = " Columns of 0 and 1, one for each level, are read by pf.from_one_hot." * (node == self.sensitive)
                raise GraphError(f"The {role} {node!r} must stand for one column, not for {own}.{hot}")
        if self.baseline == self.contrast:
            raise GraphError(
                f"baseline and contrast are both {self.baseline!r}; they are the two values of {self.sensitive!r}."
            )
        if self.outcome not in nx.descendants(self.dag, self.sensitive):
            raise GraphError(
                f"There is no directed path from {self.sensitive!r} to {self.outcome!r}, so the sensitive attribute "
                "has no effect to assess. Add the missing edges, or check the two names."
            )
        if below := [child for child in self.children(self.outcome) if child not in self.latent]:
            raise GraphError(
                f"The outcome {self.outcome!r} has observed children: {', '.join(below)}. A prediction is made "
                "before its outcome has effects: leave these nodes out of the graph."
            )


def _read_labels(
    labels: Mapping[Any, str] | None, baseline: Hashable, contrast: Hashable
) -> tuple[tuple[Any, str], ...]:
    """Return each level that has a label, with it; levels that a report would write alike are refused."""
    found = {plain_value(level): text for level, text in (labels or {}).items()}
    for level, text in found.items():
        require_label("labels", level, error=GraphError)
        require_instance(f"labels[{level!r}]", text, str, "a text, such as 'white'", error=GraphError)
    if contrast is not None and (others := [each for each in found if each not in (baseline, contrast)]):
        raise GraphError(
            f"labels name {others[0]!r}, which is neither the baseline {baseline!r} nor the contrast {contrast!r}. "
            "Label these two, or compare each other level with the baseline, contrast=None."
        )
    levels = dict.fromkeys([baseline, *({contrast} - {None}), *found])
    shown = [look(found.get(each, str(each))) for each in levels]
    one_line = all(len(each.splitlines()) == 1 for each in found.values())
    if not all(shown) or not one_line or len({*shown}) < len(shown) or text_fault(found.values()):
        raise GraphError(f"labels={found} must be texts of one line that can be written, and no two may look alike.")
    return tuple(found.items())


def _marked(role: str, nodes: Sequence[str], word: str) -> str:
    """Return the one node that a graph marks for a role."""
    if len(nodes) == 1:
        return nodes[0]
    found = f"the graph marks {', '.join(nodes)} as {word}" if nodes else f"the graph marks no node as {word}"
    raise GraphError(f"{role}=None, and {found}. Name the node: {role}='...'.")


def _require_roles(
    sensitive: object, outcome: object, baseline: object, contrast: object, positive: object, columns: object,
    labels: object,
) -> None:  # fmt: skip
    """Refuse roles that are no names, values that no column can hold, and columns or labels that are no dictionary."""
    for role, name in (("sensitive", sensitive), ("outcome", outcome)):
        require_instance(role, name, str, "the name of a node", error=GraphError)
    for role, label in (("baseline", baseline), ("contrast", contrast), ("positive", positive)):
        if role != "contrast" or label is not None:
            require_label(role, label, error=GraphError)
    if labels is not None:
        expected = "a dictionary from values to texts, such as {0: 'white', 1: 'black'}"
        require_instance("labels", labels, Mapping, expected, error=GraphError)
    if columns is not None:
        expected = "a dictionary from nodes to their columns, such as {'S': ['savings', 'checking']}"
        require_instance("columns", columns, Mapping, expected, error=GraphError)
        for node, names in cast("Mapping[str, Any]", columns).items():
            require_names(f"columns[{node!r}]", names, "column names", one=True, error=GraphError)
