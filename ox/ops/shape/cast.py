"""Values and sizes: Identity Cast CastLike BitCast Shape Size ConstantOfShape Range."""

from typing import Any

import ml_dtypes
import numpy as np

from ox.core.operator import operator
from ox.core.tensor import TensorBase
from ox.core.types import T1, T2, XP, Array, HostInt64, HostT, T, V
from ox.dtypes import (
    ALL,
    FLOAT8,
    FROM_ONNX,
    NARROW,
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    int16,
    int32,
    int64,
    onnx_type,
)
from ox.errors import ArgumentError

__all__ = ["BitCast", "Cast", "CastLike", "Constant", "ConstantOfShape", "Identity", "Range", "Shape", "Size"]

STORED = (*ALL, *NARROW)


@operator("output", kind="identity", view=True, V=ALL, amp="keep")
def Identity(xp: XP, input: V) -> V:
    """The input itself. ONNX Identity."""
    return input


@Identity.gradient("input")
def _(g: TensorBase) -> TensorBase:
    return g


@operator("output", kind="conversion", view=True, ignore_fp_warnings=True, T1=STORED, T2=STORED, amp="keep")
def Cast(xp: XP, input: T1, *, to: int, saturate: int = 1, round_mode: str = "up") -> T2:
    """Another element type, by its number in TensorProto. A float becomes an integer towards zero, and a bool by being
    unequal to zero. With `saturate`, what an 8-bit float cannot hold becomes its largest number, else NaN or infinity;
    `round_mode` speaks only of a type that ox does not have. ONNX Cast."""
    try:
        dtype = FROM_ONNX[to]
    except KeyError:
        raise ArgumentError(f"Cast to TensorProto type {to}, which ox does not compute with") from None
    return narrowed(xp, input, dtype) if saturate and dtype in FLOAT8 else input.astype(dtype, copy=False)


def narrowed(xp: XP, array: Array, dtype: DType) -> Array:
    """Numbers in an 8-bit float; those beyond its ends, also infinities, are its ends."""
    largest = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    return xp.clip(array.astype(float32), -largest, largest).astype(dtype)


@Cast.gradient("input")
def _(g: TensorBase, input_dtype: np.dtype[Any]) -> TensorBase:
    return g if g.dtype == input_dtype else Cast(g, to=onnx_type(input_dtype))


@operator(
    "output",
    kind="conversion",
    view=True,
    ignore_fp_warnings=True,
    T1=STORED,
    T2=STORED,
    amp="keep",
    batching="each",
    nondifferentiable="target_type",
)
def CastLike(xp: XP, input: T1, target_type: T2, *, saturate: int = 1, round_mode: str = "up") -> T2:
    """The element type of another tensor; as Cast. ONNX CastLike."""
    dtype = target_type.dtype
    return narrowed(xp, input, dtype) if saturate and dtype in FLOAT8 else input.astype(dtype, copy=False)


@CastLike.gradient("input")
def _(g: TensorBase, input_dtype: np.dtype[Any]) -> TensorBase:
    return g if g.dtype == input_dtype else Cast(g, to=onnx_type(input_dtype))


@operator("output", kind="pointwise", T1=ALL, T2=ALL, amp="keep", batching="each")
def BitCast(xp: XP, input: T1, *, to: int) -> T2:
    """The same bits as another element type of the same width, by its number in TensorProto. ONNX BitCast."""
    dtype = FROM_ONNX.get(to)
    if dtype is None or dtype.itemsize != input.dtype.itemsize:
        raise ArgumentError(
            f"BitCast of {input.dtype} to TensorProto type {to}", expected=f"a type of {input.dtype.itemsize} bytes"
        )
    return input.copy().view(dtype)


@operator("shape", kind="size", T=ALL, amp="widest")
def Shape(xp: XP, data: T, *, start: int = 0, end: int | None = None) -> HostInt64:
    """The sizes from axis `start` to before `end`, int64, in host memory on every device. ONNX Shape."""
    return np.array(data.shape[start:end], np.int64)


@operator("size", kind="size", T=ALL, amp="widest")
def Size(xp: XP, data: T) -> HostInt64:
    """The number of elements, int64 [], in host memory on every device. ONNX Size."""
    return np.array(data.size, np.int64)


@operator("output", kind="creation", T=ALL, batching="each")
def Constant(
    xp: XP,
    *,
    sparse_value: Any = None,
    value: Any = None,
    value_float: float | None = None,
    value_floats: Any = None,
    value_int: int | None = None,
    value_ints: Any = None,
    value_string: Any = None,
    value_strings: Any = None,
) -> T:
    """The one value that is given; of files, where a recording has constants. ONNX Constant."""
    whole = value if value is not None else sparse_value
    if whole is not None:
        return np.array(whole)
    if value_string is not None or value_strings is not None:
        raise ArgumentError("ox does not compute with strings")
    for given, dtype in (
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
    ):
        if given is not None:
            return np.asarray(given, dtype)
    raise ArgumentError("Constant needs a value")


@operator("output", kind="creation", sized_by="input", T2=ALL, batching="shared")
def ConstantOfShape(xp: XP, input: HostInt64, *, value: Any = None) -> T2:
    """A tensor of the given shape filled with the one element of `value`, by default float32 0.
    ONNX ConstantOfShape."""
    sizes = input.tolist()
    if value is None:
        return np.zeros(sizes, np.float32)
    fill = value.reshape(())
    # zeros come as untouched pages, which is far cheaper than writing them
    return np.full(sizes, fill, fill.dtype) if fill != 0 else np.zeros(sizes, fill.dtype)


@operator(
    "output",
    kind="creation",
    sized_by="start limit delta",
    T=(float32, float64, int16, int32, int64, float16, bfloat16),
    batching="shared",
    nondifferentiable="limit",
)
def Range(xp: XP, start: HostT, limit: HostT, delta: HostT, *, stash_type: int = 1) -> T:
    """start, start + delta, ... before limit; half floats are computed in float32. ONNX Range."""
    dtype = start.dtype
    wide = np.dtype(np.float32) if dtype in (float16, bfloat16) and stash_type == 1 else dtype
    first, last, step = (x.reshape(()).astype(wide) for x in (start, limit, delta))
    count = max(0, int(np.ceil((last - first) / step)))
    made = np.arange(count, dtype=wide) if wide.kind in "iu" else np.arange(count).astype(wide)
    if step != 1:
        made *= step
    if first != 0:
        made += first
    return made.astype(dtype, copy=False)
