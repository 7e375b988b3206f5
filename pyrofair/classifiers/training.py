"""Training under a penalty: batches balanced over groups, running scores of both worlds, and the loop."""

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
from pyrofair.effects import CounterfactualSample, Scored
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
    ``validation`` is the same for held-out rows.
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
) -> tuple[Tensor, tuple[World, World]]:
    """Return the encoded rows that are observed (n, k) or only in a world, and both worlds as rows of these.

    Rows without weight are left out, and a row of a world that is an observed one is not encoded again.
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
    one, other = worlds
    if one.unit is not None and other.unit is not None:  # number the units of both worlds from 0
        size = len(one.unit)
        _, numbers = torch.unique(torch.cat([one.unit, other.unit]), return_inverse=True)
        one, other = replace(one, unit=numbers[:size]), replace(other, unit=numbers[size:])
    return torch.cat(stack), (one, other)


def plan_batches(problem: Problem, batch_size: int, generator: torch.Generator, *, penalised: bool) -> list[Batch]:
    """Split the observed rows into batches, and, when penalised, assign the rows of both worlds to them.

    Each observed row comes once. When penalised, batches are balanced over groups, and each row of a world comes once:
    an observed row in its own batch, a unit with all its rows in both worlds in one batch. Only a world with fewer rows
    (or units) than batches comes whole in each batch left without any. A single batch keeps the order of the rows.
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
    for world, batch in zip(problem.worlds, _assign(problem.worlds, position, count, generator), strict=True):
        sizes = [sum(map(len, rows)) for rows in parts]
        for i, (share, others) in enumerate(_allocate(world, batch, position, sizes)):
            shares[i].append(share)
            parts[i].append(others)
    return [Batch(torch.cat(rows), len(rows[0]), tuple(share)) for rows, share in zip(parts, shares, strict=True)]


def _assign(worlds: tuple[World, World], position: Tensor, count: int, generator: torch.Generator) -> list[Tensor]:
    """Return the batch of each row of both worlds, from the positions (n,) of observed rows in the order."""

    def at_random(size: int) -> Tensor:
        numbers = torch.zeros(size) if count == 1 else torch.randperm(size, generator=generator) % count
        return numbers.to(position)

    units = [world.unit for world in worlds if world.unit is not None]
    batch_of_unit = at_random(1 + int(max(unit.max() for unit in units))) if units else position
    assigned = []
    for world in worlds:
        if world.unit is not None:
            batch = batch_of_unit[world.unit]
        else:
            observed = world.rows < len(position)
            batch = torch.empty_like(world.rows)
            batch[observed] = position[world.rows[observed]] % count
            batch[~observed] = at_random(int((~observed).sum()))
        assigned.append(batch)
    return assigned


def _allocate(world: World, batch: Tensor, position: Tensor, sizes: Sequence[int]) -> list[tuple[Share, Tensor]]:
    """Return for each batch its share of a world, and the rows that are added to the ``sizes`` it already has."""
    count, device = len(sizes), position.device
    added = torch.ones_like(batch, dtype=torch.bool) if world.unit is not None else world.rows >= len(position)
    by_batch = torch.argsort(2 * batch + added, stable=True)  # the added rows come last in their batch
    batch, added, rows = batch[by_batch], added[by_batch], world.rows[by_batch]
    ends = torch.bincount(batch, minlength=count).cumsum(0)
    additions = torch.bincount(batch[added], minlength=count)
    offset = torch.tensor(sizes, device=device) + additions - ends
    indices = torch.arange(len(rows), device=device) + offset[batch]
    indices[~added] = position[rows[~added]] // count
    cuts = ends[:-1].tolist()
    empty = torch.nonzero(torch.bincount(batch, minlength=count) == 0).flatten().tolist()
    scale = count / (1 + len(empty))
    shares = [Share(*each, scale) for each in zip(by_batch.tensor_split(cuts), indices.tensor_split(cuts), strict=True)]
    others = list(rows[added].tensor_split(additions.cumsum(0)[:-1].tolist()))
    everything = torch.arange(len(rows), device=device)
    for i in empty:
        shares[i], others[i] = Share(everything, sizes[i] + everything, scale), world.rows
    return list(zip(shares, others, strict=True))


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
CHUNK = 65_536  # rows scored at once where nothing is learned
STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 1_000, 20, 200
TRIAL_STEPS = 100  # after these it shows in which basin of the objective training ends
STRONG = 2.0  # the strongest penalty of the paper; at weaker ones cold starts end in the worse basin
SAME_BASIN = 0.01  # objectives of one basin differ by less after a trial, in nats
DIVERGED = 10.0


@dataclass(frozen=True)
class Schedule:
    """The length and the steps of training; epochs left open make about 1,000 steps, in 20 to 200 epochs."""

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
        return min(max(STEPS * self.batch_size // rows, FEWEST_EPOCHS), MOST_EPOCHS)


def make_module(model: str | nn.Module | Callable[[int], nn.Module], width: int) -> nn.Module:
    """Return an untrained module for rows of ``width`` numbers; the network is that of the paper's appendix G.1."""
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
    """Return the log-odds of the last class, shape (m,), from a module with one output or two."""
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
    """Minimise the mean cross-entropy plus ``strength`` times the penalty in place, and return the module.

    Eq. (1), eq. (10) and appendix E of Chikahara et al. (2021). The penalty is that of the whole worlds
    (:class:`WorldScores`), whatever the size of batches, and held-out rows are judged by the same objective. Without
    worlds, or at strength 0, the batches are those of plain training. ``history`` receives one entry an epoch.
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
        running = None if penalty is None else _first_scores(module, problem, schedule.batch_size)
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

    The penalty pulls both means to 0 or both to 1, so that the objective has two basins; under weak penalties first
    steps lead to the worse one from nearly everywhere. So all modules are tried at a strong penalty, for about 100
    steps each. For a weaker penalty, the best goes on from its weights after that trial, if that gives a clearly lower
    objective than a cold start does. The modules, held-out rows and the schedule's history are left alone.
    """
    problem, rows = replace(problem, validation=None), len(problem.outcome)
    epochs = min(max(TRIAL_STEPS // math.ceil(rows / schedule.batch_size), 1), schedule.length(rows))
    short = replace(schedule, epochs=epochs, patience=None, progress=False)

    def trial(module: nn.Module, strength: float) -> tuple[float, nn.Module]:
        try:
            found = train(copy.deepcopy(module), problem, penalty, strength, replace(short, history=[]))
        except DataError:  # diverged; if this module is chosen, training raises the error again
            return np.inf, module
        return evaluate(found, problem, penalty, strength), found

    strong = max(strength, STRONG)
    trials = [trial(module, strong) for module in modules]
    best = int(np.argmin([objective for objective, _ in trials]))
    if strength == strong:
        return modules[best]
    warm = trials[best][1]
    return warm if trial(warm, strength)[0] < trial(modules[0], strength)[0] - SAME_BASIN else modules[0]


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators, of which layers such as dropout draw, for a block, then put them back."""
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
    running = None if penalty is None else _first_scores(module, problem, len(problem.outcome))
    loss, extra = _objective(module, problem, everything, penalty, running)
    return (loss + strength * extra).item()


@torch.no_grad()
def _first_scores(module: nn.Module, problem: Problem, batch_size: int) -> tuple[WorldScores, WorldScores]:
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
