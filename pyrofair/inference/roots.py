"""Monotone equations solved for their noise by bisection, in the order of floating-point numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyrofair.programs.couplings import unwrap
from pyrofair.programs.distributions import split_floats

__all__ = ["Roots", "enclose", "find_roots", "grid_of"]

HALVINGS = 3
"""One run tries so many halvings at once: few runs of many units take less time than many of few."""
STEPS = 8
OFFSETS = (0.0, *(i / STEPS for i in range(1, 6 * STEPS + 1)), 8.0, 10.0, 20.0, 50.0, 100.0, 1e4, 1e6)
"""An equation is tested, and its roots are looked for, so many standard deviations to both sides of the mean."""
WITHIN = 0.3
"""An equation is tested for being flat at this share of the way between its roots, off a middle of some symmetry."""
ROUNDING = 16.0
"""Values that differ by so many units of rounding are the same."""


def enclose(rising: Callable[[Tensor], Tensor], grid: Tensor, f: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Return the neighbouring numbers (..., j) between which a function passes from below ``wanted`` ones, (..., j).

    ``f`` holds its values at an increasing grid, (..., k); off the grid the numbers are infinite.
    """
    counts, last = (f.unsqueeze(-2) < wanted.unsqueeze(-1)).sum(-1), grid.shape[-1] - 1
    before, after = (grid.gather(-1, each.clamp(0, last)) for each in (counts - 1, counts))
    for _ in range(-(-torch.finfo(grid.dtype).bits // HALVINGS)):
        parts = split_floats(before, after, HALVINGS)
        inner = parts[..., 1:-1]
        under = rising(inner.flatten(-2)).reshape(inner.shape) < wanted.unsqueeze(-1)
        count = under.sum(-1, keepdim=True)
        before, after = parts.gather(-1, count).squeeze(-1), parts.gather(-1, count + 1).squeeze(-1)
    return before.masked_fill(counts == 0, -torch.inf), after.masked_fill(counts > last, torch.inf)


class Roots(NamedTuple):
    """The noise at which monotone equations have given values, (e, n) each.

    ``below`` and ``above`` are its neighbours outside, infinite where there are none, and ``within`` lies between them,
    off the ends. Where no noise gives a value it is not ``reached``; an equation that is not ``monotone`` has no roots.
    """

    within: Tensor
    below: Tensor
    above: Tensor
    reached: Tensor
    monotone: Tensor


def grid_of(d: Any, n: int) -> Tensor:
    """Return increasing numbers of noise of n units, (n, k), from one end of its distribution to the other."""
    try:
        mean, spread = d.mean.detach(), d.variance.detach().sqrt()
    except NotImplementedError:
        mean = spread = torch.full((), torch.nan)
    mean, spread = torch.where(mean.isfinite(), mean, 0.0), torch.where(spread.isfinite() & (spread > 0), spread, 1.0)
    steps = torch.tensor([*(-each for each in OFFSETS[:0:-1]), *OFFSETS])
    u = mean.expand(n).unsqueeze(1) + spread.expand(n).unsqueeze(1) * steps
    support = unwrap(d).support
    for name, within in (("lower_bound", torch.maximum), ("upper_bound", torch.minimum)):
        end = torch.as_tensor(getattr(support, name, torch.nan), dtype=u.dtype).detach().expand(n).unsqueeze(1)
        u = torch.where(end.isnan(), u, within(u, end))
    return u


def find_roots(equation: Callable[[Tensor], Tensor], grid: Tensor, value: Tensor) -> Roots:
    """Return the roots of ``equation(u) == value``, of numbers (e, n) and noise (e, n, k), between the ends of a grid.

    An equation that has no number somewhere is taken to go on there as at its other numbers.
    """
    f, centre = equation(grid), grid[..., grid.shape[-1] // 2].unsqueeze(-1)
    sign = torch.where(f.diff().nan_to_num(0.0, 0.0, 0.0).sum(-1, keepdim=True) >= 0.0, 1.0, -1.0)

    def rising(u: Tensor, f: Tensor) -> Tensor:
        return torch.where(f.isnan(), torch.where(u < centre, -torch.inf, torch.inf), sign * f)

    f = rising(grid, f)
    rounding, size = ROUNDING * torch.finfo(f.dtype).eps, value.abs().mean(-1, keepdim=True)
    slack = rounding * (f[..., :-1].abs().nan_to_num(0.0, 0.0, 0.0) + size.unsqueeze(-1))
    monotone, leeway = (f[..., 1:] >= f[..., :-1] - slack).all(-1), rounding * (value.abs() + size)
    wanted = sign * value.unsqueeze(-1) + torch.stack([-leeway, leeway], -1)
    before, after = enclose(lambda u: rising(u, equation(u)), grid, f, wanted)
    below, first, final, above = before[..., 0], after[..., 0], before[..., 1], after[..., 1]
    reached, middle = first.isfinite() & final.isfinite(), grid.shape[-1] // 2
    spread = (grid[..., middle + STEPS] - grid[..., middle - STEPS]) / 2
    first = torch.where(below.isinf(), torch.maximum(first, final - spread), first)  # an end of the grid is far
    final = torch.where(above.isinf(), torch.minimum(final, first + spread), final)
    within = torch.where(reached, first + WITHIN * (final - first), grid[..., middle])
    return Roots(within, below, above, reached, monotone)
