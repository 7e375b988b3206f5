"""Who reads whom in a Pyro program? Marks that travel along, and values that are changed one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from pyro import poutine
from pyro.ops.provenance import ProvenanceTensor, detach_provenance, get_provenance
from pyro.poutine import runtime
from pyro.poutine.do_messenger import DoMessenger
from pyro.poutine.messenger import Messenger
from torch import Tensor

from pyrofair.exceptions import GraphError
from pyrofair.isolation import set_seed

__all__ = ["Program", "RefusePlainDo", "followed", "is_deterministic", "perturbed", "run_program"]

Program = Callable[[int], Any]
"""A Pyro program of the number of people."""


def is_deterministic(site: Any) -> bool:
    """Tell whether a site is computed."""
    return bool(site["infer"].get("_deterministic"))


def run_program(program: Program, n: int, *handlers: Messenger) -> dict[str, Any]:
    """Run a program, hidden from handlers outside, and return its sites.

    Left out are those that choose a subsample, and what a site would have been that an intervention has set.
    """
    wrapped: Any = program
    for handler in reversed(handlers):
        wrapped = handler(wrapped)
    with poutine.block():
        nodes = poutine.trace(wrapped).get_trace(n).nodes
    return {
        name: site
        for name, site in nodes.items()
        if site["type"] == "sample" and not (poutine.util.site_is_subsample(site) or site["infer"].get("_natural"))
    }


class RefusePlainDo(Messenger):
    """Refuse a program that Pyro's own ``do`` intervenes on: what it sets is hidden from all handlers outside."""

    def _pyro_sample(self, msg: Any) -> None:
        inside = runtime._PYRO_STACK[runtime._PYRO_STACK.index(self) :]
        if found := [handler for handler in inside if type(handler) is DoMessenger]:
            raise GraphError(
                f"pyro.poutine.do sets {', '.join(map(repr, found[0].data))} inside the program, and the site of that "
                "name is what it would have been, which nobody reads. Use pyrofair.interventions.do, whose sites are "
                "what they are set to."
            )


def _numbers(part: Any) -> list[Tensor]:
    """Return the tensors that a law is made of."""
    if isinstance(part, Tensor):
        return [part]
    if isinstance(part, torch.distributions.Distribution | torch.distributions.Transform):
        part = [value for name, value in vars(part).items() if name not in ("_mask", "_cached_x_y")]
    elif not isinstance(part, list | tuple):
        return []
    return [each for inside in part for each in _numbers(inside)]


def _says(site: Any) -> list[Tensor]:
    """Return what tells a site's equation: its value, or its law."""
    if is_deterministic(site):
        return [site["value"]]
    numbers = _numbers(site["fn"])
    try:
        return [*numbers, site["fn"].log_prob(detach_provenance(site["value"]))]
    except (NotImplementedError, ValueError, RuntimeError, TypeError, IndexError):
        return numbers


class _Track(Messenger):
    """Mark each per-person site's value with its name, and note which marks its law or value carries."""

    def __init__(self, sites: Sequence[str], parameters: Sequence[str]) -> None:
        super().__init__()
        self.sites, self.parameters = sites, parameters
        self.reads: dict[str, frozenset[str]] = {}

    def _pyro_post_sample(self, msg: Any) -> None:
        name = msg["name"]
        if name in self.sites:
            self.reads[name] = get_provenance(_says(msg))
            msg["value"] = ProvenanceTensor(detach_provenance(msg["value"]), frozenset({name}))
        elif name in self.parameters and (marks := get_provenance(_numbers(msg["fn"]))):
            raise GraphError(
                f"The site {name!r} is drawn once, outside the plate of people, and yet reads what differs between "
                f"people: {', '.join(sorted(marks))}. Put it inside the plate."
            )


def followed(program: Program, n: int, sites: Sequence[str], parameters: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return what each site reads through torch's operations.

    Parameters
    ----------
    program, n
        The program, and the number of people.
    sites, parameters
        The per-person sites; those drawn once.

    Raises
    ------
    GraphError
        If a site that is drawn once reads a per-person one.
    """
    track = _Track(sites, parameters)
    try:
        run_program(program, n, track)
    except GraphError:
        raise
    except Exception:
        pass  # say, a library that refuses marked tensors; what it reads is found by perturbation
    return track.reads


class _Hold(Messenger):
    """Hold every site at a value, and note what its equation says."""

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.values = values
        self.said: dict[str, list[Tensor]] = {}

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.values and not msg["is_observed"]:
            msg["value"], msg["done"] = self.values[msg["name"]], True

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg["name"] in self.values:
            self.said[msg["name"]] = _says(msg)
            msg["value"] = self.values[msg["name"]]


def perturbed(
    program: Program, n: int, sites: Sequence[str], known: Mapping[str, frozenset[str]], plain: Mapping[str, Any]
) -> dict[str, list[str]]:
    """Change one site at a time while all others are held, and see whose equation says something else.

    Each site takes the values of other people, and then the least and the greatest of all these for everybody.

    Parameters
    ----------
    program, n
        The program, and the number of people.
    sites
        The per-person sites.
    known
        What each is known to read.
    plain
        The sites of a run.

    Returns
    -------
    dict
        For sites that read more than is known: what.

    Raises
    ------
    GraphError
        If a site changes though nothing is changed.
    """
    # A computed step that is not per person is no site, and passes on what it reads.
    values: dict[str, Tensor] = {
        name: site["value"] for name, site in plain.items() if name in sites or not is_deterministic(site)
    }
    fresh = {name: site["value"] for name, site in run_program(program, n).items()}

    def said(changed: Mapping[str, Tensor], seed: int = 0) -> dict[str, list[Tensor]]:
        set_seed(seed)
        hold = _Hold({**values, **changed})
        try:
            run_program(program, n, hold)
        except Exception:
            return {}  # a value that never goes with the others may break the program
        return hold.said

    base = said({})
    for site in _differing(base, said({}, seed=1)):
        raise GraphError(
            f"The site {site!r} differs from run to run though all sites are held, so the program draws random numbers "
            "outside Pyro. Such noise cannot be shared by two worlds: name it, U = pyro.sample('U', ...)."
        )
    hidden: dict[str, list[str]] = {}
    for cause in sites:
        both = torch.cat([values[cause].flatten(), fresh[cause].flatten()])
        moves = [fresh[cause], *(torch.full_like(values[cause], end.item()) for end in (both.min(), both.max()))]
        if all(torch.equal(move, values[cause]) for move in moves) and both.is_floating_point():
            moves = [values[cause] + 1]
        for move in moves:
            for site in _differing(base, said({cause: move})):
                if site in sites and cause not in (site, *known.get(site, ()), *hidden.get(site, ())):
                    hidden.setdefault(site, []).append(cause)
    return hidden


def _differing(one: Mapping[str, list[Tensor]], other: Mapping[str, list[Tensor]]) -> list[str]:
    return [
        site
        for site in one
        if site in other and any(not _equal(a, b) for a, b in zip(one[site], other[site], strict=False))
    ]


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())
