"""Exogenous noise that rows determine: equations solved by a declared inverse, as affine ones, or by bisection."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyrofair.exceptions import DataError
from pyrofair.inference.evidence import Evidence, Reading, repeat_each
from pyrofair.inference.roots import enclose
from pyrofair.programs.couplings import CouplingError, inside, noise_of, quantile, unwrap
from pyrofair.programs.distributions import FAR, TruncatedNormal, log_normal_interval

__all__ = ["BATCH", "CHECKS", "Equation", "Findings", "Inverse", "Preimage", "solve"]

Inverse = Callable[[dict[str, Tensor]], Any]
"""From the values of a row's nodes to the noise of one: a tensor, or one for each of several noise sites."""

BATCH = 2**16
"""A run holds at most so many units times proposals or draws."""
PROBES, CHECKS = 4096, 6
"""So many draws of all units together show what an equation is like, and so many at least of each."""
OUTWARD, INWARD = (1.0, 3.0, 9.0, 81.0), (0.0, 1e-12, 1e-6, 1e-3, 0.1)
"""It is tested so many ranges of these draws away, and at such shares of the way from an end of the support to them."""
BESIDE = (0.001, 0.1, 1.0)
"""So many ranges beside the noise of a row it is tested, too."""
WAYS = (-1.0, -0.1, -0.001, 0.001, 0.1, 1.0)
"""A vector of noise is tested so much of the way from that of a row to draws."""
HUGE = 1e30
"""What is greater counts as infinite."""


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

    def is_open(self, evidence: Evidence, site: str, *keys: str) -> Tensor:
        """Return for which units an equation is unsolved, and all its noise (but some sites) is known, shape (n,)."""
        rows = ~self.done[site]
        for other in evidence.keys[site]:
            rows = rows & (self.is_known(other) if other not in keys else True)
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


@dataclass(frozen=True, eq=False)
class Preimage:
    """The noise, from ``low`` to ``high``, at which computed nodes of m units take their observed values, (m,) each.

    The two are equal at a point. A node that is flat between them has its value with a probability, and ``flat`` ones
    do not depend on the noise. Only where the equation is affine or monotone the search is ``conclusive``; ``possible``
    holds whether some noise then gives the value.
    """

    low: Tensor
    high: Tensor
    conclusive: Tensor
    possible: Tensor
    flat: Tensor
    affine: Tensor

    @property
    def is_point(self) -> Tensor:
        """Whether exactly one number of noise gives the value, (m,)."""
        return self.conclusive & self.possible & (self.low == self.high)


@dataclass(frozen=True, eq=False)
class Equation:
    """A computed node of m units as a function of one noise site, its parents and its ``others`` held.

    Draws show what the equation is like where most units are, and a row may lie elsewhere: beyond a floor that few
    draws reach, say. So it is tested again far from the draws, and beside the noise that the row leads to.
    """

    evidence: Evidence
    rows: Tensor
    given: Mapping[str, Tensor]
    site: str
    key: str
    others: Mapping[str, Tensor]

    @cached_property
    def distribution(self) -> Any:
        """The distribution of the noise."""
        return self.evidence.run(self.given, [self.site], self.others).distributions[self.key]

    @cached_property
    def value(self) -> Tensor:
        """The observed values, (m,)."""
        return self.given[self.site].to(torch.get_default_dtype())

    @property
    def _scale(self) -> Tensor:
        return self.evidence.scale[self.site][self.rows]

    def __call__(self, noise: Tensor) -> Tensor:
        """Return the node at several numbers of noise of each unit, (m, k)."""
        parts = []
        for some in noise.split(max(1, BATCH // len(noise)), 1):  # type: ignore[no-untyped-call]
            reading = self._run(some.shape[1], {self.key: some.flatten()})
            parts.append(self._natural(reading, some.shape[1]))
        return torch.cat(parts, 1)

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """Return draws of the noise, and the node there, (m, count)."""
        reading = self._run(count, {})
        u = reading.noise[self.key].to(self.value.dtype).reshape(-1, count)
        alike = reading.noise[self.key].dtype == self.value.dtype  # and not drawn from parameters in float32
        return u, self._natural(reading, count) if alike else self(u)

    def _run(self, count: int, noise: Mapping[str, Tensor]) -> Reading:
        wide, held = ({name: repeat_each(v, count) for name, v in part.items()} for part in (self.given, self.others))
        return self.evidence.run(wide, [self.site], {**held, **noise})

    def _natural(self, reading: Reading, count: int) -> Tensor:
        return reading.natural[self.site].to(self.value.dtype).expand(len(self.value) * count).reshape(-1, count)

    def _possible(self, noise: Tensor, instead: Tensor) -> Tensor:
        """Return noise (m, k), with what its distribution cannot take replaced by a value (m, 1) that it can take."""
        support = self.distribution.support
        noise = noise.round() if support.is_discrete else noise
        return torch.where(noise.isfinite() & support.check(noise.T).T, noise, instead)

    def _far(self, u: Tensor, span: Tensor) -> Tensor:
        """Return noise far from draws (m, k): towards the ends of its support, or away from them if it has none.

        ``span`` is the widest range of all units: the few draws of one may all lie close together.
        """
        support, found = self.distribution.support, []
        for name, end, sign in (("lower_bound", u.amin(1), -1.0), ("upper_bound", u.amax(1), 1.0)):
            bound = torch.as_tensor(getattr(support, name, sign * torch.inf), dtype=u.dtype).expand(end.shape)
            finite = bound.isfinite()
            if bool(finite.any()):
                found.append(bound.unsqueeze(1) + (end - bound).unsqueeze(1) * torch.tensor(INWARD))
            if not bool(finite.all()):
                found.append(end.unsqueeze(1) + sign * span * torch.tensor(OUTWARD))
        return torch.cat(found, 1)

    def preimage(self, count: int) -> Preimage:
        """Find the noise that gives the observed values, from so many draws of each unit and from the values."""
        u, f = self.draw(count)
        one, span = u[:, :1], (u.amax(1) - u.amin(1)).unsqueeze(1)
        start, slope = self._line(u, f)
        target = (self.value - start) / slope
        beside = span * torch.tensor(BESIDE)
        more = torch.cat([self._far(u, span.amax()), target.unsqueeze(1) - beside, target.unsqueeze(1) + beside], 1)
        more = self._possible(more, one)
        u, f = torch.cat([u, more], 1), torch.cat([f, self(more)], 1)
        affine = _fits(u, f, start, slope, self._scale)
        most = f[:, :count].abs().amax(1)
        level = affine & ((slope.abs().unsqueeze(1) * span).squeeze(1) <= _precision() * (self._scale + most))
        close = self.evidence.close(self.site, start, self.rows)
        leeway = self.evidence.leeway(self.site, self.rows) / slope.abs()
        solved, inside = in_support(self.distribution, torch.where(level, one[:, 0], target), leeway)
        low, high = (torch.where(level, end, solved) for end in (-torch.inf, torch.inf))
        possible = torch.where(level, close, inside)
        found = Preimage(low, high, conclusive=affine, possible=possible, flat=level, affine=affine)
        if bool(affine.all()) or self.distribution.support.is_discrete:
            return found
        return self._search(found, u, f, span)

    def _line(self, u: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """Return start and slope (m,) of the line through noise 0 and 1, if draws lie on it, or through draws."""
        far = (u - u[:, :1]).abs().argmax(1, keepdim=True)
        run = (u.gather(1, far) - u[:, :1]).squeeze(1)
        rise = (f.gather(1, far) - f[:, :1]).squeeze(1)
        slope = torch.where(run != 0, rise / run, 0.0)
        start = f[:, 0] - slope * u[:, 0]
        try:
            exact = self(torch.tensor([0.0, 1.0]).expand(len(u), 2))
        except (RuntimeError, ValueError):  # the equation cannot take 0 or 1
            return start, slope
        through = exact[:, 0], exact[:, 1] - exact[:, 0]
        fits = _fits(u, f, *through, self._scale)
        return torch.where(fits, through[0], start), torch.where(fits, through[1], slope)

    def _search(self, found: Preimage, u: Tensor, f: Tensor, span: Tensor) -> Preimage:
        """Find the noise by bisection where equations are not affine, but monotone at all points, (m, k)."""
        u, f = torch.where(f.isnan(), u[:, :1], u), torch.where(f.isnan(), f[:, :1], f).clamp(-HUGE, HUGE)
        u, order = u.sort(1)
        f = f.gather(1, order)
        rise, slack = f.diff(dim=1), 100 * torch.finfo(f.dtype).eps * torch.maximum(f[:, 1:].abs(), f[:, :-1].abs())
        up, down = (rise >= -slack).all(1), (rise <= slack).all(1)
        sign = torch.where(up, 1.0, -1.0).unsqueeze(1)
        low, high, wanted, reached = self._enclose(u, sign * f, sign, span)
        beside = span * torch.tensor(BESIDE)
        around = self._possible(torch.cat([low - beside, high + beside], 1), u[:, :1])
        over = sign * self(around) - wanted
        slack = _precision() * (1.0 + wanted.abs())
        kept = ((over <= slack) | (around >= low)) & ((over >= -slack) | (around <= high))
        conclusive = found.affine | ((up | down) & kept.all(1))
        low, high, possible = (
            torch.where(found.affine, one, mine.squeeze(1))
            for one, mine in ((found.low, low), (found.high, high), (found.possible, reached))
        )
        return replace(found, low=low, high=high, conclusive=conclusive, possible=possible)

    def _enclose(self, u: Tensor, f: Tensor, sign: Tensor, span: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return between which noise, (m, 1), increasing values, f (m, k) at u, are the observed ones.

        The two are equal at a point. With them come the values that were looked for, and whether they are reached.
        """
        leeway, ends = self.evidence.leeway(self.site, self.rows).unsqueeze(1), (f[:, :1], f[:, -1:])
        wanted = sign * self.value.unsqueeze(1)  # a value that rounding puts beyond all others is the last of them
        wanted = torch.where((wanted < ends[0]) & (wanted >= ends[0] - leeway), ends[0], wanted)
        wanted = torch.where((wanted > ends[1]) & (wanted <= ends[1] + leeway), ends[1], wanted)
        for _ in range(2):
            low, high = self._bisect(u, f, sign, wanted)
            # At a step the row may hold a rounded value, and not that of the program.
            near = sign * self(torch.cat([low, high], 1).clamp(u[:, :1], u[:, -1:]))
            nearest = near.gather(1, (near - wanted).abs().argmin(1, keepdim=True))
            size = torch.where(low.isfinite() & high.isfinite(), torch.maximum(low.abs(), high.abs()), 0.0)
            point = high - low <= _precision() ** 1.5 * torch.maximum(span, size)
            reached = (nearest - wanted).abs() <= leeway
            if not bool((point & reached & (nearest != wanted)).any()):
                break
            wanted = torch.where(point & reached, nearest, wanted)
        low, high = (torch.where(point, (low + high) / 2, each) for each in (low, high))
        return low, high, wanted, reached

    def _bisect(self, u: Tensor, f: Tensor, sign: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first and the last noise, (m, 1), at which increasing values, f (m, k) at u, are the wanted ones.

        Where the equation jumps over the wanted value, or rounding does, the first comes just after the last.
        """
        ends = torch.cat([wanted, wanted.nextafter(torch.full_like(wanted, torch.inf))], 1)
        before, after = enclose(lambda middle: sign * self(middle), u, f, ends)
        first = torch.where(before[:, :1].isinf(), -torch.inf, after[:, :1])
        return first, torch.where(after[:, 1:].isinf(), torch.inf, before[:, 1:])

    def draw_within(self, found: Preimage, drawn: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        """Return noise of the preimage, (m,), and the log-probability of all of it, 0 of points and of all noise.

        ``drawn`` is noise from its distribution, ``share`` in (0, 1) the place within an interval, (m,) each.
        """
        low, high, d = found.low, found.high, self.distribution
        everything = low.isinf() & high.isinf()
        part = ~everything & (low < high)
        value, log_mass = torch.where(everything, drawn, low), torch.zeros_like(low)
        if not bool(part.any()):
            return value, log_mass
        first, last = torch.where(part, low, -torch.inf), torch.where(part, high, torch.inf)
        normal = unwrap(d)
        if isinstance(normal, torch.distributions.Normal):
            mass = log_normal_interval(*(((end - normal.loc) / normal.scale).clamp(-FAR, FAR) for end in (first, last)))
            held = mass > math.log(torch.finfo(mass.dtype).tiny)
            low, high = torch.where(held, first, -torch.inf), torch.where(held, last, torch.inf)
            inner = TruncatedNormal(normal.loc, normal.scale, low, high).icdf(share)
            mass = mass.masked_fill(~held, -torch.inf)
        else:
            try:
                least, most = (
                    torch.where(end.isinf(), limit, noise_of(self.key, d, torch.where(end.isinf(), drawn, end))[1])
                    for end, limit in ((first, 0.0), (last, 1.0))
                )
                inner, mass = quantile(self.key, d, inside(least + (most - least) * share)), (most - least).log()
            except CouplingError:  # draws inside serve where the family has no distribution function
                inner, mass = drawn, torch.where((drawn >= first) & (drawn <= last), 0.0, -torch.inf)
        return torch.where(part, inner, value), torch.where(part, mass, log_mass)


def _precision() -> float:
    return 1e-6 if torch.get_default_dtype() == torch.float64 else 1e-4


def _fits(u: Tensor, f: Tensor, start: Tensor, slope: Tensor, scale: Tensor) -> Tensor:
    """Return of which units all values lie on their line, (m,)."""
    rise = slope.unsqueeze(1) * u
    size = (scale + start.abs()).unsqueeze(1) + f.abs() + rise.abs()
    return ((f - start.unsqueeze(1) - rise).abs() <= _precision() * size).all(1)


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
    explained = [site for site in evidence.explained if site not in evidence.info.random]
    nowhere = torch.zeros(evidence.n, dtype=torch.bool)
    done, flat = ({site: nowhere.clone() for site in explained} for _ in range(2))
    found = Findings(evidence.n, done=done, flat=flat)
    for site, inverse in inverses.items():
        _apply_inverse(evidence, found, site, inverse)
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
        for keys in _systems(evidence, found) if lines and not progress else ():
            progress |= _solve_system(evidence, found, keys)
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
        ~evidence.close(site, natural, at),
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
    equation = Equation(evidence, at, given, site, key, others)
    preimage = equation.preimage(max(CHECKS, math.ceil(PROBES / len(at))))

    def impossible(i: int) -> str:
        why = f"no value of its noise {key} gives it"
        if preimage.flat[i]:
            why = f"there it is {equation.draw(1)[1][i].item():g} whatever the noise {key}"
        elif preimage.affine[i]:
            return _outside(key, preimage.low, equation.distribution, i)
        elif key in evidence.implicit:
            return (
                f" cannot be solved for the noise {key}: it lies in its far tail, or beyond.{evidence.way_out([key])}"
            )
        return f" is impossible under the program: {why}. Correct the row or the program."

    evidence.refuse(preimage.conclusive & ~preimage.possible, site, impossible, at)
    found.flat[site][at] |= preimage.flat
    point = preimage.is_point
    if not bool(point.any()):
        return False
    u = torch.where(point, preimage.low, 0.0)
    known = {name: values[point] for name, values in {**others, key: u}.items()}
    given = {name: values[point] for name, values in given.items()}
    at, natural = at[point], evidence.run(given, [site], known).natural[site].expand(int(point.sum()))
    right = evidence.close(site, natural, at)
    at = at[right]
    found.learn(key, at, u[point][right])
    found.done[site][at] = True
    return bool(right.any())


def _systems(evidence: Evidence, found: Findings) -> list[tuple[str, ...]]:
    """Return sets of unknown noise that equations may determine jointly: those of one, and of all that share some."""
    own, joint = list[set[str]](), list[set[str]]()
    for site in found.done:
        unknown = {key for key in evidence.keys[site] if not bool(found.is_known(key).all())}
        if unknown and site != evidence.sensitive:
            own.append(unknown)
            joint = [
                *(each for each in joint if not each & unknown),
                set().union(unknown, *filter(unknown.__and__, joint)),
            ]
    ordered = [tuple(key for key in evidence.readers if key in keys) for keys in (*own, *joint)]
    return [*dict.fromkeys(ordered)]


def _solve_system(evidence: Evidence, found: Findings, keys: Sequence[str]) -> bool:
    """Solve as many equations as noise has numbers for all of them at once, if they are affine in it."""
    alone = len(keys) == 1 and evidence.is_number(keys[0])
    if alone or any(key in evidence.implicit or {*evidence.above[key]} & evidence.readers.keys() for key in keys):
        return False
    size = sum(math.prod(_shape_of(evidence, key)) for key in keys)
    rows = ~torch.stack([found.is_known(key) for key in keys]).any(0)
    sites: list[str] = []
    for site in found.done:
        if {*keys} & {*evidence.keys[site]} and site != evidence.sensitive and len(sites) < size:
            some = rows & found.is_open(evidence, site, *keys)
            if bool(some.any()):
                rows = some
                sites.append(site)
    at = rows.nonzero().squeeze(1)
    if len(sites) < size or not len(at):
        return False
    given = evidence.given(at)
    held = {other: found.noise[other][at] for site in sites for other in evidence.keys[site] if other not in keys}
    solved, distributions = _solve_plane(evidence, at, given, sites, keys, held)
    affine = solved.isfinite().all(-1)
    at = at[affine]
    for key, values in _parts(evidence, keys, solved).items():
        inside = evidence.possible(key, distributions[key], values.nan_to_num())[affine]
        evidence.refuse(~inside, sites[0], partial(_outside, key, values[affine], distributions[key]), at)
        found.learn(key, at, values[affine])
    for site in sites:
        found.done[site][at] = True
    return bool(len(at))


def _parts(evidence: Evidence, keys: Sequence[str], numbers: Tensor) -> dict[str, Tensor]:
    """Return the noise of each site, (m, ...), of the numbers of several, (m, size)."""
    shapes = [_shape_of(evidence, key) for key in keys]
    parts = numbers.split([math.prod(shape) for shape in shapes], -1)  # type: ignore[no-untyped-call]
    return {key: part.reshape(-1, *shape) for key, part, shape in zip(keys, parts, shapes, strict=True)}


def _solve_plane(
    evidence: Evidence,
    rows: Tensor,
    given: Mapping[str, Tensor],
    sites: Sequence[str],
    keys: Sequence[str],
    held: Mapping[str, Tensor],
) -> tuple[Tensor, dict[str, Any]]:
    """Return the noise (m, size) that gives as many nodes their values, NaN where they are not affine in it.

    They are tested at draws, beside the solution, and beyond it. The distributions of the noise come with it.
    """
    size, m = len(sites), len(given[sites[0]])

    def run(count: int, noise: Tensor | None = None) -> tuple[Tensor, Reading]:
        wide, known = ({name: repeat_each(each, count) for name, each in part.items()} for part in (given, held))
        own = {} if noise is None else _parts(evidence, keys, noise.reshape(-1, size))
        reading = evidence.run(wide, sites, known | own)
        natural = [reading.natural[site].to(value.dtype).expand(m * count).reshape(m, count) for site in sites]
        return torch.stack(natural, -1), reading

    value = torch.stack([given[site].to(torch.get_default_dtype()) for site in sites], -1)
    reading = run(CHECKS)[1]
    drawn = torch.cat([reading.noise[key].to(value.dtype).reshape(m, CHECKS, -1) for key in keys], -1)
    at_units, _ = run(size + 1, torch.cat([torch.zeros(1, size), torch.eye(size)]).expand(m, size + 1, size))
    start, slope = at_units[:, :1], at_units[:, 1:] - at_units[:, :1]
    solved, singular = torch.linalg.solve_ex(slope.transpose(1, 2), value - start[:, 0])
    around = torch.cat([solved.unsqueeze(1) + (drawn - solved.unsqueeze(1)) * step for step in (0.0, *WAYS)], 1)
    found, _ = run(around.shape[1], around)
    size_of = torch.stack([evidence.scale[site][rows] for site in sites], 1).unsqueeze(1) + found.abs() + start.abs()
    slack = _precision() * (size_of + around.abs() @ slope.abs())
    affine = ((found - start - around @ slope).abs() <= slack).flatten(1).all(1) & (singular == 0)
    return solved.masked_fill(~affine.unsqueeze(1), torch.nan), run(1)[1].distributions


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

    evidence.refuse(~evidence.close(site, natural, torch.arange(evidence.n)), site, differs)
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
