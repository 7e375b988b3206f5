"""Checks of a program's equations by perturbation: hidden dependencies, units that are mixed, and dependence on n.

All sites are held at known values, so that a run evaluates every equation at once. Units are exchangeable: one run
holds many of them, each with its own change, and its equations are compared with those of the same unit elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyro.distributions as dist
import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor

from pyrofair._random import set_seed
from pyrofair.exceptions import GraphError
from pyrofair.programs.couplings import unwrap
from pyrofair.programs.provenance import (
    DENSITY,
    HAND_OVER,
    Program,
    Signature,
    UnreadableError,
    drawn_once,
    fails_at,
    first_line,
    is_deterministic,
    run_program,
    signature,
    support_of,
    undisturbed,
)

__all__ = ["PERTURBED", "KnownUnits", "Trial", "check_units", "perturbed", "trial_of_run"]

Signatures = dict[str, Signature]
Values = Mapping[str, Tensor]

MANY = 100_003
"""Up to so many units all are compared closely: most tables that a program closes over have fewer rows."""
PERTURBED = 1009
"""So many units are perturbed where dependencies cannot be followed."""
FEW = 10
"""So many integers are levels, of which no others are tried."""
MOST_NUMBERS = 2_000_000
"""Units are compared in runs whose sites hold so many numbers at most; perturbations take ten times as many."""
COSTLY, FEW_UNITS = (dist.Stable,), 100
"""The densities of some families are integrals: they are compared for so few units, their parameters for all."""
MIXTURE = "abtttattat"
"""The values of ten units in a row: above all others, below all, or those of a unit of the trial."""


class _Hold(Messenger):
    """Hold every site at a value, and note its signature."""

    def __init__(self, values: Values, *, dense: bool = True) -> None:
        super().__init__()
        self.values, self.dense = values, dense
        self.found: Signatures = {}

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.values and not msg["is_observed"]:
            msg["value"], msg["done"] = self.values[msg["name"]], True

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg["name"] in self.values:
            costly = isinstance(unwrap(msg["fn"]), COSTLY) and msg["fn"].batch_shape.numel() > FEW_UNITS
            self.found[msg["name"]] = signature(msg, dense=self.dense and not costly)
            msg["value"] = self.values[msg["name"]]
            if "_intervened" in msg["infer"]:  # what an intervention sets is held at other values, too
                msg["infer"] = {**msg["infer"], "_intervened": msg["value"]}


def _held(program: Program, n: int, values: Values, seed: int = 0) -> Signatures:
    """Return the signature of each site in a run on n units that holds them at values; failure is UnreadableError."""
    set_seed(seed)
    hold = _Hold(values, dense=n <= MANY)
    try:
        run_program(program, n, hold)
    except UnreadableError:
        raise
    except Exception as error:
        last = f", after its site {list(hold.found)[-1]!r}" if hold.found else ""
        raise UnreadableError(
            f"The program fails while all its sites are held{last}: {first_line(error)}. Its equations must be "
            "defined for every value that their parents can take."
        ) from error
    return hold.found


@dataclass(frozen=True, eq=False)
class Trial:
    """A program whose sites can be held at the values of n units of one run, some of them changed.

    ``dims`` holds for each per-unit site its dimension of units (None if its value is one for all), ``sites`` the sites
    of the run, ``values`` their values without steps that are not per unit, and ``fresh`` those of n other units.
    """

    program: Program
    n: int
    dims: Mapping[str, int | None]
    sites: Mapping[str, Any]
    values: dict[str, Tensor]
    fresh: dict[str, Tensor]

    @property
    def numbers(self) -> int:
        """How many numbers the sites hold for one unit."""
        return max(1, sum(self.values[site].numel() for site in self.dims) // self.n)

    def signatures(self, changed: Values, seed: int = 0) -> Signatures:
        """Return the signature of each site with some values changed."""
        return _held(self.program, self.n, {**self.values, **changed}, seed)

    def attempt(self, changed: Values) -> Signatures:
        """Return the same, or nothing where the program fails: some values never go with others."""
        try:
            return self.signatures(changed)
        except UnreadableError:
            return {}

    def ends(self, site: str, *, beyond: bool = False) -> tuple[Tensor, Tensor]:
        """Return the least and the greatest value of a site, for all units, or values beyond these that it can take."""
        both = torch.cat([self.values[site].flatten(), self.fresh[site].flatten()])
        seen = both[both.isfinite()]
        if not len(seen):
            return self.values[site], self.values[site]
        low, high = seen.min(), seen.max()
        ends = torch.full_like(self.values[site], low.item()), torch.full_like(self.values[site], high.item())
        integers = not seen.is_floating_point() or torch.equal(seen, seen.round())
        if not beyond or (integers and 1 < len(set(seen.tolist())) <= FEW):
            return ends
        far = 2 * low - high - 1, 2 * high - low + 1
        support = None if is_deterministic(self.sites[site]) else support_of(self.sites[site]["fn"])
        found = []
        for end, value in zip(ends, far, strict=True):
            wide = torch.full_like(end, value.item())
            found.append(wide if support is None or bool(support.check(wide).all()) else end)
        return found[0], found[1]

    def moves(self, site: str) -> list[Tensor]:
        """Return other values for a site: those of other units, the least and the greatest of all, or one more."""
        moves = [self.fresh[site], *self.ends(site)]
        if all(torch.equal(move, self.values[site]) for move in moves) and self.values[site].is_floating_point():
            return [self.values[site] + 1]
        return moves

    @cached_property
    def moved(self) -> dict[str, dict[str, Tensor]]:
        """All sites changed for all units, to values of others, or to one that is above or below all of these."""
        ends = {site: self.ends(site, beyond=True) for site in self.dims}
        return {
            "fresh": {site: self.fresh[site] for site in self.dims},
            "above": {site: high for site, (_, high) in ends.items()},
            "below": {site: low for site, (low, _) in ends.items()},
        }

    def chosen(self, rows: Tensor, one: Values, other: Values) -> dict[str, Tensor]:
        """Return the values of all per-unit sites: some for the units of a mask, others for all others."""
        found = {}
        for site, dim in self.dims.items():
            if dim is not None:
                here = rows.reshape([-1 if i == dim else 1 for i in range(other[site].ndim)])
                found[site] = torch.where(here, one[site], other[site])
        return found

    def compared(self, pairs: Sequence[tuple[Values, Values]]) -> list[set[str] | None]:
        """Return for each pair of changes the sites whose signatures differ, or None where the program fails.

        All pairs share a run, with a block of n units for each change, which is split in halves where it fails or holds
        too many numbers.
        """
        changes = list({id(change): change for pair in pairs for change in pair}.values())
        size, half = len(changes), len(pairs) // 2
        if half and size * self.n * self.numbers > 10 * MOST_NUMBERS:
            return self.compared(pairs[:half]) + self.compared(pairs[half:])
        joined = {
            site: torch.cat([change.get(site, self.values[site]) for change in changes], dim)
            for site, dim in self.dims.items()
            if dim is not None
        }
        try:
            found = _held(self.program, self.n * size, {**self.values, **joined})
        except UnreadableError:
            return self.compared(pairs[:half]) + self.compared(pairs[half:]) if half else [None] * len(pairs)
        index = {id(change): i for i, change in enumerate(changes)}
        differing: list[set[str] | None] = [set() for _ in pairs]
        for site, numbers in found.items():
            for value in numbers.values():
                for dim in [dim for dim, length in enumerate(value.shape) if length == size * self.n]:
                    blocks = value.reshape(*value.shape[:dim], size, self.n, *value.shape[dim + 1 :]).movedim(dim, 0)
                    for (one, other), sites in zip(pairs, differing, strict=True):
                        if sites is not None and not _near(blocks[index[id(one)]], blocks[index[id(other)]]):
                            sites.add(site)
        return differing


def trial_of_run(
    program: Program, dims: Mapping[str, int | None], sites: Mapping[str, Any], fresh: Values | None = None
) -> Trial:
    """Return the trial of a run, with the units of another run as fresh ones, or the second half of its own."""
    # A computed step that is not per unit is no site, and passes on what it reads.
    values = {name: s["value"] for name, s in sites.items() if name in dims or not is_deterministic(s)}
    length = next(values[site].shape[dim] for site, dim in dims.items() if dim is not None)
    n = length if fresh is not None else length // 2
    own, others = dict(values), dict(values)
    for site, dim in dims.items():
        other = values[site] if fresh is None else fresh[site]
        if dim is not None:
            order = torch.arange(n)
            own[site] = values[site].index_select(dim, order)
            other = other.index_select(dim, order + n if fresh is None else order % other.shape[dim])
        others[site] = other
    return Trial(program, n, dims, sites, own, others)


# -- hidden dependencies ----------------------------------------------------------------------------------------------


def perturbed(
    trial: Trial, known: Mapping[str, Collection[str]], causes: Iterable[str] | None = None
) -> dict[str, list[str]]:
    """Change one site at a time while all others are held; return what sites read besides what is known.

    Each site takes the values of other units, and the least and the greatest of all. Causes that are named, by default
    all, also take values beyond all others, and are held while all others change, which shows dependencies that need
    both. All of this is one run, unless the program fails at some of the values.
    """
    hidden: dict[str, list[str]] = {}

    def note(cause: str, sites: Collection[str]) -> None:
        for site in (site for site in trial.dims if site in sites):
            if cause not in (site, *known.get(site, ()), *hidden.get(site, ())):
                hidden.setdefault(site, []).append(cause)

    chosen = list(trial.dims if causes is None else causes)
    moves = {
        cause: [
            {cause: move}
            for move in (*trial.moves(cause), *(() if causes is None else trial.ends(cause, beyond=True)))
            if not torch.equal(move, trial.values[cause])
        ]
        for cause in chosen
    }
    base: Values = {}
    single = [cause for cause in chosen if trial.dims[cause] is None and moves[cause]]
    pairs = [(cause, base, move) for cause in chosen if trial.dims[cause] is not None for move in moves[cause]]
    for every in () if causes is None else trial.moved.values():
        pairs += [(cause, every, {**every, cause: trial.values[cause]}) for cause in chosen]
    compared = trial.compared([(start, change) for _, start, change in pairs]) if pairs else []
    done: set[str] = set()
    for (cause, start, _), sites in zip(pairs, compared, strict=True):
        note(cause, sites or ())
        if sites is not None and start is base:
            done.add(cause)
    if single and (each := trial.attempt({site: moves[site][0][site] for site in single})):
        unknown = _differing(trial.signatures(base), each)
        if any(not {*single} & {*known.get(site, ()), site} for site in unknown if site in trial.dims):
            for cause in single:
                note(cause, _differing(trial.signatures(base), trial.attempt(moves[cause][0])))
    for cause in chosen:
        if moves[cause] and cause not in {*done, *single}:
            note(cause, _changed_for_one(trial, cause))
    return hidden


def _changed_for_one(trial: Trial, cause: str) -> list[str]:
    """Return the sites that differ when a site takes another value for one unit, the first at which the program runs.

    If it runs for none, the dependencies cannot be seen, which is an UnreadableError.
    """
    base = trial.signatures({})
    failed: UnreadableError | None = None
    for unit in torch.eye(trial.n, dtype=torch.bool):
        change = trial.chosen(unit, {**trial.values, cause: trial.fresh[cause]}, trial.values)
        if not torch.equal(change[cause], trial.values[cause]):
            try:
                return _differing(base, trial.signatures(change))
            except UnreadableError as error:
                failed = error
    try:
        return _differing(base, trial.signatures({cause: trial.ends(cause)[1]}))
    except UnreadableError as error:
        failed = error
    raise UnreadableError(
        f"The sites that read the site {cause!r} cannot be seen, for it cannot be changed while the others are held. "
        f"{failed}"
    ) from failed


# -- equations that are the same for any units ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class KnownUnits:
    """Units whose signatures are known, so that they can be compared with those of the same units elsewhere.

    They are the n units of a trial, one whose values are above all of these, and one with values below; or two of the
    n where the program fails at such values. ``confirmed`` holds the numbers of units at which they were compared.
    """

    trial: Trial
    values: dict[str, Tensor]
    found: Signatures
    confirmed: set[int] = field(default_factory=set)

    @classmethod
    def of_trial(cls, trial: Trial) -> KnownUnits:
        """Evaluate the equations of these units in one run, or refuse a program that fails with them."""
        failed: UnreadableError | None = None
        first, second = torch.tensor([0]), torch.tensor([trial.n // 2])
        for high, low in ((trial.moved["above"], trial.moved["below"]), (trial.values, trial.values)):
            values = dict(trial.values)
            for site, dim in trial.dims.items():
                if dim is not None:
                    ends = high[site].index_select(dim, first), low[site].index_select(dim, second)
                    values[site] = torch.cat([trial.values[site], *ends], dim)
            try:
                return cls(trial, values, _held(trial.program, trial.n + 2, values))
            except UnreadableError as error:
                failed = error
        raise UnreadableError(
            f"Whether the program mixes units cannot be seen, for it fails when units are exchanged. {failed}"
        ) from failed

    def most(self) -> int:
        """Return how many units are compared when a program is read."""
        return min(MANY, max(PERTURBED, MOST_NUMBERS // self.trial.numbers))

    def differing(self, orders: Sequence[Tensor]) -> list[str]:
        """Return the sites whose signatures differ for known units in some order, the first at which the program runs.

        Raises a GraphError if it runs in no order.
        """
        dims, n = self.trial.dims, len(orders[0])
        failed: Exception | None = None
        for order in orders:
            placed = {s: self.values[s].index_select(d, order) for s, d in dims.items() if d is not None}
            try:
                found = _held(self.trial.program, n, {**self.values, **placed})
            except UnreadableError as error:
                failed = failed or error
                continue
            return [site for site, one in found.items() if not self._same(self.found.get(site, {}), one, order)]
        cause = failed.__cause__ if failed and isinstance(failed.__cause__, Exception) else failed
        raise fails_at(n, cause or RuntimeError()) from cause

    def _same(self, one: Signature, other: Signature, order: Tensor) -> bool:
        """Return whether a site's signatures are those of the known units in some order."""
        for key in one.keys() & other.keys():
            few, many = one[key], other[key]
            placed = few
            if few.ndim == many.ndim:
                for dim, sizes in enumerate(zip(few.shape, many.shape, strict=True)):
                    if sizes == (self.trial.n + 2, len(order)):
                        placed = placed.index_select(dim, order)
            # A table may have as many rows as there are known units.
            if not (_near(placed, many) or (len(order) == self.trial.n + 2 and _near(few, many))):
                return False
        return True

    def orders(self, n: int) -> list[list[Tensor]]:
        """Return orders of n known units: all above, all below, and a mixture; each with what else may run."""
        index, size = torch.arange(n), self.trial.n
        typical = (index + 1) % size
        above, below = (torch.tensor([each == value for value in MIXTURE])[index % 10] for each in "ab")
        mixture = torch.where(above, size, torch.where(below, size + 1, typical))
        alike = [[torch.full_like(index, unit) for unit in (size + i, i * (size // 2))] for i in (0, 1)]
        return [[*alike[0], typical], [*alike[1], typical], [mixture, typical]]

    def confirm(self, n: int) -> None:
        """Refuse equations that differ for the same units among n; each n takes one run, once."""
        if n not in self.confirmed:
            with undisturbed("The program", torch.float32):  # in which the program was read
                flagged = [site for site in self.differing(self.orders(n)[2]) if site in self.trial.dims]
                if flagged:
                    raise _of_index(self.trial, flagged[0], n)
            self.confirmed.add(n)

    def moving(self, sites: Iterable[str]) -> set[str]:
        """Return the sites whose signature, apart from the density, differs between the known units."""
        size = self.trial.n + 2
        return {
            site
            for site in sites
            for key, value in self.found.get(site, {}).items()
            if key != DENSITY
            for dim, length in enumerate(value.shape)
            if length == size and not _constant(value, dim)
        }


def check_units(known: KnownUnits, parameters: Collection[str]) -> None:
    """Refuse equations that read other units, a unit's index or n, or random numbers from outside Pyro.

    Three runs on many units show whether there are any; more find which, and why.
    """
    n = known.most()
    failed: GraphError | None = None
    try:
        flagged = _flagged(known, n)
    except GraphError as error:
        failed, n = error, PERTURBED  # where a table that is too short for many shows which site reads it
        flagged = _flagged(known, n)
    if flagged:
        _require_separate(known.trial, parameters)
        if found := [site for site in flagged if site in known.trial.dims]:
            raise _of_index(known.trial, found[0], n)
    if failed:
        raise failed
    known.confirmed.add(n)


def _flagged(known: KnownUnits, n: int) -> list[str]:
    return [site for orders in known.orders(n) for site in known.differing(orders)]


def _require_separate(trial: Trial, parameters: Collection[str]) -> None:
    """Refuse a program with random numbers outside Pyro, or in which the equation of a unit reads other units.

    Some units are changed, such that for any two there is a change of the first without the second; all but one; and
    one, where all others are alike.
    """
    base = trial.signatures({})
    for site in _differing(base, trial.signatures({}, seed=1)):
        raise GraphError(
            f"The site {site!r} differs from run to run though all sites are held, so the program draws random "
            "numbers outside Pyro, which no two worlds share: name it, U = pyro.sample('U', ...)."
        )
    for start, change, others in _contrasts(trial):
        before, after = trial.attempt(start) if start else base, trial.attempt(change)
        for site in _differing(before, after, others):
            alone = [
                each
                for each in change
                if site in _differing(before, trial.attempt({**start, each: change[each]}), others)
            ]
            read = alone or [each for each in change if each != site]
            if site in parameters:
                raise drawn_once(site, read)
            raise GraphError(
                f"The site {site!r} mixes units: it reads {', '.join(map(repr, read))} of others. Write the equation "
                "for one unit, without a mean, scale, rank, sum, sort or shift over units; what describes the "
                "population stands outside, as a number or a parameter (pyro.param)."
            )


def _contrasts(trial: Trial) -> Iterator[tuple[dict[str, Tensor], dict[str, Tensor], Tensor]]:
    """Yield values to start from and to change to, and a mask of the units that are not changed."""
    index = torch.arange(trial.n)
    one = index == trial.n // 2
    halves = [(index >> bit) % 2 == side for bit in range(trial.n.bit_length()) for side in (0, 1)]
    every = torch.ones(trial.n, dtype=torch.bool)
    moved = {how: trial.chosen(every, values, trial.values) for how, values in trial.moved.items()}
    alike = [
        {s: v.index_select(trial.dims[s] or 0, torch.full((trial.n,), unit)) for s, v in moved["fresh"].items()}
        for unit in (0, 1)
    ]
    for start in ({}, moved["above"], moved["below"], alike[0]):
        for rows in (*halves, ~one, one):
            for values in (*moved.values(), alike[1]):
                yield start, trial.chosen(rows, values, {**trial.values, **start}), ~rows


def _of_index(trial: Trial, site: str, n: int) -> GraphError:
    """Return the error of a site whose equation depends on the index of a unit, or on n."""
    given = ""
    name = site.removesuffix("_observed").removesuffix("_unobserved")
    if {f"{name}_observed", f"{name}_unobserved"} <= trial.dims.keys():  # Pyro makes three sites of one
        given = f"{name!r} is given data (obs_mask=..., for some units), and which units depends on their"
    elif trial.sites[site]["is_observed"] and not is_deterministic(trial.sites[site]):
        given = f"{site!r} is given data (obs=..., condition or pyro.factor), which depends on a unit's"
    if given:
        return GraphError(
            f"The site {given} index among the n units. Pass the program as it draws units, without data; the rows of "
            "a table are handed over as one (fit_posterior, abduct, SEM.counterfactual)."
        )
    return GraphError(
        f"The site {site!r} depends on a unit's index among the n units, or on n: for n={n}, its distribution or "
        f"value is not that of the same units at another index, among {trial.n + 2}. {HAND_OVER}"
    )


# -- comparing signatures ---------------------------------------------------------------------------------------------


def _differing(one: Signatures, other: Signatures, units: Tensor | None = None) -> list[str]:
    """Return the sites whose signatures differ, for the units of a mask or for all, by more than rounding."""
    return [
        site
        for site in one
        if site in other
        and any(not _near(one[site][key], other[site][key], units) for key in one[site].keys() & other[site].keys())
    ]


def _constant(value: Tensor, dim: int) -> bool:
    first = value.narrow(dim, 0, 1)
    return bool(((value == first) | (value.isnan() & first.isnan())).all())


def _near(one: Tensor, other: Tensor, units: Tensor | None = None) -> bool:
    """Return whether tensors are equal, for the units of a mask or for all, but for rounding.

    Vectorised rounding depends on the index of a unit, and on the values of others.
    """
    if one.shape != other.shape or one.dtype != other.dtype or torch.equal(one, other):
        return one.shape == other.shape and one.dtype == other.dtype
    if units is not None:
        here = units.nonzero().flatten()
        for dim in [dim for dim, size in enumerate(one.shape) if size == len(units)]:
            one, other = one.index_select(dim, here), other.index_select(dim, here)
    if not one.is_floating_point():
        return torch.equal(one, other)
    eps = torch.finfo(one.dtype).eps
    return torch.allclose(one, other, rtol=2000 * eps, atol=100 * eps, equal_nan=True)
