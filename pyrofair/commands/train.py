"""The command ``pyrofair train``: a classifier with a penalty on the unfair effect, fitted on a table and saved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pyrofair.commands.data import DATA, DATA_OPTIONS
from pyrofair.commands.options import DONE, FAILED, Command, Option, Settings, grouped
from pyrofair.commands.problem import GRAPH_OPTIONS, LABEL_OPTIONS, Problem, files_read, read_problem
from pyrofair.commands.results import RESULT_OPTIONS, ResultsFolder
from pyrofair.commands.running import as_options, computing
from pyrofair.commands.training import TRAINING_OPTIONS, make_classifier

__all__ = ["COMMAND", "MODEL"]

MODEL = "model.pyrofair"
"""The file of the trained classifier."""
FILES = (MODEL, "report.txt", "training.csv", "held-out.csv", "held-out.html")
OPTIONS = (
    DATA,
    *GRAPH_OPTIONS,
    *LABEL_OPTIONS,
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


def run(settings: Settings, lines: Any) -> int:
    """Train, save the classifier, and print a summary."""
    import numpy as np

    import pyrofair
    from pyrofair.audits import audit
    from pyrofair.classifiers import remove

    with computing(settings) as warned:
        whole = read_problem(settings, several=True)
        problem, held = _held_out(settings, whole)
        columns = None if settings["remove"] is None else remove(problem.unfair, settings["remove"])
        classifier = make_classifier(settings, problem, strength=settings["strength"], columns=columns)
        with ResultsFolder.claimed(settings, files_read(settings), FILES) as folder:
            target, weight = problem.graph.outcome_column, problem.weight
            X, y = problem.frame.drop(columns=target), problem.frame[target]
            classifier.fit(X, y, sample_weight=weight)
            accuracy = float(classifier.score(X, y, weight))
            decided = float(np.average(classifier.predict(X) == problem.graph.positive, weights=weight))
            share = float(np.average(y == problem.graph.positive, weights=weight))
            found = accuracy, share, decided
            told = _describe(settings, problem, classifier, found, folder.folder, held)
            if held is not None:
                own = {"sample_weight": held.weight, "random_state": settings["seed"], "missing": classifier.missing}
                report = audit({"trained": classifier}, held.unfair, held.frame, **own)
                told += ["", f"On the {len(held.frame):,} rows held out:", "", str(report)]
                folder.add_table("held-out.csv", report.table)
                folder.add("held-out.html", report.to_html)
            text = as_options("\n".join(told))
            text = "\n".join([text, *(f"Warning: {each}" for each in warned() if each not in text)])
            folder.add(MODEL, lambda path: pyrofair.save(classifier, path))
            folder.add_table("training.csv", classifier.history_)
            return DONE if folder.finish(text, lines) else FAILED


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
    settings: Settings,
    problem: Problem,
    classifier: Any,
    found: tuple[float, float, float],
    folder: Path,
    held: Problem | None,
) -> list[str]:
    """Return what was trained, on what, and what its numbers do not show."""
    from pyrofair.tables.recorded import assumed_of_records

    graph = problem.graph
    accuracy, share, decided = found
    penalty = f"{settings['strength']:g} times {settings['penalty']}" if settings["strength"] else "nothing"
    better = f"audit the model on rows held out, pyrofair audit OTHER --model {folder / MODEL}"
    return [
        f"pyrofair train on {settings['data']}, {len(problem.frame):,} rows",
        *problem.notes,
        f"{settings['model']} that reads {', '.join(map(str, classifier.feature_names_in_))}; penalised: {penalty}, by "
        f"{settings['source']}.",
        f"{graph.sensitive} is {graph.sensitive_column!r}: {graph.coding}. Yes is "
        f"{graph.outcome_column!r} = {graph.positive!r}.",
        *str(problem.unfair).splitlines(),
        f"On the rows trained on: accuracy {accuracy:.3f}, majority class {max(share, 1.0 - share):.3f}, positive "
        f"prediction rate {decided:.3f}. These are no measure of other rows, and none of fairness: "
        f"{better if held is None else 'see the audit on the rows held out'}.",
        "The penalty rests on the graph, on no confounding but what it shows, and on overlap of the two groups.",
        *assumed_of_records(problem.unfair, problem.frame),
    ]


COMMAND = Command(
    "train",
    "train a classifier with a penalty on unfair effects, and save it",
    "Fit a classifier that minimises cross-entropy plus a penalty on the effect along the unfair paths, and save it.",
    EXAMPLE,
    OPTIONS,
    run,
)
