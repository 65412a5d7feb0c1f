"""Hooks on a tensor's gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ox.errors import GradientError

if TYPE_CHECKING:
    from ox.tensor import Tensor


class Handle:
    """Takes a hook away again; `torch.utils.hooks.RemovableHandle`."""

    def __init__(self, hooks: list[Any], entry: Any) -> None:
        self._hooks, self._entry = hooks, entry

    def remove(self) -> None:
        if self._entry in self._hooks:
            self._hooks.remove(self._entry)


def register(tensor: Tensor, hook: Callable[[Tensor], Tensor | None]) -> Handle:
    """Call `hook` when the gradient of `tensor` is known. Raises GradientError if it has none."""
    if tensor.node is None:
        raise GradientError("a hook needs a tensor that requires a gradient", hint="x.requires_grad_()")
    if tensor.node.hooks is None:
        tensor.node.hooks = []
    entry = (tensor.port, hook)
    tensor.node.hooks.append(entry)
    return Handle(tensor.node.hooks, entry)
