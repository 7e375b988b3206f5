"""Coverage of the intervals of audits: the one-step source, weights, and learned mechanisms, on three known SEMs.

Each has overlap, confounded groups, two mediators that read different values of the sensitive attribute, and a known
classifier. Rows are written as they are found, and the work ends by itself:

python tests/benchmarks/one_step_coverage.py run --samples 500 --sizes 1000 3000 --seconds 500 --jobs 16 --out build
python tests/benchmarks/one_step_coverage.py table --out build
"""

from __future__ import annotations

import argparse
import csv
import itertools
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import expit, ndtri
from scipy.stats import qmc

import pyrofair as pf

Values = NDArray[np.float64]
Columns = dict[str, Values]

OTHER_SPLIT = 1_000_000
"""Added to a seed for other folds of the same sample."""
MARGINAL = ("p_y0", "p_ypi", "mean_unfair_effect", "piu_paper_bound")
ENDS = ("piu_lower", "piu_upper", "piu_double_disagreement")
OUTER, INNER = 14, 10
"""The truth takes 2^OUTER values of what both worlds share, and 2^INNER of the other noise for each."""
SLOW = {"IPW boosted": 50, "GComputation": 20}
"""Sources of which a sample takes minutes, with the replicates of their audits."""
FIELDS = ("sem", "n", "seed", "source", "decisions", "quantity", "estimate", "lower", "upper", "cpu", "note")


@dataclass(frozen=True)
class SEM:
    """Roots, a group, two mediators and a classifier, all functions of uniform noise.

    ``arms`` are the values of A that M1, M2 and the classifier read in the world with unfair paths; ``shares_m1`` says
    whether M1 is the same in both worlds.
    """

    graph: str
    unfair: tuple[str, ...]
    arms: tuple[int, int, int]
    shares_m1: bool
    roots: Callable[[Values], Columns]
    n_roots: int
    propensity: Callable[[Columns], Values]
    m1: Callable[[Any, Columns, Values], Values]
    m2: Callable[[Any, Columns, Values, Values], Values]
    score: Callable[[Any, Columns, Values, Values], Values]

    def paths(self) -> pf.UnfairPaths:
        """Return the unfair paths."""
        return pf.CausalGraph(self.graph, sensitive="A", outcome="Y").unfair(*self.unfair)

    def draw(self, n: int, seed: int) -> pd.DataFrame:
        """Return n observed rows without an outcome."""
        u = np.random.default_rng(seed).random((n, self.n_roots + 3))
        roots = self.roots(u[:, : self.n_roots])
        a = (u[:, -3] < self.propensity(roots)).astype(np.int64)
        m1 = self.m1(a, roots, ndtri(u[:, -2]))
        return pd.DataFrame({**roots, "A": a, "M1": m1, "M2": self.m2(a, roots, m1, ndtri(u[:, -1]))})

    def world(self, arms: tuple[int, int, int], u: Values) -> Values:
        """Return the scores in a world of units with noise u, (m, n_roots + 2)."""
        roots = self.roots(u[:, : self.n_roots])
        m1 = self.m1(arms[0], roots, ndtri(u[:, -2]))
        return self.score(arms[2], roots, m1, self.m2(arms[1], roots, m1, ndtri(u[:, -1])))


class Known:
    """A classifier that is known, not fitted: the score of a SEM, with the interface of scikit-learn."""

    classes_ = np.array([0, 1])

    def __init__(self, sem: str) -> None:
        self.sem = SEMS[sem]

    def predict_proba(self, X: pd.DataFrame) -> Values:
        """Return the probabilities of both classes."""
        columns: Columns = {name: X[name].to_numpy(np.float64) for name in X}
        score = self.sem.score(columns["A"], columns, columns["M1"], columns["M2"])
        return np.column_stack([1 - score, score])


def _complete(*roots: str) -> str:
    names = " ".join(roots)
    return f"{{{names}}} -> A; {{A {names}}} -> M1; {{A M1 {names}}} -> M2; {{A M1 M2 {names}}} -> Y"


def _crossed(c: Columns) -> Values:
    """Return a cause of both the group and M1, in [-1, 1], that no main effects of the roots show."""
    return np.asarray(2 * expit(2.0 * (c["R"] ** 2 - 1.0) * (2 * c["Q"] - 1)) - 1)


THROUGH_M1 = ("A -> Y", "A -> M1 -> Y", "A -> M1 -> M2 -> Y")
SEMS = {
    "logistic right": SEM(
        _complete("R"),
        THROUGH_M1,
        arms=(1, 0, 1),
        shares_m1=False,
        roots=lambda u: {"R": ndtri(u[:, 0])},
        n_roots=1,
        propensity=lambda c: expit(0.2 + 0.6 * c["R"]),
        m1=lambda a, c, e: 0.7 * a + 0.5 * c["R"] + e,
        m2=lambda a, c, m1, e: 0.6 * a + 0.4 * m1 - 0.3 * c["R"] + e,
        score=lambda a, c, m1, m2: expit(-0.6 + 0.7 * a + 0.8 * m1 - 0.9 * m2 + 0.6 * np.sin(1.5 * c["R"])),
    ),
    "logistic wrong": SEM(
        _complete("R", "Q"),
        THROUGH_M1,
        arms=(1, 0, 1),
        shares_m1=False,
        roots=lambda u: {"R": ndtri(u[:, 0]), "Q": (u[:, 1] < 0.5).astype(np.float64)},
        n_roots=2,
        propensity=lambda c: 0.5 + 0.3 * _crossed(c),
        m1=lambda a, c, e: 1.4 * _crossed(c) + 0.8 * a * np.cos(1.5 * c["R"]) + (1.0 - 0.15 * a) * e,
        m2=lambda a, c, m1, e: 0.9 * a * np.cos(1.5 * m1) + 0.6 * np.cos(m1) + 0.3 * c["R"] ** 2 + e,
        score=lambda a, c, m1, m2: expit(
            -0.8 + 0.6 * a + 0.8 * m1 + 0.6 * m2 - 0.2 * m1**2 + 0.6 * c["R"] * (2 * c["Q"] - 1) + 0.4 * a * m2
        ),
    ),
    "nonlinear mediator": SEM(
        _complete("R"),
        ("A -> M2 -> Y",),
        arms=(0, 1, 0),
        shares_m1=True,
        roots=lambda u: {"R": ndtri(u[:, 0])},
        n_roots=1,
        propensity=lambda c: expit(0.3 - 0.5 * c["R"]),
        m1=lambda a, c, e: 0.6 * a + 0.4 * c["R"] + e,
        m2=lambda a, c, m1, e: 1.2 * np.sin(2.0 * m1) + 0.5 * a * (1.0 + np.sin(m1)) + 0.3 * c["R"] + e,
        score=lambda a, c, m1, m2: expit(-0.5 + 0.5 * a + 1.1 * m2 - 0.5 * m1 * c["R"] + 0.4 * np.cos(2 * m1)),
    ),
}


# -- the truth --------------------------------------------------------------------------------------------------------


@cache
def truth(name: str, seed: int = 0) -> dict[tuple[str, str], float]:
    """Return the truth by decisions and quantity, by quasi-Monte Carlo over shared and over other noise.

    Ends given what both worlds share carry that name, those of the marginals ``marginal`` before it. The points of
    the other noise are shifted at random for each value of what is shared, so that their errors average out.
    """
    sem = SEMS[name]
    kept = sem.n_roots + sem.shares_m1
    shared = qmc.Sobol(kept, seed=seed).random_base2(OUTER)
    other = qmc.Sobol(sem.n_roots + 2 - kept, seed=seed + 1).random_base2(INNER)
    shifts = np.random.default_rng(seed).random((len(shared), other.shape[1]))
    means: dict[str, list[tuple[float, float]]] = {"threshold": [], "score": []}
    for part, shift in zip(np.array_split(shared, 64), np.array_split(shifts, 64), strict=True):
        inner = ((other + shift[:, None]) % 1.0).reshape(-1, other.shape[1])
        u = np.hstack([np.repeat(part, len(other), axis=0), inner])
        for decisions, found in means.items():
            both = (sem.world(arms, u) for arms in ((0, 0, 0), sem.arms))
            scores = ((score > 0.5).astype(np.float64) if decisions == "threshold" else score for score in both)
            found += zip(*(score.reshape(len(part), -1).mean(axis=1) for score in scores), strict=True)
    values = {}
    for decisions, found in means.items():
        a, b = np.array(found).T
        p0, p1 = a.mean(), b.mean()
        quantities = {
            "p_y0": p0,
            "p_ypi": p1,
            "mean_unfair_effect": p1 - p0,
            "piu_paper_bound": 2 * (p0 + p1 - 2 * p0 * p1),
            "marginal piu_lower": abs(p1 - p0),
            "marginal piu_upper": 1 - abs(1 - p0 - p1),
            "piu_lower": np.abs(b - a).mean(),
            "piu_upper": 1 - np.abs(1 - a - b).mean(),
            "piu_double_disagreement": 2 * (a + b - 2 * a * b).mean(),
        }
        values |= {(decisions, quantity): float(value) for quantity, value in quantities.items()}
    return values


# -- a sample ---------------------------------------------------------------------------------------------------------


class Task(NamedTuple):
    """One sample and one source."""

    sem: str
    n: int
    seed: int
    source: str
    settings: tuple[tuple[str, Any], ...] = ()


def make_source(task: Task) -> tuple[Any, int]:
    """Return an unfitted source and the replicates of its audit."""
    unfair, seed, settings = SEMS[task.sem].paths(), task.seed, dict(task.settings)
    kind, *split = task.source.split(":")
    if kind == "OneStep":
        return pf.OneStep(unfair, random_state=seed + OTHER_SPLIT * bool(split), **settings), 0
    if kind == "IPW logistic":
        return pf.IPW(unfair, random_state=seed), 200
    if kind == "IPW boosted":
        return pf.IPW(unfair, propensity="boosted", random_state=seed), SLOW[kind]
    return pf.GComputation(unfair, progress=False, random_state=seed), SLOW[kind]


def one(task: Task) -> list[dict[str, Any]]:
    """Return a row for each kind of decisions and quantity of a sample's audit, or one with the refusal."""
    df = SEMS[task.sem].draw(task.n, task.seed)
    source, replicates = make_source(task)
    head = {"sem": task.sem, "n": task.n, "seed": task.seed, "source": task.source}
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            report = pf.audit(
                {"known": Known(task.sem)},
                source,
                df,
                n_boot=replicates,
                n_jobs=1,
                progress=False,
                random_state=task.seed,
            )
        except (ValueError, pf.PyrofairError) as error:
            return [{**head, "cpu": time.process_time() - start, "note": f"refused: {error}"[:200]}]
    spent = time.process_time() - start
    rows = []
    for found in report.table.itertuples():
        if found.quantity not in MARGINAL + ENDS:
            continue
        values = {name: getattr(found, name) for name in ("decisions", "quantity", "estimate", "lower", "upper")}
        rows.append({**head, **values, "cpu": spent, "note": found.note})
    return rows


def tasks(samples: Mapping[str, int], sizes: list[int], first: int, settings: Mapping[str, Any]) -> Iterator[Task]:
    """Yield the samples, seeds first, so that an early end leaves equal numbers of each; slow sources come last."""
    for slow in (False, True):
        part = {source: number for source, number in samples.items() if (source in SLOW) == slow}
        for seed in range(max(part.values())):
            for (source, number), n, sem in itertools.product(part.items(), sorted(sizes, reverse=True), SEMS):
                if seed < number:
                    yield Task(sem, n, first + seed, source, tuple(settings.items()))


def run(work: Iterator[Task], path: Path, seconds: float, jobs: int) -> None:
    """Do the tasks in processes, append their rows to a file as they are found, and stop after some seconds."""
    begin = time.perf_counter()
    done, fresh = 0, not path.exists()
    with path.open("a", newline="") as file, multiprocessing.get_context("fork").Pool(jobs) as pool:
        writer = csv.DictWriter(file, FIELDS)
        if fresh:
            writer.writeheader()
        results = pool.imap_unordered(one, work)
        while (left := seconds - (time.perf_counter() - begin)) > 0:
            try:
                writer.writerows(results.next(timeout=left))
            except StopIteration:
                break
            except multiprocessing.TimeoutError:
                break
            file.flush()
            done += 1
        pool.terminate()
    print(f"{done} audits in {time.perf_counter() - begin:.0f} s", flush=True)


# -- the table --------------------------------------------------------------------------------------------------------


def summarise(found: pd.DataFrame) -> pd.DataFrame:
    """Return coverage, bias, the spread of the estimates, their mean standard error, and CPU time, by quantity."""
    made = found[found["quantity"].notna()]
    ends = made["source"].str.startswith("IPW") & made["quantity"].isin(["piu_lower", "piu_upper"])
    names = made["quantity"].where(~ends, "marginal " + made["quantity"])
    known = [
        truth(sem)[decisions, name] for sem, decisions, name in zip(made["sem"], made["decisions"], names, strict=True)
    ]
    made = made.assign(truth=known)
    made = made.assign(
        covered=made["truth"].between(made["lower"], made["upper"]).where(made["lower"].notna(), np.nan).astype(float),
        error=made["estimate"] - made["truth"],
        se=(made["upper"] - made["lower"]) / (2 * ndtri(0.975)),
    )
    groups = made.groupby(["source", "sem", "n", "decisions", "quantity"], sort=False)
    return pd.DataFrame(
        {
            "samples": groups.size(),
            "coverage": groups["covered"].mean(),
            "no_interval": groups["lower"].apply(lambda each: each.isna().mean()),
            "bias": groups["error"].mean(),
            "sd": groups["error"].std(),
            "mean_se": groups["se"].mean(),
            "cpu": groups["cpu"].mean(),
        }
    ).assign(se_to_sd=lambda table: table["mean_se"] / table["sd"])


def main() -> None:
    """Run, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["run", "table", "truth"])
    parser.add_argument("--out", type=Path, default=Path("build"))
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--second", type=int, default=0, help="samples with other folds too")
    parser.add_argument("--beside", type=int, default=0, help="samples with IPW, logistic")
    parser.add_argument("--few", type=int, default=0, help="samples with IPW, boosted, and with GComputation")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 3000])
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--jobs", type=int, default=1)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    settings.out.mkdir(parents=True, exist_ok=True)
    path = settings.out / "coverage.csv"
    if settings.step == "truth":
        table = pd.DataFrame({(name, seed): truth(name, seed) for name in SEMS for seed in (0, 7)})
        print(table.round(5).to_string())
        return
    if settings.step == "run":
        few = dict.fromkeys(SLOW, settings.few)
        one_step = {"OneStep": settings.samples, "OneStep: other folds": settings.second}
        samples = {**one_step, "IPW logistic": settings.beside, **few}
        run(tasks(samples, settings.sizes, settings.first, {}), path, settings.seconds, settings.jobs)
        return
    found = pd.read_csv(path)
    print(summarise(found).round(4).to_string())
    refused = found[found["quantity"].isna()]
    if len(refused):
        print(refused.groupby(["source", "sem", "n", "note"]).size().to_string())


if __name__ == "__main__":
    main()
