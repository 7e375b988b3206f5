"""Point fits without Pyro: densities and slopes against distributions and autograd, and stacked replicates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import pyrofair as pf
from pyrofair import DataError, LearnedMechanisms, learn_mechanisms
from pyrofair.mechanisms.conditional import ConditionalDistribution, Network
from pyrofair.mechanisms.densities import Density
from pyrofair.mechanisms.families import Atoms, Binary, Bounded, Categorical, Continuous, Integer, Positive, features
from pyrofair.mechanisms.fitting import Rows
from pyrofair.mechanisms.flat import FlatNetwork
from pyrofair.mechanisms.newton import LastLayer

N = 60
FAMILIES: dict[str, Any] = {
    "binary": Binary(0.3),
    "categorical": Categorical(("a", "b", "c"), (0.2, 0.3, 0.5)),
    "continuous": Continuous(2.0, 3.0),
    "positive": Positive(1.0, 0.5, 3),
    "integer": Integer(0, 30, 12.0, 5.0),
    "wide integer": Integer(0, 3000, 1200.0, 500.0),
    "one component": Continuous(0.0, 1.0, 1),
    "bounded": Bounded(0.2, 1.3, 3, -1.0, 4.0),
    "below": Bounded(0.2, 1.3, 3, -math.inf, 4.0),
    "atoms": Atoms((0.0, 1.5), (0.3, 0.2, 0.5), Positive(1.0, 0.5, 3)),
}
each_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def some_values(family: Any) -> torch.Tensor:
    """Values of a family, both ends of integers among them."""
    torch.manual_seed(0)
    with torch.no_grad():
        found = family.distribution(family.offset.double().expand(N, -1)).sample().double()
    if isinstance(family, Integer):
        found[:2] = torch.tensor([family.low, family.high], dtype=torch.float64)
    return torch.as_tensor(found)


@each_family
def test_log_densities_and_slopes_are_those_of_the_distribution(family: Any) -> None:
    values = some_values(family)
    out = (family.offset.double() + torch.randn(N, family.size, dtype=torch.float64)).requires_grad_()
    expected = family.distribution(out).log_prob(values)
    (gradient,) = torch.autograd.grad(expected.sum(), out)
    found, slope = Density.of(family, values)(out.detach())
    np.testing.assert_allclose(found, expected.detach(), atol=1e-10)
    # The middle of a step narrower than .01 standard deviations stands for it in both, to five digits.
    np.testing.assert_allclose(slope, gradient, atol=0.02 if family == FAMILIES["wide integer"] else 1e-9)


@each_family
@pytest.mark.parametrize("hidden", [(), (4,), (5, 4)])
def test_slopes_of_a_network_are_those_of_autograd(family: Any, hidden: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    reads: dict[str, Any] = {"A": Binary(0.5), "Q": Continuous(0.0, 2.0)}
    network = Network((1, 1), hidden, family.size, direct=True)
    mechanism = ConditionalDistribution("M", family, reads, network)
    columns = {"A": torch.randint(0, 2, (N,)).float(), "Q": torch.randn(N), "M": some_values(family).float()}
    rows = Rows(columns, torch.rand(N) + 0.5, torch.arange(N), torch.arange(0))
    flat, batch = FlatNetwork(mechanism, rows), torch.arange(0, N, 3)
    with torch.no_grad():
        flat.numbers.add_(0.1 * torch.randn(len(flat.numbers)))
    found = flat.loss(batch)
    own = {name: value.requires_grad_() for name, value in flat.named(flat.numbers).items()}
    values = rows.at(batch)
    each = mechanism.at(own)(values).log_prob(values["M"])
    prior = torch.zeros(())
    for layer in range(1, len(network.shapes) + 1):
        *weight, bias = network.precisions(layer)
        prior = prior + 0.5 * (torch.stack(weight).unsqueeze(1) * own[f"M__weight_{layer}"].square()).sum()
        prior = prior + 0.5 * bias * own[f"M__bias_{layer}"].square().sum()
    loss = prior - (rows.scale(batch) * each).sum()
    gradient = torch.cat([each.reshape(-1) for each in torch.autograd.grad(loss, [*own.values()])])
    assert found.item() == pytest.approx(loss.item(), rel=1e-5)
    scale = float(gradient.abs().max())
    np.testing.assert_allclose(flat.slopes, gradient, atol=2e-3 * scale if "wide" in str(family) else 1e-4 * scale)


def table(n: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    A, Q = rng.integers(2, size=n), rng.integers(-1, 2, size=n)
    job = np.array(["cook", "nurse", "smith"])[(rng.random(n) * (1.5 + A)).astype(int)]
    hours = np.where(rng.random(n) < 0.4, 40, rng.normal(36 + 4 * A, 9, n).round()).astype(int)
    pay = np.where(rng.random(n) < 0.3, 0.0, rng.lognormal(0.3 * A, size=n))
    return pd.DataFrame({"A": A, "Q": Q, "job": job, "hours": hours, "pay": pay, "Y": A})


@pytest.fixture(scope="module")
def learned() -> LearnedMechanisms:
    graph = pf.CausalGraph("{A Q} -> job; {A Q job} -> hours; {A hours} -> pay; pay -> Y", sensitive="A", outcome="Y")
    return learn_mechanisms(
        table(), graph, nodes=["A", "job", "hours", "pay"], hidden=(6,), steps=250, progress=False, random_state=0
    )


@pytest.fixture
def weights() -> list[Any]:
    rng = np.random.default_rng(1)
    return [rng.exponential(size=400) * (rng.random(400) < 0.9) for _ in range(4)]


@pytest.mark.filterwarnings("ignore:The distribution of .* may not have settled")
def test_replicates_together_are_those_one_by_one(learned: LearnedMechanisms, weights: list[Any]) -> None:
    bad = np.isin(np.arange(400), learned.rows.held.numpy())
    *together, failed = learned.refits([*weights, bad], 0)
    assert isinstance(failed, DataError)
    assert "training rows have a weight above 0" in str(failed)
    for found, weight in zip(together, weights, strict=True):
        alone = learned.refit(weight, 0)
        assert isinstance(found, LearnedMechanisms)
        for name, draws in alone.posterior.items():
            np.testing.assert_allclose(found.posterior[name], draws, atol=2e-6)
        pd.testing.assert_frame_equal(found.history, alone.history, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:The distribution of .* may not have settled")
def test_small_stacks_are_the_large_one(
    learned: LearnedMechanisms, weights: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = learned.refits(weights, 0)
    monkeypatch.setattr("pyrofair.mechanisms.newton.MOST_STACKED", 2 * 400 * 15)
    for one, other in zip(whole, learned.refits(weights, 0), strict=True):
        assert isinstance(one, LearnedMechanisms)
        assert isinstance(other, LearnedMechanisms)
        for name, draws in one.posterior.items():
            np.testing.assert_allclose(other.posterior[name], draws, atol=2e-6)


@pytest.mark.filterwarnings("ignore:The distribution of .* may not have settled")
@pytest.mark.parametrize("column", ["job", "hours", "pay"])
def test_a_replicate_takes_off_the_slope_that_the_fit_left(
    learned: LearnedMechanisms, weights: list[Any], column: str
) -> None:
    """At the end the gradient with the replicate's weights is that of the fit with its own."""
    fit = learned.fits[column]
    layer = LastLayer.of(fit.mechanism, fit.centre, learned.rows)
    start = layer.read(fit.centre)
    around = layer.around(start)
    weight = torch.as_tensor(weights[0])[learned.rows.train].unsqueeze(1)
    moved = around.weighted(weight / weight.mean())
    before = moved.evaluate(start)
    theta, losses = moved.settle(start)
    after = moved.evaluate(theta)
    assert losses[0] < before.loss[0]
    gain = [
        float((each.gradient * moved._solve(each.gradient, moved._curvature(each), 1e-6)).sum())
        for each in (before, after)
    ]
    assert gain[1] < (1e-8 if column == "job" else 0.1) * gain[0]  # a mixture is not followed to its end


@pytest.mark.filterwarnings("ignore:The distribution of .* may not have settled")
@pytest.mark.parametrize("column", ["job", "hours", "pay"])
def test_one_step_comes_as_near_as_the_square_of_its_length(
    learned: LearnedMechanisms, weights: list[Any], column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half the change of the weights leaves a quarter of the slope at the end of a step whose equations are solved."""
    monkeypatch.setattr("pyrofair.mechanisms.newton.SOLVED_ONCE", 1e-9)
    fit = learned.fits[column]
    layer = LastLayer.of(fit.mechanism, fit.centre, learned.rows)
    start = layer.read(fit.centre)
    for _ in range(20):  # an early end may be a saddle
        start, _ = layer.settle(start)
    ready = layer.around(start).derived(start)
    before = learned.rows.weight[learned.rows.train].unsqueeze(1).double()
    change = torch.as_tensor(np.stack(weights, 1))[learned.rows.train] - 1.0

    def left(share: float) -> torch.Tensor:
        moved = ready.weighted(before + share * (change - change.mean(0)))
        return moved.evaluate(moved.step(start)[0]).gradient.square().sum((0, 2)).sqrt()

    ratio = left(0.02) / left(0.01)
    assert ((ratio > 3.3) & (ratio < 4.7)).all(), ratio


def test_inputs_beyond_memory_are_made_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = {"Q": Categorical(("a", "b", "c"), (0.3, 0.3, 0.4))}
    mechanism = ConditionalDistribution("M", Binary(0.5), reads, Network((3,), (4,), 1, direct=True))
    columns = {"Q": torch.randint(0, 3, (N,)).float(), "M": torch.randint(0, 2, (N,)).float()}
    rows = Rows(columns, torch.ones(N), torch.arange(N), torch.arange(0))
    start = mechanism.numbers.start("M")  # type: ignore[union-attr]
    whole, batch = FlatNetwork(mechanism, rows, start), torch.arange(5, 20)
    monkeypatch.setattr("pyrofair.mechanisms.flat.MOST_HELD", 10)
    parts = FlatNetwork(mechanism, rows, start)
    assert parts.inputs is None
    assert whole.inputs is not None
    np.testing.assert_array_equal(whole.inputs[batch], features(reads["Q"], columns["Q"][batch]))
    assert parts.loss(batch).item() == whole.loss(batch).item()


@pytest.mark.parametrize("threads", [1, 2])
def test_fits_take_one_thread_and_leave_the_number_as_it_was(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    loss = FlatNetwork.loss

    def counted(self: FlatNetwork, at: torch.Tensor) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return loss(self, at)

    monkeypatch.setattr(FlatNetwork, "loss", counted)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        graph = pf.CausalGraph("A -> job -> Y", sensitive="A", outcome="Y")
        how: dict[str, Any] = {"steps": 3, "validation_fraction": 0.0, "progress": False, "random_state": 0}
        learn_mechanisms(table(), graph, nodes=["job"], **how)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert {*seen} == {1}
