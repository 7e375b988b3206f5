"""Each benchmark runs to its end on little data and prints numbers, and no flow makes many more calls than it did."""

from __future__ import annotations

import re
import runpy
import sys
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import flows
import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch

import pyrofair as pf
from pyrofair.mechanisms.fitting import Settings
from pyrofair.simulate import Scenario

HERE = Path(__file__).parent
PARTS = {"strengths", "golden_entries", "conftest"}
"""Modules that others import, which run nothing themselves."""
ROWS = 300
TINY: dict[str, list[str]] = {
    "clusters": ["--samples 1 --designs 300", "--samples 1 --designs 60 --source IPW --replicates 2"],
    "counterfactual_worlds": ["--units 1000 --repetitions 1 --given 5"],
    "coverage": [
        "run --replications 1 --sizes 200 --designs categories --sources OneStep --out {out}",
        "table --replications 1 --sizes 200 --out {out}",
    ],
    "decomposition": ["--samples 2 --rows 500 --designs interaction --units 20000 --levels 2"],
    "flows": ["--only SEM"],
    "given_shared_real": ["german --seeds 1 --strengths 1 --out {out}"],
    "golden": [*(f"run {{out}}/{each} --only ^(identif|bounding)" for each in "ab"), "compare {out}/a {out}/b"],
    "hiring_frontier": ["--seeds 1 --only Remove IPW --out {out}"],
    "large_tables": ["--tiny"],
    "levels_coverage": ["--samples 1 --rows 800", "--samples 2 --formula"],
    "missing_values": ["saturated_direct boosted_through --samples 2 --rows 300 --units 1000"],
    "learning_speed": ["--tasks boosted audit --data hiring --seeds 1 --replicates 1"],
    "one_step_adult": ["time ratios groups million --further 1 --replicates 2 --splits 1 --repetitions 1 --rows 500"],
    "one_step_diagnostics": ["--samples 1 --forms auto graph --only german --out {out}"],
    "penalised_epoch": ["--repetitions 1 --epochs 1 --data hiring"],
    "penalty_paths": ["--seeds 2 --compared 1 --n_jobs 1"],
    "proxies": ["--samples 1 --n 800"],
    "pscf": ["--seeds 1 --units 200 --scenario hiring --epochs 2"],
    "pscf_adult": ["bars speed --seeds 1 --repetitions 1 --epochs 1 --batch-size 100"],
    "published": ["--made-up 300"],
    "scenario_facts": ["--units 2000"],
}


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a benchmark asks for, it gets few rows, and training ends after a few epochs."""
    drawn, true = Scenario.draw, pf.SEM.truth
    monkeypatch.setattr(Scenario, "draw", lambda self, n, **given: drawn(self, min(n, ROWS), **given))
    monkeypatch.setattr(pf.SEM, "truth", lambda self, *args, n=0, **given: true(self, *args, n=1000, **given))
    monkeypatch.setitem(pf.OneStep.__init__.__kwdefaults__, "form", "prefix")  # which warns where others refuse
    monkeypatch.setattr("pyrofair.mechanisms.learn.Settings", few_steps)
    for name, n in (("adult", 600), ("german", 400)):
        found = few_rows(getattr(pf.datasets, f"load_{name}")(), n)
        for module in (pf.datasets, pf.datasets.uci):
            monkeypatch.setattr(module, f"load_{name}", lambda found=found: found)
    monkeypatch.setattr("pyrofair.classifiers.training.Schedule.length", lambda schedule, rows: 2)
    for name, value in {"SMALL": 0, "FEWEST_TREES": 3, "MOST_TREES": 3}.items():
        monkeypatch.setattr(f"pyrofair.nuisances.learners.{name}", value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    plt.close("all")


def few_steps(posterior: Any, draws: int, steps: int, *rest: Any, **more: Any) -> Settings:
    return Settings(posterior, draws, min(steps, 50), *rest, **more)


def few_rows(data: Any, n: int) -> Any:
    """Return a data set of n rows to train on and as many others, without rare levels, so that its groups overlap."""
    df = data.frame
    for column in df.columns.drop([data.graph.sensitive_column, data.graph.outcome_column]):
        if isinstance(df[column].dtype, pd.CategoricalDtype):
            df = df[df[column].map(df[column].value_counts(normalize=True)).astype(float) > 0.1]
    df = df.sample(min(2 * n, len(df)), random_state=0)
    used = {each: df[each].cat.remove_unused_categories() for each in df.select_dtypes("category")}
    return replace(data, frame=df.assign(**used), n_train=n)


def test_no_benchmark_is_forgotten() -> None:
    scripts = {path.stem for path in HERE.glob("*.py") if not path.stem.startswith("test_")}
    assert scripts - PARTS == set(TINY)


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("name", TINY)
def test_a_tiny_run_prints_numbers(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in TINY[name]:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments.format(out=tmp_path).split()])
        ends = pytest.raises(SystemExit) if name == "golden" else nullcontext()
        with torch.random.fork_rng(), ends as ended:
            runpy.run_path(str(HERE / f"{name}.py"), run_name="__main__")
        assert ended is None or not ended.value.code
    printed = capsys.readouterr().out
    assert re.search(r"\d", printed), printed
    assert "Traceback" not in printed
    assert ", 0 differ" in printed or name != "golden"


@pytest.mark.parametrize("name", flows.FLOWS)
def test_a_flow_makes_no_more_calls_than_it_did(name: str) -> None:
    """Half as many again are allowed: other versions of libraries make a few more, a loop done twice makes twice."""
    found, kept = flows.cost(name), flows.KEPT[name]
    assert found.calls <= 1.5 * kept.calls, f"{found} where {kept} were kept"
    assert found.all <= 1.5 * kept.all, f"{found} where {kept} were kept"
