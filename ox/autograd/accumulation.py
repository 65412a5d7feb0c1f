"""How a gradient reaches the `.grad` of a leaf."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.ops.mode import MODE
from ox.ops.node import AFTER, Leaf
from ox.ops.operator import OPS

if TYPE_CHECKING:
    from ox.tensor import Tensor

accumulating = Lock()  # threads that run backward into one leaf take turns at its `.grad`


def accumulate(tensor: Tensor, g: Tensor, taken: set[int]) -> None:
    before = tensor._grad
    if before is not None:
        if _in_place(before, g):
            with np.errstate(all="ignore"):
                before.array += g.array  # as in PyTorch, whoever holds the gradient sees the sum
            before.wrote("backward")
        else:
            tensor._grad = added(before, g)
        return
    if g.is_sparse:
        tensor._grad = g
        return
    # an Add hands one gradient to both its inputs, but each leaf must be able to write to its own
    memory = id(owner(g.array))
    # and in row-major order, as PyTorch's is: p.grad.view(-1) is a view of it
    tensor._grad = g.clone() if memory in taken or not _writable(g.array) else g.contiguous()
    taken.add(memory)


def _in_place(before: Tensor, g: Tensor) -> bool:
    mode = MODE.get()
    if mode.grad or mode.recording is not None or before.is_sparse or g.is_sparse:
        return False
    return before.node is None and _writable(before.array)


def added(a: Any, b: Any) -> Any:
    """Two gradients of one thing; a sparse one knows itself how it adds."""
    return a + b if a.is_sparse or b.is_sparse else OPS["Add"](a, b)


def run_hooks_of_accumulation(tensor: Tensor, leaf: Leaf, g: Tensor) -> None:
    for hook in list(leaf.after or ()):
        hook(tensor)
    for kind, hook in list(leaf.hooks):
        if kind == AFTER:
            hook((), (g,))


def _writable(array: Any) -> bool:
    """Whether each element has memory of its own that may be written; an expanded array's has not."""
    return not isinstance(array, np.ndarray) or array.flags.writeable


def owner(array: Any) -> Any:
    """The array whose memory this one looks at."""
    while isinstance(array.base, type(array)):
        array = array.base
    return array
