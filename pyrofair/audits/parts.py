"""The parts of a group difference: which worlds they compare, by what weights, and their estimates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import comb
from typing import Any

import numpy as np
import pandas as pd

from pyrofair.effects.estimates import Estimate, Estimates, Share, reach_of_all
from pyrofair.graph.first_edges import Block, Switched, partitions_of, subsets_of

__all__ = ["CONFOUNDING", "GAP", "TABLE_COLUMNS", "TOTAL", "Contrast", "Means", "Plan", "union_of"]

GAP, CONFOUNDING, TOTAL = "gap", "confounding", "total effect"
TABLE_COLUMNS = (
    "model", "decisions", "part", "estimate", "lower", "upper", "smallest", "largest", "share",
)  # fmt: skip
CONTRAST_COLUMNS = ("model", "decisions", "part", "after", "estimate", "lower", "upper")
NONE = Switched()


def union_of(blocks: Sequence[Block]) -> Switched:
    """Return the heads of some blocks."""
    return NONE.union(*blocks)


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
        plans = [
            cls(tuple(tuple(sorted(blocks, key=lambda each: group.index(each[0]))) for group, blocks in zip(groups, found, strict=True)))
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
        """Every comparison that a part is an average of, with the weights of Shapley, or of Owen if there are groups."""
        if self.stated:
            return [Contrast(block, union_of(self.blocks[:i]), 1.0) for i, block in enumerate(self.blocks)]
        found = []
        for group, block in ((group, block) for group in self.groups for block in group):
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
    plan, named
        The plan, and the name of a block.
    """

    of: Estimates
    sizes: Mapping[Any, float]
    plan: Plan
    named: Callable[[Block], str]

    def sum_of(self, pair: tuple[str, Any], factors: Mapping[Any, float]) -> Estimate:
        """Return the estimate of a sum of means, of decisions at least as uncertain as the shares that it is made of.

        Of worlds it is the share of rows whose answer they turn to yes, less that of those whom they turn to no.
        """
        places = {(*pair, each): factor for each, factor in factors.items()}
        found, shares = self.of.sum_of(places), []
        if pair[1] == "score":
            return found
        worlds = [each for each in factors if isinstance(each, frozenset)]
        for group in (each for each in factors if each not in worlds):
            rate = self.of.sum_of({(*pair, group): 1.0}).value
            shares.append(Share(rate, self.sizes[group], factors[group]))
        if worlds:
            value = self.of.sum_of({(*pair, each): factors[each] for each in worlds}).value
            size = min(self.sizes[each] for each in worlds)
            shares += [Share(max(value, 0.0), size), Share(max(-value, 0.0), size, -1.0)]
        return replace(found, shares=tuple(shares))

    def table(self, pairs: Sequence[tuple[str, Any]], level: float, groups: Sequence[str] = ()) -> pd.DataFrame:
        """Return a row for each model, decisions and part; parts and confounding hold together with the level.

        ``groups`` name those of the plan, to be parts themselves.
        """
        rows: list[list[Any]] = []
        for pair in pairs:
            gap = self.sum_of(pair, {1: 1.0, 0: -1.0})
            whole = union_of(self.plan.blocks)
            total = {whole: 1.0, NONE: -1.0}
            held = {CONFOUNDING: ({1: 1.0, 0: -1.0, whole: -1.0, NONE: 1.0}, (np.nan, np.nan))}
            held |= {self.named(block): (self._factors(block), self._range(pair, block)) for block in self.plan.blocks}
            parts = {name: (self.sum_of(pair, factors), ends) for name, (factors, ends) in held.items()}
            reach = reach_of_all([each for each, _ in parts.values()], level)
            spans = [(GAP, gap, (np.nan, np.nan), None), (TOTAL, self.sum_of(pair, total), (np.nan, np.nan), None)]
            spans += [(name, each, ends, reach) for name, (each, ends) in parts.items()]
            spans += [(name, *self._of_group(pair, i), None) for i, name in enumerate(groups)]
            clear = not np.prod(gap.interval(level)) <= 0.0
            for name, each, ends, own in spans:
                share = each.value / gap.value if clear else np.nan
                rows.append([*pair, name, each.value, *each.interval(level, own), *ends, share])
        return pd.DataFrame(rows, columns=list(TABLE_COLUMNS))

    def contrasts(self, pairs: Sequence[tuple[str, Any]], level: float) -> pd.DataFrame:
        """Return every comparison of a part; all of a model and decisions hold together with the level."""
        rows = []
        for pair in pairs:
            found = [(each, self._added(pair, each)) for each in self.plan.contrasts]
            reach = reach_of_all([each for _, each in found], level)
            for of, each in found:
                after = [self.named(block) for block in self.plan.blocks if {*block} <= of.after]
                ends = each.interval(level, reach)
                rows.append([*pair, self.named(of.block), "; ".join(after), each.value, *ends])
        return pd.DataFrame(rows, columns=list(CONTRAST_COLUMNS))

    def world_table(
        self, pairs: Sequence[tuple[str, Any]], level: float, named: Callable[[Switched], str]
    ) -> pd.DataFrame:
        """Return the mean in each world and group, each with an interval of its own."""
        rows = []
        for pair, each in product(pairs, (*self.plan.worlds, 0, 1)):
            found = self.of.sum_of({(*pair, each): 1.0})
            found = replace(found, shares=(Share(found.value, self.sizes[each]),))
            name = f"group {each}" if isinstance(each, int) else named(each)
            rows.append([*pair, name, found.value, *found.interval(level), self.sizes[each]])
        return pd.DataFrame(rows, columns=["model", "decisions", "mean", "estimate", "lower", "upper", "ess"])

    def _added(self, pair: tuple[str, Any], of: Contrast) -> Estimate:
        return self.sum_of(pair, {of.switched: 1.0, of.after: -1.0})

    def _factors(self, block: Block) -> dict[Any, float]:
        """Return the factors of the worlds in the average of a block."""
        factors: dict[Any, float] = {}
        for of in (each for each in self.plan.contrasts if each.block == block):
            factors[of.switched] = factors.get(of.switched, 0.0) + of.weight
            factors[of.after] = factors.get(of.after, 0.0) - of.weight
        return factors

    def _range(self, pair: tuple[str, Any], block: Block) -> tuple[float, float]:
        """Return the smallest and the largest that a block adds over orders."""
        if self.plan.stated:
            return np.nan, np.nan
        values = [self._added(pair, each).value for each in self.plan.contrasts if each.block == block]
        return min(values), max(values)

    def _of_group(self, pair: tuple[str, Any], which: int) -> tuple[Estimate, tuple[float, float]]:
        """Return what a group adds on average over the orders of both, and what it adds first and last, by size."""
        own = union_of(self.plan.groups[which])
        whole = union_of(self.plan.blocks)
        ends = [self.sum_of(pair, {own: 1.0, NONE: -1.0}).value, self.sum_of(pair, {whole: 1.0, whole - own: -1.0}).value]
        factors: dict[Any, float] = {}
        for world, factor in ((own, 0.5), (NONE, -0.5), (whole, 0.5), (whole - own, -0.5)):
            factors[world] = factors.get(world, 0.0) + factor
        return self.sum_of(pair, factors), (min(ends), max(ends))
