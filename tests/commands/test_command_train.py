"""``pyrofair train`` and ``pyrofair path``: classifiers fitted on a table, saved, judged and chosen."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pyrofair as pf
from pyrofair._files import FolderLock
from pyrofair.exceptions import PyrofairWarning

GRAPH = "A -> M; {A M} -> Y"
QUESTION = ("--graph", GRAPH, "--sensitive", "A", "--outcome", "Y", "--unfair", "A -> Y")
QUICK = ("--model", "logistic", "--epochs", "40", "--starts", "1", "--propensity", "saturated")
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(call_here: Call, no_pictures: None) -> Call:
    """Run a command beside a table to train on and one to test on."""
    table(0).to_csv("train.csv", index=False)
    table(1).to_csv("test.csv", index=False)
    return call_here


def table(seed: int, n: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    m = (rng.random(n) < 0.3 + 0.4 * a).astype(int)
    y = (rng.random(n) < 0.1 + 0.5 * a + 0.3 * m).astype(int)
    return pd.DataFrame({"A": a, "M": m, "Y": y})


def test_train_then_audit(call: Call) -> None:
    code, out, err = call("train", "train.csv", *QUESTION, *QUICK, "--strength", "2", "--seed", "3")
    assert (code, err) == (0, "")
    assert "logistic that reads A, M; penalised: 2 times disagreement, by ipw." in out
    assert "audit the model on rows held out" in out
    df = table(0)
    unfair = pf.CausalGraph(GRAPH, sensitive="A", outcome="Y").unfair("A -> Y")
    same = pf.PenalizedClassifier(
        "logistic", source=pf.IPW(unfair, propensity="saturated", random_state=3), strength=2.0, epochs=40, starts=1,
        progress=False, random_state=3,
    ).fit(df[["A", "M"]], df["Y"])  # fmt: skip
    saved = pf.load("train-train/model.pyrofair")
    assert np.array_equal(saved.predict_proba(df[["A", "M"]]), same.predict_proba(df[["A", "M"]]))
    accuracy, share = saved.score(df[["A", "M"]], df["Y"]), df["Y"].mean()
    assert f"accuracy {accuracy:.1%}, majority class {max(share, 1 - share):.1%}, positive decisions " in out
    assert len(pd.read_csv("train-train/training.csv")) == 40
    code, out, _ = call("audit", "test.csv", *QUESTION, "--model", "penalised=train-train/model.pyrofair",
                        "--propensity", "saturated", "--regression", "saturated")  # fmt: skip
    assert code == 0
    assert "\npenalised: " in out
    again = call("train", "--config", "train-train/settings.toml")
    assert again[0] == 0


def test_held_out_rows_are_audited_and_not_trained_on(call: Call) -> None:
    weighted = table(0).assign(w=np.arange(400) % 3 + 1.0)
    weighted.to_csv("train.csv", index=False)
    code, out, _ = call("train", "train.csv", *QUESTION, *QUICK, "--held-out", ".3", "--weight", "w")
    assert code == 0
    assert "pyrofair train on train.csv\n" in out
    assert "\n280 rows.\n" in out
    assert "On the 120 rows held out:" in out
    held, trained = pd.read_csv("train-train/held-out.csv"), pf.load("train-train/model.pyrofair")
    assert Path("train-train/held-out.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    left = np.sort(np.split(np.random.RandomState(0).permutation(400), [120])[0])
    rows = weighted.iloc[left]
    right = trained.predict(rows[["A", "M"]]) == rows["Y"]
    accuracy = held.query("quantity == 'accuracy'")["estimate"].item()
    assert accuracy == pytest.approx(np.average(right, weights=rows["w"]))


def test_remove_leaves_columns_out(call: Call) -> None:
    code, out, _ = call("train", "train.csv", *QUESTION, *QUICK, "--strength", "0", "--remove", "touched")
    assert code == 0
    assert "logistic that reads M; penalised: nothing" in out


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("train", ("--patience", "3"), "--patience needs rows that choose the epoch, --validation-fraction"),
        ("train", ("--strength", "-1"), "--strength.*-1"),
        ("train", ("--held-out", "1"), "--held-out.*1"),
        ("train", ("--penalty", "effect"), "--penalty.*'effect'.*'effect_gap'"),
        ("train", ("--draws", "3"), "--draws belongs to --source gcomputation, and not to --source ipw"),
        ("train", ("--device", "abacus"), "device='abacus' is not available"),
        ("train", ("--regression", "boosted"), "--regression"),
        ("path", ("--at-most", ".1", "--accuracy-loss", ".1"), "two ways to choose"),
        ("path", ("--quantity", "piu_lower"), "give --at-most or --accuracy-loss"),
        ("path", ("--test", "test.csv", "--held-out", ".5"), "--held-out is a part of DATA"),
        ("path", ("--strengths", "0"), "--strengths must hold one above 0"),
        ("path", ("--strengths", "-1"), "--strengths.*-1"),
        ("path", ("--test", "tst.csv"), "there is no file 'tst.csv'.*Did you mean 'test.csv'"),
    ],
)
def test_wrong_settings(call: Call, command: str, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = call(command, "train.csv", *QUESTION, *QUICK, *arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err), err
    assert not Path(f"{command}-train").exists()


def test_a_path_and_a_choice(call: Call) -> None:
    arguments = ("path", "train.csv", *QUESTION, *QUICK, "--strengths", "0", "4", "--test", "test.csv", "--starts", "4",
                 "--quantity", "mean_unfair_effect")  # fmt: skip
    code, out, err = call(*arguments, "--at-most", "0.2")
    assert (code, err) == (0, "")
    assert "Chosen by --at-most 0.2 of mean_unfair_effect: strength 4, seed 0, saved as model.pyrofair" in out
    folder = Path("path-train")
    assert {"path.csv", "intervals.csv", "path.png", "report.txt", "model.pyrofair", "settings.toml"} <= {
        path.name for path in folder.iterdir()
    }
    assert pf.load(folder / "model.pyrofair").strength == 4.0
    assert sorted(pd.read_csv(folder / "path.csv")["strength"].unique()) == [0.0, 4.0]
    weak = [*arguments, "--at-most", "0.0001", "--overwrite"]
    weak[weak.index("4")] = ".01"
    code, out, _ = call(*weak)
    assert code == 3
    assert "No classifier is chosen: No classifier of the path has mean_unfair_effect below 0.0001" in out
    assert not (folder / "model.pyrofair").exists(), "of another run"
    assert (folder / "path.csv").exists()


def test_a_classifier_that_cannot_be_saved_does_not_lose_the_path(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: Any, path: Path) -> None:
        raise pf.DataError("the encoder cannot be saved")

    monkeypatch.setattr(pf, "save", broken, raising=False)
    code, out, _ = call("path", "train.csv", *QUESTION, *QUICK, "--strengths", "1", "--accuracy-loss", ".5")
    assert code == 1
    assert "model.pyrofair could not be saved: DataError: the encoder cannot be saved" in out
    assert "saved as" not in out
    assert {"path.csv", "run.json"} <= {path.name for path in Path("path-train").iterdir()}


def test_an_interrupted_path_writes_what_is_finished(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pf.penalty_path

    def interrupted(*args: Any, **settings: Any) -> Any:
        import warnings

        path = whole(*args, **settings | {"strengths": [4.0]})
        warnings.warn("Interrupted in seed 0", PyrofairWarning, stacklevel=1)
        return path

    monkeypatch.setattr("pyrofair.audits.penalty_path", interrupted)
    code, out, _ = call("path", "train.csv", *QUESTION, *QUICK, "--strengths", "0", "4")
    assert code == 130
    assert "Warning: Interrupted in seed 0" in out
    assert pd.read_csv("path-train/path.csv")["strength"].unique() == [4.0]


def test_an_interrupt_before_anything_is_finished(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pf.PenalizedClassifier, "fit", stop)
    code, out, err = call("train", "train.csv", *QUESTION, *QUICK)
    assert (code, out, err) == (130, "", "Interrupted. Nothing was written.\n")
    assert not Path("train-train").exists()


def test_a_failure_is_a_message_unless_a_traceback_is_asked_for(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("no luck")

    monkeypatch.setattr(pf.PenalizedClassifier, "fit", broken)
    code, out, err = call("train", "train.csv", *QUESTION, *QUICK)
    assert (code, out) == (1, "")
    assert err == "pyrofair train: failed: KeyError: 'no luck' --traceback shows where.\n"
    with pytest.raises(KeyError, match="no luck"):
        call("train", "train.csv", *QUESTION, *QUICK, "--traceback")


def test_a_full_standard_output_loses_nothing(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, _: str) -> None:
            raise OSError(28, "No space left on device")

        def flush(self) -> None:
            pass

    monkeypatch.setattr(sys, "stdout", Full())
    code, _, err = call("train", "train.csv", *QUESTION, *QUICK)
    assert code == 1
    assert "Standard output cannot be written to ([Errno 28] No space left on device); the results are in train-" in err
    assert Path("train-train/model.pyrofair").exists()


def test_results_that_cannot_be_written_are_printed_and_leave_the_earlier_ones(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(model: Any, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    first = call("train", "train.csv", *QUESTION, *QUICK)[1]
    before = Path("train-train/model.pyrofair").read_bytes()
    monkeypatch.setattr(pf, "save", broken, raising=False)
    code, out, err = call("train", "train.csv", *QUESTION, *QUICK)
    assert code == 1
    assert out == first.partition("\nThe results are in")[0]
    assert "train-train/model.pyrofair' cannot be written: [Errno 28] No space left on device" in err
    assert Path("train-train/model.pyrofair").read_bytes() == before
    assert not [path for path in Path("train-train").iterdir() if path.name.startswith(".")]


def test_a_folder_in_which_another_run_works_is_refused(call: Call, tmp_path: Path) -> None:
    for command, folder in (("train", "train-train"), ("path", "path-train")):
        (tmp_path / folder).mkdir()
        lock = FolderLock(tmp_path / folder)
        code, out, err = call(command, "train.csv", *QUESTION, *QUICK)
        assert (code, out) == (2, "")
        assert f"Another run is working in the folder {str(tmp_path / folder)!r}" in err
        lock.release()
        assert (tmp_path / folder).is_dir(), "this run did not make it"


def test_a_run_that_was_killed_while_it_wrote_is_repeated(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each renaming in turn is the last thing that the process does."""
    arguments = ("train", "train.csv", *QUESTION, *QUICK)
    assert call(*arguments)[0] == 0
    before = {path.name: path.read_bytes() for path in Path("train-train").iterdir()}
    rename = Path.replace
    for last in range(len(before) + 2):
        done: list[Path] = []

        def until(self: Path, target: Path, done: list[Path] = done, last: int = last) -> Path:
            if len(done) == last:
                raise SystemExit(9)
            done.append(self)
            return rename(self, target)

        for path in Path("train-train").iterdir():
            path.unlink()
        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", until)
            patched.setattr(Path, "unlink", lambda *_, **__: None)  # of a killed process nothing is cleared away
            assert call(*arguments)[0] == (9 if last < len(before) + 1 else 0)
        assert call(*arguments)[0] == 0
        assert {path.name: path.read_bytes() for path in Path("train-train").iterdir()} == before


def test_missing_values_count_as_values(call: Call) -> None:
    for seed, name in enumerate(("train.csv", "test.csv")):
        lost = np.random.default_rng(seed).random(400) < 0.1 + 0.2 * table(seed)["A"]
        table(seed).assign(M=lambda df, lost=lost: df["M"].mask(lost)).to_csv(name, index=False)
    code, _, err = call("train", "train.csv", *QUESTION, *QUICK)
    assert code == 2
    assert "--missing-as-value" in err
    both = (*QUESTION, *QUICK, "--missing-as-value")
    code, out, err = call("train", "train.csv", *both, "--strength", "2", "--held-out", ".4")
    assert (code, err) == (0, "")
    assert "M may be missing" in out
    assert "Missing values, share of rows" in Path("train-train/report.txt").read_text(encoding="utf-8")
    assert len(pf.load("train-train/model.pyrofair").predict(pd.DataFrame({"A": [0, 1], "M": [np.nan, 1.0]}))) == 2
    code, out, _ = call("path", "train.csv", *both, "--test", "test.csv", "--strengths", "0", "4", "--quantity",
                        "mean_unfair_effect", "--at-most", "1")  # fmt: skip
    assert code == 0
    assert "M may be missing" in out
    effect = pd.read_csv("path-train/path.csv").query("decisions == 'score'").set_index("strength")
    assert effect["mean_unfair_effect"][0.0] > effect["mean_unfair_effect"][4.0]
