"""Newton's method for the last layer: distributions without hidden layers, and stacked bootstrap replicates of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pyrofair.inference.evidence import distinct
from pyrofair.mechanisms.conditional import ConditionalDistribution, Network
from pyrofair.mechanisms.densities import Curvature, Density
from pyrofair.mechanisms.families import Atoms, Binary, Categorical, Continuous, Family, Integer, features

if TYPE_CHECKING:
    from pyrofair.mechanisms.fitting import Rows

__all__ = ["LastLayer", "has_last_layer", "is_convex", "last_layer", "linear_start"]

MOST_STEPS = 30
"""So many steps of Newton's method are enough for any distribution that has an optimum nearby."""
CONVERGED = 1e-8
"""A fit has converged if another step would gain less than so many nats per row."""
HALVINGS = 30
SOLVED, SOLVED_CLOSELY, SOLVED_ONCE = 1e-2, 1e-8, 1e-3
"""The equations of a step are solved to this share of their right side, in at most ``MOST_SOLVING`` rounds.

Those of mixtures closely: their steps are few, so that an error in one stays, and it differs with the fits stacked.
The last is that of a step that is the only one.
"""
MOST_SOLVING = 100
ARRIVED, MOST_MOVES = 1e-4, 8
"""A mixture has moved far enough if another step would gain this share of the first one's gain."""
MOST_FACTORED = 2000
"""The curvature of more inputs is not factored, and equations are scaled by its diagonal alone."""
MOST_HELD = 50_000_000
"""Second derivatives of more numbers than these are not held: replicates take all steps then."""
NEARBY = 1e-4
"""Slopes at so far on both sides of a number give the second derivative there."""
MOST_STACKED = 1_000_000
"""A stack holds at most about so many numbers of rows' distributions at once."""


def has_last_layer(mechanism: ConditionalDistribution) -> bool:
    """Return whether a network computes a distribution's numbers, and its family is one of ours, with curvatures."""
    known = Atoms | Binary | Categorical | Continuous | Integer
    return isinstance(mechanism.numbers, Network) and isinstance(mechanism.family, known)


def last_layer(mechanism: ConditionalDistribution, parameters: Mapping[str, Tensor]) -> Tensor:
    """Return weights and biases of a network's last layer, shape (k + 1, size)."""
    network = mechanism.numbers
    assert isinstance(network, Network)
    last = [*parameters.values()][-2 if sum(network.widths) else -1 :]
    return torch.cat([each.reshape(-1, network.size) for each in last])


def is_convex(mechanism: ConditionalDistribution) -> bool:
    """Return whether a distribution has one optimum: a linear predictor of numbers in which it is simple."""
    network = mechanism.numbers
    return isinstance(network, Network) and len(network.shapes) == 1 and _is_simple(mechanism.family)


def _is_simple(family: Family) -> bool:
    """Return whether it has one optimum in its own numbers: log-odds, logits, or those of one normal distribution."""
    if isinstance(family, Atoms):
        return _is_simple(family.rest)
    one = isinstance(family, Continuous | Integer) and family.components == 1
    return isinstance(family, Binary | Categorical) or one


def linear_start(mechanism: ConditionalDistribution, rows: Rows) -> dict[str, Tensor]:
    """Return what a network starts from: random hidden layers beside the best linear predictor of simple numbers.

    A fit that held-out rows stop early is near its start: near that of a linear predictor then, and not near the
    marginal distribution, which would shrink effects. The predictor of more features than the first layer has units
    would itself be fitted to noise, and a network leaves it slowly: there all starts at random.
    """
    network, column = mechanism.numbers, mechanism.column
    assert isinstance(network, Network)
    first = network.start(column)
    few = 0 < sum(network.widths) <= max(network.hidden[:1], default=0)
    if not (network.direct and has_last_layer(mechanism) and few):
        return first
    simple = _simplified(mechanism.family)
    alone = replace(mechanism, family=simple, numbers=Network(network.widths, (), simple.size))
    none = {
        f"{column}__weight": torch.zeros(sum(network.widths), simple.size),
        f"{column}__bias": torch.zeros(simple.size),
    }
    last = LastLayer.of(alone, none, rows)
    theta = last.settle(last.read(none))[0][:, 0]
    theta = _spread_out(mechanism.family, theta, last.inputs @ theta).to(torch.get_default_dtype())
    weight, bias = [*first][-2:]
    first[weight][-len(theta) + 1 :], first[bias] = theta[:-1], theta[-1]
    return first


def _simplified(family: Any) -> Any:
    """Return a family with one component in place of several."""
    if isinstance(family, Atoms):
        return replace(family, rest=_simplified(family.rest))
    return replace(family, components=1) if isinstance(family, Continuous | Integer) else family


def _spread_out(family: Family, theta: Tensor, out: Tensor) -> Tensor:
    """Return weights and biases of a family's numbers, (k + 1, size), from those of one component, and its numbers.

    The components lie around that one in the order that they start in, as wide together as it is.
    """
    if isinstance(family, Atoms):
        k = len(family.atoms) + 1
        return torch.cat([theta[:, :k], _spread_out(family.rest, theta[:, k:], out[:, k:])], 1)
    if not isinstance(family, Continuous | Integer) or family.components == 1:
        return theta
    k = family.components
    centres = family.offset[k : 2 * k].double()
    found = torch.cat([torch.zeros(len(theta), k), *(theta[:, j, None].expand(-1, k) for j in (1, 2))], 1)
    found[-1, k : 2 * k] += centres * (out[:, 2].mean().exp() - 1.0)
    return found


@dataclass(frozen=True, eq=False)
class _State:
    """Where b stacked fits are: numbers and slopes (k + 1, b, size), losses (b,), and what rows' numbers say there."""

    theta: Tensor
    loss: Tensor
    gradient: Tensor
    out: Tensor
    slope: Tensor


@dataclass(frozen=True, eq=False)
class LastLayer:
    """What the last layer of a distribution is fitted to, in double precision, all layers before it held.

    A stack of b fits differs in weights alone. ``inputs``, shape (m, k + 1), is what it reads of each row and a one;
    ``weight`` has shape (m, b), and ``rows`` (b,) counts those above 0 before equal rows were gathered in m different
    ones, ``which`` (n,); ``precision``, shape (k + 1, 1, 1), is that of the normal prior of each number. ``tilt``, a
    gradient of shape (k + 1, 1, size), is taken off the objective's, so that a replicate of a distribution stopped
    early moves by its rows' weights, and not towards the optimum. ``factor``, shape (size, k + 1, k + 1), is that of a
    curvature nearby in each number alone: equations scaled by it are solved in a few rounds. ``second`` are the rows'
    second derivatives at one place, (m, size, size), where their curvature only bounds these.
    """

    mechanism: ConditionalDistribution
    inputs: Tensor
    density: Density
    weight: Tensor
    rows: Tensor
    which: Tensor
    precision: Tensor
    tilt: Tensor | float = 0.0
    factor: Tensor | None = None
    second: Tensor | None = None

    @classmethod
    def of(cls, mechanism: ConditionalDistribution, parameters: Mapping[str, Tensor], rows: Rows) -> LastLayer:
        """Return the last layer of a distribution with given parameters, on the training rows."""
        network, values = mechanism.numbers, rows.at(rows.train)
        assert isinstance(network, Network)
        table = torch.stack([values[name] for name in (*mechanism.reads, mechanism.column)], 1)
        first, which = distinct(table)
        values = {name: each[first] for name, each in values.items()}
        read = [features(family, values[name]).double() for name, family in mechanism.reads.items()]
        before = network.before_last([each.double() for each in parameters.values()], read, len(first))
        inputs = torch.cat([before, torch.ones(len(first), 1, dtype=torch.float64)], 1)
        density = Density.of(mechanism.family, values[mechanism.column].double().unsqueeze(1))
        precision = network.precisions(len(network.shapes)).double()[:, None, None]
        none = torch.empty(len(first), 0, dtype=torch.float64)
        layer = cls(mechanism, inputs, density, none, torch.empty(0), which, precision)
        return layer.weighted(rows.weight[rows.train].unsqueeze(1))

    def weighted(self, weight: Tensor) -> LastLayer:
        """Return the last layer with the rows' weights (n, b) of a stack of fits."""
        gathered = torch.zeros(len(self.inputs), weight.shape[1], dtype=torch.float64)
        gathered.index_add_(0, self.which, weight.double())
        return replace(self, weight=gathered, rows=(weight > 0).sum(0).double())

    def around(self, theta: Tensor) -> LastLayer:
        """Return the last layer with the slope at some numbers as its tilt, and the curvature there factored."""
        state = self.evaluate(theta)
        if self.inputs.shape[1] > MOST_FACTORED:
            return replace(self, tilt=state.gradient)
        inputs, curvature = self.inputs.float(), self._curvature(state).diagonal[:, 0].float()
        whole = torch.stack([inputs.T @ (each.unsqueeze(1) * inputs) for each in curvature.unbind(1)])
        whole.diagonal(dim1=1, dim2=2).add_(self.precision[:, 0, 0].float())
        factor, failed = torch.linalg.cholesky_ex(whole)
        return replace(self, tilt=state.gradient, factor=None if bool(failed.any()) else factor.double())

    def derived(self, theta: Tensor) -> LastLayer:
        """Return the last layer with its rows' second derivatives at some numbers, unless it knows or needs none."""
        size = self.mechanism.family.size
        known = isinstance(self.mechanism.family, Binary | Categorical) or self.second is not None
        if known or len(self.inputs) * size**2 > MOST_HELD:
            return self
        out, slopes = self.evaluate(theta).out, []
        for way in NEARBY * torch.eye(size, dtype=torch.float64):
            slopes.append((self.density(out - way)[1] - self.density(out + way)[1])[:, 0] / (2.0 * NEARBY))
        second = torch.stack(slopes, 2)
        return replace(self, second=0.5 * (second + second.mT))

    @property
    def most_stacked(self) -> int:
        """So many fits are stacked at most."""
        return max(1, MOST_STACKED // (len(self.inputs) * self.mechanism.family.size))

    def read(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return weights and biases of the last layer, shape (k + 1, 1, size)."""
        return last_layer(self.mechanism, parameters).double().unsqueeze(1)

    def write(self, theta: Tensor, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return parameters with these, shape (k + 1, size), as their last layer."""
        found, names = dict(parameters), [*parameters]
        found[names[-1]] = theta[-1].to(found[names[-1]].dtype)
        if self.inputs.shape[1] > 1:
            found[names[-2]] = theta[:-1].to(found[names[-2]].dtype)
        return found

    def evaluate(self, theta: Tensor) -> _State:
        """Return the negative log-posteriors of weights and biases (k + 1, b, size), but for a constant, and slopes.

        Those of one set of numbers, (k + 1, 1, size), are with the weights of each fit.
        """
        b, size = theta.shape[1:]
        out = (self.inputs @ theta.reshape(-1, b * size)).view(-1, b, size) + self.mechanism.family.offset.double()
        each, slope = self.density(out)
        slope = slope * -self.weight.unsqueeze(-1)
        loss = (0.5 * self.precision * theta.square() - self.tilt * theta).sum((0, 2)) - (self.weight * each).sum(0)
        return _State(theta, loss, _pull(self.inputs, slope) + self.precision * theta - self.tilt, out, slope)

    def settle(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return numbers (k + 1, b, size) and losses (b,) where the steps of Newton's method end.

        The curvature is that of the rows' log-likelihoods in the distribution's numbers, or of mixtures that if their
        components were known, as in the EM algorithm, so that each step leads downhill. Fits that have converged stay.
        """
        state, enough, most = self.evaluate(theta), CONVERGED * self.rows, MOST_STEPS
        exact = _is_simple(self.mechanism.family)
        open_ = torch.ones(theta.shape[1], dtype=torch.bool)
        for taken in range(MOST_STEPS):
            step = self._solve(state.gradient, self._curvature(state), SOLVED if exact else SOLVED_CLOSELY)
            gain = (state.gradient * step).sum((0, 2))
            if not taken and not exact:
                enough, most = torch.maximum(enough, ARRIVED * gain), MOST_MOVES
            open_ = open_ & (gain > enough)
            if taken == most or not open_.any():
                break
            open_, state = self._search(state, step, gain, open_)
        return state.theta, state.loss

    def step(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return numbers (k + 1, b, size) and losses (b,) of all fits one step of Newton's method from one place.

        The step is that of the rows' second derivatives: it ends where :meth:`settle` would if it went on to the
        optimum, but for the square of its length. Where rows hold too many of them, all steps are taken.
        """
        if not isinstance(self.mechanism.family, Binary | Categorical) and self.second is None:
            return self.settle(theta.expand(-1, self.weight.shape[1], -1))
        state = self.evaluate(theta)
        curvature = self._curvature(state)
        if self.second is not None:
            second, weight = self.second, self.weight.unsqueeze(-1)
            diagonal = weight * second.diagonal(dim1=1, dim2=2).clamp(min=0.0).unsqueeze(1)
            curvature = Curvature(lambda v: weight * torch.bmm(v, second), diagonal)
        step = self._solve(state.gradient, curvature, SOLVED_ONCE)
        gain = (state.gradient * step).sum((0, 2))
        _, found = self._search(state, step, gain, gain > 0.0)
        return found.theta, found.loss

    def _search(self, state: _State, step: Tensor, gain: Tensor, open_: Tensor) -> tuple[Tensor, _State]:
        """Halve the steps of the open fits until their losses fall; return which do, at all, and where all fits are."""
        size = open_.double()
        for halvings in range(HALVINGS + 1):
            tried = self.evaluate(state.theta - torch.where(size[:, None] > 0.0, size[:, None] * step, 0.0))
            high = open_ & ~(tried.loss <= state.loss - 1e-4 * size * gain)
            if not high.any():
                break
            # Some are no better in double precision, ever.
            size = torch.where(high, 0.5 * size if halvings < HALVINGS - 1 else 0.0, size)
        return size > 0.0, tried

    def _curvature(self, state: _State) -> Curvature:
        """Return the second derivatives of each row's loss in the distribution's numbers, or those that bound them."""
        weight = self.weight.unsqueeze(-1)
        return self.density.curvature(state.out, state.slope / -weight.clamp(min=1e-300), weight)

    def _solve(self, right: Tensor, curvature: Curvature, closely: float) -> Tensor:
        """Solve the equations of a step by conjugate gradients, scaled by a curvature nearby or by their diagonal.

        They end where the loss does not curve upwards, which it may not do far from an optimum; at the first round the
        step is that of the curvature nearby.
        """
        if self.factor is None:
            diagonal = _pull(self.inputs.square(), curvature.diagonal) + self.precision
        found, left = torch.zeros_like(right), right.clone()

        def scale(each: Tensor) -> Tensor:
            if self.factor is None:
                return each / diagonal
            return torch.cholesky_solve(each.permute(2, 0, 1), self.factor).permute(1, 2, 0)

        scaled = scale(left)
        way, product = scaled.clone(), (left * scaled).sum((0, 2))
        enough, up = closely**2 * product, torch.ones_like(product, dtype=torch.bool)
        for done in range(MOST_SOLVING):
            go = (product > enough) & up
            if not go.any():
                break
            b, size = way.shape[1:]
            turned = curvature.times((self.inputs @ way.reshape(-1, b * size)).view(-1, b, size))
            turned = _pull(self.inputs, turned) + self.precision * way
            bend = (way * turned).sum((0, 2))
            up = bend > 0.0
            length = torch.where(go, torch.where(up, product / bend, 0.0 if done else 1.0), 0.0)[:, None]
            found, left = found + length * way, left - length * turned
            scaled, before = scale(left), product
            product = torch.where(go, (left * scaled).sum((0, 2)), product)
            way = scaled + torch.where(go, product / before, 0.0)[:, None] * way
        return found


def _pull(inputs: Tensor, slope: Tensor) -> Tensor:
    """Return what slopes in the rows' numbers, (m, b, size), are in weights and biases, (k + 1, b, size)."""
    return (inputs.T @ slope.reshape(len(slope), -1)).view(-1, *slope.shape[1:])
