"""Tables of reports as texts, and the templates of pages and of fragments for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, zip_longest
from textwrap import wrap
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from pyrofair._files import csv_text
from pyrofair._validation import in_order
from pyrofair._version import __version__
from pyrofair.audits.display.words import percent, span
from pyrofair.audits.verdicts import CROSSED

__all__ = ["CITATIONS", "Table", "cell", "environment", "make_table", "next_name", "spans_table", "table_fragment"]

WIDTH = 110
"""The most characters of a line of a table in text."""
NARROWEST = 12
"""A column of texts may be this narrow, whatever is broken, to make room for others."""
NO_BREAK = "\N{NO-BREAK SPACE}"
MOST_ROWS = 60
"""The most rows of a table that a notebook shows."""
SPANS = {
    "accuracy": "accuracy",
    "majority_rate": "majority class",
    "positive_rate": "positive rate",
    "mean_unfair_effect": "mean unfair effect",
    "piu_lower": "PIU at least",
    "piu_upper": "PIU at most",
}
"""The quantities of :func:`spans_table`, and the labels of their columns."""
CITATIONS = (
    "Chikahara, Y., Sakaue, S., Fujino, A. and Kashima, H. (2021). Learning Individually Fair Classifier with "
    "Path-Specific Causal-Effect Constraint. Proceedings of The 24th International Conference on Artificial "
    "Intelligence and Statistics, PMLR 130.",
    f"The pyrofair developers. pyrofair, version {__version__}. Path-specific causal fairness, to audit and "
    "train classifiers against the unfair effects of a causal graph.",
)
_fragments = count()


@dataclass(frozen=True, eq=False)
class Table:
    """A table of a report: its caption, the labels of its columns, rows of texts, and the ``source`` in full digits.

    ``numeric`` says of each column whether it is set to the right.
    """

    name: str
    caption: str
    columns: Sequence[str]
    numeric: Sequence[bool]
    rows: Sequence[Sequence[str]]
    source: pd.DataFrame
    note: str = ""

    @property
    def csv(self) -> str:
        """The source as CSV."""
        return csv_text(self.source)

    @property
    def uri(self) -> str:
        """The CSV as a link that downloads it, without a script."""
        return f"data:text/csv;charset=utf-8,{quote(self.csv)}"

    def lines(self, width: int = WIDTH) -> list[str]:
        """Return the table as lines of text, long cells wrapped so that none is wider, if that can be."""
        held = [[_unbroken(text) for text in row] for row in (self.columns, *self.rows)]
        columns = list(zip(*held, strict=True))
        widths = [max(map(len, texts)) for texts in columns]
        least = [max((len(part) for text in texts for part in text.split(" ")), default=0) for texts in columns]
        least = [size if right else min(size, NARROWEST) for size, right in zip(least, self.numeric, strict=True)]
        while sum(widths) + 2 * len(widths) - 2 > width:
            room = [size - own for size, own in zip(widths, least, strict=True)]
            if max(room) <= 0:
                break
            widest = max((i for i, spare in enumerate(room) if spare > 0), key=widths.__getitem__)
            widths[widest] -= 1
        found = [self.caption]
        for row in held:
            parts = [wrap(text, size) or [""] for text, size in zip(row, widths, strict=True)]
            for texts in zip_longest(*parts, fillvalue=""):
                line = zip(texts, widths, self.numeric, strict=True)
                found.append("  ".join(f"{text:{'>' if right else '<'}{size}}" for text, size, right in line).rstrip())
        return [line.replace(NO_BREAK, " ") for line in (*found, *wrap(self.note, width))]


def _unbroken(text: str) -> str:
    """Return a cell whose interval is not broken over lines."""
    first, bracket, rest = text.partition("[")
    return first + bracket + rest.replace(" ", NO_BREAK) if bracket else text


@cache
def environment() -> Environment:
    """Return the templates."""
    made = Environment(
        loader=PackageLoader("pyrofair.audits.display"),
        autoescape=True,
        finalize=in_order,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["percent"] = percent
    return made


def next_name() -> str:
    """Return a name for an element of a notebook that no other has."""
    return f"pyrofair-{next(_fragments)}"


def table_fragment(title: str, table: pd.DataFrame, note: str = "") -> str:
    """Return a table with a title as an element with styles of its own, for a notebook; NaN is left empty."""
    head = table.head(MOST_ROWS)
    cut = f" The first {len(head)} of {len(table):,} rows." if len(table) > len(head) else ""
    made = make_table("table", title, head, note=f"{note}{cut}".strip())
    return environment().get_template("table.html").render(name=next_name(), table=made)


def missing_tables(shares: pd.DataFrame) -> list[Table]:
    """Return the table of the shares of missing values, by column and group; none if nothing is missing."""
    shown = shares.apply(lambda column: column if column.name == "column" else column.map(percent))
    return [make_table("missing", "Missing values, share of rows", shown, shares)] if len(shares) else []


def missing_fragment(shares: pd.DataFrame) -> str:
    """Return that table as an element for a notebook; empty if nothing is missing."""
    held = [{"name": next_name(), "table": table} for table in missing_tables(shares)]
    return "".join(environment().get_template("table.html").render(each) for each in held)


def make_table(
    name: str, caption: str, frame: pd.DataFrame, source: pd.DataFrame | None = None, *, note: str = ""
) -> Table:
    """Return a table of a frame's values as texts; numbers to three digits, unless texts are given."""
    numeric = [pd.api.types.is_numeric_dtype(frame[column]) or _is_numbers(frame[column]) for column in frame]
    rows = [[cell(value) for value in row] for row in frame.itertuples(index=False, name=None)]
    return Table(name, caption, [str(each) for each in frame], numeric, rows, frame if source is None else source, note)


def spans_table(
    name: str,
    caption: str,
    rows: pd.DataFrame,
    key: str,
    *,
    label: str = "",
    named: Callable[[Any], str] = lambda value: f"{value:g}" if isinstance(value, float) else str(value),
    before: Callable[[Any, Mapping[str, Any]], Mapping[str, str]] = lambda *_: {},
    last: tuple[str, Mapping[Any, str]] = ("", {}),
    note: str = "",
) -> Table:
    """Return the table of rates, effect and PIU with their intervals, a line for each value of a column of tidy rows.

    ``rows``, all of which the CSV holds, have one for each value of ``key`` and quantity. ``label`` heads the first
    column, by default the key, and ``named`` is the text of a value. ``before`` returns, of a value and its rows by
    quantity, what its line holds before these, by heading; ``last`` is the heading of the last column, and its text for
    each value, none without any.
    """
    found, crossed = [], []
    shown = [quantity for quantity in SPANS if rows["quantity"].eq(quantity).any()]
    for value, own in rows.groupby(key, sort=False, dropna=False):
        lines: Any = own.itertuples()
        of = {row.quantity: row for row in lines}
        spans = {SPANS[name]: span(of.get(name), points=name == "mean_unfair_effect") for name in shown}
        ending = {last[0]: last[1][value]} if last[1] else {}
        found.append({label or key: named(value), **before(value, of), **spans, **ending})
        if CROSSED in str(getattr(of.get("piu_upper"), "note", "")):
            crossed.append(named(value))
    remark = f"{', '.join(crossed)}: the upper bound on PIU is {CROSSED}." if crossed else ""
    return make_table(name, caption, pd.DataFrame(found), rows, note=f"{note} {remark}".strip())


def _is_numbers(column: pd.Series[Any]) -> bool:
    """Return whether texts are numbers, percentages or intervals, so that they are set to the right."""
    texts = [str(each) for each in column if str(each) not in ("", "not available")]
    marks = set("0123456789.,%[] -\N{MINUS SIGN}+etopins")
    return bool(texts) and all(set(each) <= marks and not each.isalpha() for each in texts)


def cell(value: Any) -> str:
    """Return a value as the text of a table."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if isinstance(value, float | np.floating):
        if np.isnan(value):
            return ""
        number = float(value)
        return f"{number:,.0f}" if abs(number) >= 1000.0 else f"{round(number, 3) + 0.0:.3g}"
    return "" if value is None or value is pd.NA else str(value)
