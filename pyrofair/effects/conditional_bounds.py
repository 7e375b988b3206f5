"""Bounds on PIU given the shared nodes, whose ends err outward (sample splitting)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from pyrofair.effects.potential_outcomes import CounterfactualSample, Worlds
from pyrofair.exceptions import DataError

__all__ = [
    "Potentials",
    "Signs",
    "UnitMeans",
    "choose_potentials",
    "choose_signs",
    "consistent_ends",
    "split_draws",
    "unit_disagreement",
    "unit_ends",
    "unit_means",
]

Vector = NDArray[np.float64]
BLOCK = 50_000
"""About the most variables of one linear program, which no signal interrupts; units are independent."""


@dataclass(frozen=True)
class Potentials:
    """Potentials of the cells of the baseline in the programs of both ends, and their mean scores a and b, all (c,)."""

    lower: Vector
    upper: Vector
    a: Vector
    b: Vector


@dataclass(frozen=True)
class _Cells:
    """The cells of all units, (c,): masses p and q in both worlds, mean scores a and b, and costs on the diagonal.

    The costs of the two programs are abs(c1 - c0) and abs(1 - c0 - c1).
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
        assert one.cell is not None  # a precondition
        key = one.unit_index.astype(np.int64) * (int(one.cell.max()) + 1) + one.cell
        _, first, cell = np.unique(key, return_index=True, return_inverse=True)
        unit = one.unit_index[first]
        rows = np.bincount(cell)
        total = np.bincount(one.unit_index, one.weight)
        share = np.where(total > 0, total, 1.0)[unit]
        c0, c1 = scores
        means = [np.bincount(cell, part) / rows for part in (c0, c1, np.abs(c1 - c0), np.abs(1.0 - c0 - c1))]
        p, q = (np.bincount(cell, world.weight) / share for world in worlds)
        return cls(unit, total / total.sum(), p, q, *means)

    def blocks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield units with equally many cells, and the indices of their cells, (units, cells)."""
        count = np.bincount(self.unit)
        start = np.cumsum(count) - count
        for k in np.unique(count):
            units = np.flatnonzero(count == k)
            most = max(1, BLOCK // int(k) ** 2)
            for i in range(0, len(units), most):
                block = units[i : i + most]
                yield block, start[block][:, None] + np.arange(k)

    def costs(self, at: NDArray[np.int64], a: Vector, b: Vector) -> tuple[Vector, Vector]:
        """Return the costs of both programs, (units, cells, cells); a and b (c,) give the sides of the kinks."""
        cell = np.arange(at.shape[1])
        effect = self.b[at][:, None, :] - self.a[at][:, :, None]
        rest = 1.0 - self.b[at][:, None, :] - self.a[at][:, :, None]
        effect *= np.sign(b[at][:, None, :] - a[at][:, :, None])
        rest *= np.sign(1.0 - b[at][:, None, :] - a[at][:, :, None])
        effect[:, cell, cell], rest[:, cell, cell] = self.effect[at], self.rest[at]
        return effect, rest


def choose_potentials(scores: Sequence[tuple[Vector, Vector]], views: Sequence[Worlds]) -> tuple[Potentials, ...]:
    """Return for each view the potentials of another one; the worlds have cells, and their rows are paired."""
    cells = [_Cells.of(each, worlds) for each, worlds in zip(scores, views, strict=True)]
    found = [_potentials(each) for each in cells]
    return tuple(found[(i + 1) % len(found)] for i in range(len(found)))


def consistent_ends(
    scores: Sequence[tuple[Vector, Vector]], views: Sequence[Worlds], potentials: Sequence[Potentials]
) -> tuple[float, float]:
    """Return the lower and the upper end of PIU over the couplings of what unfair edges switch.

    ``potentials`` are those of :func:`choose_potentials`, of these views or, in a replicate, of the original ones.
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
    rows = [(unit * 2 * k + row).ravel() for row in (cell // k, k + cell % k)]
    places = np.concatenate(rows), np.concatenate([column, column])
    table = csr_array((np.ones(len(places[0])), places), shape=(2 * k * units, k * k * units))
    solution: Any = linprog(cost.ravel(), A_eq=table, b_eq=margins.ravel(), method="highs")  # type: ignore[call-overload]
    if solution.x is None:
        raise ArithmeticError(f"A linear program over couplings failed: {solution.message}")
    return np.asarray(solution.eqlin.marginals, dtype=np.float64).reshape(units, 2 * k)[:, :k]


ROUNDING = 1e-9


@dataclass(frozen=True)
class UnitMeans:
    """Weights of k units (sum 1) and their mean scores in both worlds, (k,).

    ``noise`` is the variance of the difference of the two means, (k,), from the drawing of a unit's rows alone.
    """

    weight: Vector
    first: Vector
    second: Vector
    noise: Vector | float = 0.0

    @property
    def effect(self) -> Vector:
        """``b_u - a_u``, shape (k,)."""
        return self.second - self.first

    @property
    def rest(self) -> Vector:
        """``1 - a_u - b_u``, shape (k,)."""
        return 1.0 - self.first - self.second


@dataclass(frozen=True)
class Signs:
    """For each view the sides of both kinks on which its k units are, from -1 to 1, by the other views.

    Where the worlds have cells, ``potentials`` take this role in the programs over couplings.
    """

    effect: tuple[Vector, ...]
    rest: tuple[Vector, ...]
    potentials: tuple[Potentials, ...] | None = None


def unit_means(scores: tuple[Vector, Vector], worlds: Worlds) -> UnitMeans:
    """Return the means of the scores, (m0,) and (m1,), within the same units of both worlds."""
    if any(world.unit is None for world in worlds):
        raise DataError("These worlds name no units, so nothing is known to be shared by them.")
    weight = [np.bincount(world.unit_index, world.weight) for world in worlds]
    if len(weight[0]) != len(weight[1]) or not np.array_equal(weight[0] > 0, weight[1] > 0):
        raise DataError("Some units have weight in one world only, so that their two means cannot be compared.")
    means = [
        np.bincount(world.unit_index, world.weight * score) / np.where(total > 0, total, 1.0)
        for world, score, total in zip(worlds, scores, weight, strict=True)
    ]
    noise = [_noise(*each) for each in zip(scores, worlds, means, strict=True)]
    return UnitMeans(weight[0] / weight[0].sum(), means[0], means[1], noise[0] + noise[1])


def _noise(score: Vector, world: CounterfactualSample, mean: Vector) -> Vector:
    """Return the variance of each unit's mean: of draws, which weigh the same, by their spread; otherwise 0."""
    index, count = world.unit_index, np.bincount(world.unit_index)
    total, squares = np.bincount(index, world.weight), np.bincount(index, world.weight**2)
    drawn = (count > 1) & (count * squares <= total**2 * (1.0 + ROUNDING))
    spread = np.bincount(index, (score - mean[index]) ** 2)
    return np.asarray(np.divide(spread, count * (count - 1.0), out=np.zeros(len(count)), where=drawn))


def choose_signs(views: Sequence[UnitMeans]) -> Signs:
    """Return the signs for each view: those of the means of the other views, whose errors are independent of its own.

    Where units are drawn, their means are first shrunk towards the mean of all, by the noise of drawing: one sign for
    all is the best if units differ by noise alone. Nothing is chosen by what the view itself shows, such as the signs
    that give the tighter end: the greater of two estimates errs inward on average even if neither of them does.
    """
    others = [[view for j, view in enumerate(views) if j != i] for i in range(len(views))]
    effect, rest = (
        tuple(_signs(np.mean([getattr(view, part) for view in each], axis=0), each) for each in others)
        for part in ("effect", "rest")
    )
    return Signs(effect, rest)


def _signs(found: Vector, views: Sequence[UnitMeans]) -> Vector:
    """Return the sides of the kink, (k,), of units with these means on average over the views."""
    weight = np.mean([view.weight for view in views], axis=0)
    noise = np.zeros(len(found)) + sum(view.noise for view in views) / len(views) ** 2
    centre = weight @ found
    true = max(float(weight @ ((found - centre) ** 2 - noise)), 0.0)
    kept = np.divide(true, true + noise, out=np.ones(len(found)), where=noise > 0.0)
    return np.asarray(np.sign(centre + kept * (found - centre)))


def unit_ends(views: Sequence[UnitMeans], signs: Signs) -> tuple[float, float]:
    """Return the lower and the upper end of PIU given the units, from two or more views and :func:`choose_signs`."""
    lower = np.mean([v.weight @ (s * v.effect) for v, s in zip(views, signs.effect, strict=True)])
    upper = 1.0 - np.mean([v.weight @ (t * v.rest) for v, t in zip(views, signs.rest, strict=True)])
    return float(lower), float(upper)


def unit_disagreement(views: Sequence[UnitMeans]) -> float:
    """Return sum w (a + b - 2 a b), the products taken across views, whose errors are independent: no bias."""
    found = [
        one.weight @ (one.first + one.second - one.first * other.second - other.first * one.second)
        for i, one in enumerate(views)
        for j, other in enumerate(views)
        if i != j
    ]
    return float(np.mean(found))


def split_draws(worlds: Worlds) -> tuple[Worlds, ...]:
    """Return two views with alternate draws of each unit; worlds without several draws per unit are one view."""
    if any(world.unit is None or np.bincount(world.unit_index).min() < 2 for world in worlds):
        return (worlds,)
    return tuple((_half(worlds[0], which), _half(worlds[1], which)) for which in (0, 1))


def _half(world: CounterfactualSample, which: int) -> CounterfactualSample:
    index = world.unit_index
    order = np.argsort(index, kind="stable")
    count = np.bincount(index)
    turn = np.empty(len(index), dtype=np.int64)
    turn[order] = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count)
    chosen = np.flatnonzero(turn % 2 == which)
    own = index[chosen]
    whole, part = np.bincount(index, world.weight), np.bincount(own, world.weight[chosen], len(count))
    share = np.divide(whole, part, out=np.ones(len(count)), where=part > 0)
    return CounterfactualSample(
        world.rows.iloc[chosen], world.weight[chosen] * share[own], np.asarray(world.unit)[chosen]
    )
