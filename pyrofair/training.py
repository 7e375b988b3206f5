"""How is a module fitted? By cross-entropy on minibatches, plus a penalty on both worlds' share of each batch."""

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

from pyrofair._validation import require_rate, shown
from pyrofair.batches import Batch, Problem, WorldScores, plan_batches
from pyrofair.exceptions import DataError
from pyrofair.isolation import TURN
from pyrofair.potential_outcomes import Scored

__all__ = [
    "Optimizer",
    "Penalty",
    "Schedule",
    "choose_start",
    "evaluate",
    "logits_of",
    "make_module",
    "make_optimizer",
    "seeded",
    "to_tensor",
    "train",
]

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


def make_optimizer(kind: str | Optimizer, rate: float | None) -> Optimizer:
    """Return a function that makes a torch optimizer: Adam, stochastic gradient descent with momentum, or one's own."""
    if rate is not None:
        require_rate(rate)
        if callable(kind):
            raise DataError(f"learning_rate={rate!r} is not used with an optimizer of your own; set it in there.")
    if callable(kind):
        return kind
    if not isinstance(kind, str) or kind not in ("adam", "sgd"):
        raise DataError(f"optimizer={shown(kind)} is not known; it is 'adam', 'sgd', or a function that makes one.")
    if kind == "adam":
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


def train(
    module: nn.Module, problem: Problem, penalty: Penalty | None, strength: float, schedule: Schedule
) -> nn.Module:
    """Minimise the mean cross-entropy plus ``strength`` times the penalty, and return the trained module.

    Each batch of observed rows comes with its share of both worlds' rows; world rows that are observed rows of the
    batch reuse its forward pass. The penalty is that of the whole worlds, of which the other rows have the scores that
    they had when they were last seen (:class:`pyrofair.batches.WorldScores`): what is minimised does not depend on the
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
    with TURN, torch.random.fork_rng(devices=[device] if on_gpu else []):
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
        logits = [logits_of(module, part) for part in problem.rows.tensor_split(-(-len(problem.rows) // CHUNK))]
        scores = torch.sigmoid(problem.sign * torch.cat(logits))
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
