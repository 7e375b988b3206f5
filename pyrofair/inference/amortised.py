"""A program and a guide of units' unknown noise given their rows, fitted together by stochastic variational inference.

A guide is a Pyro program of the rows, ``guide(rows)``, where ``rows`` holds the values of each observed site, units in
their axis; inside a plate of the units it draws each unknown noise site of the program. It is amortised: what it draws
for a unit depends on the unit's row alone, so that it serves rows that it was not fitted to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from pyro.infer import Trace_ELBO, TraceMeanField_ELBO
from pyro.poutine.messenger import Messenger
from torch import Tensor

from pyrofair._progress import progress_bar
from pyrofair._random import isolated
from pyrofair.exceptions import DataError
from pyrofair.inference.likelihood import Likelihood
from pyrofair.inference.samplers import Schedule, descend, fall, fitting

__all__ = [
    "AmortisedGuide",
    "Problem",
    "Steps",
    "check_convergence",
    "evidence_bound",
    "fit_amortised",
    "mean_discrepancy",
    "unsettled",
]

AmortisedGuide = Callable[[Mapping[str, Tensor]], Any]
"""From the values of each observed site, units in their axis, it draws the unknown noise of these units."""

STEADY, FINAL = 1 / 3, 0.01
"""For so much of the time all steps have one size; then they shrink to this share of it."""
EVIDENCE_DRAWS, ROWS_AT_ONCE = 50_000, 2**14
"""The evidence is averaged over so many draws of latent variables of all units together, and these many at a time."""
TOLERANCE = 0.02
"""A loss has settled if, while steps had one size, it gained at most this share of itself since half-time."""


def mean_discrepancy(points: Tensor, group: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return an unbiased estimate of the squared maximum mean discrepancy of two groups, under a Gaussian kernel.

    With ``k(x, y) = exp(-|x - y|^2 / (2 d))`` it is the mean of k over all pairs of different points in group 0, plus
    that in group 1, minus twice that between the groups (Gretton et al., 2012, eq. 3). ``points`` has shape (n, d),
    ``group`` (n,) holds 0 or 1. Of two groups with one distribution its mean is 0, whatever their sizes, so that it may
    be negative. It is 0 if a group has fewer than two points.

    >>> mean_discrepancy(torch.tensor([[0.0], [0.0], [2.0], [2.0]]), torch.tensor([0, 0, 1, 1]))  # 2 - 2 exp(-2)
    tensor(1.7293)
    """
    mass = torch.ones_like(points[:, 0]) if weight is None else weight.to(points)
    kernel = torch.exp(torch.cdist(points, points).square() / (-2.0 * points.shape[1]))
    zero, one = (mass * (group == value).to(points) for value in (0, 1))
    pairs = [each.sum().square() - each.square().sum() for each in (zero, one)]
    enough = torch.stack(pairs).amin() > 1e-12 * mass.square().sum()  # stays on its device, which nothing waits for
    within = [
        (each @ kernel @ each - (each.square() * kernel.diagonal()).sum()) / torch.where(enough, pair, 1.0)
        for each, pair in zip((zero, one), pairs, strict=True)
    ]
    between = (zero @ kernel @ one) / torch.where(enough, zero.sum() * one.sum(), 1.0)
    return torch.where(enough, within[0] + within[1] - 2.0 * between, 0.0)


@dataclass(frozen=True)
class Steps:
    """Epochs, rows of a batch, the size of the first step of Adam, and the precision of the weights' normal prior.

    The loss is in nats of all units together, so that a weight decay of 1 is a standard normal prior on each weight.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.0
    progress: bool = False


class _Weigh(Messenger):
    """Multiply the log-probabilities of units' sites by weights, (m,) each, and keep the values of some sites."""

    def __init__(self, scales: Mapping[str, Tensor], axes: Mapping[str, int], kept: Sequence[str]) -> None:
        super().__init__()
        self.scales, self.axes, self.kept = scales, axes, kept
        self.values: dict[str, Tensor] = {}

    def _pyro_sample(self, msg: Any) -> None:
        scale = self.scales.get(msg["name"])
        if scale is not None:
            axis = self.axes.get(msg["name"], 0)
            after = max(len(msg["fn"].batch_shape) - 1 - axis, 0)
            msg["scale"] = msg["scale"] * scale.reshape(-1, *[1] * after)

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg["name"] in self.kept:
            self.values[msg["name"]] = msg["value"]


@dataclass(frozen=True, eq=False)
class Problem:
    """A program conditioned on n rows, and the guide of their unknown noise.

    ``weight`` and ``group`` (0 or 1) are those of the rows, shape (n,). ``of_parameters`` is the guide of the program's
    parameters, if they are drawn. The guide does not see ``hidden`` sites, and the log-likelihood of ``ignored`` ones
    does not count. ``discrepancy`` is the strength, in nats a unit, of a penalty on the discrepancy between the two
    groups of each latent variable. The divergence of the loss is in closed form if ``analytic``, else estimated.
    """

    likelihood: Likelihood
    guide: AmortisedGuide
    weight: Tensor
    group: Tensor
    of_parameters: Callable[[], Any] | None = None
    hidden: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()
    analytic: bool = True
    discrepancy: float = 0.0

    def __len__(self) -> int:
        return len(self.weight)

    def loss(self, rows: Tensor) -> Tensor:
        """Return the negative evidence lower bound, and the penalty, in nats of all units, as some rows estimate it."""
        model, weight = self.likelihood, self.weight[rows]
        given = [*model.rows, *model.evidence, *(f"{node}__log_density" for node in model.inverted)]
        share = weight * (len(self) / len(rows))
        scales = dict.fromkeys((*given, *model.latent), share) | dict.fromkeys(self.ignored, 0.0 * share)
        elbo: Any = TraceMeanField_ELBO if self.analytic else Trace_ELBO
        with _Weigh(scales, model.axes, model.latent) as weigh:
            found: Tensor = elbo().differentiable_loss(*self._pair(rows))
        if self.discrepancy:
            points = (values.movedim(model.axes.get(site, 0), 0) for site, values in weigh.values.items())
            apart = [mean_discrepancy(each.reshape(len(rows), -1), self.group[rows], weight) for each in points]
            found = found + self.discrepancy * self.weight.sum() * torch.stack(apart).sum()
        return found

    def _pair(self, rows: Tensor) -> tuple[Callable[[], None], Callable[[], None]]:
        """Return the model and the guide of some of the rows."""
        model = self.likelihood.at(rows)

        def guide() -> None:
            if self.of_parameters is not None:
                self.of_parameters()
            if model.latent:
                self.guide({site: values for site, values in model.rows.items() if site not in self.hidden})

        return model, guide


def fit_amortised(problem: Problem, numbers: Sequence[Tensor], steps: Steps, seed: int) -> list[float]:
    """Fit numbers of a program and its guide in place, and return the loss of each epoch in nats a unit.

    Batches hold their share of both groups. An interruption (Ctrl-C) ends the fit with the numbers of the last whole
    epoch; before the end of the first it goes on to the caller. A DataError says that the loss diverged.
    """
    count = max(1, -(-len(problem) // steps.batch_size))
    schedule = Schedule(steps.epochs * count, steps.learning_rate, STEADY, FINAL, steps.weight_decay)
    batches = (rows for _ in range(steps.epochs) for rows in _batches(problem.group, count))
    total, losses = torch.zeros((), dtype=torch.float64, device=problem.weight.device), list[float]()
    kept: list[Tensor] = []
    bar = progress_bar("epochs", total=steps.epochs, shown=steps.progress)
    with isolated(seed), fitting(stored=True), bar:
        try:
            for step, value in enumerate(descend(problem.loss, numbers, batches, schedule), 1):
                total = total + value.double()
                if step % count:
                    continue
                if not math.isfinite(loss := float(total)):
                    raise DataError(
                        f"Training diverged: the loss is {loss} in epoch {len(losses)}. Lower "
                        f"learning_rate={steps.learning_rate:g}."
                    )
                kept = [each.detach().clone() for each in numbers]
                losses.append(loss / count / float(problem.weight.sum()))
                total = torch.zeros_like(total)
                bar.update()
        except KeyboardInterrupt:
            if not losses:
                raise
            with torch.no_grad():
                for own, last in zip(numbers, kept, strict=True):
                    own.copy_(last)
    return losses


def check_convergence(losses: list[float], steps: Steps) -> str:
    """Return the warning to give after a fit; empty if there is none."""
    if len(losses) < steps.epochs:
        return f"Interrupted after {len(losses)} of {steps.epochs} epochs; the networks of the last of these are kept."
    if gained := unsettled(losses):
        return (
            f"The loss may not have settled: it fell by {gained:.1%} in the second half of the time before steps "
            f"shrank. Take more epochs than {steps.epochs}, or another learning_rate than {steps.learning_rate:g}."
        )
    return ""


def unsettled(losses: list[float]) -> float:
    """Return the share of the loss (or of a nat, if it is less) gained in the second half of equal steps.

    It is 0 if it is at most 2 %, two standard errors allowed for. A loss that falls like one over time still has as
    much before it as it has gained since half-time. It is compared before steps shrink: then it falls in any case,
    however far it is from its end.
    """
    trace = losses[: max(math.ceil(STEADY * len(losses)), 1)]
    if not trace:
        return 0.0
    trend = fall(trace, share=0.5)
    size = max(abs(sum(last := trace[-max(len(trace) // 6, 1) :]) / len(last)), 1.0)
    return trend.drop / size if trend.drop - 2.0 * trend.error > TOLERANCE * size else 0.0


def evidence_bound(problem: Problem, seed: int = 0) -> float:
    """Return the evidence lower bound in nats a unit, at some draws of the latent variables of each: more if few."""
    n, problem = len(problem), replace(problem, discrepancy=0.0)
    draws = -(-EVIDENCE_DRAWS // n)
    with isolated(seed), fitting(stored=True), torch.no_grad():
        parts = torch.arange(n).repeat(draws).split(ROWS_AT_ONCE)  # type: ignore[no-untyped-call]
        loss = sum(float(problem.loss(rows)) * len(rows) for rows in parts) / (draws * n)
    return -loss / float(problem.weight.sum())


def _batches(group: Tensor, count: int) -> Iterator[Tensor]:
    """Split the rows at random into batches that hold both groups in their shares."""
    order = torch.randperm(len(group))
    order = order[torch.argsort(group[order], stable=True)]
    return (order[i::count] for i in torch.randperm(count).tolist())
