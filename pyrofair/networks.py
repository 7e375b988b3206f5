"""How do the columns that a law reads become its numbers? By a small network with priors on its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

__all__ = ["Network"]

PRIOR = 2.0
"""Prior standard deviation of a bias, and of a weight times the root of the number of weights of its kind that go
in."""
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
    direct
        Whether the last of several layers reads the columns too, so that a linear predictor is part of the network. The
        priors of two layers together draw a small effect to exactly 0, where rows say no more of it whatever their
        weights; that of one layer does not.

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
    direct: bool = False

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """The shape of each layer's weights, (inputs, outputs); those of a constant have no inputs."""
        inputs = sum(self.widths)
        sizes = (inputs, *(self.hidden if inputs else ()), self.size)
        *first, (last, size) = pairwise(sizes)
        return (*first, (last + inputs if first and self.direct else last, size))

    def draw(self, column: str) -> list[Tensor]:
        """Draw weights and biases, layer by layer, as the sites ``{column}__weight_1``, ``{column}__bias_1``, ..."""
        parameters = []
        for layer, (inputs, outputs) in enumerate(self.shapes, 1):
            if inputs:
                scale = PRIOR / self._shares(layer).sqrt()
                prior = dist.Normal(torch.zeros(inputs, outputs), scale.unsqueeze(1)).to_event(2)  # type: ignore[no-untyped-call]
                parameters.append(pyro.sample(f"{column}__weight_{layer}", prior))
            prior = dist.Normal(torch.zeros(outputs), PRIOR).to_event(1)  # type: ignore[no-untyped-call]
            parameters.append(pyro.sample(f"{column}__bias_{layer}", prior))
        return parameters

    def _shares(self, layer: int) -> Tensor:
        """Return for each weight that goes in how many there are of its kind: of units, or of columns' features."""
        inputs, among = sum(self.widths), self.shapes[layer - 1][0]
        kinds = (among - inputs, inputs) if self.direct and layer == len(self.shapes) > 1 else (among,)
        return torch.cat([torch.full((kind,), float(kind)) for kind in kinds])

    def start(self, column: str) -> dict[str, Tensor]:
        """Return random values at which training starts, for each site."""
        found = {}
        for layer, (inputs, outputs) in enumerate(self.shapes, 1):
            last = layer == len(self.shapes)
            if inputs:
                scale = (FIRST if last else 1.0) / self._shares(layer).sqrt()
                found[f"{column}__weight_{layer}"] = scale.unsqueeze(1) * torch.randn(inputs, outputs)
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
        out = _linear(features, self.widths, parameters[0], parameters[1])
        for layer, (weight, bias) in enumerate(zip(parameters[2::2], parameters[3::2], strict=True), 2):
            out = out.relu()
            if self.direct and layer == len(self.shapes):
                out = _linear([out, *features], (out.shape[-1], *self.widths), weight, bias)
            else:
                out = out @ weight + bias
        return out

    @property
    def precisions(self) -> Tensor:
        """Those of the priors of the last layer's weights and biases, shape (inputs + 1,)."""
        return torch.cat([self._shares(len(self.shapes)), torch.ones(1)]) / PRIOR**2

    def before_last(self, parameters: Sequence[Tensor], features: Sequence[Tensor], n: int) -> Tensor:
        """Return what the last layer reads, shape (n, inputs), parameters as for a call, features of n rows."""
        if not sum(self.widths):
            return torch.empty(n, 0, dtype=parameters[0].dtype)
        if not self.hidden:
            return torch.cat([*features], -1)
        before = Network(self.widths, self.hidden[:-1], self.hidden[-1])(parameters[:-2], features).relu()
        return torch.cat([before, *features], -1) if self.direct else before


def _linear(features: Sequence[Tensor], widths: Sequence[int], weight: Tensor, bias: Tensor) -> Tensor:
    """Return a linear predictor of columns that are broadcast with each other, shape (..., size)."""
    out, place = bias, 0
    for each, width in zip(features, widths, strict=True):
        if width:
            out = out + each @ weight[place : place + width]
            place += width
    return out
