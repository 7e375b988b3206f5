"""What a module is fitted to: rows, both worlds as rows, batches balanced over groups, and running scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pyrofair.effects import CounterfactualSample, MarginalBounds, Scored
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
    def has_distinct_rows(self) -> bool:
        """Whether there is one pair of worlds without units or a row twice, so that a world is a weight of each row."""
        return self.worlds is None or (
            len(self.worlds) == 2
            and all(world.unit is None and len(torch.unique(world.rows)) == len(world.rows) for world in self.worlds)
        )


@dataclass(frozen=True)
class Share:
    """A batch's share of one world: which of the world's rows (m,), and their indices in the batch (m,).

    ``scale`` is the number of batches by that of batches that hold a given row of the world: a sum over all rows is on
    average ``scale`` times the sum over a share.
    """

    entries: Tensor
    indices: Tensor
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
    """Split rows at random into those to train on and a fraction held out, both sorted; None holds out none.

    It is a DataError, with the ``name`` of the fraction, if no row would be held out or the others lack a class.
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
    ``scores`` of all rows of the problem are the start; None where each batch holds the whole world.
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
        items, values = self._items(share.entries, scores.index_select(0, share.indices))
        now = values.detach()
        weight = self.weight[items]
        self.last += (weight * (now - self.last[items])).sum() / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
        self.last[items] = now
        level = self.last.clamp(0.0, 1.0).index_copy(0, items, now + share.scale * (values - now))
        return Scored(level, self.weight, self.unit)

    def whole(self) -> Scored:
        """Return the scores of all rows, or the mean scores of all units, as they were last seen."""
        return Scored(self.last, self.weight, self.unit)

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


FILL = 32
"""Batches are filled up to a multiple of so many rows: sums and vector instructions then round alike in every stack."""


@dataclass(frozen=True)
class Epoch:
    """The batches of an epoch of K problems as tensors, each batch filled up to m rows that count nothing.

    ``rows`` (batches, K, m) are indices of the rows of each problem; one past the last where the batch is filled up.
    ``outcome`` and ``factor`` (batches, K, m): the factor of a row's cross-entropy in the loss. ``share`` (batches, K,
    2, m): the weight of a row in each world, of which ``total`` (batches, K, 2) is the sum; ``scale`` (batches, K, 2),
    as that of a :class:`Share`. ``batches`` lists the same per problem, where each is trained with shares of its own.
    """

    rows: Tensor
    outcome: Tensor
    factor: Tensor
    share: Tensor | None = None
    total: Tensor | None = None
    scale: Tensor | None = None
    batches: tuple[list[Batch], ...] = ()

    @classmethod
    def join(cls, parts: Sequence[Epoch], fills: Sequence[int]) -> Epoch:
        """Return the epochs of several problems, whose rows are filled up with the given numbers, as one."""
        if len(parts) == 1:
            return parts[0]
        width = max(part.rows.shape[2] for part in parts)
        shares, totals, scales = (
            [values for part in parts if (values := getattr(part, name)) is not None]
            for name in ("share", "total", "scale")
        )
        return cls(
            torch.cat([widen(part.rows, width, fill) for part, fill in zip(parts, fills, strict=True)], 1),
            torch.cat([widen(part.outcome, width, 0) for part in parts], 1),
            torch.cat([widen(part.factor, width, 0) for part in parts], 1),
            torch.cat([widen(share, width, 0) for share in shares], 1) if shares else None,
            torch.cat(totals, 1) if totals else None,
            torch.cat(scales, 1) if scales else None,
            tuple(batches for part in parts for batches in part.batches),
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
        self.n = len(problem.outcome)
        self.count = count_batches(self.n, batch_size)
        self.worlds = problem.worlds or () if penalised else ()
        # Of each row of an order, its batch and its place there: the worlds' batches take their share of each group.
        at = torch.arange(self.n, device=problem.rows.device)
        self.sizes = (self.n // self.count) + (torch.arange(self.count, device=at.device) < self.n % self.count).long()
        self.batch, self.place = at % self.count, at // self.count
        if not self.worlds:
            self.batch = torch.arange(self.count, device=at.device).repeat_interleave(self.sizes)
            self.place = at - (self.sizes.cumsum(0) - self.sizes)[self.batch]
        # Per row of the problem, and one that counts nothing: its outcome and its weight.
        self.columns = problem.rows.new_zeros(2, len(problem.rows) + 1)
        self.columns[0, : self.n], self.columns[1, : self.n] = problem.outcome, problem.weight / problem.mean_weight

    def draw(self) -> Epoch:
        """Return the next epoch, with K = 1."""
        order = self._order()
        found = [(self.batch, self.place, order)]  # batches, places there, and the rows that take these
        position = torch.empty_like(order)
        position[order] = torch.arange(self.n, device=order.device)
        sizes, shares = self.sizes, list[_Shares]()
        for world, batch in zip(self.worlds, self._assign(position), strict=True):
            share, added = self._allocate(world, batch, position, sizes)
            found.append((share.batch[added], share.place[added], world.rows[share.entry[added]]))
            sizes = sizes + torch.bincount(share.batch[added], minlength=self.count)
            shares.append(share)
        width = -(-int(sizes.max()) // FILL) * FILL
        rows = order.new_full((self.count, width), len(self.problem.rows))
        for batch, place, of in found:
            rows[batch, place] = of
        outcome, factor = self.columns.gather(1, rows.view(1, -1).expand(2, -1)).view(2, *rows.shape)
        observed = torch.arange(width, device=rows.device) < self.sizes[:, None]
        factor = (factor * observed / self.sizes[:, None])[:, None]
        if self.apart:
            each = zip(*(share.listed(self.count) for share in shares), strict=True) if shares else [()] * self.count
            parts = [own[:size] for own, size in zip(rows, sizes.tolist(), strict=True)]
            batches = [Batch(*one) for one in zip(parts, self.sizes.tolist(), each, strict=True)]
            return Epoch(rows[:, None], outcome[:, None], factor, batches=(batches,))
        if not shares:
            return Epoch(rows[:, None], outcome[:, None], factor)
        weight = factor.new_zeros(self.count, 1, len(shares), width)
        for i, (world, share) in enumerate(zip(self.worlds, shares, strict=True)):
            weight[share.batch, 0, i, share.place] = world.weight[share.entry]
        scale = weight.new_tensor([share.scale for share in shares]).expand(self.count, 1, -1)
        return Epoch(rows[:, None], outcome[:, None], factor, weight, weight.sum(3), scale)

    def _order(self) -> Tensor:
        """Return the observed rows (n,) in random order, when penalised one group after the other."""
        order = torch.arange(self.n) if self.count == 1 else torch.randperm(self.n, generator=self.generator)
        order = order.to(self.problem.rows.device)
        if self.worlds and self.problem.stratum is not None and self.count > 1:
            stratum = self.problem.stratum[order]
            order = torch.cat([order.masked_select(stratum == value) for value in self.problem.strata])
        return order

    def _assign(self, position: Tensor) -> Iterator[Tensor]:
        """Yield for each world the batch of each of its rows, from the positions (n,) of observed rows in the order."""

        def at_random(size: int) -> Tensor:
            numbers = torch.randperm(size, generator=self.generator) % self.count if self.count > 1 else torch.zeros(size)
            return numbers.to(position)

        units = [world.unit for world in self.worlds if world.unit is not None]
        batch_of_unit = at_random(1 + int(max(unit.max() for unit in units))) if units else position
        for world in self.worlds:
            if world.unit is not None:
                yield batch_of_unit[world.unit]
                continue
            observed = world.rows < self.n
            batch = torch.empty_like(world.rows)
            batch[observed] = position[world.rows[observed]] % self.count
            batch[~observed] = at_random(int((~observed).sum()))
            yield batch

    def _allocate(self, world: World, batch: Tensor, position: Tensor, sizes: Tensor) -> tuple[_Shares, Tensor]:
        """Return the shares of a world, and which of its rows are added to the ``sizes`` of the batches so far."""
        entry = torch.arange(len(batch), device=batch.device)
        added = world.rows >= self.n if world.unit is None else torch.ones_like(batch, dtype=torch.bool)
        place = position[world.rows.clamp(max=self.n - 1)] // self.count
        empty = torch.nonzero(torch.bincount(batch, minlength=self.count) == 0).flatten()
        if len(empty):
            batch = torch.cat([batch, empty.repeat_interleave(len(entry))])
            added = nn.functional.pad(added, (0, len(batch) - len(entry)), value=True)
            entry, place = entry.repeat(1 + len(empty)), place.repeat(1 + len(empty))
        new = added.nonzero().flatten()
        new = new[batch[new].argsort(stable=True)]
        more = torch.bincount(batch[new], minlength=self.count)
        place[new] = torch.arange(len(new), device=new.device) + (sizes + more - more.cumsum(0))[batch[new]]
        return _Shares(entry, batch, place, self.count / (1 + len(empty)), added), new


@dataclass(frozen=True)
class _Shares:
    """The rows of a world in its batches: which one, in which batch and at which place there, shape (m,) each."""

    entry: Tensor
    batch: Tensor
    place: Tensor
    scale: float
    added: Tensor

    def listed(self, count: int) -> list[Share]:
        """Return the share of each batch, its observed rows first."""
        order = torch.argsort(2 * self.batch + self.added, stable=True)
        cuts = torch.bincount(self.batch, minlength=count).cumsum(0)[:-1].tolist()
        parts = (each[order].tensor_split(cuts) for each in (self.entry, self.place))
        return [Share(*each, self.scale) for each in zip(*parts, strict=True)]
