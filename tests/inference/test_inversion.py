"""Small programs with one or two noise sites, whose counterfactuals follow from quadrature or enumeration."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from scipy import stats
from torch.nn import functional

from pyrofair import SEM, DataError
from pyrofair.inference.abduction import abduct
from tests.programs.models import coin, graph, normal, sem, units

INF = math.inf
NORMAL = stats.norm()


def switched(
    of: Callable[..., Any], m: float, noise: Any = None, seed: int = 0, draws: int = 4000, **others: Any
) -> Any:
    """Return the counterfactual of a unit with A = 0 and M = m, where M is a function of A, U and others."""
    u = normal() if noise is None else lambda _: noise
    sites = {"U": u, **others}
    program = units(**sites, M=lambda v: of(v.A, *(getattr(v, name) for name in sites)))
    rows = pd.DataFrame({"A": [0], "M": [m]})
    return sem(program, "A -> M -> Y").counterfactual(rows, random_state=seed, draws=draws)


ONE_NOISE: list[tuple[str, Callable[..., Any], float, float, float, Any, Any]] = [
    ("floor", lambda a, u: (3.5 + a + u).clamp(min=0.0), 0.0, -INF, -3.5, None, NORMAL),
    ("above a floor", lambda a, u: (3.5 + a + u).clamp(min=0.0), 2.0, -1.5, -1.5, None, NORMAL),
    ("just above it", lambda a, u: (3.5 + a + u).clamp(min=0.0), 1e-6, 1e-6 - 3.5, 1e-6 - 3.5, None, NORMAL),
    ("rare floor", lambda a, u: (5.0 + a + u).clamp(min=0.0), 0.0, -INF, -5.0, None, NORMAL),
    ("floor never drawn", lambda a, u: (9.0 + 2 * a + u).clamp(min=0.0), 0.0, -INF, -9.0, None, NORMAL),
    ("ceiling", lambda a, u: (u - a).clamp(max=3.6), 3.6, 3.6, INF, None, NORMAL),
    ("hardtanh below", lambda a, u: functional.hardtanh(u + a), -1.0, -INF, -1.0, None, NORMAL),
    ("two far ends", lambda a, u: ((1 + a) * u).clamp(-3.4, 3.4), 3.4, 3.4, INF, None, NORMAL),
    ("round", lambda a, u: torch.round(3.5 + 0.6 * a + u), 4.0, 0.0, 1.0, None, NORMAL),
    ("floor of a product", lambda a, u: torch.floor((2.0 + a) * u), -3.0, -1.5, -1.0, None, NORMAL),
    ("rounded to tenths", lambda a, u: torch.round(10 * (1 + a) * u) / 10, np.float32(0.3), 0.25, 0.35, None, NORMAL),
    ("jump", lambda a, u: torch.where(u > -3.5, 3.5 + u + a, 0.0 * u), 0.0, -INF, -3.5, None, NORMAL),
    ("kink", lambda a, u: torch.where(u > 3.0, 5 * u - 12.0, u) + a * u, 8.0, 4.0, 4.0, None, NORMAL),
    ("larger", lambda a, u: torch.maximum(u + a, torch.full_like(u, -3.3)), -3.3, -INF, -3.3, None, NORMAL),
    ("rare sign", lambda a, u: torch.sign(u + 3 * a - 3.5), -1.0, -INF, 3.5, None, NORMAL),
    ("exponential", lambda a, u: torch.exp(0.5 * a + u), 2.0, math.log(2.0), math.log(2.0), None, NORMAL),
    ("falling", lambda a, u: torch.exp(a - u), 2.0, -math.log(2.0), -math.log(2.0), None, NORMAL),
    ("cube", lambda a, u: u**3 + a * u, -8.0, -2.0, -2.0, None, NORMAL),
    ("logistic", lambda a, u: torch.sigmoid(u + a), 0.3, math.log(3 / 7), math.log(3 / 7), None, NORMAL),
    ("softplus", lambda a, u: functional.softplus(u + a), 0.9, math.log(math.expm1(0.9)), None, None, NORMAL),
    ("flat", lambda a, u: a * u, 0.0, -INF, INF, None, NORMAL),
    ("uniform", lambda a, u: (u + a - 1e-4).clamp(min=0.0), 0.0, 0.0, 1e-4, dist.Uniform(0.0, 1.0), stats.uniform()),
    ("waiting", lambda a, u: (9.0 - u + a).clamp(min=0.0), 0.0, 9.0, INF, dist.Exponential(1.0), stats.expon()),
    ("log", lambda a, u: torch.log(u) + a * u, -9.0, math.exp(-9.0), None, dist.Gamma(2.0, 1.0), stats.gamma(2.0)),
    ("Student", lambda a, u: (u - a).clamp(max=20.0), 20.0, 20.0, INF, dist.StudentT(4.0), stats.t(4.0)),
    ("Cauchy", lambda a, u: (u - 0.5 * a * u).clamp(max=1e4), 1e4, 1e4, INF, dist.Cauchy(0.0, 1.0), stats.cauchy()),
    ("Laplace", lambda a, u: (9.0 + a + u).clamp(min=0.0), 0.0, -INF, -9.0, dist.Laplace(0.0, 1.0), stats.laplace()),
    ("counts", lambda a, u: (u + a - 2.0).clamp(min=0.0), 0.0, -INF, 2.0, dist.Poisson(1.0), stats.poisson(1.0)),
]
"""A name, M of A and U, its value, the least and the greatest U that give it, U's distribution here and in SciPy."""


@pytest.mark.parametrize(
    ("of", "m", "low", "high", "noise", "known"), [each[1:] for each in ONE_NOISE], ids=[e[0] for e in ONE_NOISE]
)
def test_one_noise_site(
    of: Callable[..., Any], m: float, low: float, high: float | None, noise: Any, known: Any
) -> None:
    found = switched(of, m, noise)
    high = low if high is None else high
    if low == high:
        assert found.exact
        u = np.array([low])
    else:
        assert not found.exact
        upper = low > known.median()  # by the tail in which floating-point numbers lie close together
        least, most = (known.sf if upper else known.cdf)([high, low] if upper else [low, high])
        at = least + (most - least) * (np.arange(20_000) + 0.5) / 20_000
        u = known.isf(at) if upper else known.ppf(at)
        assert (found.diagnostics["ess"].dropna() > 500).all()
    right = of(torch.ones(len(u), dtype=torch.float64), torch.tensor(u, dtype=torch.float64)).numpy()
    spread = found.worlds[1].sd["M"].item()
    assert found.switched["M"].item() == pytest.approx(right.mean(), abs=1e-6 + 5 * right.std() / math.sqrt(4000))
    assert spread == pytest.approx(right.std(), abs=1e-6 + 0.15 * right.std())
    assert found.baseline["M"].item() == pytest.approx(float(m), abs=1e-6)


@pytest.mark.parametrize(
    ("of", "m"),
    [
        (lambda a, u: (u + a).abs(), 0.5),
        (lambda a, u: u**2 + a, 0.5),
        (lambda a, u: torch.sin(3 * u) + a, 0.5),
        (lambda a, u: torch.where(u > -3.6, u + a, 7.0), 3.0),
        (lambda a, u: torch.where(u < 4.0, u + a, 8.0 - u), 3.0),
    ],
)
def test_an_equation_that_is_not_monotone_is_refused(of: Callable[..., Any], m: float) -> None:
    with pytest.raises(DataError, match=r"Row 0: M = .*'M' is continuous.*its noise .U"):
        switched(of, m)


@pytest.mark.parametrize(
    ("of", "m"),
    [
        (lambda a, u: torch.exp(u + a), -1.0),
        (lambda a, u: (u + a).clamp(min=0.0), -0.5),
        (lambda a, u: torch.where(u > 0, u + 1, u) + a, 0.5),
        (lambda a, u: torch.round(u + a), 0.5),
        (lambda a, u: torch.sigmoid(u + a), 1.5),
    ],
)
def test_a_value_that_no_noise_gives_is_impossible(of: Callable[..., Any], m: float) -> None:
    with pytest.raises(DataError, match=r"Row 0: M = .* is impossible.*no value of its noise U"):
        switched(of, m)


# -- several noise sites, in any order ---------------------------------------------------------------------------------

COUNTS = {
    "Categorical": (dist.Categorical(torch.tensor([0.7, 0.3])), [0.7, 0.3]),
    "Bernoulli": (dist.Bernoulli(0.3), [0.7, 0.3]),
    "Binomial": (dist.Binomial(3, 0.2), stats.binom(3, 0.2).pmf(range(4))),
    "Geometric": (dist.Geometric(0.6), stats.geom(0.6, loc=-1).pmf(range(60))),
    "Poisson": (dist.Poisson(0.5), stats.poisson(0.5).pmf(range(60))),
}


@pytest.mark.parametrize("order", [("K", "U"), ("U", "K")])
@pytest.mark.parametrize("family", COUNTS)
def test_the_order_of_sites_changes_nothing(family: str, order: tuple[str, ...]) -> None:
    drawn, p = COUNTS[family]
    sites = {"K": lambda v: drawn, "U": normal()}
    program = units(**{name: sites[name] for name in order}, M=lambda v: v.A * (1 + 2 * v.K) + 3 * v.K + v.U)
    rows = pd.DataFrame({"A": [0, 0, 1, 1], "M": [1.0, 2.5, 3.0, 1.7]})
    found = sem(program, "A -> M -> Y").counterfactual(rows, random_state=0, draws=6000)
    k = np.arange(len(p))
    for i, row in rows.iterrows():
        weight = p * stats.norm.pdf(row.M - row.A * (1 + 2 * k) - 3 * k)
        shift = weight @ (1 + 2 * k) / weight.sum()
        assert found.switched["M"][i] == pytest.approx(row.M + (1 - row.A) * shift, abs=0.06)
        assert found.baseline["M"][i] == pytest.approx(row.M - row.A * shift, abs=0.06)


def grid(n: int = 4001) -> np.ndarray:
    return np.linspace(-9.0, 9.0, n)


PHI = stats.norm.pdf(grid())


def mixed(weights: Any, values: Any) -> float:
    return float(np.dot(weights, values) / np.sum(weights))


def either(m: float) -> float:
    """M = U if K, else 2 V + A V: its other value is 3 V = 1.5 m if not K."""
    first, second = 0.5 * stats.norm.pdf(m), 0.5 * stats.norm.pdf(m / 2) / 2
    return (first * m + second * 1.5 * m) / (first + second)


def larger(m: float) -> float:
    """M = max(U + A, V): either U = m and V is less, or V = m and U is less."""
    density, below = stats.norm.pdf(m), stats.norm.cdf(m)
    other = stats.norm.expect(lambda u: np.maximum(1 + u, m), ub=m, conditional=True)
    return (density * below * (1 + m) + density * below * other) / (2 * density * below)


SEVERAL: list[tuple[str, dict[str, Any], Callable[..., Any], float, float]] = [
    (
        "either noise",
        {"V": normal(), "K": coin()},
        lambda a, u, v, k: torch.where(k > 0, u, (2 + a) * v),
        1.2,
        either(1.2),
    ),
    ("the larger of two", {"V": normal()}, lambda a, u, v: torch.maximum(u + a, v), 0.4, larger(0.4)),
    (
        "a product",
        {"V": normal()},
        lambda a, u, v: v * u.exp() + a * u,
        1.5,
        1.5 + mixed(PHI * stats.norm.pdf(1.5 * np.exp(-grid())) * np.exp(-grid()), grid()),
    ),
    ("noise of noise", {"V": lambda v: dist.Normal(v.U, 1.0)}, lambda a, u, v: u + v + a * u, 1.5, 1.5 + 0.4 * 1.5),
    ("switched off", {"K": coin()}, lambda a, u, k: k * u + a * (1 - k), 0.0, 1.0),
    ("switched on", {"K": coin()}, lambda a, u, k: k * u + a * (1 - k), 0.7, 0.7),
    (
        "two counts",
        {"K": lambda v: dist.Poisson(1.0), "B": coin()},
        lambda a, u, k, b: b * k + a * k,
        0.0,
        mixed([0.5 * math.exp(-1.0), 0.5], [0.0, 1.0]),
    ),
    (
        "a censored sum",
        {"K": coin(0.3)},
        lambda a, u, k: (u + 2 * k - 1 + a).clamp(min=0.0),
        0.0,
        mixed(
            [0.7 * stats.norm.cdf(1.0), 0.3 * stats.norm.cdf(-1.0)],
            [
                stats.norm.expect(lambda u: np.maximum(u, 0.0), ub=1.0, conditional=True),
                stats.norm.expect(lambda u: np.maximum(u + 2.0, 0.0), ub=-1.0, conditional=True),
            ],
        ),
    ),
    (
        "above the censoring",
        {"K": coin(0.3)},
        lambda a, u, k: (u + 2 * k - 1).clamp(min=0.0) + a * k,
        1.5,
        1.5 + mixed([0.7 * stats.norm.pdf(2.5), 0.3 * stats.norm.pdf(0.5)], [0.0, 1.0]),
    ),
    (
        "three sites",
        {"V": normal(), "W": normal(0.0, 2.0)},
        lambda a, u, v, w: u + v + w + a * w,
        1.2,
        1.2 + 1.2 * 4 / 6,
    ),
]
"""A name, further noise sites, M of A, U and these, a value, and the mean of its other value."""


ORDERS = [(each, step) for each in SEVERAL for step in (1, -1) if (each[0], step) != ("noise of noise", -1)]


@pytest.mark.parametrize(("case", "step"), ORDERS, ids=[f"{each[0]} {step}" for each, step in ORDERS])
def test_several_noise_sites(case: Any, step: int) -> None:
    _, sites, of, m, right = case
    every = {"U": normal(), **sites}
    names = [*every]
    program = units(
        **{name: every[name] for name in names[::step]}, M=lambda v: of(v.A, *(getattr(v, name) for name in names))
    )
    rows = pd.DataFrame({"A": [0], "M": [m]})
    found = sem(program, "A -> M -> Y").counterfactual(rows, random_state=0, draws=8000)
    assert found.switched["M"].item() == pytest.approx(right, abs=0.05)
    assert found.baseline["M"].item() == pytest.approx(m, abs=1e-6)


@pytest.mark.parametrize(
    ("noise", "log_density", "m"),
    [
        (dist.LogNormal(0.0, 8.0), lambda x: stats.norm.logpdf(x, scale=8.0), -3.0),
        (dist.Gamma(0.02, 1.0), lambda x: 0.02 * x - np.exp(x), -3.0),
        (dist.Gamma(0.05, 1.0), lambda x: 0.05 * x - np.exp(x), -3.0),
    ],
)
@pytest.mark.parametrize("order", [("U", "V"), ("V", "U")])
def test_noise_of_many_orders_of_magnitude(noise: Any, log_density: Any, m: float, order: tuple[str, ...]) -> None:
    """M = log U + V, switched to log U + 2 V; most draws of U lie close together, next to the others."""
    sites = {"U": lambda _: noise, "V": normal()}
    program = units(**{name: sites[name] for name in order}, M=lambda v: v.U.log() + v.V + v.A * v.V)
    rows = pd.DataFrame({"A": [0], "M": [m]})
    found = sem(program, "A -> M -> Y").counterfactual(rows, random_state=0, draws=100_000)
    x = np.linspace(-30.0, 4.0, 20_001)
    right = m + mixed(np.exp(log_density(x) + stats.norm.logpdf(m - x)), m - x)
    assert found.switched["M"].item() == pytest.approx(right, abs=0.025)


def test_many_rows_of_skewed_noise_are_all_solved() -> None:
    """Of each unit there are few draws, which may lie far from its own noise."""
    u = np.exp(3.0 * np.random.default_rng(0).normal(size=3000))
    program = units(U=lambda _: dist.LogNormal(0.0, 3.0), M=lambda v: v.U.sqrt() * (1 + v.A))
    found = sem(program, "A -> M -> Y").counterfactual(pd.DataFrame({"A": 0, "M": np.sqrt(u)}), random_state=0)
    assert found.exact
    np.testing.assert_allclose(found.switched["M"], 2.0 * np.sqrt(u), rtol=1e-9)


def test_a_node_of_true_and_false() -> None:
    program = units(U=normal(), M=lambda v: v.U + v.A > 0.5)
    rows = pd.DataFrame({"A": [0, 1], "M": [0, 1]})
    found = sem(program, "A -> M -> Y").counterfactual(rows, random_state=0, draws=4000)
    below = 1.0 - NORMAL.cdf(-0.5) / NORMAL.cdf(0.5)  # U + 1 > 0.5 of those with U < 0.5
    np.testing.assert_allclose(found.switched["M"], [below, 1.0], atol=0.03)
    np.testing.assert_allclose(found.baseline["M"], [0.0, NORMAL.sf(0.5) / NORMAL.sf(-0.5)], atol=0.03)


def test_a_censored_node_bears_on_noise_in_common() -> None:
    """D = H + V and M = min(0.8 H + U, 1.5): a capped M raises H by the probability of its cap (Tobin, 1958)."""
    program = units(
        H=normal(), V=normal(), U=normal(), D=lambda v: v.H + v.V, M=lambda v: (0.8 * v.H + v.U + v.A).clamp(max=1.5)
    )
    rows = pd.DataFrame({"A": [0, 0], "D": [0.5, 0.5], "M": [1.5, 0.2]})
    with pytest.warns(Warning, match="in common"):
        found = sem(program, "A -> M -> Y; D -> Y", "A -> M -> Y").counterfactual(rows, random_state=0, draws=6000)
    h, of_d = grid(), stats.norm.pdf(0.5 - grid())
    capped, free = stats.norm.sf(1.5 - 0.8 * h), stats.norm.pdf(0.2 - 0.8 * h)
    assert found.noise["H", "mean"][0] == pytest.approx(mixed(PHI * of_d * capped, h), abs=0.03)
    assert found.noise["H", "mean"][1] == pytest.approx(mixed(PHI * of_d * free, h), abs=0.03)
    np.testing.assert_allclose(found.switched["M"], [1.5, 1.2], atol=1e-6)


def test_noise_that_alone_gives_a_value_and_is_shared_is_refused() -> None:
    """Where K is 0, M is H itself, which draws of H never meet; only K = 1 would be left."""
    program = units(
        H=normal(), K=coin(), U=normal(), V=normal(), D=lambda v: v.H + v.V, M=lambda v: v.K * v.U + v.H + v.A
    )
    rows = pd.DataFrame({"A": [0], "D": [0.5], "M": [0.3]})
    with pytest.warns(Warning, match="in common"), pytest.raises(DataError, match="does not read its noise U"):
        sem(program, "A -> M -> Y; D -> Y", "A -> M -> Y").counterfactual(rows, random_state=0)


def test_a_vector_of_noise_is_solved_only_where_nodes_are_affine_beside_the_row() -> None:
    program = units(
        U=lambda v: dist.Normal(torch.zeros(2), 1.0).to_event(1),
        D=lambda v: (3.5 + v.A + v.U[..., 0] + v.U[..., 1]).clamp(min=-2.0),
        M=lambda v: v.U[..., 0] - v.U[..., 1],
    )
    source = sem(program, "A -> D -> Y; M -> Y", "A -> D -> Y")
    with pytest.warns(Warning, match="in common"):
        source.equations()
    rows = pd.DataFrame({"A": [0], "D": [6.0], "M": [0.4]})
    np.testing.assert_allclose(source.counterfactual(rows, random_state=0).switched["D"], [7.0])
    with pytest.raises(DataError, match=r"'M' is continuous|'D' is continuous"):
        source.counterfactual(rows.assign(D=[-2.0]), random_state=0)


# -- several equations, and noise whose law reads a node ---------------------------------------------------------------

ROW = {"A": 0.0, "M": 3.0, "D": 1.0, "R": 4.0}
SYSTEMS: dict[str, tuple[dict[str, Callable[[Any], Any]], dict[str, float]]] = {
    "two": ({"M": lambda v: v.A + v.U + v.V, "D": lambda v: 0.5 * v.M + v.U - v.V}, {"U": 1.25, "V": 1.75}),
    "two, and a third": (
        {"M": lambda v: v.A + v.U + v.V, "D": lambda v: v.U - v.V, "R": lambda v: v.A + 2.0 * v.U},
        {"U": 2.0, "V": 1.0},
    ),
    "in a circle": (
        {"M": lambda v: v.A + v.U + v.V, "D": lambda v: v.V + v.W, "R": lambda v: v.W + v.U},
        {"U": 3.0, "V": 0.0, "W": 1.0},
    ),
    "of a group": (
        {"M": lambda v: v.A + v.U + (2.0 - v.A) * v.V, "D": lambda v: (1.0 + v.A) * v.U - v.V},
        {"U": 5.0 / 3.0, "V": 2.0 / 3.0},
    ),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_affine_equations_are_solved_together(name: str) -> None:
    equations, right = SYSTEMS[name]
    program = units(**{key: normal() for key in ("U", "V", "W")}, **equations)
    rows = pd.DataFrame({key: [ROW[key]] for key in ("A", *equations)})
    found = abduct(program, rows)
    assert {key: found.noise[key, "mean"].item() for key in right} == pytest.approx(right)
    world = found.do({"A": 1.0})
    assert world.exact
    given: Any = {key: torch.tensor(value) for key, value in {"W": 0.0, **right, "A": 1.0}.items()}
    trace = poutine.trace(poutine.do(program, data=given)).get_trace(1)
    for key in equations:
        assert world.rows[key].item() == pytest.approx(trace.nodes[key]["value"].item(), abs=1e-5)


@pytest.mark.parametrize(
    ("noise", "of_m", "match"),
    [
        (lambda _: dist.Exponential(1.0), lambda v: v.U + v.V, "noise V would be -1, outside its support"),
        (normal(), lambda v: v.U.clamp(max=1.5) + v.V, "is continuous"),
        (normal(), lambda v: (v.U + v.V).exp(), "is continuous"),
        (normal(), lambda v: 2.0 * (v.U - v.V), "is continuous"),
    ],
)
def test_a_system_that_noise_cannot_solve_is_refused(noise: Any, of_m: Any, match: str) -> None:
    program = units(U=noise, V=noise, M=of_m, D=lambda v: v.U - v.V)
    with pytest.raises(DataError, match=match):
        abduct(program, pd.DataFrame({"A": [0.0], "M": [1.0], "D": [3.0]}))


@pytest.mark.parametrize(
    ("paths", "monotone", "antithetic"),
    [
        (None, [3.0, 1.0], [1.0, 1.0]),
        (("A -> M -> Y",), [2.5, 1.5], [2.5, 2.5]),
        (("A -> U -> M -> Y",), [1.0, -1.0], [-1.0, -1.0]),
        (("A -> M -> Y", "A -> U -> M -> Y"), [3.0, 1.0], [1.0, 1.0]),
    ],
)
def test_noise_whose_law_reads_the_attribute_is_a_mediator_if_the_graph_says_so(
    paths: Any, monotone: list[float], antithetic: list[float]
) -> None:
    """M = 2 A + U with U ~ Normal(0, 1 + A): rows (0, 0.5) and (1, 1), whose U is half a standard deviation off."""
    program = units(U=lambda v: dist.Normal(0.0, 1.0 + v.A), M=lambda v: 2.0 * v.A + v.U)
    rows = pd.DataFrame({"A": [0, 1], "M": [0.5, 1.0]})
    for coupling, baseline, right in (("monotone", -0.5, monotone), ("antithetic", 0.5, antithetic)):
        settings: Any = {"coupling": coupling}
        if paths is None:
            source = sem(program, "A -> M -> Y", **settings)
        else:
            source = SEM(program, graph("A -> {U M}; U -> M -> Y", latent=["U"]).unfair(*paths), **settings)
        found = source.counterfactual(rows, random_state=0)
        assert found.exact
        assert found.coupled == ("U",)
        assert found.noise["u(U)", "mean"].tolist() == pytest.approx([NORMAL.cdf(0.5), NORMAL.cdf(-0.5)])
        np.testing.assert_allclose(found.baseline["M"], [0.5, baseline], atol=1e-6)
        np.testing.assert_allclose(found.switched["M"], right, atol=1e-6)


def test_independent_noise_whose_law_reads_the_attribute_is_drawn_where_it_changes() -> None:
    program = units(U=lambda v: dist.Normal(0.0, 1.0 + v.A), M=lambda v: 2.0 * v.A + v.U)
    rows = pd.DataFrame({"A": [0, 1], "M": [0.5, 1.0]})
    found = sem(program, "A -> M -> Y", coupling="independent").counterfactual(rows, random_state=0, draws=4000)
    assert not found.exact
    np.testing.assert_allclose(found.switched["M"], [2.0, 1.0], atol=0.15)
    np.testing.assert_allclose(found.worlds[1].sd["M"], [2.0, 0.0], atol=0.1)


def test_a_count_whose_law_reads_the_attribute_is_known_up_to_an_interval() -> None:
    program = units(U=lambda v: dist.Poisson(1.0 + v.A), M=lambda v: 2.0 * v.A + v.U)
    found = sem(program, "A -> M -> Y").counterfactual(pd.DataFrame({"A": [0], "M": [1]}), random_state=0, draws=4000)
    low, high = stats.poisson.cdf([0, 1], 1.0)
    u = np.linspace(low, high, 100_001)
    assert found.switched["M"].item() == pytest.approx(2.0 + stats.poisson.ppf(u, 2.0).mean(), abs=0.03)
