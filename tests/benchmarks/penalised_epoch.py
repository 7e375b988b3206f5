"""What an epoch of penalised training costs, in epochs of plain training: ratios of CPU times taken in one run.

Adult (34,000 training rows) and `hiring` (5,000), the paper's network and logistic regression, batches of 1,000; the
median over interleaved repetitions, without the fit of the source. `IPW` weights rows by each arm; ``units`` are those
of an SEM, known for `hiring`: as many rows in each world as there are observed ones. Run it as
``python tests/benchmarks/penalised_epoch.py``.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from typing import Any

import torch

from pyrofair import IPW, SEM, PenalizedClassifier, PositivityWarning, disagreement
from pyrofair.classifiers.batches import Problem
from pyrofair.classifiers.training import Schedule, make_optimizer, train
from pyrofair.datasets.uci import load_adult
from pyrofair.simulate import scenario

BARS: dict[tuple[str, Any], float] = {
    ("network", "paper"): 1.25, ("network", 0): 2.2, ("network", 1): 2.2, ("network", "pooled"): 2.2,
    ("network", "units"): 3.0, ("logistic", "paper"): 1.6, ("logistic", "units"): 3.0,
}  # fmt: skip
STRENGTH = 1.0


def seconds(classifier: PenalizedClassifier, problem: Problem, epochs: int) -> float:
    """CPU time of an epoch, from an untrained module."""
    module = classifier.new_module(problem)
    schedule = Schedule(epochs, 1000, make_optimizer("adam", None), None, 0, progress=False)
    start = time.process_time()
    train(module, problem, disagreement, STRENGTH, schedule)
    return (time.process_time() - start) / epochs


def tables(names: list[str]) -> dict[str, tuple[Any, Any, Any]]:
    """Return for each name the sources by arm, the features and the outcomes."""
    found: dict[str, tuple[Any, Any, Any]] = {}

    def weights(unfair: Any) -> dict[Any, Any]:
        return {arm: IPW(unfair, arm=arm, max_unsupported=1.0) for _, arm in BARS if arm != "units"}

    if "hiring" in names:
        hiring = scenario("hiring")
        df = hiring.draw(5000, random_state=0)
        units = {"units": SEM(hiring.program, hiring.unfair)}
        found["hiring"] = weights(hiring.unfair) | units, df[["A", "Q", "D", "M"]], df["Y"]
    if "adult" in names:
        adult = load_adult()
        rows, _ = adult.split(0)
        outcome = adult.graph.outcome_column
        found["adult"] = weights(adult.unfair), rows.drop(columns=outcome), rows[outcome]
    return found


def main(repetitions: int, epochs: int, data: list[str]) -> None:
    torch.set_num_threads(1)
    for name, (sources, X, y) in tables(data).items():
        for model in ("network", "logistic"):
            arms = [arm for kind, arm in BARS if kind == model and arm in sources]
            plain = PenalizedClassifier(model, random_state=0)
            rows: dict[Any, Problem] = {"plain": plain.prepare(X, y)}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PositivityWarning)
                for arm in arms:
                    made = PenalizedClassifier(model, source=sources[arm], strength=STRENGTH, random_state=0)
                    rows[arm] = made.prepare(X, y)
            times: dict[Any, list[float]] = {arm: [] for arm in rows}
            for problem in rows.values():
                seconds(plain, problem, 1)  # warm up
            for _ in range(repetitions):
                for arm, problem in rows.items():
                    times[arm].append(seconds(plain, problem, epochs))
            print(
                f"{name}, {model}: {len(X)} rows, {rows['plain'].rows.shape[1]} features; a plain epoch takes "
                f"{statistics.median(times['plain']):.4f} CPU s (median of {repetitions} x {epochs} epochs)"
            )
            for arm in arms:
                bar = BARS[model, arm]
                ratio = statistics.median(each / base for each, base in zip(times[arm], times["plain"], strict=True))
                verdict = "holds" if ratio <= bar else "FALLS SHORT"
                print(f"  arm={arm!r:9} {ratio:.2f} x (bar {bar:.2f} x: {verdict})", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--data", nargs="+", default=["hiring", "adult"], choices=["hiring", "adult"])
    main(**vars(parser.parse_args()))
