"""What an audit or a decomposition is asked of: rows with their units and outcomes, and models with their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.audits.clusters import Clusters
from pyrofair.audits.models import (
    AuditedModel,
    ScoresAre,
    ScoreType,
    describe_reversal,
    disagreement_with_predict,
    judge_scores,
)
from pyrofair.exceptions import DataError
from pyrofair.graph import CausalGraph
from pyrofair.tables.labels import read_outcome, read_sensitive
from pyrofair.tables.reading import describe_reading, feature_columns, read_table, read_weight
from pyrofair.tables.recorded import Missing
from pyrofair.tables.row_identity import describe_copies

__all__ = ["AuditedRows", "JudgedModels"]


@dataclass(frozen=True, eq=False)
class AuditedRows:
    """The n rows of a table as they were given, with codes (n,) of A, -1 where it is not ``known``, and weights (n,).

    ``outcome`` (n,) holds 0 and 1, -1 where it is missing, and its ``labels``; None without a column. ``read`` are all
    columns read, ``order`` those that a classifier may read. ``texts`` and ``of_outcome`` are to be warned of.
    """

    table: pd.DataFrame
    a: NDArray[np.int8]
    known: NDArray[np.bool_]
    weight: NDArray[np.float64]
    outcome: NDArray[np.int8] | None
    labels: tuple[Any, ...]
    clusters: Clusters | None
    read: list[str]
    order: tuple[str, ...]
    texts: list[str]
    of_outcome: list[str]

    @classmethod
    def of(
        cls,
        df: pd.DataFrame,
        graph: CausalGraph,
        *,
        sample_weight: Any,
        groups: Any,
        missing: Missing | None,
        both: bool,
        beside: Sequence[str] = (),
        known: NDArray[np.bool_] | None = None,
    ) -> AuditedRows:
        """Read a table; ``beside`` are proxies, and with ``both`` a group that does not occur is refused."""
        table = read_table(df, feature_columns(graph), what="df", missing=missing)
        known = np.ones(len(table), bool) if known is None else known
        weight = read_weight(sample_weight, table)
        a = np.where(known, read_sensitive(table, graph, both=both, weight=weight), -1).astype(np.int8)
        outcome, of_outcome = _read_outcome(df, graph, weight, missing)
        read = [*table.columns, *([] if outcome is None else [graph.outcome_column]), *beside]
        clusters = Clusters.read(groups, df, graph, a, weight)
        code, few = (None, []) if clusters is None else (clusters.code, clusters.warnings)
        texts = [
            *describe_copies(df, read, sample_weight, code), *describe_reading(df, graph, beside, groups=groups), *few,
        ]  # fmt: skip
        labels = () if outcome is None else tuple(df[graph.outcome_column].dropna().unique())
        order = tuple(column for column in df.columns if column in graph.input_columns)
        return cls(table, a, known, weight, outcome, labels, clusters, read, order, texts, of_outcome)


@dataclass(frozen=True)
class JudgedModels:
    """Models with their scores of the n rows, what these are, and what is to be warned of.

    What is no function of the features has scores of observed rows only, a model's too.
    """

    models: tuple[AuditedModel, ...]
    observed: dict[str, NDArray[Any]]
    types: Mapping[str, ScoreType]
    texts: list[str]

    @classmethod
    def of(
        cls, models: Mapping[str, Any], rows: AuditedRows, graph: CausalGraph, scores: ScoresAre, threshold: float
    ) -> JudgedModels:
        """Score the rows, and judge whether the scores are a function of the features."""
        labels = rows.labels if len(rows.labels) > 1 else None
        found = [AuditedModel(name, model, graph, rows.order, labels) for name, model in models.items()]
        if scores == "outcome" and not any(model.is_scores for model in found):
            raise DataError(
                f"scores='outcome' describes given scores, and {', '.join(map(repr, models))} has predict_proba: give "
                "the scores of the rows of df themselves, or leave scores out."
            )
        of = {model.name: model.observed(rows.table) for model in found}
        known = rows.known
        types = {each.name: judge_scores(each, rows.table[known], of[each.name][known], scores) for each in found}
        texts = [
            *(each.warning for each in types.values()),
            *(disagreement_with_predict(each, rows.table, of[each.name], threshold) for each in found),
            *(describe_reversal(each, of[each.name], rows.outcome) for each in found),
        ]
        judged = (
            replace(each, model=of[each.name], decided=len(each.decisions) == 1)
            if types[each.name].is_outcome
            else each
            for each in found
        )
        return cls(tuple(judged), of, types, [*filter(None, texts)])

    @property
    def outcomes(self) -> list[str]:
        """The names of those whose scores are an outcome."""
        return [name for name, each in self.types.items() if each.is_outcome]


def _read_outcome(
    df: pd.DataFrame, graph: CausalGraph, weight: NDArray[np.float64], missing: Missing | None
) -> tuple[NDArray[np.int8] | None, list[str]]:
    """Return the outcomes (n,) in 0 and 1, -1 where one is missing, and what is to be warned of."""
    name = graph.outcome_column
    if name not in df.columns:
        return None, []
    column = read_table(df, [name], what="df", missing=missing)[name]
    known, found, texts = column.notna().to_numpy(), np.full(len(df), -1, dtype=np.int8), []
    if not weight[known].any():
        raise DataError(f"No row with a weight has an outcome {name!r}. Leave this column out, or weight other rows.")
    if lost := int((~known).sum()):
        texts = [f"The outcome {name!r} is missing in {lost:,} of {len(df):,} rows, which accuracy leaves out."]
    column = column[known]
    if len(column.unique()) > 1:
        found[known] = read_outcome(column, graph.positive, what=f"The outcome {name!r}")[0]
        return found, texts
    found[known] = positive = (column == graph.positive).to_numpy()
    text = (
        f"The outcome {name!r} of df is always {column.iloc[0]}, read as {'yes' if positive.all() else 'no'} (yes is "
        f"{graph.positive!r}): accuracy is that of one class. Audit rows with both outcomes, or read the effect alone."
    )
    return found, [*texts, text]
