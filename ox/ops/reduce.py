"""Reductions: ReduceSum ReduceMean ReduceMax ArgMax."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ox.dtypes import FLOATS, NUMERIC, int32, int64, uint32, uint64
from ox.ops.broadcast import expand_to, reshape_to
from ox.ops.operator import operator
from ox.ops.types import XP, Array, HostInt64, T

if TYPE_CHECKING:
    from ox.tensor import Tensor

ACCUMULATING = (uint32, uint64, int32, int64, *FLOATS)


def reduced_axes(axes: Any, noop_with_empty_axes: int, rank: int) -> tuple[int, ...]:
    """The axes that a Reduce operator reduces, as non-negative ints."""
    if axes is None or len(axes) == 0:
        return () if noop_with_empty_axes else tuple(range(rank))
    return tuple(int(a) % rank for a in axes)


@operator("reduced", T=ACCUMULATING)
def ReduceSum(xp: XP, data: T, axes: HostInt64 = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> T:
    """Sum over axes; over all when none are given. ONNX ReduceSum."""
    chosen = reduced_axes(axes, noop_with_empty_axes, data.ndim)
    return xp.sum(data, axis=chosen, keepdims=bool(keepdims), dtype=data.dtype)


def undo_reduction(g: "Tensor", shape: Sequence[int], axes: Any, keepdims: int, noop: int) -> "Tensor":
    """A reduction's cotangent with its reduced axes back as size 1, then broadcast to the input's shape."""
    chosen = reduced_axes(None if axes is None else axes.data, noop, len(shape))
    if not keepdims and chosen:
        g = reshape_to(g, [1 if i in chosen else size for i, size in enumerate(shape)])
    return expand_to(g, shape)


@ReduceSum.gradient("data")
def _(
    g: "Tensor", data_shape: tuple[int, ...], axes: "Tensor | None", keepdims: int, noop_with_empty_axes: int
) -> "Tensor":
    return undo_reduction(g, data_shape, axes, keepdims, noop_with_empty_axes)
