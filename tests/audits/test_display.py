"""The page of an audit in a browser and as text: readable, accessible, alone, and with every name escaped."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest

import pyrofair as pf
from pyrofair.audits.display import SCHEMA_VERSION, table_fragment
from pyrofair.audits.display.tracks import SHARES, scale_of
from pyrofair.audits.display.words import answer, percent
from pyrofair.audits.verdicts import WORDINGS, Verdict, read_audit
from tests.models import Known
from tests.pages import Reader

GRAPH = pf.CausalGraph(
    "Q -> A; {A Q} -> M; {A M} -> D; {A Q M D} -> Y", sensitive="A", outcome="Y", baseline="woman", contrast="man"
)
UNFAIR = GRAPH.unfair("A -> Y", "A -> M -> Y", "A -> M -> D -> Y")
NAMES = {
    "A": "s<&\"'>ex" + "ual" * 30,
    "Q": "المهارة",
    "M": "=M & co",
    "D": "d" * 80,
    "Y": "</style><script>alert(2)</script>",
}
NASTY_MODEL = "<script>alert('1')</script> & \"quoted\" " + "long " * 40 + "x" * 150


def linear(base: float, a: float, m: float, names: dict[str, str] | None = None) -> Known:
    """Return scores that are linear in the columns, under their plain names."""

    def score(X: pd.DataFrame) -> Any:
        plain = X.rename(columns={new: old for old, new in (names or {}).items()})
        other = plain["A"].astype(str).str.contains("man$|<b>") & (plain["A"] != "woman")
        return base + a * other + m * plain["M"] + 0.1 * (plain["Q"] == "high")

    return Known(score)


def units(n: int = 1500) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    q = rng.integers(0, 3, n)
    a = rng.random(n) < 0.35 + 0.2 * (q == 1)
    m = (rng.random(n) < 0.2 + 0.35 * a + 0.1 * q).astype(int)
    d = (rng.random(n) < 0.3 + 0.3 * m).astype(int)
    y = (rng.random(n) < 0.15 + 0.25 * a + 0.3 * m + 0.1 * d).astype(int)
    return pd.DataFrame(
        {"A": np.where(a, "man", "woman"), "Q": np.array(["low", "middle", "high"])[q], "M": m, "D": d, "Y": y}
    )


def saturated(unfair: pf.UnfairPaths) -> pf.OneStep:
    return pf.OneStep(unfair, propensity="saturated", regression="saturated", random_state=0)


def audited(**settings: Any) -> pf.audits.Audit:
    given: dict[str, Any] = {
        "models": {
            "plain": linear(0.1, 0.3, 0.3),
            "penalised": linear(0.2, 0.05, 0.32),
            "constant": linear(0.7, 0.01, 0.01),
        },
        "source": saturated(UNFAIR),
        "df": units(),
        "random_state": 0,
    } | settings
    return pf.audit(given.pop("models"), given.pop("source"), given.pop("df"), progress=False, **given)


def nasty() -> pf.audits.Audit:
    df = units().rename(columns=NAMES)
    label = {"man": "<b>man</b>", "woman": " رجل طويل "}
    df[NAMES["A"]] = df[NAMES["A"]].map(label)
    edges = [(NAMES[one], NAMES[other]) for one, other in GRAPH.edges]
    graph = pf.CausalGraph(
        edges, sensitive=NAMES["A"], outcome=NAMES["Y"], baseline=label["woman"], contrast=label["man"]
    )
    unfair = graph.unfair(*([NAMES[node] for node in path] for path in UNFAIR.paths))
    models = {
        NASTY_MODEL: linear(0.1, 0.3, 0.3, NAMES),
        "نموذج": linear(0.2, 0.05, 0.32, NAMES),
        "'; --": linear(0.3, 0.1, 0.2, NAMES),
        "d": linear(0.1, 0.2, 0.3, NAMES),
    }
    within = {'<i>who & "what"</i>': lambda table: table[NAMES["Q"]]}
    return audited(models=models, source=saturated(unfair), df=df, subgroups=within)


def failed() -> pf.audits.Audit:
    source = saturated(UNFAIR).fit(units())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pf.PyrofairWarning)
        return audited(models={"plain": linear(0.1, 0.3, 0.3)}, source=source, df=units().query("A == 'man'"))


@pytest.fixture(scope="module")
def report() -> pf.audits.Audit:
    return audited(thresholds=[0.2, 0.5, 0.8], subgroups=["Q"])


@pytest.fixture(scope="module")
def gone() -> pf.audits.Audit:
    return failed()


@pytest.fixture(scope="module")
def escaped() -> pf.audits.Audit:
    return nasty()


# --- the page as text -------------------------------------------------------------------------------------------------


def test_the_page_is_alone_and_has_no_script(report: pf.audits.Audit) -> None:
    read = Reader(report.to_html())
    assert read.of("script") == []
    links = [each.get(name) or "" for _, each in read.elements for name in ("href", "src", "srcset", "action")]
    assert [link for link in links if link and not link.startswith(("#", "data:"))] == []
    assert read.of("html") == [{"lang": "en"}]
    assert len(read.of("table")) == len(read.of("caption")) > 5
    assert len(read.ids) == len(set(read.ids))
    assert {link[1:] for link in links if link.startswith("#")} <= set(read.ids)


def test_the_tables_are_there_as_csv(report: pf.audits.Audit) -> None:
    links = {each["download"]: each["href"] or "" for each in Reader(report.to_html()).of("a") if "download" in each}
    within = pd.read_csv(io.StringIO(unquote(links["subgroups-0.csv"].partition(",")[2])), keep_default_na=True)
    expected = report.subgroups[report.subgroups["model"] == "plain"].reset_index(drop=True)
    pd.testing.assert_frame_equal(within.drop(columns="note"), expected.drop(columns="note"), check_dtype=False)
    assert links["thresholds-2.csv"].startswith("data:text/csv;charset=utf-8,model%2Cthreshold")


def test_the_text_tells_of_thresholds_and_subgroups(report: pf.audits.Audit) -> None:
    text = report.details()
    at = report.thresholds.query("model == 'plain' and quantity == 'mean_unfair_effect'").set_index("threshold")
    within = report.subgroups.query("model == 'plain' and quantity == 'mean_unfair_effect'")
    for caption, own in (
        ("plain: decisions at several thresholds", at),
        *((f"plain, by {name}", rows.set_index("level")) for name, rows in within.groupby("subgroup")),
    ):
        table = text.partition(f"\n{caption}\n")[2].partition("\n\n")[0]
        for each in own.itertuples():
            line = next(line for line in table.splitlines() if line.split()[0] == f"{each.Index}")
            assert f"{100.0 * each.estimate + 0.0:+.1f} points" in line
    assert "All intervals of subgroups hold together with 95%" in text
    constant = text.partition("constant: decisions at several thresholds\n")[2].partition("\n\n")[0]
    assert "rows get the same decision" in " ".join(constant.split())  # why there is no verdict


def test_a_page_about_scores_speaks_of_no_threshold_but_where_it_is_one(report: pf.audits.Audit) -> None:
    texts = Reader(report.to_html(decisions="score")).words
    first = texts[: texts.index("Technical report")]
    rate = report.table.query("decisions == 'score' and model == 'plain'").set_index("quantity").loc["positive_rate"]
    assert "drawn with their scores" in first
    assert "if the score exceeds" not in first
    assert f"{percent(rate['estimate'])} if drawn with the scores" in first
    assert "Another threshold" not in first
    assert "if the score exceeds 0.5, not drawn." in texts
    assert "accuracy, cut at 0.5" in texts
    rule = pf.DecisionsOf(lambda X: (X["M"] == 1).to_numpy().astype(int))
    alone = audited(models={"plain": linear(0.1, 0.3, 0.3), "rule": rule})
    told = Reader(alone.to_html(decisions="score")).words
    assert "“rule” has no scores" in told
    assert "has no scores" not in alone.to_html()
    other = Reader(report.to_html()).words
    stated = re.search(r"lower bound of (\w+) runs from (.*)% \(at 0\.\d\) to (.*)% \(at 0\.\d\) over", other)
    assert stated
    own = read_audit(report.table, report.groups, report.context)[stated[1], "threshold"].least
    assert float(stated[2]) <= round(100 * own, 1) <= float(stated[3]), "the threshold of the page is among those tried"
    assert "Each interval holds separately" in other
    assert "drawn with" not in other[: other.index("Technical report")]


def test_decisions_that_no_threshold_changes() -> None:
    scores = {"fair": linear(-0.1, 0.0, 0.0), "unfair": linear(-1.0, 4.0, 0.1)}
    models = {name: Known(lambda X, each=each: each.score(X) > 0.5) for name, each in scores.items()}
    made = audited(models=models, thresholds=[0.3, 0.6])
    most = read_audit(made.table, made.groups, made.context)["unfair", "threshold"].least
    assert most > 0.0
    assert f"none has a lower bound above {percent(most)}." in Reader(made.to_html()).words


def test_names_are_escaped_everywhere(escaped: pf.audits.Audit) -> None:
    page = escaped.to_html(title="T <script>alert(3)</script> & co\u202e")  # which turns what follows round
    for text in (page, escaped._repr_html_()):
        read = Reader(text)
        assert read.of("script") == []
        assert read.of("i") == read.of("b") == []
        assert [name for _, each in read.elements for name in each if name.startswith("on")] == []
        assert len(read.of("style")) == 1
    texts = "".join(Reader(page).texts)
    assert NASTY_MODEL in texts
    assert "T <script>alert(3)</script> & co\\u202e" in texts
    assert "\u202e" not in page
    links = [each["href"] or "" for each in Reader(page).of("a") if "download" in each]
    rows = [row for link in links for row in csv.reader(io.StringIO(unquote(link.partition(",")[2])))]
    assert any(NASTY_MODEL in row for row in rows)
    assert any('<i>who & "what"</i>' in row for row in rows)


def test_a_graph_drawn_as_svg_has_its_text_alternative(report: pf.audits.Audit) -> None:
    page = report.to_html()
    assert re.search(r'<title id="graph-title">Causal graph from A to Y</title>', page)
    assert "Unfair paths, drawn thick and red: A -&gt; M -&gt; D -&gt; Y" in page
    assert page.count("stroke: var(--red); stroke-width: 2; stroke-linecap: round") == 2 * len(UNFAIR.edges)


def test_a_page_is_written_and_bad_settings_are_refused(report: pf.audits.Audit, tmp_path: Path) -> None:
    page = report.to_html(tmp_path / "report.html", title="Hiring")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page
    with pytest.raises(pf.DataError, match="decisions='drawn'"):
        report.to_html(decisions="drawn")  # type: ignore[arg-type]
    with pytest.raises(pf.DataError, match="title=' ' must be a text"):
        report.to_html(title=" ")
    with pytest.raises(pf.DataError, match=r"individuals=.* must be a table made by pyrofair.audits.flips"):
        report.to_html(individuals=report.table)


@pytest.mark.parametrize("status", WORDINGS)
def test_every_judgement_has_a_plain_answer(status: Any) -> None:
    row = pd.Series({"estimate": 0.25})
    for paths in (UNFAIR, UNFAIR.reversed()):
        given = answer(Verdict(status, 0.08, 0.6, "Q", 0.1, 0.7), {"mean_unfair_effect": row}, paths, 0.95)
        assert given.head
        assert (given.tone == "unfair") == (status == "unfair")
        assert "nan" not in given.body
        if status == "unfair":
            assert "8.0%" in given.head
            words = ("8.0%", "60.0%", "95%", "woman" if paths.swapped else "man", "rises by 25.0")
            assert all(word in given.body for word in words)
    assert [percent(each) for each in (0.1234, -0.0001, 1.0, np.nan)] == ["12.3%", "0.0%", "100.0%", ""]


def test_nothing_on_the_page_is_cut_and_the_shortest_paths_come_first(report: pf.audits.Audit) -> None:
    page = report.to_html()
    assert "line-clamp" not in page
    assert "ellipsis" not in page
    shown = page[page.index("Unfair:") :].replace("\N{NO-BREAK SPACE}", " ")
    assert shown.index("A → Y") < shown.index("A → M")


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_effects_have_a_scale_of_their_own_with_0() -> None:
    known = SimpleNamespace(lower=-0.02, estimate=0.01, upper=0.04)
    scale = scale_of([known, SimpleNamespace(lower=np.nan, estimate=0.05, upper=np.nan)])
    assert scale.marks[0] <= -0.02
    assert scale.marks[-1] >= 0.05
    assert [at for at, _, is_zero in scale.ticks if is_zero] == [scale.at(0.0)]
    assert scale.at(scale.marks[0]) == "0.00%"
    assert scale.at(scale.marks[-1]) == "100.00%"
    assert [SHARES.at(each) for each in (0.25, 2.0, np.nan)] == ["25.00%", "100.00%", None]
    none = scale_of([])
    assert none.at(0.0) is not None


def test_thresholds_and_subgroups_are_drawn(report: pf.audits.Audit) -> None:
    page, models = report.to_html(), report.table["model"].nunique()
    levels = report.subgroups["level"].nunique()
    assert page.count('class="track piu"') == page.count('class="track effect"') == models * (1 + levels)
    assert 'id="thresholds-drawing-title"' in page
    assert 'data-label="PIU at most"' in page
    assert "details::details-content" in page
    labels = [each.get_text() for each in report.plot_subgroups("plain").axes[0].get_yticklabels()]
    assert labels == [f"Q: {level}" for level in dict.fromkeys(report.subgroups["level"])]
    figure = report.plot_subgroups()
    assert len(figure.axes[0].get_yticklabels()) == models * levels
    dots = [any(line.get_marker() == "o" and len(line.get_xdata()) for line in each.lines) for each in figure.axes[:2]]
    named = [each.get_text() for each in figure.legends[0].get_texts()]
    assert dots == ["mean unfair effect" in named, "PIU, both bounds nearly equal" in named]
    assert len(report.plot_thresholds().axes[0].collections) == models
    without = replace(report, thresholds=pd.DataFrame(), subgroups=report.subgroups.head(0))
    for draw in (without.plot_thresholds, without.plot_subgroups):
        with pytest.raises(pf.DataError, match="to draw: audit with"):
            draw()


def test_json_holds_all_tables(report: pf.audits.Audit) -> None:
    found = json.loads(report.to_json(rows=True))
    assert found["schema"] == "pyrofair-audit"
    assert found["schema_version"] == SCHEMA_VERSION
    assert list(found)[:13] == [
        "schema", "schema_version", "versions", "settings", "source", "question", "verdicts", "tables", "sections",
        "assumptions", "outcome_assumptions", "warnings", "context",
    ]  # fmt: skip
    for name in ("table", "groups", "stages", "thresholds", "subgroups"):
        table = getattr(report, name)
        back = pd.DataFrame(found["tables"][name], columns=list(table.columns))
        for column in table:
            if pd.api.types.is_float_dtype(table[column]):
                np.testing.assert_array_equal(back[column].astype(float), table[column])
            else:
                assert back[column].astype(object).where(back[column].notna(), None).tolist() == [
                    None if pd.isna(each) else each for each in table[column]
                ]
    verdicts = pd.DataFrame(found["verdicts"]["models"])
    assert verdicts["text"].tolist() == report.verdicts["verdict"].tolist()
    assert found["settings"]["random_state"] == 0
    assert found["question"]["unfair_paths"] == [list(path) for path in UNFAIR.paths]
    assert found["versions"]["pyrofair"] == pf.__version__
    assert len(found["influence"]) == report.influence.shape[1]
    assert found["draws"][0]["values"] == report.draws.iloc[:, 0].tolist()
    assert "draws" not in json.loads(report.to_json())
    assert report.to_json(indent=1).startswith('{\n "schema"')


def test_a_failed_audit_has_null_and_states_its_reason(gone: pf.audits.Audit, report: pf.audits.Audit) -> None:
    found = json.loads(gone.to_json())
    effects = [row for row in found["tables"]["table"] if row["quantity"] == "mean_unfair_effect"]
    assert {row["estimate"] for row in effects} == {None}
    assert {each["status"] for each in found["verdicts"]["models"]} == {"failed"}
    with pytest.raises(pf.DataError, match="indent=-1"):
        report.to_json(indent=-1)
    assert gone.context.failure.rstrip(".") in Reader(gone.to_html()).words
    assert "A='woman'" in gone.context.failure


def test_the_page_on_reports_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).resolve().parents[2] / "docs" / "report.md"
    (code,) = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "report_page"}
    exec(compile(code, str(page), "exec"), names)
    assert "Audit of the hiring model" in (tmp_path / "report.html").read_text(encoding="utf-8")
    found = json.loads(names["text"])
    listed = set(re.findall(r"`(\w+)`", page.read_text(encoding="utf-8").partition("## JSON")[2]))
    assert {*found, *found["verdicts"], *found["tables"]} <= listed


def test_studies_and_tables_show_themselves() -> None:
    empty = pf.simulate.Study(pd.DataFrame(), pd.DataFrame(), pd.DataFrame())
    assert "0 finished cells" in empty._repr_html_()
    wide = table_fragment("<b>title</b>", pd.DataFrame({"<i>": np.arange(100), "x": np.nan}))
    assert "&lt;b&gt;title" in wide
    assert "The first 60 of 100 rows." in wide
    assert wide.count("<tr>") == 61


# --- other sources ----------------------------------------------------------------------------------------------------


def test_every_source_has_a_page() -> None:
    df = units(600)
    model = {"plain": linear(0.1, 0.3, 0.3)}
    weights = pf.IPW(UNFAIR, propensity="saturated")
    for report in (
        audited(models=model, source=weights, df=df, n_boot=40, thresholds=[0.3, 0.6]),
        audited(models=model, source=weights, df=df, n_boot=0),
        audited(models=model, source=saturated(UNFAIR.reversed()), df=df.drop(columns="Y")),
        audited(models={"human": df["Y"].astype(float)}, source=saturated(UNFAIR), df=df, scores="outcome"),
    ):
        page = report.to_html()
        for row in report.verdicts.itertuples():
            assert row.verdict in "".join(Reader(page).texts)
        json.loads(report.to_json())


# --- in a browser -----------------------------------------------------------------------------------------------------

REQUIRED = os.environ.get("PYROFAIR_BROWSER") == "required"
SIZES = {"phone": (390, 844), "desktop": (1280, 900)}
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        if REQUIRED:
            pytest.fail("PYROFAIR_BROWSER=required, and there is no Chromium or no playwright.")
        pytest.skip("no Chromium, or no playwright")
    with sync_playwright() as started:
        found = started.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield found
        found.close()


@pytest.fixture(scope="module")
def pages(
    report: pf.audits.Audit, escaped: pf.audits.Audit, gone: pf.audits.Audit, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {"report": report, "escaped": escaped, "failed": gone}
    for name, each in found.items():
        each.to_html(folder / f"{name}.html", title="T <script>alert(3)</script>" if name == "escaped" else None)
    return {name: folder / f"{name}.html" for name in found}


@pytest.mark.parametrize("name", ["report", "escaped", "failed"])
def test_the_page_in_a_browser(name: str, browser: Any, pages: dict[str, Path]) -> None:
    """Nothing overflows, loads, or fails, and WCAG A and AA hold; the report in both schemes at both widths."""
    from axe_playwright_python.sync_playwright import Axe

    every = [("phone", "dark"), ("desktop", "light"), ("phone", "light"), ("desktop", "dark")]
    for size, scheme in every if name == "report" else every[:2]:
        width, height = SIZES[size]
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        page = context.new_page()
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message, said=said: said.append(message.text))
        page.on("pageerror", lambda error, said=said: said.append(str(error)))
        page.on("dialog", lambda dialog, said=said: said.append(dialog.message))
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.goto(pages[name].as_uri())
        across = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert across <= 0, f"{name} at {width} px overflows by {across} px"
        assert said == []
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
        if size == "desktop" and name != "escaped":  # the longest names take more, for nothing is cut
            bottom = page.evaluate("document.querySelector('.decide').getBoundingClientRect().bottom")
            assert bottom <= height, f"the first page of {name} is {bottom} px high"
        if (size, scheme) == ("desktop", "light") or (name, size, scheme) == ("report", "phone", "dark"):
            found = Axe().run(page, options={"runOnly": RULES}).response["violations"]
            assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
        context.close()


def test_the_page_without_scripts_and_in_print(browser: Any, pages: dict[str, Path], tmp_path: Path) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(pages["report"].as_uri())
    assert page.locator("h2", has_text="Technical report").is_visible()
    with page.expect_download() as started:
        page.locator("a[download='subgroups-0.csv']").click()
    started.value.save_as(tmp_path / "subgroups.csv")
    assert (
        (tmp_path / "subgroups.csv").read_text(encoding="utf-8").startswith("subgroup,level,model,decisions,quantity")
    )
    page.locator("summary", has_text="The graph and its paths in words").click()
    assert page.locator("pre", has_text="shared by both worlds: Q").is_visible()
    written = page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert written.startswith(b"%PDF")
    context.close()
