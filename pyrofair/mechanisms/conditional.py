"""Conditional distributions learned by networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from torch import Tensor

from pyrofair.exceptions import DataError, GraphError
from pyrofair.graph.causal_graph import unused_name
from pyrofair.mechanisms.families import Atoms, Family, decode, features, gap_of

__all__ = ["ConditionalDistribution", "LearnedProgram", "MechanismOf", "Network", "Numbers"]

PRIOR = 2.0
"""Prior standard deviation of a bias, and of a weight times the root of the number of inputs alike."""
FIRST = 0.1
"""The weights that come last start so many times smaller than the others, so that training starts near the offset."""


@dataclass(frozen=True)
class Network:
    """A network of rectified linear units; without hidden layers a linear predictor, without inputs a constant.

    It maps columns of ``widths`` features each, through ``hidden`` layers, to ``size`` numbers. All weights and biases
    have normal priors around 0, which act as weight decay. The inputs are taken column by column and broadcast with
    each other, so that a column of one number per world meets one of a number per unit. With ``direct`` the last of
    several layers reads the columns too, so that a linear predictor is part of the network: the priors of two layers
    together shrink a small effect to exactly 0, whatever the weights of the rows; that of one layer does not.
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
        """Return for each input of a layer the number of inputs alike: hidden units, or features of columns."""
        inputs, among = sum(self.widths), self.shapes[layer - 1][0]
        parts = (among - inputs, inputs) if self.direct and layer == len(self.shapes) > 1 else (among,)
        return torch.cat([torch.full((part,), float(part)) for part in parts])

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
        """Return (..., size) for weights and biases, layer by layer, and the features of each column, (..., width)."""
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

    def precisions(self, layer: int) -> Tensor:
        """Return those of the priors of a layer's weights and biases, shape (inputs + 1,)."""
        return torch.cat([self._shares(layer), torch.ones(1)]) / PRIOR**2

    def before_last(self, parameters: Sequence[Tensor], features: Sequence[Tensor], n: int) -> Tensor:
        """Return the inputs of the last layer, (n, inputs), for parameters as for a call and features of n rows."""
        if not sum(self.widths):
            return torch.empty(n, 0, dtype=parameters[0].dtype)
        if not self.hidden:
            return torch.cat([*features], -1)
        before = Network(self.widths, self.hidden[:-1], self.hidden[-1])(parameters[:-2], features).relu()
        return torch.cat([before, *features], -1) if self.direct else before


def _linear(features: Sequence[Tensor], widths: Sequence[int], weight: Tensor, bias: Tensor) -> Tensor:
    """Return a linear predictor of columns that are broadcast with each other, shape (..., size)."""
    parts = weight.split([*widths])  # type: ignore[no-untyped-call]
    return sum((each @ part for each, part in zip(features, parts, strict=True) if len(part)), bias)


Numbers = Callable[[], Callable[[Mapping[str, Tensor]], Tensor]]
"""Parameters of one's own: a function that is called outside the plate of units, draws its parameters there by
``pyro.sample``, and returns a function from the values of the columns read to the family's numbers, (..., size)."""

MechanismOf = Callable[[Mapping[str, Tensor]], Any]
"""From the values of the columns read, by name, to a distribution."""


@dataclass(frozen=True, eq=False)
class ConditionalDistribution:
    """The distribution of one column given others, each read with its family.

    ``numbers`` is a network, to whose output the family's offset is added, or a function of one's own.
    """

    column: str
    family: Family
    reads: Mapping[str, Family]
    numbers: Network | Numbers = field(repr=False)

    def draw(self) -> MechanismOf:
        """Draw the parameters by ``pyro.sample``, and return the distribution as a function of the values read."""
        return self._made(self._draw_numbers())

    def at(self, parameters: Mapping[str, Tensor]) -> MechanismOf:
        """Return the distribution at given parameters."""
        return self._made(self.numbers_at(parameters))

    def numbers_at(self, parameters: Mapping[str, Tensor]) -> Callable[[Mapping[str, Tensor]], Tensor]:
        """Return the family's numbers (..., size) at given parameters, as a function of the values read."""
        with poutine.block(), poutine.condition(data=dict(parameters)):
            return self._draw_numbers()

    def _made(self, numbers: Callable[[Mapping[str, Tensor]], Tensor]) -> MechanismOf:
        return lambda values: self.family.distribution(numbers(values))

    def _draw_numbers(self) -> Callable[[Mapping[str, Tensor]], Tensor]:
        if not isinstance(self.numbers, Network):
            given = self.numbers()
            return lambda values: self._checked(given({name: values[name] for name in self.reads}))
        network, offset, parameters = self.numbers, self.family.offset, self.numbers.draw(self.column)
        return lambda values: (
            network(parameters, [features(family, values[name]) for name, family in self.reads.items()]) + offset
        )

    def _checked(self, out: Any) -> Tensor:
        if not isinstance(out, Tensor) or out.ndim == 0 or out.shape[-1] != self.family.size:
            got = f"the shape {tuple(out.shape)}" if isinstance(out, Tensor) else f"the type {type(out).__name__}"
            raise DataError(
                f"The parameters of {self.column!r} have {got}; {type(self.family).__name__} takes a tensor of shape "
                f"(..., {self.family.size}): stack its numbers along the last axis, torch.stack([...], -1)."
            )
        return out


@dataclass(frozen=True, eq=False)
class LearnedProgram:
    """A Pyro program of the number of units: parameters from their priors, then a site for each column.

    ``mechanisms`` come in topological order, and read the sensitive attribute as 0 and 1; its site takes the two
    ``levels`` instead. A mechanism that reads a column without one is a GraphError, missing values are a DataError.
    """

    mechanisms: Sequence[ConditionalDistribution]
    sensitive: str
    levels: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        learned = [mechanism.column for mechanism in self.mechanisms]
        for mechanism in self.mechanisms:
            if gap_of(mechanism.family) is not None:
                raise DataError(
                    f"{mechanism.column!r} has missing values, which no program draws: SEM, PSCF and "
                    'abduction read complete columns. GComputation(..., missing="recorded") reads these; or impute '
                    "them before, and learn again."
                )
            if missing := [name for name in mechanism.reads if name not in learned]:
                raise GraphError(
                    f"The distribution of {mechanism.column!r} reads {missing[0]!r}, which was not learned, so no "
                    "program draws units. Learn its node too (nodes=...). Single distributions are at "
                    ".distribution(column, table)."
                )

    def __call__(self, n: int) -> None:
        """Draw n units."""
        drawn = {mechanism.column: mechanism.draw() for mechanism in self.mechanisms}
        low, high = self.levels
        values: dict[str, Tensor] = {}
        with pyro.plate(unused_name("units", drawn), n):
            for column, distribution in drawn.items():
                if column == self.sensitive and self.levels != (0.0, 1.0):
                    code = pyro.sample(unused_name(f"{column}__code", drawn), distribution(values))
                    site = pyro.deterministic(column, low + (high - low) * code)
                    values[column] = (site - low) / (high - low)
                else:
                    values[column] = pyro.sample(column, distribution(values))

    def with_exact_atoms(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a table of drawn units with atoms as the columns hold them, not in a program's precision."""
        families = {each.column: each.family for each in self.mechanisms if each.column in table}
        atoms = [name for name, family in families.items() if isinstance(family, Atoms)]
        return table.assign(**{name: decode(families[name], torch.tensor(table[name].to_numpy())) for name in atoms})
