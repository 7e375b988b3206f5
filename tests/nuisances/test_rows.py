"""Rows and the propensities of their prefixes: clusters are read, share folds, and go through every estimate."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import pyrofair as pf
from pyrofair.effects.potential_outcomes import CounterfactualSample
from pyrofair.exceptions import DataError
from pyrofair.nuisances.rows import Nuisances, Rows
from pyrofair.sources.graph_form import GraphForm
from pyrofair.sources.prefix_form import PrefixForm

GRAPH = pf.CausalGraph("C -> A; {A C} -> M; {A C M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> M -> Y")
N = 400


def units(n: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    c = rng.normal(size=n)
    a = (rng.random(n) < expit(0.5 * c)).astype(int)
    return pd.DataFrame({"C": c, "A": a, "M": 0.8 * a + 0.5 * c + rng.normal(size=n)})


def score(world: CounterfactualSample) -> NDArray[np.float64]:
    rows = world.rows
    return np.asarray(expit(0.5 * rows["A"] + 0.7 * rows["M"] + 0.3 * rows["C"] - 0.5))


def nuisances(df: pd.DataFrame, clusters: Any = None, seed: int = 0, propensity: Any = "boosted") -> Nuisances:
    return Nuisances(GRAPH, propensity, Rows.read(df, None, GRAPH, clusters), seed, None)


TWICE = units().iloc[np.tile(np.arange(N), 2)].reset_index(drop=True)
PAIRS = np.char.add("unit ", np.tile(np.arange(N), 2).astype(str))


def test_copies_share_folds_in_every_model_and_form() -> None:
    made = nuisances(TWICE, PAIRS)
    for train, test in made.split():
        assert not {*PAIRS[train]} & {*PAIRS[test]}
    model = made.model(("C", "M"))
    assert np.array_equal(model.fold[:N], model.fold[N:])
    for form in (PrefixForm, GraphForm):
        values = form(pf.identify(UNFAIR), made, seed=0, regression="boosted").influence(score, made.rows)
        gap = np.abs(values.ypi[:N] - values.ypi[N:])
        # The graph form draws anew for each row; the prefix form judges copies by one fit.
        assert gap.max() < (1e-12 if form is PrefixForm else 1.0)
        assert gap.mean() < 0.1
    apart = nuisances(TWICE)
    values = PrefixForm(pf.identify(UNFAIR), apart, seed=0, regression="boosted").influence(score, apart.rows)
    assert np.abs(values.ypi[:N] - values.ypi[N:]).max() > 0.01


def test_trees_of_copies_stop_where_those_of_the_rows_do() -> None:
    """Trees that stop by copies of what they learn from stop too late, and follow chance."""
    n = 4000
    df = units(n)
    twice, copies = df.iloc[np.tile(np.arange(n), 2)].reset_index(drop=True), np.tile(np.arange(n), 2)

    def trees(rows: pd.DataFrame, clusters: Any) -> float:
        models = [nuisances(rows, clusters, seed).model(("C", "M")) for seed in range(2)]
        return float(np.mean([fit.fits[0][0].n_iter_ for model in models for fit in model.fits]))  # type: ignore[attr-defined]

    once, together, apart = trees(df, None), trees(twice, copies), trees(twice, None)
    assert together < 1.5 * once
    assert apart > 1.5 * together


def test_clusters_go_along_where_rows_are_trimmed_refitted_and_pickled() -> None:
    made = nuisances(TWICE, PAIRS)
    kept = TWICE["C"].abs().to_numpy() < 1.5
    made.rows.kept[:] = kept
    model = made.model(("C",))
    n = int(kept.sum()) // 2
    assert np.array_equal(model.fold[:n], model.fold[n:])
    again = pickle.loads(pickle.dumps(made))
    assert np.array_equal(again.rows.groups, made.rows.groups)
    weight = np.tile(np.random.default_rng(0).exponential(size=N), 2)
    one, other = (each.refit(weight).model(("C",)).fitted for each in (made, again))
    assert one == pytest.approx(other, abs=1e-12)
    assert one[:n] == pytest.approx(one[n:], abs=1e-12)


@pytest.mark.parametrize(
    ("clusters", "message"),
    [(np.arange(5), "400 rows and groups has 5"), ([None] * 400, "lacks a label in 400 of 400")],
)
def test_clusters_that_do_not_fit_the_rows_are_refused(clusters: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        nuisances(units(), clusters)


def test_a_propensity_that_is_not_calibrated_is_refused_by_that_name() -> None:
    rng = np.random.default_rng(0)
    df = pd.DataFrame({"C": rng.normal(size=900), "A": (rng.random(900) < 0.1).astype(int), "M": rng.normal(size=900)})

    class Deaf(LogisticRegression):  # type: ignore[misc]
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            return super().fit(X, y)

    balanced, weight = LogisticRegression(class_weight="balanced"), np.where(df["A"] == 1, 8.0, 1.0)
    for make in (pf.IPW, pf.OneStep):
        for model, given in ((balanced, None), (Deaf(), weight)):
            with pytest.raises(DataError, match=r"LogisticRegression|Deaf") as caught:
                make(UNFAIR, propensity=model).fit(df, given)
            assert "is not calibrated" in str(caught.value)
            make(UNFAIR, propensity=LogisticRegression()).fit(df, given)
