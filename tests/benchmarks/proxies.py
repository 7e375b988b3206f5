"""A sensitive attribute that is known in some rows only: what rows with a known one, weights and proxies estimate.

Run ``python tests/benchmarks/proxies.py --samples 400``. Printed are, for a good and a poor proxy and each way of
estimating the mean unfair effect on decisions: bias with its Monte-Carlo error, standard deviation of the estimates,
and the share of 95 % intervals that hold the true effect.

C (four levels) -> A; {A C} -> D; {A C D} -> M; a classifier reads all four. Unfair are A -> Y and A -> M -> Y. Whether
A is known depends on C, D, M and the proxy W. True effects are sums over all cells.
"""

from __future__ import annotations

import argparse
import itertools
import warnings

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

import pyrofair as pf
from pyrofair.effects.estimates import mean_and_spread
from pyrofair.effects.influence import InfluenceValues
from pyrofair.effects.potential_outcomes import CounterfactualSample
from pyrofair.sources.disclosure import Disclosed

DRAWN = np.random.default_rng(7)
P_D, P_M = DRAWN.uniform(0.2, 0.8, (2, 4)), DRAWN.uniform(0.2, 0.8, (2, 4, 2))
SCORES = DRAWN.uniform(0.0, 1.0, (2, 4, 2, 2))
P_C, P_A = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.35, 0.5, 0.6, 0.45])
GRAPH = pf.CausalGraph("C -> A; {A C} -> D; {A C D} -> M; {A C D M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> M -> Y")
ACCURACY = {"good proxy": 0.85, "poor proxy": 0.6}


def decisions(world: CounterfactualSample) -> np.ndarray:
    """Return the decisions of the classifier of the design, (m,)."""
    return (SCORES[tuple(world.rows[name].to_numpy(np.int64) for name in "ACDM")] > 0.5).astype(float)


def true_effect() -> float:
    """Return the mean unfair effect on decisions at 1/2, by enumeration."""
    decided, found = SCORES > 0.5, 0.0
    for c, d, m in itertools.product(range(4), (0, 1), (0, 1)):
        before = P_C[c] * abs(1 - d - P_D[0, c])
        own = [abs(1 - m - P_M[a, c, d]) * decided[a, c, d, m] for a in (0, 1)]
        found += before * (own[1] - own[0])
    return float(found)


def draw(n: int, seed: int, accuracy: float) -> tuple[pd.DataFrame, np.ndarray]:
    """Return n rows, and whether A is known in each."""
    rng = np.random.default_rng(seed)
    c = rng.choice(4, n, p=P_C)
    a = (rng.random(n) < P_A[c]).astype(int)
    d = (rng.random(n) < P_D[a, c]).astype(int)
    m = (rng.random(n) < P_M[a, c, d]).astype(int)
    w = np.where(rng.random(n) < accuracy, 2 * a, np.where(rng.random(n) < 0.5, 1, 2 - 2 * a))
    chance = expit(-0.3 + 0.5 * (c == 1) - 0.6 * (c == 2) + 0.8 * m - 0.5 * d + 0.5 * (w == 2) - 0.2 * (w == 1))
    table = pd.DataFrame({"C": c, "A": a, "D": d, "M": m, "W": w}).astype({"C": "category", "W": "category"})
    return table, rng.random(n) < chance


def estimate(values: InfluenceValues) -> list[float]:
    """Return the estimate of the effect with its standard error."""
    return [float(each[0]) for each in mean_and_spread(values.ypi - values.y0, values.weight)]


def ways(n: int, seed: int, accuracy: float) -> dict[str, list[float]]:
    """Return the estimates of one sample, as :func:`pyrofair.audit` makes them."""
    df, known = draw(n, seed, accuracy)
    source = pf.OneStep(UNFAIR, propensity="saturated", regression="saturated", random_state=0)
    coded = pd.get_dummies(df[["C", "D", "M", "W"]])
    chance = LogisticRegression(C=np.inf).fit(coded, known).predict_proba(coded)[:, 1]
    made = Disclosed(source, df.assign(A=df["A"].where(known)), ["W"])
    return {
        "A known in all rows": estimate(source.fit(df).influence(decisions)),
        "complete cases": estimate(source.fit(df[known]).influence(decisions)),
        "weighted": estimate(source.fit(df[known], sample_weight=1.0 / chance[known]).influence(decisions)),
        "proxies=['W']": estimate(made.fit(made.filled).influence(decisions)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--n", type=int, default=1500)
    parser.add_argument("--first", type=int, default=10_000, help="the seed of the first sample")
    given = parser.parse_args()
    true = true_effect()
    print(f"true effect {true:.4f}; {given.samples} samples of n = {given.n:,}")
    print("| proxy | estimate | bias (Monte-Carlo error) | sd | mean standard error | coverage |")
    print("|---|---|--:|--:|--:|--:|")
    for name, accuracy in ACCURACY.items():
        found = [ways(given.n, given.first + seed, accuracy) for seed in range(given.samples)]
        for way in found[0]:
            value, told = np.array([each[way] for each in found]).T
            sd, held = value.std(ddof=min(1, len(value) - 1)), abs(value - true) <= norm.ppf(0.975) * told
            error = sd / np.sqrt(len(value))
            numbers = f"{value.mean() - true:+.4f} ({error:.4f}) | {sd:.4f} | {told.mean():.4f} | {held.mean():.3f}"
            print(f"| {name} | {way} | {numbers} |", flush=True)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
