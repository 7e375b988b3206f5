"""What can be done where an effect is not identified: other sets of paths, nodes to measure, bounds, equations."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from pyrofair.exceptions import FormulaNotApplicableError, GraphError, NotIdentifiedError
from pyrofair.graph.identification import Projection, Target, derive
from pyrofair.graph.parse import read_path
from pyrofair.graph.paths import LISTED, Path, PathSet, UnfairPaths, show_count, show_path
from pyrofair.graph.projection import LatentProjection
from pyrofair.graph.two_mediators import Form

__all__ = ["Bound", "Relabelling", "WaysOut", "find_ways_out"]

MOST_RELABELLINGS = 8
"""How many relabellings are kept, the smallest first."""
SHOWN_RELABELLINGS = 3
"""How many of them a message shows."""
MOST_MEASURED = 3
"""The largest set of latent nodes that is tried as observed."""
MOST_TRIED = 64
"""How many sets of latent nodes are tried as observed."""
NAMED = 3
"""How many paths a line of a message names, and how many a call names before a shorter one is looked for."""
LINE = 100
"""How many characters of paths a line of a message has."""


@dataclass(frozen=True, repr=False)
class Relabelling:
    """Another set of unfair paths, for which the effect is identified, and how it differs from the one asked for.

    No part of the change suffices: with fewer of the paths in ``add`` and ``remove`` moved, it is not identified.

    Parameters
    ----------
    unfair
        The set with the change made, which :func:`pyrofair.identify` accepts if ``formula`` is ``"edge"``.
    add, remove
        The paths that are now called unfair, and those that are no longer.
    formula
        ``"edge"``, the formula used here, or ``"other"``: identified, but by a formula that is not implemented.
    """

    unfair: UnfairPaths
    add: PathSet
    remove: PathSet
    formula: str = "edge"

    @property
    def size(self) -> int:
        """The number of paths that change sides."""
        return self.add.size + self.remove.size

    @property
    def empty(self) -> bool:
        """Whether no path is unfair then, so that both worlds are one and no effect is left to assess."""
        return not self.unfair.paths

    @property
    def code(self) -> str:
        """The call that makes the set: ``graph.unfair('A -> Y')``; an empty string where none is short."""
        return f"graph.unfair({arguments})" if (arguments := self._arguments()) is not None else ""

    @property
    def options(self) -> str:
        """The options of the command line that make the set: ``--unfair 'A -> Y'``; empty where there are none."""
        paths = [_written(path) for path in self.unfair.paths[: NAMED + 1]]
        if self.empty or None in paths or self.unfair.paths.size > NAMED:
            direct, through = self._through()
            if through is None or self.empty:
                return ""
            names = f"--through {shlex.join(through)}" if through else ""
            return " ".join(filter(None, ["--direct" if direct else "", names]))
        return f"--unfair {shlex.quote('; '.join(map(str, paths)))}"

    def _arguments(self) -> str | None:
        """Write the arguments of ``graph.unfair``: the paths, the nodes they run through, or a function of a path."""
        paths = self.unfair.paths
        if paths.size > NAMED:
            direct, through = self._through()
            if through is not None:
                named = f"through=[{', '.join(map(repr, through))}]" if through else ""
                return ", ".join(filter(None, ["direct=True" if direct else "", named]))
            graph = self.unfair.graph
            every, first = graph.directed_paths(graph.sensitive, graph.outcome), set(paths.first_steps)
            if every.size <= LISTED and first_in(every, first, ()) == paths:
                return f"lambda path: path[1] in {{{', '.join(repr(each) for each in paths.first_steps)}}}"
            if paths.size > 4 * NAMED:
                return None
        return ", ".join(repr(text) if (text := _written(path)) is not None else repr(path) for path in paths)

    def _through(self) -> tuple[bool, list[str] | None]:
        """Return whether the direct path is unfair, and the fewest nodes through which all others run, or None."""
        graph, paths = self.unfair.graph, self.unfair.paths
        every, edge = graph.directed_paths(graph.sensitive, graph.outcome), (graph.sensitive, graph.outcome)
        inner = [node for node in graph.order if node in paths.nodes and node not in edge]
        whole = [node for node in inner if not every.through([node]).without(paths)]
        direct = edge in paths
        rest = paths.without(graph.unfair(direct=True).paths) if direct else paths
        if rest.without(every.through(whole)):
            return direct, None
        for node in reversed(whole):
            fewer = [each for each in whole if each != node]
            if not rest.without(every.through(fewer)):
                whole = fewer
        return direct, whole

    def describe(self, *, options: bool = False) -> str:
        """Return the change as one line, as Python or as options of the command line."""
        written, changes = self.options if options else self.code, (("adds", self.add), ("takes away", self.remove))
        text = " and ".join(f"{verb} {_few(paths)}" for verb, paths in changes if paths)
        text += ", so that no path is unfair and nothing is left to assess" * self.empty
        text += "; by a formula that is not implemented" * (self.formula == "other")
        return f"{written}  # {text}" if written else text

    def __str__(self) -> str:
        return self.describe()

    def __repr__(self) -> str:
        return f"<Relabelling of {show_count(self.size)} path(s): {self.describe()}>"


@dataclass(frozen=True)
class Bound:
    """A name of the package that bounds or computes what is not identified, how it is called, and when it applies."""

    name: str
    call: str
    condition: str


@dataclass(frozen=True)
class WaysOut:
    """What can be done where :func:`pyrofair.identify` raises an error, which has it as ``error.way_out``; print it.

    Parameters
    ----------
    unfair, target
        What was asked.
    only_formula
        Whether the effect is identified by another formula, so that only the edge formula fails.
    other_formula
        By which, in words; an empty string where the effect is not identified.
    prediction
        Of ``target="outcome"``: whether the same effect on a prediction is identified. None for ``"prediction"``.
    relabellings
        The smallest changes of the unfair paths that make the effect identified: no part of one suffices. At most 8,
        those that move the fewest paths first.
    number
        How many such changes there are.
    measure
        The smallest sets of latent nodes, up to three in one, whose columns would make the effect identified with the
        paths as they are.
    bounds
        What bounds or computes the effect with the paths and columns as they are.

    References
    ----------
    Avin, Shpitser and Pearl (2005); Shpitser (2013); Tian and Pearl (2002).

    Examples
    --------
    >>> from pyrofair import CausalGraph, identify
    >>> graph = CausalGraph("A -> M -> D -> Y; {A M} -> Y", sensitive="A", outcome="Y")
    >>> try:
    ...     identify(graph.unfair("A -> M -> Y"))
    ... except NotIdentifiedError as error:
    ...     for each in error.way_out.relabellings:
    ...         print(each)
    graph.unfair('A -> M -> D -> Y', 'A -> M -> Y')  # adds A -> M -> D -> Y
    graph.unfair()  # takes away A -> M -> Y, so that no path is unfair and nothing is left to assess
    """

    unfair: UnfairPaths
    target: Target
    only_formula: bool
    other_formula: str
    prediction: bool | None
    relabellings: tuple[Relabelling, ...]
    number: int
    measure: tuple[tuple[str, ...], ...]
    bounds: tuple[Bound, ...]

    def describe(self, *, options: bool = False) -> str:
        """Return the ways as text, a line each, with calls of Python or options of the command line."""
        graph, lines = self.unfair.graph, []
        if self.only_formula:
            lines.append(f"Only this formula fails: the effect is identified by another one ({self.other_formula}).")
        if self.prediction:
            inputs = ", ".join(graph.inputs)
            call = "--target prediction" if options else 'pf.identify(unfair, target="prediction")'
            lines.append(
                f"The effect on a prediction made from {inputs} is identified, for a classifier is a known function of "
                f"these and what else causes {graph.outcome} plays no part: {call}."
            )
        elif self.prediction is False:
            lines.append("The effect on a prediction is not identified by this formula either.")
        if shown := self.relabellings[:SHOWN_RELABELLINGS]:
            more = f" ({show_count(self.number)} in all)" if self.number > len(shown) else ""
            lines.append(f"Identified with other unfair paths, the smallest changes{more}:")
            lines += [f"  {each.describe(options=options)}" for each in shown]
        elif not self.only_formula:
            lines.append("No other set of unfair paths is identified: the cause lies in what joins the nodes.")
        if self.measure:
            sets = " or ".join(" with ".join(each) for each in self.measure)
            lines.append(f"Identified with these paths if measured: {sets}.")
        elif graph.latent:
            lines.append(f"Measuring latent nodes (up to {MOST_MEASURED} of them) does not make it identified.")
        lines += [f"{each.name}: {each.call}, {each.condition}." for each in self.bounds if not options]
        if options:
            lines.append(f"From Python: {', '.join(each.call for each in self.bounds)}.")
        return "\n".join(["What can be done:", *(f"  {line}" for line in lines)])

    def __str__(self) -> str:
        return self.describe()


def find_ways_out(unfair: UnfairPaths, target: Target, cause: NotIdentifiedError) -> WaysOut:
    """Return what can be done where a set of unfair paths is not identified, or not by the edge formula.

    All paths that reach one observed child of the sensitive attribute first, hidden nodes aside, must be on one side;
    so must those to children in one district. A set is identified if and only if each such class is on one side, so a
    smallest change moves, of each class on both sides, either the unfair paths or the fair ones.
    """
    projection = Projection(unfair, target)
    only_formula = isinstance(cause, FormulaNotApplicableError)
    found: list[Relabelling] = []
    number = 0
    if projection.reachable:
        classes = _classes(unfair, projection.hidden_last_edges, projection.districts)
        coarse = _classes(unfair, projection.hidden_last_edges, projection.all_districts)
        if projection.separate:
            found, number = _smallest_changes(unfair, coarse)
        if not only_formula:
            finer, more = _smallest_changes(unfair, classes)
            new = [each for each in finer if not projection.separate or _is_mixed(each.unfair, coarse)]
            found += [replace(each, formula="other") for each in new]
            number = max(number, more)
    found.sort(key=lambda each: (each.formula == "other", each.empty, each.size))
    return WaysOut(
        unfair,
        target,
        only_formula,
        _other_formula(projection.tian, projection.separate) if only_formula else "",
        None if target == "prediction" else _is_identified(unfair, "prediction"),
        tuple(found[:MOST_RELABELLINGS]),
        max(number, len(found)),
        _to_measure(unfair, target, projection.latent),
        _bounds(unfair, target),
    )


def first_in(paths: PathSet, children: Iterable[str], hidden: Sequence[str]) -> PathSet:
    """Return the paths whose first node after the start, hidden ones aside, is one of some children."""
    wanted = frozenset(children)

    def step(state: bool | None, _: str, node: str) -> bool | None:
        if state:
            return True
        if node in hidden:
            return False
        return True if node in wanted else None

    return paths.select(False, step, bool)


def _classes(
    unfair: UnfairPaths, unread: Sequence[tuple[str, str]], districts: Sequence[set[str]]
) -> list[tuple[PathSet, PathSet]]:
    """Return for each class of paths that must be on one side its unfair and its fair paths."""
    graph = unfair.graph
    parts = [paths.without_edges(unread) for paths in (unfair.paths, unfair.fair_paths)]
    children = {child for part in parts for child in part.first_past(graph.latent)}
    groups: list[set[str]] = [joined for district in districts if (joined := children & district)]
    groups += [{child} for child in graph.nodes if child in children and not any(child in each for each in groups)]
    return [(first_in(parts[0], own, graph.latent), first_in(parts[1], own, graph.latent)) for own in groups]


def _is_mixed(unfair: UnfairPaths, classes: Sequence[tuple[PathSet, PathSet]]) -> bool:
    """Return whether a set of paths has a part, and no more, of a class."""

    def side(part: PathSet) -> str:
        outside = part.without(unfair.paths)
        return "in" if not outside else "out" if outside == part else "both"

    found = ({side(part) for part in pair if part} for pair in classes)
    return any(len(sides) > 1 or "both" in sides for sides in found)


def _smallest_changes(unfair: UnfairPaths, classes: Sequence[tuple[PathSet, PathSet]]) -> tuple[list[Relabelling], int]:
    """Return the changes, no part of which suffices, that move the fewest paths, and how many changes there are."""
    mixed = [pair for pair in classes if pair[0] and pair[1]]
    if not mixed:
        return [], 0
    best: list[tuple[int, tuple[PathSet, ...], tuple[PathSet, ...]]] = [(0, (), ())]
    for own, fair in mixed:
        longer = [(size + fair.size, (*add, fair), remove) for size, add, remove in best]
        longer += [(size + own.size, add, (*remove, own)) for size, add, remove in best]
        best = sorted(longer, key=lambda each: each[0])[:MOST_RELABELLINGS]  # those of all are among those of parts
    found = []
    for _, more, fewer in best:
        add, remove = _union(unfair, more), _union(unfair, fewer)
        paths = _union(unfair, (unfair.paths.without(remove), add))
        found.append(Relabelling(replace(unfair, paths=paths), add, remove))
    return found, 2 ** len(mixed)


def _union(unfair: UnfairPaths, parts: Iterable[PathSet]) -> PathSet:
    """Return the paths in any of several sets."""
    every = unfair.graph.directed_paths(unfair.graph.sensitive, unfair.graph.outcome)
    outside = every
    for part in parts:
        outside = outside.without(part)
    return every.without(outside)


def _is_identified(unfair: UnfairPaths, target: Target) -> bool:
    try:
        derive(unfair, target)
    except NotIdentifiedError:
        return False
    return True


def _to_measure(unfair: UnfairPaths, target: Target, latent: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the smallest sets of latent nodes with which as columns the effect is identified."""
    found: list[tuple[str, ...]] = []
    graph, tried = unfair.graph, 0
    for nodes in (each for size in range(1, 1 + MOST_MEASURED) for each in combinations(latent, size)):
        if any({*each} <= {*nodes} for each in found):
            continue
        tried += 1
        if tried > MOST_TRIED:
            break
        columns = {node: names for node, names in graph.column_map if not {*names} & {*nodes}}
        with contextlib.suppress(GraphError):  # a prediction is made before its outcome has effects
            seen = graph.remade(latent=[node for node in graph.latent if node not in nodes], columns=columns)
            found += [nodes] if _is_identified(replace(unfair, graph=seen), target) else []
    return tuple(found)


def _other_formula(tian: bool, separate: bool) -> str:
    """Return in words which formula identifies what the edge formula does not."""
    if separate:
        return "the children that read different values are joined only through nodes that the target does not need"
    if tian:
        return "no child of the sensitive attribute is in its district, such as a front door; Tian and Pearl, 2002"
    return "by fixing other nodes first, as the ID algorithm does; Shpitser and Pearl, 2006"


def _bounds(unfair: UnfairPaths, target: Target) -> tuple[Bound, ...]:
    score = "" if target == "outcome" else ", score=model"
    found = [Bound("Bounds", f"pf.sharp_bounds(unfair, df{score})", "where every column takes few values")]
    if form := _closed_form(unfair, target):
        of = "" if target == "prediction" else f" of the regression of {unfair.graph.outcome} on its parents"
        where = f"where {form.mediator} takes few values"
        found.insert(0, Bound(f"Closed-form bounds{of}", "pf.MilesBounds(unfair)", where))
    strength = "which computes any set of paths, on the strength of its equations, which data do not determine"
    return (*found, Bound("Structural equations", "pf.SEM(program, unfair)", strength))


def _closed_form(unfair: UnfairPaths, target: Target) -> Form | None:
    """Return the closed form for two mediators if it bounds the effect on a target."""
    try:
        form = Form.of(unfair, literal=False)
    except GraphError:
        return None
    # The regression of the outcome on A, R and M is the mean of Y(a, m) given R only without these latent causes.
    graph = unfair.graph
    projection = LatentProjection.of(graph, known=False)
    pairs = ({form.mediator, form.witness}, {form.mediator, graph.outcome}, {graph.sensitive, graph.outcome})
    joined = any(pair <= projection.below[node] for pair in pairs for node in projection.latent)
    return None if joined and target == "outcome" else form


def _written(path: Path) -> str | None:
    """Write a path so that it is read back as it is, names in quotes where they need them; None if it cannot be."""
    for text in (show_path(path), " -> ".join(json.dumps(node, ensure_ascii=False) for node in path)):
        try:
            if read_path(text) == path:
                return text
        except GraphError:
            continue
    return None


def _few(paths: PathSet) -> str:
    """Write the first paths, as far as a line goes, and how many there are if these are not all."""
    shown: list[str] = []
    for path in paths[:NAMED]:
        if shown and len("; ".join([*shown, show_path(path)])) > LINE:
            break
        shown.append(show_path(path))
    text = "; ".join(shown)
    text = text if len(text) <= LINE else f"{text[:LINE]}..."
    return text if paths.size == len(shown) else f"{text}; ... ({show_count(paths.size)} paths)"
