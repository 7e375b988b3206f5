"""A program as structural equations of a causal graph: its nodes, what each reads, and A's value along each path."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

from pyrofair.exceptions import GraphError, PyrofairWarning
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.paths import PathSet, Regime, UnfairPaths
from pyrofair.programs.couplings import Coupling, named_coupling
from pyrofair.programs.provenance import Program
from pyrofair.programs.sites import ProgramSites, caller_level
from pyrofair.programs.vectors import read_scalar_sites
from pyrofair.tables.labels import columns_of_sites

__all__ = ["Equations", "State", "read_equations", "sensitive_levels"]


@dataclass(frozen=True, eq=False)
class State:
    """What a site reads in a world: the state of each node site, or the value of the sensitive attribute.

    Equal states of one ``Equations`` are one object.
    """

    parts: tuple[State | int, ...]


@dataclass(frozen=True)
class Equations:
    """A program, with a scalar site for each component of a vector-valued node, as structural equations.

    ``node_of`` holds for each node site, in the order of the graph, its node; a node of several columns has a site for
    each.
    """

    program: Program
    unfair: UnfairPaths
    info: ProgramSites
    node_of: dict[str, str]

    @cached_property
    def sites(self) -> tuple[str, ...]:
        """The node sites without that of the sensitive attribute, each after those that it reads."""
        return tuple(site for site in self.info.sites if site in self.node_of and site != self.sensitive)

    @cached_property
    def sensitive(self) -> str:
        """The site of the sensitive attribute."""
        return next(site for site, node in self.node_of.items() if node == self.unfair.graph.sensitive)

    @cached_property
    def causes(self) -> dict[str, tuple[str, ...]]:
        """For each node site the node sites that it reads."""
        every = tuple(self.node_of)
        return {site: self.info.causes(site, every)[0] for site in every}

    @cached_property
    def endogenous(self) -> frozenset[str]:
        """The random sites whose distribution depends on a node."""
        every = tuple(self.node_of)
        return frozenset(site for site in self.info.random if self.info.causes(site, every)[0])

    def site_of(self, column: str) -> str:
        """Return the site of a column, or the site that has this name itself."""
        columns = columns_of_sites(self.node_of, self.unfair.graph)
        return column if column in columns else next(site for site, own in columns.items() if own == column)

    def coupled(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """Return the sites without explicit noise that the sensitive attribute reaches and some sites depend on."""
        needed = self.endogenous - self.idle(wanted)
        reached = [site for site in self.info.sites if self.sensitive in self.info.above(site, frozenset())]
        return tuple(site for site in reached if site in needed)

    def coupling_of(self, coupling: Coupling, wanted: Iterable[str]) -> Coupling:
        """Return the coupling of the sites that some sites depend on: ``"gumbel"`` needs unordered categories there."""
        return named_coupling(coupling, nominal=not self.info.nominal.isdisjoint(self.coupled(wanted)))

    def idle(self, wanted: Iterable[str], held: Iterable[str] | None = None) -> frozenset[str]:
        """Return the random sites that are no ancestors of wanted ones once some are set, by default that of A."""
        known = frozenset([self.sensitive] if held is None else held)
        needed = {s for site in wanted if site not in known for s in (site, *self.info.above(site, known))}
        return self.info.random - (needed - known)

    def states(self, regime: Regime) -> dict[str, State]:
        """Return the state in which each site is shown in a world: that of its node's shortest way to the outcome.

        A node that does not lead to the outcome reads its parents as they are shown, and the sensitive attribute as
        fair paths carry it. Which paths from the sensitive attribute to a node carry the unfair value depends on how
        they go on from there: on the set of states of the unfair paths' automaton from which they reach their end.
        """
        graph = self.unfair.graph
        paths = self.unfair.paths if regime.on_unfair != regime.on_fair else PathSet(())
        ends = {node: _goes_on(paths, way) for node, way in _shortest_ways(graph, {*self.node_of.values()}).items()}

        def following(parent: str, site: str, goes_on: frozenset[int]) -> frozenset[int]:
            # A column of the same node stands at the same step of the path.
            node = self.node_of[parent]
            return goes_on if node == self.node_of[site] else paths.before(goes_on, node)

        needed: dict[str, set[frozenset[int]]] = {site: set() for site in self.sites}
        for site in reversed(self.sites):
            if self.node_of[site] in ends:
                needed[site].add(ends[self.node_of[site]])
            for parent in self.causes[site]:
                if parent != self.sensitive:
                    needed[parent].update(following(parent, site, goes_on) for goes_on in needed[site])
        found: dict[tuple[str, frozenset[int]], State] = {}
        shown: dict[str, State] = {}
        for site in self.sites:
            for goes_on in needed[site]:
                found[site, goes_on] = self._state(
                    (regime.on_unfair if following(parent, site, goes_on) else regime.on_fair)
                    if parent == self.sensitive
                    else found[parent, following(parent, site, goes_on)]
                    for parent in self.causes[site]
                )
            if self.node_of[site] in ends:
                shown[site] = found[site, ends[self.node_of[site]]]
            else:
                shown[site] = self._state(
                    regime.on_fair if parent == self.sensitive else shown[parent] for parent in self.causes[site]
                )
        return shown

    @cached_property
    def _states(self) -> dict[tuple[State | int, ...], State]:
        return {}

    def _state(self, parts: Iterable[State | int]) -> State:
        """Return the one state of these parts."""
        own = tuple(parts)
        return self._states.setdefault(own, State(own))

    def in_order(self, wanted: Mapping[str, State], known: Collection[str] = ()) -> list[tuple[str, State]]:
        """Return the sites and states that wanted ones depend on, each after what it reads; known ones need nothing."""
        needed: dict[str, dict[State, None]] = {site: {} for site in self.sites}
        for site, state in wanted.items():
            needed[site][state] = None
        for site in reversed(self.sites):
            if site in known:
                needed[site] = {}
            for state in needed[site]:
                for parent, part in zip(self.causes[site], state.parts, strict=True):
                    if isinstance(part, State):
                        needed[parent][part] = None
        return [(site, state) for site in self.sites for state in needed[site]]


def _shortest_ways(graph: CausalGraph, nodes: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return for each node that leads to the outcome its shortest way there, the first in order of declaration."""
    found: dict[str, tuple[str, ...]] = {graph.outcome: (graph.outcome,)}
    for node in reversed(graph.order):
        ways = [found[child] for child in graph.children(node) if child in found]
        if ways and node != graph.outcome:
            found[node] = (node, *min(ways, key=len))
    return {node: way for node, way in found.items() if node in nodes}


def _goes_on(paths: PathSet, way: tuple[str, ...]) -> frozenset[int]:
    """Return the states of a set of paths, at the first node of a way to their end, from which the way is accepted."""
    states = frozenset({0} if paths and paths.states[0][0] == way[-1] else ())
    for node in reversed(way[:-1]):
        states = paths.before(states, node)
    return states


def sensitive_levels(graph: CausalGraph) -> tuple[float, float]:
    """Return the sensitive site's values for baseline and contrast: the labels if they are numbers, else 0 and 1."""
    labels: tuple[Any, Any] = (graph.baseline, graph.label(1))
    coded = all(isinstance(label, numbers.Real) for label in labels)
    return (float(labels[0]), float(labels[1])) if coded else (0.0, 1.0)


def read_equations(program: Program, unfair: UnfairPaths, probe: Program | None = None) -> Equations:
    """Match a program's sites with the graph's nodes; ``probe``, by default the program, is run to read it.

    The outcome, latent nodes, and nodes that do not lead to the outcome need no site. A GraphError names what does not
    match, and evidence about units; a warning names two nodes but the outcome that read one site which is no node.
    """
    graph = unfair.graph
    latent = {*graph.latent}
    read = read_scalar_sites(program, {n: graph.columns.get(n, ()) for n in graph.order}, probe, latent)
    info = read.info
    free = {*graph.nodes} - {graph.sensitive, *graph.ancestors(graph.outcome)} | latent
    node_of: dict[str, str] = {}
    for node in graph.order:
        sites = info.sites_of(node, read.columns[node])
        if node in free and not any(site in info.sites for site in sites):
            continue
        info.require(sites)
        for site in sites:
            info.require_drawn([site])
        node_of |= dict.fromkeys(sites, node)
    info.refuse_evidence(tuple(node_of))
    equations = Equations(read.program, unfair, info, node_of)
    for site, causes in equations.causes.items():
        node = node_of[site]
        for cause in causes:
            if node_of[cause] != node and node_of[cause] not in graph.parents(node):
                raise GraphError(
                    f"In the program {site!r} reads {cause!r}, but the graph has no edge {node_of[cause]} -> {node}. "
                    f"Add it to the graph, or remove it from the program. The program's edges: "
                    f"{'; '.join(f'{c} -> {s}' for s, above in equations.causes.items() for c in above)}."
                )
    for text in _undeclared(equations):
        warnings.warn(text, PyrofairWarning, stacklevel=caller_level())
    return equations


def _undeclared(equations: Equations) -> list[str]:
    """Return a warning of each unobserved site that two nodes read and the graph does not hold.

    The outcome does not count: what is assessed is a prediction, which does not read the outcome's noise. Nor do nodes
    with a latent cause in common that is declared under another name.
    """
    graph, nodes = equations.unfair.graph, tuple(equations.node_of)
    readers: dict[str, list[str]] = {}
    for site, node in equations.node_of.items():
        if node != graph.outcome:
            for hidden in equations.info.causes(site, nodes)[1]:
                readers.setdefault(hidden, []).append(node)
    silent = {node for node in graph.latent if node not in nodes}
    shared: dict[tuple[str, ...], list[str]] = {}
    for hidden, found in readers.items():
        own = tuple(dict.fromkeys(found))
        if len(own) > 1 and not any(
            silent & {*graph.ancestors(a)} & {*graph.ancestors(b)} for a, b in combinations(own, 2)
        ):
            shared.setdefault(own, []).append(hidden)
    return [
        f"The nodes {', '.join(map(repr, own))} have the site {', '.join(map(repr, sites))} of the program in common, "
        "which the graph does not hold: in the graph their noise is independent, and identification is judged by "
        f"the graph. Declare it, CausalGraph('{sites[0]} -> {{{' '.join(own)}}}; ...', latent=[{sites[0]!r}]), or read "
        "the graph off the program, CausalGraph.from_pyro."
        for own, sites in shared.items()
    ]
