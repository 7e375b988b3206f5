"""Two attributes as one: levels, graph, models of the attributes, audits by enumeration, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import pyrofair as pf
from tests.models import Known

GRAPH = pf.CausalGraph(
    "C -> {race M}; race -> M; sex -> {M race}; {sex race M C} -> Y", sensitive="sex", outcome="Y", baseline="m"
)
SATURATED: Any = {"propensity": "saturated", "regression": "saturated"}


def p_m(sex: str, race: str, c: int) -> float:
    return 0.25 + 0.25 * (sex == "f") + 0.25 * (race == "b") * (sex == "f" or c)


def score(sex: Any, race: Any, m: Any, c: Any) -> Any:
    return 0.1 + 0.1 * (sex == "f") + 0.1 * (race == "b") + 0.2 * (sex == "f") * (race == "b") + 0.3 * m + 0.05 * c


MODEL = Known(lambda X: score(*(X[each].to_numpy() for each in ("sex", "race", "M", "C"))))
"""It reads both attributes, in columns of their own."""


def p_pair(sex: str, race: str, c: int) -> float:
    return (0.5 if c == (race == "b") else 0.25) * (0.5 if sex == "f" else 1.0) / (0.75 * 1.5)


def exact_table() -> pd.DataFrame:
    rows = []
    for c, sex, race, m in itertools.product((0, 1), "fm", "bw", (0, 1)):
        share = 0.5 * p_pair(sex, race, c) * (p_m(sex, race, c) if m else 1 - p_m(sex, race, c))
        rows += [(c, sex, race, m)] * round(288 * share)
    df = pd.DataFrame(rows, columns=["C", "sex", "race", "M"])
    return df.assign(race=pd.Categorical(df["race"]), Y=np.arange(len(df)) % 2)[["M", "sex", "C", "race", "Y"]]


def truth(sex: str, race: str) -> float:
    """The mean effect of the direct path against (m, w), in the population of the two levels."""
    total = weight = 0.0
    for c in (0, 1):
        own = p_pair(sex, race, c) + p_pair("m", "w", c)
        for m in (0, 1):
            p = p_m("m", "w", c) if m else 1 - p_m("m", "w", c)
            total += own * p * (score(sex, race, m, c) - score("m", "w", m, c))
        weight += own
    return total / weight


def crossed(df: pd.DataFrame | None = None, **settings: Any) -> pf.Crossed:
    given: dict[str, Any] = {"baseline": ("m", "w")} | settings
    return pf.cross(exact_table() if df is None else df, GRAPH, ["sex", "race"], **given)


def test_contrasts_are_those_of_the_enumeration() -> None:
    found = crossed()
    source = pf.OneStep(found.graph.unfair(direct=True), **SATURATED)
    report = pf.audit_contrasts({"model": found.model(MODEL)}, source, found.frame, random_state=0)
    rows = report.table.query("decisions == 'score' and quantity == 'mean_unfair_effect'").set_index("contrast")
    assert sorted(rows.index) == ["f × b", "f × w", "m × b"]
    for label, estimate in rows["estimate"].items():
        assert estimate == pytest.approx(truth(*str(label).split(" × ")), abs=1e-9)
    assert report.worst.query("decisions == 'score' and quantity == 'mean_unfair_effect'")["contrast"].item() == "f × b"


def test_the_graph_and_the_table() -> None:
    found = crossed()
    graph = found.graph
    assert (graph.sensitive, graph.baseline, found.name) == ("sex_race", "m × w", "sex_race")
    assert {*graph.edges} == {
        ("C", "sex_race"),
        ("C", "M"),
        ("sex_race", "M"),
        ("sex_race", "Y"),
        ("M", "Y"),
        ("C", "Y"),
    }
    assert list(found.frame.columns) == ["M", "sex_race", "C", "Y"]
    table = exact_table()
    assert found.frame["sex_race"].tolist() == [f"{a} × {b}" for a, b in zip(table["sex"], table["race"], strict=True)]
    assert found.counts["rows"].sum() == len(table)
    assert found.counts["label"].tolist() == ["f × b", "f × w", "m × b", "m × w"]
    pd.testing.assert_frame_equal(found.apply(table.iloc[5:9]), found.frame.iloc[5:9])
    restored = found.restore(found.frame)
    pd.testing.assert_frame_equal(restored[table.columns.tolist()], table)
    assert "f × b" in str(found)
    assert repr(found).startswith("<Crossed 'sex_race': 4 levels")
    other = crossed(name="group", separator=" and ", baseline={"race": "b", "sex": "f"})
    assert (other.graph.sensitive, other.graph.baseline) == ("group", "f and b")


def test_numbers_are_labelled_with_their_attribute() -> None:
    df = exact_table().assign(sex=lambda t: (t["sex"] == "f").astype(int))
    found = crossed(df, baseline=(0, "w"))
    assert found.graph.baseline == "sex=0 × w"
    assert found.restore(found.frame)["sex"].dtype == df["sex"].dtype


def test_models_of_every_sort_read_the_attributes() -> None:
    df = exact_table()
    found = crossed(df)
    graph, rows = found.graph, found.frame
    numbers = df.assign(sex=(df["sex"] == "f").astype(int), race=(df["race"] == "b").astype(int))
    names = ["sex", "race", "M"]
    named = LogisticRegression().fit(numbers[names], df["Y"])
    plain = LogisticRegression().fit(numbers[["M", "sex", "C", "race"]].to_numpy(), df["Y"])  # in the order of df
    of_numbers = crossed(numbers, baseline=(0, 0))
    for model, columns in ((named, names), (plain, None)):
        expected = model.predict_proba(numbers[columns] if columns else numbers[["M", "sex", "C", "race"]].to_numpy())
        adapted = of_numbers.model(model)
        scores = adapted.positive("m", of_numbers.frame, of_numbers.graph, of_numbers.graph.input_columns)
        np.testing.assert_allclose(scores, expected[:, 1])
    rule = found.model(pf.DecisionsOf(lambda X: (X["sex"] == "f").astype(int), labels=(0, 1)))
    assert rule.positive("m", rows, graph, graph.input_columns).tolist() == (df["sex"] == "f").tolist()
    own = found.model(pf.ScoresOf(lambda X: 0.5 * (X["race"] == "b")))
    assert own.positive("m", rows, graph, graph.input_columns).tolist() == (0.5 * (df["race"] == "b")).tolist()
    given = np.zeros(len(df))
    assert found.model(given) is given
    with pytest.raises(pf.DataError, match="without predict_proba"):
        found.model(object())


def test_the_worst_combination_is_trained_against() -> None:
    rng = np.random.default_rng(0)
    df = exact_table()
    df = df.assign(Y=(rng.random(len(df)) < MODEL.predict_proba(df)[:, 1]).astype(int))
    found = crossed(df)
    source = pf.Contrasts(pf.IPW(found.graph.unfair(direct=True)))
    X = found.frame[found.graph.input_columns]

    settings: dict[str, Any] = {"source": source, "penalty": pf.effect_gap, "epochs": 8, "progress": False}

    def worst(strength: float) -> float:
        model = pf.PenalizedClassifier("logistic", strength=strength, random_state=0, **settings)
        model.fit(X, found.frame["Y"])
        p = {each: model.predict_proba(X.assign(sex_race=each))[:, 1].mean() for each in found.counts["label"]}
        return max(abs(value - p["m × w"]) for value in p.values())

    assert worst(5.0) < worst(0.0)


def test_empty_combinations_are_refused_with_their_counts() -> None:
    df = exact_table()
    df = df[~((df["sex"] == "f") & (df["race"] == "b"))]
    with pytest.raises(pf.DataError, match=r"1 of 4 combinations have no row, such as 'f × b'. Rows: f × b 0, f × w"):
        crossed(df)
    found = crossed(df, allow_empty=True)
    assert [*found.frame["sex_race"].cat.categories] == ["f × w", "m × b", "m × w"]
    assert found.counts["rows"].tolist()[0] == 0
    with pytest.raises(pf.DataError, match="The baseline 'f × b' has no row"):
        crossed(df, allow_empty=True, baseline=("f", "b"))
    with pytest.raises(pf.DataError, match="sex='f', race='b', which the table that was crossed had not"):
        found.apply(exact_table())
    with pytest.raises(pf.DataError, match="holds 'x', which is none of its levels"):
        found.restore(found.frame.assign(sex_race="x"))


@pytest.mark.parametrize(
    ("attributes", "settings", "message"),
    [
        (["sex"], {}, "at least two nodes"),
        (["sex", "Z"], {}, "no node of the graph"),
        (["sex", "race", "sex"], {}, "names 'sex' more than once"),
        (["sex", "Y"], {}, "is the outcome"),
        (["race", "C"], {}, "leaves out the graph's sensitive attribute 'sex'"),
        (["sex", "race"], {"baseline": ("m", "x")}, "'race' never takes 'x'; it holds 'b', 'w'"),
        (["sex", "race"], {"baseline": "m"}, "must have a level of each of sex, race"),
        (["sex", "race"], {"baseline": {"sex": "m"}}, "must have a level of each"),
        (["sex", "race"], {"name": "M"}, "name='M' is a node or column already"),
        (["sex", "race"], {"separator": 1}, "separator"),
    ],
)
def test_what_is_refused(attributes: list[str], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(pf.DataError, match=message):
        pf.cross(exact_table(), GRAPH, attributes, **({"baseline": ("m", "w")} | settings))


def test_numbers_many_levels_and_equal_labels_are_refused() -> None:
    df = exact_table()
    n = len(df)
    with pytest.raises(pf.DataError, match=r"different numbers, from .* Bin it"):
        crossed(df.assign(race=np.linspace(0, 1, n)), baseline=("m", 0.0))
    with pytest.raises(pf.DataError, match=r"2 × 12 = 24 combinations, and at most 20"):
        crossed(df.assign(race=[f"r{i % 12}" for i in range(n)]), baseline=("m", "r0"))
    with pytest.raises(pf.DataError, match="Two combinations have the label"):
        pf.cross(
            df.assign(sex=np.where(df["sex"] == "f", "a", "a-b"), race=np.where(df["race"] == "b", "b-c", "c")),
            GRAPH,
            ["sex", "race"],
            baseline=("a", "c"),
            separator="-",
        )
    chain = pf.CausalGraph("sex -> M -> race; {sex M race} -> Y", sensitive="sex", outcome="Y")
    with pytest.raises(pf.GraphError, match=r"'M' is an effect of one .* a cycle. Leave one .* or name 'M' too"):
        pf.cross(df, chain, ["sex", "race"], baseline=("m", "w"))


HOT = ("race_a", "race_b", "race_w")
OF_RACE = pf.CausalGraph("C -> race; {C race} -> M; {race C M} -> Y", sensitive="race", outcome="Y", baseline="race_w")


def one_hot(columns: tuple[str, ...] = HOT, n: int = 600) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    C, race = rng.integers(2, size=n), rng.choice(HOT, n)
    M = (rng.random(n) < 0.3 + 0.3 * (race == "race_b")).astype(int)
    y = (rng.random(n) < 0.3 + 0.2 * M + 0.2 * (race == "race_a")).astype(int)
    hot = pd.get_dummies(race, dtype=int)[list(columns)]
    return pd.concat([hot, pd.DataFrame({"C": C, "M": M, "Y": y})], axis=1)


@pytest.mark.parametrize("other", [None, "race_w"])
def test_a_model_of_one_hot_columns_has_the_numbers_of_one_of_labels(other: str | None) -> None:
    """A model that reads the columns, all set together in each world, is one of the labels that they stand for."""
    columns = HOT if other is None else HOT[:2]
    df = one_hot(columns)
    model = LogisticRegression().fit(df[[*columns, "C", "M"]], df["Y"])
    found = pf.from_one_hot(df, OF_RACE, columns, other=other)
    pd.testing.assert_frame_equal(found.restore(found.frame), df, check_column_type=False)

    class OfLabels:
        def predict_proba(self, X: pd.DataFrame) -> Any:
            hot = pd.DataFrame({name: (X["race"] == name).astype(int) for name in columns})
            return model.predict_proba(pd.concat([hot, X[["C", "M"]]], axis=1))

    unfair = OF_RACE.unfair(direct=True)
    source = pf.OneStep(unfair, **SATURATED)
    report = pf.audit({"m": found.model(model)}, source, found.frame, random_state=0)
    labels = pf.audit({"m": OfLabels()}, source, found.frame, random_state=0)
    pd.testing.assert_frame_equal(report.table, labels.table, check_exact=True)
    rows = report.table.query("decisions == 'score' and quantity == 'mean_unfair_effect'").set_index("contrast")
    for level in HOT[:2]:  # by hand, on the rows of two levels
        own = found.frame[found.frame["race"].isin([level, "race_w"])]
        p = [OfLabels().predict_proba(own.assign(race=each))[:, 1] for each in ("race_w", level)]
        assert np.sign(rows.loc[level, "estimate"]) == np.sign(np.mean(p[1] - p[0]))


@pytest.mark.parametrize(
    ("change", "given", "parts"),
    [
        ({"race_b": 1}, {}, ["of 600 rows", "the row 1 with 0, 1, 1"]),
        ({"race_w": 0}, {}, ["have no 1", "other="]),
        ({"race_w": 2}, {}, ["'race_w' holds 2 (600 rows)"]),
        ({"race": "b"}, {}, ["'race' is a column already"]),
        ({}, {"columns": ["race_a", "M"]}, ["'M' is a column already"]),
        ({}, {"columns": ["race_a", "race_x"]}, ["'race_x'"]),
    ],
)
def test_columns_that_are_not_one_hot_are_refused(change: dict[str, Any], given: Any, parts: list[str]) -> None:
    with pytest.raises(pf.DataError) as caught:
        pf.from_one_hot(one_hot().assign(**change), OF_RACE, **({"columns": HOT} | given))
    assert all(part in str(caught.value) for part in parts), caught.value
