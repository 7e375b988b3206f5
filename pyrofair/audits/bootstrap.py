"""Quantities of scored worlds, their point estimates in an audit, and bootstrap replicates with refitted nuisances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pyrofair._progress import progress_bar
from pyrofair._random import keyed_exponentials, neutral_torch, seed_from
from pyrofair.audits.inputs import AuditedRows, JudgedModels
from pyrofair.audits.models import AuditedModel
from pyrofair.effects.bounds import Signs, choose_signs, split_draws, unit_disagreement, unit_ends, unit_means
from pyrofair.effects.estimates import AUDITED, Key, note_on
from pyrofair.effects.potential_outcomes import Refittable, SampleSplit, Views, Worlds
from pyrofair.effects.row_functions import Scores
from pyrofair.effects.scoring import DECISIONS, Rule, decide
from pyrofair.exceptions import DataError, PositivityError

__all__ = [
    "MAX_MISSING_SHARE",
    "OUTCOME",
    "Bootstrap",
    "Draw",
    "Estimator",
    "Replicates",
    "Units",
    "WorldScores",
    "make_views",
    "measure",
    "measure_views",
    "replicate",
]


WorldScores = tuple[NDArray[np.float64], NDArray[np.float64]]
ROUNDING = 1e-9
TOGETHER = 10
"""So many replicates of a source that does several at once are fitted together."""
MAX_MISSING_SHARE = 0.2
"""The largest share of replicates that may lack a value for an interval to be given."""


def measure(scores: WorldScores, worlds: Worlds) -> tuple[dict[str, float], dict[str, str]]:
    """Return the quantities of two worlds whose rows are scored, and notes on those that are NaN or vacuous.

    The paper's bound is made of the two marginals, whatever units the worlds share; the bounds on PIU use the units
    (Chikahara et al. 2021, eq. 6, 7, 8 and A19).
    """
    from pyrofair.effects.functionals import disagreement, effect_gap, piu_upper  # they load torch

    with neutral_torch():
        scored = [world.scored(each) for world, each in zip(worlds, scores, strict=True)]
        p0, p1 = (each.mean.item() for each in scored)
    values = {"p_y0": p0, "p_ypi": p1, "mean_unfair_effect": p1 - p0}
    marginals = {"P(Y0=1)": p0, "P(Ypi=1)": p1}
    left = [f"{name} = {p:.3f}" for name, p in marginals.items() if not -ROUNDING <= p <= 1.0 + ROUNDING]
    if left:
        bounds = dict.fromkeys(("piu_paper_bound", "piu_lower", "piu_upper"), np.nan)
        note = f"the estimate left [0, 1]: {' and '.join(left)}"
        return values | bounds, dict.fromkeys(values, note) | dict.fromkeys(bounds, f"cannot be made: {note}")
    with neutral_torch():
        values["piu_paper_bound"] = 2.0 * disagreement(*(replace(each, unit=None) for each in scored)).item()
        values["piu_lower"] = effect_gap(*scored).item()
        values["piu_upper"] = piu_upper(*scored).item()
    return values, _notes(values)


def measure_views(
    scores: Sequence[WorldScores], views: Sequence[Worlds], signs: Signs | None = None
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the quantities of several views of the same two worlds, whose errors are independent given the units.

    The bounds on PIU are those of :mod:`pyrofair.effects.bounds`, free of inward bias: a lower end around a
    true one of 0 is negative as often as not. ``piu_double_disagreement``, twice the disagreement
    given the units, is an upper bound on PIU too. ``signs`` are those of the original views in a bootstrap replicate.
    """
    pairs = [*zip(scores, views, strict=True)]
    means = [unit_means(one, worlds) for one, worlds in pairs]
    p0, p1 = (float(np.mean([worlds[i].weight @ one[i] for one, worlds in pairs])) for i in (0, 1))
    values = {"p_y0": p0, "p_ypi": p1, "mean_unfair_effect": p1 - p0}
    values["piu_paper_bound"] = 2.0 * (p0 + p1 - 2.0 * p0 * p1)
    values["piu_lower"], values["piu_upper"] = unit_ends(means, signs or choose_signs(means))
    values["piu_double_disagreement"] = 2.0 * unit_disagreement(means)
    return values, _notes(values)


def _notes(values: Mapping[str, float]) -> dict[str, str]:
    return {name: note for name, value in values.items() if (note := note_on(name, value))}


Bootstrap = Literal["bayesian", "multinomial"]
AllSigns = dict[tuple[str, Rule], Signs]
"""For each model and decisions the sides of the kinks on which units are."""

OUTCOME = "outcome"
"""The label of the source for scores that are an outcome, beside one for predictions."""
GROUPED = ("p_y0", "p_ypi", "mean_unfair_effect")


@dataclass(frozen=True)
class Estimator:
    """Estimates of every quantity of every model, on the n audited rows or on resampled ones.

    Sources and the views of their worlds go by label; there are none if no world can be made. Further ``thresholds``
    are estimated from the audited source alone. Replicates refit the ``sources``, and resample ``units``, of which
    audited and fitted rows are: a row that is both has one weight in a replicate.
    """

    judged: JudgedModels
    rows: AuditedRows
    threshold: float
    thresholds: tuple[float, ...]
    sources: Mapping[str, Any]
    worlds: Mapping[str, Views]
    units: Units

    @cached_property
    def scored(self) -> dict[tuple[str, str], tuple[tuple[Scores, Scores], ...]]:
        """For each source and each model that it serves the scores of both worlds' rows, view by view."""
        return {
            (label, model.name): tuple(self._score(model, worlds) for worlds in views)
            for label, views in self.worlds.items()
            for model in self.judged.models
            if label == self.label_of(model.name) or (label not in (AUDITED, OUTCOME) and not model.is_scores)
        }

    @cached_property
    def signs(self) -> AllSigns:
        """For each model and decisions the sides of the kinks on which units are, which replicates keep."""
        return self._signs(self.worlds.get(AUDITED, ()))

    @cached_property
    def redraws_units(self) -> bool:
        """Whether a replicate has other units than these."""
        base = self.sources[AUDITED]
        return isinstance(base, SampleSplit) and base.redraws_units(self.rows.table)

    def label_of(self, model: str) -> str:
        """Return the label of the source whose worlds serve a model."""
        return OUTCOME if OUTCOME in self.worlds and model in self.judged.outcomes else AUDITED

    def point(self) -> tuple[dict[Key, float], dict[Key, str]]:
        """Return the estimates on the rows at hand, and notes on them."""
        values = self._observed(self.rows.weight)
        notes: dict[Key, str] = {}
        for label, views in self.worlds.items():
            found, noted = self._causal(label, views, self.signs)
            values, notes = values | found, notes | noted
        return values, notes

    def refits(self, draws: Sequence[Draw], bootstrap: Bootstrap) -> list[Any]:
        """Return the source fitted again for each draw, or its error, if it does several at once; None otherwise."""
        if not self.refits_together:
            return [None] * len(draws)
        base: Any = self.sources[AUDITED]
        # A draw's generator moves on: what is drawn again with the estimates must come from the same state.
        return [*base.refits([replace(draw).both(self.units, bootstrap)[1] for draw in draws])]

    @property
    def refits_together(self) -> bool:
        """Whether the source fits several replicates at once."""
        base = self.sources.get(AUDITED)
        return isinstance(base, Refittable) and hasattr(base, "refits")

    def resampled(self, draw: Draw, bootstrap: Bootstrap, refitted: Any = None) -> dict[Key, float] | str:
        """Return the estimates on resampled rows, or why they cannot be made; of a source fitted to them, if given."""
        base: Any = self.sources.get(AUDITED)
        counts, fitted_counts = draw.both(self.units, bootstrap)
        weight, table = self.rows.weight * counts, self.rows.table
        values = self._observed(weight)
        if base is None:
            return values
        try:
            if isinstance(refitted, Exception):
                raise refitted
            if isinstance(base, Refittable):
                base = base.refit(fitted_counts) if refitted is None else refitted
            elif all(world.unit is not None for pair in self.worlds[AUDITED] for world in pair):
                factor = draw.counts(self.worlds[AUDITED][0][0].units, bootstrap, first=len(counts))
                views = tuple((one.reweighted(factor), other.reweighted(factor)) for one, other in self.worlds[AUDITED])
                return values | self._causal(AUDITED, views, self.signs)[0]
            single = [label for label in self.sources if label not in (AUDITED, OUTCOME)]
            seed = int(draw.random.integers(2**31))
            sources = {AUDITED: base, **(base.by_group(single) if single else {})}
            if OUTCOME in self.sources:
                sources[OUTCOME] = self.sources[OUTCOME].refit(fitted_counts)
            for label, source in sources.items():
                views = make_views(source, table, weight, seed, self.worlds[label])
                signs = self.signs
                if self.redraws_units:
                    signs = self._signs(make_views(source.with_first_mechanisms(), table, weight, seed))
                values |= self._causal(label, views, signs)[0]
        except (DataError, PositivityError) as error:  # of these rows; any other is a fault, and no failed replicate
            return str(error)
        return values

    def _observed(self, weight: NDArray[np.float64]) -> dict[Key, float]:
        """Return the rates and the accuracy of each model on the audited rows, weighted by (n,)."""
        values: dict[Key, float] = {}
        outcome = np.full(len(weight), -1) if self.rows.outcome is None else self.rows.outcome
        known = outcome >= 0
        judged = weight[known]
        base_rate = _mean(outcome[known], judged) if judged.any() else np.nan
        for model in self.judged.models:
            for rule in model.rules_of((*DECISIONS, *self.thresholds)):
                decided = decide(self.judged.observed[model.name], rule, self.threshold)
                found = {"positive_rate": _mean(decided, weight)}
                if rule != "score" and judged.any():
                    right = _mean((decided == outcome)[known], judged)
                    found |= {"accuracy": right, "majority_rate": max(base_rate, 1.0 - base_rate)}
                values |= {Key(AUDITED, model.name, rule, name): each for name, each in found.items()}
        return values

    def _causal(self, label: str, views: Views, signs: AllSigns) -> tuple[dict[Key, float], dict[Key, str]]:
        """Return the quantities of the worlds of each model that a source serves, and notes on them."""
        values: dict[Key, float] = {}
        notes: dict[Key, str] = {}
        under = AUDITED if label == OUTCOME else label
        for of, decided in self._decisions(label, views).items():
            several = len(views) > 1
            found, noted = measure_views(decided, views, signs[of]) if several else measure(decided[0], views[0])
            keys = {quantity: Key(under, *of, quantity) for quantity in (found if under == AUDITED else GROUPED)}
            values |= {key: found[quantity] for quantity, key in keys.items()}
            notes |= {key: noted[quantity] for quantity, key in keys.items() if quantity in noted}
        return values, notes

    def _signs(self, views: Views) -> AllSigns:
        if len(views) < 2:
            return {}
        return {
            key: choose_signs([unit_means(one, worlds) for one, worlds in zip(decided, views, strict=True)])
            for key, decided in self._decisions(AUDITED, views).items()
        }

    def _decisions(self, label: str, views: Views) -> dict[tuple[str, Rule], tuple[WorldScores, ...]]:
        """Return for each model and decisions those of the views' rows; unchanged rows are not scored again."""
        # Weighted rows stay the same, drawn ones do not.
        same = [
            all(one.rows is other.rows or one.rows.equals(other.rows) for one, other in zip(now, then, strict=True))
            for now, then in zip(views, self.worlds[label], strict=True)
        ]
        found: dict[tuple[str, Rule], tuple[WorldScores, ...]] = {}
        rules: tuple[Rule, ...] = (*DECISIONS, *(self.thresholds if label in (AUDITED, OUTCOME) else ()))
        for model in self.judged.models:
            if (label, model.name) not in self.scored:
                continue
            scores = [
                old if unchanged else self._score(model, worlds)
                for old, unchanged, worlds in zip(self.scored[label, model.name], same, views, strict=True)
            ]
            for rule in model.rules_of(rules):
                of = partial(decide, decisions=rule, threshold=self.threshold)
                found[model.name, rule] = tuple((of(one), of(other)) for one, other in scores)
        return found

    def _score(self, model: AuditedModel, worlds: Worlds) -> tuple[Scores, Scores]:
        one, other = (model.world(world, self.judged.observed[model.name]) for world in worlds)
        return one, other


def make_views(
    source: Any, table: pd.DataFrame, weight: NDArray[np.float64], seed: int | None, like: Views | None = None
) -> Views:
    """Return the worlds of a source once, or in several views if it splits its rows or its units have many draws."""
    if isinstance(source, SampleSplit):
        return source.views(df=table, sample_weight=weight, random_state=seed, like=like)
    return split_draws(source.worlds(df=table, sample_weight=weight, random_state=seed))


def _mean(values: NDArray[Any], weight: NDArray[np.float64]) -> float:
    return float(weight @ values / weight.sum())


@dataclass(frozen=True)
class Units:
    """What a replicate resamples: the unit of each audited row (n,) and of each fitted row, among ``count``.

    They are ``grouped``, or rows, of which one that is both audited and fitted is one unit.
    """

    audited: NDArray[np.int64]
    fitted: NDArray[np.int64]
    count: int
    grouped: bool = False

    @classmethod
    def of_rows(cls, index: NDArray[np.int64], n_fitted: int) -> Units:
        """Return rows as units; ``index`` (n,) is the position of each among the fitted ones, -1 for others."""
        where, new = index.copy(), index < 0
        where[new] = n_fitted + np.arange(int(new.sum()))  # numbered after those
        return cls(where, np.arange(n_fitted), n_fitted + int(new.sum()))

    @classmethod
    def of_groups(cls, audited: NDArray[np.int64], fitted: NDArray[np.int64]) -> Units:
        """Return groups as units, by numbers of their labels."""
        _, code = np.unique(np.concatenate([audited, fitted]), return_inverse=True)
        return cls(code[: len(audited)], code[len(audited) :], int(code.max()) + 1, grouped=True)


@dataclass(frozen=True)
class Draw:
    """The weights of one replicate, and a generator for all else that it draws.

    Exponential weights, which make Dirichlet ones when divided by their sum (the Bayesian bootstrap), belong to the
    number of a row alone.
    """

    seed: int
    replicate: int

    @cached_property
    def random(self) -> np.random.Generator:
        """The generator."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(self.replicate,)))

    def counts(self, n: int, bootstrap: Bootstrap, first: int = 0) -> NDArray[np.float64]:
        """Return how often each of n rows counts, shape (n,), with sum n; they are numbered from ``first`` on."""
        if bootstrap == "multinomial":
            return self.random.multinomial(n, np.full(n, 1.0 / n)).astype(np.float64)
        drawn = keyed_exponentials(self.seed, self.replicate, first, first + n)
        return np.asarray(drawn * (n / drawn.sum()))

    def both(self, units: Units, bootstrap: Bootstrap) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return how often each audited row (n,) and each fitted row counts: as often as its unit."""
        n, n_fitted = len(units.audited), len(units.fitted)
        if bootstrap == "multinomial" and units.count == n + n_fitted:  # none is both
            return self.counts(n, bootstrap), self.counts(n_fitted, bootstrap) if n_fitted else np.empty(0)
        union = self.counts(units.count, bootstrap)
        counts, fitted = union[units.audited], union[units.fitted]
        if bootstrap == "bayesian":
            counts, fitted = counts * (n / counts.sum()), fitted * (n_fitted / (fitted.sum() or 1.0))
        return counts, fitted


@dataclass(frozen=True)
class Replicates:
    """Bootstrap replicates, a row each, with a column for each key, and why each of the others failed."""

    draws: pd.DataFrame
    failures: list[str]

    @property
    def tried(self) -> int:
        """The number of replicates that were tried."""
        return len(self.draws) + len(self.failures)

    @property
    def most_failed(self) -> bool:
        """Whether so many failed that the others make no interval."""
        return len(self.failures) > MAX_MISSING_SHARE * self.tried


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
    """Estimate the keys on resampled rows, ``n_boot`` times; an interrupt keeps what is done."""
    import torch

    done: list[dict[Key, float] | str] = []
    seed = seed_from(random_state)
    gradients, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def resampled(numbers: range) -> list[dict[Key, float] | str]:
        # These modes are a thread's own: a model must run in those of the caller in every thread.
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            draws = [Draw(seed, number) for number in numbers]
            refitted = estimator.refits(draws, bootstrap)
            return [estimator.resampled(draw, bootstrap, each) for draw, each in zip(draws, refitted, strict=True)]

    size = TOGETHER if estimator.refits_together else 1
    with threadpool_limits(1), progress_bar("bootstrap", total=n_boot, shown=progress) as bar:
        work = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(
            delayed(resampled)(range(first, min(first + size, n_boot))) for first in range(0, n_boot, size)
        )
        try:
            for each in work:
                done += each
                bar.update(len(each))
        except KeyboardInterrupt:
            pass
    columns = pd.MultiIndex.from_tuples(keys, names=Key._fields)
    rows = [[each[key] for key in columns] for each in done if not isinstance(each, str)]
    draws = pd.DataFrame(np.array(rows).reshape(len(rows), len(columns)), columns=columns)
    return Replicates(draws, [each for each in done if isinstance(each, str)])
