"""Designs in which a one-step audit would be wrong, and what it says of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit

import pyrofair as pf
from pyrofair.exceptions import PositivityError, PyrofairWarning
from pyrofair.sources.onestep import OneStep

GRAPH = pf.CausalGraph("C -> A; {A C} -> M; {A C M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> M -> Y")
LOGISTIC: dict[str, Any] = {"propensity": "logistic", "regression": "logistic", "random_state": 0}


class Known:
    """A classifier of C and M whose scores rise steeply with C beyond .9."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        one = expit(X["M"] - 1.0 + 20.0 * np.maximum(X["C"] - 0.9, 0.0)).to_numpy(np.float64)
        return np.column_stack([1.0 - one, one])


def units(n: int, seed: int = 0, beyond: float = 2.0) -> pd.DataFrame:
    """C uniform in [0, 1]; where it exceeds ``beyond``, A is 1."""
    rng = np.random.default_rng(seed)
    c = rng.random(n)
    a = ((rng.random(n) < 0.3 + 0.4 * c) | (c > beyond)).astype(int)
    return pd.DataFrame({"C": c, "A": a, "M": 0.8 * a + rng.normal(size=n)})


def audited(df: pd.DataFrame, source: Any = UNFAIR, **settings: Any) -> pf.Audit:
    return pf.audit({"known": Known()}, source, df, progress=False, random_state=0, **settings)


def test_a_range_of_numbers_without_a_counterpart_is_refused_or_withholds_the_verdict() -> None:
    """Its mean weight is .93, which is nearly 1; the groups have no C beyond .93 in common."""
    df = units(3000, beyond=0.93)
    with pytest.raises(PositivityError, match=r"of that world hardly occurs in the group: its chance given C is below"):
        audited(df)
    with pytest.warns(pf.PositivityWarning, match="hardly occurs in the group"):
        report = audited(df, OneStep(UNFAIR, form="prefix", random_state=0))
    assert "withheld" in str(report)
    assert "withheld" not in str(audited(units(3000)))


def test_copies_of_rows_are_warned_of() -> None:
    df = units(300)
    twice = df.loc[df.index.repeat(2)].reset_index(drop=True)
    with pytest.warns(PyrofairWarning, match=r"600 of 600 rows repeat another one in all \d .*, though 'C' has 300"):
        audited(twice, OneStep(UNFAIR, **LOGISTIC))


def test_few_fitted_rows_widen_the_intervals_of_many() -> None:
    source = OneStep(UNFAIR, **LOGISTIC).fit(units(400))
    few = source.influence(lambda world: Known().predict_proba(world.rows)[:, 1], units(400, seed=1))
    many = source.influence(lambda world: Known().predict_proba(world.rows)[:, 1], units(4000, seed=1))
    assert (few.inflation, many.inflation) == (1.25, 3.5)
    with pytest.warns(PyrofairWarning, match="fitted on 400 rows, fewer than the 4,000 others"):
        audited(units(4000, seed=1), source)


def test_values_are_inflated_by_the_folds_alone_where_all_rows_are_fitted() -> None:
    source = OneStep(UNFAIR, **LOGISTIC, folds=3).fit(units(300))
    values = source.influence(lambda world: Known().predict_proba(world.rows)[:, 1])
    assert values.inflation == 1.5
    report = audited(units(300), OneStep(UNFAIR, **LOGISTIC, folds=3))
    found = report.table.query("decisions == 'score' and quantity == 'p_y0'").iloc[0]
    own = report.influence["known"]["score"]["y0"]
    error = np.sqrt(1.5) * own.std(ddof=0) / np.sqrt(300)
    assert found["upper"] - found["estimate"] == pytest.approx(1.959964 * error, rel=1e-6)


@pytest.mark.parametrize("where", ["propensity", "regression"])
def test_stacks_take_weights_that_are_no_integers(where: str) -> None:
    df, weight = units(400), np.random.default_rng(0).random(400) + 0.5
    source = OneStep(UNFAIR, **LOGISTIC | {where: "stacked"}, folds=2).fit(df, sample_weight=weight)
    values = source.influence(lambda world: Known().predict_proba(world.rows)[:, 1])
    assert np.isfinite(values.ypi).all()
    assert values.weight.mean() == pytest.approx(1.0)


def test_three_hundred_levels_are_no_obstacle() -> None:
    df = units(3000).assign(C=lambda d: "town " + (d["C"] * 300).astype(int).astype(str))

    class Simple(Known):
        def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
            one = expit(X["M"] - 0.5).to_numpy(np.float64)
            return np.column_stack([1.0 - one, one])

    with pytest.warns(pf.PyrofairWarning):
        report = pf.audit({"m": Simple()}, OneStep(UNFAIR, form="prefix", random_state=0), df, progress=False)
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
