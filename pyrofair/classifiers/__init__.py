"""Classifiers that pay for unfair effects, and the rivals of the paper.

In come a table, labels, and for :class:`PenalizedClassifier` any source and penalty; out go scikit-learn estimators.
:class:`PSCF` is fitted by variational inference; :func:`remove` lists the columns that are left for the simplest
rivals.
"""

from pyrofair.classifiers.baselines import remove
from pyrofair.classifiers.penalized import PenalizedClassifier
from pyrofair.classifiers.pscf import PSCF, PSCFTruth

__all__ = ["PSCF", "PSCFTruth", "PenalizedClassifier", "remove"]
