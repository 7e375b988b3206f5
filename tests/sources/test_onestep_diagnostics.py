"""Designs in which a one-step audit would be wrong, and what it says of them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import clone

import pyrofair as pf
from pyrofair import OneStep, PositivityError, PyrofairWarning
from tests.models import Known

GRAPH = pf.CausalGraph("C -> A; {A C} -> M; {A C M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> M -> Y")
LOGISTIC: dict[str, Any] = {"propensity": "logistic", "regression": "logistic", "random_state": 0}


KNOWN = Known(lambda X: expit(X["M"] - 1.0 + 20.0 * np.maximum(X["C"] - 0.9, 0.0)))
"""Scores of C and M rise steeply with C beyond .9."""


def units(n: int, seed: int = 0, beyond: float = 2.0) -> pd.DataFrame:
    """C uniform in [0, 1]; where it exceeds ``beyond``, A is 1."""
    rng = np.random.default_rng(seed)
    c = rng.random(n)
    a = ((rng.random(n) < 0.3 + 0.4 * c) | (c > beyond)).astype(int)
    return pd.DataFrame({"C": c, "A": a, "M": 0.8 * a + rng.normal(size=n)})


def known(world: Any) -> NDArray[np.float64]:
    return KNOWN.predict_proba(world.rows)[:, 1]


def audited(df: pd.DataFrame, source: Any = UNFAIR, **settings: Any) -> pf.Audit:
    return pf.audit({"known": KNOWN}, source, df, progress=False, random_state=0, **settings)


def test_a_range_of_numbers_without_a_counterpart_is_refused_or_withholds_the_verdict() -> None:
    """Its mean weight is .93, which is nearly 1; the groups have no C beyond .93 in common."""
    df = units(3000, beyond=0.93)
    with pytest.raises(PositivityError, match=r"of that world hardly occurs in the group: its chance given C is below"):
        audited(df)
    with pytest.warns(pf.PositivityWarning, match="hardly occurs in the group"):
        report = audited(df, OneStep(UNFAIR, form="prefix", random_state=0))
    assert "withheld" in report.details()
    assert "withheld" not in str(audited(units(3000)))


def test_copies_of_rows_are_warned_of() -> None:
    df = units(300)
    twice = df.loc[df.index.repeat(2)].reset_index(drop=True)
    with pytest.warns(PyrofairWarning, match=r"600 of 600 rows repeat another one in all \d .*, though 'C' has 300"):
        audited(twice, OneStep(UNFAIR, **LOGISTIC))


def test_few_fitted_rows_widen_the_intervals_of_many() -> None:
    source = OneStep(UNFAIR, **LOGISTIC).fit(units(400))
    shares = []
    for m in (400, 40_000):
        values = source.influence(known, units(m, seed=1))
        effect, moves = values.ypi - values.y0, values.apart["ypi"] - values.apart["y0"]
        shares.append((moves.mean(axis=1) ** 2).sum() / (effect.var() / m))
    assert shares[1] > 10.0 * shares[0] > 0.0  # the error of the models does not shrink with the rows judged
    beside = source.influence(known, pd.concat([units(400), units(40, seed=1)]))
    assert not beside.apart["ypi"][:, :400].any()
    assert beside.apart["ypi"][:, 400:].any()
    with pytest.warns(PyrofairWarning, match="fitted on 400 rows, fewer than the 4,000 others"):
        audited(units(4000, seed=1), source)


@pytest.mark.parametrize(("settings", "splits"), [(LOGISTIC, 1), ({"propensity": "boosted", "folds": 2}, 3)])
def test_the_spread_between_splits_adds_to_the_variance_where_models_are_cross_fitted(
    settings: dict[str, Any], splits: int
) -> None:
    df = units(300)
    source = OneStep(UNFAIR, **{"regression": "logistic", "form": "prefix", "random_state": 0} | settings).fit(df)

    def score(world: Any) -> NDArray[np.float64]:
        return known(world)

    values, more = source.influence(score), 0.0
    if splits > 1:
        others = [values.y0 + np.sqrt(splits) * move for move in values.apart["y0"]]
        more = np.var([each.mean() for each in others])
        alone = clone(source).set_params(splits=1).fit(df).influence(score)
        np.testing.assert_allclose(others[0], alone.y0, atol=1e-12)
    assert (values.splits, values.apart is None, more > 0.0) == (splits, splits == 1, splits > 1)
    report = audited(df, source)
    found = report.table.query("decisions == 'score' and quantity == 'p_y0'").iloc[0]
    error = np.sqrt(values.y0.var() / 300 + more)
    assert found["upper"] - found["estimate"] == pytest.approx(1.959964 * error, rel=1e-6)
    assert (f"means of {splits} splits" in report.details()) == (splits > 1)


def test_one_fold_of_models_that_must_not_see_what_they_judge_is_warned_of() -> None:
    df = units(300)
    source = OneStep(UNFAIR, form="prefix", folds=1, random_state=0).fit(df)
    with pytest.warns(PyrofairWarning, match="folds=1"):
        source.influence(known)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PyrofairWarning)
        source.influence(known, units(200, seed=1))


@pytest.mark.parametrize("where", ["propensity", "regression"])
def test_stacks_take_weights_that_are_no_integers(where: str) -> None:
    df, weight = units(400), np.random.default_rng(0).random(400) + 0.5
    source = OneStep(UNFAIR, **LOGISTIC | {where: "stacked"}, folds=2).fit(df, sample_weight=weight)
    values = source.influence(known)
    assert np.isfinite(values.ypi).all()
    assert values.weight.mean() == pytest.approx(1.0)


def test_three_hundred_levels_are_no_obstacle() -> None:
    df = units(3000).assign(C=lambda d: "town " + (d["C"] * 300).astype(int).astype(str))

    with pytest.warns(pf.PyrofairWarning):
        report = pf.audit(
            {"m": Known(lambda X: expit(X["M"] - 0.5))},
            OneStep(UNFAIR, form="prefix", random_state=0),
            df,
            progress=False,
        )
    effect = report.table.query("decisions == 'score' and quantity == 'mean_unfair_effect'").iloc[0]
    draws = np.random.default_rng(1).normal(size=200_000)
    truth = float((expit(draws + 0.8 - 0.5) - expit(draws - 0.5)).mean())
    assert effect["lower"] - 0.02 < truth < effect["upper"] + 0.02


def test_a_rare_group_with_overlap_serves_the_graph_form() -> None:
    rng = np.random.default_rng(0)
    a = (rng.random(20_000) < 0.015).astype(int)
    df = pd.DataFrame({"A": a, "M": (rng.random(20_000) < 0.3 + 0.3 * a).astype(int)})
    graph = pf.CausalGraph("A -> M -> Y", sensitive="A", outcome="Y")
    source = OneStep(graph.unfair("A -> M -> Y"), form="graph", random_state=0).fit(df)
    values = source.influence(lambda world: 0.2 + 0.5 * world.rows["M"].to_numpy(np.float64))
    expected = [0.2 + 0.5 * df["M"][df["A"] == group].mean() for group in (0, 1)]
    assert [values.y0.mean(), values.ypi.mean()] == pytest.approx(expected, abs=0.02)


def test_folds_are_described_one_by_one() -> None:
    source = OneStep(UNFAIR, random_state=0, folds=3).fit(units(900))
    folds = source.stages_by_fold()
    assert list(folds["fold"].unique()) == [0, 1, 2]
    whole = source.stages().set_index(["regime", "nodes"])["mean_weight"]
    assert folds.groupby(["regime", "nodes"])["mean_weight"].mean().to_dict() == pytest.approx(
        whole.to_dict(), abs=0.01
    )
