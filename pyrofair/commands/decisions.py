"""The decisions that a command assesses: columns of scores on any scale, or saved models."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrofair.commands.data import list_values, match_value, missing_of
from pyrofair.commands.options import Option, Settings, UsageError, grouped, is_file, no_file

if TYPE_CHECKING:
    import pandas as pd

    from pyrofair.commands.problem import Problem

__all__ = [
    "DECISION_OPTIONS",
    "LEVEL",
    "THRESHOLDS",
    "asked_of",
    "check_decisions",
    "model_files",
    "read_models",
    "tell_scale",
    "threshold_of",
    "thresholds_of",
]

DECISION_OPTIONS = grouped(
    "the decisions",
    Option("score", "columns of scores: probabilities of yes, or decisions as 0 and 1", many=True, metavar="COLUMN"),
    Option("score-positive", "the value that counts as yes in columns of decisions that hold text", metavar="VALUE"),
    Option("score-scale", "the lowest and the highest score of columns on another scale than 0 to 1, such as 1 10; "
           "--threshold is on this scale", float, many=True),
    Option("score-negative", "a low score is for yes, as one of a risk is; a decision is yes below the threshold",
           bool),
    Option("scores", "what columns of scores are: a prediction from the columns that the graph lets a classifier "
           "read; an outcome, such as decisions of humans or of a model of other inputs; or auto, what the source "
           "can take: onestep estimates what a column would be in another world as it does for an outcome, which a "
           "prediction allows, too; ipw takes a prediction unless equal rows have unequal scores", default="auto",
           choices=("auto", "prediction", "outcome")),
    Option("model", "saved models, each FILE or NAME=FILE", many=True, metavar="FILE"),
    Option("trust-pickle", "load models pickled by joblib or pickle. A pickle runs whatever code its author put in it, "
           "with your rights: use it for files that you made yourself", bool),
    Option("threshold", "a decision is yes where the score exceeds this (default 0.5, the middle of the scale)", float),
)  # fmt: skip

LEVEL, THRESHOLDS = grouped(
    "the intervals",
    Option("level", "the level of intervals", float, default=0.95, above=0.0, below=1.0),
    Option("thresholds", "further thresholds at which decisions are assessed, such as .1 .3 .7 .9", float, many=True),
)
PICKLES = (".joblib", ".pkl", ".pickle")


def check_decisions(settings: Settings, thresholds: Sequence[float] = ()) -> None:
    """Refuse options that do not go together."""
    if not settings["score"] and not settings["model"]:
        raise UsageError("there is nothing to audit: name columns of scores, --score COLUMN, or models, --model FILE.")
    names = [*settings["score"], *model_files(settings["model"])]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"{twice[0]!r} is named twice among --score and --model; name a model apart, NAME=FILE.")
    if "scores" in settings.given and not settings["score"]:
        raise UsageError("--scores describes columns of scores; there are none, --score COLUMN.")
    changed = [f"--{name}" for name in ("score-scale", "score-negative") if settings[name]]
    if changed and settings["model"]:
        raise UsageError(
            f"{changed[0]} is of columns of scores, and models return probabilities of yes: audit the columns and the "
            "models one after the other."
        )
    if changed and settings["score-positive"] is not None:
        raise UsageError(f"{changed[0]} is of scores, and --score-positive of decisions that hold text.")
    low, high = _scale(settings)
    threshold = [] if settings["threshold"] is None else [settings["threshold"]]
    for each in (*threshold, *thresholds):
        if not 0.0 <= on_scale(settings, each) < 1.0:
            end = "above the lowest" if settings["score-negative"] else "below the highest"
            raise UsageError(f"the threshold {each:g} does not fit scores from {low:g} to {high:g}: choose one {end}.")


def _scale(settings: Settings) -> tuple[float, float]:
    """Return the lowest and the highest score."""
    given = settings["score-scale"] or [0.0, 1.0]
    if len(given) != 2 or not given[0] < given[1]:
        raise UsageError(
            f"--score-scale {' '.join(f'{each:g}' for each in given)} must be the lowest and the highest score, such "
            "as 1 10."
        )
    return given[0], given[1]


def on_scale(settings: Settings, value: Any) -> Any:
    """Return scores or a threshold of the user's scale as those of probabilities of yes, by a line."""
    low, high = _scale(settings)
    return (high - value if settings["score-negative"] else value - low) / (high - low)


def threshold_of(settings: Settings) -> float:
    """Return the threshold as one of probabilities of yes."""
    return 0.5 if settings["threshold"] is None else float(on_scale(settings, settings["threshold"]))


def thresholds_of(settings: Settings) -> list[float] | None:
    """Return further thresholds as those of probabilities of yes; None if there are none."""
    return [on_scale(settings, each) for each in settings["thresholds"]] or None


def tell_scale(settings: Settings) -> list[str]:
    """Return how scores of another scale were read."""
    low, high = _scale(settings)
    if not settings["score-scale"] and not settings["score-negative"]:
        return []
    no, yes, side = (high, low, "below") if settings["score-negative"] else (low, high, "above")
    at = (low + high) / 2 if settings["threshold"] is None else settings["threshold"]
    return [
        f"Scores run from {no:g} (for no) to {yes:g} (for yes), which is 0 to 1 below; a decision is yes {side} "
        f"{at:g}, which is {threshold_of(settings):.4g} there. If they are no probabilities, go by the numbers of "
        "decisions, not by those of scores."
    ]


def read_models(settings: Settings, problem: Problem) -> dict[str, Any]:
    """Return the columns of scores and the models by name."""
    found: dict[str, Any] = {name: _scores(name, problem, settings) for name in settings["score"]}
    files, hot = model_files(settings["model"]).items(), problem.crossed
    loaded = {name: _load(each, trusted=settings["trust-pickle"]) for name, each in files}
    return found | {name: hot.model(each) if hot else each for name, each in loaded.items()}


def _scores(name: str, problem: Problem, settings: Settings) -> pd.Series[Any]:
    """Return a column of scores as numbers; decisions that hold text by the value that counts as yes."""
    from pandas.api.types import is_numeric_dtype

    column: Any = problem.extra[name]
    numbers: pd.Series[Any]
    if name == problem.graph.outcome_column:
        numbers = (column == problem.graph.positive).astype(float)
        return numbers
    if settings["score-positive"] is not None:
        value = match_value("--score-positive", settings["score-positive"], column, settings["data"])
        if column.nunique() > 2 and not settings["rest-is-no"]:
            raise UsageError(
                f"the decisions {name!r} have more than two values: {list_values(column)}. Which of them count as no "
                "is for you to say: --rest-is-no for all but the one named, or leave rows out of the table."
            )
        numbers = (column == value).astype(float)
        return numbers
    if not is_numeric_dtype(column.dtype):
        raise UsageError(
            f"the scores {name!r} are text: {list_values(column)}. Scores are probabilities of yes; of decisions, name "
            "the value that counts as yes, --score-positive VALUE."
        )
    low, high = _scale(settings)
    numbers = column if column.dtype.kind == "f" else column.astype(float)
    outside = numbers[(numbers < low) | (numbers > high)]
    if len(outside):
        raise UsageError(
            f"the scores {name!r} hold {len(outside):,} value(s) outside [{low:g}, {high:g}], such as "
            f"{outside.iloc[0]:.15g}. Name the lowest and the highest score there can be, --score-scale 1 10; of "
            "log-odds make probabilities in the table, by the logistic function."
        )
    changed: pd.Series[Any] = on_scale(settings, numbers)
    return changed


def asked_of(settings: Settings, problem: Problem) -> dict[str, Any]:
    """Return what every assessment of decisions is asked with, by keywords."""
    return {
        "threshold": threshold_of(settings),
        "level": settings["level"],
        "scores": scores_are(settings, problem),
        "sample_weight": problem.weight,
        "groups": problem.groups,
        "missing": missing_of(settings),
        "random_state": settings["seed"],
    }


def scores_are(settings: Settings, problem: Problem) -> Any:
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


def model_files(given: Sequence[str]) -> dict[str, str]:
    """Return the file of each model by name; a name that occurs twice, or a file that is absent, is a UsageError."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, file = text.partition("=")
        if not equals or is_file(text):
            name, file = Path(text).stem, text
        if not name or not file:
            raise UsageError(f"--model {text!r} must be FILE or NAME=FILE.")
        if name in found:
            raise UsageError(f"two models are called {name!r}; name them apart, --model first={found[name]}.")
        if missing := no_file(file):
            raise UsageError(f"--model: {missing}")
        found[name] = file
    return found


def _load(file: str, *, trusted: bool) -> Any:
    """Return a model from a file; a pickle only where it is trusted."""
    if Path(file).suffix.lower() not in PICKLES:
        import pyrofair

        return pyrofair.load(file)
    if not trusted:
        raise UsageError(
            f"{file!r} is a pickle, which runs whatever code its author put in it when it is loaded. If you made "
            "it yourself, add --trust-pickle; otherwise ask for the scores of the model, and use --score COLUMN."
        )
    import joblib

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # scikit-learn warns of a model that another version has pickled
            return joblib.load(file)
    except Exception as error:  # a damaged pickle raises what it likes
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"the pickle {file!r} cannot be used: {cause}") from error
