"""The latent-variable model of PSCF, its evidence lower bound, and the units redrawn along fair edges."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from pyro import poutine
from pyro.infer import TraceMeanField_ELBO
from torch import Tensor, nn
from tqdm.auto import tqdm

from pyrofair._random import isolated, keyed_strata, row_keys
from pyrofair.exceptions import DataError, GraphError
from pyrofair.graph import CausalGraph, UnfairPaths
from pyrofair.graph.causal_graph import unused_name
from pyrofair.graph.paths import show_path
from pyrofair.inference.samplers import Schedule, fall, fitting, run_svi
from pyrofair.mechanisms.families import Continuous, Family, Integer, features
from pyrofair.programs.couplings import inside, quantile

__all__ = [
    "LatentSEM",
    "Latents",
    "Replay",
    "Steps",
    "Units",
    "check_convergence",
    "evidence",
    "fit_elbo",
    "mean_discrepancy",
    "read_replay",
    "unsettled",
]


def mean_discrepancy(points: Tensor, group: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the squared maximum mean discrepancy between two groups of points, under a Gaussian kernel.

    With ``k(x, y) = exp(-|x - y|^2 / (2 d))`` it is the mean of k over all pairs in group 0, plus that in group 1,
    minus twice that between the groups (Gretton et al., 2012, eq. 5; Chiappa, 2018). ``points`` has shape (n, d),
    ``group`` (n,) holds 0 or 1. It is 0 if one group has no point.

    >>> mean_discrepancy(torch.tensor([[0.0], [2.0]]), torch.tensor([0, 1]))  # 2 - 2 exp(-2)
    tensor(1.7293)
    """
    mass = torch.ones_like(points[:, 0]) if weight is None else weight.to(points)
    zero, one = (mass * (group == value).to(points) for value in (0, 1))
    if not bool(zero.sum() > 0) or not bool(one.sum() > 0):
        return points.new_zeros(())
    contrast = zero / zero.sum() - one / one.sum()
    kernel = torch.exp(torch.cdist(points, points).square() / (-2.0 * points.shape[1]))
    return contrast @ kernel @ contrast


Values = Mapping[str, Tensor]
"""For each column the program's values, the units in the last dimension."""


INTEGER_NOISE = 0.25
"""The least spread of an integer's own noise, in units: rounding hides anything finer, and steps fit badly."""


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
        return self.family.distribution(
            torch.cat([torch.zeros_like(out), out, torch.full_like(out, math.log(self.own))], -1)
        )


@dataclass(frozen=True)
class Units:
    """The rows that a program is conditioned on: columns, sensitive attribute as 0 and 1, weights, shape (n,) each."""

    values: dict[str, Tensor]
    group: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.weight)


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
    """A distribution for each column given its causes, some nodes having a latent variable of their own among them.

    Each column has networks of its own: nothing is shared between nodes. A node of several columns has one latent,
    which each of its columns reads, and each column reads those before it. Latent nodes of the graph are left out.

    ``families`` holds the distribution of each column, in the order in which they are drawn; ``noisy`` the dimensions
    of each latent variable by node; ``hidden`` and ``encoder_hidden`` the tanh units of a distribution's one layer and
    of the guide's layers. ``own_noise`` is what the distribution of a number keeps of its spread where there is a
    latent variable (see :class:`FixedSpread`; None: it is learned), ``distance`` the strength of the penalty on the
    discrepancy between the groups' latents.
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
        self.width = {name: features(family, torch.zeros(1)).shape[-1] for name, family in self.families.items()}
        self.index = {column: i for i, column in enumerate(self.families)}
        self.networks = nn.ModuleList(self._new_numbers(column, hidden) for column in self.families)
        self.encoders = nn.ModuleList(self._new_encoder(node, encoder_hidden) for node in self.noisy)

    def reads(self, column: str) -> list[str]:
        """Return the columns that a column's distribution reads: those of its parents, and its node's before it."""
        node = self.owner[column]
        own = self.graph.columns[node]
        parents = [parent for parent in self.graph.parents(node) if parent not in self.graph.latent]
        return [*self.graph.columns_of(parents), *own[: own.index(column)]]

    def family_of(self, node: str) -> list[str]:
        """Return the columns of a node and of its parents, on which alone its latent variable depends."""
        last = self.graph.columns[node][-1]
        return [*self.reads(last), last]

    def _drawn_from(self, column: str) -> Family:
        """Return the family of a column's distribution, narrow where a latent variable explains the spread."""
        family = self.families[column]
        if self.owner[column] in self.noisy and self.own_noise is not None and isinstance(family, Integer | Continuous):
            least = INTEGER_NOISE / family.sd if isinstance(family, Integer) else 0.0
            return FixedSpread(replace(family, components=1), max(self.own_noise, least))
        return family

    def _new_numbers(self, column: str, hidden: int) -> nn.Module:
        width = sum(self.width[name] for name in self.reads(column)) + self.noisy.get(self.owner[column], 0)
        return _Numbers(width, hidden, self._drawn_from(column).offset.to(torch.get_default_dtype()))

    def _new_encoder(self, node: str, hidden: Sequence[int]) -> nn.Module:
        sizes = [sum(self.width[name] for name in self.family_of(node)), *hidden]
        layers: list[nn.Module] = []
        for width, size in pairwise(sizes):
            layers += [nn.Linear(width, size), nn.Tanh()]
        return nn.Sequential(*layers, nn.Linear(sizes[-1], 2 * self.noisy[node]))

    # -- distributions ------------------------------------------------------------------------------------------------

    def distribution(self, column: str, values: Values, latent: Tensor | None = None) -> Any:
        """Return the distribution of a column given the values that it reads, shapes (..., n), and its node's latent.

        ``latent`` has shape (..., n, k).
        """
        parts = [features(self.families[name], values[name]) for name in self.reads(column)]
        if self.owner[column] in self.noisy:
            assert latent is not None, f"the distribution of {column} reads the latent variable of its node"
            parts.append(latent)
        shape = torch.broadcast_shapes(*(part.shape[:-1] for part in parts))  # type: ignore[no-untyped-call]
        read = torch.cat([part.expand(*shape, -1) for part in parts], -1) if parts else torch.zeros(1, 0)
        return self._drawn_from(column).distribution(self.networks[self.index[column]](read))

    def posterior(self, node: str, values: Values) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of a node's latent variable given its family, shapes (n, k)."""
        read = torch.cat([features(self.families[name], values[name]) for name in self.family_of(node)], -1)
        loc, scale = self.encoders[list(self.noisy).index(node)](read).chunk(2, -1)
        return loc, nn.functional.softplus(scale) + 1e-4

    # -- the program and its guide ------------------------------------------------------------------------------------

    def model(self, units: Units, rows: Tensor) -> None:
        """Draw latent variables, and observe the columns of some of the units."""
        batch = {name: values[rows] for name, values in units.values.items()}
        latents: dict[str, Tensor] = {}
        with self._plate(units, rows):
            for node in self.order:
                if node in self.noisy:
                    prior: Any = dist.Normal(torch.zeros(self.noisy[node]), 1.0)
                    latents[node] = pyro.sample(self.site[node], prior.to_event(1))
                for column in self.graph.columns[node]:
                    pyro.sample(column, self.distribution(column, batch, latents.get(node)), obs=batch[column])
        if self.distance and latents:
            points = torch.cat(list(latents.values()), -1)
            apart = mean_discrepancy(points, units.group[rows], units.weight[rows])
            pyro.factor(unused_name("discrepancy", self.families), -self.distance * units.weight.sum() * apart)

    def guide(self, units: Units, rows: Tensor) -> None:
        """Draw the latent variables of some of the units given their columns."""
        batch = {name: values[rows] for name, values in units.values.items()}
        with self._plate(units, rows):
            for node in self.noisy:
                posterior: Any = dist.Normal(*self.posterior(node, batch))
                pyro.sample(self.site[node], posterior.to_event(1))

    @contextmanager
    def _plate(self, units: Units, rows: Tensor) -> Iterator[None]:
        plate: Any = pyro.plate(unused_name("units", self.families), len(units), subsample=rows)
        with poutine.scale(scale=units.weight[rows]), plate:
            yield


STEADY, FINAL = 1 / 3, 0.01
"""For so much of the time all steps have one size; then they shrink to this share of it."""
PROGRESS_AFTER = 5.0
TOLERANCE = 0.02
"""A loss has settled if, while steps had one size, it gained at most this share of itself since half-time."""


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


def fit_elbo(sem: LatentSEM, units: Units, steps: Steps, seed: int) -> list[float]:
    """Train the networks of distributions and guide in place, and return the loss of each epoch in nats a unit.

    The loss is the negative evidence lower bound, with the divergence of the guide from the prior in closed form, plus
    the penalty on the discrepancy between groups. Batches hold their share of both groups. An interruption (Ctrl-C)
    ends the fit with the networks of the last whole epoch; before the end of the first it goes on to the caller.
    """
    count = max(1, -(-len(units) // steps.batch_size))
    schedule = Schedule(steps.epochs * count, steps.learning_rate, STEADY, FINAL, steps.weight_decay)
    batches = (rows for _ in range(steps.epochs) for rows in _batches(units.group, count))
    elbo = TraceMeanField_ELBO()  # type: ignore[no-untyped-call]
    total, losses = 0.0, list[float]()
    kept: dict[str, Tensor] = {}
    bar = tqdm(total=steps.epochs, desc="epochs", disable=not steps.progress, delay=PROGRESS_AFTER, leave=False)
    with isolated(seed), fitting(), bar:
        loss = partial(elbo.differentiable_loss, sem.model, sem.guide, units)
        try:
            for step, value in enumerate(run_svi(loss, list(sem.parameters()), batches, schedule), 1):
                total += value
                if step % count:
                    continue
                if not math.isfinite(total):
                    raise DataError(
                        f"Training diverged: the loss is {total} in epoch {len(losses)}. Lower "
                        f"learning_rate={steps.learning_rate:g}."
                    )
                kept = {name: value.clone() for name, value in sem.state_dict().items()}
                losses.append(total / count / float(units.weight.sum()))
                total = 0.0
                bar.update()
        except KeyboardInterrupt:
            if not losses:
                raise
            sem.load_state_dict(kept)
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


def evidence(sem: LatentSEM, units: Units, draws: int = 10, seed: int = 0) -> float:
    """Return the evidence lower bound in nats a unit, averaged over draws of the latent variables."""
    with isolated(seed), fitting(), torch.no_grad():
        bound = TraceMeanField_ELBO(num_particles=draws)  # type: ignore[no-untyped-call]
        loss = bound.loss(sem.model, sem.guide, units, torch.arange(len(units)))  # type: ignore[no-untyped-call]
    return -float(loss) / float(units.weight.sum())


def unsettled(losses: list[float]) -> float:
    """Return the share of the loss (or of a nat, if it is less) gained in the second half of equal steps.

    It is 0 if it is at most 2 %, two standard errors allowed for. A loss that falls like one over time still has as
    much before it as it has gained since half-time. It is compared before steps shrink: then it falls in any case,
    however far it is from its end.
    """
    trace = losses[: max(math.ceil(STEADY * len(losses)), 1)]
    trend = fall(trace, share=0.5)
    size = max(abs(float(np.mean(trace[-max(len(trace) // 6, 1) :]))), 1.0)
    return trend.drop / size if trend.drop - 2.0 * trend.error > TOLERANCE * size else 0.0


def _batches(group: Tensor, count: int) -> list[Tensor]:
    """Split the rows at random into batches that hold both groups in their shares."""
    order = torch.randperm(len(group))
    order = order[torch.argsort(group[order], stable=True)]
    return [order[i::count] for i in torch.randperm(count).tolist()]


Latents = Literal["posterior", "prior"]


@dataclass(frozen=True)
class Replay:
    """Unfair paths, the nodes redrawn on them in causal order, and the children of A that read the baseline.

    The outcome is one of these children if its edge is unfair.
    """

    unfair: UnfairPaths
    redrawn: tuple[str, ...]
    switched: frozenset[str]

    @property
    def baseline(self) -> float:
        """The value, 0 or 1, that unfair paths carry."""
        return float(self.unfair.regimes[0].on_unfair)

    def as_is(self) -> Replay:
        """Return the replay in which every edge carries a unit's own value, which redraws the unit as it is."""
        return replace(self, switched=frozenset())

    def reads(self, node: str) -> tuple[str, ...]:
        """Return the observed parents of a node that keep the unit's own value where this node reads them."""
        graph = self.unfair.graph
        left_out = {*graph.latent, *self.redrawn, *([graph.sensitive] if node in self.switched else [])}
        return tuple(parent for parent in graph.parents(node) if parent not in left_out)

    def columns_read(self, latents: Latents) -> list[str]:
        """Return the columns on which a unit's prediction depends."""
        graph = self.unfair.graph
        nodes = {parent for node in (*self.redrawn, graph.outcome) for parent in self.reads(node)}
        if latents == "posterior":
            nodes |= {each for node in self.redrawn for each in (node, *graph.parents(node))}
        return graph.columns_of(node for node in graph.order if node in nodes - {*graph.latent})

    def fair_values(
        self,
        sem: LatentSEM,
        values: Mapping[str, Tensor],
        keys: NDArray[np.uint64],
        *,
        latents: Latents,
        draws: int,
        seed: int,
    ) -> dict[str, Tensor]:
        """Redraw the nodes on unfair paths, each from its distribution given its causes as it reads them now.

        ``values`` (n,) are those of :meth:`columns_read`, ``keys`` those of :meth:`keys`; latent variables are drawn
        from their posterior given the unit's row, or from the prior. Returned are the redrawn columns, (draws, n), and
        under the names of their sites the latent variables, (draws, n, k). The noise belongs to what the two worlds
        share of a unit: the same row gets the same values at any index, and rows that differ only by unfair paths have
        the same noise.
        """
        found: dict[str, Tensor] = {}
        for node in self.redrawn:
            site = sem.site[node]
            u = keyed_strata(keys, seed, site, (draws, sem.noisy[node]))
            noise = torch.special.ndtri(u).movedim(-2, -1).to(torch.get_default_dtype())
            if latents == "posterior":
                loc, scale = sem.posterior(node, values)
                noise = loc + scale * noise
            found[site] = noise
            for column in self.unfair.graph.columns[node]:
                distribution = sem.distribution(column, self.as_read(column, sem, values, found), noise)
                u = keyed_strata(keys, seed, column, (draws,)).to(torch.get_default_dtype())
                found[column] = quantile(column, distribution, inside(u)).to(u.dtype).expand(draws, len(keys))
        return found

    def as_read(
        self, column: str, sem: LatentSEM, values: Mapping[str, Tensor], fair: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the columns that a column's distribution reads, in the values in which it reads them."""
        graph = self.unfair.graph
        reads = sem.reads(column)
        seen = {name: fair[name] if name in fair else values[name] for name in reads if name != graph.sensitive_column}
        if graph.sensitive_column in reads:
            if sem.owner[column] in self.switched:
                seen[graph.sensitive_column] = torch.full((1,), self.baseline)
            else:
                seen[graph.sensitive_column] = values[graph.sensitive_column]
        return seen

    def keys(self, values: Mapping[str, Tensor], n: int) -> NDArray[np.uint64]:
        """Return keys of n units' noise, made of those columns that no unfair path touches and a prediction reads."""
        graph = self.unfair.graph
        nodes = {parent for node in (*self.redrawn, graph.outcome) for parent in self.reads(node)} - {graph.sensitive}
        columns = graph.columns_of(node for node in graph.order if node in nodes)
        return row_keys([values[name] for name in columns], n)


def read_replay(unfair: UnfairPaths) -> Replay:
    """Read off the unfair paths what must be redrawn.

    A recanting witness, which would need two values at once, is a NotIdentifiedError; an unfair path through a latent
    node, whose distribution no data determine, a GraphError.
    """
    graph = unfair.graph
    witnesses = unfair.regimes[1].arms if unfair.paths else {}
    redrawn = unfair.paths.nodes - {graph.sensitive, graph.outcome}
    for path in unfair.paths.through(graph.latent)[:1]:
        hidden = next(node for node in path if node in graph.latent)
        raise GraphError(
            f"The unfair path {show_path(path)} runs through the latent node {hidden!r}, whose fair value cannot be "
            "drawn: no data determine its distribution. Draw the graph without it, with edges from its causes to its "
            "effects."
        )
    high = unfair.regimes[1].on_unfair
    return Replay(
        unfair,
        tuple(node for node in graph.order if node in redrawn),
        frozenset(child for child, arm in witnesses.items() if arm == high),
    )
