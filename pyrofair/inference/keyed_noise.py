"""Noise that belongs to rows: drawn from numbers that are made of a row's key and a seed alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyrofair._random import keyed_strata, keyed_uniform
from pyrofair.programs.couplings import Noise, Uniform, at_noise, inside, noise_like, partner

__all__ = ["KeyedNoise", "KeyedUniforms", "halves"]

MOST_STRATIFIED = 4
"""Draws of vectors of more numbers than these are independent, not one in each part of their distribution."""


@dataclass(frozen=True, eq=False)
class KeyedUniforms:
    """Uniform numbers of units (m * draws, ...), the draws of a unit one after the other, made of their rows' keys.

    The draws of one number lie one in each equal part of (0, 1), so that means over them vary less.
    """

    keys: NDArray[np.uint64]
    seed: int
    draws: int

    def __call__(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return the numbers of a name, shape (m * draws, ...)."""
        rest = tuple(shape[1:])
        few = int(np.prod(rest, dtype=np.int64)) <= MOST_STRATIFIED
        drawn = (keyed_strata if few else keyed_uniform)(self.keys, self.seed, name, (self.draws, *rest))
        return drawn.movedim(-1, 0).reshape(*shape).to(torch.get_default_dtype())


def halves(name: str, shape: Sequence[int]) -> Tensor:
    """Return for each number the probability of its median."""
    return torch.full(tuple(shape), 0.5)


@dataclass
class KeyedNoise(Noise):
    """Noise that is drawn from keyed uniforms, by quantile functions; ``axes`` holds the axis of each site's units."""

    uniform: Uniform | None = None
    axes: Mapping[str, int] = field(default_factory=dict)

    def draw(self, name: str, distribution: Any) -> Tensor:
        """Return the value of an exogenous site, at its uniform numbers on first use."""
        if name not in self.values:
            self.values[name] = self.at(name, distribution)
        return self.values[name]

    def at(self, name: str, distribution: Any) -> Tensor:
        """Return the value of a distribution of units at the uniform numbers of a name."""
        assert self.uniform is not None
        shape, axis = [*distribution.shape()], self.axes.get(name, 0)
        shape[axis : axis + 1] = []
        u = inside(self.uniform(name, (self.n, *shape))).movedim(0, axis)
        return at_noise(name, distribution, u, "monotone")

    def is_redrawn(self, name: str, distribution: Any) -> bool:
        """Return False: a family without a quantile function, whose draws cannot be keyed, is refused when met."""
        return False

    def pair(self, name: str, distribution: Any, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the noise of a node in the baseline and elsewhere."""
        assert self.uniform is not None
        if name not in self.pairs:
            first = noise_like(distribution, shape, self.coupling, name, self.uniform)
            self.pairs[name] = first, partner(first, self.coupling, name, self.uniform)
        return self.pairs[name]
