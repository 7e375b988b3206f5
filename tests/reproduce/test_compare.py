"""The main job, with training cut short, and its command line."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.ensemble import HistGradientBoostingClassifier

import pyrofair
from pyrofair import _cells
from pyrofair.__main__ import main
from pyrofair._cells import CellFolder
from pyrofair.classifiers import PSCF
from pyrofair.datasets.uci import load_german
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.reproduce import MODES, SETTINGS, Comparison, compare, comparison, modes, settings_of
from pyrofair.reproduce.kept import KeptModel
from pyrofair.sources import OneStep, propensity

PLAIN = {"propensity": "logistic", "regression": "logistic", "folds": 2}
TRAINED = ["Unconstrained", "Remove (touched)", "Remove (descendants)", "Proposed", "FIO", "Proposed given S", "PSCF"]
METHODS = [*TRAINED, "PSCF (one draw)", "PSCF (latents from the posterior)", "PSCF (latents from the prior)"]


@pytest.fixture(scope="module")
def quick() -> Iterator[list[str]]:
    """German with two epochs, stumps and logistic nuisances, and the lines of progress."""
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        short = dataclasses.replace(SETTINGS["german"], epochs=2, pscf={"epochs": 2, "samples": 5})
        patched.setitem(SETTINGS, "german", short)
        patched.setattr(
            propensity,
            "HistGradientBoostingClassifier",
            lambda **settings: HistGradientBoostingClassifier(**settings | {"max_iter": 2}),
        )
        patched.setattr(comparison, "OneStep", functools.partial(OneStep, **PLAIN))
        yield lines


@pytest.fixture(scope="module")
def result(quick: list[str]) -> Comparison:
    return compare("german", strength=0.5, strengths=(0.0, 1.0), n_boot=40, seed=1, report=quick.append)


def test_all_methods_are_audited_on_test_rows(result: Comparison) -> None:
    assert list(result.audit.table["model"].unique()) == METHODS
    assert result.audit.context["rows"] == 100
    assert not result.audit.influence.empty
    assert list(result.paper.table["model"].unique()) == METHODS
    assert result.paper.context["replicates"] == 40
    one, other = (
        each.table.set_index(["model", "decisions", "quantity"])["estimate"] for each in (result.audit, result.paper)
    )
    keys = [(model, "threshold", quantity) for model in METHODS for quantity in ("accuracy", "positive_rate")]
    pd.testing.assert_series_equal(one[keys], other[keys])
    assert one["Unconstrained", "score", "p_ypi"] != other["Unconstrained", "score", "p_ypi"]
    share = (load_german().split(random_state=1)[1]["risk"] == "good").mean()
    assert one["FIO", "threshold", "majority_rate"] == pytest.approx(max(share, 1 - share))


def test_modes_are_one_fitted_classifier_that_predicts_in_four_ways() -> None:
    data = load_german()
    X, y = data.frame.drop(columns="risk"), data.frame["risk"]
    fitted = PSCF(data.unfair, epochs=2, samples=5, progress=False, random_state=0)
    with pytest.warns(PyrofairWarning, match="say nothing of a row"):
        fitted.fit(X, y)
    found = modes(fitted)
    assert {name: (each.latents, each.samples) for name, each in found.items()} == {
        "PSCF": ("abducted", 5),
        "PSCF (one draw)": ("abducted", 1),
        "PSCF (latents from the posterior)": ("posterior", 5),
        "PSCF (latents from the prior)": ("prior", 5),
    }
    assert all(each.sem_ is fitted.sem_ for each in found.values())
    X = X.head(100)
    scores = np.array([each.predict_proba(X)[:, 1] for each in found.values()])
    assert np.unique(scores, axis=0).shape[0] == 4
    baseline = (X["sex"] == "female").to_numpy()
    np.testing.assert_allclose(scores[0, baseline], scores[1, baseline], rtol=1e-12)  # a mean of equal scores
    decided = fitted.classes_[(scores[1] > 0.5).astype(int)]
    np.testing.assert_array_equal(fitted.predict(X)[baseline], decided[baseline])
    assert np.mean(fitted.predict(X) == decided) > 0.8  # other draws of the same distributions


def test_the_trade_off_of_both_penalties(result: Comparison) -> None:
    assert list(result.path["method"].unique()) == ["Proposed", "FIO"]
    assert sorted(result.path["strength"].unique()) == [0.0, 1.0]
    assert len(result.path) == 2 * 2 * 2
    plain = result.path[result.path["strength"] == 0.0].drop(columns="method")
    one, other = plain.iloc[:2].reset_index(drop=True), plain.iloc[2:].reset_index(drop=True)
    # Signs given what both worlds share come from one forest for all classifiers of a path.
    ends = ["piu_lower", "piu_upper", "piu_double_disagreement"]
    pd.testing.assert_frame_equal(one.drop(columns=ends), other.drop(columns=ends))
    assert ((one[ends] - other[ends]).abs() < 0.05).all(axis=None)


def test_the_text(result: Comparison) -> None:
    text = result.text
    assert text.startswith(str(result.audit))
    assert (
        "The paper prints as test accuracies: Proposed 75.0, FIO 78.0, PSCF 76.0, Unconstrained 81.0, Remove 73.0."
        in text
    )
    majority = result.audit.table.set_index(["model", "quantity"]).sort_index()["estimate"]["FIO", "majority_rate"]
    assert f"The majority class alone is right for {majority:.1%} of these test rows" in text
    assert "every bound on PIU falls to 0 with a constant classifier" in text
    assert "Each strength starts from the one above, the audited classifiers from scratch" in text
    assert "These numbers rest on:\n  1. The graph is right" in text
    assert "Independent errors across worlds (NPSEM-IE)" in text
    for model in METHODS:
        assert f"\n{model}\n  accuracy " in text
    for mode, what in MODES.items():
        assert f" {mode} {what}." in text
    assert "The thresholded mean of PSCF has an unfair effect of its own" in text
    table = text[text.index("Thresholded decisions on test rows") :].splitlines()
    assert table[1].split()[1:] == [
        "accuracy", "positive_rate", "p_y0", "p_ypi", "mean_unfair_effect", "piu_paper_bound", "piu_lower", "piu_upper",
    ]  # fmt: skip
    assert [line.split("  ")[0] for line in table[3:13]] == METHODS
    assert "and by the paper's weights (inverse probabilities, logistic propensities):" in text
    groups = text[text.index("Either observed group alone (decisions)") : text.index("Trade-off over")]
    assert "and the paper's logistic ones:" in groups
    assert "NaN" not in groups
    assert "<NA>" not in groups


def test_progress_is_reported(result: Comparison, quick: list[str]) -> None:
    steps = [line.partition("s] ")[2] for line in quick]
    assert steps[:7] == [f"training {model}" for model in TRAINED]
    assert steps[7] == "auditing on 100 test rows, one-step estimates"
    assert steps[8] == "auditing again by the paper's weights, 40 bootstrap replicates"
    assert steps[-1] == "done"


def test_files(result: Comparison, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    paths = result.save(folder)
    names = [
        "audit.csv", "groups.csv", "trade-off.csv", "audit.png", "stages.png", "trade-off.png", "reading.txt",
    ]  # fmt: skip
    assert paths == [folder / name for name in names]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*names, "run.json", "cells", "failures"])
    empty = {name: [""] for name in ("estimate", "lower", "upper")}
    read = pd.read_csv(folder / "audit.csv", keep_default_na=False, na_values=empty)
    for source, report in [("one-step", result.audit), ("ipw", result.paper)]:
        part = read[read["source"] == source].drop(columns="source").reset_index(drop=True)
        pd.testing.assert_frame_equal(part, report.table, check_dtype=False)
    groups = pd.read_csv(folder / "groups.csv")
    assert set(groups["source"]) == {"one-step", "ipw"}
    pd.testing.assert_frame_equal(pd.read_csv(folder / "trade-off.csv"), result.path, check_dtype=False)
    assert (folder / "reading.txt").read_text(encoding="utf-8") == result.text + "\n"
    for name in ("audit.png", "stages.png", "trade-off.png"):
        with Image.open(folder / name) as image:
            assert image.width > 900
    result.save(folder)  # again, over the same files
    other = dataclasses.replace(result, settings=result.settings | {"seed": 2})
    with pytest.raises(
        DataError, match=r"holds audit\.csv, .* of another run\. Name another folder, or pass --overwrite"
    ):
        other.save(folder)
    assert json.loads((folder / "run.json").read_text(encoding="utf-8"))["run"]["seed"] == 1
    other.save(folder, overwrite=True)
    assert json.loads((folder / "run.json").read_text(encoding="utf-8"))["run"]["seed"] == 2


def test_unknown_data() -> None:
    with pytest.raises(DataError, match=r"no packaged data set 'german credit'; choose one of 'adult', 'german'"):
        compare("german credit")


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Calls of compare from the command line, none of which computes anything, in a folder of their own."""
    seen: list[Any] = []
    monkeypatch.chdir(tmp_path)

    class Saved:
        text = "the reading"

        def save(self, folder: Path, *, overwrite: bool) -> list[Path]:
            seen.append(folder)
            (folder / "audit.csv").write_text("new")
            return [folder / "audit.csv"]

    def computed(*args: Any, report: Any, **settings: Any) -> Saved:
        seen.append((args, settings))
        report("[    0 s] done")
        return Saved()

    monkeypatch.setattr("pyrofair.reproduce.compare", computed)
    return seen


def test_compare_by_default(calls: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    main(["compare", "adult"])
    folder = Path("compare-adult")
    assert calls == [(("adult",), {"strength": 1.0, "n_boot": 50, "seed": 0, "folder": folder}), folder]
    out = capsys.readouterr().out
    assert out == f"[    0 s] done\nthe reading\nwrote {Path('compare-adult') / 'audit.csv'}\n"


def test_compare_with_options(calls: list[Any]) -> None:
    main(["compare", "german", "--strength", "0", "--replicates", "70", "--seed", "3", "--output", "elsewhere"])
    folder = Path("elsewhere")
    assert calls == [(("german",), {"strength": 0.0, "n_boot": 70, "seed": 3, "folder": folder}), folder]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: command"),
        (["trian"], "invalid choice: 'trian'"),
        (["compare"], "the following arguments are required: data"),
        (["compare", "iris"], "invalid choice: 'iris'"),
        (["compare", "german", "--replicates", "49"], "--replicates must be an integer at least 50, and is 49"),
        (["compare", "german", "--replicates", "many"], "invalid int value: 'many'"),
        (["compare", "german", "--strength", "-1"], "--strength must be a finite number at least 0, and is -1"),
        (["compare", "german", "--strength", "nan"], "--strength must be a finite number at least 0, and is nan"),
        (["compare", "german", "--strength", "inf"], "--strength must be a finite number at least 0, and is inf"),
        (["compare", "german", "--seed", "-1"], "--seed must be an integer at least 0, and is -1"),
    ],
)
def test_wrong_arguments(
    calls: list[Any], capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err
    assert calls == []


def test_an_output_that_is_a_file_or_below_one_is_refused_first(
    calls: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").write_text("mine")
    for output in ("file", "file/below", "file/far/below"):
        with pytest.raises(SystemExit, match="2"):
            main(["compare", "adult", "--output", output])
        assert f"cannot be made: {str(Path('file').absolute())!r} is a file. Name another." in capsys.readouterr().err
    assert calls == []
    assert Path("file").read_text() == "mine"


def test_an_output_that_cannot_be_written_to_is_refused_first(
    calls: list[Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(_cells.tempfile, "TemporaryFile", refused)
    with pytest.raises(SystemExit, match="2"):
        main(["compare", "adult", "--output", "locked"])
    assert "The output folder 'locked' cannot be written to: [Errno 13] Permission denied" in capsys.readouterr().err
    assert calls == []


def test_files_of_another_run_are_kept(calls: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    Path("out").mkdir()
    Path("out/audit.csv").write_text("mine")
    with pytest.raises(SystemExit, match="2"):
        main(["compare", "adult", "--output", "out"])
    assert "'out' holds audit.csv of another run. Name another folder, or pass --overwrite" in capsys.readouterr().err
    assert calls == []
    assert Path("out/audit.csv").read_text() == "mine"
    main(["compare", "adult", "--output", "out", "--overwrite"])
    assert capsys.readouterr().out.startswith("replacing audit.csv in out\n")
    assert Path("out/audit.csv").read_text() == "new"


def test_the_same_run_replaces_its_files_and_reports_it(calls: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    Path("out").mkdir()
    Path("out/audit.csv").write_text("old")
    CellFolder.claimed("out", settings_of("adult", seed=3))
    Path("out/notes.txt").write_text("mine")
    with pytest.raises(SystemExit, match="2"):
        main(["compare", "adult", "--output", "out"])  # another seed
    capsys.readouterr()
    main(["compare", "adult", "--output", "out", "--seed", "3"])
    assert capsys.readouterr().out.startswith("replacing audit.csv in out\n")
    assert Path("out/notes.txt").read_text() == "mine"


class Broken(io.StringIO):
    """A standard output that takes some lines and then fails: a closed pipe, or a full disk."""

    def __init__(self, lines: int, error: Exception) -> None:
        super().__init__()
        self.lines, self.error = lines, error

    def flush(self) -> None:
        self.lines -= 1
        if self.lines < 0:
            raise self.error


@pytest.mark.parametrize("lines", [0, 1, 2])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), BrokenPipeError(32, "Broken pipe")])
def test_a_broken_standard_output_loses_nothing(
    calls: list[Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    lines: int,
    error: Exception,
) -> None:
    monkeypatch.setattr(sys, "stdout", Broken(lines, error))
    with pytest.raises(SystemExit, match="1"):
        main(["compare", "adult", "--output", "out"])
    assert Path("out/audit.csv").read_text() == "new"
    assert f"Standard output cannot be written to ({error}); the results are in out." in capsys.readouterr().err


def test_the_command_line_is_there() -> None:
    done = subprocess.run([sys.executable, "-m", "pyrofair", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"pyrofair {pyrofair.__version__}\n"
    assert done.stderr == ""


def test_help_names_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["compare", "--help"])
    assert "{adult,german}" in capsys.readouterr().out
    assert set(SETTINGS) == {"adult", "german"}


# --- interruption ----------------------------------------------------------------------------------------------------

SHORT_RUN = """
import dataclasses, functools, sys
from pathlib import Path
from sklearn.ensemble import HistGradientBoostingClassifier
from pyrofair.reproduce import SETTINGS, compare
from pyrofair.reproduce import comparison
from pyrofair.sources import OneStep, propensity

SETTINGS["german"] = dataclasses.replace(SETTINGS["german"], epochs=2, pscf={"epochs": 2, "samples": 5})
boosted = lambda **settings: HistGradientBoostingClassifier(**settings | {"max_iter": 2})
propensity.HistGradientBoostingClassifier = boosted
comparison.OneStep = functools.partial(OneStep, propensity="logistic", regression="logistic", folds=2)
compare("german", strength=0.5, strengths=(0.0, 1.0), n_boot=40, seed=1, folder=Path(sys.argv[1]))
"""
"""The run of the fixtures, in a process of its own."""


@pytest.mark.slow
def test_after_a_kill_the_same_call_goes_on_and_gives_the_same(
    result: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-W", "ignore", "-c", SHORT_RUN, str(tmp_path)]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "training FIO" in line:
                process.kill()
    assert any("training FIO" in line for line in lines)  # a line or two more may come before the signal does
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    assert kept
    again: list[str] = []
    settings: dict[str, Any] = {"strength": 0.5, "strengths": (0.0, 1.0), "n_boot": 40, "seed": 1}
    found = compare("german", **settings, folder=tmp_path, report=again.append)
    steps = [line.partition("s] ")[2] for line in again]
    known = sum("was trained before" in step for step in steps[:7])
    assert 4 <= known < 7
    assert steps[:7] == [
        *(f"{name} was trained before" for name in TRAINED[:known]),
        *(f"training {name}" for name in TRAINED[known:]),
    ]
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    same(found, result)
    # A third call has nothing to train, audit or trace.
    for name in ("audit", "penalty_path"):
        monkeypatch.setattr(f"pyrofair.reproduce.comparison.{name}", None)
    third: list[str] = []
    same(compare("german", **settings, folder=tmp_path, report=third.append), result)
    assert sum("was trained before" in line for line in third) == len(TRAINED)
    with pytest.raises(DataError, match=r"finished cells of another run: seed is 1 there and 2 here"):
        compare("german", **settings | {"seed": 2}, folder=tmp_path)


def same(one: Comparison, other: Comparison) -> None:
    """Two comparisons have the same numbers and words."""
    assert one.text == other.text
    for name in ("audit", "paper"):
        for frame in ("table", "groups", "draws", "influence", "stages"):
            pd.testing.assert_frame_equal(*(getattr(getattr(each, name), frame) for each in (one, other)))
        assert str(getattr(one, name)) == str(getattr(other, name))
    pd.testing.assert_frame_equal(one.path, other.path)


def test_a_kept_model_is_trained_only_for_rows_that_it_has_not_scored(tmp_path: Path) -> None:
    cells = CellFolder.claimed(tmp_path, {"run": 1})
    X = pd.DataFrame({"a": [0.0, 1.0, 2.0], "b": ["x", "y", "x"]})

    class Model:
        feature_names_in_ = np.array(["a", "b"], dtype=object)

        def predict_proba(self, rows: pd.DataFrame) -> Any:
            p = rows["a"].to_numpy() / 4
            return np.column_stack([1 - p, p])

    trained: list[int] = []

    def train() -> Model:
        trained.append(1)
        return Model()

    def kept() -> KeptModel:
        return KeptModel("m", cells, train, Model.feature_names_in_, np.array([0, 1]))

    first = kept().predict_proba(X)
    np.testing.assert_array_equal(first, Model().predict_proba(X))
    assert len(trained) == 1
    np.testing.assert_array_equal(kept().predict_proba(X), first)
    assert len(trained) == 1
    np.testing.assert_array_equal(kept().predict_proba(X.iloc[::-1]), first[::-1])  # another order is another table
    assert len(trained) == 2
