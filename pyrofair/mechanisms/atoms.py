"""Point masses beside a continuous distribution: a number that is a certain value with a probability of its own."""

from __future__ import annotations

import math
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints

from pyrofair.programs.couplings import inside, quantile

__all__ = ["AtomMixture", "at_atoms"]


def at_atoms(values: Tensor, atoms: Tensor) -> Tensor:
    """Return which atom (k,) each value (...) is, truth values of shape (..., k), in single precision.

    A column's values are rounded to it where a program computes in it.
    """
    return values.unsqueeze(-1).float() == atoms.float()


class AtomMixture(dist.TorchDistribution):
    """The distribution of a number that is one of k atoms, each with a probability, and else drawn from ``base_dist``.

    ``logits`` (..., k + 1) are those of the atoms and of the rest, and ``atoms`` (k,) are in increasing order.
    ``ends`` are those of the rest's support, which need not hold the atoms, and ``spare`` is a number within. A
    quantile is the order of numbers, so that a unit keeps its rank across worlds; at an atom its noise is an interval.
    """

    arg_constraints = {"logits": constraints.real_vector}  # noqa: RUF012 - torch reads it from the class
    support = constraints.real

    def __init__(
        self,
        logits: Tensor,
        atoms: Tensor,
        base_dist: Any,
        ends: tuple[float, float] = (-math.inf, math.inf),
        spare: float = 0.0,
    ) -> None:
        self.logits, self.atoms, self.base_dist = logits.log_softmax(-1), atoms, base_dist
        self.ends, self.spare = ends, spare
        batch = torch.broadcast_shapes(logits.shape[:-1], base_dist.batch_shape)  # type: ignore[no-untyped-call]
        super().__init__(batch, validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> AtomMixture:
        """Return the same distribution for a larger batch."""
        shape = torch.Size(batch_shape)
        logits = self.logits.expand(*shape, self.logits.shape[-1])
        return AtomMixture(logits, self.atoms, self.base_dist.expand(shape), self.ends, self.spare)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log-probability of an atom, and the log-density of any other number."""
        at = at_atoms(value, self.atoms)
        rest = self.logits[..., -1] + self.base_dist.log_prob(torch.where(at.any(-1), self.spare, value))
        own = self.logits[..., :-1].masked_fill(~at, 0.0).sum(-1)
        return torch.where(at.any(-1), own, rest)

    @torch.no_grad()
    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008 - torch's own signature
        """Draw: an atom, or a number of the rest."""
        shape, logits = torch.Size(sample_shape), self.logits.expand(*self.batch_shape, -1)
        drawn = self.base_dist.expand(self.batch_shape).sample(shape)
        which = dist.Categorical(logits=logits).sample(shape)  # type: ignore[no-untyped-call]
        atoms = torch.cat([self.atoms, self.atoms.new_zeros(1)]).to(drawn.dtype)
        return torch.where(which < len(self.atoms), atoms[which], drawn)

    def cdf(self, value: Tensor) -> Tensor:
        """Return the probability of being at most a value."""
        return self._below(value, value.unsqueeze(-1).float() >= self.atoms.float())

    def below(self, value: Tensor) -> Tensor:
        """Return the probability of being less than a value, which an atom makes another one than :meth:`cdf`."""
        smaller = value - 1.0 if self.base_dist.support.is_discrete else value
        return self._below(smaller, value.unsqueeze(-1).float() > self.atoms.float())

    def _below(self, value: Tensor, passed: Tensor) -> Tensor:
        p = self.logits.exp()
        return ((p[..., :-1] * passed).sum(-1) + p[..., -1] * self._rest_below(value)).clamp(0.0, 1.0)

    def _rest_below(self, value: Tensor) -> Tensor:
        """Return the distribution function of the rest, 0 and 1 beyond its ends."""
        low, high = self.ends
        within = (value > low) & (value < high)
        found = self.base_dist.cdf(torch.where(within, value, self.spare))
        return torch.where(within, found, (value >= high).to(found.dtype))

    def icdf(self, value: Tensor) -> Tensor:
        """Return the least number at which the distribution function reaches a probability."""
        p, one = self.logits.exp(), value.unsqueeze(-1)
        # Below an atom lie the smaller ones and a part of the rest.
        part = torch.stack([self._rest_below(each.expand(self.batch_shape)) for each in self.atoms.to(value.dtype)], -1)
        after = p[..., :-1].cumsum(-1) + p[..., -1:] * part
        at = (one > after - p[..., :-1]) & (one <= after)
        left = (value - (p[..., :-1] * (one > after)).sum(-1)) / p[..., -1]
        shape = torch.broadcast_shapes(value.shape, self.batch_shape)  # type: ignore[no-untyped-call]
        rest = quantile("the rest", self.base_dist, inside(left.expand(shape)))
        return torch.where(at.any(-1), (at * self.atoms).sum(-1).to(rest.dtype), rest)
