"""Both worlds in one run of a program: the fast way, with a leading axis of two or three worlds."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from pyrofair.couplings import Coupling, CouplingError, law_parameters
from pyrofair.equations import Equations
from pyrofair.isolation import isolated
from pyrofair.noise import Noise, choose_noise, draw_from
from pyrofair.probing import evaluating
from pyrofair.worlds import Enough, WithNoise, World, node_by_node, quiet, sensitive_values

__all__ = ["Way", "WorldAxisError", "both_worlds", "choose_way", "side_by_side"]

Way = Literal["narrow", "wide", "node by node"]
"""One run with the sensitive attribute as one number a world, or one for each person; or a run for each node."""

TRIAL = (2, 3, 50)
"""The numbers of people with which a program is tried: as many as there are worlds, and more."""


class WorldAxisError(RuntimeError):
    """A program does not carry the axis of worlds along; it must be run node by node."""


@dataclass(frozen=True)
class _Sides:
    """The worlds that run side by side: the baseline, and the switched world read with one value of A or with either.

    Parameters
    ----------
    values
        The value of the sensitive attribute on each side, the baseline first.
    of
        For each site the side that shows it in the switched world.
    """

    values: tuple[int, ...]
    of: dict[str, int]

    @classmethod
    def needed(cls, equations: Equations, held: Iterable[str]) -> _Sides:
        """Find the side of each site.

        A site that is held, or reads nothing switched, is as in the baseline: side 0. One that reads the switched value
        of A is on side 1, and so is one that does not read A. Only a site that reads A as in the baseline and another
        site that is switched needs a side of its own, 2.
        """
        baseline, switched = equations.unfair.regimes
        low, arms = baseline.on_fair, switched.arms
        of: dict[str, int] = dict.fromkeys(held, 0)
        for site in [each for each in equations.sites if each not in of]:
            causes = equations.causes[site]
            moved = any(of.get(parent, 0) for parent in causes)
            reads = equations.sensitive in causes
            if reads and arms.get(equations.node_of[site], low) != low:
                of[site] = 1
            else:
                of[site] = (2 if reads else 1) if moved else 0
        return cls((low, 1 - low, low) if 2 in of.values() else (low, 1 - low), of)


class _SideBySide(WithNoise):
    """Run the worlds side by side along a leading axis.

    At each node the switched world takes the value from its own side and hands it to all of its sides, which is ``do``
    on that node.
    """

    def __init__(
        self, equations: Equations, noise: Noise, wanted: Iterable[str], held: Mapping[str, Tensor], *, narrow: bool
    ) -> None:
        super().__init__(equations, noise)
        self.held, self.narrow = held, narrow
        self.sides = _Sides.needed(equations, held)
        self.wanted = set(wanted)
        self.idle = equations.idle(self.wanted, [equations.sensitive, *held])
        # Zeros will do for idle noise where the program has been tried with them; elsewhere they might break it.
        self.tried = not held and self.wanted == set(read_by_classifier(equations))
        self.read = frozenset(parent for parents in equations.causes.values() for parent in parents)
        self.first: World = {}
        self.second: World = {}

    def _pyro_sample(self, msg: Any) -> None:
        name, info = msg["name"], self.equations.info
        if name in self.idle and msg["value"] is None:
            empty = torch.zeros((), dtype=info.dtypes[name]).expand(info.shape(name, self.noise.n))
            msg["value"], msg["done"] = empty if self.tried else draw_from(msg["fn"]), True
        else:
            super()._pyro_sample(msg)

    def respond(self, name: str, law: Any) -> Tensor:
        if self.noise.redraw(name, law) is not None:
            raise WorldAxisError(f"The site {name!r} is drawn for each distribution apart, and so for each world.")
        own, second = self.pair(name, law)
        if second is not own and self._has_axis(name, law.shape()):
            laws = law_parameters(law)
            first = [each[0] for each in laws]
            others = [choose_noise(own, second, first, [p[i] for p in laws]) for i in range(1, len(self.sides.values))]
            own = torch.stack([own, *others])
        return self.noise.value(name, law, own)

    def _shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a site in one world; a constant may come to differ between people."""
        return self.equations.info.shape(name, self.noise.n) or (self.noise.n,)

    def _has_axis(self, name: str, got: Iterable[int]) -> bool:
        """Tell whether a shape has taken on the axis of worlds, and refuse any other change."""
        shape, count, plain = tuple(got), len(self.sides.values), self._shape(name)
        once = self.equations.info.shape(name, 1) or (1,)
        if shape in (plain, self.equations.info.shape(name, self.noise.n)):
            return False
        if shape not in ((count, *plain), (count, *once)):
            raise WorldAxisError(f"The site {name!r} has the shape {shape} in {count} worlds, and {plain} in one.")
        return True

    def _pyro_post_sample(self, msg: Any) -> None:
        name, value = msg["name"], msg["value"]
        if name == self.equations.sensitive:
            msg["value"] = sensitive_values(self.equations, 1 if self.narrow else self.noise.n, self.sides.values)
        elif name in self.equations.node_of:
            side = self.sides.of[name]
            first = second = value
            if name in self.held:
                first = second = msg["value"] = self.held[name]
            elif self._has_axis(name, value.shape):
                # Where it depends on the sensitive attribute alone, it may be one number a world.
                value = msg["value"] = value.expand(len(value), *self._shape(name))
                first, second = value[0], value[side]
                if side == 0:
                    msg["value"] = first
                elif len(self.sides.values) > 2 and name in self.read:
                    msg["value"] = torch.stack([first, second, second])
            self.first[name], self.second[name] = first, second
            self.wanted.discard(name)
            if not self.wanted:
                raise Enough


def side_by_side(
    equations: Equations,
    noise: Noise,
    wanted: Iterable[str] | None = None,
    held: Mapping[str, Tensor] | None = None,
    *,
    narrow: bool = False,
) -> tuple[World, World]:
    """Evaluate sites in both worlds by one run with a leading axis of two or three worlds.

    It equals :func:`node_by_node` where a program's operations carry a leading axis along, as elementwise ones do.

    Parameters
    ----------
    equations, noise
        The program, and the people.
    wanted
        The sites to evaluate, by default all; the run ends once it has met them.
    held
        Sites that are set to the same values in both worlds.
    narrow
        Whether the sensitive attribute is one number a world, which saves time, and not one for each person.

    Raises
    ------
    NotIdentifiedError
        If the paths have a recanting witness, which takes more worlds than three.
    WorldAxisError
        If a site changes its shape otherwise than by the axis of worlds.
    """
    chosen = equations.sites if wanted is None else tuple(wanted)
    handler = _SideBySide(equations, noise, chosen, held or {}, narrow=narrow)
    if chosen:
        with quiet(), handler, suppress(Enough):
            equations.program(noise.n)
    return {site: handler.first[site] for site in chosen}, {site: handler.second[site] for site in chosen}


def read_by_classifier(equations: Equations) -> tuple[str, ...]:
    """Return the sites of the nodes that a classifier reads, but for the sensitive attribute."""
    return tuple(site for site in equations.sites if equations.node_of[site] in equations.unfair.graph.inputs)


def choose_way(equations: Equations, coupling: Coupling) -> Way:
    """Choose how to run a program: the quickest way that equals the definition on a few people.

    It is tried for the nodes that a classifier reads, which lets other noise idle, and for all nodes.

    Raises
    ------
    CouplingError
        If a node that a classifier reads needs one that is drawn without explicit noise from a family that cannot be
        coupled.
    GraphError
        If the program fails.
    """
    inputs = read_by_classifier(equations)
    trials = []
    with isolated(0), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in TRIAL:
            noise = Noise(n, coupling)
            with evaluating(n):
                trials.append((noise, inputs, node_by_node(equations, noise, inputs)))
            with suppress(CouplingError), evaluating(n):  # of a node that is shown, not read; whoever asks is told
                trials.append((noise, equations.sites, node_by_node(equations, noise)))
        ways: tuple[Way, ...] = ("narrow", "wide")
        for way in ways:
            if all(_equals(equations, *trial, narrow=way == "narrow") for trial in trials):
                return way
    return "node by node"


def _equals(
    equations: Equations, noise: Noise, wanted: tuple[str, ...], slow: tuple[World, World], *, narrow: bool
) -> bool:
    try:
        fast = side_by_side(equations, noise, wanted, narrow=narrow)
    except Exception:  # whatever goes wrong in the quick way, the definition is used in its place
        return False
    return all(_same(one, other) for one, other in zip(slow, fast, strict=True))


def _same(slow: World, fast: World) -> bool:
    return all(
        fast[site].shape == slow[site].shape
        and torch.allclose(fast[site].double(), slow[site].double(), equal_nan=True)
        for site in fast
    )


def both_worlds(
    equations: Equations,
    noise: Noise,
    wanted: Iterable[str] | None = None,
    held: Mapping[str, Tensor] | None = None,
    *,
    way: Way,
) -> tuple[World, World]:
    """Evaluate sites in both worlds in one of the ways.

    Parameters
    ----------
    equations, noise, wanted, held
        As for :func:`pyrofair.worlds.node_by_node`.
    way
        What :func:`choose_way` says.
    """
    equations.info.confirm(noise.n)
    if way != "node by node":
        with suppress(WorldAxisError):
            return side_by_side(equations, noise, wanted, held, narrow=way == "narrow")
    return node_by_node(equations, noise, wanted, held)
