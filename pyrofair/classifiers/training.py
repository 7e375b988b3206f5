"""Training under a penalty: batches that both groups share, and the loop."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm.auto import tqdm

from pyrofair._random import PYRO_LOCK
from pyrofair.effects.potential_outcomes import CounterfactualSample, Scored
from pyrofair.exceptions import DataError

__all__ = [
    "Batch",
    "Optimizer",
    "Penalty",
    "Problem",
    "Schedule",
    "Share",
    "World",
    "WorldScores",
    "choose_start",
    "evaluate",
    "hold_out",
    "logits_in_parts",
    "logits_of",
    "make_module",
    "make_optimizer",
    "plan_batches",
    "seeded",
    "stack_worlds",
    "to_tensor",
    "train",
]


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


Optimizer = Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]
Penalty = Callable[[Scored, Scored], Tensor]
PROGRESS_AFTER = 5.0
CHUNK = 65_536
"""So many rows are scored at once where nothing is learned."""
STEPS, FEWEST, MOST = 1_000, 20, 200
FIRST_STEPS = 100
"""After so many steps it shows in which basin of the objective training ends."""
STRONG = 2.0
"""The strongest penalty of the paper; at weaker ones cold starts end in the worse basin."""
CLEARLY = 0.01
"""Objectives of one basin differ by less after the first steps, in nats."""
DIVERGED = 10.0


@dataclass(frozen=True)
class Schedule:
    """How long and in what steps it is fitted; epochs left open make about 1,000 steps, in 20 to 200 epochs."""

    epochs: int | None
    batch_size: int
    optimizer: Optimizer
    patience: int | None
    seed: int
    progress: bool = True
    history: list[dict[str, float]] = field(default_factory=list)

    def length(self, rows: int) -> int:
        """Return the number of epochs on so many rows."""
        if self.epochs is not None:
            return self.epochs
        return min(max(STEPS * self.batch_size // rows, FEWEST), MOST)


def make_module(model: str | nn.Module | Callable[[int], nn.Module], width: int) -> nn.Module:
    """Return an untrained module for rows of ``width`` numbers: the paper's network, a logistic model, or one's own.

    References
    ----------
    Chikahara et al. (2021), appendix G.1.
    """
    if isinstance(model, nn.Module):
        return copy.deepcopy(model)
    if model == "network":
        return nn.Sequential(nn.Linear(width, 100), nn.Sigmoid(), nn.Linear(100, 50), nn.Sigmoid(), nn.Linear(50, 1))
    made = nn.Linear(width, 1) if isinstance(model, str) else model(width)
    if not isinstance(made, nn.Module):
        raise DataError(f"model={model!r} made a {type(made).__name__}; it must make a torch module.")
    return made


def make_optimizer(optimizer: str | Optimizer, rate: float | None) -> Optimizer:
    """Return a function that makes a torch optimizer: Adam, stochastic gradient descent with momentum, or one's own."""
    if callable(optimizer):
        return optimizer
    if optimizer == "adam":
        return lambda parameters: torch.optim.Adam(parameters, lr=0.01 if rate is None else rate)
    return lambda parameters: torch.optim.SGD(parameters, lr=0.1 if rate is None else rate, momentum=0.9)


def logits_of(module: nn.Module, rows: Tensor) -> Tensor:
    """Return the log-odds of the last class, shape (m,), from a module with one output or two.

    Raises
    ------
    DataError
        If the module returns another shape, or a value that is not finite.
    """
    try:
        out = module(rows)
    except RuntimeError as error:
        raise DataError(f"The module fails on rows of {rows.shape[1]} encoded features: {error}") from error
    shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
    if shape == (len(rows), 2):
        logits: Tensor = out[:, 1] - out[:, 0]
    elif shape in {(len(rows),), (len(rows), 1)}:
        logits = out.reshape(-1)
    else:
        raise DataError(
            f"The module returned {shape} for {len(rows)} rows; it must return one log-odds for each row, shape "
            f"{(len(rows), 1)}, or two logits, shape {(len(rows), 2)}."
        )
    if not bool(logits.isfinite().all()):
        raise DataError("The module's log-odds are not finite: training diverged. Lower the learning rate.")
    return logits


def logits_in_parts(module: nn.Module, rows: Tensor) -> Tensor:
    """Return the log-odds of rows (m, k), shape (m,), computed for at most 65,536 rows at once."""
    return torch.cat([logits_of(module, part) for part in rows.tensor_split(-(-len(rows) // CHUNK))])


def train(
    module: nn.Module, problem: Problem, penalty: Penalty | None, strength: float, schedule: Schedule
) -> nn.Module:
    """Minimise the mean cross-entropy plus ``strength`` times the penalty, and return the trained module.

    Each batch of observed rows comes with its share of both worlds' rows; world rows that are observed rows of the
    batch reuse its forward pass. The penalty is that of the whole worlds, of which the other rows have the scores that
    they had when they were last seen (:class:`pyrofair.classifiers.training.WorldScores`): what is minimised does
    not depend on the
    size of batches, and held-out rows are judged by the same objective. Without worlds, or at strength 0, the batches
    are those of plain training.

    Parameters
    ----------
    module
        The module to start from; it is trained in place.
    problem
        The rows.
    penalty
        A function of two scored worlds.
    strength
        The paper's lambda.
    schedule
        Epochs, batches, optimizer. Its ``history`` receives one entry an epoch.

    Raises
    ------
    DataError
        If training diverges, or the module or the penalty returns something unfit.

    References
    ----------
    Chikahara et al. (2021), eq. (1), eq. (10) and appendix E.
    """
    if penalty is None or strength == 0 or problem.worlds is None:
        penalty = None
    generator = torch.Generator().manual_seed(schedule.seed)
    optimizer = schedule.optimizer(module.parameters())
    start, final = np.nan, np.nan
    best, best_state, waited = np.inf, None, 0
    epochs = schedule.length(len(problem.outcome))
    with (
        seeded(schedule.seed, problem.rows.device),
        tqdm(range(epochs), desc="epochs", disable=not schedule.progress, delay=PROGRESS_AFTER, leave=False) as bar,
    ):
        running = None if penalty is None else _known_scores(module, problem, schedule.batch_size)
        for epoch in bar:
            module.train()
            totals = np.zeros(2)
            plan = plan_batches(problem, schedule.batch_size, generator, penalised=penalty is not None)
            for batch in plan:
                loss, extra = _objective(module, problem, batch, penalty, running)
                objective = loss if penalty is None else loss + strength * extra
                optimizer.zero_grad(set_to_none=True)
                objective.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                totals += loss.item(), extra.item()
                if np.isnan(start):
                    start = objective.item()
            means = totals / len(plan)
            final = float(means @ [1.0, strength])
            entry = {"epoch": epoch, "loss": float(means[0]), "penalty": float(means[1])}
            if problem.validation is not None:
                entry["validation"] = evaluate(module, problem.validation, penalty, strength)
                if entry["validation"] < best - 1e-6:
                    best, best_state, waited = entry["validation"], copy.deepcopy(module.state_dict()), 0
                else:
                    waited += 1
            schedule.history.append(entry)
            if schedule.patience is not None and waited >= schedule.patience:
                break
    if best_state is not None:
        module.load_state_dict(best_state)
        final = best
    if not final <= DIVERGED * max(start, 1.0):
        raise DataError(
            f"Training diverged: the objective went from {start:.3g} to {final:.3g}. Lower the learning rate."
        )
    module.eval()
    return module


def choose_start(
    modules: Sequence[nn.Module], problem: Problem, penalty: Penalty, strength: float, schedule: Schedule
) -> nn.Module:
    """Return the module from which training comes nearest to the least objective, after a short trial of each.

    The penalty pulls both means to 0 or both to 1, by where they are, so that the objective has two basins, and
    training ends in that where its first steps lead. Under weak penalties they lead to the same worse one from nearly
    everywhere. So all modules are tried at a strong penalty, for about 100 steps each, and no longer than training
    lasts. Where less is wanted, the best of them goes on from what it has become there, if that gives a clearly lower
    objective than a cold start does.

    Parameters
    ----------
    modules
        Untrained modules, which stay so.
    problem, penalty, strength, schedule
        As for :func:`train`; held-out rows play no part, and the schedule's history is left alone.
    """
    problem, rows = replace(problem, validation=None), len(problem.outcome)
    epochs = min(max(FIRST_STEPS // math.ceil(rows / schedule.batch_size), 1), schedule.length(rows))
    short = replace(schedule, epochs=epochs, patience=None, progress=False)

    def tried(module: nn.Module, strength: float) -> tuple[float, nn.Module]:
        try:
            found = train(copy.deepcopy(module), problem, penalty, strength, replace(short, history=[]))
        except DataError:  # diverged; if it is the module that is chosen, training says so again
            return np.inf, module
        return evaluate(found, problem, penalty, strength), found

    strong = max(strength, STRONG)
    trials = [tried(module, strong) for module in modules]
    best = int(np.argmin([objective for objective, _ in trials]))
    if strength == strong:
        return modules[best]
    warm = trials[best][1]
    return warm if tried(warm, strength)[0] < tried(modules[0], strength)[0] - CLEARLY else modules[0]


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators for a block (layers such as dropout draw from them), then put them back.

    The generators are global, so threads take turns.
    """
    on_gpu = device.type == "cuda"
    with PYRO_LOCK, torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            torch.cuda.manual_seed(seed)
        yield


@torch.no_grad()
def evaluate(module: nn.Module, problem: Problem, penalty: Penalty | None, strength: float) -> float:
    """Return the objective on all rows at once: the mean cross-entropy plus ``strength`` times the penalty."""
    module.eval()
    penalty = penalty if strength > 0 and problem.worlds is not None else None
    everything = plan_batches(problem, len(problem.outcome), torch.Generator(), penalised=penalty is not None)[0]
    running = None if penalty is None else _known_scores(module, problem, len(problem.outcome))
    loss, extra = _objective(module, problem, everything, penalty, running)
    return (loss + strength * extra).item()


@torch.no_grad()
def _known_scores(module: nn.Module, problem: Problem, batch_size: int) -> tuple[WorldScores, WorldScores]:
    """Return the scores of both worlds before training; none are needed where a batch holds them all."""
    assert problem.worlds is not None  # or there would be no penalty
    scores = None
    if batch_size < len(problem.outcome):
        module.eval()
        scores = torch.sigmoid(problem.sign * logits_in_parts(module, problem.rows))
    one, other = problem.worlds
    return WorldScores(one, scores), WorldScores(other, scores)


def _objective(
    module: nn.Module,
    problem: Problem,
    batch: Batch,
    penalty: Penalty | None,
    running: tuple[WorldScores, WorldScores] | None,
) -> tuple[Tensor, Tensor]:
    logits = logits_of(module, problem.rows.index_select(0, batch.rows))
    observed = batch.rows[: batch.size]
    weight = problem.weight[observed]
    loss = nn.functional.binary_cross_entropy_with_logits(
        logits[: batch.size], problem.outcome[observed], weight=weight, reduction="sum"
    )
    # Not by the weights of the batch: ratios do not average to the ratio of all rows.
    loss = loss / (batch.size * problem.weight.mean())
    if penalty is None or running is None:
        return loss, loss.new_zeros(())
    scores = torch.sigmoid(problem.sign * logits)
    one, other = (world.scored(share, scores) for world, share in zip(running, batch.shares, strict=True))
    extra = penalty(one, other)
    if not isinstance(extra, Tensor) or extra.ndim:
        got = f"a tensor of shape {tuple(extra.shape)}" if isinstance(extra, Tensor) else repr(extra)
        raise DataError(f"The penalty returned {got}; it must return a torch scalar made of the scores of both worlds.")
    if not bool(extra.isfinite()):
        raise DataError(f"The penalty returned {extra.item()}; it must be finite for all scores in [0, 1].")
    return loss, extra


def to_tensor(matrix: NDArray[Any], dtype: str, device: str) -> Tensor:
    """Return a matrix as a tensor of a type on a device."""
    return torch.tensor(np.asarray(matrix, dtype=dtype), device=device)
