"""The paper's tables and figures in a small version: files, resumption, printed numbers and verdicts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import pyrofair as pf

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "paper"
FIGURES = {
    "fig5": ["fig5"],
    "additive": ["additive-effects", "additive"],
    "table1": ["table1"],
    "fig2": ["fig2"],
    "fig4": ["fig4"],
    "table-logistic": ["table-logistic-effects", "table-logistic"],
    "testsetbound": ["testsetbound"],
    "oracle": ["oracle"],
    "extended": ["extended-effects", "extended"],
}


@pytest.fixture(scope="module", autouse=True)
def _importable() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(FOLDER)
        yield


@pytest.fixture(scope="module")
def claims() -> ModuleType:
    import claims

    return claims


def command(target: str, folder: Path, *options: str) -> list[str]:
    return [sys.executable, str(FOLDER / "reproduce.py"), target, "--quick", "--output", str(folder), *options]


def run(target: str, folder: Path, *options: str) -> list[str]:
    """Run the small version of a target, and return the lines printed."""
    done = subprocess.run(command(target, folder, *options), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one target; all of them take minutes."""
    folder = tmp_path_factory.mktemp("paper") / "new" / "few"
    run("additive", folder)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paper") / "all"
    run("all", folder, "--jobs", "2")
    return folder


# -- the small run -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chosen", ["few", pytest.param("whole", marks=pytest.mark.slow)])
def test_every_target_writes_tables_figures_and_verdicts(
    chosen: str, claims: ModuleType, request: pytest.FixtureRequest
) -> None:
    from experiments import EXPERIMENTS

    assert set(FIGURES) == set(EXPERIMENTS)
    folder: Path = request.getfixturevalue(chosen)
    targets = ["additive"] if chosen == "few" else list(EXPERIMENTS)
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert [name for name in EXPERIMENTS if EXPERIMENTS[name].title in report] == targets
    for name in targets:
        page = (folder / f"{name}-page.md").read_text(encoding="utf-8")
        assert page in report
        assert f"reproduce.py {name} --quick" in page
        # The effect along A -> Y alone joins no worlds.
        assert ("NPSEM-IE" in page) == (name != "extended")
        verdicts = pd.read_csv(folder / f"{name}-verdicts.csv", keep_default_na=False)
        assert set(verdicts["verdict"]) <= {claims.HOLDS, claims.FAILS, claims.UNTESTED}
        assert (verdicts["why"].str.len() > 0).all()
        assert len(verdicts) > 1
    figures = sorted(path.stem for path in folder.glob("*.png"))
    assert figures == sorted(figure for name in targets for figure in FIGURES[name])
    for name in figures:
        with Image.open(folder / f"{name}.png") as image:
            assert image.width > 600
            assert len(image.convert("L").getcolors() or range(99)) > 10, "something is drawn"


@pytest.mark.slow
def test_tables_have_the_printed_numbers_and_both_rates_beside_ours(whole: Path, claims: ModuleType) -> None:
    for data in ("synth", "german", "adult"):
        table = pd.read_csv(whole / f"table1-{data}.csv").set_index("method")
        printed = claims.printed("table1", data)
        assert table.loc["Proposed", "printed"] == printed["Proposed"].value
        assert table.loc["PSCF (latents from the prior)", "printed"] == printed["PSCF"].value
        assert table.loc["Remove (touched)", "printed"] == table.loc["Remove (descendants)", "printed"]
        assert table["accuracy"].between(0, 100).all()
        assert table["majority_rate"].between(50, 100).all()
        assert table["bayes_rate"].isna().all() == (data != "synth")
        text = (whole / f"table1-{data}.md").read_text(encoding="utf-8")
        assert "| majority class alone |" in text
        assert ("| Bayes rate |  |  |  | not known |" in text) == (data != "synth")
        assert f"{printed['FIO'].value:.1f}" in text
    oracle = pd.read_csv(whole / "oracle.csv").set_index("method")
    assert oracle.loc["Oracle", "printed_piu"] == 2.63
    assert oracle["true_piu"].between(0, 1).all()
    extended = pd.read_csv(whole / "extended-latent.csv").set_index("method")
    assert extended.loc["Proposed (extended)", "printed"] == 95.7
    assert extended.loc["Remove (touched)", "true_piu"] == 0.0
    assert extended["majority_rate"].between(94, 97).all()
    assert extended.loc["Proposed (extended)", "train_interval_penalty"] <= 2.0


def test_a_rerun_computes_nothing_and_writes_the_same(few: Path) -> None:
    before = {path.name: path.read_bytes() for path in few.glob("*.csv")}
    lines = run("additive", few)
    assert lines == ["8 of 8 cells are finished", "writing additive", f"wrote {few / 'report.md'}"]
    assert {path.name: path.read_bytes() for path in few.glob("*.csv")} == before


@pytest.mark.slow
def test_after_a_kill_a_rerun_in_two_processes_goes_on_and_gives_the_same(few: Path, tmp_path: Path) -> None:
    with subprocess.Popen(command("additive", tmp_path), stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and len(list(tmp_path.glob("cells/**/output.pkl"))) < 3:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    finished = len(list(tmp_path.glob("cells/**/output.pkl")))
    assert 3 <= finished < 8
    assert not (tmp_path / "report.md").exists()
    lines = run("additive", tmp_path, "--jobs", "2")
    assert lines[0] == f"{finished} of 8 cells are finished"
    assert sum("min left" in line for line in lines) == 8 - finished
    one, other = ((each / "additive-additive.csv").read_bytes() for each in (few, tmp_path))
    assert one == other


def test_a_cell_that_fails_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import fits
    import reproduce

    measured = fits._measured

    def broken(fitted: object, job: fits.Job, data: object) -> pd.DataFrame:
        if job.method == "Remove (touched)":
            raise ValueError("no luck")
        return measured(fitted, job, data)

    monkeypatch.setattr(fits, "_measured", broken)
    arguments = ["additive", "--quick", "--output", str(tmp_path)]
    assert reproduce.main(arguments) == 1
    printed = capsys.readouterr()
    assert "additive is left out" in printed.out
    assert "no luck" in printed.err
    assert not (tmp_path / "additive-page.md").exists()
    monkeypatch.undo()
    assert reproduce.main(arguments) == 0
    assert capsys.readouterr().out.startswith("7 of 8 cells are finished\n")


@pytest.mark.parametrize("arguments", [["table9"], ["all", "--jobs", "0"]])
def test_wrong_arguments_are_refused_before_any_work(arguments: list[str], tmp_path: Path) -> None:
    import reproduce

    with pytest.raises(SystemExit, match="2"):
        reproduce.main([*arguments, "--output", str(tmp_path / "new")])
    assert not (tmp_path / "new").exists()


def test_only_public_names_are_used() -> None:
    folders = {name: set(getattr(pf, name).__all__) for name in pf.__all__ if isinstance(getattr(pf, name), ModuleType)}
    used = set()
    for path in FOLDER.glob("*.py"):
        code = path.read_text(encoding="utf-8")
        assert not re.search(r"from pyrofair|import pyrofair\.", code)
        used.update(re.findall(r"\bpf\.(\w+)(?:\.(\w+))?", code))
    assert len(used) > 20
    for first, second in used:
        assert first in pf.__all__
        assert not second or first not in folders or second in folders[first]


# -- printed numbers ---------------------------------------------------------------------------------------------------


def test_printed_numbers_are_complete_and_consistent(claims: ModuleType) -> None:
    from problems import PROBLEMS

    counts = pd.Series([each.table for each in claims.PRINTED]).value_counts().to_dict()
    assert counts == {
        "table1": 15, "table_logistic": 12, "table_testsetbound": 8, "table_adm": 3, "table_bound": 4, "table4": 6,
    }  # fmt: skip
    assert len({(each.table, each.data, each.method, each.quantity) for each in claims.PRINTED}) == 48
    assert set(claims.TEST_ROWS) == set(PROBLEMS)
    for each in claims.PRINTED:
        assert 0 < each.value < 100
        assert (each.sd is not None) == (each.data in ("synth", "additive", "latent"))
        assert (each.interval is not None) == (each.table == "table_testsetbound")
        if each.interval is not None:
            assert each.interval[0] < each.value < each.interval[1]
    # The accuracies of the first table that are printed twice.
    assert (
        claims.printed("table_bound", "synth")["Proposed"].value == claims.printed("table1", "synth")["Proposed"].value
    )
    for data in ("german", "adult"):
        errors, accuracies = claims.printed("table_testsetbound", data, "error"), claims.printed("table_logistic", data)
        apart = {name for name in errors if abs(100 - errors[name].value - accuracies[name].value) > 0.051}
        assert apart == ({"Remove"} if data == "adult" else set())


def test_the_majority_and_bayes_rates_of_the_printed_equations() -> None:
    from problems import bayes_rates

    assert bayes_rates("synth", 400_000) == pytest.approx((0.533, 0.958), abs=0.003)
    assert bayes_rates("additive", 400_000)[1] == pytest.approx(0.937, abs=0.002)
    # The best of what is observed, without the latent cause.
    assert bayes_rates("latent", 400_000) == pytest.approx((0.955, 0.991), abs=0.001)


# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_a_printed_number_holds_within_two_spreads(claims: ModuleType) -> None:
    claim = claims.Printed("table1", "synth", "Proposed", 80.0, 0.9)
    ours = np.array([79.0, 81.0, 80.5])
    assert claims.printed_number(claim, ours).verdict == claims.HOLDS
    assert "80.2 ± 1.0" in claims.printed_number(claim, ours).why
    assert claims.printed_number(claim, ours + 10).verdict == claims.FAILS
    found = claims.printed_number(claim, ours + 10, {1.0: 80.4, 2.0: 90.0})
    assert found.verdict == claims.UNTESTED
    assert "80.4 % at 1" in found.why
    assert "90.0 to 95.0" in claims.printed_number(claim, ours + 10, {1.0: 95.0, 2.0: 90.0}).why
    # Without a printed spread the error of the test rows counts: of 100 rows, 4 points.
    german = claims.Printed("table1", "german", "FIO", 78.0)
    assert claims.printed_number(german, [71.0]).verdict == claims.HOLDS
    assert claims.printed_number(german, [69.0]).verdict == claims.FAILS


@pytest.mark.parametrize(
    ("data", "value", "sd", "found"),
    [("german", 77.5, None, 1), ("german", 78.0, None, 0), ("adult", 81.2, None, 0), ("synth", 84.8, 0.6, 0)],
)
def test_impossible_percentages_are_found(
    claims: ModuleType, data: str, value: float, sd: float | None, found: int
) -> None:
    assert len(claims.impossible(claims.Printed("t", data, "FIO", value, sd))) == found


def test_printed_test_set_bounds(claims: ModuleType) -> None:
    adult = [claims.printed_interval(each) for each in claims.printed("table_testsetbound", "adult", "error").values()]
    assert [each.verdict for each in adult] == [claims.HOLDS] * 4
    german = claims.printed_interval(claims.printed("table_testsetbound", "german", "error")["Proposed"])
    assert german.verdict == claims.FAILS
    assert all(part in german.why for part in ("24 errors", "100 rows", "[17.1, 32.1]", "25 errors"))


def test_orders_are_judged_by_paired_differences(claims: ModuleType) -> None:
    low = np.array([70.0, 75.0, 72.0])

    def order(high: object, low: object) -> tuple[str, str]:
        return claims.printed_order("s", "synth", "c", high, low)[3:]

    assert order(low + np.array([2.0, 2.1, 1.9]), low)[0] == claims.HOLDS
    assert order(low - np.array([2.0, 2.1, 1.9]), low)[0] == claims.FAILS
    assert order(low + np.array([2.0, -2.1, 1.9]), low)[0] == claims.UNTESTED
    assert order(low, low)[0] == claims.FAILS  # no difference is none
    assert order(low[:1] + 5, low[:1])[0] == claims.UNTESTED
    by_seed = pd.Series(low), pd.Series([1.0, 68.0, 70.0], [7, 1, 2])  # seeds 1 and 2 are in both
    assert "+4.5 ± 2.5" in order(*by_seed)[1]


def test_equal_and_small_numbers(claims: ModuleType) -> None:
    ours = np.array([70.0, 71.0, 72.0])
    assert claims.alike("s", "synth", "c", ours, ours + 2.5).verdict == claims.HOLDS
    assert claims.alike("s", "synth", "c", ours, ours + 3.0).verdict == claims.FAILS
    assert claims.alike("s", "synth", "c", ours[:1], ours[:1]).verdict == claims.UNTESTED
    assert claims.small("s", "d", "c", {"a": [0.01, -0.05]}, 0.1).verdict == claims.HOLDS
    assert claims.small("s", "d", "c", {"a": [0.01], "b": [-0.2]}, 0.1).verdict == claims.FAILS


# -- choices and tables ------------------------------------------------------------------------------------------------


def test_the_choice_of_a_strength() -> None:
    from fits import choose_strength

    decided = pd.DataFrame(
        {
            "train_accuracy": [0.9, 0.8, 0.75],
            "train_piu_paper_bound": [0.9, 0.09, 0.02],
            "train_mean_unfair_effect": [0.1, 0.01, -0.02],
            "train_interval_penalty": [1.0, 0.3, 0.04],
            "train_corrected_penalty": [0.5, 0.05, 0.0],
        },
        index=[0.0, 1.0, 2.0],
    )
    methods = ("Proposed", "FIO", "FIO given S", "Proposed (extended)", "Proposed (extended), corrected")
    assert [choose_strength(method, decided) for method in methods] == [1.0, 1.0, 1.0, 2.0, 1.0]
    assert choose_strength("Proposed", decided.assign(train_piu_paper_bound=0.5)) == 2.0


def test_the_oracle_has_the_strength_of_proposed() -> None:
    from results import Results, markdown, summarise

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
    table = markdown(pd.DataFrame({"a": ["x|y", None], "n": [1.5, 2.0]}))
    assert table.splitlines() == ["| a | n |", "| --- | --: |", "| x/y | 1.5 |", "|  | 2.0 |"]
