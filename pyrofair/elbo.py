"""How is a structural equation model with latent noise fitted? By Pyro's SVI on the evidence lower bound."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyro
import pyro.optim
import torch
from numpy.typing import NDArray
from pyro.infer import SVI, TraceMeanField_ELBO
from torch import Tensor
from tqdm.auto import tqdm

from pyrofair.exceptions import DataError
from pyrofair.isolation import isolated
from pyrofair.latent_sem import LatentSEM, People

__all__ = ["Steps", "doubt", "evidence", "fit_elbo", "unsettled"]

STEADY = 1 / 3
"""For so much of the time all steps have one size; then they shrink geometrically."""
FINAL_RATE = 0.01
"""The last step is so much shorter than the first."""
PROGRESS_AFTER = 5.0
TOLERANCE = 0.02
"""A loss has settled if, while steps had one size, it gained at most this share of itself since half-time."""


@dataclass(frozen=True)
class Steps:
    """Epochs, rows of a batch, the size of the first step of Adam, and the precision of the weights' normal prior.

    The loss is in nats of all people together, so that a weight decay of 1 is a standard normal prior on each weight.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.0
    progress: bool = False


def fit_elbo(sem: LatentSEM, people: People, steps: Steps, seed: int) -> list[float]:
    """Fit laws and guide together, and return the loss of each epoch in nats a person.

    The loss is the negative evidence lower bound, with the divergence of the guide from the prior in closed form, plus
    the penalty on the discrepancy between groups. Batches hold their share of both groups. Steps shrink geometrically.
    An interruption (Ctrl-C) ends the fit with the networks of the last whole epoch, so that fewer losses are returned;
    before the end of the first it goes on to the caller.

    Parameters
    ----------
    sem
        The program; its networks are trained in place.
    people
        The rows.
    steps
        How long and in what steps.
    seed
        Seeds batches and latent draws. The global generators and the parameter store are left as they were.

    Raises
    ------
    DataError
        If the loss is not finite.
    """
    count = max(1, -(-len(people) // steps.batch_size))
    schedule: Any = vars(pyro.optim)["LambdaLR"]  # made when Pyro is imported, unknown to type checkers
    adam = schedule(
        {
            "optimizer": torch.optim.Adam,
            "optim_args": {"lr": steps.learning_rate, "weight_decay": steps.weight_decay},
            "lr_lambda": lambda epoch: _rate(epoch / max(steps.epochs - 1, 1)),
        }
    )
    losses: list[float] = []
    kept: dict[str, Tensor] = {}
    with _scoped(seed), _bar(steps) as bar:
        svi = SVI(sem.model, sem.guide, adam, TraceMeanField_ELBO())  # type: ignore[no-untyped-call]
        try:
            for epoch in bar:
                loss = _take_epoch(svi, people, count)
                adam.step()
                if not math.isfinite(loss):
                    raise DataError(
                        f"Training diverged: the loss is {loss} in epoch {epoch}. Lower "
                        f"learning_rate={steps.learning_rate:g}."
                    )
                kept = {name: value.clone() for name, value in sem.state_dict().items()}
                losses.append(loss)
        except KeyboardInterrupt:
            if not losses:
                raise
            sem.load_state_dict(kept)
    for parameter in sem.parameters():
        vars(parameter).pop("unconstrained", None)  # a weak reference of the parameter store's, which cannot be pickled
    return losses


def _take_epoch(svi: SVI, people: People, count: int) -> float:
    """Take a step on each of so many batches, and return the loss in nats a person."""
    total = 0.0
    for rows in _batches(people.group, count):
        total += svi.step(people, rows)  # type: ignore[no-untyped-call]
    return total / count / float(people.weight.sum())


def doubt(losses: list[float], steps: Steps) -> str:
    """Return what to warn of after a fit; empty if nothing."""
    if len(losses) < steps.epochs:
        return f"Interrupted after {len(losses)} of {steps.epochs} epochs; the networks of the last of these are kept."
    if gained := unsettled(losses):
        return (
            f"The loss may not have settled: it fell by {gained:.1%} in the second half of the time before steps "
            f"shrank. Take more epochs than {steps.epochs}, or another learning_rate than {steps.learning_rate:g}."
        )
    return ""


def evidence(sem: LatentSEM, people: People, draws: int = 10, seed: int = 0) -> float:
    """Return the evidence lower bound in nats a person, averaged over draws of the latent variables.

    Parameters
    ----------
    sem, people
        The fitted program, and rows.
    draws, seed
        How many draws, and what seeds them.
    """
    with _scoped(seed), torch.no_grad():
        bound = TraceMeanField_ELBO(num_particles=draws)  # type: ignore[no-untyped-call]
        loss = bound.loss(sem.model, sem.guide, people, torch.arange(len(people)))  # type: ignore[no-untyped-call]
    return -float(loss) / float(people.weight.sum())


def unsettled(losses: list[float]) -> float:
    """Return what share of the loss (or of a nat, if it is less) was gained in the second half of equal steps.

    A loss that falls like one over time still has as much before it as it has gained since half-time. It is compared
    before steps shrink: then it falls in any case, however far it is from its end.

    Returns
    -------
    float
        The share, or 0 if it is at most 2 %, two standard errors allowed for.
    """
    trace: NDArray[np.float64] = np.asarray(losses)[: max(math.ceil(STEADY * len(losses)), 1)]
    window = max(len(trace) // 6, 1)
    half = max(len(trace) // 2, window)
    before, last = trace[half - window : half], trace[-window:]
    error = np.sqrt((before.var() + last.var()) / window)
    size = max(abs(float(last.mean())), 1.0)
    gain = float(before.mean() - last.mean())
    return gain / size if gain - 2.0 * error > TOLERANCE * size else 0.0


def _bar(steps: Steps) -> Any:
    return tqdm(range(steps.epochs), "epochs", disable=not steps.progress, delay=PROGRESS_AFTER, leave=False)


def _rate(time: float) -> float:
    """Return the size of a step, as a share of the first, at a time between 0 and 1."""
    return float(FINAL_RATE ** max((time - STEADY) / (1.0 - STEADY), 0.0))


@contextmanager
def _scoped(seed: int) -> Iterator[None]:
    with (
        isolated(seed),
        pyro.get_param_store().scope(),
        pyro.validation_enabled(False),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Encountered NaN", UserWarning)  # the loss is looked at here
        yield


def _batches(group: Tensor, count: int) -> list[Tensor]:
    """Split the rows at random into batches that hold both groups in their shares."""
    order = torch.randperm(len(group))
    order = order[torch.argsort(group[order], stable=True)]
    return [order[i::count] for i in torch.randperm(count).tolist()]
