"""Audits, penalty paths and comparisons as text, with the assumptions and warnings that their numbers rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pyrofair.effects.group_agreement import disagreeing

__all__ = ["describe_apart", "describe_audit", "describe_groups", "describe_path"]

SMALL = 0.05
SAME_FOR_ALL = 0.02
FEW = 10
MOST_LISTED = 6
ROUNDING = 1e-9
BASES = {"threshold": "decisions", "score": "scores (as if each decision were drawn with its score)"}
SUMMARISED = ("objective", "accuracy", "positive_rate", "mean_unfair_effect", "piu_lower", "piu_upper", "bimodal")

Rows = Mapping[tuple[Any, Any], Any]
"""The rows of one model by decisions and quantity."""


def describe_audit(table: pd.DataFrame, groups: pd.DataFrame, context: Mapping[str, Any]) -> str:
    """Return an audit as text, from its tables and its context (rows, replicates, level, assumptions and so on)."""
    lines = [*_setting(context, table["model"].nunique()), *_overlap(context["overlap"])]
    for model, own in table.groupby("model", sort=False):
        found = {(row.decisions, row.quantity): row for row in own.itertuples()}
        lines += ["", *_model(found, str(model), groups, context)]
    lines += ["", *_groups(groups, context["level"]), "These numbers rest on:"]
    lines += _numbered(context["assumptions"]) or ["  (the source states none)"]
    if context["outcome_assumptions"]:
        lines.append(f"Those of {', '.join(context['outcomes'])}, an outcome, rest on:")
        lines += _numbered(context["outcome_assumptions"])
    if context["failure"]:
        lines.append(f"No unfair effect could be estimated: {context['failure'].rstrip('.')}.")
    return "\n".join([*lines, *(f"Warning: {text}" for text in context["warnings"])])


def _numbered(texts: Sequence[str]) -> list[str]:
    return [f"  {i}. {text}" for i, text in enumerate(texts, 1)]


def _setting(context: Mapping[str, Any], models: int) -> list[str]:
    graph, tried, failed = context["graph"], context["replicates"], context["failed"]
    if tried > 1:
        intervals = f"{context['level']:.0%} intervals from {tried} bootstrap replicates"
        intervals += f", {failed} of which failed" if failed else ""
    else:
        reason = "for a single bootstrap replicate makes no interval" if tried else "no bootstrap"
        intervals = f"points only, {reason}"
    if context["swapped"]:
        roles = (
            f"The roles are swapped: Y0 is the answer with the contrast, {graph.contrast!r}, on all paths, Ypi with "
            f"the baseline, {graph.baseline!r}, on the unfair ones."
        )
    else:
        roles = "Y0 is the answer with the baseline on all paths, Ypi with the contrast on the unfair ones."
    lines = [f"Audit of {models} model(s) on {context['rows']:,} rows; {intervals}."]
    if context["resampling"] and tried > 1:
        lines.append(context["resampling"])
    lines += [
        f"{graph.sensitive} is {graph.sensitive_column!r}: 0 is {graph.baseline!r}, 1 is {graph.contrast!r}. Yes is "
        f"{graph.outcome_column!r} = {graph.positive!r}; a decision is yes where the score exceeds "
        f"{context['threshold']:g}.",
        f"{roles} PIU is the share of units whose two answers differ.",
        *context["unfair"].splitlines(),
    ]
    if context["unnamed"]:
        lines.append(
            f"{', '.join(context['unnamed'])}: fitted without column names, and given {', '.join(context['order'])} in "
            "this order."
        )
    return lines


def _overlap(overlap: pd.DataFrame) -> list[str]:
    lines = []
    for row in overlap.to_dict("records"):
        if "outside" in row:
            arm = "" if pd.isna(row["arm"]) else f"the sensitive attribute at {int(row['arm'])}"
            given = ", ".join(each for each in (row["reads"], arm) if each)
            lines.append(
                f"{row['regime']} world: {row['column']} drawn from its learned "
                f"distribution{given and f' given {given}'}; {row['outside']:.1%} of that world evaluates it beyond "
                "the rows it was learned from"
            )
        elif row["used"]:
            weighted = "both groups, pooled" if row["group"] == "pooled" else f"group {row['group']}"
            lost = f"; no counterpart for {row['unsupported_cells']}" if row["unsupported_cells"] else ""
            lines.append(
                f"{row['regime']} world: weights on {weighted} ({row['n']:,} fitted rows, effective size "
                f"{row['ess']:,.0f}; mean weight {row['mean_weight']:.3f}, should be near 1){lost}"
            )
    return lines


def _model(rows: Rows, model: str, groups: pd.DataFrame, context: Mapping[str, Any]) -> list[str]:
    lines = [model, *context["score_types"].get(model, ()), _accuracy(rows), _rate(rows["threshold", "positive_rate"])]
    for decisions, what in BASES.items():
        of = {quantity: row for (each, quantity), row in rows.items() if each == decisions}
        if context["failure"]:
            lines.append(f"  {what}: no unfair effect could be estimated, see below")
            continue
        verdict = (
            _untouched(context["untouched"].get(model, ()))
            or (decisions == "threshold" and _nearly_constant(of["positive_rate"]))
            or _small_group(context["small"].get(model, ()))
            or _groups_disagree(disagreeing(groups, {"model": model, "decisions": decisions}))
            or _verdict(of)
        )
        lines += [
            f"  {what}: P(Y0=1) {_span(of['p_y0'])}, P(Ypi=1) {_span(of['p_ypi'])}",
            f"    mean unfair effect {_span(of['mean_unfair_effect'])}",
            _piu(of, seen_twice=context["paired"] and decisions == "threshold"),
            f"    the paper's upper bound on PIU {_span(of['piu_paper_bound'])}",
            f"    reading: {verdict}",
        ]
    return lines


def _accuracy(rows: Rows) -> str:
    accuracy, majority = rows["threshold", "accuracy"], rows["threshold", "majority_rate"]
    if np.isnan(accuracy.estimate):
        return f"  accuracy {accuracy.note}"
    low = accuracy.estimate if np.isnan(accuracy.lower) else accuracy.lower
    blunt = ": not clearly better than a constant prediction" if low <= majority.estimate else ""
    exact = " (exact 90% test-set bound)" if "test-set" in accuracy.note else ""
    return f"  accuracy {_span(accuracy)}{exact}, majority class {majority.estimate:.3f}{blunt}"


def _rate(rate: Any) -> str:
    same = min(rate.estimate, 1.0 - rate.estimate) < SAME_FOR_ALL
    return f"  positive prediction rate {_span(rate)}{': nearly constant' if same else ''}"


def _piu(of: Mapping[str, Any], *, seen_twice: bool) -> str:
    lower, upper, doubled = of["piu_lower"], of["piu_upper"], of.get("piu_double_disagreement")
    if seen_twice and abs(upper.estimate - lower.estimate) <= ROUNDING:
        return f"    PIU {_span(lower)}, a point under what is listed below: both answers of each unit follow"
    ends = f"at least {_span(lower)}, at most {_span(upper)}"
    if doubled is None:
        return f"    PIU {ends}"
    return f"    PIU, given what both worlds share, {ends}; twice the disagreement given it {_span(doubled)}"


def _span(row: Any) -> str:
    """Return an estimate with its interval and its note."""
    if np.isnan(row.estimate):
        return f"({row.note or 'cannot be made'})"
    interval = "" if np.isnan(row.lower) else f" [{row.lower:.3f}, {row.upper:.3f}]"
    note = f" ({row.note})" if row.note and "test-set" not in row.note else ""
    return f"{row.estimate + 0.0:.3f}{interval}{note}"


def _untouched(columns: Sequence[str]) -> str:
    """Return the verdict on a model that no unfair path reaches, whatever effect the weights show."""
    if not columns:
        return ""
    return (
        f"no unfair effect, by the graph: it reads {', '.join(columns)} only, which no unfair path touches, so its two "
        "answers are the same. A mean unfair effect other than 0 is the error of the weights."
    )


def _nearly_constant(rate: Any) -> str:
    """Return why hardly a row is answered otherwise than the rest: a bootstrap of so few shows no spread."""
    rarer = min(rate.estimate, 1.0 - rate.estimate) * rate.ess
    if rarer >= FEW:
        return ""
    return (
        f"none: all but about {rarer:.0f} of the rows get the same answer, too few for intervals to be trusted, and a "
        "bound that is small for that reason is no merit."
    )


def _small_group(reasons: Sequence[str]) -> str:
    found = [text for text in reasons if text]
    return f"none: {found[0]}, and what a few rows lack, no interval made of them shows." if found else ""


def _groups_disagree(apart: pd.DataFrame) -> str:
    """Return why a verdict is withheld: of two groups that disagree at least one is wrong, and maybe this one."""
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
    # The lower end is an absolute value, whose replicates are never 0: without units, the sign of the mean effect
    # decides instead; with units, which make the end larger than that, it must be clear of 0.
    least, most = max(effect.lower, -effect.upper, 0.0), min(upper.upper, 1.0)
    if lower.estimate > abs(effect.estimate) + ROUNDING and lower.lower > SMALL:
        least = max(least, lower.lower)
    if least > 0.0:
        return f"unfair to at least {least:.1%} of units, and to at most {most:.1%}."
    if most <= SMALL:
        return f"unfair to at most {most:.1%} of units."
    return (
        f"inconclusive: the data allow anything from 0 % to {most:.1%} of units; a wide interval is no "
        "evidence of unfairness, nor of its absence."
    )


def _groups(groups: pd.DataFrame, level: float) -> list[str]:
    if groups.empty:
        return []
    lines = [
        f"{row.quantity} from either observed group: {row.note} (effective size {row.ess_0:.1f} in group 0, "
        f"{row.ess_1:.1f} in group 1)."
        for row in groups[groups["note"] != ""].drop_duplicates("quantity").itertuples()
    ]
    groups = groups[groups["note"] == ""]
    judged = groups[groups["agree"].notna()]
    apart = disagreeing(judged)
    if groups.empty:
        return [*lines, ""]
    if judged.empty:
        widest = groups["difference"].abs().max()
        return [*lines, f"Either observed group, weighted alone: at most {widest:.3f} apart (no intervals).", ""]
    if apart.empty:
        return [*lines, "Either observed group, weighted alone, gives the same, as far as a joint test can show.", ""]
    lines.append(
        f"The two observed groups, weighted alone, disagree beyond chance in {len(apart)} of {len(judged)} "
        f"comparisons (one test of all: chance alone makes any disagree in about {1.0 - level:.0%} of audits). Unless "
        "by chance, that is a misspecified propensity or poor overlap, never a latent cause; compare "
        "propensity='boosted', and look at source.overlap():"
    )
    lines += [
        f"  {row.model}, {row.decisions}, {row.quantity}: {row.group_0:.3f} from group 0, {row.group_1:.3f} from group "
        f"1, difference in [{row.lower:.3f}, {row.upper:.3f}]"
        for row in apart.sort_values("difference", key=abs, ascending=False).head(MOST_LISTED).itertuples()
    ]
    if len(apart) > MOST_LISTED:
        lines.append(f"  and {len(apart) - MOST_LISTED} more with smaller differences, see the table of groups")
    return [*lines, ""]


def describe_path(means: pd.DataFrame, seeds: int, groups: pd.DataFrame, *, unfinished: bool) -> str:
    """Return a penalty path as text, from the means over its seeds by strength and its comparison of groups."""
    means = means.filter(items=SUMMARISED)
    lines = [
        f"Penalty path: means over {seeds} seed(s) by strength, thresholded decisions.",
        means.round(3).to_string(),
    ]
    if means["bimodal"].any():
        lines.append("bimodal: the seeds fall into two kinds of solution there; look at .table, not at the mean.")
    if apart := describe_apart(groups):
        lines.append(apart)
    if unfinished:
        lines.append("Unfinished: pass it as resume=... to go on.")
    return "\n".join(lines)


def describe_apart(groups: pd.DataFrame) -> str:
    """Return at which strengths of a path the two observed groups disagree, or an empty string."""
    apart = disagreeing(groups)
    if apart.empty:
        return ""
    strengths = ", ".join(f"{strength:g}" for strength in sorted(apart["strength"].unique()))
    return (
        "The two observed groups, weighted alone, disagree beyond chance at strength(s) "
        f"{strengths}: a propensity is misspecified or overlap is poor, and what was penalised and measured may not be "
        "the unfair effect. See .groups, and compare propensity='boosted'."
    )


def describe_groups(groups: pd.DataFrame) -> str:
    """Return the comparison of the groups, thresholded decisions, as a table in text."""
    if groups.empty:
        return "  no single group has support in both worlds"
    rows = groups[(groups["decisions"] == "threshold") & (groups["quantity"] != "p_y0")]
    rows = rows.replace({"note": {"": np.nan}}).dropna(axis="columns", how="all")
    rounded = rows.assign(**{column: rows[column].round(3) for column in rows.select_dtypes(np.number).columns})
    return rounded.drop(columns="decisions").to_string(index=False)
