"""Do intervals of PIU given the shared features hold the truth? On `hiring`, mechanisms learned; a line for each
seed.

python tests/benchmarks/given_shared.py --seeds 10 --replicates 50
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import torch

import pyrofair as pf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--replicates", type=int, default=50)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    hiring = pf.simulate.scenario("hiring")
    reads, truth = ["A", "Q", "D", "M"], pf.SEM(hiring.program, hiring.unfair)
    held, widths = 0, []
    print("seed  true PIU  paper's bound  given what is shared, estimate and its own interval        seconds")
    for seed in range(settings.first, settings.first + settings.seeds):
        df = hiring.draw(5000, random_state=seed)
        model = pf.PenalizedClassifier(random_state=seed, progress=False).fit(df[reads], df["Y"])
        piu = truth.truth(model, n=100_000, random_state=seed).piu.value
        begin = time.perf_counter()
        source = pf.GComputation(hiring.unfair, progress=False, random_state=seed).fit(df[reads])
        report = pf.audit(
            {"m": model}, source, df, n_boot=settings.replicates, progress=False, n_jobs=1, random_state=seed
        )
        table = report.table[report.table["decisions"] == "threshold"].set_index("quantity")
        low, high = table.loc["piu_lower"], table.loc["piu_upper"]
        inside = low["lower"] <= piu <= high["upper"]
        held += inside
        widths.append(high["estimate"] - low["estimate"])
        print(
            f"{seed:4d}  {piu:8.4f}  {table.loc['piu_paper_bound', 'estimate']:13.3f}  [{low['estimate']:.4f}, "
            f"{high['estimate']:.4f}] in [{low['lower']:.4f}, {high['upper']:.4f}] {'holds' if inside else 'MISSES':6s}"
            f"  {time.perf_counter() - begin:19.1f}",
            flush=True,
        )
    print(f"holds the truth in {held} of {settings.seeds}; mean width {np.mean(widths):.5f}")


if __name__ == "__main__":
    main()
