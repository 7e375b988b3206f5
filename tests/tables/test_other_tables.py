"""Tables of polars and pyarrow: read through Arrow's stream, with the numbers of the pandas table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import pyrofair as pf
from pyrofair.tables.reading import as_pandas, read_table

RNG = np.random.default_rng(0)
N = 300
SEX, JOB = RNG.choice(["female", "male"], N), RNG.choice(["clerk", "nurse", "cook"], N)
HOURS = RNG.normal(35, 12, N).astype(np.float32) + 5 * (SEX == "male")
HIRED = (HOURS + 10 * (SEX == "male") + RNG.normal(0, 10, N) > 40).astype(np.int16)
PANDAS = pd.DataFrame(
    {"sex": pd.Categorical(SEX), "job": pd.Categorical(JOB), "hours": HOURS.astype(np.float32), "hired": HIRED}
)
POLARS = pl.DataFrame(
    {
        "sex": pl.Series(SEX.tolist(), dtype=pl.Categorical),
        "job": pl.Series(JOB.tolist(), dtype=pl.Enum(["clerk", "cook", "nurse"])),
        "hours": pl.Series(HOURS.tolist(), dtype=pl.Float32),
        "hired": pl.Series(HIRED.tolist(), dtype=pl.Int16),
    }
)
TABLES = {"polars": POLARS, "pyarrow": pa.Table.from_pandas(PANDAS), "polars as pyarrow": POLARS.to_arrow()}
GRAPH = pf.CausalGraph(
    "{sex job} -> hours; {sex job hours} -> hired", sensitive="sex", outcome="hired", baseline="female", contrast="male"
)
UNFAIR = GRAPH.unfair("sex -> hired")


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_types_stay(table: Any) -> None:
    found = read_table(table, ["sex", "job", "hours", "hired"])
    assert isinstance(found["sex"].dtype, pd.CategoricalDtype)
    assert sorted(found["job"].cat.categories) == ["clerk", "cook", "nurse"]
    assert [str(found[name].dtype) for name in ("hours", "hired")] == ["float32", "int16"]
    for name in PANDAS:
        assert found[name].tolist() == PANDAS[name].tolist()
    more = as_pandas(pl.DataFrame({"flag": [True, False], "text": ["a", "b"], "x": [0.5, 1.5]}))
    assert more["flag"].dtype == np.bool_
    assert more["x"].dtype == np.float64
    assert read_table(more, ["flag", "text", "x"])["text"].tolist() == ["a", "b"]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
@pytest.mark.some(1)
def test_the_numbers_are_those_of_the_pandas_table(table: Any) -> None:
    encode = make_column_transformer((OneHotEncoder(), ["sex", "job"]), remainder="passthrough")
    X = as_pandas(table).drop(columns="hired")  # whose categories are in the order of the other library
    model = make_pipeline(encode, LogisticRegression(max_iter=500)).fit(X, HIRED)
    source = pf.OneStep(UNFAIR, propensity="logistic", regression="logistic", random_state=0)
    one, other = (pf.audit({"m": model}, source, each, random_state=0).table for each in (as_pandas(table), table))
    pd.testing.assert_frame_equal(one, other)
    settings: dict[str, Any] = {"epochs": 2, "progress": False, "random_state": 0}
    penalised = pf.PenalizedClassifier("logistic", source=pf.IPW(UNFAIR), **settings).fit(X, HIRED)
    rows = table.drop("hired") if isinstance(table, pl.DataFrame) else table.drop_columns(["hired"])
    again = pf.PenalizedClassifier("logistic", source=pf.IPW(UNFAIR), **settings).fit(rows, HIRED)
    np.testing.assert_allclose(again.predict_proba(rows), penalised.predict_proba(X), atol=1e-6)
    assert again.score(rows, HIRED) == penalised.score(X, HIRED)
    for same, own in zip(pf.IPW(UNFAIR).fit(rows).worlds(), pf.IPW(UNFAIR).fit(X).worlds(), strict=True):
        np.testing.assert_allclose(same.weight, own.weight, atol=1e-12)
        assert isinstance(same.rows, pd.DataFrame)


@pytest.mark.skipif(
    tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 9),
    reason="scikit-learn before 1.9 does not find the columns of a polars 2 frame",
)
def test_a_model_trained_on_a_polars_frame() -> None:
    X = POLARS.drop("hired")
    encode = make_column_transformer((OneHotEncoder(), ["sex", "job"]), remainder="passthrough")
    model = make_pipeline(encode, LogisticRegression(max_iter=500)).fit(X, HIRED)
    source = pf.OneStep(UNFAIR, propensity="logistic", regression="logistic", random_state=0)
    assert pf.audit({"m": model}, source, POLARS, random_state=0).table["estimate"].notna().all()
    several = pf.audit_contrasts({"m": model}, source, POLARS)
    assert several.table["contrast"].unique().tolist() == ["male"]


@pytest.mark.parametrize("codes", [pa.uint8(), pa.uint32(), pa.uint64()], ids=str)
def test_unsigned_codes_of_categories(codes: Any) -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1], codes), pa.array(["low", "high"]), ordered=True)
    found = as_pandas(pa.table({"level": pa.chunked_array([values[:2], values[2:]]), "x": [1.0, 2.0, 3.0, 4.0]}))
    expected = pd.Categorical(["high", None, "low", "high"], ["low", "high"], ordered=True)
    pd.testing.assert_series_equal(found["level"], pd.Series(expected, name="level"))


def test_missing_values_stay_missing_and_are_refused() -> None:
    holed = POLARS.with_columns(pl.when(pl.col("hours") > 50).then(None).otherwise(pl.col("hours")).alias("hours"))
    with pytest.raises(pf.DataError, match=r"missing value\(s\) \(NaN\) in the column 'hours'"):
        pf.IPW(UNFAIR).fit(holed)


def test_what_is_no_table() -> None:
    with pytest.raises(pf.DataError, match=r"got polars.LazyFrame|got LazyFrame.*Collect it first: df.collect\(\)"):
        read_table(POLARS.lazy(), ["sex"])
    reader = pa.Table.from_pandas(PANDAS).to_reader()
    with pytest.raises(pf.DataError, match="must be a pandas DataFrame"):
        read_table(reader, ["sex"])
    with pytest.raises(pf.DataError, match="df lacks the column 'sex'"):
        pf.audit({"m": np.zeros(N)}, UNFAIR, POLARS.rename({"sex": "gender"}))
    twice = pa.table([pa.array([1, 2]), pa.array([3, 4])], names=["sex", "sex"])
    with pytest.raises(pf.DataError, match="has the column 'sex' more than once"):
        read_table(twice, ["sex"])
