"""The command ``pyrofair train``: a classifier with a penalty on the unfair effect, fitted on a table and saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyrofair.commands.data import DATA_OPTIONS
from pyrofair.commands.options import Option, Settings, UsageError, command, grouped
from pyrofair.commands.problem import QUESTION, Problem
from pyrofair.commands.results import RESULT_OPTIONS
from pyrofair.commands.running import add_page, running
from pyrofair.commands.sources import TRAIN_SOURCES, make_source, source_options

__all__ = ["TRAINING_OPTIONS", "make_classifier", "run"]

TRAINING_OPTIONS = (*grouped(
    "the training",
    Option("model", "what is trained: a network of 100 and 50 units, or logistic regression", default="network",
           choices=("network", "logistic")),
    Option("penalty", "what is penalised: disagreement, the paper's; effect_gap, the mean unfair effect; piu_upper, "
           "the upper bound on PIU", default="disagreement", choices=("disagreement", "effect_gap", "piu_upper")),
    Option("epochs", "passes over the rows", int, least=1),
    Option("batch-size", "rows of a batch", int, default=1000, least=1),
    Option("learning-rate", "the step size", float, above=0.0),
    Option("starts", "initial weights that are tried", int, default=4, least=1),
    Option("validation-fraction", "the share of rows that chooses the epoch", float, above=0.0, below=1.0),
    Option("patience", "stop after so many epochs without gain on these rows", int, least=1),
    Option("dtype", "the precision", default="float64", choices=("float64", "float32")),
    Option("device", "the device of torch", default="cpu", metavar="NAME"),
), *source_options(TRAIN_SOURCES, "ipw"))  # fmt: skip
MODEL = "model.pyrofair"
"""The file of the trained classifier."""
FILES = (MODEL, "report.txt", "training.csv", "held-out.csv", "held-out.html")
OPTIONS = (
    *QUESTION,
    *grouped(
        "the training",
        Option("strength", "the weight of the penalty beside the cross-entropy; 0 trains without a penalty", float,
               default=1.0, least=0.0),
        Option("remove", "leave out the columns that unfair paths touch, or all descendants of the sensitive "
               "attribute; without a penalty this is the paper's Remove", choices=("touched", "descendants")),
        Option("held-out", "the share of the rows, drawn at random, that is not trained on and audited, such as .3",
               float, above=0.0, below=1.0),
    ),
    *TRAINING_OPTIONS,
    *DATA_OPTIONS,
    *RESULT_OPTIONS,
)  # fmt: skip
EXAMPLE = f"""\
example:

  pyrofair train train.csv --graph graph.txt --sensitive sex --outcome hired --positive yes \\
      --baseline male --contrast female --direct --strength 1
  pyrofair audit test.csv --graph graph.txt --sensitive sex --outcome hired --positive yes \\
      --baseline male --contrast female --direct --model penalised=train-train/{MODEL}

The classifier is saved in train-train/{MODEL}; audit it on rows that it was not trained on, or pass --held-out .3.
"""


@command("train", "train a classifier with a penalty on unfair effects, and save it", EXAMPLE, OPTIONS)
def run(settings: Settings, lines: Any) -> int:
    """Fit a classifier that minimises cross-entropy plus a penalty on the effect along unfair paths, and save it."""
    import numpy as np

    import pyrofair
    from pyrofair.audits import audit
    from pyrofair.audits.display.words import percent
    from pyrofair.classifiers import remove

    with running(settings, FILES, several=True) as own:
        problem, held = _held_out(settings, own.problem)
        columns = None if settings["remove"] is None else remove(problem.unfair, settings["remove"])
        classifier = make_classifier(settings, problem, strength=settings["strength"], columns=columns)
        target, weight = problem.graph.outcome_column, problem.weight
        X, y = problem.frame.drop(columns=target), problem.frame[target]
        classifier.fit(X, y, sample_weight=weight)
        share, decided = (
            float(np.average(each == problem.graph.positive, weights=weight)) for each in (y, classifier.predict(X))
        )
        numbers = (
            f"accuracy {percent(classifier.score(X, y, weight))}, majority class {percent(max(share, 1.0 - share))}, "
            f"positive decisions {percent(decided)}"
        )
        told: list[Any] = _describe(settings, problem, classifier, numbers, own.folder.folder, held)
        if held is not None:
            how = {"sample_weight": held.weight, "random_state": settings["seed"], "missing": classifier.missing}
            report = audit({"trained": classifier}, held.unfair, held.frame, **how)
            told += ["", f"On the {len(held.frame):,} rows held out:", "", report]
            own.folder.add_table("held-out.csv", report.table)
            add_page(own.folder, report, "held-out.html")
        own.folder.add(MODEL, lambda path: pyrofair.save(classifier, path))
        own.folder.add_table("training.csv", classifier.history_)
        return own.finish(lines, *told, of="on")


def _held_out(settings: Settings, problem: Problem) -> tuple[Problem, Problem | None]:
    """Return the rows to train on and those held out, if any are."""
    import numpy as np

    from pyrofair.classifiers.batches import hold_out

    if settings["held-out"] is None:
        return problem, None
    yes: Any = (problem.frame[problem.graph.outcome_column] == problem.graph.positive).to_numpy(np.int8)
    one, other = (
        replace(
            problem, frame=problem.frame.iloc[at], weight=None if problem.weight is None else problem.weight.iloc[at]
        )
        for at in hold_out(yes, settings["held-out"], np.random.RandomState(settings["seed"]), "held_out")
    )
    return one, other


def _describe(
    settings: Settings, problem: Problem, classifier: Any, numbers: str, folder: Path, held: Problem | None
) -> list[str]:
    """Return what was trained, on what, and what its numbers do not show."""
    from pyrofair.tables.recorded import assumed_of_records

    graph = problem.graph
    penalty = f"{settings['strength']:g} times {settings['penalty']}" if settings["strength"] else "nothing"
    better = f"audit the model on rows held out, pyrofair audit OTHER --model {folder / MODEL}"
    return [
        f"{len(problem.frame):,} rows.",
        f"{settings['model']} that reads {', '.join(map(str, classifier.feature_names_in_))}; penalised: {penalty}, by "
        f"{settings['source']}.",
        f"{graph.sensitive} is {graph.sensitive_column!r}: {graph.coding}. Yes is "
        f"{graph.outcome_column!r} = {graph.positive!r}.",
        *str(problem.unfair).splitlines(),
        f"On the rows trained on: {numbers}. These are no measure of other rows, and none of fairness: "
        f"{better if held is None else 'see the audit on the rows held out'}.",
        "The penalty depends on the graph, on no confounding but what it shows, and on overlap of the two groups.",
        *assumed_of_records(problem.unfair, problem.frame),
    ]


def make_classifier(
    settings: Settings, problem: Problem, *, strength: float, columns: Sequence[str] | None = None
) -> Any:
    """Return the classifier of the settings, unfitted."""
    from pyrofair import effects
    from pyrofair.classifiers import PenalizedClassifier
    from pyrofair.sources import Contrasts

    if settings["patience"] is not None and settings["validation-fraction"] is None:
        raise UsageError("--patience needs rows that choose the epoch, --validation-fraction .1.")
    given: dict[str, Any] = {
        name.replace("-", "_"): settings[name]
        for name in ("epochs", "batch-size", "learning-rate", "starts", "validation-fraction", "patience", "dtype",
                     "device")
    }  # fmt: skip
    source = make_source(settings, problem.unfair)
    return PenalizedClassifier(
        settings["model"],
        source=Contrasts(source, contrasts=problem.contrasts) if problem.contrasts else source,
        penalty=getattr(effects, settings["penalty"]),
        strength=strength,
        columns=columns,
        missing="recorded" if settings["missing-as-value"] else "refuse",
        random_state=settings["seed"],
        **given,
    )
