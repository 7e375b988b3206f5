"""How unlike are two worlds if what reads the same in both is the same in both? Linear programs over couplings.

Let W be the mediators that read the other value of the sensitive attribute in the switched world, and R the other drawn
nodes, which read only W, what both worlds share, and the same value of the attribute in both worlds. Where W takes the
same value in both worlds, so does R, for its noise is one person's. So for a unit with P(W0 = w) = p_w, P(W1 = w) = q_w
and a coupling g of the two,

    PIU = sum_w g(w, w) E abs(c1(w, R) - c0(w, R))  +  sum_{w != v} g(w, v) P(decisions differ | w, v)

The first part is known but for g, the last probability lies between abs(a_w - b_v) and 1 - abs(1 - a_w - b_v), the mean
decisions at w and at v. Both ends over all g with margins p and q are linear programs, and lie within the ends that
know the unit only, since abs(a - b) is at most the cost of any coupling, by the triangle inequality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from pyrofair.potential_outcomes import Worlds

__all__ = ["consistent_ends"]

Vector = NDArray[np.float64]
BLOCK = 200_000
"""The most variables of one linear program; units are independent of each other."""


@dataclass(frozen=True)
class _Cells:
    """The cells (u, w) of all units: unit (c,), p and q (c,), the mean scores in both worlds, costs on the diagonal."""

    unit: NDArray[np.int64]
    weight: Vector
    p: Vector
    q: Vector
    a: Vector
    b: Vector
    low: Vector
    high: Vector

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
        means = [np.bincount(cell, part) / rows for part in (c0, c1, np.abs(c1 - c0), 1.0 - np.abs(1.0 - c0 - c1))]
        p, q = (np.bincount(cell, world.weight) / share for world in worlds)
        return cls(unit, total / total.sum(), p, q, *means)


def consistent_ends(scores: Sequence[tuple[Vector, Vector]], views: Sequence[Worlds]) -> tuple[float, float]:
    """Return the lower and the upper end of PIU over the couplings of what unfair edges switch.

    Parameters
    ----------
    scores, views
        The scores of the rows of both worlds, view by view. The worlds have cells, and their rows are paired.
    """
    cells = [_Cells.of(each, worlds) for each, worlds in zip(scores, views, strict=True)]
    ends = []
    for i, own in enumerate(cells):
        signs = cells[(i + 1) % len(cells)]
        ends.append(_ends(own, signs))
    lower, upper = np.mean(ends, axis=0)
    return float(lower), float(upper)


def _ends(own: _Cells, signs: _Cells) -> tuple[float, float]:
    """Solve the programs of one view; the sides of the kinks are told by another."""
    count = np.bincount(own.unit)
    start = np.cumsum(count) - count
    lower = upper = 0.0
    block: list[int] = []
    size = 0
    for unit in range(len(count)):
        block.append(unit)
        size += count[unit] ** 2
        if size >= BLOCK or unit == len(count) - 1:
            low, high = _solve(own, signs, [np.arange(start[u], start[u] + count[u]) for u in block])
            weight = own.weight[block]
            lower, upper = lower + float(weight @ low), upper + float(weight @ high)
            block, size = [], 0
    return lower, upper


def _solve(own: _Cells, signs: _Cells, places: Sequence[NDArray[np.int64]]) -> tuple[Vector, Vector]:
    """Return both ends of each unit, whose cells are at these places."""
    least, most, margins, owner = [], [], [], []
    column = row = 0
    entries: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    for which, at in enumerate(places):
        k = len(at)
        effect, rest = own.b[at] - own.a[at][:, None], 1.0 - own.a[at][:, None] - own.b[at]
        low = np.sign(signs.b[at] - signs.a[at][:, None]) * effect
        high = 1.0 - np.sign(1.0 - signs.a[at][:, None] - signs.b[at]) * rest
        np.fill_diagonal(low, own.low[at])
        np.fill_diagonal(high, own.high[at])
        least.append(low.ravel())
        most.append(high.ravel())
        cell = np.arange(k * k)
        entries += [(row + cell // k, column + cell), (row + k + cell % k, column + cell)]
        total = own.p[at].sum()
        margins += [own.p[at], own.q[at] * (total / own.q[at].sum() if own.q[at].sum() > 0 else 0.0)]
        owner.append(np.full(k * k, which))
        row, column = row + 2 * k, column + k * k
    rows, columns = (np.concatenate(part) for part in zip(*entries, strict=True))
    table = csr_array((np.ones(len(rows)), (rows, columns)), shape=(row, column))
    found = []
    for cost in (np.concatenate(least), -np.concatenate(most)):
        solution: Any = linprog(cost, A_eq=table, b_eq=np.concatenate(margins), method="highs")  # type: ignore[call-overload]
        if solution.x is None:
            raise ArithmeticError(f"A linear program over couplings failed: {solution.message}")
        found.append(np.asarray(np.bincount(np.concatenate(owner), solution.x * cost, len(places)), dtype=np.float64))
    return found[0], -found[1]
