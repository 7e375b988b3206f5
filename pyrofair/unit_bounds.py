"""How unlike are two worlds given what they share, if a unit's means are estimates? Ends that err outward, not inward.

The mean scores ``a_u, b_u`` of a unit are known only from draws or from learned laws, and the absolute values in

    lower = sum_u w_u abs(a_u - b_u),    upper = 1 - sum_u w_u abs(1 - a_u - b_u)

turn their errors into a gap that is not there: estimated as they stand, both ends err inward. Here each view of the
worlds, made by laws and draws of its own, gives the values, and the other views give the signs,

    lower = sum_u w_u s_u (a_u - b_u),   upper = 1 - sum_u w_u t_u (1 - a_u - b_u),

with s_u and t_u of -1, 0 or 1 that do not know the errors of a_u and b_u. Whatever they are, the expectation of the
first is at most the true lower end, and that of the second at least the true upper end. With the signs held, both are
linear in the means, so that a bootstrap of them is regular at the kinks, where that of an absolute value is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyrofair.exceptions import DataError
from pyrofair.potential_outcomes import CounterfactualSample, Worlds

__all__ = ["Signs", "UnitMeans", "choose_signs", "split_draws", "unit_disagreement", "unit_ends", "unit_means"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class UnitMeans:
    """The weights of k units (summing to 1) and their mean scores in the baseline and in the switched world, (k,)."""

    weight: Vector
    first: Vector
    second: Vector

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
    """For each view the sides on which its k units are of the two kinks, from -1 to 1."""

    effect: tuple[Vector, ...]
    rest: tuple[Vector, ...]


def unit_means(scores: tuple[Vector, Vector], worlds: Worlds) -> UnitMeans:
    """Average the scores of both worlds within units; a unit without weight keeps a place.

    Parameters
    ----------
    scores
        The scores of the rows of each world, shapes (m0,) and (m1,).
    worlds
        The worlds; both have units, and the same ones.

    Raises
    ------
    DataError
        If a world has no units, or a unit has weight in one world only.
    """
    if any(world.unit is None for world in worlds):
        raise DataError("These worlds name no units, so nothing is known to be shared by them.")
    weight = [np.bincount(world.place, world.weight) for world in worlds]
    if len(weight[0]) != len(weight[1]) or not np.array_equal(weight[0] > 0, weight[1] > 0):
        raise DataError("Some units have weight in one world only, so that their two means cannot be compared.")
    means = [
        np.bincount(world.place, world.weight * score) / np.where(total > 0, total, 1.0)
        for world, score, total in zip(worlds, scores, weight, strict=True)
    ]
    return UnitMeans(weight[0] / weight[0].sum(), means[0], means[1])


def choose_signs(views: Sequence[UnitMeans]) -> Signs:
    """Return the signs for each view: those that the other views' means have, or one sign for all units.

    One sign for all gives the ends of the two marginals. It is taken where it gives the tighter end, so that the
    interval given the units never sticks out of the marginal one.
    """
    effect, rest = (
        tuple(np.sign(np.sum([part[j] for j in range(len(part)) if j != i], axis=0)) for i in range(len(part)))
        for part in ([view.effect for view in views], [view.rest for view in views])
    )
    return Signs(
        _tighter(effect, [view.effect for view in views], views), _tighter(rest, [view.rest for view in views], views)
    )


def _tighter(signs: tuple[Vector, ...], parts: Sequence[Vector], views: Sequence[UnitMeans]) -> tuple[Vector, ...]:
    means = np.array([view.weight @ part for view, part in zip(views, parts, strict=True)])
    crossed = np.mean([view.weight @ (s * part) for view, s, part in zip(views, signs, parts, strict=True)])
    if crossed >= abs(means.mean()):
        return signs
    return tuple(np.full(len(part), np.sign(means.mean())) for part in parts)


def unit_ends(views: Sequence[UnitMeans], signs: Signs) -> tuple[float, float]:
    """Return the lower and the upper end of PIU given the units.

    Parameters
    ----------
    views
        At least two, with independent errors given the units.
    signs
        Those of :func:`choose_signs`, of these views or, in a bootstrap replicate, of the original ones.
    """
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
    """Deal the draws of each unit into two views, alternately; worlds without several draws a unit are one view.

    Parameters
    ----------
    worlds
        Two worlds, the draws of whose units are independent.
    """
    if any(world.unit is None or np.bincount(world.place).min() < 2 for world in worlds):
        return (worlds,)
    return tuple((_half(worlds[0], which), _half(worlds[1], which)) for which in (0, 1))


def _half(world: CounterfactualSample, which: int) -> CounterfactualSample:
    place = world.place
    order = np.argsort(place, kind="stable")
    count = np.bincount(place)
    turn = np.empty(len(place), dtype=np.int64)
    turn[order] = np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count)
    chosen = np.flatnonzero(turn % 2 == which)
    own = place[chosen]
    whole, part = np.bincount(place, world.weight), np.bincount(own, world.weight[chosen], len(count))
    share = np.divide(whole, part, out=np.ones(len(count)), where=part > 0)
    return CounterfactualSample(
        world.rows.iloc[chosen], world.weight[chosen] * share[own], np.asarray(world.unit)[chosen]
    )
