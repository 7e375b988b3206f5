"""Messages of the package, which are written for Python, as the command line says them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyrofair
from pyrofair.commands.running import as_options

PYTHON = re.compile(r"\bdf\[|\bdf\.\w|\b(?:pd|pf|np)\.\w|\.astype\(|\.replace\(")


def messages() -> Iterator[str]:
    """Each text of the package that holds Python, with names and numbers put in; those of documentation left out."""
    for path in sorted(Path(pyrofair.__file__).parent.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        inner = {id(part) for each in ast.walk(tree) if isinstance(each, ast.JoinedStr) for part in ast.walk(each)}
        inner |= {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = ("'a b'" if getattr(each, "conversion", 0) == ord("r") else getattr(each, "value", "7")
                         for each in node.values)  # fmt: skip
                text = "".join(each if isinstance(each, str) else "7" for each in parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
                text = node.value
            else:
                continue
            if PYTHON.search(text) and "commands" not in path.parts:
                yield text


def test_no_message_speaks_python_unmarked() -> None:
    found = [*messages()]
    assert len(found) > 40
    told = {text: as_options(text) for text in found}
    marked = re.compile(r"(?:[\w.]|\[[^\]]*\]|\((?:[^()]|\([^()]*\))*\))+ \(in Python\)( = .*)?")
    assert {text: said for text, said in told.items() if PYTHON.search(marked.sub("", said))} == {}
    assert {text: said for text, said in told.items() if as_options(said) != said} == {}


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("declare them: df['Q'].astype('category').", "declare them: --text 'Q'."),
        ("Recode these rows, fit on rows with this level, or declare it before fitting: "
         "df['Q'].astype(pd.CategoricalDtype([...])).", "Recode these rows, or train on rows with this level."),
        ("or categories: df['a b'].astype(str).astype('category').", "or categories: --text 'a b'."),
        ("Make numbers of them, pd.to_numeric(df['Q']); or", "Make numbers of them, --number 'Q'; or"),
        ("Convert it: df['Q'].astype(float).", "Convert it: --number 'Q'."),
        ("Gather them: subgroups={'age': lambda table: pd.cut(table['age'], 4)}.", "Gather them: --subgroups age=4."),
        ("are those of no: take 1 minus them.", "are those of no: use --score-negative."),
        ("it makes, pass audit(..., threshold=0.3), its best_threshold_, or pf.DecisionsOf(model).",
         "it makes, pass --threshold 0.3, its best_threshold_, or name a column of its decisions, --score COLUMN."),
        ("it makes, pass pf.DecisionsOf(model).", "it makes, name a column of its decisions, --score COLUMN."),
        ("cannot be made: df has no outcome column 'Y'", "cannot be made: the table has no outcome column 'Y'"),
        ("sensitive=None, and x. Name the node: sensitive='...'.",
         "--sensitive is not given, and x. Name the node: --sensitive NODE."),
        ("Say what it returns: pf.ScoresOf(it) for probabilities, pf.DecisionsOf(it) for labels.",
         "Say what it returns: write it into a column of the table, --score COLUMN."),
        ("a propensity is wrong; try another model of it (propensity=).",
         "a propensity is wrong; try another model of it (--propensity)."),
        ("Take pf.sharp_bounds(unfair, df) (in Python).", "Take pf.sharp_bounds(unfair, df) (in Python)."),
    ],
)  # fmt: skip
def test_what_python_says_is_an_option(python: str, said: str) -> None:
    assert as_options(python) == said
