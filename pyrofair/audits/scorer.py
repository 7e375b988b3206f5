"""A scorer for scikit-learn's searches: accuracy beside an unfairness quantity, and a choice that weighs both."""

from __future__ import annotations

import copy
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pyrofair._validation import require_choice, require_integer, require_real, require_seed
from pyrofair.audits.audit import audit, default_source, fit_source
from pyrofair.audits.models import AuditedModel
from pyrofair.audits.verdicts import quantities_of
from pyrofair.audits.wald import require_estimates
from pyrofair.effects.estimates import JUDGED, absolute_interval
from pyrofair.effects.influence import InfluenceBased
from pyrofair.effects.potential_outcomes import PotentialOutcomes
from pyrofair.effects.scoring import DECISIONS, Decisions, decide
from pyrofair.exceptions import DataError, PositivityError, PyrofairWarning
from pyrofair.graph import UnfairPaths
from pyrofair.tables.labels import read_outcome
from pyrofair.tables.reading import as_pandas, feature_columns, read_table, require_aligned
from pyrofair.tables.row_identity import hash_rows

__all__ = ["AuditScorer"]

FAR_END = "far_end"
KEPT = 16
"""So many fitted sources are kept, of the rows of as many folds."""


class AuditScorer:
    """Scores fitted classifiers by accuracy and by an unfairness quantity, for searches over settings.

    By accuracy alone a search chooses the weakest penalty. Pass the scorer as ``scoring=`` and its :meth:`choose` as
    ``refit=`` of scikit-learn's ``GridSearchCV`` or ``RandomizedSearchCV``; :meth:`single` is one number, for searches
    that take no more. Each fold's rows are audited: they must hold the graph's columns.

    Parameters
    ----------
    source
        The unfair paths, for one-step estimates; or a source, of influence values or of potential outcomes. A fitted
        one judges all folds as it is: ``OneStep(unfair).fit(X)`` on all rows is fitted once, cross-fitted, and judges
        closest. Otherwise a clone is fitted on the rows of each fold, once for all candidates.
    at_most
        The largest value that the quantity may have, up to the end of its 95 % interval that is farther from 0.
    quantity
        A quantity of :func:`pyrofair.audit`, but accuracy and the majority rate; its absolute value counts.
    decisions
        ``"threshold"`` or ``"score"``: what the quantity is of. Accuracy is always that of decisions.
    threshold
        A decision is positive where the score exceeds it.
    n_boot
        Bootstrap replicates of an audit, for a source that needs them.
    random_state
        Seeds the audits.

    Raises
    ------
    DataError
        If a setting is unfit.

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> unfair = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y").unfair("A -> Y")
    >>> scorer = AuditScorer(unfair, at_most=0.1)
    >>> scorer.names
    ('accuracy', 'piu_upper', 'piu_upper_far_end')
    >>> results = {"mean_test_accuracy": [0.83, 0.81, 0.76], "mean_test_piu_upper_far_end": [0.31, 0.09, 0.02]}
    >>> scorer.choose(results)  # as GridSearchCV(..., scoring=scorer, refit=scorer.choose) calls it
    1
    """

    def __init__(
        self,
        source: UnfairPaths | PotentialOutcomes | InfluenceBased,
        *,
        at_most: float,
        quantity: str = "piu_upper",
        decisions: Decisions = "threshold",
        threshold: float = 0.5,
        n_boot: int = 100,
        random_state: int | None = 0,
    ) -> None:
        require_choice("quantity", quantity, JUDGED)
        require_choice("decisions", decisions, DECISIONS)
        self.at_most = require_real("at_most", at_most, least=0.0)
        self.threshold = require_real("threshold", threshold, least=0.0, below=1.0)
        self.n_boot = require_integer("n_boot", n_boot, least=2)
        require_seed(random_state)
        chosen = default_source(source, random_state) if isinstance(source, UnfairPaths) else source
        require_estimates("source", chosen)
        self.source, self.quantity, self.decisions, self.random_state = chosen, quantity, decisions, random_state
        self._fitted: OrderedDict[bytes, Any] = OrderedDict()
        self._said: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the scores."""
        return ("accuracy", self.quantity, f"{self.quantity}_{FAR_END}")

    def __call__(self, model: Any, X: pd.DataFrame, y: npt.ArrayLike) -> dict[str, float]:
        """Return accuracy, the estimate of the quantity, and the size of the end of its interval farther from 0.

        ``X`` (m rows) holds the graph's columns, ``y`` (m,) the outcomes. What cannot be estimated is NaN, and so are
        both figures of the quantity, with a warning, on rows that the source cannot be fitted to.
        """
        graph = self.source.unfair.graph
        X = as_pandas(X)
        table = read_table(X, feature_columns(graph), what="X", missing=getattr(self.source, "missing", None))
        table = table[[name for name in X.columns if name in table]]  # the order of a model without column names
        require_aligned(table, y)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = self._figures(model, table, y)
        for each in caught:  # of many candidates and folds, each warning once
            if str(each.message) not in self._said:
                self._said.add(str(each.message))
                warnings.warn(str(each.message), each.category, stacklevel=2)
        return dict(zip(self.names, map(float, found), strict=True))

    def _figures(self, model: Any, table: pd.DataFrame, y: npt.ArrayLike) -> tuple[float, float, float]:
        """Return accuracy, estimate and far end."""
        graph = self.source.unfair.graph
        try:
            source = self._source_for(table)
        except (DataError, PositivityError) as error:  # a search that is told so goes on with the other folds
            warnings.warn(
                f"A fold of {len(table)} rows cannot be judged: {error} Use fewer or stratified folds, or a source "
                "that is fitted on all rows.",
                PyrofairWarning,
                stacklevel=1,
            )
            order = tuple(str(name) for name in table if name in graph.input_columns)
            scores = AuditedModel("model", model, graph, order).observed(table)
            outcome, _ = read_outcome(y, graph.positive)
            return float(np.mean(decide(scores, "threshold", self.threshold) == outcome)), np.nan, np.nan
        how: dict[str, Any] = {"n_boot": self.n_boot, "threshold": self.threshold, "random_state": self.random_state}
        judged = table.assign(**{graph.outcome_column: np.asarray(y)})
        report = audit({"model": model}, source, judged, n_jobs=1, progress=False, **how)
        of = quantities_of(report.table)
        if ("model", self.decisions) not in of:
            raise DataError(
                "decisions='score' judges scores, and the model gives decisions alone: take decisions='threshold'."
            )
        found = of["model", self.decisions][self.quantity]
        far = absolute_interval(found.lower, found.upper)[1]
        return of["model", "threshold"]["accuracy"].estimate, found.estimate, far

    def single(self, model: Any, X: pd.DataFrame, y: npt.ArrayLike) -> float:
        """Return one score: the accuracy where the far end is at most ``at_most``, else minus what it is beyond that.

        So each classifier that is fair enough comes before all others. It is NaN where the quantity has no interval.
        """
        accuracy, _, far_end = self(model, X, y).values()
        return accuracy if far_end <= self.at_most else self.at_most - far_end

    def choose(self, results: Mapping[str, Any]) -> int:
        """Return the index of the most accurate candidate of a search that is fair enough: its ``refit=``.

        Of several that are equally accurate it is the one of the least far end.

        A candidate is fair enough if the mean over folds of the far ends is at most ``at_most``; that is careful, for
        the interval from all folds together would be narrower. The chosen one of many looks a little better than it is:
        audit it on further rows.

        Warns
        -----
        PyrofairWarning
            If none is fair enough; the one of the least far end is chosen then, so that the search is not lost.

        Raises
        ------
        DataError
            If ``results`` are of another scorer, or no candidate has an interval.
        """
        columns = [f"mean_test_{name}" for name in (self.names[0], self.names[2])]
        if not isinstance(results, Mapping) or any(column not in results for column in columns):
            raise DataError(
                f"The results lack {' and '.join(columns)}: pass this scorer as scoring= and its choose as refit= of "
                "the same search."
            )
        accuracy, far_end = (np.asarray(results[column], dtype=np.float64) for column in columns)
        known = np.isfinite(accuracy) & np.isfinite(far_end)
        if not known.any():
            raise DataError(
                f"No candidate has an interval of {self.quantity} in every fold. Audit one of them, to see why."
            )
        enough = known & (far_end <= self.at_most)
        if enough.any():
            return int(np.lexsort((far_end, -accuracy, ~enough))[0])
        least = int(np.argmin(np.where(known, far_end, np.inf)))
        warnings.warn(
            f"No candidate has {self.quantity} below {self.at_most:g} (at_most) up to the end of its interval. The one "
            f"chosen comes nearest, {far_end[least]:.3g}: search over stronger penalties, or judge on more rows.",
            PyrofairWarning,
            stacklevel=2,
        )
        return least

    def _source_for(self, table: pd.DataFrame) -> Any:
        """Return the source fitted on a table, unless it was fitted before; it is kept for the next candidates."""
        key = hash_rows(table).tobytes()
        if key not in self._fitted:
            self._fitted[key], _ = fit_source(self.source, table, np.ones(len(table)))
            if len(self._fitted) > KEPT:
                self._fitted.popitem(last=False)
        self._fitted.move_to_end(key)
        return self._fitted[key]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the fitted sources, which other processes make anew."""
        return copy.copy(self.__dict__) | {"_fitted": OrderedDict()}

    def __repr__(self) -> str:
        return f"<AuditScorer: accuracy where {self.quantity} of {self.decisions} is at most {self.at_most:g}>"
