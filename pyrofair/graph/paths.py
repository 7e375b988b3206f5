"""Sets of directed paths as automata, unfair paths, and the value of the sensitive attribute that each path carries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from typing import TYPE_CHECKING, TypeVar, cast, overload

from pyrofair._validation import did_you_mean, listed, require_instance, shown
from pyrofair.exceptions import DataError, GraphError, NotIdentifiedError
from pyrofair.graph.parse import read_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pyrofair.graph.causal_graph import CausalGraph

__all__ = [
    "Path",
    "PathSet",
    "Regime",
    "UnfairPaths",
    "parting_node",
    "partings",
    "require_unfair",
    "select_paths",
    "show_count",
    "show_path",
    "show_paths",
    "smallest_automaton",
    "witness_message",
]

Path = tuple[str, ...]
S = TypeVar("S", bound=Hashable)

SHOWN = 8
"""How many paths a text names before it only counts them."""
_HASHED_AS_TUPLE = 1000


def show_path(path: Iterable[str]) -> str:
    """Write a path as text: ``A -> D -> Y``."""
    return " -> ".join(path)


def show_count(number: int) -> str:
    """Write a count of paths as text: exactly up to 10^12, and by a power of two beyond, ``at least 2^200``."""
    return f"{number:,}" if number <= 10**12 else f"at least 2^{number.bit_length() - 1}"


def show_paths(paths: PathSet) -> str:
    """Write the paths of a set as text; of many the shortest, and how many there are."""
    shown = "; ".join(map(show_path, paths.named)) or "none"
    return shown if paths.size <= SHOWN else f"{shown}; ... ({show_count(paths.size)} paths)"


@dataclass(frozen=True, eq=False, repr=False)
class PathSet(Sequence[Path]):
    """A set of directed paths from one node to another, as the smallest automaton that accepts them.

    It is a sequence of tuples of node names, depth first in the order of declaration, and equals the tuple or list of
    its paths. Its operations cost what its states and edges cost, however many paths there are. A state is a node and
    the states that follow it, in the order of declaration; the first is the end of all paths, the last their start,
    and each stands after those that follow it. The empty set has none.

    >>> from pyrofair import CausalGraph
    >>> paths = CausalGraph("A -> D -> Y; A -> Y", sensitive="A", outcome="Y").directed_paths("A", "Y")
    >>> paths
    PathSet('A -> D -> Y', 'A -> Y')
    >>> len(paths), ("A", "Y") in paths, paths[0]
    (2, True, ('A', 'D', 'Y'))
    """

    states: tuple[tuple[str, tuple[int, ...]], ...]

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        """For each state the number of ways from it to the end."""
        sizes: list[int] = []
        for _, following in self.states:
            sizes.append(sum(sizes[state] for state in following) or 1)
        return tuple(sizes)

    @property
    def size(self) -> int:
        """The number of paths, which ``len`` returns as well where it is below 2^63."""
        return self._sizes[-1] if self.states else 0

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return bool(self.states)

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, tuple) or not self.states or not path or path[0] != self.states[-1][0]:
            return False
        state: int | None = len(self.states) - 1
        for node in path[1:]:
            state = None if state is None else self.step(state, node)
        return state is not None and not self.states[state][1]

    @overload
    def __getitem__(self, index: int) -> Path: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Path, ...]: ...

    def __getitem__(self, index: int | slice) -> Path | tuple[Path, ...]:
        if isinstance(index, slice):
            return tuple(self[each] for each in range(*index.indices(self.size)))
        rank = index + self.size if index < 0 else index
        if not 0 <= rank < self.size:
            raise IndexError(f"There is no path {index}; the set has {show_count(self.size)}.")
        state = len(self.states) - 1
        path = [self.states[state][0]]
        while self.states[state][1]:
            for each in self.states[state][1]:
                state = each
                if rank < self._sizes[state]:
                    break
                rank -= self._sizes[state]
            path.append(self.states[state][0])
        return tuple(path)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PathSet):
            return self.states == other.states
        if isinstance(other, tuple | list):
            return self.size == len(other) and all(own == each for own, each in zip(self, other, strict=True))
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self)) if self.size <= _HASHED_AS_TUPLE else hash(self.states)  # as the equal tuple, if short

    def __repr__(self) -> str:
        shown = ", ".join(repr(show_path(path)) for path in self.named)
        return f"PathSet({shown}{'' if self.size <= SHOWN else f', ... {show_count(self.size)} paths'})"

    def shortest(self, count: int) -> tuple[Path, ...]:
        """Return so many of the shortest paths, those of one length in their order."""
        found: list[list[Path]] = []
        for node, following in self.states:
            every = [(node, *path) for state in following for path in found[state]] or [(node,)]
            found.append(sorted(every, key=len)[:count])
        return tuple(found[-1]) if found else ()

    @property
    def named(self) -> tuple[Path, ...]:
        """The paths that a text names: all in their order, or the shortest of many."""
        return self[:] if self.size <= SHOWN else self.shortest(SHOWN)

    def step(self, state: int, node: str) -> int | None:
        """Return the state after a step to a node; None where no path of the set goes on so."""
        return next((each for each in self.states[state][1] if self.states[each][0] == node), None)

    @property
    def start(self) -> int | None:
        """The state in which every path begins; None in the empty set."""
        return len(self.states) - 1 if self.states else None

    @cached_property
    def nodes(self) -> frozenset[str]:
        """The nodes on the paths, both ends included."""
        return frozenset(node for node, _ in self.states)

    @cached_property
    def edges(self) -> frozenset[tuple[str, str]]:
        """The edges on the paths."""
        return frozenset((node, self.states[each][0]) for node, following in self.states for each in following)

    @property
    def first_steps(self) -> tuple[str, ...]:
        """The nodes that the paths meet first after their start."""
        return tuple(self.states[each][0] for each in self.states[-1][1]) if self.states else ()

    @cached_property
    def _before(self) -> tuple[dict[str, list[int]], ...]:
        """For each state the states one edge before it, by their nodes."""
        before: tuple[dict[str, list[int]], ...] = tuple({} for _ in self.states)
        for state, (node, following) in enumerate(self.states):
            for each in following:
                before[each].setdefault(node, []).append(state)
        return before

    def before(self, states: Iterable[int], node: str) -> frozenset[int]:
        """Return the states of a node from which one edge leads to one of the given states."""
        return frozenset(each for state in states for each in self._before[state].get(node, ()))

    def rest(self, state: int) -> Path:
        """Return the first way from a state to the end, the node of the state included."""
        path = [self.states[state][0]]
        while following := self.states[state][1]:
            state = following[0]
            path.append(self.states[state][0])
        return tuple(path)

    def select(self, begin: S, step: Callable[[S, str, str], S | None], accept: Callable[[S], bool]) -> PathSet:
        """Return the paths that another automaton accepts, which steps along edges to a state, or to None to refuse."""

        def follow(pair: tuple[int, S]) -> list[tuple[int, S]]:
            state, other = pair
            node, following = self.states[state]
            found = ((each, step(other, node, self.states[each][0])) for each in following)
            return [(each, new) for each, new in found if new is not None]

        def ends(pair: tuple[int, S]) -> bool:
            return not self.states[pair[0]][1] and accept(pair[1])

        if self.start is None:
            return self
        return smallest_automaton((self.start, begin), lambda pair: self.states[pair[0]][0], follow, ends)

    def without(self, other: PathSet) -> PathSet:
        """Return the paths that are not in another set with the same two ends."""
        if other.start is None:
            return self
        away = -1
        return self.select(
            other.start,
            lambda state, _, node: away if state == away or (new := other.step(state, node)) is None else new,
            lambda state: state == away or bool(other.states[state][1]),
        )

    def through(self, nodes: Collection[str]) -> PathSet:
        """Return the paths that meet one of the nodes after their start."""
        wanted = frozenset(nodes)
        return self.select(False, lambda met, _, node: met or node in wanted, bool)

    def without_edges(self, edges: Collection[tuple[str, str]]) -> PathSet:
        """Return the paths that run along none of the edges."""
        barred = frozenset(edges)
        return self.select(True, lambda _, *edge: None if edge in barred else True, bool)

    def first_past(self, hidden: Collection[str]) -> dict[str, Path]:
        """Return for each node that comes first after the start on a path, hidden ones aside, the first such path."""
        found: dict[str, Path] = {}
        states = self.states
        for state, way in _depth_first(
            states[-1][1] if states else (), lambda each: states[each][1] if states[each][0] in hidden else ()
        ):
            if states[state][0] not in hidden:
                prefix = (states[-1][0], *(states[each][0] for each in way))
                found.setdefault(states[state][0], (*prefix, *self.rest(state)))
        return found


def smallest_automaton(
    start: S, name: Callable[[S], str], follow: Callable[[S], Iterable[S]], ends: Callable[[S], bool]
) -> PathSet:
    """Build the set of the paths that an automaton without cycles accepts; equal sets have equal states.

    ``name`` is the node of a state, ``follow`` its next states in the order of declaration, of different nodes, and
    ``ends`` whether accepted paths end there. All such states have one node, and nothing follows them.
    """
    known: dict[S, int | None] = {}
    table: dict[tuple[str, tuple[int, ...]], int] = {}
    waiting: list[tuple[S, list[S] | None]] = [(start, None)]
    while waiting:
        state, following = waiting.pop()
        if state in known:
            continue
        if following is None:  # number what follows first
            following = list(follow(state))
            waiting.append((state, following))
            waiting.extend((each, None) for each in reversed(following) if each not in known)
        else:
            kept = tuple(number for each in following if (number := known[each]) is not None)
            known[state] = table.setdefault((name(state), kept), len(table)) if kept or ends(state) else None
    return PathSet(tuple(table))


def partings(one: PathSet, other: PathSet) -> dict[str, tuple[Path, Path]]:
    """Return each node where paths of two sets part after a common first edge, with the first such pair of paths."""
    found: dict[str, tuple[Path, Path]] = {}
    if not one or not other:
        return found

    def common(pair: tuple[int, int]) -> list[tuple[int, int]]:
        right = {other.states[each][0]: each for each in other.states[pair[1]][1]}
        named = ((each, one.states[each][0]) for each in one.states[pair[0]][1])
        return [(each, right[node]) for each, node in named if node in right]

    ends = (len(one.states) - 1, len(other.states) - 1)
    for pair, way in _depth_first(common(ends), common):
        node = one.states[pair[0]][0]
        if node in found:
            continue
        for left, right in product(one.states[pair[0]][1], other.states[pair[1]][1]):
            if one.states[left][0] != other.states[right][0]:
                prefix = (one.states[-1][0], *(one.states[state][0] for state, _ in way), node)
                found[node] = (*prefix, *one.rest(left)), (*prefix, *other.rest(right))
                break
    return found


def _depth_first(roots: Iterable[S], follow: Callable[[S], Iterable[S]]) -> Iterator[tuple[S, tuple[S, ...]]]:
    """Yield each state once, with those that lead to it on the first way to it."""
    seen: set[S] = set()
    waiting: list[tuple[S, tuple[S, ...]]] = [(root, ()) for root in reversed([*roots])]
    while waiting:
        state, way = waiting.pop()
        if state not in seen:
            seen.add(state)
            yield state, way
            waiting.extend((each, (*way, state)) for each in reversed([*follow(state)]))


def parting_node(one: Path, other: Path) -> str:
    """Return the last node of two paths before they part: M for A -> M -> Y and A -> M -> D -> Y."""
    length = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[length - 1]


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
        The unfair paths, a sequence of tuples of node names in the order of ``graph.directed_paths``. No path is
        listed: 2^20 of them cost what the graph's edges cost.
    swapped
        Whether the roles of the two values of the sensitive attribute are swapped, see :meth:`reversed`.

    References
    ----------
    Chikahara et al. (2021), section 2.2 and appendix A.3; Avin, Shpitser and Pearl (2005).

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> unfair = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")
    >>> list(unfair.paths)
    [('A', 'M', 'Y')]
    """

    graph: CausalGraph
    paths: PathSet
    swapped: bool = False

    def __post_init__(self) -> None:
        if not hasattr(self.graph, "directed_paths"):
            raise GraphError(f"graph={shown(self.graph)} must be a CausalGraph.")
        if not isinstance(self.paths, PathSet):
            if isinstance(self.paths, str) or (named := listed(self.paths)) is None:
                raise GraphError(f"paths={shown(self.paths)} must list paths, such as ['A -> D -> Y'].")
            object.__setattr__(self, "paths", self.graph.unfair(*named).paths)

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
        """The shared features: observed ancestors of the prediction that no unfair path touches, in graph order."""
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

    def with_contrast(self, contrast: Hashable) -> UnfairPaths:
        """Return the same paths, with another value, or each (None), compared with the baseline."""
        return replace(self, graph=self.graph.with_contrast(contrast))

    def recanting_witnesses(self) -> list[tuple[str, Path, Path]]:
        """Return each node where an unfair and a fair path part after a common first edge, with one such pair.

        Each is (witness, unfair path, fair path). Without latent nodes the set is identified if and only if there is
        none (Avin, Shpitser and Pearl, 2005; Chikahara et al., 2021, definition 3).
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
        lines = []
        for word, paths in (("unfair: ", self.paths), ("fair:   ", self.fair_paths)):
            lines += [f"{word}{show_path(path)}" for path in paths.named]
            lines += [f"{word}... ({show_count(paths.size)} paths)"] if paths.size > SHOWN else []
        lines = lines if self.paths else ["unfair: no path", *lines]
        lines.append(f"shared by both worlds: {', '.join(self.shared) or 'nothing observed'}")
        if self.swapped:
            zero, one = (self.graph.named(each) for each in (self.graph.baseline, self.graph.contrast))
            lines.append(
                f"swapped: the baseline world has {self.graph.sensitive}={one!r} on all paths, and the other "
                f"{zero!r} on the unfair ones"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        paths = repr(self.paths).removeprefix("PathSet(").removesuffix(")")
        return f"UnfairPaths({paths}{', swapped' if self.swapped and paths else ''})"


def require_unfair(name: str, value: object, *, each: bool = False) -> UnfairPaths:
    """Return unfair paths, or refuse all else, an empty set, and without ``each`` a graph that names no contrast."""
    require_instance(name, value, UnfairPaths, "unfair paths, made by graph.unfair(...)")
    unfair = cast("UnfairPaths", value)
    if not unfair.paths:
        raise DataError(
            f"{name} holds no path, so there is nothing to ask: without an unfair path there is no unfair effect. Name "
            f"at least one: graph.unfair('A -> Y', ...), direct=True or through=[...]. The paths: "
            f"{show_paths(unfair.fair_paths)}."
        )
    if not each:
        unfair.graph.require_contrast()
    return unfair


@dataclass(frozen=True)
class Regime:
    """One world, ``"baseline"`` or ``"unfair"``: the value of the sensitive attribute that each path carries.

    Unfair paths carry ``on_unfair`` and all others ``on_fair``, each 0 (baseline) or 1 (contrast). Both worlds are
    :attr:`pyrofair.UnfairPaths.regimes`.

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y").unfair("A -> Y").regimes[1]
    Regime('unfair', unfair paths carry 1, fair ones 0)
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

        A NotIdentifiedError if one would have to read both values: there is a recanting witness.
        """
        if self.on_unfair != self.on_fair and (witnesses := self.unfair.recanting_witnesses()):
            raise NotIdentifiedError(witness_message(*witnesses[0]))
        values = dict.fromkeys(self.unfair.fair_paths.first_steps, self.on_fair)
        values |= dict.fromkeys(self.unfair.paths.first_steps, self.on_unfair)
        graph = self.unfair.graph
        return {child: values[child] for child in graph.children(graph.sensitive) if child in values}

    def reversed(self) -> Regime:
        """Return the regime with 0 and 1 swapped."""
        return replace(self, unfair=self.unfair.reversed(), on_unfair=1 - self.on_unfair, on_fair=1 - self.on_fair)


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
        chosen.update(path for path in every if any(_says_yes(test, path) for test in tests))
    return _named_or_through(every, chosen, frozenset(through))


def _says_yes(test: Callable[[Path], bool], path: Path) -> bool:
    """Return whether a path is unfair by a function; GraphError if the function fails."""
    try:
        return bool(test(path))
    except Exception as error:
        raise GraphError(f"{shown(test)}, a function of a path, fails for {path}: {error!r:.200}.") from error


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
