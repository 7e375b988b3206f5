"""One-step estimates where the sensitive attribute is known in some rows only, at random given features and proxies."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from pyrofair._random import seed_from
from pyrofair.effects.estimates import CAUSAL
from pyrofair.effects.influence import InfluenceValues, Scorer
from pyrofair.effects.potential_outcomes import FEWEST_ROWS, CounterfactualSample, kish_size
from pyrofair.exceptions import DataError, PositivityError
from pyrofair.nuisances.crossfit import CrossFit
from pyrofair.nuisances.learners import LearnerName
from pyrofair.nuisances.rows import Rows
from pyrofair.tables.labels import read_sensitive, repeat_label
from pyrofair.tables.reading import feature_columns, read_table, read_weight

if TYPE_CHECKING:
    from pyrofair.sources.onestep import OneStep

__all__ = ["Disclosed", "fill_gaps"]

Array = NDArray[np.float64]

LEAST_CHANCE = 0.02
"""Rows whose sensitive attribute is known with a smaller probability are refused: few would stand for too many."""
MOST_LEVELS = 12
"""A proxy of more different numbers is shown by quarters, and more categories than these are not all shown."""


def fill_gaps(df: pd.DataFrame, name: str) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    """Return a table whose gaps in a column hold one of its values, and which rows had none, (n,)."""
    if name not in df.columns:
        read_table(df, [name], what="df")  # which says so
    values = df[name]
    known = values.notna().to_numpy()
    if not known.any():
        raise DataError(f"The sensitive attribute {name!r} is missing in every row of df; some must show it.")
    if known.all():
        raise DataError(f"The sensitive attribute {name!r} is known in every row of df: leave out proxies=.")
    filled = values.where(known, values[known].iloc[0])
    return df.assign(**{name: filled}), known


class Disclosed(BaseEstimator):  # type: ignore[misc]
    """One-step estimates of n rows, of which those with a known sensitive attribute A stand for the others.

    Let V be the features and proxies, R whether A is known, pi(V) the probability of that, p(V) = P(A = 1 | V, R = 1),
    and phi(a) the influence value of a row with A = a. Then ``psi = mu + R / pi (phi(A) - mu)`` with
    ``mu = (1 - p) phi(0) + p phi(1)`` has the mean of phi(A) over all rows if either pi or p is right. The regressions
    in phi are learned from the rows with a known A, weighted by 1 / pi, and the propensities from all rows, those with
    an unknown A in either group by p. So if pi is right the regressions are, and else the propensities, if p is right:
    either is enough for phi.

    *Assumes* that R depends on A only through V.

    Parameters
    ----------
    source
        The source of the influence values, unfitted.
    proxies
        What is known of A in all rows beside the features, (n, k), in the order of the rows that are fitted.
    known
        Whether A is known, (n,); in other rows its value counts for nothing.
    disclosure
        The model of pi and p: the name of a learner, or a scikit-learn classifier.

    References
    ----------
    Robins, Rotnitzky and Zhao (1994); Bang and Robins (2005).
    """

    source_: OneStep

    def __init__(
        self,
        source: OneStep,
        proxies: pd.DataFrame,
        known: NDArray[np.bool_],
        disclosure: LearnerName | ClassifierMixin = "logistic",
    ) -> None:
        self.source = source
        self.proxies = proxies
        self.known = known
        self.disclosure = disclosure

    def __repr__(self, *_: Any) -> str:
        return f"{self.source!r}, the sensitive attribute known in some rows, with {', '.join(self.proxies)}"

    def fit(
        self, df: pd.DataFrame, sample_weight: npt.ArrayLike | None = None, groups: npt.ArrayLike | None = None
    ) -> Self:
        """Fit the probability that A is known, the source on the rows where it is, and the distribution of A.

        A PositivityError if A is hardly ever known for some rows, or in too few rows of a group.
        """
        graph, known = self.unfair.graph, self.known
        table = read_table(df, feature_columns(graph))
        weight, a = read_weight(sample_weight, table), read_sensitive(table, graph)
        codes = None if groups is None else np.asarray(groups)
        own = None if codes is None else codes[known]
        seen = pd.concat([table.drop(columns=graph.sensitive_column), self.proxies.set_axis(table.index)], axis=1)
        folds, seed = self.source.folds, seed_from(self.source.random_state)
        chance = CrossFit(self.disclosure, seed, folds).fit(seen, known.astype(np.int8), weight, codes)
        self.chance_ = chance.fitted
        self._require_overlap(a, weight)
        law = CrossFit(self.disclosure, seed, folds).fit(seen[known], a[known], weight[known], own)
        self.law_ = law.predict(seen)
        self.law_[known] = law.fitted
        rows = Rows.read(table[known], (weight / self.chance_)[known], graph, own)
        inner = clone(self.source).set_params(random_state=seed)
        self.source_ = inner.fit_rows(rows, self._in_either_group(table, a, weight, codes))
        position = np.full(len(a), -1)
        position[known] = np.arange(known.sum())
        self._rows = Rows(table, a, weight, np.ones(len(a), dtype=bool), position=position)
        return self

    def _in_either_group(self, table: pd.DataFrame, a: NDArray[np.int8], weight: Array, codes: Any) -> Rows:
        """Return the rows where A is known, and each other row once in either group, by its probabilities."""
        known, rest = np.flatnonzero(self.known), np.flatnonzero(~self.known)
        at = np.concatenate([known, rest, rest])
        group = np.concatenate([a[known], np.zeros(len(rest)), np.ones(len(rest))]).astype(np.int8)
        share = np.concatenate([np.ones(len(known)), 1.0 - self.law_[rest], self.law_[rest]])
        units = np.arange(len(a)) if codes is None else pd.factorize(codes)[0]
        return Rows(table.iloc[at], group, weight[at] * share, np.ones(len(at), dtype=bool), groups=units[at])

    def _require_overlap(self, a: NDArray[np.int8], weight: Array) -> None:
        """Refuse rows whose A is hardly ever known, and groups with too few rows where it is."""
        graph, proxies = self.unfair.graph, ", ".join(map(repr, self.proxies))
        name, low = graph.sensitive_column, (self.chance_ < LEAST_CHANCE) & (weight > 0.0)
        if low.any():
            raise PositivityError(
                f"{name!r} is hardly ever known in {int(low.sum()):,} of {len(a):,} rows: the probability, given the "
                f"features and {proxies}, is as small as {self.chance_[low].min():.3g}, and {LEAST_CHANCE:g} is the "
                "least. Leave out the levels or ranges in which it is never known, and say that the numbers are not "
                "about these rows; or join levels."
            )
        for value in (0, 1):
            size = self._group_size(a, weight, value)
            if size < FEWEST_ROWS:
                raise PositivityError(
                    f"The rows known to have {name}={graph.label(value)!r} have the effective size {size:.1f}, fewer "
                    f"than {FEWEST_ROWS}, once weighted by how rarely {name!r} is known. Ask for it in more rows."
                )

    def _group_size(self, a: NDArray[np.int8], weight: Array, value: int) -> float:
        return kish_size((weight / self.chance_)[self.known & (a == value)])

    @property
    def unfair(self) -> Any:
        """The unfair paths."""
        return self.source.unfair

    @property
    def form_(self) -> str:
        """The form of the source."""
        return self.source_.form_

    @property
    def conditioned_on(self) -> tuple[str, ...]:
        """The nodes that the sensitive attribute does not cause and on which every stage conditions."""
        return self.source_.conditioned_on

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions of the source, and that A is missing at random."""
        name, proxies = self.unfair.graph.sensitive_column, " and ".join(map(str, self.proxies))
        return (
            *self.source_.assumptions,
            f"Whether {name} is known depends on {name} only through the features and {proxies}; either the chance of "
            f"disclosure or the law of {name} given these is right.",
        )

    def describe(self) -> list[str]:
        """Return in how many rows A is known, with what probability, and the effective size of either group."""
        graph, rows, known = self.unfair.graph, self._rows, self.known
        sizes = (f"{self._group_size(rows.a, rows.weight, value):,.0f} with {graph.label(value)!r}" for value in (0, 1))
        return [
            f"{graph.sensitive_column!r} is known in {int(known.sum()):,} of {len(known):,} rows "
            f"({known.mean():.0%}), with an estimated probability of {self.chance_.min():.2g} to "
            f"{self.chance_.max():.2g}; the effective size of the rows where it is known is {', '.join(sizes)}."
        ]

    @property
    def shares(self) -> pd.DataFrame:
        """How often A is known by level, or quarter, of each proxy: rows, known (a share), chance and its smallest."""
        parts = []
        for name in self.proxies:
            values = self.proxies[name].reset_index(drop=True)
            if is_numeric_dtype(values) and values.nunique() > MOST_LEVELS:
                values = pd.qcut(values.astype(float), 4, duplicates="drop")
            each = pd.DataFrame({"known": self.known, "chance": self.chance_}).groupby(values.astype(str).to_numpy())
            found = each.agg(rows=("known", "size"), known=("known", "mean"), chance=("chance", "mean"))
            found["smallest_chance"] = each["chance"].min()
            parts.append(found.reset_index(names="level").assign(proxy=name).nlargest(MOST_LEVELS, "rows").sort_index())
        columns = ["proxy", "level", "rows", "known", "chance", "smallest_chance"]
        return pd.concat(parts, ignore_index=True)[columns]

    def for_outcome(self) -> Disclosed:
        """Return the source for an observed outcome; see :meth:`OneStep.for_outcome`."""
        other = copy.copy(self)
        other.source_ = self.source_.for_outcome()
        return other

    def stages(self, df: pd.DataFrame | None = None, sample_weight: npt.ArrayLike | None = None) -> pd.DataFrame:
        """Return the diagnostics of the weights of each stage, on the rows where A is known."""
        if df is None:
            return self.source_.stages()
        at = self.source_.fitted_rows(df)
        weight = read_weight(sample_weight, df)[at >= 0] / self.chance_[self.known][at[at >= 0]]
        return self.source_.stages(df[at >= 0], weight)

    def by_group(self, *_: Any) -> dict[str, tuple[Array, ...]]:
        """Return nothing: the groups are not compared, as the group of most rows may not be known."""
        return {}

    def influence(
        self, score: Scorer, df: pd.DataFrame | None = None, sample_weight: npt.ArrayLike | None = None
    ) -> InfluenceValues:
        """Return the influence values psi of the fitted rows, and their decisions if these depend on A.

        The values of either group are those of the first split into folds, which all rows then share; others join in
        the rows where A is known.
        """
        if df is not None:
            raise DataError("Where the sensitive attribute is known in some rows, the rows fitted are those judged.")
        rows, at = self._rows, np.flatnonzero(self.known)
        known = _on_rows(score, at, np.ones(len(at), dtype=bool))
        own, judge = self.source_.influence(known), self.source_.judge(known)
        prediction = self.source_.estimand_.target == "prediction"
        reads = prediction and self.unfair.graph.sensitive_column in self.unfair.graph.input_columns
        found, decided = [], []
        for value in (0, 1):
            each, same = self._as_group(value), (self.known & (rows.a == value)) | (not reads)
            asked = _on_rows(score, np.arange(len(same)), same)
            found.append(judge(asked, each))
            if reads:
                sample = CounterfactualSample(
                    each.table[self.unfair.graph.input_columns], rows.weight, origin=np.arange(len(same))
                )
                decided.append(np.asarray(asked(sample)).reshape(len(same), -1))
        values = {name: self._augment([getattr(each, name) for each in found], getattr(own, name)) for name in CAUSAL}
        apart = None if own.apart is None else {name: self._weighted(each) for name, each in own.apart.items()}
        return replace(
            own,
            **values,
            weight=rows.weight / rows.weight.mean(),
            apart=apart,
            decided=self._augment(decided, np.where(rows.a[at, None] == 1, *(each[at] for each in decided[::-1])))
            if reads
            else None,
        )

    def _as_group(self, value: int) -> Rows:
        """Return all rows as if they were of one group."""
        graph, rows = self.unfair.graph, self._rows
        name = graph.sensitive_column
        label = repeat_label(rows.table[name], graph.label(value), rows.table.index)
        return replace(
            rows, table=rows.table.assign(**{name: label}), a=np.full(len(rows.a), value, np.int8), probability={}
        )

    def _augment(self, of: Sequence[Array], own: Array) -> Array:
        """Return psi (n, Q) from the values (n, Q) of either group, and those of the rows where A is known (m, Q)."""
        zero, one = of
        values = (1.0 - self.law_)[:, None] * zero + self.law_[:, None] * one
        values[self.known] += (own - values[self.known]) / self.chance_[self.known, None]
        return values

    def _weighted(self, moves: Array) -> Array:
        """Return moves of the values of rows where A is known, (k, m, Q), as those of all rows."""
        found = np.zeros((len(moves), len(self.known), moves.shape[2]))
        found[:, self.known] = moves / self.chance_[self.known, None]
        return found


def _on_rows(score: Scorer, at: NDArray[np.int64], same: NDArray[np.bool_]) -> Scorer:
    """Return the scores of samples of rows at some positions (m,), observed as they are where they are the ``same``."""

    def asked(sample: CounterfactualSample) -> Array:
        if sample.origin is None:
            return score(sample)
        kept = (sample.origin >= 0) & same[sample.origin]
        return score(replace(sample, origin=np.where(kept, at[sample.origin], -1)))

    return asked
