"""How are the unknowns of a conditioned program drawn? By Pyro's No-U-Turn sampler, or from a variational guide."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pyro import poutine
from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from pyro.infer.autoguide import AutoMultivariateNormal, AutoNormal, init_to_median
from pyro.ops.stats import effective_sample_size, split_gelman_rubin
from pyro.optim import ClippedAdam
from torch import Tensor
from tqdm.auto import tqdm

from pyrofair.inference.likelihood import Likelihood, PosteriorError

__all__ = ["GUIDES", "Draws", "derive", "draw_nuts", "draw_svi"]

GUIDES = {"normal": AutoNormal, "multivariate": AutoMultivariateNormal}
R_HAT = 1.01
MOST_DENSE = 200
"""Beyond so many parameters NUTS scales each by itself instead of learning how they hang together."""
LEAST_DRAWS = 4
"""So many draws of the first chain are kept when a run is interrupted."""
FINAL_RATE = 0.1
"""The last step of variational inference is so much shorter than the first."""
SETTLED = 0.5
"""A loss has settled if, over the last quarter of the steps, it falls by less than so many nats times the root of the
number of unknowns, two standard errors allowed for: its own noise grows like that root."""

Draws = dict[str, NDArray[Any]]


def derive(likelihood: Likelihood, samples: Draws) -> Draws:
    """Return the sites that the program computes from each draw of its parameters, shape (chain, draw, ...)."""
    if not likelihood.derived:
        return {}
    chains, draws = next(iter(samples.values())).shape[:2]
    found: dict[str, list[NDArray[Any]]] = {name: [] for name in likelihood.derived}
    for place in np.ndindex(chains, draws):
        given = {name: torch.as_tensor(values[place]) for name, values in samples.items()}
        with torch.no_grad(), poutine.trace() as tracer, poutine.condition(data=given):
            likelihood()
        sites: Any = tracer.trace.nodes
        for name, values in found.items():
            values.append(sites[name]["value"].numpy())
    return {name: np.stack(values).reshape(chains, draws, *values[0].shape) for name, values in found.items()}


# -- the No-U-Turn sampler --------------------------------------------------------------------------------------------


def draw_nuts(
    likelihood: Likelihood, draws: int, warmup: int, chains: int, progress: bool
) -> tuple[Draws, dict[str, Any]]:
    """Draw the parameters by the No-U-Turn sampler, one chain after the other, each from a random start.

    Parameters
    ----------
    likelihood
        The conditioned program.
    draws, warmup, chains
        The draws kept of each chain, those thrown away before, and the number of chains.
    progress
        Whether to show a progress bar.

    Returns
    -------
    samples : dict of str to ndarray of shape (chain, draw, ...)
        The parameters.
    found : dict
        ``diagnostics`` and ``sample_stats`` as in :class:`pyrofair.Posterior`, and the texts of
        ``warnings``.
    """
    done: list[_Chain] = []
    texts = []
    with tqdm(total=chains * (warmup + draws), desc="NUTS", disable=not progress, leave=False) as bar:
        while len(done) < chains:
            chain = _Chain(likelihood, bar)
            try:
                chain.run(draws, warmup)
            except KeyboardInterrupt:
                if not done and len(chain.kept) < LEAST_DRAWS:
                    raise
                texts.append(_interrupted(done or [chain], len(chain.kept), chains, draws))
                done = done or [chain]
                break
            done.append(chain)
    samples = {name: torch.stack([chain.samples()[name] for chain in done]) for name in likelihood.parameters}
    diverging = np.stack([chain.diverging() for chain in done])
    r_hat, ess = {}, {}
    for name, values in samples.items():
        r_hat[name] = float(split_gelman_rubin(values, 0, 1).max())  # type: ignore[no-untyped-call]
        ess[name] = float(effective_sample_size(values, 0, 1).min())  # type: ignore[no-untyped-call]
    # An R-hat that is not a number comes from a chain that never moved.
    if unmixed := {name: value for name, value in r_hat.items() if not value <= R_HAT}:
        texts.append(
            f"The chains have not mixed: R-hat is {', '.join(f'{v:.3f} for {n!r}' for n, v in unmixed.items())} (at "
            f"most {R_HAT} is wanted). Take more warmup and draws, several chains, or tighter priors."
        )
    if diverging.any():
        texts.append(
            f"{int(diverging.sum())} of {diverging.size} draws diverged, so parts of the posterior may be missing. "
            "Take more warmup, or write the program so that its parameters are of one scale and independent a priori."
        )
    stats = {"diverging": diverging, "lp": np.stack([[lp for _, lp in chain.kept] for chain in done])}
    acceptance = [chain.acceptance() for chain in done]
    return {name: values.numpy() for name, values in samples.items()}, {
        "diagnostics": {"r_hat": r_hat, "ess": ess, "divergences": int(diverging.sum()), "acceptance": acceptance},
        "sample_stats": stats,
        "warnings": texts,
    }


class _Chain:
    """A chain of the No-U-Turn sampler that keeps each draw as soon as it is made.

    Parameters
    ----------
    likelihood
        The conditioned program.
    bar
        Moves on by one at each step.
    """

    def __init__(self, likelihood: Likelihood, bar: Any) -> None:
        self.likelihood, self.bar = likelihood, bar
        self.kernel: Any = NUTS(likelihood, full_mass=_dense(likelihood))  # type: ignore[no-untyped-call]
        self.kept: list[tuple[dict[str, Tensor], float]] = []
        """The unconstrained unknowns of each draw, and their log-density."""
        self.told: dict[str, Any] = {}
        """What the kernel says of the draws so far; it forgets it at the end."""

    def run(self, draws: int, warmup: int) -> None:
        """Warm up and draw."""

        def note(kernel: NUTS, unconstrained: dict[str, Tensor], stage: str, _: int) -> None:
            self.bar.update()
            if stage == "Sample":
                lp = -kernel.potential_fn(unconstrained).item()
                self.told = kernel.diagnostics()  # type: ignore[no-untyped-call]
                self.kept.append(({name: value.detach().clone() for name, value in unconstrained.items()}, lp))

        MCMC(self.kernel, draws, warmup, hook_fn=note, disable_progbar=True).run()  # type: ignore[no-untyped-call]

    def samples(self) -> dict[str, Tensor]:
        """Return the parameters, shape (draw, ...)."""
        found = {}
        for name in self.likelihood.parameters:
            values = torch.stack([each[name] for each, _ in self.kept])
            found[name] = self.kernel.transforms[name].inv(values) if name in self.kernel.transforms else values
        return found

    def diverging(self) -> NDArray[np.bool_]:
        """Return which draws diverged, shape (draw,)."""
        found = np.zeros(len(self.kept), dtype=bool)
        found[[int(i) for i in self.told["divergences"]]] = True
        return found

    def acceptance(self) -> float:
        """Return the share of proposals that were accepted."""
        return float(self.told["acceptance rate"])


def _interrupted(used: list[_Chain], last: int, chains: int, draws: int) -> str:
    """Return what to say of a run that was ended early, of whose last chain so many draws were made."""
    whole = len(used[0].kept) == draws
    kept = f"{len(used)} of {chains} chains are done and used" if whole else f"its {last} of {draws} draws are used"
    left = f"; the {last} draws of the next one are left out, for chains are of one length" if whole and last else ""
    return f"Interrupted in chain {len(used) + whole} of {chains}: {kept}{left}."


def _dense(likelihood: Likelihood) -> bool | list[tuple[str, ...]]:
    """Return the block of the mass matrix that is learned whole: that of the parameters, unless they are many."""
    sizes = _sizes(likelihood)
    few = sum(sizes[name] for name in likelihood.parameters) <= MOST_DENSE
    return [tuple(likelihood.parameters)] if few else False


def _sizes(likelihood: Likelihood) -> dict[str, int]:
    """Return how many numbers each unknown site holds."""
    with torch.no_grad(), poutine.trace() as tracer:
        likelihood()
    sites: Any = tracer.trace.nodes
    return {name: sites[name]["value"].numel() for name in (*likelihood.parameters, *likelihood.latent)}


# -- variational inference --------------------------------------------------------------------------------------------


def draw_svi(
    likelihood: Likelihood, guide: str, draws: int, steps: int, learning_rate: float, progress: bool
) -> tuple[Draws, dict[str, Any]]:
    """Fit a guide to the unknown sites, and draw the parameters from it.

    The guide's numbers are averaged over the last quarter of the steps, which removes most of their noise.

    Parameters
    ----------
    likelihood
        The conditioned program.
    guide
        A key of ``GUIDES``.
    draws, steps, learning_rate
        The draws, the steps of Adam, and the size of the first.
    progress
        Whether to show a progress bar.

    Returns
    -------
    samples : dict of str to ndarray of shape (1, draw, ...)
        The parameters.
    found : dict
        ``diagnostics`` and ``losses`` as in :class:`pyrofair.Posterior`, and the texts of ``warnings``.

    Raises
    ------
    PosteriorError
        If the loss is not a finite number.
    """
    family = GUIDES[guide](likelihood, init_loc_fn=init_to_median)
    adam = ClippedAdam({"lr": learning_rate, "lrd": FINAL_RATE ** (1.0 / steps), "clip_norm": math.inf})
    svi = SVI(likelihood, family, adam, Trace_ELBO())  # type: ignore[no-untyped-call]
    svi.evaluate_loss()  # type: ignore[no-untyped-call] # makes the guide's parameters
    means = [torch.zeros_like(values) for values in family.parameters()]
    tail = max(steps // 4, 1)
    losses: list[float] = []
    texts = []
    with tqdm(total=steps, desc="SVI", disable=not progress, leave=False) as bar:
        try:
            for step in range(steps):
                loss = svi.step()  # type: ignore[no-untyped-call]
                if not math.isfinite(loss):
                    raise PosteriorError(
                        f"The loss is {loss} at step {step}. Lower learning_rate={learning_rate:g}, tighten the "
                        "priors, or see whether a row is impossible under the program."
                    )
                losses.append(loss)
                if (late := step - steps + tail) >= 0:
                    for values, mean in zip(family.parameters(), means, strict=True):
                        mean += (values.detach() - mean) / (late + 1)
                bar.update()
        except KeyboardInterrupt:
            if not losses:
                raise
            texts.append(f"Interrupted after {len(losses)} of {steps} steps; the guide is used as it is then.")
    drop, error = _fall(np.array(losses))
    if math.isnan(drop):
        texts.append(
            f"{len(losses)} steps are too few to tell whether the loss has settled, and to fit anything. Take steps="
            "4000, the default, or as many as the loss takes to settle."
        )
    elif not drop + 2.0 * error <= SETTLED * math.sqrt(sum(_sizes(likelihood).values())):
        texts.append(
            f"The loss may not have settled: it falls by {drop:.2f} nats (standard error {error:.2f}) over the last "
            f"quarter of {len(losses)} steps. Take more steps, or another learning_rate than {learning_rate:g}."
        )
    with torch.no_grad():
        if len(losses) == steps:
            for values, mean in zip(family.parameters(), means, strict=True):
                values.copy_(mean)
        drawn = [family() for _ in range(draws)]
    samples = {name: torch.stack([each[name] for each in drawn])[None].numpy() for name in likelihood.parameters}
    return samples, {
        "diagnostics": {"steps": len(losses), "drop": drop, "drop_error": error},
        "losses": np.array(losses),
        "warnings": texts,
    }


def _fall(losses: NDArray[np.float64]) -> tuple[float, float]:
    """Return how far the loss fell over the last quarter of the steps by a straight line, and the standard error."""
    last = losses[-max(len(losses) // 4, 3) :]
    if len(last) < 3:
        return math.nan, math.nan
    time = np.linspace(-0.5, 0.5, len(last))
    slope = float(time @ last / (time @ time))
    residual = last - last.mean() - slope * time
    return -slope, float(np.sqrt(residual @ residual / (len(last) - 2) / (time @ time)))
