"""Diagnostics of the one-step source on data where its weights are usable and where they are not, and what was true.

For each design it prints the worst stage (mean weight and its z, effective size, largest weight), balance and
correction, how often it refused or a verdict was withheld, and, where the truth is known, the errors of the estimates:

python tests/benchmarks/one_step_diagnostics.py --samples 10 --out build
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from coverage import SEM, SEMS, Known
from numpy.typing import NDArray
from scipy.special import expit, ndtri
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor

import pyrofair as pf
from pyrofair.simulate import Scenario, scenario

Values = NDArray[np.float64]
LARGEST_Z = 3.0
"""A larger balance or correction withholds the verdict."""


@dataclass(frozen=True)
class Design:
    """A distribution of rows, unfair paths, a known classifier, and the true effect on its decisions, if known."""

    unfair: pf.UnfairPaths
    draw: Callable[[int], pd.DataFrame]
    model: Any
    truth: float | None
    settings: Mapping[str, Any] = field(default_factory=dict)


class Formula:
    """A known classifier, by a formula of the columns."""

    classes_ = np.array([0, 1])

    def __init__(self, score: Callable[[pd.DataFrame], Any]) -> None:
        self.score = score

    def predict_proba(self, X: pd.DataFrame) -> Values:
        score = expit(np.asarray(self.score(X), dtype=np.float64))
        return np.column_stack([1 - score, score])


# -- further structural equation models -------------------------------------------------------------------------------


def _normal(name: str, mean: Tensor, scale: float = 1.0) -> Tensor:
    noise = pyro.sample(f"U_{name}", dist.Normal(torch.zeros(len(mean)), 1.0))
    return pyro.deterministic(name, mean + scale * noise)


def chain(n: int, *, strength: float = 3.0, noise: float = 0.5) -> None:
    """Draw a chain A -> M1 -> M2 -> M3 in which M1 is nearly determined by A."""
    with pyro.plate("units", n):
        R = pyro.sample("R", dist.Normal(0.0, 1.0))
        A = pyro.sample("A", dist.Bernoulli(torch.sigmoid(0.5 * R)))
        M1 = _normal("M1", strength * A + 0.3 * R, noise)
        M2 = _normal("M2", 0.8 * M1 + 0.5 * A)
        M3 = _normal("M3", 0.6 * M2 - 0.4 * A)
        pyro.sample("Y", dist.Bernoulli(logits=M1 - M2 + M3 + A))


def diamond(n: int, *, strength: float = 1.5) -> None:
    """Draw four mediators, two side by side and two below, all of which A causes."""
    with pyro.plate("units", n):
        R = pyro.sample("R", dist.Normal(0.0, 1.0))
        A = pyro.sample("A", dist.Bernoulli(torch.sigmoid(0.5 * R)))
        M1 = _normal("M1", strength * A + 0.5 * R)
        M2 = _normal("M2", strength * A - 0.5 * R)
        M3 = _normal("M3", 0.7 * M1 + strength * A)
        M4 = _normal("M4", 0.7 * M2 - strength * A)
        pyro.sample("Y", dist.Bernoulli(logits=M1 - M2 + M3 + M4 + A))


CHAIN = pf.CausalGraph(
    "R -> A; {A R} -> M1; {A M1} -> M2; {A M2} -> M3; {A R M1 M2 M3} -> Y", sensitive="A", outcome="Y"
)
DIAMOND = pf.CausalGraph(
    "R -> A; {A R} -> M1; {A R} -> M2; {A M1} -> M3; {A M2} -> M4; {A M1 M2 M3 M4} -> Y", sensitive="A", outcome="Y"
)
CHAIN_SCORE = Formula(lambda X: 0.5 * X["M1"] - 0.7 * X["M2"] + 0.6 * X["M3"] + 0.8 * X["A"] - 0.3)
DIAMOND_SCORE = Formula(lambda X: 0.6 * X["M1"] - 0.5 * X["M2"] + 0.4 * X["M3"] + 0.4 * X["M4"] + 0.5 * X["A"] - 0.6)
HIRING_SCORE = Formula(lambda X: -10.0 + 5.0 * X["A"] + X["Q"] + X["D"] + X["M"])


def shifted(name: str, m1: float, m2: float, direct: float = 0.7) -> SEM:
    """Return a SEM of the coverage study with other effects of A on its mediators and on the score."""
    return replace(
        SEMS[name],
        m1=lambda a, c, e: m1 * a + 0.5 * c["R"] + e,
        m2=lambda a, c, x, e: m2 * a + 0.4 * x - 0.3 * c["R"] + e,
        score=lambda a, c, x, z: expit(-0.6 + direct * a + 0.8 * x - 0.9 * z + 0.6 * np.sin(1.5 * c["R"])),
    )


# -- designs ----------------------------------------------------------------------------------------------------------


def of_sem(sem: SEM, **settings: Any) -> Design:
    """Return a design of a SEM of the coverage study, its truth from 2^21 points."""
    u = torch.quasirandom.SobolEngine(sem.n_roots + 2, scramble=True, seed=0).draw(2**21, dtype=torch.float64).numpy()
    u = u.clip(1e-12, 1 - 1e-12)
    zero, one = ((sem.world(arms, u) > 0.5).mean() for arms in ((0, 0, 0), sem.arms))
    known = Known("logistic right")
    known.sem = sem
    return Design(sem.paths(), partial(_draw, sem), known, float(one - zero), settings)


def _draw(sem: SEM, n: int, seed: int) -> pd.DataFrame:
    return sem.draw(n, seed)


def of_scenario(found: Scenario, model: Any, **settings: Any) -> Design:
    """Return a design of a Pyro program, its truth from as many units."""
    truth = pf.SEM(found.program, found.unfair).truth(model, n=10**6, random_state=0)
    return Design(found.unfair, found.draw, model, truth.mean_unfair_effect.value, settings)


def of_data(name: str, **settings: Any) -> Design:
    """Return a design of a packaged data set, whose samples are some of its rows, without a truth."""
    data = getattr(pf.datasets, f"load_{name}")()
    X, y = data.frame[data.graph.input_columns], data.frame[data.graph.outcome_column]
    trees = HistGradientBoostingClassifier(max_iter=50, categorical_features="from_dtype", random_state=0)
    model = trees.fit(X, y)

    def draw(n: int, seed: int) -> pd.DataFrame:
        return X.sample(min(n, len(X)), random_state=seed)

    return Design(data.unfair, draw, model, None, settings)


def designs() -> Iterator[tuple[str, int, Callable[[], Design]]]:
    """Yield names, rows and what makes each design."""
    logistic = {"propensity": "logistic"}
    both = {"propensity": "logistic", "regression": "logistic"}
    hiring, additive = scenario("hiring"), scenario("additive")
    far = Scenario("chain", chain, CHAIN, CHAIN.unfair(direct=True, through=["M1"]))
    near = Scenario("chain", partial(chain, strength=0.7, noise=1.0), CHAIN, far.unfair)
    mixed = DIAMOND.unfair("A -> Y", "A -> M1 -> Y", "A -> M1 -> M3 -> Y", "A -> M4 -> Y")
    poor, good = (Scenario("diamond", partial(diamond, strength=s), DIAMOND, mixed) for s in (1.5, 0.5))
    for name, sem in SEMS.items():
        yield name, 3000, partial(of_sem, sem)
    yield "logistic right, n = 300", 300, partial(of_sem, SEMS["logistic right"])
    yield "no effect at all", 3000, partial(of_sem, shifted("logistic right", 0.0, 0.0, 0.0))
    yield "shift 1.5 in both mediators", 3000, partial(of_sem, shifted("logistic right", 1.5, 1.5))
    yield "shift 2.5 in both mediators", 3000, partial(of_sem, shifted("logistic right", 2.5, 2.5))
    yield "logistic wrong, logistic weights", 3000, partial(of_sem, SEMS["logistic wrong"], **logistic)
    yield "logistic wrong, both logistic", 3000, partial(of_sem, SEMS["logistic wrong"], **both)
    yield "nonlinear mediator, both logistic", 3000, partial(of_sem, SEMS["nonlinear mediator"], **both)
    yield "hiring", 5000, partial(of_scenario, hiring, HIRING_SCORE)
    yield "additive", 5000, partial(of_scenario, additive, HIRING_SCORE)
    yield "chain, M1 nearly determined", 3000, partial(of_scenario, far, CHAIN_SCORE)
    yield "chain, overlap", 3000, partial(of_scenario, near, CHAIN_SCORE)
    yield "diamond, poor overlap", 3000, partial(of_scenario, poor, DIAMOND_SCORE)
    yield "diamond, overlap", 3000, partial(of_scenario, good, DIAMOND_SCORE)
    yield "adult", 34_000, partial(of_data, "adult")
    yield "adult, logistic weights", 34_000, partial(of_data, "adult", **logistic)
    yield "german", 1000, partial(of_data, "german")


# -- measuring --------------------------------------------------------------------------------------------------------


def decide(model: Any) -> Callable[[Any], Values]:
    """Return the score function of a model's decisions."""

    def score(world: Any) -> Values:
        return (model.predict_proba(world.rows)[:, 1] > 0.5).astype(np.float64)

    return score


def measure(design: Design, n: int, seed: int, form: str) -> dict[str, Any]:
    """Return the diagnostics of one sample in one form, and the error of the effect; or the refusal."""
    df = design.draw(n, seed)
    begin = time.process_time()
    found: dict[str, Any] = {"asked": form, "seed": seed}
    try:
        source = pf.OneStep(design.unfair, form=form, random_state=seed, **design.settings).fit(df)
        values = source.influence(decide(design.model))
    except (pf.PyrofairError, ValueError) as error:
        return found | {"refused": str(error)[:300], "cpu": time.process_time() - begin}
    stages = values.stages
    effect = (values.ypi - values.y0)[:, 0]
    at = (stages["mean_weight"] - 1.0).abs().idxmax()
    doubt = stages[["balance_z", "correction_z"]].abs().max()
    found |= {
        "form": source.form_,
        "problem": "; ".join(text for text in source.stages()["problem"] if text),
        "mean_weight": stages.loc[at, "mean_weight"],
        "mean_weight_z": stages.loc[at, "mean_weight_z"],
        "ess": stages["ess"].min(),
        "max_weight": stages["max_weight"].max() / n,
        "balance_z": doubt["balance_z"],
        "correction_z": doubt["correction_z"],
        "effect": effect.mean(),
        "se": effect.std() / np.sqrt(len(effect)),
        "cpu": time.process_time() - begin,
    }
    return found


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each design and form asked for: medians of the diagnostics, and shares of samples."""
    rows = rows.assign(
        usable=rows["problem"].fillna("refused") == "",
        doubted=rows[["balance_z", "correction_z"]].max(axis=1) > LARGEST_Z,
        error=rows["effect"] - rows["truth"],
    )
    rows["held"] = (rows["error"].abs() <= ndtri(0.975) * rows["se"]).where(rows["error"].notna())
    rows["size"] = rows["error"].abs()
    groups = rows.groupby(["design", "asked"], sort=False)
    table = groups[["mean_weight", "mean_weight_z", "ess", "max_weight", "balance_z", "correction_z"]].median()
    means = groups[["usable", "doubted", "error", "size", "se", "truth", "cpu"]].mean()
    table = table.join(means.rename(columns={"error": "bias", "size": "mean_error"}))
    table.insert(0, "samples", groups.size())
    table["held"] = groups["held"].apply(lambda each: each.astype(float).mean())
    table["graph"] = groups["form"].apply(lambda each: (each == "graph").mean())
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--forms", nargs="+", default=["prefix", "auto"])
    parser.add_argument("--only", nargs="*", help="designs whose names hold one of these")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin no design after so long")
    parser.add_argument("--out", type=Path, default=Path("build"))
    settings = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    settings.out.mkdir(parents=True, exist_ok=True)
    begin, rows = time.perf_counter(), []
    for name, n, make in designs():
        if settings.only and not any(part in name for part in settings.only):
            continue
        if time.perf_counter() - begin > settings.seconds:
            break
        design = make()
        for form in settings.forms:
            for seed in range(settings.samples):
                found = measure(design, n, seed, form)
                rows.append({"design": name, "n": n, "truth": design.truth, **found})
        table = pd.DataFrame(rows)
        table.to_csv(settings.out / "diagnostics.csv", index=False)
        print(summarise(table[table["design"] == name]).round(3).to_string(), flush=True)
    print(summarise(pd.DataFrame(rows)).round(3).to_string())


if __name__ == "__main__":
    main()
