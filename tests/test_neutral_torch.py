"""Results depend on what is passed, not on what the caller has set in torch, and leave that as it was."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import pyrofair as pf
from pyrofair._random import isolated, neutral_torch

pytestmark = pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PyrofairWarning")

GRAPH = pf.CausalGraph("Q -> M; A -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> M -> Y")


def program(n: int) -> None:
    b = pyro.sample("b", dist.Normal(0.0, 2.0))
    with pyro.plate("units", n):
        Q = pyro.sample("Q", dist.Normal(0.0, 1.0))
        A = pyro.sample("A", dist.Bernoulli(0.5))
        U = pyro.sample("U", dist.Normal(0.0, 1.0))
        M = pyro.deterministic("M", b * A + Q + U)
        pyro.sample("Y", dist.Bernoulli(logits=M + A))


@functools.cache
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    q, a = rng.normal(size=120), rng.integers(0, 2, 120)
    m = a + q + rng.normal(size=120)
    return pd.DataFrame({"Q": q, "A": a, "M": m, "Y": (m + a + rng.logistic(size=120) > 0.5).astype(int)})


def rows() -> pd.DataFrame:
    return table().drop(columns="Y")


FITTED: dict[str, Any] = {}


def fitted(name: str, make: Callable[[], Any]) -> Any:
    if name not in FITTED:
        FITTED[name] = make()
    return FITTED[name]


def signs() -> pd.DataFrame:
    """The same units, their numbers coded as above 0 or not: distributions of zeros and ones are quickly learned."""
    return (rows() > 0).astype(int)


def mechanisms() -> Any:
    return pf.learn_mechanisms(signs(), GRAPH, nodes=["Q", "A", "M"], steps=60, batch_size=32, hidden=(4,),
                         progress=False, random_state=0)  # fmt: skip


def posterior(method: str = "svi") -> Any:
    settings: dict[str, Any] = {"steps": 60} if method == "svi" else {"draws": 6, "warmup": 6, "chains": 1}
    return pf.fit_posterior(
        program,
        table()[:40],
        GRAPH,
        method=method,
        progress=False,
        random_state=0,
        **settings,  # type: ignore[arg-type]
    )


def penalised(source: Any = None) -> pf.PenalizedClassifier:
    classifier = pf.PenalizedClassifier(source=source, epochs=2, batch_size=60, random_state=0)
    return classifier.fit(rows(), table()["Y"])


def pscf() -> pf.PSCF:
    return pf.PSCF(UNFAIR, epochs=2, hidden=4, random_state=0).fit(rows(), table()["Y"])


def gcomputation() -> pf.GComputation:
    source = pf.GComputation(UNFAIR, parameters="linear", draws=3, most_units=40, random_state=0, progress=False)
    return source.fit(signs())


def logistic() -> Any:
    return LogisticRegression().fit(rows(), table()["Y"])


B = {"b": np.array([0.5, 1.0])}
ENTRY_POINTS: dict[str, Callable[[], Any]] = {
    "PenalizedClassifier.fit": lambda: penalised(pf.IPW(UNFAIR)).predict_proba(rows()),
    "PenalizedClassifier.predict": lambda: fitted("plain", penalised).predict_proba(rows()),
    "PSCF.fit": lambda: [*(found := pscf()).history_["loss"].to_numpy().tolist(), found.elbo_],
    "PSCF.predict": lambda: fitted("pscf", pscf).predict_proba(rows()),
    "PSCF.fair_values": lambda: fitted("pscf", pscf).fair_values(rows()),
    "PSCF.truth": lambda: fitted("pscf", pscf).truth(pf.SEM(program, UNFAIR, posterior=B), n=50, random_state=0).piu,
    "learn_mechanisms": lambda: mechanisms().fits["M"].centre,
    "LearnedMechanisms.refit": lambda: fitted("mechanisms", mechanisms).refit(random_state=0, steps=3).fits["M"].centre,
    "LearnedMechanisms.distribution": lambda: fitted("mechanisms", mechanisms).distribution("M", signs()),
    "LearnedMechanisms.calibration": lambda: fitted("mechanisms", mechanisms).calibration(),
    "LearnedMechanisms.sem": lambda: pf.SEM.from_mechanisms(
        fitted("mechanisms", mechanisms), UNFAIR, unit="shared", draws=3
    ).worlds(20, random_state=0),
    "fit_posterior by SVI": lambda: posterior().samples,
    "fit_posterior by NUTS": lambda: posterior("nuts").samples,
    "CausalGraph.from_pyro": lambda: pf.CausalGraph.from_pyro(program, nodes=["Q", "A", "M", "Y"], sensitive="A",
                                                              outcome="Y").edges,
    "SEM.nodes": lambda: pf.SEM(program, UNFAIR, posterior=B).nodes(30, random_state=0),
    "SEM.worlds": lambda: pf.SEM(program, UNFAIR, posterior=B, unit="shared", draws=3).worlds(9, random_state=0),
    "SEM.counterfactual": lambda: pf.SEM(program, UNFAIR, posterior=B).counterfactual(rows(), random_state=0).switched,
    "SEM.truth": lambda: pf.SEM(program, UNFAIR, posterior=B).truth(fitted("logistic", logistic), 99, 0).table,
    "abduct": lambda: pf.inference.abduct(
        program, rows()[:5], parameters={"b": 1.0}, random_state=0).noise,
    "abduct by importance": lambda: pf.inference.abduct(
        program, rows()[:5], parameters={"b": 1.0}, method="importance",
                                              tolerance=0.5, draws=20, random_state=0).noise,
    "abduct by SVI": lambda: pf.inference.abduct(
        program, rows()[:5], parameters={"b": 1.0}, method="svi", tolerance=0.5,
                                       draws=20, random_state=0).noise,
    "predictive": lambda: pf.inference.predictive(program, B, n=20, do={"A": 1}, random_state=0),
    "effect_posterior": lambda: pf.effect_posterior(program, UNFAIR, fitted("logistic", logistic), B, n=99,
                                                    progress=False, random_state=0).samples,
    "GComputation": lambda: gcomputation().worlds(random_state=0),
    "audit, IPW": lambda: pf.audit({"m": fitted("logistic", logistic)}, pf.IPW(UNFAIR), table(), n_boot=2,
                                   progress=False, random_state=0).table,
    "audit, GComputation": lambda: pf.audit({"m": fitted("logistic", logistic)}, fitted("g", gcomputation), signs(),
                                            n_boot=1, progress=False, random_state=0).table,
    "audit, classifier": lambda: pf.audit({"m": fitted("plain", penalised)}, pf.IPW(UNFAIR), table(), n_boot=0).table,
    "penalty_path": lambda: pf.penalty_path(
        pf.PenalizedClassifier("logistic", source=pf.IPW(UNFAIR), epochs=2, batch_size=60),
        rows(), table()["Y"], strengths=[0.0, 1.0], n_boot=2, progress=False, judge=pf.IPW(UNFAIR),
    ).intervals,
    "simulate.scenario": lambda: pf.simulate.scenario("hiring").draw(50, random_state=0),
}  # fmt: skip


@contextmanager
def set_to(get: Callable[[], Any], put: Callable[[Any], None], value: Any) -> Iterator[None]:
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


STATES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "float64": lambda: set_to(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "bfloat16": lambda: set_to(torch.get_default_dtype, torch.set_default_dtype, torch.bfloat16),
    "device": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "deterministic": lambda: set_to(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "threads": lambda: set_to(torch.get_num_threads, torch.set_num_threads, 3),
}


@contextmanager
def everything() -> Iterator[None]:
    with ExitStack() as stack:
        for name in ("inference_mode", "float64", "device", "autocast", "deterministic", "threads"):
            stack.enter_context(STATES[name]())
        yield


SLOW = ("abduct by SVI", "GComputation", "audit, GComputation")
"""They are tried in all states at once only, and not in each run of the tests."""


def ambient() -> tuple[Any, ...]:
    """What torch is set to, here and now."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.empty(0).device,
        torch.is_autocast_enabled("cpu"),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_num_threads(),
    )


def flat(found: Any) -> list[Any]:
    """Return all numbers and labels in a result, in order."""
    if isinstance(found, dict):
        return [part for name, value in found.items() for part in (name, *flat(value))]
    if isinstance(found, list | tuple):
        return [part for value in found for part in flat(value)]
    if isinstance(found, pf.effects.CounterfactualSample):
        return flat([found.rows, found.weight])
    if isinstance(found, pf.effects.Estimate):
        return [found.value, found.error]
    if isinstance(found, pd.DataFrame):
        return flat([found[name].to_numpy() for name in found])
    if isinstance(found, dist.Distribution):
        return flat(found.log_prob(torch.zeros(120)))
    if isinstance(found, torch.Tensor):
        assert not found.is_inference()
        return [str(found.dtype), *found.detach().numpy().ravel().tolist()]
    return [str(found.dtype), *found.ravel().tolist()] if isinstance(found, np.ndarray) else [found]


@functools.cache
def expected(name: str) -> list[Any]:
    return flat(ENTRY_POINTS[name]())


def require_same(name: str, state: Callable[[], AbstractContextManager[Any]]) -> None:
    wanted = expected(name)
    with state():
        before = ambient()
        found = ENTRY_POINTS[name]()
        assert ambient() == before
    pd.testing.assert_series_equal(pd.Series(flat(found)), pd.Series(wanted), check_exact=True)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", [name for name in ENTRY_POINTS if name not in SLOW])
@pytest.mark.some(40)
def test_what_the_caller_set_in_torch_changes_no_number(name: str, state: str) -> None:
    require_same(name, STATES[state])


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in ENTRY_POINTS]
)
@pytest.mark.some(6)
def test_all_that_the_caller_set_changes_no_number(name: str) -> None:
    require_same(name, everything)


@pytest.mark.parametrize(
    "call",
    [
        lambda: penalised("no source"),
        lambda: pf.learn_mechanisms(signs().iloc[:3], GRAPH),
        lambda: pf.fit_posterior(program, pd.DataFrame({"A": [0, 1]}), GRAPH),
        lambda: pf.SEM(lambda n: None, UNFAIR).nodes(5),
        lambda: fitted("plain", penalised).predict(rows().drop(columns="M")),
        lambda: fitted("pscf", pscf).predict_proba(rows().drop(columns="M")),
    ],
)
def test_an_error_leaves_the_callers_settings(call: Callable[[], Any]) -> None:
    with everything():
        before = ambient()
        with pytest.raises(ValueError):  # noqa: PT011 - any error will do
            call()
        assert ambient() == before


def test_inside_nothing_is_as_outside() -> None:
    with everything(), neutral_torch():
        assert ambient() == (True, False, torch.float32, torch.device("cpu"), False, True, 1)
        assert not torch.ones(2, requires_grad=True).sum().is_inference()


def test_an_inner_block_keeps_what_the_outer_one_has_set() -> None:
    """Abduction computes in float64, without gradients, and what it calls must not put that back."""
    with neutral_torch(), STATES["float64"](), torch.no_grad(), isolated(0):
        assert torch.get_default_dtype() == torch.float64
        assert not torch.is_grad_enabled()


def test_the_default_type_is_put_back_by_the_last_thread() -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with neutral_torch():
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with STATES["float64"]():
        with neutral_torch():
            thread.start()
            assert entered.wait(60)
        assert torch.get_default_dtype() == torch.float32
        leave.set()
        thread.join()
        assert torch.get_default_dtype() == torch.float64
