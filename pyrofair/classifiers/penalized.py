"""A classifier trained with a penalty on unfair effects, by two potential outcomes of each row; and *Remove*."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data
from torch import Tensor, nn

from pyrofair._devices import require_device, seeded
from pyrofair._random import fresh_state, neutral_torch
from pyrofair._validation import (
    Constraint,
    check_settings,
    optional,
    require_choice,
    require_flag,
    require_instance,
    require_integer,
    require_names,
    require_rate,
    require_real,
    require_seed,
    require_unmasked,
    shown,
)
from pyrofair.classifiers.batches import Ends, Problem, hold_out, stack_worlds
from pyrofair.classifiers.binary import BinaryClassifier
from pyrofair.classifiers.training import (
    Fit,
    Optimizer,
    Penalty,
    Schedule,
    choose_starts,
    logits_in_parts,
    make_module,
    make_optimizer,
    to_tensor,
    train,
)
from pyrofair.effects import (
    Bounding,
    CounterfactualSample,
    MarginalBounds,
    PotentialOutcomes,
    Scored,
    SeveralContrasts,
    compare_groups,
    disagreement,
    effect_gap,
    interval_disagreement,
    piu_upper,
)
from pyrofair.effects.group_agreement import compare_scored, disagreeing
from pyrofair.effects.row_functions import require_row_function
from pyrofair.exceptions import DataError, GraphError, PositivityWarning, PyrofairWarning
from pyrofair.graph import CausalGraph, UnfairPaths
from pyrofair.graph.paths import require_unfair
from pyrofair.tables import TableEncoder
from pyrofair.tables.labels import read_sensitive
from pyrofair.tables.reading import (
    as_pandas,
    feature_columns,
    read_again,
    read_table,
    read_weight,
    require_aligned,
    warn_unused,
)
from pyrofair.tables.recorded import Missing

__all__ = ["PenalizedClassifier", "remove"]


def _require_source(name: str, value: Any) -> None:
    if isinstance(value, SeveralContrasts):
        return  # it reads its settings when it reads the levels of a table
    if not (isinstance(value, PotentialOutcomes | Bounding) and hasattr(value.unfair, "graph")):
        audits = " It makes no rows of either world: it judges classifiers, in audits." * hasattr(value, "influence")
        raise DataError(f"{name}={shown(value)} is no source of potential outcomes; IPW(graph.unfair(...)) is.{audits}")
    require_unfair(f"{name}.unfair", value.unfair)


def _require_columns(name: str, value: object) -> None:
    if not require_names(name, value, "column names"):
        raise DataError(f"{name}=[] names no column. Name at least one, or leave it out: {name}=None.")


def _require_encoder(name: str, value: object) -> None:
    if not all(hasattr(value, each) for each in ("fit", "transform")):
        raise DataError(f"{name}={shown(value)} must be a transformer with fit and transform, or None.")


PENALTIES: dict[str, Any] = {
    each.__name__: each for each in (disagreement, effect_gap, piu_upper, interval_disagreement)
}

CONSTRAINTS: dict[str, Constraint] = {
    "model": partial(require_choice, choices=("network", "logistic"), callables="a torch module"),
    "source": optional(_require_source),
    "penalty": partial(require_choice, choices=tuple(PENALTIES), callables="a function of two scored worlds"),
    "strength": optional(partial(require_real, least=0.0)),
    "columns": optional(_require_columns),
    "encoder": optional(_require_encoder),
    "missing": partial(require_choice, choices=get_args(Missing)),
    "starts": require_integer,
    "epochs": optional(require_integer),
    "batch_size": require_integer,
    "optimizer": partial(require_choice, choices=("adam", "sgd"), callables="a function that makes one"),
    "learning_rate": optional(lambda name, value: require_rate(value, name)),
    "validation_fraction": optional(partial(require_real, above=0.0, below=1.0, such_as=0.1)),
    "patience": optional(require_integer),
    "dtype": partial(require_choice, choices=("float64", "float32")),
    "device": require_device,
    "progress": require_flag,
    "random_state": lambda name, value: require_seed(value, name),
}


class PenalizedClassifier(BinaryClassifier, BaseEstimator):  # type: ignore[misc]
    """A binary classifier that minimises cross-entropy plus ``strength`` times an unfairness penalty.

    With ``source=None`` it is a plain scikit-learn classifier (the paper's *Unconstrained*); with ``effect_gap`` as
    penalty it is *FIO*'s constraint; with ``columns=remove(...)`` it is *Remove*; with ``disagreement`` it is the
    paper's *Proposed*.

    Parameters
    ----------
    model
        ``"network"`` (the paper's: 100 and 50 sigmoid units), ``"logistic"``, a :class:`torch.nn.Module` (copied, its
        weights being the start), or a function that makes one from the number of encoded features. It returns for each
        row the log-odds of the last of ``classes_``, or two logits.
    source
        A source of potential outcomes, cloned and fitted inside ``fit`` on the same rows; or :class:`Contrasts` of one,
        for a sensitive attribute of several levels, of which the worst contrast with the baseline is penalised; or
        :class:`MilesBounds`, where the marginals are only bounded.
    penalty
        A function of two scored worlds: ``disagreement``, ``effect_gap``, ``piu_upper``, or your own; of bounds on both
        marginals ``interval_disagreement``. The functions of the package may be given by their names.
    strength
        The paper's lambda, not negative: by default 1 with a source. At 0 the result equals that of ``source=None``.
    columns
        The columns to read; by default the graph's observed parents of the outcome, or all without a source.
    encoder
        A transformer that turns the table into a matrix; by default :class:`TableEncoder`.
    missing
        What becomes of missing values: ``"refuse"``, or ``"recorded"``: "not recorded" is a value that the classifier
        reads, of categories a level, of numbers their mean beside a flag. The source is then fitted with this setting
        too. New rows may lack values of the columns that some fitted rows lack.
    starts
        With a penalty: the number of initial weights tried for about 100 steps, of which those with the least objective
        are trained on, because initial weights alone can decide whether both potential outcomes tend to 0 or to 1. A
        penalty weaker than 2 is tried from a stronger one, too. A module of your own has one start.
    epochs, batch_size
        The length of training (by default about 1,000 steps, in 20 to 200 epochs) and the rows of a batch.
    optimizer
        ``"adam"``, ``"sgd"`` (momentum 0.9, the paper's), or a function that makes a torch optimizer from parameters.
    learning_rate
        By default 0.01 for Adam and 0.1 for SGD.
    validation_fraction
        The share of rows held out to judge each epoch; the best epoch is kept.
    patience
        Stop after so many epochs without gain on the held-out rows.
    dtype, device
        The type and the device of all tensors; ``"float32"`` is about 1.7 times faster.
    progress, random_state
        Whether a fit of some seconds shows a bar; the seed of weights, batches, split and source.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels, sorted; ``predict_proba`` has a column for each.
    positive_ : label
        The label that counts as 1: the graph's, or the last class.
    module_, source_ : torch.nn.Module, PotentialOutcomes or None
        The trained module and the fitted source.
    history_ : DataFrame
        Loss, penalty and validation objective by epoch.

    See Also
    --------
    penalty_path : A range of strengths, and help in the choice of one.
    disagreement, effect_gap, piu_upper : The penalties.
    audit : Measures what a penalty has changed.

    References
    ----------
    Chikahara et al. (2021), eq. (1), eq. (10), section 5 and appendix G.1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"A": rng.integers(0, 2, 200), "M": rng.normal(size=200)})
    >>> y = (X["A"] + X["M"] > 0.5).astype(int)
    >>> PenalizedClassifier("logistic", random_state=0).fit(X, y).score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        model: Literal["network", "logistic"] | nn.Module | Callable[[int], nn.Module] = "network",
        *,
        source: PotentialOutcomes | SeveralContrasts | None = None,
        penalty: Penalty | Literal["disagreement", "effect_gap", "piu_upper", "interval_disagreement"] = disagreement,
        strength: float | None = None,
        columns: Sequence[str] | None = None,
        encoder: TransformerMixin | None = None,
        missing: Missing = "refuse",
        starts: int = 4,
        epochs: int | None = None,
        batch_size: int = 1000,
        optimizer: Literal["adam", "sgd"] | Optimizer = "adam",
        learning_rate: float | None = None,
        validation_fraction: float | None = None,
        patience: int | None = None,
        dtype: Literal["float64", "float32"] = "float64",
        device: str = "cpu",
        progress: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.model = model
        self.source = source
        self.penalty = penalty
        self.strength = strength
        self.columns = columns
        self.encoder = encoder
        self.missing = missing
        self.starts = starts
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.dtype = dtype
        self.device = device
        self.progress = progress
        self.random_state = random_state

    # -- fitting ------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: object = None) -> Self:
        """Fit the source, the encoder and the module.

        Parameters
        ----------
        X
            A table of n rows. With a source: a DataFrame with the graph's columns, the sensitive attribute among them.
        y
            The outcome, shape (n,). With a source, its positive value is the graph's.
        sample_weight
            Weights of shape (n,); they enter the loss, the encoder, the source and the penalty.

        Raises
        ------
        DataError
            If the table, the outcome or a setting is unfit; nothing has been fitted then.
        NotIdentifiedError, PositivityError
            If the source cannot estimate the two worlds.
        """
        fitted = copy.copy(self)  # after an error below, self is unchanged
        with neutral_torch():
            problem = fitted.prepare(X, y, sample_weight)
            starts = [fitted.fit_of(module, problem) for module in fitted.first_modules(problem)]
            chosen = choose_starts([starts])[0] if len(starts) > 1 else starts[0].module
            if isinstance(chosen, Exception):
                raise chosen
            own = fitted.fit_of(chosen, problem)
            train(own.module, problem, own.penalty, own.strength, own.schedule)
            warning = fitted.finish(own)
        self.__dict__ = fitted.__dict__
        if warning:
            warnings.warn(warning, stacklevel=2)
        return self

    def finish(self, fit: Fit) -> PyrofairWarning | None:
        """Take a trained module; return a warning if the groups disagree about it, or bounds hardly move with it."""
        self.module_, self.history_ = fit.module, pd.DataFrame(fit.schedule.history)
        if self.source_ is None:
            return None
        found, flat = [], []
        for level, source in self._sources().items():
            where = "" if level is None else f"in the contrast {level!r}, "
            if isinstance(source, Bounding):
                text = source.flatness(self._positive_scores)
                flat += [f"{where}{text[0].lower()}{text[1:]}" if where else text] if text else []
                continue
            found += [
                f"{where}{row.quantity} is {row.group_0:.3f} from group 0 and {row.group_1:.3f} from group 1"
                for row in disagreeing(self._compare_groups(source)).itertuples()
            ]
        if not found:
            return PyrofairWarning(" ".join(flat)) if flat else None
        gaps = "; ".join(found)
        return PositivityWarning(
            f"The two observed groups, weighted alone, disagree significantly (one test at 95 %): {gaps}. A propensity "
            "is misspecified or overlap is poor, and what was penalised may not be the unfair effect. See "
            "source_.overlap(), and compare propensity='boosted'."
        )

    def _sources(self) -> Mapping[Any, Any]:
        """Return the fitted source of each pair of worlds, by its name if there are several."""
        return self.source_.by_contrast() if isinstance(self.source_, SeveralContrasts) else {None: self.source_}

    def _compare_groups(self, source: Any) -> pd.DataFrame:
        """Compare the groups; only of a module of the user's may it be asked whether it reads one row at a time."""
        if isinstance(self.model, str):
            return compare_scored(source, lambda tables: list(map(self._positive_scores, tables)))
        return compare_groups(source, self._positive_scores)

    def _positive_scores(self, table: pd.DataFrame) -> NDArray[np.float64]:
        scores = self.predict_proba(table)[:, int(self.classes_[1] == self.positive_)]
        return np.asarray(scores, dtype=np.float64)

    def prepare(self, X: Any, y: Any, sample_weight: object = None) -> Problem:
        """Validate, fit the encoder and the source, and return what is to be trained on.

        Fitting is :meth:`prepare` followed by training; a path of strengths prepares once.
        """
        self._check_settings()
        table, target = self._read_training(X, y)
        named = isinstance(as_pandas(X), pd.DataFrame)
        weight = read_weight(sample_weight, table if named else len(table), table="X")
        table, target, weight = self._keep_weighted(table, target, weight)
        random = fresh_state(self.random_state)
        self.seed_ = int(random.randint(2**31 - 1))
        training, held_out = hold_out(target, self.validation_fraction, random)
        encoder = TableEncoder(missing=self.missing) if self.encoder is None else _seeded_clone(self.encoder, random)
        weighted = has_fit_parameter(encoder, "sample_weight") and not (weight[training] == 1).all()
        more = {"sample_weight": weight[training]} if weighted else {}
        self.encoder_ = encoder.fit(table.iloc[training][self.reads_], **more)
        self.source_ = None
        if self._strength > 0:
            self.source_ = _seeded_clone(self.source, random)
            if self.missing == "recorded":
                self.source_.set_params(**dict.fromkeys(_settings_of_missing(self.source_), self.missing))
            self._check_encoder(table.iloc[training], self.source_.unfair.graph)
            with read_again(table, self.source_.unfair.graph):
                self.source_.fit(table.iloc[training], sample_weight=weight[training])
        validation = self._problem(table, target, weight, held_out, None) if len(held_out) else None
        return self._problem(table, target, weight, training, validation)

    def _problem(
        self,
        table: pd.DataFrame,
        target: NDArray[np.int8],
        weight: NDArray[np.float64],
        rows: NDArray[np.int64],
        validation: Problem | None,
    ) -> Problem:
        part = table.iloc[rows]
        encoded = self._encode(part)
        worlds = stratum = combine = ends = None
        if self.source_ is not None:
            asked: dict[str, Any] = {"df": part, "sample_weight": weight[rows]}
            if isinstance(self.source_, SeveralContrasts):
                pairs = self.source_.pairs(**asked, random_state=self.seed_)
                codes: NDArray[Any] = self.source_.strata(part)
                combine = self.source_.combine
            else:
                bounded = isinstance(self.source_, Bounding)
                made = self.source_.samples if bounded else partial(self.source_.worlds, random_state=self.seed_)
                pairs = {None: made(**asked)}
                codes = read_sensitive(part, self.source_.unfair.graph, both=False)
            sources = self._sources()
            bounds = tuple(_ends_of(sources[name], pair, self.device) for name, pair in pairs.items())
            ends = bounds if any(bounds) else None  # training is faster where no pair has any
            samples = [
                each if bound is None else replace(each, unit=None)  # a batch takes rows of every unit
                for pair, bound in zip(pairs.values(), bounds, strict=True)
                for each in pair
            ]
            encoded, worlds = stack_worlds(encoded, samples, self._encode)
            stratum = torch.as_tensor(codes, device=self.device)
        outcome, own = (to_tensor(each[rows], self.dtype, self.device) for each in (target, weight))
        sign = 1 if self.classes_[1] == self.positive_ else -1
        return Problem(encoded, outcome, own, worlds, stratum, sign, validation, combine, ends)

    def schedule(self) -> Schedule:
        """Return the settings of training."""
        optimizer = make_optimizer(self.optimizer, self.learning_rate)
        return Schedule(self.epochs, self.batch_size, optimizer, self.patience, self.seed_, self.progress)

    def first_modules(self, problem: Problem) -> list[nn.Module]:
        """Return the modules among which to choose the one to start from, nearest to the least objective."""
        several = not isinstance(self.model, nn.Module) and problem.worlds is not None and self._strength > 0
        return [self.new_module(problem, start) for start in range(self.starts if several else 1)]

    def fit_of(self, module: nn.Module, problem: Problem) -> Fit:
        """Return the training of a module on a problem, by the settings of this classifier."""
        return Fit(module, problem, self._penalty, self._strength, self.schedule())

    def new_module(self, problem: Problem, start: int = 0) -> nn.Module:
        """Return an untrained module, another one for each start; the global random state stays as it was."""
        with seeded(self.seed_ + start, torch.device(self.device)):
            module = make_module(self.model, problem.rows.shape[1])
        return module.to(dtype=getattr(torch, self.dtype), device=self.device)

    def _check_encoder(self, table: pd.DataFrame, graph: CausalGraph) -> None:
        """Refuse an encoder of the user's that reads the batch: rows of worlds are encoded apart from observed ones."""
        if self.encoder is None:
            return
        sizes = self._encode(table).abs().amax(0).clamp(min=1.0)

        def ask(rows: pd.DataFrame) -> NDArray[np.float64]:
            columns = (self._encode(rows) / sizes).double().cpu().numpy()
            return np.asarray(columns @ np.linspace(1.0, 2.0, columns.shape[1]))

        require_row_function(f"encoder={shown(self.encoder)}", ask, table, ask(table), graph)

    def _encode(self, table: pd.DataFrame) -> Tensor:
        matrix = self.encoder_.transform(table[self.reads_])
        found = to_tensor(matrix.toarray() if hasattr(matrix, "toarray") else matrix, self.dtype, self.device)
        if self.missing == "recorded" and bool(found.isnan().any()):
            raise DataError(f"encoder={shown(self.encoder)} leaves missing values; impute in it, or leave it out.")
        return found

    # -- reading tables -----------------------------------------------------------------------------------------------

    @property
    def _graph(self) -> CausalGraph | None:
        return None if self.source is None else self.source.unfair.graph

    @property
    def _penalty(self) -> Penalty:
        return PENALTIES[self.penalty] if isinstance(self.penalty, str) else self.penalty

    @property
    def _strength(self) -> float:
        if self.source is None:
            return 0.0
        return 1.0 if self.strength is None else self.strength

    def _check_settings(self) -> None:
        check_settings(self, CONSTRAINTS)
        require_device("device", self.device, self.dtype)
        if self.source is None and (self.strength or (self.strength is None and self.penalty is not disagreement)):
            named = "penalty" if self.strength is None else f"strength={self.strength!r}"
            raise DataError(
                f"{named} is set and source is None, so nothing would be penalised. Pass source=IPW(unfair), or "
                "another source of the unfair paths; or leave strength and penalty out for a plain classifier."
            )
        if self.learning_rate is not None and callable(self.optimizer):
            raise DataError(
                f"learning_rate={self.learning_rate!r} is not used with an optimizer of your own; set it in there."
            )
        several = getattr(self.source, "sources", None) if isinstance(self.source, SeveralContrasts) else None
        for source in several.values() if isinstance(several, Mapping) else [self.source]:
            if isinstance(source, Bounding) and self._penalty is not interval_disagreement:
                named = getattr(self._penalty, "__name__", shown(self.penalty))
                raise DataError(
                    f"penalty={named} is a function of two marginals, and source={type(source).__name__}(...) has "
                    "bounds on them: use penalty=interval_disagreement."
                )
        if self.missing == "recorded" and self.source is not None and not _settings_of_missing(self.source):
            raise DataError(
                f"missing='recorded' takes rows with missing values, and source={type(self.source).__name__}(...) has "
                "no such setting: it reads complete rows. Take IPW or GComputation, or impute the values before."
            )
        if self.patience is not None and self.validation_fraction is None:
            raise DataError("patience needs held-out rows: set validation_fraction, for example to 0.1.")

    def _read_training(self, X: Any, y: Any) -> tuple[pd.DataFrame, NDArray[np.int8]]:
        graph = self._graph
        X, plain = as_pandas(X), graph is None and self.columns is None
        if isinstance(X, pd.DataFrame) and y is not None:
            require_aligned(X, y)
        table = self._read_plain(X, reset=True) if plain else self._read_named(X, graph)
        target = self._read_target(y, graph)
        require_aligned(table, target)
        return table, target

    def _read_named(self, X: Any, graph: CausalGraph | None) -> pd.DataFrame:
        """Read a table by names: the columns of the graph, or those given."""
        allowed = graph.input_columns if graph else None
        reads = list(allowed or ()) if self.columns is None else list(self.columns)
        if outside := [name for name in reads if allowed is not None and name not in allowed]:
            raise DataError(
                f"columns names {', '.join(map(repr, outside))}, which is no observed parent of the outcome in the "
                f"graph; a classifier may read {', '.join(allowed or ())}."
            )
        names = dict.fromkeys([*reads, *(feature_columns(graph) if graph else [])])
        table = read_table(X, list(names), what="X", missing=self.missing)
        if graph is not None:
            if isinstance(self.source, SeveralContrasts):
                self.source.levels(table)
            else:
                read_sensitive(table, graph)
            warn_unused(X, graph)
        self.reads_ = [name for name in X.columns if name in reads]
        self.feature_names_in_ = np.asarray(self.reads_, dtype=object)
        self.n_features_in_ = len(self.reads_)
        return table

    def _read_plain(self, X: Any, *, reset: bool) -> pd.DataFrame:
        """Read a table or an array as scikit-learn does: by position, names checked where both sides have them."""
        if isinstance(X, pd.DataFrame):
            table = read_table(X, list(X.columns), what="X", fitted=not reset, missing=self.missing)
            validate_data(self, X, reset=reset, skip_check_array=True)
        else:
            require_unmasked("X", X)
            finite = "allow-nan" if self.missing == "recorded" else True
            matrix = validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite=finite)
            table = pd.DataFrame(matrix, columns=[f"x{i}" for i in range(matrix.shape[1])])
        if reset:
            self.reads_ = list(table.columns)
        return table.set_axis(self.reads_, axis=1)

    def _read_target(self, y: Any, graph: CausalGraph | None) -> NDArray[np.int8]:
        """Learn the labels, and return for each row whether it has the last one."""
        values = self._read_column(y)
        if graph is None:
            if values.dtype.kind == "f":
                assert_all_finite(values, input_name="y")
            check_classification_targets(values)
            found = type_of_target(values, input_name="y", raise_unknown=True)
            if found != "binary":
                raise DataError(f"Only binary classification is supported. The type of the target is {found}.")
        positive = np.unique(values)[-1] if graph is None else graph.positive
        coded = self._code(values, positive)
        self.positive_ = positive
        return coded if self.classes_[1] == positive else 1 - coded

    # -- predicting ---------------------------------------------------------------------------------------------------

    def _read_new(self, X: Any) -> pd.DataFrame:
        check_is_fitted(self, "module_")
        X = as_pandas(X)
        if self._graph is None and self.columns is None:
            return self._read_plain(X, reset=False)
        return read_table(X, self.reads_, what="X", fitted=True, missing=self.missing)

    def decision_function(self, X: Any) -> NDArray[np.floating[Any]]:
        """Return the log-odds of the last class, shape (m,)."""
        with neutral_torch(), torch.no_grad():
            rows = self._encode(self._read_new(X))
            logits = logits_in_parts(self.module_, rows)
            return np.asarray(logits.cpu().numpy())

    def predict_proba(self, X: Any) -> NDArray[np.floating[Any]]:
        """Return the probability of each class, shape (m, 2), in the order of ``classes_``."""
        logits = self.decision_function(X)
        with neutral_torch():
            last = torch.sigmoid(torch.as_tensor(logits)).numpy()
        return np.column_stack([1.0 - last, last])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likelier label of each row, shape (m,)."""
        likelier = (self.decision_function(X) > 0).astype(int)
        return np.asarray(self.classes_[likelier])


def _ends_of(source: Any, samples: Sequence[CounterfactualSample], device: str) -> Ends | None:
    """Return what makes bounds of the scores of two samples' rows with weight, if the source bounds the marginals.

    It gives these rows their units.
    """
    if not isinstance(source, Bounding):
        return None
    units = [None if each.unit is None else torch.tensor(each.unit[each.weight > 0], device=device) for each in samples]

    def ends(*scored: Scored) -> tuple[Scored | MarginalBounds, Scored | MarginalBounds]:
        return source.ends(*(replace(each, unit=unit) for each, unit in zip(scored, units, strict=True)))

    return ends


def _seeded_clone(estimator: Any, random: np.random.RandomState) -> Any:
    """Return an unfitted copy in which each ``random_state`` that was left open is a seed."""
    copied = clone(estimator, safe=False)
    if hasattr(copied, "get_params"):
        settings = sorted(copied.get_params().items())
        names = [name for name, value in settings if name.split("__")[-1] == "random_state" and value is None]
        copied.set_params(**{name: int(random.randint(2**31 - 1)) for name in names})
    return copied


def _settings_of_missing(source: Any) -> list[str]:
    """Return the settings of a source, or of the one that it fits several of, that say what missing values become."""
    known = source.get_params() if hasattr(source, "get_params") else {}
    return [name for name in ("missing", "source__missing") if name in known]


def remove(graph: CausalGraph | UnfairPaths, nodes: Literal["touched", "descendants"]) -> list[str]:
    """Return the columns that the *Remove* baseline keeps, out of those that a classifier may read.

    Parameters
    ----------
    graph
        The unfair paths; for ``"descendants"`` the graph is enough.
    nodes
        ``"touched"`` removes the nodes that unfair paths touch, ``"descendants"`` the sensitive attribute and every
        descendant of it. The paper describes the first and argues from the second.

    Raises
    ------
    GraphError
        If ``nodes`` is unknown or needs unfair paths, or nothing is left.

    References
    ----------
    Chikahara et al. (2021), section 5 and appendix A.3; Kusner et al. (2017), section S4.

    Examples
    --------
    >>> graph = CausalGraph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
    >>> remove(graph.unfair("A -> Y", "A -> D -> Y"), "touched")
    ['Q', 'M']
    >>> remove(graph, "descendants")
    ['Q']
    """
    require_choice("nodes", nodes, ("touched", "descendants"), error=GraphError)
    expected = "a CausalGraph, or unfair paths, made by graph.unfair(...)"
    require_instance("graph", graph, (CausalGraph, UnfairPaths), expected, error=GraphError)
    whole = graph.graph if isinstance(graph, UnfairPaths) else graph
    if nodes == "descendants":
        gone = {whole.sensitive, *whole.descendants(whole.sensitive)}
    else:
        if not isinstance(graph, UnfairPaths):
            raise GraphError("remove(..., 'touched') needs the unfair paths: remove(graph.unfair(...), 'touched').")
        gone = set(graph.touched)
    left = whole.columns_of(node for node in whole.inputs if node not in gone)
    if not left:
        raise GraphError(f"Nothing is left to predict from: {', '.join(whole.inputs)} are all removed.")
    return left
