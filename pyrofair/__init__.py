"""Path-specific causal fairness: audit and train classifiers against the unfair effects of a causal graph.

Names are loaded when first used (PEP 562), so that a graph needs neither torch nor Pyro. What only specialists call is
in the folders: ``pyrofair.inference.abduct``, ``pyrofair.mechanisms.families``, ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyrofair._defaults import set_default
from pyrofair._lazy import when_used
from pyrofair._version import __version__
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

if TYPE_CHECKING:
    from pyrofair import (
        audits,
        classifiers,
        datasets,
        effects,
        graph,
        inference,
        mechanisms,
        persistence,
        programs,
        robustness,
        simulate,
        sources,
        tables,
    )
    from pyrofair.audits import (
        Audit,
        ContrastAudit,
        Decomposition,
        PenaltyPath,
        audit,
        audit_contrasts,
        decompose,
        penalty_path,
    )
    from pyrofair.classifiers import PSCF, PenalizedClassifier, remove
    from pyrofair.effects import (
        Crossed,
        DecisionsOf,
        ScoresOf,
        cross,
        disagreement,
        effect_gap,
        feasible_interval,
        from_one_hot,
        interval_disagreement,
        piu_bounds,
        piu_upper,
        test_set_bound,
    )
    from pyrofair.graph import CausalGraph, Estimand, Regime, UnfairPaths, identify
    from pyrofair.inference import Posterior, fit_posterior
    from pyrofair.mechanisms import LearnedMechanisms, learn_mechanisms
    from pyrofair.persistence import load, save
    from pyrofair.programs import CouplingError, InterventionError, do
    from pyrofair.robustness import (
        EdgeCosts,
        GraphsAudit,
        MilesBounds,
        Several,
        SharpBounds,
        audit_graphs,
        edge_costs,
        sensitivity,
        sharp_bounds,
    )
    from pyrofair.sources import IPW, SEM, Contrasts, GComputation, OneStep, effect_posterior
    from pyrofair.tables import sample_rows

_NAMES = {
    "audits": "Audit ContrastAudit Decomposition PenaltyPath audit audit_contrasts decompose penalty_path",
    "classifiers": "PSCF PenalizedClassifier remove",
    "datasets": "",
    "effects": "Crossed DecisionsOf ScoresOf cross disagreement effect_gap feasible_interval from_one_hot "
    "interval_disagreement piu_bounds piu_upper test_set_bound",
    "graph": "CausalGraph Estimand Regime UnfairPaths identify",
    "inference": "Posterior fit_posterior",
    "mechanisms": "LearnedMechanisms learn_mechanisms",
    "persistence": "load save",
    "programs": "CouplingError InterventionError do",
    "simulate": "",
    "robustness": "EdgeCosts GraphsAudit MilesBounds Several SharpBounds audit_graphs edge_costs sharp_bounds",
    "sources": "Contrasts GComputation IPW OneStep SEM effect_posterior",
    "tables": "sample_rows",
}
_MOVED = {
    "checks": "robustness.independences",
    "partial_identification": "robustness.partial_identification",
    "sensitivity": "robustness.sensitivity",
}
"""Parts of ``robustness`` that have a name on top: ``pf.sensitivity.confounding``."""

import_module("pyrofair._progress")  # in a notebook before Pyro, whose own import of tqdm may warn

set_default("source of audits", "pyrofair.sources.onestep:OneStep")
set_default("audit of each contrast", "pyrofair.audits.contrasts:audit_contrasts")
set_default("means in many worlds", "pyrofair.sources.walks:ManyWorlds")
set_default("check of a graph", "pyrofair.robustness.independences:check_graph")
set_default("source with proxies", "pyrofair.sources.disclosure:Disclosed")

__all__ = [
    "IPW",
    "PSCF",
    "SEM",
    "Audit",
    "CausalGraph",
    "ContrastAudit",
    "Contrasts",
    "CouplingError",
    "Crossed",
    "DataError",
    "DecisionsOf",
    "Decomposition",
    "EdgeCosts",
    "Estimand",
    "FormulaNotApplicableError",
    "GComputation",
    "GraphError",
    "GraphsAudit",
    "InterventionError",
    "LearnedMechanisms",
    "MilesBounds",
    "NotIdentifiedError",
    "OneStep",
    "PenalizedClassifier",
    "PenaltyPath",
    "PositivityError",
    "PositivityWarning",
    "Posterior",
    "PyrofairError",
    "PyrofairWarning",
    "Regime",
    "ScoresOf",
    "Several",
    "SharpBounds",
    "UnfairPaths",
    "__version__",
    "audit",
    "audit_contrasts",
    "audit_graphs",
    "audits",
    "classifiers",
    "cross",
    "datasets",
    "decompose",
    "disagreement",
    "do",
    "edge_costs",
    "effect_gap",
    "effect_posterior",
    "effects",
    "feasible_interval",
    "fit_posterior",
    "from_one_hot",
    "graph",
    "identify",
    "inference",
    "interval_disagreement",
    "learn_mechanisms",
    "load",
    "mechanisms",
    "penalty_path",
    "persistence",
    "piu_bounds",
    "piu_upper",
    "programs",
    "remove",
    "robustness",
    "sample_rows",
    "save",
    "sensitivity",
    "sharp_bounds",
    "simulate",
    "sources",
    "tables",
    "test_set_bound",
]


_of_folders, __dir__ = when_used(__name__, _NAMES, __all__)


def __getattr__(name: str) -> Any:
    return import_module(f"pyrofair.{_MOVED[name]}") if name in _MOVED else _of_folders(name)
