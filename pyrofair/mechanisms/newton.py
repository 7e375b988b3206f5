"""The last layer of a distribution, fitted by Newton's method: distributions without hidden layers, and bootstrap
replicates of all.
"""

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
"""A mixture has moved by as much as its rows say if another step would gain this share of the first one's gain."""


def has_last_layer(law: ConditionalDistribution) -> bool:
    """Tell whether a distribution's numbers come from a network, and its family is one of ours, with curvatures."""
    return isinstance(law.numbers, Network) and isinstance(law.family, Binary | Categorical | Continuous | Integer)


def is_convex(law: ConditionalDistribution) -> bool:
    """Tell whether a distribution has one optimum: a linear predictor of log-odds, of logits, or of one normal
    distribution.
    """
    return isinstance(law.numbers, Network) and len(law.numbers.shapes) == 1 and is_simple(law)


def is_simple(law: ConditionalDistribution) -> bool:
    """Tell whether a distribution has one optimum in its own numbers: log-odds, logits, or those of one normal
    distribution.
    """
    family = law.family
    return isinstance(family, Binary | Categorical) or (
        isinstance(family, Continuous | Integer) and family.components == 1
    )


@dataclass(frozen=True, eq=False)
class LastLayer:
    """What the last layer of a distribution is fitted to: the most probable weights and biases, all before it held.

    Numbers are in double precision.

    Parameters
    ----------
    law
        A distribution whose numbers a network computes.
    inputs
        What the last layer reads of each row, and a one, shape (n, k + 1).
    values, weight
        The column, and the weight of each row, shape (n,).
    precision
        That of the normal prior of each number, shape (k + 1, 1).
    tilt
        A gradient of the objective, (k + 1, size), that is taken off: a replicate of a distribution that is no optimum,
        for held-out rows stopped it early, moves by as much as its rows' weights say, and not towards the optimum.
    """

    law: ConditionalDistribution
    inputs: Tensor
    values: Tensor
    weight: Tensor
    precision: Tensor
    tilt: Tensor | float = 0.0

    @classmethod
    def of(cls, law: ConditionalDistribution, parameters: Mapping[str, Tensor], rows: Rows) -> LastLayer:
        """Return the last layer of a distribution with given parameters, on the training rows."""
        network = law.numbers
        assert isinstance(network, Network)  # told by the caller
        values, weight = rows.at(rows.train), rows.weight[rows.train].double()
        before = network.before_last(
            [each.double() for each in parameters.values()],
            [features(family, values[name]).double() for name, family in law.reads.items()],
            len(weight),
        )
        inputs = torch.cat([before, torch.ones(len(weight), 1, dtype=torch.float64)], 1)
        return cls(law, inputs, values[law.column].double(), weight, network.precisions.double().unsqueeze(1))

    def read(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return weights and biases of the last layer, shape (k + 1, size)."""
        last = [*parameters.values()][-2 if self.inputs.shape[1] > 1 else -1 :]
        return torch.cat([each.double().reshape(-1, self.law.family.size) for each in last])

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
        return self.inputs @ theta + self.law.family.offset.double()

    def _fit(self, out: Tensor) -> Tensor:
        each: Tensor = self.law.family.distribution(out).log_prob(self.values)  # type: ignore[no-untyped-call]
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
        if isinstance(self.law.family, Binary | Categorical):
            return found
        known, vectors = torch.linalg.eigh(0.5 * (found + found.transpose(1, 2)))
        clipped: Tensor = vectors @ (known.clamp(min=0.0).unsqueeze(-1) * vectors.transpose(1, 2))
        return clipped

    @property
    def _exact(self) -> bool:
        return is_simple(self.law)

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
