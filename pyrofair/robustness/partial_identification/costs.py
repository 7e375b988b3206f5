"""The probability of an event in both worlds for each combination of response types and each value of a context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from pyrofair.effects.bounds import bounds_of_marginals
from pyrofair.robustness.partial_identification.evaluations import Evaluation, Part
from pyrofair.robustness.partial_identification.response_types import Cells, Factors, Plan, flat_index

__all__ = ["QUANTITIES", "Contexts", "Costs", "Head", "Quantity", "find_contexts", "tabulate"]

Codes = NDArray[np.int64]
Vector = NDArray[np.float64]
Quantity = str
QUANTITIES: Mapping[Quantity, tuple[int, ...]] = {"y0": (0,), "ypi": (1,), "effect": (0, 1), "piu": (0, 1)}
"""The quantities, each with the worlds that it needs."""

MOST_AT_ONCE = 1_000_000
"""About so many combinations of types and values are held at once."""


@dataclass(frozen=True, eq=False)
class Head:
    """The probability of the positive outcome for each value of what it reads, flat; NaN where it is unknown.

    ``drawn`` is whether a decision is drawn anew in each world, so that equal inputs may give two decisions. Otherwise
    the outcome has response types, which are independent of all others, and ``couples`` whether their joint
    distribution is free (of a known function it is not).
    """

    reads: tuple[str, ...]
    probability: Vector
    drawn: bool = False
    couples: bool = True


@dataclass(frozen=True, eq=False)
class Contexts:
    """The values of a context, rows (k, nodes), their probabilities (k,), and what of all is left undetermined."""

    rows: Codes
    weight: Vector
    lost: float


@dataclass(frozen=True, eq=False)
class Costs:
    """Contributions to the lower and the upper bound of each quantity, (contexts, types); and what is undetermined.

    ``lost`` is the mass on values whose distribution, and ``unknown`` that on cells whose outcome is not known;
    ``pairs_fit`` is whether the upper ends of all pairs of cells of the outcome can be attained together.
    """

    ends: Mapping[Quantity, tuple[Vector, Vector]]
    lost: float
    unknown: float
    pairs_fit: bool


class _Particles:
    """Weighted combinations of a context, of types and of the values of what has been evaluated."""

    def __init__(self, plan: Plan, contexts: Codes, context: Codes, types: Codes, weight: Vector) -> None:
        self.plan, self.contexts = plan, contexts
        self.context, self.types, self.weight = context, types, weight
        self.found: dict[Evaluation, Codes] = {}
        self.column = {node: i for i, node in enumerate(plan.context)}

    def value(self, name: str, part: Part | None) -> Codes | int:
        """Return the value of a node: its part, or what the context holds."""
        if isinstance(part, int):
            return part
        if part is not None and part in self.found:
            return self.found[part]
        held: Codes = self.contexts[self.context, self.column[name]]
        return held

    def outcome_cell(self, world: int) -> Codes:
        """Return the flat index of what the outcome reads in a world, shape (p,)."""
        parts, reads = self.plan.observed.outcome_reads(world), self.plan.head or ()
        values = [self.value(name, parts.get(name)) for name in reads]
        return np.broadcast_to(flat_index(values, [self.plan.sizes[name] for name in reads]), self.weight.shape)

    def outcome(self, world: int) -> Vector:
        """Return the outcome, 0 or 1, in a world, where it has been evaluated, shape (p,)."""
        part = dict(self.plan.observed.worlds[world])[self.plan.observed.graph.outcome]
        return np.asarray(self.value(self.plan.observed.graph.outcome, part), dtype=np.float64)

    def take(self, chosen: Codes | NDArray[np.bool_]) -> None:
        """Keep some particles, in the order given."""
        self.context, self.types, self.weight = self.context[chosen], self.types[chosen], self.weight[chosen]
        self.found = {each: values[chosen] for each, values in self.found.items()}

    def branch(self, each: Evaluation, factors: Factors) -> tuple[Codes, Codes, Vector]:
        """Draw all values of an identified evaluation; return the particles for which it is unknown."""
        plan, node = self.plan, each.node
        parts, given = plan.conditions[node], plan.observed.given[node]
        values = [self.value(name, parts.get(name)) for name in given]
        at = np.broadcast_to(flat_index(values, [plan.sizes[name] for name in given]), self.weight.shape)
        size = plan.sizes[node]
        probability = factors[node].reshape(-1, size)[at]
        unknown = np.isnan(probability[:, 0])
        lost = self.context[unknown], self.types[unknown], self.weight[unknown]
        known, value = np.nonzero(probability > 0.0)  # NaN is left out
        new = probability[known, value]
        self.take(known)
        self.weight = self.weight * new
        self.found[each] = value
        return lost


def find_contexts(plan: Plan, cells: Cells, weight: Vector, factors: Factors) -> Contexts:
    """Return the values of the context with their probabilities, from the weights (c,) of the different rows."""
    inner = [node for node in plan.context if node not in {each.node for each in plan.shared}]
    columns = [cells.column(node) for node in inner]
    rows = np.stack(columns, axis=1) if columns else np.zeros((len(weight), 0), dtype=np.int64)
    known, index = np.unique(rows, axis=0, return_inverse=True)
    share = np.bincount(index.ravel(), weight, len(known)) / weight.sum()
    values = np.zeros((len(known), len(plan.context)), dtype=np.int64)
    for i, node in enumerate(inner):
        values[:, plan.context.index(node)] = known[:, i]
    positive = np.flatnonzero(share > 0.0)
    own = _Particles(plan, values, positive, np.zeros_like(positive), share[positive])
    lost = sum(float(own.branch(each, factors)[2].sum()) for each in plan.shared)
    values = values[own.context]
    for each in plan.shared:
        if each.node in plan.context:
            values[:, plan.context.index(each.node)] = own.found[each]
    return Contexts(values, own.weight, lost)


def tabulate(plan: Plan, contexts: Contexts, factors: Factors, head: Head | None, names: Sequence[Quantity]) -> Costs:
    """Return for each context and combination of types what each quantity is, times the context's probability.

    The quantities are of the same worlds; ``head`` is None where the outcome is among the groups.
    """
    worlds = QUANTITIES[names[0]]
    shape = len(contexts.weight), plan.types
    ends = {name: (np.zeros(shape), np.zeros(shape)) for name in names}
    lost, unknown, pairs = 0.0, 0.0, set[tuple[int, int]]()
    for own, missing in _evaluated(plan, contexts, factors):
        for context, types, weight in missing:
            lost += float(weight.sum()) / plan.types
            for name in names:
                if name == "effect":
                    np.subtract.at(ends[name][0], (context, types), weight)
                np.add.at(ends[name][1], (context, types), weight)
        cells = [own.outcome_cell(world) for world in worlds]
        chances = [own.outcome(world) if head is None else head.probability[cells[i]] for i, world in enumerate(worlds)]
        unknown += sum(float(own.weight[np.isnan(each)].sum()) for each in chances) / plan.types
        same = cells[0] == cells[-1]
        if head is not None and head.couples and len(worlds) > 1:
            both = np.unique(np.stack([cells[0][~same], cells[1][~same]], axis=1), axis=0)
            pairs |= {(int(one), int(other)) for one, other in both}
        same &= head is not None and not head.drawn
        place = own.context * plan.types + own.types
        for name in names:
            for end, value in zip(ends[name], _ends(name, chances[0], chances[-1], same), strict=True):
                end += np.bincount(place, own.weight * value, shape[0] * shape[1]).reshape(shape)
    return Costs(ends, lost, unknown, not pairs or nx.is_bipartite(nx.Graph(list(pairs))))


def _evaluated(
    plan: Plan, contexts: Contexts, factors: Factors
) -> Iterator[tuple[_Particles, list[tuple[Codes, Codes, Vector]]]]:
    """Yield particles, context by context, with all nodes evaluated, and those for which some could not be."""
    sizes = [group.size for group in plan.groups]
    of = {node: i for i, group in enumerate(plan.groups) for node in group.nodes}
    spread = int(np.prod([plan.sizes[e.node] for e in plan.order if e.node not in of], dtype=np.float64))
    step = max(1, MOST_AT_ONCE // (plan.types * max(1, min(spread, MOST_AT_ONCE))))
    for start in range(0, len(contexts.weight), step):
        chosen = np.arange(start, min(start + step, len(contexts.weight)))
        types, weight = np.tile(np.arange(plan.types), len(chosen)), np.repeat(contexts.weight[chosen], plan.types)
        own = _Particles(plan, contexts.rows, np.repeat(chosen, plan.types), types, weight)
        missing = []
        for each in plan.order:
            if each.node not in of:
                missing.append(own.branch(each, factors))
                continue
            group = plan.groups[i := of[each.node]]
            values = {name: own.value(name, part) for name, part in each.reads}
            cell = np.broadcast_to(group.cell(each.node, values), own.types.shape)
            own_type = own.types // int(np.prod(sizes[i + 1 :])) % sizes[i]
            own.found[each] = group.table[own_type, group.cells[each.node][cell]].astype(np.int64)
        yield own, missing


def _ends(name: Quantity, a: Vector, b: Vector, same: NDArray[np.bool_]) -> tuple[Vector, Vector]:
    """Return the least and the greatest value of a quantity given P(outcome = 1) in both worlds; NaN is all of [0, 1].

    ``same`` marks equal outcomes.
    """
    low_a, high_a = np.nan_to_num(a, nan=0.0), np.nan_to_num(a, nan=1.0)
    if name in ("y0", "ypi"):
        return low_a, high_a
    low_b, high_b = np.nan_to_num(b, nan=0.0), np.nan_to_num(b, nan=1.0)
    effect, piu = bounds_of_marginals((low_a, high_a), (low_b, high_b))
    lower, upper = effect if name == "effect" else piu
    return np.where(same, 0.0, lower), np.where(same, 0.0, upper)
