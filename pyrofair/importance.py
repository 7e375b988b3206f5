"""Which noise may have made a row that does not determine it? Prior draws, weighted by what they give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from pyrofair.evidence import Evidence
from pyrofair.exceptions import DataError
from pyrofair.inversion import Findings
from pyrofair.running import in_batches
from pyrofair.weighing import BATCH, Block, Weigher

__all__ = ["blocks_of", "draw_block"]

# Proposals for a person before the row counts as impossible, and before few matches are taken for what can be had.
MOST, MANY = 1_000_000, 100_000
# Effective draws: so many are aimed at, and for less than so many the most proposals are made, a few people at a time.
ENOUGH, POOR, FEW = 100, 50, 10


def blocks_of(evidence: Evidence, found: Findings) -> list[Block]:
    """Return the nodes that are not yet explained, put together where they share unknown noise."""
    groups: list[tuple[set[str], set[str]]] = []
    for site in evidence.explained:
        if bool(found.done.get(site, torch.zeros(1, dtype=torch.bool)).all()):
            continue
        keys = {key for key in evidence.keys[site] if not bool(found.is_known(key).all())}
        keys |= {above for key in keys for above in evidence.above[key]}
        if not keys:
            continue
        sites = {site}
        for group in [group for group in groups if group[1] & keys]:
            groups.remove(group)
            sites, keys = sites | group[0], keys | group[1]
        groups.append((sites, keys))
    random = evidence.info.random
    return [
        Block(
            tuple(s for s in evidence.nodes if s in sites and s not in random),
            tuple(s for s in evidence.nodes if s in sites and s in random),
            tuple(key for key in evidence.info.sites if key in keys),
        )
        for sites, keys in groups
    ]


@dataclass
class _Kept:
    """Proposals with positive weight: whose they are, their log-weights, and their noise, shape (kept, ...)."""

    person: list[Tensor] = field(default_factory=list)
    weight: list[Tensor] = field(default_factory=list)
    noise: dict[str, list[Tensor]] = field(default_factory=dict)

    def weights(self, n: int) -> tuple[Tensor, Tensor]:
        """Return whose each proposal is, and its weight relative to the largest of that person."""
        person, log_weight = torch.cat(self.person), torch.cat(self.weight)
        most = torch.full((n,), -torch.inf, dtype=log_weight.dtype).scatter_reduce(0, person, log_weight, "amax")
        return person, (log_weight - most[person]).exp()

    def effective(self, n: int) -> Tensor:
        """Return Kish's effective sample size of each person, shape (n,)."""
        person, weight = self.weights(n)
        total = torch.zeros(n, dtype=weight.dtype).index_add(0, person, weight)
        squares = torch.zeros(n, dtype=weight.dtype).index_add(0, person, weight.square())
        return torch.where(squares > 0, total.square() / squares, 0.0)


def draw_block(
    evidence: Evidence,
    found: Findings,
    block: Block,
    draws: int,
    tolerance: Callable[[str], float | None],
    *,
    pivots: bool,
) -> tuple[Tensor, dict[str, Tensor], Tensor, Tensor]:
    """Draw the unknown noise of a block for the people for whom it is unknown.

    People whose rows say the same of it share their proposals; each resamples by herself.
    Proposals come from the prior. A node is explained by exact match if its values repeat (counts, floors), by its
    noise if it is affine in a noise site of its own (this is solved for, and its density at the solution is the
    weight), and otherwise by an Epanechnikov kernel as wide as the tolerance. The weights of the nodes multiply.

    Parameters
    ----------
    draws
        How many draws to resample for each person.
    tolerance
        For each node the width of its kernel, or None.
    pivots
        Whether affine nodes are solved.

    Returns
    -------
    rows : tensor of shape (m,)
        The people.
    noise : dict
        For each noise site of the block its draws, shape (m, draws, ...).
    effective, proposals : tensors of shape (m,)
        Their effective sample sizes, and how many proposals were made.

    Raises
    ------
    DataError
        If a continuous node needs a tolerance, or no proposal reproduces a row.
    """
    open_ = torch.zeros(evidence.n, dtype=torch.bool)
    for key in block.keys:
        open_ = open_ | ~found.is_known(key)
    people = open_.nonzero().squeeze(1)
    like = _alike(evidence, found, block, people)
    rows = people[_first_of(like)]
    weigh = Weigher(evidence, found, block, tolerance, pivots, rows)
    m = len(rows)
    kept = _Kept(noise={key: [] for key in block.keys})
    proposals = torch.zeros(m, dtype=torch.long)
    effective = torch.zeros(m, dtype=torch.float64)
    count = max(draws, 100)
    active = torch.arange(m)
    while len(active):
        for some in in_batches(active, BATCH // count):
            person, log_weight, noise = weigh(some, count)
            kept.person.append(some[person])
            kept.weight.append(log_weight)
            for key, values in noise.items():
                kept.noise[key].append(values)
            proposals[some] += count
        effective = kept.effective(m)
        _require_matches(evidence, block, rows, effective, proposals)
        active = ((effective < max(draws / 5, ENOUGH)) & (proposals < MANY)).nonzero().squeeze(1)
        if not len(active):  # a few at a time, so that one impossible row is found out soon
            active = ((effective < POOR) & (proposals < MOST)).nonzero().squeeze(1)
            active = active[effective[active].argsort()][:FEW]
        count = min(count * 4, MANY)
    return people, _resample(kept, like, m, draws), effective[like], proposals[like]


def _alike(evidence: Evidence, found: Findings, block: Block, people: Tensor) -> Tensor:
    """Return for each person the number of the group of people whose rows say the same of the noise, shape (m,)."""
    sites = {*block.computed, *block.drawn}
    sites |= {s for site in sites for s in evidence.info.causes(site, tuple(evidence.observed))[0]}
    told = [evidence.observed[site][people].double() for site in evidence.observed if site in sites]
    told += [found.done[site][people].double() for site in block.computed]
    for key in evidence.keys_of([*block.computed, *block.drawn]):
        known = found.is_known(key)[people]
        told.append(known.double())
        if key in found.noise and bool(known.any()):
            told.extend(found.noise[key][people].double().nan_to_num().reshape(len(people), -1).unbind(1))
    return cast(Tensor, torch.unique(torch.stack(told, 1), dim=0, return_inverse=True)[1])


def _first_of(group: Tensor) -> Tensor:
    """Return the place of a member of each group."""
    place = torch.empty(int(group.max()) + 1, dtype=torch.long)
    place[group] = torch.arange(len(group))
    return place


def _require_matches(evidence: Evidence, block: Block, rows: Tensor, effective: Tensor, proposals: Tensor) -> None:
    failed = (effective == 0) & (proposals >= MOST)
    if not bool(failed.any()):
        return
    row = int(rows[int(failed.int().argmax())])
    sites = (*block.computed, *block.drawn)
    told = "; ".join(evidence.describe(site, row).split(": ", 1)[1] for site in sites)
    raise DataError(
        f"Row {evidence.label(row)} is impossible under the program, or nearly so: of {int(proposals.max()):,} draws "
        f"of the noise {', '.join(block.keys)} none gives {told}. Correct the row or the program, or declare an "
        f"inverse: inverses={{{sites[0]!r}: ...}}."
    )


def _resample(kept: _Kept, group: Tensor, n: int, draws: int) -> dict[str, Tensor]:
    """Draw for each person from her group's proposals by their weights, shape (m, draws, ...).

    It is done systematically, which adds the least noise, and in random order, so that blocks stay independent.
    """
    owner, weight = kept.weights(n)
    order = owner.argsort(stable=True)
    cumulative = weight[order].cumsum(0)
    total = torch.zeros(n, dtype=weight.dtype).index_add(0, owner, weight)
    start = total.cumsum(0) - total
    size = torch.bincount(owner, minlength=n)
    last = size.cumsum(0) - 1
    steps = torch.arange(draws, dtype=weight.dtype)
    every = {key: torch.cat(values)[order] for key, values in kept.noise.items()}
    picked: dict[str, list[Tensor]] = {key: [] for key in every}
    for some in in_batches(group, BATCH // draws):
        place = (steps + torch.rand(len(some), 1, dtype=weight.dtype)) / draws
        place = place.gather(1, torch.rand(len(some), draws).argsort(1))
        sought = start[some].unsqueeze(1) + place * total[some].unsqueeze(1)
        found = torch.searchsorted(cumulative, sought, right=True)
        # Rounding of the sums must not hand anyone a neighbour's proposals.
        found = torch.minimum(found.clamp(min=(last - size + 1)[some].unsqueeze(1)), last[some].unsqueeze(1))
        for key, values in every.items():
            picked[key].append(values[found])
    return {key: torch.cat(values) for key, values in picked.items()}
