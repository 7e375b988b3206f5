"""Audits over several candidate graphs: effects and bounds in each, and the range over all of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pyrofair._random import seed_from
from pyrofair._validation import require_seed, shown
from pyrofair.audits.audit import Audit, audit
from pyrofair.audits.display import table_fragment
from pyrofair.exceptions import DataError, NotIdentifiedError, PositivityError
from pyrofair.graph import UnfairPaths

__all__ = ["GraphsAudit", "audit_graphs"]

OF_GRAPHS = ("p_y0", "p_ypi", "mean_unfair_effect", "piu_lower", "piu_upper", "piu_paper_bound")
"""The quantities that depend on the graph."""
KEY = ["model", "decisions", "quantity"]


@dataclass(frozen=True, eq=False, repr=False)
class GraphsAudit:
    """The result of :func:`audit_graphs`; print it for a reading in plain text.

    Attributes
    ----------
    table : DataFrame
        For each graph, model, decisions and quantity that depends on the graph: estimate, lower, upper, ess and note. A
        graph that could not be audited has NaN and the reason in note.
    union : DataFrame
        For each model, decisions and quantity over all graphs: smallest and largest estimate; lower and upper, the
        union of the intervals; and the graphs that have the two extremes. NaN where a graph could not be audited, for
        then no range covers it; ``without`` counts these.
    audits : dict
        The audit in each graph.
    failures : dict
        Why a graph could not be audited, an error; ``.way_out`` of one that is not identified is what can be done.
    """

    table: pd.DataFrame
    union: pd.DataFrame
    audits: Mapping[str, Audit]
    failures: Mapping[str, Exception]

    def __str__(self) -> str:
        lines = [f"{len(self.audits) + len(self.failures)} candidate graphs, {len(self.failures)} without an answer."]
        for name, error in self.failures.items():
            lines.append(f"  {name}: {getattr(error, 'cause', error)}")
        shown_table = self.table.drop(columns=["ess", "note"])
        lines += [shown_table.round(4).to_string(index=False), "Over all graphs:"]
        lines += [self.union.round(4).to_string(index=False)]
        lines.append(
            "If the right graph is among the candidates, the union of the intervals covers as each interval does."
        )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Audit in {len(self.audits) + len(self.failures)} graphs; print it for a reading>"

    def _repr_html_(self) -> str:
        return table_fragment("Over all candidate graphs", self.union)


def audit_graphs(
    models: Mapping[str, Any],
    candidates: Mapping[str, UnfairPaths],
    df: pd.DataFrame,
    *,
    random_state: int | np.random.Generator | None = None,
    **settings: Any,
) -> GraphsAudit:
    """Audit models in each of several candidate graphs, and return the range over all of them.

    Each is :func:`pyrofair.audit` with one-step estimates, with one seed for all. *Assumes* that the right graph is one
    of the candidates; then the union of the intervals, each at its level, covers the right value at least so often,
    without a correction for their number.

    Parameters
    ----------
    models
        As for :func:`pyrofair.audit`.
    candidates
        For the name of each graph its unfair paths, such as ``{name: graph.unfair(direct=True) for name, graph in
        CausalGraph.expand(...).items()}``.
    df
        n rows with the columns of all graphs.
    random_state
        Seed of all audits.
    **settings
        As for :func:`pyrofair.audit`: ``level``, ``threshold``, ``sample_weight``, ``scores``, ...

    Returns
    -------
    GraphsAudit

    Raises
    ------
    DataError
        If candidates is no dictionary of unfair paths; if no graph can be audited, the error of the first.

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> graphs = CausalGraph.expand("A -> {M L}; M - L; {M L} -> Y", sensitive="A", outcome="Y")
    >>> rng = np.random.default_rng(0)
    >>> A = rng.integers(2, size=400)
    >>> M = (rng.random(400) < 0.3 + 0.4 * A).astype(int)
    >>> df = pd.DataFrame({"A": A, "M": M, "L": rng.random(400) < 0.3 + 0.4 * M})
    >>> class Model:
    ...     def predict_proba(self, X):
    ...         p = 0.2 + 0.3 * X["M"] + 0.3 * X["L"]
    ...         return np.column_stack([1 - p, p])
    >>> paths = {name: graph.unfair(through="M") for name, graph in graphs.items()}
    >>> found = audit_graphs({"model": Model()}, paths, df, random_state=0)
    >>> sorted(found.failures)
    ['L -> M']
    """
    require_seed(random_state)
    seed = None if random_state is None else seed_from(random_state)
    if not isinstance(candidates, Mapping) or not candidates:
        raise DataError(f"candidates={shown(candidates)} must be a dictionary of unfair paths by the names of graphs.")
    for name, unfair in candidates.items():
        if not isinstance(unfair, UnfairPaths):
            raise DataError(f"candidates[{name!r}]={shown(unfair)} must be unfair paths, made by graph.unfair(...).")
    audits: dict[str, Audit] = {}
    failures: dict[str, Exception] = {}
    for name, unfair in candidates.items():
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                audits[name] = audit(models, unfair, df, random_state=seed, **settings)
        except (NotIdentifiedError, PositivityError, DataError) as error:
            failures[name] = error
        for each in caught:
            warnings.warn(f"{name}: {each.message}", each.category, stacklevel=2)
    if not audits:
        raise next(iter(failures.values()))
    return _joined(list(candidates), audits, failures)


def _joined(names: list[str], audits: dict[str, Audit], failures: dict[str, Exception]) -> GraphsAudit:
    first = next(iter(audits.values())).table
    asked = first[first["quantity"].isin(OF_GRAPHS)][KEY]
    parts = []
    for name in names:
        if name in failures:
            reason = str(getattr(failures[name], "cause", failures[name]))
            part = asked.assign(estimate=np.nan, lower=np.nan, upper=np.nan, ess=np.nan, note=reason)
        else:
            part = audits[name].table
            part = part[part["quantity"].isin(OF_GRAPHS)]
        parts.append(part.assign(graph=name))
    table = pd.concat(parts, ignore_index=True)[["graph", *KEY, "estimate", "lower", "upper", "ess", "note"]]
    rows = []
    for key, own in table.groupby(KEY, sort=False):
        row: dict[str, Any] = dict(zip(KEY, key, strict=True))
        known = not own["estimate"].isna().any()
        if known:
            estimate = own["estimate"].to_numpy(dtype=np.float64)
            low, high = int(estimate.argmin()), int(estimate.argmax())
            ends = own[["lower", "upper"]].isna().any(axis=None)
            row |= {
                "smallest": float(estimate[low]),
                "largest": float(estimate[high]),
                "lower": np.nan if ends else own["lower"].min(),
                "upper": np.nan if ends else own["upper"].max(),
                "smallest_in": own["graph"].iloc[low],
                "largest_in": own["graph"].iloc[high],
            }
        else:
            row |= dict.fromkeys(("smallest", "largest", "lower", "upper"), np.nan)
            row |= {"smallest_in": "", "largest_in": ""}
        rows.append(row | {"without": len(failures)})
    return GraphsAudit(table, pd.DataFrame(rows), audits, failures)
