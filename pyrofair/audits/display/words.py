"""The judgements of an audit in plain English, for decision makers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyrofair.audits.verdicts import WORDINGS, Verdict
from pyrofair.effects.scoring import Decisions
from pyrofair.graph import CausalGraph, UnfairPaths
from pyrofair.graph.paths import show_path

__all__ = [
    "Answer",
    "answer",
    "between",
    "changes",
    "compared",
    "describe_comparison",
    "describe_propensity",
    "describe_question",
    "of_decisions",
    "percent",
    "read_as",
    "shorten",
    "span",
]

SHOWN = 4
"""The most paths that the question lists, the shortest ones."""
LONGEST = 120
"""The most characters of a name or a label in a sentence."""
UNBROKEN = 36
"""The most characters of a path that is not broken over lines."""


@dataclass(frozen=True)
class Answer:
    """The answer for one model: a headline of a few words, and what it means in one or two sentences.

    ``tone`` is ``"unfair"``, ``"calm"`` or ``"open"``.
    """

    head: str
    body: str
    tone: str


def percent(value: float, digits: int = 1) -> str:
    """Return a share as a percentage, never as -0.0%."""
    return "" if np.isnan(value) else f"{round(100.0 * value, digits) + 0.0:.{digits}f}%"


def between(low: float, high: float, *, points: bool = False) -> str:
    """Return what lies between two bounds, in percent or in ``points``, and whether they cross."""
    ends = [percent(each) for each in sorted((low, high))]
    text = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
    if points:
        text = f"{'' if text.startswith('-') else '+'}{text.replace('%', '')} points"
    return f"{text}{' (bounds cross)' * bool(low > high and ends[0] != ends[1])}"


def span(row: Any, *, points: bool = False) -> str:
    """Return an estimate, or the bounds of what is not identified, with an interval, in percent or in ``points``."""
    if row is None:
        return ""
    low, high = (getattr(row, end, row.estimate) for end in ("low", "high"))
    if np.isnan(low):
        return "not available"
    text = between(*((row.estimate,) * 2 if np.isfinite(row.estimate) else (low, high)), points=points)
    ends = [percent(each)[:-1] for each in (row.lower, row.upper)]
    if all(ends):
        return f"{text} [{', '.join(ends)}]"
    return f"{text} [at {'least' if ends[0] else 'most'} {''.join(ends)}]" if any(ends) else text


def compared(paths: UnfairPaths) -> tuple[Any, Any]:
    """Return what reports call the value on all paths in the baseline world, and on the unfair ones in the other."""
    graph = paths.graph
    labels = graph.named(graph.baseline), graph.named(graph.contrast)
    return labels[::-1] if paths.swapped else labels


def describe_comparison(paths: UnfairPaths) -> str:
    """Return what is compared, as figures are headed."""
    first, other = compared(paths)
    return f"{paths.graph.sensitive_column}: {shorten(other)} instead of {shorten(first)} on unfair paths"


def describe_propensity(graph: CausalGraph, given: str) -> str:
    """Return the propensity that a weight is made of, such as "P(sex given age)", from the nodes that it is given."""
    columns = ", ".join(graph.columns_of([node for node in given.split(", ") if node]))
    return f"P({graph.sensitive_column}{' given ' * bool(columns)}{shorten(columns, 60)})"


def describe_question(
    paths: UnfairPaths,
    models: int,
    rows: int,
    threshold: float,
    decisions: Decisions = "threshold",
    without_scores: Sequence[str] = (),
) -> list[str]:
    """Return the question, and how it is read, as sentences."""
    graph = paths.graph
    first, other = compared(paths)
    shown = "; ".join(_arrows([read_as(graph, node) for node in path]) for path in paths.paths.shortest(SHOWN))
    more = f"; and {paths.paths.size - SHOWN:,} more" if paths.paths.size > SHOWN else ""
    which = "Does this model's decision" if models == 1 else f"Do the decisions of these {models} models"
    return [
        f"{which} depend on {shorten(graph.sensitive_column)} through the unfair paths, and for how many individuals?",
        f"Comparison: as if {_quoted(other)} instead of {_quoted(first)} on the unfair paths only. {rows:,} people "
        f"were audited. {_what_is_positive(graph, threshold, decisions, without_scores)}",
        f"Unfair: {shown}{more}." if paths.paths else "No path was marked as unfair.",
    ]


def _what_is_positive(graph: CausalGraph, threshold: float, decisions: Decisions, without_scores: Sequence[str]) -> str:
    positive = f"positive ({shorten(graph.outcome_column)} = {shorten(graph.positive)})"
    if decisions == "threshold":
        return f"A decision is {positive} if the score exceeds {threshold:g}."
    drawn = f"Decisions are drawn with their scores: the score is the probability of a {positive} decision."
    if not without_scores:
        return drawn
    named = ", ".join(_quoted(each) for each in without_scores[:SHOWN])
    more = f" and {len(without_scores) - SHOWN} more" if len(without_scores) > SHOWN else ""
    has = "has no scores: its verdict is" if len(without_scores) == 1 else "have no scores: their verdicts are"
    return f"{drawn} {named}{more} {has} about the decisions as they are given."


def of_decisions(decisions: object) -> str:
    """Return what is judged, in a word."""
    return "scores" if decisions == "score" else "decisions"


def shorten(text: object, most: int = LONGEST) -> str:
    """Return a text, cut if it is too long for a sentence."""
    whole = str(text)
    return whole if len(whole) <= most else f"{whole[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def read_as(graph: CausalGraph, node: str) -> str:
    """Return the column of a node that has one, or else the name of the node."""
    columns = graph.columns.get(node, ())
    return str(columns[0]) if len(columns) == 1 else node


def _quoted(label: object) -> str:
    return f"\N{LEFT DOUBLE QUOTATION MARK}{shorten(label)}\N{RIGHT DOUBLE QUOTATION MARK}"


def _arrows(path: Sequence[str]) -> str:
    """Return a path with arrows, in one piece if it is short."""
    text = show_path(tuple(map(shorten, path))).replace("->", "\N{RIGHTWARDS ARROW}")
    return text.replace(" ", "\N{NO-BREAK SPACE}") if len(text) <= UNBROKEN else text


def answer(verdict: Verdict, of: Mapping[str, Any], paths: UnfairPaths | None, level: float) -> Answer:
    """Return the answer for one model, from its verdict, its quantities, and the unfair paths if any are left."""
    body = f"{verdict.body[:1].upper()}{verdict.body[1:]}"
    if verdict.status in ("unfair", "small", "inconclusive"):
        body = f"{body[:-1]} ({level:.0%} confidence)."
    if verdict.status == "unfair" and paths is not None and not np.isnan(of["mean_unfair_effect"].estimate):
        effect = of["mean_unfair_effect"].estimate
        _, other = compared(paths)
        moves = "rises" if effect > 0.0 else "falls"
        body += (
            f" With {_quoted(other)} on the unfair paths, the share of positive decisions {moves} by "
            f"{percent(abs(effect))[:-1]} percentage points."
        )
    return Answer(verdict.head, body, verdict.tone)


def changes(verdicts: Sequence[Verdict], warned: int) -> list[str]:
    """Return what the reader can do, most general first, one sentence each."""
    statuses = {each.status for each in verdicts}
    found = [
        "Discuss the graph and the unfair paths: the verdict is about the paths named here, and no table can confirm a "
        "graph.",
        *(each.change for status, each in WORDINGS.items() if status in statuses),
    ]
    if warned:
        found.append(f"{warned} warning{'s' if warned > 1 else ''} below, each with what to do.")
    return found
