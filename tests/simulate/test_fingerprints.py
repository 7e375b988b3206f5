"""Fingerprints: equal for what is equal, in another process too; other for other source, closure or settings."""

from __future__ import annotations

import linecache
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pyrofair as pf
from pyrofair.simulate import method, scenario
from pyrofair.simulate.fingerprints import fingerprint


def adding(number: Any) -> Callable[[int], int]:
    def add(x: int, step: int = 1) -> int:
        return x + step + int(number)

    return add


FOLDER = tempfile.TemporaryDirectory()


def made(code: str) -> Any:
    """Return the function f of a module whose source is in a file, as one that is imported."""
    path = Path(FOLDER.name) / f"module_{len(os.listdir(FOLDER.name))}.py"
    path.write_text(code)
    names: dict[str, Any] = {"__name__": "module"}
    exec(compile(code, str(path), "exec"), names)
    return names["f"]


def typed(code: str) -> Any:
    """Return the function f of a text that is in no file."""
    names: dict[str, Any] = {}
    exec(code, names)
    return names["f"]


GRAPH = pf.CausalGraph("A -> M; {A M} -> Y", sensitive="A", outcome="Y")
DIFFERENT: dict[str, tuple[Any, Any]] = {
    "closures": (adding(1), adding(2)),
    "closed-over arrays": (adding(np.zeros(1)), adding(np.ones(1))),
    "source": (made("def f(x): return x + 1"), made("def f(x): return x - 1")),
    "constants": (made("def f(x): return x + 1"), made("def f(x): return x + 2")),
    "lambdas of one line": (lambda x: x + 1, lambda x: x + 2),
    "names": (made("def f(x): return max(x)"), made("def f(x): return min(x)")),
    "globals": (made("EFFECT = 0.8\ndef f(n): return EFFECT * n"), made("EFFECT = 3.0\ndef f(n): return EFFECT * n")),
    "globals of an inner function": (
        made("S = {'C': 1}\ndef f(n): return lambda: S['C'] * n"),
        made("S = {'C': 2}\ndef f(n): return lambda: S['C'] * n"),
    ),
    "functions that call each other": (
        made("def g(n): return f(n - 1) if n else 1\ndef f(n): return g(n)"),
        made("def g(n): return f(n - 1) if n else 2\ndef f(n): return g(n)"),
    ),
    "defaults": (made("def f(x, y=1): return x"), made("def f(x, y=2): return x")),
    "arguments": (partial(max, 1), partial(max, 2)),
    "functions of arguments": (partial(max, 1), partial(min, 1)),
    "settings": (LogisticRegression(), LogisticRegression(C=2.0)),
    "steps": (make_pipeline(LogisticRegression()), make_pipeline(StandardScaler(), LogisticRegression())),
    "methods": (method("FIO"), method("Proposed")),
    "settings of methods": (method("FIO"), method("FIO", strength=2.0)),
    "scenarios": (scenario("hiring"), scenario("hiring", y_a=1.0)),
    "programs": (scenario("hiring"), scenario("additive")),
    "paths": (GRAPH.unfair("A -> Y"), GRAPH.unfair("A -> M -> Y")),
    "tables": (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [2]})),
    "tensors": (torch.zeros(2), torch.ones(2)),
    "modules": (torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)),
    "types": (1, 1.0),
    "text": ("1", 1),
    "order": ([1, 2], [2, 1]),
}


def test_the_source_of_another_text_of_the_same_name_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Since Python 3.13 `python -c` registers its own text by the name that all texts given to `exec` have."""
    lines = ["def f(x): return 0\n"]
    monkeypatch.setitem(linecache.cache, "<string>", (len(lines[0]), None, lines, "<string>"))
    assert fingerprint(typed("def f(x): return x + 1")) != fingerprint(typed("def f(x): return x - 1"))


def test_a_source_that_cannot_be_read_is_never_equal() -> None:
    assert fingerprint(typed("def f(x): return x")) != fingerprint(typed("def f(x): return x"))


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_differs_has_another_fingerprint(what: str) -> None:
    one, other = DIFFERENT[what]
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) == fingerprint(one)


def test_equal_things_have_equal_fingerprints() -> None:
    assert fingerprint(adding(1)) == fingerprint(adding(1))
    assert fingerprint(method("FIO", model="logistic", epochs=3)) == fingerprint(
        method("FIO", epochs=3, model="logistic")
    )
    assert fingerprint({"a", "b", "c"}) == fingerprint({"c", "b", "a"})
    assert fingerprint(scenario("hiring", y_a=1.0)) == fingerprint(scenario("hiring", y_a=1.0))
    itself: list[Any] = []
    itself.append(itself)
    assert fingerprint(itself) == fingerprint(itself)


def test_comments_and_layout_are_no_part_of_a_source(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    sources = ["def f(x):\n    return x + 1\n", "def f(x):  # adds\n    # one\n    return (x +\n            1)\n"]
    found = []
    for number, text in enumerate([*sources, sources[0].replace("1", "2")]):
        (tmp_path / f"layout_{number}.py").write_text(text)
        function = __import__(f"layout_{number}").f
        function.__module__ = "layout"
        found.append(fingerprint(function))
    assert found[0] == found[1] != found[2]


def test_another_process_makes_the_same_fingerprints() -> None:
    code = """
import torch
from sklearn.linear_model import LogisticRegression
from pyrofair.simulate import method, scenario
from pyrofair.simulate.fingerprints import fingerprint
print(*map(fingerprint, [scenario("latent"), method("Oracle"), LogisticRegression(), torch.arange(3.0), {"a", "b"}]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = [scenario("latent"), method("Oracle"), LogisticRegression(), torch.arange(3.0), {"a", "b"}]
    assert done.stdout.split() == [fingerprint(each) for each in here]


def test_globals_that_a_function_does_not_read_are_no_part_of_it() -> None:
    assert fingerprint(made("x = 1\ndef f(n): return n.x")) == fingerprint(made("x = 2\ndef f(n): return n.x"))
