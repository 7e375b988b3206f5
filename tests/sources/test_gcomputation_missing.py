"""G-computation of rows with missing values: worlds, effect and bound against the truth of a program that loses them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit

import pyrofair as pf
from pyrofair.exceptions import DataError

GRAPH = pf.CausalGraph("C -> A; {A C} -> D; {A C D} -> M; {A C D M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> D -> Y", "A -> D -> M -> Y")
LABELS = np.array([None, "low", "high"], dtype=object)
READS = ["A", "C", "D", "M"]


def draw(n: int, seed: int, arm: int | None = None) -> pd.DataFrame:
    """Return rows as recorded: D is lost by its true value and by A, M by its value; in a world D has A at an arm."""
    rng = np.random.default_rng(seed)
    C = rng.integers(0, 2, n)
    A = (rng.random(n) < np.where(C == 1, 0.6, 0.4)).astype(int)
    known, read = (A, A) if arm is None else (np.full(n, arm), np.zeros(n, int))
    true = 0.8 * known + 0.7 * C + rng.standard_normal(n)
    D = np.where(rng.random(n) < expit(-1.0 + 1.2 * known - 0.8 * true), np.nan, true)
    high = rng.random(n) < expit(0.9 * np.nan_to_num(D, nan=-1.0) + 0.6 * read - 0.4)
    M = np.where(rng.random(n) < np.where(high, 0.1, 0.3), 0, 1 + high)
    return pd.DataFrame({"A": known, "C": C, "D": D, "M": pd.Series(LABELS[M], dtype="str")})


class Reader:
    """A known classifier that reads missing values: of D as a low one, of M as a level of its own."""

    classes_ = np.array([0, 1])
    feature_names_in_ = np.array(READS)

    def predict_proba(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        level = rows["M"].map({"low": -0.6, "high": 0.8}).fillna(-0.3).to_numpy(float)
        p = expit(1.8 * rows["C"] - 1.9 + 0.8 * rows["A"] + 0.7 * rows["D"].fillna(-1.0) + level).to_numpy(float)
        return np.column_stack([1.0 - p, p])


@cache
def truth() -> dict[str, float]:
    """Return the effect and the upper bound of PIU given C, the only feature that both worlds share."""
    worlds = [draw(1_000_000, 0, arm) for arm in (0, 1)]
    p = [pd.Series(Reader().predict_proba(rows)[:, 1]).groupby(rows["C"]).mean() for rows in worlds]
    share = worlds[0]["C"].value_counts(normalize=True)
    bound = np.minimum(p[0] + p[1], 2.0 - p[0] - p[1])
    return {"mean_unfair_effect": float(share @ (p[1] - p[0])), "piu_upper": float(share @ bound)}


def estimates(n: int, seed: int, **settings: Any) -> dict[str, float]:
    source = pf.GComputation(UNFAIR, missing="recorded", progress=False, random_state=seed, **settings)
    report = pf.audit({"m": Reader()}, source, draw(n, seed), n_boot=0, n_jobs=1, progress=False, random_state=seed)
    table = report.table[report.table["decisions"] == "score"].set_index("quantity")["estimate"]
    return {name: float(table[name]) for name in truth()}
