"""Who reads whom in a Pyro program, the parameters outside its plate included."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyro
from pyro import poutine
from pyro.ops.provenance import ProvenanceTensor, detach_provenance, get_provenance
from pyro.poutine.messenger import Messenger
from torch import Tensor

from pyrofair._random import isolated
from pyrofair.programs.provenance import Program, is_deterministic, reading, says
from pyrofair.programs.sites import ProgramSites

__all__ = ["Dependencies", "read_dependencies"]

PEOPLE = 61


@dataclass(frozen=True)
class Dependencies:
    """The sites of a program, per unit or not, in the order it runs, and what each reads.

    Parameters
    ----------
    reads
        For each site the sites that its distribution, or its value if it is computed, reads directly.
    drawn, computed
        The sites that are drawn (and not observed in the program), and those that ``pyro.deterministic`` computes.
    stored
        What the program reads by ``pyro.param``.
    """

    reads: dict[str, frozenset[str]]
    drawn: tuple[str, ...]
    computed: tuple[str, ...]
    stored: tuple[str, ...]

    def descendants(self, sites: Iterable[str]) -> set[str]:
        """Return the sites that some sites influence, without themselves."""
        start = set(sites)
        found = set(start)
        while more := {site for site, above in self.reads.items() if site not in found and above & found}:
            found |= more
        return found - start


class _Marks(Messenger):
    """Mark the value of each site with its name, and note the marks that reach the distributions and values of
    others.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads: dict[str, frozenset[str]] = {}
        self.drawn: list[str] = []
        self.computed: list[str] = []
        self.stored: list[str] = []

    def _pyro_post_sample(self, msg: Any) -> None:
        if poutine.util.site_is_subsample(msg):
            return
        value = detach_provenance(msg["value"])
        told = list(says(msg).values())
        if not is_deterministic(msg):
            told += [each for each in (msg["mask"], msg["scale"]) if isinstance(each, Tensor)]
        # What masks or scales a log-probability bears on what a site tells of others.
        self.reads[msg["name"]] = get_provenance(told)
        if is_deterministic(msg):
            self.computed.append(msg["name"])
        elif not msg["is_observed"]:
            self.drawn.append(msg["name"])
        msg["value"] = ProvenanceTensor(value, frozenset({msg["name"]}))

    def _pyro_post_param(self, msg: Any) -> None:
        self.stored.append(msg["name"])


def read_dependencies(program: Program, info: ProgramSites) -> Dependencies:
    """Run a program on a few units, following dependencies through torch's operations.

    Parameters
    ----------
    program
        A Pyro program of the number of units.
    info
        What was read off it: per-unit sites may depend on each other in ways that torch does not show.

    Raises
    ------
    UnreadableError
        If the program fails with marked values, or a distribution cannot be read.

    Examples
    --------
    >>> import torch
    >>> from pyrofair.programs.sites import read_sites
    >>> import pyro.distributions as dist
    >>> def program(n):
    ...     b = pyro.sample("b", dist.Normal(0.0, 1.0))
    ...     with pyro.plate("people", n):
    ...         pyro.sample("A", dist.Bernoulli(torch.sigmoid(b)))
    >>> found = read_dependencies(program, read_sites(program))
    >>> found.reads["A"], found.descendants(["b"])
    (frozenset({'b'}), {'A'})
    """
    with reading("The program"), isolated(0), pyro.validation_enabled(False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with _Marks() as marks:
            program(PEOPLE)
    reads = {site: above | {*info.reads.get(site, ())} for site, above in marks.reads.items()}
    return Dependencies(reads, tuple(marks.drawn), tuple(marks.computed), tuple(marks.stored))
