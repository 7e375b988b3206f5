"""What all sensitivity analyses start from: a model, a fitted source, and influence values without any departure."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._random import seed_from
from pyrofair._validation import require_choice, require_real, require_seed, shown
from pyrofair.audits.audit import default_source, fit_source, with_missing
from pyrofair.audits.clusters import describe_units
from pyrofair.audits.inputs import AuditedRows, JudgedModels
from pyrofair.audits.models import AuditedModel, ScoresAre
from pyrofair.audits.wald import Scores, WaldEstimates, describe_doubts, estimate_by_influence, largest_z
from pyrofair.effects.estimates import (
    GIVEN_UNITS,
    kish_size,
    mean_and_spread,
    reach_of,
    reach_of_shares,
    shares_of,
    size_of_share,
)
from pyrofair.effects.influence import Scorer
from pyrofair.effects.scoring import DECISIONS, Decisions, require_decisions
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph import UnfairPaths
from pyrofair.graph.paths import require_unfair
from pyrofair.graph.projection import sharing_causes
from pyrofair.nuisances.rows import Rows
from pyrofair.sources.onestep import OneStep
from pyrofair.sources.prefix_form import PrefixForm, make_scores
from pyrofair.tables.reading import as_pandas
from pyrofair.tables.recorded import Missing, assumed_of_records, missing_shares

__all__ = ["Asked", "Problem", "read_problem"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Asked:
    """The settings that all analyses have: see ``confounding``."""

    decisions: Decisions
    threshold: float
    above: float
    at_most: float | None
    level: float
    scores: ScoresAre
    sample_weight: object
    groups: object
    missing: Missing
    random_state: int | np.random.Generator | None

    def __post_init__(self) -> None:
        require_seed(self.random_state)
        require_decisions(self.decisions, self.threshold)
        require_real("above", self.above, least=0.0, below=1.0)
        if self.at_most is not None:
            require_real("at_most", self.at_most, above=0.0, most=1.0)
        require_real("level", self.level, above=0.0, below=1.0, such_as=0.95)
        require_choice("scores", self.scores, ("auto", "prediction", "outcome"))


@dataclass(frozen=True, eq=False)
class Problem:
    """A model's scores of both worlds, and a source of the prefix form that was fitted.

    ``means`` are influence values (n, 1) of n ``rows`` without any departure, of P(Y0 = 1) as ``p_y0``, P(Ypi = 1) as
    ``p_ypi``, their difference ``mean_unfair_effect`` and their ``sum``; ``scores`` the scores of either world, as the
    form's stages start from them, made by ``scorer`` of the ``model``; ``context`` what results report;
    ``more`` is what models that were learned otherwise add to the variances of the ``means``, ``sizes`` how many rows
    each quantity of an audit is a share of, and ``degrees`` are those of Student's t, finite for groups.
    """

    source: OneStep
    form: PrefixForm
    rows: Rows
    scores: tuple[tuple[Array, Array], ...]
    means: dict[str, Array]
    more: Mapping[str, float]
    context: dict[str, Any]
    scorer: Scorer
    model: AuditedModel
    sizes: Mapping[str, float]
    degrees: float = np.inf

    def ends(self, quantity: str, low: Array, high: Array) -> Array:
        """Return both bounds of influence values (n, G), the lower limit of one and the upper of the other, (G, 4).

        Rows of which none, or all, are counted have no spread: limits are at least as far as those of shares.
        """
        reach, weight, groups = reach_of(self.context["level"], self.degrees), self.rows.weight, self.rows.groups
        more = self.more.get(quantity, max(self.more.values()))
        name = {"sum": GIVEN_UNITS, "piu": "piu_lower"}.get(quantity, quantity)  # twice a share, a share
        found, apart = [], kish_size(weight, groups) / kish_size(weight)
        for side, values in enumerate((low, high)):
            ends, spread = mean_and_spread(values, weight, more, groups)
            plain = mean_and_spread(values, weight, more)[1]
            moves = [
                reach_of_shares(shares_of(name, {name: value}, size_of_share(self.sizes[name], apart, *both)), reach)
                for value, *both in zip(ends, plain**2, spread**2, strict=True)
            ]
            found += [ends, ends + (1.0 if side else -1.0) * np.maximum(reach * spread, np.array(moves)[:, side])]
        return np.column_stack([found[0], found[2], found[1], found[3]])


def read_problem(model: Any, source: OneStep | UnfairPaths, df: pd.DataFrame, asked: Asked) -> Problem:
    """Fit the source unless it was, and audit the model: see ``confounding``."""
    seed = None if asked.random_state is None else seed_from(asked.random_state)
    chosen = with_missing(_read_source(source, seed), asked.missing)
    decisions, threshold = asked.decisions, asked.threshold
    graph = chosen.unfair.graph
    df = as_pandas(df)
    how: dict[str, Any] = {"sample_weight": asked.sample_weight, "groups": asked.groups, "missing": chosen.missing}
    read = AuditedRows.of(df, graph, both=True, **how)
    judged = JudgedModels.of({"model": model}, read, graph, asked.scores, threshold)
    for text in (*read.texts, *judged.texts):
        warnings.warn(text, PyrofairWarning, stacklevel=3)
    table, weight, clusters, is_outcome = read.table, read.weight, read.clusters, bool(judged.outcomes)
    (audited,), observed = judged.models, judged.observed["model"]
    if decisions not in audited.rules_of(DECISIONS):
        raise DataError("The model gives decisions alone, and decisions='score' asks for scores; use 'threshold'.")
    fitted, index = fit_source(chosen, table, weight, clusters)
    if is_outcome:
        fitted = fitted.for_outcome()
    form = fitted._form
    if not isinstance(form, PrefixForm):
        raise DataError(
            "The source is in the graph form, whose weights are not propensities given all features before; "
            "departures from its assumptions are limited for the prefix form alone. Coarsen the features until "
            "OneStep(form='prefix') has overlap."
        )
    fresh = len(index) == fitted.n_fitted_ and bool((index == np.arange(len(table))).all())
    scorer = Scores((audited,), {audited.name: observed}, threshold, fresh=fresh, rules=(decisions,))
    rows = fitted.nuisances_.rows_of(table, weight, None if clusters is None else clusters.labels)
    estimates = estimate_by_influence([(fitted, scorer)], replace(read, outcome=None), fresh=False)
    doubt = _judge(estimates, largest_z(fitted, table, fresh=fresh))
    made = [make_scores(scorer, world.part, rows, fitted.nuisances_.rows, fitted.estimand_) for world in form.worlds]
    influence = estimates.normal.influence[audited.name, decisions]
    context = {
        "model": audited.name,
        "decisions": decisions,
        "threshold": threshold,
        "rows": len(table),
        "level": asked.level,
        "unfair": [" -> ".join(path) for path in fitted.unfair.paths],
        "paths": fitted.unfair,
        "above": asked.above,
        "at_most": asked.at_most,
        "doubt": doubt,
        "unused": sharing_causes(graph, known=not is_outcome),
        "units": describe_units(rows.groups, weight),
        "missing": missing_shares(table, table.columns, graph, weight),
        "records": assumed_of_records(fitted.unfair, table, fitted.estimand_.target),
    }
    y0, ypi = (influence[[name]].to_numpy() for name in ("y0", "ypi"))
    means = {"p_y0": y0, "p_ypi": ypi, "mean_unfair_effect": ypi - y0, "sum": ypi + y0}
    normal, labels = estimates.normal, list[Any](estimates.normal.influence.columns)
    place = [labels.index((audited.name, decisions, name)) for name in ("y0", "ypi")]
    factors = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 1.0], [1.0, 1.0]])  # of the means, in their order
    variances = np.einsum("qi,ij,qj->q", factors, normal.between[np.ix_(place, place)], factors)
    more = dict(zip(means, variances.clip(min=0.0).tolist(), strict=True))
    sizes, degrees = normal.sizes[audited.name], normal.clusters - 1.0
    return Problem(fitted, form, rows, tuple(made), means, more, context, scorer, audited, sizes, degrees)


def _judge(estimates: WaldEstimates, limit: float) -> str:
    """Refuse what an audit has no numbers of, and return, with a warning, why its numbers are in doubt."""
    if estimates.failure:
        raise DataError(estimates.failure)
    for text in filter(None, (each for texts in estimates.small().values() for each in texts)):
        raise DataError(f"There is no interval to move: {text}. Coarsen the features, or audit more rows.")
    doubts = describe_doubts(estimates.stages, estimates.weights, limit)
    for text in doubts.values():
        warnings.warn(f"The numbers are in doubt without any hidden cause: {text}.", PyrofairWarning, stacklevel=4)
    return "; ".join(doubts.values())


def _read_source(source: object, random_state: int | None) -> OneStep:
    if isinstance(source, UnfairPaths):
        return default_source(require_unfair("source", source), random_state)  # type: ignore[no-any-return]
    if not isinstance(source, OneStep):
        raise DataError(
            f"source={shown(source)} must be the unfair paths, or a OneStep, whose regressions and weights the "
            "analysis moves. IPW(unfair) depends on the same propensities; pass the unfair paths instead."
        )
    require_unfair("source.unfair", source.unfair)
    return source
