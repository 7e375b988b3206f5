"""The command ``pyrofair audit``: scores or models on a table assessed along unfair paths, a report and a gate."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrofair._files import csv_text
from pyrofair.commands.data import DATA, DATA_OPTIONS
from pyrofair.commands.gate import GATE_OPTIONS, judge
from pyrofair.commands.models import MODEL_OPTIONS, load_model, model_files
from pyrofair.commands.options import DONE, FAILED, Command, Option, Settings, UsageError, grouped
from pyrofair.commands.problem import GRAPH_OPTIONS, LABEL_OPTIONS, Problem, files_read, read_problem
from pyrofair.commands.results import RESULT_OPTIONS, ResultsFolder
from pyrofair.commands.running import as_options, computing
from pyrofair.commands.sources import AUDIT_SOURCES, make_source, source_options

if TYPE_CHECKING:
    import pandas as pd

    from pyrofair.audits import Audit

__all__ = ["COMMAND"]

FILES = (
    "report.txt", "report.html", "report.json", "audit.csv", "groups.csv", "stages.csv", "thresholds.csv",
    "subgroups.csv", "disclosure.csv", "audit.png", "stages.png", "graph.png",
)  # fmt: skip
OPTIONS = (
    DATA,
    *GRAPH_OPTIONS,
    *LABEL_OPTIONS,
    *grouped(
        "the decisions",
        Option("score", "columns of scores: probabilities of yes, or decisions as 0 and 1", many=True,
               metavar="COLUMN"),
        Option("score-positive", "the value that counts as yes in columns of decisions that hold text",
               metavar="VALUE"),
        Option("scores", "what columns of scores are: a prediction from the columns that the graph lets a classifier "
               "read; an outcome, such as decisions of humans or of a model of other inputs; or auto, what the source "
               "can take: onestep estimates what a column would be in another world as it does for an outcome, which a "
               "prediction allows, too; ipw takes a prediction unless equal rows have unequal scores", default="auto",
               choices=("auto", "prediction", "outcome")),
        *MODEL_OPTIONS,
        Option("threshold", "a decision is yes where the score exceeds this", float, default=0.5, least=0.0, below=1.0),
    ),
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
    *grouped(
        "the intervals",
        Option("thresholds", "further thresholds at which decisions are assessed, such as .1 .3 .7 .9", float,
               many=True, least=0.0, below=1.0),
        Option("subgroups", "columns within whose levels the effect is estimated, with simultaneous intervals; those "
               "that the sensitive attribute does not cause. COLUMN=K makes K bands, of about equally many rows, of a "
               "column of numbers; fewer where many rows have the same one", many=True, metavar="COLUMN"),
        Option("level", "the level of intervals", float, default=0.95, above=0.0, below=1.0),
        Option("replicates", "bootstrap replicates, of ipw and gcomputation (onestep needs none)", int, default=200,
               least=0, most=1_000_000),
    ),
    *RESULT_OPTIONS,
    *grouped(
        "the results",
        Option("flips", "a further file of the results, such as flips.csv: the rows whose decision flips along the "
               "unfair paths, with both scores; of models that read nothing that these paths change but the sensitive "
               "attribute", metavar="NAME"),
    ),
)  # fmt: skip
ESTIMATED = (
    "  a column of scores, known for the rows as they are: what it would be in another world is estimated, as that of "
    "an outcome is"
)
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


def run(settings: Settings, lines: Any) -> int:
    """Audit, write the results, print the report, and return the exit code."""
    _check(settings)
    files = model_files(settings["model"])
    names = [*settings["score"], *files]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"{twice[0]!r} is named twice among --score and --model; name a model apart, NAME=FILE.")
    read = [*files_read(settings, "train"), *files.values()]
    with computing(settings) as warned:
        problem = read_problem(
            settings,
            extra=dict.fromkeys(settings["score"], "--score") | dict.fromkeys(settings["proxy"], "--proxy"),
            others=["train"],
            outcome_required=False,
            gaps=bool(settings["proxy"]),
        )
        scores = {name: _scores(name, problem, settings) for name in settings["score"]}
        subgroups = {name: _subgroup(name, problem) for name in settings["subgroups"]}
        source = make_source(settings, problem.unfair)
        with ResultsFolder.claimed(settings, read, (*FILES, *filter(None, [settings["flips"]]))) as folder:
            models = scores | {name: load_model(each, trusted=settings["trust-pickle"]) for name, each in files.items()}
            report = _audit(settings, problem, models, source, subgroups)
            if settings["flips"]:
                folder.add_text(settings["flips"], csv_text(report.flips))
            texts = list(dict.fromkeys([*warned(), *report.context.warnings]))
            report = replace(report, context=report.context | {"warnings": texts})
            limit = settings["fail-above"]
            found = None if limit is None else judge(report, limit, settings["fail-quantity"])
            head = [f"pyrofair audit of {settings['data']}", *problem.notes]
            if problem.graph.outcome_column in settings["score"]:
                name = problem.graph.outcome_column
                head.append(f"{name} is the outcome itself: its accuracy is 1 and means nothing.")
            if files:
                which = " or ".join(files)
                head.append(f"On rows that it was trained on, the accuracy of {which} is too good: hold rows out.")
            _add_files(folder, report, problem)
            text = as_options("\n".join([*head, "", str(report), *(("", *found.lines) if found else ())]))
            saved = folder.finish(text, lines)
    if found and found.code != DONE:
        lines.complain(as_options("\n".join(found.lines)))
    return FAILED if not saved else found.code if found else DONE


def _check(settings: Settings) -> None:
    """Refuse options that do not go together."""
    if not settings["score"] and not settings["model"]:
        raise UsageError("there is nothing to audit: name columns of scores, --score COLUMN, or models, --model FILE.")
    if settings["score"] and settings["train"] and settings["source"] == "onestep":
        raise UsageError(
            "--train fits the source on other rows, and with --source onestep a column of scores, --score "
            f"{shlex.quote(settings['score'][0])}, is assessed by the rows of DATA alone: leave out --train, for each "
            "row is judged by models that did not see it; or pass the model itself, --model FILE; or use --source ipw."
        )
    if settings["score"] and settings["source"] == "gcomputation":
        raise UsageError(
            "--source gcomputation draws rows of another world, for which a column has no scores: pass the model "
            "itself, --model FILE; or use --source onestep or ipw."
        )
    if settings["source"] == "onestep" and "replicates" in settings.given:
        raise UsageError(
            "--replicates belongs to --source ipw or gcomputation; onestep has intervals without replicates."
        )
    if "fail-quantity" in settings.given and settings["fail-above"] is None:
        raise UsageError("--fail-quantity needs a limit, --fail-above.")
    if settings["fail-above"] is not None and settings["source"] != "onestep" and settings["replicates"] < 2:
        raise UsageError(f"--fail-above needs intervals, and --replicates {settings['replicates']} makes none.")
    if settings["proxy"] and (settings["source"] != "onestep" or settings["train"] or settings["drop-other-groups"]):
        raise UsageError(
            "--proxy is for --source onestep, fitted on the rows of DATA where the sensitive attribute is known: leave "
            "out --train, and --drop-other-groups, for rows with an unknown one may be of any group."
        )
    name = settings["flips"]
    if name and (name in FILES or Path(name).name != name or not name.endswith(".csv")):
        raise UsageError(f"--flips {name!r} must be the name of a further CSV file of the results, such as flips.csv.")
    if name and settings["score"]:
        raise UsageError(
            f"--flips asks for the scores of rows with another value of the sensitive attribute, and a column, --score "
            f"{shlex.quote(settings['score'][0])}, has none: pass the model itself, --model FILE."
        )
    if "scores" in settings.given and not settings["score"]:
        raise UsageError("--scores describes columns of scores; there are none, --score COLUMN.")


def _scores(name: str, problem: Problem, settings: Settings) -> pd.Series[Any]:
    """Return a column of scores as numbers; decisions that hold text by the value that counts as yes."""
    from pandas.api.types import is_numeric_dtype

    from pyrofair.commands.data import list_values, match_value

    column: Any = problem.extra[name]
    numbers: pd.Series[Any]
    if name == problem.graph.outcome_column:
        numbers = (column == problem.graph.positive).astype(float)
        return numbers
    if settings["score-positive"] is not None:
        value = match_value("--score-positive", settings["score-positive"], column, settings["data"])
        if column.nunique() > 2:
            raise UsageError(
                f"the decisions {name!r} have more than two values: {list_values(column)}. Which of them count as no "
                "is for you to say: write two values into the table, or leave the rows of the others out of it."
            )
        numbers = (column == value).astype(float)
        return numbers
    if not is_numeric_dtype(column.dtype):
        raise UsageError(
            f"the scores {name!r} are text: {list_values(column)}. Scores are probabilities of yes; of decisions, name "
            "the value that counts as yes, --score-positive VALUE."
        )
    numbers = column if column.dtype.kind == "f" else column.astype(float)
    outside = numbers[(numbers < 0.0) | (numbers > 1.0)]
    if len(outside):
        raise UsageError(
            f"the scores {name!r} hold {len(outside):,} value(s) outside [0, 1], such as {outside.iloc[0]:.15g}. "
            "Scores are probabilities of yes: bring other scales to [0, 1] in the table (log-odds by the logistic "
            "function, 0 to 100 by a division by 100), "
            "or make decisions of them, and then name these."
        )
    return numbers


def _subgroup(text: str, problem: Problem) -> Any:
    """Return a column by name, or a function that makes bands of one: COLUMN=K."""
    import pandas as pd
    from pandas.api.types import is_numeric_dtype

    from pyrofair.audits.subgroups import MOST_LEVELS

    name, _, bands = text.rpartition("=")
    if text in problem.frame or name not in problem.frame:
        if text in problem.frame and (levels := problem.frame[text].nunique()) > MOST_LEVELS:
            numbers = is_numeric_dtype(problem.frame[text])
            cure = f"make bands of it, --subgroups {text}=4" if numbers else "join levels in the table"
            raise UsageError(f"--subgroups: {text!r} has {levels:,} levels, more than {MOST_LEVELS}: {cure}.")
        # What is no column is refused with the columns that may make subgroups.
        return name if name and bands.isdecimal() and text not in problem.frame else text
    graph = problem.graph
    if graph.node_of.get(name) in {graph.sensitive, *graph.descendants(graph.sensitive)}:
        return name  # refused, with the reason
    if not is_numeric_dtype(problem.frame[name]):
        raise UsageError(f"--subgroups {text}: bands are made of numbers, and {name!r} holds categories.")
    if not bands.isdecimal() or not 2 <= int(bands) <= MOST_LEVELS:
        raise UsageError(f"--subgroups {text}: the number of bands is one from 2 to {MOST_LEVELS}, such as {name}=4.")

    def band(table: pd.DataFrame) -> pd.Series[Any]:
        values = table[name].astype(float)
        cut = pd.qcut(values, int(bands), duplicates="drop").cat.remove_unused_categories()
        ends = values.groupby(cut, observed=True).agg(["min", "max"])
        return cut.cat.rename_categories([f"{low:.15g} to {high:.15g}" for low, high in ends.to_numpy()])

    if band(problem.frame).nunique() < 2:
        raise UsageError(
            f"--subgroups {text}: so many rows have the same {name!r} that all fall into one band. Name the column "
            f"itself, --subgroups {name}, if it has few values, or write bands into the table."
        )
    return band


def _audit(
    settings: Settings, problem: Problem, models: dict[str, Any], source: Any, subgroups: dict[str, Any]
) -> Audit:
    """Fit the source on other rows, where there are, and audit."""
    from pyrofair.audits import audit

    if settings["train"]:
        source = source.fit(problem.others["train"], sample_weight=problem.other_weights["train"])
    scores = _scores_are(settings, problem)
    report = audit(
        models,
        source,
        problem.frame.assign(**{name: problem.extra[name] for name in settings["proxy"]}),
        proxies=settings["proxy"] or None,
        n_boot=settings["replicates"],
        level=settings["level"],
        threshold=settings["threshold"],
        sample_weight=problem.weight,
        scores=scores,
        n_jobs=settings["threads"],
        random_state=settings["seed"],
        subgroups=subgroups or None,
        **({"thresholds": settings["thresholds"]} if settings["thresholds"] else {}),
    )
    if scores == settings["scores"]:
        return report
    stated = {name: text for name, text in report.context.score_types.items() if "stated by the user" in text[0]}
    types = report.context.score_types | {name: [ESTIMATED] for name in stated}
    return replace(report, context=report.context | {"score_types": types})


def _scores_are(settings: Settings, problem: Problem) -> Any:
    """Return what columns of scores are taken for: by auto, of one-step estimates, an outcome where that is identified.

    A column holds no scores of rows with another value of the sensitive attribute, which one-step estimates of a
    prediction ask for; those of an outcome regress it in the group that shows it, which holds for a prediction as well.
    """
    from pyrofair.exceptions import NotIdentifiedError
    from pyrofair.graph import identify

    if settings["scores"] != "auto" or settings["source"] != "onestep" or not settings["score"]:
        return settings["scores"]
    try:
        identify(problem.unfair, "outcome")
    except NotIdentifiedError:
        return "auto"
    return "outcome"


def _add_files(folder: ResultsFolder, report: Audit, problem: Problem) -> None:
    """Add the report, the tables and the pictures to the folder."""
    from pyrofair.graph.drawing import draw_graph

    folder.add("report.html", report.to_html)
    folder.add_text("report.json", report.to_json(indent=2))
    folder.add_table("audit.csv", report.table)
    folder.add_table("groups.csv", report.groups)
    folder.add_table("stages.csv", report.stages)
    folder.add_table("thresholds.csv", report.thresholds)
    folder.add_table("subgroups.csv", report.subgroups)
    folder.add_table("disclosure.csv", report.context.disclosure)
    folder.add_figure("audit.png", report.plot())
    if len(report.stages):
        folder.add_figure("stages.png", report.plot_stages())
    folder.add_figure("graph.png", draw_graph(problem.graph, problem.unfair).figure)


COMMAND = Command(
    "audit",
    "audit scores or models on a table",
    "Audit scores or models: accuracy, rates, the mean effect along the unfair paths, and bounds on the share of\n"
    "units decided on unfairly (PIU), each with its interval.",
    EXAMPLE,
    OPTIONS,
    run,
)
