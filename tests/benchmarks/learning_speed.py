"""What learning mechanisms and their replicates cost: CPU seconds, and held-out log-likelihoods of what is learned.

Tasks: ``GComputation.fit``, its audit before the first replicate and a replicate of it, and a replicate of boosted
propensities beside a fit from scratch. ``python tests/benchmarks/learning_speed.py --seeds 3`` runs each on ``hiring``
(n = 5,000), Adult and German Credit; with PYTHONPATH at another checkout it measures that one.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import pyrofair as pf
from pyrofair.tables.encoder import TableEncoder


def rows(name: str, seed: int) -> tuple[Any, Any]:
    if name == "hiring":
        hiring = pf.simulate.scenario("hiring")
        return hiring.draw(5000, random_state=seed), hiring.unfair
    data = pf.datasets.load_adult() if name == "adult" else pf.datasets.load_german()
    return data.split(seed)[0], data.unfair


def clock(task: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = task()
    return time.process_time() - start, result


def fitted(name: str, seed: int) -> tuple[float, Any, Any]:
    df, unfair = rows(name, seed)
    pf.GComputation(unfair, parameters="linear", components=1, progress=False).fit(df.head(500))  # loads what it needs
    seconds, source = clock(lambda: pf.GComputation(unfair, progress=False, random_state=seed).fit(df))
    return seconds, source, df


def fit(name: str, seed: int, _: int) -> dict[str, float]:
    seconds, source, _df = fitted(name, seed)
    held = source.mechanisms_.held_out
    steps = sum(each.history[-1]["step"] for each in source.mechanisms_.fits.values())
    return {"fit": seconds, "nats a held-out row": float(held["log_likelihood"].sum()), "steps": steps}


def audit(name: str, seed: int, n_boot: int) -> dict[str, float]:
    _, source, df = fitted(name, seed)
    graph = source.unfair.graph
    model = make_pipeline(TableEncoder(), LogisticRegression(max_iter=500))
    model.fit(df[list(graph.input_columns)], df[graph.outcome_column])
    how: dict[str, Any] = {"progress": False, "random_state": seed, "n_jobs": 1}
    first, whole, again = (
        clock(lambda n=n: pf.audit({"model": model}, source, df, n_boot=n, **how))[0] for n in (0, n_boot, 0)
    )
    return {"before the first replicate": first, "replicate": (whole - again) / n_boot}


def boosted(name: str, seed: int, replicates: int) -> dict[str, float]:
    df, unfair = rows(name, seed)
    settings: dict[str, Any] = {"propensity": "boosted", "max_unsupported": 1.0, "random_state": seed}
    source = pf.IPW(unfair, **settings).fit(df)
    weights = np.random.default_rng(seed).dirichlet(np.ones(len(df)), replicates + 1) * len(df)
    source.refit(weights[-1])
    refit, _ = clock(lambda: [source.refit(weight) for weight in weights[:-1]])
    scratch, _ = clock(lambda: pf.IPW(unfair, **settings).fit(df, sample_weight=weights[0]))
    return {"refit": refit / replicates, "fit from scratch": scratch}


TASKS = {"fit": fit, "audit": audit, "boosted": boosted}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--data", nargs="+", default=["hiring", "adult", "german"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--replicates", type=int, default=20)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for task in given.tasks:
        for name in given.data:
            found = [TASKS[task](name, seed, given.replicates) for seed in range(given.seeds)]
            means = ", ".join(f"{key} {np.mean([each[key] for each in found]):.3f}" for key in found[0])
            print(f"{task}, {name}: {means} (mean of {given.seeds} seeds)", flush=True)
