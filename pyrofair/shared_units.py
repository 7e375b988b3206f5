"""Both worlds of units that share only the nodes that no unfair path touches; all else is drawn anew in each world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pyrofair.couplings import Coupling
from pyrofair.equations import Equations
from pyrofair.exceptions import NotIdentifiedError
from pyrofair.noise import Noise
from pyrofair.parallel_worlds import Way, both_worlds
from pyrofair.worlds import World

__all__ = ["require_shared_first", "shared_worlds"]


def require_shared_first(equations: Equations, shared: Sequence[str]) -> None:
    """Refuse sites that cannot be drawn given the shared ones by the program alone.

    The others are drawn with ``do`` on the shared ones. That is their law given the shared ones if no shared site reads
    one of the others but the sensitive attribute, nor has noise in common with one.

    Parameters
    ----------
    equations
        The program.
    shared
        The sites that both worlds share. Latent nodes count as noise.

    Raises
    ------
    NotIdentifiedError
        With the two nodes, and the noise that they have in common.
    """
    latent = equations.unfair.graph.latent
    seen = tuple(site for site, node in equations.node_of.items() if node not in latent)
    read = {site: equations.info.causes(site, seen) for site in seen if site != equations.sensitive}
    for one in shared:
        for other in [site for site in read if site not in shared]:
            why = f"{one!r} reads {other!r}" if other in read[one][0] else ""
            if common := sorted({*read[one][1]} & {*read[other][1]}):
                why = f"the two have the noise {', '.join(common)} in common"
            if why:
                raise NotIdentifiedError(
                    f"Both worlds share {one!r}, and {other!r} would be drawn anew in each, given its parents alone; "
                    f"but {why}, so that is not its law given {one!r}. Use unit='noise'."
                )


def shared_worlds(
    equations: Equations,
    n: int,
    draws: int,
    coupling: Coupling,
    parameters: Mapping[str, Tensor],
    wanted: Sequence[str],
    *,
    way: Way,
) -> tuple[World, World]:
    """Draw the shared nodes once for each of n units, and the others ``draws`` times in each world, independently.

    Within one world, a site that is no node and is read by two of them is one site, coupled with itself as ``coupling``
    says where the two read different values of the sensitive attribute.

    Parameters
    ----------
    equations, wanted, way
        As for :func:`pyrofair.parallel_worlds.both_worlds`.
    n, draws
        The number of units, and of draws of each in each world.
    coupling
        How a site hangs together with itself.
    parameters
        The values of the sites outside the plate.

    Returns
    -------
    baseline, switched : dict of Tensor
        For each wanted site its values, shape (n * draws,), those of a unit one after the other.

    Raises
    ------
    NotIdentifiedError
        If other nodes cannot be drawn given the shared ones by the program alone.
    """
    shared = [site for site in equations.sites if equations.node_of[site] in equations.unfair.shared]
    require_shared_first(equations, shared)
    seeds = torch.randint(2**31 - 1, (3,)).tolist()  # first of all, so that the way of evaluation changes nothing
    units = Noise(n, coupling, dict(parameters), seed=seeds[2])
    first, _ = both_worlds(equations, units, shared, way=way)
    held = {site: first[site].repeat_interleave(draws, 0) for site in shared}
    known = {name: units.values[name] for name in equations.info.parameters if name in units.values}
    one, other = (
        both_worlds(equations, Noise(n * draws, coupling, dict(known), seed=seeds[which]), wanted, held, way=way)[which]
        for which in (0, 1)
    )
    return one, other
