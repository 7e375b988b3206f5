"""The command ``pyrofair sensitivity``: how far an assumption may fail before a conclusion of an audit changes."""

from __future__ import annotations

from typing import Any

from pyrofair._validation import did_you_mean
from pyrofair.commands.data import DATA_OPTIONS, GROUPS
from pyrofair.commands.decisions import DECISION_OPTIONS, LEVEL, asked_of
from pyrofair.commands.options import Option, Settings, UsageError, command, grouped
from pyrofair.commands.problem import QUESTION, Problem, make_graph
from pyrofair.commands.results import RESULT_OPTIONS, ResultsFolder
from pyrofair.commands.running import add_page, running
from pyrofair.commands.sources import make_source, source_options

__all__ = ["analyse", "run"]

FILES = ("report.txt", "sensitivity.csv", "flips.csv", "benchmark.csv", "edges.csv", "report.html", "sensitivity.png")
OPTIONS = (
    *QUESTION,
    *DECISION_OPTIONS,
    *grouped(
        "the assumption",
        Option("doubt", "what is given up: confounding, that there is no hidden common cause; cross-world, that "
               "mediators of different worlds are independent; switching, that mediators of a unit change freely; "
               "edges, that each edge out of the sensitive attribute is there", default="confounding",
               choices=("confounding", "cross-world", "switching", "edges")),
        Option("amounts", "by how much it is given up: odds ratios from 1 (confounding), shares of units (cross-world) "
               "or probabilities (switching)", float, many=True, least=0.0),
        Option("hidden-causes", "of confounding: hidden common causes, 'A <-> M' (default all that there are)",
               many=True, metavar="CAUSE"),
        Option("benchmark", "of confounding: how strong observed columns are on the same scale, which takes longer",
               bool),
        Option("absent", "of edges: edges or columns that may be absent, 'A -> M' (default each out of the sensitive "
               "attribute)", many=True, metavar="EDGE"),
    ),
    *DATA_OPTIONS,
    *source_options(("onestep",), "onestep"),
    LEVEL,
    GROUPS,
    *RESULT_OPTIONS,
)  # fmt: skip
EXAMPLE = """\
example:

  pyrofair sensitivity applicants.csv --graph graph.txt --sensitive sex --outcome hired --positive yes \\
      --baseline male --contrast female --direct --score p --amounts 1 1.5 2 3 --benchmark

It says up to which odds ratio of a hidden common cause the conclusion holds; --doubt takes another assumption.
"""
BELONGS = {"amounts": ("confounding", "cross-world", "switching"), "hidden-causes": ("confounding",),
           "benchmark": ("confounding",), "absent": ("edges",)}  # fmt: skip


@command("sensitivity", "how far an assumption may fail before a conclusion changes", EXAMPLE, OPTIONS)
def run(settings: Settings, lines: Any) -> int:
    """Give one assumption up by stated amounts: how far the unfair effect moves, and when a conclusion changes.

    By default the assumption is that nothing hidden causes both the sensitive attribute and what follows it.
    """
    doubt = settings["doubt"]
    for name, fits in BELONGS.items():
        if settings[name] and doubt not in fits:
            raise UsageError(f"--{name} belongs to --doubt {' or '.join(fits)}, and not to --doubt {doubt}.")
    names = [*make_graph(settings, {}).nodes, "all"]
    words = {word for name in names for word in name.split()}  # several nodes are one end, '{C L} <-> M'
    for cause in settings["hidden-causes"]:
        ends = [end for side in cause.split("<->") for end in side.strip(" {}").split()]
        if wrong := next((end for end in ends if end not in words), None):
            hint = did_you_mean(wrong, names)
            raise UsageError(f"--hidden-causes {cause!r}: {wrong!r} is no node of the graph, as in 'A <-> M'.{hint}")
    with running(settings, FILES, outcome_required=False) as own:
        tell = _edges if doubt == "edges" else _sweeps
        texts = tell(settings, own.problem, own.models, own.folder)
        return own.finish(lines, *(each for text in texts for each in ("", text)))


def _sweeps(settings: Settings, problem: Problem, models: dict[str, Any], folder: ResultsFolder) -> list[Any]:
    """Add the tables of each model, and the picture of the first, and return their texts."""
    import pandas as pd

    found = {name: analyse(settings, problem, model, settings["doubt"]) for name, model in models.items()}
    texts = [each for pair in found.items() for each in pair]
    for file, part in (("sensitivity.csv", "table"), ("flips.csv", "flips_at")):
        tables = [getattr(each, part).assign(model=name) for name, each in found.items()]
        folder.add_table(file, pd.concat(tables, ignore_index=True))
    first: Any = next(iter(found.values()))
    marks = {}
    if settings["benchmark"]:
        marks = {"benchmark": first.benchmark()}  # it is of propensities, which all models have in common
        folder.add_table("benchmark.csv", marks["benchmark"])
        shown = marks["benchmark"].to_string(index=False, float_format="{:.2f}".format)
        texts.append(f"Odds ratios of the sensitive attribute when an observed column is left out:\n{shown}")
    folder.add_figure("sensitivity.png", first.plot(**marks))
    return texts


def _edges(settings: Settings, problem: Problem, models: dict[str, Any], folder: ResultsFolder) -> list[Any]:
    """Add the table and the page of audits without an edge, and return their text."""
    from pyrofair.robustness import edge_costs

    source, absent = make_source(settings, problem.unfair), settings["absent"] or None
    found = edge_costs(models, source, problem.frame, absent, **asked_of(settings, problem))
    folder.add_table("edges.csv", found.table)
    add_page(folder, found)
    return [found]


def analyse(settings: Settings, problem: Problem, model: Any, doubt: str = "confounding") -> Any:
    """Return how far the numbers of a model move if an assumption is given up by some amounts."""
    from pyrofair.robustness import sensitivity

    more: dict[str, Any] = {}
    if "amounts" in settings.given:
        more["deltas" if doubt == "cross-world" else "gammas"] = settings["amounts"]
    if "hidden-causes" in settings.given:
        more["hidden_causes"] = settings["hidden-causes"]
    own = make_source(settings, problem.unfair) if settings["source"] == "onestep" else problem.unfair
    analysis = getattr(sensitivity, doubt.replace("-", "_"))
    return analysis(model, own, problem.frame, **asked_of(settings, problem), **more)
