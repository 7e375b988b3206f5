"""Influence values of how far a hidden cause moves the means of both worlds, stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyrofair.nuisances.columns import take
from pyrofair.nuisances.diagnostics import Stage
from pyrofair.nuisances.rows import Rows
from pyrofair.robustness.sensitivity.hidden_causes import Block, HiddenCause
from pyrofair.robustness.sensitivity.tilting import Cuts, Target, find_cuts
from pyrofair.sources.prefix_form import PrefixForm, Walk

__all__ = ["Descent"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]
FEW = 3
"""So many columns are learned as they are."""
KEPT = 0.99
"""The share of the variance of more columns that the parts have which are learned in their place."""


@dataclass(frozen=True, eq=False)
class Level:
    """Functions of the features before a stage, for judged rows (J, C) and those learned from (L, C).

    ``total`` (J, C) is the sum of the corrections of the stages averaged over.
    """

    own: Array
    known: Array
    total: Array

    def __add__(self, other: Level) -> Level:
        return Level(self.own + other.own, self.known + other.known, self.total + other.total)

    @property
    def parts(self) -> tuple[Array, Array, Array]:
        """The three arrays."""
        return self.own, self.known, self.total


Levels = dict[str, Level]
"""What is carried down the stages: the "mean" score, how far it is "moved", and what differs between the groups."""


class Descent:
    """The stages of a fitted prefix form, of n rows that are judged, down which hidden causes move the means.

    ``scores`` has for each world the scores (n, 1) of the rows, and those of the fitted rows, NaN where no stage starts
    from them. All hidden causes, and all their limits, share the trees of a stage.
    """

    def __init__(self, form: PrefixForm, rows: Rows, scores: Sequence[tuple[Array, Array]]) -> None:
        walk, weights = Walk(form, rows, scores), _Weights(form, rows)
        # Cuts and ratios chosen by the rows that they are judged on would err inward, those of saturated models too.
        self.folds = [(_Fold(walk, weights, train, own), share) for train, own, share in walk.folds(crossed=True)]

    def moves(
        self, cause: HiddenCause, gammas: Sequence[float], ratios: Sequence[float]
    ) -> tuple[dict[str, tuple[Array, Array]], bool]:
        """Return what is added to influence values, downwards and upwards, (n, G) each: 0 if all limits are 1.

        Of P(Y0 = 1), P(Ypi = 1), their difference P(Ypi) - P(Y0), and their sum, for G limits of the odds ratio, and
        of the ratio of distributions of later runs. And whether all values were tried as cuts: if only quantiles of
        many were, the moves are valid and may be too wide.
        """
        targets, later = (
            tuple(Target(limit, sign) for limit in limits for sign in (1, -1)) for limits in (gammas, ratios)
        )
        n, exact = len(self.folds[0][0].walk.rows.a), True
        found = {name: np.zeros((n, len(targets))) for name in ("p_y0", "p_ypi", "mean_unfair_effect", "sum")}
        for fold, share in self.folds:
            fold.exact = True
            one, other = (fold.world(which, cause.blocks[which], targets, later) for which in (0, 1))
            swapped = np.arange(len(targets)).reshape(-1, 2)[:, ::-1].ravel()
            effect, total = (
                fold.contrasts(cause.blocks, targets) if cause.joint else (other - one[:, swapped], one + other)
            )
            for own, values in zip(found.values(), (one, other, effect, total), strict=True):
                own[fold.judged] += share * values
            exact &= fold.exact
        return {name: (values[:, 1::2], values[:, ::2]) for name, values in found.items()}, exact


class _Weights:
    """The weights of rows at stages, each made once."""

    def __init__(self, form: PrefixForm, rows: Rows) -> None:
        self.form, self.rows = form, rows
        self.made: dict[tuple[int, int | None, int], Array] = {}

    def at(self, which: int, stage: Stage) -> Array:
        """Return the weight of each row at a stage of a world, (n,), 0 outside its arm."""
        key = which, stage.arm, stage.start
        if key not in self.made:
            self.made[key] = self.form.weights(self.rows, self.form.worlds[which], stage)
        return self.made[key]

    def ratio(self, rows: Rows, stage: Stage) -> Array:
        """Return the density of the features before a stage in the unfair-path world over the baseline's, (m,)."""
        parts = [world.part for world in self.form.worlds]
        with np.errstate(divide="ignore", invalid="ignore"):
            one, other = (self.form.nuisances.raw_weights(rows, part, stage.arm, stage.start) for part in parts)
            return np.nan_to_num(other / one, nan=1.0, posinf=1e6)

    def group(self, rows: Rows, arm: int | None) -> tuple[Array, Array]:
        """Return the chance of an arm given what A does not cause, and whether each row has it, (m, 1) each."""
        part = self.form.worlds[0].part
        one = self.form.nuisances.probability(rows, part.order[: part.roots])
        return (one if arm else 1.0 - one)[:, None], (rows.a == arm).astype(np.float64)[:, None]


class _Fold:
    """What one fold learns of the rows that it judges."""

    def __init__(self, walk: Walk, weights: _Weights, train: Index, judged: Index) -> None:
        self.walk, self.weights, self.train, self.judged = walk, weights, train, judged
        self.exact = True
        self.means: dict[tuple[int | None, int], Callable[[Array], list[Array]]] = {}

    def world(
        self, which: int, blocks: Sequence[Block], targets: tuple[Target, ...], later: tuple[Target, ...]
    ) -> Array:
        """Return the moves of the mean of one world, (J, T)."""
        marked = [i for i, block in enumerate(blocks) if block.kind]
        found = np.zeros((len(self.judged), len(targets)))
        if not marked:
            return found
        levels: Levels = {"mean": self._scores(which)}
        for i, block in reversed([*enumerate(blocks)]):
            value = levels.get("mean")
            if value is not None and "moved" in levels:
                value = Level(*(np.repeat(each, len(targets), axis=1) for each in value.parts)) + levels["moved"]
            if i <= marked[0]:  # it is read no more
                levels.pop("mean", None)
            levels = self._average(which, block.stage, levels)
            if block.kind:
                assert value is not None
                tilted = self._tilt(which, block.stage, value, later if block.kind == "later" else targets)
                name = "group" if block.kind == "group" else "moved"
                levels[name] = levels[name] + tilted if name in levels else tilted
        if "moved" in levels:
            found += levels["moved"].own + levels["moved"].total
        if "group" in levels:
            found += self._to_group(levels["group"], blocks[marked[0]].stage)
        return found

    def contrasts(self, blocks: Sequence[Sequence[Block]], targets: tuple[Target, ...]) -> tuple[Array, Array]:
        """Return the moves of the difference and of the sum of both means, (J, T) each, by one ratio in both worlds."""
        at = next(i for i, block in enumerate(blocks[0]) if block.kind)
        stage = blocks[0][at].stage
        one, other = (self._above(which, blocks[which], stage.start) for which in (0, 1))
        own, known = (self.weights.ratio(rows, stage)[index, None] for rows, index in self._both())
        values = Level(
            np.hstack([own * other.own - one.own, own * other.own + one.own]),
            np.hstack([known * other.known - one.known, known * other.known + one.known]),
            one.total,
        )
        both = (*targets, *targets)
        size = len(targets)
        of = (*[0] * size, *[1] * size)
        cuts, centre = self._cuts(stage, values, of, both), self._learn(stage, other.known)
        # Of the cut of the difference, or sum, each world takes a part that leaves it with little variance.
        sign = np.repeat([-1.0, 1.0], size)
        sides = [*zip((values.own, values.known), cuts, centre, (own, known), strict=True)]
        excess, excess_known = (cut.excess(value[:, list(of)], both) for value, cut, _, _ in sides)
        shares = [(sign * (cut.cut - ratio * middle), middle) for _, cut, middle, ratio in sides]
        found = []
        for which, level in enumerate((one, other)):
            part, part_known = (share[which] for share in shares)
            rest = excess * (level.own - part), excess_known * (level.known - part_known), excess * level.total
            levels = {"group": Level(*rest)}
            for block in reversed(blocks[which]):
                if block.stage.start <= stage.start:
                    levels = self._average(which, block.stage, levels)
            found.append(self._to_group(levels["group"], stage))
        return found[1][:, :size] - found[0][:, :size], found[1][:, size:] + found[0][:, size:]

    # -- steps --------------------------------------------------------------------------------------------------------

    def _scores(self, which: int) -> Level:
        own, known = self.walk.scores[which]
        return Level(own[self.judged], known[self.train], np.zeros((len(self.judged), own.shape[1])))

    def _above(self, which: int, blocks: Sequence[Block], start: int) -> Level:
        """Return the score averaged over all that follows a stage."""
        levels = {"mean": self._scores(which)}
        for block in reversed(blocks):
            if block.stage.start > start:
                levels = self._average(which, block.stage, levels)
        return levels["mean"]

    def _average(self, which: int, stage: Stage, levels: Levels) -> Levels:
        """Average functions over a stage of a world, by one regression."""
        if not levels:
            return {}
        own, known, total = (np.hstack(each) for each in zip(*(level.parts for level in levels.values()), strict=True))
        start, start_known = self._learn(stage, known)
        weight = self.weights.at(which, stage)[self.judged, None]
        after = start, start_known, total + np.where(weight > 0.0, weight * (own - start), 0.0)
        ends = np.cumsum([level.own.shape[1] for level in levels.values()])[:-1]
        parts = zip(*(np.split(each, ends, axis=1) for each in after), strict=True)
        return {name: Level(*each) for name, each in zip(levels, parts, strict=True)}

    def _learn(self, stage: Stage, known: Array) -> list[Array]:
        """Return the means of columns given what is before a stage, of judged rows and of those learned from."""
        at, regression, _, _ = self.walk.learn(stage, self.train)
        part = _Parts.of(known[at], self.walk.fitted.weight[self.train[at]], KEPT if regression.crossed else 1.0)
        return [part.whole(each) for each in self._means(stage)(part.values)]

    def _means(self, stage: Stage) -> Callable[[Array], list[Array]]:
        """Return what makes the means of responses at a stage, by trees for the scores of both worlds if there are any.

        It does not depend on the hidden cause, so that all share it.
        """
        key = stage.arm, stage.start
        if key not in self.means:
            at, regression, design, learned = self.walk.learn(stage, self.train)
            fitted, rows = self.walk.fitted, self.train[at]
            known, weight = take(learned, rows), fitted.weight[rows]
            if regression.crossed:
                scores = [self._averaged(which, stage.start)[at] for which in (0, 1)]
                seen = np.hstack([each for each in scores if not np.isnan(each).any()])
                regression = regression.fit(known, seen, weight, fitted.near(rows))
            asked = take(design, self.judged), take(learned, self.train)
            self.means[key] = regression.again(known, weight, asked)
        return self.means[key]

    def _averaged(self, which: int, start: int) -> Array:
        """Return the scores of a world averaged over all of its stages that begin later, of the rows learned from."""
        later = next((each for each in self.walk.form.worlds[which].stages if each.start > start), None)
        if later is None:
            return self.walk.scores[which][1][self.train]
        return self._learn(later, self._averaged(which, later.start))[1]

    def _tilt(self, which: int, stage: Stage, value: Level, targets: tuple[Target, ...]) -> Level:
        """Return what the worst ratio of a stage adds, (., T), averaged over that stage of a world."""
        wide = value.own.shape[1] > 1
        of = tuple(range(len(targets))) if wide else (0,) * len(targets)
        own, known = self._cuts(stage, value, of, targets)
        excess = own.excess(value.own[:, list(of)], targets)
        weight = self.weights.at(which, stage)[self.judged, None]
        correction = np.where(weight > 0.0, weight * (excess * (value.own - own.cut) - own.moved), 0.0)
        return Level(own.moved, known.moved, excess * value.total + correction)

    def _cuts(self, stage: Stage, value: Level, of: tuple[int, ...], targets: tuple[Target, ...]) -> list[Cuts]:
        """Return where the worst ratios of a stage are cut, for both sets of rows."""
        at = np.flatnonzero(self.walk.fitted.member(stage.arm)[self.train])
        weight = self.walk.fitted.weight[self.train[at]]

        def learn(columns: Array) -> list[Array]:
            known = np.full((len(self.train), columns.shape[1]), np.nan)
            known[at] = columns
            return self._learn(stage, known)

        cuts = find_cuts(value.known[at], of, weight, targets, learn)
        self.exact &= cuts[0].exact
        return cuts

    def _to_group(self, level: Level, stage: Stage) -> Array:
        """Return the moves (J, T) of what differs between the groups: it is missing in the other group alone."""
        chance, member = (each[self.judged] for each in self.weights.group(self.walk.rows, stage.arm))
        return (1.0 - chance) * (level.own + level.total) + (chance - member) * level.own

    def _both(self) -> tuple[tuple[Rows, Index], tuple[Rows, Index]]:
        return (self.walk.rows, self.judged), (self.walk.fitted, self.train)


@dataclass(frozen=True, eq=False)
class _Parts:
    """Columns (m, c) as ``mean`` (c,) plus ``values`` (m, k), of size at most 1, times ``loadings`` (k, c).

    The columns of several gammas are nearly multiples of a few: these are learned in their place, which leaves out of
    the regressions a share of the variance that the corrections make up for.
    """

    mean: Array
    values: Array
    loadings: Array

    @classmethod
    def of(cls, columns: Array, weight: Array, share: float) -> _Parts:
        """Return as few parts as have a share of the variance of the columns; of all of it, the columns themselves."""
        size = np.abs(columns).max(axis=0)
        size[size == 0.0] = 1.0
        scaled = columns / size
        if share >= 1.0 or columns.shape[1] <= FEW:
            return cls(np.zeros(len(size)), scaled, np.diag(size))
        mean = weight @ scaled / weight.sum()
        centred = scaled - mean
        variance, vectors = np.linalg.eigh((weight[:, None] * centred).T @ centred)
        held = np.cumsum(variance[::-1]) / max(variance.sum(), np.finfo(float).tiny)
        vectors = vectors[:, ::-1][:, : int(np.searchsorted(held, share)) + 1]
        values = centred @ vectors
        most = np.abs(values).max(axis=0)
        most[most == 0.0] = 1.0
        return cls(mean * size, values / most, (most * vectors).T * size)

    def whole(self, predicted: Array) -> Array:
        """Return the columns of predicted parts."""
        return np.asarray(self.mean + predicted @ self.loadings)
