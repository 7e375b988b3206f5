"""The tables of an audit, and its report in sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.audits.bootstrap import MAX_MISSING_SHARE, Estimator
from pyrofair.audits.context import Context
from pyrofair.audits.display.words import compared, percent, read_as, shorten, span
from pyrofair.audits.models import AuditedModel
from pyrofair.audits.rates import DIFFERENCE
from pyrofair.audits.verdicts import (
    COPY,
    CROSSED,
    ROUNDING,
    SHOWN,
    Quantities,
    Verdict,
    Verdicts,
    accuracy_remark,
    quantities_of,
    rate_remark,
)
from pyrofair.audits.view import CHECK, Block
from pyrofair.effects.bounds import test_set_bound
from pyrofair.effects.estimates import (
    AUDITED,
    FROM_OUTCOMES,
    GIVEN_UNITS,
    OF_WORLDS,
    ONE_SIGN,
    QUANTITIES,
    QUANTITIES_OF,
    Estimate,
    Estimates,
    Key,
    greater_of,
    kish_size,
    shares_of,
)
from pyrofair.effects.group_agreement import DISAGREE, GROUP_COLUMNS, compare_estimates, disagreeing, judge_jointly
from pyrofair.effects.potential_outcomes import FEWEST_ROWS, CounterfactualSample, SampleSplit, Views
from pyrofair.effects.scoring import DECISIONS
from pyrofair.graph import CausalGraph, UnfairPaths
from pyrofair.graph.paths import show_path

__all__ = [
    "GROUPS",
    "Measured",
    "asked_lines",
    "check_line",
    "describe_intervals",
    "exact_accuracy",
    "group_lines",
    "group_table",
    "in_doubt",
    "judged",
    "model_lines",
    "names_of_groups",
    "rates_by_group",
    "rows_alike",
    "section_lines",
    "setting_lines",
    "short_lines",
    "sizes_of",
    "stage_lines",
    "tell_groups",
    "verdict_lines",
    "world_lines",
]


MIN_REPLICATES = 2
"""Fewer replicates have no spread."""

GROUPS = ("group 0", "group 1")

IN_DOUBT = "in doubt by diagnostics"
RESOLUTION = 1e-12
"""What is smaller is the rounding of sums, and is shown as 0."""

Numbers = tuple[float, float, float]
"""An estimate and both ends of its interval, NaN where there is none."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Measured:
    """All quantities of some models, of which each table of an audit is made.

    ``numbers`` are the estimates with their intervals at a ``level``, with ``notes``; ``alike`` is the number of rows
    if these are independent and have one weight, so that accuracy has its exact bound, and else 0; ``sizes`` are the
    effective sizes of each model's quantities. ``failure`` is the reason why no world could be made, ``small`` why each
    world of a model depends on too few rows for an interval, ``few`` why there are too few groups of rows for any.
    """

    models: Sequence[AuditedModel]
    alike: int
    level: float
    numbers: Mapping[Key, Numbers]
    notes: Mapping[Key, str]
    sizes: Mapping[str, Mapping[str, float]]
    failure: str = ""
    small: Mapping[str, Sequence[str]] = field(default_factory=dict)
    few: str = ""

    @classmethod
    def of(cls, estimates: Estimates, level: float, **more: Any) -> Measured:
        """Return what estimates that are jointly normal give, none of a world with a stage of hardly any rows."""
        made = ((key, estimates.of(key)) for key in estimates.keys)
        numbers: dict[Key, Numbers] = {key: (each.estimate, *each.interval(level)) for key, each in made}
        for key in numbers:
            if key.quantity in (*OF_WORLDS, GIVEN_UNITS) and estimates.sizes[key.model][key.quantity] < FEWEST_ROWS:
                numbers[key] = (np.nan,) * 3
        notes = {key: note for key, note in estimates.notes.items() if not np.isnan(numbers[key][0])}
        return cls(level=level, numbers=numbers, notes=notes, **more)

    @classmethod
    def of_replicates(
        cls,
        estimator: Estimator,
        point: Mapping[Key, float],
        notes: Mapping[Key, str],
        draws: pd.DataFrame,
        level: float,
        **more: Any,
    ) -> Measured:
        """Return the estimates of the audited source, and their notes, with percentile intervals by replicates."""
        rows, models, sizes = estimator.rows, estimator.judged.models, _effective_sizes(estimator)
        numbers, told = {}, dict(notes)
        for key in point:
            if key.source == AUDITED:
                kept, note = _kept(key, draws)
                made = _replicated(key, point, draws[kept], estimator, sizes[key.model][key.quantity])
                numbers[key] = made.estimate, *made.interval(level)
                if note:
                    told.setdefault(key, note)
        alike = rows_alike(judged(rows.weight, rows.outcome)) if rows.clusters is None else 0
        return cls(models=models, alike=alike, level=level, numbers=numbers, notes=told, sizes=sizes, **more)

    def table(
        self, doubts: Mapping[Any, str], groups: pd.DataFrame | None = None, rules: Sequence[Any] = DECISIONS
    ) -> pd.DataFrame:
        """Return a row for each model, decisions and quantity, whether it could be estimated or not.

        A note on the effect reports where the observed ``groups`` disagree. ``doubts`` are what diagnostics of
        a model show, by model or by model and decisions. ``rules`` are the decisions: DECISIONS, or thresholds.
        """
        apart = pd.DataFrame() if groups is None else disagreeing(groups)
        disagree = set() if apart.empty else set(zip(apart["model"], apart["decisions"], strict=True))
        rows = []
        asked = [(model.name, rule) for model in self.models for rule in model.rules_of(rules)]
        for (name, decisions), quantity in product(asked, (*QUANTITIES, GIVEN_UNITS)):
            key = Key(AUDITED, name, decisions, quantity)
            absent = quantity == GIVEN_UNITS and key not in self.numbers
            if absent or (decisions == "score" and quantity in FROM_OUTCOMES):
                continue
            *values, found = self._told(key)
            if quantity == "mean_unfair_effect" and not {name, (name, decisions)}.isdisjoint(doubts):
                found = [*found, IN_DOUBT]
            if quantity == "mean_unfair_effect" and (name, decisions) in disagree:
                found = [*found, DISAGREE]
            lower = self.numbers.get(key._replace(quantity="piu_lower"), (np.nan,))
            if quantity == "piu_upper" and lower[0] > values[0] + SHOWN:
                found = [*found, CROSSED]
            values = [0.0 if abs(each) < RESOLUTION else each for each in values]
            size = self.sizes[name][quantity] if key in self.numbers else np.nan
            rows.append((name, decisions, quantity, *values, size, "; ".join(found)))
        columns = ["model", "decisions", "quantity", "estimate", "lower", "upper", "ess", "note"]
        return pd.DataFrame(rows, columns=columns)

    def thresholds(self, at: Sequence[Any], doubts: Mapping[Any, str]) -> pd.DataFrame:
        """Return the rows of decisions at thresholds, which a column of that name has; empty without any."""
        if not at:
            return pd.DataFrame()
        return self.table(doubts, rules=at).rename(columns={"decisions": "threshold"}).astype({"threshold": "float64"})

    def _told(self, key: Key) -> tuple[Any, Any, Any, list[str]]:
        """Return the estimate of a quantity, both ends of its interval, and notes on these."""
        estimate, low, high = self.numbers.get(key, (np.nan, np.nan, np.nan))
        notes = [self.notes[key]] if key in self.notes else []
        if key not in self.numbers:
            reason = self.failure
            if key.quantity in FROM_OUTCOMES:
                reason = f"df has no outcome column {self.models[0].graph.outcome_column!r}"
            return estimate, low, high, [f"cannot be made: {reason}"]
        if few := self.few or _few_rows(key.quantity, self.small.get(key.model, ())):
            return estimate, np.nan, np.nan, [*notes, f"no {'estimate' if np.isnan(estimate) else 'interval'}: {few}"]
        if key.quantity == "accuracy" and self.alike:
            return (estimate, *exact_accuracy(estimate, self.alike, (1.0 - self.level) / 2.0))
        return estimate, low, high, notes


def exact_accuracy(accuracy: float, rows: int, tail: float) -> tuple[float, float, list[str]]:
    """Return the exact interval of an accuracy on so many rows, with its probability of failure on each side."""
    low, high = test_set_bound(round((1.0 - accuracy) * rows), rows, tail)
    side = f"{100.0 * tail:.3g} % on each side"
    return 1.0 - high, 1.0 - low, [f"exact test-set bound, {side}, if no model was trained on these rows"]


def rows_alike(weight: NDArray[np.float64]) -> int:
    """Return the number of rows if all have one weight, and else 0."""
    return len(weight) if (weight == weight[0]).all() else 0


def judged(weight: NDArray[np.float64], outcome: NDArray[np.int8] | None) -> NDArray[np.float64]:
    """Return the weights of the rows whose outcome is known, all without outcomes."""
    return weight if outcome is None else weight[outcome >= 0]


def sizes_of(rows: float, worlds: tuple[float, float], outcomes: float) -> dict[str, float]:
    """Return the effective size that each quantity depends on, by those of the rows, of both worlds and of outcomes."""
    causal = dict.fromkeys((*OF_WORLDS, GIVEN_UNITS), min(worlds)) | dict(zip(("p_y0", "p_ypi"), worlds, strict=True))
    return dict.fromkeys(QUANTITIES, rows) | dict.fromkeys(FROM_OUTCOMES, outcomes) | causal


def _effective_sizes(estimator: Estimator) -> dict[str, dict[str, float]]:
    """Return for each model the effective sample size that each quantity depends on, in rows, or at most in groups."""
    weight, units, found = estimator.rows.weight, estimator.units, {}
    rows, known = (kish_size(each) for each in (weight, judged(weight, estimator.rows.outcome)))
    most = kish_size(weight, units.audited) if units.grouped else np.inf
    for model in estimator.judged.models:
        label, first, second = estimator.label_of(model.name), np.nan, np.nan
        if label in estimator.worlds:
            first, second = (world.effective_size for world in estimator.worlds[label][0])
            if isinstance(source := estimator.sources[label], SampleSplit):  # units stand for unequal numbers of rows
                first = second = source.effective_size(estimator.rows.table, weight)
        sizes = sizes_of(rows, (first, second), known)
        found[model.name] = {name: min(size, most) for name, size in sizes.items()}
    return found


def _few_rows(quantity: str, small: Sequence[str]) -> str:
    """Return why the worlds that a quantity depends on have too few rows, or an empty string."""
    if quantity in (*FROM_OUTCOMES, "positive_rate"):
        return ""
    used = {"p_y0": small[:1], "p_ypi": small[1:]}.get(quantity, small)
    return next((text for text in used if text), "")


def _kept(key: Key, draws: pd.DataFrame) -> tuple[NDArray[np.bool_], str]:
    """Return which replicates make the interval of a quantity, (B,), none of them if it has none, and a note."""
    none = np.zeros(len(draws), bool)
    if draws.empty or key not in draws.columns:
        return none, ""
    kept = draws[key].notna().to_numpy()
    lost = int((~kept).sum())
    if len(draws) < MIN_REPLICATES:
        return none, f"no interval: {len(draws)} replicate has no spread"
    if lost > MAX_MISSING_SHARE * len(draws) or len(draws) - lost < MIN_REPLICATES:
        return none, f"no interval: the estimate left [0, 1] in {lost} of {len(draws)} replicates"
    return kept, f"the interval leaves out {lost} of {len(draws)} replicates, which left [0, 1]" if lost else ""


def _replicated(
    key: Key, point: Mapping[Key, float], draws: pd.DataFrame, estimator: Estimator, size: float
) -> Estimate:
    """Return an estimate by its replicates; a bound on PIU is the image of signed values, which these carry across 0.

    Given units a bound is a sum with signs held (see conditional_bounds), and the mean effect another lower bound. With
    units in a single view nothing is estimated within a unit, so that the mean of absolute values has no kink, and none
    is greater.
    """
    values = {name: point[each] for name in QUANTITIES_OF if (each := key._replace(quantity=name)) in point}
    image, shares = QUANTITIES_OF[key.quantity].image, shares_of(key.quantity, values, size)
    label = estimator.label_of(key.model)
    if key.quantity not in ONE_SIGN or label not in estimator.worlds or np.isnan(point[key]):
        forms = [({key.quantity: 1.0}, 0.0)]
        image = image._replace(centre=0.0, sign=0)
    else:
        parts, constant = ONE_SIGN[key.quantity]
        forms = [({f"p_{name}": factor for name, factor in parts.items()}, constant)]
        views = estimator.worlds[label]
        if views[0][0].unit is not None:
            given = ({key.quantity: float(image.sign)}, constant)
            forms = [given, *forms] if key.quantity == "piu_lower" and len(views) > 1 else [given]
    found = []
    for parts, constant in forms:
        value = constant + sum(factor * values[name] for name, factor in parts.items())
        of = [factor * draws[key._replace(quantity=name)].to_numpy() for name, factor in parts.items() if len(draws)]
        drawn = constant + np.sum(of, axis=0) if of else None
        found.append(Estimate(value, draws=drawn, image=image, shares=shares))
    return greater_of(*found) if len(found) > 1 else found[0]


def group_table(
    point: Mapping[Key, float], draws: pd.DataFrame, level: float, worlds: Mapping[str, Views]
) -> pd.DataFrame:
    """Compare the two groups' estimates of the same quantity; empty where a group cannot be weighted alone.

    Lower and upper are the percentile interval of each difference for itself, but agree is one test: whether the
    difference over its spread exceeds what chance makes of the largest of all. With too little overlap it is left open.
    """
    pairs = [(key, key._replace(source=GROUPS[1])) for key in point if key.source == GROUPS[0]]
    pairs = [(key, other) for key, other in pairs if other in point]
    enough = len(draws) >= MIN_REPLICATES
    drawn = [(draws[other] - draws[key]).to_numpy(np.float64) for key, other in pairs if enough]
    compared = [
        (key, point[key], point[other], Estimate(point[other] - point[key], draws=each))
        for (key, other), each in zip(pairs, drawn or [None] * len(pairs), strict=True)
    ]
    return tell_groups(compared, [worlds[group][0] for group in GROUPS if pairs], level, drawn)


def tell_groups(
    compared: Sequence[tuple[Key, float, float, Estimate]],
    worlds: Sequence[Sequence[CounterfactualSample]],
    level: float,
    drawn: Sequence[NDArray[np.float64]],
) -> pd.DataFrame:
    """Return the table of groups: both estimates and their difference; one test of all by draws, none without."""
    rows = [
        {"model": key.model, "decisions": key.decisions, "quantity": key.quantity}
        | compare_estimates(zero, one, *gap.interval(level), key.quantity, worlds)
        for key, zero, one, gap in compared
    ]
    table = pd.DataFrame(rows, columns=["model", "decisions", *GROUP_COLUMNS])
    if not drawn:
        return table
    return judge_jointly(table, np.array([gap.spread for *_, gap in compared]), level, np.column_stack(drawn))


MOST_LISTED = 6
SHORTEST = 3
"""The most unfair paths that the short report lists, the shortest ones."""
SHORT = {
    "mean_unfair_effect": "mean unfair effect",
    "piu_lower": "PIU, at least",
    "piu_upper": "PIU, at most",
    "accuracy": "accuracy",
    "positive_rate": "positive decisions",
}
"""The five numbers of the short report."""
MORE = 'More: .details(), .summary(), .plot(), .to_html("audit.html").'
BASES = {"threshold": "decisions", "score": "scores (as if each decision were drawn with its score)"}


def model_lines(table: pd.DataFrame, verdicts: Verdicts, context: Context) -> list[str]:
    """Return for each model its rates and, by decisions, its effect, PIU and verdict, with an empty line between."""
    of = quantities_of(table)
    return [line for model in dict.fromkeys(table["model"]) for line in ("", *_model(of, model, verdicts, context))][1:]


def short_lines(audit: Any, verdicts: Verdicts) -> list[str]:
    """Return the verdict and five numbers of each model, the checks in one line, and where to find more."""
    context, graph = audit.context, audit.context.graph
    first, other = compared(context.paths)
    intervals = f"{context.level:.0%} confidence intervals" if describe_intervals(context) else "no intervals"
    lines = [
        f"Audit of {audit.table['model'].nunique()} model(s) on {context.rows:,} rows: {graph.sensitive_column} as "
        f"{other!r} instead of {first!r} on the unfair paths; {intervals}.",
        *asked_lines(context.paths, context.threshold),
    ]
    for (model, decisions), of in quantities_of(audit.table).items():
        if decisions == "threshold":
            lines += verdict_lines(model, verdicts[model, decisions], of, _beside(of, audit.rates, model, graph))
    checks = check_line(in_doubt(verdicts, context), context.warnings)
    return [*lines, *section_lines(context.sections), "", checks, MORE]


def asked_lines(unfair: UnfairPaths, threshold: float) -> list[str]:
    """Return the unfair paths, of many the shortest, and which decisions are positive."""
    graph, paths = unfair.graph, unfair.paths
    listed = "; ".join(show_path(tuple(read_as(graph, node) for node in each)) for each in paths.shortest(SHORTEST))
    more = f"; and {paths.size - SHORTEST:,} more" if paths.size > SHORTEST else ""
    return [
        f"Unfair: {listed}{more}",
        f"Positive: {graph.outcome_column} = {graph.positive!r}, a score above {threshold:g}.",
    ]


def verdict_lines(
    name: str, verdict: Verdict, of: Mapping[str, Any], beside: Mapping[str, str], quantities: Sequence[str] = (*SHORT,)
) -> list[str]:
    """Return a verdict and its numbers, in percent, each with its interval and what to compare it with."""
    lines = ["", f"{name}: {verdict.text}"]
    if CROSSED in of["piu_upper"].note:
        beside = {**beside, "piu_upper": "   below the lower bound by chance"}
    for quantity in () if verdict.status == "failed" else quantities:
        row = of[quantity]
        number, bracket, interval = span(row, points=quantity == "mean_unfair_effect").partition(" [")
        told = f"{number:13} {bracket[1:] + interval:14}{beside.get(quantity, '')}".rstrip()
        if np.isnan([row.estimate, getattr(row, "low", np.nan)]).all():
            told = row.note or "cannot be made"
        lines.append(f"  {SHORT[quantity]:20} {told}")
    return lines


def section_lines(sections: Sequence[Block]) -> list[str]:
    """Return what else was asked for: of the check of a graph, how many independences fail."""
    texts = {each.name: each.text() for each in sections}
    return [line for name, text in texts.items() for line in (text[:2] if name == CHECK else text)]


def in_doubt(verdicts: Verdicts, context: Context) -> list[str]:
    """Return the models with a failed check."""
    of = [key for key, each in verdicts.items() if each.is_withheld or not {key, key[0]}.isdisjoint(context.doubts)]
    return list(dict.fromkeys(model for model, _ in of))


def check_line(failed: Sequence[str], warnings: Sequence[str]) -> str:
    """Return which models failed a check, or members of a family, and how many warnings there are."""
    told = f"failed for {', '.join(failed)}" if failed else "none failed"
    warned = f"; {len(warnings)} warning(s)" if warnings else ""
    return f"Checks: {told}{warned}. These numbers depend on the graph and the assumptions in the details."


def _beside(of: Mapping[str, Any], rates: pd.DataFrame, model: str, graph: CausalGraph) -> dict[str, str]:
    """Return what to compare the accuracy of a model with, and its positive decisions by group."""
    copy = f"; {COPY}" if of["accuracy"].estimate > 1.0 - ROUNDING else ""
    majority = f"   majority class {of['majority_rate'].estimate:.1%}{copy}"
    return {"accuracy": majority, "positive_rate": f"   {rates_by_group(rates, model, graph)}"}


def rates_by_group(rates: pd.DataFrame, model: str, graph: CausalGraph) -> str:
    """Return the share of positive decisions in each group, in words; nothing if groups are not known."""
    if rates.empty:
        return ""
    own = rates[(rates["model"] == model) & (rates["quantity"] == "selection_rate") & (rates["group"] != DIFFERENCE)]
    of_column = "" if isinstance(graph.named(graph.baseline), str) else f"{graph.sensitive_column}="
    named = names_of_groups(graph)
    rows: Any = own.itertuples()
    return ", ".join(f"{of_column}{shorten(named(row.group))} {percent(row.estimate)}" for row in rows)


def names_of_groups(graph: CausalGraph) -> Callable[[str], str]:
    """Return what reports call the group of a table of rates, where the value stands as text."""
    names = {str(level): text for level, text in graph.label_map}
    return lambda group: names.get(group, group)


def setting_lines(context: Context, models: int) -> list[str]:
    """Return what was judged, and how the numbers are read."""
    graph, intervals, (first, other) = context.graph, describe_intervals(context), compared(context.paths)
    reason = "for a single bootstrap replicate makes no interval" if context.replicates else "no bootstrap"
    roles = "Y0 is the decision with the baseline on all paths, Ypi with the contrast on the unfair ones."
    if context.swapped:
        roles = (
            f"The roles are swapped: Y0 is the decision with the contrast, {first!r}, on all paths, Ypi with the "
            f"baseline, {other!r}, on the unfair ones."
        )
    lines = [
        f"Audit of {models} model(s) on {context.rows:,} rows; {intervals or f'points only, {reason}'}.",
        *filter(None, [intervals and context.resampling]),
        f"{graph.sensitive} is {graph.sensitive_column!r}: {graph.coding}. Positive is "
        f"{graph.outcome_column!r} = {graph.positive!r}; a decision is positive if the score exceeds "
        f"{context.threshold:g}.",
        f"{roles} PIU is the share of individuals whose two decisions differ.",
        *context.unfair.splitlines(),
    ]
    if context.unnamed:
        names, order = ", ".join(context.unnamed), ", ".join(context.order)
        lines.append(f"{names}: fitted without column names, and given {order} in this order.")
    return lines


def describe_intervals(context: Context) -> str:
    """Return what intervals are made of, or an empty string where there are none."""
    if context.wald:
        return f"{context.level:.0%} Wald intervals from influence values"
    if context.replicates < MIN_REPLICATES:
        return ""
    lost = f", {context.failed} of which failed" if context.failed else ""
    return f"{context.level:.0%} intervals from {context.replicates} bootstrap replicates{lost}"


def world_lines(context: Context) -> list[str]:
    """Return which rows each world is made of, how far they overlap, and the diagnostics of its stages."""
    lines = []
    for row in context.overlap.to_dict("records"):
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
    if context.form:
        lines.append(f"Estimates in the {context.form} form, by the stages of each world (assumptions below):")
    shares = [
        f"  {row['proxy']} {row['level']}: known in {row['known']:.0%} of {row['rows']:,} rows"
        for row in context.disclosure.to_dict("records")
    ]
    return [*lines, *context.stage_lines, *shares]


def stage_lines(weights: pd.DataFrame, stages: pd.DataFrame, graph: CausalGraph) -> list[str]:
    """Return a line for each stage: its weights, and the largest balance and correction of all models."""
    lines = []
    for row in weights.to_dict("records"):
        group = None if pd.isna(row["arm"]) else graph.named(graph.label(int(row["arm"])))
        arm = "all rows" if group is None else f"rows with {graph.sensitive}={group!r}"
        given = f" given {row['given']}" if row["given"] else ""
        own = stages[stages["counts"]] if len(stages) else stages
        for name in ("regime", "nodes") if len(stages) else ():
            own = own[own[name] == row[name]]
        sizes = [f"{each} {own[f'{each}_z'].abs().max():.1f}" for each in ("balance", "correction") if len(own)]
        largest = f"; largest |z| of {', of '.join(sizes)}" if sizes else ""
        problem = f"; {row['problem']}" if row["problem"] else ""
        lines.append(
            f"{row['regime']} world, stage {row['nodes']}{given}, {arm}: mean weight {row['mean_weight']:.3f} (z "
            f"{row['mean_weight_z']:+.1f}), effective size {row['ess']:,.0f}{largest}{problem}"
        )
    return lines


def _model(rows: Quantities, model: str, verdicts: Verdicts, context: Context) -> list[str]:
    own = rows[model, "threshold"]
    rate = own["positive_rate"]
    same = rate_remark(rate)
    lines = [
        model,
        *context.score_types.get(model, ()),
        _accuracy(own["accuracy"], own["majority_rate"]),
        f"  positive prediction rate {_span(rate)}{f': {same}' if same else ''}",
    ]
    for decisions, what in BASES.items():
        if not (of := rows.get((model, decisions), {})):
            lines.append("  no scores: it gives decisions alone")
            continue
        if context.failure:
            lines.append(f"  {what}: no unfair effect could be estimated, see below")
            continue
        lines += [
            f"  {what}: P(Y0=1) {_span(of['p_y0'])}, P(Ypi=1) {_span(of['p_ypi'])}",
            f"    mean unfair effect {_span(of['mean_unfair_effect'])}",
            _piu(of, seen_twice=context.paired and decisions == "threshold"),
            f"    the paper's upper bound on PIU {_span(of['piu_paper_bound'])}",
            f"    verdict: {verdicts[model, decisions].text}",
        ]
    return lines


def _accuracy(accuracy: Any, majority: Any) -> str:
    if np.isnan(accuracy.estimate):
        return f"  accuracy {accuracy.note}"
    remark = accuracy_remark(accuracy, majority)
    blunt = f": {remark}" if remark else ""
    exact = " (exact test-set bound)" if "test-set" in accuracy.note else ""
    return f"  accuracy {_span(accuracy)}{exact}, majority class {majority.estimate:.3f}{blunt}"


def _piu(of: Mapping[str, Any], *, seen_twice: bool) -> str:
    lower, upper, doubled = of["piu_lower"], of["piu_upper"], of.get("piu_double_disagreement")
    if seen_twice and abs(upper.estimate - lower.estimate) <= ROUNDING:
        return f"    PIU {_span(lower)}, a point under the assumptions: both decisions of each individual are known"
    ends = f"at least {_span(lower)}, at most {_span(upper)}"
    if doubled is None:
        return f"    PIU {ends}"
    return f"    PIU, given the shared features, {ends}; twice the disagreement {_span(doubled)}"


def _span(row: Any) -> str:
    """Return an estimate with its interval and its note."""
    if np.isnan(row.estimate):
        return f"({row.note or 'cannot be made'})"
    note = f" ({row.note})" if row.note and "test-set" not in row.note else ""
    value, low, high = (f"{round(each, 3) + 0.0:.3f}" for each in (row.estimate, row.lower, row.upper))  # never -0.000
    return f"{value}{note}" if np.isnan(row.lower) else f"{value} [{low}, {high}]{note}"


def group_lines(groups: pd.DataFrame, context: Context) -> list[str]:
    """Return whether the two observed groups, weighted alone, give the same."""
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
        return lines
    if apart.empty:
        text = "Check passed: estimates from the two observed groups, each weighted alone, agree (joint test)."
        if judged.empty:
            widest = groups["difference"].abs().max()
            text = f"Either observed group, weighted alone: at most {widest:.3f} apart (no intervals)."
        return [*lines, text]
    advice = "compare propensity='boosted', and look at source.overlap()"
    share = f"one test of all: chance alone makes any disagree in about {1.0 - context.level:.0%} of audits"
    if context.wald:
        share = "one test of all, which takes the weights as known and so finds differences too often"
        advice = "a stage fails its check as well (see the verdict), so try another model of it (propensity=)"
        if not context.doubts:
            advice = "the estimates above use other weights, and no stage fails its check, so you need not act on it"
    lines.append(
        f"The two observed groups, weighted alone, differ significantly in {len(apart)} of {len(judged)} "
        f"comparisons ({share}). The cause is a wrong propensity model, poor overlap or chance, never a latent cause; "
        f"{advice}:"
    )
    lines += [
        f"  {row.model}, {row.decisions}, {row.quantity}: {row.group_0:.3f} from group 0, {row.group_1:.3f} from group "
        f"1, difference in [{row.lower:.3f}, {row.upper:.3f}]"
        for row in apart.sort_values("difference", key=abs, ascending=False).head(MOST_LISTED).itertuples()
    ]
    if len(apart) > MOST_LISTED:
        lines.append(f"  and {len(apart) - MOST_LISTED} more with smaller differences, see the table of groups")
    return lines
