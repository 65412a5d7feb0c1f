"""Matrix products on a GPU by cuBLAS, of halves without conversions and with sums of float32; attention as a kernel
between two products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox.devices.gpu.cublas import KINDS, cublas
from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.rowwise import launch_rows, of_rows
from ox.dtypes import bool_, float16, float64

_softmax_gradient = of_rows("ox_device_softmax_backward")


def _multiplies(first: Any, *others: Any) -> bool:
    dtype = first.dtype
    for each in others:
        if each.dtype != dtype:
            return False
    return dtype in KINDS


def matmul(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """MatMul."""
    a, b = arrays
    if not a.ndim or not b.ndim or a.shape[-1] != b.shape[0 if b.ndim == 1 else -2] or not _multiplies(a, b):
        return None
    return cublas(xp).matmul(a, b)


def gemm(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Gemm."""
    a, b, c = [*arrays, None][:3]
    if a.ndim != 2 or b.ndim != 2 or not _multiplies(a, b, *([] if c is None else [c])):
        return None
    turn_a, turn_b = bool(attributes.get("transA")), bool(attributes.get("transB"))
    if a.shape[0 if turn_a else 1] != b.shape[1 if turn_b else 0]:
        return None
    if c is not None and attributes.get("beta", 1.0) != 1.0:
        return None
    return cublas(xp).matmul(a, b, alpha=attributes.get("alpha", 1.0), added=c, turn_a=turn_a, turn_b=turn_b)


def scaled_attention(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """ScaledAttention: two products, and a kernel for what is between them."""
    q, k, v, bias, allowed, kept = [*arrays, None, None, None][:6]
    if not _multiplies(q, k, v) or q.dtype == float64 or not q.size or not k.size or q.ndim < 2:
        return None
    shape = (*q.shape[:-1], k.shape[-2])
    if q.ndim > 4 or q.shape[:-2] != k.shape[:-2] or (bias is not None and bias.dtype != q.dtype):
        return None
    if (kept is not None and kept.dtype != q.dtype) or (allowed is not None and allowed.dtype != bool_):
        return None
    if any(mask is not None and not _fits(mask, shape) for mask in (bias, allowed)):
        return None
    multiply = cublas(xp).matmul
    scores = multiply(q, k, alpha=attributes.get("scale", 1.0), turn_b=True)
    weights = _masked_softmax(scores, bias, allowed)
    return multiply(weights if kept is None else weights * kept, v), weights


def _masked_softmax(scores: Any, bias: Any, allowed: Any) -> Any:
    made, shape = cupy().empty(scores.shape, scores.dtype), scores.shape
    matrices, height, columns = (1, 1, *shape)[-3:]
    least = np.float32(-1e30 if scores.dtype != float16 else -30000.0)
    launch_rows(
        "ox_device_masked_softmax", "device_rows.cu", scores.dtype, columns, scores.size // columns, scores,
        0 if bias is None else bias, 0 if allowed is None else allowed, made, least, *_steps(bias), *_steps(allowed),
        matrices, height, columns,
    )  # fmt: skip
    return made


def _fits(mask: Any, shape: tuple[int, ...]) -> bool:
    """Whether a mask is broadcast to this shape."""
    missing = len(shape) - mask.ndim
    return missing >= 0 and all(n in (1, m) for n, m in zip(mask.shape, shape[missing:], strict=True))


def _steps(mask: Any) -> Sequence[int]:
    """The elements between the places of a mask along each of four dimensions, to which it is broadcast."""
    if mask is None:
        return (0, 0, 0, 0)
    size = mask.itemsize
    steps = [0 if n == 1 else stride // size for n, stride in zip(mask.shape, mask.strides, strict=True)]
    return [*[0] * (4 - len(steps)), *steps]


def scaled_attention_gradient(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """ScaledAttentionGradient: four products, and a kernel for the softmax."""
    g, q, k, v, _, weights, kept = [*arrays, None][:7]
    if not _multiplies(g, q, k, v, weights) or q.dtype == float64 or not q.size or not k.size:
        return None
    if kept is not None and kept.dtype != q.dtype:
        return None
    multiply, scale = cublas(xp).matmul, attributes.get("scale", 1.0)
    back = multiply(g, v, turn_b=True)
    to_v = multiply(weights if kept is None else weights * kept, g, turn_a=True)
    to_scores = _softmax_gradient(xp, [back if kept is None else back * kept, weights], {})
    return multiply(to_scores, k, alpha=scale), multiply(to_scores, q, alpha=scale, turn_a=True), to_v
