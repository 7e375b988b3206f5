from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from torch import nn

from pyrofair import CausalGraph, DataError, PenalizedClassifier
from pyrofair.audits.models import AuditedModel, describe_reversal
from pyrofair.effects.potential_outcomes import CounterfactualSample

GRAPH = CausalGraph("{A Q} -> M; Z -> Q; {A Q M} -> Y", sensitive="A", outcome="Y")
READS = ("Q", "A", "M")
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {"Q": RNG.normal(size=40), "A": np.arange(40) % 2, "M": RNG.normal(size=40)}, index=range(100, 140)
)
OUTCOME = pd.Series(np.where(TABLE["M"] + TABLE["A"] > 0.5, 1, 0), index=TABLE.index)


def audited(model: Any, graph: CausalGraph = GRAPH, order: tuple[str, ...] = READS) -> AuditedModel:
    return AuditedModel("mine", model, graph, order)


class Returns:
    """A model without classes_ that returns what it is made with, whatever it is given."""

    def __init__(self, proba: Any) -> None:
        self.proba = proba
        self.given: list[Any] = []

    def predict_proba(self, X: Any) -> Any:
        self.given.append(X)
        return self.proba


# --- models ----------------------------------------------------------------------------------------------------------


def fitted_models() -> dict[str, Any]:
    X = TABLE[["M", "A", "Q"]]
    plain = LogisticRegression()
    encode = make_column_transformer((OneHotEncoder(), ["A"]), (StandardScaler(), ["M"]))
    return {
        "named": LogisticRegression().fit(X, OUTCOME),
        "pipeline": make_pipeline(encode, LogisticRegression()).fit(X, OUTCOME),
        "search": GridSearchCV(plain, {"C": [1.0]}, cv=2).fit(X, OUTCOME),
        "torch": PenalizedClassifier("logistic", columns=["M", "A"], epochs=3, random_state=0).fit(X, OUTCOME),
    }


@pytest.mark.parametrize("name", ["named", "pipeline", "search", "torch"])
def test_a_model_with_names_gets_its_columns(name: str) -> None:
    model = fitted_models()[name]
    expected = model.predict_proba(TABLE[list(model.feature_names_in_)])[:, 1]
    np.testing.assert_array_equal(audited(model).observed(TABLE[["A", "M", "Q"]]), expected)
    assert not audited(model).is_unnamed


def test_a_model_without_names_gets_the_order_of_the_data() -> None:
    model = LogisticRegression().fit(TABLE[list(READS)].to_numpy(), OUTCOME.to_numpy())
    expected = model.predict_proba(TABLE[list(READS)].to_numpy())[:, 1]
    assert audited(model).is_unnamed
    np.testing.assert_array_equal(audited(model).observed(TABLE[["A", "M", "Q"]]), expected)


def test_what_a_model_reads() -> None:
    assert set(audited(fitted_models()["torch"]).reads or ()) == {"A", "M"}
    assert audited(Returns(None)).reads == READS
    assert audited(np.zeros(40)).reads is None


@pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (1.5, r"1\.5"), (-0.1, r"-0\.1")])
def test_scores_that_are_no_probabilities(value: float, shown: str) -> None:
    scores = np.full(40, 0.5)
    scores[3] = value
    message = rf"'mine' gives 1 score\(s\) outside \[0, 1\], such as {shown}"
    with pytest.raises(DataError, match=message):
        audited(scores).observed(TABLE)
    with pytest.raises(DataError, match=message):
        audited(Returns(np.column_stack([scores, scores]))).observed(TABLE)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (LinearSVC(), r"'mine' is a LinearSVC without predict_proba. Its decisions alone.*pf.DecisionsOf\(model\)"),
        (lambda rows: rows["M"] > 0, r"pf.ScoresOf\(it\) for probabilities, pf.DecisionsOf\(it\) for labels"),
        (nn.Linear(2, 1), r"'mine' is a Linear without predict_proba.*pf.ScoresOf\(module, returns='logit'\)"),
        (make_pipeline(StandardScaler(), LinearSVC()), "'mine' is a Pipeline without predict_proba"),  # has a length
        ("logistic", "'mine' is a str without predict_proba"),
        (None, "'mine' is a NoneType without predict_proba"),
        (["yes"] * 40, "'mine' is given as scores, but they are no numbers: could not convert"),
        (["yes"] * 40, r"of decisions as text make 1 and 0: \(decisions == 'yes'\)\.astype\(int\)"),
        (np.full(39, 0.5), r"scores of shape \(39,\); expected \(40,\)"),
        (np.full((40, 2), 0.5), r"scores of shape \(40, 2\).*pass the column of the positive class"),
        (pd.Series(np.full(40, 0.5)), "The index of the scores 'mine' is not that of df"),
    ],
)
def test_what_is_no_model(model: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        audited(model).observed(TABLE)


@pytest.mark.parametrize("error", [RuntimeError("out of luck"), DataError("out of luck")])
def test_a_model_that_fails_is_named(error: Exception) -> None:
    class Fails:
        def predict_proba(self, X: pd.DataFrame) -> Any:
            raise error

    with pytest.raises(DataError, match=rf"'mine' could .* {type(error).__name__}: out of luck") as caught:
        audited(Fails()).observed(TABLE)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("make", [np.array, list, tuple, lambda values: pd.Series(values, index=TABLE.index)])
def test_given_scores(make: Any) -> None:
    values = np.linspace(0, 1, 40)
    np.testing.assert_array_equal(audited(make(values)).observed(TABLE), values)


# --- worlds ----------------------------------------------------------------------------------------------------------


def test_unchanged_rows_keep_their_scores_and_changed_ones_are_scored() -> None:
    rows = TABLE.iloc[[3, 5, 7]].assign(A=1)
    model = Returns(np.array([[0.2, 0.8]]))
    world = CounterfactualSample(rows, np.ones(3) / 3, None, np.array([3, -1, 7]))
    scores = audited(model).world(world, np.arange(40) / 100)
    np.testing.assert_array_equal(scores, [0.03, 0.8, 0.07])
    pd.testing.assert_frame_equal(model.given[0], rows.iloc[[1]][list(READS)])


def test_drawn_rows_are_all_scored() -> None:
    model = Returns(np.array([[0.2, 0.8], [0.9, 0.1]]))
    world = CounterfactualSample(TABLE.iloc[:2], np.ones(2) / 2)
    np.testing.assert_array_equal(audited(model).world(world, np.zeros(40)), [0.8, 0.1])


def test_scores_alone_do_not_serve_changed_rows() -> None:
    world = CounterfactualSample(TABLE.iloc[:2], np.ones(2) / 2, None, np.array([0, -1]))
    with pytest.raises(DataError, match=r"'mine' is given as scores, but 1 rows of a world.*'A'.*arm='paper'"):
        audited(np.zeros(40)).world(world, np.zeros(40))
    whole = CounterfactualSample(TABLE.iloc[:2], np.ones(2) / 2, None, np.array([1, 0]))
    np.testing.assert_array_equal(audited(np.zeros(40)).world(whole, np.arange(40.0)), [1.0, 0.0])


# --- scores that run against the outcome ------------------------------------------------------------------------------


def test_scores_that_run_against_the_outcome() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random(400)
    outcome = (rng.random(400) < scores).astype(np.int8)
    text = describe_reversal(audited(1.0 - scores), 1.0 - scores, outcome)
    # By hand: the share of pairs of a row of yes and one of no in which the former is higher.
    share = np.mean((1.0 - scores)[outcome == 1][:, None] > (1.0 - scores)[outcome == 0][None, :])
    assert f"'Y' = 1 and one without, the former has the higher score in {share:.0%} of pairs" in text


@pytest.mark.parametrize("what", ["right", "none", "constant", "few", "one class", "no outcome"])
def test_scores_that_do_not_clearly_run_against_the_outcome(what: str) -> None:
    rng = np.random.default_rng(0)
    scores = rng.random(400)
    outcome = (rng.random(400) < scores).astype(np.int8)
    given = {"none": rng.random(400), "constant": np.full(400, 0.5), "few": 1.0 - scores[:20]}.get(what, scores)
    known: Any = {"few": outcome[:20], "one class": np.ones(400, np.int8), "no outcome": None}.get(what, outcome)
    assert describe_reversal(audited(given), given, known) == ""
