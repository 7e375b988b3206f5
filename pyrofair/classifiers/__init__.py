"""Classifiers that are trained under a penalty on unfair effects, and the paper's baselines.

In come a table, labels, and for :class:`PenalizedClassifier` any source and penalty; out go scikit-learn estimators.
:func:`fit_many` fits many of them as one stack of weights. :class:`PSCF` is fitted by variational inference;
:func:`remove` lists the columns that the *Remove* baselines keep.
"""

from pyrofair.classifiers.many import fit_many
from pyrofair.classifiers.penalized import PenalizedClassifier, remove
from pyrofair.classifiers.pscf import PSCF, PSCFTruth

__all__ = ["PSCF", "PSCFTruth", "PenalizedClassifier", "fit_many", "remove"]
