"""Learners: one class for propensities and regressions alike, stacks, small cells, small groups, copies."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.preprocessing import StandardScaler

from pyrofair.exceptions import DataError, PositivityError
from pyrofair.nuisances import learners
from pyrofair.nuisances.learners import Boosted, Logistic, Saturated, Stacked, make_learner, require_learner
from pyrofair.nuisances.leaves import RIDGE, find_leaves

NAMES = ["boosted", "logistic", "saturated", "stacked"]
ONES = np.ones(500)


def units(n: int = 500, seed: int = 0) -> tuple[pd.DataFrame, NDArray[np.float64]]:
    """A number and a category of few values, and two columns of scores that depend on both."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"x": rng.integers(0, 5, n), "c": rng.choice(["u", "v"], n)})
    mean = 0.1 + 0.15 * table["x"].to_numpy() + 0.1 * (table["c"] == "v").to_numpy()
    return table, np.column_stack([mean + rng.uniform(-0.1, 0.1, n), 1.0 - mean])


@pytest.mark.parametrize("name", ["boosted", "stacked", "saturated"])
def test_the_fitted_responses_again_have_the_same_predictions(name: Any) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=400), "b": rng.integers(0, 3, 400).astype(str)})
    y, weight = rng.random((400, 1)) + X[["a"]].to_numpy(), rng.integers(1, 4, 400).astype(float)
    learner = make_learner(name, X, 0, "regression")
    design = learner.design(X)
    fit = learner.fit(design, y, weight)
    again = fit.again(design, weight, [design, design[np.arange(7)]])
    for found, expected in zip(again(y), (fit(design), fit(design)[:7]), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-9)
    assert again(np.hstack([y, y**2]))[0].shape == (400, 2)


@pytest.mark.parametrize("name", NAMES)
def test_regressions_predict_the_mean_of_every_score(name: Any) -> None:
    table, y = units()
    learner = make_learner(name, table, 0, "regression")
    design = learner.design(table)
    fit = learner.fit(design, y, ONES)
    means = pd.DataFrame(y).groupby([table["x"], table["c"]]).transform("mean").to_numpy()
    assert np.abs(fit(design) - means).max() < {"logistic": 0.06}.get(name, 0.05)
    again = learner.fit(design, y[:, ::-1], ONES)
    assert again(design) == pytest.approx(fit(design)[:, ::-1], abs=1e-12)
    assert not hasattr(learner, "memo") or not learner.memo
    with pytest.raises((AssertionError, AttributeError, TypeError, ValueError)):
        learner(design)  # the unfitted one is as it was


@pytest.mark.parametrize("name", ["boosted", "stacked", LinearRegression()])
def test_equal_and_constant_scores_are_fitted_once_or_not_at_all(name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table, y = units()
    table, calls = table.assign(c=(table["c"] == "v").astype(int)), []
    original = learners.fit_weighted

    def fit_weighted(*given: Any, **more: Any) -> Any:
        calls.append(given)
        return original(*given, **more)

    monkeypatch.setattr(learners, "fit_weighted", fit_weighted)
    learner = make_learner(name, table, 0, "regression")
    design = learner.design(table)
    scores = np.column_stack([y[:, 0], y[:, 0], np.full(500, 0.3)])
    found = learner.fit(design, scores, ONES)(design)
    assert (found[:, 0] == found[:, 1]).all()
    assert found[:, 2] == pytest.approx(0.3)
    assert len(calls) == (1 + learners.STACK_FOLDS if name == "stacked" else 1)


# --- small cells -----------------------------------------------------------------------------------------------------


def test_the_leverage_of_a_small_cell_is_what_each_row_adds_to_its_mean() -> None:
    """By deletion: the residual from a mean without the row is the residual over 1 - leverage."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"c": np.repeat(["a", "b", "c", "d"], [1, 2, 7, 30])})
    y, weight = rng.random((40, 1)), np.ones(40)
    learner = make_learner("saturated", table, 0, "regression")
    design = learner.design(table)
    fit = learner.fit(design, y, weight)
    leverage = fit.leverage(design, design, weight)[:, 0]
    assert leverage[[0, 39]].tolist() == [0.0, 0.0]  # alone, and among many
    for i in range(1, 10):
        rest = weight.copy()
        rest[i] = 0.0
        without = learner.fit(design, y, rest).own(design)[i, 0]
        assert y[i, 0] - without == pytest.approx((y[i, 0] - fit(design)[i, 0]) / (1.0 - leverage[i]), abs=1e-12)
    new = learner.design(pd.DataFrame({"c": ["b", "c"]}))
    assert fit.leverage(new, design, weight)[:, 0].tolist() == pytest.approx([1 / 2, 1 / 7])


def test_the_leverage_of_a_logistic_regression_is_what_each_row_adds_to_its_mean() -> None:
    """By deletion, to first order; of several responses, and of rows that weigh five."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    table, y = pd.DataFrame({"x": x}), np.column_stack([x + rng.normal(size=30) > 0.0, rng.random(30)])
    learner = make_learner("logistic", table, 0, "regression")
    design, weight = learner.design(table), np.full(30, 5.0)
    fit = learner.fit(design, y, weight)
    leverage = fit.leverage(design, design, weight)
    assert leverage.shape == (30, 2)
    assert leverage.sum(axis=0) == pytest.approx(2.0)  # of two coefficients
    assert leverage == pytest.approx(fit.leverage(design, design, np.ones(30)))
    for i in range(30):
        without = learner.fit(design, y, np.where(np.arange(30) == i, 0.0, 1.0))(design)[i]
        assert y[i] - without == pytest.approx((y[i] - fit(design)[i]) / (1.0 - leverage[i]), rel=0.25)


@pytest.mark.parametrize("name", ["saturated", "logistic"])
def test_copies_in_a_group_have_the_leverage_of_one_row(name: str) -> None:
    rng = np.random.default_rng(0)
    table, y = pd.DataFrame({"c": np.repeat(["a", "b"], [3, 4])}), rng.random((7, 1))
    learner = make_learner(name, table, 0, "regression")
    design, weight, groups = learner.design(table), np.ones(7), np.arange(7)
    twice = learner.design(pd.concat([table, table]))
    one = learner.fit(design, y, weight)
    both = np.tile(groups, 2)
    copied = learner.fit(twice, np.tile(y, (2, 1)), np.ones(14), both)
    found = copied.leverage(design, twice, np.ones(14), (groups, both))
    assert found == pytest.approx(one.leverage(design, design, weight), rel=1e-6)
    assert (found > 0.1).all()


def test_a_saturated_regression_refuses_a_cell_without_rows() -> None:
    table, y = units()
    known = (table["x"] > 0).to_numpy()
    learner = make_learner("saturated", table, 0, "regression")
    design = learner.design(table)
    fit = learner.fit(design[known], y[known], ONES[known])
    with pytest.raises(PositivityError, match=r"no row of the group in \d+ of the cells of x, c"):
        fit(design)
    assert np.isnan(fit.own(design)[~known]).all()


# --- small groups ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["propensity", "regression"])
@pytest.mark.parametrize(("smallest", "kind"), [(299, Stacked), (300, Boosted), (None, Boosted)])
def test_a_stack_takes_the_place_of_trees_where_a_group_is_small(target: Any, smallest: Any, kind: type) -> None:
    table, _ = units()
    learner = make_learner("boosted", table, 0, target, smallest)
    assert type(learner) is kind
    for name, own in (("logistic", Logistic), ("saturated", Saturated), ("stacked", Stacked)):
        assert type(make_learner(name, table, 0, target, smallest)) is own  # type: ignore[arg-type]
    if isinstance(learner, Stacked):
        assert [type(member) for member in learner.members] == [Logistic, Boosted]


def test_trees_have_small_leaves_where_rows_are_few() -> None:
    table, y = units(60)
    learner = make_learner("boosted", table, 0, "regression")
    for m, leaf in ((16, 5), (60, 7)):
        fit: Any = learner.fit(learner.design(table[:m]), y[:m], np.ones(m))
        assert fit.fits[0][0].min_samples_leaf == leaf


def test_a_stack_of_a_rare_group_follows_what_trees_do_not_find() -> None:
    """45 of 1,000 rows, whose chance rises with x: trees of 30 rows a leaf hardly split."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=1000)
    p = 1.0 / (1.0 + np.exp(3.3 - x))
    a, table, weight = (rng.random(1000) < p).astype(np.int8)[:, None], pd.DataFrame({"x": x}), np.ones(1000)
    errors = {}
    for smallest in (1000, 45):
        learner = make_learner("boosted", table, 0, "propensity", smallest)
        design = learner.design(table)
        errors[smallest] = np.sqrt(np.mean((np.log(learner.fit(design, a, weight)(design)[:, 0]) - np.log(p)) ** 2))
    assert errors[45] < 0.75 * errors[1000]


# --- copies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["boosted", "stacked"])
def test_copies_are_held_out_together(name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    half = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
    a, twice = rng.integers(0, 2, (300, 1)).astype(np.int8), np.tile(np.arange(300), 2)
    table, seen = half.iloc[twice].reset_index(drop=True), []

    original = learners.HistGradientBoostingClassifier.fit

    def fit(self: Any, X: Any, y: Any, **given: Any) -> Any:
        seen.append((X, given["X_val"]))
        return original(self, X, y, **given)

    monkeypatch.setattr(learners.HistGradientBoostingClassifier, "fit", fit)
    learner = make_learner(name, table, 0, "propensity")
    design = learner.design(table)
    learner.fit(design, a[twice], np.ones(600), twice)
    assert len(seen) == (1 if name == "boosted" else 1 + learners.STACK_FOLDS)
    for trained, held in seen:
        assert not {*map(tuple, trained)} & {*map(tuple, held)}
        assert 0.05 < len(held) / (len(held) + len(trained)) < 0.15
    # The fits of a stack's folds share no copy with the rows by which its members are compared.
    assert sum(len(trained) + len(held) for trained, held in seen) == (600 if name == "boosted" else 3 * 600)


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "value"),
    [
        *product(["propensity"], ["probit", None, 3, LogisticRegression, StandardScaler()]),
        *product(["regression"], ["tree", None, LinearRegression, LogisticRegression()]),
    ],
)
def test_unknown_learners(target: Any, value: Any) -> None:
    with pytest.raises(DataError, match=rf"{target}=.* is not known.*'logistic'.*'saturated'.*'stacked'.*scikit-learn"):
        require_learner(target, value, target)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_predictions_that_are_no_numbers_are_refused(wrong: float) -> None:
    class Broken(LinearRegression):  # type: ignore[misc]
        def predict(self, X: Any) -> Any:
            return np.full(len(X), wrong)

    table, y = units()
    learner = make_learner(Broken(), table[["x"]], 0, "regression")
    fit = learner.fit(table[["x"]], y, ONES)
    with pytest.raises(DataError, match=r"The regression Broken returned [\s\S]*not finite"):
        fit(table[["x"]])


def test_decisions_share_the_trees_of_their_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are means in the leaves of its trees: ridge regression on these, of the rows that are learned from."""
    monkeypatch.setattr(learners, "REGROWN", 0)
    table, y = units()
    scores = np.column_stack([y[:, 0] > 0.5, y[:, 0], y[:, 0] > 0.3, ONES]).astype(float)
    rows = np.arange(0, 500, 2)
    weight = np.random.default_rng(1).exponential(size=len(rows))
    own, shared = (make_learner("boosted", table, 0, "regression", None, of) for of in ((), (0, 1, 1, 3)))
    design = shared.design(table)
    fit, apart = (each.fit(design[rows], scores[rows], weight) for each in (shared, own))
    grown = [0, 1, 3]
    assert np.array_equal(fit(design)[:, grown], apart(design)[:, grown])
    trees = fit.fits[1][0]  # type: ignore[attr-defined]
    leaves = [leaf[design.index] for leaf in find_leaves(trees, design.different)]
    held = np.hstack([leaf[:, None] == np.unique(leaf) for leaf in leaves]).astype(float)
    held -= np.average(held[rows], axis=0, weights=weight)
    response, part = scores[rows, 2], held[rows]
    mean = np.average(response, weights=weight)
    curved = part.T @ (weight[:, None] * part) + RIDGE * np.eye(part.shape[1])
    ridge = (mean + held @ np.linalg.solve(curved, part.T @ (weight * (response - mean)))).clip(0.0, 1.0)
    assert fit(design)[:, 2] == pytest.approx(ridge, abs=1e-10)
    other = fit.regrown(design, rows, np.column_stack([response] * 4), weight)
    assert other is not None
    assert other(design)[:, 2] == pytest.approx(ridge, abs=1e-10)


def test_a_response_that_was_constant_has_trees_once_it_varies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later ones are means of the leaves of these, as if there had been no constant one; it may vary by rounding."""
    monkeypatch.setattr(learners, "REGROWN", 0)
    table, y = units()
    rows, flat = np.arange(0, 500, 2), 0.3 + 1e-16 * np.arange(250)
    learner, weight = make_learner("boosted", table, 0, "regression"), np.ones(250)
    design, one = learner.design(table), y[rows, :1]
    other = one**2
    plain = learner.fit(design[rows], one, weight)
    late = learner.fit(design[rows], np.column_stack([one, flat]), weight)
    late = late.regrown(design, rows, np.column_stack([one, one]), weight)  # type: ignore[assignment]
    assert late(design)[:, [1]] == pytest.approx(plain(design), abs=0.0)
    first, second = (each.regrown(design, rows, part, weight) for each, part in (
        (plain, other), (late, np.column_stack([flat, other]))
    ))  # fmt: skip
    assert first is not None
    assert second is not None
    assert second(design)[:, [1]] == pytest.approx(first(design), abs=1e-12)
    assert np.ptp(first(design)) > 0.1
