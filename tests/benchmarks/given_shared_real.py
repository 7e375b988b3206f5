"""Real data: accuracy against each bound, trained on the marginals or given the shared features; a figure.

python tests/benchmarks/given_shared_real.py adult german --seeds 1 5
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import pandas as pd
import torch
from strengths import fit_each

import pyrofair as pf
from pyrofair._figures import COLOURS, LEGEND, MARKERS, finish, in_percent, make_figure

BOUNDS = {
    "marginal: piu_paper_bound": "the paper's bound",
    "marginal: piu_upper": "sharp upper bound, marginals",
    "given: piu_upper": "upper bound given shared features",
}
KEPT = ["accuracy", "positive_rate", "piu_lower", "piu_upper", "piu_paper_bound"]


def run(name: str, seeds: int, strengths: list[float]) -> pd.DataFrame:
    """Return a row for each method, strength and seed on a data set."""
    data = getattr(pf.datasets, f"load_{name}")()
    reads = [column for column in data.frame.columns if column != data.graph.outcome_column]
    rows = []
    for seed in range(seeds):
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
            for _, strength, model, spent in fit_each(start, X, y, [penalty], strengths):
                found = {"data": name, "trained": trained, "strength": strength, "seed": seed, "seconds": spent}
                for label, each in audited.items():
                    table = pf.audit({"m": model}, each, test, n_boot=0, progress=False, random_state=seed).table
                    table = table[table["decisions"] == "threshold"].set_index("quantity")["estimate"]
                    found |= {f"{label}: {quantity}": float(table[quantity]) for quantity in KEPT}
                rows.append(found)
                print({key: round(value, 3) if isinstance(value, float) else value for key, value in found.items()})
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw accuracy against each bound, a row of panels for each data set, means over seeds."""
    names = table["data"].unique()
    figure = make_figure(11, 1.6 + 3 * len(names), "Accuracy against each bound on PIU, by what is trained on")
    grid = figure.subplots(len(names), 3, sharey="row", squeeze=False)
    for panels, name in zip(grid, names, strict=True):
        part = table[table["data"] == name]
        for panel, (bound, title) in zip(panels, BOUNDS.items(), strict=True):
            styles = zip(part.groupby("trained", sort=False), COLOURS, MARKERS, strict=False)
            for (trained, each), colour, marker in styles:
                mean = each.groupby("strength").mean(numeric_only=True)
                panel.plot(mean[bound], mean["marginal: accuracy"], color=colour, marker=marker, label=trained)
            panel.set_xlabel(f"{title}, %")
            for axis in (panel.xaxis, panel.yaxis):
                in_percent(axis)
            finish(panel)
        panels[0].set_ylabel(f"{name}, {part['seed'].nunique()} seed(s)\ntest accuracy, %")
    lines, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(lines, labels, ncols=3, **LEGEND)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+", choices=["adult", "german"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="for each data set")
    parser.add_argument("--strengths", type=float, nargs="*", default=[0.0, 0.5, 1.0, 2.0])
    parser.add_argument("--out", type=Path, default=Path("build"))
    settings = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    settings.out.mkdir(parents=True, exist_ok=True)
    tables = []
    for name, seeds in zip(settings.data, settings.seeds, strict=True):
        tables.append(run(name, seeds, settings.strengths))
        table = pd.concat(tables)
        table.to_csv(settings.out / "given_shared_real.csv", index=False)
    means = table.groupby(["data", "trained", "strength"], sort=False).mean(numeric_only=True)
    print(means.round(3).to_string())
    draw(table, settings.out / "given_shared_real.png")


if __name__ == "__main__":
    main()
