"""Seeded malformed inputs: each gives a finite result or an error of the package that names the problem."""

from __future__ import annotations

import datetime
import decimal
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
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import pyrofair as pf

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
    "A",
    "B",
    "M",
    "Y",
    "Q",
    "->",
    "<-",
    "--",
    "{",
    "}",
    ";",
    ",",
    "\n",
    "'",
    '"',
    "A B",
    "->->",
    "→",
    "é",
    " ",
    "",
)
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


class Scores:
    """A model that says the same for equal rows."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X: pd.DataFrame) -> Any:
        """Return probabilities of both classes."""
        p = 1 / (1 + np.exp(-(X["A"].astype(float) + X["Q"].astype(float)).to_numpy()))
        return np.column_stack([1 - p, p])


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
OF_THE_TABLE = ("row", "column", "group", "data", "df", "X", "DataFrame", "weight", "index")


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
            lambda: pf.audit({"m": Scores()}, FITTED, table, n_boot=3, progress=False, random_state=0),
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
            lambda: pf.learn_laws(table, GRAPH, parameters="linear", steps=2, progress=False, random_state=0),
            names,
        )
    if kind == 5:
        return Case(f"encode, {what}", lambda: pf.TableEncoder().fit(features).transform(features), names)
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
        return Case(f"audit({value!r:.60})", lambda: pf.audit(value, FITTED, TABLE, **audit), ("model",))
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
        "audit": lambda: pf.audit({"m": Scores()}, FITTED, TABLE, sample_weight=weight, **audit),
        "fit": lambda: pf.IPW(UNFAIR).fit(TABLE, sample_weight=weight).worlds(),
        "worlds": lambda: FITTED.worlds(df=TABLE, sample_weight=weight),
        "classifier": lambda: pf.PenalizedClassifier("logistic", epochs=1, progress=False).fit(
            TABLE[list(FEATURES)], TABLE["Y"], sample_weight=weight
        ),
        "mechanisms": lambda: pf.learn_laws(
            TABLE, GRAPH, parameters="linear", steps=2, progress=False, sample_weight=weight
        ),
    }
    return Case(f"{call}(sample_weight={weight!r:.60})", calls[call], ("sample_weight", "weight"))


def _classifier(**settings: Any) -> Any:
    given = {"epochs": 1, "progress": False, "random_state": 0} | settings
    model = pf.PenalizedClassifier(given.pop("model", "logistic"), **given)
    return model.fit(TABLE[list(FEATURES)], TABLE["Y"]).predict_proba(TABLE[list(FEATURES)])


def _pscf(**settings: Any) -> Any:
    given = {"epochs": 1, "hidden": 4, "encoder_hidden": (4,), "progress": False, "random_state": 0} | settings
    return pf.PSCF(UNFAIR, **given).fit(TABLE[list(FEATURES)], TABLE["Y"])


def _mechanisms(**settings: Any) -> Any:
    return pf.learn_laws(
        TABLE, GRAPH, **{"parameters": "linear", "steps": 2, "progress": False, "random_state": 0} | settings
    )


def _g_computation(**settings: Any) -> Any:
    given = {
        "draws": 2,
        "parameters": "linear",
        "hidden": (4,),
        "components": 2,
        "progress": False,
        "random_state": 0,
    } | settings
    return pf.GComputation(UNFAIR, **given).fit(TABLE.drop(columns="Y").head(40))


def _path(**settings: Any) -> Any:
    model = pf.PenalizedClassifier("logistic", source=pf.IPW(UNFAIR), epochs=1, progress=False, random_state=0)
    given = {"strengths": [0.0], "progress": False} | settings
    return pf.penalty_path(model, TABLE[list(FEATURES)], TABLE["Y"], **given).table


def _audit(**settings: Any) -> Any:
    return pf.audit({"m": Scores()}, FITTED, TABLE, **{"n_boot": 2, "progress": False, "random_state": 0} | settings)


def _ipw(**settings: Any) -> Any:
    return pf.IPW(UNFAIR, **{"random_state": 0} | settings).fit(TABLE.drop(columns="Y")).worlds()


def _sem(**settings: Any) -> Any:
    return pf.SEM(pf.simulate.hiring, pf.simulate.scenario("hiring").unfair, **settings).nodes(5, random_state=0)


def _truth(**settings: Any) -> Any:
    hiring = pf.simulate.scenario("hiring")
    given = {"n": 10, "random_state": 0} | settings
    truth = pf.SEM(hiring.program, hiring.unfair).truth(Scores(), **given)
    return [truth.mean_unfair_effect.value, truth.piu.value]


def _numbers(**settings: Any) -> Any:
    return pf.test_set_bound(**{"errors": 1, "n": 10, "delta": 0.05} | settings)


def _region(**settings: Any) -> Any:
    return pf.feasible_interval(**{"p0": 0.3, "level": 0.2} | settings)


def _bounds(**settings: Any) -> Any:
    bounds = pf.piu_bounds(**{"p0": 0.3, "p1": 0.6} | settings)
    return [bounds.lower, bounds.upper]


SETTINGS: dict[Callable[..., Any], tuple[str, ...]] = {
    _ipw: ("arm", "propensity", "normalize", "clip", "trim", "max_unsupported", "random_state"),
    _audit: ("n_boot", "level", "threshold", "bootstrap", "n_jobs", "progress", "random_state"),
    _classifier: (
        "model", "source", "penalty", "strength", "columns", "encoder", "epochs", "batch_size", "optimizer",
        "learning_rate", "validation_fraction", "patience", "dtype", "device", "progress", "random_state",
    ),
    _path: ("strengths", "seeds", "test", "threshold", "progress", "resume"),
    _pscf: (
        "latents", "average", "samples", "mmd", "latent_size", "own_noise", "hidden", "encoder_hidden", "components",
        "families", "epochs", "batch_size", "learning_rate", "weight_decay", "progress", "random_state",
    ),
    _mechanisms: (
        "families", "parameters", "hidden", "components", "posterior", "posterior_draws", "given", "nodes", "steps",
        "batch_size", "learning_rate", "validation_fraction", "patience", "progress", "random_state",
    ),
    _g_computation: (
        "draws", "shared", "couple", "most_units", "families", "parameters", "hidden", "components", "propensity",
        "progress", "random_state",
    ),
    _sem: ("unit", "coupling", "posterior", "draws", "random_state", "levels"),
    _truth: ("n", "random_state", "decisions", "threshold"),
    _numbers: ("errors", "n", "delta"),
    _region: ("p0", "level"),
    _bounds: ("p0", "p1"),
}  # fmt: skip
LARGE = ("epochs", "samples", "hidden", "draws", "n_boot", "n", "seeds", "components", "steps", "latent_size", "n_jobs")


def settings(random: Random) -> Case:
    """One setting of a function or an estimator."""
    call = pick(random, list(SETTINGS))
    name, value = pick(random, SETTINGS[call]), odd(random)
    if name in LARGE and isinstance(value, int | float | np.number) and abs(value) > 1e6 and math.isfinite(value):
        value = -3  # a legal large number is work, not a malformed setting
    return Case(f"{call.__name__}({name}={value!r:.80})", lambda: call(**{name: value}), (name,))


# -- what comes of it -------------------------------------------------------------------------------------------------


def silent(result: Any) -> str:
    """Return what is not finite in a result without a word, or nothing."""
    if isinstance(result, pf.Audit):
        table = result.table
        bare = table["estimate"].isna() & (table["note"].fillna("") == "")
        return f"NaN without a note: {table[bare].iloc[0].to_dict()}" if bare.any() else ""
    if isinstance(result, pf.CounterfactualSample):
        return "" if np.isfinite(result.weight).all() else "weights that are not finite"
    if isinstance(result, tuple | list):
        return "".join(map(silent, result))
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
    last = Path(traceback.extract_tb(error.__traceback__)[-1].filename).resolve()
    if not isinstance(error, pf.PyrofairError) and not last.is_relative_to(PACKAGE):
        return f"an inner {type(error).__name__}: {error!s:.200} {_place(error)}"
    if len(str(error)) < 20:
        return f"a message that says nothing: {error!s}"
    if case.names and not any(name in str(error) for name in case.names):
        return f"a message that names none of {case.names}: {error!s:.200} {_place(error)}"
    return ""


def _leaks(warning: warnings.WarningMessage) -> bool:
    """Tell whether a warning of NumPy, torch or scikit-learn reaches the user in place of one of the package."""
    return not issubclass(warning.category, pf.PyrofairWarning) and not issubclass(
        warning.category, DeprecationWarning | FutureWarning | ResourceWarning
    )


KINDS = (graphs, path_sets, tables, models, settings)


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
def test_malformed_inputs_give_a_result_or_an_error_that_names_the_problem() -> None:
    found = run(500, seed=1)
    assert not found, "\n".join([f"{len(found)} kinds of faults", *found])


@pytest.mark.slow
@pytest.mark.filterwarnings("always")
def test_ten_thousand_malformed_inputs() -> None:
    found = run(10_000, seed=0)
    assert not found, "\n".join([f"{len(found)} kinds of faults", *found])


def test_faults_are_seen() -> None:
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
