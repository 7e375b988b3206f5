"""The paper's experiments in a small seeded version: files, resumption, printed numbers and verdicts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from pyrofair.__main__ import main
from pyrofair.exceptions import DataError
from pyrofair.reproduce import EXPERIMENTS, reproduce
from pyrofair.reproduce.fits import METHODS, Job, choose_strength, run
from pyrofair.reproduce.printed import PRINTED, TEST_ROWS, Printed, printed
from pyrofair.reproduce.problems import PROBLEMS, bayes_rates, unfair_paths
from pyrofair.reproduce.results import FULL, QUICK, Results, markdown, summarise
from pyrofair.reproduce.verdicts import (
    FAILS,
    HOLDS,
    UNTESTED,
    alike,
    possible,
    printed_interval,
    printed_number,
    printed_order,
    small,
)

# -- the quick run ----------------------------------------------------------------------------------------------------

FIGURES = {
    "fig5": ["fig5.png"],
    "additive": ["additive-effects.png", "additive.png"],
    "table1": ["table1.png"],
    "fig2": ["fig2.png"],
    "fig4": ["fig4.png"],
    "table-logistic": ["table-logistic-effects.png", "table-logistic.png"],
    "testsetbound": ["testsetbound.png"],
    "oracle": ["oracle.png"],
    "extended": ["extended-effects.png", "extended.png"],
}
FEW = ["additive"]
"""The experiments that are run for each commit; all of them take minutes."""


def quick(names: list[str], made: Path) -> Path:
    reproduce(names, made, quick=True, report=lambda line: None)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the quick version of a few experiments."""
    return quick(FEW, tmp_path_factory.mktemp("paper") / "few")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the quick version of all experiments."""
    return quick(list(EXPERIMENTS), tmp_path_factory.mktemp("paper") / "all")


RUNS = pytest.mark.parametrize(
    ("run_of", "names"),
    [("folder", FEW), pytest.param("whole", list(EXPERIMENTS), marks=pytest.mark.slow)],
    ids=["few", "all"],
)


@RUNS
def test_every_experiment_writes_tables_figures_and_verdicts(
    run_of: str, names: list[str], request: pytest.FixtureRequest
) -> None:
    assert set(FIGURES) == set(EXPERIMENTS)
    folder: Path = request.getfixturevalue(run_of)
    for name in names:
        page = (folder / f"{name}-page.md").read_text(encoding="utf-8")
        assert page.startswith(f"## {EXPERIMENTS[name].title}\n\n`python -m pyrofair reproduce {name} --quick`: ")
        assert "These numbers rest on:" in page
        # The effect along A -> Y alone joins no worlds.
        assert ("Independent errors across worlds (NPSEM-IE)" in page) == (name != "extended")
        verdicts = pd.read_csv(folder / f"{name}-verdicts.csv", keep_default_na=False)
        assert set(verdicts["verdict"]) <= {HOLDS, FAILS, UNTESTED}
        assert (verdicts["why"].str.len() > 0).all()
        assert len(verdicts) > 1
    figures = sorted(path.name for path in folder.glob("*.png"))
    assert figures == sorted(figure for name in names for figure in FIGURES[name])
    for name in figures:
        with Image.open(folder / name) as image:
            assert image.width > 600
            assert len(image.convert("L").getcolors() or range(99)) > 10, "something is drawn"


@pytest.mark.slow
def test_tables_have_the_printed_numbers_and_both_rates_beside_ours(whole: Path) -> None:
    for data in ("synth", "german", "adult"):
        table = pd.read_csv(whole / f"table1-{data}.csv").set_index("method")
        claims = printed("table1", data)
        assert table.loc["Proposed", "printed"] == claims["Proposed"].value
        assert table.loc["PSCF (latents from the prior)", "printed"] == claims["PSCF"].value
        assert table.loc["Remove (touched)", "printed"] == table.loc["Remove (descendants)", "printed"]
        assert table["accuracy"].between(0, 100).all()
        assert table["majority_rate"].between(50, 100).all()
        assert table["bayes_rate"].isna().all() == (data != "synth")
        text = (whole / f"table1-{data}.md").read_text(encoding="utf-8")
        assert "| majority class alone |" in text
        assert ("| Bayes rate |  |  |  | not known |" in text) == (data != "synth")
        assert "Proposed given S" in text
        assert f"{claims['FIO'].value:.1f}" in text
    oracle = pd.read_csv(whole / "oracle.csv").set_index("method")
    assert oracle.loc["Oracle", "printed_piu"] == 2.63
    assert oracle["true_piu"].between(0, 1).all()


@pytest.mark.slow
def test_the_extension_is_beside_its_table_and_both_rates(whole: Path) -> None:
    table = pd.read_csv(whole / "extended-latent.csv").set_index("method")
    assert table.loc["Proposed (extended)", "printed"] == 95.7
    assert table.loc["Remove (touched)", "true_piu"] == 0.0
    assert table["majority_rate"].between(94, 97).all()
    assert table.loc["Proposed (extended)", "train_interval_penalty"] <= 2.0
    page = (whole / "extended-page.md").read_text(encoding="utf-8")
    assert "Of the bounds: Nothing latent causes both A and R, or both A and M." in page
    assert "Proposed_ex is more accurate than Remove (touched)" in page


@RUNS
def test_the_report_holds_all_pages(run_of: str, names: list[str], request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(run_of)
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert report.startswith("**Claims of the paper, counted**\n\n| experiment | holds | fails | cannot be tested |")
    assert [each for each, what in EXPERIMENTS.items() if what.title in report] == [
        each for each in EXPERIMENTS if each in names
    ]


def test_a_rerun_computes_nothing_and_writes_the_same(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.glob("*.csv")}
    kept = {path.name: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()}
    lines: list[str] = []
    reproduce(FEW, folder, quick=True, report=lines.append)
    assert lines[0].endswith("cells are finished")
    assert not any("min left" in line for line in lines)
    assert {path.name: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()} == kept
    assert {path.name: path.read_bytes() for path in folder.glob("*.csv")} == before


def test_a_full_run_is_refused_the_folder_of_a_quick_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["reproduce", "fig5", "--output", str(folder)])
    assert "cells of another run" in capsys.readouterr().err


# -- interruption -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_after_a_kill_a_rerun_in_two_processes_goes_on_and_gives_the_same(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pyrofair", "reproduce", "additive", "--quick", "--output", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        cells = tmp_path / "cells"
        while process.poll() is None and len(list(cells.glob("*.parquet"))) < 3:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    finished = {path.name: path.stat().st_mtime_ns for path in cells.glob("*.parquet")}
    assert len(finished) >= 3
    assert not (tmp_path / "report.md").exists()
    lines: list[str] = []
    reproduce(["additive"], tmp_path, quick=True, jobs=2, report=lines.append)
    total = len(QUICK.jobs("additive", [])) + len(EXPERIMENTS["additive"].jobs(QUICK)) - 1
    assert lines[0] == f"{len(finished)} of {total} cells are finished"
    assert sum("min left" in line for line in lines) == total - len(finished)
    assert {name: (cells / name).stat().st_mtime_ns for name in finished} == finished
    one, other = ((each / "additive-additive.csv").read_bytes() for each in (folder, tmp_path))
    assert one == other


def test_a_cell_that_fails_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(job: Job, sizes: object) -> pd.DataFrame:
        if job.method == "Remove (touched)":
            raise ValueError("no luck")
        return run(job, sizes)  # type: ignore[arg-type]

    monkeypatch.setattr("pyrofair.reproduce.run.run", broken)
    lines: list[str] = []
    with pytest.raises(
        DataError, match=r"1 of \d+ cells failed, the first is additive, network, Remove .touched., seed 0: Value"
    ):
        reproduce(["additive"], tmp_path, quick=True, report=lines.append)
    assert any(
        line.startswith("additive is left out, for want of additive, network, Remove (touched)") for line in lines
    )
    assert "no luck" in next((tmp_path / "failures").iterdir()).read_text(encoding="utf-8")
    monkeypatch.undo()
    assert reproduce(["additive"], tmp_path, quick=True, report=lines.append)
    assert list((tmp_path / "failures").iterdir()) == []


def test_unknown_names_are_refused_before_any_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match=r"names=\['table9'\] must be of table1, fig2"):
        reproduce(["table9"], tmp_path / "new")
    assert not (tmp_path / "new").exists()
    for arguments in (["table9"], ["all", "--jobs", "0"]):
        with pytest.raises(SystemExit, match="2"):
            main(["reproduce", *arguments])
    assert "--jobs must be an integer at least 1" in capsys.readouterr().err


# -- printed numbers --------------------------------------------------------------------------------------------------


def test_printed_numbers_are_complete_and_consistent() -> None:
    counts = pd.Series([each.table for each in PRINTED]).value_counts().to_dict()
    assert counts == {
        "table1": 15, "table_logistic": 12, "table_testsetbound": 8, "table_adm": 3, "table_bound": 4, "table4": 6,
    }  # fmt: skip
    assert len({(each.table, each.data, each.method, each.quantity) for each in PRINTED}) == len(PRINTED)
    for each in PRINTED:
        assert 0 < each.value < 100
        assert (each.sd is not None) == (each.data in ("synth", "additive", "latent"))
        assert (each.interval is not None) == (each.table == "table_testsetbound")
        if each.interval is not None:
            assert each.interval[0] < each.value < each.interval[1]
    # The accuracies of the first table that are printed twice.
    assert printed("table_bound", "synth", "accuracy")["Proposed"].value == printed("table1", "synth")["Proposed"].value
    for data in ("german", "adult"):
        errors, accuracies = printed("table_testsetbound", data), printed("table_logistic", data)
        apart = {name for name in errors if abs(100 - errors[name].value - accuracies[name].value) > 0.051}
        assert apart == ({"Remove"} if data == "adult" else set())


def test_the_majority_and_bayes_rates_of_the_printed_equations() -> None:
    majority, best = bayes_rates("synth", 400_000)
    assert majority == pytest.approx(0.533, abs=0.003)
    assert best == pytest.approx(0.958, abs=0.002)
    assert bayes_rates("additive", 400_000)[1] == pytest.approx(0.937, abs=0.002)
    majority, best = bayes_rates("latent", 400_000)  # the best of what is observed, without the latent cause
    assert (majority, best) == pytest.approx((0.955, 0.991), abs=0.001)


# -- verdicts ---------------------------------------------------------------------------------------------------------


def test_a_printed_number_holds_within_two_spreads() -> None:
    claim = Printed("table1", "synth", "Proposed", 80.0, 0.9)
    ours = np.array([79.0, 81.0, 80.5])
    assert printed_number(claim, ours).verdict == HOLDS
    assert printed_number(claim, ours).why == "ours is 80.2 ± 1.0 %, within 2.8"
    assert printed_number(claim, ours + 10).verdict == FAILS
    found = printed_number(claim, ours + 10, {1.0: 80.4, 2.0: 90.0})
    assert found.verdict == UNTESTED
    assert found.why == "no strength is printed: ours is 90.2 ± 1.0 % at ours, 80.4 % at 1"
    assert printed_number(claim, ours + 10, {1.0: 95.0, 2.0: 90.0}).why.endswith("over all strengths 90.0 to 95.0 %")
    # Without a printed spread the error of the test rows counts: of 100 rows, 4 points.
    german = Printed("table1", "german", "FIO", 78.0)
    assert printed_number(german, [71.0]).verdict == HOLDS
    assert printed_number(german, [69.0]).verdict == FAILS


def test_impossible_percentages_are_found() -> None:
    assert possible(Printed("t", "german", "FIO", 77.5)) is not None
    assert possible(Printed("t", "german", "FIO", 78.0)) is None
    assert possible(Printed("t", "adult", "FIO", 81.2)) is None
    assert possible(Printed("t", "synth", "FIO", 84.8, 0.6)) is None


def test_printed_test_set_bounds() -> None:
    adult = [printed_interval(each) for each in printed("table_testsetbound", "adult").values()]
    assert [each.verdict for each in adult] == [HOLDS] * 4
    german = printed_interval(printed("table_testsetbound", "german")["Proposed"])
    assert german.verdict == FAILS
    assert german.why == (
        "24 errors in 100 rows give [17.1, 32.1] with 5 % on each side, a 90 % interval; the printed lower end is that "
        "of 25 errors"
    )


def test_orders_are_judged_by_paired_differences() -> None:
    low = np.array([70.0, 75.0, 72.0])
    assert printed_order("s", "synth", "c", np.add(low, [2.0, 2.1, 1.9]), low).verdict == HOLDS
    assert printed_order("s", "synth", "c", np.subtract(low, [2.0, 2.1, 1.9]), low).verdict == FAILS
    assert printed_order("s", "synth", "c", np.add(low, [2.0, -2.1, 1.9]), low).verdict == UNTESTED
    assert printed_order("s", "synth", "c", low, low).verdict == FAILS  # no difference is none
    assert printed_order("s", "synth", "c", low[:1] + 5, low[:1]).verdict == UNTESTED
    by_seed = pd.Series(low), pd.Series([1.0, 68.0, 70.0], [7, 1, 2])  # seeds 1 and 2 are in both
    assert "+4.5 ± 2.5 % (mean and its standard error over 2 seeds)" in printed_order("s", "synth", "c", *by_seed).why


def test_equal_accuracies() -> None:
    ours = np.array([70.0, 71.0, 72.0])
    assert alike("s", "synth", "c", ours, ours + 2.5).verdict == HOLDS
    assert alike("s", "synth", "c", ours, ours + 3.0).verdict == FAILS
    assert alike("s", "synth", "c", ours[:1], ours[:1]).verdict == UNTESTED


def test_small_statistics() -> None:
    assert small("s", "d", "c", {"a": [0.01, -0.05]}, 0.1).verdict == HOLDS
    assert small("s", "d", "c", {"a": [0.01], "b": [-0.2]}, 0.1).verdict == FAILS


# -- choices and tables -----------------------------------------------------------------------------------------------


def test_the_choice_of_a_strength() -> None:
    decided = pd.DataFrame(
        {
            "train_accuracy": [0.9, 0.8, 0.75],
            "train_piu_paper_bound": [0.9, 0.09, 0.02],
            "train_mean_unfair_effect": [0.1, 0.01, -0.02],
        },
        index=[0.0, 1.0, 2.0],
    )
    assert choose_strength("Proposed", decided) == 1.0
    assert choose_strength("FIO", decided) == 1.0
    assert choose_strength("Proposed", decided.assign(train_piu_paper_bound=0.5)) == 2.0
    assert choose_strength("FIO given S", decided) == 1.0
    bounded = decided.assign(train_interval_penalty=[1.0, 0.3, 0.04], train_corrected_penalty=[0.5, 0.05, 0.0])
    assert choose_strength("Proposed (extended)", bounded) == 2.0
    assert choose_strength("Proposed (extended), corrected", bounded) == 1.0


def test_the_oracle_has_the_strength_of_proposed() -> None:
    rows = pd.DataFrame(
        {
            "data": "synth",
            "model": "network",
            "decisions": "threshold",
            "method": ["Proposed", "Proposed", "Oracle", "Oracle"],
            "classifier": ["Proposed", "Proposed", "Oracle", "Oracle"],
            "seed": 0,
            "strength": [0.5, 1.75, 1.0, 2.0],
            "chosen": [False, True, True, False],
            "accuracy": [0.9, 0.8, 0.95, 0.94],
        }
    )
    chosen = Results(rows).chosen("synth")
    assert chosen[["method", "strength"]].to_numpy().tolist() == [["Proposed", 1.75], ["Oracle", 2.0]]
    assert summarise(chosen)["accuracy"].tolist() == pytest.approx([80.0, 94.0])


def test_tables_in_markdown() -> None:
    table = markdown(pd.DataFrame({"a": ["x|y", None], "n": [1.5, 2.0]}))
    assert table.splitlines() == ["| a | n |", "| --- | --: |", "| x/y | 1.5 |", "|  | 2.0 |"]


def test_jobs_share_cells_and_cover_the_methods() -> None:
    jobs = {name: set(each.jobs(FULL)) for name, each in EXPERIMENTS.items()}
    assert jobs["fig4"] == jobs["table1"]
    assert jobs["fig2"] < jobs["table1"]
    assert jobs["fig5"] < jobs["table1"]
    assert jobs["testsetbound"] < jobs["table-logistic"]
    used = {job.method for own in jobs.values() for job in own} - {"rates"}
    assert used == set(METHODS)
    assert {job.data for own in jobs.values() for job in own} == set(PROBLEMS)
    assert set(TEST_ROWS) == set(PROBLEMS)
    assert all(unfair_paths(name).paths for name in PROBLEMS)
    fine = [job for job in jobs["fig5"] if job.method == "Proposed"]
    assert len(fine) == 1
    assert len(fine[0].strengths) == 41
