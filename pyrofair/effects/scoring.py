"""The probability of the positive outcome that a model predicts, from the columns that it may read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._validation import require_unmasked
from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph

__all__ = ["DECISIONS", "Decisions", "Rule", "decide", "positive_scores", "read_classes", "read_probabilities"]

Decisions = Literal["threshold", "score"]
DECISIONS: tuple[Decisions, ...] = ("threshold", "score")
Rule = Decisions | float
"""How a score is turned into a decision; a number is a threshold of its own."""

NEAR_ONE = 1e-6
"""The two probabilities of a row sum to 1 up to this, for they are often made in single precision."""


def decide(scores: NDArray[np.float64], decisions: Rule, threshold: float) -> NDArray[np.float64]:
    """Return the scores themselves, or 1 where they exceed the threshold (or the rule, if a number) and 0 elsewhere."""
    if decisions == "score":
        return scores
    return (scores > (threshold if decisions == "threshold" else decisions)).astype(np.float64)


def positive_scores(
    name: str, model: Any, rows: pd.DataFrame, graph: CausalGraph, order: Sequence[str] | None = None
) -> NDArray[np.float64]:
    """Return the probability of the positive outcome that a model gives to each of m rows, shape (m,).

    A model that was fitted with column names gets these columns; any other all observed parents of the outcome, in the
    order given (default: of the rows), as an array if it counted unnamed columns in ``fit``. A DataError if it has no
    ``predict_proba``, reads other columns, lacks the positive label among two classes, or returns anything but two
    probabilities a row that sum to 1.
    """
    if not hasattr(model, "predict_proba"):
        raise DataError(
            f"{name!r} is a {type(model).__name__} without predict_proba. Pass a fitted classifier that has it: scores "
            "of observed rows give none for rows in another world."
        )
    positive = graph.positive
    classes = read_classes(repr(name), model, default=(None, positive))
    if positive not in classes:
        raise DataError(
            f"{name!r} has the classes {classes}, not the graph's positive value {positive!r}. Fit it on the labels "
            "that the data hold, or make the graph with positive=... of these."
        )
    proba = read_probabilities(repr(name), _proba(name, model, _in_double(rows), graph, order), len(rows))
    return proba[:, classes.index(positive)]


def read_probabilities(name: str, returned: object, n: int) -> NDArray[np.float64]:
    """Return what ``predict_proba`` of a model returned, checked: n pairs of probabilities that sum to 1, (n, 2)."""
    require_unmasked(f"the output of predict_proba of {name}", returned)
    raw = np.asarray(returned)
    if raw.dtype.kind not in "fiub":
        raise DataError(f"{name}: predict_proba returned the type {raw.dtype}, expected real numbers.")
    if raw.shape != (n, 2):
        raise DataError(
            f"{name}: predict_proba returned the shape {raw.shape}, expected {(n, 2)}, a column for each of two "
            "classes."
        )
    proba = raw.astype(np.float64)
    near = max(NEAR_ONE, 4.0 * float(np.finfo(raw.dtype).eps)) if raw.dtype.kind == "f" else NEAR_ONE
    wrong = ~((proba >= 0.0) & (proba <= 1.0)).all(axis=1)
    if wrong.any():
        low, high = np.sort(proba[wrong][0])
        worst = low if high <= 1.0 else high
        raise DataError(
            f"{name} gives {int(wrong.sum())} score(s) outside [0, 1], such as {worst}. Scores are probabilities "
            "of the two classes; log-odds must be put through the logistic function."
        )
    wrong = np.abs(proba.sum(axis=1) - 1.0) > near
    if wrong.any():
        raise DataError(
            f"{name}: predict_proba returned rows that do not sum to 1, in {int(wrong.sum())} of {n} row(s), such as "
            f"{proba[wrong][0]}. Its two columns are the probabilities of the two classes."
        )
    return proba


def read_classes(name: str, model: object, default: Sequence[Any]) -> list[Any]:
    """Return the two classes of a model in the order of its columns, or the default if it names none."""
    named = getattr(model, "classes_", None)
    if named is None:
        return [*default]
    try:
        found = [each.item() if isinstance(each, np.generic) else each for each in named]
        different = len(set(found))
    except TypeError as error:
        raise DataError(f"{name} has classes_={named!r:.60}, expected a list of its two classes.") from error
    if len(found) != 2 or different != 2:
        raise DataError(
            f"{name} has the classes {found}, expected two different ones: fit it on the graph's outcome alone, "
            "which is binary."
        )
    return found


def _in_double(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a table with its fractions in float64: worlds may hold float32, in which .1 + .1 + .3 exceeds 1/2."""
    return rows.astype({name: np.float64 for name, dtype in rows.dtypes.items() if dtype.kind == "f"})


def _proba(name: str, model: Any, rows: pd.DataFrame, graph: CausalGraph, given: Sequence[str] | None) -> Any:
    """Call the model with the columns that it reads."""
    may_read = graph.input_columns
    order = [column for column in (rows.columns if given is None else given) if column in may_read]
    if hasattr(model, "feature_names_in_"):
        reads = np.asarray(model.feature_names_in_).tolist()
        outside = [column for column in reads if column not in order]
        if outside:
            raise DataError(_why_outside(name, outside, graph, order))
        return model.predict_proba(rows[reads])
    X = rows[order]
    if hasattr(model, "n_features_in_"):
        if model.n_features_in_ != X.shape[1]:
            raise DataError(
                f"{name!r} was fitted on {model.n_features_in_} unnamed columns, but the graph lets it read "
                f"{X.shape[1]}: {', '.join(order)}. Fit it on a DataFrame, so that its columns have names."
            )
        return model.predict_proba(X.to_numpy())
    try:
        return model.predict_proba(X)
    except KeyError as error:
        raise DataError(
            f"{name!r} requires {error}, which is missing: it is given the columns that the graph lets it read, "
            f"{', '.join(order)}. Correct the graph, or fit the model without other columns."
        ) from error


def _why_outside(name: str, outside: Sequence[str], graph: CausalGraph, order: Sequence[str]) -> str:
    """Return why a model may not read columns that it was fitted on, and what to do."""
    known = graph.columns_of(graph.observed)
    unknown = [column for column in outside if isinstance(column, str) and column not in known]
    # A column that is named like a code of another one: 'job_nurse' of 'job'.
    coded = {c: source for c in unknown for source in order if re.match(rf"{re.escape(source)}[_=.\[-]", c)}
    if coded:
        source = next(iter(coded.values()))
        return (
            f"{name!r} was fitted on {', '.join(map(repr, coded))}, which look like codes of {source!r} made before "
            f"the fit; in each world it is given the columns themselves, {', '.join(order)}. Encode inside the model: "
            "make_pipeline(ColumnTransformer([('onehot', OneHotEncoder(), "
            f"[{source!r}])], remainder='passthrough'), ...), and fit that on these columns."
        )
    why = "they are no observed parents of the outcome"
    if graph.sensitive_column in outside:
        why = f"the graph has no edge {graph.sensitive} -> {graph.outcome}"
    return (
        f"{name!r} reads {', '.join(map(repr, outside))}, but {why}: a classifier may read {', '.join(order)}. It was "
        "fitted on a table with these columns; fit it on the others alone (a pipeline that drops columns later still "
        "asks for them), or correct the graph."
    )
