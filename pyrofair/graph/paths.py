"""Unfair paths, and the value of the sensitive attribute that each path carries in each of two worlds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from pyrofair._validation import did_you_mean
from pyrofair.exceptions import GraphError, NotIdentifiedError
from pyrofair.graph.parse import read_path
from pyrofair.graph.path_sets import SHOWN, Path, PathSet, partings, show_count, show_path, show_paths

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pyrofair.graph.causal_graph import CausalGraph

__all__ = ["Path", "Regime", "UnfairPaths", "select_paths", "witness_message"]

LISTED = 100_000
"""The most paths that a function of a path is tried on."""


@dataclass(frozen=True)
class UnfairPaths:
    """A set of directed paths from the sensitive attribute to the outcome, called unfair.

    Made by :meth:`pyrofair.CausalGraph.unfair`.

    Parameters
    ----------
    graph
        The causal graph.
    paths
        The unfair paths, in the order of ``graph.directed_paths``: a sequence of tuples of node names that lists none
        of them, so that 2^20 paths cost what the graph's edges cost.
    swapped
        Whether the roles of the two values of the sensitive attribute are swapped, see :meth:`reversed`.

    References
    ----------
    Chikahara et al. (2021), section 2.2 and appendix A.3; Avin, Shpitser and Pearl (2005).
    """

    graph: CausalGraph
    paths: PathSet
    swapped: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.paths, PathSet):
            object.__setattr__(self, "paths", self.graph.unfair(*self.paths).paths)

    @cached_property
    def fair_paths(self) -> PathSet:
        """The directed paths from the sensitive attribute to the outcome that are not unfair, as ``paths`` are."""
        return self.graph.directed_paths(self.graph.sensitive, self.graph.outcome).without(self.paths)

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """The edges on unfair paths, in the order of declaration."""
        return tuple(edge for edge in self.graph.edges if edge in self.paths.edges)

    @property
    def touched(self) -> tuple[str, ...]:
        """The nodes on unfair paths but the outcome, in the order of declaration."""
        on_path = self.paths.nodes - {self.graph.outcome}
        return tuple(node for node in self.graph.nodes if node in on_path)

    @property
    def shared(self) -> tuple[str, ...]:
        """What both worlds share: observed ancestors of the prediction that no unfair path touches, in graph order."""
        graph = self.graph
        left_out = {graph.sensitive, *graph.latent, *self.touched}
        return tuple(node for node in graph.with_ancestors(graph.inputs) if node not in left_out)

    @property
    def regimes(self) -> tuple[Regime, Regime]:
        """The baseline, and the world in which the unfair paths alone are switched (the paper's eq. 4)."""
        low, high = (1, 0) if self.swapped else (0, 1)
        return Regime(self, "baseline", low, low), Regime(self, "unfair", high, low)

    def complement(self) -> UnfairPaths:
        """Return the set of all other paths."""
        return replace(self, paths=self.fair_paths)

    def reversed(self) -> UnfairPaths:
        """Return the same paths with 0 and 1 swapped: the other pair of potential outcomes (the paper's footnote 1)."""
        return replace(self, swapped=not self.swapped)

    def recanting_witnesses(self) -> list[tuple[str, Path, Path]]:
        """Return each node where an unfair and a fair path part after a common first edge, with one such pair.

        Without latent nodes the set is identified if and only if there is none.

        Returns
        -------
        list of (witness, unfair path, fair path)

        References
        ----------
        Chikahara et al. (2021), definition 3; Avin, Shpitser and Pearl (2005).
        """
        index = {node: i for i, node in enumerate(self.graph.nodes)}
        found = [(witness, *pair) for witness, pair in partings(self.paths, self.fair_paths).items()]
        return sorted(found, key=lambda each: tuple([index[node] for node in path] for path in each[1:]))

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw the graph with the unfair paths in red."""
        return self.graph.draw(self, ax=ax)

    def _repr_png_(self) -> bytes | None:
        """Return the drawing that a notebook shows; None, for the text, where it would be unreadable."""
        return self.graph.picture(self)

    def __str__(self) -> str:
        lines = [*_lines("unfair: ", self.paths)] or ["unfair: no path"]
        lines.extend(_lines("fair:   ", self.fair_paths))
        lines.append(f"shared by both worlds: {', '.join(self.shared) or 'nothing observed'}")
        if self.swapped:
            graph = self.graph
            lines.append(
                f"swapped: the baseline world has {graph.sensitive}={graph.contrast!r} on all paths, and the other "
                f"{graph.baseline!r} on the unfair ones"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        paths = repr(self.paths).removeprefix("PathSet(").removesuffix(")")
        return f"UnfairPaths({paths}{', swapped' if self.swapped and paths else ''})"


@dataclass(frozen=True)
class Regime:
    """One world: the value of the sensitive attribute that each path carries.

    Parameters
    ----------
    unfair
        The unfair paths.
    name
        ``"baseline"`` or ``"unfair"``.
    on_unfair, on_fair
        The value, 0 (baseline) or 1 (contrast), carried by unfair paths and by all others.
    """

    unfair: UnfairPaths
    name: str
    on_unfair: int
    on_fair: int

    def __repr__(self) -> str:
        return f"Regime({self.name!r}, unfair paths carry {self.on_unfair}, fair ones {self.on_fair})"

    def value(self, path: Path) -> int:
        """Return the value that a path carries."""
        return self.on_unfair if path in self.unfair.paths else self.on_fair

    @property
    def symbol(self) -> str:
        """The potential outcome in this world, as text."""
        if self.on_unfair == self.on_fair:
            return f"Y(A<={self.on_fair})"
        return f"Y(A<={self.on_unfair}||pi)"

    @property
    def latex(self) -> str:
        """The potential outcome in this world, as LaTeX in the paper's notation."""
        extra = "" if self.on_unfair == self.on_fair else r" \parallel \pi"
        return rf"Y_{{A \Leftarrow {self.on_unfair}{extra}}}"

    @property
    def arms(self) -> dict[str, int]:
        """The value read by each child of the sensitive attribute that leads to the outcome.

        Raises
        ------
        NotIdentifiedError
            If a child would have to read both values: there is a recanting witness.
        """
        witnesses = self.unfair.recanting_witnesses() if self.on_unfair != self.on_fair else []
        if witnesses:
            raise NotIdentifiedError(witness_message(*witnesses[0]))
        values = dict.fromkeys(self.unfair.fair_paths.first_steps, self.on_fair)
        values |= dict.fromkeys(self.unfair.paths.first_steps, self.on_unfair)
        graph = self.unfair.graph
        return {child: values[child] for child in graph.children(graph.sensitive) if child in values}

    def reversed(self) -> Regime:
        """Return the regime with 0 and 1 swapped."""
        return replace(self, unfair=self.unfair.reversed(), on_unfair=1 - self.on_unfair, on_fair=1 - self.on_fair)


def _lines(word: str, paths: PathSet) -> Iterable[str]:
    yield from (f"{word}{show_path(path)}" for path in paths[:SHOWN])
    if paths.size > SHOWN:
        yield f"{word}... ({show_count(paths.size)} paths)"


def witness_message(witness: str, unfair: Path, fair: Path) -> str:
    """Return why a recanting witness prevents identification."""
    return (
        f"Not identified: {witness!r} is a recanting witness. The unfair path {show_path(unfair)} and the fair path "
        f"{show_path(fair)} part only there, so {witness!r} would have to take two values at once, and no data "
        "determine their joint distribution. Call both paths unfair, or both fair."
    )


def select_paths(
    graph: CausalGraph,
    named: Sequence[str | Sequence[str]],
    *,
    direct: bool,
    through: Sequence[str],
    tests: Sequence[Callable[[Path], bool]],
) -> PathSet:
    """Return the directed paths that are named, direct, through a node, or accepted by a test."""
    every = graph.directed_paths(graph.sensitive, graph.outcome)
    chosen = {_existing(graph, read_path(path), every) for path in named}
    if direct:
        chosen.add(_existing(graph, (graph.sensitive, graph.outcome), every))
    mediators = every.nodes - {graph.sensitive, graph.outcome}
    for node in through:
        if node not in mediators:
            raise GraphError(
                f"No directed path from {graph.sensitive!r} to {graph.outcome!r} runs through {node!r}."
                f"{did_you_mean(node, [each for each in graph.nodes if each in mediators])} The paths: "
                f"{show_paths(every)}."
            )
    if tests and every.size > LISTED:
        raise GraphError(
            f"A function of a path is tried on each path, and there are {show_count(every.size)} of them from "
            f"{graph.sensitive!r} to {graph.outcome!r}, more than {LISTED:,}. Name the paths, or the nodes they run "
            "through: unfair(through=[...])."
        )
    if tests:
        chosen.update(path for path in every if any(test(path) for test in tests))
    return _named_or_through(every, chosen, frozenset(through))


def _named_or_through(every: PathSet, named: Collection[Path], through: frozenset[str]) -> PathSet:
    """Return the paths that are named or run through a node."""
    prefixes = {path[:length] for path in named for length in range(1, len(path) + 1)}

    def step(state: tuple[bool, Path], _: str, node: str) -> tuple[bool, Path] | None:
        met, prefix = state  # whether such a node was met, and the path so far if a named one begins so, else ()
        follows = (*prefix, node)
        if met or node in through:
            return True, ()
        if prefix and follows in prefixes:
            return False, follows
        return (False, ()) if through else None

    begin = (False, next(iter(prefixes))[:1] if prefixes else ())
    return every.select(begin, step, lambda state: state[0] or state[1] in named)


def _existing(graph: CausalGraph, path: Path, every: PathSet) -> Path:
    """Return a path that is among all of them, or refuse it with the edge or the node that is missing."""
    if path in every:
        return path
    for node in path:
        graph.parents(node)  # an unknown node is named by the graph
    missing = [edge for edge in pairwise(path) if edge not in graph.edges]
    cause = f"there is no edge {show_path(missing[0])}" if missing else "it must run from the one to the other"
    raise GraphError(
        f"{show_path(path)} is not a directed path from {graph.sensitive!r} to {graph.outcome!r}: {cause}. "
        f"The paths: {show_paths(every)}."
    )
