"""How often the intervals of a decomposition hold the truth.

python tests/benchmarks/decomposition.py --samples 200 --rows 1000 3000
python tests/benchmarks/decomposition.py --samples 200 --rows 1000 --levels 2
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from itertools import permutations, product
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

import pyrofair as pf

GRAPH = pf.CausalGraph("C -> {A M W Y}; A -> {M W Y}; M -> {W Y}; W -> Y", sensitive="A", outcome="Y")
SHIFTS = (1.0, -0.7)
"""How each level that is compared with the baseline shifts a mediator, in terms of the design's shift."""
UNITS = 1_000_000
NAMES = {"M": "by way of M", "W": "by way of W", "Y": "directly"}
HEADS = ("M", "W", "Y")
Array = np.ndarray[Any, Any]


def binary(a: Array, c: Array, m: Array, w: Array) -> Array:
    """A score with an interaction of the sensitive attribute and a mediator, which makes parts depend on the order."""
    return np.asarray(expit(-0.5 + 0.4 * a + 0.5 * c + 0.6 * m + 0.8 * w + 0.5 * a * w))


def curved(a: Array, c: Array, m: Array, w: Array) -> Array:
    """A score that is curved in a mediator."""
    return np.asarray(expit(-1.0 + 0.8 * a - 0.4 * c + 0.7 * m * np.abs(m) + 0.5 * w * c))


DESIGNS: dict[str, tuple[Callable[..., Array], float]] = {"interaction": (binary, 0.6), "curved": (curved, 1.0)}


def known(score: Callable[..., Array]) -> pf.ScoresOf:
    return pf.ScoresOf(lambda X: score(*(X.assign(A=X["A"] > 0)[name].to_numpy(np.float64) for name in "ACMW")))


def draw(rng: np.random.Generator, n: int, shift: float) -> tuple[Array, Array, Callable[..., tuple[Array, Array]]]:
    """Causes, the sensitive attribute, and the mediators in a world."""
    c = rng.normal(size=n)
    a = (rng.random(n) < expit(0.6 * c)).astype(int)
    noise, uniform = rng.normal(size=n), rng.random(n)

    def mediators(am: Any, aw: Any) -> tuple[Array, Array]:
        m = shift * am + 0.5 * c + noise
        return m, (uniform < expit(-0.3 + 0.7 * aw + 0.5 * m - 0.3 * c)).astype(float)

    return c, a, mediators


def sample_of(seed: int, n: int, shift: float, levels: int) -> pd.DataFrame:
    """Rows of a baseline 0 and of levels, each of which has with the baseline the population of two levels."""
    rng, found = np.random.default_rng(seed), []
    for level, times in enumerate(SHIFTS[:levels], 1):
        c, a, mediators = draw(rng, n, times * shift)
        m, w = mediators(a, a)
        found.append(pd.DataFrame({"C": c, "A": level * a, "M": m, "W": w})[(level == 1) | (a == 1)])
    return pd.concat(found, ignore_index=True)


def truth(design: str, units: int, times: float = 1.0) -> dict[tuple[str, str], float]:
    """The parts of mean scores and of decisions, by simulation of the worlds."""
    score, shift = DESIGNS[design]
    c, a, mediators = draw(np.random.default_rng(0), units, times * shift)
    found = {}
    for decisions in ("score", "threshold"):
        means = {}
        for am, aw, ay in product((0, 1), repeat=3):
            p = score(ay, c, *mediators(am, aw))
            chosen = frozenset(head for head, arm in zip(HEADS, (am, aw, ay), strict=True) if arm)
            means[chosen] = float((p if decisions == "score" else p > 0.5).mean())
        p = score(a, c, *mediators(a, a))
        observed = p if decisions == "score" else p > 0.5
        gap = float(observed[a == 1].mean() - observed[a == 0].mean())
        total = means[frozenset(HEADS)] - means[frozenset()]
        found |= {(decisions, "gap"): gap, (decisions, "total effect"): total, (decisions, "confounding"): gap - total}
        for head in HEADS:
            added = []
            for order in permutations(HEADS):
                before = frozenset(order[: order.index(head)])
                added.append(means[before | {head}] - means[before])
            found[decisions, NAMES[head]] = float(np.mean(added))
    return found


def cover(design: str, n: int, samples: int, learner: Any, units: int, levels: int = 1) -> pd.DataFrame:
    """Bias, spread and coverage of each part; together: parts of all levels at once, by simultaneous intervals."""
    score, shift = DESIGNS[design]
    truths = {level: pd.Series(truth(design, units, times)) for level, times in enumerate(SHIFTS[:levels], 1)}
    right = pd.concat(truths).rename_axis(["contrast", "decisions", "part"])
    graph = GRAPH if levels == 1 else GRAPH.with_contrast(None)
    rows, together = [], []
    for sample in range(samples):
        df = sample_of(1000 + sample, n, shift, levels)
        how = {"propensity": learner, "regression": learner, "random_state": sample}
        parts = pf.decompose({"model": known(score)}, graph, df, **how).table
        parts = parts if levels > 1 else parts.assign(contrast=1)
        own = parts.set_index(["contrast", "decisions", "part"]).reindex(right.index)
        if own["estimate"].isna().any():  # parts that could not be told apart are one
            continue
        held = (own["lower"] <= right) & (right <= own["upper"])
        rows.append(pd.DataFrame({"estimate": own["estimate"], "width": own["upper"] - own["lower"], "held": held}))
        single = held.drop(index=["gap", "total effect"], level="part")
        together.append(single.groupby(level="decisions").all())
    every = pd.concat(rows, keys=range(len(rows)))
    of = every.groupby(level=[1, 2, 3], sort=False)
    table = pd.DataFrame(
        {
            "truth": right,
            "bias": of["estimate"].mean() - right,
            "bias_error": of["estimate"].std() / np.sqrt(len(rows)),
            "sd": of["estimate"].std(),
            "width": of["width"].mean(),
            "coverage": of["held"].mean(),
        }
    )
    for decisions, share in pd.concat(together).groupby(level=0).mean().items():
        table.loc[("all", decisions, "all parts"), "coverage"] = share
    return table.assign(design=design, n=n, told_apart=f"{len(rows)}/{samples}").reset_index(names=right.index.names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 3000])
    parser.add_argument("--designs", nargs="+", default=list(DESIGNS), choices=list(DESIGNS))
    parser.add_argument("--learner", default="logistic")
    parser.add_argument("--units", type=int, default=UNITS)
    parser.add_argument("--levels", type=int, default=1, choices=range(1, 1 + len(SHIFTS)))
    given = parser.parse_args()
    warnings.simplefilter("ignore", pf.PyrofairWarning)
    pd.set_option("display.width", 150, "display.max_columns", 20)
    for design, n in product(given.designs, given.rows):
        found = cover(design, n, given.samples, given.learner, given.units, given.levels)
        print(found.round(4).to_string(index=False), flush=True)


if __name__ == "__main__":
    main()
