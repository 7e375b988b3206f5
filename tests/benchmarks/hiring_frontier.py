"""Accuracy against true PIU on `hiring`, 5,000 training rows: every method and penalty in one table, by seeds.

python tests/benchmarks/hiring_frontier.py --seeds 10

Strengths are chosen as a user would: by accuracy on 1,000 validation rows among those whose estimated upper bound on
PIU there is small enough. The true PIU, of 100,000 fresh units, and the accuracy on 50,000 others are looked at only
then.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from strengths import fit_each

import pyrofair as pf
from pyrofair._figures import COLOURS, GREY, MARKERS, finish, in_percent, label_places, make_figure

HIRING = pf.simulate.scenario("hiring")
READS = ["A", "Q", "D", "M"]
SERIES = {
    ("given S", "disagreement"): "GComputation, disagreement",
    ("given S", "effect_gap"): "GComputation, effect_gap",
    ("given S", "piu_upper"): "GComputation, piu_upper",
    ("Oracle", "disagreement"): "SEM, disagreement",
}
"""What the picture shows; the table has all."""
LOWEST = 0.944
"""The accuracy at which the picture ends."""
SCORES = ["validation", "accuracy", "fresh", "piu", "estimate", "seconds"]


class Marginal(pf.GComputation):
    """The same learned mechanisms, and nothing known of what the two worlds share."""

    def worlds(self, *args: Any, **settings: Any) -> Any:
        return tuple(replace(world, unit=None) for world in super().worlds(*args, **settings))


@dataclass(frozen=True)
class Method:
    """A source, the penalties on its worlds, and their strengths."""

    source: Any = None
    penalties: tuple[str, ...] = ("disagreement",)
    strengths: tuple[float, ...] = (0.0,)
    columns: tuple[str, ...] | None = None


def methods() -> dict[str, Method]:
    unfair = HIRING.unfair
    three = ("disagreement", "piu_upper", "effect_gap")
    learned = {"progress": False}
    weighted = {"max_unsupported": 1.0}
    two, some, many = (1.0, 2.0), (0.5, 1.0, 2.0), (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
    return {
        "unpenalised": Method(),
        "Remove (touched)": Method(columns=tuple(pf.remove(unfair, "touched"))),
        "Remove (descendants)": Method(columns=tuple(pf.remove(unfair, "descendants"))),
        "Oracle": Method(pf.SEM(HIRING.program, unfair), ("disagreement", "effect_gap"), many),
        "given S": Method(pf.GComputation(unfair, **learned), three, many),
        "marginal": Method(Marginal(unfair, **learned), three, some),
        "IPW, the paper's group": Method(pf.IPW(unfair, arm="paper", **weighted), ("disagreement", "effect_gap"), some),
        "IPW, group 0": Method(pf.IPW(unfair, arm=0, **weighted), strengths=two),
        "IPW, group 1": Method(pf.IPW(unfair, arm=1, **weighted), strengths=two),
        "IPW, pooled": Method(pf.IPW(unfair, arm="pooled", **weighted), strengths=two),
    }


def estimate(model: Any, df: pd.DataFrame, seed: int) -> float:
    """Return the upper bound on PIU, thresholded, by the classifier's own source; NaN where it has none."""
    if model.source_ is None:
        return float("nan")
    table = pf.audit({"it": model}, model.source_, df, n_boot=0, progress=False, random_state=seed).table
    table = table[(table["quantity"] == "piu_upper") & (table["decisions"] == "threshold")]
    return float(table["estimate"].iloc[0])


def chosen(table: pd.DataFrame, at_most: float) -> pd.DataFrame:
    """Return one row for each method and penalty: its best strength by means over seeds, on validation rows."""
    means = table.groupby(["method", "penalty", "strength"], sort=False)[SCORES].mean().reset_index()
    allowed = means[(means["estimate"] <= at_most) | (means["strength"] == 0.0)]
    return allowed.loc[allowed.groupby(["method", "penalty"], sort=False)["validation"].idxmax()]


def draw(means: pd.DataFrame, seeds: int, path: Path) -> None:
    """Draw accuracy against true PIU: a labelled line for each of four series, and the classifier without a penalty."""
    figure = make_figure(
        7.5, 5.0, f"Accuracy against true PIU by strength: hiring, 5,000 training rows, {seeds} seed(s)"
    )
    axes = figure.add_subplot()
    places, lines = {}, []
    for (key, name), colour, marker in zip(SERIES.items(), COLOURS, MARKERS, strict=False):
        own = means[(means["method"] == key[0]) & (means["penalty"] == key[1])]
        axes.plot(own["piu"], own["fresh"], marker=marker, color=colour)
        if len(own):
            lines.append(own[["piu", "fresh"]].to_numpy())
            places[name] = lines[-1][0]
    for _, row in means[means["method"] == "unpenalised"].iterrows():
        axes.axhline(row["fresh"], color=GREY, linestyle="--", linewidth=1)
        axes.annotate(f"no penalty: PIU {row['piu']:.1%}", (1.0, row["fresh"]), xytext=(0, 3), ha="right", color=GREY,
                      xycoords=("axes fraction", "data"), textcoords="offset points")  # fmt: skip
    axes.set(xlabel="true PIU, %", ylabel="accuracy on 50,000 further individuals, %")
    axes.margins(0.12)
    axes.set_ylim(bottom=max(axes.get_ylim()[0], LOWEST))
    for axis in (axes.xaxis, axes.yaxis):
        in_percent(axis)
    finish(axes)
    label_places(axes, np.reshape([*places.values()], (-1, 2)), [*places], lines)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", nargs="*", help="methods whose names begin so")
    parser.add_argument("--at-most", type=float, default=0.015, help="the largest estimated upper bound on PIU")
    parser.add_argument("--out", type=Path, default=Path("build"))
    settings = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    settings.out.mkdir(parents=True, exist_ok=True)
    truth, rows = pf.SEM(HIRING.program, HIRING.unfair), []
    for seed in range(settings.first, settings.first + settings.seeds):
        sizes = ((5000, 0), (1000, 100), (1000, 200), (50_000, 300))
        train, valid, test, fresh = (HIRING.draw(n, random_state=k + seed) for n, k in sizes)
        for name, method in methods().items():
            if settings.only and not any(name.startswith(part) for part in settings.only):
                continue
            try:
                settings_of = {"columns": method.columns, "random_state": seed, "progress": False}
                start = pf.PenalizedClassifier(source=method.source, **settings_of)
                each = fit_each(start, train[READS], train["Y"], method.penalties, method.strengths)
                for penalty, strength, model, spent in each:
                    reads = model.feature_names_in_
                    scores = [float((model.predict(df[reads]) == df["Y"]).mean()) for df in (valid, test, fresh)]
                    piu = truth.truth(model, n=100_000, random_state=seed).piu.value
                    rows.append((name, penalty, strength, seed, *scores, piu, estimate(model, valid, seed), spent))
                    print(f"{name:23s} {penalty:12s} {strength:4.2f} {seed:2d} {scores[2]:.4f} {piu:.4f}", flush=True)
            except pf.DataError as error:
                print(f"# {name}, seed {seed}: {error}"[:160], flush=True)
        table = pd.DataFrame(rows, columns=["method", "penalty", "strength", "seed", *SCORES])
        table.to_csv(settings.out / "hiring_frontier.csv", index=False)
    by = table.groupby(["method", "penalty", "strength"], sort=False)
    draw(by[SCORES].mean().reset_index(), table["seed"].nunique(), settings.out / "hiring_frontier.png")
    print(by[SCORES].mean().round(4).to_string())
    print(by[["accuracy", "piu"]].std().round(4).to_string())
    print(chosen(table, settings.at_most).round(4).to_string())


if __name__ == "__main__":
    main()
