"""What an audit's numbers are of and depend on, beside its tables."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pyrofair.audits.clusters import Clusters
from pyrofair.effects.estimates import Estimates
from pyrofair.exceptions import PyrofairWarning
from pyrofair.graph import CausalGraph, UnfairPaths

if TYPE_CHECKING:
    from pyrofair.audits.view import Block

__all__ = ["Context", "collected", "texts_of"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Context:
    """Rows, settings, source, assumptions and diagnostics of an audit; ``context["rows"]`` is ``context.rows``.

    Dictionaries go by the names of models, where nothing else is said. Those of a source with influence values
    (``wald``) have what is left at its default otherwise.

    Parameters
    ----------
    paths, rows, units, level, threshold, settings, source, versions
        What was asked: the unfair paths, the number of audited rows, what is taken as independent, the level of
        intervals, the threshold of decisions, the keywords of the call, the source as text, the versions of packages.
    order, unnamed, untouched, score_types, outcomes
        Of the models: the order of columns of those fitted without names, and which these are; the columns that one
        reads if no unfair path touches them; what given scores were taken for; which are an outcome.
    replicates, failed, resampling
        The replicates that were tried and failed, and which rows they resample.
    paired
        Whether each row of one world is a unit of the other.
    missing, overlap, small, doubts, threshold_doubts
        The shares of missing values by column and group; the table of the groups weighted; for each world of a model
        why it has too few rows for intervals, or an empty text; why the numbers of a model are in doubt, and those of
        a model at a threshold.
    assumptions, outcome_assumptions, warnings, failure
        What the numbers depend on, and those of outcomes; what was warned of; why no effect could be estimated.
    sections
        Further parts of the report, such as ``graph.check(df).block()``.
    clusters
        The groups of the rows, if these are units.
    estimates, cut, within, stage_lines, form, largest_z
        Of influence values: the estimates that they make, those at further thresholds, those in the levels of subgroups
        (each a ``Level``, its estimates and models), a line for each stage, the form of the estimates, and the limit of
        the diagnostics of stages.
    disclosure
        Where the sensitive attribute is known in some rows only: how often, by level of each proxy.
    """

    paths: UnfairPaths
    rows: int
    level: float
    threshold: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    units: str = ""
    source: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    unnamed: list[str] = field(default_factory=list)
    untouched: Mapping[str, Any] = field(default_factory=dict)
    score_types: dict[str, list[str]] = field(default_factory=dict)
    outcomes: list[str] = field(default_factory=list)
    replicates: int = 0
    failed: int = 0
    resampling: str = ""
    paired: bool = False
    missing: pd.DataFrame = field(default_factory=pd.DataFrame)
    overlap: pd.DataFrame = field(default_factory=pd.DataFrame)
    small: Mapping[str, Sequence[str]] = field(default_factory=dict)
    doubts: Mapping[Any, str] = field(default_factory=dict)
    threshold_doubts: Mapping[Any, str] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    outcome_assumptions: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list)
    failure: str = ""
    sections: tuple[Block, ...] = ()
    wald: bool = False
    clusters: Clusters | None = field(default=None, repr=False)
    estimates: Estimates | None = field(default=None, repr=False)
    cut: Estimates | None = field(default=None, repr=False)
    within: Sequence[tuple[Any, Estimates, Sequence[str]]] = field(default=(), repr=False)
    stage_lines: list[str] = field(default_factory=list)
    form: str = ""
    largest_z: float = np.nan
    disclosure: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def graph(self) -> CausalGraph:
        """The graph of the unfair paths."""
        return self.paths.graph

    @property
    def unfair(self) -> str:
        """The unfair paths as text."""
        return str(self.paths)

    @property
    def swapped(self) -> bool:
        """Whether the contrast is the value on all paths, and the baseline that on the unfair ones."""
        return self.paths.swapped

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __or__(self, changed: Mapping[str, Any]) -> Context:
        return replace(self, **changed)


@contextmanager
def collected() -> Iterator[list[Any]]:
    """Gather the warnings of a block, and give each once again after it, unless it fails."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
    for each in {(each.category, str(each.message)): each for each in caught}.values():
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def texts_of(caught: list[Any]) -> list[str]:
    """Return the texts of this package's warnings, each once."""
    return list(dict.fromkeys(str(each.message) for each in caught if issubclass(each.category, PyrofairWarning)))
