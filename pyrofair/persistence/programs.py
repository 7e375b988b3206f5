"""What a program did when it was saved, to be compared with the one that is given when it is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pyro import poutine

from pyrofair._random import isolated
from pyrofair._validation import shown
from pyrofair.exceptions import DataError
from pyrofair.persistence.codec import NotGiven
from pyrofair.programs.provenance import is_deterministic

__all__ = ["compare_programs", "describe_program"]

UNITS, SEED = 4, 20210413
"""A program draws so many units from this seed."""
WRAPPERS = ("Independent", "MaskedDistribution", "ExpandedDistribution")
SAME = 1e-5
"""Values are the same up to this, relative to the largest."""


def describe_program(program: Any) -> dict[str, Any] | None:
    """Return the sites of a program in order, each as its distribution and shape, and their values at one seed.

    None for what does not run on its own: a function of units and covariates is looked at with these.
    """
    if isinstance(program, NotGiven) or not callable(program):
        return None
    try:
        with isolated(SEED), torch.no_grad(), poutine.trace() as tracer:
            program(UNITS)
    except Exception:
        return None
    sites, values = {}, {}
    nodes: Any = tracer.trace.nodes
    for name, site in nodes.items():
        if site["type"] not in ("sample", "param") or type(site.get("fn")).__name__ == "_Subsample":
            continue
        value = torch.as_tensor(site["value"]).detach().cpu()
        fn = site.get("fn")
        while hasattr(fn, "base_dist") and type(fn).__name__ in WRAPPERS:
            fn = fn.base_dist
        of = "param" if site["type"] == "param" else "computed" if is_deterministic(site) else type(fn).__name__
        sites[str(name)] = f"{of} of shape {tuple(value.shape)}"
        values[str(name)] = value.numpy().astype(np.float64)
    return {"sites": sites, "values": values, "torch": torch.__version__}


def compare_programs(name: str, before: dict[str, Any], program: Any) -> None:
    """Refuse a program other than the one that was saved: one with other sites, or with other values at one seed."""
    after = describe_program(program)
    if after is None:
        raise DataError(f"given[{name!r}]={shown(program)} does not run on {UNITS} units, as the one saved did.")
    one, other = before["sites"], after["sites"]
    differs = [f"lacks {each!r}" for each in one if each not in other]
    differs += [f"has {each!r} besides" for each in other if each not in one]
    differs += [f"has the site {each!r} as {other[each]}, not {one[each]}" for each in one
                if each in other and one[each] != other[each]]  # fmt: skip
    if not differs and [*one] != [*other]:
        differs = [f"draws its sites in another order, not {', '.join(one)}"]
    for site, values in () if differs else before["values"].items():
        scale = max(float(np.abs(values).max(initial=0.0)), 1.0)
        if not np.allclose(values, after["values"][site], rtol=SAME, atol=SAME * scale, equal_nan=True):
            differs.append(
                f"has other values of {site!r} from one seed: its equations, networks or constants have changed"
            )
            if before["torch"] != torch.__version__:
                differs.append(f"ran with torch {before['torch']}, and this is {torch.__version__}")
            break
    if differs:
        raise DataError(f"given[{name!r}] is another program than the one saved: it {'; it '.join(differs)}.")
