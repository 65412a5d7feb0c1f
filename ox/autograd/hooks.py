"""Hooks on a tensor's gradient."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ox.autograd.grad_ready import leaves_with_hooks
from ox.core import views
from ox.core.changes import CHANGES
from ox.core.mode import MODE
from ox.core.node import Handle, Leaf
from ox.core.operator import OPS
from ox.core.tensor import TensorBase
from ox.errors import GradientError


class _Retain:
    """The hook of `Tensor.retain_grad`. Holds the tensor weakly, for the tensor holds the node that holds this."""

    def __init__(self, tensor: TensorBase) -> None:
        self.tensor = weakref.ref(tensor)

    def __call__(self, g: TensorBase) -> None:
        tensor = self.tensor()
        if tensor is not None:
            tensor.grad = g.clone() if tensor.grad is None else OPS["Add"](tensor.grad, g)


def _hooks_of(tensor: TensorBase) -> list[Any]:
    node = tensor.node
    if node is None:
        raise GradientError("a hook needs a tensor that requires a gradient", hint="x.requires_grad_()")
    if node.hooks is None:
        node.hooks = []
    return node.hooks


def register(tensor: TensorBase, hook: Callable[[TensorBase], TensorBase | None]) -> Handle:
    """Call `hook` when the gradient of `tensor` is known. Raises GradientError if it has none."""
    hooks, entry = _hooks_of(tensor), (tensor.port, hook)
    CHANGES.count += 1
    recording = MODE.get().recording
    if recording is not None:
        recording.on_hook(tensor.node)
    # other references to the gradient see the changes of the hooks
    at = next((i for i, (_, other) in enumerate(hooks) if isinstance(other, _Retain)), len(hooks))
    hooks.insert(at, entry)
    return Handle(hooks, entry)


def register_after(tensor: TensorBase, hook: Callable[[TensorBase], None]) -> Handle:
    """Call `hook(tensor)` as soon as a backward has filled its `.grad`, while the rest of it goes on. Raises
    GradientError for what is no leaf."""
    leaf = tensor.node
    if not isinstance(leaf, Leaf):
        raise GradientError(
            "a post-accumulate hook needs a leaf that requires a gradient",
            hint="x.requires_grad_(), or register_hook for a tensor that is no leaf",
        )
    recording = MODE.get().recording
    if recording is not None:
        recording.on_hook(leaf)
    CHANGES.count += 1
    if leaf.after is None:
        leaf.after = []
    leaf.after.append(hook)
    leaves_with_hooks.add(leaf)
    return Handle(leaf.after, hook)


def retain(tensor: TensorBase) -> None:
    """Keep the gradient of a tensor that is no leaf in its `.grad`. Raises GradientError if it has none."""
    _hooks_of(tensor).append((tensor.port, _Retain(tensor)))


def move_retained(tensor: TensorBase, before: Any) -> None:
    """After a write in place: what keeps the gradient of `tensor` leaves the old node and goes to the new one."""
    if before.hooks:
        before.hooks[:] = [e for e in before.hooks if not (isinstance(e[1], _Retain) and e[1].tensor() is tensor)]
    if tensor.node is not None:
        retain(tensor)


views.move_retained.append(move_retained)
