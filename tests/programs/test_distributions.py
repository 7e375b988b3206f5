"""The truncated normal distribution against SciPy's."""

from __future__ import annotations

import pickle

import numpy as np
import pyro
import pytest
import torch
from pyro import poutine
from scipy import stats

from pyrofair import SEM, CausalGraph, PyrofairError
from pyrofair.programs.distributions import TruncatedNormal
from tests.programs.models import through, units

LAWS = [
    (2.0, 1.0, 0.1, 3.0),
    (3.0, 2.0, 0.1, 3.0),
    (0.0, 1.0, 2.5, 4.0),
    (0.0, 1.0, -9.0, -6.0),
    (1.0, 0.5, 4.0, 30.0),
    (0.0, 3.0, -1.0, np.inf),
    (0.0, 1.0, -np.inf, 0.5),
    (5.0, 2.0, -np.inf, np.inf),
]
SETS = pytest.mark.parametrize(("loc", "scale", "low", "high"), LAWS)


def scipy_distribution(loc: float, scale: float, low: float, high: float) -> stats.rv_continuous:
    return stats.truncnorm((low - loc) / scale, (high - loc) / scale, loc=loc, scale=scale)


def double(*numbers: float) -> TruncatedNormal:
    return TruncatedNormal(*(torch.tensor(x, dtype=torch.float64) for x in numbers))


@SETS
def test_the_distribution_is_that_of_scipy(loc: float, scale: float, low: float, high: float) -> None:
    distribution, right = double(loc, scale, low, high), scipy_distribution(loc, scale, low, high)
    u = np.array([1e-6, 0.01, 0.3, 0.5, 0.9, 1 - 1e-6])
    x = right.ppf(u)
    np.testing.assert_allclose(distribution.icdf(torch.tensor(u)), x, rtol=1e-8)
    np.testing.assert_allclose(distribution.cdf(torch.tensor(x)), u, rtol=1e-8)
    np.testing.assert_allclose(distribution.log_prob(torch.tensor(x)), right.logpdf(x), rtol=1e-9)
    np.testing.assert_allclose(distribution.mean, right.mean(), rtol=1e-8)
    np.testing.assert_allclose(distribution.variance, right.var(), rtol=1e-6)


@SETS
def test_draws_follow_the_distribution_and_stay_inside(loc: float, scale: float, low: float, high: float) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        for draw in (TruncatedNormal(loc, scale, low, high).sample, TruncatedNormal(loc, scale, low, high).rsample):
            x = draw((20_000,)).numpy()
            assert x.dtype == np.float32
            assert np.isfinite(x).all()
            assert x.min() >= np.float32(low)
            assert x.max() <= np.float32(high)
            assert stats.kstest(x, scipy_distribution(loc, scale, low, high).cdf).pvalue > 1e-3


def test_outside_the_ends_there_is_nothing() -> None:
    distribution = TruncatedNormal(2.0, 1.0, 0.1, 3.0, validate_args=False)
    x = torch.tensor([0.0, 3.5])
    assert distribution.log_prob(x).tolist() == [-np.inf, -np.inf]
    assert distribution.cdf(x).tolist() == [0.0, 1.0]
    assert distribution.support.check(torch.tensor([0.0, 0.1, 3.0, 3.5])).tolist() == [False, True, True, False]
    with pytest.raises(ValueError, match="support"):
        TruncatedNormal(2.0, 1.0, 0.1, 3.0, validate_args=True).log_prob(x)


def test_parameters_broadcast_and_expand() -> None:
    distribution = TruncatedNormal(torch.tensor([0.0, 2.0]), 1.0, 0.1, 3.0)
    assert distribution.batch_shape == (2,)
    wide = distribution.expand((4, 2))
    assert wide.batch_shape == (4, 2)
    assert wide.sample().shape == (4, 2)
    torch.testing.assert_close(wide.mean, distribution.mean.expand(4, 2))
    torch.testing.assert_close(wide.log_prob(torch.ones(4, 2)), distribution.log_prob(torch.ones(2)).expand(4, 2))
    assert distribution.icdf(torch.full((5, 1), 0.5)).shape == (5, 2)


def test_draws_have_the_gradient_of_the_quantile() -> None:
    loc = torch.tensor(1.0, requires_grad=True)
    distribution = TruncatedNormal(loc, 1.0, 0.0, 3.0)
    distribution.icdf(torch.tensor(0.3)).backward()
    step = 1e-4
    above, below = (scipy_distribution(1.0 + d, 1.0, 0.0, 3.0).ppf(0.3) for d in (step, -step))
    assert loc.grad == pytest.approx((above - below) / (2 * step), rel=1e-3)
    assert distribution.rsample((3,)).requires_grad
    assert not distribution.sample((3,)).requires_grad


def test_it_works_in_a_plate_and_is_pickled() -> None:
    def program() -> torch.Tensor:
        with pyro.plate("units", 7):
            return pyro.sample("U", TruncatedNormal(2.0, 1.0, 0.1, 3.0))

    site = poutine.trace(program).get_trace().nodes["U"]
    assert site["value"].shape == (7,)
    assert site["fn"].log_prob(site["value"]).shape == (7,)
    again = pickle.loads(pickle.dumps(TruncatedNormal(2.0, 1.0, 0.1, 3.0)))
    assert again.mean == TruncatedNormal(2.0, 1.0, 0.1, 3.0).mean


def test_a_node_drawn_from_it_is_coupled_through_its_quantile() -> None:
    program = units(M=lambda v: TruncatedNormal(1.0 + v.A, 1.0, 0.0, 3.0))
    assert CausalGraph.from_pyro(program, nodes=["A", "M"], sensitive="A", outcome="M").edges == (("A", "M"),)
    low, high = SEM(program, through("M")).nodes(500, random_state=0)
    u = scipy_distribution(1.0, 1.0, 0.0, 3.0).cdf(low["M"])
    np.testing.assert_allclose(high["M"], scipy_distribution(2.0, 1.0, 0.0, 3.0).ppf(u), atol=1e-4)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ((2.0, 1.0, 3.0, 0.1), "needs low < high; got low=3.0 and high=0.1"),
        ((0.0, 1.0, 50.0, 60.0), "no mass between 50.0 and 60.0 that torch.float32 can hold"),
    ],
)
def test_ends_in_the_wrong_order_or_without_mass_are_refused(given: tuple[float, ...], match: str) -> None:
    with pytest.raises(PyrofairError, match=match):
        TruncatedNormal(*given)
