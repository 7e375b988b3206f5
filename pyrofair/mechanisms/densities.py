"""Log-densities of the families as functions of their numbers, with slopes, evaluated without Pyro."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pyrofair.mechanisms.families import (
    LARGEST_LOG_SCALE,
    LEAST_INTEGER_SCALE,
    LEAST_SCALE,
    Binary,
    Categorical,
    Continuous,
    Family,
    Integer,
    Positive,
)
from pyrofair.programs.distributions import FAR, NARROW, log_normal_interval, log_normal_step

__all__ = ["Density"]

ROOT = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True, eq=False)
class Density:
    """The log-density of values of a column as a function of a family's numbers.

    ``known``, shape (..., m), is what the family's density needs of each value. Families of one's own are evaluated by
    their distributions, and differentiated by autograd.
    """

    family: Family
    known: Tensor

    @classmethod
    def of(cls, family: Family, values: Tensor) -> Density:
        """Return the density of values, shape (...), in their precision."""
        if type(family) is Integer:
            first, last = values - 0.5, values + 0.5
            first = torch.where(values <= family.low, -math.inf, first)
            last = torch.where(values >= family.high, math.inf, last)
            return cls(family, (torch.stack([first, last], -1) - family.mean) / family.sd)
        if type(family) in (Continuous, Positive):
            assert isinstance(family, Continuous)
            scaled = values.log() if isinstance(family, Positive) else values
            change = -math.log(family.sd) - (scaled if isinstance(family, Positive) else torch.zeros_like(values))
            return cls(family, torch.stack([(scaled - family.mean) / family.sd, change], -1))
        return cls(family, values.unsqueeze(-1))

    def at(self, rows: Tensor) -> Density:
        """Return the density of some rows of values of shape (n,)."""
        return Density(self.family, self.known[rows])

    def __call__(self, out: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-densities (...) for numbers (..., size), and their slopes in these, (..., size)."""
        family, known = self.family, self.known
        if type(family) is Binary:
            value, odds = known[..., 0], out[..., 0]
            return value * odds - torch.nn.functional.softplus(odds), (value - odds.sigmoid()).unsqueeze(-1)
        if type(family) is Categorical:
            logs = out.log_softmax(-1)
            codes = torch.arange(family.size, dtype=known.dtype)
            hit = (known == codes).to(out.dtype)
            return (hit * logs).sum(-1), hit - logs.exp()
        if type(family) in (Continuous, Positive, Integer):
            return self._mixture(out)
        with torch.enable_grad():
            leaf = out.detach().requires_grad_()
            each: Tensor = family.distribution(leaf).log_prob(known[..., 0])  # type: ignore[no-untyped-call]
            (slope,) = torch.autograd.grad(each.sum(), leaf)
        return each.detach(), slope

    def complete_curvature(self, out: Tensor, slope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what a mixture's negative log-density curves by if the component of each value were known.

        For numbers and their slopes: the components' probabilities, by which the curvature in their log-weights is that
        of categories, and the curvatures in their means and scales, (..., k) each. They are as large as those of the
        mixture or larger (the rest is what the components' being unknown takes away), so that steps are short where
        values say little of them.
        """
        weights, _, wide = out.tensor_split(3, -1)
        p = weights.softmax(-1)
        share = (slope[..., : p.shape[-1]] + p).clamp(min=0.0)
        stretch, scale = self._scales(wide)
        rounding = 1.0 / (12.0 * self.family.sd**2) if isinstance(self.family, Integer) else 0.0
        variance = scale.square() + rounding
        return p, share / variance, 2.0 * share * stretch.square() / variance

    def _scales(self, wide: Tensor) -> tuple[Tensor, Tensor]:
        """Return the part of components' standard deviations that varies, and these themselves, standardised."""
        family = self.family
        stretch = wide.clamp(-LARGEST_LOG_SCALE, LARGEST_LOG_SCALE).exp()
        return stretch, stretch + (LEAST_INTEGER_SCALE / family.sd if isinstance(family, Integer) else LEAST_SCALE)

    def _mixture(self, out: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-density and its slopes of a mixture of normal distributions of the standardised column."""
        weights, loc, wide = out.tensor_split(3, -1)
        family, logs = self.family, weights.log_softmax(-1)
        assert isinstance(family, Continuous | Integer)
        whole = isinstance(family, Integer)
        stretch, scale = self._scales(wide)
        if whole:
            z = ((self.known.unsqueeze(-1) - loc.unsqueeze(-2)) / scale.unsqueeze(-2)).clamp(-FAR, FAR)
            first, last = z.unbind(-2)
            narrow = bool(scale.amax() > 1.0 / (NARROW * family.sd))  # seldom
            step = 1.0 / (family.sd * scale) if narrow else None
            joint = logs + (log_normal_interval(first, last) if step is None else log_normal_step(first, last, step))
            total = joint.logsumexp(-1)
            share = (joint - total.unsqueeze(-1)).exp()
            # Each component's share of the slope is a difference of densities over the probability of all.
            ends = (logs - total.unsqueeze(-1)).unsqueeze(-2) - 0.5 * z.square() - ROOT
            at_first, at_last = ends.exp_().unbind(-2)
            by_loc, by_scale = at_first - at_last, first * at_first - last * at_last
        else:
            z = (self.known[..., :1] - loc) / scale
            joint = logs - 0.5 * z.square() - scale.log() - ROOT
            total = joint.logsumexp(-1)
            share = (joint - total.unsqueeze(-1)).exp()
            by_loc, by_scale = share * z, share * (z.square() - 1.0)
        slope = torch.cat([share - logs.exp(), by_loc / scale, by_scale * (stretch / scale)], -1)
        return total if whole else total + self.known[..., 1], slope
