"""The reference of public names: a page for each, tables of them, and links to them from everywhere.

What is public is what ``__all__`` lists; the order is that of ``docs/api.md``. A name that is on top of the package,
``pyrofair.IPW``, is documented under that name, below the folder that defines it. Each build writes the pages of names
to ``docs/reference/FOLDER/NAME.rst``.
"""

from __future__ import annotations

import inspect
import re
import sys
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import command_pages
from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.ext.napoleon import NumpyDocstring
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
    """Return the position of each name in the tables of public names."""
    blocks = re.findall(r"(?ms)^```\{names\}\n(.*?)^```", TABLE.read_text(encoding="utf-8"))
    rows = [name for block in blocks for name in block.split()]
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


@cache
def things() -> list[str]:
    """Return the public names of all but folders."""
    return [name for name, (page, _) in public_names().items() if name != page]


def stub(name: str, thing: object) -> str:
    """Return the reStructuredText of the page of a name."""
    full, bare = f"pyrofair.{name}", name.rpartition(".")[2]
    if isinstance(thing, ModuleType):
        lines = [f".. automodule:: {full}", "   :members:"]
    elif isinstance(thing, type):
        lines = [f".. {'autoexception' if is_error(thing) else 'autoclass'}:: {full}", "   :members:"]
        lines += ["   :show-inheritance:"] if is_error(thing) else []
    elif callable(thing):
        lines = [f".. autofunction:: {full}"]
    else:
        folder = name.rpartition(".")[0]
        text = docstring(name).splitlines()
        complete_docstring(name, text)
        lines = [f".. py:data:: {bare}", f"   :module: pyrofair.{folder}", f"   :type: {type(thing).__name__}", ""]
        lines += [f"   {line}" for line in NumpyDocstring(text).lines()]
    return "\n".join([bare, "=" * len(bare), "", *lines, ""])


def stub_of(name: str) -> str:
    """Return the page of a name, below ``docs/reference``; two names that differ by capitals alone need two files."""
    page, thing = public_names()[name]
    bare = name.rpartition(".")[2]
    twins = [each for each in public_names() if each.rpartition(".")[2].lower() == bare.lower()]
    kind = "class" if isinstance(thing, type) else "function" if callable(thing) else "data"
    return f"{page}/{bare}" if len(twins) == 1 else f"{page}/{bare}-{kind}"


def write_stubs(app: Sphinx) -> None:
    """Write the pages of all names and commands, and remove those of what is gone; git does not see them."""
    folder = TABLE.parent / "reference"
    texts = {stub_of(name): stub(name, public_names()[name][1]) for name in things()} | command_pages.pages()
    pages = {folder / f"{name}.rst": text for name, text in texts.items()}
    for path in {*folder.glob("*/*.rst")} - {*pages}:
        path.unlink()
    for path, text in pages.items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # or all are read again
            path.write_text(text, encoding="utf-8")


def docstring(name: str) -> str:
    """Return the docstring of a public name; that of a constant stands below it, in the module that assigns it."""
    thing = public_names()[name][1]
    if callable(thing) or isinstance(thing, ModuleType):
        return inspect.getdoc(thing) or ""
    folder, _, bare = name.rpartition(".")
    for module in list(sys.modules):
        if module.startswith(f"pyrofair.{folder}."):
            docs = ModuleAnalyzer.for_module(module).find_attr_docs()
            if ("", bare) in docs:
                return "\n".join(docs["", bare])
    raise ExtensionError(f"pyrofair.{name} has no docstring below it")


def summary(name: str) -> str:
    """Return the first sentence of a docstring."""
    return " ".join(docstring(name).partition("\n\n")[0].split())


class Names(SphinxDirective):
    """A table of public names, each with the first sentence of its docstring: its content, one name a line."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        return self.table([line for line in self.content if line])

    def table(self, names: list[str]) -> list[nodes.Node]:
        """Return a table of names."""
        lines = [".. list-table::", "   :widths: 3 7", "   :header-rows: 1", "", "   * - name", "     - summary"]
        for name in names:
            if name not in public_names():
                raise self.error(f"pyrofair has no public name {name!r}")
            lines += [f"   * - :py:obj:`{name} <pyrofair.{name}>`", f"     - {summary(name)}"]
        return self.parse(lines)

    def parse(self, lines: list[str]) -> list[nodes.Node]:
        """Parse lines of reStructuredText on a page of Markdown."""
        container = nodes.Element()
        self.env.note_dependency(str(TABLE))
        self.state.nested_parse(StringList(["````{eval-rst}", *lines, "````"], self.env.docname), 0, container)
        return container.children


class PublicNames(Names):
    """The docstring of a folder, and its names with their pages; the folder ``errors`` has those of all folders."""

    has_content = False
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the text, the table and the list of pages."""
        page = self.arguments[0]
        names = [name for name in things() if public_names()[name][0] == page]
        if not names:
            raise self.error(f"pyrofair has no public names in {page!r}")
        found = []
        if page != ERRORS:  # not automodule: the name on top may be of a folder inside another one
            found = self.parse([f".. py:module:: pyrofair.{page}", "", *docstring(page).splitlines(), ""])
        pages = [f"   {name.rpartition('.')[2]} <{stub_of(name)}>" for name in names]
        return [*found, *self.table(names), *self.parse([".. toctree::", "   :hidden:", "", *pages])]


# --- examples and names to see ---------------------------------------------------------------------------------------

GENERAL = {"CausalGraph", "UnfairPaths", "PyrofairError", "DataError", "PyrofairWarning"}
"""Mentioned by most of the others."""
SECTION = re.compile(r"^(\w[\w ]*)\n-+\n", re.MULTILINE)
MOST = 6


@cache
def mentioned(name: str) -> list[str]:
    """Return the public names that the docstring and the annotations of one mention, without its examples."""
    thing = public_names()[name][1]
    text = re.split(r"(?m)^Examples\n-", docstring(name))[0]
    types = str(inspect.signature(thing)) if callable(thing) and not is_error(thing) else ""
    words = re.findall(r"[.`~](\w+)\b|\b([A-Z]\w*[A-Z]\w*)\b", text)  # no words of English
    said = {*map("".join, words), *re.findall(r"\b[A-Z]\w+", types)}
    found = [each for each in things() if each.rpartition(".")[2] in said and each != name]
    return [*found, *(each for each in things() if public_names()[each][1] in getattr(thing, "__bases__", ()))]


@cache
def related(name: str) -> list[str]:
    """Return the names to see: those that mention this one and are mentioned by it first."""
    back = [each for each in things() if name in mentioned(each)]
    both = [each for each in mentioned(name) if each in back]
    found = dict.fromkeys([*both, *mentioned(name), *back])
    kept = [each for each in found if each in both or name in GENERAL or each not in GENERAL] or [*found]
    return sorted(kept, key=lambda each: is_error(public_names()[each][1]))[:MOST]


def examples(text: str) -> str:
    """Return the section of a docstring that has examples, or nothing."""
    parts = SECTION.split(text)
    return dict(zip(parts[1::2], parts[2::2], strict=True)).get("Examples", "").strip()


def kinds(name: str) -> list[str]:
    """Return the public classes that are one of a class: derived from it, or with all that a protocol asks for."""
    asked, found = public_names()[name][1], []
    if not isinstance(asked, type) or is_error(asked):
        return []
    members = {part for each in asked.__mro__ for part in vars(each) if not part.startswith("_")}
    for each, (_, thing) in public_names().items():
        if not isinstance(thing, type) or each == name or getattr(thing, "_is_protocol", False):
            continue
        if getattr(asked, "_is_protocol", False):
            if members <= {*dir(thing), *inspect.signature(thing).parameters}:
                found.append(each)
        elif issubclass(thing, asked):
            found.append(each)
    return found


def makers(name: str) -> list[str]:
    """Return the functions and methods that return a class, and the classes that hold some of it."""
    found = []
    for each, (_, thing) in public_names().items():
        parts = {each: thing} if inspect.isfunction(thing) else {}
        if isinstance(thing, type):
            parts = {f"{each}.{part}": method for part, method in vars(thing).items() if inspect.isfunction(method)}
        for full, function in parts.items():
            returned = str(getattr(function, "__annotations__", {}).get("return", ""))
            if re.search(rf"\b{name.rpartition('.')[2]}\b", returned) and each != name:
                found.append(full)
        if re.search(rf"\b{name.rpartition('.')[2]}\b", str(getattr(thing, "__annotations__", {}).values())):
            found.append(each)
    return found


def borrowed(name: str) -> tuple[str, str] | None:
    """Return the examples for a class without any, and what they are of: what makes it, or is one of its kind."""
    for each in [name, *kinds(name)]:
        for full in [*makers(each), each]:
            thing = attrgetter(full)(pyrofair)
            owner = full if full in public_names() else full.rpartition(".")[0]
            if text := examples(inspect.getdoc(thing) or "") or examples(docstring(owner)):
                return full, text
            if full != name and owner != name and (found := borrowed(owner)):
                return found
    return None


def complete(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Complete the docstrings of public names."""
    if name.removeprefix("pyrofair.") in public_names():
        complete_docstring(name.removeprefix("pyrofair."), lines)


def complete_docstring(name: str, lines: list[str]) -> None:
    """Add the example of what makes a class, and the names to see, if the docstring has none."""
    text = "\n".join(lines)
    if ">>>" not in text and (found := borrowed(name)):
        lines += ["", "Examples", "--------", f"Of :obj:`pyrofair.{found[0]}`:", "", *found[1].splitlines(), ""]
    if "See Also\n---" not in text and (names := related(name)):
        lines += ["", "See Also", "--------", ", ".join(f"pyrofair.{each}" for each in names), ""]


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
        text = text and text.replace("<factory>", "...")  # of dataclasses: no expression, so that all of it stays text
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
    app.add_directive("names", Names)
    app.add_directive("public-names", PublicNames)
    app.connect("builder-inited", write_stubs)
    app.connect("autodoc-process-signature", short_types)
    app.connect("autodoc-process-docstring", complete, priority=300)  # napoleon has 500
    app.connect("autodoc-process-docstring", keep, priority=400)
    app.connect("autodoc-process-docstring", restore, priority=600)
    app.connect("autodoc-skip-member", skip_generated)
    app.connect("doctree-read", link_names)
    app.connect("html-page-context", lead_back)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
