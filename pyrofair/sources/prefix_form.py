"""The one-step estimate from sequential regressions and weights given all features before, right if either is right.

In an order with the shared features first, each run of nodes that read one arm of the sensitive attribute is a
stage. The score is averaged over a stage by a regression on what comes before it, among the rows of that arm; the
residual of each stage, weighted to the world, corrects for what the regression gets wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, islice
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from pyrofair._progress import progress_bar
from pyrofair.effects.estimates import CAUSAL
from pyrofair.effects.influence import InfluenceValues, Scorer
from pyrofair.effects.potential_outcomes import CounterfactualSample
from pyrofair.exceptions import DataError
from pyrofair.graph.identification import Estimand, RegimeEstimand, Target
from pyrofair.nuisances.columns import Design, take
from pyrofair.nuisances.diagnostics import (
    Stage,
    StageValues,
    add_problems,
    describe_lacking,
    describe_stages,
    describe_unsupported,
    stage_table,
)
from pyrofair.nuisances.folds import fold_of
from pyrofair.nuisances.learners import Learner, LearnerName, make_learner, smaller_group
from pyrofair.nuisances.rows import Nuisances, Rows

__all__ = [
    "Average",
    "Learned",
    "PrefixForm",
    "Scored",
    "Walk",
    "World",
    "arrange",
    "as_world",
    "check_scores",
    "columns_of",
    "leaders_of",
    "make_scores",
    "orders_of",
    "sign_of",
]

Array = NDArray[np.float64]
Sides: TypeAlias = tuple[Array, Array]
"""Values of judged rows, and of those learned from."""
Columns: TypeAlias = Sequence[tuple[str, Any]]
"""Of columns of scores the model and the decisions, or "score"."""
ROUNDING = 1e-12
MOST_ORDERS = 24
"""So many orders of the nodes are tried for one in which the groups overlap."""


@dataclass(frozen=True)
class World:
    """A world with what both share first: its estimand, the stages of what is shared, and those after."""

    part: RegimeEstimand
    shared: tuple[Stage, ...]
    own: tuple[Stage, ...]

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages, in order."""
        return (*self.shared, *self.own)


class Scored(NamedTuple):
    """The scores (n, Q) of rows and of the fitted rows in each world, and what the scorer says of its columns."""

    worlds: list[tuple[Array, Array]]
    columns: Columns = ()


@dataclass
class Learned:
    """The scores (n, Q) of the fitted rows in either world, and the regressions of them by fold and stage."""

    known: tuple[Array, ...]
    learners: dict[tuple[str, ...], Learner] = field(default_factory=dict)
    fits: dict[Any, Learner] = field(default_factory=dict)


class PrefixForm:
    """Sequential regressions and single-group weights for both worlds of an estimand.

    Stage by stage the score is ``m_end`` before and ``m_start = E[m_end | what comes before, A = arm]`` after, and the
    influence value of a row is its last ``m`` plus the sum of ``H (m_end - m_start)``, with H the weight that carries
    the rows of the arm to the world. The error is a sum over stages of products of the errors of H and of ``m_start``.
    """

    name = "prefix"

    def __init__(
        self,
        estimand: Estimand,
        nuisances: Nuisances,
        regression: LearnerName | RegressorMixin,
        seed: int,
        worlds: Sequence[World] | None = None,
    ) -> None:
        self.estimand, self.nuisances, self.regression, self.seed = estimand, nuisances, regression, seed
        both = (estimand.baseline, estimand.switched)
        self.worlds = tuple(arrange(part, estimand) for part in both) if worlds is None else tuple(worlds)
        self._learned: Learned | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is learned again."""
        return self.__dict__ | {"_learned": None}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the form depends on besides, a sentence each."""
        stages = dict.fromkeys(", ".join(stage.nodes) for world in self.worlds for stage in world.stages)
        sensitive = self.estimand.unfair.graph.sensitive
        return (
            f"Prefix form: at each stage ({'; '.join(stages) or 'none'}) the propensities or the regression given all "
            "features before it converge to the truth, and the product of their errors vanishes faster than 1/sqrt(n). "
            "Where both are wrong, so is the estimate, and its interval does not cover that.",
            f"Each stage's features occur in the group that is weighted there (positivity of P({sensitive} | features "
            "before it)).",
        )

    @property
    def complete(self) -> bool:
        """Whether each node reads all nodes before it, so that no other form needs less overlap."""
        return all(factor.given == factor.before for w in self.worlds for factor in w.part.factors[w.part.roots :])

    def conditioned_on(self, roots: tuple[str, ...]) -> tuple[str, ...]:
        """Return which of the roots every stage conditions on: all."""
        return roots

    def weights(self, rows: Rows, world: World, stage: Stage) -> Array:
        """Return the weight H of each row at a stage, (n,), 0 outside the arm and where it is undefined."""
        w = self.nuisances.raw_weights(rows, world.part, stage.arm, stage.start)
        return np.where(rows.member(stage.arm) & ~np.isnan(w), w, 0.0)

    def stages(self, rows: Rows) -> pd.DataFrame:
        """Return the diagnostics of the weights of all stages, no classifier involved."""
        found = [(world, stage) for world in self.worlds for stage in world.stages]
        weights = [self.weights(rows, world, stage) for world, stage in found]
        table = stage_table([(stage, weight) for (_, stage), weight in zip(found, weights, strict=True)], rows)
        table = add_problems(table, [self._lacking(rows, world, stage) for world, stage in found])
        first = zip(table["regime"], ~table["regime"].duplicated(), strict=True)
        return add_problems(table, [self.unsupported[name][0] if each else "" for name, each in first])

    @cached_property
    def unsupported(self) -> dict[str, tuple[str, str]]:
        """The cells that lack a group that a stage needs, by world: too much of that world, and a rest of another."""
        saturated = self.nuisances.saturated or (isinstance(self.regression, str) and self.regression == "saturated")
        named = {world.stages[0].regime: world.part for world in self.worlds if world.stages}
        return {
            name: describe_unsupported(part, name, self.nuisances, saturated=saturated) for name, part in named.items()
        }

    def _lacking(self, rows: Rows, world: World, stage: Stage) -> str:
        """Return how much of a world hardly has a counterpart in a stage's arm, if it is too much."""
        weight = self.nuisances.raw_weights(rows, world.part, None, stage.start)
        return describe_lacking(self.nuisances, rows, stage.arm, stage.given, weight)

    def scores(self, score: Scorer, rows: Rows) -> Scored:
        """Return the scores of rows and of the fitted ones, which any split and weights share."""
        fitted = self.nuisances.rows
        worlds = [make_scores(score, world.part, rows, fitted, self.estimand) for world in self.worlds]
        return Scored(worlds, columns_of(score))

    def influence(self, score: Scorer | Scored, rows: Rows, learned: Learned | None = None) -> InfluenceValues:
        """Return the influence values of rows for the columns of scores, which may have been made by :meth:`scores`.

        Regressions are functions of the fitted rows and their scores: they are learned once for the same scores, or
        else are those of :meth:`learn`, and the fitted rows are then not scored again.
        """
        if callable(score) and learned is not None:
            fitted, parts = self.nuisances.rows, [world.part for world in self.worlds]
            own = (_score_table(score, part, rows, fitted, self.estimand) for part in parts)
            scored = Scored(list(zip(own, learned.known, strict=True)))
        else:
            scored = self.scores(score, rows) if callable(score) else score
            learned = self._recall(tuple(known for _, known in scored.worlds))
        return Walk(self, rows, *scored, learned).values()

    def learn(self, score: Scorer) -> Learned:
        """Return the regressions of the columns of scores, for :meth:`influence` of any number of other rows."""
        self.influence(score, self.nuisances.rows)
        assert self._learned is not None
        return self._learned

    def _recall(self, known: tuple[Array, ...]) -> Learned:
        """Return what was learned last, if it was of the same scores."""
        last = self._learned
        if last is None or not all(
            np.array_equal(*pair, equal_nan=True) for pair in zip(last.known, known, strict=True)
        ):
            self._learned = last = Learned(known)
        return last


def arrange(part: RegimeEstimand, estimand: Estimand, order: tuple[str, ...] | None = None) -> World:
    """Put the shared features first, and gather runs of nodes that read one arm.

    ``order`` is one of the nodes that the sensitive attribute causes, see :func:`orders_of`; None is the declared one.
    """
    shared = set(estimand.unfair.shared)
    roots, rest = part.order[: part.roots], part.order[part.roots :] if order is None else order
    caused = tuple(node for node in rest if node in shared)
    part = part.ordered((*roots, *caused, *(node for node in rest if node not in shared)))
    return as_world(part, estimand.target, part.roots + len(caused))


def orders_of(parts: Sequence[RegimeEstimand]) -> Iterator[tuple[str, ...]]:
    """Yield orders of the nodes that the sensitive attribute causes in which every factor's causes come first.

    The declared order is the first, and there are at most so many as are worth to be tried.
    """
    rest = parts[0].order[parts[0].roots :]
    needs: dict[str, set[str]] = {node: set() for node in rest}
    for factor in (factor for part in parts for factor in part.factors[part.roots :]):
        needs[factor.node] |= {*factor.given} & {*rest}

    def following(first: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        left = [node for node in rest if node not in first]
        if not left:
            yield first
        for node in left:
            if needs[node] <= {*first}:
                yield from following((*first, node))

    yield from islice(following(()), MOST_ORDERS)


def as_world(part: RegimeEstimand, target: Target, boundary: int, name: str | None = None) -> World:
    """Return a world of which so many nodes are shared, by its ``name`` in diagnostics."""
    nodes = [(node, factor.arm) for node, factor in zip(part.order, part.factors, strict=True)]
    if target == "outcome":
        nodes.append((part.regime.unfair.graph.outcome, part.outcome_arm))
    shared, own = (part.roots, boundary), (boundary, len(nodes))
    return World(part, *(_runs(part, nodes, *ends, name or part.regime.name) for ends in (shared, own)))


def _runs(
    part: RegimeEstimand, nodes: Sequence[tuple[str, int | None]], first: int, last: int, name: str
) -> tuple[Stage, ...]:
    found, start = [], first
    for arm, run in groupby(nodes[first:last], key=lambda each: each[1]):
        names = tuple(node for node, _ in run)
        found.append(Stage(name, names, arm, part.order[:start], start))
        start += len(names)
    return tuple(found)


def make_scores(
    score: Scorer, part: RegimeEstimand, rows: Rows, fitted: Rows, estimand: Estimand
) -> tuple[Array, Array]:
    """Return the scores (n, Q) that a world's last stage starts from, of rows and of the fitted rows.

    Only rows that a stage needs are scored, and others are NaN: those that read the last stage's arm already.
    """
    own = _score_table(score, part, rows, fitted, estimand)
    return own, own if rows.position is None else _score_table(score, part, fitted, fitted, estimand, foreign=True)


def _score_table(
    score: Scorer, part: RegimeEstimand, rows: Rows, fitted: Rows, estimand: Estimand, *, foreign: bool = False
) -> Array:
    """Return the scores (n, Q) of rows; ``foreign`` ones are not those audited."""
    arms = [factor.arm for factor in part.factors[part.roots :]]
    last = part.outcome_arm if estimand.target == "outcome" else arms[-1] if arms else None
    index = np.flatnonzero(rows.member(last))
    read, origin = rows.as_read(index, part.outcome_arm, part.regime.unfair.graph, fitted)
    sample = CounterfactualSample(read, np.ones(len(read)), origin=np.full(len(index), -1) if foreign else origin)
    scored = np.asarray(score(sample), dtype=np.float64)
    scored = scored[:, None] if scored.ndim == 1 else scored
    check_scores(scored, len(read))
    whole = np.full((len(rows.a), scored.shape[1]), np.nan)
    whole[index] = scored
    return whole


def check_scores(scored: Array, m: int) -> None:
    """Refuse scores of another number of rows than m, or outside [0, 1]."""
    if scored.shape[0] != m:
        raise DataError(f"The score function returned the shape {scored.shape} for {m} rows; expected {m} rows.")
    wrong = ~((scored >= 0.0) & (scored <= 1.0))
    if wrong.any():
        raise DataError(
            f"{int(wrong.sum())} score(s) are outside [0, 1], such as {scored[wrong][0]}. Scores are probabilities of "
            "the positive outcome, or decisions in 0 and 1."
        )


class Walk:
    """One pass through the stages of both worlds, fold by fold, for some rows and their scores.

    :meth:`values` fills ``learned`` with its regressions, or recalls them if it is filled. The first decisions by a
    score have boosted trees of their own, further ones those of the score.
    """

    with_own_trees: ClassVar[int] = 1

    def __init__(
        self, form: PrefixForm, rows: Rows, scores: Sequence[tuple[Array, Array]], columns: Columns = (),
        learned: Learned | None = None,
    ) -> None:  # fmt: skip
        self.form, self.rows, self.fitted, self.scores = form, rows, form.nuisances.rows, scores
        self.learned, self.recalls = learned, learned is not None and bool(learned.fits)
        self.fits: dict[Any, Learner] | None = None
        self.fold = 0
        self.columns = scores[0][0].shape[1]
        self.leaders = leaders_of(scores[0][1], columns, self.with_own_trees)
        self.out: dict[str, Any] = {name: np.zeros((len(rows.a), self.columns)) for name in CAUSAL}
        self.found = [
            [StageValues.empty(stage, form.weights(rows, world, stage), self.columns) for stage in world.stages]
            for world in form.worlds
        ]
        self.regressions: dict[tuple[str, ...], tuple[Learner, Design, Design]] = {}

    def values(self) -> InfluenceValues:
        """Return the influence values and the diagnostics of the stages."""
        self.fits = dict(self.learned.fits) if self.learned else {}
        for i, (train, judged, share) in enumerate(progress_bar("regressions", self.folds())):
            self.fold = i
            self._fold(train, judged, share)
        if self.learned and not self.recalls:  # whole, or not at all
            self.learned.fits, self.learned.learners = self.fits, {k: v[0] for k, v in self.regressions.items()}
        table = describe_stages([each for world in self.found for each in world], self.rows)
        return InfluenceValues(**self.out, weight=self.rows.weight, stages=table)

    def folds(self, *, crossed: bool = False) -> list[tuple[NDArray[np.int64], NDArray[np.int64], Array]]:
        """Return for each fold the fitted rows to learn from, the rows that it judges, and by what share.

        A fitted row is judged by the fold that did not learn from it, any other one by the mean of all folds. There is
        one fold of all rows where no regression asks for more, unless all are to be ``crossed``.
        """
        fitted = self.fitted
        stages = [stage for world in self.form.worlds for stage in world.stages]
        crossed = crossed or any(self._regression(stage)[0].crossed for stage in stages)
        nuisances = self.form.nuisances
        folds = nuisances.split(None if crossed else 1)
        own = fold_of(folds, len(fitted.a), self.rows.position)
        found = []
        for i, (train, _) in enumerate(folds):
            judged = np.flatnonzero((own == i) | (own < 0))
            found.append((train, judged, np.where(own[judged] == i, 1.0, 1.0 / len(folds))[:, None]))
        return found

    def _regression(self, stage: Stage) -> tuple[Learner, Design, Design]:
        """Return the regression on what comes before a stage, with the designs of the rows and of the fitted ones."""
        if stage.given not in self.regressions:
            columns, form = self.form.nuisances.graph.columns_of(stage.given), self.form
            known, smallest = self.fitted.table[columns], smaller_group(self.fitted.a, self.fitted.weight)
            recalled = self.learned.learners[stage.given] if self.learned and self.recalls else None
            regression = recalled or make_learner(
                form.regression, known, form.seed, "regression", smallest, self.leaders
            )
            own = regression.design(self.rows.table[columns])
            fitted = own if recalled or self.rows.position is None else regression.design(known)
            self.regressions[stage.given] = regression, own, fitted
        return self.regressions[stage.given]

    def _fold(self, train: NDArray[np.int64], judged: NDArray[np.int64], share: Array) -> None:
        """Add what one fold learns of the rows that it judges."""
        one, other = self.averages(train, judged, share)
        sides = zip(one.end, other.end, one.smooth, other.smooth, strict=True)
        found = _given_shared(*next(sides))
        if shared := self.form.worlds[0].shared:
            learned = _given_shared(*next(sides))
            plain, plain_known = (
                np.hstack([a, b, *rest[2:]])
                for a, b, rest in zip(one.plain, other.plain, (found, learned), strict=True)
            )
            given = np.hstack(found), np.hstack(learned)
            down = self._down([0, 1], shared, given, train, judged, share, None, (plain, plain_known))
            found = np.hsplit(down.total + down.end[0], len(found))
        # Rows that no stage reads have no score, and no correction either.
        a, b = np.nan_to_num(one.smooth[0]), np.nan_to_num(other.smooth[0])
        t0, t1 = one.total, other.total
        y0, ypi, lower, rest, disagreement = found
        lower, rest = lower + sign_of(b - a) * (t1 - t0), rest - sign_of(1.0 - a - b) * (t0 + t1)
        disagreement = disagreement + (1.0 - 2.0 * b) * t0 + (1.0 - 2.0 * a) * t1
        for out, values in zip(self.out.values(), (y0 + t0, ypi + t1, lower, rest, disagreement), strict=True):
            out[judged] += share * values

    def averages(self, train: NDArray[np.int64], judged: NDArray[np.int64], share: Array) -> tuple[Average, Average]:
        """Return the averages of the scores of both worlds down to what they share, of the rows that a fold judges."""
        ends = []
        for which, world in enumerate(self.form.worlds):
            own, known = self.scores[which]
            before = world.shared[-1].arm if world.shared else None
            ends.append(self._down([which], world.own, (own[judged], known[train]), train, judged, share, before))
        return ends[0], ends[1]

    def _down(
        self,
        worlds: Sequence[int],
        stages: Sequence[Stage],
        sides: Sides,
        train: NDArray[np.int64],
        judged: NDArray[np.int64],
        share: Array,
        before: int | None,
        plain: Sides | None = None,
    ) -> Average:
        """Average scores over stages, the last first, for judged rows and for those of ``train`` with A = ``before``.

        The first columns of scores, as many as the classifiers, are those of the first of ``worlds``, the next those of
        the second. ``plain`` are the scores that no further row has pulled, if others are.
        """
        own, known = sides
        free_own, free_known = plain or sides
        total, shared = np.zeros_like(own), self.form.worlds[0].shared
        smooth: Sides | None = None
        for i, stage in reversed([*enumerate(stages)]):
            of = [next(each for each in self.found[w] if each.stage.start == stage.start) for w in worlds]
            at, regression, design, learned = self.learn(stage, train)
            rows, y, groups = train[at], known[at], self.fitted.near(train[at])
            predict = free = self._fit((*worlds, i), regression.fit, learned, rows, y, groups)
            beside = (*worlds, -1 - i)  # signs and diagnostics are of what no further row pulls
            if self._knows(beside, regression.fit) if self.recalls else (y != free_known[at]).any():
                free = self._fit(beside, regression.fit, learned, rows, free_known[at], groups)
            asked, weight = take(design, judged), of[0].weight[judged, None]
            mean, pull = predict(asked), predict.pull(asked)
            level = mean if free is predict else free(asked)
            seen = 1.0 - self._leverage(stage, predict, asked, judged, rows)
            correction, told = (
                np.where(weight > 0.0, weight * (one - other) / seen, 0.0)
                for one, other in ((own, mean), (free_own, level))
            )
            for j, values in enumerate(of):
                part = slice(j * self.columns, (j + 1) * self.columns)
                values.correction[judged] += share * told[:, part]
                values.start[judged] += share * level[:, part]
            total += correction - np.where(weight > 0.0, weight * pull, 0.0)
            own, free_own, last = mean + pull, level, not i and len(worlds) == 1
            needed = np.flatnonzero(self.fitted.member(stages[i - 1].arm if i else before)[train] & (not self.recalls))
            known, free_known = np.full_like(known, np.nan), np.full_like(known, np.nan)
            here = take(learned, train[needed]) if len(needed) and (i or (last and shared)) else None
            if here is not None:
                known[needed], free_known[needed] = predict(here) + predict.pull(here), free(here)
            if last and regression.smooths:
                rough = self._fit((*worlds, i), regression.smooth, learned, rows, y)
                smooth = rough(asked), np.full_like(known, np.nan)
                if here is not None:
                    smooth[1][needed] = rough(here)
        plain = free_own, free_known
        return Average(total, (own, known), smooth or plain, plain)

    def _fit(
        self,
        key: tuple[int, ...],
        fit: Callable[..., Learner],
        design: Design,
        at: NDArray[np.int64],
        y: Array,
        *more: NDArray[np.int64] | None,
    ) -> Learner:
        """Return a fit to fitted rows, recalled if it was made before."""
        fits, name = {} if self.fits is None else self.fits, (self.fold, fit.__name__, *key)
        if name not in fits:
            fits[name] = fit(take(design, at), y, self.fitted.weight[at], *more)
        return fits[name]

    def _knows(self, key: tuple[int, ...], fit: Callable[..., Learner]) -> bool:
        return self.fits is not None and (self.fold, fit.__name__, *key) in self.fits

    def _leverage(
        self, stage: Stage, fit: Learner, design: Design, judged: NDArray[np.int64], learned: NDArray[np.int64]
    ) -> Array:
        """Return by what share judged rows that a fit was ``learned`` from draw it to themselves, (m, Q) or (m, 1).

        Their residuals are too small by this share.
        """
        seen = np.zeros(len(self.fitted.a) + 1, dtype=bool)  # the last for rows that were not fitted
        seen[learned] = True
        position = judged if self.rows.position is None else self.rows.position[judged]
        if fit.crossed or not (own := seen[position]).any():
            return np.zeros((1, 1))
        known = fit.design(self.fitted.table[self.form.nuisances.graph.columns_of(stage.given)].iloc[learned])
        groups = self.fitted.groups
        near = None if groups is None else (groups[position.clip(min=0)], groups[learned])
        return np.where(own[:, None], fit.leverage(design, known, self.fitted.weight[learned], near), 0.0)

    def learn(self, stage: Stage, train: NDArray[np.int64]) -> tuple[NDArray[np.int64], Learner, Design, Design]:
        """Return which rows of ``train`` a stage is learned from, and its regression with the designs."""
        at = np.flatnonzero(self.fitted.member(stage.arm)[train])
        if not len(at):
            raise DataError(f"No row of group {stage.arm} is left to learn {', '.join(stage.nodes)} from.")
        return at, *self._regression(stage)


@dataclass(frozen=True)
class Average:
    """The corrections of some stages and what they leave of the scores, of m judged rows and of those learned from.

    ``smooth`` is another estimate of the average ``end`` that varies less, for signs and products; ``plain`` the
    averages that no further row has pulled.
    """

    total: Array
    end: Sides
    smooth: Sides
    plain: Sides


def columns_of(score: Scorer) -> Columns:
    """Return the models and decisions of a scorer's columns, if it says so."""
    return getattr(score, "columns", ())


def leaders_of(scores: Array, columns: Columns, alone: int) -> tuple[int, ...]:
    """Return for each column of scores (n, Q) itself or, of decisions, their model's score: all but the first alone.

    No column leads those of another model, whose numbers would depend on the models beside it.
    """
    scores = scores[~np.isnan(scores).any(axis=1)]
    rough = ((scores == 0.0) | (scores == 1.0)).all(axis=0)
    fine = {name: at for at, (name, rule) in enumerate(columns) if rule == "score" and not rough[at]}
    found, followed = [*range(scores.shape[1])], dict.fromkeys(fine, 0)
    for at, (name, _) in enumerate(columns):
        if name in fine and rough[at] and scores[:, at].min() < scores[:, at].max():
            followed[name] += 1
            found[at] = fine[name] if followed[name] > alone else at
    return tuple(found)


def sign_of(values: Array) -> Array:
    """Return the signs of values, 0 of what is nothing but rounding."""
    return np.where(np.abs(values) <= ROUNDING, 0.0, np.sign(values))


def _given_shared(a: Array, b: Array, smooth_a: Array, smooth_b: Array) -> list[Array]:
    """Return the means given the shared features, a and b, and what the bounds on PIU and the disagreement are there.

    Their signs and multipliers are those of the smooth means.
    """
    sign, side = sign_of(smooth_b - smooth_a), sign_of(1.0 - smooth_a - smooth_b)
    product = (1.0 - 2.0 * smooth_b) * a + (1.0 - 2.0 * smooth_a) * b + 2.0 * smooth_a * smooth_b
    return [a, b, sign * (b - a), side * (1.0 - a - b), product]
