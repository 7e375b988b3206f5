"""Log-densities of the families as functions of their numbers, with slopes, evaluated without Pyro."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pyrofair.mechanisms.atoms import at_atoms
from pyrofair.mechanisms.families import (
    LARGEST_LOG_SCALE,
    LEAST_INTEGER_SCALE,
    LEAST_SCALE,
    Atoms,
    Binary,
    Bounded,
    Categorical,
    Continuous,
    Family,
    Integer,
    Positive,
)
from pyrofair.programs.distributions import FAR, NARROW, log_normal_interval, log_normal_step

__all__ = ["Curvature", "Density"]

ROOT = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True, eq=False)
class Curvature:
    """The second derivatives of rows' losses in a distribution's numbers, (..., size).

    ``times`` multiplies by them, in that shape, and ``diagonal`` has it.
    """

    times: Callable[[Tensor], Tensor]
    diagonal: Tensor

    @classmethod
    def of_each(cls, known: Tensor) -> Curvature:
        """Return that of numbers which do not act together."""
        return cls(lambda v: known * v, known)

    @classmethod
    def of_logits(cls, logits: Tensor, weight: Tensor) -> Curvature:
        """Return that of the logits of categories."""
        p = logits.softmax(-1)
        shares = weight * p
        return cls(lambda v: shares * (v - (p * v).sum(-1, keepdim=True)), shares * (1.0 - p))

    def beside(self, other: Curvature) -> Curvature:
        """Return that of these numbers and others after them, which do not act together."""
        k = self.diagonal.shape[-1]
        return Curvature(
            lambda v: torch.cat([self.times(v[..., :k]), other.times(v[..., k:])], -1),
            torch.cat([self.diagonal, other.diagonal], -1),
        )


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
        if type(family) in (Continuous, Positive, Bounded):
            assert isinstance(family, Continuous)
            straight, slope = family.straight(values)
            return cls(family, torch.stack([(straight - family.mean) / family.sd, slope - math.log(family.sd)], -1))
        if type(family) is Atoms:
            at = at_atoms(values, torch.tensor(family.atoms))
            none = at.any(-1, keepdim=True)
            rest = cls.of(family.rest, torch.where(none[..., 0], family.spare, values))
            return cls(family, torch.cat([at, ~none, rest.known], -1))
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
        if type(family) is Atoms:
            hit, rest, numbers = self._split(out)
            logs = out[..., : hit.shape[-1]].log_softmax(-1)
            inside, slope = rest(numbers)
            slope = torch.cat([hit - logs.exp(), hit[..., -1:] * slope], -1)
            return (hit * logs).sum(-1) + hit[..., -1] * inside, slope
        if type(family) in (Continuous, Positive, Bounded, Integer):
            return self._mixture(out)
        with torch.enable_grad():
            leaf = out.detach().requires_grad_()
            each: Tensor = family.distribution(leaf).log_prob(known[..., 0])  # type: ignore[no-untyped-call]
            (slope,) = torch.autograd.grad(each.sum(), leaf)
        return each.detach(), slope

    def _split(self, out: Tensor) -> tuple[Tensor, Density, Tensor]:
        """Return which atom, or the rest, each value is, (..., k + 1), and the density and the numbers of the rest."""
        assert isinstance(self.family, Atoms)
        k = len(self.family.atoms) + 1
        return self.known[..., :k], Density(self.family.rest, self.known[..., k:]), out[..., k:]

    def curvature(self, out: Tensor, slope: Tensor, weight: Tensor) -> Curvature:
        """Return what negative log-densities times weights (..., 1) curve by, at numbers and their slopes.

        Of a mixture it is that which it would be if the component of each value were known, as in the EM algorithm: as
        large as its own or larger (the rest is what the components' being unknown takes away), so that steps are short
        where values say little of them.
        """
        family = self.family
        if isinstance(family, Binary):
            p = out.sigmoid()
            return Curvature.of_each(weight * p * (1.0 - p))
        if isinstance(family, Categorical):
            return Curvature.of_logits(out, weight)
        if isinstance(family, Atoms):
            hit, rest, numbers = self._split(out)
            k = hit.shape[-1]
            others = rest.curvature(numbers, slope[..., k:], weight * hit[..., -1:])
            return Curvature.of_logits(out[..., :k], weight).beside(others)
        weights, _, wide = out.tensor_split(3, -1)
        share = (slope[..., : weights.shape[-1]] + weights.softmax(-1)).clamp(min=0.0)
        stretch, scale = self._scales(wide)
        rounding = 1.0 / (12.0 * family.sd**2) if isinstance(family, Integer) else 0.0
        variance = scale.square() + rounding
        each = torch.cat([share / variance, 2.0 * share * stretch.square() / variance], -1)
        return Curvature.of_logits(weights, weight).beside(Curvature.of_each(weight * each))

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
