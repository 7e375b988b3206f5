"""The loop of variational inference, its convergence rule, and the No-U-Turn wrapper."""

from __future__ import annotations

import math
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import pyro
import pytest
import torch
from pyro.infer.autoguide import init_to_median

from pyrofair._arviz import diagnose
from pyrofair.inference.samplers import Schedule, descend, fall, fit_guide, fitting, run_nuts, sizes_of

dist: Any = pyro.distributions


def pair() -> None:
    a = pyro.sample("a", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    b = pyro.sample("b", dist.Gamma(2.0, 1.0))
    pyro.sample("y", dist.Normal(a.sum(), b), obs=torch.tensor(1.0))


def test_a_straight_line_falls_by_its_slope() -> None:
    losses = [10.0] * 12 + [4.0, 3.0, 2.0, 1.0]
    assert fall(losses).drop == pytest.approx(3.0)
    assert fall(losses).error == pytest.approx(0.0, abs=1e-7)
    assert fall([3.0, 1.0]).drop == 2.0
    assert math.isnan(fall([3.0, 1.0]).error)
    assert math.isnan(fall([3.0]).drop)


def test_settled_allows_for_standard_errors() -> None:
    noisy = np.random.default_rng(0).normal(size=400)
    trend = fall(noisy)
    assert trend.error == pytest.approx(math.sqrt(12 / 100), rel=0.2)
    assert trend.settled(abs(trend.drop) + 2.1 * trend.error)
    assert not trend.settled(trend.drop + 1.9 * trend.error)
    assert not fall([1.0]).settled(math.inf)


def test_steps_shrink_geometrically_after_the_steady_share() -> None:
    sizes = [Schedule(31, 0.1, steady=1 / 3, final=0.01).size(step) for step in range(31)]
    assert sizes[:11] == [1.0] * 11
    ratios = [b / a for a, b in pairwise(sizes[11:])]
    np.testing.assert_allclose(ratios, ratios[0])
    assert sizes[-1] == pytest.approx(0.01)
    assert Schedule(1, 0.1).size(0) == 1.0


def test_the_loop_steps_averages_and_ends() -> None:
    number = torch.tensor([5.0], requires_grad=True)
    average = [number.detach().clone()]
    losses = list(
        descend(lambda _: (number - 2.0).square().sum(), [number], repeat(None), Schedule(300, 0.2), average=average)
    )
    assert len(losses) == 300
    assert losses[0] == 9.0
    assert number.item() == pytest.approx(2.0, abs=1e-3)
    assert average[0].item() == pytest.approx(number.item())
    assert not list(descend(lambda _: number.sum(), [number], [], Schedule(10, 0.1)))


def test_guides_leave_the_parameter_store_alone() -> None:
    pyro.clear_param_store()
    with fitting(stored=True):
        family, losses = fit_guide(pair, "normal", Schedule(20, 0.1), init=init_to_median)
        assert set(family()) == {"a", "b"}
    assert len(losses) == 20
    assert not list(pyro.get_param_store())


def test_unknown_sites_have_sizes() -> None:
    assert sizes_of(pair) == {"a": 3, "b": 1}


def test_chains_hold_constrained_draws_and_diagnostics() -> None:
    with torch.random.fork_rng(), fitting():
        torch.manual_seed(0)
        found = run_nuts(pair, ["b", "a"], draws=30, warmup=30, chains=2)
    assert found.samples["a"].shape == (2, 30, 3)
    assert found.samples["b"].shape == found.lp.shape == found.diverging.shape == (2, 30)
    assert (found.samples["b"] > 0).all()
    assert not found.text
    sizes, mixing = diagnose({name: values.numpy() for name, values in found.samples.items()})
    assert sizes["a"].shape == mixing["a"].shape == (3,)


def test_one_chain_is_compared_half_with_half() -> None:
    rng = np.random.default_rng(0)
    still, moved = rng.normal(size=(2, 1, 400))
    moved[:, 200:] += 3.0
    _, mixing = diagnose({"still": still, "moved": moved})
    assert mixing["still"] < 1.05
    assert mixing["moved"] > 1.5
