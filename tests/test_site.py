"""The site builds without warnings, documents every public name, and has no broken links."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pyrofair
from pyrofair.commands.line import COMMANDS

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


def build(folder: Path, execute: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PYROFAIR_EXECUTE": execute,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(part for part in [str(ROOT), os.environ.get("PYTHONPATH", "")] if part),
    }
    options = ["-q", "-W", "--keep-going", "-n", "-c", "docs", "-d", folder / "doctrees"]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *options, ".", folder / "html"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def documented() -> set[str]:
    """The full names that the reference must have: all that `__all__` lists on top and one level down."""
    top = {name: getattr(pyrofair, name) for name in pyrofair.__all__ if name != "__version__"}
    folders = {name: thing for name, thing in top.items() if isinstance(thing, ModuleType)}
    below = {f"{name}.{each}" for name, folder in folders.items() for each in folder.__all__ if each not in top}
    return {f"pyrofair.{name}" for name in {*top, *below}}


def without_entry(pages: dict[str, Page]) -> list[str]:
    """The public names that no page of the reference has an entry of."""
    anchors = set().union(*(page.anchors for name, page in pages.items() if name.startswith("docs/reference/")))
    return sorted(documented() - {anchor.removeprefix("module-") for anchor in anchors})


def incomplete(site: Path, pages: dict[str, Page]) -> list[str]:
    """The public names whose entry has no example, or no names to see, and the names that share a page."""
    found = []
    folders = {name for name in documented() if isinstance(getattr(pyrofair, name.partition(".")[2], None), ModuleType)}
    for name in documented() - folders | {"pyrofair.mechanisms.families"}:
        (page,) = [page for page, content in pages.items() if {name, f"module-{name}"} & content.anchors]
        text = (site / page).read_text(encoding="utf-8")
        if page.count("/") != 3 or 'class="gp">&gt;&gt;&gt; </span>' not in text or "admonition seealso" not in text:
            found.append(name)
    return sorted(found)


def without_link(pages: dict[str, Page]) -> list[str]:
    """The public names in the table of names that do not lead to their entry."""
    links = {unquote(link).partition("#") for link in pages["docs/api.html"].links if link.startswith("reference/")}
    return sorted(documented() - {anchor.removeprefix("module-") for _, _, anchor in links})


def broken(site: Path, pages: dict[str, Page]) -> list[tuple[str, str]]:
    """The links and pictures that lead nowhere, with the page that has them; those to other sites are not tried."""
    found = []
    for name, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            path = (site / name).parent / unquote(parts.path) if parts.path else site / name
            path = path.resolve()
            anchor = unquote(parts.fragment)
            known = path.is_file() and path.is_relative_to(site)
            if known and anchor and path.suffix == ".html":
                known = anchor in pages[path.relative_to(site).as_posix()].anchors
            if not known:
                found.append((name, link))
    return found


def test_the_site(tmp_path: Path) -> None:
    """One test, for the build takes most of the time."""
    done = build(tmp_path, os.environ.get("PYROFAIR_EXECUTE", "off"))
    assert done.returncode == 0, done.stderr[-5000:]
    site = (tmp_path / "html").resolve()
    pages = {path.relative_to(site).as_posix(): Page(path) for path in site.rglob("*.html")}
    sources = {*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.ipynb")}
    in_repository = {ROOT / "docs" / f"{name}.md" for name in ("coverage", "pscf-measured", "reproduction")}
    in_repository |= {*(ROOT / "docs" / "decisions").glob("*.md")}
    shown = {path for path in sources if path.relative_to(ROOT).with_suffix(".html").as_posix() in pages}
    assert sources - shown == in_repository
    assert without_entry(pages) == []
    assert without_link(pages) == []
    assert incomplete(site, pages) == []
    for command in COMMANDS:
        anchors = pages[f"docs/reference/commands/{command.name}.html"].anchors
        flags = {flag for option in command.params for flag in option.opts if flag.startswith("--")}
        assert {f"cmdoption-pyrofair-{command.name}-{flag.lstrip('-')}" for flag in flags} <= anchors
    assert broken(site, pages) == []
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert index.startswith("Search.setIndex(")
    assert "pyrofair.penalizedclassifier" in index.lower()
    assert "docs/index.html" in pages["index.html"].links
    found = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))
    for stem, page in {
        "instal": "start-here",
        "faq": "faq",
        "interpret": "report",
        "discrimin": "responsible-use",
    }.items():
        hits = [found[each].get(stem, []) for each in ("terms", "titleterms")]
        hits = [each for hit in hits for each in (hit if isinstance(hit, list) else [hit])]
        assert f"docs/{page}" in [found["docnames"][each] for each in hits], stem
    assert not [name for name in found["docnames"] if "decisions" in name or "coverage" in name]
    assert not [path for path in ROOT.glob("docs/**/*") if path.suffix in (".html", ".doctree")]


def test_only_known_ways_to_run_notebooks(tmp_path: Path) -> None:
    done = build(tmp_path, "sometimes")
    assert done.returncode != 0
    assert "PYROFAIR_EXECUTE is 'sometimes'; it takes 'force', 'cache' or 'off'." in done.stderr
    assert not (tmp_path / "html" / "index.html").exists()
