"""Audits of fitted classifiers: tables with intervals, reports, figures, and paths over penalty strengths.

In come fitted models, a source of potential outcomes and a table of rows; out goes an :class:`Audit`: every quantity
with its interval or the reason why it has none, the comparison of the two observed groups, and the assumptions. A
classifier, a source and strengths give a :class:`PenaltyPath` over strengths and seeds, with an audit of each.
"""

from typing import TYPE_CHECKING

from pyrofair._lazy import when_used
from pyrofair.audits.audit import Audit, audit
from pyrofair.audits.contrasts import ContrastAudit, audit_contrasts
from pyrofair.audits.decompose import decompose
from pyrofair.audits.decomposition import Decomposition
from pyrofair.audits.family import FamilyAudit
from pyrofair.audits.individuals import flips
from pyrofair.audits.scorer import AuditScorer

if TYPE_CHECKING:
    from pyrofair.audits.penalty_paths import PenaltyPath, penalty_path
    from pyrofair.audits.plots import plot_feasible_region

__all__ = [
    "Audit",
    "AuditScorer",
    "ContrastAudit",
    "Decomposition",
    "FamilyAudit",
    "PenaltyPath",
    "audit",
    "audit_contrasts",
    "decompose",
    "flips",
    "penalty_path",
    "plot_feasible_region",
]

__getattr__, __dir__ = when_used(
    __name__, {"penalty_paths": "PenaltyPath penalty_path", "plots": "plot_feasible_region"}, __all__
)
