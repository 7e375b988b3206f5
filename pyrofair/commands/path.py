"""The command ``pyrofair path``: classifiers along a path of penalty strengths, judged, and a choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyrofair.commands.data import DATA_OPTIONS, GROUPS
from pyrofair.commands.gate import QUANTITIES
from pyrofair.commands.options import (
    CANNOT_BE_JUDGED,
    DONE,
    FAILED,
    INTERRUPTED,
    LIMIT_EXCEEDED,
    Option,
    Settings,
    UsageError,
    command,
    grouped,
)
from pyrofair.commands.problem import QUESTION, Problem
from pyrofair.commands.results import RESULT_OPTIONS
from pyrofair.commands.running import running
from pyrofair.commands.train import TRAINING_OPTIONS, make_classifier

if TYPE_CHECKING:
    from pyrofair.audits import PenaltyPath

__all__ = ["run"]

MODEL = "model.pyrofair"
FILES = (MODEL, "report.txt", "path.csv", "intervals.csv", "groups.csv", "path.png")
OPTIONS = (
    *QUESTION,
    *grouped(
        "the path",
        Option("strengths", "the strengths of the penalty", float, many=True, least=0.0),
        Option("seeds", "the number of seeds", int, default=1, least=1),
        Option("test", "a table of other rows to measure on (default: a part of DATA that is held out)",
               metavar="FILE"),
        Option("held-out", "the share of the rows that is measured on and not trained on", float, default=0.25,
               above=0.0, below=1.0),
        Option("judge", "what measures: onestep, or the source that training used", default="onestep",
               choices=("onestep", "source")),
        Option("replicates", "bootstrap replicates, of --judge source", int, default=100, least=0, most=1_000_000),
        Option("threshold", "a decision is yes where the score exceeds this", float, default=0.5, least=0.0, below=1.0),
    ),
    GROUPS,
    *grouped(
        "the choice",
        Option("at-most", "save the most accurate classifier whose quantity stays within this, up to the end of its "
               "interval", float, least=0.0, most=1.0, metavar="LIMIT"),
        Option("accuracy-loss", "or: save the one of the least quantity that loses at most this accuracy against the "
               "best", float, least=0.0, below=1.0),
        Option("quantity", "the quantity that the choice goes by", default="piu_upper",
               choices=QUANTITIES),
    ),
    *TRAINING_OPTIONS,
    *DATA_OPTIONS,
    *RESULT_OPTIONS,
)  # fmt: skip
DEFAULT_STRENGTHS = [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]
EXAMPLE = f"""\
example, with a choice by the mean unfair effect:

  pyrofair path train.csv --graph graph.txt --sensitive sex --outcome hired --positive yes \\
      --baseline male --contrast female --direct --strengths 0 .5 1 2 \\
      --quantity mean_unfair_effect --at-most .05

It writes the table, its intervals and a picture to path-train/, and the chosen classifier to path-train/{MODEL}. Where
no classifier of the path stays within the limit, it ends with exit code 3.
"""


@command("path", "fit and judge a classifier along a path of penalty strengths, and choose one", EXAMPLE, OPTIONS)
def run(settings: Settings, lines: Any) -> int:
    """Fit one classifier at several strengths of the penalty, and save the one that a stated limit chooses.

    Each is measured with its interval on rows that were not trained on.
    """
    import pyrofair
    from pyrofair.tables.recorded import assumed_of_records

    if settings["at-most"] is not None and settings["accuracy-loss"] is not None:
        raise UsageError("--at-most and --accuracy-loss are two ways to choose; give one of them.")
    chooses = settings["at-most"] is not None or settings["accuracy-loss"] is not None
    if "quantity" in settings.given and not chooses:
        raise UsageError("--quantity is what a choice goes by; give --at-most or --accuracy-loss as well.")
    if settings["test"] and "held-out" in settings.given:
        raise UsageError("--held-out is a part of DATA, and --test names other rows to measure on; give one of them.")
    strengths = settings["strengths"] or DEFAULT_STRENGTHS
    if not any(strengths):
        raise UsageError("--strengths must hold one above 0.")
    with running(settings, FILES, "test") as own:
        problem, folder = own.problem, own.folder
        path = _fit(settings, problem, make_classifier(settings, problem, strength=1.0), strengths)
        chosen, choice, code = _choose(path, settings) if chooses else (None, [], DONE)
        both = bool(settings["weight"] and settings["test"])
        told = [
            f"{len(problem.frame):,} rows.",
            *([f"--weight weights the rows trained on; rows of {settings['test']} weigh the same."] * both),
            "",
            str(path).split("\nUnfinished")[0],
            *choice,
            "Its numbers depend on the graph, on no confounding but what it shows, and on overlap of the two groups.",
            *assumed_of_records(problem.unfair, problem.frame)[:1],
        ]
        folder.add_table("path.csv", path.table)
        folder.add_table("intervals.csv", path.intervals)
        folder.add_table("groups.csv", path.groups)
        if len(path.table):
            folder.add_figure("path.png", path.plot())
        if chosen is not None:
            folder.add(MODEL, lambda file: pyrofair.save(chosen, file))
        if own.finish(lines, *told, of="on", spare=MODEL) == FAILED:
            code = FAILED
    unfinished = bool(path.unfinished) or path.table["strength"].nunique() < len({*strengths})
    return INTERRUPTED if unfinished else code


def _fit(settings: Settings, problem: Problem, classifier: Any, strengths: list[float]) -> PenaltyPath:
    from pyrofair.audits import penalty_path

    outcome, groups = problem.graph.outcome_column, settings["groups"]

    def halves(frame: Any, labels: Any) -> tuple[Any, Any]:
        X = frame.drop(columns=outcome)
        return X.assign(**{groups: labels}) if groups else X, frame[outcome]

    (X, y), other = halves(problem.frame, problem.groups), problem.others.get("test")
    return penalty_path(
        classifier,
        X,
        y,
        strengths=strengths,
        seeds=[settings["seed"] + each for each in range(settings["seeds"])],
        test=halves(other.frame, other.groups) if other else None,
        held_out=settings["held-out"],
        sample_weight=problem.weight,
        groups=groups,
        judge=classifier.source if settings["judge"] == "source" else None,
        n_boot=settings["replicates"],
        threshold=settings["threshold"],
        n_jobs=1,
    )


def _choose(path: PenaltyPath, settings: Settings) -> tuple[Any, list[str], int]:
    """Return the chosen classifier or None, the choice in words, and the exit code."""
    from pyrofair.exceptions import DataError

    quantity = settings["quantity"]
    limits = {"at_most": settings["at-most"], "accuracy_loss": settings["accuracy-loss"]}
    try:
        chosen = path.select(quantity, **limits)
    except DataError as error:
        own = path.intervals
        measured = len(own) and own[own["quantity"] == quantity][["lower", "upper"]].notna().all(axis=1).any()
        return None, [f"No classifier is chosen: {error}"], LIMIT_EXCEEDED if measured else CANNOT_BE_JUDGED
    at = next(key for key, model in path.models.items() if model is chosen)
    asked = " and ".join(f"{name.replace('_', '-')} {limit:g}" for name, limit in limits.items() if limit is not None)
    text = (
        f"Chosen by --{asked} of {quantity}: strength {at[0]:g}, seed {at[1]}, saved as {MODEL}. The chosen one of "
        "many looks a little better on these rows than it is: audit it on further rows."
    )
    return chosen, [text], DONE
