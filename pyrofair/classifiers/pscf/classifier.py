"""PSCF: the classifier of path-specific counterfactual fairness (Chiappa, 2019), fitted by variational inference."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import pyro
import torch
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from pyrofair._arviz import to_arviz
from pyrofair._devices import on_device, require_wide_device
from pyrofair._random import fresh_state, isolated, keyed_uniform, neutral_torch, row_keys, seed_from
from pyrofair._validation import (
    Constraint,
    check_settings,
    optional,
    require_callable,
    require_choice,
    require_flag,
    require_integer,
    require_rate,
    require_real,
    require_seed,
)
from pyrofair.classifiers.binary import BinaryClassifier
from pyrofair.classifiers.pscf.diagnostics import describe_latents, latent_table
from pyrofair.classifiers.pscf.given import (
    Fit,
    Model,
    Task,
    fit_given,
    fit_program,
    read_model,
    require_model,
    require_used,
)
from pyrofair.classifiers.pscf.networks import (
    LatentSEM,
    encoders_of,
    latents_of,
    likelihood_of,
    narrow_families,
    read_networks,
)
from pyrofair.classifiers.pscf.replay import FittedProgram, Latents, Plan, Replayed, read_plan, replay
from pyrofair.classifiers.pscf.truth import PSCFTruth, measure_approximation
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph import UnfairPaths
from pyrofair.graph.paths import require_unfair
from pyrofair.inference.amortised import AmortisedGuide, Steps, check_convergence, evidence_bound
from pyrofair.inference.numbers import copied_state
from pyrofair.mechanisms.families import Categorical, Family, Integer, choose_family, encode
from pyrofair.mechanisms.fitting import moved
from pyrofair.mechanisms.learn import require_families, require_fitting
from pyrofair.programs.couplings import COUPLINGS, Coupling
from pyrofair.tables.labels import read_sensitive
from pyrofair.tables.reading import as_pandas, feature_columns, read_table, read_weight, require_aligned, warn_unused

__all__ = ["PSCF"]

CHUNK = 16_384
NETWORKS, PROGRAM = (1_500, 20, 100), (6_000, 20, 6_000)
"""About so many steps of training, in so many epochs at least and at most: more steps fit networks to noise."""
SMALLEST, LARGEST = 250, 1_000
"""A batch has a 30th of the rows, but so many at least and at most (an 8th of the rows if they are few)."""
MOST_LEVELS = 20
"""So many different integers are ordered categories, if each occurs in so many rows; others are numbers."""
FEWEST_EACH = 20
COMPONENTS = 5
"""So many normal distributions make up that of a number."""
PRECISION = 1.0
"""That of the normal prior of the networks' weights."""
FEWEST_DIFFERENT = 100
"""Decisions by draws that equal rows share take so many different rows, or a warning says that chance decides."""
SHOWN = 5
"""So many rows of each group try out a given model."""
SAMPLES = {"abducted": 100, "posterior": 100, "prior": 5}
Decisions = Literal["mean", "draw"]

CONSTRAINTS: dict[str, Constraint] = {
    "unfair": require_unfair,
    "model": require_model,
    "guide": optional(partial(require_callable, what="a guide: a function of the rows that draws their noise")),
    "latents": partial(require_choice, choices=("abducted", "posterior", "prior")),
    "coupling": partial(require_choice, choices=COUPLINGS),
    "decisions": optional(partial(require_choice, choices=("mean", "draw"))),
    "samples": optional(require_integer),
    "mmd": partial(require_real, least=0.0),
    "own_noise": optional(partial(require_real, above=0.0)),
    "hidden": require_integer,
    "epochs": optional(require_integer),
    "batch_size": optional(require_integer),
    "learning_rate": lambda name, value: require_rate(value, name),
    "device": require_wide_device,
    "progress": require_flag,
    "random_state": lambda name, value: require_seed(value, name),
}


class PSCF(BinaryClassifier, BaseEstimator):  # type: ignore[misc]
    """Path-specific counterfactual fairness by variational inference: the paper's main competitor.

    It learns a structural equation model in which the nodes on unfair paths have latent noise, and predicts from the
    counterfactual of each unit: its noise is inferred from its row, edges of unfair paths carry the baseline, and all
    others the unit's own value. A row that none of these edges changes, such as one with the baseline, gets what the
    learned distribution of the outcome says of it.

    *Assumes* that the learned model is the true one, and that a unit keeps its noise as ``coupling`` says. Data do not
    determine what a latent variable stands for (``docs/pscf.md``): :meth:`truth` reports the cost where
    the true model is known.

    Parameters
    ----------
    unfair
        The unfair paths, without recanting witness unless ``model`` is given.
    model
        The model instead of networks: a Pyro program of the number of units whose sites are the graph's nodes, whose
        outcome is drawn from a Bernoulli distribution; a :class:`pyrofair.SEM`, or learned mechanisms. Parameters that
        it draws outside its plate get a posterior (normal, held at its median), and those of ``pyro.param`` and of
        networks are fitted along; draws of a posterior are used as they are.
    guide
        For a program: a guide of the noise that rows do not determine, ``guide(rows)``, where ``rows`` holds the
        features of m units by site, (m,) each. It draws each such noise site inside a plate of m, and may read numbers
        by ``pyro.param`` or be a network. By default networks make a normal distribution of each.
    latents
        Where a unit's noise comes from. ``"abducted"``: latent variables are drawn from their posterior given the row,
        and the noise of each distribution given the row's value. ``"posterior"`` (Chiappa, 2018): the latent variables
        alone; all other noise is drawn anew. ``"prior"`` (the paper's eq. pscfpm): all noise is drawn anew.
    coupling
        How the noise of a distribution is inferred from a value, and used at another distribution: ``"gumbel"``, by
        Gumbel-max for categories without an order and by the quantile for all others, as in :class:`pyrofair.SEM`.
    decisions
        What :meth:`predict` thresholds: the outcome's probability at one ``"draw"`` of the unit's noise, which belongs
        to its row (by default with ``"abducted"``), or the ``"mean"`` over the samples (by default otherwise, as in the
        paper). The mean is sharp where a row determines its noise, as with the baseline, and smooth where it does not,
        so that a threshold on it has an unfair effect of its own, which one draw has not (docs/paper.md).
    samples
        The paper's J, the Monte-Carlo samples of each unit, each from another J-th of its noise distribution; by
        default 100, with latents from the prior the paper's 5.
    mmd
        The strength of a penalty, in nats a unit, on the maximum mean discrepancy between the two groups, summed over
        the latent variables. The paper searched 0 to 2.
    own_noise
        The spread of a number on an unfair path besides its latent variable, as a share of its standard deviation given
        its causes (for integers a quarter of a unit at least; a column with atoms keeps its own). By default (None) it
        is learned: that fits best, and the latent variable often says nothing of a row then.
    hidden
        The tanh units of the one hidden layer of each distribution's network.
    families
        The distribution of a column, by its name, instead of that of
        :func:`pyrofair.mechanisms.families.choose_family` with five components. Integers of at most 20 values, each in
        20 rows or more, are ordered categories, and other values of them are refused; other integers are numbers, of a
        range that is widened by its length on both sides (not below 0 where none is negative).
    epochs, batch_size
        The length of training, by default about 1,500 steps in 20 to 100 epochs, for more would fit networks to noise
        (of a given program about 6,000 steps), and the rows of a batch, by default a 30th of all, between 250 and 1,000
        (an 8th of fewer than 2,000).
    learning_rate
        The size of Adam's steps, which shrink to a hundredth after a third of the epochs.
    device
        The device of torch on which the networks are trained, such as ``"cuda:1"``; they predict on the CPU.
    progress, random_state
        Whether a fit of some seconds shows a bar; the seed of networks, batches, latent draws, and predictions.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels, sorted.
    plan_ : Plan
        Which nodes are redrawn, and which read the baseline.
    sem_, guide_ : LatentSEM, Encoders
        Without ``model``: the learned model, a Pyro program of the number of units, and the guide of its latent
        variables given rows.
    parameters_ : dict
        With ``model``: the value of each parameter that was fitted, those of ``pyro.param`` included.
    latents_ : DataFrame
        For each latent variable: the columns that read it; ``kl``, the mean divergence of its posterior from its prior
        in nats; ``auc``, how well the two groups can be told apart by it; ``explained``, the share of its column's
        variance given the causes that it explains.
    history_, elbo_ : DataFrame, float
        The loss of each epoch, and the evidence lower bound of the training rows at the end, in nats a unit. Where a
        given model's outcome reads unknown noise, the losses of the fit of its parameters come first, and then those of
        the guide; they and the bound are of the features alone, which the guide sees.
    feature_names_in_ : ndarray of str
        The columns on which predictions may depend.

    References
    ----------
    Chiappa (2018), sections 3 and 4; Chikahara et al. (2021), appendix G.2, "Unfair effects of PSCF"; Pearl (2009),
    theorem 7.1.7 (abduction); Oberst and Sontag (2019), Gumbel-max.

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"A": rng.integers(0, 2, 400), "Q": rng.normal(size=400)})
    >>> X["D"] = X["A"] + X["Q"] + rng.normal(size=400)
    >>> y = (X["D"] + X["A"] + X["Q"] > 1).astype(int)
    >>> graph = CausalGraph("{A Q} -> D; {A Q D} -> Y", sensitive="A", outcome="Y")
    >>> fair = PSCF(graph.unfair("A -> Y", "A -> D -> Y"), own_noise=0.3, epochs=100, batch_size=50, random_state=0)
    >>> bool(fair.fit(X, y).score(X, y) > 0.75)
    True
    >>> fair.latents_["latent"].tolist(), bool(fair.latents_["kl"].item() > 1.0)
    (['H_D'], True)
    """

    def __init__(
        self,
        unfair: UnfairPaths,
        *,
        model: Any = None,
        guide: AmortisedGuide | None = None,
        latents: Latents = "abducted",
        coupling: Coupling = "gumbel",
        decisions: Decisions | None = None,
        samples: int | None = None,
        mmd: float = 0.0,
        own_noise: float | None = None,
        hidden: int = 100,
        families: Mapping[str, Family] | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float = 0.01,
        device: str | torch.device = "cpu",
        progress: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.unfair = unfair
        self.model = model
        self.guide = guide
        self.latents = latents
        self.coupling = coupling
        self.decisions = decisions
        self.samples = samples
        self.mmd = mmd
        self.own_noise = own_noise
        self.hidden = hidden
        self.families = families
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.device = device
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
        PosteriorError
            If a given program cannot be fitted as written.

        Warns
        -----
        PyrofairWarning
            If the loss has not settled, or columns are outside the graph; if the fit was interrupted (Ctrl-C), in which
            case the networks of the last whole epoch are kept.
        """
        fitted = copy.copy(self)  # after an error below, self is unchanged
        self._check_settings()
        fitted.plan_ = read_plan(replace(self.unfair, graph=self.unfair.graph.coded()), given=self.model is not None)
        with neutral_torch():
            training = fitted._read_training(X, y, sample_weight)
            steps = self._steps(len(training.weight))
            with isolated(fitted.seed_), pyro.get_param_store().scope(copied_state(pyro.get_param_store().get_state())):
                found = (fitted._fit_networks if self.model is None else fitted._fit_given)(training, steps)
        fit, program = found
        fits = [] if fit is None else fit.losses
        losses = [loss for each in fits for loss in each]
        fitted.history_ = pd.DataFrame({"epoch": np.arange(len(losses)), "loss": losses})
        fitted.elbo_ = np.nan if fit is None else evidence_bound(fit.problem, seed=fitted.seed_)
        fitted.latents_ = latent_table(program, None if fit is None else fit.problem, fitted.seed_)
        fitted._read = ()
        self.__dict__ = fitted.__dict__
        for text in filter(None, (check_convergence(each, steps) for each in fits)):
            warnings.warn(text, PyrofairWarning, stacklevel=2)
        if text := describe_latents(self.latents_, training.codes):
            warnings.warn(text, PyrofairWarning, stacklevel=2)
        return self

    def _steps(self, n: int) -> Steps:
        """Return the length of training by n rows."""
        batch = self.batch_size or min(max(n // 30, min(n // 8, SMALLEST), 1), LARGEST)
        networks = self.model is None  # a program's parameters have priors of their own
        steps, fewest, most = NETWORKS if networks else PROGRAM
        epochs = self.epochs or min(max(steps * batch // n, fewest), most)
        return Steps(epochs, batch, self.learning_rate, PRECISION if networks else 0.0, self.progress)

    def _fit_networks(self, training: _Training, steps: Steps) -> tuple[Fit, FittedProgram]:
        """Make a program and a guide of networks, and fit them; return it as it was trained."""
        graph, weight = self.unfair.graph, training.weight
        families = self.families_ = self._read_families(training)
        reads = self.plan_.columns_read("posterior")
        self._set_columns(name for name in training.columns if name in reads)
        rows = self._encode(training.table) | {graph.outcome_column: torch.as_tensor(training.target).float()}
        latents = latents_of(graph, self.plan_.redrawn, [*families])
        own = narrow_families(families, rows, weight, graph, self._redrawn, self.own_noise)
        sem = self.sem_ = LatentSEM(graph, families, latents, drawn_from=own, hidden=self.hidden)
        guide = self.guide_ = encoders_of(sem)
        equations = sem.equations(self.plan_.unfair)
        likelihood = likelihood_of(sem, equations, rows)
        with on_device(self.device):
            model = Model(sem.to(self.device), guide.to(self.device), analytic=True)
            there = replace(likelihood, rows=moved(rows, self.device))
            task = Task(weight.to(self.device), training.group.to(self.device), steps, self.mmd, self.seed_)
            fit = fit_program(model, there, equations, task, learns=True)
        for module in (sem, guide):
            module.to("cpu")
        known = replace(fit.problem.likelihood, rows=rows)
        fit = replace(fit, problem=replace(fit.problem, likelihood=known, weight=weight, group=training.group))
        return fit, read_networks(sem, guide, self.plan_.unfair, wide=False)

    def _fit_given(self, training: _Training, steps: Steps) -> tuple[Fit | None, FittedProgram]:
        """Fit a given program's parameters, and a guide of its units' noise."""
        graph = self.unfair.graph
        model = read_model(self.model, self.guide, self.unfair)
        self.plan_ = read_plan(self.unfair, given=True)
        known = self.classes_ if self.classes_[1] == graph.positive else self.classes_[::-1]
        table = training.table.assign(**{graph.outcome_column: np.asarray(known)[training.target.astype(int)]})
        task = Task(training.weight, training.group, steps, self.mmd, self.seed_)
        self.given_, fit = fit_given(model, table, self.unfair, task)
        self.parameters_ = {} if fit is None else {k: np.asarray(v) for k, v in (fit.parameters | fit.numbers).items()}
        reads = {*self.given_.columns.values()}
        self._set_columns(name for name in training.columns if name in reads)
        self._read = self.given_.programs
        self._replayed(training.some_of_each(), self.plan_, 1)  # which refuses what cannot be predicted from
        return fit, self.given_.programs[0]

    def _set_columns(self, names: Iterable[str]) -> None:
        self.feature_names_in_ = np.asarray([*names], dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)

    def _check_settings(self) -> None:
        check_settings(self, CONSTRAINTS)
        require_used(self)
        if self.model is not None and self.latents != "abducted" and (found := self.unfair.recanting_witnesses()):
            raise DataError(
                f"latents={self.latents!r} draws the noise of {found[0][0]!r} anew, which is a recanting witness: "
                "along fair paths it keeps the unit's own value, and so its own noise. Take latents='abducted'."
            )
        graph = self.unfair.graph
        known = [column for column in feature_columns(graph) if column != graph.sensitive_column]
        require_families({} if self.families is None else self.families, known)

    def _read_training(self, X: Any, y: Any, sample_weight: object) -> _Training:
        graph, X = self.unfair.graph, as_pandas(X)
        labels = self._read_column(y)
        table = read_table(X, feature_columns(graph), what="X")
        require_aligned(X, y)
        warn_unused(X, graph)
        weight = read_weight(sample_weight, table, table="X")
        table, target, weight = self._keep_weighted(table, self._code(labels, graph.positive), weight)
        group = read_sensitive(table, graph)
        self.seed_ = int(fresh_state(self.random_state).randint(2**31 - 1))
        return _Training([*X.columns], table, target, group, weight)

    def _read_families(self, training: _Training) -> dict[str, Family]:
        graph, table = self.unfair.graph, training.table
        coded = {graph.sensitive_column: training.codes, graph.outcome_column: training.target}
        return {
            column: self._family(
                pd.Series(coded[column]) if column in coded else table[column], column, training.weights
            )
            for node in graph.order
            for column in graph.columns.get(node, [])
        }

    def _family(self, values: pd.Series[Any], column: str, weight: NDArray[np.float64]) -> Family:
        given, values = (self.families or {}).get(column), values.rename(column)
        if given is not None:
            require_fitting(given, values)
            return given
        found = choose_family(values, most_levels=MOST_LEVELS, components=COMPONENTS, weight=weight)
        numbers = isinstance(found, Categorical) and is_numeric_dtype(values.dtype) and len(found.levels) > 2
        if numbers and values.value_counts().min() < FEWEST_EACH:
            found = choose_family(values, most_levels=2, components=COMPONENTS, weight=weight)
        if isinstance(found, Integer) and found.levels is None:  # rows to come may lie outside the range of these
            span = found.high - found.low
            low = 0 if found.low >= 0 else found.low - span
            found = replace(found, low=low, high=found.high + span)
        return found

    def _encode(self, table: pd.DataFrame) -> dict[str, Tensor]:
        if self.model is not None:
            return self.given_.values(table)
        sensitive, families = self.unfair.graph.sensitive_column, self.families_
        values = {str(name): encode(families[name], table[name]) for name in table.columns if name != sensitive}
        for name in {*values} & {*self._redrawn}:
            family = families[name]
            if isinstance(family, Integer) and bool(
                (out := (values[name] < family.low) | (values[name] > family.high)).any()
            ):
                raise DataError(
                    f"The column {name!r} holds {values[name][out][0].item():g}, far outside the training rows: the "
                    f"noise behind a value is known from {family.low} to {family.high}. Correct the row, or fit with "
                    f"families={{{name!r}: Integer(...)}} of a wider range."
                )
        if sensitive in table.columns:
            values[sensitive] = torch.tensor(read_sensitive(table, self.unfair.graph, both=False)).float()
        return values

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_read"}

    def _fitted(self) -> tuple[FittedProgram, ...]:
        """Return the model, read once: one program, in double precision, or one for each draw of its parameters."""
        read: tuple[FittedProgram, ...] = getattr(self, "_read", ())
        if not read:
            networks = self.model is None
            read = (read_networks(self.sem_, self.guide_, self.plan_.unfair),) if networks else self.given_.programs
            self._read = read
        return read

    # -- predicting ---------------------------------------------------------------------------------------------------

    @property
    def reads_(self) -> list[str]:
        """The columns that predictions depend on: with latents from the prior not those of the redrawn nodes.

        A given model's depend on all columns that it has.
        """
        check_is_fitted(self, "plan_")
        plan: Plan = self.plan_
        return plan.columns_read(self.latents) if self.model is None else self.feature_names_in_.tolist()

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class without the unfair paths' effect, shape (m, 2), as in ``classes_``.

        A row's result depends on the row and on ``random_state`` alone, not on the other rows. ``latents``,
        ``coupling`` and ``samples`` are read here, and may be set after fitting.
        """
        positive = self._positive(X, self.draws_)
        both = np.column_stack([1.0 - positive, positive])
        return both if self.classes_[1] == self.unfair.graph.positive else both[:, ::-1].copy()

    def _positive(self, X: Any, draws: int, *, labelled: bool = False) -> NDArray[np.float64]:
        """Return P(Y = positive) of each row, averaged over draws, shape (m,)."""
        parts = []
        for rows in self._chunks(X):
            parts.append(self._replayed(rows, self.plan_, draws, labelled=labelled).score.double().mean(0))
        if draws == 1 and not labelled:
            self._warn_of_shared_draws(X)
        return torch.cat(parts).numpy() if parts else np.empty(0)

    def _warn_of_shared_draws(self, X: pd.DataFrame) -> None:
        """Warn where few rows differ, for the decisions by one draw that equal rows share are a matter of chance."""
        graph = self.unfair.graph
        redrawn = X[X[graph.sensitive_column] != graph.label(self.plan_.baseline)] if self._redrawn else X.iloc[:0]
        counts = redrawn.groupby(self.reads_, sort=False, dropna=False, observed=True).size().to_numpy(np.float64)
        different = counts.sum() ** 2 / max((counts**2).sum(), 1.0)
        if different < min(FEWEST_DIFFERENT, len(redrawn) / 2):
            warnings.warn(
                f"Equal rows share one draw, and the {len(redrawn)} rows to be redrawn are worth {different:.0f} "
                "different ones: the effect of decisions by this draw is a matter of chance. Average it over "
                "random_state; predict draws for each unit, named by its index.",
                PyrofairWarning,
                stacklevel=4,
            )

    @property
    def draws_(self) -> int:
        """The number of samples of each unit."""
        return self.samples or SAMPLES[self.latents]

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of each row: the last class where its probability exceeds 1/2, shape (m,).

        By ``decisions`` it is the probability at one draw of the unit's noise, or that of :meth:`predict_proba`. The
        draw is made of the row's values, its label in the index of X, and ``random_state``: units with equal rows have
        draws of their own, and a unit the same one among any other units.
        """
        draw = self.latents == "abducted" if self.decisions is None else self.decisions == "draw"
        positive = self._positive(X, 1, labelled=True) if draw else self._positive(X, self.draws_)
        yes = [label == self.unfair.graph.positive for label in self.classes_]
        return np.asarray(self.classes_[np.where(positive > 0.5, yes.index(True), yes.index(False))])

    def one_draw(self) -> Self:
        """Return this classifier with one sample of each row, whose probability decides, in ``predict`` too.

        An audit thresholds probabilities: audit this one for the effect of decisions, and the classifier itself for
        that of scores. As an audit takes a function of the row, equal rows share a draw here, other than in
        :meth:`predict`: with few different rows the effect is a matter of chance, and a warning says so.
        """
        check_is_fitted(self, "plan_")
        self._fitted()  # read once, for the copy too
        found = copy.copy(self)
        found.samples, found.decisions = 1, "mean"
        return found

    def fair_values(self, X: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
        """Return the redrawn columns as program values, shape (samples, m) each."""
        parts = [self._replayed(rows, self.plan_, self.draws_).fair for rows in self._chunks(X)]
        return {name: torch.cat([part[name] for part in parts], -1).double().numpy() for name in self._redrawn}

    @property
    def _redrawn(self) -> list[str]:
        return self.unfair.graph.columns_of(self.plan_.redrawn)

    def _chunks(self, X: Any) -> Iterator[pd.DataFrame]:
        self._check_settings()  # those of prediction may have been set since
        table = read_table(X, self.reads_, what="X", fitted=True)
        return (table.iloc[start : start + CHUNK] for start in range(0, len(table), CHUNK))

    def _replayed(
        self,
        table: pd.DataFrame,
        plan: Plan,
        draws: int,
        *,
        latents: Latents | None = None,
        seed: int | None = None,
        labelled: bool = False,
        every: bool = False,
    ) -> Replayed:
        """Return redrawn values, latent variables, and P(Y = positive), (draws, m, ...)."""
        mode = self.latents if latents is None else latents
        programs = self._fitted()
        programs = programs[:: -(-len(programs) // draws)]
        shares = [len(part) for part in np.array_split(np.arange(draws), len(programs))]
        with isolated(0):
            values = self._encode(table)
            parts = [
                replay(
                    program,
                    plan,
                    values,
                    table.index,
                    latents=mode,
                    draws=share,
                    seed=(self.seed_ if seed is None else seed) + i,
                    coupling=self.coupling,
                    labelled=labelled,
                    every=every,
                )
                for i, (program, share) in enumerate(zip(programs, shares, strict=True))
            ]
        return Replayed.joined(parts)

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
        check_is_fitted(self, "plan_")
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
            columns and the outcome, drawn anew given the latent variables with each unit's own sensitive attribute on
            all edges, to be compared with ``observed_data``. ``sample_stats``: the loss of each epoch.

        Raises
        ------
        DataError
            If the table or a setting does not fit, or ``y`` holds a label that ``fit`` did not see.
        """
        check_is_fitted(self, "plan_")
        require_integer("draws", draws)
        seed = seed_from(random_state)
        table = read_table(X, self.feature_names_in_.tolist(), what="X", fitted=True)
        fair = self._replayed(table, self.plan_, draws, seed=seed, every=True)
        anew: Latents = "prior" if self.latents == "prior" else "posterior"
        again = self._replayed(table, self.plan_.own(), draws, latents=anew, seed=seed)
        column = self.unfair.graph.outcome_column
        with isolated(0):
            u = keyed_uniform(row_keys([*self._encode(table).values()], len(table)), seed, "decision", (draws,))
        posterior = {**fair.latents} | {f"fair_{name}": fair.fair[name] for name in self._redrawn}
        sampled: dict[str, dict[str, Any]] = {
            "posterior": posterior | {"fair_score": fair.score},
            "posterior_predictive": {name: again.fair[name] for name in self._redrawn}
            | {column: (u < again.score).to(again.score.dtype)},
            "sample_stats": {"loss": self.history_["loss"]},
        }
        own = self._encode(table)
        observed: dict[str, Any] = {name: own[name] for name in self._redrawn}
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
            dims=dims | {site: ["unit", f"{site}_dim"] for site, each in fair.latents.items() if each.ndim == 3},
        )


@dataclass(frozen=True, eq=False)
class _Training:
    """The rows to fit, with positive weight: the columns given, the table read, outcomes and groups as 0 and 1."""

    columns: list[str]
    table: pd.DataFrame
    target: NDArray[np.int8]
    codes: NDArray[Any]
    weights: NDArray[np.float64]

    def some_of_each(self) -> pd.DataFrame:
        """Return a few rows of each group."""
        return self.table.iloc[np.concatenate([(self.codes == group).nonzero()[0][:SHOWN] for group in (0, 1)])]

    @property
    def group(self) -> Tensor:
        """The groups, shape (n,)."""
        return torch.as_tensor(self.codes)

    @property
    def weight(self) -> Tensor:
        """The weights, shape (n,)."""
        return torch.as_tensor(self.weights, dtype=torch.float32)
