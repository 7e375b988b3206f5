"""Methods of a study: the paper's by name, estimators, and functions that fit a model to the rows of a scenario."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
from sklearn.base import clone

from pyrofair._validation import require_choice, shown
from pyrofair.classifiers import PSCF, PenalizedClassifier, remove
from pyrofair.effects import disagreement, effect_gap
from pyrofair.exceptions import DataError
from pyrofair.simulate.scenarios import Scenario, scenario
from pyrofair.sources import IPW, SEM, GComputation

__all__ = ["METHODS", "Method", "method"]


def _penalised(source: Callable[[Scenario], Any], penalty: Any) -> Callable[[Scenario], PenalizedClassifier]:
    return lambda given: PenalizedClassifier(source=source(given), penalty=penalty)


_GROUPS: dict[str, Callable[[Scenario], Any]] = {
    "": lambda given: IPW(given.unfair, arm="paper"),
    " (free group)": lambda given: IPW(given.unfair, arm="auto"),
    " (pooled)": lambda given: IPW(given.unfair, arm="pooled"),
    " (given S)": lambda given: GComputation(given.unfair),
}
METHODS: dict[str, Callable[[Scenario], Any]] = {
    "Unconstrained": lambda given: PenalizedClassifier(columns=given.graph.input_columns),
    "Remove (touched)": lambda given: PenalizedClassifier(columns=remove(given.unfair, "touched")),
    "Remove (descendants)": lambda given: PenalizedClassifier(columns=remove(given.graph, "descendants")),
    **{f"FIO{name}": _penalised(source, effect_gap) for name, source in _GROUPS.items()},
    **{f"Proposed{name}": _penalised(source, disagreement) for name, source in _GROUPS.items()},
    "PSCF": lambda given: PSCF(given.unfair),
    "PSCF (latents from the prior)": lambda given: PSCF(given.unfair, latents="prior"),
    "Oracle": _penalised(lambda given: SEM(given.program, given.unfair, unit="noise"), disagreement),
}
"""The estimator of each named method, unfitted, for a scenario.

*FIO* and *Proposed* are the paper's, by inverse probabilities in the paper's group; with ``(free group)`` in the group
that ``arm="auto"`` takes, with ``(pooled)`` in both, with ``(given S)`` by learned mechanisms, given the shared
features. *Oracle* is trained with a penalty on the disagreement of each unit's own worlds, by the true program.

Examples
--------
>>> from pyrofair.simulate import METHODS, scenario
>>> METHODS["FIO"](scenario("hiring")).source
IPW(arm='paper', unfair=UnfairPaths('A -> D -> Y', 'A -> Y'))
"""
PENALISED = tuple(name for name in METHODS if name.startswith(("FIO", "Proposed", "Oracle")))


@dataclass(frozen=True)
class Method:
    """A method of a study: how a model is made of the rows of a scenario.

    Attributes
    ----------
    given : str, estimator or callable
        A name of :data:`METHODS`, an unfitted classifier, or a function ``(train, scenario, seed)`` that returns a
        fitted one.
    settings : dict
        Settings of the estimator other than its own, as for ``set_params``.
    """

    given: Any
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the method, if it is given alone."""
        if isinstance(self.given, str):
            return self.given
        named = getattr(self.given, "__name__", None)
        return str(named) if isinstance(named, str) and named != "<lambda>" else type(self.given).__name__

    @property
    def penalised(self) -> bool:
        """Whether the method has a strength of its penalty, which the strengths of a study replace."""
        if isinstance(self.given, str):
            return self.given in PENALISED
        if _is_estimator(self.given):
            return "strength" in self.given.get_params() and getattr(self.given, "source", None) is not None
        return "strength" in inspect.signature(self.given).parameters

    def with_strength(self, strength: float) -> Method:
        """Return the method with another strength of its penalty."""
        if isinstance(self.given, str) or _is_estimator(self.given):
            return replace(self, settings={**self.settings, "strength": strength})
        return replace(self, given=functools.partial(self.given, strength=strength))

    def estimator(self, scenario: Scenario, seed: int = 0) -> Any:
        """Return the estimator, unfitted, with the seed in each of its ``random_state``; a function is none."""
        made = METHODS[self.given](scenario) if isinstance(self.given, str) else clone(self.given)
        try:
            made.set_params(**self.settings)
            named = [name.rpartition("__") for name in made.get_params()]
            made.set_params(**{"".join(name): seed for name in named if name[2] == "random_state"})
            made.set_params(**{"".join(name): False for name in named if name[2] == "progress"})
        except ValueError as error:
            raise DataError(f"The method {self.name!r} does not take its settings: {error}") from error
        return made

    def fit(self, train: pd.DataFrame, scenario: Scenario, seed: int) -> Any:
        """Return a model fitted to rows of the scenario."""
        if not isinstance(self.given, str) and not _is_estimator(self.given):
            return self.given(train, scenario, seed)
        made = self.estimator(scenario, seed)
        target = scenario.graph.outcome_column
        # What a source or PSCF learns from are all columns of the graph; other classifiers read the outcome's parents.
        whole = isinstance(made, PSCF) or getattr(made, "source", None) is not None
        columns = [name for name in train if name != target] if whole else scenario.graph.input_columns
        return made.fit(train[columns], train[target])


def method(name: str, **settings: Any) -> Method:
    """Return a named method of a study with settings other than its own.

    Parameters
    ----------
    name
        A name of :data:`METHODS`: ``"Unconstrained"``, ``"Remove (touched)"``, ``"Remove (descendants)"``; ``"FIO"``
        and ``"Proposed"``, alone or with ``" (free group)"``, ``" (pooled)"`` or ``" (given S)"``; ``"PSCF"``,
        ``"PSCF (latents from the prior)"``; ``"Oracle"``.
    settings
        Of the estimator, as for its ``set_params``: ``model="logistic"``, ``strength=2.0``,
        ``source__propensity="boosted"``.

    Raises
    ------
    DataError
        For an unknown name or setting.

    Examples
    --------
    >>> method("Proposed", model="logistic", strength=2.0).estimator(scenario("hiring")).strength
    2.0
    """
    require_choice("name", name, tuple(METHODS))
    made = Method(name, settings)
    made.estimator(scenario("hiring"))
    return made


def as_method(label: str | None, given: object) -> Method:
    """Return what a user gives as a method, with a checked name; it may have a label in messages."""
    if isinstance(given, Method):
        return given
    if isinstance(given, str):
        require_choice("methods", given, tuple(METHODS))
    if isinstance(given, str) or _is_estimator(given):
        return Method(given)
    label = repr(label) if label else shown(given)
    if callable(given) and not isinstance(given, type):
        try:
            inspect.signature(given).bind(None, None, None)
        except TypeError as error:
            raise DataError(
                f"The method {label} cannot be called with (train, scenario, seed): {error}. A function of a method "
                "takes the rows to fit to, the scenario and a seed, and returns a fitted model."
            ) from error
        return Method(given)
    raise DataError(
        f"The method {label}, {shown(given)}, must be a name such as 'FIO', a classifier that is not fitted, or a "
        "function (train, scenario, seed) that returns a fitted model."
    )


def _is_estimator(given: object) -> bool:
    return not isinstance(given, type) and all(hasattr(given, each) for each in ("fit", "get_params", "set_params"))
