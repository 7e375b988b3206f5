"""Noise that belongs to a row: the same whenever the row comes, alone or among others, in whatever order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["keyed_strata", "keyed_uniform", "row_keys"]

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
