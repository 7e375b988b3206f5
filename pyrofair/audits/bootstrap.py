"""What would an audit have found on other rows like these? Bootstrap replicates, the nuisances fitted again in each."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from pyrofair.audits.measures import (
    DECISIONS,
    AuditedModel,
    Decisions,
    Worlds,
    WorldScores,
    decide,
    measure,
    measure_views,
    view_signs,
)
from pyrofair.effects.conditional_bounds import Signs, split_draws
from pyrofair.effects.potential_outcomes import Refittable, SampleSplit, Views
from pyrofair.exceptions import DataError, PositivityError, PyrofairWarning

__all__ = ["GROUPED", "OUTCOME", "Bootstrap", "Estimator", "Key", "Replicates", "Views", "make_views", "replicate"]

Bootstrap = Literal["bayesian", "multinomial"]
Key = tuple[str, str, Decisions, str]
"""Source ("" for the audited one, or the name of one of its single groups), model, decisions, quantity."""
LEVELS = ("source", "model", "decisions", "quantity")
"""The names of the levels of a key, in the columns of replicates."""
AllSigns = dict[tuple[str, Decisions], Signs]
"""For each model and kind of decisions the sides of the kinks on which units are."""

OUTCOME = "outcome"
"""The label of the source for scores that are an outcome, beside one for predictions."""
GROUPED = ("p_y0", "p_ypi", "mean_unfair_effect")


@dataclass(frozen=True)
class Estimator:
    """All that is needed to estimate every quantity of every model, on the rows at hand or on resampled ones.

    Parameters
    ----------
    models
        The models.
    table, outcome, weight
        The n audited rows; their outcomes (n,) in 0 and 1, or None; their weights (n,).
    observed
        For each model the scores of these rows, (n,).
    sources
        The fitted source under "", those that weight a single group, and perhaps one for scores that are an outcome;
        empty if the worlds cannot be made.
    worlds
        The views of the two worlds of each source.
    scored
        For each source and model the scores of both worlds' rows, view by view.
    place
        Which of the rows that the source was fitted on each audited row is, shape (n,), -1 for others: a row that is
        both has one weight in a replicate.
    threshold
        A decision is positive where the score exceeds it.
    """

    models: tuple[AuditedModel, ...]
    table: pd.DataFrame
    outcome: NDArray[np.int8] | None
    weight: NDArray[np.float64]
    observed: dict[str, NDArray[np.float64]]
    sources: dict[str, Any]
    worlds: dict[str, Views]
    scored: dict[tuple[str, str], tuple[WorldScores, ...]]
    place: NDArray[np.int64]
    threshold: float

    @cached_property
    def signs(self) -> AllSigns:
        """For each model and kind of decisions the sides of the kinks on which units are, which replicates keep."""
        return self._signs(self.worlds.get("", ()))

    @cached_property
    def redraws_units(self) -> bool:
        """Whether a replicate has other units than these."""
        base: Any = self.sources[""]
        return isinstance(base, SampleSplit) and base.redraws_units(self.table)

    def label_of(self, model: str) -> str:
        """Return under which label the worlds of a model are: that of outcomes, or "" for predictions."""
        return OUTCOME if (OUTCOME, model) in self.scored else ""

    def _signs(self, views: Views) -> AllSigns:
        if len(views) < 2:
            return {}
        found: AllSigns = {}
        for model, scores in self._all_scores("", views):
            for kind in DECISIONS:
                found[model.name, kind] = view_signs(self._decided(scores, kind), views)
        return found

    def point(self) -> tuple[dict[Key, float], dict[Key, str]]:
        """Return the estimates on the rows at hand, and notes on them."""
        values = self._observed(self.weight)
        notes: dict[Key, str] = {}
        for label, views in self.worlds.items():
            found, said = self._causal(label, views, self.signs)
            values |= found
            notes |= said
        return values, notes

    def resampled(self, seed: np.random.SeedSequence, bootstrap: Bootstrap) -> dict[Key, float] | str:
        """Return the estimates on resampled rows, or why they cannot be had."""
        random = np.random.default_rng(seed)
        base: Any = self.sources.get("")
        place = self.place if base is not None else np.full(len(self.table), -1)
        counts, fitted_counts = _resample_both(
            random, place, base.n_fitted_ if isinstance(base, Refittable) else 0, bootstrap
        )
        weight = self.weight * counts
        values = self._observed(weight)
        if base is None:
            return values
        try:
            if not isinstance(base, Refittable) and self._name_units(""):
                factor = _resample(random, self.worlds[""][0][0].units, bootstrap)
                views = tuple((one.reweighted(factor), other.reweighted(factor)) for one, other in self.worlds[""])
                return values | self._causal("", views, self.signs)[0]
            if isinstance(base, Refittable):
                base = base.refit(fitted_counts)
            single = [label for label in self.sources if label not in ("", OUTCOME)]
            draw = int(random.integers(2**31))
            sources = {"": base, **(base.by_group(single) if single else {})}
            if OUTCOME in self.sources:
                sources[OUTCOME] = self.sources[OUTCOME].refit(fitted_counts)
            for label, source in sources.items():
                views = make_views(source, self.table, weight, draw)
                signs = self.signs
                if self.redraws_units:
                    signs = self._signs(make_views(source.with_first_mechanisms(), self.table, weight, draw))
                values |= self._causal(label, views, signs)[0]
        except (DataError, PositivityError) as error:  # of these rows; any other is a fault, and no failed replicate
            return str(error)
        return values

    def _observed(self, weight: NDArray[np.float64]) -> dict[Key, float]:
        values: dict[Key, float] = {}
        for name, scores in self.observed.items():
            for kind in DECISIONS:
                values["", name, kind, "positive_rate"] = _mean(decide(scores, kind, self.threshold), weight)
            if self.outcome is not None:
                right = decide(scores, "threshold", self.threshold) == self.outcome
                base_rate = _mean(self.outcome, weight)
                values["", name, "threshold", "accuracy"] = _mean(right, weight)
                values["", name, "threshold", "majority_rate"] = max(base_rate, 1.0 - base_rate)
        return values

    def _causal(self, label: str, views: Views, signs: AllSigns) -> tuple[dict[Key, float], dict[Key, str]]:
        values: dict[Key, float] = {}
        notes: dict[Key, str] = {}
        under = "" if label == OUTCOME else label
        for model, scores in self._all_scores(label, views):
            for kind in DECISIONS:
                decided = self._decided(scores, kind)
                if len(views) > 1:
                    found, said = measure_views(decided, views, signs[model.name, kind])
                else:
                    found, said = measure(decided[0], views[0])
                kept = [quantity for quantity in found if not under or quantity in GROUPED]
                values |= {(under, model.name, kind, quantity): found[quantity] for quantity in kept}
                notes |= {(under, model.name, kind, quantity): said[quantity] for quantity in kept if quantity in said}
        return values, notes

    def _all_scores(self, label: str, views: Views) -> Iterator[tuple[AuditedModel, tuple[WorldScores, ...]]]:
        """Yield each model with the scores of the views' rows; those of the original rows are not made again."""
        same = [_are_the_same(now, then) for now, then in zip(views, self.worlds[label], strict=True)]
        for model in self.models:
            if (label, model.name) in self.scored:
                yield (
                    model,
                    tuple(
                        old if unchanged else self._scores(model, worlds)
                        for old, unchanged, worlds in zip(self.scored[label, model.name], same, views, strict=True)
                    ),
                )

    def _decided(self, scores: Iterable[WorldScores], kind: Decisions) -> tuple[WorldScores, ...]:
        return tuple((decide(one, kind, self.threshold), decide(other, kind, self.threshold)) for one, other in scores)

    def _scores(self, model: AuditedModel, worlds: Worlds) -> WorldScores:
        one, other = (model.world(world, self.observed[model.name]) for world in worlds)
        return one, other

    def _name_units(self, label: str) -> bool:
        return all(world.unit is not None for pair in self.worlds[label] for world in pair)


def make_views(source: Any, table: pd.DataFrame, weight: NDArray[np.float64], seed: int | None) -> Views:
    """Return the worlds of a source once, or in several views if it splits its rows or its units have many draws."""
    if isinstance(source, SampleSplit):
        return source.views(df=table, sample_weight=weight, random_state=seed)
    return split_draws(source.worlds(df=table, sample_weight=weight, random_state=seed))


def _are_the_same(now: Worlds, then: Worlds) -> bool:
    """Tell whether the rows are the same; weighted rows always are, drawn ones are not."""
    return all(one.rows is other.rows or one.rows.equals(other.rows) for one, other in zip(now, then, strict=True))


def _mean(values: NDArray[Any], weight: NDArray[np.float64]) -> float:
    return float(weight @ values / weight.sum())


def _resample(random: np.random.Generator, n: int, bootstrap: Bootstrap) -> NDArray[np.float64]:
    """Return how often each row counts in a replicate, shape (n,), with sum n."""
    if bootstrap == "multinomial":
        return random.multinomial(n, np.full(n, 1.0 / n)).astype(np.float64)
    return n * random.dirichlet(np.ones(n))


def _resample_both(
    random: np.random.Generator, place: NDArray[np.int64], n_fitted: int, bootstrap: Bootstrap
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how often each of the n audited and of the fitted rows counts in a replicate, one that is both alike.

    Parameters
    ----------
    random
        Draws them.
    place
        Which fitted row each audited row is, shape (n,), -1 for others.
    n_fitted
        How many rows were fitted on.
    bootstrap
        How rows are resampled.
    """
    known = place >= 0
    if not known.any():
        counts = _resample(random, len(place), bootstrap)
        return counts, _resample(random, n_fitted, bootstrap) if n_fitted else np.empty(0)
    new = int((~known).sum())
    union = _resample(random, n_fitted + new, bootstrap)
    where = place.copy()
    where[~known] = n_fitted + np.arange(new)
    counts, fitted = union[where], union[:n_fitted]
    if bootstrap == "bayesian":
        counts, fitted = counts * (len(counts) / counts.sum()), fitted * (n_fitted / fitted.sum())
    return counts, fitted


@dataclass(frozen=True)
class Replicates:
    """Bootstrap replicates.

    Parameters
    ----------
    draws
        A row for each replicate that could be had, a column for each key.
    failures
        Why each of the others could not be had.
    """

    draws: pd.DataFrame
    failures: list[str]

    @property
    def tried(self) -> int:
        """How many were tried."""
        return len(self.draws) + len(self.failures)


def replicate(
    estimator: Estimator,
    keys: Iterable[Key],
    n_boot: int,
    *,
    bootstrap: Bootstrap,
    n_jobs: int,
    progress: bool,
    random_state: int | None,
) -> Replicates:
    """Estimate on resampled rows, ``n_boot`` times; an interrupt keeps what is done, with a warning.

    Parameters
    ----------
    estimator
        What estimates.
    keys
        The columns wanted.
    n_boot
        How many replicates.
    bootstrap
        ``"bayesian"`` (Dirichlet weights) or ``"multinomial"`` (rows drawn with replacement).
    n_jobs
        Threads, as joblib counts them; they do not change the numbers.
    progress
        Whether a bar is shown.
    random_state
        Seeds the replicates.
    """
    done: list[dict[Key, float] | str] = []
    seeds = np.random.SeedSequence(random_state).spawn(n_boot)
    gradients, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def resampled(seed: np.random.SeedSequence) -> dict[Key, float] | str:
        # These modes are a thread's own: a model must run in those of the caller in every thread.
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            return estimator.resampled(seed, bootstrap)

    with (
        threadpool_limits(1),
        tqdm(total=n_boot, desc="bootstrap", disable=not progress or not n_boot, leave=False) as bar,
    ):
        work = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(
            delayed(resampled)(seed) for seed in seeds
        )
        try:
            for each in work:
                done.append(each)
                bar.update()
        except KeyboardInterrupt:
            warnings.warn(
                f"Interrupted: intervals rest on the {len(done)} replicates that were done.",
                PyrofairWarning,
                stacklevel=3,
            )
    columns = list(keys)
    rows = [[each[key] for key in columns] for each in done if not isinstance(each, str)]
    draws = pd.DataFrame(
        np.array(rows).reshape(len(rows), len(columns)), columns=pd.MultiIndex.from_tuples(columns, names=LEVELS)
    )
    return Replicates(draws, [each for each in done if isinstance(each, str)])
