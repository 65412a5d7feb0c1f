"""What gradient rules share: undoing a broadcast, and constants of another tensor's type."""

from __future__ import annotations

from collections.abc import Sequence

from ox.core.constants import axes_tensor
from ox.core.operator import OPS
from ox.core.symbolic import size_tensor
from ox.core.tensor import TensorType


def sum_to(g: TensorType, shape: Sequence[int]) -> TensorType:
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


def expand_to(g: TensorType, shape: Sequence[int]) -> TensorType:
    """Broadcast to `shape`, whose sizes may be `ox.Dim`."""
    return OPS["Expand"](g, size_tensor(shape))


def reshape_to(g: TensorType, shape: Sequence[int]) -> TensorType:
    """Reshape to `shape`, whose sizes may be `ox.Dim`; a size of 0 means 0."""
    return OPS["Reshape"](g, size_tensor(shape), allowzero=1)
