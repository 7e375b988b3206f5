"""Coverage of the intervals of five levels against a baseline, at once: a known SEM, whose truth is enumerated.

python tests/benchmarks/levels_coverage.py --samples 200 --rows 2000
python tests/benchmarks/levels_coverage.py --samples 3000 --first 10000 --paths all --formula

``--formula`` has the same estimates and intervals of effects along all paths by a few lines, without audits, in a
hundredth of the time.
"""

from __future__ import annotations

import argparse
import os
import warnings
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from scipy.stats import beta
from tqdm import tqdm

import pyrofair as pf
from pyrofair.effects.simultaneous import quantile_of_largest

LEVELS = ("White", "Asian", "Black", "Hispanic", "Native", "Other")
P_Q = np.array([0.5, 0.3, 0.2])
P_RACE = np.array(
    [[0.40, 0.15, 0.15, 0.15, 0.05, 0.10], [0.5, 0.1, 0.2, 0.1, 0.04, 0.06], [0.3, 0.1, 0.3, 0.2, 0.05, 0.05]]
)
"""P(race given Q), a row for each value of Q."""
P_M = np.array([0.35, 0.45, 0.6, 0.5, 0.55, 0.4])
"""P(M = 1) by race where Q = 0; each step of Q adds .1."""
DIRECT = np.array([0.0, 0.05, -0.12, -0.08, -0.1, 0.02])
GRAPH = pf.CausalGraph("Q -> race; {race Q} -> M; {race Q M} -> Y", sensitive="race", outcome="Y", baseline=LEVELS[0])
PATHS = {"direct": ["race -> Y"], "all": ["race -> Y", "race -> M -> Y"]}
SHOWN = ("mean_unfair_effect", "piu_lower", "piu_upper")


def score(race: Any, q: Any, m: Any) -> Any:
    """Return the score of a code of race, Q and M: a known function."""
    return 0.25 + DIRECT[race] + 0.1 * q + 0.3 * m - 0.06 * q * m


def known(X: pd.DataFrame) -> Any:
    return score(np.array([LEVELS.index(each) for each in X["race"]]), X["Q"].to_numpy(), X["M"].to_numpy())


def draw(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    q = rng.choice(3, n, p=P_Q)
    race = (rng.random(n)[:, None] > np.cumsum(P_RACE[q], axis=1)).sum(axis=1)
    m = (rng.random(n) < P_M[race] + 0.1 * q).astype(int)
    return pd.DataFrame({"race": np.array(LEVELS)[race], "Q": q, "M": m})


def truth(paths: str) -> dict[tuple[str, str, str], float]:
    """Return the truth by level, decisions and quantity, in the population of the two levels.

    Both worlds share Q and, where the direct path alone is unfair, M, of which each world has the law of the baseline.
    """
    found = {}
    p_m = P_M[:, None] + 0.1 * np.arange(3)  # by race and Q
    q, m = np.arange(3)[:, None], np.arange(2)
    for a, name in enumerate(LEVELS[1:], 1):
        share = P_Q * (P_RACE[:, 0] + P_RACE[:, a])
        share = share / share.sum()
        zero, one = (np.stack([1 - p_m[race], p_m[race]], axis=1) for race in (0, a if paths == "all" else 0))
        for decisions in ("threshold", "score"):
            scores = [score(race, q, m) if decisions == "score" else score(race, q, m) > 0.5 for race in (0, a)]
            if paths == "all":
                weight, of = share, [(zero * scores[0]).sum(axis=1), (one * scores[1]).sum(axis=1)]
            else:
                weight, of = share[:, None] * zero, [np.asarray(each, dtype=float) for each in scores]
            gap, rest = of[1] - of[0], 1 - abs(1 - of[0] - of[1])
            ends = {"mean_unfair_effect": gap, "piu_lower": abs(gap), "piu_upper": rest}
            for each, value in ends.items():
                found[name, decisions, each] = float((weight * value).sum())
                for at in range(3):  # within Q
                    found[name, f"{decisions} {at}", each] = float(
                        np.average(value[at], weights=weight[at] * np.ones_like(value[at]))
                    )
    return found


def by_formula(df: pd.DataFrame, decisions: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the effects along all paths, a contrast each, and their covariance: augmented weighting by cells of Q."""
    race, q = np.array([LEVELS.index(each) for each in df["race"]]), df["Q"].to_numpy()
    effects, errors = np.zeros(len(LEVELS) - 1), np.zeros((len(df), len(LEVELS) - 1))
    for a in range(1, len(LEVELS)):
        values, both = np.zeros(len(df)), (race == 0) | (race == a)
        for sign, level in ((-1.0, 0), (1.0, a)):
            y = score(level, q, df["M"].to_numpy())
            y = y if decisions == "score" else 1.0 * (y > 0.5)
            for cell in (both & (q == each) for each in range(3)):
                arm = cell & (race == level)
                values += sign * (y[arm].mean() * cell + cell.sum() / arm.sum() * (y - y[arm].mean()) * arm)
        effects[a - 1] = values[both].mean()
        errors[both, a - 1] = (values[both] - effects[a - 1]) / both.sum()
    return effects, errors.T @ errors


def print_by_formula(samples: int, first: int, n: int) -> None:
    """Print how often the intervals of all contrasts hold the true effects along all paths at once."""
    right = truth("all")
    for decisions in ("threshold", "score"):
        true, held = [right[level, decisions, "mean_unfair_effect"] for level in LEVELS[1:]], 0
        for seed in range(first, first + samples):
            effects, covariance = by_formula(draw(n, seed), decisions)
            reach = quantile_of_largest(covariance, 0.95) * np.sqrt(np.diag(covariance))
            held += int((np.abs(effects - true) <= reach).all())
        print(f"all paths, {decisions}: {held / samples:.3f} of {samples} samples hold all effects at once")


def covered(table: pd.DataFrame, right: dict[tuple[str, str, str], float]) -> pd.DataFrame:
    """Return whether each interval holds the truth, by contrast, decisions and quantity."""
    own = table[table["quantity"].isin(SHOWN) & table["estimate"].notna()]
    true = [right[key] for key in zip(own["contrast"], own["decisions"], own["quantity"], strict=True)]
    tolerance = 1e-9  # an estimate that has no error
    inside = (own["lower"] <= np.array(true) + tolerance) & (own["upper"] >= np.array(true) - tolerance)
    return own[["contrast", "decisions", "quantity"]].assign(inside=inside)


def main() -> None:
    """Audit many samples, and print how often all levels are covered at once, and how often each is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first sample")
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--formula", action="store_true")
    parser.add_argument("--paths", nargs="+", default=list(PATHS), choices=list(PATHS))
    parser.add_argument("--model", default="saturated", choices=("saturated", "logistic"))
    settings = parser.parse_args()
    if settings.formula:
        print_by_formula(settings.samples, settings.first, settings.rows)
        return
    parts = []
    for paths in settings.paths:
        named, right = PATHS[paths], truth(paths)
        for seed in tqdm(range(settings.first, settings.first + settings.samples), desc=paths, leave=False):
            source = pf.OneStep(
                GRAPH.unfair(*named), propensity=settings.model, regression=settings.model, random_state=seed
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                report = pf.audit(
                    {"known": pf.ScoresOf(known)},
                    source,
                    draw(settings.rows, seed),
                    subgroups=["Q"],
                    progress=False,
                    random_state=seed,
                )
            alone = pd.concat([one.table.assign(contrast=name) for name, one in report.audits.items()])
            within = report.subgroups.assign(decisions="threshold " + report.subgroups["level"])
            for kind, table in (("at once", report.table), ("each by itself", alone), ("within Q, at once", within)):
                parts.append(covered(table, right).assign(paths=paths, kind=kind, seed=seed))
    made = pd.concat(parts)
    made["decisions"] = made["decisions"].str.split().str[0]
    print(
        "| unfair paths | of | intervals | mean unfair effect | PIU at least | PIU at most |\n|---|---|---|--:|--:|--:|"
    )
    by = ["paths", "decisions", "kind"]
    for key, own in made.groupby(by, sort=False):
        cells = []
        for quantity in SHOWN:
            every = own[own["quantity"] == quantity].groupby("seed")["inside"].all()
            k, n = int(every.sum()), len(every)
            low, high = beta.ppf(0.025, k, n - k + 1) if k else 0.0, beta.ppf(0.975, k + 1, n - k) if k < n else 1.0
            cells.append(f"{k / n:.3f} ({low:.2f} to {high:.2f})")
        print(f"| {key[0]} | {'decisions' if key[1] == 'threshold' else 'scores'} | {key[2]} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
