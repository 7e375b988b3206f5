"""A scorer whose figures are those of audits, and by which searches do not choose by accuracy alone."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, PredefinedSplit, cross_val_score

import pyrofair as pf
from pyrofair.audits import AuditScorer
from pyrofair.exceptions import DataError, PyrofairWarning

GRAPH = pf.CausalGraph("Q -> D; A -> D; {A Q D} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> D -> Y")
SOURCE = pf.OneStep(UNFAIR, propensity="logistic", regression="logistic", random_state=0)
FOLDS = KFold(2)


def draw(n: int, seed: int) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    q, a = rng.normal(size=n), rng.integers(0, 2, n)
    d = 0.8 * a + 0.5 * q + rng.normal(size=n)
    return pd.DataFrame({"Q": q, "A": a, "D": d}), (rng.random(n) < expit(-0.5 + a + q + d)).astype(int)


X, Y = draw(600, 0)
FITTED = LogisticRegression().fit(X, Y)


def classifier() -> pf.PenalizedClassifier:
    return pf.PenalizedClassifier(
        "logistic", source=pf.IPW(UNFAIR), starts=1, epochs=30, batch_size=100, learning_rate=0.05, random_state=0
    )


@pytest.mark.parametrize("decisions", ["threshold", "score"])
@pytest.mark.parametrize("quantity", ["piu_upper", "mean_unfair_effect"])
def test_scores_are_those_of_an_audit(quantity: str, decisions: Any) -> None:
    table, outcome = draw(300, 1)
    scorer = AuditScorer(SOURCE, at_most=0.1, quantity=quantity, decisions=decisions, threshold=0.4)
    found = scorer(FITTED, table, outcome)
    report = pf.audit({"m": FITTED}, SOURCE, table.assign(Y=outcome), threshold=0.4, progress=False, random_state=0)
    rows = report.table.set_index(["decisions", "quantity"])
    assert list(found) == list(scorer.names) == ["accuracy", quantity, f"{quantity}_far_end"]
    assert found["accuracy"] == rows.loc[("threshold", "accuracy"), "estimate"]
    own = rows.loc[(decisions, quantity)]
    assert found[quantity] == own["estimate"]
    assert found[f"{quantity}_far_end"] == max(abs(own["lower"]), abs(own["upper"]))


def test_a_search_takes_the_most_accurate_that_is_fair_enough() -> None:
    """By accuracy alone it takes strength 0."""
    strengths = [0.0, 1.0, 4.0]
    by_accuracy = GridSearchCV(classifier(), {"strength": strengths}, cv=FOLDS).fit(X, Y)
    assert by_accuracy.best_params_ == {"strength": 0.0}
    scorer = AuditScorer(SOURCE, at_most=0.45)
    search = GridSearchCV(classifier(), {"strength": strengths}, scoring=scorer, refit=scorer.choose, cv=FOLDS)
    results = search.fit(X, Y).cv_results_
    far_end, accuracy = results["mean_test_piu_upper_far_end"], results["mean_test_accuracy"]
    enough = far_end <= 0.45
    assert list(enough) == [False, True, True]
    assert search.best_index_ == np.argmax(np.where(enough, accuracy, -1.0)) == 1
    assert search.best_estimator_.strength == 1.0
    training, fold = next(FOLDS.split(X))
    alone = classifier().fit(X.iloc[training], Y[training])
    assert results["split0_test_piu_upper"][1] == scorer(alone, X.iloc[fold], Y[fold])["piu_upper"]


def test_the_source_is_fitted_once_a_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[int] = []
    honest = pf.OneStep.fit

    def spy(self: Any, df: pd.DataFrame, sample_weight: Any = None) -> Any:
        fits.append(len(df))
        return honest(self, df, sample_weight)

    monkeypatch.setattr(pf.OneStep, "fit", spy)
    scorer = AuditScorer(SOURCE, at_most=0.9)
    grid = {"C": [0.01, 0.1, 1.0]}
    GridSearchCV(LogisticRegression(), grid, scoring=scorer, refit=scorer.choose, cv=FOLDS).fit(X, Y)
    assert fits == [300, 300]
    again = pickle.loads(pickle.dumps(scorer))
    assert again(FITTED, X, Y) == scorer(FITTED, X, Y)
    fits.clear()
    judge = pf.OneStep(UNFAIR, propensity="logistic", regression="logistic", random_state=0).fit(X)
    scorer = AuditScorer(judge, at_most=0.9)
    GridSearchCV(LogisticRegression(), grid, scoring=scorer, refit=scorer.choose, cv=FOLDS).fit(X, Y)
    assert fits == [600]  # a fitted one judges all folds


def test_a_fold_that_cannot_be_judged_does_not_lose_the_search() -> None:
    table, outcome = draw(200, 2)
    fold = np.where(table["A"] == 0, np.arange(200) % 3, np.arange(200) % 2)  # the last one holds one group only
    scorer = AuditScorer(SOURCE, at_most=0.9)
    grid = {"C": [0.1, 1.0]}
    search = GridSearchCV(
        LogisticRegression(), grid, scoring=scorer, refit=lambda results: 0, cv=PredefinedSplit(fold)
    )  # fmt: skip
    warnings.filterwarnings("ignore", "One or more of the test scores are non-finite", UserWarning)
    with pytest.warns(PyrofairWarning, match="cannot be judged: The sensitive attribute 'A' never takes the value 1"):
        results = search.fit(table, outcome).cv_results_
    assert np.isnan(results["split2_test_piu_upper_far_end"]).all()
    assert np.isfinite(results["split1_test_piu_upper_far_end"]).all()
    last, rest = fold == 2, fold != 2
    alone = LogisticRegression(C=1.0).fit(table[rest], outcome[rest])
    assert results["split2_test_accuracy"][1] == pytest.approx(alone.score(table[last], outcome[last]))
    with pytest.raises(DataError, match="No candidate has an interval of piu_upper in every fold"):
        scorer.choose(results)


def test_one_number_puts_the_fair_enough_before_all_others() -> None:
    strict, lax = AuditScorer(SOURCE, at_most=0.1), AuditScorer(SOURCE, at_most=0.9)
    found = lax(FITTED, X, Y)
    assert lax.single(FITTED, X, Y) == found["accuracy"]
    assert strict.single(FITTED, X, Y) == pytest.approx(0.1 - found["piu_upper_far_end"])
    assert strict.single(FITTED, X, Y) < 0.0
    np.testing.assert_allclose(
        cross_val_score(DummyClassifier(), X, Y, scoring=strict.single, cv=FOLDS),
        cross_val_score(DummyClassifier(), X, Y, cv=FOLDS),
        rtol=1e-12,
    )


def test_where_none_is_fair_enough_the_nearest_is_chosen_with_a_warning() -> None:
    scorer = AuditScorer(UNFAIR, at_most=0.1)
    results = {"mean_test_accuracy": [0.9, 0.8, 0.7], "mean_test_piu_upper_far_end": [0.5, 0.2, np.nan]}
    with pytest.warns(PyrofairWarning, match=r"below 0\.1 .* comes nearest, 0\.2"):
        assert scorer.choose(results) == 1
    results["mean_test_piu_upper_far_end"] = [0.05, 0.1, 0.0]
    assert scorer.choose(results) == 0
    equal = {"mean_test_accuracy": [0.7, 0.8, 0.8, 0.8], f"mean_test_{scorer.names[2]}": [0.0, 0.04, 0.01, np.nan]}
    assert scorer.choose(equal) == 2
    with pytest.raises(DataError, match="No candidate has an interval"):
        scorer.choose({name: [np.nan] for name in results})
    with pytest.raises(DataError, match="lack mean_test_accuracy"):
        scorer.choose({"mean_test_score": [1.0]})


def test_a_source_that_needs_replicates() -> None:
    scorer = AuditScorer(pf.IPW(UNFAIR), at_most=0.4, n_boot=20)
    with pytest.warns(PyrofairWarning):
        found = scorer(FITTED, X, Y)
    assert found["piu_upper"] < found["piu_upper_far_end"] < 1.0
    scorer(FITTED, X, Y)  # the same warnings are not given again


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"at_most": -0.1}, "at_most=-0.1"),
        ({"quantity": "accuracy"}, "quantity='accuracy' is not known"),
        ({"decisions": "hard"}, "decisions='hard'"),
        ({"threshold": 1.0}, "threshold=1.0"),
        ({"n_boot": 0}, "n_boot=0"),
        ({"source": "UNFAIR"}, "source='UNFAIR' is no source"),
    ],
)
def test_unfit_settings(given: dict[str, Any], message: str) -> None:
    settings = {"source": UNFAIR, "at_most": 0.1} | given
    with pytest.raises(DataError, match=message):
        AuditScorer(settings.pop("source"), **settings)
