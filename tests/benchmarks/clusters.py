"""Coverage of 95 % intervals by groups (``groups=``), and by rows, where rows of a group depend on each other.

Run ``python tests/benchmarks/clusters.py --samples 200``, or ``--source IPW --samples 100 --designs "60 x 25"``. A
group shares a part of the noise of every node, and in designs "by group" its sensitive attribute. The classifier is
known; the true effect is a mean over a million independent rows, which have the law of the grouped ones.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
from scipy.special import expit, ndtr

import pyrofair as pf
from pyrofair.effects.estimates import AUDITED, Key

GRAPH = pf.CausalGraph("C -> A; {A C} -> D; {A C D} -> M; {A C D M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> M -> Y")
SOURCES: dict[str, Callable[[], object]] = {
    "OneStep": lambda: pf.OneStep(UNFAIR, propensity="logistic", regression="logistic", random_state=0),
    "IPW": lambda: pf.IPW(UNFAIR, propensity="logistic"),
}
DESIGNS: dict[str, tuple[Callable[[np.random.Generator], np.ndarray], float, bool]] = {
    "1,500 x 1": (lambda _: np.ones(1500, int), 0.0, False),
    "300 x 5, correlation .6": (lambda _: np.full(300, 5), 0.6, False),
    "60 x 25, correlation .3": (lambda _: np.full(60, 25), 0.3, False),
    "25 x 40, correlation .2": (lambda _: np.full(25, 40), 0.2, False),
    "200 unequal (mean 6), correlation .5": (lambda rng: rng.geometric(1 / 6, 200), 0.5, False),
    "150 x 10, A by group, correlation .5": (lambda _: np.full(150, 10), 0.5, True),
    "30 x 40, A by group, correlation .3": (lambda _: np.full(30, 40), 0.3, True),
}
"""The sizes of groups, the correlation of noise within them, and whether A and its cause are those of the group."""


def score(A: np.ndarray, C: np.ndarray, D: np.ndarray, M: np.ndarray) -> np.ndarray:
    return expit(0.5 * A + 0.5 * D + 0.6 * M - 0.4 * C - 0.6)


MODEL = pf.ScoresOf(lambda X: score(*(X[name].to_numpy(float) for name in "ACDM")))


def draw(design: str, seed: int) -> pd.DataFrame:
    """Return a table with the column ``group``."""
    make, share, by_group = DESIGNS[design]
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes := make(rng))), sizes)
    shared, own = rng.normal(size=(4, len(sizes)))[:, group], rng.normal(size=(4, len(group)))
    C, u, e, f = np.sqrt(share) * shared + np.sqrt(1.0 - share) * own
    if by_group:
        C, u = shared[:2]
    A = (ndtr(u) < expit(0.7 * C)).astype(int)
    D = 0.7 * A + 0.7 * C + e
    return pd.DataFrame({"group": group, "C": C, "A": A, "D": D, "M": 0.5 * D + 0.7 * A + 0.5 * C + f})


@cache
def truth(n: int = 1_000_000) -> dict[str, float]:
    """Return the true effects, and the true share of yes in the contrast."""
    C, u, e, f = np.random.default_rng(1).normal(size=(4, n))
    D = 0.7 * C + e
    M = 0.5 * D + 0.5 * C + f
    low, high = score(0, C, D, M), score(1, C, D, M + 0.7)
    yes, member = score(1, C, D + 0.7, M + 1.05) > 0.5, expit(0.7 * C) > ndtr(u)
    effects = {"threshold": ((high > 0.5) * 1.0 - (low > 0.5)).mean(), "score": (high - low).mean()}
    return effects | {"rate": float(yes[member].mean())}


def intervals(design: str, seed: int, source: str, replicates: int) -> list[tuple[float, float]]:
    """Return the errors of estimates, and whether their intervals hold the truth (NaN without an interval).

    They are the effects and the rate by groups, then the effects of the same audit by rows, if it has influence values.
    """
    settings = {"n_boot": replicates, "n_jobs": 1, "progress": False, "random_state": seed, "groups": "group"}
    report = pf.audit({"model": MODEL}, SOURCES[source](), draw(design, seed), **settings)
    table = report.table[report.table["quantity"] == "mean_unfair_effect"].set_index("decisions")
    rate = report.rates.query("group == '1' and quantity == 'selection_rate'").iloc[0]
    rows = [(name, *row[["estimate", "lower", "upper"]]) for name, row in [*table.iterrows(), ("rate", rate)]]
    if (own := report.context.estimates) is not None:
        by_rows = replace(own, groups=None)
        for decisions in table.index:
            found = by_rows.of(Key(AUDITED, "model", decisions, "mean_unfair_effect"))
            rows.append((decisions, found.estimate, *found.interval(0.95)))
    true = [truth()[name] for name, *_ in rows]
    held = [
        np.nan if np.isnan(low) else float(low <= at <= high) for at, (*_, low, high) in zip(true, rows, strict=True)
    ]
    return [(row[1] - at, each) for row, at, each in zip(rows, true, held, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--first", type=int, default=20_000, help="the seed of the first sample")
    parser.add_argument("--source", choices=SOURCES, default="OneStep")
    parser.add_argument("--replicates", type=int, default=79)
    parser.add_argument("--designs", nargs="+", default=list(DESIGNS), help="beginnings of their names")
    asked = parser.parse_args()
    kinds = ["effect", "effect on scores", "rate of A=1", "effect by rows", "effect on scores by rows"]
    print(f"| design | samples | refused | no interval | bias of the effect | {' | '.join(kinds)} |\n|---|{'--:|' * 9}")
    for design in [each for each in DESIGNS if each.startswith(tuple(asked.designs))]:
        found, refused = [], 0
        for i in range(asked.samples):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    found.append(intervals(design, asked.first + i, asked.source, asked.replicates))
                except (pf.DataError, pf.PositivityError):
                    refused += 1
        if not found:
            continue
        values = np.array(found, dtype=float)
        error = values[:, 0, 0]
        bias = f"{error.mean():+.4f} (error {error.std() / np.sqrt(len(error)):.4f})"
        lost = int(np.isnan(values[:, 0, 1]).sum())
        shares = " | ".join(f"{each:.3f}" for each in np.nanmean(values[:, :, 1], axis=0))
        print(f"| {design} | {len(found)} | {refused} | {lost} | {bias} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
