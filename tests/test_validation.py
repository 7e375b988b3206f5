"""The checks of settings: what each returns, and the message with which it refuses."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyrofair import CausalGraph, DataError, GraphError, PenalizedClassifier, PyrofairError, PyrofairWarning
from pyrofair import _validation as validation
from pyrofair.datasets import load_german
from pyrofair.tables import TableEncoder, sample_rows
from pyrofair.tables.reading import read_table


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (partial(validation.require_integer, least=0), 200, 200),
        (partial(validation.require_real, above=0.0, below=1.0), 0.95, 0.95),
        (partial(validation.require_names, what="node names", one=True), "M", ("M",)),
        (validation.require_layers, [3, 2], (3, 2)),
        (validation.require_flag, np.True_, True),
        (validation.optional(validation.require_integer), None, None),
    ],
)
def test_what_is_legal_is_returned(check: validation.Constraint, value: Any, expected: Any) -> None:
    found = check("name", value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (validation.require_integer, 2.5, "must be an integer of at least 1."),
        (
            partial(validation.require_real, above=0.0, below=1.0, such_as=0.95),
            "high",
            "must be a number above 0 and below 1, such as 0.95.",
        ),
        (
            partial(validation.require_choice, choices=["paper", "pooled"]),
            "pool",
            "is not known; it is 'paper' or 'pooled'. Did you mean 'pooled'?",
        ),
        (
            partial(validation.require_choice, choices=["adam", "sgd"], callables="a function that makes one"),
            1,
            "is not known; it is 'adam', 'sgd', or a function that makes one.",
        ),
        (
            partial(validation.require_instance, types=dict, expected="a dictionary from columns to families"),
            3,
            "must be a dictionary from columns to families.",
        ),
        (partial(validation.require_names, what="column names"), "A", "must be a list of column names, such as ['A']."),
        (validation.optional(validation.require_integer), 0, "must be an integer of at least 1."),
    ],
)
def test_what_is_not_is_refused(check: validation.Constraint, value: Any, message: str) -> None:
    with pytest.raises(DataError) as caught:
        check("name", value)
    assert str(caught.value) == f"name={value!r} {message}"


def test_a_masked_array_that_hides_values_is_refused() -> None:
    validation.require_unmasked("y", np.ma.masked_equal([0, 9, 1], 3))
    with pytest.raises(DataError, match=r"y is a masked array that hides 1 of its 3 values\. .*y\.filled\(\.\.\.\)"):
        validation.require_unmasked("y", np.ma.masked_equal([0, 9, 1], 9))


def test_a_table_of_constraints_is_checked_by_name() -> None:
    constraints = {"folds": validation.require_integer, "normalize": validation.require_flag}
    validation.check_settings(SimpleNamespace(folds=2, normalize=True), constraints)
    with pytest.raises(DataError, match="normalize='no' must be True or False"):
        validation.check_settings(SimpleNamespace(folds=2, normalize="no"), constraints)


def test_values_in_messages() -> None:
    assert validation.shown("abc") == "'abc'"
    assert validation.shown(list(range(1000))) == "<list>"
    assert validation.shown("ab" * 2500).endswith("b'... (5,000 characters)")
    with pytest.raises(DataError, match="level=<int> must be a finite number"):
        validation.require_real("level", 10**400)
    assert validation.listed([1, 2]) == (1, 2)
    assert validation.listed(np.array(1.0)) is validation.listed(None) is None
    assert validation.did_you_mean("m", ["A", "M"]) == " Did you mean 'M'?"


ALIKE = {"caf\u00e9": "cafe\u0301", "a b": "a\u00a0b", "A b": "A  b", "yes": "yes ", "no": "n\u200bo"}


@pytest.mark.parametrize(("one", "other"), ALIKE.items(), ids=map(ascii, ALIKE))
def test_texts_that_look_alike_are_refused_as_names_and_as_categories(one: str, other: str) -> None:
    rows = pd.DataFrame({"A": [0, 1] * 4, one: range(8)})
    table = pd.DataFrame({"q": [one, other, "x", "y"] * 2})
    X, y = pd.DataFrame({"A": range(8)}), [one, other] * 4
    roles: dict[str, Any] = {"sensitive": "A", "outcome": "Y"}
    graph = CausalGraph([("A", one), (one, "Y")], **roles)
    encoder = TableEncoder().fit(pd.DataFrame({"q": [one, "x"]}))
    for ask in (
        lambda: CausalGraph([("A", one), ("A", other), (one, "Y"), (other, "Y")], **roles),
        lambda: CausalGraph("A -> M -> Y", columns={"M": [one, other]}, **roles),
        lambda: CausalGraph("A -> Y", baseline=one, contrast=other, **roles),
        lambda: graph.unfair(through=other),
        lambda: read_table(rows.assign(**{other: 1}), ["A", one]),
        lambda: read_table(rows, [other]),
        lambda: read_table(table, ["q"]),
        lambda: read_table(table.astype("category"), ["q"]),
        lambda: TableEncoder().fit(table),
        lambda: encoder.transform(table[:2]),
        lambda: encoder.transform(table[1:3]),
        lambda: PenalizedClassifier("logistic", epochs=1).fit(X, y),
    ):
        with pytest.raises(PyrofairError, match="look alike") as caught:
            ask()
        assert ascii(one) in str(caught.value)
        assert ascii(other) in str(caught.value)
    assert validation.text_fault([one, "another", 1, None]) == ""
    assert "surrogate" in validation.text_fault(["x", "a\ud800"])


NO_PATHS = {
    "": "empty",
    "a\0b": "NUL",
    "a\ud800": "surrogate",
    "a" * 300: "300 bytes",
    "d/" + "é" * 200: "400 bytes",
    "abc/" * 2000: "8,000 bytes",
}


@pytest.mark.parametrize("text", NO_PATHS, ids=NO_PATHS.values())
def test_the_file_system_is_asked_only_of_what_can_be_a_path(text: str) -> None:
    for ask in (
        partial(validation.require_path, "path"),
        load_german,
        lambda path: CausalGraph(f"{path}.dot", sensitive="A", outcome="Y"),
        lambda path: CausalGraph(Path(path), sensitive="A", outcome="Y"),
        lambda path: sample_rows(path, None, 1),
    ):
        with pytest.raises(PyrofairError) as caught:
            ask(text)
        assert text in ("", ".dot") or NO_PATHS[text].split()[-1] in str(caught.value)
        assert len(str(caught.value)) < 500
    assert validation.require_path("path", "a" * 255) == Path("a" * 255)


def test_a_message_too_long_to_be_read_keeps_its_beginning_and_its_advice() -> None:
    for error in (GraphError, DataError):
        text = str(error(f"Wrong: {'x' * 30_000}. Do this."))
        assert len(text) < 2_000
        assert (text[:8], text[-11:]) == ("Wrong: x", "x. Do this.")
    with pytest.warns(PyrofairWarning) as caught:
        warnings.warn(f"Wrong: {'x' * 30_000}. Do this.", PyrofairWarning, stacklevel=1)
    assert len(str(caught[0].message)) < 2_000
