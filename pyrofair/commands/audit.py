"""The command ``pyrofair audit``: scores or models on a table assessed along unfair paths, a report and a gate."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrofair._files import csv_text
from pyrofair.commands.check import add_check, check_table
from pyrofair.commands.data import DATA_OPTIONS, GROUPS
from pyrofair.commands.decisions import DECISION_OPTIONS, LEVEL, THRESHOLDS, asked_of, model_files, thresholds_of
from pyrofair.commands.explain import PART_OPTIONS, add_parts, explain
from pyrofair.commands.gate import GATE_OPTIONS, judge
from pyrofair.commands.options import DONE, FAILED, Option, Settings, UsageError, command, grouped
from pyrofair.commands.problem import QUESTION, Problem, names_several
from pyrofair.commands.results import RESULT_OPTIONS, ResultsFolder
from pyrofair.commands.running import add_page, as_options, running
from pyrofair.commands.sensitivity import analyse
from pyrofair.commands.sources import AUDIT_SOURCES, make_source, source_options

if TYPE_CHECKING:
    import pandas as pd

    from pyrofair.audits import Audit, ContrastAudit

__all__ = ["run"]

FILES = (
    "report.txt", "report.html", "report.json", "audit.csv", "groups.csv", "stages.csv", "thresholds.csv",
    "subgroups.csv", "rates.csv", "worst.csv", "disclosure.csv", "audit.png", "stages.png", "graph.png",
    "check.csv", "sensitivity.csv", "parts.csv", "parts.png",
)  # fmt: skip
OPTIONS = (
    *QUESTION,
    *DECISION_OPTIONS,
    *GATE_OPTIONS,
    *DATA_OPTIONS,
    *source_options(AUDIT_SOURCES, "onestep"),
    *grouped(
        "the source of both worlds",
        Option("proxy", "columns outside the graph that hint at the sensitive attribute, which may then be missing in "
               "some rows, at random given the features and these columns", many=True, metavar="COLUMN"),
        Option("train", "a table of other rows on which the source is fitted (default: fitted on DATA, each row judged "
               "by models that did not see it)", metavar="FILE"),
    ),
    THRESHOLDS,
    LEVEL,
    *grouped(
        "the intervals",
        Option("subgroups", "columns within whose levels the effect is estimated, with simultaneous intervals; those "
               "that the sensitive attribute does not cause. COLUMN=K makes K bands, of about equally many rows, of a "
               "column of numbers; fewer where many rows have the same one", many=True, metavar="COLUMN"),
        Option("replicates", "bootstrap replicates, of ipw and gcomputation (onestep needs none)", int, default=200,
               least=0, most=1_000_000),
    ),
    GROUPS,
    *grouped(
        "more in the report",
        Option("check", "test the graph on the table, as pyrofair check does", bool),
        Option("explain", "where the difference between the groups comes from, as pyrofair explain shows", bool),
        *PART_OPTIONS,
        Option("sensitivity", "how strong a hidden common cause would have to be, as pyrofair sensitivity shows", bool),
    ),
    *RESULT_OPTIONS,
    *grouped(
        "the results",
        Option("flips", "a further file of the results, such as flips.csv: the rows whose decision flips along the "
               "unfair paths, with both scores; of models that read more that these paths change than the sensitive "
               "attribute, the probability of a flip by learned mechanisms, with --source gcomputation",
               metavar="NAME"),
    ),
)  # fmt: skip
ESTIMATED = "  scores are known only for observed rows; scores in the other world are estimated by regression"
EXAMPLE = """\
example, a table applicants.csv with the columns sex, skill, job, hired and the scores p of a model:

  pyrofair audit applicants.csv \\
      --graph '{sex skill} -> job; {sex skill job} -> hired' --sensitive sex --outcome hired \\
      --baseline male --contrast female --positive yes \\
      --unfair 'sex -> hired; sex -> job -> hired' --score p

It prints a report and writes it to audit-applicants/, with tables, pictures and settings.toml, which repeats the run:

  pyrofair audit --config audit-applicants/settings.toml

In a pipeline --fail-above .1 ends with exit code 3 if the share of units decided on unfairly may exceed 10 %, with 4 if
that cannot be judged.
"""


@command("audit", "audit scores or models on a table", EXAMPLE, OPTIONS)
def run(settings: Settings, lines: Any) -> int:
    """Audit scores or models along unfair paths.

    Accuracy, rates, the mean effect along the unfair paths, and bounds on the share of units decided on unfairly (PIU),
    each with its interval.
    """
    from pyrofair.tables.recorded import join_truths

    _check(settings)
    hints = dict.fromkeys(settings["proxy"], "--proxy")
    how: Any = {"extra": hints, "outcome_required": False, "several": True, "gaps": bool(hints)}
    with running(settings, (*FILES, *filter(None, [settings["flips"]])), "train", **how) as own:
        problem, folder = own.problem, own.folder
        pairs = [f"--{each}" for each in ("proxy", "flips", "sensitivity") if settings[each]]
        if problem.contrasts and pairs:
            raise UsageError(f"{' and '.join(pairs)}: for two groups, but --contrast names several. Name one value.")
        if settings["order"]:
            from pyrofair.audits.decompose import require_order

            require_order(settings["order"], problem.graph, problem.unfair)
        subgroups = {name: _subgroup(name, problem) for name in settings["subgroups"]}
        source, models = make_source(settings, problem.unfair), own.models
        if settings["flips"] and settings["source"] != "gcomputation":
            _require_answers(problem, models)
        report: Any = _audit(settings, problem, models, source, subgroups)
        if settings["flips"]:
            folder.add_text(settings["flips"], csv_text(_with_flips(settings, problem, models, report).flips))
        sections = _sections(settings, problem, models, folder)
        texts = join_truths([*own.warned(), *map(as_options, report.context["warnings"])])
        context = report.context | {"warnings": texts, "sections": sections}
        notes = [as_options(each) for each in report.table["note"]]
        told = "quantities" if problem.contrasts else "table"
        report = replace(report, **{told: report.table.assign(note=notes)}, context=context)
        limit = settings["fail-above"]
        code, judged = (DONE, []) if limit is None else judge(report, limit, settings["fail-quantity"])
        head = []
        if files := model_files(settings["model"]):
            which = " or ".join(files)
            head.append(f"On rows that it was trained on, the accuracy of {which} is too good: hold rows out.")
        _add_files(folder, report, problem)
        gate = ["", *judged] if judged else []
        written = own.finish(lines, *head, "", report, *gate, tell=False)
    if code != DONE:
        lines.complain(as_options("\n".join(judged)))
    return FAILED if written == FAILED else code


def _check(settings: Settings) -> None:
    """Refuse options that do not go together."""
    score, source, replicates, flips = (settings[each] for each in ("score", "source", "replicates", "flips"))
    column, train, limit = shlex.quote(next(iter(score), "")), settings["train"], settings["fail-above"]
    other = [f"--{each}" for each in ("train", "drop-other-groups", "check", "sensitivity") if settings[each]]
    of_parts = [f"--{each}" for each in ("order", "with-outcome") if settings[each] and not settings["explain"]]
    rules = [
        (score and train and source == "onestep",
         f"--train fits the source on other rows, and with --source onestep a column of scores, --score {column}, is "
         "assessed by the rows of DATA alone: leave out --train, for each row is judged by models that did not see it; "
         "or pass the model itself, --model FILE; or use --source ipw."),
        (train and names_several(settings),
         "--train fits one source on other rows, and each contrast has its own: leave out --train, or name one "
         "contrast."),
        (score and source == "gcomputation",
         "--source gcomputation draws rows of another world, for which a column has no scores: pass the model itself, "
         "--model FILE; or use --source onestep or ipw."),
        (source == "onestep" and "replicates" in settings.given,
         "--replicates belongs to --source ipw or gcomputation; onestep has intervals without replicates."),
        ("fail-quantity" in settings.given and limit is None, "--fail-quantity needs a limit, --fail-above."),
        (of_parts,
         f"{' and '.join(of_parts)}: of the parts of a difference, which --explain adds to the report."),
        (limit is not None and source != "onestep" and replicates < 2,
         f"--fail-above needs intervals, and --replicates {replicates} makes none."),
        (settings["proxy"] and (other or source != "onestep"),
         "--proxy is for --source onestep, and for all rows of DATA, whose group is not known in some: leave out "
         f"{' and '.join(other) or '--source'}."),
        (flips and (flips in FILES or Path(flips).name != flips or not flips.endswith(".csv")),
         f"--flips {flips!r} must be the name of a further CSV file of the results, such as flips.csv."),
        (flips and score,
         "--flips asks for the scores of rows with another value of the sensitive attribute, and a column, --score "
         f"{column}, has none: pass the model itself, --model FILE."),
    ]  # fmt: skip
    for applies, text in rules:
        if applies:
            raise UsageError(text)


def _subgroup(text: str, problem: Problem) -> Any:
    """Return a column by name, or a function that makes bands of one: COLUMN=K."""
    from pandas.api.types import is_numeric_dtype

    from pyrofair.audits.subgroups import MOST_LEVELS
    from pyrofair.tables.labels import quantile_bands

    name, _, bands = text.rpartition("=")
    if text in problem.frame or name not in problem.frame:
        # What is no column is refused with the columns that may make subgroups.
        return name if name and bands.isdecimal() and text not in problem.frame else text
    graph = problem.graph
    if graph.node_of.get(name) in {graph.sensitive, *graph.descendants(graph.sensitive)}:
        return name  # refused, with the reason
    if not is_numeric_dtype(problem.frame[name]):
        raise UsageError(f"--subgroups {text}: bands are made of numbers, and {name!r} holds categories.")
    if not bands.isdecimal() or not 2 <= int(bands) <= MOST_LEVELS:
        raise UsageError(f"--subgroups {text}: the number of bands is one from 2 to {MOST_LEVELS}, such as {name}=4.")

    values = problem.frame[name].astype(float)
    cut = quantile_bands(values, int(bands))
    labels = dict(zip(values, cut, strict=True))  # of all rows: each contrast has a part of them

    def band(table: pd.DataFrame) -> pd.Series[Any]:
        return table[name].astype(float).map(labels).astype(cut.dtype)

    if cut.nunique() < 2:
        raise UsageError(
            f"--subgroups {text}: so many rows have the same {name!r} that all fall into one band. Name the column "
            f"itself, --subgroups {name}, if it has few values, or write bands into the table."
        )
    return band


def _audit(
    settings: Settings, problem: Problem, models: dict[str, Any], source: Any, subgroups: dict[str, Any]
) -> Audit | ContrastAudit:
    """Fit the source on other rows, where there are, and audit; of several contrasts each."""
    from pyrofair.audits import Audit, audit, audit_contrasts
    from pyrofair.audits.audit import with_missing

    how = asked_of(settings, problem)
    if settings["train"]:
        source = with_missing(source, how["missing"]).fit(*problem.others["train"])
    made: Any = partial(audit_contrasts, contrasts=problem.contrasts) if problem.contrasts else audit
    report = made(
        models,
        source,
        problem.frame.assign(**{name: problem.extra[name] for name in settings["proxy"]}),
        **({"proxies": settings["proxy"]} if settings["proxy"] else {}),
        n_boot=settings["replicates"],
        n_jobs=settings["threads"],
        subgroups=subgroups or None,
        thresholds=thresholds_of(settings),
        **how,
    )
    if how["scores"] == settings["scores"] or not isinstance(report, Audit):
        return report  # type: ignore[no-any-return]
    stated = {name: text for name, text in report.context.score_types.items() if "stated by the user" in text[0]}
    types = report.context.score_types | {name: [ESTIMATED] for name in stated}
    told: Audit = replace(report, context=report.context | {"score_types": types})
    return told


def _require_answers(problem: Problem, models: dict[str, Any]) -> None:
    """Refuse --flips before the audit if no model has answers in both worlds."""
    from pyrofair.audits.individuals import unknown_answers
    from pyrofair.audits.models import AuditedModel

    order = tuple(problem.graph.input_columns)
    texts = [
        unknown_answers(AuditedModel(name, each, problem.graph, order), problem.unfair) for name, each in models.items()
    ]
    if all(texts):
        raise UsageError(texts[0])


def _with_flips(settings: Settings, problem: Problem, models: dict[str, Any], report: Audit) -> Audit:
    """Return a report that estimates the answers that no row shows, if its source learns mechanisms."""
    from pyrofair.audits.individuals import likely_flips
    from pyrofair.mechanisms import learn_mechanisms
    from pyrofair.sources import SEM

    unknown = [name for name, each in report.answers.items() if isinstance(each, str)]
    if not unknown or settings["source"] != "gcomputation":
        return report
    features = problem.frame[list(problem.graph.input_columns)]
    own = asked_of(settings, problem)
    how = {name: own[name] for name in ("sample_weight", "missing", "random_state")}
    sem = SEM.from_mechanisms(learn_mechanisms(features, problem.unfair, **how), problem.unfair)
    at = features, own["threshold"], settings["seed"]
    return replace(
        report,
        answers={**report.answers, **{each: partial(likely_flips, each, models[each], sem, *at) for each in unknown}},
    )


def _sections(settings: Settings, problem: Problem, models: dict[str, Any], folder: ResultsFolder) -> tuple[Any, ...]:
    """Return the parts of the report besides the audit, and add their tables; one that cannot be made says why."""
    import pandas as pd

    from pyrofair.audits.view import PARTS, Block
    from pyrofair.exceptions import PyrofairError

    found, tables = [], []
    if settings["explain"]:
        try:
            parts = explain(settings, problem, models)
            found.append(parts.block())
            add_parts(folder, parts)
        except PyrofairError as error:
            found.append(Block(PARTS, "Where the gap comes from", [f"Not available: {as_options(str(error))}"]))
    if settings["check"]:
        check = check_table(settings, problem)
        found.append(check.block())
        add_check(folder, check)
    for i, (name, model) in enumerate(models.items() if settings["sensitivity"] else ()):
        title = f"Hidden common causes ({name})"
        try:
            sweep = analyse(settings, problem, model)
        except PyrofairError as error:
            found.append(Block(f"sensitivity-{i}", title, [f"Not available: {as_options(str(error))}"]))
            continue
        found.append(sweep.block(f"sensitivity-{i}", title))
        tables.append(sweep.table.assign(model=name))
    if tables:
        folder.add_table("sensitivity.csv", pd.concat(tables, ignore_index=True))
    return tuple(found)


def _add_files(folder: ResultsFolder, report: Any, problem: Problem) -> None:
    """Add the report, the tables and the pictures to the folder."""
    from pyrofair.audits import Audit
    from pyrofair.graph.drawing import draw_graph

    add_page(folder, report)
    folder.add_text("report.json", report.to_json(indent=2))
    folder.add_table("audit.csv", report.table)
    one = isinstance(report, Audit)
    for name in ("groups", "stages", "rates"):
        folder.add_table(f"{name}.csv", getattr(report, name) if one else report.gathered(name))
    folder.add_table("thresholds.csv", report.thresholds)
    folder.add_table("subgroups.csv", report.subgroups)
    if one:
        folder.add_table("disclosure.csv", report.context.disclosure)
    folder.add_figure("audit.png", report.plot())
    if not one:
        folder.add_table("worst.csv", report.worst)
    elif len(report.stages):
        folder.add_figure("stages.png", report.plot_stages())
    folder.add_figure("graph.png", draw_graph(problem.graph, problem.unfair).figure)
