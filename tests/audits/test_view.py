"""A report as data: whatever it says as text it says on the page, for an audit and for each kind of family."""

from __future__ import annotations

import json
import re
import warnings
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import pyrofair as pf
from pyrofair.audits.audit_view import view_of
from pyrofair.audits.display.page import WIDTH, make_table, spans_table
from pyrofair.audits.display.words import span
from pyrofair.audits.family import Members
from pyrofair.audits.verdicts import WORDINGS, Verdict
from pyrofair.audits.view import View
from tests.models import Known
from tests.pages import Reader

SATURATED: dict[str, Any] = {"propensity": "saturated", "regression": "saturated", "random_state": 0}
EDGES = "C -> A; {A C} -> M; {A C M} -> L; {A M L C} -> Y"
NASTY = "<i>bold</i> & co"


MODEL = Known(lambda X: 0.1 + 0.15 * (X["A"] == "b") + 0.05 * X["C"] + 0.3 * X["M"] + 0.35 * X["L"])


def rows(n: int = 800) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    C = rng.integers(2, size=n)
    A = rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    A[:4] = "d"
    M = (rng.random(n) < 0.3 + 0.2 * C + 0.3 * (A == "b")).astype(int)
    L = (rng.random(n) < 0.3 + 0.3 * (A != "a") + 0.2 * C).astype(int)
    return pd.DataFrame({"A": A, "C": C, "M": M, "L": L, "Y": (rng.random(n) < 0.2 + 0.5 * M).astype(int)})


def unfair(edges: str = EDGES, **named: Any) -> pf.UnfairPaths:
    graph = pf.CausalGraph(edges, sensitive="A", outcome="Y", baseline="a", contrast="b")
    return graph.unfair(**(named or {"direct": True, "through": "M"}))


def two() -> pd.DataFrame:
    table = rows()
    return table[table["A"].isin(["a", "b"])].reset_index(drop=True)


@cache
def made(kind: str) -> Any:
    source = pf.OneStep(unfair(), **SATURATED)
    models = {NASTY: MODEL, "plain": MODEL}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pf.PyrofairWarning)
        if kind == "audit":
            return pf.audit(models, source, two(), thresholds=[0.3, 0.6], subgroups=["C"], random_state=0)
        if kind == "contrasts":
            return pf.audit_contrasts(models, source, rows(), random_state=0)
        if kind == "edges":
            return pf.edge_costs(models, source, two(), ["A -> M", "M -> L", "A -> Y"], random_state=0)
        graphs = {
            "M -> L": unfair("A -> {M L}; M -> L; C -> {A M L}; {A M L C} -> Y", through=["M"]),
            "L -> M": unfair("A -> {M L}; L -> M; C -> {A M L}; {A M L C} -> Y", through=["M"]),
        }
        return pf.audit_graphs({"plain": MODEL}, graphs, two(), n_boot=0, random_state=0)


@pytest.fixture(scope="module", params=["audit", "contrasts", "edges", "graphs"])
def report(request: pytest.FixtureRequest) -> Any:
    return made(request.param)


def view(report: Any) -> View:
    return view_of(report) if isinstance(report, pf.Audit) else report.view


def test_what_the_text_says_is_what_the_page_says(report: Any) -> None:
    whole, text = view(report), report.details()
    page = Reader(report.to_html())
    told = [*whole.lead, *whole.closing, *whole.warnings]
    told += [line for _, texts in whole.assumptions for line in texts]
    for block in whole.blocks:
        told += block.lines
        for table in block.tables:
            told.append(table.caption)
            cells = [*table.columns, *(cell for row in table.rows for cell in row), table.note]
            assert all(all(part in text for part in cell.split()) for cell in cells)
            assert all(" ".join(cell.split()) in page.words for cell in cells)
    assert len(told) > 10
    for line in told:
        assert line in text
        assert " ".join(line.split()) in page.words
    for _, each in whole.answers:
        assert each.head in page.words


def test_a_page_escapes_names_and_names_each_part_once(report: Any) -> None:
    for text in (report.to_html(), report._repr_html_()):
        page = Reader(text)
        assert page.of("script") == page.of("i") == []
        assert len(page.ids) == len({*page.ids})
        if "plain" in report.details() and NASTY in report.details():
            assert NASTY in page.words


def test_no_line_of_a_table_is_wider_than_asked(report: Any) -> None:
    for block in view(report).blocks:
        for table in block.tables:
            assert max(map(len, table.lines()[1:])) <= WIDTH
        for table in (*block.tables, *block.pictures):
            assert len(table.lines(10_000)) == 2 + len(table.rows) + bool(table.note)  # a line each


def test_long_cells_are_wrapped_and_intervals_stay_whole() -> None:
    frame = pd.DataFrame({"name": ["a " * 40, "b"], "share": ["10.0% [8.0, 12.0]", "5.0%"]})
    lines = make_table("t", "A caption", frame, note="A note.").lines(40)
    assert lines[0] == "A caption"
    assert lines[-1] == "A note."
    assert max(map(len, lines)) <= 40
    assert sum(line.count("a") for line in lines[2:-2]) == 40
    assert sum("[8.0, 12.0]" in line for line in lines) == 1


def test_spans_are_the_same_for_any_leading_column() -> None:
    report = made("audit")
    for key, table, of in (
        ("threshold", report.thresholds[report.thresholds["model"] == "plain"], 0.3),
        ("model", report.table[report.table["decisions"] == "threshold"], "plain"),
        ("level", report.subgroups[report.subgroups["model"] == "plain"], "1"),
    ):
        found = spans_table("t", "c", table, key)
        row = dict(zip(found.columns, next(each for each in found.rows if each[0] == str(of)), strict=True))
        own = {each.quantity: each for each in table[table[key] == of].itertuples()}
        for label, quantity in (("mean unfair effect", "mean_unfair_effect"), ("PIU at most", "piu_upper")):
            each = own[quantity]
            size = f"{100 * each.estimate:+.1f} points" if label == "mean unfair effect" else f"{each.estimate:.1%}"
            assert row[label] == f"{size} [{100 * each.lower:.1f}, {100 * each.upper:.1f}]"
        pd.testing.assert_frame_equal(found.source, table)


def test_spans_of_bounds_and_of_one_limit() -> None:
    def row(**of: float) -> Any:
        return type("Row", (), {"estimate": np.nan, "lower": np.nan, "upper": np.nan} | of)

    assert span(row(low=0.1, high=0.2)) == "10.0% to 20.0%"
    assert span(row(low=0.2, high=0.1)) == "10.0% to 20.0% (bounds cross)"
    assert span(row(low=0.1, high=0.2, lower=0.05, upper=0.25)) == "10.0% to 20.0% [5.0, 25.0]"
    assert span(row(estimate=0.1, low=0.1, high=0.1, upper=0.25)) == "10.0% [at most 25.0]"
    assert span(row(low=-0.1, high=0.2), points=True) == "-10.0 to 20.0 points"
    assert span(row(estimate=0.0, low=0.0, lower=-0.05, upper=0.05), points=True) == "+0.0 points [-5.0, 5.0]"
    assert span(row()) == "not available"


def test_json_holds_the_tables_and_the_readings(report: Any) -> None:
    found = json.loads(report.to_json())
    assert found["warnings"] == [*view(report).warnings]
    if isinstance(report, pf.Audit):
        return
    assert found["schema"] == "pyrofair-family"
    for name in ("quantities", "overall", "verdicts"):
        back = pd.DataFrame(found[name], columns=list(getattr(report, name).columns))
        for column, given in getattr(report, name).items():
            if pd.api.types.is_float_dtype(given):
                np.testing.assert_array_equal(back[column].astype(float), given)
            else:
                assert back[column].tolist() == given.tolist()
    assert [*found["failures"]] == [str(each) for each in report.failures]
    assert "audits" not in found
    with_rows = json.loads(report.to_json(rows=True))
    assert [*with_rows["audits"]] == [str(each) for each in report.audits]
    with pytest.raises(pf.DataError, match="rows"):
        report.to_json(rows="yes")


def test_every_member_has_a_reading_and_a_line_of_the_picture(report: Any) -> None:
    if isinstance(report, pf.Audit):
        return
    members = list(dict.fromkeys(report.quantities[report.key]))
    models = report.quantities["model"].unique()
    assert report.quantities.columns[0] == report.key
    assert list(report.quantities.columns[1:4]) == ["model", "decisions", "quantity"]
    read = report.verdicts.set_index([report.key, "model", "decisions"])
    assert len(read) == len(members) * len(models) * 2
    for name, each in report.audits.items():
        own = each.verdicts.set_index(["model", "decisions"])
        for of in own.index:
            if report.key != "contrast":  # whose intervals hold together
                assert read.loc[(name, *of), "verdict"] == own.loc[of, "verdict"]
            assert read.loc[(name, *of), "most"] >= own.loc[of, "most"] - 1e-12
    for decisions in ("threshold", "score"):
        figure = report.plot(models[-1], decisions)
        assert isinstance(figure, Figure)
        labels = [each.get_text() for each in figure.axes[0].get_yticklabels()]
        assert len(labels) == len(members)
        assert all(any(str(name).strip("()") in label or "as it is" in label for label in labels) for name in members)
        drawn = report.quantities.query("quantity == 'piu_upper' and decisions == @decisions and model == @models[-1]")
        ends = [bar.get_x() + bar.get_width() for bar in figure.axes[1].patches]
        assert sorted(ends) == pytest.approx(sorted(drawn["estimate"].dropna()))
    with pytest.raises(pf.DataError, match="model="):
        report.plot("another")
    with pytest.raises(pf.DataError, match="decisions="):
        report.plot(decisions="drawn")


def test_a_family_is_written_with_a_title(tmp_path: Any) -> None:
    report = made("graphs")
    page = report.to_html(tmp_path / "graphs.html", title="Which graph?")
    assert (tmp_path / "graphs.html").read_text(encoding="utf-8") == page
    assert "Which graph?" in Reader(page).words
    with pytest.raises(pf.DataError, match="title=''"):
        report.to_html(title="")


def test_members_name_whom_a_warning_is_of() -> None:
    members = Members("graph", lambda names: f"The graphs {', '.join(names)}")
    one = made("audit")

    def audit(text: str) -> Any:
        for each in filter(None, ("of all", text)):
            warnings.warn(each, pf.PyrofairWarning, stacklevel=2)
        return one

    for name, text in {"a": "", "b": "of some", "c": "of some"}.items():
        members.run(name, lambda text=text: audit(text))
    with pytest.warns(pf.PyrofairWarning) as caught:
        texts = members.rewarn()
    assert texts == [str(each.message) for each in caught] == ["of all", "The graphs b, c: of some"]

    def refuse() -> Any:
        raise pf.DataError("no rows")

    members.run("d", refuse)
    with pytest.warns(pf.PyrofairWarning):
        assert "The graphs d could not be audited: no rows" in members.rewarn()
    table = members.table(["d", "a"])
    assert table["graph"].drop_duplicates().tolist() == ["d", "a"]
    assert (table.query("graph == 'd'")["note"] == "no rows").all()
    pd.testing.assert_frame_equal(
        table.query("graph == 'a'").drop(columns="graph").reset_index(drop=True), one.table, check_dtype=False
    )
    with pytest.raises(KeyError):  # only the errors that a member may have are kept
        members.run("e", lambda: {}["x"])


@pytest.mark.parametrize("status", WORDINGS)
def test_a_judgement_is_put_into_words_once(status: Any) -> None:
    each = Verdict(status, 0.08, 0.6, "the cause", 0.1, 0.7)
    assert each.body in each.text
    assert each.text.startswith(WORDINGS[status].word)
    assert "{" not in each.head + each.text
    assert ("the cause" in each.text) == ("{cause}" in WORDINGS[status].body)
    assert [*each.as_json()] == ["status", "text", "least", "most", "cause"]


@pytest.mark.parametrize(("contrast", "swapped"), [("b", False), ("b", True), (None, False)])
def test_a_table_of_labelled_codes_reads_as_that_of_the_labels(contrast: str | None, swapped: bool) -> None:
    """Whatever a person reads has the labels; the tables behind it have the codes."""
    codes = {"a": 0, "b": 1, "c": 2}
    table = rows()
    table = table[table["A"].isin(["a", contrast] if contrast else list(codes))].reset_index(drop=True)
    table["M"] = table["M"].where(table.index % 7 > 0)
    found = []
    for of in (dict(zip(codes, codes, strict=True)), codes):
        known = {of[each]: each for each in codes if contrast is None or each in ("a", contrast)}
        roles = {"baseline": of["a"], "contrast": contrast and of[contrast], "labels": known if of is codes else None}
        paths = pf.CausalGraph("C -> A; {A C} -> M; {A C M} -> Y", sensitive="A", outcome="Y", **roles).unfair("A -> Y")
        model = Known(lambda X, b=of["b"]: 0.3 + 0.25 * (X["A"] == b) + 0.1 * X["C"])
        df, how = table.assign(A=table["A"].map(of)), {"missing": "recorded", "random_state": 0}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pf.PyrofairWarning)
            source = pf.OneStep(paths.reversed() if swapped else paths, missing="recorded", **SATURATED)
            audit = pf.audit({"m": model}, source, df, thresholds=[0.4], subgroups=["C"], progress=False, **how)
            parts = pf.decompose({"m": model}, paths.graph, df, unfair=paths, **{**SATURATED, **how})
        found.append((audit, parts))
    (texts, parts), (coded, coded_parts) = found

    def read(report: Any) -> list[str]:
        page = re.sub(r'<a href="data:text/csv.*?</a>|<pre.*?</pre>', "", report.to_html(), flags=re.DOTALL)
        whole = report.details() if isinstance(report, pf.Audit) else report.view.text()
        own = r"(?<=each other level): [^<]*(?=</bdi>)| \(coded \d\)"
        return [re.sub(own, "", text) for text in (str(report), whole, page)]

    assert read(coded) == read(texts)
    assert read(coded_parts) == read(parts)
    told = json.loads(coded.to_json())
    assert (told["question"] if contrast else told)["labels"]["1"] == "b"
    assert json.loads(coded_parts.to_json())["labels"]["0"] == "a"
    assert {*coded.rates["group"]} == {"difference", *(str(codes[each]) for each in codes if each in {*table["A"]})}
