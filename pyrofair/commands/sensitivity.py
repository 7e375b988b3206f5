"""The command ``pyrofair sensitivity``: how far an assumption may fail before a conclusion of an audit changes."""

from __future__ import annotations

from typing import Any

from pyrofair.commands.data import DATA, DATA_OPTIONS, GROUPS
from pyrofair.commands.decisions import DECISION_OPTIONS, asked_of, check_decisions, read_models, tell_scale
from pyrofair.commands.models import model_files
from pyrofair.commands.options import DONE, FAILED, Command, Option, Settings, UsageError, grouped
from pyrofair.commands.problem import GRAPH_OPTIONS, LABEL_OPTIONS, Problem, files_read, read_problem
from pyrofair.commands.results import RESULT_OPTIONS, ResultsFolder
from pyrofair.commands.running import as_options, computing
from pyrofair.commands.sources import make_source, source_options

__all__ = ["COMMAND", "analyse"]

FILES = ("report.txt", "sensitivity.csv", "flips.csv", "benchmark.csv", "edges.csv", "report.html", "sensitivity.png")
OPTIONS = (
    DATA,
    *GRAPH_OPTIONS,
    *LABEL_OPTIONS,
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
    Option("level", "the level of intervals", float, default=0.95, above=0.0, below=1.0),
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


def run(settings: Settings, lines: Any) -> int:
    """Give the assumption up, write the results, print them, and return the exit code."""
    check_decisions(settings)
    doubt = settings["doubt"]
    for name, fits in BELONGS.items():
        if settings[name] and doubt not in fits:
            raise UsageError(f"--{name} belongs to --doubt {' or '.join(fits)}, and not to --doubt {doubt}.")
    read = [*files_read(settings), *model_files(settings["model"]).values()]
    with computing(settings) as warned:
        extra = dict.fromkeys(settings["score"], "--score")
        problem = read_problem(settings, extra=extra, outcome_required=False)
        with ResultsFolder.claimed(settings, read, FILES) as folder:
            models = read_models(settings, problem)
            texts = _edges(settings, problem, models, folder) if doubt == "edges" else []
            if not texts:
                texts = _sweeps(settings, problem, models, folder)
            head = [f"pyrofair sensitivity of {settings['data']}", *problem.notes, *tell_scale(settings)]
            told = [*head, *(each for text in texts for each in ("", text)), *(f"Warning: {each}" for each in warned())]
            return DONE if folder.finish(as_options("\n".join(told)), lines) else FAILED


def _sweeps(settings: Settings, problem: Problem, models: dict[str, Any], folder: ResultsFolder) -> list[str]:
    """Add the tables of each model, and the picture of the first, and return their texts."""
    import pandas as pd

    found = {name: analyse(settings, problem, model, settings["doubt"]) for name, model in models.items()}

    texts = [f"{name}\n{each}" for name, each in found.items()]
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


def _edges(settings: Settings, problem: Problem, models: dict[str, Any], folder: ResultsFolder) -> list[str]:
    """Add the table and the page of audits without an edge, and return their text."""
    from pyrofair.robustness import edge_costs

    found = edge_costs(
        models,
        make_source(settings, problem.unfair),
        problem.frame,
        settings["absent"] or None,
        **asked_of(settings, problem),
    )
    folder.add_table("edges.csv", found.table)
    folder.add("report.html", found.to_html)
    return [str(found)]


def analyse(settings: Settings, problem: Problem, model: Any, doubt: str = "confounding") -> Any:
    """Return how far the numbers of a model move if an assumption is given up by some amounts."""
    from pyrofair.robustness import sensitivity

    more: dict[str, Any] = {}
    if "amounts" in settings.given:
        more["deltas" if doubt == "cross-world" else "gammas"] = settings["amounts"]
    if "hidden-causes" in settings.given:
        more["hidden_causes"] = settings["hidden-causes"]
    own = make_source(settings, problem.unfair) if settings["source"] == "onestep" else problem.unfair
    return getattr(sensitivity, doubt.replace("-", "_"))(
        model,
        own,
        problem.frame,
        **asked_of(settings, problem),
        **more,
    )


COMMAND = Command(
    "sensitivity",
    "how far an assumption may fail before a conclusion changes",
    "Give one assumption up by a stated amount: by default that nothing hidden causes both the sensitive attribute\n"
    "and what follows it. Print how far the unfair effect moves, and the amount at which a conclusion changes.",
    EXAMPLE,
    OPTIONS,
    run,
)
