"""A network's weights as one vector, with the slopes of its loss written out: what a point is fitted with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pyrofair.mechanisms.conditional import ConditionalDistribution, Network
from pyrofair.mechanisms.densities import Density
from pyrofair.mechanisms.families import features

if TYPE_CHECKING:
    from pyrofair.mechanisms.fitting import Rows

__all__ = ["FlatNetwork"]

MOST_HELD = 50_000_000
"""Up to so many features of rows are computed once; those of more rows with each batch."""


class FlatNetwork:
    """The distribution of a column at a network's weights and biases, all of them in one vector ``numbers``.

    A step of training takes some thirty small operations, so that it is worth to write its slopes out: autograd and
    distribution objects take three times as long as the arithmetic.
    """

    def __init__(
        self, mechanism: ConditionalDistribution, rows: Rows, start: Mapping[str, Tensor] | None = None
    ) -> None:
        network = mechanism.numbers
        assert isinstance(network, Network)
        first = dict(start or network.start(mechanism.column))
        self.network, self.family, self.rows = network, mechanism.family, rows
        self.names, self.shapes = [*first], [each.shape for each in first.values()]
        self.numbers = torch.cat([each.reshape(-1) for each in first.values()]).requires_grad_()
        self.values, self.slopes = self.numbers.detach(), torch.zeros(len(self.numbers))
        self.parts, self.slope_parts = self._split(self.values), self._split(self.slopes)
        layers = [network.precisions(i).repeat_interleave(size) for i, (_, size) in enumerate(network.shapes, 1)]
        self.precision = torch.cat(layers)
        self.numbers.grad = self.slopes
        self.offset = mechanism.family.offset
        self.reads = dict(mechanism.reads)
        self.density = Density.of(mechanism.family, rows.columns[mechanism.column])
        n = len(rows.weight)
        self.inputs = self._inputs(torch.arange(n)) if n * sum(network.widths) <= MOST_HELD else None

    def named(self, numbers: Tensor) -> dict[str, Tensor]:
        """Return weights and biases by their sites."""
        return {name: each.clone() for name, each in zip(self.names, self._split(numbers.detach()), strict=True)}

    def each(self, numbers: Tensor, at: Tensor) -> Tensor:
        """Return the log-likelihood of some rows."""
        return self.density.at(at)(self._forward(self._split(numbers), self._at(at))[-1])[0]

    @torch.no_grad()
    def loss(self, at: Tensor) -> Tensor:
        """Return the loss of a batch in nats, but for a constant, and leave its slopes with the numbers."""
        read, parts, slopes = self._at(at), self.parts, self.slope_parts
        *before, out = self._forward(parts, read)
        each, slope = self.density.at(at)(out)
        scale = self.rows.scale(at)
        slope = slope * -scale.unsqueeze(1)
        for layer in range(len(before) - 1, -1, -1):
            inputs, weight = before[layer], parts[2 * layer]
            torch.sum(slope, 0, out=slopes[2 * layer + 1])
            torch.mm(inputs.T, slope, out=slopes[2 * layer])
            if layer:
                width = self.network.hidden[layer - 1]
                slope = (slope @ weight[:width].T) * (inputs[:, :width] > 0.0)
        if not before:  # a constant
            torch.sum(slope, 0, out=slopes[0])
        pull = self.precision * self.values
        self.slopes.add_(pull)
        return 0.5 * (pull @ self.values) - scale @ each

    def _forward(self, parts: Sequence[Tensor], read: Tensor) -> list[Tensor]:
        """Return the inputs of each layer, and the family's numbers."""
        if len(parts) == 1:
            return [(parts[0] + self.offset).expand(len(read), -1)]
        found, last = [read], len(parts) // 2 - 1
        for layer in range(last):
            out = torch.addmm(parts[2 * layer + 1], found[-1], parts[2 * layer]).relu_()
            found.append(torch.cat([out, read], 1) if self.network.direct and layer == last - 1 else out)
        return [*found, torch.addmm(parts[-1] + self.offset, found[-1], parts[-2])]

    def _split(self, numbers: Tensor) -> list[Tensor]:
        sizes = [shape.numel() for shape in self.shapes]
        parts = numbers.split(sizes)  # type: ignore[no-untyped-call]
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def _at(self, at: Tensor) -> Tensor:
        return self._inputs(at) if self.inputs is None else self.inputs.index_select(0, at)

    def _inputs(self, at: Tensor) -> Tensor:
        read = [features(family, self.rows.columns[name][at]) for name, family in self.reads.items()]
        return torch.cat(read, 1) if read else torch.empty(len(at), 0)
