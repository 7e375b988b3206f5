"""Pages and public docstrings are in plain English: short sentences, and the field's words."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import pyrofair

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "examples" / "README.md"]
LONG, MOST = 30, 0.08
"""At most this share of a page's sentences has more than so many words."""
NOT_SAID = re.compile(
    r"\b(?:(?:upper|lower) ends? of PIU|ends? of PIU|PIU's (?:upper|lower) end|switched world|what both worlds share"
    r"|beyond chance|rests? on|says? yes|answers? yes|pays? for|buys? (?:a )?constant|(?<!`)nuisances)\b"
)
"""Private words, each with one of the field's (``docs/contributing.md``)."""


def prose(page: Path) -> list[str]:
    """Return the sentences of a page, without code, formulas, tables and pictures."""
    text = page.read_text(encoding="utf-8")
    for pattern, instead in (
        (r"(?ms)^```.*?^```", ""),
        (r"(?s)\$\$.*?\$\$", "X."),
        (r"\$[^$]*\$", "X"),
        (r"`[^`]*`", "code"),
        (r"(?m)^[|#!<].*$", ""),
        (r"\[([^\]]*)\]\([^)]*\)", r"\1"),
    ):
        text = re.sub(pattern, instead, text)
    return [each for each in re.split(r"(?<=[.!?:])\s+|\n\s*\n|\n *(?:[-*]|\d+\.) ", text) if len(each.split()) > 2]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_is_in_plain_english(page: Path) -> None:
    sentences = prose(page)
    long = [each for each in sentences if len(each.split()) > LONG]
    assert len(long) <= MOST * len(sentences) + 1, long
    if page.name != "contributing.md":  # it has the list of words
        assert [each for each in sentences if NOT_SAID.search(each)] == []


def documented() -> Iterator[tuple[str, str]]:
    """The docstrings of public names and of their public methods."""
    top = {name: getattr(pyrofair, name) for name in pyrofair.__all__}
    folders = {name: thing for name, thing in top.items() if isinstance(thing, ModuleType)}
    below = {f"{folder}.{name}": getattr(thing, name) for folder, thing in folders.items() for name in thing.__all__}
    for name, thing in (top | below).items():
        yield name, inspect.getdoc(thing) or ""
        for method, part in vars(thing).items() if isinstance(thing, type) else ():
            if not method.startswith("_") and (callable(part) or isinstance(part, property)):
                yield f"{name}.{method}", inspect.getdoc(part) or ""


def test_public_docstrings_use_the_words_of_the_field() -> None:
    assert {name: found[0] for name, text in documented() if (found := NOT_SAID.findall(text))} == {}
