"""What the main job gives on the real data, over several splits: accuracies, both groups, and the trade-off.

Run it as a script: ``python tests/benchmarks/real_data.py adult --seeds 5``. It prints tables and asserts nothing.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence

import pandas as pd

import pyrofair as pf
from pyrofair.commands.comparison import SETTINGS, STRENGTHS, methods


def one_seed(
    name: str, seed: int, replicates: int, strengths: Sequence[float]
) -> tuple[dict[str, float], pd.DataFrame, pd.DataFrame]:
    """Return accuracies, the comparison of the groups, and the trade-off of one split."""
    setting = SETTINGS[name]
    data = setting.load()
    train, test = data.split(random_state=seed)
    target = data.graph.outcome_column
    X, y = train.drop(columns=target), train[target]
    plain, penalised = methods(data, setting, strength=1.0, seed=seed)
    accuracies = {name: model.fit(X, y).score(test, test[target]) for name, model in plain.items()}
    accuracies["majority"] = float(test[target].value_counts(normalize=True).max())
    unconstrained = {"Unconstrained": plain["Unconstrained"]}
    groups = []
    for propensity in ("logistic", "boosted"):
        source = pf.IPW(data.unfair, propensity=propensity, random_state=seed).fit(X)
        report = pf.audit(unconstrained, source, X, n_boot=replicates, random_state=seed, progress=False)
        groups.append(report.groups.assign(propensity=propensity, seed=seed))
    paths = []
    for method, model in penalised.items():
        path = pf.penalty_path(
            model, X, y, strengths=strengths, seeds=[seed], test=(test, test[target]), n_boot=0, progress=False
        )
        paths.append(path.table.assign(method=method))
    return accuracies, pd.concat(groups), pd.concat(paths)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=sorted(SETTINGS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--replicates", type=int, default=50)
    parser.add_argument("--strengths", type=float, nargs="+", default=STRENGTHS)
    options = parser.parse_args()
    accuracies, groups, paths = [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pf.PyrofairWarning)
        for seed in range(options.seeds):
            started = time.perf_counter()
            one, two, three = one_seed(options.data, seed, options.replicates, options.strengths)
            accuracies.append(one)
            groups.append(two)
            paths.append(three)
            print(f"seed {seed}: {time.perf_counter() - started:.0f} s", flush=True)
    print("\ntest accuracy by seed")
    print(pd.DataFrame(accuracies).round(4).to_string())
    both = pd.concat(groups)
    print("\nboth groups, training rows, Unconstrained")
    print(both[both["quantity"] != "mean_unfair_effect"].round(4).to_string(index=False))
    path = pd.concat(paths)
    decided = path[path["decisions"] == "threshold"].drop(columns=["decisions", "seed"])
    print("\ntrade-off on test rows, decisions: mean over seeds")
    print(decided.groupby(["method", "strength"]).mean().round(4).to_string())
    wide = path[(path["decisions"] == "threshold") & (path["method"] == "Proposed")].pivot_table(
        index="strength", columns="seed", values="piu_paper_bound"
    )
    print("\nthe paper's bound by seed, Proposed")
    print(wide.round(4).to_string())


if __name__ == "__main__":
    main()
