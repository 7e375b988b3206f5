"""Whose equation says something else when a value is changed? Sites held at a run's values, some of them changed."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import pyro
import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor

from pyrofair._random import isolated, set_seed
from pyrofair.exceptions import GraphError
from pyrofair.programs.provenance import (
    DENSITY,
    HAND_OVER,
    Program,
    UnreadableError,
    drawn_once,
    fails_at,
    first_line,
    is_deterministic,
    reading,
    run_program,
    says,
    support_of,
)

__all__ = ["MANY", "Everywhere", "Trial", "perturbed", "separated"]

Said = dict[str, dict[str, Tensor]]
"""For each site what its equation says."""
Values = dict[str, Tensor]

KINDS = ("fresh", "above", "below")
"""How values are changed: to those of other units, or to one that is greater or less than all of these."""
MANY = 100_003
"""Up to so many units it is looked at all of them closely: most tables that a program closes over have fewer rows."""
FEW = 10
"""So many integers are levels, of which no others are tried."""


class _Hold(Messenger):
    """Hold every site at a value, and note what its equation says."""

    def __init__(self, values: Mapping[str, Tensor], *, dense: bool = True) -> None:
        super().__init__()
        self.values, self.dense = values, dense
        self.said: Said = {}

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.values and not msg["is_observed"]:
            msg["value"], msg["done"] = self.values[msg["name"]], True

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg["name"] in self.values:
            self.said[msg["name"]] = says(msg, dense=self.dense)
            msg["value"] = self.values[msg["name"]]
            if "_intervened" in msg["infer"]:  # what an intervention sets is held at other values, too
                msg["infer"] = {**msg["infer"], "_intervened": msg["value"]}


@dataclass(frozen=True)
class Trial:
    """A program whose sites are held at the values of one run, to see whose equation a change of them moves.

    Parameters
    ----------
    program, n
        The program, and the number of units.
    places
        For each per-unit site which dimension is that of units; None if it is the same for everybody.
    plain
        The sites of a run. The default runs the program.
    """

    program: Program
    n: int
    places: Mapping[str, int | None]
    plain: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def sites(self) -> Mapping[str, Any]:
        """The sites of the run whose values are held."""
        if self.plain:
            return self.plain
        try:
            return run_program(self.program, self.n)
        except GraphError:
            raise
        except Exception as error:
            raise fails_at(self.n, error) from error

    @cached_property
    def values(self) -> dict[str, Tensor]:
        """The values at which sites are held."""
        # A computed step that is not per unit is no site, and passes on what it reads.
        return {
            name: site["value"]
            for name, site in self.sites.items()
            if name in self.places or not is_deterministic(site)
        }

    @cached_property
    def fresh(self) -> dict[str, Tensor]:
        """The values of other units."""
        return {name: site["value"] for name, site in run_program(self.program, self.n).items()}

    @cached_property
    def base(self) -> Said:
        """What the equations say when nothing is changed.

        Raises
        ------
        GraphError
            If that differs from run to run.
        """
        base = self.said({})
        for site in _differing(base, self.said({}, seed=1)):
            raise GraphError(
                f"The site {site!r} differs from run to run though all sites are held, so the program draws random "
                "numbers outside Pyro. Such noise cannot be shared by two worlds: name it, U = pyro.sample('U', ...)."
            )
        return base

    @cached_property
    def typical(self) -> list[tuple[Values, Said]]:
        """Values of all sites, those of units and those that all have alike, and what the equations say of them."""
        everybody = torch.ones(self.n, dtype=torch.bool)
        found = [(self.values, self.said({}))]
        for kind in ("above", "below"):
            change = self.moved_for(everybody, kind)
            if said := _attempt(self, change):
                found.append(({**self.values, **change}, said))
        if len(found) == 1:  # values that somebody has had all together, at which the program runs
            for person in (0, self.n // 2):
                alike = self.placed(self.values, torch.full((self.n,), person))
                found.append(({**self.values, **alike}, self.said(alike)))
        return found

    def said(self, changed: Mapping[str, Tensor], seed: int = 0, n: int | None = None) -> Said:
        """Return what the equations say when some values are changed, or all of them to those of n other units.

        Raises
        ------
        UnreadableError
            If the program fails, or one of its distributions cannot be read: of a change, this says nothing.
        """
        set_seed(seed)
        hold = _Hold({**self.values, **changed}, dense=n is None or n <= MANY)
        try:
            run_program(self.program, self.n if n is None else n, hold)
        except UnreadableError:
            raise
        except Exception as error:
            if n is not None:
                raise fails_at(n, error) from error
            last = f", after its site {list(hold.said)[-1]!r}" if hold.said else ""
            raise UnreadableError(
                f"The program fails while all its sites are held{last}: {first_line(error)}. Its equations must be "
                "defined for every value that their parents can take."
            ) from error
        return hold.said

    def ends(self, site: str, *, beyond: bool = False) -> tuple[Tensor, Tensor]:
        """Return the least and the greatest value of a site, for everybody, or values beyond these that it can take."""
        both = torch.cat([self.values[site].flatten(), self.fresh[site].flatten()])
        seen = both[both.isfinite()]
        if not len(seen):
            return self.values[site], self.values[site]
        low, high = seen.min(), seen.max()
        ends = torch.full_like(self.values[site], low.item()), torch.full_like(self.values[site], high.item())
        whole = not seen.is_floating_point() or torch.equal(seen, seen.round())
        if not beyond or (whole and 1 < len(set(seen.tolist())) <= FEW):
            return ends
        far = 2 * low - high - 1, 2 * high - low + 1
        support = None if is_deterministic(self.sites[site]) else support_of(self.sites[site]["fn"])
        found = []
        for end, value in zip(ends, far, strict=True):
            wide = torch.full_like(end, value.item())
            found.append(wide if support is None or bool(support.check(wide).all()) else end)
        return found[0], found[1]

    def moves(self, site: str) -> list[Tensor]:
        """Return the values that a site takes for everybody, one after the other."""
        moves = [self.fresh[site], *self.ends(site)]
        if all(torch.equal(move, self.values[site]) for move in moves) and self.values[site].is_floating_point():
            return [self.values[site] + 1]
        return moves

    @cached_property
    def moved(self) -> dict[str, dict[str, Tensor]]:
        """For each kind of change, all sites changed for everybody."""
        ends = {site: self.ends(site, beyond=True) for site in self.places}
        return {
            "fresh": {site: self.fresh[site] for site in self.places},
            "above": {site: high for site, (_, high) in ends.items()},
            "below": {site: low for site, (low, _) in ends.items()},
        }

    def moved_for(self, rows: Tensor, kind: str, start: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Return all sites changed for some units, given as a mask, from the values held or from others."""
        return self.chosen(rows, self.moved[kind], start or self.values)

    def chosen(self, rows: Tensor, one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the values of all per-unit sites: some for the units of a mask, others for all others."""
        found = {}
        for site, place in self.places.items():
            if place is not None:
                here = rows.reshape([-1 if i == place else 1 for i in range(other[site].ndim)])
                found[site] = torch.where(here, one[site], other[site])
        return found

    def placed(self, values: Mapping[str, Tensor], order: Tensor) -> dict[str, Tensor]:
        """Return the values of all per-unit sites with other units at each place: those of an order."""
        return {s: values[s].index_select(place, order) for s, place in self.places.items() if place is not None}


def perturbed(
    trial: Trial, known: Mapping[str, frozenset[str]], causes: Iterable[str] | None = None
) -> dict[str, list[str]]:
    """Change one site at a time while all others are held, and see whose equation says something else.

    Each site takes the values of other units, and then the least and the greatest of all these for everybody.

    Parameters
    ----------
    trial
        The program.
    known
        What each site is known to read.
    causes
        The sites to change, by default all. If they are given, each also takes values beyond all others, and is
        held while all others change, so that a dependence shows that needs both.

    Returns
    -------
    dict
        For sites that read more than is known: what.

    Raises
    ------
    GraphError
        If a site changes though nothing is changed.
    """
    hidden: dict[str, list[str]] = {}

    def note(cause: str, one: Said, other: Said) -> None:
        for site in _differing(one, other):
            if site in trial.places and cause not in (site, *known.get(site, ()), *hidden.get(site, ())):
                hidden.setdefault(site, []).append(cause)

    for cause in trial.places if causes is None else causes:
        wide = () if causes is None else trial.ends(cause, beyond=True)
        moves = [move for move in (*trial.moves(cause), *wide) if not torch.equal(move, trial.values[cause])]
        tried = [said for move in moves if (said := _attempt(trial, {cause: move}))]
        if moves and not tried:
            tried = [_changed_for_few(trial, cause)]
        for said in tried:
            note(cause, trial.base, said)
        for kind in () if causes is None else KINDS:
            # All change at once, and beside it all but one.
            pair = trial.moved[kind], {**trial.moved[kind], cause: trial.values[cause]}
            said, without = (_attempt(trial, change) for change in pair)
            if said and without:
                note(cause, said, without)
    return hidden


def _attempt(trial: Trial, changed: Mapping[str, Tensor]) -> Said:
    """Return what the equations say at changed values, or nothing: some values never go with others."""
    try:
        return trial.said(changed)
    except UnreadableError:
        return {}


def _changed_for_few(trial: Trial, cause: str) -> Said:
    """Return what the equations say when a site takes the value of another unit for some units, as few as need be.

    Raises
    ------
    UnreadableError
        If the program fails each time: who reads the site cannot be seen.
    """
    place, before = trial.places[cause], trial.values[cause]
    masks = [*_groups(trial.n), *torch.eye(trial.n, dtype=torch.bool)] if place is not None else []
    for mask in masks:
        here = mask.reshape([-1 if i == place else 1 for i in range(before.ndim)])
        change = torch.where(here, trial.fresh[cause], before)
        if not torch.equal(change, before) and (said := _attempt(trial, {cause: change})):
            return said
    try:
        return trial.said({cause: trial.ends(cause)[1]})
    except UnreadableError as error:
        raise UnreadableError(
            f"Who reads the site {cause!r} cannot be seen, for it cannot be changed while the others are held. {error}"
        ) from error


def separated(trial: Trial, parameters: Collection[str], silent: frozenset[str]) -> set[str]:
    """Change all values of some units, and refuse a program in which the equation of another says something else.

    Half of the units are changed, such that for any two some half has the first without the second; all but one; and
    one, where all others are alike. Their values become those of other units, or greater or less than all.

    Parameters
    ----------
    trial
        The program.
    parameters
        The sites that are drawn once.
    silent
        The sites that are not known to read anything.

    Returns
    -------
    set
        Of these, the ones that do read something: they say something else for the units that are changed.

    Raises
    ------
    GraphError
        If a site mixes units.
    """
    moving: set[str] = set()
    for attempts, others in _contrasts(trial):
        start, change, base, said = _first_that_runs(trial, attempts)
        for site in _differing(base, said, others):
            causes = _read_across(trial, site, start, change, others)
            raise drawn_once(site, causes) if site in parameters else _mixes(site, causes)
        if not start:
            moving |= {each for each in silent if each in said and _differ(_law(base[each]), _law(said[each]))}
    return moving


def _first_that_runs(trial: Trial, attempts: Iterable[tuple[Values, Values]]) -> tuple[Values, Values, Said, Said]:
    """Return the first start and change at which the program runs, with what its equations say there.

    Raises
    ------
    UnreadableError
        If it runs at none of them: whether it mixes units cannot be seen.
    """
    failed: UnreadableError | None = None
    for start, change in attempts:
        try:
            return start, change, trial.said(start) if start else trial.base, trial.said(change)
        except UnreadableError as error:
            failed = error
    raise UnreadableError(
        f"Whether the program mixes units cannot be seen, for it fails when other units take their places. {failed}"
    ) from failed


def _contrasts(trial: Trial) -> Iterator[tuple[list[tuple[Values, Values]], Tensor]]:
    """Return what to start from (nothing: the values held) and what to change it to, and a mask of who is not changed.

    Of several the first is used at which the program runs; the last are values that units have had all together.
    """
    for number, rows in enumerate(_groups(trial.n)):
        yield [({}, trial.moved_for(rows, kind)) for kind in (KINDS[number % len(KINDS)], "fresh")], ~rows
    everybody, one = torch.ones(trial.n, dtype=torch.bool), torch.arange(trial.n) == trial.n // 2
    for kind, contrary in (("above", "below"), ("below", "above")):
        # Others move how many have a level; one alone moves the greatest and the least level.
        yield [({}, trial.moved_for(~one, each)) for each in (kind, "fresh")], one
        alike = trial.moved_for(everybody, kind)
        same = {site: trial.moved["fresh"][site] for site in alike}
        first = trial.placed(same, torch.zeros(trial.n, dtype=torch.long))
        second = trial.placed(same, torch.ones(trial.n, dtype=torch.long))
        mixed = trial.chosen(one, second, first)
        yield [(alike, trial.moved_for(one, contrary, alike)), (first, mixed)], ~one


def _groups(n: int) -> list[Tensor]:
    """Return masks of units such that, for any two, some mask has the first without the second.

    Each unit is in half of the masks, and no two in the same ones.

    >>> [group.tolist() for group in _groups(3)]
    [[True, False, False], [False, True, False], [False, False, True]]
    """
    count = 1
    while len(halves := list(combinations(range(count), count // 2))) < n:
        count += 1
    masks = torch.zeros(count, n, dtype=torch.bool)
    for person, own in enumerate(halves[:n]):
        masks[list(own), person] = True
    return list(masks)


def _read_across(
    trial: Trial, site: str, start: Mapping[str, Tensor], change: Mapping[str, Tensor], others: Tensor
) -> list[str]:
    """Return what a site reads of the units that are changed; all of it if no change alone shows."""
    base = trial.said(start)
    alone = [each for each in change if site in _differing(base, trial.said({**start, each: change[each]}), others)]
    return alone or [each for each in change if each != site]


def _mixes(site: str, causes: Sequence[str]) -> GraphError:
    return GraphError(
        f"The site {site!r} mixes units: it reads {', '.join(map(repr, causes))} of others, so it changes for units "
        "whose own values are held. An effect or a counterfactual is that of one unit, whoever else is drawn: write "
        "the equation for one unit, without a mean, scale, rank, sum, sort or shift over units. What describes the "
        "population stands outside, as a number or a parameter (pyro.param)."
    )


@dataclass(frozen=True, eq=False)
class Everywhere:
    """A program whose equations are the same wherever a unit stands and however many there are, as is seen by runs.

    The units of one run are put several times, one after the other, among any other number of units.

    Parameters
    ----------
    crowds
        The program held at the values of some numbers of units. A table that it closes over may happen to have as many
        rows as there are units in one of them.
    confirmed
        The numbers of units for which this has been seen.
    """

    crowds: tuple[Trial, ...]
    confirmed: set[int] = field(default_factory=set)

    def confirm(self, n: int) -> None:
        """Refuse equations that say something else of the same unit among n units; each n is looked at once.

        Raises
        ------
        GraphError
            With the site, and how what is known of each unit is handed over; or if the program fails.
        """
        if n in self.confirmed:
            return
        with (
            reading("The program"),
            isolated(0),
            pyro.validation_enabled(False),
            torch.no_grad(),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            kind = torch.get_default_dtype()
            torch.set_default_dtype(torch.float32)  # in which the program was read
            try:
                require_exchangeable(next(crowd for crowd in self.crowds if crowd.n != n), n)
            finally:
                torch.set_default_dtype(kind)
        self.confirmed.add(n)


def require_exchangeable(crowd: Trial, n: int) -> None:
    """Refuse equations that say something else of the same unit at another place, or among n units.

    Units have the values of a run, and values that all have alike; of more than ``MANY`` units, where a run takes
    time, only those of a run, and distributions are compared by their numbers.

    Parameters
    ----------
    crowd
        The program, held for another number of units.
    n
        The number of units.

    Raises
    ------
    GraphError
        With the site, and how what is known of each unit is handed over.
    """
    order = (torch.arange(n) + 1) % crowd.n
    for values, said in crowd.typical if n <= MANY else crowd.typical[:1]:
        others = {**values, **crowd.placed(values, order)}
        for site, found in crowd.said(others, n=n).items():
            here = said.get(site, {})
            if site in crowd.places and not all(
                _near(_at_places(here[key], found[key], crowd.n, order), found[key])
                for key in here.keys() & found.keys()
            ):
                raise _of_place(crowd, site, n)


def _at_places(few: Tensor, many: Tensor, size: int, order: Tensor) -> Tensor:
    """Return what is said of so many units for those of an order, along the dimensions that have grown with them."""
    if few.ndim == many.ndim:
        for dim, (one, other) in enumerate(zip(few.shape, many.shape, strict=True)):
            if one == size and other == len(order):
                few = few.index_select(dim, order)
    return few


def _of_place(crowd: Trial, site: str, n: int) -> GraphError:
    for end in ("", "_observed", "_unobserved"):  # Pyro makes three sites of one that obs_mask gives some units
        name = site.removesuffix(end)
        if site.endswith(end) and {f"{name}_observed", f"{name}_unobserved"} <= crowd.places.keys():
            return GraphError(
                f"The site {name!r} is given data (obs_mask=..., for some units), and whom it is given depends on a "
                "unit's place among the n units. Pass the program as it draws units, without data; the rows of a "
                "table are handed over as one (fit_posterior, abduct, SEM.counterfactual)."
            )
    if crowd.sites[site]["is_observed"] and not is_deterministic(crowd.sites[site]):
        return GraphError(
            f"The site {site!r} is given data (obs=..., condition or pyro.factor), which depends on a unit's place "
            "among the n units. Pass the program as it draws units, without data; the rows of a table are handed "
            "over as one (fit_posterior, abduct, SEM.counterfactual)."
        )
    return GraphError(
        f"The site {site!r} depends on a unit's place among the n units, or on n: for n={n}, its distribution or "
        f"value is not"
        f" that of the same units where they stand elsewhere, among {crowd.n}. So it would be that of other units "
        "for the rows of a table, or for units drawn anew. " + HAND_OVER
    )


def _law(says: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what a site says apart from the log-probability of its own value."""
    return {key: value for key, value in says.items() if key != DENSITY}


def _differing(one: Said, other: Said, people: Tensor | None = None) -> list[str]:
    """Return the sites whose equations differ, or those of some units, a mask, by more than rounding."""
    return [site for site in one if site in other and _differ(one[site], other[site], people)]


def _differ(one: dict[str, Tensor], other: dict[str, Tensor], people: Tensor | None = None) -> bool:
    both = one.keys() & other.keys()  # a distribution may have worked out more of itself in another run
    if not both:
        return bool(one) or bool(other)
    equal = _equal if people is None else lambda a, b: _near(a, b, people)
    return any(not equal(one[key], other[key]) for key in both)


def _equal(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one, other) or bool(((one == other) | (one.isnan() & other.isnan())).all())


def _near(one: Tensor, other: Tensor, people: Tensor | None = None) -> bool:
    """Tell whether two tensors are equal, for some units or all, but for vectorised rounding.

    That depends on where a unit stands, and on what values others have.
    """
    if one.shape != other.shape or one.dtype != other.dtype or torch.equal(one, other):
        return one.shape == other.shape and one.dtype == other.dtype
    if people is not None:
        here = people.nonzero().flatten()
        for dim in [dim for dim, size in enumerate(one.shape) if size == len(people)]:
            one, other = one.index_select(dim, here), other.index_select(dim, here)
    if _equal(one, other) or not one.is_floating_point():
        return _equal(one, other)
    eps = torch.finfo(one.dtype).eps
    near = (one - other).abs() <= 1000 * eps * (one.abs() + other.abs()) + 100 * eps
    return bool((near | (one == other) | (one.isnan() & other.isnan())).all())
