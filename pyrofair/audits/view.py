"""A report as data, and its renderings: plain text, a page, an element for notebooks, and JSON."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pyrofair._validation import require_flag, require_integer, require_path, shown
from pyrofair._version import __version__
from pyrofair.audits.display.export import SCHEMA_VERSION, plain
from pyrofair.audits.display.page import CITATIONS, Table, environment, next_name
from pyrofair.audits.display.words import Answer
from pyrofair.exceptions import DataError

__all__ = ["MOST_CARDS", "PARTS", "Block", "Report", "View", "drawn"]

MOST_CARDS = 3
"""More answers are listed on the first page, not shown side by side."""
PARTS = "parts"
"""The name of the section on where a difference between groups comes from."""
CHECK = "check"
"""The name of the section on the independences that the graph implies."""
MOST_LISTED = 8
MOST_TABLES = 3
"""The tables that a notebook shows."""


@dataclass(frozen=True, eq=False)
class Block:
    """A part of a report under a title.

    ``lines`` and ``tables`` are in each form of it; ``aside`` (sentences), ``pictures`` (tables of what the lines say),
    ``folded`` (further lines, shown on demand) and ``markup`` are for pages alone.
    """

    name: str
    title: str
    lines: Sequence[str] = ()
    tables: Sequence[Table] = ()
    aside: Sequence[str] = ()
    pictures: Sequence[Table] = ()
    folded: Sequence[str] = ()
    markup: Callable[[], Markup] | None = None

    def text(self) -> list[str]:
        """Return the lines of the block in plain text, after an empty one; none if it is for pages alone."""
        tables = [line for each in self.tables for line in ("", *each.lines())]
        return ["", *self.lines, *(tables if self.lines else tables[1:])] if self.lines or tables else []


@dataclass(frozen=True, eq=False)
class View:
    """A report: its question, an answer for each model with what it assumes, what the reader can do, and blocks.

    Parameters
    ----------
    title, question
        The heading of the page, and the question in plain words, its first sentence by itself.
    lead
        What was judged, in sentences: the beginning of the text.
    blocks, closing
        The parts, in order, and sentences after the assumptions.
    answers, basis, changes
        For those who decide, on the first page.
    assumptions
        Headings, each with its assumptions.
    warnings, settings
        What was warned of; names and values.
    schema, data
        What JSON holds: its name, and a function that returns the rest, with the rows of the table if it is True.
    """

    title: str
    question: Sequence[str]
    lead: Sequence[str]
    blocks: Sequence[Block]
    schema: str
    data: Callable[[bool], dict[str, Any]]
    answers: Sequence[tuple[str, Answer]] = ()
    basis: Sequence[str] = ()
    changes: Sequence[str] = ()
    assumptions: Sequence[tuple[str, Sequence[str]]] = ()
    closing: Sequence[str] = ()
    warnings: Sequence[str] = ()
    settings: Sequence[tuple[str, str]] = ()

    @property
    def ordered(self) -> list[Block]:
        """The parts; where a gap comes from is the second one."""
        return sorted(self.blocks, key=lambda each: (each is not self.blocks[0]) * (1 + (each.name != PARTS)))

    @property
    def first_tables(self) -> list[Table]:
        """The tables that a notebook shows, that of missing values among them."""
        found = [table for block in self.ordered for table in (*block.tables, *block.pictures)]
        return found[:MOST_TABLES] + [table for table in found[MOST_TABLES:] if table.name == "missing"]

    def text(self) -> str:
        """Return the report in plain text."""
        lines = [*self.lead, *(line for block in self.ordered for line in block.text()), ""]
        for heading, texts in self.assumptions:
            lines += [heading, *(f"  {i}. {text}" for i, text in enumerate(texts, 1))]
            lines += [] if texts else ["  (the source states none)"]
        return "\n".join([*lines, *self.closing, *(f"Warning: {text}" for text in self.warnings)])

    def html(self, path: str | Path | None = None, title: str | None = None) -> str:
        """Return the report as a self-contained page, and write it to a path if given."""
        if title is not None and (not isinstance(title, str) or not title.strip()):
            raise DataError(f"title={shown(title)} must be a text, such as 'Audit of the hiring model, autumn'.")
        text = self._render("report.html", title=title or self.title)
        if path is not None:
            file = require_path("path", path, "the path of a page, such as 'audit.html'")
            try:
                file.write_text(text, encoding="utf-8")
            except OSError as error:
                raise DataError(f"path={str(path)!r} cannot be written: {error.strerror or error}.") from error
        return text

    def fragment(self) -> str:
        """Return the report as an element with styles of its own, for a notebook."""
        return self._render("fragment.html", name=next_name())

    def json(self, *, rows: bool = False, indent: int | None = None) -> str:
        """Return the data of the report as JSON; NaN is null."""
        require_flag("rows", rows)
        if indent is not None:
            require_integer("indent", indent, least=0, most=100)
        found = {"schema": self.schema, "schema_version": SCHEMA_VERSION, **self.data(rows)}
        return json.dumps(plain(found), indent=indent, ensure_ascii=False, allow_nan=False)

    def _render(self, template: str, **more: Any) -> str:
        answers = self.answers[: MOST_CARDS if len(self.answers) <= MOST_CARDS else MOST_LISTED]
        held = {
            "view": self,
            "answers": answers,
            "listed": len(self.answers) > MOST_CARDS,
            "omitted": len(self.answers) - len(answers),
            "version": __version__,
            "citations": CITATIONS,
        }
        return environment().get_template(template).render(held | more)


class Report(ABC):
    """A result whose text, page and JSON are renderings of its view."""

    @property
    @abstractmethod
    def view(self) -> View:
        """The report as data."""

    def details(self) -> str:
        """Return the whole report in plain text: every quantity, checks and assumptions."""
        return self.view.text()

    def to_html(self, path: str | Path | None = None, *, title: str | None = None) -> str:
        """Return the report as one self-contained page, and write it to ``path`` if given."""
        return self.view.html(path, title)

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the report as JSON: every table, conclusions, assumptions and settings; NaN is null."""
        return self.view.json(indent=indent)

    def _repr_html_(self) -> str:
        return self.view.fragment()


def drawn(template: str, **held: Any) -> Markup:
    """Return a template as markup, in which texts are escaped."""
    return Markup(environment().get_template(template).render(held))
