"""What is the law of one column, given others? A family, and what turns the columns read into its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyro
from pyro import poutine
from torch import Tensor

from pyrofair.columns import unused_name
from pyrofair.exceptions import DataError, GraphError
from pyrofair.families import Family, features
from pyrofair.networks import Network

__all__ = ["ConditionalLaw", "LawOf", "LearnedProgram", "Numbers"]

Numbers = Callable[[], Callable[[Mapping[str, Tensor]], Tensor]]
"""Parameters of one's own: a function that is called outside the plate of people, draws its parameters there by
``pyro.sample``, and returns a function from the values of the columns read to the family's numbers, (..., size)."""

LawOf = Callable[[Mapping[str, Tensor]], Any]
"""From the values of the columns read, by name, to a distribution."""


@dataclass(frozen=True, eq=False)
class ConditionalLaw:
    """The law of one column given others.

    Parameters
    ----------
    column
        Its name.
    family
        Its family.
    reads
        The columns read, each with its family.
    numbers
        A network, to whose output the family's offset is added, or a function of one's own.
    """

    column: str
    family: Family
    reads: Mapping[str, Family]
    numbers: Network | Numbers = field(repr=False)

    def draw(self) -> LawOf:
        """Draw the parameters by ``pyro.sample``, and return the law as a function of the values read."""
        if not isinstance(self.numbers, Network):
            given = self.numbers()
            return lambda values: self.family.law(self._checked(given({name: values[name] for name in self.reads})))
        return self.of(self.numbers.draw(self.column))

    def of(self, parameters: Sequence[Tensor]) -> LawOf:
        """Return the law whose numbers its network computes with these weights and biases, layer by layer."""
        network, offset = self.numbers, self.family.offset
        assert isinstance(network, Network)  # told by the caller

        def law(values: Mapping[str, Tensor]) -> Any:
            read = [features(family, values[name]) for name, family in self.reads.items()]
            return self.family.law(network(parameters, read) + offset)

        return law

    def at(self, parameters: Mapping[str, Tensor]) -> LawOf:
        """Return the law at given parameters."""
        with poutine.block(), poutine.condition(data=dict(parameters)):
            return self.draw()

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
    """A Pyro program of the number of people: parameters from their priors, then a site for each column.

    Parameters
    ----------
    laws
        The law of each column, each after those of the columns that it reads.
    sensitive
        The column of the sensitive attribute.
    levels
        The values that its site takes for the baseline and for the contrast. The laws read 0 and 1.

    Raises
    ------
    GraphError
        If a law reads a column that has none.
    """

    laws: Sequence[ConditionalLaw]
    sensitive: str
    levels: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        learned = [law.column for law in self.laws]
        for law in self.laws:
            if missing := [name for name in law.reads if name not in learned]:
                raise GraphError(
                    f"The law of {law.column!r} reads {missing[0]!r}, which was not learned, so no program draws "
                    "people. Learn its node too (nodes=...). Single laws are at .law(column, table)."
                )

    def __call__(self, n: int) -> None:
        """Draw n people."""
        drawn = {law.column: law.draw() for law in self.laws}
        low, high = self.levels
        values: dict[str, Tensor] = {}
        with pyro.plate(unused_name("people", drawn), n):
            for column, law in drawn.items():
                if column == self.sensitive and self.levels != (0.0, 1.0):
                    code = pyro.sample(unused_name(f"{column}__code", drawn), law(values))
                    site = pyro.deterministic(column, low + (high - low) * code)
                    values[column] = (site - low) / (high - low)
                else:
                    values[column] = pyro.sample(column, law(values))
