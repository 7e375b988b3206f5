"""One safe intervention: Pyro's ``do``, with every name, type and shape checked and the intervened value on record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.poutine import runtime
from pyro.poutine.do_messenger import DoMessenger
from torch import Tensor

from pyrofair.exceptions import PyrofairError

__all__ = ["InterventionError", "do"]

NATURAL = "__natural"


class InterventionError(PyrofairError):
    """An intervention names an unknown site, or a value that does not fit it."""


def do(program: Callable[..., Any], values: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a program in which sites are set to values, whatever would have caused them.

    It is ``pyro.poutine.do`` but for what surprises there. In the trace a site carries the intervened value under its
    own name, and the value it would have had under ``NAME__natural``. Numbers, bools, arrays and tensors are cast to the
    site's type and broadcast to its shape. The natural copy adds no log-probability, unless it was conditioned on, and
    the scales of subsampled plates stay as they are. Of two interventions on one site the outer one holds.

    Parameters
    ----------
    program
        A Pyro program.
    values
        For each site its value.

    Raises
    ------
    InterventionError
        When the program runs: for a site it does not have, a value of None or of a wrong shape, or one outside the
        site's support; and where a handler outside conditions on an intervened site.

    Examples
    --------
    >>> def program():
    ...     with pyro.plate("people", 4):
    ...         a = pyro.sample("A", dist.Bernoulli(0.5))
    ...         return pyro.deterministic("M", 2 * a)
    >>> do(program, {"A": 1})()
    tensor([2., 2., 2., 2.])
    """
    if not isinstance(values, Mapping):
        raise InterventionError(f"Pass a dictionary of site names and values, not {type(values).__name__}.")

    def intervened(*args: Any, **kwargs: Any) -> Any:
        with _SafeDo(values):
            return program(*args, **kwargs)

    return intervened


class _SafeDo(DoMessenger):  # type: ignore[misc]
    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(dict(values))
        self.met: list[str] = []
        self.natural: dict[str, tuple[Any, Any, Any]] = {}

    def __exit__(self, *failure: Any) -> Any:
        result = super().__exit__(*failure)
        unknown = [name for name in self.data if name not in self.met]
        if failure[0] is None and unknown:
            raise InterventionError(
                f"The program has no site {', '.join(map(repr, unknown))} to intervene on. Its sites: "
                f"{', '.join(dict.fromkeys(self.met))}."
            )
        return result

    def _pyro_sample(self, msg: Any) -> None:
        name = msg["name"]
        if poutine.util.site_is_subsample(msg):
            return
        self.met.append(name)
        if name not in self.data:
            return
        conditioned = msg["is_observed"] and not msg["infer"].get("_deterministic")
        natural = msg["value"] if msg["value"] is not None else msg["fn"]()
        value = _fit(name, self.data[name], natural, msg)
        self.natural[name] = (natural, msg["fn"] if conditioned else None, msg["scale"])
        msg["fn"] = dist.Delta(value, event_dim=value.ndim).mask(False)
        msg["value"] = value
        msg["is_observed"] = True
        msg["infer"] = {"_deterministic": True, "_intervened": value}

    def _pyro_post_sample(self, msg: Any) -> None:
        kept = self.natural.pop(msg["name"], None)
        if kept is None:
            return
        if msg["infer"].get("_intervened") is None or msg["value"] is not msg["infer"]["_intervened"]:
            raise InterventionError(
                f"The site {msg['name']!r} is intervened on, and a handler outside gives it another value (condition, "
                "say). Condition inside, do outside: do(poutine.condition(program, data), values)."
            )
        self._record(msg["name"] + NATURAL, *kept)

    def _record(self, name: str, value: Any, law: Any, scale: Any) -> None:
        """Show the natural value to the handlers outside this one."""
        place = runtime._PYRO_STACK.index(self)
        inner = runtime._PYRO_STACK[place:]
        del runtime._PYRO_STACK[place:]
        try:
            with poutine.scale(scale=scale):
                if law is None:
                    pyro.deterministic(name, value)
                else:
                    pyro.sample(name, law, obs=value)
        finally:
            runtime._PYRO_STACK.extend(inner)


def _fit(name: str, given: Any, natural: Tensor, msg: Any) -> Tensor:
    """Return a value in the type and shape of its site."""
    if given is None:
        raise InterventionError(f"The value for the site {name!r} is None; leave the site out, or name a value.")
    if isinstance(given, str) or callable(given):
        raise InterventionError(f"The value for the site {name!r} is {given!r}; it must be a number, array or tensor.")
    try:
        value = given if isinstance(given, Tensor) else torch.as_tensor(np.asarray(given))
    except (TypeError, ValueError) as error:
        raise InterventionError(f"The value for the site {name!r} cannot be read as numbers: {given!r}.") from error
    value = value.to(dtype=natural.dtype, device=natural.device)
    try:
        value = value.expand(natural.shape)
    except RuntimeError as error:
        plates = ", ".join(f"plate {frame.name!r} of size {frame.size}" for frame in msg["cond_indep_stack"])
        raise InterventionError(
            f"The value for the site {name!r} has the shape {tuple(value.shape)}, which does not fit the site's "
            f"{tuple(natural.shape)}" + (f" in {plates}." if plates else ".")
        ) from error
    support = getattr(msg["fn"], "support", None)
    if support is not None and not msg["infer"].get("_deterministic") and not bool(support.check(value).all()):
        raise InterventionError(f"The value for the site {name!r} lies outside its support, {support}: {given!r}.")
    return value
