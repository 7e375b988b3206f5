"""Randomness that leaves no trace: global generators and Pyro's parameter store are as they were before."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyro
import torch

from pyrofair._validation import require_seed

__all__ = ["TURN", "fresh_state", "isolated", "seed_from", "set_seed"]

TURN = threading.RLock()
"""Pyro's handlers, the parameter store and the generators are global: whoever uses Pyro in a thread holds this."""


def seed_from(random_state: int | np.random.Generator | np.random.RandomState | None) -> int:
    """Return a seed: the number itself, one drawn from a generator, or a fresh one; anything else is a DataError.

    >>> seed_from(3)
    3
    """
    require_seed(random_state)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator | None):
        return int(np.random.default_rng(random_state).integers(2**31 - 1))
    return int(random_state)


def fresh_state(random_state: int | np.random.Generator | np.random.RandomState | None) -> np.random.RandomState:
    """Return NumPy's generator of an estimator: seeded, the given one, or a fresh one.

    ``check_random_state(None)`` would be the global one, and draws from it would advance that.
    """
    if isinstance(random_state, np.random.RandomState):
        return random_state
    seed = seed_from(random_state)
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seed)) if seed >= 2**32 else seed)


def set_seed(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators.

    As ``pyro.set_rng_seed``, but quick where CUDA is not in use: torch keeps a stack trace of each call otherwise.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


@contextmanager
def isolated(seed: int | None) -> Iterator[None]:
    """Run with seeded generators, and put these and the parameter store back afterwards, also after an error.

    A program may read parameters that the store holds; what it adds or replaces is undone. Only a tensor that it
    overwrites in place stays overwritten. Generators, store and Pyro's handlers are global, so threads take turns.

    Parameters
    ----------
    seed
        Seeds Python's, NumPy's and torch's generators; None leaves them as they are until the end.
    """
    with TURN:
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - a program may use the global one
        store = pyro.get_param_store()
        # Reading the state cuts the link from each parameter to its unconstrained self, which optimisers follow.
        links = [(value, vars(value)["unconstrained"]) for value in _raw(store) if "unconstrained" in vars(value)]
        parameters = store.get_state()
        _relink(links)
        cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        try:
            with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if cuda else ()):
                if seed is not None:
                    set_seed(seed)
                yield
        finally:
            store.clear()
            store.set_state(parameters)
            _relink(links)
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def _raw(store: pyro.params.param_store.ParamStoreDict) -> list[torch.Tensor]:
    return [value for _, value in store.named_parameters()]


def _relink(links: list[tuple[torch.Tensor, object]]) -> None:
    for value, link in links:
        value.unconstrained = link  # type: ignore[attr-defined]
