"""Accuracy against true PIU on `hiring`, 5,000 training rows: every method in one table, by seeds.

python tests/benchmarks/hiring_frontier.py --seeds 10
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import pandas as pd
import torch

import pyrofair as pf

HIRING = pf.simulate.scenario("hiring")
READS = ["A", "Q", "D", "M"]
PLAIN = (0.0,)


def methods() -> dict[str, tuple[Callable[[float, int], Any], tuple[float, ...]]]:
    """For each method what makes a classifier of a strength and a seed, and the strengths."""

    def penalised(source: Any) -> Callable[[float, int], Any]:
        return lambda strength, seed: pf.PenalizedClassifier(
            source=source, strength=strength, random_state=seed, progress=False
        )

    def removed(kind: Any) -> Callable[[float, int], Any]:
        columns = pf.remove(HIRING.unfair, kind)
        return lambda _, seed: pf.PenalizedClassifier(columns=columns, random_state=seed, progress=False)

    unfair = HIRING.unfair
    return {
        "unpenalised": (lambda _, seed: pf.PenalizedClassifier(random_state=seed, progress=False), PLAIN),
        "Remove (touched)": (removed("touched"), PLAIN),
        "Remove (descendants)": (removed("descendants"), PLAIN),
        "Oracle": (penalised(pf.SEM(HIRING.program, unfair)), (0.5, 1.0, 1.5, 2.0)),
        "given what is shared": (penalised(pf.GComputation(unfair, progress=False)), (0.5, 1.0, 1.25, 1.5, 2.0)),
        "IPW, the paper's group": (penalised(pf.IPW(unfair, arm="paper", max_unsupported=1.0)), (0.5, 1.0, 2.0)),
        "IPW, group 0": (penalised(pf.IPW(unfair, arm=0, max_unsupported=1.0)), (0.5, 1.0, 2.0)),
        "IPW, group 1": (penalised(pf.IPW(unfair, arm=1, max_unsupported=1.0)), (0.5, 1.0, 2.0)),
        "IPW, pooled": (penalised(pf.IPW(unfair, arm="pooled", max_unsupported=1.0)), (0.5, 1.0, 2.0)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", nargs="*", help="methods whose names begin so")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    truth, rows = pf.SEM(HIRING.program, HIRING.unfair), []
    for seed in range(settings.first, settings.first + settings.seeds):
        sizes = ((5000, 0), (1000, 100), (1000, 200), (50_000, 300))
        train, valid, test, fresh = (HIRING.draw(n, random_state=k + seed) for n, k in sizes)
        for name, (make, strengths) in methods().items():
            if settings.only and not any(name.startswith(each) for each in settings.only):
                continue
            for strength in strengths:
                begin = time.perf_counter()
                try:
                    model = make(strength, seed).fit(train[READS], train["Y"])
                except pf.DataError as error:
                    print(f"# {name} at {strength:g}, seed {seed}: {error}"[:160], flush=True)
                    continue
                spent = time.perf_counter() - begin
                scored = [
                    float((model.predict(df[model.feature_names_in_]) == df["Y"]).mean()) for df in (valid, test, fresh)
                ]
                piu = truth.truth(model, n=100_000, random_state=seed).piu.value
                rows.append((name, strength, seed, *scored, piu, spent))
                print(
                    f"{name:24s} {strength:4.2f} {seed:2d} {scored[1]:.4f} {scored[2]:.4f} {piu:.4f} {spent:6.1f} s",
                    flush=True,
                )
    table = pd.DataFrame(
        rows, columns=["method", "strength", "seed", "validation", "accuracy", "fresh", "piu", "seconds"]
    )
    print(
        table.groupby(["method", "strength"], sort=False)[["validation", "accuracy", "fresh", "piu", "seconds"]].agg(
            "mean"
        )
    )
    print(table.groupby(["method", "strength"], sort=False)[["accuracy", "piu"]].agg("std"))


if __name__ == "__main__":
    main()
