"""Options are declared once: defaults, files of settings and the command line, checked alike."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path

import click
import pytest

from pyrofair import PenalizedClassifier, audit, penalty_path, sources
from pyrofair.commands.decisions import threshold_of
from pyrofair.commands.line import COMMANDS
from pyrofair.commands.options import Command, Option, Settings, write_settings
from pyrofair.commands.sources import SETTINGS

AUDIT, TRAIN, PATH = (next(each for each in COMMANDS if each.name == name) for name in ("audit", "train", "path"))
NEEDED = ("t.csv", "--graph", "A -> Y", "--sensitive", "A", "--outcome", "Y")


def settle(*arguments: str) -> Settings:
    with AUDIT.make_context("audit", list(arguments)) as ctx:
        return AUDIT.settle(ctx)


def config(tmp_path: Path, text: str) -> tuple[str, str]:
    path = tmp_path / "c.toml"
    path.write_text(text, encoding="utf-8")
    return "--config", str(path)


def test_flags_override_the_file_which_overrides_the_defaults(tmp_path: Path) -> None:
    file = config(tmp_path, 'level = 0.9\nseed = 7\nscore = "p"\nbaseline = 0\ndirect = true\nclip = 0.1\n')
    settings = settle(*NEEDED, "--seed", "3", *file)
    assert settings["level"] == 0.9
    assert settings["seed"] == 3
    assert settings["score"] == ["p"]
    assert settings["baseline"] == "0"
    assert settings["direct"] is True
    assert settings["clip"] == 0.1
    assert {"level", "seed", "graph", "data"} <= settings.given
    assert not {"threshold", "source"} & settings.given
    assert settle(*NEEDED, "--no-direct", *file)["direct"] is False


def test_an_option_takes_several_values_at_once_or_one_by_one() -> None:
    assert settle(*NEEDED, "--score", "p", "q", "--level", ".9", "--score", "r")["score"] == ["p", "q", "r"]
    assert settle(*NEEDED, "--thresholds", ".1", ".2")["thresholds"] == [0.1, 0.2]
    assert settle(*NEEDED, "--score=p", "--missing-values", "-9", "--")["missing-values"] == ["-9"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("levle = 0.9", ["'levle'", "'level'"]),
        ('level = "high"', ["--level", "high", "number"]),
        ("level = true", ["--level", "True", "number"]),
        ("seed = 1.5", ["--seed", "1.5", "integer"]),
        ("seed = true", ["--seed", "True", "integer"]),
        ("direct = 2", ["--direct", "2", "boolean"]),
        ('sensitive = ["A"]', ["sensitive", "['A']"]),
        ("score = {p = 1}", ["score", "{'p': 1}"]),
        ('source = "onstep"', ["--source", "'onstep'", "'onestep'"]),
        ("level = ", ["not TOML"]),
        (f"seed = {'9' * 5000}", ["not TOML", "digits"]),
        ('command = "train"', ["pyrofair train", "pyrofair audit"]),
        ("level = 1.5", ["--level", "1.5", "0.0<x<1.0"]),
        ("level = nan", ["--level", "nan", "finite"]),
        ("fail-above = 2", ["--fail-above", "2", "0.0<=x<=1.0"]),
        ("replicates = -1", ["--replicates", "-1", "0<=x"]),
    ],
)
def test_files_of_settings_that_are_wrong(tmp_path: Path, text: str, parts: list[str]) -> None:
    with pytest.raises(click.UsageError) as caught:
        settle(*NEEDED, *config(tmp_path, text))
    assert [part for part in parts if part not in caught.value.format_message()] == []


def test_a_file_that_is_absent() -> None:
    with pytest.raises(click.UsageError, match=r"'absent\.toml' cannot be read: No such file"):
        settle(*NEEDED, "--config", "absent.toml")


def test_what_is_required_may_stand_in_the_file(tmp_path: Path) -> None:
    text = 'data = "t.csv"\ngraph = "A -> Y"\nsensitive = "A"\noutcome = "Y"\n'
    assert settle(*config(tmp_path, text))["data"] == "t.csv"
    with pytest.raises(click.UsageError, match=r"DATA, --graph\."):
        settle()


@pytest.mark.parametrize("text", ["plain", 'a "b" \\ c', "tab\t\n\x00\x1f\x7f", "ä → 🙂", "{A M} -> Y; A -> M", ""])
def test_settings_survive_being_written(tmp_path: Path, text: str) -> None:
    own = ("--unfair", text, "b", "--fail-above", "0.1", "--seed", str(2**31 - 1), "--direct")
    settings = settle(*NEEDED, "--graph", text or "x", *own)
    written = write_settings(settings, ["a comment", text])
    again = settle(*config(tmp_path, written))
    assert {**again.values, "config": None} == settings.values
    assert tomllib.loads(written)["command"] == "audit"


def test_a_file_of_settings_has_no_settings_of_a_call() -> None:
    settings = settle(*NEEDED, "--overwrite", "--traceback")
    assert {"overwrite", "traceback", "config"}.isdisjoint(settings.recorded())


def options_of(command: Command) -> dict[str, Option]:
    return {each.flag.removeprefix("--"): each for each in command.params if isinstance(each, Option)}


def test_settings_are_those_of_the_package() -> None:
    """A setting that a function does not have, or another default, would be wrong in silence."""
    makers = {"onestep": sources.OneStep, "ipw": sources.IPW, "gcomputation": sources.GComputation}
    for name, options in SETTINGS.items():
        known = inspect.signature(makers[name]).parameters
        assert [each for each in options if each.replace("-", "_") not in known] == []
    options = options_of(TRAIN) | options_of(AUDIT)
    own = inspect.signature(audit).parameters
    for name in ("level", "scores"):
        assert own[name].default == options[name].usual
    assert own["n_boot"].default == options["replicates"].usual
    trained = inspect.signature(PenalizedClassifier).parameters
    for name, option in options_of(TRAIN).items():
        if option.group == "the training" and name not in ("held-out", "penalty", "remove", "strength"):
            assert trained[name.replace("-", "_")].default == option.usual
    walked = inspect.signature(penalty_path).parameters
    assert threshold_of(settle(*NEEDED)) == own["threshold"].default
    for name in ("held-out", "threshold", "seeds"):
        assert walked[name.replace("-", "_")].default == options_of(PATH)[name].usual
    assert walked["n_boot"].default == options_of(PATH)["replicates"].usual
