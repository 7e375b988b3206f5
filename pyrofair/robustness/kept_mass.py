"""The mass of a unit's rows that stays in its place in the worst coupling of both worlds with limited switching."""

from __future__ import annotations

import torch

from pyrofair.effects.potential_outcomes import Scored

__all__ = ["split_kept"]

STEPS = 40
"""Halvings of the interval that holds an end, beyond the digits of a score."""
HALF = 0.5 - 2e-7
"""A mean this far from a half, in both worlds, is on one side of the kink even in single precision."""
NEGLIGIBLE = 1e-6
"""A unit whose moved mass is a smaller share than this has none, in single precision."""


def split_kept(scored0: Scored, scored1: Scored, gamma: float, *, upper: bool) -> tuple[Scored, Scored]:
    """Return both worlds with each kept row as a unit of its own, and what a unit moves as another one.

    The functionals of units, :func:`pyrofair.piu_upper` or (not ``upper``) :func:`pyrofair.effect_gap`, then give the
    end of PIU over all couplings in which a unit changes its rows with at most the least probability, the total
    variation of its rows, plus gamma. Gradients are those of that end: the mass that stays is a worst case, and its
    derivative counts for nothing.

    Parameters
    ----------
    scored0, scored1
        The scores of the same m rows in both worlds, with weights that are each world's, and the same units.
    gamma
        At most so much probability beyond the least.
    """
    assert scored0.unit is not None, "rows have units"
    unit = torch.unique(scored0.unit, return_inverse=True)[1]
    p, q = (each.weight.detach().to(torch.float64) for each in (scored0, scored1))
    c0, c1 = (each.score.detach().to(torch.float64) for each in (scored0, scored1))
    zeros = p.new_zeros(int(unit.max()) + 1)

    def total(values: torch.Tensor) -> torch.Tensor:
        return zeros.index_add(0, unit, values)

    whole = total(p)
    effect = whole - total(p * c0 + q * c1) if upper else total(q * c1 - p * c0)
    difference = 1.0 - c0 - c1 if upper else c1 - c0
    kept, slope = _kept_mass(torch.minimum(p, q), difference, effect, whole, unit, gamma)
    moves = total(p - kept) > NEGLIGIBLE * whole
    # What moves may balance both sides of a kink, where only the dual has the slope.
    kinked = upper & ((effect - total(kept * difference)).abs() <= NEGLIGIBLE * whole)
    rows = torch.arange(len(unit), device=unit.device)
    found = []
    for scored, weight in ((scored0, p), (scored1, q)):
        moved = torch.where(moves[unit], (weight - kept).clamp(min=0.0), 0.0)
        score = scored.score
        level = HALF + slope[unit].to(score.dtype) * (score - score.detach())
        parts = torch.cat([score, torch.where(kinked[unit], level, score)])
        split = torch.cat([kept, moved]).to(scored.weight.dtype)
        found.append(Scored(parts, split, torch.cat([rows, len(unit) + unit])))
    return found[0], found[1]


def _kept_mass(
    least: torch.Tensor,
    difference: torch.Tensor,
    effect: torch.Tensor,
    whole: torch.Tensor,
    unit: torch.Tensor,
    gamma: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mass (m,) of each row that stays, and the slope (k,) of each unit's end in its ``effect``.

    With D the ``difference`` of a row's scores, e the effect of a unit, and mass d of ``least`` in its place, an end is
    the least over d of max(e + 2 sum d D-, -e + 2 sum d D+): mass leaves the rows of the least D, and of the greatest.
    The level of both is found by halving; where mass leaves either side, the slope balances the last rows of both.
    """
    if gamma <= 0.0:
        return least, effect.sign()
    order = torch.argsort(difference)
    order = order[torch.argsort(unit[order], stable=True)]
    of, mass, ascending = unit[order], least[order], difference[order]
    front = _Removal(of, mass, (-ascending).clamp(min=0.0), whole)
    back = _Removal(of.max() - of.flip(0), mass.flip(0), ascending.flip(0).clamp(min=0.0), whole.flip(0))
    budget = gamma * whole

    def needed(level: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        down, first = front.mass_for((front.total - (level - effect) / 2.0).clamp(min=0.0))
        up, last = back.mass_for((back.total - (level + effect).flip(0) / 2.0).clamp(min=0.0))
        return down, up.flip(0), first, last.flip(0)

    def fits(level: torch.Tensor) -> torch.Tensor:
        down, up, _, _ = needed(level)
        return down + up <= budget

    low = effect.abs()
    high = torch.maximum(effect + 2.0 * front.total, -effect + 2.0 * back.total.flip(0)).maximum(low)
    enough = fits(low)
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        fit = fits(middle)
        low, high = torch.where(fit, low, middle), torch.where(fit, middle, high)
    down, up, first, last = needed(torch.where(enough, effect.abs(), high))
    gone = front.removed(down) + back.removed(up.flip(0)).flip(0)
    kept = torch.empty_like(mass)
    kept[order] = (mass - gone).clamp(min=0.0)
    balanced = (last - first) / (last + first).clamp(min=1e-300)
    return kept, torch.where(enough, effect.sign(), balanced)


class _Removal:
    """The removal of mass from the rows of each unit in turn, sorted by unit and then by falling slope."""

    def __init__(self, unit: torch.Tensor, mass: torch.Tensor, slope: torch.Tensor, whole: torch.Tensor) -> None:
        self.unit, self.mass, self.slope, self.whole = unit, mass, slope, whole
        counts = torch.bincount(unit, minlength=len(whole))
        self.last = counts.cumsum(0) - 1
        first = self.last - counts + 1
        after, gained = mass.cumsum(0), (mass * slope).cumsum(0)
        self.before = after - mass - (after - mass)[first][unit]
        self.gained_before = gained - mass * slope - (gained - mass * slope)[first][unit]
        self.total = torch.zeros_like(whole).index_add(0, unit, mass * slope)
        self.first = first
        self.key = 2.0 * unit + (self.gained_before + mass * slope) / whole[unit]

    def mass_for(self, gain: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mass (k,) whose removal lowers the sum of mass times slope by gains (k,), and the last slopes."""
        numbers = torch.arange(len(gain), device=gain.device)
        at = torch.searchsorted(self.key, 2.0 * numbers + gain / self.whole)
        at = torch.minimum(torch.maximum(at, self.first), self.last)
        slope = self.slope[at]
        part = torch.where(slope > 0.0, (gain - self.gained_before[at]) / slope.clamp(min=1e-300), 0.0)
        part = torch.minimum(part.clamp(min=0.0), self.mass[at])
        return torch.where(gain > 0.0, self.before[at] + part, 0.0), slope

    def removed(self, amount: torch.Tensor) -> torch.Tensor:
        """Return the mass (m,) of each row that is gone where amounts (k,) are removed."""
        return torch.minimum((amount[self.unit] - self.before).clamp(min=0.0), self.mass)
