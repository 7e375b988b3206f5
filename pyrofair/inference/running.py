"""How is a program run on many units at once? Without gradients or checks, in float64 if it can, in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pyro
import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from torch import Tensor

from pyrofair.programs.sites import Program

__all__ = ["StopTracing", "in_batches", "precision", "quiet", "repeat_each", "show_label", "takes_float64"]

TRIED = 61
"""With so many units it is tried whether a program runs in float64; with few, what is assigned may be empty."""


class StopTracing(Exception):
    """All the sites that were asked for have been met; it ends a run whose further sites nobody needs."""


@contextmanager
def quiet() -> Iterator[None]:
    """Run a program without gradients, Pyro's checks, or handlers outside that look on."""
    with poutine.block(), pyro.validation_enabled(False), torch.no_grad():
        yield


def takes_float64(program: Program, sites: Iterable[str]) -> bool:
    """Tell whether a program runs in float64 throughout, the values of some of its sites put in float64.

    One that insists on the default type, through a float32 network say, does not.
    """
    with precision(wide=True):
        try:
            with quiet(), _Widened(sites):
                program(TRIED)
        except (RuntimeError, TypeError, ValueError):  # the run proper says so, if it was not the type
            return False
    return True


class _Widened(Messenger):
    """Put the values of some sites in float64."""

    def __init__(self, sites: Iterable[str]) -> None:
        super().__init__()
        self.sites = {*sites}

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg["name"] in self.sites and msg["value"].is_floating_point():
            msg["value"] = msg["value"].double()


@contextmanager
def precision(*, wide: bool) -> Iterator[None]:
    """Run in float64, or in the types that are set.

    In float64 recovered noise gives the observed values back to 15 digits.
    """
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64 if wide else before)
        yield
    finally:
        torch.set_default_dtype(before)


def in_batches(rows: Tensor, size: int) -> list[Tensor]:
    """Split units into batches of at most ``size``, and at least one unit each."""
    whole: Any = rows
    return list(whole.split(max(1, size))) if len(rows) else []


def show_label(index: pd.Index[Any], row: int) -> str:
    """Return the label of a row as text, a number of NumPy's as Python's."""
    label = index[row]
    return repr(label.item() if isinstance(label, np.generic) else label)


def repeat_each(values: Tensor, repeat: int) -> Tensor:
    """Repeat each value: an expanded view copied, several times faster than ``repeat_interleave``."""
    return values.unsqueeze(1).expand(len(values), repeat, *values.shape[1:]).flatten(0, 1)
