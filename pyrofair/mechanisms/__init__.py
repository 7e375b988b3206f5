"""Conditional distributions learned from a table, as a Pyro program.

In come a table and a graph; out go :class:`LearnedMechanisms`: a distribution of each node given its parents, with
draws of its parameters and diagnostics of its fit. :mod:`pyrofair.mechanisms.families` lists the distributions.
"""

from pyrofair.mechanisms import families
from pyrofair.mechanisms.learn import LearnedMechanisms, learn_mechanisms

__all__ = ["LearnedMechanisms", "families", "learn_mechanisms"]
