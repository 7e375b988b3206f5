"""Classifiers that read missing values: training, prediction, the path of penalties, and what is refused."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.preprocessing import StandardScaler

import pyrofair as pf
from pyrofair.exceptions import DataError

GRAPH = pf.CausalGraph("C -> A; {A C} -> D; {A C D} -> M; {A C D M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair(direct=True, through=["D", "M"])
READS = ["A", "C", "D", "M"]


def draw(n: int, seed: int, arm: int | None = None) -> pd.DataFrame:
    """Return rows as recorded; D is lost by its true value and by A. In a world all features have A at an arm."""
    rng = np.random.default_rng(seed)
    C = rng.standard_normal(n)
    A = (rng.random(n) < expit(0.5 * C)).astype(int) if arm is None else np.full(n, arm)
    true = 0.8 * A + 0.5 * C + rng.standard_normal(n)
    D = np.where(rng.random(n) < expit(-1.0 + 1.2 * A - 0.8 * true), np.nan, true)
    M = np.digitize(rng.logistic(size=n) + 0.5 * A + np.nan_to_num(D, nan=-0.5), [-1.0, 0.8])
    labels = np.array(["low", None, "high"], dtype=object)[M]
    p = expit(0.8 * A + 0.7 * np.nan_to_num(D, nan=-1.0) + 0.5 * (M - 1) - 0.4)
    return pd.DataFrame({"A": A, "C": C, "D": D, "M": labels, "Y": (rng.random(n) < p).astype(int)})


def classifier(**settings: Any) -> pf.PenalizedClassifier:
    given = {"penalty": "effect_gap", "missing": "recorded", "epochs": 40, "progress": False, "random_state": 0}
    source = pf.IPW(UNFAIR, propensity="logistic", random_state=0)
    return pf.PenalizedClassifier("logistic", **{"source": source, **given, **settings})


@cache
def fitted(strength: float) -> pf.PenalizedClassifier:
    df = draw(2000, 0)
    return classifier(strength=strength).fit(df[READS], df["Y"])


def test_the_effect_falls_as_the_penalty_rises() -> None:
    models = {f"{strength:g}": fitted(strength) for strength in (0.0, 0.1, 0.5)}
    source = pf.IPW(UNFAIR, propensity="logistic", random_state=0)
    report = pf.audit(models, source, draw(4000, 1), missing="recorded", n_boot=0, progress=False, random_state=0)
    table = report.table[report.table["quantity"] == "mean_unfair_effect"]
    found = table[table["decisions"] == "score"].set_index("model")["estimate"]
    worlds = [draw(200_000, 2, arm)[READS] for arm in (0, 1)]
    for name, model in models.items():
        one, other = (float(model.predict_proba(rows)[:, 1].mean()) for rows in worlds)
        assert found[name] == pytest.approx(other - one, abs=0.02)
    assert found["0"] > found["0.1"] + 0.05
    assert found["0.1"] > found["0.5"] + 0.05
    assert found["0.5"] == pytest.approx(0.0, abs=0.02)
    plain = classifier(source=None, penalty=pf.disagreement).fit(draw(2000, 0)[READS], draw(2000, 0)["Y"])
    assert plain.score(draw(4000, 1)[READS], draw(4000, 1)["Y"]) > 0.66


@pytest.mark.parametrize(
    "convert", [lambda df: df, lambda df: df.convert_dtypes(), lambda df: df.astype({"M": "category"})]
)
def test_predictions_are_saved_and_do_not_depend_on_types_or_on_other_rows(convert: Any, tmp_path: Path) -> None:
    model, rows = fitted(0.5), draw(50, 3)[READS]
    pf.save(model, tmp_path / "model.pyrofair")
    again = pf.load(tmp_path / "model.pyrofair")
    expected = model.predict_proba(rows)
    np.testing.assert_array_equal(again.predict_proba(convert(rows)), expected)
    alone = [again.predict_proba(pd.DataFrame([row]))[0] for row in rows.astype(object).to_dict("records")]
    np.testing.assert_allclose(alone, expected, rtol=1e-12)


def test_rows_without_a_value_that_all_fitted_rows_have_are_refused() -> None:
    rows = draw(20, 3)[READS]
    with pytest.raises(DataError, match=r"3 row\(s\) have no 'C'"):
        fitted(0.5).predict(rows.assign(C=rows["C"].where(rows.index > 2)))


@pytest.mark.parametrize("kind", ["table", "array"])
def test_without_a_source_a_table_or_an_array_may_lack_values(kind: str) -> None:
    df = draw(400, 0)
    X = df[["A", "C", "D"]] if kind == "table" else df[["A", "C", "D"]].to_numpy()
    model = classifier(source=None, penalty=pf.disagreement).fit(X, df["Y"])
    assert model.encoder_.width_ == 5
    assert np.isfinite(model.predict_proba(X)).all()
    with pytest.raises((DataError, ValueError), match="NaN"):
        classifier(source=None, penalty=pf.disagreement, missing="refuse").fit(X, df["Y"])


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"missing": "refuse"}, r"X has .*'D'.*missing=.recorded"),
        ({"encoder": StandardScaler(), "columns": ["C", "D"]}, "encoder=StandardScaler.* leaves missing values"),
        ({"source": pf.MilesBounds(UNFAIR), "penalty": pf.interval_disagreement}, "source=MilesBounds"),
    ],
)
def test_what_refuses_missing_values_says_so(settings: dict[str, Any], named: str) -> None:
    df = draw(400, 0)
    with pytest.raises(DataError, match=named):
        classifier(**settings).fit(df[READS], df["Y"])


def test_a_path_is_judged_on_rows_with_missing_values() -> None:
    df = draw(1500, 0)
    path = pf.audits.penalty_path(classifier(), df[READS], df["Y"], strengths=[0.0, 3.0], progress=False, n_jobs=1)
    effect = path.table.query("decisions == 'score'").set_index("strength")["mean_unfair_effect"]
    assert effect[0.0] > effect[3.0] + 0.1
    assert path.intervals["lower"].notna().any()


def test_contrasts_and_learned_mechanisms_take_the_setting() -> None:
    df = draw(400, 0)
    inner = pf.GComputation(UNFAIR, parameters="linear", draws=5, most_units=50, progress=False, random_state=0)
    for source in (inner, pf.Contrasts(inner)):
        model = classifier(source=source, epochs=2, starts=1).fit(df[READS], df["Y"])
        made = getattr(model.source_, "sources_", {1: model.source_})[1]
        assert made.missing == "recorded"
        assert made.worlds()[1].rows["D"].isna().any()
        assert source.get_params().get("missing", "refuse") == "refuse"
