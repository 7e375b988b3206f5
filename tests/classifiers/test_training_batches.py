"""Batches of observed rows and of both worlds, running scores, worlds as rows, and held-out rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from pyrofair import DataError, disagreement, effect_gap, piu_upper
from pyrofair.classifiers.batches import Batch, Epochs, Problem, World, WorldScores, hold_out, stack_worlds
from pyrofair.classifiers.training import Schedule, make_optimizer, train
from pyrofair.effects.potential_outcomes import CounterfactualSample, Scored

N = 230
LAYOUTS = ["paper", "pooled", "drawn", "units", "units_seen"]
layouts = pytest.mark.parametrize("layout", LAYOUTS)
SIZES = [1, 7, 50, 115, 229, 230, 10_000]
sizes = pytest.mark.parametrize("batch_size", SIZES)
roomy = pytest.mark.parametrize("batch_size", SIZES[1:])  # no more batches than a world has rows


def problem(layout: str, n: int = N, minority: int = 70, seed: int = 0) -> Problem:
    """Worlds that are observed rows of one group, all rows with some changed, drawn rows, and units of 4 draws."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.arange(n) < minority).astype(np.int64)
    worlds, below = [], n
    for world in (0, 1):
        unit = None
        if layout == "paper":
            rows = np.flatnonzero(group == 1 - world)
        elif layout == "pooled":
            changed = group == world
            rows = np.where(changed, below + np.cumsum(changed) - 1, np.arange(n))
            below += int(changed.sum())
        else:
            rows = rng.permutation(4 * 40)
            unit = rows // 4 if layout.startswith("units") else None
            rows = rows + below
            below += len(rows)
        if layout == "units_seen":
            rows = rng.integers(n, size=len(rows))
        weight = torch.tensor(rng.exponential(size=len(rows)))
        worlds.append(World(torch.tensor(rows), weight, None if unit is None else torch.tensor(unit)))
    return Problem(
        torch.tensor(rng.normal(size=(below, 3))),
        torch.tensor(rng.integers(2, size=n), dtype=torch.float64),
        torch.ones(n, dtype=torch.float64),
        (worlds[0], worlds[1]),
        torch.tensor(group),
    )


def plan(one: Problem, batch_size: int, seed: int = 0, penalised: bool = True) -> list[Batch]:
    generator = torch.Generator().manual_seed(seed)
    return Epochs(one, batch_size, generator, penalised=penalised, apart=True).draw().batches[0]


def count(tensors: list[torch.Tensor]) -> Counter[int]:
    return Counter(torch.cat(tensors).tolist())


# -- the plan ---------------------------------------------------------------------------------------------------------


@sizes
@layouts
@pytest.mark.parametrize("penalised", [True, False])
def test_every_observed_row_is_visited_once(layout: str, batch_size: int, penalised: bool) -> None:
    batches = plan(problem(layout), batch_size, penalised=penalised)
    assert count([batch.rows[: batch.size] for batch in batches]) == Counter(range(N))
    assert len(batches) == -(-N // batch_size)
    held = [batch.size for batch in batches]
    assert max(held) - min(held) <= 1
    assert max(held) <= batch_size


@roomy
@layouts
def test_every_row_of_a_world_is_visited_once(layout: str, batch_size: int) -> None:
    one = problem(layout)
    batches = plan(one, batch_size)
    for i, world in enumerate(one.worlds):
        assert count([batch.rows[batch.shares[i].indices] for batch in batches]) == Counter(world.rows.tolist())


@sizes
@layouts
def test_a_share_lists_its_rows_of_the_world_and_how_often_they_come(layout: str, batch_size: int) -> None:
    one = problem(layout)
    batches = plan(one, batch_size)
    for i, world in enumerate(one.worlds):
        for batch in batches:
            assert torch.equal(world.rows[batch.shares[i].entries], batch.rows[batch.shares[i].indices])
        times = count([batch.shares[i].entries for batch in batches])
        assert sorted(times) == list(range(len(world.rows)))
        assert {batch.shares[i].scale for batch in batches} == {len(batches) / times[0]}
        assert set(times.values()) == {times[0]}


@roomy
def test_a_world_row_that_is_observed_reuses_the_score_of_its_batch(batch_size: int) -> None:
    one = problem("pooled")
    for batch in plan(one, batch_size):
        joining = batch.rows[batch.size :]
        assert bool((joining >= N).all())
        assert len(joining.unique()) == len(joining)
    # Each row has one world in which it is unchanged and another in which it is changed.
    assert sum(len(batch.rows) for batch in plan(one, batch_size)) == 2 * N


@sizes
@layouts
def test_batches_are_balanced_by_group(layout: str, batch_size: int) -> None:
    one = problem(layout)
    minority = [int(one.stratum[batch.rows[: batch.size]].sum()) for batch in plan(one, batch_size)]
    assert max(minority) - min(minority) <= 1


@pytest.mark.parametrize("layout", ["units", "units_seen"])
@pytest.mark.parametrize("batch_size", [7, 50, 115])
def test_units_are_never_split(layout: str, batch_size: int) -> None:
    one = problem(layout)
    seen = Counter()
    for batch in plan(one, batch_size):
        here = [
            Counter(world.unit[share.entries].tolist()) for world, share in zip(one.worlds, batch.shares, strict=True)
        ]
        assert here[0] == here[1]
        assert set(here[0].values()) == {4}
        seen.update(here[0].keys())
    assert seen == Counter(range(40))


def test_a_batch_without_rows_of_a_world_scores_them_all() -> None:
    one = problem("paper", n=3000, minority=3)  # world 0 is made of the 3 minority
    batches = plan(one, 50)
    alone = [batch for batch in batches if len(batch.shares[0].indices) == 3]
    assert len(batches) == 60
    assert len(alone) == 57
    minority = sorted(one.worlds[0].rows.tolist())
    for batch in alone:
        assert sorted(batch.rows[batch.shares[0].indices].tolist()) == minority
        assert batch.rows[batch.size :].tolist() == one.worlds[0].rows.tolist()
        assert batch.shares[0].entries.tolist() == [0, 1, 2]
        assert batch.shares[0].scale == 60 / 58


@layouts
def test_fewer_units_or_rows_than_batches_leave_no_batch_empty(layout: str) -> None:
    one = problem(layout)
    for batch in plan(one, 1):
        assert all(len(share.indices) for share in batch.shares)
        assert all(int(share.indices.max()) < len(batch.rows) for share in batch.shares)


@layouts
def test_a_single_batch_keeps_the_order_and_draws_nothing(layout: str) -> None:
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    (batch,) = Epochs(problem(layout), N, generator, penalised=True, apart=True).draw().batches[0]
    assert batch.rows[: batch.size].tolist() == list(range(N))
    assert torch.equal(generator.get_state(), before)


def test_plain_batches_do_not_depend_on_the_worlds() -> None:
    one, other = problem("pooled"), problem("drawn", minority=20, seed=1)
    for a, b in zip(plan(one, 50, penalised=False), plan(other, 50, penalised=False), strict=True):
        assert a.rows.tolist() == b.rows.tolist()
        assert a.shares == ()


@layouts
def test_a_seed_is_a_plan(layout: str) -> None:
    one = problem(layout)
    first, again, other = (plan(one, 50, seed) for seed in (0, 0, 1))
    assert all(torch.equal(a.rows, b.rows) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a.rows, b.rows) for a, b in zip(first, other, strict=True))


# -- the penalty of a batch -------------------------------------------------------------------------------------------


def scores_of(slope: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(rows @ slope)


def normalised(layout: str) -> Problem:
    one = problem(layout)
    worlds = [replace(world, weight=world.weight / world.weight.sum()) for world in one.worlds]
    if worlds[0].unit is not None:  # the same weights in both worlds, as a source has them
        worlds = [replace(world, weight=torch.full((160,), 1 / 160, dtype=torch.float64)) for world in worlds]
    return replace(one, worlds=(worlds[0], worlds[1]))


@pytest.mark.parametrize("functional", [disagreement, effect_gap, piu_upper])
@pytest.mark.parametrize("batch_size", [1, 7, 50, 229])
@layouts
@pytest.mark.some(15)
def test_the_batches_of_an_epoch_average_to_the_gradient_of_all_rows(
    layout: str, batch_size: int, functional: Any
) -> None:
    """Exactly, where the module stands still: a mean over batches of a penalty of each would be another function."""
    one = normalised(layout)
    slope = torch.tensor([0.5, -1.0, 0.2], dtype=torch.float64, requires_grad=True)
    whole = scores_of(slope, one.rows)
    value = functional(*(Scored(whole[world.rows], world.weight, world.unit) for world in one.worlds))
    (expected,) = torch.autograd.grad(value, slope)
    running = [WorldScores(world, whole.detach()) for world in one.worlds]
    found = []
    for batch in (batches := plan(one, batch_size)):
        scores = scores_of(slope, one.rows[batch.rows])
        extra = functional(*(each.scored(share, scores) for each, share in zip(running, batch.shares, strict=True)))
        assert extra.item() == pytest.approx(value.item(), rel=1e-9)
        found.append(torch.autograd.grad(extra, slope)[0])
    torch.testing.assert_close(torch.stack(found).sum(0) / len(batches), expected, rtol=1e-9, atol=1e-12)


@layouts
def test_the_scores_of_all_rows_follow_a_module_that_moves(layout: str) -> None:
    one = normalised(layout)
    slope = torch.tensor([0.5, -1.0, 0.2], dtype=torch.float64)
    running = [WorldScores(world, scores_of(slope, one.rows)) for world in one.worlds]
    off, alone = [], []
    for epoch in range(10):
        for batch in plan(one, 23, seed=epoch):
            slope = slope + torch.tensor([0.005, 0.01, 0.01], dtype=torch.float64)
            whole = scores_of(slope, one.rows)
            for world, each, share in zip(one.worlds, running, batch.shares, strict=True):
                truth = float(world.weight @ whole[world.rows])
                off.append(each.scored(share, whole[batch.rows]).mean.item() - truth)
                weight = world.weight[share.entries]
                alone.append(float(weight @ whole[world.rows[share.entries]] / weight.sum()) - truth)
    assert np.mean(np.abs(off)) < 0.25 * np.mean(np.abs(alone))
    assert abs(np.mean(off)) < 0.002


@pytest.mark.parametrize("functional", [disagreement, effect_gap, piu_upper])
@pytest.mark.parametrize("batch_size", [3, 50, 230])
def test_the_formula_of_units_trains_as_the_function_does(batch_size: int, functional: Any) -> None:
    """Also where units are fewer than batches, and where a unit's weight is rounded to 0."""
    one = problem("units")
    worlds = [replace(world, weight=world.weight * (world.unit > 0)) for world in one.worlds]
    worlds = [replace(world, weight=world.weight / world.weight.sum()) for world in worlds]
    one = replace(one, worlds=(worlds[0], worlds[1]))
    found = []
    for penalty in (functional, lambda *scored: functional(*scored)):
        schedule = Schedule(3, batch_size, make_optimizer("adam", None), None, 0, progress=False)
        module = torch.nn.Linear(3, 1, dtype=torch.float64)
        with torch.no_grad():
            module.weight[:], module.bias[:] = torch.tensor([[0.5, -1.0, 0.2]]), 0.1
        train(module, one, penalty, 1.5, schedule)
        found.append([*module.weight[0].tolist(), *pd.DataFrame(schedule.history)["penalty"]])
    assert found[0] == pytest.approx(found[1], rel=1e-10)


# -- worlds as rows ---------------------------------------------------------------------------------------------------

OBSERVED = torch.arange(4, dtype=torch.float64).reshape(4, 1)


def sample(values: list[float], weight: list[float], **ids: list[int]) -> CounterfactualSample:
    return CounterfactualSample(
        pd.DataFrame({"A": values}), np.array(weight), **{name: np.array(each) for name, each in ids.items()}
    )


def encode(table: pd.DataFrame) -> torch.Tensor:
    return torch.tensor(table.to_numpy(dtype=np.float64))


def test_only_rows_that_are_new_and_weigh_something_are_encoded() -> None:
    one = sample([0, 70, 1, 80], [0.5, 0.2, 0.0, 0.3], origin=[0, -1, 1, -1])
    other = sample([90, 91], [1, 1])
    rows, worlds = stack_worlds(OBSERVED, (one, other), encode)
    assert rows.flatten().tolist() == [0, 1, 2, 3, 70, 80, 90, 91]
    assert worlds[0].rows.tolist() == [0, 4, 5]
    assert worlds[0].weight.tolist() == [0.5, 0.2, 0.3]
    assert worlds[1].rows.tolist() == [6, 7]
    assert worlds[0].unit is None


def test_units_of_any_number_are_kept_apart() -> None:
    one = sample([5, 6, 7], [1, 1, 1], unit=[10**15, -4, 10**15])
    other = sample([5, 6, 7], [1, 1, 0], unit=[-4, 10**15, 3])
    _, worlds = stack_worlds(OBSERVED, (one, other), encode)
    assert worlds[0].unit.tolist() == [1, 0, 1]
    assert worlds[1].unit.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("worlds", "message"),
    [
        ((sample([1], [1]), sample([1, 2], [0, 0])), "world 1 2 rows and none has weight"),
        ((sample([1], [1], origin=[4]), sample([1], [1])), r"world 0 the origin 4, which is no position in the 4 rows"),
    ],
)
def test_unfit_worlds_are_refused(worlds: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        stack_worlds(OBSERVED, worlds, encode)


# -- held-out rows ----------------------------------------------------------------------------------------------------


def test_held_out_rows_and_the_others_are_all_rows() -> None:
    target = np.array([0, 1] * 10, dtype=np.int8)
    left, held = hold_out(target, 0.3, np.random.RandomState(0))
    assert len(held) == 6
    assert sorted([*left, *held]) == list(range(20))
    assert held.tolist() != list(range(6))
    left, held = hold_out(target, None, np.random.RandomState(0))
    assert left.tolist() == list(range(20))
    assert len(held) == 0


@pytest.mark.parametrize(("fraction", "size"), [(0.01, 0), (0.99, 20)])
def test_a_fraction_that_leaves_too_little_is_refused(fraction: float, size: int) -> None:
    with pytest.raises(DataError, match=rf"validation_fraction={fraction} holds out {size} of 20 rows"):
        hold_out(np.array([0, 1] * 10, dtype=np.int8), fraction, np.random.RandomState(0))
