"""The noise of given units as one object: what is known of it, and what their values say of nodes without a site.

Noise that is recovered in double precision gives the observed values back to 15 digits.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pyro.poutine.messenger import Messenger
from torch import Tensor

from pyrofair._random import keyed_strata, keyed_uniform
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.inference.evidence import Evidence, ReadSites
from pyrofair.programs.couplings import (
    COMPARING,
    Noise,
    Observed,
    Redraws,
    Uniform,
    at_noise,
    has_distribution,
    inside,
    noise_given,
    parameters_of,
    partner,
)
from pyrofair.programs.provenance import Program
from pyrofair.programs.worlds import quiet

__all__ = [
    "ImpossibleNoise",
    "KeyedNoise",
    "KeyedUniforms",
    "Moments",
    "ReadSites",
    "halves",
    "noise_of_units",
    "precision",
    "takes_float64",
]

MOST_STRATIFIED = 4
"""Draws of vectors of more numbers than these are independent, not one in each part of their distribution."""
TRIED = 61
"""With so many units a program is tried in float64; with few, what is assigned may be empty."""


# -- double precision --------------------------------------------------------------------------------------------------


@contextmanager
def precision(*, wide: bool) -> Iterator[None]:
    """Run in float64, in which recovered noise gives the observed values back to 15 digits, or in the types set."""
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64 if wide else before)
        yield
    finally:
        torch.set_default_dtype(before)


class _Widened(Messenger):
    """Put the values of some sites in float64."""

    def __init__(self, sites: Iterable[str]) -> None:
        super().__init__()
        self.sites = {*sites}

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg["name"] in self.sites and msg["value"].is_floating_point():
            msg["value"] = msg["value"].double()


def takes_float64(program: Program, sites: Iterable[str]) -> bool:
    """Return whether a program runs in float64 throughout; one with a float32 network, say, does not."""
    with precision(wide=True):
        try:
            with quiet(), _Widened(sites):
                program(TRIED)
        except (RuntimeError, TypeError, ValueError):  # the run proper raises it, if it was not the type
            return False
    return True


# -- the noise object of observed units --------------------------------------------------------------------------------


Moments = dict[str, tuple[Tensor, Tensor]]


class ImpossibleNoise(DataError):
    """Known noise under which an observed value has no probability; ``units`` (m,) holds of which of the units."""

    def __init__(self, text: str, units: Tensor) -> None:
        super().__init__(text)
        self.units = units


def noise_of_units(
    evidence: Evidence,
    rows: Tensor,
    repeat: int,
    known: Mapping[str, Tensor],
    uniform: Uniform | None = None,
    wanted: Collection[str] | None = None,
    *,
    tails: Tensor | None = None,
) -> tuple[Noise, Moments]:
    """Return the noise of units ``rows`` (r,), each ``repeat`` times, m = r * repeat, and moments of its uniforms (m,).

    ``known`` has the noise, (m, ...), of each unobserved random site that an observed one reads. That of an observed
    node drawn without explicit noise (by default of all, or of those wanted) is drawn given its value, by ``uniform``
    numbers. A possible value so far in a tail that the distribution function rounds to 0 or 1 is refused, or for the
    units of ``tails``, (m,) of truth values, has the last uniform number there, with a warning.
    """
    m, coupling, implicit = len(rows) * repeat, evidence.coupling, evidence.implicit
    evidence.info.confirm(m)
    given = evidence.given(rows, repeat)
    values = {site: evidence.spare_for(site, m) for site in evidence.spare if not (site in implicit and site in known)}
    values |= {site: evidence.as_site(site, each) for site, each in known.items() if site not in implicit}
    values |= evidence.parameters
    own = {site: each for site, each in known.items() if site in implicit}
    recorded = implicit & {*own, *(given if wanted is None else wanted)} - {evidence.sensitive}
    pairs = {site: (each, each) for site, each in own.items()}
    redraws: dict[str, Redraws | None] = dict.fromkeys(implicit)
    seen = {*evidence.nodes, *evidence.observed}
    run = ReadSites(Noise(m, coupling, values, pairs, redraws, seed=None), implicit, given, seen | recorded)
    run.run(evidence.program)
    factual = {site: value for site, value in run.values.items() if site in seen}
    natural = {site: run.natural.get(site, value) for site, value in factual.items()}
    distributions = {site: each for site, each in run.distributions.items() if site in recorded}
    for site in distributions:
        evidence.info.require_comparable(site, coupling)
    moments: Moments = {}
    for site, distribution in distributions.items():
        if site in given:
            value = given[site]
            values.pop(site, None)
            if coupling == "independent" and not has_distribution(site, distribution, value):
                redraws[site] = [(parameters_of(distribution), value)]
                moments[site] = torch.full(value.shape, torch.nan), torch.full(value.shape, torch.nan)
            else:
                own[site], *moment = _noise_at(evidence, site, distribution, value, rows, uniform, tails)
                moments[site] = moment[0], moment[1]
                natural[site] = at_noise(site, distribution, own[site], coupling)
        if site in own:
            pairs[site] = own[site], partner(own[site], coupling, site, uniform)
    values |= {site: value for site, value in factual.items() if site in evidence.info.random - implicit}
    compared = coupling in COMPARING
    under = {site: parameters_of(each) for site, each in distributions.items()} if compared else {}
    return Noise(m, coupling, values, pairs, redraws, None, Observed(factual, natural, under)), moments


def _noise_at(
    evidence: Evidence,
    site: str,
    distribution: Any,
    value: Tensor,
    rows: Tensor,
    uniform: Uniform | None,
    tails: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw the noise of an observed node given its value (m,), with mean and variance; see :func:`noise_of_units`."""
    own, mean, variance = noise_given(site, distribution, value, evidence.coupling, uniform)
    discrete, repeat = distribution.support.is_discrete, len(value) // len(rows)
    impossible = variance <= 0 if discrete else ~torch.isfinite(own)
    if tails is not None:
        far = impossible & (distribution.log_prob(value) > -torch.inf)
        if not discrete:
            far = (own == inside(own - 1.0)) | (own == inside(own + 1.0))
        impossible = (impossible & ~far) | (far & ~tails)
        if bool((far := far & tails).any()):
            warnings.warn(
                f"{evidence.describe(int(rows[int(far.int().argmax()) // repeat]), site)} lies so far in a tail of its "
                f"distribution (probability below {torch.finfo(torch.get_default_dtype()).eps:.0e}), in "
                f"{int(far.reshape(len(rows), repeat).any(1).sum())} row(s), that its noise is taken for the last "
                "number there: its value elsewhere is nearer to the others than it is here.",
                PyrofairWarning,
                stacklevel=3,
            )
    if bool(impossible.any()):
        row = int(rows[int(impossible.int().argmax()) // repeat])
        raise ImpossibleNoise(
            f"{evidence.describe(row, site)} has no probability under the program, given what the other nodes imply "
            "for the noise. Correct the row or the program.",
            impossible,
        )
    return own, mean, variance


# -- noise that belongs to rows ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class KeyedUniforms:
    """Uniform numbers of units (m * draws, ...), the draws of a unit one after the other, made of their rows' keys.

    The draws of one number lie one in each equal part of (0, 1), so that means over them vary less.
    """

    keys: NDArray[np.uint64]
    seed: int
    draws: int

    def __call__(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return the numbers of a name, shape (m * draws, ...)."""
        rest = tuple(shape[1:])
        few = int(np.prod(rest, dtype=np.int64)) <= MOST_STRATIFIED
        drawn = (keyed_strata if few else keyed_uniform)(self.keys, self.seed, name, (self.draws, *rest))
        return drawn.movedim(-1, 0).reshape(*shape).to(torch.get_default_dtype())


def halves(name: str, shape: Sequence[int]) -> Tensor:
    """Return for each number the probability of its median."""
    return torch.full(tuple(shape), 0.5)


@dataclass
class KeyedNoise(Noise):
    """Noise that is drawn from keyed uniforms, by quantile functions; ``axes`` holds the axis of each site's units."""

    axes: Mapping[str, int] = field(default_factory=dict)

    def draw(self, name: str, distribution: Any) -> Tensor:
        """Return the value of an exogenous site, at its uniform numbers on first use."""
        if name not in self.values:
            self.values[name] = self.at(name, distribution)
        return self.values[name]

    def at(self, name: str, distribution: Any) -> Tensor:
        """Return the value of a distribution of units at the uniform numbers of a name."""
        assert self.uniform is not None
        shape, axis = [*distribution.shape()], self.axes.get(name, 0)
        shape[axis : axis + 1] = []
        u = inside(self.uniform(name, (self.n, *shape))).movedim(0, axis)
        return at_noise(name, distribution, u, "monotone")

    def is_redrawn(self, name: str, distribution: Any) -> bool:
        """Return False: a family without a quantile function, whose draws cannot be keyed, is refused when met."""
        return False
