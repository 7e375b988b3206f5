"""Training on rows in batches: one frame of rows at a time in memory, and running means of both worlds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pyrofair._progress import tqdm
from pyrofair._random import KeyedWeights, neutral_torch
from pyrofair._validation import shown
from pyrofair.classifiers.batches import Batch, Problem, Share, World, plan_batches
from pyrofair.classifiers.stacks import logits_of
from pyrofair.classifiers.training import (
    PROGRESS_AFTER,
    Penalty,
    Schedule,
    logits_in_parts,
    refuse_diverged,
    seeded,
    to_tensor,
)
from pyrofair.effects import Scored
from pyrofair.effects.potential_outcomes import Additive
from pyrofair.exceptions import DataError
from pyrofair.graph import CausalGraph
from pyrofair.tables.batches import Batches, batch_weight
from pyrofair.tables.encoder import TableEncoder
from pyrofair.tables.labels import read_sensitive
from pyrofair.tables.reading import feature_columns, read_table

__all__ = ["FrameReader", "RunningMean", "fit_in_batches", "require_in_batches", "train_in_batches"]

AUDITED = "audited"
ROWS_OF_EPOCHS = 2_000_000
"""Epochs that are left open read about so many rows, where those of :class:`Schedule` would read more."""


def require_in_batches(source: Any, validation_fraction: float | None, encoder: Any) -> None:
    """Refuse settings that need all rows in memory."""
    if source is not None and not isinstance(source, Additive):
        raise DataError(
            f"source={type(source).__name__} makes worlds of units or draws, which take all rows in memory. In batches "
            "train with IPW(unfair), whose weights are functions of a row; or fit a table."
        )
    if validation_fraction is not None:
        raise DataError(
            f"validation_fraction={validation_fraction} would hold out rows in memory; leave it out, and audit a file "
            "of other rows."
        )
    if encoder is not None:
        raise DataError(
            f"encoder={shown(encoder)} would be fitted on all rows in memory; in batches the encoder is TableEncoder."
        )


@dataclass
class FrameReader:
    """Reads a frame of rows as a problem of training.

    ``totals`` are the sums of the weights of both worlds over all rows, ``mean_weight`` the mean of the rows' own;
    without ``weighting`` there are no worlds.
    """

    encode: Any
    graph: CausalGraph | None
    outcome: str
    last_label: Any
    weight: str | None
    weighting: Any
    dtype: str
    device: str
    sign: int
    mean_weight: float = 1.0
    totals: tuple[float, float] = (1.0, 1.0)

    def weights(self, frame: pd.DataFrame) -> list[NDArray[np.float64]]:
        """Return the weight of each row in both worlds, times its own, each (n,)."""
        found = self.weighting.weights(frame)
        own = batch_weight(frame, self.weight)
        return [own * found[AUDITED, world][:, 0] for world in (0, 1)]

    def summary(self, frame: pd.DataFrame) -> tuple[NDArray[np.float64], dict[Any, int]]:
        """Return the number and weight of rows and the weights of both worlds, and the rows of each label."""
        own = batch_weight(frame, self.weight)
        worlds = [0.0, 0.0] if self.weighting is None else [float(w.sum()) for w in self.weights(frame)]
        target = read_table(frame, [self.outcome], what="The batches")[self.outcome]
        return np.array([len(frame), own.sum(), *worlds]), {k: int(v) for k, v in target.value_counts().items() if v}

    def problem(self, frame: pd.DataFrame, *, alone: bool = False) -> Problem:
        """Return a frame's rows as a problem; the worlds' weights sum to the frame's share, or to 1 if ``alone``."""
        target = np.asarray(frame[self.outcome] == self.last_label, dtype=np.float64)
        rows = self.encode(frame)
        worlds = stratum = None
        if self.weighting is not None and self.graph is not None:
            a = read_sensitive(read_table(frame, feature_columns(self.graph)), self.graph, both=False)
            stack, made = [rows], []
            size = len(rows)
            for world, w in enumerate(self.weights(frame)):
                kept = np.flatnonzero(w > 0.0)
                arm = self.weighting.arm(AUDITED, world)
                changed = np.zeros(len(kept), dtype=bool) if arm is None else a[kept] != arm
                index = kept.copy()
                if changed.any():
                    index[changed] = size + np.arange(int(changed.sum()))
                    size += int(changed.sum())
                    stack.append(self.encode(self.weighting.read_in(frame.iloc[kept[changed]], arm)))
                total = self.totals[world]
                if alone:
                    total = (
                        float(w.sum() if self.weighting.normalized else batch_weight(frame, self.weight).sum()) or 1.0
                    )
                weight = torch.tensor(w[kept] / total, dtype=rows.dtype, device=rows.device)
                made.append(World(torch.tensor(index, device=rows.device), weight, None))
            rows, worlds = torch.cat(stack), (made[0], made[1])
            stratum = torch.as_tensor(a, device=rows.device)
        own = batch_weight(frame, self.weight) / self.mean_weight
        return Problem(
            rows,
            to_tensor(target, self.dtype, self.device),
            to_tensor(own, self.dtype, self.device),
            worlds,
            stratum,
            self.sign,
        )


@dataclass
class RunningMean:
    """The mean score of a world while a module is trained frame by frame.

    As :class:`~pyrofair.classifiers.training.WorldScores` it takes the scores last seen, moved with the mean score by
    as much as a batch's rows have changed; but of rows outside the present frame their sum alone is kept. It serves
    penalties of the two means, which all penalties are where the population is one unit. The gradient comes through
    the rows of a batch, scaled so that it averages over an epoch to that of all rows.
    """

    weights: dict[int, float] = field(default_factory=dict)
    sums: dict[int, tuple[float, float]] = field(default_factory=dict)
    drift: float = 0.0
    total: float = 0.0
    frame: int = -1
    frames: float = 1.0

    def enter(self, frame: int, world: World, scores: Tensor, frames: float) -> None:
        """Take up the rows of a frame at their scores; all rows are ``frames`` times as many."""
        self.leave()
        self.frames = frames
        self.frame, self.world, self.last = frame, world, scores.clone()
        if frame in self.weights:
            self.total -= self.weights[frame]
        self.others = sum(
            value + (self.drift - since) * self.weights[key]
            for key, (value, since) in self.sums.items()
            if key != frame
        )
        self.weights[frame] = float(world.weight.sum())
        self.total += self.weights[frame]

    def leave(self) -> None:
        """Keep the sum of the present frame, and let its rows go."""
        if self.frame >= 0:
            self.sums[self.frame] = float((self.world.weight * self.last.clamp(0.0, 1.0)).sum()), self.drift
            self.frame = -1

    def scored(self, share: Share, scores: Tensor) -> Scored:
        """Return the scores of all rows, or one row of their mean, given the scores of a batch's rows."""
        items, values = share.entries, scores.index_select(0, share.indices)
        now, weight = values.detach(), self.world.weight[share.entries]
        shift = (weight * (now - self.last[items])).sum() / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
        self.last += shift
        self.last[items] = now
        scale = share.scale * self.frames
        level = self.last.clamp(0.0, 1.0).index_copy(0, items, now + scale * (values - now))
        outside = self.total - self.weights[self.frame]
        if outside <= 0.0:
            return Scored(level, self.world.weight)
        self.drift += shift.item()
        self.others = min(max(self.others + shift.item() * outside, 0.0), outside)
        mean = (level * self.world.weight).sum() + self.others
        return Scored(mean[None], torch.ones_like(mean[None]))


def train_in_batches(
    module: nn.Module, batches: Batches, reader: FrameReader, penalty: Penalty, strength: float, schedule: Schedule
) -> nn.Module:
    """Minimise what :func:`~pyrofair.classifiers.training.train` does, frame by frame, and return the module.

    In each epoch the parts of the batches come in random order, and the rows of each frame are shuffled, balanced over
    groups. Where one frame holds all rows, steps are those of training in memory.
    """
    penalised = reader.weighting is not None and strength > 0.0
    generator = torch.Generator().manual_seed(schedule.seed)
    order = np.random.default_rng(schedule.seed)
    optimizer = schedule.optimizer(module.parameters())
    epochs = epochs_of(schedule, len(batches))
    start = final = np.nan
    with (
        seeded(schedule.seed, torch.device(reader.device)),
        tqdm(range(epochs), desc="epochs", disable=not schedule.progress, delay=PROGRESS_AFTER, leave=False) as bar,
    ):
        means = (RunningMean(), RunningMean())
        if penalised:
            for frame in batches:
                _enter(means, module, reader.problem(frame), frame, len(batches))
        for epoch in bar:
            module.train()
            totals, steps = np.zeros(2), 0
            for frame in _shuffled(batches, order):
                problem = reader.problem(frame)
                if penalised:
                    _enter(means, module, problem, frame, len(batches))
                for batch in plan_batches(problem, schedule.batch_size, generator, penalised=penalised):
                    loss, extra = _objective(module, problem, batch, penalty if penalised else None, means)
                    objective = loss + strength * extra if penalised else loss
                    optimizer.zero_grad(set_to_none=True)
                    objective.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                    totals += loss.item(), extra.item()
                    steps += 1
                    if np.isnan(start):
                        start = objective.item()
            averages = totals / steps
            final = float(averages @ [1.0, strength])
            schedule.history.append({"epoch": epoch, "loss": float(averages[0]), "penalty": float(averages[1])})
    refuse_diverged(start, final)
    module.eval()
    return module


def epochs_of(schedule: Schedule, rows: int) -> int:
    """Return the number of epochs, fewer of many rows where the schedule leaves it open."""
    if schedule.epochs is not None:
        return schedule.epochs
    return min(schedule.length(rows), max(1, round(ROWS_OF_EPOCHS / rows)))


def _shuffled(batches: Batches, order: np.random.Generator) -> Iterator[pd.DataFrame]:
    for part in order.permutation(len(batches.sizes)):
        yield from batches.read(int(part))


@torch.no_grad()
def _enter(
    means: tuple[RunningMean, RunningMean], module: nn.Module, problem: Problem, frame: pd.DataFrame, rows: int
) -> None:
    """Score the rows of a frame that is taken up, unless it was the last one, of so many rows in all."""
    assert problem.worlds is not None
    number = int(frame.index[0])
    if means[0].frame == number:
        return
    mode = module.training
    module.eval()
    scores = torch.sigmoid(problem.sign * logits_in_parts(module, problem.rows))
    module.train(mode)
    for mean, world in zip(means, problem.worlds, strict=True):
        mean.enter(number, world, scores.index_select(0, world.rows), rows / len(frame))


def _objective(
    module: nn.Module,
    problem: Problem,
    batch: Batch,
    penalty: Penalty | None,
    means: tuple[RunningMean, RunningMean],
) -> tuple[Tensor, Tensor]:
    logits = logits_of(module, problem.rows.index_select(0, batch.rows))
    observed = batch.rows[: batch.size]
    loss = nn.functional.binary_cross_entropy_with_logits(
        logits[: batch.size], problem.outcome[observed], weight=problem.weight[observed], reduction="sum"
    )
    loss = loss / batch.size  # the weights have the mean 1 over all rows
    if penalty is None:
        return loss, loss.new_zeros(())
    scores = torch.sigmoid(problem.sign * logits)
    one, other = (mean.scored(share, scores) for mean, share in zip(means, batch.shares, strict=True))
    extra = penalty(one, other)
    if not isinstance(extra, Tensor) or extra.ndim or not bool(extra.isfinite()):
        raise DataError(f"The penalty returned {shown(extra)}; it must return a finite torch scalar.")
    return loss, extra


def fit_in_batches(classifier: Any, batches: Batches, outcome: str | None, weight: str | None, random: Any) -> Any:
    """Fit the encoder, the source and the module of a copy of a penalised classifier, whose settings are checked."""
    graph: CausalGraph | None = classifier._graph
    require_in_batches(classifier.source, classifier.validation_fraction, classifier.encoder)
    name = outcome if graph is None else graph.outcome_column
    if name is None:
        raise DataError("Without a source the outcome must be named: fit_batches(batches, outcome='income').")
    reads = classifier._batch_columns(batches, graph, {name, weight})
    classifier.seed_ = int(random.randint(2**31 - 1))
    extra = [] if weight is None else [weight]
    classifier.encoder_ = TableEncoder().fit_batches(batches.select([*reads, *extra]), weight)
    classifier.source_, weighting = None, None
    wanted = [*reads, name, *extra]
    if classifier.source is not None and classifier.strength > 0:
        assert graph is not None
        classifier.source_ = classifier._seeded_source(random).fit(batches, sample_weight=weight)
        weighting = classifier.source_.replicate_weights(KeyedWeights(0, 0))
        wanted += feature_columns(graph)
    own = batches.select(wanted)
    reader = FrameReader(
        encode=classifier._encode,
        graph=graph,
        outcome=name,
        last_label=None,
        weight=weight,
        weighting=weighting,
        dtype=classifier.dtype,
        device=classifier.device,
        sign=1,
    )
    sums, labels = own.total(_SummaryOf(reader))
    classifier._batch_labels(labels, graph)
    reader.last_label = classifier.classes_[1]
    reader.sign = 1 if classifier.classes_[1] == classifier.positive_ else -1
    reader.mean_weight = float(sums[1] / sums[0])
    normalized = weighting is None or weighting.normalized
    reader.totals = (float(sums[2]), float(sums[3])) if normalized else (float(sums[1]), float(sums[1]))
    schedule = classifier.schedule()
    with neutral_torch():
        first = next(iter(own))
        module = classifier.first_module(reader.problem(first, alone=True))
        classifier.module_ = train_in_batches(module, own, reader, classifier.penalty, classifier.strength, schedule)
    classifier.history_ = pd.DataFrame(schedule.history)
    return classifier


@dataclass(frozen=True)
class _SummaryOf:
    reader: FrameReader

    def __call__(self, frame: pd.DataFrame) -> tuple[NDArray[np.float64], dict[Any, int]]:
        return self.reader.summary(frame)
