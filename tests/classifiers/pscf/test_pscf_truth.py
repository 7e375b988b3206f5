"""PSCF's predictions against those of the true model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyro
import pytest
import torch

import pyrofair as pf
from pyrofair import PSCF, CausalGraph, DataError, GraphError
from pyrofair._random import isolated
from pyrofair.classifiers.pscf.replay import read_plan
from pyrofair.classifiers.pscf.truth import _simulate
from pyrofair.programs.structural_equations import read_equations
from tests.classifiers.pscf.models import QUIET

pytestmark = QUIET

CHAIN = CausalGraph("A -> D -> E -> Y; A -> M -> E; A -> M -> Y; A -> Y; Q -> E; Q -> Y", sensitive="A", outcome="Y")


@pytest.mark.slow
def test_truth_on_a_scenario() -> None:
    hiring = pf.simulate.scenario("hiring")
    table = hiring.draw(1000, random_state=0)
    X, y = table.drop(columns="Y"), table["Y"]
    model = PSCF(hiring.unfair, epochs=30, batch_size=100, random_state=0, progress=False).fit(X, y)
    for latents, samples in (("abducted", 100), ("posterior", 100), ("prior", 5)):
        model.set_params(latents=latents)
        found = model.truth(hiring, n=3_000, random_state=0)
        assert found.true_accuracy.value == pytest.approx(0.869, abs=0.02)
        assert 0.0 < found.piu.value < 0.1
        assert abs(found.mean_unfair_effect.value) <= found.piu.value
        assert found.piu.error == pytest.approx(np.sqrt(found.piu.value * (1 - found.piu.value) / 3_000), rel=1e-6)
        assert found.paper_condmean > 0
        assert "groups of identical A, Q, D, M" in found.grouping
        assert f"latents: {latents}; {samples} samples" in str(found)
    assert found == model.truth(hiring.program, n=3_000, random_state=0)
    assert pf.SEM(hiring.program, hiring.unfair).truth(model, n=2_000, random_state=0).piu.value == 0.0  # the prior
    with pytest.raises(DataError, match="n=0 must be an integer"):
        model.truth(hiring, n=0)


def test_true_fair_scores_by_hand() -> None:
    """In the chain E reads the fair D and the unit's own M; the noise is known, so that scores are arithmetic."""
    dist: Any = pyro.distributions

    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            Q = pyro.sample("Q", dist.Normal(0.0, 1.0))
            D = pyro.deterministic("D", 3.0 * A + pyro.sample("U_D", dist.Normal(0.0, 1.0)))
            M = pyro.deterministic("M", 5.0 * A + pyro.sample("U_M", dist.Normal(0.0, 1.0)))
            E = pyro.deterministic("E", D + 7.0 * M + Q + pyro.sample("U_E", dist.Normal(0.0, 1.0)))
            pyro.sample("Y", dist.Bernoulli(logits=0.1 * (E + A + M + Q)))

    for unfair, low in [(CHAIN.unfair("A -> D -> E -> Y"), 0.0), (CHAIN.unfair("A -> D -> E -> Y").reversed(), 1.0)]:
        plan = read_plan(unfair)
        for latents in ("posterior", "abducted"):
            with isolated(0):
                _, rows, scores = _simulate(read_equations(program, unfair), plan, 500, latents, 2)
            a, q, d, m, e = (rows[name].to_numpy(float) for name in "AQDME")
            fair_e = e + 3.0 * (low - a)
            expected = 1 / (1 + np.exp(-0.1 * (fair_e + a + m + q)))
            np.testing.assert_allclose(scores[0], expected, rtol=1e-4)
            np.testing.assert_allclose(scores[1], expected, rtol=1e-4)
            assert (d - 3.0 * a).std() == pytest.approx(1.0, abs=0.1)
        with isolated(0):
            _, _, fresh = _simulate(read_equations(program, unfair), plan, 500, "prior", 400)
        logit = torch.logit(fresh.double()).numpy() * 10
        mean = 3.0 * low + 7.0 * m + q + a + m + q
        assert np.abs(logit.mean(0) - mean).max() < 0.4
        assert logit.std(0) == pytest.approx(np.sqrt(2.0), rel=0.2)


def test_truth_needs_a_distribution_of_the_outcome() -> None:
    dist: Any = pyro.distributions

    def computed(n: int) -> None:
        with pyro.plate("units", n):
            A, Q = pyro.sample("A", dist.Bernoulli(0.5)), pyro.sample("Q", dist.Normal(0.0, 1.0))
            D = pyro.deterministic("D", A + Q + pyro.sample("U_D", dist.Normal(0.0, 1.0)))
            M = pyro.deterministic("M", A + pyro.sample("U_M", dist.Normal(0.0, 1.0)))
            pyro.deterministic("Y", (A + Q + D + M > 1.0).float())

    hiring = pf.simulate.scenario("hiring")
    table = hiring.draw(200, random_state=0)
    model = PSCF(hiring.unfair, epochs=1, hidden=4, random_state=0, progress=False)
    model.fit(table.drop(columns="Y"), table["Y"])
    with pytest.raises(GraphError, match="outcome 'Y' must be drawn in the program from a Bernoulli distribution"):
        model.truth(computed, n=100)


# -- the scenarios, slowly --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "latents", "accuracy", "piu"),
    [
        ("hiring", "prior", 0.874, 0.04),
        ("hiring", "posterior", 0.873, 0.01),
        ("hiring", "abducted", 0.873, 0.01),
        ("additive", "prior", 0.79, 0.03),
        ("additive", "posterior", 0.79, 0.045),
        ("additive", "abducted", 0.79, 0.045),
    ],
)
def test_accuracy_and_truth(name: str, latents: Any, accuracy: float, piu: float) -> None:
    """On additive PIU is .018 to .039 by the seed: where the outcome's network bends among combinations of no row."""
    scenario = pf.simulate.scenario(name)
    train, test = scenario.draw(5000, random_state=0), scenario.draw(20_000, random_state=1)
    own_noise = 0.1 if latents == "posterior" else None  # by which its latent variable says something of a row
    model = PSCF(scenario.unfair, latents=latents, own_noise=own_noise, random_state=0, progress=False)
    model.fit(train.drop(columns="Y"), train["Y"])
    assert model.score(test.drop(columns="Y"), test["Y"]) > accuracy - 0.02
    assert model.truth(scenario, n=20_000, random_state=0).piu.value < piu


@pytest.mark.slow
def test_evidence_is_near_its_plateau() -> None:
    """A fit ends 1.2 % below one of six times its length: longer ones fit small tables' noise (docs/pscf.md)."""
    scenario = pf.simulate.scenario("hiring")
    train = scenario.draw(5000, random_state=0)
    short, long = (
        PSCF(scenario.unfair, epochs=epochs, random_state=0, progress=False)
        .fit(train.drop(columns="Y"), train["Y"])
        .elbo_
        for epochs in (None, 600)
    )
    assert long - short < 0.02 * abs(long)
