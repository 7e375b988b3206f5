"""Makers of the two weighted samples that penalties and audits consume, or of influence values that audits consume.

In come unfair paths with a table (:class:`IPW`, :class:`GComputation`, :class:`OneStep`) or a program (:class:`SEM`,
whose truth can be computed); out go two :class:`~pyrofair.effects.CounterfactualSample` with units aligned, or
:class:`~pyrofair.effects.InfluenceValues`, and what is known of overlap.
"""

from pyrofair.sources.contrasts import Contrasts
from pyrofair.sources.gcomputation import GComputation
from pyrofair.sources.ipw import IPW
from pyrofair.sources.onestep import OneStep
from pyrofair.sources.sem import SEM, effect_posterior
from pyrofair.sources.truth import EffectPosterior, Truth

__all__ = [
    "IPW",
    "SEM",
    "Contrasts",
    "EffectPosterior",
    "GComputation",
    "OneStep",
    "Truth",
    "effect_posterior",
]
