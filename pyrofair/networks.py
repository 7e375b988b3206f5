"""How do the columns that a law reads become its numbers? By a small network with priors on its weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

__all__ = ["Network"]

PRIOR = 2.0
"""Prior standard deviation of a bias, and of a weight times the root of the number of weights that go in."""
FIRST = 0.1
"""The weights that come last start so many times smaller than the others, so that training starts near the offset."""


@dataclass(frozen=True)
class Network:
    """A network of rectified linear units; without hidden layers a linear predictor, without inputs a constant.

    All weights and biases have normal priors around 0, which act as weight decay. The inputs are taken column by
    column and broadcast with each other, so that a column of one number for each of several worlds meets one of a
    number for each person.

    Parameters
    ----------
    widths
        How many features each column gives.
    hidden
        The number of units of each hidden layer.
    size
        How many numbers it returns.

    Examples
    --------
    >>> network = Network((1, 3), (32,), 2)
    >>> network.shapes
    ((4, 32), (32, 2))
    >>> network([torch.zeros(shape) for shape in [(4, 32), (32,), (32, 2), (2,)]], [torch.ones(5, 1), torch.ones(5, 3)])
    tensor([[0., 0.],
            [0., 0.],
            [0., 0.],
            [0., 0.],
            [0., 0.]])
    """

    widths: tuple[int, ...]
    hidden: tuple[int, ...]
    size: int

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """The shape of each layer's weights, (inputs, outputs); those of a constant have no inputs."""
        inputs = sum(self.widths)
        sizes = (inputs, *(self.hidden if inputs else ()), self.size)
        return tuple(pairwise(sizes))

    def draw(self, column: str) -> list[Tensor]:
        """Draw weights and biases, layer by layer, as the sites ``{column}__weight_1``, ``{column}__bias_1``, ..."""
        parameters = []
        for layer, (inputs, outputs) in enumerate(self.shapes, 1):
            if inputs:
                prior = dist.Normal(torch.zeros(inputs, outputs), PRIOR / math.sqrt(inputs)).to_event(2)  # type: ignore[no-untyped-call]
                parameters.append(pyro.sample(f"{column}__weight_{layer}", prior))
            prior = dist.Normal(torch.zeros(outputs), PRIOR).to_event(1)  # type: ignore[no-untyped-call]
            parameters.append(pyro.sample(f"{column}__bias_{layer}", prior))
        return parameters

    def start(self, column: str) -> dict[str, Tensor]:
        """Return random values at which training starts, for each site."""
        found = {}
        for layer, (inputs, outputs) in enumerate(self.shapes, 1):
            last = layer == len(self.shapes)
            if inputs:
                scale = (FIRST if last else 1.0) / math.sqrt(inputs)
                found[f"{column}__weight_{layer}"] = scale * torch.randn(inputs, outputs)
            found[f"{column}__bias_{layer}"] = torch.zeros(outputs) if last else 0.5 * torch.randn(outputs)
        return found

    def __call__(self, parameters: Sequence[Tensor], features: Sequence[Tensor]) -> Tensor:
        """Return numbers of shape (..., size).

        Parameters
        ----------
        parameters
            Weights and biases, layer by layer.
        features
            For each column its features, shape (..., width).
        """
        if not sum(self.widths):
            return parameters[0]
        out, place = parameters[1], 0
        for each, width in zip(features, self.widths, strict=True):
            if width:
                out = out + each @ parameters[0][place : place + width]
                place += width
        for weight, bias in zip(parameters[2::2], parameters[3::2], strict=True):
            out = out.relu() @ weight + bias
        return out
