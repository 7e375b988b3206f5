"""Checks of a causal graph on a table: the conditional independences that it implies, and those that fail.

In come a graph and a table with its columns; out goes a :class:`GraphCheck`, a test for each pair of nodes that the
graph separates, with an effect size and p-values corrected for their number.
"""

from pyrofair.checks.independences import GraphCheck, Independence, check_graph, implied_independences

__all__ = ["GraphCheck", "Independence", "check_graph", "implied_independences"]
