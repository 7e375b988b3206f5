"""The models of an audit: their scores, what they read, and whether their scores are a function of the features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from pyrofair.effects import CounterfactualSample
from pyrofair.effects.adapters import DecisionsOf
from pyrofair.effects.row_functions import AT_RANDOM, SAME, Difference, Scores, find_difference, spread
from pyrofair.effects.scoring import (
    DECISIONS,
    Adapter,
    Decisions,
    Rule,
    as_adapter,
    decide,
    is_model,
    positive_scores,
    read_given,
)
from pyrofair.exceptions import DataError
from pyrofair.graph import CausalGraph
from pyrofair.tables.row_identity import hash_rows

__all__ = [
    "AuditedModel",
    "ScoreType",
    "ScoresAre",
    "describe_reversal",
    "disagreement_with_predict",
    "judge_scores",
]

ScoresAre = Literal["auto", "prediction", "outcome"]

COMPARED = 2_000
"""The largest number of rows on which a model's own decisions are compared with those by the threshold."""
HALF = 0.5
REVERSED, FAR = 0.4, 5.0
"""Scores run against the outcome from this area under the ROC curve down, this many deviations below one half."""
ENOUGH = 300
"""The number of rows that must repeat another one and its score before given scores count as a function."""
RULE_OF_THREE = 3.0
"""Of k rows none of which disagrees, at most this over k would in the long run, at 95 %."""


@dataclass(frozen=True)
class AuditedModel:
    """A named model, or given scores of the n observed rows, with the columns that it may read in order.

    ``labels`` are those of the outcome, if known; ``decided``: given scores are the decisions of a model without
    probabilities.
    """

    name: str
    model: Any
    graph: CausalGraph
    order: tuple[str, ...]
    labels: tuple[Any, ...] | None = None
    decided: bool = False

    @property
    def is_scores(self) -> bool:
        """Whether it is given as scores."""
        return not is_model(self.model)

    @property
    def decisions(self) -> tuple[Decisions, ...]:
        """What can be audited of it: decisions, and scores where it has any."""
        return DECISIONS[:1] if self.decided or isinstance(self.model, DecisionsOf) else DECISIONS

    def rules_of(self, rules: Sequence[Rule]) -> tuple[Rule, ...]:
        """Return those of the rules that apply to it: of a model that gives decisions alone, all but its scores."""
        return tuple(rule for rule in rules if rule != "score" or rule in self.decisions)

    @property
    def is_unnamed(self) -> bool:
        """Whether it was fitted without column names, so that only their order determines what it reads."""
        return hasattr(self.model, "n_features_in_") and not hasattr(self.model, "feature_names_in_")

    @property
    def reads(self) -> tuple[str, ...] | None:
        """The columns that it reads, as far as is known; None for scores."""
        return None if self.is_scores else as_adapter(self.model).reads(self.order)

    def observed(self, table: pd.DataFrame) -> Scores:
        """Return the probability of the positive outcome for the n observed rows, shape (n,)."""
        if self.is_scores:
            return read_given(self.name, self.model, table, self.graph.positive, self.labels)
        return self.predict(table)

    def difference(self, table: pd.DataFrame, observed: Scores) -> Difference | None:
        """Return the evidence that it is not a function of one row, given its scores of the n observed rows (n,)."""
        ties = as_adapter(self.model).ties(self.name, self.graph, self.order)
        return find_difference(self.predict, table, observed, self.graph, ties)

    def world(self, sample: CounterfactualSample, observed: Scores) -> Scores:
        """Return the scores of a world's m rows, shape (m,), reusing those of unchanged rows."""
        origin = np.full(len(sample.rows), -1) if sample.origin is None else sample.origin
        changed, scores = origin < 0, observed[origin]
        if changed.any() and self.is_scores:
            raise DataError(
                f"{self.name!r} is given as scores, but {int(changed.sum())} rows of a world are not observed ones: "
                f"the source switches {self.graph.sensitive!r} in them or draws them. Pass the model itself; or use "
                "IPW(..., arm='paper'), which weights unchanged rows only; or, if they are decisions of humans or of a "
                "model of other inputs, pass scores='outcome'."
            )
        if changed.any():
            scores[changed] = self.predict(sample.rows[changed])
        return scores

    def predict(self, rows: pd.DataFrame) -> Scores:
        """Return the scores of m rows, shape (m,), by the model that it is."""
        try:
            return positive_scores(self.name, self.model, rows, self.graph, self.order, self.labels)
        except Exception as error:  # whatever a model raises, its name is what an audit of several lacks
            if isinstance(error, DataError) and str(error).startswith(repr(self.name)):
                raise
            asked = "the adapted model" if isinstance(self.model, Adapter) else "predict_proba"
            gaps = ", ".join(rows.columns[rows.isna().any()])
            imputed = f"; if it reads no missing values, which are in {gaps}, put an imputer before it in a pipeline"
            raise DataError(
                f"{self.name!r} could not score {len(rows):,} rows: {asked} raised {type(error).__name__}: {error} "
                f"Pass a fitted model that takes {', '.join(self.reads or self.order)}{imputed if gaps else ''}."
            ) from error

    def own_decisions(self, rows: pd.DataFrame) -> Scores | None:
        """Return what its own ``predict`` decides, 1 for the positive label, shape (m,); None if it has none."""
        if self.is_scores or isinstance(self.model, Adapter) or not hasattr(self.model, "predict"):
            return None
        adapted = DecisionsOf(self.model)
        try:
            return positive_scores(self.name, adapted, rows, self.graph, self.order, self.labels)
        except Exception:  # a predict that is of no use here: the audit depends on predict_proba
            return None


@dataclass(frozen=True)
class ScoreType:
    """Whether scores are an outcome (decisions of humans, of a model of other inputs, or at random), and why.

    ``warning`` is for the user: of a model that is taken for an outcome, and of given scores that could be either.
    """

    is_outcome: bool
    why: str
    warning: str = ""


def judge_scores(model: AuditedModel, table: pd.DataFrame, scores: Scores, scores_are: ScoresAre) -> ScoreType:
    """Return whether the scores (n,) of n rows are a function of the features that a classifier may read.

    Given scores are an outcome if two rows agree in all these features, the sensitive attribute among them, and differ
    in the score. Equal scores of a few equal rows show no function: decisions follow the features for the most part,
    and what else they follow shows in few rows. Given scores therefore stay open below 300 such rows. A model scores
    some rows again: if it draws at random its scores are an outcome, and a DataError if it reads other rows.
    """
    name, columns = model.name, model.graph.input_columns
    read = ", ".join(columns)
    compared, found = _compare_repeats(table[columns], scores)
    if not model.is_scores and found:
        found += f": {AT_RANDOM}"
    elif not model.is_scores and (difference := model.difference(table, scores)):
        if not difference.at_random:
            raise difference.refusal(repr(name), model.graph.sensitive_column)
        found = f"it {difference}"
    if found and scores_are == "prediction":
        raise DataError(
            f"scores='prediction' takes the scores of {name!r} for a function of {read}, but {found}. They are an "
            "outcome: pass scores='outcome', or complete the graph and the table with what else was read."
        )
    if found:
        told = f"{name!r} is taken for an outcome, not for a function of {read}, because {found}."
        return ScoreType(True, found, "" if model.is_scores else told)
    if not model.is_scores:
        stated = "it gives the same scores again, and scores='outcome' describes given scores alone"
        return ScoreType(False, stated if scores_are == "outcome" else "")
    if scores_are == "outcome":
        return ScoreType(True, "stated by the user (scores='outcome')")
    if np.ptp(scores) <= SAME:
        return ScoreType(False, "all rows have one score")
    known = f"no row has the {read} of another row"
    if compared:
        most = min(RULE_OF_THREE / compared, 1.0)
        known = f"{compared:,} row(s) have the {read} of another row, all with its score"
        known += f", so that at most {most:.2g} differ (95 %)"
    if compared >= ENOUGH:
        return ScoreType(False, known)
    known += f"; {ENOUGH} such rows would tell"
    if scores_are == "prediction":
        return ScoreType(False, f"stated by the user (scores='prediction'): {known}")
    told = (
        f"{name!r} is given as scores, and you did not say what they are: {known}. They are taken for a function of "
        "the features. If they are decisions of humans, or of a model of other inputs, pass scores='outcome', else "
        "scores='prediction'."
    )
    return ScoreType(False, f"the user stated nothing: {known}", told)


def _compare_repeats(features: pd.DataFrame, scores: Scores) -> tuple[int, str]:
    """Return how many rows repeat the features of another one, and the evidence that equal rows differ in score."""
    cell = np.unique(hash_rows(features), return_inverse=True)[1].ravel()
    count = np.bincount(cell)
    order = np.lexsort((scores, cell))
    last = np.cumsum(count) - 1
    lowest, highest = order[last - count + 1], order[last]
    gap = scores[highest] - scores[lowest]
    apart = gap > SAME
    compared = len(scores) - len(count)
    if not apart.any():
        return compared, ""
    worst = int(np.argmax(gap))
    one, other = lowest[worst], highest[worst]
    labels = features.index[[one, other]].tolist()
    return compared, (
        f"{int(count[apart].sum()):,} of {len(scores):,} rows agree in {', '.join(features.columns)} with a row of "
        f"another score: rows {labels[0]!r} and {labels[1]!r} have {scores[one]:g} and {scores[other]:g}"
    )


def describe_reversal(model: AuditedModel, scores: Scores, outcome: NDArray[np.int8] | None) -> str:
    """Return a warning where scores (n,) are clearly lower in rows of the favourable outcome (n,) than in others.

    Such scores may be probabilities of the other label, and effects on them have the other sign.
    """
    if outcome is not None:
        scores, outcome = scores[outcome >= 0], outcome[outcome >= 0]
    if outcome is None or not 0 < (yes := int(outcome.sum())) < (n := len(outcome)):
        return ""
    share = float(roc_auc_score(outcome, scores))
    deviation = math.sqrt((n + 1) / (12 * yes * (n - yes)))  # without any relation, and with no two scores alike
    if share > REVERSED or share > 0.5 - FAR * deviation:
        return ""
    return (
        f"The scores of {model.name!r} run against the outcome: of a row with {model.graph.outcome_column!r} = "
        f"{model.graph.positive!r} and one without, the former has the higher score in {share:.0%} of pairs. If they "
        "are for the other label, such as a risk, effects have the wrong sign and rates are those of no: take 1 minus "
        f"them. If {model.graph.positive!r} is not the favourable label, name the other one."
    )


def disagreement_with_predict(model: AuditedModel, table: pd.DataFrame, scores: Scores, threshold: float) -> str:
    """Return a warning where a model's own ``predict`` decides other than its scores (n,) and the threshold do.

    A threshold other than 1/2 is a choice, of which there is none where ``predict`` cuts at 1/2.
    """
    chosen = spread(len(table), COMPARED)
    own, score = model.own_decisions(table.iloc[chosen]), scores[chosen]
    if own is None:
        return ""

    def differ(cut: float) -> int:
        near = np.abs(score - cut) <= SAME  # ties, and rounding
        return int(((decide(score, cut, cut) != own) & ~near).sum())

    found = differ(threshold)
    if not found or (threshold != HALF and not differ(HALF)):
        return ""
    cure, best = "pf.DecisionsOf(model)", getattr(model.model, "best_threshold_", None)
    if best is not None:
        cure = f"audit(..., threshold={float(best):.6g}), its best_threshold_, or {cure}"
    if callable(getattr(model.model, "one_draw", None)):  # PSCF decides by one draw of a unit's noise
        cure = "model.one_draw()"
    return (
        f"{model.name!r}: its own predict decides {found} of {len(chosen)} audited rows other than predict_proba > "
        f"{threshold:g} does, which is what is audited here. To audit the decisions that it makes, pass {cure}."
    )
