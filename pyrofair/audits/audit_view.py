"""The report of one audit as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from pyrofair._figures import BLUE, GREY, INK, UNFAIR, as_svg
from pyrofair._validation import require_choice, shown
from pyrofair.audits.context import Context
from pyrofair.audits.display.export import audit_data
from pyrofair.audits.display.page import Table, cell, make_table, missing_tables, spans_table
from pyrofair.audits.display.tracks import Panel, forest, of_model, of_rows, scale_of
from pyrofair.audits.display.words import answer, changes, describe_question, percent, shorten, span
from pyrofair.audits.individuals import COLUMNS
from pyrofair.audits.rates import DIFFERENCE
from pyrofair.audits.report import (
    describe_intervals,
    group_lines,
    model_lines,
    names_of_groups,
    rates_by_group,
    setting_lines,
    world_lines,
)
from pyrofair.audits.verdicts import (
    Quantities,
    Verdict,
    Verdicts,
    accuracy_remark,
    quantities_of,
    rate_remark,
    read_levels,
    read_thresholds,
)
from pyrofair.audits.view import Block, View, drawn
from pyrofair.effects.scoring import Decisions
from pyrofair.exceptions import DataError
from pyrofair.graph import CausalGraph, UnfairPaths
from pyrofair.graph.svg import graph_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pyrofair.audits.audit import Audit

__all__ = [
    "RIGHT_GRAPH",
    "basis_of",
    "figure_markup",
    "graph_block",
    "missing_blocks",
    "rates_block",
    "settings_of",
    "subgroup_tables",
    "subgroups_markup",
    "threshold_tables",
    "thresholds_markup",
    "tracks_markup",
    "view_of",
]

COLOURS = {"accent": BLUE, "red": UNFAIR, "muted": GREY, "ink": INK, "page": "#FFFFFF"}
"""The variables of a page that take the places of a figure's colours."""
MOST_INDIVIDUALS = 50
"""The most individual rows that the page shows; its CSV holds all."""
RIGHT_GRAPH = "The causal graph, and which of its paths are unfair. No table can confirm a graph."
SCALE = (
    "Shares are on one scale from 0 to 100%, the mean effect on its own. The thick bar runs from the lower to the "
    "upper bound on PIU. Thin lines are confidence intervals. The upright mark next to accuracy is the majority class, "
    "the accuracy of a constant prediction. A nearly constant model has a bound near 0 for a trivial reason."
)
WORLDS = (
    "Each world is made of the rows of a group that resemble it. The effective size is the number of equally weighted "
    "rows that would be as informative."
)
CUT_ELSEWHERE = (
    "An effect may be small at one threshold and large at another. Here the same scores are cut at other thresholds."
)
GROUP_RATES = (
    "Shares of positive decisions by group, with intervals: of all rows (selection), of rows with a positive outcome "
    "(true positive) and of the others (false positive). They compare the groups as they are, whatever the paths."
)
WITHIN = (
    "Subgroups that the sensitive attribute does not cause. The overall effect is an average over them and may hide "
    "opposite effects."
)
EACH_BY_ITSELF = " Each interval holds by itself, not all at once."


def view_of(audit: Audit, decisions: Decisions = "threshold", individuals: pd.DataFrame | None = None) -> View:
    """Return the report of an audit about thresholded decisions, or about those drawn with their scores."""
    require_choice("decisions", decisions, ("threshold", "score"))
    context, of = audit.context, quantities_of(audit.table)
    verdicts = audit.read()
    models = list(dict.fromkeys(audit.table["model"]))
    basis: dict[str, Decisions] = {name: decisions if (name, decisions) in of else "threshold" for name in models}
    chosen = {name: verdicts[name, basis[name]] for name in models}
    without = [name for name in models if basis[name] != decisions]
    more = _at_thresholds(audit, {name: each for name, each in chosen.items() if basis[name] == "threshold"})
    failed = [f"No unfair effect could be estimated: {context.failure.rstrip('.')}."] if context.failure else []
    stated = context.assumptions or ("(the source states none)",)
    assumptions: list[tuple[str, Sequence[str]]] = [("These numbers assume:", [context.units, *stated])]
    if context.outcome_assumptions:
        of_outcomes = f"Those of {', '.join(context.outcomes)}, an outcome, assume:"
        assumptions.append((of_outcomes, context.outcome_assumptions))
    answers = []
    for key in basis.items():
        told = answer(verdicts[key], of[key], context.paths, context.level)
        answers.append((key[0], replace(told, body=f"{told.body} {_facts(audit, of, *key)}")))
    return View(
        title="Audit of unfair effects",
        question=describe_question(context.paths, len(models), context.rows, context.threshold, decisions, without),
        lead=setting_lines(context, len(models)),
        blocks=_blocks(audit, decisions, basis, of, verdicts, _individuals(individuals)),
        schema="pyrofair-audit",
        data=partial(audit_data, audit),
        answers=answers,
        basis=basis_of(context),
        changes=[*changes([*chosen.values()], len(context.warnings))[:4], *filter(None, [more])],
        assumptions=assumptions,
        closing=failed,
        warnings=context.warnings,
        settings=settings_of(context),
    )


def _blocks(
    audit: Audit,
    decisions: Decisions,
    basis: Mapping[str, Decisions],
    of: Quantities,
    verdicts: Verdicts,
    individuals: Table | None,
) -> list[Block]:
    context = audit.context
    both: tuple[Decisions, ...] = ("threshold", "score") if decisions == "threshold" else ("score", "threshold")
    lines = model_lines(audit.table, verdicts, context)
    tables = [_models(audit.table, verdicts, each) for each in both if any(key[1] == each for key in of)]
    tracks = partial(_tracks, of, basis, context.threshold)
    found = [
        graph_block(context.paths),
        Block("worlds", "The two worlds", world_lines(context), aside=[WORLDS]),
        Block("models", "Models side by side", lines, pictures=tables),
        *([rates_block(audit.rates, context.graph)] if len(audit.rates) else []),
        Block("intervals", "Intervals", aside=[SCALE], markup=lambda: tracks_markup("track", tracks())),
    ]
    if len(audit.thresholds):
        tables, picture = threshold_tables(audit), partial(thresholds_markup, audit, "thresholds-drawing")
        found.append(Block("thresholds", "Thresholds", tables=tables, aside=[CUT_ELSEWHERE], markup=picture))
    if len(audit.subgroups):
        tables, picture = subgroup_tables(audit, decisions), partial(subgroups_markup, audit, "subgroup")
        found.append(Block("subgroups", "Subgroups", tables=tables, aside=[WITHIN], markup=picture))
    if individuals is not None:
        strips = partial(tracks_markup, "strip", of_rows(individuals.source, context.threshold))
        found.append(Block("individuals", "Individuals", pictures=[individuals], markup=strips))
    found += [*missing_blocks(context.missing), *context.sections]
    lines = group_lines(audit.groups, context)
    found.append(Block("support", "Overlap and diagnostics", lines, pictures=_support_tables(audit, basis)))
    return found


def tracks_markup(name: str, panels: Sequence[Panel]) -> Markup:
    """Return tracks as markup, whose identifiers begin with a name."""
    return drawn("tracks.html", name=name, panels=panels)


def _tracks(of: Quantities, basis: Mapping[str, Decisions], threshold: float) -> list[Panel]:
    """Return the tracks of all models; their effects are on one scale."""
    effects, panels = scale_of(of[key]["mean_unfair_effect"] for key in basis.items()), []
    for name, each in basis.items():
        cut = f", cut at {threshold:g}" if each == "score" else ""
        panels += of_model(name, of[name, each], of[name, "threshold"], cut, effects)
    return panels


def thresholds_markup(audit: Audit, name: str) -> Markup:
    """Return the picture of thresholds."""
    title = "Mean unfair effect and PIU by threshold"
    return figure_markup(audit.plot_thresholds, name, title, "The table below has the same numbers.")


def subgroups_markup(audit: Audit, name: str, of: str = "") -> Markup:
    """Return a forest for each subgroup and model, with what it is ``of`` in its title."""
    keys: Any = audit.subgroups.groupby(["subgroup", "model"], sort=False)
    panels = []
    for (subgroup, model), own in keys:
        levels = own.groupby("level", sort=False)
        members = {str(level): {row.quantity: row for row in rows.itertuples()} for level, rows in levels}
        panels += forest(f"{of}{model}, by {subgroup}", members)
    return tracks_markup(name, panels)


def missing_blocks(shares: pd.DataFrame) -> list[Block]:
    """Return the block of the shares of missing values, by column and group; none if nothing is missing."""
    return [Block("missing", "Missing values", tables=[table]) for table in missing_tables(shares)]


def graph_block(paths: UnfairPaths) -> Block:
    """Return the drawing of a graph with its unfair paths, and both in words."""

    def markup() -> Markup:
        svg = graph_svg(paths.graph, paths)  # its texts are escaped where it is made
        return drawn("drawing.html", drawing=None if svg is None else Markup(svg), words=f"{paths.graph}\n\n{paths}")

    return Block("graph", "The graph", markup=markup)


def figure_markup(draw: Callable[[], Figure], name: str, title: str, description: str) -> Markup:
    """Return the figure that a function draws in the colours of a page; it scrolls if the page is narrow."""
    svg = Markup(as_svg(draw, name, title, description, COLOURS, "plot"))  # its texts are escaped where it is made
    return Markup('<div class="canvas" role="region" tabindex="0" aria-label="{}">{}</div>').format(title, svg)


def basis_of(context: Context) -> list[str]:
    """Return what the verdicts assume, in sentences."""
    intervals = describe_intervals(context)
    covers = "which account for sampling error, not for a wrong graph; and the assumptions below."
    last = f"{intervals}, {covers}" if intervals else "Estimates without intervals, and the assumptions below."
    return [RIGHT_GRAPH, last]


def _facts(audit: Audit, of: Quantities, model: str, decisions: Decisions) -> str:
    """Return a model's rates, by group as well, and its accuracy, as a sentence with remarks on these.

    Accuracy and rates by group are those of thresholded decisions, whatever the decisions that the verdict is about.
    """
    own = of[model, "threshold"]
    accuracy, majority, rate = own["accuracy"], own["majority_rate"], of[model, decisions]["positive_rate"]
    by_group = rates_by_group(audit.rates, model, audit.context.graph)
    drawn_with = " if drawn with the scores" if decisions == "score" else ""
    said = f"Positive decisions: {percent(rate.estimate)}{drawn_with}" + f" ({by_group})" * bool(by_group)
    remarks = [rate_remark(rate)]
    if not np.isnan(accuracy.estimate):
        said += f". Accuracy: {percent(accuracy.estimate)} (majority class: {percent(majority.estimate)})"
        remarks = [accuracy_remark(accuracy, majority), *remarks]
    return f"{': '.join(filter(None, [said, ', '.join(filter(None, remarks))]))}."


def _at_thresholds(audit: Audit, own: Mapping[str, Verdict]) -> str:
    """Return how far the lower bound of a model runs over thresholds, its own verdict among them."""
    ends: dict[str, dict[float, float]] = {}
    for (model, threshold), each in read_thresholds(audit.thresholds, audit.context).items():
        if model in own and each.is_verdict:
            ends.setdefault(model, {})[threshold] = each.least
    if not ends:
        return ""
    for model, of in ends.items():
        if own[model].is_verdict:
            of[audit.context.threshold] = own[model].least
    model = max(ends, key=lambda name: max(ends[name].values()) - min(ends[name].values()))
    low, high = (end(ends[model], key=ends[model].__getitem__) for end in (min, max))
    if ends[model][low] == ends[model][high]:
        most = max(max(of.values()) for of in ends.values())
        return f"Another threshold: of those tried, none has a lower bound above {percent(most)}."
    return (
        f"Another threshold: the lower bound of {shorten(model)} runs from {percent(ends[model][low])} (at {low:g}) to "
        f"{percent(ends[model][high])} (at {high:g}) over those tried. Each interval holds separately, so the "
        "largest of several lower bounds tends to be too large."
    )


# -- tables and pictures -----------------------------------------------------------------------------------------------


def _models(table: pd.DataFrame, verdicts: Verdicts, decisions: Decisions) -> Table:
    own = table[table["decisions"] == decisions]
    rates = table[table["model"].isin(own["model"]) & table["quantity"].isin(("accuracy", "majority_rate"))]
    what = "Decisions" if decisions == "threshold" else "Scores, as if each decision were drawn with its score"
    return spans_table(
        f"models-{decisions}",
        f"{what}: the models side by side",
        own if decisions == "score" else pd.concat([rates, own]).drop_duplicates(),
        "model",
        last=("verdict", {model: each.text for (model, of), each in verdicts.items() if of == decisions}),
        note="Estimates with intervals in brackets.",
    )


def rates_block(rates: pd.DataFrame, graph: CausalGraph) -> Block:
    """Return the rates of each group, once, and each difference: a row for each of a model."""
    rows, gap, column, called = [], rates["group"] == DIFFERENCE, graph.sensitive_column, names_of_groups(graph)
    name = column + "=" + rates["group"].map(called)
    of = "" if "contrast" not in rates else f" of {column}=" + rates["contrast"].astype(str).map(called)
    named = rates.assign(group=name.mask(gap, DIFFERENCE + of)).drop_duplicates(["model", "group", "quantity"])
    keys: Any = named.groupby(["model", "group"], sort=False)
    for (model, group), own in keys:
        apart = str(group).startswith(DIFFERENCE)
        shown = {str(row.quantity).replace("_", " "): span(row, points=apart) for row in own.itertuples()}
        notes = "; ".join(dict.fromkeys(filter(None, own["note"])))
        row = {"model": model, "group": group, "rows": f"{own['rows'].iloc[0]:,}"}
        rows.append(row | shown | ({"note": notes} if notes else {}))
    note = GROUP_RATES + EACH_BY_ITSELF * ("contrast" in rates)
    table = make_table("rates", "Positive decisions", pd.DataFrame(rows).fillna(""), named, note=note)
    return Block("rates", "Rates by group", tables=[table])


def _told(verdicts: Mapping[Any, Verdict], note: str) -> dict[str, Any]:
    """Return the verdicts as the last column of a table, and below it the reasons where there is none."""
    why: dict[str, list[str]] = {}
    for at, each in verdicts.items():
        if each.cause and not each.is_verdict:
            why.setdefault(each.cause.strip().rstrip("."), []).append(cell(at))
    reasons = [f"{', '.join(places)}: {cause}." for cause, places in why.items()]
    return {"last": ("verdict", {at: each.head for at, each in verdicts.items()}), "note": " ".join([note, *reasons])}


def threshold_tables(audit: Audit) -> list[Table]:
    """Return the tables of thresholds, one for each model."""
    verdicts, found = read_thresholds(audit.thresholds, audit.context), []
    for i, (model, own) in enumerate(audit.thresholds.groupby("model", sort=False)):
        of = {at: each for (name, at), each in verdicts.items() if name == model}
        told, caption = _told(of, "Each interval holds separately."), f"{model}: decisions at several thresholds"
        found.append(spans_table(f"thresholds-{i}", caption, own, "threshold", **told))
    return found


def subgroup_tables(audit: Audit, decisions: Decisions) -> list[Table]:
    """Return the tables of subgroups, which are about thresholded decisions whatever the page is about."""
    verdicts = read_levels(audit.subgroups, audit.context)
    note = f"All intervals of subgroups hold together with {audit.context.level:.0%}, asymptotically."
    if decisions == "score":
        note += f" Decisions are positive if the score exceeds {audit.context.threshold:g}, not drawn."

    def sizes(_: Any, of: Mapping[str, Any]) -> dict[str, str]:
        effect = of["mean_unfair_effect"]
        return {"rows": f"{effect.rows:,}", "effective size": cell(effect.ess)}

    keys: Any = audit.subgroups.groupby(["subgroup", "model"], sort=False)
    found = []
    for i, (key, own) in enumerate(keys):
        told = _told({level: each for (name, level, of), each in verdicts.items() if (name, of) == key}, note)
        told |= {"label": str(key[0]), "before": sizes}
        found.append(spans_table(f"subgroups-{i}", f"{key[1]}, by {key[0]}", own, "level", **told))
    return found


def _support_tables(audit: Audit, basis: Mapping[str, Decisions]) -> list[Table]:
    """Return the tables of overlap, of the comparison of groups (for the decisions of each model), and of stages."""
    found, context = [], audit.context
    if len(context.disclosure):
        title = f"How often {context.graph.sensitive_column} is known, by level or quarter of each proxy"
        found.append(make_table("disclosure", title, context.disclosure))
    if len(context.overlap):
        found.append(make_table("overlap", "Overlap of the observed groups, by world", context.overlap))
    if len(audit.groups):
        own = audit.groups[audit.groups["decisions"] == audit.groups["model"].map(basis)].drop(columns="decisions")
        found.append(make_table("groups", "The same from either observed group alone", own, audit.groups))
    if len(audit.stages):
        found.append(make_table("stages", "Diagnostics of each stage", _worst_stages(audit.stages), audit.stages))
    return found


def _worst_stages(stages: pd.DataFrame) -> pd.DataFrame:
    """Return for each model and stage the row of the decisions with the largest z."""
    largest = stages[["balance_z", "correction_z"]].abs().max(axis="columns")
    keys = ["model", "regime", "nodes"]
    kept = stages.loc[largest.groupby([stages[key] for key in keys], sort=False).idxmax()]
    names = ["model", "regime", "nodes", "given", "mean_weight", "ess", "max_weight", "balance_z", "correction_z"]
    return kept[[name for name in names if name in kept]]


def _individuals(given: pd.DataFrame | None) -> Table | None:
    if given is None:
        return None
    if not isinstance(given, pd.DataFrame) or not set(COLUMNS) <= set(given.columns):
        raise DataError(
            f"individuals={shown(given)} must be a table made by pyrofair.audits.flips, with the columns "
            f"{', '.join(COLUMNS)}."
        )
    given = given.sort_values("flips", ascending=False, kind="stable")
    head = given.head(MOST_INDIVIDUALS)
    rows = pd.DataFrame(
        {
            "row": head["row"].astype(str),
            "model": head["model"],
            "path": head["path"],
            "score, baseline": [percent(each) for each in head["baseline"]],
            "score, switched": [percent(each) for each in head["switched"]],
            "decision flips": ["" if np.isnan(each) else percent(each, 0) for each in head["flips"]],
        }
    )
    note = "The probability that the decision flips when these paths are switched, under the source's model."
    if len(given) > len(head):
        note += f" The {len(head)} largest of {len(given):,} lines; the CSV holds all."
    return make_table("individuals", "Which decisions flip, and along which path", rows, given, note=note)


def settings_of(context: Context) -> list[tuple[str, str]]:
    """Return the source, the settings and the versions of an audit by name."""
    graph = context.graph
    found = [("source", context.source)]
    for name, value in context.settings.items():
        if name == "subgroups":
            value = "; ".join(f"{key} ({', '.join(columns)})" for key, columns in value.items())
        elif name == "thresholds":
            value = ", ".join(f"{each:g}" for each in value)
        found.append(("seed (random_state)" if name == "random_state" else name, str(value)))
    found.append((graph.sensitive, f"column {graph.sensitive_column!r}: {graph.coding}"))
    if context.resampling:
        found.append(("resampling", context.resampling))
    if context.unnamed:
        order = f"{', '.join(context.unnamed)}, given {', '.join(context.order)} in this order"
        found.append(("without column names", order))
    return found + [(f"version of {name}", number) for name, number in context.versions.items()]
