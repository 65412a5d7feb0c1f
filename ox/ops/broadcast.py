"""What gradient rules share: undoing a broadcast, and constants of another tensor's type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ox.ops import operator
from ox.ops.dim import size_tensor
from ox.ops.operator import OPS

if TYPE_CHECKING:
    from ox.tensor import Tensor


def axes_tensor(axes: Sequence[int]) -> Tensor:
    """int64 [n], for the operators that take axes as an input."""
    return operator.as_input(np.array(axes, np.int64))


def sum_to(g: Tensor, shape: Sequence[int]) -> Tensor:
    """Sum a gradient back over the axes along which a value of `shape` was broadcast.

    Leading axes go by rank; an axis goes where the value had size 1 and the gradient has not.
    """
    own = g.shape
    if tuple(own) == tuple(shape):
        return g
    extra = len(own) - len(shape)
    kept = [i + extra for i, size in enumerate(shape) if size == 1 and own[i + extra] != 1]
    if kept:
        g = OPS["ReduceSum"](g, axes_tensor(kept), keepdims=1)
    if extra:
        g = OPS["ReduceSum"](g, axes_tensor(range(extra)), keepdims=0)
    return g


def expand_to(g: Tensor, shape: Sequence[int]) -> Tensor:
    """Broadcast to `shape`, whose sizes may be `ox.Dim`."""
    return OPS["Expand"](g, size_tensor(shape))


def reshape_to(g: Tensor, shape: Sequence[int]) -> Tensor:
    """Reshape to `shape`, whose sizes may be `ox.Dim`; a size of 0 means 0."""
    return OPS["Reshape"](g, size_tensor(shape), allowzero=1)


def zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    """Zeros of a shape whose sizes may be `ox.Dim`, in the type and on the device of `like`."""
    return beside(OPS["ConstantOfShape"](size_tensor(shape), value=np.zeros(1, like.array.dtype)), like)


def beside(made: Tensor, like: Tensor) -> Tensor:
    """A tensor just made from sizes alone, which lie in host memory, brought to the device of `like`."""
    if not isinstance(like.array, np.ndarray) and isinstance(made.array, np.ndarray):
        from ox.devices import cuda

        made.array = cuda.to_device(made.array, like.device)
    return made
