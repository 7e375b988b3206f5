"""Files are whole on any file system, a folder has one run at a time, and no cell of a CSV is a formula."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pyrofair import DataError, PyrofairWarning, _files
from pyrofair._files import FolderLock, csv_text, made_folder, sweep, temporary_beside, write_whole

HOLD = """
import sys, time
from pathlib import Path
from pyrofair._files import FolderLock
lock = FolderLock(Path(sys.argv[1]), share=sys.argv[2] == "share")
if sys.argv[2] == "share":
    lock.share()
print("held", flush=True)
time.sleep(300)
"""


def holder(folder: Path, how: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder), how], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize("how", ["alone", "share"])
def test_a_folder_is_held_until_its_process_ends(how: str, tmp_path: Path) -> None:
    process = holder(tmp_path, how)
    with pytest.raises(DataError, match=f"Another run is working in the folder {str(tmp_path)!r}"):
        FolderLock(tmp_path)
    if how == "share":
        shared = FolderLock(tmp_path, share=True)
        assert not shared.alone
        shared.release()
        assert (tmp_path / ".lock").exists(), "the other one holds it"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    lock = FolderLock(tmp_path)  # what is left of a killed process holds nothing
    assert lock.alone
    lock.release()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_shared_only_if_both_share_it(tmp_path: Path) -> None:
    first = FolderLock(tmp_path, share=True)
    assert first.alone
    first.share()
    second = FolderLock(tmp_path, share=True)
    assert (first.alone, second.alone) == (False, False)
    with pytest.raises(DataError, match="Another run"):
        FolderLock(tmp_path)
    copied = pickle.loads(pickle.dumps(second))
    copied.release()
    assert (tmp_path / ".lock").exists()
    first.release()
    second.release()
    second.release()
    FolderLock(tmp_path).release()
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(file: int, *, alone: bool) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(_files, "_lock", none)
    with pytest.warns(PyrofairWarning, match=r"has no locks .*No locks available.* two runs"):
        lock = FolderLock(tmp_path)
    lock.share()
    lock.release()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(params=["links and fsync", "no links", "no fsync of folders", "no fsync"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What file systems lack."""
    force = os.fsync

    def linked(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    def forced(file: int) -> None:
        folder = os.path.isdir(f"/proc/self/fd/{file}")
        if request.param == "no fsync" or folder:
            raise OSError(errno.EINVAL if request.param == "no fsync" else errno.EACCES, "not here")
        force(file)

    if request.param == "no links":
        monkeypatch.setattr(os, "link", linked)
    elif request.param != "links and fsync":
        monkeypatch.setattr(os, "fsync", forced)


def test_files_are_whole_on_any_file_system(system: None, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    write_whole(path, b"one", replace=False)
    with pytest.raises(FileExistsError):
        write_whole(path, b"two", replace=False)
    assert path.read_bytes() == b"one"
    write_whole(path, b"three")
    assert path.read_bytes() == b"three"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_a_full_disk_leaves_the_earlier_file_and_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "x.txt"
    path.write_bytes(b"one")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*x\.txt'"):
        write_whole(path, b"two")
    assert path.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    for name in (".notes", ".x.tmp", "mine.tmp"):
        (tmp_path / name).touch()
    temporary_beside(tmp_path / "report.txt").touch()
    sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".notes", ".x.tmp", "mine.tmp"]


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "\ud800", ""])
def test_what_can_name_no_folder_is_refused(name: str) -> None:
    with pytest.raises(DataError, match="cannot be the path of a folder"):
        made_folder(name)


def test_cells_of_a_csv_are_no_formulas(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "=1+1": ["=HYPERLINK(1)", "-2.5", " @x", "A -> Y"],
            "n": [-1.0, 2.0, 3.0, 4.0],
            "c": pd.Categorical(["+", "-", "=cmd|' /C calc'!A1", "\tb"]),
        }
    )
    before = copy.deepcopy(frame)
    (tmp_path / "t.csv").write_text(csv_text(frame), encoding="utf-8")
    made = pd.read_csv(tmp_path / "t.csv", dtype={"'=1+1": str})
    assert made.columns.tolist() == ["'=1+1", "n", "c"]
    assert made["'=1+1"].tolist() == ["'=HYPERLINK(1)", "-2.5", "' @x", "A -> Y"]
    assert made["c"].tolist() == ["'+", "'-", "'=cmd|' /C calc'!A1", "'\tb"]
    assert made["n"].tolist() == [-1.0, 2.0, 3.0, 4.0]
    pd.testing.assert_frame_equal(frame, before)
