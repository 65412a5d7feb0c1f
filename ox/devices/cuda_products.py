"""Matrix products on a GPU by cuBLAS, of halves without conversions and with sums of float32; attention as a kernel
between two products."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.devices.cublas import KINDS, cublas
from ox.devices.cuda import cupy
from ox.devices.cuda_kernels import kernel
from ox.devices.cuda_rows import launch, of_rows
from ox.dtypes import bool_, float16, float64


def _multiplies(*arrays: Any) -> bool:
    return str(arrays[0].dtype) in KINDS and all(a.dtype == arrays[0].dtype for a in arrays)


def matmul(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """MatMul."""
    a, b = arrays
    if not a.ndim or not b.ndim or a.shape[-1] != b.shape[0 if b.ndim == 1 else -2] or not _multiplies(a, b):
        return None
    if a.ndim > 2 and b.ndim == 2 and a.flags.c_contiguous and a.size:  # one product of all rows
        return cublas(xp).matmul(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[1])
    return cublas(xp).matmul(a, b)


def gemm(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Gemm."""
    a, b, c = [*arrays, None][:3]
    if a.ndim != 2 or b.ndim != 2 or not _multiplies(a, b, *([] if c is None else [c])):
        return None
    a, b = a.T if attributes.get("transA") else a, b.T if attributes.get("transB") else b
    if a.shape[1] != b.shape[0] or (c is not None and attributes.get("beta", 1.0) != 1.0):
        return None
    return cublas(xp).matmul(a, b, alpha=attributes.get("alpha", 1.0), added=c)


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
    scores = cublas(xp).matmul(q, k.swapaxes(-1, -2), alpha=attributes.get("scale", 1.0))
    weights = _masked_softmax(scores, bias, allowed, shape)
    return cublas(xp).matmul(weights if kept is None else weights * kept, v), weights


def _masked_softmax(scores: Any, bias: Any, allowed: Any, shape: tuple[int, ...]) -> Any:
    made, columns = cupy().empty(shape, scores.dtype), shape[-1]
    size = (1,) * (4 - len(shape)) + shape
    steps: list[int] = []
    for mask in (bias, allowed):
        whole = None if mask is None else cupy().broadcast_to(mask, size)
        strides = [0] * 4 if whole is None else [stride // whole.itemsize for stride in whole.strides]
        steps += strides
    least = np.float32(-1e30 if scores.dtype != float16 else -30000.0)
    launch(
        kernel("ox_device_masked_softmax", "device_rows.cu", str(scores.dtype)), scores.size // columns, scores,
        0 if bias is None else bias, 0 if allowed is None else allowed, made, least, *steps, size[1], size[2], columns,
    )  # fmt: skip
    return made


def scaled_attention_gradient(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """ScaledAttentionGradient: four products, and a kernel for the softmax."""
    g, q, k, v, _, weights, kept = [*arrays, None][:7]
    if not _multiplies(g, q, k, v, weights) or q.dtype == float64 or not q.size or not k.size:
        return None
    if kept is not None and kept.dtype != q.dtype:
        return None
    multiply, scale = cublas(xp).matmul, attributes.get("scale", 1.0)
    back = multiply(g, v.swapaxes(-1, -2))
    to_v = multiply((weights if kept is None else weights * kept).swapaxes(-1, -2), g)
    to_scores = of_rows("ox_device_softmax_backward")(xp, [back if kept is None else back * kept, weights], {})
    to_q = multiply(to_scores, k, alpha=scale)
    return to_q, multiply(to_scores.swapaxes(-1, -2), q, alpha=scale), to_v
