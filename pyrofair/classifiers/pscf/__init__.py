"""Path-specific counterfactual fairness (PSCF; Chiappa, 2019) by variational inference.

In come unfair paths and a table; a latent-variable model of the graph is fitted, and predictions replay each unit with
the unfair paths switched off.
"""

from pyrofair.classifiers.pscf.classifier import PSCF
from pyrofair.classifiers.pscf.truth import PSCFTruth

__all__ = ["PSCF", "PSCFTruth"]
