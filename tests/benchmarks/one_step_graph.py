"""How the graph form of the one-step estimator does where prefixes lack overlap: bias, coverage, spread and CPU time.

python tests/benchmarks/one_step_graph.py hiring --draws 20
python tests/benchmarks/one_step_graph.py diamond chain --draws 30 --n 3000
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm, truncnorm
from sklearn.ensemble import HistGradientBoostingClassifier

import pyrofair as pf
from pyrofair.effects.influence import InfluenceValues, Scorer
from pyrofair.effects.potential_outcomes import CounterfactualSample
from pyrofair.effects.scoring import positive_scores
from pyrofair.nuisances.rows import Nuisances, Rows
from pyrofair.sources.graph_form import GraphForm

Array = NDArray[np.float64]
Z = 1.96
CASES = ("hiring", "diamond", "chain")


class Design:
    """A data-generating process with its unfair paths, a classifier, and the truth by simulation."""

    unfair: pf.UnfairPaths
    score: Scorer

    def draw(self, n: int, seed: int) -> pd.DataFrame:
        """Return n observed rows."""
        raise NotImplementedError

    def given_shared(self, n: int, seed: int) -> tuple[Array, Array]:
        """Return the mean scores of both worlds given what they share, at n units, (n, Q) each."""
        raise NotImplementedError

    def truth(self, n: int) -> dict[str, Array]:
        """Return the means and the bounds on PIU given the shared features, (Q,) each."""
        a, b = self.given_shared(n, 12345)
        return {
            "y0": a.mean(0),
            "ypi": b.mean(0),
            "effect": (b - a).mean(0),
            "lower": np.abs(b - a).mean(0),
            "upper": 1.0 - np.abs(1.0 - a - b).mean(0),
            "disagreement": (a + b - 2.0 * a * b).mean(0),
        }


def spread(n: int) -> Array:
    """Return normal quantiles at even steps, shape (n,)."""
    return np.asarray(norm.ppf((np.arange(n) + 0.5) / n))


def scorer_of(model: Any, graph: pf.CausalGraph) -> Scorer:
    def score(sample: Any) -> Array:
        p = positive_scores("model", model, sample.rows, graph)
        return np.column_stack([p, p > 0.5])

    return score


class Hiring(Design):
    """The paper's simulation, with a network or boosted trees fitted on another draw."""

    def __init__(self, model: str) -> None:
        self.scenario = pf.simulate.scenario("hiring")
        self.unfair = self.scenario.unfair
        other, reads = self.scenario.draw(5000, random_state=10_000), ["A", "Q", "D", "M"]
        trees = HistGradientBoostingClassifier(max_iter=60, random_state=0)
        chosen = pf.PenalizedClassifier(random_state=0, progress=False) if model == "network" else trees
        self.score = scorer_of(chosen.fit(other[reads], other["Y"]), self.unfair.graph)

    def draw(self, n: int, seed: int) -> pd.DataFrame:
        return self.scenario.draw(n, random_state=seed)[["A", "Q", "D", "M"]]

    def given_shared(self, n: int, seed: int, inner: int = 100) -> tuple[Array, Array]:
        random = np.random.default_rng(seed)
        q = np.floor(2.0 + 5.0 * spread(n))
        m = 0.4 * q * truncnorm.rvs((0.1 - 3) / 2, 0.0, 3.0, 2.0, size=n, random_state=random)
        found = []
        for value in (0, 1):
            u = truncnorm.rvs(-1.9, 1.0, 2.0, 1.0, size=(inner, n), random_state=random)
            d = value + np.floor(0.5 * q * u)
            rows = pd.DataFrame({"A": value, "Q": np.tile(q, inner), "D": d.ravel(), "M": np.tile(m, inner)})
            scores = self.score(CounterfactualSample(rows.astype({"Q": int, "D": int}), np.full(len(rows), 1.0)))
            found.append(scores.reshape(inner, n, -1).mean(0))
        return found[0], found[1]


class Diamond(Design):
    """Four mediators of mixed arms: M2 nearly follows A, so that prefixes with it separate the groups."""

    def __init__(self, strength: float = 3.0) -> None:
        graph = pf.CausalGraph(
            "Q -> A; A -> {M1 M2 M3 M4}; M1 -> M3; {M2 M3 Q} -> M4; {Q M3 M4} -> Y", sensitive="A", outcome="Y"
        )
        self.strength = strength
        self.unfair = graph.unfair(lambda path: path[1] in ("M1", "M2", "M4"))
        self.score = self._score

    @staticmethod
    def _score(sample: Any) -> Array:
        x = sample.rows
        p = expit((x["M3"] + 0.8 * x["M4"] + 0.5 * x["Q"] - 0.4 * x["M3"] * x["M4"]).to_numpy(float))
        return np.column_stack([p, p > 0.5])

    def _world(self, random: np.random.Generator, arms: tuple[Any, ...], a: Any, q: Array) -> pd.DataFrame:
        """Return a row for each q, the nodes reading A as ``arms`` says."""
        n = len(q)
        m1 = 0.8 * arms[0] + random.normal(size=n)
        m2 = self.strength * arms[1] + random.normal(size=n)
        m3 = np.tanh(m1) + 0.5 * arms[2] + 0.7 * random.normal(size=n)
        m4 = 0.5 * m2 + 0.5 * arms[3] + 0.3 * q + 0.3 * m2 * np.tanh(m3) + 0.7 * random.normal(size=n) - 1.0
        return pd.DataFrame({"A": a, "Q": q, "M1": m1, "M2": m2, "M3": m3, "M4": m4})

    def draw(self, n: int, seed: int) -> pd.DataFrame:
        random = np.random.default_rng(seed)
        q = random.normal(size=n)
        a = (random.random(n) < expit(0.5 * q)).astype(int)
        return self._world(random, (a,) * 4, a, q)

    def given_shared(self, n: int, seed: int, inner: int = 100) -> tuple[Array, Array]:
        random = np.random.default_rng(seed)
        return mean_scores(self, [(0, 0, 0, 0), (1, 1, 0, 1)], inner, random, spread(n))


class Chain(Design):
    """Three mediators in a row, the first nearly determined by A: neither form has overlap."""

    def __init__(self, strength: float = 4.0) -> None:
        graph = pf.CausalGraph(
            "Q -> A; A -> {M1 M2 M3}; M1 -> M2; M2 -> M3; {Q M2 M3} -> Y", sensitive="A", outcome="Y"
        )
        self.strength = strength
        self.unfair = graph.unfair(lambda path: path[1] in ("M1", "M3"))
        self.score = self._score

    @staticmethod
    def _score(sample: Any) -> Array:
        x = sample.rows
        p = expit((x["M2"] + x["M3"] + 0.5 * x["Q"] - 1.0).to_numpy(float))
        return np.column_stack([p, p > 0.5])

    def _world(self, random: np.random.Generator, arms: tuple[Any, ...], a: Any, q: Array) -> pd.DataFrame:
        n = len(q)
        m1 = self.strength * arms[0] + random.normal(size=n)
        m2 = 0.5 * m1 + 0.5 * arms[1] * np.sin(m1) + 0.5 * random.normal(size=n)
        m3 = 0.5 * m2 + 0.5 * arms[2] + 0.5 * random.normal(size=n)
        return pd.DataFrame({"A": a, "Q": q, "M1": m1, "M2": m2, "M3": m3})

    def draw(self, n: int, seed: int) -> pd.DataFrame:
        random = np.random.default_rng(seed)
        q = random.normal(size=n)
        a = (random.random(n) < expit(0.5 * q)).astype(int)
        return self._world(random, (a,) * 3, a, q)

    def given_shared(self, n: int, seed: int, inner: int = 100) -> tuple[Array, Array]:
        random = np.random.default_rng(seed)
        return mean_scores(self, [(0, 0, 0), (1, 0, 1)], inner, random, spread(n))


def mean_scores(
    design: Any, worlds: list[tuple[int, ...]], inner: int, random: np.random.Generator, *shared: Array
) -> tuple[Array, Array]:
    """Return the mean scores of both worlds at each value of what they share."""
    found = []
    for arms in worlds:
        rows = (design._world(random, arms, 0, *shared) for _ in range(inner))
        found.append(np.mean([design.score(CounterfactualSample(each, np.ones(len(each)))) for each in rows], axis=0))
    return found[0], found[1]


def make(case: str, model: str) -> Design:
    return {"hiring": lambda: Hiring(model), "diamond": Diamond, "chain": Chain}[case]()


def summary(values: InfluenceValues, truth: dict[str, Array]) -> dict[str, Array]:
    """Return errors, standard errors and what intervals hold, (Q,) each."""

    def of(x: Array) -> tuple[Array, Array]:
        return x.mean(0), x.std(0) / np.sqrt(len(x))

    effect, effect_se = of(values.ypi - values.y0)
    lower, lower_se = of(values.lower)
    rest, rest_se = of(values.rest)
    disagreement, disagreement_se = of(values.disagreement)
    low, high = np.abs(lower), 1.0 - np.abs(rest)
    return {
        "effect error": effect - truth["effect"],
        "effect se": effect_se,
        "effect held": np.abs(effect - truth["effect"]) <= Z * effect_se,
        "lower error": low - truth["lower"],
        "lower held": np.abs(low - truth["lower"]) <= Z * lower_se,
        "upper error": high - truth["upper"],
        "upper held": np.abs(high - truth["upper"]) <= Z * rest_se,
        "disagreement error": disagreement - truth["disagreement"],
        "disagreement held": np.abs(disagreement - truth["disagreement"]) <= Z * disagreement_se,
        "width given S": high - low,
        "PIU range held": (low - Z * lower_se <= truth["upper"]) & (high + Z * rest_se >= truth["lower"]),
        "both ends inside": (low - Z * lower_se <= truth["lower"]) & (high + Z * rest_se >= truth["upper"]),
    }


def one(design: Design, n: int, seed: int, form: str) -> tuple[InfluenceValues, pd.DataFrame, float]:
    df = design.draw(n, seed)
    if form == "prefix":
        begin = time.process_time()
        source = pf.OneStep(design.unfair, form="prefix", random_state=seed).fit(df)
        values, stages = source.influence(design.score), source.stages()
        return values, stages, time.process_time() - begin
    begin = time.process_time()
    rows = Rows.read(df, None, design.unfair.graph)
    nuisances = Nuisances(design.unfair.graph, "boosted", rows, seed, None)
    form = GraphForm(pf.identify(design.unfair), nuisances, seed)
    values, stages = form.influence(design.score, rows), form.stages(rows)
    return values, stages, time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=CASES, choices=CASES)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--n", type=int, default=5000)
    parser.add_argument("--units", type=int, default=20_000, help="of which the truth is made")
    parser.add_argument("--form", choices=("graph", "prefix"), default="graph")
    parser.add_argument("--model", choices=("network", "boosted"), default="network")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    pd.set_option("display.width", 200, "display.max_columns", 30)
    for case in settings.cases:
        design = make(case, settings.model)
        truth = design.truth(settings.units)
        print(case, {name: value.round(4).tolist() for name, value in truth.items()}, flush=True)
        found, flagged, seconds = [], 0, []
        for seed in range(settings.first, settings.first + settings.draws):
            values, stages, spent = one(design, settings.n, seed, settings.form)
            if seed == settings.first:
                print(stages.round(3).to_string())
                print(values.stages.drop(columns=["arm", "given"]).round(3).to_string(), flush=True)
            found.append(summary(values, truth))
            flagged += bool((stages["problem"] != "").any())
            seconds.append(spent)
        table = pd.DataFrame(
            {name: np.mean([each[name] for each in found], axis=0) for name in found[0]}, index=["score", "threshold"]
        ).T
        table["sd score"], table["sd threshold"] = np.array(
            [np.std([each[name] for each in found], axis=0) for name in found[0]]
        ).T
        print(table.round(4).to_string())
        print(f"flagged {flagged} of {len(found)}; {np.mean(seconds):.1f} CPU s an audit\n", flush=True)


if __name__ == "__main__":
    main()
