"""How is a module fitted? By cross-entropy on minibatches, plus a penalty on both worlds' share of each batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm.auto import tqdm

from pyrofair._validation import require_real
from pyrofair.batches import Batch, Problem, plan_batches
from pyrofair.exceptions import DataError
from pyrofair.potential_outcomes import Scored

__all__ = [
    "Optimizer",
    "Penalty",
    "Schedule",
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
STEPS, FEWEST, MOST = 1_000, 20, 200
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
        require_real("learning_rate", rate, above=0.0)
        if callable(kind):
            raise DataError(f"learning_rate={rate!r} is not used with an optimizer of your own; set it in there.")
    if callable(kind):
        return kind
    if kind == "adam":
        return lambda parameters: torch.optim.Adam(parameters, lr=0.01 if rate is None else rate)
    if kind == "sgd":
        return lambda parameters: torch.optim.SGD(parameters, lr=0.1 if rate is None else rate, momentum=0.9)
    raise DataError(f"optimizer={kind!r} is not known; it is 'adam', 'sgd', or a function that makes one.")


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

    Each batch of observed rows comes with its share of both worlds' rows, whose weights are scaled to the world's
    total. World rows that are observed rows of the batch reuse its forward pass. Without worlds, or at strength 0, the
    batches are those of plain training.

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
    epochs = schedule.epochs
    if epochs is None:
        epochs = min(max(STEPS * schedule.batch_size // len(problem.outcome), FEWEST), MOST)
    with (
        seeded(schedule.seed, problem.rows.device),
        tqdm(range(epochs), desc="epochs", disable=not schedule.progress, delay=PROGRESS_AFTER, leave=False) as bar,
    ):
        for epoch in bar:
            module.train()
            totals = np.zeros(2)
            plan = plan_batches(problem, schedule.batch_size, generator, penalised=penalty is not None)
            for batch in plan:
                loss, extra = _objective(module, problem, batch, penalty)
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
                entry["validation"] = _evaluate(module, problem.validation, penalty, strength)
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


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators for a block (layers such as dropout draw from them), then put them back."""
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            torch.cuda.manual_seed(seed)
        yield


@torch.no_grad()
def _evaluate(module: nn.Module, problem: Problem, penalty: Penalty | None, strength: float) -> float:
    """Return the objective on all rows at once."""
    module.eval()
    everything = plan_batches(problem, len(problem.outcome), torch.Generator(), penalised=penalty is not None)[0]
    loss, extra = _objective(module, problem, everything, penalty)
    return (loss + strength * extra).item()


def _objective(module: nn.Module, problem: Problem, batch: Batch, penalty: Penalty | None) -> tuple[Tensor, Tensor]:
    logits = logits_of(module, problem.rows.index_select(0, batch.rows))
    observed = batch.rows[: batch.size]
    weight = problem.weight[observed]
    loss = nn.functional.binary_cross_entropy_with_logits(
        logits[: batch.size], problem.outcome[observed], weight=weight, reduction="sum"
    )
    loss = loss / weight.sum()
    if penalty is None:
        return loss, loss.new_zeros(())
    scores = torch.sigmoid(problem.sign * logits)
    one, other = (Scored(scores.index_select(0, s.places), s.weight, s.unit) for s in batch.shares)
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
