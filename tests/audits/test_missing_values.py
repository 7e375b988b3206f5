"""Audits of tables with missing values: the numbers of the same table recoded by hand, and what every report says."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import pyrofair as pf
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.tables.recorded import NOT_RECORDED

EDGES = "C -> A; {A C} -> D; {A C D} -> M; {A C D M} -> Y"
GRAPH = pf.CausalGraph(EDGES, sensitive="A", outcome="Y")
SPLIT = GRAPH.unfair("A -> Y", "A -> M -> Y")
DIRECT = GRAPH.unfair("A -> Y")
BY_HAND = pf.CausalGraph(EDGES, sensitive="A", outcome="Y", columns={"D": ["D", "F"]}).unfair("A -> Y", "A -> M -> Y")
SATURATED = {"propensity": "saturated", "regression": "saturated", "random_state": 0}
SKLEARN = {"propensity": LogisticRegression(), "regression": ExtraTreesRegressor(5, random_state=0)}


def table(n: int = 800) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    C = rng.integers(0, 3, n)
    A = (rng.random(n) < 0.3 + 0.1 * C).astype(int)
    D = (rng.random(n) < 0.3 + 0.3 * A).astype(float)
    D[rng.random(n) < 0.1 + 0.2 * A] = np.nan
    M = np.array(["a", "b"], object)[(rng.random(n) < 0.3 + 0.2 * A + 0.2 * np.nan_to_num(D)).astype(int)]
    M[rng.random(n) < 0.15] = None
    return pd.DataFrame({"C": C, "A": A, "D": D, "M": M, "Y": rng.integers(0, 2, n)})


class Reads:
    """A classifier that reads missing values as they are."""

    classes_ = np.array([0, 1])
    feature_names_in_ = np.array(["A", "C", "D", "M"])

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        d, m = X["D"].to_numpy(np.float64, na_value=np.nan), X["M"].astype(object)
        p = 0.1 + 0.2 * X["A"].astype(float) + 0.2 * (d == 1) + 0.15 * np.isnan(d)
        p += 0.2 * (m == "b").astype(float) + 0.1 * m.isna()
        return np.column_stack([1.0 - p, p])


class ReadsByHand(Reads):
    """The same classifier of the table recoded by hand."""

    feature_names_in_ = np.array(["A", "C", "D", "F", "M"])

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        return super().predict_proba(X.assign(D=X["D"].where(X["F"] == 1), M=X["M"].replace(NOT_RECORDED, None)))


def by_hand(df: pd.DataFrame, like: pd.DataFrame | None = None) -> pd.DataFrame:
    mean = (df if like is None else like)["D"].mean()
    recorded = df["D"].notna().astype(int).astype("category")
    return df.assign(D=df["D"].fillna(mean), F=recorded, M=df["M"].fillna(NOT_RECORDED))


def run(model: Any, source: Any, df: pd.DataFrame, **settings: Any) -> pf.Audit:
    settings = {"n_boot": 0, "n_jobs": 1, "progress": False, "random_state": 0} | settings
    return pf.audit({"m": model}, source, df, **settings)


def numbers(report: pf.Audit) -> NDArray[np.float64]:
    return report.table[["estimate", "lower", "upper", "ess"]].to_numpy()


SOURCES: dict[str, Any] = {
    **{
        f"OneStep, {form}, {kind}": lambda unfair, form=form, kind=kind, **missing: pf.OneStep(
            unfair, propensity=kind, regression=kind, form=form, splits=1, random_state=0, **missing
        )
        for form, kinds in (("prefix", ("saturated", "logistic", "boosted", "stacked")), ("graph", ("saturated",)))
        for kind in kinds
    },
    "OneStep, drawn": lambda unfair, **missing: pf.OneStep(unfair, form="graph", splits=1, random_state=0, **missing),
    **{
        f"IPW, {kind}": lambda unfair, kind=kind, **missing: pf.IPW(unfair, propensity=kind, random_state=0, **missing)
        for kind in ("saturated", "logistic", "boosted")
    },
}


@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PyrofairWarning")
@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_numbers_are_those_of_the_table_recoded_by_hand(make: Any) -> None:
    df = table()
    weight = np.random.default_rng(1).integers(1, 4, len(df)).astype(float)
    one = run(Reads(), make(SPLIT), df, sample_weight=weight, missing="recorded", n_boot=3)
    two = run(ReadsByHand(), make(BY_HAND), by_hand(df), sample_weight=weight, n_boot=3)
    np.testing.assert_allclose(numbers(one), numbers(two), rtol=0.0, atol=1e-12)


@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PyrofairWarning")
def test_models_of_scikit_learn_read_flags_of_numbers() -> None:
    df = table().drop(columns="M")
    graph = pf.CausalGraph("C -> A; {A C} -> D; {A C D} -> Y", sensitive="A", outcome="Y")
    model = make_pipeline(SimpleImputer(), LogisticRegression()).fit(df[["A", "C", "D"]], df["Y"])
    unfair = graph.unfair("A -> Y", "A -> D -> Y")
    report = run(model, pf.OneStep(unfair, **SKLEARN, splits=1, random_state=0), df, missing="recorded")
    assert not report.table["estimate"].isna().any()


@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PyrofairWarning")
@pytest.mark.parametrize(
    "convert",
    [
        lambda df: df.convert_dtypes(),
        lambda df: df.convert_dtypes(dtype_backend="pyarrow"),
        lambda df: df.astype({"M": "category"}),
        lambda df: df.sample(frac=1.0, random_state=1),
    ],
    ids=["nullable", "arrow", "category", "shuffled"],
)
def test_types_and_order_change_nothing(convert: Any) -> None:
    df, source = table(), pf.OneStep(SPLIT, **SATURATED, missing="recorded")
    np.testing.assert_allclose(
        numbers(run(Reads(), source, convert(df))), numbers(run(Reads(), source, df)), atol=1e-12
    )


@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PyrofairWarning")
def test_new_rows_are_read_as_the_fitted_ones() -> None:
    df = table(1600)
    source = pf.OneStep(SPLIT, **SATURATED, missing="recorded").fit(df.iloc[:800])
    assert (source.fitted_rows(df.iloc[:800].sample(frac=1.0, random_state=0)) >= 0).all()
    by = pf.OneStep(BY_HAND, **SATURATED).fit(by_hand(df.iloc[:800]))
    new = df.iloc[800:]
    one, two = run(Reads(), source, new), run(ReadsByHand(), by, by_hand(new, like=df.iloc[:800]))
    np.testing.assert_allclose(numbers(one), numbers(two), atol=1e-12)
    lacking = new.assign(C=df["C"].astype(float).where(df.index != 1100))
    with pytest.raises(DataError, match="'C'"):
        source.stages(lacking)
    assert "'C'" in run(Reads(), source, lacking).context.failure


def test_subgroups_have_a_level_for_what_is_not_recorded() -> None:
    df = table()
    df["C"] = df["C"].map({0: "low", 1: "high"})
    with pytest.warns(PyrofairWarning, match="true C acts on A "):
        report = run(Reads(), DIRECT, df.assign(C=df["C"]), missing="recorded", subgroups="C")
    assert set(report.subgroups["level"]) == {"low", "high", NOT_RECORDED}


def test_a_pattern_of_one_group_only_is_a_lack_of_overlap() -> None:
    df = table()
    df.loc[df["A"] == 1, "D"] = df["D"].fillna(0.0)
    with pytest.raises(pf.PositivityError, match="D recorded=0"):
        run(Reads(), pf.OneStep(SPLIT, random_state=0, splits=1), df, missing="recorded")


# -- what is said ------------------------------------------------------------------------------------------------------


def test_every_report_shows_shares_by_group_and_what_is_assumed() -> None:
    df = table()
    with pytest.warns(PyrofairWarning, match="true D acts on M "):
        report = run(Reads(), pf.OneStep(SPLIT, **SATURATED), df, missing="recorded")
    shares = report.context.missing.set_index("column")
    known = df.groupby("A")["D"].apply(lambda values: values.isna().mean())
    assert shares.loc["D"].tolist() == pytest.approx([df["D"].isna().mean(), known[0], known[1]])
    held = json.loads(report.to_json())
    assert [row["column"] for row in held["tables"]["missing"]] == ["D", "M"]
    for text in (report.details(), report.to_html(), report._repr_html_(), " ".join(held["assumptions"])):
        assert "counts as a value" in text
        assert "The true D acts on M by its record alone" in text
    for text in (report.details(), report.to_html(), report._repr_html_()):
        assert "Missing values, share of rows" in text
        assert f"{known[1]:.1%}" in text


def test_nothing_more_is_said_of_complete_tables() -> None:
    df = table().dropna()
    one, two = (run(Reads(), pf.OneStep(SPLIT, **SATURATED), df, missing=each) for each in ("refuse", "recorded"))
    assert one.context.assumptions == two.context.assumptions
    assert one.context.missing.empty
    assert "Missing values" not in two.details()
    np.testing.assert_array_equal(numbers(one), numbers(two))


def test_a_family_shows_the_shares_of_all_its_groups() -> None:
    df = table()
    df["A"] = df["A"].where(df.index % 4 > 0, 2)
    with pytest.warns(PyrofairWarning, match="true D acts on M "):
        report = pf.audit_contrasts(
            {"m": Reads()}, pf.OneStep(SPLIT, **SATURATED), df, missing="recorded", random_state=0
        )
    assert [*json.loads(report.to_json())["missing"][0]] == ["column", "A=0", "A=1", "A=2"]
    assert "Missing values, share of rows" in report.details()


# -- the outcome -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [pf.OneStep(DIRECT, **SATURATED), pf.IPW(DIRECT, propensity="saturated")])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_without_an_outcome_are_left_out_of_accuracy_alone(source: Any, weighted: bool) -> None:
    df = table().dropna()
    df["Y"] = df["Y"].astype(float).where(np.arange(len(df)) % 3 > 0)
    weight = np.arange(len(df)) % 2 + 1.0 if weighted else None
    known = df["Y"].notna().to_numpy()
    with pytest.warns(PyrofairWarning, match=f"'Y' is missing in {(~known).sum()} of {len(df)} rows"):
        report = run(Reads(), source, df, missing="recorded", sample_weight=weight, n_boot=40)
    whole = run(Reads(), source, df.drop(columns="Y"), sample_weight=weight, n_boot=40)
    some = run(Reads(), source, df[known], sample_weight=None if weight is None else weight[known], n_boot=40)
    of = [each.table.query("decisions == 'threshold'").set_index("quantity") for each in (report, whole, some)]
    for name in ("accuracy", "majority_rate"):
        assert of[0].loc[name, "estimate"] == pytest.approx(of[2].loc[name, "estimate"], abs=1e-12)
        assert of[0].loc[name, "ess"] == pytest.approx(of[2].loc[name, "ess"])
        if isinstance(source, pf.OneStep):  # replicates draw other weights for other rows
            ends = [each.loc[name, ["lower", "upper"]].tolist() for each in (of[0], of[2])]
            assert ends[0] == pytest.approx(ends[1], abs=2e-3 if name == "majority_rate" or weighted else 1e-12)
    causal = ["p_y0", "p_ypi", "mean_unfair_effect", "piu_lower", "piu_upper", "positive_rate"]
    one, two = (each.loc[causal, ["estimate", "lower", "upper"]].to_numpy() for each in of[:2])
    np.testing.assert_array_equal(one, two)


# -- refusals ----------------------------------------------------------------------------------------------------------


class Complete:
    """A classifier that refuses missing values."""

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        if X.isna().any(axis=None):
            raise ValueError("Input contains NaN.")
        return np.full((len(X), 2), 0.5)


@pytest.mark.parametrize(
    ("change", "settings", "match"),
    [
        ({}, {}, r"'D'.*missing=\"recorded\""),
        ({"A": np.nan}, {"missing": "recorded"}, "'A' of df is missing in 3 of 800 rows"),
        ({"M": None}, {"source": pf.GComputation(SPLIT), "missing": "impute"}, "missing"),
        ({}, {"model": Complete(), "missing": "recorded"}, "ValueError: Input contains NaN.*imputer"),
        ({}, {"source": pf.MilesBounds(SPLIT), "missing": "recorded"}, "MilesBounds"),
        ({"Y": np.nan}, {"missing": "refuse", "drop": ["D", "M"]}, "'Y'"),
    ],
    ids=["option", "sensitive", "choice", "model", "source", "outcome"],
)
def test_refused_before_any_work(
    change: dict[str, Any], settings: dict[str, Any], match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    df = table().astype({"A": object, "Y": object})
    for name, value in change.items():
        df.loc[:2, name] = value
    df["A"] = pd.to_numeric(df["A"])
    df["Y"] = pd.to_numeric(df["Y"])
    for name in settings.pop("drop", ()):
        df[name] = df[name].fillna(df[name].mode()[0])
    monkeypatch.setattr(pf.OneStep, "fit", None)
    model, source = settings.pop("model", Reads()), settings.pop("source", pf.OneStep(SPLIT))
    with pytest.raises(DataError, match=match):
        run(model, source, df, **settings)


def test_a_source_that_was_fitted_without_is_not_changed() -> None:
    source = pf.OneStep(SPLIT, **SATURATED).fit(table().dropna())
    with pytest.raises(DataError, match='fitted with missing="refuse"'):
        run(Reads(), source, table(), missing="recorded")
    with pytest.raises(DataError, match="partitions"):
        run(Reads(), DIRECT, [table()], missing="recorded")
