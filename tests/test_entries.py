"""Entry points match rows by index, take text as it is, and fit completely or not at all."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score

import pyrofair as pf
from pyrofair.exceptions import DataError, PositivityError, PositivityWarning, PyrofairWarning
from pyrofair.nuisances.rows import Rows
from pyrofair.sources import gcomputation
from pyrofair.tables.encoder import TableEncoder
from pyrofair.tables.reading import read_table

GRAPH = pf.CausalGraph("{A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> M -> Y")
N = 200


@cache
def made() -> tuple[pd.DataFrame, pd.Series[Any]]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"A": rng.integers(0, 2, N), "Q": rng.normal(size=N)})
    X["M"] = X["A"] + X["Q"] + rng.normal(size=N)
    y = (X["A"] + X["Q"] + X["M"] + rng.normal(size=N) > 0.5).astype(int)
    return X, y


def units() -> pd.DataFrame:
    return made()[0].copy()


CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "PenalizedClassifier": lambda: pf.PenalizedClassifier("logistic", epochs=20, progress=False, random_state=0),
    "PSCF": lambda: pf.PSCF(UNFAIR, epochs=2, batch_size=50, hidden=4, progress=False, random_state=0),
}


@cache
def classifier(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PyrofairWarning)
        return CLASSIFIERS[name]().fit(*made())


# --- rows are matched by index ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_scores_match_rows_by_index(name: str) -> None:
    model, (X, y) = classifier(name), made()
    weight = pd.Series(np.arange(1.0, N + 1.0), index=X.index)
    right = float((model.predict(X) == y.to_numpy()).mean())
    assert model.score(X, y) == right
    assert model.score(X, y.to_numpy()) == right
    assert model.score(X, y, weight) == pytest.approx(
        accuracy_score(y, model.predict(X), sample_weight=weight), abs=1e-12
    )
    mixed = y.sample(frac=1.0, random_state=1)
    assert model.score(X.loc[mixed.index], mixed) == pytest.approx(right, abs=1e-12)
    with pytest.raises(DataError, match=r"The index of y is not that of X.*y = y\.loc\[X\.index\]"):
        model.score(X, mixed)
    with pytest.raises(DataError, match="The index of sample_weight is not that of"):
        model.score(X, y, weight.loc[mixed.index])
    with pytest.raises(DataError, match="X has 200 rows and y has 199"):
        model.score(X, y[:-1])
    with pytest.raises(DataError, match="must be finite, not negative"):
        model.score(X, y, -weight)
    with pytest.raises(DataError, match="masked array that hides"):
        model.score(X, np.ma.masked_equal(y.to_numpy(), 1))


def test_scores_of_arrays() -> None:
    X, y = made()
    model = CLASSIFIERS["PenalizedClassifier"]().fit(X.to_numpy(), y)
    assert model.score(X.to_numpy(), y, np.full(N, 3.0)) == float((model.predict(X.to_numpy()) == y).mean())


# --- a question has a path -------------------------------------------------------------------------------------------

NOTHING = GRAPH.unfair()
ASKED: dict[str, Callable[[pd.DataFrame, pd.Series[Any]], Any]] = {
    "audit": lambda X, y: pf.audit({"m": np.zeros(N)}, NOTHING, X),
    "audit by a source": lambda X, y: pf.audit({"m": np.zeros(N)}, pf.IPW(NOTHING).fit(X), X),
    "audit of partitions": lambda X, y: pf.audit({"m": np.zeros(N)}, NOTHING, [X, X]),
    "complement": lambda X, y: pf.audit({"m": np.zeros(N)}, GRAPH.unfair(lambda path: True).complement(), X),
    "audit_contrasts": lambda X, y: pf.audit_contrasts({"m": np.zeros(N)}, NOTHING, X),
    "audit_graphs": lambda X, y: pf.audit_graphs({"m": np.zeros(N)}, {"a": UNFAIR, "b": NOTHING}, X),
    "edge_costs": lambda X, y: pf.edge_costs({"m": np.zeros(N)}, pf.IPW(NOTHING), X),
    "AuditScorer": lambda X, y: pf.audits.AuditScorer(NOTHING, at_most=0.1),
    "sharp_bounds": lambda X, y: pf.sharp_bounds(NOTHING, X.assign(Y=y)),
    "confounding": lambda X, y: pf.sensitivity.confounding(np.zeros(N), NOTHING, X),
    "cross_world": lambda X, y: pf.sensitivity.cross_world(np.zeros(N), pf.OneStep(NOTHING), X),
    "switching": lambda X, y: pf.sensitivity.switching(np.zeros(N), NOTHING, X),
    "PenalizedClassifier": lambda X, y: pf.PenalizedClassifier(source=pf.IPW(NOTHING)).fit(X, y),
    "Contrasts": lambda X, y: pf.PenalizedClassifier(source=pf.Contrasts(pf.IPW(NOTHING))).fit(X, y),
    "Several": lambda X, y: pf.PenalizedClassifier(source=pf.Several({"a": pf.IPW(NOTHING)})).fit(X, y),
    "penalty_path": lambda X, y: pf.penalty_path(pf.PenalizedClassifier(source=pf.IPW(NOTHING)), X, y),
    "PSCF": lambda X, y: pf.PSCF(NOTHING).fit(X, y),
    "flips": lambda X, y: pf.audits.flips({"m": np.zeros(N)}, pf.SEM(pf.simulate.hiring, NOTHING), X),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_an_empty_question_is_refused_wherever_one_is_asked(name: str) -> None:
    with pytest.raises(DataError, match=r"holds no path, so .* The paths: A -> M -> Y; A -> Y"):
        ASKED[name](*made())


# --- text is taken at its word, unless it hides numbers --------------------------------------------------------------

HIDDEN = {
    "counts": (
        pd.Series(range(N)).astype(str),
        r"200 different numbers as text, such as '0'.*pd\.to_numeric\(df\['Q'\]",
    ),
    "fractions": (pd.Series(np.linspace(0.1, 1, N)).astype(str).astype(object), "200 different numbers as text"),
    "codes": (
        pd.Series([f"0{i % 21}" for i in range(N)]),
        r"21 different numbers as text.*df\['Q'\]\.astype\('category'",
    ),
    "dates": (
        pd.Series(pd.date_range("2020-01-01", periods=N).strftime("%Y-%m-%d")),
        r"200 different dates as text, such as '2020-01-01'.*days since a date: \(pd\.to_datetime\(df\['Q'\]\)",
    ),
    "times": (pd.Series(pd.date_range("2020-01-01", periods=N).strftime("%Y-%m-%dT%H:%M")), "200 different dates"),
}


@pytest.mark.parametrize(("values", "message"), HIDDEN.values(), ids=HIDDEN)
def test_numbers_held_as_text(values: pd.Series[Any], message: str) -> None:
    df, y = units().assign(Q=values), made()[1]
    calls: list[Callable[[], Any]] = [
        lambda: pf.IPW(UNFAIR).fit(df),
        lambda: pf.GComputation(UNFAIR).fit(df),
        lambda: pf.learn_mechanisms(df, GRAPH, nodes=["M"]),
        lambda: pf.PSCF(UNFAIR).fit(df, y),
        lambda: pf.PenalizedClassifier(source=pf.IPW(UNFAIR)).fit(df, y),
        lambda: pf.PenalizedClassifier().fit(df, y),
        lambda: pf.audit({"m": np.zeros(N)}, pf.IPW(UNFAIR), df),
        lambda: TableEncoder().fit(df),
    ]
    for call in calls:
        with pytest.raises(DataError, match=message):
            call()
    assert read_table(df.astype({"Q": "category"}), ["Q"])["Q"].dtype == "category"


def test_text_that_is_not_a_number_stays_categories() -> None:
    for values in (
        [f"job {i}" for i in range(N)],
        [f"0{i % 20}" for i in range(N)],
        [*map(str, range(N - 1)), "unknown"],
        ["0", "1"] * (N // 2),
    ):
        column = pd.Series(values)
        assert read_table(column.to_frame("Q"), ["Q"])["Q"].equals(column)


def test_a_few_codes_as_text_are_categories_with_one_warning() -> None:
    graph = pf.CausalGraph("{A Q} -> Y", sensitive="A", outcome="Y", baseline="0", contrast="1")
    df = pd.DataFrame({"A": ["0", "1"] * 60, "Q": [f"{i % 3 + 1}" for i in range(120)]})
    source = pf.IPW(graph.unfair("A -> Y"), arm="paper")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        source.fit(df)
    messages = [str(each.message) for each in caught if "as text" in str(each.message)]
    assert messages == [
        "The column 'Q' holds numbers as text, such as '1', and is read as 3 categories. Make numbers of them, or "
        "declare them: df['Q'].astype('category')."
    ]


# --- numbers beyond double precision ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [{"Q": 1e160}, {"Q": np.inf}, {"Q": np.nan}])
def test_the_encoder_reads_as_the_classifier_does(bad: dict[str, float]) -> None:
    wrong = units().assign(**bad)
    message = "squares leave double precision|infinite value|missing value"
    with pytest.raises(DataError, match=message):
        TableEncoder().fit(wrong)
    encoder = TableEncoder().fit(units())
    before = encoder.transform(units())
    for call in (encoder.transform, encoder.transform_sparse, encoder.fit):
        with pytest.raises(DataError, match=message):
            call(wrong)
    assert np.array_equal(encoder.transform(units()), before)
    with pytest.raises(
        DataError, match=r"'Q' held numbers in fit and now has the type object, with values such as b'x'"
    ):
        encoder.transform(units().assign(Q=pd.Series([b"x"] * N, dtype=object)))
    with pytest.raises(DataError, match="must be a pandas DataFrame"):
        TableEncoder().fit(units().to_numpy())


# --- a fit is all or nothing -----------------------------------------------------------------------------------------


def test_a_fit_that_fails_changes_nothing() -> None:
    good, bad = units(), units()
    good["M"] = good["Q"]  # the same for both groups
    bad["M"] = np.where(bad["A"] == 1, "x", "y")
    fresh = pf.IPW(UNFAIR, arm=1, random_state=0)
    with pytest.raises(PositivityError):
        fresh.fit(bad)
    with pytest.raises(NotFittedError):
        fresh.worlds()
    assert len(pf.audit({"m": classifier("PenalizedClassifier")}, fresh, good, n_boot=0).table)
    source = pf.IPW(UNFAIR, arm=1, random_state=0).fit(good)
    before = [world.weight for world in source.worlds()]
    with pytest.raises(PositivityError):
        source.fit(bad)
    assert [np.array_equal(world.weight, old) for world, old in zip(source.worlds(), before, strict=True)] == [True] * 2


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_that_cannot_be_refitted_stays_as_it_was(name: str) -> None:
    model, (X, y) = classifier(name), made()
    before = model.predict_proba(X)
    for table, outcome in ((X.assign(Q=np.nan), y), (X, y * 0), (X.assign(Q="x", M=np.inf), y)):
        with pytest.raises(DataError):
            model.fit(table, outcome)
    assert np.array_equal(model.predict_proba(X), before)


# --- propensities of exactly 0 or 1 ----------------------------------------------------------------------------------


class Certain(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The group frequency, but certain of whoever has a Q far out."""

    def fit(self, X: pd.DataFrame, a: Any) -> Certain:
        self.classes_ = np.array([0, 1])
        self.share_ = float(np.mean(a))
        return self

    def predict_proba(self, X: pd.DataFrame) -> Any:
        one = np.where(X["Q"] > 1.5, 0.0, np.where(X["Q"] < -1.5, 1.0, self.share_))
        return np.column_stack([1.0 - one, one])


class Sure(Certain):
    """As certain of the other group."""

    def predict_proba(self, X: pd.DataFrame) -> Any:
        return super().predict_proba(X)[:, ::-1]


@pytest.mark.parametrize("arm", ["auto", "paper", "pooled", 0, 1])
def test_certain_propensities_are_refused_at_fit(arm: Any) -> None:
    df = units()
    with pytest.raises(
        PositivityError, match=r"\d+ of \d+ row\(s\) have no finite weight.* Certain .*clip=0\.01 bounds"
    ):
        pf.IPW(UNFAIR, arm=arm, propensity=Certain()).fit(df)
    with pytest.warns(PositivityWarning, match="propensity at 0 or 1"):
        source = pf.IPW(UNFAIR, arm=arm, propensity=Certain(), clip=0.01).fit(df)
    for world in source.worlds():
        assert world.weight.sum() == pytest.approx(1.0)


def test_a_baseline_row_of_probability_zero_is_refused_before_mechanisms_are_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def learn(*_: Any, **__: Any) -> None:
        raise AssertionError("mechanisms were learned first")

    monkeypatch.setattr(gcomputation.SplitMechanisms, "_learn", learn)
    graph = pf.CausalGraph("Q -> A; {A Q} -> R; {A R} -> M; {A Q R M} -> Y", sensitive="A", outcome="Y", baseline=1,
                           contrast=0)  # fmt: skip
    df = units().assign(R=np.linspace(0.0, 1.0, N))
    unfair = graph.unfair("A -> M -> Y")
    with pytest.raises(PositivityError, match=r"rows of the baseline 1, .* by the propensity Sure"):
        pf.GComputation(unfair, propensity=Sure(), progress=False).fit(df)


# --- groups of one row -----------------------------------------------------------------------------------------------


def test_a_group_of_one_row_is_refused_before_mechanisms_are_learned() -> None:
    df = units().assign(A=[1] * (N - 1) + [0])
    message = r"'A' takes the value 0 in 1 row only of the 200 that have a weight.*at least 2 rows a group"
    with pytest.raises(DataError, match=message):
        pf.GComputation(UNFAIR, progress=False).fit(df)
    weight = np.r_[0.0, np.ones(N - 1)]
    with pytest.raises(DataError, match="in 1 row only of the 199"):
        pf.GComputation(UNFAIR, progress=False).fit(df, sample_weight=weight)


@pytest.mark.parametrize("seed", range(6))
def test_either_half_has_rows_of_both_groups(seed: int) -> None:
    a, weight = np.ones(40, dtype=np.int8), np.ones(40)
    a[[3, 8, 20]] = 0
    weight[20] = 0.0
    rows = Rows(pd.DataFrame({"A": a}), a, weight, np.ones(40, dtype=bool))
    mechanisms = gcomputation.SplitMechanisms(rows, None, None, seed)
    halves = [mechanisms._part(half) for half in gcomputation.HALVES]
    assert sorted(np.concatenate(halves)) == list(range(40))
    for half in halves:
        assert set(a[half][weight[half] > 0.0]) == {0, 1}
        assert len(half) == 20
    other = mechanisms.reweighted(Rows(rows.table, a, np.roll(weight, 5), rows.kept))
    assert [other._part(half).tolist() for half in gcomputation.HALVES] == [half.tolist() for half in halves]


# --- words -----------------------------------------------------------------------------------------------------------


def test_messages_show_the_value() -> None:
    for name in (None, "", " "):
        with pytest.raises(DataError, match=f"models has the name {name!r}"):
            pf.audit({name: np.zeros(N)}, pf.IPW(UNFAIR), units())  # type: ignore[dict-item]
    for names, fault in ((["a\ud800"], "half of a pair of characters"), (["a", "a "], "look alike")):
        with pytest.raises(DataError, match=f"Models cannot be told apart by their names.* {fault}"):
            pf.audit(dict.fromkeys(names, np.zeros(N)), pf.IPW(UNFAIR), units())
    for errors, n in ((1, 1e300), (1e300, 5)):
        with pytest.raises(DataError, match=r"=1e\+300 must be an integer"):
            pf.test_set_bound(errors, n)  # type: ignore[arg-type]
    assert pf.test_set_bound(24.0, 100.0) == pf.test_set_bound(24, 100)  # type: ignore[arg-type]
