"""What each disputed edge costs: the interval of PIU with it, and in the graph from which it is absent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from pyrofair._progress import progress_bar
from pyrofair._validation import did_you_mean, shown
from pyrofair.audits.audit import Audit, audit
from pyrofair.audits.audit_view import graph_block
from pyrofair.audits.display.page import make_table
from pyrofair.audits.display.words import of_decisions, span
from pyrofair.audits.family import SCHEMA, FamilyAudit, Members, read_seed, require_unfitted, with_paths
from pyrofair.audits.view import Block, View
from pyrofair.effects.estimates import AUDITED, OF_WORLDS, Estimate, Key
from pyrofair.effects.influence import InfluenceBased
from pyrofair.effects.potential_outcomes import PotentialOutcomes
from pyrofair.exceptions import DataError, GraphError, NotIdentifiedError
from pyrofair.graph import CausalGraph, UnfairPaths
from pyrofair.graph.changes import into_from_below, split_column, without_edges
from pyrofair.graph.parse import read_path
from pyrofair.graph.paths import show_paths

__all__ = ["EdgeCosts", "edge_costs"]

Edge = tuple[str, str]

NOTHING = "(nothing)"
"""What is absent from the graph as it is."""
IDENTIFIED, NO_PATH, NOT_IDENTIFIED, REFUSED = "identified", "no unfair path left", "not identified", "refused"
ENDS = ("piu_lower", "piu_upper")
COLUMNS = [
    "absent", "model", "decisions", "status", "low", "high", "lower", "upper", "gain", "gain_lower", "gain_upper",
    "narrower", "narrower_lower", "narrower_upper", "effect", "unfair_paths", "becomes_shared", "note",
]  # fmt: skip
AT_A_KINK = "the {} end is within its sampling error of where the worlds change order: no interval of its change"
NO_INTERVAL = "the source has no influence values, so the gain has no interval; OneStep has them"
NO_EFFECT = "the effect is 0 by assumption, whatever the data"


@dataclass(frozen=True, eq=False, repr=False)
class EdgeCosts(FamilyAudit):
    """The result of :func:`edge_costs`; print it for a verdict in plain text.

    Attributes
    ----------
    table : DataFrame
        For each model and decisions the graph as it is, ``absent`` being ``"(nothing)"``, and then what was absent in
        the order of the gain, the largest first: status ("identified", "no unfair path left", "not identified" or
        "refused"); low and high, the interval of PIU; lower and upper, its ends moved out by their sampling error;
        gain, by how much the upper bound is smaller than in the graph as it is, and narrower, by how much the interval
        is, each with an interval (``_lower``, ``_upper``); effect, the mean unfair effect; unfair_paths, those that are
        left; becomes_shared, the nodes that both worlds share then, and before did not; note.
    unfair : dict
        For what was absent the unfair paths in the graph without it, ``.graph``, whose ``check(df)`` tests what its
        absence implies; None where no unfair path is left.
    audits : dict
        The audit of each graph.
    failures : dict
        Why a graph has no audit, an error; ``.way_out`` of one that is not identified is what can be done.
    context : dict
        rows, level, and the unfair paths.
    """

    key = "absent"

    @property
    def table(self) -> pd.DataFrame:
        """What each absence gains."""
        return self.overall

    def label(self, name: Any) -> str:
        """Return what is absent as texts have it."""
        return "the graph as it is" if name == NOTHING else f"without {name}"

    def _beside(self, model: str, decisions: str) -> dict[Any, str]:
        own = self.table[(self.table["model"] == model) & (self.table["decisions"] == decisions)]
        return {row["absent"]: _beside(row) for row in own.to_dict("records")}

    def _notes(self, rows: pd.DataFrame) -> str:
        return ""  # those of the gains hold them all

    def _told(self) -> View:
        paths = self.context["unfair"]
        lines = [
            line
            for name, error in self.failures.items()
            if isinstance(error, NotIdentifiedError) and error.way_out is not None
            for line in f"Without {name}:\n{error}".replace("\n", "\n  ").splitlines()
        ]
        gains = self.table.groupby(["model", "decisions"], sort=False)
        tables = [
            make_table(f"gains-{i}", f"{name}, {of_decisions(each)}: gains", _shown(own), own, note=_notes(own))
            for i, ((name, each), own) in enumerate(gains)
        ]
        return View(
            title="What each disputed edge costs",
            question=[
                "Does the decision depend on the unfair paths, and for how many individuals, without a disputed edge?",
                f"Judged were {self.context['rows']:,} individuals. Unfair: {show_paths(paths.paths)}.",
            ],
            lead=[
                f"What each disputed edge costs, on {self.context['rows']:,} rows; unfair: {show_paths(paths.paths)}.",
                "A line is about the graph without what it names: its verdict, and by how much PIU at most changes; in "
                f"brackets {self.context['level']:.0%} intervals.",
            ],
            blocks=[
                Block("gains", "What each absence gains", lines, tables),
                graph_block(paths),
            ],
            closing=[
                "That an edge is absent is an assumption. It implies independences that a table can contradict: "
                "costs.unfair[name].graph.check(df)."
            ],
            schema=SCHEMA,
            data=self._data,
        )


def _beside(row: Mapping[Any, Any]) -> str:
    """Return what stands beside the interval of a graph: the gain, or why there is none."""
    if np.isnan(row["high"]):
        return str(row["status"])
    if row["status"] == NO_PATH:
        return "no unfair path left: 0 by assumption"
    if np.isnan(row["gain"]):
        return ""
    shared = f"; {row['becomes_shared']} shared" if row["becomes_shared"] else ""
    sign = 1.0 if row["gain"] > 0.0 else -1.0
    gain, *ends = (100.0 * sign * row[each] for each in ("gain", "gain_lower", "gain_upper"))
    if gain < 0.05:
        return f"PIU at most: unchanged{shared}"
    interval = f" [{min(ends):.1f}, {max(ends):.1f}]" if np.isfinite(ends).all() else ""
    return f"PIU at most: {gain:.1f} points {'lower' if sign > 0.0 else 'higher'}{interval}{shared}"


def _notes(costs: pd.DataFrame) -> str:
    noted = costs[costs["note"] != ""]
    return " ".join(f"{name}: {note.rstrip('.')}." for name, note in zip(noted["absent"], noted["note"], strict=True))


def _shown(costs: pd.DataFrame) -> pd.DataFrame:
    """Return the gains of a model as texts."""

    def change(name: str) -> list[str]:
        own: Any = costs[[name, f"{name}_lower", f"{name}_upper"]].set_axis(
            ["estimate", "lower", "upper"], axis="columns"
        )
        return ["" if np.isnan(each.estimate) else span(each, points=True) for each in own.itertuples()]

    return pd.DataFrame(
        {
            "absent": costs["absent"],
            "status": costs["status"],
            "gain": change("gain"),
            "narrower": change("narrower"),
            "unfair paths left": costs["unfair_paths"],
            "shared then": costs["becomes_shared"],
        }
    )


def edge_costs(
    models: Mapping[str, Any],
    source: UnfairPaths | PotentialOutcomes | InfluenceBased,
    df: pd.DataFrame,
    disputed: Iterable[str | Sequence[str]] | None = None,
    *,
    level: float = 0.95,
    random_state: int | np.random.Generator | None = None,
    **settings: Any,
) -> EdgeCosts:
    """Audit models with each disputed edge absent from the graph, and return by how much the interval of PIU shrinks.

    Each is :func:`pyrofair.audit` in the graph without the edge, with one seed for all; paths along it are gone, all
    others stay on the side where they were. *Assumes* in each row that the graph without the edge is right. An edge
    whose absence gains little need not be argued over; the others are the questions for who knows the domain.

    Parameters
    ----------
    models
        As for :func:`pyrofair.audit`.
    source
        The unfair paths, for one-step estimates; or an unfitted source, which is cloned for each graph.
    df
        n rows with the graph's columns.
    disputed
        What might be absent, one at a time: an edge, ``"A -> M"`` or ``("A", "M")``, whose ends may be single columns
        of nodes of several, ``("A", "hours")``; or a column or node, ``"hours"``, of which is then absent whatever
        comes from the sensitive attribute and from all that it causes. A column of several is made a node of its own,
        which its node reads, so that nothing else is assumed. By default each edge out of the sensitive attribute, and
        each column of a node of several columns that it causes. Edges into the outcome are disputed for human
        decisions (``scores="outcome"``) only: what a classifier reads is known.
    level
        The level of the intervals, each for itself.
    random_state
        Seed of all audits.
    **settings
        As for :func:`pyrofair.audit`: ``threshold``, ``sample_weight``, ``scores``, ``n_boot``, ...

    Returns
    -------
    EdgeCosts
        A graph that cannot be audited has its reason, and the others go on. Intervals of gains compare both audits row
        by row; a source without influence values has none.

    Raises
    ------
    DataError
        If a setting, a model or the table is unfit; if what is disputed is not in the graph.
    NotIdentifiedError
        If the effect is identified neither in the graph nor in any without a disputed edge.

    Warns
    -----
    PyrofairWarning
        What the audits warn of, with what was absent.

    Examples
    --------
    >>> graph = CausalGraph("A -> M; A -> L; M -> L; {A M L} -> Y", sensitive="A", outcome="Y")
    >>> rng = np.random.default_rng(0)
    >>> A = rng.integers(2, size=2_000)
    >>> M = (rng.random(2_000) < 0.3 + 0.4 * A).astype(int)
    >>> df = pd.DataFrame({"A": A, "M": M, "L": (rng.random(2_000) < 0.3 + 0.4 * A).astype(int)})
    >>> class Model:
    ...     def predict_proba(self, X):
    ...         p = 0.1 + 0.3 * X["M"] + 0.5 * X["L"]
    ...         return np.column_stack([1 - p, p])
    >>> from pyrofair import OneStep
    >>> source = OneStep(graph.unfair(through="M"), propensity="saturated", regression="saturated")
    >>> costs = edge_costs({"model": Model()}, source, df, ["A -> M", ("M", "L")], random_state=0)
    >>> found = costs.table.query("decisions == 'score'").set_index("absent")
    >>> found["high"].round(1).to_dict()
    {'(nothing)': 0.8, 'A -> M': 0.0, 'M -> L': 0.5}
    >>> found.loc["M -> L", "becomes_shared"], found.loc["A -> M", "status"]
    ('L', 'no unfair path left')
    """
    seed = read_seed(df, random_state, settings, "edge_costs")
    require_unfitted(source, "graph")
    for name in ("thresholds", "subgroups"):
        if settings.get(name) is not None:
            raise DataError(f"{name} is for one audit; edge_costs reports the interval of PIU of each graph.")
    unfair: UnfairPaths = source if isinstance(source, UnfairPaths) else source.unfair
    named = None if disputed is None else [_read(unfair, each) for each in _listed(disputed)]
    given = [each.name for each in named or ()]
    if twice := next((name for name in given if given.count(name) > 1), None):
        raise DataError(f"disputed names {twice!r} more than once.")
    settings = {"level": level, "random_state": seed, **settings}

    def one(altered: UnfairPaths) -> Audit:
        return audit(models, with_paths(source, altered), df, **settings)

    members = Members("absent", _named)
    full = members.run(NOTHING, partial(one, unfair), (NotIdentifiedError,))
    outcome = full is not None and bool(models) and {*full.context.outcomes} == {*models}
    if outcome:
        settings["scores"] = "outcome"
    absences = _default(unfair, into_outcome=outcome) if named is None else named
    paths: dict[str, UnfairPaths | None] = {NOTHING: unfair}
    for each in progress_bar("absent edges", absences):
        if each.into_outcome and not outcome and settings.get("scores") != "outcome":
            members.failures[each.name] = DataError(
                f"what a classifier reads is known, not disputed: {each.name} is an edge into the outcome. Pass human "
                "decisions with scores='outcome', or audit a model that does not read the column."
            )
            continue
        paths[each.name] = each.absent_from
        if each.absent_from is not None:
            members.run(each.name, partial(one, each.absent_from))
    if not members.audits:
        raise next(iter(members.failures.values()))
    context = {"rows": len(df), "level": level, "unfair": unfair, "warnings": members.rewarn()}
    names = [NOTHING, *(each.name for each in absences)]
    first = next(iter(members.audits.values())).table
    zero = first[first["quantity"].isin((*ENDS, "mean_unfair_effect"))]
    zero = zero.assign(estimate=0.0, lower=0.0, upper=0.0, note=NO_EFFECT)
    parts = {name: each.table[each.table["quantity"].isin(OF_WORLDS)] for name, each in members.audits.items()}
    table = members.table(names, parts | {name: zero for name, each in paths.items() if each is None})
    costs = _costs(table, members, paths, len(df), level)
    order = {name: paths.get(name) for name in names}
    return EdgeCosts(table, costs, members.audits, members.failures, context, order)


def _named(names: Sequence[str]) -> str:
    listed = ", ".join("the graph as it is" if name == NOTHING else f"the graph without {name}" for name in names)
    return f"{listed[:1].upper()}{listed[1:]}"


# -- what is absent ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Absence:
    """Edges that might be absent, by name, and the unfair paths in the graph without them; None if there are none."""

    name: str
    absent_from: UnfairPaths | None
    into_outcome: bool = False


def _default(unfair: UnfairPaths, *, into_outcome: bool) -> list[_Absence]:
    graph = unfair.graph
    leading = {*graph.ancestors(graph.outcome), graph.outcome}
    edges = [(graph.sensitive, each) for each in graph.children(graph.sensitive) if each in leading]
    caused = [each for each in graph.descendants(graph.sensitive) if each in leading and each not in graph.latent]
    columns = [name for node in caused if len(graph.columns[node]) > 1 for name in graph.columns[node]]
    asked = [edge for edge in edges if into_outcome or edge[1] != graph.outcome]
    return [*(_absent_edge(unfair, edge) for edge in asked), *(_absent_node(unfair, name) for name in columns)]


def _listed(disputed: object) -> list[Any]:
    if isinstance(disputed, str | bytes | Mapping) or not isinstance(disputed, Iterable):
        raise DataError(f"disputed={shown(disputed)} must list edges and columns, such as ['A -> M', ('M', 'L')].")
    found = list(disputed)
    if not found:
        raise DataError("disputed is empty; leave it out for each edge out of the sensitive attribute.")
    return found


def _read(unfair: UnfairPaths, item: Any) -> _Absence:
    if isinstance(item, str) and "->" not in item and "→" not in item:
        return _absent_node(unfair, item)
    try:
        path = read_path(item)
    except GraphError as error:
        raise DataError(f"disputed: {error}") from error
    if len(path) != 2:
        raise DataError(f"disputed names {shown(item)}, which is a path; name one edge, such as 'A -> M'.")
    return _absent_edge(unfair, (path[0], path[1]))


def _absent_edge(unfair: UnfairPaths, edge: Edge) -> _Absence:
    """Return the paths without an edge, whose ends may be columns of nodes of several."""
    graph, ends = unfair.graph, []
    for name in edge:
        unfair, node = _split(unfair, name)
        ends.append(node)
    found = (ends[0], ends[1])
    if found not in unfair.graph.edges:
        known = ", ".join(" -> ".join(each) for each in graph.edges)
        raise DataError(f"disputed names {' -> '.join(edge)}, which is no edge of the graph. Its edges: {known}.")
    return _Absence(" -> ".join(edge), without_edges(unfair, [found]), found[1] == graph.outcome)


def _absent_node(unfair: UnfairPaths, name: str) -> _Absence:
    """Return the paths if nothing came to a column or node from the sensitive attribute and what it causes."""
    graph = unfair.graph
    node = _node(graph, name)
    if node == graph.outcome or node not in graph.descendants(graph.sensitive):
        what = "is the outcome" if node == graph.outcome else f"is not caused by {graph.sensitive!r}"
        raise DataError(f"disputed names {name!r}, which {what}; name a node or column that it causes, or an edge.")
    unfair, node = _split(unfair, name)
    edges = into_from_below(unfair.graph, node)
    tails = " ".join(tail for tail, _ in edges)
    return _Absence(f"{tails if len(edges) == 1 else f'{{{tails}}}'} -> {name}", without_edges(unfair, edges))


def _split(unfair: UnfairPaths, name: str) -> tuple[UnfairPaths, str]:
    """Return the node of a name, and the paths in a graph in which a column of several is a node of its own."""
    node = _node(unfair.graph, name)
    several = node != name and len(unfair.graph.columns[node]) > 1
    return split_column(unfair, name) if several else (unfair, node)


def _node(graph: CausalGraph, name: str) -> str:
    node = name if name in graph.nodes else graph.node_of.get(name)
    if node is None:
        known = [*graph.nodes, *(column for column in graph.node_of if column not in graph.nodes)]
        raise DataError(
            f"disputed names {shown(name)}, which is no node or column of the graph. These are: {', '.join(known)}."
            f"{did_you_mean(name, known)}"
        )
    return node


# -- the table --------------------------------------------------------------------------------------------------------


Ends = tuple[Estimate | None, Estimate | None]
"""The estimates of both bounds on PIU; None where a change of one has no interval."""


def _ends(own: Any, members: Members, n: int, name: str, model: str, decisions: str, level: float) -> dict[str, Any]:
    """Return the bounds on PIU in a graph, their limits, and the estimates of either of which a change has an interval.

    ``own`` are the quantities of a model and decisions there, by name.
    """
    low, high = (own.loc[each] for each in ENDS)
    found = {"low": low["estimate"], "high": high["estimate"], "lower": low["lower"], "upper": high["upper"]}
    found["effect"] = own.loc["mean_unfair_effect", "estimate"]
    one, error = members.audits.get(name), members.failures.get(name)
    notes, kinks, made = [low["note"], high["note"]], "", (None, None)  # type: list[str], str, Ends
    if error is not None:
        status = NOT_IDENTIFIED if isinstance(error, NotIdentifiedError) else REFUSED
    elif one is None:
        status, made = NO_PATH, (Estimate(0.0, np.zeros(n)), Estimate(0.0, np.zeros(n)))
    elif np.isnan([low["estimate"], high["estimate"]]).any():
        status, found = REFUSED, dict.fromkeys(found, np.nan)
        notes = [low["note"] or high["note"] or "it cannot be estimated"]
    else:
        made, kinks = _estimates(one, model, decisions, level)
        doubt = one.context.doubts.get(model, "")
        status, notes = IDENTIFIED, [*notes, kinks, doubt and f"in doubt: {doubt}"]
    return found | {"status": status, "estimates": made, "kinks": kinks, "note": _listing(notes)}


def _listing(notes: Sequence[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, notes)))


def _estimates(found: Audit, model: str, decisions: Any, level: float) -> tuple[Ends, str]:
    """Return the estimates of both bounds of which a change has an interval, and why one has none."""
    of, keys = found.context.estimates, [Key(AUDITED, model, decisions, quantity) for quantity in ENDS]
    if of is None or not {*keys} <= {*of.keys}:
        return (None, None), NO_INTERVAL if of is None else ""
    low, high = ((each, each.near_kink(level)) for each in map(of.of, keys))
    kinks = [AT_A_KINK.format(name) for name, (_, near) in (("lower", low), ("upper", high)) if near]
    return (None if low[1] else low[0], None if high[1] else high[0]), "; ".join(kinks)


def _costs(
    table: pd.DataFrame, members: Members, paths: Mapping[str, UnfairPaths | None], n: int, level: float
) -> pd.DataFrame:
    """Return what each absence gains, for each model and decisions the largest gain first."""
    before = paths[NOTHING]
    assert before is not None, "it has unfair paths"
    parts = []
    keys: Any = table[table["quantity"].isin((*ENDS, "mean_unfair_effect"))].groupby(["model", "decisions"], sort=False)
    for (model, decisions), of in keys:
        rows: list[dict[str, Any]] = []
        for name, own in of.groupby("absent", sort=False):
            row = {"absent": name, "model": model, "decisions": decisions, "gain": np.nan}
            row |= _ends(own.set_index("quantity"), members, n, name, model, decisions, level)
            if rows:
                row |= _gains(rows[0], row, level)
                row["note"] = _listing([row["note"], rows[0]["kinks"] if np.isfinite(row["gain"]) else ""])
            if (after := paths.get(name)) is not None:
                row |= {"unfair_paths": show_paths(after.paths), "becomes_shared": _new(before, after)}
            else:
                row |= {"unfair_paths": "none", "becomes_shared": "all"} if name in paths else {}
            rows.append(row)
        head, *rest = rows
        rest.sort(key=lambda row: (np.isnan(row["high"]), -row["gain"] if np.isfinite(row["gain"]) else row["high"]))
        parts += [head, *rest]
    found = pd.DataFrame(parts, columns=COLUMNS)
    return found.fillna({"unfair_paths": "", "becomes_shared": ""})


def _gains(full: Mapping[str, Any], own: Mapping[str, Any], level: float) -> dict[str, float]:
    """Return by how much the upper bound falls and the interval is narrower, with intervals."""
    found: dict[str, float] = {"gain": full["high"] - own["high"]}
    found["narrower"] = found["gain"] - (full["low"] - own["low"])
    low, high = (
        None if one is None or other is None else one - other
        for one, other in zip(full["estimates"], own["estimates"], strict=True)
    )
    width = None if low is None or high is None else high - low
    for name, change in (("gain", high), ("narrower", width)):
        if change is not None:
            found[f"{name}_lower"], found[f"{name}_upper"] = change.interval(level)
    return found


def _new(before: UnfairPaths, after: UnfairPaths) -> str:
    """Return the columns that both worlds share in a graph, and before did not, by nodes where these are whole."""
    known = {*before.graph.columns_of(before.shared)}
    return ", ".join(node for node in after.shared if not {*after.graph.columns_of([node])} <= known)
