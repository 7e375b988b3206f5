"""What remains when an assumption fails: bounds, sensitivity, limited switching, checks of a graph, candidate graphs.

In come fitted models, unfair paths and a table, as an audit takes them; out come bounds where the effect is not
identified, sweeps over the strength of a violation, tests of what a graph implies, and audits of other graphs than the
one drawn. The core never imports this folder.
"""

from pyrofair.robustness.edges import EdgeCosts, edge_costs
from pyrofair.robustness.graphs import GraphsAudit, audit_graphs
from pyrofair.robustness.independences import GraphCheck, Independence, check_graph, implied_independences
from pyrofair.robustness.miles import MilesBounds
from pyrofair.robustness.partial_identification import SharpBounds, sharp_bounds
from pyrofair.robustness.several import Several

__all__ = [
    "EdgeCosts",
    "GraphCheck",
    "GraphsAudit",
    "Independence",
    "MilesBounds",
    "Several",
    "SharpBounds",
    "audit_graphs",
    "check_graph",
    "edge_costs",
    "implied_independences",
    "sharp_bounds",
]
