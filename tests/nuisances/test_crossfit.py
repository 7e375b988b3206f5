"""Cross-fitted propensities: right maxima, exact shares, out-of-fold trees, any classifier, weights, refits."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from pyrofair.exceptions import DataError
from pyrofair.nuisances.crossfit import CrossFit
from pyrofair.nuisances.folds import split_folds
from pyrofair.nuisances.learners import Boosted

ONES = np.ones(400)


def units(n: int = 400, seed: int = 0) -> tuple[pd.DataFrame, NDArray[np.int8]]:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.normal(40, 12, n).round(1),
            "hours": rng.integers(0, 60, n),
            "job": rng.choice(["cook", "nurse", "smith"], n),
            "city": pd.Categorical(rng.choice(["x", "y"], n), categories=["y", "x", "never"]),
        }
    )
    eta = 0.04 * (table["age"] - 40) - 0.02 * table["hours"] + (table["job"] == "nurse") - 0.3 * (table["city"] == "x")
    return table, (rng.random(n) < expit(eta.to_numpy())).astype(np.int8)


def counts(seed: int = 1) -> NDArray[np.float64]:
    return np.random.default_rng(seed).poisson(1.0, 400).astype(float)


def repeated(table: pd.DataFrame, a: NDArray[np.int8], weight: NDArray[np.float64]) -> Any:
    rows = np.repeat(np.arange(len(a)), weight.astype(int))
    return table.iloc[rows].reset_index(drop=True), a[rows], np.ones(len(rows))


# --- logistic --------------------------------------------------------------------------------------------------------


def test_logistic_agrees_with_scikit_learn() -> None:
    table, a = units()
    design = make_column_transformer(
        (StandardScaler(), ["age", "hours"]), (OneHotEncoder(drop="first"), ["job", "city"]), sparse_threshold=0
    )
    for weight in (ONES, counts(), np.random.default_rng(2).exponential(size=400)):
        reference = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
        X = design.fit_transform(table)
        expected = reference.fit(X, a, sample_weight=weight).predict_proba(X)[:, 1]
        model = CrossFit("logistic").fit(table, a, weight)
        assert model.fitted == pytest.approx(expected, abs=1e-6)
        assert model.predict(table) == pytest.approx(model.fitted, abs=1e-14)


def test_logistic_under_separation_ends_near_0_and_1() -> None:
    x = np.r_[np.linspace(-3, -1, 50), np.linspace(1, 3, 50)]
    a = (x > 0).astype(np.int8)
    model = CrossFit("logistic").fit(pd.DataFrame({"x": x}), a, np.ones(100))
    assert np.isfinite(model.fits[0].coef).all()
    assert np.abs(model.fitted - a).max() < 1e-4
    assert ((model.fitted >= 0) & (model.fitted <= 1)).all()
    assert model.predict(pd.DataFrame({"x": [-1e6, 1e6]})).tolist() == [0.0, 1.0]


def test_logistic_with_a_level_of_one_group_only() -> None:
    """The maximum is at infinity for that level, and the other levels are not disturbed."""
    table = pd.DataFrame({"c": ["x"] * 20 + ["y"] * 20 + ["z"] * 2})
    a = np.array([1] * 5 + [0] * 15 + [1] * 12 + [0] * 8 + [1] * 2, dtype=np.int8)
    fitted = CrossFit("logistic").fit(table, a, np.ones(42)).fitted
    assert fitted[:40] == pytest.approx([0.25] * 20 + [0.6] * 20, abs=1e-6)
    assert (fitted[40:] > 0.999).all()


def test_logistic_with_collinear_columns() -> None:
    table, a = units()
    double = table.assign(again=table["age"] * 2 + 1, job2=table["job"].str.upper(), constant=3.0)
    plain = CrossFit("logistic").fit(table, a, ONES)
    assert CrossFit("logistic").fit(double, a, ONES).fitted == pytest.approx(plain.fitted, abs=1e-8)


def test_logistic_does_not_depend_on_units() -> None:
    table, a = units()
    scaled = table.assign(age=table["age"] * 1e6 + 1e8, hours=table["hours"] / 1e6)
    assert CrossFit("logistic").fit(scaled, a, ONES).fitted == pytest.approx(
        CrossFit("logistic").fit(table, a, ONES).fitted, abs=1e-8
    )


# --- saturated -------------------------------------------------------------------------------------------------------


def test_saturated_is_the_weighted_share_in_each_cell() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"q": rng.integers(0, 3, 400), "job": rng.choice(["cook", "nurse"], 400)})
    a, weight = rng.integers(0, 2, 400).astype(np.int8), rng.exponential(size=400)
    model = CrossFit("saturated").fit(table, a, weight)
    frame = table.assign(w=weight, wa=weight * a)
    sums = frame.groupby(["q", "job"])[["w", "wa"]].transform("sum")
    assert model.fitted == pytest.approx((sums["wa"] / sums["w"]).to_numpy(), abs=1e-14)
    assert model.predict(table[::-1]) == pytest.approx(model.fitted[::-1])


def test_saturated_without_columns_is_the_group_frequency() -> None:
    a = np.array([0, 1, 1, 1], dtype=np.int8)
    empty = pd.DataFrame(index=range(4))
    for propensity in ("logistic", "boosted", "saturated", KNeighborsClassifier()):
        model = CrossFit(propensity)
        assert model.fit(empty, a, np.array([3.0, 1, 1, 1])).fitted.tolist() == [0.5] * 4
        assert model.predict(pd.DataFrame(index=range(2))).tolist() == [0.5] * 2


def test_saturated_refuses_a_cell_it_has_not_seen() -> None:
    table = pd.DataFrame({"q": [0, 0, 1, 1], "d": [0, 1, 0, 0]})
    model = CrossFit("saturated").fit(table, np.array([0, 1, 0, 1], dtype=np.int8), np.ones(4))
    with pytest.raises(DataError, match=r"The cell \{'q': 1, 'd': 1\} was not among the rows.*'logistic' or 'boosted'"):
        model.predict(pd.DataFrame({"q": [0, 1], "d": [1, 1]}))
    with pytest.raises(DataError, match="'q' holds 2, not seen in fit"):
        model.predict(pd.DataFrame({"q": [2], "d": [1]}))


# --- boosted ---------------------------------------------------------------------------------------------------------


def test_boosted_trees_do_not_see_the_label_of_the_row_they_judge() -> None:
    rng = np.random.default_rng(0)
    noise = pd.DataFrame(rng.normal(size=(700, 4)), columns=list("abcd"))
    a = rng.integers(0, 2, 700).astype(np.int8)
    model = CrossFit("boosted").fit(noise, a, np.ones(700))
    assert isinstance(model.learner, Boosted)
    assert 0.4 < roc_auc_score(a, model.fitted) < 0.6
    # The same trees know the rows they were grown on, though they are small and stop early.
    assert roc_auc_score(a, model.predict(noise)) > 0.65


def test_boosted_trees_of_new_rows_are_averaged() -> None:
    table, a = units(900)
    model = CrossFit("boosted").fit(table, a, np.ones(900))
    design = model.learner.design(table)
    each = np.array([fit(design)[:, 0] for fit in model.fits])
    assert len(each) == 5
    assert model.predict(table[:50]) == pytest.approx(each[:, :50].mean(axis=0))
    # A fitted row has the probability of exactly one of the five, the one grown without it.
    assert (each == model.fitted).any(axis=0).all()
    assert each[model.fold, np.arange(900)] == pytest.approx(model.fitted, abs=0.0)


def test_boosted_trees_follow_the_weights() -> None:
    rng = np.random.default_rng(2)
    noise, a = pd.DataFrame({"x": rng.integers(0, 2, 1_000)}), np.arange(1_000, dtype=np.int8) % 2
    weight = np.where(a == 1, 3.0, 1.0)
    assert CrossFit("boosted").fit(noise, a, weight).fitted == pytest.approx(np.full(1_000, 0.75), abs=0.05)
    assert CrossFit("boosted").fit(noise, a, np.ones(1_000)).fitted == pytest.approx(np.full(1_000, 0.5), abs=0.05)


# --- any classifier --------------------------------------------------------------------------------------------------


class TakesNoWeight(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Remembers the rows it was fitted on."""

    def fit(self, X: pd.DataFrame, y: Any) -> TakesNoWeight:
        self.classes_, self.rows_, self.share_ = np.unique(y), X, float(np.mean(y))
        return self

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        return np.tile([1 - self.share_, self.share_], (len(X), 1))


def test_a_classifier_is_cloned_and_given_the_columns_as_they_are() -> None:
    table, a = units()
    given = TakesNoWeight()
    model = CrossFit(given, folds=1).fit(table, a, ONES)
    assert not hasattr(given, "rows_")
    assert model.fits[0].fits[0][0].rows_.equals(table)
    assert model.fitted == pytest.approx(np.full(400, a.mean()))
    assert model.refit(table, a, counts()) is not model


def test_a_pipeline_gets_its_weights_at_the_last_step() -> None:
    table, a = units()
    pipeline = make_pipeline(
        make_column_transformer((StandardScaler(), ["age", "hours"]), (OneHotEncoder(), ["job", "city"])),
        LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000),
    )
    weight = counts()
    weighted = CrossFit(pipeline, folds=1).fit(table, a, weight)
    assert weighted.fitted == pytest.approx(CrossFit("logistic").fit(table, a, weight).fitted, abs=1e-4)
    assert np.abs(weighted.fitted - CrossFit("logistic").fit(table, a, ONES).fitted).max() > 0.01


def test_without_sample_weight_rows_are_repeated() -> None:
    table, a = units()
    table = table[["age", "hours"]]
    weight = counts()
    for model in (TakesNoWeight(), KNeighborsClassifier(5), make_pipeline(StandardScaler(), KNeighborsClassifier(5))):
        rows, groups, ones = repeated(table, a, weight)
        expected = CrossFit(model, folds=1).fit(rows, groups, ones).predict(table)
        for unit in (1.0, 1e-6, 1 / 3):  # only the ratios count
            weighted = CrossFit(model, folds=1).fit(table, a, unit * weight)
            assert weighted.predict(table) == pytest.approx(expected)
    irrational = weight + np.sqrt(0.5) * (np.arange(400) < 200)
    with pytest.raises(DataError, match="KNeighborsClassifier takes no sample_weight, and the weights are not in the"):
        CrossFit(KNeighborsClassifier()).fit(table, a, irrational)
    with pytest.raises(DataError, match="KNeighborsClassifier takes no sample_weight"):
        CrossFit(make_pipeline(StandardScaler(), KNeighborsClassifier())).fit(table, a, irrational)


# --- properties of all of them ---------------------------------------------------------------------------------------

PROPENSITIES: dict[str, Any] = {
    "logistic": "logistic",
    "saturated": "saturated",
    "boosted": "boosted",
    "tree": DecisionTreeClassifier(max_depth=3, random_state=0),
    "neighbours": KNeighborsClassifier(5),
}


def discrete() -> tuple[pd.DataFrame, NDArray[np.int8]]:
    table, a = units()
    return pd.DataFrame({"old": (table["age"] // 15).astype(int), "busy": (table["hours"] > 30).astype(int)}), a


def make(propensity: Any, folds: int = 5) -> CrossFit:
    return CrossFit(propensity, 0, folds)


@pytest.mark.parametrize("propensity", [each for name, each in PROPENSITIES.items() if name != "boosted"])
def test_a_refit_is_a_fit_with_other_weights(propensity: Any) -> None:
    table, a = discrete()
    first = make(propensity).fit(table, a, ONES)
    kept = first.fitted.copy()
    for seed in range(2):
        weight = counts(seed)
        refit, fresh = first.refit(table, a, weight), make(propensity).fit(table, a, weight)
        assert refit is not first
        used = weight > 0
        assert refit.fitted[used] == pytest.approx(fresh.fitted[used], abs=1e-8)
        assert refit.predict(table[used]) == pytest.approx(fresh.predict(table[used]), abs=1e-8)
        assert refit.refit(table, a, ONES).fitted == pytest.approx(first.fitted, abs=1e-8)
    assert np.array_equal(first.fitted, kept)


def test_a_refit_of_boosted_trees_moves_the_values_of_their_leaves() -> None:
    """Against leaf values written out: tree by tree, a Newton step of the weighted log-likelihood in each leaf."""
    n = 900
    table, a = units(n)
    ones, rng = np.ones(n), np.random.default_rng(0)
    first = make("boosted", folds=2).fit(table, a, ones)
    np.testing.assert_allclose(first.refit(table, a, 3.0 * ones).fitted, first.fitted, atol=1e-12)
    weight = rng.exponential(size=n)
    refit = first.refit(table, a, weight)
    rows = first.learner.design(table).rows
    for fit, (train, test) in zip(first.fits, split_folds(a, ones, 2, 0), strict=True):
        model, odds = fit.fits[0][0], []  # type: ignore[attr-defined]
        for w in (weight, ones):
            share = np.average(a[train], weights=w[train])
            found, before = np.full(n, np.log(share / (1.0 - share))), np.zeros(n)
            for stage in model.staged_decision_function(rows):
                tree, before, p = (stage - before).round(9), stage, expit(found)
                for value in np.unique(tree):
                    leaf = tree == value
                    own = np.intersect1d(train, np.flatnonzero(leaf))
                    slope, curvature = (w * (a - p))[own].sum(), (w * p * (1.0 - p))[own].sum()
                    found[leaf] += model.learning_rate * slope / curvature
            odds.append(found)
        expected = expit(model.decision_function(rows) + odds[0] - odds[1])
        np.testing.assert_allclose(refit.fitted[test], expected[test], atol=1e-9)
    lone = np.where(a == 1, 1.0, 0.0)
    with pytest.raises(DataError, match="a fold of boosted propensities has rows of one group only"):
        first.refit(table, a, lone)


@pytest.mark.parametrize(("propensity", "n"), [("boosted", 900), ("boosted", 400), ("stacked", 900)])
def test_a_refit_of_a_refit_starts_from_its_own_weights(propensity: Any, n: int) -> None:
    """Also of one that has been pickled, whose leaves are then found again."""
    table, a = units(n)
    ones, rng = np.ones(n), np.random.default_rng(0)
    one, other = rng.exponential(size=n), rng.poisson(1.0, n).astype(float)
    first = make(propensity, folds=2).fit(table, a, ones)
    moved = first.refit(table, a, one)
    expected = first.refit(table, a, other)
    for start in (moved, pickle.loads(pickle.dumps(moved))):
        again = start.refit(table, a, other)
        np.testing.assert_allclose(again.fitted, expected.fitted, atol=1e-9)
        np.testing.assert_allclose(again.predict(table), expected.predict(table), atol=1e-9)


# --- whole groups ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("propensity", ["boosted", "stacked", DecisionTreeClassifier(random_state=0)])
def test_copies_are_judged_by_fits_that_saw_none_of_them(propensity: Any) -> None:
    """Noise cannot be learned: with every row doubled, a fit that has seen the copy seems to know the label."""
    n = 700
    rng = np.random.default_rng(0)
    noise, a = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd")), (np.arange(n) % 2).astype(np.int8)
    twice, copies = np.tile(np.arange(n), 2), np.ones(2 * n)
    table, label = noise.iloc[twice].reset_index(drop=True), a[twice]
    together = make(propensity).fit(table, label, copies, twice)
    assert np.array_equal(together.fold[:n], together.fold[n:])
    assert np.array_equal(together.fitted[:n], together.fitted[n:])
    assert 0.42 < roc_auc_score(label, together.fitted) < 0.58
    if propensity != "stacked":
        assert roc_auc_score(label, make(propensity).fit(table, label, copies).fitted) > 0.6
    weight = np.random.default_rng(1).poisson(1.0, n).astype(float)[twice]
    again = together.refit(table, label, weight, twice)
    assert np.array_equal(again.fold[:n], again.fold[n:])
    assert np.array_equal(again.fold, together.fold) == together.learner.warm  # others take folds of their own


def test_a_refit_of_logistic_on_rows_without_a_level() -> None:
    """A bootstrap that misses a level estimates nothing of it, and the other levels are unaffected."""
    table, a = units()
    rest = (table["job"] != "cook").to_numpy()
    weight = counts() * rest
    refit = CrossFit("logistic").fit(table, a, ONES).refit(table, a, weight)
    expected = CrossFit("logistic").fit(table[rest], a[rest], weight[rest]).fitted
    assert refit.fitted[rest] == pytest.approx(expected, abs=1e-8)
    assert np.isfinite(refit.fitted).all()
