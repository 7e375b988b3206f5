from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch

from pyrofair.batches import Batch, Problem, World, hold_out, plan_batches, stack_worlds
from pyrofair.exceptions import DataError
from pyrofair.potential_outcomes import CounterfactualSample

N = 230
LAYOUTS = ["paper", "pooled", "drawn", "units", "units_seen"]
layouts = pytest.mark.parametrize("layout", LAYOUTS)
SIZES = [1, 7, 50, 115, 229, 230, 10_000]
sizes = pytest.mark.parametrize("batch_size", SIZES)
roomy = pytest.mark.parametrize("batch_size", SIZES[1:])  # no more batches than a world has rows


def problem(layout: str, n: int = N, women: int = 70, seed: int = 0) -> Problem:
    """Worlds that are observed rows of one group, all rows with some changed, drawn rows, and units of 4 draws."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.arange(n) < women).astype(np.int64)
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
    return plan_batches(one, batch_size, torch.Generator().manual_seed(seed), penalised=penalised)


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
        assert count([batch.rows[batch.shares[i].places] for batch in batches]) == Counter(world.rows.tolist())


@pytest.mark.parametrize("layout", ["paper", "pooled", "drawn", "units"])
def test_weights_are_those_of_the_world_up_to_a_factor_that_keeps_its_total(layout: str) -> None:
    one = problem(layout)
    for i, world in enumerate(one.worlds):
        full = torch.zeros(len(one.rows), dtype=torch.float64)
        full[world.rows] = world.weight
        for batch in plan(one, 50):
            share = batch.shares[i]
            factor = share.weight / full[batch.rows[share.places]]
            assert factor.tolist() == pytest.approx([float(factor[0])] * len(factor), rel=1e-12)
            assert float(share.weight.sum()) == pytest.approx(float(world.weight.sum()), rel=1e-12)


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
    women = [int(one.stratum[batch.rows[: batch.size]].sum()) for batch in plan(one, batch_size)]
    assert max(women) - min(women) <= 1


@pytest.mark.parametrize("layout", ["units", "units_seen"])
@pytest.mark.parametrize("batch_size", [7, 50, 115])
def test_units_are_never_split(layout: str, batch_size: int) -> None:
    one = problem(layout)
    seen = Counter()
    for batch in plan(one, batch_size):
        here = [Counter(share.unit.tolist()) for share in batch.shares]
        assert here[0] == here[1]
        assert set(here[0].values()) == {4}
        seen.update(here[0].keys())
    assert seen == Counter(range(40))


def test_a_batch_without_rows_of_a_world_scores_them_all() -> None:
    one = problem("paper", n=3000, women=3)  # world 0 is made of the 3 women
    batches = plan(one, 50)
    alone = [batch for batch in batches if len(batch.shares[0].places) == 3]
    assert len(batches) == 60
    assert len(alone) == 57
    women = sorted(one.worlds[0].rows.tolist())
    for batch in alone:
        assert sorted(batch.rows[batch.shares[0].places].tolist()) == women
        assert batch.rows[batch.size :].tolist() == one.worlds[0].rows.tolist()
        assert batch.shares[0].weight.tolist() == one.worlds[0].weight.tolist()
    assert all(bool(share.weight.sum() > 0) for batch in batches for share in batch.shares)


@layouts
def test_fewer_units_or_rows_than_batches_leave_no_batch_empty(layout: str) -> None:
    one = problem(layout)
    for batch in plan(one, 1):
        assert all(len(share.places) and bool(share.weight.sum() > 0) for share in batch.shares)
        assert all(int(share.places.max()) < len(batch.rows) for share in batch.shares)


@layouts
def test_a_single_batch_keeps_the_order_and_draws_nothing(layout: str) -> None:
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    (batch,) = plan_batches(problem(layout), N, generator, penalised=True)
    assert batch.rows[: batch.size].tolist() == list(range(N))
    assert torch.equal(generator.get_state(), before)


def test_plain_batches_do_not_depend_on_the_worlds() -> None:
    one, other = problem("pooled"), problem("drawn", women=20, seed=1)
    for a, b in zip(plan(one, 50, penalised=False), plan(other, 50, penalised=False), strict=True):
        assert a.rows.tolist() == b.rows.tolist()
        assert a.shares == ()


@layouts
def test_a_seed_is_a_plan(layout: str) -> None:
    one = problem(layout)
    first, again, other = (plan(one, 50, seed) for seed in (0, 0, 1))
    assert all(torch.equal(a.rows, b.rows) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a.rows, b.rows) for a, b in zip(first, other, strict=True))


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


def test_observed_worlds_encode_nothing() -> None:
    world = sample([1, 2], [1, 1], origin=[1, 2])
    rows, _ = stack_worlds(OBSERVED, (world, world), lambda table: pytest.fail("encoded again"))
    assert torch.equal(rows, OBSERVED)


def test_units_of_any_number_are_kept_apart() -> None:
    one = sample([5, 6, 7], [1, 1, 1], unit=[10**15, -4, 10**15])
    other = sample([5, 6, 7], [1, 1, 0], unit=[-4, 10**15, 3])
    _, worlds = stack_worlds(OBSERVED, (one, other), encode)
    assert worlds[0].unit.tolist() == [1, 0, 1]
    assert worlds[1].unit.tolist() == [0, 1]


def test_a_world_without_weight_is_refused() -> None:
    with pytest.raises(DataError, match="world 1 2 rows and none has weight"):
        stack_worlds(OBSERVED, (sample([1], [1]), sample([1, 2], [0, 0])), encode)


def test_an_origin_that_is_not_there_is_refused() -> None:
    with pytest.raises(DataError, match=r"world 0 the origin 4, but only 4 rows are observed"):
        stack_worlds(OBSERVED, (sample([1], [1], origin=[4]), sample([1], [1])), encode)


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
