"""Couplings of noise across worlds: the value of a distribution at some noise, by quantile functions or Gumbel-max.

A node drawn without explicit noise, ``D = pyro.sample("D", Poisson(rate(A, Q)))``, has no counterfactual until its
noise is coupled. Each coupling makes the program equivalent to one with explicit noise (the baseline reads A = 0)::

    U = pyro.sample("U_D", Uniform(0, 1))
    D = pyro.deterministic("D", quantile(Poisson(rate(A, Q)), U))                          # "monotone"
    D = ... quantile(Poisson(rate(A, Q)), where(rate(A, Q) == rate(0, Q), U, 1 - U))       # "antithetic"
    D = ... quantile(Poisson(rate(A, Q)), where(rate(A, Q) == rate(0, Q), U, other_U))     # "independent"

``"gumbel"`` is monotone but for categories without an order, for which it is
``G = pyro.sample("G_C", Gumbel(0, 1).expand([k]).to_event(1)); C = argmax(log_probabilities(A, Q) + G)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NoReturn, cast

import pyro.distributions as dist
import torch
from scipy import stats
from torch import Tensor, distributions

from pyrofair._validation import listed, require_choice, shown
from pyrofair.exceptions import DataError, PyrofairError
from pyrofair.programs.distributions import OrderedCategorical

__all__ = [
    "COUPLINGS",
    "SCIPY",
    "Coupling",
    "CouplingError",
    "gumbel_max",
    "is_gumbel",
    "is_nominal",
    "log_probabilities",
    "named_coupling",
    "parameters_of",
    "quantile",
    "require_couplings",
    "unwrap",
]

Coupling = Literal["monotone", "independent", "antithetic", "gumbel"]
COUPLINGS: tuple[Coupling, ...] = ("monotone", "independent", "antithetic", "gumbel")
NOMINAL = (distributions.Categorical, distributions.OneHotCategorical)
ORDERED = (OrderedCategorical, dist.OrderedLogistic)
STEPS = 60
PRIVATE = ("_inv", "_cache_size", "_parameters", "_buffers", "_modules")
WRAPPERS = (distributions.Independent, dist.ExpandedDistribution, dist.MaskedDistribution)


class CouplingError(PyrofairError):
    """A family of distributions cannot be coupled as asked."""


def require_couplings(given: Iterable[Any]) -> list[Coupling]:
    """Return couplings as a list, or raise a DataError if there is none or one is not known."""
    known = ", ".join(COUPLINGS)
    every: list[Any] = [] if isinstance(given, str) else list(listed(given) or ())
    if not every:
        raise DataError(f"couplings={shown(given)} must be a list of couplings, one at least. They are: {known}.")
    for one in every:
        require_choice("coupling", one, tuple(COUPLINGS))
    return every


def _numpy(value: Any) -> Any:
    return torch.as_tensor(value).detach().cpu().to(torch.float64).numpy()


# SciPy's frozen distributions by family, where torch has no inverse distribution function.
SCIPY: dict[str, Callable[[Any], Any]] = {
    "Poisson": lambda d: stats.poisson(_numpy(d.rate)),
    "Gamma": lambda d: stats.gamma(_numpy(d.concentration), scale=1.0 / _numpy(d.rate)),
    "Chi2": lambda d: stats.chi2(_numpy(d.df)),
    "Beta": lambda d: stats.beta(_numpy(d.concentration1), _numpy(d.concentration0)),
    "Binomial": lambda d: stats.binom(_numpy(d.total_count), _numpy(d.probs)),
    "BetaBinomial": lambda d: stats.betabinom(
        _numpy(d.total_count), _numpy(d.concentration1), _numpy(d.concentration0)
    ),
    "Geometric": lambda d: stats.geom(_numpy(d.probs), loc=-1),
    "NegativeBinomial": lambda d: stats.nbinom(_numpy(d.total_count), 1.0 - _numpy(d.probs)),
    "GammaPoisson": lambda d: stats.nbinom(_numpy(d.concentration), _numpy(d.rate) / (1.0 + _numpy(d.rate))),
    "StudentT": lambda d: stats.t(_numpy(d.df), loc=_numpy(d.loc), scale=_numpy(d.scale)),
}


def unwrap(distribution: Any) -> Any:
    """Return the distribution inside expansions, masks and event dimensions."""
    while isinstance(distribution, WRAPPERS):
        distribution = distribution.base_dist
    return distribution


def is_nominal(distribution: Any) -> bool:
    """Return whether a distribution is one of categories without an order, whose codes are mere names."""
    inner = unwrap(distribution)
    return isinstance(inner, NOMINAL) and not isinstance(inner, ORDERED)


def is_gumbel(distribution: Any, coupling: Coupling) -> bool:
    """Return whether the worlds share Gumbel noise, a number for each category, rather than a uniform."""
    return coupling == "gumbel" and is_nominal(distribution)


def named_coupling(coupling: Coupling, *, nominal: bool) -> Coupling:
    """Return the name of a coupling by its effect: ``"gumbel"`` is monotone where no coupled site is nominal."""
    return "monotone" if coupling == "gumbel" and not nominal else coupling


def quantile(name: str, distribution: Any, u: Tensor) -> Tensor:
    """Return the value of a distribution at probabilities u: the least x with P(X <= x) >= u, element by element.

    SciPy inverts where torch does not; mixtures of continuous distributions are inverted by Newton's method. A family
    of vectors, or without a usable quantile function, is a CouplingError that names the site.
    """
    inner = unwrap(distribution)
    if isinstance(inner, distributions.Bernoulli):
        p = inner.probs
        return (u > 1.0 - p).to(p.dtype)
    if isinstance(inner, distributions.Categorical):
        below = inner.probs.cumsum(-1)[..., :-1]
        return (u.unsqueeze(-1) > below).sum(-1)
    if isinstance(inner, dist.Delta):
        return cast(Tensor, inner.v + torch.zeros_like(u, dtype=inner.v.dtype))
    if isinstance(inner, dist.ZeroInflatedDistribution):
        above = ((u - inner.gate) / (1.0 - inner.gate)).clamp(min=torch.finfo(u.dtype).tiny)
        return torch.where(u <= inner.gate, 0.0, quantile(name, inner.base_dist, above))
    if isinstance(inner, distributions.MixtureSameFamily):
        return _quantile_of_mixture(name, inner, u)
    family = type(inner).__name__
    if family in SCIPY:
        like = torch.as_tensor(getattr(inner, next(iter(inner.arg_constraints))))
        return torch.as_tensor(SCIPY[family](inner).ppf(_numpy(u)), dtype=like.dtype, device=like.device)
    try:
        if type(inner).icdf is distributions.TransformedDistribution.icdf:
            return _quantile_of_transformed(name, inner, u)
        return cast(Tensor, inner.icdf(u))
    except (NotImplementedError, AttributeError) as error:
        _refuse(name, family, error)


def _refuse(name: str, family: str, cause: Exception | None = None) -> NoReturn:
    raise CouplingError(
        f"The site {name!r} is drawn from {family}, which has no usable quantile function, so its noise cannot be "
        "shared by two worlds. Write its noise as a site of its own (U = pyro.sample(...); "
        f"{name} = pyro.deterministic({name!r}, f(parents, U))), use a family with a quantile function, or "
        "coupling='independent', which needs none."
    ) from cause


def _quantile_of_transformed(name: str, distribution: Any, u: Tensor) -> Tensor:
    sign: Any = 1
    for transform in distribution.transforms:
        if transform.domain.event_dim:
            raise NotImplementedError("A transform of vectors has no order to keep.")
        sign = sign * transform.sign
    x = quantile(name, distribution.base_dist, torch.where(torch.as_tensor(sign) > 0, u, 1.0 - u))
    for transform in distribution.transforms:
        x = transform(x)
    return x


def _quantile_of_mixture(name: str, distribution: Any, u: Tensor) -> Tensor:
    """Solve cdf(x) = u between the least and the greatest quantile of the components."""
    component = distribution.component_distribution
    family = f"a mixture of {type(unwrap(component)).__name__}"
    if component.event_shape or component.support.is_discrete:
        _refuse(name, family)
    try:
        ends = quantile(name, component, u.unsqueeze(-1))
        distribution.cdf(ends[..., 0])
    except (NotImplementedError, CouplingError) as error:
        _refuse(name, family, error)
    low, high = ends.amin(-1), ends.amax(-1)
    x = (low + high) / 2
    for _ in range(STEPS):
        gap = distribution.cdf(x) - u
        low, high = torch.where(gap < 0, x, low), torch.where(gap < 0, high, x)
        step = x - gap / distribution.log_prob(x).exp()
        following = torch.where((step > low) & (step < high), step, (low + high) / 2)
        settled = (following - x).abs() <= 2 * torch.finfo(x.dtype).eps * x.abs()
        x = following
        if bool(settled.all()):
            break
    return x


def log_probabilities(distribution: Any) -> Tensor:
    """Return the log-probabilities of categories, shape (..., k): minus infinity where a category has none."""
    inner = unwrap(distribution)
    return cast(Tensor, inner.logits.masked_fill(inner.probs <= 0.0, -torch.inf))


def gumbel_max(distribution: Any, noise: Tensor) -> Tensor:
    """Return the categories that win when Gumbel noise, shape (..., k), is added to the log-probabilities."""
    log_p = log_probabilities(distribution)
    winner = (log_p + noise).argmax(-1)
    if isinstance(unwrap(distribution), distributions.OneHotCategorical):
        return torch.nn.functional.one_hot(winner, log_p.shape[-1]).to(log_p.dtype)
    return winner


def parameters_of(distribution: Any) -> list[Tensor]:
    """Return the tensors, (*batch, ...), that identify a distribution: two with equal ones are the same."""
    return _parameters(distribution, tuple(distribution.batch_shape))


def _parameters(d: Any, batch: tuple[int, ...]) -> list[Tensor]:
    while isinstance(d, WRAPPERS):
        if isinstance(d, distributions.Independent):
            batch = (*batch, *d.base_dist.batch_shape[len(d.batch_shape) :])
        d = d.base_dist
    if isinstance(d, distributions.TransformedDistribution):
        return _parameters(d.base_dist, batch) + [_expand(each, batch, 0) for each in _constants(d.transforms)]
    if isinstance(d, distributions.MixtureSameFamily):
        parts, weights = d.component_distribution, d.mixture_distribution
        return _parameters(weights, batch) + [
            each.movedim(len(batch), -1) for each in _parameters(parts, (*batch, parts.batch_shape[-1]))
        ]
    if isinstance(d, dist.Delta):
        return [d.v.expand((*batch, *d.event_shape))]
    # Logits carry no more than probabilities, and are stored only once they have been asked for.
    names = [name for name in d.arg_constraints if not name.endswith("logits")] or list(d.arg_constraints)
    if hasattr(d, "temperature"):  # which relaxed distributions do not count among them
        names.append("temperature")
    if not names:
        raise CouplingError(
            f"{type(d).__name__} declares no parameters (arg_constraints), so it cannot be determined whether a unit's "
            "distribution is the same in two worlds. Declare them, or write its noise as a site of its own."
        )
    inside = _parameters(d.base_dist, batch) if isinstance(d, dist.ZeroInflatedDistribution) else []
    return inside + [_expand(getattr(d, name), batch, _event_dim(d, name)) for name in names]


def _event_dim(d: Any, name: str) -> int:
    if name not in d.arg_constraints:
        return 0
    try:
        return int(d.arg_constraints[name].event_dim)
    except NotImplementedError:  # a constraint that depends on other parameters, each of them a number
        return 0


def _constants(part: Any) -> list[Any]:
    """Return the numbers in transforms."""
    if isinstance(part, Tensor | int | float):
        return [part]
    if isinstance(part, distributions.transforms._InverseTransform):
        return _constants(part.inv)
    if isinstance(part, distributions.Transform):
        # A transform keeps its inverse once it has been asked for, and that one keeps the transform.
        # Weights of a network, in private dictionaries, are the same for all units.
        part = [value for name, value in vars(part).items() if not (name[:7] == "_cached" or name in PRIVATE)]
    elif isinstance(part, dict):
        part = list(part.values())
    elif not isinstance(part, list | tuple):
        return []
    return [each for inside in part for each in _constants(inside)]


def _expand(value: Any, batch: tuple[int, ...], event_dim: int) -> Tensor:
    tensor = torch.as_tensor(value)
    return tensor.expand((*batch, *tensor.shape[tensor.ndim - event_dim :]))
