"""Element types: NumPy dtypes under PyTorch's names, and the groups that operator schemas speak of."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

DType = np.dtype[Any]

float16: DType = np.dtype(np.float16)
float32: DType = np.dtype(np.float32)
float64: DType = np.dtype(np.float64)
bfloat16: DType = np.dtype(ml_dtypes.bfloat16)
int8: DType = np.dtype(np.int8)
int16: DType = np.dtype(np.int16)
int32: DType = np.dtype(np.int32)
int64: DType = np.dtype(np.int64)
uint8: DType = np.dtype(np.uint8)
uint16: DType = np.dtype(np.uint16)
uint32: DType = np.dtype(np.uint32)
uint64: DType = np.dtype(np.uint64)
bool_: DType = np.dtype(np.bool_)

int4: DType = np.dtype(ml_dtypes.int4)
uint4: DType = np.dtype(ml_dtypes.uint4)
int2: DType = np.dtype(ml_dtypes.int2)
uint2: DType = np.dtype(ml_dtypes.uint2)
float8_e4m3fn: DType = np.dtype(ml_dtypes.float8_e4m3fn)
float8_e4m3fnuz: DType = np.dtype(ml_dtypes.float8_e4m3fnuz)
float8_e5m2: DType = np.dtype(ml_dtypes.float8_e5m2)
float8_e5m2fnuz: DType = np.dtype(ml_dtypes.float8_e5m2fnuz)
float4_e2m1fn: DType = np.dtype(ml_dtypes.float4_e2m1fn)

half, double, long = float16, float64, int64

FLOATS = (float16, float32, float64, bfloat16)
HALF_TYPES = (float16, bfloat16)
SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)
INTEGERS = UNSIGNED + SIGNED
NUMERIC = INTEGERS + FLOATS
ALL = (*NUMERIC, bool_)
# Types of quantized tensors, which operators convert from and to, and do not compute with. An element takes a byte in
# memory, and as many bits as it has in files.
FLOAT8 = (float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz)
PACKED = (int4, uint4, int2, uint2, float4_e2m1fn)
NARROW = (*FLOAT8, *PACKED)

FLOATING = frozenset(FLOATS)


def is_floating(dtype: DType) -> bool:
    """Whether gradients can flow through values of `dtype`."""
    return dtype in FLOATING


_default: DType = float32


def get_default_dtype() -> DType:
    """The type that Python floats become; `torch.get_default_dtype`."""
    return _default


def set_default_dtype(d: DType) -> None:
    """Make Python floats become `d` from now on; `torch.set_default_dtype`.

    Raises:
        DTypeError: no floating type.
    """
    global _default
    chosen = np.dtype(d)
    if chosen not in FLOATING:
        from ox.errors import DTypeError

        raise DTypeError("the default is a floating type", expected="ox.float32 and its like", got=str(chosen))
    _default = chosen


def promote(a: DType, b: DType) -> DType:
    """The type in which two tensors meet, as in PyTorch: floats beat integers, integers bools, wide types narrow."""
    if a == b:
        return a
    fa, fb = is_floating(a), is_floating(b)
    if fa and fb:
        # float16 with bfloat16 meets in float32; NumPy knows no common type for the two
        return float32 if {a, b} == {float16, bfloat16} else (a if a.itemsize > b.itemsize else b)
    if fa or fb:
        return a if fa else b
    both = np.promote_types(a, b)
    return int64 if both == float64 else both


# numbers in onnx.TensorProto.DataType
ONNX_TYPES: dict[DType, int] = {
    float32: 1, uint8: 2, int8: 3, uint16: 4, int16: 5, int32: 6, int64: 7, bool_: 9,
    float16: 10, float64: 11, uint32: 12, uint64: 13, bfloat16: 16,
    float8_e4m3fn: 17, float8_e4m3fnuz: 18, float8_e5m2: 19, float8_e5m2fnuz: 20,
    uint4: 21, int4: 22, float4_e2m1fn: 23, uint2: 25, int2: 26,
}  # fmt: skip
FROM_ONNX: dict[int, DType] = {number: dtype for dtype, number in ONNX_TYPES.items()}


def onnx_type(dtype: DType) -> int:
    """The number of an element type in `onnx.TensorProto.DataType`."""
    return ONNX_TYPES[dtype]
