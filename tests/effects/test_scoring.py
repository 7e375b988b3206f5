"""Columns that a model gets, the probability of its positive class, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import pyrofair as pf
from pyrofair import CausalGraph, DataError
from pyrofair.effects.scoring import decide, positive_scores

GRAPH = CausalGraph("A -> M; Z -> M; {A M} -> Y", sensitive="A", outcome="Y")
ROWS = pd.DataFrame({"M": [0.0, 1.0, 2.0], "Z": [5.0, 5.0, 5.0], "A": [0, 1, 0]})


class Fixed:
    """A model that answers with a matrix, and keeps what it was asked."""

    def __init__(self, proba: Any, **attributes: Any) -> None:
        self.proba = proba
        for name, value in attributes.items():
            setattr(self, name, value)

    def predict_proba(self, X: Any) -> Any:
        self.asked = X
        return self.proba(X) if callable(self.proba) else self.proba


def column(scores: list[float]) -> np.ndarray:
    return np.column_stack([1.0 - np.array(scores), scores])


def test_a_named_model_gets_its_columns_in_its_order() -> None:
    model = Fixed(column([0.1, 0.2, 0.3]), feature_names_in_=np.array(["A", "M"]))
    assert positive_scores("model", model, ROWS, GRAPH).tolist() == [0.1, 0.2, 0.3]
    assert list(model.asked) == ["A", "M"]


def test_a_model_without_names_gets_all_it_may_read_in_the_order_of_the_rows() -> None:
    model = Fixed(column([0.1, 0.2, 0.3]))
    positive_scores("model", model, ROWS, GRAPH)
    assert list(model.asked) == ["M", "A"]
    positive_scores("model", model, ROWS, GRAPH, order=["A", "M"])
    assert list(model.asked) == ["A", "M"]
    unnamed = Fixed(column([0.1, 0.2, 0.3]), n_features_in_=2)
    positive_scores("model", unnamed, ROWS, GRAPH, order=["A", "M"])
    assert unnamed.asked.tolist() == ROWS[["A", "M"]].to_numpy().tolist()


def test_the_positive_label_is_the_graphs() -> None:
    graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y", positive="hired")
    model = Fixed(column([0.1, 0.2, 0.3]), classes_=np.array(["hired", "rejected"]))
    assert positive_scores("model", model, ROWS, graph) == pytest.approx([0.9, 0.8, 0.7])


def test_a_fitted_classifier_is_scored_as_it_scores() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"A": rng.integers(0, 2, 50), "M": rng.normal(size=50)})
    y = rng.integers(0, 2, 50)
    named, unnamed = LogisticRegression().fit(X, y), LogisticRegression().fit(X.to_numpy(), y)
    assert positive_scores("model", named, X[["M", "A"]], GRAPH).tolist() == named.predict_proba(X)[:, 1].tolist()
    assert positive_scores("model", unnamed, X, GRAPH).tolist() == named.predict_proba(X)[:, 1].tolist()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (np.array([0.1, 0.2, 0.3]), r"'model' is a ndarray without predict_proba"),
        (Fixed(np.ones((3, 1))), r"predict_proba returned the shape \(3, 1\), expected \(3, 2\)"),
        (Fixed(column([0.1, 0.2])), r"predict_proba returned the shape \(2, 2\), expected \(3, 2\)"),
        (Fixed(column([0.1, 1.5, 0.3])), r"gives 1 score\(s\) outside \[0, 1\], such as 1.5"),
        (Fixed(column([0.1, np.nan, 0.3])), r"gives 1 score\(s\) outside \[0, 1\], such as nan"),
        (Fixed(column([0.1, 0.2, 0.3]), classes_=np.array([1, 2]) + 1), r"has the classes \[2, 3\], not the graph's"),
        (
            Fixed(column([0.1, 0.2, 0.3]), feature_names_in_=np.array(["M", "Z"])),
            r"reads 'Z', but they are no observed parents of the outcome: a classifier may read M, A",
        ),
        (
            Fixed(column([0.1, 0.2, 0.3]), n_features_in_=3),
            r"fitted on 3 unnamed columns, but the graph lets it read 2",
        ),
        (
            Fixed(lambda X: X["Z"]),
            r"requires 'Z', which is missing: it is given the columns that the graph lets it read, M, A",
        ),
    ],
)
def test_what_does_not_fit_is_refused(model: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        positive_scores("model", model, ROWS, GRAPH)


def test_a_model_that_reads_the_sensitive_attribute_needs_its_edge() -> None:
    graph = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y")
    model = Fixed(column([0.1, 0.2, 0.3]), feature_names_in_=np.array(["A", "M"]))
    with pytest.raises(DataError, match=r"reads 'A', but the graph has no edge A -> Y"):
        positive_scores("model", model, ROWS, graph)


@pytest.mark.parametrize(
    ("proba", "message"),
    [
        (np.zeros((3, 2)), r"rows that do not sum to 1, in 3 of 3 row\(s\), such as \[0\. 0\.\]"),
        (np.full((3, 2), 0.7), r"do not sum to 1, in 3 of 3 row\(s\), such as \[0\.7 0\.7\]"),
        (np.full((3, 2), 0.5 + 1e-5), "do not sum to 1"),
        (np.full((3, 2), 0.5 + 0j), "returned the type complex128, expected real numbers"),
        (np.full((3, 2), "0.5"), "returned the type <U3, expected real numbers"),
        (np.ma.masked_equal([[0.0, 1.0]] * 3, 0.0), "is a masked array that hides 3 of its 6 values"),
        ([[0.5, 0.5], [0.5], [1.0]], "predict_proba|inhomogeneous"),
    ],
)
def test_what_is_no_pair_of_probabilities_is_refused(proba: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        positive_scores("model", Fixed(proba), ROWS, GRAPH)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([0, 1, 2], r"has the classes \[0, 1, 2\], expected two different ones"),
        ([1, 1], r"has the classes \[1, 1\], expected two different ones"),
        ([1], r"has the classes \[1\], expected two"),
        ([[0], [1]], "has classes_="),
        (1, "has classes_=1"),
    ],
)
def test_classes_are_two(classes: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        positive_scores("model", Fixed(np.full((3, 2), 0.5), classes_=classes), ROWS, GRAPH)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_low_precision_is_borne(dtype: Any) -> None:
    p = np.array([0.1, 1 / 3, 0.9], dtype=dtype)
    found = positive_scores("model", Fixed(np.column_stack([1 - p, p])), ROWS, GRAPH)
    assert found.dtype == dtype
    assert found.tolist() == p.tolist()


def test_a_propensity_model_is_checked_as_well() -> None:
    unfair = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y").unfair("A -> Y")
    table = pd.DataFrame({"A": [0, 1] * 10, "M": [0, 0, 1, 1] * 5})

    class Odd(LogisticRegression):  # type: ignore[misc]
        def predict_proba(self, X: Any) -> Any:
            return np.full((len(X), 2), 0.7)

    with pytest.raises(DataError, match="the propensity model Odd: predict_proba returned rows that do not sum to 1"):
        pf.IPW(unfair, propensity=Odd()).fit(table)


# --- answers with names ----------------------------------------------------------------------------------------------

P = np.array([0.1, 0.2, 0.3])
HIRED = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y", positive="hired")
PLAIN = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")


@pytest.mark.parametrize(
    ("graph", "names", "classes"),
    [
        (PLAIN, [1, 0], [0, 1]),
        (PLAIN, [1, 0], None),
        (PLAIN, ["1", "0"], [0, 1]),
        (HIRED, ["hired", "rejected"], ["rejected", "hired"]),
        (HIRED, ["hired", "rejected"], ["hired", "rejected"]),
        (HIRED, ["hired", "other"], None),
        (HIRED, None, ["hired", "rejected"]),  # numbered columns: by position
    ],
)
def test_names_that_are_the_classes_decide_the_order(graph: CausalGraph, names: Any, classes: Any) -> None:
    proba = pd.DataFrame(np.column_stack([P, 1 - P]), columns=names)
    model = Fixed(proba, **({} if classes is None else {"classes_": classes}))
    np.testing.assert_allclose(positive_scores("model", model, ROWS, graph), P)
    np.testing.assert_allclose(positive_scores("model", pf.ScoresOf(model.predict_proba), ROWS, graph), P)


@pytest.mark.parametrize(
    ("names", "classes"), [(["x", "y"], [0, 1]), (["x", "y"], None), (None, [1, 0]), ([1, 2], [0, 1])]
)
def test_other_names_are_refused(names: Any, classes: Any) -> None:
    proba = pd.DataFrame(np.column_stack([P, 1 - P]), columns=names)
    model = Fixed(proba, **({} if classes is None else {"classes_": classes}))
    for each in (model, pf.ScoresOf(model.predict_proba)):
        with pytest.raises(DataError, match=r"'model' returned the columns \["):
            positive_scores("model", each, ROWS, PLAIN)


def test_a_method_has_the_order_of_its_models_classes() -> None:
    y = ["hired", "rejected", "rejected"]
    model = LogisticRegression().fit(ROWS[["M", "A"]], y)
    right = model.predict_proba(ROWS[["M", "A"]])[:, 0]
    for each in (pf.ScoresOf(model.predict_proba), pf.ScoresOf(model.decision_function, returns="logit")):
        np.testing.assert_allclose(positive_scores("model", each, ROWS, HIRED), right)
    with pytest.raises(DataError, match=r"classes \['hired', 'rejected'\], not the graph's positive value 1"):
        positive_scores("model", pf.ScoresOf(model.predict_proba), ROWS, PLAIN)


def test_numbers_named_by_the_negative_label_are_refused() -> None:
    labels, named = ("rejected", "hired"), pd.Series(P, name="rejected")
    for model in (pf.ScoresOf(lambda X: named), pf.ScoresOf(lambda X: named.to_frame())):
        with pytest.raises(DataError, match=r"'model' has numbers named 'rejected'.*'hired'"):
            positive_scores("model", model, ROWS, HIRED, labels=labels)
    with pytest.raises(DataError, match=r"'model' has numbers named '0'.*positive label 1"):
        positive_scores("model", pf.ScoresOf(lambda X: named.rename("0")), ROWS, PLAIN, labels=(0, 1))
    same = positive_scores("model", pf.ScoresOf(lambda X: named.rename("1")), ROWS, PLAIN, labels=(0, 1))
    np.testing.assert_array_equal(same, P)
    table = ROWS.drop(columns="Z").assign(Y=["hired", "rejected", "hired"])
    with pytest.raises(DataError, match="'m' has numbers named 'rejected'"):
        pf.audit({"m": named}, pf.IPW(HIRED.unfair("A -> Y")), table)


def test_named_propensities_are_read_by_their_names() -> None:
    class Named(LogisticRegression):  # type: ignore[misc]
        def predict_proba(self, X: Any) -> Any:
            return pd.DataFrame(super().predict_proba(X)[:, ::-1], columns=self.classes_[::-1])

    table = pd.DataFrame({"A": [0, 1] * 10, "M": [0, 0, 1, 1, 1] * 4})
    found, right = (
        pf.IPW(PLAIN.unfair("A -> Y"), propensity=each).fit(table).worlds()[1].weight
        for each in (Named(), LogisticRegression())
    )
    np.testing.assert_array_equal(found, right)


# --- thresholds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_a_score_at_the_threshold_does_not_exceed_it(dtype: Any) -> None:
    for at in (0.1, 0.3, 0.7, 0.9):
        scores = np.array([at - 0.01, at, at + 0.01], dtype=dtype)
        for found in (decide(scores, "threshold", at), decide(scores, at, 0.5)):
            assert found.dtype == np.float64
            assert found.tolist() == (scores > dtype(at)).tolist() == [0.0, 0.0, 1.0]


def test_ties_are_the_same_decisions_in_both_precisions_at_every_entry() -> None:
    r = np.random.default_rng(0)
    a = r.integers(0, 2, 400)
    table = pd.DataFrame({"A": a, "M": r.integers(0, 2, 400), "Y": r.integers(0, 2, 400)})
    unfair = PLAIN.unfair("A -> Y")

    def score(X: pd.DataFrame) -> Any:
        return np.where(X["A"] * X["M"] == 1, 0.7, 0.3)

    source = pf.OneStep(unfair, propensity="saturated", regression="saturated", random_state=0)
    found = []
    for dtype in (np.float64, np.float32):
        model = pf.ScoresOf(lambda X, dtype=dtype: score(X).astype(dtype))
        report = pf.audit({"m": model}, source, table, threshold=0.3, thresholds=[0.3, 0.7], random_state=0)
        weights = pf.IPW(unfair, arm="paper", propensity="saturated")
        given = pf.audit(
            {"m": score(table).astype(dtype)}, weights, table, threshold=0.3, n_boot=0, scores="prediction"
        )
        sharp = [
            pf.sharp_bounds(unfair, table, each, threshold=0.3).table for each in (model, score(table).astype(dtype))
        ]
        found.append([report.table, report.thresholds, given.table, *sharp])
    for one, other in zip(*found, strict=True):
        numbers = [name for name in one if one[name].dtype.kind == "f"]
        rows = one["decisions"] != "score" if "decisions" in one else slice(None)
        np.testing.assert_array_equal(one.loc[rows, numbers], other.loc[rows, numbers])
    effect = found[0][0].set_index(["decisions", "quantity"]).loc[("threshold", "mean_unfair_effect"), "estimate"]
    assert effect == pytest.approx(table["M"].mean(), abs=0.05)
