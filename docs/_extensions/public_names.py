"""The reference of public names: a directive that documents all of a folder, and links to them from everywhere.

What is public is what ``__all__`` lists; the order is that of the table in ``docs/api.md``. A name that is on top of
the package, ``pyrofair.IPW``, is documented under that name, in the page of the folder that defines it.
"""

from __future__ import annotations

import inspect
import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

import pyrofair

TABLE = Path(__file__).resolve().parents[1] / "api.md"
ERRORS = "errors"


def is_error(thing: object) -> bool:
    """Whether it is an error or a warning; all of these have one page."""
    return isinstance(thing, type) and issubclass(thing, BaseException)


@cache
def table_order() -> dict[str, int]:
    """Return the position of each name in the table of public names."""
    rows = re.findall(r"^\| `([\w.]+)` \|", TABLE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: position for position, name in enumerate(rows)}


@cache
def public_names() -> dict[str, tuple[str, object]]:
    """Return page and object of each documented name, without the leading ``pyrofair.``, in the order of the table."""
    found: dict[str, tuple[str, object]] = {}
    top = {name: getattr(pyrofair, name) for name in pyrofair.__all__}
    for page, folder in top.items():
        if isinstance(folder, ModuleType):
            found[page] = page, folder
            for name in folder.__all__:
                thing = getattr(folder, name)
                found[name if name in top else f"{page}.{name}"] = ERRORS if is_error(thing) else page, thing
    for name, thing in top.items():
        if name not in found and name != "__version__":
            found[name] = ERRORS, thing
    order = table_order()
    return dict(sorted(found.items(), key=lambda item: order.get(item[0], len(order))))


def block(name: str, thing: object) -> list[str]:
    """Return the lines of reStructuredText that document a name."""
    full = f"pyrofair.{name}"
    if isinstance(thing, ModuleType):
        return [f".. automodule:: {full}", "   :members:", ""]
    if isinstance(thing, type):
        directive = "autoexception" if is_error(thing) else "autoclass"
        return [f".. {directive}:: {full}", "   :members:", "   :show-inheritance:" if is_error(thing) else "", ""]
    if callable(thing):
        return [f".. autofunction:: {full}", ""]
    folder, _, bare = name.rpartition(".")
    comment = documented_constant(folder, bare)
    options = [f"   :module: pyrofair.{folder}", f"   :type: {type(thing).__name__}"]
    return [f".. py:data:: {bare}", *options, "", *(f"   {line}" for line in comment), ""]


def documented_constant(folder: str, name: str) -> list[str]:
    """Return the docstring below a constant, from the module of the folder that assigns it."""
    for module in list(sys.modules):
        if module.startswith(f"pyrofair.{folder}."):
            docs = ModuleAnalyzer.for_module(module).find_attr_docs()
            if ("", name) in docs:
                return docs["", name]
    raise ExtensionError(f"pyrofair.{folder}.{name} has no docstring below it")


class PublicNames(SphinxDirective):
    """Document each public name of a folder: ``{public-names} graph``; ``errors`` are those of all folders."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the nodes that autodoc makes."""
        page = self.arguments[0]
        names = {name: thing for name, (where, thing) in public_names().items() if where == page and name != page}
        if not names:
            raise self.error(f"pyrofair has no public names in {page!r}")
        lines = []
        if page != ERRORS:  # not automodule: the name on top may be of a folder inside another one
            text = inspect.getdoc(getattr(pyrofair, page)) or ""
            lines = [f".. py:module:: pyrofair.{page}", "", *text.splitlines(), ""]
        for name, thing in names.items():
            lines += block(name, thing)
        self.env.note_dependency(str(TABLE))
        lines = ["````{eval-rst}", *lines, "````"]
        return self.parse_content_to_nodes(lines)

    def parse_content_to_nodes(self, lines: list[str]) -> list[nodes.Node]:  # type: ignore[override]
        """Parse lines of Markdown."""
        container = nodes.Element()
        self.state.nested_parse(StringList(lines, self.env.docname), self.content_offset, container)
        return container.children


# --- links -----------------------------------------------------------------------------------------------------------

PREFIXED = re.compile(r"(?:pf|pyrofair)\.([A-Za-z]\w*(?:\.\w+)*)(?:\(.*\))?")
BARE = re.compile(r"([A-Z]\w+(?:\.[a-z]\w*)?)(?:\(.*\))?")


def named(text: str, in_table: bool) -> str | None:
    """Return the documented name that a piece of code is, if it is one."""
    if in_table and text in public_names():
        return text
    match = PREFIXED.fullmatch(text) or BARE.fullmatch(text)
    if match is None:
        return None
    name = match.group(1)
    for each in public_names():
        owner = each if match.re is PREFIXED else each.rpartition(".")[2]
        if name == owner or name.startswith(f"{owner}."):
            return each + name.removeprefix(owner)
    return None


def skip_generated(app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object) -> bool | None:
    """Leave out the methods that scikit-learn adds to estimators to request metadata."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


ARRAY_LIKE = re.compile(r"[~\w.]*_?Buffer \| [^,]*?\bbytes \| str \| [~\w.]*_NestedSequence\[[^\]]*\]")
ARRAY = re.compile(r"[~\w.]*ndarray\[tuple\[[~\w.]*Any, \.\.\.\], [~\w.]*dtype\[([^\[\]]*)\]\]")


def short_types(
    app: Sphinx, what: str, name: str, thing: object, options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Write NumPy's ArrayLike and NDArray by their names instead of what they stand for."""

    def shorten(text: str | None) -> str | None:
        return text and ARRAY.sub(r"NDArray[\1]", ARRAY_LIKE.sub("ArrayLike", text))

    return shorten(signature), shorten(returns)


PLAIN: dict[str, list[str]] = {}


def keep(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Keep the docstring of a property, of which napoleon takes what precedes a colon for a type."""
    if what in ("property", "attribute", "data") and not any(line.startswith("---") for line in lines):
        PLAIN[name] = list(lines)


def restore(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Put the docstring of a property back as it is."""
    if name in PLAIN:
        lines[:] = PLAIN.pop(name)


def plain_types(document: nodes.document) -> None:
    """Leave types of parameters as text, but for public classes: "array of shape (draws, n)" is no set of names."""
    classes = {name.rpartition(".")[2] for name in public_names()}
    for field in document.findall(nodes.field):
        for link in list(field.findall(addnodes.pending_xref)):
            target = link["reftarget"]
            bare = link.get("refdomain") == "py" and not link.get("refexplicit") and "." not in target
            if bare and target not in classes:
                full = [each for each in link.findall(addnodes.pending_xref_condition) if each["condition"] == "*"]
                link.replace_self(full[0].children if full else link.children)


def link_names(app: Sphinx, document: nodes.document) -> None:
    """Make links of public names in backticks on pages of Markdown; the first column of the table is all names."""
    docname = app.env.current_document.docname
    plain_types(document)
    if docname.startswith("docs/reference/"):
        return
    for literal in list(document.findall(nodes.literal)):
        entry, above = None, literal.parent
        while above is not None and not isinstance(above, nodes.section):
            if isinstance(above, nodes.reference | addnodes.pending_xref | nodes.title):
                break
            entry = above if isinstance(above, nodes.entry) else entry
            above = above.parent
        else:
            first = docname == "docs/api" and entry is not None and entry.parent.index(entry) == 0
            name = named(literal.astext(), first)
            if name is not None:
                link = addnodes.pending_xref(
                    "", refdomain="py", reftype="obj", reftarget=f"pyrofair.{name}", refexplicit=True, refdoc=docname
                )
                literal.replace_self(link)
                link += literal


def imported(target: str) -> object:
    """Return the object at a dotted name, or None."""
    parts = target.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing: Any = import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            thing = getattr(thing, part, None)
        return thing
    return None


def owner_of(target: str) -> str | None:
    """Return the documented name that a target stands for, or that of the class whose attribute it is."""
    thing = imported(target) if target.startswith("pyrofair.") else None
    for name, (_, each) in public_names().items():
        if thing is not None and each is thing:  # whichever module the target names it in
            return name
        if thing is None and name.rpartition(".")[2] == target.partition(".")[0]:
            return name
    above, _, attribute = target.removeprefix("pyrofair.").rpartition(".")
    described = public_names().get(above, ("", None))[1]
    known = thing is not None or attribute in getattr(described, "__annotations__", {})
    listed = rf"(?m)^(\w+, )*{re.escape(attribute)}(, \w+)* : "  # under Attributes
    return above if described and (known or re.search(listed, inspect.getdoc(described) or "")) else None


def resolve(app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.Node) -> nodes.Node | None:
    """Resolve a name by the object it stands for, wherever that is defined; names of other packages are plain text.

    A name of this package that stands for nothing is left unresolved, and is an error of the build.
    """
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    owner = owner_of(target)
    found = env.domains.python_domain.objects.get(f"pyrofair.{owner}")
    if found is not None:
        return make_refnode(app.builder, node["refdoc"], found.docname, found.node_id, text, owner)
    return None if target.startswith("pyrofair.") and imported(target) is None else text


def lead_back(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None) -> None:
    """Mend links from source code to the reference: viewcode takes all names of a module to be documented under one."""
    if not page.startswith("_modules/pyrofair/") or "body" not in context:
        return
    module, documented = page.removeprefix("_modules/").replace("/", "."), app.env.domains.python_domain.objects

    def mend(match: re.Match[str]) -> str:
        name = match.group(2)
        if name in documented:
            return match.group(0)
        above = max((each for each in public_folders() if name.startswith(f"{each}.")), key=len, default="pyrofair")
        found = documented.get(f"pyrofair.{owner_of(module + name.removeprefix(above))}")
        return f'{match.group(1)}{found.node_id if found else name}"'

    context["body"] = re.sub(r'(class="viewcode-back" href="[^"#]*#)([\w.]+)"', mend, context["body"])


def public_folders() -> list[str]:
    """Return the names of the modules that entries of the reference stand in."""
    return ["pyrofair", *(f"pyrofair.{name}" for name, (_, each) in public_names().items() if is_module(each))]


def is_module(thing: object) -> bool:
    """Whether it is a folder or module."""
    return isinstance(thing, ModuleType)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and the links."""
    app.add_directive("public-names", PublicNames)
    app.connect("autodoc-process-signature", short_types)
    app.connect("autodoc-process-docstring", keep, priority=400)  # napoleon has 500
    app.connect("autodoc-process-docstring", restore, priority=600)
    app.connect("autodoc-skip-member", skip_generated)
    app.connect("doctree-read", link_names)
    app.connect("html-page-context", lead_back)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
