"""What flows through the package cost in calls, which a busy machine does not change: of the package, and of all code.

python tests/benchmarks/flows.py

Each flow runs once to load what it needs and to fill caches, then again under cProfile. ``calls`` are those of the
package's functions, in so many ``modules``; ``all`` counts those of libraries, too, so that a second fit or a further
pass through a network shows. To compare two versions set ``PYTHONPATH``; the script prints which package it uses.
A test compares the calls with ``KEPT``; where a flow has become shorter, lower its numbers there.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import re
import tempfile
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression

import pyrofair as pf
from pyrofair.commands import main as command_line

PACKAGE = str(Path(pf.__file__).parent)
READS = ["A", "Q", "D", "M"]


class Cost(NamedTuple):
    """Files of the package that a flow touches, its calls of their functions, and all calls."""

    modules: int
    calls: int
    all: int


@cache
def hiring(n: int = 400) -> tuple[Any, pd.DataFrame]:
    scenario = pf.simulate.scenario("hiring")
    return scenario, scenario.draw(n, random_state=0)


@cache
def binary(n: int = 800) -> tuple[pf.UnfairPaths, pd.DataFrame]:
    """Return rows whose groups overlap."""
    rng = np.random.default_rng(0)
    q, a = rng.normal(size=n).round(2), rng.integers(0, 2, n)
    d = (0.5 * a + q + rng.normal(size=n)).round(2)
    m = (0.3 * q + a + rng.normal(size=n)).round(2)
    y = (rng.random(n) < 1 / (1 + np.exp(-(a + q + m)))).astype(int)
    graph = pf.CausalGraph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
    return graph.unfair("A -> Y", "A -> D -> Y"), pd.DataFrame({"A": a, "Q": q, "D": d, "M": m, "Y": y})


@cache
def model() -> LogisticRegression:
    _, df = binary()
    return LogisticRegression().fit(df[READS], df["Y"])


def audit(source: type[Any] = pf.OneStep, n_boot: int = 0, **settings: Any) -> pf.Audit:
    unfair, df = binary()
    made = source(unfair, random_state=0, **settings)
    return pf.audit({"model": model()}, made, df, n_boot=n_boot, n_jobs=1, progress=False, random_state=0)


def fit(source: Any) -> pf.PenalizedClassifier:
    """Train for few epochs, given units where the source knows them."""
    _, df = hiring()
    settings = {"epochs": 4, "starts": 1, "progress": False, "random_state": 0}
    return pf.PenalizedClassifier(source=source, **settings).fit(df[READS], df["Y"])


@cache
def learned() -> Any:
    scenario, df = hiring()
    return pf.GComputation(
        scenario.unfair, parameters="linear", components=1, draws=20, progress=False, random_state=0
    ).fit(df[READS])


def command() -> None:
    """Audit a CSV file with the scores of a model, from arguments to a folder of results."""
    _, df = binary()
    graph = ("--graph", "{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", "--sensitive", "A", "--outcome", "Y")
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
        path = Path(folder, "rows.csv")
        df.assign(score=model().predict_proba(df[READS])[:, 1].round(4)).to_csv(path, index=False)
        fast = ("--propensity", "logistic", "--regression", "logistic")
        command_line(
            ("audit", str(path), *graph, "--unfair", "A -> Y", "--score", "score", *fast, "--output", f"{folder}/found")
        )


def nodes() -> pd.DataFrame:
    scenario, _ = hiring()
    return pf.SEM(scenario.program, scenario.unfair).nodes(1000, random_state=0)


def worlds() -> Any:
    scenario, _ = hiring()
    return pf.SEM(scenario.program, scenario.unfair).worlds(n=1000, random_state=0)


def penalty_path() -> Any:
    unfair, df = binary()
    model = pf.PenalizedClassifier("logistic", source=pf.IPW(unfair), epochs=4, starts=1, progress=False)
    settings = {"seeds": [0, 1], "judge": model.source, "n_boot": 0, "n_jobs": 1, "progress": False}
    return pf.penalty_path(model, df[READS], df["Y"], strengths=[0.0, 1.0, 2.0], **settings)


def pscf() -> pf.PSCF:
    scenario, df = hiring()
    settings = {"epochs": 4, "samples": 3, "progress": False, "random_state": 0}
    return pf.PSCF(scenario.unfair, **settings).fit(df[READS], df["Y"])


FLOWS: dict[str, Callable[[], Any]] = {
    "audit by OneStep": audit,
    "audit by weights, 20 replicates": lambda: audit(pf.IPW, n_boot=20),
    "audit by boosted weights, 3 replicates": lambda: audit(pf.IPW, n_boot=3, propensity="boosted"),
    "fit": lambda: fit(None),
    "fit with weights": lambda: fit(pf.IPW(hiring()[0].unfair, arm="paper", max_unsupported=1.0)),
    "fit given units": lambda: fit(learned()),
    "penalty path": penalty_path,
    "PSCF": pscf,
    "learned mechanisms": lambda: learned.__wrapped__(),
    "SEM.nodes": nodes,
    "SEM.worlds": worlds,
    "command line": command,
}
KEPT = {
    "audit by OneStep": Cost(45, 34_972, 7_626_791),  # means of three splits; one of them lacks overlap: graph form
    "audit by weights, 20 replicates": Cost(34, 20_763, 559_933),
    "audit by boosted weights, 3 replicates": Cost(34, 10_034, 459_281),
    "fit": Cost(10, 493, 21_280),
    "fit with weights": Cost(33, 5_765, 246_267),  # the classifier is tested to be a function of one row
    "fit given units": Cost(37, 3_091, 93_406),
    "penalty path": Cost(44, 39_254, 1_681_721),  # its figures are those of audits, with their checks of a model
    "PSCF": Cost(25, 9_713, 466_904),
    "learned mechanisms": Cost(28, 1_982, 35_021),
    "SEM.nodes": Cost(17, 4_454, 47_468),
    "SEM.worlds": Cost(19, 4_448, 46_732),
    "command line": Cost(54, 40_461, 1_906_708),
}


def cost(name: str) -> Cost:
    """Return what a flow costs once it is warm."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        FLOWS[name]()
        profile = cProfile.Profile()
        profile.runcall(FLOWS[name])
    calls = {place: each[1] for place, each in pstats.Stats(profile).stats.items()}  # type: ignore[attr-defined]
    ours = {place: count for place, count in calls.items() if place[0].startswith(PACKAGE)}
    return Cost(len({place[0] for place in ours}), sum(ours.values()), sum(calls.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression: flows whose name it matches")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{PACKAGE}\n{'flow':40} modules     calls        all")
    for name in [each for each in FLOWS if re.search(settings.only, each)]:
        found = cost(name)
        print(f"{name:40} {found.modules:7} {found.calls:9,} {found.all:10,}", flush=True)


if __name__ == "__main__":
    main()
