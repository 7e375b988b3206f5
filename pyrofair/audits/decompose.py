"""Where a difference between two groups comes from: confounding, and a part for each edge out of the attribute."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, permutations
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin

from pyrofair._random import seed_from
from pyrofair._validation import require_choice, require_instance, require_integer, require_names, require_real
from pyrofair._validation import require_seed
from pyrofair.audits.models import AuditedModel, judge_scores
from pyrofair.audits.parts import CONFOUNDING, GAP, NONE, TOTAL, Means, Plan, union_of
from pyrofair.audits.thresholds import read_thresholds
from pyrofair.audits.wald import Scores, describe_doubts, label_stages
from pyrofair.effects.estimates import Estimates
from pyrofair.effects.potential_outcomes import kish_size
from pyrofair.effects.scoring import DECISIONS, Decisions, decide
from pyrofair.exceptions import DataError, GraphError, NotIdentifiedError, PositivityError, PyrofairWarning
from pyrofair.graph import CausalGraph, UnfairPaths, identify
from pyrofair.graph.first_edges import Block, Switched, beginning_with, heads_of, world_of
from pyrofair.graph.identification import RegimeEstimand, Target
from pyrofair.nuisances.diagnostics import describe_unsupported
from pyrofair.nuisances.folds import FOLDS
from pyrofair.nuisances.learners import LearnerName
from pyrofair.nuisances.rows import Nuisances, Rows
from pyrofair.sources.prefix_form import PrefixForm, as_world
from pyrofair.sources.walks import walk_worlds
from pyrofair.tables.labels import read_outcome
from pyrofair.tables.reading import as_pandas, describe_reading, feature_columns, read_table

__all__ = ["Decomposition", "decompose"]

SPLITS = 3
MOST_HEADS = 6
"""Of more first edges there are too many orders to average over."""
MOST_ORDERS = 24
"""So many orders of the features are tried for one in which all worlds overlap."""
UNFAIR, FAIR = "unfair paths", "fair paths"
CROSSED = {"logistic", "saturated"}


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The result of :func:`decompose`."""

    table: pd.DataFrame
    contrasts: pd.DataFrame
    differences: pd.DataFrame
    stages: pd.DataFrame
    means: pd.DataFrame
    plan: Plan
    notes: list[str]
    assumptions: tuple[str, ...]
    doubts: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Pieces:
    """What a difference is split along: first edges, by their heads, or the unfair paths and the fair ones as wholes.

    ``groups`` are the heads by whether their paths are unfair, if that was said.
    """

    graph: CausalGraph
    groups: tuple[Block, ...]
    whole: Mapping[str, UnfairPaths] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    swapped: bool = False

    @classmethod
    def of(cls, graph: CausalGraph, unfair: UnfairPaths | None, names: Mapping[str, str]) -> Pieces:
        """Return the first edges, or, if unfair and fair paths begin with one edge, these as wholes."""
        if unfair is None:
            every = graph.directed_paths(graph.sensitive, graph.outcome)
            return cls(graph, (heads_of(every, graph),), names=names)
        groups = [heads_of(paths, graph) for paths in (unfair.paths, unfair.fair_paths)]
        kept, swapped = tuple(filter(None, groups)), unfair.swapped
        if not {*groups[0]} & {*groups[1]}:
            return cls(graph, kept, names=names, swapped=swapped)
        whole = {UNFAIR: unfair, FAIR: unfair.complement()}
        return cls(graph, ((UNFAIR,), (FAIR,)), whole, names, swapped)

    @property
    def heads(self) -> Block:
        """All heads."""
        return tuple(head for group in self.groups for head in group)

    def paths(self, switched: Switched) -> UnfairPaths:
        """Return the paths that are switched."""
        if self.whole and len(switched) == 1:
            return self.whole[next(iter(switched))]
        graph = self.graph
        every = graph.directed_paths(graph.sensitive, graph.outcome)
        heads = heads_of(every, graph) if self.whole and switched else switched
        return replace(beginning_with(heads, graph), swapped=self.swapped)

    def named(self, block: Sequence[str]) -> str:
        """Return the words for a block."""
        return " and ".join(map(self._name, block))

    def _name(self, head: str) -> str:
        if self.whole:
            return head
        return "directly" if head == self.graph.outcome else f"by way of {self.names.get(head, head)}"

    def named_world(self, switched: Switched) -> str:
        """Return the words for a world."""
        return f"{self.named([head for head in self.heads if head in switched])} switched" if switched else "baseline"


@dataclass(eq=False)
class Asked:
    """The worlds of one target, and what is wrong with their overlap in one order of the features."""

    target: Target
    scores: Scores
    worlds: dict[Switched, RegimeEstimand | None]
    problems: dict[Switched, str] = field(default_factory=dict)

    def good(self, switched: Switched) -> bool:
        """Return whether a world is identified, and its groups overlap."""
        return self.worlds[switched] is not None and not self.problems.get(switched)


@dataclass(frozen=True, eq=False)
class Learners:
    """The models of propensities and of scores, and the rows that they are fitted on."""

    nuisances: Nuisances
    regression: LearnerName | RegressorMixin
    splits: int

    @property
    def saturated(self) -> bool:
        """Whether one of them has a parameter for each cell."""
        return "saturated" in [each for each in (self.nuisances.propensity, self.regression) if isinstance(each, str)]

    @property
    def crossed(self) -> bool:
        """Whether rows are judged by models that did not see them."""
        both = (self.nuisances.propensity, self.regression)
        return not {each if isinstance(each, str) else "" for each in both} <= CROSSED

    def form(self, asked: Asked, pieces: Pieces, worlds: Sequence[Switched], split: int = 0) -> PrefixForm:
        """Return the form of some worlds, by another split into folds."""
        own = self.nuisances
        if split:
            seed = int(np.random.default_rng([own.seed, split]).integers(2**31))
            own = replace(own, rows=replace(own.rows, probability={}), seed=seed, models={}, matches=[])
        estimand = identify(pieces.paths(Switched(pieces.heads)), asked.target)
        made = []
        for switched in worlds:
            part = asked.worlds[switched]
            assert part is not None, "only worlds that are identified have a form"
            made.append(as_world(part, asked.target, part.roots, pieces.named_world(switched)))
        return PrefixForm(estimand, own, self.regression, own.seed, made)

    def find_problems(self, asked: Asked, pieces: Pieces) -> dict[Switched, str]:
        """Return what is wrong with the overlap of each world, in the present order of the features."""
        known = [each for each, part in asked.worlds.items() if part is not None]
        form = self.form(asked, pieces, known)
        bad = form.stages(self.nuisances.rows).query("problem != ''")
        found = {}
        for switched, world in zip(known, form.worlds, strict=True):
            name = pieces.named_world(switched)
            texts = [f"{each.nodes}: {each.problem}" for each in bad[bad["regime"] == name].itertuples()]
            more, _ = describe_unsupported(world.part, name, self.nuisances, saturated=self.saturated)
            found[switched] = "; ".join(filter(None, [*texts, more]))
        return found


def decompose(
    models: Mapping[str, Any],
    graph: CausalGraph,
    df: Any,
    *,
    by: Literal["edges"] = "edges",
    order: Sequence[str] | None = None,
    unfair: UnfairPaths | None = None,
    outcome: bool | None = None,
    names: Mapping[str, str] | None = None,
    propensity: LearnerName | ClassifierMixin = "boosted",
    regression: LearnerName | RegressorMixin = "boosted",
    folds: int = FOLDS,
    splits: int = SPLITS,
    threshold: float = 0.5,
    thresholds: npt.ArrayLike | None = None,
    groups: npt.ArrayLike | str | None = None,
    sample_weight: npt.ArrayLike | None = None,
    level: float = 0.95,
    random_state: int | np.random.Generator | None = None,
) -> Decomposition:
    """Split the difference of mean scores between two groups: confounding, and a part for each first edge."""
    require_choice("by", by, ("edges",))
    require_instance("graph", graph, CausalGraph, "a CausalGraph")
    require_real("level", level, above=0.0, below=1.0, such_as=0.95)
    require_real("threshold", threshold, least=0.0, below=1.0)
    require_integer("splits", splits, least=1)
    require_seed(random_state)
    seed = seed_from(random_state)
    if unfair is not None:
        require_instance("unfair", unfair, UnfairPaths, "unfair paths, made by graph.unfair(...), or None")
    pieces = Pieces.of(graph, unfair, dict(names or {}))
    wanted = None if order is None else _read_order(order, pieces)
    if wanted is None and len(pieces.heads) > MOST_HEADS:
        raise DataError(
            f"{graph.sensitive!r} has {len(pieces.heads)} edges towards the outcome, and parts are averaged over orders of at most "
            f"{MOST_HEADS}. Say in which order they are switched: order={list(pieces.heads)}."
        )
    df = as_pandas(df)
    table = read_table(df, feature_columns(graph), what="df")
    for text in describe_reading(df, graph):
        warnings.warn(text, PyrofairWarning, stacklevel=2)
    if isinstance(groups, str):
        groups = read_table(df, [groups], what="df")[groups].to_numpy()
    rows = Rows.read(df, sample_weight, graph, groups)
    rules = (*DECISIONS, *read_thresholds(thresholds))
    known = [AuditedModel(name, model, graph, tuple(c for c in df.columns if c in graph.input_columns)) for name, model in models.items()]
    observed = {each.name: each.observed(table) for each in known}
    types = {each.name: judge_scores(each, table, observed[each.name], "auto") for each in known}
    outcomes = [replace(each, model=observed[each.name], decided=len(each.decisions) == 1) for each in known if types[each.name].is_outcome]
    predicted = [each for each in known if not types[each.name].is_outcome]
    made = Nuisances(graph, propensity, rows, seed, None, folds)
    learners = Learners(made, regression, splits)
    singles = Plan((tuple((head,) for head in wanted),), stated=True) if wanted else Plan(tuple(tuple((head,) for head in group) for group in pieces.groups))
    targets: list[tuple[Target, list[AuditedModel]]] = [("prediction", predicted), ("outcome", outcomes)]
    asked = [_ask(target, own, observed, threshold, rules, singles, pieces) for target, own in targets if own]
    for each in asked:
        _choose_order(each, pieces, learners)
    plan, notes = _plan(asked, pieces, wanted)
    shown = None
    if outcome is not False and graph.outcome_column in df.columns and outcomes == []:
        column = read_table(df, [graph.outcome_column], what="df")[graph.outcome_column]
        values = read_outcome(column, graph.positive)[0].astype(np.float64)
        name = f"{graph.outcome_column}, observed"
        observed[name] = values
        own = _ask("outcome", [AuditedModel(name, values, graph, (), None, True)], observed, threshold, DECISIONS[:1], singles, pieces)
        reason = ""
        if own.worlds[NONE] is None or own.worlds[Switched(pieces.heads)] is None:
            reason = "the total effect on it is not identified"
        else:
            _choose_order(own, pieces, learners)
            joint, more = _plan_or_none([*asked, own], pieces, wanted)
            if joint is None:
                reason = "groups do not overlap enough for it"
            elif len(joint.blocks) < len(plan.blocks) and not outcome:
                reason = "its parts are fewer than those of the models; outcome=True compares these"
            else:
                plan, notes, shown = joint, more, name
                asked.append(own)
        if reason:
            notes.append(f"The observed outcome is left out: {reason}.")
    return _estimate(asked, pieces, learners, plan, notes, observed, level, unfair, shown)


def _read_order(order: Sequence[str], pieces: Pieces) -> Block:
    given = require_names("order", order, "nodes")
    if sorted(given) != sorted(pieces.heads):
        raise DataError(
            f"order={list(given)} must name each node that an edge from {pieces.graph.sensitive!r} leads to once: "
            f"{', '.join(pieces.heads)} in any order ({pieces.graph.outcome!r} stands for the direct edge)."
        )
    return given


def _ask(
    target: Target,
    models: Sequence[AuditedModel],
    observed: Mapping[str, NDArray[Any]],
    threshold: float,
    rules: Sequence[Any],
    singles: Plan,
    pieces: Pieces,
) -> Asked:
    scores = Scores(models, observed, threshold, fresh=True, rules=tuple(rules))
    worlds = {each: world_of(pieces.paths(each), target) for each in singles.worlds}
    return Asked(target, scores, worlds)


def _choose_order(asked: Asked, pieces: Pieces, learners: Learners) -> None:
    """Put the features in the order in which the fewest worlds lack overlap, the declared one if it is as good."""
    known = {each: part for each, part in asked.worlds.items() if part is not None}
    if not known:
        return
    first = next(iter(known.values()))
    roots, rest = first.order[: first.roots], first.order[first.roots :]
    needs: dict[str, set[str]] = {node: set() for node in rest}
    for part in known.values():
        for factor in part.factors[part.roots :]:
            needs[factor.node] |= {*factor.given} & {*rest}
    allowed = (each for each in permutations(rest) if all(needs[v] <= {*each[:i]} for i, v in enumerate(each)))
    best: tuple[int, dict[Switched, RegimeEstimand | None], dict[Switched, str]] | None = None
    for tried in islice(allowed, MOST_ORDERS):
        asked.worlds = asked.worlds | {each: part.ordered((*roots, *tried)) for each, part in known.items()}
        problems = learners.find_problems(asked, pieces)
        poor = sum(map(bool, problems.values()))
        if best is None or poor < best[0]:
            best = poor, asked.worlds, problems
        if not poor:
            break
    assert best is not None
    _, asked.worlds, asked.problems = best


def _plan_or_none(asked: Sequence[Asked], pieces: Pieces, order: Block | None) -> tuple[Plan | None, list[str]]:
    """Return the finest plan whose worlds are all good, and what it could not tell apart."""
    finest: Callable[..., Plan | None] = Plan.in_order if order else Plan.finest
    of: Any = order or pieces.groups
    identified = finest(of, lambda each: all(one.worlds[each] is not None for one in asked))
    plan = identified and finest(of, lambda each: all(one.good(each) for one in asked))
    if plan is None and not order and len(pieces.groups) > 1:
        return _plan_or_none(asked, pieces, pieces.heads)
    notes = []
    for block in plan.blocks if plan and identified else ():
        if len(block) > 1 and block in identified.blocks:
            notes.append(f"Not told apart: {pieces.named(block)}. Latent causes join these paths.")
        elif len(block) > 1:
            notes.append(f"Not told apart: {pieces.named(block)}. The groups overlap too little for that.")
    return plan, notes


def _plan(asked: Sequence[Asked], pieces: Pieces, order: Block | None) -> tuple[Plan, list[str]]:
    plan, notes = _plan_or_none(asked, pieces, order)
    if plan is not None:
        return plan, notes
    whole = Switched(pieces.heads)
    for each in asked:
        for paths in (whole, Switched(pieces.groups[0])):
            identify(pieces.paths(paths), each.target)
        texts = [f"{pieces.named_world(S)}: {each.problems.get(S)}" for S in (NONE, whole) if each.problems.get(S)]
        if texts:
            raise PositivityError(
                f"The two groups do not overlap enough for the total effect. {'. '.join(texts)}. Coarsen the features of these stages."
            )
    raise PositivityError("The two groups do not overlap enough for any part.")


def _estimate(
    asked: Sequence[Asked],
    pieces: Pieces,
    learners: Learners,
    plan: Plan,
    notes: list[str],
    observed: Mapping[str, NDArray[Any]],
    level: float,
    unfair: UnfairPaths | None,
    shown: str | None,
) -> Decomposition:
    rows, worlds = learners.nuisances.rows, plan.worlds
    splits = learners.splits if learners.crossed and learners.nuisances.folds > 1 else 1
    columns: dict[Any, NDArray[np.float64]] = {}
    moves: dict[Any, NDArray[np.float64]] = {}
    tables, sizes = [], {each: kish_size(rows.weight) for each in worlds}
    for one in asked:
        found = []
        for split in range(splits):
            values, stages = walk_worlds(learners.form(one, pieces, worlds, split), one.scores)
            found.append(np.stack(values, axis=-1))  # (n, Q, worlds)
            if not split:
                tables.append(label_stages(stages, one.scores, rows.weight))
                for switched in worlds:
                    own = stages[stages["regime"] == pieces.named_world(switched)] if len(stages) else stages
                    sizes[switched] = min([sizes[switched], *own["ess"]]) if len(own) else sizes[switched]
        mean = np.mean(found, axis=0)
        apart = (np.stack(found) - mean) / np.sqrt(splits)
        for q, pair in enumerate(one.scores.columns):
            for i, switched in enumerate(worlds):
                columns[(*pair, switched)], moves[(*pair, switched)] = mean[:, q, i], apart[:, :, q, i]
            decided = decide(observed[pair[0]], pair[1], one.scores.threshold)
            for group in (0, 1):
                member = (rows.a == group) * rows.weight
                m = member @ decided / member.sum()
                columns[(*pair, group)] = m + (rows.a == group) * (decided - m) * rows.weight.sum() / member.sum()
                moves[(*pair, group)] = np.zeros((splits, len(m_ := columns[(*pair, group)])))
                sizes[group] = kish_size(member)
    labels = pd.MultiIndex.from_tuples(columns, names=["model", "decisions", "functional"])
    influence = pd.DataFrame(np.column_stack([*columns.values()]), columns=labels)
    between = np.stack([*moves.values()], axis=-1) if splits > 1 else None
    means = Means(Estimates(influence, rows.weight, groups=rows.groups, apart=between), sizes, plan, pieces.named)
    pairs = [pair for one in asked for pair in one.scores.columns]
    grouped = (UNFAIR, FAIR) if len(plan.groups) > 1 and not pieces.whole else ()
    stages = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
    return Decomposition(
        means.table(pairs, level, grouped),
        means.contrasts(pairs, level),
        pd.DataFrame(),
        stages,
        means.world_table(pairs, level, pieces.named_world),
        plan,
        notes,
        (),
        describe_doubts(stages, pd.DataFrame()),
    )
