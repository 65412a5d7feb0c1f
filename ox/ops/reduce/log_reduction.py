"""Reductions of squares, sizes and exponentials: ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp."""

from ox.core.broadcast import expand_to
from ox.core.constants import constant
from ox.core.operator import operator
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, HostInt64, T
from ox.core.upcast import in_float32
from ox.devices.summation import sum_over
from ox.dtypes import FLOATS, float64
from ox.ops.elementwise.arithmetic import Div, Exp, Mul, Neg, Sign, Sub
from ox.ops.elementwise.comparison import Equal, Where
from ox.ops.reduce.reduction import ACCUMULATING, reduced_axes, undo_reduction

__all__ = ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"]


def _back(
    g: TensorType, shape: tuple[int, ...], axes: TensorBase | None, keepdims: int, noop_with_empty_axes: int
) -> TensorType:
    """What is of the reduced shape, with the reduced axes back as size 1."""
    chosen = reduced_axes(None if axes is None else axes.array, noop_with_empty_axes, len(shape))
    return undo_reduction(g, shape, chosen, keepdims)


@operator("reduced", kind="reduction", T=ACCUMULATING, amp="float32")
@in_float32
def ReduceL1(xp: XP, data: T, axes: HostInt64 = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> T:
    """Sum of absolute values over axes; over all when none are given. ONNX ReduceL1."""
    chosen = reduced_axes(axes, noop_with_empty_axes, data.ndim)
    return sum_over(xp, xp.absolute(data), chosen, keepdims)


@ReduceL1.gradient("data")
def _(g: TensorBase, data: TensorBase, axes: TensorBase | None, keepdims: int, noop_with_empty_axes: int) -> TensorBase:
    return Mul(_back(g, data.shape, axes, keepdims, noop_with_empty_axes), Sign(data))


@operator("reduced", kind="reduction", T=ACCUMULATING, ignore_fp_warnings=True, amp="float32")
@in_float32
def ReduceL2(xp: XP, data: T, axes: HostInt64 = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> T:
    """Square root of the sum of squares over axes; its gradient where that is 0 is 0. ONNX ReduceL2."""
    chosen = reduced_axes(axes, noop_with_empty_axes, data.ndim)
    wide = data if data.dtype.kind == "f" else data.astype(float64)
    root = xp.sqrt(sum_over(xp, xp.multiply(wide, wide), chosen, keepdims))
    return root.astype(data.dtype, copy=False)


@ReduceL2.gradient("data")
def _(
    g: TensorBase,
    data: TensorBase,
    reduced: TensorBase,
    axes: TensorBase | None,
    keepdims: int,
    noop_with_empty_axes: int,
) -> TensorBase:
    slope = Div(g, Where(Equal(reduced, constant(0, g)), constant(1, g), reduced))
    return Mul(_back(slope, data.shape, axes, keepdims, noop_with_empty_axes), data)


@operator("reduced", kind="reduction", T=ACCUMULATING, amp="float32")
@in_float32
def ReduceSumSquare(xp: XP, data: T, axes: HostInt64 = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> T:
    """Sum of squares over axes; over all when none are given. ONNX ReduceSumSquare."""
    chosen = reduced_axes(axes, noop_with_empty_axes, data.ndim)
    return sum_over(xp, xp.multiply(data, data), chosen, keepdims)


@ReduceSumSquare.gradient("data")
def _(g: TensorBase, data: TensorBase, axes: TensorBase | None, keepdims: int, noop_with_empty_axes: int) -> TensorBase:
    return Mul(_back(Mul(g, constant(2, g)), data.shape, axes, keepdims, noop_with_empty_axes), data)


@operator("reduced", kind="reduction", T=FLOATS, ignore_fp_warnings=True, amp="float32")
@in_float32
def ReduceLogSum(xp: XP, data: T, axes: HostInt64 = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> T:
    """Logarithm of the sum over axes; over all when none are given. ONNX ReduceLogSum."""
    chosen = reduced_axes(axes, noop_with_empty_axes, data.ndim)
    return xp.log(sum_over(xp, data, chosen, keepdims))


@ReduceLogSum.gradient("data")
def _(
    g: TensorBase,
    reduced: TensorBase,
    data_shape: tuple[int, ...],
    axes: TensorBase | None,
    keepdims: int,
    noop_with_empty_axes: int,
) -> TensorBase:
    slope = Mul(g, Exp(Neg(reduced)))
    return expand_to(_back(slope, data_shape, axes, keepdims, noop_with_empty_axes), data_shape)


@operator("reduced", kind="reduction", T=FLOATS, ignore_fp_warnings=True, amp="float32")
@in_float32
def ReduceLogSumExp(xp: XP, data: T, axes: HostInt64 = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> T:
    """Logarithm of the sum of exponentials over axes, without overflow; over all when none are given.
    ONNX ReduceLogSumExp."""
    chosen = reduced_axes(axes, noop_with_empty_axes, data.ndim)
    if not data.size:
        sizes = [1 if i in chosen else n for i, n in enumerate(data.shape) if keepdims or i not in chosen]
        return xp.full(sizes, -float("inf"), data.dtype)
    greatest = data.max(axis=chosen, keepdims=True)
    greatest = xp.where(xp.isfinite(greatest), greatest, data.dtype.type(0))
    y = xp.log(sum_over(xp, xp.exp(data - greatest), chosen, True)) + greatest
    return y if keepdims else y.squeeze(chosen)


@ReduceLogSumExp.gradient("data")
def _(
    g: TensorBase,
    data: TensorBase,
    reduced: TensorBase,
    axes: TensorBase | None,
    keepdims: int,
    noop_with_empty_axes: int,
) -> TensorBase:
    def back(x: TensorType) -> TensorType:
        return _back(x, data.shape, axes, keepdims, noop_with_empty_axes)

    return Mul(back(g), Exp(Sub(data, back(reduced))))
