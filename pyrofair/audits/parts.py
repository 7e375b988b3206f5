"""The parts of a group difference: which worlds they compare, by what weights, and their estimates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from math import comb
from typing import Any

import numpy as np
import pandas as pd

from pyrofair.effects.estimates import Estimate, Estimates, Share, reach_of_all
from pyrofair.graph.first_edges import Block, Switched, partitions_of, subsets_of

__all__ = ["CONFOUNDING", "GAP", "NONE", "TABLE_COLUMNS", "TOTAL", "Contrast", "Means", "Pair", "Plan", "union_of"]

GAP, CONFOUNDING, TOTAL = "gap", "confounding", "total effect"
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
    plan, named
        The plan, and the name of a block.
    """

    of: Estimates
    sizes: Mapping[Any, float]
    plan: Plan
    named: Callable[[Block], str]

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

    def table(
        self,
        pairs: Sequence[Pair],
        level: float,
        groups: Sequence[str] = (),
        reach_of: Mapping[Pair, float] | None = None,
    ) -> pd.DataFrame:
        """Return a row for each model, decisions and part; parts and confounding hold together with the level.

        ``groups`` name those of the plan, to be parts themselves; ``reach_of`` is how far intervals of parts reach.
        """
        rows: list[list[Any]] = []
        whole, nothing = union_of(self.plan.blocks), (np.nan, np.nan)
        for pair in pairs:
            gap, total = self.sum_of(pair, {1: 1.0, 0: -1.0}), self.sum_of(pair, {whole: 1.0, NONE: -1.0})
            parts = self.parts(pair)
            reach = reach_of_all([*parts.values()], level) if reach_of is None else reach_of[pair]
            ranges = {self.named(block): self._range(pair, block) for block in self.plan.blocks}
            spans: list[Any] = [(GAP, gap, nothing, None), (TOTAL, total, nothing, None)]
            spans += [(name, each, ranges.get(name, nothing), reach) for name, each in parts.items()]
            for i, name in enumerate(groups):
                ends = [each.value for each in self._ends_of_group(pair, i)]
                spans.append((name, self._of_group(pair, i), (min(ends), max(ends)), None))
            low, high = gap.interval(level)
            for name, each, ends_of, own in spans:
                share = each.value / gap.value if low > 0.0 or high < 0.0 else np.nan
                rows.append([*pair, name, each.value, *each.interval(level, own), *ends_of, share])
        return pd.DataFrame(rows, columns=list(TABLE_COLUMNS))

    def contrasts(self, pairs: Sequence[Pair], level: float, groups: Sequence[str] = ()) -> pd.DataFrame:
        """Return every comparison of a part; all of a model and decisions hold together with the level.

        ``groups`` name those of the plan, each compared before and after the other one.
        """
        rows = []
        for pair in pairs:
            named = [(self.named(of.block), self._after(of), self._added(pair, of)) for of in self.plan.contrasts]
            for i, name in enumerate(groups):
                first, last = self._ends_of_group(pair, i)
                named += [(name, "", first), (name, groups[1 - i], last)]
            reach = reach_of_all([each for *_, each in named], level)
            rows += [[*pair, part, after, each.value, *each.interval(level, reach)] for part, after, each in named]
        return pd.DataFrame(rows, columns=["model", "decisions", "part", "after", "estimate", "lower", "upper"])

    def differences(self, pairs: Sequence[Pair], other: Pair, level: float) -> pd.DataFrame:
        """Return by how much each part of some models is more than that of another; intervals hold together."""
        rows = []
        for pair in pairs:
            own, theirs = self.parts(pair), self.parts(other)
            apart = {name: own[name] - theirs[name] for name in own}
            reach = reach_of_all([*apart.values()], level)
            rows += [[*pair, name, each.value, *each.interval(level, reach)] for name, each in apart.items()]
        return pd.DataFrame(rows, columns=["model", "decisions", "part", "estimate", "lower", "upper"])

    def worlds(self, pairs: Sequence[Pair], level: float, named: Callable[[Switched], str]) -> pd.DataFrame:
        """Return the mean in each world and group, each with an interval of its own."""
        rows = []
        every: list[Any] = [*self.plan.worlds, 0, 1]
        for pair, each in product(pairs, every):
            at = {(*pair, each): 1.0}
            shares = [] if pair[1] == "score" else [Share(self._means[*pair, each], self.sizes[each])]
            found = self.of.sum_of(at, shares)
            name = f"group {each}" if isinstance(each, int) else named(each)
            rows.append([*pair, name, found.value, *found.interval(level), self.sizes[each]])
        return pd.DataFrame(rows, columns=["model", "decisions", "mean", "estimate", "lower", "upper", "ess"])

    def parts(self, pair: Pair) -> dict[str, Estimate]:
        """Return confounding and the average of each block."""
        whole = union_of(self.plan.blocks)
        found = {CONFOUNDING: self.sum_of(pair, {1: 1.0, 0: -1.0, whole: -1.0, NONE: 1.0})}
        for block in self.plan.blocks:
            factors: dict[Any, float] = {}
            for of in (each for each in self.plan.contrasts if each.block == block):
                factors[of.switched] = factors.get(of.switched, 0.0) + of.weight
                factors[of.after] = factors.get(of.after, 0.0) - of.weight
            found[self.named(block)] = self.sum_of(pair, factors)
        return found

    def _after(self, of: Contrast) -> str:
        return "; ".join(self.named(block) for block in self.plan.blocks if {*block} <= of.after)

    def _added(self, pair: Pair, of: Contrast) -> Estimate:
        return self.sum_of(pair, {of.switched: 1.0, of.after: -1.0})

    def _range(self, pair: Pair, block: Block) -> tuple[float, float]:
        """Return the smallest and the largest that a block adds over orders."""
        if self.plan.stated:
            return np.nan, np.nan
        values = [self._added(pair, each).value for each in self.plan.contrasts if each.block == block]
        return min(values), max(values)

    def _ends_of_group(self, pair: Pair, which: int) -> tuple[Estimate, Estimate]:
        """Return what a group adds before the other one, and after it."""
        own, whole = union_of(self.plan.groups[which]), union_of(self.plan.blocks)
        return self.sum_of(pair, {own: 1.0, NONE: -1.0}), self.sum_of(pair, {whole: 1.0, whole - own: -1.0})

    def _of_group(self, pair: Pair, which: int) -> Estimate:
        """Return what a group adds on average over both."""
        own, whole = union_of(self.plan.groups[which]), union_of(self.plan.blocks)
        return self.sum_of(pair, {own: 0.5, NONE: -0.5, whole: 0.5, whole - own: -0.5})
