"""Devices of torch on which something is trained: which are usable, their random numbers, and their memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from pyrofair._random import PYRO_LOCK
from pyrofair._validation import require_instance
from pyrofair.exceptions import DataError

__all__ = ["Device", "free_memory", "on_device", "require_device", "require_wide_device", "seeded"]

Device = str | torch.device


def require_device(name: str, value: Any, dtype: str = "float32") -> None:
    """Refuse a device that is absent, or that holds no numbers of a type."""
    require_instance(name, value, (str, torch.device), "a torch device, such as 'cpu'")
    try:
        device = torch.empty(0, device=value).device
    except (RuntimeError, AssertionError) as error:
        raise DataError(f"{name}={str(value)!r} is not available: {error}") from error
    if device.type == "meta":
        raise DataError(f"{name}={str(value)!r} holds no numbers, so nothing is trained there. Use 'cpu', or a GPU.")
    if device.type == "mps" and dtype == "float64":
        raise DataError(f"{name}={str(value)!r} holds no float64 numbers, which are needed here. Use 'cpu'.")


def require_wide_device(name: str, value: Any) -> None:
    """Refuse a device that is absent, or that holds no double precision."""
    require_device(name, value, "float64")


def on_device(device: Device) -> AbstractContextManager[Any]:
    """Return a block in which tensors are made on a device unless another one is named."""
    # Torch's own block sees every call, and slows it down.
    return nullcontext() if torch.device(device).type == "cpu" else torch.device(device)


@contextmanager
def seeded(seed: int, device: Device) -> Iterator[None]:
    """Seed torch's generators of the CPU and of a device, of which layers such as dropout draw, then put them back."""
    device = torch.device(device)
    on_gpu = device.type == "cuda"
    with PYRO_LOCK, torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            with torch.cuda.device(device):  # which seeds the present device alone
                torch.cuda.manual_seed(seed)
        yield


def free_memory(device: Device) -> int | None:
    """Return the free bytes of a GPU; None of a device of which torch does not know them, such as the CPU."""
    device = torch.device(device)
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None
