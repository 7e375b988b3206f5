"""Time and peak memory of weights, an audit and training on rows in Parquet, at several numbers of rows.

``python tests/benchmarks/large_tables.py [--rows 100000 1000000 10000000] [--boot 50] [--table hiring]`` writes each
table in groups of rows to a temporary folder, and works on it in a process of its own. ``hiring`` has numbers and two
columns of text, drawn from a model of hiring; ``adult`` holds rows of Adult drawn with replacement, their ages and
hours moved by chance. Below 200,000 rows the figures are compared with those of the table in memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

import pyrofair as pf
from pyrofair.tables import as_batches

GROUP = 131_072
COMPARED = 200_000
HIRING = pf.CausalGraph(
    "{Q region} -> A; {A Q region} -> D; {A Q D} -> M; {A Q D M region} -> Y", sensitive="A", outcome="Y"
)


def hiring(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return n applicants: skill Q, region, group A, degree D, test M (a category) and the decision Y."""
    q, region = rng.normal(size=n), rng.integers(0, 16, n)
    a = (rng.random(n) < expit(0.4 * q + 0.1 * (region % 4) - 0.2)).astype(np.int64)
    d = 0.5 * q + 0.6 * a + rng.normal(size=n)
    m = np.clip(np.round(3.0 + q + 0.5 * d + 0.5 * a + rng.normal(size=n)), 0, 9).astype(np.int64)
    y = (rng.random(n) < expit(0.5 * q + 0.4 * d + 0.3 * (m - 3) + 0.4 * a)).astype(np.int64)
    names = np.array([f"region {i}" for i in range(16)]), np.array([f"mark {i}" for i in range(10)])
    return pd.DataFrame({"A": a, "Q": q, "region": names[0][region], "D": d, "M": names[1][m], "Y": y})


def adult(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return n rows of Adult, drawn with replacement, with other ages and hours."""
    df = pf.datasets.load_adult().frame
    drawn = df.iloc[rng.integers(0, len(df), n)].reset_index(drop=True)
    for name, sd in (("age", 2.0), ("hours-per-week", 3.0)):
        drawn[name] = drawn[name] + rng.normal(0.0, sd, n)
    return drawn


def unfair_of(table: str) -> pf.UnfairPaths:
    return (
        HIRING.unfair("A -> Y", "A -> D -> Y", "A -> D -> M -> Y")
        if table == "hiring"
        else pf.datasets.load_adult().unfair
    )


def write(table: str, n: int, path: Path) -> None:
    """Write n rows in groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    writer = None
    for start in range(0, n, GROUP):
        df = {"hiring": hiring, "adult": adult}[table](min(GROUP, n - start), rng)
        arrow = pa.Table.from_pandas(df, preserve_index=False)
        writer = writer or pq.ParquetWriter(path, arrow.schema)
        writer.write_table(arrow)
    if writer is not None:
        writer.close()


def work(table: str, path: Path, boot: int, epochs: int) -> dict[str, Any]:
    """Return the seconds of each task on a file, the peak memory, and the figures."""
    warnings.simplefilter("ignore")
    unfair = unfair_of(table)
    batches = as_batches(path)
    found: dict[str, Any] = {"rows": len(batches)}
    clocks = time.perf_counter(), time.process_time()

    def lap(task: str) -> None:
        nonlocal clocks
        now = time.perf_counter(), time.process_time()
        found[task] = round(now[0] - clocks[0], 1)
        found[f"{task} CPU"] = round(now[1] - clocks[1], 1)
        found[f"{task} GiB"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
        clocks = now

    lap("open")
    source = pf.IPW(unfair).fit(batches)
    lap("fit")
    own = batches.select([name for name in batches.columns if name != unfair.graph.outcome_column])
    mean = np.mean([source.weights(unfair.regimes[1], frame).mean() for frame in own])
    lap("weights")
    model = pf.PenalizedClassifier(
        "network", source=pf.IPW(unfair), dtype="float32", epochs=epochs, starts=1, random_state=0, progress=False
    ).fit_batches(batches)
    lap(f"training {epochs} epoch(s)")
    report = pf.audit({"model": model}, source, batches, n_boot=boot, random_state=0)
    lap(f"audit, {boot} replicates")
    figures = report.table.set_index(["decisions", "quantity"])[["estimate", "lower", "upper"]]
    found["mean weight"] = float(mean)
    found["effect"] = figures.loc[("threshold", "mean_unfair_effect")].round(6).tolist()
    if len(batches) <= COMPARED:
        df = pd.read_parquet(path)
        again = pf.audit({"model": model}, pf.IPW(unfair), df, n_boot=boot, random_state=0, n_jobs=1, progress=False)
        other = again.table.set_index(["decisions", "quantity"])[["estimate", "lower", "upper"]]
        found["largest difference from memory"] = float((figures - other).abs().max().max())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--boot", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--table", choices=("hiring", "adult"), default="hiring")
    parser.add_argument("--file", type=Path)
    settings = parser.parse_args()
    if settings.file is not None:
        print(json.dumps(work(settings.table, settings.file, settings.boot, settings.epochs)))
        return
    with tempfile.TemporaryDirectory() as folder:
        for n in settings.rows:
            path = Path(folder) / f"{n}.parquet"
            write(settings.table, n, path)
            command = [sys.executable, __file__, "--file", str(path), "--table", settings.table]
            command += ["--boot", str(settings.boot), "--epochs", str(settings.epochs)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(done.stderr)
                return
            print(f"{n:,} rows, {path.stat().st_size / 2**20:.0f} MiB of Parquet:")
            for name, value in json.loads(done.stdout.splitlines()[-1]).items():
                print(f"  {name}: {value}")
            path.unlink()


if __name__ == "__main__":
    main()
