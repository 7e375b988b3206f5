"""What an epoch of penalised training costs, in epochs of plain training: ratios of times taken in one run.

Adult, 34,000 training rows, the paper's network, batches of 1,000; the median over interleaved repetitions, without
the fit of the source. Run it as ``python tests/benchmarks/penalised_epoch.py``.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings

import torch

from pyrofair.classifiers.penalized import PenalizedClassifier
from pyrofair.classifiers.training import Problem, Schedule, train
from pyrofair.datasets.uci import load_adult
from pyrofair.effects.functionals import disagreement
from pyrofair.exceptions import PositivityWarning
from pyrofair.sources.ipw import IPW

BARS = {"paper": 1.25, 0: 2.2, 1: 2.2, "pooled": 2.2}
STRENGTH = 1.0


def seconds(classifier: PenalizedClassifier, problem: Problem, epochs: int) -> float:
    """Time of an epoch, from an untrained module."""
    module = classifier.new_module(problem)
    schedule = Schedule(epochs, 1000, lambda parameters: torch.optim.Adam(parameters, lr=0.01), None, 0, progress=False)
    start = time.perf_counter()
    train(module, problem, disagreement, STRENGTH, schedule)
    return (time.perf_counter() - start) / epochs


def main(repetitions: int, epochs: int) -> None:
    adult = load_adult()
    train_rows, _ = adult.split(0)
    X, y = train_rows.drop(columns=adult.graph.outcome_column), train_rows[adult.graph.outcome_column]
    plain = PenalizedClassifier(random_state=0)
    rows = {"plain": plain.prepare(X, y)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PositivityWarning)
        for arm in BARS:
            source = IPW(adult.unfair, arm=arm, max_unsupported=1.0)
            rows[arm] = PenalizedClassifier(source=source, strength=STRENGTH, random_state=0).prepare(X, y)
    print(f"{len(X)} rows, {rows['plain'].rows.shape[1]} features, {repetitions} repetitions of {epochs} epochs")
    for threads in (1, 2):
        torch.set_num_threads(threads)
        times: dict[object, list[float]] = {name: [] for name in rows}
        for problem in rows.values():
            seconds(plain, problem, 1)  # warm up
        for _ in range(repetitions):
            for name, problem in rows.items():
                times[name].append(seconds(plain, problem, epochs))
        print(f"{threads} thread(s): a plain epoch takes {statistics.median(times['plain']):.3f} s")
        for arm, bar in BARS.items():
            ratios = [each / base for each, base in zip(times[arm], times["plain"], strict=True)]
            ratio = statistics.median(ratios)
            verdict = "holds" if ratio <= bar else "FALLS SHORT"
            print(f"  arm={arm!r:9} {ratio:.2f} x (bar {bar:.2f} x: {verdict})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--epochs", type=int, default=3)
    main(**vars(parser.parse_args()))
