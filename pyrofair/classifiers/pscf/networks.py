"""The default model of PSCF: a distribution of each column by a network, with latent variables, and its guide.

The model is a Pyro program of the number of units, and the guide one of their rows, as a user's own are. What its sites
read is known, so that it need not be run to find out.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn
from torch.distributions import constraints

from pyrofair.classifiers.pscf.replay import FittedProgram
from pyrofair.graph import CausalGraph, UnfairPaths
from pyrofair.graph.causal_graph import unused_name
from pyrofair.inference.likelihood import Likelihood
from pyrofair.mechanisms.encoders import Encoders
from pyrofair.mechanisms.families import Continuous, Family, Integer, Positive, features
from pyrofair.programs.provenance import Program
from pyrofair.programs.sites import read_outline
from pyrofair.programs.structural_equations import Equations

__all__ = [
    "FixedSpread",
    "LatentSEM",
    "encoders_of",
    "latents_of",
    "likelihood_of",
    "narrow_families",
    "read_networks",
    "spread_besides",
]

Values = Mapping[str, Tensor]
"""For each column the program's values, the units in the last dimension."""

ModuleT = TypeVar("ModuleT", bound=nn.Module)
INTEGER_NOISE = 0.25
"""The least spread of an integer's own noise, in units: rounding hides anything finer, and steps fit badly."""
LEAST_SHARE = 1e-3


@dataclass(frozen=True)
class FixedSpread:
    """A family of one component with noise of a fixed, small spread: what else varies is left to a latent variable.

    Otherwise the distribution would explain all spread by itself, and the latent variable would carry no information.
    ``own`` is that spread as a share of the column's standard deviation.
    """

    family: Integer | Continuous
    own: float

    @property
    def size(self) -> int:
        """One: the location of the distribution."""
        return 1

    @property
    def offset(self) -> Tensor:
        """The mean among all."""
        return torch.zeros(1)

    def distribution(self, out: Tensor) -> Any:
        """Return the distributions at these locations."""
        family, loc = self.family, out[..., 0]
        if isinstance(family, Integer):
            numbers = [torch.zeros_like(out), out, torch.full_like(out, math.log(self.own))]
            return family.distribution(torch.cat(numbers, -1))
        normal: Any = dist.Normal(family.mean + family.sd * loc, torch.full_like(loc, family.sd * self.own))
        made: Any = dist.LogNormal
        return made(normal.loc, normal.scale) if isinstance(family, Positive) else normal


def spread_besides(family: Family, residual: float, share: float) -> Family:
    """Return the family of a column that has a latent variable, narrow where this is to explain the spread.

    ``residual`` is the standard deviation of the column given its causes, as a share of its own, and ``share`` the
    share of it that the distribution keeps. A category, and a number with atoms, keeps its whole distribution.
    """
    if not isinstance(family, Integer | Continuous):
        return family
    least = INTEGER_NOISE / family.sd if isinstance(family, Integer) else 0.0
    return FixedSpread(replace(family, components=1), max(share * residual, least))


def narrow_families(
    families: Mapping[str, Family],
    rows: Values,
    weight: Tensor,
    graph: CausalGraph,
    columns: Collection[str],
    share: float | None,
) -> dict[str, Family]:
    """Return the families from which columns with a latent variable are drawn; None leaves them as they are."""
    found = {column: families[column] for column in columns}
    if share is not None:
        for column, family in found.items():
            residual = _residual_share(families, rows, column, causes_of(graph, column), weight)
            found[column] = spread_besides(family, residual, share)
    return found


def _residual_share(
    families: Mapping[str, Family], values: Values, column: str, causes: Sequence[str], weight: Tensor
) -> float:
    """Return the spread of a number given its causes, by a linear predictor, as a share of its spread among all."""
    target = features(families[column], values[column])
    if target.shape[1] != 1:
        return 1.0
    parts = [torch.ones(len(weight), 1), *(features(families[name], values[name]) for name in causes)]
    design, root = torch.cat(parts, 1).double(), weight.double().sqrt().unsqueeze(1)
    found = np.linalg.lstsq((root * design).numpy(), (root * target.double()).numpy(), rcond=None)
    residual = target.double().numpy() - design.numpy() @ found[0]
    share = float(np.sqrt(np.average(residual[:, 0] ** 2, weights=weight.numpy())))
    return min(max(share, LEAST_SHARE), 1.0)


def causes_of(graph: CausalGraph, column: str) -> list[str]:
    """Return the columns of the parents of a column's node, and its node's columns before it."""
    node = graph.node_of[column]
    own = graph.columns[node]
    parents = [parent for parent in graph.parents(node) if parent not in graph.latent]
    return [*graph.columns_of(parents), *own[: own.index(column)]]


def latents_of(graph: CausalGraph, nodes: Sequence[str], taken: Sequence[str]) -> dict[str, str]:
    """Return the latent variables of some nodes, one of each column, by the names of their sites."""
    return {unused_name(f"H_{column}", taken): column for column in graph.columns_of(nodes)}


class _Numbers(nn.Module):
    """One hidden layer from what a column is read from to the numbers that determine its distribution."""

    def __init__(self, width: int, hidden: int, offset: Tensor) -> None:
        super().__init__()
        self.offset: Tensor
        self.register_buffer("offset", offset)
        size = len(offset)
        self.body = nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, size)) if width else None
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, read: Tensor) -> Tensor:
        out: Tensor = self.offset + self.bias.expand(*read.shape[:-1], -1)
        return out if self.body is None else out + self.body(read)


class LatentSEM(nn.Module):
    """A Pyro program of the number of units: a distribution of each column given its causes, and latent variables.

    Each column has a network of its own. A node of several columns is drawn column by column, each given those before
    it. Latent nodes of the graph are left out; the sensitive attribute is 0 or 1.

    ``families`` holds the family of each column, and ``drawn_from`` that of its distribution where it is another one;
    ``latents`` names for the site of each latent variable, a standard normal number, the column that reads it, and
    ``hidden`` is the number of tanh units of a network's layer.
    """

    def __init__(
        self,
        graph: CausalGraph,
        families: Mapping[str, Family],
        latents: Mapping[str, str],
        *,
        drawn_from: Mapping[str, Family] | None = None,
        hidden: int = 100,
    ) -> None:
        super().__init__()
        self.graph, self.families, self.latents = graph, dict(families), dict(latents)
        self.drawn_from = {**self.families, **(drawn_from or {})}
        self.order = [column for node in graph.order if node not in graph.latent for column in graph.columns[node]]
        self.owner = {column: node for node, own in graph.columns.items() for column in own}
        self.site = {column: site for site, column in self.latents.items()}
        self.width = {name: features(family, torch.zeros(1)).shape[-1] for name, family in self.families.items()}
        self.index = {column: i for i, column in enumerate(self.order)}
        self.networks = nn.ModuleList(self._new_numbers(column, hidden) for column in self.order)
        self.plate = unused_name("units", [*self.families, *self.latents])

    def reads(self, column: str) -> list[str]:
        """Return the columns that a column's distribution reads: those of its parents, and its node's before it."""
        return causes_of(self.graph, column)

    def _new_numbers(self, column: str, hidden: int) -> nn.Module:
        width = sum(self.width[name] for name in self.reads(column)) + (column in self.site)
        return _Numbers(width, hidden, self.drawn_from[column].offset.to(torch.get_default_dtype()))

    def distribution(self, column: str, values: Values, latent: Tensor | None = None) -> Any:
        """Return the distribution of a column given the values that it reads, shapes (..., n), and its latent variable.

        ``latent`` has shape (..., n, 1).
        """
        read = {name: features(self.families[name], values[name]) for name in self.reads(column)}
        return self._given(column, read, latent)

    def _given(self, column: str, read: Mapping[str, Tensor], latent: Tensor | None) -> Any:
        parts = [read[name] for name in self.reads(column)]
        if column in self.site:
            assert latent is not None, f"the distribution of {column} reads a latent variable"
            parts.append(latent)
        shape = torch.broadcast_shapes(*(part.shape[:-1] for part in parts))  # type: ignore[no-untyped-call]
        network: Any = self.networks[self.index[column]]
        dtype = network.bias.dtype
        joined = torch.cat([part.to(dtype).expand(*shape, -1) for part in parts], -1) if parts else torch.zeros(1, 0)
        return self.drawn_from[column].distribution(network(joined.to(dtype)))

    def equations(self, unfair: UnfairPaths) -> Equations:
        """Return the program as structural equations."""
        return Equations(self, unfair, read_outline(self).info, {column: self.owner[column] for column in self.order})

    def only(self, columns: Collection[str]) -> Program:
        """Return the program in which only some columns have their distributions: all others must be held."""
        return partial(self, columns=columns)

    def forward(self, n: int, columns: Collection[str] | None = None) -> None:
        """Draw n units."""
        spare: Any = dist.Normal(torch.zeros(()), 1.0)
        standard: Any = dist.Normal(torch.zeros(1), 1.0)
        read: dict[str, Tensor] = {}
        with pyro.plate(self.plate, n):
            for column in self.order:
                latent = pyro.sample(self.site[column], standard.to_event(1)) if column in self.site else None
                drawn = columns is None or column in columns
                value = pyro.sample(column, self._given(column, read, latent) if drawn else spare)
                read[column] = features(self.families[column], value)


def encoders_of(sem: LatentSEM) -> Encoders:
    """Return the guide of a default model: each latent variable given its column and that column's causes."""
    return Encoders(
        sem.families,
        {site: [*sem.reads(column), column] for site, column in sem.latents.items()},
        dict.fromkeys(sem.latents, ((1,), constraints.real)),
        plate=sem.plate,
    )


def likelihood_of(sem: LatentSEM, equations: Equations, rows: dict[str, Tensor]) -> Likelihood:
    """Return the networks with their columns set to rows, (n,) each, and the latent variables unknown."""
    info, n = equations.info, len(rows[sem.order[0]])
    shapes = {site: info.shape(site, n) for site in info.sites}
    return Likelihood(sem, n, rows, {}, {}, (), (), tuple(sem.latents), (), info.dtypes, shapes, info.axes)


def read_networks(sem: LatentSEM, guide: Encoders, unfair: UnfairPaths, *, wide: bool = True) -> FittedProgram:
    """Return fitted networks and their guide as what rows are replayed by, in double precision if ``wide``."""
    if wide:
        sem, guide = _without_tanh(copy.deepcopy(sem).double()), _without_tanh(copy.deepcopy(guide).double())
    return FittedProgram(sem.equations(unfair), guide, tuple(sem.latents), wide, wide, sem.only)


@torch.no_grad()
def _without_tanh(module: ModuleT) -> ModuleT:
    """Write each tanh(x) as 2 sigmoid(2x) - 1, by the layers around it, which takes torch a seventh of the time."""
    for part in module.modules():
        layers: Any = part if isinstance(part, nn.Sequential) else ()
        for at in range(1, len(layers) - 1):
            if isinstance(layers[at], nn.Tanh):
                before, after = layers[at - 1], layers[at + 1]
                before.weight *= 2.0
                before.bias *= 2.0
                after.bias -= after.weight.sum(1)
                after.weight *= 2.0
                layers[at] = nn.Sigmoid()
    return module
