"""How a gradient reaches the `.grad` of a leaf."""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np

from ox.core.mode import MODE
from ox.core.node import AFTER, Leaf
from ox.core.operator import OPS
from ox.core.tensor import TensorBase
from ox.devices import cuda_state

accumulating = Lock()  # threads that run backward into one leaf take turns at its `.grad`


def accumulate(tensor: TensorBase, g: TensorBase, taken: set[int]) -> None:
    before = tensor._grad
    if before is not None:
        if not _in_place(before, g):
            tensor._grad = added(before, g)
        elif MODE.get().recording is not None:
            before.assign(added(before, g), "backward")
        else:
            with np.errstate(all="ignore"), cuda_state.at(before.array):
                before.array += g.array  # as in PyTorch, other references to the gradient see the sum
            before.count_write("backward")
        return
    if g.is_sparse:
        tensor._grad = g
        return
    # an Add hands one gradient to both its inputs, but each leaf must be able to write to its own
    memory = id(owner(g.array))
    # and in row-major order, as PyTorch's is: p.grad.view(-1) is a view of it
    fits = memory not in taken and g.array.flags.c_contiguous and _writable(g.array)
    tensor._grad = g if fits else g.clone()
    taken.add(memory)


def _in_place(before: TensorBase, g: TensorBase) -> bool:
    mode = MODE.get()
    recording = mode.recording
    if mode.grad or (recording is not None and not recording.guarded) or before.is_sparse or g.is_sparse:
        return False
    return before.node is None and _writable(before.array)


def added(a: Any, b: Any) -> Any:
    """The sum of two gradients of one tensor; a sparse one has its own addition."""
    return a + b if a.is_sparse or b.is_sparse else OPS["Add"](a, b)


def run_hooks_of_accumulation(tensor: TensorBase, leaf: Leaf, g: TensorBase) -> None:
    for hook in list(leaf.after or ()):
        hook(tensor)
    for kind, hook in list(leaf.hooks):
        if kind == AFTER:
            hook((), (g,))


def _writable(array: Any) -> bool:
    """Whether each element has its own writable memory; those of an expanded array have not."""
    if isinstance(array, np.ndarray):
        return bool(array.flags.writeable)
    return all(stride or count < 2 for stride, count in zip(array.strides, array.shape, strict=True))


def owner(array: Any) -> Any:
    """The array whose memory this one looks at."""
    while isinstance(array.base, type(array)):
        array = array.base
    return array
