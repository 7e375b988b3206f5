"""Programs of units in few words, and the graphs that they are read with."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyro
import pyro.distributions as dist
from torch import Tensor

from pyrofair import SEM, CausalGraph, UnfairPaths
from pyrofair.programs.provenance import Program
from tests.models import Known

Site = Callable[[Any], Any]


def units(outside: dict[str, Site] | None = None, **sites: Site) -> Program:
    """Return a program whose sites are drawn or computed for each unit, in this order.

    A site is a function of the values before it, such as ``lambda v: v.A + v.U``: it is drawn from a distribution that
    this returns, and is a tensor that this returns. A is a fair coin unless it is given; ``outside`` are parameters.
    """

    def program(n: int) -> None:
        values = SimpleNamespace(n=n)

        def add(name: str, made: Any) -> None:
            site = pyro.deterministic(name, made) if isinstance(made, Tensor) else pyro.sample(name, made)
            setattr(values, name, site)

        for name, site in (outside or {}).items():
            add(name, site(values))
        with pyro.plate("units", n):
            for name, site in (sites if "A" in sites else {"A": coin(), **sites}).items():
                add(name, site(values))

    return program


def coin(p: float = 0.5) -> Site:
    return lambda _: dist.Bernoulli(p)


def normal(loc: float = 0.0, scale: float = 1.0) -> Site:
    return lambda _: dist.Normal(loc, scale)


def graph(edges: str, **settings: Any) -> CausalGraph:
    return CausalGraph(edges, **{"sensitive": "A", "outcome": "Y", **settings})


def through(*nodes: str) -> UnfairPaths:
    """Return the one path of a chain from A through these nodes to Y."""
    chain = " -> ".join(("A", *nodes, "Y"))
    return graph(chain).unfair(chain)


def sem(program: Any, edges: str, *paths: str, **settings: Any) -> SEM:
    """Return a program with these unfair paths of the graph with these edges; a chain is its own only path."""
    return SEM(program, graph(edges).unfair(*(paths or (edges,))), **settings)


class Scores(Known):
    """A classifier of classes 0 and 1 whose P(Y = 1) is a function of the features."""

    classes_ = (0, 1)


kite = units(
    u1=normal(), u2=normal(), M1=lambda v: v.A + v.u1, M2=lambda v: 2 * v.M1 + v.u2, Y=lambda v: v.A + v.M1 + 5 * v.M2
)
"""A linear program with a recanting witness: A -> M1 -> M2 -> Y and A -> M1 -> Y."""
