"""Means in many worlds at once, by sequential regressions: a regression that several worlds need is made once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._progress import progress_bar
from pyrofair.effects.influence import Scorer
from pyrofair.nuisances.columns import Design, take
from pyrofair.nuisances.diagnostics import Stage, describe_stages
from pyrofair.nuisances.learners import Learner
from pyrofair.sources.prefix_form import PrefixForm, Walk, make_scores

__all__ = ["Averaged", "walk_worlds"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Averaged:
    """Scores averaged over the stages from one on: of all rows (n, Q), with the residuals that this leaves them.

    ``pull`` is by how much the average of few rows was moved, see :meth:`~pyrofair.nuisances.learners.Learner.pull`.
    """

    after: Array
    residual: Array
    pull: Array


def walk_worlds(form: PrefixForm, score: Scorer) -> tuple[list[Array], pd.DataFrame]:
    """Return the influence values (n, Q) of the mean scores of each world of a form, and the diagnostics of its stages.

    The rows are those that the form's propensities were fitted on. A regression is one of its stage and of the arms of
    that and all later stages, and worlds with the same of these share it.
    """
    graph, known = form.estimand.unfair.graph, dict[Any, Array]()
    scores = []
    for world in form.worlds:
        last = world.stages[-1].arm if world.stages else None
        arm = world.part.outcome_arm
        if (arm, last) not in known:
            own, _ = make_scores(score, world.part, form.nuisances.rows, form.nuisances.rows, form.estimand)
            # Worlds whose scores are the same share their regressions, as those of a model that does not read A.
            known[arm, last] = next((each for each in known.values() if np.array_equal(each, own, equal_nan=True)), own)
        scores.append((known[arm, last], known[arm, last]))
    return _Walks(form, form.nuisances.rows, scores).all_worlds(graph.sensitive)


class _Walks(Walk):
    """One pass through the stages of any number of worlds, fold by fold."""

    def all_worlds(self, name: str) -> tuple[list[Array], pd.DataFrame]:
        """Return what :func:`walk_worlds` does."""
        out = [np.zeros_like(own) for own, _ in self.scores]
        for train, judged, _ in progress_bar("regressions", self.folds()):
            self.memo: dict[Any, Averaged] = {}
            self.learned_from: dict[tuple[int, int | None], Learner] = {}
            self.regrown: dict[tuple[int, int | None], Callable[[Array], Array] | None] = {}
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

    def _averaged(self, stages: Sequence[Stage], end: Array, train: Indices, judged: Indices) -> Averaged:
        """Return scores averaged over some stages, the last first, by regressions on the rows of ``train``."""
        stage = stages[0]
        key = stage.start, tuple((each.start, each.arm) for each in stages), id(end)
        if key not in self.memo:
            before = self._averaged(stages[1:], end, train, judged).after if len(stages) > 1 else end
            at, regression, design, _ = self.learn(stage, train)
            rows, groups, of = train[at], self.fitted.groups, (stage.start, stage.arm)
            y, weight = before[rows], self.fitted.weight[rows]
            made = self.learned_from.get(of)
            if made is not None and (regrown := self._regrown(of, made, design, rows, weight)) is not None:
                mean = regrown(y)
                pull, seen = np.zeros_like(mean), np.ones((1, 1))
            else:
                fit = regression.fit(take(design, rows), y, weight, None if groups is None else groups[rows])
                self.learned_from.setdefault(of, fit)
                mean, pull = fit(design), np.broadcast_to(fit.pull(design), before.shape)
                seen = 1.0 - self._leverage(fit, design, np.arange(len(mean)), rows)[:, None]
            self.memo[key] = Averaged(mean + pull, (before - mean) / seen, pull)
        return self.memo[key]

    def _regrown(
        self, of: tuple[int, int | None], fit: Learner, design: Design, rows: Indices, weight: Array
    ) -> Callable[[Array], Array] | None:
        """Return what a fit to other scores makes of further ones, if it makes anything."""
        if of not in self.regrown:
            self.regrown[of] = fit.regrown(design, rows, weight)
        return self.regrown[of]
