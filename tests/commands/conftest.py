"""Commands as tests call them."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from pyrofair.commands import main

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call_here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Run a command in a folder of its own, and return its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        code: Any = 0
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures, which take time, are empty files; those inside a page have nothing in them."""

    def touch(_: Figure, file: Any, **__: Any) -> None:
        if isinstance(file, str | Path):
            Path(file).touch()
        else:
            file.write("<svg></svg>" if isinstance(file, StringIO) else b"")

    monkeypatch.setattr(Figure, "savefig", touch)
