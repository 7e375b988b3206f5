"""Means given columns of a table, one class for each learner: P(A = 1 | columns), or the mean of scores.

A learner knows its columns. ``design`` reads rows, once for all fits; ``fit`` returns a fitted copy, which predicts
when it is called; ``refit`` returns the copy that other weights of the same rows make, warm where that is possible.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.optimize import nnls
from scipy.special import expit
from sklearn.base import ClassifierMixin, RegressorMixin, clone, is_regressor
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from pyrofair.effects.scoring import read_classes, read_probabilities
from pyrofair.exceptions import DataError, PositivityError
from pyrofair.nuisances.columns import Bins, Cells, Design, number_cells, take
from pyrofair.nuisances.folds import hold_out, split_folds
from pyrofair.nuisances.leaves import LeafMeans, find_leaves, move_leaves, step_leaves, sum_leaves, value_leaves
from pyrofair.nuisances.newton import COLLINEAR, WIDE, fixed_columns, information, linear_design, newton_logistic
from pyrofair.tables.encoder import TableEncoder
from pyrofair.tables.labels import as_levels

__all__ = [
    "Boosted",
    "Estimator",
    "Learner",
    "LearnerName",
    "Logistic",
    "Saturated",
    "Stacked",
    "Target",
    "fit_weighted",
    "make_learner",
    "require_learner",
    "smaller_group",
]

Array = NDArray[np.float64]
Groups = NDArray[Any] | None
Near = tuple[NDArray[np.int64], NDArray[np.int64]] | None
LearnerName = Literal["boosted", "logistic", "saturated", "stacked"]
Target = Literal["propensity", "regression"]
"""What is learned: the probability of label 1, of labels (m, 1) in 0 and 1, or the means of scores (m, Q)."""

STACK_FOLDS = 3
"""The folds in which the members of a stack are compared."""
FEWEST_TREES, MOST_TREES = 30, 200
"""Boosted regressions have at least and at most so many trees."""
LEAST_LEAF, MOST_LEAF, PARTS = 5, 20, 8
"""The rows of a leaf of boosted regressions: an eighth of what they learn from, within these limits."""
REGROWN = 5_000
"""Of so many rows the trees of one response serve others."""
MANY = 20_000
"""Boosted propensities of so many rows have larger trees."""
SMOOTHED = 10_000
"""From so many rows on, boosted trees vary little enough themselves."""
SMOOTH_TREES, LEAST_IN_LEAF = 30, 5.0
"""A smooth fit has so many trees, with at least so many rows in a leaf."""
MOST_LEAVES = 100_000_000
"""Fits of more rows times trees are fitted from scratch for a replicate: a refit remembers the leaf of each."""
FEW, ALONE = 10, 1e-9
"""Cells of fewer rows leave residuals that are too small by a share that counts; one row leaves none."""
MOST_OWN, CHUNK = 0.5, 1 << 16
"""A row counts as drawing a logistic regression to itself by this share at most; so many rows are asked at once."""
SMALL = 300
"""Trees alone find hardly a split in a group of fewer rows, so that they adjust for nothing: a stack is taken."""
CONSTANT = 1e-12
"""Responses that differ by no more are constant."""
MOST_COPIES = 1000
"""The most often that a row is repeated for a model that takes no weights."""


class Learner(ABC):
    """A mean of Q responses given some columns.

    ``crossed`` is whether a row must be judged by a fit without it; ``warm``, whether a refit starts from the fit, and
    is not a fit of its own; ``smooths``, whether there is another fit that errs more, and varies less between rows that
    are alike.
    """

    crossed: ClassVar[bool] = True
    warm: ClassVar[bool] = True
    smooths: bool = False

    @abstractmethod
    def design(self, X: pd.DataFrame) -> Design:
        """Return the rows of a table as it reads them."""

    @abstractmethod
    def fit(self, design: Design, y: NDArray[Any], weight: Array, groups: Groups = None) -> Self:
        """Return a copy fitted to responses (m, Q) and weights (m,); splits of rows keep those of a group together."""

    @abstractmethod
    def __call__(self, design: Design) -> Array:
        """Return the predictions (m, Q) of rows of a design."""

    def own(self, design: Design) -> Array:
        """Return the predictions of rows among those fitted, NaN where these have no weight."""
        return self(design)

    def refit(self, design: Design, y: NDArray[Any], weight: Array, before: Array) -> Learner:
        """Return the fit of the same rows with other weights; ``before`` (m,) are those of this fit."""
        return self.fit(design, y, weight)

    def smooth(self, design: Design, y: NDArray[Any], weight: Array) -> Learner:
        """Fit what :meth:`fit` does, by the fit that varies less."""
        return self.fit(design, y, weight)

    def regrown(self, design: Design, rows: NDArray[np.int64], y: Array, weight: Array) -> Learner | None:
        """Return the fit of the same ``rows`` (m,) and weights to other responses (m, Q); None if a fit is as fast."""
        return None

    def again(self, known: Design, weight: Array, asked: Sequence[Design]) -> Callable[[Array], list[Array]]:
        """Return what predicts sets of rows from any responses (m, k) of the ``known`` rows, by this fit's splits."""
        return lambda y: [*map(self.fit(known, y, weight), asked)]

    def pull(self, design: Design) -> Array:
        """Return how predictions (m, Q) move if one row of the mean of all joins: equal rows then have residuals."""
        return np.zeros((1, 1))

    def leverage(self, design: Design, known: Design, weight: Array, near: Near = None) -> Array:
        """Return by what share rows draw their own predictions to themselves, (m, Q) or (m, 1); 0 where that is little.

        The rows are among the ``known`` ones, which it was fitted to with weights. Their residuals are too small by
        this share. It is 0 also where a row alone makes its prediction. ``near`` are the groups of these rows and of
        the known ones: all rows of a group draw together.
        """
        return np.zeros((1, 1))


@dataclass(frozen=True, eq=False)
class Saturated(Learner):
    """The weighted mean of every cell of the columns; with no column, that of all rows."""

    levels: dict[str, pd.Index[Any]]
    target: Target
    cells: NDArray[Any] | None = None
    means: Array | None = None
    share: Array | None = None
    mean: Array | None = None
    crossed = False

    def design(self, X: pd.DataFrame) -> NDArray[Any]:
        """Return the number of each row's cell."""
        return number_cells(X, self.levels)

    def fit(self, design: Design, y: NDArray[Any], weight: Array, groups: Groups = None) -> Self:
        """Average the responses of each cell."""
        cells, index = np.unique(design, return_inverse=True)
        total = np.bincount(index, weight)
        with np.errstate(invalid="ignore"):
            means = np.column_stack([np.bincount(index, weight * column) / total for column in y.T])
            rows = total**2 / _squares(index, weight, groups)
        return replace(self, cells=cells, means=means, share=1.0 / rows, mean=weight @ y / weight.sum())

    def _at(self, design: Design) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        assert self.cells is not None
        at = np.searchsorted(self.cells, design).clip(max=len(self.cells) - 1)
        return at, self.cells[at] != design

    def own(self, design: Design) -> Array:
        """Return the mean of each row's cell, NaN where it has no weight or is not known."""
        assert self.means is not None
        at, absent = self._at(design)
        return np.where(absent[:, None], np.nan, self.means[at])

    def pull(self, design: Design) -> Array:
        """Return the way from each row's cell to the mean of all, over one more than the rows of the cell."""
        assert self.share is not None
        assert self.means is not None
        assert self.mean is not None
        at, _ = self._at(design)
        return (self.mean - self.means[at]) * (self.share / (1.0 + self.share))[at, None]

    def leverage(self, design: Design, known: Design, weight: Array, near: Near = None) -> Array:
        """Return one over the rows, or groups, of each row's cell, where these are few but more than one."""
        assert self.share is not None
        at, absent = self._at(design)
        few = (self.share > 1.0 / FEW) & (self.share < 1.0 - ALONE)
        return np.where(absent | ~few[at], 0.0, self.share[at])[:, None]

    def __call__(self, design: Design) -> Array:
        """Return the mean of each row's cell; one that was not fitted on is refused."""
        found = self.own(design)
        if (absent := np.isnan(found[:, 0])).any():
            raise self._lost(design[absent])
        return found

    def _lost(self, cells: NDArray[Any]) -> Exception:
        if self.target == "regression":
            return PositivityError(
                f"A saturated regression has no row of the group in {len(cells)} of the cells of "
                f"{', '.join(map(str, self.levels))} where it is needed. Use regression='boosted' or 'logistic', or "
                "merge levels."
            )
        number, row = cells[0], {}
        for name, levels in reversed(self.levels.items()):
            number, code = divmod(number, len(levels))
            row[name] = levels[[int(code)]].tolist()[0]
        return DataError(
            f"The cell {dict(reversed(row.items()))} was not among the rows that the saturated propensity was fitted "
            "on, so its group shares are unknown. Use propensity='logistic' or 'boosted', or coarsen the columns."
        )


def _squares(cell: NDArray[np.int64], weight: Array, groups: Groups) -> Array:
    """Return the sum of squared weights of each cell's rows, or of its groups."""
    if groups is None:
        return np.asarray(np.bincount(cell, weight**2), dtype=np.float64)
    pairs, unit = np.unique(np.column_stack([cell, groups]), axis=0, return_inverse=True)
    squares = np.bincount(unit.ravel(), weight) ** 2
    return np.asarray(np.bincount(pairs[:, 0], squares, cell.max() + 1), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Logistic(Learner):
    """Unpenalised (the paper's) regression on main effects, of responses in [0, 1] or [-1, 1]; or ``linear``."""

    encoder: TableEncoder
    linear: bool = False
    coef: Array | None = None
    low: Array | None = None
    crossed = False

    def design(self, X: pd.DataFrame) -> Design:
        """Return a column of ones beside the encoded columns."""
        return linear_design(self.encoder, X)

    def fit(self, design: Design, y: NDArray[Any], weight: Array, groups: Groups = None) -> Self:
        """Maximise the weighted likelihood of each response."""
        if self.linear:
            curved, right = information(design, weight), design.T @ (weight[:, None] * y)
            return replace(self, coef=linalg.lstsq(curved, right, cond=1e-12, lapack_driver="gelsd")[0])
        low, start = np.where(y.min(axis=0) < 0.0, -1.0, 0.0), np.zeros(design.shape[1])
        found = [newton_logistic(design, a, weight, start) for a in ((y - low) / (1.0 - low)).T]
        return replace(self, low=low, coef=np.column_stack(found))

    def refit(self, design: Design, y: NDArray[Any], weight: Array, before: Array) -> Learner:
        """Start from the present coefficients; those of levels in one group only have no best value, and are kept."""
        if self.coef is None or self.low is None:  # linear, or not fitted
            return self.fit(design, y, weight)
        found = []
        for a, coef in zip(((y - self.low) / (1.0 - self.low)).T, self.coef.T, strict=True):
            fixed = fixed_columns(design, expit(design @ coef), self.encoder)
            found.append(newton_logistic(design, a, weight, coef, tolerance=1e-11, fixed=fixed))
        return replace(self, coef=np.column_stack(found))

    def leverage(self, design: Design, known: Design, weight: Array, near: Near = None) -> Array:
        """Return the diagonal of the hat matrix of each response, for rows of the usual weight; its sums over groups.

        A group whose rows err alike errs less than it would without them by the sum of its rows' entries.
        """
        if known.shape[1] > WIDE:
            return super().leverage(design, known, weight)
        usual, spread = weight @ weight / weight.sum(), _spread(known @ self.coef)
        hats = [np.linalg.pinv(information(known, weight * each), COLLINEAR, hermitian=True) for each in spread.T]
        together = None if near is None else _sums(known, weight, *near)
        found = []
        for start in range(0, design.shape[0], CHUNK):
            X = design[start : start + CHUNK].toarray()
            drawn = usual * X if together is None else together(slice(start, start + CHUNK))
            found.append(np.column_stack([((X @ hat) * drawn).sum(axis=1) for hat in hats]))
        return np.asarray(np.vstack(found) * _spread(design @ self.coef)).clip(0.0, MOST_OWN)

    def __call__(self, design: Design) -> Array:
        """Return the fitted means."""
        linear: Array = np.asarray(design @ self.coef)
        return linear if self.low is None else self.low + (1.0 - self.low) * expit(linear)


def _sums(
    known: Design, weight: Array, group: NDArray[np.int64], groups: NDArray[np.int64]
) -> Callable[[slice], Array]:
    """Return what gives some rows the weighted sum of the known rows of their group, (m, p); 0 where there are none."""
    every, code = np.unique(groups, return_inverse=True)
    sums = (sparse.csr_array((weight, (code, np.arange(len(code))))) @ known).toarray()
    at = np.searchsorted(every, group).clip(max=len(every) - 1)
    there = every[at] == group
    return lambda rows: np.where(there[rows, None], sums[at[rows]], 0.0)


def _spread(linear: Array) -> Array:
    """Return the variance p (1 - p) of labels at log-odds."""
    p = expit(linear)
    return np.asarray(p * (1.0 - p))


@dataclass(frozen=True, eq=False)
class Estimator(Learner):
    """Clones of a scikit-learn model, one for each different column of responses, given the columns as they are.

    ``fits`` holds for each column its model, None where it is constant, and its range, to which predictions keep:
    a regression beyond it would only add variance.
    """

    model: Any
    target: Target
    fits: tuple[tuple[Any, float, float], ...] = ()
    warm = False

    def design(self, X: pd.DataFrame) -> Design:
        """Return the table as it is."""
        return X

    def fit(self, design: Design, y: NDArray[Any], weight: Array, groups: Groups = None) -> Self:
        """Fit a clone for each column."""
        known: dict[bytes, tuple[Any, float, float]] = {}
        for column in y.T:
            if (key := column.tobytes()) not in known:
                own = self._fit_one(design, column, weight, groups) if _varies(column) else None
                known[key] = own, float(column.min()), float(column.max())
        return replace(self, fits=tuple(known[column.tobytes()] for column in y.T))

    def _fit_one(self, design: Design, y: NDArray[Any], weight: Array, groups: Groups) -> Any:
        return fit_weighted(clone(self.model), design, y, weight, self.target)

    def __call__(self, design: Design) -> Array:
        """Return the predictions of each column's model."""
        asked = _chance if self.target == "propensity" else _mean
        done = {id(model): asked(model, design) for model, *_ in self.fits if model is not None}
        return self._within([done.get(id(model)) for model, *_ in self.fits], design.shape[0])

    def _within(self, found: Sequence[Array | None], n: int) -> Array:
        """Return the predictions of each column (n,) in its range; None stands for its one value."""
        both = zip(self.fits, found, strict=True)
        return np.column_stack(
            [np.full(n, low) if each is None else each.clip(low, high) for (_, low, high), each in both]
        )


@dataclass(frozen=True, eq=False)
class Boosted(Estimator):
    """Gradient-boosted trees on codes and bins; categories are split as sets.

    A refit of propensities keeps the trees, and fits the values of their leaves again; ``memo`` holds what all refits
    of a fit need. Of Q responses, and of further Q alike, each has the trees of its one of ``leaders``, if these are
    given, and means of their leaves.
    """

    bins: Bins | None = None
    n: int = 0
    seed: int = 0
    leaders: tuple[int, ...] = ()
    memo: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)
    warm = True

    @classmethod
    def of(cls, X: pd.DataFrame, seed: int, target: Target, leaders: tuple[int, ...] = ()) -> Boosted:
        """Return trees for the columns of a table, of a size for its rows."""
        bins, n = Bins.of(X), len(X)
        model = (_classifier if target == "propensity" else _regressor)(n)
        model.set_params(categorical_features=bins.categorical, random_state=seed)
        return cls(model, target, (), bins, n, seed, leaders)

    @property
    def smooths(self) -> bool:  # type: ignore[override]
        """Whether rows are so few that trees vary."""
        return self.n < SMOOTHED

    def design(self, X: pd.DataFrame) -> Cells:
        """Return the codes and bins of rows."""
        assert self.bins is not None
        return self.bins(X)

    def fit(self, design: Cells, y: NDArray[Any], weight: Array, groups: Groups = None) -> Self:
        """Grow trees for each response, or of many rows take means of the leaves of its leader's."""
        every, q = range(y.shape[1]), len(self.leaders) if self.n >= REGROWN else 0
        lead = [i - i % q + self.leaders[i % q] if q else i for i in every]
        lead = [of if _varies(y[:, of]) else i for i, of in enumerate(lead)]  # a constant has no trees
        own = sorted({*lead})
        grown = super().fit(design.rows, y[:, own], weight, groups)
        fitted = replace(grown, fits=tuple(grown.fits[own.index(of)] for of in lead))
        follow = [i for i in every if lead[i] != i]
        return fitted._relearned(design, np.arange(len(y)), y, weight, follow) if follow else fitted

    def _fit_one(self, design: Array, y: NDArray[Any], weight: Array, groups: Groups) -> Any:
        model = clone(self.model)
        if self.target == "regression":
            model.set_params(min_samples_leaf=int(np.clip(len(y) // PARTS, LEAST_LEAF, MOST_LEAF)))
        if self.target == "regression" or groups is None:
            return fit_weighted(model, design, y, weight, self.target)
        # Trees that stop by rows whose copies they have seen stop too late.
        train, held = hold_out(y, weight, self.seed, groups)
        stop = {"X_val": design[held], "y_val": y[held], "sample_weight_val": weight[held]}
        return fit_weighted(model, design[train], y[train], weight[train], self.target, **stop)

    def __call__(self, design: Cells) -> Array:
        """Return the predictions of different rows, for all."""
        if self.target == "propensity" or "leaves" not in self.memo:
            return super().__call__(design.different)[design.index]
        leaves = {i: self._leaves_of(i, design) for i in {*self._first} if self.fits[i][0] is not None}
        models = zip((model for model, *_ in self.fits), self._first, strict=True)
        found = [None if model is None else sum_leaves(model, leaves[i]) for model, i in models]
        return self._within(found, len(design.different))[design.index]

    @property
    def _first(self) -> list[int]:
        """The first column that has the same trees as each one."""
        trees = [id(getattr(model, "_bin_mapper", None)) for model, *_ in self.fits]
        return [*map(trees.index, trees)]

    def refit(self, design: Cells, y: NDArray[Any], weight: Array, before: Array) -> Learner:
        """Keep the trees, and fit the values of their leaves again."""
        (model, low, high), *others = self.fits
        if self.target == "regression" or others or model is None or model.n_iter_ * len(y) > MOST_LEAVES:
            return self.fit(design, y, weight)
        leaves, k = self._leaves_of(0, design, keep=True), len(design.different)

        def values(w: Array) -> list[Array]:
            ones, total = (np.bincount(design.index, each, k) for each in (w * (y[:, 0] == 1), w))
            return value_leaves(model, leaves, ones.astype(np.float64), total.astype(np.float64))

        if "values" not in self.memo:
            self.memo["values"] = values(before)
        moved = move_leaves(model, self.memo["values"], values(weight))
        other = replace(self, fits=((moved, low, high),))
        other.memo["leaves"] = self.memo["leaves"]
        return other

    def regrown(self, design: Cells, rows: NDArray[np.int64], y: Array, weight: Array) -> Boosted | None:
        """Keep the trees of each response, and learn the means of their leaves; of few rows trees are grown again.

        Trees of few rows split little that the first response does not read, and fits to few rows are fast. Responses
        that have no trees yet, because all so far were constant, grow them.
        """
        if self.n < REGROWN:
            return None
        bare = [i for i, (model, *_) in enumerate(self.fits) if model is None]
        grown = dict(zip(bare, super().fit(take(design, rows).rows, y[:, bare], weight).fits, strict=True))
        other = replace(self, fits=tuple(grown.get(i, each) for i, each in enumerate(self.fits)))
        other.memo.update(self.memo)
        return other._relearned(design, rows, y, weight, [i for i in range(y.shape[1]) if i not in bare])

    def _relearned(self, design: Cells, rows: NDArray[np.int64], y: Array, weight: Array, which: Sequence[int]) -> Self:
        """Return the fit of some responses as means of the leaves that they have; all else stays."""
        made, fits, lead = self.memo.setdefault("means", {}), [*self.fits], self._first
        for i in which:
            if (of := lead[i]) not in made:
                leaves = self._leaves_of(of, design, keep=True)
                made[of] = LeafMeans(self.fits[of][0], leaves, design.index[rows], weight)
            fits[i] = made[of](y[:, i]), float(y[:, i].min()), float(y[:, i].max())
        other = replace(self, fits=tuple(fits))
        other.memo.update(self.memo)
        return other

    def again(self, known: Cells, weight: Array, asked: Sequence[Cells]) -> Callable[[Array], list[Array]]:
        """Keep the trees of all responses, and fit the values of their leaves again."""
        models = {id(model): model for model, *_ in self.fits if model is not None}
        if not models:
            return super().again(known, weight, asked)
        of_known, *others = (
            [leaf[design.index] for model in models.values() for leaf in find_leaves(model, design.different)]
            for design in (known, *asked)
        )

        def means(y: Array) -> list[Array]:
            columns = [step_leaves(of_known, others, weight, each, self.model.learning_rate) for each in y.T]
            return [np.column_stack(each) for each in zip(*columns, strict=True)]

        return means

    def own(self, design: Cells) -> Array:
        """Return the predictions of fitted rows, after a refit by the leaves that they are known to be in."""
        if self.target == "regression" or "leaves" not in self.memo:
            return self(design)
        leaves = self._leaves_of(0, design, keep=True)
        return np.asarray(expit(sum_leaves(self.fits[0][0], leaves)))[design.index, None]

    def _leaves_of(self, column: int, design: Cells, *, keep: bool = False) -> list[NDArray[np.uint8]]:
        """Return the nodes of a column's trees in which the different rows of a design end, kept for all refits."""
        known, key = self.memo.setdefault("leaves", {}), (column, id(design))
        if key in known:
            return list(known[key][1])
        found = find_leaves(self.fits[column][0], design.different)
        if keep:
            known[key] = design, found  # the design lives, so its id is its own
        return found

    def smooth(self, design: Cells, y: NDArray[Any], weight: Array) -> Learner:
        """Fit a forest of trees split at random for each score, on the mean score of each different row."""
        total = np.bincount(design.index, weight, len(design.different)).astype(np.float64)
        kept = total > 0.0
        means = [np.bincount(design.index, weight * column, len(total))[kept] / total[kept] for column in y.T]
        least = min(0.5, LEAST_IN_LEAF / len(y))
        trees = ExtraTreesRegressor(SMOOTH_TREES, min_weight_fraction_leaf=least, random_state=self.seed)
        forest = Estimator(trees, self.target).fit(design.different[kept], np.column_stack(means), total[kept])
        return replace(self, fits=forest.fits)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"memo": {}}


@dataclass(frozen=True, eq=False)
class Together:
    """The same rows as several learners read them."""

    parts: tuple[Design, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first design."""
        return tuple(self.parts[0].shape)

    def __getitem__(self, at: NDArray[np.int64]) -> Together:
        return Together(tuple(take(part, at) for part in self.parts))


@dataclass(frozen=True, eq=False)
class Stacked(Learner):
    """A weighted average of learners: a refit keeps the weights, those that predict best out of fold, none below 0."""

    members: tuple[Learner, ...]
    target: Target
    seed: int
    share: Array | None = None
    span: tuple[Array, Array] | None = None

    def design(self, X: pd.DataFrame) -> Together:
        """Return the designs of all members."""
        return Together(tuple(member.design(X) for member in self.members))

    def fit(self, design: Together, y: NDArray[Any], weight: Array, groups: Groups = None) -> Self:
        """Fit the members in folds, find the weight of each, and fit them to all rows."""
        found = np.zeros((len(self.members), *y.shape))
        label = y[:, 0] if self.target == "propensity" else None
        for train, test in split_folds(label, weight, STACK_FOLDS, self.seed, groups):
            near = None if groups is None else groups[train]
            for own, member, part in zip(found, self.members, design.parts, strict=True):
                fit = member.fit(take(part, train), y[train], weight[train], near)
                own[test] = fit(take(part, test))
        root = np.sqrt(weight)
        shares = [nnls(root[:, None] * f.T, root * a)[0] for f, a in zip(found.transpose(2, 0, 1), y.T, strict=True)]
        share = np.column_stack([s / s.sum() if s.any() else np.full(len(s), 1.0 / len(s)) for s in shares])
        members = tuple(m.fit(part, y, weight, groups) for m, part in zip(self.members, design.parts, strict=True))
        return replace(self, members=members, share=share, span=(y.min(axis=0), y.max(axis=0)))

    def refit(self, design: Together, y: NDArray[Any], weight: Array, before: Array) -> Learner:
        """Fit the members again, each from where it was."""
        both = zip(self.members, design.parts, strict=True)
        return replace(self, members=tuple(member.refit(part, y, weight, before) for member, part in both))

    def again(self, known: Together, weight: Array, asked: Sequence[Together]) -> Callable[[Array], list[Array]]:
        """Keep the weights of the members, their mean over the responses."""
        assert self.share is not None
        parts = zip(self.members, known.parts, zip(*(each.parts for each in asked), strict=True), strict=True)
        made, shares = [member.again(own, weight, rows) for member, own, rows in parts], self.share.mean(axis=1)

        def averages(y: Array) -> list[Array]:
            found = zip(*(each(y) for each in made), strict=True)
            ends = y.min(axis=0), y.max(axis=0)
            return [np.tensordot(shares, np.stack(own), 1).clip(*ends) for own in found]

        return averages

    def __call__(self, design: Together) -> Array:
        """Return the average of the members."""
        return self._average(member(part) for member, part in zip(self.members, design.parts, strict=True))

    def own(self, design: Together) -> Array:
        """Return the average of the members' predictions of fitted rows."""
        return self._average(member.own(part) for member, part in zip(self.members, design.parts, strict=True))

    def _average(self, found: Iterable[Array]) -> Array:
        assert self.share is not None
        assert self.span is not None
        return np.asarray(sum(share * each for share, each in zip(self.share, found, strict=True))).clip(*self.span)


# -- scikit-learn's models ---------------------------------------------------------------------------------------------


def _classifier(n: int) -> HistGradientBoostingClassifier:
    """Return boosted trees for n rows, that are smaller and stop earlier where rows are few.

    Weights are made of 1 / P, and a propensity that follows chance explodes there: with 15 leaves and a patience of 20
    rounds, errors of estimates from 1,000 rows were five times as large as with 8 leaves and 5 rounds, and from the
    10,869 test rows of Adult two splits into folds differed twice as much; on 34,000 rows the former fit better.
    """
    size, patience = {"max_leaf_nodes": 31, "min_samples_leaf": 20}, 20
    if n < MANY:
        size, patience = {"max_leaf_nodes": 8, "min_samples_leaf": 30}, int(np.clip(5.0 * np.sqrt(n / 3000.0), 5, 20))
    return HistGradientBoostingClassifier(
        learning_rate=0.1, max_iter=400, early_stopping=True, n_iter_no_change=patience, **size
    )


def _regressor(n: int) -> HistGradientBoostingRegressor:
    """Return boosted trees that are few and small, and more of them for more rows.

    Scores are nearly functions of the features, and a stage is fitted for each classifier, fold and kind of decisions:
    on Adult 30 trees of 8 leaves predict as well as 100 of 15 leaves, in a quarter of the time.
    """
    trees = int(np.clip(FEWEST_TREES * np.sqrt(n / 30_000), FEWEST_TREES, MOST_TREES))
    return HistGradientBoostingRegressor(learning_rate=0.2, max_iter=trees, max_leaf_nodes=8, early_stopping=False)


def _chance(model: Any, X: Design) -> Array:
    """Return the probability of group 1 that a fitted classifier gives to each row, shape (m,)."""
    name = f"the propensity model {type(model).__name__}"
    classes = read_classes(name, model, default=(0, 1))
    if set(classes) != {0, 1}:
        raise DataError(f"{name} has the classes {classes}, but was fitted on 0 and 1; leave its labels as they are.")
    return read_probabilities(name, model.predict_proba(X), len(X), classes)[:, classes.index(1)].astype(np.float64)


def _mean(model: Any, X: Design) -> Array:
    found = np.asarray(model.predict(X), dtype=np.float64)
    if found.shape != (len(X),) or not np.isfinite(found).all():
        raise DataError(
            f"The regression {type(model).__name__} returned the shape {found.shape} for {len(X)} rows, or numbers "
            "that are not finite."
        )
    return found


def fit_weighted(model: Any, X: Any, y: NDArray[Any], weight: Array, target: Target, **given: Any) -> Any:
    """Fit a model with weights; one that takes none gets each row as often as its weight, in integer ratios."""
    what = "propensity model" if target == "propensity" else "regression"
    step, last = model.steps[-1] if isinstance(model, Pipeline) else ("", model)
    if not (weight == weight[0]).all():
        if has_fit_parameter(last, "sample_weight"):
            given |= {f"{step}__sample_weight" if step else "sample_weight": weight}
        elif (counts := _as_counts(weight)) is not None:
            rows = np.repeat(np.arange(len(y)), counts)
            X, y = take(X, rows), y[rows]
        else:
            raise DataError(
                f"The {what} {type(last).__name__} takes no sample_weight, and the weights are not in the ratio of "
                "integers by which rows could be repeated. Use a model that takes weights, or in an audit "
                "bootstrap='multinomial'."
            )
    try:
        return model.fit(X, y, **given)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"The {what} {type(model).__name__} cannot be fitted: {error}") from error


def _as_counts(weight: Array) -> NDArray[np.int64] | None:
    """Return the smallest integers in the ratio of some weights, shape (n,); None if they would be large."""
    ratio = weight / weight[weight > 0.0].min()
    known: Array = np.unique(ratio)
    for factor in range(1, MOST_COPIES + 1):
        rounded = np.rint(factor * known)
        if rounded[-1] > MOST_COPIES:
            break
        if np.allclose(factor * known, rounded, rtol=1e-9, atol=0.0):
            return np.asarray(np.rint(factor * ratio), dtype=np.int64)
    return None


# -- by name -----------------------------------------------------------------------------------------------------------


def make_learner(
    spec: LearnerName | ClassifierMixin | RegressorMixin,
    X: pd.DataFrame,
    seed: int,
    target: Target,
    smallest: int | None = None,
    leaders: tuple[int, ...] = (),
) -> Learner:
    """Return a learner of a target on the columns of a table, unfitted; without columns it is the mean.

    ``smallest`` is the number of rows of the smaller group: if it is below 300, a stack takes the place of trees.
    ``leaders`` are the responses whose trees each response has, of boosted ones.
    """
    if not len(X.columns) or (isinstance(spec, str) and spec == "saturated"):
        return Saturated({name: as_levels(X[name]) for name in X.columns}, target)
    if not isinstance(spec, str):
        return Estimator(spec, target)
    if spec == "logistic":
        return Logistic(TableEncoder().fit(X))
    trees = Boosted.of(X, seed, target, leaders)
    if spec == "boosted" and (smallest is None or smallest >= SMALL):
        return trees
    return Stacked((Logistic(TableEncoder().fit(X), target == "regression"), trees), target, seed)


def _varies(y: Array) -> bool:
    """Return whether responses (m,) differ by more than rounding."""
    return float(y.max() - y.min()) > CONSTANT


def smaller_group(a: NDArray[np.int8], weight: Array) -> int:
    """Return how many rows with a weight the smaller of both groups (n,) has."""
    return int(np.bincount(a[weight > 0.0], minlength=2).min())


def require_learner(name: str, value: object, target: Target) -> None:
    """Refuse what is neither the name of a learner nor a scikit-learn model of the target."""
    if isinstance(value, str) and value in get_args(LearnerName):
        return
    needed = ("fit", "predict_proba") if target == "propensity" else ("fit", "predict")
    model = not isinstance(value, str | type) and all(hasattr(value, each) for each in needed)
    if model and (target == "propensity" or is_regressor(value)):
        return
    names, what = "'logistic', 'boosted'", "classifier with predict_proba."
    if target == "regression":
        names, what = "'boosted', 'logistic'", "regressor; a classifier has no place here, for it regresses scores."
    raise DataError(f"{name}={value!r} is not known. Use {names}, 'saturated', 'stacked', or a scikit-learn {what}")
