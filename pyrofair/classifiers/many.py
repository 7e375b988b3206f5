"""Many classifiers fitted at once: seeds, strengths and bootstrap copies trained as stacks, over processes if asked."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import joblib
import numpy as np

from pyrofair._random import neutral_torch
from pyrofair._validation import listed, optional, require_choice, require_integer, require_jobs, shown
from pyrofair.classifiers.batches import Problem, share_rows
from pyrofair.classifiers.penalized import PenalizedClassifier
from pyrofair.classifiers.training import choose_starts, train_many
from pyrofair.exceptions import DataError, PositivityWarning

__all__ = ["fit_many"]

Fitted = PenalizedClassifier | Exception


def fit_many(
    classifiers: PenalizedClassifier | Sequence[PenalizedClassifier],
    X: Any,
    y: Any,
    sample_weights: Sequence[Any] | None = None,
    *,
    max_stack: int | None = None,
    n_jobs: int | None = None,
    errors: Literal["raise", "return"] = "raise",
) -> list[Any]:
    """Return fitted copies of classifiers, each as its own ``fit`` makes it, trained together.

    Modules of one architecture are trained as one stack of weights, whatever their strengths, seeds, sources and
    sample weights: several times as fast where a fit is small (logistic regression, small batches), and about as fast
    as one by one where a batch keeps a core busy. Networks of linear layers and activations are stacked, and torch's
    optimizers that treat each weight alone; all else is fitted one by one. With ``random_state`` an integer the result
    depends on it alone, up to the rounding of sums.

    Parameters
    ----------
    classifiers
        The classifiers, none of which is changed; or a single one, fitted once for each of the sample weights.
    X, y
        Rows (n) and their outcomes, as for ``fit``.
    sample_weights
        For each classifier the weights (n,) of the rows, or None: bootstrap copies are fits with other weights.
    max_stack
        The largest number of modules in a stack, which bounds the memory. Rows that are equal are held once, weights,
        batches and scores by copy. None: as many as keep the numbers of a batch within the cache of a processor.
    n_jobs
        The number of processes, as for :class:`joblib.Parallel`, whose backend and ``n_jobs`` the caller may set.
    errors
        ``"return"`` puts the error of a fit that failed in its place, and keeps the others.

    Raises
    ------
    DataError
        If the arguments are unfit; and, unless errors are returned, the first error of a fit.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(60, 2)), rng.integers(2, size=60)
    >>> weights = [rng.multinomial(60, np.full(60, 1 / 60)) for _ in range(3)]
    >>> fitted = fit_many(PenalizedClassifier("logistic", epochs=2, random_state=0), X, y, weights)
    >>> [model.predict(X).shape for model in fitted]
    [(60,), (60,), (60,)]
    """
    require_choice("errors", errors, ("raise", "return"))
    optional(require_jobs)("n_jobs", n_jobs)
    optional(require_integer)("max_stack", max_stack)
    tasks = _pair(classifiers, sample_weights)
    found: list[Fitted] = []
    texts: list[str] = []
    parts = np.array_split(np.arange(len(tasks)), min(len(tasks), joblib.effective_n_jobs(n_jobs))) if tasks else []
    run = joblib.delayed(_fit_together)
    for fitted, said in joblib.Parallel(n_jobs)(run([tasks[at] for at in part], X, y, max_stack) for part in parts):
        found += fitted
        texts += said
    for text in dict.fromkeys(texts):
        warnings.warn(text, PositivityWarning, stacklevel=2)
    failed = [(at, each) for at, each in enumerate(found) if isinstance(each, Exception)]
    if failed and errors == "raise":
        at, error = failed[0]
        error.add_note(f"This is the error of classifier {at} of {len(found)}; {len(failed)} failed in all.")
        raise error
    return found


def _pair(classifiers: Any, sample_weights: Any) -> list[tuple[PenalizedClassifier, Any]]:
    """Return each classifier with its sample weights."""
    single = isinstance(classifiers, PenalizedClassifier)
    several = (classifiers,) if single else listed(classifiers)
    weights = (None,) if sample_weights is None else listed(sample_weights)
    if several is None or not all(isinstance(each, PenalizedClassifier) for each in several):
        raise DataError(f"classifiers={shown(classifiers)} must be a PenalizedClassifier, or several in a list.")
    if weights is None or isinstance(sample_weights, str):
        raise DataError(
            f"sample_weights={shown(sample_weights)} must list the weights of the rows for each classifier, or be None."
        )
    if single:
        several = several * len(weights)
    elif sample_weights is None:
        weights = weights * len(several)
    if len(weights) != len(several):
        raise DataError(
            f"There are {len(several)} classifiers and {len(weights)} sample_weights; give the weights of the rows, or "
            "None, for each classifier."
        )
    pairs = zip(several, weights, strict=True)
    return [(each, weight) for each, weight in pairs if isinstance(each, PenalizedClassifier)]


def _fit_together(
    tasks: Sequence[tuple[PenalizedClassifier, Any]], X: Any, y: Any, max_stack: int | None
) -> tuple[list[Fitted], list[str]]:
    """Fit classifiers under sample weights; return each, or its error, and their warnings."""
    found: list[Fitted] = []
    problems: dict[int, Problem] = {}
    texts = []
    with neutral_torch():
        for classifier, weight in tasks:
            model = copy.copy(classifier).set_params(progress=False)
            try:
                problems[len(found)] = share_rows(model.prepare(X, y, weight), problems.values())
            except Exception as failure:  # whatever a source or an encoder raises: the others go on
                found.append(failure)
            else:
                found.append(model)
        models = {at: model for at, model in enumerate(found) if isinstance(model, PenalizedClassifier)}
        starts = {
            at: [model.fit_of(module, problems[at]) for module in model.first_modules(problems[at])]
            for at, model in models.items()
        }
        several = [at for at, fits in starts.items() if len(fits) > 1]
        chosen = dict(zip(several, choose_starts([starts[at] for at in several], max_stack), strict=True))
        fits = [model.fit_of(chosen.get(at, starts[at][0].module), problems[at]) for at, model in models.items()]
        for (at, model), fit, error in zip(models.items(), fits, train_many(fits, max_stack), strict=True):
            if error is not None:
                found[at] = error
            elif text := model.finish(fit):
                texts.append(text)
    return found, texts
