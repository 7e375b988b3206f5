"""How far an unfair effect moves where independent errors across worlds are given up for a share of the units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pyrofair.audits.models import ScoresAre
from pyrofair.effects.scoring import Decisions
from pyrofair.graph import UnfairPaths
from pyrofair.nuisances.learners import make_learner
from pyrofair.robustness.sensitivity.benchmarks import read_shared_columns
from pyrofair.robustness.sensitivity.couplings import Couplings, couple_worlds, read_runs
from pyrofair.robustness.sensitivity.problem import Asked, Problem, read_problem
from pyrofair.robustness.sensitivity.sweep import Departure, Parameter, Sweep, sweep
from pyrofair.sources.onestep import OneStep
from pyrofair.tables.recorded import Missing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CrossWorld", "cross_world"]

DELTA = Parameter(
    "delta",
    neutral=0.0,
    most=1.0,
    what="shares, such as [0, 0.1, 0.5, 1]",
    axis="delta (share of units with any coupling across worlds)",
)
DELTAS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class CrossWorld(Sweep):
    """The result of :func:`cross_world`; print it for a verdict and a few numbers.

    Attributes
    ----------
    table : DataFrame
        For each delta and quantity (p_y0, p_ypi, mean_unfair_effect, piu): low and high, the bounds if a share delta of
        the units has any coupling across worlds; lower and upper, between which both bounds lie with the level; sharp,
        whether a coupling attains the bounds. ``piu`` is from the bounds of the two marginals.
    flips_at : DataFrame
        For each conclusion the least delta at which it no longer holds: of the estimate (``point``) and with its
        interval (``interval``). NaN if it does not hold at delta = 0, inf if it holds at each delta of the sweep.
    assumptions : tuple of str
        What is given up, and what stays.
    context : dict
        model, decisions, rows, level, the unfair paths, deltas, and the settings ``above`` and ``at_most``.
    """

    title = "Dependence across worlds"
    parameter = DELTA

    _problem: Problem = field(repr=False)
    _couplings: Couplings = field(repr=False)

    def benchmark(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the delta that an observed common cause of mediators would amount to, were it left out.

        Given all that the sensitive attribute does not cause, the mediators of both worlds are independent by
        assumption; given all but one column, that column makes them dependent. By how much it moves P(Ypi = 1), as a
        share of what any coupling could on that side, is its delta. A hidden cause as strong would do the same.

        Parameters
        ----------
        columns
            Columns that the sensitive attribute does not cause, by default all.

        Returns
        -------
        DataFrame
            For each column: ``moved``, the change of P(Ypi = 1) that its dependence makes, and ``delta``. Plug-in
            estimates, without intervals.

        Raises
        ------
        DataError
            If the sensitive attribute causes a column, or there is none.
        """
        asked = read_shared_columns(self._problem.form, columns)
        rows, found = self._problem.rows, self._couplings
        share = rows.weight / rows.weight.sum()
        up, down = float(share @ found.widest_up), float(share @ found.widest_down)
        lines = []
        for name, others in asked.items():
            rest = rows.table[others]
            regression = make_learner(self._problem.form.regression, rest, self._problem.form.seed, "regression")
            design = regression.design(rest)
            both = np.hstack([found.chance, found.mean, found.chance * found.mean])
            chance, mean, product = np.hsplit(regression.fit(design, both, rows.weight, rows.groups)(design), 3)
            moved = float(share @ (product - chance * mean).sum(axis=1))
            widest = up if moved > 0.0 else down
            lines.append((name, moved, abs(moved / widest) if widest else np.nan))
        return pd.DataFrame(lines, columns=["column", "moved", "delta"])

    def plot(self, quantity: str = "mean_unfair_effect") -> Figure:
        """Draw the ends of a quantity against delta: ``"mean_unfair_effect"``, ``"piu"`` or ``"p_ypi"``."""
        return self._plot(quantity)

    def _about(self) -> str:
        return "delta is the share of units whose worlds may be coupled in any way."


def cross_world(
    model: Any,
    source: OneStep | UnfairPaths,
    df: pd.DataFrame,
    *,
    deltas: npt.ArrayLike = DELTAS,
    decisions: Decisions = "threshold",
    threshold: float = 0.5,
    above: float = 0.0,
    at_most: float | None = None,
    level: float = 0.95,
    scores: ScoresAre = "auto",
    sample_weight: npt.ArrayLike | None = None,
    groups: npt.ArrayLike | str | None = None,
    missing: Missing = "refuse",
    random_state: int | np.random.Generator | None = None,
) -> CrossWorld:
    """Bound the unfair effect where mediators of different worlds may depend on each other for a share of the units.

    *Assumes* all that the source does, but independent errors across worlds (NPSEM-IE) for a share 1 - delta of the
    units only, at each value of what the sensitive attribute does not cause. The others may have any coupling of the
    mediators that read one value of it with those that read the other, with the distributions that single worlds have.
    delta = 0 is the source's number, delta = 1 has no assumption across worlds.

    Parameters
    ----------
    model, source, df
        As for :func:`confounding`. The unfair-path world must join two runs of nodes that read different values, and
        those of the first must have at most 50 different values together.
    deltas
        Shares in [0, 1]; 0 is added.
    decisions, threshold, above, at_most, level, scores, sample_weight, groups, missing, random_state
        As for :func:`confounding`.

    Returns
    -------
    CrossWorld

    Raises
    ------
    DataError
        If a setting, the model or the table is unfit; if no number depends on what joins two worlds, or more than two
        runs of nodes do; if the first run has too many values.

    References
    ----------
    Frechet (1951); Robins and Richardson (2010) and Tchetgen Tchetgen and Phiri (2014), for one binary mediator; Miles
    et al. (2017). The paper's P(Ypi = 1) depends on independent errors; see the page on its assumptions.

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    >>> df = pd.DataFrame({"A": [0] * 40 + [1] * 60, "M": [0] * 30 + [1] * 10 + [0] * 15 + [1] * 45})
    >>> df["Y"] = [0, 1] * 50
    >>> source = OneStep(graph.unfair("A -> Y"), propensity="saturated", regression="saturated", folds=1)
    >>> found = cross_world(df["Y"], source, df, deltas=[1], scores="outcome")
    >>> own = found.table[(found.table["quantity"] == "p_ypi") & (found.table["delta"] == 1.0)]
    >>> own[["low", "high"]].round(2).to_numpy().tolist()
    [[0.22, 0.72]]
    """
    shares = DELTA.read(deltas)
    asked = Asked(decisions, threshold, above, at_most, level, scores, sample_weight, groups, missing, random_state)
    problem = read_problem(model, source, df, asked)
    runs = read_runs(problem.form)
    found = couple_worlds(problem.form, problem.rows, problem.scores, runs)
    down, up = (np.outer(values, shares) for values in (found.down, found.up))
    bounds = {name: (base + down, base + up) for name, base in problem.means.items()}
    bounds["p_y0"] = (problem.means["p_y0"] + 0.0 * up,) * 2
    first, second = (", ".join(run.nodes) for run in (runs.first, runs.second))
    sensitive = problem.source.unfair.graph.sensitive
    assumption = (
        f"Given what {sensitive} does not cause, a share delta of the units may have any coupling of {first} with "
        f"{sensitive}={runs.first.arm} and {second} with {sensitive}={runs.second.arm}; all others independent errors. "
    )
    why = [f"not all of {second} read all of {first}"] * (not runs.sharp)
    why += ["scores of many values are cut at quantiles"] * (not found.exact)
    assumption += (
        f"The interval is valid; since {' and '.join(why)}, it may be too wide."
        if why
        else "A coupling attains each bound."
    )
    departure = Departure({}, bounds, lambda *_: not why)
    stated = (assumption, "No hidden cause: the distributions in single worlds are identified.")
    swept = sweep(problem, DELTA, shares, [departure])
    return CrossWorld(*swept, stated, problem.context | {"deltas": shares}, problem, found)
