"""Audits as data for JSON: every table, verdict and setting, NaN as null."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pyrofair._version import __version__
from pyrofair.audits.verdicts import read_levels, read_thresholds

if TYPE_CHECKING:
    from pyrofair.audits.audit import Audit

__all__ = ["SCHEMA_VERSION", "audit_data", "known_versions", "plain"]

SCHEMA_VERSION = 2
"""The version of the layout: a key that changes its meaning, or goes, raises it; a new key does not."""

LISTED = 1_000
"""The most paths that are listed."""
PACKAGES = ("numpy", "pandas", "scikit-learn", "scipy", "torch", "pyro-ppl")
KEPT = (
    "rows", "level", "threshold", "replicates", "failed", "paired", "swapped", "unnamed", "untouched", "outcomes",
    "score_types", "resampling", "form", "doubts", "largest_z", "stage_lines", "failure",
)  # fmt: skip
"""What JSON takes from the context as it is."""
OF_GRAPH = (
    "sensitive", "sensitive_column", "baseline", "contrast", "labels", "outcome", "outcome_column", "positive", "nodes",
    "edges", "latent", "columns",
)  # fmt: skip
TABLES = (
    "table", "groups", "stages", "thresholds", "subgroups", "overlap", "rates", "missing", "disclosure",
)  # fmt: skip
"""Tables of the audit, or of its context."""


def known_versions() -> dict[str, str]:
    """Return the versions of Python, pyrofair and the packages that numbers depend on."""
    found = {"python": platform.python_version(), "pyrofair": __version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def audit_data(audit: Audit, rows: bool) -> dict[str, Any]:
    """Return what JSON holds of an audit; with ``rows`` also its draws and influence values, a list for each column."""
    context = audit.context
    paths = context.paths
    graph = context.graph
    verdicts: dict[str, tuple[Mapping[Any, Any], tuple[str, ...]]] = {
        "models": (audit.read(), ("model", "decisions")),
        "thresholds": (read_thresholds(audit.thresholds, context), ("model", "threshold")),
        "subgroups": (read_levels(audit.subgroups, context), ("subgroup", "level", "model")),
    }  # fmt: skip
    found: dict[str, Any] = {
        "versions": context.versions,
        "settings": context.settings,
        "source": context.source,
        "question": {
            **{name: getattr(graph, name) for name in OF_GRAPH},
            "unfair_paths": paths.paths[:LISTED],
            "n_unfair_paths": paths.paths.size,
            "fair_paths": paths.fair_paths[:LISTED],
            "n_fair_paths": paths.fair_paths.size,
        },
        "verdicts": {
            of: [dict(zip(names, key, strict=True)) | each.as_json() for key, each in found.items()]
            for of, (found, names) in verdicts.items()
        },
        "tables": {name: _records(getattr(audit if hasattr(audit, name) else context, name)) for name in TABLES},
        "sections": {
            each.name: {
                "title": each.title,
                "lines": each.folded or each.lines,
                "tables": [_records(table.source) for table in (*each.tables, *each.pictures)],
            }
            for each in context.sections
        },
        "assumptions": [context.units, *context.assumptions],
        "outcome_assumptions": context.outcome_assumptions,
        "warnings": context.warnings,
        "context": {name: getattr(context, name) for name in KEPT},
    }
    if rows:
        found["draws"] = _by_column(audit.draws)
        found["influence"] = _by_column(audit.influence)
    return found


def plain(value: Any) -> Any:
    """Return a value as JSON holds it: numbers, texts, lists and dictionaries; what is missing or infinite is None."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Mapping):
        return {_key(key): plain(each) for key, each in value.items()}
    if isinstance(value, pd.DataFrame):
        return _records(value)
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Iterable):
        return [plain(each) for each in value]
    return None if pd.isna(value) else str(value)


def _key(key: Any) -> str:
    return " | ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): plain(value) for name, value in row.items()} for row in table.to_dict("records")]


def _by_column(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return for each column its labels by level and its values."""
    names = [str(name) for name in table.columns.names]
    return [
        {**dict(zip(names, map(plain, label), strict=True)), "values": plain(table[label].to_numpy())}
        for label in (table.columns if len(table) else ())
    ]
