"""Means in many worlds at once, by sequential regressions: a regression that several worlds need is made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from pyrofair._progress import progress_bar
from pyrofair.effects.influence import Scorer
from pyrofair.graph.identification import Estimand, RegimeEstimand
from pyrofair.nuisances.columns import take
from pyrofair.nuisances.diagnostics import Stage, describe_stages, describe_unsupported, worst_stages
from pyrofair.nuisances.learners import Learner, LearnerName
from pyrofair.nuisances.rows import Nuisances
from pyrofair.sources.prefix_form import PrefixForm, Walk, as_world, make_scores, orders_of

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
    def _names(self) -> set[str]:
        return {each if isinstance(each, str) else "" for each in (self.nuisances.propensity, self.regression)}

    def _form(self, estimand: Estimand, worlds: Mapping[str, RegimeEstimand], split: int = 0) -> PrefixForm:
        """Return the form of worlds by their names in diagnostics, by another split into folds."""
        own = self.nuisances
        if split:
            seed = int(np.random.default_rng([own.seed, split]).integers(2**31))
            own = replace(own, rows=replace(own.rows, probability={}), seed=seed, models={}, matches=[])
        made = [as_world(part, estimand.target, part.roots, name) for name, part in worlds.items()]
        return PrefixForm(estimand, own, self.regression, own.seed, made)

    def choose_order(
        self, estimand: Estimand, worlds: Mapping[str, RegimeEstimand]
    ) -> tuple[dict[str, RegimeEstimand], dict[str, str]]:
        """Return worlds in one order of the features in which the fewest lack overlap, and what is wrong with each."""
        best: tuple[int, dict[str, RegimeEstimand], dict[str, str]] | None = None
        for order in orders_of([*worlds.values()]):
            tried = {name: part.ordered((*part.order[: part.roots], *order)) for name, part in worlds.items()}
            problems = self._find_problems(estimand, tried)
            poor = sum(map(bool, problems.values()))
            if best is None or poor < best[0]:
                best = poor, tried, problems
            if not poor:
                break
        assert best is not None
        return best[1:]

    def _find_problems(self, estimand: Estimand, worlds: Mapping[str, RegimeEstimand]) -> dict[str, str]:
        bad = self._form(estimand, worlds).stages(self.nuisances.rows).query("problem != ''")
        found = {}
        for name, part in worlds.items():
            texts = [f"{each.nodes}: {each.problem}" for each in bad[bad["regime"] == name].itertuples()]
            cells, _ = describe_unsupported(part, name, self.nuisances, saturated="saturated" in self._names)
            found[name] = "; ".join(filter(None, [*texts, cells]))
        return found

    def walk(
        self, estimand: Estimand, worlds: Mapping[str, RegimeEstimand], score: Scorer
    ) -> tuple[Array, pd.DataFrame]:
        """Return influence values by split (S, n, Q times the worlds), and the diagnostics of the stages.

        The columns are those of all worlds for the first column of scores, then for the next.
        """
        crossed = not self._names <= {"logistic", "saturated"} and self.nuisances.folds > 1
        found, stages = [], []
        for split in range(self.splits if crossed else 1):
            form = self._form(estimand, worlds, split)
            values, table = _Walks(form, form.nuisances.rows, _scores_of(form, score)).all_worlds()
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
                self.learned_from.setdefault(of, fit)
            mean, pull = fit(design), np.broadcast_to(fit.pull(design), before.shape)
            seen = 1.0 - self._leverage(stage, fit, design, np.arange(len(mean)), rows)
            self.memo[key] = _Averaged(mean + pull, (before - mean) / seen, pull)
        return self.memo[key]
