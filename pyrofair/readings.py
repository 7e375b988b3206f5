"""What an audit says in plain words, with the assumptions and warnings that its numbers rest on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["read_audit"]

SMALL = 0.05
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
    graph = context["graph"]
    models = list(dict.fromkeys(table["model"]))
    lines = [
        f"Audit of {len(models)} model(s) on {context['rows']:,} rows; {_replicates(context)}.",
        f"{graph.sensitive} is {graph.sensitive_column!r}: 0 is {graph.baseline!r}, 1 is {graph.contrast!r}; the "
        f"outcome {graph.outcome_column!r} counts {graph.positive!r} as 1.",
        *context["unfair"].splitlines(),
    ]
    if context["arms"]:
        weighted = "; ".join(
            f"{'both groups, pooled' if arm == 'pooled' else f'group {arm}'} for the {world} world"
            for world, arm in context["arms"].items()
        )
        lines.append(f"weighted rows: {weighted}")
    for model in models:
        own = table[table["model"] == model]
        lines += ["", *_read_model({(row.decisions, row.quantity): row for row in own.itertuples()}, model)]
    lines += ["", *_read_groups(groups)]
    lines.append("These numbers rest on:")
    lines += [f"  {i}. {text}" for i, text in enumerate(context["assumptions"], 1)] or ["  (the source states none)"]
    lines += [f"Warning: {text}" for text in context["warnings"]]
    if context["failure"]:
        lines.append(f"No unfair effect could be estimated: {context['failure']}")
    return "\n".join(lines)


def _replicates(context: Mapping[str, Any]) -> str:
    if not context["replicates"]:
        return "points only, no bootstrap"
    failed = f", {context['failed']} of them failed" if context["failed"] else ""
    return f"{context['level']:.0%} intervals from {context['replicates']} bootstrap replicates{failed}"


def _read_model(rows: Rows, model: str) -> list[str]:
    accuracy, majority = rows["threshold", "accuracy"], rows["threshold", "majority_rate"]
    lines = [f"{model}"]
    if np.isnan(accuracy.estimate):
        lines.append(f"  accuracy {accuracy.note}")
    else:
        blunt = " -- not clearly better than the majority class" if accuracy.lower <= majority.estimate else ""
        lines.append(f"  accuracy {_span(accuracy)}, majority class {majority.estimate:.3f}{blunt}")
    lines.append(f"  says yes to {_span(rows['threshold', 'positive_rate'])} of people")
    for kind, what in [("threshold", "decisions"), ("score", "scores (a decision drawn with each score)")]:
        of = {quantity: row for (decisions, quantity), row in rows.items() if decisions == kind}
        lines.append(f"  {what}: P(Y0=1) {_span(of['p_y0'])}, P(Ypi=1) {_span(of['p_ypi'])}")
        lines.append(f"    mean unfair effect {_span(of['mean_unfair_effect'])}")
        lines.append(f"    PIU between {_span(of['piu_lower'])} and {_span(of['piu_upper'])}")
        lines.append(f"    the paper's bound {_span(of['piu_paper_bound'])}")
        lines.append(f"    reading: {_verdict(of)}")
    return lines


def _span(row: Any) -> str:
    if np.isnan(row.estimate):
        return f"({row.note or 'cannot be made'})"
    interval = "" if np.isnan(row.lower) else f" [{row.lower:.3f}, {row.upper:.3f}]"
    note = f" ({row.note})" if row.note and "test-set" not in row.note else ""
    return f"{row.estimate:.3f}{interval}{note}"


def _verdict(of: Mapping[str, Any]) -> str:
    lower, upper, effect = of["piu_lower"], of["piu_upper"], of["mean_unfair_effect"]
    if np.isnan(lower.estimate):
        return "no estimate, hence no reading."
    most = upper.estimate if np.isnan(upper.upper) else upper.upper
    if not np.isnan(effect.lower) and (effect.lower > 0 or effect.upper < 0):
        return f"unfair for at least {max(effect.lower, -effect.upper):.1%} of people, and for at most {most:.1%}."
    if most <= SMALL:
        return f"unfair for at most {most:.1%} of people."
    doubt = " (no intervals were computed)" if np.isnan(effect.lower) else ""
    return (
        f"inconclusive{doubt}: these data allow anything from {lower.estimate:.1%} to {upper.estimate:.1%} of people; "
        "a wide interval is no evidence of unfairness, nor of its absence."
    )


def _read_groups(groups: pd.DataFrame) -> list[str]:
    if groups.empty:
        return []
    told = groups[groups["agree"].notna()]
    apart = told[~told["agree"].astype(bool)]
    if told.empty:
        widest = groups["difference"].abs().max()
        return [f"Either observed group, weighted alone: at most {widest:.3f} apart (no intervals).", ""]
    if apart.empty:
        return ["Either observed group, weighted alone, gives the same within the intervals.", ""]
    lines = [
        "The two observed groups, weighted alone, disagree beyond their intervals. That is a misspecified propensity "
        "or poor overlap, never a latent cause; compare propensity='boosted', and look at source.overlap():"
    ]
    lines += [
        f"  {row.model}, {row.decisions}, {row.quantity}: {row.group_0:.3f} from group 0, {row.group_1:.3f} from group "
        f"1, difference in [{row.lower:.3f}, {row.upper:.3f}]"
        for row in apart.itertuples()
    ]
    return [*lines, ""]
