"""Propensities and regressions: one class per learner, folds, columns binned once, diagnostics of weights.

In come a table and labels or scores; out go fits that judge rows which they did not see. ``learners`` holds one class
for each kind of learner, for propensities and regressions alike; ``crossfit`` a learner over folds, and its refits;
``rows`` the propensities of a source's prefixes; ``diagnostics`` what is known of overlap and of weights.
"""

from pyrofair.nuisances.crossfit import CrossFit
from pyrofair.nuisances.learners import Learner, make_learner
from pyrofair.nuisances.rows import Nuisances, Rows

__all__ = ["CrossFit", "Learner", "Nuisances", "Rows", "make_learner"]
