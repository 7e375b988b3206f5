"""Posteriors of a program's parameters, and of the exogenous noise of observed units.

In come a program and a table; out go a :class:`Posterior`, an :class:`Abduction` (the noise of given units), and
:class:`Counterfactuals`, which evaluate both worlds on that noise.
"""

from pyrofair.inference.abduction import Abduction, abduct
from pyrofair.inference.counterfactuals import Counterfactuals, CounterfactualWorld
from pyrofair.inference.posterior import Posterior, fit_posterior, predictive

__all__ = ["Abduction", "CounterfactualWorld", "Counterfactuals", "Posterior", "abduct", "fit_posterior", "predictive"]
