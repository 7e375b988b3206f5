"""Safe interventions: Pyro's ``do`` with names, types and shapes checked, and the intervened value in the trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.poutine import runtime
from pyro.poutine.broadcast_messenger import BroadcastMessenger
from pyro.poutine.do_messenger import DoMessenger
from pyro.poutine.indep_messenger import IndepMessenger
from pyro.poutine.reparam_messenger import ReparamMessenger
from torch import Tensor

from pyrofair._validation import did_you_mean, shown
from pyrofair.exceptions import PyrofairError
from pyrofair.programs.couplings import unwrap
from pyrofair.programs.provenance import apply_outside

__all__ = ["NATURAL", "InterventionError", "do"]

NATURAL = "__natural"
"""The suffix of the name under which a site's natural value is shown."""


class InterventionError(PyrofairError):
    """An intervention names an unknown site, or a value that does not fit it.

    Examples
    --------
    >>> import pyro
    >>> do(lambda: pyro.deterministic("A", torch.ones(())), {"B": 1})()
    Traceback (most recent call last):
        ...
    pyrofair.programs.interventions.InterventionError: The program has no site 'B' to intervene on. Its sites: A.
    """


def do(program: Callable[..., Any], values: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a program in which sites are set to values, whatever their equations give.

    With the following program,

    >>> import pyro
    >>> def program(n):
    ...     with pyro.plate("units", n):
    ...         A = pyro.sample("A", dist.Bernoulli(0.5))
    ...         return pyro.deterministic("M", 2 * A)

    ``do(program, {"A": 1})`` is equivalent to

    >>> def intervened(n):
    ...     with pyro.plate("units", n):
    ...         pyro.deterministic("A__natural", pyro.sample("a", dist.Bernoulli(0.5)))  # "a" is not shown
    ...         A = pyro.deterministic("A", torch.ones(n))
    ...         return pyro.deterministic("M", 2 * A)
    >>> torch.equal(do(program, {"A": 1})(4), intervened(4))
    True

    It differs from ``pyro.poutine.do``: a site carries the intervened value under its own name, in the trace and in
    ``Predictive``, and its natural value, which it has without the intervention, under ``NAME__natural``. Values are
    cast to the site's type and broadcast to its shape, plates included. The natural value is no latent site and adds no
    log-probability, unless it was conditioned on: ``do(poutine.condition(program, seen), values)``. Of two
    interventions on one site the outer one holds; the natural value is that of the program inside both.

    Names are those that the site has where ``do`` stands: inside ``scope`` without its prefix, outside with it.

    Parameters
    ----------
    program
        A Pyro program.
    values
        For each site its value: a number, bool, array or tensor.

    Raises
    ------
    InterventionError
        If the program is no function or ``values`` no dictionary; and when the program runs, for a site it does not
        have, a value that does not fit the site's shape, type or support or is not finite, and where a handler outside
        conditions on an intervened site or reparametrises it.

    References
    ----------
    Pearl (2009), chapter 3; Richardson and Robins (2013), single-world intervention graphs.
    """
    if not callable(program):
        raise InterventionError(f"program={program!r} must be a function, such as one of the number of units.")
    if not isinstance(values, Mapping):
        raise InterventionError(f"values={shown(values)} must be a dictionary from sites to values.")

    def intervened(*args: Any, **kwargs: Any) -> Any:
        with _SafeDo(values):
            return program(*args, **kwargs)

    return intervened


class _SafeDo(DoMessenger):
    """Set sites, and show their natural values to the handlers outside."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(dict(values))
        self.met: list[str] = []
        self.natural: dict[int, Any] = {}

    def __exit__(self, *failure: Any) -> None:
        super().__exit__(*failure)
        unknown = [name for name in self.data if name not in self.met]
        if failure[0] is None and unknown:
            raise InterventionError(
                f"The program has no site {', '.join(map(repr, unknown))} to intervene on. Its sites: "
                f"{', '.join(dict.fromkeys(self.met))}.{did_you_mean(unknown[0], self.met)}"
            )

    def _pyro_sample(self, msg: Any) -> None:
        name = msg["name"]
        if poutine.util.site_is_subsample(msg) or name.endswith(NATURAL):
            return
        self.met.append(name)
        if name not in self.data:
            return
        for handler in self._outer():
            if isinstance(handler, ReparamMessenger) and isinstance(handler.config, dict) and name in handler.config:
                raise InterventionError(
                    f"The site {name!r} is intervened on and reparametrised outside, where it has no distribution. "
                    "Leave it out there, or reparametrise inside: do(poutine.reparam(program, config), values)."
                )
        inner = "_intervened" in msg["infer"]
        copy = msg.copy()
        if msg["value"] is None:
            for handler in reversed(self._outer()):  # expand the distribution to the plates around this handler
                if isinstance(handler, IndepMessenger | BroadcastMessenger):
                    handler._process_message(copy)
            copy["value"] = copy["fn"](*msg["args"], **msg["kwargs"])
        value = _fit(name, self.data[name], copy["value"], msg)
        if not inner:
            self.natural[id(msg)] = _natural(msg, copy["value"])
        msg["fn"] = _point(value, msg["fn"])
        msg["value"] = value
        msg["is_observed"] = True
        msg["infer"] = {"_deterministic": True, "_intervened": value}

    def _pyro_post_sample(self, msg: Any) -> None:
        given = msg["infer"].get("_intervened") if msg["infer"] else None
        natural = self.natural.pop(id(msg), None)
        if natural is None:
            return
        # A handler outside may wrap the value, as one does that follows dependencies, but not change it.
        if given is None or (msg["value"] is not given and not torch.equal(msg["value"], given)):
            raise InterventionError(
                f"The site {msg['name']!r} is intervened on, and a handler outside (condition, Predictive) gives it "
                "another value. Condition on its natural value inside: do(poutine.condition(program, seen), values). "
                "Otherwise leave the site out of the samples."
            )
        apply_outside(self, natural)

    def _outer(self) -> list[Any]:
        return runtime._PYRO_STACK[: runtime._PYRO_STACK.index(self)]


def _natural(msg: Any, value: Tensor) -> Any:
    """Return the site of another's natural value: evidence if that was conditioned on, else a computed one."""
    natural = msg.copy()
    deterministic = msg["infer"].get("_deterministic") or isinstance(unwrap(msg["fn"]), dist.Delta)
    if not msg["is_observed"] or deterministic:
        natural["fn"] = _point(value, msg["fn"])
        natural["infer"] = {"_deterministic": True, "_natural": True}
    natural |= {"name": msg["name"] + NATURAL, "value": value, "is_observed": True}
    return natural


def _point(value: Tensor, fn: Any) -> Any:
    """Return the distribution of one point, without log-probability, in the batch shape of another."""
    if isinstance(unwrap(fn), dist.Delta):  # computed: Pyro counts all dimensions of its value as one event
        return dist.Delta(value, event_dim=value.ndim).expand(fn.batch_shape).mask(False)  # type: ignore[no-untyped-call]
    return dist.Delta(value, event_dim=fn.event_dim).mask(False)  # type: ignore[no-untyped-call]


def _fit(name: str, given: Any, natural: Tensor, msg: Any) -> Tensor:
    """Return a value in the type and shape of its site."""
    if given is None:
        raise InterventionError(f"The value for the site {name!r} is None; leave the site out, or name a value.")
    try:
        raw = given if isinstance(given, Tensor) else torch.as_tensor(np.array(given))
        if raw.is_complex() and not natural.is_complex():
            raise TypeError
    except (TypeError, ValueError) as error:
        raise InterventionError(
            f"The value for the site {name!r} is {given!r}; it must be a number, an array or a tensor of numbers."
        ) from error
    value = raw.to(dtype=natural.dtype, device=natural.device)
    if not natural.is_floating_point() and not torch.equal(value.double(), raw.double().to(value.device)):
        dtype = str(natural.dtype).removeprefix("torch.")
        raise InterventionError(f"The site {name!r} holds {dtype}, which cannot take the value {given!r}.")
    frames = [frame for frame in msg["cond_indep_stack"] if frame.vectorized]
    sizes = {frame.dim: frame.size for frame in frames}
    try:
        if msg["infer"].get("_deterministic") and value.ndim > natural.ndim:  # a constant may differ between units
            value = value.expand([sizes.get(dim, 1) for dim in range(min(sizes, default=0), 0)])
        else:
            value = value.expand(natural.shape)
    except RuntimeError as error:
        plates = ", ".join(f"the plate {frame.name!r} of size {frame.size}" for frame in frames)
        raise InterventionError(
            f"The value for the site {name!r} has the shape {tuple(value.shape)}, which does not fit the site's "
            f"{tuple(natural.shape)}" + (f" in {plates}." if plates else ".")
        ) from error
    support = getattr(msg["fn"], "support", None)
    if support is not None and not msg["infer"].get("_deterministic") and not bool(support.check(value).all()):
        raise InterventionError(f"The value for the site {name!r} lies outside its support, {support}: {given!r}.")
    if not bool(value.isfinite().all()):
        raise InterventionError(
            f"The value for the site {name!r} is {given!r}, which is not finite; drop or fill in what is missing."
        )
    return value
