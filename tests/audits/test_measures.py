from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from pyrofair.audits.measures import AuditedModel, decide, measure, measure_views
from pyrofair.classifiers.penalized import PenalizedClassifier
from pyrofair.effects.potential_outcomes import CounterfactualSample
from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph

GRAPH = CausalGraph("{A Q} -> M; Z -> Q; {A Q M} -> Y", sensitive="A", outcome="Y")
READS = ("Q", "A", "M")
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {"Q": RNG.normal(size=40), "A": np.arange(40) % 2, "M": RNG.normal(size=40)}, index=range(100, 140)
)
OUTCOME = pd.Series(np.where(TABLE["M"] + TABLE["A"] > 0.5, 1, 0), index=TABLE.index)


def audited(model: Any, graph: CausalGraph = GRAPH, order: tuple[str, ...] = READS) -> AuditedModel:
    return AuditedModel("mine", model, graph, order)


class Returns:
    """A model without classes_ that returns what it is told, whatever it is given."""

    def __init__(self, proba: Any) -> None:
        self.proba = proba
        self.given: list[Any] = []

    def predict_proba(self, X: Any) -> Any:
        self.given.append(X)
        return self.proba


def sample(p: float, **more: Any) -> tuple[CounterfactualSample, NDArray[np.float64]]:
    """A world of one row with a score."""
    return CounterfactualSample(pd.DataFrame({"A": [0]}), np.array([1.0]), **more), np.array([p])


def measured(p0: float, p1: float) -> tuple[dict[str, float], dict[str, str]]:
    (one, a), (other, b) = sample(p0), sample(p1)
    return measure((a, b), (one, other))


# --- quantities ------------------------------------------------------------------------------------------------------


def test_decide() -> None:
    scores = np.array([0.0, 0.5, 0.500001, 1.0])
    np.testing.assert_array_equal(decide(scores, "threshold", 0.5), [0.0, 0.0, 1.0, 1.0])
    np.testing.assert_array_equal(decide(scores, "threshold", 0.0), [0.0, 1.0, 1.0, 1.0])
    assert decide(scores, "score", 0.5) is scores


def test_one_mediator_example() -> None:
    values, notes = measured(0.25, 0.60)
    assert values == pytest.approx(
        {
            "p_y0": 0.25,
            "p_ypi": 0.60,
            "mean_unfair_effect": 0.35,
            "piu_paper_bound": 1.10,
            "piu_lower": 0.35,
            "piu_upper": 0.85,
        }
    )
    assert set(notes) == {"piu_paper_bound"}
    assert notes["piu_paper_bound"].startswith("vacuous")


def test_the_effect_has_a_sign_and_the_bounds_have_none() -> None:
    values, _ = measured(0.60, 0.25)
    assert values["mean_unfair_effect"] == pytest.approx(-0.35)
    assert values["piu_lower"] == pytest.approx(0.35)


@pytest.mark.parametrize("p", [0.5, 0.5 - 1e-13])
def test_a_fair_coin_is_vacuous_up_to_rounding(p: float) -> None:
    values, notes = measured(p, p)
    assert values["piu_paper_bound"] == pytest.approx(1.0)
    assert notes["piu_paper_bound"].startswith("vacuous")


def test_a_bound_below_1_is_not_vacuous() -> None:
    values, notes = measured(0.1, 0.2)
    assert values["piu_paper_bound"] == pytest.approx(2 * (0.1 * 0.8 + 0.9 * 0.2))
    assert notes == {}


@pytest.mark.parametrize(("shared", "piu"), [(True, (1.0, 1.0)), (False, (0.0, 1.0))])
def test_the_mean_effect_is_blind(shared: bool, piu: tuple[float, float]) -> None:
    """Y0 = Z and Ypi = 1 - Z: units make PIU 1; the paper's bound stays that of the marginals."""
    unit = np.arange(2) if shared else None
    world = CounterfactualSample(pd.DataFrame({"A": [0, 0]}), np.array([0.5, 0.5]), unit)
    values, notes = measure((np.array([0.0, 1.0]), np.array([1.0, 0.0])), (world, world))
    assert values["mean_unfair_effect"] == 0.0
    assert (values["piu_lower"], values["piu_upper"]) == piu
    assert values["piu_paper_bound"] == 1.0
    assert "vacuous" in notes["piu_paper_bound"]


@pytest.mark.parametrize(("total0", "total1"), [(1.5, 0.8), (0.8, 1.5)])
def test_an_estimate_that_left_0_1_has_no_bounds(total0: float, total1: float) -> None:
    """Horvitz-Thompson weights; the formula of the paper's penalty would give -.1."""
    rows = pd.DataFrame({"A": [0]})
    worlds = CounterfactualSample(rows, np.array([total0])), CounterfactualSample(rows, np.array([total1]))
    values, notes = measure((np.ones(1), np.ones(1)), worlds)
    assert (values["p_y0"], values["p_ypi"]) == (total0, total1)  # neither clipped nor lost
    bounds = ["piu_paper_bound", "piu_lower", "piu_upper"]
    assert np.isnan([values[name] for name in bounds]).all()
    assert set(notes) == set(values)
    for name in bounds:
        assert notes[name].startswith("cannot be made: the estimate left [0, 1]: P(")
        assert "= 1.500" in notes[name]
        assert "0.800" not in notes[name]


def test_an_end_given_units_that_left_0_1_says_why() -> None:
    """One unit, whose two views put it on either side of the kink: the lower end is negative."""
    unit = np.array([0])
    views, scores = [], []
    for p0, p1 in [(0.5, 0.6), (0.6, 0.5)]:
        (one, a), (other, b) = sample(p0, unit=unit), sample(p1, unit=unit)
        views.append((one, other))
        scores.append((a, b))
    values, notes = measure_views(scores, views)
    assert values["piu_lower"] == pytest.approx(-0.1)
    assert notes["piu_lower"].startswith("outside [0, 1] by sampling error")


def test_rounding_does_not_leave_0_1() -> None:
    rows = pd.DataFrame({"A": [0]})
    world = CounterfactualSample(rows, np.array([1.0 + 1e-12]))
    values, notes = measure((np.ones(1), np.ones(1)), (world, world))
    assert values["piu_upper"] == pytest.approx(0.0, abs=1e-11)
    assert notes == {}


# --- models ----------------------------------------------------------------------------------------------------------


def fitted_models() -> dict[str, Any]:
    X = TABLE[["M", "A", "Q"]]
    plain = LogisticRegression()
    encode = make_column_transformer((OneHotEncoder(), ["A"]), (StandardScaler(), ["M"]))
    return {
        "named": LogisticRegression().fit(X, OUTCOME),
        "pipeline": make_pipeline(encode, LogisticRegression()).fit(X, OUTCOME),
        "search": GridSearchCV(plain, {"C": [1.0]}, cv=2).fit(X, OUTCOME),
        "torch": PenalizedClassifier("logistic", columns=["M", "A"], epochs=3, random_state=0).fit(X, OUTCOME),
    }


@pytest.mark.parametrize("name", ["named", "pipeline", "search", "torch"])
def test_a_model_with_names_gets_its_columns(name: str) -> None:
    model = fitted_models()[name]
    expected = model.predict_proba(TABLE[list(model.feature_names_in_)])[:, 1]
    np.testing.assert_array_equal(audited(model).observed(TABLE[["A", "M", "Q"]]), expected)
    assert not audited(model).is_unnamed


def test_a_model_without_names_gets_the_order_of_the_data() -> None:
    model = LogisticRegression().fit(TABLE[list(READS)].to_numpy(), OUTCOME.to_numpy())
    expected = model.predict_proba(TABLE[list(READS)].to_numpy())[:, 1]
    assert audited(model).is_unnamed
    np.testing.assert_array_equal(audited(model).observed(TABLE[["A", "M", "Q"]]), expected)


def test_what_a_model_reads() -> None:
    assert set(audited(fitted_models()["torch"]).reads or ()) == {"A", "M"}
    assert audited(Returns(None)).reads == READS
    assert audited(np.zeros(40)).reads is None


def test_a_model_without_classes_has_the_positive_one_last() -> None:
    proba = np.column_stack([np.full(40, 0.7), np.full(40, 0.3)])
    model = Returns(proba)
    np.testing.assert_array_equal(audited(model).observed(TABLE.assign(Z=1.0)), 0.3)
    assert list(model.given[0].columns) == list(READS)


def test_the_positive_class_is_found_by_name() -> None:
    graph = CausalGraph("{A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y", positive="bad")
    model = LogisticRegression().fit(TABLE[list(READS)], OUTCOME.map({1: "bad", 0: "good"}))
    assert list(model.classes_) == ["bad", "good"]
    scores = audited(model, graph).observed(TABLE)
    np.testing.assert_array_equal(scores, model.predict_proba(TABLE[list(READS)])[:, 0])


def test_an_unknown_positive_class() -> None:
    graph = CausalGraph("{A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y", positive="good")
    with pytest.raises(DataError, match=r"'mine' has the classes \[0, 1\], not the graph's positive value 'good'"):
        audited(fitted_models()["named"], graph).observed(TABLE)


def test_a_column_that_the_outcome_does_not_read() -> None:
    table = TABLE.assign(Z=1.0)
    model = LogisticRegression().fit(table, OUTCOME)
    with pytest.raises(
        DataError, match=r"'mine' reads 'Z', but they are no observed parents of the outcome: .* Q, A, M"
    ):
        audited(model).observed(table)


def test_the_sensitive_attribute_without_an_edge() -> None:
    graph = CausalGraph("{A Q} -> M; {Q M} -> Y", sensitive="A", outcome="Y")
    model = fitted_models()["named"]
    with pytest.raises(DataError, match=r"'mine' reads 'A', but the graph has no edge A -> Y: .* may read Q, M"):
        audited(model, graph, ("Q", "M")).observed(TABLE)


def test_a_model_without_names_that_needs_more() -> None:
    model = LogisticRegression().fit(np.zeros((4, 2)) + np.arange(4)[:, None], [0, 1, 0, 1])
    with pytest.raises(DataError, match="fitted on 2 unnamed columns, but the graph lets it read 3: Q, A, M"):
        audited(model).observed(TABLE)

    class Greedy:
        def predict_proba(self, X: pd.DataFrame) -> Any:
            return X["Z"]

    with pytest.raises(DataError, match=r"'mine' requires 'Z', which is missing: it is given .* Q, A, M"):
        audited(Greedy()).observed(TABLE.assign(Z=1.0))


@pytest.mark.parametrize("shape", [(40,), (40, 1), (40, 3), (39, 2)])
def test_a_wrong_shape_of_probabilities(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"predict_proba returned the shape .*, expected \(40, 2\)"):
        audited(Returns(np.full(shape, 0.5))).observed(TABLE)


@pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (1.5, r"1\.5"), (-0.1, r"-0\.1")])
def test_scores_that_are_no_probabilities(value: float, shown: str) -> None:
    scores = np.full(40, 0.5)
    scores[3] = value
    message = rf"'mine' gives 1 score\(s\) outside \[0, 1\], such as {shown}"
    with pytest.raises(DataError, match=message):
        audited(scores).observed(TABLE)
    with pytest.raises(DataError, match=message):
        audited(Returns(np.column_stack([scores, scores]))).observed(TABLE)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (LinearSVC(), "'mine' is a LinearSVC without predict_proba. Pass a fitted classifier"),
        (make_pipeline(StandardScaler(), LinearSVC()), "'mine' is a Pipeline without predict_proba"),  # has a length
        ("logistic", "'mine' is a str without predict_proba"),
        (None, "'mine' is a NoneType without predict_proba"),
        (["yes"] * 40, "'mine' is given as scores, but they are no numbers: could not convert"),
        (np.full(39, 0.5), r"scores of shape \(39,\); expected \(40,\)"),
        (np.full((40, 2), 0.5), r"scores of shape \(40, 2\).*pass the column of the positive class"),
        (pd.Series(np.full(40, 0.5)), "The index of the scores 'mine' is not that of df"),
    ],
)
def test_what_is_no_model(model: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        audited(model).observed(TABLE)


def test_an_unfitted_model_says_so() -> None:
    with pytest.raises(DataError, match=r"'mine' could not score 40 rows: .* NotFittedError: .* is not fitted yet"):
        audited(LogisticRegression()).observed(TABLE)


@pytest.mark.parametrize("error", [RuntimeError("out of luck"), DataError("out of luck")])
def test_a_model_that_fails_is_named(error: Exception) -> None:
    class Fails:
        def predict_proba(self, X: pd.DataFrame) -> Any:
            raise error

    with pytest.raises(DataError, match=rf"'mine' could .* {type(error).__name__}: out of luck") as caught:
        audited(Fails()).observed(TABLE)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("kind", [np.array, list, tuple, lambda values: pd.Series(values, index=TABLE.index)])
def test_given_scores(kind: Any) -> None:
    values = np.linspace(0, 1, 40)
    np.testing.assert_array_equal(audited(kind(values)).observed(TABLE), values)


# --- worlds ----------------------------------------------------------------------------------------------------------


def test_unchanged_rows_keep_their_scores_and_changed_ones_are_scored() -> None:
    rows = TABLE.iloc[[3, 5, 7]].assign(A=1)
    model = Returns(np.array([[0.2, 0.8]]))
    world = CounterfactualSample(rows, np.ones(3) / 3, None, np.array([3, -1, 7]))
    scores = audited(model).world(world, np.arange(40) / 100)
    np.testing.assert_array_equal(scores, [0.03, 0.8, 0.07])
    pd.testing.assert_frame_equal(model.given[0], rows.iloc[[1]][list(READS)])


def test_drawn_rows_are_all_scored() -> None:
    model = Returns(np.array([[0.2, 0.8], [0.9, 0.1]]))
    world = CounterfactualSample(TABLE.iloc[:2], np.ones(2) / 2)
    np.testing.assert_array_equal(audited(model).world(world, np.zeros(40)), [0.8, 0.1])


def test_scores_alone_do_not_serve_changed_rows() -> None:
    world = CounterfactualSample(TABLE.iloc[:2], np.ones(2) / 2, None, np.array([0, -1]))
    with pytest.raises(DataError, match=r"'mine' is given as scores, but 1 rows of a world.*'A'.*arm='paper'"):
        audited(np.zeros(40)).world(world, np.zeros(40))
    whole = CounterfactualSample(TABLE.iloc[:2], np.ones(2) / 2, None, np.array([1, 0]))
    np.testing.assert_array_equal(audited(np.zeros(40)).world(whole, np.arange(40.0)), [1.0, 0.0])
