"""Switching: mediators on unfair paths change between the worlds with a limited probability.

In come a classifier, unfair paths and a table; out goes a sweep of PIU over the limit (``switching``), or a source that
trains against the upper bound at one limit (``SwitchingBounds``).
"""

from pyrofair.robustness.sensitivity.switching.analysis import Switching, switching
from pyrofair.robustness.sensitivity.switching.training import SwitchingBounds

__all__ = ["Switching", "SwitchingBounds", "switching"]
