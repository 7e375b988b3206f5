"""The line itself: help, the version and errors of usage at once; identification; the script that is installed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import pyrofair
from pyrofair.commands import main
from pyrofair.commands.line import COMMANDS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["audit", "--help"], ["audit", "x.csv"], ["audit", "--levle", ".9"], ["audti"]],
    ids=" ".join,
)
def test_help_and_errors_of_usage_load_nothing_that_is_slow(arguments: list[str]) -> None:
    code = f"""
import sys
sys.modules.update(dict.fromkeys(("torch", "pyro", "sklearn", "pandas", "matplotlib", "scipy")))  # as if not installed
from pyrofair.__main__ import main
main({arguments!r})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    expected = 0 if {"--help", "--version"} & {*arguments} else 2
    assert done.returncode == expected, done.stderr
    assert "Traceback" not in done.stderr


def test_the_script_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"pyrofair": "pyrofair.__main__:main"}


@pytest.mark.parametrize("command", [each.name for each in COMMANDS])
def test_help_describes_every_option_and_gives_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([command, "--help"])
    out = capsys.readouterr().out
    options = next(each for each in COMMANDS if each.name == command).params
    assert [option.name for option in options if option.opts[0].replace("data", "DATA") not in out] == []
    assert f"pyrofair {command} " in out.split("example")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["audti"], "audti"),
        (["compare", "adlt"], "'adlt'.*'adult'"),
        (["identify", "--grpah", "x"], "--grpah.*--graph"),
        (["audit", "--level"], "--level"),
        (["audit", "--output", "--overwrite"], "--output"),
        ([], "command"),
    ],
)
def test_what_is_misspelled(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(message, captured.err)
    assert len(captured.err.splitlines()) == 1


GRAPH = ["--graph", "A -> M; {A M} -> Y", "--sensitive", "A", "--outcome", "Y"]


def test_identify_prints_the_estimand(capsys: pytest.CaptureFixture[str]) -> None:
    main(["identify", *GRAPH, "--direct"])
    graph = pyrofair.CausalGraph("A -> M; {A M} -> Y", sensitive="A", outcome="Y")
    unfair = graph.unfair(direct=True)
    out = capsys.readouterr().out
    assert out == f"{unfair}\n\n{pyrofair.identify(unfair)}\n"
    main(["identify", *GRAPH, "--direct", "--baseline", "1", "--contrast", "b", "--positive", "yes"])
    assert "A=0 is 1, 1 is 'b'; Y=1 is 'yes'" in capsys.readouterr().out
    main(["identify", *GRAPH, "--direct", "--latex"])
    assert capsys.readouterr().out.startswith("\\begin{aligned}")


def test_a_graph_of_any_length_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    edges = "; ".join(f"A -> M{i} -> Y" for i in range(200))
    main(["identify", "--graph", f"{edges}; A -> Y", "--sensitive", "A", "--outcome", "Y", "--direct"])
    assert "unfair: A -> Y" in capsys.readouterr().out


def test_messages_of_the_package_are_told_as_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("A,M,Y,p\n" + "0,1,1,0.3\n1,0,0,0.6\n1,1,1,0.7\n0,0,0,0.2\n" * 40)
    with pytest.raises(SystemExit, match="2"):
        main(["audit", str(path), *GRAPH, "--direct", "--score", "p", "--scores", "prediction", "--propensity",
              "saturated", "--regression", "saturated", "--form", "graph", "--output", f"{tmp_path}/o"])  # fmt: skip
    err = capsys.readouterr().err
    assert "pass --scores outcome. On the command line: --source ipw, --arm paper." in err
