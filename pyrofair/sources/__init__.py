"""Makers of the two weighted samples that penalties and audits consume, or of influence values that audits consume.

In come unfair paths with a table (:class:`IPW`, :class:`GComputation`, :class:`OneStep`) or a program (:class:`SEM`,
whose truth can be computed); out go two :class:`~pyrofair.effects.CounterfactualSample` with units aligned, or
:class:`~pyrofair.effects.InfluenceValues`, and what is known of overlap.
"""

from typing import TYPE_CHECKING

from pyrofair._lazy import when_used
from pyrofair.sources.contrasts import Contrasts
from pyrofair.sources.ipw import IPW
from pyrofair.sources.onestep import OneStep

if TYPE_CHECKING:
    from pyrofair.sources.gcomputation import GComputation
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

_NEED_TORCH = {"gcomputation": "GComputation", "sem": "SEM effect_posterior", "truth": "EffectPosterior Truth"}
__getattr__, __dir__ = when_used(__name__, _NEED_TORCH, __all__)
