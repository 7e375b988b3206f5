"""What noise made a value that was drawn without explicit noise? The distribution function, read backwards."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from pyrofair.couplings import (
    SCIPY,
    Coupling,
    CouplingError,
    gumbel_max,
    is_gumbel,
    log_probabilities,
    quantile,
    unwrap,
)

__all__ = ["at_noise", "has_distribution", "is_point", "noise_given", "noise_like", "noise_of", "partner"]


def _inside(u: Tensor) -> Tensor:
    least = torch.finfo(u.dtype).eps / 2
    return u.clamp(least, 1.0 - least)


def noise_like(law: Any, m: int, coupling: Coupling) -> Tensor:
    """Draw the noise of m people for a site: uniform, shape (m, *event), or Gumbel, shape (m, k), for categories."""
    if is_gumbel(law, coupling):
        inner = unwrap(law)
        event = law.event_shape[: len(law.event_shape) - len(inner.event_shape)]
        return -torch.log(-torch.log(_inside(torch.rand(m, *event, inner.logits.shape[-1]))))
    return _inside(torch.rand(m, *law.event_shape))


def at_noise(name: str, law: Any, noise: Tensor, coupling: Coupling) -> Tensor:
    """Return the value that a law takes at some noise, shape (m, *event)."""
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
    """Return the noise that a site has where its law is another one, given the noise it has here."""
    if coupling == "independent":
        return _inside(torch.rand_like(noise))
    return 1.0 - noise if coupling == "antithetic" else noise


def is_point(law: Any, coupling: Coupling) -> bool:
    """Tell whether a value under a law tells the noise that matters in every world.

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
        Its law, of batch shape (m,) or one that broadcasts with it.
    value
        Its values, shape (m,).

    Returns
    -------
    low, high : tensors of shape (m,)
        Equal where the law is continuous.

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
