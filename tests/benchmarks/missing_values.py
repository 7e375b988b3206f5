"""Bias and coverage where values are missing not at random, because of the sensitive attribute and of the lost value.

A causes D and M, and how often either is recorded. The classifier, boosted trees, reads missing values as they are.
True values are made by the structural equations, which know no estimator. "Record" and "truth" are what M reads of D:
where only the direct path is unfair both are allowed; where the path through D is, the truth breaks what the report
assumes.

    python tests/benchmarks/missing_values.py saturated_direct saturated_through saturated_wrong boosted_through
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier

import pyrofair as pf

Array = NDArray[Any]
GRAPH = pf.CausalGraph("C -> A; {A C} -> D; {A C D} -> M; {A C D M} -> Y", sensitive="A", outcome="Y")
UNFAIR = {"direct": ["A -> Y"], "through D": ["A -> Y", "A -> D -> Y", "A -> D -> M -> Y"]}
CASES = {
    "saturated_direct": ("saturated", "direct", "truth"),
    "saturated_through": ("saturated", "through D", "record"),
    "saturated_wrong": ("saturated", "through D", "truth"),
    "boosted_direct": ("boosted", "direct", "truth"),
    "boosted_through": ("boosted", "through D", "record"),
}
NAMES = np.array(["low", "mid", "high", None], dtype=object)


def draw_C(random: np.random.Generator, n: int, few: bool) -> Array:
    return random.integers(-1, 2, n).astype(float) if few else random.standard_normal(n)


def draw_D(random: np.random.Generator, a: Array, C: Array, few: bool) -> tuple[Array, Array]:
    """Return the true D and its record, missing more often for A = 1 and for low values."""
    true = 0.7 * a + 0.7 * C + random.standard_normal(len(C))
    true = (true > 0.3).astype(float) if few else true
    return true, np.where(random.random(len(C)) < expit(1.2 - a + 0.8 * true), true, np.nan)


def draw_M(random: np.random.Generator, a: Array, C: Array, read: Array, few: bool) -> Array:
    """Return the code of M, 3 where it is missing: more often for A = 1 and for "low"."""
    level = 0.6 * np.nan_to_num(read, nan=-0.5) + 0.6 * a + 0.4 * C + random.logistic(size=len(C))
    code = np.digitize(level, [0.4] if few else [-0.4, 0.9])
    return np.where(random.random(len(C)) < np.where(code == 0, 0.35, 0.1) + 0.15 * a, 3, code)


def frame(C: Array, a: Array, D: Array, M: Array) -> pd.DataFrame:
    return pd.DataFrame({"C": C, "A": a, "D": D, "M": pd.Series(NAMES[M], dtype="str")})


def draw(n: int, seed: int, reads: str, few: bool) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    C = draw_C(random, n, few)
    a = (random.random(n) < expit(0.7 * C)).astype(int)
    true, D = draw_D(random, a, C, few)
    M = draw_M(random, a, C, true if reads == "truth" else D, few)
    Y = random.random(n) < expit(0.5 * a + 0.5 * true + 0.5 * (M == 2) - 0.5 * (M == 0) - 0.3 * C)
    return frame(C, a, D, M).assign(Y=Y.astype(int))


class Reader:
    """Boosted trees that read missing values themselves, trained once on 4,000 rows as recorded."""

    classes_ = np.array([0, 1])
    feature_names_in_ = np.array(["A", "C", "D", "M"])

    def __init__(self, few: bool) -> None:
        df = draw(4000, 999, "truth", few)
        trees = HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=8, categorical_features=[3], random_state=0)
        self.model = trees.fit(self.coded(df), df["Y"])

    def coded(self, X: pd.DataFrame) -> Array:
        levels = X["M"].map({"low": 0, "mid": 1, "high": 2})
        return np.column_stack([X["A"], X["C"], X["D"], levels]).astype(float)

    def predict_proba(self, X: pd.DataFrame) -> Array:
        return np.asarray(self.model.predict_proba(self.coded(X)))


def truth(model: Reader, unfair: str, reads: str, few: bool, n: int) -> dict[str, float]:
    """Return the mean unfair effect on scores and on decisions, by n units of both worlds with the same noise."""
    found = []
    for switched in (0, 1):
        random = np.random.default_rng(5)
        C = draw_C(random, n, few)
        of_y, of_d, of_m = switched, int(switched and unfair == "through D"), 0
        true, D = draw_D(random, np.full(n, of_d), C, few)
        M = draw_M(random, np.full(n, of_m), C, true if reads == "truth" else D, few)
        p = model.predict_proba(frame(C, np.full(n, of_y), D, M))[:, 1]
        found.append((p.mean(), (p > 0.5).mean()))
    return {"score": float(found[1][0] - found[0][0]), "threshold": float(found[1][1] - found[0][1])}


def run(case: str, samples: int, n: int, units: int) -> None:
    kind, unfair, reads = CASES[case]
    few = kind == "saturated"
    model = Reader(few)
    right = truth(model, unfair, reads, few, units)
    rows, refused = [], 0
    for seed in range(samples):
        source = pf.OneStep(GRAPH.unfair(*UNFAIR[unfair]), propensity=kind, regression=kind, random_state=seed)
        df = draw(n, 40_000 + seed, reads, few)
        try:
            report = pf.audit({"m": model}, source, df, missing="recorded", n_jobs=1, progress=False, random_state=seed)
        except pf.PositivityError:
            refused += 1
            continue
        effects = report.table[report.table["quantity"] == "mean_unfair_effect"].set_index("decisions")
        rows.append({name: effects.loc[name, ["estimate", "lower", "upper"]].tolist() for name in right})
    for name, value in right.items():
        estimate, lower, upper = np.array([row[name] for row in rows], dtype=float).T
        mc = estimate.std(ddof=1) / np.sqrt(len(estimate)) if len(estimate) > 1 else np.nan
        print(
            f"| {kind} | {unfair} | {reads} | {name} | {len(rows)} ({refused} refused) | {value:+.4f} | "
            f"{estimate.mean() - value:+.4f} ({mc:.4f}) | {((lower <= value) & (value <= upper)).mean():.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", choices=CASES)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--units", type=int, default=400_000)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| models | unfair | M reads | decisions | samples | true effect | bias (Monte-Carlo error) | coverage |")
    print("|---|---|---|---|--:|--:|--:|--:|")
    for each in given.cases:
        run(each, given.samples, given.rows, given.units)
