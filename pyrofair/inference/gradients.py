"""Which noise may have made a row? Pyro's own inference over continuous noise: NUTS, or a variational guide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from pyro.infer.autoguide import AutoMultivariateNormal, AutoNormal, init_to_sample
from pyro.optim import ClippedAdam
from pyro.poutine.messenger import Messenger
from torch import Tensor

from pyrofair.exceptions import DataError
from pyrofair.inference.evidence import Evidence
from pyrofair.programs.provenance import is_deterministic
from pyrofair.programs.sites import PEOPLE

__all__ = ["GUIDES", "Guide", "draw_nuts", "draw_svi"]

Guide = Literal["AutoNormal", "AutoMultivariateNormal"]
GUIDES: dict[Guide, Any] = {"AutoNormal": AutoNormal, "AutoMultivariateNormal": AutoMultivariateNormal}

CHAINS, WARMUP = 2, 200
# Up to so many noise values NUTS learns how they hang together; beyond, it scales each by itself.
MOST_DENSE = 200
STEPS, RATE = 2000, 0.1


class _Likelihood(Messenger):
    """Observe each node with a normal error, hand its observed value on, and draw only the noise that matters."""

    def __init__(self, evidence: Evidence, width: Callable[[str], float], latent: frozenset[str]) -> None:
        super().__init__()
        self.evidence, self.width, self.latent = evidence, width, latent

    def _pyro_sample(self, msg: Any) -> None:
        name, evidence = msg["name"], self.evidence
        if poutine.util.site_is_subsample(msg):
            return
        if name in evidence.observed:
            value = evidence.observed[name]
            if name not in evidence.explained:
                self.hold(msg, value)
            elif is_deterministic(msg):
                natural = msg["value"].expand(evidence.n)
                msg["fn"] = dist.Normal(natural, self.width(name))
                msg["value"], msg["is_observed"], msg["infer"] = value.to(natural.dtype), True, {}
            else:
                msg["value"], msg["is_observed"] = value, True
        elif msg["is_observed"] or msg["value"] is not None or name in self.latent:
            return
        elif name in evidence.parameters:
            self.hold(msg, evidence.parameters[name])
        elif name in evidence.spare:
            self.hold(msg, evidence.spare_for(name, evidence.n))

    def hold(self, msg: Any, value: Tensor) -> None:
        delta: Any = dist.Delta
        msg["fn"] = delta(value, event_dim=value.ndim).mask(False)
        msg["value"], msg["is_observed"], msg["infer"] = value, True, {"_deterministic": True}


def _latent(evidence: Evidence) -> tuple[str, ...]:
    """Return the noise that observed nodes read.

    Raises
    ------
    DataError
        If some of it is discrete, or a random step without noise of its own; or if a node computed from it is of whole
        numbers.
    """
    keys = evidence.keys_of(evidence.explained)
    keys = tuple(dict.fromkeys((*keys, *(above for key in keys for above in evidence.above[key]))))
    reading = evidence.run(evidence.given(), evidence.explained)
    for site, natural in reading.natural.items():
        if not natural.is_floating_point():
            kind = str(natural.dtype).removeprefix("torch.")
            raise DataError(
                f"The node {site!r} is computed as {kind}, through which gradients cannot be followed. Use "
                "method='auto' or 'importance'."
            )
    for key in keys:
        if key in evidence.implicit:
            raise DataError(
                f"{key!r} is a random step whose distribution depends on a node, so its value is no noise, and "
                f"gradients cannot "
                "be followed through its coupling. Use method='importance', or write its noise as a site of its own."
            )
        if reading.laws[key].support.is_discrete:
            raise DataError(
                f"The noise {key!r} is discrete ({type(reading.laws[key]).__name__}), and gradients serve only "
                "continuous noise. Use method='auto' or 'importance'."
            )
    return keys


def _model(evidence: Evidence, width: Callable[[str], float]) -> Callable[[], None]:
    latent = frozenset(_latent(evidence))
    evidence.info.confirm(evidence.n)

    def model() -> None:
        with _Likelihood(evidence, width, latent):
            evidence.program(evidence.n)

    # The program's own parameters are given, and must not be trained.
    return poutine.block(model, hide_types=["param"])


def draw_nuts(
    evidence: Evidence, width: Callable[[str], float], draws: int
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """Draw the noise of all units at once by the No-U-Turn sampler, in two chains.

    Returns
    -------
    noise : dict
        For each noise site its draws, shape (n, chains * draws per chain, ...).
    effective, r_hat : dicts
        For each noise site the effective sample size and the split R-hat, shape (n,), by ArviZ.
    """
    model = _model(evidence, width)
    size = sum(evidence.spare[key].numel() for key in _latent(evidence)) * evidence.n
    nuts: Any = NUTS
    run: Any = MCMC
    chains = []
    for _ in range(CHAINS):
        kernel = nuts(model, init_strategy=init_to_sample, full_mass=size <= MOST_DENSE)
        mcmc = run(kernel, num_samples=-(-draws // CHAINS), warmup_steps=WARMUP, disable_progbar=True)
        with pyro.validation_enabled(False):
            mcmc.run()
        place = {key: evidence.info.shapes[key].index(PEOPLE) + 1 for key in _latent(evidence)}
        chains.append({key: values.detach().movedim(place[key], 1) for key, values in mcmc.get_samples().items()})
    stacked = {key: torch.stack([chain[key] for chain in chains]) for key in chains[0]}
    effective, r_hat = _diagnose(stacked)
    return {key: values.flatten(0, 1).movedim(0, 1) for key, values in stacked.items()}, effective, r_hat


def _diagnose(stacked: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return ArviZ's effective sample sizes and R-hat, shape (n,), of draws of shape (chains, draws, n, ...).

    Of the components of a vector the worst counts.
    """
    import arviz  # takes seconds to import
    import xarray

    groups = {}
    for key, values in stacked.items():
        names = ["chain", "draw", *(f"{key} axis {i}" for i in range(values.ndim - 2))]
        groups[key] = (names, values.numpy())
    data, diagnose = xarray.Dataset(groups), cast(Any, arviz)
    found = []
    sizes, mixing = diagnose.ess(data, method="bulk"), diagnose.rhat(data, method="rank")
    for table, worst in ((sizes, torch.amin), (mixing, torch.amax)):
        each = {key: torch.as_tensor(table[key].to_numpy().copy()) for key in stacked}
        found.append({key: worst(numbers.reshape(len(numbers), -1), 1) for key, numbers in each.items()})
    return found[0], found[1]


def draw_svi(
    evidence: Evidence, width: Callable[[str], float], draws: int, guide: Guide
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Fit a guide to the noise of all units at once, and draw from it.

    Returns
    -------
    noise : dict
        For each noise site its draws, shape (n, draws, ...).
    effective : tensor of shape (n,), or None
        How many draws from the posterior those from the guide are worth, by their importance weights unit by unit;
        None for a guide that does not fall into units.
    """
    model = _model(evidence, width)
    q = GUIDES[guide](model, init_loc_fn=init_to_sample)
    q._pyro_name = "pyrofair.inference.abduction"  # not the name of a guide that the parameter store may hold
    optimiser = ClippedAdam({"lr": RATE, "lrd": 0.01 ** (1.0 / STEPS)})
    make: Any = SVI
    loss: Any = Trace_ELBO
    svi = make(model, q, optimiser, loss())
    with pyro.validation_enabled(False):
        for _ in range(STEPS):
            svi.step()
        with torch.no_grad():
            return _draw_guide(evidence, model, q, draws)


def _draw_guide(
    evidence: Evidence, model: Callable[[], None], guide: Any, draws: int
) -> tuple[dict[str, Tensor], Tensor | None]:
    by_person = isinstance(guide, AutoNormal)
    noise: dict[str, list[Tensor]] = {}
    ratios = []
    for _ in range(draws):
        proposed = poutine.trace(guide).get_trace()
        replayed = poutine.trace(poutine.replay(model, trace=proposed)).get_trace()
        for key, site in replayed.nodes.items():
            if site["type"] == "sample" and not site["is_observed"] and key in evidence.info.random:
                noise.setdefault(key, []).append(evidence.by_rows(key, cast(Tensor, site["value"])))
        if by_person:
            ratios.append(_log_density(replayed, evidence) - _log_density(proposed, evidence))
    stacked = {key: torch.stack(values, 1) for key, values in noise.items()}
    if not by_person:
        return stacked, None
    log_weight = torch.stack(ratios).double()
    weight = (log_weight - log_weight.amax(0)).exp()
    return stacked, weight.sum(0).square() / weight.square().sum(0)


def _log_density(trace: Any, evidence: Evidence) -> Tensor:
    """Return each unit's log-density, shape (n,)."""
    trace.compute_log_prob()
    total = torch.zeros(evidence.n)
    for name, site in trace.nodes.items():
        shape = evidence.info.shapes.get(name.removesuffix("_unconstrained"), ())
        if site["type"] == "sample" and isinstance(site["log_prob"], Tensor) and PEOPLE in shape:
            density, place = site["log_prob"], shape.index(PEOPLE)
            if density.ndim > place and density.shape[place] == evidence.n:
                total = total + density.movedim(place, 0).reshape(evidence.n, -1).sum(1)
    return total
