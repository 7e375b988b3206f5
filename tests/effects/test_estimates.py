"""Estimates and their intervals, against hand computations: clusters, splits, kinks, differences, parts of rows."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import pyrofair as pf
from pyrofair.effects.estimates import (
    AUDITED,
    CAUSAL,
    PLAIN,
    QUANTITIES_OF,
    REST,
    SIZE,
    Estimate,
    Estimates,
    Image,
    Key,
    Share,
    joint_covariance,
    mean_and_spread,
    percentiles,
    reach_of,
    reach_of_all,
    shares_of,
)  # fmt: skip
from pyrofair.effects.simultaneous import quantile_of_largest

PACKAGE = Path(pf.__file__).parent
FUNCTIONALS = (*CAUSAL, "positive", "correct", "outcome")


def made(n: int = 120, seed: int = 0, models: tuple[str, ...] = ("m",), **settings: Any) -> Estimates:
    rng = np.random.default_rng(seed)
    columns = pd.MultiIndex.from_product([models, ["threshold"], FUNCTIONALS])
    frame = pd.DataFrame(0.4 + 0.2 * rng.normal(size=(n, len(columns))), columns=columns)
    return Estimates(frame, settings.pop("weight", rng.uniform(0.5, 2.0, n)), **settings)


def key(quantity: str, model: str = "m") -> Key:
    return Key(AUDITED, model, "threshold", quantity)


# --- one estimate ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("image", [PLAIN, SIZE, REST, Image(0.5, 1)])
@pytest.mark.parametrize("value", [-0.3, -0.01, 0.02, 0.3])
def test_an_interval_is_the_image_of_the_signed_one(image: Image, value: float) -> None:
    estimate = Estimate(value, np.full(4, 0.025), image=image)
    assert estimate.spread == pytest.approx(0.05)
    inside = image.of(np.linspace(value - reach_of(0.9) * 0.05, value + reach_of(0.9) * 0.05, 10_001))
    assert estimate.interval(0.9) == pytest.approx((inside.min(), inside.max()), abs=1e-4)
    assert estimate.near_kink(0.9) == (bool(image.sign) and abs(value) < 0.05)


def test_replicates_have_the_image_of_their_percentiles() -> None:
    draws = np.linspace(-0.2, 0.6, 199)
    low, high = percentiles(draws, 0.9)
    assert Estimate(0.2, draws=draws).interval(0.9) == (low, high)
    assert Estimate(0.2, draws=draws, image=REST).interval(0.9) == (1.0 - high, 1.0)
    assert Estimate(0.2, draws=draws).spread == pytest.approx(draws.std(ddof=1))


def test_estimates_are_numbers_where_one_is_asked_for() -> None:
    for one in (Estimate(0.12345), pf.effects.Estimate(0.12345, 0.01)):
        assert (round(one, 3), round(one), float(one)) == (0.123, 0.0, 0.12345)  # type: ignore[call-overload]


def test_without_errors_and_replicates_there_is_no_interval() -> None:
    for image in (PLAIN, SIZE, REST):
        assert np.isnan(Estimate(0.3, image=image).interval(0.95)).all()


def test_a_difference_is_that_of_what_is_reported() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.normal(0.0, 0.001, (2, 50))
    upper, lower = Estimate(-0.3, one, image=REST), Estimate(0.2, two, image=SIZE)
    found = upper - lower
    assert found.value == pytest.approx(0.7 - 0.2)
    assert found.spread == pytest.approx(np.sqrt(np.sum((one - two) ** 2)))
    assert np.isnan((upper - Estimate(0.1)).interval(0.9)).all()


def test_a_difference_over_other_units_subtracts_the_errors_of_shared_ones() -> None:
    one = Estimate(0.5, np.array([0.1, 0.2]), np.array([3, 5]), more=0.01, degrees=9.0)
    two = Estimate(0.1, np.array([0.3, 0.4]), np.array([0, 3]), more=0.02, degrees=4.0)
    found = one - two
    assert found.at is not None
    assert found.errors is not None
    assert dict(zip(found.at.tolist(), found.errors.tolist(), strict=True)) == pytest.approx({0: -0.3, 3: -0.3, 5: 0.2})
    assert (found.value, found.more, found.degrees) == pytest.approx((0.4, 0.03, 4.0))


def shared(share: float, errors: np.ndarray, *, image: Image = SIZE) -> Estimate:
    return Estimate(share, errors, image=image, shares=(Share(share, 100.0),))


@pytest.mark.parametrize("count", [0, 2, 9, 91, 98, 100])
def test_an_interval_reaches_as_far_as_wilsons_where_few_rows_lie_on_one_side(count: int) -> None:
    wilson = stats.binomtest(count, 100).proportion_ci(0.95, method="wilson")
    assert shared(count / 100.0, np.full(100, 1e-6)).interval(0.95) == pytest.approx((wilson.low, wilson.high))
    drawn = Estimate(count / 100.0, draws=np.full(50, count / 100.0), shares=(Share(count / 100.0, 100.0),))
    assert drawn.interval(0.95) == pytest.approx((wilson.low, wilson.high))


def test_an_interval_of_many_rows_or_of_more_error_is_walds() -> None:
    for share, error in [(0.3, 1e-6), (0.02, 0.1)]:
        errors = np.full(100, error)
        assert shared(share, errors).interval(0.95) == Estimate(share, errors, image=SIZE).interval(0.95)


def test_a_mean_effect_counts_rows_that_turn_to_yes_and_to_no() -> None:
    up, down = (stats.binomtest(count, 100).proportion_ci(0.95, method="wilson") for count in (3, 1))
    estimate = Estimate(
        0.02,
        np.zeros(100),
        shares=shares_of("mean_unfair_effect", {"mean_unfair_effect": 0.02, "piu_lower": 0.04}, 100.0),
    )
    low, high = 0.02 - np.hypot(0.03 - up.low, down.high - 0.01), 0.02 + np.hypot(up.high - 0.03, 0.01 - down.low)
    assert estimate.interval(0.95) == pytest.approx((low, high))
    change = estimate - Estimate(0.0, np.zeros(100))
    assert change.interval(0.95) == pytest.approx((low, high))


def test_the_paper_bound_has_the_wilson_intervals_of_both_marginals() -> None:
    values = {"p_y0": 0.0, "p_ypi": 0.0, "piu_paper_bound": 0.0}
    found = Estimate(0.0, np.zeros(50), shares=shares_of("piu_paper_bound", values, 50.0)).interval(0.95)
    high = stats.binomtest(0, 50).proportion_ci(0.95, method="wilson").high
    assert found == pytest.approx((0.0, np.hypot(2.0 * high, 2.0 * high)))


def test_no_interval_leaves_the_range_of_its_quantity() -> None:
    known = made(20, weight=np.ones(20))
    wild = Estimates(10.0 * known.influence, known.weight)
    for each in wild.keys:
        low, high = wild.of(each).interval(0.95)
        if each.quantity in ("piu_lower", "piu_upper"):
            assert 0.0 <= low <= wild.of(each).estimate <= high <= 1.0


def test_sizes_are_those_of_each_quantity() -> None:
    sizes = {"m": dict.fromkeys(QUANTITIES_OF, 40.0)}
    for known, size in [(made(sizes=sizes), 40.0), (made(), np.nan)]:
        for quantity in QUANTITIES_OF:
            found = known.of(key(quantity))
            assert [each.size for each in found.shares] == pytest.approx([size] * len(found.shares), nan_ok=True)


def test_a_share_of_clustered_rows_is_of_fewer_by_the_design_effect() -> None:
    """Copies of a row count once, independent rows all; of clusters that agree only their number is known."""
    answers, codes = np.random.default_rng(0).random(80) < 0.5, np.tile(np.arange(80), 3)
    label = pd.MultiIndex.from_tuples([("m", "threshold", "positive")])
    sizes = {"m": {"positive_rate": 240.0}}
    for values, groups, size in [
        (np.tile(answers, 3), codes, 80.0 * 79 / 80),
        (np.random.default_rng(1).permutation(np.repeat([0, 1], 120)), np.arange(240), 240.0 * 239 / 240),
        (np.zeros(240), codes, 80.0),
    ]:
        frame = pd.DataFrame(np.asarray(values, dtype=float)[:, None], columns=label)
        found = Estimates(frame, np.ones(240), groups=groups, sizes=sizes).of(key("positive_rate"))
        assert [each.size for each in found.shares] == pytest.approx([size], rel=0.02)


# --- the estimates of a table ----------------------------------------------------------------------------------------


def test_every_quantity_is_the_function_of_the_means() -> None:
    known = made()
    y0, ypi, lower, rest, disagreement, positive, correct, outcome = known.mean
    expected = {
        "positive_rate": positive, "accuracy": correct, "p_y0": y0, "p_ypi": ypi, "mean_unfair_effect": ypi - y0,
        "piu_double_disagreement": 2.0 * disagreement, "majority_rate": max(outcome, 1.0 - outcome),
        "piu_lower": max(abs(lower), abs(ypi - y0)), "piu_upper": 1.0 - abs(rest),
        "piu_paper_bound": 2.0 * (y0 + ypi - 2.0 * y0 * ypi),
    }  # fmt: skip
    for quantity, value in expected.items():
        assert known.of(key(quantity)).estimate == pytest.approx(value)
        assert known.draws(0)[key(quantity)].median() == pytest.approx(value, abs=0.05)


def test_spreads_are_those_of_the_joint_covariance() -> None:
    known = made()
    share = known.weight / known.weight.sum()
    centred = share[:, None] * (known.influence.to_numpy() - known.mean)
    np.testing.assert_allclose(known.covariance, centred.T @ centred, atol=1e-16)
    y0, ypi = known.covariance[:2, :2]
    effect = known.of(key("mean_unfair_effect"))
    assert effect.spread**2 == pytest.approx(y0[0] + ypi[1] - 2.0 * y0[1])
    values, spread = mean_and_spread(known.influence.to_numpy(), known.weight)
    np.testing.assert_allclose(values, known.mean)
    assert spread[0] == pytest.approx(known.of(key("p_y0")).spread)


# --- clusters --------------------------------------------------------------------------------------------------------


def clustered(n: int = 120, number: int = 9, **settings: Any) -> Estimates:
    codes = np.random.default_rng(5).integers(0, number, n)
    return made(n, groups=codes, **settings)


def test_a_cluster_is_a_unit() -> None:
    known = clustered()
    assert known.groups is not None
    share = known.weight / known.weight.sum()
    errors = share[:, None] * (known.influence.to_numpy() - known.mean)
    sums = np.array([errors[known.groups == code].sum(axis=0) for code in range(9)]) * np.sqrt(9.0 / 8.0)
    np.testing.assert_allclose(known.covariance, sums.T @ sums, atol=1e-16)
    sizes = np.bincount(known.groups, share)
    effect = known.of(key("mean_unfair_effect"))
    np.testing.assert_allclose(effect.errors, sums[:, 1] - sums[:, 0], atol=1e-16)
    assert effect.degrees == pytest.approx(1.0 / np.sum(sizes**2) - 1.0)
    half = stats.t.ppf(0.975, effect.degrees) * np.sqrt(np.sum((sums[:, 1] - sums[:, 0]) ** 2))
    assert effect.interval(0.95) == pytest.approx((effect.value - half, effect.value + half))
    assert known.of(key("p_y0")).spread == pytest.approx(known.draws(0)[key("p_y0")].std(), rel=0.1)


def test_rows_as_clusters_are_rows() -> None:
    known, alone = made(weight=np.ones(120)), made(weight=np.ones(120), groups=np.arange(120))
    np.testing.assert_allclose(alone.covariance, known.covariance * 120.0 / 119.0, atol=1e-16)
    one, other = (each.of(key("piu_paper_bound")) for each in (known, alone))
    assert other.errors is not None
    assert one.errors is not None
    np.testing.assert_allclose(other.errors, one.errors * np.sqrt(120.0 / 119.0), atol=1e-16)
    assert other.degrees == pytest.approx(119.0)


def test_clusters_without_weight_do_not_count() -> None:
    weight = np.random.default_rng(2).uniform(0.5, 2.0, 120)
    without = clustered(weight=np.where(clustered().groups == 3, 0.0, weight))
    kept = np.flatnonzero(without.weight)
    part = without.within(kept)
    assert part.of(key("p_ypi")).degrees == pytest.approx(without.of(key("p_ypi")).degrees)
    np.testing.assert_allclose(part.covariance, without.covariance, atol=1e-16)
    at = without.of(key("p_ypi")).at
    assert at is not None
    assert at.tolist() == [0, 1, 2, 4, 5, 6, 7, 8]


def test_one_cluster_has_no_interval() -> None:
    alone = made(groups=np.zeros(120, dtype=np.int64))
    assert np.isnan(alone.of(key("mean_unfair_effect")).interval(0.95)).all()
    assert np.isnan(alone.of(key("piu_lower")).interval(0.95)).all()


def test_parts_of_clustered_rows_are_correlated_by_shared_clusters() -> None:
    known = clustered()
    halves = [known.within(np.arange(60)).of(key("p_y0")), known.within(np.arange(60, 120)).of(key("p_y0"))]
    one, other = (dict(zip(each.at.tolist(), each.errors.tolist(), strict=True)) for each in halves)  # type: ignore[union-attr]
    law = joint_covariance(halves)
    assert law[0, 1] == pytest.approx(sum(one[code] * other.get(code, 0.0) for code in one))
    assert abs(law[0, 1]) > 1e-8
    np.testing.assert_allclose(np.sqrt(np.diag(law)), [each.spread for each in halves])
    reach = reach_of_all(halves, 0.95)
    assert reach == quantile_of_largest(law, 0.95, min(each.degrees for each in halves))
    assert reach > reach_of(0.95, min(each.degrees for each in halves))


def test_parts_of_parts_are_counted_in_the_whole_table() -> None:
    part = made().within(np.arange(20, 100)).within(np.array([0, 5, 79]))
    assert part.at is not None
    assert part.at.tolist() == [20, 25, 99]
    np.testing.assert_allclose(part.mean, made().within(np.array([20, 25, 99])).mean)


@pytest.mark.slow
@pytest.mark.parametrize("number", [8, 40])
def test_intervals_of_clustered_rows_hold_the_mean(number: int) -> None:
    """Rows of a cluster share an error: rows taken as independent would cover in about half of all tables."""
    rng = np.random.default_rng(0)
    columns = pd.MultiIndex.from_tuples([("m", "threshold", each) for each in ("y0", "ypi")])
    held, rows_alone, runs = 0, 0, 2_000
    codes = np.repeat(np.arange(number), 10)
    for _ in range(runs):
        shared, own = rng.normal(size=(number, 2))[codes], rng.normal(size=(len(codes), 2))
        frame = pd.DataFrame(0.4 + 0.1 * shared + 0.1 * own, columns=columns)
        whole = Estimates(frame, np.ones(len(codes)), groups=codes)
        low, high = whole.of(key("mean_unfair_effect")).interval(0.95)
        held += low <= 0.0 <= high
        low, high = Estimates(frame, np.ones(len(codes))).of(key("mean_unfair_effect")).interval(0.95)
        rows_alone += low <= 0.0 <= high
    assert held / runs == pytest.approx(0.95, abs=0.016)  # three standard errors of the share
    assert rows_alone / runs < 0.75


def test_the_tighter_upper_bound_is_taken_if_it_is_clear_by_the_errors_of_clusters() -> None:
    """One sign for all rows is greater by 3 standard errors if copies of a row count, and by 1.5 if they do not."""
    rows, gain = made(100).influence, np.random.default_rng(1).normal(size=100)
    gain = 0.1 * ((gain - gain.mean()) / gain.std() + 0.15)
    both = rows["m", "threshold", "y0"] + rows["m", "threshold", "ypi"]
    rows["m", "threshold", "rest"] = 1.0 - both - gain
    rows = pd.concat([rows] * 4, ignore_index=True)
    for groups, added in ((None, 0.0), (np.arange(400) % 100, gain.mean())):
        found = Estimates(rows, np.ones(400), groups=groups).of(key("piu_upper"))
        assert found.estimate == pytest.approx(both.mean() + added)


# --- splits ----------------------------------------------------------------------------------------------------------


def test_moves_by_other_models_add_the_products_of_their_means() -> None:
    rng = np.random.default_rng(9)
    weight, codes = rng.uniform(0.5, 2.0, 120), rng.integers(0, 9, 120)
    moves = 0.1 * rng.normal(size=(4, 120, len(FUNCTIONALS)))
    for groups in (None, codes):
        whole, plain = (made(weight=weight, groups=groups, apart=apart) for apart in (moves, None))
        means = np.average(moves, axis=1, weights=weight)
        np.testing.assert_allclose(whole.covariance - plain.covariance, means.T @ means, atol=1e-15)
        effect, direction = whole.of(key("mean_unfair_effect")), np.zeros(len(FUNCTIONALS))
        direction[:2] = -1.0, 1.0
        assert effect.spread**2 == pytest.approx(direction @ whole.covariance @ direction)
        assert joint_covariance([effect])[0, 0] == pytest.approx(effect.spread**2)
        v, (a, b) = whole.covariance[:2, :2], whole.mean[:2]
        slope = np.array([2.0 - 4.0 * b, 2.0 - 4.0 * a])
        expected = slope @ v @ slope + 16.0 * (v[0, 0] * v[1, 1] + v[0, 1] ** 2)
        assert whole.of(key("piu_paper_bound")).spread ** 2 == pytest.approx(expected)
    part = np.arange(30, 90)
    own = np.average(moves[:, part], axis=1, weights=weight[part])
    np.testing.assert_allclose(whole.within(part).between, own.T @ own)


# --- order -----------------------------------------------------------------------------------------------------------


def test_the_order_of_rows_and_quantities_changes_no_interval() -> None:
    known = made(models=("m", "n"))
    keys = [each for each in known.keys if each.quantity != "majority_rate"]
    rows = np.random.default_rng(3).permutation(120)
    turned = Estimates(known.influence.iloc[rows], known.weight[rows])
    reach = reach_of_all([known.of(each) for each in keys], 0.95)
    assert reach_of_all([turned.of(each) for each in keys[::-1]], 0.95) == pytest.approx(reach, abs=1e-9)


# --- nothing else makes an interval ----------------------------------------------------------------------------------

QUANTILES = {"inv_cdf", "ppf", "isf", "ndtri", "stdtrit", "quantile", "nanquantile", "percentile", "nanpercentile"}
MAKERS = {"effects.estimates", "effects.simultaneous"}
NO_INTERVALS = {
    "_arviz": "equal-tailed intervals of posterior draws",
    "effects.bounds": "the exact test-set bound of accuracy",
    "inference.importance": "the width of steps between values",
    "mechanisms.diagnostics": "points at which two distributions are compared",
    "nuisances.columns": "the limits of bins",
    "programs.distributions": "the inverse of a distribution's cumulative function",
    "programs.couplings": "the inverse of a distribution's cumulative function",
    "robustness.independences": "normal scores of ranks",
    "robustness.sensitivity.switching": "values of gamma at which ends are computed",
}
FUNCTIONS_OF_SITES = {
    "classifiers.pscf.given", "classifiers.pscf.replay", "inference.inversion", "mechanisms.atoms", "sources.gformula"
}  # fmt: skip
"""These call ``programs.couplings.quantile``, the inverse of a site's distribution at given noise."""


def quantiles_in(code: str) -> set[str]:
    """Return the functions of quantiles that code calls, and the number 1.96, where it stands in it."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            found |= {name} & QUANTILES
        if isinstance(node, ast.Constant) and node.value in (1.96, 1.645, 2.576):
            found.add(str(node.value))
    return found


def test_no_other_module_makes_an_interval() -> None:
    using = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for path in PACKAGE.rglob("*.py")
        if quantiles_in(path.read_text(encoding="utf-8"))
    }
    assert using == MAKERS | {*NO_INTERVALS} | FUNCTIONS_OF_SITES


def test_the_search_finds_what_makes_an_interval() -> None:
    assert quantiles_in("half = NormalDist().inv_cdf(0.975) * spread") == {"inv_cdf"}
    assert quantiles_in("low = np.quantile(draws, 0.025)") == {"quantile"}
    assert quantiles_in("half = 1.96 * spread") == {"1.96"}
    assert quantiles_in("half = reach_of(level) * spread") == set()


def test_estimates_know_no_other_module() -> None:
    tree = ast.parse((PACKAGE / "effects" / "estimates.py").read_text(encoding="utf-8"))
    own = [each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom) and each.module]
    assert [each for each in own if each.startswith("pyrofair")] == ["pyrofair.effects.simultaneous"]
