"""Posterior of continuous exogenous noise by gradients: the No-U-Turn sampler, or a variational guide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.infer.autoguide import AutoNormal, init_to_sample
from pyro.poutine.messenger import Messenger
from torch import Tensor

from pyrofair.exceptions import DataError
from pyrofair.inference.evidence import Evidence
from pyrofair.inference.samplers import NormalGuide, Schedule, diagnose, fit_guide, fitting, run_nuts
from pyrofair.programs.provenance import is_deterministic
from pyrofair.programs.sites import UNITS

__all__ = ["CHAINS", "draw_nuts", "draw_svi"]

CHAINS, WARMUP = 2, 200
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
    """Return the noise that observed nodes read; refuse what gradients do not serve: discrete or implicit noise."""
    keys = evidence.keys_of(evidence.explained)
    keys = tuple(dict.fromkeys((*keys, *(above for key in keys for above in evidence.above[key]))))
    reading = evidence.run(evidence.given(), evidence.explained)
    for site, natural in reading.natural.items():
        if not natural.is_floating_point():
            dtype = str(natural.dtype).removeprefix("torch.")
            raise DataError(
                f"The node {site!r} is computed as {dtype}, through which gradients cannot be followed. Use "
                "method='auto' or 'importance'."
            )
    for key in keys:
        if key in evidence.implicit:
            raise DataError(
                f"{key!r} is a random step whose distribution depends on a node, so its value is no noise, and "
                "gradients cannot be followed through its coupling. Use method='importance', or write its noise as a "
                "site of its own."
            )
        if reading.distributions[key].support.is_discrete:
            raise DataError(
                f"The noise {key!r} is discrete ({type(reading.distributions[key]).__name__}), and gradients serve "
                "only continuous noise. Use method='auto' or 'importance'."
            )
    return keys


def _model(evidence: Evidence, width: Callable[[str], float], keys: tuple[str, ...]) -> Callable[[], None]:
    """Return the program as a Pyro model of the noise of all units."""
    evidence.info.confirm(evidence.n)

    def model() -> None:
        with _Likelihood(evidence, width, frozenset(keys)):
            evidence.program(evidence.n)

    # The program's own parameters are given, and must not be trained.
    return poutine.block(model, hide_types=["param"])


def draw_nuts(
    evidence: Evidence, width: Callable[[str], float], draws: int
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """Draw the noise of all units at once by the No-U-Turn sampler, in two chains.

    Returns for each noise site its draws, shape (n, chains * draws per chain, ...), the effective sample size and
    R-hat of each unit, shape (n,): of a vector those of the worst component.
    """
    keys = _latent(evidence)
    with fitting(stored=True):
        found = run_nuts(
            _model(evidence, width, keys),
            keys,
            draws=-(-draws // CHAINS),
            warmup=WARMUP,
            chains=CHAINS,
            init=init_to_sample,
        )
    units = {
        key: values.movedim(evidence.info.shapes[key].index(UNITS) + 2, 2) for key, values in found.samples.items()
    }
    sizes, mixing = diagnose(units)
    effective = {key: torch.from_numpy(values.reshape(evidence.n, -1).min(1)) for key, values in sizes.items()}
    r_hat = {key: torch.from_numpy(values.reshape(evidence.n, -1).max(1)) for key, values in mixing.items()}
    return {key: values.flatten(0, 1).movedim(0, 1) for key, values in units.items()}, effective, r_hat


def draw_svi(
    evidence: Evidence, width: Callable[[str], float], draws: int, guide: NormalGuide
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Fit a guide to the noise of all units at once, and draw from it, shape (n, draws, ...) for each noise site.

    Returned besides is how many draws from the posterior those from the guide are worth, by their importance weights
    unit by unit, shape (n,); None for a guide that does not factorise over units.
    """
    model = _model(evidence, width, _latent(evidence))
    with fitting(stored=True):
        family, _ = fit_guide(model, guide, Schedule(STEPS, RATE), init=init_to_sample)
        with torch.no_grad():
            return _draw_guide(evidence, model, family, draws)


def _draw_guide(
    evidence: Evidence, model: Callable[[], None], guide: Any, draws: int
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Return draws of the noise, and the effective sample size of each unit's importance weights if they factorise."""
    by_unit = isinstance(guide, AutoNormal)
    noise: dict[str, list[Tensor]] = {}
    ratios = []
    for _ in range(draws):
        proposed = poutine.trace(guide).get_trace()
        replayed = poutine.trace(poutine.replay(model, trace=proposed)).get_trace()
        for key, site in replayed.nodes.items():
            if site["type"] == "sample" and not site["is_observed"] and key in evidence.info.random:
                noise.setdefault(key, []).append(evidence.by_rows(key, cast(Tensor, site["value"])))
        if by_unit:
            ratios.append(_log_density(replayed, evidence) - _log_density(proposed, evidence))
    stacked = {key: torch.stack(values, 1) for key, values in noise.items()}
    if not by_unit:
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
        if site["type"] == "sample" and isinstance(site["log_prob"], Tensor) and UNITS in shape:
            density, axis = site["log_prob"], shape.index(UNITS)
            if density.ndim > axis and density.shape[axis] == evidence.n:
                total = total + density.movedim(axis, 0).reshape(evidence.n, -1).sum(1)
    return total
