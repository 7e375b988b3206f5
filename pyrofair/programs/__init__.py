"""A Pyro program read as structural equations, and evaluated in both worlds.

In comes a program of the number of units; its sites are read and checked, and each node's equation is evaluated by
``do`` on its parents with the exogenous noise shared. Out go tables of both worlds, under a named coupling.
"""

from pyrofair.programs.couplings import CouplingError
from pyrofair.programs.covariates import with_covariates
from pyrofair.programs.distributions import OrderedCategorical
from pyrofair.programs.interventions import InterventionError, do

__all__ = ["CouplingError", "InterventionError", "OrderedCategorical", "do", "with_covariates"]
