"""The site builds without warnings, documents every public name, and has no broken links."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

import pyrofair

ROOT = Path(__file__).resolve().parents[1]


class Page(HTMLParser):
    """The anchors of a page, and what it links to or shows."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif (name == "href" or (name == "src" and tag in ("img", "script"))) and value:
                self.links.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {
        "PYROFAIR_EXECUTE": os.environ.get("PYROFAIR_EXECUTE", "off"),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(part for part in [str(ROOT), os.environ.get("PYTHONPATH", "")] if part),
    }
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-c", "docs", ".", folder / "html"]
    done = subprocess.run(
        [*command, "-d", folder / "doctrees"], cwd=ROOT, env=environment, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def documented() -> set[str]:
    """The full names that the reference must have: all that `__all__` lists on top and one level down."""
    top = {name: getattr(pyrofair, name) for name in pyrofair.__all__ if name != "__version__"}
    folders = {name: thing for name, thing in top.items() if isinstance(thing, ModuleType)}
    below = {f"{name}.{each}" for name, folder in folders.items() for each in folder.__all__ if each not in top}
    return {f"pyrofair.{name}" for name in {*top, *below}}


def test_every_public_name_has_an_entry(site: Path, pages: dict[Path, Page]) -> None:
    anchors = set().union(*(page.anchors for path, page in pages.items() if path.parent.name == "reference"))
    modules = {anchor.removeprefix("module-") for anchor in anchors if anchor.startswith("module-")}
    assert sorted(documented() - anchors - modules) == []


def test_every_page_is_on_the_site(site: Path) -> None:
    for source in (ROOT / "docs").rglob("*.md"):
        assert (site / source.relative_to(ROOT).with_suffix(".html")).exists(), source
    for source in (ROOT / "examples").glob("*.ipynb"):
        assert (site / source.relative_to(ROOT).with_suffix(".html")).exists(), source


def test_links_and_pictures_exist(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.is_relative_to(site.resolve()) or not target.exists():
                broken.append((path.relative_to(site), link))
            elif anchor and target.suffix == ".html" and anchor not in pages[target].anchors | {"top", "furo-main-content"}:
                broken.append((path.relative_to(site), link))
    assert broken == []


def test_search_and_the_front_page_exist(site: Path) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert index.startswith("Search.setIndex(")
    assert "penalizedclassifier" in index.lower()
    assert 'url=docs/index.html"' in (site / "index.html").read_text(encoding="utf-8")


def test_names_in_the_table_lead_to_the_reference(site: Path, pages: dict[Path, Page]) -> None:
    links = {link for link in pages[site / "docs" / "api.html"].links if link.startswith("reference/")}
    assert {unquote(link).partition("#")[2].removeprefix("module-") for link in links} >= documented()


def test_only_known_ways_to_run_notebooks(tmp_path: Path) -> None:
    environment = os.environ | {"PYROFAIR_EXECUTE": "sometimes"}
    command = [sys.executable, "-m", "sphinx", "-q", "-c", "docs", ".", tmp_path]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8")
    assert done.returncode != 0
    assert "PYROFAIR_EXECUTE is 'sometimes'; it takes 'force', 'cache' or 'off'." in done.stderr
    assert list(tmp_path.iterdir()) == []
