"""How strong an unmeasured common cause would have to be to change what an audit concludes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray

from pyrofair._random import seed_from
from pyrofair._validation import listed, require_choice, require_instance, require_real, require_seed, shown
from pyrofair.audits.audit import default_source, fit_source
from pyrofair.audits.display.page import table_fragment
from pyrofair.audits.models import AuditedModel, ScoresAre, judge_scores
from pyrofair.audits.wald import Scores, WaldEstimates, describe_doubts, estimate_by_influence, largest_z
from pyrofair.effects.scoring import DECISIONS, Decisions
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph import UnfairPaths
from pyrofair.sensitivity.benchmarks import strengths_of_columns
from pyrofair.sensitivity.crossing import last_crossing
from pyrofair.sensitivity.descent import Moves, move_means
from pyrofair.sensitivity.hidden_causes import HiddenCause, choose_causes, hidden_causes
from pyrofair.sensitivity.plots import plot_confounding
from pyrofair.sources.onestep import OneStep
from pyrofair.sources.prefix_form import PrefixForm, make_scores
from pyrofair.sources.propensity import Rows
from pyrofair.tables.labels import read_outcome
from pyrofair.tables.reading import as_pandas, feature_columns, read_table, read_weight, warn_unused

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Confounding", "confounding"]

Array = NDArray[np.float64]
GAMMAS = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0)
MOST_GAMMA = 1e4
QUANTITIES = ("p_y0", "p_ypi", "mean_unfair_effect", "piu")
FAIR, UNFAIR = "piu_at_most", "piu_above"


@dataclass(frozen=True, eq=False, repr=False)
class Confounding:
    """The result of :func:`confounding`; print it for a reading in plain text.

    Attributes
    ----------
    table : DataFrame
        For each hidden cause, gamma and quantity (p_y0, p_ypi, mean_unfair_effect, piu): low and high, the ends of what
        is possible with a cause of that strength; lower and upper, between which both ends lie with the level; sharp,
        whether a cause of that strength attains the ends. ``piu`` is from the ends of the two marginals: between low
        and high PIU lies whatever the joint distribution of both decisions.
    flips_at : DataFrame
        For each hidden cause and conclusion, the least gamma at which it no longer holds: of the estimate (``point``)
        and with its interval (``interval``). NaN where it does not hold at gamma = 1, inf where it holds at each gamma
        of the sweep. Between two values of the sweep it is interpolated.
    assumptions : dict
        For each hidden cause, what it is and what its ends are. All else that the source assumes stays assumed.
    context : dict
        model, decisions, rows, level, the unfair paths, gammas, the settings ``above`` and ``at_most``, and ``doubt``:
        why the numbers are in doubt at gamma = 1 already, or an empty text.
    """

    table: pd.DataFrame
    flips_at: pd.DataFrame
    assumptions: dict[str, str]
    context: dict[str, Any]
    _source: OneStep = field(repr=False)
    _causes: tuple[HiddenCause, ...] = field(repr=False)

    def benchmark(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return by how much the odds of the sensitive attribute change where an observed column is left out.

        It answers "a hidden cause as strong as age": each column is dropped from what a propensity is given, and that
        is fitted again. What a column adds to all others is what a hidden cause is assumed to add to all columns.

        Parameters
        ----------
        columns
            The columns to drop, by default all of those that the propensities of the hidden causes are given.

        Returns
        -------
        DataFrame
            For each hidden cause (``of``, the propensity's features) and column: quantiles over rows of the larger of
            the odds ratio and its inverse, ``q50``, ``q90``, ``q99`` and ``max``. The row ``(none)`` drops nothing and
            changes the folds: so much is noise of the fit.

        Raises
        ------
        DataError
            If a column is none of those that a propensity is given.
        """
        return strengths_of_columns(self._source.nuisances_, self._causes, self._source.estimand_, columns)

    def plot(self, quantity: str = "mean_unfair_effect", *, benchmark: pd.DataFrame | None = None) -> Figure:
        """Draw the ends of a quantity against gamma, a panel for each hidden cause.

        Parameters
        ----------
        quantity
            ``"mean_unfair_effect"``, ``"piu"``, ``"p_y0"`` or ``"p_ypi"``.
        benchmark
            What :meth:`benchmark` returned, to mark the strength (``q90``) of observed columns.
        """
        require_choice("quantity", quantity, QUANTITIES)
        if benchmark is not None:
            require_instance("benchmark", benchmark, pd.DataFrame, "what .benchmark() returns")
        return plot_confounding(self.table, self.flips_at, quantity, self.context, benchmark)

    def __str__(self) -> str:
        first = self.context
        lines = [
            f"Unmeasured confounding of {first['model']} ({first['decisions']}), {first['rows']:,} rows; unfair: "
            f"{', '.join(first['unfair'])}.",
            "gamma bounds the odds ratio by which a hidden cause moves the sensitive attribute.",
            *([f"In doubt without any hidden cause: {first['doubt']}."] if first["doubt"] else []),
        ]
        for name, own in self.table[self.table["quantity"] == "mean_unfair_effect"].groupby("hidden_cause", sort=False):
            lines.append(f"{name}: mean unfair effect")
            for each in own.itertuples():
                lines.append(
                    f"  gamma {each.gamma:g}: [{each.low:.3f}, {each.high:.3f}], {first['level']:.0%} interval "
                    f"[{each.lower:.3f}, {each.upper:.3f}]{'' if each.sharp else ' (valid, not sharp)'}"
                )
        lines += [describe_flip(row, max(first["gammas"])) for row in self.flips_at.itertuples()]
        lines += ["Assumptions:", *(f"  {name}: {text}" for name, text in self.assumptions.items())]
        return "\n".join(lines)

    def __repr__(self) -> str:
        causes = ", ".join(self.assumptions)
        return f"<Confounding of {self.context['model']} by {causes}; print it for a reading>"

    def _repr_html_(self) -> str:
        notes = [describe_flip(row, max(self.context["gammas"])) for row in self.flips_at.itertuples()]
        return table_fragment("Unmeasured confounding", self.table, " ".join(notes))


def describe_flip(row: Any, largest: float) -> str:
    """Return where a conclusion flips, in a sentence."""
    what = f"{row.hidden_cause}: '{row.conclusion}'"
    if np.isnan(row.interval):
        return f"{what} does not hold at gamma = 1, its interval considered."
    if np.isinf(row.interval):
        return f"{what} holds up to gamma = {largest:g}."
    return f"{what} holds up to gamma = {row.interval:.2f}."


def confounding(
    model: Any,
    source: OneStep | UnfairPaths,
    df: pd.DataFrame,
    *,
    gammas: npt.ArrayLike = GAMMAS,
    hidden_causes: Sequence[str] | str | None = None,
    decisions: Decisions = "threshold",
    threshold: float = 0.5,
    above: float = 0.0,
    at_most: float | None = None,
    level: float = 0.95,
    scores: ScoresAre = "auto",
    sample_weight: npt.ArrayLike | None = None,
    random_state: int | np.random.Generator | None = None,
) -> Confounding:
    """Bound the unfair effect under hidden common causes of limited strength (the marginal sensitivity model).

    *Assumes* all that the source does, but for one hidden common cause U at a time, whose strength is limited: the odds
    of the sensitive attribute A given U are within a factor gamma of those without U. ``"A <-> M"`` is a cause of A and
    of its child M alone, and moves the paths through A -> M; ``"D <-> M"`` one of M and of mediators before it that
    read the other value; ``"A <-> all"`` one of A and of all that it causes. At gamma = 1 the numbers are those of the
    source.

    Parameters
    ----------
    model
        A fitted model, or scores of the rows, as for :func:`pyrofair.audit`.
    source
        The unfair paths, or a :class:`~pyrofair.OneStep` of the prefix form, fitted or not.
    df
        n rows with the columns of the graph.
    gammas
        Limits of the odds ratio, of at least 1; 1 is added.
    hidden_causes
        The names of hidden causes; by default all.
    decisions, threshold
        Thresholded decisions, or the scores themselves.
    above, at_most
        The conclusions whose flips are looked for: that PIU is above a limit (0: the mean unfair effect is not 0) and,
        unless None, that it is at most another one, in either case by the ends from the two marginals.
    level
        The level of intervals.
    scores
        What given scores are, as for :func:`pyrofair.audit`; an outcome is averaged like a feature, and may have a
        hidden cause as well.
    sample_weight
        Weights of the rows, shape (n,).
    random_state
        Seeds the source made of unfair paths.

    Returns
    -------
    Confounding

    Raises
    ------
    DataError
        If a setting, the model or the table is unfit, a hidden cause is not known, or the source is in the graph form.

    References
    ----------
    Tan (2006); Zhao, Small and Bhattacharya (2019); Dorn and Guo (2023); Dorn, Guo and Kallus (2024). That a hidden
    cause moves one edge, and all else, is derived in the page on the mathematics.

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    >>> df = pd.DataFrame({"A": [0] * 40 + [1] * 60, "M": [0] * 30 + [1] * 10 + [0] * 15 + [1] * 45})
    >>> scores = 0.2 + 0.3 * df["A"] + 0.2 * df["M"] + 0.2 * df["A"] * df["M"]
    >>> class Model:
    ...     def predict_proba(self, X):
    ...         p = 0.2 + 0.3 * X["A"] + 0.2 * X["M"] + 0.2 * X["A"] * X["M"]
    ...         return np.column_stack([1 - p, p])
    >>> source = OneStep(graph.unfair("A -> M -> Y"), propensity="saturated", regression="saturated")
    >>> found = confounding(Model(), source, df, gammas=[1, 2], decisions="score")
    >>> effect = found.table[found.table["quantity"] == "mean_unfair_effect"]
    >>> effect[["hidden_cause", "gamma", "low", "high"]].round(3).to_string(index=False, header=False).split()[:4]
    ['A', '<->', 'M', '1.0']
    """
    require_seed(random_state)
    limits = _read_gammas(gammas)
    require_choice("decisions", decisions, DECISIONS)
    require_real("threshold", threshold, least=0.0, below=1.0)
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
            "The source is in the graph form, whose weights are not propensities given all features before; hidden "
            "causes are limited for the prefix form alone. Coarsen the features until OneStep(form='prefix') has "
            "overlap."
        )
    causes = choose_causes(_causes_of(form), hidden_causes, fitted.estimand_)
    fresh = len(index) == fitted.n_fitted_ and bool((index == np.arange(len(table))).all())
    scorer = Scores((audited,), {audited.name: observed}, threshold, fresh=fresh, rules=(decisions,))
    rows = fitted.nuisances_.rows_of(table, weight)
    estimates = estimate_by_influence([(fitted, scorer)], table, None, weight, fresh=False)
    doubt = _judge(estimates, largest_z(fitted, table, fresh=fresh))
    made = [make_scores(scorer, world.part, rows, fitted.nuisances_.rows, fitted.estimand_) for world in form.worlds]
    influence = estimates.normal.influence[audited.name, decisions]
    y0, ypi = (influence[[name]].to_numpy() for name in ("y0", "ypi"))
    sweep = _Sweep(form, rows, made, y0, ypi, estimates.normal.inflation, level)
    tables, flips = [], []
    for cause in causes:
        ends = sweep.ends(cause, limits)
        tables.append(sweep.table(cause, limits, ends))
        flips += [
            {"hidden_cause": cause.name, "conclusion": text, **sweep.flip(ends, limits, kind, limit)}
            for kind, limit, text in _conclusions(above, at_most)
        ]
    context = {
        "model": audited.name,
        "decisions": decisions,
        "threshold": threshold,
        "rows": len(table),
        "level": level,
        "unfair": [" -> ".join(path) for path in fitted.unfair.paths],
        "gammas": limits,
        "above": above,
        "at_most": at_most,
        "doubt": doubt,
    }
    return Confounding(
        pd.concat(tables, ignore_index=True),
        pd.DataFrame(flips),
        {cause.name: cause.assumption for cause in causes},
        context,
        fitted,
        causes,
    )


_causes_of = hidden_causes


def _judge(estimates: WaldEstimates, limit: float) -> str:
    """Refuse what an audit has no numbers of, and return, with a warning, why its numbers are in doubt."""
    if estimates.failure:
        raise DataError(estimates.failure)
    for text in filter(None, (each for texts in estimates.small().values() for each in texts)):
        raise DataError(f"There is no interval to move: {text}. Coarsen the features, or audit more rows.")
    doubts = describe_doubts(estimates.stages, estimates.weights, limit)
    for text in doubts.values():
        warnings.warn(f"The numbers are in doubt without any hidden cause: {text}.", PyrofairWarning, stacklevel=3)
    return "; ".join(doubts.values())


def _conclusions(above: float, at_most: float | None) -> list[tuple[str, float, str]]:
    text = "the mean unfair effect is not 0" if above == 0.0 else f"PIU is above {above:g}"
    found = [(UNFAIR, above, text)]
    if at_most is not None:
        found.append((FAIR, at_most, f"PIU is at most {at_most:g}"))
    return found


def _read_gammas(gammas: object) -> tuple[float, ...]:
    given = listed(gammas)
    if not given:
        raise DataError(f"gammas={shown(gammas)} must be a list of limits of odds ratios, such as [1, 1.5, 2, 3].")
    hint = "It limits an odds ratio and its inverse: 2 lets a hidden cause double the odds, or halve them."
    found = [
        require_real(f"gammas[{i}]", each, least=1.0, most=MOST_GAMMA, hint=hint) for i, each in enumerate(given)
    ]
    return tuple(sorted({1.0, *found}))


def _read_source(source: object, random_state: int | None) -> OneStep:
    if isinstance(source, UnfairPaths):
        return default_source(source, random_state)  # type: ignore[no-any-return]
    if not isinstance(source, OneStep):
        raise DataError(
            f"source={shown(source)} must be the unfair paths, or a OneStep: hidden causes move its regressions and "
            "its weights. IPW(unfair) rests on the same propensities; pass the unfair paths instead."
        )
    if source.joint:
        raise DataError("OneStep(joint='consistent') narrows the ends of PIU by independent errors; use joint=None.")
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


class _Sweep:
    """The moves of one model's means by hidden causes over values of gamma, and the tables made of them."""

    def __init__(
        self,
        form: PrefixForm,
        rows: Rows,
        scores: Sequence[tuple[Array, Array]],
        y0: Array,
        ypi: Array,
        inflation: float,
        level: float,
    ) -> None:
        self.form, self.rows, self.scores = form, rows, scores
        self.base = {"y0": y0, "ypi": ypi, "effect": ypi - y0, "total": ypi + y0}
        self.share = rows.weight / rows.weight.sum()
        self.inflation = inflation
        self.reach = NormalDist().inv_cdf((1.0 + level) / 2.0)

    def ends(self, cause: HiddenCause, gammas: Sequence[float]) -> dict[str, Array]:
        """Return the lower and upper ends of the means, their difference and sum, and limits of both: (G, 4) each."""
        moves = move_means(self.form, self.rows, self.scores, cause, gammas)
        return {name: self._ends(name, moves) for name in ("y0", "ypi", "effect", "total")}

    def table(self, cause: HiddenCause, gammas: Sequence[float], ends: dict[str, Array]) -> pd.DataFrame:
        """Return the ends of all quantities at each gamma."""
        lines = []
        for i, gamma in enumerate(gammas):
            at = {name: tuple(map(float, each[i])) for name, each in ends.items()}
            sharp = cause.sharp
            found = {
                "p_y0": (at["y0"], sharp[0]),
                "p_ypi": (at["ypi"], sharp[1]),
                "mean_unfair_effect": (at["effect"], sharp[2]),
                "piu": (_piu(at["effect"], at["total"]), sharp[2]),
            }
            for quantity, ((low, high, lower, upper), is_sharp) in found.items():
                lines.append((cause.name, gamma, quantity, low, high, lower, upper, is_sharp or gamma == 1.0))
        names = ["hidden_cause", "gamma", "quantity", "low", "high", "lower", "upper", "sharp"]
        return pd.DataFrame(lines, columns=names)

    def _ends(self, name: str, moves: Moves) -> Array:
        """Return for each gamma the lower and upper end, and the limits of their intervals, (G, 4)."""
        values = self.base[name] + getattr(moves, name)
        mean = self.share @ values
        error = np.sqrt(self.inflation * (self.share**2 @ (values - mean) ** 2))
        high, low = mean[::2], mean[1::2]
        return np.column_stack([low, high, low - self.reach * error[1::2], high + self.reach * error[::2]])

    def flip(self, ends: dict[str, Array], gammas: Sequence[float], kind: str, limit: float) -> dict[str, float]:
        """Return the least gamma at which a conclusion fails, of the estimate and of its interval."""
        found = {}
        for name, at in (("point", 0), ("interval", 2)):
            if kind == UNFAIR:
                low, high = ends["effect"][:, at], -ends["effect"][:, at + 1]
                margins = low - limit, high - limit
            else:
                low, high = ends["total"][:, at], ends["total"][:, at + 1]
                margins = limit - high, low - 2.0 + limit
            found[name] = float(np.exp(last_crossing(np.log(gammas), margins)))
        return found


def _piu(effect: tuple[float, ...], total: tuple[float, ...]) -> tuple[float, float, float, float]:
    """Return the ends of PIU, and the limits of both, from those of P(Ypi) - P(Y0) and of P(Ypi) + P(Y0)."""
    found = []
    for at in (0, 2):
        least = max(0.0, effect[at], -effect[at + 1])
        most = 1.0 - max(0.0, 1.0 - total[at + 1], total[at] - 1.0)
        found.append((least, most))
    return found[0][0], found[0][1], found[1][0], found[1][1]
