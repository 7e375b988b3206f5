"""Adult: classifiers trained with weights of logistic or boosted propensities, or given the shared features.

All are judged on test rows by the one-step source. Training takes minutes a seed, so its classifiers are kept:

python tests/benchmarks/one_step_training.py train --seeds 5 --out build/training
python tests/benchmarks/one_step_training.py judge --out build/training --figure build/one_step_training.png
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from pathlib import Path
from typing import Any

import joblib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

import pyrofair as pf
from pyrofair.commands.comparison import SETTINGS

STRENGTHS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)
BOUNDS = {
    "mean_unfair_effect": "unfair effect",
    "piu_upper": "upper bound on PIU given S",
    "piu_paper_bound": "the paper's bound, 2 P^I",
}
LABELS = {
    "logistic": "weights, logistic propensities",
    "boosted": "weights, boosted propensities",
    "given S": "given S (GComputation)",
}


def make_source(name: str, unfair: pf.UnfairPaths, seed: int) -> Any:
    """Return an unfitted source to train with."""
    if name == "given S":
        return pf.GComputation(unfair, progress=False, random_state=seed)
    return pf.IPW(unfair, propensity=name, random_state=seed)


def train(source: str, seed: int, strengths: list[float], out: Path) -> None:
    """Train a warm path of strengths, and keep each classifier without its source."""
    path = out / f"{source.replace(' ', '_')}-{seed}.joblib"
    if path.exists():
        return
    data, setting = pf.datasets.load_adult(), SETTINGS["adult"]
    target = data.graph.outcome_column
    (X, y), (X_test, y_test) = ((part.drop(columns=target), part[target]) for part in data.split(random_state=seed))
    model = pf.PenalizedClassifier(
        source=make_source(source, data.unfair, seed),
        batch_size=setting.batch_size,
        epochs=setting.epochs,
        validation_fraction=0.1,
        patience=8,
        dtype="float32",
        progress=False,
    )
    start = time.process_time()
    found = pf.penalty_path(
        model, X, y, strengths=strengths, seeds=[seed], test=(X_test, y_test), n_boot=0, progress=False
    )
    spent = time.process_time() - start
    models = {strength: each for (strength, _), each in found.models.items()}
    for each in models.values():
        each.source_ = each.source = None
    joblib.dump({"models": models, "table": found.table, "cpu": spent}, path)
    scores = np.column_stack([models[each].predict_proba(X_test)[:, 1] for each in strengths])
    np.savez_compressed(path.with_suffix(".npz"), score=scores, strength=strengths, index=X_test.index.to_numpy())
    shown = found.table[found.table["decisions"] == "threshold"]
    columns = ["strength", "accuracy", "positive_rate", "mean_unfair_effect", "piu_upper", "piu_paper_bound"]
    print(f"{source}, seed {seed}: {spent:.0f} CPU s\n{shown[columns].round(3).to_string(index=False)}", flush=True)


def judge(out: Path) -> pd.DataFrame:
    """Audit all classifiers of a seed together on its test rows, with nuisance models from its training rows."""
    data = pf.datasets.load_adult()
    tables = []
    for seed in itertools.count():
        paths = {name: out / f"{name.replace(' ', '_')}-{seed}.joblib" for name in LABELS}
        found = {name: joblib.load(path)["models"] for name, path in paths.items() if path.exists()}
        if not found:
            break
        models = {f"{name}, {strength:g}": each for name, part in found.items() for strength, each in part.items()}
        rows, test = data.split(random_state=seed)
        source = pf.OneStep(data.unfair, random_state=seed).fit(rows.drop(columns=data.graph.outcome_column))
        table = pf.audit(models, source, test, progress=False, random_state=seed).table
        named = table["model"].str.rsplit(", ", n=1, expand=True)
        tables.append(table.assign(source=named[0], strength=named[1].astype(float), seed=seed))
        print(f"seed {seed}: {', '.join(found)}", flush=True)
    return pd.concat(tables, ignore_index=True)


def accuracy_at(table: pd.DataFrame, levels: dict[str, list[float]]) -> pd.DataFrame:
    """Return for each seed and source the accuracy at given levels of a bound, linear between strengths."""
    rows = []
    wide = table.pivot_table(index=["source", "seed", "strength"], columns="quantity", values="estimate")
    for (source, seed), part in wide.groupby(level=[0, 1], sort=False):
        for bound, wanted in levels.items():
            line = part.sort_values(bound)
            size = line[bound].abs()
            for level in wanted:
                inside = size.min() <= level <= size.max()
                value = np.interp(level, size, line["accuracy"]) if inside else np.nan
                rows.append({"source": source, "seed": seed, "bound": bound, "level": level, "accuracy": value})
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw accuracy against each bound: a thin line for each seed, a thick one for the mean over seeds."""
    figure, panels = plt.subplots(1, len(BOUNDS), figsize=(11, 4.2), layout="constrained", sharey=True)
    wide = table.pivot_table(index=["source", "strength", "seed"], columns="quantity", values="estimate")
    for panel, (bound, title) in zip(panels, BOUNDS.items(), strict=True):
        for colour, (name, label) in zip(("C1", "C0", "C2"), LABELS.items(), strict=True):
            if name not in wide.index.get_level_values("source"):
                continue
            part = wide.loc[name]
            for _, each in part.groupby("seed"):
                panel.plot(each[bound], 100 * each["accuracy"], "-", color=colour, alpha=0.25, linewidth=0.8)
            mean = part.groupby("strength").mean()
            seeds = part.index.get_level_values("seed").nunique()
            legend = f"{label}, {seeds} seed{'s' if seeds > 1 else ''}"
            panel.plot(mean[bound], 100 * mean["accuracy"], "o-", color=colour, label=legend)
        panel.axhline(100 * wide["majority_rate"].mean(), color="0.6", linestyle=":", label="a constant prediction")
        panel.set_xlabel(title)
    panels[0].set_ylabel("test accuracy, %")
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, frameon=False, title="trained on", loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Train, or judge and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["train", "judge"])
    parser.add_argument("--out", type=Path, default=Path("build/training"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed to train")
    parser.add_argument("--sources", nargs="*", default=list(LABELS))
    parser.add_argument("--strengths", type=float, nargs="+", default=list(STRENGTHS))
    parser.add_argument("--figure", type=Path, default=Path("build/one_step_training.png"))
    settings = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", pf.PyrofairWarning)
    settings.out.mkdir(parents=True, exist_ok=True)
    if settings.step == "train":
        for seed, source in itertools.product(range(settings.first, settings.first + settings.seeds), settings.sources):
            train(source, seed, settings.strengths, settings.out)
        return
    table = judge(settings.out)
    table.to_csv(settings.out / "judged.csv", index=False)
    decided = table[table["decisions"] == "threshold"]
    wide = decided.pivot_table(index=["source", "strength", "seed"], columns="quantity", values="estimate")
    shown = wide[["accuracy", "positive_rate", *BOUNDS]].groupby(["source", "strength"])
    print(shown.agg(["mean", "std"]).round(3).to_string())
    levels = {
        "mean_unfair_effect": [0.02, 0.05, 0.1],
        "piu_upper": [0.1, 0.2, 0.3],
        "piu_paper_bound": [0.05, 0.1, 0.2, 0.3, 0.4],
    }
    at = accuracy_at(decided, levels)
    wide = at.pivot_table(index=["bound", "level", "seed"], columns="source", values="accuracy")
    print("\naccuracy at each bound: mean and spread over seeds, and pairs of seeds")
    if wide.empty:
        print("no path reaches any of these bounds")
    else:
        print(wide.groupby(["bound", "level"]).agg(["mean", "std", "count"]).round(4).to_string())
    if {"boosted", "logistic"} <= set(wide):
        gain = (wide["boosted"] - wide["logistic"]).groupby(["bound", "level"])
        print("\nboosted minus logistic, within a seed")
        print(gain.agg(["mean", "std", "count"]).round(4).to_string())
    draw(decided, settings.figure)


if __name__ == "__main__":
    main()
