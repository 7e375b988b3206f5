"""Messages lead to the cause: each names the column or setting, its value, and what to do."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import pyrofair as pf
from pyrofair._validation import did_you_mean, shown
from pyrofair.effects.scoring import positive_scores
from pyrofair.tables.labels import read_sensitive
from pyrofair.tables.reading import read_table, require_aligned

EDGES = "A -> job -> Y; A -> Y"


def graph(**labels: Any) -> pf.CausalGraph:
    return pf.CausalGraph(EDGES, sensitive="A", outcome="Y", **labels)


def table(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {"A": np.arange(n) % 2, "job": rng.choice(["cook", "nurse"], n), "Y": rng.integers(2, size=n), "id": range(n)}
    )


def test_a_table_of_another_package_is_named_with_its_package() -> None:
    class DataFrame:
        __module__ = "polars.dataframe.frame"

        def to_pandas(self) -> None: ...

    with pytest.raises(pf.DataError, match=r"must be a pandas DataFrame .* got polars\.DataFrame\. Convert it: df\.to"):
        read_table(DataFrame(), ["A"])
    with pytest.raises(pf.DataError, match=r"got list\.$"):
        read_table([1], ["A"])


def test_columns_of_several_levels() -> None:
    nested = pd.concat({"all": table()}, axis=1)
    for use in (
        lambda: read_table(nested, ["A"]),
        lambda: pf.IPW(graph().unfair("A -> Y")).fit(nested),
        lambda: pf.audit({"m": LogisticRegression()}, pf.IPW(graph().unfair("A -> Y")), nested, n_boot=0),
        lambda: pf.learn_mechanisms(nested, graph(), progress=False),
    ):
        with pytest.raises(pf.DataError, match=r"columns of 2 levels \(a MultiIndex\), such as .* Flatten"):
            use()


def test_columns_that_occur_twice() -> None:
    double = table()[["A", "job", "Y", "job"]]
    for use in (
        lambda: pf.IPW(graph().unfair("A -> Y")).fit(double),
        lambda: pf.audit({"m": LogisticRegression()}, pf.IPW(graph().unfair("A -> Y")), double, n_boot=0),
        lambda: pf.learn_mechanisms(double, graph(), progress=False),
    ):
        with pytest.raises(pf.DataError, match=r"has the column 'job' more than once; keep one of them"):
            use()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"baseline": "f", "contrast": "m"}, "'A' holds 0, 1 besides .* and never the baseline or the contrast"),
        ({"baseline": 0, "contrast": "1"}, "'A' holds 1 besides baseline=0 and contrast='1', and never the contrast"),
    ],
)
def test_a_value_of_the_sensitive_attribute_that_does_not_occur(labels: Any, message: str) -> None:
    with pytest.raises(pf.DataError, match=message):
        read_sensitive(table(), graph(**labels))


def test_names_that_nearly_are_nodes() -> None:
    crime = pf.CausalGraph("race -> prior_convictions -> Y; race -> Y", sensitive="race", outcome="Y")
    with pytest.raises(pf.GraphError, match=r"runs through 'prior'\. Did you mean 'prior_convictions'\?"):
        crime.unfair(through=["prior"])
    assert did_you_mean("zzz", ["prior", "race"]) == ""


def test_each_call_warns_once_of_how_it_reads_a_table_and_its_report_holds_it() -> None:
    own = graph()
    rows = table().assign(job=[f"0{i % 3}" for i in range(60)])
    unfair, models = own.unfair("A -> Y"), {"m": LogisticRegression().fit(rows[["A"]], rows["Y"])}
    X = rows.drop(columns="Y")
    calls: dict[str, Any] = {
        "fit": lambda: pf.IPW(unfair, arm="pooled").fit(rows),
        "audit": lambda: pf.audit(models, unfair, rows, random_state=0),
        "audit of replicates": lambda: pf.audit(models, pf.IPW(unfair, arm="pooled"), rows, n_boot=2),
        "contrasts": lambda: pf.audit_contrasts(models, unfair, rows, random_state=0),
        "train": lambda: pf.PenalizedClassifier("logistic", source=pf.IPW(unfair), epochs=1).fit(X, rows["Y"]),
        "confounding": lambda: pf.sensitivity.confounding(models["m"], unfair, rows),
    }
    for name, call in calls.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = call()
        said = [text for each in caught if "outside the graph" in (text := str(each.message)) or "as text" in text]
        assert ["'job' holds numbers as text" in text for text in said] == [False, True], name
        assert said[0] == "Columns outside the graph are ignored: id."
        if isinstance(found, pf.Audit | pf.ContrastAudit):
            assert {*said} <= {*found.context["warnings"]}


def test_columns_encoded_before_the_fit() -> None:
    own, rows = graph(), table()
    coded = pd.get_dummies(rows[["A", "job"]], columns=["job"], dtype=float)
    model = LogisticRegression().fit(coded, rows["Y"])
    with pytest.raises(pf.DataError, match=r"'job_cook', 'job_nurse', which look like codes of 'job' .* make_pipeline"):
        positive_scores("m", model, rows, own)


def test_a_pipeline_that_drops_columns() -> None:
    own, rows = graph(), table()
    drops = ColumnTransformer([("job", OneHotEncoder(), ["job"]), ("A", "passthrough", ["A"])])
    model = make_pipeline(drops, LogisticRegression()).fit(rows[["A", "job", "id"]], rows["Y"])
    with pytest.raises(pf.DataError, match=r"on a table with these columns; .*a pipeline that drops columns later"):
        positive_scores("m", model, rows, own)
    inside = make_pipeline(drops, LogisticRegression()).fit(rows[["A", "job"]], rows["Y"])
    assert positive_scores("m", inside, rows, own).shape == (60,)


def test_rows_of_another_order() -> None:
    rows = table()
    with pytest.raises(pf.DataError, match=r"of the scores 'm' is not that of df, .*scores = scores\.loc\[df\.index"):
        require_aligned(rows, rows["Y"].iloc[::-1], "the scores 'm'", table="df")
    with pytest.raises(pf.DataError, match=r"Give both one index, or pass y\.to_numpy\(\)"):
        require_aligned(rows, rows["Y"].set_axis(range(100, 160)))


def test_clip_is_named_where_it_is_the_cure() -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"A": rng.integers(2, size=200)})
    rows["M"] = 3.0 * rows["A"] + rng.normal(size=200)
    own = pf.CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    with pytest.warns(pf.PositivityWarning, match=r"effective size .* clip=0\.01 bounds propensities"):
        pf.IPW(own.unfair("A -> M -> Y"), arm=0).fit(rows)


def test_long_values_are_shown_by_their_type() -> None:
    assert shown(np.zeros(1000)) == "<ndarray>"
    assert shown(table()) == "<DataFrame>"
    with pytest.raises(pf.DataError, match=r"level=<DataFrame> must be a number above 0 and below 1"):
        pf.audit({"m": LogisticRegression()}, pf.IPW(graph().unfair("A -> Y")), table(), level=table())  # type: ignore[arg-type]
