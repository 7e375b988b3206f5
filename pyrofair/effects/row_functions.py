"""Whether a classifier is a function of one row: some rows are scored again, in other company and alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.tables.labels import is_categorical, repeat_label

__all__ = [
    "AT_RANDOM",
    "SAME",
    "Ask",
    "Difference",
    "Scores",
    "Ties",
    "find_difference",
    "require_row_function",
    "spread",
]

Scores = NDArray[np.floating[Any]]
Ask = Callable[[pd.DataFrame], Scores]
Ties = Callable[[pd.DataFrame], NDArray[np.bool_]]

SAME = 1e-5
"""Scores that differ by less are equal: single precision differs with the number of rows scored at once."""
REORDERED, DECIDED_AGAIN = 200, 20_000
"""The most rows that are scored in another order; decisions at random may be rare, so more of them are made again."""
REGROUPED, ALONE = 100, 6
"""The most rows that are scored in batches of one group, and alone, as many extreme ones each apart."""
MOST_CHANGED = 0.01
"""Scores that differ in a smaller share of rows are equal up to rounding: it may choose another nearest neighbour."""
AT_RANDOM = (
    "it draws at random, or reads the place of a row in its batch. Pass the probabilities by which it decides "
    "(pf.ScoresOf), and call eval() of a torch module with dropout"
)
OF_A_BATCH = "it reads the other rows of a batch"
CURE = (
    "A classifier must be a function of one row: in a world all rows may have one "
    "value of {sensitive!r}, and what is computed from the batch changes with that. The usual causes are codes made "
    "from the batch (astype('category').cat.codes, pd.factorize, pd.get_dummies), its quantiles, ranks, means, minimum "
    "or maximum, and batch normalisation of a torch module in training mode. Fit the encoder once, on training rows, "
    "and put it before the model: make_pipeline(encoder, model)."
)


@dataclass(frozen=True)
class Difference:
    """Evidence that a model is not a function of one row: it draws at random, or it reads other rows."""

    what: str
    at_random: bool

    def __str__(self) -> str:
        return f"{self.what}: {AT_RANDOM if self.at_random else OF_A_BATCH}"

    def refusal(self, name: str, sensitive: str) -> DataError:
        """Return the error that names the model, the evidence, the usual causes and the cure."""
        return DataError(f"{name} {self}." if self.at_random else f"{name} {self}. {CURE.format(sensitive=sensitive)}")


def spread(n: int, most: int) -> NDArray[np.int64]:
    """Return at most so many of n positions, evenly."""
    return np.unique(np.linspace(0, n - 1, min(most, n)).astype(np.int64))


def require_row_function(
    name: str, ask: Ask, rows: pd.DataFrame, scores: Scores, graph: CausalGraph, ties: Ties | None = None
) -> None:
    """Refuse a model whose scores (m,) of m rows are not a function of a row; parameters as for the evidence."""
    if found := find_difference(ask, rows, scores, graph, ties):
        raise found.refusal(name, graph.sensitive_column)


def find_difference(
    ask: Ask, rows: pd.DataFrame, scores: Scores, graph: CausalGraph, ties: Ties | None = None
) -> Difference | None:
    """Return the evidence that scores (m,) of m rows are not a function of a row, or None.

    Some rows, which depend on the rows only, are scored again in another order, in batches of one group, observed or
    with one value in all rows, and alone. Of a model of decisions ``ties`` finds rows that rounding may decide.
    """
    if rows.empty:
        return None
    most = REORDERED if ties is None else DECIDED_AGAIN
    for batch, expected, how, is_odd in _batches(ask, rows, scores, graph, most):
        try:
            apart = np.abs(ask(batch) - expected) > SAME
        except Exception as error:
            if is_odd:
                return Difference(f"raises {type(error).__name__} for rows {how} ({error})", at_random=False)
            raise
        if ties is not None and apart.any():
            apart[apart] = ~ties(batch[apart])
        if apart.sum() > (MOST_CHANGED * len(batch) if ties is None else 0):
            what = f"gives {int(apart.sum()):,} of {len(batch):,} rows another score when it scores them again {how}"
            return Difference(what, _draws(ask, batch, batch[apart]))
    return None


def _batches(
    ask: Ask, rows: pd.DataFrame, scores: Scores, graph: CausalGraph, most: int
) -> Iterator[tuple[pd.DataFrame, Scores, str, bool]]:
    """Yield batches (a row alone as two copies), known scores, what is special, and whether a row function can fail."""
    again = spread(len(rows), most)[::-1]
    yield rows.iloc[again].reset_index(drop=True), scores[again], "in another order", False
    extreme = _extremes(rows.iloc[again[::-1]], again[::-1])
    chosen = np.union1d(spread(len(rows), REGROUPED), extreme)
    few, known = rows.iloc[chosen].reset_index(drop=True), np.asarray(scores[chosen], dtype=np.float64)
    column, worlds = graph.sensitive_column, {}
    for label in map(graph.label, (0, 1)) if column in few else ():
        if (group := np.asarray(few[column] == label, dtype=bool)).any():
            own = few[group].reset_index(drop=True)
            yield own, known[group], f"in a batch in which all have {column}={label!r}", True
        if column in graph.input_columns and (world := _set(few, column, label)) is not None:
            worlds[label] = world, np.where(group, known, np.nan)
    parts = [(world, np.asarray(ask(world), dtype=np.float64)) for world, _ in worlds.values()] or [(few, known)]
    if worlds:
        seen = [np.where(np.isnan(own), part, own) for (_, own), (_, part) in zip(worlds.values(), parts, strict=True)]
        how = f"in one batch with {column}={' and '.join(map(repr, worlds))}"
        yield pd.concat([world for world, _ in parts], ignore_index=True), np.concatenate(seen), how, False
    alone = [*np.searchsorted(chosen, extreme[spread(len(extreme), ALONE)]), *spread(len(few), ALONE)]
    for i, place in enumerate(np.unique(alone)):
        world, part = parts[i % len(parts)]
        yield world.iloc[[place, place]].reset_index(drop=True), part[[place, place]], "alone", True


def _set(rows: pd.DataFrame, column: str, label: Hashable) -> pd.DataFrame | None:
    """Return rows with one value of the sensitive attribute, in the type of its column; None if that cannot hold it."""
    values = rows[column]
    if (values == label).any():
        return rows.assign(**{column: repeat_label(values, label, rows.index)})
    try:
        made = pd.Series(label, index=rows.index, dtype=object).astype(values.dtype)
    except (TypeError, ValueError):
        return None
    return None if made.isna().any() else rows.assign(**{column: made})


def _extremes(rows: pd.DataFrame, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of the lowest and highest value of each column, or of the rarest and commonest level."""
    found = [0, len(rows) - 1]
    for name in rows:
        levels = is_categorical(rows[name])
        codes = pd.factorize(rows[name], sort=not levels)[0]
        order = np.bincount(codes + 1)[codes + 1] if levels else codes
        found += [int(order.argmin()), int(order.argmax())]
    return np.unique(positions[found])


def _draws(ask: Ask, batch: pd.DataFrame, apart: pd.DataFrame) -> bool:
    """Return whether one batch gets other scores in a second call, or equal rows of a batch get unequal scores."""
    twice = pd.concat([apart, apart], ignore_index=True)
    try:
        calls = ask(batch) - ask(batch)
        first, second = np.split(ask(twice), 2)
    except Exception:  # a batch that it cannot score
        return False
    return bool((np.abs(calls) > SAME).any() or (np.abs(first - second) > SAME).any())
