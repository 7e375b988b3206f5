"""Many classifiers fitted at once: seeds, strengths and bootstrap copies trained as stacks, over processes if asked."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import joblib
import numpy as np

from pyrofair._random import PYRO_LOCK, neutral_torch, seed_from
from pyrofair._validation import listed, optional, require_choice, require_integer, require_jobs, shown
from pyrofair._workers import delayed
from pyrofair.classifiers.batches import Problem, share_rows
from pyrofair.classifiers.penalized import PenalizedClassifier
from pyrofair.classifiers.training import Fit, choose_starts, train_many
from pyrofair.exceptions import DataError

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
    jobs = joblib.effective_n_jobs(n_jobs)
    parts = np.array_split(np.arange(len(tasks)), max(min(len(tasks), jobs), 1))
    if len(parts) > 1:  # a generator would be copied into each process, in the same state
        tasks = [(_with_seed(classifier), weight) for classifier, weight in tasks]
    run = delayed(_fit_recorded)
    done = joblib.Parallel(n_jobs)(run([tasks[at] for at in part], X, y, max_stack) for part in parts)
    found: list[Fitted] = [each for fitted, _ in done for each in fitted]
    for text, category in dict.fromkeys(pair for _, said in done for pair in said):
        warnings.warn(text, category, stacklevel=2)
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
        raise DataError(f"sample_weights={shown(sample_weights)} must list weights for each classifier, or be None.")
    several = several * len(weights) if single else several
    weights = weights * len(several) if sample_weights is None and not single else weights
    if len(weights) != len(several):
        raise DataError(
            f"There are {len(several)} classifiers and {len(weights)} sample_weights; give weights or None for each."
        )
    pairs = zip(several, weights, strict=True)
    return [(each, weight) for each, weight in pairs if isinstance(each, PenalizedClassifier)]


def _with_seed(classifier: PenalizedClassifier) -> PenalizedClassifier:
    """Return a classifier whose generator, if it has one, is replaced by a seed drawn from it."""
    if not isinstance(classifier.random_state, np.random.RandomState):
        return classifier
    seeded = copy.copy(classifier)
    seeded.random_state = seed_from(classifier.random_state)
    return seeded


def _fit_recorded(
    tasks: Sequence[tuple[PenalizedClassifier, Any]], X: Any, y: Any, max_stack: int | None
) -> tuple[list[Fitted], list[tuple[str, type[Warning]]]]:
    """Fit classifiers under sample weights; return each, or its error, and what was warned of."""
    # Recording warnings is global, so that threads of one process wait for each other.
    with PYRO_LOCK, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = _fit_together(tasks, X, y, max_stack)
    return found, [(str(each.message), each.category) for each in caught]


def _fit_together(
    tasks: Sequence[tuple[PenalizedClassifier, Any]], X: Any, y: Any, max_stack: int | None
) -> list[Fitted]:
    found: list[Fitted] = []
    problems: dict[int, Problem] = {}
    starts: dict[int, list[Fit]] = {}
    with neutral_torch():
        for at, (classifier, weight) in enumerate(tasks):
            model = copy.copy(classifier).set_params(progress=False)
            try:
                problems[at] = share_rows(model.prepare(X, y, weight), problems.values())
                starts[at] = [model.fit_of(module, problems[at]) for module in model.first_modules(problems[at])]
            except Exception as failure:  # whatever a source, an encoder or a module raises: the others go on
                found.append(failure)
            else:
                found.append(model)
        several = [at for at, fits in starts.items() if len(fits) > 1]
        chosen = choose_starts([starts[at] for at in several], max_stack)
        modules = {at: fits[0].module for at, fits in starts.items()} | dict(zip(several, chosen, strict=True))
        trained: list[tuple[int, PenalizedClassifier, Fit]] = []
        for at, module in modules.items():
            model = found[at]
            if isinstance(module, Exception):
                found[at] = module
            elif isinstance(model, PenalizedClassifier):
                trained.append((at, model, model.fit_of(module, problems[at])))
        errors = train_many([fit for *_, fit in trained], max_stack)
        for (at, model, fit), error in zip(trained, errors, strict=True):
            try:
                if error is not None:
                    raise error
                if (said := model.finish(fit)) is not None:
                    warnings.warn(said, stacklevel=1)
            except Exception as failure:
                found[at] = failure
    return found
