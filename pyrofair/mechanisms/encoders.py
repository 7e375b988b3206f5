"""Networks as a guide: the distribution of units' unknown noise given their rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn
from torch.distributions import biject_to, constraints

from pyrofair.inference.evidence import repeat_each
from pyrofair.mechanisms.families import Family, features

__all__ = ["Encoders"]

LEAST_SPREAD = 1e-4
"""The least standard deviation of the guide."""
Values = Mapping[str, Tensor]
"""For each column the program's values, the units in the last dimension."""


class Encoders(nn.Module):
    """A guide of units' latent variables given their rows: normal, with networks for mean and standard deviation.

    For each latent variable ``reads`` has the columns that its network reads, and ``supports`` its shape and support; a
    variable that is not any real number is a transformed normal one. ``hidden`` are the tanh units of each layer.
    """

    def __init__(
        self,
        families: Mapping[str, Family],
        reads: Mapping[str, Sequence[str]],
        supports: Mapping[str, tuple[tuple[int, ...], Any]],
        *,
        hidden: Sequence[int] = (20, 20),
        plate: str = "units",
    ) -> None:
        super().__init__()
        self.families, self.supports, self.plate = dict(families), dict(supports), plate
        self.reads = {site: tuple(columns) for site, columns in reads.items()}
        self.networks = nn.ModuleList(self._new(site, hidden) for site in self.reads)

    def _new(self, site: str, hidden: Sequence[int]) -> nn.Module:
        width = sum(features(self.families[name], torch.zeros(1)).shape[-1] for name in self.reads[site])
        sizes = [max(width, 1), *hidden]
        layers: list[nn.Module] = []
        for before, size in pairwise(sizes):
            layers += [nn.Linear(before, size), nn.Tanh()]
        return nn.Sequential(*layers, nn.Linear(sizes[-1], 2 * math.prod(self.supports[site][0])))

    def posterior(self, site: str, rows: Values) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of a latent variable, before it is transformed, shapes (n, k)."""
        n = len(next(iter(rows.values())))
        network: Any = self.networks[list(self.reads).index(site)]
        dtype = network[-1].weight.dtype
        parts = [features(self.families[name], rows[name]).to(dtype).expand(n, -1) for name in self.reads[site]]
        loc, scale = network(torch.cat(parts, -1) if parts else torch.ones(n, 1, dtype=dtype)).chunk(2, -1)
        return loc, nn.functional.softplus(scale) + LEAST_SPREAD

    def forward(self, rows: Values, repeat: int = 1) -> None:
        """Draw the latent variables of n units, of each ``repeat`` times in a row."""
        with pyro.plate(self.plate, len(next(iter(rows.values()))) * repeat):
            for site, (shape, support) in self.supports.items():
                loc, scale = (repeat_each(each, repeat).reshape(-1, *shape) for each in self.posterior(site, rows))
                drawn: Any = dist.Normal(loc, scale)
                if support is not constraints.real:
                    drawn = dist.TransformedDistribution(drawn, [biject_to(support)])
                pyro.sample(site, drawn.to_event(len(shape)))
