"""Exogenous noise that rows determine: equations solved by a declared inverse, or because they are affine in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyrofair.exceptions import DataError
from pyrofair.inference.evidence import Evidence, Partly, Reading, repeat_each
from pyrofair.programs.couplings import CouplingError, inside, quantile

__all__ = ["Findings", "Inverse", "Line", "find_line", "in_support", "solve", "step_of_noise"]

Inverse = Callable[[dict[str, Tensor]], Any]
"""From the values of a row's nodes to the noise of one: a tensor, or one for each of several noise sites."""

PROBES = 4096
CHECKS = 6
FIRST, BISECTIONS, GRID = 1e-3, 50, 41


@dataclass
class Findings:
    """What is known of the noise of n units so far.

    For each noise site ``noise`` holds its values, shape (n, ...), and ``known`` of which units they are known, shape
    (n,). For each observed site computed from noise ``done`` holds whether its value is explained, and ``flat`` whether
    the noise has no bearing on it, shape (n,). ``declared`` are the sites solved by a declared inverse.
    """

    n: int
    noise: dict[str, Tensor] = field(default_factory=dict)
    known: dict[str, Tensor] = field(default_factory=dict)
    done: dict[str, Tensor] = field(default_factory=dict)
    flat: dict[str, Tensor] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)

    def is_known(self, key: str) -> Tensor:
        """Return of which units a noise site is known, shape (n,)."""
        return self.known.get(key, torch.zeros(self.n, dtype=torch.bool))

    def is_open(self, evidence: Evidence, site: str, key: str | None = None) -> Tensor:
        """Return for which units an equation is unsolved, and all its noise (but one site) is known, shape (n,)."""
        rows = ~self.done[site]
        for other in evidence.keys[site]:
            rows = rows & (self.is_known(other) if other != key else True)
        return rows

    def learn(self, key: str, rows: Tensor, values: Tensor) -> None:
        """Note the noise of some units."""
        if key not in self.noise:
            self.noise[key] = torch.full((self.n, *values.shape[1:]), math.nan, dtype=values.dtype)
            self.known[key] = torch.zeros(self.n, dtype=torch.bool)
        self.noise[key][rows] = values.to(self.noise[key].dtype)
        self.known[key][rows] = True

    def partly(self, keys: Iterable[str], rows: Tensor, repeat: int = 1) -> dict[str, tuple[Tensor, Tensor]]:
        """Return what is known of the noise of some units, each ``repeat`` times in a row."""
        return {
            key: (repeat_each(self.noise[key][rows], repeat), repeat_each(self.known[key][rows], repeat))
            for key in keys
            if key in self.noise
        }


class Line(NamedTuple):
    """A node as a straight line in one noise site, all else held: ``start + slope * noise``, shape (m,) each.

    ``flat``: the slope is zero.
    """

    start: Tensor
    slope: Tensor
    flat: Tensor


def find_line(
    evidence: Evidence, given: Mapping[str, Tensor], site: str, key: str, others: Mapping[str, Tensor]
) -> Line | None:
    """Return a computed node as a line in one noise site, at m units and their other noise; None if it is not affine.

    Evaluated at noise 0 and 1 and at draws, it lies on one line.
    """
    m = len(given[site])
    count = max(6, math.ceil(PROBES / m)) + 2
    fixed = torch.arange(count) < 2
    zero_one = torch.arange(count).to(torch.get_default_dtype()).repeat(m)
    try:
        reading = _probe(evidence, given, [site], others, count, {key: (zero_one, fixed.repeat(m))})
    except (RuntimeError, ValueError):  # the equation cannot take 0 or 1
        fixed = torch.zeros(count, dtype=torch.bool)
        reading = _probe(evidence, given, [site], others, count)
    u = reading.noise[key].to(torch.get_default_dtype()).reshape(m, count)
    f = reading.natural[site].to(torch.get_default_dtype()).expand(m * count).reshape(m, count)
    scale = evidence.scale[site]
    if fixed.any():
        start, slope = f[:, 0], f[:, 1] - f[:, 0]
        if bool(torch.isfinite(slope).all()) and _fits(u[:, 2:], f[:, 2:], start, slope, scale):
            return _line(u, f, start, slope, scale)
        u, f = u[:, 2:], f[:, 2:]
    far = (u - u[:, :1]).abs().argmax(1, keepdim=True)
    run = (u.gather(1, far) - u[:, :1]).squeeze(1)
    rise = (f.gather(1, far) - f[:, :1]).squeeze(1)
    slope = torch.where(run != 0, rise / run, 0.0)
    start = f[:, 0] - slope * u[:, 0]
    return _line(u, f, start, slope, scale) if _fits(u, f, start, slope, scale) else None


def _probe(
    evidence: Evidence,
    given: Mapping[str, Tensor],
    sites: Sequence[str],
    held: Mapping[str, Tensor],
    count: int,
    partly: Partly | None = None,
) -> Reading:
    """Evaluate equations of m units at ``count`` draws each of the noise that is not held, shape (m * count,)."""
    wide, known = ({name: repeat_each(each, count) for name, each in part.items()} for part in (given, held))
    return evidence.run(wide, sites, known, partly)


def _precision() -> float:
    return 1e-6 if torch.get_default_dtype() == torch.float64 else 1e-4


def _fits(u: Tensor, f: Tensor, start: Tensor, slope: Tensor, scale: float) -> bool:
    rise = slope.unsqueeze(1) * u
    size = scale + f.abs() + rise.abs() + start.abs().unsqueeze(1)
    return bool(((f - start.unsqueeze(1) - rise).abs() <= _precision() * size).all())


def _line(u: Tensor, f: Tensor, start: Tensor, slope: Tensor, scale: float) -> Line:
    reach = u.amax(1) - u.amin(1)
    return Line(start, slope, (slope * reach).abs() <= _precision() * (scale + f.abs().amax(1)))


def in_support(d: Any, u: Tensor, leeway: Tensor) -> tuple[Tensor, Tensor]:
    """Return noise of m units, moved into its support if no more than ``leeway`` outside, and whether it is inside."""
    inside = d.support.check(u) & torch.ones(len(u), dtype=torch.bool)
    for candidate in (u.round(), u + leeway, u - leeway):
        if bool(inside.all()):
            break
        better = ~inside & d.support.check(candidate) & ((candidate - u).abs() <= leeway)
        u, inside = torch.where(better, candidate, u), inside | better
    return u, inside


def solve(evidence: Evidence, inverses: Mapping[str, Inverse], *, lines: bool = True) -> Findings:
    """Solve equations for noise as long as one has a single unknown, or a declared inverse; with ``lines`` affine ones.

    A DataError names a row that is impossible under the program (a node without noise of its own takes another value
    than its equation gives, or the noise it would need is outside its support), or an inverse that does not invert.
    """
    found = Findings(evidence.n)
    nowhere = torch.zeros(evidence.n, dtype=torch.bool)
    explained = [s for s in evidence.explained if s not in evidence.info.random]
    found.done, found.flat = ({site: nowhere.clone() for site in explained} for _ in range(2))
    for site in inverses:
        _apply_inverse(evidence, found, site, inverses[site])
    tried: dict[tuple[str, str], Tensor] = {}
    progress = True
    while progress:
        progress = False
        for site in explained:
            progress |= _check(evidence, found, site)
            for key in evidence.keys[site]:
                if not lines or site == evidence.sensitive or not evidence.is_root(key):
                    continue
                before = tried.get((site, key), nowhere)
                rows = found.is_open(evidence, site, key) & ~found.is_known(key) & ~before
                if bool(rows.any()):
                    tried[site, key] = before | rows
                    progress |= _solve_one(evidence, found, site, key, rows.nonzero().squeeze(1))
        for key in evidence.readers if lines and not progress else ():
            progress |= _solve_vector(evidence, found, key)
    return found


def _check(evidence: Evidence, found: Findings, site: str) -> bool:
    """Where all the noise of a node is known, check that its value follows, and return whether any unit is new."""
    at = found.is_open(evidence, site).nonzero().squeeze(1)
    if not len(at):
        return False
    given = evidence.given(at)
    held = {key: found.noise[key][at] for key in evidence.keys[site]}
    natural = evidence.run(given, [site], held).natural[site]
    why = f", the noise {', '.join(held)} being known from other nodes" if held else " and reads no noise"
    evidence.refuse(
        ~evidence.close(site, natural, given),
        site,
        lambda i: (
            f" is impossible under the program: its equation gives {natural.expand(len(at))[i].item():g}{why}. Correct "
            "the row or the program; values that were rounded need noise of their own."
        ),
        at,
    )
    found.done[site][at] = True
    return True


def _solve_one(evidence: Evidence, found: Findings, site: str, key: str, at: Tensor) -> bool:
    given = evidence.given(at)
    others = {other: found.noise[other][at] for other in evidence.keys[site] if other != key}
    line = find_line(evidence, given, site, key, others)
    if line is None:
        return False
    value = given[site].to(line.start.dtype)
    evidence.refuse(
        line.flat & ~evidence.close(site, line.start, given),
        site,
        lambda i: (
            f" is impossible under the program: there it is {line.start[i].item():g} whatever the noise {key}. Correct "
            "the row or the program."
        ),
        at,
    )
    found.flat[site][at] |= line.flat
    tilted = ~line.flat
    at, start, slope, value = at[tilted], line.start[tilted], line.slope[tilted], value[tilted]
    if not len(at):
        return False
    given = evidence.given(at)
    others = {other: values[tilted] for other, values in others.items()}
    u = (value - start) / slope
    d = evidence.run(given, [site], others).distributions[key]
    u, inside = in_support(d, u, evidence.leeway(site, value) / slope.abs())
    evidence.refuse(~inside, site, partial(_outside, key, u, d), at)
    natural = evidence.run(given, [site], {**others, key: u}).natural[site]
    if not bool(evidence.close(site, natural, given).all()):
        return False  # a line only where it was probed
    found.learn(key, at, u)
    found.done[site][at] = True
    return True


def _solve_vector(evidence: Evidence, found: Findings, key: str) -> bool:
    """Solve as many equations as a noise vector has components for all of them at once, if they are affine in it."""
    if len(evidence.info.shapes[key]) == 1 or key in evidence.implicit:
        return False
    if any(above in evidence.readers for above in evidence.above[key]):
        return False
    size = math.prod(_shape_of(evidence, key))
    rows = ~found.is_known(key)
    sites: list[str] = []
    for site in found.done:
        if key in evidence.keys[site] and site != evidence.sensitive and len(sites) < size:
            alone = rows & found.is_open(evidence, site, key)
            if bool(alone.any()):
                rows = alone
                sites.append(site)
    others = {other for site in sites for other in evidence.keys[site]} - {key}
    at = rows.nonzero().squeeze(1)
    if len(sites) < size or not len(at):
        return False
    given, held = evidence.given(at), {other: found.noise[other][at] for other in others}
    plane = _find_plane(evidence, given, sites, key, held)
    if plane is None:
        return False
    start, slope, d = plane
    value = torch.stack([given[site].to(start.dtype) for site in sites], -1)
    try:
        solved = torch.linalg.solve(slope, value - start).reshape(len(at), *_shape_of(evidence, key))
    except RuntimeError:  # they do not determine it
        return False
    reading = evidence.run(given, sites, {**held, key: solved})
    if not all(bool(evidence.close(site, reading.natural[site], given).all()) for site in sites):
        return False
    count = size + 1 + CHECKS
    inside = evidence.possible(key, d, repeat_each(solved, count)).reshape(len(at), count)[:, 0]
    evidence.refuse(~inside, sites[0], partial(_outside, key, solved, d), at)
    found.learn(key, at, solved)
    for site in sites:
        found.done[site][at] = True
    return True


def _find_plane(
    evidence: Evidence, given: Mapping[str, Tensor], sites: Sequence[str], key: str, held: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor, Any] | None:
    """Return nodes as affine in a noise vector of as many components, at m units; None if they are not.

    They are start (m, size) + slope (m, size, size) times the noise, whose distribution at all probes comes with them.
    """
    size, m = len(sites), len(given[sites[0]])
    count = size + 1 + CHECKS
    units = torch.cat([torch.zeros(1, size), torch.eye(size), torch.zeros(CHECKS, size)]).repeat(m, 1)
    fixed = (torch.arange(count) <= size).repeat(m)
    partly = {key: (units.reshape(-1, *_shape_of(evidence, key)), fixed)}
    probed = _probe(evidence, given, sites, held, count, partly)
    u = probed.noise[key].to(torch.get_default_dtype()).reshape(m, count, size)
    f = torch.stack([probed.natural[site].to(u.dtype).expand(m * count).reshape(m, count) for site in sites], -1)
    start, slope = f[:, 0], (f[:, 1 : size + 1] - f[:, :1]).transpose(1, 2)
    expected = start.unsqueeze(1) + u @ slope.transpose(1, 2)
    scale = torch.tensor([evidence.scale[site] for site in sites])
    reach = scale + f.abs() + start.abs().unsqueeze(1) + u.abs() @ slope.abs().transpose(1, 2)
    affine = bool(((f - expected).abs() <= _precision() * reach).all())
    return (start, slope, probed.distributions[key]) if affine else None


def _outside(key: str, noise: Tensor, d: Any, row: int, by: str = "") -> str:
    shown = f"{noise[row].item():g}" if noise.ndim == 1 else np.round(noise[row].tolist(), 6)
    return (
        f" is impossible under the program:{by} its noise {key} would be {shown}, outside its support {d.support}. "
        "Correct the row or the program."
    )


def _apply_inverse(evidence: Evidence, found: Findings, site: str, inverse: Inverse) -> None:
    if site not in found.done or not evidence.keys[site]:
        raise DataError(
            f"inverses names {site!r}, which is no observed node computed from noise. Such nodes: "
            f"{', '.join(s for s in found.done if evidence.keys[s]) or 'none'}. The noise of a node drawn by "
            "pyro.sample is recovered through its distribution function."
        )
    given = evidence.given()
    held = _call_inverse(evidence, site, inverse, given)
    reading = evidence.run(given, [site], held)
    for key, values in held.items():
        d = reading.distributions[key]
        inside = evidence.possible(key, d, values)
        if values.ndim == 1:
            values, inside = in_support(d, values, 1e-5 * values.abs().clamp(min=1.0))
        evidence.refuse(~inside, site, partial(_outside, key, values, d, by=" by the declared inverse"))
        held[key] = values
    natural = evidence.run(given, [site], held).natural[site]

    def differs(row: int) -> str:
        shown = ", ".join(f"{key} = {np.round(held[key][row].tolist(), 6)}" for key in held)
        return (
            f": the declared inverse returns {shown}, at which the equation gives "
            f"{natural.expand(evidence.n)[row].item():g}. Correct the inverse, or the row."
        )

    evidence.refuse(~evidence.close(site, natural, given), site, differs)
    for key, values in held.items():
        found.learn(key, torch.arange(evidence.n), values)
    found.done[site][:] = True
    found.declared.add(site)


def _call_inverse(evidence: Evidence, site: str, inverse: Inverse, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the noise that a declared inverse gives, for each site that the node reads, shape (n, ...)."""
    try:
        noise = inverse(dict(given))
    except KeyError as error:
        raise DataError(
            f"The declared inverse of {site!r} asks for {error}; it is given the observed nodes {', '.join(given)}."
        ) from error
    keys = evidence.keys[site]
    named = noise if isinstance(noise, Mapping) else {keys[0]: noise}
    if set(named) != set(keys):
        raise DataError(
            f"The declared inverse of {site!r} returns "
            f"{', '.join(named) if isinstance(noise, Mapping) else 'one tensor'}, but {site!r} reads the noise "
            f"{', '.join(keys)}. Return a dictionary with a tensor for each."
        )
    found = {}
    for key in keys:
        shape, values = (evidence.n, *_shape_of(evidence, key)), torch.as_tensor(named[key])
        try:
            found[key] = values.to(torch.get_default_dtype()).expand(shape).clone()
        except RuntimeError as error:
            raise DataError(
                f"The declared inverse of {site!r} returns the shape {tuple(values.shape)} for {key}; expected "
                f"{shape}, a value for each row."
            ) from error
    return found


def _shape_of(evidence: Evidence, key: str) -> tuple[int, ...]:
    """Return the shape of one unit's noise."""
    return tuple(evidence.by_rows(key, evidence.spare[key]).shape[1:])


def step_of_noise(
    evidence: Evidence, given: Mapping[str, Tensor], site: str, key: str, others: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor, Any] | None:
    """Return between which probabilities of one noise site a computed node has the values of m units, (m,) each.

    It serves an equation that is monotone in one number of noise whose family has a quantile function, such as a
    rounded sum or an exponential: the probabilities are found by bisection, and the distribution of the noise comes
    with them. None is returned where the equation does not take the value anywhere between the ends, is not monotone at
    some points, or the noise is no such number.
    """
    value = given[site].to(torch.get_default_dtype())
    start = evidence.run(given, [site], dict(others)).distributions.get(key)
    if start is None or tuple(start.shape()) not in ((), value.shape):
        return None

    def at(u: Tensor) -> Tensor:
        found = evidence.run(given, [site], {**others, key: quantile(key, start, u)}).natural[site]
        return found.to(torch.get_default_dtype()).expand(value.shape)

    try:
        ends = [at(torch.full_like(value, u)) for u in (FIRST, 1.0 - FIRST)]
    except CouplingError:
        return None
    sign = torch.where(ends[1] < ends[0], -1.0, 1.0)
    last = sign * ends[0]
    for u in torch.linspace(FIRST, 1.0 - FIRST, GRID)[1:].tolist():
        now = sign * at(torch.full_like(value, u))
        if bool((now < last - _precision() * (1.0 + last.abs())).any()):
            return None  # not monotone
        last = now
    found = []
    for strict in (True, False):
        low, high = torch.zeros_like(value), torch.ones_like(value)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            gap = sign * (at(inside(middle)) - value)
            below = gap < 0 if strict else gap <= 0
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        found.append(high if strict else low)
    # Where the equation is continuous, and not a step, the two enclose the one probability.
    least, most = torch.minimum(*found), torch.maximum(*found)
    reached = evidence.close(site, at(inside((least + most) / 2)), given)
    return (least, most, start) if bool(reached.all()) else None
