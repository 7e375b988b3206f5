"""How a node drawn without explicit noise gets the same noise in two worlds: by a coupling with a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pyro.distributions as dist
import torch
from scipy import stats
from torch import Tensor

from pyrofair.exceptions import PyrofairError

__all__ = ["COUPLINGS", "Coupling", "CouplingError", "law_parameters", "gumbel_max", "quantile", "unwrap"]

Coupling = Literal["monotone", "independent", "antithetic", "gumbel"]
COUPLINGS: tuple[Coupling, ...] = ("monotone", "independent", "antithetic", "gumbel")


class CouplingError(PyrofairError):
    """A family of distributions cannot be coupled as asked."""


def _numpy(value: Tensor) -> Any:
    return value.detach().cpu().to(torch.float64).numpy()


# SciPy's frozen laws, where torch has no inverse distribution function.
SCIPY: dict[str, Callable[[Any], Any]] = {
    "Poisson": lambda d: stats.poisson(_numpy(d.rate)),
    "Gamma": lambda d: stats.gamma(_numpy(d.concentration), scale=1.0 / _numpy(d.rate)),
    "InverseGamma": lambda d: stats.invgamma(_numpy(d.concentration), scale=_numpy(d.rate)),
    "Chi2": lambda d: stats.chi2(_numpy(d.df)),
    "Beta": lambda d: stats.beta(_numpy(d.concentration1), _numpy(d.concentration0)),
    "Binomial": lambda d: stats.binom(_numpy(d.total_count), _numpy(d.probs)),
    "BetaBinomial": lambda d: stats.betabinom(
        _numpy(d.total_count), _numpy(d.concentration1), _numpy(d.concentration0)
    ),
    "Geometric": lambda d: stats.geom(_numpy(d.probs), loc=-1),
    "NegativeBinomial": lambda d: stats.nbinom(_numpy(d.total_count), 1.0 - _numpy(d.probs)),
    "StudentT": lambda d: stats.t(_numpy(d.df), loc=_numpy(d.loc), scale=_numpy(d.scale)),
}


def unwrap(law: Any) -> Any:
    """Return the law inside expansions, masks and event dimensions."""
    while hasattr(law, "base_dist") and not isinstance(law, dist.TransformedDistribution):
        law = law.base_dist
    return law


def quantile(name: str, law: Any, u: Tensor) -> Tensor:
    """Return the value of a law at a probability: the least x with P(X <= x) >= u, element by element.

    Parameters
    ----------
    name
        The site, for messages.
    law
        A Pyro distribution of scalars (event dimensions made by ``to_event`` are fine), or a categorical one.
    u
        Probabilities in (0, 1) that broadcast with the law's shape.

    Raises
    ------
    CouplingError
        If the family has no usable quantile function.

    Examples
    --------
    >>> quantile("D", dist.Bernoulli(torch.tensor([0.25, 0.6])), torch.tensor(0.5))
    tensor([0., 1.])
    """
    inner = unwrap(law)
    family = type(inner).__name__
    if isinstance(inner, torch.distributions.Bernoulli):
        p = inner.probs
        return (u > 1.0 - p).to(p.dtype)
    if isinstance(inner, torch.distributions.Categorical):
        below = inner.probs.cumsum(-1)[..., :-1]
        return (u.unsqueeze(-1) > below).sum(-1)
    if family == "Delta":
        return inner.v.expand(torch.broadcast_shapes(inner.v.shape, u.shape))
    if family in SCIPY:
        values = SCIPY[family](inner).ppf(_numpy(u))
        return torch.as_tensor(values, dtype=torch.get_default_dtype(), device=u.device)
    try:
        return inner.icdf(u)
    except (NotImplementedError, AttributeError) as error:
        raise CouplingError(
            f"The site {name!r} is drawn from {family}, which has no usable quantile function, so its noise cannot be "
            "shared by two worlds. Write its noise as a site of its own (U = pyro.sample(...); "
            f"{name} = pyro.deterministic({name!r}, f(parents, U))), or use a family with a quantile function."
        ) from error


def gumbel_max(law: Any, noise: Tensor) -> Tensor:
    """Return the categories that win when Gumbel noise, shape (..., k), is added to the log-probabilities."""
    return (unwrap(law).logits + noise).argmax(-1)


def law_parameters(law: Any) -> list[Tensor]:
    """Return the tensors that a law is made of."""
    inner = unwrap(law)
    if isinstance(inner, dist.TransformedDistribution):
        return law_parameters(inner.base_dist) + [
            value for t in inner.transforms for value in vars(t).values() if isinstance(value, Tensor)
        ]
    names = [name for name in inner.arg_constraints if name in inner.__dict__] or list(inner.arg_constraints)
    return [value for name in names if isinstance(value := getattr(inner, name), Tensor)]
