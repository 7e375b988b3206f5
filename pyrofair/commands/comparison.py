"""The paper's methods on packaged data, every one beside every other: trained, audited and traced over strengths."""

from __future__ import annotations

import copy
import io
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone

from pyrofair._cells import Cell, CellFolder
from pyrofair._files import csv_text, write_whole
from pyrofair._progress import progress_bar
from pyrofair.audits import Audit, PenaltyPath, audit, penalty_path
from pyrofair.audits.report import group_lines
from pyrofair.classifiers import PSCF, PenalizedClassifier, remove
from pyrofair.datasets import Dataset, load_adult, load_german
from pyrofair.effects import disagreement, effect_gap
from pyrofair.effects.estimates import OF_WORLDS
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.persistence import load, save
from pyrofair.sources import IPW, GComputation, OneStep
from pyrofair.tables.row_identity import hash_rows

__all__ = ["FILES", "MODES", "SETTINGS", "STRENGTHS", "Comparison", "compare", "methods"]

FILES = ("audit.csv", "groups.csv", "trade-off.csv", "audit.png", "stages.png", "trade-off.png", "reading.txt")
STRENGTHS = (0.0, 0.5, 1.0, 1.5, 2.0)
ALL_STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
MODES = {
    "PSCF": "replays each unit with the noise that its row implies on the fair edges (scores are means over 100 draws "
    "of it)",
    "PSCF (one draw)": "decides by one draw of that noise instead of the mean, as predict does by default",
    "PSCF (latents from the posterior)": "infers the latent variables alone and draws all other noise anew (Chiappa)",
    "PSCF (latents from the prior)": "draws all noise anew, 5 times, so that of the columns on unfair paths nothing is "
    "left (the paper)",
}
"""The modes of one fitted PSCF, and what each does."""
USUAL = ("PSCF", "PSCF (latents from the prior)")
"""The modes that are audited unless all are asked for: the default, and the paper's."""


@dataclass(frozen=True)
class Setting:
    """A data set, the settings of training on it, and the test accuracies (%) that the paper prints for it.

    ``few`` test rows are judged by nuisance models of the training rows, which takes longer.
    """

    load: Callable[[], Dataset]
    few: bool
    batch_size: int
    epochs: int
    printed: Mapping[str, float]


SETTINGS = {
    "adult": Setting(load_adult, False, 1000, 30,
                     {"Proposed": 75.2, "FIO": 81.2, "PSCF": 73.4, "Unconstrained": 83.2, "Remove": 74.7}),
    "german": Setting(load_german, True, 100, 60,
                      {"Proposed": 75.0, "FIO": 78.0, "PSCF": 76.0, "Unconstrained": 81.0, "Remove": 73.0}),
}  # fmt: skip


def methods(
    data: Dataset, setting: Setting, strength: float, seed: int
) -> tuple[dict[str, PenalizedClassifier], dict[str, PenalizedClassifier]]:
    """Return the paper's methods by name, unfitted: those without a penalty, and those with one."""
    shared: dict[str, Any] = {"batch_size": setting.batch_size, "epochs": setting.epochs, "random_state": seed}
    shared |= {"validation_fraction": 0.1, "patience": 8, "dtype": "float32"}
    reads = {
        "Unconstrained": data.graph.input_columns,
        "Remove (touched)": remove(data.unfair, "touched"),
        "Remove (descendants)": remove(data.graph, "descendants"),
    }
    plain = {label: PenalizedClassifier(columns=columns, **shared) for label, columns in reads.items()}
    shared |= {"source": IPW(data.unfair), "strength": strength}
    penalties = {"Proposed": disagreement, "FIO": effect_gap}
    return plain, {label: PenalizedClassifier(penalty=penalty, **shared) for label, penalty in penalties.items()}


def _modes(fitted: Any, label: str, modes: Sequence[str]) -> dict[str, Any]:
    """Return a fitted classifier by its name; PSCF in some of its :data:`MODES`, which differ in predictions alone."""
    if label != "PSCF":
        return {label: fitted}
    posterior, prior = copy.copy(fitted), copy.copy(fitted)
    posterior.latents, prior.latents = "posterior", "prior"
    every = dict(zip(MODES, (fitted, fitted.one_draw(), posterior, prior), strict=True))
    return {mode: every[mode] for mode in modes}


class Remembering:
    """A fitted classifier that scores each row once: both audits ask for most rows several times."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.known = pd.DataFrame()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return the probability of each class, shape (m, 2); a score depends on its row alone."""
        rows = pd.Index(hash_rows(X))
        new = ~(rows.isin(self.known.index) | rows.duplicated())
        if new.any():
            self.known = pd.concat([self.known, pd.DataFrame(self.model.predict_proba(X[new]), rows[new])])
        return self.known.loc[rows].to_numpy()


@dataclass(frozen=True, eq=False)
class Job:
    """The rows of a comparison, the source that judges paths, and where finished work and progress go."""

    cells: CellFolder
    X: pd.DataFrame
    y: pd.Series[Any]
    test: pd.DataFrame
    one_step: OneStep
    seed: int
    step: Callable[[str], None]

    def trained(self, label: str, model: Any) -> Any:
        """Return a classifier: trained now, or by an earlier run that saved it."""
        path = self.cells.path({"part": "model", "model": label}).with_suffix(".pyrofair")
        try:
            fitted = load(path)
            self.step(f"{label} was trained before")
        except DataError:  # there is none, or it is damaged
            self.step(f"training {label}")
            fitted = model.fit(self.X, self.y)
            try:
                save(fitted, path, overwrite=True)
            except DataError as error:  # of a full disk
                self.step(str(error))
        return fitted

    def traced(self, label: str, model: PenalizedClassifier, strengths: Sequence[float]) -> pd.DataFrame:
        """Return the trade-off of a method, on the test rows by one-step estimates."""
        key = {"part": "trade-off", "model": label, "strengths": [*strengths]}
        if isinstance(found := self.cells.read(key), Cell):
            return found.table
        self.step(f"tracing the trade-off of {label} over {len(strengths)} strengths")
        test = self.test.drop(columns=self.y.name), self.test[self.y.name]
        path = penalty_path(
            model, self.X, self.y, strengths=strengths, seeds=[self.seed], test=test, judge=self.one_step
        )
        table = path.table.assign(method=label)
        self.cells.keep(Cell(key, table))
        return table


@dataclass(frozen=True, eq=False)
class Comparison:
    """The methods on test rows, their trade-off over strengths, and a text whose first lines are the summary table.

    ``audit`` is by one-step estimates with boosted nuisance models of the test rows (of the training rows if the test
    rows are few), ``paper`` by the paper's weights, inverse probabilities with logistic propensities of the training
    rows, with replicates; ``path`` is of the paper's penalty and of FIO's, by one-step estimates.
    """

    audit: Audit
    paper: Audit
    path: pd.DataFrame
    text: str

    def save(self, folder: Path) -> list[Path]:
        """Write the tables as CSV, the figures as PNG and the reading as text, and return their paths."""
        contents: dict[str, Any] = {"reading.txt": f"{self.text}\n", "trade-off.csv": csv_text(self.path)}
        for name, part in {"audit": "table", "groups": "groups"}.items():
            audits = {"one-step": self.audit, "ipw": self.paper}
            frames = [getattr(each, part).assign(source=source) for source, each in audits.items()]
            contents[f"{name}.csv"] = csv_text(pd.concat(frames, ignore_index=True))
        figures = {"audit": self.audit.plot(), "stages": self.audit.plot_stages()}
        for name, figure in (figures | {"trade-off": PenaltyPath(self.path).plot()}).items():
            figure.savefig(written := io.BytesIO(), dpi=150)
            contents[f"{name}.png"] = written.getvalue()
        for name, content in contents.items():
            write_whole(folder / name, content.encode() if isinstance(content, str) else content)
        return [folder / name for name in FILES]


def compare(
    name: str,
    cells: CellFolder,
    *,
    strength: float = 1.0,
    strengths: Sequence[float] | None = None,
    n_boot: int = 50,
    seed: int = 0,
    every: bool = False,
    report: Callable[[str], None] = print,
) -> Comparison:
    """Compare the paper's methods on a packaged data set, a name of :data:`SETTINGS`.

    By default PSCF is audited in its :data:`USUAL` modes, and the trade-off has :data:`STRENGTHS`; ``every`` takes all
    modes and :data:`ALL_STRENGTHS`, and uses the classifiers that an earlier call trained.

    The folder of cells keeps each classifier and each trade-off as soon as they are finished: a later call
    with the same settings goes on from there, however this one ends. The penalties have ``strength`` in the audits, and
    ``strengths`` in the trade-off. ``n_boot`` replicates are drawn for the audit by the paper's weights; one-step
    estimates need none. ``seed`` is that of the split, the training, the estimates and the bootstrap.
    """
    setting, started = SETTINGS[name], time.perf_counter()
    modes = tuple(MODES) if every else USUAL
    strengths = strengths or (ALL_STRENGTHS if every else STRENGTHS)

    def step(text: str) -> None:
        bar.clear()  # so that the line has one of its own
        report(f"[{time.perf_counter() - started:5.0f} s] {text}")
        bar.set_description(text, refresh=False)
        bar.update()

    data = setting.load()
    target = data.graph.outcome_column
    train, test = data.split(random_state=seed)
    X, y = train.drop(columns=target), train[target]
    plain, penalised = methods(data, setting, strength, seed)
    # Given the shared features, the penalty has no two basins.
    given = clone(penalised["Proposed"]).set_params(source=GComputation(data.unfair, draws=5), starts=1)
    pscf = PSCF(data.unfair, random_state=seed)
    untrained = {**plain, **penalised, "Proposed given S": given, "PSCF": pscf}
    stages = len(untrained) + len(penalised) + 4
    with progress_bar("compare", total=stages) as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", PyrofairWarning)  # the audit's reading reports the overlap
        step("fitting propensities")
        judged = X if setting.few else test.drop(columns=target)
        source, weights = OneStep(data.unfair, random_state=seed).fit(judged), IPW(data.unfair).fit(X)
        job = Job(cells, X, y, test, source, seed, step)
        models: dict[str, Any] = {}
        for label, model in untrained.items():
            fitted = _modes(job.trained(label, model), label, modes)
            models |= {name: Remembering(each) for name, each in fitted.items()}
        tables = [job.traced(label, model, strengths) for label, model in penalised.items()]
        step(f"auditing on {len(test):,} test rows, one-step estimates")  # audits are last, as nothing of them is kept
        audited = audit(models, source, test, random_state=seed)
        step(f"auditing again by the paper's weights, {n_boot} bootstrap replicates")
        paper = audit(models, weights, test, n_boot=n_boot, random_state=seed)
        step("done")
    path = pd.concat(tables, ignore_index=True)
    again = "" if every else f"pyrofair compare {name} --all"
    return Comparison(audited, paper, path, _describe(setting, audited, paper, path, again))


def _describe(setting: Setting, audited: Audit, paper: Audit, path: pd.DataFrame, again: str) -> str:
    """Return the tables of the comparison, the paper's accuracies, and the report of the audit.

    ``again`` is the command that adds the methods and strengths left out, or empty.
    """
    table = _wide(audited)
    columns, bounds = [*OF_WORLDS], [*OF_WORLDS[2:]]
    majority = float(table["majority_rate"].iloc[0])
    trade = path[path["decisions"] == "threshold"].set_index(["method", "strength"])
    printed = ", ".join(f"{method} {value:.1f}" for method, value in setting.printed.items())
    shown = [name for name in MODES if name in table.index]
    absent = [name for name in MODES if name not in table.index]
    modes = " ".join(f"{name} {MODES[name]}." for name in shown)
    mend = f" This command adds them, and uses the classifiers already trained: {again}"
    return "\n".join(
        [
            "Thresholded decisions on test rows, one-step estimates:",
            table[["accuracy", "positive_rate", *columns]].round(3).to_string(),
            *([f"Left out: {', '.join(absent)}.{mend}"] if absent else []),
            "",
            "The same decisions by the paper's weights (inverse probabilities, logistic propensities; "
            f"{paper.context.replicates} replicates):",
            _wide(paper)[columns].round(3).to_string(),
            *group_lines(paper.groups, paper.context),
            "",
            "Trade-off over the strength of the penalty (decisions, one-step estimates):",
            trade[["accuracy", "positive_rate", *bounds]].round(3).to_string(),
            *([f"Left out: the strengths between these.{mend}"] if again else []),
            "Each strength starts from the one above, the audited classifiers from scratch: at equal strengths the two "
            "differ a little.",
            "",
            f"One PSCF is fitted, and predicts in {len(shown)} modes here. {modes} The thresholded mean of PSCF has an "
            "unfair effect of its own, because it is sharp if a row determines its noise, as with the baseline, and "
            "smooth elsewhere: read its scores, and the decisions of one draw.",
            "",
            f"The paper prints as test accuracies: {printed}. The majority class alone is right for {majority:.1%} of "
            "these test rows, and every bound on PIU falls to 0 with a constant classifier: read accuracy and bounds "
            "beside the positive rate.",
            "",
            str(audited),
            *(f"Warning: {text}" for text in paper.context.warnings if text not in audited.context.warnings),
        ]
    )


def _wide(report: Audit) -> pd.DataFrame:
    """Return the estimates of an audit for decisions, a row for each model and a column for each quantity."""
    decided = report.table[report.table["decisions"] == "threshold"]
    table = decided.set_index(["model", "quantity"])["estimate"].unstack()  # noqa: PD010 - nothing to aggregate
    return table.loc[report.table["model"].unique()]
