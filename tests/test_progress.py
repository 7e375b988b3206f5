"""Bars appear where somebody sees them, and late."""

from __future__ import annotations

import io
import sys
import time

import pytest

from pyrofair import _progress
from pyrofair._progress import progress_bar


class Screen(io.StringIO):
    """A standard error that may be a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


class InNotebook(Screen):
    __module__ = "ipykernel.iostream"


@pytest.mark.parametrize(
    ("screen", "shown", "after", "seen"),
    [
        (Screen(terminal=True), True, 0.0, True),
        (InNotebook(terminal=False), True, 0.0, True),
        (Screen(terminal=False), True, 0.0, False),
        (Screen(terminal=True), False, 0.0, False),
        (Screen(terminal=True), True, 60.0, False),
    ],
    ids=["terminal", "notebook", "file", "not asked for", "short work"],
)
def test_bars_where_somebody_sees_them(
    screen: Screen, shown: bool, after: float, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(_progress, "AFTER", after)
    for _ in progress_bar("replicates", range(3), shown=shown, mininterval=0.0):
        time.sleep(0.01)
    assert ("replicates" in screen.getvalue()) == seen


def test_a_closed_standard_error_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for screen in (closed, None):
        monkeypatch.setattr(sys, "stderr", screen)
        assert [*progress_bar("x", range(3))] == [0, 1, 2]
