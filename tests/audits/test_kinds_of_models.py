"""Models of other libraries, and scikit-learn's wrappers, in every source: rows come back in the types trained on."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import pyrofair as pf

RNG = np.random.default_rng(0)
N = 500
SEX = RNG.choice(["female", "male"], N)
JOB = np.where(RNG.random(N) < 0.35 + 0.3 * (SEX == "male"), "clerk", RNG.choice(["nurse", "cook"], N))
HOURS = RNG.normal(30 + 4 * (JOB == "clerk"), 5)
HIRED = (HOURS + 4 * (SEX == "male") + RNG.normal(0, 5, N) > 34).astype(int)
TABLE = pd.DataFrame({"sex": pd.Categorical(SEX), "job": pd.Categorical(JOB), "hours": HOURS, "hired": HIRED})
X = TABLE.drop(columns="hired")
GRAPH = pf.CausalGraph(
    "sex -> job; {sex job} -> hours; {sex job hours} -> hired",
    sensitive="sex",
    outcome="hired",
    baseline="female",
    contrast="male",
)
UNFAIR = GRAPH.unfair("sex -> hired", "sex -> job -> hired", "sex -> job -> hours -> hired")
SOURCE = pf.OneStep(UNFAIR, propensity="logistic", regression="logistic", random_state=0)


def encoded() -> Any:
    return make_column_transformer((OneHotEncoder(), ["sex", "job"]), remainder="passthrough")


def program(n: int) -> None:
    with pyro.plate("units", n):
        sex = pyro.sample("sex", dist.Bernoulli(0.5))
        noise = pyro.sample("noise", dist.Uniform(0.0, 1.0))
        job = pyro.deterministic("job", (noise > 0.5 - 0.2 * sex).float() + (noise > 0.8).float())
        own = pyro.sample("own", dist.Normal(0.0, 1.0))
        hours = pyro.deterministic("hours", 30.0 + 4.0 * (job == 0).float() + 5.0 * own)
        pyro.sample("hired", dist.Bernoulli(logits=(hours - 34.0) / 5.0 + sex))


def sources() -> dict[str, Any]:
    return {
        "IPW": pf.IPW(UNFAIR, arm="paper"),
        "GComputation": pf.GComputation(UNFAIR, draws=5, parameters="linear", random_state=0),
        "OneStep": SOURCE,
        "graph form": pf.OneStep(UNFAIR, form="graph", propensity="logistic", random_state=0),
        "SEM": pf.SEM(program, UNFAIR, levels={"job": ["clerk", "cook", "nurse"]}).fit(TABLE),
    }


@pytest.fixture(scope="module")
def boosted() -> dict[str, Any]:
    import lightgbm  # both are slow to load
    import xgboost

    small = {"n_estimators": 10, "random_state": 0, "n_jobs": 1}
    return {
        "lightgbm": lightgbm.LGBMClassifier(**small, verbose=-1).fit(X, HIRED),
        "xgboost": xgboost.XGBClassifier(**small, enable_categorical=True).fit(X, HIRED),
    }


@pytest.mark.parametrize("name", ["IPW", "GComputation", "OneStep", "graph form", "SEM"])
@pytest.mark.some(2)
def test_boosted_trees_on_categories(name: str, boosted: dict[str, Any]) -> None:
    """LightGBM and XGBoost refuse rows of other types or categories than they were trained on."""
    source = sources()[name]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=pf.PyrofairWarning)  # few replicates, a source taken as it is
        report = pf.audit(boosted, source, TABLE, n_boot=0, progress=False, random_state=0)
    own = report.table[report.table["quantity"].isin(["p_y0", "p_ypi", "piu_upper"])]
    assert own["estimate"].notna().all()
    if name in ("IPW", "GComputation", "SEM"):
        fitted = source if name == "SEM" else source.fit(X)
        given = {"n": 50} if name == "SEM" else {"df": X}
        for world in fitted.worlds(random_state=0, **given):
            assert world.rows[["sex", "job", "hours"]].dtypes.to_dict() == X.dtypes.to_dict()


def test_boosted_scores_are_those_of_the_library(boosted: dict[str, Any]) -> None:
    report = pf.audit(boosted, SOURCE, TABLE, random_state=0)
    rates = report.table.query("quantity == 'positive_rate' and decisions == 'score'").set_index("model")["estimate"]
    for name, model in boosted.items():
        assert rates[name] == pytest.approx(float(model.predict_proba(X)[:, 1].mean()), abs=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        CalibratedClassifierCV(make_pipeline(encoded(), LinearSVC()), cv=2),
        VotingClassifier(
            [("a", make_pipeline(encoded(), LogisticRegression())), ("b", make_pipeline(encoded(), GaussianNB()))],
            voting="soft",
        ),
        GridSearchCV(make_pipeline(encoded(), LogisticRegression()), {"logisticregression__C": [0.1, 1.0]}, cv=2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_wrappers_of_scikit_learn(model: Any) -> None:
    model.fit(X, HIRED)
    report = pf.audit({"m": model}, SOURCE, TABLE, random_state=0)
    assert report.table["estimate"].notna().all()


# --- a predict of its own --------------------------------------------------------------------------------------------


class Cut:
    """A model whose predict cuts at a threshold of its own."""

    classes_ = np.array([0, 1])

    def __init__(self, best_threshold_: float) -> None:
        self.best_threshold_ = best_threshold_

    def predict_proba(self, rows: pd.DataFrame) -> Any:
        p = np.clip((rows["hours"].to_numpy() - 15) / 40 + 0.1 * (rows["sex"] == "male").to_numpy(), 0, 1)
        return np.column_stack([1 - p, p])

    def predict(self, rows: pd.DataFrame) -> Any:
        return (self.predict_proba(rows)[:, 1] > self.best_threshold_).astype(int)


def test_a_predict_that_cuts_elsewhere_is_noticed() -> None:
    said = (
        r"'m': its own predict decides \d+ of 500 audited rows other than predict_proba > 0\.5.*threshold=0\.3\), its"
    )
    with pytest.warns(pf.PyrofairWarning, match=said):
        report = pf.audit({"m": Cut(0.3)}, SOURCE, TABLE, random_state=0)
    assert "To audit the decisions that it makes" in report.details()
    tuned = pf.audit({"m": Cut(0.3)}, SOURCE, TABLE, threshold=0.3, random_state=0).table
    decided = pf.audit({"m": pf.DecisionsOf(Cut(0.3))}, SOURCE, TABLE, random_state=0).table
    rate = [
        own.query("quantity == 'positive_rate' and decisions == 'threshold'")["estimate"].item()
        for own in (tuned, decided)
    ]
    assert rate[0] == rate[1] == pytest.approx(Cut(0.3).predict(X).mean())
    pf.audit({"m": Cut(0.5)}, SOURCE, TABLE, threshold=0.3, random_state=0)  # a choice of the user: no warning


def test_ties_are_no_disagreement() -> None:
    class Half(Cut):
        def predict_proba(self, rows: pd.DataFrame) -> Any:
            return np.full((len(rows), 2), 0.5)

        def predict(self, rows: pd.DataFrame) -> Any:
            return np.ones(len(rows), dtype=int)

    pf.audit({"m": Half(0.5)}, SOURCE, TABLE, random_state=0)


# --- codes made before the fit ---------------------------------------------------------------------------------------


def test_a_one_hot_model_is_told_the_pipeline() -> None:
    model = LogisticRegression(C=0.5).fit(pd.get_dummies(X), HIRED)
    with pytest.raises(pf.DataError) as caught:
        pf.audit({"m": model}, SOURCE, TABLE)
    text = str(caught.value)
    assert "'sex_female', 'sex_male', 'job_clerk', 'job_cook' and 1 more, which look like codes of 'sex', 'job'" in text
    assert "as pandas.get_dummies makes them" in text
    code = re.search(r"make_pipeline\(.*\)(?=, and fit)", text)
    assert code is not None
    from sklearn.compose import make_column_transformer

    names = {
        "make_pipeline": make_pipeline,
        "make_column_transformer": make_column_transformer,
        "OneHotEncoder": OneHotEncoder,
        "LogisticRegression": LogisticRegression,
    }
    printed = eval(code.group(), names).fit(X, HIRED)
    assert pf.audit({"m": printed}, SOURCE, TABLE, random_state=0).table["estimate"].notna().all()


def test_the_longer_of_two_names_is_the_source() -> None:
    graph = pf.CausalGraph("A -> job_type; {A job job_type} -> Y", sensitive="A", outcome="Y")
    df = pd.DataFrame(
        {"A": [0, 1] * 4, "job": ["x", "y", "y", "x"] * 2, "job_type": ["u"] * 4 + ["v"] * 4, "Y": [0, 1] * 4}
    )
    model = LogisticRegression().fit(pd.get_dummies(df[["A", "job_type"]]), df["Y"])
    with pytest.raises(pf.DataError, match=r"codes of 'job_type' made before.*\['job_type'\]\), remainder"):
        pf.audit({"m": model}, graph.unfair("A -> Y"), df)


def test_a_one_hot_array_is_told_the_pipeline() -> None:
    model = DecisionTreeClassifier().fit(pd.get_dummies(X).to_numpy(), HIRED)
    with pytest.raises(
        pf.DataError, match=r"If 'sex', 'job' were encoded before the fit: encode inside the model, make_"
    ):
        pf.audit({"m": model}, SOURCE, TABLE)


# --- faults of tables and models that must stay refused or right -----------------------------------------------------


def test_arrow_types_reach_the_model_as_they_are() -> None:
    arrow = TABLE.assign(job=TABLE["job"].astype("string[pyarrow]"), sex=TABLE["sex"].astype("string[pyarrow]"))
    model = make_pipeline(encoded(), LogisticRegression()).fit(arrow.drop(columns="hired"), HIRED)
    report = pf.audit({"m": model}, SOURCE, arrow, random_state=0)
    plain = make_pipeline(encoded(), LogisticRegression()).fit(X, HIRED)
    expected = pf.audit({"m": plain}, SOURCE, TABLE, random_state=0)
    np.testing.assert_allclose(report.table["estimate"], expected.table["estimate"], atol=1e-6)
