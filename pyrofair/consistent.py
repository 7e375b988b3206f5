"""How unlike are two worlds if what reads the same in both is the same in both? Linear programs over couplings.

Let W be the mediators that read the other value of the sensitive attribute in the switched world, and R the other drawn
nodes, which read only W, what both worlds share, and the same value of the attribute in both worlds. Where W takes the
same value in both worlds, so does R, for its noise is one person's. So for a unit with P(W0 = w) = p_w, P(W1 = w) = q_w
and a coupling g of the two,

    PIU = sum_w g(w, w) E abs(c1(w, R) - c0(w, R))  +  sum_{w != v} g(w, v) P(decisions differ | w, v)

The first part is known but for g, the last probability lies between abs(a_w - b_v) and 1 - abs(1 - a_w - b_v), the mean
decisions at w and at v. Both ends over all g with margins p and q are linear programs, and lie within the ends that
know the unit only, since abs(a - b) is at most the cost of any coupling, by the triangle inequality.

The least cost is convex in the margins, so that margins with errors make it too large on average: a gap that is not
there. Here the programs are solved in one view of the worlds, whose potentials f (the dual solution) are then valued in
another, of independent errors,

    least cost  >=  sum_w f_w p_w + sum_v h_v q_v,    h_v = min_w (cost(w, v) - f_w)

which holds for any f, is linear in the margins, and concave in the costs: it errs outward on average.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from pyrofair.potential_outcomes import Worlds

__all__ = ["Potentials", "choose_potentials", "consistent_ends"]

Vector = NDArray[np.float64]
BLOCK = 50_000
"""About the most variables of one linear program, which no signal ends; units are independent of each other."""


@dataclass(frozen=True)
class Potentials:
    """What one view tells of the programs of all units, cell by cell.

    Parameters
    ----------
    lower, upper
        The potential of each cell of the baseline in the programs of both ends, (c,).
    a, b
        The mean scores of each cell in both worlds, which tell the sides of the kinks, (c,).
    """

    lower: Vector
    upper: Vector
    a: Vector
    b: Vector


@dataclass(frozen=True)
class _Cells:
    """The cells (u, w) of all units: unit (c,), p and q (c,), the mean scores in both worlds, costs on the diagonal.

    The costs are those of the two programs: of a difference, and of a difference of one answer from the other's
    opposite, ``1 - c0 - c1``.
    """

    unit: NDArray[np.int64]
    weight: Vector
    p: Vector
    q: Vector
    a: Vector
    b: Vector
    effect: Vector
    rest: Vector

    @classmethod
    def of(cls, scores: tuple[Vector, Vector], worlds: Worlds) -> _Cells:
        one = worlds[0]
        assert one.cell is not None  # told by the caller
        key = one.place.astype(np.int64) * (int(one.cell.max()) + 1) + one.cell
        _, first, cell = np.unique(key, return_index=True, return_inverse=True)
        unit = one.place[first]
        rows = np.bincount(cell)
        total = np.bincount(one.place, one.weight)
        share = np.where(total > 0, total, 1.0)[unit]
        c0, c1 = scores
        means = [np.bincount(cell, part) / rows for part in (c0, c1, np.abs(c1 - c0), np.abs(1.0 - c0 - c1))]
        p, q = (np.bincount(cell, world.weight) / share for world in worlds)
        return cls(unit, total / total.sum(), p, q, *means)

    def blocks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield units with equally many cells, and the places of their cells, (units, cells)."""
        count = np.bincount(self.unit)
        start = np.cumsum(count) - count
        for k in np.unique(count):
            units = np.flatnonzero(count == k)
            most = max(1, BLOCK // int(k) ** 2)
            for i in range(0, len(units), most):
                block = units[i : i + most]
                yield block, start[block][:, None] + np.arange(k)

    def costs(self, at: NDArray[np.int64], a: Vector, b: Vector) -> tuple[Vector, Vector]:
        """Return the costs of both programs, (units, cells, cells); a and b tell the sides of the kinks."""
        cell = np.arange(at.shape[1])
        effect = self.b[at][:, None, :] - self.a[at][:, :, None]
        rest = 1.0 - self.b[at][:, None, :] - self.a[at][:, :, None]
        effect *= np.sign(b[at][:, None, :] - a[at][:, :, None])
        rest *= np.sign(1.0 - b[at][:, None, :] - a[at][:, :, None])
        effect[:, cell, cell], rest[:, cell, cell] = self.effect[at], self.rest[at]
        return effect, rest


def choose_potentials(scores: Sequence[tuple[Vector, Vector]], views: Sequence[Worlds]) -> tuple[Potentials, ...]:
    """Return for each view the potentials that another one tells.

    Parameters
    ----------
    scores, views
        The scores of the rows of both worlds, view by view. The worlds have cells, and their rows are paired.
    """
    cells = [_Cells.of(each, worlds) for each, worlds in zip(scores, views, strict=True)]
    found = [_potentials(each) for each in cells]
    return tuple(found[(i + 1) % len(found)] for i in range(len(found)))


def consistent_ends(
    scores: Sequence[tuple[Vector, Vector]], views: Sequence[Worlds], potentials: Sequence[Potentials]
) -> tuple[float, float]:
    """Return the lower and the upper end of PIU over the couplings of what unfair edges switch.

    Parameters
    ----------
    scores, views
        As for :func:`choose_potentials`.
    potentials
        Those that it returned, of these views or, in a bootstrap replicate, of the original ones.
    """
    ends = np.zeros(2)
    for each, worlds, known in zip(scores, views, potentials, strict=True):
        own = _Cells.of(each, worlds)
        for block, at in own.blocks():
            for end, (cost, first) in enumerate(
                zip(own.costs(at, known.a, known.b), (known.lower[at], known.upper[at]), strict=True)
            ):
                least = (first * own.p[at] + _complete(cost, first) * own.q[at]).sum(axis=1)
                ends[end] += float(own.weight[block] @ least) / len(views)
    return float(ends[0]), float(1.0 - ends[1])


def _complete(cost: Vector, first: Vector) -> Vector:
    """Return the greatest potentials of the switched world's cells that fit those of the baseline's."""
    return np.asarray((cost - first[:, :, None]).min(axis=1))


def _potentials(own: _Cells) -> Potentials:
    """Solve both programs of each unit of a view."""
    lower, upper = np.zeros(len(own.p)), np.zeros(len(own.p))
    for _, at in own.blocks():
        for found, cost in zip((lower, upper), own.costs(at, own.a, own.b), strict=True):
            second = _complete(cost, _solve(cost, own.p[at], own.q[at]))
            found[at] = (cost - second[:, None, :]).min(axis=2)  # also where a cell has no weight in this view
    return Potentials(lower, upper, own.a, own.b)


def _solve(cost: Vector, p: Vector, q: Vector) -> Vector:
    """Return the potentials of the baseline's cells at which each unit's program has its value, (units, cells)."""
    units, k = p.shape
    total = q.sum(axis=1, keepdims=True)
    margins = np.concatenate([p, q * np.divide(p.sum(axis=1, keepdims=True), total, where=total > 0, out=0 * total)], 1)
    cell, unit = np.arange(k * k), np.arange(units)[:, None]
    column = (unit * k * k + cell).ravel()
    rows = [(unit * 2 * k + place).ravel() for place in (cell // k, k + cell % k)]
    places = np.concatenate(rows), np.concatenate([column, column])
    table = csr_array((np.ones(len(places[0])), places), shape=(2 * k * units, k * k * units))
    solution: Any = linprog(cost.ravel(), A_eq=table, b_eq=margins.ravel(), method="highs")  # type: ignore[call-overload]
    if solution.x is None:
        raise ArithmeticError(f"A linear program over couplings failed: {solution.message}")
    return np.asarray(solution.eqlin.marginals, dtype=np.float64).reshape(units, 2 * k)[:, :k]
