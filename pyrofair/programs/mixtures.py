"""The quantile function of a mixture, by Newton's method inside a bracket that always shrinks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["invert_mixture"]

STEPS = 300
HALVINGS = 60
"""After so many steps what is searched spans many orders of magnitude."""


def invert_mixture(component: Any, weights: Tensor, ends: Tensor, u: Tensor) -> Tensor | None:
    """Return the x with cdf(x) = u of a mixture, shape (...), the least where there are many; None if not found.

    ``component`` is the distribution of k components, shape (..., k), of ``weights`` (..., k); ``ends`` (..., k) are
    their own quantiles at u, between which lie those of the mixture. Where u or a parameter is NaN, so is x. An element
    that is found is not touched again, so that it does not depend on the others.
    """
    noise, counts = torch.finfo(ends.dtype).eps, ~(weights <= 0.0)
    low, high = ends.where(counts, torch.inf).amin(-1), ends.where(counts, -torch.inf).amax(-1)
    x, last = _between(low, high), high - low
    settled = torch.zeros((), dtype=torch.bool, device=x.device)
    for number in range(STEPS):
        at = x.unsqueeze(-1)
        below = component.cdf(at).clamp(0.0, 1.0)
        # Beyond the support of a component, some distribution functions are NaN or leave [0, 1].
        below = below.where(~below.isnan() | ends.isnan(), (at >= ends).to(below.dtype)).where(counts, 0.0)
        gap = (below * weights).sum(-1) - u
        low, high = torch.where(gap < 0, x, low), torch.where(gap < 0, high, x)
        slope = (component.log_prob(at).exp() * weights).sum(-1)
        step = (gap / slope).abs().maximum(noise * x.abs()).copysign(gap)
        # Newton's steps that do not halve crawl through a narrow component, or follow the rounding of a solution.
        halves = step.abs() < last / 2
        newton = (x - step > low) & (x - step < high) & halves
        following = torch.where(newton, x - step, _between(low, high, by_order=number >= HALVINGS))
        last = (following - x).abs()
        # A plateau is followed to its least value, and a short step is no end: it may be that of a narrow component.
        solved = (gap.abs() <= torch.where(halves, noise, 8 * noise)) & (slope > 0)
        beside = following == x
        ends_here = solved | (high - low <= 2 * noise * x.abs()) | beside | gap.isnan()
        following = torch.where(beside & (gap < 0), high, torch.where(ends_here, x, following))
        x = torch.where(settled, x, torch.where(gap.isnan(), gap, following))
        settled = settled | ends_here
        if bool(settled.all()):
            return x
    return None


def _between(low: Tensor, high: Tensor, *, by_order: bool = False) -> Tensor:
    """Return the middle of two numbers or, where they ask for it or it is infinite, of all floats between them.

    The latter is found in so many halvings as a float has bits, however far apart the two are.
    """
    middle = (low + high) / 2
    if not by_order and bool(middle.isfinite().all()):
        return middle
    integers = getattr(torch, f"int{torch.finfo(middle.dtype).bits}")
    first, second = (_order(each.detach(), integers) for each in (low, high))
    order = (first & second) + ((first ^ second) >> 1)
    found = order.abs().view(middle.dtype).copysign(order)
    return torch.where(middle.isfinite() & (not by_order) | low.isnan() | high.isnan() | (low == high), middle, found)


def _order(x: Tensor, integers: torch.dtype) -> Tensor:
    """Return integers in the order of floats, those of neighbours one apart."""
    bits = x.contiguous().view(integers)
    return torch.where(bits < 0, -(bits & torch.iinfo(integers).max), bits)
