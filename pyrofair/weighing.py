"""How well does proposed noise explain a row? By exact match, by solving for noise of a node's own, or by a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pyrofair.evidence import Evidence, Reading
from pyrofair.exceptions import DataError
from pyrofair.inversion import Findings, find_line
from pyrofair.running import in_batches, repeat_each

__all__ = ["BATCH", "Block", "Weigher"]

# A run holds at most so many people times proposals.
BATCH = 1_000_000
# So many proposals tell whether a node is discrete, and so many settings of other noise whether it depends on one.
PROBES, TRIES = 4096, 8
# The log-weight of what has a probability, among others that have a density.
ATOM = 1000.0


@dataclass(frozen=True)
class Block:
    """Nodes whose unknown noise hangs together.

    Parameters
    ----------
    computed, drawn
        The nodes computed from noise, and those drawn from a law that reads it.
    keys
        The unknown noise sites.
    """

    computed: tuple[str, ...]
    drawn: tuple[str, ...]
    keys: tuple[str, ...]


class Weigher:
    """Propose noise for people, and weigh it by what it gives."""

    def __init__(
        self,
        evidence: Evidence,
        found: Findings,
        block: Block,
        tolerance: Callable[[str], float | None],
        pivots: bool,
        rows: Tensor,
    ) -> None:
        self.evidence, self.found, self.block, self.rows = evidence, found, block, rows
        self.sites = (*block.computed, *block.drawn)
        self.width = {site: tolerance(site) for site in block.computed}
        self.pivots = {s: self._choose_pivots(s) if pivots else self._no_pivot() for s in block.computed}
        self.kernel = {s: self._by_kernel(s) for s in block.computed}

    def _propose(self, at: Tensor, count: int) -> tuple[dict[str, Tensor], Reading]:
        given = self.evidence.given(at, count, self.sites)
        partly = self.found.partly(self.evidence.keys_of(self.sites), at, count)
        return given, self.evidence.run(given, self.sites, partly=partly)

    def _no_pivot(self) -> Tensor:
        return torch.full((len(self.rows),), -1)

    def _choose_pivots(self, site: str) -> Tensor:
        """Return for each person which noise of a node's own is solved for, shape (m,): its place in the keys, or -1.

        The node must be affine in it, whatever the other noise, and depend on it.
        """
        evidence = self.evidence
        choice = self._no_pivot()
        for place, key in enumerate(evidence.keys[site]):
            if evidence.readers[key] != (site,) or not evidence.is_root(key):
                continue
            tilted = [self._is_tilted(site, key, at) for at in in_batches(self.rows, PROBES)]
            if all(part is not None for part in tilted):
                useful = torch.cat([part for part in tilted if part is not None])
                open_ = ~self.found.is_known(key)[self.rows] & ~self.found.done[site][self.rows]
                choice[(choice < 0) & useful & open_] = place
        return choice

    def _is_tilted(self, site: str, key: str, at: Tensor) -> Tensor | None:
        """Tell for whom a node depends on a noise site, at some draws of the others; None if it is not affine in it."""
        given, reading = self._propose(at, TRIES)
        others = {other: values for other, values in reading.noise.items() if other != key}
        line = find_line(self.evidence, given, site, key, others)
        return None if line is None else (~line.flat).reshape(len(at), TRIES).any(1)

    def _by_kernel(self, site: str) -> Tensor:
        """Tell for whom a node is compared through a kernel rather than by exact match, shape (m,).

        Values that are whole, or mostly repeat, are matched. So is a single value that a continuous node takes again
        and again (a zero that it is cut off at).
        """
        m = len(self.rows)
        kernel = torch.zeros(m, dtype=torch.bool)
        others = (self.pivots[site] < 0) & ~self.found.done[site][self.rows]
        if not bool(others.any()):
            return kernel
        rows = self.rows[others]
        few, _ = self._probe(site, rows[torch.randperm(len(rows))[:8]], PROBES)
        if bool((few == few.round()).all()) or _singletons(few) < 0.05:
            return kernel
        f, hit = self._probe(site, rows, max(32, PROBES // m))
        least = f.masked_fill(~hit, torch.inf).amin(1)
        most = f.masked_fill(~hit, -torch.inf).amax(1)
        atom = (hit.sum(1) > 1) & (least == most)
        if self.width[site] is None and not bool(atom.all()):
            row = int(rows[int((~atom).int().argmax())])
            raise DataError(
                f"{self.evidence.describe(site, row)}: the node {site!r} is continuous, and its equation was not "
                f"solved for its noise ({', '.join(self.evidence.keys[site])}; method='auto' does so if it is affine), "
                "so draws will not meet its value exactly. Declare an inverse, "
                f"inverses={{{site!r}: lambda values: ...}}, or pass tolerance=, a kernel's width in the units of "
                f"{site} (an approximation)."
            )
        kernel[others] = ~atom
        return kernel

    def _probe(self, site: str, rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return what a node is at proposals, and where it is as observed, shape (m, count)."""
        values, close = [], []
        for some in in_batches(rows, BATCH // count):
            given, reading = self._propose(some, count)
            natural = reading.natural[site].to(torch.get_default_dtype()).expand(len(some) * count)
            values.append(natural.reshape(-1, count))
            close.append(self.evidence.close(site, natural, given).reshape(-1, count))
        return torch.cat(values), torch.cat(close)

    def __call__(self, some: Tensor, count: int) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return which of the people ``some`` each kept proposal is for, its log-weight, and its noise."""
        at = self.rows[some]
        given, reading = self._propose(at, count)
        log_weight = torch.zeros(len(at) * count, dtype=torch.float64)
        if any(bool((choice[some] >= 0).any()) for choice in self.pivots.values()):
            reading, log_weight = self._solve_pivots(some, count, given, reading)
        noise = reading.noise
        for site in self.block.computed:
            log_weight = log_weight + self._compare(site, some, count, given, reading)
        for site in self.block.drawn:
            value = given[site]
            log_prob = reading.laws[site].log_prob(value).double().expand(len(log_weight))
            log_weight = log_weight + torch.where(reading.laws[site].support.check(value), log_prob, -torch.inf)
        log_weight = torch.nan_to_num(log_weight, nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf)
        keep = (log_weight > -torch.inf).nonzero().squeeze(1)
        person = torch.div(keep, count, rounding_mode="floor")
        return person, log_weight[keep], {key: noise[key][keep] for key in self.block.keys}

    def _compare(self, site: str, some: Tensor, count: int, given: Mapping[str, Tensor], reading: Reading) -> Tensor:
        """Return the log-weight of proposals for a node, shape (m * count,): by match, or by kernel."""
        natural = reading.natural[site].to(torch.get_default_dtype()).expand(len(some) * count)
        weight = self.evidence.close(site, natural, given).double()
        kernel = repeat_each(self.kernel[site][some], count)
        width = self.width[site]
        if width is not None and bool(kernel.any()):
            away = (natural - given[site].to(natural.dtype)).double() / width
            weight = torch.where(kernel, (1.0 - away.square()).clamp(min=0.0), weight)
        settled = self.found.done[site][self.rows[some]] | (self.pivots[site][some] >= 0)
        return torch.where(repeat_each(settled, count), 1.0, weight).log()

    def _solve_pivots(
        self, some: Tensor, count: int, given: dict[str, Tensor], first: Reading
    ) -> tuple[Reading, Tensor]:
        """Replace the proposed noise of affine nodes by what gives the observed value, at the other proposed noise.

        Returns
        -------
        reading, log_weight
            The equations at that noise, and the log-density of the observed values there, shape (m * count,).
        """
        evidence = self.evidence
        chosen = {
            (site, key): repeat_each(self.pivots[site][some] == place, count)
            for site in self.block.computed
            for place, key in enumerate(evidence.keys[site])
            if bool((self.pivots[site][some] == place).any())
        }
        moved = {key: (first.noise[key], ~mine) for (_, key), mine in chosen.items()}
        others = {key: values for key, values in first.noise.items() if key not in moved}
        second = evidence.run(given, self.sites, others, moved)
        solved = dict(first.noise)
        slopes = {}
        for (site, key), mine in chosen.items():
            run = second.noise[key] - first.noise[key]
            slope = (second.natural[site] - first.natural[site]) / run
            u = first.noise[key] + (given[site] - first.natural[site]) / slope
            tilted = mine & (slope != 0) & torch.isfinite(u)
            solved[key] = torch.where(tilted, u, first.noise[key])
            slopes[site, key] = torch.where(tilted, slope, 0.0)
        final = evidence.run(given, self.sites, solved)
        log_weight = torch.zeros(len(some) * count, dtype=torch.float64)
        for (site, key), mine in chosen.items():
            law, u, slope = final.laws[key], solved[key], slopes[site, key].abs()
            density = law.log_prob(u) - (0.0 if law.support.is_discrete else slope.log())
            # Where other noise leaves no slope, the value has a probability, next to which a density is nothing.
            weight = torch.where(slope > 0, torch.where(law.support.check(u), density, -torch.inf), ATOM).double()
            weight = torch.where(evidence.close(site, final.natural[site], given), weight, -torch.inf)
            log_weight = log_weight + torch.where(mine, weight, 0.0)
        return final, log_weight


def _singletons(values: Tensor) -> float:
    """Return the share of values, shape (m, count), that occur once in their row."""
    ordered = values.sort(1).values
    differs = ordered[:, 1:] != ordered[:, :-1]
    ends = torch.ones(len(values), 1, dtype=torch.bool)
    return (torch.cat([ends, differs], 1) & torch.cat([differs, ends], 1)).double().mean().item()
