"""Labels as codes, and codes as labels again: groups, outcomes, categories and the sites of a program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyrofair import IPW, CausalGraph, DataError
from pyrofair.tables.labels import code_labels, codes_of, columns_of_sites, labels_of, read_outcome, read_sensitive

GRAPH = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y")


def units() -> pd.DataFrame:
    """Counts n(A, M): 30, 10, 15, 45."""
    return pd.DataFrame({"A": [0] * 40 + [1] * 60, "M": [0] * 30 + [1] * 10 + [0] * 15 + [1] * 45})


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 1, 2], "the outcome must be binary, but holds 3 classes: 0, 1, 2"),
        (["no", "no"], r"the outcome never takes the positive value 1; it holds 'no'\. Name it .*positive="),
        ([0, 0], "never takes the positive value 1; it holds 0"),
        ([1, 1], "has one class only, 1; a classifier needs both"),
        ([0, 1, np.nan], r"the outcome has missing values \(NaN\); drop these rows before"),
        (pd.Series(["a", None]), "missing values"),
    ],
)
def test_outcomes_refused(y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_outcome(y if isinstance(y, pd.Series) else np.array(y), 1)


def test_outcomes_read() -> None:
    for y, positive, labels, coded in [
        (["yes", "no", "yes"], "yes", ["no", "yes"], [1, 0, 1]),
        (["yes", "no", "yes"], "no", ["yes", "no"], [0, 1, 0]),
        ([2, 1, 2], 1, [2, 1], [0, 1, 0]),
        (pd.Series([True, False], index=[4, 4]), True, [False, True], [1, 0]),
        (pd.Series(["a", "b"], dtype="category"), "a", ["b", "a"], [1, 0]),
    ]:
        found, names = read_outcome(y, positive)
        assert names == labels
        assert found.tolist() == coded


def test_the_sensitive_attribute_is_matched_by_equality() -> None:
    graph = CausalGraph("A -> Y", sensitive="A", outcome="Y", baseline="m", contrast="f")
    assert read_sensitive(pd.DataFrame({"A": ["f", "m", "f"]}), graph).tolist() == [1, 0, 1]
    swapped = CausalGraph("A -> Y", sensitive="A", outcome="Y", baseline=1, contrast=0)
    assert read_sensitive(pd.DataFrame({"A": [1.0, 0.0]}), swapped).tolist() == [0, 1]
    assert read_sensitive(pd.DataFrame({"A": ["f"]}), graph, both=False).tolist() == [1]
    with pytest.raises(DataError, match=r"holds 'x' besides baseline='m' and contrast='f'"):
        read_sensitive(pd.DataFrame({"A": ["f", "x"]}), graph, both=False)
    with pytest.raises(DataError, match=r"holds 30 different numbers.* Bin it.*pd\.cut\(df\['A'\]"):
        read_sensitive(pd.DataFrame({"A": np.linspace(20, 60, 30)}), swapped)


def test_unseen_categories_are_refused_unless_they_were_declared() -> None:
    table = units()
    table["M"] = table["M"].map({0: "x", 1: "y"})
    new = table.copy()
    new.loc[3, "M"] = "z"
    regime = UNFAIR.regimes[1]
    for propensity in ("logistic", "boosted", "saturated"):
        source = IPW(UNFAIR, arm="pooled", propensity=propensity, random_state=0).fit(table)  # type: ignore[arg-type]
        with pytest.raises(DataError, match=r"'M' holds 'z', not seen in fit\. Known: 'x', 'y'\. .*CategoricalDtype"):
            source.weights(regime, new)
    declared = pd.CategoricalDtype(["x", "y", "z"])
    for propensity in ("logistic", "boosted"):
        source = IPW(UNFAIR, arm="pooled", propensity=propensity, random_state=0).fit(table.astype({"M": declared}))  # type: ignore[arg-type]
        assert np.isfinite(source.weights(regime, new.astype({"M": declared}))).all()
    source = IPW(UNFAIR, arm="pooled", propensity="saturated").fit(table.astype({"M": declared}))
    with pytest.raises(DataError, match=r"The cell \{'M': 'z'\} was not among the rows"):
        source.weights(regime, new.astype({"M": declared}))


def test_groups_and_outcomes_are_coded_together() -> None:
    graph: Any = CausalGraph("A -> Y", sensitive="A", outcome="Y", baseline="m", contrast="f", positive="yes")
    df = pd.DataFrame({"A": ["f", "m"], "Y": ["no", "yes"]})
    coded, labels = code_labels(df, graph)
    assert coded.to_numpy().tolist() == [[1, 0], [0, 1]]
    assert labels == ("no", "yes")
    assert code_labels(df[["A"]], graph)[1] is None
    assert df["A"].tolist() == ["f", "m"]


def test_a_site_has_the_column_of_its_name_or_of_its_node() -> None:
    columns = {"J": ["job"], "S": ["s1", "s2"]}
    jobs = CausalGraph("A -> {J S} -> Y; U -> S", sensitive="A", outcome="Y", latent=["U"], columns=columns)
    sites = {"A": "A", "J": "J", "s1": "S", "s2": "S", "U": "U", "Y": "Y"}
    assert columns_of_sites(sites, jobs) == {"A": "A", "J": "job", "s1": "s1", "s2": "s2", "U": "U", "Y": "Y"}


def test_codes_and_labels_are_inverse() -> None:
    labels = np.array(["low", "mid", "high"])
    codes = codes_of("D", labels, ["high", "low", None])
    np.testing.assert_array_equal(codes, [2.0, 0.0, np.nan])
    assert labels_of("D", labels, codes[:2]).tolist() == ["high", "low"]
    assert labels_of("D", labels, np.array([[1.0], [2.0]])).shape == (2, 1)
    with pytest.raises(DataError, match=r"takes the value 0\.5, but its 3 levels have the codes 0 to 2"):
        labels_of("D", labels, np.array([0.5]))
