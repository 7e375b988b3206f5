"""Whether scores are a function of the features that a classifier may read, or an outcome of more than these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.audits.measures import AuditedModel
from pyrofair.exceptions import DataError
from pyrofair.tables.row_identity import hash_rows

__all__ = ["ScoreKind", "ScoresAre", "judge_scores"]

ScoresAre = Literal["auto", "prediction", "outcome"]

TOLERANCE = 1e-5
"""Scores that differ by less are equal: single precision differs with the number of rows scored at once."""
SAMPLE = 200
"""How many rows a model scores a second time."""
FEW = 0.01
"""A model is no function of the features where the second score differs in more than this share of the rows."""
ENOUGH = 300
"""How many rows must repeat the features of another one, and its score, before given scores count as a function."""
RULE_OF_THREE = 3.0
"""Of k rows none of which disagrees, at most this over k would in the long run, at 95 %."""


@dataclass(frozen=True)
class ScoreKind:
    """What the scores of a model are, and how that is known.

    Parameters
    ----------
    is_outcome
        Whether they are an outcome: human decisions, say, a model of other inputs, or one that draws at random.
    why
        How it is known, or on whose word it is taken.
    is_open
        Whether nothing could be checked, and nobody said.
    """

    is_outcome: bool
    why: str
    is_open: bool = False


def judge_scores(
    model: AuditedModel, table: pd.DataFrame, scores: NDArray[np.float64], scores_are: ScoresAre
) -> ScoreKind:
    """Tell whether a model's scores are a function of the features that the graph lets a classifier read.

    Given scores are an outcome if two rows agree in all these features, the sensitive attribute among them, and differ
    in the score. Equal scores of a few equal rows show no function: decisions follow the features for the most part,
    and what else they follow shows in few rows. Of k such rows at most a share of 3 / k would differ in the long run
    (95 %), so given scores stay open below 300 of them. A model is scored again, on some rows alone: other scores make
    it an outcome, and equal ones a function.

    Parameters
    ----------
    model
        The model, or given scores.
    table
        The n observed rows.
    scores
        Their scores, shape (n,).
    scores_are
        What the user says of given scores: ``"prediction"``, ``"outcome"``, or nothing (``"auto"``).

    Raises
    ------
    DataError
        If the user calls them a prediction and they are none.
    """
    columns = model.graph.input_columns
    read = ", ".join(columns)
    compared, found = _unequal(table[columns], scores)
    if not model.is_scores and not found:
        found = _second_call(model, table, scores)
    if found and scores_are == "prediction":
        raise DataError(
            f"scores='prediction' takes the scores of {model.name!r} for a function of {read}, but {found}. They are "
            "an outcome: pass scores='outcome', or complete the graph and the table with what else was read."
        )
    if found:
        return ScoreKind(True, found)
    if not model.is_scores:
        said = "it gives the same scores again, and scores='outcome' is said of given scores alone"
        return ScoreKind(False, said if scores_are == "outcome" else "")
    if scores_are == "outcome":
        return ScoreKind(True, "you say so (scores='outcome')")
    if np.ptp(scores) <= TOLERANCE:
        return ScoreKind(False, "all rows have one score")
    if compared >= ENOUGH:
        return ScoreKind(False, _repeats(compared, read))
    known = f"{_repeats(compared, read)}; {ENOUGH} would settle it"
    if scores_are == "prediction":
        return ScoreKind(False, f"you say so (scores='prediction'): {known}")
    return ScoreKind(False, f"nobody said: {known}", is_open=True)


def _repeats(compared: int, read: str) -> str:
    """Say how many rows repeat another one, all with its score, and what that tells of the others."""
    if not compared:
        return f"no row has the {read} of another row"
    most = min(RULE_OF_THREE / compared, 1.0)
    return (
        f"{compared:,} row(s) have the {read} of another row, all with its score, so that at most {most:.2g} differ "
        "(95 %)"
    )


def _unequal(features: pd.DataFrame, scores: NDArray[np.float64]) -> tuple[int, str]:
    """Return how many rows repeat the features of another one, and what shows that scores are no function of these."""
    cell = np.unique(hash_rows(features), return_inverse=True)[1].ravel()
    count = np.bincount(cell)
    order = np.lexsort((scores, cell))
    last = np.cumsum(count) - 1
    spread = scores[order[last]] - scores[order[last - count + 1]]
    apart = spread > TOLERANCE
    compared = len(scores) - len(count)
    if not apart.any():
        return compared, ""
    worst = int(np.argmax(spread))
    one, other = order[last[worst] - count[worst] + 1], order[last[worst]]
    labels = features.index[[one, other]].tolist()
    return compared, (
        f"{int(count[apart].sum()):,} of {len(scores):,} rows agree in {', '.join(features.columns)} with a row of "
        f"another score: rows {labels[0]!r} and {labels[1]!r} have {scores[one]:g} and {scores[other]:g}"
    )


def _second_call(model: AuditedModel, table: pd.DataFrame, scores: NDArray[np.float64]) -> str:
    """Score some rows again, alone, and say so if they get other scores."""
    chosen = np.unique(np.linspace(0, len(table) - 1, min(SAMPLE, len(table))).astype(np.int64))
    again = model.observed(table.iloc[chosen])
    differs = np.abs(again - scores[chosen]) > TOLERANCE
    if differs.sum() <= FEW * len(chosen):
        return ""
    return (
        f"predict_proba gives {int(differs.sum())} of {len(chosen)} rows another score when it is called again: it "
        "draws at random, or reads other rows"
    )
