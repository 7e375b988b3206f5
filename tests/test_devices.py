"""Training on another device: refusals before any work, seeds, stacks, and runs on a device that is pretended."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pretend
import pytest
import torch
from torch import nn

import pyrofair as pf
from pyrofair import DataError, _devices, learn_mechanisms
from pyrofair.classifiers import training
from pyrofair.classifiers.batches import Problem

GRAPH = pf.CausalGraph("{A Q} -> D; {A Q D} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> D -> Y")


def table(n: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    a, q = rng.integers(0, 2, n), rng.integers(0, 3, n)
    d = a + q + rng.normal(size=n)
    return pd.DataFrame({"A": a, "Q": q, "D": d, "Y": (d + a + q + rng.normal(size=n) > 2.5).astype(int)})


def pscf(device: Any, **settings: Any) -> dict[str, torch.Tensor]:
    df = table()
    made = pf.PSCF(UNFAIR, epochs=1, hidden=5, progress=False, random_state=0, device=device, **settings)
    made.fit(df[["A", "Q", "D"]], df["Y"])
    assert np.isfinite(made.predict_proba(df[["A", "Q", "D"]])).all()
    return dict(made.sem_.state_dict()) | {
        "elbo": torch.tensor(made.elbo_),
        "loss": torch.tensor(made.history_["loss"]),
    }


def mechanisms(device: Any, **settings: Any) -> dict[str, torch.Tensor]:
    df = table().drop(columns="Y")
    how: dict[str, Any] = {"hidden": (4,), "components": 2, "steps": 51, "progress": False, "random_state": 0}
    learned = learn_mechanisms(df, GRAPH, nodes=["D", "Q"], device=device, **{**how, **settings})
    weights = np.random.default_rng(0).exponential(size=(2, len(df)))
    other = [learned.refit(weights[0], 0), learned.refit(weights[1], 0, converge=False)]
    assert np.isfinite(float(other[1].distribution("D", df).mean.sum()))
    return {f"{i} {k}": torch.tensor(v) for i, each in enumerate([learned, *other]) for k, v in each.posterior.items()}


def penalized(device: Any, **settings: Any) -> dict[str, torch.Tensor]:
    df = table()
    how: dict[str, Any] = {"epochs": 3, "batch_size": 100, "progress": False, "random_state": 0, "device": device}
    made = pf.PenalizedClassifier(source=pf.IPW(UNFAIR), **how, **settings).fit(df[["A", "Q", "D"]], df["Y"])
    assert np.isfinite(made.predict_proba(df[["A", "Q", "D"]])).all()
    return {name: each.to("cpu") for name, each in made.module_.state_dict().items()}


RUNS = [
    (pscf, {}),
    (pscf, {"mmd": 1.0}),
    (mechanisms, {}),
    (mechanisms, {"posterior": "normal", "posterior_draws": 3}),
    (mechanisms, {"parameters": "linear", "components": 1}),
    (penalized, {"starts": 1}),
    (penalized, {"starts": 2, "penalty": "piu_upper"}),
]


@pytest.mark.filterwarnings("ignore::pyrofair.PyrofairWarning")
@pytest.mark.parametrize(("run", "settings"), RUNS)
def test_a_pretended_device_finds_what_the_cpu_does(run: Any, settings: dict[str, Any]) -> None:
    """No operation mixes devices, no step waits for the device, and all numbers are those of the CPU."""
    expected = run("cpu", **settings)
    with pretend.pretended() as pretence:
        found = run(pretend.DEVICE, **settings)
        assert not any(pretence.has(each) for each in found.values())
    assert len(pretence.held) > 50, "hardly anything was done on the device"
    assert not pretence.mixed, sorted(set(pretence.mixed))
    assert not pretence.reads, sorted(set(pretence.reads))
    for name, each in expected.items():
        torch.testing.assert_close(found[name], each, rtol=1e-5, atol=1e-6, msg=name)


def test_the_pretence_reports_what_a_device_refuses() -> None:
    with pretend.pretended() as pretence:
        there, here = torch.ones(2, device=pretend.DEVICE), torch.ones(2)
        with torch.device(pretend.DEVICE):
            assert (torch.zeros(2) + there).device == pretend.DEVICE
        assert not pretence.mixed
        assert (there[1:].detach().to("cpu") + here[:1]).device.type == "cpu"
        assert not pretence.mixed
        there + here
        assert len(pretence.mixed) == 1
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()

        def descend() -> None:
            float(there.sum())

        exec(compile("def descend(read): read()", "/pyrofair/samplers.py", "exec"), space := {})
        space["descend"](descend)
        assert len(pretence.reads) == 1


ASKED = {
    "PSCF": lambda device: pscf(device),
    "GComputation": lambda device: pf.GComputation(UNFAIR, device=device).fit(table()),
    "learn_mechanisms": lambda device: mechanisms(device),
    "PenalizedClassifier": lambda device: penalized(device, dtype="float64"),
}


@pytest.mark.parametrize("name", ASKED)
def test_devices_are_refused_by_name_before_any_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for device, why in (("abacus", "is not available"), ("meta", "holds no numbers"), (3, "such as 'cpu'")):
        with pytest.raises(DataError, match=f"device={device!r}.* {why}"):
            ASKED[name](device)
    empty = torch.empty

    def with_mps(*size: Any, **how: Any) -> Any:
        there = how.get("device") == "mps"
        return SimpleNamespace(device=torch.device("mps")) if there else empty(*size, **how)

    monkeypatch.setattr(_devices.torch, "empty", with_mps)
    with pytest.raises(DataError, match=r"device='mps' .*float64"):
        ASKED[name]("mps")


def test_the_generator_of_the_device_is_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """``torch.cuda.manual_seed`` seeds the present device, which is the first unless another one is chosen."""
    present, seeds, forked = [0], {}, []

    @contextmanager
    def chosen(device: torch.device) -> Any:
        before, present[0] = present[0], device.index
        yield
        present[0] = before

    fork = torch.random.fork_rng
    monkeypatch.setattr(torch.cuda, "device", chosen)
    monkeypatch.setattr(torch.cuda, "manual_seed", lambda seed: seeds.update({present[0]: seed}))
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: forked.append(devices) or fork(devices=[]))
    with _devices.seeded(7, "cuda:1"):
        assert seeds == {1: 7}
        one = torch.rand(1)
    assert forked == [[torch.device("cuda:1")]]
    with _devices.seeded(7, "cpu"):
        assert torch.rand(1) == one


def test_a_stack_on_a_gpu_is_as_large_as_its_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.zeros(10_000, 20)
    problem = Problem(rows, torch.zeros(10_000), torch.ones(10_000))
    schedule = training.Schedule(1, 500, training.make_optimizer("adam", None), None, 0)
    fit = training.Fit(nn.Linear(20, 1), problem, None, 0.0, schedule)
    assert fit.most_stacked == training.IN_CACHE // (500 * 21)
    monkeypatch.setattr(training, "free_memory", lambda device: 80_000_000_000)
    assert fit.most_stacked * 10_000 * 21 * 4 * training.COPIES <= 40_000_000_000
    assert fit.most_stacked > 1_000
