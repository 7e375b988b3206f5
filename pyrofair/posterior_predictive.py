"""What would people be like if a site were set to a value? Draws under an intervention, parameters from a posterior."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import NDArray
from pyro import poutine
from torch import Tensor

from pyrofair._validation import require_callable, require_instance, require_integer, require_people, require_seed
from pyrofair.dependencies import read_dependencies
from pyrofair.exceptions import DataError
from pyrofair.interventions import do as intervene
from pyrofair.isolation import isolated, seed_from
from pyrofair.parameters import read_priors, require_posterior, thin
from pyrofair.posteriors import Posterior
from pyrofair.probing import at_parameters, evaluating
from pyrofair.programs import PEOPLE, Program, read_sites, require_finite

__all__ = ["predictive"]


def predictive(
    program: Program,
    posterior: Posterior | Mapping[str, npt.ArrayLike],
    *,
    do: Mapping[str, Any] | None = None,
    n: int | None = None,
    draws: int | None = None,
    random_state: int | np.random.Generator | None = None,
) -> dict[str, NDArray[Any]]:
    """Draw people from a program with posterior parameters, after an intervention if one is named.

    It is ``pyro.infer.Predictive`` of ``do(program, values)``, but for what goes wrong there: if the posterior draws
    hold values of what the intervention changes, of a mediator say, Predictive replays them, and the intervention has
    no effect below. Here the draws of each intervened site and of all its descendants are dropped, and these are drawn
    anew.

    Parameters
    ----------
    program
        A Pyro program of the number of people.
    posterior
        What :func:`pyrofair.posteriors.fit_posterior` returns; or draws of shape (draws, ...) of all parameters, and
        of per-person sites (draws, n, ...) if they are to be kept. Sites that the program computes are computed anew.
    do
        For each site to set its value, as in :func:`pyrofair.interventions.do`.
    n
        The number of people; by default that of the rows fitted, or of the per-person draws.
    draws
        The number of draws to use, spread evenly; by default all.
    random_state
        Seeds what is drawn; the global generators and Pyro's parameter store are left as they were.

    Returns
    -------
    dict of str to ndarray of shape (draws, n, ...)
        All per-person sites, an intervened one with its new value.

    Raises
    ------
    DataError
        If the posterior names a site that the program does not have, lacks a parameter, or holds draws that no
        posterior of this program holds (of another shape, missing, infinite, outside the prior's support); if draws
        differ in number, per-person draws are not of n people, or n cannot be told.
    GraphError
        If evidence bears on people.
    InterventionError
        If ``do`` names an unknown site, or a value does not fit it.

    Examples
    --------
    >>> import pyro
    >>> import pyro.distributions as dist
    >>> def program(n):
    ...     b = pyro.sample("b", dist.Normal(0.0, 5.0))
    ...     with pyro.plate("people", n):
    ...         A = pyro.sample("A", dist.Bernoulli(0.5))
    ...         D = pyro.sample("D", dist.Normal(b * A, 0.1))
    ...         pyro.sample("M", dist.Normal(D, 0.1))
    >>> stale = {"b": np.full(100, 2.0), "D": np.zeros((100, 3))}
    >>> predictive(program, stale, do={"A": 1}, random_state=0)["M"].mean().round(1)
    np.float32(2.0)
    """
    if n is not None:
        require_people("n", n)
    if draws is not None:
        require_integer("draws", draws)
    if do is not None:
        require_instance("do", do, Mapping, "a dictionary from sites to values, or None")
    require_callable("program", program, "a Pyro program of the number of units")
    require_posterior(posterior)
    require_seed(random_state)
    probe = at_parameters(program, posterior)
    info = read_sites(probe)
    info.refuse_evidence(())
    reads, people = read_dependencies(probe, info), info.sites
    values = dict(do or {})
    stale = {*values, *reads.descendants(values)}
    priors = read_priors(program, info, posterior)
    held = thin(priors.read(posterior, replay=True, spare=stale), draws)
    rows = {len(values[0]) for site, values in held.items() if site in people and values.ndim > 1}
    if isinstance(posterior, Posterior) and posterior.observed:
        rows = rows or {len(next(iter(posterior.observed.values())))}
    if n is None:
        if len(rows) != 1:
            raise DataError("The posterior does not tell the number of people; pass n=...")
        n = rows.pop()
    info.confirm(n)
    types = {**priors.dtypes, **info.dtypes}
    replayed = [site for site in reads.drawn if site in held and site not in stale]
    kept = {site: torch.as_tensor(held[site], device="cpu").to(types[site]) for site in replayed}
    for site in kept.keys() & set(people):
        if kept[site].shape[1:2] != (n,):
            raise DataError(
                f"The draws of the per-person site {site!r} have the shape {tuple(kept[site].shape)}; expected (draws, "
                f"{n}, ...) for n={n} people."
            )
    places = {site: shape.index(PEOPLE) if PEOPLE in shape else 0 for site, shape in info.shapes.items()}
    kept = {site: each.movedim(1, places[site] + 1) if site in places else each for site, each in kept.items()}
    return _replay(program, kept, values, len(next(iter(held.values()))), n, places, random_state)


def _replay(
    program: Program,
    kept: Mapping[str, Tensor],
    values: Mapping[str, Any],
    draws: int,
    n: int,
    places: Mapping[str, int],
    random_state: int | np.random.Generator | None,
) -> dict[str, NDArray[Any]]:
    found: dict[str, list[NDArray[Any]]] = {}
    with isolated(seed_from(random_state)), torch.no_grad():
        for place in range(draws):
            run = poutine.condition(program, data={site: each[place] for site, each in kept.items()})
            with evaluating(n, "people are drawn from it"):
                sites: Any = poutine.trace(intervene(run, values) if values else run).get_trace(n).nodes
            for site, place in places.items():
                require_finite(site, sites[site]["value"])
                values_of_site = sites[site]["value"].numpy()
                found.setdefault(site, []).append(np.moveaxis(values_of_site, place, 0) if place else values_of_site)
    return {site: np.stack(each) for site, each in found.items()}
