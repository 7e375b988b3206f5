"""Links from pages to source files of the repository lead to pages of the site that show these files."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.environment import BuildEnvironment

Linked = dict[str, set[str]]  # of each page, the files that it links to


def linked(env: BuildEnvironment) -> Linked:
    """Return the files that pages link to; kept with the environment, so that partial builds know of all."""
    if not hasattr(env, "repository_links"):
        env.repository_links = {}  # type: ignore[attr-defined]
    found: Linked = env.repository_links
    return found


def lead_to_pages(app: Sphinx, document: nodes.document) -> None:
    """Replace downloads of source files by links to their pages."""
    docname = app.env.current_document.docname
    for node in list(document.findall(addnodes.download_reference)):
        folder = "" if node["reftarget"].startswith("/") else posixpath.dirname(docname)
        path = posixpath.normpath(posixpath.join(folder, node["reftarget"].lstrip("/")))
        if Path(path).suffix == ".py":
            linked(app.env).setdefault(docname, set()).add(path)
            uri = app.builder.get_relative_uri(docname, f"source/{path}")
            node.replace_self(nodes.reference("", "", *node.children, refuri=uri, internal=True))


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


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the links and their pages."""
    app.connect("doctree-read", lead_to_pages, priority=300)  # before files to download are collected
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
