"""Seeds, keyed random numbers, and global torch, NumPy and Pyro state left as it was found."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import pyro
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyrofair._validation import require_seed

__all__ = [
    "PYRO_LOCK",
    "fresh_state",
    "isolated",
    "keyed_strata",
    "keyed_uniform",
    "neutral_torch",
    "row_keys",
    "seed_from",
    "set_seed",
]

PYRO_LOCK = threading.RLock()
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


class _Here(threading.local):
    """Whether the thread is inside a neutral block."""

    inside = False


class _Type:
    """The default type that a process had before the first of its threads entered a neutral block."""

    lock = threading.Lock()
    users = 0
    before = torch.float32


_HERE = _Here()


@contextmanager
def neutral_torch() -> Iterator[None]:
    """Run with torch's settings as at its import and in one thread, and put the caller's back, also after an error.

    Inside, gradients are recorded, numbers are float32 on the CPU unless a type or device is named, and neither
    inference mode nor autocast applies, so that results do not depend on what a caller has set. Sums are split by
    threads, and thus differ in their last digits by how many there are; in fits of small networks threads mostly wait
    for each other. A block inside another one changes nothing. Deterministic algorithms are left to the caller: the
    results on the CPU do not depend on them.
    """
    if _HERE.inside:
        yield
        return
    _HERE.inside = True
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
            stack.enter_context(_one_thread())
            yield
    finally:
        _HERE.inside = False


@contextmanager
def _single_precision() -> Iterator[None]:
    """Let the default type be float32 until the last thread has left: the default is one for all threads."""
    with _Type.lock:
        if not _Type.users:
            _Type.before = torch.get_default_dtype()
            torch.set_default_dtype(torch.float32)
        _Type.users += 1
    try:
        yield
    finally:
        with _Type.lock:
            _Type.users -= 1
            if not _Type.users:
                torch.set_default_dtype(_Type.before)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def isolated(seed: int | None) -> Iterator[None]:
    """Run in :func:`neutral_torch` with seeded generators; these and the parameter store are put back afterwards.

    A program may read parameters that the store holds; what it adds or replaces is undone. Only a tensor that it
    overwrites in place stays overwritten. Generators, store and Pyro's handlers are global, so threads take turns.

    Parameters
    ----------
    seed
        Seeds Python's, NumPy's and torch's generators; None leaves them as they are until the end.
    """
    with PYRO_LOCK, neutral_torch():
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


Keys = NDArray[np.uint64]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def _mix(x: Keys) -> Keys:
    """Scatter 64 bits so that each bit of the result depends on all of them (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * FIRST
    x = (x ^ (x >> np.uint64(27))) * SECOND
    return x ^ (x >> np.uint64(31))


def row_keys(columns: Sequence[Tensor], n: int) -> Keys:
    """Return a key for each of n rows, made of what some columns hold there.

    Rows that agree in these columns have one key; without columns all rows have one.

    Parameters
    ----------
    columns
        Numbers of shape (n,) each.
    n
        The number of rows.
    """
    keys = np.zeros(n, dtype=np.uint64)
    for values in columns:
        numbers = values.to(torch.float64).numpy() + 0.0  # no minus zero
        keys = _mix(keys + GOLDEN + np.ascontiguousarray(numbers).view(np.uint64))
    return keys


def keyed_uniform(keys: Keys, seed: int, name: str, shape: Sequence[int] = ()) -> Tensor:
    """Return independent uniform numbers for each key, which depend on the key, the seed and the name alone.

    Parameters
    ----------
    keys
        Shape (n,), from :func:`row_keys`.
    seed, name
        Two names, and two seeds, give independent numbers.
    shape
        How many numbers for each row.

    Returns
    -------
    Tensor of shape (*shape, n), in (0, 1), double precision

    Examples
    --------
    >>> keys = row_keys([torch.tensor([1.0, 2.0, 1.0])], 3)
    >>> u = keyed_uniform(keys, 0, "H", (5,))
    >>> u.shape, bool((u[:, 0] == u[:, 2]).all()), bool((u[:, 0] == u[:, 1]).any())
    (torch.Size([5, 3]), True, False)
    """
    size = int(np.prod(shape, dtype=np.int64))
    digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
    stream = np.uint64(int.from_bytes(digest, "big"))
    streams = _mix(stream + GOLDEN * np.arange(1, size + 1, dtype=np.uint64))
    bits = _mix(_mix(keys[None, :] ^ streams[:, None]) + streams[:, None])
    return torch.from_numpy(((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53).reshape(*shape, len(keys))


def keyed_strata(keys: Keys, seed: int, name: str, shape: Sequence[int]) -> Tensor:
    """Return uniform numbers of which those along the first axis fall into equal parts of (0, 1), one in each.

    Each number alone is uniform; their parts are in random order. A mean over them varies less than one over
    independent numbers.

    Parameters
    ----------
    keys, seed, name, shape
        As for :func:`keyed_uniform`.

    Examples
    --------
    >>> u = keyed_strata(row_keys([], 1), 0, "H", (4,))
    >>> (4 * u).floor().sort(0).values.flatten().tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    part = keyed_uniform(keys, seed, f"order of {name}", shape).argsort(0)
    return (part + keyed_uniform(keys, seed, name, shape)) / shape[0]
