"""The samples that every source of potential outcomes hands over, and what is computed from them.

In come two :class:`CounterfactualSample`, one per world, from any source (:class:`PotentialOutcomes`); out go scored
worlds, functionals of them (penalties and effects), and bounds on what they leave open. No source is known here.
"""

from typing import TYPE_CHECKING

from pyrofair._lazy import when_used
from pyrofair.effects.adapters import DecisionsOf, ScoresOf
from pyrofair.effects.bounds import PIUBounds, feasible_interval, piu_bounds, test_set_bound
from pyrofair.effects.crossed import Crossed, cross, from_one_hot
from pyrofair.effects.group_agreement import compare_groups
from pyrofair.effects.influence import InfluenceBased, InfluenceValues
from pyrofair.effects.potential_outcomes import (
    Bounding,
    CounterfactualSample,
    Diagnosed,
    Estimate,
    GroupSize,
    MarginalBounds,
    PotentialOutcomes,
    Refittable,
    SampleSplit,
    Scored,
    SeveralContrasts,
    Stratified,
)

if TYPE_CHECKING:
    from pyrofair.effects.functionals import disagreement, effect_gap, interval_disagreement, piu_upper

__all__ = [
    "Bounding",
    "CounterfactualSample",
    "Crossed",
    "DecisionsOf",
    "Diagnosed",
    "Estimate",
    "GroupSize",
    "InfluenceBased",
    "InfluenceValues",
    "MarginalBounds",
    "PIUBounds",
    "PotentialOutcomes",
    "Refittable",
    "SampleSplit",
    "Scored",
    "ScoresOf",
    "SeveralContrasts",
    "Stratified",
    "compare_groups",
    "cross",
    "disagreement",
    "effect_gap",
    "feasible_interval",
    "from_one_hot",
    "interval_disagreement",
    "piu_bounds",
    "piu_upper",
    "test_set_bound",
]

_NEED_TORCH = {"functionals": "disagreement effect_gap interval_disagreement piu_upper"}
__getattr__, __dir__ = when_used(__name__, _NEED_TORCH, __all__)
