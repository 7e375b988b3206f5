"""Fit conditional distributions: the loop, held-out rows and replicates."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from zlib import crc32

import pyro
import torch
from pyro import poutine
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoDelta, AutoLaplaceApproximation, AutoMultivariateNormal, AutoNormal
from pyro.infer.autoguide.initialization import init_to_median, init_to_value
from pyro.optim.clipped_adam import ClippedAdam
from torch import Tensor
from tqdm.auto import tqdm

from pyrofair._random import isolated, set_seed
from pyrofair._validation import (
    did_you_mean,
    require_choice,
    require_integer,
    require_layers,
    require_rate,
    require_real,
)
from pyrofair.exceptions import DataError
from pyrofair.mechanisms.conditional import ConditionalDistribution, Network, Numbers
from pyrofair.mechanisms.families import Binary, Categorical, Family, features
from pyrofair.mechanisms.newton import LastLayer, has_last_layer, is_convex

__all__ = [
    "FEWEST",
    "GUIDES",
    "Fit",
    "Guide",
    "Parameters",
    "Rows",
    "Settings",
    "fit_law",
    "fit_mechanisms",
    "log_likelihood",
    "make_mechanisms",
    "marginal_log_likelihood",
    "refit_law",
    "refit_mechanisms",
    "require_settings",
    "reweigh_rows",
    "split_rows",
    "try_mechanisms",
]

Guide = Literal["point", "normal", "multivariate"]
GUIDES: dict[str, Any] = {"point": AutoDelta, "normal": AutoNormal, "multivariate": AutoMultivariateNormal}
NARROW = 0.02
"""The standard deviation at which the distribution of each parameter starts."""
NEAR_PEAK = 0.1
"""Steps from the peak of a posterior are so much shorter than those to it."""
MOST_DENSE = 2000
"""Beyond so many parameters their correlations are too many to be learned."""
EVERY = 50
"""So many steps lie between two looks at the held-out rows."""
MEMORY = 0.98
"""What is kept is a moving average of the parameters over about 1 / (1 - MEMORY) steps, which removes most noise."""
FINAL_RATE = 0.05
"""The last step is so much shorter than the first."""
MOST_ITERATIONS = 500
"""So many iterations of L-BFGS are enough for parameters of one's own, from those of other weights."""
SETTLED = 0.01
"""A fit that ran to its last step has settled if held-out rows got likelier by fewer nats over the last quarter."""


@dataclass(frozen=True, eq=False)
class Rows:
    """A table as a program's values: training rows, and rows held out.

    Parameters
    ----------
    columns
        For each column its values, shape (n,).
    weight
        The weight of each row, shape (n,).
    train, held
        The places of both kinds of rows.
    """

    columns: Mapping[str, Tensor]
    weight: Tensor
    train: Tensor
    held: Tensor

    def at(self, places: Tensor) -> dict[str, Tensor]:
        """Return the values of some rows."""
        return {name: values[places] for name, values in self.columns.items()}


@dataclass(frozen=True)
class Settings:
    """How a distribution is fitted: the guide, and at most so many steps of Adam on batches of so many rows.

    Without patience the last parameters are kept, whatever the held-out rows say.
    """

    posterior: Guide
    draws: int
    steps: int
    batch_size: int
    learning_rate: float
    patience: int | None
    memory: float = MEMORY


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted distribution.

    Attributes
    ----------
    mechanism
        The distribution.
    centre
        For each parameter the median of the guide, at which the held-out rows are judged.
    draws
        Draws of each, shape (draws, ...); of a point one.
    state
        The guide's own numbers, from which another fit may start.
    history
        For each look at the held-out rows: step, loss (nats per training row), held_out (nats per held-out row).
    text
        What to warn of; empty if nothing.
    """

    mechanism: ConditionalDistribution
    centre: dict[str, Tensor]
    draws: dict[str, Tensor] = field(repr=False)
    state: tuple[Tensor, ...] = field(repr=False)
    history: tuple[dict[str, float], ...] = field(repr=False)
    text: str = ""
    interrupted: bool = False


def log_likelihood(law: ConditionalDistribution, parameters: Mapping[str, Tensor], rows: Rows, places: Tensor) -> float:
    """Return the weighted mean log-likelihood of some rows, in nats; NaN if there are none."""
    return _mean(_each(law, parameters, rows, places), rows.weight[places])


def _each(law: ConditionalDistribution, parameters: Mapping[str, Tensor], rows: Rows, places: Tensor) -> Tensor:
    if not len(places):
        return torch.empty(0)
    values = rows.at(places)
    with torch.no_grad():
        found: Tensor = law.at(parameters)(values).expand(places.shape).log_prob(values[law.column])
    return found


def _mean(each: Tensor, weight: Tensor) -> float:
    return float((weight * each).sum() / weight.sum())


def fit_law(
    law: ConditionalDistribution,
    rows: Rows,
    settings: Settings,
    bar: Any = None,
    start: Fit | None = None,
    *,
    keep: bool = False,
) -> Fit:
    """Fit a distribution by stochastic variational inference, until held-out rows get no likelier.

    The point of a distribution with one optimum is found by Newton's method instead, to the end, whatever held-out rows
    say.

    What is kept is the last state in which they are as likely as in the best one, but for a standard error of the
    difference. The best one itself is often an early one by chance, and an early distribution is too near the marginal
    one, which understates every effect.

    A distribution with correlated parameters is first fitted as a point, and its posterior starts as wide as the
    curvature there says (Laplace): held-out rows, which are judged at the median, would stop it long before its width
    has settled.

    Call it inside :func:`pyrofair._random.isolated` with a parameter store of its own, without validation.

    Parameters
    ----------
    law, rows, settings
        The distribution, the table, and how.
    bar
        A progress bar of ``settings.steps`` steps.
    start
        A fit of the same distribution from which to start; by default the distribution starts near the marginal one.
    keep
        Whether Ctrl-C keeps the best parameters so far, marked as interrupted. Of a posterior nothing is kept: how wide
        it is, is known at the end only.

    Raises
    ------
    DataError
        If the loss is not a finite number, or the distribution has too many parameters for a full covariance matrix.
    KeyboardInterrupt
        If Ctrl-C struck, and nothing is kept.
    """
    keep = keep and settings.posterior == "point"
    if settings.posterior == "point" and start is None and is_convex(law):
        return _fit_convex(law, rows, settings, bar, keep)
    run = _Run(law, rows, settings, start)
    if not run.parameters:
        value = log_likelihood(law, {}, rows, rows.held)
        return Fit(law, {}, {}, (), ({"step": 0.0, "loss": math.nan, "held_out": value},))
    text, interrupted = "", False
    if settings.posterior == "multivariate" and start is None and settings.steps:
        peak = fit_law(law, rows, replace(settings, posterior="point"), bar)
        text = peak.text
        settings = replace(settings, learning_rate=NEAR_PEAK * settings.learning_rate)
        pyro.clear_param_store()  # where the next guide would find the numbers of the first
        run = _Run(law, rows, settings, None, peak)
    best, kept, since = run.look(math.nan), run.state(), 0
    weight = rows.weight[rows.held]
    try:
        for step, loss in run.steps():
            if bar is not None:
                bar.update()
            if step % EVERY and step < settings.steps:
                continue
            seen = run.look(loss)
            gain, error = _gain(seen - best, weight)
            if not gain + error < 0.0 or settings.patience is None:  # without held-out rows the last is the best, too
                kept = run.state()
            if not gain <= 0.0:
                best, since = seen, step
            if settings.patience is not None and step - since >= settings.patience:
                break
        else:
            text = text or ("" if settings.patience is None else _unsettled(law.column, run.history, settings.steps))
    except KeyboardInterrupt:
        if not keep:
            raise
        text, interrupted = _interrupted(law), True
    return run.finish(kept, text, interrupted)


def _interrupted(law: ConditionalDistribution) -> str:
    return f"Interrupted while the distribution of {law.column!r} was fitted; the best parameters so far are kept."


def _fit_convex(law: ConditionalDistribution, rows: Rows, settings: Settings, bar: Any, keep: bool) -> Fit:
    """Fit a distribution with one optimum by Newton's method."""
    network = law.numbers
    assert isinstance(network, Network)
    centre = {name: torch.zeros_like(value) for name, value in network.start(law.column).items()}
    last = LastLayer.of(law, centre, rows)
    history: list[dict[str, float]] = []

    def look(loss: float) -> None:
        seen = log_likelihood(law, centre, rows, rows.held)
        history.append({"step": float(len(history)), "loss": loss / len(rows.train), "held_out": seen})

    look(math.nan)
    converged, interrupted, text = False, False, ""
    try:
        for theta, loss, settled in last.steps(last.read(centre), settings.steps):
            converged = settled
            if not math.isfinite(loss):
                raise DataError(
                    f"The loss of {law.column!r} is {loss} at step {len(history)}. Give the column another family than "
                    f"{law.family!r}."
                )
            centre = last.write(theta, centre)
            look(loss)
            if bar is not None:
                bar.update()
    except KeyboardInterrupt:
        if not keep:
            raise
        text, interrupted = _interrupted(law), True
    if not converged and not text and settings.steps and settings.patience is not None:
        text = (
            f"The distribution of {law.column!r} may not have settled: {settings.steps} step(s) of Newton's method "
            f"were too "
            "few. Take more steps."
        )
    return _point(law, centre, tuple(history), text, interrupted)


def _point(
    law: ConditionalDistribution,
    centre: dict[str, Tensor],
    history: tuple[dict[str, float], ...],
    text: str,
    interrupted: bool,
) -> Fit:
    draws = {name: value.unsqueeze(0) for name, value in centre.items()}
    return Fit(law, centre, draws, tuple(centre.values()), history, text, interrupted)


def refit_law(fit: Fit, rows: Rows, before: Rows, settings: Settings) -> Fit:
    """Fit a distribution again to the same rows with other weights, as far as these weights move it: a replicate.

    The point of a distribution whose numbers a network computes keeps its hidden layers, and the last one, linear in
    its parameters, moves to where the rows' weights bring it, by Newton's method to the end. If the distribution was no
    optimum with its own weights, the slope that was left is left again, so that equal weights change nothing. Points of
    parameters of one's own are fitted by L-BFGS to the end, all others by the steps that are set.

    Call it as :func:`fit_law`.

    Parameters
    ----------
    fit
        The distribution as fitted.
    rows, before
        The rows with the other weights, and with those it was fitted with.
    settings
        How.

    Raises
    ------
    DataError, KeyboardInterrupt
        As for :func:`fit_law`.
    """
    law = fit.mechanism
    if settings.posterior != "point" or not fit.centre:
        return fit_law(law, rows, settings, start=fit)
    if not has_last_layer(law):
        own = not isinstance(law.numbers, Network)
        return _settle(fit, rows, settings) if own else fit_law(law, rows, settings, start=fit)
    old, new = (LastLayer.of(law, fit.centre, each) for each in (before, rows))
    theta, loss = new.read(fit.centre), math.nan
    new = replace(new, tilt=old.gradient(theta))
    for moved, value, _ in new.steps(theta):
        if not math.isfinite(value):
            raise DataError(f"The loss of {law.column!r} is {value} with other weights.")
        theta, loss = moved, value
    centre = new.write(theta, fit.centre)
    seen = log_likelihood(law, centre, rows, rows.held)
    entry = {"step": fit.history[-1]["step"], "loss": loss / len(rows.train), "held_out": seen}
    return _point(law, centre, (entry,), "", False)


def _settle(fit: Fit, rows: Rows, settings: Settings) -> Fit:
    """Fit a point to all rows at once by L-BFGS, starting from another."""
    run = _Run(fit.mechanism, rows, settings, fit)
    optimiser = torch.optim.LBFGS(run.own, max_iter=MOST_ITERATIONS, line_search_fn="strong_wolfe")
    elbo = Trace_ELBO()  # type: ignore[no-untyped-call]

    def closure() -> Tensor:
        optimiser.zero_grad()
        whole = elbo.differentiable_loss(run.model, run.guide, rows.train)  # type: ignore[no-untyped-call]
        loss: Tensor = whole / len(rows.train)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    loss = float(optimiser.step(closure))  # type: ignore[no-untyped-call]
    if not all(bool(each.isfinite().all()) for each in run.own):
        raise DataError(f"The loss of {fit.mechanism.column!r} is {loss} with other weights.")
    run.average = run.raw()
    run.look(loss)
    return run.finish(run.state(), "", False)


def _gain(each: Tensor, weight: Tensor) -> tuple[float, float]:
    """Return the weighted mean of the gains of rows, and its standard error."""
    gain = _mean(each, weight)
    return gain, float((weight * (each - gain)).square().sum().sqrt() / weight.sum())


class _Run:
    """One run of variational inference: its guide, the moving average of its numbers, and what was seen."""

    def __init__(
        self, law: ConditionalDistribution, rows: Rows, settings: Settings, start: Fit | None, peak: Fit | None = None
    ) -> None:
        self.law, self.rows, self.settings = law, rows, settings
        first = law.numbers.start(law.column) if isinstance(law.numbers, Network) else {}
        if (near := start or peak) is not None:
            first = {name: value.clone() for name, value in near.centre.items()}  # guides write into what they get
        places = rows.train[: settings.batch_size]
        with torch.no_grad(), poutine.trace() as tracer, poutine.block(hide_fn=_is_row):
            self.model(places)
        sites: Any = tracer.trace.nodes
        self.parameters = [name for name, site in sites.items() if site["type"] == "sample"]
        self.priors = [sites[name]["fn"] for name in self.parameters]
        size = sum(sites[name]["value"].numel() for name in self.parameters)
        if settings.posterior == "multivariate" and size > MOST_DENSE:
            raise DataError(
                f"The distribution of {law.column!r} has {size} parameters; posterior='multivariate' learns how each "
                f"hangs "
                f"together with each other, and takes at most {MOST_DENSE}. Use posterior='normal', "
                "parameters='linear', or fewer hidden units."
            )
        if self.parameters:
            places_init = init_to_value(values=first, fallback=init_to_median)
            extra = {} if settings.posterior == "point" else {"init_scale": NARROW}
            self.guide = GUIDES[settings.posterior](self.model, init_loc_fn=places_init, **extra)
            self.guide(places)  # makes the guide's numbers
            self.own = list(self.guide.parameters())
            if start is not None:
                self.put(start.state)
            elif peak is not None:
                self.widen(places_init)
            self.average = self.raw()
        self.history: list[dict[str, float]] = [] if peak is None else [*peak.history]
        self.before = 0.0 if peak is None else peak.history[-1]["step"]
        self.done = 0

    def widen(self, places: Any) -> None:
        """Give the guide the width of the posterior's curvature where it starts; if that is no peak, leave it."""
        laplace: Any = AutoLaplaceApproximation(self.model, init_loc_fn=places)  # type: ignore[no-untyped-call]
        laplace(self.rows.train)
        try:
            found = laplace.laplace_approximation(self.rows.train)
        except RuntimeError:  # a matrix that is not positive definite
            return
        root = found.scale[:, None] * found.scale_tril
        if torch.isfinite(root).all():
            self.guide.scale = root.diagonal()
            self.guide.scale_tril = root / root.diagonal()[:, None]

    def model(self, places: Tensor) -> None:
        """Draw the parameters, and observe some rows."""
        law = self.law.draw()
        values, weight = self.rows.at(places), self.rows.weight[places]
        scale = weight * (len(self.rows.train) / len(places))
        with pyro.plate("rows", len(places)), poutine.scale(scale=scale):
            pyro.sample("row", law(values), obs=values[self.law.column])

    def raw(self) -> tuple[Tensor, ...]:
        return tuple(each.detach().clone() for each in self.own)

    def put(self, state: tuple[Tensor, ...]) -> None:
        with torch.no_grad():
            for own, value in zip(self.own, state, strict=True):
                own.copy_(value)

    def state(self) -> tuple[Tensor, ...]:
        return tuple(each.clone() for each in self.average)

    def steps(self) -> Iterator[tuple[int, float]]:
        """Take steps, and give the number of each and the mean loss of a row since the last look."""
        settings, n = self.settings, len(self.rows.train)
        batch = min(settings.batch_size, n)
        step = self.step()
        total, taken = 0.0, 0
        while self.done < settings.steps:
            order = self.rows.train[torch.randperm(n)]
            for first in range(0, n - batch + 1, batch):
                loss = step(order[first : first + batch]) / n
                if not math.isfinite(loss):
                    raise DataError(
                        f"The loss of {self.law.column!r} is {loss} at step {self.done}. Lower learning_rate="
                        f"{settings.learning_rate:g}, or give the column another family than {self.law.family!r}."
                    )
                self.done += 1
                total, taken = (total + loss, taken + 1) if (self.done - 1) % EVERY else (loss, 1)
                for mean, own in zip(self.average, self.own, strict=True):
                    mean.lerp_(own.detach(), 1.0 - settings.memory)
                yield self.done, total / taken
                if self.done == settings.steps:
                    return

    def step(self) -> Callable[[Tensor], float]:
        """Return what takes a step on a batch of rows and gives its loss.

        The point of a network takes the same step as by Pyro, whose handlers would need most of the time.
        """
        settings = self.settings
        rates = {
            "lr": settings.learning_rate, "lrd": FINAL_RATE ** (1.0 / max(settings.steps, 1)), "clip_norm": math.inf
        }  # fmt: skip
        if settings.posterior != "point" or not isinstance(self.law.numbers, Network):
            elbo = Trace_ELBO()  # type: ignore[no-untyped-call]
            svi = SVI(self.model, self.guide, pyro.optim.ClippedAdam(rates), elbo)  # type: ignore[no-untyped-call]
            by_pyro: Callable[[Tensor], float] = svi.step
            return by_pyro
        optimiser = ClippedAdam(self.own, **rates)
        law = self.law.of(self.own)

        def step(places: Tensor) -> float:
            values, weight = self.rows.at(places), self.rows.weight[places]
            scale = weight * (len(self.rows.train) / len(places))
            loss = -(scale * law(values).log_prob(values[self.law.column])).sum()
            for prior, own in zip(self.priors, self.own, strict=True):
                loss = loss - prior.log_prob(own)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            return float(loss.detach())

        return step

    def look(self, loss: float) -> Tensor:
        """Return the log-likelihood of each held-out row at the averaged parameters, and note its mean."""
        with self.averaged():
            each = _each(self.law, self.median(), self.rows, self.rows.held)
        value = _mean(each, self.rows.weight[self.rows.held])
        self.history.append({"step": self.before + self.done, "loss": loss, "held_out": value})
        return each

    @contextmanager
    def averaged(self) -> Iterator[None]:
        kept = self.raw()
        self.put(self.average)
        yield
        self.put(kept)

    def median(self) -> dict[str, Tensor]:
        places = self.rows.train[: self.settings.batch_size]
        return {name: value.detach().clone() for name, value in self.guide.median(places).items()}

    def finish(self, state: tuple[Tensor, ...], text: str, interrupted: bool) -> Fit:
        self.put(state)
        centre = self.median()
        if self.settings.posterior == "point":
            return replace(_point(self.law, centre, tuple(self.history), text, interrupted), state=state)
        places = self.rows.train[: self.settings.batch_size]
        with torch.no_grad():
            each = [self.guide(places) for _ in range(self.settings.draws)]
        draws = {name: torch.stack([one[name] for one in each]) for name in self.parameters}
        return Fit(self.law, centre, draws, state, tuple(self.history), text, interrupted)


def _is_row(site: Any) -> bool:
    return bool(site["name"] in ("row", "rows"))


def _unsettled(column: str, history: list[dict[str, float]], steps: int) -> str:
    values = [each["held_out"] for each in history]
    early = max(values[: max(3 * len(values) // 4, 1)])
    if not max(values) - early > SETTLED:
        return ""
    return (
        f"The distribution of {column!r} may not have settled: the held-out log-likelihood rose by "
        f"{max(values) - early:.3f} "
        f"nats per row over the last quarter of {steps} steps. Take more steps, or a higher learning_rate."
    )


Parameters = Literal["network", "linear"] | Numbers
"""What turns the columns read into a family's numbers: a network, a linear predictor, or a function of one's own."""

FEWEST = 20
"""The fewest rows that mechanisms are learned from."""
MARGINAL_STEPS, MARGINAL_RATE = 1000, 3e-2
REFIT_MEMORY = 0.9
FEWEST_TRAINED, TRIED = 10, 3
RESERVED = ("people", "row", "rows")


def make_mechanisms(
    reads: Mapping[str, Sequence[str]],
    families: Mapping[str, Family],
    parameters: Parameters | Mapping[str, Parameters],
    hidden: Sequence[int],
) -> list[ConditionalDistribution]:
    """Return an unfitted distribution for each column.

    Parameters
    ----------
    reads
        For each column to learn the columns that its distribution reads.
    families
        The family of each.
    parameters
        One for all, or for some columns; the others have networks.
    hidden
        The units of each hidden layer of a network.

    Raises
    ------
    DataError
        If a name is no column to learn, or something else is given.
    """
    each = parameters if isinstance(parameters, Mapping) else dict.fromkeys(reads, parameters)
    if unknown := [name for name in each if name not in reads]:
        raise DataError(
            f"parameters names {unknown[0]!r}, which is no column that is learned. There are: {', '.join(reads)}."
            f"{did_you_mean(unknown[0], reads)}"
        )
    laws = []
    for column, names in reads.items():
        kind, family = each.get(column, "network"), families[column]
        own = {name: families[name] for name in names}
        if callable(kind):
            laws.append(ConditionalDistribution(column, family, own, kind))
            continue
        if kind not in ("network", "linear"):
            raise DataError(
                f"parameters={kind!r} of {column!r} is not known; it is 'network', 'linear', or a function "
                "that returns a function from the values read to the numbers of the family."
            )
        widths = tuple(features(families[name], torch.zeros(1)).shape[-1] for name in names)
        network = Network(widths, tuple(hidden) if kind == "network" else (), family.size, direct=True)
        laws.append(ConditionalDistribution(column, family, own, network))
    return laws


def split_rows(values: Mapping[str, Tensor], weight: Tensor, fraction: float) -> Rows:
    """Split the rows that have a weight in training and held-out ones, by torch's global generator.

    Raises
    ------
    DataError
        If hardly any are left to learn from.
    """
    places = torch.randperm(len(weight))
    places = places[weight[places] > 0]
    held = round(fraction * len(places))
    if len(places) - held < FEWEST_TRAINED:
        raise DataError(
            f"validation_fraction={fraction!r} leaves {len(places) - held} of {len(places)} rows to learn from; at "
            f"least {FEWEST_TRAINED} are needed."
        )
    return Rows(values, weight / weight[places[held:]].mean(), places[held:], places[:held])


def try_mechanisms(laws: Sequence[ConditionalDistribution], rows: Rows) -> None:
    """Run each distribution on a few rows before any is fitted.

    Parameters
    ----------
    laws, rows
        The distributions, and the table.

    Raises
    ------
    DataError
        If parameters of one's own fail, or two sites of the program would have one name.
    """
    taken = {law.column: f"the column {law.column!r}" for law in laws}
    with isolated(0), _quiet(), torch.no_grad():
        for law in laws:
            for name in _try_law(law, rows.at(rows.train[:TRIED])):
                if name in taken or name in RESERVED:
                    raise DataError(
                        f"A parameter of the distribution of {law.column!r} has the name {name!r} in the program, "
                        f"which is that "
                        f"of {taken.get(name, 'a plate or a site of rows')} too. Rename one of them."
                    )
                taken[name] = f"a parameter of the distribution of {law.column!r}"


def _try_law(law: ConditionalDistribution, values: Mapping[str, Tensor]) -> list[str]:
    """Return the names of a distribution's parameters."""
    try:
        with poutine.block(), poutine.trace() as tracer:
            made = law.draw()
        made(values).expand((TRIED,)).log_prob(values[law.column])
    except DataError:
        raise
    except Exception as error:
        raise DataError(
            f"The parameters of {law.column!r} fail: {type(error).__name__}: {error}. Parameters of one's own are a "
            "function without arguments that draws them (pyro.sample) and returns a function from the values read, a "
            f"dictionary of tensors ({', '.join(law.reads) or 'empty'}), to the family's numbers."
        ) from error
    nodes: Mapping[str, Any] = tracer.trace.nodes
    return [name for name, site in nodes.items() if site["type"] == "sample"]


def reweigh_rows(rows: Rows, weight: Tensor) -> Rows:
    """Return rows with other weights, without those of weight 0.

    Raises
    ------
    DataError
        If hardly any are left to learn from.
    """
    train, held = (places[weight[places] > 0] for places in (rows.train, rows.held))
    if len(train) < FEWEST_TRAINED:
        raise DataError(f"Only {len(train)} training rows have a weight above 0; at least {FEWEST_TRAINED} are needed.")
    return Rows(rows.columns, weight / weight[train].mean(), train, held)


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out Pyro's checks, and its warning of a loss that is not a number, which is an error here."""
    with pyro.validation_enabled(False), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Encountered ", UserWarning)
        yield


@contextmanager
def _apart(seed: int, column: str) -> Iterator[None]:
    """Fit one distribution with a seed and a parameter store of its own, so that it does not depend on what else is
    learned.
    """
    set_seed(crc32(f"{seed} {column}".encode()))
    with pyro.get_param_store().scope():
        yield


def fit_mechanisms(
    laws: Sequence[ConditionalDistribution], rows: Rows, settings: Settings, seed: int, progress: bool
) -> tuple[dict[str, Fit], list[str]]:
    """Fit distributions one after the other, and return what there is to warn of.

    An interruption (Ctrl-C) keeps the best parameters so far of the distribution that was being fitted, and leaves
    those after it near their marginal distributions; while posteriors are fitted it goes on to the caller.
    """
    fits: dict[str, Fit] = {}
    missed: list[str] = []
    with (
        isolated(seed),
        _quiet(),
        tqdm(total=settings.steps * len(laws), desc="mechanisms", disable=not progress, leave=False) as bar,
    ):
        for i, law in enumerate(laws, 1):
            bar.set_postfix_str(law.column)
            stopped = any(fit.interrupted for fit in fits.values())
            with _apart(seed, law.column):
                how = replace(settings, steps=0) if stopped else settings
                fits[law.column] = fit_law(law, rows, how, bar, keep=True)
            missed += [law.column] * stopped
            bar.update(i * settings.steps - bar.n)
    texts = [fit.text for fit in fits.values() if fit.text]
    if missed:
        texts.append(f"Not fitted at all, and near their marginal distributions: {', '.join(map(repr, missed))}.")
    return fits, texts


def refit_mechanisms(
    fits: Mapping[str, Fit], rows: Rows, before: Rows, settings: Settings, seed: int
) -> dict[str, Fit]:
    """Fit the same distributions again, starting from what they are, whatever held-out rows say.

    Parameters
    ----------
    fits
        The distributions as fitted.
    rows, before
        The rows with other weights, and with those they were fitted with.
    settings, seed
        How, and what seeds it.

    Raises
    ------
    KeyboardInterrupt
        If Ctrl-C struck: a replicate that is half done is none.
    """
    found = {}
    settings = replace(settings, patience=None, memory=REFIT_MEMORY)
    with isolated(seed), _quiet():
        for column, fit in fits.items():
            with _apart(seed, column):
                found[column] = refit_law(fit, rows, before, settings)
    return found


def marginal_log_likelihood(law: ConditionalDistribution, rows: Rows, settings: Settings, seed: int) -> float:
    """Return the log-likelihood of held-out rows under the marginal distribution of a column, fitted with the same
    family.

    For zeros and ones and categories it is known: their frequencies. An interruption (Ctrl-C) goes on to the caller: a
    gain over half a marginal distribution is none.
    """
    network = Network((), (), law.family.size)
    alone = ConditionalDistribution(law.column, law.family, {}, network)
    with isolated(seed), _quiet(), _apart(seed, law.column):
        centre = network.start(law.column)
        if not has_last_layer(alone):
            chosen = replace(settings, posterior="point", learning_rate=MARGINAL_RATE, steps=MARGINAL_STEPS)
            centre = fit_law(alone, rows, chosen).centre
        elif not isinstance(law.family, Binary | Categorical):
            last = LastLayer.of(alone, centre, rows)
            for theta, _, _ in last.steps(last.read(centre)):
                centre = last.write(theta, centre)
        return log_likelihood(alone, centre, rows, rows.held)


def require_settings(settings: Settings, hidden: Sequence[int], fraction: float) -> None:
    """Refuse settings that are unknown or out of range."""
    require_choice("posterior", settings.posterior, tuple(GUIDES))
    require_layers("hidden", hidden)
    whole = {"posterior_draws": settings.draws, "steps": settings.steps, "batch_size": settings.batch_size,
             "patience": settings.patience}  # fmt: skip
    for name, number in whole.items():
        require_integer(name, number)
    require_real("validation_fraction", fraction, least=0.0, below=1.0)
    require_rate(settings.learning_rate)
