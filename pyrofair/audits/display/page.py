"""An audit as a self-contained HTML page, and as a fragment of one for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pyrofair._validation import require_choice, shown
from pyrofair._version import __version__
from pyrofair.audits.context import Context
from pyrofair.audits.display.words import advice, answer, changes, describe_question, percent, shorten, span
from pyrofair.audits.readings import (
    Reading,
    accuracy_remark,
    rate_remark,
    read_audit,
    read_levels,
    read_thresholds,
)
from pyrofair.effects.scoring import Decisions
from pyrofair.exceptions import DataError
from pyrofair.graph import CausalGraph
from pyrofair.graph.svg import graph_svg

if TYPE_CHECKING:
    from pyrofair.audits.audit import Audit

__all__ = ["audit_fragment", "audit_to_html", "table_fragment"]

MOST_CARDS = 3
"""More models are listed on the first page, not shown side by side."""
MOST_LISTED = 8
THINNEST = 0.004
"""A range that is narrower is drawn as a point."""
MOST_INDIVIDUALS = 50
"""The most individual rows that the page shows; its CSV holds all."""
MOST_ROWS = 60
"""The most rows of a table that a notebook shows."""
LABELS = {
    "p_y0": "yes, baseline",
    "p_ypi": "yes, unfair paths switched",
    "mean_unfair_effect": "mean unfair effect",
    "piu_lower": "PIU, lower end",
    "piu_upper": "PIU, upper end",
    "piu_paper_bound": "the paper's bound",
    "piu_double_disagreement": "twice the disagreement",
    "positive_rate": "positive rate",
    "accuracy": "accuracy",
    "majority_rate": "majority class",
}
INDIVIDUAL_COLUMNS = ("row", "model", "path", "baseline", "switched", "effect", "effect_sd", "flips")
CITATIONS = (
    "Chikahara, Y., Sakaue, S., Fujino, A. and Kashima, H. (2021). Learning Individually Fair Classifier with "
    "Path-Specific Causal-Effect Constraint. Proceedings of The 24th International Conference on Artificial "
    "Intelligence and Statistics, PMLR 130.",
    f"The pyrofair developers. pyrofair, version {__version__}. Path-specific causal fairness, to audit and "
    "train classifiers against the unfair effects of a causal graph.",
)
FORMULA = ("=", "+", "-", "@")
"""A cell that begins with one of these is a formula to a spreadsheet, unless it is a number."""
_fragments = count()


@dataclass(frozen=True)
class Table:
    """A table of the page: its caption, the labels of its columns, rows of texts, and the same as CSV in full digits.

    ``numeric`` says of each column whether it is set to the right.
    """

    name: str
    caption: str
    columns: Sequence[str]
    numeric: Sequence[bool]
    rows: Sequence[Sequence[str]]
    csv: str
    note: str = ""

    @property
    def uri(self) -> str:
        """The CSV as a link that downloads it, without a script."""
        return f"data:text/csv;charset=utf-8,{quote(self.csv)}"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("pyrofair.audits.display"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["percent"] = percent
    return made


def audit_to_html(
    audit: Audit,
    path: str | Path | None = None,
    *,
    title: str | None = None,
    decisions: Decisions = "threshold",
    individuals: pd.DataFrame | None = None,
) -> str:
    """Return an audit as an HTML page, and write it to ``path`` if given."""
    require_choice("decisions", decisions, ("threshold", "score"))
    if title is not None and (not isinstance(title, str) or not title.strip()):
        raise DataError(f"title={shown(title)} must be a text, such as 'Audit of the hiring model, autumn'.")
    own = _individuals(individuals)
    heading = title or "Audit of unfair effects"
    view = {**_view(audit, decisions), "title": heading, "individuals": own}
    text = _environment().get_template("report.html").render(view)
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def audit_fragment(audit: Audit) -> str:
    """Return an audit as a compact element with styles of its own, for a notebook."""
    view = {**_view(audit, "threshold"), "name": f"pyrofair-{next(_fragments)}"}
    return _environment().get_template("fragment.html").render(view)


def table_fragment(title: str, table: pd.DataFrame, note: str = "") -> str:
    """Return a table with a title as an element with styles of its own, for a notebook; NaN is left empty."""
    head = table.head(MOST_ROWS)
    cut = f" The first {len(head)} of {len(table):,} rows." if len(table) > len(head) else ""
    made = _table("table", title, head, note=f"{note}{cut}".strip())
    view = {"name": f"pyrofair-{next(_fragments)}", "table": made}
    return _environment().get_template("table.html").render(view)


def _view(audit: Audit, decisions: Decisions) -> dict[str, Any]:
    """Return what the templates show of an audit."""
    context = audit.context
    paths, level = context.paths, context.level
    readings = read_audit(audit.table, audit.groups, context)
    of = _quantities(audit.table)
    models = list(dict.fromkeys(audit.table["model"]))
    basis = {model: decisions if (model, decisions) in of else "threshold" for model in models}  # some give no scores
    answers = [
        (model, answer(readings[model, basis[model]], of[model, basis[model]], paths, level), of[model, basis[model]])
        for model in models
    ]
    without_scores = [model for model in models if basis[model] != decisions]
    drawn = graph_svg(paths.graph, paths)
    return {
        "audit": audit,
        "context": context,
        "version": __version__,
        "decisions": decisions,
        "question": describe_question(paths, len(models), context.rows, context.threshold, decisions, without_scores),
        "answers": answers[: MOST_CARDS if len(answers) <= MOST_CARDS else MOST_LISTED],
        "listed": len(answers) > MOST_CARDS,
        "omitted": max(0, len(answers) - MOST_LISTED),
        "facts": [_facts(of, model, basis[model], context.threshold) for model in models],
        "changes": changes([readings[model, basis[model]] for model in models], context, decisions),
        "at_thresholds": _at_thresholds(
            audit, {model: readings[model, "threshold"] for model in models if basis[model] == "threshold"}
        ),
        "drawing": None if drawn is None else Markup(drawn),  # its texts are escaped where it is made
        "graph_lines": str(paths.graph).splitlines(),
        "path_lines": str(paths).splitlines(),
        "models": [
            _models_table(scored, of, readings, each)
            for each in ((decisions, "score" if decisions == "threshold" else "threshold"))
            if (scored := [model for model in models if (model, each) in of])
        ],
        "tracks": [(model, _tracks(of, model, basis[model], context.threshold)) for model in models],
        "thresholds": _threshold_tables(audit, models),
        "subgroups": _subgroup_tables(audit, decisions),
        "support": _support_tables(audit, basis),
        "support_lines": context.stage_lines,
        "warnings": [(text, advice(text)) for text in context.warnings],
        "settings": _settings(audit),
        "citations": CITATIONS,
        "interval": _interval_of(context),
        "score_types": {model: " ".join(context.score_types.get(model, ())).strip() for model in models},
        "sizes": [(model, of[model, basis[model]]["mean_unfair_effect"].ess) for model in models],
    }


def _quantities(table: pd.DataFrame) -> dict[tuple[str, Any], dict[str, Any]]:
    found: dict[tuple[str, Any], dict[str, Any]] = {}
    rows: Any = table.itertuples()
    for row in rows:
        found.setdefault((row.model, row.decisions), {})[row.quantity] = row
    return found


def _interval_of(context: Context) -> str:
    level, tried, failed = context.level, context.replicates, context.failed
    if context.wald:
        return f"{level:.0%} Wald intervals from influence values"
    if tried > 1:
        lost = f", {failed} of which failed" if failed else ""
        return f"{level:.0%} intervals from {tried} bootstrap replicates{lost}"
    return "Points only, without intervals"


def _facts(
    of: Mapping[Any, Mapping[str, Any]], model: str, decisions: Decisions, threshold: float
) -> tuple[str, str, str, list[str]]:
    """Return a model, how often it says yes and is right, as clauses, and what is to be said of these.

    Accuracy is that of thresholded decisions, whatever the decisions that the rate is about.
    """
    own = of[model, "threshold"]
    accuracy, majority, rate = own["accuracy"], own["majority_rate"], of[model, decisions]["positive_rate"]
    drawn = decisions == "score"
    yes = f"says yes to {percent(rate.estimate)}{' if drawn with its scores' if drawn else ''}"
    right = ""
    if not np.isnan(accuracy.estimate):
        where = f", with yes where they exceed {threshold:g}," if drawn else ""
        right = (
            f" and{where} is right in {percent(accuracy.estimate)} (always giving the majority class: "
            f"{percent(majority.estimate)})"
        )
    remarks = [rate_remark(rate)]
    if not np.isnan(accuracy.estimate):
        remarks.insert(0, accuracy_remark(accuracy, majority))
    return model, yes, right, [each for each in remarks if each]


def _at_thresholds(audit: Audit, own: Mapping[str, Reading]) -> str:
    """Return how far the lower end of a model runs over thresholds, its own reading among them.

    Of several models it is the one whose lower end changes most.
    """
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
        return f"Another threshold: of those tried, none has a lower end above {percent(most)}."
    return (
        f"Another threshold: the lower end of {shorten(model)} runs from {percent(ends[model][low])} (at {low:g}) to "
        f"{percent(ends[model][high])} (at {high:g}) over those tried. Each interval holds by itself, so the largest "
        "of several lower ends is too large more often."
    )


# -- tables ------------------------------------------------------------------------------------------------------------


def _table(
    name: str,
    caption: str,
    frame: pd.DataFrame,
    source: pd.DataFrame | None = None,
    *,
    note: str = "",
) -> Table:
    """Return a table of a frame's values as texts; numbers to three digits, unless texts are given."""
    numeric = [pd.api.types.is_numeric_dtype(frame[column]) or _is_numbers(frame[column]) for column in frame]
    rows = [[_cell(value) for value in row] for row in frame.itertuples(index=False, name=None)]
    csv = _without_formulas(frame if source is None else source).to_csv(index=False, lineterminator="\n")
    return Table(name, caption, [str(column) for column in frame], numeric, rows, csv, note)


def _without_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose texts begin with an apostrophe where a spreadsheet would take them for a formula.

    Names of models, columns and labels come from others; opened in a spreadsheet, a cell such as ``=HYPERLINK(...)``
    would be evaluated. Numbers keep their sign.
    """
    made = frame.copy()
    for place, name in enumerate(frame.columns):
        if not pd.api.types.is_numeric_dtype(frame[name].dtype):
            made.isetitem(place, [_plain_cell(each) for each in frame[name].astype(object)])
    made.columns = pd.Index([_plain_cell(str(each)) for each in frame.columns])
    return made


def _plain_cell(value: Any) -> Any:
    if not isinstance(value, str) or not (value[:1] in ("\t", "\r") or value.lstrip()[:1] in FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def _is_numbers(column: pd.Series[Any]) -> bool:
    """Return whether texts are numbers, percentages or intervals, so that they are set to the right."""
    texts = [str(each) for each in column if str(each) not in ("", "not available")]
    return bool(texts) and all(set(each) <= set("0123456789.,%[] -+eto") for each in texts)


def _cell(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if isinstance(value, float | np.floating):
        if np.isnan(value):
            return ""
        number = float(value)
        return f"{number:,.0f}" if abs(number) >= 1000.0 else f"{round(number, 3) + 0.0:.3g}"
    return "" if value is None or value is pd.NA else str(value)


def _models_table(
    models: Sequence[str],
    of: Mapping[Any, Mapping[str, Any]],
    readings: Mapping[tuple[str, Any], Reading],
    decisions: Decisions,
) -> Table:
    rows, full = [], []
    for model in models:
        own = of[model, decisions]
        rates = of[model, "threshold"]
        row = {
            "model": model,
            "accuracy": span(rates["accuracy"]),
            "majority class": span(rates["majority_rate"]),
            "positive rate": span(own["positive_rate"]),
            "mean unfair effect": span(own["mean_unfair_effect"]),
            "PIU at least": span(own["piu_lower"]),
            "PIU at most": span(own["piu_upper"]),
            "reading": readings[model, decisions].text,
        }
        if decisions == "score":
            del row["accuracy"], row["majority class"]
        rows.append(row)
        full += [
            {"model": model, "decisions": decisions, "quantity": key, **_ends(each), "note": each.note}
            for key, each in own.items()
        ]
    what = "Decisions" if decisions == "threshold" else "Scores, as if each decision were drawn with its score"
    return _table(
        f"models-{decisions}",
        f"{what}: the models side by side",
        pd.DataFrame(rows),
        pd.DataFrame(full),
        note="Estimates with intervals in brackets.",
    )


def _ends(row: Any) -> dict[str, float]:
    return {"estimate": row.estimate, "lower": row.lower, "upper": row.upper, "ess": row.ess}


def _tracks(
    of: Mapping[Any, Mapping[str, Any]], model: str, decisions: Decisions, threshold: float
) -> list[dict[str, Any]]:
    """Return what the picture of intervals shows of a model: positions in percent of the track."""
    own, rates = of[model, decisions], of[model, "threshold"]
    accuracy, majority, rate, effect = (
        rates["accuracy"],
        rates["majority_rate"],
        own["positive_rate"],
        own["mean_unfair_effect"],
    )
    lower, upper = own["piu_lower"], own["piu_upper"]
    is_point = upper.estimate - lower.estimate < THINNEST
    tracks: list[dict[str, Any]] = [
        {
            "kind": "piu",
            "label": "PIU",
            "text": "not available"
            if np.isnan(lower.estimate)
            else f"{percent(_inside(lower.estimate))} to {percent(_inside(upper.estimate))}",
            "ends": [_at(_inside(lower.lower)), _at(_inside(upper.upper))],
            "span": None if is_point else [_at(_inside(lower.estimate)), _at(_inside(upper.estimate))],
            "mark": _at(_inside(lower.estimate)) if is_point else None,
            "tick": None,
        }
    ]
    right = f"accuracy, cut at {threshold:g}" if decisions == "score" else "accuracy"
    size = np.nan if np.isnan(effect.estimate) else abs(effect.estimate)
    both = [max(effect.lower, -effect.upper, 0.0), max(effect.upper, -effect.lower)]
    rows: list[tuple[Any, ...]] = [
        ("effect", "size of the mean effect", effect, size, [np.nan, np.nan] if np.isnan(effect.lower) else both, None),
        ("rate", "positive rate", rate, rate.estimate, [rate.lower, rate.upper], None),
        ("accuracy", right, accuracy, accuracy.estimate, [accuracy.lower, accuracy.upper], majority.estimate),
    ]
    for kind, label, row, value, ends, tick in rows:
        beside = "" if tick is None or np.isnan(tick) else f"; majority class {percent(tick)}"
        tracks.append(
            {
                "kind": kind,
                "label": label,
                "text": f"{span(row)}{beside}",
                "ends": [_at(_inside(each)) for each in ends],
                "span": None,
                "mark": _at(_inside(value)),
                "tick": None if tick is None else _at(tick),
            }
        )
    return tracks


def _inside(value: float) -> float:
    """Return a value in [0, 1], to place it on a track; NaN stays."""
    return float(np.clip(value, 0.0, 1.0))


def _at(value: float) -> str | None:
    return None if np.isnan(value) else f"{100.0 * value:.2f}%"


def _head(reading: Reading, of: Mapping[str, Any], audit: Audit) -> str:
    return answer(reading, of, audit.context.paths, audit.context.level).head


def _threshold_tables(audit: Audit, models: Sequence[str]) -> list[Table]:
    if audit.thresholds.empty:
        return []
    readings = read_thresholds(audit.thresholds, audit.context)
    of = _quantities(audit.thresholds.rename(columns={"threshold": "decisions"}))
    tables = []
    for i, model in enumerate(models):
        rows = []
        for (name, threshold), own in of.items():
            if name == model:
                rows.append(
                    {
                        "threshold": f"{threshold:g}",
                        "accuracy": span(own["accuracy"]),
                        "positive rate": span(own["positive_rate"]),
                        "mean unfair effect": span(own["mean_unfair_effect"]),
                        "PIU at least": span(own["piu_lower"]),
                        "PIU at most": span(own["piu_upper"]),
                        "answer": _head(readings[model, threshold], own, audit),
                    }
                )
        source = audit.thresholds[audit.thresholds["model"] == model]
        tables.append(
            _table(
                f"thresholds-{i}",
                f"{model}: decisions at several thresholds",
                pd.DataFrame(rows),
                source,
                note="The interval of each threshold holds by itself, not together with those of others.",
            )
        )
    return tables


def _subgroup_tables(audit: Audit, decisions: Decisions) -> list[Table]:
    """Return the tables of subgroups, which are about thresholded decisions whatever the page is about."""
    if audit.subgroups.empty:
        return []
    readings = read_levels(audit.subgroups, audit.context)
    tables = []
    keys: Any = audit.subgroups.groupby(["subgroup", "model"], sort=False)
    for i, ((subgroup, model), source) in enumerate(keys):
        rows = []
        for level, own in source.groupby("level", sort=False):
            of = {row.quantity: row for row in own.itertuples()}
            effect = of["mean_unfair_effect"]
            rows.append(
                {
                    str(subgroup): level,
                    "rows": f"{effect.rows:,}",
                    "effective size": _cell(effect.ess),
                    "positive rate": span(of["positive_rate"]),
                    "mean unfair effect": span(effect),
                    "PIU at least": span(of["piu_lower"]),
                    "PIU at most": span(of["piu_upper"]),
                    "answer": _head(readings[subgroup, str(level), model], of, audit),
                }
            )
        note = f"All intervals of subgroups hold together with {audit.context.level:.0%}, asymptotically."
        if decisions == "score":
            note += f" Decisions are yes where the score exceeds {audit.context.threshold:g}, not drawn."
        caption = f"{model}, by {subgroup}"
        tables.append(_table(f"subgroups-{i}", caption, pd.DataFrame(rows), source, note=note))
    return tables


def _support_tables(audit: Audit, basis: Mapping[str, Decisions]) -> list[Table]:
    """Return the tables of overlap, of the comparison of groups (for the decisions of each model), and of stages."""
    found = []
    overlap = audit.context.overlap
    if len(overlap):
        found.append(_table("overlap", "Overlap of the observed groups, by world", overlap))
    if len(audit.groups):
        own = audit.groups[audit.groups["decisions"] == audit.groups["model"].map(basis)].drop(columns="decisions")
        found.append(_table("groups", "The same from either observed group alone", own, audit.groups))
    if len(audit.stages):
        found.append(_table("stages", "Diagnostics of each stage", _worst_stages(audit.stages), audit.stages))
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
    if not isinstance(given, pd.DataFrame) or not set(INDIVIDUAL_COLUMNS) <= set(given.columns):
        raise DataError(
            f"individuals={shown(given)} must be a table made by pyrofair.audits.flips, with the columns "
            f"{', '.join(INDIVIDUAL_COLUMNS)}."
        )
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
    more = f" The first {len(head)} of {len(given):,} lines; the CSV holds all." if len(given) > len(head) else ""
    return _table(
        "individuals",
        "Which decisions flip, and along which path",
        rows,
        given,
        note=f"The probability that the decision flips when these paths are switched, under the source's model.{more}",
    )


def _settings(audit: Audit) -> list[tuple[str, str]]:
    context = audit.context
    graph: CausalGraph = context.graph
    settings = context.settings
    found = [("source", context.source)]
    for name, value in settings.items():
        if name == "subgroups":
            value = "; ".join(f"{key} ({', '.join(columns)})" for key, columns in value.items()) or "none"
        elif name == "thresholds":
            value = ", ".join(f"{each:g}" for each in value) or "none"
        found.append(("seed (random_state)" if name == "random_state" else name, str(value)))
    found.append(
        (
            graph.sensitive,
            f"column {graph.sensitive_column!r}: 0 is {graph.baseline!r}, 1 is {graph.contrast!r}",
        )
    )
    if context.resampling:
        found.append(("resampling", context.resampling))
    if context.unnamed:
        found.append(
            (
                "without column names",
                f"{', '.join(context.unnamed)}, given {', '.join(context.order)} in this order",
            )
        )
    found += [(f"version of {name}", number) for name, number in context.versions.items()]
    return found
