"""Adult: CPU time of an audit and of all that is made beside it, agreement of the groups over splits, and memory.

python tests/benchmarks/one_step_adult.py time ratios groups million

Each step prints a table and asserts nothing; ``million`` is worth a process of its own, whose memory it reports.
"""

from __future__ import annotations

import argparse
import copy
import os
import resource
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

import pyrofair as pf

QUANTITIES = ("p_y0", "p_ypi", "mean_unfair_effect", "piu_lower", "piu_upper")


def fit_models(data: pf.datasets.Dataset, train: pd.DataFrame, number: int) -> dict[str, Any]:
    """Return boosted classifiers of income, of several learning rates."""
    X, y = train[data.graph.input_columns], train[data.graph.outcome_column]
    models = {}
    for i in range(number):
        trees = HistGradientBoostingClassifier(learning_rate=0.05 + 0.02 * i, max_iter=100, random_state=i)
        models[f"boosted {i}"] = trees.set_params(categorical_features="from_dtype").fit(X, y)
    return models


def audited(models: dict[str, Any], source: Any, rows: pd.DataFrame, n_boot: int) -> tuple[pf.Audit, float]:
    begin = time.process_time()
    report = pf.audit(models, source, rows, n_boot=n_boot, n_jobs=1, progress=False, random_state=0)
    return report, time.process_time() - begin


def show(report: pf.Audit) -> str:
    table = report.table[report.table["quantity"].isin(QUANTITIES)]
    return table[["model", "decisions", "quantity", "estimate", "lower", "upper"]].round(4).to_string(index=False)


def time_audits(seed: int, further: int, replicates: int) -> None:
    data = pf.datasets.load_adult()
    train, _ = data.split(random_state=seed)
    models = fit_models(data, train, 1 + further)
    first = dict(list(models.items())[:1])
    one_step = pf.OneStep(data.unfair, random_state=seed)
    weights = pf.IPW(data.unfair, max_unsupported=1.0, random_state=seed)  # rare countries occur in one group only
    audited(first, one_step, train.iloc[:2000], 0)  # imports and compiled code are no part of the time
    report, one = audited(first, one_step, train, 0)
    _, all_of_them = audited(models, one_step, train, 0)
    beside, ipw = audited(first, weights, train, replicates)
    each = (all_of_them - one) / further
    print(f"{len(train):,} rows, one model, both kinds of decisions, CPU s, one thread:")
    print(f"  OneStep {one:.1f}; IPW with {replicates} replicates {ipw:.1f}: a share of {one / ipw:.2f}")
    print(f"  each of {further} further models {each:.2f}: a share of {each / one:.2f}")
    print(f"{show(report)}\nIPW, logistic propensities:\n{show(beside)}", flush=True)


def compare_costs(repetitions: int) -> None:
    """Print CPU times of audits of test rows, and of weights, thresholds and decompositions beside them."""
    data = pf.datasets.load_adult()
    train, test = data.split(random_state=0)
    models = fit_models(data, train, 1)
    weight = 0.1 + np.random.default_rng(0).exponential(size=len(test))
    asked: dict[str, Callable[[], Any]] = {}
    for splits in (1, 3):
        source = pf.OneStep(data.unfair, splits=splits, random_state=0)
        run = partial(pf.audit, models, source, test, random_state=0)
        asked |= {
            f"{splits} audit": run,
            f"{splits} weighted": partial(run, sample_weight=weight),
            f"{splits} and one threshold": partial(run, thresholds=[0.3]),
            f"{splits} and five thresholds": partial(run, thresholds=[0.2, 0.3, 0.4, 0.6, 0.7]),
            f"{splits} decomposition": partial(pf.decompose, models, data.graph, test, splits=splits, random_state=0),
        }
    trees = pf.IPW(data.unfair, propensity="boosted", max_unsupported=1.0, random_state=0).fit(test)
    asked["a first replicate of boosted weights"] = lambda: copy.deepcopy(trees).refit(weight)
    spent: dict[str, float] = {}
    for _, (name, call) in product(range(repetitions), asked.items()):
        begin = time.process_time()
        call()
        spent[name] = min(spent.get(name, np.inf), time.process_time() - begin)
    print(f"{len(test):,} rows, the least CPU s of {repetitions}, splits first, and the ratio to the audit:")
    for name, each in spent.items():
        print(f"  {name:40} {each:6.2f} {each / spent.get(f'{name[0]} audit', np.nan):6.2f}", flush=True)


def compare_groups(splits: int) -> None:
    """Print the difference of the two groups over splits."""
    data = pf.datasets.load_adult()
    tables = []
    for seed in range(splits):
        train, _ = data.split(random_state=seed)
        report, spent = audited(fit_models(data, train, 1), pf.OneStep(data.unfair, random_state=seed), train, 0)
        tables.append(report.groups.assign(seed=seed))
        print(f"seed {seed}: {spent:.1f} CPU s", flush=True)
    table = pd.concat(tables, ignore_index=True).drop(columns=["note", "model"], errors="ignore")
    print(table.round(4).to_string(index=False), flush=True)


def audit_million(rows: int) -> None:
    """Audit Adult's rows drawn with replacement, and print the time and the most memory."""
    data = pf.datasets.load_adult()
    models = fit_models(data, data.frame, 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    large = data.frame.iloc[np.random.default_rng(0).integers(len(data.frame), size=rows)].reset_index(drop=True)
    report, spent = audited(models, pf.OneStep(data.unfair, random_state=0), large, 0)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    table = large.memory_usage(deep=True).sum() / 2**30
    print(f"{rows:,} rows: {spent:.0f} CPU s; most memory {most:.2f} GiB, {before:.2f} before, the table {table:.2f}")
    print(show(report), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="+", choices=["time", "ratios", "groups", "million"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--further", type=int, default=5)
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rows", type=int, default=10**6)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", pf.PyrofairWarning)
    if "time" in settings.steps:
        time_audits(settings.seed, settings.further, settings.replicates)
    if "ratios" in settings.steps:
        compare_costs(settings.repetitions)
    if "groups" in settings.steps:
        compare_groups(settings.splits)
    if "million" in settings.steps:
        audit_million(settings.rows)


if __name__ == "__main__":
    main()
