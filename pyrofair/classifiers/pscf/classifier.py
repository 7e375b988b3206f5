"""PSCF: the classifier of path-specific counterfactual fairness (Chiappa, 2019), fitted by variational inference."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
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
from pyrofair._random import fresh_state, isolated, keyed_uniform, neutral_torch
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
from pyrofair.classifiers.pscf.model import (
    Latents,
    LatentSEM,
    Replay,
    Steps,
    Units,
    check_convergence,
    evidence,
    fit_elbo,
    read_replay,
)
from pyrofair.classifiers.pscf.truth import PSCFTruth, measure_approximation
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph import UnfairPaths
from pyrofair.mechanisms.families import Family, choose_family, encode
from pyrofair.mechanisms.learn import require_families, require_fitting
from pyrofair.tables.labels import read_sensitive
from pyrofair.tables.reading import feature_columns, read_table, read_weight, require_aligned, warn_unused

__all__ = ["PSCF"]

CHUNK = 16_384
STEPS, FEWEST, MOST = 6_000, 20, 400
Average = Literal["probability", "decision"]

_not_negative = partial(require_real, least=0.0)
CONSTRAINTS: dict[str, Constraint] = {
    "unfair": partial(require_instance, types=UnfairPaths, expected="unfair paths, made by graph.unfair(...)"),
    "latents": partial(require_choice, choices=("posterior", "prior")),
    "average": partial(require_choice, choices=("probability", "decision")),
    "samples": require_integer,
    "mmd": _not_negative,
    "latent_size": optional(require_integer),
    "own_noise": optional(partial(require_real, above=0.0)),
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
    """Path-specific counterfactual fairness by variational inference: the paper's main competitor.

    It learns a structural equation model in which the nodes on unfair paths have latent noise, and predicts from the
    counterfactual of each unit: edges of unfair paths carry the baseline, all others the unit's own value, and the
    nodes on unfair paths are redrawn with the unit's noise.

    *Assumes* that the learned model is the true one. Data do not determine what a latent variable stands for
    (``docs/decisions/0019-pscf.md``): :meth:`truth` reports the cost where the true model is known.

    Parameters
    ----------
    unfair
        The unfair paths, without recanting witness.
    latents
        The distribution of a unit's noise: ``"posterior"``, given its row (Chiappa 2018, abduction), or ``"prior"``
        (the paper's eq. pscfpm).
    average
        What is averaged over the samples: the ``"probability"`` of the outcome, or a ``"decision"`` drawn with it (the
        paper's eq. pscfpred), which has the same mean and more noise.
    samples
        The paper's J, the Monte-Carlo samples of each unit, each from another J-th of its noise distribution.
    mmd
        The strength of a penalty, in nats a unit, on the maximum mean discrepancy between the two groups' latents. The
        paper searched 0 to 2.
    latent_size
        The dimensions of a node's latent variable; by default as many as it has columns.
    own_noise
        The spread of a number on an unfair path besides its latent variable, as a share of its standard deviation (for
        integers a quarter at least). If it is learned (None), the posterior of the latent often is the prior.
    hidden, encoder_hidden, components
        The tanh units of each distribution's hidden layer, and of the layers of each encoder; the components of the
        distributions of numbers without a latent variable.
    families
        The distribution of a column, by its name, instead of that of
        :func:`pyrofair.mechanisms.families.choose_family`. Integers are numbers here: make few of them categorical.
    epochs, batch_size
        The length of training (by default about 6,000 steps, in 20 to 400 epochs) and the rows of a batch.
    learning_rate, weight_decay
        The size of Adam's steps, which shrink to a hundredth after a third of the epochs; the precision of the normal
        prior of the networks' weights.
    progress, random_state
        Whether a fit of some seconds shows a bar; the seed of networks, batches, latent draws, and predictions.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels, sorted.
    replay_ : Replay
        Which nodes are redrawn, and which read the baseline.
    sem_ : LatentSEM
        The learned model, with a Pyro program ``model``, its ``guide`` and its ``families``.
    history_, elbo_ : DataFrame, float
        The loss of each epoch, and the evidence lower bound of the training rows at the end, in nats a unit.
    feature_names_in_ : ndarray of str
        The columns on which predictions may depend.

    References
    ----------
    Chiappa (2018), sections 3 and 4; Chikahara et al. (2021), appendix G.2, "Unfair effects of PSCF".

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"A": rng.integers(0, 2, 400), "Q": rng.normal(size=400)})
    >>> X["D"] = X["A"] + X["Q"] + rng.normal(size=400)
    >>> y = (X["D"] + X["A"] + X["Q"] > 1).astype(int)
    >>> graph = CausalGraph("{A Q} -> D; {A Q D} -> Y", sensitive="A", outcome="Y")
    >>> fair = PSCF(graph.unfair("A -> Y", "A -> D -> Y"), epochs=100, batch_size=50, random_state=0)
    >>> bool(fair.fit(X, y).score(X, y) > 0.75)
    True
    """

    def __init__(
        self,
        unfair: UnfairPaths,
        *,
        latents: Latents = "posterior",
        average: Average = "probability",
        samples: int = 5,
        mmd: float = 0.0,
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
        self.average = average
        self.samples = samples
        self.mmd = mmd
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
        """Learn the distribution of each column given its causes, and that of a unit's noise given its row.

        Parameters
        ----------
        X
            A DataFrame of n rows with all columns of the graph but the outcome's.
        y
            The outcome, shape (n,); its positive value is the graph's.
        sample_weight
            Weights of shape (n,).

        Raises
        ------
        DataError
            If the table, the outcome or a setting is unfit, or training diverges; nothing has been fitted then.
        NotIdentifiedError, GraphError
            If the unfair paths have a recanting witness, or one of them runs through a latent node.

        Warns
        -----
        PyrofairWarning
            If the loss has not settled, or columns are outside the graph; if the fit was interrupted (Ctrl-C), in which
            case the networks of the last whole epoch are kept.
        """
        fitted = copy.copy(self)  # after an error below, self is unchanged
        self._check_settings()
        fitted.replay_ = read_replay(self.unfair)
        units = fitted._read_training(X, y, sample_weight)
        epochs = self.epochs or min(max(STEPS * self.batch_size // len(units), FEWEST), MOST)
        steps = Steps(epochs, self.batch_size, self.learning_rate, self.weight_decay, self.progress)
        columns = self.unfair.graph.columns
        with isolated(fitted.seed_):
            fitted.sem_ = LatentSEM(
                self.unfair.graph,
                fitted.families_,
                {node: self.latent_size or len(columns[node]) for node in fitted.replay_.redrawn},
                hidden=self.hidden,
                encoder_hidden=tuple(self.encoder_hidden),
                own_noise=self.own_noise,
                distance=float(self.mmd),
            )
        losses = fit_elbo(fitted.sem_, units, steps, fitted.seed_)
        fitted.history_ = pd.DataFrame({"epoch": np.arange(len(losses)), "loss": losses})
        fitted.elbo_ = evidence(fitted.sem_, units, seed=fitted.seed_)
        self.__dict__ = fitted.__dict__
        if text := check_convergence(losses, steps):
            warnings.warn(text, PyrofairWarning, stacklevel=2)
        return self

    def _check_settings(self) -> None:
        check_settings(self, CONSTRAINTS)
        graph = self.unfair.graph
        known = [column for column in feature_columns(graph) if column != graph.sensitive_column]
        require_families({} if self.families is None else self.families, known)

    def _read_training(self, X: Any, y: Any, sample_weight: object) -> Units:
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
        reads = self.replay_.columns_read("posterior")
        self.feature_names_in_ = np.asarray([name for name in X.columns if name in reads], dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        with neutral_torch():
            values = self._encode(table) | {graph.outcome_column: torch.as_tensor(target).float()}
            return Units(values, torch.as_tensor(group), torch.as_tensor(weight, dtype=torch.float32))

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

    # -- predicting ---------------------------------------------------------------------------------------------------

    @property
    def reads_(self) -> list[str]:
        """The columns that predictions depend on: with latents from the prior not those of the redrawn nodes."""
        check_is_fitted(self, "sem_")
        replay: Replay = self.replay_
        return replay.columns_read(self.latents)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class without the unfair paths' effect, shape (m, 2), as in ``classes_``.

        A row's result depends on the row and on ``random_state`` alone, not on the other rows; rows with equal values
        in the columns that no unfair path touches have the same noise. ``latents``, ``average`` and ``samples`` are
        read here, and may be set after fitting.
        """
        parts = []
        for rows in self._chunks(X):
            _, _, score, u = self._replayed(rows, self.replay_, self.samples)
            drawn = score if self.average == "probability" else (u < score).to(score.dtype)
            parts.append(drawn.double().mean(0))
        positive = torch.cat(parts).numpy()
        both = np.column_stack([1.0 - positive, positive])
        return both if self.classes_[1] == self.unfair.graph.positive else both[:, ::-1].copy()

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of each row: the last class where its probability exceeds 1/2, shape (m,)."""
        last = self.predict_proba(X)[:, 1]
        return np.asarray(self.classes_[(last > 0.5).astype(int)])

    def fair_values(self, X: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
        """Return the redrawn columns as program values, shape (samples, m) each."""
        parts = [self._replayed(rows, self.replay_, self.samples)[1] for rows in self._chunks(X)]
        redrawn = self.unfair.graph.columns_of(self.replay_.redrawn)
        return {name: torch.cat([part[name] for part in parts], -1).double().numpy() for name in redrawn}

    def _chunks(self, X: Any) -> Iterator[pd.DataFrame]:
        self._check_settings()  # those of prediction may have been set since
        table = read_table(X, self.reads_, what="X")
        return (table.iloc[start : start + CHUNK] for start in range(0, len(table), CHUNK))

    def _replayed(
        self, table: pd.DataFrame, replay: Replay, draws: int, seed: int | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor, Tensor]:
        """Return the rows' own values (m,), redrawn values, P(Y = positive) and noise of decisions, (draws, m)."""
        column, key = self.unfair.graph.outcome_column, self.seed_ if seed is None else seed
        with neutral_torch(), torch.no_grad():
            values = self._encode(table)
            keys = replay.keys(values, len(table))
            fair = replay.fair_values(self.sem_, values, keys, latents=self.latents, draws=draws, seed=key)
            score = self.sem_.distribution(column, replay.as_read(column, self.sem_, values, fair)).probs
            u = keyed_uniform(keys, key, column, (draws,))
            return values, fair, score.expand(draws, len(table)), u

    # -- comparison with the truth, and ArviZ data --------------------------------------------------------------------

    def truth(self, scenario: Any, n: int = 100_000, random_state: int | None = None) -> PSCFTruth:
        """Compare predictions with those that the true structural equation model would make in the same way.

        Parameters
        ----------
        scenario
            The true model: a :class:`pyrofair.simulate.Scenario`, a :class:`pyrofair.SEM`, or a Pyro program of the
            number of units.
        n, random_state
            The number of units drawn from it, and the seed of the draw.
        """
        check_is_fitted(self, "sem_")
        self._check_settings()
        return measure_approximation(self, getattr(scenario, "program", scenario), n=n, random_state=random_state)

    def to_inference_data(self, X: pd.DataFrame, y: Any = None, *, draws: int = 100, random_state: int = 0) -> Any:
        """Return the posterior of given units' latent and counterfactual values as ArviZ data.

        Parameters
        ----------
        X, y
            The m units and, if known, their outcomes.
        draws, random_state
            The number of draws of each unit's latent variables, and their seed.

        Returns
        -------
        arviz.InferenceData (ArviZ 0.x) or xarray.DataTree (ArviZ 1.x)
            ``posterior``: the latent variables (from the prior with ``latents="prior"``) and the values that follow
            from them, ``fair_NAME`` for each redrawn column and ``fair_score``. ``posterior_predictive``: these
            columns and the outcome, replayed with each unit's own sensitive attribute on all edges, to be compared with
            ``observed_data``. ``sample_stats``: the loss of each epoch.

        Raises
        ------
        DataError
            If the table or a setting does not fit, or ``y`` holds a label that ``fit`` did not see.
        """
        check_is_fitted(self, "sem_")
        require_integer("draws", draws)
        require_seed(random_state)
        table = read_table(X, self.replay_.columns_read("posterior"), what="X")
        _, fair, score, _ = self._replayed(table, self.replay_, draws, random_state)
        own, again, chance, u = self._replayed(table, self.replay_.as_is(), draws, random_state)
        column, sites = self.unfair.graph.outcome_column, list(self.sem_.site.values())
        redrawn = self.unfair.graph.columns_of(self.replay_.redrawn)
        posterior = {site: fair[site] for site in sites} | {f"fair_{name}": fair[name] for name in redrawn}
        sampled: dict[str, dict[str, Any]] = {
            "posterior": posterior | {"fair_score": score},
            "posterior_predictive": {name: again[name] for name in redrawn} | {column: (u < chance).to(chance.dtype)},
            "sample_stats": {"loss": self.history_["loss"]},
        }
        observed: dict[str, Any] = {name: own[name] for name in redrawn}
        if y is not None:
            require_aligned(table, y)
            values = pd.Series(self._read_column(y))
            if len(unseen := values[~values.isin(self.classes_)]):
                known = " and ".join(map(repr, self.classes_.tolist()))
                raise DataError(f"y holds {unseen.tolist()[0]!r}, which is no label of the outcome: fit saw {known}.")
            observed[column] = np.asarray(values == self.unfair.graph.positive, dtype=np.float64)
        dims = {name: ["unit"] for name in (*sampled["posterior"], *sampled["posterior_predictive"])}
        return to_arviz(
            {group: {name: np.asarray(x)[None] for name, x in of.items()} for group, of in sampled.items()}
            | ({"observed_data": observed} if observed else {}),
            dims=dims | {site: ["unit", f"{site}_dim"] for site in sites},
        )
