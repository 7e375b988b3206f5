"""Path-specific causal fairness: audit and train classifiers against the unfair effects of a causal graph."""

from pyrofair import datasets
from pyrofair._version import __version__
from pyrofair.audit import Audit, audit
from pyrofair.baselines import remove
from pyrofair.bounds import PIUBounds, feasible_interval, piu_bounds, test_set_bound
from pyrofair.classifiers import PenalizedClassifier
from pyrofair.estimands import Estimand
from pyrofair.exceptions import (
    DataError,
    FormulaNotApplicableError,
    GraphError,
    NotIdentifiedError,
    PositivityError,
    PositivityWarning,
    PyrofairError,
    PyrofairWarning,
)
from pyrofair.functionals import disagreement, effect_gap, interval_disagreement, piu_upper
from pyrofair.graph import CausalGraph
from pyrofair.identification import identify
from pyrofair.ipw import IPW
from pyrofair.paths import Regime, UnfairPaths
from pyrofair.penalty_path import PenaltyPath, penalty_path
from pyrofair.plots import plot_feasible_region
from pyrofair.potential_outcomes import CounterfactualSample, MarginalBounds, PotentialOutcomes, Scored
from pyrofair.tables import TableEncoder

__all__ = [
    "IPW",
    "Audit",
    "CausalGraph",
    "CounterfactualSample",
    "DataError",
    "Estimand",
    "FormulaNotApplicableError",
    "GraphError",
    "MarginalBounds",
    "NotIdentifiedError",
    "PIUBounds",
    "PenalizedClassifier",
    "PenaltyPath",
    "PositivityError",
    "PositivityWarning",
    "PotentialOutcomes",
    "PyrofairError",
    "PyrofairWarning",
    "Regime",
    "Scored",
    "TableEncoder",
    "UnfairPaths",
    "__version__",
    "audit",
    "datasets",
    "disagreement",
    "effect_gap",
    "feasible_interval",
    "identify",
    "interval_disagreement",
    "penalty_path",
    "piu_bounds",
    "piu_upper",
    "plot_feasible_region",
    "remove",
    "test_set_bound",
]
