"""Newton's method for the last layer: distributions without hidden layers, and bootstrap replicates of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pyrofair.mechanisms.conditional import ConditionalDistribution, Network
from pyrofair.mechanisms.families import Binary, Categorical, Continuous, Integer, features

if TYPE_CHECKING:
    from pyrofair.mechanisms.fitting import Rows

__all__ = ["LastLayer", "has_last_layer", "is_convex"]

MOST_STEPS = 30
"""So many steps of Newton's method are enough for any distribution that has an optimum nearby."""
CONVERGED = 1e-8
"""A fit has converged if another step would gain less than so many nats per row."""
HALVINGS = 30
SOLVED = 1e-2
"""The equations of a step are solved to this share of their right side, in at most ``MOST_SOLVING`` rounds."""
MOST_SOLVING = 60
ARRIVED, MOST_MOVES = 1e-4, 8
"""A mixture has moved far enough if another step would gain this share of the first one's gain."""


def has_last_layer(mechanism: ConditionalDistribution) -> bool:
    """Return whether a network computes a distribution's numbers, and its family is one of ours, with curvatures."""
    known = Binary | Categorical | Continuous | Integer
    return isinstance(mechanism.numbers, Network) and isinstance(mechanism.family, known)


def is_convex(mechanism: ConditionalDistribution) -> bool:
    """Return whether a distribution has one optimum: a linear predictor of numbers in which it is simple."""
    network = mechanism.numbers
    return isinstance(network, Network) and len(network.shapes) == 1 and _is_simple(mechanism)


def _is_simple(mechanism: ConditionalDistribution) -> bool:
    """Return whether it has one optimum in its own numbers: log-odds, logits, or those of one normal distribution."""
    family = mechanism.family
    one = isinstance(family, Continuous | Integer) and family.components == 1
    return isinstance(family, Binary | Categorical) or one


@dataclass(frozen=True, eq=False)
class LastLayer:
    """What the last layer of a distribution is fitted to, in double precision, all layers before it held.

    ``inputs``, shape (n, k + 1), is what it reads of each row and a one; ``values`` and ``weight`` have shape (n,);
    ``precision``, shape (k + 1, 1), is that of the normal prior of each number. ``tilt``, a gradient of shape
    (k + 1, size), is taken off the objective's, so that a replicate of a distribution stopped early moves by its rows'
    weights, and not towards the optimum.
    """

    mechanism: ConditionalDistribution
    inputs: Tensor
    values: Tensor
    weight: Tensor
    precision: Tensor
    tilt: Tensor | float = 0.0

    @classmethod
    def of(cls, mechanism: ConditionalDistribution, parameters: Mapping[str, Tensor], rows: Rows) -> LastLayer:
        """Return the last layer of a distribution with given parameters, on the training rows."""
        network = mechanism.numbers
        assert isinstance(network, Network)
        values, weight = rows.at(rows.train), rows.weight[rows.train].double()
        before = network.before_last(
            [each.double() for each in parameters.values()],
            [features(family, values[name]).double() for name, family in mechanism.reads.items()],
            len(weight),
        )
        inputs = torch.cat([before, torch.ones(len(weight), 1, dtype=torch.float64)], 1)
        return cls(
            mechanism, inputs, values[mechanism.column].double(), weight, network.precisions(len(network.shapes)).double().unsqueeze(1)
        )

    def read(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return weights and biases of the last layer, shape (k + 1, size)."""
        last = [*parameters.values()][-2 if self.inputs.shape[1] > 1 else -1 :]
        return torch.cat([each.double().reshape(-1, self.mechanism.family.size) for each in last])

    def write(self, theta: Tensor, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return parameters with these as their last layer."""
        found, names = dict(parameters), [*parameters]
        found[names[-1]] = theta[-1].to(found[names[-1]].dtype)
        if self.inputs.shape[1] > 1:
            found[names[-2]] = theta[:-1].to(found[names[-2]].dtype)
        return found

    def loss(self, theta: Tensor) -> Tensor:
        """Return the negative log-posterior of weights and biases, in nats, but for a constant."""
        return self._fit(self._out(theta)) + 0.5 * (self.precision * theta.square()).sum() - (self.tilt * theta).sum()

    def gradient(self, theta: Tensor) -> Tensor:
        """Return its gradient, shape (k + 1, size)."""
        out = self._out(theta).requires_grad_()
        (slope,) = torch.autograd.grad(self._fit(out), out)
        return self.inputs.T @ slope + self.precision * theta - self.tilt

    def steps(self, theta: Tensor, most: int = MOST_STEPS) -> Iterator[tuple[Tensor, float, bool]]:
        """Take at most so many steps of Newton's method, and give the numbers, the loss, and whether it has converged.

        The curvature is that of the rows' log-likelihoods in the distribution's numbers, its negative parts left out,
        or of mixtures the products of the rows' slopes, which are as large on average (Fisher's information), so that
        each step leads downhill; it is halved until the loss falls.
        """
        value, enough = self.loss(theta), CONVERGED * len(self.weight)
        for taken in range(most):
            slope = self.gradient(theta)
            step = self._solve(slope, self._curvature(theta))
            gain, size = float((slope * step).sum()), 1.0
            if not taken and not self._exact:
                enough, most = max(enough, ARRIVED * gain), min(most, MOST_MOVES)
            if not gain > enough or taken >= most:
                yield theta, float(value), True
                return
            for _ in range(HALVINGS):
                tried = theta - size * step
                if (found := self.loss(tried)) <= value - 1e-4 * size * gain:
                    theta, value = tried, found
                    break
                size *= 0.5
            else:
                yield theta, float(value), True  # no better in double precision
                return
            yield theta, float(value), False

    def _out(self, theta: Tensor) -> Tensor:
        return self.inputs @ theta + self.mechanism.family.offset.double()

    def _fit(self, out: Tensor) -> Tensor:
        each: Tensor = self.mechanism.family.distribution(out).log_prob(self.values)  # type: ignore[no-untyped-call]
        return -(self.weight * each).sum()

    def _curvature(self, theta: Tensor) -> Tensor:
        """Return the second derivatives of each row's loss in the distribution's numbers, shape (n, size, size).

        Of a mixture: vectors whose products with themselves take their place, shape (n, size).
        """
        out = self._out(theta).requires_grad_()
        if not self._exact:
            (slope,) = torch.autograd.grad(self._fit(out), out)
            scaled: Tensor = slope / self.weight.clamp(min=1e-12).sqrt().unsqueeze(1)
            return scaled
        (slope,) = torch.autograd.grad(self._fit(out), out, create_graph=True)
        size = out.shape[-1]
        found = torch.stack(
            [torch.autograd.grad(slope[:, i].sum(), out, retain_graph=True)[0] for i in range(size)], 1
        ).detach()
        if isinstance(self.mechanism.family, Binary | Categorical):
            return found
        known, vectors = torch.linalg.eigh(0.5 * (found + found.transpose(1, 2)))
        clipped: Tensor = vectors @ (known.clamp(min=0.0).unsqueeze(-1) * vectors.transpose(1, 2))
        return clipped

    @property
    def _exact(self) -> bool:
        return _is_simple(self.mechanism)

    def _solve(self, right: Tensor, curvature: Tensor) -> Tensor:
        """Solve the equations of a step by conjugate gradients, scaled by their diagonal."""
        own = curvature.square() if curvature.ndim == 2 else curvature.diagonal(dim1=1, dim2=2)
        diagonal = self.inputs.square().T @ own + self.precision
        found, left = torch.zeros_like(right), right.clone()
        scaled = left / diagonal
        way, product = scaled.clone(), (left * scaled).sum()
        enough = SOLVED**2 * product
        for _ in range(MOST_SOLVING):
            if not product > enough:
                break
            turned = self.inputs @ way
            if curvature.ndim == 2:
                turned = curvature * (curvature * turned).sum(1, keepdim=True)
            else:
                turned = (curvature @ turned.unsqueeze(-1)).squeeze(-1)
            turned = self.inputs.T @ turned + self.precision * way
            size = product / (way * turned).sum()
            found, left = found + size * way, left - size * turned
            scaled, before = left / diagonal, product
            product = (left * scaled).sum()
            way = scaled + (product / before) * way
        return found
