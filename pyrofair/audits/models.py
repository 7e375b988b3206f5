"""The models of an audit: their scores, what they read, and whether their scores are a function of the features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._validation import require_unmasked
from pyrofair.effects import CounterfactualSample
from pyrofair.effects.scoring import positive_scores
from pyrofair.exceptions import DataError
from pyrofair.graph import CausalGraph
from pyrofair.tables.reading import require_aligned
from pyrofair.tables.row_identity import hash_rows

__all__ = ["AuditedModel", "ScoreType", "ScoresAre", "judge_scores"]

ScoresAre = Literal["auto", "prediction", "outcome"]

TOLERANCE = 1e-5
"""Scores that differ by less are equal: single precision differs with the number of rows scored at once."""
RESCORED = 200
"""The number of rows that a model scores a second time."""
MOST_CHANGED = 0.01
"""A model is no function of the features where the second score differs in more than this share of the rows."""
ENOUGH = 300
"""The number of rows that must repeat another one and its score before given scores count as a function."""
RULE_OF_THREE = 3.0
"""Of k rows none of which disagrees, at most this over k would in the long run, at 95 %."""


@dataclass(frozen=True)
class AuditedModel:
    """A named model, or given scores of the n observed rows, with the columns that it may read in order."""

    name: str
    model: Any
    graph: CausalGraph
    order: tuple[str, ...]

    @property
    def is_scores(self) -> bool:
        """Whether it is given as scores."""
        return not hasattr(self.model, "predict_proba")

    @property
    def is_unnamed(self) -> bool:
        """Whether it was fitted without column names, so that only their order determines what it reads."""
        return hasattr(self.model, "n_features_in_") and not hasattr(self.model, "feature_names_in_")

    @property
    def reads(self) -> tuple[str, ...] | None:
        """The columns that it reads, as far as is known; None for scores."""
        if self.is_scores:
            return None
        return tuple(map(str, getattr(self.model, "feature_names_in_", self.order)))

    def observed(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """Return the probability of the positive outcome for the n observed rows, shape (n,)."""
        return self._given(table) if self.is_scores else self._predict(table)

    def world(self, sample: CounterfactualSample, observed: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the scores of a world's m rows, shape (m,), reusing those of unchanged rows."""
        origin = np.full(len(sample.rows), -1) if sample.origin is None else sample.origin
        changed = origin < 0
        scores = observed[origin]
        if changed.any():
            if self.is_scores:
                raise DataError(
                    f"{self.name!r} is given as scores, but {int(changed.sum())} rows of a world are not observed "
                    f"ones: the source switches {self.graph.sensitive!r} in them or draws them. Pass the model itself; "
                    "or use IPW(..., arm='paper'), which weights unchanged rows only; or, if they are decisions of "
                    "humans or of a model of other inputs, pass scores='outcome'."
                )
            scores[changed] = self._predict(sample.rows[changed])
        return scores

    def _given(self, table: pd.DataFrame) -> NDArray[np.float64]:
        if not isinstance(self.model, np.ndarray | pd.Series | list | tuple):
            raise DataError(
                f"{self.name!r} is a {type(self.model).__name__} without predict_proba. Pass a fitted classifier that "
                "has it, or scores, one for each row, as an array or a Series."
            )
        if isinstance(self.model, pd.Series):
            require_aligned(table, self.model, f"the scores {self.name!r}", table="df")
        require_unmasked(repr(self.name), self.model)
        try:
            if getattr(getattr(self.model, "dtype", None), "kind", "") == "c":
                raise TypeError("complex numbers")
            scores = np.array(self.model, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"{self.name!r} is given as scores, but they are no numbers: {error}.") from error
        if scores.shape != (len(table),):
            raise DataError(
                f"{self.name!r} is given as scores of shape {scores.shape}; expected {(len(table),)}, one for each "
                "row: of predict_proba, pass the column of the positive class."
            )
        wrong = ~((scores >= 0.0) & (scores <= 1.0))
        if wrong.any():
            raise DataError(
                f"{self.name!r} gives {int(wrong.sum())} score(s) outside [0, 1], such as {scores[wrong][0]}. Scores "
                "are probabilities of the positive outcome; log-odds must be put through the logistic function."
            )
        return scores

    def _predict(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        try:
            return positive_scores(self.name, self.model, rows, self.graph, self.order)
        except Exception as error:  # whatever a model raises, its name is what an audit of several lacks
            if isinstance(error, DataError) and str(error).startswith(repr(self.name)):
                raise
            raise DataError(
                f"{self.name!r} could not score {len(rows):,} rows: predict_proba raised {type(error).__name__}: "
                f"{error} Pass a fitted model that takes {', '.join(self.reads or self.order)}."
            ) from error


@dataclass(frozen=True)
class ScoreType:
    """Whether scores are an outcome (decisions of humans, of a model of other inputs, or at random), and why.

    ``is_open``: nothing could be checked, and the user stated nothing.
    """

    is_outcome: bool
    why: str
    is_open: bool = False


def judge_scores(
    model: AuditedModel, table: pd.DataFrame, scores: NDArray[np.float64], scores_are: ScoresAre
) -> ScoreType:
    """Return whether the scores (n,) of n rows are a function of the features that a classifier may read.

    Given scores are an outcome if two rows agree in all these features, the sensitive attribute among them, and differ
    in the score. Equal scores of a few equal rows show no function: decisions follow the features for the most part,
    and what else they follow shows in few rows. Given scores therefore stay open below 300 such rows. A model is scored
    again, on some rows alone: other scores make it an outcome, and equal ones a function.
    """
    columns = model.graph.input_columns
    read = ", ".join(columns)
    compared, found = _compare_repeats(table[columns], scores)
    if not model.is_scores and not found:
        found = _score_again(model, table, scores)
    if found and scores_are == "prediction":
        raise DataError(
            f"scores='prediction' takes the scores of {model.name!r} for a function of {read}, but {found}. They are "
            "an outcome: pass scores='outcome', or complete the graph and the table with what else was read."
        )
    if found:
        return ScoreType(True, found)
    if not model.is_scores:
        stated = "it gives the same scores again, and scores='outcome' describes given scores alone"
        return ScoreType(False, stated if scores_are == "outcome" else "")
    if scores_are == "outcome":
        return ScoreType(True, "stated by the user (scores='outcome')")
    if np.ptp(scores) <= TOLERANCE:
        return ScoreType(False, "all rows have one score")
    repeats = f"no row has the {read} of another row"
    if compared:
        repeats = (
            f"{compared:,} row(s) have the {read} of another row, all with its score, so that at most "
            f"{min(RULE_OF_THREE / compared, 1.0):.2g} differ (95 %)"
        )
    if compared >= ENOUGH:
        return ScoreType(False, repeats)
    known = f"{repeats}; {ENOUGH} would settle it"
    if scores_are == "prediction":
        return ScoreType(False, f"stated by the user (scores='prediction'): {known}")
    return ScoreType(False, f"the user stated nothing: {known}", is_open=True)


def _compare_repeats(features: pd.DataFrame, scores: NDArray[np.float64]) -> tuple[int, str]:
    """Return how many rows repeat the features of another one, and the evidence that equal rows differ in score."""
    cell = np.unique(hash_rows(features), return_inverse=True)[1].ravel()
    count = np.bincount(cell)
    order = np.lexsort((scores, cell))
    last = np.cumsum(count) - 1
    lowest, highest = order[last - count + 1], order[last]
    spread = scores[highest] - scores[lowest]
    apart = spread > TOLERANCE
    compared = len(scores) - len(count)
    if not apart.any():
        return compared, ""
    worst = int(np.argmax(spread))
    one, other = lowest[worst], highest[worst]
    labels = features.index[[one, other]].tolist()
    return compared, (
        f"{int(count[apart].sum()):,} of {len(scores):,} rows agree in {', '.join(features.columns)} with a row of "
        f"another score: rows {labels[0]!r} and {labels[1]!r} have {scores[one]:g} and {scores[other]:g}"
    )


def _score_again(model: AuditedModel, table: pd.DataFrame, scores: NDArray[np.float64]) -> str:
    """Return the evidence that some rows get other scores (n,) when they are scored again, alone."""
    chosen = np.unique(np.linspace(0, len(table) - 1, min(RESCORED, len(table))).astype(np.int64))
    differs = np.abs(model.observed(table.iloc[chosen]) - scores[chosen]) > TOLERANCE
    if differs.sum() <= MOST_CHANGED * len(chosen):
        return ""
    return (
        f"predict_proba gives {int(differs.sum())} of {len(chosen)} rows another score when it is called again: it "
        "draws at random, or reads other rows"
    )
