"""Audits over several candidate graphs: effects or, where these are not identified, bounds, and the range over all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from pyrofair._progress import progress_bar
from pyrofair._validation import require_flag, require_integer, shown
from pyrofair.audits.audit import audit
from pyrofair.audits.display.page import make_table
from pyrofair.audits.display.words import between, of_decisions, percent, span
from pyrofair.audits.family import KEY, REFUSALS, SCHEMA, FamilyAudit, Members, read_seed
from pyrofair.audits.models import AuditedModel
from pyrofair.audits.view import Block, View
from pyrofair.effects.estimates import OF_WORLDS
from pyrofair.effects.scoring import Decisions
from pyrofair.exceptions import DataError, GraphError, NotIdentifiedError, PositivityError
from pyrofair.graph import UnfairPaths
from pyrofair.graph.paths import require_unfair, show_paths
from pyrofair.robustness.miles import MilesBounds
from pyrofair.robustness.partial_identification import SharpBounds, sharp_bounds
from pyrofair.robustness.several import require_agreement
from pyrofair.tables.reading import as_pandas

__all__ = ["GraphsAudit", "audit_graphs"]

COLUMNS = ["graph", *KEY, "estimate", "low", "high", "lower", "upper", "by", "ess", "note"]
ESTIMATE, SHARP, VALID, CLOSED = "estimate", "sharp bounds", "valid bounds", "closed-form bounds"
"""What a number is: an estimate of what is identified, or which bounds."""
BOUNDED = ("p_y0", "p_ypi", "mean_unfair_effect")
"""Quantities that bounds have; the bounds on PIU are those of its bounds."""
SHARP_NAMES = {
    "y0": "p_y0", "ypi": "p_ypi", "effect": "mean_unfair_effect",
    "low_from": "lower", "low_to": "lower_to", "high_from": "upper_from", "high_to": "upper",
}  # fmt: skip
"""Rows and columns of the table of sharp bounds, as they are named here."""
LABELS = {
    "p_y0": "P(Y0 = 1)",
    "p_ypi": "P(Ypi = 1)",
    "mean_unfair_effect": "mean unfair effect",
    "piu_lower": "PIU at least",
    "piu_upper": "PIU at most",
    "piu_paper_bound": "the paper's bound",
}
POINT = 1e-6
"""Ends that are nearer to each other are one value."""
N_BOOT = 200


@dataclass(frozen=True, eq=False, repr=False)
class GraphsAudit(FamilyAudit):
    """The result of :func:`audit_graphs`; print it for a verdict in plain text.

    Attributes
    ----------
    table : DataFrame
        For each graph, model, decisions and quantity that depends on the graph: estimate; low and high, the ends of
        what it can be, which are the estimate where the effect is identified; lower and upper, which hold them; ``by``:
        "estimate", or "sharp bounds", "valid bounds" (too wide, perhaps) or "closed-form bounds" where the effect is
        not identified; ess and note. A graph without an answer has NaN and the reason in note.
    union : DataFrame
        For each model, decisions and quantity over all graphs: smallest, the least of ``low``, and largest, that of
        ``high``; lower and upper, the union of the intervals; and the graphs that have the two extremes. NaN where a
        graph has no answer, for then no range covers it; ``without`` counts these.
    audits : dict
        The audit in each graph whose effect is identified.
    bounds : dict
        For each other graph that has them the bounds by model and decisions: :class:`~pyrofair.SharpBounds`, or the
        table of ends of :class:`~pyrofair.MilesBounds`.
    failures : dict
        Why a graph could not be audited, an error; ``.way_out`` of one that is not identified is what can be done.
    """

    bounds: Mapping[str, Mapping[tuple[str, str], Any]]
    key = "graph"

    @property
    def union(self) -> pd.DataFrame:
        """The range of each quantity over all graphs."""
        return self.overall

    def _beside(self, model: str, decisions: str) -> dict[Any, str]:
        own = self.table[(self.table["model"] == model) & (self.table["quantity"] == "piu_upper")]
        how = {name: by for name, by in zip(own["graph"], own["by"], strict=True) if by}
        return super()._beside(model, decisions) | how

    def _short(self, model: str, decisions: str) -> list[str]:
        own = self.union[(self.union["model"] == model) & (self.union["decisions"] == decisions)]
        low, high = (own[own["quantity"] == each].iloc[0] for each in ("piu_lower", "piu_upper"))
        if np.isnan([low["smallest"], high["largest"]]).any():
            return ["", f"{model}, over all graphs: no range, because a graph has no answer."]
        ends = f"[{percent(low['lower'])}, {percent(high['upper'])}]"
        return ["", f"{model}, over all graphs: PIU {between(low['smallest'], high['largest'])} {ends}."]

    def _told(self) -> View:
        without = [name for name in self.failures if name not in self.bounds]
        lead = [f"{len(self.unfair)} candidate graphs, {len(without)} without an answer."]
        for name, error in self.failures.items():
            bounded = " Bounds are given." if name in self.bounds else ""
            lead.append(f"  {name}: {getattr(error, 'cause', error)}{bounded}")
        tables = [
            make_table(f"union-{decisions}", f"The range over all graphs, {of_decisions(decisions)}", _shown(own), own)
            for decisions, own in self.union.groupby("decisions", sort=False)
        ]
        right = "If the right graph is among the candidates, the union of the intervals covers as each interval does."
        return View(
            title="Audits in candidate graphs",
            question=[
                "Does the decision depend on the unfair paths, and for how many individuals, whichever graph is right?",
                f"Judged were {self.context['rows']:,} individuals.",
                *(f"{name}: unfair {show_paths(each.paths)}." for name, each in self.unfair.items() if each),
            ],
            lead=lead,
            blocks=[Block("union", "Over all graphs", [right], tables)],
            schema=SCHEMA,
            data=self._data,
        )


def _shown(union: pd.DataFrame) -> pd.DataFrame:
    """Return the union as texts."""
    ends: Any = union.rename(columns={"smallest": "low", "largest": "high"}).assign(estimate=np.nan)
    spans = [span(each, points=each.quantity == "mean_unfair_effect") for each in ends.itertuples()]
    names = {"smallest_in": "smallest in", "largest_in": "largest in", "without": "graphs without"}
    shown = union[["model", "quantity", *names]].rename(columns=names)
    shown["quantity"] = shown["quantity"].map(LABELS)
    shown.insert(2, "smallest to largest", spans)
    return shown


def audit_graphs(
    models: Mapping[str, Any],
    candidates: Mapping[str, UnfairPaths],
    df: pd.DataFrame,
    *,
    bounds: bool = True,
    random_state: int | np.random.Generator | None = None,
    **settings: Any,
) -> GraphsAudit:
    """Audit models in each of several candidate graphs, and return the range over all of them.

    Each is :func:`pyrofair.audit` with one-step estimates, with one seed for all; or, where the effect is not
    identified, bounds. *Assumes* that the right graph is one of the candidates; then the union of the intervals, each
    at its level, covers the right value at least so often, without a correction for their number.

    Parameters
    ----------
    models
        As for :func:`pyrofair.audit`.
    candidates
        For the name of each graph its unfair paths, such as ``{name: graph.unfair(direct=True) for name, graph in
        CausalGraph.expand(...).items()}``.
    df
        n rows with the columns of all graphs.
    bounds
        Whether to bound what is not identified: by :func:`pyrofair.sharp_bounds` where the table has few levels, else
        by :class:`pyrofair.MilesBounds` where the graph is of its form. Neither takes scores that are an outcome. Of a
        model that gives decisions alone, these have bounds.
    random_state
        Seed of all audits and bounds.
    **settings
        As for :func:`pyrofair.audit`: ``level``, ``threshold``, ``sample_weight``, ``scores``, ``subgroups``, whose
        table is in each of ``audits``, ...; ``n_boot``
        replicates (200) also make the intervals of sharp bounds, about a tenth of a second each, or none (0).

    Returns
    -------
    GraphsAudit

    Raises
    ------
    DataError
        If candidates is no dictionary of unfair paths; if their graphs have other sensitive attributes, outcomes or
        labels; if no graph has an answer, the error of the first.

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
    >>> found = audit_graphs({"model": Model()}, paths, df, n_boot=0, random_state=0)
    >>> sorted(found.failures)
    ['L -> M']
    >>> high = found.table.query("decisions == 'score' and quantity == 'piu_upper'").set_index("graph")
    >>> high[["high", "by"]].round(1).to_dict("index")
    {'M -> L': {'high': 1.0, 'by': 'estimate'}, 'L -> M': {'high': 0.7, 'by': 'sharp bounds'}}
    """
    seed = read_seed(df, random_state, settings, "audit_graphs")
    require_flag("bounds", bounds)
    require_integer("n_boot", settings.get("n_boot", N_BOOT), least=0)
    if not isinstance(candidates, Mapping) or not candidates:
        raise DataError(f"candidates={shown(candidates)} must be a dictionary of unfair paths by the names of graphs.")
    for name, unfair in candidates.items():
        require_unfair(f"candidates[{name!r}]", unfair)
    why = "The candidates answer one question in several graphs, which must agree on it; audit other questions apart."
    require_agreement(candidates, _asked, why)
    members = Members("graph", lambda names: f"The graph{'s' if len(names) > 1 else ''} {', '.join(names)}")
    found: dict[str, dict[tuple[str, str], Any]] = {}
    reasons: dict[str, str] = {}
    for name, unfair in progress_bar("graphs", candidates.items()):
        members.run(name, partial(audit, models, unfair, df, random_state=seed, **settings))
        if bounds and isinstance(members.failures.get(name), NotIdentifiedError):
            with members.listening(name):
                try:
                    found[name], reasons[name] = _bound(models, unfair, df, seed, settings)
                except REFUSALS as error:
                    members.failures[name] = error
    found = {name: each for name, each in found.items() if each}
    if not members.audits and not found:
        raise next(iter(members.failures.values()))
    context = {"rows": len(df), "level": settings.get("level", 0.95), "warnings": members.rewarn()}
    parts = {name: _rows_of_bounds(each) for name, each in found.items()}
    for name, each in members.audits.items():
        part = each.table[each.table["quantity"].isin(OF_WORLDS)]
        parts[name] = part.assign(low=part["estimate"], high=part["estimate"], by=ESTIMATE)
    table = members.table(list(candidates), parts, reasons)
    table = table.assign(by=table["by"].fillna(""))[COLUMNS]
    return GraphsAudit(table, _union(table), members.audits, members.failures, context, dict(candidates), found)


def _asked(unfair: UnfairPaths) -> dict[str, Any]:
    """Return which groups and decisions are compared: no range covers answers to different questions."""
    graph, values = unfair.graph, (unfair.graph.baseline, unfair.graph.contrast)
    return {
        "sensitive attribute": graph.sensitive_column,
        "baseline and contrast": values[::-1] if unfair.swapped else values,
        "outcome": graph.outcome_column,
        "positive outcome": graph.positive,
    }


# -- bounds -----------------------------------------------------------------------------------------------------------


def _bound(
    models: Mapping[str, Any], unfair: UnfairPaths, df: pd.DataFrame, seed: int | None, settings: Mapping[str, Any]
) -> tuple[dict[tuple[str, str], Any], str]:
    """Return the bounds of each model and decisions in a graph, and why one has none."""
    found: dict[tuple[str, str], Any] = {}
    reasons: dict[str, None] = {}
    if settings.get("scores") == "outcome":
        return found, "an outcome has no bounds here; pf.sharp_bounds(unfair, df) has those of the outcome column"
    df = as_pandas(df)
    for name, model in models.items():
        for decisions in AuditedModel(name, model, unfair.graph, ()).decisions:
            for bound in (_sharp, _closed_form):
                try:
                    found[name, decisions] = bound(model, unfair, df, decisions, seed, settings)
                    break
                except (DataError, NotIdentifiedError, PositivityError) as error:
                    reasons[f"no bounds: {error}"] = None
                except GraphError:  # the closed form is for one graph, which is no news
                    continue
    return found, "; ".join(reasons)


def _sharp(
    model: Any, unfair: UnfairPaths, df: pd.DataFrame, decisions: Decisions, seed: int | None, settings: Any
) -> SharpBounds:
    names = ("sample_weight", "groups", "threshold", "level", "missing")
    own = {name: settings[name] for name in names if name in settings}
    return sharp_bounds(
        unfair, df, model, decisions=decisions, n_boot=settings.get("n_boot", N_BOOT), random_state=seed, **own
    )


def _closed_form(
    model: Any, unfair: UnfairPaths, df: pd.DataFrame, decisions: Decisions, seed: int | None, settings: Any
) -> pd.DataFrame:
    if settings.get("groups") is not None:
        raise DataError("the closed form takes each row for a unit, and groups= are the units")
    source = MilesBounds(unfair).fit(df, sample_weight=settings.get("sample_weight"))
    own = {"decisions": decisions, "threshold": settings.get("threshold", 0.5)}
    ends = source.bounds(model, **own)
    wide = source.bounds(model, level=settings.get("level", 0.95), random_state=seed, **own)
    names = {"lower": "low", "upper": "high"}
    return ends.rename(columns=names).join(wide)


def _rows_of_bounds(bounds: Mapping[tuple[str, str], Any]) -> pd.DataFrame:
    """Return the rows of a graph's bounds: the ends of each quantity, and what holds these."""
    rows = []
    for (model, decisions), each in bounds.items():
        key = {"model": model, "decisions": decisions}
        rows += [key | {"quantity": quantity} | row for quantity, row in _quantities(each).items()]
    return pd.DataFrame(rows)


def _quantities(bounds: SharpBounds | pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return by quantity the columns of the table."""
    by, why = CLOSED, ""
    ends: Any = bounds
    if isinstance(bounds, SharpBounds):
        by, why = SHARP if bounds.sharp else VALID, " ".join(bounds.why_not_sharp)
        ends = bounds.table.rename(SHARP_NAMES, axis="index").rename(SHARP_NAMES, axis="columns")
    of = ends.reindex(columns=["low", "high", "lower", "upper", "lower_to", "upper_from"]).to_dict("index")
    note = "; ".join(filter(None, ["not identified", why]))
    found: dict[str, dict[str, Any]] = {}
    for quantity in BOUNDED:
        row = {name: of[quantity][name] for name in ("low", "high", "lower", "upper")}
        found[quantity] = {"estimate": row["low"] if row["high"] - row["low"] <= POINT else np.nan} | row
    piu = of["piu"]
    for quantity, end, limits in (
        ("piu_lower", piu["low"], (piu["lower"], piu["lower_to"])),
        ("piu_upper", piu["high"], (piu["upper_from"], piu["upper"])),
        ("piu_paper_bound", np.nan, (np.nan, np.nan)),
    ):
        found[quantity] = dict(
            zip(("estimate", "low", "high", "lower", "upper"), (end, end, end, *limits), strict=True)
        )
    for quantity, row in found.items():
        known = quantity in BOUNDED and np.isfinite(row["estimate"])
        row |= {"by": by, "ess": np.nan, "note": "" if known else note}
    found["piu_paper_bound"] |= {"by": "", "note": "it is made of marginals, which are not identified"}
    return found


# -- the range --------------------------------------------------------------------------------------------------------


def _union(table: pd.DataFrame) -> pd.DataFrame:
    """Return the range of each model, decisions and quantity over all graphs."""
    rows = []
    for key, own in table.groupby(KEY, sort=False):
        row: dict[str, Any] = {**dict(zip(KEY, key, strict=True)), "smallest_in": "", "largest_in": ""}
        row["without"] = int(own["low"].isna().sum())
        if not row["without"]:
            low, high = own.iloc[own["low"].argmin()], own.iloc[own["high"].argmax()]
            row |= {"smallest": low["low"], "smallest_in": low["graph"], "lower": own["lower"].min(skipna=False)}
            row |= {"largest": high["high"], "largest_in": high["graph"], "upper": own["upper"].max(skipna=False)}
        rows.append(row)
    ends = ["smallest", "largest", "lower", "upper"]
    return pd.DataFrame(rows, columns=[*KEY, *ends, "smallest_in", "largest_in", "without"])
