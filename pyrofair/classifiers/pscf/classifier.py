"""PSCF: the classifier of path-specific counterfactual fairness (Chiappa, 2019), fitted by variational inference."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from pyrofair._arviz import to_arviz
from pyrofair._random import fresh_state, isolated, keyed_uniform, neutral_torch, row_keys
from pyrofair._validation import (
    Constraint,
    check_settings,
    optional,
    require_choice,
    require_flag,
    require_instance,
    require_integer,
    require_layers,
    require_rate,
    require_real,
    require_seed,
)
from pyrofair.classifiers.binary import BinaryClassifier
from pyrofair.classifiers.pscf.networks import LatentSEM, Prior, encoders_of, latents_of, spread_besides
from pyrofair.classifiers.pscf.replay import FittedProgram, Latents, Plan, Replayed, read_plan, replay
from pyrofair.classifiers.pscf.truth import PSCFTruth, measure_approximation
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph import UnfairPaths
from pyrofair.inference.amortised import (
    Objective,
    Problem,
    Steps,
    check_convergence,
    evidence_bound,
    fit_amortised,
)
from pyrofair.inference.likelihood import Likelihood
from pyrofair.mechanisms.families import Family, choose_family, encode, features
from pyrofair.mechanisms.learn import require_families, require_fitting
from pyrofair.programs.couplings import COUPLINGS, Coupling
from pyrofair.programs.structural_equations import read_equations
from pyrofair.tables.labels import read_sensitive
from pyrofair.tables.reading import feature_columns, read_table, read_weight, require_aligned, warn_unused

__all__ = ["PSCF"]

CHUNK = 16_384
STEPS, FEWEST, MOST = 6_000, 20, 400
SAMPLES = {"abducted": 50, "posterior": 50, "prior": 5}
Average = Literal["probability", "decision"]
Decide = Literal["mean", "draw"]

_not_negative = partial(require_real, least=0.0)
_positive = partial(require_real, above=0.0)
CONSTRAINTS: dict[str, Constraint] = {
    "unfair": partial(require_instance, types=UnfairPaths, expected="unfair paths, made by graph.unfair(...)"),
    "latents": partial(require_choice, choices=("abducted", "posterior", "prior")),
    "coupling": partial(require_choice, choices=COUPLINGS),
    "decide": partial(require_choice, choices=("mean", "draw")),
    "average": partial(require_choice, choices=("probability", "decision")),
    "samples": optional(require_integer),
    "mmd": _not_negative,
    "likelihood": _positive,
    "warmup": partial(require_real, least=0.0, most=1.0),
    "prior": partial(require_choice, choices=("normal", "learned", "mixture")),
    "latent_size": optional(require_integer),
    "own_noise": optional(_positive),
    "hidden": require_integer,
    "encoder_hidden": require_layers,
    "components": require_integer,
    "epochs": optional(require_integer),
    "batch_size": require_integer,
    "learning_rate": lambda name, value: require_rate(value, name),
    "weight_decay": _not_negative,
    "progress": require_flag,
    "random_state": lambda name, value: require_seed(value, name),
}


class PSCF(BinaryClassifier, BaseEstimator):  # type: ignore[misc]
    """TODO."""

    def __init__(
        self,
        unfair: UnfairPaths,
        *,
        latents: Latents = "abducted",
        coupling: Coupling = "gumbel",
        decide: Decide = "mean",
        average: Average = "probability",
        samples: int | None = None,
        mmd: float = 0.0,
        likelihood: float = 1.0,
        warmup: float = 0.0,
        prior: Prior = "normal",
        latent_size: int | None = None,
        own_noise: float | None = 0.1,
        hidden: int = 100,
        encoder_hidden: Sequence[int] = (20, 20),
        components: int = 5,
        families: Mapping[str, Family] | None = None,
        epochs: int | None = None,
        batch_size: int = 250,
        learning_rate: float = 0.01,
        weight_decay: float = 1.0,
        progress: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.unfair = unfair
        self.latents = latents
        self.coupling = coupling
        self.decide = decide
        self.average = average
        self.samples = samples
        self.mmd = mmd
        self.likelihood = likelihood
        self.warmup = warmup
        self.prior = prior
        self.latent_size = latent_size
        self.own_noise = own_noise
        self.hidden = hidden
        self.encoder_hidden = encoder_hidden
        self.components = components
        self.families = families
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.progress = progress
        self.random_state = random_state

    # -- fitting ------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: object = None) -> Self:
        fitted = copy.copy(self)  # after an error below, self is unchanged
        self._check_settings()
        fitted.plan_ = read_plan(self.unfair)
        values, group, weight = fitted._read_training(X, y, sample_weight)
        epochs = self.epochs or min(max(STEPS * self.batch_size // len(weight), FEWEST), MOST)
        steps = Steps(epochs, self.batch_size, self.learning_rate, self.weight_decay, self.progress)
        problem, losses = fitted._fit_networks(values, group, weight, steps)
        fitted.history_ = pd.DataFrame({"epoch": np.arange(len(losses)), "loss": losses})
        fitted.elbo_ = evidence_bound(problem, seed=fitted.seed_)
        self.__dict__ = fitted.__dict__
        if text := check_convergence(losses, steps, self.warmup):
            warnings.warn(text, PyrofairWarning, stacklevel=2)
        return self

    def _fit_networks(
        self, values: dict[str, Tensor], group: Tensor, weight: Tensor, steps: Steps
    ) -> tuple[Problem, list[float]]:
        graph = self.unfair.graph
        latents = latents_of(graph, self.plan_.redrawn, self.latent_size, [*self.families_])
        residual = {
            column: _residual_share(self.families_, values, column, self._causes(column), weight)
            for latent in latents.values()
            for column in latent.columns
        }
        own = {
            column: spread_besides(self.families_[column], share, self.own_noise) for column, share in residual.items()
        }
        with isolated(self.seed_):
            sem = LatentSEM(graph, self.families_, latents, drawn_from=own, hidden=self.hidden, prior=self.prior)
            guide = encoders_of(sem, tuple(self.encoder_hidden))
        self.sem_, self.guide_ = sem, guide
        info = self._fitted(wide=False).equations.info
        n = len(weight)
        axes = {site: shape.index(-1) for site, shape in info.shapes.items()}
        likelihood = Likelihood(
            sem, n, values, {}, {}, (), (), tuple(latents), (), info.dtypes, {s: info.shape(s, n) for s in info.sites}, {}
        )
        problem = Problem(likelihood, guide, axes, weight, group)
        numbers = [*sem.parameters(), *guide.parameters()]
        objective = Objective(self.likelihood, self.warmup, self.mmd)
        losses = fit_amortised(problem, numbers, steps, self.seed_, objective)
        return problem, losses

    def _causes(self, column: str) -> list[str]:
        graph = self.unfair.graph
        node = next(node for node, own in graph.columns.items() if column in own)
        own = graph.columns[node]
        parents = [parent for parent in graph.parents(node) if parent not in graph.latent]
        return [*graph.columns_of(parents), *own[: own.index(column)]]

    def _check_settings(self) -> None:
        check_settings(self, CONSTRAINTS)
        graph = self.unfair.graph
        known = [column for column in feature_columns(graph) if column != graph.sensitive_column]
        require_families({} if self.families is None else self.families, known)

    def _read_training(self, X: Any, y: Any, sample_weight: object) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        graph = self.unfair.graph
        labels = self._read_column(y)
        table = read_table(X, feature_columns(graph), what="X")
        require_aligned(X, y)
        warn_unused(X, graph)
        weight = read_weight(sample_weight, table, table="X")
        table, target, weight = self._keep_weighted(table, self._code(labels, graph.positive), weight)
        group = read_sensitive(table, graph)
        self.seed_ = int(fresh_state(self.random_state).randint(2**31 - 1))
        coded = {graph.sensitive_column: group, graph.outcome_column: target}
        with neutral_torch():
            self.families_ = {
                column: self._family(pd.Series(coded[column]) if column in coded else table[column], column, weight)
                for node in graph.order
                for column in graph.columns.get(node, [])
            }
        reads = self.plan_.columns_read("posterior")
        self.feature_names_in_ = np.asarray([name for name in X.columns if name in reads], dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        with neutral_torch():
            values = self._encode(table) | {graph.outcome_column: torch.as_tensor(target).float()}
            return values, torch.as_tensor(group), torch.as_tensor(weight, dtype=torch.float32)

    def _family(self, values: pd.Series[Any], column: str, weight: NDArray[np.float64]) -> Family:
        given, values = (self.families or {}).get(column), values.rename(column)
        if given is None:
            return choose_family(values, most_levels=2, components=self.components, weight=weight)
        require_fitting(given, values)
        return given

    def _encode(self, table: pd.DataFrame) -> dict[str, Tensor]:
        sensitive, families = self.unfair.graph.sensitive_column, self.families_
        values = {str(name): encode(families[name], table[name]) for name in table.columns if name != sensitive}
        if sensitive in table.columns:
            values[sensitive] = torch.tensor(read_sensitive(table, self.unfair.graph, both=False)).float()
        return values

    def _fitted(self, *, wide: bool = True) -> FittedProgram:
        coded = replace(self.unfair, graph=self.unfair.graph.coded())
        sem, guide = (copy.deepcopy(each).double() if wide else each for each in (self.sem_, self.guide_))
        with neutral_torch():
            equations = read_equations(sem, coded)
        info = replace(equations.info, known=None, outside=())
        return FittedProgram(replace(equations, info=info), guide, tuple(self.sem_.latents), wide)

    # -- predicting ---------------------------------------------------------------------------------------------------

    @property
    def reads_(self) -> list[str]:
        """The columns that predictions depend on: with latents from the prior not those of the redrawn nodes."""
        check_is_fitted(self, "sem_")
        plan: Plan = self.plan_
        return plan.columns_read(self.latents)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        parts = []
        for rows in self._chunks(X):
            found = self._replayed(rows, self.plan_, self._samples())
            score = found.score
            if self.average == "decision":
                score = (self._decision_noise(rows) < score).to(score.dtype)
            parts.append(score.double().mean(0))
        positive = torch.cat(parts).numpy() if parts else np.empty(0)
        both = np.column_stack([1.0 - positive, positive])
        return both if self.classes_[1] == self.unfair.graph.positive else both[:, ::-1].copy()

    def _samples(self) -> int:
        return 1 if self.decide == "draw" else self.samples or SAMPLES[self.latents]

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of each row: the last class where its probability exceeds 1/2, shape (m,)."""
        last = self.predict_proba(X)[:, 1]
        return np.asarray(self.classes_[(last > 0.5).astype(int)])

    def _chunks(self, X: Any) -> Iterator[pd.DataFrame]:
        self._check_settings()  # those of prediction may have been set since
        table = read_table(X, self.reads_, what="X")
        return (table.iloc[start : start + CHUNK] for start in range(0, len(table), CHUNK))

    def _replayed(self, table: pd.DataFrame, plan: Plan, draws: int, seed: int | None = None) -> Replayed:
        with isolated(0):
            values = self._encode(table)
            coded = replace(plan.unfair, graph=plan.unfair.graph.coded())
            return replay(
                self._fitted(),
                replace(plan, unfair=coded),
                values,
                len(table),
                latents=self.latents,
                draws=draws,
                seed=self.seed_ if seed is None else seed,
                coupling=self.coupling,
                whole=self.latents == "abducted",
                index=table.index,
            )


def _residual_share(
    families: Mapping[str, Family], values: Mapping[str, Tensor], column: str, causes: Sequence[str], weight: Tensor
) -> float:
    """Return the spread of a number given its causes, by a linear predictor, as a share of its spread among all."""
    target = features(families[column], values[column])
    if target.shape[1] != 1:
        return 1.0
    parts = [torch.ones(len(weight), 1), *(features(families[name], values[name]) for name in causes)]
    design, root = torch.cat(parts, 1).double(), weight.double().sqrt().unsqueeze(1)
    found = np.linalg.lstsq((root * design).numpy(), (root * target.double()).numpy(), rcond=None)
    residual = target.double().numpy() - design.numpy() @ found[0]
    share = float(np.sqrt(np.average(residual[:, 0] ** 2, weights=weight.numpy())))
    return min(max(share, 1e-3), 1.0)
