"""Families of distributions: which a column gets, what numbers it takes, and whether the distributions are
distributions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pyro.distributions as dist
import pytest
import torch
from scipy import stats
from torch import Tensor

from pyrofair.exceptions import DataError, PyrofairError
from pyrofair.mechanisms.families import (
    Atoms,
    Binary,
    Bounded,
    Categorical,
    Continuous,
    Family,
    Integer,
    Positive,
    choose_family,
    decode,
    encode,
    features,
    levels,
    support,
)
from pyrofair.programs.couplings import noise_of, parameters_of, quantile
from pyrofair.programs.distributions import DiscretizedMixture

FAMILIES: list[Any] = [
    Binary(0.3),
    Categorical(("a", "b", "c"), (0.2, 0.3, 0.5)),
    Integer(-4, 9, 1.0, 2.5),
    Integer(0, 40, 10.0, 8.0, components=1),
    Continuous(3.0, 2.0),
    Positive(0.5, 0.7, components=3),
    Bounded(0.5, 0.7, components=3, low=-2.0, high=3.0),
    Bounded(0.5, 0.7, components=2, low=-math.inf, high=3.0),
    Atoms((0.0, 37.5), (0.2, 0.3, 0.5), Positive(2.0, 1.0, components=2)),
]


def some_distribution(family: Family, *batch: int) -> Any:
    noise = torch.randn(*batch, family.size, generator=torch.Generator().manual_seed(0))
    return family.distribution(family.offset + 0.5 * noise)


# -- the choice -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected", "known"),
    [
        (pd.Series([True, False, True]), Binary, None),
        (pd.Series([0, 1, 1]), Binary, None),
        (pd.Series([0.0, 1.0]), Binary, None),
        (pd.Series([1, 2, 2]), Categorical, (1, 2)),
        (pd.Series([0.5, 2.5, 2.5]), Categorical, (0.5, 2.5)),
        (pd.Series(["x", "y", "x"]), Categorical, ("x", "y")),
        (pd.Series(["x", "y", "x"], dtype="string"), Categorical, ("x", "y")),
        (pd.Series(pd.Categorical(["b", "a"], ["b", "a", "never"])), Categorical, ("b", "a", "never")),
        (pd.Series(range(1, 17)), Categorical, tuple(range(1, 17))),
        (pd.Series(range(21)), Integer, None),
        (pd.Series([-1.5, 0.5, 2.25]), Continuous, None),
        (pd.Series([1.5, 0.5, 2.25]), Positive, None),
        (pd.Series([7, 7, 7]), Categorical, (7,)),
        (pd.Series([0, 1, 2]), Categorical, None),
    ],
)
def test_a_column_gets_the_family_of_its_type(values: pd.Series, expected: type, known: tuple[Any, ...] | None) -> None:
    family = choose_family(values)
    assert type(family) is expected
    assert levels(family) == known
    np.testing.assert_array_equal(decode(family, encode(family, values)), values.to_numpy())


def test_most_levels_and_components_are_settings() -> None:
    assert isinstance(choose_family(pd.Series([1, 2, 5, 9]), most_levels=3), Integer)
    family = choose_family(pd.Series([-0.5, 1.5, 2.5]), components=2)
    assert isinstance(family, Continuous)
    assert family.size == 6
    with pytest.raises(DataError, match="components=0 must be an integer of at least 1"):
        choose_family(pd.Series([1.0]), components=0)
    with pytest.raises(DataError, match="missing value"):
        choose_family(pd.Series([1.0, None]))


LARGE = np.random.default_rng(0).normal(size=100)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (1e6 + LARGE, Continuous),
        (2010.0 + 5.0 * LARGE, Continuous),
        (1e6 * np.exp(LARGE), Positive),
        (1e30 * np.exp(LARGE), Positive),
        ((999_000 + 300 * LARGE).round().clip(max=1e6), Integer),
        ((1e6 + 300 * LARGE).round(), Continuous),
        ((1e15 * LARGE / 10).round(), Continuous),
        (np.exp(17 + LARGE).round(), Positive),
        (np.where(LARGE > 0, 1e20, 2e20), Categorical),
        (np.array([f"{value:.0f}" for value in LARGE]), Categorical),
        (pd.Categorical(np.arange(100) % 20), Categorical),
    ],
)
def test_size_and_spread_choose_a_scale(values: Any, expected: type) -> None:
    family = choose_family(pd.Series(values))
    assert type(family) is expected
    found = decode(family, encode(family, pd.Series(values)))
    assert found.tolist() == (
        values.tolist() if expected in (Integer, Categorical) else pytest.approx(values, rel=1e-7)
    )
    assert bool(torch.isfinite(family.distribution(family.offset).log_prob(encode(family, pd.Series(values)))).all())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            1e12 + LARGE,
            r"around 1e\+12 with a standard deviation of 0\.96.* lie up to 119209 apart .* Subtract an offset",
        ),
        (1e30 * LARGE, r"up to 2\..*e\+30 in size.* Give it in another unit: df\['V'\] / 1e\+30"),
        (1e-30 * LARGE, r"another unit: df\['V'\] / 1e-30"),
        (1e300 * np.exp(LARGE), r"squares leave double precision.* another unit: df\['V'\] / 7e\+300"),
        (LARGE.astype(object), r"type object and holds numbers, such as 0\.1257.* df\['V'\]\.astype\(float\)"),
        (np.arange(100).astype(object) % 20, r"type object and holds numbers, such as 0,.*\.astype\('category'\)"),
        ([f"id {i}" for i in range(100)], "100 different categories in 100 rows, such as 'id 0', 'id 1', 'id 2': most"),
    ],
)
def test_what_no_mechanism_could_be_learned_of_is_refused(values: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        choose_family(pd.Series(values, name="V"))


def test_weights_change_frequencies_and_moments() -> None:
    binary = choose_family(pd.Series([0, 1]), weight=[1.0, 3.0])
    assert isinstance(binary, Binary)
    assert binary.p == pytest.approx((1.5 + 0.5) / 3.0)
    whole = choose_family(pd.Series([*range(30)]), weight=[1.0] * 10 + [0.0] * 20)
    assert isinstance(whole, Integer)
    assert (whole.low, whole.high, whole.mean) == (0, 29, pytest.approx(4.5))


def test_a_declared_level_that_was_not_met_stays_possible() -> None:
    family = choose_family(pd.Series(pd.Categorical(["a", "b"], ["a", "b", "c"])))
    assert bool(torch.isfinite(family.offset).all())
    assert family.distribution(family.offset).probs.tolist() == pytest.approx([1.5 / 3.5, 1.5 / 3.5, 0.5 / 3.5])


# -- the distributions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_a_mechanism_has_its_shapes_and_a_density(family: Family) -> None:
    distribution = some_distribution(family, 4, 3)
    assert family.offset.shape == (family.size,)
    assert tuple(distribution.batch_shape) == (4, 3)
    assert tuple(distribution.event_shape) == ()
    known = support(family)
    if known is not None:
        assert distribution.log_prob(known[:, None, None]).exp().sum(0).flatten().tolist() == pytest.approx(
            [1.0] * 12, abs=1e-5
        )
    wide = distribution.expand((2, 4, 3))
    value = distribution.sample()
    torch.testing.assert_close(wide.log_prob(value)[1], distribution.log_prob(value))


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_a_mechanism_can_be_coupled_by_its_quantile_function(family: Family) -> None:
    distribution, u = some_distribution(family, 3), torch.linspace(0.01, 0.99, 50)[:, None]
    value = quantile("V", distribution, u)
    assert value.shape == (50, 3)
    assert bool((value.diff(dim=0) >= 0).all())
    assert all(each.shape[0] == 3 for each in parameters_of(distribution))
    if hasattr(distribution, "cdf") and isinstance(family, Integer | Continuous | Atoms):
        high = distribution.cdf(value)
        assert bool((high >= u - 1e-5).all())
        low = noise_of("V", distribution, value)[0]
        assert bool((low <= u + 1e-4).all())


def test_a_support_that_is_too_large_to_write_down_is_none() -> None:
    assert support(Integer(-(10**15), 10**15, 0.0, 1e14)) is None


def test_offset_is_roughly_the_marginal_distribution() -> None:
    values = pd.Series(np.random.default_rng(0).normal(50.0, 12.0, 4000).round())
    family = choose_family(values)
    distribution = family.distribution(family.offset)
    drawn = distribution.sample((20_000,))
    assert float(drawn.mean()) == pytest.approx(50.0, abs=1.0)
    assert float(drawn.std()) == pytest.approx(12.0, rel=0.15)


# -- the rounded mixture ----------------------------------------------------------------------------------------------


def test_rounded_mixture_against_scipy() -> None:
    weights, loc, scale = torch.tensor([0.3, 0.7]), torch.tensor([-1.0, 4.0]), torch.tensor([0.8, 2.5])
    distribution = DiscretizedMixture(weights.log(), loc, scale, -5, 12)
    k = np.arange(-5, 13)
    ends = np.concatenate([[-np.inf], k[:-1] + 0.5, [np.inf]])
    below = sum(
        w * stats.norm.cdf(ends, m, s) for w, m, s in zip(weights.tolist(), loc.tolist(), scale.tolist(), strict=True)
    )
    np.testing.assert_allclose(
        distribution.log_prob(torch.tensor(k, dtype=torch.float32)).exp(), np.diff(below), atol=1e-6
    )
    torch.manual_seed(0)
    counts = np.bincount((distribution.sample((50_000,)).numpy() + 5).astype(int), minlength=18)
    assert stats.chisquare(counts, 50_000 * np.diff(below) / np.diff(below).sum()).pvalue > 0.001


@pytest.mark.parametrize("scale", [0.05, 1.0, 30.0, 150.0, 1e4])
def test_rounded_mixture_is_exact_in_both_tails(scale: float) -> None:
    k = torch.tensor([0.0, round(3 * scale), -round(3 * scale), round(7 * scale), -round(7 * scale)])
    one, exact = (
        DiscretizedMixture(torch.zeros(1), torch.zeros(1), torch.tensor([scale], dtype=dtype), -200_000, 200_000)
        for dtype in (torch.float32, torch.float64)
    )
    torch.testing.assert_close(one.log_prob(k).double(), exact.log_prob(k.double()), rtol=2e-5, atol=2e-4)
    torch.testing.assert_close(one.log_prob(k), one.log_prob(-k), rtol=2e-5, atol=2e-4)


def test_rounded_mixture_has_gradients_at_its_ends() -> None:
    numbers = [torch.randn(3, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in range(3)]
    distribution = DiscretizedMixture(numbers[0], numbers[1], numbers[2].exp(), -2, 3)
    distribution.log_prob(torch.tensor([-2.0, 0.0, 3.0])).sum().backward()
    assert all(bool(torch.isfinite(each.grad).all()) for each in numbers if each.grad is not None)


def test_rounded_mixture_knows_its_support() -> None:
    distribution = DiscretizedMixture(torch.zeros(1), torch.zeros(1), torch.ones(1), -2, 3)
    assert distribution.support.check(torch.tensor([-3.0, -2.0, 0.5, 3.0, 4.0])).tolist() == [
        False,
        True,
        False,
        True,
        False,
    ]
    with pytest.raises(ValueError, match="within the support"):
        distribution.log_prob(torch.tensor(0.5))
    free = DiscretizedMixture(torch.zeros(1), torch.zeros(1), torch.ones(1), -2, 3, validate_args=False)
    assert free.log_prob(torch.tensor([0.5, 4.0])).tolist() == [-torch.inf, -torch.inf]
    assert distribution.cdf(torch.tensor([-2.5, 3.0, 9.0])).tolist() == [0.0, 1.0, 1.0]
    with pytest.raises(PyrofairError, match="integers as ends"):
        DiscretizedMixture(torch.zeros(1), torch.zeros(1), torch.ones(1), 0.5, 3)
    with pytest.raises(PyrofairError, match="low <= high"):
        DiscretizedMixture(torch.zeros(1), torch.zeros(1), torch.ones(1), 4, 3)


# -- values and features ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "values", "message"),
    [
        (Categorical(("a", "b"), (0.5, 0.5)), ["a", "z"], "'z', not seen in fit"),
        (Binary(0.5), [0.0, 2.0], "holds 2, .* distributions of 0 and 1"),
        (Integer(0, 5, 1.0, 1.0), [0.0, 0.5], "holds 0.5, .* distributions of integers"),
        (Positive(0.0, 1.0), [1.0, -1.0], "holds -1, .* distributions of numbers above 0"),
        (Continuous(0.0, 1.0), ["a", "b"], "distributions of numbers"),
    ],
)
def test_a_value_that_no_mechanism_takes_is_refused_by_name(family: Family, values: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        encode(family, pd.Series(values, name="V"))


def test_features_carry_leading_axes() -> None:
    family = Categorical(("a", "b", "c"), (0.2, 0.3, 0.5))
    codes = torch.tensor([[0, 2], [1, 1]])
    assert features(family, codes).shape == (2, 2, 3)
    assert features(family, codes).argmax(-1).tolist() == codes.tolist()
    assert features(Categorical(("a", "b"), (0.5, 0.5)), torch.tensor([0.0, 1.0])).tolist() == [[0.0], [1.0]]
    assert features(Categorical((3,), (1.0,)), torch.zeros(4)).shape == (4, 0)
    assert features(Binary(0.5), torch.tensor([0.0, 1.0])).tolist() == [[0.0], [1.0]]
    assert features(Positive(1.0, 2.0), torch.tensor([np.e**3])).tolist() == [[pytest.approx(1.0)]]
    assert features(Integer(0, 9, 4.0, 2.0), torch.tensor([8.0])).tolist() == [[2.0]]


class Counts:
    """A family of one's own."""

    size = 1
    offset = torch.zeros(1)

    def distribution(self, out: Tensor) -> Any:
        return dist.Poisson(out[..., 0].exp())


def test_a_family_of_ones_own_needs_three_members() -> None:
    family = Counts()
    values = pd.Series([0, 3, 2])
    assert encode(family, values).tolist() == [0.0, 3.0, 2.0]
    assert decode(family, torch.tensor([1.0])).tolist() == [1.0]
    assert features(family, torch.tensor([2.0])).tolist() == [[2.0]]
    assert levels(family) is None
    assert support(family) is None
