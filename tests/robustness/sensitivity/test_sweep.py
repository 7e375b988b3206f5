"""Sweeps: bounds that never narrow, conclusions and where they flip, values that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyrofair as pf
from pyrofair.exceptions import DataError
from pyrofair.robustness.sensitivity import confounding, cross_world, switching
from pyrofair.robustness.sensitivity.sweep import Parameter, crossing, nested
from tests.models import Known
from tests.robustness.sensitivity.models import GRAPH, SATURATED, Table, sample

SHARE = Parameter("share", neutral=0.0, most=1.0, what="shares", axis="share", hint="Of all units.")


@pytest.mark.parametrize("seed", range(20))
def test_sets_never_narrow_hold_their_bounds_and_are_the_smallest_that_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low, high = rng.normal(0.0, 0.3, 6), rng.normal(0.1, 0.3, 6)  # they cross now and then
    ends = np.column_stack([low, high, low - rng.random(6), high + rng.random(6)])
    found = nested(ends)
    assert (np.diff(found[:, [0, 2]], axis=0) <= 0.0).all()
    assert (np.diff(found[:, [1, 3]], axis=0) >= 0.0).all()
    assert (found[:, 2] <= found[:, 0]).all()
    assert (found[:, 0] <= found[:, 1]).all()
    assert (found[:, 1] <= found[:, 3]).all()
    for i in range(6):
        assert found[i, 0] == ends[: i + 1, :2].min()
        assert found[i, 1] == ends[: i + 1, :2].max()
    # the interval of either bound is held, on both sides of it where both bounds cross
    crossed = low > high
    assert (found[:, 2] <= np.where(crossed, 2.0 * high - ends[:, 3], ends[:, 2])).all()
    assert (found[:, 3] >= np.where(crossed, 2.0 * low - ends[:, 2], ends[:, 3])).all()


def test_sets_that_are_nested_stay_as_they_are() -> None:
    ends = np.array([[0.2, 0.2, 0.1, 0.3], [0.1, 0.4, 0.0, 0.5], [0.1, 0.5, -0.1, 0.6]])
    np.testing.assert_array_equal(nested(ends), ends)


SMALL = np.fromfunction(lambda a, q, d, m: 0.02 + 0.01 * a + 0.01 * d + 0.02 * m, (2, 2, 3, 2))
LARGE = np.fromfunction(lambda a, q, d, m: 0.1 + 0.15 * a + 0.05 * q + 0.15 * d + 0.3 * m, (2, 2, 3, 2))
PATHS = {"D": ["A -> Y", "A -> D -> Y", "A -> D -> M -> Y"], "M": ["A -> Y", "A -> M -> Y"], "direct": ["A -> Y"]}


@pytest.mark.parametrize("analysis", [confounding, cross_world, switching])
@pytest.mark.parametrize("scores", [SMALL, LARGE])
@pytest.mark.parametrize(("paths", "n", "seed"), [("D", 900, 0), ("M", 300, 3), ("direct", 300, 3)])
@pytest.mark.some(6)
def test_an_assumption_that_is_given_up_further_leaves_no_less(
    analysis: Any, scores: np.ndarray, paths: str, n: int, seed: int
) -> None:
    """In small samples estimates for each amount alone narrow, cross, or leave the range of a probability."""
    if paths == "direct" and analysis is not confounding:
        pytest.skip("nothing joins the worlds, nothing switches")
    source = pf.OneStep(GRAPH.unfair(*PATHS[paths]), **SATURATED)
    for decisions in ("score", "threshold") if scores is LARGE else ("score",):
        found = analysis(Table(scores), source, sample(n, seed), decisions=decisions).table
        for (_, quantity), own in found.assign(hidden_cause=found.get("hidden_cause", "")).groupby(
            ["hidden_cause", "quantity"]
        ):
            for low, high in (("low", "high"), ("lower", "upper")):
                assert (np.diff(own[low]) <= 0.0).all()
                assert (np.diff(own[high]) >= 0.0).all()
            assert (np.diff(own[["lower", "low", "high", "upper"]]) >= 0.0).all()
            assert own["lower"].min() >= (-1.0 if quantity == "mean_unfair_effect" else 0.0)
            assert own["upper"].max() <= 1.0


@pytest.mark.parametrize("analysis", [confounding, switching])
def test_a_sample_without_a_flip_has_an_interval(analysis: Any) -> None:
    """Decisions follow Q alone, so that none differs in the sample: 0 of n rows leaves about 3 / n open."""
    source = pf.OneStep(GRAPH.unfair(*PATHS["D"]), **SATURATED)
    found = analysis(Known(lambda X: X["Q"].astype(float)), source, sample(1_500, 0), at_most=0.001)
    quantity = "mean_unfair_effect" if analysis is confounding else "piu"
    own = found.table[(found.table["quantity"] == quantity) & (found.table["gamma"] == found.parameter.neutral)]
    assert (own["low"] <= 1e-9).all()
    assert (own["upper"] >= 3 / 1_500).all()
    assert np.isnan(found.flips_at.set_index("conclusion").loc["PIU is at most 0.001", "interval"]).all()


def test_a_conclusion_that_is_never_lost_and_one_that_never_held() -> None:
    at = np.array([0.0, 1.0, 2.0])
    assert crossing(at, [np.array([1.0, 0.5, 0.1])]) == np.inf
    assert np.isnan(crossing(at, [np.array([0.0, 0.5, 0.1])]))
    assert crossing(at, [np.array([1.0, 0.0, -1.0]), np.array([2.0, 1.0, -1.0])]) == pytest.approx(1.5, abs=0.1)


def test_values_are_sorted_with_the_neutral_one_and_others_refused() -> None:
    assert SHARE.read([0.5, 0.1, 0.5]) == (0.0, 0.1, 0.5)
    for given, match in (([1.5], r"shares\[0\]=1.5 .* Of all units"), ([], "list of shares"), (0.5, "list of shares")):
        with pytest.raises(DataError, match=match):
            SHARE.read(given)
    for analysis, name, wrong in ((confounding, "gammas", 0.5), (cross_world, "deltas", 2), (switching, "gammas", 2)):
        with pytest.raises(DataError, match=rf"{name}.0.={wrong}"):
            analysis(Table(LARGE), GRAPH.unfair("A -> Y"), sample(300, 0), **{name: [wrong]})
