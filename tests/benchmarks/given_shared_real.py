"""Adult or German: accuracy against each bound, trained on the marginals or given what both worlds share; a figure.

python tests/benchmarks/given_shared_real.py german --seeds 3
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import torch
from strengths import fit_each

import pyrofair as pf

KEPT = ["accuracy", "positive_rate", "piu_lower", "piu_upper", "piu_paper_bound"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=["adult", "german"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--strengths", type=float, nargs="*", default=[0.0, 0.5, 1.0, 2.0])
    parser.add_argument("--out", type=Path, default=Path("build"))
    settings = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    data = getattr(pf.datasets, f"load_{settings.data}")()
    reads = [name for name in data.frame.columns if name != data.graph.outcome_column]
    rows = []
    for seed in range(settings.seeds):
        train, test = data.split(random_state=seed)
        audited = {
            "marginal": pf.IPW(data.unfair, propensity="boosted", random_state=seed).fit(train[reads]),
            "given": pf.GComputation(data.unfair, progress=False, random_state=seed).fit(train[reads]),
        }
        methods = {
            "marginals, disagreement (the paper's)": (pf.IPW(data.unfair), "disagreement"),
            "given S, disagreement": (given := pf.GComputation(data.unfair, progress=False), "disagreement"),
            "given S, effect_gap": (given, "effect_gap"),
        }
        X, y = train[reads], train[data.graph.outcome_column]
        for trained, (source, penalty) in methods.items():
            start = pf.PenalizedClassifier(source=source, random_state=seed, progress=False)
            for _, strength, model, spent in fit_each(start, X, y, [penalty], settings.strengths):
                found = {"trained": trained, "strength": strength, "seed": seed, "seconds": spent}
                for kind, each in audited.items():
                    table = pf.audit({"m": model}, each, test, n_boot=0, progress=False, random_state=seed).table
                    table = table[table["decisions"] == "threshold"].set_index("quantity")["estimate"]
                    found |= {f"{kind}: {name}": table[name] for name in KEPT}
                rows.append(found)
                print(
                    {key: round(value, 3) if isinstance(value, float) else value for key, value in found.items()},
                    flush=True,
                )
    table = pd.DataFrame(rows)
    print(table.groupby(["trained", "strength"], sort=False).mean(numeric_only=True).round(3).T.to_string())
    settings.out.mkdir(parents=True, exist_ok=True)
    figure, panels = plt.subplots(1, 3, figsize=(11, 4.2), layout="constrained", sharey=True)
    bounds = {
        "marginal: piu_paper_bound": "the paper's bound",
        "marginal: piu_upper": "sharp upper end, marginals",
        "given: piu_upper": "upper end given what is shared",
    }
    for panel, (name, title) in zip(panels, bounds.items(), strict=True):
        for trained, part in table.groupby("trained", sort=False):
            mean = part.groupby("strength").mean(numeric_only=True)
            panel.plot(mean[name], 100 * mean["marginal: accuracy"], "o-", label=trained)
        panel.set(xlabel=title, title="")
    panels[0].set_ylabel("test accuracy, %")
    lines, names = panels[0].get_legend_handles_labels()
    figure.legend(lines, names, frameon=False, title="trained on", loc="outside lower center", ncols=3)
    figure.savefig(settings.out / f"given_shared_{settings.data}.png", dpi=120)
    table.to_csv(settings.out / f"given_shared_{settings.data}.csv", index=False)


if __name__ == "__main__":
    main()
