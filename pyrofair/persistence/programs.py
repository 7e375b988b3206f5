"""What a program did when it was saved, to be compared with the one that is given when it is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pyro import poutine
from torch import nn

from pyrofair._random import isolated
from pyrofair._validation import shown
from pyrofair.exceptions import DataError
from pyrofair.persistence.codec import NotGiven
from pyrofair.programs.provenance import is_deterministic

__all__ = ["compare_programs", "fingerprint"]

UNITS, SEED = 4, 20210413
"""A program draws so many units from this seed."""
WRAPPERS = ("Independent", "MaskedDistribution", "ExpandedDistribution")
SAME = 1e-5
"""Values are the same up to this, relative to the largest."""


def fingerprint(program: Any) -> dict[str, Any] | None:
    """Return the sites of a program in order, with their types and shapes, and their values at one seed.

    None for what does not run on its own: a function of units and covariates is looked at with these.
    """
    if isinstance(program, NotGiven) or not callable(program):
        return None
    try:
        with isolated(SEED), torch.no_grad(), poutine.trace() as tracer:
            program(UNITS)
    except Exception:
        return None
    sites, values = [], {}
    nodes: Any = tracer.trace.nodes
    for name, site in nodes.items():
        if site["type"] not in ("sample", "param") or type(site.get("fn")).__name__ == "_Subsample":
            continue
        value = torch.as_tensor(site["value"]).detach().cpu()
        of = type(_plain(site.get("fn"))).__name__
        if site["type"] == "param" or is_deterministic(site):
            of = "computed"
        sites.append((str(name), site["type"], of, tuple(value.shape)))
        values[str(name)] = value.numpy().astype(np.float64)
    return {"sites": sites, "values": values, "torch": torch.__version__}


def _plain(fn: Any) -> Any:
    """Return a distribution without its wrappers of shape."""
    while hasattr(fn, "base_dist") and type(fn).__name__ in WRAPPERS:
        fn = fn.base_dist
    return fn


def compare_programs(name: str, before: dict[str, Any], program: Any) -> None:
    """Refuse a program other than the one that was saved: one with other sites, or with other values at one seed."""
    after = fingerprint(program)
    if after is None:
        raise DataError(f"given[{name!r}]={shown(program)} does not run on {UNITS} units, as the one saved did.")
    one, other = ({each[0]: each for each in found["sites"]} for found in (before, after))
    gone, new = [each for each in one if each not in other], [each for each in other if each not in one]
    changed = [each for each in one if each in other and one[each] != other[each]]
    if gone or new or changed:
        parts = [f"lacks {', '.join(map(repr, gone))}"] * bool(gone) + [
            f"has {', '.join(map(repr, new))} besides"
        ] * bool(new)
        parts += [
            f"has the site {each!r} as {_described(other[each])}, not {_described(one[each])}" for each in changed
        ]
        raise DataError(f"given[{name!r}] is another program than the one saved: it {'; it '.join(parts)}.")
    if [*one] != [*other]:
        raise DataError(f"given[{name!r}] draws its sites in another order than the program saved, {', '.join(one)}.")
    for site, values in before["values"].items():
        scale = max(float(np.abs(values).max(initial=0.0)), 1.0)
        if not np.allclose(values, after["values"][site], rtol=SAME, atol=SAME * scale, equal_nan=True):
            numbers = ", networks" if isinstance(program, nn.Module) else ""
            raise DataError(
                f"given[{name!r}] is another program than the one saved: from one seed, the values of {site!r} differ. "
                f"Its equations{numbers} or constants have changed"
                + (
                    "."
                    if before["torch"] == torch.__version__
                    else f", or random numbers of torch {torch.__version__} are others than those of {before['torch']}."
                )
            )


def _described(site: tuple[str, str, str, tuple[int, ...]]) -> str:
    return f"{site[2]} of shape {site[3]}"
