"""Time and peak memory of audits of Parquet files, at several numbers of rows.

``python tests/benchmarks/large_tables.py [--rows 100000 1000000 10000000] [--sample 200000] [--tiny]`` writes each
table in groups of rows to a temporary folder, and audits it in a process of its own: boosted nuisance models, a cheap
classifier, two thresholds and a subgroup of 16 levels. Up to 200,000 rows the audit in memory is made too, and the
estimates and standard errors of both are compared. ``--tiny`` runs all of it on 5,000 rows.
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

GROUP = 131_072
COMPARED = 200_000
GRAPH = pf.CausalGraph(
    "{Q region} -> A; {A Q region} -> D; {A Q D} -> M; {A Q D M region} -> Y", sensitive="A", outcome="Y"
)
UNFAIR = GRAPH.unfair("A -> Y", "A -> D -> Y", "A -> D -> M -> Y")


def hiring(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return n applicants: skill Q, region, group A, degree D, test M (a category) and the decision Y."""
    q, region = rng.normal(size=n), rng.integers(0, 16, n)
    a = (rng.random(n) < expit(0.4 * q + 0.1 * (region % 4) - 0.2)).astype(np.int64)
    d = 0.5 * q + 0.6 * a + rng.normal(size=n)
    m = np.clip(np.round(3.0 + q + 0.5 * d + 0.5 * a + rng.normal(size=n)), 0, 9).astype(np.int64)
    y = (rng.random(n) < expit(0.5 * q + 0.4 * d + 0.3 * (m - 3) + 0.4 * a)).astype(np.int64)
    names = np.array([f"region {i}" for i in range(16)]), np.array([f"mark {i}" for i in range(10)])
    return pd.DataFrame({"A": a, "Q": q, "region": names[0][region], "D": d, "M": names[1][m], "Y": y})


def cheap(X: pd.DataFrame) -> Any:
    """Return scores that take next to no time."""
    return expit(0.5 * X["Q"] + 0.4 * X["D"] + 0.3 * (X["M"] > "mark 3") + 0.4 * X["A"]).to_numpy()


def write(n: int, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for start in range(0, n, GROUP):
        frame = hiring(min(GROUP, n - start), np.random.default_rng([0, start]))
        table = pa.Table.from_pandas(frame, preserve_index=False)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def work(path: Path, rows: int, sample: int) -> dict[str, Any]:
    """Return the time and the peak memory of an audit, and the estimates."""
    warnings.simplefilter("ignore")
    asked: dict[str, Any] = {"thresholds": [0.3, 0.7], "subgroups": "region", "random_state": 0}
    start = time.perf_counter(), time.process_time()
    report = pf.audit({"cheap": pf.ScoresOf(cheap)}, UNFAIR, path, sample=sample, **asked)
    found: dict[str, Any] = {
        "seconds": round(time.perf_counter() - start[0], 1),
        "CPU seconds": round(time.process_time() - start[1], 1),
        "GiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }
    table = report.table.set_index(["decisions", "quantity"])[["estimate", "lower", "upper"]]
    found["effect"] = table.loc[("threshold", "mean_unfair_effect")].round(5).tolist()
    if rows <= COMPARED:
        start = time.perf_counter(), time.process_time()
        memory = pf.audit({"cheap": pf.ScoresOf(cheap)}, UNFAIR, pd.read_parquet(path), **asked)
        found["CPU seconds in memory"] = round(time.process_time() - start[1], 1)
        other = memory.table.set_index(["decisions", "quantity"]).loc[table.index]
        width = other["upper"] - other["lower"]
        apart, ratio = (table["estimate"] - other["estimate"]) / width, (table["upper"] - table["lower"]) / width
        found["largest difference, in standard errors"] = round(3.92 * float(apart.abs().max()), 2)
        found["widths over those in memory"] = ratio.round(3).agg(["min", "max"]).tolist()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--sample", type=int, default=200_000)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--file", type=Path)
    settings = parser.parse_args()
    rows = [5_000] if settings.tiny else settings.rows
    if settings.file is not None:
        print(json.dumps(work(settings.file, *rows, settings.sample)))
        return
    with tempfile.TemporaryDirectory() as folder:
        for n in rows:
            path = Path(folder) / f"{n}.parquet"
            write(n, path)
            command = [sys.executable, __file__, "--file", str(path), "--rows", str(n)]
            command += ["--sample", str(settings.sample)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            print(f"{n:,} rows, {path.stat().st_size / 2**20:.0f} MiB of Parquet:")
            for name, value in json.loads(done.stdout.splitlines()[-1]).items():
                print(f"  {name}: {value}")
            path.unlink()


if __name__ == "__main__":
    main()
