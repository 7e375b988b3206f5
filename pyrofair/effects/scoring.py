"""The probability of the positive outcome that a model predicts, from the columns that it may read."""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._validation import require_choice, require_instance, require_names, require_real, require_unmasked, shown
from pyrofair.effects.row_functions import Scores, Ties, require_row_function
from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.tables.reading import require_aligned

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "DECISIONS",
    "Adapter",
    "Decisions",
    "Passed",
    "Rule",
    "as_adapter",
    "as_floats",
    "checked_scores",
    "decide",
    "is_model",
    "is_module",
    "no_probabilities",
    "order_columns",
    "positive_scores",
    "read_classes",
    "read_given",
    "read_probabilities",
    "refuse_negative",
    "require_decisions",
    "require_positive",
    "require_scores",
]

Decisions = Literal["threshold", "score"]
DECISIONS: tuple[Decisions, ...] = ("threshold", "score")
Rule = Decisions | float
"""How a score is turned into a decision; a number is a threshold of its own."""
Passed = Mapping[str, str | Sequence[str]]
"""Columns by the keyword under which a model is given them."""

NEAR_ONE = 1e-6
"""The two probabilities of a row sum to 1 up to this, for they are often made in single precision."""


def decide(scores: Scores, decisions: Rule, threshold: float) -> NDArray[np.float64]:
    """Return the scores, or 1 where they exceed the threshold (or rule) in their own precision and 0 elsewhere."""
    if decisions == "score":
        return scores.astype(np.float64, copy=False)
    limit = threshold if decisions == "threshold" else decisions
    return (scores > scores.dtype.type(limit)).astype(np.float64)


class Adapter(ABC):
    """A model in a wrapper that knows which columns reach it; a subclass calls it, and reads what it returned."""

    def __init__(self, model: Any, columns: Sequence[str] | None = None, passes: Passed | None = None) -> None:
        self.model = model
        self.columns = None if columns is None else require_names("columns", columns, "column names")
        passes = {} if passes is None else passes
        expected = "a dictionary from keywords to columns, such as {'sensitive_features': 'sex'}"
        require_instance("passes", passes, Mapping, expected)
        self.passes: dict[str, str | list[str]] = {}
        for keyword, names in passes.items():
            require_instance("a keyword of passes", keyword, str, "a string")
            own = require_names(f"passes[{keyword!r}]", names, "column names", one=True)
            self.passes[keyword] = names if isinstance(names, str) else [*own]

    def reads(self, order: Sequence[str]) -> tuple[str, ...]:
        """Return the columns that reach the model, of those that the graph lets it read, in the order given."""
        passed = [name for each in self.passes.values() for name in ([each] if isinstance(each, str) else each)]
        return tuple(dict.fromkeys([*self._own(order), *passed]))

    def _own(self, order: Sequence[str]) -> list[str]:
        if self.columns is not None:
            return list(self.columns)
        # Of a method, such as predict_proba of a pipeline, the object's.
        for each in (self.model, getattr(self.model, "__self__", None)):
            if (names := getattr(each, "feature_names_in_", None)) is not None:
                return [str(name) for name in np.asarray(names)]
        return list(order)

    @abstractmethod
    def _call(self, name: str, X: Any, passed: Mapping[str, Any]) -> Any:
        """Return what the model returns for its columns of rows, and those that are passed by keyword."""

    def ask(self, name: str, rows: pd.DataFrame, graph: CausalGraph, order: Sequence[str]) -> Any:
        """Return what the model, which may read the columns in order, returns for rows."""
        refuse_outside(name, self.reads(order), graph, order, model=self.model)
        own = self._own(order)
        X: Any = rows[own]
        if not hasattr(self.model, "feature_names_in_") and hasattr(self.model, "n_features_in_"):
            if self.columns is None and (fitted := self.model.n_features_in_) != len(own):
                coded = [str(column) for column, dtype in X.dtypes.items() if dtype.kind not in "fiub"]
                advice = "Fit it on a DataFrame, whose columns have names, or name them: columns=[...] of an adapter."
                if coded and fitted > len(own):
                    advice = f"If {_quoted(coded)} were encoded before the fit: {_pipeline(coded, self.model)}"
                raise DataError(
                    f"{name!r} was fitted on {fitted} unnamed columns, but the graph lets it read {len(own)}: "
                    f"{', '.join(own)}. {advice}"
                )
            X = X.to_numpy()
        return self._call(name, X, {keyword: rows[each] for keyword, each in self.passes.items()})

    @abstractmethod
    def read(self, name: str, returned: Any, n: int, graph: CausalGraph, labels: Sequence[Any] | None) -> Scores:
        """Return the scores in what the model returned for n rows, shape (n,)."""

    def ties(self, name: str, graph: CausalGraph, order: Sequence[str] | None) -> Ties | None:
        """Return what finds the rows, of m, in which rounding makes the decision; None for a model of scores."""
        return None

    def positive(
        self,
        name: str,
        rows: pd.DataFrame,
        graph: CausalGraph,
        order: Sequence[str],
        labels: Sequence[Any] | None = None,
    ) -> Scores:
        """Return the score of each of m rows (m,): a probability, or 1 or 0 by the ``labels`` of the outcome."""
        returned = self.ask(name, rows, graph, order)
        moved = isinstance(returned, pd.Series | pd.DataFrame) and not returned.index.equals(rows.index)
        if moved and len(returned) == len(rows) and not returned.index.equals(pd.RangeIndex(len(rows))):
            raise DataError(
                f"{name!r} returned a {type(returned).__name__} whose index is not that of the rows it was given, "
                "which a sort or a join may have moved. Return a row for each row, in their order: with their index, "
                "or an array."
            )
        return self.read(name, returned, len(rows), graph, labels)

    @staticmethod
    def _classes(name: str, model: Any, positive: Hashable) -> list[Any]:
        """Return the classes of a fitted model in the order of its columns, the positive one last if it names none."""
        classes = read_classes(repr(name), model, default=(None, positive))
        require_positive(f"{name!r} has the classes", classes, positive)
        return classes

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {shown(self.model)}>"


class Classifier(Adapter):
    """A fitted model with ``predict_proba``, which users pass without an adapter."""

    def _call(self, name: str, X: Any, passed: Mapping[str, Any]) -> Any:
        try:
            return self.model.predict_proba(X)
        except KeyError as error:
            if not isinstance(X, pd.DataFrame):
                raise
            raise DataError(
                f"{name!r} requires {error}, which is missing: it is given the columns that the graph lets it read, "
                f"{', '.join(map(str, X))}. Correct the graph, or fit the model without other columns."
            ) from error

    def read(self, name: str, returned: Any, n: int, graph: CausalGraph, labels: Sequence[Any] | None) -> Scores:
        """Return the probability of the positive class among those that were returned for two classes, (n, 2)."""
        classes = self._classes(name, self.model, graph.positive)
        return read_probabilities(repr(name), returned, n, classes)[:, classes.index(graph.positive)]


def is_model(given: object) -> bool:
    """Whether a fitted classifier or an adapter of one is given, rather than scores of rows or a function of these."""
    return isinstance(given, Adapter) or hasattr(given, "predict_proba")


def as_adapter(model: Any) -> Adapter:
    """Return an adapter, or the adapter of a fitted classifier."""
    return model if isinstance(model, Adapter) else Classifier(model)


def positive_scores(
    name: str,
    model: Any,
    rows: pd.DataFrame,
    graph: CausalGraph,
    order: Sequence[str] | None = None,
    labels: Sequence[Any] | None = None,
) -> Scores:
    """Return the probability of the positive outcome that a model gives to each of m rows, shape (m,), checked.

    A model that was fitted with column names gets these columns; any other all observed parents of the outcome, in the
    order given (default: of the rows), as an array if it counted unnamed columns in ``fit``. ``labels`` are those of
    the outcome, for adapted decisions.
    """
    if not is_model(model):
        raise DataError(f"{no_probabilities(name, model)} Scores of observed rows give none for rows in another world.")
    may_read = graph.input_columns
    allowed = [str(column) for column in (rows.columns if order is None else order) if column in may_read]
    # Worlds may hold float32, in which .1 + .1 + .3 exceeds 1/2.
    single = {key: np.float64 for key, dtype in rows.dtypes.items() if dtype.kind == "f" and dtype != np.float64}
    return as_adapter(model).positive(name, rows.astype(single) if single else rows, graph, allowed, labels)


def checked_scores(
    name: str, model: Any, tables: Sequence[pd.DataFrame], graph: CausalGraph, order: Sequence[str] | None = None
) -> list[Scores]:
    """Return the scores of each table's rows, as :func:`positive_scores`, of a model that is a function of a row."""

    def ask(rows: pd.DataFrame) -> Scores:
        return positive_scores(name, model, rows, graph, order)

    scores = [ask(rows) for rows in tables]
    ties = as_adapter(model).ties(name, graph, order)
    require_row_function(repr(name), ask, pd.concat(tables, ignore_index=True), np.concatenate(scores), graph, ties)
    return scores


def require_positive(said: str, labels: Sequence[Any], positive: Hashable) -> None:
    """Refuse labels of a model without the positive one; what was said begins the message."""
    if positive not in labels:
        raise DataError(
            f"{said} {[*labels]}, not the graph's positive value {positive!r}. Fit it on the labels that the data "
            "hold, or make the graph with positive=... of these."
        )


def as_floats(values: NDArray[Any]) -> Scores:
    """Return floats of less than double precision as they are, and all other numbers in double precision."""
    single = values.dtype.kind == "f" and values.dtype.itemsize < 8
    return np.asarray(values, dtype=values.dtype if single else np.float64)


def require_scores(said: str, scores: Scores, hint: str) -> Scores:
    """Return scores, or refuse them if some lie outside [0, 1]: what was said begins the message, the hint ends it."""
    if (wrong := ~((scores >= 0.0) & (scores <= 1.0))).any():
        raise DataError(f"{said} {int(wrong.sum())} score(s) outside [0, 1], such as {scores[wrong][0]}. {hint}")
    return scores


def refuse_negative(name: str, returned: object, positive: object, labels: Sequence[Any] | None) -> None:
    """Refuse numbers for each row that have the name of the negative label."""
    names = [returned.name] if isinstance(returned, pd.Series) else [*getattr(returned, "columns", ())]
    if len(names) == 1 and isinstance(names[0], str) and names[0] in {*map(str, labels or ())} - {str(positive)}:
        raise DataError(
            f"{name!r} has numbers named {names[0]!r}, which is not the positive label {positive!r}. Take those of the "
            "positive label, or 1 minus these, or rename them if they are probabilities of the positive label."
        )


def read_given(
    name: str, given: Any, table: pd.DataFrame, positive: object = None, labels: Sequence[Any] | None = None
) -> Scores:
    """Return scores that are given for the n rows of a table (n,), checked; ``labels`` are those of the outcome."""
    if not isinstance(given, np.ndarray | pd.Series | list | tuple):
        raise DataError(f"{no_probabilities(name, given)} Or pass scores, one for each row, as an array or a Series.")
    if isinstance(given, pd.Series):
        require_aligned(table, given, f"the scores {name!r}", table="df")
    refuse_negative(name, given, positive, labels)
    require_unmasked(repr(name), given)
    try:
        if getattr(getattr(given, "dtype", None), "kind", "") == "c":
            raise TypeError("complex numbers")
        values = np.asarray(given)
        scores = as_floats(values if values.dtype.kind == "f" else np.array(given, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{name!r} is given as scores, but they are no numbers: {error}. Scores are probabilities of yes, one for "
            "each row; of decisions as text make 1 and 0: (decisions == 'yes').astype(int)."
        ) from error
    if scores.shape != (len(table),):
        raise DataError(
            f"{name!r} is given as scores of shape {scores.shape}; expected {(len(table),)}, one for each row: of "
            "predict_proba, pass the column of the positive class."
        )
    hint = "Scores are probabilities: put log-odds through the logistic function, and divide percents by 100."
    return require_scores(f"{name!r} gives", scores, hint)


def require_decisions(decisions: object, threshold: object) -> None:
    """Refuse what are no decisions, or no threshold."""
    require_choice("decisions", decisions, DECISIONS)
    require_real("threshold", threshold, least=0.0, below=1.0)


def is_module(model: object) -> TypeGuard[nn.Module]:
    """Return whether a model is a module of torch, which is loaded if there is one."""
    loaded = sys.modules.get("torch")
    return loaded is not None and isinstance(model, loaded.nn.Module)


def no_probabilities(name: str, model: object) -> str:
    """Return that a model has no ``predict_proba``, and the adapter that takes it."""
    lacks = f"{name!r} is a {type(model).__name__} without predict_proba."
    if is_module(model):
        return f"{lacks} Say what it returns: pf.ScoresOf(module, returns='logit'), or returns='probability'."
    if hasattr(model, "_pmf_predict"):
        return (
            f"{lacks} It decides at random, with probabilities of its own: pf.ScoresOf(model._pmf_predict) audits "
            "these, with passes={'sensitive_features': ...} where it takes that."
        )
    if hasattr(model, "predict"):
        return (
            f"{lacks} Its decisions alone can be audited: pf.DecisionsOf(model). For probabilities, fit "
            "CalibratedClassifierCV(model)."
        )
    if callable(model) and not isinstance(model, type):
        return f"{lacks} Say what it returns: pf.ScoresOf(it) for probabilities, pf.DecisionsOf(it) for labels."
    return f"{lacks} Pass a fitted classifier that has it."


def read_probabilities(name: str, returned: object, n: int, classes: Sequence[Any]) -> Scores:
    """Return what ``predict_proba`` returned, checked: n pairs that sum to 1, for two classes (None: unknown)."""
    require_unmasked(f"the output of predict_proba of {name}", returned)
    raw = np.asarray(returned)
    if raw.dtype.kind not in "fiub":
        raise DataError(f"{name}: predict_proba returned the type {raw.dtype}, expected real numbers.")
    if raw.shape != (n, 2):
        raise DataError(f"{name}: predict_proba returned the shape {raw.shape}, expected {(n, 2)}, a column a class.")
    proba = as_floats(raw)[:, order_columns(name, returned, classes)]
    near = max(NEAR_ONE, 4.0 * float(np.finfo(proba.dtype).eps))
    widest = np.where(proba.max(axis=1) > 1.0, proba.max(axis=1), proba.min(axis=1))
    hint = "Scores are probabilities of the two classes; log-odds must be put through the logistic function."
    require_scores(f"{name} gives", widest, hint)
    if (wrong := np.abs(proba.sum(axis=1, dtype=np.float64) - 1.0) > near).any():
        raise DataError(
            f"{name}: predict_proba returned rows that do not sum to 1, in {int(wrong.sum())} of {n} row(s), such as "
            f"{proba[wrong][0]}. Its two columns are the probabilities of the two classes."
        )
    return proba


def order_columns(name: str, returned: object, classes: Sequence[Any]) -> list[int]:
    """Return the place of each of two classes among the two columns of what a model returned, by their names if any.

    Names must be the classes, themselves or as text; None among the classes is a class whose label is not known. The
    numbers that pandas gives to columns without names are none, unless they could be the classes in another order.
    """
    names, known = [*getattr(returned, "columns", ())], [each for each in classes if each is not None]
    numbered = isinstance(getattr(returned, "columns", None), pd.RangeIndex) and names == [0, 1]
    if not names or (numbered and not {0, 1}.issuperset(known)):
        return [0, 1]
    for same, wanted in ((names, known), ([*map(str, names)], [*map(str, known)])):
        places = [same.index(each) for each in wanted if each in same]
        if len(set(places)) == len(known):
            found = dict(zip(known, places, strict=True))
            order = [found.get(each, 1 - places[0]) for each in classes]
            if numbered and order != [0, 1]:
                break
            return order
    raise DataError(
        f"{name} returned the columns {names}, and the classes are {', '.join(map(repr, known))}. Which column is of "
        "which class must be certain: name the columns by the classes, or return an array whose columns are in the "
        "order of classes_, or else have the positive class last."
    )


def read_classes(name: str, model: object, default: Sequence[Any]) -> list[Any]:
    """Return the two classes of a model in the order of its columns, or the default if it names none."""
    named = getattr(model, "classes_", None)
    if named is None:
        return [*default]
    try:
        found = [each.item() if isinstance(each, np.generic) else each for each in named]
        different = len(set(found))
    except TypeError as error:
        raise DataError(f"{name} has classes_={named!r:.60}, expected a list of its two classes.") from error
    if len(found) != 2 or different != 2:
        raise DataError(f"{name} has the classes {found}, expected two different ones, as the graph's outcome has.")
    return found


def refuse_outside(
    name: str, reads: Sequence[Any], graph: CausalGraph, order: Sequence[str], *, model: object = None
) -> None:
    """Refuse a model that reads columns outside those allowed, ``order``; a DataError says why, and what to do."""
    outside = [column for column in reads if column not in order]
    if not outside:
        return
    known = graph.columns_of(graph.observed)
    coded: dict[str, str] = {}  # columns named like a code of another one: 'job_nurse' of 'job'
    for column in outside:
        if isinstance(column, str) and column not in known:
            sources = [source for source in order if re.match(rf"{re.escape(source)}[_=.\[-]", column)]
            coded |= {column: max(sources, key=len)} if sources else {}  # of 'job' and 'job_type' the longer
    if coded:
        sources = list(dict.fromkeys(coded.values()))
        more = f" and {len(coded) - 4} more" * (len(coded) > 4)
        raise DataError(
            f"{name!r} was fitted on {_quoted([*coded][:4])}{more}, which look like codes of {_quoted(sources)} made "
            "before the fit, as pandas.get_dummies makes them; in each world it is given the columns themselves, "
            f"{', '.join(order)}. So {_pipeline(sources, model)}"
        )
    why = "they are no observed parents of the outcome"
    if graph.sensitive_column in outside:
        why = f"the graph has no edge {graph.sensitive} -> {graph.outcome}"
    raise DataError(
        f"{name!r} reads {_quoted(outside)}, but {why}: a classifier may read {', '.join(order)}. It was fitted on a "
        "table with these columns; fit it on the others alone (a pipeline that drops columns later still asks for "
        "them), or correct the graph."
    )


def _quoted(names: Sequence[Any]) -> str:
    return ", ".join(map(repr, names))


def _pipeline(columns: Sequence[str], model: object) -> str:
    """Return the code of a pipeline that encodes columns inside a model."""
    shown = " ".join(repr(model).split())
    written = shown if re.fullmatch(r"\w+\(.*\)", shown) and len(shown) < 80 else f"{type(model).__name__}(...)"
    return (
        "encode inside the model, make_pipeline(make_column_transformer((OneHotEncoder(handle_unknown='ignore'), "
        f"[{_quoted(columns)}]), remainder='passthrough'), {written}), and fit that on the columns themselves."
    )
