"""The result of a decomposition: tables, a text of a few lines, a picture, a page, and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from pyrofair._validation import require_choice
from pyrofair.audits.audit_view import RIGHT_GRAPH, figure_markup, tracks_markup
from pyrofair.audits.contrasts import POPULATION, Levels
from pyrofair.audits.display.export import known_versions
from pyrofair.audits.display.page import Table, make_table
from pyrofair.audits.display.tracks import Panel as Tracks
from pyrofair.audits.display.tracks import of_parts, scale_of
from pyrofair.audits.display.words import Answer, percent, points, shorten
from pyrofair.audits.family import Members
from pyrofair.audits.parts import CONFOUNDING, FAIR_PATHS, GAP, TOTAL, UNFAIR_PATHS, Means, Plan
from pyrofair.audits.view import PARTS, Block, Report, View
from pyrofair.graph import CausalGraph
from pyrofair.graph.svg import graph_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pyrofair.audits.waterfall import Panel

__all__ = ["WORLDS", "Decomposition"]

WHOLE = (GAP, TOTAL, UNFAIR_PATHS, FAIR_PATHS)
"""The rows of the table that are sums of parts."""
NO_VERDICT = "A part is not a verdict: you say which paths are unfair. Confounding does not mean no discrimination."
BY_ORDER = (
    "A part depends on what is switched before it. It is the average over all orders; 'by order' are the smallest and "
    "the largest."
)
WORLDS = "A world is named by where its switched paths begin: these have the contrast, all others the baseline."
TOLD = ("settings", "level", "rows", "unfair", "notes", "doubts", "assumptions", "warnings")
TABLES = ("table", "contrasts", "means", "differences", "subgroups", "stages")
MOST_PARTS = 7
"""The most parts that the text lists of a model."""


@dataclass(frozen=True, eq=False, repr=False)
class Decomposition(Report):
    """The result of :func:`decompose`; print it for a few lines a model.

    Attributes
    ----------
    table : DataFrame
        For each model, decisions and part: estimate, lower, upper, the smallest and the largest over orders, and the
        share of the gap, NaN where the gap's interval holds 0. The parts are "confounding" and one for each first edge,
        or for those that cannot be told apart; they add up to "gap", and without confounding to "total effect".
        Intervals of parts hold together.
    contrasts : DataFrame
        What each part adds after every set of others; all intervals of a model and decisions hold together.
    means : DataFrame
        The mean in each world and group, with its effective size in rows.
    differences : DataFrame
        Where the observed outcome was split as well: what each part of a model is beyond that of the outcome.
    subgroups : DataFrame
        With ``subgroups``: the parts in each of their levels.
    stages : DataFrame
        The diagnostics of each world's stages by model and decisions, as those of :class:`pyrofair.Audit`.
    unfair : tuple of str
        The parts whose paths were called unfair.
    levels, failures : dict
        If several levels are compared with the baseline: the decomposition of each, and why a level has none. All
        tables begin with a column contrast then, and every interval holds at once for all levels.
    notes, doubts, assumptions, warnings
        What could not be told apart, or was left out, and why; why the numbers of a model are in doubt; what the
        numbers depend on; what was warned of.

    See Also
    --------
    decompose : Makes it.
    """

    table: pd.DataFrame
    contrasts: pd.DataFrame
    means: pd.DataFrame
    differences: pd.DataFrame
    subgroups: pd.DataFrame
    stages: pd.DataFrame
    graph: CausalGraph
    plan: Plan | None
    unfair: tuple[str, ...]
    outcome: str | None
    roots: tuple[str, ...]
    rows: int
    level: float
    threshold: float
    settings: Mapping[str, Any]
    notes: tuple[str, ...]
    doubts: Mapping[str, str]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    swapped: bool = False
    estimates: Means | None = None
    levels: Mapping[Any, Decomposition] = field(default_factory=dict)
    failures: Mapping[Any, Exception] = field(default_factory=dict)
    sizes: Mapping[Any, int] = field(default_factory=dict)

    @classmethod
    def of_levels(cls, levels: Mapping[Any, Decomposition], compared: Levels, members: Members) -> Decomposition:
        """Return the decompositions of the levels that are compared with the baseline as one."""

        def every(name: str) -> tuple[str, ...]:
            return tuple(dict.fromkeys(text for one in levels.values() for text in getattr(one, name)))

        tables = {
            name: pd.concat([getattr(one, name).assign(contrast=key) for key, one in levels.items()], ignore_index=True)
            for name in TABLES
        }
        named = compared.graph.named
        notes = [f"{named(key)!r} could not be split: {why}" for key, why in members.failures.items()]
        for text in every("notes"):
            of = [repr(named(key)) for key, one in levels.items() if text in one.notes]
            notes.append(text if len(of) == len(levels) else f"{', '.join(of)}: {text}")
        made = {name: table[["contrast", *table.columns.drop("contrast")]] for name, table in tables.items()}
        return replace(
            next(iter(levels.values())),
            **made,
            graph=compared.graph,
            plan=None,
            unfair=every("unfair"),
            outcome=next(filter(None, (one.outcome for one in levels.values())), None),
            rows=len(compared.table),
            notes=tuple(notes),
            doubts={f"{of}, {named(key)!r}": text for key, one in levels.items() for of, text in one.doubts.items()},
            assumptions=every("assumptions"),
            warnings=tuple(members.rewarn(stacklevel=5)),
            estimates=None,
            levels=levels,
            failures=members.failures,
            sizes=compared.sizes,
        )

    def _told(self, decisions: Any = "threshold") -> list[tuple[Decomposition, tuple[str, Any]]]:
        """Return each model and its decisions, with the decomposition of each level, or with this one."""
        each = [*self.levels.values()] or [self]
        return [(one, pair) for pair in self._pairs(decisions) for one in each if pair in one._pairs(decisions)]

    # -- one model ----------------------------------------------------------------------------------------------------

    def _pairs(self, decisions: Any) -> list[tuple[str, Any]]:
        """Return each model with the decisions asked for, or those that it has."""
        found: dict[str, Any] = {}
        for model, own in self.table.groupby("model", sort=False):
            known = list(dict.fromkeys(own["decisions"]))
            found[str(model)] = decisions if decisions in known else known[0]
        return list(found.items())

    def _of(self, pair: tuple[str, Any]) -> pd.DataFrame:
        return _rows_of(self.table, pair).set_index("part", drop=False)

    def _parts(self, pair: tuple[str, Any]) -> pd.DataFrame:
        return self._of(pair).drop(index=[*WHOLE], errors="ignore")

    def _labels(self) -> tuple[str, str]:
        """Return the labels of the group that is compared with, and of the other one."""
        one, other = (str(self.graph.named(self.graph.label(int(value != self.swapped)))) for value in (0, 1))
        return one, other

    def _word(self, part: str) -> str:
        if part != CONFOUNDING:
            return part
        return f"confounding ({', '.join(self.roots)})" if self.roots else "confounding (no common cause)"

    def _what(self, pair: tuple[str, Any]) -> str:
        if pair[0] == self.outcome:
            return f"the observed {self.graph.outcome_column}"
        if pair[1] == "score":
            return f"mean score of {pair[0]!r}"
        return f"decisions of {pair[0]!r} (score above {self.threshold if pair[1] == 'threshold' else pair[1]:g})"

    def _group_means(self, pair: tuple[str, Any]) -> tuple[float, float]:
        by = _rows_of(self.means, pair).set_index("mean")["estimate"]
        return float(by["group 0"]), float(by["group 1"])

    def _head(self, pair: tuple[str, Any]) -> str:
        (one, other), (first, last) = self._labels(), self._group_means(pair)
        gap = self._of(pair).loc[GAP]
        return (
            f"{shorten(self.graph.sensitive_column)}={shorten(other)} {percent(last)}, {shorten(one)} "
            f"{percent(first)}: a gap of {_span(gap)} points"
        )

    def _lines(self, pair: tuple[str, Any]) -> list[str]:
        """Return the text about one model."""
        parts = self._parts(pair)
        width = min(max(map(len, map(self._word, parts.index))), 60)
        lines = [f"Where the gap comes from: {self._what(pair)}, {self.rows:,} rows", f"  {self._head(pair)}"]
        largest = parts["estimate"].abs().nlargest(MOST_PARTS if len(parts) > MOST_PARTS + 1 else len(parts)).index
        rows: Any = parts[parts.index.isin(largest)].itertuples()
        for row in rows:
            by_order = f"by order {_range(row)}" if np.isfinite(row.smallest) else ""
            texts = [f"{self._word(row.part):<{width}}", f"{_span(row):<20}"]
            texts += [f"{by_order:<23}"] if parts["smallest"].notna().any() else []
            texts += [f"{'unfair' if row.part in self.unfair else '':<6}"] if self.unfair else []
            lines.append("  " + "  ".join([*texts, self._beside(pair, row.part)]).rstrip())
        if len(rest := parts.drop(index=largest)):
            lines.append(f"  {len(rest)} smaller parts together {points(rest['estimate'].sum())}, see .table")
        added = _rows_of(self.contrasts, pair).groupby("part")
        turns = (added["upper"].min() < 0.0) & (added["lower"].max() > 0.0)  # by more than chance
        if turned := [each for each in parts["part"] if turns.get(each, False)]:
            lines.append(f"  The sign depends on the order: {', '.join(turned)}.")
        if added.size().get(UNFAIR_PATHS) == 2:
            first, last = added.get_group(UNFAIR_PATHS)["estimate"]
            lines.append(
                f"  Unfair paths: {points(first)} if switched first, as an audit does, and {points(last)} if last."
            )
        if pair[0] in self.doubts:
            lines.append(f"  In doubt: {self.doubts[pair[0]]}.")
        return lines

    def _beside(self, pair: tuple[str, Any], part: str) -> str:
        """Return by how much the part of a model is more than that of the observed outcome."""
        if self.differences.empty or (own := _rows_of(self.differences, pair)).empty:
            return ""
        outcome = self._of((str(self.outcome), "threshold"))["estimate"][part]
        return f"in the data {points(outcome)}; the model adds {_span(own.set_index('part').loc[part])}"

    # -- forms of the report ------------------------------------------------------------------------------------------

    def plot(self, model: str | None = None, decisions: Any = "threshold") -> Figure:
        """Draw a waterfall from the mean of one group to that of the other, for each level that is compared.

        Parameters
        ----------
        model
            By default the first.
        decisions
            ``"threshold"``, ``"score"`` or a threshold, as in the table; of a model without these, what it has.
        """
        from pyrofair.audits.waterfall import draw_waterfalls

        pairs = dict(self._pairs(decisions))
        model = next(iter(pairs)) if model is None else model
        require_choice("model", model, list(pairs))
        return draw_waterfalls(
            [one._panel(pair) for one, pair in self._told(decisions) if pair[0] == model], self.level
        )

    def _panel(self, pair: tuple[str, Any]) -> Panel:
        from pyrofair.audits.waterfall import Panel

        own = self._of(pair)
        (one, other), (first, last) = self._labels(), self._group_means(pair)
        more = "more" if last >= first else "fewer"
        what, column = self._what(pair), shorten(self.graph.sensitive_column)
        parts = self._parts(pair)
        return Panel(
            parts,
            own.loc[GAP],
            (first, last),
            [one, *map(self._word, parts.index), other],
            self.unfair,
            f"{column}={other}: {abs(100.0 * (last - first)):.1f} points {more} than {one}. Where does that come from?",
            f"{what[0].upper()}{what[1:]}, {self.rows:,} rows, split along the arrows out of {column}.",
        )

    def block(self, decisions: Any = "threshold") -> Block:
        """Return the parts of all models as a section of a page."""
        pairs, told = self._pairs(decisions), self._told(decisions)
        pictures = [one._table(i, pair) for i, (one, pair) in enumerate(told)]
        return Block(
            PARTS,
            "Where the gap comes from",
            self._text(decisions),
            aside=[BY_ORDER, *self.notes, NO_VERDICT],
            pictures=pictures,
            markup=lambda: Markup("").join(self._picture(i, pair) for i, pair in enumerate(pairs[:3])),
        )

    def _picture(self, i: int, pair: tuple[str, Any]) -> Markup:
        heads = "; ".join(one._head(each) for one, each in self._told(pair[1]) if each == pair)
        return figure_markup(lambda: self.plot(*pair), f"waterfall-{i}", f"Waterfall: {heads}", heads)

    def _table(self, i: int, pair: tuple[str, Any]) -> Table:
        own = self._of(pair)
        rows: Any = list(own.itertuples())
        shown = pd.DataFrame(
            {
                "part": [self._word(each) for each in own["part"]],
                "points": [points(each) for each in own["estimate"]],
                "interval": [_span(row, point=False) for row in rows],
                "by order": [_range(row) for row in rows],
                "share of the gap": [percent(each, 0) for each in own["share"]],
            }
        )
        if self.unfair:
            shown["called unfair"] = ["yes" if each in (*self.unfair, UNFAIR_PATHS) else "" for each in own["part"]]
        note = f"Intervals of the parts hold together at {self.level:.0%}."
        caption = f"{shorten(self.graph.sensitive_column)}={' and '.join(self._labels()[::-1])}: {self._what(pair)}"
        return make_table(f"parts-{i}", caption, shown, own.reset_index(drop=True), note=note)

    def _subgroups(self) -> list[Block]:
        """Return the parts in each level of each subgroup, and which levels have none; nothing without subgroups."""
        tables: list[Table] = []
        panels: list[Tracks] = []
        for i, (one, pair) in enumerate(self._told()):
            own = _rows_of(one.subgroups, pair)
            if own.empty:
                continue
            rows: Any = list(own.itertuples())
            shown = own[["subgroup", "level", "rows"]].assign(
                part=[self._word(row.part) for row in rows],
                points=[points(row.estimate) for row in rows],
                interval=[_span(row, point=False) for row in rows],
            )
            of = f"{one._labels()[1]}, {one._what(pair)}" if self.levels else one._what(pair)
            tables.append(make_table(f"parts-within-{i}", of, shown, own))
            scale = scale_of(rows)
            for (subgroup, level), part in own.groupby(["subgroup", "level"], sort=False):
                named = {self._word(str(row.part)): row for row in part.itertuples()}
                panels.append(of_parts(f"{of}, {subgroup} {level}, {part['rows'].iloc[0]:,} rows", named, scale))
        absent = self.subgroups[self.subgroups["note"].fillna("") != ""] if len(self.subgroups) else self.subgroups
        lines = [f"{row.subgroup} {row.level}: {row.note}." for row in absent.itertuples()]
        if not tables and not lines:
            return []
        told = f"All intervals hold together with {self.level:.0%}."
        return [Block("subgroups", "Subgroups", lines, tables, [told], markup=lambda: tracks_markup("part", panels))]

    def _answer(self, pair: tuple[str, Any]) -> Answer:
        """Return the gap, and its parts in the order of their size."""
        parts = self._parts(pair)["estimate"].sort_values(key=abs, ascending=False)
        listed = [f"{points(value)} {self._word(str(part))}" for part, value in parts.items()]
        return Answer(f"A gap of {points(self._of(pair)['estimate'][GAP])} points", f"{'; '.join(listed)}.", "open")

    @property
    def view(self) -> View:
        """The report as data."""
        told, column = self._told(), self.graph.sensitive_column
        groups = [str(self.graph.named(each)) for each in self.sizes] or self._labels()
        added = [make_table("contrasts", "What each part adds", self._shown(self.contrasts), self.contrasts)]
        means, drawing = [make_table("means", "Means", self._shown(self.means), self.means)], graph_svg(self.graph)
        return View(
            title="Where the gap comes from",
            question=[
                f"Why do the groups {', '.join(groups)} ({column}) get different decisions?",
                *(one._head(pair) for one, pair in told if pair[0] == told[0][1][0]),
            ],
            answers=[
                (f"{one._what(pair)}{f', {one._labels()[1]}' if self.levels else ''}", one._answer(pair))
                for one, pair in told
            ],
            basis=[RIGHT_GRAPH, BY_ORDER, NO_VERDICT],
            changes=[*self.notes, *(f"In doubt: {text}." for text in self.doubts.values())][:4]
            or ["Another graph, or another population."],
            lead=self._lead(),
            blocks=[
                self.block(),
                *self._subgroups(),
                Block("graph", "The causal graph", aside=["Arrows are causes."], markup=lambda: Markup(drawing or "")),
                Block("contrasts", "After every set of other parts", tables=added),
                Block("means", "The mean in each world", aside=[WORLDS], tables=means),
            ],
            schema="pyrofair-decomposition",
            data=self._data,
            assumptions=[("These numbers depend on:", self.assumptions)],
            warnings=self.warnings,
            settings=[(name, str(value)) for name, value in self.settings.items()],
        )

    def _shown(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a table with levels and groups as reports call them."""
        if "mean" in table:
            keys = table["contrast"] if self.levels else [None] * len(table)
            named = {
                (key, f"group {group}"): f"group {label}"
                for key, each in (self.levels or {None: self}).items()
                for group, label in enumerate(each._labels())
            }
            table = table.assign(mean=[named.get(at, at[1]) for at in zip(keys, table["mean"], strict=True)])
        return table.assign(contrast=table["contrast"].map(self.graph.named)) if self.levels else table

    def _lead(self) -> list[str]:
        """Return what is compared."""
        graph = self.graph
        if not self.levels:
            one, other = self._labels()
            return [f"{self.rows:,} rows; {graph.sensitive_column}={other} compared with {one}."]
        return [
            f"{self.rows:,} rows: {len(self.sizes) - 1} contrast(s) of {graph.sensitive_column!r} with the baseline "
            f"{graph.named(graph.baseline)!r} ({self.sizes[graph.baseline]:,} rows).",
            f"{self.level:.0%} intervals that hold at once for all contrasts and parts.",
            POPULATION,
        ]

    def _data(self, rows: bool) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in (*TOLD, *TABLES)} | {"labels": self.graph.labels}
        return told | {"versions": known_versions(), "failures": {name: str(e) for name, e in self.failures.items()}}

    def _text(self, decisions: Any = "threshold") -> list[str]:
        told = [each for each in self._told(decisions) if each[1][0] != self.outcome]
        return [
            *(line for one, pair in told for line in one._lines(pair)),
            *(f"  {each}" for each in (*self.notes, NO_VERDICT)),
        ]

    def __str__(self) -> str:
        return "\n".join([*(self._lead() if self.levels else ()), *self._text()])

    def __repr__(self) -> str:
        models = ", ".join(dict.fromkeys(self.table["model"]))
        return f"<Decomposition of {models} on {self.rows:,} rows; print it for the parts>"


def _rows_of(table: pd.DataFrame, pair: tuple[str, Any]) -> pd.DataFrame:
    """Return the rows of a model and decisions."""
    found: pd.DataFrame = table[(table["model"] == pair[0]) & (table["decisions"] == pair[1])]
    return found


def _span(row: Any, *, point: bool = True) -> str:
    """Return an estimate with its interval in points."""
    ends = f"{points(row.lower)}, {points(row.upper)}" if np.isfinite(row.lower) else ""
    return f"{points(row.estimate)} [{ends}]" if point and ends else points(row.estimate) if point else ends


def _range(row: Any) -> str:
    return f"{points(row.smallest)} to {points(row.largest)}" if np.isfinite(row.smallest) else ""
