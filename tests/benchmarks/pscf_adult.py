"""PSCF on Adult: what predictions cost and how fair they are, what latent variables know, and the time of an epoch.

python tests/benchmarks/pscf_adult.py bars trade-off speed

``bars``: over splits, CPU time of a fit, accuracy of the learned distribution of the outcome, accuracy and AUC of fair
predictions in each mode, their mean unfair effect by one-step estimates, and how many decisions change with more
draws. ``trade-off``: over settings, what latent variables say of a row (their divergence from the prior) beside what
they say of the sensitive attribute (AUC from a draw of them); writes ``docs/pscf_latents.png``. ``speed``:
predictions, and an epoch beside a loop of the same networks and loss written by hand, in one process. Nothing is
asserted.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyro
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from torch import Tensor
from torch.distributions import Normal, kl_divergence

import pyrofair as pf
from pyrofair.classifiers.pscf.classifier import PRECISION
from pyrofair.datasets import Dataset
from pyrofair.exceptions import PyrofairWarning
from pyrofair.mechanisms.families import features

mpl.use("Agg")
FIGURE = Path(__file__).parents[2] / "docs" / "pscf_latents.png"
MODES = ("abducted", "posterior", "prior")
DRAWS = 200
"""Samples to which the decisions of the default number are compared."""
FEW = 4_000
"""So many test rows are compared, and predicted for each setting of the trade-off."""
EPOCHS = 2
"""So many epochs are timed together."""


def split(data: Dataset, seed: int) -> tuple[pd.DataFrame, pd.Series[Any], pd.DataFrame, NDArray[np.bool_]]:
    """Return the training columns and labels, the test rows, and whether their outcome is positive."""
    train, test = data.split(random_state=seed)
    y = data.graph.outcome_column
    return train.drop(columns=y), train[y], test, (test[y] == data.graph.positive).to_numpy()


def fitted(X: pd.DataFrame, y: pd.Series[Any], unfair: Any, **settings: Any) -> tuple[pf.PSCF, float]:
    start = time.process_time()
    model = pf.PSCF(unfair, progress=False, **settings).fit(X, y)
    return model, time.process_time() - start


def changed(model: pf.PSCF, **settings: Any) -> pf.PSCF:
    return copy.copy(model).set_params(**settings)


def score(model: pf.PSCF, X: pd.DataFrame) -> NDArray[np.float64]:
    """Return the fair probability of the positive label."""
    return model.predict_proba(X)[:, list(model.classes_).index(model.unfair.graph.positive)]


def score_as_is(model: pf.PSCF, X: pd.DataFrame) -> NDArray[np.float64]:
    """Return the probability of the positive label by the learned distribution of the outcome, paths as they are."""
    graph = model.unfair.graph
    with torch.no_grad():
        found: Tensor = model.sem_.distribution(graph.outcome_column, model._encode(X[graph.input_columns])).probs
    return found.double().numpy()


# -- bars --------------------------------------------------------------------------------------------------------------


def effects(models: Mapping[str, pf.PSCF], data: Dataset, rows: pd.DataFrame, seed: int) -> dict[tuple[str, str], Any]:
    """Return the mean unfair effect with its interval, by model and decisions."""
    table = pf.audit(models, data.unfair, rows, n_jobs=1, progress=False, random_state=seed).table
    table = table[table["quantity"] == "mean_unfair_effect"]
    return {(row.model, row.decisions): (row.estimate, row.lower, row.upper) for row in table.itertuples()}


def bars(seeds: int, settings: dict[str, Any]) -> None:
    data = pf.datasets.load_adult()
    rows = []
    for seed in range(seeds):
        X, y, test, positive = split(data, seed)
        model, spent = fitted(X, y, data.unfair, random_state=seed, **settings)
        own = score_as_is(model, test)
        found: dict[str, float] = {
            "fit_s": spent,
            "epochs": len(model.history_),
            "own_acc": ((own > 0.5) == positive).mean(),
            "own_auc": roc_auc_score(positive, own),
        }
        few = test.iloc[:FEW]
        more = score(changed(model, samples=DRAWS), few)
        found["changed"] = ((score(model, few) > 0.5) != (more > 0.5)).mean()
        models = {}
        for mode in MODES:
            each = changed(model, latents=mode)
            models[mode], models[f"{mode}, one draw"] = each, each.one_draw()
        for name, each in models.items():
            p = score(each, test)
            found |= {f"{name}: acc": ((p > 0.5) == positive).mean(), f"{name}: auc": roc_auc_score(positive, p)}
            found[f"{name}: rate"] = (p > 0.5).mean()
        audited = {name: each for name, each in models.items() if seed == 0 or name.startswith("abducted")}
        begin = time.process_time()
        for (name, decisions), (value, low, high) in effects(audited, data, test, seed).items():
            found[f"{name}: effect of {decisions}"] = value
            if name.startswith("abducted"):
                found[f"{name}: effect of {decisions}, half width"] = (high - low) / 2
        found["audit_s"] = time.process_time() - begin
        rows.append(found)
        print(f"seed {seed}\n{pd.Series(found).round(4).to_string()}", flush=True)
    table = pd.DataFrame(rows).T
    table["mean"], table["sd"] = table.mean(axis=1), table.std(axis=1)
    print(table.round(4).to_string())


# -- what latent variables know ----------------------------------------------------------------------------------------

GROUPS: dict[str, dict[str, dict[str, Any]]] = {
    "learned noise (default)": {"default": {}},
    "own noise": {"own noise .5": {"own_noise": 0.5}, "own noise .1": {"own_noise": 0.1}},
    "discrepancy penalty, own noise .1": {
        "mmd 10": {"own_noise": 0.1, "mmd": 10.0},
        "mmd 100": {"own_noise": 0.1, "mmd": 100.0},
    },
}
COLOURS = ("#333333", "#0072B2", "#009E73")


@torch.no_grad()
def latents_of(model: pf.PSCF, X: pd.DataFrame) -> tuple[dict[str, float], NDArray[np.float64]]:
    """Return the mean divergence of each latent variable from its prior, in nats, and a draw of all of them, (m, k)."""
    rows = model._encode(X[model.unfair.graph.input_columns])
    divergences, drawn = {}, []
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for site in model.sem_.latents:
            guide = Normal(*model.guide_.posterior(site, rows))
            divergences[site] = float(kl_divergence(guide, Normal(0.0, 1.0)).sum(-1).mean())
            drawn.append(guide.sample())
    return divergences, torch.cat(drawn, 1).double().numpy()


def predictable(points: NDArray[np.float64], group: NDArray[np.bool_]) -> float:
    """Return the AUC of boosted trees for the group, cross-fitted."""
    trees = HistGradientBoostingClassifier(max_iter=60, learning_rate=0.1, random_state=0)
    chance = cross_val_predict(trees, points, group, cv=3, method="predict_proba")[:, 1]
    return float(roc_auc_score(group, chance))


def trade_off(seed: int, settings: dict[str, Any]) -> None:
    data = pf.datasets.load_adult()
    X, y, test, positive = split(data, seed)
    contrast = (test[data.graph.sensitive_column] == data.graph.contrast).to_numpy()
    rows = []
    for group, every in GROUPS.items():
        for name, each in every.items():
            model, spent = fitted(X, y, data.unfair, random_state=seed, **settings | each)
            divergences, points = latents_of(model, test)
            own = score_as_is(model, test)
            row = {"group": group, "setting": name, "nats": sum(divergences.values())}
            row |= {"auc_of_a": predictable(points, contrast), "explained": model.latents_["explained"].mean()}
            row |= {site.removeprefix("H_"): value for site, value in divergences.items()}
            row |= {"fit_s": spent, "own_acc": ((own > 0.5) == positive).mean()}
            few, mine = test.iloc[:FEW], positive[:FEW]
            mean, one = score(model, few), score(model.one_draw(), few)
            row |= {"auc": roc_auc_score(mine, mean), "acc_draw": ((one > 0.5) == mine).mean()}
            row |= {"acc_mean": ((mean > 0.5) == mine).mean()}
            rows.append(row)
            print(pd.Series(row).to_frame().T.to_string(index=False, header=len(rows) == 1), flush=True)
    table = pd.DataFrame(rows)
    print(table.drop(columns="group").round(3).to_string(index=False))
    plot(table)


def plot(table: pd.DataFrame) -> None:
    """Draw what latent variables say of the sensitive attribute against what they say of a row."""
    figure, axes = plt.subplots(figsize=(7.5, 4.8), layout="constrained")
    colour = dict(zip(table["group"].unique(), COLOURS, strict=True))
    for group, some in table.groupby("group", sort=False):
        axes.scatter(some["nats"], some["auc_of_a"], color=colour[group], s=32, label=group, zorder=3)
    middle = table["nats"].max() / 2
    for left, some in table.sort_values("auc_of_a").groupby(table["nats"] > middle):
        level = -np.inf
        for row in some.itertuples():  # labels of close points one above the other, in a column of their own
            alone = len(some[(some["auc_of_a"] - row.auc_of_a).abs() < 0.03]) == 1
            level = max(level + 0.016, row.auc_of_a - (0.0 if alone else 0.025))
            away = 0.3 if alone else 3.0
            axes.annotate(
                row.setting,
                (row.nats, row.auc_of_a),
                (
                    row.nats - away
                    if left and alone
                    else table["nats"].max() - away
                    if left
                    else away + (row.nats if alone else 0.0),
                    level,
                ),
                ha="right" if left else "left",
                va="center",
                color=colour[row.group],
                size=8,
                bbox={"color": "white", "pad": 1},
                arrowprops={"arrowstyle": "-", "color": "#BBBBBB", "lw": 0.6, "shrinkB": 4},
            )
    axes.set_ylim(bottom=0.455)
    axes.axhline(0.5, color="#999999", lw=0.8, zorder=0)
    axes.set_xlabel("What the latent variables say of a row: mean divergence from their prior, nats")
    axes.set_ylabel("AUC of sex from a draw of the latent variables")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 0.14))
    figure.savefig(FIGURE, dpi=150)


# -- time of an epoch --------------------------------------------------------------------------------------------------


class HandWritten:
    """The networks of a fitted PSCF, its features computed once, and its loss in closed form, without Pyro."""

    def __init__(self, model: pf.PSCF, X: pd.DataFrame, y: pd.Series[Any]) -> None:
        graph = model.unfair.graph
        self.sem, self.guide = copy.deepcopy(model.sem_), copy.deepcopy(model.guide_)
        for number in (*self.sem.parameters(), *self.guide.parameters()):
            number.requires_grad_(True)  # a fit ends with them fixed
        self.values = model._encode(X[graph.input_columns])
        self.values[graph.outcome_column] = torch.tensor((y == graph.positive).to_numpy()).float()
        families = self.sem.families
        self.features = {name: features(families[name], each) for name, each in self.values.items()}
        self.n = len(y)

    def loss(self, rows: Tensor) -> Tensor:
        """Return the negative evidence lower bound in nats of all units, by some of them."""
        sem, guide = self.sem, self.guide
        read = {name: each[rows] for name, each in self.features.items()}
        latents, total = {}, torch.zeros(())
        for site, network in zip(guide.reads, guide.networks, strict=True):
            loc, scale = network(torch.cat([read[name] for name in guide.reads[site]], 1)).chunk(2, 1)
            scale = torch.nn.functional.softplus(scale) + 1e-4
            latents[site] = loc + scale * torch.randn_like(loc)
            total = total + 0.5 * (scale.square() + loc.square() - 1.0 - 2.0 * scale.log()).sum()
        for column, network in zip(sem.order, sem.networks, strict=True):
            parts = [read[name] for name in sem.reads(column)]
            if column in sem.site:
                parts.append(latents[sem.site[column]])
            out = network(torch.cat(parts, 1)) if parts else network(torch.zeros(len(rows), 0))
            total = total - sem.drawn_from[column].distribution(out).log_prob(self.values[column][rows]).sum()
        return total * (self.n / len(rows))

    def train(self, epochs: int, batch_size: int, weight_decay: float) -> None:
        numbers = [*self.sem.parameters(), *self.guide.parameters()]
        optimiser = torch.optim.Adam(numbers, lr=0.01, weight_decay=weight_decay, fused=True)
        for _ in range(epochs):
            for rows in torch.randperm(self.n).split(batch_size):
                optimiser.zero_grad()
                self.loss(rows).backward()
                optimiser.step()


def speed(repetitions: int, settings: dict[str, Any]) -> None:
    data = pf.datasets.load_adult()
    X, y, test, _ = split(data, 0)
    model, _ = fitted(X, y, data.unfair, random_state=0, **settings | {"epochs": 1})
    start = time.process_time()
    model.predict_proba(test)
    print(f"predictions of {len(test)} rows take {time.process_time() - start:.1f} CPU s (bar 10 s)", flush=True)
    hand, batch = HandWritten(model, X, y), model._steps(len(X)).batch_size
    ours, by_hand, rest = [], [], []
    with pyro.validation_enabled(False):
        torch.distributions.Distribution.set_default_validate_args(False)
        hand.train(1, batch, PRECISION)
        for _ in range(repetitions):
            _, short = fitted(X, y, data.unfair, random_state=0, **settings | {"epochs": 1})
            _, long = fitted(X, y, data.unfair, random_state=0, **settings | {"epochs": 1 + EPOCHS})
            ours.append((long - short) / EPOCHS)
            rest.append(short - ours[-1])
            start = time.process_time()
            hand.train(EPOCHS, batch, PRECISION)
            by_hand.append((time.process_time() - start) / EPOCHS)
    ratio = statistics.median(ours) / statistics.median(by_hand)
    print(f"batches of {batch}: an epoch takes {statistics.median(ours):.3f} CPU s; by hand", end=" ")
    print(
        f"{statistics.median(by_hand):.3f} s: {ratio:.2f} x (bar 1.5 x: {'holds' if ratio <= 1.5 else 'FALLS SHORT'})"
    )
    print(f"what a fit takes besides its epochs: {statistics.median(rest):.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="+", choices=["bars", "trade-off", "speed"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=9, help="of the comparison of times")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", PyrofairWarning)
    settings = {name: value for name in ("epochs", "batch_size") if (value := getattr(asked, name)) is not None}
    if "bars" in asked.steps:
        bars(asked.seeds, settings)
    if "trade-off" in asked.steps:
        trade_off(0, settings)
    if "speed" in asked.steps:
        speed(asked.repetitions, settings)


if __name__ == "__main__":
    main()
