"""Critical values of intervals that hold together, against closed forms, draws, and other orders of estimates."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from pyrofair.effects.simultaneous import quantile_of_largest, reach_of


def test_the_quantile_of_the_largest() -> None:
    rng = np.random.default_rng(0)
    z = NormalDist().inv_cdf(0.975)
    one = rng.normal(size=400)
    same = np.column_stack([one, -2 * one, 0 * one])
    assert quantile_of_largest(same.T @ same, 0.95) == pytest.approx(z, abs=0.01)
    apart = np.kron(np.eye(4), np.ones((10, 1)))
    assert quantile_of_largest(apart.T @ apart, 0.95) == pytest.approx(
        NormalDist().inv_cdf((1 + 0.95**0.25) / 2), abs=0.01
    )
    half = np.column_stack(
        [np.r_[np.ones(50), np.ones(50), np.zeros(50)], np.r_[np.zeros(50), np.ones(50), np.ones(50)]]
    )
    drawn = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], 400_000)
    assert quantile_of_largest(half.T @ half, 0.95) == pytest.approx(np.quantile(np.abs(drawn).max(1), 0.95), abs=0.01)


def test_the_quantile_of_many_is_that_of_their_directions() -> None:
    rng = np.random.default_rng(1)
    for k in (3, 70):
        errors = rng.normal(size=(500, k))
        one = quantile_of_largest(errors.T @ errors, 0.95)
        twice = np.column_stack([errors, errors[:, ::-1], 0 * errors])
        assert quantile_of_largest(twice.T @ twice, 0.95) == pytest.approx(one, abs=0.02)
        assert one == quantile_of_largest(errors.T @ errors, 0.95)
        assert NormalDist().inv_cdf(0.975) < one <= NormalDist().inv_cdf((1 + 0.95 ** (1 / k)) / 2)
    many = quantile_of_largest(np.eye(2_001), 0.95)
    assert many == pytest.approx(NormalDist().inv_cdf((1 + 0.95 ** (1 / 2_001)) / 2))


def estimates(k: int, seed: int = 0) -> np.ndarray:
    """Errors of 300 units of k estimates, some of which are sums and multiples of others."""
    rng = np.random.default_rng(seed)
    errors = rng.normal(size=(300, k)) @ rng.normal(size=(k, k)) + rng.normal(size=(300, 1))
    errors[:, -1] = errors[:, 0] - errors[:, 1]
    return errors


def contrasts_of_sets() -> np.ndarray:
    """What each of three edges adds to each set of the others: the edges of a cube, alike but for where they meet."""
    rows = [(s, s | 1 << e) for e in range(3) for s in range(8) if not s >> e & 1]
    return np.eye(8)[[b for _, b in rows]] - np.eye(8)[[a for a, _ in rows]]


ALIKE = {
    "blocks": np.kron(np.eye(3), [[1.0, 0.5], [0.5, 1.0]]),
    "circle": np.eye(6) + 0.4 * (np.roll(np.eye(6), 1, axis=0) + np.roll(np.eye(6), -1, axis=0)),
    "sets": contrasts_of_sets() @ contrasts_of_sets().T,
    **{str(k): estimates(k).T @ estimates(k) for k in (3, 8, 30)},
}


@pytest.mark.parametrize("name", ALIKE)
@pytest.mark.parametrize("degrees", [np.inf, 7.0])
def test_the_quantile_depends_on_no_order_sign_unit_nor_rounding(name: str, degrees: float) -> None:
    law, rng = ALIKE[name], np.random.default_rng(1)
    one = quantile_of_largest(law, 0.95, degrees)
    for _ in range(3):
        at = rng.permutation(len(law))
        factor = rng.choice([1.0, -2.0, 1e-3], len(law))
        rounding = 1e-14 * np.abs(law).max() * rng.normal(size=law.shape)
        other = (law + rounding + rounding.T) * np.outer(factor, factor)
        assert quantile_of_largest(other[np.ix_(at, at)], 0.95, degrees) == pytest.approx(one, abs=1e-9)


def test_alone_it_is_the_quantile_of_students_t() -> None:
    assert reach_of(0.95) == NormalDist().inv_cdf(0.975)
    assert reach_of(0.9, 4.5) == pytest.approx(stats.t.ppf(0.95, 4.5))
    assert np.isnan(reach_of(0.9, 0.0))
    assert quantile_of_largest(np.array([[2.0]]), 0.95, 6.0) == reach_of(0.95, 6.0)


@pytest.mark.parametrize("degrees", [4.0, 20.0])
def test_several_have_the_quantile_of_a_multivariate_t(degrees: float) -> None:
    law = np.array([[1.0, 0.6, 0.0], [0.6, 1.0, -0.5], [0.0, -0.5, 1.0]])
    rng = np.random.default_rng(0)
    scale = np.sqrt(rng.chisquare(degrees, 400_000) / degrees)
    largest = np.abs(rng.multivariate_normal(np.zeros(3), law, 400_000)).max(axis=1) / scale
    found = quantile_of_largest(law, 0.95, degrees)
    assert np.mean(largest <= found) == pytest.approx(0.95, abs=0.0015)
