"""What are people made of? The exogenous noise of a program, the same in every world and for every order of use."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pyro.distributions as dist
import torch
from torch import Tensor

from pyrofair.couplings import Coupling, CouplingError, gumbel_max, is_gumbel, law_parameters, quantile, unwrap
from pyrofair.isolation import set_seed

__all__ = ["Noise", "Redraws", "choose_noise", "draw_from"]


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

    Made on first use and kept, so that every run of the program sees the same people. Each site has a seed of its own:
    its noise depends neither on the order in which sites are met nor on what else is drawn.

    Parameters
    ----------
    n
        The number of people.
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
        noise and use it inside :func:`pyrofair.isolation.isolated`.
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
        """Return the noise of a node in the baseline and, where its law differs there, in another world.

        Parameters
        ----------
        name, law
            The node's site and its law in some world.
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
        """Return the values of a node to draw for each law apart; None where a quantile function takes its noise."""
        if self.coupling == "independent" and name not in self.redraws:
            try:
                quantile(name, law, torch.tensor(0.5))
            except CouplingError:
                self.redraws[name] = Redraws()
            else:
                self.redraws[name] = None
        return self.redraws.get(name)

    def draw_apart(self, name: str, law: Any, redraws: Redraws) -> Tensor:
        """Return the value of a node whose noise is drawn for each law apart."""

        def draw(place: int) -> Tensor:
            self._set_seed(f"{name} {place}")
            return draw_from(law)

        return redraws.value(law, draw)

    def value(self, name: str, law: Any, noise: Tensor) -> Tensor:
        """Return the value that a law takes at some noise."""
        return gumbel_max(law, noise) if is_gumbel(law, self.coupling) else quantile(name, law, noise)

    def _set_seed(self, name: str) -> None:
        digest = hashlib.blake2b(f"{self.seed} {name}".encode(), digest_size=4).digest()
        set_seed(int.from_bytes(digest, "big"))


def draw_from(law: Any) -> Tensor:
    """Draw once from a law, without a gradient, which is faster for some; laws outside torch can only be called.

    So can straight-through laws, which round in ``rsample`` alone.
    """
    called = not hasattr(law, "sample") or isinstance(unwrap(law), STRAIGHT_THROUGH)
    return cast(Tensor, law().detach() if called else law.sample())


def _uniform(shape: tuple[int, ...]) -> Tensor:
    least = torch.finfo(torch.get_default_dtype()).eps / 2
    return torch.rand(shape).clamp_(least, 1.0 - least)


def choose_noise(first: Tensor, second: Tensor, one: Sequence[Tensor], other: Sequence[Tensor]) -> Tensor:
    """Return the first noise for people whose law is the same in both worlds, and the second for all others.

    Parameters
    ----------
    first, second
        The noise, a number for each element of the laws.
    one, other
        The parameters of the law in the baseline and in another world, the batch in front.

    Examples
    --------
    >>> first, second = torch.tensor([0.1, 0.2]), torch.tensor([0.8, 0.9])
    >>> choose_noise(first, second, [torch.tensor([0.3, 0.5])], [torch.tensor([0.3, 0.6])])
    tensor([0.1000, 0.9000])
    """
    return torch.where(_same_law(one, other, first.ndim), first, second)


def _same_law(one: Sequence[Tensor], other: Sequence[Tensor], dims: int) -> Tensor:
    """Tell where two laws have the same parameters, for each element of so many leading dimensions."""
    same = torch.ones((), dtype=torch.bool)
    for left, right in zip(one, other, strict=True):
        equal = (left == right) | (left.isnan() & right.isnan())
        same = same & (equal.flatten(dims).all(-1) if equal.ndim > dims else equal)
    return same
