"""Closed-form bounds on both marginals where one mediator is a recanting witness and another one is discrete."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from pyrofair._random import fresh_state
from pyrofair._validation import (
    Constraint,
    check_settings,
    optional,
    require_flag,
    require_instance,
    require_real,
    require_seed,
)
from pyrofair.effects.adapters import Score, ask_scores
from pyrofair.effects.bounds import bounds_of_marginals, table_of_bounds
from pyrofair.effects.estimates import Estimate, Share, kish_size
from pyrofair.effects.functionals import unit_sums
from pyrofair.effects.potential_outcomes import (
    FEWEST_ROWS,
    CounterfactualSample,
    MarginalBounds,
    Scored,
    Worlds,
)
from pyrofair.effects.row_functions import Scores
from pyrofair.effects.scoring import Decisions, decide, require_decisions
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.paths import UnfairPaths
from pyrofair.graph.two_mediators import Arms, Form
from pyrofair.tables.labels import as_levels, encode_levels, read_sensitive, repeat_label
from pyrofair.tables.reading import as_pandas, feature_columns, read_table, read_weight, warn_unused

__all__ = ["MilesBounds"]

Array = NDArray[np.float64]
Interval = tuple[float, float]
MOST_ROWS = 1_000_000
"""The most pairs of a level of M and a value of R that are scored."""
MANY_LEVELS = 10
"""With more levels of M there is a warning at once: ends move in less than a fifth of [0, 1], the mean over levels."""
FLAT = 0.25
"""Ends that move with the scores of levels of a smaller mass than this are called flat."""

CONSTRAINTS: dict[str, Constraint] = {
    "unfair": partial(require_instance, types=UnfairPaths, expected="unfair paths, made by graph.unfair(...)"),
    "literal": require_flag,
}


class MilesBounds(BaseEstimator):  # type: ignore[misc]
    r"""Bounds on P(Y0 = 1) and P(Ypi = 1) for a discrete mediator M and a recanting witness R, in closed form.

    The graph is ``A -> R; A -> M; R -> M; {A R M} -> Y``, in which ``A -> M`` and ``A -> Y`` may be absent. If
    ``A -> Y`` and ``A -> R -> Y`` are unfair, and what runs through M is not, the prediction reads R as under A = 1 and
    M as under A = 0, whose joint distribution no data show. With p(m) = P(M = m given A = 0), and f(m) the mean of
    c(1, m, R) over R given A = 1,

        sum over m of max(0, p(m) + f(m) - 1)  <=  P(Ypi = 1)  <=  sum over m of min(p(m), f(m)),

    while P(Y0 = 1) is identified: the mean score of the rows with A = 0. Both p and f are means over rows, so that R
    may be continuous, of any number of columns, and no mechanism is learned. Other sets of paths by which M reads one
    value of A and R the other are bounded alike. It is :class:`~pyrofair.effects.Bounding`: it trains a
    :class:`PenalizedClassifier` with ``penalty=interval_disagreement``.

    Assumes that nothing latent causes both A and R, or both A and M. Latent causes of R, M and the observed outcome, in
    whatever combination, and any dependence between worlds are allowed.

    Parameters
    ----------
    unfair
        The unfair paths.
    literal
        Whether to use the formulas as the paper prints them for unfair ``A -> Y``: those above for P(Ypi = 1), which do
        not bound the effect along ``A -> Y`` alone, and the same with R and the classifier at A = 0 for P(Y0 = 1).

    Attributes
    ----------
    witness_, mediator_ : str
        The nodes R and M.

    References
    ----------
    Chikahara et al. (2021), appendix "Addressing latent confounders"; Miles, Kanki, Meloni and Tchetgen Tchetgen
    (2017).

    Examples
    --------
    >>> graph = CausalGraph("A -> {R M}; R -> M; {A R M} -> Y", sensitive="A", outcome="Y")
    >>> rng = np.random.default_rng(0)
    >>> A = rng.integers(0, 2, 4000)
    >>> R = A + rng.normal(size=4000)
    >>> df = pd.DataFrame({"A": A, "R": R, "M": (R + A + rng.normal(size=4000) > 1).astype(int)})
    >>> source = MilesBounds(graph.unfair("A -> Y", "A -> R -> Y")).fit(df)
    >>> (l0, u0), (l1, u1) = source.intervals(lambda rows: 0.1 + 0.4 * rows["A"] + 0.3 * rows["M"])
    >>> l0 == u0, [round(end, 2) for end in (l0, l1, u1)]
    (True, [0.17, 0.3, 0.74])
    """

    table_: pd.DataFrame
    weight_: Array
    witness_: str
    mediator_: str

    def __init__(self, unfair: UnfairPaths, *, literal: bool = False) -> None:
        self.unfair = unfair
        self.literal = literal

    # -- fitting ------------------------------------------------------------------------------------------------------

    def fit(self, df: pd.DataFrame, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Take the rows whose distributions enter the bounds; nothing is learned.

        Parameters
        ----------
        df, sample_weight
            n rows with the columns of A, R and M, and their weights (n,).

        Warns
        -----
        PyrofairWarning
            If M has so many levels that the ends hardly depend on a classifier.

        Raises
        ------
        GraphError
            If the graph is another one, or the paths are identified or not bounded by this formula.
        DataError
            If the table is unfit, a group is empty, or M and R take more than a million pairs of values.
        """
        check_settings(self, CONSTRAINTS)
        form = Form.of(self.unfair, literal=self.literal)
        rows = _Rows.read(df, sample_weight, self.unfair.graph)
        warn_unused(df, self.unfair.graph)
        levels = max(len(self._levels(form, rows, arms)[0]) for arms in form.worlds if arms is not None)
        self.witness_, self.mediator_ = form.witness, form.mediator
        self.table_, self.weight_ = rows.table, rows.weight
        if levels > MANY_LEVELS:
            warnings.warn(
                f"{self.mediator_!r} has {levels} levels m. The ends move with the mean score f(m) of a level only "
                f"where f(m) < P(m) or f(m) > 1 - P(m), which is {2 / levels:.1%} of [0, 1], the mean over levels: "
                "expect an upper end near 1 and a lower end near 0, and no gradient at most levels in training. "
                "levels(score) lists them for a classifier; joining levels before the classifier is fitted helps.",
                PyrofairWarning,
                stacklevel=2,
            )
        return self

    @property
    def n_fitted_(self) -> int:
        """The number of rows it was fitted on."""
        check_is_fitted(self, "table_")
        return len(self.table_)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What its numbers depend on, one sentence each."""
        graph, form = self.unfair.graph, Form.of(self.unfair, literal=self.literal)
        sensitive, witness, mediator = graph.sensitive, form.witness, form.mediator
        latent = f", and no latent node is missing beyond those declared ({', '.join(graph.latent)})" * bool(
            graph.latent
        )
        found = [
            f"The graph is right: no edge is missing{latent}.",
            f"Nothing latent causes both {sensitive} and {witness}, or both {sensitive} and {mediator}.",
            f"The outcome is the prediction, a known function of the features. {witness} and {mediator} may have any "
            "joint distribution across worlds and latent common causes, with each other and with the observed outcome.",
            "The ends are those of a closed form: valid, and in general not sharp. They are estimates, which tend to "
            "lie inside; with level= they are moved outward.",
        ]
        if self.literal:
            found.append(
                f"The formulas are those printed in the paper for {sensitive} -> {graph.outcome}. They bound the "
                f"effect along {sensitive} -> {graph.outcome} and {sensitive} -> {witness} -> {graph.outcome} "
                f"together, not that along {sensitive} -> {graph.outcome} alone, which they can miss; and the baseline "
                "marginal, which is identified, has an interval."
            )
        return tuple(found)

    # -- scores and ends ----------------------------------------------------------------------------------------------

    def samples(self, df: pd.DataFrame | None = None, sample_weight: npt.ArrayLike | None = None) -> Worlds:
        """Return the rows whose scores :meth:`ends` needs, for each world; they are no samples of these worlds.

        A world that is bounded has each value of R, as often as in its group, with each level m of M; ``unit`` numbers
        the levels, and the weights of a level sum to its probability. One that is identified has observed rows.

        Parameters
        ----------
        df, sample_weight
            Rows whose distributions are taken, by default the fitted ones, and their weights.
        """
        check_is_fitted(self, "table_")
        form = Form.of(self.unfair, literal=self.literal)
        graph = self.unfair.graph
        if df is None and sample_weight is not None:
            raise DataError("sample_weight= is of the rows of df=, which is missing; give both, or weights in fit.")
        rows = _Rows(self.table_, self.weight_, graph) if df is None else _Rows.read(df, sample_weight, graph)
        first, second = (
            rows.of_group(form.baseline) if arms is None else self._bounded(form, rows, arms) for arms in form.worlds
        )
        return first, second

    def ends(self, scored0: Scored, scored1: Scored) -> tuple[Scored | MarginalBounds, Scored | MarginalBounds]:
        """Return the bounds on both marginals, given the scores of :meth:`samples`, of which they may carry gradients.

        A world that is identified is returned as it is.
        """
        first, second = (each if each.unit is None else _bound(each) for each in (scored0, scored1))
        return first, second

    def intervals(
        self,
        score: Score,
        *,
        decisions: Decisions = "score",
        threshold: float = 0.5,
        level: float | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> tuple[Interval, Interval]:
        """Return the ends of P(Y0 = 1) and of P(Ypi = 1), ``((l0, u0), (l1, u1))``, for a known classifier.

        Parameters
        ----------
        score
            A fitted classifier with ``predict_proba``, :class:`ScoresOf` or :class:`DecisionsOf`, or a function that
            takes a table of m rows and returns their scores in [0, 1], shape (m,). It is asked for rows that may not
            occur, with R of one row and M of another. The regression of the observed outcome on A, R and M bounds
            that outcome, if nothing latent causes both M and it, or both M and R.
        decisions, threshold
            ``"score"``: decisions are drawn with the score as probability; ``"threshold"``: the score exceeds it.
        level
            Moves the ends outward by their sampling error, so that each world's interval is covered with so much
            confidence in large samples; None leaves them where they are, at estimates that tend to lie inside. Which
            term of a maximum or minimum counts is chosen on one half of the rows, and the term is estimated on the
            other.
        random_state
            Seeds the split into halves.

        Raises
        ------
        DataError
            If the scores are unfit, or with ``level`` a group has fewer rows than an interval can depend on.
        """
        check_is_fitted(self, "table_")
        require_decisions(decisions, threshold)
        optional(_require_level)("level", level)
        require_seed(random_state)
        worlds = self.samples()
        scores = [decide(each, decisions, threshold) for each in self._ask(score, worlds)]
        first, second = self.ends(*(world.scored(own) for world, own in zip(worlds, scores, strict=True)))
        plain = _as_floats(first), _as_floats(second)
        if level is None:
            return plain
        form = Form.of(self.unfair, literal=self.literal)
        rows, random = _Rows(self.table_, self.weight_, self.unfair.graph), fresh_state(random_state)
        found = [
            self._widened(form, rows, arms, own, level, random) for arms, own in zip(form.worlds, scores, strict=True)
        ]
        low, high = (
            (max(min(ends[0], wide[0]), 0.0), min(max(ends[1], wide[1]), 1.0))
            for ends, wide in zip(plain, found, strict=True)
        )
        return low, high

    def bounds(
        self,
        score: Score,
        *,
        decisions: Decisions = "score",
        threshold: float = 0.5,
        level: float | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> pd.DataFrame:
        """Return what the intervals imply of the mean unfair effect and of PIU, beside them.

        Parameters are those of :meth:`intervals`; with ``level`` all rows hold together with so much confidence.

        Returns
        -------
        DataFrame, 4 rows
            By quantity, p_y0, p_ypi, mean_unfair_effect and piu: lower and upper. The last two hold for any two
            marginals within the intervals, whatever the joint distribution of the two decisions.
        """
        if level is not None:
            level = (1.0 + _require_level("level", level)) / 2.0
        ends = self.intervals(score, decisions=decisions, threshold=threshold, level=level, random_state=random_state)
        return table_of_bounds(*ends, bounds_of_marginals(*ends)[1])

    def levels(self, score: Score, *, decisions: Decisions = "score", threshold: float = 0.5) -> pd.DataFrame:
        """Return what each level of M contributes to the ends of P(Ypi = 1), and which ends its scores move.

        Parameters are those of :meth:`intervals`.

        Returns
        -------
        DataFrame
            A row for each level of M: its columns, ``probability`` P(m), ``mean_score`` f(m), ``lower`` and ``upper``
            (their sums are the ends), ``moves_lower`` and ``moves_upper``: whether that end changes with f(m), so that
            a penalty on it has a gradient there.
        """
        check_is_fitted(self, "table_")
        require_decisions(decisions, threshold)
        form = Form.of(self.unfair, literal=self.literal)
        world = self.samples()[1]
        own = world.scored(decide(self._ask(score, [world])[0], decisions, threshold))
        probability, mean = (each.numpy() for each in _by_level(own))
        _, first = np.unique(world.unit_index, return_index=True)
        columns = self.unfair.graph.columns_of([form.mediator])
        found: pd.DataFrame = world.rows[columns].iloc[first].reset_index(drop=True)
        return found.assign(
            probability=probability,
            mean_score=mean,
            lower=np.maximum(0.0, probability + mean - 1.0),
            upper=np.minimum(probability, mean),
            moves_lower=mean > 1.0 - probability,
            moves_upper=mean < probability,
        )

    def flatness(self, score: Score) -> str:
        """Return a warning if the ends hardly move with the scores of a classifier, or an empty string."""
        table = self.levels(score)
        moving = table["moves_lower"] | table["moves_upper"]
        share = float(table.loc[moving, "probability"].sum())
        if share >= FLAT:
            return ""
        return (
            f"The ends of P(Ypi = 1) move with the mean scores of {int(moving.sum())} of the {len(table)} levels of "
            f"{self.mediator_!r}, which have {share:.1%} of its distribution: elsewhere the penalty has no gradient "
            f"(the ends are {table['lower'].sum():.3f} and {table['upper'].sum():.3f}). See levels(score); fewer "
            "levels give ends that move."
        )

    # -- parts --------------------------------------------------------------------------------------------------------

    def _ask(self, score: Score, worlds: Sequence[CounterfactualSample]) -> list[Scores]:
        """Return the scores of the rows of each world, checked."""
        lacking = f"rows with {self.mediator_!r} set to each level"
        rows = [world.rows for world in worlds]
        return ask_scores(score, rows, self.unfair.graph, [*self.table_.columns], lacking)

    def _levels(self, form: Form, rows: _Rows, arms: Arms) -> tuple[_Values, _Values]:
        """Return the levels of M and the values of R in a world, and refuse what is too large."""
        levels = rows.values(form.mediator, arms.mediator)
        values = rows.values(form.witness, arms.witness)
        if len(levels) * len(values) > MOST_ROWS:
            raise DataError(
                f"{form.mediator!r} takes {len(levels):,} values and {form.witness!r} {len(values):,}, whose "
                f"{len(levels) * len(values):,} pairs would all be scored; at most {MOST_ROWS:,} are. "
                f"{form.mediator!r} must be discrete: with so many levels the ends are near 0 and 1 anyway. Bin it "
                "before the classifier is fitted."
            )
        return levels, values

    def _bounded(self, form: Form, rows: _Rows, arms: Arms) -> CounterfactualSample:
        """Return each value of R with each level of M."""
        levels, values = self._levels(form, rows, arms)
        graph, table = self.unfair.graph, rows.table
        at_level, at_value = np.repeat(levels.first, len(values)), np.tile(values.first, len(levels))
        index = pd.RangeIndex(len(at_level))
        parts = []
        for column in graph.input_columns:
            if column == graph.sensitive_column:
                assert arms.outcome is not None, "the outcome reads it"
                parts.append(repeat_label(table[column], graph.label(arms.outcome), index))
            else:
                at = at_level if graph.node_of[column] == form.mediator else at_value
                parts.append(table[column].iloc[at].set_axis(index))
        weight = np.outer(levels.weight, values.weight).ravel()
        unit = np.repeat(np.arange(len(levels)), len(values))
        return CounterfactualSample(pd.concat(parts, axis=1), weight, unit)

    def _widened(
        self, form: Form, rows: _Rows, arms: Arms | None, scores: Array, level: float, random: np.random.RandomState
    ) -> Interval:
        """Return the ends of a world, moved outward by their sampling error."""
        sizes = {group: kish_size(rows.weight[rows.a == group]) for group in (0, 1)}
        used = {0, 1} if arms is not None else {form.baseline}
        for group in sorted(used):
            if sizes[group] < FEWEST_ROWS:
                raise DataError(
                    f"Group {group} has an effective size of {sizes[group]:.1f} rows, fewer than {FEWEST_ROWS}: too "
                    "few for a sampling error. intervals(score) without level= gives the ends."
                )
        if arms is None:
            weight = rows.weight[rows.a == form.baseline]
            return _mean(scores, weight).interval(level)
        levels, values = self._levels(form, rows, arms)
        table = scores.reshape(len(levels), len(values))
        split = {group: _halve(int((rows.a == group).sum()), random) for group in (0, 1)}
        halves = [
            (levels.part(split[arms.mediator][which]), values.part(split[arms.witness][which])) for which in (0, 1)
        ]
        found = []
        for end, choose in enumerate((_lower_terms, _upper_terms)):
            ends, errors = [], []  # of each half, and of all their rows, none of which is in both
            for (own_p, own_f), (p, f) in (halves, halves[::-1]):
                terms = choose(p.weight, table @ f.weight)
                parts = [(terms.level[own_p.code], own_p.of_row), ((terms.score @ table)[own_f.code], own_f.of_row)]
                if arms.mediator == arms.witness:  # both are of the same rows
                    parts = [(parts[0][0] + parts[1][0], own_p.of_row)]
                means = [_mean(*part) for part in parts]
                ends.append(terms.constant + sum(each.value for each in means))
                errors += [each.errors for each in means if each.errors is not None]
            value = float(np.mean(ends))
            shares = (Share(value, min(sizes[group] for group in used)),)
            found.append(Estimate(value, np.concatenate(errors) / len(halves), shares=shares).interval(level)[end])
        return found[0], found[1]


_require_level = partial(require_real, above=0.0, below=1.0, such_as=0.95)


# -- rows and ends ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Values:
    """The k distinct values of a node in a group of n rows.

    ``first`` (k,) is a row that has each, ``weight`` (k,) its share; ``code`` (n,) numbers the value of each row of the
    group, of weight ``of_row`` (n,), sum 1.
    """

    first: NDArray[np.int64]
    weight: Array
    code: NDArray[np.int64]
    of_row: Array

    def __len__(self) -> int:
        return len(self.first)

    def part(self, at: NDArray[np.int64]) -> _Values:
        """Return the same values, with the shares that they have in some rows of the group."""
        code, of_row = self.code[at], self.of_row[at] / self.of_row[at].sum()
        return _Values(self.first, _share(code, of_row, len(self)), code, of_row)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Observed rows of weight above 0, and their weights."""

    table: pd.DataFrame
    weight: Array
    graph: CausalGraph

    @classmethod
    def read(cls, df: object, sample_weight: object, graph: CausalGraph) -> _Rows:
        """Read a table and weights, with both groups."""
        given = as_pandas(df)
        table = read_table(given, feature_columns(graph))
        table = table[[name for name in given.columns if name in table]]  # the order of a model without column names
        weight = read_weight(sample_weight, table)
        _ = read_sensitive(table, graph, weight=weight)
        kept = weight > 0.0
        return cls(table[kept], weight[kept], graph)

    @cached_property
    def a(self) -> NDArray[np.int8]:
        """The sensitive attribute as 0 and 1, shape (n,)."""
        return read_sensitive(self.table, self.graph)

    def of_group(self, group: int) -> CounterfactualSample:
        """Return the rows of a group, as they are."""
        at = np.flatnonzero(self.a == group)
        weight = self.weight[at]
        return CounterfactualSample(self.table[self.graph.input_columns].iloc[at], weight / weight.sum(), origin=at)

    def values(self, node: str, group: int) -> _Values:
        """Return the distinct values of a node in a group, in order."""
        at = np.flatnonzero(self.a == group)
        part = self.table.iloc[at][self.graph.columns_of([node])]
        codes = np.column_stack([encode_levels(part[name], as_levels(part[name])) for name in part])
        _, first, code = np.unique(codes, axis=0, return_index=True, return_inverse=True)
        of_row = self.weight[at] / self.weight[at].sum()
        return _Values(at[first], _share(code.ravel(), of_row, len(first)), code.ravel(), of_row)


def _by_level(scored: Scored) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the probability of each level and its mean score, shapes (k,), in double precision."""
    assert scored.unit is not None, "units number the levels"
    size, weight = int(scored.unit.max()) + 1, scored.weight.to(torch.float64)
    probability = unit_sums(scored.unit, weight, size)
    return probability, unit_sums(scored.unit, weight * scored.score, size) / probability


def _bound(scored: Scored) -> MarginalBounds:
    """Return the ends of a marginal: the sums of the bounds of P(M = m, Y = 1) from the two probabilities alone."""
    probability, mean = _by_level(scored)
    lower, upper = (probability + mean - 1.0).clamp(min=0.0).sum(), torch.minimum(probability, mean).sum()
    return MarginalBounds(lower.to(scored.score.dtype), upper.to(scored.score.dtype))


def _as_floats(found: Scored | MarginalBounds) -> Interval:
    """Return the two ends as numbers within [0, 1], which sums leave by a rounding."""
    ends = (found.lower, found.upper) if isinstance(found, MarginalBounds) else (found.mean, found.mean)
    low, high = (min(max(float(end), 0.0), 1.0) for end in ends)
    return low, high


@dataclass(frozen=True, eq=False)
class _Terms:
    """An end as a linear function of the levels' probabilities (k,) and mean scores (k,), plus a constant."""

    level: Array
    score: Array
    constant: float = 0.0


def _lower_terms(probability: Array, mean: Array) -> _Terms:
    counted = (probability + mean > 1.0).astype(np.float64)
    return _Terms(counted, counted, -float(counted.sum()))


def _upper_terms(probability: Array, mean: Array) -> _Terms:
    fewer = (probability < mean).astype(np.float64)
    return _Terms(fewer, 1.0 - fewer)


def _halve(n: int, random: np.random.RandomState) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = random.permutation(n)
    return order[: n // 2], order[n // 2 :]


def _share(code: NDArray[np.int64], weight: Array, size: int) -> Array:
    """Return the sum of weights of each of so many codes."""
    return np.bincount(code, weight, size).astype(np.float64)


def _mean(values: Array, weight: Array) -> Estimate:
    """Return a weighted mean of independent rows."""
    share = weight / weight.sum()
    mean = float(share @ values)
    return Estimate(mean, share * (values - mean), shares=(Share(mean, kish_size(weight)),))
