"""What is true in a simulated scenario? The best accuracies to be had, and where the groups do not overlap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pyrofair.effects.estimate import Estimate

__all__ = ["Facts", "Overlap", "Rest", "best_accuracies", "overlap_of", "whole_law"]

SCARCE = 0.01
Table = Mapping[str, Tensor]


@dataclass(frozen=True)
class Overlap:
    """How far one group's distribution of a node covers the other's, at the same values of the node's other observed
    parents.

    Parameters
    ----------
    node
        A child of the sensitive attribute A.
    value, group
        The values that the node takes when it reads A = ``value`` are sought in the group A = ``group``.
    unsupported
        The share of units whose value has probability (or density) 0 in that group: no weighting of it reaches them.
    scarce
        The share of those whose value is at least 100 times rarer there, the unsupported among them.
    disjoint
        The share of units at whose values of the other parents the group shows none of the values.
    """

    node: str
    value: int
    group: int
    unsupported: Estimate
    scarce: Estimate
    disjoint: Estimate

    def __str__(self) -> str:
        return (
            f"{self.node}({self.value}) sought in the group A={self.group}: unsupported {self.unsupported}, "
            f"scarce {self.scarce}, disjoint {self.disjoint}"
        )


@dataclass(frozen=True)
class Facts:
    """What is true in a scenario, by simulation.

    Parameters
    ----------
    majority_accuracy
        The accuracy of the more frequent outcome for everyone.
    bayes_accuracy
        The highest accuracy that a classifier of the observed columns can have.
    overlap
        For each child of the sensitive attribute, and for each group.
    n
        The number of units simulated.
    """

    majority_accuracy: Estimate
    bayes_accuracy: Estimate
    overlap: tuple[Overlap, ...]
    n: int

    def __str__(self) -> str:
        lines = [f"majority accuracy {self.majority_accuracy}", f"Bayes accuracy {self.bayes_accuracy}"]
        return "\n".join([*lines, *map(str, self.overlap), f"(by simulation of {self.n} units)"])


@dataclass(frozen=True)
class Rest:
    """A node V = shift * A + rest, as the sum of what the sensitive attribute A moves and of what it does not.

    Parameters
    ----------
    parents
        The other observed parents.
    shift
        How far A moves the node.
    law
        The probability (or density) of values of the rest, each given the unit's other parents.
    """

    parents: tuple[str, ...]
    shift: float
    law: Callable[[Tensor, Table], Tensor]


def overlap_of(values: Table, rests: Mapping[str, Rest]) -> tuple[Overlap, ...]:
    """Compare both groups' distributions of each node for the same n units.

    Parameters
    ----------
    values
        The nodes' values, each of shape (n,), in float64, the sensitive attribute under ``"A"``.
    rests
        The nodes.
    """
    found = []
    for node, rest in rests.items():
        x = values[node] - rest.shift * values["A"]
        own = rest.law(x, values)
        same = [values[name].numpy() for name in rest.parents] or [np.zeros(len(x))]
        for value, group in ((0, 1), (1, 0)):
            other = rest.law(x + rest.shift * (value - group), values)
            unsupported = (other == 0).numpy()
            scarce = unsupported | (other < SCARCE * own).numpy()
            none = pd.Series(unsupported).groupby(same).transform("all")
            found.append(Overlap(node, value, group, *map(Estimate.of, (unsupported, scarce, none))))
    return tuple(found)


def best_accuracies(probability: Tensor, features: pd.DataFrame | None = None) -> tuple[Estimate, Estimate]:
    """Return the accuracies of the majority's outcome for everyone, and of the Bayes classifier.

    Parameters
    ----------
    probability
        P(Y = 1) given all causes of Y, for n units, shape (n,).
    features
        What a classifier reads of them, in few distinct rows, if that is less than all causes. The Bayes decision is
        then that of the other half of the units at the same row (the majority's where there is none), so that the
        accuracy errs downwards.
    """
    p = probability.to(torch.float64).numpy()
    rate = Estimate.of(p)
    majority = Estimate(max(rate.value, 1.0 - rate.value), rate.error)
    if features is None:
        return majority, Estimate.of(np.maximum(p, 1.0 - p))
    cell = features.groupby(list(features.columns)).ngroup().to_numpy()
    half = np.arange(len(p)) % 2
    decision = np.full(len(p), rate.value > 0.5)
    for mine in (0, 1):
        other = half != mine
        size = np.bincount(cell[other], minlength=cell.max() + 1)
        mean = np.bincount(cell[other], p[other], minlength=cell.max() + 1) / np.maximum(size, 1)
        known = (half == mine) & (size[cell] > 0)
        decision[known] = mean[cell[known]] > 0.5
    return majority, Estimate.of(np.where(decision, p, 1.0 - p))


def whole_law(law: Any, x: Tensor, scale: Tensor | float = 1.0, *, truncation: str = "floor") -> Tensor:
    """Return the probability that ``scale * U`` becomes x when it is made whole, for U of some distribution.

    Parameters
    ----------
    law
        A distribution with a ``cdf``.
    x, scale
        Tensors that broadcast.
    truncation
        ``"floor"`` or ``"truncate"``.

    Examples
    --------
    >>> law = torch.distributions.Uniform(0.0, 1.0, validate_args=False)
    >>> whole_law(law, torch.tensor([0.0, 1.0, 2.0]), torch.tensor(2.5))
    tensor([0.4000, 0.4000, 0.2000])
    """
    down = torch.ones_like(x, dtype=torch.bool) if truncation == "floor" else x > 0
    up = torch.ones_like(down) if truncation == "floor" else x >= 0
    low, high = torch.where(down, x, x - 1.0), torch.where(up, x + 1.0, x)
    factor = torch.as_tensor(scale, dtype=x.dtype)
    nonzero = torch.where(factor == 0, 1.0, factor)
    p = (law.cdf(high / nonzero) - law.cdf(low / nonzero)).abs()
    return torch.where(factor == 0, (x == 0).to(x.dtype), p)
