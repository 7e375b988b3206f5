"""Optimisation over the distributions of response types: linear with one group of them, multilinear with several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, hstack, kron, vstack

__all__ = ["InfeasibleError", "Optimum", "Polytope", "optimise"]

Vector = NDArray[np.float64]

ROUNDING, EQUAL = 1e-9, 1e-15
CERTIFIED = 1e-7
"""An outer and an inner bound that differ by less are one number."""
STARTS = 8
ROUNDS = 50


class InfeasibleError(ArithmeticError):
    """No distribution of types satisfies the constraints."""


def _solve(cost: Vector, matrix: csr_array, right: Vector) -> tuple[float, Vector]:
    """Return the least of a linear function over non-negative vectors that satisfy equations, and where it is."""
    scale = float(np.abs(cost).max(initial=0.0)) or 1.0  # tolerances of the solver are absolute
    found: Any = linprog(cost / scale, A_eq=matrix, b_eq=right, method="highs")  # type: ignore[call-overload]
    if found.status == 2:
        raise InfeasibleError("No distribution of response types satisfies the equations that the data give.")
    if found.x is None:
        raise ArithmeticError(f"A linear program over response types failed: {found.message}")
    return float(found.fun) * scale, np.maximum(np.asarray(found.x, dtype=np.float64), 0.0)


@dataclass(frozen=True, eq=False)
class Polytope:
    """The distributions (t,) of response types that satisfy equations; ``slack`` is how far these were moved.

    The equations hold the total mass, and in sum ``slack`` separates the given right sides from these.
    """

    matrix: csr_array
    right: Vector
    slack: float

    @classmethod
    def of(cls, matrix: csr_array, right: Vector) -> Polytope:
        """Return the polytope of equations and a total mass of 1, which may be empty."""
        total = csr_array(np.ones((1, matrix.shape[1])))
        return cls(csr_array(vstack([matrix, total])), np.append(right, 1.0), 0.0)

    def nearest(self) -> Polytope:
        """Return the polytope itself or, where it is empty, the nearest one that is not.

        Nearest are right sides with the least sum of absolute changes.
        """
        rows, size = self.matrix.shape
        free = eye_array(rows - 1)
        moves = vstack([hstack([free, -free]), csr_array((1, 2 * rows - 2))])
        cost = np.concatenate([np.zeros(size), np.ones(2 * rows - 2)])
        slack, point = _solve(cost, csr_array(hstack([self.matrix, moves])), self.right)
        law = point[:size] / point[:size].sum()
        return Polytope(self.matrix, self.matrix @ law, slack) if slack > ROUNDING else self

    def least(self, cost: Vector) -> tuple[float, Vector]:
        """Return the least mean cost, and a distribution that has it."""
        if np.ptp(cost) <= EQUAL:
            return float(cost.mean()), self.any
        return _solve(cost, self.matrix, self.right)

    @property
    def any(self) -> Vector:
        """Some distribution."""
        return _solve(np.zeros(self.matrix.shape[1]), self.matrix, self.right)[1]


@dataclass(frozen=True)
class Optimum:
    """The least mean cost, or a bound below it; ``gap`` is how far a distribution that was found lies above."""

    value: float
    gap: float


def optimise(cost: Vector, polytopes: Sequence[Polytope], *, certify: bool) -> Optimum:
    """Return the least mean cost over independent distributions, one of each polytope.

    ``cost`` is that of each combination of types, (t1 * t2 * ...,), those of the last polytope fastest. One polytope is
    a linear program. With several, the joint distribution of all types is relaxed: given all types of the others, those
    of one group satisfy its equations. The bound is exact if independent distributions attain it, which are looked for
    to ``certify`` it; otherwise the gap is NaN. An InfeasibleError if a polytope is empty, unless the cost is constant.
    """
    if not polytopes:
        return Optimum(float(cost.sum()), 0.0)
    if np.ptp(cost) <= EQUAL:
        return Optimum(float(cost.mean()), 0.0)
    if len(polytopes) == 1:
        return Optimum(polytopes[0].least(cost)[0], 0.0)
    shape = tuple(each.matrix.shape[1] for each in polytopes)
    table = cost.reshape(shape)
    outer, point = _solve(cost, *_relaxed(polytopes))
    if not certify:
        return Optimum(outer, float("nan"))
    inner = _inner(table, polytopes, point.reshape(shape), outer)
    return Optimum(outer, inner - outer if inner - outer > CERTIFIED else 0.0)


def _relaxed(polytopes: Sequence[Polytope]) -> tuple[csr_array, Vector]:
    """Return the equations of joint distributions of all types under which each group's hold given all others."""
    shape = [each.matrix.shape[1] for each in polytopes]
    parts = [csr_array(np.ones((1, prod(shape))))]
    for i, own in enumerate(polytopes):
        equations = own.matrix[:-1] - csr_array(own.right[:-1, None]) @ csr_array(np.ones((1, shape[i])))
        before, after = csr_array(eye_array(prod(shape[:i]))), csr_array(eye_array(prod(shape[i + 1 :])))
        inner = csr_array(kron(before, csr_array(equations), format="csr"))
        parts.append(csr_array(kron(inner, after, format="csr")))
    matrix = csr_array(vstack(parts))
    matrix.data[np.abs(matrix.data) < 1e-15] = 0.0
    matrix.eliminate_zeros()
    right = np.zeros(matrix.shape[0])
    right[0] = 1.0
    return matrix, right


def _inner(table: Vector, polytopes: Sequence[Polytope], joint: Vector, outer: float) -> float:
    """Return the least mean cost found from some starts by optimising one distribution after another.

    The first start is the relaxed optimum, whose cost is ``outer``, and none follows one that attains it.
    """
    random = np.random.default_rng(0)
    best = np.inf
    for start in range(STARTS):
        if start == 0:
            axes = range(table.ndim)
            laws = [joint.sum(axis=tuple(j for j in axes if j != i)) for i in axes]
        else:
            laws = [each.least(random.standard_normal(each.matrix.shape[1]))[1] for each in polytopes]
        value = np.inf
        for _ in range(ROUNDS):
            before = value
            for i, own in enumerate(polytopes):
                value, laws[i] = own.least(_contract(table, laws, i))
            if value > before - ROUNDING:
                break
        best = min(best, value)
        if best - outer <= CERTIFIED:
            break
    return float(best)


def _contract(table: Vector, laws: Sequence[Vector], kept: int) -> Vector:
    """Return the mean cost for each type of one group, the others having these distributions."""
    for i in reversed(range(table.ndim)):
        if i != kept:
            table = np.tensordot(table, laws[i], axes=(i, 0))
    return table
