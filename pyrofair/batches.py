"""Which rows are scored together? Observed rows in minibatches, each with its share of the rows of both worlds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyrofair.exceptions import DataError
from pyrofair.potential_outcomes import CounterfactualSample, Scored

__all__ = ["Batch", "Problem", "Share", "World", "WorldScores", "hold_out", "plan_batches", "stack_worlds"]


@dataclass(frozen=True)
class World:
    """One world as rows of a problem: which ones (m,), their weight (m,), and their unit (m,) or None."""

    rows: Tensor
    weight: Tensor
    unit: Tensor | None


@dataclass(frozen=True)
class Problem:
    """What a module is fitted to.

    Parameters
    ----------
    rows
        The n observed rows, then the rows that only a world has, shape (n + c, k).
    outcome
        The outcomes of the observed rows in 0 and 1, shape (n,).
    weight
        Their weights, shape (n,).
    worlds
        The two worlds, with a source.
    stratum
        The group of each observed row, shape (n,), over which batches are balanced.
    sign
        1 if the module's log-odds are those of the outcome that both worlds count, -1 if of the other one.
    validation
        The same for held-out rows, if there are any.
    """

    rows: Tensor
    outcome: Tensor
    weight: Tensor
    worlds: tuple[World, World] | None = None
    stratum: Tensor | None = None
    sign: int = 1
    validation: Problem | None = None


@dataclass(frozen=True)
class Share:
    """A batch's share of one world: which of its rows (m,), and where they are in the batch (m,).

    ``scale`` is the number of batches by that of batches in which a row of the world comes: a sum over all rows is on
    average ``scale`` times the sum over a share.
    """

    entries: Tensor
    places: Tensor
    scale: float


@dataclass(frozen=True)
class Batch:
    """The rows to score (m,): first ``size`` observed ones with a loss, then those that only the worlds need."""

    rows: Tensor
    size: int
    shares: tuple[Share, ...] = ()


def hold_out(
    target: NDArray[np.int8],
    fraction: float | None,
    random: np.random.RandomState,
    name: str = "validation_fraction",
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split rows at random into those to train on and a fraction held out; None holds out none.

    ``name`` is that of the fraction, for messages.

    Raises
    ------
    DataError
        If no row would be held out, or the others lack a class.
    """
    if fraction is None:
        return np.arange(len(target)), np.empty(0, dtype=np.int64)
    size = round(fraction * len(target))
    held, left = np.split(random.permutation(len(target)), [size])
    if not len(held) or len(np.unique(target[left])) < 2:
        raise DataError(
            f"{name}={fraction} holds out {size} of {len(target)} rows; some must be held out, and the "
            "others must hold both classes."
        )
    return np.sort(left), np.sort(held)


def stack_worlds(
    observed: Tensor, samples: Sequence[CounterfactualSample], encode: Callable[[Any], Tensor]
) -> tuple[Tensor, tuple[World, World]]:
    """Return the observed rows with the worlds' other rows below them, and the worlds as rows of that.

    Parameters
    ----------
    observed
        The encoded observed rows, shape (n, k).
    samples
        The two worlds. Rows without weight are left out, and a row that is an observed one is not encoded again.
    encode
        Turns a table into a tensor of k columns.

    Raises
    ------
    DataError
        If a world has no weight, or its ``origin`` names a row that is not there.
    """
    stack, worlds, size = [observed], [], len(observed)
    for i, sample in enumerate(samples):
        kept = np.flatnonzero(sample.weight > 0)
        if not len(kept):
            raise DataError(f"The source gave world {i} {len(sample.weight)} rows and none has weight; check its fit.")
        rows = np.full(len(kept), -1) if sample.origin is None else sample.origin[kept]
        if rows.max() >= len(observed):
            raise DataError(
                f"The source gave world {i} the origin {rows.max()}, but only {len(observed)} rows are observed. An "
                "origin is a position in the rows that worlds(df=...) was given."
            )
        new = rows < 0
        if new.any():
            rows = np.where(new, size + np.cumsum(new) - 1, rows)
            size += int(new.sum())
            stack.append(encode(sample.rows.iloc[kept[new]]))
        worlds.append(
            World(
                torch.tensor(rows, device=observed.device),
                torch.tensor(sample.weight[kept], dtype=observed.dtype, device=observed.device),
                None if sample.unit is None else torch.tensor(sample.unit[kept], device=observed.device),
            )
        )
    return torch.cat(stack), _number_units(worlds[0], worlds[1])


def _number_units(one: World, other: World) -> tuple[World, World]:
    """Give the units of both worlds numbers from 0, the same number where they are the same."""
    if one.unit is None or other.unit is None:
        return one, other
    _, numbers = torch.unique(torch.cat([one.unit, other.unit]), return_inverse=True)
    return replace(one, unit=numbers[: len(one.unit)]), replace(other, unit=numbers[len(one.unit) :])


def plan_batches(problem: Problem, batch_size: int, generator: torch.Generator, *, penalised: bool) -> list[Batch]:
    """Split the observed rows into batches, and, when penalised, share out the rows of both worlds.

    Each observed row comes once. When penalised, batches are balanced over groups, and each row of a world comes once:
    an observed row in its own batch, where its score is used twice; a unit in one batch, with all its rows in both
    worlds. Only a world with fewer rows (or units) than there are batches comes whole in each batch left without any.

    Parameters
    ----------
    problem
        The rows.
    batch_size
        The largest number of observed rows in a batch.
    generator
        Draws the order; a single batch keeps the order of the rows and draws nothing.
    penalised
        Whether the worlds' rows are needed.
    """
    n = len(problem.outcome)
    count = max(1, -(-n // batch_size))
    order = torch.arange(n) if count == 1 else torch.randperm(n, generator=generator)
    order = order.to(problem.rows.device)
    if not penalised or problem.worlds is None:
        return [Batch(rows, len(rows)) for rows in order.tensor_split(count)]
    if problem.stratum is not None and count > 1:
        order = order[torch.argsort(problem.stratum[order], stable=True)]
    # Every count-th row of an order sorted by group: each batch gets its share of each group.
    parts = [[order[i::count]] for i in range(count)]
    shares: list[list[Share]] = [[] for _ in range(count)]
    position = torch.empty_like(order)
    position[order] = torch.arange(n, device=order.device)
    for world, batch in zip(problem.worlds, _deal(problem.worlds, position, count, generator), strict=True):
        sizes = [sum(map(len, rows)) for rows in parts]
        for i, (share, others) in enumerate(_share_out(world, batch, position, sizes)):
            shares[i].append(share)
            parts[i].append(others)
    return [Batch(torch.cat(rows), len(rows[0]), tuple(share)) for rows, share in zip(parts, shares, strict=True)]


def _deal(worlds: tuple[World, World], position: Tensor, count: int, generator: torch.Generator) -> list[Tensor]:
    """Return the batch of each row of both worlds, from the positions (n,) of observed rows in the order."""

    def deal(size: int) -> Tensor:
        cards = torch.zeros(size) if count == 1 else torch.randperm(size, generator=generator) % count
        return cards.to(position)

    units = [world.unit for world in worlds if world.unit is not None]
    batch_of_unit = deal(1 + int(max(unit.max() for unit in units))) if units else position
    dealt = []
    for world in worlds:
        if world.unit is not None:
            batch = batch_of_unit[world.unit]
        else:
            observed = world.rows < len(position)
            batch = torch.empty_like(world.rows)
            batch[observed] = position[world.rows[observed]] % count
            batch[~observed] = deal(int((~observed).sum()))
        dealt.append(batch)
    return dealt


def _share_out(world: World, batch: Tensor, position: Tensor, sizes: Sequence[int]) -> list[tuple[Share, Tensor]]:
    """Return for each batch its share of a world, and the rows that join the ``sizes`` it has already."""
    count, device = len(sizes), position.device
    joins = torch.ones_like(batch, dtype=torch.bool) if world.unit is not None else world.rows >= len(position)
    by_batch = torch.argsort(2 * batch + joins, stable=True)  # the rows that join come last in their batch
    batch, joins, rows = batch[by_batch], joins[by_batch], world.rows[by_batch]
    ends = torch.bincount(batch, minlength=count).cumsum(0)
    joined = torch.bincount(batch[joins], minlength=count)
    offset = torch.tensor(sizes, device=device) + joined - ends
    places = torch.arange(len(rows), device=device) + offset[batch]
    places[~joins] = position[rows[~joins]] // count
    cuts = ends[:-1].tolist()
    empty = torch.nonzero(torch.bincount(batch, minlength=count) == 0).flatten().tolist()
    scale = count / (1 + len(empty))
    shares = [Share(*each, scale) for each in zip(by_batch.tensor_split(cuts), places.tensor_split(cuts), strict=True)]
    others = list(rows[joins].tensor_split(joined.cumsum(0)[:-1].tolist()))
    everything = torch.arange(len(rows), device=device)
    for i in empty:
        shares[i], others[i] = Share(everything, sizes[i] + everything, scale), world.rows
    return list(zip(shares, others, strict=True))


class WorldScores:
    """The scores of a world while a module is trained in batches: those of the batch, and estimates of all others.

    A penalty is a function of the means of all rows, not of a batch's: the mean of abs(a - b) over batches is far from
    abs(a - b) near 0, and that of a product is off by a covariance. So it is given all rows, whose scores are kept from
    when they were last seen, and move with the mean score: as far as a batch's rows are from what was kept. The
    gradient comes through the rows of the batch, scaled so that over the batches of an epoch it averages to that of all
    rows. Where the world has units, it is their mean scores that are kept; a batch holds all rows of its units.

    Parameters
    ----------
    world
        The world.
    scores
        The scores of all rows of the problem, for a start; None where each batch holds the whole world.
    """

    def __init__(self, world: World, scores: Tensor | None = None) -> None:
        self.world = world
        self.unit = None if world.unit is None else torch.arange(1 + int(world.unit.max()), device=world.unit.device)
        self.weight = world.weight if world.unit is None else self._sums(world.unit, world.weight)
        self.last = torch.zeros_like(self.weight)
        if scores is not None:
            entries = torch.arange(len(world.rows), device=world.rows.device)
            items, values = self._items(entries, scores.index_select(0, world.rows))
            self.last[items] = values

    def scored(self, share: Share, scores: Tensor) -> Scored:
        """Return the scores of all rows, or the mean scores of all units, given the scores of a batch's rows."""
        items, values = self._items(share.entries, scores.index_select(0, share.places))
        now = values.detach()
        weight = self.weight[items]
        self.last += (weight * (now - self.last[items])).sum() / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
        self.last[items] = now
        level = self.last.clamp(0.0, 1.0).index_copy(0, items, now + share.scale * (values - now))
        return Scored(level, self.weight, self.unit)

    def _items(self, entries: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return which rows or units these are, and their scores or mean scores."""
        if self.world.unit is None:
            return entries, scores
        unit = self.world.unit[entries]
        held = torch.zeros_like(self.weight, dtype=torch.bool).index_fill(0, unit, True)
        items = torch.nonzero(held & (self.weight > 0)).flatten()
        sums = self._sums(unit, self.world.weight[entries] * scores)
        return items, sums[items] / self.weight[items]

    def _sums(self, unit: Tensor, values: Tensor) -> Tensor:
        # float64: index_add adds one by one, and a unit may hold a million rows.
        zeros = values.new_zeros(1 + int(self.world.unit.max()), dtype=torch.float64)  # type: ignore[union-attr]
        return zeros.index_add(0, unit, values.to(torch.float64)).to(values.dtype)
