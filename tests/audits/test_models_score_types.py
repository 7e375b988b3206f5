"""Scores that are no function of the features are an outcome: named so, identified as one, and refused otherwise."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import pyrofair as pf
from pyrofair.audits.models import AuditedModel, judge_scores
from pyrofair.exceptions import DataError, NotIdentifiedError, PyrofairWarning
from tests.models import Known

CASES = Path(__file__).parents[1] / "cases"
RNG = np.random.default_rng
MEDIATOR = pf.CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
HIRING = pf.CausalGraph("Q -> A; {Q A} -> D; {Q A} -> M; {Q A D M} -> Y", sensitive="A", outcome="Y")
QUIET: dict[str, Any] = {"n_jobs": 1, "progress": False, "random_state": 0, "n_boot": 0}


def confounded(n: int = 4_000) -> tuple[pd.DataFrame, pf.UnfairPaths]:
    """U causes M and the decision Y, which A does not cause."""
    rng = RNG(0)
    a, u = rng.integers(0, 2, n), rng.normal(size=n)
    m = (a + u + 0.3 * rng.normal(size=n) > 0.5).astype(int)
    y = (0.8 * u + 0.2 * rng.normal(size=n) > 0).astype(int)
    graph = pf.CausalGraph("A -> M; U -> M; U -> Y; {A M} -> Y", sensitive="A", outcome="Y", latent=["U"])
    return pd.DataFrame({"A": a, "M": m, "Y": y}), graph.unfair("A -> Y")


LINEAR = Known(lambda X: expit(X["M"] - 0.5 * X["A"]))


def jittered() -> Known:
    """Return a model that draws at random."""
    random = RNG(0)
    return Known(lambda X: np.clip(LINEAR.score(X) + random.normal(0, 0.1, len(X)), 0, 1))


def judged(model: Any, df: pd.DataFrame, scores: Any = "auto") -> Any:
    audited = AuditedModel("m", model, MEDIATOR, ("A", "M"))
    return judge_scores(audited, df[["A", "M"]], audited.observed(df[["A", "M"]]), scores)


def table(n: int = 300) -> pd.DataFrame:
    rng = RNG(1)
    return pd.DataFrame({"A": rng.integers(0, 2, n), "M": rng.normal(size=n)})


# --- which type ------------------------------------------------------------------------------------------------------


def test_equal_rows_with_unequal_scores_are_an_outcome() -> None:
    df = pd.DataFrame({"A": [0, 0, 1, 1], "M": [0, 0, 0, 1]}, index=list("abcd"))
    found = judged([0.2, 0.7, 0.5, 0.5], df)
    assert found.is_outcome
    assert found.why == "2 of 4 rows agree in A, M with a row of another score: rows 'a' and 'b' have 0.2 and 0.7"
    assert not judged([0.2, 0.2 + 1e-7, 0.5, 0.5], df).is_outcome  # rounding
    with pytest.raises(
        DataError, match=r"scores='prediction' takes the scores of 'm' for a function of A, M, but 2 of 4"
    ):
        judged([0.2, 0.7, 0.5, 0.5], df, "prediction")


def repeated(k: int, seed: int = 0) -> pd.DataFrame:
    """20 cells and k rows that repeat one of them."""
    cells = pd.DataFrame({"A": [0, 1] * 10, "M": np.repeat(np.arange(10), 2)})
    return pd.concat([cells, cells.sample(k, replace=True, random_state=seed)], ignore_index=True)


def test_equal_rows_with_equal_scores_are_a_function_once_there_are_300() -> None:
    for k, is_open in [(0, True), (7, True), (299, True), (300, False)]:
        df = repeated(k)
        for scores in (expit(df["M"] - df["A"]), (df["M"] > 4).astype(float)):
            found = judged(scores, df)
            assert (found.is_outcome, bool(found.warning)) == (False, is_open)
            assert not judged(scores, df, "prediction").warning
    assert (
        found.why == "300 row(s) have the A, M of another row, all with its score, so that at most 0.01 differ (95 %)"
    )
    assert judged(expit(repeated(60)["M"]), repeated(60)).why == (
        "the user stated nothing: 60 row(s) have the A, M of another row, all with its score, so that at most 0.05 "
        "differ (95 %); 300 such rows would tell"
    )
    assert judged(expit(table()["M"]), table()).why.startswith(
        "the user stated nothing: no row has the A, M of another row; 300"
    )
    assert not judged(np.full(300, 0.4), table()).warning  # one score for all


def test_decisions_that_follow_the_features_and_something_else_stay_open() -> None:
    """A hundredth is decided by what the table lacks: a few dozen equal rows agree for the most part all the same."""
    opened = 0
    for seed in range(20):
        df = repeated(40, seed)
        human = (df["M"] > 4) ^ (RNG(seed).random(len(df)) < 0.01)
        found = judged(human.astype(float), df)
        assert found.is_outcome or found.warning
        opened += bool(found.warning)
    assert opened > 5


@pytest.mark.parametrize(("stated", "outcome"), [("prediction", False), ("outcome", True)])
def test_what_cannot_be_checked_is_taken_at_the_users_word(stated: Any, outcome: bool) -> None:
    found = judged((table()["M"] > 0).astype(float), table(), stated)
    assert (found.is_outcome, found.warning) == (outcome, "")
    assert f"stated by the user (scores='{stated}')" in found.why
    known = judged((table()["M"] > 0).astype(float), table(), "prediction")
    assert "no row has the A, M of another row; 300 such rows would tell" in known.why


def test_a_model_that_draws_is_an_outcome_and_one_that_reads_its_batch_is_refused() -> None:
    found = judged(jittered(), table())
    assert found.is_outcome
    assert re.search(r"'m' is taken for an outcome, .* of A, M, .* \d+ of 200 rows", found.warning)
    with pytest.raises(DataError, match="takes the scores of 'm' for a function"):
        judged(jittered(), table(), "prediction")
    with pytest.raises(DataError, match=r"'m' gives \d+ of \d+ rows another score.*get_dummies"):
        judged(Known(lambda X: X["M"].rank(pct=True)), table())


@pytest.mark.parametrize("scores", ["auto", "prediction", "outcome"])
def test_a_model_that_is_a_function_is_one_whatever_is_stated_of_given_scores(scores: Any) -> None:
    found = judged(LINEAR, table(), scores)
    assert (found.is_outcome, found.warning) == (False, "")
    assert ("scores='outcome' describes given scores alone" in found.why) == (scores == "outcome")


# --- in an audit -----------------------------------------------------------------------------------------------------


def test_a_decision_that_shares_a_latent_cause_with_a_mediator_is_refused() -> None:
    """A has no effect on Y, and by the formula of a prediction a quarter are treated unfairly."""
    df, unfair = confounded()
    assert pf.identify(unfair).target == "prediction"
    with pytest.raises(
        NotIdentifiedError,
        match=r"'decisions' is an outcome, no function of the features: .* rows agree in A, M.*latent U",
    ):
        pf.audit({"decisions": df["Y"]}, pf.IPW(unfair, arm="paper"), df[["A", "M"]], **QUIET)
    with (
        pytest.warns(PyrofairWarning, match="'jittered' is taken for an outcome"),
        pytest.raises(NotIdentifiedError, match=r"'jittered' is an outcome.* with a row of another score"),
    ):
        pf.audit({"jittered": jittered()}, pf.IPW(unfair), df[["A", "M"]].sample(50, random_state=0), **QUIET)
    pf.audit({"m": LINEAR}, pf.IPW(unfair), df[["A", "M"]], **QUIET)  # a prediction is identified


def hiring() -> pd.DataFrame:
    return pd.read_csv(CASES / "hiring_discrete.csv")


@pytest.mark.parametrize("arm", ["auto", "paper"])
def test_observed_outcomes_are_weighted_where_the_effect_on_them_is_identified(arm: Any) -> None:
    df = hiring()
    source = pf.IPW(HIRING.unfair("A -> Y", "A -> D -> Y"), arm=arm, propensity="saturated")
    report = pf.audit({"observed": df["Y"]}, source, df, **QUIET | {"n_boot": 40})
    found = report.table.set_index(["decisions", "quantity"])["estimate"]
    assert found["score", "p_y0"] == pytest.approx(0.40790191, abs=1e-8)
    assert found["score", "p_ypi"] == pytest.approx(0.62655145, abs=1e-8)
    text = report.details()
    assert "observed\n  an outcome, no function of the features: " in text
    assert "a known function of the features, so" not in text
    assert report.context["assumptions"] == pf.identify(source.unfair, "outcome").assumptions
    assert report.groups.empty
    assert report.table["lower"].notna().any()


@pytest.mark.parametrize(("arm", "world"), [(0, r"Y\(A<=1\|\|pi\)"), (1, r"Y\(A<=0\)"), ("pooled", r"Y\(A<=0\)")])
def test_rows_of_another_group_do_not_show_the_outcome(arm: Any, world: str) -> None:
    df = hiring()
    source = pf.IPW(HIRING.unfair("A -> Y", "A -> D -> Y"), arm=arm)
    with pytest.raises(DataError, match=rf"arm={arm!r} weights rows .* {world} is not observed.* 'A'"):
        pf.audit({"observed": df["Y"]}, source, df, **QUIET)


def test_an_outcome_that_reads_no_sensitive_attribute_may_be_weighted_in_any_group() -> None:
    """Y ~ Bernoulli(expit(M)), M = 1 or 0 by A: P(M | A) and P(Y | M) are enough."""
    rng = RNG(0)
    a = rng.integers(0, 2, 1_000)
    m = (rng.random(1_000) < 0.3 + 0.4 * a).astype(int)
    df = pd.DataFrame({"A": a, "M": m, "Y": (rng.random(1_000) < expit(m)).astype(int)})
    unfair = pf.CausalGraph("A -> M -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")
    means = df.groupby("M")["Y"].mean()
    share = df.groupby("A")["M"].mean()
    report = pf.audit({"y": df["Y"]}, pf.IPW(unfair, arm="pooled", propensity="saturated"), df, **QUIET)
    found = report.table.set_index(["decisions", "quantity"])["estimate"]
    for quantity, value in [("p_y0", share[0]), ("p_ypi", share[1])]:
        assert found["score", quantity] == pytest.approx(means[1] * value + means[0] * (1 - value), abs=1e-9)


def test_an_outcome_may_depend_on_what_a_prediction_does_not() -> None:
    """Z -> U -> Y, U latent: no classifier reads Z, but the outcome depends on it, and A on Z."""
    rng = RNG(0)
    n = 4_000
    z = rng.integers(0, 2, n)
    a = (rng.random(n) < 0.2 + 0.6 * z).astype(int)
    y = (rng.random(n) < 0.1 + 0.5 * z + 0.2 * a).astype(int)
    df = pd.DataFrame({"Z": z, "A": a, "Y": y})
    graph = pf.CausalGraph("Z -> A -> Y; Z -> U -> Y", sensitive="A", outcome="Y", latent=["U"])
    report = pf.audit({"y": df["Y"]}, pf.IPW(graph.unfair("A -> Y"), propensity="saturated"), df, **QUIET)
    found = report.table.set_index(["decisions", "quantity"])["estimate"]
    cell = df.groupby(["A", "Z"])["Y"].mean()
    for quantity, group in [("p_y0", 0), ("p_ypi", 1)]:
        expected = sum(cell[group, value] * (z == value).mean() for value in (0, 1))
        assert found["score", quantity] == pytest.approx(expected, abs=1e-9)


def test_outcomes_and_predictions_side_by_side() -> None:
    df = hiring()
    unfair = HIRING.unfair("A -> Y", "A -> D -> Y")

    model = Known(lambda X: expit(X[["Q", "D", "M"]].sum(axis=1) + X["A"] - 3.0))
    settings = QUIET | {"n_boot": 40}
    source = pf.IPW(unfair, propensity="saturated")
    both = pf.audit({"observed": df["Y"], "model": model}, source, df, **settings)
    apart = [pf.audit({name: each}, source, df, **settings) for name, each in [("observed", df["Y"]), ("model", model)]]
    pd.testing.assert_frame_equal(both.table, pd.concat([each.table for each in apart], ignore_index=True))
    assert set(both.groups["model"]) == {"model"}
    assert both.context["outcomes"] == ["observed"]
    text = both.details()
    assert "Those of observed, an outcome, assume:" in text
    assert text.count("Independent errors across worlds") == 2


def test_given_scores_that_nothing_shows_to_be_a_function_are_warned_of() -> None:
    df = table()
    scores = expit(df["M"] - df["A"])
    source = pf.IPW(MEDIATOR.unfair("A -> Y"), arm="paper")
    with pytest.warns(
        PyrofairWarning, match=r"'m' is given as scores, and you did not say what they are: no row has the A, M of"
    ):
        report = pf.audit({"m": scores}, source, df, **QUIET)
    assert "taken for a function of the features: the user stated nothing: no row has" in report.details()
    stated = pf.audit({"m": scores}, source, df, scores="prediction", **QUIET)
    assert "stated by the user (scores='prediction')" in stated.details()
    pd.testing.assert_frame_equal(report.table, stated.table)
    outcome = pf.audit({"m": scores}, source, df, scores="outcome", **QUIET)
    assert "an outcome, no function of the features: stated by the user" in outcome.details()
    with pytest.raises(DataError, match=r"scores='outcomes' is not known.*Did you mean 'outcome'"):
        pf.audit({"m": scores}, source, df, scores="outcomes", **QUIET)  # type: ignore[arg-type]


def test_a_model_with_predict_proba_is_not_called_an_outcome_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    df = table()
    source = pf.IPW(MEDIATOR.unfair("A -> Y"), arm="paper")
    with monkeypatch.context() as patched:
        patched.setattr(pf.IPW, "fit", lambda *_, **__: pytest.fail("work was done before the setting was read"))
        with pytest.raises(DataError, match=r"scores='outcome' describes given scores, and 'm' has predict_proba"):
            pf.audit({"m": LINEAR}, source, df, scores="outcome", **QUIET)
    both = pf.audit({"m": LINEAR, "given": (df["M"] > 0) * 1.0}, source, df, scores="outcome", **QUIET)
    assert both.context["outcomes"] == ["given"]
    assert "it gives the same scores again, and scores='outcome' describes given scores alone" in both.details()


def test_a_source_that_draws_rows_cannot_serve_an_outcome() -> None:
    df, _ = confounded(200)
    unfair = MEDIATOR.unfair("A -> Y")
    with pytest.raises(DataError, match=r"'y' is an outcome, .* GComputation draws rows .* IPW"):
        pf.audit({"y": df["Y"]}, pf.GComputation(unfair), df, **QUIET)
