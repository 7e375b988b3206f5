"""The graph form of the one-step estimator: g-computation with one weighted residual for each block of nodes.

Where the prefix form conditions a node on all before it, this one conditions it on its parents alone, as the graph
permits. Both worlds are drawn from mechanisms learned from training rows; a row's influence value is the mean score of
the world drawn from its roots, plus, for each block of nodes, the weighted difference between the regression of the
score at the block's observed values and its mean over values drawn from the same mechanism.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

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
from pyrofair.sources.donors import Block, CellMechanisms, Drawn, LeafMechanisms, Mechanisms, Pool, Regression
from pyrofair.sources.mechanism_graph import MechanismGraph
from pyrofair.sources.prefix_form import check_scores, sign_of
from pyrofair.tables.labels import repeat_label

__all__ = ["GraphForm"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
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
    worlds: list[tuple[Drawn, Array]] = field(default_factory=list)
    ratios: dict[Block, Any] = field(default_factory=dict)
    learned: _Learned | None = None


@dataclass(frozen=True)
class _Learned:
    """What is learned from training rows for one set of Q columns of scores, (m, Q) in either world.

    ``means`` are those of both worlds given the shared features, (m, 2 Q), or (1, 2 Q) if nothing is shared.
    """

    scores: list[Array]
    means: Regression
    regressions: dict[Block, Regression]


@dataclass(frozen=True)
class _Pass:
    """What some rows of a pool are judged by: mechanisms, regressions, the classifiers' scores, random numbers."""

    mechanisms: Mechanisms
    learned: _Learned
    pool: Pool
    score: Scorer
    random: np.random.Generator


class _Weight(NamedTuple):
    """The weight of each row in a block's residual, as estimated and as used, (n,), and what is wrong with it."""

    raw: Array
    used: Array
    problem: str = ""


class GraphForm:
    """Influence values of both worlds of an estimand under the graph's conditional independences.

    A block's residual is weighted by ``p*(given) / p(given, A = arm)``, the star meaning the world: by propensities of
    what is given and what lies above it or, where they leave no effective size, by a classifier that tells drawn from
    observed values. The error is a sum of products of the errors of two mechanisms, or of a mechanism and its weight.

    A fitted row is judged by what was learned from the other folds. With the ``regression`` ``"saturated"`` values are
    sums over cells of discrete nodes; with any other, rows are drawn from leaves of forests: ``draws`` of a row in each
    world, fewer where there are many rows, so that a classifier scores about ``most_scored`` in both. A regression is
    learned from ``learned`` drawn rows.
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
        self.order = (*self.graph.roots, *self.graph.caused, *self.graph.drawn)
        self.blocks = [*self._blocks(0), *self._blocks(1)]
        self._forward = {block: self._drawn_on(block) for block in self.blocks}
        self._pool = Pool(nuisances.graph, nuisances.rows.table, given=(nuisances.rows.given,))
        self._judges: dict[bytes, _Judge] = {}
        self._usable: dict[Block, bool] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what the seed makes again."""
        return self.__dict__ | {"_judges": {}}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the form depends on besides, a sentence each."""
        each = (f"{', '.join(block.nodes)} given {', '.join(block.given) or 'nothing'}" for block in self.blocks)
        return (
            "Graph form: the missing edges are missing. At each stage "
            f"({'; '.join(dict.fromkeys(each)) or 'none'}) the distribution of the nodes given these parents is "
            "learned with an error that vanishes faster than n^(-1/4), and so are the weights. Where two of these "
            "distributions stay wrong, so does the estimate, and its interval does not cover that.",
            "The parents of each stage occur in the group that is weighted there (positivity of "
            f"P({self.graph.graph.sensitive} | parents)).",
        )

    def conditioned_on(self, roots: tuple[str, ...]) -> tuple[str, ...]:
        """Return which of the roots every block conditions on."""
        return tuple(node for node in roots if all(node in block.given for block in self.blocks))

    # -- what is asked for ---------------------------------------------------------------------------------------------

    def stages(self, rows: Rows) -> pd.DataFrame:
        """Return the diagnostics of the weight of each block, which no classifier enters."""
        table = self._stage_table(rows, self._all_weights(rows, self._pool_of(rows)))
        return add_problems(table, [self._lacking(rows, block) for block in self.blocks])

    def influence(self, score: Scorer, rows: Rows, learned: _Learned | None = None) -> InfluenceValues:
        """Return the influence values of rows for the columns of scores.

        ``learned`` is what :meth:`learn` returned, for rows that are none of the fitted ones.
        """
        if not (n := len(rows.a)):
            raise DataError("There are no rows to audit.")
        pool = self._pool_of(rows)
        weights = self._all_weights(rows, pool)
        draws = int(np.clip(self.most_scored // (2 * n), 2, self.draws))
        size, found = max(1, CHUNK // draws), np.zeros((n, 0))
        for judge, index in self._parts(rows):
            own = learned or self._learn(judge, score)
            for at, chunk in enumerate(np.split(index, np.arange(size, len(index), size))):
                random = np.random.default_rng([judge.mechanisms.seed, at, *rows.stream])
                by = _Pass(judge.mechanisms, own, pool, score, random)
                used = {block: each.used[chunk] for block, each in weights.items()}
                values = self._evaluate(by, chunk + _first(rows, pool), used, draws)
                found = found if found.size else np.zeros((n, values.shape[1]))
                found[chunk] = values
        return self._collect(found, rows, weights)

    def learn(self, score: Scorer) -> _Learned:
        """Return the regressions of the columns of scores, for :meth:`influence` of any number of other rows."""
        return self._learn(self._judge(-1, self._known), score)

    # -- blocks --------------------------------------------------------------------------------------------------------

    def _blocks(self, world: int) -> list[Block]:
        """Return the blocks of one world, the shared ones first.

        Nodes of the same arm join where each reads the parents of the block and all of the block before it.
        """
        found: list[Block] = []
        for shared, nodes in ((True, self.graph.caused), (False, self.graph.drawn)):
            for node in nodes:
                given = tuple(each for each in self.graph.given[node] if each != self.graph.graph.sensitive)
                own = Block((node,), given, self.graph.arms[world][node], shared, world)
                for i, each in enumerate(found):
                    if (each.shared, each.arm) == (shared, own.arm) and {*each.reads} == {*given}:
                        found[i] = replace(each, nodes=(*each.nodes, node))
                        break
                else:
                    found.append(own)
        return found

    def _drawn_on(self, block: Block) -> list[Block] | None:
        """Return the blocks that complete a world of what a block reads, drawn on from it; None if none do.

        They do where nothing that is missing is a root, or leads to what the block reads. The score given what the
        block reads is then a mean over draws; elsewhere it takes a regression.
        """
        known, above, found = {*block.reads}, self._above(block.reads), []
        for each in self.blocks:
            if each.world == block.world and not {*each.nodes} & above and {*each.given} <= known:
                known |= {*each.nodes}
                found.append(each)
        needed = {*self.estimand.unfair.graph.inputs, *self.graph.units} - {self.graph.graph.sensitive}
        return found if needed <= known else None

    def _above(self, nodes: Sequence[str]) -> set[str]:
        """Return nodes with all that their distributions read, and what the distributions of these read."""
        found = {*nodes}
        for node in reversed(self.order):  # each is after those that it reads
            if node in found:
                found.update(self.graph.given.get(node, ()))
        return found - {self.graph.graph.sensitive}

    def _sorted(self, nodes: set[str]) -> tuple[str, ...]:
        return tuple(node for node in self.order if node in nodes)

    # -- rows and folds ------------------------------------------------------------------------------------------------

    def _pool_of(self, rows: Rows) -> Pool:
        return self._pool if rows.position is None else self._pool.beside(rows.table, rows.given)

    @property
    def _known(self) -> Indices:
        """The fitted rows that are learned from."""
        return np.flatnonzero(self.nuisances.rows.kept & (self.nuisances.rows.weight > 0.0))

    def _parts(self, rows: Rows) -> list[tuple[_Judge, Indices]]:
        """Return each judge with the rows that it did not see; new rows have a judge that saw all fitted ones."""
        own, known = self.nuisances.rows, self._known
        if self.saturated or len(folds := self.nuisances.split()) < 2:
            return [(self._judge(-1, known), np.arange(len(rows.a)))]
        label = fold_of(folds, len(own.a), rows.position)
        # Fitted rows without weight are judged by the first fold.
        label[own.weight <= 0.0 if rows.position is None else (rows.position >= 0) & (label < 0)] = 0
        trains = [*(np.intersect1d(train, known) for train, _ in folds), known]  # the last for new rows
        return [(self._judge(int(one), trains[one]), np.flatnonzero(label == one)) for one in np.unique(label)]

    def _judge(self, number: int, train: Indices) -> _Judge:
        """Return what judges the rows of a fold, learned at the first call; its seed depends on the number alone."""
        if (key := train.tobytes()) not in self._judges:
            made, own = CellMechanisms if self.saturated else LeafMechanisms, self.nuisances.rows
            self._judges[key] = _Judge(made(train, own.a, own.weight, seed_for(self.seed, number + 1)))
        return self._judges[key]

    # -- worlds --------------------------------------------------------------------------------------------------------

    def _worlds(
        self, mechanisms: Mechanisms, pool: Pool, rows: Indices, draws: int, random: np.random.Generator
    ) -> list[Drawn]:
        """Return both worlds of rows of the pool, their shared nodes drawn once for both."""
        shared = mechanisms.start(pool, self.graph.roots, rows, draws)
        for block in self.blocks:
            if block.shared and not block.world:
                shared = mechanisms.expand(pool, shared, block, random)
        worlds = [shared, shared]
        for block in self.blocks:
            if not block.shared:
                worlds[block.world] = mechanisms.expand(pool, worlds[block.world], block, random)
        return worlds

    def _training_worlds(self, judge: _Judge) -> list[tuple[Drawn, Array]]:
        """Return both worlds of the training rows with the weights of drawn rows, which regressions are learned on."""
        if not judge.worlds:
            train, random = judge.mechanisms.train, np.random.default_rng([judge.mechanisms.seed, 1])
            if len(train) > self.learned:
                train = random.permutation(train)[: self.learned]
            draws, weight = max(1, self.learned // len(train)), self.nuisances.rows.weight[train]
            for world in self._worlds(judge.mechanisms, self._pool, train, draws, random):
                judge.worlds.append((world, world.weight * np.bincount(world.member, weight)[world.unit]))
        return judge.worlds

    def _score(self, score: Scorer, pool: Pool, world: Drawn, which: int) -> Array:
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

    def _learn(self, judge: _Judge, score: Scorer) -> _Learned:
        """Learn the signs given the shared features, and the regressions of scores on each block, once for each."""
        worlds = self._training_worlds(judge)
        scores = [self._score(score, self._pool, world, which) for which, (world, _) in enumerate(worlds)]
        if judge.learned is None or not all(map(np.array_equal, judge.learned.scores, scores)):
            means = self._learn_means(judge, worlds, scores)
            regressions: dict[Block, Regression] = {}
            for which, (world, weight) in enumerate(worlds):
                targets = _functionals(which, scores[which], means(self._pool, world.at))
                for block, forward in self._forward.items():
                    if block.world == which and forward is None:
                        kept = targets if block.shared else targets[:, : 4 * scores[which].shape[1]]
                        regressions[block] = judge.mechanisms.regress(self._pool, block.reads, world.at, kept, weight)
            judge.learned = _Learned(scores, means, regressions)
        return judge.learned

    def _learn_means(self, judge: _Judge, worlds: Sequence[tuple[Drawn, Array]], scores: Sequence[Array]) -> Regression:
        """Return the regression of the scores of both worlds on what they share."""
        if not self.graph.units:
            means = [np.average(s, axis=0, weights=weight) for s, (_, weight) in zip(scores, worlds, strict=True)]
            alike = np.concatenate(means)[None]
            return lambda pool, at: alike
        targets = zip(scores, worlds, strict=True)
        if not self.saturated:  # row i of both worlds shares its values
            targets = zip([np.hstack(scores)], worlds[:1], strict=True)
        found = [
            judge.mechanisms.regress(self._pool, self.graph.units, world.at, s, weight)
            for s, (world, weight) in targets
        ]
        return lambda pool, at: np.hstack([each(pool, at) for each in found])

    # -- values --------------------------------------------------------------------------------------------------------

    def _evaluate(self, by: _Pass, at: Indices, weights: Mapping[Block, Array], draws: int) -> Array:
        """Return the functionals of m rows of a pool in both worlds (m, 10 Q), and for each block, (m, 2 Q) more.

        These are its part in the mean scores, and what its weight gives to the mean over drawn values.
        """
        worlds = self._worlds(by.mechanisms, by.pool, at, draws, by.random)
        values = [world.mean(self._values(by, world, which)) for which, world in enumerate(worlds)]
        q, parts = values[1].shape[1] // 4, []
        for block, h in weights.items():
            part, target = np.zeros((2, len(at), q))
            if len(chosen := np.flatnonzero(h > 0.0)):
                rows, again = at[chosen], draws if self._forward[block] else 1
                here = self._means(by, by.mechanisms.start(by.pool, block.reads, rows, again), block)
                start = by.mechanisms.start(by.pool, block.given, rows, draws)
                mean = self._means(by, by.mechanisms.expand(by.pool, start, block, by.random), block)
                h = h[chosen][:, None]
                correction = h * (here - mean)
                values[block.world][chosen, : correction.shape[1]] += correction
                part[chosen], target[chosen] = correction[:, :q], h * mean[:, :q]
            parts += [part, target]
        return np.hstack([*values, *parts])

    def _values(self, by: _Pass, world: Drawn, which: int) -> Array:
        """Return the functionals of the rows of a world."""
        scores = self._score(by.score, by.pool, world, which)
        return _functionals(which, scores, by.learned.means(by.pool, world.at))

    def _means(self, by: _Pass, world: Drawn, block: Block) -> Array:
        """Return the means of a block's functionals over a world of what the block reads."""
        forward = self._forward[block]
        if forward is None:
            return world.mean(by.learned.regressions[block](by.pool, world.at))
        for each in forward:
            world = by.mechanisms.expand(by.pool, world, each, by.random)
        found, first = self._values(by, world, block.world), not (block.shared or block.world)
        return world.mean(found[:, : found.shape[1] * 4 // 6] if first else found)  # without functions of S alone

    # -- weights -------------------------------------------------------------------------------------------------------

    def _all_weights(self, rows: Rows, pool: Pool) -> dict[Block, _Weight]:
        parts = self._parts(rows)
        return {block: self._weights(rows, pool, parts, block) for block in self.blocks}

    def _weights(self, rows: Rows, pool: Pool, parts: list[tuple[_Judge, Indices]], block: Block) -> _Weight:
        """Return the weight of each row in a block's residual."""
        member = rows.member(block.arm)
        if self.saturated:
            h = np.where(member, self._cell_weights(rows, pool, parts[0][0], block), 0.0)
            return _Weight(h, h)
        if self._propensities_serve(block):
            h = np.where(member, self._propensity_weights(rows, block), 0.0)
            if not np.isfinite(h[rows.weight > 0.0]).all():
                raise PositivityError(
                    f"Rows to be weighted for {', '.join(block.nodes)} given {', '.join(block.given)} have an infinite "
                    f"weight: their group has the probability 0 by the propensity {self.nuisances.propensity_name}. "
                    "Choose one that is never certain, such as 'logistic'."
                )
            h = np.where(np.isfinite(h), h, 0.0)
            return _Weight(h, h)
        h, first = np.zeros(len(rows.a)), _first(rows, pool)
        for judge, index in parts:
            if len(some := index[member[index]]):
                h[some] = self._density_ratio(judge, pool, block, some + first)
        carried = rows.weight * h
        mean, most = float(carried.sum() / rows.weight.sum()), self._largest_ratio
        share = float(carried[h >= most].sum() / max(carried.sum(), 1e-300))
        problem = (
            f"a density ratio takes the place of useless propensities, and {share:.0%} of its weight is on rows where "
            f"it was cut to {most:.0f}"
        )
        return _Weight(h, h / mean if mean > 0.0 else h, problem if share > CAPPED_SHARE else "")

    @property
    def _largest_ratio(self) -> float:
        """The largest density ratio, the square root of the number of fitted rows."""
        return float(np.sqrt(len(self.nuisances.rows.a)))

    def _propensities_serve(self, block: Block) -> bool:
        """Whether a block's weights by propensities have some effective size among the fitted rows, and no giant."""
        if block not in self._usable:
            own = self.nuisances.rows
            counted, member = own.weight > 0.0, own.member(block.arm)
            h = np.where(member, self._propensity_weights(own, block), 0.0)[counted]
            least = SMALLEST_SHARE * float((counted & member).sum())
            # Of roots alone the weight is 1 / P(A | roots), which no density ratio improves.
            self._usable[block] = self._above(block.given) <= {*self.graph.roots} or bool(
                np.isfinite(h).all()
                and h.any()
                and kish_size(own.weight[counted] * h) >= least
                and h.max() <= LARGEST_SHARE * len(h)
            )
        return self._usable[block]

    def _propensity_weights(self, rows: Rows, block: Block) -> Array:
        """Return p*(given) / p(given, A = arm) of every row, or p*(given) / p(given), from propensities, (n,)."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if block.arm is not None:
                return self._group_weight(rows, block, block.arm)
            if self._above(block.given) <= {*self.graph.roots}:
                return np.ones(len(rows.a))
            one, other = (self._group_weight(rows, block, group) for group in (0, 1))
            return 1.0 / (1.0 / one + 1.0 / other)

    def _group_weight(self, rows: Rows, block: Block, group: int) -> Array:
        """Return the weight that carries a group's distribution of what is given to that of the world, (n,)."""
        above, arms, other = self._above(block.given), self.graph.arms[block.world], 1 - group
        roots = above & {*self.graph.roots}
        caused = self._sorted(above - roots)

        def chance(value: int, nodes: set[str]) -> Array:
            one = self.nuisances.probability(rows, self._sorted(nodes))
            return one if value else 1.0 - one

        read = {arms[node] for node in caused}
        if other not in read:
            return 1.0 / chance(group, roots)
        if group not in read:  # what is given follows the other group's distribution: Bayes, whatever is between
            given = roots | {*block.given}
            return chance(other, given) / (chance(group, given) * chance(other, roots))
        found = 1.0 / chance(group, roots)
        for node in caused:
            if arms[node] == other:
                before = {*self.graph.given[node]} - {self.graph.graph.sensitive}
                after = before | {node}
                found = found * chance(other, after) * chance(group, before)
                found = found / (chance(group, after) * chance(other, before))
        return found

    def _density_ratio(self, judge: _Judge, pool: Pool, block: Block, at: Indices) -> Array:
        """Return the weight of rows of the pool by a classifier that tells drawn from observed parents apart."""
        own, train, given = self.nuisances.rows, judge.mechanisms.train, block.given
        rows = judge.mechanisms.of_arm(block.arm)
        if block not in judge.ratios:
            world, weight = self._training_worlds(judge)[block.world]
            drawn, seen = (self._pool.matrix(given, each) for each in (world.at, dict.fromkeys(given, rows)))
            parts = [weight / weight.sum(), own.weight[rows] / own.weight[rows].sum()]
            trees = HistGradientBoostingClassifier(
                max_iter=100, max_leaf_nodes=15, early_stopping=True, random_state=judge.mechanisms.seed
            )
            label = np.repeat([1, 0], [len(drawn), len(seen)])
            scale = np.concatenate(parts) * len(train)
            judge.ratios[block] = trees.fit(np.vstack([drawn, seen]), label, sample_weight=scale)
        p = judge.ratios[block].predict_proba(pool.matrix(given, dict.fromkeys(given, at)))[:, 1]
        share = own.weight[rows].sum() / own.weight[train].sum()
        return np.asarray(np.minimum(p / np.maximum(1.0 - p, 1e-12) / share, self._largest_ratio))

    def _cell_weights(self, rows: Rows, pool: Pool, judge: _Judge, block: Block) -> Array:
        """Return the weight of every row as the ratio of the world's mass in its cell to the observed one."""
        n, train, given = len(rows.a), judge.mechanisms.of_arm(block.arm), block.given
        world, weight = self._training_worlds(judge)[block.world]
        drawn = pool.cells(given, world.at, len(weight))
        seen = pool.cells(given, dict.fromkeys(given, train), len(train))
        asked = pool.cells(given, dict.fromkeys(given, np.arange(n) + _first(rows, pool)), n)
        cells, index = np.unique(np.concatenate([drawn, seen]), return_inverse=True)
        k, (of_drawn, of_seen) = len(cells), np.split(index.ravel(), [len(drawn)])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.bincount(of_drawn, weight, k) / np.bincount(of_seen, self.nuisances.rows.weight[train], k)
        at = np.searchsorted(cells, asked).clip(max=k - 1)
        return np.where((cells[at] == asked) & np.isfinite(ratio[at]), ratio[at], 0.0)

    # -- results -------------------------------------------------------------------------------------------------------

    def _stage_table(self, rows: Rows, weights: Mapping[Block, _Weight]) -> pd.DataFrame:
        """Return the diagnostics of the blocks' weights, a row each."""
        regimes = [part.regime.name for part in (self.estimand.baseline, self.estimand.switched)]
        first = sum(not block.world for block in self.blocks)
        stages = [
            Stage(regimes[block.world], block.nodes, block.arm, block.given, i - first * block.world)
            for i, block in enumerate(self.blocks)
        ]
        table = stage_table([(stage, each.raw) for stage, each in zip(stages, weights.values(), strict=True)], rows)
        return add_problems(table, [each.problem for each in weights.values()])

    def _lacking(self, rows: Rows, block: Block) -> str:
        """Return how much of a world hardly has a counterpart in a block's arm, if it is too much."""
        if self.saturated or block.arm is None or not block.given:
            return ""
        weight = self._propensity_weights(rows, replace(block, arm=None))
        return describe_lacking(self.nuisances, rows, block.arm, self._sorted({*block.given}), weight)

    def _collect(self, found: Array, rows: Rows, weights: Mapping[Block, _Weight]) -> InfluenceValues:
        y0, effect0, rest0, mean0, sign, product, ypi, effect1, rest1, mean1, *parts = np.hsplit(
            found, 10 + 2 * len(self.blocks)
        )
        table, described = self._stage_table(rows, weights), []
        for i, block in enumerate(self.blocks):
            whole, (correction, target) = (y0, ypi)[block.world], parts[2 * i : 2 * i + 2]
            described.append(describe_scores(table.iloc[[i]], target - whole, correction, whole, rows))
        return InfluenceValues(
            y0=y0,
            ypi=ypi,
            lower=effect1 - effect0,
            rest=sign - rest0 - rest1,
            disagreement=y0 + ypi - 2.0 * (mean0 + mean1 - product),
            weight=rows.weight / rows.weight.mean(),
            stages=join_stages(described),
        )


def _first(rows: Rows, pool: Pool) -> int:
    """Return the position in a pool of the first of some rows."""
    return 0 if rows.position is None else pool.first_other


def _functionals(which: int, scores: Array, means: Array) -> Array:
    """Return the scores of a world alone and times functions of S; in world 0 functions of S alone after them.

    Of the mean scores a and b in either world given S, these are the signs of the effect and of 1 - a - b, and means.
    """
    a, b = np.hsplit(np.broadcast_to(means, (len(scores), means.shape[1])), 2)
    rest = sign_of(1.0 - a - b)
    found = [scores, sign_of(b - a) * scores, rest * scores, (a if which else b) * scores]
    return np.hstack(found if which else [*found, rest, a * b])
