"""What a comparison has finished, kept in a folder: the scores of trained classifiers, audits, and tables.

No fitted object is stored, so that nothing is unpickled: a classifier is known by its scores of the tables that audits
ask for, and is trained again only if one of them is missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._cells import Cell, CellFolder
from pyrofair.audits import Audit
from pyrofair.audits.context import Context
from pyrofair.graph import UnfairPaths
from pyrofair.tables.row_identity import hash_rows

__all__ = ["KeptModel", "Recorder", "Training", "keep_audit", "keep_table"]

FRAMES = ("table", "groups", "draws", "influence", "stages")
TUPLES = ("order", "assumptions", "outcome_assumptions")


def keep_table(cells: CellFolder | None, key: Mapping[str, Any], make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """Return a table from the folder, or else make it and keep it; an error is raised and not kept."""
    found = None if cells is None else cells.read(key)
    if isinstance(found, Cell):
        return found.table
    table = make()
    if cells is not None:
        cells.write(Cell(dict(key), table))
    return table


@dataclass
class Recorder:
    """A classifier of equal scores that records the tables that it is asked to score, each once."""

    feature_names_in_: Sequence[str]
    classes_: NDArray[Any]
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return one half for each class, shape (m, 2)."""
        self.tables.setdefault(_digest(X), X)
        return np.full((len(X), 2), 0.5)


@dataclass
class KeptModel:
    """A classifier whose scores are kept in a folder, or in memory without one.

    Parameters
    ----------
    name, cells
        Its name, and the folder.
    train
        Returns the fitted classifier; called at most once by the caller's own doing, and only if scores are missing.
    feature_names_in_, classes_
        The columns that it reads and its labels, as scikit-learn has them.
    """

    name: str
    cells: CellFolder | None
    train: Callable[[], Any]
    feature_names_in_: NDArray[Any]
    classes_: NDArray[Any]
    memory: dict[str, pd.DataFrame] = field(default_factory=dict)

    @classmethod
    def remembering(cls, name: str, model: Any) -> KeptModel:
        """Return a fitted classifier that scores each table once; audits ask for some of them several times."""
        return cls(name, None, lambda: model, model.feature_names_in_, model.classes_)

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return the probability of each class, shape (m, 2)."""
        digest = _digest(X)
        if digest not in self.memory:
            key = {"part": "scores", "model": self.name, "rows": digest}
            self.memory[digest] = keep_table(self.cells, key, lambda: _scores(self.train(), X))
        return self.memory[digest].to_numpy()


@dataclass
class Training:
    """The training of classifiers on rows, each finished once its scores of all that audits ask for are kept.

    Parameters
    ----------
    cells
        The folder, or None.
    X, y
        The training rows and outcomes.
    ask
        Asks a classifier for the scores that audits need.
    report
        Receives a line when a classifier is trained or found.
    """

    cells: CellFolder | None
    X: pd.DataFrame
    y: pd.Series[Any]
    ask: Callable[[Any], None]
    report: Callable[[str], None]
    asked: list[pd.DataFrame] = field(default_factory=list)

    def finish(
        self, label: str, model: Any, modes: Callable[[Any], Mapping[str, Any]] | None = None
    ) -> dict[str, KeptModel]:
        """Return a classifier, or each of its modes, by name: trained now, or with the scores of an earlier call."""
        fitted: list[Mapping[str, Any]] = []

        def trained() -> Mapping[str, Any]:
            if not fitted:
                self.report(f"training {label}")
                own = model.fit(self.X, self.y)
                fitted.append({label: own} if modes is None else modes(own))
            return fitted[0]

        key = {"part": "trained", "model": label}
        marked = None if self.cells is None else self.cells.read(key)
        if isinstance(marked, Cell):
            self.report(f"{label} was trained before")
            about = marked.about["reads"]
        else:
            about = {name: [str(each) for each in one.feature_names_in_] for name, one in trained().items()}
        classes = np.unique(self.y)
        found = {
            name: KeptModel(name, self.cells, partial(_pick, trained, name), np.array(reads, object), classes)
            for name, reads in about.items()
        }
        if not isinstance(marked, Cell) and self.cells is not None:
            for kept in found.values():
                for table in self._tables(classes):
                    kept.predict_proba(table[list(kept.feature_names_in_)])
            self.cells.write(Cell(key, pd.DataFrame({"model": list(found)}), {"reads": about}))
        return found

    def _tables(self, classes: NDArray[Any]) -> list[pd.DataFrame]:
        """Return the tables that audits ask classifiers for."""
        if not self.asked:
            recorder = Recorder(list(self.X.columns), classes)
            self.ask(recorder)
            self.asked = [*recorder.tables.values()]
        return self.asked


def _pick(trained: Callable[[], Mapping[str, Any]], name: str) -> Any:
    return trained()[name]


def _scores(model: Any, X: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(model.predict_proba(X), columns=["first", "last"])


def _digest(X: pd.DataFrame) -> str:
    """Return a digest of the rows of a table in their order, and of the names of its columns."""
    text = repr([str(name) for name in X.columns]).encode() + hash_rows(X).tobytes()
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def keep_audit(cells: CellFolder | None, name: str, unfair: UnfairPaths, make: Callable[[], Audit]) -> Audit:
    """Return an audit from the folder, or else make it and keep it."""
    parts = {part: {"part": "audit", "source": name, "frame": part} for part in (*FRAMES, "overlap", "weight")}
    found = {} if cells is None else {part: cells.read(key) for part, key in parts.items()}
    kept = {part: cell for part, cell in found.items() if isinstance(cell, Cell)}
    if len(kept) == len(parts):
        context = dict(kept["table"].about)
        context |= {each: tuple(context[each]) for each in TUPLES if each in context}
        weight = {"weight": kept["weight"].table["weight"].to_numpy()} if len(kept["weight"].table) else {}
        context |= {"paths": unfair, "overlap": kept["overlap"].table, **weight}
        frames = {part: kept[part].table for part in FRAMES}
        if "agree" in frames["groups"]:  # True, False or open: a file has it as a boolean where none is open
            frames["groups"] = frames["groups"].astype({"agree": object})
        return Audit(context=Context(**context), **frames)
    report = make()
    if cells is not None:
        apart = ("paths", "overlap", "weight")
        context = {each: value for each, value in report.context.items() if each not in apart}
        frames = {part: getattr(report, part) for part in FRAMES}
        frames |= {
            "overlap": report.context.overlap,
            "weight": pd.DataFrame({"weight": [] if report.context.weight is None else report.context.weight}),
        }
        for part, frame in frames.items():
            cells.write(Cell(parts[part], frame, context if part == "table" else {}))
    return report
