"""The formula of both potential outcomes, or the error that names why there is none and what can be done then."""

from __future__ import annotations

from pyrofair._validation import require_choice
from pyrofair.exceptions import GraphError, NotIdentifiedError
from pyrofair.graph.identification import Estimand, Target, derive
from pyrofair.graph.paths import UnfairPaths
from pyrofair.graph.ways_out import find_ways_out

__all__ = ["identify"]


def identify(unfair: UnfairPaths, target: Target = "prediction") -> Estimand:
    """Derive the formula of both potential outcomes from the graph, edge by edge.

    Each child of the sensitive attribute reads one value of it, its arm. The distribution of the features in a world is
    the product of P(V | parents, A = arm of V). With latent nodes the graph is projected on the observed ones first,
    the arms carried along, and the children in one district must read one value.

    Parameters
    ----------
    unfair
        The unfair paths.
    target
        The classifier's prediction, a known function of the outcome's observed parents, or the observed outcome itself.

    Raises
    ------
    NotIdentifiedError
        With the cause: a recanting witness and two paths, or a district and its latent nodes. ``error.way_out`` is what
        can be done (:class:`pyrofair.graph.WaysOut`): other sets of unfair paths, nodes to measure, bounds.
    FormulaNotApplicableError
        If this formula does not apply although another one (the front-door formula) identifies the effect.

    References
    ----------
    Chikahara et al. (2021), appendices B and D; Avin, Shpitser and Pearl (2005); Shpitser (2013).

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> graph = CausalGraph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
    >>> found = identify(graph.unfair("A -> Y", "A -> D -> Y"))
    >>> print(found.switched.weight(group=1))
    1[A=1] P(A=1 | Q, D) P(A=0 | Q, D, M) / [P(A=1 | Q) P(A=0 | Q, D) P(A=1 | Q, D, M)]
    """
    if not isinstance(unfair, UnfairPaths):
        raise GraphError(f"identify needs unfair paths, such as graph.unfair('A -> Y'); got {type(unfair).__name__}.")
    require_choice("target", target, ("prediction", "outcome"), error=GraphError)
    try:
        return derive(unfair, target)
    except NotIdentifiedError as error:
        error.way_out = find_ways_out(unfair, target, error)
        raise
