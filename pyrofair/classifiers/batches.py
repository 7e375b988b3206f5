"""What a module is fitted to: rows, both worlds as rows, batches balanced over groups, and running scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pyrofair.effects import CounterfactualSample, MarginalBounds, Scored
from pyrofair.effects.functionals import unit_sums
from pyrofair.exceptions import DataError

__all__ = [
    "Batch",
    "Ends",
    "Epoch",
    "Epochs",
    "Problem",
    "Share",
    "World",
    "WorldScores",
    "count_batches",
    "hold_out",
    "share_rows",
    "stack_worlds",
    "widen",
]


Ends = Callable[[Scored, Scored], tuple[Scored | MarginalBounds, Scored | MarginalBounds]]


@dataclass(frozen=True)
class World:
    """One world as rows of a problem: their indices (m,), weights (m,), and units (m,) or None."""

    rows: Tensor
    weight: Tensor
    unit: Tensor | None


@dataclass(frozen=True)
class Problem:
    """What a module is fitted to.

    ``rows`` (n + c, k) holds the n observed rows, then those that only a world has; ``outcome`` (n,) in 0 and 1,
    ``weight`` (n,) and ``stratum`` (n,), the group over which batches are balanced, are of the observed rows. ``sign``
    is 1 if the module's log-odds are those of the outcome that both worlds count, -1 if of the other one.
    ``worlds`` are one pair, or several one after the other, whose penalties ``combine`` makes one of. ``validation`` is
    the same for held-out rows. Where the marginals of a pair are only bounded, its entry of ``ends`` makes the bounds
    of the scores of all rows of both worlds, and the penalty is that of the bounds.
    """

    rows: Tensor
    outcome: Tensor
    weight: Tensor
    worlds: tuple[World, ...] | None = None
    stratum: Tensor | None = None
    sign: int = 1
    validation: Problem | None = None
    combine: Callable[[Tensor], Tensor] | None = None
    ends: tuple[Ends | None, ...] | None = None

    @cached_property
    def strata(self) -> list[int]:
        """The groups, sorted."""
        return [] if self.stratum is None else torch.unique(self.stratum).tolist()

    @cached_property
    def without_validation(self) -> Problem:
        """The problem without held-out rows."""
        return self if self.validation is None else replace(self, validation=None)

    @cached_property
    def mean_weight(self) -> float:
        """The mean weight of the observed rows."""
        return float(self.weight.mean())

    @cached_property
    def units(self) -> int:
        """The number of units."""
        found = [world.unit for world in self.worlds or () if world.unit is not None]
        return 1 + int(max(unit.max() for unit in found)) if found else 0

    @cached_property
    def has_distinct_rows(self) -> bool:
        """Whether there is one pair of worlds with no row twice, so that a world is a weight of each row.

        With units no row is in both worlds, and each unit is in both.
        """
        if self.worlds is None:
            return True
        rows, units = [world.rows for world in self.worlds], [world.unit for world in self.worlds]
        if any(unit is not None for unit in units):
            if any(unit is None or len(torch.unique(unit)) < self.units for unit in units):
                return False
            rows = [torch.cat(rows)]
        return len(self.worlds) == 2 and all(len(torch.unique(each)) == len(each) for each in rows)


@dataclass(frozen=True)
class Share:
    """A batch's share of one world: which of the world's rows (m,), and their indices in the batch (m,).

    ``scale`` is the number of batches by that of batches that hold a given row of the world: a sum over all rows is on
    average ``scale`` times the sum over a share. In a world with units, ``units`` are those of the batch (j,), and
    ``slots`` (m,) the place of each row's unit among them.
    """

    entries: Tensor
    indices: Tensor
    scale: float
    units: Tensor | None = None
    slots: Tensor | None = None


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
    groups: NDArray[Any] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split rows at random into those to train on and a fraction held out, both sorted; None holds out none.

    Rows with one label of ``groups`` (n,) stay together, so that the fraction may be exceeded by a part of a group.
    It is a DataError, with the ``name`` of the fraction, if no row would be held out or the others lack a class.
    """
    if fraction is None:
        return np.arange(len(target)), np.empty(0, dtype=np.int64)
    size, order = round(fraction * len(target)), random.permutation(len(target))
    if groups is not None:
        code, labels = pd.factorize(groups)
        rank = random.permutation(len(labels))[code]
        order = np.argsort(rank, kind="stable")
        size = int((rank <= rank[order[size - 1]]).sum()) if size else 0
    held, left = np.split(order, [size])
    if not len(held) or len(np.unique(target[left])) < 2:
        raise DataError(
            f"{name}={fraction} holds out {size} of {len(target)} rows; some must be held out, and the "
            "others must hold both classes."
        )
    return np.sort(left), np.sort(held)


def stack_worlds(
    observed: Tensor, samples: Sequence[CounterfactualSample], encode: Callable[[Any], Tensor]
) -> tuple[Tensor, tuple[World, ...]]:
    """Return the encoded rows that are observed (n, k) or only in a world, and the worlds as rows of these.

    The samples are one pair of worlds, or several; units of different pairs are different ones. Rows without
    weight are left out, and a row of a world that is an observed one is not encoded again.
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
    first = 0
    for i in range(0, len(worlds), 2):
        one, other = worlds[i : i + 2]
        if one.unit is not None and other.unit is not None:  # number the units of both worlds, the first pair's from 0
            size = len(one.unit)
            known, numbers = torch.unique(torch.cat([one.unit, other.unit]), return_inverse=True)
            numbers, first = numbers + first, first + len(known)
            worlds[i : i + 2] = replace(one, unit=numbers[:size]), replace(other, unit=numbers[size:])
    return torch.cat(stack), tuple(worlds)


def share_rows(problem: Problem, known: Iterable[Problem]) -> Problem:
    """Return a problem on the tensor of rows of an earlier one that has the same rows, if there is one."""
    for other in known:
        if other.rows.shape == problem.rows.shape and torch.equal(other.rows, problem.rows):
            return replace(problem, rows=other.rows)
    return problem


def count_batches(rows: int, batch_size: int) -> int:
    """Return the number of batches of an epoch."""
    return max(1, -(-rows // batch_size))


class WorldScores:
    """The scores of a world while a module is trained in batches: those of the batch, and estimates of all others.

    A penalty is a function of the means of all rows, not of a batch's: batch means of abs(a - b) or of a product are
    biased. So it receives all rows, whose scores are those last seen, moved with the mean score by as much as a batch's
    rows have changed. The gradient comes through the rows of the batch, scaled so that it averages over an epoch to
    that of all rows. Where the world has units, their mean scores are kept; a batch holds all rows of its units.
    ``scores`` of all rows of the problem are the start; None where each batch holds the whole world. ``units`` is the
    number of units of the problem, by default that of the world.
    """

    def __init__(self, world: World, scores: Tensor | None = None, units: int | None = None) -> None:
        self.unit, self.weight = None, world.weight
        if world.unit is not None:
            self.weight, self.part = unit_weights(world.unit, world.weight, units)
            self.unit = torch.arange(len(self.weight), device=world.unit.device)
        self.last = torch.zeros_like(self.weight)
        if scores is not None:
            own = scores.index_select(0, world.rows)
            self.last = own.clone()
            if world.unit is not None:
                self.last = unit_sums(world.unit, self.part * own, len(self.weight)).to(own.dtype)

    def scored(self, share: Share, scores: Tensor) -> Scored:
        """Return the scores of all rows, or the mean scores of all units, given the scores of a batch's rows."""
        items, values = share.entries, scores.index_select(0, share.indices)
        if share.units is not None and share.slots is not None:
            sums = unit_sums(share.slots, self.part[share.entries] * values, len(share.units))
            items, values = share.units, sums.to(values.dtype)
        now = values.detach()
        weight = self.weight[items]
        self.last += (weight * (now - self.last[items])).sum() / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
        self.last[items] = now
        level = self.last.clamp(0.0, 1.0).index_copy(0, items, now + share.scale * (values - now))
        return Scored(level, self.weight, self.unit, self.unit is not None)

    def whole(self) -> Scored:
        """Return the scores of all rows, or the mean scores of all units, as they were last seen."""
        return Scored(self.last, self.weight, self.unit, self.unit is not None)


def unit_weights(unit: Tensor, weight: Tensor, units: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the weight of each unit, and of each row (m,) the part of its unit's weight that it has."""
    whole = unit_sums(unit, weight, units or 1 + int(unit.max()))
    least = torch.finfo(whole.dtype).tiny  # weights may be 0 in single precision
    return whole.to(weight.dtype), (weight / whole.clamp(min=least)[unit]).to(weight.dtype)


FILL = 32
"""Batches are filled up to a multiple of so many rows: sums and vector instructions then round alike in every stack."""


@dataclass(frozen=True)
class Epoch:
    """The batches of an epoch of K problems as tensors, each batch filled up to m rows that count nothing.

    ``rows`` (batches, K, m) are indices of the rows of each problem; one past the last where the batch is filled up.
    ``outcome`` and ``factor`` (batches, K, m): the factor of a row's cross-entropy in the loss. ``share`` (batches, K,
    2, m): the weight of a row in each world; ``scale`` (batches, K, 2), as that of a :class:`Share`. ``batches`` lists
    the same per problem, where each is trained with shares of its own. In worlds with units, ``units`` (batches, K, j)
    are those of the batch, or -1; ``slots`` (batches, K, m) is twice the place of a row's unit among them, plus 1 in
    the second world; and ``share`` (batches, K, m) the part of the weight of its unit there that the row has.
    """

    rows: Tensor
    outcome: Tensor
    factor: Tensor
    share: Tensor | None = None
    scale: Tensor | None = None
    units: Tensor | None = None
    slots: Tensor | None = None
    batches: tuple[list[Batch], ...] = ()

    @classmethod
    def join(cls, parts: Sequence[Epoch], fills: Sequence[int]) -> Epoch:
        """Return the epochs of several problems, whose rows are filled up with the given numbers, as one."""
        if len(parts) == 1:
            return parts[0]
        width = max(part.rows.shape[2] for part in parts)
        rows = [widen(part.rows, width, fill) for part, fill in zip(parts, fills, strict=True)]

        def joined(name: str, fill: int = 0) -> Any:
            found = [values for part in parts if (values := getattr(part, name)) is not None]
            size = max((values.shape[-1] for values in found), default=0)
            return torch.cat([widen(values, size, fill) for values in found], 1) if found else None

        return cls(
            torch.cat(rows, 1),
            **{name: joined(name) for name in ("outcome", "factor", "share", "scale", "slots")},
            units=joined("units", -1),
            batches=tuple(batches for part in parts for batches in part.batches),
        )


def widen(values: Tensor, width: int, fill: int) -> Tensor:
    """Return values (..., m), filled up to a width along the last axis."""
    lacking = width - values.shape[-1]
    return values if not lacking else nn.functional.pad(values, (0, lacking), value=fill)


class Epochs:
    """Draws the epochs of one problem: its observed rows in batches, to which the rows of both worlds are assigned.

    Each observed row comes once. When penalised, batches are balanced over groups, and each row of a world comes once:
    an observed row in its own batch, a unit with all its rows in both worlds in one batch. Only a world with fewer rows
    (or units) than batches comes whole in each batch left without any. A single batch keeps the order of the rows.
    ``apart`` asks for the shares of each batch, which a penalty needs that is given the scores of single rows or units.
    """

    def __init__(self, problem: Problem, batch_size: int, generator: torch.Generator, *, penalised: bool, apart: bool):
        self.problem, self.generator, self.apart = problem, generator, apart
        self.n, self.device = len(problem.outcome), problem.rows.device
        self.count = count_batches(self.n, batch_size)
        self.worlds = problem.worlds or () if penalised else ()
        # Of each row of an order, its batch and its place there: dealt in turn, batches have their share of each group.
        at, batches = torch.arange(self.n, device=self.device), torch.arange(self.count, device=self.device)
        self.sizes = self.n // self.count + (batches < self.n % self.count).long()
        self.batch, self.place = at % self.count, at // self.count
        if not self.worlds:
            self.batch = batches.repeat_interleave(self.sizes)
            self.place = at - (self.sizes.cumsum(0) - self.sizes)[self.batch]
        # Of each world the rows that are observed, and those that join batches, as all rows of units do.
        joining = [world.rows >= self.n for world in self.worlds]
        self.parts = [(torch.nonzero(~rows).flatten(), torch.nonzero(rows).flatten()) for rows in joining]
        self.weights = [
            world.weight if world.unit is None else unit_weights(world.unit, world.weight)[1] for world in self.worlds
        ]
        every = torch.arange(problem.units, device=self.device)
        self.seats = every % self.count, every // self.count
        self.ranked = [() if world.unit is None else _rank(world.unit, problem.units) for world in self.worlds]
        # Per row of the problem, and one that counts nothing: its outcome and its weight.
        self.columns = problem.rows.new_zeros(2, len(problem.rows) + 1)
        self.columns[0, : self.n], self.columns[1, : self.n] = problem.outcome, problem.weight / problem.mean_weight

    def draw(self) -> Epoch:
        """Return the next epoch, with K = 1."""
        order = self._order()
        places, sizes = self._places(order) if self.worlds else ([], self.sizes)
        width = -(-int(sizes.max()) // FILL) * FILL
        rows = order.new_full((self.count * width,), len(self.problem.rows))
        rows[self.batch * width + self.place] = order
        spots = [own.batch * width + own.place for own in places]
        for world, own, spot in zip(self.worlds, places, spots, strict=True):
            rows.scatter_(0, spot, world.rows.gather(0, own.entry))
        outcome, factor = self.columns.gather(1, rows.expand(2, -1)).view(2, self.count, width)
        factor = factor * (torch.arange(width, device=self.device) < self.sizes[:, None]) / self.sizes[:, None]
        whole = Epoch(rows.view(self.count, 1, width), outcome[:, None], factor[:, None])
        if self.apart:
            shares = zip(*(own.listed(self.count) for own in places), strict=True) if places else [()] * self.count
            parts = [own[0, :size] for own, size in zip(whole.rows, sizes.tolist(), strict=True)]
            batches = [Batch(*each) for each in zip(parts, self.sizes.tolist(), shares, strict=True)]
            return replace(whole, batches=(batches,))
        if not places:
            return whole
        units = places[0].units
        share = factor.new_zeros(1 if units is not None else len(places), self.count * width)
        scale = share.new_tensor([own.scale for own in places]).expand(self.count, 1, -1)
        for weights, weight, own, spot in zip(share.expand(len(places), -1), self.weights, places, spots, strict=True):
            weights.scatter_(0, spot, weight.gather(0, own.entry))
        if units is None:
            share = share.view(-1, self.count, width).transpose(0, 1)[:, None].contiguous()
            return replace(whole, share=share, scale=scale)
        slots = rows.new_zeros(self.count * width)
        for at, (own, spot) in enumerate(zip(places, spots, strict=True)):
            slots.scatter_(0, spot, 2 * own.slot + at)
        share, slots = share.view(self.count, 1, width), slots.view(self.count, 1, width)
        return replace(whole, share=share, scale=scale, units=units[:, None], slots=slots)

    def _order(self) -> Tensor:
        """Return the observed rows (n,) in random order, when penalised one group after the other."""
        order = self._turn(self.n)
        if self.worlds and self.problem.stratum is not None and self.count > 1:
            stratum = self.problem.stratum[order]
            order = torch.cat([order.masked_select(stratum == value) for value in self.problem.strata])
        return order

    def _turn(self, size: int) -> Tensor:
        """Return so many numbers in random order."""
        turn = torch.arange(size) if self.count == 1 else torch.randperm(size, generator=self.generator)
        return turn.to(self.device)

    def _places(self, order: Tensor) -> tuple[list[_Places], Tensor]:
        """Return the places of the rows of each world, and the sizes of the batches with those that join them."""
        batch_of, place_of, sizes, found = torch.empty_like(order), torch.empty_like(order), self.sizes, []
        batch_of[order], place_of[order] = self.batch, self.place
        dealt = self._turn(self.problem.units) if self.problem.units else order
        for world, (seen, new), ranked in zip(self.worlds, self.parts, self.ranked, strict=True):
            size, batch, place = len(world.rows), torch.empty_like(world.rows), torch.empty_like(world.rows)
            slot, units = batch, None
            if world.unit is None:
                batch[seen], place[seen] = batch_of[world.rows[seen]], place_of[world.rows[seen]]
                turn = self._turn(len(new))
                batch[new], place[new] = turn % self.count, turn // self.count
                place[new] += sizes[batch[new]]
                more, held = (torch.bincount(each, minlength=self.count) for each in (batch[new], batch))
            else:
                batch, place, slot, units = self._deal(dealt, world.unit, *ranked)
                place += sizes.gather(0, batch)
                more = held = torch.bincount(batch, minlength=self.count)
            entry, empty = torch.arange(size, device=self.device), torch.nonzero(held == 0)
            # The world comes whole in a batch without any of its rows.
            place = torch.cat([place, (sizes[empty] + entry).flatten()])
            batch = torch.cat([batch, empty.flatten().repeat_interleave(size)])
            entry, slot = entry.repeat(1 + len(empty)), slot.repeat(1 + len(empty))
            found.append(_Places(entry, batch, place, self.count / (1 + len(empty)), slot, units))
            sizes = sizes + more + size * (held == 0)
        return found, sizes

    def _deal(self, turn: Tensor, unit: Tensor, held: Tensor, rank: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return of rows of units (m,) the batches, the places there, those of their units, and all batches' units.

        Units come in a random order, one to each batch in turn; each has ``held`` rows, among which a row has its
        ``rank``. If some batch gets none, the first one takes all units, and so takes each other one.
        """
        size, every = -(-len(turn) // self.count), torch.arange(len(turn), device=self.device)
        rows = held.new_zeros(size * self.count).index_copy_(0, turn, held).view(size, self.count)
        if not bool(rows.any(0).all()):
            first = held.cumsum(0) - held
            return torch.zeros_like(unit), first[unit] + rank, unit, every.expand(self.count, -1)
        units = every.new_full((size * self.count,), -1).scatter_(0, turn, every).view(size, self.count)
        at = turn.gather(0, unit)
        before, batch, slot = (each.gather(0, at) for each in ((rows.cumsum(0) - rows).flatten(), *self.seats))
        return batch, before + rank, slot, units.T


class _Places(NamedTuple):
    """Where the rows of a world are: which row, in which batch, and at which place there, shape (m,) each.

    With units ``slot`` is the place of the row's unit among ``units``, those of each batch (batches, j), or -1.
    """

    entry: Tensor
    batch: Tensor
    place: Tensor
    scale: float
    slot: Tensor
    units: Tensor | None

    def listed(self, count: int) -> list[Share]:
        """Return the share of each batch."""
        order, cuts = self.batch.argsort(stable=True), torch.bincount(self.batch, minlength=count).cumsum(0)[:-1]
        names = (self.entry, self.place) if self.units is None else (self.entry, self.place, self.slot)
        parts = zip(*(each[order].tensor_split(cuts.tolist()) for each in names), strict=True)
        if self.units is None:
            return [Share(entry, place, self.scale) for entry, place in parts]
        return [
            Share(entry, place, self.scale, units[units >= 0], slot)
            for (entry, place, slot), units in zip(parts, self.units, strict=True)
        ]


def _rank(unit: Tensor, units: int) -> tuple[Tensor, Tensor]:
    """Return the number of rows of each unit, and of each row (m,) its place among those of its unit."""
    held, order = torch.bincount(unit, minlength=units), unit.argsort(stable=True)
    first = held.cumsum(0) - held
    return held, torch.empty_like(unit).index_copy_(
        0, order, torch.arange(len(unit), device=unit.device) - first[unit[order]]
    )
