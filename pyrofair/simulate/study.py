"""Studies: methods x sizes x seeds on scenarios with known truth, resumable, in one process or many."""

from __future__ import annotations

import math
import os
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set, Sized
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import cycle, islice, product
from typing import Any

import joblib
import numpy as np
import pandas as pd
from joblib.parallel import get_active_backend
from matplotlib.figure import Figure

from pyrofair._cells import Cell, CellFolder, Failure, Key, cell_name
from pyrofair._figures import COLOURS, LEGEND, MARKERS, TEXT, finish, in_percent, make_figure
from pyrofair._progress import progress_bar
from pyrofair._validation import (
    listed,
    optional,
    require_callable,
    require_choice,
    require_flag,
    require_instance,
    require_integer,
    require_jobs,
    require_names,
    require_real,
    require_units,
    shown,
)
from pyrofair._version import __version__
from pyrofair._workers import delayed
from pyrofair.audits.display import table_fragment
from pyrofair.effects.estimates import OF_WORLDS
from pyrofair.effects.scoring import DECISIONS, Decisions
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph import UnfairPaths
from pyrofair.programs.couplings import Coupling, require_couplings
from pyrofair.simulate.cells import Measure, Measurement, Plan, Task, run
from pyrofair.simulate.fingerprints import fingerprint
from pyrofair.simulate.methods import Method, as_method
from pyrofair.simulate.scenarios import SCENARIOS, Scenario, scenario
from pyrofair.sources import SEM
from pyrofair.sources.truth import DecisionRule, ScoreNoise

__all__ = ["Study", "study"]

KEY = ("scenario", "method", "strength", "n", "seed")
MEASURED = ("accuracy", "positive_rate", "majority_rate", "mean_unfair_effect", "piu", "conditional_sd")
DIED = frozenset({"BrokenExecutor", "KilledWorker", "WorkerCrashedError"})
LOST = DIED | {"CancelledError", "FutureCancelledError"}
"""The errors, by name, with which backends of joblib report that a process has died, and what it held is lost."""
PATIENCE = 3
"""After so many losses a few cells are computed one by one, to find one that ends its process."""
ALONE = 8
"""How many."""
FEW_SIZES = 2
"""So many sizes are no curve: their points are not joined."""
MOST_SHOWN = 8
"""The most lines of each kind in the short report, which is about the largest size."""
MORE = "More: .details(), .summary(), .table, .plot()."
SHARES = {
    "accuracy": "accuracy, %",
    "positive_rate": "positive rate, %",
    "majority_rate": "majority class, %",
    "mean_unfair_effect": "true mean unfair effect, points",
    "piu": "true PIU, %",
}
"""The titles of axes of shares; other quantities have their own units."""


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """The result of :func:`study`; print it for a summary.

    Attributes
    ----------
    table : DataFrame
        A row for each finished cell: scenario, method, strength (NaN where the strengths of the study play no part),
        n, seed; accuracy, positive_rate and majority_rate on test rows; the truth of the model by the program,
        mean_unfair_effect, piu and conditional_sd; with a Monte Carlo standard error ``..._error``, those of a study's
        own measures apart. With ``audit``, what is estimated on test rows, ``estimated_piu_upper`` and the like, with
        an interval from ``..._low`` to ``..._high``. Then the measures, and the seconds that the cell took.
    failures : DataFrame
        A row for each cell that ended in an error: scenario, method, strength, n, seed, error, traceback, seconds.
    warnings : DataFrame
        A row for each warning of a cell: scenario, method, strength, n, seed, warning.
    unfinished : int
        The number of cells that were not computed, after an interrupt or the loss of workers.
    """

    table: pd.DataFrame
    failures: pd.DataFrame
    warnings: pd.DataFrame
    unfinished: int = 0

    @property
    def quantities(self) -> list[str]:
        """The columns of the table that are measured of a model."""
        uncertain = ("_error", "_low", "_high")
        return [name for name in self.table.columns[len(KEY) : -1] if not name.endswith(uncertain)]

    def summary(self) -> pd.DataFrame:
        """Return for each scenario, method, strength, size and quantity what it is over seeds.

        Columns: scenario, method, strength, n, quantity, mean, sd, error (the Monte Carlo standard error of the mean,
        sd / sqrt(count)), count (of the seeds with a value), failed (those without a result), lowest, median, highest:
        where these show two groups of solutions, the mean describes neither.
        """
        by = list(KEY[:-1])
        unnamed = ""  # no measure has this name
        long = self.table.melt([*KEY], self.quantities, "quantity", unnamed).dropna(subset=[unnamed])
        how = dict(mean="mean", sd="std", count="count", lowest="min", median="median", highest="max")  # noqa: C408
        named = {name: (unnamed, each) for name, each in how.items()}
        found = long.groupby([*by, "quantity"], sort=False, dropna=False).agg(**named)
        found.insert(2, "error", found["sd"] / np.sqrt(found["count"]))
        failed = self.failures[by].value_counts(sort=False, dropna=False).rename("failed").reset_index()
        found = found.reset_index().merge(failed, on=by, how="left")
        found["failed"] = found["failed"].fillna(0).astype(np.int64)
        return found[[*by, "quantity", "mean", "sd", "error", "count", "failed", "lowest", "median", "highest"]]

    def to_xarray(self) -> Any:
        """Return the table as an :class:`xarray.Dataset`: a variable for each of its columns.

        The dimensions are scenario, method, n and seed, and strength if the study has strengths: a method without a
        penalty has the same numbers at each. Cells without a result are NaN. As ``method`` is an argument of xarray's
        ``sel``, choose by ``sel({"method": "FIO"})``.
        """
        strengths = self.table["strength"].dropna().unique()
        plain = self.table[self.table["strength"].isna()].drop(columns="strength")
        table, dims = plain, [name for name in KEY if name != "strength"]
        if len(strengths):
            same = plain.merge(pd.DataFrame({"strength": strengths}), how="cross")
            table, dims = pd.concat([self.table.dropna(subset=["strength"]), same], ignore_index=True), [*KEY]
        found = table.set_index(dims).to_xarray()
        order = {name: list(dict.fromkeys(self.table[name])) for name in ("scenario", "method")}
        return found.reindex(order)

    def plot(self, quantities: Sequence[str] = ("accuracy", "piu")) -> Figure:
        """Draw means over seeds against the size, with two standard errors: a panel for each quantity and scenario."""
        names = require_names("quantities", quantities, "quantities", one=True)
        for name in names:
            require_choice("quantities", name, self.quantities)
        table, sizes = self.summary(), sorted(self.table["n"].unique())
        scenarios = list(dict.fromkeys(table["scenario"]))
        seeds = self.table["seed"].nunique()
        title = f"Means over {seeds} seed{'s' * (seeds != 1)}, with two standard errors, by training rows"
        figure = make_figure(3.6 + 3.6 * max(len(scenarios), 1), 1.4 + 2.6 * len(names), title)
        panels = figure.subplots(len(names), max(len(scenarios), 1), squeeze=False, sharex="col", sharey="row")
        named: list[Any] = list(table.groupby(["method", "strength"], sort=False, dropna=False).groups)
        styles = dict(zip(named, zip(cycle(COLOURS), cycle(MARKERS), strict=False), strict=False))
        for (row, name), (column, place) in product(enumerate(names), enumerate(scenarios)):
            axes = panels[row, column]
            chosen = table[(table["quantity"] == name) & (table["scenario"] == place)]
            for i, (key, (colour, marker)) in enumerate(styles.items()):
                method, strength = key
                same = chosen["strength"].isna() if pd.isna(strength) else chosen["strength"] == strength
                line = chosen[(chosen["method"] == method) & same]
                shift = 1.0 + 0.02 * (i - (len(styles) - 1) / 2.0)  # side by side, so that none covers another
                text = method if pd.isna(strength) else f"{method}, strength {strength:g}"
                axes.errorbar(shift * line["n"], line["mean"], 2.0 * line["error"].fillna(0.0), marker=marker, ms=5,
                              color=colour, label=text, ls="-" if len(sizes) > FEW_SIZES else "")  # fmt: skip
            axes.set_xscale("log")
            axes.set_xticks(sizes, [f"{each:,}" for each in sizes])
            axes.minorticks_off()
            axes.margins(x=0.3 if len(sizes) <= FEW_SIZES else 0.05)
            axes.set_xlabel("training rows" if row == len(names) - 1 else "")
            axes.set_ylabel("" if column else SHARES.get(name, name))
            axes.set_title("" if row else place, fontsize=TEXT)
            if name in SHARES:
                in_percent(axes.yaxis)
            finish(axes)
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, **(LEGEND | {"ncols": max(1, len(scenarios) + 1)}))
        return figure

    def __str__(self) -> str:
        largest = self.table[self.table["n"] == self.table["n"].max()]
        return "\n".join([*self._lines(largest, MOST_SHOWN), MORE])

    def details(self) -> str:
        """Return the means of every size, method and strength, and all that failed, in plain text."""
        return "\n".join(self._lines(self.table, None))

    def _lines(self, table: pd.DataFrame, most: int | None) -> list[str]:
        """Return the report about some cells of the table, at most so many lines of each kind."""
        lines = [f"Study: {len(self.table)} cell{'s' * (len(self.table) != 1)} finished{self._left()}."]
        if len(table):
            wide = replace(self, table=table).summary()
            wide = wide[wide["quantity"].isin(["accuracy", "mean_unfair_effect", "piu"])]
            text = [f"{row.mean:.3f} ± {row.error:.3f}" for row in wide.itertuples()]
            index = [name for name in KEY[:-1] if name != "strength" or wide["strength"].notna().any()]
            how: Any = {"columns": "quantity", "values": "shown", "aggfunc": "first", "sort": False, "dropna": False}
            wide = wide.assign(shown=text).pivot_table(index=index, **how).dropna(how="all").rename_axis(columns=None)
            lines += ["Means over seeds ± Monte Carlo standard errors; effects are true ones, by the program:"]
            lines += [wide.head(most or len(wide)).to_string(), *_more(wide, most)]
        if len(self.failures):
            errors = [*self.failures.groupby(["scenario", "method", "error"], sort=False)]
            lines += ["Failed, with tracebacks in .failures:"]
            lines += [f"  {len(rows)} of {place}, {name}: {error:.200}" for (place, name, error), rows in errors[:most]]
            lines += _more(errors, most)
        if len(self.warnings):
            lines += [f"{len(self.warnings)} warnings of cells are in .warnings."]
        return lines

    def _repr_html_(self) -> str:
        note = f"{len(self.table)} finished cells{self._left()}."
        return table_fragment("Study: over seeds", self.summary() if len(self.table) else pd.DataFrame(), note)

    def __repr__(self) -> str:
        return f"<Study of {len(self.table)} finished cells{self._left()}; print it for a summary>"

    def _left(self) -> str:
        failed = f", {len(self.failures)} failed" if len(self.failures) else ""
        return failed + (f", {self.unfinished} not computed" if self.unfinished else "")


def _more(found: Sized, most: int | None) -> list[str]:
    """Return how many lines are left out."""
    return [f"  and {len(found) - most} more"] if most is not None and len(found) > most else []


def study(
    scenarios: Any,
    methods: Any,
    sizes: int | Sequence[int] = 5_000,
    seeds: int | Sequence[int] = 10,
    *,
    strengths: Sequence[float] | None = None,
    test_size: int = 10_000,
    truth_size: int = 100_000,
    decisions: Decisions = "threshold",
    threshold: float = 0.5,
    score_noise: ScoreNoise = "shared",
    coupling: Coupling = "gumbel",
    audit: bool | Callable[[Scenario], Any] = False,
    n_boot: int = 0,
    measures: Mapping[str, Measure] | None = None,
    folder: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    retry: bool = True,
    n_jobs: int | None = None,
    progress: bool = True,
) -> Study:
    """Fit methods to rows drawn from scenarios, and measure each model by the truth of its scenario.

    A cell is one method fitted to ``n`` rows of one scenario with one seed. All methods of a scenario, size and seed
    have the same rows. The numbers of a cell depend on its scenario (the name seeds the rows), method, size and seed,
    and not on the order, the other cells, the number of workers or the caller's random state.

    Parameters
    ----------
    scenarios
        Names of the paper's (``"hiring"``, ``"additive"``, ``"latent"``), :class:`Scenario` objects, or a dictionary
        from names to these or to pairs ``(program, unfair)`` of a Pyro program and its unfair paths.
    methods
        Names (see :func:`method`), what :func:`method` returns, unfitted classifiers (cloned, with the seed in each of
        their ``random_state``), or functions ``(train, scenario, seed)`` that return a fitted model; a list, or a
        dictionary by name.
    sizes, seeds
        The numbers of rows to fit to; the seeds, or their number: 10 are the seeds 0 to 9.
    strengths
        Strengths of the penalty for each method that has one: named ones, classifiers with a source, functions with an
        argument ``strength``. By default each has its own.
    test_size, truth_size
        The number of rows that accuracy and rates are measured on, and that of the units of the truth.
    decisions, threshold, score_noise, coupling
        As in :meth:`pyrofair.SEM.truth` and :class:`pyrofair.SEM`.
    audit
        Whether effects are also estimated on the test rows, as :func:`pyrofair.audit` does: by
        :class:`pyrofair.OneStep`, or by the source that a function returns for a scenario, fitted to these rows.
    n_boot
        The bootstrap replicates of such an audit, for sources without influence values.
    measures
        Further measures by name: functions ``(model, test, scenario)`` that return a number.
    folder
        Where finished cells are kept. The same call with the same folder goes on where another ended, however that
        was; scenarios, methods, sizes, seeds and strengths may be added. By default results are kept in memory alone.
    overwrite
        Whether finished cells of other settings in the folder are deleted, and those of a changed method or scenario
        computed again. They are refused otherwise.
    retry
        Whether cells that failed before are tried again.
    n_jobs
        Processes, as joblib counts them. By default those of ``joblib.parallel_config``, whose backend is used in any
        case, Dask's or Ray's, too; one otherwise.
    progress
        Whether to show a bar with an estimate of the time that is left.

    Returns
    -------
    Study
        A cell that ends in an error is in ``failures``, with its traceback, and the rest goes on. After an interrupt,
        or the loss of workers, it is what was finished, with a warning.

    Raises
    ------
    DataError, GraphError
        Before any work: if a setting is unfit, a program does not fit its graph, or the folder holds cells of another
        study, or of a method or scenario that has changed (see :func:`pyrofair.simulate.fingerprints.fingerprint` for
        what is noticed).

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> found = study("hiring", {"logistic": LogisticRegression()}, 500, 2, truth_size=1_000, progress=False)
    >>> found.table[["scenario", "method", "n", "seed"]].values.tolist()
    [['hiring', 'logistic', 500, 0], ['hiring', 'logistic', 500, 1]]
    """
    places: dict[str, Scenario] = _named("scenarios", scenarios, (str, Scenario), _as_scenario)
    alone = hasattr(methods, "get_params") or callable(methods)
    fitted: dict[str, Method] = _named("methods", [methods] if alone else methods, (str, Method), as_method)
    rows = _integers("sizes", sizes, require_units)
    drawn = _seeds(seeds)
    if not isinstance(audit, bool | np.bool_):
        require_callable("audit", audit, "True, False, or a function of a scenario that returns a source")
    measurement = Measurement(
        test_size=require_units("test_size", test_size),
        truth_size=require_units("truth_size", truth_size),
        decisions=decisions,
        threshold=threshold,
        score_noise=score_noise,
        coupling=coupling,
        audit=audit,
        n_boot=require_integer("n_boot", n_boot, least=0),
        measures=_measures(measures),
    )
    require_choice("decisions", decisions, DECISIONS)
    DecisionRule(decisions, threshold, score_noise)
    require_couplings([coupling])
    for name, value in {"overwrite": overwrite, "retry": retry, "progress": progress}.items():
        require_flag(name, value)
    optional(require_jobs)("n_jobs", n_jobs)
    tried = None if strengths is None else _strengths(strengths)
    for each in places.values():
        each.draw(20, random_state=0)
        SEM(each.program, each.unfair, coupling=coupling).equations()
    marks = {
        "scenario": {name: fingerprint(each) for name, each in places.items()},
        "method": {name: fingerprint(each) for name, each in fitted.items()},
    }
    store = None if folder is None else CellFolder.claimed(folder, _run(measurement), overwrite=overwrite)
    plan = Plan(places, fitted, measurement, marks, store)
    chosen = tuple(
        (name, strength)
        for name, each in fitted.items()
        for strength in (tried if tried is not None and each.penalised else [None])
    )
    tasks = [Task(place, n, seed, chosen) for place in places for n in rows for seed in drawn]
    done = _Results(plan, [key for task in tasks for key in task.cells()])
    try:
        done.read(retry=retry, overwrite=overwrite)
        _compute(plan, tasks, done, n_jobs, progress=progress)
    finally:
        if store is not None:
            store.release()
    return done.study()


class _Results:
    """The results of a study by the names of cells, as they come."""

    def __init__(self, plan: Plan, keys: Sequence[Key]) -> None:
        self.plan = plan
        self.keys = {cell_name(key): key for key in keys}
        self.found: dict[str, Cell | Failure] = {}

    def read(self, *, retry: bool, overwrite: bool) -> None:
        """Read what is finished in the folder; cells of a changed method or scenario are a DataError."""
        folder = self.plan.folder
        if folder is None:
            return
        changed = Counter[tuple[str, str]]()
        for name, key in self.keys.items():
            present, result = folder.has(key), folder.read(key)
            if result is None and present:
                folder.path(key).unlink(missing_ok=True)  # it is damaged, which has been warned of
            if result is None or (isinstance(result, Failure) and retry):
                continue
            depends, before = self.plan.depends(key), result.about.get("depends", {})
            others = [(kind, key[kind]) for kind in depends if before.get(kind) != depends[kind]]
            if not others:
                self.found[name] = result
            elif overwrite:
                folder.path(key).unlink(missing_ok=True)
            else:
                changed.update(others)
        if changed:
            text = "; ".join(f"{count} of the {kind} {name!r}" for (kind, name), count in changed.items())
            raise DataError(
                f"The folder {str(folder.folder)!r} holds finished cells from before a change of source, globals, "
                f"closure or settings: {text}. Give what has changed another name, name another folder, or pass "
                "overwrite=True to compute these cells again."
            )

    def add(self, result: Cell | Failure) -> None:
        """Take a result; one that a worker wrote where this process cannot see it is written again."""
        folder = self.plan.folder
        if folder is not None and not folder.holds(result):
            folder.keep(result)
        self.found[cell_name(result.key)] = result

    def left(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks with the cells that are not done."""
        found = []
        for task in tasks:
            pairs = zip(task.methods, task.cells(), strict=True)
            if open_ := tuple(method for method, key in pairs if cell_name(key) not in self.found):
                found.append(task._replace(methods=open_))
        return found

    def study(self) -> Study:
        """Return the results as tables, in the order of the call."""
        measured = [f"{name}{end}" for name in MEASURED for end in ("", "_error")]
        columns = [name for name in measured if name not in ("positive_rate_error", "majority_rate_error")]
        if self.plan.measurement.audit:
            columns += [f"estimated_{name}{end}" for name in OF_WORLDS for end in ("", "_low", "_high")]
        columns += list(self.plan.measurement.measures)
        results = [self.found[name] for name in self.keys if name in self.found]
        cells = [each for each in results if isinstance(each, Cell)]
        tables = [{**each.key, **each.table.iloc[0].to_dict(), "seconds": each.about["seconds"]} for each in cells]
        failed = [
            {**each.key, "error": each.error, "traceback": each.traceback, "seconds": each.about["seconds"]}
            for each in results
            if isinstance(each, Failure)
        ]
        warned = [{**each.key, "warning": text} for each in results for text in each.about.get("warnings", [])]
        return Study(
            table=_table(tables, [*columns, "seconds"]),
            failures=_table(failed, ["error", "traceback", "seconds"]),
            warnings=_table(warned, ["warning"]),
            unfinished=len(self.keys) - len(results),
        )


def _table(rows: list[dict[str, Any]], columns: list[str]) -> pd.DataFrame:
    types = {"strength": np.float64, "n": np.int64, "seed": np.int64}
    return pd.DataFrame(rows, columns=[*KEY, *columns]).astype(types)


# -- computing --------------------------------------------------------------------------------------------------------


def _compute(plan: Plan, tasks: Sequence[Task], done: _Results, n_jobs: int | None, *, progress: bool) -> None:
    """Compute the cells that are left, in this process or by joblib's backend; what a lost worker leaves, once more."""
    bar = progress_bar("study", total=len(done.keys), shown=progress, initial=len(done.found), unit="cell")
    losses = 0
    with bar:
        try:
            while left := done.left(tasks):
                try:
                    for result in _results(plan, left, n_jobs):
                        done.add(result)
                        bar.update()
                    break
                except Exception as error:
                    if not _is_loss(error):
                        raise
                    losses += 1
                    _collect(done, left)
                    _warn(f"A worker was lost ({_first_line(error)}): its cells are computed again.")
                    if losses >= PATIENCE:
                        _compute_alone(plan, done.left(tasks), done, n_jobs)
                    bar.update(len(done.found) - bar.n)
        except (KeyboardInterrupt, _NoWorkersError) as error:
            _collect(done, tasks)
            why = "Interrupted" if isinstance(error, KeyboardInterrupt) else f"No worker is left ({error})"
            _warn(f"{why}: {len(done.found)} of {len(done.keys)} cells are finished.", plan)


class _NoWorkersError(Exception):
    """Cells cannot be computed, whichever they are."""


def _compute_alone(plan: Plan, tasks: Sequence[Task], done: _Results, n_jobs: int | None) -> None:
    """Compute the next few cells one by one: one whose worker dies again is a failure, and the others go on."""
    single = (task._replace(methods=(method,)) for task in tasks for method in task.methods)
    for task in islice(single, ALONE):
        started = time.perf_counter()
        try:
            for result in _results(plan, [task], n_jobs):
                done.add(result)
        except Exception as error:
            if not _is_loss(error):
                raise
            _collect(done, [task])
            if not done.left([task]):
                continue
            if not _is_loss(error, DIED):
                raise _NoWorkersError(_first_line(error)) from error
            key = next(task.cells())
            about = {"depends": plan.depends(key), "seconds": time.perf_counter() - started, "warnings": []}
            text = "".join(traceback.format_exception(error))
            done.add(Failure(key, f"Its process died, alone, too: {_first_line(error)}", text, about))


def _is_loss(error: Exception, names: Set[str] = LOST) -> bool:
    """Return whether an error of joblib's backends has one of the names, but not if a worker cannot load its task."""
    return "un-serialize" not in str(error) and not names.isdisjoint(each.__name__ for each in type(error).__mro__)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]:.200}"


def _warn(text: str, plan: Plan | None = None) -> None:
    if plan is not None and plan.folder is not None:
        text += " The same call goes on from there."
    warnings.warn(text, PyrofairWarning, stacklevel=4)


def _collect(done: _Results, tasks: Sequence[Task]) -> None:
    """Take what workers finished and wrote, and did not hand over."""
    folder = done.plan.folder
    for task in tasks:
        for key in task.cells():
            if folder is not None and cell_name(key) not in done.found and folder.has(key):
                result = folder.read(key)
                if isinstance(result, Cell) and result.about.get("depends") == done.plan.depends(key):
                    done.add(result)


def _results(plan: Plan, tasks: Sequence[Task], n_jobs: int | None) -> Iterator[Cell | Failure]:
    """Yield the results of tasks as they are finished."""
    backend, configured = get_active_backend()
    jobs = configured if n_jobs is None else n_jobs
    if jobs in (1, None) and type(backend).__module__ == "joblib._parallel_backends":
        yield from run(plan, list(tasks))
        return
    workers = joblib.effective_n_jobs(n_jobs)
    parts = math.ceil(4 * workers / len(tasks))
    parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    with closing(parallel(delayed(_run_all)(plan, part) for task in tasks for part in _parts(task, parts))) as work:
        for results in work:
            yield from results


def _run_all(plan: Plan, task: Task) -> list[Cell | Failure]:
    return list(run(plan, [task]))


def _parts(task: Task, parts: int) -> Iterator[Task]:
    """Yield a task in at most so many parts."""
    size = math.ceil(len(task.methods) / parts)
    for start in range(0, len(task.methods), size):
        yield task._replace(methods=task.methods[start : start + size])


# -- reading the call -------------------------------------------------------------------------------------------------


def _named(what: str, given: Any, single: tuple[type, ...], read: Callable[[str | None, Any], Any]) -> dict[str, Any]:
    """Return by name what a function of a label and a value makes of one value, a sequence or a dictionary."""
    if isinstance(given, Mapping):
        for name in given:
            if not isinstance(name, str) or not name:
                raise DataError(f"{what} has the name {shown(name)}: names are text.")
        pairs: list[tuple[str | None, Any]] = [*given.items()]
    else:
        values = None if isinstance(given, single) else listed(given)
        pairs = [(None, each) for each in ([given] if values is None else values)]
    if not pairs:
        raise DataError(f"{what}={shown(given)} names nothing to study.")
    made = [(label, read(label, each)) for label, each in pairs]
    names = [label or each.name for label, each in made]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise DataError(f"{what} has {', '.join(map(repr, twice))} more than once. Give a dictionary from names.")
    return {name: each for name, (_, each) in zip(names, made, strict=True)}


def _as_scenario(label: str | None, given: Any) -> Scenario:
    if isinstance(given, Scenario):
        return given
    if isinstance(given, str):
        require_choice("scenarios", given, tuple(SCENARIOS))
        return scenario(given)
    if label is not None and isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], UnfairPaths):
        require_callable(f"The program of the scenario {label!r}", given[0], "a Pyro program of the number of units")
        return Scenario(label, given[0], given[1].graph, given[1])
    raise DataError(
        f"The scenario {shown(label or given)} must be a name such as 'hiring', a Scenario, or in a dictionary from "
        "names a pair (program, unfair) of a Pyro program and its unfair paths."
    )


def _integers(name: str, given: Any, check: Callable[[str, Any], int]) -> list[int]:
    values = [given] if isinstance(given, int | np.integer) else listed(given)
    if values is None or isinstance(given, str | bytes | Mapping) or not values:
        raise DataError(f"{name}={shown(given)} must be an integer, or a list of them.")
    names = [f"{name}[{index}]" if len(values) > 1 else name for index in range(len(values))]
    return _once(name, given, [*map(check, names, values)])


def _seeds(given: Any) -> list[int]:
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        return list(range(require_integer("seeds", given)))
    return _integers("seeds", given, lambda name, value: require_integer(name, value, least=0, most=2**63 - 1))


def _strengths(given: Any) -> list[float]:
    values = None if isinstance(given, str | bytes | Mapping) else listed(given)
    if not values:
        raise DataError(f"strengths={shown(given)} must be a list of numbers, such as [0.5, 1.0].")
    found = [require_real(f"strengths[{i}]", each, least=0.0) for i, each in enumerate(values)]
    return _once("strengths", given, found)


def _once(name: str, given: Any, found: list[Any]) -> list[Any]:
    if len(set(found)) != len(found):
        raise DataError(f"{name}={shown(given)} holds a value more than once.")
    return found


def _measures(given: Any) -> dict[str, Measure]:
    if given is None:
        return {}
    require_instance("measures", given, Mapping, "a dictionary from names to functions (model, test, scenario)")
    taken = {*KEY, "quantity", "seconds", *MEASURED}
    for name, each in given.items():
        if not isinstance(name, str) or not name or name in taken or name.startswith("estimated_"):
            known = ", ".join(sorted(taken))
            raise DataError(f"measures has the name {shown(name)}: names are text, and none of {known}.")
        if name.endswith(("_error", "_low", "_high")):
            raise DataError(f"measures has the name {name!r}: _error, _low and _high end the names of uncertainties.")
        require_callable(f"measures[{name!r}]", each, "a function (model, test, scenario) that returns a number")
    return dict(given)


def _run(measurement: Measurement) -> dict[str, Any]:
    """Return the settings that all cells of a study depend on."""
    audit = measurement.audit
    text = bool(audit) if isinstance(audit, bool | np.bool_) else fingerprint(audit)
    measures = {name: fingerprint(each) for name, each in measurement.measures.items()}
    own = {"threshold": float(measurement.threshold), "audit": text, "measures": measures}
    return {"study": {"pyrofair": __version__, **vars(measurement), **own}}
