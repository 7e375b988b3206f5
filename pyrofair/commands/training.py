"""The options of commands that train, and the classifier that they describe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyrofair.commands.options import Option, Settings, UsageError, grouped
from pyrofair.commands.sources import TRAIN_SOURCES, make_source, source_options

if TYPE_CHECKING:
    from pyrofair.classifiers import PenalizedClassifier
    from pyrofair.commands.problem import Problem

__all__ = ["PENALTIES", "TRAINING_OPTIONS", "make_classifier"]

PENALTIES = ("disagreement", "effect_gap", "piu_upper")
TRAINING_OPTIONS = (*grouped(
    "the training",
    Option("model", "what is trained: a network of 100 and 50 units, or logistic regression", default="network",
           choices=("network", "logistic")),
    Option("penalty", "what is penalised: disagreement, the paper's; effect_gap, the mean unfair effect; piu_upper, "
           "the upper end of PIU", default="disagreement", choices=PENALTIES),
    Option("epochs", "passes over the rows", int, least=1),
    Option("batch-size", "rows of a batch", int, default=1000, least=1),
    Option("learning-rate", "the step size", float, above=0.0),
    Option("starts", "initial weights that are tried", int, default=4, least=1),
    Option("validation-fraction", "the share of rows that chooses the epoch", float, above=0.0, below=1.0),
    Option("patience", "stop after so many epochs without gain on these rows", int, least=1),
    Option("dtype", "the precision", default="float64", choices=("float64", "float32")),
    Option("device", "the device of torch", default="cpu", metavar="NAME"),
), *source_options(TRAIN_SOURCES, "ipw"))  # fmt: skip


def make_classifier(
    settings: Settings, problem: Problem, *, strength: float, columns: Sequence[str] | None = None
) -> PenalizedClassifier:
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
