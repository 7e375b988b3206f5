"""Several sources as one to train with, one for each candidate graph or set of paths, by one of their penalties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from pyrofair._validation import shown
from pyrofair.effects.potential_outcomes import Bounding, PotentialOutcomes, Worlds
from pyrofair.exceptions import DataError, GraphError, NotIdentifiedError, PositivityError
from pyrofair.graph.paths import UnfairPaths, require_unfair
from pyrofair.sources.contrasts import Combined, Over
from pyrofair.tables.labels import read_sensitive
from pyrofair.tables.reading import feature_columns, read_table, read_weight

__all__ = ["Several", "require_agreement"]


class Several(Combined):
    """Several sources as one to train with: one for each candidate graph, or for each set of unfair paths.

    Each is cloned and fitted on all rows. A :class:`PenalizedClassifier` penalises ``over`` them: the worst case is the
    largest penalty of any graph, so that a small one is small whichever of the candidates is right.

    Parameters
    ----------
    sources
        Unfitted sources of potential outcomes by name: ``{"M -> L": IPW(unfair), ...}``, or of bounds on them where
        the effect is not identified, :class:`MilesBounds`; the penalty is then ``interval_disagreement``, which at two
        points is the disagreement. Their graphs have one sensitive attribute, outcome and labels, the same columns, and
        the same inputs of the classifier.
    over
        What is made of the penalty's values: ``"worst"``, the largest; ``"smooth"``, a smooth maximum, the log of the
        mean of exp(value / 0.02), times 0.02; or a weight for each name, whose weighted sum is taken.

    Attributes
    ----------
    sources_ : dict
        The fitted sources.

    Examples
    --------
    >>> from pyrofair import IPW, CausalGraph, PenalizedClassifier, effect_gap
    >>> graphs = CausalGraph.expand("A -> {M L}; M - L; {A M L} -> Y", sensitive="A", outcome="Y")
    >>> source = Several({name: IPW(graph.unfair(direct=True)) for name, graph in graphs.items()})
    >>> rng = np.random.default_rng(0)
    >>> df = pd.DataFrame({name: rng.integers(2, size=300) for name in "AMLY"})
    >>> model = PenalizedClassifier("logistic", source=source, penalty=effect_gap, epochs=5, random_state=0)
    >>> list(model.fit(df[["A", "M", "L"]], df["Y"]).source_.sources_)
    ['M -> L', 'L -> M']
    """

    def __init__(self, sources: Mapping[str, Any], *, over: Over = "worst") -> None:
        self.sources = sources
        self.over = over

    @property
    def unfair(self) -> UnfairPaths:
        """The unfair paths of the first source, whose graph has the columns and labels of all."""
        if not isinstance(self.sources, Mapping) or not self.sources:
            raise DataError(f"sources={shown(self.sources)} must be a dictionary of sources by name.")
        for name, source in self.sources.items():
            if not isinstance(unfair := getattr(source, "unfair", None), UnfairPaths):
                raise DataError(f"sources[{name!r}]={shown(source)} must be a source, such as IPW(unfair).")
            require_unfair(f"sources[{name!r}].unfair", unfair)
        first: UnfairPaths = next(iter(self.sources.values())).unfair
        return first

    def _check_settings(self) -> None:
        _ = self.unfair
        for name, source in self.sources.items():
            self._require_fittable(f"sources[{name!r}]", source, PotentialOutcomes | Bounding, "graph")
        paths = {name: source.unfair for name, source in self.sources.items()}
        require_agreement(paths, _trained_on, "One classifier is trained on all graphs, which must agree on them.")
        self._require_over(self.sources, "source")

    def levels(self, df: pd.DataFrame) -> list[Any]:
        """Return the names of the sources, if the settings and the table allow to fit them."""
        self._check_settings()
        read_sensitive(df, self.unfair.graph)
        return list(self.sources)

    def fit(self, df: pd.DataFrame, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Fit a clone of each source on all rows; its error has the name of the source.

        Raises
        ------
        DataError, GraphError, NotIdentifiedError, PositivityError
            If a setting or the table is unfit; if bounds do not apply to a graph, or the effect is not identified in
            it; if groups do not overlap.
        """
        self._check_settings()
        table = read_table(df, feature_columns(self.unfair.graph))
        found = {}
        for name, source in self.sources.items():
            try:
                found[name] = clone(source).fit(table, sample_weight=sample_weight)
            except NotIdentifiedError as error:
                raise type(error)(f"In {name!r}: {error.cause}", error.way_out) from error
            except (DataError, GraphError, PositivityError) as error:
                raise type(error)(f"In {name!r}: {error}") from error
        self.sources_ = found
        return self

    def strata(self, df: pd.DataFrame) -> NDArray[np.int64]:
        """Return the group of each row, 0 or 1, shape (n,)."""
        return read_sensitive(df, self.unfair.graph, both=False).astype(np.int64)

    def pairs(
        self,
        *,
        df: pd.DataFrame,
        sample_weight: npt.NDArray[np.float64] | None = None,
        random_state: int | None = None,
    ) -> dict[str, Worlds]:
        """Return both worlds of each source, or what its bounds need; ``origin`` is a position in ``df``."""
        check_is_fitted(self, "sources_")
        weight = read_weight(sample_weight, df)
        return {
            name: source.samples(df=df, sample_weight=weight)
            if isinstance(source, Bounding)
            else source.worlds(df=df, sample_weight=weight, random_state=random_state)
            for name, source in self.sources_.items()
        }


def require_agreement(
    paths: Mapping[str, UnfairPaths], asked: Callable[[UnfairPaths], dict[str, Any]], why: str
) -> None:
    """Refuse candidates that differ in something, by its name, from the first one."""
    first = next(iter(paths))
    for name, unfair in paths.items():
        for (what, one), other in zip(asked(unfair).items(), asked(paths[first]).values(), strict=True):
            if one != other:
                raise DataError(
                    f"The {what} of {name!r} and of {first!r} differ: {shown(one)} and {shown(other)}. {why}"
                )


def _trained_on(unfair: UnfairPaths) -> dict[str, Any]:
    graph = unfair.graph
    return {
        "sensitive attribute": graph.sensitive_column,
        "outcome": graph.outcome_column,
        "labels": (graph.baseline, graph.contrast, graph.positive),
        "inputs of the classifier": {*graph.input_columns},
        "columns": {*feature_columns(graph)},
    }
