"""What each observed node reads in both worlds, and the districts of nodes that latent nodes join."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import networkx as nx

from pyrofair.exceptions import NotIdentifiedError
from pyrofair.graph.paths import PathSet, Regime, UnfairPaths
from pyrofair.graph.projection import LatentProjection

__all__ = ["Evaluation", "ObservedGraph", "Part"]

Goes = frozenset[int]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A node with what it reads: for each observed parent an evaluation of it, or a value of the sensitive attribute.

    Equal evaluations of one :class:`ObservedGraph` are one object.
    """

    node: str
    reads: tuple[tuple[str, Part], ...]


Part = Evaluation | int


class ObservedGraph:
    """The graph as a target sees it: its observed ancestors, latent nodes projected out, and both worlds.

    The target is a ``known`` function of the outcome's observed parents, or else the observed outcome; nodes ``beside``
    are kept for what they say of latent causes. ``nodes`` are the observed ones, the sensitive attribute among them, in
    a topological order; ``parents`` the observed nodes from which an edge, or a way through latent nodes only, leads to
    each; ``worlds`` what the target reads in the baseline and in the unfair-path world, pairs of a node and its part. A
    NotIdentifiedError if an edge stands for an unfair and for a fair way through a latent node.
    """

    def __init__(self, unfair: UnfairPaths, *, known: bool, beside: Sequence[str] = ()) -> None:
        graph = unfair.graph
        self.unfair, self.graph, self.known = unfair, graph, known
        self.sensitive = graph.sensitive
        self._projection = LatentProjection.of(graph, known=known, beside=beside)
        self.nodes, self.latent, below = self._projection.nodes, self._projection.latent, self._projection.below
        self.parents = {node: tuple(each for each in self.nodes if node in below[each]) for node in self.nodes}
        self.joint = {node: below[node] for node in self.latent}
        self._interned: dict[tuple[str, tuple[object, ...]], Evaluation] = {}
        first, second = (self._read(regime) for regime in unfair.regimes)
        self.worlds = first, second

    @cached_property
    def covariates(self) -> tuple[str, ...]:
        """The nodes that the sensitive attribute does not cause, which are equal in both worlds."""
        directed: nx.DiGraph[str] = nx.DiGraph([(p, node) for node in self.nodes for p in self.parents[node]])
        directed.add_node(self.sensitive)
        caused = nx.descendants(directed, self.sensitive) | {self.sensitive}
        return tuple(node for node in self.nodes if node not in caused)

    @cached_property
    def districts(self) -> tuple[tuple[str, ...], ...]:
        """The sets of nodes joined by latent nodes, each in topological order."""
        return self._projection.districts(self.nodes)

    def district(self, node: str) -> tuple[str, ...]:
        """Return the district of a node."""
        return next(part for part in self.districts if node in part)

    def has_one_cause(self, district: Sequence[str]) -> bool:
        """Whether one latent node causes all nodes of a district, so that their joint distribution is any."""
        return len(district) == 1 or any(effects >= {*district} for effects in self.joint.values())

    @cached_property
    def given(self) -> dict[str, tuple[str, ...]]:
        """For each node what its factor of its district is conditioned on (Tian and Pearl, 2002).

        These are its district among the nodes up to it, and the parents of that, in topological order.
        """
        found = {}
        for i, node in enumerate(self.nodes):
            before = self.nodes[: i + 1]
            own = next(part for part in self._projection.districts(before) if node in part)
            pillow = {*own}.union(*(self.parents[each] for each in own)) - {node}
            found[node] = tuple(each for each in before if each in pillow)
        return found

    # -- both worlds ---------------------------------------------------------------------------------------------------

    def _read(self, regime: Regime) -> tuple[tuple[str, Part], ...]:
        """Return what the target reads in a world.

        Which value of the sensitive attribute a node reads depends on how the path goes on from there: on the set of
        states of the unfair paths' automaton from which it reaches its end.
        """
        paths = self.unfair.paths if regime.on_unfair != regime.on_fair else PathSet(())
        end: Goes = frozenset({0}) if paths else frozenset()
        outcome = self.graph.outcome
        if self.known:
            read = [node for node in self.graph.parents(outcome) if node in self.graph.inputs]
            return self._parts(outcome, end, paths, regime, read)
        return ((outcome, self._evaluation(outcome, end, paths, regime)),)

    def _evaluation(self, node: str, goes: Goes, paths: PathSet, regime: Regime) -> Evaluation:
        reads = self._parts(node, goes, paths, regime, self.graph.parents(node))
        key = (node, tuple(part if isinstance(part, int) else id(part) for _, part in reads))
        return self._interned.setdefault(key, Evaluation(node, reads))

    def _parts(
        self, node: str, goes: Goes, paths: PathSet, regime: Regime, parents: Sequence[str]
    ) -> tuple[tuple[str, Part], ...]:
        found: dict[str, Part] = {}
        for name, part in self._ways(node, goes, paths, regime, parents):
            if found.setdefault(name, part) is not part:
                hidden = ", ".join(each for each in self.latent if node in self.joint[each])
                raise NotIdentifiedError(
                    f"With {hidden} latent, the edge {name} -> {node} stands for an unfair path and for a fair one, "
                    f"and no bounds are known for that. Measure {hidden}, or call both paths unfair, or both fair."
                )
        return tuple((each, found[each]) for each in self.nodes if each in found)

    def _ways(
        self, node: str, goes: Goes, paths: PathSet, regime: Regime, parents: Sequence[str]
    ) -> Iterator[tuple[str, Part]]:
        """Yield each observed parent of a node, those through latent nodes included, with its part."""
        for parent in parents:
            before = paths.before(goes, parent)
            if parent == self.sensitive:
                yield parent, regime.on_unfair if before else regime.on_fair
            elif parent in self.graph.latent:
                yield from self._ways(parent, before, paths, regime, self.graph.parents(parent))
            else:
                yield parent, self._evaluation(parent, before, paths, regime)

    def outcome_reads(self, world: int) -> dict[str, Part]:
        """Return what the outcome reads in a world: a part for each of its observed parents."""
        if self.known:
            return dict(self.worlds[world])
        part = dict(self.worlds[world])[self.graph.outcome]
        assert isinstance(part, Evaluation)
        return dict(part.reads)

    def evaluations(self, *worlds: int) -> tuple[Evaluation, ...]:
        """Return the evaluations that the target needs in some worlds, each after those that it reads."""
        found: dict[Evaluation, None] = {}

        def visit(part: Part) -> None:
            if isinstance(part, Evaluation) and part not in found:
                for _, each in part.reads:
                    visit(each)
                found[part] = None

        for world in worlds:
            for _, part in self.worlds[world]:
                visit(part)
        return tuple(sorted(found, key=lambda each: self.nodes.index(each.node)))
