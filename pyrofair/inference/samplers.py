"""Stochastic variational inference and the No-U-Turn sampler, each run in one way wherever something is fitted."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any, Literal, NamedTuple

import numpy as np
import pyro
import torch
from numpy.typing import NDArray
from pyro import poutine
from pyro.infer import MCMC, NUTS, Trace_ELBO
from pyro.infer.autoguide import AutoDelta, AutoMultivariateNormal, AutoNormal, init_to_uniform
from torch import Tensor

from pyrofair._progress import progress_bar

__all__ = [
    "GUIDES",
    "Chains",
    "Fall",
    "Guide",
    "NormalGuide",
    "Schedule",
    "descend",
    "fall",
    "fit_guide",
    "fitting",
    "outside",
    "run_nuts",
    "sizes_of",
]

Guide = Literal["point", "normal", "multivariate"]
NormalGuide = Literal["normal", "multivariate"]
GUIDES: dict[str, Any] = {"point": AutoDelta, "normal": AutoNormal, "multivariate": AutoMultivariateNormal}

MOST_DENSE = 200
"""Beyond so many unknowns NUTS scales each by itself instead of learning their correlations."""
LEAST_DRAWS = 4
"""So many draws of the first chain are kept when a run is interrupted."""
WINDOW = 1 / 8
"""A guide that is not judged while it is fitted is averaged over about the last such share of its steps."""


@contextmanager
def fitting(*, stored: bool = False) -> Iterator[None]:
    """Fit without Pyro's checks, its warning of a loss that is not finite, and its global parameter store.

    With ``stored`` the model may read that store; the guide's numbers stay out of it all the same.
    """
    with (
        nullcontext() if stored else pyro.get_param_store().scope(),
        pyro.validation_enabled(False),
        pyro.settings.context(module_local_params=True),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Encountered ", UserWarning)  # callers look at the loss
        yield


def outside(program: Callable[..., Any]) -> Callable[..., Any]:
    """Return a program that reads Pyro's parameter store as it is now, also where a guide keeps its numbers in itself.

    A Pyro module made before cannot be run in Pyro's local mode, and ``pyro.param`` would be read anew there.
    """
    state = pyro.get_param_store().get_state()

    def run(*args: Any) -> Any:
        with pyro.settings.context(module_local_params=False), pyro.get_param_store().scope(state):
            return program(*args)

    return run


# -- stochastic variational inference ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Schedule:
    """So many steps of Adam: of one size for a share of the time, then shrinking geometrically to a share of it."""

    steps: int
    rate: float
    steady: float = 0.0
    final: float = 0.05
    weight_decay: float = 0.0

    def size(self, step: int) -> float:
        """Return the size of a step, counted from 0, as a share of the first."""
        time = step / max(self.steps - 1, 1)
        return float(self.final ** max((time - self.steady) / (1.0 - self.steady), 0.0))


def descend(
    loss: Callable[[Any], Tensor],
    numbers: Sequence[Tensor],
    batches: Iterable[Any],
    schedule: Schedule,
    *,
    average: Sequence[Tensor] = (),
    memory: float = 0.0,
) -> Iterator[Tensor]:
    """Take steps of Adam, and yield the loss after each: callers stop early, keep states and catch Ctrl-C.

    A loss stays on its device until it is read, because a GPU would wait for that at each step.

    The loss of a batch, such as Pyro's ``ELBO.differentiable_loss`` of a model and its guide, is differentiated, unless
    it leaves its slopes with the numbers itself and needs no gradient; ``average``, in the shapes of the numbers, moves
    with them and keeps a share ``memory`` of itself at each step.
    """
    optimiser = torch.optim.Adam(numbers, lr=schedule.rate, weight_decay=schedule.weight_decay, fused=True)
    for step, batch in zip(range(schedule.steps), batches, strict=False):
        optimiser.param_groups[0]["lr"] = schedule.rate * schedule.size(step)
        value = loss(batch)
        if value.requires_grad:
            optimiser.zero_grad()
            value.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        for mean, own in zip(average, numbers, strict=bool(average)):
            mean.lerp_(own.detach(), 1.0 - memory)
        yield value.detach()


def fit_guide(
    model: Callable[[], Any],
    guide: NormalGuide,
    schedule: Schedule,
    *,
    init: Callable[..., Any],
    keep: bool = False,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> tuple[Any, list[float]]:
    """Fit a normal guide to all unknowns of a model without arguments, and return it and the loss of each step.

    Call it, and draw from the guide, inside :func:`fitting`. Its numbers are averaged over the last steps, to remove
    most of their noise. With ``keep`` Ctrl-C ends the fit with the steps that are done.
    """
    family = GUIDES[guide](model, init_loc_fn=init)
    family()  # makes its numbers
    numbers = list(family.parameters())
    average = [each.detach().clone() for each in numbers]
    elbo = Trace_ELBO()  # type: ignore[no-untyped-call]
    loss = partial(elbo.differentiable_loss, model, family)
    losses: list[float] = []
    memory = max(1.0 - 1.0 / (WINDOW * schedule.steps), 0.0)
    try:
        for value in descend(lambda _: loss(), numbers, repeat(None), schedule, average=average, memory=memory):
            losses.append(float(value))
            on_step(len(losses) - 1, losses[-1])
    except KeyboardInterrupt:
        if not keep or not losses:
            raise
    if len(losses) == schedule.steps:
        with torch.no_grad():
            for own, mean in zip(numbers, average, strict=True):
                own.copy_(mean)
    return family, losses


class Fall(NamedTuple):
    """By how much losses fall over their last part, and the standard error; NaN of too few losses."""

    drop: float
    error: float

    def settled(self, tolerance: float) -> bool:
        """Return whether it is at most the tolerance, two standard errors allowed for."""
        return self.drop + 2.0 * self.error <= tolerance


def fall(losses: Sequence[float] | NDArray[np.float64], share: float = 0.25) -> Fall:
    """Return how far losses fall over their last share, by a straight line."""
    last = np.asarray(losses)[-max(int(share * len(losses)), 3) :]
    if len(last) < 2:
        return Fall(math.nan, math.nan)
    time = np.linspace(-0.5, 0.5, len(last))
    slope = float(time @ last / (time @ time))
    if len(last) < 3:
        return Fall(-slope, math.nan)
    residual = last - last.mean() - slope * time
    return Fall(-slope, float(np.sqrt(residual @ residual / (len(last) - 2) / (time @ time))))


def sizes_of(model: Callable[[], Any]) -> dict[str, int]:
    """Return how many numbers each unknown site of a model holds."""
    with torch.no_grad(), poutine.trace() as tracer:
        model()
    sites: Mapping[str, Any] = tracer.trace.nodes
    return {
        name: site["value"].numel()
        for name, site in sites.items()
        if site["type"] == "sample" and not site["is_observed"] and not poutine.util.site_is_subsample(site)
    }


# -- the No-U-Turn sampler --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chains:
    """Draws of chains: sites (chain, draw, ...), diverging and log-density (chain, draw), acceptance of each chain.

    ``text`` describes what an interruption left; it is empty otherwise.
    """

    samples: dict[str, Tensor]
    diverging: NDArray[np.bool_]
    lp: NDArray[np.float64]
    acceptance: list[float]
    text: str


def run_nuts(
    model: Callable[[], Any],
    names: Sequence[str],
    *,
    draws: int,
    warmup: int,
    chains: int,
    init: Callable[..., Any] = init_to_uniform,
    keep: bool = False,
    progress: bool = False,
) -> Chains:
    """Draw sites of a model by the No-U-Turn sampler, one chain after the other, each from a start of its own.

    The correlations of these sites are learned unless they are many; those of other unknowns are not. With ``keep``
    Ctrl-C ends the run with the chains that are done, or with the draws of the first.
    """
    sizes = sizes_of(model)
    dense = [tuple(names)] if sum(sizes[name] for name in names) <= MOST_DENSE else False
    done: list[_Chain] = []
    text = ""
    with progress_bar("NUTS", total=chains * (warmup + draws), shown=progress) as bar:
        for number in range(1, chains + 1):
            chain = _Chain(NUTS(model, full_mass=dense, init_strategy=init))  # type: ignore[no-untyped-call]
            try:
                chain.run(draws, warmup, bar)
            except KeyboardInterrupt:
                last = len(chain.kept)
                if not keep or (not done and last < LEAST_DRAWS):
                    raise
                kept = f"{len(done)} of {chains} chains are done and used"
                if not done:
                    done, kept = [chain], f"its {last} of {draws} draws are used"
                elif last:
                    kept += f"; the {last} draws of the next one are left out, for chains are of one length"
                text = f"Interrupted in chain {number} of {chains}: {kept}."
                break
            done.append(chain)
    return Chains(
        {name: torch.stack([chain.site(name) for chain in done]) for name in names},
        np.stack([np.isin(range(len(chain.kept)), chain.reported["divergences"]) for chain in done]),
        np.stack([[lp for _, lp in chain.kept] for chain in done]),
        [float(chain.reported["acceptance rate"]) for chain in done],
        text,
    )


@dataclass
class _Chain:
    """One chain: its kernel, the unconstrained unknowns and log-density of each draw, and the kernel's last report."""

    kernel: Any
    kept: list[tuple[dict[str, Tensor], float]] = field(default_factory=list)
    reported: dict[str, Any] = field(default_factory=dict)

    def run(self, draws: int, warmup: int, bar: Any) -> None:
        """Warm up and draw; a hook collects each draw as soon as it is made, for ``MCMC`` loses them at Ctrl-C."""

        def collect(kernel: NUTS, unconstrained: dict[str, Tensor], stage: str, _: int) -> None:
            bar.update()
            if stage == "Sample":
                lp = -kernel.potential_fn(unconstrained).item()
                self.reported = kernel.diagnostics()  # type: ignore[no-untyped-call]
                self.kept.append(({name: value.detach().clone() for name, value in unconstrained.items()}, lp))

        MCMC(self.kernel, draws, warmup, hook_fn=collect, disable_progbar=True).run()  # type: ignore[no-untyped-call]

    def site(self, name: str) -> Tensor:
        """Return a site's draws, shape (draw, ...)."""
        values = torch.stack([each[name] for each, _ in self.kept])
        found: Tensor = self.kernel.transforms[name].inv(values) if name in self.kernel.transforms else values
        return found
