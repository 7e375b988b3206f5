"""The command ``pyrofair explain``: a difference between two groups, split along the edges of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyrofair.commands.data import DATA, DATA_OPTIONS, GROUPS
from pyrofair.commands.decisions import DECISION_OPTIONS, asked_of, check_decisions, on_scale, read_models, tell_scale
from pyrofair.commands.models import model_files
from pyrofair.commands.options import DONE, FAILED, Command, Option, Settings, grouped
from pyrofair.commands.problem import GRAPH_OPTIONS, LABEL_OPTIONS, Problem, files_read, read_problem
from pyrofair.commands.results import RESULT_OPTIONS, ResultsFolder
from pyrofair.commands.running import as_options, computing
from pyrofair.commands.sources import source_options

if TYPE_CHECKING:
    from pyrofair.audits import Decomposition

__all__ = ["COMMAND", "PART_OPTIONS", "add_parts", "explain"]

FILES = (
    "report.txt", "report.html", "report.json", "parts.csv", "contrasts.csv", "means.csv", "differences.csv",
    "parts.png",
)  # fmt: skip
PART_OPTIONS = (
    Option("order", "the nodes that edges out of the sensitive attribute lead to, in the one order in which they are "
           "switched; the outcome stands for the direct edge (default the average over all orders)", many=True,
           metavar="NODE"),
    Option("with-outcome", "split the observed outcome as well, even if parts have to be merged for it", bool),
)  # fmt: skip
OPTIONS = (
    DATA,
    *GRAPH_OPTIONS,
    *LABEL_OPTIONS,
    *DECISION_OPTIONS,
    *grouped(
        "the parts",
        *PART_OPTIONS,
        Option("thresholds", "further thresholds at which decisions are split, such as .1 .3 .7 .9", float, many=True),
        Option("level", "the level of intervals", float, default=0.95, above=0.0, below=1.0),
    ),
    GROUPS,
    *DATA_OPTIONS,
    *(each for each in source_options(("onestep",), "onestep") if each.name not in ("form", "clip")),
    *RESULT_OPTIONS,
)  # fmt: skip
EXAMPLE = """\
example:

  pyrofair explain applicants.csv --graph graph.txt --sensitive sex --outcome hired --positive yes \\
      --baseline male --contrast female --score p

With --unfair, --direct or --through the unfair paths are one part, before and after the others. With --contrast all
each other group is compared with the baseline.
"""


def run(settings: Settings, lines: Any) -> int:
    """Split the difference, write the results, print them, and return the exit code."""
    check_decisions(settings, settings["thresholds"])
    read = [*files_read(settings), *model_files(settings["model"]).values()]
    with computing(settings) as warned:
        extra = dict.fromkeys(settings["score"], "--score")
        problem = read_problem(settings, extra=extra, outcome_required=False, about_paths=False, several=True)
        with ResultsFolder.claimed(settings, read, FILES) as folder:
            found = explain(settings, problem, read_models(settings, problem))
            folder.add("report.html", found.to_html)
            folder.add_text("report.json", found.to_json(indent=2))
            add_parts(folder, found)
            for name in ("contrasts", "means", "differences"):
                folder.add_table(f"{name}.csv", getattr(found, name))
            head = [f"pyrofair explain of {settings['data']}", *problem.notes, *tell_scale(settings), ""]
            text = [*head, str(found), *(f"Warning: {each}" for each in warned())]
            return DONE if folder.finish(as_options("\n".join(text)), lines) else FAILED


def add_parts(folder: ResultsFolder, found: Decomposition) -> None:
    """Add the table of parts and its picture to the folder."""
    folder.add_table("parts.csv", found.table)
    folder.add_figure("parts.png", found.plot())


def explain(settings: Settings, problem: Problem, models: dict[str, Any]) -> Decomposition:
    """Return the parts of the difference between the groups of a problem."""
    from pyrofair.audits import decompose

    outcome = True if settings["with-outcome"] else None
    if outcome is None and problem.graph.outcome_column in settings["score"]:
        outcome = False  # it is split already
    more = {each: settings[each] for each in ("propensity", "regression", "folds") if each in settings.given}
    return decompose(
        models,
        problem.graph,
        problem.frame,
        order=settings["order"] or None,
        contrasts=problem.contrasts or None,
        unfair=problem.unfair if problem.unfair.paths else None,
        outcome=outcome,
        thresholds=[on_scale(settings, each) for each in settings["thresholds"]] or None,
        **asked_of(settings, problem),
        **more,
    )


COMMAND = Command(
    "explain",
    "split the difference between two groups along the graph",
    "Split the difference of mean scores and of decisions between two groups: confounding, and a part for each edge\n"
    "out of the sensitive attribute, which add up to it.",
    EXAMPLE,
    OPTIONS,
    run,
)
