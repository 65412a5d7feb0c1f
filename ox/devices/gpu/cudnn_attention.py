"""Attention by cuDNN, of float16 and bfloat16, without masks, biases and dropout. Each function gives None for what
cuDNN does not do."""

from __future__ import annotations

from typing import Any

from ox.devices.gpu import cudnn, cudnn_settings
from ox.devices.gpu.cudnn_graphs import Attention, Layout, row_major
from ox.devices.gpu.cupy_device import cupy
from ox.dtypes import HALF_TYPES, float32


def _readable(x: Any) -> Any:
    """The array, or a copy that cuDNN can read: rows without gaps, and each of them aligned."""
    steps = x.strides
    if steps[-1] == x.itemsize and not any(step % cudnn.ALIGNED for step in steps[:-1]):
        return cudnn.aligned(x)
    return cupy().ascontiguousarray(x)


def _layout(x: Any) -> Layout:
    return Layout(x.shape, tuple(step // x.itemsize for step in x.strides), x.dtype)


def _graph(q: Any, k: Any, v: Any, scale: float, causal: bool, gradient: Layout | None = None) -> Attention | None:
    """Of arrays that cuDNN can read; None for shapes that are not those of attention, or types that are no halves."""
    if q.dtype not in HALF_TYPES or not q.dtype == k.dtype == v.dtype or not q.ndim == k.ndim == v.ndim == 4:
        return None
    (batch, heads, rows, width), shared = q.shape, k.shape[1]
    if not (q.size and k.size and v.size) or heads % shared or k.shape != (batch, shared, k.shape[2], width):
        return None
    if v.shape[:3] != k.shape[:3]:
        return None
    result = row_major((batch, heads, rows, v.shape[3]), q.dtype)
    logs = row_major((batch, heads, rows, 1), float32)
    return Attention(
        _layout(q), _layout(k), _layout(v), result, logs, scale, causal, gradient,
        cudnn_settings.current().deterministic,
    )  # fmt: skip


def attention(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """BlockwiseAttention. The logarithms are of float32."""
    q, k, v, *masks = arrays
    if q.ndim != 4 or any(mask is not None for mask in masks) or not cudnn.is_on():
        return None
    q, k, v = (_readable(x) for x in (q, k, v))
    graph = _graph(q, k, v, attributes.get("scale", 1.0), bool(attributes.get("causal", 0)))
    if graph is None or q.shape[1] != k.shape[1] * attributes.get("group", 1):
        return None
    y, logs = cupy().empty(graph.result.shape, q.dtype), cupy().empty(graph.logs.shape, float32)
    return (y, logs[..., 0]) if cudnn.run(graph, [q, k, v, y, logs]) else None


def attention_gradient(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """BlockwiseAttentionGradient, from the logarithms that `attention` gave."""
    g, q, k, v, y, logs, *masks = arrays
    if q.ndim != 4 or any(mask is not None for mask in masks) or logs.dtype != float32 or not cudnn.is_on():
        return None
    g, q, k, v = (_readable(x) for x in (g, q, k, v))
    y, logs = (cudnn.aligned(cupy().ascontiguousarray(x)) for x in (y, logs))
    graph = _graph(q, k, v, attributes.get("scale", 1.0), bool(attributes.get("causal", 0)), _layout(g))
    if graph is None or g.shape != graph.result.shape or q.shape[1] != k.shape[1] * attributes.get("group", 1):
        return None
    made = [cupy().empty(x.shape, x.dtype) for x in (q, k, v)]
    return tuple(made) if cudnn.run(graph, [q, k, v, y, g, logs, *made]) else None
