"""Models on disk: those of the package, which hold no code, and pickles of others where they are trusted."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyrofair.commands.options import Option, UsageError, grouped, is_file, no_file

__all__ = ["MODEL_OPTIONS", "load_model", "model_files"]

MODEL_OPTIONS = grouped(
    "the decisions",
    Option("model", "saved models, each FILE or NAME=FILE", many=True, metavar="FILE"),
    Option("trust-pickle", "load models pickled by joblib or pickle. A pickle runs whatever code its author put in it, "
           "with your rights: use it for files that you made yourself", bool),
)  # fmt: skip
PICKLES = (".joblib", ".pkl", ".pickle")


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


def load_model(file: str, *, trusted: bool) -> Any:
    """Return a model from a file; a pickle only where it is trusted."""
    if Path(file).suffix.lower() in PICKLES:
        if not trusted:
            raise UsageError(
                f"{file!r} is a pickle, which runs whatever code its author put in it when it is loaded. If you made "
                "it yourself, add --trust-pickle; otherwise ask for the scores of the model, and use --score COLUMN."
            )
        return _unpickle(file)
    import pyrofair

    return pyrofair.load(file)


def _unpickle(file: str) -> Any:
    import joblib

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # scikit-learn warns of a model that another version has pickled
            return joblib.load(file)
    except Exception as error:  # a damaged pickle raises what it likes
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"the pickle {file!r} cannot be used: {cause}") from error
