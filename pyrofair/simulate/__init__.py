"""Scenarios with known ground truth: the simulations of the paper as Pyro programs.

In comes the name of a scenario, and parameters other than the paper's; out goes a :class:`Scenario` with its program,
graph, unfair paths and draws.
"""

from pyrofair.simulate.scenarios import Scenario, additive, hiring, latent, scenario

__all__ = ["Scenario", "additive", "hiring", "latent", "scenario"]
