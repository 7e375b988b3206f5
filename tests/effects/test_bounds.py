from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from pyrofair.effects.bounds import PIUBounds, feasible_interval, piu_bounds, test_set_bound
from pyrofair.exceptions import DataError


def test_one_mediator_example() -> None:
    bounds = piu_bounds(0.25, 0.60)
    assert bounds.lower == pytest.approx(0.35)
    assert bounds.upper == pytest.approx(0.85)
    assert bounds.independent == pytest.approx(0.55)
    assert bounds.paper == pytest.approx(1.10)
    assert bounds.rubinstein == pytest.approx(110.0)
    assert bounds.vacuous is True


def test_a_fair_coin_is_inconclusive() -> None:
    """Y0 = Z and Ypi = 1 - Z, or Y0 = Ypi = Z: the marginals are the same, PIU is 1 or 0."""
    bounds = piu_bounds(0.5, 0.5)
    assert (bounds.lower, bounds.upper, bounds.paper, bounds.vacuous) == (0.0, 1.0, 1.0, True)


def test_small_bounds_are_not_vacuous() -> None:
    bounds = piu_bounds(0.01, 0.02)
    assert bounds.paper == pytest.approx(2 * (0.01 * 0.98 + 0.99 * 0.02))
    assert bounds.vacuous is False


def test_scalars_give_floats_and_arrays_broadcast() -> None:
    scalar = piu_bounds(np.float64(0.1), 1)
    assert all(type(getattr(scalar, f.name)) is float for f in dataclasses.fields(scalar))
    grid = piu_bounds([[0.0], [1.0]], [0.0, 0.5, 1.0])
    np.testing.assert_array_equal(grid.lower, [[0, 0.5, 1], [1, 0.5, 0]])
    np.testing.assert_array_equal(grid.upper, grid.lower)  # one world is deterministic: the ends meet
    np.testing.assert_array_equal(grid.vacuous, [[False, True, True], [True, True, False]])


def test_bounds_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        piu_bounds(0.1, 0.2).lower = 0.0  # type: ignore[misc]
    assert isinstance(piu_bounds(0.1, 0.2), PIUBounds)


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
    ("p0", "p1", "message"),
    [
        (1.5, 0.8, r"p0 holds 1\.5, which is not in \[0, 1\]"),
        (0.5, -0.1, r"p1 holds -0\.1.*normalise its weights"),
        (0.5, [0.1, np.nan], "p1 holds nan"),
        ([0.1, 0.2], [0.1, 0.2, 0.3], r"Shapes \(2,\) and \(3,\) do not broadcast"),
    ],
)
def test_wrong_marginals_are_refused(p0: object, p1: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        piu_bounds(p0, p1)  # type: ignore[arg-type]


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


def test_feasible_interval_refuses_what_is_no_probability() -> None:
    with pytest.raises(DataError, match=r"level holds 1\.2"):
        feasible_interval(0.5, 1.2)
    with pytest.raises(DataError, match="p0 holds nan"):
        feasible_interval(np.nan, 0.2)
    with pytest.raises(DataError, match="do not broadcast"):
        feasible_interval([0.1, 0.2], [0.1, 0.2, 0.3])


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


@pytest.mark.parametrize(("errors", "n"), [(-1, 10), (11, 10), (0, 0), (0.24, 100), (1, 2.5), (np.nan, 10)])
def test_test_set_bound_refuses_what_is_no_count(errors: float, n: float) -> None:
    with pytest.raises(
        DataError, match=r"(errors|n)=.* must be an integer .* (not the error rate|number of test rows)\."
    ):
        test_set_bound(errors, n)  # type: ignore[arg-type]


@pytest.mark.parametrize("delta", [0, 0.5, 1.2, np.nan])
def test_test_set_bound_refuses_a_delta(delta: float) -> None:
    with pytest.raises(DataError, match="miss probability of one side"):
        test_set_bound(1, 10, delta)


def test_test_set_bound_is_no_test() -> None:
    assert test_set_bound.__test__ is False  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "counts", [(1, 1e300), (1, 2**60), (1, 10**400), ("1", 2), (True, 2), (None, 2), (1, np.inf), (np.nan, 2), (1, 1.5)]
)
def test_counts_beyond_exact_tails_are_refused(counts: tuple[Any, Any]) -> None:
    with pytest.raises(DataError, match=r"(n|errors)=.* must be an integer from"):
        test_set_bound(*counts)


def test_the_most_rows_still_have_exact_tails() -> None:
    n = 10**15
    assert test_set_bound(0, n)[1] == pytest.approx(-np.log(0.05) / n, rel=1e-9)
    assert test_set_bound(1, float(n))[0] == pytest.approx(-np.log(0.95) / n, rel=1e-9)


@pytest.mark.parametrize("wrong", [np.ma.masked_equal([0.1, 0.5], 0.5), "0.5", 0.5j, ["a"], object()])
def test_probabilities_are_real_numbers(wrong: Any) -> None:
    for call in (piu_bounds, feasible_interval):
        with pytest.raises(DataError, match=r"p0 is a masked array that hides 1 of its 2|p0=.* must be a number in"):
            call(wrong, 0.5)
