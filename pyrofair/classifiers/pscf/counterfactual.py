"""Counterfactual features of PSCF: nodes on unfair paths redrawn along the edges, unfair ones at the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyrofair._random import keyed_strata, row_keys
from pyrofair.classifiers.pscf.model import LatentSEM
from pyrofair.exceptions import GraphError
from pyrofair.graph.path_sets import show_path
from pyrofair.graph.paths import UnfairPaths
from pyrofair.programs.couplings import inside, quantile

__all__ = ["Replay", "read_replay"]

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
