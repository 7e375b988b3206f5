"""How unlike are two worlds given what they share, if a unit's means are estimates? Ends that err outward, not inward.

The mean scores ``a_u, b_u`` of a unit are known only from draws or from learned laws, and the absolute values in

    lower = sum_u w_u abs(a_u - b_u),    upper = 1 - sum_u w_u abs(1 - a_u - b_u)

turn their errors into a gap that is not there: estimated as they stand, both ends err inward. Here each view of the
worlds, made by laws and draws of its own, gives the values, and the other views give the signs,

    lower = sum_u w_u s_u (a_u - b_u),   upper = 1 - sum_u w_u t_u (1 - a_u - b_u),

with s_u and t_u of -1, 0 or 1 that do not know the errors of a_u and b_u. Whatever they are, the expectation of the
first is at most the true lower end, and that of the second at least the true upper end, also if errors are common to
all units. So the interval can stick out of that of the marginals, by no more than errors, and leave [0, 1]: to cut it
would err inward. With the signs held, both ends are linear in the means, so that a bootstrap of them is regular at the
kinks, where that of an absolute value is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyrofair.consistent import Potentials
from pyrofair.exceptions import DataError
from pyrofair.potential_outcomes import CounterfactualSample, Worlds

__all__ = ["Signs", "UnitMeans", "choose_signs", "split_draws", "unit_disagreement", "unit_ends", "unit_means"]

Vector = NDArray[np.float64]
ROUNDING = 1e-9


@dataclass(frozen=True)
class UnitMeans:
    """The weights of k units (summing to 1) and their mean scores in the baseline and in the switched world, (k,).

    ``noise`` is the variance, (k,), that the drawing of a unit's rows gives the difference of its two means, as far as
    these rows are draws; that of laws is not in it.
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
    """For each view the sides on which its k units are of the two kinks, from -1 to 1, as other views tell them.

    Where the worlds know what is switched, ``potentials`` tell the same of the programs over couplings.
    """

    effect: tuple[Vector, ...]
    rest: tuple[Vector, ...]
    potentials: tuple[Potentials, ...] | None = None


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
    noise = [_noise(*each) for each in zip(scores, worlds, means, strict=True)]
    return UnitMeans(weight[0] / weight[0].sum(), means[0], means[1], noise[0] + noise[1])


def _noise(score: Vector, world: CounterfactualSample, mean: Vector) -> Vector:
    """Return the variance of each unit's mean: of draws, which weigh the same, by their spread; 0 of other rows."""
    place, count = world.place, np.bincount(world.place)
    total, squares = np.bincount(place, world.weight), np.bincount(place, world.weight**2)
    drawn = (count > 1) & (count * squares <= total**2 * (1.0 + ROUNDING))
    spread = np.bincount(place, (score - mean[place]) ** 2)
    return np.asarray(np.divide(spread, count * (count - 1.0), out=np.zeros(len(count)), where=drawn))


def choose_signs(views: Sequence[UnitMeans]) -> Signs:
    """Return the signs for each view: those of the means of the other views, whose errors this one does not share.

    Where units are drawn, their means are shrunk towards the mean of all first, by as much as the noise of drawing
    says: one sign for all is the best if units differ by noise alone. Nothing is chosen by what the view itself shows,
    such as whichever signs give the tighter end: the greater of two estimates errs inward on average even if neither of
    them does.
    """
    others = [[view for j, view in enumerate(views) if j != i] for i in range(len(views))]
    effect, rest = (
        tuple(_signs(np.mean([getattr(view, part) for view in each], axis=0), each) for each in others)
        for part in ("effect", "rest")
    )
    return Signs(effect, rest)


def _signs(found: Vector, views: Sequence[UnitMeans]) -> Vector:
    """Return the sides of the kink of units whose means were found on average in these views."""
    weight = np.mean([view.weight for view in views], axis=0)
    noise = np.zeros(len(found)) + sum(view.noise for view in views) / len(views) ** 2
    centre = weight @ found
    true = max(float(weight @ ((found - centre) ** 2 - noise)), 0.0)
    kept = np.divide(true, true + noise, out=np.ones(len(found)), where=noise > 0.0)
    return np.asarray(np.sign(centre + kept * (found - centre)))


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
