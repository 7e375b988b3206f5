"""A program and a guide of rows fitted together: the objective, its batches, and the evidence lower bound."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor, nn

from pyrofair import DataError
from pyrofair._random import isolated
from pyrofair.inference.amortised import (
    Problem,
    Steps,
    _batches,
    check_convergence,
    evidence_bound,
    fit_amortised,
    mean_discrepancy,
    unsettled,
)
from pyrofair.inference.likelihood import Likelihood

EFFECT, SLOPE, LATENT, OWN = 1.5, -0.7, 0.8, 0.5
"""D = 1.5 A - 0.7 Q + 0.8 H + 0.5 e."""


class Linear(nn.Module):
    """The program D = effect A + slope Q + c H + s e, with standard normal Q, H and e, and a fair coin A."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([EFFECT, SLOPE, LATENT]))

    def forward(self, n: int) -> None:
        with pyro.plate("units", n):
            a = pyro.sample("A", dist.Bernoulli(torch.tensor(0.5)))
            q = pyro.sample("Q", dist.Normal(torch.tensor(0.0), 1.0))
            h = pyro.sample("H", dist.Normal(torch.tensor(0.0), 1.0))
            w = self.weight
            pyro.sample("D", dist.Normal(w[0] * a + w[1] * q + w[2] * h, OWN))


class Guide(nn.Module):
    """The normal distribution of H given a row: the exact one, as it is made, but for a factor of its spread."""

    def __init__(self, wider: float = 1.0) -> None:
        super().__init__()
        gain = LATENT / (LATENT**2 + OWN**2)
        self.weight = nn.Parameter(gain * torch.tensor([-EFFECT, -SLOPE, 1.0]))
        self.log_scale = nn.Parameter(torch.tensor(OWN / math.hypot(LATENT, OWN)).log() + math.log(wider))

    def forward(self, rows: Any) -> None:
        read = torch.stack([rows["A"], rows["Q"], rows["D"]], 1)
        with pyro.plate("units", len(read)):
            pyro.sample("H", dist.Normal(read @ self.weight, self.log_scale.exp()))


def make_rows(n: int, seed: int = 0) -> dict[str, Tensor]:
    rng = np.random.default_rng(seed)
    a, q, noise = rng.integers(0, 2, n), rng.normal(size=n), rng.normal(size=n)
    d = EFFECT * a + SLOPE * q + math.hypot(LATENT, OWN) * noise
    return {name: torch.tensor(each).float() for name, each in {"A": a, "Q": q, "D": d}.items()}


def make_problem(n: int = 200, *, guide: Any = None, weight: Tensor | None = None, analytic: bool = True) -> Problem:
    rows = make_rows(n)
    types = dict.fromkeys([*rows, "H"], torch.float32)
    shapes: Any = dict.fromkeys(types, (n,))
    likelihood = Likelihood(Linear(), n, rows, {}, {}, (), (), ("H",), (), types, shapes, dict.fromkeys(types, 0))
    weight = torch.ones(n) if weight is None else weight
    return Problem(likelihood, guide or Guide(), weight, rows["A"].long(), analytic=analytic)


def log_marginal(rows: dict[str, Tensor]) -> Tensor:
    """Return log P(A, Q, D) of each row, the latent variable integrated out."""
    mean = EFFECT * rows["A"] + SLOPE * rows["Q"]
    of_d = torch.distributions.Normal(mean, math.hypot(LATENT, OWN)).log_prob(rows["D"])
    return of_d + torch.distributions.Normal(0.0, 1.0).log_prob(rows["Q"]) + math.log(0.5)


def numbers_of(problem: Problem) -> list[Tensor]:
    program: Any = problem.likelihood.program
    guide: Any = problem.guide
    return [*program.parameters(), *guide.parameters()]


# -- the evidence lower bound -----------------------------------------------------------------------------------------


def test_the_bound_of_the_exact_posterior_is_the_log_marginal_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(analytic=False)
    exact = float(log_marginal(problem.likelihood.rows).mean())
    for seed in (1, 3):
        assert evidence_bound(problem, seed) == pytest.approx(exact, abs=2e-6)
    rows, total = problem.likelihood.rows, LATENT**2 + OWN**2
    left = (rows["D"] - EFFECT * rows["A"] - SLOPE * rows["Q"]) * OWN**2 / total  # besides the posterior mean
    spread = (LATENT * OWN) ** 2 / total  # of c H given the row
    variance = (left.square() * spread + spread**2 / 2.0) / OWN**4  # of the log-likelihood at a draw
    draws = 400
    error = math.sqrt(float(variance.mean()) / (len(problem) * draws))
    monkeypatch.setattr("pyrofair.inference.amortised.EVIDENCE_DRAWS", draws * len(problem))
    found = evidence_bound(replace(problem, analytic=True))
    assert found == pytest.approx(exact, abs=3.0 * error)
    assert error < 0.004


def test_another_guide_has_a_lower_bound_by_its_divergence() -> None:
    problem = make_problem(guide=Guide(2.0))
    exact = float(log_marginal(problem.likelihood.rows).mean())
    divergence = 0.5 * (4.0 - 1.0) - math.log(2.0)
    assert evidence_bound(problem, 400) == pytest.approx(exact - divergence, abs=0.02)


def test_weights_are_repeated_rows() -> None:
    weight = torch.ones(200)
    weight[:50], weight[50:60] = 3.0, 0.0
    problem = make_problem(weight=weight, analytic=False)
    each = log_marginal(problem.likelihood.rows)
    assert evidence_bound(problem, 1) == pytest.approx(float((weight * each).sum() / weight.sum()), abs=2e-6)
    some = torch.arange(0, 200, 7)
    with isolated(0), torch.no_grad():
        loss = float(problem.loss(some))
    by_hand = -float((weight[some] * each[some]).sum()) * 200 / len(some)
    assert loss == pytest.approx(by_hand, rel=1e-5)


def test_the_penalty_adds_the_discrepancy_of_the_groups() -> None:
    problem, every = make_problem(), torch.arange(200)
    penalised = replace(problem, discrepancy=0.7)

    def loss(of: Problem) -> float:
        with isolated(0), torch.no_grad():
            return float(of.loss(every))

    guide: Any = problem.guide
    rows = problem.likelihood.rows
    with isolated(0), torch.no_grad():
        mean = torch.stack([rows["A"], rows["Q"], rows["D"]], 1) @ guide.weight
        draw = (mean + guide.log_scale.exp() * torch.randn(200)).unsqueeze(1)
        apart = float(mean_discrepancy(draw, problem.group))
    assert loss(penalised) - loss(problem) == pytest.approx(0.7 * 200 * apart, rel=1e-2, abs=5e-3)
    assert evidence_bound(penalised) == evidence_bound(problem)  # of which the penalty is no part


def test_a_fit_gains_evidence_and_leaves_the_generator_alone() -> None:
    problem = make_problem(guide=Guide(3.0))
    before = evidence_bound(problem, 100)
    pyro.clear_param_store()
    state = torch.get_rng_state()
    losses = fit_amortised(problem, numbers_of(problem), Steps(150, 50, 0.05), 0)
    assert torch.equal(torch.get_rng_state(), state)
    assert len(pyro.get_param_store()) == 0
    after = evidence_bound(problem, 100)
    assert len(losses) == 150
    assert after > before + 0.5
    assert after == pytest.approx(float(log_marginal(problem.likelihood.rows).mean()), abs=0.05)
    again = make_problem(guide=Guide(3.0))
    assert fit_amortised(again, numbers_of(again), Steps(150, 50, 0.05), 0) == losses
    other = make_problem(guide=Guide(3.0))
    assert fit_amortised(other, numbers_of(other), Steps(150, 50, 0.05), 1) != losses


def test_divergence_is_an_error() -> None:
    problem = make_problem()
    with pytest.raises(DataError, match=r"Training diverged: the loss is .* Lower learning_rate=1e\+30"):
        fit_amortised(problem, numbers_of(problem), Steps(5, 50, 1e30), 0)


# -- the discrepancy --------------------------------------------------------------------------------------------------


def by_hand(points: list[list[float]], group: list[int], weight: list[float]) -> float:
    """Sum over pairs of different points, each group's mean by its own weight."""
    means = {}
    for g, h in [(0, 0), (1, 1), (0, 1)]:
        total = mass = 0.0
        for i, x in enumerate(points):
            for j, z in enumerate(points):
                if i != j and group[i] == g and group[j] == h:
                    distance = sum((a - b) ** 2 for a, b in zip(x, z, strict=True))
                    total += weight[i] * weight[j] * np.exp(-distance / (2 * len(x)))
                    mass += weight[i] * weight[j]
        means[g, h] = total / mass
    return means[0, 0] + means[1, 1] - 2 * means[0, 1]


@pytest.mark.parametrize(
    "group", [[0, 0, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1]], ids=["two of seven", "three of seven"]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_discrepancy_by_hand(group: list[int], weighted: bool) -> None:
    rng = np.random.default_rng(0)
    points, weight = rng.normal(size=(7, 2)), rng.uniform(0.5, 2, 7) if weighted else np.ones(7)
    found = mean_discrepancy(torch.tensor(points), torch.tensor(group), torch.tensor(weight) if weighted else None)
    assert float(found) == pytest.approx(by_hand(points.tolist(), group, weight.tolist()))


@pytest.mark.parametrize("few", [2, 10, 125])
@pytest.mark.parametrize("size", [1, 3])
def test_discrepancy_of_one_distribution_is_0_on_average_at_any_group_sizes(few: int, size: int) -> None:
    points = torch.randn(250, size, generator=torch.Generator().manual_seed(0))
    split = torch.zeros(250, dtype=torch.long)
    split[:few] = 1
    generator = torch.Generator().manual_seed(1)
    found = torch.stack([mean_discrepancy(points, split[torch.randperm(250, generator=generator)]) for _ in range(400)])
    error = float(found.std()) / 20
    assert abs(float(found.mean())) < 3.5 * error
    assert error < 0.03
    assert (found < 0).any()


def test_discrepancy_of_a_group_of_fewer_than_two_points_is_0() -> None:
    points = torch.randn(20, 1, generator=torch.Generator().manual_seed(0))
    assert float(mean_discrepancy(points, torch.zeros(20))) == 0.0
    alone = (torch.arange(20) == 3).long()
    assert float(mean_discrepancy(points, alone)) == 0.0
    pair = ((torch.arange(20) == 3) | (torch.arange(20) == 4)).long()
    weight = torch.ones(20)
    weight[4] = 0.0  # weighs like no point at all
    assert float(mean_discrepancy(points, pair, weight)) == 0.0
    assert float(mean_discrepancy(points, pair)) != 0.0


# -- batches and convergence ------------------------------------------------------------------------------------------


def test_batches_hold_both_groups() -> None:
    group = torch.tensor([0] * 90 + [1] * 10)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        batches = [*_batches(group, 5)]
    assert sorted(torch.cat(batches).tolist()) == list(range(100))
    assert all(int(group[rows].sum()) == 2 for rows in batches)


def test_a_loss_that_still_falls_is_said_so() -> None:
    falling = [10.0 / (1 + 0.05 * t) for t in range(60)]
    assert unsettled(falling) > 0.05
    assert unsettled([5.0] * 60) == 0.0
    assert unsettled([5.0]) == 0.0
    noisy = (3 + 0.1 * np.random.default_rng(0).normal(size=60)).tolist()
    assert unsettled(noisy) == 0.0
    steps = Steps(60, 10, 0.01)
    assert "Take more epochs than 60" in check_convergence(falling, steps)
    assert check_convergence([5.0] * 60, steps) == ""
    assert check_convergence([5.0] * 7, steps).startswith("Interrupted after 7 of 60 epochs")
