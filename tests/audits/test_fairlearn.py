"""fairlearn's metrics beside an audit, and its mitigators audited, on rows of Adult."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import MetricFrame, demographic_parity_difference, selection_rate
from fairlearn.postprocessing import ThresholdOptimizer
from fairlearn.preprocessing import CorrelationRemover
from fairlearn.reductions import DemographicParity, ExponentiatedGradient, GridSearch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import pyrofair as pf

pytestmark = pytest.mark.filterwarnings("ignore:Setting a")  # pandas, of fairlearn's reductions

ADULT = pf.datasets.load_adult().frame.sample(800, random_state=1, ignore_index=True)
TABLE = pd.DataFrame(
    {
        "sex": (ADULT["sex"] == "Male").astype(int),
        "age": ADULT["age"],
        "married": (ADULT["marital-status"] == "Married-civ-spouse").astype(int),
        "education": ADULT["education-num"],
        "income": (ADULT["income"] == ">50K").astype(int),
    }
)
GRAPH = pf.CausalGraph(
    "{sex age} -> married; {sex age married} -> education; {sex age married education} -> income",
    sensitive="sex",
    outcome="income",
)
UNFAIR = GRAPH.unfair("sex -> income", "sex -> married -> income")
X, Y = TABLE.drop(columns="income"), TABLE["income"]
SOURCE = pf.OneStep(GRAPH.unfair(direct=True), propensity="logistic", regression="logistic", random_state=0)
SETTINGS: dict[str, Any] = {"random_state": 0}


def logistic() -> LogisticRegression:
    return LogisticRegression(max_iter=2000)


def rows_of(report: pf.Audit, decisions: str = "threshold") -> pd.DataFrame:
    return report.table.query(f"decisions == {decisions!r}").set_index(["model", "quantity"])


def test_demographic_parity_beside_the_mean_unfair_effect() -> None:
    """With all paths unfair and no cause of the groups, both are one number; with fewer, the effect is its part."""
    model = logistic().fit(X, Y)
    decided = model.predict(X)
    frame = MetricFrame(metrics=selection_rate, y_true=Y, y_pred=decided, sensitive_features=X["sex"])
    parity = demographic_parity_difference(Y, decided, sensitive_features=X["sex"])
    everything = pf.CausalGraph(
        "sex -> age; {sex age} -> married; {sex age married} -> education; {sex age married education} -> income",
        sensitive="sex",
        outcome="income",
    )
    total = everything.unfair(predicate=lambda path: True)
    source = pf.OneStep(total, propensity="logistic", regression="logistic", random_state=0)
    own = rows_of(pf.audit({"m": model}, source, TABLE, **SETTINGS))["estimate"]
    assert own["m", "p_y0"] == pytest.approx(frame.by_group[0])
    assert own["m", "p_ypi"] == pytest.approx(frame.by_group[1])
    assert abs(own["m", "mean_unfair_effect"]) == pytest.approx(parity)
    assert own["m", "positive_rate"] == pytest.approx(frame.overall)
    direct = rows_of(pf.audit({"m": model}, SOURCE, TABLE, **SETTINGS))["estimate"]
    assert abs(direct["m", "mean_unfair_effect"]) < parity


def test_an_exponentiated_gradient() -> None:
    model = ExponentiatedGradient(logistic(), DemographicParity(), max_iter=5)
    model.fit(X.drop(columns="sex"), Y, sensitive_features=X["sex"])
    with pytest.raises(
        pf.DataError, match=r"It decides at random, with probabilities.*pf.ScoresOf\(model._pmf_predict\)"
    ):
        pf.audit({"m": model}, SOURCE, TABLE)
    columns = ["age", "married", "education"]
    report = pf.audit({"m": pf.ScoresOf(model._pmf_predict, columns=columns)}, SOURCE, TABLE, **SETTINGS)
    scores = rows_of(report, "score")["estimate"]
    assert scores["m", "positive_rate"] == pytest.approx(model._pmf_predict(X[columns])[:, 1].mean())
    assert scores["m", "mean_unfair_effect"] == pytest.approx(0.0, abs=1e-9)  # it does not read sex
    with pytest.warns(pf.PyrofairWarning, match=r"'m' is taken for an outcome.*pf\.ScoresOf"):
        drawn = pf.audit({"m": pf.DecisionsOf(model, columns=columns)}, SOURCE, TABLE, **SETTINGS)
    assert "an outcome, no function of the features" in drawn.details()


def test_a_threshold_optimizer_is_given_the_column() -> None:
    fitted = logistic().fit(X, Y)
    model = ThresholdOptimizer(estimator=fitted, prefit=True, predict_method="predict_proba")
    model.fit(X, Y, sensitive_features=X["sex"])
    passes = {"sensitive_features": "sex"}
    adapted = pf.ScoresOf(model._pmf_predict, columns=list(X), passes=passes)
    plain = rows_of(pf.audit({"m": fitted}, SOURCE, TABLE, **SETTINGS), "score")["estimate"]
    report = pf.audit({"m": adapted}, SOURCE, TABLE, **SETTINGS)
    scores = rows_of(report, "score")["estimate"]
    by_group = [
        model._pmf_predict(X[X["sex"] == a], sensitive_features=X["sex"][X["sex"] == a])[:, 1].mean() for a in (0, 1)
    ]
    assert by_group[0] == pytest.approx(by_group[1], abs=0.02)  # what it promises
    # Equal rates are bought by a direct effect the other way: fair paths favour the other group.
    assert scores["m", "mean_unfair_effect"] < plain["m", "mean_unfair_effect"]
    assert scores["m", "mean_unfair_effect"] < 0
    without = pf.ScoresOf(model._pmf_predict, columns=list(X))
    with pytest.raises(pf.DataError, match=r"the adapted model raised TypeError: .*sensitive_features"):
        pf.audit({"m": without}, SOURCE, TABLE)
    decided = pf.DecisionsOf(model, columns=list(X), passes=passes)
    with pytest.warns(pf.PyrofairWarning, match="'m' is taken for an outcome"):
        assert set(pf.audit({"m": decided}, SOURCE, TABLE, **SETTINGS).table["decisions"]) == {"threshold"}


def test_a_grid_search() -> None:
    model = GridSearch(logistic(), DemographicParity(), grid_size=3)
    model.fit(X, Y, sensitive_features=X["sex"])
    report = pf.audit({"own": model, "adapted": pf.DecisionsOf(model)}, SOURCE, TABLE, **SETTINGS)
    own = rows_of(report)["estimate"]
    rate = float(np.mean(model.predict(X)))
    assert own["own", "positive_rate"] == own["adapted", "positive_rate"] == pytest.approx(rate)


def test_a_correlation_remover_inside_a_pipeline() -> None:
    model = make_pipeline(CorrelationRemover(sensitive_feature_ids=["sex"]), logistic()).fit(X, Y)
    report = pf.audit({"m": model, "plain": logistic().fit(X, Y)}, SOURCE, TABLE, **SETTINGS)
    scores = rows_of(report, "score")["estimate"]
    assert scores["m", "positive_rate"] == pytest.approx(model.predict_proba(X)[:, 1].mean())
    assert scores["m", "mean_unfair_effect"] != scores["plain", "mean_unfair_effect"]
