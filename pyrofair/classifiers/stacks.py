"""Several modules of one architecture as one: their weights stacked, so that each layer is one batched product."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pyrofair.exceptions import DataError

__all__ = ["NOT_FINITE", "Alone", "Optimizer", "Stack", "architecture", "logits_of", "optimizer_settings"]

Optimizer = Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]

NOT_FINITE = "The module's log-odds are not finite: training diverged. Lower the learning rate."
ELEMENTWISE = {
    nn.CELU, nn.ELU, nn.GELU, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh, nn.Identity, nn.LeakyReLU, nn.LogSigmoid,
    nn.Mish, nn.ReLU, nn.ReLU6, nn.SELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Softsign, nn.Tanh,
}  # fmt: skip
"""Layers that act on each number alone, without weights or random numbers."""
ALIGN = 64
"""Each copy of a weight begins at a multiple of so many numbers, so that sums and products round alike in any stack."""
COPY_BY_COPY = {
    torch.optim.ASGD, torch.optim.Adadelta, torch.optim.Adagrad, torch.optim.Adam, torch.optim.AdamW,
    torch.optim.Adamax, torch.optim.NAdam, torch.optim.RAdam, torch.optim.RMSprop, torch.optim.Rprop, torch.optim.SGD,
}  # fmt: skip
"""Optimizers that treat each number of a parameter alone, so that one of them moves a stack as many would."""


def architecture(module: nn.Module, width: int) -> tuple[str, ...] | None:
    """Return what modules must have in common to be stacked; None of one that cannot be stacked.

    Stacked are linear layers and activations that act on each number alone, one after the other, from ``width``
    features to one log-odds or two logits, with all weights learned. All else is trained alone: layers that mix rows
    (batch normalisation), draw random numbers (dropout), or are classes of the user's.
    """
    layers = _layers(module)
    weights = [weight for layer in layers or () for weight in layer.parameters()]
    if not layers or len({id(weight) for weight in weights}) < len(weights):
        return None
    for layer in layers:
        if type(layer) is nn.Linear:
            if layer.in_features != width:
                return None
            width = layer.out_features
    if width not in (1, 2) or not all(weight.requires_grad for weight in weights):
        return None
    types = [f"{weight.dtype} {weight.device}" for weight in weights]
    return (*map(repr, layers), *types) if weights else None


def _layers(module: nn.Module) -> list[nn.Module] | None:
    """Return the layers of a module that is nothing but layers to be stacked, in order, or None."""
    state = vars(module)
    if "forward" in state or any(len(value) for name, value in state.items() if name.endswith("_hooks")):
        return None
    if type(module) is not nn.Sequential:
        return [module] if type(module) is nn.Linear or type(module) in ELEMENTWISE else None
    found: list[nn.Module] = []
    for child in module:
        layers = _layers(child)
        if layers is None:
            return None
        found += layers
    return found


class Alone:
    """A single module, called as it is."""

    def __init__(self, module: nn.Module) -> None:
        self.modules = [module]

    def parameters(self) -> list[nn.Parameter]:
        """Return what is learned."""
        return list(self.modules[0].parameters())

    def logits(self, rows: Tensor) -> Tensor:
        """Return the log-odds of the rows (1, m, k) of the module, shape (1, m)."""
        return logits_of(self.modules[0], rows[0])[None]

    def descend(self, logits: Tensor, slope: Tensor) -> None:
        """Find the slopes of the weights, given that of the objective in the log-odds (1, m)."""
        self.modules[0].zero_grad(set_to_none=True)
        logits.backward(slope)  # type: ignore[no-untyped-call]

    def release(self) -> None:
        """Leave the module as it is."""


class Stack:
    """K modules of one :func:`architecture`; their weights are parts of the stacked ones until they are released."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.modules = list(modules)
        self.stores: list[nn.Parameter] = []
        self.weights: list[Tensor] = []
        self.slopes: list[Tensor] = []
        layers = [_layers(module) or [] for module in modules]
        self.layers = [self._take(copies) for copies in zip(*layers, strict=True)]

    def _take(self, copies: Sequence[Any]) -> Any:
        """Return an activation, or the stacked weight and bias of a linear layer."""
        if type(copies[0]) is not nn.Linear:
            return copies[0]
        return tuple(
            None if each is None else self._stack([getattr(copy, name) for copy in copies])
            for name, each in (("weight", copies[0].weight), ("bias", copies[0].bias))
        )

    def _stack(self, parameters: Sequence[nn.Parameter]) -> Tensor:
        size, shape = parameters[0].numel(), (len(parameters), *parameters[0].shape)
        store = nn.Parameter(parameters[0].new_zeros(len(parameters), -(-size // ALIGN) * ALIGN))
        store.grad = torch.zeros_like(store)
        weight, slope = (each[:, :size].view(shape) for each in (store.detach(), store.grad))
        for parameter, part in zip(parameters, weight, strict=True):
            part.copy_(parameter.detach())
            parameter.data = part
        self.stores.append(store)
        self.slopes.append(slope)
        self.weights.append(weight.requires_grad_())
        return self.weights[-1]

    def parameters(self) -> list[nn.Parameter]:
        """Return what is learned, each of K copies along the first axis, in the order of a module's parameters."""
        return self.stores

    def logits(self, rows: Tensor) -> Tensor:
        """Return the log-odds of the rows (K, m, k) of each module, shape (K, m)."""
        values = rows
        for layer in self.layers:
            if not isinstance(layer, tuple):
                values = layer(values)
                continue
            weight, bias = layer
            turned = weight.transpose(1, 2)
            values = torch.bmm(values, turned) if bias is None else torch.baddbmm(bias[:, None], values, turned)
        return values[..., 0] if values.shape[2] == 1 else values[..., 1] - values[..., 0]

    def descend(self, logits: Tensor, slope: Tensor) -> None:
        """Find the slopes of the weights, given that of the objectives in the log-odds (K, m)."""
        torch._foreach_copy_(self.slopes, torch.autograd.grad(logits, self.weights, slope))

    def release(self) -> None:
        """Give each module weights of its own, the present ones."""
        for module in self.modules:
            for weight in module.parameters():
                weight.data = weight.data.clone()


def optimizer_settings(optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> tuple[str, ...] | None:
    """Return what optimizers must have in common to move one stack: the class, settings, and parameters by index.

    None of one that treats modules as wholes: it must be one of torch's that treat each number alone, of its very class
    and without hooks.
    """
    state = vars(optimizer)
    if type(optimizer) not in COPY_BY_COPY or "step" in state:
        return None
    if any(len(value) for name, value in state.items() if name.endswith("_hooks") and hasattr(value, "__len__")):
        return None
    index = {id(parameter): str(at) for at, parameter in enumerate(parameters)}
    found = [type(optimizer).__name__]
    for group in optimizer.param_groups:
        named = {name: value for name, value in group.items() if name not in ("params", "param_names")}
        if any(id(parameter) not in index for parameter in group["params"]):
            return None
        found.append(f"{sorted(named.items())!r} {[index[id(parameter)] for parameter in group['params']]}")
    return tuple(found)


def logits_of(module: nn.Module, rows: Tensor) -> Tensor:
    """Return the log-odds of the last class, shape (m,), from a module with one output or two."""
    try:
        out = module(rows)
    except RuntimeError as error:
        raise DataError(f"The module fails on rows of {rows.shape[1]} encoded features: {error}") from error
    shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
    if shape == (len(rows), 2):
        logits: Tensor = out[:, 1] - out[:, 0]
    elif shape in {(len(rows),), (len(rows), 1)}:
        logits = out.reshape(-1)
    else:
        one, two = (len(rows), 1), (len(rows), 2)
        raise DataError(f"The module returned {shape}; it must return a log-odds a row, {one}, or two logits, {two}.")
    if not bool(logits.isfinite().all()):
        raise DataError(NOT_FINITE)
    return logits
