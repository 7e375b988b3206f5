"""How one model does on the observed rows and in the two worlds: scores, decisions, and the quantities made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from pyrofair.exceptions import DataError
from pyrofair.functionals import disagreement, effect_gap, piu_upper
from pyrofair.graph import CausalGraph
from pyrofair.potential_outcomes import CounterfactualSample

__all__ = ["DECISIONS", "Decisions", "ScoredModel", "decide", "measure", "score_model"]

Decisions = Literal["threshold", "score"]
DECISIONS: tuple[Decisions, ...] = ("threshold", "score")
Worlds = tuple[CounterfactualSample, CounterfactualSample]


@dataclass(frozen=True)
class ScoredModel:
    """A model's probabilities of the positive outcome: of the observed rows (n,), and of each world's rows (m,)."""

    observed: NDArray[np.float64]
    worlds: tuple[NDArray[np.float64], NDArray[np.float64]]


def decide(scores: NDArray[np.float64], decisions: Decisions, threshold: float) -> NDArray[np.float64]:
    """Return the scores themselves, or 1 where they exceed the threshold and 0 elsewhere."""
    return scores if decisions == "score" else (scores > threshold).astype(np.float64)


def score_model(name: str, model: Any, table: pd.DataFrame, worlds: Worlds | None, graph: CausalGraph) -> ScoredModel:
    """Score the observed rows and the rows of both worlds.

    Parameters
    ----------
    name
        What the model is called in messages.
    model
        Anything with ``predict_proba``, or scores of the observed rows, shape (n,). Scores alone serve only worlds made
        of unchanged rows.
    table
        The n observed rows.
    worlds
        The two worlds, or None where they cannot be made.
    graph
        The graph that says what a classifier may read.

    Raises
    ------
    DataError
        If the model has no ``predict_proba``, reads other columns than the observed parents of the outcome, does not
        know the positive label, returns scores outside [0, 1] or none at all, or if given scores do not suffice.
    """
    given = not hasattr(model, "predict_proba")
    observed = _given_scores(name, model, len(table)) if given else _predict(name, model, table, graph)
    if worlds is None:
        return ScoredModel(observed, (np.empty(0), np.empty(0)))
    scored = []
    for world in worlds:
        origin = np.full(len(world.rows), -1) if world.origin is None else world.origin
        scores = observed[origin]
        changed = origin < 0
        if changed.any():
            if given:
                raise DataError(
                    f"{name!r} is given as scores, but {int(changed.sum())} rows of a world are not observed ones: the "
                    f"source switches {graph.sensitive!r} in them or draws them. Pass the model itself, or use "
                    "IPW(..., arm='paper'), which weights unchanged rows only."
                )
            scores[changed] = _predict(name, model, world.rows[changed], graph)
        scored.append(scores)
    return ScoredModel(observed, (scored[0], scored[1]))


def _given_scores(name: str, scores: Any, n: int) -> NDArray[np.float64]:
    if isinstance(scores, str) or not hasattr(scores, "__len__"):
        raise DataError(
            f"{name!r} has no predict_proba: {scores!r}. Pass a fitted classifier, or scores, one for each row."
        )
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != (n,):
        raise DataError(f"{name!r} is given as scores of shape {values.shape}; expected {(n,)}, one for each row.")
    return _checked(name, values)


def _checked(name: str, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    wrong = ~((scores >= 0.0) & (scores <= 1.0))
    if wrong.any():
        raise DataError(
            f"{name!r} gives {int(wrong.sum())} score(s) outside [0, 1], such as {scores[wrong][0]}. Scores are "
            "probabilities of the positive outcome; log-odds must be put through the logistic function."
        )
    return scores


def _predict(name: str, model: Any, rows: pd.DataFrame, graph: CausalGraph) -> NDArray[np.float64]:
    allowed = graph.input_columns
    if hasattr(model, "feature_names_in_"):
        reads = list(model.feature_names_in_)
        outside = [column for column in reads if column not in allowed]
        if outside:
            hint = f"the graph has no edge {graph.sensitive} -> {graph.outcome}"
            why = hint if graph.sensitive_column in outside else "they are no observed parents of the outcome"
            raise DataError(
                f"{name!r} reads {', '.join(map(repr, outside))}, but {why}: a classifier may read "
                f"{', '.join(allowed)}. Correct the graph, or fit the model without these columns."
            )
        X: Any = rows[reads]
    else:
        X = rows[[column for column in rows.columns if column in allowed]]
        expected = getattr(model, "n_features_in_", X.shape[1])
        if expected != X.shape[1]:
            raise DataError(
                f"{name!r} was fitted on {expected} unnamed columns, but the graph lets it read {X.shape[1]}: "
                f"{', '.join(X.columns)}. Fit it on a DataFrame, so that its columns have names."
            )
        if hasattr(model, "n_features_in_"):
            X = X.to_numpy()
    proba = np.asarray(model.predict_proba(X), dtype=np.float64)
    if proba.ndim != 2 or proba.shape != (len(rows), 2):
        raise DataError(f"{name!r}: predict_proba returned the shape {proba.shape}, expected {(len(rows), 2)}.")
    return _checked(name, proba[:, _positive_column(name, model, graph)])


def _positive_column(name: str, model: Any, graph: CausalGraph) -> int:
    classes = list(getattr(model, "classes_", [None, graph.positive]))
    if graph.positive not in classes:
        raise DataError(
            f"{name!r} knows the classes {classes}, not the graph's positive value {graph.positive!r}. Fit it on the "
            "labels that the data hold, or make the graph with positive=... of these."
        )
    return classes.index(graph.positive)


def measure(
    scores: tuple[NDArray[np.float64], NDArray[np.float64]], worlds: Worlds
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the quantities of two worlds whose rows are scored, and notes on those that cannot be had.

    Returns
    -------
    values
        p_y0, p_ypi, mean_unfair_effect, piu_paper_bound (twice the disagreement), piu_lower, piu_upper.
    notes
        Why a value is missing (it is NaN then), or what it does not say.
    """
    scored = [world.scored(torch.from_numpy(s)) for world, s in zip(worlds, scores, strict=True)]
    p0, p1 = (each.mean.item() for each in scored)
    values = {"p_y0": p0, "p_ypi": p1, "mean_unfair_effect": p1 - p0}
    notes: dict[str, str] = {}
    bounds = {"piu_paper_bound": np.nan, "piu_lower": np.nan, "piu_upper": np.nan}
    left = [f"{symbol} = {p:.3f}" for symbol, p in [("P(Y0=1)", p0), ("P(Ypi=1)", p1)] if not -1e-9 <= p <= 1 + 1e-9]
    if left:
        left_text = f"the estimate left [0, 1]: {' and '.join(left)}"
        notes |= {"p_y0": left_text, "p_ypi": left_text, "mean_unfair_effect": left_text}
        notes |= dict.fromkeys(bounds, f"cannot be made: {left_text}")
    else:
        bounds["piu_paper_bound"] = 2.0 * disagreement(*scored).item()
        bounds["piu_lower"] = effect_gap(*scored).item()
        bounds["piu_upper"] = piu_upper(*scored).item()
        if bounds["piu_paper_bound"] >= 1.0:
            notes["piu_paper_bound"] = "vacuous: a bound of 1 or more proves nothing, fair or unfair"
    return values | bounds, notes
