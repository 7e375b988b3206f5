"""Simulations with known ground truth: the paper's scenarios as Pyro programs, and studies of methods on them.

In come scenarios (names, or programs of one's own with unfair paths), methods, sizes and seeds; out goes a
:class:`Study`, with the truth of each fitted model. :class:`Scenario` has the program, graph, unfair paths and draws.
"""

from pyrofair.simulate.methods import METHODS, Method, method
from pyrofair.simulate.scenarios import Scenario, additive, hiring, latent, scenario
from pyrofair.simulate.study import Study, study

__all__ = ["METHODS", "Method", "Scenario", "Study", "additive", "hiring", "latent", "method", "scenario", "study"]
