"""Hooks on a tensor's gradient."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ox.errors import GradientError
from ox.ops.operator import OPS
from ox.where import users_line

if TYPE_CHECKING:
    from ox.tensor import Tensor


class Handle:
    """Takes a hook away again; `torch.utils.hooks.RemovableHandle`."""

    def __init__(self, hooks: list[Any], entry: Any) -> None:
        self._hooks, self._entry = hooks, entry

    def remove(self) -> None:
        """Take it away; a second time does nothing."""
        self._hooks[:] = [entry for entry in self._hooks if entry is not self._entry]


class _Retain:
    """The hook of `Tensor.retain_grad`. Holds the tensor weakly, for the tensor holds the node that holds this."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = weakref.ref(tensor)

    def __call__(self, g: Tensor) -> None:
        tensor = self.tensor()
        if tensor is not None:
            tensor.grad = g.clone() if tensor.grad is None else OPS["Add"](tensor.grad, g)


def _hooks_of(tensor: Tensor) -> list[Any]:
    node = tensor.node
    if node is None:
        raise GradientError(
            "a hook needs a tensor that requires a gradient", where=users_line(3), hint="x.requires_grad_()"
        )
    if node.hooks is None:
        node.hooks = []
    return node.hooks


def register(tensor: Tensor, hook: Callable[[Tensor], Tensor | None]) -> Handle:
    """Call `hook` when the gradient of `tensor` is known. Raises GradientError if it has none."""
    hooks, entry = _hooks_of(tensor), (tensor.port, hook)
    # whoever keeps the gradient sees what the other hooks made of it
    at = next((i for i, (_, other) in enumerate(hooks) if isinstance(other, _Retain)), len(hooks))
    hooks.insert(at, entry)
    return Handle(hooks, entry)


def retain(tensor: Tensor) -> None:
    """Keep the gradient of a tensor that is no leaf in its `.grad`. Raises GradientError if it has none."""
    _hooks_of(tensor).append((tensor.port, _Retain(tensor)))
