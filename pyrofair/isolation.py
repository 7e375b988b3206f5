"""Randomness that leaves no trace: global generators and Pyro's parameter store are as they were before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyro
import torch

__all__ = ["isolated", "seed_from"]


def seed_from(random_state: int | np.random.Generator | None) -> int:
    """Return a seed: the number itself, one drawn from a generator, or a fresh one.

    >>> seed_from(3)
    3
    """
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(np.random.default_rng(random_state).integers(2**31 - 1))


@contextmanager
def isolated(seed: int | None) -> Iterator[None]:
    """Run with seeded generators, and put these and the parameter store back afterwards.

    A program may read parameters that the store holds; what it adds or changes is undone.

    Parameters
    ----------
    seed
        Seeds Python's, NumPy's and torch's generators; None leaves them as they are until the end.
    """
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - a program may use the global one
    store = pyro.get_param_store()
    parameters = store.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            if seed is not None:
                pyro.set_rng_seed(seed % 2**32)
            yield
    finally:
        store.set_state(parameters)
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
