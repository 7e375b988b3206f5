"""Drawings for pages: one element with a text alternative, the page's colours, and nothing that a page would run."""

from __future__ import annotations

import re
import warnings
import xml.etree.ElementTree as ET

import matplotlib as mpl
import pytest

from pyrofair.graph import drawing
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.svg import graph_svg

NASTY = "<script>alert(1)</script> #cc3311 id=\"x\" 'y' &amp; \x07\u05d0\u4e2d"
GRAPH = CausalGraph([("A", NASTY), (NASTY, "Y"), ("U", "Y")], sensitive="A", outcome="Y", latent=["U"])


def drawn(name: str = "graph") -> str:
    found = graph_svg(GRAPH, GRAPH.unfair(through=NASTY), name=name)
    assert found is not None
    return found


def test_names_are_texts() -> None:
    root = ET.fromstring(drawn())
    assert root.get("role") == "img"
    tags = {each.tag.partition("}")[2] for each in root.iter()}
    assert tags <= {"svg", "title", "desc", "defs", "clipPath", "rect", "g", "path", "text", "tspan", "use"}
    written = "".join(each.text or "" for each in root.iter() if each.tag.endswith(("text", "tspan")))
    for part in ("<script>", "#cc3311", 'id="x"', "&amp;"):
        assert part in written
    assert not [name for each in root.iter() for name in each.attrib if name.lower().startswith("on")]


def test_identifiers_are_unique_on_a_page_and_colours_are_its_own() -> None:
    page = drawn("one") + drawn("two")
    known = re.findall(r'<[^>]* id="([^"]*)"', page)
    assert len(set(known)) == len(known)
    assert {*re.findall(r'url\(#([^)]*)\)|labelledby="(\S+) ', page)}
    assert all(name in known for name in re.findall(r"url\(#([^)]*)\)", page))
    assert "two-title" in known
    tags = "".join(re.findall(r"<[^>]*>", page))
    assert not re.search(r"#[0-9a-f]{6}", tags)
    assert {"red", "ink", "latent", "node", "edge"} == {*re.findall(r"var\(--(\w+)\)", tags)}
    assert drawn() == drawn()


def test_a_page_has_no_drawing_if_matplotlib_cannot_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no fonts")

    monkeypatch.setattr(drawing, "draw_graph", fail)
    assert graph_svg(GRAPH) is None


def test_settings_and_warnings_are_left_alone() -> None:
    before = dict(mpl.rcParams)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn()
    assert dict(mpl.rcParams) == before
    large = CausalGraph([(f"n{i}", f"n{i + 1}") for i in range(70)], sensitive="n0", outcome="n70")
    assert graph_svg(large) is None
