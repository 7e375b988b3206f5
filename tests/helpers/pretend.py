"""A device that is not there: tensors of the CPU that pass for those of a GPU, and a report of what one would refuse.

A tensor is on the pretended device if it was made or moved there, or computed of such tensors. Reported are operations
of tensors of both devices, and, inside a training step, reads that would wait for the device.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils import _device
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

DEVICE = torch.device("hpu", 0)
ATEN = torch.ops.aten
MOVES = {ATEN.copy_.default, ATEN._to_copy.default, ATEN._foreach_copy_.default}
READS = {ATEN._local_scalar_dense.default, ATEN.nonzero.default, ATEN.masked_select.default, ATEN.equal.default}


STEPS = {("samplers.py", "descend"), ("training.py", "_epoch")}
"""The functions that take steps, in which nothing may wait for the device but what each epoch does once."""
ONCE = {"draw", "join", "begin"}


def tensors_in(*given: Any) -> list[Tensor]:
    return [each for each in tree_flatten(given)[0] if isinstance(each, Tensor)]


class Pretence:
    """Which storages are on the device, the operations that mixed devices, and the reads inside a step."""

    def __init__(self) -> None:
        self.held: dict[int, StorageWeakRef] = {}  # a weak reference keeps an address from being used again
        self.mixed: list[str] = []
        self.reads: list[str] = []

    def has(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self.held

    def mark(self, found: Any, *, held: bool) -> None:
        for tensor in tensors_in(found):
            key = tensor.untyped_storage()._cdata
            if held:
                self.held.setdefault(key, StorageWeakRef(tensor.untyped_storage()))
            else:
                self.held.pop(key, None)

    def note(self, where: list[str], what: Any, *, in_steps: bool = False) -> None:
        """Note an operation and the line of the package that it is at; reads are noted inside steps alone."""
        stack = traceback.extract_stack()
        frames = [each for each in stack if "/pyrofair/" in each.filename]
        taking = any((Path(each.filename).name, each.name) in STEPS for each in frames)
        nearest = next((each for each in reversed(stack) if "/pyro" in each.filename), None)
        ours = nearest is not None and "/pyro/" not in nearest.filename  # Pyro checks its losses itself
        if not in_steps or (taking and ours and not {each.name for each in stack} & ONCE):
            place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "outside"
            where.append(f"{what} at {place}")


class _Operations(TorchDispatchMode):
    """Sees each operation, those of backward passes too."""

    def __init__(self, pretence: Pretence) -> None:
        super().__init__()
        self.pretence = pretence

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        pretence, given = self.pretence, tensors_in(args, kwargs or {})
        there = [each for each in given if pretence.has(each)]
        here = [each for each in given if each.ndim and not pretence.has(each)]
        if there and here and func not in MOVES:
            pretence.note(pretence.mixed, func)
        if there and func in READS:
            pretence.note(pretence.reads, func, in_steps=True)
        found = func(*args, **(kwargs or {}))
        if there and func not in MOVES:
            pretence.mark(found, held=True)
        elif func is ATEN._to_copy.default or func is ATEN.clone.default:
            pretence.mark(found, held=bool(there))
        return found


class _Calls(TorchFunctionMode):
    """Answers calls that name the device, or ask for it."""

    def __init__(self, pretence: Pretence) -> None:
        super().__init__()
        self.pretence = pretence

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, pretence = dict(kwargs or {}), self.pretence
        if func == Tensor.device.__get__:  # type: ignore[attr-defined]
            return DEVICE if pretence.has(args[0]) else func(*args)
        name = getattr(func, "__name__", "")
        if name == "_parse_to":  # which reads the arguments of a module's ``to``
            return func(*args, **kwargs)
        if name == "numpy" and pretence.has(args[0]):
            raise TypeError("can't convert a tensor of the device to numpy. Use Tensor.cpu() first.")
        if func in _device._device_constructors() and kwargs.get("device") is None:
            kwargs["device"] = _device.CURRENT_DEVICE
        named = [each for each in (*args[1:], kwargs.get("device")) if isinstance(each, str | torch.device)]
        target = next((torch.device(each) for each in named if is_device(each)), None)
        if name == "to" and target is None:
            other = next((each for each in args[1:] if isinstance(each, Tensor)), kwargs.get("other"))
            target = None if other is None else DEVICE if pretence.has(other) else torch.device("cpu")
        target = torch.device("cpu") if name == "cpu" else target
        if name == "new_tensor" and target is None and pretence.has(args[0]):
            target = DEVICE
        if target is None:
            return func(*args, **kwargs)
        held = target.type == DEVICE.type
        args = (*args[:1], *(torch.device("cpu") if is_device(each) else each for each in args[1:]))
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        found = func(*args, **kwargs)
        if name not in ("to", "cpu"):
            pretence.mark(found, held=held)
            return found
        if pretence.has(args[0]) != held:
            found = found.detach().clone() if not found.requires_grad else found.clone()
        pretence.mark(found, held=held)
        return found


def is_device(value: Any) -> bool:
    if isinstance(value, str):
        return value.split(":")[0] in ("cpu", DEVICE.type)
    return isinstance(value, torch.device)


@contextmanager
def pretended() -> Iterator[Pretence]:
    """Let ``DEVICE`` pass for a device that is there."""
    pretence = Pretence()
    with _Operations(pretence), _Calls(pretence):
        yield pretence
