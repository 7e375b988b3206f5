"""Differentiable functionals of two potential outcomes: one formula each, for every source and type of unit.

Let ``a_u`` and ``b_u`` be the mean scores in the baseline world and in the world with the unfair paths switched, within
unit ``u`` of weight ``w_u``. Without units the population is one unit of weight 1 and the two are P(Y_{A<=0} = 1) and
P(Y_{A<=1||pi} = 1), which is the paper's setting. With units they use what both worlds are known to share:

===============  ======================  =======================================================================
functional       formula                 one unit / given the shared features / given a unit's noise
===============  ======================  =======================================================================
`disagreement`   sum w (a + b - 2 a b)   the paper's penalty / the same given them / PIU, decisions drawn apart
`effect_gap`     sum w abs(a - b)        abs(mean unfair effect) / PIU's lower bound / PIU, decisions share noise
`piu_upper`      sum w (1 - abs(1-a-b))  PIU's upper bound / upper end given them / an upper end
===============  ======================  =======================================================================

Each takes the :class:`Scored` rows of world 0 (baseline) and world 1 (unfair paths switched), both with units or both
without, and returns a scalar tensor. A world without a row of positive weight, units in one world only or different
ones, and a value that is not finite are a DataError.

All three are differentiable almost everywhere with a zero subgradient at their kinks, never negative, and obey
``effect_gap <= piu_upper <= 2 * disagreement``. Where units weigh the same in both worlds and sum to 1, the interval
``[effect_gap, piu_upper]`` with units lies inside the one without (Jensen), while `disagreement` with units can exceed
the one without: the difference is -2 Cov(a, b).

Assumes that a unit's means are exact or depend on many draws. Few draws make the interval too narrow (its ends are
biased inwards); `disagreement` is unbiased where the draws of the two worlds are independent given the unit.

With the paper's Horvitz-Thompson weights a mean can leave [0, 1], where the formulas turn negative. `disagreement` and
`piu_upper` then project it on [0, 1] and add its distance to [0, 1]: a nonnegative formula plus a nonnegative distance,
continuous, with a gradient that pulls the estimate back inside, and in the same order as above.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from pyrofair._validation import require_flag, require_instance
from pyrofair.effects.potential_outcomes import MarginalBounds, Scored
from pyrofair.exceptions import DataError

__all__ = ["Formula", "disagreement", "effect_gap", "formula_of", "interval_disagreement", "piu_upper", "unit_sums"]


def disagreement(scored0: Scored, scored1: Scored) -> torch.Tensor:
    """Probability that the two outcomes differ when, within a unit, they are independent: sum w (a(1-b) + (1-a)b).

    Chikahara et al. 2021, eq. (8) and eq. (10), the penalty G; twice it bounds PIU by Theorem 1, eq. (7). The sharp
    bounds are :func:`effect_gap` and :func:`piu_upper`.

    Examples
    --------
    >>> scored0, scored1 = (Scored(torch.tensor([p]), torch.ones(1)) for p in (0.25, 0.6))
    >>> disagreement(scored0, scored1)
    tensor(0.5500)
    """
    weight, a, b = _unit_means(scored0, scored1)
    return _total(weight, _DISAGREEMENT.value(a, b))


def effect_gap(scored0: Scored, scored1: Scored, *, squared: bool = False) -> torch.Tensor:
    """Mean size of the unfair effect of a unit: sum w abs(a - b), the sharp lower bound on PIU given the means.

    Without units it is the absolute mean unfair effect, which FIO constrains. With ``squared`` it is sum w (a - b)^2,
    which has no kink and is no bound on PIU. Chikahara et al. 2021, eq. (6), (12) and (A19), left.

    Examples
    --------
    >>> scored0, scored1 = (Scored(torch.tensor([p]), torch.ones(1)) for p in (0.25, 0.6))
    >>> effect_gap(scored0, scored1)
    tensor(0.3500)
    """
    weight, a, b = _unit_means(scored0, scored1)
    return _total(weight, (_SQUARED_GAP if require_flag("squared", squared) else _GAP).value(a, b))


def piu_upper(scored0: Scored, scored1: Scored) -> torch.Tensor:
    """Largest probability that the two outcomes differ, given the means: sum w (1 - abs(1 - a - b)).

    Chikahara et al. 2021, eq. (A19), right: min(b, 1-a) + min(a, 1-b) = 1 - abs(1 - a - b); :func:`effect_gap` is its
    left side, and :func:`piu_bounds` takes numbers.

    Examples
    --------
    >>> scored0, scored1 = (Scored(torch.tensor([p]), torch.ones(1)) for p in (0.25, 0.6))
    >>> piu_upper(scored0, scored1)
    tensor(0.8500)
    """
    weight, a, b = _unit_means(scored0, scored1)
    return _total(weight, _PIU_UPPER.value(a, b))


def interval_disagreement(bounds0: Scored | MarginalBounds, bounds1: Scored | MarginalBounds) -> torch.Tensor:
    """Bound the marginal disagreement where the marginals are only bounded: u1 (1 - l0) + (1 - l1) u0.

    A `Scored` is a point, its mean, whatever its units. The value is at least the disagreement of any two marginals
    between the bounds, equals `disagreement` at two points, and can reach 2. Ends outside [0, 1] are projected and half
    their distance is added, as for a point. Chikahara et al. 2021, eq. (13).

    Examples
    --------
    >>> bounds = MarginalBounds(torch.tensor(0.5), torch.tensor(0.75))
    >>> interval_disagreement(Scored(torch.tensor([0.25]), torch.tensor([1.0])), bounds)
    tensor(0.6875)
    """
    inside, outside = _project(torch.stack([*_ends(bounds0, 0), *_ends(bounds1, 1)]))
    lower0, upper0, lower1, upper1 = inside
    return _total(None, upper1 * (1 - lower0) + (1 - lower1) * upper0 + outside.sum() / 2)


def _unit_means(scored0: Scored, scored1: Scored) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """Weight of each unit (None: one unit of weight 1) and its mean score in each world, shapes (k,)."""
    _require_weight(scored0, 0)
    _require_weight(scored1, 1)
    if scored0.unit is None and scored1.unit is None:
        return None, scored0.mean, scored1.mean
    if scored0.unit is None or scored1.unit is None:
        with_units, without = (1, 0) if scored0.unit is None else (0, 1)
        raise DataError(
            f"World {with_units} has units and world {without} has none, so nothing is known to be shared. "
            "Take both worlds from one call of worlds(), or drop the units of both."
        )
    if scored0.by_unit and scored1.by_unit and torch.equal(scored0.weight > 0, scored1.weight > 0):
        return scored0.weight, scored0.score, scored1.score
    ids, cell = torch.unique(torch.cat([scored0.unit, scored1.unit]), return_inverse=True)
    cells = cell.split([len(scored0.unit), len(scored1.unit)])
    weight0, sum0, weight1, sum1 = (
        unit_sums(own, each, len(ids))
        for scored, own in zip((scored0, scored1), cells, strict=True)
        for each in (scored.weight, scored.weight.to(torch.float64) * scored.score)
    )
    held0, held1 = weight0 > 0, weight1 > 0
    if not torch.equal(held0, held1):
        alone = ids[held0 != held1]
        raise DataError(
            f"{len(alone)} of {len(ids)} units have positive weight in one world only, unit {int(alone[0])} first, so "
            "their two means cannot be compared. A batch must take all rows of a unit, in both worlds."
        )
    if not bool(held0.all()):
        weight0, sum0, weight1, sum1 = weight0[held0], sum0[held0], weight1[held0], sum1[held0]
    dtype = torch.result_type(scored0.weight, scored0.score)
    return weight0.to(dtype), (sum0 / weight0).to(dtype), (sum1 / weight1).to(dtype)


def unit_sums(unit: torch.Tensor, values: torch.Tensor, units: int) -> torch.Tensor:
    """Return the sum of the values (m,) of each unit, numbered 0, 1, ..., in double precision, shape (units,)."""
    # index_add adds one by one, and a unit may hold a million rows.
    return values.new_zeros(units, dtype=torch.float64).index_add(0, unit, values.to(torch.float64))


def _require_weight(scored: Scored, world: int) -> None:
    require_instance(f"world {world}", scored, Scored, "the scored rows of a world, Scored(score, weight)")
    total = scored.weight.sum()
    if not total > 0:
        name = "unfair paths switched" if world else "baseline"
        raise DataError(
            f"World {world} ({name}) is empty: the weights of its {len(scored.weight)} rows sum to {total.item():g}. "
            "A batch without a row of the weighted group cannot give an estimate; stratify batches or enlarge them."
        )


def _project(mean: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the nearest point of [0, 1], and the distance to it."""
    inside = mean.clamp(0.0, 1.0)
    return inside, (mean - inside).abs()


@dataclass(frozen=True)
class Formula:
    """A functional as a function of the two mean scores of a unit, and its slope in these.

    ``value(a, b)`` is elementwise; ``slope(means)`` takes both means along the last axis, shape (..., 2), and returns
    the gradient that torch finds for the value, without a graph. Those ``_within`` are for means in [0, 1]: beyond it
    the value is that at the nearest point, plus the distance to that, unless the formula is right ``everywhere``.
    """

    value_within: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    slope_within: Callable[[torch.Tensor], torch.Tensor]
    everywhere: bool = False

    def value(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Return the value at two means of any size."""
        if self.everywhere:
            return self.value_within(a, b)
        (a, outside_a), (b, outside_b) = _project(a), _project(b)
        return self.value_within(a, b) + outside_a + outside_b

    def slope(self, means: torch.Tensor) -> torch.Tensor:
        """Return the slope at two means of any size."""
        if self.everywhere:
            return self.slope_within(means)
        inside = means.clamp(0.0, 1.0)
        outside = means - inside
        return torch.where(outside == 0, self.slope_within(inside), outside.sign())


_DISAGREEMENT = Formula(lambda a, b: a * (1 - b) + (1 - a) * b, lambda means: torch.rsub(means.flip(-1), 1, alpha=2))
_GAP = Formula(lambda a, b: (a - b).abs(), lambda means: (means - means.flip(-1)).sign(), everywhere=True)
_SQUARED_GAP = Formula(lambda a, b: (a - b).square(), lambda means: 2 * (means - means.flip(-1)), everywhere=True)
_PIU_UPPER = Formula(
    lambda a, b: 1 - (1 - a - b).abs(), lambda means: (1 - means[..., :1] - means[..., 1:]).sign().expand_as(means)
)


def formula_of(functional: object) -> Formula | None:
    """Return the formula of a functional of this module, also of a ``partial`` of it; None of any other function."""
    if isinstance(functional, partial):
        if functional.func is not effect_gap or functional.args or functional.keywords.keys() - {"squared"}:
            return None
        return _SQUARED_GAP if functional.keywords.get("squared") else _GAP
    named = ((disagreement, _DISAGREEMENT), (effect_gap, _GAP), (piu_upper, _PIU_UPPER))
    return next((formula for each, formula in named if each is functional), None)


def _ends(bounds: Scored | MarginalBounds, world: int) -> tuple[torch.Tensor, torch.Tensor]:
    if isinstance(bounds, MarginalBounds):
        return bounds.lower, bounds.upper
    _require_weight(bounds, world)
    return bounds.mean, bounds.mean


def _total(weight: torch.Tensor | None, value: torch.Tensor) -> torch.Tensor:
    total = value if weight is None else (weight * value).sum()
    if not bool(total.isfinite()):
        raise DataError(
            f"The comparison of the two worlds is {total.item()}: a score, a weight or a bound is not finite."
        )
    return total
