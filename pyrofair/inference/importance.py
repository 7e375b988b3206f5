"""Draws of the exogenous noise of observed units given their rows: by importance weights, or by gradients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.infer.autoguide import AutoNormal, init_to_sample
from pyro.poutine.messenger import Messenger
from torch import Tensor

from pyrofair._arviz import diagnose
from pyrofair.exceptions import DataError
from pyrofair.inference.evidence import Evidence, Reading, distinct, repeat_each
from pyrofair.inference.inversion import BATCH, CHECKS, Equation, Findings
from pyrofair.inference.samplers import NormalGuide, Schedule, fit_guide, fitting, outside, run_nuts
from pyrofair.programs.provenance import is_deterministic
from pyrofair.programs.sites import UNITS

__all__ = ["CHAINS", "Block", "blocks_of", "draw_block", "draw_by_gradients", "in_batches"]

PROBES, TRIES = 4096, 8
"""So many proposals show whether a node is discrete, and so many settings of other noise whether one can be solved."""
SEVERAL = 20
"""Among so many values of a node a share of different ones tells whether they are continuous."""
ATOM = 1000.0
"""The log-weight of what has a probability, among others that have a density."""
MOST, MANY = 1_000_000, 100_000
"""Proposals for a unit before its row counts as impossible, and before few matches are all that can be had."""
ENOUGH, POOR, FEW = 100, 50, 10
"""The effective draws aimed at; the number below which the most proposals are made, so many units at a time."""
TOGETHER = 200
"""Units whose proposals are held at a time: of each these may be many times its draws."""
STEP, ROUNDED = 1e-4, 100.0
"""Slopes are taken by a step of so small a part of the spread of noise, and of at least so many units of rounding."""
CHAINS, WARMUP, STEPS, RATE = 2, 200, 2000, 0.1
"""Of the No-U-Turn sampler, and of variational inference."""


# -- importance weights ------------------------------------------------------------------------------------------------


def in_batches(rows: Tensor, size: int) -> list[Tensor]:
    """Split units into batches of at most ``size``, and at least one unit each."""
    return list(rows.split(max(1, size))) if len(rows) else []  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Block:
    """Nodes that share unknown noise, computed from it or drawn from distributions that read it, and its sites."""

    computed: tuple[str, ...]
    drawn: tuple[str, ...]
    keys: tuple[str, ...]


class _ImportanceWeights:
    """Proposals of noise for units, drawn from the prior, and their log-weights given the observed values."""

    def __init__(
        self,
        evidence: Evidence,
        found: Findings,
        block: Block,
        widths: Mapping[str, float],
        pivots: bool,
        rows: Tensor,
    ) -> None:
        self.evidence, self.found, self.block, self.rows, self.widths = evidence, found, block, rows, widths
        self.sites = (*block.computed, *block.drawn)
        self.pivots = {s: self._candidates(s) if pivots else () for s in block.computed}
        self.solvable = {s: self._solvable(s) for s in block.computed}
        self.kernel = {s: self._by_kernel(s) for s in block.computed}

    def _propose(self, at: Tensor, count: int) -> tuple[dict[str, Tensor], Reading]:
        given = self.evidence.given(at, count, self.sites)
        partly = self.found.partly(self.evidence.keys_of(self.sites), at, count)
        return given, self.evidence.run(given, self.sites, partly=partly)

    def _candidates(self, site: str) -> tuple[str, ...]:
        """Return the noise of a node's own that may be solved for: all that is continuous, or one that is discrete.

        Discrete noise of one site gives all ways to the value, as it is drawn together with the other noise. Continuous
        noise may leave some out, those in which another noise site alone gives the value, so that all take turns.
        """
        evidence = self.evidence
        above = {each for key in self.block.keys for each in evidence.above[key]}
        own = [
            key
            for key in evidence.keys[site]
            if evidence.readers[key] == (site,) and evidence.is_number(key) and key not in above
        ]
        if not own:
            return ()
        _, reading = self._propose(self.rows[:1], 1)
        discrete = [key for key in own if reading.distributions[key].support.is_discrete]
        return tuple(key for key in own if key not in discrete) or tuple(discrete[:1])

    def _solvable(self, site: str) -> Tensor:
        """Return for which units a node can be solved for each candidate, at draws of the other noise, (m, k)."""
        open_ = ~self.found.done[site][self.rows]
        found = [open_ & ~self.found.is_known(key)[self.rows] for key in self.pivots[site]]
        for key, usable in zip(self.pivots[site], found, strict=True):
            for part in in_batches(usable.nonzero().squeeze(1), PROBES):
                given, reading = self._propose(self.rows[part], TRIES)
                equation = self._equation(site, key, repeat_each(self.rows[part], TRIES), given, reading.noise)
                usable[part] = equation.preimage(CHECKS).conclusive.reshape(-1, TRIES).all(1)
        return torch.stack(found, 1) if found else torch.zeros(len(self.rows), 0, dtype=torch.bool)

    def _equation(
        self, site: str, key: str, rows: Tensor, given: Mapping[str, Tensor], noise: Mapping[str, Tensor]
    ) -> Equation:
        """Return a node as a function of one noise site, at proposals of the others."""
        others = {name: values for name, values in noise.items() if name != key}
        return Equation(self.evidence, rows, given, site, key, others)

    def _by_kernel(self, site: str) -> Tensor:
        """Return for which units a node is compared through a kernel rather than by exact match, shape (m,).

        Values that are integers, or mostly repeat, are matched. So is a single value that a continuous node takes again
        and again (a zero that it is cut off at).
        """
        m = len(self.rows)
        kernel = torch.zeros(m, dtype=torch.bool)
        others = ~self.solvable[site].any(1) & ~self.found.done[site][self.rows]
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
        if self.widths.get(site) is None:
            keys = ", ".join(self.evidence.keys[site])
            why = f"its equation was not solved for its noise ({keys})"
            text = _unsolved(site, why) + self.evidence.way_out(self.evidence.keys[site])
            self.evidence.refuse(~atom, site, text, rows)
        kernel[others] = ~atom
        return kernel

    def _probe(self, site: str, rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return a node's values at proposals, and where they are as observed, shape (m, count)."""
        values, close = [], []
        for some in in_batches(rows, BATCH // count):
            _, reading = self._propose(some, count)
            natural = reading.natural[site].to(torch.get_default_dtype()).expand(len(some) * count)
            values.append(natural.reshape(-1, count))
            close.append(self.evidence.close(site, natural, repeat_each(some, count)).reshape(-1, count))
        return torch.cat(values), torch.cat(close)

    def __call__(self, some: Tensor, count: int) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Propose so many for each of some units; return the unit of each kept one, its log-weight and its noise."""
        at = self.rows[some]
        given, reading = self._propose(at, count)
        log_weight = torch.zeros(len(at) * count, dtype=torch.float64)
        if any(bool(solvable[some].any()) for solvable in self.solvable.values()):
            reading, log_weight = self._solve_pivots(some, count, given, reading)
        noise = reading.noise
        for site in self.block.computed:
            log_weight = log_weight + self._compare(site, some, count, given, reading)
        for site in self.block.drawn:
            d, value = reading.distributions[site], given[site]
            log_prob = d.log_prob(value).double().expand(len(log_weight))
            log_weight = log_weight + torch.where(d.support.check(value), log_prob, -torch.inf)
        log_weight = torch.nan_to_num(log_weight, nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf)
        keep = (log_weight > -torch.inf).nonzero().squeeze(1)
        unit = torch.div(keep, count, rounding_mode="floor")
        return unit, log_weight[keep], {key: noise[key][keep] for key in self.block.keys}

    def _compare(self, site: str, some: Tensor, count: int, given: Mapping[str, Tensor], reading: Reading) -> Tensor:
        """Return the log-weight of proposals for a node, shape (m * count,): by match, or by kernel."""
        natural = reading.natural[site].to(torch.get_default_dtype()).expand(len(some) * count)
        weight = self.evidence.close(site, natural, repeat_each(self.rows[some], count)).double()
        kernel = repeat_each(self.kernel[site][some], count)
        width = self.widths.get(site)
        if width is not None and bool(kernel.any()):
            away = (natural - given[site].to(natural.dtype)).double() / width
            weight = torch.where(kernel, (1.0 - away.square()).clamp(min=0.0), weight)
        settled = self.found.done[site][self.rows[some]] | self.solvable[site][some].any(1)
        return torch.where(repeat_each(settled, count), 1.0, weight).log()

    def _solve_pivots(
        self, some: Tensor, count: int, given: dict[str, Tensor], first: Reading
    ) -> tuple[Reading, Tensor]:
        """Replace proposed noise by what gives the observed values, at the other proposed noise.

        Returned are the equations there and the log-weights of the proposals, shape (m * count,). The noise sites of a
        node take turns. All of them together propose a point of its noise with the density of the others there, so its
        weight is the reciprocal of the mean of slope / density over them (the balance heuristic of Veach and Guibas,
        1995): a site on which the node does not depend at a point never proposes it. A value that intervals of noise
        give has a probability, next to which a density is nothing.
        """
        solved, size = dict(first.noise), len(some) * count
        weights = {site: torch.zeros(size, dtype=torch.float64) for site, keys in self.pivots.items() if keys}
        points = {site: torch.zeros(size, dtype=torch.bool) for site in weights}
        rows = repeat_each(self.rows[some], count)
        for site in weights:
            solvable = self.solvable[site][some]
            turn = torch.arange(count) % solvable.sum(1, keepdim=True).clamp(min=1)
            for i, key in enumerate(self.pivots[site]):
                mine = solvable[:, i : i + 1] & (turn == solvable[:, : i + 1].sum(1, keepdim=True) - 1)
                at = mine.flatten().nonzero().squeeze(1)
                if len(at):
                    some_given, noise = ({s: each[at] for s, each in of.items()} for of in (given, first.noise))
                    equation = self._equation(site, key, rows[at], some_given, noise)
                    found, drawn = equation.preimage(CHECKS), noise[key]
                    why = f"its equation is neither affine nor monotone in its noise {key} at some draws of other noise"
                    self.evidence.refuse(~found.conclusive, site, _unsolved(site, why), rows[at])
                    value, log_mass = equation.draw_within(found, drawn.to(found.low.dtype), torch.rand(len(at)))
                    value = torch.where(found.possible, value, drawn).to(drawn.dtype)
                    solved[key] = solved[key].index_put((at,), value)
                    more = 0.0 if equation.distribution.support.is_discrete else ATOM
                    points[site][at] = found.possible & (found.low == found.high)
                    weights[site][at] = torch.where(points[site][at], 0.0, log_mass + more).double()
        final = self.evidence.run(given, self.sites, solved)
        missed = {}
        for site in weights:
            mine = repeat_each(self.solvable[site][some], count)
            density, moves = self._log_density_of_points(site, mine, given, solved, first, final)
            matched = self.evidence.close(site, final.natural[site], rows) | ~mine.any(1)
            weights[site] = torch.where(points[site], density, weights[site]).masked_fill(~matched, -torch.inf)
            missed[site] = ~matched & ~moves
        for site, mine in missed.items():
            others = sum((each for name, each in weights.items() if name != site), torch.zeros(size))
            self._require_all_ways(site, mine & (others > -torch.inf), some, final)
        return final, sum(weights.values(), torch.zeros(size, dtype=torch.float64))

    def _log_density_of_points(
        self,
        site: str,
        mine: Tensor,
        given: Mapping[str, Tensor],
        solved: Mapping[str, Tensor],
        first: Reading,
        final: Reading,
    ) -> tuple[Tensor, Tensor]:
        """Return the log-weights (m,) of points, and where the node depends on a candidate of ``mine``, (m, k)."""
        natural = final.natural[site].to(torch.get_default_dtype())
        terms = []
        for i, key in enumerate(self.pivots[site]):
            d, u = final.distributions[key], solved[key]
            log_p = d.log_prob(u).double().masked_fill(~d.support.check(u), -torch.inf)
            if d.support.is_discrete:
                return log_p.expand(len(mine)), torch.ones(len(mine), dtype=torch.bool)
            step = self._step(d, u, log_p, first.noise[key])
            moved = [
                self.evidence.run(given, self.sites, {**solved, key: u + h}).natural[site].to(natural.dtype)
                for h in (step, -step)
            ]
            ahead, back = ((one - natural).abs().double() / step for one in moved)
            central = (moved[0] - moved[1]).abs().double() / (2 * step)
            slope = torch.where(ahead.isfinite() & back.isfinite(), central, ahead)
            slope = torch.where(slope.isfinite(), slope, back).expand(len(mine))
            terms.append((slope.log() - log_p).masked_fill(~mine[:, i], -torch.inf))
        every = torch.stack(terms, 1)
        return mine.sum(1).clamp(min=1).double().log() - every.logsumexp(1), (every > -torch.inf).any(1)

    @staticmethod
    def _step(d: Any, u: Tensor, log_p: Tensor, drawn: Tensor) -> Tensor:
        """Return how far to move noise (m,) for a slope: a small part of its spread, there and in all, and of its room.

        A skewed distribution is much narrower at some of its values than in all, and equations bend near its ends.
        """
        spread = drawn.double().quantile(0.9) - drawn.double().quantile(0.1)
        room = [
            (u - torch.as_tensor(getattr(d.support, end, torch.inf))).abs() for end in ("lower_bound", "upper_bound")
        ]
        local = torch.stack([each.expand(u.shape) for each in ((-log_p).exp(), *room, spread)]).amin(0)
        return torch.maximum(STEP * local, ROUNDED * torch.finfo(u.dtype).eps * u.abs()).to(u.dtype)

    def _require_all_ways(self, site: str, missed: Tensor, some: Tensor, final: Reading) -> None:
        """Refuse a node that other continuous noise alone gives at some proposals, where it does not read its own."""
        missed = missed.reshape(len(some), -1)
        values = final.natural[site].expand(missed.numel()).reshape(missed.shape)
        for i in (missed.sum(1) >= SEVERAL).nonzero().squeeze(1).tolist():
            seen = values[i][missed[i]]
            why = f"it does not read its noise {', '.join(self.pivots[site])} at some draws of the noise of others"
            continuous = torch.tensor([2 * len(set(seen.tolist())) > len(seen)])
            self.evidence.refuse(continuous, site, _unsolved(site, why), self.rows[some[i : i + 1]])


def _unsolved(site: str, why: str) -> str:
    return (
        f": the node {site!r} is continuous, and {why}, so draws will not meet its value exactly. Declare an inverse, "
        f"inverses={{{site!r}: lambda values: ...}}, or pass tolerance=, a kernel's width in units of {site}."
    )


def _singletons(values: Tensor) -> float:
    """Return the share of values, shape (m, count), that occur once in their row."""
    ordered = values.sort(1).values
    differs = ordered[:, 1:] != ordered[:, :-1]
    ends = torch.ones(len(values), 1, dtype=torch.bool)
    return (torch.cat([ends, differs], 1) & torch.cat([differs, ends], 1)).double().mean().item()


def blocks_of(evidence: Evidence, found: Findings) -> list[Block]:
    """Return the nodes that are not yet explained, grouped where they share unknown noise."""
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


Kept = list[tuple[Tensor, Tensor, dict[str, Tensor]]]
"""Batches of proposals with positive weight: their units, their log-weights, and their noise, shape (kept, ...)."""


def _weights(kept: Kept, n: int) -> tuple[Tensor, Tensor]:
    """Return the unit of each proposal, and its weight relative to the largest of that unit."""
    unit, log_weight = (torch.cat(parts) for parts in ([unit for unit, _, _ in kept], [own for _, own, _ in kept]))
    most = torch.full((n,), -torch.inf, dtype=log_weight.dtype).scatter_reduce(0, unit, log_weight, "amax")
    return unit, (log_weight - most[unit]).exp()


def draw_block(
    evidence: Evidence, found: Findings, block: Block, draws: int, widths: Mapping[str, float], *, pivots: bool
) -> tuple[Tensor, dict[str, Tensor], Tensor, Tensor]:
    """Draw the unknown noise of a block for the units of which it is unknown, ``draws`` for each.

    Proposals come from the prior, and units whose rows bear on it alike share them; each unit resamples independently.
    A node is explained by exact match if its values repeat (counts, floors), by its noise if it is affine in a noise
    site of its own (with ``pivots``: this is solved for, and its density at the solution is the weight), and otherwise
    by an Epanechnikov kernel as wide as its tolerance. The weights of the nodes multiply.

    Units are taken ``TOGETHER``, so that only their proposals are held at a time.

    Returned are the units, shape (m,), for each noise site its draws, shape (m, draws, ...), the effective sample sizes
    and the numbers of proposals, shape (m,). A DataError names a continuous node without a tolerance, or a row that no
    proposal reproduces.
    """
    known = torch.stack([found.is_known(key) for key in block.keys]).all(0)
    units = (~known).nonzero().squeeze(1)
    member, like = _alike(evidence, found, block, units)
    rows = units[member]
    weigh = _ImportanceWeights(evidence, found, block, widths, pivots, rows)
    drawn: dict[str, Tensor] = {}
    effective, proposals = torch.empty(len(rows), dtype=torch.float64), torch.empty(len(rows), dtype=torch.long)
    for part in in_batches(torch.arange(len(rows)), TOGETHER):
        kept, effective[part], proposals[part] = _propose_enough(weigh, part, draws)
        mine = ((like >= part[0]) & (like <= part[-1])).nonzero().squeeze(1)
        for key, values in _resample(kept, like[mine] - part[0], len(part), draws).items():
            drawn.setdefault(key, values.new_empty(len(units), *values.shape[1:]))[mine] = values
    return units, drawn, effective[like], proposals[like]


def _propose_enough(weigh: _ImportanceWeights, part: Tensor, draws: int) -> tuple[Kept, Tensor, Tensor]:
    """Propose for m units of a block until draws can be had; also return effective sizes and numbers of proposals."""
    block, m = weigh.block, len(part)
    kept: Kept = []
    active, proposals, count = torch.arange(m), torch.zeros(m, dtype=torch.long), max(draws, 100)
    while len(active):
        for some in in_batches(active, BATCH // count):
            unit, log_weight, noise = weigh(part[some], count)
            kept.append((some[unit], log_weight, noise))
            proposals[some] += count
        unit, weight = _weights(kept, m)
        squares = torch.bincount(unit, weight.square(), m)
        effective = torch.where(squares > 0, torch.bincount(unit, weight, m).square() / squares, 0.0)  # Kish's
        failed = (effective == 0) & (proposals >= MOST)
        if bool(failed.any()):
            sites = (*block.computed, *block.drawn)
            row = int(weigh.rows[part[int(failed.int().argmax())]])
            raise DataError(
                f"{weigh.evidence.describe(row, *sites)} is impossible under the program, or nearly so: none of "
                f"{int(proposals.max()):,} draws of the noise {', '.join(block.keys)} gives it. Correct the row or the "
                f"program, or declare an inverse: inverses={{{sites[0]!r}: ...}}."
            )
        active = ((effective < max(draws / 5, ENOUGH)) & (proposals < MANY)).nonzero().squeeze(1)
        if not len(active):  # a few at a time, so that one impossible row is found out soon
            active = ((effective < POOR) & (proposals < MOST)).nonzero().squeeze(1)
            active = active[effective[active].argsort()][:FEW]
        count = min(count * 4, MANY)
    return kept, effective, proposals


def _alike(evidence: Evidence, found: Findings, block: Block, units: Tensor) -> tuple[Tensor, Tensor]:
    """Return a member of each group of units whose rows bear on the noise alike, and the group of each unit, (m,)."""
    sites = {*block.computed, *block.drawn}
    sites |= {s for site in sites for s in evidence.info.causes(site, tuple(evidence.observed))[0]}
    columns = [evidence.observed[site][units].double() for site in evidence.observed if site in sites]
    columns += [found.done[site][units].double() for site in block.computed]
    for key in evidence.keys_of([*block.computed, *block.drawn]):
        known = found.is_known(key)[units]
        columns.append(known.double())
        if key in found.noise and bool(known.any()):
            columns.extend(found.noise[key][units].double().nan_to_num().reshape(len(units), -1).unbind(1))
    return distinct(torch.stack(columns, 1))


def _resample(kept: Kept, group: Tensor, n: int, draws: int) -> dict[str, Tensor]:
    """Draw for each unit from its group's proposals by their weights, shape (m, draws, ...).

    Resampling is systematic, which adds the least noise, and in random order, so that blocks stay independent.
    """
    owner, weight = _weights(kept, n)
    order = owner.argsort(stable=True)
    cumulative, total, size = weight[order].cumsum(0), torch.bincount(owner, weight, n), torch.bincount(owner, None, n)
    start, last = total.cumsum(0) - total, size.cumsum(0) - 1
    steps = torch.arange(draws, dtype=weight.dtype)
    every = {key: torch.cat([noise[key] for _, _, noise in kept])[order] for key in kept[0][2]}
    picked: dict[str, list[Tensor]] = {key: [] for key in every}
    for some in in_batches(group, BATCH // draws):
        share = (steps + torch.rand(len(some), 1, dtype=weight.dtype)) / draws
        share = share.gather(1, torch.rand(len(some), draws).argsort(1))
        sought = start[some].unsqueeze(1) + share * total[some].unsqueeze(1)
        found = torch.searchsorted(cumulative, sought, right=True)
        # Rounding of the sums must not give a unit its neighbour's proposals.
        found = torch.minimum(found.clamp(min=(last - size + 1)[some].unsqueeze(1)), last[some].unsqueeze(1))
        for key, values in every.items():
            picked[key].append(values[found])
    return {key: torch.cat(values) for key, values in picked.items()}


# -- gradients ---------------------------------------------------------------------------------------------------------


class _Likelihood(Messenger):
    """Observe each node with a normal error, hand its observed value on, and draw only the noise that matters."""

    def __init__(self, evidence: Evidence, widths: Mapping[str, float], latent: Collection[str]) -> None:
        super().__init__()
        self.evidence, self.widths, self.latent = evidence, widths, latent

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
                msg["fn"] = dist.Normal(natural, self.widths[name])
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
            raise DataError(
                f"The node {site!r} is computed as {str(natural.dtype).removeprefix('torch.')}, and gradients cannot "
                "be followed through it. Use method='auto' or 'importance'."
            )
    for key in keys:
        if key in evidence.implicit:
            raise DataError(
                f"{key!r} is a random step whose distribution depends on a node, and gradients cannot be followed "
                "through its coupling. Use method='importance', or write its noise as a site of its own."
            )
        if reading.distributions[key].support.is_discrete:
            raise DataError(
                f"The noise {key!r} is discrete ({type(reading.distributions[key]).__name__}), and gradients serve "
                "only continuous noise. Use method='auto' or 'importance'."
            )
    return keys


NoiseDraws = tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]


def draw_by_gradients(
    evidence: Evidence, widths: Mapping[str, float], draws: int, guide: NormalGuide | None
) -> NoiseDraws:
    """Draw the continuous noise of all units at once by NUTS, in ``CHAINS`` chains, or from a fitted guide.

    Returns for each noise site its draws, shape (n, draws, ...), the effective sample size and R-hat of each unit,
    shape (n,), as far as they are known: of a vector those of the worst component.
    """
    keys = _latent(evidence)
    evidence.info.confirm(evidence.n)
    program = _Likelihood(evidence, widths, keys)(outside(evidence.program))
    # The program's own parameters are given, and must not be trained.
    fixed = poutine.block(partial(program, evidence.n), hide_types=["param"])
    with fitting(stored=True):
        if guide is None:
            return _draw_nuts(evidence, fixed, keys, -(-draws // CHAINS))
        family, _ = fit_guide(fixed, guide, Schedule(STEPS, RATE), init=init_to_sample)
        with torch.no_grad():
            return _draw_guide(evidence, fixed, family, draws)


def _draw_nuts(evidence: Evidence, model: Callable[[], None], keys: tuple[str, ...], draws: int) -> NoiseDraws:
    found = run_nuts(model, keys, draws=draws, warmup=WARMUP, chains=CHAINS, init=init_to_sample)
    units = {key: values.movedim(evidence.info.axes[key] + 2, 2) for key, values in found.samples.items()}
    sizes, mixing = diagnose({key: values.numpy() for key, values in units.items()})
    effective = {key: torch.from_numpy(values.reshape(evidence.n, -1).min(1)) for key, values in sizes.items()}
    r_hat = {key: torch.from_numpy(values.reshape(evidence.n, -1).max(1)) for key, values in mixing.items()}
    return {key: values.flatten(0, 1).movedim(0, 1) for key, values in units.items()}, effective, r_hat


def _draw_guide(evidence: Evidence, model: Callable[[], None], guide: Any, draws: int) -> NoiseDraws:
    """Draw from a guide; if it factorises over units, so do its importance weights, whose effective size it returns."""
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
        return stacked, {}, {}
    log_weight = torch.stack(ratios).double()
    weight = (log_weight - log_weight.amax(0)).exp()
    return stacked, dict.fromkeys(stacked, weight.sum(0).square() / weight.square().sum(0)), {}


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
