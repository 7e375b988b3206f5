"""Distributions that torch and Pyro lack, and the quantile function of a mixture."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from pyro.distributions import Categorical, TorchDistribution
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.utils import broadcast_all
from torch.special import log_ndtr, ndtr

from pyrofair.exceptions import PyrofairError

__all__ = [
    "FAR",
    "NARROW",
    "DiscretizedMixture",
    "OrderedCategorical",
    "TruncatedNormal",
    "invert_mixture",
    "log_normal_interval",
    "log_normal_step",
    "split_floats",
]

CENTRAL = 2.0
"""Beyond so many standard deviations the inverse error function loses digits, and a slower formula is used."""


class OrderedCategorical(Categorical):
    """The categorical distribution of categories that are in the order of their codes, such as low, middle and high.

    The codes of Pyro's ``Categorical`` are taken for mere names. Across worlds, ordered categories are coupled by a
    unit's rank, others by Gumbel noise, whatever their codes; see ``coupling`` of :class:`pyrofair.SEM`.

    Examples
    --------
    >>> OrderedCategorical(torch.tensor([0.2, 0.3, 0.5])).log_prob(torch.tensor(2)).exp()
    tensor(0.5000)
    """


def _expanded(distribution: Any, family: Any, instance: Any, batch_shape: Any, names: Iterable[str]) -> Any:
    """Return a distribution for a larger batch, with attributes that have a value for each of its elements."""
    new, shape = distribution._get_checked_instance(family, instance), torch.Size(batch_shape)
    for name in names:
        setattr(new, name, getattr(distribution, name).expand(shape))
    TorchDistribution.__init__(new, shape, validate_args=False)
    new._validate_args = distribution._validate_args
    return new


def _below(z: Tensor) -> Tensor:
    """Return the standard normal distribution function, exact far on the left, which ``torch.special.ndtr`` is not."""
    return 0.5 * torch.erfc(-z / math.sqrt(2.0))


class TruncatedNormal(TorchDistribution):
    """The distribution of a normal variable given that it lies between two ends, sampled by its quantile function.

    ``loc`` and ``scale`` are those of the normal variable before it is cut; an infinite end leaves a side open. A
    PyrofairError refuses ``low >= high``, and ends so far from ``loc`` that no mass differs from 0. Chikahara et
    al. (2021), appendix G.2, write it TrN(loc, scale^2, low, high).
    """

    arg_constraints = {  # noqa: RUF012 - torch reads it from the class
        "loc": constraints.real,
        "scale": constraints.positive,
        "low": constraints.real,
        "high": constraints.real,
    }
    has_rsample = True

    def __init__(
        self,
        loc: float | Tensor,
        scale: float | Tensor,
        low: float | Tensor,
        high: float | Tensor,
        validate_args: bool | None = None,
    ) -> None:
        self.loc, self.scale, self.low, self.high = broadcast_all(loc, scale, low, high)
        super().__init__(self.loc.shape, validate_args=validate_args)
        first, last = (self.low - self.loc) / self.scale, (self.high - self.loc) / self.scale
        # Probabilities are kept in the tail on the left, where floating-point numbers lie close together.
        self._sign = torch.where(first + last > 0, -1.0, 1.0).to(self.loc.dtype)
        self._start = torch.where(self._sign > 0, first, -last)
        self._end = torch.where(self._sign > 0, last, -first)
        self._mass = _below(self._end) - _below(self._start)
        self._central = bool(((first < CENTRAL) & (last > -CENTRAL)).all())
        # What sampling reads is computed here, before a plate expands the distribution to a number for each unit.
        self._erf = torch.erf(first / math.sqrt(2.0))
        self._span = torch.erf(last / math.sqrt(2.0)) - self._erf
        self._width = self.scale * math.sqrt(2.0)
        if not bool((self.low < self.high).all()):
            raise PyrofairError(f"TruncatedNormal needs low < high; got low={low} and high={high}.")
        if not bool((self._mass > 0).all()):
            raise PyrofairError(
                f"The normal distribution with loc={loc} and scale={scale} has no mass between {low} and {high} that "
                f"{self.loc.dtype} can hold. Move the ends closer to loc, or use a larger scale."
            )

    def expand(self, batch_shape: Any, _instance: Any = None) -> TruncatedNormal:
        """Return the same distribution for a larger batch."""
        names = ("loc", "scale", "low", "high", "_sign", "_start", "_end", "_mass", "_erf", "_span", "_width")
        new: TruncatedNormal = _expanded(self, TruncatedNormal, _instance, batch_shape, names)
        new._central = self._central
        return new

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """Return the interval between the two ends."""
        return constraints.interval(self.low, self.high)  # type: ignore[no-untyped-call]

    def rsample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008 - torch's own signature
        """Draw, with a gradient."""
        u = torch.rand(self._extended_shape(torch.Size(sample_shape)), dtype=self.loc.dtype, device=self.loc.device)
        return self.icdf(u.clamp_(min=torch.finfo(u.dtype).eps / 4))  # an open side has no least value

    def icdf(self, value: Tensor) -> Tensor:
        """Return the value at a probability in [0, 1]."""
        if self._central:
            # In place, for memory that is new takes more time than arithmetic.
            x = (self._span * value).add_(self._erf).erfinv_().mul_(self._width).add_(self.loc)
        else:
            below = torch.where(self._sign > 0, value, 1.0 - value)
            x = self.loc + self._sign * self.scale * torch.special.ndtri(_below(self._start) + self._mass * below)
        return x.clamp_(self.low, self.high)

    def cdf(self, value: Tensor) -> Tensor:
        """Return the probability of being at most a value; 0 below the lower bound and 1 above the upper one."""
        z = (value - self.loc) / self.scale
        inside = torch.where(self._sign > 0, _below(z) - _below(self._start), _below(self._end) - _below(-z))
        return (inside / self._mass).clamp(0.0, 1.0)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log-density; minus infinity outside the ends, where arguments are not validated."""
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        density = -0.5 * z.square() - self.scale.log() - self._mass.log() - 0.5 * math.log(2.0 * math.pi)
        return density.masked_fill((value < self.low) | (value > self.high), -math.inf)

    @property
    def mean(self) -> Tensor:
        """The mean after cutting."""
        first, last, _ = self._densities()
        return self.loc + self._sign * self.scale * (first - last)

    @property
    def variance(self) -> Tensor:
        """The variance after cutting."""
        first, last, slope = self._densities()
        return self.scale.square() * (1.0 + slope - (first - last).square())

    def _densities(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the standardised densities at both ends over the mass, and their difference weighted by the ends."""
        ends = torch.stack([self._start, self._end])
        density = torch.exp(-0.5 * ends.square()) / (self._mass * math.sqrt(2.0 * math.pi))
        weighted = ends.nan_to_num(posinf=0.0, neginf=0.0) * density
        return density[0], density[1], weighted[0] - weighted[1]


FAR = 1e4
"""So many standard deviations away nothing is left; unlike infinity, its logarithm has a gradient."""
NARROW = 0.01
"""A step of so few standard deviations has the probability of its middle, to five digits; a difference has fewer."""


def log_normal_interval(first: Tensor, last: Tensor) -> Tensor:
    """Return the log-probability of a standard normal variable between two ends; at ``FAR`` or beyond they are open.

    In the left tail floating-point numbers lie close together; both tails are alike.
    """
    flip = first + last > 0
    upper, lower = log_ndtr(torch.where(flip, -first, last)), log_ndtr(torch.where(flip, -last, first))
    gap = (lower - upper).clamp(max=-torch.finfo(upper.dtype).tiny)
    found: Tensor = upper + torch.log(-torch.expm1(gap))
    return found


def log_normal_step(first: Tensor, last: Tensor, step: Tensor) -> Tensor:
    """Return the same for ends that are ``step`` apart, if neither is open: by its middle where the step is narrow."""
    narrow = (step < NARROW) & (first > -FAR) & (last < FAR)
    wide = log_normal_interval(torch.where(narrow, -1.0, first), torch.where(narrow, 1.0, last))
    density = -0.125 * (first + last).square() - 0.5 * math.log(2.0 * math.pi) + step.log()
    return torch.where(narrow, density, wide)


class DiscretizedMixture(TorchDistribution):
    """The distribution of ``round(X)``, X from a mixture of k normal distributions, moved to an end when beyond it.

    ``log_weights`` (..., k) are log-weights of the components up to a constant, ``loc`` and ``scale`` their means and
    standard deviations; the ends are integers (a PyrofairError otherwise), of shapes that broadcast with the batch.
    """

    arg_constraints = {  # noqa: RUF012 - torch reads it from the class
        "log_weights": constraints.real_vector,
        "loc": constraints.real_vector,
        "scale": constraints.independent(constraints.positive, 1),  # type: ignore[no-untyped-call]
        "low": constraints.real,
        "high": constraints.real,
    }

    def __init__(
        self,
        log_weights: Tensor,
        loc: Tensor,
        scale: Tensor,
        low: float | Tensor,
        high: float | Tensor,
        validate_args: bool | None = None,
    ) -> None:
        weights, self.loc, self.scale = torch.broadcast_tensors(log_weights, loc, scale)  # type: ignore[no-untyped-call]
        self.log_weights = weights.log_softmax(-1)
        ends = torch.as_tensor(low, dtype=self.loc.dtype), torch.as_tensor(high, dtype=self.loc.dtype)
        for end in ends:
            if not bool((end == end.round()).all()):
                raise PyrofairError(f"DiscretizedMixture needs integers as ends; got low={low} and high={high}.")
        if not bool((ends[0] <= ends[1]).all()):
            raise PyrofairError(f"DiscretizedMixture needs low <= high; got low={low} and high={high}.")
        self._most = float((ends[1] - ends[0]).max()) + 1.0
        batch = torch.broadcast_shapes(self.loc.shape[:-1], ends[0].shape, ends[1].shape)  # type: ignore[no-untyped-call]
        self.low, self.high = (end.expand(batch) for end in ends)
        super().__init__(batch, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> DiscretizedMixture:
        """Return the same distribution for a larger batch."""
        new: DiscretizedMixture = _expanded(self, DiscretizedMixture, _instance, batch_shape, ("low", "high"))
        for name in ("log_weights", "loc", "scale"):
            setattr(new, name, getattr(self, name).expand((*new.batch_shape, self.loc.shape[-1])))
        new._most = self._most
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        """Return the integers from the lower to the upper bound."""
        return constraints.integer_interval(self.low, self.high)  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008 - torch's own signature
        """Draw: a component, a number from it, rounded."""
        shape = self._extended_shape(torch.Size(sample_shape))
        u = torch.rand(shape, dtype=self.loc.dtype, device=self.loc.device).unsqueeze(-1)
        below = self.log_weights.exp().cumsum(-1)[..., :-1]
        chosen = (u > below).sum(-1, keepdim=True)
        wide = (*shape, self.loc.shape[-1])
        loc, scale = (each.expand(wide).gather(-1, chosen)[..., 0] for each in (self.loc, self.scale))
        drawn: Tensor = (loc + scale * torch.randn_like(loc)).round().clamp(self.low, self.high)
        return drawn

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log-probability of an integer; minus infinity elsewhere, where arguments are not validated."""
        if self._validate_args:
            self._validate_sample(value)
        k = value.unsqueeze(-1)
        first = torch.where(k <= self.low.unsqueeze(-1), -FAR, (k - 0.5 - self.loc) / self.scale)
        last = torch.where(k >= self.high.unsqueeze(-1), FAR, (k + 0.5 - self.loc) / self.scale)
        inside = log_normal_step(first, last, 1.0 / self.scale)
        possible = (value >= self.low) & (value <= self.high) & (value == value.round())
        found: Tensor = (self.log_weights + inside).logsumexp(-1)
        return found.masked_fill(~possible, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        """Return the probability of being at most a value."""
        below = ndtr((value.floor().unsqueeze(-1) + 0.5 - self.loc) / self.scale)
        found = (self.log_weights.exp() * below).sum(-1).clamp(max=1.0)
        return torch.where(value >= self.high, 1.0, torch.where(value < self.low, 0.0, found))

    def icdf(self, value: Tensor) -> Tensor:
        """Return the least integer at which the distribution function reaches a probability."""
        shape = torch.broadcast_shapes(value.shape, self.batch_shape)  # type: ignore[no-untyped-call]
        low, high = self.low.expand(shape), self.high.expand(shape)
        for _ in range(math.ceil(math.log2(self._most))):
            middle = ((low + high) / 2).floor()
            reached = self.cdf(middle) >= value
            low, high = torch.where(reached, low, middle + 1.0), torch.where(reached, middle, high)
        return high


# -- the quantile function of a mixture --------------------------------------------------------------------------------

STEPS = 300
HALVINGS = 60
"""After so many steps what is searched spans many orders of magnitude."""


def invert_mixture(component: Any, weights: Tensor, ends: Tensor, u: Tensor) -> Tensor | None:
    """Return the x with cdf(x) = u of a mixture, shape (...), the least where there are many; None if not found.

    It is found by Newton's method inside a bracket that always shrinks.

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
    found = split_floats(low.detach(), high.detach(), 1)[..., 1]
    return torch.where(middle.isfinite() & (not by_order) | low.isnan() | high.isnan() | (low == high), middle, found)


def split_floats(one: Tensor, other: Tensor, halvings: int) -> Tensor:
    """Return the numbers (..., 2**halvings + 1) that split intervals equally in the order of floating-point numbers.

    Whatever the orders of magnitude of its ends, an interval is halved by the count of the numbers in it.
    """
    bits, rest = (torch.int64 if one.dtype == torch.float64 else torch.int32), 2**halvings - 1
    least = torch.iinfo(bits).min

    def mirrored(i: Tensor) -> Tensor:
        return torch.where(i < 0, least - i, i)

    a, b = (mirrored(each.contiguous().view(bits).long()).unsqueeze(-1) for each in (one, other))
    step = torch.arange(rest + 2)
    # A difference of all 64 bits has no room for its sign, but overflows go round and back.
    inside = a + ((b >> halvings) - (a >> halvings)) * step + (((b & rest) - (a & rest)) * step >> halvings)
    return mirrored(inside).to(bits).view(one.dtype)
