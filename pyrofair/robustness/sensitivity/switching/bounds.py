"""Influence values of the bounds on PIU if mediators change between the worlds with limited probability.

Let p and q be the distributions of the mediators in the two worlds, given the shared features, and m = min(p, q). A
coupling that changes them with at most the least probability, their total variation, plus gamma keeps some mass d of m
in its place, all of it but gamma. With D(x) the difference of both scores of the same features x, and e that of their
means in the two worlds, the least probability that decisions differ is the least over d of
``max(e + 2 sum d D-, -e + 2 sum d D+)``, and by duality the greatest, over l and t in [0, 1], of

    (2 l - 1) e + 2 sum m min(l D- + (1 - l) D+, t) - 2 t gamma.

For decisions D is -1, 0 or 1, and five pairs (l, t) are enough; for scores, a grid of pairs gives a valid bound. 1 less
the greatest probability is the same with 1 less the sum of the scores in place of their difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from pyrofair._progress import progress_bar
from pyrofair.graph.identification import Weight
from pyrofair.nuisances.rows import Rows
from pyrofair.sources.prefix_form import PrefixForm, Walk

__all__ = ["bound_switching"]

Array = NDArray[np.float64]
Scores = tuple[Array, Array]
Limits = tuple[list[float], list[float]]
"""The limits to try for the negative and for the positive part of a difference, 1 among them."""
ROUNDING = 1e-12
HALF = 0.5
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.85, 0.95)
"""For scores, limits of either part of a difference are tried at these quantiles of it, beside 1."""


def bound_switching(form: PrefixForm, rows: Rows, scores: Sequence[Scores], gammas: Sequence[float]) -> list[Array]:
    """Return influence values of the lower bound, of 1 less the upper one, (n, G) each, and of the kept mass, (n, 1).

    ``scores`` are those of the rows and of the fitted rows, (n,) each, with the sensitive attribute as the outcome
    reads it in the baseline, and in the switched world. The kept mass is 1 less the total variation.
    """
    limits = [(_tried(-each), _tried(each)) for each in _differences(*scores[1])]
    made = [_columns(form, *each, limits) for each in zip((rows, form.nuisances.rows), scores, strict=True)]
    return _Walk(form, rows, list(zip(*made, strict=True)), gammas, limits).bounds()


def _differences(one: Array, other: Array) -> Scores:
    """Return the differences that the lower bound, and 1 less the upper bound, are made of."""
    return other - one, 1.0 - one - other


def _tried(values: Array) -> list[float]:
    """Return the limits to try for a part of a difference: 1 alone for decisions."""
    positive = values[values > ROUNDING]
    if (positive >= 1.0 - ROUNDING).all():
        return [1.0]
    different = np.unique(positive)
    return [*(different if len(different) <= len(LEVELS) else np.unique(np.quantile(positive, LEVELS))).tolist(), 1.0]


def _columns(form: PrefixForm, rows: Rows, scores: Scores, limits: Sequence[Limits]) -> list[Array]:
    """Return for each world the score, whether a row of it counts for the kept mass, and the parts that are kept there.

    Kept mass is counted in the world that has less of it: by Bayes, the ratio of both densities is one of propensities,
    NaN where both are unknown.
    """
    powers: Counter[tuple[int, tuple[str, ...]]] = Counter()
    for world, sign in zip(form.worlds, (-1, 1), strict=True):
        for key, power in world.part.weight(None).powers:
            powers[key] += sign * power
    ratio = Weight(None, tuple(each for each in powers.items() if each[1]))
    found = ratio.evaluate(lambda prefix: form.nuisances.probability(rows, prefix))
    denser = np.broadcast_to(found >= 1.0, rows.a.shape)
    parts = [
        np.minimum(np.maximum(sign * difference, 0.0), limit)
        for difference, both in zip(_differences(*scores), limits, strict=True)
        for sign, own in zip((-1.0, 1.0), both, strict=True)
        for limit in own
    ]
    both = zip(scores, (denser, ~denser), strict=True)
    return [np.column_stack([score, kept, *(kept * part for part in parts)]) for score, kept in both]


def _pieces(limits: Limits) -> tuple[Array, Array, Array]:
    """Return the linear functions whose greatest is a bound: slopes in e, (K,), in the kept parts, and prices (K,).

    With l = v / (u + v) and t = u v / (u + v), the kept mean of min(l D- + (1 - l) D+, t) is that of l min(D-, u) +
    (1 - l) min(D+, v), for one of both parts is 0.
    """
    downs, ups = limits
    pairs = [(HALF, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 0.0)]
    pairs += [*((1.0, u, 0.0) for u in downs), *((0.0, 0.0, v) for v in ups)]
    pairs += [(v / (u + v), u, v) for u, v in product(downs, ups)]
    share, u, v = np.array(pairs).T
    parts = [*(2.0 * share * (u == each) for each in downs), *(2.0 * (1.0 - share) * (v == each) for each in ups)]
    return 2.0 * share - 1.0, np.array(parts), np.where(u > 0.0, 2.0 * u * share, 2.0 * v)


class _Walk(Walk):
    """The pass through the stages, with the bounds in place of the functionals of audits."""

    def __init__(
        self, form: PrefixForm, rows: Rows, scores: Sequence[Scores], gammas: Sequence[float], limits: Sequence[Limits]
    ) -> None:
        super().__init__(form, rows, scores)
        self.linear, first, at = [], 2, np.array(gammas)[:, None]
        for end, both in enumerate(limits):
            sign, parts, price = _pieces(both)
            slope = np.zeros((2, self.columns, len(sign)))
            slope[:, 0] = np.outer([-1.0, -1.0 if end else 1.0], sign)
            slope[:, first : first + len(parts)] = parts
            first += len(parts)
            # no more than all mass can move, so that beyond 1 the whole is coupled in any way
            constants = np.where((price > 0.0) & (at >= 1.0), -np.inf, end * sign - price * at)
            self.linear.append((slope.reshape(2 * self.columns, -1), constants))
        self.found_of = np.zeros((len(rows.a), 2 * len(gammas) + 1))

    def bounds(self) -> list[Array]:
        """Return the influence values of both bounds, and of the kept mass."""
        # Pieces chosen by the rows that they are judged on would err inward.
        for train, judged, share in progress_bar("folds", self.folds(crossed=True)):
            one, other = self.averages(train, judged, share)
            found = self._greatest(one.end, other.end, one.smooth, other.smooth)
            if shared := self.form.worlds[0].shared:
                known = self._greatest(one.known, other.known, one.smooth_known, other.smooth_known)
                ends = np.hstack([one.end, other.end, found]), np.hstack([one.known, other.known, known])
                down = self._down([0, 1], shared, *ends, train, judged, share, None)
                found = (down.total + down.end)[:, 2 * self.columns :]
            moved = self._greatest(one.total, other.total, one.smooth, other.smooth, constant=0.0)
            self.found_of[judged] += share * (found + moved)
        count = (self.found_of.shape[1] - 1) // 2
        return np.split(self.found_of, [count, 2 * count], axis=1)

    def _greatest(self, one: Array, other: Array, smooth: Array, smooth_other: Array, constant: float = 1.0) -> Array:
        """Return the piece that is greatest by smooth values, of both bounds at each gamma, and the kept mass."""
        values, guide = np.hstack([one, other]), np.nan_to_num(np.hstack([smooth, smooth_other]))
        found = []
        for slope, constants in self.linear:
            own, guides = values @ slope, guide @ slope
            for offset in constants:
                level = guides + offset
                level[np.abs(level) <= ROUNDING] = 0.0  # no piece but that of 0 is chosen by rounding
                best = np.argmax(level, axis=1)[:, None]
                found.append(np.take_along_axis(own, best, axis=1) + constant * offset[best])
        return np.hstack([*found, values[:, [1]] + values[:, [self.columns + 1]]])
