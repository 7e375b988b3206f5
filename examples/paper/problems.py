"""The data of the paper's experiments: training and test rows by seed, and the estimators that judge classifiers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pyro
import torch
from pyro import poutine
from sklearn.neural_network import MLPClassifier

import pyrofair as pf

RARE = 0.05
TRAINED, TESTED = 5000, 1000
"""The rows of a scenario that the paper trains and tests on."""
STOPPED = {"validation_fraction": 0.1, "patience": 8}
LOADERS = {"german": pf.datasets.load_german, "adult": pf.datasets.load_adult}


@dataclass(frozen=True)
class Problem:
    """A data set, and how classifiers are trained on it.

    ``scenario`` is the name of a structural equation model, or None for packaged data; ``training`` holds settings of
    ``PenalizedClassifier``; ``judged_throughout`` tells whether one-step estimates are made at each strength, and not
    at the chosen one alone; ``pscf`` has settings of PSCF. ``bounded`` are the paths whose effect the closed form of
    the paper's extension bounds, where that is used.
    """

    name: str
    title: str
    scenario: str | None
    training: Mapping[str, Any]
    judged_throughout: bool = False
    pscf: Mapping[str, Any] = field(default_factory=dict)
    bounded: tuple[str, ...] = ()

    @property
    def unfair(self) -> pf.UnfairPaths:
        """The unfair paths."""
        made = LOADERS[self.name]() if self.scenario is None else pf.simulate.scenario(self.scenario)
        return made.unfair


# A node of integers with few levels would be taken for categories, and a level that test rows alone have be refused.
INTEGERS = {"families": {"D": pf.mechanisms.families.Integer(-20, 20, 1.6, 1.0)}}
PROBLEMS = {
    each.name: each
    for each in (
        Problem("synth", "Synth", "hiring", {"batch_size": 1000}),
        Problem("additive", "additive noise", "additive", {"batch_size": 1000}, pscf=INTEGERS),
        Problem("latent", "latent confounder", "latent", {"batch_size": 1000}, bounded=("A -> Y", "A -> R -> Y")),
        Problem("german", "German", None, {"batch_size": 100, "epochs": 60, **STOPPED}),
        Problem("adult", "Adult", None, {"batch_size": 1000, "epochs": 30, **STOPPED}, judged_throughout=True),
    )
}


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


@dataclass(frozen=True, eq=False)
class Split:
    """Training and test rows of a problem for one seed, with what judges classifiers there.

    ``X`` and ``y`` are the training rows and outcomes; ``test`` has the outcome, too. ``weights`` are the paper's, and
    ``one_step`` the estimates of packaged data, both fitted to the training rows. ``model`` and ``truth`` are those of
    a scenario alone. ``bounded`` are the paths whose effect is bounded in closed form, or None.
    """

    problem: Problem
    sizes: Sizes
    unfair: pf.UnfairPaths
    X: pd.DataFrame
    y: pd.Series
    test: pd.DataFrame
    weights: pf.IPW
    one_step: pf.OneStep | None
    model: pf.simulate.Scenario | None
    truth: pf.SEM | None
    bounded: pf.UnfairPaths | None

    @property
    def outcome(self) -> str:
        """The outcome's column."""
        return self.unfair.graph.outcome_column


def paper_source(problem: Problem, unfair: pf.UnfairPaths) -> pf.IPW:
    """Return the paper's weights, unfitted, on its group.

    Propensities are networks for a scenario, whose mediators do not overlap, so that no mass has to be supported, and
    weights are not normalised there, except with a latent confounder: mean weights of .6 to 1.2 would give a classifier
    that says yes to all an effect of as much. For packaged data they are logistic, as in the paper, and normalised: on
    German's 100 test rows the others give probabilities of 1.2.
    """
    if problem.scenario is None:
        return pf.IPW(unfair, arm="paper")
    network = MLPClassifier((50,), "logistic", batch_size=500, learning_rate_init=0.01, max_iter=50, random_state=0)
    normalize = bool(problem.bounded)
    return pf.IPW(unfair, arm="paper", propensity=network, folds=1, normalize=normalize, max_unsupported=1.0)


@lru_cache(maxsize=2)
def split(name: str, seed: int, sizes: Sizes) -> Split:
    """Return the rows of a problem for a seed, and the estimators fitted to the training rows."""
    problem = PROBLEMS[name]
    if problem.scenario is None:
        data, model = LOADERS[name](), None
        unfair = data.unfair
        train, test = data.split(random_state=seed)
        if sizes.train is not None:
            train, test = _fewer(train, test, sizes, seed)
    else:
        model = pf.simulate.scenario(problem.scenario)
        unfair = model.unfair
        train = model.draw(sizes.train or TRAINED, random_state=2 * seed)
        test = model.draw(sizes.test or TESTED, random_state=2 * seed + 1)
    outcome = unfair.graph.outcome_column
    X = train.drop(columns=outcome)
    judged = model is None and not (sizes.quick and name == "german")  # whose trees are most of a quick run
    return Split(
        problem=problem,
        sizes=sizes,
        unfair=unfair,
        X=X,
        y=train[outcome],
        test=test,
        weights=paper_source(problem, unfair).fit(X),
        one_step=pf.OneStep(unfair, random_state=seed).fit(X) if judged else None,
        model=model,
        truth=None if model is None else pf.SEM(model.program, unfair),
        bounded=unfair.graph.unfair(*problem.bounded) if problem.bounded else None,
    )


def _fewer(train: pd.DataFrame, test: pd.DataFrame, sizes: Sizes, seed: int) -> list[pd.DataFrame]:
    """Return so many rows of each at random, without the categories that too few of them would have for weights."""
    for column in train.select_dtypes("category"):
        share = train[column].value_counts(normalize=True)
        kept = share.index[share > RARE]
        train, test = (rows[rows[column].isin(kept)] for rows in (train, test))
        train, test = (rows.assign(**{column: rows[column].cat.set_categories(kept)}) for rows in (train, test))
    pairs = ((train, sizes.train), (test, sizes.test))
    return [rows.sample(min(number or len(rows), len(rows)), random_state=seed) for rows, number in pairs]


def bayes_rates(name: str, units: int, seed: int = 0) -> tuple[float, float]:
    """Return the accuracies of the majority class and of the best classifier in a scenario, of so many units drawn.

    With a latent cause of the outcome the best classifier is that of the observed features, which are discrete there.
    """
    model = pf.simulate.scenario(PROBLEMS[name].scenario)
    with torch.random.fork_rng(), torch.no_grad(), poutine.trace() as tracer:
        pyro.set_rng_seed(seed)
        model.program(units)
    sites = dict(tracer.trace.nodes)
    chance = sites["Y"]["fn"].probs.double().numpy()
    if model.graph.latent:
        features = pd.DataFrame({name: sites[name]["value"].numpy() for name in model.graph.inputs})
        chance = pd.Series(chance).groupby([*features.to_numpy().T]).transform("mean").to_numpy()
    return float(max(chance.mean(), 1.0 - chance.mean())), float(np.maximum(chance, 1.0 - chance).mean())
