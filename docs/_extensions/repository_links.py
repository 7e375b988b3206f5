"""What follows from building the root of the repository: pages of linked source files, and a front page at the root."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.environment import BuildEnvironment

PATTERN = re.compile(r"[\w./-]+\*")
Linked = dict[str, set[str]]  # of each page, the files that it links to


def complete(app: Sphinx, docname: str, source: list[str]) -> None:
    """Leave out patterns of the front page that match no page."""
    if docname == app.config.root_doc:
        folder = Path(app.env.doc2path(docname)).parent
        lines = source[0].splitlines()
        kept = (line for line in lines if not PATTERN.fullmatch(line) or any(folder.glob(f"{line}.[mi]*")))
        source[0] = "\n".join(kept)


def linked(env: BuildEnvironment) -> Linked:
    """Return the files that pages link to; kept with the environment, so that partial builds know of all."""
    if not hasattr(env, "repository_links"):
        env.repository_links = {}  # type: ignore[attr-defined]
    found: Linked = env.repository_links
    return found


def lead_to_pages(app: Sphinx, document: nodes.document) -> None:
    """Replace downloads of source files by links to their pages, and links to what is not on the site by its path."""
    docname = app.env.current_document.docname
    for node in list(document.findall(addnodes.download_reference)):
        folder = "" if node["reftarget"].startswith("/") else posixpath.dirname(docname)
        path = posixpath.normpath(posixpath.join(folder, node["reftarget"].lstrip("/")))
        if Path(path).suffix == ".py":
            linked(app.env).setdefault(docname, set()).add(path)
            uri = app.builder.get_relative_uri(docname, f"source/{path}")
            node.replace_self(nodes.reference("", "", *node.children, refuri=uri, internal=True))
    for node in list(document.findall(addnodes.pending_xref)):
        path, known = f"{node.get('reftarget')}.md", node.get("reftarget") in app.env.found_docs
        if node.get("refdomain") == "doc" and not known and (Path(app.srcdir) / path).is_file():
            text = node.astext()  # a page of the repository that is not on the site
            place = [nodes.Text(f"{text} ("), nodes.literal("", path), nodes.Text(")")]
            node.replace_self(place if text != path else place[1])


def forget(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    """Drop the links of a page that is read again or gone."""
    linked(env).pop(docname, None)


def merge(app: Sphinx, env: BuildEnvironment, docnames: set[str], other: BuildEnvironment) -> None:
    """Take over the links of pages that another process read."""
    linked(env).update((name, links) for name, links in linked(other).items() if name in docnames)


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Return a page with the highlighted text of each file."""
    if isinstance(app.builder, StandaloneHTMLBuilder):
        for path in sorted(set().union(*linked(app.env).values())):
            code = (Path(app.srcdir) / path).read_text(encoding="utf-8")
            body = app.builder.highlighter.highlight_block(code, "python", linenos=False)
            yield f"source/{path}", {"title": path, "body": f"<h1>{path}</h1>{body}"}, "page.html"


def front_page(app: Sphinx, error: Exception | None) -> None:
    """Write the page at the root of the site, which leads to the front page in ``docs/``."""
    if error is None and isinstance(app.builder, StandaloneHTMLBuilder):
        page = f'<!doctype html><meta charset="utf-8"><title>{app.config.project}</title>'
        page += f'<meta http-equiv="refresh" content="0; url={{0}}"><a href="{{0}}">{app.config.project}</a>\n'
        uri = app.builder.get_target_uri(app.config.root_doc)
        (Path(app.outdir) / "index.html").write_text(page.format(uri), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the links and their pages."""
    app.connect("source-read", complete)
    app.connect("doctree-read", lead_to_pages, priority=300)  # before files to download are collected
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("html-collect-pages", pages)
    app.connect("build-finished", front_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
