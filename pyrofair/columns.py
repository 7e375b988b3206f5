"""Which columns of a table stand behind each node of a graph, and what else may have no column's name?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyrofair._validation import did_you_mean, shown
from pyrofair.edges import EdgeList
from pyrofair.exceptions import GraphError

__all__ = ["read_columns", "require_node", "unused_name"]


def require_node(nodes: Sequence[str], name: str, role: str) -> None:
    """Refuse a name that is no node.

    Raises
    ------
    GraphError
        With the nodes there are, and the one that may be meant.
    """
    if not isinstance(name, str) or name not in nodes:
        raise GraphError(
            f"{shown(name)}, named as {role}, is not in the graph. Its nodes: {', '.join(nodes)}."
            f"{did_you_mean(name, nodes)}"
        )


def read_columns(
    listed: EdgeList, columns: Mapping[str, str | Sequence[str]], latent: tuple[str, ...]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the columns of each observed node: those given, or one of the same name.

    Parameters
    ----------
    listed
        The nodes.
    columns
        For some nodes the name of their column, or a list of names.
    latent
        The nodes that no table holds.

    Raises
    ------
    GraphError
        For an unknown node, a latent node with columns, a node without, or a column of two nodes.
    """
    for node in columns:
        require_node(listed.nodes, node, "a node with columns")
        if node in latent:
            raise GraphError(f"{node!r} is declared latent and given columns; a latent node has none.")
    named = {node: columns.get(node, node) for node in listed.nodes if node not in latent}
    table = {node: (names,) if isinstance(names, str) else tuple(names) for node, names in named.items()}
    owner: dict[str, str] = {}
    for node, names in table.items():
        if not names:
            raise GraphError(f"{node!r} is given no columns. Name at least one, or declare it latent.")
        for name in names:
            if name in owner:
                both = f"{owner[name]!r} and {node!r}" if owner[name] != node else f"{node!r}, twice"
                raise GraphError(f"The column {name!r} stands in {both}; a column belongs to one node, once.")
            owner[name] = node
    return tuple(table.items())


def unused_name(name: str, taken: Collection[str]) -> str:
    """Return a name for a site that no column has.

    >>> unused_name("H_D", ["D", "H_D"])
    'H_D_'
    """
    while name in taken:
        name += "_"
    return name
