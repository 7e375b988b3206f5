"""Fit conditional distributions: variational inference or Newton's method, held-out rows, and replicates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal
from zlib import crc32

import pyro
import torch
from pyro import poutine
from pyro.infer import Trace_ELBO
from pyro.infer.autoguide import AutoLaplaceApproximation
from pyro.infer.autoguide.initialization import init_to_median, init_to_value
from torch import Tensor

from pyrofair._devices import Device, on_device
from pyrofair._progress import progress_bar
from pyrofair._random import isolated, set_seed
from pyrofair._validation import (
    require_choice,
    require_integer,
    require_known,
    require_layers,
    require_rate,
    require_real,
)
from pyrofair.exceptions import DataError
from pyrofair.inference.samplers import GUIDES, Guide, Schedule, descend, fall, fitting, sizes_of
from pyrofair.mechanisms.conditional import ConditionalDistribution, Network, Numbers
from pyrofair.mechanisms.families import Binary, Categorical, Family, features
from pyrofair.mechanisms.flat import FlatNetwork
from pyrofair.mechanisms.newton import LastLayer, has_last_layer, is_convex, linear_start

__all__ = [
    "FEWEST",
    "Fit",
    "Guide",
    "Parameters",
    "Rows",
    "Settings",
    "fit_mechanisms",
    "log_likelihood",
    "make_mechanisms",
    "marginal_log_likelihood",
    "refit_mechanisms",
    "require_settings",
    "split_rows",
    "try_mechanisms",
]

Parameters = Literal["network", "linear"] | Numbers
"""What turns the columns read into a family's numbers: a network, a linear predictor, or a function of one's own."""

NARROW = 0.02
"""The standard deviation at which the distribution of each parameter starts."""
NEAR_PEAK = 0.1
"""Steps from the peak of a posterior are so much shorter than those to it."""
MOST_DENSE = 2000
"""Beyond so many parameters their correlations are too many to be learned."""
EVERY = 50
"""So many steps lie between two looks at the held-out rows."""
MEMORY, REFIT_MEMORY = 0.98, 0.9
"""What is kept is a moving average of the parameters over about 1 / (1 - MEMORY) steps, which removes most noise."""
MOST_ITERATIONS = 500
"""So many iterations of L-BFGS are enough for parameters of one's own, from those of other weights."""
SETTLED = 0.01
"""A fit that ran to its last step has settled if held-out rows got likelier by fewer nats over the last quarter."""
EQUAL = 1e-5
"""Weights that differ by a smaller share are those before, rounded."""
MARGINAL_STEPS, MARGINAL_RATE = 1000, 3e-2
FEWEST = 20
"""The fewest rows that mechanisms are learned from."""
FEWEST_TRAINED, TRIED = 10, 3
INTERRUPTED = "Interrupted while fitting the distribution of {!r}; the best parameters so far are kept."
RESERVED = ("units", "row", "rows")


def moved(tensors: Mapping[str, Tensor], device: Device) -> dict[str, Tensor]:
    """Return tensors on a device."""
    return {name: each.to(device) for name, each in tensors.items()}


@dataclass(frozen=True, eq=False)
class Rows:
    """A table as tensors: each column and the weights, shape (n,), and the indices of training and held-out rows."""

    columns: Mapping[str, Tensor]
    weight: Tensor
    train: Tensor
    held: Tensor

    def at(self, rows: Tensor) -> dict[str, Tensor]:
        """Return the values of some rows."""
        return {name: values[rows] for name, values in self.columns.items()}

    def to(self, device: Device) -> Rows:
        """Return the rows on a device."""
        return Rows(moved(self.columns, device), *(each.to(device) for each in (self.weight, self.train, self.held)))

    def scale(self, batch: Tensor) -> Tensor:
        """Return the factors by which the rows of a batch stand for all training rows."""
        found: Tensor = self.weight[batch] * (len(self.train) / len(batch))
        return found


@dataclass(frozen=True)
class Settings:
    """How a distribution is fitted: the guide, and at most so many steps of Adam on batches of so many rows.

    Without patience the last parameters are kept.
    """

    posterior: Guide
    draws: int
    steps: int
    batch_size: int
    learning_rate: float
    patience: int | None
    memory: float = MEMORY
    device: str = "cpu"


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted distribution.

    ``centre`` is the guide's median of each parameter, at which held-out rows are judged; ``draws`` has shape
    (draws, ...), of a point one; from ``state``, the guide's own numbers, another fit may start. ``history`` holds for
    each look at the held-out rows step, loss (nats per training row) and held_out (nats per held-out row); ``text`` the
    warning to give, if any.
    """

    mechanism: ConditionalDistribution
    centre: dict[str, Tensor]
    draws: dict[str, Tensor] = field(repr=False)
    state: tuple[Tensor, ...] = field(repr=False)
    history: tuple[dict[str, float], ...] = field(repr=False)
    text: str = ""
    interrupted: bool = False

    def to(self, device: Device) -> Fit:
        """Return the fit on a device."""
        state = tuple(each.to(device) for each in self.state)
        return replace(self, centre=moved(self.centre, device), draws=moved(self.draws, device), state=state)


def log_likelihood(
    mechanism: ConditionalDistribution, parameters: Mapping[str, Tensor], rows: Rows, at: Tensor
) -> float:
    """Return the weighted mean log-likelihood of some rows, in nats; NaN if there are none."""
    return _mean(_each(mechanism, parameters, rows, at), rows.weight[at])


def _each(mechanism: ConditionalDistribution, parameters: Mapping[str, Tensor], rows: Rows, at: Tensor) -> Tensor:
    if not len(at):
        return torch.empty(0)
    values = rows.at(at)
    with torch.no_grad():
        found: Tensor = mechanism.at(parameters)(values).expand(at.shape).log_prob(values[mechanism.column])
    return found


def _mean(each: Tensor, weight: Tensor) -> float:
    return float((weight * each).sum() / weight.sum())


def _gain(each: Tensor, weight: Tensor) -> tuple[float, float]:
    """Return the weighted mean of the gains of rows, and its standard error."""
    gain = _mean(each, weight)
    return gain, float((weight * (each - gain)).square().sum().sqrt() / weight.sum())


# -- one distribution -------------------------------------------------------------------------------------------------


def _fit(
    mechanism: ConditionalDistribution,
    rows: Rows,
    settings: Settings,
    bar: Any = None,
    start: Fit | None = None,
    *,
    keep: bool = False,
) -> Fit:
    """Fit a distribution by steps of Adam, until held-out rows get no likelier.

    They are of stochastic variational inference for posteriors and for parameters of one's own, and of plain gradients
    for the point of a network; where it has one optimum, Newton's method finds it. What is kept otherwise
    is the last state in which held-out rows are as likely as in the best one, but for a standard error of the
    difference: the best one is often early by chance, and so too near the marginal one, which understates effects.

    A distribution with correlated parameters is first fitted as a point, and its posterior starts as wide as the
    curvature there (Laplace), for held-out rows would stop it long before its width has settled. ``start`` is a fit to
    start from. With ``keep`` Ctrl-C keeps the best point so far, marked as interrupted.
    """
    point = settings.posterior == "point"
    if point and start is None and settings.steps and is_convex(mechanism):
        return _at_optimum(mechanism, rows, keep=keep)
    of_point = point and isinstance(mechanism.numbers, Network)
    run = (_PointRun if of_point else _Run)(mechanism, rows, settings, start)
    if not run.own:
        value = log_likelihood(mechanism, {}, rows, rows.held)
        return Fit(mechanism, {}, {}, (), ({"step": 0.0, "loss": math.nan, "held_out": value},))
    text, interrupted, weight = "", False, rows.weight[rows.held]
    if settings.posterior == "multivariate" and start is None and settings.steps:
        peak = _fit(mechanism, rows, replace(settings, posterior="point"), bar)
        text = peak.text
        settings = replace(settings, learning_rate=NEAR_PEAK * settings.learning_rate)
        run = _Run(mechanism, rows, settings, None, peak)
    best, kept, since = run.look(math.nan), _copies(run.average), 0
    try:
        for step, loss in run.steps():
            if bar is not None:
                bar.update()
            if step % EVERY and step < settings.steps:
                continue
            seen = run.look(float(loss))
            gain, error = _gain(seen - best, weight)
            if not gain + error < 0.0 or settings.patience is None:  # without held-out rows the last is the best, too
                kept = _copies(run.average)
            if not gain <= 0.0:
                best, since = seen, step
            if settings.patience is not None and step - since >= settings.patience:
                break
        else:
            text = text or ("" if settings.patience is None else run.unsettled())
    except KeyboardInterrupt:
        if not (keep and point):
            raise
        interrupted, text = True, INTERRUPTED.format(mechanism.column)
    return replace(run.finish(kept, text), interrupted=interrupted)


def _at_optimum(mechanism: ConditionalDistribution, rows: Rows, *, keep: bool) -> Fit:
    """Return the fit of a distribution with one optimum, by Newton's method, whatever held-out rows say."""
    column, network, text = mechanism.column, mechanism.numbers, ""
    assert isinstance(network, Network)
    first = {name: torch.zeros_like(each) for name, each in network.start(column).items()}
    last = LastLayer.of(mechanism, first, rows)
    theta, loss = last.read(first), math.nan
    try:
        theta, losses = last.settle(theta)
        loss = float(losses[0])
        if not math.isfinite(loss):
            raise DataError(
                f"The loss of {column!r} is {loss}. Give the column another family than {mechanism.family!r}."
            )
    except KeyboardInterrupt:
        if not keep:
            raise
        text = INTERRUPTED.format(column)
    centre = last.write(theta[:, 0], first)
    history = [
        {"step": step, "loss": each / len(rows.train), "held_out": log_likelihood(mechanism, at, rows, rows.held)}
        for step, each, at in ((0.0, math.nan, first), (1.0, loss, centre))
    ]
    return replace(_point(mechanism, centre, history, text), interrupted=bool(text))


def _point(
    mechanism: ConditionalDistribution, centre: dict[str, Tensor], history: list[dict[str, float]], text: str = ""
) -> Fit:
    draws = {name: value.unsqueeze(0) for name, value in centre.items()}
    return Fit(mechanism, centre, draws, tuple(centre.values()), tuple(history), text)


def _refit(
    fit: Fit,
    many: Sequence[Rows],
    before: Rows,
    settings: Settings,
    seed: int,
    layers: dict[str, LastLayer],
    converge: bool,
) -> list[Fit | DataError]:
    """Fit a distribution again to the same rows with other weights than those of ``before``: replicates.

    The point of a network keeps its hidden layers, and the last one moves by Newton's method to the end, or by one step
    of it, in all replicates at once; a slope that was left with the weights before is left again, so that equal weights
    change nothing. Points of parameters of one's own are fitted by L-BFGS to the end, all others by the steps that are
    set. ``layers`` keeps last layers from call to call.
    """
    mechanism, column = fit.mechanism, fit.mechanism.column
    point = settings.posterior == "point" and bool(fit.centre)
    if point and has_last_layer(mechanism):
        if all(torch.allclose(rows.weight, before.weight, rtol=EQUAL, atol=0.0) for rows in many):
            return [fit] * len(many)
        if column not in layers:
            layer = LastLayer.of(mechanism, fit.centre, before)
            layers[column] = layer.around(layer.read(fit.centre))
        if not converge:
            layers[column] = layers[column].derived(layers[column].read(fit.centre))
        layer = layers[column]
        stacks = [many[i : i + layer.most_stacked] for i in range(0, len(many), layer.most_stacked)]
        return [each for stack in stacks for each in _refit_last_layer(fit, stack, before, layer, converge)]
    own = point and not isinstance(mechanism.numbers, Network)
    found: list[Fit | DataError] = []
    for rows in many:
        _seed(seed, column)
        try:
            found.append(_refit_all(fit, rows, settings) if own else _fit(mechanism, rows, settings, start=fit))
        except DataError as error:
            found.append(error)
    return found


def _refit_last_layer(
    fit: Fit, many: Sequence[Rows], before: Rows, layer: LastLayer, converge: bool
) -> list[Fit | DataError]:
    column = fit.mechanism.column
    found: list[Fit | DataError] = []
    layer = layer.weighted(torch.stack([rows.weight[before.train] for rows in many], 1))
    start = layer.read(fit.centre)
    theta, losses = layer.settle(start.expand(-1, len(many), -1)) if converge else layer.step(start)
    for i, (rows, loss) in enumerate(zip(many, losses.tolist(), strict=True)):
        if not math.isfinite(loss):
            found.append(DataError(f"The loss of {column!r} is {loss} with other weights."))
            continue
        centre = layer.write(theta[:, i], fit.centre)
        seen = log_likelihood(fit.mechanism, centre, rows, rows.held)
        entry = {"step": fit.history[-1]["step"], "loss": loss / len(rows.train), "held_out": seen}
        found.append(_point(fit.mechanism, centre, [entry]))
    return found


def _refit_all(fit: Fit, rows: Rows, settings: Settings) -> Fit:
    """Fit a point to all rows at once by L-BFGS, starting from another."""
    run = _Run(fit.mechanism, rows, settings, fit)
    optimiser = torch.optim.LBFGS(run.own, max_iter=MOST_ITERATIONS, line_search_fn="strong_wolfe")
    total = run.loss()

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = total(rows.train) / len(rows.train)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    loss = float(optimiser.step(closure))  # type: ignore[no-untyped-call]
    if not all(bool(each.isfinite().all()) for each in run.own):
        raise DataError(f"The loss of {fit.mechanism.column!r} is {loss} with other weights.")
    run.average = _copies(run.own)
    run.look(loss)
    return run.finish(run.average)


class _Run:
    """The steps of Adam of one fit by variational inference: its guide, a moving average of its numbers, its course."""

    own: Sequence[Tensor] = ()
    average: tuple[Tensor, ...]
    before: float = 0.0
    done: int = 0

    def __init__(
        self,
        mechanism: ConditionalDistribution,
        rows: Rows,
        settings: Settings,
        start: Fit | None,
        peak: Fit | None = None,
    ) -> None:
        self.mechanism, self.rows, self.settings = mechanism, rows, settings
        first: dict[str, Tensor] = {}
        if near := start or peak:
            first = {name: value.clone() for name, value in near.centre.items()}  # guides write into what they get
        elif isinstance(mechanism.numbers, Network):
            first = linear_start(mechanism, rows)
        self.some = rows.train[: settings.batch_size]
        sizes = sizes_of(partial(self.model, self.some))
        self.parameters, size = [*sizes], sum(sizes.values())
        if settings.posterior == "multivariate" and size > MOST_DENSE:
            raise DataError(
                f"The distribution of {mechanism.column!r} has {size} parameters; posterior='multivariate' takes at "
                f"most {MOST_DENSE}. Use posterior='normal', parameters='linear', or fewer hidden units."
            )
        if self.parameters:
            init = init_to_value(values=first, fallback=init_to_median)
            extra = {} if settings.posterior == "point" else {"init_scale": NARROW}
            self.guide = GUIDES[settings.posterior](self.model, init_loc_fn=init, **extra)
            self.guide(self.some)  # makes the guide's numbers
            if peak is not None:
                self.widen(init)
            self.own = list(self.guide.parameters())
            if start is not None:
                self.put(start.state)
            self.average = _copies(self.own)
        self.history: list[dict[str, float]] = [] if peak is None else [*peak.history]
        if peak is not None:
            self.before = peak.history[-1]["step"]

    def steps(self) -> Iterator[tuple[int, Tensor]]:
        """Take steps, and yield the number of each and the mean loss of a row since the last look."""
        settings, n = self.settings, len(self.rows.train)
        schedule = Schedule(settings.steps, settings.learning_rate)
        batches = _batches(self.rows.train, min(settings.batch_size, n))
        run = descend(self.loss(), self.own, batches, schedule, average=self.average, memory=settings.memory)
        total, taken = torch.zeros((), dtype=torch.float64), 0
        for loss in run:
            each = loss.double() / n
            total, taken = (total + each, taken + 1) if self.done % EVERY else (each, 1)
            self.done += 1
            yield self.done, total / taken

    def look(self, loss: float) -> Tensor:
        """Return the log-likelihood of each held-out row, and note its mean."""
        if self.done and not math.isfinite(loss):
            raise DataError(
                f"The loss of {self.mechanism.column!r} is {loss} after {self.done} steps. Lower learning_rate="
                f"{self.settings.learning_rate:g}, or give the column another family than {self.mechanism.family!r}."
            )
        each = self.held()
        value = _mean(each, self.rows.weight[self.rows.held])
        self.history.append({"step": self.before + self.done, "loss": loss, "held_out": value})
        return each

    def unsettled(self) -> str:
        """Return the warning of a fit that took all its steps and still rose; empty if there is none."""
        trend = fall([-each["held_out"] for each in self.history])
        if not trend.drop > SETTLED:
            return ""
        return (
            f"The distribution of {self.mechanism.column!r} may not have settled: the held-out log-likelihood rose by "
            f"{trend.drop:.3f} nats per row over the last quarter of {self.settings.steps} steps. Take more steps, or "
            "a higher learning_rate."
        )

    def widen(self, init: Any) -> None:
        """Give the guide the width of the posterior's curvature where it starts; if that is no peak, leave it."""
        laplace: Any = AutoLaplaceApproximation(self.model, init_loc_fn=init)  # type: ignore[no-untyped-call]
        laplace(self.rows.train)
        try:
            found = laplace.laplace_approximation(self.rows.train)
        except RuntimeError:  # a matrix that is not positive definite
            return
        root = found.scale[:, None] * found.scale_tril
        if torch.isfinite(root).all():
            self.guide.scale = root.diagonal()
            self.guide.scale_tril = root / root.diagonal()[:, None]

    def model(self, at: Tensor) -> None:
        """Draw the parameters, and observe some rows."""
        distribution = self.mechanism.draw()
        values = self.rows.at(at)
        with pyro.plate("rows", len(at)), poutine.scale(scale=self.rows.scale(at)):
            pyro.sample("row", distribution(values), obs=values[self.mechanism.column])

    def put(self, state: tuple[Tensor, ...]) -> None:
        with torch.no_grad():
            for own, value in zip(self.own, state, strict=True):
                own.copy_(value)

    def loss(self) -> Callable[[Tensor], Tensor]:
        """Return the loss of a batch."""
        elbo = Trace_ELBO()  # type: ignore[no-untyped-call]
        return partial(elbo.differentiable_loss, self.model, self.guide)

    def held(self) -> Tensor:
        """Return the log-likelihood of each held-out row at the averaged parameters."""
        kept = _copies(self.own)
        self.put(self.average)
        each = _each(self.mechanism, self.median(), self.rows, self.rows.held)
        self.put(kept)
        return each

    def median(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.guide.median(self.some).items()}

    def finish(self, state: tuple[Tensor, ...], text: str = "") -> Fit:
        """Return the fit at a state of the averaged numbers."""
        self.put(state)
        found = replace(_point(self.mechanism, self.median(), self.history, text), state=state)
        if self.settings.posterior == "point":
            return found
        with torch.no_grad():
            each = [self.guide(self.some) for _ in range(self.settings.draws)]
        return replace(found, draws={name: torch.stack([one[name] for one in each]) for name in self.parameters})


class _PointRun(_Run):
    """A fit of a network's point, by gradients written out."""

    def __init__(self, mechanism: ConditionalDistribution, rows: Rows, settings: Settings, start: Fit | None) -> None:
        self.mechanism, self.rows, self.settings = mechanism, rows, settings
        first = linear_start(mechanism, rows) if start is None and settings.steps else None
        self.flat = FlatNetwork(mechanism, rows, start.centre if start else first)
        self.own, self.history = [self.flat.numbers], []
        self.average = _copies(self.own)

    def loss(self) -> Callable[[Tensor], Tensor]:
        return self.flat.loss

    def held(self) -> Tensor:
        return self.flat.each(self.average[0], self.rows.held)

    def finish(self, state: tuple[Tensor, ...], text: str = "") -> Fit:
        return _point(self.mechanism, self.flat.named(state[0]), self.history, text)


def _copies(numbers: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(each.detach().clone() for each in numbers)


def _batches(rows: Tensor, size: int) -> Iterator[Tensor]:
    """Yield batches of rows in random order, epoch by epoch, without end."""
    while True:
        order = rows[torch.randperm(len(rows))]
        yield from order[: len(rows) // size * size].split(size)  # type: ignore[no-untyped-call]


# -- all distributions ------------------------------------------------------------------------------------------------


def make_mechanisms(
    reads: Mapping[str, Sequence[str]],
    families: Mapping[str, Family],
    parameters: Parameters | Mapping[str, Parameters],
    hidden: Sequence[int],
) -> list[ConditionalDistribution]:
    """Return an unfitted distribution for each column, of its family, given the columns that it reads.

    ``parameters`` is one for all, or for some columns (the others have networks); ``hidden`` the units of each layer.
    """
    each = parameters if isinstance(parameters, Mapping) else dict.fromkeys(reads, parameters)
    require_known("parameters", each, reads, "column that is learned")
    found = []
    for column, names in reads.items():
        how, family = each.get(column, "network"), families[column]
        own = {name: families[name] for name in names}
        if callable(how):
            found.append(ConditionalDistribution(column, family, own, how))
            continue
        if not isinstance(how, str) or how not in ("network", "linear"):
            raise DataError(
                f"parameters={how!r} of {column!r} is not known; it is 'network', 'linear', or a function "
                "that returns a function from the values read to the numbers of the family."
            )
        widths = tuple(features(families[name], torch.zeros(1)).shape[-1] for name in names)
        network = Network(widths, tuple(hidden) if how == "network" else (), family.size, direct=True)
        found.append(ConditionalDistribution(column, family, own, network))
    return found


def split_rows(values: Mapping[str, Tensor], weight: Tensor, fraction: float) -> Rows:
    """Split the rows that have a weight in training and held-out ones, by torch's global generator."""
    rows = torch.randperm(len(weight))
    rows = rows[weight[rows] > 0]
    held = round(fraction * len(rows))
    if len(rows) - held < FEWEST_TRAINED:
        raise DataError(
            f"validation_fraction={fraction!r} leaves {len(rows) - held} of {len(rows)} rows to learn from; at "
            f"least {FEWEST_TRAINED} are needed."
        )
    return Rows(values, weight / weight[rows[held:]].mean(), rows[held:], rows[:held])


def _reweigh(rows: Rows, weight: Tensor) -> Rows:
    """Return rows with other weights, without those of weight 0; refuse if hardly any are left to learn from."""
    train, held = (index[weight[index] > 0] for index in (rows.train, rows.held))
    if len(train) < FEWEST_TRAINED:
        raise DataError(f"Only {len(train)} training rows have a weight above 0; at least {FEWEST_TRAINED} are needed.")
    # The mean of all training rows is 1, those without weight too: so much do rows weigh against the prior.
    return Rows(rows.columns, weight / weight[rows.train].mean(), train, held)


def try_mechanisms(mechanisms: Sequence[ConditionalDistribution], rows: Rows) -> None:
    """Run each distribution on a few rows before any is fitted; refuse parameters that fail and names that clash."""
    taken = {mechanism.column: f"the column {mechanism.column!r}" for mechanism in mechanisms}
    with isolated(0), fitting(), torch.no_grad():
        for mechanism in mechanisms:
            for name in _try(mechanism, rows.at(rows.train[:TRIED])):
                if name in taken or name in RESERVED:
                    raise DataError(
                        f"A parameter of the distribution of {mechanism.column!r} has the name {name!r}, which is that "
                        f"of {taken.get(name, 'a plate or a site of rows')} too. Rename one of them."
                    )
                taken[name] = f"a parameter of the distribution of {mechanism.column!r}"


def _try(mechanism: ConditionalDistribution, values: Mapping[str, Tensor]) -> list[str]:
    """Return the names of a distribution's parameters."""
    try:
        with poutine.block(), poutine.trace() as tracer:
            made = mechanism.draw()
        made(values).expand((TRIED,)).log_prob(values[mechanism.column])
    except DataError:
        raise
    except Exception as error:
        raise DataError(
            f"The parameters of {mechanism.column!r} fail: {type(error).__name__}: {error}. They are a function "
            "without arguments that draws them (pyro.sample) and returns a function from the values read, a dictionary "
            f"of tensors ({', '.join(mechanism.reads) or 'empty'}), to the family's numbers."
        ) from error
    nodes: Mapping[str, Any] = tracer.trace.nodes
    return [name for name, site in nodes.items() if site["type"] == "sample"]


def _seed(seed: int, column: str) -> None:
    """Seed the fit of one distribution, so that it does not depend on what else is learned."""
    set_seed(crc32(f"{seed} {column}".encode()))


def fit_mechanisms(
    mechanisms: Sequence[ConditionalDistribution], rows: Rows, settings: Settings, seed: int, progress: bool
) -> tuple[dict[str, Fit], list[str]]:
    """Fit distributions one after the other, and return the warnings to give.

    An interruption (Ctrl-C) keeps the best parameters so far of the distribution that was being fitted, and leaves
    those after it near their marginal distributions; while posteriors are fitted it goes on to the caller.
    """
    fits: dict[str, Fit] = {}
    missed: list[str] = []
    total, rows = settings.steps * len(mechanisms), rows.to(settings.device)
    bar = progress_bar("mechanisms", total=total, shown=progress)
    with isolated(seed), on_device(settings.device), fitting(), bar:
        for i, mechanism in enumerate(mechanisms, 1):
            bar.set_postfix_str(mechanism.column)
            stopped = any(fit.interrupted for fit in fits.values())
            _seed(seed, mechanism.column)
            how = replace(settings, steps=0) if stopped else settings
            fits[mechanism.column] = _fit(mechanism, rows, how, bar, keep=True)
            missed += [mechanism.column] * stopped
            bar.update(i * settings.steps - bar.n)
    fits = {column: fit.to("cpu") for column, fit in fits.items()}
    texts = [fit.text for fit in fits.values() if fit.text]
    if missed:
        texts.append(f"Not fitted at all, and near their marginal distributions: {', '.join(map(repr, missed))}.")
    return fits, texts


def refit_mechanisms(
    fits: Mapping[str, Fit],
    weights: Sequence[Tensor],
    before: Rows,
    settings: Settings,
    seed: int,
    layers: dict[str, LastLayer],
    *,
    converge: bool,
) -> list[tuple[dict[str, Fit], Rows] | DataError]:
    """Fit the same distributions to the rows with other weights than ``before``, starting from what they are.

    Returned are, for each of the weights (n,), the fits and the rows, or why there are none. Held-out rows do not stop
    them, and Ctrl-C goes on to the caller: a replicate that is half done is none. ``layers`` keeps what calls have in
    common.
    """
    settings = replace(settings, patience=None, memory=REFIT_MEMORY)
    found: list[tuple[dict[str, Fit], Rows] | DataError] = []
    for weight in weights:
        try:
            found.append(({}, _reweigh(before, weight)))
        except DataError as error:
            found.append(error)
    device = settings.device
    before = before.to(device)
    with isolated(seed), on_device(device), fitting():
        for column, fit in fits.items():
            left = [(i, *each) for i, each in enumerate(found) if not isinstance(each, DataError)]
            many = [rows.to(device) for _, _, rows in left]
            new = _refit(fit.to(device), many, before, settings, seed, layers, converge)
            for (i, known, _), each in zip(left, new, strict=True):
                if isinstance(each, DataError):
                    found[i] = each
                else:
                    known[column] = each.to("cpu")
    return found


def marginal_log_likelihood(mechanism: ConditionalDistribution, rows: Rows, settings: Settings, seed: int) -> float:
    """Return the log-likelihood of held-out rows under the marginal distribution of a column, in the same family.

    For zeros and ones and categories it is known: their frequencies. An interruption (Ctrl-C) goes on to the caller: a
    gain over half a marginal distribution is none.
    """
    network = Network((), (), mechanism.family.size)
    alone = ConditionalDistribution(mechanism.column, mechanism.family, {}, network)
    with isolated(seed), fitting():
        _seed(seed, mechanism.column)
        centre = network.start(mechanism.column)
        if not has_last_layer(alone):
            chosen = replace(settings, posterior="point", learning_rate=MARGINAL_RATE, steps=MARGINAL_STEPS)
            centre = _fit(alone, rows, chosen).centre
        elif not isinstance(mechanism.family, Binary | Categorical):
            last = LastLayer.of(alone, centre, rows)
            centre = last.write(last.settle(last.read(centre))[0][:, 0], centre)
        return log_likelihood(alone, centre, rows, rows.held)


def require_settings(settings: Settings, hidden: Sequence[int], fraction: float) -> None:
    """Refuse settings that are unknown or out of range."""
    require_choice("posterior", settings.posterior, tuple(GUIDES))
    require_layers("hidden", hidden)
    require_integer("posterior_draws", settings.draws)
    for name in ("steps", "batch_size", "patience"):
        require_integer(name, getattr(settings, name))
    require_real("validation_fraction", fraction, least=0.0, below=1.0)
    require_rate(settings.learning_rate)
