"""The main job, with training cut short, and its command."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from pyrofair import PSCF, OneStep, _files
from pyrofair.__main__ import main
from pyrofair._cells import CellFolder
from pyrofair._progress import progress_bar
from pyrofair.audits.report import group_lines
from pyrofair.commands import comparison
from pyrofair.commands.comparison import FILES, MODES, SETTINGS, USUAL, Comparison, Remembering, compare
from pyrofair.datasets import load_german

TRAINED = ["Unconstrained", "Remove (touched)", "Remove (descendants)", "Proposed", "FIO", "Proposed given S", "PSCF"]
METHODS = [*TRAINED[:-1], *MODES]
SHOWN: list[tuple[str, int]] = []
USUALLY = [*TRAINED[:-1], *USUAL]
RUN = {"strength": 0.5, "strengths": (0.0, 1.0), "n_boot": 10, "seed": 1}


def recorded(desc: str, *, total: int) -> Any:
    bar = progress_bar(desc, total=total)
    bar.set_description = lambda text, **_: SHOWN.append((text, total))
    return bar


@pytest.fixture(scope="module")
def short() -> Iterator[None]:
    """German with two epochs and logistic nuisances."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(SETTINGS, "german", dataclasses.replace(SETTINGS["german"], epochs=2))
        patched.setattr(comparison, "PSCF", functools.partial(PSCF, epochs=2, samples=5))
        plain = {"propensity": "logistic", "regression": "logistic", "folds": 2}
        patched.setattr(comparison, "progress_bar", recorded)
        patched.setattr(comparison, "OneStep", functools.partial(OneStep, **plain))
        yield


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return []


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> CellFolder:
    return CellFolder.claimed(tmp_path_factory.mktemp("compare"), {"run": 1})


@pytest.fixture(scope="module")
def result(short: None, lines: list[str], cells: CellFolder) -> Comparison:
    return compare("german", cells, report=lines.append, every=True, **RUN)


def steps(lines: list[str]) -> list[str]:
    return [line.partition("s] ")[2] for line in lines]


def test_all_methods_are_audited_on_test_rows_and_traced(result: Comparison) -> None:
    one, other = result.audit, result.paper
    assert [list(each.table["model"].unique()) for each in (one, other)] == [METHODS, METHODS]
    assert (one.context["rows"], other.context["replicates"]) == (100, 10)
    by = ["model", "decisions", "quantity"]
    estimates = [each.table.set_index(by)["estimate"].sort_index() for each in (one, other)]
    keys = [(model, "threshold", quantity) for model in METHODS for quantity in ("accuracy", "positive_rate")]
    pd.testing.assert_series_equal(*(each[keys] for each in estimates))
    effects = [each["Unconstrained", "score", "p_ypi"] for each in estimates]
    assert effects[0] != effects[1]
    share = (load_german().split(random_state=1)[1]["risk"] == "good").mean()
    assert estimates[0]["FIO", "threshold", "majority_rate"] == pytest.approx(max(share, 1 - share))
    assert len({tuple(estimates[0][mode, "score"].round(12)) for mode in MODES}) == 4
    # Without a penalty both paths are of one classifier; signs given what is shared come from a forest for each path.
    plain = [result.path[(result.path["method"] == name) & (result.path["strength"] == 0)] for name in TRAINED[3:5]]
    shared = ["method", "piu_lower", "piu_upper", "piu_double_disagreement"]
    pd.testing.assert_frame_equal(*(each.drop(columns=shared).reset_index(drop=True) for each in plain))
    assert len(result.path) == 2 * 2 * 2


def test_both_audits_score_a_row_once() -> None:
    asked: list[int] = []

    class Counted:
        def predict_proba(self, X: pd.DataFrame) -> Any:
            asked.extend(X["a"])
            return pd.DataFrame({0: 1 - X["a"] / 10, 1: X["a"] / 10}).to_numpy()

    model = Remembering(Counted())
    rows = pd.DataFrame({"a": [3, 1, 3, 2]}, index=[7, 7, 8, 9])
    assert model.predict_proba(rows)[:, 1].tolist() == [0.3, 0.1, 0.3, 0.2]
    assert model.predict_proba(rows.iloc[[2, 1]].assign(a=[2, 4]))[:, 1].tolist() == [0.2, 0.4]
    assert asked == [3, 1, 2, 4]


def test_the_text(result: Comparison) -> None:
    text = result.text
    assert "Proposed 75.0, FIO 78.0, PSCF 76.0, Unconstrained 81.0, Remove 73.0" in text
    majority = result.audit.table.set_index(["model", "quantity"]).sort_index()["estimate"]["FIO", "majority_rate"]
    assert f"{majority:.1%}" in text
    table = text.splitlines()
    assert table[1].split()[1:] == [
        "accuracy", "positive_rate", "p_y0", "p_ypi", "mean_unfair_effect", "piu_paper_bound", "piu_lower", "piu_upper",
    ]  # fmt: skip
    assert [line.split("  ")[0] for line in table[3:13]] == METHODS
    assert "--all" not in text
    assert text.count(str(result.audit)) == 1
    groups = "\n".join(group_lines(result.paper.groups, result.paper.context))
    assert groups in text
    assert "NaN" not in groups
    assert "<NA>" not in groups


def test_files(result: Comparison, tmp_path: Path) -> None:
    assert result.save(tmp_path) == [tmp_path / name for name in FILES]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
    empty = {name: [""] for name in ("estimate", "lower", "upper")}
    read = pd.read_csv(tmp_path / "audit.csv", keep_default_na=False, na_values=empty)
    for source, report in [("one-step", result.audit), ("ipw", result.paper)]:
        part = read[read["source"] == source].drop(columns="source").reset_index(drop=True)
        pd.testing.assert_frame_equal(part, report.table, check_dtype=False)
    assert set(pd.read_csv(tmp_path / "groups.csv")["source"]) == {"one-step", "ipw"}
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "trade-off.csv"), result.path, check_dtype=False)
    assert (tmp_path / "reading.txt").read_text(encoding="utf-8") == result.text + "\n"
    for name in ("audit.png", "stages.png", "trade-off.png"):
        with Image.open(tmp_path / name) as image:
            assert image.width > 900


def test_an_interrupted_comparison_goes_on_and_gives_the_same(
    result: Comparison, lines: list[str], cells: CellFolder
) -> None:
    expected = [f"training {name}" for name in TRAINED]
    assert [step for step in steps(lines) if step.startswith("training")] == expected
    assert steps(lines)[-1] == "done"
    assert [(step, len(lines)) for step in steps(lines)] == SHOWN  # the bar is at each stage
    # As if it had been ended while it wrote the last classifier, and before the last trade-off was finished.
    cells.path({"part": "trade-off", "model": "FIO", "strengths": [0.0, 1.0]}).unlink()
    model = cells.path({"part": "model", "model": "PSCF"}).with_suffix(".pyrofair")
    model.write_bytes(model.read_bytes()[:-1])
    again: list[str] = []
    found = compare("german", cells, report=again.append, **RUN)  # of fewer modes
    done = [f"{name} was trained before" for name in TRAINED[:-1]]
    traced = [step for step in steps(lines) if "trade-off of FIO" in step]
    assert steps(again)[1:9] == [*done, "training PSCF", *traced]
    pd.testing.assert_frame_equal(found.path, result.path)
    same = result.audit.influence[USUALLY]
    pd.testing.assert_frame_equal(found.audit.influence[USUALLY], same)
    assert [*found.audit.table["model"].unique()] == USUALLY
    below = found.text.splitlines()[3 + len(USUALLY)]
    assert all(part in below for part in (*(mode for mode in MODES if mode not in USUAL), "compare german --all"))


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Calls of compare by the command, none of which computes anything, in a folder of their own."""
    seen: list[Any] = []
    monkeypatch.chdir(tmp_path)

    class Saved:
        text = "the reading"

        def save(self, folder: Path) -> list[Path]:
            (folder / "audit.csv").write_text("new")
            return [folder / "audit.csv"]

    def computed(name: str, cells: CellFolder, *, report: Any, **settings: Any) -> Saved:
        seen.append((name, cells.folder.relative_to(tmp_path), settings))
        report("[    0 s] done")
        return Saved()

    monkeypatch.setattr(comparison, "compare", computed)
    return seen


def test_compare_with_options(calls: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    main(["compare", "adult"])
    folder = Path("compare-adult")
    assert calls == [("adult", folder, {"strength": 1.0, "n_boot": 50, "seed": 0, "every": False})]
    assert capsys.readouterr().out == f"[    0 s] done\nthe reading\nwrote {folder / 'audit.csv'}\n"
    main(
        ["compare", "german", "--strength", "0", "--replicates", "70", "--seed", "3", "--output", "elsewhere", "--all"]
    )
    assert calls[1] == ("german", Path("elsewhere"), {"strength": 0.0, "n_boot": 70, "seed": 3, "every": True})


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["data"]),
        (["iris"], ["iris", "adult", "german"]),
        (["german", "--replicates", "49"], ["--replicates", "50", "49"]),
        (["german", "--replicates", "many"], ["--replicates", "many"]),
        (["german", "--strength", "-1"], ["--strength", "-1"]),
        (["german", "--strength", "nan"], ["--strength", "nan"]),
        (["german", "--strength", "inf"], ["--strength", "inf"]),
        (["german", "--seed", "-1"], ["--seed", "-1"]),
    ],
)
def test_wrong_arguments(
    calls: list[Any], capsys: pytest.CaptureFixture[str], arguments: list[str], parts: list[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["compare", *arguments])
    message = capsys.readouterr().err.lower()
    assert [part for part in parts if part not in message] == []
    assert calls == []


def test_an_output_that_cannot_be_used_is_refused_first(
    calls: list[Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").write_text("mine")
    for output in ("file", "file/far/below"):
        with pytest.raises(SystemExit, match="2"):
            main(["compare", "adult", "--output", output])
        assert repr(str(Path("file").absolute())) in capsys.readouterr().err
    assert Path("file").read_text() == "mine"

    def refused(**_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(_files.tempfile, "TemporaryFile", refused)
    with pytest.raises(SystemExit, match="2"):
        main(["compare", "adult", "--output", "locked"])
    assert "'locked' cannot be written to: [Errno 13] Permission denied" in capsys.readouterr().err
    assert calls == []


def test_files_of_another_run_are_kept_and_those_of_the_same_replaced(
    calls: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("out").mkdir()
    Path("out/audit.csv").write_text("mine")
    with pytest.raises(SystemExit, match="2"):
        main(["compare", "adult", "--output", "out"])
    message = capsys.readouterr().err
    assert all(part in message for part in ("out'", "audit.csv", "--overwrite"))
    assert Path("out/audit.csv").read_text() == "mine"
    main(["compare", "adult", "--output", "out", "--overwrite"])
    assert capsys.readouterr().out.startswith("replacing audit.csv in out\n")
    assert Path("out/audit.csv").read_text() == "new"
    Path("out/notes.txt").write_text("mine")
    with pytest.raises(SystemExit, match="2"):
        main(["compare", "adult", "--output", "out", "--seed", "3"])
    capsys.readouterr()
    main(["compare", "adult", "--output", "out"])
    assert capsys.readouterr().out.startswith("replacing audit.csv in out\n")
    assert Path("out/notes.txt").read_text() == "mine"
    Path("out/audit.csv").unlink()  # the finished cells are those of another run as well
    with pytest.raises(SystemExit, match="2"):
        main(["compare", "adult", "--output", "out", "--seed", "3"])
    assert "seed is 0 there and 3 here" in capsys.readouterr().err
    assert len(calls) == 2
