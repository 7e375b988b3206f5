"""What does less unfairness cost? One classifier fitted along a path of penalty strengths."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from tqdm.auto import tqdm

from pyrofair.classifiers import PenalizedClassifier
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.measures import DECISIONS, decide, measure, score_model
from pyrofair.plots import plot_trade_off
from pyrofair.tables import read_outcome, require_aligned
from pyrofair.training import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PenaltyPath", "penalty_path"]


@dataclass(frozen=True)
class PenaltyPath:
    """The result of :func:`penalty_path`.

    Attributes
    ----------
    table : DataFrame
        A row for each strength, seed and kind of decisions, with accuracy, majority_rate, positive_rate, p_y0, p_ypi,
        mean_unfair_effect, piu_paper_bound, piu_lower, piu_upper.
    """

    table: pd.DataFrame

    def plot(self, decisions: str = "threshold") -> Figure:
        """Draw the trade-off (the paper's figure 3)."""
        return plot_trade_off(self.table, decisions)

    def summary(self, decisions: str = "threshold") -> pd.DataFrame:
        """Return means over seeds by strength, and whether the seeds fall into two kinds of solution.

        ``bimodal`` tells that positive rates of the seeds lie more than a half apart: a mean then describes none.
        """
        rows = self.table[self.table["decisions"] == decisions]
        by_strength = rows.drop(columns=["decisions", "seed"]).groupby("strength")
        spread = by_strength["positive_rate"].agg(lambda rates: rates.max() - rates.min())
        return by_strength.mean(numeric_only=True).assign(bimodal=spread > 0.5)

    def select(self, quantity: str = "piu_upper", *, at_most: float, decisions: str = "threshold") -> float:
        """Return the strength with the best mean accuracy among those whose mean quantity is small enough.

        Raises
        ------
        DataError
            If none is small enough.
        """
        means = self.summary(decisions)
        if quantity not in means.columns:
            raise DataError(f"{quantity!r} is not in the table; it has {', '.join(means.columns)}.")
        allowed = means[means[quantity].abs() <= at_most]
        if allowed.empty:
            raise DataError(
                f"No strength brings {quantity} to {at_most:g}; the smallest is {means[quantity].abs().min():.3g}, at "
                f"strength {means[quantity].abs().idxmin():g}."
            )
        return float(allowed.index[int(allowed["accuracy"].argmax())])


def penalty_path(
    classifier: PenalizedClassifier,
    X: pd.DataFrame,
    y: Any,
    *,
    strengths: Sequence[float] = tuple(np.linspace(0.0, 2.0, 9)),
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
        The strengths, none negative.
    seeds
        The seeds, or how many of them: 0, 1, ...
    test
        Rows and outcomes to measure on; by default the training rows.
    threshold
        A decision is positive where the score exceeds it.
    progress
        Whether a bar is shown.
    resume
        The result of an interrupted call: its finished seeds are kept and not fitted again.

    Returns
    -------
    PenaltyPath
        After an interrupt, that of the seeds that were finished, with a warning.

    Raises
    ------
    DataError
        If the classifier has no source, or a strength is negative.

    References
    ----------
    Chikahara et al. (2021), section 5, figure 3.
    """
    if classifier.source is None:
        raise DataError("penalty_path needs a classifier with a source: PenalizedClassifier(source=IPW(unfair)).")
    order = sorted({float(strength) for strength in strengths}, reverse=True)
    if not order or order[-1] < 0 or order[0] == 0:
        raise DataError(f"strengths={list(strengths)} must hold a positive one and none that is negative.")
    wanted = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    rows: list[Any] = [] if resume is None else resume.table.to_dict("records")
    todo = [seed for seed in wanted if seed not in {row["seed"] for row in rows}]
    measured_on = (X, y) if test is None else test
    require_aligned(*measured_on)
    with tqdm(total=len(todo) * len(order), desc="penalty path", disable=not progress, leave=False) as bar:
        for seed in todo:
            try:
                rows += _one_seed(classifier, X, y, order, seed, measured_on, threshold, bar)
            except KeyboardInterrupt:
                warnings.warn(
                    f"Interrupted in seed {seed}; the finished seeds are returned. Pass them as resume=... to go on.",
                    PyrofairWarning,
                    stacklevel=2,
                )
                break
    return PenaltyPath(pd.DataFrame(rows))


def _one_seed(
    classifier: PenalizedClassifier,
    X: pd.DataFrame,
    y: Any,
    strengths: Sequence[float],
    seed: int,
    measured_on: tuple[pd.DataFrame, Any],
    threshold: float,
    bar: Any,
) -> list[dict[str, Any]]:
    model = clone(classifier).set_params(random_state=seed, strength=strengths[0], progress=False)
    problem = model.prepare(X, y)
    model.module_ = model.new_module(problem)
    graph = model.source_.unfair.graph
    table, outcomes = measured_on
    columns = graph.columns_of(node for node in graph.observed if node != graph.outcome)
    table = table[columns]
    target, _ = read_outcome(outcomes, graph.positive)
    worlds = model.source_.worlds(df=table, random_state=seed)
    found = []
    for strength in strengths:
        model.strength = strength
        start = copy.deepcopy(model.module_) if strength > 0 else model.new_module(problem)
        model.module_ = train(start, problem, model.penalty, strength, model.schedule())
        scored = score_model("the classifier", model, table, worlds, graph)
        decided = decide(scored.observed, "threshold", threshold)
        base_rate = float(target.mean())
        for kind in DECISIONS:
            one, other = (decide(scores, kind, threshold) for scores in scored.worlds)
            found.append(
                {
                    "strength": strength,
                    "seed": seed,
                    "decisions": kind,
                    "accuracy": float((decided == target).mean()),
                    "majority_rate": max(base_rate, 1.0 - base_rate),
                    "positive_rate": float(decide(scored.observed, kind, threshold).mean()),
                    **measure((one, other), worlds)[0],
                }
            )
        bar.update()
    return found
