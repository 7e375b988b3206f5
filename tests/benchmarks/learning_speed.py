"""What learning mechanisms and their replicates cost, as ratios of CPU times to another checkout, taken in turns.

``python tests/benchmarks/learning_speed.py --against PATH`` runs every task as a process of its own, in this checkout
and in that at PATH, one after the other, and prints the ratios beside their bars. Tasks: ``GComputation.fit`` and
its audit with 200 replicates, on ``hiring`` (n = 5,000) and Adult; held-out log-likelihoods of the learned mechanisms
there and on German Credit; a replicate of boosted propensities, against a fit from scratch in the same checkout.

An audit is measured with few replicates and with none, and the time of 200 follows; ``--full`` runs all 200 here, and
on ``hiring`` there, too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

HERE = Path(__file__).resolve().parents[2]
REPLICATES = 200
FEW = {"here": 20, "there": 3}
BARS = {
    "fit hiring": 1 / 3,
    "audit hiring": 1 / 3,
    "fit adult": 1 / 2,
    "audit adult": 1 / 5,
    "boosted hiring": 1 / 5,
    "boosted adult": 1 / 5,
}


# -- in the process of one checkout -----------------------------------------------------------------------------------


def rows(name: str, seed: int) -> tuple[Any, Any]:
    import pyrofair as pf

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
    import pyrofair as pf

    df, unfair = rows(name, seed)
    pf.GComputation(unfair, parameters="linear", components=1, progress=False).fit(df.head(500))  # loads what it needs
    seconds, source = clock(lambda: pf.GComputation(unfair, progress=False, random_state=seed).fit(df))
    return seconds, source, df


def fit(name: str, seed: int, _: int) -> dict[str, Any]:
    seconds, source, _df = fitted(name, seed)
    held = source.mechanisms_.held_out
    steps = sum(each.history[-1]["step"] for each in source.mechanisms_.fits.values())
    return {"seconds": seconds, "held_out": float(held["log_likelihood"].sum()), "steps": steps}


def audit(name: str, seed: int, n_boot: int) -> dict[str, Any]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    import pyrofair as pf
    from pyrofair.tables.encoder import TableEncoder

    _, source, df = fitted(name, seed)
    graph = source.unfair.graph
    model = make_pipeline(TableEncoder(), LogisticRegression(max_iter=500))
    model.fit(df[list(graph.input_columns)], df[graph.outcome_column])
    how: dict[str, Any] = {"progress": False, "random_state": seed, "n_jobs": 1}
    first, _ = clock(lambda: pf.audit({"model": model}, source, df, n_boot=0, **how))
    seconds, _ = clock(lambda: pf.audit({"model": model}, source, df, n_boot=n_boot, **how))
    again, _ = clock(lambda: pf.audit({"model": model}, source, df, n_boot=0, **how))
    return {"first": first, "replicate": (seconds - again) / n_boot}


def boosted(name: str, seed: int, replicates: int) -> dict[str, Any]:
    import numpy as np

    import pyrofair as pf

    df, unfair = rows(name, seed)
    source = pf.IPW(unfair, propensity="boosted", max_unsupported=1.0, random_state=seed).fit(df)
    weights = np.random.default_rng(seed).dirichlet(np.ones(len(df)), replicates + 1) * len(df)
    source.refit(weights[-1])
    refit, _ = clock(lambda: [source.refit(weight) for weight in weights[:-1]])
    scratch, _ = clock(
        lambda: [
            pf.IPW(unfair, propensity="boosted", max_unsupported=1.0, random_state=seed).fit(df, sample_weight=weight)
            for weight in weights[:2]
        ]
    )
    return {"refit": refit / replicates, "scratch": scratch / 2}


TASKS = {"fit": fit, "audit": audit, "boosted": boosted}


# -- in turns ---------------------------------------------------------------------------------------------------------


def measured(tree: Path, task: str, name: str, seed: int, count: int) -> dict[str, Any]:
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--task", task, "--data", name, "--seed", str(seed), "--count", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tree, env=environment)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def tell(label: str, here: float, there: float, note: str = "") -> None:
    ratio, bar = here / there, BARS[label]
    verdict = "holds" if ratio <= bar else "FALLS SHORT"
    print(f"{label:16} {here:8.2f} s against {there:8.2f} s: {ratio:.3f} (bar {bar:.3f}) {verdict} {note}", flush=True)


def compare(against: Path, seeds: int, *, full: bool) -> None:
    for name in ("hiring", "adult", "german"):
        pairs = [[measured(tree, "fit", name, seed, 0) for tree in (HERE, against)] for seed in range(seeds)]
        here, there = (mean(pair[i]["seconds"] for pair in pairs) for i in (0, 1))
        steps = " and ".join(f"{mean(pair[i]['steps'] for pair in pairs):.0f}" for i in (0, 1))
        if f"fit {name}" in BARS:
            tell(f"fit {name}", here, there, f"({steps} steps, mean of {seeds} seeds)")
        gains = [pair[0]["held_out"] - pair[1]["held_out"] for pair in pairs]
        print(
            f"held out, {name}: here less there {mean(gains):+.4f} nats a row; by seed "
            + ", ".join(f"{gain:+.4f}" for gain in gains),
            flush=True,
        )
    for name in ("hiring", "adult"):
        one = measured(HERE, "audit", name, 0, REPLICATES if full else FEW["here"])
        all_there = full and name == "hiring"
        other = measured(against, "audit", name, 0, REPLICATES if all_there else FEW["there"])
        here, there = (each["first"] + REPLICATES * each["replicate"] for each in (one, other))
        note = f"(before the first replicate {one['first']:.1f} and {other['first']:.1f} s, a replicate "
        tell(f"audit {name}", here, there, f"{note}{one['replicate']:.3f} and {other['replicate']:.3f} s)")
    for name in ("hiring", "adult"):
        one, other = (measured(tree, "boosted", name, 0, 5) for tree in (HERE, against))
        tell(f"boosted {name}", one["refit"], one["scratch"], f"(a replicate there {other['refit']:.2f} s)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--task", choices=TASKS)
    parser.add_argument("--data")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=0)
    given = parser.parse_args()
    if given.task:
        warnings.simplefilter("ignore")
        print(json.dumps(TASKS[given.task](given.data, given.seed, given.count)))
    elif given.against is None:
        parser.error("--against names the checkout to compare with")
    else:
        compare(given.against.resolve(), given.seeds, full=given.full)
