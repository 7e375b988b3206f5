"""How one model does on the observed rows and in the two worlds: scores, decisions, and the quantities made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._random import neutral_torch
from pyrofair._validation import require_unmasked
from pyrofair.effects.conditional_bounds import (
    Signs,
    choose_potentials,
    choose_signs,
    consistent_ends,
    unit_disagreement,
    unit_ends,
    unit_means,
)
from pyrofair.effects.functionals import disagreement, effect_gap, piu_upper
from pyrofair.effects.potential_outcomes import CounterfactualSample, Worlds
from pyrofair.effects.scoring import DECISIONS, Decisions, decide, positive_scores
from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.tables.reading import require_aligned

__all__ = [
    "DECISIONS",
    "AuditedModel",
    "Decisions",
    "WorldScores",
    "Worlds",
    "decide",
    "measure",
    "measure_views",
    "view_signs",
]

WorldScores = tuple[NDArray[np.float64], NDArray[np.float64]]
ROUNDING = 1e-9


@dataclass(frozen=True)
class AuditedModel:
    """A model under the name that it has in tables and messages.

    Parameters
    ----------
    name
        Its name.
    model
        Anything with ``predict_proba``, or the scores of the observed rows, shape (n,), which serve only worlds made of
        unchanged rows.
    graph
        The graph, whose observed parents of the outcome are all that a classifier may read.
    order
        Their columns in the order in which a model that was fitted without names gets them.
    """

    name: str
    model: Any
    graph: CausalGraph
    order: tuple[str, ...]

    @property
    def is_scores(self) -> bool:
        """Whether it is given as scores."""
        return not hasattr(self.model, "predict_proba")

    @property
    def is_unnamed(self) -> bool:
        """Whether it was fitted without column names, so that only their order tells what it reads."""
        return hasattr(self.model, "n_features_in_") and not hasattr(self.model, "feature_names_in_")

    @property
    def reads(self) -> tuple[str, ...] | None:
        """The columns that it reads, as far as is known; None for scores."""
        if self.is_scores:
            return None
        return tuple(map(str, getattr(self.model, "feature_names_in_", self.order)))

    def observed(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """Return the probability of the positive outcome for the n observed rows, shape (n,).

        Raises
        ------
        DataError
            If the model has no ``predict_proba``, is not fitted or fails, reads other columns than the observed parents
            of the outcome, does not know the positive label, or returns scores outside [0, 1] or none at all.
        """
        return self._given(table) if self.is_scores else self._predict(table)

    def world(self, sample: CounterfactualSample, observed: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the scores of a world's m rows, shape (m,), reusing those of unchanged rows.

        Raises
        ------
        DataError
            If scores are given and a row is not an observed one, or as for :meth:`observed`.
        """
        origin = np.full(len(sample.rows), -1) if sample.origin is None else sample.origin
        changed = origin < 0
        scores = observed[origin]
        if changed.any():
            if self.is_scores:
                raise DataError(
                    f"{self.name!r} is given as scores, but {int(changed.sum())} rows of a world are not observed "
                    f"ones: the source switches {self.graph.sensitive!r} in them or draws them. Pass the model itself, "
                    "or use IPW(..., arm='paper'), which weights unchanged rows only."
                )
            scores[changed] = self._predict(sample.rows[changed])
        return scores

    def _given(self, table: pd.DataFrame) -> NDArray[np.float64]:
        if not isinstance(self.model, np.ndarray | pd.Series | list | tuple):
            raise DataError(
                f"{self.name!r} is a {type(self.model).__name__} without predict_proba. Pass a fitted classifier that "
                "has it, or scores, one for each row, as an array or a Series."
            )
        if isinstance(self.model, pd.Series):
            require_aligned(table, self.model, f"the scores {self.name!r}", table="df")
        require_unmasked(repr(self.name), self.model)
        try:
            if getattr(getattr(self.model, "dtype", None), "kind", "") == "c":
                raise TypeError("complex numbers")
            scores = np.array(self.model, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"{self.name!r} is given as scores, but they are no numbers: {error}.") from error
        if scores.shape != (len(table),):
            raise DataError(
                f"{self.name!r} is given as scores of shape {scores.shape}; expected {(len(table),)}, one for each "
                "row: of predict_proba, pass the column of the positive class."
            )
        wrong = ~((scores >= 0.0) & (scores <= 1.0))
        if wrong.any():
            raise DataError(
                f"{self.name!r} gives {int(wrong.sum())} score(s) outside [0, 1], such as {scores[wrong][0]}. Scores "
                "are probabilities of the positive outcome; log-odds must be put through the logistic function."
            )
        return scores

    def _predict(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        try:
            return positive_scores(self.name, self.model, rows, self.graph, self.order)
        except Exception as error:  # whatever a model raises, its name is what an audit of several lacks
            if isinstance(error, DataError) and str(error).startswith(repr(self.name)):
                raise
            raise DataError(
                f"{self.name!r} could not score {len(rows):,} rows: predict_proba raised {type(error).__name__}: "
                f"{error} Pass a fitted model that takes {', '.join(self.reads or self.order)}."
            ) from error


def measure(scores: WorldScores, worlds: Worlds) -> tuple[dict[str, float], dict[str, str]]:
    """Return the quantities of two worlds whose rows are scored, and notes on those that cannot be had.

    Parameters
    ----------
    scores
        The scores or decisions of the rows of each world.
    worlds
        The two worlds.

    Returns
    -------
    values
        p_y0, p_ypi, mean_unfair_effect, piu_paper_bound, piu_lower, piu_upper. The paper's bound is made of the two
        marginals, whatever units the worlds share; the other two bounds use the units.
    notes
        Why a value is missing (it is NaN then), or what it does not say.

    References
    ----------
    Chikahara et al. (2021), eq. (6), (7), (8) and (A19).
    """
    with neutral_torch():
        scored = [world.scored(each) for world, each in zip(worlds, scores, strict=True)]
        p0, p1 = (each.mean.item() for each in scored)
    values = {"p_y0": p0, "p_ypi": p1, "mean_unfair_effect": p1 - p0}
    notes: dict[str, str] = {}
    bounds = {"piu_paper_bound": np.nan, "piu_lower": np.nan, "piu_upper": np.nan}
    left = [
        f"{symbol} = {p:.3f}"
        for symbol, p in [("P(Y0=1)", p0), ("P(Ypi=1)", p1)]
        if not -ROUNDING <= p <= 1.0 + ROUNDING
    ]
    if left:
        left_text = f"the estimate left [0, 1]: {' and '.join(left)}"
        notes |= dict.fromkeys(values, left_text)
        notes |= dict.fromkeys(bounds, f"cannot be made: {left_text}")
    else:
        with neutral_torch():
            marginal = (replace(each, unit=None) for each in scored)
            bounds["piu_paper_bound"] = 2.0 * disagreement(*marginal).item()
            bounds["piu_lower"] = effect_gap(*scored).item()
            bounds["piu_upper"] = piu_upper(*scored).item()
        notes |= _vacuous(bounds)
    return values | bounds, notes


def measure_views(
    scores: Sequence[WorldScores], views: Sequence[Worlds], signs: Signs | None = None
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the quantities of several views of the same two worlds, whose errors are independent given the units.

    Parameters
    ----------
    scores, views
        As for :func:`measure`, for each view.
    signs
        Those of :func:`view_signs`, of the original views in a bootstrap replicate; by default those of these.

    Returns
    -------
    values, notes
        As for :func:`measure`, but that the ends of PIU are those of :mod:`pyrofair.effects.conditional_bounds` or,
        where the worlds
        know what is switched, of :mod:`pyrofair.effects.conditional_bounds`, free of inward bias: a lower end around
        a true one of 0
        is negative as often as not, and is shown so. And ``piu_double_disagreement``, twice the disagreement given the
        units, an upper bound on PIU too.
    """
    means = [unit_means(one, worlds) for one, worlds in zip(scores, views, strict=True)]
    p0, p1 = (
        float(np.mean([worlds[i].weight @ one[i] for one, worlds in zip(scores, views, strict=True)])) for i in (0, 1)
    )
    values = {"p_y0": p0, "p_ypi": p1, "mean_unfair_effect": p1 - p0}
    values["piu_paper_bound"] = 2.0 * (p0 + p1 - 2.0 * p0 * p1)
    signs = signs or view_signs(scores, views)
    if signs.potentials is None:
        values["piu_lower"], values["piu_upper"] = unit_ends(means, signs)
    else:
        values["piu_lower"], values["piu_upper"] = consistent_ends(scores, views, signs.potentials)
    values["piu_double_disagreement"] = 2.0 * unit_disagreement(means)
    outside = [end for end in ("piu_lower", "piu_upper") if not -ROUNDING <= values[end] <= 1.0 + ROUNDING]
    noise = "outside [0, 1] by sampling error; cut there it would err inward on average"
    return values, _vacuous(values) | dict.fromkeys(outside, noise)


def view_signs(scores: Sequence[WorldScores], views: Sequence[Worlds]) -> Signs:
    """Return what the views tell each other of the sides of the kinks, parameters as for :func:`measure_views`."""
    signs = choose_signs([unit_means(one, worlds) for one, worlds in zip(scores, views, strict=True)])
    return signs if views[0][0].cell is None else replace(signs, potentials=choose_potentials(scores, views))


def _vacuous(values: dict[str, float]) -> dict[str, str]:
    return {
        name: "vacuous: a bound of 1 or more proves nothing, fair or unfair"
        for name in ("piu_paper_bound", "piu_double_disagreement")
        if values.get(name, 0.0) >= 1.0 - ROUNDING
    }
