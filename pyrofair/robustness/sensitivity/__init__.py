"""Sensitivity analyses: what is concluded if an assumption that no data confirm is given up by a stated amount.

In come a fitted model, unfair paths (or a ``OneStep``) and a table; out goes a sweep over the amount, with intervals,
the amount at which a conclusion flips, and a benchmark by observed columns.
"""

from pyrofair.robustness.sensitivity.confounding import Confounding, confounding
from pyrofair.robustness.sensitivity.cross_world import CrossWorld, cross_world
from pyrofair.robustness.sensitivity.switching import Switching, switching

__all__ = ["Confounding", "CrossWorld", "Switching", "confounding", "cross_world", "switching"]
