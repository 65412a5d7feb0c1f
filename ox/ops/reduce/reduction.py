"""Reductions: ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ArgMax ArgMin."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ox.core.broadcast import expand_to, reshape_to
from ox.core.constants import constant
from ox.core.operator import OPS, operator
from ox.core.symbolic import Dim
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, HostInt64, Int64, T
from ox.core.upcast import in_float32
from ox.devices.summation import mean_over, product_over, sum_over
from ox.dtypes import FLOATS, NUMERIC, bool_, int8, int32, int64, onnx_type, uint8, uint32, uint64
from ox.ops.elementwise.arithmetic import Div, Mul, Sub
from ox.ops.elementwise.comparison import Equal, Where

__all__ = ["ArgMax", "ArgMin", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"]

ACCUMULATING = (uint32, uint64, int32, int64, *FLOATS)


def reduced_axes(axes: Any, noop_with_empty_axes: int, rank: int) -> tuple[int, ...]:
    """The axes that a Reduce operator reduces, as non-negative ints."""
    if axes is None or len(axes) == 0:
        return () if noop_with_empty_axes else tuple(range(rank))
    chosen = []
    for a in axes.tolist():
        if not -rank <= a < rank:
            raise IndexError(f"axis {a} of a tensor of {rank} dimensions")
        chosen.append(a + rank if a < 0 else a)
    return tuple(chosen)


@operator("reduced", kind="reduction", T=ACCUMULATING, amp="float32")
@in_float32
def ReduceSum(xp: XP, data: T, axes: HostInt64 = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> T:
    """Sum over axes; over all when none are given. ONNX ReduceSum."""
    chosen = reduced_axes(axes, noop_with_empty_axes, data.ndim)
    return sum_over(xp, data, chosen, keepdims)


def undo_reduction(g: TensorType, shape: Sequence[int], chosen: tuple[int, ...], keepdims: int) -> TensorType:
    """A reduction's cotangent with its reduced axes back as size 1; a single number stays as it is."""
    if keepdims or not chosen or len(chosen) == len(shape):
        return g
    return reshape_to(g, [1 if i in chosen else size for i, size in enumerate(shape)])


@ReduceSum.gradient("data")
def _(
    g: TensorBase, data_shape: tuple[int, ...], axes: TensorBase | None, keepdims: int, noop_with_empty_axes: int
) -> TensorBase:
    chosen = reduced_axes(None if axes is None else axes.array, noop_with_empty_axes, len(data_shape))
    return expand_to(undo_reduction(g, data_shape, chosen, keepdims), data_shape)


@operator("reduced", kind="reduction", T=ACCUMULATING, ignore_fp_warnings=True, amp="float32")
@in_float32
def ReduceMean(xp: XP, data: T, axes: HostInt64 = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> T:
    """Mean over axes, of integers rounded toward zero; over all when none are given. ONNX ReduceMean."""
    chosen = reduced_axes(axes, noop_with_empty_axes, data.ndim)
    dtype = data.dtype
    if dtype.kind not in "iu":
        return mean_over(xp, data, chosen, keepdims)
    count = prod([data.shape[axis] for axis in chosen])
    total = data.sum(axis=chosen, keepdims=bool(keepdims), dtype=dtype)
    # the magnitude divides without a sign to round the wrong way
    return xp.sign(total) * (xp.absolute(total) // dtype.type(count)) if count else total


@ReduceMean.gradient("data")
def _(
    g: TensorBase, data_shape: tuple[int, ...], axes: TensorBase | None, keepdims: int, noop_with_empty_axes: int
) -> TensorBase:
    chosen = reduced_axes(None if axes is None else axes.array, noop_with_empty_axes, len(data_shape))
    count: int = 1
    for axis in chosen:
        count = data_shape[axis] * count
    g = undo_reduction(g, data_shape, chosen, keepdims)
    if isinstance(count, Dim):
        g = Div(g, OPS["Cast"](count.tensor, to=onnx_type(g.dtype)))
    elif count != 1:
        g = Div(g, constant(count, g))
    return expand_to(g, data_shape)


@operator("reduced", kind="reduction", T=ACCUMULATING, ignore_fp_warnings=True, amp="float32")
@in_float32
def ReduceProd(xp: XP, data: T, axes: HostInt64 = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> T:
    """Product over axes; over all when none are given. ONNX ReduceProd."""
    chosen = reduced_axes(axes, noop_with_empty_axes, data.ndim)
    return product_over(xp, data, chosen, keepdims)


@ReduceProd.gradient("data")
def _(g: TensorBase, data: TensorBase, axes: TensorBase | None, keepdims: int, noop_with_empty_axes: int) -> TensorBase:
    # With each zero replaced by 1, the product without an element is a quotient. How many zeros there are says whether
    # it stands; `held` is their sum, which is 0 but carries their derivative to second order.
    def total(op: Any, values: TensorBase) -> TensorBase:
        return op(values, axes, keepdims=1, noop_with_empty_axes=noop_with_empty_axes)

    chosen = reduced_axes(None if axes is None else axes.array, noop_with_empty_axes, len(data.shape))
    zero, one = constant(0, g), constant(1, g)
    none = Equal(data, zero)
    filled = Where(none, one, data)
    count = total(ReduceSum, OPS["Cast"](none, to=onnx_type(g.dtype)))
    held = total(ReduceSum, Where(none, data, zero))
    product = Mul(undo_reduction(g, data.shape, chosen, keepdims), total(ReduceProd, filled))
    one_zero = Equal(count, one)
    elsewhere = Where(Equal(count, zero), one, Where(one_zero, held, zero))
    there = Where(one_zero, one, Where(Equal(count, constant(2, g)), Sub(held, data), zero))
    return Mul(product, Where(none, there, Div(elsewhere, filled)))


def _extreme(xp: XP, data: Any, axes: Any, keepdims: int, noop_with_empty_axes: int, least: bool) -> Any:
    chosen = reduced_axes(axes, noop_with_empty_axes, data.ndim)
    if data.size:
        return (data.min if least else data.max)(axis=chosen, keepdims=bool(keepdims))
    dtype = data.dtype
    if dtype == bool_:
        of_none: Any = least
    elif dtype.kind in "iu":
        of_none = np.iinfo(dtype).max if least else np.iinfo(dtype).min
    else:
        of_none = np.inf if least else -np.inf
    sizes = [1 if i in chosen else n for i, n in enumerate(data.shape) if keepdims or i not in chosen]
    return xp.full(sizes, of_none, dtype)


@operator("reduced", kind="reduction", T=(*ACCUMULATING, uint8, int8, bool_), amp="widest")
def ReduceMax(xp: XP, data: T, axes: HostInt64 = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> T:
    """Greatest value over axes; over all when none are given; the type's lowest where there are no values.

    The gradient is shared evenly among the values that are greatest, as in `torch.amax`. ONNX ReduceMax.
    """
    return _extreme(xp, data, axes, keepdims, noop_with_empty_axes, least=False)


@operator("reduced", kind="reduction", T=(*ACCUMULATING, uint8, int8, bool_), amp="widest")
def ReduceMin(xp: XP, data: T, axes: HostInt64 = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> T:
    """Smallest value over axes; over all when none are given; the type's greatest where there are no values.

    The gradient is shared evenly among the values that are smallest, as in `torch.amin`. ONNX ReduceMin.
    """
    return _extreme(xp, data, axes, keepdims, noop_with_empty_axes, least=True)


@ReduceMax.gradient("data")
@ReduceMin.gradient("data")
def _(
    g: TensorBase,
    data: TensorBase,
    reduced: TensorBase,
    axes: TensorBase | None,
    keepdims: int,
    noop_with_empty_axes: int,
) -> TensorBase:
    shape = data.shape
    chosen = reduced_axes(None if axes is None else axes.array, noop_with_empty_axes, len(shape))
    extreme = undo_reduction(reduced, shape, chosen, keepdims)
    greatest = Equal(data, extreme)
    if data.array.dtype in FLOATS:
        greatest = OPS["Or"](greatest, OPS["IsNaN"](data))  # NaN is the extreme of all among which it is
    mask = OPS["Cast"](greatest, to=onnx_type(g.dtype))
    count = ReduceSum(mask, axes, keepdims=1, noop_with_empty_axes=noop_with_empty_axes)
    return Mul(Div(undo_reduction(g, shape, chosen, keepdims), count), mask)


def _position(xp: XP, data: Any, find: Any, axis: int, keepdims: int, last: int) -> Any:
    found = data.shape[axis] - 1 - find(xp.flip(data, axis), axis=axis) if last else find(data, axis=axis)
    return (xp.expand_dims(found, axis) if keepdims else found).astype(int64, copy=False)


@operator("reduced", kind="reduction", T=NUMERIC, amp="widest", batching="arg_reduction")
def ArgMax(xp: XP, data: T, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Int64:
    """Position of the greatest value along an axis: the first of equals, or the last. ONNX ArgMax."""
    return _position(xp, data, xp.argmax, axis, keepdims, select_last_index)


@operator("reduced", kind="reduction", T=NUMERIC, amp="widest", batching="arg_reduction")
def ArgMin(xp: XP, data: T, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Int64:
    """Position of the smallest value along an axis: the first of equals, or the last. ONNX ArgMin."""
    return _position(xp, data, xp.argmin, axis, keepdims, select_last_index)
