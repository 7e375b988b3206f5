"""The command ``pyrofair graph``: a graph to begin with, all edges from earlier to later columns, to be cut down."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrofair.commands.check import TEST_OPTIONS, check_table
from pyrofair.commands.check import run as check
from pyrofair.commands.data import DATA, DATA_OPTIONS, GROUPS, Reading, read_columns, require_columns
from pyrofair.commands.options import DONE, FAILED, Option, Settings, UsageError, command, grouped
from pyrofair.commands.problem import GRAPH_OPTIONS, VALUE_OPTIONS, read_problem, read_text
from pyrofair.commands.results import RESULT_OPTIONS
from pyrofair.commands.running import computing

if TYPE_CHECKING:
    from pyrofair.graph import CausalGraph

__all__ = ["run"]

OPTIONS = (
    DATA,
    *(each for each in GRAPH_OPTIONS if each.name in ("sensitive", "outcome", "latent", "columns")),
    *grouped(
        "the question",
        Option("tiers", "a text file with a line a tier, from the earliest to the latest: names of columns, separated "
               "by blanks or commas, those that hold any in double quotes; without it a template is shown",
               metavar="FILE"),
        Option("within", "columns of a tier also act on those named after them (default: not on each other)", bool),
    ),
    *VALUE_OPTIONS,
    *TEST_OPTIONS,
    GROUPS,
    *DATA_OPTIONS,
    Option("output", "the text file of the graph, with its picture beside (.svg)", metavar="FILE", short="-o"),
    *(each for each in RESULT_OPTIONS if each.name != "output"),
)  # fmt: skip
OF_THE_CALL = {"config", "data", "output", "overwrite", "traceback"}
EXAMPLE = """\
example, first without --tiers for a template of tiers.txt:

  pyrofair graph applicants.csv --sensitive sex --outcome hired
  pyrofair graph applicants.csv --sensitive sex --outcome hired --tiers tiers.txt -o graph.txt

Edit graph.txt; then test it, pyrofair check, and audit with it.
"""


@command("graph", "write a graph to begin with: all arrows from earlier to later columns", EXAMPLE, OPTIONS)
def run(settings: Settings, lines: Any) -> int:
    """Write all arrows from earlier to later columns as a text to be cut down.

    What the graph implies is tested on the table, and the graph is drawn.
    """
    for role in ("sensitive", "outcome"):
        if settings[role] is None:
            raise UsageError(f"--{role} is missing: the column of the {role}{' attribute' * (role == 'sensitive')}.")
    output = Path(settings["output"]) if settings["output"] else None
    if output is not None and output.exists() and not settings["overwrite"]:
        raise UsageError(
            f"--output {settings['output']!r} is there, and may be edited: pass --overwrite to replace it."
        )
    with computing(settings) as warned:
        graph = _from_tiers(settings)
        drawn = {"graph": str(graph), "unfair": [], "through": [], "direct": False}
        recorded = {"missing-as-value": not settings["drop-missing"]}  # the edges do not depend on gaps
        asked = replace(settings, values={**drawn, **settings.values, **recorded})
        problem = read_problem(asked, about_paths=False, about_groups=False)
        if problem.frame.isna().any(axis=None):
            asked = replace(asked, given=asked.given | {*recorded})
        found = check_table(asked, problem, settings["error"], settings["tests"])
        told = "\n".join([*problem.notes, str(found), *(f"Warning: {each}" for each in warned())])
        text = "\n".join([*_head(graph, asked), *(f"# {line}" for line in told.splitlines()), ""])
        lines.write(text)
        if output is not None:
            from pyrofair._files import write_whole
            from pyrofair.graph.drawing import draw_graph

            picture = output.with_suffix(".svg")
            try:
                write_whole(output, text.encode())
                drawing: Any = draw_graph(graph).figure
                drawing.savefig(picture, format="svg")
            except OSError as error:
                lines.complain(f"The file {error.filename!r} cannot be written: {error.strerror}.")
                return FAILED
            lines.write(f"The graph is in {output}, its picture in {picture}.")
    return DONE


def _from_tiers(settings: Settings) -> CausalGraph:
    """Return the graph of the file of tiers, whose names are columns or nodes with --columns."""
    from pyrofair.graph import CausalGraph

    if settings["tiers"] is None:
        raise UsageError(_template(settings))
    rows = [line for line in read_text("--tiers", settings["tiers"]).splitlines() if line.lstrip()[:1] not in ("", "#")]
    tiers = [[quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|([^\s,"]+)', row)] for row in rows]
    roles = {role: settings[role] for role in ("sensitive", "outcome")}
    return CausalGraph.from_tiers(tiers, within=settings["within"], **roles)


def _template(settings: Settings) -> str:
    """Return how a file of tiers is written, with the columns of the table."""
    own, outcome = settings["sensitive"], settings["outcome"]
    known = read_columns(settings["data"], Reading.of(settings))
    require_columns(settings["data"], known, {own: "--sensitive", outcome: "--outcome"})
    names = {each: f'"{each}"' if re.search(r"[\s,]", each) else each for each in known}
    rest = " ".join(names[each] for each in dict.fromkeys(known) if each not in (own, outcome))
    return f"""--tiers FILE is missing: which columns come first. Write it, for example as tiers.txt:

# what is there from the start
{names[own]}
# what comes later, one line after the other; leave out identifiers, scores of models, and what is known only
# after the outcome
{rest}
# the outcome
{names[outcome]}

Then the same command with --tiers tiers.txt -o graph.txt."""


def _head(graph: CausalGraph, settings: Settings) -> list[str]:
    """Return the edges as text, and above them how they are cut down."""
    file = settings["output"] or "graph.txt"
    known = {str(each.name).replace("_", "-") for each in check.params} - OF_THE_CALL
    then = shlex.join(["pyrofair", "check", settings["data"], "--graph", file, *settings.arguments(known)])
    edges = [line for line in str(graph).splitlines() if not line.startswith("#")]
    return [
        f"# All {len(graph.edges)} arrows from earlier to later lines of {settings['tiers']}"
        f"{'' if settings['within'] else '; columns of one line have none among them (--within)'}.",
        "# Cut those that you can argue are absent: delete the name of a cause from the braces before its effect. Each",
        "# cut assumes that the one acts on the other only through columns between them; write the reason beside it.",
        "# A hidden common cause of two columns is written A <-> B.",
        f"# Then: {then}",
        *edges,
        "",
    ]
