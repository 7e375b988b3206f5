"""Bounds on PIU from marginals and given units: exact where the means are, outward where they are drawn."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from pyrofair import DataError, disagreement, effect_gap, piu_upper
from pyrofair.audits.bootstrap import measure, measure_views
from pyrofair.effects.bounds import (
    UnitMeans,
    choose_signs,
    feasible_interval,
    piu_bounds,
    split_draws,
    test_set_bound,
    unit_disagreement,
    unit_ends,
    unit_means,
)
from pyrofair.effects.potential_outcomes import CounterfactualSample


@pytest.mark.parametrize(
    ("p0", "p1", "lower", "upper", "independent", "paper", "vacuous"),
    [
        (0.25, 0.60, 0.35, 0.85, 0.55, 1.10, True),  # the example with one mediator
        (0.5, 0.5, 0.0, 1.0, 0.5, 1.0, True),  # Ypi is 1 - Y0 or Y0: PIU is 1 or 0
        (0.01, 0.02, 0.01, 0.03, 0.0296, 0.0592, False),
    ],
)
def test_known_marginals(
    p0: float, p1: float, lower: float, upper: float, independent: float, paper: float, vacuous: bool
) -> None:
    bounds = piu_bounds(p0, p1)
    found = (bounds.lower, bounds.upper, bounds.independent, bounds.paper, bounds.rubinstein)
    assert found == pytest.approx((lower, upper, independent, paper, 100.0 * paper))
    assert bounds.vacuous is vacuous


def test_scalars_give_floats_and_arrays_broadcast() -> None:
    scalar = piu_bounds(np.float64(0.1), 1)
    assert all(type(getattr(scalar, f.name)) is float for f in dataclasses.fields(scalar))
    grid = piu_bounds([[0.0], [1.0]], [0.0, 0.5, 1.0])
    np.testing.assert_array_equal(grid.lower, [[0, 0.5, 1], [1, 0.5, 0]])
    np.testing.assert_array_equal(grid.upper, grid.lower)  # one world is deterministic: the ends meet
    np.testing.assert_array_equal(grid.vacuous, [[False, True, True], [True, True, False]])


def test_theorem_1() -> None:
    rng = np.random.default_rng(0)
    joint = rng.dirichlet([0.4] * 4, size=2_000)  # P(0,0), P(0,1), P(1,0), P(1,1)
    piu = joint[:, 1] + joint[:, 2]
    bounds = piu_bounds(np.clip(joint[:, 2] + joint[:, 3], 0, 1), np.clip(joint[:, 1] + joint[:, 3], 0, 1))
    assert np.all(bounds.lower <= piu + 1e-12)
    assert np.all(piu <= bounds.upper + 1e-12)
    assert np.all(bounds.upper <= bounds.paper + 1e-12)
    assert np.all(bounds.independent <= bounds.upper + 1e-12)
    assert np.all(bounds.lower <= bounds.independent + 1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_the_interval_is_sharp(seed: int) -> None:
    """Over all joint distributions with the two marginals, PIU reaches both ends."""
    p0, p1 = np.random.default_rng(seed).uniform(size=2)
    piu = np.array([0.0, 1.0, 1.0, 0.0])
    joint = np.array([[1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 0, 1]])  # sums to 1, to p0 and to p1
    bounds = piu_bounds(p0, p1)
    for sign, end in ((1, bounds.lower), (-1, bounds.upper)):
        least = linprog(sign * piu, A_eq=joint, b_eq=[1, p0, p1], bounds=(0, 1))
        assert least.success
        assert piu @ least.x == pytest.approx(end, abs=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: piu_bounds(1.5, 0.8), r"p0 holds 1\.5, which is not in \[0, 1\]"),
        (lambda: piu_bounds(0.5, -0.1), r"p1 holds -0\.1.*normalise its weights"),
        (lambda: piu_bounds([0.1, 0.2], [0.1, 0.2, 0.3]), r"Shapes \(2,\) and \(3,\) do not broadcast"),
        (lambda: feasible_interval(0.5, 1.2), r"level holds 1\.2"),
        (lambda: feasible_interval([0.1, 0.2], [0.1, 0.2, 0.3]), "do not broadcast"),
    ],
)
def test_wrong_marginals_are_refused(call: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        call()


def test_feasible_interval_is_the_region_of_the_constraint() -> None:
    p0, level, p1 = np.linspace(0, 1, 41)[:, None], np.array([0, 0.2, 0.5, 0.8, 1.0]), np.linspace(0, 1, 101)
    low, high = feasible_interval(p0, level)
    assert low.shape == high.shape == (41, 5)
    penalty = p1 * (1 - p0[..., None]) + (1 - p1) * p0[..., None] - level[:, None]
    clear = np.abs(penalty) > 1e-9  # on the edge the two may round differently
    inside = (low[..., None] <= p1) & (p1 <= high[..., None])
    np.testing.assert_array_equal(inside[clear], (penalty <= 0)[clear])


def test_feasible_interval_exact() -> None:
    """The paper's Figure 2: near 0 only (0, 0) and (1, 1) remain, and .5 is never feasible below 1/2."""
    low, high = feasible_interval([0.0, 0.1, 0.5, 1.0], 0.2)
    np.testing.assert_allclose(low, [0, 0, np.nan, 0.8])
    np.testing.assert_allclose(high, [0.2, 0.125, np.nan, 1])
    assert [end.item() for end in feasible_interval(0.5, 0.5)] == [0, 1]
    assert [end.item() for end in feasible_interval(0.0, 0.0)] == [0, 0]
    assert np.isnan(feasible_interval(0.3, 0.2)).all()


@pytest.mark.parametrize(
    ("errors", "n", "low", "high"), [(24, 100, 0.17135, 0.32060), (2_696, 10_870, 0.24121, 0.25493)]
)
def test_test_set_bound_exact(errors: int, n: int, low: float, high: float) -> None:
    assert test_set_bound(errors, n) == pytest.approx((low, high), abs=5e-6)


def test_test_set_bound_inverts_the_tails() -> None:
    from scipy.stats import binom

    low, high = test_set_bound(7, 50, delta=0.1)
    assert binom.sf(6, 50, low) == pytest.approx(0.1)
    assert binom.cdf(7, 50, high) == pytest.approx(0.1)


def test_test_set_bound_at_the_ends() -> None:
    assert test_set_bound(0, 100) == pytest.approx((0, 1 - 0.05 ** (1 / 100)))
    assert test_set_bound(100, 100) == pytest.approx((0.05 ** (1 / 100), 1))
    low, high = test_set_bound(np.int64(3), 10.0)  # type: ignore[arg-type]
    assert type(low) is type(high) is float


@pytest.mark.parametrize("delta", [0, 0.5, 1.2, np.nan])
def test_test_set_bound_refuses_a_delta(delta: float) -> None:
    with pytest.raises(DataError, match="miss probability of one side"):
        test_set_bound(1, 10, delta)


@pytest.mark.parametrize(
    ("errors", "n"),
    [
        *[(-1, 10), (11, 10), (0, 0), (0.24, 100), (1, 2.5), (np.nan, 10), (1, 1e300), (1, 2**60), (1, 10**400)],
        *[("1", 2), (True, 2), (None, 2), (1, np.inf), (np.nan, 2), (1, 1.5)],
    ],
)
def test_what_is_no_count_is_refused(errors: Any, n: Any) -> None:
    with pytest.raises(
        DataError, match=r"(errors|n)=.* must be an integer from .* (not the error rate|number of test rows)\."
    ):
        test_set_bound(errors, n)


def test_the_most_rows_still_have_exact_tails() -> None:
    n = 10**15
    assert test_set_bound(0, n)[1] == pytest.approx(-np.log(0.05) / n, rel=1e-9)
    assert test_set_bound(1, float(n))[0] == pytest.approx(-np.log(0.95) / n, rel=1e-9)


@pytest.mark.parametrize("wrong", [np.ma.masked_equal([0.1, 0.5], 0.5), "0.5", 0.5j, ["a"], object()])
def test_probabilities_are_real_numbers(wrong: Any) -> None:
    for call in (piu_bounds, feasible_interval):
        with pytest.raises(DataError, match=r"p0 is a masked array that hides 1 of its 2|p0=.* must be a number in"):
            call(wrong, 0.5)


def drawn(
    a: NDArray[Any], b: NDArray[Any], draws: int, rng: np.random.Generator
) -> tuple[tuple[CounterfactualSample, CounterfactualSample], tuple[NDArray[Any], NDArray[Any]]]:
    """Units of equal weight whose decisions are drawn with the chances a and b."""
    k = len(a)
    unit = np.repeat(np.arange(k), draws)
    scores = tuple((rng.random(k * draws) < np.repeat(p, draws)).astype(float) for p in (a, b))
    one, other = (
        CounterfactualSample(pd.DataFrame({"score": s}), np.full(k * draws, 1.0 / (k * draws)), unit) for s in scores
    )
    return (one, other), scores  # type: ignore[return-value]


def views_of(worlds: Any) -> tuple[list[Any], list[Any]]:
    views = list(split_draws(worlds))
    return [tuple(world.rows["score"].to_numpy() for world in pair) for pair in views], views


def test_exact_means_give_the_functionals() -> None:
    rng = np.random.default_rng(0)
    a, b, w = rng.random(20), rng.random(20), rng.dirichlet(np.ones(20))
    one, other = (CounterfactualSample(pd.DataFrame({"x": p}), w, np.arange(20)) for p in (a, b))
    means = unit_means((a, b), (one, other))
    np.testing.assert_allclose(means.weight, w)
    views = [means, means]
    scored = one.scored(a), other.scored(b)
    assert unit_ends(views, choose_signs(views)) == pytest.approx(
        (effect_gap(*scored).item(), piu_upper(*scored).item())
    )
    assert unit_disagreement(views) == pytest.approx(disagreement(*scored).item())


def test_few_draws_err_outward() -> None:
    """Case C3: a = b = .5 has [0, 1]; 20 draws as they stand give [.1254, .8746], by enumeration."""
    rng = np.random.default_rng(1)
    half = np.full(4000, 0.5)
    worlds, scores = drawn(half, half, 20, rng)
    plain, _ = measure(scores, worlds)
    assert plain["piu_lower"] == pytest.approx(0.1254, abs=0.005)
    assert plain["piu_upper"] == pytest.approx(0.8746, abs=0.005)
    found, _ = measure_views(*views_of(worlds))
    assert found["piu_lower"] == pytest.approx(0.0, abs=0.01)
    assert found["piu_upper"] == pytest.approx(1.0, abs=0.01)
    assert found["piu_double_disagreement"] == pytest.approx(1.0, abs=0.01)


def test_units_away_from_the_kinks() -> None:
    """Case C3: a = .3, b = .4 has [.10, .70]."""
    rng = np.random.default_rng(2)
    worlds, _ = drawn(np.full(3000, 0.3), np.full(3000, 0.4), 400, rng)
    found, _ = measure_views(*views_of(worlds))
    assert found["piu_lower"] == pytest.approx(0.10, abs=0.003)
    assert found["piu_upper"] == pytest.approx(0.70, abs=0.003)
    assert found["piu_double_disagreement"] == pytest.approx(2 * (0.7 - 0.24), abs=0.003)


def test_expectations_lie_outside_the_true_ends() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.random(300), rng.random(300)
    true = np.abs(a - b).mean(), 1.0 - np.abs(1.0 - a - b).mean()
    found = []
    for _ in range(60):
        worlds, _ = drawn(a, b, 10, rng)
        values, _ = measure_views(*views_of(worlds))
        found.append((values["piu_lower"], values["piu_upper"]))
    lower, upper = np.mean(found, axis=0)
    error = np.std(found, axis=0) / np.sqrt(60)
    assert lower < true[0] + 2 * error[0]
    assert upper > true[1] - 2 * error[1]
    assert lower > true[0] - 0.1


def noisy_views(a: NDArray[Any], b: NDArray[Any], common: float, own: float, rng: np.random.Generator) -> list[Any]:
    """Two views of equal units, each with an error that all its units have in common, and own ones of each."""
    k = len(a)
    return [
        UnitMeans(np.full(k, 1 / k), *(p + rng.normal(0.0, common) + rng.normal(0.0, own, k) for p in (a, b)))
        for _ in range(2)
    ]


@pytest.mark.parametrize("gap", [0.0, 0.01, 0.05, 0.3])
@pytest.mark.parametrize("middle", [0.5, 0.45, 0.2])
@pytest.mark.parametrize("alternating", [True, False])
@pytest.mark.some(8)
def test_errors_in_common_to_all_units_err_outward(gap: float, middle: float, alternating: bool) -> None:
    """At the kinks and off them: a = b = .5 has [0, 1], and one sign for all where it is tighter gives [.016, .984]."""
    rng = np.random.default_rng(8)
    side = np.where(np.arange(50) % 2 == 0, 1.0, -1.0 if alternating else 1.0)
    a, b = middle - gap / 2 * side, middle + gap / 2 * side
    views = [noisy_views(a, b, 0.02, 0.05, rng) for _ in range(400)]
    found = np.array([unit_ends(each, choose_signs(each)) for each in views])
    error = found.std(axis=0) / np.sqrt(len(found))
    assert found[:, 0].mean() < np.abs(b - a).mean() + 3.0 * error[0]
    assert found[:, 1].mean() > 1.0 - np.abs(1.0 - a - b).mean() - 3.0 * error[1]
    if gap == 0.0 and middle == 0.5:
        assert error.max() < 0.001
        assert tuple(found.mean(axis=0)) == pytest.approx((0.0, 1.0), abs=0.003)
    if gap == 0.3:
        assert found[:, 0].mean() == pytest.approx(0.3, abs=0.005)


def test_never_wider_than_the_marginals_but_for_errors() -> None:
    """Without errors the interval given units lies inside that of the marginals; so it does where one sign is right."""
    rng = np.random.default_rng(4)
    for _ in range(200):
        k = int(rng.integers(1, 6))
        view = UnitMeans(rng.dirichlet(np.ones(k)), rng.random(k), rng.random(k))
        p0, p1 = view.weight @ view.first, view.weight @ view.second
        lower, upper = unit_ends([view, view], choose_signs([view, view]))
        assert lower >= abs(p1 - p0) - 1e-12
        assert upper <= 1.0 - abs(1.0 - p0 - p1) + 1e-12


def test_units_that_differ_by_drawing_alone_have_one_sign() -> None:
    """a = .3, b = .35 from 20 draws a view: signs unit by unit give .013, one sign .05."""
    rng = np.random.default_rng(5)
    found = []
    for _ in range(20):
        worlds, _ = drawn(np.full(500, 0.3), np.full(500, 0.35), 40, rng)
        found.append(measure_views(*views_of(worlds))[0])
    lower, marginal = (np.mean([each[name] for each in found]) for name in ("piu_lower", "mean_unfair_effect"))
    assert lower == pytest.approx(0.05, abs=0.005)
    assert lower == pytest.approx(marginal, abs=0.003)


def test_rows_with_probabilities_are_no_draws() -> None:
    """Units whose values are summed over have no noise of drawing: each keeps its sign."""
    unit = np.repeat(np.arange(2), 2)
    one, other = (
        CounterfactualSample(pd.DataFrame({"x": range(4)}), np.array(p) / 2, unit)
        for p in ([0.6, 0.4, 0.6, 0.4], [0.4, 0.6, 0.8, 0.2])
    )
    scores = np.array([0.0, 1.0, 0.0, 1.0])
    found, _ = measure_views([(scores, scores)] * 2, [(one, other)] * 2)
    assert found["piu_lower"] == pytest.approx(0.2)
    assert found["mean_unfair_effect"] == pytest.approx(0.0)


def test_replicates_keep_their_signs() -> None:
    """With the signs held the ends are linear in the means, so that a replicate may leave the kink behind."""
    weight = np.full(4, 0.25)
    apart = UnitMeans(weight, np.full(4, 0.2), np.array([0.4, 0.4, 0.1, 0.1]))
    signs = choose_signs([apart, apart])
    moved = UnitMeans(weight, np.full(4, 0.2), np.array([0.1, 0.4, 0.1, 0.1]))
    assert unit_ends([moved, moved], signs)[0] == pytest.approx(0.25 * (-0.1 + 0.2 + 0.1 + 0.1))


def test_split_draws() -> None:
    """Each draw is in one view, each unit keeps its weight in both."""
    unit = np.array([5, 5, 7, 5, 7, 7])
    world = CounterfactualSample(pd.DataFrame({"x": range(6)}), np.array([0.1, 0.2, 0.3, 0.1, 0.2, 0.1]), unit)
    (one, _), (other, _) = split_draws((world, world))
    assert sorted([*one.rows["x"], *other.rows["x"]]) == list(range(6))
    for half in (one, other):
        np.testing.assert_allclose(np.bincount(half.unit_index, half.weight), [0.4, 0.6])
    alone = CounterfactualSample(pd.DataFrame({"x": range(2)}), np.full(2, 0.5), np.arange(2))
    assert split_draws((alone, alone)) == ((alone, alone),)
    without = CounterfactualSample(alone.rows, alone.weight)
    assert split_draws((without, without)) == ((without, without),)


def test_reweighted_units() -> None:
    world = CounterfactualSample(pd.DataFrame({"x": range(4)}), np.full(4, 0.25), np.array([3, 3, 9, 9]))
    assert (world.units, world.effective_size) == (2, pytest.approx(2.0))
    np.testing.assert_allclose(world.reweighted(np.array([3.0, 1.0])).weight, [0.375, 0.375, 0.125, 0.125])
    plain = CounterfactualSample(world.rows, world.weight)
    np.testing.assert_allclose(plain.reweighted(np.array([1.0, 0.0, 0.0, 1.0])).weight, [0.5, 0.0, 0.0, 0.5])


def test_units_that_do_not_match() -> None:
    rows = pd.DataFrame({"x": range(2)})
    world = CounterfactualSample(rows, np.full(2, 0.5), np.arange(2))
    with pytest.raises(DataError, match="name no units"):
        unit_means((np.ones(2), np.ones(2)), (world, CounterfactualSample(rows, np.full(2, 0.5))))
    lacking = CounterfactualSample(rows, np.array([1.0, 0.0]), np.arange(2))
    with pytest.raises(DataError, match="weight in one world only"):
        unit_means((np.ones(2), np.ones(2)), (world, lacking))
