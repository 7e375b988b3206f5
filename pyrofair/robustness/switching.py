"""Both worlds with limited switching of unfair mediators between them, for training under the worst case of PIU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from pyrofair._validation import Constraint, check_settings, require_instance, require_real, shown
from pyrofair.effects.functionals import effect_gap, piu_upper
from pyrofair.effects.potential_outcomes import Scored, Worlds
from pyrofair.effects.scoring import Decisions, Score, ask_scores, decide, require_decisions
from pyrofair.exceptions import DataError
from pyrofair.graph.paths import UnfairPaths
from pyrofair.robustness.kept_mass import split_kept
from pyrofair.sources.gcomputation import GComputation

__all__ = ["SwitchingBounds"]

LEAST = 1e-12
"""A row that a world lacks has so small a share of its unit's weight there: rows without weight would be left out."""
ASKED = (
    "SwitchingBounds",
    "Group the values of these columns, or train with source=GComputation(unfair) and penalty=piu_upper, which any "
    "switching allows.",
)


def _require_source(name: str, value: object) -> None:
    hint = "Weights on observed rows (IPW) have hardly two rows of one unit, and an SEM couples its worlds itself"
    require_instance(name, value, GComputation, f"a GComputation of the unfair paths. {hint}")


CONSTRAINTS: dict[str, Constraint] = {
    "source": _require_source,
    "gamma": partial(require_real, least=0.0, most=1.0, hint="It is a probability beyond the least one of a change."),
}


class SwitchingBounds(BaseEstimator):  # type: ignore[misc]
    """Both worlds where unfair mediators change between them with at most the least probability plus gamma.

    A unit is a value of what both worlds share. The mediators that unfair paths touch have a distribution in each
    world, and between the two a unit must change them with their total variation at least. With at most gamma more,
    PIU has an upper end, which is what a :class:`PenalizedClassifier` with ``penalty=piu_upper`` is trained against:
    the worst coupling is found for the scores of each step. At gamma = 0 it is minimal change, at gamma = 1 the upper
    end given what both worlds share. It is :class:`~pyrofair.effects.Bounding`.

    Assumes what the source does, and that the limit is right; :func:`pyrofair.robustness.sensitivity.switching` audits a
    classifier over many limits, with intervals.

    Parameters
    ----------
    source
        A :class:`GComputation`, which learns the distributions. What unfair edges switch must have few values, at most
        its ``draws`` together.
    gamma
        The probability beyond the least, in [0, 1], at each value of what is shared.

    Attributes
    ----------
    source_ : GComputation
        The fitted source.

    References
    ----------
    Lindvall (2002), for the maximal coupling; Chikahara et al. (2021), eq. (A19), for the upper end of PIU
    of two marginals.

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    >>> df = pd.DataFrame({"A": [0] * 400 + [1] * 600, "M": [0] * 300 + [1] * 100 + [0] * 150 + [1] * 450})
    >>> inner = GComputation(graph.unfair("A -> Y", "A -> M -> Y"), parameters="linear", progress=False, random_state=0)
    >>> source = SwitchingBounds(inner, gamma=0.0).fit(df)
    >>> found = source.bounds(lambda rows: 0.1 + 0.8 * (rows["A"] != rows["M"]), decisions="threshold")
    >>> found.loc["piu"].round(1).tolist()
    [0.5, 0.5]
    """

    source_: GComputation
    penalty = staticmethod(piu_upper)
    instead_of_audit = (
        "Audit the classifier by its unfair paths, and over limits of switching by "
        "pyrofair.robustness.sensitivity.switching(model, unfair, df), which has intervals."
    )

    def __init__(self, source: GComputation, *, gamma: float = 0.0) -> None:
        self.source = source
        self.gamma = gamma

    @property
    def unfair(self) -> UnfairPaths:
        """The unfair paths."""
        if not isinstance(self.source, GComputation):
            _require_source("source", self.source)
        return self.source.unfair

    def fit(self, df: pd.DataFrame, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Learn the distributions of the mediators, as :meth:`GComputation.fit`.

        Raises
        ------
        NotIdentifiedError, DataError
            If the data do not identify the effect; if the table or a setting is unfit, no unfair path runs through a
            mediator, or what unfair edges switch has too many values.
        """
        check_settings(self, CONSTRAINTS)
        source = clone(self.source).fit(df, sample_weight)
        if not source.graph_.drawn:
            raise DataError(
                f"No unfair path of source={shown(self.source)} runs through a mediator, so that nothing can switch. "
                "Use the source itself, with penalty=piu_upper."
            )
        source.require_pairs(ASKED)
        self.source_ = source
        return self

    @property
    def n_fitted_(self) -> int:
        """The number of rows it was fitted on."""
        check_is_fitted(self, "source_")
        return self.source_.n_fitted_

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What its numbers rest on, one sentence each."""
        check_is_fitted(self, "source_")
        drawn = ", ".join(self.source_.graph_.drawn)
        return (
            *self.source_.assumptions,
            f"Given what both worlds share, {drawn} change between the worlds with at most the total variation of "
            f"their distributions plus {self.gamma:g}; their joint distribution is any with that limit. A decision is "
            "drawn with the score of its features, alike for units whose mediators change and for others.",
        )

    def samples(self, df: pd.DataFrame | None = None, sample_weight: npt.ArrayLike | None = None) -> Worlds:
        """Return the rows whose scores :meth:`ends` needs, the same in both worlds but for the sensitive attribute.

        Parameters
        ----------
        df, sample_weight
            Rows for their shared features, by default the fitted ones, and their weights.
        """
        check_is_fitted(self, "source_")
        one, other = self.source_.paired(ASKED, df=df, sample_weight=sample_weight)
        kept = np.flatnonzero((one.weight > 0.0) | (other.weight > 0.0))
        unit = one.unit_index
        least = LEAST * np.bincount(unit, one.weight)[unit[kept]]
        first, second = (
            replace(
                each,
                rows=each.rows.iloc[kept].reset_index(drop=True),
                weight=np.maximum(each.weight[kept], least),
                unit=unit[kept],
                cell=None,
            )
            for each in (one, other)
        )
        return first, second

    def ends(self, scored0: Scored, scored1: Scored) -> tuple[Scored, Scored]:
        """Return both worlds in the coupling of the upper end, given the scores of :meth:`samples`.

        Each row that stays in its place is a unit, and so is what each unit moves; :func:`pyrofair.piu_upper` of both
        is the upper end, with its gradient.
        """
        return split_kept(scored0, scored1, self.gamma, upper=True)

    def bounds(self, score: Score, *, decisions: Decisions = "score", threshold: float = 0.5) -> pd.DataFrame:
        """Return the marginals, the mean unfair effect and the ends of PIU of a known classifier, without intervals.

        Parameters
        ----------
        score
            A fitted classifier with ``predict_proba``, :class:`ScoresOf` or :class:`DecisionsOf`, or a function that
            takes a table of m rows and returns their scores in [0, 1], shape (m,).
        decisions, threshold
            ``"score"``: decisions are drawn with the score as probability; ``"threshold"``: the score exceeds it.

        Returns
        -------
        DataFrame, 4 rows
            By quantity, p_y0, p_ypi, mean_unfair_effect and piu: lower and upper. They are plug-in estimates by learned
            mechanisms, and the ends of PIU err inward with their errors.
        """
        check_is_fitted(self, "source_")
        require_decisions(decisions, threshold)
        graph, order = self.unfair.graph, list(self.source_.rows_.table.columns)
        one, other = (
            world.scored(decide(ask_scores(score, world.rows, graph, order, "drawn rows"), decisions, threshold))
            for world in self.samples()
        )
        y0, ypi = float(one.mean), float(other.mean)
        lower = float(effect_gap(*split_kept(one, other, self.gamma, upper=False)))
        upper = float(piu_upper(*split_kept(one, other, self.gamma, upper=True)))
        table = {"p_y0": (y0, y0), "p_ypi": (ypi, ypi), "mean_unfair_effect": (ypi - y0,) * 2, "piu": (lower, upper)}
        found: pd.DataFrame = pd.DataFrame.from_dict(table, orient="index", columns=["lower", "upper"])
        return found.rename_axis("quantity")

    def flatness(self, score: Any) -> str:
        """Return nothing: the upper end moves with the scores of all rows."""
        return ""
