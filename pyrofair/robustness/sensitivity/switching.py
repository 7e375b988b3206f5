"""How far the probability of individual unfairness moves with how often unfair mediators change between the worlds.

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
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray

from pyrofair._progress import progress_bar
from pyrofair.audits.display.words import percent
from pyrofair.audits.models import ScoresAre
from pyrofair.effects.potential_outcomes import CounterfactualSample
from pyrofair.effects.scoring import Decisions
from pyrofair.exceptions import DataError
from pyrofair.graph import UnfairPaths
from pyrofair.graph.identification import Weight
from pyrofair.nuisances.rows import Rows
from pyrofair.robustness.sensitivity.problem import Asked, Problem, read_problem
from pyrofair.robustness.sensitivity.sweep import Departure, Parameter, Sweep, sweep
from pyrofair.sources.onestep import OneStep
from pyrofair.sources.prefix_form import PrefixForm, Walk
from pyrofair.tables.recorded import Missing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Switching", "switching"]

Array = NDArray[np.float64]
Scores = tuple[Array, Array]
Limits = tuple[list[float], list[float]]
"""The limits to try for the negative and for the positive part of a difference, 1 among them."""
ROUNDING = 1e-12
HALF = 0.5
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.85, 0.95)
"""For scores, limits of either part of a difference are tried at these quantiles of it, beside 1."""
GAMMA = Parameter(
    "gamma",
    neutral=0.0,
    most=1.0,
    what="probabilities, such as [0, 0.05, 0.1, 1]",
    axis="gamma (chance that {} change, beyond the least)",
    hint="It is the probability, beyond the least one, that mediators change.",
)
GAMMAS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class Switching(Sweep):
    """The result of :func:`switching`; print it for a verdict and a few numbers.

    Attributes
    ----------
    table : DataFrame
        For each gamma: low and high, the bounds on PIU if mediators change with at most the least probability plus
        gamma, given the shared features; lower and upper, between which both bounds lie with the level; sharp, whether
        a joint distribution of both worlds attains the bounds. No interval is narrower than one of a smaller gamma.
        Bounds are estimated apart: where they cross, the smaller one is low, and the limits hold both.
    flips_at : DataFrame
        For each conclusion the least gamma at which it no longer holds: of the estimate (``point``) and with its
        interval (``interval``). NaN if it does not hold at gamma = 0, inf if it holds at each gamma of the sweep.
    assumptions : tuple of str
        What gamma limits, and what stays assumed.
    context : dict
        model, decisions, rows, level, the unfair paths, mediators, gammas, and the settings ``above`` and ``at_most``.
    least : tuple of float
        The mean of the least probability with which mediators change (their total variation given the shared features),
        and the limits of its interval.
    """

    title = "Switching of mediators"
    parameter = GAMMA
    main = "piu"

    least: tuple[float, float, float]

    def plot(self) -> Figure:
        """Draw the bounds on PIU against gamma."""
        return self._plot("piu")

    def _about(self) -> str:
        least, lower, upper = map(percent, self.least)
        return (
            f"{', '.join(self.context['mediators'])} change between the worlds for at least {least} of the units "
            f"({self.context['level']:.0%} interval {lower} to {upper}); gamma is the probability beyond that."
        )


def switching(
    model: Any,
    source: OneStep | UnfairPaths,
    df: pd.DataFrame,
    *,
    gammas: npt.ArrayLike = GAMMAS,
    decisions: Decisions = "threshold",
    threshold: float = 0.5,
    above: float = 0.0,
    at_most: float | None = None,
    level: float = 0.95,
    scores: ScoresAre = "auto",
    sample_weight: npt.ArrayLike | None = None,
    groups: npt.ArrayLike | str | None = None,
    missing: Missing = "refuse",
    random_state: int | np.random.Generator | None = None,
) -> Switching:
    """Bound PIU if mediators on unfair paths change between the worlds with a limited probability.

    PIU depends on the joint distribution of a unit's mediators in both worlds, which no data show. Given the shared
    features, the mediators must change with at least the total variation between their two distributions. *Assumes*
    all that the source does, and that they change, together, with at most gamma more, at each value of the shared
    features: gamma = 0 is minimal change, gamma = 1 any joint distribution.

    Parameters
    ----------
    model
        A fitted model, a function of the features: it is asked for the score of each row with either value of the
        sensitive attribute.
    source, df, threshold, level, scores, sample_weight, groups, missing, random_state
        As for :func:`confounding`.
    gammas
        Probabilities in [0, 1]; 0 is added.
    decisions
        ``"threshold"``, or ``"score"``: decisions drawn with the scores, whether the unit's mediators change or not.
        Bounds between gamma = 0 and 1 are then valid and not sharp.
    above, at_most
        The conclusions whose flips are looked for: that PIU is above a limit, and, unless None, at most another one.

    Raises
    ------
    DataError
        If a setting, the model or the table is unfit, no unfair path runs through a mediator, or the scores are an
        outcome.

    References
    ----------
    The least probability of a change is attained by the maximal coupling (Lindvall, 2002). With gamma = 1 and nothing
    shared the bounds are those of Chikahara et al. (2021), eq. (A19).

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    >>> df = pd.DataFrame({"A": [0] * 40 + [1] * 60, "M": [0] * 30 + [1] * 10 + [0] * 15 + [1] * 45})
    >>> class Model:
    ...     def predict_proba(self, X):
    ...         p = 0.1 + 0.8 * (X["A"] != X["M"])
    ...         return np.column_stack([1 - p, p])
    >>> source = OneStep(graph.unfair("A -> Y", "A -> M -> Y"), propensity="saturated", regression="saturated", folds=1)
    >>> found = switching(Model(), source, df, gammas=[0, 0.1, 1])
    >>> found.table[["gamma", "low", "high"]].round(3).values.tolist()
    [[0.0, 0.5, 0.5], [0.1, 0.4, 0.5], [1.0, 0.0, 0.5]]
    >>> [round(each, 3) for each in found.least[:1]]
    [0.5]
    """
    limits = GAMMA.read(gammas)
    asked = Asked(decisions, threshold, above, at_most, level, scores, sample_weight, groups, missing, random_state)
    problem = read_problem(model, source, df, asked)
    form, unfair = problem.form, problem.source.unfair
    sensitive = unfair.graph.sensitive
    if form.estimand.target == "outcome":
        raise DataError(
            f"The scores are an outcome, of which only one is observed for a row, that with its own {sensitive}; "
            "switching compares both for the same mediators. Pass the model, or scores of a function of the features."
        )
    nodes = tuple(node for stage in form.worlds[1].own for node in stage.nodes)
    if not nodes:
        raise DataError(
            f"No unfair path runs through a mediator: all features but {sensitive} are the same in both worlds, and "
            "PIU is the share of rows whose decision changes with it. Nothing can switch."
        )
    low, rest, kept = _bound_switching(form, problem.rows, _both_scores(problem), limits)
    hard = decisions == "threshold"
    departure = Departure({}, {"piu": (low, 1.0 - rest)}, lambda _, gamma: hard or gamma in (0.0, 1.0))
    least, _, lower, upper = problem.ends("piu", 1.0 - kept, 1.0 - kept)[0].clip(0.0, 1.0)
    return Switching(
        *sweep(problem, GAMMA, limits, [departure]),
        (
            f"Given the shared features ({', '.join(unfair.shared) or 'none'}), {', '.join(nodes)} differ between the "
            "worlds with at most the total variation of their distributions plus gamma. Where they agree, decisions "
            f"differ by the direct effect of {sensitive} alone; where not, they have any joint distribution. "
            + (
                "A joint distribution of both worlds attains each bound."
                if hard
                else "A decision is drawn with the score of its features, whether the unit's mediators change or not. "
                "Between gamma = 0 and 1 the interval is valid and not sharp."
            ),
            "No hidden cause: the distributions in single worlds are identified.",
        ),
        problem.context | {"gammas": limits, "mediators": nodes},
        (float(least), float(lower), float(upper)),
    )


def _both_scores(problem: Problem) -> tuple[Scores, Scores]:
    """Return the scores in the baseline and the unfair-path world, of the rows and of the fitted rows, (n,) each."""
    form, fitted = problem.form, problem.form.nuisances.rows
    arms = [world.part.outcome_arm for world in form.worlds]
    graph = form.estimand.unfair.graph
    if problem.model.is_scores and arms[0] is not None:
        raise DataError(
            f"The model is given as scores, and switching needs the score of each row with {graph.sensitive_column} "
            "of the baseline and of the contrast. Pass the model itself."
        )

    def of(rows: Rows) -> Scores:
        found = []
        for arm in arms:
            read, origin = rows.as_read(np.arange(len(rows.a)), arm, graph, fitted)
            own = origin if rows is problem.rows else np.full(len(origin), -1)
            sample = CounterfactualSample(read, np.ones(len(read)), origin=own)
            found.append(np.asarray(problem.scorer(sample), dtype=np.float64)[:, 0])
        return found[0], found[1]

    own = of(problem.rows)
    return own, own if problem.rows.position is None else of(fitted)


# -- bounds -----------------------------------------------------------------------------------------------------------


def _bound_switching(form: PrefixForm, rows: Rows, scores: Sequence[Scores], gammas: Sequence[float]) -> list[Array]:
    """Return influence values of the lower bound, of 1 less the upper one, (n, G) each, and of the kept mass, (n, 1).

    ``scores`` are those of the rows and of the fitted rows, (n,) each, with the sensitive attribute as the outcome
    reads it in the baseline, and in the unfair-path world. The kept mass is 1 less the total variation.
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
