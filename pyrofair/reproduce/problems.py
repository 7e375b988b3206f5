"""The data sets of the paper's experiments: training and test rows by seed, and the sources that judge classifiers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from pyro import poutine
from sklearn.neural_network import MLPClassifier

from pyrofair._random import isolated
from pyrofair.datasets import load_adult, load_german
from pyrofair.graph import UnfairPaths
from pyrofair.mechanisms.families import Integer
from pyrofair.simulate import Scenario, scenario
from pyrofair.sources import IPW, SEM, OneStep

__all__ = ["PROBLEMS", "Problem", "Sizes", "Split", "bayes_rates", "paper_source", "split", "unfair_paths"]

RARE = 0.05
TRAINED, TESTED = 5000, 1000
"""The rows of a scenario that the paper trains and tests on."""


@dataclass(frozen=True)
class Problem:
    """A data set, and how classifiers are trained on it.

    ``scenario`` is the name of a structural equation model, or None for packaged data; ``training`` holds settings of
    :class:`~pyrofair.PenalizedClassifier`; ``judged_throughout`` whether one-step estimates are made at each strength,
    and not at the chosen one alone; ``pscf`` has settings of PSCF. Nodes with few levels would be taken for categories,
    and a level that only test rows have would be refused. ``bounded`` are the paths whose effect the closed form of the
    paper's extension bounds, where that is used.
    """

    name: str
    title: str
    scenario: str | None
    training: Mapping[str, Any]
    judged_throughout: bool = False
    pscf: Mapping[str, Any] = field(default_factory=dict)
    bounded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sizes:
    """How much of a data set is used, and how long is trained: None for all of it and the problem's own length.

    ``units`` are drawn for true effects. ``quick`` learns linear mechanisms and few trees, and averages few draws.
    """

    train: int | None = None
    test: int | None = None
    epochs: int | None = None
    units: int = 20_000
    quick: bool = False


STOPPED = {"validation_fraction": 0.1, "patience": 8}
PROBLEMS = {
    "synth": Problem("synth", "Synth", "hiring", {"batch_size": 1000}),
    "additive": Problem(
        "additive",
        "additive noise",
        "additive",
        {"batch_size": 1000},
        pscf={"families": {"D": Integer(-20, 20, 1.6, 1.0)}},
    ),
    "latent": Problem("latent", "latent confounder", "latent", {"batch_size": 1000}, bounded=("A -> Y", "A -> R -> Y")),
    "german": Problem("german", "German", None, {"batch_size": 100, "epochs": 60, **STOPPED}),
    "adult": Problem("adult", "Adult", None, {"batch_size": 1000, "epochs": 30, **STOPPED}, judged_throughout=True),
}
LOADERS = {"german": load_german, "adult": load_adult}


@dataclass(frozen=True, eq=False)
class Split:
    """Training and test rows of a problem for one seed, with what judges classifiers there.

    Attributes
    ----------
    X, y
        The training rows without and with the outcome.
    test
        The test rows, outcome included.
    paper, one_step
        The paper's weights and one-step estimates, fitted on the training rows; the latter for packaged data alone.
    model, truth
        The structural equation model, for a scenario alone.
    bounded
        The paths of the problem whose effect is bounded in closed form, or None.
    """

    problem: Problem
    sizes: Sizes
    unfair: UnfairPaths
    X: pd.DataFrame
    y: pd.Series[Any]
    test: pd.DataFrame
    paper: IPW
    one_step: OneStep | None
    model: Scenario | None
    truth: SEM | None
    bounded: UnfairPaths | None = None

    @property
    def outcome(self) -> str:
        """The outcome's column."""
        return self.unfair.graph.outcome_column


def paper_source(problem: Problem, unfair: UnfairPaths) -> IPW:
    """Return the paper's weights, unfitted, on its group.

    Propensities are networks for a scenario, whose mediators do not overlap, so that no mass has to be supported, and
    weights are not normalised there, except with a latent confounder: mean weights of .6 to 1.2 would give a classifier
    that says yes to all an effect of as much. For packaged data they are logistic, as in the paper, and normalised: on
    German's 100 test rows the others give probabilities of 1.2.
    """
    if problem.scenario is None:
        return IPW(unfair, arm="paper")
    network = MLPClassifier((50,), "logistic", batch_size=500, learning_rate_init=0.01, max_iter=50, random_state=0)
    normalize = bool(problem.bounded)
    return IPW(unfair, arm="paper", propensity=network, folds=1, normalize=normalize, max_unsupported=1.0)


@lru_cache(maxsize=2)
def split(name: str, seed: int, sizes: Sizes) -> Split:
    """Return the rows of a problem for a seed, and the sources fitted on the training rows."""
    problem = PROBLEMS[name]
    if problem.scenario is None:
        data = LOADERS[name]()
        train, test = data.split(random_state=seed)
        if sizes.train is not None:
            train, test = _fewer(train, test, sizes, seed)
        unfair, model = data.unfair, None
    else:
        model = scenario(problem.scenario)
        unfair = model.unfair
        train = model.draw(sizes.train or TRAINED, random_state=2 * seed)
        test = model.draw(sizes.test or TESTED, random_state=2 * seed + 1)
    outcome = unfair.graph.outcome_column
    X = train.drop(columns=outcome)
    paper = paper_source(problem, unfair).fit(X)
    judged = model is None and not (sizes.quick and name == "german")  # whose trees are most of a quick run
    one_step = OneStep(unfair, random_state=seed).fit(X) if judged else None
    truth = None if model is None else SEM(model.program, unfair)
    bounded = unfair.graph.unfair(*problem.bounded) if problem.bounded else None
    return Split(problem, sizes, unfair, X, train[outcome], test, paper, one_step, model, truth, bounded)


def unfair_paths(name: str) -> UnfairPaths:
    """Return the unfair paths of a problem."""
    problem = PROBLEMS[name]
    return LOADERS[name]().unfair if problem.scenario is None else scenario(problem.scenario).unfair


def _fewer(train: pd.DataFrame, test: pd.DataFrame, sizes: Sizes, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return so many rows of each at random, without the categories that too few of them would have for weights."""
    for column in train.select_dtypes("category"):
        share = train[column].value_counts(normalize=True)
        kept = share.index[share > RARE]
        train, test = (rows[rows[column].isin(kept)] for rows in (train, test))
        train, test = (rows.assign(**{str(column): rows[column].cat.set_categories(kept)}) for rows in (train, test))
    pairs = ((train, sizes.train), (test, sizes.test))
    train, test = (rows.sample(min(number or len(rows), len(rows)), random_state=seed) for rows, number in pairs)
    return train, test


def bayes_rates(name: str, units: int, seed: int = 0) -> tuple[float, float]:
    """Return the accuracies of the majority class and of the best classifier in a scenario, of so many units drawn.

    With a latent cause of the outcome the best classifier is that of the observed features, which are discrete there.
    """
    model = scenario(str(PROBLEMS[name].scenario))
    with isolated(seed), torch.no_grad(), poutine.trace() as tracer:
        model.program(units)
    sites: dict[str, Any] = dict(tracer.trace.nodes)
    chance = sites["Y"]["fn"].probs.double().numpy()
    if model.graph.latent:
        features = pd.DataFrame({name: sites[name]["value"].numpy() for name in model.graph.inputs})
        chance = pd.Series(chance).groupby([*features.to_numpy().T]).transform("mean").to_numpy()
    return float(max(chance.mean(), 1.0 - chance.mean())), float(np.maximum(chance, 1.0 - chance).mean())
