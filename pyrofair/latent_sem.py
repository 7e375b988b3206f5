"""A structural equation model whose equations are networks and whose noise is latent: Pyro program and guide."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from torch import Tensor, nn

from pyrofair.columns import unused_name
from pyrofair.families import Continuous, Family, Whole, features
from pyrofair.graph import CausalGraph
from pyrofair.group_distance import mean_discrepancy

__all__ = ["LatentSEM", "Narrow", "People", "Values"]

Values = Mapping[str, Tensor]
"""For each column the program's values, the people in the last dimension."""


WHOLE_NOISE = 0.25
"""The least spread of a whole number's own noise, in units: rounding hides anything finer, and steps fit badly."""


@dataclass(frozen=True)
class Narrow:
    """A family of numbers with noise of a fixed, small spread: what else varies is left to a latent variable.

    Without it the law would explain all spread by itself, and the latent variable would say nothing of a person.

    Parameters
    ----------
    family
        The column's family, with one component.
    own
        The spread that the law keeps for itself, as a share of the column's standard deviation.
    """

    family: Whole | Continuous
    own: float

    @property
    def size(self) -> int:
        """One: the place of the law."""
        return 1

    @property
    def offset(self) -> Tensor:
        """The mean among all."""
        return torch.zeros(1)

    def law(self, out: Tensor) -> Any:
        """Return the laws of these places."""
        return self.family.law(torch.cat([torch.zeros_like(out), out, torch.full_like(out, math.log(self.own))], -1))


@dataclass(frozen=True)
class People:
    """The rows that a program is conditioned on.

    Parameters
    ----------
    values
        For each column its values, shape (n,).
    group
        The sensitive attribute as 0 and 1, shape (n,).
    weight
        Their weights, shape (n,).
    """

    values: dict[str, Tensor]
    group: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.weight)


class _Law(nn.Module):
    """One hidden layer from what a column is read from to the numbers that determine its law."""

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
    """A law for each column given its causes; for some nodes a latent variable among them, one that is theirs alone.

    Each column has networks of its own: nothing is shared between nodes. A node of several columns has one latent,
    which each of its columns reads, and each column reads those before it.

    Parameters
    ----------
    graph
        The graph. Latent nodes of it are left out.
    families
        The law of each column, in the order in which the columns are drawn.
    noisy
        For each node with a latent variable the dimensions of it.
    hidden, encoder_hidden
        The tanh units of a law's one layer, and of the guide's layers.
    own_noise
        What the law of a number keeps of its spread where there is a latent variable, see :class:`Narrow`; None leaves
        it to be learned.
    distance
        The strength of the penalty on the discrepancy between the groups' latents.
    """

    def __init__(
        self,
        graph: CausalGraph,
        families: Mapping[str, Family],
        noisy: Mapping[str, int],
        *,
        hidden: int = 100,
        encoder_hidden: Sequence[int] = (20, 20),
        own_noise: float | None = 0.1,
        distance: float = 0.0,
    ) -> None:
        super().__init__()
        self.graph, self.families, self.noisy = graph, dict(families), dict(noisy)
        self.own_noise, self.distance = own_noise, distance
        self.owner = {column: node for node, own in graph.columns.items() for column in own}
        self.order = tuple(node for node in graph.order if node not in graph.latent)
        self.site = {node: unused_name(f"H_{node}", self.families) for node in self.noisy}
        self.width = {name: features(law, torch.zeros(1)).shape[-1] for name, law in self.families.items()}
        self.places = {column: i for i, column in enumerate(self.families)}
        self.laws = nn.ModuleList(self._new_law(column, hidden) for column in self.families)
        self.encoders = nn.ModuleList(self._new_encoder(node, encoder_hidden) for node in self.noisy)

    def reads(self, column: str) -> list[str]:
        """Return the columns that a column's law reads: those of its parents, and those of its node before it."""
        node = self.owner[column]
        own = self.graph.columns[node]
        parents = [parent for parent in self.graph.parents(node) if parent not in self.graph.latent]
        return [*self.graph.columns_of(parents), *own[: own.index(column)]]

    def family_of(self, node: str) -> list[str]:
        """Return the columns of a node and of its parents, on which alone its latent variable depends."""
        last = self.graph.columns[node][-1]
        return [*self.reads(last), last]

    def _drawn_from(self, column: str) -> Family:
        """Return the family of a column's law, narrow where a latent variable explains the spread."""
        family = self.families[column]
        if self.owner[column] in self.noisy and self.own_noise is not None and isinstance(family, Whole | Continuous):
            least = WHOLE_NOISE / family.sd if isinstance(family, Whole) else 0.0
            return Narrow(replace(family, components=1), max(self.own_noise, least))
        return family

    def _new_law(self, column: str, hidden: int) -> nn.Module:
        width = sum(self.width[name] for name in self.reads(column)) + self.noisy.get(self.owner[column], 0)
        return _Law(width, hidden, self._drawn_from(column).offset.to(torch.get_default_dtype()))

    def _new_encoder(self, node: str, hidden: Sequence[int]) -> nn.Module:
        sizes = [sum(self.width[name] for name in self.family_of(node)), *hidden]
        layers: list[nn.Module] = []
        for width, size in pairwise(sizes):
            layers += [nn.Linear(width, size), nn.Tanh()]
        return nn.Sequential(*layers, nn.Linear(sizes[-1], 2 * self.noisy[node]))

    # -- laws ---------------------------------------------------------------------------------------------------------

    def law(self, column: str, values: Values, latent: Tensor | None = None) -> Any:
        """Return the law of a column given what it reads and, where its node has one, its latent variable.

        Parameters
        ----------
        column
            The column.
        values
            For each column that it reads the values, shapes (..., n) that broadcast.
        latent
            Shape (..., n, k).
        """
        parts = [features(self.families[name], values[name]) for name in self.reads(column)]
        if self.owner[column] in self.noisy:
            assert latent is not None, f"the law of {column} reads the latent variable of its node"
            parts.append(latent)
        shape = torch.broadcast_shapes(*(part.shape[:-1] for part in parts))  # type: ignore[no-untyped-call]
        read = torch.cat([part.expand(*shape, -1) for part in parts], -1) if parts else torch.zeros(1, 0)
        return self._drawn_from(column).law(self.laws[self.places[column]](read))

    def posterior(self, node: str, values: Values) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of a node's latent variable given its family, shapes (n, k)."""
        read = torch.cat([features(self.families[name], values[name]) for name in self.family_of(node)], -1)
        loc, scale = self.encoders[list(self.noisy).index(node)](read).chunk(2, -1)
        return loc, nn.functional.softplus(scale) + 1e-4

    # -- the program and its guide ------------------------------------------------------------------------------------

    def model(self, people: People, rows: Tensor) -> None:
        """Draw latent variables, and observe the columns of some of the people."""
        pyro.module(unused_name("laws", self.families), self.laws)
        batch = {name: values[rows] for name, values in people.values.items()}
        latents: dict[str, Tensor] = {}
        with self._plate(people, rows):
            for node in self.order:
                if node in self.noisy:
                    prior: Any = dist.Normal(torch.zeros(self.noisy[node]), 1.0)
                    latents[node] = pyro.sample(self.site[node], prior.to_event(1))
                for column in self.graph.columns[node]:
                    pyro.sample(column, self.law(column, batch, latents.get(node)), obs=batch[column])
        if self.distance and latents:
            points = torch.cat(list(latents.values()), -1)
            apart = mean_discrepancy(points, people.group[rows], people.weight[rows])
            pyro.factor(unused_name("discrepancy", self.families), -self.distance * people.weight.sum() * apart)

    def guide(self, people: People, rows: Tensor) -> None:
        """Draw the latent variables of some of the people given their columns."""
        pyro.module(unused_name("encoders", self.families), self.encoders)
        batch = {name: values[rows] for name, values in people.values.items()}
        with self._plate(people, rows):
            for node in self.noisy:
                law: Any = dist.Normal(*self.posterior(node, batch))
                pyro.sample(self.site[node], law.to_event(1))

    @contextmanager
    def _plate(self, people: People, rows: Tensor) -> Iterator[None]:
        plate: Any = pyro.plate(unused_name("people", self.families), len(people), subsample=rows)
        with poutine.scale(scale=people.weight[rows]), plate:
            yield
