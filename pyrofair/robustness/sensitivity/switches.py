"""The ends of PIU where mediators change between the worlds with limited probability, given what both worlds share.

Let p and q be the distributions of the mediators in the two worlds, given what both share, and m = min(p, q), of mass 1
less their total variation. A coupling that changes them with at most the total variation plus gamma keeps some mass d
of m in its place, all of it but gamma, and couples the rest in any way. With D(x) the difference of both scores of the
same features x, and e that of their means in the two worlds, the least probability that decisions differ is the least
over d of ``max(e + 2 sum d D-, -e + 2 sum d D+)``, and by duality the greatest, over l and t in [0, 1], of

    (2 l - 1) e + 2 sum m min(l D- + (1 - l) D+, t) - 2 t gamma.

For decisions D is -1, 0 or 1, and five pairs (l, t) are enough; for scores, a grid of pairs gives a valid end. 1 less
the greatest probability is the same with 1 less the sum of the scores in place of their difference. Each is linear in
means of both worlds, and so has influence values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from pyrofair.exceptions import DataError
from pyrofair.graph.identification import Weight
from pyrofair.nuisances.columns import take
from pyrofair.nuisances.folds import Folds, split_folds
from pyrofair.nuisances.learners import make_learner
from pyrofair.nuisances.rows import Rows
from pyrofair.sources.prefix_form import PrefixForm, Walk

__all__ = ["Switches", "changes_without", "density_ratio", "mediators_of", "switch_ends"]

Array = NDArray[np.float64]
ROUNDING = 1e-12
HALF = 0.5
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.85, 0.95)
"""For scores, limits of either part of the difference are tried at these quantiles of it, beside 1."""


def mediators_of(form: PrefixForm) -> tuple[str, ...]:
    """Return the nodes that an unfair path touches, whose values may differ between the worlds; refuse if none does."""
    nodes = tuple(node for stage in form.worlds[1].own for node in stage.nodes)
    if not nodes:
        unfair = form.estimand.unfair
        raise DataError(
            f"No unfair path runs through a mediator: all features but {unfair.graph.sensitive} are the same in both "
            "worlds, and PIU is the share of rows whose decision changes with it. Nothing can switch."
        )
    return nodes


def density_ratio(form: PrefixForm, rows: Rows) -> Array:
    """Return how much denser each row's mediators are in the switched world than in the baseline, (n,).

    It is a ratio of propensities, by Bayes, given what precedes mediators that read different values, and these too;
    NaN where both are unknown.
    """
    powers: Counter[tuple[int, tuple[str, ...]]] = Counter()
    for world, sign in zip(form.worlds, (-1, 1), strict=True):
        for key, power in world.part.weight(None).powers:
            powers[key] += sign * power
    kept = tuple(each for each in powers.items() if each[1])
    ratio = Weight(None, kept).evaluate(lambda prefix: form.nuisances.probability(rows, prefix))
    return np.broadcast_to(ratio, rows.a.shape)


def changes_without(form: PrefixForm, rows: Rows, column: str | None) -> float:
    """Return the mean least probability with which mediators change, given what is shared but one column (None: all).

    Which of the two worlds is denser at a row's features without the column is learned from other rows, by the share of
    the switched world in the sum of its two weights.
    """
    weights = []
    for world in form.worlds:
        raw = form.nuisances.raw_weights(rows, world.part, None)
        weight = np.where(np.isfinite(raw), raw, 0.0) * rows.weight
        weights.append(weight / weight.sum())
    total = weights[0] + weights[1]
    share = np.divide(weights[1], total, out=np.full(len(total), 0.5), where=total > 0.0)
    graph = form.nuisances.graph
    names = [name for name in graph.columns_of(form.worlds[1].part.order) if name != column]
    regression = make_learner(form.regression, rows.table[names], form.seed, "regression")
    design = regression.design(rows.table[names])
    n = len(total)
    folds: Folds = [(np.arange(n), np.arange(n))]
    if regression.crossed:
        folds = split_folds(rows.a, rows.weight, form.nuisances.folds, form.seed)
    denser = np.zeros(n, dtype=bool)
    for train, test in folds:
        predict = regression.fit(take(design, train), share[train, None], total[train])
        denser[test] = predict(take(design, test))[:, 0] >= HALF
    return float(1.0 - np.where(denser, weights[0], weights[1]).sum())


@dataclass(frozen=True)
class _Piece:
    """A linear function: ``sign`` times the difference, plus ``columns`` of kept scores, less ``price`` times gamma."""

    sign: float
    columns: dict[int, float]
    price: float


Limits = tuple[Sequence[float], Sequence[float]]
"""The limits to try for the negative and for the positive part of a difference, 1 among them."""


def _pieces(limits: Limits) -> list[_Piece]:
    """Return the linear functions whose greatest is an end, for the columns of :func:`_columns`.

    With l = v / (u + v) and t = u v / (u + v), the kept mean of min(l D- + (1 - l) D+, t) is that of l min(D-, u) +
    (1 - l) min(D+, v), for one of both parts is 0.
    """
    found = [_Piece(0.0, {}, 0.0), _Piece(1.0, {}, 0.0), _Piece(-1.0, {}, 0.0)]
    downs, ups = limits
    found += [_Piece(1.0, {i: 2.0}, 2.0 * u) for i, u in enumerate(downs)]
    found += [_Piece(-1.0, {len(downs) + j: 2.0}, 2.0 * v) for j, v in enumerate(ups)]
    for (i, u), (j, v) in product(enumerate(downs), enumerate(ups)):
        share = v / (u + v)
        columns = {i: 2.0 * share, len(downs) + j: 2.0 * (1.0 - share)}
        found.append(_Piece(2.0 * share - 1.0, columns, 2.0 * u * share))
    return found


def _columns(difference: Array, limits: Limits) -> list[Array]:
    """Return the parts of a difference (n,) whose kept mean the pieces take, each within [0, 1]."""
    parts = np.maximum(-difference, 0.0), np.maximum(difference, 0.0)
    return [np.minimum(part, limit) for part, own in zip(parts, limits, strict=True) for limit in own]


def _differences(one: Array, other: Array) -> tuple[Array, Array]:
    """Return the differences that the lower end, and 1 less the upper end, are made of."""
    return other - one, 1.0 - one - other


def _limits(one: Array, other: Array) -> list[Limits]:
    """Return the limits to try for either end: 1 alone for decisions."""
    return [(_tried(-each), _tried(each)) for each in _differences(one, other)]


def _tried(values: Array) -> list[float]:
    positive = values[values > ROUNDING]
    if (positive >= 1.0 - ROUNDING).all():
        return [1.0]
    values = np.unique(positive)
    return [*(values if len(values) <= len(LEVELS) else np.unique(np.quantile(positive, LEVELS))).tolist(), 1.0]


@dataclass(frozen=True, eq=False)
class Switches:
    """Influence values: of the lower end and of 1 less the upper end, (n, G) each for G gammas, and of the kept mass.

    The mean of ``kept`` (n,) is 1 less the mean total variation.
    """

    lower: Array
    rest: Array
    kept: Array


def switch_ends(
    form: PrefixForm, rows: Rows, scores: tuple[tuple[Array, Array], tuple[Array, Array]], gammas: Sequence[float]
) -> Switches:
    """Return the influence values of the ends for each gamma.

    ``scores`` are those of the rows and of the fitted rows, (n,) each, with the sensitive attribute as the outcome
    reads it in the baseline, and in the switched world.
    """
    fitted = form.nuisances.rows
    limits = _limits(*scores[1])
    made = []
    stays = [density_ratio(form, each) >= 1.0 for each in (rows, fitted)]  # where the baseline has less, it stays whole
    for which in (0, 1):
        own = [_world_columns(*pair, stay, which, limits) for pair, stay in zip(scores, stays, strict=True)]
        made.append((own[0], own[1]))
    return _Walk(form, rows, made, tuple(gammas), limits).ends()


def _world_columns(one: Array, other: Array, stays: NDArray[np.bool_], which: int, limits: Sequence[Limits]) -> Array:
    """Return the score of a world, whether a row of it counts for the kept mass, and the parts of both differences."""
    kept = (~stays if which else stays).astype(np.float64)
    parts = [
        kept * part
        for difference, own in zip(_differences(one, other), limits, strict=True)
        for part in _columns(difference, own)
    ]
    return np.column_stack([other if which else one, kept, *parts])


class _Walk(Walk):
    """The pass through the stages, with the ends in place of the functionals of audits."""

    def __init__(
        self,
        form: PrefixForm,
        rows: Rows,
        scores: Sequence[tuple[Array, Array]],
        gammas: tuple[float, ...],
        limits: Sequence[Limits],
    ) -> None:
        super().__init__(form, rows, scores)
        q, n = self.columns, len(rows.a)
        slopes, constants, first = [], [], 2
        for end, own in enumerate(limits):
            pieces = _pieces(own)
            slope, constant = np.zeros((2, q, len(pieces))), []
            for k, piece in enumerate(pieces):
                slope[:, 0, k] = piece.sign * np.array([-1.0, -1.0 if end else 1.0])
                for column, factor in piece.columns.items():
                    slope[:, first + column, k] = factor
                # no more than all mass can move, so that beyond 1 the whole is coupled in any way
                needless = [piece.price > 0.0 and gamma >= 1.0 for gamma in gammas]
                each = end * piece.sign - piece.price * np.array(gammas)
                constant.append(np.where(needless, -np.inf, each))
            first += sum(map(len, own))
            slopes.append(slope.reshape(2 * q, -1))
            constants.append(np.array(constant))
        self.slopes, self.constants = slopes, constants
        self.values_of = np.zeros((n, 2 * len(gammas) + 1))

    def ends(self) -> Switches:
        """Return the influence values of the ends."""
        # Pieces chosen by the rows that they are judged on would err inward.
        for train, judged, share in self.folds(crossed=True):
            self._fold(train, judged, share)
        count = (self.values_of.shape[1] - 1) // 2
        found = self.values_of
        return Switches(found[:, :count], found[:, count : 2 * count], found[:, -1])

    def _fold(self, train: NDArray[np.int64], judged: NDArray[np.int64], share: Array) -> None:
        one, other = self.averages(train, judged, share)
        found = self._functionals(np.hstack([one.end, other.end]), np.hstack([one.smooth, other.smooth]))
        moved = self._functionals(
            np.hstack([one.total, other.total]), np.hstack([one.smooth, other.smooth]), constant=False
        )
        if self.form.worlds[0].shared:
            learned = self._functionals(
                np.hstack([one.known, other.known]), np.hstack([one.smooth_known, other.smooth_known])
            )
            width, q = found.shape[1], self.columns
            pad = -width % q

            def split(a: Array, b: Array, values: Array) -> list[Array]:
                whole = np.hstack([values, np.zeros((len(values), pad))])
                return [a, b, *np.hsplit(whole, whole.shape[1] // q)]

            averaged = self.over_shared(
                split(one.end, other.end, found), split(one.known, other.known, learned), train, judged, share
            )
            found = np.hstack(averaged[2:])[:, :width]
        self.values_of[judged] += share * (found + moved)

    def _functionals(self, values: Array, smooth: Array, *, constant: bool = True) -> Array:
        """Return the chosen piece of both ends at each gamma, and the kept mass, (m, 2 G + 1), linear in the values."""
        q = self.columns
        parts = []
        for slope, constants in zip(self.slopes, self.constants, strict=True):
            guide, own = np.nan_to_num(smooth) @ slope, values @ slope
            for offset in constants.T:
                level = guide + offset
                level[np.abs(level) <= ROUNDING] = 0.0  # no piece but that of 0 is chosen by rounding
                best = np.argmax(level, axis=1)
                chosen = np.take_along_axis(own, best[:, None], axis=1)[:, 0]
                parts.append(chosen + (offset[best] if constant else 0.0))
        return np.column_stack([*parts, values[:, 1] + values[:, q + 1]])
