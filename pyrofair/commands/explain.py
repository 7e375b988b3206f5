"""The command ``pyrofair explain``: a difference between two groups, split along the edges of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyrofair.commands.data import DATA_OPTIONS, GROUPS
from pyrofair.commands.decisions import DECISION_OPTIONS, LEVEL, THRESHOLDS, asked_of, thresholds_of
from pyrofair.commands.options import Option, Settings, command, grouped
from pyrofair.commands.problem import QUESTION, Problem
from pyrofair.commands.results import RESULT_OPTIONS, ResultsFolder
from pyrofair.commands.running import add_page, running
from pyrofair.commands.sources import source_options

if TYPE_CHECKING:
    from pyrofair.audits import Decomposition

__all__ = ["PART_OPTIONS", "add_parts", "explain", "run"]

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
    *QUESTION,
    *DECISION_OPTIONS,
    *grouped(
        "the parts",
        *PART_OPTIONS,
    ),
    THRESHOLDS,
    LEVEL,
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


@command("explain", "split the difference between two groups along the graph", EXAMPLE, OPTIONS)
def run(settings: Settings, lines: Any) -> int:
    """Split the difference of mean scores and of decisions between two groups.

    Its parts, which add up to it, are confounding and one for each edge out of the sensitive attribute.
    """
    with running(settings, FILES, outcome_required=False, about_paths=False, several=True) as own:
        found = explain(settings, own.problem, own.models)
        add_page(own.folder, found)
        own.folder.add_text("report.json", found.to_json(indent=2))
        add_parts(own.folder, found)
        for name in ("contrasts", "means", "differences"):
            own.folder.add_table(f"{name}.csv", getattr(found, name))
        return own.finish(lines, "", str(found))


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
        thresholds=thresholds_of(settings),
        **asked_of(settings, problem),
        **more,
    )
