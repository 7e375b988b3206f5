"""What a whole penalty path costs, and what it comes to: 41 strengths x 10 seeds of the paper's network on `hiring`.

Compared, on some seeds and in one run, are the path whose fits take all their epochs (the other has
``warm_epochs=140``), and the paper's protocol: stochastic gradient descent of rate .1 and momentum .9 for 1,000
epochs, one cold start a strength. All train on the same 5,000 rows, and objectives are those of all training rows, in
nats. CPU seconds are of all processes.

Run it as ``python tests/benchmarks/penalty_paths.py --arm paper``.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from typing import Any

import numpy as np

import pyrofair as pf
from pyrofair._random import neutral_torch
from pyrofair.classifiers.training import evaluate, train

STRENGTHS = np.linspace(0.0, 2.0, 41)
PROTOCOL = (0.0, 0.5, 1.0, 1.5, 2.0)
READS = ["A", "Q", "D", "M"]
QUICK: dict[str, Any] = {"dtype": "float32"}
"""The settings of the path that is measured, besides the defaults."""


def data() -> tuple[Any, Any]:
    hiring = pf.simulate.scenario("hiring")
    return hiring.draw(5000, random_state=0), hiring.draw(1000, random_state=1)


def make(arm: Any, **settings: Any) -> pf.PenalizedClassifier:
    source = pf.IPW(pf.simulate.scenario("hiring").unfair, **({} if arm == "auto" else {"arm": arm}))
    return pf.PenalizedClassifier(source=source, penalty=pf.disagreement, progress=False, **settings)


def cpu() -> float:
    """Return the CPU seconds of this process and of those that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def trace(arm: Any, seeds: list[int], settings: dict[str, Any], **given: Any) -> dict[str, Any]:
    """Trace a path; return its objectives by seed and strength and its times."""
    train_rows, test_rows = data()
    model = make(arm, **settings)
    start, wall = cpu(), time.perf_counter()
    path = pf.penalty_path(
        model, train_rows[READS], train_rows["Y"], strengths=STRENGTHS, seeds=seeds, n_boot=0, judge=model.source,
        test=(test_rows[READS], test_rows["Y"]), progress=False, **given,
    )  # fmt: skip
    if given.get("n_jobs", 1) != 1:  # the workers' times count once they have ended
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(wait=True)
    rows = path.table[path.table["decisions"] == "score"]
    table = rows.pivot(index="strength", columns="seed", values="objective")
    return {
        "cpu": cpu() - start,
        "wall": time.perf_counter() - wall,
        "objective": {str(seed): table[seed].tolist() for seed in table},
        "accuracy": float(path.table.query("decisions == 'threshold'")["accuracy"].mean()),
    }


def protocol(arm: Any, seeds: list[int]) -> dict[str, list[float]]:
    """Return the objectives of the paper's protocol at some strengths, by seed."""
    train_rows, _ = data()
    found: dict[str, list[float]] = {}
    for seed in seeds:
        for strength in PROTOCOL:
            model = make(arm, strength=strength, optimizer="sgd", epochs=1000, starts=1, random_state=seed)
            with neutral_torch():
                problem = model.prepare(train_rows[READS], train_rows["Y"])
                module = train(model.new_module(problem), problem, model.penalty, strength, model.schedule())
                found.setdefault(str(seed), []).append(evaluate(module, problem, model.penalty, strength))
    return found


def main(arm: str, seeds: int, compared: int, n_jobs: int, settings: str, protocol_too: bool) -> None:
    own = QUICK | json.loads(settings)
    few = list(range(compared))
    new = trace(arm, list(range(seeds)), own, n_jobs=n_jobs, warm_epochs=140)
    print(
        f"arm={arm!r}, 41 strengths x {seeds} seeds, {own}, n_jobs={n_jobs}: {new['cpu']:.0f} CPU s "
        f"({new['cpu'] / seeds:.0f} a seed), {new['wall']:.0f} s wall, mean accuracy {new['accuracy']:.4f}",
        flush=True,
    )
    whole = np.array([new["objective"][str(seed)] for seed in range(seeds)])
    print(f"mean objective {whole.mean():.5f}, standard deviation of seeds {whole.mean(1).std(ddof=1):.5f}")
    full = trace(arm, few, own, n_jobs=n_jobs)
    ended, all_epochs = (np.array([each["objective"][str(seed)] for seed in few]) for each in (new, full))
    gaps = (ended - all_epochs).mean(0)
    print(
        f"to all epochs, on {compared} seeds: {new['cpu'] / seeds / (full['cpu'] / compared):.2f} of the CPU time; "
        f"objective {ended.mean():.5f} to {all_epochs.mean():.5f} (by strength from {gaps.min():+.5f} to "
        f"{gaps.max():+.5f}; bar +.002: {'holds' if gaps.max() <= 0.002 else 'FALLS SHORT'})",
        flush=True,
    )
    if protocol_too:
        paper = protocol(arm, few)
        at = [int(np.argmin(np.abs(STRENGTHS - strength))) for strength in PROTOCOL]
        for place, strength in enumerate(PROTOCOL):
            mine = [new["objective"][seed][at[place]] for seed in paper]
            theirs = [paper[seed][place] for seed in paper]
            print(f"strength {strength}: {np.round(mine, 4)}, the paper's protocol {np.round(theirs, 4)}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arm", default="paper", help="paper, pooled, 0, 1, or auto, the default of IPW")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--compared", type=int, default=3, help="seeds of both other paths")
    parser.add_argument("--n_jobs", type=int, default=2)
    parser.add_argument("--settings", default="{}", help="settings of the classifier, as JSON")
    parser.add_argument("--no-protocol", dest="protocol_too", action="store_false")
    main(**vars(parser.parse_args()))
