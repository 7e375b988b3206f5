"""A sensitive attribute of several levels: one source for each level against the baseline, and what to train with."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from pyrofair._validation import require_choice, require_real, shown
from pyrofair.effects.potential_outcomes import PotentialOutcomes, Worlds, few_rows, refuse_fitted, rows_of_levels
from pyrofair.exceptions import DataError, PositivityError, PyrofairWarning
from pyrofair.graph.paths import UnfairPaths, require_unfair
from pyrofair.tables.labels import read_contrasts
from pyrofair.tables.reading import feature_columns, read_table, read_weight

if TYPE_CHECKING:
    import torch

__all__ = ["Combined", "Contrasts", "Over"]

SMOOTH = 0.02
"""The temperature of the smooth maximum: a penalty that is so far below the largest counts 1/e as much."""

Over = Literal["worst", "smooth"] | Mapping[Any, float]
"""What is made of several penalties: the largest, a smooth maximum, or a weighted sum by name."""


class Combined(BaseEstimator):  # type: ignore[misc]
    """Several sources by name, of whose values of a penalty ``over`` makes one number."""

    sources_: dict[Any, Any]
    over: Over

    def _require_over(self, names: Collection[Hashable], what: str) -> None:
        """Refuse what names no way to make one number of the penalties of some names."""
        if not isinstance(self.over, Mapping):
            require_choice("over", self.over, ("worst", "smooth"))
            return
        for name, weight in self.over.items():
            require_real(f"over[{name!r}]", weight, least=0.0)
            if name not in names:
                raise DataError(
                    f"over names {shown(name)}, which is no {what}; they are {', '.join(map(repr, names))}."
                )
        if not any(self.over.values()):
            raise DataError(f"over={shown(self.over)} gives no {what} a weight above 0.")

    def _require_fittable(self, name: str, source: Any, kinds: Any, of: str) -> None:
        """Refuse what is no unfitted source of some kinds, which is cloned for each of several."""
        if not (isinstance(source, kinds) and isinstance(source, BaseEstimator)):
            judge = " It judges classifiers, in audits." if hasattr(source, "influence") else ""
            raise DataError(
                f"{name}={shown(source)} must be a source of potential outcomes that can be fitted, such as "
                f"IPW(unfair).{judge}"
            )
        refuse_fitted(name, source, of, "such as IPW(unfair)")

    def by_contrast(self) -> dict[Any, Any]:
        """Return the fitted source of each name."""
        check_is_fitted(self, "sources_")
        return copy.copy(self.sources_)

    def combine(self, values: torch.Tensor) -> torch.Tensor:
        """Return the worst of a penalty's values (k,), or what else ``over`` makes of them; ties share the slope."""
        if isinstance(self.over, Mapping):
            return (values.new_tensor([float(self.over.get(name, 0.0)) for name in self.sources_]) * values).sum()
        if self.over == "smooth":
            return SMOOTH * ((values / SMOOTH).logsumexp(0) - float(np.log(len(values))))
        return values.amax()


class Contrasts(Combined):
    """Several levels of the sensitive attribute, each against the baseline, as one source to train with.

    Each contrast has a clone of the source, fitted on the rows of its two levels, which are the population that it
    refers to. A :class:`PenalizedClassifier` penalises ``over`` the contrasts; its cross-entropy is that of all rows,
    those of levels without a contrast included. Audits take :func:`pyrofair.audit_contrasts` instead.

    Parameters
    ----------
    source
        An unfitted source of potential outcomes: ``IPW(unfair)`` or ``GComputation(unfair)``. The graph's ``contrast``
        is not used.
    contrasts
        The levels that are compared with the baseline; by default all that are observed, where a level of fewer than 10
        rows, or one that does not overlap with the baseline, is left out with a warning. A level that is named and
        cannot be compared is an error.
    over
        What is made of the penalty's values: ``"worst"``, the largest; ``"smooth"``, a smooth maximum, the log of the
        mean of exp(value / 0.02), times 0.02, which moves all large ones at once; or a weight for each contrast, whose
        weighted sum is taken. A level with a weight above 0 that cannot be compared is an error.

    Attributes
    ----------
    sources_ : dict
        The fitted source of each contrast.
    left_out_ : dict
        For each level without a contrast, the reason.

    Examples
    --------
    >>> from pyrofair import IPW, CausalGraph, PenalizedClassifier, effect_gap
    >>> graph = CausalGraph(
    ...     "race -> M -> Y; race -> Y", sensitive="race", outcome="Y", baseline="white", contrast="black"
    ... )
    >>> rng = np.random.default_rng(0)
    >>> race = rng.choice(["white", "black", "asian"], 600)
    >>> M = rng.normal((race == "black") - 0.5 * (race == "asian"))
    >>> df = pd.DataFrame({"race": race, "M": M, "Y": (M + (race == "black") > rng.normal(size=600)).astype(int)})
    >>> source = Contrasts(IPW(graph.unfair("race -> Y")))
    >>> model = PenalizedClassifier("logistic", source=source, penalty=effect_gap, epochs=5, random_state=0)
    >>> list(model.fit(df[["race", "M"]], df["Y"]).source_.sources_)
    ['asian', 'black']
    """

    left_out_: dict[Any, str]

    def __init__(
        self,
        source: PotentialOutcomes,
        *,
        contrasts: Sequence[Hashable] | None = None,
        over: Literal["worst", "smooth"] | Mapping[Any, float] = "worst",
    ) -> None:
        self.source = source
        self.contrasts = contrasts
        self.over = over

    @property
    def unfair(self) -> UnfairPaths:
        """The unfair paths, whose graph has the baseline."""
        found = getattr(self.source, "unfair", None)
        if not isinstance(found, UnfairPaths):
            raise DataError(f"source={shown(self.source)} must be a source of potential outcomes, such as IPW(unfair).")
        return require_unfair("source.unfair", found, each=True)

    def levels(self, df: pd.DataFrame) -> list[Any]:
        """Return the levels that are compared with the baseline, in order, if the table allows that."""
        self._require_fittable("source", self.source, PotentialOutcomes, "contrast")
        graph = self.unfair.graph
        column = read_table(df, [graph.sensitive_column])[graph.sensitive_column]
        found = read_contrasts(column, graph, self.contrasts)
        self._require_over(found, "contrast")
        return found

    def fit(self, df: pd.DataFrame, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Fit a source for each contrast on the rows of its two levels.

        Raises
        ------
        DataError
            If a setting or the table is unfit, a continuous attribute included; if a level that was named, or has a
            weight above 0, has few rows; if no contrast is left.
        NotIdentifiedError, PositivityError
            If the effect is not identified; if such a level does not overlap with the baseline.
        """
        levels = self.levels(df)
        table = read_table(df, feature_columns(self.unfair.graph), missing=getattr(self.source, "missing", None))
        weight = read_weight(sample_weight, table)
        found: dict[Any, Any] = {}
        left_out: dict[Any, str] = {}
        for level in levels:
            rows = rows_of_levels(table[self.unfair.graph.sensitive_column], level, self.unfair.graph.baseline)
            try:
                found[level] = self._fit_one(level, table.iloc[rows], weight[rows])
            except (DataError, PositivityError) as error:
                if self.contrasts is not None:
                    raise
                if isinstance(self.over, Mapping) and self.over.get(level, 0.0) > 0.0:
                    why = f"over gives {level!r} a weight above 0, and it cannot be compared with the baseline: {error}"
                    raise type(error)(f"{why} Or leave it out of over.") from error
                left_out[level] = str(error)
        column = self.unfair.graph.sensitive_column
        if not found:
            first = next(iter(left_out))
            raise DataError(f"No level of {column!r} can be compared with the baseline. {first!r}: {left_out[first]}")
        for level, reason in left_out.items():
            warnings.warn(f"{column}={level!r} is left out of the penalty: {reason}", PyrofairWarning, stacklevel=2)
        self.sources_, self.left_out_ = found, left_out
        return self

    def _fit_one(self, level: Any, table: pd.DataFrame, weight: NDArray[np.float64]) -> Any:
        graph = self.unfair.graph
        if text := few_rows(weight, table[graph.sensitive_column], level, graph.baseline):
            raise DataError(f"{text}: join levels, or name those to compare, contrasts=[...].")
        one = clone(self.source).set_params(unfair=self.unfair.with_contrast(level))
        return one.fit(table, sample_weight=weight)

    def strata(self, df: pd.DataFrame) -> NDArray[np.int64]:
        """Return the code of each row's level, shape (n,): 0 the baseline, then the contrasts, then any other."""
        check_is_fitted(self, "sources_")
        values = df[self.unfair.graph.sensitive_column]
        codes = np.full(len(df), 1 + len(self.sources_), dtype=np.int64)
        for code, level in enumerate((self.unfair.graph.baseline, *self.sources_)):
            codes[np.asarray(values == level, dtype=bool)] = code
        return codes

    def pairs(
        self,
        *,
        df: pd.DataFrame,
        sample_weight: npt.NDArray[np.float64] | None = None,
        random_state: int | None = None,
    ) -> dict[Any, Worlds]:
        """Return for each contrast both worlds of the rows of its two levels; ``origin`` is a position in ``df``."""
        check_is_fitted(self, "sources_")
        weight = read_weight(sample_weight, df)
        found = {}
        for level, source in self.sources_.items():
            rows = rows_of_levels(df[self.unfair.graph.sensitive_column], level, self.unfair.graph.baseline)
            try:
                worlds = source.worlds(df=df.iloc[rows], sample_weight=weight[rows], random_state=random_state)
            except (DataError, PositivityError) as error:
                raise type(error)(f"The contrast {level!r}: {error}") from error
            origins = (None if w.origin is None else np.where(w.origin < 0, -1, rows[w.origin]) for w in worlds)
            one, other = (replace(world, origin=each) for world, each in zip(worlds, origins, strict=True))
            found[level] = one, other
        return found
