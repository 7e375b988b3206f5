"""One-step estimates where the sensitive attribute is known in some rows only, at random given features and proxies."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from pyrofair._random import seed_from
from pyrofair.effects.estimates import CAUSAL, kish_size
from pyrofair.effects.influence import InfluenceValues, Scorer
from pyrofair.effects.potential_outcomes import FEWEST_ROWS, CounterfactualSample
from pyrofair.exceptions import DataError, PositivityError
from pyrofair.nuisances.crossfit import CrossFit
from pyrofair.nuisances.rows import Rows
from pyrofair.sources.onestep import OneStep
from pyrofair.sources.prefix_form import Columns, columns_of
from pyrofair.tables.labels import quantile_bands, read_sensitive, repeat_label
from pyrofair.tables.reading import feature_columns, read_table, read_weight
from pyrofair.tables.recorded import NOT_RECORDED, as_recorded
from pyrofair.tables.row_identity import hash_groups

__all__ = ["Disclosed"]

Array = NDArray[np.float64]

LEAST_CHANCE = 0.02
"""Rows whose sensitive attribute is known with a smaller probability are refused: few would stand for too many."""
MOST_LEVELS = 12
"""A proxy of more different numbers is shown by quarters, and of more categories the commonest are shown."""


class Disclosed(OneStep):
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
        An unfitted :class:`OneStep`, whose settings are taken.
    df
        The n rows that it will be fitted on; ``filled`` has them without gaps, and what fills these counts for nothing.
    proxies
        Columns of ``df`` outside the graph, whose gaps, if any, are read as those of features are.
    disclosure
        The model of pi and p: the name of a learner, or a scikit-learn classifier.

    References
    ----------
    Robins, Rotnitzky and Zhao (1994); Bang and Robins (2005).
    """

    def __init__(self, source: Any, df: pd.DataFrame, proxies: Sequence[str], disclosure: Any = "logistic") -> None:
        graph, names = source.unfair.graph, list(proxies)
        name = graph.sensitive_column
        if not isinstance(source, OneStep) or hasattr(source, "estimand_"):
            raise DataError(
                f"proxies= is for an unfitted OneStep, which is fitted on the rows of df in which {name!r} is known, "
                f"and {type(source).__name__} is {'fitted' if isinstance(source, OneStep) else 'none'}. Or give "
                "another source these rows alone, with sample_weight=1 / (the probability that it is known in a row), "
                "which has wider intervals."
            )
        nodes = [each for each in names if each in graph.node_of]
        if nodes or not names:
            found = f", and {nodes[0]!r} is in it: leave it out." if nodes else "."
            raise DataError(f"proxies={names} must name columns outside the graph that hint at {name!r}{found}")
        self.__dict__ |= source.get_params(deep=False)
        self.source, self.disclosure = repr(source), disclosure
        self.proxies = read_table(df, names, what="df", missing=self.missing)
        values = df[name] if name in df.columns else read_table(df, [name], what="df")[name]
        self.known = values.notna().to_numpy()
        if self.known.all() or not self.known.any():
            cure = (
                "known in every row of df: leave out proxies=." if self.known.all() else "missing in every row of df."
            )
            raise DataError(f"The sensitive attribute {name!r} is {cure}")
        self.filled = df.assign(**{name: values.where(self.known, values[self.known].iloc[0])})

    def __sklearn_clone__(self) -> Self:
        return copy.copy(self)

    def __repr__(self, *_: Any) -> str:
        return f"{self.source}, the sensitive attribute known in some rows, with {', '.join(map(str, self.proxies))}"

    def fit(
        self, df: pd.DataFrame, sample_weight: npt.ArrayLike | None = None, groups: npt.ArrayLike | None = None
    ) -> Self:
        """Fit the probability that A is known, the distribution of A, and what the estimates need.

        A PositivityError if A is hardly ever known for some rows, or in too few rows of a group.
        """
        graph, known, seed = self.unfair.graph, self.known, seed_from(self.random_state)
        table = read_table(df, feature_columns(graph), missing=self.missing)
        weight, a = read_weight(sample_weight, table), read_sensitive(table, graph)
        units = np.arange(len(a)) if groups is None else pd.factorize(np.asarray(groups))[0]
        own = None if groups is None else units[known]
        given = pd.concat([table.drop(columns=graph.sensitive_column), self.proxies.set_axis(table.index)], axis=1)
        given = as_recorded(given, given)
        model = CrossFit(self.disclosure, seed, self.folds, always=True)  # residuals of p make the interval
        of_all = None if groups is None else units
        self.chance = copy.copy(model).fit(given, known.astype(np.int8), weight, of_all).fitted
        position = np.full(len(a), -1)
        position[known] = np.arange(known.sum())
        self.rows = Rows.of(table, a, weight, table, position=position)
        self._require_overlap()
        model.fit(given[known], a[known], weight[known], own)
        self.law = model.predict(given)
        self.law[known] = model.fitted
        rest, self.random_state = np.flatnonzero(~known), seed
        at = np.concatenate([np.flatnonzero(known), rest, rest])
        group = np.concatenate([a[known], np.repeat([0, 1], len(rest))]).astype(np.int8)
        share = np.concatenate([np.ones(known.sum()), 1.0 - self.law[rest], self.law[rest]])
        seen = table[known]
        by_chance = read_weight((weight / self.chance)[known], seen)
        fitted = Rows.of(seen, read_sensitive(seen, graph, weight=by_chance), by_chance, table, groups=hash_groups(own))
        return self.fit_rows(fitted, Rows.of(table.iloc[at], group, weight[at] * share, table, groups=units[at]))

    def _require_overlap(self) -> None:
        """Refuse rows whose A is hardly ever known, and groups with too few rows where it is."""
        graph, proxies = self.unfair.graph, ", ".join(map(repr, self.proxies))
        name, low = graph.sensitive_column, (self.chance < LEAST_CHANCE) & (self.rows.weight > 0.0)
        if low.any():
            raise PositivityError(
                f"{name!r} is hardly ever known in {int(low.sum()):,} of {len(low):,} rows: the probability, given the "
                f"features and {proxies}, is as small as {self.chance[low].min():.3g}, and {LEAST_CHANCE:g} is the "
                "least. Leave out the levels or ranges in which it is never known, and say that the numbers are not "
                "about these rows; or join levels."
            )
        few = min((0, 1), key=self._size)
        if self._size(few) < FEWEST_ROWS:
            raise PositivityError(
                f"The rows known to have {name}={graph.label(few)!r} have the effective size {self._size(few):.1f}, "
                f"fewer than {FEWEST_ROWS}, once weighted by how rarely {name!r} is known. Ask for it in more rows."
            )

    def _size(self, group: int) -> float:
        """Return the effective number of rows known to be of a group."""
        return kish_size((self.rows.weight / self.chance)[self.known & (self.rows.a == group)])

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions of the estimates, and that A is missing at random."""
        name, given = self.unfair.graph.sensitive_column, ["the features", *map(str, self.proxies)]
        return (
            *super().assumptions,
            f"Whether {name} is known depends on {name} only through {', '.join(given[:-1])} and {given[-1]}; either "
            f"the chance of disclosure or the law of {name} given these is right.",
        )

    def describe(self) -> list[str]:
        """Return in how many rows A is known, with what probability, and the effective size of either group."""
        graph, known = self.unfair.graph, self.known
        sizes = " and ".join(f"{self._size(value):,.0f} with {graph.named(graph.label(value))!r}" for value in (0, 1))
        return [
            f"{graph.sensitive_column!r} is known in {int(known.sum()):,} of {len(known):,} rows ({known.mean():.0%}), "
            f"with a probability estimated at {self.chance.min():.2g} to {self.chance.max():.2g}; the effective sizes "
            f"of these rows are {sizes}."
        ]

    @property
    def shares(self) -> pd.DataFrame:
        """How often A is known by level, or quarter, of each proxy: rows, known (a share), its probability."""
        parts, of = [], pd.DataFrame({"known": self.known, "chance": self.chance})
        for name, values in self.proxies.items():
            many = is_numeric_dtype(values) and values.nunique() > MOST_LEVELS
            levels = quantile_bands(values.astype(float), 4) if many else values
            found = of.groupby(levels.to_numpy() if not many else levels.array, observed=True, dropna=False).agg(
                rows=("known", "size"),
                known=("known", "mean"),
                probability=("chance", "mean"),
                smallest_probability=("chance", "min"),
            )
            found = found.nlargest(MOST_LEVELS, "rows").sort_index()
            found.insert(0, "level", [NOT_RECORDED if pd.isna(each) else str(each) for each in found.index])
            found.insert(0, "proxy", str(name))
            parts.append(found)
        return pd.concat(parts, ignore_index=True)

    def stages(
        self,
        df: pd.DataFrame | None = None,
        sample_weight: npt.ArrayLike | None = None,
        groups: NDArray[Any] | None = None,
    ) -> pd.DataFrame:
        """Return the diagnostics of the weights of each stage, on the rows where A is known."""
        if df is None:
            return super().stages()
        at = self.fitted_rows(df)
        weight = read_weight(sample_weight, df)[at >= 0] / self.chance[self.known][at[at >= 0]]
        return super().stages(df[at >= 0], weight, None if groups is None else groups[at >= 0])

    def by_group(
        self, score: Scorer, df: pd.DataFrame | None = None, sample_weight: npt.ArrayLike | None = None
    ) -> dict[str, tuple[Array, ...]]:
        """Return nothing: the groups cannot be compared where they are not known."""
        return {}

    def influence(
        self,
        score: Scorer,
        df: pd.DataFrame | None = None,
        sample_weight: npt.ArrayLike | None = None,
        groups: NDArray[Any] | None = None,
    ) -> InfluenceValues:
        """Return the influence values psi of the fitted rows, and their decisions if these depend on A.

        The values of either group are those of the first split into folds, which all rows share; others join in where A
        is known.
        """
        if df is not None:
            raise DataError("Where the sensitive attribute is known in some rows, the rows fitted are those judged.")
        rows, at = self.rows, np.flatnonzero(self.known)
        own = super().influence(known := _OnRows(score, at, np.ones(len(at), dtype=bool)))
        judge, columns = self.judge(known), self.unfair.graph.input_columns
        reads = self.estimand_.target == "prediction" and self.unfair.graph.sensitive_column in columns
        found, decided = [], []
        for group in (0, 1):
            each, same = self._as_group(group), (self.known & (rows.a == group)) | (not reads)
            found.append(judge(asked := _OnRows(score, np.arange(len(same)), same), each))
            if reads:
                sample = CounterfactualSample(each.given[columns], rows.weight, origin=np.arange(len(same)))
                decided.append(np.asarray(asked(sample)).reshape(len(same), -1))
        values: dict[str, Any] = {
            name: self._augment([getattr(each, name) for each in found], getattr(own, name)) for name in CAUSAL
        }
        if own.apart is not None:
            none = [np.zeros_like(values["y0"])] * 2
            values["apart"] = {
                name: np.stack([self._augment(none, each) for each in moves]) for name, moves in own.apart.items()
            }
        if reads:
            values["decided"] = self._augment(decided, np.where(rows.a[at, None] == 1, decided[1][at], decided[0][at]))
        return replace(own, weight=rows.weight / rows.weight.mean(), **values)

    def _as_group(self, group: int) -> Rows:
        """Return all rows as if they were of one group."""
        name, table = self.unfair.graph.sensitive_column, self.rows.table
        label = repeat_label(table[name], self.unfair.graph.label(group), table.index)
        codes = np.full(len(table), group, np.int8)
        rows, shown = self.rows, self.rows.shown
        shown = None if shown is None else shown.assign(**{name: label})
        return replace(rows, table=table.assign(**{name: label}), a=codes, probability={}, views={}, shown=shown)

    def _augment(self, of: Sequence[Array], own: Array) -> Array:
        """Return psi (n, Q) from the values (n, Q) of either group, and those of the rows where A is known (m, Q)."""
        values = (1.0 - self.law)[:, None] * of[0] + self.law[:, None] * of[1]
        values[self.known] += (own - values[self.known]) / self.chance[self.known, None]
        return values


@dataclass(frozen=True, eq=False)
class _OnRows:
    """The scores of samples of rows at some positions (m,), observed as they are where they are the ``same``."""

    score: Scorer
    at: NDArray[np.int64]
    same: NDArray[np.bool_]

    @property
    def columns(self) -> Columns:
        """The models and decisions of its columns."""
        return columns_of(self.score)

    def __call__(self, sample: CounterfactualSample) -> Array:
        """Return the scores (m, Q)."""
        if sample.origin is None:
            return self.score(sample)
        kept = (sample.origin >= 0) & self.same[sample.origin]
        return self.score(replace(sample, origin=np.where(kept, self.at[sample.origin], -1)))
