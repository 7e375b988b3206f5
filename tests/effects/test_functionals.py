from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import binom

from pyrofair import DataError, disagreement, effect_gap, interval_disagreement, piu_bounds, piu_upper
from pyrofair.effects.potential_outcomes import CounterfactualSample, MarginalBounds, Scored

Functional = Callable[[Scored, Scored], torch.Tensor]
BY_UNIT: dict[str, Functional] = {
    "disagreement": disagreement,
    "effect_gap": effect_gap,
    "effect_gap_squared": partial(effect_gap, squared=True),
    "piu_upper": piu_upper,
}
EVERY = {**BY_UNIT, "interval_disagreement": interval_disagreement}

by_unit = pytest.mark.parametrize("functional", BY_UNIT.values(), ids=BY_UNIT)
every = pytest.mark.parametrize("functional", EVERY.values(), ids=EVERY)
seeds = pytest.mark.parametrize("seed", range(5))


def scored(score: Any, weight: Any, unit: Any = None, dtype: torch.dtype = torch.float64) -> Scored:
    return Scored(
        torch.as_tensor(score, dtype=dtype),
        torch.as_tensor(weight, dtype=dtype),
        None if unit is None else torch.as_tensor(unit, dtype=torch.int64),
    )


def points(a: Any, b: Any, weight: Any = 1.0, unit: bool = True) -> tuple[Scored, Scored]:
    """One row per unit in each world, with these mean scores."""
    a, b, weight = np.broadcast_arrays(np.atleast_1d(a), np.atleast_1d(b), np.atleast_1d(weight))
    ids = np.arange(a.size) if unit else None
    return scored(a.copy(), weight.copy(), ids), scored(b.copy(), weight.copy(), ids)


def marginal(world: Scored) -> Scored:
    return dataclasses.replace(world, unit=None)


def random_worlds(seed: int, total: float = 1.0) -> tuple[Scored, Scored]:
    """Six units of equal weight in both worlds, with unequal weights and numbers of rows inside them."""
    rng = np.random.default_rng(seed)
    worlds = []
    for m in (40, 50):
        unit = np.concatenate([np.arange(6), rng.integers(6, size=m - 6)])
        weight = rng.exponential(size=m)
        weight *= total / 6 / np.bincount(unit, weight)[unit]
        worlds.append(scored(rng.beta(0.5, 0.5, size=m), weight, unit))
    return worlds[0], worlds[1]


# --- exact values ----------------------------------------------------------------------------------------------------


def test_one_mediator_by_weights() -> None:
    """Counts n(A, M) = 30, 10, 15, 45; scores .2, .4, .5, .9; the paper's weights over n = 100."""
    scored0 = scored([0.2, 0.4], [2.5 * 0.30, 2.5 * 0.10])
    scored1 = scored([0.5, 0.9], [5 * 0.15, 5 / 9 * 0.45])
    assert scored0.mean.item() == pytest.approx(0.25)
    assert scored1.mean.item() == pytest.approx(0.60)
    assert effect_gap(scored0, scored1).item() == pytest.approx(0.35)
    assert effect_gap(scored0, scored1, squared=True).item() == pytest.approx(0.35**2)
    assert disagreement(scored0, scored1).item() == pytest.approx(0.55)
    assert piu_upper(scored0, scored1).item() == pytest.approx(0.85)


def test_the_mean_effect_is_blind() -> None:
    """Y0 = Z and Ypi = 1 - Z for a fair coin Z: only the noise level sees that PIU is 1."""
    worlds = points([0.0, 1.0], [1.0, 0.0], 0.5)
    assert [f(*map(marginal, worlds)).item() for f in (effect_gap, disagreement, piu_upper)] == [0, 0.5, 1]
    assert [f(*worlds).item() for f in (effect_gap, disagreement, piu_upper)] == [1, 1, 1]


def test_the_paper_bound_is_loose() -> None:
    """Score .5 for all; with the decision's noise shared, decisions themselves are the units, and PIU is 0."""
    soft, decided = points([0.5, 0.5], [0.5, 0.5], 0.5), points([0.0, 1.0], [0.0, 1.0], 0.5)
    assert [f(*map(marginal, soft)).item() for f in (effect_gap, disagreement, piu_upper)] == [0, 0.5, 1]
    assert [f(*decided).item() for f in (effect_gap, disagreement, piu_upper)] == [0, 0, 0]


def test_horvitz_thompson_means_outside_the_unit_interval() -> None:
    scored0, scored1 = points(1.5, 0.8, unit=False)
    a, b = 1.5, 0.8
    assert a * (1 - b) + b * (1 - a) < 0  # the formula alone
    assert disagreement(scored0, scored1).item() == pytest.approx(0.2 + 0.5)
    assert piu_upper(scored0, scored1).item() == pytest.approx(0.2 + 0.5)
    assert effect_gap(scored0, scored1).item() == pytest.approx(0.7)
    assert interval_disagreement(scored0, scored1).item() == pytest.approx(0.7)


@pytest.mark.parametrize("functional", [disagreement, piu_upper, interval_disagreement])
@pytest.mark.parametrize("means", [(1.5, 0.8), (-0.4, 0.3), (1.2, 1.7), (-0.2, 1.3)])
def test_gradients_pull_means_back_inside(functional: Functional, means: tuple[float, float]) -> None:
    leaf = torch.tensor(means, dtype=torch.float64, requires_grad=True)
    one = torch.ones(1, dtype=torch.float64)
    functional(Scored(leaf[:1], one), Scored(leaf[1:], one)).backward()
    assert leaf.grad is not None
    for mean, slope in zip(means, leaf.grad.tolist(), strict=True):
        if not 0 <= mean <= 1:
            assert np.sign(slope) == np.sign(mean)  # descent lowers a mean above 1 and raises one below 0


def hiring(hard: bool, coupling: str = "independent") -> tuple[CounterfactualSample, CounterfactualSample, Any, Any]:
    """Both worlds of a discrete SEM by enumeration; rows are individuals (Q, M, D(0), D(1)), units their (Q, M)."""
    individuals = []
    for q, m, d0, d1 in itertools.product((0, 1), repeat=4):
        p0, p1 = 0.2 + 0.2 * q, 0.6 + 0.2 * q  # P(D(a) = 1 | Q)
        both = {"independent": p0 * p1, "monotone": min(p0, p1), "antithetic": max(0.0, p0 + p1 - 1)}[coupling]
        pair = {(1, 1): both, (1, 0): p0 - both, (0, 1): p1 - both, (0, 0): 1 - p0 - p1 + both}[d0, d1]
        p_m = 0.3 + 0.1 * q  # M(0) in both worlds: its path is fair
        individuals.append((q, m, d0, d1, 0.5 * (p_m if m else 1 - p_m) * pair))
    table = pd.DataFrame(individuals, columns=["Q", "M", "D0", "D1", "weight"])
    weight, unit = table["weight"].to_numpy(), (2 * table["Q"] + table["M"]).to_numpy()
    worlds, scores = [], []
    for a in (0, 1):
        features = pd.DataFrame({"A": a, "Q": table["Q"], "D": table[f"D{a}"], "M": table["M"]})
        score = 0.10 + 0.20 * features["A"] + 0.10 * features["Q"] + 0.25 * features["D"] + 0.30 * features["M"]
        worlds.append(CounterfactualSample(features, weight, unit))
        # .5 is reached (A=1, Q=1, D=0: .40 + .10) only up to rounding, and is no more than 1/2.
        scores.append((score > 0.5 + 1e-9).to_numpy(dtype=float) if hard else score.to_numpy())
    return worlds[0], worlds[1], scores[0], scores[1]


@pytest.mark.parametrize(
    ("hard", "p0", "ppi", "one_unit", "given_s"),
    [
        (False, 0.33, 0.63, (0.3, 0.5442, 0.96), (0.3, 0.4875, 0.7)),
        (True, 0.11, 0.80, (0.69, 0.734, 0.91), (0.69, 0.69, 0.69)),
    ],
    ids=["soft", "hard"],
)
def test_exact_hiring(hard: bool, p0: float, ppi: float, one_unit: Any, given_s: Any) -> None:
    world0, world1, scores0, scores1 = hiring(hard)
    scored0, scored1 = world0.scored(scores0), world1.scored(scores1)
    assert (scored0.mean.item(), scored1.mean.item()) == pytest.approx((p0, ppi))
    functionals = (effect_gap, disagreement, piu_upper)
    assert [f(marginal(scored0), marginal(scored1)).item() for f in functionals] == pytest.approx(one_unit)
    assert [f(scored0, scored1).item() for f in functionals] == pytest.approx(given_s)
    bounds = piu_bounds(scored0.mean.item(), scored1.mean.item())
    assert (bounds.lower, bounds.independent, bounds.upper) == pytest.approx(one_unit)


@pytest.mark.parametrize(
    ("coupling", "soft_piu"), [("monotone", 0.4775), ("independent", 0.4875), ("antithetic", 0.5025)]
)
def test_exact_hiring_with_the_noise_known(coupling: str, soft_piu: float) -> None:
    world0, world1, scores0, scores1 = hiring(hard=False, coupling=coupling)
    own = np.arange(len(scores0))
    alone0, alone1 = dataclasses.replace(world0, unit=own), dataclasses.replace(world1, unit=own)
    assert disagreement(alone0.scored(scores0), alone1.scored(scores1)).item() == pytest.approx(soft_piu)
    _, _, hard0, hard1 = hiring(hard=True, coupling=coupling)
    for functional in (effect_gap, disagreement, piu_upper):  # for decisions all three are PIU
        assert functional(alone0.scored(hard0), alone1.scored(hard1)).item() == pytest.approx(0.69)


def test_exact_laws_and_naive_draws() -> None:
    assert [f(*points(0.5, 0.5)).item() for f in (effect_gap, piu_upper)] == [0, 1]
    assert [f(*points(0.3, 0.4)).item() for f in (effect_gap, piu_upper)] == pytest.approx([0.1, 0.7])
    # Means of 20 draws instead of .5 and .5, over all their values: the interval comes out too narrow.
    draws = np.arange(21)
    a, b = (side.ravel() / 20 for side in np.meshgrid(draws, draws))
    weight = np.outer(binom.pmf(draws, 20, 0.5), binom.pmf(draws, 20, 0.5)).ravel()
    naive = points(a, b, weight)
    assert effect_gap(*naive).item() == pytest.approx(0.126, abs=1e-3)
    assert piu_upper(*naive).item() == pytest.approx(0.875, abs=1e-3)
    assert disagreement(*naive).item() == pytest.approx(0.5)  # independent draws leave it unbiased


# --- distributions ---------------------------------------------------------------------------------------------------


@seeds
@every
def test_never_negative(functional: Functional, seed: int) -> None:
    """Whatever the sum of the weights: Horvitz-Thompson means may leave [0, 1]."""
    for dtype, total in itertools.product((torch.float32, torch.float64), (0.3, 1.0, 2.5)):
        for worlds in (random_worlds(seed, total), tuple(map(marginal, random_worlds(seed, total)))):
            world0, world1 = (scored(w.score, w.weight, w.unit, dtype) for w in worlds)
            value = functional(world0, world1)
            assert value.dtype == dtype
            assert value.shape == ()
            assert value.item() >= 0


@pytest.mark.parametrize("unit", [True, False], ids=["units", "one unit"])
def test_order_inside_and_outside_the_unit_interval(unit: bool) -> None:
    rng = np.random.default_rng(0)
    for a, b in rng.uniform(-1, 2, size=(200, 2)):
        gap, middle, upper = (f(*points(a, b, unit=unit)).item() for f in (effect_gap, disagreement, piu_upper))
        assert gap <= upper + 1e-12
        assert upper <= 2 * middle + 1e-12


@seeds
@every
def test_symmetric_in_the_two_worlds(functional: Functional, seed: int) -> None:
    world0, world1 = random_worlds(seed)
    torch.testing.assert_close(functional(world0, world1), functional(world1, world0))


@seeds
@every
def test_names_and_order_change_nothing(functional: Functional, seed: int) -> None:
    world0, world1 = random_worlds(seed)
    value = functional(world0, world1)
    rng = np.random.default_rng(seed)
    names = torch.as_tensor(rng.choice(np.arange(-1_000, 1_000), size=6, replace=False))
    renamed = []
    for world in (world0, world1):
        assert world.unit is not None
        order = torch.as_tensor(rng.permutation(len(world.score)))
        renamed.append(Scored(world.score[order], world.weight[order], names[world.unit][order]))
    torch.testing.assert_close(functional(*renamed), value)


@seeds
@by_unit
def test_one_unit_is_no_unit(functional: Functional, seed: int) -> None:
    worlds = random_worlds(seed)
    one = [dataclasses.replace(w, unit=torch.full_like(w.weight, 5, dtype=torch.int64)) for w in worlds]
    torch.testing.assert_close(functional(one[0], one[1]), functional(*map(marginal, worlds)))


@by_unit
def test_units_of_no_weight_are_dropped(functional: Functional) -> None:
    value = functional(scored([0.2, 0.9], [0.4, 0.6], [1, 2]), scored([0.7, 0.4], [0.4, 0.6], [1, 2]))
    world0 = scored([0.2, 0.9, 0.5, 0.1], [0.4, 0.6, 0, 0], [1, 2, 3, 4])
    world1 = scored([0.7, 0.4, 0.5], [0.4, 0.6, 0], [1, 2, 3])
    leaf = world0.score.requires_grad_()
    dropped = functional(world0, world1)
    torch.testing.assert_close(dropped, value)
    dropped.backward()
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()
    assert leaf.grad[2:].eq(0).all()


@pytest.mark.parametrize("name", BY_UNIT)
def test_equal_worlds(name: str) -> None:
    """Equal decisions never differ; equal soft scores with noise of their own do, and may always."""
    decisions, scores = points([0.0, 1.0], [0.0, 1.0], 0.5), points([0.3, 0.6], [0.3, 0.6], 0.5)
    assert BY_UNIT[name](*decisions).item() == 0
    soft = {"disagreement": 0.5 * (0.42 + 0.48), "piu_upper": 0.5 * (0.6 + 0.8)}
    assert BY_UNIT[name](*scores).item() == pytest.approx(soft.get(name, 0.0))


@seeds
def test_units_covariance_nesting_and_width(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, weight = rng.beta(0.5, 0.5, 30), rng.beta(0.5, 0.5, 30), rng.dirichlet(np.ones(30))
    given, one = points(a, b, weight), points(a, b, weight)
    one = (marginal(one[0]), marginal(one[1]))
    covariance = weight @ (a * b) - (weight @ a) * (weight @ b)
    assert (disagreement(*given) - disagreement(*one)).item() == pytest.approx(-2 * covariance)
    inner, outer = [[f(*worlds).item() for f in (effect_gap, piu_upper)] for worlds in (given, one)]
    assert outer[0] <= inner[0] <= inner[1] <= outer[1]
    assert inner[1] - inner[0] == pytest.approx(2 * weight @ np.minimum.reduce([a, 1 - a, b, 1 - b]))
    # Whatever the coupling inside a unit, PIU lies between the ends.
    both = rng.uniform(np.maximum(0, a + b - 1), np.minimum(a, b))
    assert inner[0] <= weight @ (a + b - 2 * both) <= inner[1]


def test_large_units_in_single_precision() -> None:
    m = 400_000
    score = torch.rand(m, generator=torch.Generator().manual_seed(0))
    world = Scored(score, torch.full((m,), 1 / m), torch.arange(m) % 2)
    mean = score.double().mean().item()
    assert disagreement(world, world).item() == pytest.approx(2 * mean * (1 - mean), abs=1e-5)


def test_integer_decisions_are_not_truncated() -> None:
    weight = torch.tensor([0.25, 0.75])
    unit = torch.zeros(2, dtype=torch.int64)
    world0, world1 = Scored(torch.tensor([0, 1]), weight, unit), Scored(torch.tensor([1, 0]), weight, unit)
    assert effect_gap(world0, world1).item() == pytest.approx(0.5)


# --- partially identified marginals ----------------------------------------------------------------------------------


def bounds(lower: float, upper: float) -> MarginalBounds:
    return MarginalBounds(torch.tensor(lower, dtype=torch.float64), torch.tensor(upper, dtype=torch.float64))


def test_interval_disagreement_exact() -> None:
    assert interval_disagreement(bounds(0.1, 0.3), bounds(0.4, 0.8)).item() == pytest.approx(0.8 * 0.9 + 0.6 * 0.3)
    assert interval_disagreement(bounds(0, 1), bounds(0, 1)).item() == 2
    point = scored([0.25], [1.0])
    assert interval_disagreement(point, bounds(0.5, 0.75)).item() == pytest.approx(0.75 * 0.75 + 0.5 * 0.25)
    assert interval_disagreement(bounds(0.5, 0.75), point).item() == pytest.approx(0.25 * 0.5 + 0.75 * 0.75)
    assert interval_disagreement(point, bounds(-0.25, 1.5)).item() == pytest.approx(0.75 + 0.25 + 0.75 / 2)


@seeds
def test_interval_disagreement_covers_every_point_inside(seed: int) -> None:
    rng = np.random.default_rng(seed)
    (l0, u0), (l1, u1) = np.sort(rng.uniform(size=(2, 2)), axis=1)
    value = interval_disagreement(bounds(l0, u0), bounds(l1, u1)).item()
    for a, b in itertools.product(np.linspace(l0, u0, 5), np.linspace(l1, u1, 5)):
        assert disagreement(*points(a, b)).item() <= value + 1e-12


@seeds
def test_interval_disagreement_at_points(seed: int) -> None:
    world0, world1 = (marginal(w) for w in random_worlds(seed, total=1.7))
    value = disagreement(world0, world1)
    torch.testing.assert_close(interval_disagreement(world0, world1), value)
    a, b = MarginalBounds(world0.mean, world0.mean), MarginalBounds(world1.mean, world1.mean)
    torch.testing.assert_close(interval_disagreement(a, b), value)
    torch.testing.assert_close(interval_disagreement(world0, b), value)


# --- gradients -------------------------------------------------------------------------------------------------------


@seeds
@every
@pytest.mark.parametrize("unit", [True, False], ids=["units", "one unit"])
def test_gradients(functional: Functional, seed: int, unit: bool) -> None:
    world0, world1 = random_worlds(seed)
    if not unit:
        world0, world1 = marginal(world0), marginal(world1)

    def value(score0: torch.Tensor, score1: torch.Tensor) -> torch.Tensor:
        return functional(dataclasses.replace(world0, score=score0), dataclasses.replace(world1, score=score1))

    torch.autograd.gradcheck(value, (world0.score.requires_grad_(), world1.score.requires_grad_()))


def test_gradients_of_bounds() -> None:
    ends = tuple(torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.1, 0.3, 0.4, 0.8))
    torch.autograd.gradcheck(
        lambda l0, u0, l1, u1: interval_disagreement(MarginalBounds(l0, u0), MarginalBounds(l1, u1)), ends
    )


@every
@pytest.mark.parametrize("unit", [True, False], ids=["units", "one unit"])
def test_no_nan_gradients_at_kinks(functional: Functional, unit: bool) -> None:
    for means in ((0.4, 0.4), (0.5, 0.5), (0.25, 0.75), (0, 0), (1, 1), (0, 1), (1, 0.5), (1.5, 1.5)):
        leaf = torch.tensor(means, dtype=torch.float64, requires_grad=True)
        one = torch.ones(1, dtype=torch.float64)
        ids = torch.zeros(1, dtype=torch.int64) if unit else None
        functional(Scored(leaf[:1], one, ids), Scored(leaf[1:], one, ids)).backward()
        assert leaf.grad is not None
        assert leaf.grad.isfinite().all(), means


# --- what cannot be compared -----------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("m", [0, 2], ids=["no row", "no weight"])
def test_an_empty_world_is_no_zero(functional: Functional, m: int) -> None:
    empty, full = scored(np.full(m, 0.5), np.zeros(m)), scored([0.5], [1.0])
    empty.score.requires_grad_()
    with pytest.raises(DataError, match=r"World 0 \(baseline\) is empty.*cannot give an estimate; stratify"):
        functional(empty, full)
    with pytest.raises(
        DataError, match=r"World 1 \(unfair paths switched\) is empty: the weights of its \d rows sum to 0"
    ):
        functional(full, empty)


FOUR_AND_NINE = scored([0.5, 0.5], [0.5, 0.5], [4, 9])


@pytest.mark.parametrize(
    ("worlds", "message"),
    [
        ((points(0.5, 0.5)[0], scored([0.5], [1.0])), "World 0 has units and world 1 has none"),
        ((scored([0.5], [1.0]), points(0.5, 0.5)[0]), "World 1 has units and world 0 has none"),
        ((FOUR_AND_NINE, scored([0.5], [1.0], [4])), "1 of 2 units .* in one world only, unit 9 first"),
        ((FOUR_AND_NINE, scored([0.5, 0.5], [0.5, 0.5], [4, 5])), "2 of 3 units .* in one world only, unit 5 first"),
        ((FOUR_AND_NINE, scored([0.5, 0.5], [1.0, 0.0], [4, 9])), "unit 9 first, so their two means cannot be"),
    ],
)
@by_unit
def test_units_that_differ(functional: Functional, worlds: tuple[Scored, Scored], message: str) -> None:
    with pytest.raises(DataError, match=message):
        functional(*worlds)


@pytest.mark.parametrize(
    ("worlds", "message"),
    [
        ((scored([torch.nan], [1.0]), scored([0.5], [1.0])), r"is (nan|inf): a score, a weight or a bound"),
        ((scored([0.5], [1.0]), scored([torch.inf], [1.0])), r"is (nan|inf): a score, a weight or a bound"),
        ((scored([0.5], [torch.nan]), scored([0.5], [1.0])), "the weights of its 1 rows sum to nan"),
    ],
)
@every
def test_scores_that_are_not_finite(functional: Functional, worlds: tuple[Scored, Scored], message: str) -> None:
    with pytest.raises(DataError, match=message):
        functional(*worlds)
