"""Adapters for models without ``predict_proba``: decisions of a ``predict``, scores of functions and torch modules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._random import neutral_torch
from pyrofair._validation import listed, require_choice, require_unmasked, shown
from pyrofair.effects.row_functions import SAME, Scores, Ties
from pyrofair.effects.scoring import (
    Adapter,
    Passed,
    as_floats,
    checked_scores,
    is_model,
    is_module,
    order_columns,
    positive_scores,
    read_classes,
    read_probabilities,
    refuse_negative,
    require_positive,
    require_scores,
)
from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.tables.labels import plain_values

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["DecisionsOf", "Score", "ScoresOf", "ask_scores"]

Score = Any
"""A fitted classifier, an adapter of one, or a function of a table that returns its scores."""


Returns = Literal["probability", "logit"]
NUMBERS: dict[str, Returns] = {"decision_function": "logit", "predict_proba": "probability"}
"""The methods whose numbers decide a label, and what they return."""


class DecisionsOf(Adapter):
    """A model that decides and gives no probabilities, as audits take it: an SVC, a rule, a post-processor.

    An audit has no rows of scores of it, only those of its decisions, and does not use ``threshold``. Its labels are
    matched to those of the outcome exactly. A ``predict`` that draws at random gives equal rows unequal decisions, so
    that these are no function of the features: the audit says so, and takes those of the observed rows for an outcome.
    Where the probabilities of such a model are known, :class:`ScoresOf` audits it better.

    Parameters
    ----------
    model
        A fitted model with ``predict``, or a function that returns a label for each of m rows, a DataFrame.
    columns
        The columns that it receives, in order: by default its ``feature_names_in_``, else all that the graph lets a
        classifier read.
    passes
        Columns that it is given by keyword: ``{"sensitive_features": "sex"}`` for fairlearn's ``ThresholdOptimizer``.
        They count as read.
    labels
        The negative and the positive label that it returns; by default its ``classes_``, else those of the audited
        outcome.

    Raises
    ------
    DataError
        If a setting is unfit, or ``model`` has neither ``predict`` nor is a function; when rows are scored, if a
        returned value is none of the labels.

    Examples
    --------
    >>> from pyrofair import CausalGraph, audit
    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y", positive="yes")
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 2, 400)
    >>> df = pd.DataFrame({"A": a, "M": (rng.random(400) < 0.3 + 0.4 * a).astype(int)})
    >>> rule = DecisionsOf(lambda rows: np.where(rows["M"] == 1, "yes", "no"), labels=("no", "yes"))
    >>> table = audit({"rule": rule}, graph.unfair("A -> M -> Y"), df, random_state=0).table
    >>> table["decisions"].unique().tolist()
    ['threshold']
    """

    def __init__(
        self,
        model: Any,
        *,
        columns: Sequence[str] | None = None,
        passes: Passed | None = None,
        labels: tuple[Hashable, Hashable] | None = None,
    ) -> None:
        super().__init__(model, columns, passes)
        if is_module(model):
            raise DataError("A torch module returns numbers, no labels: ScoresOf(module, returns='logit') takes it.")
        if not hasattr(model, "predict") and (not callable(model) or isinstance(model, type)):
            raise DataError(
                f"model={shown(model)} has no predict and is no function of rows. Pass a fitted model, or a function "
                "that returns a label for each row of a DataFrame."
            )
        pair = None if labels is None or isinstance(labels, str | Mapping) else listed(labels)
        if labels is not None and not (pair and len({x for x in pair if isinstance(x, Hashable)}) == len(pair) == 2):
            raise DataError(f"labels={shown(labels)} must be two: the negative label, then the positive one.")
        self.labels = pair

    def _call(self, name: str, X: Any, passed: Mapping[str, Any]) -> Any:
        return (self.model.predict if hasattr(self.model, "predict") else self.model)(X, **passed)

    def read(self, name: str, returned: Any, n: int, graph: CausalGraph, labels: Sequence[Any] | None) -> Scores:
        """Return whether each of n returned labels is the positive one, as 1 or 0; another value is a DataError."""
        require_unmasked(f"the output of predict of {name!r}", returned)
        found = np.asarray(returned)
        if found.shape == (n, 1):
            found = found[:, 0]
        if found.shape != (n,):
            raise DataError(f"{name!r}: predict returned the shape {found.shape}, expected {(n,)}: a label a row.")
        values = plain_values(pd.unique(pd.Series(found)))
        if any(map(pd.isna, values)):
            raise DataError(f"{name!r}: predict returned missing values (NaN) for some of {n} rows.")
        positive, known = graph.positive, self._labels(name, labels)
        if known is not None:
            require_positive(f"{name!r} has the labels", known, positive)
            unknown = [each for each in values if each not in known]
        else:  # another label than the positive one, of its kind, is the negative one
            other_kind = all(isinstance(each, str) != isinstance(positive, str) for each in values)
            unknown = [*values] if other_kind or len({*values} - {positive}) > 1 else []
        if unknown:
            theirs = "the outcome's" if known is None else f"{known[0]!r} and {known[1]!r}"
            raise DataError(
                f"{name!r}: predict returned {', '.join(map(repr, unknown[:4]))}, and the labels are {theirs}, of "
                f"which {positive!r} is positive. Nothing is recoded: fit the model on these labels, return them, or "
                "audit scores of a regression through ScoresOf."
            )
        return np.asarray(pd.Series(found) == positive, dtype=np.float64)

    def ties(self, name: str, graph: CausalGraph, order: Sequence[str] | None) -> Ties:
        """Return what finds the rows in which rounding decides, as far as the model has numbers beside its labels."""

        def tied(rows: pd.DataFrame) -> NDArray[np.bool_]:
            for method, returns in NUMBERS.items():
                try:
                    own = ScoresOf(getattr(self.model, method), returns=returns, columns=self.columns)
                    return np.asarray(np.abs(positive_scores(name, own, rows, graph, order) - 0.5) <= SAME)
                except Exception:  # whatever is raised by numbers that the model does not have, or that are not its own
                    continue
            return np.zeros(len(rows), dtype=bool)

        return tied

    def _labels(self, name: str, labels: Sequence[Any] | None) -> list[Any] | None:
        if self.labels is not None:
            return list(self.labels)
        own = read_classes(repr(name), self.model, default=())
        return own or (None if labels is None else list(labels))


class ScoresOf(Adapter):
    """A function of rows, or a torch module, whose numbers are probabilities or log-odds, as audits take it.

    Parameters
    ----------
    model
        A function that is given m rows, a DataFrame, such as ``model.predict_proba`` or fairlearn's
        ``mitigator._pmf_predict``; or a :class:`torch.nn.Module`, which is given a tensor (m, k) in the type and on the
        device of its parameters, in evaluation mode and without gradients. It returns m numbers, or (m, 2): those of
        the negative and of the positive label, unless the columns have the names of labels. A method of a fitted
        model has the order of its ``classes_``.
    returns
        ``"probability"`` or ``"logit"``: log-odds of the positive label, or a logit of each. A torch module has no
        default, because nothing in a module shows which it is; a function returns probabilities unless told otherwise.
    columns, passes
        As for :class:`DecisionsOf`.
    encoder
        A fitted transformer of these columns, such as ``TableEncoder().fit(X)`` or a ``ColumnTransformer``, between the
        rows and the model. A torch module without one needs numbers.

    Raises
    ------
    DataError
        If a setting is unfit; when rows are scored, if what is returned is no probability.

    Examples
    --------
    >>> from pyrofair import CausalGraph, audit
    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 2, 400)
    >>> df = pd.DataFrame({"A": a, "M": a + rng.normal(size=400)})
    >>> from torch import nn
    >>> module = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> model = ScoresOf(module, returns="logit", columns=["A", "M"])
    >>> report = audit({"network": model}, graph.unfair("A -> Y"), df, random_state=0)
    >>> sorted(report.table["decisions"].unique())
    ['score', 'threshold']
    """

    def __init__(
        self,
        model: Callable[..., Any] | nn.Module,
        *,
        returns: Returns | None = None,
        columns: Sequence[str] | None = None,
        passes: Passed | None = None,
        encoder: Any = None,
    ) -> None:
        super().__init__(model, columns, passes)
        if returns is not None:
            require_choice("returns", returns, ("probability", "logit"))
        if not callable(model) or isinstance(model, type):
            raise DataError(
                f"model={shown(model)} is no function of rows and no torch module. Pass a method of a fitted model, "
                "ScoresOf(model.predict_proba); a model with predict_proba needs no adapter."
            )
        if encoder is not None and not hasattr(encoder, "transform"):
            raise DataError(f"encoder={shown(encoder)} must be a fitted transformer, with transform; or None.")
        if is_module(model):
            from torch import nn

            if returns is None:
                raise DataError(
                    "A torch module returns log-odds or probabilities, and nothing in it shows which: pass "
                    "returns='logit' or returns='probability'."
                )
            last = list(model.modules())[-1]
            if returns == "logit" and isinstance(last, nn.Sigmoid | nn.Softmax):
                raise DataError(
                    f"returns='logit', and the module ends in {type(last).__name__}, which makes probabilities. Pass "
                    "returns='probability', or the module without that layer."
                )
        self.returns = returns or "probability"
        self.encoder = encoder

    def _call(self, name: str, X: Any, passed: Mapping[str, Any]) -> Any:
        encoded = X if self.encoder is None else self.encoder.transform(X)
        if is_module(self.model):
            return _forward(name, self.model, encoded, passed)
        return self.model(encoded, **passed)

    def read(self, name: str, returned: Any, n: int, graph: CausalGraph, labels: Sequence[Any] | None) -> Scores:
        """Return the probabilities in the n numbers, or pairs of them, that were returned."""
        if hasattr(returned, "detach"):  # a tensor
            import torch

            returned = returned.detach().cpu()
            returned = (returned.float() if returned.dtype == torch.bfloat16 else returned).numpy()
        require_unmasked(f"the output of {name!r}", returned)
        refuse_negative(name, returned, graph.positive, labels)
        found = np.asarray(returned)
        if found.dtype.kind not in "fiub":
            raise DataError(f"{name!r} returned the type {found.dtype}, expected real numbers.")
        if found.shape == (n, 1):
            found = found[:, 0]
        if found.shape not in ((n,), (n, 2)):
            raise DataError(
                f"{name!r} returned the shape {found.shape}, expected {(n,)}, a number for each row, or {(n, 2)}, one "
                "for each label, the positive one last."
            )
        if not np.isfinite(found).all():
            raise DataError(f"{name!r} returned {int((~np.isfinite(found)).sum())} number(s) that are not finite.")
        kind = as_floats(found).dtype
        classes = self._classes(name, getattr(self.model, "__self__", None), graph.positive)
        place = classes.index(graph.positive)
        if found.ndim == 2 and self.returns == "probability":
            return read_probabilities(repr(name), returned, n, classes)[:, place]
        if found.ndim == 2:
            order = order_columns(repr(name), returned, classes)
            found = found[:, order[place]].astype(np.float64) - found[:, order[1 - place]]
        elif place == 0 and getattr(self.model, "__name__", "") == "decision_function":  # log-odds of the last class
            found = -found
        if self.returns == "logit":
            return np.asarray(np.exp(-np.logaddexp(0.0, -found.astype(np.float64)))).astype(kind)
        return require_scores(f"{name!r} returned", as_floats(found), "If these are log-odds, pass returns='logit'.")


def ask_scores(
    score: Score, tables: Sequence[pd.DataFrame], graph: CausalGraph, order: Sequence[str], lacking: str
) -> list[Scores]:
    """Return the checked scores of each table's rows, by columns in ``order``; messages name what is ``lacking``."""
    if not is_model(score) and (not callable(score) or isinstance(score, type)):
        arrays = f" Scores of observed rows give none for {lacking}." * hasattr(score, "__len__")
        raise DataError(
            f"score={shown(score)} must be a fitted classifier, or a function of a table that returns its scores."
            f"{arrays}"
        )
    if is_model(score):
        return checked_scores("score", score, tables, graph, order)
    return checked_scores("score", ScoresOf(score), tables, graph)


_EVALUATED = threading.RLock()
"""The mode belongs to a module, not to a thread, and others may share its layers: one is evaluated at a time."""


@contextmanager
def _evaluation(module: nn.Module) -> Iterator[None]:
    """Hold a module in evaluation mode; each of its modules then gets its own mode back."""
    with _EVALUATED:
        modes = [(each, each.training) for each in module.modules()]
        try:
            module.eval()
            yield
        finally:
            for each, mode in modes:
                each.training = mode


def _forward(name: str, module: nn.Module, encoded: Any, passed: Mapping[str, Any]) -> torch.Tensor:
    """Return what a module returns for encoded rows, in evaluation mode, which is undone."""
    import torch

    if passed:
        raise DataError(
            f"{name!r} is a torch module, which takes a tensor alone, not {', '.join(passed)}. Wrap it in a function: "
            "ScoresOf(function, passes=...)."
        )
    matrix = encoded.toarray() if hasattr(encoded, "toarray") else encoded
    dtypes: Any = matrix.dtypes if isinstance(matrix, pd.DataFrame) else {}
    if text := [str(column) for column, each in dtypes.items() if each.kind not in "fiub"]:
        raise DataError(
            f"{name!r} is a torch module, and {', '.join(map(repr, text))} hold(s) no numbers. Pass what turned them "
            "into numbers when it was trained: ScoresOf(..., encoder=fitted transformer)."
        )
    weight = next(iter(module.parameters()), None)
    with neutral_torch(), torch.no_grad(), _evaluation(module):
        rows = torch.tensor(np.asarray(matrix, dtype=np.float64))
        if weight is not None:
            rows = rows.to(device=weight.device, dtype=weight.dtype)
        returned = module(rows)
    if not isinstance(returned, torch.Tensor):
        raise DataError(f"{name!r}: the torch module returned a {type(returned).__name__}, expected a tensor.")
    return returned
