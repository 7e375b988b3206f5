"""The parts of a group difference: which worlds they compare, by what weights, and their estimates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, product
from math import comb
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.effects.estimates import Estimate, Estimates, Share, reach_of_all
from pyrofair.graph import CausalGraph, UnfairPaths
from pyrofair.graph.first_edges import Block, Switched, beginning_with, heads_of, partitions_of, subsets_of

__all__ = [
    "CONFOUNDING",
    "FAIR_PATHS",
    "GAP",
    "NONE",
    "TOTAL",
    "UNFAIR_PATHS",
    "Means",
    "Pieces",
    "Plan",
    "tell_all",
    "union_of",
]

GAP, CONFOUNDING, TOTAL = "gap", "confounding", "total effect"
UNFAIR_PATHS, FAIR_PATHS = "unfair paths", "fair paths"
TABLE_COLUMNS = (
    "model", "decisions", "part", "estimate", "lower", "upper", "smallest", "largest", "share",
)  # fmt: skip
NONE = Switched()
"""The baseline: nothing is switched."""
Pair = tuple[str, Any]
"""A model and decisions."""


def union_of(blocks: Sequence[Block]) -> Switched:
    """Return the heads of some blocks."""
    return NONE.union(*blocks)


@dataclass(frozen=True, eq=False)
class Pieces:
    """What a difference is split along: first edges, by their heads, or the unfair paths and the fair ones as wholes.

    ``groups`` are the heads by whether their paths are unfair, if that was said; ``order`` is the only one if stated.
    """

    graph: CausalGraph
    groups: tuple[Block, ...]
    whole: Mapping[str, UnfairPaths] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    swapped: bool = False
    order: Block | None = None

    @classmethod
    def of(cls, graph: CausalGraph, unfair: UnfairPaths | None, names: Mapping[str, str]) -> Pieces:
        """Return the first edges, or, if unfair and fair paths begin with one edge, these as wholes."""
        if unfair is None:
            every = graph.directed_paths(graph.sensitive, graph.outcome)
            return cls(graph, (heads_of(every, graph),), names=names)
        groups = [heads_of(paths, graph) for paths in (unfair.paths, unfair.fair_paths)]
        kept, swapped = tuple(filter(None, groups)), unfair.swapped
        if not {*groups[0]} & {*groups[1]}:
            return cls(graph, kept, names=names, swapped=swapped)
        whole = {UNFAIR_PATHS: unfair, FAIR_PATHS: unfair.complement()}
        return cls(graph, ((UNFAIR_PATHS,), (FAIR_PATHS,)), whole, names, swapped)

    @property
    def heads(self) -> Block:
        """All heads."""
        return tuple(head for group in self.groups for head in group)

    def paths(self, switched: Switched) -> UnfairPaths:
        """Return the paths that are switched."""
        if self.whole and len(switched) == 1:
            return self.whole[next(iter(switched))]
        graph = self.graph
        every = graph.directed_paths(graph.sensitive, graph.outcome)
        heads = heads_of(every, graph) if self.whole and switched else switched
        return replace(beginning_with(heads, graph), swapped=self.swapped)

    def named(self, block: Sequence[str]) -> str:
        """Return the words for a block."""
        if self.whole:
            return " and ".join(block)
        outcome, names = self.graph.outcome, self.names
        return " and ".join("directly" if head == outcome else f"by way of {names.get(head, head)}" for head in block)

    def named_world(self, switched: Switched) -> str:
        """Return the name of a world: the first nodes of the paths that are switched, "direct" for the direct edge."""
        names = self.names if self.whole else {**self.names, self.graph.outcome: "direct"}
        return " + ".join(names.get(head, head) for head in self.heads if head in switched) or "baseline"


@dataclass(frozen=True)
class Contrast:
    """What a block of first edges adds once others are switched ``after`` it, and its weight in the part's average."""

    block: Block
    after: Switched
    weight: float

    @property
    def switched(self) -> Switched:
        """The first edges that are switched with the block."""
        return self.after | {*self.block}


@dataclass(frozen=True)
class Plan:
    """Blocks of first edges, in groups whose blocks are switched one right after the other.

    Parts are averages over all orders of the groups, and of the blocks in each; ``stated``: one order alone counts.
    """

    groups: tuple[tuple[Block, ...], ...]
    stated: bool = False

    @classmethod
    def finest(cls, groups: Sequence[Block], good: Callable[[Switched], bool]) -> Plan | None:
        """Return the plan of most blocks whose every world is good; None if there is none.

        What cannot be told apart is one block: the worlds that would part it are not good.
        """
        place = {head: i for i, head in enumerate(head for group in groups for head in group)}
        plans = [
            cls(tuple(tuple(sorted(blocks, key=lambda block: place[block[0]])) for blocks in found))
            for found in product(*map(partitions_of, groups))
        ]
        plans.sort(key=lambda plan: -len(plan.blocks))
        return next((plan for plan in plans if all(map(good, plan.worlds))), None)

    @classmethod
    def in_order(cls, order: Block, good: Callable[[Switched], bool]) -> Plan | None:
        """Return the plan of one order; edges between two good worlds are one block. None if an end is not good."""
        ends = [i for i in range(len(order) + 1) if good(Switched(order[:i]))]
        if not ends or (ends[0], ends[-1]) != (0, len(order)):
            return None
        return cls((tuple(order[first:last] for first, last in pairwise(ends)),), stated=True)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks, one group after the other."""
        return tuple(block for group in self.groups for block in group)

    @property
    def contrasts(self) -> list[Contrast]:
        """Every comparison that a part averages, with the weights of Shapley, or of Owen if there are groups."""
        if self.stated:
            return [Contrast(block, union_of(self.blocks[:i]), 1.0) for i, block in enumerate(self.blocks)]
        found = []
        for group, block in ((own, each) for own in self.groups for each in own):
            others = [tuple(head for each in other for head in each) for other in self.groups if other != group]
            beside = [each for each in group if each != block]
            for first, then in product(subsets_of(others), subsets_of(beside)):
                weight = _of_orders(sum(each[0] in first for each in others), len(others))
                weight *= _of_orders(sum(each[0] in then for each in beside), len(beside))
                found.append(Contrast(block, first | then, weight))
        return found

    @property
    def worlds(self) -> list[Switched]:
        """Every set of first edges that a part compares, the smallest first."""
        every = {each for contrast in self.contrasts for each in (contrast.after, contrast.switched)}
        return sorted(every, key=lambda each: (len(each), sorted(each)))


def _of_orders(k: int, n: int) -> float:
    """Return the share of the orders of n + 1 things in which k given ones, and no others, come before the last."""
    return 1.0 / ((n + 1) * comb(n, k))


@dataclass(frozen=True, eq=False)
class Means:
    """The means of scores in every world of a plan, and in both groups (0 and 1), by model and decisions.

    Parameters
    ----------
    of
        Their estimates; columns (model, decisions, world or group).
    sizes
        The effective rows of each world and group.
    plan, pieces
        The plan, and what it is made of.
    beside
        The observed outcome, if models are compared with it.
    within, absent
        The means in each level of subgroups, by both names, and why some have none.
    """

    of: Estimates
    sizes: Mapping[Any, float]
    plan: Plan
    pieces: Pieces
    beside: Pair | None = None
    within: Mapping[tuple[str, Any], Means] = field(default_factory=dict)
    absent: Mapping[tuple[str, Any], str] = field(default_factory=dict)

    @property
    def groups(self) -> Sequence[str]:
        """The names of the groups of the plan, if these are parts themselves."""
        return (UNFAIR_PATHS, FAIR_PATHS) if len(self.plan.groups) > 1 and not self.pieces.whole else ()

    @cached_property
    def _means(self) -> dict[Any, float]:
        return dict(zip(self.of.influence.columns, self.of.mean.tolist(), strict=True))

    def sum_of(self, pair: Pair, factors: Mapping[Any, float]) -> Estimate:
        """Return the estimate of a sum of means, of decisions at least as uncertain as the shares that it is made of.

        Of worlds it is the share of rows whose answer they turn to yes, less that of those whom they turn to no.
        """
        places = {(*pair, each): factor for each, factor in factors.items()}
        if pair[1] == "score":
            return self.of.sum_of(places)
        worlds = [each for each in factors if isinstance(each, frozenset)]
        shares = [
            Share(self._means[*pair, group], self.sizes[group], factors[group])
            for group in factors
            if group not in worlds
        ]
        if worlds:
            value = sum(factors[each] * self._means[*pair, each] for each in worlds)
            size = min(self.sizes[each] for each in worlds)
            shares += [Share(max(value, 0.0), size), Share(max(-value, 0.0), size, -1.0)]
        return self.of.sum_of(places, shares)

    @property
    def pairs(self) -> list[Pair]:
        """The models and decisions."""
        labels: Any = self.of.influence.columns
        return list(dict.fromkeys((model, decisions) for model, decisions, _ in labels))

    def placed(self, rows: NDArray[np.int64], units: NDArray[np.int64] | None) -> Means:
        """Return the means, of rows at these positions in a longer table, with its codes of clusters."""
        within = {key: each.placed(rows, units) for key, each in self.within.items()}
        return replace(self, of=self.of.placed(rows[self.of.at], units), within=within)

    def table(self, pair: Pair) -> Iterator[Span]:
        """Yield gap (the first), total effect, parts, and named groups of the plan, with their ranges over orders."""
        parts, whole = self.parts(pair), union_of(self.plan.blocks)
        found = {GAP: self.sum_of(pair, {1: 1.0, 0: -1.0}), TOTAL: self.sum_of(pair, {whole: 1.0, NONE: -1.0})} | parts
        for name, own in zip(self.groups, map(union_of, self.plan.groups), strict=False):
            found[name] = self.sum_of(pair, {own: 0.5, NONE: -0.5, whole: 0.5, whole - own: -0.5})
        added: dict[str, list[float]] = {}
        for (name, _), each, _ in () if self.plan.stated else self.contrasts(pair):
            added.setdefault(name, []).append(each.value)
        for name, each in found.items():
            values = added.get(name, [np.nan])
            yield Span((name, min(values), max(values)), each, "parts" if name in parts else name)

    def contrasts(self, pair: Pair) -> Iterator[Span]:
        """Yield every comparison of a part, and each named group of the plan before and after the other one."""
        blocks, named = self.plan.blocks, self.pieces.named
        for of in self.plan.contrasts:
            after = "; ".join(named(block) for block in blocks if {*block} <= of.after)
            yield Span((named(of.block), after), self.sum_of(pair, {of.switched: 1.0, of.after: -1.0}), "contrasts")
        for name, other, own in zip(self.groups, self.groups[::-1], map(union_of, self.plan.groups), strict=False):
            for before, text in ((NONE, ""), (union_of(blocks) - own, other)):
                yield Span((name, text), self.sum_of(pair, {own | before: 1.0, before: -1.0}), "contrasts")

    def differences(self, pair: Pair) -> Iterator[Span]:
        """Yield by how much each part of a model is more than that of the observed outcome."""
        if self.beside is not None and pair[0] != self.beside[0]:
            theirs = self.parts(self.beside)
            yield from (Span((name,), each - theirs[name], "parts") for name, each in self.parts(pair).items())

    def worlds(self, pair: Pair) -> Iterator[Span]:
        """Yield the mean in each world and group."""
        every: list[Any] = [*self.plan.worlds, 0, 1]
        for each in every:
            name = f"group {each}" if isinstance(each, int) else self.pieces.named_world(each)
            shares = [] if pair[1] == "score" else [Share(self._means[*pair, each], self.sizes[each])]
            yield Span((name, self.sizes[each]), self.of.sum_of({(*pair, each): 1.0}, shares), name)

    def parts(self, pair: Pair) -> dict[str, Estimate]:
        """Return confounding and the average of each block."""
        whole = union_of(self.plan.blocks)
        found = {CONFOUNDING: self.sum_of(pair, {1: 1.0, 0: -1.0, whole: -1.0, NONE: 1.0})}
        for block in self.plan.blocks:
            factors: dict[Any, float] = {}
            for of in (each for each in self.plan.contrasts if each.block == block):
                factors[of.switched] = factors.get(of.switched, 0.0) + of.weight
                factors[of.after] = factors.get(of.after, 0.0) - of.weight
            found[self.pieces.named(block)] = self.sum_of(pair, factors)
        return found


class Span(NamedTuple):
    """An estimate of a table with its names; intervals of one ``family`` hold together."""

    names: tuple[Any, ...]
    estimate: Estimate
    family: str


def tell_all(of: Mapping[Any, Means], level: float) -> dict[Any, dict[str, Any]]:
    """Return all tables of each contrast by their names; intervals hold together over contrasts."""
    columns = ["subgroup", "level", *TABLE_COLUMNS, "rows", "note"]
    made = {
        "table": tell_parts(of, level),
        "contrasts": tell(of, Means.contrasts, ["part", "after"], level),
        "means": tell(of, Means.worlds, ["mean", "ess"], level),
        "differences": tell(of, Means.differences, ["part"], level),
        "subgroups": {key: pd.DataFrame(columns=columns) for key in of},
    }
    found = tell_parts({(key, at): own for key, each in of.items() for at, own in each.within.items()}, level)
    for key, each in of.items():
        told = [(at, found[key, at].assign(rows=len(own.of.weight), note="")) for at, own in each.within.items()]
        told += [(at, pd.DataFrame({"note": [text]})) for at, text in each.absent.items()]
        if tables := [table.assign(subgroup=name, level=value) for (name, value), table in told]:
            made["subgroups"][key] = pd.concat(tables, ignore_index=True).reindex(columns=columns)
    return {key: {name: tables[key] for name, tables in made.items()} for key in of}


def tell(
    of: Mapping[Any, Means], spans: Callable[[Means, Pair], Iterable[Span]], columns: Sequence[str], level: float
) -> dict[Any, pd.DataFrame]:
    """Return the table of some estimates of the means of one or several contrasts or subgroups, by their keys.

    The intervals of a model, decisions and family hold together over all of them.
    """
    rows: dict[Any, list[list[Any]]] = {key: [] for key in of}
    for pair in dict.fromkeys(pair for means in of.values() for pair in means.pairs):
        found = {key: [*spans(means, pair)] for key, means in of.items() if pair in means.pairs}
        families: dict[str, list[Estimate]] = {}
        for each in (each for own in found.values() for each in own):
            families.setdefault(each.family, []).append(each.estimate)
        reach = {family: reach_of_all(own, level) for family, own in families.items()}
        for key, own in found.items():
            rows[key] += [
                [*pair, *names, each.value, *each.interval(level, reach[family])] for names, each, family in own
            ]
    head = ["model", "decisions", *columns, "estimate", "lower", "upper"]
    return {key: pd.DataFrame(own, columns=head) for key, own in rows.items()}


def tell_parts(of: Mapping[Any, Means], level: float) -> dict[Any, pd.DataFrame]:
    """Return the parts of one or several, with their shares of a gap whose interval does not hold 0."""
    found = tell(of, Means.table, ["part", "smallest", "largest"], level)
    for key, table in found.items():
        gap = table.groupby(["model", "decisions"], sort=False)[["estimate", "lower", "upper"]].transform("first")
        known = gap["estimate"].where((gap["lower"] > 0.0) | (gap["upper"] < 0.0))
        found[key] = table.assign(share=table["estimate"] / known)[list(TABLE_COLUMNS)]
    return found
