"""Studies: numbers that depend on the cell alone, finished cells that stay, errors that are recorded, workers lost."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

import pyrofair as pf
from pyrofair._cells import Cell, CellFolder
from pyrofair.exceptions import DataError, GraphError, PyrofairWarning
from pyrofair.simulate import METHODS, Scenario, Study, method, scenario, study
from pyrofair.simulate.cells import Plan, Seeds, Task, run

QUICK: dict[str, Any] = {"truth_size": 1_000, "test_size": 500, "progress": False}
MODULE = sys.modules["pyrofair.simulate.study"]
CELL = ["scenario", "method", "strength", "n", "seed"]


def logistic(train: pd.DataFrame, given: Scenario, seed: int) -> LogisticRegression:
    return LogisticRegression(max_iter=1000).fit(train[given.graph.input_columns], train["Y"])


def noisy(train: pd.DataFrame, given: Scenario, seed: int) -> LogisticRegression:
    """Depend on the seed, and on all global generators."""
    rng = np.random.default_rng(seed)
    shift = rng.normal() + np.random.normal() + float(torch.randn(()))  # noqa: NPY002 - as a user's function may
    return logistic(train.assign(Q=train["Q"] + shift), given, seed)


def failing(train: pd.DataFrame, given: Scenario, seed: int) -> Any:
    if train["A"].sum() % 2:
        raise RuntimeError("an odd number of units")
    return logistic(train, given, seed)


def numbers(found: Study) -> pd.DataFrame:
    return found.table.drop(columns="seconds")


def same(one: Study, other: Study) -> None:
    by = [name for name in CELL if name != "strength"]
    left, right = (numbers(each).sort_values([*by, "strength"], ignore_index=True) for each in (one, other))
    pd.testing.assert_frame_equal(left, right, check_exact=True)


# -- what is measured -------------------------------------------------------------------------------------------------


def test_a_cell_is_what_its_parts_give_by_hand() -> None:
    kept: list[Any] = []

    def keeping(train: pd.DataFrame, given: Scenario, seed: int) -> Any:
        kept.append(logistic(train, given, seed))
        return kept[-1]

    found = study("hiring", {"m": keeping}, 300, [7], decisions="score", score_noise="own", **QUICK).table
    assert len(found) == 1
    row, hiring, seeds = found.iloc[0], scenario("hiring"), Seeds.of("hiring", 300, 7)
    model = logistic(hiring.draw(300, seeds.train), hiring, 0)
    np.testing.assert_array_equal(model.coef_, kept[0].coef_)
    test = hiring.draw(500, seeds.test)
    p = model.predict_proba(test[["A", "Q", "D", "M"]])[:, 1]
    right = np.where(test["Y"] == 1, p, 1 - p)
    assert row["accuracy"] == pytest.approx(right.mean())
    assert row["accuracy_error"] == pytest.approx(right.std() / np.sqrt(500))
    assert row["positive_rate"] == pytest.approx(p.mean())
    assert row["majority_rate"] == max(test["Y"].mean(), 1 - test["Y"].mean())
    truth = pf.SEM(hiring.program, hiring.unfair).truth(
        model, n=1_000, random_state=seeds.truth, decisions="score", score_noise="own"
    )
    for name in ("mean_unfair_effect", "piu", "conditional_sd"):
        assert row[name] == getattr(truth, name).value
        assert row[f"{name}_error"] == getattr(truth, name).error


def test_all_methods_have_the_same_rows_and_seeds_differ() -> None:
    hashes: dict[str, list[str]] = {"a": [], "b": []}

    def keep(name: str, train: pd.DataFrame, given: Scenario, seed: int) -> Any:
        hashes[name].append(joblib.hash(train))
        train["A"] = 0  # what a method does to its rows stays with it
        return DummyClassifier().fit(train[given.graph.input_columns], train["Y"])

    study(["hiring", "additive"], {name: partial(keep, name) for name in hashes}, [100, 200], 3, **QUICK)
    assert hashes["a"] == hashes["b"]
    assert len(set(hashes["a"])) == 12


def no_overlap(given: Scenario) -> Any:
    raise pf.PositivityError("no overlap")


def test_audits_and_measures_are_columns() -> None:
    def share(model: Any, test: pd.DataFrame, given: Scenario) -> float:
        return float(test["A"].mean())

    how = {"audit": lambda given: pf.IPW(given.unfair, propensity="logistic"), **QUICK}
    how["measures"] = {"share": share, "value": lambda *_: 1.0, "mean": lambda *_: 2.0}  # of any name
    found = study("additive", {"m": logistic}, 400, 2, **how)
    assert found.table["share"].between(0.4, 0.8).all()
    means = found.summary().set_index("quantity")["mean"]
    assert (means["value"], means["mean"]) == (1.0, 2.0)
    assert {"share", "estimated_piu_upper", "accuracy"} <= set(found.quantities)
    assert not {"estimated_piu_upper_low", "accuracy_error", "seconds", "seed"} & set(found.quantities)
    refused = study("hiring", {"m": logistic}, 200, 1, audit=no_overlap, **QUICK)
    assert refused.table["estimated_piu_upper"].isna().all()
    assert refused.table["piu"].notna().all()
    assert refused.warnings["warning"].tolist() == ["audit: PositivityError: no overlap"]
    row, given, seeds = found.table.iloc[1], scenario("additive"), Seeds.of("additive", 400, 1)
    train = given.draw(400, seeds.train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PyrofairWarning)
        source = pf.IPW(given.unfair, propensity="logistic")
        report = pf.audit({"m": logistic(train, given, 0)}, source, given.draw(500, seeds.test), n_boot=0)
    table = report.table[report.table["decisions"] == "threshold"].set_index("quantity")
    assert row["estimated_piu_upper"] == pytest.approx(table["estimate"]["piu_upper"])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.some(4)
def test_each_named_method_gives_a_model_or_its_reason_on_each_scenario(name: str) -> None:
    quick: dict[str, Any] = {"epochs": 2}
    if "(given S)" in name:
        quick |= {"source__draws": 5, "source__parameters": "linear"}
    found = study(["hiring", "latent"], method(name, **quick), 200, 1, **QUICK)
    assert found.unfinished == 0
    errors = dict(zip(found.failures["scenario"], found.failures["error"], strict=True))
    if name == "Remove (descendants)":
        assert errors.keys() == {"latent"}
        assert errors["latent"].startswith("GraphError: Nothing is left to predict from")
    else:
        assert errors == {}
    assert found.table[["accuracy", "piu", "conditional_sd"]].notna().all(axis=None)
    if name.startswith("Remove"):
        assert (found.table["piu"] == 0).all()


def test_strengths_are_tried_of_methods_that_have_one() -> None:
    def priced(train: pd.DataFrame, given: Scenario, seed: int, strength: float = 1.0) -> Any:
        return LogisticRegression(C=1 / (1 + strength), max_iter=1000).fit(train[given.graph.input_columns], train["Y"])

    hiring = scenario("hiring")
    given = pf.PenalizedClassifier("logistic", source=pf.IPW(hiring.unfair), epochs=2)
    ways = {"named": method("FIO", model="logistic", epochs=2), "given": given, "priced": priced, "none": logistic}
    alone = study("hiring", ["Remove (touched)", LogisticRegression(), logistic, ways["named"]], 100, 1, **QUICK)
    assert alone.table["method"].tolist() == ["Remove (touched)", "LogisticRegression", "logistic", "FIO"]
    found = study("hiring", ways, 200, 2, strengths=[0.0, 2.0], **QUICK)
    assert found.table.groupby("method", sort=False)["strength"].agg(lambda x: sorted(set(x.dropna()))).to_dict() == {
        "named": [0.0, 2.0], "given": [0.0, 2.0], "priced": [0.0, 2.0], "none": [],
    }  # fmt: skip
    assert len(found.table) == 14
    grid = found.to_xarray()
    assert dict(grid.sizes) == {"scenario": 1, "method": 4, "strength": 2, "n": 1, "seed": 2}
    plain = grid["accuracy"].sel({"method": "none"}).to_numpy()
    assert np.isfinite(grid["accuracy"]).all()
    np.testing.assert_array_equal(plain[:, 0], plain[:, 1])
    assert "strength" in str(found)


def test_a_program_of_the_users_with_numbers_of_any_name() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            Q = pyro.sample("Q", dist.Normal(0.0, 1.0))
            U = pyro.sample("U", dist.Normal(0.0, 1.0))
            M = pyro.deterministic("M", A + Q + U)
            pyro.sample("Y", dist.Bernoulli(logits=M - Q))

    unfair = pf.CausalGraph("{A Q} -> M; {Q M} -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")
    drawn = Scenario("own", program, unfair.graph, unfair).draw(50, random_state=0)
    assert drawn["Q"].std() > 0.5
    assert (drawn["Q"] % 1 != 0).any()
    assert drawn.dtypes[["A", "Y"]].tolist() == [np.dtype(np.int64)] * 2
    found = study({"own": (program, unfair)}, {"m": logistic}, 300, 2, **QUICK)
    assert found.table["scenario"].tolist() == ["own", "own"]
    assert (found.table["piu"] > 0).all()


# -- numbers depend on the cell alone ---------------------------------------------------------------------------------


def test_numbers_depend_on_neither_order_nor_company_nor_state_nor_workers() -> None:
    ways = {"noisy": noisy, "logistic": LogisticRegression(max_iter=1000), "failing": failing}
    whole = study(["hiring", "additive"], ways, [100, 150], 4, **QUICK)
    before = torch.initial_seed(), np.random.get_state()[2]  # noqa: NPY002
    torch.set_default_dtype(torch.float64)
    try:
        backward = {name: ways[name] for name in reversed(ways)}
        again = study(["additive", "hiring"], backward, [150, 100], [3, 1, 0, 2], **QUICK)
    finally:
        torch.set_default_dtype(torch.float32)
    same(whole, again)
    assert (torch.initial_seed(), np.random.get_state()[2]) == before  # noqa: NPY002
    part = numbers(study("hiring", {"noisy": noisy}, 150, [2], **QUICK))
    row = whole.table.query("scenario == 'hiring' and method == 'noisy' and n == 150 and seed == 2")
    pd.testing.assert_frame_equal(part, row.drop(columns="seconds").reset_index(drop=True), check_exact=True)


def test_what_a_method_computes_by_joblib_stays_in_its_process() -> None:
    seen: list[str] = []

    def nested(train: pd.DataFrame, given: Scenario, seed: int) -> Any:
        seen.append(type(joblib.parallel.get_active_backend()[0]).__name__)
        return logistic(train, given, seed)

    how: dict[str, Any] = {"sizes": 100, "seeds": 6, **QUICK}
    one = study("hiring", {"m": nested}, **how)
    with joblib.parallel_config("threading", n_jobs=2):
        two = study("hiring", {"m": nested}, **how)
        assert type(joblib.parallel.get_active_backend()[0]).__name__ == "ThreadingBackend"
    assert seen == ["SequentialBackend"] * 12
    same(one, two)


# -- finished cells stay ----------------------------------------------------------------------------------------------


def test_finished_cells_are_read_and_others_added(tmp_path: Path) -> None:
    def first(train: pd.DataFrame, given: Scenario, seed: int) -> Any:
        (tmp_path / "calls").open("a").write(f"{len(train)} ")
        return logistic(train, given, seed)

    def calls() -> list[str]:
        return (tmp_path / "calls").read_text().split()

    folder = tmp_path / "study"
    study("hiring", {"m": first}, [100], 2, folder=folder, **QUICK)
    assert calls() == ["100"] * 2
    more = study("hiring", {"m": first}, [100, 120], 3, folder=folder, **QUICK)
    assert calls() == ["100"] * 3 + ["120"] * 3
    study(["hiring", "additive"], {"m": first, "other": logistic}, [100, 120], 3, folder=folder, **QUICK)
    assert len(calls()) == 12
    same(more, study("hiring", {"m": first}, [100, 120], 3, **QUICK))
    files = list((folder / "cells").iterdir())
    assert len(files) == 24
    files[0].write_bytes(files[0].read_bytes()[:100])
    with pytest.warns(PyrofairWarning, match="is damaged and is not used"):
        found = study(["hiring", "additive"], {"m": first, "other": logistic}, [100, 120], 3, folder=folder, **QUICK)
    assert len(found.table) == 24
    assert found.unfinished == 0


def test_errors_are_recorded_and_tried_again_or_kept(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.touch()

    def fragile(train: pd.DataFrame, given: Scenario, seed: int) -> Any:
        if broken.exists():
            raise RuntimeError("broken\nhere")
        return logistic(train, given, seed)

    ways = {"fragile": fragile, "sound": logistic}
    how: dict[str, Any] = {"folder": tmp_path / "study", **QUICK}
    found = study("hiring", ways, 100, 2, **how)
    assert found.table["method"].tolist() == ["sound"] * 2
    assert found.failures[CELL[:2]].to_numpy().tolist() == [["hiring", "fragile"]] * 2
    assert found.failures["error"].tolist() == ["RuntimeError: broken here"] * 2
    assert "in fragile" in found.failures["traceback"][0]
    assert "2 of hiring, fragile: RuntimeError: broken here" in str(found)
    broken.unlink()
    assert len(study("hiring", ways, 100, 2, retry=False, **how).failures) == 2
    again = study("hiring", ways, 100, 2, **how)
    assert again.failures.empty
    assert len(again.table) == 4


def test_another_study_or_a_changed_method_is_refused_before_any_work(tmp_path: Path) -> None:
    def made(shift: float) -> Callable[..., Any]:
        return lambda train, given, seed: logistic(train.assign(A=train["A"] + shift), given, seed)

    def never(train: pd.DataFrame, given: Scenario, seed: int) -> Any:
        raise AssertionError("work was done")

    how: dict[str, Any] = {"folder": tmp_path, **QUICK}
    study("hiring", {"m": made(0.0)}, 100, 2, **how)
    with pytest.raises(DataError, match=r"study.truth_size is 1000 there and 900 here"):
        study("hiring", {"never": never}, 100, 2, **{**how, "truth_size": 900})
    with pytest.raises(DataError, match=r"change of source, globals, closure or settings: 2 of the method 'm'"):
        study("hiring", {"m": made(1.0), "never": never}, 100, 2, **how)
    with pytest.raises(DataError, match="2 of the scenario 'hiring'"):
        study({"hiring": scenario("hiring", y_a=1.0)}, {"m": made(0.0)}, 100, 2, **how)
    assert len(study("hiring", {"m": made(0.0)}, 100, 2, **how).table) == 2
    redone = study("hiring", {"m": made(1.0)}, 100, 2, overwrite=True, **how)
    assert study("hiring", {"m": made(1.0)}, 100, 2, **how).table.equals(redone.table)


def test_an_interrupt_returns_what_is_finished(tmp_path: Path) -> None:
    calls: list[int] = []

    def interrupted(train: pd.DataFrame, given: Scenario, seed: int) -> Any:
        calls.append(seed)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return logistic(train, given, seed)

    with pytest.warns(PyrofairWarning, match=r"Interrupted: 2 of 5 cells are finished\.$"):
        found = study("hiring", {"m": interrupted}, 100, 5, **QUICK)
    assert len(found.table) == 2
    assert found.unfinished == 3
    assert "3 not computed" in str(found)


class TerminatedWorkerError(concurrent.futures.BrokenExecutor):
    """As joblib's processes raise."""


def losing(kills: Callable[[dict[str, Any]], BaseException | None]) -> Callable[..., Iterator[Any]]:
    """Return a backend that computes cells in this process, and dies at some of them."""

    def results(plan: Any, tasks: list[Any], n_jobs: int | None) -> Iterator[Any]:
        for task in tasks:
            for part in (task._replace(methods=(each,)) for each in task.methods):
                if (error := kills(next(part.cells()))) is not None:
                    raise error
                yield from run(plan, [part])

    return results


@pytest.mark.parametrize("kept", [True, False])
def test_what_lost_workers_leave_is_computed_again(kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = [concurrent.futures.CancelledError("gone"), TerminatedWorkerError("killed\nexit codes")]

    def kills(key: dict[str, Any]) -> BaseException | None:
        return losses.pop() if losses and key["seed"] == 3 - len(losses) else None

    ways = {"m": logistic, "other": LogisticRegression(max_iter=1000)}
    whole = study("hiring", ways, 100, 3, **QUICK)
    monkeypatch.setattr(MODULE, "_results", losing(kills))
    with pytest.warns(
        PyrofairWarning, match=r"A worker was lost \((TerminatedWorkerError: killed|CancelledError: gone)\)"
    ):
        found = study("hiring", ways, 100, 3, folder=tmp_path if kept else None, **QUICK)
    assert losses == []
    same(whole, found)


def test_a_cell_that_ends_its_process_is_a_failure_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kills(key: dict[str, Any]) -> BaseException | None:
        return TerminatedWorkerError("killed") if key["seed"] in (0, 2) else None

    monkeypatch.setattr(MODULE, "_results", losing(kills))
    with pytest.warns(PyrofairWarning, match="A worker was lost"):
        found = study("hiring", {"m": logistic}, 100, 12, folder=tmp_path, **QUICK)
    assert found.failures["seed"].tolist() == [0, 2]
    assert set(found.failures["error"]) == {"Its process died, alone, too: TerminatedWorkerError: killed"}
    assert found.unfinished == 0
    again = study("hiring", {"m": logistic}, 100, 12, folder=tmp_path, retry=False, **QUICK)
    assert again.failures.equals(found.failures)
    # A cluster that is gone ends a study with what is finished.
    gone = concurrent.futures.CancelledError("gone")
    monkeypatch.setattr(MODULE, "_results", losing(lambda key: gone if key["seed"] else None))
    with pytest.warns(PyrofairWarning) as caught:
        found = study("hiring", {"m": logistic}, 100, 4, **QUICK)
    assert str(caught[-1].message) == "No worker is left (CancelledError: gone): 1 of 4 cells are finished."
    assert (len(found.table), found.unfinished) == (1, 3)


@pytest.mark.parametrize("error", [OSError("disk full"), TerminatedWorkerError("A task has failed to un-serialize.")])
def test_an_error_of_the_study_itself_is_raised(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "_results", losing(lambda key: error))
    with pytest.raises(type(error), match=str(error)):
        study("hiring", {"m": logistic}, 100, 1, **QUICK)


@pytest.mark.slow
def test_a_process_that_is_killed_is_started_again(tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    def dies(train: pd.DataFrame, given: Scenario, seed: int) -> Any:
        import os
        import signal

        from sklearn.linear_model import LogisticRegression

        if train["A"].sum() % 7 == 0 and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return LogisticRegression(max_iter=1000).fit(train[given.graph.input_columns], train["Y"])

    with pytest.warns(PyrofairWarning, match="A worker was lost"):
        found = study("hiring", {"m": dies}, 100, 20, n_jobs=2, **QUICK)
    assert flag.exists()
    assert found.unfinished == 0
    same(found, study("hiring", {"m": logistic}, 100, 20, **QUICK))


KILLED = """
import sys
from sklearn.linear_model import LogisticRegression
import pyrofair as pf

pf.simulate.study("hiring", {"m": LogisticRegression(max_iter=1000)}, 100, 10_000, folder=sys.argv[1],
                  truth_size=1000, test_size=500, progress=False)
"""


def test_a_study_that_is_killed_goes_on(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)])
    cells = tmp_path / "cells"
    while process.poll() is None and (not cells.is_dir() or len(list(cells.glob("*.parquet"))) < 5):
        time.sleep(0.01)
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = {path: path.stat().st_mtime_ns for path in cells.glob("*.parquet")}
    ways, seeds = {"m": LogisticRegression(max_iter=1000)}, len(finished) + 4
    found = study("hiring", ways, 100, seeds, folder=tmp_path, **QUICK)
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert len(list(cells.glob("*.parquet"))) == seeds
    same(found, study("hiring", ways, 100, seeds, **QUICK))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed", "ignore::ResourceWarning")
@pytest.mark.slow
def test_a_dask_cluster_of_which_a_worker_is_killed_gives_the_numbers_of_one_process(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")

    def slow(train: pd.DataFrame, given: Scenario, seed: int) -> Any:
        import time

        import joblib
        from sklearn.linear_model import LogisticRegression

        time.sleep(0.05)
        joblib.Parallel()(joblib.delayed(abs)(each) for each in range(2))  # on the cluster, it would wait for itself
        return LogisticRegression(max_iter=1000).fit(train[given.graph.input_columns], train["Y"])

    how: dict[str, Any] = {"sizes": 100, "seeds": 40, **QUICK}
    whole = study("hiring", {"m": slow}, **how)
    cells = tmp_path / "cells"
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            silence_logs=60,
            local_directory=str(tmp_path / "workers"),
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        victim = next(iter(client.run(os.getpid).values()))

        def kill() -> None:
            while not cells.is_dir() or len(list(cells.glob("*.parquet"))) < 10:
                time.sleep(0.01)
            os.kill(victim, signal.SIGKILL)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        with warnings.catch_warnings(record=True) as caught, joblib.parallel_config("dask"):
            warnings.simplefilter("always")
            found = study("hiring", {"m": slow}, folder=tmp_path, **how)
        killer.join(1.0)
        assert not killer.is_alive()
    assert {str(each.message)[:17] for each in caught if issubclass(each.category, PyrofairWarning)} <= {
        "A worker was lost"
    }
    assert found.unfinished == 0
    same(whole, found)


def test_the_page_on_studies_runs_as_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).resolve().parents[2] / "docs" / "studies.md"
    code = page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {"__name__": "studies_page"}
    exec(compile(code.replace("seeds=3", "seeds=1").replace("epochs=80", "epochs=2"), str(page), "exec"), names)
    assert "hiring   plain" in capsys.readouterr().out
    assert len(pd.read_csv("study.csv")) == 16
    assert Path("study.png").stat().st_size > 0
    named = {name for name in METHODS if f"`{name}`" in page.read_text(encoding="utf-8")}
    assert named == set(METHODS)


# -- results and refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "settings", "message"),
    [
        (lambda train, given, seed: sys.exit("no data"), {}, "SystemExit: no data"),
        (lambda train, given, seed: 3, {}, "without predict_proba"),
        (logistic, {"measures": {"text": lambda *_: "much"}}, "'text' returned 'much', which is no number"),
    ],
)
def test_what_fails_is_recorded_and_nothing_finished_is_a_study_too(way: Any, settings: Any, message: str) -> None:
    found = study("hiring", {"never": way}, 100, 1, **settings, **QUICK)
    assert found.table.empty
    assert found.summary().empty
    assert message in found.failures["error"].item()
    assert "1 of hiring, never: " in str(found)


def test_a_summary_is_over_seeds_and_counts_what_failed() -> None:
    found = study(["hiring", "additive"], {"m": logistic, "failing": failing}, [100, 150], 6, **QUICK)
    table = found.summary().set_index(["scenario", "method", "n", "quantity"])
    for (place, name, n), rows in found.table.groupby(["scenario", "method", "n"]):
        row = table.loc[(place, name, n, "piu")]
        assert row["mean"] == pytest.approx(rows["piu"].mean())
        assert row["sd"] == pytest.approx(rows["piu"].std(), nan_ok=True)
        assert row["error"] == pytest.approx(rows["piu"].std() / np.sqrt(len(rows)), nan_ok=True)
        assert (row["lowest"], row["median"], row["highest"]) == (
            rows["piu"].min(), rows["piu"].median(), rows["piu"].max(),
        )  # fmt: skip
        assert row["count"] == len(rows)
        assert row["count"] + row["failed"] == 6
    grid = found.to_xarray()
    assert grid["piu"].dims == ("scenario", "method", "n", "seed")
    assert int(np.isnan(grid["piu"]).sum()) == len(found.failures) > 0
    for row in found.table.itertuples():
        at = {"scenario": row.scenario, "method": row.method, "n": row.n, "seed": row.seed}
        assert float(grid["piu"].sel(at)) == row.piu
    figure = found.plot(["accuracy", "piu", "conditional_sd"])
    assert [axes.get_ylabel() for axes in figure.axes] == ["accuracy, %", "", "true PIU, %", "", "conditional_sd", ""]
    lines = [each for axes in figure.axes for each in axes.lines if len(each.get_xdata()) > 1]
    assert {each.get_linestyle() for each in lines} == {"None"}  # two sizes are no curve
    assert len(str(found).splitlines()) <= len(found.details().splitlines())
    with pytest.raises(DataError, match="quantities='acuracy'"):
        found.plot("acuracy")


def test_a_full_disk_loses_no_result_of_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: CellFolder, result: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CellFolder, "write", full)
    with pytest.warns(PyrofairWarning, match=r"cells.*parquet' cannot be written .*No space left on device"):
        found = study("hiring", {"m": logistic}, 100, 2, folder=tmp_path, **QUICK)
    assert (len(found.table), found.unfinished) == (2, 0)


def test_cells_of_a_study_that_runs_are_not_deleted_by_another(tmp_path: Path) -> None:
    def meanwhile(train: pd.DataFrame, given: Scenario, seed: int) -> Any:
        with pytest.raises(DataError, match="A run with other settings is working in the folder"):
            study("hiring", {"m": logistic}, 100, 1, folder=tmp_path, overwrite=True, **QUICK | {"test_size": 50})
        shared = study("hiring", {"m": logistic}, 100, 1, folder=tmp_path, **QUICK)
        assert len(shared.table) == 1
        return logistic(train, given, seed)

    found = study("hiring", {"other": meanwhile}, 100, 1, folder=tmp_path, **QUICK)
    assert found.failures.empty, found.failures["traceback"].iloc[0]
    study("hiring", {"m": logistic}, 100, 1, folder=tmp_path, overwrite=True, **QUICK | {"test_size": 50})
    assert len([*(tmp_path / "cells").iterdir()]) == 1
    assert not (tmp_path / ".lock").exists()


def test_a_worker_without_the_folder_hands_its_cells_over(tmp_path: Path) -> None:
    plans: list[Plan] = []

    def caught(plan: Plan, tasks: list[Task]) -> Iterator[Any]:
        plans.append(plan)
        yield from run(plan, tasks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "run", caught)
        there = study("hiring", {"m": logistic}, 100, 1, folder=tmp_path / "here", **QUICK)
    elsewhere = replace(plans[0], folder=CellFolder(tmp_path / "is" / "not"))
    (cell,) = run(elsewhere, [Task("hiring", 100, 0, (("m", None),))])
    assert isinstance(cell, Cell)
    assert cell.table["piu"].item() == there.table["piu"].item()
    assert not (tmp_path / "is").exists()


def test_cells_that_another_call_writes_meanwhile_count_only_for_the_same_method(tmp_path: Path) -> None:
    other = {"m": LogisticRegression(C=1e-3)}

    def slow(train: pd.DataFrame, given: Scenario, seed: int) -> Any:
        if not any((tmp_path / "cells").iterdir()):
            study("hiring", other, 100, 1, folder=tmp_path, **QUICK)
        return logistic(train, given, seed)

    found = study("hiring", {"first": slow, "m": logistic}, 100, 1, folder=tmp_path, **QUICK)
    alone = study("hiring", {"m": logistic}, 100, 1, **QUICK)
    assert found.table["accuracy"].tolist() == 2 * alone.table["accuracy"].tolist()
    with pytest.raises(DataError, match="1 of the method 'm'"):
        study("hiring", other, 100, 1, folder=tmp_path, **QUICK)


def too_short(n: int) -> None:
    with pyro.plate("units", n):
        pyro.sample("A", dist.Bernoulli(0.5))


UNFAIR = scenario("hiring").unfair


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"scenarios": "hirng"}, DataError, "Did you mean 'hiring'"),
        ({"scenarios": []}, DataError, "names nothing to study"),
        ({"scenarios": [(too_short, UNFAIR)]}, DataError, r"in a dictionary from names a pair \(program, unfair\)"),
        ({"scenarios": {"own": (too_short, UNFAIR)}}, GraphError, "has no site 'Q'"),
        ({"scenarios": ["hiring", "hiring"]}, DataError, "'hiring' more than once"),
        ({"scenarios": {3: "hiring"}}, DataError, "names are text"),
        ({"methods": "Fio"}, DataError, "Did you mean 'FIO'"),
        ({"methods": {"m": 3}}, DataError, "must be a name such as 'FIO'"),
        ({"methods": {"m": LogisticRegression}}, DataError, "must be a name such as 'FIO'"),
        ({"methods": {"m": lambda train: train}}, DataError, r"cannot be called with \(train, scenario, seed\)"),
        ({"methods": [LogisticRegression(), LogisticRegression(C=2.0)]}, DataError, "Give a dictionary from names"),
        ({"sizes": 0}, DataError, "sizes=0 must be an integer"),
        ({"sizes": [100, 100]}, DataError, "holds a value more than once"),
        ({"sizes": "100"}, DataError, "must be an integer, or a list of them"),
        ({"seeds": 0}, DataError, "seeds=0"),
        ({"seeds": [-1]}, DataError, "seeds=-1"),
        ({"seeds": True}, DataError, "seeds=True"),
        ({"strengths": [-1.0]}, DataError, "strengths"),
        ({"strengths": 1.0}, DataError, "must be a list of numbers"),
        ({"truth_size": 1.5}, DataError, "truth_size"),
        ({"decisions": "hard"}, DataError, "decisions='hard'"),
        ({"coupling": "any"}, DataError, "coupling='any'"),
        ({"threshold": 1.0}, DataError, "threshold"),
        ({"audit": "one-step"}, DataError, "a function of a scenario that returns a source"),
        ({"measures": {"piu": len}}, DataError, "measures has the name 'piu'"),
        ({"measures": {"my_low": len}}, DataError, "end the names of uncertainties"),
        ({"measures": [len]}, DataError, "must be a dictionary"),
        ({"n_jobs": 0}, DataError, "n_jobs=0 leaves no process"),
        ({"progress": "no"}, DataError, "progress='no'"),
        ({"folder": 3}, DataError, "must be the path of a folder"),
    ],
)
def test_what_is_unfit_is_refused_before_any_work(wrong: dict[str, Any], error: type[Exception], message: str) -> None:
    def never(train: pd.DataFrame, given: Scenario, seed: int) -> Any:
        raise AssertionError("work was done")

    with pytest.raises(error, match=message):
        study(**{"scenarios": "hiring", "methods": {"m": never}, "sizes": 100, "seeds": 1, **QUICK, **wrong})


def test_settings_of_methods_are_checked_when_given() -> None:
    with pytest.raises(DataError, match=r"'FIO' does not take its settings: .*'strenght'"):
        method("FIO", strenght=2.0)
