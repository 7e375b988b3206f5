"""Exogenous noise shared across worlds: drawn, valued at a node, and given a node's value."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pyro.distributions as dist
import torch
from torch import Tensor

from pyrofair._random import set_seed
from pyrofair.programs.couplings import (
    SCIPY,
    Coupling,
    CouplingError,
    gumbel_max,
    is_gumbel,
    law_parameters,
    log_probabilities,
    quantile,
    unwrap,
)

__all__ = [
    "Noise",
    "Redraws",
    "at_noise",
    "choose_noise",
    "draw_from",
    "has_distribution",
    "is_point",
    "noise_given",
    "noise_like",
    "noise_of",
    "partner",
]


def _inside(u: Tensor) -> Tensor:
    least = torch.finfo(u.dtype).eps / 2
    return u.clamp(least, 1.0 - least)


def noise_like(law: Any, m: int, coupling: Coupling) -> Tensor:
    """Draw the noise of m units for a site: uniform, shape (m, *event), or Gumbel, shape (m, k), for categories."""
    if is_gumbel(law, coupling):
        inner = unwrap(law)
        event = law.event_shape[: len(law.event_shape) - len(inner.event_shape)]
        return -torch.log(-torch.log(_inside(torch.rand(m, *event, inner.logits.shape[-1]))))
    return _inside(torch.rand(m, *law.event_shape))


def at_noise(name: str, law: Any, noise: Tensor, coupling: Coupling) -> Tensor:
    """Return the value that a distribution takes at some noise, shape (m, *event)."""
    if is_gumbel(law, coupling):
        return gumbel_max(law, noise)
    try:
        return quantile(name, law, noise)
    except CouplingError as error:
        if coupling != "independent":
            raise
        raise CouplingError(
            f"The site {name!r} is an unobserved random step drawn from {type(unwrap(law)).__name__}, which has no "
            "quantile function; given rows need one for what is not observed. Write its noise as a site of its own."
        ) from error


def partner(noise: Tensor, law: Any, coupling: Coupling) -> Tensor:
    """Return the noise that a site has where its distribution is another one, given the noise it has here."""
    if coupling == "independent":
        return _inside(torch.rand_like(noise))
    return 1.0 - noise if coupling == "antithetic" else noise


def is_point(law: Any, coupling: Coupling) -> bool:
    """Tell whether a value under a distribution tells the noise that matters in every world.

    >>> import pyro.distributions as dist
    >>> is_point(dist.Normal(0.0, 1.0), "monotone"), is_point(dist.Poisson(1.0), "monotone")
    (True, False)
    """
    if type(unwrap(law)).__name__ == "Delta":
        return True
    return coupling != "independent" and not law.support.is_discrete


def noise_of(name: str, law: Any, value: Tensor) -> tuple[Tensor, Tensor]:
    """Return the interval of uniforms, open below and closed above, at which the quantile function takes a value.

    Parameters
    ----------
    name
        The site, for messages.
    law
        Its distribution, of batch shape (m,) or one that broadcasts with it.
    value
        Its values, shape (m,).

    Returns
    -------
    low, high : tensors of shape (m,)
        Equal where the distribution is continuous.

    Raises
    ------
    CouplingError
        If the family has no distribution function.

    Examples
    --------
    >>> import pyro.distributions as dist
    >>> [u.item() for u in noise_of("D", dist.Bernoulli(torch.tensor([0.25])), torch.tensor([1.0]))]
    [0.75, 1.0]
    """
    inner = unwrap(law)
    family = type(inner).__name__
    if isinstance(inner, torch.distributions.Bernoulli):
        zero = (1.0 - inner.probs).expand(value.shape)
        return torch.where(value > 0, zero, 0.0), torch.where(value > 0, 1.0, zero)
    if isinstance(inner, torch.distributions.Categorical):
        cumulative = inner.probs.cumsum(-1)[..., :-1].expand(*value.shape, -1)
        ends = [torch.zeros(*value.shape, 1), cumulative, torch.ones(*value.shape, 1)]
        edges = torch.cat([end.to(cumulative.dtype) for end in ends], -1)
        place = value.long().unsqueeze(-1)
        return edges.gather(-1, place).squeeze(-1), edges.gather(-1, place + 1).squeeze(-1)
    if family == "Delta":
        return torch.zeros(value.shape), torch.ones(value.shape)
    high = _distribution(name, inner, family, value)
    return (_distribution(name, inner, family, value - 1) if law.support.is_discrete else high), high


def _distribution(name: str, inner: Any, family: str, value: Tensor) -> Tensor:
    if family in SCIPY:
        found = SCIPY[family](inner).cdf(value.detach().cpu().numpy())
        return torch.as_tensor(found, dtype=torch.get_default_dtype()).expand(value.shape)
    try:
        return cast(Tensor, inner.cdf(value)).expand(value.shape)
    except (NotImplementedError, AttributeError) as error:
        raise CouplingError(
            f"The site {name!r} is drawn from {family}, which has no usable distribution function, so the noise behind "
            "a given value cannot be told. Write its noise as a site of its own (U = pyro.sample(...); "
            f"{name} = pyro.deterministic({name!r}, f(parents, U)))."
        ) from error


def has_distribution(name: str, law: Any, value: Tensor) -> bool:
    """Tell whether a family has the distribution and quantile functions that take a value to its noise and back."""
    try:
        quantile(name, law, noise_of(name, law, value)[1])
    except CouplingError:
        return False
    return True


def noise_given(name: str, law: Any, value: Tensor, coupling: Coupling) -> tuple[Tensor, Tensor, Tensor]:
    """Draw the noise of a site given its value, and return it with its mean and variance given all else.

    Returns
    -------
    noise : tensor of shape (m,), or (m, k) for Gumbel noise
    mean, variance : tensors of shape (m,)
        Those of the uniform; NaN for Gumbel noise. The variance is 0 where a discrete value has no probability.
    """
    if is_gumbel(law, coupling):
        noise = _gumbel_given(unwrap(law), value)
        log_p = log_probabilities(law).expand(*value.shape, -1).gather(-1, value.long().unsqueeze(-1)).squeeze(-1)
        unknown = torch.full(value.shape, torch.nan)
        return noise, unknown, torch.where(log_p > -torch.inf, unknown, 0.0)
    low, high = noise_of(name, law, value)
    width = high - low
    return _inside(high - width * torch.rand(value.shape)), (low + high) / 2, width.square() / 12


def _gumbel_given(inner: Any, value: Tensor) -> Tensor:
    """Draw Gumbel noise given which category wins (Maddison and Tarlow, 2017): first the maximum, then all below it."""
    log_p = log_probabilities(inner).expand(*value.shape, -1)

    def gumbel(shape: Any) -> Tensor:
        return -torch.log(-torch.log(_inside(torch.rand(shape))))

    best = (gumbel(value.shape) + log_p.logsumexp(-1)).unsqueeze(-1)
    free = gumbel(log_p.shape)
    others = -torch.log(torch.exp(-best) + torch.exp(-(free + log_p)))
    won = torch.nn.functional.one_hot(value.long(), log_p.shape[-1]).bool()
    # A category without probability never wins, so that who wins says nothing of its noise.
    return torch.where(log_p == -torch.inf, free, torch.where(won, best, others) - log_p)


STRAIGHT_THROUGH = (dist.RelaxedBernoulliStraightThrough, dist.RelaxedOneHotCategoricalStraightThrough)


def _fresh() -> int:
    return int(torch.randint(2**31 - 1, ()))


@dataclass
class Redraws:
    """Values of a site that are drawn independently for each distribution: what needs no quantile function.

    A unit has one value as long as its distribution is the same, and another, independent one wherever it is not.

    Parameters
    ----------
    met
        For each distribution so far its parameters, its values and their log-density, the first one first.
    """

    met: list[tuple[list[Tensor], Tensor, Tensor | None]] = field(default_factory=list)

    def value(self, law: Any, draw: Callable[[int], Tensor]) -> Tensor:
        """Return the values under a distribution.

        Parameters
        ----------
        law
            The distribution, the units along its batch.
        draw
            Draws from it, told how many distributions have been met.
        """
        parameters, batch = law_parameters(law), len(law.batch_shape)
        known: list[tuple[Tensor, Tensor]] = []
        for one, values, density in self.met:
            same = _same_law(one, parameters, batch)
            if density is not None:  # parameters may say less than all
                same = same & (_density(law, values) == density)
            if bool(same.all()):
                return values
            known.append((same.reshape(*same.shape, *[1] * (values.ndim - same.ndim)), values))
        found = draw(len(self.met))
        for same, values in reversed(known):
            found = torch.where(same, values, found)
        self.add(law, found)
        return found

    def add(self, law: Any, values: Tensor) -> None:
        """Note the values under a distribution."""
        self.met.append((law_parameters(law), values, _density(law, values)))


def _density(law: Any, values: Tensor) -> Tensor | None:
    try:
        return cast(Tensor, law.log_prob(values))
    except NotImplementedError:  # its parameters alone tell it
        return None


@dataclass
class Noise:
    """The value of each exogenous site, and noise for each node drawn without any.

    Made on first use and kept, so that every run of the program sees the same units. Each site has a seed of its own:
    its noise depends neither on the order in which sites are met nor on what else is drawn.

    Parameters
    ----------
    n
        The number of units.
    coupling
        How the noise of a node drawn without explicit noise hangs together across the worlds.
    values
        The values of exogenous sites and of parameters.
    pairs
        For each node drawn without explicit noise what :meth:`pair` returns.
    redraws
        For each node drawn from a family without a quantile function its values, if the coupling is independent.
    seed
        The seed; by default one drawn from torch's global generator. Drawing sets the global generators, so make the
        noise and use it inside :func:`pyrofair._random.isolated`.
    """

    n: int
    coupling: Coupling
    values: dict[str, Tensor] = field(default_factory=dict)
    pairs: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    redraws: dict[str, Redraws | None] = field(default_factory=dict)
    seed: int = field(default_factory=_fresh)

    def draw(self, name: str, law: Any) -> Tensor:
        """Return the value of an exogenous site, drawn on first use."""
        if name not in self.values:
            self._set_seed(name)
            self.values[name] = draw_from(law)
        return self.values[name]

    def pair(self, name: str, law: Any, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the noise of a node in the baseline and, where its distribution differs there, in another world.

        Parameters
        ----------
        name, distribution
            The node's site and its distribution in some world.
        shape
            The shape of its values in one world.
        """
        if name not in self.pairs:
            self._set_seed(name)
            gumbel, inner = is_gumbel(law, self.coupling), unwrap(law)
            size = (*shape[: len(shape) - len(inner.event_shape)], inner.logits.shape[-1]) if gumbel else (*shape,)
            first = _uniform(size)
            second = _uniform(size) if self.coupling == "independent" else first
            if self.coupling == "antithetic":
                second = 1.0 - first
            if gumbel:
                first = second = -torch.log(-torch.log(first))
            self.pairs[name] = first, second
        return self.pairs[name]

    def redraw(self, name: str, law: Any) -> Redraws | None:
        """Return the values of a node to draw for each distribution apart; None where a quantile function takes its
        noise.
        """
        if self.coupling == "independent" and name not in self.redraws:
            try:
                quantile(name, law, torch.tensor(0.5))
            except CouplingError:
                self.redraws[name] = Redraws()
            else:
                self.redraws[name] = None
        return self.redraws.get(name)

    def draw_apart(self, name: str, law: Any, redraws: Redraws) -> Tensor:
        """Return the value of a node whose noise is drawn for each distribution apart."""

        def draw(place: int) -> Tensor:
            self._set_seed(f"{name} {place}")
            return draw_from(law)

        return redraws.value(law, draw)

    def value(self, name: str, law: Any, noise: Tensor) -> Tensor:
        """Return the value that a distribution takes at some noise."""
        return gumbel_max(law, noise) if is_gumbel(law, self.coupling) else quantile(name, law, noise)

    def _set_seed(self, name: str) -> None:
        digest = hashlib.blake2b(f"{self.seed} {name}".encode(), digest_size=4).digest()
        set_seed(int.from_bytes(digest, "big"))


def draw_from(law: Any) -> Tensor:
    """Draw once from a distribution, without a gradient, which is faster for some; distributions outside torch can only
    be called.

    So can straight-through distributions, which round in ``rsample`` alone.
    """
    called = not hasattr(law, "sample") or isinstance(unwrap(law), STRAIGHT_THROUGH)
    return cast(Tensor, law().detach() if called else law.sample())


def _uniform(shape: tuple[int, ...]) -> Tensor:
    least = torch.finfo(torch.get_default_dtype()).eps / 2
    return torch.rand(shape).clamp_(least, 1.0 - least)


def choose_noise(first: Tensor, second: Tensor, one: Sequence[Tensor], other: Sequence[Tensor]) -> Tensor:
    """Return the first noise for units whose distribution is the same in both worlds, and the second for all others.

    Parameters
    ----------
    first, second
        The noise, a number for each element of the distributions.
    one, other
        The parameters of the distribution in the baseline and in another world, the batch in front.

    Examples
    --------
    >>> first, second = torch.tensor([0.1, 0.2]), torch.tensor([0.8, 0.9])
    >>> choose_noise(first, second, [torch.tensor([0.3, 0.5])], [torch.tensor([0.3, 0.6])])
    tensor([0.1000, 0.9000])
    """
    return torch.where(_same_law(one, other, first.ndim), first, second)


def _same_law(one: Sequence[Tensor], other: Sequence[Tensor], dims: int) -> Tensor:
    """Tell where two distributions have the same parameters, for each element of so many leading dimensions."""
    same = torch.ones((), dtype=torch.bool)
    for left, right in zip(one, other, strict=True):
        equal = (left == right) | (left.isnan() & right.isnan())
        same = same & (equal.flatten(dims).all(-1) if equal.ndim > dims else equal)
    return same
