"""Training under a penalty: schedules, the loop, which trains modules that are alike as one stack, and starts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pyrofair._devices import free_memory, seeded
from pyrofair._progress import progress_bar
from pyrofair.classifiers.batches import Epoch, Epochs, Problem, WorldScores, count_batches, widen
from pyrofair.classifiers.stacks import NOT_FINITE, Alone, Optimizer, Stack, architecture, logits_of, optimizer_settings
from pyrofair.effects import Scored
from pyrofair.effects.functionals import Formula, formula_of
from pyrofair.exceptions import DataError

__all__ = [
    "Fit",
    "Optimizer",
    "Penalty",
    "Schedule",
    "choose_starts",
    "evaluate",
    "logits_in_parts",
    "make_module",
    "make_optimizer",
    "to_tensor",
    "train",
    "train_many",
]


Penalty = Callable[[Scored, Scored], Tensor]
CHUNK = 65_536  # rows scored at once where nothing is learned
STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 1_000, 20, 200
TRIAL_STEPS = 100  # after these it shows in which basin of the objective training ends
STRONG = 2.0  # the strongest penalty of the paper; at weaker ones cold starts end in the worse basin
SAME_BASIN = 0.01  # objectives of one basin differ by less after a trial, in nats
DIVERGED = 10.0
RATES = 3.0, 0.05  # where a falling rate begins and ends, as shares of the optimizer's own
NEAR_ONE = 1e-5  # weights that sum to 1 do so up to this
IN_CACHE = 1_000_000  # the numbers of a batch beyond which a larger stack is slower
OF_MEMORY, COPIES = 0.5, 4  # the share of a GPU's free memory that a stack takes, and how often it holds a number
PENALTY_NOT_FINITE = "The penalty returned {}; it must be finite for all scores in [0, 1]."


@dataclass(frozen=True)
class Schedule:
    """The length and the steps of training; epochs left open make about 1,000 steps, in 20 to 200 epochs.

    With ``falls`` the learning rate falls epoch by epoch, from three times the optimizer's own to a twentieth of it.
    """

    epochs: int | None
    batch_size: int
    optimizer: Optimizer
    patience: int | None
    seed: int
    progress: bool = True
    falls: bool = False
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
        return lambda parameters: torch.optim.Adam(parameters, lr=0.01 if rate is None else rate, fused=True)
    return lambda parameters: torch.optim.SGD(parameters, lr=0.1 if rate is None else rate, momentum=0.9)


def logits_in_parts(module: nn.Module, rows: Tensor) -> Tensor:
    """Return the log-odds of rows (m, k), shape (m,), computed for at most 65,536 rows at once."""
    return torch.cat([logits_of(module, part) for part in rows.tensor_split(-(-len(rows) // CHUNK))])


@dataclass(frozen=True)
class Fit:
    """One module to train, in place: on a problem, under ``strength`` times a penalty, by a schedule."""

    module: nn.Module
    problem: Problem
    penalty: Penalty | None
    strength: float
    schedule: Schedule

    @property
    def is_penalised(self) -> bool:
        """Whether there is a penalty; without worlds, or at strength 0, the batches are those of plain training."""
        return self.penalty is not None and self.strength != 0 and self.problem.worlds is not None

    @property
    def formula(self) -> Formula | None:
        """The penalty as a function of the mean scores of both worlds, or of each unit in both, if it is one."""
        simple = self.is_penalised and self.problem.has_distinct_rows and self.problem.ends is None
        return formula_of(self.penalty) if simple else None

    @property
    def most_stacked(self) -> int:
        """How many such fits are trained at once: a batch of each in the cache, or all rows in a GPU's free memory.

        Of a row a step keeps its numbers and the outputs of all linear layers.
        """
        rows = self.problem.rows
        outputs = [layer.out_features for layer in self.module.modules() if isinstance(layer, nn.Linear)]
        width = rows.shape[1] + sum(outputs)
        if (free := free_memory(rows.device)) is None:
            return max(1, IN_CACHE // (min(self.schedule.batch_size, len(self.problem.outcome)) * width))
        return max(1, int(OF_MEMORY * free) // (COPIES * rows.element_size() * len(rows) * width))

    def settings(self) -> tuple[Any, ...] | None:
        """Return what fits must have in common to be trained as one stack; None of one to train alone."""
        built = architecture(self.module, self.problem.rows.shape[1])
        if built is None:
            return None
        weights = list(self.module.parameters())
        moved = optimizer_settings(self.schedule.optimizer(iter(weights)), weights)
        if moved is None:
            return None
        n, batch_size = len(self.problem.outcome), self.schedule.batch_size
        penalty = (self.is_penalised, self.formula, self.problem.units > 0, self.problem.sign)
        steps = count_batches(n, batch_size), self.schedule.length(n), self.schedule.falls
        return built, moved, penalty, steps, str(self.problem.rows.device)


def train(
    module: nn.Module, problem: Problem, penalty: Penalty | None, strength: float, schedule: Schedule
) -> nn.Module:
    """Minimise the mean cross-entropy plus ``strength`` times the penalty in place, and return the module.

    Eq. (1), eq. (10) and appendix E of Chikahara et al. (2021). The penalty is that of the whole worlds
    (:class:`WorldScores`), whatever the size of batches, and held-out rows are judged by the same objective. Without
    worlds, or at strength 0, the batches are those of plain training. ``history`` receives one entry an epoch.
    """
    (error,) = train_many([Fit(module, problem, penalty, strength, schedule)])
    if error is not None:
        raise error
    return module


def train_many(fits: Sequence[Fit], max_stack: int | None = None) -> list[Exception | None]:
    """Train modules in place, those that are alike as one stack of weights; return for each its error, or None.

    Alike are modules of one :func:`architecture`, moved by optimizers of one class and settings, in as many batches and
    epochs, under one of the penalties of :mod:`pyrofair.effects.functionals` or each under its own. Each is trained as
    by :func:`train`, from its own seed and on its own problem, and one that diverges leaves the others alone. A stack
    holds at most ``max_stack`` modules; memory is linear in them, while rows that are one tensor are held once.
    """
    alike: dict[Any, list[int]] = {}
    errors: list[Exception | None] = [None] * len(fits)
    for at, fit in enumerate(fits):
        try:
            settings = fit.settings()
        except Exception as error:  # one's own optimizer may raise anything
            errors[at] = error
        else:
            alike.setdefault(("alone", at) if settings is None else settings, []).append(at)
    for settings, members in alike.items():
        size = max_stack or fits[members[0]].most_stacked
        for first in range(0, len(members), size):
            part = members[first : first + size]
            for at, failed in zip(part, _train_alike([fits[at] for at in part], settings), strict=True):
                errors[at] = failed
    return errors


def _train_alike(fits: Sequence[Fit], settings: tuple[Any, ...]) -> list[Exception | None]:
    first = fits[0]
    if settings[0] != "alone":
        stack = Stack([fit.module for fit in fits])
        try:
            optimizer = _stacked_optimizer(first.schedule.optimizer, stack, settings[1])
            if optimizer is not None:
                own = first.is_penalised and first.formula is None
                with seeded(first.schedule.seed, first.problem.rows.device) if own else nullcontext():
                    return _Training(fits, stack, optimizer).run()
        finally:
            stack.release()
    errors: list[Exception | None] = []
    for fit in fits:
        with seeded(fit.schedule.seed, fit.problem.rows.device):  # layers such as dropout draw from global generators
            try:
                errors += _Training([fit], Alone(fit.module), fit.schedule.optimizer(fit.module.parameters())).run()
            except Exception as error:  # whatever a module of the user's raises: the others go on
                errors.append(error)
    return errors


def _stacked_optimizer(make: Optimizer, stack: Stack, settings: tuple[str, ...]) -> torch.optim.Optimizer | None:
    """Return the optimizer of a stack; None if it is not what single modules have, or fails on stacked weights."""
    try:
        optimizer = make(iter(stack.parameters()))
    except Exception:
        return None
    return optimizer if optimizer_settings(optimizer, stack.parameters()) == settings else None


def _generator(fit: Fit) -> torch.Generator:
    return torch.Generator().manual_seed(fit.schedule.seed)


class _Training:
    """The training of a stack of modules, each on its own problem, epoch by epoch."""

    def __init__(self, fits: Sequence[Fit], stack: Stack | Alone, optimizer: torch.optim.Optimizer) -> None:
        self.fits, self.stack, self.optimizer = fits, stack, optimizer
        first = fits[0]
        self.errors: list[Exception | None] = [None] * len(fits)
        self.penalised = first.is_penalised
        self.formula = None if isinstance(stack, Alone) else first.formula
        apart = isinstance(stack, Alone) or (self.penalised and self.formula is None)
        keys = [(id(fit.problem), fit.schedule.seed) for fit in fits]  # fits of one problem and seed share batches
        own = dict(zip(keys, fits, strict=True))
        self.which = [[*own].index(key) for key in keys]
        self.epochs = [
            Epochs(fit.problem, fit.schedule.batch_size, _generator(fit), penalised=self.penalised, apart=apart)
            for fit in own.values()
        ]
        tensors = {id(fit.problem.rows): fit.problem.rows for fit in fits}
        self.rows = first.problem.rows if len(tensors) == 1 else torch.cat(list(tensors.values()))
        starts = dict(zip(tensors, np.cumsum([0, *map(len, tensors.values())]).tolist(), strict=False))
        self.offset = torch.tensor([[starts[id(fit.problem.rows)]] for fit in fits], device=self.rows.device)
        self.last = self.offset + torch.tensor([[len(fit.problem.rows) - 1] for fit in fits], device=self.rows.device)
        self.sign = first.problem.sign
        self.strength = self.rows.new_tensor([self.sign * fit.strength for fit in fits])
        self.means: WorldMeans | UnitMeans | None = None
        self.scores: list[tuple[WorldScores, ...]] = []
        # A penalty of the user's draws of torch's global generator, in a stack as each fit has it alone.
        drawing = fits if apart and not isinstance(stack, Alone) else ()
        self.generators = [_generator(fit).get_state() for fit in drawing]

    @contextmanager
    def _apart(self, k: int) -> Iterator[None]:
        """Run a block of one fit with its own random numbers; what it raises is its error, and the others go on."""
        if self.generators:
            torch.default_generator.set_state(self.generators[k])
        try:
            yield
        except Exception as error:  # one's own penalty may raise anything
            self.errors[k] = error
        finally:
            if self.generators:
                self.generators[k] = torch.default_generator.get_state()

    def run(self) -> list[Exception | None]:
        """Train all modules to their ends and return their errors."""
        first = self.fits[0]
        self._first_scores()
        waiting = [_Waiting(fit) for fit in self.fits]
        length, shown = first.schedule.length(len(first.problem.outcome)), first.schedule.progress
        rates = [group.get("lr", 0.0) for group in self.optimizer.param_groups]
        with progress_bar("epochs", range(length), shown=shown) as bar:
            for epoch in bar:
                if first.schedule.falls:
                    share = np.interp(epoch, (0, max(length - 1, 1)), RATES)
                    for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                        group["lr"] = rate * float(share)
                self.stack.modules[0].train()
                losses, extras = self._epoch()
                for at, each in enumerate(waiting):
                    if self.errors[at] is None and not each.is_over:
                        with self._apart(at):
                            each.record(epoch, losses[:, at], extras[:, at], self.penalised)
                if all(each.is_over or error is not None for each, error in zip(waiting, self.errors, strict=True)):
                    break
        for at, each in enumerate(waiting):
            if self.errors[at] is None:
                with self._apart(at):
                    each.finish()
        return self.errors

    def _first_scores(self) -> None:
        """Score both worlds before training; nothing is known of them where a batch holds them all."""
        if not self.penalised:
            return
        scores: list[Tensor | None] = [None] * len(self.fits)
        for at, fit in enumerate(self.fits):
            fit.module.eval()
            if self.epochs[0].count > 1:
                with self._apart(at), torch.no_grad():
                    scores[at] = torch.sigmoid(self.sign * logits_in_parts(fit.module, fit.problem.rows))
        if self.formula is not None:
            means = UnitMeans if self.fits[0].problem.units else WorldMeans
            self.means = means(self.formula, [fit.problem for fit in self.fits], scores)
            return
        for fit, known in zip(self.fits, scores, strict=True):
            assert fit.problem.worlds is not None  # or there would be no penalty
            units = fit.problem.units
            self.scores.append(tuple(WorldScores(world, known, units) for world in fit.problem.worlds))

    def _epoch(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Make the steps of an epoch; return the losses and penalties of its batches, shapes (batches, K)."""
        drawn = [epochs.draw() for epochs in self.epochs]
        whole = Epoch.join([drawn[which] for which in self.which], [len(fit.problem.rows) for fit in self.fits])
        if self.means is not None:
            self.means.begin(whole, self.strength)
        known, extras = [], []
        batches = zip(torch.minimum(whole.rows + self.offset, self.last), whole.outcome, whole.factor, strict=True)
        for at, (index, outcome, factor) in enumerate(batches):
            if isinstance(self.stack, Alone):
                size = len(whole.batches[0][at].rows)
                index, outcome, factor = index[:, :size], outcome[:, :size], factor[:, :size]
            logits = self.stack.logits(self.rows.index_select(0, index.flatten()).view(*index.shape, -1))
            known.append(logits.detach())
            score = torch.sigmoid(known[-1])
            slope = factor * (score - outcome)
            if self.penalised:
                own = score if self.sign == 1 else 1 - score
                extra, pull = self._own_pull(whole, at, own) if self.means is None else self.means.pull(at, own)
                extras.append(extra)
                slope = slope + torch.ops.aten.sigmoid_backward(pull, score)
            self.stack.descend(logits, slope)
            self.optimizer.step()
        logits = torch.stack([widen(each, whole.rows.shape[2], 0) for each in known])
        losses = _cross_entropy(logits, whole.outcome, whole.factor).cpu().double().numpy()
        if not self.penalised:
            return losses, np.zeros_like(losses)
        values = torch.stack(extras)
        if isinstance(self.means, WorldMeans):
            values = self.means.formula.value(*values.unbind(-1))
        return losses, values.cpu().double().numpy()

    def _own_pull(self, whole: Epoch, at: int, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the penalties (K,) of the users' own making and their slopes in the scores (K, m)."""
        pulls, extras = torch.zeros_like(scores), scores.new_zeros(len(scores))
        for k, (fit, running) in enumerate(zip(self.fits, self.scores, strict=True)):
            if self.errors[k] is not None:
                continue
            batch = whole.batches[k][at]
            leaf = scores[k, : len(batch.rows)].clone().requires_grad_()
            with self._apart(k):
                if not bool(leaf.isfinite().all()):
                    raise DataError(NOT_FINITE)
                scored = [world.scored(share, leaf) for world, share in zip(running, batch.shares, strict=True)]
                extra = _penalise(fit.penalty, scored, fit.problem)
                if extra.requires_grad:
                    (slope,) = torch.autograd.grad(extra, leaf, allow_unused=True)
                    if slope is not None:
                        pulls[k, : len(batch.rows)] = slope
                extras[k] = extra.detach()
        return extras, pulls * self.strength[:, None]


class _Waiting:
    """What one module of a stack has come to: its history, its best epoch, and whether it is over."""

    def __init__(self, fit: Fit) -> None:
        self.fit = fit
        self.start, self.final = np.nan, np.nan
        self.best, self.waited = np.inf, 0
        self.state: dict[str, Any] | None = None
        self.is_over = False

    def record(self, epoch: int, losses: NDArray[np.float64], extras: NDArray[np.float64], penalised: bool) -> None:
        """Enter an epoch, of which these are the losses and penalties of the batches, into the history."""
        fit = self.fit
        strength = fit.strength if penalised else 0.0
        if not np.isfinite(losses).all():
            raise DataError(NOT_FINITE)
        if not np.isfinite(extras).all():
            raise DataError(PENALTY_NOT_FINITE.format(extras[~np.isfinite(extras)][0]))
        if np.isnan(self.start):
            self.start = float(losses[0] + strength * extras[0])
        loss, extra = float(losses.mean()), float(extras.mean())
        self.final = loss + strength * extra
        entry = {"epoch": epoch, "loss": loss, "penalty": extra}
        if fit.problem.validation is not None:
            entry["validation"] = evaluate(fit.module, fit.problem.validation, fit.penalty, strength)
            if entry["validation"] < self.best - 1e-6:
                self.best, self.waited = entry["validation"], 0
                self.state = _copy_state(fit.module)
            else:
                self.waited += 1
        fit.schedule.history.append(entry)
        self.is_over = fit.schedule.patience is not None and self.waited >= fit.schedule.patience

    def finish(self) -> None:
        """Leave the module as it was after its best epoch; a DataError if training diverged."""
        if self.state is not None:
            self.fit.module.load_state_dict(self.state)
            self.final = self.best
        if not self.final <= DIVERGED * max(self.start, 1.0):
            moved = f"from {self.start:.3g} to {self.final:.3g}"
            raise DataError(f"Training diverged: the objective went {moved}. Lower the learning rate.")
        self.fit.module.eval()


def _copy_state(module: nn.Module) -> dict[str, Any]:
    """Return a copy of a module's state; a deep copy of weights that are part of a stack would be one of the stack."""
    state = module.state_dict()
    return {name: each.clone() if isinstance(each, Tensor) else copy.deepcopy(each) for name, each in state.items()}


class WorldMeans:
    """The mean scores of both worlds of K problems while modules are trained in batches, and the pull of a penalty.

    They are those of :class:`WorldScores`, for worlds that weight rows once each and penalties that read the means
    alone: then the scores of both worlds are kept as one array, and no graph is needed. ``scores`` of all rows of each
    problem are the start; None where each batch holds both worlds.
    """

    def __init__(self, formula: Formula, problems: Sequence[Problem], scores: Sequence[Tensor | None]) -> None:
        self.formula = formula
        known = {id(problem): self._weigh(problem) for problem in {id(each): each for each in problems}.values()}
        columns, weights, rows = zip(*(known[id(problem)] for problem in problems), strict=True)
        lasts = [
            nn.functional.pad(weight.new_zeros(len(at)) if score is None else score[at], (0, 1)).expand(2, -1)
            for weight, at, score in zip(weights, rows, scores, strict=True)
        ]
        size, rows_ = max(weight.shape[1] for weight in weights), max(map(len, columns))
        # The last place, of weight 0, takes the scores of rows that no world weights.
        self.column = torch.stack([widen(column, rows_, -1) for column in columns])
        self.column = torch.where(self.column < 0, size - 1, self.column)
        self.weight = torch.stack([widen(weight, size, 0) for weight in weights])
        # Only weights that sum to more than 1 lead a mean beyond it.
        within = bool((self.weight.sum(2) <= 1 + NEAR_ONE).all())
        self.slope = formula.slope_within if within else formula.slope
        self.last = torch.stack([widen(last, size, 0) for last in lasts])

    @staticmethod
    def _weigh(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
        """Return each row's place among those that weigh, or -1; the weights of these t, (2, t + 1); and their rows."""
        assert problem.worlds is not None  # or there would be no penalty
        dense = problem.rows.new_zeros(2, len(problem.rows) + 1)
        for of, world in zip(dense, problem.worlds, strict=True):
            of[world.rows] = world.weight
        rows = torch.nonzero(dense.amax(0) > 0).flatten()
        column = torch.full((dense.shape[1],), -1, device=rows.device)
        column[rows] = torch.arange(len(rows), device=rows.device)
        return column, torch.cat([dense[:, rows], dense.new_zeros(2, 1)], 1), rows

    def begin(self, epoch: Epoch, strength: Tensor) -> None:
        """Take in the batches of an epoch; ``strength`` (K,) is the factor of each penalty's pull on the scores."""
        assert epoch.share is not None
        assert epoch.scale is not None
        places = self.column.expand(len(epoch.rows), -1, -1).gather(2, epoch.rows)
        places, total = places.unsqueeze(2).expand(-1, -1, 2, -1), epoch.share.sum(3, keepdim=True)
        self.batches = list(zip(places, epoch.share, total, epoch.scale * strength[:, None], strict=True))

    def pull(self, at: int, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return both means (K, 2), given the scores (K, m) of a batch, and the pull of the penalty on these."""
        places, share, total, scale = self.batches[at]
        now = scores.unsqueeze(1)
        moved = (share * (now - self.last.gather(2, places))).sum(2, keepdim=True)
        self.last.addcdiv_(moved, total)
        self.last.scatter_(2, places, now.expand_as(places))
        means = (self.weight * self.last.clamp(0.0, 1.0)).sum(2)
        slope = self.slope(means) * scale
        return means, torch.bmm(slope.unsqueeze(1), share).squeeze(1)


class UnitMeans:
    """The mean scores of the units in both worlds of K problems while modules are trained, and the pull of a penalty.

    They are those of :class:`WorldScores`, for worlds in which each row is of one unit: then no graph is needed.
    """

    def __init__(self, formula: Formula, problems: Sequence[Problem], scores: Sequence[Tensor | None]) -> None:
        self.formula = formula
        size = 1 + max(problem.units for problem in problems)
        found = []
        for problem, score in zip(problems, scores, strict=True):
            worlds = [WorldScores(world, score) for world in problem.worlds or ()]
            # The last place, of weight 0, is of no unit.
            found.append([[widen(getattr(each, name), size, 0) for each in worlds] for name in ("weight", "last")])
        self.weight, self.last = (torch.stack([torch.stack(of[at]) for of in found]) for at in (0, 1))

    def begin(self, epoch: Epoch, strength: Tensor) -> None:
        """Take in the batches of an epoch; ``strength`` (K,) is the factor of each penalty's pull on the scores."""
        assert epoch.share is not None
        assert epoch.scale is not None
        assert epoch.units is not None
        assert epoch.slots is not None
        units = torch.where(epoch.units < 0, self.weight.shape[2] - 1, epoch.units).unsqueeze(2).expand(-1, -1, 2, -1)
        weight = self.weight.expand(len(units), -1, -1, -1).gather(3, units)
        factor = weight[:, :, 0, :, None] * (epoch.scale * strength[:, None]).unsqueeze(2)
        weight /= weight.sum(3, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny)
        self.batches = list(zip(units, weight, factor, epoch.slots, epoch.share, strict=True))

    def pull(self, at: int, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the penalties (K,), given the scores (K, m) of a batch, and their pull on these."""
        units, weight, factor, slots, share = self.batches[at]
        # float64: scatter_add adds one by one, and a unit may hold a million rows.
        sums = torch.zeros_like(factor, dtype=torch.float64)
        sums.view(len(sums), -1).scatter_add_(1, slots, (share * scores).double())
        means = sums.to(scores.dtype)
        now = means.transpose(1, 2)
        self.last += (weight * (now - self.last.gather(2, units))).sum(2, keepdim=True)
        self.last.scatter_(2, units, now)
        value = self.formula.value_within(*self.last.clamp(0.0, 1.0).unbind(1))
        slope = self.formula.slope_within(means) * factor
        return (self.weight[:, 0] * value).sum(1), slope.flatten(1).gather(1, slots) * share


def _cross_entropy(logits: Tensor, outcome: Tensor, factor: Tensor) -> Tensor:
    """Return the sum of the cross-entropies of rows, each times its factor, along the last axis."""
    each = nn.functional.binary_cross_entropy_with_logits(logits, outcome, weight=factor, reduction="none")
    return each.sum(-1)


def _penalise(penalty: Penalty | None, scored: Sequence[Scored], problem: Problem) -> Tensor:
    """Return the penalty of a pair of worlds, or what the problem makes of those of several pairs."""
    assert penalty is not None
    pairs, values = list(zip(scored[::2], scored[1::2], strict=True)), []
    for pair, bound in zip(pairs, problem.ends or (None,) * len(pairs), strict=True):
        made: Any = pair if bound is None else bound(*pair)
        extra = penalty(*made)
        if not isinstance(extra, Tensor) or extra.ndim:
            got = f"a tensor of shape {tuple(extra.shape)}" if isinstance(extra, Tensor) else repr(extra)
            raise DataError(f"The penalty returned {got}; it must return a torch scalar made of both worlds' scores.")
        if not bool(extra.isfinite()):
            raise DataError(PENALTY_NOT_FINITE.format(extra.item()))
        values.append(extra)
    return values[0] if problem.combine is None else problem.combine(torch.stack(values))


def choose_starts(fits: Sequence[Sequence[Fit]], max_stack: int | None = None) -> list[nn.Module | Exception]:
    """Return of each fit the module from which training comes nearest to the least objective, after a short trial.

    In its place is the error that one of its trials raised, unless that diverged.

    The fits of one sequence differ in their modules alone. The penalty pulls both means to 0 or both to 1, so that the
    objective has two basins; under weak penalties first steps lead to the worse one from nearly everywhere. So all
    modules are tried at a strong penalty, for about 100 steps each. For a weaker penalty, the best goes on from its
    weights after that trial, if that gives a clearly lower objective than a cold start does. The modules, held-out rows
    and the schedules' histories are left alone.
    """
    strong = [max(starts[0].strength, STRONG) for starts in fits]
    stronger = [replace(fit, strength=level) for starts, level in zip(fits, strong, strict=True) for fit in starts]
    tried = iter(_try(stronger, max_stack))
    chosen: list[nn.Module | Exception] = []
    weak: list[tuple[int, nn.Module]] = []  # fits under weaker penalties, and their best modules after the trial
    for i, starts in enumerate(fits):
        found = [next(tried) for _ in starts]
        at = int(np.argmin([trial.objective for trial in found]))
        failed = [trial.error for trial in found if trial.error is not None]
        chosen.append(failed[0] if failed else starts[at].module)
        if not failed and starts[0].strength < strong[i]:
            weak.append((i, found[at].module))
    pairs = [replace(fits[i][0], module=each) for i, best in weak for each in (best, fits[i][0].module)]
    again = _try(pairs, max_stack)
    for (i, best), warm, cold in zip(weak, again[::2], again[1::2], strict=True):
        better = best if warm.objective < cold.objective - SAME_BASIN else fits[i][0].module
        chosen[i] = warm.error or cold.error or better
    return chosen


class _Trial(NamedTuple):
    """What a trial came to: its objective, infinite if it diverged, its module, and any other error."""

    objective: float
    module: nn.Module
    error: Exception | None = None


def _try(fits: Sequence[Fit], max_stack: int | None) -> list[_Trial]:
    """Train copies of modules for a short time."""
    trials = []
    for fit in fits:
        rows, schedule = len(fit.problem.outcome), fit.schedule
        epochs = min(max(TRIAL_STEPS // count_batches(rows, schedule.batch_size), 1), schedule.length(rows))
        short = replace(schedule, epochs=epochs, patience=None, progress=False, history=[])
        module, problem = copy.deepcopy(fit.module), fit.problem.without_validation
        trials.append(replace(fit, module=module, problem=problem, schedule=short))
    found = []
    for fit, trial, failed in zip(fits, trials, train_many(trials, max_stack), strict=True):
        try:
            if failed is not None:
                raise failed
            with seeded(trial.schedule.seed, trial.problem.rows.device):  # one's own penalty may draw numbers
                objective = evaluate(trial.module, trial.problem, trial.penalty, trial.strength)
            found.append(_Trial(objective, trial.module))
        except DataError:  # it diverged; if this module is chosen, training raises it again
            found.append(_Trial(np.inf, fit.module))
        except Exception as error:  # whatever one's own penalty raises: the others go on
            found.append(_Trial(np.inf, fit.module, error))
    return found


@torch.no_grad()
def evaluate(module: nn.Module, problem: Problem, penalty: Penalty | None, strength: float) -> float:
    """Return the objective on all rows at once: the mean cross-entropy plus ``strength`` times the penalty."""
    module.eval()
    n = len(problem.outcome)
    worlds = problem.worlds if penalty is not None and strength > 0 else None
    logits = logits_in_parts(module, problem.rows[:n] if worlds is None else problem.rows)
    loss = _cross_entropy(logits[:n], problem.outcome, problem.weight / (n * problem.mean_weight))
    if worlds is None:
        return float(loss)
    scores = torch.sigmoid(problem.sign * logits)
    scored = [WorldScores(world, scores).whole() for world in worlds]
    return float(loss + strength * _penalise(penalty, scored, problem))


def to_tensor(matrix: NDArray[Any], dtype: str, device: str) -> Tensor:
    """Return a matrix as a tensor of a type on a device."""
    return torch.tensor(np.asarray(matrix, dtype=dtype), device=device)
