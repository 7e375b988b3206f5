"""The command ``pyrofair check``: the conditional independences that a graph implies, tested on a table."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from pyrofair.commands.data import DATA_OPTIONS, GROUPS, missing_of
from pyrofair.commands.options import CANNOT_BE_JUDGED, DONE, FAILED, LIMIT_EXCEEDED, Option, Settings, command, grouped
from pyrofair.commands.problem import QUESTION, Problem
from pyrofair.commands.results import RESULT_OPTIONS, ResultsFolder
from pyrofair.commands.running import running

if TYPE_CHECKING:
    from pyrofair.robustness import GraphCheck

__all__ = ["TEST_OPTIONS", "add_check", "check_table", "run"]

FILES = ("report.txt", "check.csv", "graph.png")
TEST_OPTIONS = grouped(
    "the tests",
    Option("error", "the probability that any independence fails where all hold", float, default=0.05, above=0.0,
           below=1.0),
    Option("tests", "the regressions of the tests: flexible takes for each column the best of a smooth one and forests",
           default="flexible", choices=("flexible", "smooth", "boosted")),
)  # fmt: skip
OPTIONS = (
    *QUESTION,
    *TEST_OPTIONS,
    GROUPS,
    Option("strict", "end with exit code 3 if an independence fails, with 4 if one cannot be tested", bool),
    *DATA_OPTIONS,
    *RESULT_OPTIONS,
)
EXAMPLE = """\
example:

  pyrofair check applicants.csv --graph graph.txt --sensitive sex --outcome hired

An independence that fails asks for an edge, or for a hidden common cause, A <-> B. One that holds confirms no graph.
"""


@command("check", "test a graph against a table", EXAMPLE, OPTIONS)
def run(settings: Settings, lines: Any) -> int:
    """Test the conditional independences that a graph implies on a table, and name what cannot be tested."""
    with running(settings, FILES, outcome_required=False, about_paths=False, about_groups=False) as own:
        from pyrofair.graph.drawing import draw_graph

        problem = own.problem
        found = check_table(settings, problem, settings["error"], settings["tests"])
        add_check(own.folder, found)
        unfair = problem.unfair if len(problem.unfair.paths) else None
        own.folder.add_figure("graph.png", draw_graph(problem.graph, unfair).figure)
        if own.finish(lines, "", str(found)) == FAILED:
            return FAILED
    if settings["strict"] and found.table["fails"].any():
        return LIMIT_EXCEEDED
    return CANNOT_BE_JUDGED if settings["strict"] and found.table["p_value"].isna().any() else DONE


def add_check(folder: ResultsFolder, found: GraphCheck) -> None:
    """Add the table of tests to the folder."""
    folder.add_table("check.csv", found.table.assign(given=found.table["given"].map(", ".join)))


def check_table(settings: Settings, problem: Problem, level: float = 0.05, regression: Any = "flexible") -> GraphCheck:
    """Return the tests of the graph of a problem on its table."""
    from pyrofair.exceptions import PyrofairWarning

    if settings["weight"]:
        warnings.warn("The tests of the graph count each row once, without --weight.", PyrofairWarning, stacklevel=2)
    how: Any = {"level": level, "regression": regression, "groups": problem.groups, "missing": missing_of(settings)}
    return problem.graph.check(problem.frame, random_state=settings["seed"], **how)
