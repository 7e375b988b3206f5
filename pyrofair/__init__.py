"""Path-specific causal fairness: audit and train classifiers against the unfair effects of a causal graph."""

from pyrofair import datasets, families, simulate
from pyrofair._version import __version__
from pyrofair.abduction import Abduction, abduct
from pyrofair.audit import Audit, audit
from pyrofair.baselines import remove
from pyrofair.bounds import PIUBounds, feasible_interval, piu_bounds, test_set_bound
from pyrofair.classifiers import PenalizedClassifier
from pyrofair.counterfactuals import Counterfactuals, SupposedWorld
from pyrofair.couplings import CouplingError
from pyrofair.distributions import OrderedCategorical
from pyrofair.effect_posteriors import EffectPosterior, effect_posterior
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
from pyrofair.gcomputation import GComputation
from pyrofair.graph import CausalGraph
from pyrofair.identification import identify
from pyrofair.interventions import InterventionError, do
from pyrofair.ipw import IPW
from pyrofair.mechanisms import LearnedLaws, learn_laws
from pyrofair.paths import Regime, UnfairPaths
from pyrofair.penalty_path import PenaltyPath, penalty_path
from pyrofair.plots import plot_feasible_region
from pyrofair.posterior_predictive import predictive
from pyrofair.posteriors import Posterior, fit_posterior
from pyrofair.potential_outcomes import CounterfactualSample, MarginalBounds, PotentialOutcomes, Scored
from pyrofair.pscf import PSCF
from pyrofair.pscf_truth import PSCFTruth
from pyrofair.sem import SEM
from pyrofair.tables import TableEncoder
from pyrofair.truth import Estimate, Truth

__all__ = [
    "IPW",
    "PSCF",
    "SEM",
    "Abduction",
    "Audit",
    "CausalGraph",
    "CounterfactualSample",
    "Counterfactuals",
    "CouplingError",
    "DataError",
    "EffectPosterior",
    "Estimand",
    "Estimate",
    "FormulaNotApplicableError",
    "GComputation",
    "GraphError",
    "InterventionError",
    "LearnedLaws",
    "MarginalBounds",
    "NotIdentifiedError",
    "OrderedCategorical",
    "PIUBounds",
    "PSCFTruth",
    "PenalizedClassifier",
    "PenaltyPath",
    "PositivityError",
    "PositivityWarning",
    "Posterior",
    "PotentialOutcomes",
    "PyrofairError",
    "PyrofairWarning",
    "Regime",
    "Scored",
    "SupposedWorld",
    "TableEncoder",
    "Truth",
    "UnfairPaths",
    "__version__",
    "abduct",
    "audit",
    "datasets",
    "disagreement",
    "do",
    "effect_gap",
    "effect_posterior",
    "families",
    "feasible_interval",
    "fit_posterior",
    "identify",
    "interval_disagreement",
    "learn_laws",
    "penalty_path",
    "piu_bounds",
    "piu_upper",
    "plot_feasible_region",
    "predictive",
    "remove",
    "simulate",
    "test_set_bound",
]
