"""Seeded malformed inputs: each gives a finite result or an error of the package that names the problem."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import functools
import inspect
import math
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import pyrofair as pf
from tests.models import Known

PACKAGE = Path(pf.__file__).resolve().parent
CPU_SECONDS = 60  # processor time, which a busy machine does not use up
Random = np.random.Generator


@dataclass(frozen=True)
class Case:
    """One input.

    ``names`` are texts of which an error must hold one; empty where none is known.
    """

    what: str
    act: Callable[[], Any]
    names: tuple[str, ...] = ()


# -- what is fed ------------------------------------------------------------------------------------------------------

ODD: tuple[Any, ...] = (
    None, True, False, np.True_, "", "x", "no", b"x", 0, 1, -1, 2, 3.5, -0.5, 0.0, 1e-300, 1e300, math.nan, math.inf,
    -math.inf, 2**31, 2**63, -(2**63), 10**30, 1 + 2j, np.float32(0.3), np.int64(-3), np.nan, [], [1], ["x"], (),
    (1, 2), {},
    {"x": 1}, {1}, set(), object(), object, len, np.array(1), np.array([0.5]), np.array([]), np.array(["x"]),
    pd.NA, pd.NaT, pd.Series([1, 2]), pd.DataFrame({"x": [1]}), torch.tensor(0.5), torch.tensor([1, 2]),
    decimal.Decimal("0.5"), datetime.date(2020, 1, 1), np.random.default_rng(0), np.random.RandomState(0), range(3),
    iter([1]), "auto", "pooled", "network", "linear", slice(None), Ellipsis, float, "a" * 300,
)  # fmt: skip
TOKENS = (
    "A", "B", "M", "Y", "Q", "->", "<-", "--", "{", "}", ";", ",", "\n", "'", '"', "A B", "->->", "→", "é", " ", "",
)  # fmt: skip
FEATURES = ("A", "Q", "M", "D")


def rows(n: int, seed: int = 0) -> pd.DataFrame:
    """Rows of the graph below, with overlap."""
    random = np.random.default_rng(seed)
    q, a = random.normal(size=n).round(2), random.integers(0, 2, n)
    m = (0.4 * a + 0.5 * q + random.normal(size=n)).round(2)
    d = random.choice(["x", "y", "z"], n)
    y = (random.random(n) < 1 / (1 + np.exp(-(a + q + m)))).astype(int)
    return pd.DataFrame({"A": a, "Q": q, "M": m, "D": d, "Y": y})


EDGES = "{A Q} -> M; {A Q M} -> D; {A Q M D} -> Y"
GRAPH = pf.CausalGraph(EDGES, sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> D -> Y")
TABLE = rows(80)


SCORES = Known(lambda X: 1 / (1 + np.exp(-(X["A"].astype(float) + X["Q"].astype(float)))))
OF_M = Known(lambda X: 1 / (1 + np.exp(-X["M"].astype(float))))
FITTED = pf.IPW(UNFAIR, propensity="logistic", random_state=0).fit(TABLE.drop(columns="Y"))


def pick(random: Random, values: Any) -> Any:
    """Return one of the values, whatever they are."""
    return values[int(random.integers(len(values)))]


def odd(random: Random) -> Any:
    """Return something that may be no value of a setting."""
    return pick(random, ODD)


def graphs(random: Random) -> Case:
    """Edges, roles and columns of a graph."""
    kind = int(random.integers(5))
    settings: dict[str, Any] = {"sensitive": "A", "outcome": "Y"}
    edges: Any = EDGES
    names: tuple[str, ...] = ()
    if kind == 0:
        edges = " ".join(pick(random, TOKENS) for _ in range(int(random.integers(1, 12))))
    elif kind == 1:
        edges = odd(random)
    elif kind == 2:
        nodes = [pick(random, ("A", "M", "Y", 1, 2.5, "a b", ("t",), "")) for _ in range(4)]
        edges = nx.DiGraph([(pick(random, nodes), pick(random, nodes)) for _ in range(5)])
    elif kind == 3:
        edges = [(pick(random, ODD), "Y"), ("A", "Y"), *([("A",)] if random.random() < 0.3 else [])]
    if kind == 4 or random.random() < 0.2:
        name = pick(random, ("sensitive", "outcome", "baseline", "contrast", "positive", "columns", "latent"))
        settings[name] = odd(random)
        names = (name,) if kind == 4 else ()
    return Case(f"CausalGraph({edges!r:.80}, {settings!r:.200})", lambda: pf.CausalGraph(edges, **settings), names)


def path_sets(random: Random) -> Case:
    """Sets of paths, and what is asked of them."""
    kind = int(random.integers(4))
    if kind == 0:
        path = " ".join(pick(random, TOKENS) for _ in range(int(random.integers(1, 7))))
        return Case(f"unfair({path!r})", lambda: pf.identify(GRAPH.unfair(path)))
    value = odd(random)
    if kind == 1:
        name = pick(random, ("direct", "through"))
        return Case(f"unfair({name}={value!r:.80})", lambda: GRAPH.unfair(**{name: value}), (name, "paths"))
    if kind == 2:
        return Case(f"unfair({value!r:.80})", lambda: GRAPH.unfair(value))
    call = pick(
        random, ("parents", "children", "ancestors", "descendants", "columns_of", "with_latent", "directed_paths")
    )
    if not hasattr(GRAPH, call):
        return Case(f"identify(target={value!r:.80})", lambda: pf.identify(UNFAIR, target=value), ("target",))
    given = (value, "Y") if call == "directed_paths" else (value,)
    return Case(f"graph.{call}({value!r:.80})", lambda: getattr(GRAPH, call)(*given))


def _spoil(random: Random, table: pd.DataFrame) -> tuple[pd.DataFrame, str, str]:
    """Return a table with one column made odd, the column, and how."""
    column = pick(random, FEATURES)
    table, at = table.copy(), int(random.integers(len(table)))
    how = pick(random, SPOILERS)
    spoiled = SPOILERS_BY_NAME[how](table, column, at)
    return spoiled, column, how


def _cell(value: Any) -> Callable[[pd.DataFrame, str, int], pd.DataFrame]:
    def spoil(table: pd.DataFrame, column: str, at: int) -> pd.DataFrame:
        values = table[column].astype(object).to_list()
        values[at] = value
        return table.assign(**{column: pd.Series(values, index=table.index, dtype=object)})

    return spoil


def _as(dtype: Any) -> Callable[[pd.DataFrame, str, int], pd.DataFrame]:
    return lambda table, column, _: table.assign(**{column: table[column].astype(dtype)})


def _column(make: Callable[[pd.Series], Any]) -> Callable[[pd.DataFrame, str, int], pd.DataFrame]:
    return lambda table, column, _: table.assign(**{column: make(table[column])})


SPOILERS_BY_NAME: dict[str, Callable[[pd.DataFrame, str, int], pd.DataFrame]] = {
    **{f"cell {value!r:.30}": _cell(value) for value in (
        None, math.nan, math.inf, -math.inf, "x", "1", "", b"x", 1e160, 1e308, 2**70, 1j, [1], (1, 2), {}, pd.NaT,
        decimal.Decimal("1.5"), datetime.date(2020, 1, 1), True, 5, -7.5, object(),
    )},
    "text": _as(str), "object": _as(object), "category": _as("category"), "category of text":
        _column(lambda values: values.astype(str).astype("category").cat.add_categories(["never"])),
    "dates": _column(lambda values: pd.date_range("2020-01-01", periods=len(values)).to_numpy()),
    "periods": _column(lambda values: pd.period_range("2020-01", periods=len(values), freq="M").to_numpy()),
    "durations": _column(lambda values: pd.to_timedelta(np.arange(len(values)), unit="D").to_numpy()),
    "complex": _column(lambda values: np.full(len(values), 1 + 2j)),
    "constant": _column(lambda values: values.iloc[0]),
    "huge": _column(lambda values: np.linspace(-1e200, 1e200, len(values))),
    "tiny": _column(lambda values: np.linspace(0, 1e-310, len(values))),
    "all missing": _column(lambda values: np.full(len(values), np.nan)),
    "lists": _column(lambda values: [[1]] * len(values)),
    "unique text": _column(lambda values: [f"v{i}" for i in range(len(values))]),
    "bools": _column(lambda values: np.arange(len(values)) % 2 == 0),
    "nullable": _column(lambda values: pd.array([None] + [1] * (len(values) - 1), dtype="Int64")),
    "intervals": _column(lambda values: pd.cut(np.arange(len(values)), 3)),
    "sparse": _column(lambda values: pd.arrays.SparseArray(np.arange(len(values)) % 2)),
    "integers 2**62": _column(lambda values: np.full(len(values), 2**62) + np.arange(len(values))),
    "without it": lambda table, column, _: table.drop(columns=column),
    "renamed": lambda table, column, _: table.rename(columns={column: f" {column}"}),
    "twice": lambda table, column, _: pd.concat([table, table[[column]]], axis=1),
    "no rows": lambda table, column, _: table.iloc[:0],
    "one row": lambda table, column, _: table.iloc[:1],
    "two rows": lambda table, column, _: table.iloc[:2],
    "repeated index": lambda table, column, _: table.set_axis([0] * len(table)),
    "index of pairs": lambda table, column, _: table.set_axis(
        pd.MultiIndex.from_product([[0], range(len(table))])),
    "columns of pairs": lambda table, column, _: table.set_axis(
        pd.MultiIndex.from_product([["t"], table.columns]), axis=1),
    "dates as index": lambda table, column, _: table.set_axis(pd.date_range("2020", periods=len(table))),
    "one group": lambda table, column, _: table.assign(A=0),
    "one of a group": lambda table, column, _: table.assign(A=[1] + [0] * (len(table) - 1)),
    "group decided by M": lambda table, column, _: table.assign(A=(table["M"] > 0).astype(int)),
    "further columns": lambda table, column, _: table.assign(extra=object()),
}  # fmt: skip
SPOILERS = tuple(SPOILERS_BY_NAME)
OF_THE_TABLE = ("row", "column", "group", "data", "df", "X", "DataFrame", "weight", "index", "class")


def tables(random: Random) -> Case:
    """Tables that sources, encoders, mechanisms and audits are given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table, column, how = _spoil(random, TABLE)
    names = (repr(column), column, *OF_THE_TABLE)
    kind = int(random.integers(7))
    what = f"column {column}: {how}"
    features = table.drop(columns="Y", errors="ignore")
    if kind == 0:
        propensity = pick(random, ("logistic", "saturated"))
        arm = pick(random, ("auto", "paper", "pooled", 0, 1))
        source = pf.IPW(UNFAIR, propensity=propensity, arm=arm, random_state=0, max_unsupported=1.0)
        return Case(f"IPW({propensity}, {arm}), {what}", lambda: source.fit(table).worlds(), names)
    if kind == 1:
        return Case(f"worlds of other rows, {what}", lambda: FITTED.worlds(df=table), names)
    if kind == 2:
        return Case(
            f"audit, {what}",
            lambda: pf.audit({"m": SCORES}, FITTED, table, n_boot=3, progress=False, random_state=0),
            (*names, "'m'"),
        )
    if kind == 3:
        learned = pf.PenalizedClassifier("logistic", epochs=1, progress=False, random_state=0)
        return Case(
            f"fit, {what}", lambda: learned.fit(features, TABLE["Y"].iloc[: len(table)]).predict_proba(features), names
        )
    if kind == 4:
        return Case(
            f"learn, {what}",
            lambda: pf.learn_mechanisms(table, GRAPH, parameters="linear", steps=2, progress=False, random_state=0),
            names,
        )
    if kind == 5:
        return Case(f"encode, {what}", lambda: pf.tables.TableEncoder().fit(features).transform(features), names)
    model = LogisticRegression().fit(TABLE[["A", "Q", "M"]], TABLE["Y"])
    return Case(
        f"audit of scikit-learn's, {what}",
        lambda: pf.audit({"m": model}, pf.IPW(UNFAIR), table, n_boot=0, progress=False),
        (*names, "'m'"),
    )


class Returns:
    """A model that returns one thing."""

    def __init__(self, value: Any, classes: Any) -> None:
        self.value, self.classes_ = value, classes

    def predict_proba(self, X: pd.DataFrame) -> Any:
        """Return it, or raise it."""
        if isinstance(self.value, Exception):
            raise self.value
        return self.value(len(X)) if callable(self.value) else self.value


RETURNED: tuple[Any, ...] = (
    *ODD, RuntimeError("no"), KeyError("k"), ValueError(""),
    lambda n: np.zeros((n, 2)), lambda n: np.ones((n, 2)), lambda n: np.full((n, 2), 0.5), lambda n: np.zeros(n),
    lambda n: np.full((n, 3), 1 / 3), lambda n: np.full((n, 2), np.nan), lambda n: np.full((n, 1), 0.5),
    lambda n: np.full((n + 1, 2), 0.5), lambda n: np.full((n, 2), 0.5j), lambda n: np.full((n, 2), "a"),
    lambda n: [[0.5, 0.5]] * n, lambda n: torch.full((n, 2), 0.5), lambda n: pd.DataFrame(np.full((n, 2), 0.5)),
    lambda n: np.tile([-0.2, 1.2], (n, 1)), lambda n: np.tile([0.3, 0.3], (n, 1)), lambda n: None,
    lambda n: np.ma.masked_array(np.full((n, 2), 0.5), mask=True), lambda n: np.full((n, 2), 0.5, dtype=object),
)  # fmt: skip
CLASSES: tuple[Any, ...] = (
    np.array([0, 1]), np.array([0, 1]), np.array([0, 1]), [0, 1], np.array([1, 1]), np.array([0, 1, 2]), None, "01",
    np.array(["a", "b"]), np.array([0.0, 1.0]), np.array([[0, 1]]), 7, [None, 1],
)  # fmt: skip


def models(random: Random) -> Case:
    """Models, scores, weights and the names of them."""
    kind = int(random.integers(4))
    audit = {"n_boot": 0, "progress": False}
    if kind == 0:
        value, classes = pick(random, RETURNED), pick(random, CLASSES)
        model = Returns(value, classes)
        return Case(
            f"audit of a model that returns {value!r:.60} with classes {classes!r:.40}",
            lambda: pf.audit({"m": model}, FITTED, TABLE, **audit),
            ("'m'",),
        )
    value = odd(random)
    if kind == 1:
        return Case(
            f"audit({value!r:.60})", lambda: pf.audit(value, FITTED, TABLE, **audit), ("model", "predict_proba")
        )
    if kind == 2:
        value = pick(random, RETURNED)
        value = value(len(TABLE)) if callable(value) and not isinstance(value, type) and value is not len else value
        source = pf.IPW(UNFAIR, arm="paper").fit(TABLE.drop(columns="Y"))
        return Case(
            f"audit of scores {value!r:.60}", lambda: pf.audit({"m": value}, source, TABLE, **audit), ("'m'", "'A'")
        )
    weight = pick(random, (value, np.zeros(80), -np.ones(80), np.full(80, np.nan), np.ones((80, 1)), ["a"] * 80,
                           pd.Series(1.0, index=range(1, 81)), np.full(80, 1e300), np.full(80, 1e-320)))  # fmt: skip
    call = pick(random, ("audit", "fit", "worlds", "classifier", "mechanisms"))
    calls: dict[str, Callable[[], Any]] = {
        "audit": lambda: pf.audit({"m": SCORES}, FITTED, TABLE, sample_weight=weight, **audit),
        "fit": lambda: pf.IPW(UNFAIR).fit(TABLE, sample_weight=weight).worlds(),
        "worlds": lambda: FITTED.worlds(df=TABLE, sample_weight=weight),
        "classifier": lambda: pf.PenalizedClassifier("logistic", epochs=1, progress=False).fit(
            TABLE[list(FEATURES)], TABLE["Y"], sample_weight=weight
        ),
        "mechanisms": lambda: pf.learn_mechanisms(
            TABLE, GRAPH, parameters="linear", steps=2, progress=False, sample_weight=weight
        ),
    }
    return Case(f"{call}(sample_weight={weight!r:.60})", calls[call], ("sample_weight", "weight"))


def _classifier(**settings: Any) -> Any:
    given = {"epochs": 1, "progress": False, "random_state": 0} | settings
    model = pf.PenalizedClassifier(given.pop("model", "logistic"), **given)
    return model.fit(TABLE[list(FEATURES)], TABLE["Y"]).predict_proba(TABLE[list(FEATURES)])


def _mechanisms(**settings: Any) -> Any:
    return pf.learn_mechanisms(
        TABLE, GRAPH, **{"parameters": "linear", "steps": 2, "progress": False, "random_state": 0} | settings
    )


def _fitted_path(**settings: Any) -> Any:
    model = pf.PenalizedClassifier(
        "logistic", source=pf.IPW(UNFAIR), epochs=1, starts=1, progress=False, random_state=0
    )
    given = {"strengths": [1.0], "n_boot": 0, "progress": False, "judge": model.source} | settings
    return pf.penalty_path(model, TABLE[list(FEATURES)], TABLE["Y"], **given)


def _path(**settings: Any) -> Any:
    return _fitted_path(**settings).table


def _audit(**settings: Any) -> Any:
    return pf.audit({"m": SCORES}, FITTED, TABLE, **{"n_boot": 2, "progress": False, "random_state": 0} | settings)


# -- programs ---------------------------------------------------------------------------------------------------------

SHORT = pf.CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
THROUGH = SHORT.unfair("A -> M -> Y")
UNITS = pd.DataFrame({"A": [0, 1] * 6, "M": np.linspace(-1.0, 1.5, 12).round(2), "Y": [0, 1, 1] * 4})
Site = Callable[[int, Any], Any]


def _raises(error: BaseException) -> Any:
    raise error


def _drawn(name: str, family: Callable[[int, Any], Any]) -> Site:
    return lambda n, before: pyro.sample(name, family(n, before))


PARAMETER: dict[str, Site] = {
    "a parameter": _drawn("b", lambda n, _: dist.Normal(0.0, 1.0)),
    "a scale of 0": _drawn("b", lambda n, _: dist.Delta(torch.tensor(0.0))),
    "a vector": _drawn("b", lambda n, _: dist.Normal(torch.zeros(3), 1.0)),
    "n of them": _drawn("b", lambda n, _: dist.Normal(torch.zeros(n), 1.0)),
    "discrete": _drawn("b", lambda n, _: dist.Poisson(2.0)),
    "NaN": _drawn("b", lambda n, _: dist.Normal(math.nan, 1.0, validate_args=False)),
    "a flat prior": _drawn("b", lambda n, _: dist.ImproperUniform(dist.constraints.real, (), ())),
    "pyro.param": lambda n, _: pyro.param("b", torch.tensor(0.5)),
    "none": lambda n, _: 0.5,
    "a number that is random": lambda n, _: float(torch.randn(())),
    "a generator of NumPy": lambda n, _: float(np.random.default_rng().normal()),
}
SITES: dict[str, dict[str, Site]] = {
    "A": {
        "a coin": _drawn("A", lambda n, _: dist.Bernoulli(0.5)),
        "three values": _drawn("A", lambda n, _: dist.Categorical(torch.ones(3) / 3)),
        "a number": _drawn("A", lambda n, _: dist.Normal(0.0, 1.0)),
        "a constant": _drawn("A", lambda n, _: dist.Delta(torch.tensor(1.0))),
        "a probability of NaN": _drawn("A", lambda n, _: dist.Bernoulli(math.nan, validate_args=False)),
        "a probability of 2": _drawn("A", lambda n, _: dist.Bernoulli(2.0)),
        "observed": lambda n, _: pyro.sample("A", dist.Bernoulli(0.5), obs=torch.ones(n)),
        "computed": lambda n, _: pyro.deterministic("A", torch.arange(n) % 2),
        "not there": lambda n, _: torch.ones(n),
        "twice": lambda n, _: [pyro.sample("A", dist.Bernoulli(0.5)) for _ in range(2)][-1],
        "two at once": _drawn("A", lambda n, _: dist.Bernoulli(torch.full((2,), 0.5)).to_event(1)),
    },
    "M": {
        "a regression": _drawn("M", lambda n, b: dist.Normal(b[0] * b[1], 1.0)),
        "noise": lambda n, b: pyro.deterministic("M", b[0] * b[1] + pyro.sample("U", dist.Normal(0.0, 1.0))),
        "a scale of 0": _drawn("M", lambda n, b: dist.Normal(b[1], 0.0, validate_args=False)),
        "a scale below 0": _drawn("M", lambda n, b: dist.Normal(b[1], -1.0)),
        "a count": _drawn("M", lambda n, b: dist.Poisson(torch.exp(b[0] * b[1]))),
        "Cauchy's": _drawn("M", lambda n, b: dist.Cauchy(b[1], 1.0)),
        "a mixture": _drawn("M", lambda n, b: dist.MixtureSameFamily(
            dist.Categorical(torch.ones(2)), dist.Normal(torch.zeros(2), torch.ones(2)))),
        "a matrix": _drawn("M", lambda n, b: dist.Normal(torch.zeros(2, 2), 1.0).to_event(2)),
        "a distribution of n + 1": _drawn("M", lambda n, b: dist.Normal(torch.zeros(n + 1), 1.0)),
        "infinite": lambda n, b: pyro.deterministic("M", b[1] / 0.0 + pyro.sample("U", dist.Normal(0.0, 1.0))),
        "NaN": lambda n, b: pyro.deterministic("M", torch.full((n,), math.nan)),
        "a number for all": lambda n, b: pyro.deterministic("M", torch.tensor(1.0)),
        "no tensor": lambda n, b: pyro.deterministic("M", 1.0),
        "text": lambda n, b: pyro.deterministic("M", "x"),
        "None": lambda n, b: pyro.sample("M", None),
        "the mean of all": lambda n, b: pyro.deterministic(
            "M", b[1].mean() + pyro.sample("U", dist.Normal(0.0, 1.0))),
        "through NumPy": lambda n, b: pyro.deterministic("M", torch.as_tensor(np.asarray(b[1]) * 2.0)),
        "a branch": lambda n, b: pyro.sample("M", dist.Normal(1.0 if b[1].sum() > 2 else 0.0, 1.0)),
        "a value of its own": lambda n, b: pyro.deterministic("M", b[1] + torch.randn(n)),
        "item": lambda n, b: pyro.deterministic("M", torch.full((n,), b[1].reshape(-1)[0].item())),
        "raises": lambda n, b: _raises(RuntimeError("no")),
        "raises a key": lambda n, b: _raises(KeyError("k")),
        "in place": lambda n, b: pyro.deterministic("M", b[1].add_(1.0)),
        "an inner plate": lambda n, b: [pyro.sample(f"M{i}", dist.Normal(0.0, 1.0)) for i in pyro.plate("in", 2)][-1],
        "a wrong device": lambda n, b: pyro.deterministic("M", torch.ones(n, device="meta")),
        "complex": lambda n, b: pyro.deterministic("M", b[1] * 1j),
        "masked": lambda n, b: pyro.sample("M", dist.Normal(b[1], 1.0).mask(torch.arange(n) > 2)),
        "a factor": lambda n, b: (pyro.factor("f", -b[1]), pyro.sample("M", dist.Normal(b[1], 1.0)))[1],
        "a mean of NaN": _drawn("M", lambda n, b: dist.Normal(b[1] * math.nan, 1.0, validate_args=False)),
    },
    "Y": {
        "a logit": _drawn("Y", lambda n, b: dist.Bernoulli(logits=b[0] * b[1])),
        "a number": _drawn("Y", lambda n, b: dist.Normal(b[1], 1.0)),
        "computed": lambda n, b: pyro.deterministic("Y", (b[1] > 0).float()),
        "three values": _drawn("Y", lambda n, b: dist.Categorical(torch.ones(3))),
        "a logit of NaN": _drawn("Y", lambda n, b: dist.Bernoulli(logits=b[1] * math.nan, validate_args=False)),
        "a logit of infinity": _drawn("Y", lambda n, b: dist.Bernoulli(logits=b[1] * math.inf, validate_args=False)),
        "not there": lambda n, b: None,
        "observed": lambda n, b: pyro.sample("Y", dist.Bernoulli(0.5), obs=torch.zeros(n)),
        "raises": lambda n, b: _raises(ValueError("")),
    },
}  # fmt: skip
PLATES: dict[str, Callable[[int], Any]] = {
    "a plate": lambda n: pyro.plate("units", n),
    "no plate": lambda n: contextlib.nullcontext(),
    "a plate of 3": lambda n: pyro.plate("units", 3),
    "a plate of n + 1": lambda n: pyro.plate("units", n + 1),
    "a plate at -2": lambda n: pyro.plate("units", n, dim=-2),
    "a subsample": lambda n: pyro.plate("units", n, subsample_size=max(1, n // 2)),
    "a plate of 0": lambda n: pyro.plate("units", 0),
    "a mask": lambda n: poutine.mask(mask=False),
    "a scale below 0": lambda n: poutine.scale(scale=-1.0),
}


def _choose(random: Random, of: dict[str, Any], ordinary: float) -> str:
    """Return the first name, as often as that, or any."""
    names = list(of)
    return names[0] if random.random() < ordinary else str(pick(random, names))


def _program(random: Random) -> tuple[str, Callable[[int], Any]]:
    """Return a program of A, M and Y, in which some parts are odd, and what it is made of."""
    parameter, plate = _choose(random, PARAMETER, 0.6), _choose(random, PLATES, 0.8)
    a, m, y = _choose(random, SITES["A"], 0.6), _choose(random, SITES["M"], 0.3), _choose(random, SITES["Y"], 0.6)

    def program(n: int) -> Any:
        b = PARAMETER[parameter](n, None)
        with PLATES[plate](n):
            first = SITES["A"][a](n, (b,))
            second = SITES["M"][m](n, (b, first))
            return SITES["Y"][y](n, (b, second))

    return f"{parameter}; {plate}; A {a}; M {m}; Y {y}", program


NO_PROGRAMS: tuple[Any, ...] = (
    lambda: None, lambda n, m: None, lambda n: None, lambda n: iter([n]), lambda n: _raises(TypeError("t")), math.sqrt,
    torch.nn.Linear(1, 1), pf.simulate.hiring, type,
)  # fmt: skip


def programs(random: Random) -> Case:
    """Programs, and what reads them."""
    what, program = _program(random)
    if random.random() < 0.1:
        program = pick(random, (*NO_PROGRAMS, odd(random)))
        what = f"{program!r:.60}"
    draws = {"b": pick(random, ([0.1, 0.5], [0.1, 0.5], [0.2], [[0.1, 0.5]], np.zeros((2, 3)), odd(random)))}
    draws = pick(random, (draws, draws, draws, {}, {"c": [0.1]}, {**draws, "M": np.zeros((2, 3))}))
    calls: dict[str, Callable[[], Any]] = {
        "from_pyro": lambda: pf.CausalGraph.from_pyro(program, nodes=["A", "M", "Y"], sensitive="A", outcome="Y"),
        "SEM.nodes": lambda: pf.SEM(program, THROUGH).nodes(5, random_state=0),
        "SEM.worlds": lambda: pf.SEM(program, THROUGH, posterior=draws).worlds(5, random_state=0),
        "SEM.truth": lambda: pf.SEM(program, THROUGH, posterior=draws).truth(OF_M, n=20, random_state=0),
        "SEM.counterfactual": lambda: pf.SEM(program, THROUGH, posterior=draws).counterfactual(
            UNITS.head(4), draws=5, random_state=0
        ),
        "abduct": lambda: pf.inference.abduct(program, UNITS.head(4), nodes=["A", "M", "Y"], draws=5, random_state=0),
        "fit_posterior": lambda: _posterior(program=program),
        "predictive": lambda: pf.inference.predictive(program, draws, n=3, random_state=0),
        "predictive(do)": lambda: pf.inference.predictive(program, draws, do={"M": 1.0}, n=3, random_state=0),
        "effect_posterior": lambda: _effects(program=program, posterior=draws),
    }
    call = pick(random, list(calls))
    return Case(f"{call}: {what}, draws {draws!r:.80}", calls[call])


def plain(n: int) -> None:
    """Draw n units."""
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        M = pyro.sample("M", dist.Normal(b * A, 1.0))
        pyro.sample("Y", dist.Bernoulli(logits=M))


def _posterior(**settings: Any) -> Any:
    given = {"program": plain, "df": UNITS, "graph_or_unfair": SHORT, "method": "svi", "draws": 4, "steps": 4}
    return pf.fit_posterior(**{**given, "progress": False, "random_state": 0} | settings)


def _effects(**settings: Any) -> Any:
    given = {"program": plain, "unfair": THROUGH, "model": OF_M, "posterior": {"b": [0.1, 0.5]}, "n": 50}
    given = given | {"progress": False, "random_state": 0} | settings
    return pf.effect_posterior(given.pop("program"), **given)


def _abduced(**settings: Any) -> Any:
    given = {"df": UNITS.head(3), "draws": 5, "parameters": {"b": 0.4}, "random_state": 0} | settings
    return pf.inference.abduct(given.pop("program", plain), given.pop("df"), **given)


def _counterfactual(**settings: Any) -> Any:
    sem = pf.SEM(plain, THROUGH, posterior={"b": [0.1, 0.5]})
    return sem.counterfactual(**{"df": UNITS.head(3), "draws": 5, "random_state": 0} | settings)


def _set(**settings: Any) -> Any:
    return pf.do(plain, settings)(3)


@functools.cache
def _kept(what: str) -> Any:
    """Return something fitted, made once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made: dict[str, Callable[[], Any]] = {
            "mechanisms": lambda: _mechanisms(),
            "audit": lambda: _audit(),
            "path": lambda: _fitted_path(n_boot=2),
            "posterior": lambda: _posterior(),
            "effects": lambda: _effects(),
            "PSCF": lambda: pf.PSCF(THROUGH, epochs=1, samples=3, hidden=4, progress=False, random_state=0).fit(
                UNITS[["A", "M"]], UNITS["Y"]
            ),
            "Counterfactuals": lambda: _counterfactual(),
            "Abduction": lambda: _abduced(),
        }
        return made[what]()


# -- what comes of it -------------------------------------------------------------------------------------------------


def silent(result: Any) -> str:
    """Return what is not finite in a result without a word, or nothing."""
    if isinstance(result, pf.Audit):
        table = result.table
        bare = table["estimate"].isna() & (table["note"].fillna("") == "")
        return f"NaN without a note: {table[bare].iloc[0].to_dict()}" if bare.any() else ""
    if isinstance(result, pf.effects.CounterfactualSample):
        return "" if np.isfinite(result.weight).all() else "weights that are not finite"
    if isinstance(result, tuple | list):
        return "".join(map(silent, result))
    if isinstance(result, dict):
        return "".join(map(silent, result.values()))
    if isinstance(result, pf.Posterior):
        return silent(dict(result.samples))
    if isinstance(result, pf.sources.EffectPosterior):
        return silent(dict(result.samples))
    if isinstance(result, pf.sources.Truth):
        return silent([result.mean_unfair_effect.value, result.piu.value])
    if isinstance(result, pf.classifiers.PSCFTruth):
        return silent(result.piu.value)
    if isinstance(result, pf.inference.Counterfactuals):
        return silent([result.baseline, result.switched])
    if isinstance(result, pd.DataFrame):
        numbers = result.select_dtypes("number").drop(columns=["seed"], errors="ignore")
        return "" if np.isfinite(numbers.to_numpy(dtype=float)).all() else "numbers that are not finite in a table"
    if isinstance(result, float | np.floating | np.ndarray | torch.Tensor):
        values = np.asarray(result)
        return "" if values.dtype.kind in "OUSb" or np.isfinite(values).all() else f"not finite: {result!r:.80}"
    return ""


class Endless(BaseException):
    """The processor time of a case is used up."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise Endless after so much processor time."""

    def stop(_: int, frame: FrameType | None) -> None:
        raise Endless("".join(traceback.format_stack(frame)[-4:]))

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def faults(case: Case) -> str:
    """Return what is wrong with what comes of a case, or nothing."""
    with warnings.catch_warnings(record=True) as caught, limited(CPU_SECONDS):
        warnings.simplefilter("always")
        try:
            found = silent(case.act())
        except Endless as late:
            return f"does not end: {late}"
        except (ValueError, TypeError) as error:
            return _unclear(case, error)
        except Exception as error:
            return f"raises {type(error).__name__}: {error!s:.200} {_place(error)}"
    if not found:
        found = "; ".join(f"{each.category.__name__}: {each.message!s:.100}" for each in caught if _leaks(each))
    return found


def _place(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    ours = [each for each in traceback.extract_tb(error.__traceback__) if Path(each.filename).is_relative_to(PACKAGE)]
    near = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "no frame of the package"
    return f"[at {Path(last.filename).name}:{last.lineno}, from {near}]"


def _unclear(case: Case, error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    raised = Path(last.filename).resolve().is_relative_to(PACKAGE) and str(last.line).startswith("raise ")
    if not isinstance(error, pf.PyrofairError | NotFittedError) and not raised:
        return f"an inner {type(error).__name__}: {error!s:.200} {_place(error)}"
    if len(str(error)) < 20:
        return f"a message without content: {error!s}"
    if case.names and not any(name in str(error) for name in case.names):
        return f"a message that names none of {case.names}: {error!s:.200} {_place(error)}"
    return ""


def _leaks(warning: warnings.WarningMessage) -> bool:
    """Return whether a warning of NumPy, torch or scikit-learn reaches the user in place of one of the package."""
    if "sparse columns found" in str(warning.message):  # raised by the user's own model of the user's own columns
        return False
    return not issubclass(warning.category, pf.PyrofairWarning) and not issubclass(
        warning.category, DeprecationWarning | FutureWarning | ResourceWarning
    )


# -- every public name ------------------------------------------------------------------------------------------------

PAIR = tuple(pf.effects.Scored(torch.tensor([0.2, 0.6]), torch.tensor([0.5, 0.5])) for _ in range(2))
GIVEN: dict[str, Callable[[], Any]] = {
    "attributes": lambda: ["A", "D"], "audit": lambda: None, "baseline": lambda: (0, "x"), "bounds0": lambda: PAIR[0],
    "bounds1": lambda: PAIR[1], "candidates": lambda: {"one": UNFAIR}, "classifier": lambda: pf.PenalizedClassifier(),
    "classifiers": lambda: [pf.PenalizedClassifier("logistic", epochs=1)], "columns": lambda: None,
    "data": lambda: TABLE, "df": lambda: TABLE, "edges": lambda: EDGES, "errors": lambda: 1,
    "graph": lambda: GRAPH, "graph_or_unfair": lambda: GRAPH, "level": lambda: 0.2, "model": lambda: SCORES,
    "models": lambda: {"m": SCORES}, "n": lambda: 20, "name": lambda: "hiring", "nodes": lambda: "descendants",
    "obj": lambda: GRAPH, "outcome": lambda: "Y", "p0": lambda: 0.3, "p1": lambda: 0.6, "path": lambda: "absent/file",
    "posterior": lambda: {"b": [0.1, 0.5]}, "program": lambda: plain, "rows": lambda: UNITS, "score": lambda: len,
    "scored0": lambda: PAIR[0], "scored1": lambda: PAIR[1], "sem": lambda: pf.SEM(plain, THROUGH),
    "sem_or_program": lambda: plain, "sensitive": lambda: "A", "source": lambda: FITTED, "table": lambda: TABLE,
    "unfair": lambda: UNFAIR, "values": lambda: {"M": 1.0}, "X": lambda: TABLE[list(FEATURES)], "y": lambda: TABLE["Y"],
    "given": lambda: GRAPH, "paths": lambda: ["A -> Y"], "lower": lambda: torch.tensor(0.1), "target": lambda: "Y",
    "upper": lambda: torch.tensor(0.9), "weight": lambda: np.ones(80), "at_most": lambda: 0.1, "contrast": lambda: 2,
    "scenarios": lambda: [], "methods": lambda: [], "node": lambda: "M", "value": lambda: 0, "unit": lambda: None,
    "regime": lambda: UNFAIR.regimes[0], "sample_weight": lambda: np.ones(80), "column": lambda: "M",
    "scenario": lambda: plain, "sample_weights": lambda: [np.ones(80)], "tiers": lambda: [["A"], ["Y"]],
}  # fmt: skip
"""A right value of each parameter that has no default, by its name."""
MADE = (
    "Scored", "MarginalBounds", "CounterfactualSample", "ScoresOf", "DecisionsOf", "CausalGraph", "UnfairPaths",
    "AuditScorer",
)  # fmt: skip
"""The classes that check what they are made of at once; others do so when they are fitted, or are results."""


INNER = (
    "Abduction.worlds", "CausalGraph.named", "CausalGraph.remade", "Counterfactuals.labelled",
    "LearnedMechanisms.encoded", "PSCF.get_params", "PSCF.set_params", "IPW.get_params", "IPW.set_params",
)  # fmt: skip
"""Methods that other parts of the package call with what they have made."""
PROGRAMS = ("hiring", "additive", "latent")
"""Public functions that are Pyro programs: ``pf.simulate.scenario`` checks what they are given."""


@functools.wraps(pf.feasible_interval)
def interval_or_zeros(*given: Any, **named: Any) -> Any:
    """Return zeros in the place of the NaN that say that no marginal is feasible."""
    return np.nan_to_num(pf.feasible_interval(*given, **named))


def _doors() -> dict[str, Callable[..., Any]]:
    """Return each public function, each class that users make, and the methods of graphs, paths and encoders."""
    modules = [pf, *(each for name in pf.__all__ if inspect.ismodule(each := getattr(pf, name)))]
    found: dict[str, Callable[..., Any]] = {}
    for module in modules:
        for name in module.__all__:
            each = getattr(module, name)
            if (inspect.isfunction(each) and name not in PROGRAMS) or (inspect.isclass(each) and name in MADE):
                found.setdefault(name, each)
    kept = ("audit", "path", "mechanisms", "posterior", "effects", "PSCF", "Counterfactuals", "Abduction")
    for instance in (GRAPH, UNFAIR, pf.datasets.load_german(), FITTED, *map(_kept, kept)):
        for name, each in inspect.getmembers(instance, inspect.ismethod):
            if not name.startswith("_") and f"{type(instance).__name__}.{name}" not in INNER:
                found[f"{type(instance).__name__}.{name}"] = each
    found["feasible_interval"] = interval_or_zeros
    found["CausalGraph.expand"] = functools.partial(GRAPH.expand, sensitive="A", outcome="Y")
    return found


@functools.cache
def _arguments() -> dict[tuple[str, str], Callable[..., Any]]:
    """Return what is called by its name and that of each of its arguments; some are methods of what is fitted first."""
    return {
        (door, name): call
        for door, call in _doors().items()
        for name, each in inspect.signature(call).parameters.items()
        if name != "progress" and each.kind is not inspect.Parameter.VAR_KEYWORD
        and (door, name) not in (("fit_many", "X"), ("PSCF.fit", "y"))  # scikit-learn's words, which its checks ask for
    }  # fmt: skip


NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def doors(random: Random) -> Case:
    """One argument of a public function, class or method."""
    door, name = pick(random, list(_arguments()))
    call, value = _arguments()[door, name], odd(random)
    if isinstance(value, int | float | np.number) and abs(value) > 1e6 and math.isfinite(value):
        value = -3  # a legal large number is work, not a malformed argument
    arguments = inspect.signature(call).parameters
    own = {
        each.name: GIVEN[each.name]()
        for each in arguments.values()
        if each.default is each.empty and each.kind in NAMED
    }
    if arguments[name].kind is inspect.Parameter.VAR_POSITIONAL:
        return Case(f"{door}(*[{value!r:.80}])", lambda: call(*own.values(), value))
    return Case(f"{door}({name}={value!r:.80})", lambda: call(**{**own, name: value}))


KINDS = (graphs, path_sets, tables, models, programs, doors)


def run(number: int, seed: int) -> list[str]:
    """Return what goes wrong among so many cases."""
    found: dict[str, str] = {}
    for i in range(number):
        random = np.random.default_rng([seed, i])
        case = KINDS[i % len(KINDS)](random)
        if wrong := faults(case):
            found.setdefault(wrong[:90], f"{i}: {case.what}\n      {wrong}")
    return list(found.values())


@pytest.mark.filterwarnings("always")
def test_malformed_inputs_give_a_result_or_an_error_that_names_the_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a malformed path may be a right one, of a file
    found = run(400, seed=1)
    assert not found, "\n".join([f"{len(found)} faults", *found])


@pytest.mark.slow
@pytest.mark.filterwarnings("always")
def test_ten_thousand_malformed_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = run(10_000, seed=0)
    assert not found, "\n".join([f"{len(found)} faults", *found])


ENCODER = pf.tables.TableEncoder().fit(TABLE[list(FEATURES)])
ZERO_D = torch.tensor(0.5)


def negative_scale(n: int) -> None:
    """Fail, with the negative scales that a posterior may hold."""
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    with pyro.plate("units", n):
        pyro.sample("A", dist.Bernoulli(0.5))
        pyro.sample("M", dist.Normal(0.0, b))


def divides(n: int) -> None:
    """Divide by zero."""
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        M = pyro.deterministic("M", pyro.sample("U", dist.Normal(0.0, 1.0)) / (A - A))
        pyro.sample("Y", dist.Bernoulli(logits=M.clamp(-1.0, 1.0)))


FOUND: dict[str, tuple[Callable[[], Any], str]] = {
    "text where numbers were": (lambda: ENCODER.transform(TABLE.assign(M="1.5")), "'M' held numbers in fit"),
    "a missing number": (lambda: ENCODER.transform(TABLE.assign(M=math.nan)), "missing value.* in the column 'M'"),
    "a huge number": (
        lambda: pf.tables.TableEncoder().fit(TABLE.assign(M=1e200)),
        "'M' of X holds numbers up to 1e.200",
    ),
    "a list in a cell": (lambda: pf.tables.TableEncoder().fit(TABLE.assign(D=[[1]] * 80)), "'D' of X holds lists"),
    "worlds of text": (lambda: FITTED.worlds(df=TABLE.assign(M="x")), "'M' held numbers in fit"),
    "edges": (lambda: pf.CausalGraph(ZERO_D, sensitive="A", outcome="Y"), "no graph can be read from tensor"),  # type: ignore[arg-type]
    "through": (lambda: GRAPH.unfair(through=np.array(1)), "through=array.1. must be a name, or a list"),  # type: ignore[arg-type]
    "a missing node": (lambda: GRAPH.parents(pd.NA), "<NA>, named as a node"),  # type: ignore[arg-type]
    "nodes": (lambda: _mechanisms(nodes="auto"), "'auto' is no observed node .* It is named in nodes="),
    "families": (lambda: _mechanisms(families=torch.tensor([1, 2])), "families=tensor.* must be a dictionary"),
    "hidden": (lambda: _mechanisms(hidden=np.array(1)), "hidden=array.1. must list the units"),
    "optimizer": (lambda: _classifier(optimizer=pd.DataFrame({"x": [1]})), "optimizer=<DataFrame> is not known"),
    "a rate beyond single precision": (lambda: _mechanisms(learning_rate=1e300), "learning_rate=1e.300 must be"),
    "seeds": (lambda: _path(seeds=np.array(1)), "seeds=array.1. must be an integer"),
    "strengths": (lambda: _path(strengths=np.array("x")), "strengths=array.* must hold a positive one"),
    "refit": (lambda: _kept("mechanisms").refit(steps=object()), "steps=<object .* must be an integer"),
    "a draw that is True": (
        lambda: _kept("mechanisms").distribution("M", TABLE, draw=True),
        "draw=True must be an integer",
    ),
    "draws": (lambda: _kept("mechanisms").to_inference_data(draws=-0.5), "draws=-0.5 must be an integer"),
    "predictive": (lambda: _kept("posterior").to_inference_data(predictive=2), "predictive=2 must be a dictionary"),
    "threshold": (lambda: _kept("Counterfactuals").scores(OF_M, threshold=["x"]), "threshold=.'x'. must be a number"),
    "decisions": (lambda: _kept("path").plot(decisions=pd.NA), "no rows with decisions=<NA>"),
    "axes": (lambda: pf.audits.plot_feasible_region(0.5, ax=3.5), "ax=3.5 must be axes"),  # type: ignore[arg-type]
    "no levels": (lambda: pf.audits.plot_feasible_region([]), "levels=.. must hold one level"),
    "an unseen outcome": (
        lambda: _kept("PSCF").to_inference_data(UNITS, UNITS["Y"].replace(1, 2), draws=2), "y holds 2, .* saw 0 and 1"
    ),
    "no nodes": (lambda: pf.inference.abduct(plain, UNITS, nodes=[], parameters={"b": 0.4}), "nodes=.. names no site"),
    "a complex value": (lambda: _set(A=1j), "site 'A' is 1j; it must be a number"),
    "a program that fails": (
        lambda: pf.inference.predictive(negative_scale, {"b": [1.0, -1.0]}, n=3),
        "fails when units are drawn from it for n=3"
    ),
    "infinite worlds": (
        lambda: pf.SEM(divides, THROUGH).worlds(5, random_state=0), "gives the node 'M' the value -?inf for 100%"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_faults_found_in_long_runs_stay_fixed(name: str) -> None:
    act, text = FOUND[name]
    with pytest.raises(pf.PyrofairError, match=text):
        act()


def test_faults_are_detected() -> None:
    """The harness itself: an inner error, a silent NaN, a hang and a message without the name."""

    def inner() -> None:
        np.linalg.inv(np.zeros((2, 3)))

    def endless() -> None:
        while True:
            math.sqrt(2.0)

    def unnamed() -> None:
        raise pf.DataError("Something is wrong somewhere in this call.")

    assert faults(Case("", inner)).startswith("raises LinAlgError") or "inner" in faults(Case("", inner))
    assert faults(Case("", lambda: math.nan)).startswith("not finite")
    assert "names none" in faults(Case("", unnamed, ("n_boot",)))
    assert faults(Case("", unnamed)) == ""
    with pytest.raises(Endless), limited(0.05):
        endless()


if __name__ == "__main__":
    print("\n".join(run(int(sys.argv[1]), int(sys.argv[2]))))
