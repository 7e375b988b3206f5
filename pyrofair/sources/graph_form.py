"""The graph form of the one-step estimator: g-computation with one weighted residual for each block of nodes.

Where the prefix form conditions a node on all before it, this one conditions it on its parents alone, as the graph
permits. Both worlds are drawn from mechanisms learned from training rows; a row's influence value is the mean score of
the world drawn from its roots, plus, for each block of nodes, the weighted difference between the regression of the
score at the block's observed values and its mean over values drawn from the same mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from pyrofair._random import seed_for
from pyrofair.effects.estimates import kish_size
from pyrofair.effects.influence import InfluenceValues, Scorer
from pyrofair.effects.potential_outcomes import CounterfactualSample
from pyrofair.exceptions import DataError, PositivityError
from pyrofair.graph.identification import Estimand
from pyrofair.nuisances.diagnostics import (
    Stage,
    add_problems,
    describe_lacking,
    describe_scores,
    join_stages,
    stage_table,
)
from pyrofair.nuisances.folds import fold_of
from pyrofair.nuisances.rows import Nuisances, Rows
from pyrofair.sources.donors import (
    Block,
    CellMechanisms,
    Drawn,
    LeafMechanisms,
    Mechanisms,
    Pool,
    Positions,
    Regression,
)
from pyrofair.sources.mechanism_graph import MechanismGraph
from pyrofair.sources.prefix_form import check_scores, sign_of
from pyrofair.tables.labels import repeat_label

__all__ = ["GraphForm"]

SMALLEST_SHARE = 0.02
"""Weights by propensities are given up for a density ratio below this effective size, as a share of the arm's rows."""
LARGEST_SHARE = 0.1
"""They are given up for a weight above this share of the rows, too."""
CAPPED_SHARE = 0.01
"""The share of a stage's weight, on rows whose density ratio is cut, that is reported."""
CHUNK = 60_000
"""The drawn rows that are held at once."""


@dataclass
class _Judge:
    """What is learned from one set of training rows, without a classifier."""

    mechanisms: Mechanisms
    train: NDArray[np.int64]
    seed: int
    worlds: tuple[tuple[Drawn, NDArray[np.float64]], ...] = ()
    ratios: dict[tuple[int, int], Any] = field(default_factory=dict)
    learned: _Learned | None = None


@dataclass(frozen=True)
class _Weight:
    """The weight of each row in a block's residual, as estimated and as used, (n,), and what is wrong with it."""

    raw: NDArray[np.float64]
    used: NDArray[np.float64]
    problem: str = ""


@dataclass(frozen=True)
class _Multipliers:
    """Functions of the shared features, (m, Q) each at m rows: two signs, and the mean score in either world."""

    means: Regression | NDArray[np.float64]

    def at(self, pool: Pool, rows: Positions, m: int) -> tuple[NDArray[np.float64], ...]:
        """Return the sign of the effect, that of 1 minus both means, and both means."""
        means = self.means(pool, rows) if callable(self.means) else np.broadcast_to(self.means, (m, len(self.means)))
        a, b = np.hsplit(means, 2)
        return sign_of(b - a), sign_of(1.0 - a - b), a, b


class GraphForm:
    """Influence values of both worlds of an estimand under the graph's conditional independences.

    A block's residual is weighted by ``p*(given) / p(given, A = arm)``, the star meaning the world: by propensities of
    what is given and what lies above it or, where they leave no effective size, by a classifier that tells drawn from
    observed values. The error is a sum of products of the errors of two mechanisms, or of a mechanism and its weight.

    Parameters
    ----------
    estimand
        The formulas of both worlds.
    nuisance models
        The propensities and the fitted rows. A fitted row is judged by what was learned from the other folds.
    seed
        Seeds forests and draws.
    regression
        ``"saturated"`` sums over cells of discrete nodes; anything else draws from leaves of forests.
    draws
        The draws of a row in each world, fewer where there are many rows.
    most_scored
        The rows that a classifier scores in both worlds, about.
    learned
        The drawn rows that each regression is learned from.
    """

    name = "graph"

    def __init__(
        self,
        estimand: Estimand,
        nuisances: Nuisances,
        seed: int,
        *,
        regression: object = "boosted",
        draws: int = 40,
        most_scored: int = 500_000,
        learned: int = 30_000,
    ) -> None:
        if estimand.target == "outcome":
            raise DataError(
                "The graph form estimates predictions only: an outcome of the drawn rows was never observed. Use "
                "form='prefix'."
            )
        self.estimand, self.nuisances, self.seed = estimand, nuisances, seed
        self.saturated = isinstance(regression, str) and regression == "saturated"
        self.draws, self.most_scored, self.learned = draws, most_scored, learned
        self.graph = MechanismGraph.of(estimand)
        self.blocks = tuple(self._blocks(which) for which in (0, 1))
        self._forward = tuple([self._drawn_on(which, i) for i in range(len(self.blocks[which]))] for which in (0, 1))
        self._pool = Pool(nuisances.graph, nuisances.rows.table, given=(nuisances.rows.given,))
        self._judges: dict[bytes, _Judge] = {}
        self._usable: dict[tuple[int, int], bool] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what the seed makes again."""
        return self.__dict__ | {"_judges": {}}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the form depends on besides, a sentence each."""
        sensitive = self.graph.graph.sensitive
        stages = dict.fromkeys(
            f"{', '.join(block.nodes)} given {', '.join(block.given) or 'nothing'}"
            for _, _, block in self._each_block()
        )
        return (
            "Graph form: the missing edges are missing. At each stage "
            f"({'; '.join(stages) or 'none'}) the distribution of the nodes given these parents is learned with an "
            "error that vanishes faster than n^(-1/4), and so are the weights. Where two of these distributions stay "
            "wrong, so does the estimate, and its interval does not cover that.",
            f"The parents of each stage occur in the group that is weighted there (positivity of P({sensitive} | "
            "parents)).",
        )

    def conditioned_on(self, roots: tuple[str, ...]) -> tuple[str, ...]:
        """Return which of the roots every block conditions on."""
        return tuple(node for node in roots if all(node in block.given for _, _, block in self._each_block()))

    # -- what is asked for ---------------------------------------------------------------------------------------------

    def stages(self, rows: Rows) -> pd.DataFrame:
        """Return the diagnostics of the weight of each block, which no classifier enters."""
        pool, parts = self._pool_of(rows), self._parts(rows)
        weights = {(which, i): self._weights(rows, pool, parts, which, i) for which, i, _ in self._each_block()}
        table = self._stage_table(rows, weights)
        return add_problems(table, [self._lacking(rows, which, block) for which, _, block in self._each_block()])

    def _lacking(self, rows: Rows, which: int, block: Block) -> str:
        """Return how much of a world hardly has a counterpart in a block's arm, if it is too much."""
        if self.saturated or block.arm is None or not block.given:
            return ""
        weight = self._propensity_weights(rows, which, replace(block, arm=None))
        return describe_lacking(self.nuisances, rows, block.arm, self._sorted({*block.given}), weight)

    def influence(self, score: Scorer, rows: Rows, learned: _Learned | None = None) -> InfluenceValues:
        """Return the influence values of rows for the columns of scores.

        Parameters
        ----------
        score
            The scores of drawn rows by all classifiers.
        rows
            The audited rows.
        learned
            What :meth:`learn` returned, for rows that are none of the fitted ones.
        """
        pool, parts = self._pool_of(rows), self._parts(rows)
        weights = {(which, i): self._weights(rows, pool, parts, which, i) for which, i, _ in self._each_block()}
        used = {key: one.used for key, one in weights.items()}
        first = 0 if rows.position is None else pool.first_other
        found: _Values | None = None
        for judge, index in parts:
            own = learned or self._learn(judge, pool, score)
            found = found or _Values.empty(len(rows.a), own.count, [*used])
            size = max(1, CHUNK // self._repeats(len(rows.a)))
            for at, chunk in enumerate(np.split(index, np.arange(size, len(index), size))):
                random = np.random.default_rng([judge.seed, at, *rows.stream])
                self._evaluate(judge, own, pool, score, chunk, first, used, found, random)
        if found is None:
            raise DataError("There are no rows to audit.")
        return self._collect(found, rows, weights)

    def learn(self, score: Scorer) -> _Learned:
        """Return the regressions of the columns of scores, for :meth:`influence` of any number of other rows."""
        own = self.nuisances.rows
        return self._learn(self._judge(-1, np.flatnonzero(own.kept & (own.weight > 0.0))), self._pool, score)

    # -- blocks --------------------------------------------------------------------------------------------------------

    def _blocks(self, which: int) -> list[Block]:
        """Return the blocks of one world, the shared ones first.

        Nodes of the same arm join where each reads the parents of the block and all of the block before it.
        """
        sensitive = self.graph.graph.sensitive
        found: list[Block] = []
        for shared, nodes in ((True, self.graph.caused), (False, self.graph.drawn)):
            for node in nodes:
                given = tuple(each for each in self.graph.given[node] if each != sensitive)
                arm = self.graph.arms[which][node]
                joins = (
                    i
                    for i, each in enumerate(found)
                    if (each.shared, each.arm) == (shared, arm) and {*each.reads} == {*given}
                )
                i = next(joins, len(found))
                if i < len(found):
                    found[i] = Block((*found[i].nodes, node), found[i].given, arm, shared)
                else:
                    found.append(Block((node,), given, arm, shared))
        return found

    def _drawn_on(self, which: int, i: int) -> list[Block] | None:
        """Return the blocks that complete a world of what a block reads, drawn on from it; None if none do.

        They do where nothing that is missing is a root, or leads to what the block reads. The score given what the
        block reads is then a mean over draws; elsewhere it takes a regression.
        """
        own = self.blocks[which][i]
        known, above, found = {*own.reads}, self._above(own.reads), []
        for block in self.blocks[which]:
            if {*block.nodes} <= known:
                continue
            if {*block.nodes} & above or not {*block.given} <= known:
                continue
            known |= {*block.nodes}
            found.append(block)
        needed = ({*self.estimand.unfair.graph.inputs} - {self.graph.graph.sensitive}) | {*self.graph.units}
        return found if needed <= known else None

    def _each_block(self) -> list[tuple[int, int, Block]]:
        return [(which, i, block) for which in (0, 1) for i, block in enumerate(self.blocks[which])]

    def _stage_table(self, rows: Rows, weights: dict[tuple[int, int], _Weight]) -> pd.DataFrame:
        """Return the diagnostics of the blocks' weights, a row each."""
        regimes = [part.regime.name for part in (self.estimand.baseline, self.estimand.switched)]
        stages = [
            (Stage(regimes[which], block.nodes, block.arm, block.given, i), weights[which, i].raw)
            for which, i, block in self._each_block()
        ]
        table = stage_table(stages, rows)
        own = [weights[which, i].problem for which, i, _ in self._each_block()]
        table["problem"] = ["; ".join(filter(None, both)) for both in zip(table["problem"], own, strict=True)]
        return table

    # -- rows and folds ------------------------------------------------------------------------------------------------

    def _pool_of(self, rows: Rows) -> Pool:
        return self._pool if rows.position is None else self._pool.beside(rows.table, rows.given)

    def _parts(self, rows: Rows) -> list[tuple[_Judge, NDArray[np.int64]]]:
        """Return each judge with the rows that it did not see; new rows have a judge that saw all fitted ones."""
        own = self.nuisances.rows
        known = np.flatnonzero(own.kept & (own.weight > 0.0))
        if self.saturated:
            return [(self._judge(-1, known), np.arange(len(rows.a)))]
        folds = self.nuisances.split()
        # With one fold all rows are judged as new ones are; those without weight by the first of several.
        n = len(own.a)
        label = np.full(len(rows.a), -1) if len(folds) < 2 else fold_of(folds, n, rows.position)
        if len(folds) > 1:
            label[own.weight <= 0.0 if rows.position is None else (rows.position >= 0) & (label < 0)] = 0
        trains = {-1: known, **{number: np.intersect1d(train, known) for number, (train, _) in enumerate(folds)}}
        return [(self._judge(int(one), trains[int(one)]), np.flatnonzero(label == one)) for one in np.unique(label)]

    def _judge(self, number: int, train: NDArray[np.int64]) -> _Judge:
        """Return what judges the rows of a fold, learned at the first call; its seed depends on the number alone."""
        key = train.tobytes()
        if key not in self._judges:
            own = self.nuisances.rows
            seed = seed_for(self.seed, number + 1)
            mechanisms: Mechanisms = (
                CellMechanisms(train, own.a, own.weight)
                if self.saturated
                else LeafMechanisms(train, own.a, own.weight, seed)
            )
            self._judges[key] = _Judge(mechanisms, train, seed)
        return self._judges[key]

    # -- worlds --------------------------------------------------------------------------------------------------------

    def _worlds(
        self, judge: _Judge, pool: Pool, rows: NDArray[np.int64], draws: int, random: np.random.Generator
    ) -> tuple[Drawn, ...]:
        """Return both worlds of rows of the pool, their shared nodes drawn once for both."""
        shared = judge.mechanisms.start(pool, self.graph.roots, rows, draws)
        for block in self.blocks[0]:
            if block.shared:
                shared = judge.mechanisms.expand(pool, shared, block, random)
        worlds = []
        for blocks in self.blocks:
            world = shared
            for block in blocks:
                if not block.shared:
                    world = judge.mechanisms.expand(pool, world, block, random)
            worlds.append(world)
        return tuple(worlds)

    def _training_worlds(self, judge: _Judge, pool: Pool) -> tuple[tuple[Drawn, NDArray[np.float64]], ...]:
        """Return both worlds of the training rows with the weights of drawn rows, which regressions are learned on."""
        if not judge.worlds:
            random = np.random.default_rng([judge.seed, 1])
            train = judge.train
            if len(train) > self.learned:
                train = random.permutation(train)[: self.learned]
            draws = max(1, self.learned // len(train))
            found = []
            for world in self._worlds(judge, pool, train, draws, random):
                unit = np.bincount(world.member, self.nuisances.rows.weight[train])
                found.append((world, world.weight * unit[world.unit]))
            judge.worlds = tuple(found)
        return judge.worlds

    def _score(self, score: Scorer, pool: Pool, world: Drawn, which: int) -> NDArray[np.float64]:
        """Return the scores of drawn rows, as the classifier reads them, (m, Q)."""
        graph, m = self.estimand.unfair.graph, len(world.unit)
        nodes = [node for node in graph.inputs if node != graph.sensitive]
        rows = pd.DataFrame(pool.columns(nodes, world.at), index=range(m))
        name = graph.sensitive_column
        if name in graph.input_columns:
            label = graph.label(self.graph.outcome_arms[which])
            rows[name] = repeat_label(pool.fitted[name], label, rows.index)
        sample = CounterfactualSample(rows[[*graph.input_columns]], np.ones(m), origin=np.full(m, -1))
        found = np.asarray(score(sample), dtype=np.float64)
        found = found[:, None] if found.ndim == 1 else found
        check_scores(found, m)
        return found

    # -- regressions ---------------------------------------------------------------------------------------------------

    def _learn(self, judge: _Judge, pool: Pool, score: Scorer) -> _Learned:
        """Learn the signs given the shared features, and the regressions of scores on each block, once for each."""
        worlds = self._training_worlds(judge, pool)
        scores = [self._score(score, pool, world, which) for which, (world, _) in enumerate(worlds)]
        last = judge.learned
        if last is not None and all(map(np.array_equal, last.scores, scores)):
            return last
        multipliers = self._multipliers(judge, pool, worlds, scores)
        regressions: dict[tuple[int, int], Regression] = {}
        for which, (world, weight) in enumerate(worlds):
            targets = _functionals(which, scores[which], multipliers.at(pool, world.at, len(weight)))
            for i, block in enumerate(self.blocks[which]):
                if self._forward[which][i] is not None:
                    continue
                kept = targets if block.shared else targets[:, : 4 * scores[which].shape[1]]
                regressions[which, i] = judge.mechanisms.regress(pool, block.reads, world.at, kept, weight)
        judge.learned = _Learned(scores, multipliers, regressions)
        return judge.learned

    def _multipliers(
        self,
        judge: _Judge,
        pool: Pool,
        worlds: tuple[tuple[Drawn, NDArray[np.float64]], ...],
        scores: list[NDArray[np.float64]],
    ) -> _Multipliers:
        shared = self.graph.units
        if not shared:
            means = [np.average(s, axis=0, weights=weight) for s, (_, weight) in zip(scores, worlds, strict=True)]
            return _Multipliers(np.concatenate(means))
        if not self.saturated:  # row i of both worlds shares its values
            world, weight = worlds[0]
            return _Multipliers(judge.mechanisms.regress(pool, shared, world.at, np.hstack(scores), weight))
        one, other = (
            judge.mechanisms.regress(pool, shared, world.at, s, weight)
            for s, (world, weight) in zip(scores, worlds, strict=True)
        )
        return _Multipliers(lambda where, rows: np.hstack([one(where, rows), other(where, rows)]))

    def _repeats(self, n: int) -> int:
        return int(np.clip(self.most_scored // (2 * n), 2, self.draws))

    def _evaluate(
        self,
        judge: _Judge,
        learned: _Learned,
        pool: Pool,
        score: Scorer,
        chunk: NDArray[np.int64],
        first: int,
        weights: dict[tuple[int, int], NDArray[np.float64]],
        found: _Values,
        random: np.random.Generator,
    ) -> None:
        """Add the values of some rows."""
        draws = self._repeats(len(found.world[0]))
        worlds = self._worlds(judge, pool, chunk + first, draws, random)
        for which, world in enumerate(worlds):
            multipliers = learned.multipliers.at(pool, world.at, len(world.unit))
            scored = self._score(score, pool, world, which)
            found.world[which][chunk] = world.mean(_functionals(which, scored, multipliers))
            for i, block in enumerate(self.blocks[which]):
                h = weights[which, i][chunk]
                rows = chunk[h > 0.0]
                if not len(rows):
                    continue
                value = self._value_of(judge, learned, pool, score, which, i, random)
                again = draws if self._forward[which][i] else 1
                here = value(judge.mechanisms.start(pool, block.reads, rows + first, again))
                start = judge.mechanisms.start(pool, block.given, rows + first, draws)
                mean = value(judge.mechanisms.expand(pool, start, block, random))
                h = h[h > 0.0][:, None]
                correction, q = h * (here - mean), learned.count
                found.world[which][rows, : correction.shape[1]] += correction
                found.correction[which, i][rows] = correction[:, :q]
                found.target[which, i][rows] = h * mean[:, :q]

    def _value_of(
        self,
        judge: _Judge,
        learned: _Learned,
        pool: Pool,
        score: Scorer,
        which: int,
        i: int,
        random: np.random.Generator,
    ) -> Callable[[Drawn], NDArray[np.float64]]:
        """Return the function that averages a block's functionals over a world of what the block reads."""
        forward, block = self._forward[which][i], self.blocks[which][i]

        def value(world: Drawn) -> NDArray[np.float64]:
            if forward is None:
                return world.mean(learned.regressions[which, i](pool, world.at))
            for each in forward:
                world = judge.mechanisms.expand(pool, world, each, random)
            multipliers = learned.multipliers.at(pool, world.at, len(world.unit))
            found = _functionals(which, self._score(score, pool, world, which), multipliers)
            return world.mean(found if block.shared else found[:, : 4 * learned.count])

        return value

    # -- weights -------------------------------------------------------------------------------------------------------

    def _weights(
        self, rows: Rows, pool: Pool, parts: list[tuple[_Judge, NDArray[np.int64]]], which: int, i: int
    ) -> _Weight:
        """Return the weight of each row in a block's residual."""
        block = self.blocks[which][i]
        member = rows.kept if block.arm is None else rows.member(block.arm)
        if self.saturated:
            h = np.where(member, self._cell_weights(rows, pool, parts[0][0], which, block), 0.0)
            return _Weight(h, h)
        if self._propensities_serve(which, i):
            h = np.where(member, self._propensity_weights(rows, which, block), 0.0)
            if not np.isfinite(h[rows.weight > 0.0]).all():
                raise PositivityError(
                    f"Rows to be weighted for {', '.join(block.nodes)} given {', '.join(block.given)} have an infinite "
                    f"weight: their group has the probability 0 by the propensity {self.nuisances.propensity_name}. "
                    "Choose one that is never certain, such as 'logistic'."
                )
            h = np.where(np.isfinite(h), h, 0.0)
            return _Weight(h, h)
        h = np.zeros(len(rows.a))
        first = 0 if rows.position is None else pool.first_other
        for judge, index in parts:
            some = index[member[index]]
            if len(some):
                h[some] = self._density_ratio(judge, pool, which, i, some + first)
        carried = rows.weight * h
        mean, most = float(carried.sum() / rows.weight.sum()), self._largest_ratio
        share = float(carried[h >= most].sum() / max(carried.sum(), 1e-300))
        problem = ""
        if share > CAPPED_SHARE:
            problem = (
                f"a density ratio takes the place of useless propensities, and {share:.0%} of its weight is on rows "
                f"where it was cut to {most:.0f}"
            )
        return _Weight(h, h / mean if mean > 0.0 else h, problem)

    @property
    def _largest_ratio(self) -> float:
        """The largest density ratio, the square root of the number of fitted rows."""
        return float(np.sqrt(len(self.nuisances.rows.a)))

    def _propensities_serve(self, which: int, i: int) -> bool:
        """Whether a block's weights by propensities have some effective size among the fitted rows, and no giant."""
        if (which, i) not in self._usable:
            own, block = self.nuisances.rows, self.blocks[which][i]
            h = self._propensity_weights(own, which, block)
            h = np.where(own.member(block.arm), h, 0.0)[own.weight > 0.0]
            weight, n = own.weight[own.weight > 0.0], len(h)
            group = float((own.weight * own.member(block.arm) > 0.0).sum())
            usable = bool(np.isfinite(h).all() and h.any()) and (
                kish_size(weight * h) >= SMALLEST_SHARE * group and h.max() <= LARGEST_SHARE * n
            )
            # Of roots alone the weight is 1 / P(A | roots), which no density ratio improves.
            self._usable[which, i] = bool(usable) or self._above(block.given) <= {*self.graph.roots}
        return self._usable[which, i]

    def _propensity_weights(self, rows: Rows, which: int, block: Block) -> NDArray[np.float64]:
        """Return p*(given) / p(given, A = arm) of every row, or p*(given) / p(given), from propensities, (n,)."""
        above = self._above(block.given)
        caused = [node for node in above if node not in self.graph.roots]
        if not caused and block.arm is None:
            return np.ones(len(rows.a))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if block.arm is not None:
                return self._group_weight(rows, which, block, above, caused, block.arm)
            one, other = (self._group_weight(rows, which, block, above, caused, group) for group in (0, 1))
            return 1.0 / (1.0 / one + 1.0 / other)

    def _group_weight(
        self, rows: Rows, which: int, block: Block, above: set[str], caused: list[str], group: int
    ) -> NDArray[np.float64]:
        """Return the weight that carries a group's distribution of what is given to that of the world, (n,)."""
        sensitive, arms = self.graph.graph.sensitive, self.graph.arms[which]
        roots = above & {*self.graph.roots}

        def chance(value: int, nodes: set[str]) -> NDArray[np.float64]:
            one = self.nuisances.probability(rows, self._sorted(nodes))
            return one if value else 1.0 - one

        other = 1 - group
        read = {arms[node] for node in caused} - {None}
        if other not in read:
            return 1.0 / chance(group, roots)
        if group not in read:  # what is given follows the other group's distribution: Bayes, whatever is between
            given = roots | {*block.given}
            return chance(other, given) / (chance(group, given) * chance(other, roots))
        found = 1.0 / chance(group, roots)
        for node in caused:
            if arms[node] == other:
                before = {*self.graph.given[node]} - {sensitive}
                after = before | {node}
                found = found * chance(other, after) * chance(group, before)
                found = found / (chance(group, after) * chance(other, before))
        return found

    def _above(self, nodes: Sequence[str]) -> set[str]:
        """Return nodes with all that their distributions read, and what the distributions of these read."""
        found: set[str] = set()
        waiting = [*nodes]
        while waiting:
            node = waiting.pop()
            if node not in found and node != self.graph.graph.sensitive:
                found.add(node)
                waiting += self.graph.given.get(node, ())
        return found

    def _sorted(self, nodes: set[str]) -> tuple[str, ...]:
        return tuple(node for node in (*self.graph.roots, *self.graph.caused, *self.graph.drawn) if node in nodes)

    def _density_ratio(
        self, judge: _Judge, pool: Pool, which: int, i: int, at: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the weight of rows of the pool by a classifier that tells drawn from observed parents apart."""
        own, block = self.nuisances.rows, self.blocks[which][i]
        rows = judge.train if block.arm is None else judge.train[own.a[judge.train] == block.arm]
        if (which, i) not in judge.ratios:
            world, weight = self._training_worlds(judge, pool)[which]
            drawn = pool.matrix(block.given, world.at)
            seen = pool.matrix(block.given, dict.fromkeys(block.given, rows))
            parts = [weight / weight.sum(), own.weight[rows] / own.weight[rows].sum()]
            trees = HistGradientBoostingClassifier(
                max_iter=100, max_leaf_nodes=15, early_stopping=True, random_state=judge.seed
            )
            label = np.repeat([1, 0], [len(drawn), len(seen)])
            judge.ratios[which, i] = trees.fit(
                np.vstack([drawn, seen]), label, sample_weight=np.concatenate(parts) * len(judge.train)
            )
        p = judge.ratios[which, i].predict_proba(pool.matrix(block.given, dict.fromkeys(block.given, at)))[:, 1]
        share = own.weight[rows].sum() / own.weight[judge.train].sum()
        return np.asarray(np.minimum(p / np.maximum(1.0 - p, 1e-12) / share, self._largest_ratio))

    def _cell_weights(self, rows: Rows, pool: Pool, judge: _Judge, which: int, block: Block) -> NDArray[np.float64]:
        """Return the weight of every row as the ratio of the world's mass in its cell to the observed one."""
        own, n = self.nuisances.rows, len(rows.a)
        train = judge.train if block.arm is None else judge.train[own.a[judge.train] == block.arm]
        world, weight = self._training_worlds(judge, pool)[which]
        first = 0 if rows.position is None else pool.first_other
        drawn = pool.cells(block.given, world.at, len(weight))
        seen = pool.cells(block.given, dict.fromkeys(block.given, train), len(train))
        asked = pool.cells(block.given, dict.fromkeys(block.given, np.arange(n) + first), n)
        cells, index = np.unique(np.concatenate([drawn, seen]), return_inverse=True)
        k, m = len(cells), len(drawn)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.bincount(index.ravel()[:m], weight, k) / np.bincount(index.ravel()[m:], own.weight[train], k)
        at = np.searchsorted(cells, asked).clip(max=k - 1)
        return np.where((cells[at] == asked) & np.isfinite(ratio[at]), ratio[at], 0.0)

    # -- results -------------------------------------------------------------------------------------------------------

    def _collect(self, found: _Values, rows: Rows, weights: dict[tuple[int, int], _Weight]) -> InfluenceValues:
        y0, effect0, rest0, mean0, sign, product = np.hsplit(found.world[0], 6)
        ypi, effect1, rest1, mean1 = np.hsplit(found.world[1], 4)
        described = self._stage_table(rows, weights)
        tables = []
        for number, (which, i, _) in enumerate(self._each_block()):
            whole, correction = (y0, ypi)[which], found.correction[which, i]
            own = described.iloc[[number]], found.target[which, i] - whole, correction, whole
            tables.append(describe_scores(*own, rows))
        return InfluenceValues(
            y0=y0,
            ypi=ypi,
            lower=effect1 - effect0,
            rest=sign - rest0 - rest1,
            disagreement=y0 + ypi - 2.0 * (mean0 + mean1 - product),
            weight=rows.weight / rows.weight.mean(),
            stages=join_stages(tables),
        )


@dataclass(frozen=True)
class _Learned:
    """What is learned from training rows for one set of Q columns of scores, (m, Q) in either world."""

    scores: list[NDArray[np.float64]]
    multipliers: _Multipliers
    regressions: dict[tuple[int, int], Regression]

    @property
    def count(self) -> int:
        """The number of columns, Q."""
        return int(self.scores[0].shape[1])


@dataclass(frozen=True)
class _Values:
    """The values of n rows in both worlds, (n, 6 Q) and (n, 4 Q), and each block's part in Q of them."""

    world: tuple[NDArray[np.float64], NDArray[np.float64]]
    correction: dict[tuple[int, int], NDArray[np.float64]]
    target: dict[tuple[int, int], NDArray[np.float64]]
    count: int

    @classmethod
    def empty(cls, n: int, q: int, keys: list[tuple[int, int]]) -> _Values:
        """Return zeros."""
        world = (np.zeros((n, 6 * q)), np.zeros((n, 4 * q)))
        correction, target = ({key: np.zeros((n, q)) for key in keys} for _ in (0, 1))
        return cls(world, correction, target, q)


def _functionals(
    which: int, scores: NDArray[np.float64], multipliers: tuple[NDArray[np.float64], ...]
) -> NDArray[np.float64]:
    """Return the scores of a world alone and times functions of S; in world 0 functions of S alone after them."""
    effect, rest, a, b = multipliers
    found = [scores, effect * scores, rest * scores, (a if which else b) * scores]
    return np.hstack(found if which else [*found, rest, a * b])
