"""The judgements of an audit in plain English, for those who decide on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyrofair.audits.context import Context
from pyrofair.audits.readings import Reading
from pyrofair.effects.scoring import Decisions
from pyrofair.graph import CausalGraph, UnfairPaths
from pyrofair.graph.paths import show_path

__all__ = ["Answer", "advice", "answer", "changes", "describe_question", "percent", "shorten", "span"]

SHOWN = 4
"""The most paths that the question lists."""
LONGEST = 40
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


def span(row: Any, digits: int = 1) -> str:
    """Return an estimate with its interval, in percent."""
    if row is None or np.isnan(row.estimate):
        return "not available"
    text = percent(row.estimate, digits)
    if np.isnan(row.lower):
        return text
    return f"{text} [{percent(row.lower, digits)[:-1]}, {percent(row.upper, digits)[:-1]}]"


def describe_question(
    paths: UnfairPaths,
    models: int,
    rows: int,
    threshold: float,
    decisions: Decisions = "threshold",
    without_scores: Sequence[str] = (),
) -> list[str]:
    """Return the question, and how it is read, as sentences.

    ``without_scores`` names models whose decisions are thresholded where those of others are drawn with their scores.
    """
    graph = paths.graph
    first, other = graph.baseline, graph.contrast
    if paths.swapped:
        first, other = other, first
    shown = "; ".join(_arrows([_read_as(graph, node) for node in path]) for path in paths.paths[:SHOWN])
    more = f"; and {paths.paths.size - SHOWN:,} more" if paths.paths.size > SHOWN else ""
    which = "this model" if models == 1 else f"these {models} models"
    return [
        f"Would {which} decide otherwise on an individual if {shorten(graph.sensitive_column)} were {_quoted(other)} "
        f"instead of {_quoted(first)} along the paths called unfair, and {_quoted(first)} along all others?",
        f"Called unfair: {shown}{more}." if paths.paths else "No path was called unfair.",
        f"Judged were {rows:,} individuals. {_what_is_yes(graph, threshold, decisions, without_scores)}",
    ]


def _what_is_yes(graph: CausalGraph, threshold: float, decisions: Decisions, without_scores: Sequence[str]) -> str:
    yes = f"yes ({shorten(graph.outcome_column)} = {shorten(graph.positive)})"
    if decisions == "threshold":
        return f"A decision is {yes} where the score exceeds {threshold:g}."
    drawn = f"Decisions are drawn with their scores: the score is the probability of {yes}."
    if not without_scores:
        return drawn
    named = ", ".join(_quoted(each) for each in without_scores[:SHOWN])
    more = f" and {len(without_scores) - SHOWN} more" if len(without_scores) > SHOWN else ""
    has = "has no scores: its answer is" if len(without_scores) == 1 else "have no scores: their answers are"
    return f"{drawn} {named}{more} {has} about the decisions as they are given."


def shorten(text: object) -> str:
    """Return a text, cut if it is too long for a sentence."""
    whole = str(text)
    return whole if len(whole) <= LONGEST else f"{whole[: LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"


def _read_as(graph: CausalGraph, node: str) -> str:
    """Return the column of a node that has one, or else the name of the node."""
    columns = graph.columns.get(node, ())
    return str(columns[0]) if len(columns) == 1 else node


def _quoted(label: object) -> str:
    return f"\N{LEFT DOUBLE QUOTATION MARK}{shorten(label)}\N{RIGHT DOUBLE QUOTATION MARK}"


def _arrows(path: Sequence[str]) -> str:
    """Return a path with arrows, in one piece if it is short."""
    text = show_path(tuple(map(shorten, path))).replace("->", "\N{RIGHTWARDS ARROW}")
    return text.replace(" ", "\N{NO-BREAK SPACE}") if len(text) <= UNBROKEN else text


def answer(reading: Reading, of: Mapping[str, Any], paths: UnfairPaths, level: float) -> Answer:
    """Return the answer for one model, from its reading and its quantities."""
    graph = paths.graph
    other = graph.baseline if paths.swapped else graph.contrast
    sure = f"{level:.0%} confidence"
    if reading.status == "unfair":
        effect = of["mean_unfair_effect"].estimate
        moves = "rises" if effect > 0.0 else "falls"
        return Answer(
            f"Yes, for at least {percent(reading.least)}",
            f"The decision on {percent(reading.least)} to {percent(reading.most)} of individuals depends on the unfair "
            f"paths ({sure}). With {_quoted(other)} along them, the share of yes {moves} by "
            f"{percent(abs(effect))[:-1]} percentage points.",
            "unfair",
        )
    if reading.status == "small":
        return Answer(
            f"Little, at most {percent(reading.most)}",
            f"At most {percent(reading.most)} of decisions depend on the unfair paths ({sure}), if what it rests on "
            "holds. That is no proof of fairness.",
            "calm",
        )
    if reading.status == "inconclusive":
        return Answer(
            "Undecided",
            f"The data allow anything from none to {percent(reading.most)} of decisions to depend on the unfair paths "
            f"({sure}): no evidence of unfairness, nor of its absence.",
            "open",
        )
    if reading.status == "untouched":
        return Answer(
            "No, if the graph is right",
            f"It reads {shorten(reading.cause)} only, which no unfair path touches: its decisions stay the same.",
            "calm",
        )
    texts = {
        "constant": (
            "No answer: it decides alike for all",
            f"{'All' if reading.cause == '0' else f'All but about {reading.cause} of the'} rows get the same decision. "
            "Too few differ for an estimate, and deciding alike for all is no merit.",
        ),
        "few_rows": (
            "No answer: too few rows",
            f"The reason: {reading.cause}. No interval made of these can be trusted.",
        ),
        "doubtful": (
            "Withheld: a check failed",
            f"The reason: {reading.cause}. The numbers may be those of a wrong model.",
        ),
        "groups_disagree": (
            "Withheld: two estimates disagree",
            "The two observed groups, weighted alone, should give the same and do not. At least one weighting is "
            "wrong.",
        ),
        "no_probability": ("No answer: no valid estimate", "An estimate lies outside 0 to 100%."),
        "no_interval": (
            "No answer: no intervals",
            "The point estimates alone say nothing of chance: "
            f"{percent(of['piu_lower'].estimate)} to {percent(of['piu_upper'].estimate)}.",
        ),
        "failed": ("No answer: it cannot be estimated", f"The reason: {reading.cause}."),
    }
    return Answer(*texts[reading.status], "open")


def changes(readings: Sequence[Reading], context: Context, decisions: Decisions = "threshold") -> list[str]:
    """Return what would change the answers, most general first, a sentence each."""
    limit = "at this threshold" if decisions == "threshold" else "for decisions made in this way"
    found = [
        "Another graph, or another choice of unfair paths: the answer is about the paths named here, and no table can "
        "confirm a graph."
    ]
    by_status = {
        "unfair": "A model trained with a penalty on this effect, or without the columns on the unfair paths; audit it "
        "again, and compare accuracy and rates.",
        "small": f"Other rows: the share holds for the population these rows stand for, {limit}.",
        "inconclusive": "More rows narrow what chance adds; where the ends stay apart with many rows, a model of how "
        "features arise (learned mechanisms or a program) narrows them.",
        "untouched": "An arrow that the graph lacks, from the sensitive attribute to a column that the model reads.",
        "constant": "Another threshold, or a model that decides differently on more rows.",
        "few_rows": "More rows of the smaller group, or coarser features.",
        "doubtful": "Models for the weights and regressions that pass the check; the diagnostics below name the stage.",
        "groups_disagree": "Another model of the propensities, or coarser features where groups overlap too little.",
        "no_probability": "Normalised weights, or more overlap between the groups.",
        "no_interval": "Intervals: audit with replicates (n_boot=200).",
        "failed": "Rows, or a source, without the reason given; until then no number here bears on the question.",
    }
    found += [text for status, text in by_status.items() if status in {each.status for each in readings}]
    if context.warnings:
        count = len(context.warnings)
        found.append(f"{count} warning{'s' if count > 1 else ''} below, each with what to do.")
    return found


ADVICE = (
    ("overlap", "Coarsen the features of the stage or world named, drop those that separate the groups, or limit the "
     "question to where both groups occur; then audit again."),
    ("replicate", "Audit again with more replicates, or look at the first failure and fix its cause."),
    ("taken as it is", "Report the intervals as conditional on the source, or give one that can be refitted."),
    ("cannot be refitted", "Use a source that can be refitted, or report the intervals as conditional on it."),
    ("fewer than the", "Leave the source unfitted, so that it is cross-fitted on the audited rows."),
    ("taken for a function", "State scores='prediction' or scores='outcome', whichever is true."),
    ("compared", "Read the estimates without the comparison of groups; more rows of the group named allow it."),
    ("column", "Drop the columns from the table, or add them to the graph if they matter."),
    ("class", "Audit rows with both outcomes, or read the effect without the accuracy."),
    ("accuracy", "Audit rows with both outcomes, or read the effect without the accuracy."),
    ("copies", "Remove copies of rows, or weight rows by how often they count."),
    ("trim", "Report the effect as that among the rows kept."),
    ("draw", "Fit the parameters to data and pass the posterior."),
)  # fmt: skip
"""What to do about a warning that holds a word; the first that fits."""


def advice(text: str) -> str:
    """Return what to do about a warning."""
    lowered = text.lower()
    known = (what for word, what in ADVICE if word in lowered)
    return next(known, "Follow what the warning names, and audit again; report the answer with it otherwise.")
