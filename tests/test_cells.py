"""Folders of finished results: whole or absent files, damage noticed, other runs refused, a process killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyrofair._cells import Cell, CellFolder, Failure, attempt, cell_name
from pyrofair._files import temporary_beside
from pyrofair.exceptions import DataError, PyrofairWarning

KEY = {"method": "FIO", "n": 500, "seed": 3}
TABLE = pd.DataFrame({"quantity": ["piu", "accuracy"], "estimate": [0.1 + 0.2, np.nan], "count": [1, 2]})


def claimed(folder: Path, **settings: Any) -> CellFolder:
    return CellFolder.claimed(folder / "run", {"strength": 1.0, **settings})


def refused() -> pd.DataFrame:
    raise AssertionError("a finished cell is computed again")


def once(cells: CellFolder, key: dict[str, Any], make: Callable[[], pd.DataFrame], **about: Any) -> Cell | Failure:
    """Return a cell that is finished, or compute it and write the result."""
    found = cells.read(key)
    if not isinstance(found, Cell):
        cells.write(found := attempt(key, make, about))
    return found


def test_a_cell_comes_back_as_it_was_with_what_is_said_about_it(tmp_path: Path) -> None:
    cells = claimed(tmp_path)
    done = once(cells, KEY, TABLE.copy, fingerprint="f")
    assert isinstance(done, Cell)
    back = once(claimed(tmp_path), KEY, refused)
    assert isinstance(back, Cell)
    pd.testing.assert_frame_equal(back.table, TABLE)
    assert back.key == KEY
    assert back.about["fingerprint"] == "f"
    assert back.about["seconds"] == done.about["seconds"] >= 0
    assert cells.has(KEY)
    pd.testing.assert_frame_equal(pd.read_parquet(cells.path(KEY)), TABLE)


def test_a_failure_keeps_its_traceback_and_is_tried_again_or_kept(tmp_path: Path) -> None:
    def divided() -> pd.DataFrame:
        return TABLE / (1 // 0)

    cells = claimed(tmp_path)
    found = once(cells, KEY, divided)
    assert isinstance(found, Failure)
    assert found.error == "ZeroDivisionError: integer division or modulo by zero"
    assert "in divided" in found.traceback
    kept = cells.read(KEY)
    assert isinstance(kept, Failure)
    assert kept.traceback == found.traceback
    assert isinstance(once(cells, KEY, TABLE.copy), Cell)
    assert list(cells.failed.iterdir()) == []


def test_an_interrupt_is_no_failure(tmp_path: Path) -> None:
    def interrupted() -> pd.DataFrame:
        raise KeyboardInterrupt

    cells = claimed(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        once(cells, KEY, interrupted)
    assert cells.read(KEY) is None


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def one_value_changed(content: bytes) -> bytes:
    return content.replace(np.float64(0.1 + 0.2).tobytes(), np.float64(0.4).tobytes())


@pytest.mark.parametrize("damage", [truncated, lambda _: b"", one_value_changed])
def test_a_damaged_file_is_named_and_its_cell_computed_again(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    cells = claimed(tmp_path)
    table = TABLE.assign(estimate=[0.1 + 0.2, 0.7])
    once(cells, KEY, table.copy)
    before = cells.path(KEY).read_bytes()
    cells.path(KEY).write_bytes(damage(before))
    assert cells.path(KEY).read_bytes() != before
    with pytest.warns(PyrofairWarning, match=f"{cell_name(KEY)}.parquet' is damaged and is not used"):
        again = once(cells, KEY, table.copy)
    assert isinstance(again, Cell)
    pd.testing.assert_frame_equal(again.table, table)
    assert isinstance(once(cells, KEY, refused), Cell)


def test_a_changed_byte_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    cells = claimed(tmp_path)
    once(cells, KEY, TABLE.copy, fingerprint="f")
    path = cells.path(KEY)
    content = path.read_bytes()
    noticed = 0
    for place in np.random.default_rng(0).choice(len(content), 300, replace=False):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            cell = cells.read(KEY)
        noticed += len(found)
        if not found:
            assert isinstance(cell, Cell)
            pd.testing.assert_frame_equal(cell.table, TABLE)
            assert (cell.key, cell.about["fingerprint"]) == (KEY, "f")
    assert noticed > 60


def test_a_damaged_failure_and_the_file_of_another_cell_are_not_used(tmp_path: Path) -> None:
    cells = claimed(tmp_path)
    other = KEY | {"seed": 4}
    cells.write(attempt(other, TABLE.copy))
    cells.path(other).rename(cells.path(KEY))
    with pytest.warns(PyrofairWarning, match="it is of the cell"):
        assert cells.read(KEY) is None
    cells.path(KEY).unlink()
    path = cells.write(Failure(KEY, "ValueError: no", "traceback"))
    path.write_text(path.read_text()[:20])
    with pytest.warns(PyrofairWarning, match="damaged"):
        assert cells.read(KEY) is None


def test_a_folder_of_another_run_is_refused_with_what_differs(tmp_path: Path) -> None:
    cells = claimed(tmp_path, sizes=[1, 2], audit={"n_boot": 50})
    once(cells, KEY, TABLE.copy)
    with pytest.raises(DataError, match=r"holds 1 finished cell of another run: audit.n_boot is 50 there and 60 here"):
        claimed(tmp_path, sizes=[1, 2], audit={"n_boot": 60})
    with pytest.raises(DataError, match=r"audit is .* not given here; sizes is \[1, 2\] there and \[1\] here"):
        claimed(tmp_path, sizes=[1])
    assert isinstance(claimed(tmp_path, audit={"n_boot": 50}, sizes=(1, 2)).read(KEY), Cell)
    with pytest.raises(DataError, match=r"A run with other settings is working in the folder"):
        CellFolder.claimed(cells.folder, {"strength": 2.0}, overwrite=True)
    cells.release()
    other = CellFolder.claimed(cells.folder, {"strength": 2.0}, overwrite=True)
    assert other.read(KEY) is None
    with pytest.raises(DataError, match=r"strength is 2.0 there and 1.0 here"):
        claimed(tmp_path)


def test_cells_that_nothing_identifies_are_never_deleted(tmp_path: Path) -> None:
    cells = claimed(tmp_path)
    once(cells, KEY, TABLE.copy)
    for content in ('{"strength": 1.0}', "{", None):
        run = cells.folder / "run.json"
        run.unlink() if content is None else run.write_text(content)
        with pytest.raises(DataError, match=r"of another run, which its run\.json does not identify"):
            CellFolder.claimed(cells.folder, {"strength": 1.0}, overwrite=True)
        assert cells.has(KEY)


def test_a_place_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(DataError, match="file' is a file"):
            CellFolder.claimed(folder, {})
    with pytest.raises(DataError, match="must be the path of a folder"):
        CellFolder.claimed(3, {})  # type: ignore[arg-type]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "cells").touch()
    with pytest.raises(DataError, match="cells' is a file"):
        claimed(tmp_path)


@pytest.mark.parametrize("value", [object(), np.inf, {1: object()}])
def test_keys_and_settings_are_what_json_holds(value: object, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must be text, finite numbers and lists of them"):
        cell_name({"method": value})
    with pytest.raises(DataError, match="The settings of a run"):
        claimed(tmp_path, value=value)
    assert not (tmp_path / "run").exists()


def test_names_of_files_are_safe_distinct_and_readable(tmp_path: Path) -> None:
    names = [
        "../../x",
        "a/b",
        "a_b",
        "a\\b",
        "é",
        "ü",
        "",
        ".",
        "..",
        "con",
        "x" * 1000,
        "y\n\0",
        "a b",
        "A b",
        "\ud800",
    ]
    keys = [{"method": name, "seed": seed} for name in names for seed in (1, "1", 1.5)]
    cells = claimed(tmp_path)
    paths = {cells.path(key).name.casefold() for key in keys}
    assert len(paths) == len(keys)
    for key in keys:
        assert cells.path(key).parent == cells.cells
        assert len(cell_name(key)) <= 90
        assert cell_name(key).isascii()
    assert cell_name({"seed": 3, "n": 1}) == cell_name({"n": 1, "seed": np.int64(3)})
    assert cell_name(KEY).startswith("FIO-500-3-")
    for key in keys:
        cells.write(attempt(key, TABLE.copy))
    assert all(isinstance(cells.read(key), Cell) for key in keys)


def test_what_a_killed_process_left_is_swept_when_nobody_writes(tmp_path: Path) -> None:
    cells = claimed(tmp_path)
    left = temporary_beside(cells.path(KEY))
    left.touch()
    claimed(tmp_path).release()
    assert left.exists(), "another run may be writing it"
    cells.release()
    claimed(tmp_path)
    assert not left.exists()


def test_files_of_a_folder_that_is_held_alone(tmp_path: Path) -> None:
    (tmp_path / "audit.csv").touch()
    with pytest.raises(DataError, match=r"holds audit\.csv of another run"):
        CellFolder.claimed(tmp_path, {}, share=False, files=["audit.csv"])
    cells = CellFolder.claimed(tmp_path, {}, share=False, files=["audit.csv"], overwrite=True)
    with pytest.raises(DataError, match="Another run is working in the folder"):
        CellFolder.claimed(tmp_path, {})
    cells.release()
    CellFolder.claimed(tmp_path, {}, share=False, files=["audit.csv"])


def test_a_cell_that_cannot_be_kept_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    cells = claimed(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(PyrofairWarning, match=rf"{cell_name(KEY)}\.parquet' cannot be written .*No space left"):
        cells.keep(Cell(KEY, TABLE))
    assert not cells.has(KEY)


WRITING = """
import json, sys, pandas as pd
from pathlib import Path
from pyrofair._cells import Cell, CellFolder
for _ in range(30):
    CellFolder(Path(sys.argv[1])).write(Cell(json.loads(sys.argv[2]), pd.DataFrame({"value": [int(sys.argv[3])] * 50})))
"""


def test_writers_at_the_same_time_leave_a_whole_file(tmp_path: Path) -> None:
    cells = claimed(tmp_path)
    given = [sys.executable, "-c", WRITING, str(cells.folder), json.dumps(KEY)]
    writers = [subprocess.Popen([*given, str(value)]) for value in (1, 2)]
    while any(writer.poll() is None for writer in writers):
        found = cells.read(KEY)  # damage would warn, an error here
        assert found is None or len(set(found.table["value"])) == 1
    assert [writer.returncode for writer in writers] == [0, 0]
    assert len(list(cells.cells.iterdir())) == 1


KILLED = """
import sys, pandas as pd
from pyrofair._cells import Cell, CellFolder
cells = CellFolder.claimed(sys.argv[1], {})
for seed in range(10_000):
    if not cells.has({"seed": seed}):
        cells.write(Cell({"seed": seed}, pd.DataFrame({"x": range(seed, seed + 1000)})))
    print(seed, flush=True)
"""


def test_a_process_killed_loses_no_finished_cell(tmp_path: Path) -> None:
    for _ in range(2):  # the second goes on from the first
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        last = [int(process.stdout.readline()) for _ in range(25)][-1]
        process.send_signal(signal.SIGKILL)
        with process.stdout:
            last = max([last, *map(int, process.stdout.read().split())])
        process.wait()
    cells = CellFolder.claimed(tmp_path, {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(last + 1):
            found = once(cells, {"seed": seed}, refused)
            assert isinstance(found, Cell)
            assert found.table["x"].tolist() == list(range(seed, seed + 1000))
    assert json.loads((tmp_path / "run.json").read_text()) == {"format": 1, "run": {}}
