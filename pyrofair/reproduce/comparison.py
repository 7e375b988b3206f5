"""The paper's methods on packaged data: every method beside every other, in tables and figures."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from pyrofair._cells import CellFolder, made_folder
from pyrofair.audits import Audit, audit, penalty_path
from pyrofair.audits.plots import plot_trade_off
from pyrofair.classifiers import PSCF, PenalizedClassifier, remove
from pyrofair.datasets import Dataset, load_adult, load_german
from pyrofair.effects import disagreement, effect_gap
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.reproduce.fits import MODES, modes
from pyrofair.reproduce.kept import Training, keep_audit, keep_table
from pyrofair.reproduce.printed import printed
from pyrofair.sources import IPW, GComputation, OneStep

__all__ = ["SETTINGS", "STRENGTHS", "Comparison", "claim_folder", "compare", "methods", "settings_of"]


PATIENCE = 8
FILES = ("audit.csv", "groups.csv", "trade-off.csv", "audit.png", "stages.png", "trade-off.png", "reading.txt")
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)


@dataclass(frozen=True)
class Setting:
    """A data set, the settings of training on it, and the test accuracies (%) that the paper prints for it.

    ``pscf`` holds the settings of PSCF that differ from its defaults.
    """

    load: Callable[[], Dataset]
    batch_size: int
    epochs: int
    printed: dict[str, float]
    pscf: Mapping[str, Any] = field(default_factory=dict)


def _accuracies(data: str) -> dict[str, float]:
    return {method: claim.value for method, claim in printed("table1", data).items()}


SETTINGS = {
    "adult": Setting(
        load_adult,
        batch_size=1000,
        epochs=30,
        printed=_accuracies("adult"),
    ),
    "german": Setting(
        load_german,
        batch_size=100,
        epochs=60,
        printed=_accuracies("german"),
    ),
}


@dataclass(frozen=True, eq=False)
class Comparison:
    """The result of :func:`compare`.

    Attributes
    ----------
    audit : Audit
        The methods on test rows, by one-step estimates with boosted nuisances of the training rows.
    paper : Audit
        The same by the paper's weights: inverse probabilities with logistic propensities, and replicates.
    path : DataFrame
        The trade-off of the paper's penalty and of FIO's over strengths, by one-step estimates.
    text : str
        A reading of all of them.
    settings : dict
        The data set and the settings of the run, by which its own files are recognised.
    """

    audit: Audit
    paper: Audit
    path: pd.DataFrame
    text: str
    settings: dict[str, Any] = field(default_factory=dict)

    def save(self, folder: Path, *, overwrite: bool = False) -> list[Path]:
        """Write the tables as CSV, the figures as PNG and the reading as text, and return their paths.

        The folder is made if it does not exist. A DataError is raised if it cannot be written to, or holds files of a
        run with other settings, unless ``overwrite``.
        """
        claim_folder(folder, self.settings, overwrite=overwrite)
        audits = {"one-step": self.audit, "ipw": self.paper}
        tables = {
            f"{name}.csv": pd.concat(
                [getattr(each, attribute).assign(source=source) for source, each in audits.items()],
                ignore_index=True,
            )
            for name, attribute in [("audit", "table"), ("groups", "groups")]
        }
        for name, frame in {**tables, "trade-off.csv": self.path}.items():
            frame.to_csv(folder / name, index=False)
        (folder / "reading.txt").write_text(self.text + "\n", encoding="utf-8")
        figures = {
            "audit.png": self.audit.plot(),
            "stages.png": self.audit.plot_stages(),
            "trade-off.png": plot_trade_off(self.path),
        }
        for name, figure in figures.items():
            figure.savefig(folder / name, dpi=150)
        return [folder / name for name in FILES]


def settings_of(
    name: str, *, strength: float = 1.0, strengths: Sequence[float] = STRENGTHS, n_boot: int = 50, seed: int = 0
) -> dict[str, Any]:
    """Return the settings that identify a run of :func:`compare`."""
    return {
        "command": "compare",
        "data": name,
        "strength": float(strength),
        "strengths": [float(each) for each in strengths],
        "replicates": int(n_boot),
        "seed": int(seed),
    }


def claim_folder(folder: Path, settings: Mapping[str, Any], *, overwrite: bool = False) -> list[str]:
    """Make a folder for the files of a run, before any work is done, and return the names of those it will replace.

    A DataError refuses a folder that cannot be made or written to, or with files of a run of other :func:`settings_of`.
    """
    made_folder(folder)
    found = [name for name in FILES if (folder / name).exists()]
    if found and not overwrite and not CellFolder(folder).is_of(settings):
        raise DataError(
            f"The output folder {str(folder)!r} holds {', '.join(found)} of another run. Name another folder, or pass "
            "--overwrite (overwrite=True) to replace them."
        )
    CellFolder.claimed(folder, settings, overwrite=overwrite)
    return found


def compare(
    name: str,
    *,
    strength: float = 1.0,
    strengths: Sequence[float] = STRENGTHS,
    n_boot: int = 50,
    seed: int = 0,
    folder: Path | None = None,
    report: Callable[[str], None] = print,
) -> Comparison:
    """Compare the paper's methods on a packaged data set.

    Parameters
    ----------
    name
        ``"adult"`` or ``"german"``.
    strength, strengths
        The strength of the penalties in the audit, and those of the trade-off.
    n_boot
        Bootstrap replicates of the audit by the paper's weights; one-step estimates need none.
    seed
        Seeds the split, the training, the one-step estimates and the bootstrap.
    folder
        Where each classifier's scores, each audit and each trade-off are kept as soon as they are finished, and found
        by a later call with the same settings, however this one ends. By default nothing is kept.
    report
        Receives progress, a line at a time.

    Raises
    ------
    DataError
        If there is no such data set, a strength is unfit, or the folder holds what another run has finished.
    """
    if name not in SETTINGS:
        raise DataError(f"There is no packaged data set {name!r}; choose one of {', '.join(map(repr, SETTINGS))}.")
    setting = SETTINGS[name]
    data = setting.load()
    target = data.graph.outcome_column
    train, test = data.split(random_state=seed)
    X, y = train.drop(columns=target), train[target]
    held_out = test.drop(columns=target), test[target]
    settings = settings_of(name, strength=strength, strengths=strengths, n_boot=n_boot, seed=seed)
    cells = None if folder is None else CellFolder.claimed(folder, settings)
    plain, penalised = methods(data, setting, strength, seed)
    given = _given_shared(data, penalised["Proposed"])
    started = time.perf_counter()

    def step(text: str) -> None:
        report(f"[{time.perf_counter() - started:5.0f} s] {text}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PyrofairWarning)  # the audit's reading reports the overlap
        source, weights = OneStep(data.unfair, random_state=seed).fit(X), IPW(data.unfair).fit(X)
        training = Training(cells, X, y, lambda model: _score(model, source, weights, test, seed), step)
        models: dict[str, Any] = {}
        for label, model in {**plain, **penalised, "Proposed given S": given}.items():
            models |= training.finish(label, model)
        models |= training.finish("PSCF", PSCF(data.unfair, progress=False, random_state=seed, **setting.pscf), modes)
        step(f"auditing on {len(test):,} test rows, one-step estimates")
        audited = keep_audit(cells, "one-step", data.unfair, lambda: audit(models, source, test, random_state=seed))
        step(f"auditing again by the paper's weights, {n_boot} bootstrap replicates")
        paper = keep_audit(
            cells, "ipw", data.unfair, lambda: audit(models, weights, test, n_boot=n_boot, random_state=seed)
        )
        tables = []
        for label, model in penalised.items():
            step(f"tracing the trade-off of {label} over {len(strengths)} strengths")
            tables.append(
                keep_table(
                    cells,
                    {"part": "trade-off", "model": label},
                    lambda label=label, model=model: penalty_path(  # type: ignore[misc]
                        model, X, y, strengths=strengths, seeds=[seed], test=held_out, judge=source
                    ).table.assign(method=label),
                )
            )
    step("done")
    path = pd.concat(tables, ignore_index=True)
    return Comparison(audited, paper, path, _describe(setting, audited, paper, path), settings)


def _score(model: Any, source: OneStep, weights: IPW, test: pd.DataFrame, seed: int) -> None:
    """Let both audits ask a model for its scores."""
    audit({"model": model}, source, test, random_state=seed, progress=False)
    audit({"model": model}, weights, test, n_boot=0, progress=False)


def _given_shared(data: Dataset, proposed: PenalizedClassifier) -> PenalizedClassifier:
    """Return the proposed method given what both worlds share: one start, for its penalty has no two basins."""
    given: PenalizedClassifier = clone(proposed)
    return given.set_params(source=GComputation(data.unfair, draws=5, progress=False), starts=1)  # type: ignore[no-any-return]


def methods(
    data: Dataset, setting: Setting, strength: float, seed: int
) -> tuple[dict[str, PenalizedClassifier], dict[str, PenalizedClassifier]]:
    """Return the paper's methods by name, unfitted: those without a penalty, and those with one."""
    shared: dict[str, Any] = {
        "batch_size": setting.batch_size,
        "epochs": setting.epochs,
        "validation_fraction": 0.1,
        "patience": PATIENCE,
        "dtype": "float32",
        "random_state": seed,
    }
    kept = {
        "Unconstrained": data.graph.input_columns,
        "Remove (touched)": remove(data.unfair, "touched"),
        "Remove (descendants)": remove(data.graph, "descendants"),
    }
    penalties = {"Proposed": disagreement, "FIO": effect_gap}
    source = IPW(data.unfair)
    return (
        {label: PenalizedClassifier(columns=columns, **shared) for label, columns in kept.items()},
        {
            label: PenalizedClassifier(source=source, penalty=penalty, strength=strength, **shared)
            for label, penalty in penalties.items()
        },
    )


def _describe(setting: Setting, audited: Audit, paper: Audit, path: pd.DataFrame) -> str:
    """Return the reading of the audit, with the tables of the comparison and the paper's accuracies."""
    table = _wide(audited)
    bounds = ["mean_unfair_effect", "piu_paper_bound", "piu_lower", "piu_upper"]
    columns = ["p_y0", "p_ypi", *bounds]
    majority = float(table["majority_rate"].iloc[0])
    trade = path[path["decisions"] == "threshold"].set_index(["method", "strength"])
    printed = ", ".join(f"{method} {value:.1f}" for method, value in setting.printed.items())
    return "\n".join(
        [
            str(audited),
            "",
            "Thresholded decisions on test rows, one-step estimates:",
            table[["accuracy", "positive_rate", *columns]].round(3).to_string(),
            "and by the paper's weights (inverse probabilities, logistic propensities):",
            _wide(paper)[columns].round(3).to_string(),
            "",
            "Either observed group alone (decisions), boosted propensities of the one-step estimates:",
            _describe_groups(audited.groups),
            "and the paper's logistic ones:",
            _describe_groups(paper.groups),
            "",
            "Trade-off over the strength of the penalty (decisions, one-step estimates):",
            trade[["accuracy", "positive_rate", *bounds]].round(3).to_string(),
            "Each strength starts from the one above, the audited classifiers from scratch: at equal strengths the two "
            "differ a little.",
            "",
            f"One PSCF is fitted, and predicts in four modes. {_describe_modes()} The thresholded mean of PSCF has an "
            "unfair effect of its own, for it is sharp where a row determines its noise, as with the baseline, and "
            "smooth elsewhere: read its scores, and the decisions of one draw.",
            "",
            f"The paper prints as test accuracies: {printed}. The majority class alone is right for {majority:.1%} of "
            "these test rows, and every bound on PIU falls to 0 with a constant classifier: read accuracy and bounds "
            "beside the positive rate.",
        ]
    )


def _describe_modes() -> str:
    """Return a sentence on each mode of PSCF."""
    return " ".join(f"{name} {what}." for name, what in MODES.items())


def _wide(report: Audit) -> pd.DataFrame:
    """Return the estimates of an audit for decisions, a row for each model and a column for each quantity."""
    decided = report.table[report.table["decisions"] == "threshold"]
    table = decided.set_index(["model", "quantity"])["estimate"].unstack()  # noqa: PD010 - nothing to aggregate
    return table.loc[report.table["model"].unique()]


def _describe_groups(groups: pd.DataFrame) -> str:
    """Return the comparison of the groups, thresholded decisions, as a table in text."""
    if groups.empty:
        return "  no single group has support in both worlds"
    rows = groups[(groups["decisions"] == "threshold") & (groups["quantity"] != "p_y0")]
    rows = rows.assign(note=rows["note"].mask(rows["note"] == "")).dropna(axis="columns", how="all")
    rounded = rows.assign(**{column: rows[column].round(3) for column in rows.select_dtypes(np.number).columns})
    return rounded.drop(columns="decisions").to_string(index=False)
