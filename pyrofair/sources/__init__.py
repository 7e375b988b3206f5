"""Makers of the two weighted samples that penalties and audits consume, or of influence values that audits consume.

In come unfair paths with a table (:class:`IPW`, :class:`GComputation`, :class:`OneStep`) or a program (:class:`SEM`,
whose truth can be computed); out go two :class:`~pyrofair.effects.CounterfactualSample` with units aligned, or
:class:`~pyrofair.effects.InfluenceValues`, and what is known of overlap. Where the effect is not identified,
:class:`MilesBounds` bounds both marginals; :class:`SwitchingBounds` has the worst case of PIU with limited switching.
"""

from pyrofair.sources.contrasts import Contrasts
from pyrofair.sources.gcomputation import GComputation
from pyrofair.sources.ipw import IPW
from pyrofair.sources.miles import MilesBounds
from pyrofair.sources.onestep import OneStep
from pyrofair.sources.sem import SEM, effect_posterior
from pyrofair.sources.several import Several
from pyrofair.sources.switching import SwitchingBounds
from pyrofair.sources.truth import EffectPosterior, Truth

__all__ = [
    "IPW",
    "SEM",
    "Contrasts",
    "EffectPosterior",
    "GComputation",
    "MilesBounds",
    "OneStep",
    "Several",
    "SwitchingBounds",
    "Truth",
    "effect_posterior",
]
