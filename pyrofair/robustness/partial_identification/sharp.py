"""Bounds on both potential outcomes and on PIU by optimisation over response types, on tables of few levels."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray

from pyrofair._progress import progress_bar
from pyrofair._random import seed_from
from pyrofair._validation import (
    require_choice,
    require_flag,
    require_integer,
    require_real,
    require_seed,
)
from pyrofair.audits.clusters import describe_units
from pyrofair.audits.display.page import missing_tables
from pyrofair.effects.estimates import kish_size, percentiles, reach_of, reach_of_shares, shares_of
from pyrofair.effects.potential_outcomes import FEWEST_ROWS
from pyrofair.effects.scoring import DECISIONS, Decisions
from pyrofair.exceptions import DataError, PositivityWarning, PyrofairWarning
from pyrofair.graph.paths import UnfairPaths, require_unfair, show_paths
from pyrofair.graph.projection import sharing_causes
from pyrofair.robustness.partial_identification.costs import (
    QUANTITIES,
    Contexts,
    Costs,
    Head,
    Quantity,
    find_contexts,
    tabulate,
)
from pyrofair.robustness.partial_identification.evaluations import ObservedGraph
from pyrofair.robustness.partial_identification.program import InfeasibleError, Polytope, optimise
from pyrofair.robustness.partial_identification.reading import CodedTable, few_levels, read_cells, read_score
from pyrofair.robustness.partial_identification.response_types import Cells, Factors, Plan, plan_program
from pyrofair.tables.reading import as_pandas, read_groups, warn_unused
from pyrofair.tables.recorded import Missing, assumed_of_records, missing_shares, require_missing
from pyrofair.tables.row_identity import hash_groups

__all__ = ["MAX_TYPES", "SharpBounds", "sharp_bounds"]

Vector = NDArray[np.float64]
Ends = tuple[float, float]

MAX_TYPES = 20_000
"""The largest number of combinations of response types of one program."""
MOST_ENTRIES = 20_000_000
"""The largest number of entries of one matrix of constraints."""
MOST_SLACK = 0.1
"""Right sides that must be moved by more than this in sum, averaged over the contexts, are refused."""
TOLD = 1e-6
"""Slack, undetermined mass and gaps below this are rounding."""
SIGNS = (1.0, -1.0)
"""Of the lower and the upper bound: both are minima."""
GROUPS: tuple[tuple[Quantity, ...], ...] = (("y0",), ("ypi",), ("effect", "piu"))
SHARES: Mapping[Any, str] = {"y0": "p_y0", "ypi": "p_ypi", "effect": "mean_unfair_effect", "piu": "piu_lower"}
"""As what quantity of an audit each is a share of the rows."""
LEAST: Mapping[Quantity, float] = {"y0": 0.0, "ypi": 0.0, "effect": -1.0, "piu": 0.0}
LABELS: Mapping[Quantity, str] = {
    "y0": "P(Y0 = 1)",
    "ypi": "P(Ypi = 1)",
    "effect": "E[Ypi - Y0]",
    "piu": "PIU",
}


@dataclass(frozen=True, eq=False, repr=False)
class SharpBounds:
    """Bounds on both potential outcomes, their mean difference and PIU, each (low, high); made by `sharp_bounds`.

    Parameters
    ----------
    y0, ypi, effect, piu
        Bounds on P(Y0 = 1), P(Ypi = 1), the mean unfair effect E[Ypi - Y0], and PIU = P(Y0 != Ypi). A quantity that is
        identified has two equal ends.
    sharp
        Whether each end is attained by a model that has the graph, the assumptions and the distribution of the data.
        All bounds are valid either way.
    why_not_sharp
        If not: the reasons, a sentence each.
    assumptions
        What the bounds depend on, a sentence each.
    notes
        What was found about the table, a sentence each.
    table
        A row for each quantity: low, high and, with ``n_boot``, the ranges of both ends by their replicates,
        ``low_from``, ``low_to``, ``high_from`` and ``high_to``, at the level. They are moved outward by an estimate of
        the bias of the ends, which err inward in samples, and stay within [0, 1], or [-1, 1] of the effect.
    types
        The number of combinations of response types in the largest program.
    undetermined
        The largest probability mass on values whose distribution the table does not hold; it is left free.
    slack
        By how much the distribution of the data was moved in sum, averaged over contexts, to be one that the graph
        allows.
    rows, n_boot, level
        The rows of the table, the bootstrap replicates, and the level of the ranges made of them.
    missing
        The shares of missing values, by column and group.
    """

    unfair: UnfairPaths
    target: str
    y0: Ends
    ypi: Ends
    effect: Ends
    piu: Ends
    sharp: bool
    why_not_sharp: tuple[str, ...]
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    table: pd.DataFrame = field(repr=False)
    types: int
    undetermined: float
    slack: float
    rows: int
    n_boot: int
    level: float
    missing: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)

    def interval(self, quantity: str) -> Ends:
        """Return an interval that covers the bounds of a quantity, and so its value, with about the level.

        It runs from the lower limit of the low end to the upper one of the high end. A DataError without replicates.
        """
        require_choice("quantity", quantity, [*LABELS])
        if not self.n_boot:
            raise DataError("There are no replicates, so there is no interval: sharp_bounds(..., n_boot=200).")
        row: Any = self.table.loc[quantity]
        return float(row["low_from"]), float(row["high_to"])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        kind = "Sharp bounds" if self.sharp else "Valid bounds, not shown to be sharp,"
        lines = [f"{kind} of the {self.target}; unfair: {show_paths(self.unfair.paths)}; {self.rows:,} rows"]
        if self.n_boot:
            lines[0] += f"; {100 * self.level:g} % interval by {self.n_boot} replicates"
        for name, label in LABELS.items():
            low, high = getattr(self, name)
            shown = f"{low:.4f} (identified)" if high - low <= TOLD else f"[{low:.4f}, {high:.4f}]"
            if self.n_boot:
                start, end = self.interval(name)
                shown = f"{shown:<20} within [{start:.4f}, {end:.4f}]"
            lines.append(f"  {label:<12} {shown}")
        for title, texts in (
            ("Why not sharp", self.why_not_sharp),
            ("Notes", self.notes),
            ("Assumptions", self.assumptions),
        ):
            if texts:
                lines += [f"{title}:", *(f"  {i}. {text}" for i, text in enumerate(texts, 1))]
        return "\n".join([*lines, *(line for table in missing_tables(self.missing) for line in table.lines())])

    __repr__ = __str__


def sharp_bounds(
    unfair: UnfairPaths,
    df: pd.DataFrame,
    score: Any = None,
    sample_weight: npt.ArrayLike | None = None,
    *,
    decisions: Decisions = "threshold",
    threshold: float = 0.5,
    independent_errors: bool = True,
    max_types: int = MAX_TYPES,
    groups: npt.ArrayLike | str | None = None,
    n_boot: int = 0,
    level: float = 0.95,
    missing: Missing = "refuse",
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
) -> SharpBounds:
    """Bound both potential outcomes and PIU by what the graph and a table of few levels say, identified or not.

    Assumes the graph with its latent nodes; any set of unfair paths, recanting witnesses included. Each node is a
    function, its response type, of what it reads. Types of nodes that a latent node joins have any joint distribution
    with the factors of the data; those of different districts are independent. Each end is the optimum over these
    distributions.

    Parameters
    ----------
    unfair
        The unfair paths.
    df
        n rows with the columns of the observed nodes that the target depends on, each of few levels. Columns of other
        nodes that share a latent cause with these narrow the bounds, and are used if they have few levels.
    score
        None: the outcome column as observed, such as decisions of humans. Or a known classifier: a fitted model as in
        an audit, or its scores or decisions for the rows (n,). A latent cause of the observed outcome then plays no
        part. Scores that are no function of the outcome's parents are refused.
    sample_weight
        Weights of the rows (n,); a common factor changes nothing.
    decisions, threshold
        Of a classifier: ``"threshold"`` decides 1[score > threshold]; ``"score"`` draws a decision with the score's
        probability, in each world with any dependence on that in the other.
    independent_errors
        Whether the types of different districts are independent (NPSEM-IE). False keeps only what single worlds say:
        no assumption about the dependence between nodes in different worlds.
    max_types
        The largest number of combinations of response types of one program.
    groups
        The column of ``df``, outside the graph, of groups of rows such as households, or their labels (n,): replicates
        are of whole groups, of which there must be 10. None: each row is a unit.
    n_boot
        Bootstrap replicates of the counts of cells, by Dirichlet weights of units; 0 for none. Of a table of counts,
        pass the rows themselves.
    level
        The level of the intervals.
    missing
        ``"recorded"``: "not recorded" is a level of a feature with missing values. ``"refuse"`` takes none.
    random_state
        Seeds the replicates.

    Returns
    -------
    SharpBounds
        ``y0``, ``ypi``, ``effect`` and ``piu``, each (low, high); whether they are ``sharp``; what they depend on.

    Raises
    ------
    DataError
        If the table, the scores or a setting are unfit; if a program would have more than ``max_types`` types; if no
        model with this graph has a distribution near that of the data.
    NotIdentifiedError
        If an edge stands for an unfair and for a fair path through a latent node.

    Warns
    -----
    PositivityWarning
        If the table lacks rows on which a distribution depends; it is then left free.
    PyrofairWarning
        If the data violate inequalities that the graph implies; the nearest distribution that does not is used.

    References
    ----------
    Balke and Pearl (1997); Duarte et al. (2023) for response types and polynomial programs; Tian and Pearl (2002) for
    the factors of districts; Chikahara et al. (2021), appendix "Addressing latent confounders", for the closed-form
    bounds that these are never wider than.

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    >>> df = pd.DataFrame({"A": [0] * 40 + [1] * 60, "M": [0] * 30 + [1] * 10 + [0] * 15 + [1] * 45})
    >>> df["Y"] = [0, 0, 1, 1, 1] * 20
    >>> found = sharp_bounds(graph.unfair("A -> Y"), df)
    >>> found.sharp, [round(each, 4) for each in found.piu]
    (True, [0.0, 0.8])
    """
    require_unfair("unfair", unfair)
    require_choice("decisions", decisions, DECISIONS)
    threshold = require_real("threshold", threshold, least=0.0, below=1.0)
    independent = require_flag("independent_errors", independent_errors)
    max_types = require_integer("max_types", max_types)
    n_boot = require_integer("n_boot", n_boot, least=0)
    level = require_real("level", level, above=0.0, below=1.0)
    require_missing(missing)
    require_seed(random_state)
    graphs, unused = _observed_graphs(unfair, df, missing, known=score is not None)
    observed, widest = graphs[0], graphs[-1]
    coded = read_cells(df, sample_weight, widest, missing)
    warn_unused(df, unfair.graph, groups=groups)
    unit = hash_groups(read_groups(groups, as_pandas(df), unfair.graph))
    size = kish_size(coded.weight, unit)
    if unit is not None and n_boot and size < FEWEST_ROWS:
        raise DataError(f"df has {size:.1f} effective group(s), fewer than {FEWEST_ROWS}: too few for an interval.")
    heads = None
    if score is not None:
        probability = read_score(score, coded, widest, decisions, threshold)
        heads = Head(unfair.graph.inputs, probability, drawn=decisions == "score", couples=False)
    codes, first, index = np.unique(coded.codes, axis=0, return_index=True, return_inverse=True)
    cells = [Cells(each, coded.sizes, codes[:, [widest.nodes.index(node) for node in each.nodes]]) for each in graphs]
    program = _Program.choose(cells, heads, max_types, independent, unused)
    weight = np.asarray(np.bincount(index.ravel(), coded.weight, len(first)), dtype=np.float64)
    found = program.evaluate(weight, certify=True)
    table = pd.DataFrame(found.ends, index=["low", "high"]).T.rename_axis("quantity")
    notes = program.notes(found)
    if n_boot:
        drawn = progress_bar(
            "bootstrap", _replicates(coded, unit, index.ravel(), weight, n_boot, random_state), total=n_boot
        )
        replicates = [program.evaluate(each, certify=False) for each in drawn]
        table = _with_intervals(table, replicates, size, level)
        moved = sum(each.slack > TOLD for each in replicates)
        if moved:
            notes.append(
                f"In {moved} of {n_boot} replicates the data violate inequalities that the graph implies, and the "
                "nearest distribution that does not was used; the intervals are then less sure."
            )
        if n_boot * (1.0 - level) < 2.0 - 1e-9:
            text = (
                f"{n_boot} bootstrap replicates are too few for {level:.0%} intervals, whose ends are then the least "
                f"and the largest replicate; use n_boot={int(np.ceil(2.0 / (1.0 - level) - 1e-9))} or more."
            )
            notes.append(text)
            warnings.warn(text, PyrofairWarning, stacklevel=2)
    for text in notes[: program.warned]:
        category = PositivityWarning if "undetermined" in text else PyrofairWarning
        warnings.warn(text, category, stacklevel=2)
    units = describe_units(unit, coded.weight)
    records = assumed_of_records(unfair, coded.table, "prediction" if observed.known else "outcome", "errors")
    return SharpBounds(
        unfair,
        "prediction" if observed.known else "observed outcome",
        y0=found.ends["y0"],
        ypi=found.ends["ypi"],
        effect=found.ends["effect"],
        piu=found.ends["piu"],
        sharp=not found.reasons,
        why_not_sharp=tuple(found.reasons),
        assumptions=(*_assumptions(program.observed, decisions, threshold, independent), units, *records),
        notes=tuple(notes),
        table=table,
        types=max(plan.types for plan in program.plans.values()),
        undetermined=found.lost,
        slack=found.slack,
        rows=len(coded.table),
        n_boot=n_boot,
        level=level,
        missing=missing_shares(coded.table, coded.table.columns, unfair.graph, coded.weight),
    )


def _with_intervals(table: pd.DataFrame, replicates: Sequence[_Found], size: float, level: float) -> pd.DataFrame:
    """Return the table of both bounds with the range of each, of shares of so many effective rows."""
    draws = np.array([[each.ends[name] for name in table.index] for each in replicates])
    least = np.array([LEAST[name] for name in table.index])
    found = {}
    for i, (end, values) in enumerate(table[["low", "high"]].items()):
        start, stop = _range(draws[:, :, i], values.to_numpy(), level, lower=end == "low")
        shares = [shares_of(SHARES[name], {SHARES[name]: value}, size) for name, value in values.items()]
        down, up = np.transpose([reach_of_shares(each, reach_of(level)) for each in shares])
        found[f"{end}_from"] = np.minimum(start, values - down).clip(least, 1.0)
        found[f"{end}_to"] = np.maximum(stop, values + up).clip(least, 1.0)
    return table.assign(**found)


def _observed_graphs(unfair: UnfairPaths, df: Any, missing: Missing, *, known: bool) -> tuple[list[ObservedGraph], str]:
    """Return the graph of what the target depends on, and one with the other nodes that tell of its latent causes.

    The second is missing without such nodes, or if the table lacks them, or if they join districts: then types that
    are independent would be joined by any distribution. The text is why some are left out.
    """
    own = ObservedGraph(unfair, known=known)
    graph = unfair.graph
    sharing = sharing_causes(graph, known=known)

    def is_held(node: str) -> bool:
        above = {each for each in graph.with_ancestors([node]) if each not in graph.latent}
        return all(few_levels(df, graph, each, missing) for each in above - {*own.nodes})

    held = [node for node in sharing if is_held(node)]
    wide = ObservedGraph(unfair, known=known, beside=held)
    joins = any(sum(bool({*one} & {*part}) for one in own.districts) > 1 for part in wide.districts)
    left = sharing if joins else [node for node in sharing if node not in held]
    why = "independent errors would be joined" if joins else "a column is missing, has gaps or many levels"
    text = f"{', '.join(left)} cannot be used, though a latent cause is shared: {why}" if left else ""
    return ([own, wide] if held and not joins else [own]), text


@dataclass(frozen=True, eq=False)
class _Found:
    """Both ends of each quantity, and what was met on the way."""

    ends: dict[Quantity, Ends]
    reasons: list[str]
    lost: float
    slack: float


class _Program:
    """The programs of all quantities of a target, for any weights of the same different rows.

    ``unused`` is why nodes that share latent causes with the target's are no part of it, or an empty text.
    """

    def __init__(self, cells: Cells, head: Head | None, max_types: int, independent: bool, unused: str) -> None:
        self.observed, self.cells, self.head = cells.graph, cells, head
        self.max_types, self.independent = max_types, independent
        plans = {names: self._plan(names) for names in GROUPS}
        self.plans = {names: plan for names, plan in plans.items() if plan is not None}
        self.unused = "" if self.is_identified else unused
        self.warned = 0

    @classmethod
    def choose(
        cls, cells: Sequence[Cells], head: Head | None, max_types: int, independent: bool, unused: str
    ) -> _Program:
        """Return the first of nested graphs in which all is identified, or the last one whose programs are small."""
        made = [cls(each, head, max_types, independent, unused) for each in cells]
        small = [each for each in made if len(each.plans) == len(GROUPS)]
        if not small:
            raise made[0].refusal()
        found = next((each for each in small if each.is_identified), small[-1])
        if not found.is_identified and found is not made[-1]:
            more = ", ".join(node for node in cells[-1].graph.nodes if node not in found.observed.nodes)
            found.unused = (
                f"{more} would narrow the bounds, and needs more than max_types={max_types:,} combinations of types"
            )
        return found

    @property
    def is_identified(self) -> bool:
        """Whether no types are free in any plan; those of an observed outcome are."""
        return self.observed.known and not any(plan.groups for plan in self.plans.values())

    def _plan(self, names: Sequence[Quantity], *, typed: bool = False) -> Plan | None:
        """Return the plan with the fewest reservations among those that are small enough, the first of equal ones."""
        small = [plan for plan in self._ways(names, typed) if self._fits(plan)]
        return min(small, key=lambda plan: len(plan.inexact), default=None)

    def _ways(self, names: Sequence[Quantity], typed: bool) -> list[Plan]:
        worlds, independent = QUANTITIES[names[0]], self.independent
        ways = ("shared", "covariates", "nothing") if len(worlds) > 1 and independent else ("covariates", "nothing")
        sizes = self.cells.sizes
        return [
            plan_program(self.observed, sizes, worlds, condition=way, independent=independent, typed=typed)
            for way in ways
        ]

    def _fits(self, plan: Plan) -> bool:
        return plan.types <= self.max_types and all(group.entries <= MOST_ENTRIES for group in plan.groups)

    def refusal(self) -> DataError:
        """Return why a quantity has no plan that is small enough, with the counts of the smallest one."""
        names = next(each for each in GROUPS if each not in self.plans)
        least = min(self._ways(names, typed=False), key=lambda plan: plan.types)
        each = ", ".join(f"{{{', '.join(group.nodes)}}}: {_count(group.size)}" for group in least.groups)
        entries = max((group.entries for group in least.groups), default=0)
        size = (
            f"{_count(least.types)} combinations of response types ({each}), more than max_types={self.max_types:,}"
            if least.types > self.max_types
            else f"constraints on response types ({each}) with {_count(entries)} entries, more than {MOST_ENTRIES:,}"
        )
        return DataError(
            f"The bounds on {' and '.join(LABELS[name] for name in names)} need {size}. Join levels of the columns "
            "that these nodes and their parents have, leave out edges that are not needed, or raise max_types."
        )

    def evaluate(self, weight: Vector, *, certify: bool) -> _Found:
        """Return both ends of all quantities from the weights (c,) of the different rows."""
        factors = self.cells.factors(weight)
        found = _Found({}, [], 0.0, 0.0)
        lost, slack = 0.0, 0.0
        for names, plan in tuple(self.plans.items()):
            contexts, costs = self._tabulate(plan, weight, factors, names)
            if certify and not costs.pairs_fit and (typed := self._plan(names, typed=True)) is not None:
                self.plans[names] = plan = typed  # of the replicates as well
                contexts, costs = self._tabulate(plan, weight, factors, names)
            reasons = [*plan.inexact, *filter(None, [self.unused])]
            free = contexts.lost + costs.lost
            if free > TOLD:
                reasons.append("what the table does not determine is left free, each end on its own")
            if costs.unknown > TOLD and len(QUANTITIES[names[0]]) > 1:
                reasons.append("the outcome of some cells is not known, and is left free in each pair of cells")
            if not costs.pairs_fit:
                reasons.append("the upper bound on PIU couples each pair of cells of the outcome by itself")
            totals, gaps, moved, partly = self._optimise(plan, contexts, costs.ends, factors, certify=certify)
            if moved > TOLD:
                reasons.append("the distribution of the data was moved to one that the graph allows")
            for name in names:
                low, high = totals[name]
                low, high = (
                    min(max(each, LEAST[name]), 1.0)  # beyond by rounding alone
                    for each in (low + LEAST[name] * contexts.lost, high + contexts.lost)
                )
                low, high = (low, high) if high - low > TOLD else (min(low, high), max(low, high))  # rounding
                found.ends[name] = low, high
                gap = max(gaps[name])
                own = [f"an end may lie up to {gap:.2g} too far out: the program is relaxed"] if gap > TOLD else []
                if high - low > TOLD or moved > TOLD:  # a valid bound on a point is sharp
                    found.reasons.extend(f"{LABELS[name]}: {reason}." for reason in (*reasons, *own))
            lost, slack = max(lost, free, partly, costs.unknown), max(slack, moved)
        return _Found(found.ends, found.reasons, lost, slack)

    def _tabulate(
        self, plan: Plan, weight: Vector, factors: Factors, names: Sequence[Quantity]
    ) -> tuple[Contexts, Costs]:
        head = self.head
        if head is None and plan.head is not None:
            head = Head(plan.head, factors[self.observed.graph.outcome].reshape(-1, 2)[:, 1])
        contexts = find_contexts(plan, self.cells, weight, factors)
        return contexts, tabulate(plan, contexts, factors, head, names)

    def _optimise(
        self,
        plan: Plan,
        contexts: Contexts,
        ends: Mapping[Quantity, tuple[Vector, Vector]],
        factors: Factors,
        *,
        certify: bool,
    ) -> tuple[dict[Quantity, list[float]], dict[Quantity, list[float]], float, float]:
        """Return both ends of each quantity, their gaps, the slack, and the mass of contexts with unknown factors."""
        columns = [plan.context.index(node) for node in plan.key]
        keys, index = np.unique(contexts.rows[:, columns], axis=0, return_inverse=True)
        index = index.ravel()
        totals, gaps = np.zeros((2, len(ends), len(SIGNS)))
        slack = partly = 0.0
        for i, key in enumerate(keys):
            own = index == i
            context = dict(zip(plan.key, map(int, key), strict=True))
            equations = [group.constraints(factors, context) for group in plan.groups]
            polytopes = [Polytope.of(matrix, right) for matrix, right, _ in equations]
            share = float(contexts.weight[own].sum())
            partly += share * any(unknown for _, _, unknown in equations)
            tables = [
                end[own].sum(axis=0) * sign for pair in ends.values() for end, sign in zip(pair, SIGNS, strict=True)
            ]
            try:
                found = [optimise(each, polytopes, certify=certify) for each in tables]
            except InfeasibleError:
                polytopes = [each.nearest() for each in polytopes]
                slack += sum(each.slack for each in polytopes) * share
                found = [optimise(each, polytopes, certify=certify) for each in tables]
            totals += np.reshape([each.value for each in found], totals.shape) * SIGNS
            gaps += np.reshape([each.gap for each in found], gaps.shape)
        of_totals, of_gaps = (dict(zip(ends, each.tolist(), strict=True)) for each in (totals, gaps))
        return of_totals, of_gaps, slack, partly

    def notes(self, found: _Found) -> list[str]:
        """Return what the table lacks or contradicts; the first ``warned`` of these are warnings."""
        notes = []
        if found.slack > MOST_SLACK:
            raise DataError(
                f"No model with this graph has a distribution near that of the data: probabilities would have to move "
                f"by {found.slack:.3f} in sum. The graph lacks an edge or a latent common cause, or cells are too "
                "small: join levels."
            )
        if found.slack > TOLD:
            notes.append(
                f"The data violate inequalities that the graph implies: probabilities were moved by {found.slack:.2g} "
                "in sum to the nearest distribution that it allows. Small amounts are sampling error, large ones a "
                "wrong graph."
            )
        if found.lost > TOLD:
            notes.append(
                f"The table lacks rows on which a distribution depends: a probability of up to {found.lost:.2g} is "
                "undetermined and left free, which widens the bounds. Join levels to narrow them."
            )
        self.warned = len(notes)
        return notes


def _range(draws: Vector, estimate: Vector, level: float, *, lower: bool) -> tuple[Vector, Vector]:
    """Return the range (k,), (k,) of k lower or upper ends by their replicates (n_boot, k).

    A lower end is a convex function of the probabilities and an upper one concave, so that estimates of both err inward
    on average, and replicates once more. For noise N and a convex V, E V(x + sN) is convex in s, so that E V(x + N) -
    V(x) is at most (E V(x + sqrt(2) N) - E V(x + N)) / (sqrt(2) - 1): the mean distance of the replicates from the
    estimate over sqrt(2) - 1 errs outward as an estimate of its bias. The range is that of the replicates around their
    mean, reflected too, and moved outward by as much; and where there is such a bias, by up to sqrt(2) spreads more,
    for its estimate is low where that of the end is inward.
    """
    mean = draws.mean(axis=0)
    low, high = percentiles(draws, level)
    spread = np.maximum(mean - low, high - mean)
    bias = np.maximum(mean - estimate if lower else estimate - mean, 0.0) / (np.sqrt(2.0) - 1.0)
    outward = bias + spread + np.sqrt(2.0) * np.minimum(bias, spread)
    return (estimate - outward, estimate + spread) if lower else (estimate - spread, estimate + outward)


def _count(number: int) -> str:
    return f"{number:,}" if number < 10**12 else f"about 10^{len(str(number)) - 1}"


def _replicates(
    coded: CodedTable,
    unit: NDArray[np.int64] | None,
    index: NDArray[np.int64],
    weight: Vector,
    n_boot: int,
    random_state: int | np.random.Generator | np.random.RandomState | None,
) -> Iterator[Vector]:
    """Yield weights of the different rows (c,): exponential weights of units, gamma ones of the cells of equal rows."""
    random = np.random.default_rng(seed_from(random_state))
    plain = unit is None and bool(np.isin(coded.weight, (0.0, 1.0)).all())
    code = np.arange(len(index)) if unit is None else np.unique(unit, return_inverse=True)[1]
    for _ in range(n_boot):
        if plain:
            yield random.standard_gamma(weight)
        else:
            times = random.standard_exponential(int(code.max()) + 1)[code]
            drawn = np.bincount(index, coded.weight * times, len(weight))
            yield np.asarray(drawn, dtype=np.float64)


def _assumptions(observed: ObservedGraph, decisions: Decisions, threshold: float, independent: bool) -> tuple[str, ...]:
    graph = observed.graph
    found = [
        "The graph is right: no edge and no latent common cause is missing beyond those declared"
        + (f" ({', '.join(graph.latent)})." if graph.latent else "."),
    ]
    parts = [f"{{{', '.join(part)}}}" for part in observed.districts if len(part) > 1]
    if parts:
        found.append(f"Latent nodes may join the errors of {', '.join(parts)} in any way.")
    if independent:
        found.append("Errors of different districts are independent, also across worlds (NPSEM-IE).")
    else:
        found.append(
            "Errors of different districts are independent within each single world; nothing is assumed of the "
            "dependence between worlds."
        )
    if observed.known:
        rule = f"1[score > {threshold:g}]" if decisions == "threshold" else "drawn with the score's probability"
        found.append(
            f"The outcome is the classifier's decision, {rule}, a known function of {', '.join(graph.inputs)}: a "
            "latent cause of the observed outcome plays no part."
        )
    return tuple(found)
