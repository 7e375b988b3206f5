"""Both worlds with limited switching of mediators between them, for training under the worst case of PIU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from pyrofair._validation import Constraint, check_settings, require_instance, require_real, shown
from pyrofair.effects.adapters import Score, ask_scores
from pyrofair.effects.bounds import table_of_bounds
from pyrofair.effects.functionals import piu_upper
from pyrofair.effects.potential_outcomes import Scored, Worlds
from pyrofair.effects.scoring import Decisions, decide, require_decisions
from pyrofair.exceptions import DataError
from pyrofair.graph.paths import UnfairPaths
from pyrofair.sources.gcomputation import GComputation

__all__ = ["SwitchingBounds", "worst_disagreement"]

LEAST = 1e-12
"""A row that a world lacks has so small a share of its unit's weight there: rows without weight would be left out."""
DIGITS = 10
"""Beyond these, rounding tells which of two equal bounds is less."""
STEPS = 30
"""Halvings of the interval that holds a unit's multiplier."""
ASKED = (
    "SwitchingBounds",
    "Group the values of these columns, or train with source=GComputation(unfair) and penalty=piu_upper, which any "
    "switching allows.",
)


def _require_source(name: str, value: object) -> None:
    hint = "Weights on observed rows (IPW) have hardly two rows of one unit, and an SEM couples its worlds itself"
    require_instance(name, value, GComputation, f"a GComputation of the unfair paths. {hint}")


CONSTRAINTS: dict[str, Constraint] = {
    "source": _require_source,
    "gamma": partial(require_real, least=0.0, most=1.0, hint="It is a probability beyond the least one of a change."),
}


class SwitchingBounds(BaseEstimator):  # type: ignore[misc]
    """Both worlds if mediators on unfair paths change between them with at most the least probability plus gamma.

    A unit is a value of the shared features. Between its distributions in the two worlds it must change its mediators
    with their total variation at least. With at most gamma more, PIU has an upper bound, and a
    :class:`PenalizedClassifier` with ``penalty=piu_upper`` is trained against it: the worst coupling is found for the
    scores of each step. gamma = 0 is minimal change, gamma = 1 allows any joint distribution. It is
    :class:`~pyrofair.effects.Bounding`.

    *Assumes* what the source does, and that the limit is right; :func:`pyrofair.sensitivity.switching`
    audits a classifier over many limits, with intervals.

    Parameters
    ----------
    source
        A :class:`GComputation`, which learns the distributions. What unfair edges switch must have few values, at most
        its ``draws`` together.
    gamma
        The probability beyond the least, in [0, 1], at each value of the shared features.

    Attributes
    ----------
    source_ : GComputation
        The fitted source.

    References
    ----------
    Lindvall (2002), for the maximal coupling; Chikahara et al. (2021), eq. (A19), for the upper bound on PIU
    of two marginals.

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    >>> df = pd.DataFrame({"A": [0] * 400 + [1] * 600, "M": [0] * 300 + [1] * 100 + [0] * 150 + [1] * 450})
    >>> inner = GComputation(graph.unfair("A -> Y", "A -> M -> Y"), parameters="linear", progress=False, random_state=0)
    >>> source = SwitchingBounds(inner, gamma=0.0).fit(df)
    >>> found = source.bounds(lambda rows: 0.1 + 0.8 * (rows["A"] != rows["M"]), decisions="threshold")
    >>> found.loc["piu"].round(1).tolist()
    [0.5, 0.5]
    """

    source_: GComputation
    penalty = staticmethod(piu_upper)
    instead_of_audit = (
        "Audit the classifier by its unfair paths, and over limits of switching by "
        "pyrofair.sensitivity.switching(model, unfair, df), which has intervals."
    )

    def __init__(self, source: GComputation, *, gamma: float = 0.0) -> None:
        self.source = source
        self.gamma = gamma

    @property
    def unfair(self) -> UnfairPaths:
        """The unfair paths."""
        if not isinstance(self.source, GComputation):
            _require_source("source", self.source)
        return self.source.unfair

    def fit(self, df: pd.DataFrame, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Learn the distributions of the mediators, as :meth:`GComputation.fit`; refuse too many values to switch."""
        check_settings(self, CONSTRAINTS)
        source = clone(self.source).fit(df, sample_weight)
        if not source.graph_.drawn:
            raise DataError(
                f"No unfair path of source={shown(self.source)} runs through a mediator, so that nothing can switch. "
                "Use the source itself, with penalty=piu_upper."
            )
        source.require_pairs(ASKED)
        self.source_ = source
        return self

    @property
    def n_fitted_(self) -> int:
        """The number of rows it was fitted on."""
        check_is_fitted(self, "source_")
        return self.source_.n_fitted_

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What its numbers rest on, one sentence each."""
        check_is_fitted(self, "source_")
        drawn = ", ".join(self.source_.graph_.drawn)
        return (
            *self.source_.assumptions,
            f"Given the shared features, {drawn} change between the worlds with at most the total variation of their "
            f"distributions plus {self.gamma:g}; their joint distribution is any with that limit. A decision is drawn "
            "with the score of its features, whether the unit's mediators change or not.",
        )

    def samples(self, df: pd.DataFrame | None = None, sample_weight: npt.ArrayLike | None = None) -> Worlds:
        """Return the rows whose scores :meth:`ends` needs, the same in both worlds but for the sensitive attribute."""
        check_is_fitted(self, "source_")
        one, other = self.source_.paired(ASKED, df=df, sample_weight=sample_weight)
        kept = np.flatnonzero((one.weight > 0.0) | (other.weight > 0.0))
        unit = one.unit_index
        least = LEAST * np.bincount(unit, one.weight)[unit[kept]]
        first, second = (
            replace(
                each,
                rows=each.rows.iloc[kept].reset_index(drop=True),
                weight=np.maximum(each.weight[kept], least),
                unit=unit[kept],
            )
            for each in (one, other)
        )
        return first, second

    def ends(self, scored0: Scored, scored1: Scored) -> tuple[Scored, Scored]:
        """Return both worlds in the coupling of the upper bound, given the scores of :meth:`samples`."""
        weight, worst = worst_disagreement(scored0, scored1, self.gamma, upper=True)
        unit = torch.arange(len(weight), device=weight.device)
        made = Scored((worst / 2.0).to(scored0.score.dtype), weight.to(scored0.weight.dtype), unit)
        return made, made  # decisions that differ as often as those with these scores at most do

    def bounds(self, score: Score, *, decisions: Decisions = "score", threshold: float = 0.5) -> pd.DataFrame:
        """Return the marginals, the mean unfair effect and the bounds on PIU of a classifier, without intervals.

        Parameters are those of :meth:`MilesBounds.intervals`.

        Returns
        -------
        DataFrame, 4 rows
            By quantity, p_y0, p_ypi, mean_unfair_effect and piu: lower and upper. They are plug-in estimates by learned
            mechanisms, whose errors make the bounds on PIU too narrow.
        """
        check_is_fitted(self, "source_")
        require_decisions(decisions, threshold)
        graph, order = self.unfair.graph, list(self.source_.rows_.table.columns)
        worlds = self.samples()
        scores = ask_scores(score, [world.rows for world in worlds], graph, order, "drawn rows")
        one, other = (
            world.scored(decide(own, decisions, threshold)) for world, own in zip(worlds, scores, strict=True)
        )
        y0, ypi = float(one.mean), float(other.mean)
        lower, upper = (
            min(
                max(round(float(torch.dot(*worst_disagreement(one, other, self.gamma, upper=upper))), DIGITS), 0.0), 1.0
            )
            for upper in (False, True)
        )
        return table_of_bounds((y0, y0), (ypi, ypi), (lower, upper))

    def flatness(self, score: Any) -> str:
        """Return nothing: the upper bound moves with the scores of all rows."""
        return ""


def worst_disagreement(scored0: Scored, scored1: Scored, gamma: float, *, upper: bool) -> tuple[Tensor, Tensor]:
    """Return each unit's weight, and its bound on the probability that decisions differ, (k,), with its gradient.

    It is the lower bound, or the ``upper`` one, over all couplings in which a unit changes its rows with at most the
    total variation of their weights plus gamma: the dual of ``bounds``, at its best l for these scores.

    Parameters
    ----------
    scored0, scored1
        The scores of the same m rows in both worlds, with weights that are each world's, and the same units.
    gamma
        At most so much probability beyond the least.
    """
    assert scored0.unit is not None, "rows have units"
    unit = torch.unique(scored0.unit, return_inverse=True)[1]
    (p, c0), (q, c1) = ((each.weight.double(), each.score.double()) for each in (scored0, scored1))
    zeros = p.new_zeros(int(unit.max()) + 1)
    whole, least = zeros.index_add(0, unit, p), torch.minimum(p, q)
    effect = zeros.index_add(0, unit, q * c1 - p * c0) if not upper else whole.index_add(0, unit, -p * c0 - q * c1)
    difference = c1 - c0 if not upper else 1.0 - c0 - c1
    share, kept = _saddle(least, difference.detach(), effect.detach(), gamma * whole, unit)
    cost = difference.abs() * torch.where(difference < 0.0, share[unit], 1.0 - share[unit])
    found = (2.0 * share - 1.0) * effect + 2.0 * zeros.index_add(0, unit, kept * cost)
    return whole, 1.0 - found / whole if upper else found / whole


def _saddle(least: Tensor, difference: Tensor, effect: Tensor, budget: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """Return the l (k,) of each unit at which the dual is greatest, and the mass (m,) of each row that stays in place.

    For an l, mass leaves the rows whose part l D- + (1 - l) D+ is largest, by the budget. If mass d is left, the slope
    of the dual in l is 2 (e - sum d D): halving finds where it is 0, and a mean of both sides balances the last rows.
    """
    counts = torch.bincount(unit)
    first = counts.cumsum(0) - counts

    def stay(share: Tensor) -> tuple[Tensor, Tensor]:
        cost = difference.abs() * torch.where(difference < 0.0, share[unit], 1.0 - share[unit])
        order = torch.argsort(2.0 * unit - cost, stable=True)  # by unit, and then the largest first
        of, mass = unit[order], least[order]
        before = mass.cumsum(0) - mass
        gone = (budget[of] - before + before[first[of]]).clamp(min=0.0).minimum(mass)
        left = torch.empty_like(mass)
        left[order] = mass - torch.where(cost[order] > 0.0, gone, 0.0)
        return left, effect.index_add(0, unit, -left * difference)

    low, high = torch.zeros_like(effect), torch.ones_like(effect)
    for _ in range(STEPS if budget.any() else 0):
        middle = (low + high) / 2.0
        rises = stay(middle)[1] > 0.0
        low, high = torch.where(rises, middle, low), torch.where(rises, high, middle)
    (one, slope), (other, last) = stay(low), stay(high)
    part = (slope / (slope - last).clamp(min=torch.finfo(slope.dtype).tiny)).clamp(0.0, 1.0)
    return low + part * (high - low), one + part[unit] * (other - one)
