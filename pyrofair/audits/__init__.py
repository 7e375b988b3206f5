"""Audits of fitted classifiers: tables with intervals, reports and plots, and paths over penalty strengths.

In come models, a source and a table; out go an :class:`Audit`, or a :class:`PenaltyPath` over strengths and seeds.
"""

from pyrofair.audits.audit import Audit, audit
from pyrofair.audits.penalty_path import PenaltyPath, penalty_path
from pyrofair.audits.plots import plot_feasible_region

__all__ = ["Audit", "PenaltyPath", "audit", "penalty_path", "plot_feasible_region"]
