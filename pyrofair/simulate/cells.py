"""A cell of a study: a method fitted to rows of a scenario, of one size and seed, and what is measured of it."""

from __future__ import annotations

import contextlib
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import joblib
import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from pyrofair._cells import Cell, CellFolder, Failure, attempt
from pyrofair._random import isolated, one_thread
from pyrofair._validation import shown
from pyrofair.audits import audit
from pyrofair.effects.estimates import OF_WORLDS
from pyrofair.effects.scoring import Decisions, decide, positive_scores
from pyrofair.exceptions import DataError, PyrofairError
from pyrofair.simulate.methods import Method
from pyrofair.simulate.scenarios import Scenario
from pyrofair.sources import SEM, OneStep
from pyrofair.sources.truth import ScoreNoise

__all__ = ["Measure", "Measurement", "Plan", "Task", "run"]

Measure = Callable[[Any, pd.DataFrame, Scenario], float]
"""A measure of the user's: of the fitted model, test rows and the scenario, a number."""


class Task(NamedTuple):
    """Cells that share their rows: a scenario, size and seed, and the names and strengths of methods."""

    scenario: str
    n: int
    seed: int
    methods: tuple[tuple[str, float | None], ...]

    def cells(self) -> Iterator[dict[str, Any]]:
        """Yield the keys of the cells."""
        for name, strength in self.methods:
            yield {"scenario": self.scenario, "method": name, "strength": strength, "n": self.n, "seed": self.seed}


@dataclass(frozen=True)
class Measurement:
    """How models are measured; see :func:`pyrofair.simulate.study`."""

    test_size: int
    truth_size: int
    decisions: Decisions
    threshold: float
    score_noise: ScoreNoise
    coupling: Any
    audit: Any
    n_boot: int
    measures: Mapping[str, Measure]


@dataclass(frozen=True, eq=False)
class Plan:
    """What all cells need, sent to each worker: with ``fingerprints`` by name, and the place of finished cells."""

    scenarios: Mapping[str, Scenario]
    methods: Mapping[str, Method]
    measurement: Measurement
    fingerprints: Mapping[str, Mapping[str, str]]
    folder: CellFolder | None

    def __sizeof__(self) -> int:
        """Return more than the size from which joblib's Dask backend scatters an argument once, not with each task."""
        return 10_000

    def depends(self, key: Mapping[str, Any]) -> dict[str, str]:
        """Return the fingerprints of what a cell depends on."""
        return {kind: self.fingerprints[kind][key[kind]] for kind in ("scenario", "method")}

    @cached_property
    def sems(self) -> dict[str, SEM]:
        """The structural equation models of the scenarios, each read once where it is used."""
        return {
            name: SEM(each.program, each.unfair, unit="noise", coupling=self.measurement.coupling)
            for name, each in self.scenarios.items()
        }


class Seeds(NamedTuple):
    """Seeds of a cell: of the rows to fit to, the rows to test on, the units of the truth, and the fit."""

    train: int
    test: int
    truth: int
    fit: int

    @classmethod
    def of(cls, scenario: str, n: int, seed: int) -> Seeds:
        """Return seeds that depend on the name of the scenario, the size and the seed alone."""
        sequence = np.random.SeedSequence([zlib.crc32(scenario.encode("utf-8", "surrogatepass")), n, seed])
        return cls(*map(int, sequence.generate_state(4)))


class Rows:
    """The rows that the methods of a task share, each drawn when first used, and what is measured on them."""

    def __init__(self, plan: Plan, task: Task) -> None:
        self.plan, self.task, self.scenario = plan, task, plan.scenarios[task.scenario]
        self.seeds = Seeds.of(task.scenario, task.n, task.seed)

    @cached_property
    def train(self) -> pd.DataFrame:
        """The rows to fit to."""
        return self.scenario.draw(self.task.n, self.seeds.train)

    @cached_property
    def test(self) -> pd.DataFrame:
        """The rows to measure accuracy on, and to audit."""
        return self.scenario.draw(self.plan.measurement.test_size, self.seeds.test)

    @cached_property
    def source(self) -> Any:
        """The source of an audit, fitted to the rows audited, as an audit does with one that is not fitted."""
        asked = self.plan.measurement.audit
        made = OneStep(self.scenario.unfair, random_state=self.seeds.fit) if asked is True else asked(self.scenario)
        return made.fit(self.test)

    def measure(self, key: Mapping[str, Any], warned: list[str]) -> pd.DataFrame:
        """Return what is measured of the method of a cell, a row; what is warned of is added to ``warned``."""
        method = self.plan.methods[key["method"]]
        if key["strength"] is not None:
            method = method.with_strength(key["strength"])
        with isolated(self.seeds.fit), warnings.catch_warnings(record=True) as caught:  # threads wait here
            warnings.simplefilter("always")
            try:
                model = method.fit(self.train.copy(), self.scenario, self.seeds.fit)
                found = self._measured(key["method"], model, warned)
            finally:
                texts = (f"{each.category.__name__}: {each.message}" for each in caught)
                warned.extend(text for text in dict.fromkeys(texts) if text not in warned)
        return pd.DataFrame({name: [value] for name, value in found.items()})

    def _measured(self, name: str, model: Any, warned: list[str]) -> dict[str, float]:
        how, graph, test = self.plan.measurement, self.scenario.graph, self.test
        decided = decide(positive_scores(name, model, test, graph, graph.input_columns), how.decisions, how.threshold)
        positive = (test[graph.outcome_column] == graph.positive).to_numpy()
        right = np.where(positive, decided, 1.0 - decided)
        truth = self.plan.sems[self.task.scenario].truth(
            model,
            n=how.truth_size,
            random_state=self.seeds.truth,
            decisions=how.decisions,
            threshold=how.threshold,
            score_noise=how.score_noise,
        )
        found = {
            "accuracy": float(right.mean()),
            "accuracy_error": float(right.std() / np.sqrt(len(right))),
            "positive_rate": float(decided.mean()),
            "majority_rate": float(max(positive.mean(), 1.0 - positive.mean())),
        }
        for quantity in ("mean_unfair_effect", "piu", "conditional_sd"):
            estimate = getattr(truth, quantity)
            found |= {quantity: float(estimate.value), f"{quantity}_error": float(estimate.error)}
        if how.audit:
            found |= self._estimated(model, warned)
        return found | {
            name: _number(name, measure(model, test.copy(), self.scenario)) for name, measure in how.measures.items()
        }

    def _estimated(self, model: Any, warned: list[str]) -> dict[str, float]:
        """Return the estimates of an audit on test rows, NaN with a warning where it refuses."""
        how, seed = self.plan.measurement, self.seeds.fit
        names = [f"estimated_{name}{end}" for name in OF_WORLDS for end in ("", "_low", "_high")]
        settings: dict[str, Any] = {"n_boot": how.n_boot, "threshold": how.threshold, "progress": False}
        try:
            table = audit({"model": model}, self.source, self.test, random_state=seed, **settings).table
        except PyrofairError as error:
            warned.append(f"audit: {type(error).__name__}: {error}")
            return dict.fromkeys(names, np.nan)
        table = table[table["decisions"] == how.decisions].set_index("quantity")
        columns = table.reindex(list(OF_WORLDS))[["estimate", "lower", "upper"]].to_numpy(np.float64)
        return dict(zip(names, columns.ravel().tolist(), strict=True))


def run(plan: Plan, tasks: list[Task]) -> Iterator[Cell | Failure]:
    """Yield the results of cells, each kept in the folder if there is one; what another process has kept is read."""
    for task in tasks:
        rows = Rows(plan, task)
        for key in task.cells():
            said: dict[str, Any] = {"depends": plan.depends(key), "warnings": []}  # filled by the cell
            # A method that uses joblib would wait for workers that wait for it.
            with one_thread(), threadpool_limits(1), joblib.parallel_config("sequential"):
                yield _result(plan, key, partial(rows.measure, key, said["warnings"]), said)


def _result(
    plan: Plan, key: Mapping[str, Any], make: Callable[[], pd.DataFrame], said: dict[str, Any]
) -> Cell | Failure:
    if plan.folder is None:
        return attempt(key, make, said)
    found = plan.folder.read(key)
    if isinstance(found, Cell) and found.about.get("depends") == said["depends"]:
        return found
    result = attempt(key, make, said)
    with contextlib.suppress(OSError):  # where a worker cannot write, the caller does
        plan.folder.write(result)
    return result


def _number(name: str, value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise DataError(f"The measure {name!r} returned {shown(value)}, which is no number.") from None
