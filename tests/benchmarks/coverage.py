"""Coverage of the intervals of audits, by source, on known SEMs: where groups overlap, and where they do not.

Each has confounded groups, two mediators that read different values of the sensitive attribute, and a known
classifier, whose audit is repeated on many samples. Finished samples are kept, so that an ended run goes on:

python tests/benchmarks/coverage.py run --replications 500 --jobs 2 --out build/coverage
python tests/benchmarks/coverage.py table --out build/coverage
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import joblib
import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from scipy import special
from scipy.stats import beta, qmc
from tqdm import tqdm

import pyrofair as pf
from pyrofair._cells import CellFolder, Failure, attempt

Values = NDArray[np.float64]
Columns = dict[str, Values]

MARGINAL = ("p_y0", "p_ypi", "mean_unfair_effect", "piu_paper_bound")
ENDS = ("piu_lower", "piu_upper", "piu_double_disagreement")
OUTER, INNER = 14, 10
"""The truth takes 2^OUTER values of the shared features, and 2^INNER of the other noise for each."""
N_BOOT = 39
"""The least and the greatest of 39 replicates end an interval of 95 %, which holds as much as that of more, and is
found in a fifth of the time; it is 8 % longer on average, and its length varies more."""
DRAWS = 50
"""Values that learned mechanisms draw for a unit, where they are drawn: a quarter of the default."""
N = 1_000


@dataclass(frozen=True)
class SEM:
    """Roots, a group, two mediators and a classifier, all functions of uniform noise.

    ``arms`` are the values of A that M1, M2 and the classifier read in the world with unfair paths; ``shares_m1`` says
    whether M1 is the same in both worlds.
    """

    propensity: Callable[[Columns], Values]
    m1: Callable[[Any, Columns, Values], Values]
    m2: Callable[[Any, Columns, Values, Values], Values]
    score: Callable[[Any, Columns, Values, Values], Values]
    roots: Callable[[Values], Columns] = lambda u: {"R": special.ndtri(u[:, 0])}
    names: tuple[str, ...] = ("R",)
    unfair: tuple[str, ...] = ("A -> Y", "A -> M1 -> Y", "A -> M1 -> M2 -> Y")
    arms: tuple[int, int, int] = (1, 0, 1)
    shares_m1: bool = False

    @property
    def n_roots(self) -> int:
        return len(self.names)

    def paths(self) -> pf.UnfairPaths:
        """Return the unfair paths, in a graph without a missing edge."""
        names = " ".join(self.names)
        edges = f"{{{names}}} -> A; {{A {names}}} -> M1; {{A M1 {names}}} -> M2; {{A M1 M2 {names}}} -> Y"
        return pf.CausalGraph(edges, sensitive="A", outcome="Y").unfair(*self.unfair)

    def draw(self, n: int, seed: int) -> pd.DataFrame:
        u = np.random.default_rng(seed).random((n, self.n_roots + 3))
        roots = self.roots(u[:, : self.n_roots])
        a = (u[:, -3] < self.propensity(roots)).astype(np.int64)
        m1 = self.m1(a, roots, special.ndtri(u[:, -2]))
        return pd.DataFrame({**roots, "A": a, "M1": m1, "M2": self.m2(a, roots, m1, special.ndtri(u[:, -1]))})

    def world(self, arms: tuple[int, int, int], u: Values) -> Values:
        """Return the scores in a world of units with noise u, (m, n_roots + 2)."""
        roots = self.roots(u[:, : self.n_roots])
        m1 = self.m1(arms[0], roots, special.ndtri(u[:, -2]))
        return self.score(arms[2], roots, m1, self.m2(arms[1], roots, m1, special.ndtri(u[:, -1])))


class Known:
    """A classifier that is known, not fitted: the score of a SEM, with the interface of scikit-learn."""

    classes_ = np.array([0, 1])

    def __init__(self, sem: str) -> None:
        self.sem = SEMS[sem]

    def predict_proba(self, X: pd.DataFrame) -> Values:
        columns: Columns = {name: X[name].to_numpy(np.float64) for name in X}
        score = self.sem.score(columns["A"], columns, columns["M1"], columns["M2"])
        return np.column_stack([1 - score, score])


def _crossed(c: Columns) -> Values:
    """Return a cause of both the group and M1, in [-1, 1], that no main effects of the roots show."""
    return np.asarray(2 * special.expit(2.0 * (c["R"] ** 2 - 1.0) * (2 * c["Q"] - 1)) - 1)


LOGISTIC = SEM(
    propensity=lambda c: special.expit(0.2 + 0.6 * c["R"]),
    m1=lambda a, c, e: 0.7 * a + 0.5 * c["R"] + e,
    m2=lambda a, c, m1, e: 0.6 * a + 0.4 * m1 - 0.3 * c["R"] + e,
    score=lambda a, c, m1, m2: special.expit(-0.6 + 0.7 * a + 0.8 * m1 - 0.9 * m2 + 0.6 * np.sin(1.5 * c["R"])),
)
SEMS = {
    "logistic right": LOGISTIC,
    "logistic wrong": SEM(
        names=("R", "Q"),
        roots=lambda u: {"R": special.ndtri(u[:, 0]), "Q": (u[:, 1] < 0.5).astype(np.float64)},
        propensity=lambda c: 0.5 + 0.3 * _crossed(c),
        m1=lambda a, c, e: 1.4 * _crossed(c) + 0.8 * a * np.cos(1.5 * c["R"]) + (1.0 - 0.15 * a) * e,
        m2=lambda a, c, m1, e: 0.9 * a * np.cos(1.5 * m1) + 0.6 * np.cos(m1) + 0.3 * c["R"] ** 2 + e,
        score=lambda a, c, m1, m2: special.expit(
            -0.8 + 0.6 * a + 0.8 * m1 + 0.6 * m2 - 0.2 * m1**2 + 0.6 * c["R"] * (2 * c["Q"] - 1) + 0.4 * a * m2
        ),
    ),
    "nonlinear mediator": SEM(
        unfair=("A -> M2 -> Y",),
        arms=(0, 1, 0),
        shares_m1=True,
        propensity=lambda c: special.expit(0.3 - 0.5 * c["R"]),
        m1=lambda a, c, e: 0.6 * a + 0.4 * c["R"] + e,
        m2=lambda a, c, m1, e: 1.2 * np.sin(2.0 * m1) + 0.5 * a * (1.0 + np.sin(m1)) + 0.3 * c["R"] + e,
        score=lambda a, c, m1, m2: special.expit(-0.5 + 0.5 * a + 1.1 * m2 - 0.5 * m1 * c["R"] + 0.4 * np.cos(2 * m1)),
    ),
    "categories": SEM(
        roots=lambda u: {"R": np.floor(3 * u[:, 0])},
        propensity=lambda c: special.expit(0.5 - 0.4 * c["R"]),
        m1=lambda a, c, e: (e < 0.7 * a + 0.4 * c["R"] - 0.6).astype(np.float64),
        m2=lambda a, c, m1, e: (e < 0.5 * a + 0.6 * m1 - 0.3 * c["R"] - 0.2).astype(np.float64),
        score=lambda a, c, m1, m2: special.expit(-1.25 + 0.7 * a + 1.2 * m1 + 0.8 * m2 - 0.4 * c["R"] * m1),
    ),
    "no effect": replace(
        LOGISTIC,
        m1=lambda a, c, e: 0.5 * c["R"] + e,
        m2=lambda a, c, m1, e: 0.4 * m1 - 0.3 * c["R"] + e,
        score=lambda a, c, m1, m2: special.expit(-0.6 + 0.8 * m1 - 0.9 * m2 + 0.6 * np.sin(1.5 * c["R"])),
    ),
    "hardly any overlap": replace(LOGISTIC, propensity=lambda c: special.expit(0.2 + 2.5 * c["R"])),
    "mediators apart": replace(
        LOGISTIC,
        m1=lambda a, c, e: 2.0 * a + 0.5 * c["R"] + e,
        m2=lambda a, c, m1, e: 2.0 * a + 0.4 * m1 - 0.3 * c["R"] + e,
        score=lambda a, c, m1, m2: special.expit(-0.6 + 0.7 * a + 0.4 * m1 - 0.5 * m2 + 0.6 * np.sin(1.5 * c["R"])),
    ),
}
"""Sources audited in sums over batches, with the figures that one table gives, in a fifth of the time."""
OVERLAP = ("logistic right", "categories", "no effect", "nonlinear mediator")
"""The designs in which the groups overlap."""


# -- the truth --------------------------------------------------------------------------------------------------------


@cache
def truth(name: str, seed: int = 0) -> dict[tuple[str, str], float]:
    """Return the truth by decisions and quantity, by quasi-Monte Carlo over shared and over other noise.

    Ends given the shared features carry that name, those of the marginals ``marginal`` before it. The points of
    the other noise are shifted at random for each value of what is shared, so that their errors average out.
    """
    sem = SEMS[name]
    kept = sem.n_roots + sem.shares_m1
    shared = qmc.Sobol(kept, seed=seed).random_base2(OUTER)
    other = qmc.Sobol(sem.n_roots + 2 - kept, seed=seed + 1).random_base2(INNER)
    shifts = np.random.default_rng(seed).random((len(shared), other.shape[1]))
    means: dict[str, list[tuple[float, float]]] = {"threshold": [], "score": []}
    flipped = 0
    for part, shift in zip(np.array_split(shared, 64), np.array_split(shifts, 64), strict=True):
        inner = ((other + shift[:, None]) % 1.0).reshape(-1, other.shape[1])
        u = np.hstack([np.repeat(part, len(other), axis=0), inner])
        both = [sem.world(arms, u) for arms in ((0, 0, 0), sem.arms)]
        flipped += int(((both[0] > 0.5) != (both[1] > 0.5)).sum())
        for decisions, found in means.items():
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
        if decisions == "threshold":
            quantities["piu"] = flipped / len(shared) / len(other)
        values |= {(decisions, quantity): float(value) for quantity, value in quantities.items()}
    return values


# -- a sample ---------------------------------------------------------------------------------------------------------


class Source(NamedTuple):
    """How a sample is audited, and the designs that this is tried on."""

    make: Callable[..., Any]
    n_boot: int
    designs: tuple[str, ...]


POSTERIOR = "Pyro program, posterior"
APART = ("hardly any overlap", "mediators apart")
SOURCES = {
    "OneStep": Source(
        pf.OneStep, 0, ("logistic right", "categories", "no effect", "nonlinear mediator", "logistic wrong", *APART)
    ),
    "IPW, logistic": Source(pf.IPW, N_BOOT, ("logistic right", "no effect", "logistic wrong", *APART)),
    "IPW, saturated": Source(partial(pf.IPW, propensity="saturated"), N_BOOT, ("categories",)),
    "IPW, boosted": Source(partial(pf.IPW, propensity="boosted"), N_BOOT, ("logistic right", "logistic wrong", *APART)),
    "GComputation": Source(
        partial(pf.GComputation, draws=DRAWS, progress=False), N_BOOT, ("categories", "logistic right", *APART)
    ),
    POSTERIOR: Source(pf.SEM, 0, ("logistic right",)),
}


def learnable(n: int) -> None:
    """Draw units as the design "logistic right" does, with unknown parameters: a Pyro program."""
    names = ("r", "a0", "ar", "b0", "ba", "br", "c0", "ca", "cm", "cr")
    at = {name: pyro.sample(name, dist.Normal(0.0, 2.0)) for name in names}
    sd = {name: pyro.sample(f"sd_{name}", dist.LogNormal(0.0, 1.0)) for name in ("R", "M1", "M2")}
    with pyro.plate("units", n):
        noise = {name: pyro.sample(f"U_{name}", dist.Normal(0.0, 1.0)) for name in sd}
        r = pyro.deterministic("R", at["r"] + sd["R"] * noise["R"])
        a = pyro.sample("A", dist.Bernoulli(logits=at["a0"] + at["ar"] * r))
        m1 = pyro.deterministic("M1", at["b0"] + at["ba"] * a + at["br"] * r + sd["M1"] * noise["M1"])
        m2 = at["c0"] + at["ca"] * a + at["cm"] * m1 + at["cr"] * r + sd["M2"] * noise["M2"]
        m2 = pyro.deterministic("M2", m2)
        pyro.sample("Y", dist.Bernoulli(logits=a + m1 + m2))  # not learned, and read by nobody


def by_posterior(df: pd.DataFrame, unfair: pf.UnfairPaths, seed: int) -> pd.DataFrame:
    """Return the posterior of the effect and of PIU, of decisions, under the program with unknown parameters."""
    settings: dict[str, Any] = {"progress": False, "random_state": seed}
    posterior = pf.fit_posterior(
        learnable, df, unfair, method="svi", guide="multivariate", steps=1_500, draws=200, **settings
    )
    return pf.effect_posterior(learnable, unfair, Known("logistic right"), posterior, n=10_000, **settings).table


def by_audit(df: pd.DataFrame, unfair: pf.UnfairPaths, design: str, source: str, seed: int) -> pd.DataFrame:
    made = SOURCES[source]
    settings: dict[str, Any] = {"n_boot": made.n_boot, "n_jobs": 1, "progress": False, "random_state": seed}
    return pf.audit({"known": Known(design)}, made.make(unfair, random_state=seed), df, **settings).table


def audited(design: str, source: str, n: int, seed: int) -> pd.DataFrame:
    """Return a row for each kind of decisions and quantity of a sample, or one with the refusal."""
    df, unfair = SEMS[design].draw(n, seed), SEMS[design].paths()
    begin = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if source == POSTERIOR:
                table = by_posterior(df, unfair, seed).assign(note="")
            else:
                table = by_audit(df, unfair, design, source, seed)
        except pf.PyrofairError as error:
            return pd.DataFrame([{"note": f"refused: {error}"[:300], "cpu": time.process_time() - begin}])
    table = table[table["quantity"].isin([*MARGINAL, *ENDS, "piu"])]
    warned = any(issubclass(each.category, pf.PositivityWarning) for each in caught)
    kept = table[["decisions", "quantity", "estimate", "lower", "upper", "note"]]
    return kept.assign(warned=warned, cpu=time.process_time() - begin)


def keys(replications: int, sizes: list[int], sources: list[str], designs: list[str]) -> Iterator[dict[str, Any]]:
    """Yield what identifies each sample, seeds first, so that an early end leaves equal numbers of each."""
    for seed in range(replications):
        for source in sources:
            for design in SOURCES[source].designs:
                if design in designs and (design in OVERLAP or seed < max(replications // 5, 1)):
                    yield from ({"source": source, "design": design, "n": n, "seed": seed} for n in sizes)


def make(key: dict[str, Any], folder: CellFolder) -> None:
    """Audit one sample, and write the result into the folder."""
    torch.set_num_threads(1)
    folder.write(attempt(key, lambda: audited(key["design"], key["source"], key["n"], key["seed"])))


# -- the table --------------------------------------------------------------------------------------------------------


def read(folder: CellFolder, replications: int, sizes: list[int]) -> pd.DataFrame:
    """Return the rows of all finished samples, with the true values."""
    parts = []
    for key in keys(replications, sizes, list(SOURCES), list(SEMS)):
        found = folder.read(key)
        if isinstance(found, Failure):
            raise RuntimeError(f"{key} failed:\n{found.traceback}")
        if found is not None:
            parts.append(found.table.assign(**key))
    table = pd.concat(parts, ignore_index=True)
    made = table["quantity"].notna()
    marginal = table["source"].str.startswith("IPW") & table["quantity"].isin(["piu_lower", "piu_upper"])
    names = table["quantity"].where(~marginal, "marginal " + table["quantity"])
    table.loc[made, "truth"] = [
        truth(design)[decisions, name]
        for design, decisions, name in zip(table["design"][made], table["decisions"][made], names[made], strict=True)
    ]
    return table


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """Return coverage by source, design, size, decisions and quantity, with what was refused and the exact interval.

    ``outer`` is the share of samples whose interval reaches beyond the true value on the outer side: upwards for upper
    ends, downwards for lower ones. ``low`` and ``high`` are the 95 % Clopper-Pearson interval of the coverage.
    """
    by = ["source", "design", "n"]
    samples = table.groupby(by, sort=False)["seed"].nunique().rename("samples")
    refused = table[table["quantity"].isna()].groupby(by, sort=False)["seed"].nunique().rename("refused")
    made = table[table["quantity"].notna()].copy()
    given = made["lower"].notna()
    made["covered"] = made["truth"].between(made["lower"], made["upper"]).where(given)
    upper = ~made["quantity"].eq("piu_lower")
    made["outer"] = (made["upper"] >= made["truth"]).where(upper, made["lower"] <= made["truth"]).where(given)
    made["error"] = made["estimate"] - made["truth"]
    groups = made.groupby([*by, "decisions", "quantity"], sort=False)
    found = pd.DataFrame(
        {
            "intervals": groups["covered"].count(),
            "covered": groups["covered"].sum(),
            "outer": groups["outer"].mean(),
            "warned": groups["warned"].mean(),
            "truth": groups["truth"].first(),
            "bias": groups["error"].mean(),
            "sd": groups["error"].std(),
            "cpu": groups["cpu"].mean(),
        }
    )
    k, n = found["covered"].astype(float), found["intervals"]
    found["coverage"] = k / n
    found["low"] = np.where(k > 0, beta.ppf(0.025, k, n - k + 1), 0.0)
    found["high"] = np.where(k < n, beta.ppf(0.975, k + 1, n - k), 1.0)
    # A source that refuses every sample of a design has a row, too, without quantities.
    rows = samples.to_frame().join(refused).fillna({"refused": 0}).reset_index()
    return rows.merge(found.reset_index(), on=by, how="left")


SHOWN = {
    "mean_unfair_effect": "mean unfair effect",
    "piu_lower": "lower end",
    "piu_upper": "upper end",
    "piu_paper_bound": "paper's bound",
    "piu": "PIU",
}


def markdown(found: pd.DataFrame, decisions: str) -> str:
    """Return coverage as a Markdown table: a row for each source and design, a column for each quantity."""
    lines = ["| source | design | samples | refused | " + " | ".join(SHOWN.values()) + " |"]
    lines.append("|---|---|--:|--:|" + "---|" * len(SHOWN))
    own = found[(found["decisions"] == decisions) | found["decisions"].isna()]
    for (source, design, n), part in own.groupby(["source", "design", "n"], sort=False):
        cells = []
        for quantity in SHOWN:
            row = part[part["quantity"] == quantity]
            if row.empty or not row["intervals"].iloc[0]:
                cells.append("")
                continue
            each = row.iloc[0]
            outer = f", outer {each['outer']:.3f}" if quantity in ("piu_lower", "piu_upper") else ""
            cells.append(f"{each['coverage']:.3f} ({each['low']:.2f} to {each['high']:.2f}){outer}")
        head = f"| {source} | {design}, n = {n:,} | {part['samples'].iloc[0]} | {part['refused'].iloc[0]:.0f} | "
        lines.append(head + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["run", "table", "truth"])
    parser.add_argument("--out", type=Path, default=Path("build/coverage"))
    parser.add_argument("--replications", type=int, default=500, help="a fifth of them where groups do not overlap")
    parser.add_argument("--sizes", type=int, nargs="+", default=[N])
    parser.add_argument("--sources", nargs="+", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--designs", nargs="+", default=list(SEMS), choices=list(SEMS))
    parser.add_argument("--jobs", type=int, default=1)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    if settings.step == "truth":
        table = pd.DataFrame({(name, seed): truth(name, seed) for name in SEMS for seed in (0, 7)})
        print(table.round(5).to_string())
        return
    folder = CellFolder.claimed(settings.out, {"replicates": N_BOOT, "draws": DRAWS, "version": pf.__version__})
    if settings.step == "run":
        wanted = keys(settings.replications, settings.sizes, settings.sources, settings.designs)
        left = [key for key in wanted if not folder.has(key)]
        work = joblib.Parallel(settings.jobs, return_as="generator_unordered")(
            joblib.delayed(make)(key, folder) for key in left
        )
        for _ in tqdm(work, total=len(left), desc="samples"):
            pass
        return
    found = summarise(read(folder, settings.replications, settings.sizes))
    found.to_csv(settings.out / "coverage.csv", index=False)
    for decisions in ("threshold", "score"):
        print(f"\n{decisions}\n\n{markdown(found, decisions)}")


if __name__ == "__main__":
    main()
