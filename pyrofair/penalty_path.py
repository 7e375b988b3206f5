"""What does less unfairness cost? One classifier fitted along a path of penalty strengths."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.util import hash_pandas_object
from sklearn.base import clone
from torch import nn
from tqdm.auto import tqdm

from pyrofair._validation import require_flag, require_instance, require_integer, require_real, shown
from pyrofair.audit_tables import mean_by_strength
from pyrofair.classifiers import PenalizedClassifier
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph import CausalGraph
from pyrofair.measures import DECISIONS, AuditedModel, Decisions, decide, measure, measure_views
from pyrofair.paths import UnfairPaths
from pyrofair.plots import plot_trade_off
from pyrofair.potential_outcomes import PotentialOutcomes
from pyrofair.replicates import Views, make_views
from pyrofair.tables import feature_columns, read_outcome, read_table, require_aligned
from pyrofair.training import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PenaltyPath", "penalty_path"]

SUMMARISED = ("accuracy", "positive_rate", "mean_unfair_effect", "piu_lower", "piu_upper", "bimodal")
Row = dict[str, Any]
Step = tuple[list[Row], nn.Module]
"""The rows of the table for one strength, and the module fitted there."""


@dataclass(frozen=True, eq=False, repr=False)
class PenaltyPath:
    """The result of :func:`penalty_path`; print it for a summary.

    Attributes
    ----------
    table : DataFrame
        A row for each strength, seed and kind of decisions, with accuracy, majority_rate, positive_rate, p_y0, p_ypi,
        mean_unfair_effect, piu_paper_bound, piu_lower, piu_upper (and piu_double_disagreement for a source whose units
        are known by draws or learned laws). A bound is NaN where an estimate left [0, 1].
    unfinished : dict
        After an interrupt: for the seed that it struck, the module fitted last, from which ``resume`` goes on.
    fingerprint : dict
        Hashes of what it was made of: ``resume`` goes on only with the same.
    """

    table: pd.DataFrame
    unfinished: Mapping[int, nn.Module] = field(default_factory=dict)
    fingerprint: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.table.empty:
            return "Penalty path: no strength was finished."
        means = self.summary().filter(items=SUMMARISED)
        lines = [
            f"Penalty path: means over {self.table['seed'].nunique()} seed(s) by strength, thresholded decisions.",
            means.round(3).to_string(),
        ]
        if means["bimodal"].any():
            lines.append("bimodal: the seeds fall into two kinds of solution there; look at .table, not at the mean.")
        if self.unfinished:
            lines.append("Unfinished: pass it as resume=... to go on.")
        return "\n".join(lines)

    def __repr__(self) -> str:
        if self.table.empty:
            return "<PenaltyPath with no strength finished>"
        strengths, seeds = self.table["strength"].nunique(), self.table["seed"].nunique()
        return f"<PenaltyPath of {strengths} strength(s) and {seeds} seed(s); print it for a summary>"

    def plot(self, decisions: Decisions = "threshold") -> Figure:
        """Draw the trade-off (the paper's figure 3)."""
        return plot_trade_off(self.table, decisions)

    def summary(self, decisions: Decisions = "threshold") -> pd.DataFrame:
        """Return means over seeds by strength, and whether the seeds fall into two kinds of solution.

        ``bimodal`` tells that positive rates of the seeds lie more than a half apart: a mean then describes none. A
        mean is NaN where the quantity of one seed is.
        """
        if decisions not in DECISIONS:
            raise DataError(f"decisions={decisions!r} is not known; it is 'threshold' or 'score'.")
        rows = self.table[self.table["decisions"] == decisions]
        rates = rows.groupby("strength")["positive_rate"]
        spread = rates.max() - rates.min()
        return mean_by_strength(rows.drop(columns=["decisions", "seed"])).assign(bimodal=spread > 0.5)

    def select(self, quantity: str = "piu_upper", *, at_most: float, decisions: Decisions = "threshold") -> float:
        """Return the strength with the best mean accuracy among those whose mean quantity is small enough.

        Parameters
        ----------
        quantity
            A column of the table; its absolute value counts.
        at_most
            The largest value allowed.
        decisions
            ``"threshold"`` or ``"score"``.

        Raises
        ------
        DataError
            If none is small enough.
        """
        means = self.summary(decisions)
        if quantity not in means.columns.drop("bimodal"):
            raise DataError(f"{quantity!r} is not in the table; it has {', '.join(means.columns.drop('bimodal'))}.")
        size = means[quantity].abs()
        allowed = means[size <= at_most]
        if allowed.empty:
            smallest = "none could be estimated"
            if size.notna().any():
                smallest = f"the smallest is {size.min():.3g}, at strength {size.idxmin():g}"
            raise DataError(f"No strength brings {quantity} to {at_most:g}; {smallest}. Fit stronger penalties.")
        place = int(allowed["accuracy"].argmax())
        best = float(allowed.index[place])
        if allowed["bimodal"].iloc[place]:
            warnings.warn(
                f"At strength {best:g} the seeds fall into two kinds of solution, and a mean describes neither; "
                "look at the table.",
                PyrofairWarning,
                stacklevel=2,
            )
        return best


def penalty_path(
    classifier: PenalizedClassifier,
    X: pd.DataFrame,
    y: Any,
    *,
    strengths: float | Sequence[float] = tuple(np.linspace(0.0, 2.0, 9)),
    seeds: int | Sequence[int] = 1,
    test: tuple[pd.DataFrame, Any] | None = None,
    threshold: float = 0.5,
    progress: bool = True,
    resume: PenaltyPath | None = None,
) -> PenaltyPath:
    """Fit a classifier at each strength, from the strongest down, each start from the one before.

    The paper's objective has two basins at middling strengths, and a cold start there ends in the worse one. Strength 0
    starts cold, as plain training does. Source and encoder are fitted once a seed.

    Parameters
    ----------
    classifier
        The classifier, with its source and penalty; it is cloned, and its ``strength`` is not used.
    X, y
        Training rows (n) and their outcomes.
    strengths
        The strengths, none negative, or a single one.
    seeds
        The seeds, or how many of them: 0, 1, ...
    test
        Rows and outcomes to measure on; by default the training rows.
    threshold
        A decision is positive where the score exceeds it.
    progress
        Whether a bar is shown.
    resume
        The result of an interrupted call with the same classifier, data and strengths: what it finished is kept, and
        the rest gives the same numbers as a call that was not interrupted.

    Returns
    -------
    PenaltyPath
        After an interrupt, that of the strengths and seeds that were finished, with a warning.

    Raises
    ------
    DataError
        If the classifier has no source, a strength is negative, ``test`` is no pair, or ``resume`` was made with other
        strengths, settings or data; nothing has been fitted then.

    References
    ----------
    Chikahara et al. (2021), section 5, figure 3.
    """
    if not isinstance(classifier, PenalizedClassifier) or not isinstance(classifier.source, PotentialOutcomes):
        raise DataError(
            f"classifier={shown(classifier)} must be a classifier with a source: "
            "PenalizedClassifier(source=IPW(unfair))."
        )
    if test is not None and not (isinstance(test, tuple | list) and len(test) == 2):
        raise DataError(f"test={shown(test)} must be a pair (X, y), rows and their outcomes, or None.")
    require_real("threshold", threshold, least=0.0, below=1.0)
    require_flag("progress", progress)
    if resume is not None:
        require_instance("resume", resume, PenaltyPath, "what an interrupted penalty_path returned, or None")
    order = _order(strengths)
    wanted = _seeds(seeds)
    rows, unfinished = _resumed(resume, order)
    finished = _finished(rows)
    # Measuring on unfit rows would fail only once the first strength is fitted.
    graph = classifier.source.unfair.graph
    measured_on = _Measured.on(graph, *((X, y) if test is None else test), threshold)
    fingerprint = _settings(classifier, graph) | {
        "training data": _digest(graph, X, y),
        "test set": _digest(graph, measured_on.table, measured_on.outcome),
        "threshold": repr(float(threshold)),
    }
    if resume is not None:
        _require_same(resume.fingerprint, fingerprint)
    total = sum(len(order) - len(finished.get(seed, [])) for seed in wanted)
    with tqdm(total=total, desc="penalty path", disable=not progress, leave=False) as bar:
        for seed in wanted:
            done = finished.get(seed, [])
            if len(done) == len(order):
                continue
            try:
                for found, module in _steps(classifier, X, y, order[len(done) :], seed, measured_on, unfinished):
                    rows += found
                    unfinished[seed] = module
                    bar.update()
                unfinished.pop(seed)
            except KeyboardInterrupt:
                warnings.warn(
                    f"Interrupted in seed {seed}; what was finished is returned. Pass it as resume=... to go on.",
                    PyrofairWarning,
                    stacklevel=2,
                )
                break
    return PenaltyPath(pd.DataFrame(rows), unfinished, fingerprint)


def _order(strengths: float | Sequence[float]) -> list[float]:
    """Return the strengths, strongest first."""
    listed = (
        strengths if isinstance(strengths, Sequence | np.ndarray) and not isinstance(strengths, str) else [strengths]
    )
    values = [require_real("strengths", strength, least=0.0) for strength in listed]
    if not any(values):
        raise DataError(f"strengths={values} must hold a positive one and none that is negative or not finite.")
    return sorted(set(values), reverse=True)


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    if isinstance(seeds, Sequence | np.ndarray | range) and not isinstance(seeds, str):
        found = [require_integer("seeds", seed, least=0) for seed in seeds]
    else:
        found = list(range(require_integer("seeds", seeds)))
    if not found or len(set(found)) < len(found):
        raise DataError(f"seeds={seeds!r} must be a positive number of seeds, or seeds that differ.")
    return found


def _resumed(resume: PenaltyPath | None, order: list[float]) -> tuple[list[Row], dict[int, nn.Module]]:
    """Return the finished rows of an earlier call, and the modules of its unfinished seeds."""
    if resume is None:
        return [], {}
    rows: list[Row] = [
        dict(zip(map(str, resume.table), row, strict=True)) for row in resume.table.itertuples(index=False)
    ]
    for seed, done in _finished(rows).items():
        if done != order[: len(done)] or (len(done) < len(order) and seed not in resume.unfinished):
            raise DataError(
                f"resume holds the strengths {done} for seed {seed}, which are no beginning of {order}; go on with the "
                "strengths of the call that was interrupted."
            )
    return rows, dict(resume.unfinished)


def _settings(classifier: PenalizedClassifier, graph: CausalGraph) -> dict[str, str]:
    """Return hashes of the settings of classifier, source and penalty, without those that a path sets itself."""
    found = {"classifier": "", "source": str(graph), "penalty": ""}
    for name, value in sorted(classifier.get_params().items()):
        if name not in ("strength", "random_state", "progress"):
            what = name.split("__")[0]
            found[what if what in found else "classifier"] += f"{name}={_show(value)}\n"
    return {name: str(joblib.hash(text)) for name, text in found.items()}


def _show(value: Any) -> str:
    """Return a value as text that another process would give too; of a function, its code."""
    if isinstance(value, UnfairPaths):  # its repr names the first paths only
        return f"{value.paths.states} {value.swapped}"
    code = getattr(value, "__code__", None)
    text = repr(value) if code is None else f"{value!r} {code.co_code!r} {code.co_consts!r} {code.co_names!r}"
    return re.sub(r" at 0x[0-9A-Fa-f]+", "", text)


def _digest(graph: CausalGraph, table: pd.DataFrame, outcome: Any) -> str:
    """Return a hash of the rows that a path reads, and of their outcomes."""
    known = feature_columns(graph)
    rows = read_table(table, [column for column in known if column in getattr(table, "columns", ())], what="X")
    hashes = [hash_pandas_object(each).to_numpy() for each in (rows, pd.Series(np.ravel(outcome)))]
    return str(joblib.hash([list(rows), *hashes]))


def _require_same(then: Mapping[str, str], now: Mapping[str, str]) -> None:
    other = [name for name, value in now.items() if then.get(name) != value]
    if other:
        raise DataError(
            f"resume was made with another {', another '.join(other)}; go on with that of the call that was "
            "interrupted, or start anew without resume."
        )


def _finished(rows: list[Row]) -> dict[int, list[float]]:
    """Return the finished strengths of each seed, in order."""
    found: dict[int, list[float]] = {}
    for row in rows:
        done = found.setdefault(row["seed"], [])
        if row["strength"] not in done:
            done.append(row["strength"])
    return found


@dataclass(frozen=True)
class _Measured:
    """The rows that a path is measured on, and their outcomes (n,) in 0 and 1."""

    graph: CausalGraph
    table: pd.DataFrame
    outcome: NDArray[np.int8]
    threshold: float

    @classmethod
    def on(cls, graph: CausalGraph, table: pd.DataFrame, outcome: Any, threshold: float) -> _Measured:
        columns = feature_columns(graph)
        table = read_table(table, columns, what="the table to measure on")
        require_aligned(table, outcome)
        return cls(graph, table, read_outcome(outcome, graph.positive)[0], threshold)

    def views(self, source: Any, seed: int) -> Views:
        """Return the worlds of a fitted source on these rows, as an audit would have them."""
        return make_views(source, self.table, np.ones(len(self.table)), seed)

    def rows(self, model: PenalizedClassifier, views: Views, strength: float, seed: int) -> list[Row]:
        """Return what is measured of a fitted model, a row for each kind of decisions."""
        audited = AuditedModel("the classifier", model, self.graph, tuple(self.graph.input_columns))
        observed = audited.observed(self.table)
        scored = [(audited.world(one, observed), audited.world(other, observed)) for one, other in views]
        base_rate = float(self.outcome.mean())
        found = []
        for kind in DECISIONS:
            decided = [
                (decide(one, kind, self.threshold), decide(other, kind, self.threshold)) for one, other in scored
            ]
            found.append(
                {
                    "strength": strength,
                    "seed": seed,
                    "decisions": kind,
                    "accuracy": float((decide(observed, "threshold", self.threshold) == self.outcome).mean()),
                    "majority_rate": max(base_rate, 1.0 - base_rate),
                    "positive_rate": float(decide(observed, kind, self.threshold).mean()),
                    **(measure_views(decided, views) if len(views) > 1 else measure(decided[0], views[0]))[0],
                }
            )
        return found


def _steps(
    classifier: PenalizedClassifier,
    X: pd.DataFrame,
    y: Any,
    strengths: Sequence[float],
    seed: int,
    measured_on: _Measured,
    unfinished: Mapping[int, nn.Module],
) -> Iterator[Step]:
    """Fit and measure strength after strength, starting from the module of an unfinished seed if there is one."""
    strongest = strengths[0] or 1.0  # strength 0 alone may be left, but the source is wanted all the same
    model = clone(classifier).set_params(random_state=seed, strength=strongest, progress=False)
    problem = model.prepare(X, y)
    module = unfinished[seed] if seed in unfinished else model.new_module(problem)
    source: Any = model.source_
    views = measured_on.views(source, seed)
    for strength in strengths:
        model.strength = strength
        start = copy.deepcopy(module) if strength > 0.0 else model.new_module(problem)
        module = model.module_ = train(start, problem, model.penalty, strength, model.schedule())
        yield measured_on.rows(model, views, strength, seed), module
