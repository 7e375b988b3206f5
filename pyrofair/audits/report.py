"""What an audit says in plain words, with the assumptions and warnings that its numbers rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pyrofair.effects.group_agreement import disagreeing

__all__ = ["read_audit"]

SMALL = 0.05
SAME_FOR_ALL = 0.02
FEW = 10
MOST_TOLD = 6
ROUNDING = 1e-9

Rows = Mapping[tuple[Any, Any], Any]
"""The rows of one model by decisions and quantity."""


def read_audit(table: pd.DataFrame, groups: pd.DataFrame, context: Mapping[str, Any]) -> str:
    """Write an audit as text.

    Parameters
    ----------
    table, groups
        As in :class:`pyrofair.audit.Audit`.
    context
        Rows, replicates, level, assumptions and so on.
    """
    lines = [*_read_setting(context, table["model"].nunique()), *_read_overlap(context["overlap"])]
    for model in dict.fromkeys(table["model"]):
        own = table[table["model"] == model]
        found = {(row.decisions, row.quantity): row for row in own.itertuples()}
        lines += ["", *_read_model(found, model, groups, context)]
    lines += ["", *_read_groups(groups, context["level"])]
    lines.append("These numbers rest on:")
    lines += [f"  {i}. {text}" for i, text in enumerate(context["assumptions"], 1)] or ["  (the source states none)"]
    if context["outcome_assumptions"]:
        lines.append(f"Those of {', '.join(context['outcomes'])}, an outcome, rest on:")
        lines += [f"  {i}. {text}" for i, text in enumerate(context["outcome_assumptions"], 1)]
    if context["failure"]:
        lines.append(f"No unfair effect could be estimated: {context['failure'].rstrip('.')}.")
    lines += [f"Warning: {text}" for text in context["warnings"]]
    return "\n".join(lines)


def _read_setting(context: Mapping[str, Any], models: int) -> list[str]:
    graph = context["graph"]
    lines = [
        f"Audit of {models} model(s) on {context['rows']:,} rows; {_replicates(context)}.",
        f"{graph.sensitive} is {graph.sensitive_column!r}: 0 is {graph.baseline!r}, 1 is {graph.contrast!r}. Yes is "
        f"{graph.outcome_column!r} = {graph.positive!r}; a decision is yes where the score exceeds "
        f"{context['threshold']:g}.",
        f"{_roles(context)} PIU is the share of units whose two answers differ.",
        *context["unfair"].splitlines(),
    ]
    if context["resampling"] and context["replicates"] > 1:
        lines.insert(1, context["resampling"])
    if context["unnamed"]:
        lines.append(
            f"{', '.join(context['unnamed'])}: fitted without column names, and given {', '.join(context['order'])} in "
            "this order."
        )
    return lines


def _roles(context: Mapping[str, Any]) -> str:
    if not context["swapped"]:
        return "Y0 is the answer with the baseline on all paths, Ypi with the contrast on the unfair ones."
    graph = context["graph"]
    return (
        f"The roles are swapped: Y0 is the answer with the contrast, {graph.contrast!r}, on all paths, Ypi with the "
        f"baseline, {graph.baseline!r}, on the unfair ones."
    )


def _replicates(context: Mapping[str, Any]) -> str:
    tried, failed = context["replicates"], context["failed"]
    if not tried:
        return "points only, no bootstrap"
    if tried == 1:
        return "points only, for a single bootstrap replicate makes no interval"
    return f"{context['level']:.0%} intervals from {tried} bootstrap replicates" + (
        f", {failed} of which failed" if failed else ""
    )


def _read_overlap(overlap: pd.DataFrame) -> list[str]:
    lines = []
    for row in overlap.to_dict("records"):
        if "outside" in row:
            given = ", ".join(each for each in (row["reads"], _arm(row["arm"])) if each)
            lines.append(
                f"{row['regime']} world: {row['column']} drawn from its learned "
                f"distribution{given and f' given {given}'}; "
                f"{row['outside']:.1%} of that world asks it beyond the rows it was learned from"
            )
        elif row["used"]:
            who = "both groups, pooled" if row["group"] == "pooled" else f"group {row['group']}"
            lost = f"; no counterpart for {row['unsupported_cells']}" if row["unsupported_cells"] else ""
            lines.append(
                f"{row['regime']} world: weights on {who} ({row['n']:,} fitted rows, effective size {row['ess']:,.0f}; "
                f"mean weight {row['mean_weight']:.3f}, should be near 1){lost}"
            )
    return lines


def _arm(value: Any) -> str:
    return "" if pd.isna(value) else f"the sensitive attribute at {int(value)}"


def _read_model(rows: Rows, model: str, groups: pd.DataFrame, context: Mapping[str, Any]) -> list[str]:
    lines = [model, *context["kinds"].get(model, ())]
    lines += [_read_accuracy(rows), _read_rate(rows["threshold", "positive_rate"])]
    untouched = _read_untouched(context["untouched"].get(model, ()))
    for kind, what in [("threshold", "decisions"), ("score", "scores (as if each decision were drawn with its score)")]:
        of = {quantity: row for (decisions, quantity), row in rows.items() if decisions == kind}
        if context["failure"]:
            lines.append(f"  {what}: no unfair effect could be estimated, see below")
            continue
        lines += [
            f"  {what}: P(Y0=1) {_span(of['p_y0'])}, P(Ypi=1) {_span(of['p_ypi'])}",
            f"    mean unfair effect {_span(of['mean_unfair_effect'])}",
            _read_piu(of, seen_twice=context["paired"] and kind == "threshold"),
            f"    the paper's upper bound on PIU {_span(of['piu_paper_bound'])}",
        ]
        said = (
            untouched or (kind == "threshold" and _few(of["positive_rate"])) or _small(context["small"].get(model, ()))
        )
        lines.append(f"    reading: {said or _withheld(groups, model, kind) or _verdict(of)}")
    return lines


def _read_piu(of: Mapping[str, Any], *, seen_twice: bool) -> str:
    lower, upper = of["piu_lower"], of["piu_upper"]
    if seen_twice and abs(upper.estimate - lower.estimate) <= ROUNDING:
        return f"    PIU {_span(lower)}, a point under what is listed below: both answers of each unit follow"
    doubled = of.get("piu_double_disagreement")
    beside = f"; twice the disagreement given it {_span(doubled)}" if doubled is not None else ""
    given = "    PIU, given what both worlds share," if beside else "    PIU"
    return f"{given} at least {_span(lower)}, at most {_span(upper)}{beside}"


def _read_accuracy(rows: Rows) -> str:
    accuracy, majority = rows["threshold", "accuracy"], rows["threshold", "majority_rate"]
    if np.isnan(accuracy.estimate):
        return f"  accuracy {accuracy.note}"
    low = accuracy.estimate if np.isnan(accuracy.lower) else accuracy.lower
    blunt = ": not clearly better than answering the same for everyone" if low <= majority.estimate else ""
    exact = " (exact 90% test-set bound)" if "test-set" in accuracy.note else ""
    return f"  accuracy {_span(accuracy)}{exact}, majority class {majority.estimate:.3f}{blunt}"


def _read_rate(rate: Any) -> str:
    same = min(rate.estimate, 1.0 - rate.estimate) < SAME_FOR_ALL
    empty = ": nearly the same answer for everyone" if same else ""
    return f"  says yes to {_span(rate)} of units{empty}"


def _span(row: Any) -> str:
    if np.isnan(row.estimate):
        return f"({row.note or 'cannot be made'})"
    interval = "" if np.isnan(row.lower) else f" [{row.lower:.3f}, {row.upper:.3f}]"
    note = f" ({row.note})" if row.note and "test-set" not in row.note else ""
    return f"{row.estimate + 0.0:.3f}{interval}{note}"


def _read_untouched(columns: Sequence[str]) -> str:
    """Say so of a model that no unfair path can reach: weights may claim otherwise, but the graph is clear."""
    if not columns:
        return ""
    return (
        f"unfair to nobody, by the graph: it reads {', '.join(columns)} only, which no unfair path touches, so its two "
        "answers are the same. A mean unfair effect other than 0 is the error of the weights."
    )


def _few(rate: Any) -> str:
    """Say so if hardly a row is answered otherwise than the rest: a bootstrap of so few shows no spread."""
    rarer = min(rate.estimate, 1.0 - rate.estimate) * rate.ess
    if rarer >= FEW:
        return ""
    return (
        f"none: all but about {rarer:.0f} of the rows get the same answer, too few for intervals to be trusted, and a "
        "bound that is small for that reason is no merit."
    )


def _small(reasons: Sequence[str]) -> str:
    """Say so if an observed group has too few rows for any interval."""
    found = [text for text in reasons if text]
    return f"none: {found[0]}, and what a few rows lack, no interval made of them shows." if found else ""


def _withheld(groups: pd.DataFrame, model: str, kind: str) -> str:
    """Say so if the two observed groups tell different numbers: at least one of them is wrong, and maybe this one."""
    apart = disagreeing(groups, {"model": model, "decisions": kind})
    if apart.empty:
        return ""
    return (
        f"withheld: the two observed groups, weighted alone, disagree on {', '.join(apart['quantity'])} beyond "
        "chance (see below), so the numbers above may be those of a wrong propensity."
    )


def _verdict(of: Mapping[str, Any]) -> str:
    lower, upper, effect = of["piu_lower"], of["piu_upper"], of["mean_unfair_effect"]
    if np.isnan(lower.estimate):
        return "none, for the estimate is no probability; normalise the weights (normalize=True) or look at overlap."
    if np.isnan(effect.lower) or np.isnan(upper.upper):
        return (
            f"none, for there are no intervals; the point estimates allow {lower.estimate:.1%} to {upper.estimate:.1%} "
            "of units."
        )
    least, most = _least(lower, effect), min(upper.upper, 1.0)
    if least > 0.0:
        return f"unfair to at least {least:.1%} of units, and to at most {most:.1%}."
    if most <= SMALL:
        return f"unfair to at most {most:.1%} of units."
    return (
        f"inconclusive: the data allow anything from 0 % to {most:.1%} of units; a wide interval is no "
        "evidence of unfairness, nor of its absence."
    )


def _least(lower: Any, effect: Any) -> float:
    """Return the share of units that is surely treated unfairly, or 0.

    The lower end is an absolute value, whose replicates are never 0: without units, the sign of the mean effect decides
    instead; with units, which make the end larger than that, it must be clear of 0.
    """
    least = max(effect.lower, -effect.upper, 0.0)
    if lower.estimate > abs(effect.estimate) + ROUNDING and lower.lower > SMALL:
        return float(max(least, lower.lower))
    return float(least)


def _read_groups(groups: pd.DataFrame, level: float) -> list[str]:
    if groups.empty:
        return []
    lines = _read_too_little(groups)
    groups = groups[groups["note"] == ""]
    if groups.empty:
        return [*lines, ""]
    told = groups[groups["agree"].notna()]
    apart = disagreeing(told)
    if told.empty:
        widest = groups["difference"].abs().max()
        return [*lines, f"Either observed group, weighted alone: at most {widest:.3f} apart (no intervals).", ""]
    if apart.empty:
        return [*lines, "Either observed group, weighted alone, gives the same, as far as a joint test can tell.", ""]
    lines += [
        f"The two observed groups, weighted alone, disagree beyond chance in {len(apart)} of {len(told)} "
        f"comparisons (one test of all: chance alone makes any disagree in about {1.0 - level:.0%} of audits). Unless "
        "by chance, that is a misspecified propensity or poor overlap, never a latent cause; compare "
        "propensity='boosted', and look at source.overlap():"
    ]
    lines += [
        f"  {row.model}, {row.decisions}, {row.quantity}: {row.group_0:.3f} from group 0, {row.group_1:.3f} from group "
        f"1, difference in [{row.lower:.3f}, {row.upper:.3f}]"
        for row in apart.sort_values("difference", key=abs, ascending=False).head(MOST_TOLD).itertuples()
    ]
    if len(apart) > MOST_TOLD:
        lines.append(f"  and {len(apart) - MOST_TOLD} more with smaller differences, see the table of groups")
    return [*lines, ""]


def _read_too_little(groups: pd.DataFrame) -> list[str]:
    """Name the quantities for which a group's weights rest on hardly a row."""
    few = groups[groups["note"] != ""].drop_duplicates("quantity")
    return [
        f"{row.quantity} from either observed group: {row.note} (effective size {row.ess_0:.1f} in group 0, "
        f"{row.ess_1:.1f} in group 1)."
        for row in few.itertuples()
    ]
