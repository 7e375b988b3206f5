"""Where a difference between two groups comes from: confounding, and a part for each edge out of the attribute."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin

from pyrofair._defaults import default_of
from pyrofair._random import seed_from
from pyrofair._validation import (
    did_you_mean,
    require_choice,
    require_instance,
    require_integer,
    require_names,
    require_real,
    require_seed,
    shown,
)
from pyrofair.audits.audit import default_source, refuse_gaps, require_models
from pyrofair.audits.clusters import Clusters, describe_units
from pyrofair.audits.context import collected, texts_of
from pyrofair.audits.contrasts import Levels
from pyrofair.audits.decomposition import WORLDS, Decomposition
from pyrofair.audits.inputs import AuditedRows, JudgedModels
from pyrofair.audits.models import AuditedModel, ScoresAre
from pyrofair.audits.parts import NONE, UNFAIR_PATHS, Means, Pieces, Plan, tell_all
from pyrofair.audits.subgroups import Subgroup, read_subgroups
from pyrofair.audits.thresholds import read_thresholds
from pyrofair.audits.wald import Scores, describe_doubts, label_stages
from pyrofair.effects.estimates import Estimates, kish_size
from pyrofair.effects.potential_outcomes import FEWEST_ROWS
from pyrofair.effects.scoring import DECISIONS, decide
from pyrofair.exceptions import DataError, PositivityError, PyrofairWarning
from pyrofair.graph import CausalGraph, UnfairPaths, identify
from pyrofair.graph.first_edges import Switched, heads_of, world_of
from pyrofair.graph.identification import Estimand, RegimeEstimand, Target
from pyrofair.graph.paths import require_unfair
from pyrofair.nuisances.folds import FOLDS
from pyrofair.nuisances.learners import LearnerName, require_learner
from pyrofair.nuisances.rows import Nuisances, Rows
from pyrofair.tables.reading import as_pandas
from pyrofair.tables.recorded import Missing, assumed_of_records, join_truths

__all__ = ["Decomposition", "decompose", "require_order"]

SPLITS = 3
MOST_HEADS = 6
"""Of more first edges there are too many orders to average over."""
NOT_FOR_OUTCOME = "the data do not identify the total effect on it"
FEWER_PARTS = "some parts cannot be told apart for it; outcome=True merges these for the models too"


@dataclass(eq=False)
class Asked:
    """The worlds of one target, and what is wrong with their overlap in one order of the features."""

    target: Target
    scores: Scores
    pieces: Pieces
    worlds: dict[Switched, RegimeEstimand | None]
    problems: Mapping[Switched, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, target: Target, models: Sequence[AuditedModel], pieces: Pieces, observed: Mapping[str, NDArray[Any]],
        threshold: float, rules: Sequence[Any],
    ) -> Asked:  # fmt: skip
        """Return the worlds that single edges ask for, in the declared order of the features."""
        scores = Scores(models, observed, threshold, fresh=True, rules=tuple(rules))
        of = [pieces.order] if pieces.order else pieces.groups
        singles = Plan(tuple(tuple((head,) for head in group) for group in of), stated=pieces.order is not None)
        return cls(target, scores, pieces, {each: world_of(pieces.paths(each), target) for each in singles.worlds})

    def choose_order(self, learners: Any) -> None:
        """Put the features in an order in which most parts have overlap in all splits; note which worlds have none."""
        named = {self.pieces.named_world(each): each for each, part in self.worlds.items() if part is not None}
        known = {name: self.worlds[each] for name, each in named.items()}

        def cost(problems: Mapping[str, str]) -> tuple[int, int]:
            tried = replace(self, problems={named[name]: text for name, text in problems.items()})
            plan, _ = _plan_or_none([tried], self.pieces)
            return -len(plan.blocks) if plan else 0, len(problems)

        if known:
            found, problems = learners.choose_order(self.estimand, known, cost)
            self.worlds |= {named[name]: part for name, part in found.items()}
            self.problems = {named[name]: text for name, text in problems.items()}

    @property
    def estimand(self) -> Estimand:
        """The estimand of the total effect."""
        return identify(self.pieces.paths(Switched(self.pieces.heads)), self.target)

    def named(self, worlds: Sequence[Switched]) -> dict[str, RegimeEstimand | None]:
        """Return worlds by their names."""
        return {self.pieces.named_world(each): self.worlds[each] for each in worlds}

    def good(self, switched: Switched) -> bool:
        """Return whether a world is identified, and its groups overlap."""
        return self.worlds[switched] is not None and not self.problems.get(switched)


def decompose(
    models: Mapping[str, Any],
    graph: CausalGraph,
    df: Any,
    *,
    by: Literal["edges"] = "edges",
    order: Sequence[str] | None = None,
    unfair: UnfairPaths | None = None,
    contrasts: Sequence[Hashable] | None = None,
    outcome: bool | None = None,
    names: Mapping[str, str] | None = None,
    propensity: LearnerName | ClassifierMixin = "boosted",
    regression: LearnerName | RegressorMixin = "boosted",
    folds: int = FOLDS,
    splits: int = SPLITS,
    threshold: float = 0.5,
    thresholds: npt.ArrayLike | None = None,
    scores: ScoresAre = "auto",
    subgroups: str | Sequence[str] | Mapping[str, Any] | None = None,
    groups: npt.ArrayLike | str | None = None,
    missing: Missing = "refuse",
    sample_weight: npt.ArrayLike | None = None,
    level: float = 0.95,
    random_state: int | np.random.Generator | None = None,
) -> Decomposition:
    """Split the difference between two groups into confounding and a part for each edge out of the sensitive attribute.

    The gap is the difference of the groups' mean scores, or rates of positive decisions. With Y(S) the decision if all
    paths that begin with an edge in S have the contrast, and all others the baseline, and E all such edges,
    ``gap = confounding + P(Y(E)) - P(Y(none))``. An edge e adds P(Y(S and e)) - P(Y(S)), which depends on S: its part
    is the average over all orders in which edges can be switched (Shapley's weights), with the smallest and the largest
    beside it. Parts and confounding add up to the gap exactly.

    If the graph names a baseline and no contrast, each other level of the sensitive attribute is compared with it, as
    :func:`audit_contrasts` does, in one report: intervals hold at once for all levels and parts.

    Parameters
    ----------
    models
        As in :func:`pyrofair.audit`.
    graph
        The causal graph, whose baseline and contrast are the two groups.
    df
        n rows with the graph's columns, a pandas, polars or Arrow table.
    by
        What a part belongs to: ``"edges"`` out of the sensitive attribute, each with all paths that begin with it.
    order
        The nodes that these edges lead to, in the one order in which they are switched; the outcome stands for the
        direct edge. None: all orders, of at most six edges.
    unfair
        Unfair paths: a part each for these and for the others, before and after the other one; edges are switched
        within these. The unfair paths before all others have the mean unfair effect of an audit. If both kinds begin
        with one edge, there are no other parts.
    contrasts
        The levels that are compared with the baseline, as for :func:`audit_contrasts`; the graph's contrast is not used
        then.
    outcome
        Whether the observed outcome in ``df`` is split as well, and compared with the models: if its parts are those of
        the models (None), always (True; parts that are not identified for it are merged), or never (False).
    names
        Words for nodes, such as ``{"M": "marital status"}``.
    propensity, regression, folds, splits
        As in :class:`pyrofair.OneStep`, whose prefix form estimates every mean.
    threshold, thresholds, scores, subgroups, sample_weight, level
        As in :func:`pyrofair.audit`.
    groups, missing
        As in :func:`pyrofair.audit`: clusters of rows, such as households, and what becomes of missing values.
    random_state
        Seeds folds and models.

    Returns
    -------
    Decomposition
        Print it for the parts; ``.plot()`` is a waterfall, ``.table`` holds all numbers. Of several levels the tables
        have a first column, contrast.

    Raises
    ------
    DataError
        If a setting, a model or the table is unfit; nothing has been fitted then.
    NotIdentifiedError
        If the total effect, or that of the unfair paths, is not identified.
    PositivityError
        If the groups do not overlap enough for the total effect.

    See Also
    --------
    audit : The effect of the unfair paths alone, with bounds on the probability of individual unfairness.

    References
    ----------
    Shapley (1953) and Owen (1977) for the averages; Avin, Shpitser and Pearl (2005) for which sets of edges are
    identified; Zhang and Bareinboim (2018) for the difference as direct, indirect and spurious parts.

    Examples
    --------
    >>> graph = CausalGraph("C -> A; {C A} -> M; {C A M} -> Y", sensitive="A", outcome="Y")
    >>> rng = np.random.default_rng(0)
    >>> c = rng.integers(0, 2, 2000)
    >>> a = (rng.random(2000) < 0.3 + 0.4 * c).astype(int)
    >>> df = pd.DataFrame({"C": c, "A": a, "M": (rng.random(2000) < 0.2 + 0.4 * a + 0.2 * c).astype(int)})
    >>> class Model:
    ...     def predict_proba(self, X):
    ...         p = 0.1 + 0.1 * X["C"] + 0.2 * X["A"] + 0.3 * X["M"]
    ...         return np.column_stack([1 - p, p])
    >>> parts = decompose({"model": Model()}, graph, df, propensity="saturated", regression="saturated")
    >>> scores = parts.table[parts.table["decisions"] == "score"].set_index("part")
    >>> scores["estimate"].round(2).to_dict()
    {'gap': 0.38, 'total effect': 0.32, 'confounding': 0.06, 'by way of M': 0.12, 'directly': 0.2}
    """
    every = {**locals()}  # all that was asked, while there is nothing else
    require_models(models)
    require_instance("graph", graph, CausalGraph, "a CausalGraph")
    if unfair is not None and require_unfair("unfair", unfair, each=True).graph != graph:
        raise DataError("unfair has another graph than the one given; make the unfair paths by graph.unfair(...).")
    require_seed(random_state)
    seed = seed_from(random_state)
    if graph.contrast is None or contrasts is not None:
        return _each_level(**every | {"random_state": seed})
    require_choice("by", by, ("edges",))
    require_choice("scores", scores, get_args(ScoresAre))
    require_real("level", level, above=0.0, below=1.0, such_as=0.95)
    require_real("threshold", threshold, least=0.0, below=1.0)
    for name, value in (("folds", folds), ("splits", splits)):
        require_integer(name, value, least=1)
    require_learner("propensity", propensity, target="propensity")
    require_learner("regression", regression, target="regression")
    rules = (*DECISIONS, *read_thresholds(thresholds))
    pieces = Pieces.of(graph, unfair, _read_names(names, graph))
    if order is not None:
        pieces = _ordered(pieces, order)
    elif len(pieces.heads) > MOST_HEADS:
        raise DataError(
            f"{graph.sensitive!r} has {len(pieces.heads)} edges that lead to the outcome; parts are averaged over the "
            f"orders of at most {MOST_HEADS}. Say in which order they are switched: order={list(pieces.heads)}."
        )
    whole = UnfairPaths(graph, graph.directed_paths(graph.sensitive, graph.outcome))
    for paths in filter(None, (whole, unfair)):
        identify(paths)
    df = as_pandas(df)
    refuse_gaps(df, graph)
    read = AuditedRows.of(df, graph, both=True, sample_weight=sample_weight, groups=groups, missing=missing)
    table, clusters = read.table, read.clusters
    rows = Rows.of(table, read.a, read.weight, table, groups=None if clusters is None else clusters.key)
    if clusters is not None and (few := clusters.fewer()):
        raise DataError(f"Parts need intervals, and {few}. Leave out groups= to have them of rows, or add groups.")
    if (size := _smaller(rows, np.arange(len(table)))) < FEWEST_ROWS:
        raise DataError(f"A group has {size:.1f} effective rows, fewer than {FEWEST_ROWS}: too few for its mean.")
    within = read_subgroups(subgroups, default_source(whole, seed), table)
    judged = JudgedModels.of(models, read, graph, scores, threshold)
    for text in (warned := [*read.texts, *judged.texts]):
        warnings.warn(text, PyrofairWarning, stacklevel=2)
    nuisances = Nuisances(graph, propensity, rows, seed, None, folds, missing)
    learners = default_of("means in many worlds")(nuisances, regression, splits)
    ask = partial(Asked.of, pieces=pieces, observed=judged.observed, threshold=threshold)
    targets: dict[Target, list[AuditedModel]] = {"prediction": [], "outcome": []}
    for model in judged.models:
        targets["outcome" if judged.types[model.name].is_outcome else "prediction"].append(model)
    asked = [ask(target, own, rules=rules) for target, own in targets.items() if own]
    for each in asked:
        each.choose_order(learners)
    plan, notes = _plan(asked, pieces)
    beside = f"{graph.outcome_column}, observed"
    y, reason = (None, "") if outcome is False else _observed_outcome(read, graph)
    if y is not None:
        judged.observed[beside] = y
        own = ask("outcome", [AuditedModel(beside, y, graph, read.order, None, True)], rules=DECISIONS[:1])
        joint, told = None, [NOT_FOR_OUTCOME]
        if own.worlds[NONE] is not None and own.worlds[Switched(pieces.heads)] is not None:
            own.choose_order(learners)
            joint, told = _plan_or_none([*asked, own], pieces)
        if joint is None:
            reason = told[0] if told else "the groups do not overlap enough for it"
        elif len(joint.blocks) < len(plan.blocks) and not outcome:
            reason = FEWER_PARTS
        else:
            plan, notes, asked = joint, told, [*asked, own]
    if reason and outcome:
        raise DataError(f"outcome=True splits the observed outcome, which cannot be: {reason}.")
    notes += [f"The observed outcome is left out: {reason}."] if reason and y is not None else []
    compared = y is not None and not reason
    with collected() as caught:
        values, stages = _walk(asked, learners, plan, (beside, DECISIONS[0]) if compared else None, clusters)
    warned += texts_of(caught)
    heads = {UNFAIR_PATHS} if pieces.whole else {*heads_of(unfair.paths, graph)} if unfair is not None else set()
    worlds = [(pieces.paths(switched), each.target) for each in asked for switched in plan.worlds]
    records = [assumed_of_records(paths, table, target, chosen=False) for paths, target in worlds]
    told = [
        describe_units(rows.groups, rows.weight),
        *(text for made in (identify(*each) for each in worlds) for text in made.assumptions if text != made.support),
        *(text for stated in records for text in stated),
    ]
    for text in (truths := join_truths(text for _, *of_truths in filter(None, records) for text in of_truths)):
        warnings.warn(text, PyrofairWarning, stacklevel=2)
    first = next(part for part in asked[0].worlds.values() if part is not None)
    doubts = describe_doubts(stages, pd.DataFrame())
    estimates = replace(values.means(np.arange(len(table))), **values.by_subgroup(within, asked, learners))
    return Decomposition(
        **tell_all({"": estimates}, level)[""],
        estimates=estimates,
        stages=stages,
        graph=graph,
        plan=plan,
        unfair=tuple(pieces.named(block) for block in plan.blocks if {*block} <= heads),
        outcome=beside if compared else None,
        roots=tuple(graph.columns_of(first.order[: first.roots])),
        rows=len(table),
        level=level,
        threshold=threshold,
        settings={"propensity": str(propensity), "regression": str(regression), "folds": folds, "splits": splits}
        | {"threshold": threshold, "order": pieces.order, "level": level, "random_state": random_state},
        notes=(*notes, WORLDS) if doubts else tuple(notes),
        doubts=doubts,
        assumptions=tuple(join_truths(told)),
        warnings=(*warned, *truths),
        swapped=pieces.swapped,
    )


def _each_level(
    models: Any, graph: CausalGraph, df: Any, contrasts: Sequence[Hashable] | None, unfair: UnfairPaths | None,
    subgroups: Any, **asked: Any,
) -> Decomposition:  # fmt: skip
    """Return the parts of each level against the baseline, with intervals that hold at once, and of all together."""
    graph = graph.with_contrast(None)
    identify(UnfairPaths(graph, graph.directed_paths(graph.sensitive, graph.outcome)))
    own = {name: asked.pop(name) for name in ("sample_weight", "groups")}
    compared = Levels.of(df, graph, contrasts, missing=asked["missing"], **own)

    def make(each: Any, models: Any, df: pd.DataFrame, **within: Any) -> Decomposition:
        paths = None if unfair is None else unfair.with_contrast(each)
        return decompose(models, graph.with_contrast(each), df, unfair=paths, **asked | within)

    members = compared.run(models, make, subgroups, "split", progress=False)
    of = {each: one.estimates.placed(compared.rows[each], compared.units) for each, one in members.audits.items()}
    told = tell_all(of, asked["level"])
    levels = {each: replace(one, **told[each]) for each, one in members.audits.items()}
    return Decomposition.of_levels(levels, compared, members)


def require_order(order: Sequence[str], graph: CausalGraph, unfair: UnfairPaths) -> None:
    """Refuse an order of switching that does not fit the edges of a graph."""
    _ordered(Pieces.of(graph, unfair, {}), order)


def _ordered(pieces: Pieces, order: Sequence[str]) -> Pieces:
    given = require_names("order", order, "nodes")
    if sorted(given) != sorted(pieces.heads):
        raise DataError(
            f"order={list(given)} must name each node that an edge from {pieces.graph.sensitive!r} leads to once: "
            f"{', '.join(pieces.heads)} in any order ({pieces.graph.outcome!r} stands for the direct edge)."
        )
    return replace(pieces, order=given)


def _smaller(rows: Rows, at: NDArray[np.int64]) -> float:
    """Return the effective number of some rows in the smaller group."""
    return min(kish_size(rows.weight[at] * (rows.a[at] == group)) for group in (0, 1))


def _read_names(names: object, graph: CausalGraph) -> dict[str, str]:
    """Return words for nodes."""
    if names is None:
        return {}
    if not isinstance(names, Mapping) or not all(isinstance(each, str) for each in (*names, *names.values())):
        raise DataError(f"names={shown(names)} must give words for nodes, such as {{'M': 'marital status'}}, or None.")
    if unknown := [each for each in names if each not in graph.nodes]:
        raise DataError(f"names has {unknown[0]!r}, which is no node.{did_you_mean(unknown[0], graph.nodes)}")
    return dict(names)


def _observed_outcome(rows: AuditedRows, graph: CausalGraph) -> tuple[NDArray[np.float64] | None, str]:
    """Return the outcomes (n,) in 0 and 1, or why there are none to be split."""
    name, y = graph.outcome_column, rows.outcome
    if y is None:
        return None, f"df has no column {name!r}"
    if missing := int((y < 0).sum()):
        return None, f"{name!r} is missing in {missing:,} rows"
    return (y.astype(np.float64), "") if len(rows.labels) > 1 else (None, f"{name!r} has one value in all rows")


def _plan_or_none(asked: Sequence[Asked], pieces: Pieces) -> tuple[Plan | None, list[str]]:
    """Return the finest plan whose worlds are all good, and what it could not tell apart."""
    finest: Callable[..., Plan | None] = Plan.in_order if pieces.order else Plan.finest
    of: Any = pieces.order or pieces.groups
    identified = finest(of, lambda each: all(one.worlds[each] is not None for one in asked))
    plan = identified and finest(of, lambda each: all(one.good(each) for one in asked))
    if plan is None and not pieces.order and len(pieces.groups) > 1:
        return _plan_or_none(asked, replace(pieces, order=pieces.heads))
    notes = []
    for block in (each for each in (plan.blocks if plan else ()) if len(each) > 1):
        why = "latent causes join these paths"
        if identified is None or block not in identified.blocks:
            parting = [text for one in asked for S, text in one.problems.items() if 0 < len(S & {*block}) < len(block)]
            stage = f", stage {parting[0].split('; ')[0]}" if parting else ""
            why = f"the groups overlap too little for that{stage}"
        notes.append(f"Not told apart: {pieces.named(block)}; {why}.")
    return plan, notes


def _plan(asked: Sequence[Asked], pieces: Pieces) -> tuple[Plan, list[str]]:
    plan, notes = _plan_or_none(asked, pieces)
    if plan is not None:
        return plan, notes
    whole = Switched(pieces.heads)
    for each in asked:
        for paths in (whole, Switched(pieces.groups[0])):
            identify(pieces.paths(paths), each.target)
        texts = [f"World {pieces.named_world(S)}: {each.problems[S]}" for S in (NONE, whole) if each.problems.get(S)]
        if texts:
            raise PositivityError(
                f"The two groups do not overlap enough for the total effect. {'. '.join(texts)}. {WORLDS} Coarsen the "
                "features of these stages: join rare levels, 'not recorded' among them."
            )
    raise PositivityError("The two groups do not overlap enough for any part.")


@dataclass(frozen=True, eq=False)
class Values:
    """Influence values of every world (n, F), by how much splits move them, and the decisions they are of, by label."""

    labels: list[Any]
    values: NDArray[np.float64]
    moves: NDArray[np.float64] | None
    observed: Mapping[tuple[str, Any], NDArray[Any]]
    sizes: Mapping[Switched, float]
    rows: Rows
    clusters: Clusters | None
    plan: Plan
    pieces: Pieces
    beside: tuple[str, Any] | None

    def means(self, at: NDArray[np.int64]) -> Means:
        """Return the means of some rows in all worlds, and in both groups, first that of the baseline world."""
        a, weight = self.rows.a[at], self.rows.weight[at]
        columns, labels = [*self.values[at].T], [*self.labels]
        part = kish_size(weight) / kish_size(self.rows.weight)
        sizes: dict[Any, float] = {each: size * part for each, size in self.sizes.items()}
        for group in (0, 1):
            own = a == (group != self.pieces.swapped)
            member = weight * own
            sizes[group] = kish_size(member)
            for pair, of in self.observed.items():
                mean = float(member @ of[at] / member.sum())
                columns.append(mean + own * (of[at] - mean) * weight.sum() / member.sum())
                labels.append((*pair, group))
        more = len(labels) - len(self.labels)
        moves = None if self.moves is None else np.pad(self.moves[:, at], ((0, 0), (0, 0), (0, more)))
        index = pd.MultiIndex.from_tuples(labels, names=["model", "decisions", "functional"])
        frame = pd.DataFrame(np.column_stack(columns), columns=index)
        units: dict[str, Any] = {} if self.clusters is None else {"groups": self.clusters.code[at], "arm": a}
        return Means(Estimates(frame, weight, at=at, apart=moves, **units), sizes, self.plan, self.pieces, self.beside)

    def by_subgroup(self, levels: Sequence[Subgroup], asked: Sequence[Asked], learners: Any) -> dict[str, Any]:
        """Return the means ``within`` each level of subgroups, and why some are ``absent``, such as poor overlap."""

        def lacks(at: NDArray[np.int64]) -> str:
            if (size := _smaller(self.rows, at)) < FEWEST_ROWS:
                return f"a group has {size:.0f} effective rows, fewer than {FEWEST_ROWS}"
            if self.clusters is not None and (few := self.clusters.at(at).fewer()):
                return few
            lacking = (learners.lacking(one.estimand, one.named(self.plan.worlds), at) for one in asked)
            stages = [text for problems in lacking for text in problems.values()]
            return f"the groups overlap too little, stage {stages[0]}" if stages else ""

        places = {
            (each.name, name): np.flatnonzero(each.codes == code)
            for each in levels
            for code, name in enumerate(each.levels)
        }
        absent = {key: text for key, at in places.items() if (text := lacks(at))}
        return {"within": {key: self.means(at) for key, at in places.items() if key not in absent}, "absent": absent}


def _walk(
    asked: Sequence[Asked], learners: Any, plan: Plan, beside: tuple[str, Any] | None, clusters: Clusters | None
) -> tuple[Values, pd.DataFrame]:
    """Return the influence values of all worlds for all models, and the diagnostics of their stages."""
    rows, pieces = learners.nuisances.rows, asked[0].pieces
    named = {pieces.named_world(each): each for each in plan.worlds}
    sizes = dict.fromkeys(plan.worlds, kish_size(rows.weight))
    labels: list[Any] = []
    means, moves, tables = [], [], [pd.DataFrame()]
    decided: dict[tuple[str, Any], NDArray[Any]] = {}
    for one in asked:
        found, stages = learners.walk(one.estimand, one.named(plan.worlds), one.scores)
        if len(stages):
            tables.append(label_stages(stages, one.scores, rows.weight))
            for name, ess in stages.groupby("regime")["ess"].min().items():
                sizes[named[name]] = min(sizes[named[name]], ess)
        mean = found.mean(axis=0)
        means.append(mean)
        moves.append((found - mean) / np.sqrt(len(found)))
        labels += [(*pair, switched) for pair in one.scores.columns for switched in plan.worlds]
        decided |= {
            pair: decide(one.scores.observed[pair[0]], pair[1], one.scores.threshold) for pair in one.scores.columns
        }
    apart = np.concatenate(moves, axis=2) if len(moves[0]) > 1 else None
    held = Values(labels, np.hstack(means), apart, decided, sizes, rows, clusters, plan, pieces, beside)
    return held, pd.concat(tables, ignore_index=True)
