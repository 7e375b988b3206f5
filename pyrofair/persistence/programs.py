"""What a program did when it was saved, to be compared with the one that is given when it is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pyro import poutine

from pyrofair._random import isolated
from pyrofair._validation import shown
from pyrofair.exceptions import DataError
from pyrofair.programs.provenance import is_deterministic

__all__ = ["compare_programs", "describe_program"]

UNITS, SEED = 4, 20210413
"""A program draws so many units from this seed."""
WRAPPERS = ("Independent", "MaskedDistribution", "ExpandedDistribution")
SAME = 1e-5
"""Values are the same up to this, relative to the largest."""


def describe_program(program: Any) -> dict[str, list[Any]] | None:
    """Return for each site of a program, in order, its distribution and shape, and its values at one seed.

    None for what does not run on its own: a function of units and covariates is looked at with these.
    """
    try:
        with isolated(SEED), torch.no_grad(), poutine.trace() as tracer:
            program(UNITS)
    except Exception:
        return None
    found: dict[str, list[Any]] = {}
    nodes: Any = tracer.trace.nodes
    for name, site in nodes.items():
        if site["type"] not in ("sample", "param") or type(site.get("fn")).__name__ == "_Subsample":
            continue
        value, fn = torch.as_tensor(site["value"]).detach().cpu(), site.get("fn")
        while hasattr(fn, "base_dist") and type(fn).__name__ in WRAPPERS:
            fn = fn.base_dist
        of = "param" if site["type"] == "param" else "computed" if is_deterministic(site) else type(fn).__name__
        found[str(name)] = [f"{of} of shape {tuple(value.shape)}", value.numpy().astype(np.float64)]
    return found


def compare_programs(name: str, before: dict[str, list[Any]], program: Any) -> None:
    """Refuse a program other than the one that was saved: one with other sites, or with other values at one seed."""
    after = describe_program(program)
    if after is None:
        raise DataError(f"given[{name!r}]={shown(program)} does not run on {UNITS} units, as the one saved did.")
    differs = [f"lacks {each!r}" for each in before if each not in after]
    differs += [f"has {each!r} besides" for each in after if each not in before]
    both = {each: (*before[each], *after[each]) for each in before if each in after}
    differs += [f"has the site {each!r} as {new}, not {old}" for each, (old, _, new, _) in both.items() if old != new]
    if not differs and [*before] != [*after]:
        differs = [f"draws its sites in another order, not {', '.join(before)}"]
    for site, (_, old, _, new) in () if differs else both.items():
        scale = max(float(np.abs(old).max(initial=0.0)), 1.0)
        if not np.allclose(old, new, rtol=SAME, atol=SAME * scale, equal_nan=True):
            differs = [f"has other values of {site!r} from one seed: its equations or constants have changed, or torch"]
            break
    if differs:
        raise DataError(f"given[{name!r}] is another program than the one saved: it {'; it '.join(differs)}.")
