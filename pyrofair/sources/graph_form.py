"""The graph form of the one-step estimator: g-computation with one weighted residual for each block of nodes.

Where the prefix form conditions a node on all before it, this one conditions it on its parents alone, as the graph
permits. Both worlds are drawn from mechanisms learned from training rows; a row's influence value is the mean score of
the world drawn from its roots, plus, for each block of nodes, the weighted difference between the regression of the
score at the block's observed values and its mean over values drawn from the same mechanism.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold

from pyrofair.effects.influence import InfluenceValues, Scorer
from pyrofair.effects.potential_outcomes import CounterfactualSample, kish_size
from pyrofair.exceptions import DataError, PositivityError
from pyrofair.graph.identification import Estimand
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
from pyrofair.sources.gformula import MechanismGraph
from pyrofair.sources.propensity import Nuisances, Rows
from pyrofair.tables.labels import repeat_label

__all__ = ["GraphForm"]

REGIMES = ("baseline", "unfair")
Folds = Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]

SMALLEST_SHARE = 0.02
"""Weights by propensities are given up for a density ratio below this effective size, as a share of the fitted rows."""
LARGEST_SHARE = 0.1
"""The largest weight, as a share of the rows, that is not reported."""
FEWEST_EFFECTIVE = 100.0
"""The smallest effective size of a stage, in rows, that is not reported."""
MEAN_ERROR, MEAN_Z = 0.1, 3.0
"""A mean weight so far from 1, by so many standard errors, is reported."""
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


@dataclass(frozen=True)
class _Multipliers:
    """Functions of what both worlds share, (m, Q) each at m rows: two signs, and the mean score in either world."""

    shared: tuple[str, ...]
    means: Regression | NDArray[np.float64]

    def at(self, pool: Pool, rows: Positions, m: int) -> tuple[NDArray[np.float64], ...]:
        """Return the sign of the effect, that of 1 minus both means, and both means."""
        means = self.means(pool, rows) if callable(self.means) else np.broadcast_to(self.means, (m, len(self.means)))
        a, b = np.hsplit(means, 2)
        return np.sign(b - a), np.sign(1.0 - a - b), a, b


class GraphForm:
    """Influence values of both worlds of an estimand under the graph's conditional independences.

    Parameters
    ----------
    estimand
        The formulas of both worlds.
    nuisances
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
        self.estimand, self.nuisances, self.seed = estimand, nuisances, seed
        self.saturated = isinstance(regression, str) and regression == "saturated"
        self.draws, self.most_scored, self.learned = draws, most_scored, learned
        self.graph = MechanismGraph.of(estimand)
        self.blocks = tuple(self._blocks(which) for which in (0, 1))
        self._pool = Pool(nuisances.graph, nuisances.rows.table)
        self._judges: dict[bytes, _Judge] = {}
        self._usable: dict[tuple[int, int], bool] = {}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the form rests on besides, a sentence each."""
        sensitive = self.graph.graph.sensitive
        drawn = "; ".join(dict.fromkeys(", ".join(block.nodes) for _, _, block in self._each_block())) or "none"
        return (
            "Graph form: each node depends on its parents alone, so a missing edge that is there makes it wrong. Its "
            f"blocks ({drawn}) are drawn from learned mechanisms; it is right if all of these are, or all but one "
            "whose weights are right, and its interval does not cover other errors.",
            f"The parents of each block occur in the group that is weighted there (positivity of P({sensitive} | "
            "parents)).",
        )

    # -- what is asked for ---------------------------------------------------------------------------------------------

    def stages(self, rows: Rows, folds: Folds | None = None) -> pd.DataFrame:
        """Return the diagnostics of the weight of each block, which no classifier enters."""
        pool, parts = self._pool_of(rows), self._parts(rows, folds)
        found = []
        for which, i, block in self._each_block():
            raw, _ = self._weights(rows, pool, parts, which, i)
            facts = _describe(raw, _relative(rows.weight))
            found.append({**self._name(which, block), **facts, "problem": _problem(facts, len(rows.a))})
        return pd.DataFrame(found, columns=[*STAGE_COLUMNS, "problem"])

    def influence(self, score: Scorer, rows: Rows, folds: Folds | None = None) -> InfluenceValues:
        """Return the influence values of rows for the columns of scores.

        Parameters
        ----------
        score
            The scores of drawn rows by all classifiers.
        rows
            The audited rows.
        folds
            Positions of training and judged rows among the fitted ones; by default those of the propensities.
        """
        pool, parts = self._pool_of(rows), self._parts(rows, folds)
        weights = {(which, i): self._weights(rows, pool, parts, which, i) for which, i, _ in self._each_block()}
        used = {key: one[1] for key, one in weights.items()}
        first = 0 if rows.position is None else pool.first_other
        found: _Values | None = None
        for judge, index in parts:
            learned = self._learn(judge, pool, score)
            found = found or _Values.empty(len(rows.a), learned.count, [*used])
            size = max(1, CHUNK // self._repeats(len(rows.a)))
            for at, chunk in enumerate(np.split(index, np.arange(size, len(index), size))):
                random = np.random.default_rng([judge.seed, at])
                self._evaluate(judge, learned, pool, score, chunk, first, used, found, random)
        if found is None:
            raise DataError("There are no rows to audit.")
        return self._collect(found, rows, {key: one[0] for key, one in weights.items()}, used)

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
                last = found[-1] if found else None
                if last and (last.shared, last.arm) == (shared, arm) and {*given} == {*last.reads}:
                    found[-1] = Block((*last.nodes, node), last.given, arm, shared)
                else:
                    found.append(Block((node,), given, arm, shared))
        return found

    def _each_block(self) -> list[tuple[int, int, Block]]:
        return [(which, i, block) for which in (0, 1) for i, block in enumerate(self.blocks[which])]

    def _name(self, which: int, block: Block) -> dict[str, object]:
        return {
            "regime": REGIMES[which],
            "nodes": ", ".join(block.nodes),
            "arm": block.arm,
            "given": ", ".join(block.given),
        }

    # -- rows and folds ------------------------------------------------------------------------------------------------

    def _pool_of(self, rows: Rows) -> Pool:
        return self._pool if rows.position is None else self._pool.beside(rows.table)

    def _parts(self, rows: Rows, folds: Folds | None) -> list[tuple[_Judge, NDArray[np.int64]]]:
        """Return each judge with the rows that it did not see; new rows have a judge that saw all fitted ones."""
        own = self.nuisances.rows
        known = np.flatnonzero(own.kept & (own.weight > 0.0))
        if self.saturated:
            return [(self._judge(known), np.arange(len(rows.a)))]
        if folds is None:
            folds = self._folds(known)
        fold = np.full(len(own.a), -1 if len(folds) < 2 else 0)
        for number, (_, test) in enumerate(folds):
            fold[test] = number if len(folds) > 1 else -1
        label = fold if rows.position is None else np.where(rows.position >= 0, fold[rows.position], -1)
        trains = {-1: known, **{number: np.intersect1d(train, known) for number, (train, _) in enumerate(folds)}}
        return [(self._judge(trains[int(one)]), np.flatnonzero(label == one)) for one in np.unique(label)]

    def _folds(self, known: NDArray[np.int64]) -> Folds:
        """Return the folds of the propensities."""
        if self.nuisances.folds < 2:
            return []
        split = StratifiedKFold(self.nuisances.folds, shuffle=True, random_state=self.nuisances.seed)
        return [(known[train], known[test]) for train, test in split.split(known, self.nuisances.rows.a[known])]

    def _judge(self, train: NDArray[np.int64]) -> _Judge:
        key = train.tobytes()
        if key not in self._judges:
            own, seed = self.nuisances.rows, self.seed + len(self._judges)
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
        found = score(CounterfactualSample(rows[[*graph.input_columns]], np.full(m, 1.0 / max(m, 1))))
        return np.asarray(found, dtype=np.float64).reshape(m, -1)

    # -- regressions ---------------------------------------------------------------------------------------------------

    def _learn(self, judge: _Judge, pool: Pool, score: Scorer) -> _Learned:
        """Learn the signs given what both worlds share, and the regressions of scores on each block."""
        worlds = self._training_worlds(judge, pool)
        scores = [self._score(score, pool, world, which) for which, (world, _) in enumerate(worlds)]
        multipliers = self._multipliers(judge, pool, worlds, scores)
        regressions: dict[tuple[int, int], Regression] = {}
        for which, (world, weight) in enumerate(worlds):
            targets = _functionals(which, scores[which], multipliers.at(pool, world.at, len(weight)))
            for i, block in enumerate(self.blocks[which]):
                kept = targets if block.shared else targets[:, : 4 * scores[which].shape[1]]
                regressions[which, i] = judge.mechanisms.regress(pool, block.reads, world.at, kept, weight)
        return _Learned(scores[0].shape[1], multipliers, regressions)

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
            return _Multipliers(shared, np.concatenate(means))
        if not self.saturated:  # row i of both worlds shares its values
            world, weight = worlds[0]
            return _Multipliers(shared, judge.mechanisms.regress(pool, shared, world.at, np.hstack(scores), weight))
        one, other = (
            judge.mechanisms.regress(pool, shared, world.at, s, weight)
            for s, (world, weight) in zip(scores, worlds, strict=True)
        )
        return _Multipliers(shared, lambda where, rows: np.hstack([one(where, rows), other(where, rows)]))

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
                regression, h = learned.regressions[which, i], h[h > 0.0][:, None]
                here = regression(pool, dict.fromkeys(block.reads, rows + first))
                start = judge.mechanisms.start(pool, block.given, rows + first, draws)
                drawn = judge.mechanisms.expand(pool, start, block, random)
                mean = drawn.mean(regression(pool, drawn.at))
                correction, q = h * (here - mean), learned.count
                found.world[which][rows, : correction.shape[1]] += correction
                found.correction[which, i][rows] = correction[:, :q]
                found.target[which, i][rows] = h * mean[:, :q]

    # -- weights -------------------------------------------------------------------------------------------------------

    def _weights(
        self, rows: Rows, pool: Pool, parts: list[tuple[_Judge, NDArray[np.int64]]], which: int, i: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the weight of each row in a block's residual, as estimated and as used, both (n,)."""
        block = self.blocks[which][i]
        member = rows.kept if block.arm is None else rows.member(block.arm)
        if self.saturated:
            h = np.where(member, self._cell_weights(rows, pool, parts[0][0], which, block), 0.0)
            return h, h
        if self._propensities_serve(which, i):
            h = np.where(member, self._propensity_weights(rows, which, block), 0.0)
            if not np.isfinite(h[rows.weight > 0.0]).all():
                raise PositivityError(
                    f"Rows to be weighted for {', '.join(block.nodes)} given {', '.join(block.given)} have an infinite "
                    f"weight: their group has the probability 0 by the propensity {self.nuisances.propensity_name}. "
                    "Choose one that is never certain, such as 'logistic'."
                )
            h = np.where(np.isfinite(h), h, 0.0)
            return h, h
        h = np.zeros(len(rows.a))
        first = 0 if rows.position is None else pool.first_other
        for judge, index in parts:
            some = index[member[index]]
            if len(some):
                h[some] = self._density_ratio(judge, pool, which, i, some + first)
        mean = float(np.average(h, weights=rows.weight))
        return h, h / mean if mean > 0.0 else h

    def _propensities_serve(self, which: int, i: int) -> bool:
        """Whether a block's weights by propensities have some effective size among the fitted rows, and no giant."""
        if (which, i) not in self._usable:
            own, block = self.nuisances.rows, self.blocks[which][i]
            h = self._propensity_weights(own, which, block)
            h = np.where(own.kept if block.arm is None else own.member(block.arm), h, 0.0)[own.weight > 0.0]
            weight, n = own.weight[own.weight > 0.0], len(h)
            usable = bool(np.isfinite(h).all() and h.any()) and (
                kish_size(weight * h) >= SMALLEST_SHARE * n and h.max() <= LARGEST_SHARE * n
            )
            self._usable[which, i] = bool(usable)
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
        return tuple(node for node in self.estimand.switched.order if node in nodes)

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
        return np.minimum(p / np.maximum(1.0 - p, 1e-12) / share, np.sqrt(len(own.a)))

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

    def _collect(
        self,
        found: _Values,
        rows: Rows,
        raw: dict[tuple[int, int], NDArray[np.float64]],
        used: dict[tuple[int, int], NDArray[np.float64]],
    ) -> InfluenceValues:
        weight, q = _relative(rows.weight), found.correction_width
        y0, effect0, rest0, mean0, sign, product = np.hsplit(found.world[0], 6)
        ypi, effect1, rest1, mean1 = np.hsplit(found.world[1], 4)
        stages = []
        for which, i, block in self._each_block():
            facts = {**self._name(which, block), **_describe(raw[which, i], weight)}
            values = (y0, ypi)[which]
            for column in range(q):
                correction, correction_z = _mean_z(found.correction[which, i][:, column], weight)
                balance, balance_z = _mean_z(found.target[which, i][:, column] - values[:, column], weight)
                stages.append(
                    {
                        "column": column,
                        **facts,
                        "balance": balance,
                        "balance_z": balance_z,
                        "correction": correction,
                        "correction_z": correction_z,
                    }
                )
        return InfluenceValues(
            y0=y0,
            ypi=ypi,
            lower=effect1 - effect0,
            rest=sign - rest0 - rest1,
            disagreement=y0 + ypi - 2.0 * (mean0 + mean1 - product),
            weight=weight,
            stages=pd.DataFrame(stages, columns=["column", *STAGE_COLUMNS, *CLASSIFIER_COLUMNS]),
        )


STAGE_COLUMNS = ("regime", "nodes", "arm", "given", "mean_weight", "mean_weight_z", "ess", "max_weight")
CLASSIFIER_COLUMNS = ("balance", "balance_z", "correction", "correction_z")


@dataclass(frozen=True)
class _Learned:
    """What is learned from training rows for one set of Q columns of scores."""

    count: int
    multipliers: _Multipliers
    regressions: dict[tuple[int, int], Regression]


@dataclass(frozen=True)
class _Values:
    """The values of n rows in both worlds, (n, 6 Q) and (n, 4 Q), and each block's part in Q of them."""

    world: tuple[NDArray[np.float64], NDArray[np.float64]]
    correction: dict[tuple[int, int], NDArray[np.float64]]
    target: dict[tuple[int, int], NDArray[np.float64]]
    correction_width: int

    @classmethod
    def empty(cls, n: int, q: int, keys: list[tuple[int, int]]) -> _Values:
        """Return zeros."""
        world = (np.zeros((n, 6 * q)), np.zeros((n, 4 * q)))
        return cls(world, *({key: np.zeros((n, q)) for key in keys} for _ in (0, 1)), q)


def _functionals(
    which: int, scores: NDArray[np.float64], multipliers: tuple[NDArray[np.float64], ...]
) -> NDArray[np.float64]:
    """Return the scores of a world alone and times functions of S; in world 0 functions of S alone after them."""
    effect, rest, a, b = multipliers
    found = [scores, effect * scores, rest * scores, (a if which else b) * scores]
    return np.hstack(found if which else [*found, rest, a * b])


def _relative(weight: NDArray[np.float64]) -> NDArray[np.float64]:
    return weight / weight.mean()


def _mean_z(values: NDArray[np.float64], weight: NDArray[np.float64], null: float = 0.0) -> tuple[float, float]:
    """Return the weighted mean of values (n,), and its distance from a null value in standard errors."""
    mean = float(np.average(values, weights=weight))
    error = float(np.sqrt(np.mean((weight * (values - mean)) ** 2) / len(values)))
    return mean, (mean - null) / error if error > 0.0 else 0.0


def _describe(h: NDArray[np.float64], weight: NDArray[np.float64]) -> dict[str, float]:
    """Return the diagnostics of a block's weights (n,)."""
    mean, z = _mean_z(h, weight, 1.0)
    size = kish_size(weight * h) if h.any() else 0.0
    return {"mean_weight": mean, "mean_weight_z": z, "ess": size, "max_weight": float(h.max(initial=0.0))}


def _problem(facts: dict[str, float], n: int) -> str:
    """Return what is wrong with a block's weights, or an empty text."""
    found = []
    if abs(facts["mean_weight"] - 1.0) > MEAN_ERROR and abs(facts["mean_weight_z"]) > MEAN_Z:
        found.append(f"the mean weight is {facts['mean_weight']:.3g}, {abs(facts['mean_weight_z']):.1f} errors from 1")
    if facts["ess"] < FEWEST_EFFECTIVE:
        found.append(f"the effective size is {facts['ess']:.0f} rows, below {FEWEST_EFFECTIVE:.0f}")
    if facts["max_weight"] > LARGEST_SHARE * n:
        found.append(f"the largest weight is {facts['max_weight']:.0f}, above a tenth of {n} rows")
    return "; ".join(found)
