"""PSCF with a given model: any Pyro program, a guide of its noise, and what must be refused."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from numpy.typing import NDArray
from pyro import poutine
from pyro.distributions import constraints
from pyro.nn import PyroModule, PyroParam, PyroSample
from sklearn.base import clone
from torch import Tensor, nn

import pyrofair as pf
from pyrofair import PSCF, CausalGraph, DataError, GraphError, NotIdentifiedError, PyrofairWarning
from pyrofair.inference import amortised
from pyrofair.inference.likelihood import PosteriorError

pytestmark = pytest.mark.filterwarnings("ignore:The loss may not have settled", "ignore:The latent variables")

GRAPH = CausalGraph("{A Q} -> D; {A Q D} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> D -> Y")
HIDDEN = CausalGraph("A -> D; A -> M; {D M A K} -> Y; K -> {D M}", sensitive="A", outcome="Y", latent=["K"])
UNFAIR_HIDDEN = HIDDEN.unfair("A -> Y", "A -> D -> Y")
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)


def draw(program: Any, n: int, columns: str, seed: int = 0) -> tuple[pd.DataFrame, pd.Series[Any]]:
    with torch.random.fork_rng(), torch.no_grad(), pyro.get_param_store().scope():
        torch.manual_seed(seed)
        sites = poutine.trace(program).get_trace(n).nodes
    table = pd.DataFrame({name: sites[name]["value"].numpy() for name in columns}).astype({"A": int, "Y": int})
    return table.drop(columns="Y"), table["Y"]


def fit(model: Any, X: Any, y: Any, unfair: Any = UNFAIR, sample_weight: Any = None, **settings: Any) -> PSCF:
    usual = {"epochs": 60, "batch_size": 200, "random_state": 0, "progress": False}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The nodes .* have the site")
        return PSCF(unfair, model=model, **{**usual, **settings}).fit(X, y, sample_weight)


def score(model: PSCF, X: pd.DataFrame, positive: Any = 1) -> NDArray[np.float64]:
    return model.predict_proba(X)[:, list(model.classes_).index(positive)]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def rms(x: Any) -> float:
    return float(np.sqrt(np.mean(np.square(x))))


# -- programs ---------------------------------------------------------------------------------------------------------


def draw_outcome(logits: Tensor) -> None:
    pyro.sample("Y", dist.Bernoulli(logits=logits))


def run(n: int, node: Callable[[Tensor, Tensor], Tensor], outcome: Callable[[Tensor], Any] = draw_outcome) -> None:
    """Draw n units whose D is as ``node`` gives it of A and Q."""
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        Q = pyro.sample("Q", dist.Normal(0.0, 1.0))
        outcome(A + Q + node(A, Q) - 2)


def computed(n: int) -> None:
    def node(A: Tensor, Q: Tensor) -> Tensor:
        return pyro.deterministic("D", 1.5 * A + Q + (0.5 + A) * pyro.sample("U_D", dist.Normal(0.0, 1.0)))

    run(n, node)


def sampled(n: int, outcome: Callable[[Tensor], Any] = draw_outcome) -> None:
    run(n, lambda A, Q: pyro.sample("D", dist.Normal(1.5 * A + Q, 0.5 + A)), outcome)


def homoscedastic(n: int, b: Any = 1.5, s: Any = 0.7) -> None:
    run(n, lambda A, Q: pyro.sample("D", dist.Normal(b * A + Q, s)))


def exact(X: pd.DataFrame) -> Any:
    return sigmoid(2 * X["Q"] + 0.5 * (X["D"] - 1.5 * X["A"] - X["Q"]) / (0.5 + X["A"]) - 2)


def equation(value: Callable[[Tensor, Tensor], Tensor], noise: Any = None) -> Any:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            Q = pyro.sample("Q", dist.Normal(0.0, 1.0))
            U = pyro.sample("U_D", dist.Normal(0.0, 1.0) if noise is None else noise)
            D = pyro.deterministic("D", value(A, U))
            pyro.sample("Y", dist.Bernoulli(logits=A + Q + 0.3 * D - 1))

    return program


def shared(n: int, b: Any = 1.0, cause: float = 0.0, reads: float = 1.0, shift: float = 0.0) -> None:
    """K is read by D, M and, unless ``reads`` is 0, the outcome; its mean is ``cause`` A."""
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        K = pyro.sample("K", dist.Normal(cause * A if cause else 0.0, 1.0))
        D = pyro.sample("D", dist.Normal(b * A + (1 + A) * K, 0.7))
        M = pyro.sample("M", dist.Normal(0.5 * A - K, 0.8))
        logits = A + D + 0.5 * M + shift
        draw_outcome(logits + reads * K if reads else logits)


def shared_with_prior(n: int, reads: float = 1.0) -> None:
    shared(n, pyro.sample("b", dist.Normal(0.0, 3.0)), reads=reads)


caused = partial(shared, cause=1.0, reads=2.0, shift=-1.0)
"""K has the cause A."""


def shared_computed(n: int) -> None:
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        K = pyro.sample("K", dist.Normal(0.0, 1.0))
        U = pyro.sample("U_D", dist.Normal(0.0, 0.7))
        V = pyro.sample("U_M", dist.Normal(0.0, 0.8))
        D = pyro.deterministic("D", A + (1 + A) * K + U)
        M = pyro.deterministic("M", 0.5 * A - K + V)
        pyro.sample("Y", dist.Bernoulli(logits=A + D + 0.5 * M + K))


def by_quadrature(X: pd.DataFrame, cause: float, reads: float, moved: float, shift: float) -> NDArray[np.float64]:
    """Average the fair score over K given the row: K ~ N(cause A, 1), moved by ``moved`` A along unfair edges."""
    a, d, m = (X[name].to_numpy(float)[:, None] for name in "ADM")
    precision = 1 + (1 + a) ** 2 / 0.49 + 1 / 0.64
    mean = (cause * a + (1 + a) * (d - a) / 0.49 - (m - 0.5 * a) / 0.64) / precision
    k = mean + NODES / np.sqrt(precision)
    fair = k - moved * a
    return np.asarray(sigmoid(fair + d - a - (1 + a) * k + 0.5 * m + reads * fair + shift) @ (WEIGHTS / WEIGHTS.sum()))


def linear_guide(rows: Any) -> None:
    w = pyro.param("w", torch.zeros(4))
    s = pyro.param("s", torch.tensor([0.5, 0.5]), constraint=constraints.positive)
    A, D, M = rows["A"], rows["D"], rows["M"]
    loc = torch.where(A > 0, w[0] * (D - 1) + w[1] * (M - 0.5), w[2] * D + w[3] * M)
    with pyro.plate("rows", len(A)):
        pyro.sample("K", dist.Normal(loc, torch.where(A > 0, s[0], s[1])))


# -- predictions of known programs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", [computed, sampled])
@pytest.mark.parametrize("known", [False, True])
def test_predictions_of_the_true_program_are_the_true_counterfactual_ones(program: Any, known: bool) -> None:
    X, y = draw(program, 300, "AQDY")
    model = fit(pf.SEM(program, UNFAIR) if known else program, X, y)
    np.testing.assert_allclose(score(model, X), exact(X), atol=1e-12)
    order = np.random.default_rng(0).permutation(300)
    np.testing.assert_allclose(score(model, X.iloc[order]), score(model, X)[order], atol=1e-12)
    np.testing.assert_allclose(score(model, X.iloc[[7]]), score(model, X)[[7]], atol=1e-12)
    assert model.truth(program, n=2000, random_state=0).piu.value == 0
    assert model.latents_.empty
    assert np.isnan(model.elbo_)


@pytest.mark.parametrize("name", ["hiring", "additive"])
@pytest.mark.some(1)
def test_the_paper_s_scenarios_as_models(name: str) -> None:
    scenario = pf.simulate.scenario(name)
    df = scenario.draw(500, random_state=0)
    model = fit(scenario.program, df.drop(columns="Y"), df["Y"], scenario.unfair)
    assert model.truth(scenario, n=3000, random_state=1).piu.value == 0


MONOTONE: dict[str, tuple[Any, Any]] = {
    "exponential": (lambda a, u: torch.exp(0.5 * a + u), None),
    "falling": (lambda a, u: torch.exp(0.5 * a - u), None),
    "cubic": (lambda a, u: a + u**3, None),
    "gamma": (lambda a, u: a + (1 + a) * u, dist.Gamma(2.0, 1.0)),
    "beta": (lambda a, u: a + (1 + a) * u, dist.Beta(2.0, 3.0)),
    "uniform": (lambda a, u: a + (1 + a) * u, dist.Uniform(-1.0, 2.0)),
    "log-normal": (lambda a, u: a + (1 + a) * u, dist.LogNormal(0.0, 1.0)),
}


@pytest.mark.parametrize("name", MONOTONE)
@pytest.mark.some(3)
def test_monotone_equations_are_inverted(name: str) -> None:
    value, noise = MONOTONE[name]
    program = equation(value, noise)
    X, y = draw(program, 100, "AQDY")
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        u = poutine.trace(program).get_trace(100).nodes["U_D"]["value"]
    fair = value(torch.zeros(100), u).numpy()
    np.testing.assert_allclose(score(fit(program, X, y), X), sigmoid(X["Q"] + 0.3 * fair - 1), atol=1e-6)


@pytest.mark.parametrize(
    "value",
    [
        lambda a, u: a + u**2,
        lambda a, u: a + torch.sin(3 * u),
        lambda a, u: a + torch.round(3 * torch.sin(3 * u)),
        lambda a, u: a + torch.floor(u**2),
    ],
    ids=["square", "sine", "rounded sine", "floor of a square"],
)
def test_equations_that_are_not_monotone_are_refused_by_fit(value: Any) -> None:
    program = equation(value)
    X, y = draw(program, 100, "AQDY")
    with pytest.raises(DataError, match="The noise 'U_D' of 'D' is neither determined by a row"):
        fit(program, X, y)


def test_a_step_gives_noise_within_it() -> None:
    program = equation(lambda a, u: torch.floor(1.5 * a + 3 * u))
    X, y = draw(program, 300, "AQDY")
    model = fit(program, X, y)
    fair = model.fair_values(X)["D"]
    own = X["D"].to_numpy()
    assert (fair[:, X["A"] == 0] == own[X["A"] == 0]).all()
    gap = own[X["A"] == 1] - fair[:, X["A"] == 1]
    assert set(np.unique(gap)) == {1.0, 2.0}  # floor(1.5 + x) - floor(x)
    assert gap.mean() == pytest.approx(1.5, abs=0.05)


@pytest.mark.parametrize(
    ("baseline", "contrast", "positive", "negative"),
    [("f", "m", "yes", "no"), ("f", "m", "accept", "reject"), (1, 2, 1, 0), ("f", "m", True, False)],
)
def test_labels(baseline: Any, contrast: Any, positive: Any, negative: Any) -> None:
    shift = baseline if isinstance(baseline, int) else 0

    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.deterministic("A", pyro.sample("U_A", dist.Bernoulli(0.5)) + shift)
            Q = pyro.sample("Q", dist.Normal(0.0, 1.0))
            D = pyro.sample("D", dist.Normal(1.5 * (A - shift) + Q, 0.5 + A - shift))
            pyro.sample("Y", dist.Bernoulli(logits=A - shift + Q + D - 2))

    X, y = draw(sampled, 200, "AQDY")
    graph = CausalGraph(
        "{A Q} -> D; {A Q D} -> Y", sensitive="A", outcome="Y", baseline=baseline, contrast=contrast, positive=positive
    )
    labelled = X.assign(A=X["A"].map({0: baseline, 1: contrast}))
    model = fit(program, labelled, y.map({1: positive, 0: negative}), graph.unfair("A -> Y", "A -> D -> Y"))
    np.testing.assert_allclose(score(model, labelled, positive), exact(X), atol=1e-12)
    assert set(model.predict(labelled)) == {positive, negative}


def test_rows_that_a_known_program_cannot_draw_are_refused() -> None:
    X, y = draw(sampled, 100, "AQDY")
    graph = CausalGraph("{A Q} -> D; {A Q D} -> Y", sensitive="A", outcome="Y", baseline=2, contrast=1)
    with pytest.raises(DataError, match="of the node 'A', such as 2, cannot be drawn"):
        fit(sampled, X.assign(A=2 - X["A"]), y, graph.unfair("A -> Y", "A -> D -> Y"))


OUTCOMES: dict[str, Any] = {
    "geometric": lambda p: pyro.sample("Y", dist.Geometric(p)),
    "computed": lambda p: pyro.deterministic("Y", (p > 0.5).float()),
    "three categories": lambda p: pyro.sample("Y", dist.Categorical(torch.stack([1 - p, p / 2, p / 2], -1))),
    "none": lambda p: None,
    "two categories": lambda p: pyro.sample("Y", dist.Categorical(torch.stack([1 - p, p], -1))),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_outcome_needs_a_probability_of_one(name: str) -> None:
    X, y = draw(sampled, 100, "AQDY")
    program = partial(sampled, outcome=lambda logits: OUTCOMES[name](torch.sigmoid(logits)))
    if name == "two categories":
        np.testing.assert_allclose(score(fit(program, X, y), X), exact(X), atol=1e-12)
        return
    with pytest.raises(GraphError, match=r"dist\.Bernoulli"):
        fit(program, X, y)


def test_vectors() -> None:
    graph = CausalGraph("A -> D; {A D} -> Y", sensitive="A", outcome="Y", columns={"D": ["d", "e"]})

    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            mean, covariance = torch.stack([A, 2 * A], -1), torch.tensor([[1.0, 0.5], [0.5, 1.0]])
            D = pyro.sample("D", dist.MultivariateNormal(mean, covariance))
            pyro.sample("Y", dist.Bernoulli(logits=A + D[:, 0] - 0.5 * D[:, 1]))

    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 100)
    X = pd.DataFrame({"A": a, "d": a + rng.normal(size=100), "e": 2 * a + rng.normal(size=100)})
    model = fit(program, X, pd.Series(rng.integers(0, 2, 100)), graph.unfair("A -> Y", "A -> D -> Y"))
    np.testing.assert_allclose(score(model, X), sigmoid(X["d"] - a - 0.5 * (X["e"] - 2 * a)), atol=1e-6)


# -- latent variables -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("program", "declared"), [(shared, True), (shared, False), (shared_computed, True)])
@pytest.mark.some(1)
def test_a_latent_node_is_inferred_from_the_row(program: Any, declared: bool) -> None:
    """Whether the graph holds it or not, whether nodes are drawn or computed; the outcome does not tell the guide."""
    graph = HIDDEN if declared else CausalGraph("A -> D; A -> M; {D M A} -> Y", sensitive="A", outcome="Y")
    X, y = draw(shared, 600, "ADMY")
    model = fit(program, X, y, graph.unfair("A -> Y", "A -> D -> Y"), guide=linear_guide, epochs=120)
    assert rms(score(model, X) - by_quadrature(X, 0, 1, 0, 0)) < 0.002  # from the prior: .17
    row = model.latents_.iloc[0]
    assert (row["latent"], row["reads"]) == ("K", "D, M, Y")
    drawn = model.to_inference_data(X, draws=20)["posterior"]["K"].to_numpy()[0].mean(0)
    a, d, m = (X[name] for name in "ADM")
    mean = (1 + a) * (d - a) / 0.49 - (m - 0.5 * a) / 0.64
    assert np.corrcoef(drawn, mean / (1 + (1 + a) ** 2 / 0.49 + 1 / 0.64))[0, 1] > 0.95


def test_networks_are_the_default_guide_and_diagnostics_are_the_exact_ones() -> None:
    X, y = draw(shared, 600, "ADMY")
    model = fit(shared, X, y, UNFAIR_HIDDEN, epochs=150)
    assert rms(score(model, X) - by_quadrature(X, 0, 1, 0, 0)) < 0.01
    a, d, m = (X[name].to_numpy(float) for name in "ADM")
    precision = 1 + (1 + a) ** 2 / 0.49 + 1 / 0.64
    mean = ((1 + a) * (d - a) / 0.49 - (m - 0.5 * a) / 0.64) / precision
    kl = 0.5 * (1 / precision + mean**2 - 1 + np.log(precision))
    assert model.latents_["kl"].item() == pytest.approx(kl.mean(), abs=0.03)
    assert model.latents_["auc"].item() == pytest.approx(0.5, abs=0.06)
    # Of the features: the outcome, which the guide does not see, is left out.
    logs = [
        torch.distributions.MultivariateNormal(
            torch.tensor([g, 0.5 * g]), torch.tensor([[(1 + g) ** 2 + 0.49, -(1 + g)], [-(1 + g), 1.64]])
        )
        for g in (0.0, 1.0)
    ]
    points = torch.tensor(X[["D", "M"]].to_numpy()).float()
    each = torch.where(torch.tensor(a) > 0, logs[1].log_prob(points), logs[0].log_prob(points)) + np.log(0.5)
    assert model.elbo_ <= float(each.mean()) + 0.002
    assert model.elbo_ == pytest.approx(float(each.mean()), abs=0.02)


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("coupling", ["gumbel", "independent"])
@pytest.mark.some(2)
def test_a_latent_variable_with_the_cause_a(declared: bool, coupling: Any) -> None:
    """A latent node keeps its value; a step that is no node is part of the edges, and its noise is kept."""
    edges = "A -> K; {A K} -> D; {A K} -> M; {A D M K} -> Y" if declared else "A -> D; A -> M; {A D M} -> Y"
    graph = CausalGraph(edges, sensitive="A", outcome="Y", latent=["K"] if declared else [])
    X, y = draw(caused, 300, "ADMY")
    model = fit(caused, X, y, graph.unfair("A -> Y", "A -> D -> Y"), coupling=coupling, epochs=150)
    found = score(model, X)
    order = np.random.default_rng(0).permutation(300)
    np.testing.assert_allclose(score(model, X.iloc[order]), found[order], atol=1e-12)
    if coupling == "gumbel":
        assert rms(found - by_quadrature(X, 1, 2, 0 if declared else 1, -1)) < 0.015


def test_a_latent_variable_that_only_the_outcome_reads() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            K = pyro.sample("K", dist.Normal(0.0, 1.0))
            D = pyro.sample("D", dist.Normal(A, 1.0))
            pyro.sample("Y", dist.Bernoulli(logits=A + D + 2 * K))

    graph = CausalGraph("A -> D; {A D K} -> Y", sensitive="A", outcome="Y", latent=["K"])
    X, y = draw(program, 300, "ADY")
    model = fit(program, X, y, graph.unfair("A -> Y", "A -> D -> Y"), epochs=150)
    fair = sigmoid((X["D"] - X["A"]).to_numpy()[:, None] + 2 * NODES) @ (WEIGHTS / WEIGHTS.sum())
    assert rms(score(model, X) - fair) < 0.02
    assert model.latents_["kl"].item() < 0.02


def test_discrete_latent_variables_are_refused() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            K = pyro.sample("K", dist.Bernoulli(0.5))
            D = pyro.sample("D", dist.Normal(A + K, 0.7))
            M = pyro.sample("M", dist.Normal(A - K, 0.7))
            pyro.sample("Y", dist.Bernoulli(logits=A + D + M))

    graph = CausalGraph("A -> D; A -> M; {D M A} -> Y; K -> {D M}", sensitive="A", outcome="Y", latent=["K"])
    X, y = draw(program, 50, "ADMY")
    with pytest.raises(PosteriorError, match="per-unit unknown 'K' is discrete"):
        fit(program, X, y, graph.unfair("A -> Y", "A -> D -> Y"))


# -- parameters -------------------------------------------------------------------------------------------------------


def with_prior(n: int) -> None:
    homoscedastic(n, pyro.sample("b", dist.Normal(0.0, 3.0)), pyro.sample("s", dist.LogNormal(0.0, 1.0)))


def with_param(n: int) -> None:
    b = pyro.param("b", torch.tensor(0.0))
    homoscedastic(n, b, pyro.param("s", torch.tensor(2.0), constraint=constraints.positive))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(2, 1)
        self.s = nn.Parameter(torch.tensor(0.0))

    def forward(self, n: int) -> None:
        def node(A: Tensor, Q: Tensor) -> Tensor:
            return pyro.sample("D", dist.Normal(self.line(torch.stack([A, Q], -1)).squeeze(-1), self.s.exp()))

        run(n, node)

    def program(self, n: int) -> None:
        pyro.module("network", self)
        self(n)


class PyroNetwork(PyroModule):
    def __init__(self) -> None:
        super().__init__()
        self.line = PyroModule[nn.Linear](2, 1)
        self.line.bias = PyroSample(dist.Normal(0.0, 3.0).expand([1]).to_event(1))
        self.s = PyroParam(torch.tensor(1.0), constraint=constraints.positive)

    def forward(self, n: int) -> None:
        bias, s = self.line.bias, self.s

        def node(A: Tensor, Q: Tensor) -> Tensor:
            return pyro.sample("D", dist.Normal((torch.stack([A, Q], -1) @ self.line.weight.T + bias).squeeze(-1), s))

        run(n, node)


def fair_by_regression(X: pd.DataFrame) -> Any:
    """Return the fair score if b is that of least squares given the slope of Q, 1."""
    gap = (X["D"] - X["Q"]).groupby(X["A"]).mean()
    return sigmoid(2 * X["Q"] + (X["D"] - X["Q"] - X["A"] * gap[1]) - 2)


MODULES: dict[str, Callable[[], Any]] = {
    "module": Network,
    "method": lambda: Network().program,
    "Pyro's module": PyroNetwork,
}


@pytest.mark.parametrize("name", ["prior", "param", *MODULES])
@pytest.mark.some(1)
def test_parameters_are_learned_whatever_holds_them(name: str) -> None:
    X, y = draw(homoscedastic, 400, "AQDY")
    with torch.random.fork_rng(), pyro.get_param_store().scope():
        torch.manual_seed(0)
        pyro.param("b", torch.tensor(-1.0))
        pyro.param("other", torch.tensor(3.0), constraint=constraints.positive)
        program = MODULES[name]() if name in MODULES else {"prior": with_prior, "param": with_param}[name]
        module = getattr(program, "__self__", program)
        before = {key: each.clone() for key, each in module.state_dict().items()} if name in MODULES else {}
        state = torch.random.get_rng_state()
        model = fit(program, X, y, epochs=200, learning_rate=0.05)
        found = score(model, X)
        assert rms(found - fair_by_regression(X)) < 0.01
        assert np.isfinite(model.elbo_)
        assert model.elbo_ == pytest.approx(-model.history_["loss"].iloc[-1], abs=0.02)
        assert torch.equal(torch.random.get_rng_state(), state)
        assert not pyro.settings.get("module_local_params")
        stored = {key: float(value.detach()) for key, value in pyro.get_param_store().items()}
        assert stored == {"b": -1.0, "other": 3.0}
        if name in MODULES:
            assert all(torch.equal(each, before[key]) for key, each in module.state_dict().items())
            assert all(each.requires_grad and each.grad is None for each in module.parameters())
        again = fit(program, X, y, epochs=200, learning_rate=0.05)
        np.testing.assert_array_equal(score(again, X), found)
    if name == "prior":
        gap = (X["D"] - X["Q"]).groupby(X["A"]).mean()
        assert float(model.parameters_["b"]) == pytest.approx(gap[1], abs=0.02)


def test_a_closure_over_a_network_is_refused_and_the_network_as_before() -> None:
    X, y = draw(homoscedastic, 100, "AQDY")
    network = Network()
    before = {key: each.clone() for key, each in network.state_dict().items()}
    with pytest.raises(DataError, match=r"trains 'network' by pyro\.module, a network that it closes over"):
        fit(lambda n: network.program(n), X, y)
    assert all(torch.equal(each, before[key]) for key, each in network.state_dict().items())
    assert all(each.requires_grad and each.grad is None for each in network.parameters())


def test_a_network_that_pyro_does_not_see_is_named() -> None:
    X, y = draw(homoscedastic, 100, "AQDY")
    network = Network()
    with pytest.warns(PyrofairWarning, match="reads numbers that require a gradient"):
        fit(lambda n: network(n), X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network.requires_grad_(requires_grad=False)
        fit(lambda n: network(n), X, y)


def test_draws_of_a_posterior_are_spread_over_the_samples() -> None:
    X, y = draw(homoscedastic, 100, "AQDY")
    b = np.linspace(1.0, 2.0, 5)
    model = fit(pf.SEM(with_prior, UNFAIR, posterior={"b": b, "s": np.full(5, 0.7)}), X, y, samples=10)
    fair = model.fair_values(X)["D"]
    expected = X["D"].to_numpy() - np.repeat(b, 2)[:, None] * X["A"].to_numpy()
    np.testing.assert_allclose(fair, expected, atol=1e-6)
    np.testing.assert_allclose(
        score(model, X),
        sigmoid(2 * X["Q"].to_numpy() + 0 * X["A"].to_numpy() + expected - X["Q"].to_numpy() - 2).mean(0),
        atol=1e-6,
    )


@pytest.mark.filterwarnings("ignore:The distribution of .* may not have settled")
def test_learned_mechanisms_are_their_sem() -> None:
    X, y = draw(homoscedastic, 200, "AQDY")
    learned = pf.learn_mechanisms(X.assign(Y=y), GRAPH, steps=100, random_state=0)
    model = fit(learned, X, y)
    worlds = pf.SEM.from_mechanisms(learned, UNFAIR).counterfactual(X, random_state=0)
    contrast = (X["A"] == 1).to_numpy()
    np.testing.assert_allclose(
        model.fair_values(X)["D"].mean(0)[contrast], worlds.baseline["D"].to_numpy()[contrast], atol=1e-9
    )
    kept = model.fair_values(X)["D"][:, ~contrast]
    np.testing.assert_allclose(kept, np.broadcast_to(X["D"][~contrast].to_numpy(), kept.shape))


# -- guides and settings ----------------------------------------------------------------------------------------------


def drawing(make: Callable[[Any], Any], *, name: str = "K", plate: bool = True) -> Any:
    def guide(rows: Any) -> None:
        if not plate:
            pyro.sample(name, make(rows))
            return
        with pyro.plate("rows", len(rows["A"])):
            pyro.sample(name, make(rows))

    return guide


GUIDES: dict[str, tuple[Any, type[Exception], str]] = {
    "misses it": (lambda rows: None, GraphError, "draws no 'K'"),
    "is given it": (lambda rows: pyro.deterministic("K", rows["D"]), GraphError, "draws no 'K'"),
    "no plate": (drawing(lambda r: dist.Normal(0.0, 1.0), plate=False), GraphError, r"in the shape \(\)"),
    "vector": (drawing(lambda r: dist.Normal(torch.zeros(2), 1.0).to_event(1)), GraphError, r"in the shape \(11, 2\)"),
    "sees the outcome": (drawing(lambda r: dist.Normal(r["Y"], 1.0)), DataError, "The guide fails: KeyError: 'Y'"),
    "no quantiles": (drawing(lambda r: dist.VonMises(r["D"], 1.0)), DataError, "from VonMises, which has no usable"),
    "fails": (lambda rows: 1 / 0, DataError, "The guide fails: ZeroDivisionError"),
    "draws more": (
        lambda rows: (linear_guide(rows), pyro.sample("Z", dist.Normal(0.0, 1.0))),
        GraphError,
        "draws 'Z', no unknown",
    ),
}


@pytest.mark.parametrize("name", GUIDES)
def test_guides_are_refused_before_the_fit(name: str) -> None:
    guide, error, text = GUIDES[name]
    X, y = draw(shared, 50, "ADMY")
    with pytest.raises(error, match=text):
        fit(shared, X, y, UNFAIR_HIDDEN, guide=guide)


def test_a_guide_without_numbers_is_used_as_it_is() -> None:
    def guide(rows: Any) -> None:
        a, d, m = rows["A"], rows["D"], rows["M"]
        precision = 1 + (1 + a) ** 2 / 0.49 + 1 / 0.64
        mean = ((1 + a) * (d - a) / 0.49 - (m - 0.5 * a) / 0.64) / precision
        with pyro.plate("rows", len(a)):
            pyro.sample("K", dist.Normal(mean, precision.rsqrt()))

    X, y = draw(shared, 200, "ADMY")
    model = fit(shared, X, y, UNFAIR_HIDDEN, guide=guide, epochs=2, samples=200)
    assert model.history_.empty
    assert rms(score(model, X) - by_quadrature(X, 0, 1, 0, 0)) < 5e-4


def test_a_guide_that_is_a_network_is_left_as_it_was() -> None:
    class Guide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = nn.Linear(3, 2)

        def forward(self, rows: Any) -> None:
            loc, scale = self.network(torch.stack([rows[name].float() for name in "ADM"], -1)).unbind(-1)
            with pyro.plate("rows", len(loc)):
                pyro.sample("K", dist.Normal(loc, scale.exp()))

    X, y = draw(shared, 300, "ADMY")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        guide = Guide()
    before = guide.network.weight.detach().clone()
    model = fit(shared, X, y, UNFAIR_HIDDEN, guide=guide, epochs=150)
    assert rms(score(model, X) - by_quadrature(X, 0, 1, 0, 0)) < 0.03
    assert torch.equal(guide.network.weight, before)
    assert guide.network.weight.requires_grad


def test_a_guide_may_draw_parameters_unless_the_outcome_reads_the_noise() -> None:
    def guide(rows: Any) -> None:
        scale = pyro.param("b_scale", torch.tensor(0.1), constraint=constraints.positive)
        pyro.sample("b", dist.Normal(pyro.param("b_loc", torch.tensor(0.0)), scale))
        linear_guide(rows)

    graph = CausalGraph("A -> D; A -> M; {D M A} -> Y; K -> {D M}", sensitive="A", outcome="Y", latent=["K"])
    X, y = draw(shared, 400, "ADMY")
    model = fit(
        partial(shared_with_prior, reads=0.0), X, y, graph.unfair("A -> Y", "A -> D -> Y"), guide=guide, epochs=200
    )
    assert float(model.parameters_["b"]) == pytest.approx(1.0, abs=0.25)
    with pytest.raises(DataError, match="The guide draws the parameter 'b', but the outcome reads unknown noise"):
        fit(shared_with_prior, X, y, UNFAIR_HIDDEN, guide=guide)


def test_a_guide_of_nothing_is_refused() -> None:
    X, y = draw(sampled, 50, "AQDY")
    with pytest.raises(DataError, match="guide= is that of a given model"):
        PSCF(UNFAIR, guide=linear_guide).fit(X, y)
    with pytest.raises(DataError, match="they determine all of it"):
        fit(sampled, X, y, guide=linear_guide)


@pytest.mark.parametrize(("setting", "value"), [("families", {}), ("own_noise", 0.2), ("hidden", 7)])
def test_settings_of_networks_are_refused(setting: str, value: Any) -> None:
    X, y = draw(sampled, 50, "AQDY")
    with pytest.raises(DataError, match=f"{setting}=.* is a setting of the default networks"):
        fit(sampled, X, y, **{setting: value})


def test_the_penalty_on_the_groups_applies_to_a_given_model() -> None:
    X, y = draw(caused, 300, "ADMY")
    graph = CausalGraph("A -> D; A -> M; {A D M} -> Y", sensitive="A", outcome="Y")
    plain, pulled = (
        fit(caused, X, y, graph.unfair("A -> Y", "A -> D -> Y"), mmd=mmd, epochs=60).latents_["auc"].item()
        for mmd in (0.0, 20.0)
    )
    assert abs(pulled - 0.5) < abs(plain - 0.5) - 0.1


# -- the fit as such --------------------------------------------------------------------------------------------------


def test_clones_and_pickles() -> None:
    X, y = draw(shared, 200, "ADMY")
    model = fit(shared, X, y, UNFAIR_HIDDEN, guide=linear_guide, epochs=20)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(score(again, X), score(model, X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        twin = clone(model).fit(X, y)
    np.testing.assert_array_equal(score(twin, X), score(model, X))


def test_weights_count_rows() -> None:
    X, y = draw(homoscedastic, 100, "AQDY")
    weight = np.where(np.arange(100) < 50, 2.0, 1.0)
    rows = np.repeat(np.arange(100), weight.astype(int))
    settings: dict[str, Any] = {"batch_size": 1000, "epochs": 300, "learning_rate": 0.03}
    weighted = fit(with_param, X, y, sample_weight=weight, **settings)
    repeated = fit(with_param, X.iloc[rows], y.iloc[rows], **settings)
    np.testing.assert_allclose(score(weighted, X), score(repeated, X), atol=1e-5)
    assert abs(score(weighted, X) - score(fit(with_param, X, y, **settings), X)).max() > 1e-4
    assert weighted.elbo_ == pytest.approx(repeated.elbo_, abs=1e-4)


@pytest.mark.parametrize("phase", [1, 2])
def test_an_interruption_keeps_whole_epochs_of_either_fit(phase: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = draw(shared, 100, "ADMY")
    run, calls = amortised.descend, []

    def stopped(*args: Any, **settings: Any) -> Any:
        calls.append(0)
        for step, value in enumerate(run(*args, **settings), 1):
            if len(calls) == phase and step == 4:
                raise KeyboardInterrupt
            yield value

    monkeypatch.setattr(amortised, "descend", stopped)
    with pytest.warns(PyrofairWarning, match="Interrupted after 3 of 5 epochs"):
        model = fit(shared_with_prior, X, y, UNFAIR_HIDDEN, epochs=5)
    assert len(model.history_) == 8
    assert np.isfinite(score(model, X)).all()


# -- recanting witnesses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["computed", "sampled"])
@pytest.mark.parametrize(
    ("path", "fair"),
    [
        ("A -> D -> M -> Y", lambda a, d, m: d + (m - 0.8 * 1.5 * a) + a),  # M reads the fair D, and Y the unit's own
        ("A -> D -> Y", lambda a, d, m: (d - 1.5 * a) + m + a),
    ],
)
def test_a_given_model_may_have_a_recanting_witness(noise: str, path: str, fair: Any) -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            if noise == "sampled":
                D = pyro.sample("D", dist.Normal(1.5 * A, 1.0))
                M = pyro.sample("M", dist.Normal(0.8 * D, 0.5))
            else:
                D = pyro.deterministic("D", 1.5 * A + pyro.sample("U_D", dist.Normal(0.0, 1.0)))
                M = pyro.deterministic("M", 0.8 * D + 0.5 * pyro.sample("U_M", dist.Normal(0.0, 1.0)))
            pyro.sample("Y", dist.Bernoulli(logits=D + M + A - 2))

    graph = CausalGraph("A -> D; D -> M; {A D M} -> Y", sensitive="A", outcome="Y")
    unfair = graph.unfair(path)
    X, y = draw(program, 300, "ADMY")
    model = fit(program, X, y, unfair)
    expected = sigmoid(fair(X["A"], X["D"], X["M"]) - 2)
    np.testing.assert_allclose(score(model, X), expected, atol=1e-4)
    with pytest.raises(DataError, match=r"latents='prior'.*'D' anew, which is a recanting witness"):
        score(model.set_params(latents="prior"), X)
    with pytest.raises(NotIdentifiedError, match="'D' is a recanting witness"):
        PSCF(unfair).fit(X, y)
