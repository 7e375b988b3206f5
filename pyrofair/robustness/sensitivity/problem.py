"""What all sensitivity analyses start from: a model, a fitted source, and influence values without any departure."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._random import seed_from
from pyrofair._validation import require_choice, require_real, require_seed, shown
from pyrofair.audits.audit import default_source, fit_source
from pyrofair.audits.display.page import table_fragment
from pyrofair.audits.models import AuditedModel, ScoresAre, judge_scores
from pyrofair.audits.wald import Scores, WaldEstimates, describe_doubts, estimate_by_influence, largest_z
from pyrofair.effects.estimates import mean_and_spread, reach_of
from pyrofair.effects.influence import Scorer
from pyrofair.effects.scoring import DECISIONS, Decisions, require_decisions
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph import UnfairPaths
from pyrofair.nuisances.rows import Rows
from pyrofair.robustness.sensitivity.crossing import last_crossing
from pyrofair.sources.onestep import OneStep
from pyrofair.sources.prefix_form import PrefixForm, make_scores
from pyrofair.tables.labels import read_outcome
from pyrofair.tables.reading import as_pandas, feature_columns, read_table, read_weight, warn_unused

__all__ = ["QUANTITIES", "Ends", "Problem", "Sweep", "describe_ends", "describe_flips", "read_problem"]

Array = NDArray[np.float64]
QUANTITIES = ("p_y0", "p_ypi", "mean_unfair_effect", "piu")


@dataclass(frozen=True, eq=False)
class Problem:
    """A model's scores of both worlds, and a source of the prefix form that was fitted.

    ``y0`` and ``ypi`` are influence values (n, 1) of n ``rows``; ``scores`` the scores of either world, as the form's
    stages start from them, made by ``scorer`` of the ``model``; ``context`` what results report.
    """

    source: OneStep
    form: PrefixForm
    rows: Rows
    scores: tuple[tuple[Array, Array], ...]
    y0: Array
    ypi: Array
    inflation: float
    context: dict[str, Any]
    scorer: Scorer
    model: AuditedModel

    def ends(self, quantity: str, up: Array, down: Array) -> Array:
        """Return the lower and upper ends of a mean whose values are moved by (n, G) each, and limits of both, (G, 4).

        The quantity is y0, ypi, their difference (effect), or their sum (total).
        """
        base = {"y0": self.y0, "ypi": self.ypi, "effect": self.ypi - self.y0, "total": self.ypi + self.y0}[quantity]
        (low, below), (high, above) = (self.means(base + moves) for moves in (down, up))
        return np.column_stack([low, high, low - below, high + above])

    def means(self, values: Array) -> tuple[Array, Array]:
        """Return the means of influence values (n, G), and by how much an interval reaches to either side."""
        mean, spread = mean_and_spread(values, self.rows.weight, self.inflation)
        return mean, reach_of(self.context["level"]) * spread


@dataclass(frozen=True, eq=False)
class Ends:
    """The ends of both marginals, their difference and sum over G values of a parameter, (G, 4) each.

    Columns: the lower and the upper end, and the limits of both.
    """

    y0: Array
    ypi: Array
    effect: Array
    total: Array

    def quantities(self, at: int) -> dict[str, tuple[float, ...]]:
        """Return the ends of each quantity and their limits at a value of the parameter."""
        effect, total = self.effect[at], self.total[at]
        found = []
        for i in (0, 2):
            found.append(max(0.0, effect[i], -effect[i + 1]))
            found.append(1.0 - max(0.0, 1.0 - total[i + 1], total[i] - 1.0))
        each = (self.y0[at], self.ypi[at], effect, np.array(found))
        return {name: tuple(map(float, values)) for name, values in zip(QUANTITIES, each, strict=True)}

    def flips(self, at: Array, context: dict[str, Any]) -> list[dict[str, Any]]:
        """Return for each conclusion the least of the parameter's values (G,) at which it no longer holds.

        Of the estimate (``point``) and with its interval (``interval``).
        """
        above, at_most = context["above"], context["at_most"]
        text = "the mean unfair effect is not 0" if above == 0.0 else f"PIU is above {above:g}"
        found = [{"conclusion": text, **self._flip(at, lambda i: self._is_above(i, above))}]
        if at_most is not None:
            text = f"PIU is at most {at_most:g}"
            found.append({"conclusion": text, **self._flip(at, lambda i: self._is_below(i, at_most))})
        return found

    def _flip(self, at: Array, margins: Any) -> dict[str, float]:
        return {name: last_crossing(at, margins(i)) for name, i in (("point", 0), ("interval", 2))}

    def _is_above(self, i: int, limit: float) -> tuple[Array, Array]:
        return self.effect[:, i] - limit, -self.effect[:, i + 1] - limit

    def _is_below(self, i: int, limit: float) -> tuple[Array, Array]:
        return limit - self.total[:, i + 1], self.total[:, i] - 2.0 + limit


def read_problem(
    model: Any,
    source: OneStep | UnfairPaths,
    df: pd.DataFrame,
    *,
    decisions: Decisions,
    threshold: float,
    above: float,
    at_most: float | None,
    level: float,
    scores: ScoresAre,
    sample_weight: object,
    random_state: int | np.random.Generator | None,
) -> Problem:
    """Check all settings, fit the source unless it was, and audit the model: see ``confounding``."""
    require_seed(random_state)
    require_decisions(decisions, threshold)
    require_real("above", above, least=0.0, below=1.0)
    if at_most is not None:
        require_real("at_most", at_most, above=0.0, most=1.0)
    require_real("level", level, above=0.0, below=1.0, such_as=0.95)
    require_choice("scores", scores, ("auto", "prediction", "outcome"))
    chosen = _read_source(source, None if random_state is None else seed_from(random_state))
    graph = chosen.unfair.graph
    df = as_pandas(df)
    table = read_table(df, feature_columns(graph), what="df")
    weight = read_weight(sample_weight, table)
    warn_unused(df, graph)
    audited, observed, is_outcome = _read_model(model, df, table, graph, scores)
    if decisions not in audited.rules_of(DECISIONS):
        raise DataError("The model gives decisions alone, and decisions='score' asks for scores; use 'threshold'.")
    fitted, index = fit_source(chosen, table, weight)
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
    scorer: Scorer = Scores((audited,), {audited.name: observed}, threshold, fresh=fresh, rules=(decisions,))
    rows = fitted.nuisances_.rows_of(table, weight)
    estimates = estimate_by_influence([(fitted, scorer)], table, None, weight, fresh=False)  # type: ignore[list-item]
    doubt = _judge(estimates, largest_z(fitted, table, fresh=fresh))
    made = [make_scores(scorer, world.part, rows, fitted.nuisances_.rows, fitted.estimand_) for world in form.worlds]
    influence = estimates.normal.influence[audited.name, decisions]
    context = {
        "model": audited.name,
        "decisions": decisions,
        "threshold": threshold,
        "rows": len(table),
        "level": level,
        "unfair": [" -> ".join(path) for path in fitted.unfair.paths],
        "above": above,
        "at_most": at_most,
        "doubt": doubt,
    }
    y0, ypi = (influence[[name]].to_numpy() for name in ("y0", "ypi"))
    return Problem(fitted, form, rows, tuple(made), y0, ypi, estimates.normal.inflation, context, scorer, audited)


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
        return default_source(source, random_state)  # type: ignore[no-any-return]
    if not isinstance(source, OneStep):
        raise DataError(
            f"source={shown(source)} must be the unfair paths, or a OneStep, whose regressions and weights the "
            "analysis moves. IPW(unfair) rests on the same propensities; pass the unfair paths instead."
        )
    return source


def _read_model(
    model: object, df: pd.DataFrame, table: pd.DataFrame, graph: Any, scores: ScoresAre
) -> tuple[AuditedModel, Array, bool]:
    order = tuple(column for column in df.columns if column in graph.input_columns)
    labels = None
    if graph.outcome_column in df.columns:
        column = read_table(df, [graph.outcome_column], what="df")[graph.outcome_column]
        if len(column.unique()) > 1:
            read_outcome(column, graph.positive, what=f"The outcome {graph.outcome_column!r}")
            labels = tuple(pd.unique(column))
    audited = AuditedModel("model", model, graph, order, labels)
    if scores == "outcome" and not audited.is_scores:
        raise DataError("scores='outcome' describes given scores, and the model has predict_proba; leave scores out.")
    observed = audited.observed(table)
    found = judge_scores(audited, table, observed, scores)
    if found.is_outcome:
        audited = AuditedModel("model", observed, graph, order, labels, len(audited.decisions) == 1)
    return audited, observed, found.is_outcome


# -- words ------------------------------------------------------------------------------------------------------------


def describe_ends(rows: pd.DataFrame, parameter: str, level: float) -> list[str]:
    """Return a line for each value of the parameter: the ends, their interval, and whether they are attained."""
    return [
        f"  {parameter} {getattr(each, parameter):g}: [{each.low:.3f}, {each.high:.3f}], {level:.0%} interval "
        f"[{each.lower:.3f}, {each.upper:.3f}]{'' if each.sharp else ' (valid, not sharp)'}"
        for each in rows.itertuples()
    ]


def describe_flips(
    conclusions: Iterable[str], flips: Iterable[float], parameter: str, values: Sequence[float]
) -> list[str]:
    """Return a sentence for each conclusion: up to which value of the parameter it holds, its interval considered."""
    found = []
    for what, flip in zip(conclusions, flips, strict=True):
        if np.isnan(flip):
            found.append(f"{what} does not hold at {parameter} = {min(values):g}, its interval considered.")
        else:
            found.append(f"{what} holds up to {parameter} = {f'{max(values):g}' if np.isinf(flip) else f'{flip:.3g}'}.")
    return found


class Sweep:
    """How the result of a sweep over one parameter, whose first value is 0, shows itself."""

    title: ClassVar[str]
    parameter: ClassVar[str]
    table: pd.DataFrame
    flips_at: pd.DataFrame
    assumptions: tuple[str, ...]
    context: dict[str, Any]

    def _reading(self, about: str, measured: str, rows: pd.DataFrame) -> str:
        """Return a reading in plain text; ``about`` says what the parameter is, ``measured`` what the rows are of."""
        first = self.context
        lines = [
            f"{self.title} of {first['model']} ({first['decisions']}), {first['rows']:,} rows; unfair: "
            f"{', '.join(first['unfair'])}.",
            about,
            *([f"In doubt at {self.parameter} = 0 already: {first['doubt']}."] if first["doubt"] else []),
            f"{measured}:",
            *describe_ends(rows, self.parameter, first["level"]),
            *self._flips(),
            "Assumptions:",
            *(f"  {text}" for text in self.assumptions),
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.context['model']}; print it for a reading>"

    def _repr_html_(self) -> str:
        return table_fragment(self.title, self.table, " ".join(self._flips()))

    def _flips(self) -> list[str]:
        conclusions = "'" + self.flips_at["conclusion"] + "'"
        return describe_flips(
            conclusions, self.flips_at["interval"], self.parameter, self.context[f"{self.parameter}s"]
        )
