"""PSCF against models of which every score can be computed: learned distributions enumerated, and known true models."""

from __future__ import annotations

import copy
import functools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pyrofair import PSCF, CausalGraph
from pyrofair.classifiers.pscf.networks import FixedSpread
from pyrofair.inference.amortised import Problem, evidence_bound
from pyrofair.inference.likelihood import Likelihood
from pyrofair.mechanisms.families import Continuous
from tests.classifiers.pscf.models import QUIET

pytestmark = QUIET

THROUGH = CausalGraph("A -> D -> Y", sensitive="A", outcome="Y")
LINEAR = CausalGraph("{A Q} -> D; {Q D} -> Y", sensitive="A", outcome="Y")


def expit(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def make(unfair: Any, **settings: Any) -> PSCF:
    usual = {"epochs": 15, "batch_size": 100, "hidden": 20, "random_state": 0}
    return PSCF(unfair, **{"progress": False, **usual, **settings})


# -- learned discrete distributions, enumerated -----------------------------------------------------------------------


def read(model: PSCF, column: str, **values: Any) -> NDArray[np.float64]:
    """Return the learned probabilities of a column's levels where its causes have these values, whatever its latent."""
    sem: Any = copy.deepcopy(model.sem_).double()
    given = {name: torch.tensor([float(each)]).double() for name, each in values.items()}
    with torch.no_grad():
        found = sem.distribution(column, given, torch.zeros(1, 1).double()).probs.reshape(-1).numpy()
    return np.array([1.0 - found[0], found[0]]) if len(found) == 1 else found


def silence(model: PSCF, *columns: str) -> None:
    """Hold at zero the weights by which distributions read latent variables, so that nothing need be integrated out."""
    with torch.no_grad():
        for column in columns:
            model.sem_.networks[model.sem_.index[column]].body[0].weight[:, -1:] = 0.0
    model._read = ()


@functools.cache
def discrete(kind: str) -> tuple[PSCF, pd.DataFrame]:
    rng = np.random.default_rng(0)
    n = 600
    a = rng.integers(0, 2, n)
    score = 1.2 * a + rng.logistic(size=n)
    d: Any = np.digitize(score, [-0.5, 0.8, 2.0])
    y = rng.binomial(1, expit(np.array([-2.0, 1.5, -1.0, 2.0])[d]))
    if kind == "binary":
        d = d % 2
    elif kind == "categories":
        d = pd.Categorical(np.array(["a", "b", "c", "d"])[d], list("abcd"), ordered=True)
    elif kind == "nominal":
        d = np.array(["a", "b", "c", "d"])[d]
    X = pd.DataFrame({"A": a, "D": d})
    model = make(THROUGH.unfair("A -> D -> Y"), samples=2000).fit(X, y)
    silence(model, "D")
    rows = X.drop_duplicates().sort_values(["A", "D"]).reset_index(drop=True)
    return model, rows


@pytest.mark.parametrize("kind", ["binary", "ordered", "categories"])
@pytest.mark.some(1)
def test_scores_of_ordered_levels_are_enumerated(kind: str) -> None:
    """Given its level, a unit's uniform number is uniform over the level's step; the baseline's steps lie over it."""
    model, rows = discrete(kind)
    low, high = (read(model, "D", A=a) for a in (0, 1))
    outcome = np.array([read(model, "Y", D=d)[1] for d in range(len(low))])
    assert abs(low - high).max() > 0.05
    assert np.ptp(outcome) > 0.3
    codes = pd.Categorical(rows["D"]).codes if kind == "categories" else rows["D"].to_numpy()
    scores = model.predict_proba(rows)[:, 1]
    edges, own = (np.concatenate([[0.0], p.cumsum()]) for p in (low, high))
    for a, d, score in zip(rows["A"], codes, scores, strict=True):
        if a == 0:
            assert score == pytest.approx(outcome[d], abs=1e-12)
            continue
        overlap = np.minimum(own[d + 1], edges[1:]) - np.maximum(own[d], edges[:-1])
        share = np.clip(overlap, 0.0, None) / high[d]
        assert share.sum() == pytest.approx(1.0)
        assert score == pytest.approx(share @ outcome, abs=len(low) / 2000)  # strata misplace one draw at each edge


def test_scores_of_names_are_those_of_gumbel_noise() -> None:
    """Gumbel noise is drawn by the program's definition, and kept where it gives the level observed."""
    model, rows = discrete("nominal")
    low, high = (read(model, "D", A=a) for a in (0, 1))
    outcome = np.array([read(model, "Y", D=d)[1] for d in range(4)])
    noise = np.random.default_rng(1).gumbel(size=(400_000, 4))
    seen, fair = ((np.log(p) + noise).argmax(1) for p in (high, low))
    levels = list(model.families_["D"].levels)
    scores = model.predict_proba(rows)[:, 1]
    moved = 0.0
    for a, d, score in zip(rows["A"], rows["D"].map(levels.index), scores, strict=True):
        if a == 0:
            assert score == pytest.approx(outcome[d], abs=1e-12)
            continue
        given = outcome[fair[seen == d]]
        error = given.std() * math.sqrt(1 / len(given) + 1 / 2000)
        assert score == pytest.approx(given.mean(), abs=4 * error + 1e-9)
        moved = max(moved, abs(score - outcome[d]))
    assert moved > 0.02


def test_noise_of_two_binary_nodes_is_abducted_one_after_the_other() -> None:
    """In A -> D -> E -> Y the step of E is that at the unit's own D, and its fair value that at the fair D."""
    graph = CausalGraph("A -> D -> E -> Y", sensitive="A", outcome="Y")
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 600)
    d = rng.binomial(1, expit(2.0 * a - 1.0))
    e = rng.binomial(1, expit(2.5 * d - 1.0))
    y = rng.binomial(1, expit(4.0 * e - 2.0))
    X = pd.DataFrame({"A": a, "D": d, "E": e})
    model = make(graph.unfair("A -> D -> E -> Y"), samples=2000).fit(X, y)
    silence(model, "D", "E")
    p = [read(model, "D", A=a)[1] for a in (0, 1)]
    q = [read(model, "E", D=d)[1] for d in (0, 1)]
    outcome = [read(model, "Y", E=e)[1] for e in (0, 1)]

    def one(before: float, after: float, value: int) -> float:
        """Return P(fair value 1 | value): a uniform number above 1 - p gives a 1."""
        low, high = (1.0 - before, 1.0) if value else (0.0, 1.0 - before)
        return max(high - max(low, 1.0 - after), 0.0) / (high - low)

    rows = pd.DataFrame([(1, d, e) for d in (0, 1) for e in (0, 1)], columns=["A", "D", "E"])
    for (_, d, e), score in zip(rows.to_numpy(), model.predict_proba(rows)[:, 1], strict=True):
        of_d = one(p[1], p[0], d)
        of_e = of_d * one(q[d], q[1], e) + (1.0 - of_d) * one(q[d], q[0], e)
        assert score == pytest.approx(of_e * outcome[1] + (1.0 - of_e) * outcome[0], abs=0.03)


@pytest.mark.parametrize("coupling", ["independent", "antithetic"])
def test_another_coupling_of_a_binary_node(coupling: Any) -> None:
    model, rows = discrete("binary")
    other = copy.copy(model).set_params(coupling=coupling)
    (_, p), (_, p_high) = (read(model, "D", A=a) for a in (0, 1))
    outcome = np.array([read(model, "Y", D=d)[1] for d in (0, 1)])
    for (a, d), score in zip(rows.to_numpy(), other.predict_proba(rows)[:, 1], strict=True):
        if a == 0:
            assert score == pytest.approx(outcome[d], abs=1e-12)
            continue
        low, high = (1.0 - p_high, 1.0) if d else (0.0, 1.0 - p_high)
        if coupling == "antithetic":
            low, high = 1.0 - high, 1.0 - low
        fair = p if coupling == "independent" else max(high - max(low, 1.0 - p), 0.0) / (high - low)
        assert score == pytest.approx(fair * outcome[1] + (1.0 - fair) * outcome[0], abs=2 / 2000)


# -- true discrete models ---------------------------------------------------------------------------------------------


def draw_discrete(n: int, levels: int, seed: int = 0) -> tuple[pd.DataFrame, NDArray[Any], NDArray[Any]]:
    """Return rows, outcomes, and the decisions on the exact mean fair score: two levels, or four by a latent rank."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    if levels == 2:
        chance = {k: np.array([1.0 - expit(2.0 * k - 1.0), expit(2.0 * k - 1.0)]) for k in (0, 1)}
        outcome = expit(4.0 * np.arange(2) - 2.0)
    else:
        cuts = np.array([-1.0, 0.5, 2.0])
        chance = {k: np.diff([0.0, *expit(cuts - 2.0 * k), 1.0]) for k in (0, 1)}
        outcome = expit(2.0 * np.arange(4) - 3.0)
    edges = {k: np.concatenate([[0.0], p.cumsum()]) for k, p in chance.items()}
    u = rng.random(n)
    d = np.array([np.searchsorted(edges[k][1:-1], x) for k, x in zip(a, u, strict=True)])
    y = rng.binomial(1, outcome[d])
    score = outcome.copy()[d]
    for level in range(levels):
        overlap = np.minimum(edges[1][level + 1], edges[0][1:]) - np.maximum(edges[1][level], edges[0][:-1])
        score[(a == 1) & (d == level)] = np.clip(overlap, 0.0, None) @ outcome / chance[1][level]
    return pd.DataFrame({"A": a, "D": d}), y, (score > 0.5).astype(int)


@pytest.mark.parametrize(
    ("levels", "kind", "most"), [(2, "integers", 0.1), (4, "integers", 0.04), (4, "categories", 0.04)]
)
@pytest.mark.some(1)
def test_decisions_of_discrete_models(levels: int, kind: str, most: float) -> None:
    """Latent variables may say nothing of a row here: its noise is that of the distribution of D itself."""
    X, y, exact = draw_discrete(3_000, levels)
    if kind == "categories":
        X["D"] = pd.Categorical(X["D"].map(dict(enumerate("abcd"))), list("abcd"), ordered=True)
    model = PSCF(THROUGH.unfair("A -> D -> Y"), decisions="mean", epochs=20, random_state=0, progress=False).fit(X, y)
    assert (model.predict(X) != exact).mean() <= most
    assert (exact != (y > 0.5)).mean() < 0.45


# -- a linear model with normal noise ---------------------------------------------------------------------------------

EFFECT, SLOPE = 1.5, -0.7
"""D = 1.5 A - 0.7 Q + c H + s e."""


class Given(nn.Module):
    """A linear function in place of a network."""

    def __init__(self, weight: list[float], bias: float = 0.0) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.tensor([weight])), nn.Parameter(torch.tensor([bias]))

    def forward(self, read: Tensor) -> Tensor:
        return read @ self.weight.T + self.bias


def linear(c: float, s: float, unfair: Any = None) -> tuple[PSCF, pd.DataFrame, NDArray[np.int64]]:
    """Return PSCF with the linear model and its exact posterior in place of networks, and 300 rows of it."""
    rng = np.random.default_rng(0)
    n = 300
    a, q = rng.integers(0, 2, n), rng.normal(size=n)
    d = EFFECT * a + SLOPE * q + c * rng.normal(size=n) + s * rng.normal(size=n)
    y = rng.binomial(1, expit(d + q))
    X = pd.DataFrame({"A": a, "Q": q, "D": d})
    families = {"Q": Continuous(0.0, 1.0, components=1), "D": Continuous(0.0, 1.0, components=1)}
    unfair = unfair or LINEAR.unfair("A -> D -> Y")
    model = make(unfair, families=families, own_noise=0.5, epochs=1, samples=20).fit(X, y)
    sem: Any = model.sem_
    sem.drawn_from["D"] = FixedSpread(families["D"], s)
    sem.networks[sem.index["D"]] = Given([EFFECT, SLOPE, c])
    model.guide_.networks[0] = exact_posterior(c, s)
    model._read = ()
    return model, X, y


def exact_posterior(c: float, s: float) -> nn.Module:
    gain, spread = c / (c**2 + s**2), s / math.hypot(c, s)
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[-EFFECT * gain, -SLOPE * gain, gain], [0.0, 0.0, 0.0]]))
        layer.bias.copy_(torch.tensor([0.0, math.log(math.expm1(spread - 1e-4))]))
    return nn.Sequential(layer)


def test_the_evidence_of_the_linear_model_is_its_marginal_likelihood() -> None:
    c, s = 0.8, 0.5
    model, X, y = linear(c, s)
    sem: Any = model.sem_
    values = model._encode(X) | {"Y": torch.tensor(y).float()}
    sites = [*values, "H_D"]
    types = dict.fromkeys(sites, torch.float32)
    shapes: Any = {site: (300, 1) if site == "H_D" else (300,) for site in sites}
    likelihood = Likelihood(sem, 300, values, {}, {}, (), (), ("H_D",), (), types, shapes, dict.fromkeys(sites, 0))
    group = torch.tensor(X["A"].to_numpy())
    problem = Problem(likelihood, model.guide_, torch.ones(300), group, analytic=False)
    with torch.no_grad():
        log_p = torch.distributions.Normal(EFFECT * values["A"] + SLOPE * values["Q"], math.hypot(c, s)).log_prob(
            values["D"]
        )
        for column in ("A", "Q", "Y"):
            log_p = log_p + sem.distribution(column, values).log_prob(values[column])
    assert evidence_bound(problem, 1) == pytest.approx(float(log_p.mean()), abs=5e-6)


@pytest.mark.parametrize(("c", "s"), [(0.8, 0.5), (0.0, 1.0), (1.0, 0.05), (0.3, 0.9)])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.some(3)
def test_the_fair_value_of_the_linear_model_is_exact(c: float, s: float, swapped: bool) -> None:
    """Whatever part of the noise is the latent variable's, and whatever the guide says of it."""
    unfair = LINEAR.unfair("A -> D -> Y")
    model, X, _ = linear(c, s, unfair.reversed() if swapped else unfair)
    baseline = 1 if swapped else 0
    expected = X["D"].to_numpy() - EFFECT * (X["A"].to_numpy() - baseline)
    every = np.broadcast_to(expected, (20, 300))
    for wrong in (False, True):
        if wrong:
            model.guide_.networks[0] = nn.Sequential(nn.Linear(3, 2))
            model._read = ()
        found = model._replayed(X, model.plan_, 20)
        noise = (X["D"] - EFFECT * X["A"] - SLOPE * X["Q"]).to_numpy()
        near = (
            np.abs(noise - c * found.latents["H_D"].squeeze(2).numpy()) < 6.0 * s
        )  # probabilities of what is farther out are too close to 1
        assert near.all() or wrong
        np.testing.assert_allclose(found.fair["D"].numpy()[near], every[near], rtol=0, atol=2e-6)
        if not near.all():
            continue
        once = model.one_draw().predict_proba(X)
        np.testing.assert_allclose(model.predict_proba(X), once, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(model.predict(X), (once[:, 1] > 0.5).astype(int))


def differing(share: float, epochs: int | None) -> tuple[float, float]:
    """Return the slope of the fair residual on the true one, and the share of decisions that are not the exact ones."""
    rng = np.random.default_rng(0)
    n = 3_000
    s = share * math.sqrt(1.25) / math.sqrt(1.0 - share**2)
    a, q = rng.integers(0, 2, n), rng.normal(size=n)
    d = a + q + s * rng.normal(size=n)
    y = rng.binomial(1, expit(3.0 * (q + d - 0.5)))
    X = pd.DataFrame({"A": a, "Q": q, "D": d})
    model = PSCF(LINEAR.unfair("A -> D -> Y"), epochs=epochs, random_state=0, progress=False).fit(X, y)
    fair = model.fair_values(X)["D"].mean(0)[a == 1]
    residual, true = fair - q[a == 1], (d - a - q)[a == 1]
    slope = float(np.polyfit(true, residual, 1)[0])
    exact = q + d - a > 0.5
    return slope, float((model.predict(X) != exact).mean())


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.9, 0.3, 0.05])
def test_the_noise_of_a_linear_model_is_found_however_small(share: float) -> None:
    slope, wrong = differing(share, None)
    assert 0.97 <= slope <= 1.06
    assert wrong <= 0.02
