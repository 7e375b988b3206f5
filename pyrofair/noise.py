"""What are people made of? The exogenous noise of a program, the same in every world and for every order of use."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from pyrofair.couplings import Coupling, gumbel_max, is_gumbel, quantile, unwrap
from pyrofair.isolation import set_seed

__all__ = ["Noise", "choose_noise", "draw_from"]


def _fresh() -> int:
    return int(torch.randint(2**31 - 1, ()))


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
    seed
        The seed; by default one drawn from torch's global generator. Drawing sets the global generators, so make the
        noise and use it inside :func:`pyrofair.isolation.isolated`.
    """

    n: int
    coupling: Coupling
    values: dict[str, Tensor] = field(default_factory=dict)
    pairs: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
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

    def value(self, name: str, law: Any, noise: Tensor) -> Tensor:
        """Return the value that a law takes at some noise."""
        return gumbel_max(law, noise) if is_gumbel(law, self.coupling) else quantile(name, law, noise)

    def _set_seed(self, name: str) -> None:
        digest = hashlib.blake2b(f"{self.seed} {name}".encode(), digest_size=4).digest()
        set_seed(int.from_bytes(digest, "big"))


def draw_from(law: Any) -> Tensor:
    """Draw once from a law, without a gradient, which is faster for some; laws outside torch can only be called."""
    return cast(Tensor, law.sample() if hasattr(law, "sample") else law())


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
    same = torch.ones((), dtype=torch.bool)
    for left, right in zip(one, other, strict=True):
        equal = (left == right) | (left.isnan() & right.isnan())
        same = same & (equal.flatten(first.ndim).all(-1) if equal.ndim > first.ndim else equal)
    return torch.where(same, first, second)
