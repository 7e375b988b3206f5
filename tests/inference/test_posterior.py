from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from matplotlib.figure import Figure
from pyro import poutine
from pyro.infer import NUTS, Predictive
from scipy.special import expit, logsumexp
from scipy.stats import binom, gamma, laplace, norm

from pyrofair import SEM, CausalGraph, DataError, GraphError, PyrofairWarning, effect_posterior
from pyrofair.inference import posterior
from pyrofair.inference.likelihood import PosteriorError, read_likelihood
from pyrofair.inference.posterior import Posterior, fit_posterior, predictive
from tests.programs.models import Scores, coin, graph, normal, through, units

# ArviZ 0.23 announces its next version once a day, on import.
pytestmark = pytest.mark.filterwarnings(r"ignore:\s*ArviZ is undergoing a major refactor:FutureWarning")

N = 300
PRIOR = 5.0
GRAPH = graph("A -> M; {A M} -> Y")
LINEAR: Any = {name: normal(0.0, PRIOR) for name in "bcd"}
computed = units(
    LINEAR | {"through_m": lambda v: v.b * v.d},
    U_A=normal(),
    U_M=normal(),
    U_Y=normal(),
    A=lambda v: (v.U_A > 0).float(),
    M=lambda v: v.b * v.A + v.U_M,
    Y=lambda v: v.c * v.A + v.d * v.M + v.U_Y,
)
"""Case B1 with coefficients to learn."""
drawn = units(LINEAR, M=lambda v: dist.Normal(v.b * v.A, 1.0), Y=lambda v: dist.Normal(v.c * v.A + v.d * v.M, 1.0))
"""The same, its nodes drawn without explicit noise."""


def table(n: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    A = (rng.normal(size=n) > 0).astype(int)
    M = 2 * A + rng.normal(size=n)
    return pd.DataFrame({"A": A, "M": M, "Y": A + 3 * M + rng.normal(size=n)})


def conjugate(df: pd.DataFrame) -> tuple[dict[str, float], dict[str, float], float]:
    """Return the exact posterior means, standard deviations, and correlation of c and d."""
    A = df["A"].to_numpy(dtype=float)
    X = np.column_stack([A, df["M"]])
    cov = np.linalg.inv(X.T @ X + np.eye(2) / PRIOR**2)
    mean = cov @ X.T @ df["Y"].to_numpy()
    var_b = 1.0 / (A.sum() + PRIOR**-2)
    means = {"b": var_b * float(A @ df["M"]), "c": float(mean[0]), "d": float(mean[1])}
    sds = {"b": math.sqrt(var_b), "c": math.sqrt(cov[0, 0]), "d": math.sqrt(cov[1, 1])}
    return means, sds, float(cov[0, 1] / math.sqrt(cov[0, 0] * cov[1, 1]))


@pytest.fixture(scope="module")
def nuts() -> Posterior:
    return fit_posterior(computed, table(), GRAPH, draws=100, warmup=100, chains=2, progress=False, random_state=1)


# -- what is learned --------------------------------------------------------------------------------------------------


def test_nuts_finds_the_conjugate_posterior(nuts: Posterior) -> None:
    df = table()
    means, sds, correlation = conjugate(df)
    least_squares = np.linalg.lstsq(df[["A", "M"]].to_numpy(dtype=float), df["Y"].to_numpy(), rcond=None)[0]
    for name, truth in {"b": 2.0, "c": 1.0, "d": 3.0}.items():
        draws = nuts.flat[name]
        assert draws.shape == (200,)
        assert draws.mean() == pytest.approx(means[name], abs=4 * sds[name] / math.sqrt(nuts.diagnostics["ess"][name]))
        assert draws.std() == pytest.approx(sds[name], rel=0.2)
        assert np.quantile(draws, 0.005) < truth < np.quantile(draws, 0.995)
    assert [means["c"], means["d"]] == pytest.approx(least_squares, abs=0.02)
    assert np.corrcoef(nuts.flat["c"], nuts.flat["d"])[0, 1] == pytest.approx(correlation, abs=0.1)
    assert nuts.diagnostics["divergences"] == 0
    assert nuts.samples["b"].shape == nuts.sample_stats["diverging"].shape == nuts.sample_stats["lp"].shape == (2, 100)
    assert nuts.losses is None


def test_sites_computed_from_parameters_are_kept_but_not_replayed(nuts: Posterior) -> None:
    product = nuts.samples["b"] * nuts.samples["d"]
    np.testing.assert_allclose(nuts.samples["through_m"], product, rtol=1e-5)
    assert nuts.parameters == ("b", "c", "d")
    assert list(nuts.flat) == ["b", "c", "d"]


@pytest.mark.parametrize("guide", [pytest.param("normal", marks=pytest.mark.slow), "multivariate"])
def test_svi_finds_the_conjugate_posterior(guide: Any) -> None:
    df = table()
    means, sds, correlation = conjugate(df)
    steps = 2000 if guide == "normal" else 1000  # a narrow conditional spread takes longer
    found = fit_posterior(
        drawn, df, GRAPH, method="svi", guide=guide, steps=steps, draws=1000, progress=False, random_state=0
    )
    narrow = math.sqrt(1.0 - correlation**2) if guide == "normal" else 1.0  # mean-field: the conditional spread
    for name in "bcd":
        assert found.flat[name].shape == (1000,)
        assert found.flat[name].mean() == pytest.approx(means[name], abs=0.4 * sds[name])
        expected = sds[name] * (1.0 if name == "b" else narrow)
        assert found.flat[name].std() == pytest.approx(expected, rel=0.35)
    assert found.losses is not None
    assert found.losses.shape == (steps,)
    assert found.losses[-100:].mean() < found.losses[:100].mean()
    assert found.method == f"svi, {guide} guide"
    assert found.samples["b"].shape == (1, 1000)


# -- discrete unknowns ------------------------------------------------------------------------------------------------


def classes(v: Any) -> Any:
    return dist.Categorical(torch.tensor([0.5, 0.2, 0.3]))


CLASSES: dict[str, tuple[Callable[[int], None], Callable[[Any, Any], Any]]] = {
    "drawn": (
        units({"b": normal()}, K=classes, M=lambda v: dist.Normal(v.b * v.A + 2.0 * v.K, 1.0)),
        lambda A, M: np.log(sum(p * norm.pdf(M, 0.7 * A + 2 * k) for k, p in enumerate((0.5, 0.2, 0.3)))),
    ),
    "computed": (
        units(
            {"b": normal()}, K=classes, U=lambda v: dist.Normal(1.0 * v.K, 1.0 + v.K), M=lambda v: v.b * v.A + 2 * v.U
        ),
        lambda A, M: np.log(sum(p * norm.pdf(M, 0.7 * A + 2 * k, 2 * (1 + k)) for k, p in enumerate((0.5, 0.2, 0.3)))),
    ),
    "one-hot, beside noise": (
        units(
            {"b": normal()},
            K=lambda v: dist.OneHotCategorical(torch.stack([0.5 + 0 * v.A, 0.2 + 0.2 * v.A, 0.3 - 0.2 * v.A], -1)),
            U=normal(),
            M=lambda v: v.b * v.A + v.K @ torch.tensor([0.0, 2.0, 4.0]) + v.U,
        ),
        lambda A, M: np.log(
            sum(
                (p + d * A) * norm.pdf(M, 0.7 * A + 2 * k)
                for k, (p, d) in enumerate(((0.5, 0), (0.2, 0.2), (0.3, -0.2)))
            )
        ),
    ),
    "two that depend on each other": (
        units(
            {"b": normal()},
            J=coin(0.3),
            K=lambda v: dist.Binomial(2, 0.2 + 0.5 * v.J),
            M=lambda v: dist.Normal(v.b * v.A + v.J - v.K, 1.0),
        ),
        lambda A, M: np.log(
            sum(
                (0.3 if j else 0.7) * binom.pmf(k, 2, 0.2 + 0.5 * j) * norm.pdf(M, 0.7 * A + j - k)
                for j, k in product(range(2), range(3))
            )
        ),
    ),
}


@pytest.mark.parametrize("name", CLASSES)
def test_the_density_of_a_row_is_summed_over_its_discrete_unknowns(name: str) -> None:
    program, expected = CLASSES[name]
    df = pd.DataFrame({"A": [0, 1, 1, 0], "M": [0.0, 1.5, -2.0, 6.0]})
    found = log_density(program, df, through("M").graph, b=0.7)
    rest = norm.logpdf(0.7) + 4 * math.log(0.5)
    assert found == pytest.approx(expected(df["A"], df["M"]).sum() + rest, abs=1e-4)


CENSORED: dict[str, tuple[Any, float, Any, Any, Any, Any]] = {
    "cap": (lambda v: (v.b * v.A + 0.7 * v.U).clamp(max=1.0), 1.0, lambda b, A, k: b * A, 0.7, norm.sf, norm),
    "falling": (lambda v: torch.relu(v.b * v.A - 0.7 * v.U), 0.0, lambda b, A, k: b * A, 0.7, norm.cdf, norm),
    "rare": (lambda v: (9 + v.b * v.A + v.U).clamp(min=0), 0.0, lambda b, A, k: 9 + b * A, 1.0, laplace.cdf, laplace),
    "classes": (lambda v: torch.relu(v.K + v.b * v.A + v.U), 0.0, lambda b, A, k: k + b * A, 1.0, norm.cdf, norm),
}
"""M, its cap, its mean without it, its scale, the probability of the cap, and the family of U in SciPy."""


@pytest.mark.parametrize("name", CENSORED)
@pytest.mark.parametrize("b", [0.4, -3.0])
def test_a_censored_node_has_a_probability_at_its_cap(name: str, b: float) -> None:
    node, cap, mean, scale, beyond, family = CENSORED[name]
    noise = dist.Laplace(0.0, 1.0) if family is laplace else dist.Normal(0.0, 1.0)
    classes = {"K": coin(0.3)} if name == "classes" else {}
    program = units({"b": normal(0.0, 10.0)}, **classes, U=lambda v: noise, M=node)
    df = pd.DataFrame({"A": [0, 1, 0, 1], "M": [cap, cap, 0.5, 0.8]})
    each = []
    for k, share in ((0.0, 0.7), (1.0, 0.3)) if classes else ((0.0, 1.0),):
        u = (df["M"] - mean(b, df["A"], k)) / scale
        each.append(np.log(share * np.where(df["M"] == cap, beyond(u), family.pdf(u) / scale)))
    right = logsumexp(each, 0).sum() + norm.logpdf(b, 0, 10) + 4 * math.log(0.5)
    assert log_density(program, df, through("M").graph, b=b) == pytest.approx(right, abs=1e-3)


CURVED: dict[str, tuple[Any, Any, Any, list[float]]] = {
    "exponential": (
        lambda v: (v.b * v.A + v.U).exp(),
        normal(),
        lambda m, x: norm.logpdf(np.log(m) - x) - np.log(m),
        [0.5, 1.0, 1.5, 30.0],
    ),
    "falling, steeper in a group": (
        lambda v: -((v.b + (1.0 + v.A) * v.U).sinh()),
        normal(),
        lambda m, x: norm.logpdf((np.arcsinh(-m) - x) / A_STEEP) - np.log(A_STEEP) - 0.5 * np.log1p(m**2),
        [0.5, -1.0, 1.5, -3.0],
    ),
    "rising in one group": (
        lambda v: (v.b + (1.0 - 2.0 * v.A) * v.U).exp(),
        normal(),
        lambda m, x: norm.logpdf(np.log(m) - x) - np.log(m),
        [0.5, 1.0, 1.5, 3.0],
    ),
    "no value at noise 0": (
        lambda v: v.b * v.A + v.U.log(),
        lambda _: dist.Gamma(2.0, 1.0),
        lambda m, x: gamma.logpdf(np.exp(m - x), 2.0) + m - x,
        [0.5, -1.0, 1.5, -3.0],
    ),
    "a kink": (
        lambda v: torch.where(v.U > 0.0, 2.0 * v.U, v.U) + v.b * v.A,
        normal(),
        lambda m, x: norm.logpdf(np.where(m > x, (m - x) / 2.0, m - x)) - np.log(np.where(m > x, 2.0, 1.0)),
        [0.5, -1.0, 1.5, -3.0],
    ),
    "two caps": (
        lambda v: (v.b * v.A + 0.7 * v.U).clamp(-0.5, 1.0),
        normal(),
        lambda m, x: _between(m, (m - x) / 0.7, -0.5, 1.0, norm.logpdf((m - x) / 0.7) - np.log(0.7)),
        [-0.5, 0.2, 1.0, 1.0],
    ),
    "two caps of a curve": (
        lambda v: (v.b * v.A + v.U).sinh().clamp(-0.5, 1.0),
        normal(),
        lambda m, x: _between(m, np.arcsinh(m) - x, -0.5, 1.0, norm.logpdf(np.arcsinh(m) - x) - 0.5 * np.log1p(m**2)),
        [-0.5, 0.2, 1.0, 1.0],
    ),
    "a level between": (
        lambda v: torch.nn.functional.softshrink(v.b * v.A + v.U, 0.5),
        normal(),
        lambda m, x: np.where(
            m == 0.0, np.log(norm.cdf(0.5 - x) - norm.cdf(-0.5 - x)), norm.logpdf(m + 0.5 * np.sign(m) - x)
        ),
        [0.0, 0.0, 1.0, -1.0],
    ),
}
"""M, the distribution of U, the log-density of M given b A (or b), and rows of A = 0, 1, 0, 1."""
A_STEEP = np.array([1.0, 2.0, 1.0, 2.0])


def _between(m: Any, noise: Any, low: float, high: float, inside: Any) -> Any:
    return np.where(m <= low, norm.logcdf(noise), np.where(m >= high, norm.logsf(noise), inside))


@pytest.mark.parametrize("name", CURVED)
@pytest.mark.parametrize("b", [0.4, -1.7])
def test_the_density_of_a_monotone_node_and_its_gradient(name: str, b: float) -> None:
    node, noise, log_pdf, m = CURVED[name]
    df = pd.DataFrame({"A": [0, 1, 0, 1], "M": m})
    of_b = np.ones(4) if name in ("falling, steeper in a group", "rising in one group") else df["A"].to_numpy()

    def right(b: float) -> float:
        return float(log_pdf(df["M"].to_numpy(), b * of_b).sum() + norm.logpdf(b) + 4 * math.log(0.5))

    likelihood = read_likelihood(units({"b": normal()}, U=noise, M=node), df, through("M").graph)
    given = torch.tensor(b, requires_grad=True)
    found = poutine.trace(poutine.condition(likelihood, data={"b": given})).get_trace().log_prob_sum()
    assert found.item() == pytest.approx(right(b), abs=1e-3)
    slope = (right(b + 1e-5) - right(b - 1e-5)) / 2e-5
    assert torch.autograd.grad(found, given)[0].item() == pytest.approx(slope, rel=2e-3, abs=2e-3)


def test_evidence_and_scales_count_within_the_sum() -> None:
    def program(n: int) -> None:
        b = pyro.sample("b", dist.Normal(0.0, 1.0))
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            K = pyro.sample("K", dist.Bernoulli(0.3))
            pyro.factor("f", 0.5 * K)
            pyro.sample("seen", dist.Normal(K, 1.0), obs=torch.ones(n))
            with poutine.scale(scale=2.0):
                pyro.sample("M", dist.Normal(b * A + K, 1.0))

    df = pd.DataFrame({"A": [0, 1], "M": [0.2, 1.5]})
    found = log_density(program, df, through("M").graph, b=0.7)
    each = [
        np.log(0.3 if k else 0.7) + 0.5 * k + norm.logpdf(1.0, k) + 2 * norm.logpdf(df["M"], 0.7 * df["A"] + k)
        for k in range(2)
    ]
    assert found == pytest.approx(logsumexp(each, 0).sum() + norm.logpdf(0.7) + 2 * math.log(0.5), abs=1e-4)


def test_a_latent_class_is_fitted() -> None:
    rng = np.random.default_rng(0)
    A, K = rng.integers(0, 2, 200), rng.random(200) < 0.3
    df = pd.DataFrame({"A": A, "M": 1.0 * A + 4.0 * K + rng.normal(size=200)})
    program = units(
        {"p": lambda _: dist.Beta(2.0, 2.0), "b": normal(0.0, 3.0), "c": normal(3.0)},
        K=lambda v: dist.Bernoulli(v.p),
        M=lambda v: dist.Normal(v.b * v.A + v.c * v.K, 1.0),
    )
    settings: dict[str, Any] = {"method": "svi", "steps": 600, "progress": False, "random_state": 0}
    found = fit_posterior(program, df, through("M").graph, **settings).flat
    slopes = np.linalg.lstsq(np.column_stack([A, K]), df["M"], rcond=None)[0]  # as if the classes were known
    assert found["p"].mean() == pytest.approx(K.mean(), abs=0.03)
    assert [found["b"].mean(), found["c"].mean()] == pytest.approx(slopes, abs=0.15)


# -- the density ------------------------------------------------------------------------------------------------------


def log_density(program: Callable[[int], Any], df: pd.DataFrame, graph: CausalGraph, **values: float) -> float:
    given = {name: torch.tensor(value) for name, value in values.items()}
    trace = poutine.trace(poutine.condition(read_likelihood(program, df, graph), data=given)).get_trace()
    return trace.log_prob_sum().item()


@pytest.mark.parametrize(
    ("noise", "density"),
    [
        (dist.Normal(0.5, 2.0), lambda u: norm(0.5, 2.0).logpdf(u)),
        (dist.Exponential(1.5), lambda u: math.log(1.5) - 1.5 * u),
    ],
)
def test_change_of_variables(noise: Any, density: Callable[[Any], Any]) -> None:
    """V = s A - exp(t) W U, through steps of its own, a slope that differs between units and is negative."""
    program = units(
        {"s": normal(), "t": normal()},
        W=lambda v: dist.LogNormal(0.0, 1.0),
        U=lambda v: noise,
        step=lambda v: torch.exp(v.t) * v.W * v.U,
        V=lambda v: v.s * v.A - v.step,
    )
    rng = np.random.default_rng(0)
    A, W, U = rng.integers(0, 2, 50), rng.lognormal(size=50), noise.sample((50,)).double().numpy()
    s, t = 0.7, -0.3
    df = pd.DataFrame({"A": A, "W": W, "V": s * A - math.exp(t) * W * U})
    expected = density(U).sum() - (t + np.log(W)).sum()
    expected += norm.logpdf(s) + norm.logpdf(t) + 50 * math.log(0.5) + (norm.logpdf(np.log(W)) - np.log(W)).sum()
    own = graph("{A W} -> V -> Y")
    assert log_density(program, df, own, s=s, t=t) == pytest.approx(expected, rel=1e-4)
    if isinstance(noise, dist.Exponential):
        assert log_density(program, df, own, s=-20.0, t=t) == -math.inf  # a row would need negative noise


def test_a_common_cause_stays_unknown() -> None:
    program = units(
        {"b": normal(0.0, PRIOR)},
        H=normal(),
        U=normal(0.0, 0.5),
        D=lambda v: v.b * v.A + v.H + v.U,
        M=lambda v: dist.Normal(v.D + v.H, 0.5),
    )
    own = graph("A -> D -> M -> Y; H -> D; H -> M", latent=["H"])
    rng = np.random.default_rng(0)
    H, A = rng.normal(size=200), rng.integers(0, 2, 200)
    D = 1.5 * A + H + 0.5 * rng.normal(size=200)
    df = pd.DataFrame({"A": A, "D": D, "M": D + H + 0.5 * rng.normal(size=200)})
    likelihood = read_likelihood(program, df, own)
    assert likelihood.latent == ("H",)
    assert likelihood.inverted == {"D": "U"}
    found = fit_posterior(program, df, own, method="svi", steps=500, draws=50, progress=False, random_state=0)
    assert list(found.samples) == ["b"]
    assert found.flat["b"].mean() == pytest.approx(1.5, abs=0.35)


def test_labels_and_outcome_are_coded_by_the_graph() -> None:
    program = units({"c": normal()}, Y=lambda v: dist.Bernoulli(logits=v.c * v.A))
    own = graph("A -> Y", baseline="m", contrast="f", positive="no")
    df = pd.DataFrame({"A": ["f", "m", "f"], "Y": ["no", "no", "yes"]})
    rows = read_likelihood(program, df, own).rows
    assert rows["A"].tolist() == [1.0, 0.0, 1.0]
    assert rows["Y"].tolist() == [1.0, 1.0, 0.0]
    with pytest.warns(PyrofairWarning, match="No node of the table depends on the parameter 'c'"):
        read_likelihood(program, df[["A"]], own)


# -- what is left as it was -------------------------------------------------------------------------------------------


def test_a_table_of_labels_is_fitted_as_its_codes() -> None:
    program = units(
        {"b": normal(0.0, 2.0)}, D=lambda v: dist.Bernoulli(logits=v.b * v.A), Y=lambda v: dist.Bernoulli(logits=v.D)
    )
    own = graph("A -> D -> Y", columns={"D": "job"})
    df = pd.DataFrame({"A": [0, 1] * 20, "job": [0, 1, 1, 1] * 10, "Y": [0, 1] * 20})
    named = df.assign(job=df["job"].map({0: "nurse", 1: "cook"}))
    settings: Any = {"method": "svi", "steps": 300, "draws": 10, "progress": False, "random_state": 0}
    plain = fit_posterior(program, df, own, **settings)
    labelled = fit_posterior(program, named, own, levels={"D": ["nurse", "cook"]}, **settings)
    np.testing.assert_array_equal(plain.flat["b"], labelled.flat["b"])
    for levels, match in (
        (None, "'job' holds 'nurse', and .*levels={'D'"),
        ({"D": ["nurse"]}, "'job' holds 'cook', which is none of its 1 levels: 'nurse'"),
        ({"job": ["nurse", "cook"]}, "levels names 'job', which is no node site. They are: D, Y"),
    ):
        with pytest.raises(DataError, match=match):
            fit_posterior(program, named, own, levels=levels, **settings)


# -- warnings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"steps": 100, "learning_rate": 0.01}, r"settled: it falls by .* nats .* over the last quarter of 100 steps"),
        ({"steps": 2}, "2 steps are too few to fit anything"),
    ],
)
def test_a_loss_that_has_not_settled_warns(settings: Any, match: str) -> None:
    with pytest.warns(PyrofairWarning, match=match):
        fit_posterior(drawn, table(50), GRAPH, method="svi", draws=4, progress=False, random_state=0, **settings)


def test_an_interrupt_keeps_the_steps_done(monkeypatch: pytest.MonkeyPatch) -> None:
    step, done = torch.optim.Adam.step, []

    def interrupted(*args: Any) -> Any:
        done.append(1)
        if len(done) > 300:
            raise KeyboardInterrupt
        return step(*args)

    monkeypatch.setattr(torch.optim.Adam, "step", interrupted)
    with pytest.warns(PyrofairWarning) as caught:
        found = fit_posterior(drawn, table(50), GRAPH, method="svi", draws=10, progress=False, random_state=0)
    assert "Interrupted after 300 of 4000 steps" in str(caught[0].message)
    assert found.losses is not None
    assert len(found.losses) == found.diagnostics["steps"] == 300
    assert found.flat["b"].mean() == pytest.approx(2.0, abs=1.0)


@pytest.mark.parametrize(
    ("after", "shape", "text"),
    [
        (30, (1, 10), "Interrupted in chain 1 of 3: its 10 of 20 draws are used"),
        (40, (1, 20), "Interrupted in chain 2 of 3: 1 of 3 chains are done and used."),
        (95, (2, 20), "Interrupted in chain 3 of 3: 2 of 3 chains are done and used."),
        (75, (1, 20), "chain 2 of 3: 1 of 3 chains are done and used; the 15 draws of the next one are left out"),
    ],
)
@pytest.mark.some(1)
def test_an_interrupt_keeps_the_draws_done(
    monkeypatch: pytest.MonkeyPatch, after: int, shape: tuple[int, int], text: str
) -> None:
    sample, done = NUTS.sample, []

    def interrupted(self: Any, params: Any) -> Any:
        if len(done) == after:
            raise KeyboardInterrupt
        done.append(1)
        return sample(self, params)

    settings: Any = {"draws": 20, "warmup": 20, "chains": 3, "progress": False, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PyrofairWarning)
        whole = fit_posterior(drawn, table(50), GRAPH, **settings)
    monkeypatch.setattr(NUTS, "sample", interrupted)
    with pytest.warns(PyrofairWarning) as caught:
        found = fit_posterior(drawn, table(50), GRAPH, **settings)
    assert text in str(caught[0].message)
    for kept in (*found.samples.values(), *found.sample_stats.values()):
        assert kept.shape[:2] == shape
    np.testing.assert_array_equal(found.samples["b"], whole.samples["b"][: shape[0], : shape[1]])
    assert len(found.diagnostics["acceptance"]) == shape[0]


def test_an_interrupt_with_hardly_a_draw_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Any, params: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(NUTS, "sample", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit_posterior(drawn, table(50), GRAPH, progress=False)


def test_nuts_warns_of_chains_that_have_not_mixed_and_of_divergences(monkeypatch: pytest.MonkeyPatch) -> None:
    diagnose = NUTS.diagnostics
    monkeypatch.setattr(NUTS, "diagnostics", lambda self: diagnose(self) | {"divergences": [0, 3]})
    monkeypatch.setattr(posterior, "R_HAT", 0.5)
    with pytest.warns(PyrofairWarning) as caught:
        found = fit_posterior(drawn, table(50), GRAPH, draws=10, warmup=10, chains=1, progress=False, random_state=0)
    texts = [str(each.message) for each in caught]
    assert any("have not mixed: R-hat is" in text and "for 'b'" in text for text in texts)
    assert any("2 of 10 draws diverged" in text for text in texts)
    assert found.sample_stats["diverging"][0].tolist() == [i in (0, 3) for i in range(10)]


# -- what cannot be fitted --------------------------------------------------------------------------------------------


def with_m(equation: Callable[[Any], Any], prior: Callable[[Any], Any] | None = None) -> Callable[[int], None]:
    """Return a program of A and M, where the equation of M reads b, A and two noises."""
    parameter = {"b": prior or normal()}
    return units(parameter, U=normal(), V=normal(), W=lambda v: dist.Poisson(2.0), M=equation)


M_ROWS = pd.DataFrame({"A": [0, 1] * 10, "M": [0.0, 1.0] * 10})


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (with_m(lambda v: v.b * v.A + v.U**2), r"'M' is neither affine nor monotone.*pyro.sample\('M', distribution\)"),
        (with_m(lambda v: v.U + 3 * v.U.sin() + v.b), "'M' is neither affine nor monotone"),
        (with_m(lambda v: (v.b * v.A + v.U > 0).float()), "'M' does not read its noise 'U' by operations of torch"),
        (with_m(lambda v: (v.b * v.A + v.U).round()), "'M' goes by steps"),
        (
            with_m(lambda v: 2.0 + (v.b * v.A + v.U).exp()),
            r"20 value\(s\) of the node 'M', such as 0, are given by no noise",
        ),
        (with_m(lambda v: v.b * v.A + v.U + v.V), "computed from parameters and the private noise 'U', 'V'"),
        (with_m(lambda v: v.b * v.A), "computed from parameters and no noise of its own"),
        (with_m(lambda v: v.b * v.A + v.U * v.A), r"'M' does not read its noise in 10 row\(s\)"),
        (with_m(lambda v: dist.LogNormal(v.b, 1.0)), "10 value.*'M', such as 0, cannot be drawn"),
        (with_m(lambda v: v.b + v.W * (1 + v.A)), "noise 'W', which is discrete"),
        (with_m(lambda v: v.b * v.A + v.U, coin()), r"parameter 'b' is discrete \(Bernoulli\)"),
        (
            with_m(lambda v: v.b * v.A + pyro.param("scale", torch.tensor(1.0)) * v.U),
            r"'scale' by pyro\.param, which has no prior",
        ),
        (with_m(lambda v: dist.Normal(v.b * v.W, 1.0)), r"unknown 'W' is discrete \(Poisson\)"),
        (
            units(
                {"b": normal()}, K=coin(), H=lambda v: dist.Normal(v.K, 1.0), M=lambda v: dist.Normal(v.b * v.H, 1.0)
            ),
            "'H' reads the discrete unknown 'K'",
        ),
        (
            units({"b": normal()}, K=lambda v: dist.Binomial(99, 0.5), M=lambda v: dist.Normal(v.b * v.K, 1.0)),
            "unknowns K have 100 joint values",
        ),
        (units(M=lambda v: dist.Normal(v.A, 1.0)), "no parameters to learn"),
        (units({"b": normal()}, D=lambda v: dist.Normal(v.b, 1.0)), "no per-unit site 'M'"),
    ],
)
def test_programs_without_a_density_are_refused(program: Any, message: str) -> None:
    with pytest.raises((PosteriorError, DataError, GraphError), match=message):
        fit_posterior(program, M_ROWS, through("M").graph, progress=False)
    assert "scale" not in pyro.get_param_store()


def test_the_split_chains_need_four_draws() -> None:
    with pytest.raises(DataError, match="draws=3 must be an integer of at least 4"):
        fit_posterior(drawn, table(), GRAPH, draws=3)


def test_a_loss_that_is_not_a_number() -> None:
    program = units(
        {"width": lambda v: dist.LogNormal(0.0, 0.1)},
        U=lambda v: dist.Uniform(0.0, 1.0),
        M=lambda v: v.A + v.width * v.U,
    )
    df = pd.DataFrame({"A": [0, 1], "M": [50.0, 0.5]})
    with pytest.raises(PosteriorError, match=r"The loss is (inf|nan) at step 0.*impossible under the program"):
        fit_posterior(program, df, through("M").graph, method="svi", progress=False, random_state=0)


# -- ArviZ ------------------------------------------------------------------------------------------------------------


def test_inference_data(nuts: Posterior) -> None:
    drawn_units = predictive(computed, nuts, random_state=0)
    data = nuts.to_inference_data({site: drawn_units[site] for site in ("M", "Y")})
    assert data["posterior"]["through_m"].shape == (2, 100)
    assert data["observed_data"]["A"].shape == (N,)
    assert data["posterior_predictive"]["Y"].shape == (2, 100, N)
    assert data["sample_stats"]["diverging"].shape == (2, 100)
    table_ = nuts.summary()
    assert table_.loc["b", "mean"] == pytest.approx(nuts.flat["b"].mean(), abs=0.01)
    assert "through_m" in table_.index
    assert "U_M" not in table_.index
    with pytest.raises(DataError, match=r"predictive\['M'\] has the shape \(7, 300\); expected \(200, units, \.\.\.\)"):
        nuts.to_inference_data({"M": drawn_units["M"][:7]})


def test_an_effect_posterior_of_one_draw_has_a_summary(capfd: pytest.CaptureFixture[str]) -> None:
    models = {"strong": STRONG, "weak": WEAK}
    found = effect_posterior(computed, UNFAIR, models, ONE, n=500, progress=False, random_state=0)
    table_ = found.summary()
    assert list(table_) == ["mean"]
    assert table_.loc["piu[strong]", "mean"] == pytest.approx(found.samples["piu"][0, 0, 0], abs=0.001)
    assert "Shape validation" not in "".join(capfd.readouterr())


def test_inference_data_of_svi_holds_the_loss() -> None:
    found = Posterior(
        {"b": np.zeros((1, 5))}, ("b",), {"A": np.zeros(3)}, "svi, normal guide", {}, losses=np.arange(8.0)
    )
    assert found.to_inference_data()["sample_stats"]["loss"].shape == (1, 8)


# -- interventions ----------------------------------------------------------------------------------------------------


chain = units(
    {"b": normal(0.0, 5.0)},
    Q=normal(),
    A=coin(),
    D=lambda v: dist.Normal(v.b * v.A, 0.1),
    M=lambda v: v.D + v.Q,
    Y=lambda v: dist.Normal(v.M, 0.1),
)


def test_stale_values_of_descendants_are_dropped() -> None:
    """Everybody had A = 0, and the posterior holds D and M as they were then."""
    stale = {
        "b": torch.full((100,), 2.0),
        "Q": torch.full((100, 30), 5.0),
        "D": torch.zeros(100, 30),
        "M": torch.full((100, 30), 5.0),
    }
    naive = Predictive(poutine.do(chain, data={"A": torch.ones(30)}), posterior_samples=stale)(30)
    assert naive["Y"].mean().item() == pytest.approx(5.0, abs=0.05)  # the intervention has no effect: wrong
    ours = predictive(chain, {site: values.numpy() for site, values in stale.items()}, do={"A": 1}, random_state=0)
    assert set(ours) == {"Q", "A", "D", "M", "Y"}
    assert ours["Y"].shape == (100, 30)
    assert ours["Y"].mean() == pytest.approx(7.0, abs=0.05)  # D = 2 anew, and Q = 5 as it was
    assert (ours["Q"] == 5.0).all()
    assert (ours["A"] == 1.0).all()
    kept = predictive(chain, {site: values.numpy() for site, values in stale.items()}, random_state=0)
    assert (kept["D"] == 0.0).all()
    assert kept["Y"].mean() == pytest.approx(5.0, abs=0.05)


def test_descendants_that_torch_does_not_show_are_dropped_too() -> None:
    program = units(D=lambda v: dist.Normal(torch.as_tensor(3.0 * v.A.numpy()), 0.1))
    with pytest.warns(PyrofairWarning, match="'D' reads 'A' in a way that torch does not show"):
        found = predictive(program, {"D": np.zeros((20, 10))}, do={"A": 1}, random_state=0)
    assert found["D"].mean() == pytest.approx(3.0, abs=0.05)


def test_an_intervention_on_a_parameter() -> None:
    stale = {"b": np.full(50, 2.0), "D": np.zeros((50, 20))}
    found = predictive(chain, stale, do={"b": -4.0, "A": 1}, random_state=0)
    assert found["D"].mean() == pytest.approx(-4.0, abs=0.05)


def test_predictive_of_a_fit(nuts: Posterior) -> None:
    found = predictive(computed, nuts, do={"A": 1}, n=500, draws=50, random_state=0)
    assert found["Y"].shape == (50, 500)
    assert found["Y"].mean() == pytest.approx(7.0, abs=0.5)
    again = predictive(computed, nuts, do={"A": 1}, n=500, draws=50, random_state=0)
    np.testing.assert_array_equal(found["Y"], again["Y"])
    assert predictive(computed, nuts, draws=2)["A"].shape == (2, N)


@pytest.mark.parametrize(
    ("given", "settings", "match"),
    [
        ({"b": [1.0, 2.0]}, {}, "number of units is not known from the posterior; pass n="),
        ({"b": [1.0, 2.0], "Q": np.zeros((2, 4))}, {"n": 5}, r"'Q' have the shape \(2, 4\); expected \(draws, 5"),
        ({"b": [1.0, 2.0]}, {"n": 5, "draws": 3}, "draws=3 must be an integer"),
    ],
)
def test_predictive_refuses(given: Any, settings: Any, match: str) -> None:
    with pytest.raises(DataError, match=match):
        predictive(chain, given, **settings)


# -- effects ----------------------------------------------------------------------------------------------------------


UNFAIR = GRAPH.unfair("A -> M -> Y")
STRONG = Scores(lambda X: expit(X["M"] - 1.0))


WEAK = Scores(lambda X: expit(0.1 * X["M"] - 1.0))
ONE: Any = {"b": [1.0], "c": [0.0], "d": [0.0]}


def only_b(b: Any) -> dict[str, Any]:
    return {"b": b, "c": np.zeros(len(b)), "d": np.zeros(len(b))}


def test_effects_follow_the_parameters() -> None:
    """Decisions are 1[M > 1]: P(Y = 1) is Phi(-1) and Phi(b - 1), and PIU is the size of the effect."""
    b = np.array([0.0, 0.5, 1.0, 2.0])
    given = only_b(b)
    found = effect_posterior(computed, UNFAIR, STRONG, given, n=40_000, progress=False, random_state=0)
    p0, p1 = norm.cdf(-1.0), norm.cdf(b - 1.0)
    expected = {"p_y0": np.full(4, p0), "p_ypi": p1, "mean_unfair_effect": p1 - p0, "piu": np.abs(p1 - p0)}
    for quantity, values in expected.items():
        drawn_, errors = found.samples[quantity][0, :, 0], found.errors[quantity][0, :, 0]
        np.testing.assert_array_less(np.abs(drawn_ - values), 4 * errors + 1e-9)
    p = np.abs(p1 - p0)
    np.testing.assert_allclose(found.errors["piu"][0, :, 0], np.sqrt(p * (1 - p) / 40_000), rtol=0.1)
    assert np.ptp(found.samples["p_y0"]) == 0.0  # the same units for every draw
    again = effect_posterior(computed, UNFAIR, STRONG, given, n=40_000, progress=False, random_state=0)
    np.testing.assert_array_equal(found.samples["piu"], again.samples["piu"])


def test_the_posterior_of_piu_covers_the_truth(nuts: Posterior) -> None:
    """An interval from the rows holds the PIU of the program with the true coefficients."""

    def true_program(n: int) -> None:
        poutine.condition(computed, data={name: torch.tensor(v) for name, v in (("b", 2.0), ("c", 1.0), ("d", 3.0))})(n)

    truth = SEM(true_program, UNFAIR).truth(STRONG, 100_000, random_state=1)
    found = effect_posterior(
        SEM(computed, UNFAIR), None, STRONG, nuts, n=20_000, draws=100, progress=False, random_state=0
    )
    assert found.samples["piu"].shape == (2, 50, 1)
    rows = found.table.set_index("quantity")
    for quantity, value in {"piu": truth.piu.value, "mean_unfair_effect": truth.mean_unfair_effect.value}.items():
        row = rows.loc[quantity]
        assert row["lower"] - 2 * row["mc_error"] < value < row["upper"] + 2 * row["mc_error"]
        assert row["estimate"] == pytest.approx(norm.cdf(1.0) - norm.cdf(-1.0), abs=3 * row["sd"])
    b = nuts.flat["b"][::2]
    exact = norm.cdf(b - 1.0) - norm.cdf(-1.0)
    assert rows.loc["piu", "sd"] == pytest.approx(exact.std(), rel=0.1)  # posterior spread, free of chance
    assert (rows["n"] == 20_000).all()
    assert (rows["draws"] == 100).all()


def test_couplings_and_decisions() -> None:
    given, settings = ONE, {"n": 40_000, "progress": False, "random_state": 0}
    p0, p1 = norm.cdf(-1.0), 0.5
    found = {
        coupling: effect_posterior(drawn, UNFAIR, STRONG, given, coupling=coupling, **settings)
        for coupling in ("monotone", "independent")
    }
    assert found["monotone"].samples["piu"].item() == pytest.approx(p1 - p0, abs=0.01)
    assert found["independent"].samples["piu"].item() == pytest.approx(p0 + p1 - 2 * p0 * p1, abs=0.01)
    assert found["independent"].coupled == ("M",)
    assert found["independent"].table["coupling"].unique().tolist() == ["independent"]
    half = Scores(lambda X: np.full(len(X), 0.5))  # a score of 1/2 for everyone
    for rule, piu in {("threshold", "own"): 0.0, ("score", "shared"): 0.0, ("score", "own"): 0.5}.items():
        how: Any = dict(zip(("decisions", "score_noise"), rule, strict=True))
        one: Any = effect_posterior(computed, UNFAIR, half, given, **how, **settings)
        assert one.samples["piu"].item() == pytest.approx(piu)
        assert one.samples["mean_unfair_effect"].item() == 0.0


def test_several_models_summary_and_plot() -> None:
    given, models = only_b(np.linspace(1.5, 2.5, 8)), {"strong": STRONG, "weak": WEAK}
    found = effect_posterior(computed, UNFAIR, models, given, n=4_000, progress=False, random_state=0)
    assert found.models == ("strong", "weak")
    assert found.table[["model", "quantity"]].drop_duplicates().shape == (8, 2)
    assert found.to_inference_data()["posterior"]["piu"].shape == (1, 8, 2)
    summary = found.summary()
    assert summary.loc["piu[strong]", "mean"] == pytest.approx(found.samples["piu"][..., 0].mean(), abs=0.01)
    assert summary.loc["piu[weak]", "mean"] == 0.0
    figure = found.plot()
    assert isinstance(figure, Figure)
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert "PIU, strong" in labels
    assert not plt.get_fignums()


def test_effect_posterior_warns_of_few_units() -> None:
    given = only_b(np.linspace(1.99, 2.01, 10))
    with pytest.warns(PyrofairWarning, match=r"With 500 units the Monte-Carlo error is up to .* Take n=\d+000"):
        effect_posterior(computed, UNFAIR, STRONG, given, n=500, progress=False, random_state=0)
    tiny = given | {"b": np.linspace(2.0 - 1e-6, 2.0 + 1e-6, 10)}
    with pytest.warns(PyrofairWarning, match=r"intervals do not hold it. Take many more units\."):
        effect_posterior(computed, UNFAIR, STRONG, tiny, n=500, decisions="score", progress=False, random_state=0)


def test_a_spread_by_rounding_is_none() -> None:
    """The two parameters that vary play no part in the effect: its spread is 0 up to the order of additions."""
    given = {"b": np.full(10, 2.0), "c": np.linspace(0.0, 1.0, 10), "d": np.linspace(0.0, 1.0, 10)}
    found = effect_posterior(computed, UNFAIR, STRONG, given, n=500, progress=False, random_state=0)
    found.samples["piu"][0, :5, 0] += 5e-17
    assert found.table.set_index("quantity").loc["piu", "sd"] == 0.0


def test_one_interval_everywhere() -> None:
    """A skewed posterior, whose equal-tailed and highest-density intervals differ."""
    given = only_b(np.random.default_rng(0).exponential(1.0, 400))
    found = effect_posterior(computed, UNFAIR, STRONG, given, n=300, level=0.9, progress=False, random_state=0)
    row = found.table.set_index("quantity").loc["piu"]
    np.testing.assert_allclose(
        [row["lower"], row["upper"]], np.quantile(found.samples["piu"], [0.05, 0.95]), atol=1e-12
    )
    summary = found.summary()
    assert list(summary)[:4] == ["mean", "sd", "eti_5%", "eti_95%"]
    assert not any(name.startswith("hdi_") for name in summary)
    np.testing.assert_allclose(
        summary.loc["piu[Scores]", ["eti_5%", "eti_95%"]], [row["lower"], row["upper"]], atol=1e-7
    )
    np.testing.assert_allclose(
        found.summary(level=0.5).loc["piu[Scores]", ["eti_25%", "eti_75%"]],
        np.quantile(found.samples["piu"], [0.25, 0.75]),
        atol=1e-12,
    )
    axes = found.plot().axes[0]
    assert axes.get_xlabel() == "median, quartiles and equal-tailed 90 % interval"
    ends = axes.collections[0].get_segments()[1][:, 0]
    np.testing.assert_allclose(ends, [row["lower"], row["upper"]])
    assert "400 draws, 300 units each" in str(found)
    assert f"{row['estimate']:.4f}, 90 % interval [{row['lower']:.4f}, {row['upper']:.4f}]" in str(found)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"unfair": UNFAIR.graph.unfair()}, "unfair holds no path.*The paths: A -> "),
        ({"level": 95}, "level=95 must be a number above 0 and below 1"),
        ({"model": {}}, r"model={} names no model. Pass a fitted model, or a dictionary"),
    ],
)
def test_effect_posterior_refuses(changed: Any, match: str) -> None:
    given = {"unfair": UNFAIR, "model": STRONG, "posterior": ONE, "n": 50, "progress": False} | changed
    with pytest.raises(DataError, match=match):
        effect_posterior(computed, **given)
