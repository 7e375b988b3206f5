"""The reference of commands, made from what ``--help`` shows: a page for each, and a table of them."""

from __future__ import annotations

import re

import click
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from pyrofair.commands.line import CODES, COMMANDS
from pyrofair.commands.options import Command


def as_text(text: str) -> str:
    """Return the help of an option as reStructuredText, with options as code."""
    escaped = re.sub(r"([*`|_\\])", r"\\\1", text)
    return re.sub(r"(?<![\w-])(--[a-z][a-z-]*)", r"``\1``", escaped)


def heading(text: str, line: str) -> list[str]:
    """Return a heading."""
    return ["", text, line * len(text), ""]


def page_of(command: Command) -> str:
    """Return the page of a command."""
    ctx = click.Context(command, info_name=f"pyrofair {command.name}")
    groups: dict[str, list[tuple[str, str]]] = {}
    for each in command.get_params(ctx):
        if (record := each.get_help_record(ctx)) is not None:
            groups.setdefault(getattr(each, "group", "options").capitalize(), []).append(record)
    example = (command.epilog or "").replace("\b\n", "").splitlines()
    lines = heading(f"pyrofair {command.name}", "=")[1:]
    lines += [as_text(command.help or ""), "", ".. code-block:: text", "", *(f"   {line}" for line in example), ""]
    lines += [f".. program:: pyrofair {command.name}", ""]
    for title, records in groups.items():
        lines += heading(title, "-")
        for flags, text in records:
            lines += [f".. option:: {flags.replace(' / ', ', ')}", "", f"   {as_text(' '.join(text.split()))}", ""]
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """Return the pages of all commands, below ``docs/reference``."""
    return {f"commands/{command.name}": page_of(command) for command in COMMANDS}


class Commands(SphinxDirective):
    """A table of the commands, which leads to their pages."""

    def run(self) -> list[nodes.Node]:
        """Return the table and the list of pages."""
        lines = [
            ".. list-table::",
            "   :widths: 3 7",
            "   :header-rows: 1",
            "",
            "   * - command",
            "     - what it does",
        ]
        for each in COMMANDS:
            lines += [f"   * - :doc:`pyrofair {each.name} <reference/commands/{each.name}>`"]
            lines += [f"     - {as_text(str(each.short_help))}"]
        names = [f"   {each.name} <reference/commands/{each.name}>" for each in COMMANDS]
        lines += ["", ".. toctree::", "   :hidden:", "", *names]
        container = nodes.Element()
        text = ["````{eval-rst}", *lines, "````"]
        self.state.nested_parse(StringList(text, self.env.docname), self.content_offset, container)
        return container.children


class ExitCodes(SphinxDirective):
    """The exit codes, as ``pyrofair --help`` prints them."""

    def run(self) -> list[nodes.Node]:
        """Return the text."""
        text = "\n".join(CODES.splitlines()[2:])
        return [nodes.literal_block(text, text, language="text")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the table."""
    app.add_directive("commands", Commands)
    app.add_directive("exit-codes", ExitCodes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
