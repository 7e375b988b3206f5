"""Quantile functions against SciPy's, and noise shared across worlds by each coupling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyro.distributions as dist
import pytest
import torch
from pyro.distributions import transforms as T
from scipy import stats
from torch import Tensor

from pyrofair._random import isolated
from pyrofair.programs.couplings import (
    COUPLINGS,
    Coupling,
    CouplingError,
    Noise,
    choose_noise,
    draw_from,
    parameters_of,
    quantile,
    unwrap,
)
from pyrofair.sources.sem import SEM
from tests.programs.models import coin, graph, normal, through, units

U = torch.linspace(0.001, 0.999, 333)

# -- quantile functions -----------------------------------------------------------------------------------------------


def test_quantiles_are_those_of_scipy() -> None:
    families: list[tuple[Any, Any]] = [  # made here: transformed ones load SymPy
        (dist.Normal(1.0, 2.0), stats.norm(1, 2)),
        (dist.LogNormal(0.3, 0.7), stats.lognorm(0.7, scale=np.exp(0.3))),
        (dist.Uniform(-1.0, 3.0), stats.uniform(-1, 4)),
        (dist.Exponential(2.0), stats.expon(scale=0.5)),
        (dist.Laplace(1.0, 2.0), stats.laplace(1, 2)),
        (dist.Cauchy(1.0, 2.0), stats.cauchy(1, 2)),
        (dist.Gumbel(1.0, 2.0), stats.gumbel_r(1, 2)),
        (dist.Weibull(2.0, 1.5), stats.weibull_min(1.5, scale=2)),
        (dist.Pareto(2.0, 3.0), stats.pareto(3, scale=2)),
        (dist.HalfNormal(2.0), stats.halfnorm(scale=2)),
        (dist.HalfCauchy(2.0), stats.halfcauchy(scale=2)),
        (dist.Logistic(1.0, 2.0), stats.logistic(1, 2)),
        (dist.Gamma(2.5, 1.5), stats.gamma(2.5, scale=1 / 1.5)),
        (dist.Chi2(3.0), stats.chi2(3)),
        (dist.InverseGamma(2.5, 1.5), stats.invgamma(2.5, scale=1.5)),
        (dist.Beta(0.7, 2.0), stats.beta(0.7, 2)),
        (dist.AffineBeta(2.0, 3.0, -1.0, 4.0), stats.beta(2, 3, loc=-1, scale=4)),
        (dist.StudentT(4.0, 1.0, 2.0), stats.t(4, 1, 2)),
        (dist.Poisson(3.7), stats.poisson(3.7)),
        (dist.Binomial(9, 0.3), stats.binom(9, 0.3)),
        (dist.Binomial(9, logits=torch.tensor(0.4)), stats.binom(9, 1 / (1 + np.exp(-0.4)))),
        (dist.BetaBinomial(2.0, 3.0, 8), stats.betabinom(8, 2, 3)),
        (dist.Geometric(0.3), stats.geom(0.3, loc=-1)),
        (dist.NegativeBinomial(4.0, 0.6), stats.nbinom(4, 0.4)),
        (dist.GammaPoisson(4.0, 1.5), stats.nbinom(4, 0.6)),
        (dist.Bernoulli(0.3), stats.bernoulli(0.3)),
        (dist.Bernoulli(logits=torch.tensor(0.4)), stats.bernoulli(1 / (1 + np.exp(-0.4)))),
        (dist.Categorical(torch.tensor([0.2, 0.5, 0.3])), stats.rv_discrete(values=([0, 1, 2], [0.2, 0.5, 0.3]))),
    ]
    for distribution, known in families:
        found = quantile("D", distribution, U)
        assert found.shape == U.shape
        error = 2e-3 if isinstance(distribution, dist.Cauchy) else 2e-4
        expected = known.ppf(U.double().numpy())
        np.testing.assert_allclose(found.numpy(), expected, rtol=error, atol=1e-5, err_msg=str(distribution))
        assert bool(distribution.support.check(found).all())
        assert found.dtype == distribution.sample().dtype


def test_the_ends_of_discrete_distributions() -> None:
    assert quantile("D", dist.Bernoulli(0.25), torch.tensor([0.75, 0.7500001])).tolist() == [0.0, 1.0]
    assert quantile("D", dist.Bernoulli(torch.tensor([0.0, 1.0])), torch.tensor(0.5)).tolist() == [0.0, 1.0]
    three = dist.Categorical(torch.tensor([0.25, 0.5, 0.25]))
    assert quantile("D", three, torch.tensor([0.25, 0.26, 0.75, 0.76])).tolist() == [0, 1, 1, 2]
    assert quantile("D", dist.Categorical(torch.tensor([0.0, 1.0, 0.0])), torch.tensor([1e-7, 0.9999999])).tolist() == [
        1,
        1,
    ]
    assert quantile("D", dist.Delta(torch.tensor([2.0, 3.0])), torch.tensor([0.1, 0.9])).tolist() == [2.0, 3.0]


def test_zero_inflation_is_not_looked_through() -> None:
    distribution = dist.ZeroInflatedPoisson(torch.tensor(3.0), gate=torch.tensor(0.4))
    assert unwrap(distribution) is distribution
    cdf = 0.4 + 0.6 * stats.poisson(3).cdf(np.arange(60))
    expected = np.searchsorted(cdf, U.double().numpy() - 1e-7)
    np.testing.assert_array_equal(quantile("D", distribution, U).numpy(), expected)


def test_wrappers_and_events() -> None:
    base = dist.Normal(torch.arange(3.0), 1.0)
    u = torch.full((4, 3), 0.5)
    for distribution in (
        base.expand([4, 3]).to_event(1),
        base.to_event(1).expand([4]),
        base.mask(False).expand([4, 3]),
    ):
        torch.testing.assert_close(quantile("D", distribution, u), torch.arange(3.0).expand(4, 3))
    expanded = dist.ExpandedDistribution(dist.Poisson(torch.tensor(3.0)), torch.Size([4]))
    assert quantile("D", expanded, torch.full((4,), 0.5)).tolist() == [3.0] * 4


def test_transforms_keep_or_reverse_the_order() -> None:
    falling = dist.TransformedDistribution(
        dist.Gamma(2.0, 1.0), [dist.transforms.AffineTransform(1.0, -2.0), dist.transforms.ExpTransform()]
    )
    found = quantile("D", falling, U)
    np.testing.assert_allclose(found.numpy(), np.exp(1 - 2 * stats.gamma(2).ppf(1 - U.double().numpy())), rtol=1e-3)
    assert bool((found.diff() >= 0).all())


def test_types_are_those_of_the_distribution() -> None:
    wide = torch.tensor(3.0, dtype=torch.float64)
    for distribution in (dist.Poisson(wide), dist.Gamma(wide, wide), dist.Beta(wide, wide), dist.Bernoulli(wide / 4)):
        assert quantile("D", distribution, U).dtype == torch.float64


def two_normals(t: Callable[..., Tensor]) -> tuple[Tensor, Any]:
    return t([0.5, 0.5]), dist.Normal(t([-4.0, 4.0]), t([0.1, 1.0]))


def one_far(t: Callable[..., Tensor]) -> tuple[Tensor, Any]:
    return t([0.999, 0.001]), dist.Normal(t([0.0, 1000.0]), t([1.0, 0.01]))


def skewed(t: Callable[..., Tensor]) -> tuple[Tensor, Any]:
    return t([0.2, 0.3, 0.5]), dist.LogNormal(t([-1.0, 0.0, 3.0]), t(0.5), validate_args=False)


def with_a_gap(t: Callable[..., Tensor]) -> tuple[Tensor, Any]:
    return t([0.4, 0.6]), dist.Uniform(t([0.0, 2.0]), t([1.0, 3.0]), validate_args=False)


def one_without_weight(t: Callable[..., Tensor]) -> tuple[Tensor, Any]:
    return t([1.0, 0.0]), dist.Gamma(t([2.0, 50.0]), t(1.0), validate_args=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mixture", [two_normals, one_far, skewed, with_a_gap, one_without_weight])
def test_mixtures_are_inverted(mixture: Callable[..., Any], dtype: torch.dtype) -> None:
    def family(dtype: torch.dtype) -> Any:
        weights, parts = mixture(lambda values: torch.tensor(values, dtype=dtype))
        return dist.MixtureSameFamily(dist.Categorical(weights), parts, validate_args=False)

    x = quantile("D", family(dtype), U.to(dtype)).double()
    parts = family(dtype).component_distribution
    assert bool(parts.support.check(x.unsqueeze(-1)).any(-1).all())  # torch's own check asks for all parts
    small = 2e-6 if dtype == torch.float32 else 1e-13
    off = 20 * torch.finfo(dtype).eps * (0.1 + x.abs())
    judge = family(torch.float64)
    assert bool((judge.cdf(x - off) <= U.double() + small).all())
    assert bool((judge.cdf(x + off) >= U.double() - small).all())


def test_mixtures_that_torch_cannot_judge_are_inverted() -> None:
    """Outside its support, torch's distribution function of a component is NaN or leaves [0, 1]."""
    u = torch.cat([torch.tensor([0.01, 0.99999]), U]).double()
    least, tail = torch.tensor([[1.0, 100.0], [3.0, 2.0]]).double()
    for parts, known in (
        (
            dist.Gamma(torch.tensor([0.01, 5.0], dtype=torch.float64), 1.0),
            stats.gamma([0.01, 5.0]),
        ),  # of all magnitudes
        (dist.Pareto(least, tail, validate_args=False), stats.pareto([3.0, 2.0], scale=[1.0, 100.0])),
    ):
        mixture = dist.MixtureSameFamily(dist.Categorical(torch.ones(2).double()), parts, validate_args=False)
        x = quantile("D", mixture, u).numpy()[:, None]
        np.testing.assert_allclose(known.cdf(x).mean(1), u.numpy(), rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_narrow_components_do_not_stop_the_search(dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(0)
    logits, loc, scale = (torch.randn(50_000, 5, generator=random, dtype=torch.float64) for _ in range(3))

    def family(dtype: torch.dtype) -> Any:
        parts = dist.Normal(1.5 * loc.to(dtype), 0.5 * torch.exp(scale.to(dtype)))
        return dist.MixtureSameFamily(dist.Categorical(logits=logits.to(dtype)), parts)

    u = torch.rand(50_000, generator=random, dtype=torch.float64).to(dtype)
    found = quantile("D", family(dtype), u)
    off = (family(torch.float64).cdf(found.double()) - u.double()).abs()
    assert float(off.max()) < 100 * torch.finfo(dtype).eps


def test_a_needle_far_from_the_rest_is_left() -> None:
    u = torch.tensor([0.1, 0.4999, 0.5001, 0.9])
    exact = torch.tensor([-0.8416212, 3.5400837, 1e6, 1e6])
    found = quantile("D", normals([0.5, 0.5], [0.0, 1e6], [1.0, 1e-8], torch.float32), u)
    torch.testing.assert_close(found, exact, rtol=2e-5, atol=0)


def normals(weights: list[float], loc: list[float], scale: list[float], dtype: torch.dtype) -> Any:
    w, a, b = (torch.tensor(values, dtype=dtype) for values in (weights, loc, scale))
    return dist.MixtureSameFamily(dist.Categorical(w), dist.Normal(a, b, validate_args=False), validate_args=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_components_without_weight_do_not_count(dtype: torch.dtype) -> None:
    u, one = U.to(dtype), dist.Normal(torch.zeros((), dtype=dtype), 1.0)
    for loc in (1e30, np.inf, -np.inf, np.nan):
        found = quantile("D", normals([1.0, 0.0], [0.0, loc], [1.0, 2.0], dtype), u)
        torch.testing.assert_close(found, one.icdf(u))


def test_what_is_unknown_stays_so_and_leaves_the_other_units_alone() -> None:
    loc = torch.tensor([[0.0, 1.0], [0.0, torch.nan], [0.0, 1.0], [0.0, torch.inf], [0.0, torch.inf]])
    mixture = dist.MixtureSameFamily(dist.Categorical(torch.ones(2)), dist.Normal(loc, 1.0, validate_args=False))
    found = quantile("D", mixture, torch.tensor([0.5, 0.5, torch.nan, 0.25, 0.75]))
    torch.testing.assert_close(found, torch.tensor([0.5, torch.nan, torch.nan, 0.0, torch.inf]), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_short_step_within_a_narrow_component_is_no_end(dtype: torch.dtype) -> None:
    needle = normals([0.7, 0.001, 0.299], [0.0, 1.0, 2.0], [1.0, torch.finfo(dtype).eps / 1e3, 1.0], dtype)
    found = float(quantile("D", needle, torch.tensor(0.5, dtype=dtype)))
    np.testing.assert_allclose(0.7 * stats.norm.cdf(found) + 0.299 * stats.norm.cdf(found - 2.0), 0.5, atol=1e-6)


def test_a_plateau_ends_at_its_least_value() -> None:
    parts = dist.Uniform(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 3.0]), validate_args=False)
    mixture = dist.MixtureSameFamily(dist.Categorical(torch.tensor([0.5, 0.5])), parts, validate_args=False)
    found = quantile("D", mixture, torch.tensor([0.5, 0.25, 0.75]))
    torch.testing.assert_close(found, torch.tensor([1.0, 0.5, 2.5]), atol=1e-5, rtol=0)


def test_families_without_a_usable_quantile_are_refused_by_name() -> None:
    for distribution, family in (
        (dist.Dirichlet(torch.ones(3)), "Dirichlet"),
        (dist.MultivariateNormal(torch.zeros(2), torch.eye(2)), "MultivariateNormal"),
        (dist.LKJCholesky(2, torch.tensor(1.0)), "LKJCholesky"),
        (dist.Multinomial(3, torch.ones(2)), "Multinomial"),
        (dist.OneHotCategorical(torch.ones(3)), "OneHotCategorical"),
        (dist.VonMises(0.0, 1.0), "VonMises"),
        (dist.Stable(torch.tensor(1.5), torch.tensor(0.0)), "Stable"),
        (dist.LogisticNormal(torch.zeros(2), torch.ones(2)), "LogisticNormal"),
        (dist.FoldedDistribution(dist.Normal(0.0, 1.0)), "FoldedDistribution"),
        (
            dist.TransformedDistribution(
                dist.Normal(torch.zeros(2), 1.0).to_event(1), [dist.transforms.SoftmaxTransform()]
            ),
            "TransformedDistribution",
        ),
        (dist.MixtureSameFamily(dist.Categorical(torch.ones(2)), dist.Poisson(torch.ones(2))), "a mixture of Poisson"),
        (dist.MixtureSameFamily(dist.Categorical(torch.ones(2)), dist.Beta(torch.ones(2), 2.0)), "a mixture of Beta"),
        (
            dist.MixtureSameFamily(dist.Categorical(torch.ones(2)), dist.Normal(torch.zeros(2, 3), 1.0).to_event(1)),
            "a mixture of Normal",
        ),
    ):
        message = rf"'D' is drawn from {family}, which has no usable quantile.*U = pyro.sample"
        with pytest.raises(CouplingError, match=message):
            quantile("D", distribution, torch.tensor(0.5))


# -- distributions as tensors --------------------------------------------------------------------------------------


def test_units_with_one_distribution_keep_their_noise() -> None:
    def moved(by: Tensor) -> Any:
        return dist.TransformedDistribution(dist.Normal(torch.zeros(2), 1.0), [T.AffineTransform(by, 1.0)])

    first, second = torch.tensor([0.1, 0.2]), torch.tensor([0.8, 0.9])
    for one, other in (
        (dist.Normal(torch.zeros(2), 1.0), dist.Normal(torch.tensor([0.0, 1.0]), 1.0)),
        (dist.Bernoulli(logits=torch.zeros(2)), dist.Bernoulli(torch.tensor([0.5, 0.6]))),
        (dist.Categorical(torch.ones(2, 3)), dist.Categorical(torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 2.0]]))),
        (dist.LogNormal(torch.zeros(2), 1.0), dist.LogNormal(torch.tensor([0.0, 1.0]), 1.0)),
        (dist.Normal(0.0, 1.0).expand([2]).mask(False), dist.Normal(torch.tensor([0.0, 1.0]), 1.0)),
        (moved(torch.zeros(2)), moved(torch.tensor([0.0, 1.0]))),
        (
            dist.ZeroInflatedPoisson(torch.ones(2), gate=torch.tensor(0.5)),
            dist.ZeroInflatedPoisson(torch.ones(2), gate=torch.tensor([0.5, 0.6])),
        ),
        (
            dist.MixtureSameFamily(dist.Categorical(torch.ones(2, 3)), dist.Normal(torch.zeros(2, 3), 1.0)),
            dist.MixtureSameFamily(
                dist.Categorical(torch.ones(2, 3)), dist.Normal(torch.tensor([[0.0] * 3, [0.0, 0.0, 1.0]]), 1.0)
            ),
        ),
        (dist.Delta(torch.zeros(2)), dist.Delta(torch.tensor([0.0, 1.0]))),
    ):
        if isinstance(unwrap(one), dist.Bernoulli):  # odds or probabilities, and whether somebody asked for the other
            assert unwrap(other).logits is not None
        found = choose_noise(first, second, parameters_of(one), parameters_of(other))
        torch.testing.assert_close(found, torch.tensor([0.1, 0.9]))


def test_vectors_keep_their_noise_number_by_number() -> None:
    one, other = dist.Normal(torch.zeros(2, 2), 1.0).to_event(1), dist.Normal(torch.eye(2), 1.0).to_event(1)
    first, second = torch.full((2, 2), 0.1), torch.full((2, 2), 0.9)
    found = choose_noise(first, second, parameters_of(one), parameters_of(other))
    torch.testing.assert_close(found, torch.tensor([[0.9, 0.1], [0.1, 0.9]]))


# -- noise ------------------------------------------------------------------------------------------------------------


def test_noise_depends_on_neither_order_nor_company() -> None:
    with isolated(0):
        one, other = (Noise(5, "independent", seed=3) for _ in range(2))
        left = one.draw("U", dist.Normal(torch.zeros(5), 1.0)), one.pair("D", dist.Poisson(torch.ones(5)), (5,))
        other.draw("V", dist.Normal(torch.zeros(5), 1.0))
        right = other.pair("D", dist.Poisson(torch.ones(5)), (5,)), other.draw("U", dist.Normal(torch.zeros(5), 1.0))
    assert torch.equal(left[0], right[1])
    assert all(torch.equal(a, b) for a, b in zip(left[1], right[0], strict=True))
    assert not torch.equal(one.values["U"], other.values["V"])  # noqa: PD011 - no table
    with isolated(0):
        assert not torch.equal(Noise(5, "monotone", seed=4).draw("U", dist.Normal(torch.zeros(5), 1.0)), left[0])


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_pairs(coupling: Coupling) -> None:
    n = 20_000
    with isolated(0):
        first, second = Noise(n, coupling).pair("C", dist.Categorical(torch.ones(n, 3)), (n,))
    if coupling in ("monotone", "gumbel"):
        assert first is second
    if coupling == "gumbel":
        assert first.shape == (n, 3)
        return
    assert bool(((first > 0) & (first < 1) & (second > 0) & (second < 1)).all())
    correlation = torch.corrcoef(torch.stack([first, second]))[0, 1].item()
    assert correlation == pytest.approx({"monotone": 1.0, "independent": 0.0, "antithetic": -1.0}[coupling], abs=0.03)


def test_a_transform_that_remembers_its_inverse_is_read() -> None:
    distribution = dist.LogNormal(torch.zeros(3), torch.ones(3))
    before = parameters_of(distribution)
    distribution.cdf(torch.ones(3))
    assert [each.tolist() for each in parameters_of(distribution)] == [each.tolist() for each in before]


# -- families without a quantile function ----------------------------------------------------------------------------

CLOSED: dict[str, Callable[[Tensor], Any]] = {
    "VonMises": lambda x: dist.VonMises(x, 2.0),
    "Folded": lambda x: dist.FoldedDistribution(dist.Normal(x, 1.0)),
    "Straight through": lambda x: dist.RelaxedBernoulliStraightThrough(torch.tensor(0.5), logits=3 * x - 1),
    "Relaxed": lambda x: dist.RelaxedBernoulli(torch.tensor(0.5), logits=x),
}


def program_of(family: Callable[[Tensor], Any]) -> Callable[[int], None]:
    """M reads A, and Q of half of the units alone; one distribution for those with Q = 0, whatever A."""
    return units(Q=coin(), M=lambda v: family(v.A * v.Q), Y=lambda v: dist.Bernoulli(logits=v.M))


UNFAIR = graph("{A Q} -> M -> Y").unfair("A -> M -> Y")


@pytest.mark.parametrize("name", CLOSED)
def test_independent_noise_needs_no_quantile_function(name: str) -> None:
    family, n = CLOSED[name], 20_000
    sem = SEM(program_of(family), UNFAIR, coupling="independent")
    baseline, switched = sem.nodes(n, random_state=0)
    read = baseline["Q"] == 1
    one, other = baseline["M"], switched["M"]
    assert one[~read].equals(other[~read])
    with isolated(1):
        drawn = [family(torch.full((n,), arm))().double().numpy() for arm in (0.0, 1.0)]
    for ours, theirs in ((one, drawn[0]), (other[read], drawn[1])):
        assert abs(ours.mean() - theirs.mean()) < 5 * theirs.std() * (2 / len(ours)) ** 0.5
        assert abs(ours.std() / theirs.std() - 1) < 0.06
    assert abs(np.corrcoef(one[read], other[read])[0, 1]) < 5 / read.sum() ** 0.5
    with pytest.raises(CouplingError, match=r"'M' is drawn from .*or coupling='independent'"):
        SEM(program_of(family), UNFAIR).nodes(3, random_state=0)


@pytest.mark.parametrize("name", ["VonMises", "Folded"])
def test_given_units_have_independent_noise_without_a_quantile_function(name: str) -> None:
    given = pd.DataFrame({"A": [0, 1, 1], "Q": [1, 1, 0], "M": [0.5, 0.7, 0.9]})
    sem = SEM(program_of(CLOSED[name]), UNFAIR, coupling="independent")
    found = sem.counterfactual(given, draws=2000, random_state=0)
    with isolated(1):
        mean = [CLOSED[name](torch.full((50_000,), arm)).sample().mean().item() for arm in (0.0, 1.0)]
    np.testing.assert_allclose(found.baseline["M"], [0.5, mean[0], 0.9], atol=0.08)
    np.testing.assert_allclose(found.switched["M"], [mean[1], 0.7, 0.9], atol=0.08)
    assert found.switched["M"].tolist()[1:] == pytest.approx([0.7, 0.9], abs=1e-12)


def test_values_of_one_distribution_are_drawn_once() -> None:
    noise = Noise(6, "independent", seed=3)
    distributions = [
        CLOSED["VonMises"](torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])),
        CLOSED["VonMises"](torch.zeros(6)),
    ]
    first, second = (noise.value("M", each, (6,), {}, baseline=False) for each in distributions)
    assert torch.equal(first[:3], second[:3])
    assert bool((first[3:] != second[3:]).all())
    assert torch.equal(noise.value("M", distributions[1], (6,), {}, baseline=False), second)
    assert torch.equal(noise.value("M", distributions[0], (6,), {}, baseline=False), first)
    assert noise.is_redrawn("M", distributions[0])
    assert not noise.is_redrawn("D", dist.Normal(0.0, 1.0))


def test_a_temperature_tells_two_distributions_apart() -> None:
    one, other = (parameters_of(dist.RelaxedBernoulli(t, logits=torch.zeros(2))) for t in (0.5, 0.7))
    assert {bool((a == b).all()) for a, b in zip(one, other, strict=True)} == {True, False}


def test_a_distribution_without_declared_parameters_is_refused() -> None:
    class Bare(dist.Normal):  # type: ignore[misc]
        arg_constraints: dict[str, Any] = {}  # noqa: RUF012

    with pytest.raises(CouplingError, match="Bare declares no parameters"):
        parameters_of(Bare(torch.zeros(3), torch.ones(3)))


def test_straight_through_values_are_rounded() -> None:
    distribution = dist.RelaxedBernoulliStraightThrough(torch.tensor(0.5), logits=torch.zeros(1000)).mask(True)
    with isolated(0):
        assert set(draw_from(distribution).tolist()) == {0.0, 1.0}


def test_an_unobserved_step_without_a_quantile_function_is_refused_for_given_rows() -> None:
    program = units(step=lambda v: dist.VonMises(v.A, 2.0), M=lambda v: dist.Normal(v.step, 1.0))
    sem = SEM(program, through("M"), coupling="independent")
    baseline, switched = sem.nodes(20_000, random_state=0)
    with isolated(1):
        mean = dist.VonMises(torch.ones(100_000), 2.0).sample().mean().item()
    assert abs((switched["M"] - baseline["M"]).mean() - mean) < 0.06
    with pytest.raises(CouplingError, match="'step' is an unobserved random step drawn from VonMises"):
        sem.counterfactual(pd.DataFrame({"A": [0, 1], "M": [0.0, 1.0]}))


# -- numbers hidden in a distribution ----------------------------------------------------------------------------------


def frozen(transform: Any) -> Any:
    return transform.requires_grad_(False)


def flow(a: Tensor, transforms: Any, size: int = 2) -> Any:
    """Return the distribution of normal variables after transforms, for as many units as a has."""
    base = dist.Normal(torch.zeros(*a.shape, size), 1.0).to_event(1)
    return dist.TransformedDistribution(base, [*transforms] if isinstance(transforms, list) else [transforms])


def shifted(a: Tensor) -> Any:
    return T.CumulativeDistributionTransform(dist.Normal(2 * a, torch.ones_like(a))).inv


def unit_interval(a: Tensor) -> Any:
    return dist.Uniform(torch.zeros_like(a), 1.0)


with isolated(1):
    LINEAR = torch.tensor([[1.0, 0.0], [0.5, 2.0]])
    CONDITIONAL = {
        name: frozen(getattr(T, name)(size, 1, **settings))
        for name, size, settings in [
            ("conditional_affine_autoregressive", 2, {"hidden_dims": [4]}),
            ("conditional_affine_coupling", 2, {"hidden_dims": [4]}),
            ("conditional_spline", 2, {"hidden_dims": [4], "count_bins": 4}),
            ("conditional_spline_autoregressive", 2, {"hidden_dims": [4], "count_bins": 4}),
            ("conditional_matrix_exponential", 2, {"hidden_dims": [4]}),
            ("conditional_householder", 2, {"hidden_dims": [4]}),
        ]
    }
    ONE = frozen(T.conditional_spline(1, 1, hidden_dims=[4], count_bins=4))


class Shift(T.AffineTransform):  # type: ignore[misc]
    def __init__(self, by: Tensor) -> None:
        super().__init__(0.0, 1.0)
        self.held = {"by": by}


HIDDEN: dict[str, Callable[[Tensor], Any]] = {
    "distribution in a transform": lambda a: dist.TransformedDistribution(unit_interval(a), [shifted(a)]),
    "composed": lambda a: dist.TransformedDistribution(
        unit_interval(a), [T.ComposeTransform([T.ExpTransform().inv, T.ExpTransform(), shifted(a)])]
    ),
    "concatenated": lambda a: dist.TransformedDistribution(
        unit_interval(a.unsqueeze(-1).expand(*a.shape, 2)).to_event(1),
        [T.CatTransform([shifted(a.unsqueeze(-1)), shifted(a.unsqueeze(-1))], -1, [1, 1])],
    ),
    "in a dictionary": lambda a: dist.TransformedDistribution(unit_interval(a), [Shift(a)]),
    "masked": lambda a: HIDDEN["distribution in a transform"](a).mask(True),
    "expanded": lambda a: HIDDEN["distribution in a transform"](a).expand(a.shape),
    "mixture of two": lambda a: dist.MaskedMixture(
        a > 0, dist.Normal(torch.zeros_like(a), 1.0), dist.Normal(torch.ones_like(a), 1.0)
    ),
    "zero inflated": lambda a: dist.ZeroInflatedDistribution(dist.Poisson(1 + a), gate=torch.tensor(0.3)),
    "triangular": lambda a: flow(a, T.LowerCholeskyAffine(torch.stack([a, -a], -1), LINEAR)),
    **{name: lambda a, t=t: flow(a, t.condition(a.unsqueeze(-1))) for name, t in CONDITIONAL.items()},
    "conditional, composed": lambda a: flow(
        a, [CONDITIONAL["conditional_spline"].condition(a.unsqueeze(-1)), T.AffineTransform(0.0, 2.0)]
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_the_numbers_of_a_distribution_are_found_wherever_they_are(name: str) -> None:
    one, other = (HIDDEN[name](torch.tensor(a)) for a in ([0.0, 0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0, 0.0]))
    for each in (one, other):  # what a distribution keeps of its draws is no number of its own
        each.log_prob(each())
    found = choose_noise(torch.zeros(5), torch.ones(5), parameters_of(one), parameters_of(other))
    assert found.tolist() == [0.0, 1.0, 1.0, 0.0, 0.0]


FLOWS = [name for name in HIDDEN if name.startswith(("conditional", "triangular"))]


@pytest.mark.parametrize("name", [*FLOWS, "one component"])
@pytest.mark.some(4)
def test_independent_flows_keep_their_margins(name: str) -> None:
    """Whether a distribution is the same in both worlds does not depend on what was drawn from it."""
    n, single = 20_000, name == "one component"
    family = HIDDEN.get(name, lambda a: flow(a, ONE.condition(a.unsqueeze(-1)), 1))
    columns = ["M"] if single else ["M[0]", "M[1]"]
    of_flow = graph("A -> M -> Y", columns={} if single else {"M": columns}).unfair("A -> M -> Y")
    worlds = SEM(units(M=lambda v: family(v.A)), of_flow, coupling="independent").nodes(n, random_state=0)
    for arm, world in enumerate(worlds):
        with isolated(arm + 1):
            theirs = family(torch.full((n,), float(arm)))().double().numpy()
        ours = world[columns].to_numpy()
        np.testing.assert_allclose(ours.mean(0), theirs.mean(0), atol=0.04 * theirs.std())
        np.testing.assert_allclose(ours.std(0) / theirs.std(0), 1.0, atol=0.03)
    assert abs(np.corrcoef(worlds[0][columns[-1]], worlds[1][columns[-1]])[0, 1]) < 0.03


@pytest.mark.parametrize(("coupling", "right"), [("monotone", 3.0), ("antithetic", 1.0), ("independent", 2.0)])
def test_parameters_in_a_transform_move_the_noise(coupling: Coupling, right: float) -> None:
    program = units(M=lambda v: HIDDEN["distribution in a transform"](v.A))
    sem = SEM(program, through("M"), coupling=coupling)
    found = sem.counterfactual(pd.DataFrame({"A": [0], "M": [1.0]}), draws=4000, random_state=0)
    assert found.switched["M"].item() == pytest.approx(right, abs=0.06 if coupling == "independent" else 1e-5)
    first, second = (world["M"] > 1 for world in sem.nodes(20_000, random_state=0))
    share = {"monotone": 0.683, "antithetic": 1.0, "independent": 0.733}[coupling]
    assert (first != second).mean() == pytest.approx(share, abs=0.015)


class Private(dist.Normal):  # type: ignore[misc]
    """A shift that no parameter shows."""

    def __init__(self, shift: Tensor) -> None:
        super().__init__(torch.zeros(shift.shape), torch.ones(shift.shape))
        self._shift = shift

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self

    def icdf(self, value: Tensor) -> Tensor:
        return super().icdf(value) + self._shift

    def log_prob(self, value: Tensor) -> Tensor:
        return super().log_prob(value - self._shift)


def test_numbers_that_no_parameter_shows_are_refused_where_distributions_are_compared() -> None:
    program = units(M=lambda v: Private(2 * v.A))
    baseline, switched = SEM(program, through("M")).nodes(100, random_state=0)
    np.testing.assert_allclose(switched["M"] - baseline["M"], 2.0, rtol=1e-5)
    for coupling in ("independent", "antithetic"):
        with pytest.raises(CouplingError, match=r"'M' reads 'A', and its parameters .* do not show it"):
            SEM(program, through("M"), coupling=coupling).nodes(100, random_state=0)


def test_stable_laws_are_read_in_seconds() -> None:
    """Their densities are integrals, which few units show."""
    program = units(M=lambda v: dist.Stable(1.5, 0.0, 1.0, v.A))
    baseline, switched = SEM(program, through("M"), coupling="independent").nodes(20_000, random_state=0)
    assert switched["M"].median() - baseline["M"].median() == pytest.approx(1.0, abs=0.1)


# -- families that are points, or counts of several kinds --------------------------------------------------------------


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_sites_drawn_from_delta_are_computed_ones(coupling: Coupling) -> None:
    program = units(
        U=normal(), S=lambda v: dist.Delta(2 * v.A + v.U), M=lambda v: dist.Delta(v.S + v.A), N=lambda v: v.M * 1.0
    )
    sem = SEM(program, graph("A -> M -> N -> Y").unfair("A -> M -> N -> Y"), coupling=coupling)
    found = sem.counterfactual(pd.DataFrame({"A": [0, 1], "M": [0.5, 3.2], "N": [0.5, 3.2]}))
    assert found.exact
    np.testing.assert_allclose(found.switched["N"], [3.5, 3.2])
    baseline, switched = sem.nodes(50, random_state=0)
    np.testing.assert_allclose(switched["M"] - baseline["M"], 3.0, rtol=1e-5)


def test_a_multinomial_reads_its_sites() -> None:
    program = units(M=lambda v: dist.Multinomial(5, probs=torch.stack([0.2 + 0.5 * v.A, 0.8 - 0.5 * v.A], -1)))
    counts = graph("A -> M -> Y", columns={"M": ["M[0]", "M[1]"]}).unfair("A -> M -> Y")
    baseline, switched = SEM(program, counts, coupling="independent").nodes(20_000, random_state=0)
    assert baseline["M[0]"].mean() == pytest.approx(1.0, abs=0.04)
    assert switched["M[0]"].mean() == pytest.approx(3.5, abs=0.04)
    assert ((switched["M[0]"] + switched["M[1]"]) == 5).all()
    assert abs(np.corrcoef(baseline["M[0]"], switched["M[0]"])[0, 1]) < 0.03
