"""Rates by group: those of fairlearn's MetricFrame, with the intervals of all other shares."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import MetricFrame, count, false_positive_rate, selection_rate, true_positive_rate
from scipy import stats
from scipy.special import expit

import pyrofair as pf
from tests.models import Known

GRAPH = pf.CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y", baseline="f", contrast="m", positive="yes")
UNFAIR = GRAPH.unfair("A -> Y")
METRICS = {
    "selection_rate": selection_rate,
    "true_positive_rate": true_positive_rate,
    "false_positive_rate": false_positive_rate,
    "count": count,
}


MODEL = Known(lambda X: expit(X["M"] + 0.5 * (X["A"] == "m")))


def draw(n: int = 400, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    A = rng.choice(["f", "m"], n)
    M = rng.normal(size=n)
    return pd.DataFrame({"A": A, "M": M, "Y": np.where(M + rng.normal(size=n) > 0.0, "yes", "no")})


def run(df: pd.DataFrame, model: Any = None, **settings: Any) -> pf.Audit:
    source = settings.pop("source", pf.OneStep(UNFAIR, propensity="logistic", regression="logistic", random_state=0))
    return pf.audit({"model": MODEL if model is None else model}, source, df, random_state=0, **settings)


@pytest.fixture(params=[False, True])
def weight(request: pytest.FixtureRequest) -> np.ndarray | None:
    return np.random.default_rng(5).uniform(0.5, 2.0, 400) if request.param else None


@pytest.mark.parametrize("threshold", [0.5, 0.7])
def test_rates_are_those_of_fairlearn(weight: np.ndarray | None, threshold: float) -> None:
    df = draw()
    rates = run(df, threshold=threshold, sample_weight=weight).rates.set_index(["quantity", "group"])
    decided = (MODEL.score(df) > threshold).astype(int)
    given = {} if weight is None else {name: {"sample_weight": weight} for name in METRICS if name != "count"}
    frame = MetricFrame(
        metrics=METRICS, y_true=(df["Y"] == "yes").astype(int), y_pred=decided, sensitive_features=df["A"],
        sample_params=given,
    )  # fmt: skip
    for name in [each for each in METRICS if each != "count"]:
        own = rates.loc[name]["estimate"]
        assert own[["f", "m"]].tolist() == pytest.approx(frame.by_group[name].tolist())
        assert own["difference"] == pytest.approx(frame.by_group[name]["m"] - frame.by_group[name]["f"])
    assert rates.loc["selection_rate"]["rows"].tolist() == [*frame.by_group["count"], 400]


def test_intervals_are_those_of_shares() -> None:
    df = draw()
    rates = run(df).rates.set_index(["quantity", "group"])
    member = (df["A"] == "f") & (df["Y"] == "no")
    yes = (MODEL.score(df) > 0.5)[member]
    half = stats.norm.ppf(0.975) * np.std(yes) / np.sqrt(len(yes))
    own = rates.loc["false_positive_rate", "f"]
    assert [own["lower"], own["upper"]] == pytest.approx([yes.mean() - half, yes.mean() + half])
    assert own["rows"] == int(member.sum())
    parts = rates.loc["false_positive_rate"]
    errors = (parts["upper"] - parts["lower"]) ** 2
    assert errors["difference"] == pytest.approx(errors["f"] + errors["m"])  # other rows: independent


def test_a_rate_of_few_rows_has_the_interval_of_wilson() -> None:
    df = draw()
    rates = run(df, threshold=0.999999).rates.set_index(["quantity", "group"])
    n = int(((df["A"] == "m") & (df["Y"] == "yes")).sum())
    high = stats.binomtest(0, n).proportion_ci(0.95, method="wilson").high
    assert rates.loc["true_positive_rate", "m"][["estimate", "lower", "upper"]].tolist() == pytest.approx([0, 0, high])


def test_without_outcomes_there_are_selection_rates_alone() -> None:
    report = run(draw().drop(columns="Y"))
    assert report.rates["quantity"].unique().tolist() == ["selection_rate"]
    one = draw().assign(Y="yes")
    with pytest.warns(pf.PyrofairWarning, match="always yes"):
        rates = run(one).rates.set_index(["quantity", "group"])
    assert rates.loc["false_positive_rate"]["note"].tolist() == ["no row"] * 3
    assert rates.loc["false_positive_rate"]["estimate"].isna().all()


@pytest.mark.parametrize("source", [pf.IPW(UNFAIR), UNFAIR])
def test_every_source_has_them_and_models_of_decisions_alone(source: Any) -> None:
    class Decides:
        def predict(self, X: pd.DataFrame) -> np.ndarray:
            return np.where(MODEL.score(X) > 0.5, "yes", "no")

    expected = run(draw()).rates
    found = run(draw(), pf.DecisionsOf(Decides()), source=source, n_boot=0).rates
    pd.testing.assert_frame_equal(found, expected)


def test_every_form_of_the_report_has_them() -> None:
    report = run(draw())
    rate = report.rates["estimate"].iloc[0]
    assert json.loads(report.to_json())["tables"]["rates"][0]["estimate"] == rate
    for form in (report.details(), report.to_html(), report._repr_html_()):
        assert f"{rate:.1%}" in form.replace("&nbsp;", " ")
        assert "selection rate" in form
