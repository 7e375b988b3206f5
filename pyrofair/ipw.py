"""Both worlds as weighted observed rows: inverse probability weighting, by the formula that identification derives."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from pyrofair.exceptions import DataError, PositivityWarning
from pyrofair.identification import RegimeEstimand, identify
from pyrofair.overlap import AT_BOUND, GroupOverlap, unsupported_cells
from pyrofair.paths import Regime, UnfairPaths
from pyrofair.potential_outcomes import CounterfactualSample
from pyrofair.propensity import Propensity, PropensityKind, make_propensity
from pyrofair.tables import read_sensitive, read_table, read_weight, warn_unused

__all__ = ["IPW"]

Prefix = tuple[str, ...]
Arm = Literal["auto", "paper", "pooled"] | int
POOLED = None


@dataclass
class _Rows:
    """A table with all that its weights are made of."""

    table: pd.DataFrame
    a: NDArray[np.int8]
    weight: NDArray[np.float64]
    kept: NDArray[np.bool_]
    probability: dict[Prefix, NDArray[np.float64]] = field(default_factory=dict)


class IPW(BaseEstimator):  # type: ignore[misc]
    """Potential outcomes as weighted observed rows.

    Parameters
    ----------
    unfair
        The unfair paths; they must be identified.
    arm
        Which rows carry the weights: ``"paper"`` (the group that the outcome's arm names), ``0``, ``1``, ``"pooled"``
        (both groups, each weighted by the probability of its group given the features), or ``"auto"``: for each world,
        among those that have support and a mean weight near 1, the one with the largest effective sample size. The
        choice is kept in ``arm_`` and shown by :meth:`overlap`.
    propensity
        ``"logistic"`` (unpenalised, the paper's), ``"boosted"`` (5-fold cross-fitted trees), ``"saturated"`` (cell
        frequencies), or a scikit-learn classifier, cloned and given the columns of each prefix as they are.
    normalize
        Whether weights are divided by their sum (Hajek); if False, by the number of rows (Horvitz-Thompson, the
        paper's).
    clip
        Bounds propensities to [clip, 1 - clip]; by default they are left as they are.
    trim
        Drops rows with a propensity outside [trim, 1 - trim] and fits again on the others. The estimand is then the
        effect in the population that is left.
    max_unsupported
        The largest mass of the target population that may lack a counterpart.
    random_state
        Seeds cross-fitting.

    Attributes
    ----------
    estimand_ : Estimand
        The formulas.
    arm_ : dict
        For each world, the weighted group: 0, 1 or ``"pooled"``.
    trimmed_ : int
        How many rows were trimmed.

    References
    ----------
    Chikahara et al. (2021), eq. (9) and appendix D; Huber (2014).

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    >>> df = pd.DataFrame({"A": [0] * 40 + [1] * 60, "M": [0] * 30 + [1] * 10 + [0] * 15 + [1] * 45})
    >>> source = IPW(graph.unfair("A -> Y"), arm="paper", propensity="saturated").fit(df)
    >>> baseline, switched = source.worlds()
    >>> score = 0.2 + 0.3 * switched.rows["A"] + 0.4 * switched.rows["M"]
    >>> round(float((switched.weight * score).sum()), 10)
    0.6
    """

    def __init__(
        self,
        unfair: UnfairPaths,
        *,
        arm: Arm = "auto",
        propensity: PropensityKind | ClassifierMixin = "logistic",
        normalize: bool = True,
        clip: float | None = None,
        trim: float | None = None,
        max_unsupported: float = 0.01,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.unfair = unfair
        self.arm = arm
        self.propensity = propensity
        self.normalize = normalize
        self.clip = clip
        self.trim = trim
        self.max_unsupported = max_unsupported
        self.random_state = random_state

    # -- fitting ------------------------------------------------------------------------------------------------------

    def fit(self, df: pd.DataFrame, sample_weight: object = None) -> Self:
        """Fit the propensities on a table, which need not hold the outcome.

        Parameters
        ----------
        df
            A table of n rows with the columns of all observed nodes but the outcome.
        sample_weight
            Weights of shape (n,); they enter the propensities and every estimate.

        Raises
        ------
        NotIdentifiedError
            If the data cannot tell the effect.
        DataError
            If the table or a setting is unfit.
        PositivityError
            If too much of the target population has no counterpart.
        """
        self._check_settings()
        estimand = identify(self.unfair)
        table = self._read(df)
        weight = read_weight(sample_weight, len(table))
        a = read_sensitive(table, self.unfair.graph)
        make_propensity(self.propensity, empty=False, seed=0)
        warn_unused(df, self.unfair.graph)
        self.estimand_ = estimand
        self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.propensities_: dict[Prefix, Propensity] = {}
        self.rows_ = _Rows(table, a, weight, np.ones(len(a), dtype=bool))
        self._trim()
        self.candidates_ = self._candidates()
        self.arm_ = {}
        for part in self._parts():
            chosen = self._choose([c for c in self.candidates_ if c.regime == part.regime.name])
            chosen.check(self.max_unsupported, stacklevel=3)
            self.arm_[part.regime.name] = "pooled" if chosen.group is POOLED else chosen.group
        return self

    def refit(self, sample_weight: NDArray[np.float64]) -> IPW:
        """Return a copy fitted on the same rows with other weights: one replicate of a bootstrap.

        The choice of groups and the trimmed rows are kept.
        """
        other = copy.copy(self)
        weight = self.rows_.weight * sample_weight
        other.rows_ = _Rows(self.rows_.table, self.rows_.a, weight, self.rows_.kept)
        other.propensities_ = {}
        for part, group in self._used():
            for prefix in part.weight(group).prefixes:
                if prefix not in other.propensities_:
                    table, a, kept = self._prefix_table(other.rows_, prefix)
                    other.propensities_[prefix] = self.propensities_[prefix].refit(table, a, weight[kept])
        return other

    def by_group(self) -> dict[str, IPW]:
        """Return the source with each single group weighted in both worlds, where that group has support.

        Under the assumptions all groups estimate the same; if they disagree, a propensity is misspecified or overlap
        fails, never a latent cause alone.
        """
        found = {}
        for group in (0, 1):
            rows = [self._overlap(part, group) for part in self._parts()]
            if all(row.unsupported <= self.max_unsupported for row in rows):
                other = copy.copy(self)
                other.arm_ = {row.regime: group for row in rows}
                found[f"group {group}"] = other
        return found

    def _check_settings(self) -> None:
        if not isinstance(self.unfair, UnfairPaths):
            raise DataError(f"IPW needs unfair paths, made by graph.unfair(...); got {type(self.unfair).__name__}.")
        if isinstance(self.arm, bool) or self.arm not in ("auto", "paper", "pooled", 0, 1):
            raise DataError(f"arm={self.arm!r} is not known; it is 'auto', 'paper', 0, 1 or 'pooled'.")
        for name in ("clip", "trim"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < 0.5:
                raise DataError(f"{name}={value!r} must lie between 0 and 0.5, or be None.")
        if not 0.0 <= self.max_unsupported <= 1.0:
            raise DataError(f"max_unsupported={self.max_unsupported!r} must lie in [0, 1].")

    def _read(self, df: pd.DataFrame) -> pd.DataFrame:
        graph = self.unfair.graph
        return read_table(df, graph.columns_of(n for n in graph.observed if n != graph.outcome))

    def _trim(self) -> None:
        self.trimmed_ = 0
        self.trimmers_: dict[Prefix, Propensity] = {}
        if self.trim is None:
            return
        for prefix in self._wanted_prefixes():
            self._fit_prefix(prefix)
        self.trimmers_ = self.propensities_
        kept = self._inside(self.rows_)
        self.trimmed_ = int((~kept).sum())
        self.propensities_ = {}
        self.rows_ = _Rows(self.rows_.table, self.rows_.a, self.rows_.weight, kept)
        if len(np.unique(self.rows_.a[kept])) < 2:
            raise DataError(f"trim={self.trim} leaves one group only ({int(kept.sum())} rows); choose a smaller value.")

    def _inside(self, rows: _Rows) -> NDArray[np.bool_]:
        kept = np.ones(len(rows.a), dtype=bool)
        for prefix, model in self.trimmers_.items():
            fitted = rows is self.rows_
            p = model.fitted if fitted else model.predict(self._prefix_table(rows, prefix)[0])
            kept &= (p >= self.trim) & (p <= 1.0 - self.trim)
        return kept

    def _wanted_prefixes(self) -> list[Prefix]:
        groups = (0, 1, POOLED) if self.arm == "auto" else None
        found: dict[Prefix, None] = {}
        for part in self._parts():
            for group in groups or (self._fixed_group(part),):
                found.update(dict.fromkeys(part.weight(group).prefixes))
        return list(found)

    def _fit_prefix(self, prefix: Prefix) -> Propensity:
        table, a, kept = self._prefix_table(self.rows_, prefix)
        model = make_propensity(self.propensity, empty=not prefix, seed=self.seed_)
        self.propensities_[prefix] = model.fit(table, a, self.rows_.weight[kept])
        return model

    def _prefix_table(self, rows: _Rows, prefix: Prefix) -> tuple[pd.DataFrame, NDArray[np.int8], NDArray[np.bool_]]:
        table = rows.table[self.unfair.graph.columns_of(prefix)]
        if rows.kept.all():
            return table, rows.a, rows.kept
        return table[rows.kept], rows.a[rows.kept], rows.kept

    # -- groups and overlap -------------------------------------------------------------------------------------------

    def _parts(self) -> tuple[RegimeEstimand, RegimeEstimand]:
        return self.estimand_.baseline, self.estimand_.switched

    def _fixed_group(self, part: RegimeEstimand) -> int | None:
        if self.arm == "pooled":
            return POOLED
        return part.paper_group if self.arm == "paper" else int(self.arm)

    def _candidates(self) -> list[GroupOverlap]:
        return [
            self._overlap(part, group)
            for part in self._parts()
            for group in ((POOLED, 0, 1) if self.arm == "auto" else (self._fixed_group(part),))
        ]

    def _choose(self, candidates: list[GroupOverlap]) -> GroupOverlap:
        """Support and mean weight come first, then effective size."""
        serving = [c for c in candidates if c.serves(self.max_unsupported)]
        if serving:
            return max(serving, key=lambda c: c.effective_size)
        return min(candidates, key=lambda c: (c.unsupported > self.max_unsupported, abs(c.mean_weight - 1.0)))

    def _used(self) -> Iterable[tuple[RegimeEstimand, int | None]]:
        for part in self._parts():
            arm = self.arm_[part.regime.name]
            yield part, POOLED if arm == "pooled" else int(arm)

    def _overlap(self, part: RegimeEstimand, group: int | None) -> GroupOverlap:
        rows = self.rows_
        w = self._weights(rows, part, group)
        member = rows.kept if group is POOLED else rows.kept & (rows.a == group)
        s = rows.weight * rows.kept
        raw = [self._probability(rows, prefix, clip=False) for prefix in part.weight(group).prefixes if prefix]
        extreme = [(p < AT_BOUND) | (p > 1.0 - AT_BOUND) for p in raw]
        clipped = [(p < self.clip) | (p > 1.0 - self.clip) for p in raw] if self.clip is not None else []
        cells, mass = unsupported_cells(
            part,
            group,
            rows.table[rows.kept],
            rows.a[rows.kept],
            rows.weight[rows.kept],
            lambda upto: self._target_weight(rows, part, upto),
            saturated=self.propensity == "saturated",
        )
        squares = float(np.sum((s * w) ** 2))
        return GroupOverlap(
            regime=part.regime.name,
            group=group,
            n=int((member & (s > 0)).sum()),
            mean_weight=float((s * w).sum() / s.sum()),
            max_weight=float(w.max()),
            effective_size=float((s * w).sum() ** 2 / squares) if squares else 0.0,
            at_bounds=int((np.any(extreme, axis=0) & member).sum()) if extreme else 0,
            clipped=int((np.any(clipped, axis=0) & member).sum()) if clipped else 0,
            cells=cells,
            unsupported=mass,
        )

    def _target_weight(self, rows: _Rows, part: RegimeEstimand, upto: int) -> NDArray[np.float64]:
        """Return the weights of kept rows that reproduce the world's law of the first nodes of the order."""
        w = part.weight(POOLED, upto).evaluate(lambda prefix: self._probability(rows, prefix))
        return np.broadcast_to(w, rows.a.shape)[rows.kept]

    def overlap(self) -> pd.DataFrame:
        """Return the overlap of the fitted rows: a row for each world and group that was considered.

        Columns: regime, group, used, n (rows that carry weight), mean_weight (1 in expectation), max_weight, ess
        (effective sample size in rows), at_bounds (rows with a propensity at 0 or 1), clipped, trimmed,
        unsupported_cells and their unsupported_mass in the target population.
        """
        check_is_fitted(self, "estimand_")
        return pd.DataFrame(
            [c.as_row(self.trimmed_, c.group_name == str(self.arm_[c.regime])) for c in self.candidates_]
        )

    # -- weights and worlds -------------------------------------------------------------------------------------------

    def _probability(self, rows: _Rows, prefix: Prefix, clip: bool = True) -> NDArray[np.float64]:
        """Return P(A = 1 | prefix) of each row, shape (n,); rows trimmed away hold 0.5, and no weight."""
        if prefix not in rows.probability:
            fitted = rows is self.rows_
            model = self.propensities_.get(prefix)
            if model is None:
                model = self._fit_prefix(prefix)
            p = np.full(len(rows.a), 0.5)
            p[rows.kept] = model.fitted if fitted else model.predict(self._prefix_table(rows, prefix)[0])
            rows.probability[prefix] = p
        p = rows.probability[prefix]
        return np.clip(p, self.clip, 1.0 - self.clip) if clip and self.clip is not None else p

    def _weights(self, rows: _Rows, part: RegimeEstimand, group: int | None) -> NDArray[np.float64]:
        w = part.weight(group).evaluate(lambda prefix: self._probability(rows, prefix))
        member = rows.kept if group is POOLED else rows.kept & (rows.a == group)
        w = np.where(member, w, 0.0)
        # Zero times infinity: the law of a later node is undefined there, which the overlap reports as unsupported.
        return np.where(np.isnan(w), 0.0, w)

    def _other_rows(self, df: pd.DataFrame | None, sample_weight: object) -> _Rows:
        check_is_fitted(self, "estimand_")
        if df is None and sample_weight is None:
            return self.rows_
        table = self.rows_.table if df is None else self._read(df)
        weight = read_weight(sample_weight, len(table))
        if table is self.rows_.table or table.equals(self.rows_.table):
            rows = _Rows(self.rows_.table, self.rows_.a, weight, self.rows_.kept, self.rows_.probability)
            for part, group in self._used():
                for prefix in part.weight(group).prefixes:
                    self._probability(self.rows_, prefix)
            return rows
        rows = _Rows(table, read_sensitive(table, self.unfair.graph, both=False), weight, np.ones(len(table), bool))
        rows.kept = self._inside(rows)
        return rows

    def weights(self, regime: Regime, df: pd.DataFrame | None = None) -> pd.Series[float]:
        """Return the unnormalised weight of each row in a world, 0 outside the weighted group.

        Parameters
        ----------
        regime
            One of ``unfair.regimes``.
        df
            Other rows than the fitted ones, weighted with the fitted propensities.

        Returns
        -------
        Series on the index of the rows
            Its mean is 1 in expectation; ``weights * score`` averages to the paper's estimate.
        """
        rows = self._other_rows(df, None)
        part = self.estimand_.of(regime)
        arm = self.arm_[part.regime.name]
        values = self._weights(rows, part, POOLED if arm == "pooled" else int(arm))
        return pd.Series(values, index=(self.rows_.table if df is None else df).index, name=regime.symbol)

    def worlds(
        self,
        n: int | None = None,
        random_state: object = None,
        *,
        df: pd.DataFrame | None = None,
        sample_weight: object = None,
    ) -> tuple[CounterfactualSample, CounterfactualSample]:
        """Return both worlds as weighted rows; nothing is drawn.

        Parameters
        ----------
        n, random_state
            Not used here: the rows are the observed ones.
        df
            Other rows than the fitted ones, weighted with the fitted propensities.
        sample_weight
            Weights of these rows, shape (n,).

        Returns
        -------
        baseline, switched
            The rows of the weighted group as the classifier reads them, with the sensitive attribute set to the value
            that the outcome reads in that world. ``(weight * score).sum()`` is the estimate of P(Y = 1).

        Raises
        ------
        DataError
            If these rows lack the weighted group.
        """
        if n is not None:
            raise DataError("IPW weights the observed rows and draws none: leave n out.")
        rows = self._other_rows(df, sample_weight)
        first, second = (self._world(rows, part, group) for part, group in self._used())
        return first, second

    def _world(self, rows: _Rows, part: RegimeEstimand, group: int | None) -> CounterfactualSample:
        graph = self.unfair.graph
        w = rows.weight * self._weights(rows, part, group)
        member = np.flatnonzero(rows.kept if group is POOLED else rows.kept & (rows.a == group))
        total = w.sum() if self.normalize else (rows.weight * rows.kept).sum()
        if not w.sum() > 0:
            raise DataError(
                f"The world {part.regime.symbol} has no row to weight: these {len(rows.a)} rows hold none of "
                f"group {group} with positive weight."
            )
        features = rows.table[graph.input_columns].iloc[member]
        origin = member
        arm = part.outcome_arm
        if arm is not None:
            changed = rows.a[member] != arm
            if changed.any():
                column = graph.sensitive_column
                model_row = int(np.flatnonzero(self.rows_.a == arm)[0])
                label = self.rows_.table[column].iloc[[model_row] * len(member)]
                features = features.assign(**{column: label.set_axis(features.index)})
                origin = np.where(changed, -1, member)
        return CounterfactualSample(features, w[member] / total, None, origin.astype(np.int64))
