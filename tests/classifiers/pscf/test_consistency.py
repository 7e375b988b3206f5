"""Rows that no edge changes are given back, and a row's result depends on the row and the seed alone."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from pyrofair import PSCF, CausalGraph, DataError
from tests.classifiers.pscf.models import QUIET, clone_of, outcome_distribution

pytestmark = QUIET

EDGES = "A -> D -> E -> Y; A -> M -> Y; A -> Y; Q -> {D E M Y}"
KINDS = ("nominal", "ordered", "categories", "binary", "integer", "continuous", "positive", "columns")
PATHS = {
    "mediated": ["A -> D -> E -> Y"],
    "direct": ["A -> Y"],
    "both": ["A -> Y", "A -> D -> E -> Y"],
    "all": ["A -> Y", "A -> D -> E -> Y", "A -> M -> Y"],
}


@functools.cache
def draw(kind: str, n: int = 240) -> tuple[pd.DataFrame, NDArray[Any]]:
    rng = np.random.default_rng(1)
    a, q = rng.integers(0, 2, n), rng.normal(size=n)
    x = a + 0.5 * q + rng.normal(size=n)
    level = np.digitize(x, [-0.3, 0.6, 1.4])
    columns: dict[str, Any] = {
        "nominal": {"D": np.array(["a", "b", "c", "d"])[level]},
        "ordered": {"D": level},
        "categories": {"D": pd.Categorical(np.array(list("abcd"))[level], list("abcd"), ordered=True)},
        "binary": {"D": x > 0.5},
        "integer": {"D": np.round(20 * x).astype(int)},
        "continuous": {"D": x},
        "positive": {"D": np.exp(x)},
        "columns": {"D": x, "d": np.array(["a", "b", "c", "d"])[level], "f": (x > 0.2).astype(int)},
    }[kind]
    e, m = x + rng.normal(size=n), a - q + rng.normal(size=n)
    y = rng.binomial(1, 1 / (1 + np.exp(-(a + q + e + m - 1))))
    return pd.DataFrame({"A": np.where(a == 1, "man", "woman"), "Q": q, **columns, "E": e, "M": m}), y


@functools.cache
def fitted(kind: str = "nominal", paths: str = "both", swapped: bool = False, **settings: Any) -> PSCF:
    X, y = draw(kind)
    more = {"columns": {"D": ["D", "d", "f"]}} if kind == "columns" else {}
    graph = CausalGraph(EDGES, sensitive="A", outcome="Y", baseline="woman", contrast="man", **more)
    unfair = graph.unfair(*PATHS[paths])
    usual: dict[str, Any] = {"epochs": 3, "batch_size": 60, "hidden": 10, "samples": 6}
    settings = {"random_state": 0, "progress": False, **usual, **settings}
    return PSCF(unfair.reversed() if swapped else unfair, **settings).fit(X, y)


# -- rows that no edge changes ----------------------------------------------------------------------------------------

EACH = [(kind, "both", False) for kind in KINDS] + [
    ("nominal", paths, swapped) for paths in PATHS for swapped in (False, True) if (paths, swapped) != ("both", False)
]


@pytest.mark.parametrize(("kind", "paths", "swapped"), EACH)
@pytest.mark.some(4)
def test_rows_of_the_baseline_are_given_back(kind: str, paths: str, swapped: bool) -> None:
    X, _ = draw(kind)
    model = fitted(kind, paths, swapped)
    baseline = X["A"] == ("man" if swapped else "woman")
    own = outcome_distribution(model, X)
    score = model.predict_proba(X)[:, 1]
    np.testing.assert_allclose(score[baseline], own[baseline], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X)[baseline], own[baseline] > 0.5)
    np.testing.assert_allclose(model.one_draw().predict_proba(X)[baseline, 1], own[baseline], rtol=0, atol=1e-12)
    assert np.abs(score - own)[~baseline].max() > 1e-3
    if paths == "direct":
        other = outcome_distribution(model, X.assign(A="man" if swapped else "woman"))
        np.testing.assert_allclose(score, other, rtol=0, atol=1e-12)


# -- a row alone -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "latents", "coupling"),
    [
        ("nominal", "abducted", "gumbel"),
        ("nominal", "abducted", "independent"),
        ("nominal", "posterior", "antithetic"),
        ("nominal", "prior", "independent"),
        ("columns", "abducted", "independent"),
        ("columns", "prior", "gumbel"),
    ],
)
@pytest.mark.some(1)
def test_other_rows_do_not_matter(kind: str, latents: Any, coupling: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = draw(kind)
    full = clone_of(fitted(kind), latents=latents, coupling=coupling)
    X = X.iloc[:40]
    for model in (full, full.one_draw()):
        whole = model.predict_proba(X)
        np.testing.assert_array_equal(model.predict_proba(X), whole)
        order = np.random.default_rng(0).permutation(40)
        np.testing.assert_allclose(model.predict_proba(X.iloc[order]), whole[order], rtol=0, atol=1e-12)
        repeated = X.iloc[[3, 3, 7]].set_axis([0, 0, 0])  # an index with duplicates, and equal rows
        np.testing.assert_allclose(model.predict_proba(repeated), whole[[3, 3, 7]], rtol=0, atol=1e-12)
        for row in (0, 31):
            np.testing.assert_allclose(model.predict_proba(X.iloc[[row]]), whole[[row]], rtol=0, atol=1e-12)
        one = X[X["A"] == "man"].index
        np.testing.assert_allclose(model.predict_proba(X.loc[one]), whole[one], rtol=0, atol=1e-12)
    label = full.predict(X)
    whole = full.predict_proba(X)
    monkeypatch.setattr("pyrofair.classifiers.pscf.classifier.CHUNK", 7)
    monkeypatch.setattr("pyrofair.classifiers.pscf.replay.UNITS_AT_ONCE", 40)
    np.testing.assert_array_equal(full.predict(X), label)
    np.testing.assert_allclose(full.predict_proba(X), whole, rtol=0, atol=1e-12)
    columns = [*X][::-1]
    np.testing.assert_allclose(full.predict_proba(X[columns].assign(extra="x")), whole, rtol=0, atol=1e-12)


def test_numbers_belong_to_the_seed() -> None:
    X, _ = draw("nominal")
    model = fitted()
    first = model.predict_proba(X)
    torch.manual_seed(7)
    np.testing.assert_array_equal(model.predict_proba(X), first)
    again = clone_of(model)
    np.testing.assert_array_equal(again.predict_proba(X), first)
    again.seed_ += 1
    changed = again.predict_proba(X)
    contrast = (X["A"] == "man").to_numpy()
    assert (changed != first)[contrast].any()
    np.testing.assert_array_equal(changed[~contrast], first[~contrast])


def test_one_draw_is_one_of_the_draws() -> None:
    X, _ = draw("nominal")
    model = fitted()
    one = model.one_draw()
    mean = clone_of(model, decisions="mean")
    np.testing.assert_array_equal(mean.predict(X), (model.predict_proba(X)[:, 1] > 0.5).astype(int))
    assert (one.draws_, model.draws_) == (1, 6)
    np.testing.assert_array_equal(one.predict(X), (one.predict_proba(X)[:, 1] > 0.5).astype(int))  # as an audit decides
    draws = model._replayed(X, model.plan_, 400).score
    alone = one.predict_proba(X)[:, 1]
    within = (alone >= draws.amin(0).numpy() - 1e-9) & (alone <= draws.amax(0).numpy() + 1e-9)
    assert within.all()  # of a category there are few scores, and all of them are met


def test_few_draws_decide_as_many_do() -> None:
    """Decisions on the mean of 50 draws against that of 200, with discrete nodes."""
    rng = np.random.default_rng(0)
    n = 2_000
    a, q = rng.integers(0, 2, n), rng.integers(0, 3, n)
    d = rng.binomial(1, 1 / (1 + np.exp(1.0 - 2.0 * a)))
    e = np.digitize(d + 0.5 * q + rng.logistic(size=n), [0.0, 1.5])
    y = rng.binomial(1, 1 / (1 + np.exp(2.2 - 1.5 * e - 0.4 * q)))
    X = pd.DataFrame({"A": a, "Q": q, "D": d, "E": e})
    graph = CausalGraph("A -> D -> E -> Y; Q -> {D E Y}", sensitive="A", outcome="Y")
    settings: dict[str, Any] = {"hidden": 20, "random_state": 0, "progress": False, "decisions": "mean"}
    model = PSCF(graph.unfair("A -> D -> E -> Y"), epochs=8, **settings).fit(X, y)
    few, many = (clone_of(model, samples=samples) for samples in (50, 200))
    assert (few.predict(X) != many.predict(X)).mean() <= 0.003
    np.testing.assert_array_equal(model.predict(X), few.predict(X))


# -- weights ---------------------------------------------------------------------------------------------------------


def test_constant_weights_are_none_and_rows_of_no_weight_are_absent() -> None:
    """Weights have the mean 1 in the loss, so that the prior of the networks weighs the same."""
    X, y = draw("nominal")
    plain = fitted()
    for constant in (1.0, 3.0):
        same = clone_of(plain).fit(X, y, sample_weight=np.full(len(X), constant))
        np.testing.assert_array_equal(same.predict_proba(X), plain.predict_proba(X))
        assert same.elbo_ == plain.elbo_
    weight = np.ones(len(X))
    weight[:80] = 0.0
    part = clone_of(plain).fit(X, y, sample_weight=weight).predict_proba(X)
    np.testing.assert_array_equal(part, clone_of(plain).fit(X.iloc[80:], y[80:]).predict_proba(X))


# -- what cannot be replayed ------------------------------------------------------------------------------------------


def test_unseen_categories_and_gaps_are_refused_by_name() -> None:
    X, _ = draw("nominal")
    model = fitted()
    with pytest.raises(DataError, match="X has no rows"):
        model.predict_proba(X.iloc[:0])
    with pytest.raises(DataError, match="other"):
        model.predict(X.assign(A="other"))
    X, _ = draw("positive")
    for latents in ("abducted", "posterior"):
        with pytest.raises(DataError, match="D"):
            clone_of(fitted("positive"), latents=latents).predict(X.assign(D=-1.0))
    far = fitted("continuous").predict_proba(draw("continuous")[0].assign(D=1e3))
    assert np.isfinite(far).all()
