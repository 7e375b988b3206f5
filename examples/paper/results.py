"""What is computed at which scale, the rows of finished cells, and tables of them, as data and as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from claims import Printed
from fits import BOUNDED, METHODS, MODES, PAPER_MODE, RATES, Job
from problems import PROBLEMS, Sizes

PAPER = ("Unconstrained", "Remove (touched)", "Remove (descendants)", "Proposed", "FIO", "PSCF")
WEIGHTS = ("Proposed, free group", "Proposed, both groups", "Proposed, boosted propensities")
BEYOND = (*WEIGHTS, "Proposed given S", "FIO given S")
OF_PAPER = {
    "Remove (touched)": "Remove",
    "Remove (descendants)": "Remove",
    PAPER_MODE: "PSCF",
    "Proposed (extended)": "Proposed_ex",
}
"""The paper's name of each of our methods that has another one; of two, the paper does not tell which is its own."""


def names_of(method: str) -> list[str]:
    """Return our names of a method of the paper."""
    return [ours for ours, theirs in OF_PAPER.items() if theirs == method] or [method]


# -- what is computed --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """How much is computed: seeds and sizes by data set, and strengths.

    ``beyond`` has the seeds of methods that the paper does not have. ``grid`` is for the paper's two penalties,
    ``fine`` for figure 5, ``some`` for other weights, bounds and the Oracle, ``few`` for learned mechanisms.
    ``skipped`` pairs of a model and a method are left out.
    """

    seeds: Mapping[str, int]
    beyond: Mapping[str, int]
    sizes: Mapping[str, Sizes]
    grid: tuple[float, ...]
    fine: tuple[float, ...]
    some: tuple[float, ...]
    few: tuple[float, ...]
    skipped: tuple[tuple[str, str], ...] = ()

    def strengths(self, data: str, method: str, seed: int, model: str) -> tuple[float, ...]:
        """Return the strengths that a method is trained with."""
        if METHODS[method].source is None:
            return ()
        if method in ("Proposed", "FIO"):
            return self.fine if (data, seed, model) == ("adult", 0, "network") else self.grid
        return self.few if method.endswith("given S") else self.some

    def jobs(self, data: str, methods: Iterable[str], model: str = "network") -> list[Job]:
        """Return the jobs of methods on a data set, for all of its seeds."""
        found = [
            Job(data, method, seed, model, self.strengths(data, method, seed, model))
            for seed in range(self.seeds[data])
            for method in methods
            if (model, method) not in self.skipped
            and seed < (self.beyond if METHODS[method].beyond else self.seeds)[data]
        ]
        return ([] if PROBLEMS[data].scenario is None else [Job(data, RATES, 0)]) + found


FULL = Scale(
    seeds={"synth": 10, "additive": 10, "latent": 10, "german": 10, "adult": 3},
    beyond={"synth": 5, "additive": 5, "latent": 5, "german": 5, "adult": 3},
    sizes=dict.fromkeys(PROBLEMS, Sizes()),
    grid=tuple(np.linspace(0.0, 2.0, 9).tolist()),
    fine=tuple(np.round(np.linspace(0.0, 2.0, 41), 2).tolist()),
    some=(0.5, 1.0, 1.5, 2.0),
    few=(0.5, 1.0, 2.0),
)
QUICK = Scale(
    seeds={**dict.fromkeys(PROBLEMS, 1), "synth": 2},
    beyond=dict.fromkeys(PROBLEMS, 1),
    sizes={
        **dict.fromkeys(PROBLEMS, Sizes(400, 200, 3, 500, quick=True)),
        "german": Sizes(None, None, 3, quick=True),
        "adult": Sizes(2000, 600, 3, quick=True),
    },
    grid=(0.0, 1.0, 2.0),
    fine=(0.0, 1.0, 2.0),
    some=(1.0, 2.0),
    few=(1.0,),
    skipped=(
        ("network", "Proposed, both groups"),
        ("network", "Proposed, boosted propensities"),
        ("network", "FIO given S"),
        ("network", "Proposed (extended), corrected"),
        ("logistic", "Proposed, both groups"),
        ("logistic", "Proposed, free group"),
        ("logistic", "Proposed given S"),
    ),
)


# -- rows of finished cells --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Results:
    """The rows of all finished cells that an experiment needs."""

    rows: pd.DataFrame

    def of(self, data: str, model: str = "network", method: str | None = None) -> pd.DataFrame:
        """Return the rows of thresholded decisions on a data set, of all methods or one."""
        rows = self.rows
        rows = rows[(rows["data"] == data) & (rows["model"] == model) & (rows["decisions"] == "threshold")]
        return rows if method is None else rows[rows["method"] == method]

    def chosen(self, data: str, model: str = "network") -> pd.DataFrame:
        """Return one row for each classifier and seed: of a penalised method, that of the strength chosen for it.

        See :func:`fits.choose_strength`; the Oracle has the strength of Proposed that is nearest among its own, as in
        the paper.
        """
        rows = self.of(data, model)
        oracle = rows["method"] == "Oracle"
        found = [rows[~oracle & (rows["strength"].isna() | (rows["chosen"] == True))]]  # noqa: E712 - it holds NaN too
        proposed = found[0][found[0]["method"] == "Proposed"].set_index("seed")["strength"]
        for seed, own in rows[oracle].groupby("seed"):
            away = (own["strength"] - float(proposed.get(seed, 1.0))).abs()
            found.append(own[away == away.min()].head(1))
        order = [*PAPER[:-1], *BOUNDED, *MODES, "Oracle", *BEYOND]
        place = {name: i for i, name in enumerate(order)}
        table = pd.concat(found)
        return table.iloc[np.lexsort((table["seed"], table["classifier"].map(place)))]

    def ours(self, data: str, model: str, name: str, column: str = "accuracy") -> pd.Series:
        """Return a column of a chosen classifier by seed; accuracies, rates and PIU in %."""
        chosen = self.chosen(data, model)
        own = chosen[chosen["classifier"] == name].set_index("seed")[column]
        return 100.0 * own if column in (*PERCENT, "true_piu") else own

    def rates(self, data: str) -> dict[str, float]:
        """Return the accuracies, in %, of the majority class and of the best classifier (NaN for packaged data)."""
        own = self.rows[self.rows["data"] == data]
        known = own[own["classifier"] == RATES]
        if len(known):
            row = known.iloc[0]
            return {"majority": 100.0 * row["majority_rate"], "bayes": 100.0 * row["bayes_rate"]}
        return {"majority": 100.0 * float(own.groupby("seed")["majority_rate"].first().mean()), "bayes": float("nan")}

    def traced(self, data: str, model: str, method: str, column: str = "accuracy") -> dict[float, float]:
        """Return the mean of a column over seeds, in %, by strength."""
        means = self.of(data, model, method).groupby("strength")[column].mean()
        return dict(zip(means.index.astype(float), 100.0 * means, strict=True))


# -- tables ------------------------------------------------------------------------------------------------------------

PERCENT = ("accuracy", "positive_rate")
HEADINGS = {
    "accuracy": "accuracy, %",
    "positive_rate": "positive rate, %",
    "mean_unfair_effect": "mean unfair effect, by weights",
    "piu_paper_bound": "paper's bound, by weights",
    "true_sd": "true conditional sd",
    "true_piu": "true PIU",
    "true_piu_bounded": "true PIU, A -> R -> Y unfair too",
    "train_interval_penalty": "extended penalty",
    "train_corrected_penalty": "extended penalty, corrected",
    "one_step_mean_unfair_effect": "mean unfair effect, one-step",
    "one_step_piu_upper": "PIU at most, one-step",
}


class Table(NamedTuple):
    """A table of an experiment: all its numbers, and what the page shows of it."""

    title: str
    frame: pd.DataFrame
    shown: pd.DataFrame

    def markdown(self) -> str:
        """Return what is shown in Markdown, below the title."""
        return f"**{self.title}**\n\n{markdown(self.shown)}"


def summarise(chosen: pd.DataFrame) -> pd.DataFrame:
    """Return means and standard deviations over seeds by classifier; accuracies and rates in %."""
    rows = []
    for name, own in chosen.groupby("classifier", sort=False):
        low, high = own["strength"].min(), own["strength"].max()
        strengths = "" if np.isnan(low) else f"{low:g}" if low == high else f"{low:g} to {high:g}"
        row = {"method": name, "seeds": len(own), "strength": strengths}
        for column in HEADINGS:
            values = own.get(column, pd.Series(dtype=np.float64)) * (100.0 if column in PERCENT else 1.0)
            row |= {column: values.mean(), f"{column}_sd": values.std(ddof=1)}
        rows.append(row)
    return pd.DataFrame(rows)


def shown(summary: pd.DataFrame, claims: Mapping[str, Printed], rates: Mapping[str, float]) -> pd.DataFrame:
    """Return a summary as the page shows it: numbers with spreads, printed ones beside, and the two rates below."""
    found = summary[["method", "strength"]].assign(seeds=summary["seeds"].astype(str))
    if claims:
        named = [claims.get(OF_PAPER.get(name, name)) for name in summary["method"]]
        found["printed accuracy, %"] = [spread(each.value, each.sd, 1) if each else "" for each in named]
    for column, heading in HEADINGS.items():
        if summary[column].notna().any():
            pairs = zip(summary[column], summary[f"{column}_sd"], strict=True)
            found[heading] = [spread(*pair, 1 if column in PERCENT else 3) for pair in pairs]
    below = {"majority class alone": rates["majority"], "Bayes rate": rates["bayes"]}
    known = [f"{value:.1f}" if np.isfinite(value) else "not known" for value in below.values()]
    return pd.concat([found, pd.DataFrame({"method": [*below], "accuracy, %": known})], ignore_index=True).fillna("")


def spread(mean: float, sd: float | None, digits: int) -> str:
    """Return a mean and, where there is one, its standard deviation as text; an empty one where there is none."""
    if not np.isfinite(mean):
        return ""
    return f"{mean:.{digits}f}" + ("" if sd is None or np.isnan(sd) else f" ± {sd:.{digits}f}")


def markdown(frame: pd.DataFrame) -> str:
    """Return a table in Markdown, numbers to the right."""
    numeric = [pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes]
    lines = [list(map(str, frame.columns)), ["--:" if each else "---" for each in numeric]]
    lines += [["" if pd.isna(value) else str(value).replace("|", "/") for value in row] for row in frame.to_numpy()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
