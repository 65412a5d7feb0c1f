"""Products of small integers: MatMulInteger ConvInteger QLinearMatMul QLinearConv.

Computed in float64, which holds every sum of such products exactly, and where NumPy has fast products.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from ox.core.operator import operator
from ox.core.types import T1, T2, T3, XP, Array, Float32
from ox.dtypes import bfloat16, float16, float32, float64, int8, int32, uint8
from ox.ops.nn.conv import Conv
from ox.ops.nn.normalization import widely
from ox.ops.quantize.quantize_linear import cut

__all__ = ["ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"]

BYTES = (int8, uint8)
TS = Annotated[Any, "TS"]
T4 = Annotated[Any, "T4"]
Ints = Sequence[int]


def _shifted(x: Array, zero_point: Any, axis: int | None = None) -> Array:
    """x - zero_point in float64, a zero point of several numbers is along `axis`."""
    wide = x.astype(float64)
    if zero_point is None:
        return wide
    zero = zero_point.astype(float64)
    if zero.size == 1:
        return wide - zero.reshape(())
    if zero.ndim == 1 and axis is not None:
        shape = [1] * x.ndim
        shape[axis] = -1
        zero = zero.reshape(shape)
    return wide - zero


@operator("Y", kind="integer_product", T1=BYTES, T2=BYTES, T3=(int32,), batching="each")
def MatMulInteger(xp: XP, A: T1, B: T2, a_zero_point: T1 = None, b_zero_point: T2 = None) -> T3:
    """(A - a_zero_point) · (B - b_zero_point); zero points are one number, or one a row of A and a column of B.
    ONNX MatMulInteger."""
    a, b = _shifted(A, a_zero_point, A.ndim - 2 if A.ndim > 1 else 0), _shifted(B, b_zero_point, B.ndim - 1)
    return xp.asarray(a @ b).astype(int32)


@operator(
    "y",
    kind="integer_product",
    TS=(float32, float16, bfloat16),
    T1=BYTES,
    T2=BYTES,
    T3=BYTES,
    ignore_fp_warnings=True,
    amp="keep",
    batching="each",
)
def QLinearMatMul(
    xp: XP,
    a: T1,
    a_scale: TS,
    a_zero_point: T1,
    b: T2,
    b_scale: TS,
    b_zero_point: T2,
    y_scale: TS,
    y_zero_point: T3,
) -> T3:
    """The product of two quantized matrices, quantized. ONNX QLinearMatMul."""
    row, column = a.ndim - 2 if a.ndim > 1 else 0, b.ndim - 1
    product = xp.asarray(_shifted(a, a_zero_point, row) @ _shifted(b, b_zero_point, column))
    rows, columns = _along(a_scale, a.ndim - 2, a.ndim), _along(b_scale, b.ndim - 1, b.ndim)
    return _requantized(xp, product, rows * columns / widely(y_scale), y_zero_point)


def _requantized(xp: XP, sums: Array, steps: Array, zero: Array) -> Array:
    """Sums in steps of the result. In float32 and with the zero point added last, as ONNX Runtime does it: what lies
    halfway between two steps goes to the even one, and float64 would find other halves."""
    whole = xp.rint(sums.astype(float32) * steps.astype(float32))
    return cut(xp, whole + zero.astype(float32), zero.dtype)


def _along(scale: Array, axis: int, rank: int) -> Array:
    wide = widely(scale)
    if wide.size == 1:
        return wide.reshape(())
    shape = [1] * rank
    shape[axis] = -1
    return wide.reshape(shape) if wide.ndim == 1 else wide


def _convolved(xp: XP, x: Array, w: Array, x_zero: Any, w_zero: Any, **attributes: Any) -> Array:
    return Conv.kernel(xp, _shifted(x, x_zero), _shifted(w, w_zero, 0), **attributes)


@operator("y", kind="integer_product", T1=BYTES, T2=BYTES, T3=(int32,), batching="each")
def ConvInteger(
    xp: XP,
    x: T1,
    w: T2,
    x_zero_point: T1 = None,
    w_zero_point: T2 = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> T3:
    """Conv of x - x_zero_point with w - w_zero_point, which is one number or one an output channel.
    ONNX ConvInteger."""
    y = _convolved(
        xp, x, w, x_zero_point, w_zero_point, auto_pad=auto_pad, dilations=dilations, group=group,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return y.astype(int32)


@operator(
    "y",
    kind="integer_product",
    T1=BYTES,
    T2=BYTES,
    T3=BYTES,
    T4=(int32,),
    ignore_fp_warnings=True,
    amp="widest",
    batching="each",
)
def QLinearConv(
    xp: XP,
    x: T1,
    x_scale: Float32,
    x_zero_point: T1,
    w: T2,
    w_scale: Float32,
    w_zero_point: T2,
    y_scale: Float32,
    y_zero_point: T3,
    B: T4 = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> T3:
    """The convolution of quantized values, quantized; w_scale and w_zero_point are one number or one an output
    channel, B counts in steps of x_scale·w_scale. ONNX QLinearConv."""
    y = _convolved(
        xp, x, w, x_zero_point, w_zero_point, auto_pad=auto_pad, dilations=dilations, group=group,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    column = (-1, *[1] * (y.ndim - 2))
    if B is not None:
        y = y + B.astype(float64).reshape(column)
    steps = x_scale.reshape(()) * w_scale.reshape(column) / y_scale.reshape(())
    return _requantized(xp, y, steps, y_zero_point.reshape(()))
