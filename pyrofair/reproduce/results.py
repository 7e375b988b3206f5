"""Results of cells in tables: what is computed at which scale, one row for each classifier, and tables as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pyrofair.reproduce.fits import BOUNDED, METHODS, MODES, PAPER_MODE, RATES, Job, Model
from pyrofair.reproduce.printed import Printed
from pyrofair.reproduce.problems import PROBLEMS, Sizes
from pyrofair.reproduce.verdicts import Verdict

__all__ = [
    "BEYOND",
    "FULL",
    "OF_PAPER",
    "PAPER",
    "PERCENT",
    "QUICK",
    "WEIGHTS",
    "Outcome",
    "Results",
    "Scale",
    "Table",
    "by_strength",
    "markdown",
    "shown",
    "spread",
    "summarise",
]

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

    def seeds_of(self, data: str, method: str) -> int:
        """Return the number of seeds of a method on a data set."""
        return (self.beyond if METHODS[method].beyond else self.seeds)[data]

    def jobs(self, data: str, methods: Iterable[str], model: Model = "network") -> list[Job]:
        """Return the jobs of methods on a data set, for all of its seeds."""
        found = [
            Job(data, method, seed, model, self.strengths(data, method, seed, model))
            for seed in range(self.seeds[data])
            for method in methods
            if (model, method) not in self.skipped and seed < self.seeds_of(data, method)
        ]
        return ([] if PROBLEMS[data].scenario is None else [Job(data, RATES, 0)]) + found


FULL = Scale(
    seeds={"synth": 10, "additive": 10, "latent": 10, "german": 10, "adult": 3},
    beyond={"synth": 5, "additive": 5, "latent": 5, "german": 5, "adult": 3},
    sizes={"synth": Sizes(), "additive": Sizes(), "latent": Sizes(), "german": Sizes(), "adult": Sizes()},
    grid=tuple(np.linspace(0.0, 2.0, 9).tolist()),
    fine=tuple(np.round(np.linspace(0.0, 2.0, 41), 2).tolist()),
    some=(0.5, 1.0, 1.5, 2.0),
    few=(0.5, 1.0, 2.0),
)
SHORT = Sizes(400, 200, 3, 500, quick=True)
QUICK = Scale(
    seeds={"synth": 2, "additive": 1, "latent": 1, "german": 1, "adult": 1},
    beyond={"synth": 1, "additive": 1, "latent": 1, "german": 1, "adult": 1},
    sizes={
        "synth": SHORT,
        "additive": SHORT,
        "latent": SHORT,
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

# -- results ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Results:
    """The rows of all finished cells that an experiment needs."""

    rows: pd.DataFrame

    def of(self, data: str, model: str = "network", decisions: str = "threshold") -> pd.DataFrame:
        """Return the rows of a data set."""
        rows = self.rows
        return rows[(rows["data"] == data) & (rows["model"] == model) & (rows["decisions"] == decisions)]

    def chosen(self, data: str, model: str = "network", decisions: str = "threshold") -> pd.DataFrame:
        """Return one row for each classifier and seed: of a penalised method, that of the strength chosen for it.

        See :func:`~pyrofair.reproduce.fits.choose_strength`; the Oracle has the strength of Proposed that is nearest
        among its own, as in the paper.
        """
        rows = self.of(data, model, decisions)
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

    def rates(self, data: str) -> dict[str, float]:
        """Return the accuracies, in %, of the majority class and of the best classifier (NaN for packaged data)."""
        known = self.rows[(self.rows["data"] == data) & (self.rows["classifier"] == RATES)]
        if len(known):
            row = known.iloc[0]
            return {"majority": 100.0 * row["majority_rate"], "bayes": 100.0 * row["bayes_rate"]}
        own = self.rows[self.rows["data"] == data].groupby("seed")["majority_rate"].first()
        return {"majority": 100.0 * float(own.mean()), "bayes": float("nan")}

    def traced(self, data: str, model: str, method: str) -> dict[float, float]:
        """Return the mean accuracy over seeds, in %, by strength."""
        own = self.of(data, model)
        own = own[(own["method"] == method) & own["strength"].notna()]
        return by_strength(own, "accuracy")


def by_strength(own: pd.DataFrame, column: str) -> dict[float, float]:
    """Return the mean of a column over seeds by strength, in %."""
    means = own.groupby("strength")[column].mean()
    return dict(zip(means.index.astype(float), 100.0 * means, strict=True))


def summarise(chosen: pd.DataFrame) -> pd.DataFrame:
    """Return means and standard deviations over seeds by classifier; accuracies and rates in %."""
    rows = []
    for name, own in chosen.groupby("classifier", sort=False):
        strengths = own["strength"].dropna()
        row: dict[str, Any] = {
            "method": name,
            "seeds": len(own),
            "strength": "" if strengths.empty else _range(strengths),
        }
        for column in STATISTICS:
            if column in own and own[column].notna().any():
                scale = 100.0 if column in PERCENT else 1.0
                row[column] = scale * own[column].mean()
                row[f"{column}_sd"] = scale * own[column].std(ddof=1) if len(own) > 1 else np.nan
        rows.append(row)
    return pd.DataFrame(rows).reindex(
        columns=["method", "seeds", "strength", *(name for each in STATISTICS for name in (each, f"{each}_sd"))]
    )


PERCENT = ("accuracy", "positive_rate")
STATISTICS = (
    *PERCENT,
    "mean_unfair_effect",
    "piu_paper_bound",
    "true_sd",
    "true_piu",
    "true_piu_bounded",
    "train_interval_penalty",
    "train_corrected_penalty",
    "one_step_mean_unfair_effect",
    "one_step_piu_upper",
)
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


def _range(values: pd.Series[float]) -> str:
    low, high = values.min(), values.max()
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


# -- tables in text ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Table:
    """A table of an experiment: all its numbers, and what the page shows of it."""

    title: str
    frame: pd.DataFrame
    shown: pd.DataFrame


@dataclass(frozen=True, eq=False)
class Outcome:
    """The files of an experiment: tables and figures by name, the verdicts, and further text."""

    tables: Mapping[str, Table]
    figures: Mapping[str, Figure]
    verdicts: Sequence[Verdict]
    notes: Sequence[str] = field(default_factory=tuple)


def markdown(frame: pd.DataFrame) -> str:
    """Return a table in Markdown, numbers to the right."""
    numeric = [pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes]
    lines = [list(map(str, frame.columns)), ["--:" if each else "---" for each in numeric]]
    lines += [["" if pd.isna(value) else str(value).replace("|", "/") for value in row] for row in frame.to_numpy()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def shown(summary: pd.DataFrame, claims: Mapping[str, Printed], rates: Mapping[str, float] | None) -> pd.DataFrame:
    """Return a summary as the page shows it: numbers with spreads, printed ones beside, and the two rates below."""
    found = pd.DataFrame({"method": summary["method"]})
    names = [OF_PAPER.get(name, name) for name in summary["method"]]
    if claims:
        found["printed accuracy, %"] = [_printed(claims.get(name)) for name in names]
    for column, heading in HEADINGS.items():
        if summary[column].notna().any():
            digits = 1 if column in PERCENT else 3
            found[heading] = [
                spread(row[column], row[f"{column}_sd"], digits) for row in summary.to_dict(orient="records")
            ]
    found.insert(1, "strength", summary["strength"])
    found.insert(2, "seeds", [str(each) for each in summary["seeds"]])
    if rates is not None:
        below = [("majority class alone", rates["majority"]), ("Bayes rate", rates["bayes"])]
        extra = [
            {"method": name, "accuracy, %": f"{value:.1f}" if np.isfinite(value) else "not known"}
            for name, value in below
        ]
        found = pd.concat([found, pd.DataFrame(extra)], ignore_index=True)
    return found.fillna("")


def _printed(claim: Printed | None) -> str:
    return "" if claim is None else f"{claim.value:.1f}" + ("" if claim.sd is None else f" ± {claim.sd:.1f}")


def spread(mean: float, sd: float, digits: int) -> str:
    """Return a mean and, where there is one, its standard deviation as text; an empty one where there is none."""
    if not np.isfinite(mean):
        return ""
    return f"{mean:.{digits}f}" + (f" ± {sd:.{digits}f}" if np.isfinite(sd) else "")
