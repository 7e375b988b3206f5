"""The page on the command line: its blocks run as they stand, in order, in one folder."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from pyrofair.commands import main
from pyrofair.commands.line import COMMANDS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands_of(block: str) -> list[list[str]]:
    """The commands of a block of a shell."""
    return [shlex.split(line, comments=True) for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    ran = []
    for language, block in BLOCK.findall(TEXT):
        if language == "python":
            exec(compile(block, str(PAGE), "exec"), {})
        elif block.startswith("cat "):
            subprocess.run(["sh", "-c", block], check=True)
        elif language == "bash":
            for program, *arguments in commands_of(block):
                assert program == "pyrofair"
                main(arguments)
                ran.append(arguments[0])
    assert ran == ["graph", "check", "identify", "audit", "audit", "audit", "audit", "sensitivity", "train", "audit",
                   "path", "audit"]  # fmt: skip
    out = capsys.readouterr().out
    assert "Gate, mean_unfair_effect of decisions at most 0.2 up to the end of its interval: passed." in out
    assert "Chosen by --at-most 0.1 of mean_unfair_effect" in out
    assert "withheld" not in out
    assert {"audit-test", "audit-at-70", "train-train", "audit-penalised", "path-train", "gate"} <= {
        path.name for path in tmp_path.iterdir()
    }
    effect = pd.read_csv("audit-test/audit.csv").query("quantity == 'mean_unfair_effect' and decisions == 'score'")
    assert (effect["lower"] < -0.11).all()
    assert (effect["upper"] > -0.125).all()


def test_the_options_that_the_page_names_exist() -> None:
    known = {flag for command in COMMANDS for option in command.params for flag in option.opts} | {"--help"}
    assert sorted({*re.findall(r"--[a-z][a-z-]*", TEXT)} - known) == []
