"""Exogenous noise shared across worlds and its couplings: drawn, valued at a node, and given a node's value.

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

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, cast, get_args

import pyro.distributions as dist
import torch
from scipy import stats
from torch import Tensor, distributions

from pyrofair._random import set_seed
from pyrofair._validation import listed, require_choice, shown
from pyrofair.exceptions import DataError, PyrofairError
from pyrofair.programs.distributions import OrderedCategorical, invert_mixture
from pyrofair.programs.provenance import numbers_in

__all__ = [
    "COMPARING",
    "COUPLINGS",
    "Coupling",
    "CouplingError",
    "Noise",
    "Observed",
    "Redraws",
    "Uniform",
    "at_noise",
    "choose_noise",
    "draw_from",
    "gumbel_max",
    "has_distribution",
    "inside",
    "is_nominal",
    "is_point",
    "named_coupling",
    "noise_given",
    "noise_like",
    "noise_of",
    "parameters_of",
    "partner",
    "quantile",
    "require_couplings",
    "unwrap",
]

Coupling = Literal["monotone", "independent", "antithetic", "gumbel"]
COUPLINGS: tuple[Coupling, ...] = get_args(Coupling)
COMPARING: tuple[Coupling, ...] = ("independent", "antithetic")
"""Under these a site has other noise wherever its distribution is another one."""
NOMINAL = (distributions.Categorical, distributions.OneHotCategorical)
ORDERED = (OrderedCategorical, dist.OrderedLogistic)
PRIVATE = ("_inv", "_parameters", "_buffers", "_modules")
WRAPPERS = (distributions.Independent, dist.ExpandedDistribution, dist.MaskedDistribution)


class CouplingError(PyrofairError):
    """A family of distributions cannot be coupled as :class:`pyrofair.SEM` was asked to.

    Examples
    --------
    >>> import pyro, pyro.distributions as dist
    >>> from pyrofair import SEM, CausalGraph
    >>> unfair = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")
    >>> def program(n):
    ...     with pyro.plate("units", n):
    ...         A = pyro.sample("A", dist.Bernoulli(0.5))
    ...         pyro.deterministic("Y", pyro.sample("M", dist.VonMises(A, 1.0)))
    >>> SEM(program, unfair).worlds(10)
    Traceback (most recent call last):
        ...
    pyrofair.programs.couplings.CouplingError: The site 'M' is drawn from VonMises, which has no usable quantile ...
    """


def require_couplings(given: Iterable[Any]) -> list[Coupling]:
    """Return couplings as a list, or raise a DataError if there is none or one is not known."""
    known = ", ".join(COUPLINGS)
    every: list[Any] = [] if isinstance(given, str) else list(listed(given) or ())
    if not every:
        raise DataError(f"couplings={shown(given)} must be a list of couplings, one at least. They are: {known}.")
    for one in every:
        require_choice("coupling", one, COUPLINGS)
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


def unwrap(distribution: Any, wrappers: tuple[Any, ...] = WRAPPERS) -> Any:
    """Return the distribution inside expansions, masks and event dimensions, or some of these."""
    while isinstance(distribution, wrappers):
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


def _own_site(name: str) -> str:
    return (
        "Write its noise as a site of its own (U = pyro.sample(...); "
        f"{name} = pyro.deterministic({name!r}, f(parents, U)))"
    )


def _refuse(name: str, family: str, cause: Exception | None = None) -> NoReturn:
    raise CouplingError(
        f"The site {name!r} is drawn from {family}, which has no usable quantile function, so its noise cannot be "
        f"shared by two worlds. {_own_site(name)}, use a family with a quantile function, or coupling='independent'."
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
    """Return the values of a mixture at probabilities u, found between the quantiles of its components."""
    component = distribution.component_distribution
    family = f"a mixture of {type(unwrap(component)).__name__}"
    if component.event_shape or component.support.is_discrete:
        _refuse(name, family)
    try:
        ends = quantile(name, component, u.unsqueeze(-1))
        distribution.cdf(ends[..., 0])
    except (NotImplementedError, CouplingError) as error:
        _refuse(name, family, error)
    found = invert_mixture(component, distribution.mixture_distribution.probs, ends, u)
    if found is None:
        raise CouplingError(f"The site {name!r} is drawn from {family}, whose quantiles were not found.")
    return found


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
    """Return the parameters that a distribution declares, and those of all distributions and transforms in it."""
    while isinstance(d, WRAPPERS):
        if isinstance(d, distributions.Independent):
            batch = (*batch, *d.base_dist.batch_shape[len(d.batch_shape) :])
        d = d.base_dist
    if isinstance(d, distributions.MixtureSameFamily):
        own = _parameters(d.component_distribution, (*batch, d.component_distribution.batch_shape[-1]))
        return _parameters(d.mixture_distribution, batch) + [each.movedim(len(batch), -1) for each in own]
    if isinstance(d, dist.Delta):
        return [d.v.expand((*batch, *d.event_shape))]
    held = [value for key, value in vars(d).items() if key[:1] != "_"]
    inside = [each for value in held for each in _hidden(value, batch)]
    # Logits carry no more than probabilities, and are stored only once they have been asked for.
    names = [name for name in d.arg_constraints if not name.endswith("logits")] or list(d.arg_constraints)
    if hasattr(d, "temperature"):  # which relaxed distributions do not count among them
        names.append("temperature")
    if inside and not names:
        inside += [_place(value, batch) for value in held if isinstance(value, Tensor)]
    if not names and not inside:
        raise CouplingError(
            f"{type(d).__name__} declares no parameters (arg_constraints), so it cannot be determined whether a unit's "
            "distribution is the same in two worlds. Declare them, or write its noise as a site of its own."
        )
    return inside + [_expand(getattr(d, name), batch, _event_dim(d, name)) for name in names]


def _hidden(part: Any, batch: tuple[int, ...]) -> list[Tensor]:
    """Return the parameters of what a distribution is made of: transforms, distributions, lists of these."""
    if isinstance(part, distributions.Distribution):
        try:
            return [_place(each, batch) for each in _parameters(part, tuple(part.batch_shape))]
        except CouplingError:  # the base of a transform without parameters may have none either
            return []
    if isinstance(part, list | tuple):
        return [each for one in part for each in _hidden(one, batch)]
    if not isinstance(part, distributions.Transform):
        return []
    # Weights of a network, in private dictionaries, are the same for all units; what it is given is not.
    made_of = (distributions.Transform, distributions.Distribution)
    held = numbers_in(part, (distributions.Transform,), PRIVATE, constants=True, keep=distributions.Distribution)
    every = [_hidden(each, batch) if isinstance(each, made_of) else [_place(each, batch)] for each in held.values()]
    return [each for one in every for each in one]


def _event_dim(d: Any, name: str) -> int:
    if name not in d.arg_constraints:
        return 0
    try:
        return int(d.arg_constraints[name].event_dim)
    except NotImplementedError:  # a constraint that depends on other parameters, each of them a number
        return 0


def _expand(value: Any, batch: tuple[int, ...], event_dim: int) -> Tensor:
    tensor = torch.as_tensor(value)
    return tensor.expand((*batch, *tensor.shape[tensor.ndim - event_dim :]))


def _place(value: Any, batch: tuple[int, ...]) -> Tensor:
    """Return a tensor with a value for each element of a batch: its first dimensions, as many as fit, are those."""
    tensor = torch.as_tensor(value)
    for event_dim in range(max(0, tensor.ndim - len(batch)), tensor.ndim):
        own = tensor.shape[: tensor.ndim - event_dim]
        if all(size in (1, wide) for size, wide in zip(reversed(own), reversed(batch), strict=False)):
            return _expand(tensor, batch, event_dim)
    return _expand(tensor, batch, tensor.ndim)


STRAIGHT_THROUGH = (dist.RelaxedBernoulliStraightThrough, dist.RelaxedOneHotCategoricalStraightThrough)


def inside(u: Tensor) -> Tensor:
    """Keep probabilities off 0 and 1, where rounding would put some."""
    least = torch.finfo(u.dtype).eps / 2
    return u.clamp(least, 1.0 - least)


# -- noise and values of one site --------------------------------------------------------------------------------------


def draw_from(distribution: Any) -> Tensor:
    """Draw once without a gradient, which is faster for some families.

    Distributions outside torch can only be called; straight-through ones round in ``rsample`` alone.
    """
    called = not hasattr(distribution, "sample") or isinstance(unwrap(distribution), STRAIGHT_THROUGH)
    return cast(Tensor, distribution().detach() if called else distribution.sample())


Uniform = Callable[[str, Sequence[int]], Tensor]
"""Uniform numbers of a name and a shape, units first: torch's, or those that belong to given rows."""


def _drawn(name: str, shape: Sequence[int]) -> Tensor:
    return torch.rand(*shape)


def _gumbel(uniform: Tensor) -> Tensor:
    return -torch.log(-torch.log(inside(uniform)))


def noise_like(
    distribution: Any, shape: Sequence[int], coupling: Coupling, name: str = "", uniform: Uniform | None = None
) -> Tensor:
    """Draw noise for values of a shape (*batch, *event): uniform of that shape, or Gumbel, (..., k), for categories."""
    draw, inner = uniform or _drawn, unwrap(distribution)
    if not is_gumbel(distribution, coupling):
        return inside(draw(name, shape))
    return _gumbel(draw(name, (*shape[: len(shape) - len(inner.event_shape)], inner.logits.shape[-1])))


def at_noise(name: str, distribution: Any, noise: Tensor, coupling: Coupling) -> Tensor:
    """Return the value that a distribution takes at some noise, shape (*batch, *event)."""
    if is_gumbel(distribution, coupling):
        return gumbel_max(distribution, noise)
    try:
        return quantile(name, distribution, noise)
    except CouplingError as error:
        if coupling != "independent":
            raise
        raise CouplingError(
            f"The site {name!r} is an unobserved random step drawn from {type(unwrap(distribution)).__name__}, which "
            f"has no quantile function; given rows need one for what is not observed. {_own_site(name)}."
        ) from error


def partner(noise: Tensor, coupling: Coupling, name: str = "", uniform: Uniform | None = None) -> Tensor:
    """Return the noise of a site where its distribution is another one, given the noise that it has here.

    Independent noise is drawn by torch, or from ``uniform`` numbers of the site's name.
    """
    if coupling == "independent":
        return inside(torch.rand_like(noise) if uniform is None else uniform(f"{name} elsewhere", noise.shape))
    return 1.0 - noise if coupling == "antithetic" else noise


def is_point(distribution: Any, coupling: Coupling) -> bool:
    """Return whether a value determines the noise that matters in every world."""
    return coupling != "independent" and not (
        distribution.support.is_discrete or hasattr(unwrap(distribution), "below")
    )


def noise_of(name: str, distribution: Any, value: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ends (m,), (m,) of the uniforms, open below and closed above, at which a value (m,) is taken.

    The two are equal where the distribution is continuous; one with atoms gives the probability of less than a value as
    ``below``. A CouplingError names a family without a distribution function.
    """
    inner = unwrap(distribution)
    family = type(inner).__name__
    if isinstance(inner, torch.distributions.Bernoulli):
        zero = (1.0 - inner.probs).expand(value.shape)
        return torch.where(value > 0, zero, 0.0), torch.where(value > 0, 1.0, zero)
    if isinstance(inner, torch.distributions.Categorical):
        cumulative = inner.probs.cumsum(-1)[..., :-1].expand(*value.shape, -1)
        ends = [torch.zeros(*value.shape, 1), cumulative, torch.ones(*value.shape, 1)]
        edges = torch.cat([end.to(cumulative.dtype) for end in ends], -1)
        index = value.long().unsqueeze(-1)
        return edges.gather(-1, index).squeeze(-1), edges.gather(-1, index + 1).squeeze(-1)

    def below(x: Tensor) -> Tensor:
        if family in SCIPY:
            found = SCIPY[family](inner).cdf(x.detach().cpu().numpy())
            return torch.as_tensor(found, dtype=torch.get_default_dtype()).expand(x.shape)
        return cast(Tensor, inner.cdf(x)).expand(x.shape)

    try:
        high = below(value)
        if hasattr(inner, "below"):
            return inner.below(value).expand(value.shape), high
        return (below(value - 1) if distribution.support.is_discrete else high), high
    except (NotImplementedError, AttributeError) as error:
        raise CouplingError(
            f"The site {name!r} is drawn from {family}, which has no usable distribution function, so the noise behind "
            f"a given value cannot be computed. {_own_site(name)}."
        ) from error


def has_distribution(name: str, distribution: Any, value: Tensor) -> bool:
    """Return whether a family has the distribution and quantile functions that take a value to its noise and back."""
    try:
        quantile(name, distribution, noise_of(name, distribution, value)[1])
    except CouplingError:
        return False
    return True


def noise_given(
    name: str, distribution: Any, value: Tensor, coupling: Coupling, uniform: Uniform | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw the noise, (m,) or Gumbel (m, k), of a site given its value (m,); also return its mean and variance (m,).

    These are NaN for Gumbel noise. The variance is 0 where a discrete value has no probability.
    """
    if is_gumbel(distribution, coupling):
        noise = _gumbel_given(name, distribution, value, uniform or _drawn)
        log_p = log_probabilities(distribution).expand(*value.shape, -1)
        unknown = torch.full(value.shape, torch.nan)
        possible = log_p.gather(-1, value.long().unsqueeze(-1)).squeeze(-1) > -torch.inf
        return noise, unknown, torch.where(possible, unknown, 0.0)
    low, high = noise_of(name, distribution, value)
    width = high - low
    return inside(high - width * (uniform or _drawn)(name, value.shape)), (low + high) / 2, width.square() / 12


def _gumbel_given(name: str, distribution: Any, value: Tensor, uniform: Uniform) -> Tensor:
    """Draw Gumbel noise (m, k) given the winner (m,) (Maddison and Tarlow, 2017): the maximum, then all below it."""
    log_p = log_probabilities(distribution).expand(*value.shape, -1)
    best = (_gumbel(uniform(f"{name} maximum", value.shape)) + log_p.logsumexp(-1)).unsqueeze(-1)
    free = _gumbel(uniform(name, log_p.shape))
    others = -torch.log(torch.exp(-best) + torch.exp(-(free + log_p)))
    won = torch.nn.functional.one_hot(value.long(), log_p.shape[-1]).bool()
    # A category without probability never wins, so the winner carries no information on its noise.
    return torch.where(log_p == -torch.inf, free, torch.where(won, best, others) - log_p)


def choose_noise(
    first: Tensor, second: Tensor, one: Sequence[Tensor], other: Sequence[Tensor], batch: int | None = None
) -> Tensor:
    """Return the first noise where the distributions with parameters ``one`` and ``other`` agree, else the second.

    They have so many dimensions of their batch, by default as many as the noise.
    """
    same = _same_distribution(one, other, first.ndim if batch is None else batch)
    return torch.where(same.reshape(*same.shape, *[1] * (first.ndim - same.ndim)), first, second)


def _same_distribution(one: Sequence[Tensor], other: Sequence[Tensor], dims: int) -> Tensor:
    """Return where two distributions have the same parameters, for each element of so many leading dimensions."""
    same = torch.ones((), dtype=torch.bool)
    for left, right in zip(one, other, strict=True):
        equal = (left == right) | (left.isnan() & right.isnan())
        same = same & (equal.flatten(dims).all(-1) if equal.ndim > dims else equal)
    return same


# -- the noise of units ------------------------------------------------------------------------------------------------


Redraws = list[tuple[list[Tensor], Tensor]]
"""Values of a site drawn independently for each distribution, which needs no quantile function, after its parameters.

A unit keeps its value while its distribution is the same, and has another, independent one wherever it is not. Whether
two are the same is determined by their parameters alone: a test at drawn values would keep some more often than others.
"""


@dataclass(frozen=True)
class Observed:
    """What observed units are as they are: node values, what the equations give there, and distributions' parameters.

    The noise of a site drawn without explicit noise is that of the distribution in ``under``.
    """

    values: dict[str, Tensor]
    natural: dict[str, Tensor]
    under: dict[str, list[Tensor]]


@dataclass
class Noise:
    """The exogenous noise of n units: the value of each exogenous site, and noise of nodes drawn without any.

    It is drawn on first use and kept, so that every run of the program sees the same units. Each site has a seed of its
    own: its noise depends neither on the order in which sites are met nor on what else is drawn.

    ``values`` are those of exogenous sites, of parameters, and of sites whose value does not matter. ``pairs`` hold,
    for each node drawn without explicit noise, its noise in the baseline and, where its distribution is another one,
    elsewhere; of observed units that under the distribution that they were observed with, and elsewhere. ``redraws``
    hold the values of nodes drawn from a family without a quantile function, if the coupling is independent. Pairs are
    made of ``uniform`` numbers of a site's name, or drawn. With ``seed=None`` draws come from torch's global generator;
    otherwise they set it, so use the noise inside :func:`pyrofair._random.isolated`.
    """

    n: int
    coupling: Coupling
    values: dict[str, Tensor] = field(default_factory=dict)
    pairs: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    redraws: dict[str, Redraws | None] = field(default_factory=dict)
    seed: int | None = field(default_factory=lambda: int(torch.randint(2**31 - 1, ())))
    observed: Observed | None = None
    uniform: Uniform | None = None

    def draw(self, name: str, distribution: Any) -> Tensor:
        """Return the value of an exogenous site, drawn on first use."""
        if name not in self.values:
            self._set_seed(name)
            self.values[name] = draw_from(distribution)
        return self.values[name]

    def pair(self, name: str, distribution: Any, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the noise of a node, whose values have this shape in one world, in the baseline and elsewhere."""
        if name not in self.pairs:
            self._set_seed(name)
            first = noise_like(distribution, shape, self.coupling, name, self.uniform)
            self.pairs[name] = first, partner(first, self.coupling, name, self.uniform)
        return self.pairs[name]

    def is_redrawn(self, name: str, distribution: Any) -> bool:
        """Return whether a node is drawn for each distribution apart, for no quantile function takes its noise."""
        if self.coupling == "independent" and name not in self.redraws:
            try:
                quantile(name, distribution, torch.tensor(0.5))
                self.redraws[name] = None
            except CouplingError:
                self.redraws[name] = []
        return self.redraws.get(name) is not None

    def value(
        self, name: str, distribution: Any, shape: Sequence[int], met: dict[str, list[Tensor]], *, baseline: bool
    ) -> Tensor:
        """Return the value of a site drawn without explicit noise under its distribution in one world.

        ``met`` holds the parameters of the distributions met in the baseline, which fills it; sites that are not in it
        have the baseline's noise or, of observed units, that under which they were observed.
        """
        if name in self.values:
            return self.values[name]
        if self.is_redrawn(name, distribution):
            return self._redraw(name, distribution)
        own, other = self.pair(name, distribution, shape)
        if other is not own:
            now, batch = parameters_of(distribution), len(distribution.batch_shape)
            if baseline:
                met[name] = now
            reference = met.get(name)
            if self.observed is not None:
                under = self.observed.under[name]
                reference = under if reference is None else reference
                own, other = (choose_noise(*pair, reference, under, batch) for pair in ((own, other), (other, own)))
            if reference is not None:
                own = choose_noise(own, other, reference, now, batch)
        return at_noise(name, distribution, own, self.coupling)

    def _redraw(self, name: str, distribution: Any) -> Tensor:
        redraws, parameters = cast(Redraws, self.redraws[name]), parameters_of(distribution)
        shape, known = distribution.batch_shape, []
        for one, values in redraws:
            same = _same_distribution(one, parameters, len(shape)).expand(shape)
            if bool(same.all()):
                return values
            known.append((same.reshape(*same.shape, *[1] * (values.ndim - same.ndim)), values))
        self._set_seed(f"{name} {len(known)}")
        found = draw_from(distribution)
        for same, values in reversed(known):
            found = torch.where(same, values, found)
        redraws.append((parameters, found))
        return found

    def _set_seed(self, name: str) -> None:
        if self.seed is not None:
            digest = hashlib.blake2b(f"{self.seed} {name}".encode(), digest_size=4).digest()
            set_seed(int.from_bytes(digest, "big"))
