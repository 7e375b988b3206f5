"""How a network is fitted: minibatches of observed rows, with a penalty on the two worlds' rows that go with them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm.auto import tqdm

from pyrofair.exceptions import DataError
from pyrofair.potential_outcomes import CounterfactualSample, Scored

__all__ = ["EncodedWorld", "Penalty", "Problem", "Schedule", "logits_of", "to_tensor", "train"]

Penalty = Callable[[Scored, Scored], Tensor]
PROGRESS_AFTER = 5.0


@dataclass(frozen=True)
class EncodedWorld:
    """One world as tensors: rows (m, k), weight (m,), unit (m,) or None, origin (m,) with -1 for changed rows."""

    rows: Tensor
    weight: Tensor
    unit: Tensor | None
    origin: Tensor

    @classmethod
    def of(cls, sample: CounterfactualSample, encode: Callable[[Any], Tensor]) -> EncodedWorld:
        """Encode a sample, leaving out rows without weight."""
        kept = np.flatnonzero(sample.weight > 0)
        rows = encode(sample.rows.iloc[kept])
        origin = np.full(len(kept), -1) if sample.origin is None else sample.origin[kept]
        return cls(
            rows,
            torch.as_tensor(sample.weight[kept], dtype=rows.dtype, device=rows.device),
            None if sample.unit is None else torch.as_tensor(sample.unit[kept], device=rows.device),
            torch.as_tensor(origin, device=rows.device),
        )


Worlds = tuple[EncodedWorld, EncodedWorld]


@dataclass(frozen=True)
class Problem:
    """What is fitted: rows (n, k), outcomes (n,) in 0 and 1, weights (n,), and with a source the two worlds.

    Parameters
    ----------
    stratum
        The group of each row, shape (n,), over which batches are balanced.
    validation
        The same for held-out rows, if there are any.
    """

    rows: Tensor
    outcome: Tensor
    weight: Tensor
    worlds: Worlds | None = None
    stratum: Tensor | None = None
    validation: Problem | None = None


@dataclass(frozen=True)
class Schedule:
    """How long and in what steps it is fitted."""

    epochs: int
    batch_size: int
    optimizer: Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]
    patience: int | None
    seed: int
    progress: bool = True
    history: list[dict[str, float]] = field(default_factory=list)


def logits_of(module: nn.Module, rows: Tensor) -> Tensor:
    """Return the log-odds of the positive class, shape (m,), from a module with one output or two.

    Raises
    ------
    DataError
        If the module returns another shape.
    """
    out: Tensor = module(rows)
    if out.ndim == 2 and out.shape[1] == 2:
        return out[:, 1] - out[:, 0]
    if out.numel() == rows.shape[0]:
        return out.reshape(-1)
    raise DataError(
        f"The module returned the shape {tuple(out.shape)} for {rows.shape[0]} rows; it must return one log-odds for "
        "each row, or two logits."
    )


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

    References
    ----------
    Chikahara et al. (2021), eq. (1), eq. (10) and appendix E.
    """
    penalised = penalty is not None and strength > 0 and problem.worlds is not None
    generator = torch.Generator().manual_seed(schedule.seed)
    optimizer = schedule.optimizer(module.parameters())
    best, best_state, waited = np.inf, None, 0
    epochs = range(schedule.epochs)
    with tqdm(epochs, desc="epochs", disable=not schedule.progress, delay=PROGRESS_AFTER, leave=False) as bar:
        for epoch in bar:
            module.train()
            totals = torch.zeros(2, dtype=problem.rows.dtype)
            plan = _plan(problem, schedule.batch_size, generator, penalised)
            for batch in plan:
                loss, extra = _objective(module, problem, batch, penalty if penalised else None)
                optimizer.zero_grad(set_to_none=True)
                (loss + strength * extra if penalised else loss).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                totals += torch.stack([loss.detach().cpu(), extra.detach().cpu()])
            means = (totals / len(plan)).tolist()
            entry = {"epoch": epoch, "loss": means[0], "penalty": means[1]}
            if not np.isfinite(means).all():
                raise DataError(f"Training diverged in epoch {epoch}: the loss is {means[0]}. Lower the learning rate.")
            if problem.validation is not None:
                entry["validation"] = evaluate(module, problem.validation, penalty if penalised else None, strength)
                if entry["validation"] < best - 1e-6:
                    best, best_state, waited = entry["validation"], copy.deepcopy(module.state_dict()), 0
                else:
                    waited += 1
            schedule.history.append(entry)
            if schedule.patience is not None and waited >= schedule.patience:
                break
    if best_state is not None:
        module.load_state_dict(best_state)
    module.eval()
    return module


@torch.no_grad()
def evaluate(module: nn.Module, problem: Problem, penalty: Penalty | None, strength: float) -> float:
    """Return the objective on all rows at once."""
    module.eval()
    everything = _Batch(torch.arange(len(problem.rows)), [])
    loss, _ = _objective(module, problem, everything, None)
    if penalty is None or problem.worlds is None:
        return loss.item()
    scored = [Scored(torch.sigmoid(logits_of(module, w.rows)), w.weight, w.unit) for w in problem.worlds]
    return (loss + strength * penalty(*scored)).item()


@dataclass(frozen=True)
class _Share:
    """A batch's share of one world: rows whose scores the batch has (by place in it), and rows to score anew."""

    reused: Tensor
    places: Tensor
    fresh: Tensor


@dataclass(frozen=True)
class _Batch:
    rows: Tensor
    shares: list[_Share]


def _objective(module: nn.Module, problem: Problem, batch: _Batch, penalty: Penalty | None) -> tuple[Tensor, Tensor]:
    observed = problem.rows[batch.rows]
    size = len(observed)
    worlds = problem.worlds if penalty is not None and problem.worlds is not None else ()
    fresh = [w.rows[share.fresh] for w, share in zip(worlds, batch.shares, strict=bool(worlds)) if len(share.fresh)]
    logits = logits_of(module, torch.cat([observed, *fresh]) if fresh else observed)
    weight = problem.weight[batch.rows]
    losses = nn.functional.binary_cross_entropy_with_logits(
        logits[:size], problem.outcome[batch.rows], reduction="none"
    )
    loss = (weight * losses).sum() / weight.sum()
    if penalty is None:
        return loss, torch.zeros((), dtype=loss.dtype)
    scores = torch.sigmoid(logits)
    scored, start = [], size
    for world, share in zip(worlds, batch.shares, strict=True):
        parts, rows = [], []
        if len(share.reused):
            parts.append(scores[share.places])
            rows.append(share.reused)
        if len(share.fresh):
            parts.append(scores[start : start + len(share.fresh)])
            rows.append(share.fresh)
            start += len(share.fresh)
        chosen = rows[0] if len(rows) == 1 else torch.cat(rows)
        share_weight = world.weight[chosen]
        scored.append(
            Scored(
                parts[0] if len(parts) == 1 else torch.cat(parts),
                share_weight * (world.weight.sum() / share_weight.sum()),
                None if world.unit is None else world.unit[chosen],
            )
        )
    return loss, penalty(*scored)


def _plan(problem: Problem, batch_size: int, generator: torch.Generator, penalised: bool) -> list[_Batch]:
    """Split the rows into batches, balanced over groups when penalised, and share out the rows of both worlds."""
    n = len(problem.rows)
    count = max(1, -(-n // batch_size))
    order = torch.randperm(n, generator=generator)
    if count == 1:
        order = torch.arange(n)  # one batch needs no order, and none depends on how rows are repeated
    if not penalised or problem.worlds is None:
        return [_Batch(rows, []) for rows in order.tensor_split(count)]
    if problem.stratum is not None and count > 1:
        order = order[torch.argsort(problem.stratum.cpu()[order], stable=True)]
    batch_of_row = torch.empty(n, dtype=torch.int64)
    batch_of_row[order] = torch.arange(n) % count
    dealt = torch.argsort(batch_of_row, stable=True)
    batches = dealt.tensor_split(_ends(batch_of_row, count))
    place = torch.empty(n, dtype=torch.int64)
    for rows in batches:
        place[rows] = torch.arange(len(rows))
    shares = _shares(problem.worlds, batch_of_row, place, count, generator)
    return [_Batch(rows, [world[i] for world in shares]) for i, rows in enumerate(batches)]


def _shares(
    worlds: Worlds, batch_of_row: Tensor, place: Tensor, count: int, generator: torch.Generator
) -> list[list[_Share]]:
    batch_of_unit: Tensor | None = None
    shared = []
    for world in worlds:
        m = len(world.weight)
        if world.unit is not None:
            if batch_of_unit is None:
                units = int(max(w.unit.max() for w in worlds if w.unit is not None)) + 1
                batch_of_unit = torch.randperm(units, generator=generator) % count
            reusable = torch.zeros(m, dtype=torch.bool)
            batch = batch_of_unit[world.unit.cpu()]
        else:
            origin = world.origin.cpu()
            reusable = origin >= 0
            batch = torch.empty(m, dtype=torch.int64)
            batch[reusable] = batch_of_row[origin[reusable]]
            changed = torch.nonzero(~reusable).reshape(-1)
            batch[changed] = torch.randperm(len(changed), generator=generator) % count
        shared.append([_share(world, place, rows, reusable) for rows in _deal(batch, count)])
    return shared


def _deal(batch: Tensor, count: int) -> list[Tensor]:
    order = torch.argsort(batch, stable=True)
    return list(order.tensor_split(_ends(batch, count)))


def _ends(batch: Tensor, count: int) -> list[int]:
    return torch.bincount(batch, minlength=count).cumsum(0)[:-1].tolist()


def _share(world: EncodedWorld, place: Tensor, rows: Tensor, reusable: Tensor) -> _Share:
    if not len(rows):
        # A world with fewer rows than there are batches: a batch left without any scores them all.
        everything = torch.arange(len(world.weight))
        return _Share(everything[:0], everything[:0], everything)
    reused = rows[reusable[rows]]
    return _Share(reused, place[world.origin.cpu()[reused]], rows[~reusable[rows]])


def to_tensor(matrix: NDArray[Any], dtype: str, device: str) -> Tensor:
    """Return a matrix as a tensor of a type on a device."""
    return torch.tensor(np.asarray(matrix), dtype=getattr(torch, dtype), device=device)
