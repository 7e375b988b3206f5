"""Means in many worlds at once, by sequential regressions: a regression that several worlds need is made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from pyrofair._progress import progress_bar
from pyrofair.effects.influence import Scorer
from pyrofair.graph.identification import Estimand, RegimeEstimand
from pyrofair.nuisances.columns import take
from pyrofair.nuisances.diagnostics import (
    Stage,
    choose_by_overlap,
    describe_stages,
    problems_of,
    warn_of_overlap,
    worst_stages,
)
from pyrofair.nuisances.folds import warn_of_one_fold
from pyrofair.nuisances.learners import Learner, LearnerName
from pyrofair.nuisances.rows import Nuisances, judge_unseen
from pyrofair.sources.prefix_form import PrefixForm, Walk, as_world, columns_of, make_scores, orders_of

__all__ = ["ManyWorlds"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class _Averaged:
    """Scores averaged over the stages from one on: of all rows (n, Q), with the residuals that this leaves them.

    ``pull`` is by how much the average of few rows was moved, see :meth:`~pyrofair.nuisances.learners.Learner.pull`.
    """

    after: Array
    residual: Array
    pull: Array


@dataclass(frozen=True, eq=False)
class ManyWorlds:
    """The means of scores in many worlds, by propensities and regressions that worlds share.

    A regression is one of its stage and of the arms of that and all later stages, and worlds with the same of these
    share it. The rows are those that the propensities are fitted on.
    """

    nuisances: Nuisances
    regression: LearnerName | RegressorMixin
    splits: int

    @property
    def _count(self) -> int:
        """The number of splits into folds, by which the rows are judged."""
        crossed = judge_unseen(self.nuisances.propensity, self.regression)
        return self.splits if crossed and self.nuisances.folds > 1 else 1

    def _form(self, estimand: Estimand, worlds: Mapping[str, RegimeEstimand], split: int = 0) -> PrefixForm:
        """Return the form of worlds by their names in diagnostics, by one split into folds."""
        own = self.nuisances.by_split(split)
        made = [as_world(part, estimand.target, part.roots, name) for name, part in worlds.items()]
        return PrefixForm(estimand, own, self.regression, own.seed, made)

    def choose_order(
        self, estimand: Estimand, worlds: Mapping[str, RegimeEstimand], cost: Callable[[Mapping[str, str]], Any]
    ) -> tuple[dict[str, RegimeEstimand], dict[str, str]]:
        """Return worlds in one order of the features, and by name what is wrong with the overlap of some in any split.

        It is the first order in which nothing is wrong, or else that of the least ``cost`` of what is.
        """

        def tried() -> Iterator[tuple[dict[str, RegimeEstimand], list[PrefixForm]]]:
            for order in orders_of([*worlds.values()]):
                own = {name: part.ordered((*part.order[: part.roots], *order)) for name, part in worlds.items()}
                yield own, [self._form(estimand, own, split) for split in range(self._count)]

        found, _, problems = choose_by_overlap(tried(), cost)
        return found, problems

    def lacking(self, estimand: Estimand, worlds: Mapping[str, RegimeEstimand], at: Indices) -> dict[str, str]:
        """Return by name what is wrong with the overlap of some worlds among some rows (m,), in any split."""
        forms = (self._form(estimand, worlds, split) for split in range(self._count))
        return problems_of(worst_stages([form.stages(form.nuisances.rows.part(at)) for form in forms]))

    def walk(
        self, estimand: Estimand, worlds: Mapping[str, RegimeEstimand], score: Scorer
    ) -> tuple[Array, pd.DataFrame]:
        """Return influence values by split (S, n, Q times the worlds), and the diagnostics of the stages.

        The columns are those of all worlds for the first column of scores, then for the next.
        """
        if self.nuisances.folds == 1 and judge_unseen(self.nuisances.propensity, self.regression):
            warn_of_one_fold()
        found, stages = [], []
        for split in range(self._count):
            form = self._form(estimand, worlds, split)
            if not split and (rest := [text for _, text in form.unsupported.values() if text]):
                warn_of_overlap([*rest[:1], f"So it is in {len(rest) - 1} other world(s)." if rest[1:] else ""])
            values, table = _Walks(form, form.nuisances.rows, _scores_of(form, score), columns_of(score)).all_worlds()
            found.append(np.stack(values, axis=-1).reshape(len(values[0]), -1))
            stages.append(table)
        return np.stack(found), worst_stages(stages)


def _scores_of(form: PrefixForm, score: Scorer) -> list[tuple[Array, Array]]:
    """Return the scores (n, Q) of the rows in each world of a form; worlds of equal scores share them."""
    known: dict[Any, Array] = {}
    rows, scores = form.nuisances.rows, []
    for world in form.worlds:
        key = world.part.outcome_arm, world.stages[-1].arm if world.stages else None
        if key not in known:
            own, _ = make_scores(score, world.part, rows, rows, form.estimand)
            known[key] = next((each for each in known.values() if np.array_equal(each, own, equal_nan=True)), own)
        scores.append((known[key], known[key]))
    return scores


class _Walks(Walk):
    """One pass through the stages of any number of worlds, fold by fold; decisions have the trees of their score."""

    with_own_trees = 0

    def all_worlds(self) -> tuple[list[Array], pd.DataFrame]:
        """Return the influence values (n, Q) of each world, and the diagnostics of the stages."""
        out = [np.zeros_like(own) for own, _ in self.scores]
        for train, judged, _ in progress_bar("regressions", self.folds()):
            self.memo: dict[Any, _Averaged] = {}
            self.learned_from: dict[tuple[int, int | None], Learner] = {}
            for which, world in enumerate(self.form.worlds):
                out[which][judged] = self._judge(which, world.stages, train, judged)
        table = describe_stages([each for world in self.found for each in world], self.rows)
        return out, table

    def _judge(self, which: int, stages: Sequence[Stage], train: Indices, judged: Indices) -> Array:
        """Return the influence values of the rows that a fold judges in one world."""
        end = self.scores[which][0]
        total = np.zeros((len(judged), self.columns))
        for i, values in enumerate(self.found[which]):
            of = self._averaged(stages[i:], end, train, judged)
            weight = values.weight[judged, None]
            corrected = np.where(weight > 0.0, weight * of.residual[judged], 0.0)
            values.correction[judged], values.start[judged] = corrected, of.after[judged] - of.pull[judged]
            total += corrected - np.where(weight > 0.0, weight * of.pull[judged], 0.0)
        first = self._averaged(stages, end, train, judged).after if stages else end
        return np.asarray(first[judged] + total)

    def _averaged(self, stages: Sequence[Stage], end: Array, train: Indices, judged: Indices) -> _Averaged:
        """Return scores averaged over some stages, the last first, by regressions on the rows of ``train``."""
        stage = stages[0]
        key = stage.start, tuple((each.start, each.arm) for each in stages), id(end)
        if key not in self.memo:
            before = self._averaged(stages[1:], end, train, judged).after if len(stages) > 1 else end
            at, regression, design, _ = self.learn(stage, train)
            rows, groups, of = train[at], self.fitted.groups, (stage.start, stage.arm)
            y, weight = before[rows], self.fitted.weight[rows]
            made = self.learned_from.get(of)
            fit = None if made is None else made.regrown(design, rows, y, weight)
            if fit is None:
                fit = regression.fit(take(design, rows), y, weight, None if groups is None else groups[rows])
            self.learned_from[of] = fit  # it has the trees of all responses so far that vary
            mean, pull = fit(design), np.broadcast_to(fit.pull(design), before.shape)
            seen = 1.0 - self._leverage(stage, fit, design, np.arange(len(mean)), rows)
            self.memo[key] = _Averaged(mean + pull, (before - mean) / seen, pull)
        return self.memo[key]
