"""The *Remove* baselines: the columns that are left without those that carry unfair effects."""

from __future__ import annotations

from typing import Literal

from pyrofair._validation import require_choice
from pyrofair.exceptions import GraphError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.paths import UnfairPaths

__all__ = ["remove"]


def remove(graph: CausalGraph | UnfairPaths, kind: Literal["touched", "descendants"]) -> list[str]:
    """Return the columns that the *Remove* baseline keeps, out of those that a classifier may read.

    Parameters
    ----------
    graph
        The unfair paths; for ``"descendants"`` the graph is enough.
    kind
        ``"touched"`` removes the nodes that unfair paths touch, ``"descendants"`` the sensitive attribute and every
        descendant of it. The paper describes the first and argues from the second.

    Raises
    ------
    GraphError
        If the kind is unknown, needs unfair paths, or nothing is left.

    References
    ----------
    Chikahara et al. (2021), section 5 and appendix A.3; Kusner et al. (2017), section S4.

    Examples
    --------
    >>> graph = CausalGraph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
    >>> remove(graph.unfair("A -> Y", "A -> D -> Y"), "touched")
    ['Q', 'M']
    >>> remove(graph, "descendants")
    ['Q']
    """
    require_choice("kind", kind, ("touched", "descendants"), error=GraphError)
    whole = graph.graph if isinstance(graph, UnfairPaths) else graph
    if kind == "descendants":
        gone = {whole.sensitive, *whole.descendants(whole.sensitive)}
    else:
        if not isinstance(graph, UnfairPaths):
            raise GraphError("remove(..., 'touched') needs the unfair paths: remove(graph.unfair(...), 'touched').")
        gone = set(graph.touched)
    left = whole.columns_of(node for node in whole.inputs if node not in gone)
    if not left:
        raise GraphError(f"Nothing is left to predict from: {', '.join(whole.inputs)} are all removed.")
    return left
