"""Response types: the functions from what a node reads to its value, and what the data say of their distribution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from pyrofair.robustness.partial_identification.evaluations import Evaluation, ObservedGraph, Part

__all__ = ["Cells", "Factors", "Group", "Plan", "flat_index", "plan_program"]

Codes = NDArray[np.int64]
Vector = NDArray[np.float64]
Factors = Mapping[str, Vector]
"""For each node P(node | what its factor is conditioned on), flat, the node's value last; NaN where it is unknown."""


def flat_index(values: Sequence[Codes | int], sizes: Sequence[int]) -> Codes:
    """Return the index of values in an array of these sizes, the last value fastest; 0 without any."""
    found: Codes = np.zeros((), dtype=np.int64)
    for value, size in zip(values, sizes, strict=True):
        found = found * size + value
    return found


def _place(observed: ObservedGraph, sizes: Mapping[str, int], node: str, values: Mapping[str, Codes | int]) -> Codes:
    """Return the index in the factor of a node of values of it and of what it is conditioned on.

    What is missing from the values counts as 0, so that the index of the others adds up with that of the rest.
    """
    nodes = (*observed.given[node], node)
    return flat_index([values.get(each, 0) for each in nodes], [sizes[each] for each in nodes])


@dataclass(frozen=True, eq=False)
class Cells:
    """The different rows of a table as codes (c, k) of its nodes, and the number of levels of each node."""

    graph: ObservedGraph
    sizes: Mapping[str, int]
    codes: Codes

    def column(self, node: str) -> Codes:
        """Return the codes of a node, shape (c,)."""
        return self.codes[:, self.graph.nodes.index(node)]

    @cached_property
    def _positions(self) -> dict[str, Codes]:
        """For each node the position of each row in its factor."""
        columns = {node: self.column(node) for node in self.graph.given}
        return {node: _place(self.graph, self.sizes, node, columns) for node in columns}

    def factors(self, weight: Vector) -> dict[str, Vector]:
        """Return the factors of all nodes from the weights (c,) of the rows."""
        found = {}
        for node, given in self.graph.given.items():
            size = self.sizes[node]
            length = size * prod(self.sizes[each] for each in given)
            joint = np.bincount(self._positions[node], weight, length).reshape(-1, size)
            total = joint.sum(axis=1, keepdims=True)
            found[node] = np.divide(joint, total, out=np.full_like(joint, np.nan), where=total > 0.0).ravel()
        return found


@dataclass(frozen=True, eq=False)
class Group:
    """Nodes whose response types have a joint distribution of their own, which the data do not determine.

    ``nodes`` are in topological order, as are ``blocks``, the sets of them whose factors the data determine. The nodes
    ``held``, the context, have fixed values and are no argument of a response; the distribution depends on the values
    of ``key``. ``cells`` has for each node and each value of what it reads (flat) the index of its response among all
    of a type, or -1 where the response does not matter; ``radices`` the number of values of each response. ``apart``
    are sets of nodes whose responses within one world are independent of each other, one of several nodes at most, and
    first; empty where all responses may depend on each other.
    """

    observed: ObservedGraph
    sizes: Mapping[str, int]
    nodes: tuple[str, ...]
    blocks: tuple[tuple[str, ...], ...]
    held: tuple[str, ...]
    key: tuple[str, ...]
    cells: Mapping[str, Codes]
    radices: tuple[int, ...]
    apart: tuple[tuple[str, ...], ...] = ()

    @property
    def size(self) -> int:
        """The number of response types."""
        return prod(self.radices)

    @property
    def entries(self) -> int:
        """About the number of entries of the matrix of constraints."""
        events = sum(prod(self.sizes[node] for node in {*block, *self._outside(block)}) for block in self.blocks)
        if self.apart:
            events += prod(self.sizes[node] for node in self.nodes) * prod(self.sizes[node] for node in self._set)
        return self.size * events

    def reads(self, node: str) -> tuple[str, ...]:
        """Return the arguments of a node's response."""
        return tuple(each for each in self.observed.parents[node] if each not in self.held)

    def cell(self, node: str, values: Mapping[str, Codes | int]) -> Codes:
        """Return the flat index of what a node reads."""
        reads = self.reads(node)
        return flat_index([values[each] for each in reads], [self.sizes[each] for each in reads])

    def _outside(self, block: Sequence[str]) -> tuple[str, ...]:
        read = {each for node in block for each in self.reads(node)} - {*block}
        return tuple(each for each in self.observed.nodes if each in read)

    @property
    def _set(self) -> tuple[str, ...]:
        """The nodes that are set in single worlds: those that one of the group reads."""
        read = {each for node in self.nodes for each in self.reads(node)}
        return tuple(each for each in self.observed.nodes if each in read)

    @cached_property
    def table(self) -> Codes:
        """The value of each response of each type, shape (t, responses), as small integers."""
        found = np.empty((self.size, len(self.radices)), dtype=np.int16)
        for i, radix in enumerate(self.radices):
            found[:, i] = np.arange(self.size) // prod(self.radices[i + 1 :]) % radix
        return found  # type: ignore[return-value]

    @cached_property
    def _rows(self) -> tuple[csr_array, NDArray[np.bool_], Codes, dict[str, tuple[Codes, Codes]]]:
        """The constraints: which types agree with an event, whether it is complete, and the positions in the factors.

        An event is values of what a block reads from outside, and of its nodes up to one of them. The third part is the
        index of the event with one node less, or -1.
        """
        events: list[tuple[NDArray[np.bool_], bool, int, dict[str, int]]] = []

        def extend(block: Sequence[str], values: dict[str, int], mask: Any, at: dict[str, int], shorter: int) -> None:
            """Add an event of the nodes so far, if there are any, and all that are longer."""
            own, column = shorter, -1
            if len(at) < len(block):
                node = block[len(at)]
                column = int(self.cells[node][self.cell(node, values)])
            if at:
                own = len(events)
                events.append((mask, column < 0, shorter, at))
            for value in range(self.sizes[node]) if column >= 0 else ():
                new = {**values, node: value}
                position = int(_place(self.observed, self.sizes, node, new))
                extend(block, new, mask & (self.table[:, column] == value), {**at, node: position}, own)

        every = np.ones(self.size, dtype=bool)
        for block in self.blocks:
            outside = self._outside(block)
            for values in product(*(range(self.sizes[each]) for each in outside)):
                extend(block, dict(zip(outside, values, strict=True)), every, {}, -1)
        masks, complete, before, used = zip(*events, strict=True) if events else ((), (), (), ())
        matrix = csr_array(np.asarray(masks, dtype=np.float64).reshape(len(masks), self.size))
        positions = {}
        for node in self.nodes:
            own = np.array([i for i, at in enumerate(used) if node in at], dtype=np.int64)
            positions[node] = own, np.array([used[i][node] for i in own], dtype=np.int64)
        return matrix, np.asarray(complete, dtype=bool), np.asarray(before, dtype=np.int64), positions

    def constraints(self, factors: Factors, context: Mapping[str, int]) -> tuple[csr_array, Vector, bool]:
        """Return the matrix (m, t) and the right sides (m,) of what the data say of the types, in a context.

        A factor that is unknown gives no constraint; the events before it do. The third part is whether one is unknown.
        """
        matrix, complete, before, positions = self._rows
        right = np.ones(len(complete))
        for node, (rows, at) in positions.items():
            right[rows] *= factors[node][at + int(_place(self.observed, self.sizes, node, context))]
        known = ~np.isnan(right)
        possible = (before < 0) | (right[before] > 0.0)  # not within an event of probability 0
        chosen = known & complete if known.all() else known
        matrix, right = matrix[np.flatnonzero(chosen)], right[chosen]
        if self.apart:
            extra = self._independences(factors, context)
            matrix, right = csr_array(vstack([matrix, extra])), np.append(right, np.zeros(extra.shape[0]))
        return matrix, right, bool((~known & possible).any())

    def _independences(self, factors: Factors, context: Mapping[str, int]) -> csr_array:
        """Return equations (m, t), with right sides 0, of responses of several sets of nodes within one world.

        In a world all nodes are set to values, and the responses of the single nodes have their factors' probabilities
        whatever those of the first set are.
        """
        first, others = self.apart[0], self.apart[1:]
        found: dict[tuple[tuple[int, ...], tuple[int, ...]], Vector] = {}
        for values in product(*(range(self.sizes[each]) for each in self._set)):
            world = dict(zip(self._set, values, strict=True))
            columns = tuple(int(self.cells[node][self.cell(node, world)]) for node in self.nodes)
            for responses in product(*(range(self.sizes[node]) for node in self.nodes)):
                if (columns, responses) in found:
                    continue
                at = dict(zip(self.nodes, zip(columns, responses, strict=True), strict=True))
                own = np.logical_and.reduce([self.table[:, at[node][0]] == at[node][1] for node in first])
                both, chance = own, 1.0
                for (node,) in others:
                    values_there = {**context, **world, node: at[node][1]}
                    chance *= float(factors[node][_place(self.observed, self.sizes, node, values_there)])
                    both = both & (self.table[:, at[node][0]] == at[node][1])
                if not np.isnan(chance):
                    found[columns, responses] = both - chance * own
        return csr_array(np.asarray([*found.values()]).reshape(len(found), self.size))


@dataclass(frozen=True, eq=False)
class Plan:
    """How a quantity of some worlds is computed.

    In each value of the ``context`` the response types of the ``groups`` are free within their constraints, and all
    other evaluations, ``order`` being all of them, have the identified distribution that ``conditions`` prescribes: for
    each node what stands for the nodes that its factor is conditioned on. ``inexact`` says why an optimum over this
    plan may lie outside the sharp bounds, a sentence each.
    """

    observed: ObservedGraph
    sizes: Mapping[str, int]
    context: tuple[str, ...]
    shared: tuple[Evaluation, ...]
    order: tuple[Evaluation, ...]
    conditions: Mapping[str, Mapping[str, Part]]
    groups: tuple[Group, ...]
    head: tuple[str, ...] | None
    inexact: tuple[str, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """The nodes of the context on which the distribution of response types depends."""
        return tuple(each for each in self.context if any(each in group.key for group in self.groups))

    @property
    def types(self) -> int:
        """The number of combinations of response types."""
        return prod(group.size for group in self.groups)


def _conditions(part: Sequence[str], found: Sequence[Evaluation]) -> dict[str, Part] | None:
    """Return what stands for each node in the factors of an identified part of a district; None if none does.

    All nodes must be evaluated once, and read the same evaluation of each node outside.
    """
    own = {each.node: each for each in found if each.node in part}
    if {*own} != {*part} or sum(each.node in part for each in found) != len(part):
        return None
    parts: dict[str, Part] = dict(own)
    for each in own.values():
        for name, read in each.reads:
            if parts.setdefault(name, read) is not read:
                return None
    return parts


def plan_program(
    observed: ObservedGraph,
    sizes: Mapping[str, int],
    worlds: Sequence[int],
    *,
    condition: str,
    independent: bool,
    typed: bool = False,
) -> Plan:
    """Plan how a quantity of some worlds is computed.

    ``condition`` says which nodes' values are fixed one after another: ``"shared"``, what is equal in both worlds and
    identified; ``"covariates"``; or ``"nothing"``. Response types of different districts may be ``independent``. The
    outcome may be ``typed``: have response types even where it is alone in its district, and each pair of cells that it
    reads could be coupled by itself.
    """
    outcome, sensitive = observed.graph.outcome, observed.sensitive
    found = observed.evaluations(*worlds)
    held: set[str] = {*observed.covariates} if condition != "nothing" else set()
    heads = [part for w in worlds for _, part in observed.worlds[w]] if not observed.known else []
    head: tuple[str, ...] | None = observed.graph.inputs if observed.known else None

    def rest(district: Sequence[str]) -> tuple[str, ...]:
        return tuple(each for each in district if each not in held)

    if not observed.known and rest(observed.district(outcome)) == (outcome,) and independent and not typed:
        head = observed.given[outcome]
        found = tuple(each for each in found if each not in heads)
    parts = [part for each in observed.districts if (part := rest(each)) and any(e.node in part for e in found)]
    conditions: dict[str, dict[str, Part]] = {}
    free: list[tuple[str, ...]] = []
    for part in parts:
        fixed = _conditions(part, found) if sensitive not in part else None
        if fixed is None or not independent:
            free.append(part)
        else:
            conditions |= dict.fromkeys(part, fixed)
    shared: list[Evaluation] = []
    if condition == "shared" and independent:
        for part in parts:  # in topological order of their first nodes: enough, for a part reads earlier ones
            own = [each for each in found if each.node in part]
            inputs = [name for each in own for name, read in each.reads if not isinstance(read, int)]
            if part not in free and all(name in held or name in part for name in inputs):
                shared += own
                held |= {*part}
    used = {name for each in found for name, _ in each.reads} | {*(head or ())}
    for part in parts:
        used |= {name for node in part for name in (node, *observed.given[node])}
    context = tuple(each for each in observed.nodes if each in held and each in used)
    inexact: list[str] = []
    if not independent:
        merged = tuple(each for each in observed.nodes if any(each in part for part in free))
        blocks = (*free, merged) if len(free) > 1 else tuple(free)
        groups = [_make_group(observed, sizes, merged, blocks, context, found)] if free else []
        free.sort(key=len, reverse=True)
        if len(free) > 1 and len(free[1]) > 1:
            inexact.append("that several districts of several nodes are independent in single worlds is not used")
        elif len(free) > 1:
            groups = [replace(groups[0], apart=tuple(free))]
    else:
        groups = [_make_group(observed, sizes, part, (part,), context, found) for part in free]
    inexact += _inexact(observed, groups, context, head)
    order = tuple(each for each in found if each.node not in held)
    return Plan(observed, sizes, context, tuple(shared), order, conditions, tuple(groups), head, tuple(inexact))


def _inexact(
    observed: ObservedGraph, groups: Sequence[Group], context: tuple[str, ...], head: tuple[str, ...] | None
) -> list[str]:
    """Return why to fix a context may lose constraints, and which districts have no one latent cause."""
    found = []
    sets = [{each for node in group.nodes for each in observed.district(node)} for group in groups]
    if head is not None and not observed.known:
        sets.append({*observed.district(observed.graph.outcome)})
    for inside in sets:
        names = ", ".join(each for each in observed.nodes if each in inside)
        outside = {frozenset({*observed.parents[node]} & {*context} - inside) for node in inside}
        if len(outside) > 1:
            found.append(
                f"given each value of {', '.join(context)}, the types of {names} are free, though these read different "
                "ones of them"
            )
        for district in observed.districts:
            if {*district} <= inside and not observed.has_one_cause(district):
                found.append(
                    f"no one latent node causes all of {', '.join(district)}, and what that excludes is not used"
                )
    keys = {frozenset(group.key) for group in groups}
    if len(keys) > 1:
        names = ", ".join(each for each in context if each in frozenset().union(*keys))
        found.append(f"given each value of {names}, types are free that do not depend on all of these")
    return found


def _make_group(
    observed: ObservedGraph,
    sizes: Mapping[str, int],
    nodes: tuple[str, ...],
    blocks: tuple[tuple[str, ...], ...],
    context: tuple[str, ...],
    found: Iterable[Evaluation],
) -> Group:
    """Return a group without the responses that neither an evaluation nor a constraint needs."""
    reads = {node: tuple(each for each in observed.parents[node] if each not in context) for node in nodes}
    counts = {node: prod(sizes[each] for each in reads[node]) for node in nodes}
    kept = {node: np.ones(counts[node], dtype=bool) for node in nodes}
    last = nodes[-1]
    outside = {each for node in nodes for each in reads[node]} - {*nodes}
    if len(blocks) == 1 and outside <= {*reads[last]}:
        # Given the other types, a response of the last node that is never evaluated can be drawn by its factor.
        kept[last][:] = False
        for each in found:
            if each.node == last:
                parts = dict(each.reads)
                at = ([part] if isinstance(part := parts[name], int) else range(sizes[name]) for name in reads[last])
                kept[last].reshape([sizes[name] for name in reads[last]])[np.ix_(*at)] = True
    cells, radices = {}, list[int]()
    for node in nodes:
        cells[node] = np.where(kept[node], len(radices) + np.cumsum(kept[node]) - 1, -1)
        radices += [sizes[node]] * int(kept[node].sum())
    inside = {each for node in nodes for each in observed.district(node)}
    key = inside.union(*(observed.parents[node] for node in inside)) & {*context}
    own = tuple(each for each in context if each in key)
    return Group(observed, sizes, nodes, blocks, context, own, cells, tuple(radices))
