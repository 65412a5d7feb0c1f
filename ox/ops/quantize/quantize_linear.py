"""Between floats and small integers: QuantizeLinear DequantizeLinear DynamicQuantizeLinear."""

from typing import Any

import ml_dtypes
import numpy as np

from ox.core.operator import operator
from ox.core.types import T1, T2, T3, XP, Array, Float32
from ox.dtypes import (
    FLOAT8,
    FROM_ONNX,
    NARROW,
    bfloat16,
    float4_e2m1fn,
    float16,
    float32,
    int8,
    int16,
    int32,
    uint8,
    uint16,
)
from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.ops.nn.normalization import widely
from ox.ops.shape.cast import narrowed

__all__ = ["DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"]

SMALL = (int8, uint8, int16, uint16, *NARROW)
SMALL_FLOATS = (*FLOAT8, float4_e2m1fn)
HALF_OR_SINGLE = (float32, float16, bfloat16)


@operator(
    "y",
    kind="quantization",
    T1=(*HALF_OR_SINGLE, int32),
    T2=(*HALF_OR_SINGLE, int32),
    T3=SMALL,
    ignore_fp_warnings=True,
    amp="keep",
    batching="each",
)
def QuantizeLinear(
    xp: XP,
    x: T1,
    y_scale: T2,
    y_zero_point: T3 = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> T3:
    """round(x / y_scale) + y_zero_point, to the nearest (even) integer and cut to what the type holds; small floats are
    rounded to their own numbers, and have no zero point but 0.

    The type is that of the zero point, else `output_dtype`, else uint8. A scale is one number, one for each place
    along `axis`, or with `block_size` one for each block of so many places. ONNX QuantizeLinear.
    """
    kind = _quantized(y_zero_point, output_dtype)
    scale = _spread(xp, y_scale, x, axis, block_size)
    ratio = _at(x, precision) / _at(scale, precision)
    if kind in SMALL_FLOATS:  # whose zero point is 0
        return narrowed(xp, ratio, kind) if saturate and kind in FLOAT8 else ratio.astype(kind)
    whole = xp.rint(ratio)
    if y_zero_point is not None:
        whole = whole + _spread(xp, y_zero_point, x, axis, block_size).astype(np.int32)
    return cut(xp, whole, kind)


def _at(array: Array, precision: int) -> Array:
    return widely(array) if not precision else array.astype(FROM_ONNX[precision])


def _quantized(zero_point: Any, output_dtype: int) -> Any:
    kind = FROM_ONNX.get(output_dtype)
    if output_dtype and kind not in SMALL:
        raise DTypeError(f"QuantizeLinear to TensorProto type {output_dtype}", expected=" or ".join(map(str, SMALL)))
    if zero_point is not None and kind is not None and zero_point.dtype != kind:
        raise DTypeError("output_dtype is not that of y_zero_point", expected=str(zero_point.dtype), got=str(kind))
    return zero_point.dtype if zero_point is not None else kind or uint8


def cut(xp: XP, whole: Array, kind: Any) -> Array:
    """Whole numbers in an integer type; those beyond its ends are its ends, and NaN is 0."""
    info = ml_dtypes.iinfo(kind)  # type: ignore[no-untyped-call]
    low, high = int(info.min), int(info.max)
    return xp.nan_to_num(xp.clip(whole, low, high)).astype(kind)


def _spread(xp: XP, given: Array, x: Array, axis: int, block_size: int) -> Array:
    """One number for each element of x, or what broadcasts to that."""
    if given.ndim == 0 or given.size == 1:
        return given.reshape(())
    if block_size:
        place = axis % x.ndim
        if given.ndim != x.ndim or -(-x.shape[place] // block_size) != given.shape[place]:
            raise ShapeError(
                f"a scale of blocks of {block_size} does not fit", got=f"{list(given.shape)} for {list(x.shape)}"
            )
        return xp.repeat(given, block_size, axis=place)[
            tuple(slice(x.shape[i]) if i == place else slice(None) for i in range(x.ndim))
        ]
    if given.ndim != 1 or given.shape[0] != x.shape[axis]:
        raise ShapeError(f"a scale along axis {axis} does not fit", got=f"{list(given.shape)} for {list(x.shape)}")
    shape = [1] * x.ndim
    shape[axis] = -1
    return given.reshape(shape)


@operator(
    "y",
    kind="quantization",
    T1=(*SMALL, int32),
    T2=HALF_OR_SINGLE,
    T3=HALF_OR_SINGLE,
    amp="keep",
    batching="each",
)
def DequantizeLinear(
    xp: XP,
    x: T1,
    x_scale: T2,
    x_zero_point: T1 = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> T3:
    """(x - x_zero_point) · x_scale, in the type of the scale or `output_dtype`; scales as for QuantizeLinear.
    ONNX DequantizeLinear."""
    if output_dtype and FROM_ONNX.get(output_dtype) not in HALF_OR_SINGLE:
        raise ArgumentError(f"DequantizeLinear to TensorProto type {output_dtype}", expected="a float of 16 or 32 bits")
    if x.dtype in SMALL_FLOATS:
        y = x.astype(float32) * widely(_spread(xp, x_scale, x, axis, block_size))
        return y.astype(FROM_ONNX[output_dtype] if output_dtype else x_scale.dtype, copy=False)
    wide = x.astype(np.int64)
    if x_zero_point is not None:
        wide = wide - _spread(xp, x_zero_point, x, axis, block_size).astype(np.int64)
    y = wide.astype(float32) * widely(_spread(xp, x_scale, x, axis, block_size))
    return y.astype(FROM_ONNX[output_dtype] if output_dtype else x_scale.dtype, copy=False)


@operator("y y_scale y_zero_point", kind="quantization", T1=(float32,), T2=(uint8,), amp="keep", batching="each")
def DynamicQuantizeLinear(xp: XP, x: T1) -> tuple[T2, Float32, T2]:
    """x in 256 steps from its smallest value (or 0) to its largest (or 0), with the scale and the zero point.
    ONNX DynamicQuantizeLinear."""
    none = xp.zeros((), float32)
    low, high = (xp.minimum(x.min(), none), xp.maximum(x.max(), none)) if x.size else (none, none)
    scale = xp.where(high == low, float32.type(1), high - low) / float32.type(255)
    zero = xp.rint(xp.clip(-low / scale, 0, 255))
    y = cut(xp, xp.rint(x / scale) + zero, uint8)
    return y, xp.asarray(scale), xp.asarray(zero).astype(uint8)
