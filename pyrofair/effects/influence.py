"""Influence values of the potential outcomes of known classifiers, and the intervals that follow from them.

A source of weighted rows leaves intervals to replicates. A source that satisfies :class:`InfluenceBased` hands over one
value per row instead, whose mean is the estimate and whose spread is its uncertainty, so that any number of quantities
have intervals, alone and together, without fitting anything again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray

from pyrofair.effects.potential_outcomes import CounterfactualSample, Fittable

__all__ = ["InfluenceBased", "InfluenceValues", "Scorer"]

Scorer = Callable[[CounterfactualSample], NDArray[np.float64]]
"""Returns the scores (m, Q) of a sample's m rows by Q classifiers; its ``origin`` names rows that are observed ones.

Its ``columns``, if it has any, name the model of each column and its decisions, or "score": further decisions are then
regressed by trees that were grown for the score of their own model. No column is used for another one otherwise.
"""


@dataclass(frozen=True, eq=False)
class InfluenceValues:
    """One value per audited row, classifier and functional; the weighted mean over rows is the estimate.

    All arrays are (n, Q) for n audited rows and Q columns of scores, and uncentred. Under the assumptions of the source
    the errors of rows are independent, so that the variance of a mean is that of its values over n.

    Parameters
    ----------
    y0, ypi
        P(Y = 1) in the baseline world and in that with the unfair paths switched.
    lower
        The lower bound on PIU given the shared features (S): ``ypi - y0``, times the sign of the effect given S. The
        estimate may be negative where that sign is not known well; its size is then the end. Where more is known of the
        two worlds of a unit than S, the end that follows.
    rest
        ``1 - y0 - ypi`` times its sign given S; 1 minus its size is the upper bound on PIU given S.
    disagreement
        ``a + b - 2 a b`` given S, of the means a and b of the two worlds given S; twice it is an upper bound on PIU.
    weight
        The weights of the rows, (n,), of mean 1.
    stages
        Diagnostics, a row for each column of scores (``column``, 0 to Q - 1), world (``regime``) and stage: ``nodes``,
        ``arm``, ``given``; ``mean_weight`` with ``mean_weight_z``, ``ess`` and ``units`` (effective rows or groups),
        ``max_weight``; ``balance`` and ``correction`` with ``balance_z`` and ``correction_z``.
    apart
        By functional, (k, n, Q): by how much other models, of other splits or other rows, would move the values. The
        products of the means of each of the k add to the covariance of the estimates, for the errors of the models,
        which are of second order in theory and do not vanish in samples.
    splits
        The number of splits into folds of which the values are the mean.
    decided
        Values (n, Q) whose mean is that of the scores, where these depend on a sensitive attribute that is not known in
        all rows; None: the scores of the observed rows are such values.
    """

    y0: NDArray[np.float64]
    ypi: NDArray[np.float64]
    lower: NDArray[np.float64]
    rest: NDArray[np.float64]
    disagreement: NDArray[np.float64]
    weight: NDArray[np.float64]
    stages: pd.DataFrame
    apart: Mapping[str, NDArray[np.float64]] | None = None
    splits: int = 1
    decided: NDArray[np.float64] | None = None


@runtime_checkable
class InfluenceBased(Fittable, Protocol):
    """A source that estimates the potential outcomes of known classifiers by influence values.

    If its ``fit``, ``influence`` and ``stages`` take ``groups`` besides, labels (n,), it can be audited by them.
    """

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What its numbers depend on, one sentence each."""

    def influence(
        self, score: Scorer, df: pd.DataFrame | None = None, sample_weight: npt.ArrayLike | None = None
    ) -> InfluenceValues:
        """Return the influence values of rows (by default the fitted ones) for the columns of scores.

        Rows that it was fitted on are judged by models that did not see them.
        """

    def stages(self, df: pd.DataFrame | None = None, sample_weight: npt.ArrayLike | None = None) -> pd.DataFrame:
        """Return the diagnostics of the weights of each stage, which no classifier enters.

        Columns: regime, nodes, arm, given, mean_weight, mean_weight_z, ess, max_weight, problem (what is wrong, or an
        empty string).
        """

    def by_group(
        self, score: Scorer, df: pd.DataFrame | None = None, sample_weight: npt.ArrayLike | None = None
    ) -> dict[str, tuple[NDArray[np.float64], ...]]:
        """Return, for ``"group 0"`` and ``"group 1"`` where supported, influence values of both worlds, (n, Q) each.

        Their weighted means are the estimates from the rows of that group alone, by weights without regressions: the
        mean m of the scores by normalised weights w, and of a row with score s the value m + n w (s - m). Under the
        assumptions both groups estimate the same; only a wrong propensity, or no overlap, sets them apart.
        """
