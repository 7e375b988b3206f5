"""The best accuracies in the paper's simulated scenarios, and where the two groups do not overlap, by simulation.

python tests/benchmarks/scenario_facts.py --units 200000
"""

from __future__ import annotations

import argparse
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyro.distributions as dist
import torch
from pyro import poutine
from torch import Tensor

import pyrofair as pf
from pyrofair.effects.potential_outcomes import Estimate
from pyrofair.programs.distributions import TruncatedNormal
from pyrofair.simulate import Scenario

SCARCE = 0.01
Table = Mapping[str, Tensor]
Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Residual:
    """A node V = shift * A + residual: its other observed parents, and the probability or density of the residual."""

    parents: tuple[str, ...]
    shift: float
    density: Callable[[Tensor, Table], Tensor]


def of_integer_part(d: Any, x: Tensor, scale: Tensor | float = 1.0, *, truncation: str = "floor") -> Tensor:
    """Return the probability that the integer part of ``scale * U`` is x, for U of a distribution with a ``cdf``."""
    down = torch.ones_like(x, dtype=torch.bool) if truncation == "floor" else x > 0
    up = torch.ones_like(down) if truncation == "floor" else x >= 0
    low, high = torch.where(down, x, x - 1.0), torch.where(up, x + 1.0, x)
    factor = torch.as_tensor(scale, dtype=x.dtype)
    nonzero = torch.where(factor == 0, 1.0, factor)
    p = (d.cdf(high / nonzero) - d.cdf(low / nonzero)).abs()
    return torch.where(factor == 0, (x == 0).to(x.dtype), p)


def noise(numbers: Sequence[float]) -> Any:
    """Return a noise distribution in double precision: normal of two parameters, truncated normal of four."""
    exact = torch.tensor(numbers, dtype=torch.float64)
    family: Any = dist.Normal if len(numbers) == 2 else TruncatedNormal
    return family(*exact, validate_args=False)


def hiring(p: Parameters) -> dict[str, Residual]:
    """Return the residuals of D and M in the hiring scenario."""
    d, m = noise(p["u_d"]), noise(p["u_m"])

    def strength(x: Tensor, values: Table) -> Tensor:
        scale = p["m_q"] * values["Q"]
        density = torch.exp(m.log_prob(x / scale)) / scale.abs()
        return torch.where(scale == 0, (x == 0).to(x.dtype), density)

    def children(x: Tensor, values: Table) -> Tensor:
        return of_integer_part(d, x, p["d_q"] * values["Q"], truncation=p["truncation"])

    return {"D": Residual(("Q",), 1.0, children), "M": Residual(("Q",), p["m_a"], strength)}


def additive(p: Parameters) -> dict[str, Residual]:
    """Return the residuals of D and M in the additive scenario."""
    part = {"floor": torch.floor, "truncate": torch.trunc}[p["truncation"]]

    def density(name: str, slope: str) -> Callable[[Tensor, Table], Tensor]:
        u = noise(p[name])
        return lambda x, v: of_integer_part(u, x - part(p[slope] * v["Q"]), truncation=p["truncation"])

    return {"D": Residual(("Q",), 1.0, density("u_d", "d_q")), "M": Residual(("Q",), p["m_a"], density("u_m", "m_q"))}


def latent(p: Parameters) -> dict[str, Residual]:
    """Return the residuals of R and M in the latent scenario, that of R with H integrated out."""
    h, r, m = (noise(p[name]) for name in ("h", "u_r", "u_m"))
    steps = torch.arange(math.floor(r.mean - 10 * r.stddev), math.ceil(r.mean + 10 * r.stddev) + 1.0).to(torch.float64)

    def confounded(x: Tensor, _: Table) -> Tensor:
        level, index = torch.unique(x, return_inverse=True)
        given = of_integer_part(h, level.unsqueeze(-1) - steps, p["r_h"], truncation=p["truncation"])
        return (given @ of_integer_part(r, steps, truncation=p["truncation"]))[index]

    def strength(x: Tensor, values: Table) -> Tensor:
        return of_integer_part(m, x - values["R"], truncation=p["truncation"])

    return {"R": Residual((), p["r_a"], confounded), "M": Residual(("R",), 1.0, strength)}


RESIDUALS = {"hiring": hiring, "additive": additive, "latent": latent}


def overlap(values: Table, residuals: Mapping[str, Residual]) -> pd.DataFrame:
    """Return for each node and value of A that it reads the shares of units without counterpart in the other group.

    ``unsupported``: the value has probability 0 there; ``scarce``: it is at least 100 times rarer there; ``disjoint``:
    at the unit's values of the other parents that group shows none of the values.
    """
    found = {}
    for node, residual in residuals.items():
        x = values[node] - residual.shift * values["A"]
        own = residual.density(x, values)
        same = [values[name].numpy() for name in residual.parents] or [np.zeros(len(x))]
        for value, group in ((0, 1), (1, 0)):
            other = residual.density(x + residual.shift * (value - group), values)
            unsupported = (other == 0).numpy()
            scarce = unsupported | (other < SCARCE * own).numpy()
            disjoint = pd.Series(unsupported).groupby(same).transform("all")
            found[node, value] = [Estimate.of(each) for each in (unsupported, scarce, disjoint)]
    return pd.DataFrame.from_dict(found, orient="index", columns=["unsupported", "scarce", "disjoint"])


def best_accuracies(probability: Tensor, features: pd.DataFrame | None = None) -> tuple[Estimate, Estimate]:
    """Return the accuracies of the more frequent outcome for all units, and of the Bayes classifier.

    If a classifier reads less than all causes of Y, ``features`` in few distinct rows, then the decision at a row is
    that of the other half of the units there, so that the accuracy errs downwards.
    """
    p = probability.to(torch.float64).numpy()
    rate = Estimate.of(p)
    majority = Estimate(max(rate.value, 1.0 - rate.value), rate.error)
    if features is None:
        return majority, Estimate.of(np.maximum(p, 1.0 - p))
    cell = features.groupby(list(features.columns)).ngroup().to_numpy()
    half = np.arange(len(p)) % 2
    decision = np.full(len(p), rate.value > 0.5)
    for mine in (0, 1):
        other = half != mine
        size = np.bincount(cell[other], minlength=cell.max() + 1)
        mean = np.bincount(cell[other], p[other], minlength=cell.max() + 1) / np.maximum(size, 1)
        known = (half == mine) & (size[cell] > 0)
        decision[known] = mean[cell[known]] > 0.5
    return majority, Estimate.of(np.where(decision, p, 1.0 - p))


def facts(scenario: Scenario, n: int = 200_000, seed: int = 0) -> tuple[Estimate, Estimate, pd.DataFrame]:
    """Return the accuracies of the majority and of the Bayes classifier, and the overlap of the groups."""
    with torch.random.fork_rng(), torch.no_grad(), poutine.trace() as tracer:
        torch.manual_seed(seed)
        scenario.program(n)
    sites: dict[str, Any] = dict(tracer.trace.nodes)
    values = {name: site["value"].double() for name, site in sites.items() if site["type"] == "sample"}
    graph = scenario.graph
    inputs = pd.DataFrame({node: values[node].numpy() for node in graph.inputs}) if graph.latent else None
    majority, bayes = best_accuracies(sites[graph.outcome]["fn"].probs, inputs)
    changed: dict[str, Any] = getattr(scenario.program, "keywords", {})
    signature = inspect.signature(getattr(pf.simulate, scenario.name)).parameters
    parameters = {name: each.default for name, each in signature.items()} | changed
    return majority, bayes, overlap(values, RESIDUALS[scenario.name](parameters))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=200_000)
    options = parser.parse_args()
    for name in RESIDUALS:
        majority, bayes, table = facts(pf.simulate.scenario(name), options.units)
        print(f"{name}: majority accuracy {majority}, Bayes accuracy {bayes}\n{table.to_string()}\n")
