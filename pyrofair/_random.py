"""Seeds, random numbers keyed by rows, and global torch, NumPy and Pyro state left as it was found.

Torch and Pyro are loaded by the functions that use them: seeds and streams of NumPy need neither.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.util import hash_pandas_object

from pyrofair._validation import require_seed

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = [
    "EXPONENTIALS",
    "PYRO_LOCK",
    "fresh_state",
    "isolated",
    "keyed_exponentials",
    "keyed_strata",
    "keyed_uniform",
    "labelled_keys",
    "neutral_torch",
    "one_thread",
    "row_keys",
    "seed_for",
    "seed_from",
    "set_seed",
    "stream_of",
]

PYRO_LOCK = threading.RLock()
"""Pyro's handlers, parameter store and generators are global: a thread that uses Pyro holds this lock."""


def seed_from(random_state: int | np.random.Generator | np.random.RandomState | None) -> int:
    """Return a seed: the integer itself, one drawn from a generator, or a fresh one; all else is a DataError."""
    require_seed(random_state)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator | None):
        return int(np.random.default_rng(random_state).integers(2**31 - 1))
    return int(random_state)


def seed_for(seed: int, *numbers: int) -> int:
    """Return the seed of a part of what a seed seeds, such as of one split into folds, named by numbers."""
    return int(np.random.default_rng([seed, *numbers]).integers(2**31))


def stream_of(seed: int, *numbers: int) -> np.random.Generator:
    """Return a generator of its own for a seed and numbers: NumPy takes zeros at the end of seeds for none."""
    return np.random.default_rng([seed, *numbers, 1])


def fresh_state(random_state: int | np.random.Generator | np.random.RandomState | None) -> np.random.RandomState:
    """Return NumPy's generator of an estimator: seeded, the given one, or a fresh one, never the global one."""
    if isinstance(random_state, np.random.RandomState):
        return random_state
    seed = seed_from(random_state)
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seed)) if seed >= 2**32 else seed)


def set_seed(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators.

    As ``pyro.set_rng_seed``, but quick where CUDA is not in use: torch keeps a stack trace of each call otherwise.
    """
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


_THREAD = threading.local()  # .neutral where the thread is inside a neutral block


class _DefaultType:
    """The default type of the process before the first of its threads entered a neutral block."""

    lock = threading.Lock()
    users = 0
    before: torch.dtype


@contextmanager
def neutral_torch() -> Iterator[None]:
    """Run with torch's settings as at its import and in one thread, and put the caller's back, also after an error.

    Inside, gradients are recorded, numbers are float32 on the CPU unless a type or device is named, and neither
    inference mode nor autocast applies. The number of threads changes the last digits of sums, and in fits of small
    networks threads mostly wait for each other. A block inside another one changes nothing.
    """
    import torch

    if getattr(_THREAD, "neutral", False):
        yield
        return
    _THREAD.neutral = True
    try:
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(torch.autocast("cpu", enabled=False))
            if torch.cuda.is_available():
                stack.enter_context(torch.autocast("cuda", enabled=False))
            if torch.empty(0).device.type != "cpu":  # a mode that sees every call, and slows it down
                stack.enter_context(torch.device("cpu"))
            stack.enter_context(_single_precision())
            stack.enter_context(one_thread())
            yield
    finally:
        _THREAD.neutral = False


@contextmanager
def _single_precision() -> Iterator[None]:
    """Let the default type be float32 until the last thread has left: the default is one for all threads."""
    import torch

    with _DefaultType.lock:
        if not _DefaultType.users:
            _DefaultType.before = torch.get_default_dtype()
            torch.set_default_dtype(torch.float32)
        _DefaultType.users += 1
    try:
        yield
    finally:
        with _DefaultType.lock:
            _DefaultType.users -= 1
            if not _DefaultType.users:
                torch.set_default_dtype(_DefaultType.before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread; setting the number costs time, so one thread already is left alone."""
    import torch

    threads = torch.get_num_threads()
    if threads != 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if threads != 1:
            torch.set_num_threads(threads)


@contextmanager
def isolated(seed: int | None) -> Iterator[None]:
    """Run in :func:`neutral_torch` with seeded generators; these and the parameter store are put back afterwards.

    A program may read parameters that the store holds; what it adds or replaces is undone, except for a tensor that
    it overwrites in place. Threads wait for each other. None as a seed leaves the generators as they are until the end.
    """
    import pyro
    import torch

    with PYRO_LOCK, neutral_torch():
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - a program may use the global one
        store = pyro.get_param_store()
        # Reading the state cuts the link from each parameter to its unconstrained self, which optimisers follow.
        raw = [value for _, value in store.named_parameters()]
        links = [(value, vars(value)["unconstrained"]) for value in raw if "unconstrained" in vars(value)]
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


def _relink(links: list[tuple[torch.Tensor, object]]) -> None:
    for value, link in links:
        value.unconstrained = link  # type: ignore[attr-defined]


Keys = NDArray[np.uint64]


def row_keys(columns: Sequence[Tensor], n: int) -> Keys:
    """Return a key for each of n rows (n,), made of their values in columns (n,): equal for equal rows."""
    values = {str(i): column.double().numpy() + 0.0 for i, column in enumerate(columns)}  # no minus zero
    if not values:
        return np.zeros(n, dtype=np.uint64)
    return hash_pandas_object(pd.DataFrame(values), index=False).to_numpy().astype(np.uint64)


def labelled_keys(keys: Keys, index: pd.Index[Any]) -> Keys:
    """Return keys of rows, shape (n,), that also depend on the labels of the rows."""
    return _mix(keys ^ _mix(hash_pandas_object(index).to_numpy().astype(np.uint64)))


def keyed_uniform(keys: Keys, seed: int, name: str, shape: Sequence[int] = ()) -> Tensor:
    """Return uniform numbers in (0, 1), shape (*shape, n), that depend on the n keys, the seed and the name alone.

    Two keys, seeds or names give independent numbers: splitmix64 mixes the key with a stream for each of the numbers.
    """
    import torch

    size = int(np.prod(shape, dtype=np.int64))
    digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
    first, step = np.uint64(int.from_bytes(digest, "big")), np.uint64(0x9E3779B97F4A7C15)
    streams = _mix(first + step * np.arange(1, size + 1, dtype=np.uint64))[:, None]
    bits = _mix(keys ^ streams)
    return torch.from_numpy(((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53).reshape(*shape, len(keys))


def _mix(x: Keys) -> Keys:
    """Scatter 64 bits so that each bit of the result depends on all of them (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def keyed_strata(keys: Keys, seed: int, name: str, shape: Sequence[int]) -> Tensor:
    """Return keyed uniform numbers; along the first axis, one lies in each equal part of (0, 1), in random order."""
    part = keyed_uniform(keys, seed, f"order of {name}", shape).argsort(0)
    return (part + keyed_uniform(keys, seed, name, shape)) / shape[0]


EXPONENTIALS = 8_192
"""Keyed exponential numbers of so many rows come from one stream."""


def keyed_exponentials(seed: int, stream: int, start: int, stop: int) -> NDArray[np.float64]:
    """Return exponential numbers of the rows with the numbers start to stop - 1, shape (stop - start,).

    They depend on the seed, the stream and the number of a row alone: a counter-based generator (Philox) is set to a
    place of its own for each stream and each 8,192 rows, so that any part of the rows can be drawn for itself.
    """
    found = np.empty(stop - start)
    for block in range(start // EXPONENTIALS, -(-stop // EXPONENTIALS)):
        first = block * EXPONENTIALS
        low, high = max(start, first), min(stop, first + EXPONENTIALS)
        generator = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, stream, block]))
        found[low - start : high - start] = generator.standard_exponential(high - first)[low - first :]
    return found
