"""Parameters of a program: posterior draws, checked against the program, or one draw of the prior."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyro
import torch
from numpy.typing import NDArray
from pyro import poutine
from pyro.ops.provenance import get_provenance
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.distributions import constraints

from pyrofair._random import isolated
from pyrofair._validation import did_you_mean, require_integer, shown
from pyrofair.exceptions import DataError
from pyrofair.programs.provenance import (
    Program,
    is_deterministic,
    numbers_in,
    reading,
    run_program,
    support_of,
    to_array,
)
from pyrofair.programs.sites import ProgramSites

__all__ = [
    "NO_PARAMETERS",
    "ParameterUse",
    "Priors",
    "allocate",
    "at_parameters",
    "read_priors",
    "require_posterior",
    "thin",
]

UNITS_PER_DRAW = 100
"""Units are spread over posterior draws as long as each draw has so many."""
MOST_DRAWS = 50
"""So many draws of the parameters represent their posterior."""
SHOWN = 6
PROBE = 2

Draws = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class ParameterUse:
    """Where the parameter values come from that a result depends on.

    ``names`` are the parameters, ``used`` how many of the ``held`` posterior draws were used; none are held if one draw
    of the prior was used for want of any.
    """

    names: tuple[str, ...] = ()
    used: int = 1
    held: int = 0

    @property
    def known(self) -> bool:
        """Whether all parameters were given values."""
        return not self.names or self.held > 0

    def __str__(self) -> str:
        if not self.names:
            return "none"
        named = show_names(self.names)
        if not self.held:
            return f"one draw from the prior of {named}, which {'has' if len(self.names) == 1 else 'have'} no posterior"
        if self.held == 1:
            return f"one given value of {named}"
        return f"{'all' if self.used == self.held else f'{self.used} of'} {self.held} posterior draws of {named}"


NO_PARAMETERS = ParameterUse()


def show_names(names: Collection[str]) -> str:
    """Return names as text, the first few of many."""
    first = ", ".join(list(names)[:SHOWN])
    return first + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


@dataclass(frozen=True, eq=False)
class Priors:
    """The parameters of a program, and what values each can take.

    ``distributions`` holds for each parameter that the program does not set itself its distribution in one run, with
    its ``shapes`` and ``dtypes``; ``moving`` are those whose support depends on other parameters. ``computed`` and
    ``given`` (``obs=``) are further sites outside the plate. ``checked`` has digests of draws whose moving supports,
    which take a run of the program for each draw, were found right.
    """

    program: Program
    info: ProgramSites
    distributions: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, torch.dtype]
    moving: frozenset[str]
    computed: tuple[str, ...]
    given: tuple[str, ...]
    checked: set[bytes] = field(default_factory=set, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters whose values are open."""
        return tuple(self.distributions)

    def read(
        self, posterior: Any, *, replay: bool = False, spare: Collection[str] = (), what: str = "The posterior"
    ) -> Draws:
        """Return the draws of the parameters, shape (draws, ...), if they fit the program, else raise a DataError.

        With ``replay``, draws of per-unit and of computed sites are taken too; ``spare`` parameters may be missing;
        ``what`` names the posterior in messages.
        """
        given = require_posterior(posterior)
        held = {str(name): _numbers(str(name), values) for name, values in given.items()}
        for name in held:
            self._require_known(name, replay, what)
        for name, values in held.items():
            self._require_shape(name, values)
        lengths = {name: len(values) for name, values in held.items()}
        if not held or len(set(lengths.values())) > 1 or not all(lengths.values()):
            raise DataError(f"The posterior must hold equally many draws of each site; it holds {lengths or 'none'}.")
        if absent := [name for name in self.names if name not in held and name not in spare]:
            raise DataError(
                f"{what} lacks the program's parameter {', '.join(map(repr, absent))}; it would be drawn from "
                f"its prior. It holds: {', '.join(held)}. Add what is missing."
            )
        for name, values in held.items():
            wrong = ~np.isfinite(values).reshape(len(values), -1).all(1)
            if wrong.any():
                raise DataError(
                    f"{int(wrong.sum())} of {len(values)} draws of {name!r} are not finite, the first at "
                    f"{int(wrong.argmax())}. Leave these draws out, or see why the sampler failed."
                )
        self._require_support({name: values for name, values in held.items() if name in self.distributions})
        return held

    def use(self, held: Mapping[str, NDArray[Any]], used: int) -> ParameterUse:
        """Return the use of at most so many of the draws held, or of one draw of the prior."""
        count = len(next(iter(held.values()))) if held else 0
        return ParameterUse(self.names, min(used, count) or 1, count)

    def unknown(self, remedy: str = "") -> str:
        """Return the warning of parameters without values, with a remedy, by default a posterior."""
        first = self.names[0]
        posterior = f"Give draws of shape (draws, ...), posterior={{{first!r}: [...]}}, or fit them: posterior="
        return (
            f"No values are given for the program's parameters {show_names(self.names)}: one draw of their prior is "
            "used, as random_state seeds it, and the result holds for that draw alone. "
            + (remedy or f"{posterior}fit_posterior(program, df, graph).")
        )

    def tensors(self, held: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
        """Return draws as tensors in the type that the program's own values have."""
        return {name: torch.tensor(values, device="cpu").to(self.dtypes[name]) for name, values in held.items()}

    def _require_known(self, name: str, replay: bool, what: str) -> None:
        if name in self.distributions or (replay and (name in self.info.sites or name in self.computed)):
            return
        if name in self.info.random:
            why = "which is drawn for each unit, and so is no parameter; leave it out"
        elif name in self.info.sites or name in self.computed:
            why = "which the program computes or sets itself; leave it out"
        elif name in self.given:
            why = "to which the program gives a value itself (obs=..., or condition), so that draws have no effect"
        else:
            why = "which the program does not have"
        has = f"It has: {show_names(self.names)}." if self.distributions else "It has no parameters."
        raise DataError(f"{what} holds {name!r}, {why}. {has}{did_you_mean(name, self.names)}")

    def _require_shape(self, name: str, values: NDArray[Any]) -> None:
        if values.ndim == 0:
            raise DataError(
                f"The posterior of {name!r} is one number; expected draws, shape (draws, ...). For one value write "
                f"{{{name!r}: [{values.item()!r}]}}."
            )
        wanted = self.shapes.get(name)
        if wanted is None or values.shape[1:] == wanted:
            return
        text = ", ".join(map(str, ("draws", *wanted))) + ("," if not wanted else "")
        chains = values.ndim == len(wanted) + 2 and values.shape[2:] == wanted
        raise DataError(
            f"The posterior of {name!r} has the shape {values.shape}; expected ({text}), for the parameter has the "
            f"shape {wanted} in the program."
            + (" Put the chains in a row, as Posterior.flat does: values.reshape(-1, ...)." if chains else "")
        )

    def _require_support(self, held: Draws) -> None:
        tensors = self.tensors(held)
        for name in held.keys() - self.moving:
            self._refuse_outside(name, self.distributions[name], tensors[name], range(len(tensors[name])))
        if moving := held.keys() & self.moving:
            digest = hashlib.blake2b()
            for name, each in sorted(held.items()):
                digest.update(f"{name} {each.shape} {each.dtype} ".encode() + np.ascontiguousarray(each).tobytes())
            same = digest.digest()
            if same in self.checked:
                return
            for draw in range(len(next(iter(tensors.values())))):
                at_draw = poutine.condition(self.program, data={name: each[draw] for name, each in tensors.items()})
                with isolated(0), pyro.validation_enabled(False), torch.no_grad():
                    sites = run_program(at_draw, PROBE)
                for name in moving:
                    self._refuse_outside(name, sites[name]["fn"], tensors[name][draw : draw + 1], [draw])
            self.checked.add(same)

    def _refuse_outside(self, name: str, distribution: Any, values: Tensor, draws: Any) -> None:
        support = support_of(distribution)
        if support is None:
            return
        inside = support.check(values).reshape(len(values), -1).all(1)
        if not bool(inside.all()):
            first = int((~inside).int().argmax())
            shown = values[first].item() if values[first].numel() == 1 else values[first].tolist()
            raise DataError(
                f"Draw {draws[first]} of the parameter {name!r} is {shown}, outside the support of its prior, "
                f"{support}. Correct the draws, or the prior."
            )


class _AtParameters(Messenger):
    """Give parameters values that they can take."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__()
        self.values = values

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.values and msg["value"] is None:
            drawn = msg["fn"]()
            value = torch.as_tensor(self.values[msg["name"]], device="cpu").to(drawn.dtype)
            support = support_of(msg["fn"])
            possible = value.shape == drawn.shape and bool(value.isfinite().all())
            possible = possible and (support is None or bool(support.check(value).all()))
            msg["value"], msg["done"] = value if possible else drawn, True


def at_parameters(program: Program, posterior: Any, draw: int = 0) -> Program:
    """Return a program with parameters held at one draw of a :class:`pyrofair.Posterior` or of a mapping to draws.

    Values that a parameter cannot take are ignored; :meth:`Priors.read` refuses them.
    """
    values = {}
    given = getattr(posterior, "flat", posterior)
    for name, draws in given.items() if isinstance(given, Mapping) else ():
        try:
            held = np.array(to_array(draws), order="C")
            values[str(name)] = torch.as_tensor(held[draw], device="cpu")
        except (TypeError, ValueError, IndexError, RuntimeError):  # no draws: Priors.read refuses them by name
            continue
    handled: Program = _AtParameters(values)(program) if values and callable(program) else program
    return handled


def read_priors(program: Program, info: ProgramSites, posterior: Any = None) -> Priors:
    """Read off a program what values its parameters can take, from the two runs that ``info`` was read off.

    If a posterior is given, these runs held one draw of it; unless all families fix their supports, the program is run
    again, at a draw of the prior or, where it fails there, at the last of the posterior.
    """
    one, other = info.outside
    outside = [name for name in one if name not in info.sites]
    open_ = [name for name in outside if name in info.parameters and not one[name]["is_observed"]]
    if posterior is not None and not all(_has_fixed_support(one[name]["fn"]) for name in open_):
        with isolated(1), pyro.validation_enabled(False), torch.no_grad():
            try:
                other = run_program(program, PROBE)
            except Exception:  # parameters that are unlikely a priori may break it; those of the posterior must not
                with reading("The distribution of the program's parameters"):
                    other = run_program(at_parameters(program, posterior, -1), PROBE)
    return Priors(
        program,
        info,
        distributions={name: one[name]["fn"] for name in open_},
        shapes={name: tuple(one[name]["value"].shape) for name in open_},
        dtypes={name: one[name]["value"].dtype for name in open_},
        moving=frozenset(
            name
            for name in open_
            if _bounds(one[name]["fn"]) != _bounds(other[name]["fn"]) or _reads(info.outside[1][name]["fn"])
        ),
        computed=tuple(name for name in outside if is_deterministic(one[name])),
        given=tuple(name for name in info.parameters if name not in open_),
    )


def thin(held: Draws, draws: int | None) -> Draws:
    """Return as many draws as asked for, spread evenly, by default all; a DataError if there are fewer."""
    if draws is None:
        return held
    total = len(next(iter(held.values())))
    require_integer("draws", draws, most=total)  # of the posterior
    chosen = np.arange(draws) * total // draws
    return {name: values[chosen] for name, values in held.items()}


def allocate(draws: Mapping[str, Tensor], n: int) -> list[tuple[int, dict[str, Tensor]]]:
    """Allocate n units to at most 50 draws of the parameters, shape (draws, ...), at least 100 units to each.

    The draws are chosen by torch's global generator; each comes with its number of units.
    """
    if not draws:
        return [(n, {})]
    total = len(next(iter(draws.values())))
    count = max(1, min(total, MOST_DRAWS, n // UNITS_PER_DRAW))
    chosen = torch.randperm(total)[:count].tolist()
    sizes = [n // count + (i < n % count) for i in range(count)]
    return [(size, {k: v[draw] for k, v in draws.items()}) for size, draw in zip(sizes, chosen, strict=True)]


def require_posterior(posterior: object) -> Mapping[Any, Any]:
    """Return the draws by parameter; a DataError names what is no posterior."""
    given = posterior if isinstance(posterior, Mapping) else getattr(posterior, "flat", None)
    if not isinstance(given, Mapping):
        raise DataError(
            f"posterior={shown(posterior)} must be a Posterior, or a dictionary with an array of shape (draws, ...) "
            "for each parameter."
        )
    return given


def _numbers(name: str, values: Any) -> NDArray[Any]:
    try:
        found = to_array(values)
        usable = found.dtype.kind in "fiub"
    except (TypeError, ValueError, RuntimeError):
        usable = False
    if not usable:
        raise DataError(f"The posterior of {name!r} holds no numbers; expected an array of shape (draws, ...).")
    return found if found.ndim == 0 else np.array(found, order="C")  # torch takes no negative strides


def _has_fixed_support(distribution: Any) -> bool:
    """Return whether the support is one of the family, whatever its parameters, such as that of a normal."""
    support = getattr(type(distribution), "support", None)
    return isinstance(support, constraints.Constraint) and not constraints.is_dependent(support)  # type: ignore[no-untyped-call]


def _reads(distribution: Any) -> bool:
    """Return whether the support is computed from other sites: two runs may show the same numbers in it by chance."""
    return bool(get_provenance([*numbers_in(support_of(distribution), (constraints.Constraint,)).values()]))


def _bounds(distribution: Any) -> str:
    """Return the numbers in a support as text."""

    def inside(part: Any) -> Any:
        if isinstance(part, Tensor):
            return part.tolist()
        if isinstance(part, constraints.Constraint):
            return [inside(each) for each in vars(part).values()]
        return [inside(each) for each in part] if isinstance(part, list | tuple) else str(part)

    return repr(inside(support_of(distribution)))
