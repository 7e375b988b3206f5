"""Causal graphs, their unfair paths, and the identification of both potential outcomes from observed data.

In come edges (a string, pairs, DOT, networkx); out go a :class:`CausalGraph`, its :class:`UnfairPaths` with the two
:class:`Regime` in which each node reads the sensitive attribute, and the printable :class:`Estimand` that
:func:`identify` derives from them, or the :class:`WaysOut` where there is none. Nothing here needs data, torch or Pyro.
"""

from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.identification import Estimand
from pyrofair.graph.identify import identify
from pyrofair.graph.paths import Regime, UnfairPaths
from pyrofair.graph.ways_out import Relabelling, WaysOut

__all__ = ["CausalGraph", "Estimand", "Regime", "Relabelling", "UnfairPaths", "WaysOut", "identify"]
