"""Blockwise attention on the compiled kernels."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ox.kernels import Library, address


def _shape(q: Any, k: Any, v: Any, allowed: Any, attributes: dict[str, Any]) -> Any:
    """The numbers of ox::Attention (attention.h), in its order, and what has to live as long; None for shapes that the
    kernel does not take."""
    heads, queries, keys = prod(q.shape[:-2]), q.shape[-2], k.shape[-2]
    if k.shape[:-2] != q.shape[:-2] or v.shape[:-2] != q.shape[:-2] or not (q.size and k.size and v.size):
        return None
    steps = (0, 0, 0)
    if allowed is not None:
        full = np.broadcast_to(allowed, (*q.shape[:-2], queries, keys))
        if any(full.strides[:-2]) and full.ndim > 3:
            full = np.ascontiguousarray(full)
        allowed = full.reshape(-1, queries, keys) if any(full.strides[:-2]) else full
        steps = (allowed.strides[0] if allowed.ndim == 3 and any(full.strides[:-2]) else 0, *allowed.strides[-2:])
        if min(steps) < 0:
            return None
    numbers = [
        heads, 1, queries, keys, q.shape[-1], v.shape[-1], attributes.get("causal", 0),
        0 if allowed is None else address(allowed), *steps,
    ]  # fmt: skip
    return np.array(numbers, np.int64), allowed


def _rows(*arrays: Any) -> list[Any]:
    return [np.ascontiguousarray(a) for a in arrays]


def attention(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """BlockwiseAttention."""
    q, k, v = _rows(*arrays[:3])
    allowed = arrays[3] if len(arrays) > 3 else None
    found = _shape(q, k, v, allowed, attributes)
    if found is None:
        return None
    shape, _mask = found
    y, logs = np.empty((*q.shape[:-1], v.shape[-1]), np.float32), np.empty(q.shape[:-1], np.float32)
    library.ox_attention(
        address(shape), attributes.get("scale", 1.0), address(q), address(k), address(v), address(y), address(logs)
    )
    return y, logs


def attention_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """BlockwiseAttentionGradient."""
    g, q, k, v, y, logs = _rows(*arrays[:6])
    allowed = arrays[6] if len(arrays) > 6 else None
    found = _shape(q, k, v, allowed, attributes)
    if found is None:
        return None
    shape, _mask = found
    to_q, to_k, to_v = np.empty_like(q), np.empty_like(k), np.empty_like(v)
    library.ox_attention_backward(
        address(shape), attributes.get("scale", 1.0), address(g), address(q), address(k), address(v), address(y),
        address(logs), address(to_q), address(to_k), address(to_v),
    )  # fmt: skip
    return to_q, to_k, to_v
