"""Options are declared once: defaults, files of settings and the command line, checked alike."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pyrofair import sources
from pyrofair.audits import audit, penalty_path
from pyrofair.classifiers import PenalizedClassifier
from pyrofair.commands.line import COMMANDS
from pyrofair.commands.options import UsageError, write_settings
from pyrofair.commands.sources import SETTINGS

AUDIT = next(each for each in COMMANDS if each.name == "audit")
TRAIN = next(each for each in COMMANDS if each.name == "train")
NEEDED = {"data": "t.csv", "graph": "A -> Y", "sensitive": "A", "outcome": "Y"}


def config(tmp_path: Path, text: str) -> dict[str, Any]:
    path = tmp_path / "c.toml"
    path.write_text(text, encoding="utf-8")
    return {"config": str(path)}


def test_flags_override_the_file_which_overrides_the_defaults(tmp_path: Path) -> None:
    file = config(tmp_path, 'level = 0.9\nseed = 7\nscore = "p"\nbaseline = 0\ndirect = true\nclip = 0.1\n')
    settings = AUDIT.settle(NEEDED | file | {"seed": 3})
    assert settings["level"] == 0.9
    assert settings["seed"] == 3
    assert settings["score"] == ["p"]
    assert settings["baseline"] == "0"
    assert settings["direct"] is True
    assert settings["threshold"] == 0.5
    assert settings["clip"] == 0.1
    assert "level" in settings.given
    assert "threshold" not in settings.given


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("levle = 0.9", r"has the key 'levle', and pyrofair audit has no option of that name\. Did you mean 'level'\?"),
        ('level = "high"', 'level = "high" must be a number'),
        ("level = true", "level = true must be a number"),
        ("seed = 1.5", r"seed = 1\.5 must be an integer"),
        ("direct = 1", "direct = 1 must be true or false"),
        ("sensitive = 3", "sensitive = 3 must be a text in quotes"),
        ("score = [1]", "score = 1 must be a text in quotes, or a list of these"),
        ("score = []", "score is an empty list"),
        ('source = "onstep"', "is not known; it is onestep or ipw or gcomputation. Did you mean 'onestep'"),
        ("level = ", "is no TOML"),
        ('command = "train"', "is one of pyrofair train, and this is pyrofair audit"),
        ("level = 1.5", "--level must be a finite number above 0 and below 1, and is 1.5"),
        ("level = nan", "--level must be a finite number"),
        ("fail-above = 2", "--fail-above must be a finite number at least 0 and at most 1"),
        ("replicates = -1", "--replicates must be an integer at least 0"),
    ],
)
def test_files_of_settings_that_are_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        AUDIT.settle(NEEDED | config(tmp_path, text))


def test_a_file_that_is_absent() -> None:
    with pytest.raises(UsageError, match=r"'absent\.toml' cannot be read: No such file"):
        AUDIT.settle(NEEDED | {"config": "absent.toml"})


def test_what_is_required_may_stand_in_the_file(tmp_path: Path) -> None:
    text = 'data = "t.csv"\ngraph = "A -> Y"\nsensitive = "A"\noutcome = "Y"\n'
    assert AUDIT.settle(config(tmp_path, text))["data"] == "t.csv"
    with pytest.raises(UsageError, match=r"required: DATA, --graph, --sensitive, --outcome\. DATA comes before"):
        AUDIT.settle({})


@pytest.mark.parametrize("text", ["plain", 'a "b" \\ c', "tab\t\n\x00\x1f\x7f", "ä → 🙂", "{A M} -> Y; A -> M", ""])
def test_settings_survive_being_written(tmp_path: Path, text: str) -> None:
    given = NEEDED | {"graph": text or "x", "unfair": [text, "b"], "fail-above": 0.1, "seed": 2**31 - 1, "direct": True}
    settings = AUDIT.settle(given)
    written = write_settings(settings, ["a comment"])
    again = AUDIT.settle(config(tmp_path, written))
    assert {name: again[name] for name in settings.values if name != "config"} == {
        name: settings[name] for name in settings.values if name != "config"
    }
    assert tomllib.loads(written)["command"] == "audit"


def test_a_file_of_settings_has_no_settings_of_a_call() -> None:
    settings = AUDIT.settle(NEEDED | {"overwrite": True, "traceback": True})
    assert {"overwrite", "traceback", "config"}.isdisjoint(settings.recorded())


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.name)
def test_options_are_named_and_described_once(command: Any) -> None:
    names = [option.name for option in command.options]
    assert len(names) == len(set(names))
    assert all(option.help and not option.help.endswith(".") for option in command.options)
    assert f"pyrofair {command.name}" in command.example


def test_settings_are_those_of_the_package() -> None:
    """A setting that a function does not have, or another default, would be wrong in silence."""
    makers = {"onestep": sources.OneStep, "ipw": sources.IPW, "gcomputation": sources.GComputation}
    for name, options in SETTINGS.items():
        known = inspect.signature(makers[name]).parameters
        assert [each for each in options if each.replace("-", "_") not in known] == []
    options = {option.name: option for option in (*AUDIT.options, *TRAIN.options)}
    path = {option.name: option for option in next(each for each in COMMANDS if each.name == "path").options}
    own = inspect.signature(audit).parameters
    for name in ("level", "threshold", "scores"):
        assert own[name].default == options[name].default
    assert own["n_boot"].default == options["replicates"].default
    trained = inspect.signature(PenalizedClassifier).parameters
    for option in TRAIN.options:
        if option.group == "the training" and option.name not in ("penalty", "remove", "model"):
            assert trained[option.name.replace("-", "_")].default == option.default
    assert trained["model"].default == next(each for each in TRAIN.options if each.name == "model").default
    walked = inspect.signature(penalty_path).parameters
    for name in ("held-out", "threshold", "seeds"):
        assert walked[name.replace("-", "_")].default == path[name].default
    assert walked["n_boot"].default == path["replicates"].default
