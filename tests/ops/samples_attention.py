"""Samples of attention and rotary embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sample import Sample, call, ints, normal, single

_flat: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2}


def qkv(heads: int = 2, keys: int = 2) -> list[Any]:
    return [normal(2, heads, 3, 4), normal(2, keys, 5, 4), normal(2, keys, 5, 3)]


MORE: dict[str, Callable[[], list[Sample]]] = {
    "Attention": lambda: [
        call(*qkv()),
        call(*qkv(4), scale=0.3, softcap=2.0),
        call(*qkv(), is_causal=1),
        call(*qkv(), normal(3, 5)),
        call(*qkv(), normal(2, 1, 3, 5), softcap=1.5, qk_matmul_output_mode=1, outputs=4),
        Sample((*qkv(), normal(2, 1, 3, 4)), name="a mask shorter than the keys"),
        call(*qkv(), np.tril(np.ones((3, 5), bool), 1)),
        call(*qkv(), np.array([[True] * 5, [False] * 5, [True, False] * 2 + [True]])),
        call(*qkv(), None, normal(2, 2, 2, 4), normal(2, 2, 2, 3), is_causal=1, outputs=3),
        call(*qkv(), None, None, None, ints(2, 5), is_causal=1),
        call(*qkv(), None, None, None, ints(4, 3), left_window_size=1, right_window_size=1),
        *[call(*qkv(), normal(2, 3, 5), qk_matmul_output_mode=m, outputs=4) for m in range(4)],
        call(normal(2, 3, 8), normal(2, 5, 4), normal(2, 5, 6), **_flat),
        call(normal(2, 3, 8), normal(2, 5, 4), normal(2, 5, 6), normal(4, 3, 5), is_causal=1, **_flat),
    ],
    "RotaryEmbedding": lambda: [
        call(single(2, 3, 4, 6), single(9, 3), single(9, 3), ints([0, 3, 8, 1], [5, 2, 2, 7])),
        call(single(2, 4, 12), single(2, 4, 2), single(2, 4, 2), num_heads=2, rotary_embedding_dim=4, interleaved=1),
    ],
}


def _weighed() -> list[Sample]:
    q, k, v = single(2, 2, 3, 4), single(2, 2, 5, 4), single(2, 2, 5, 3)
    kept = (normal(2, 2, 3, 5) > 0).astype(np.float32) * 2
    some = np.array([[True] * 5, [False] * 5, [True, False] * 2 + [True]])
    lists: list[list[Any]] = [[], [single(3, 5)], [None, some], [single(2, 1, 1, 5), some, kept], [None, None, kept]]
    return [call(q, k, v, *rest, scale=0.5, outputs=2) for rest in lists]


def _weighed_gradient() -> list[Sample]:
    shapes = ((2, 3, 3), (2, 3, 4), (2, 5, 4), (2, 5, 3), (2, 3, 3), (2, 3, 5))
    return [call(*[single(*s) for s in shapes], *rest, scale=0.5, outputs=3) for rest in ([], [single(2, 3, 5)])]


FUNCTIONS: dict[str, Callable[[], list[Sample]]] = {
    "ox.ScaledAttention": _weighed,
    "ox.ScaledAttentionGradient": _weighed_gradient,
}


def _recurrent(rule: str, heads: int = 2, wide: bool = False, **more: Any) -> Sample:
    decay = -np.abs(single(2, 4, 6 if wide else 2)) if "gated" in rule else None
    beta = np.abs(single(2, 4, 1 if wide else 2)) * 0.5 if "delta" in rule else None
    inputs = (single(2, 4, heads * 3), single(2, 4, 6) * 0.5, single(2, 4, 4), single(2, 2, 3, 2), decay, beta)
    attributes = {"q_num_heads": heads, "kv_num_heads": 2, "update_rule": rule, **more}
    return Sample(inputs, attributes, 2, "a sample of ours")


MORE["LinearAttention"] = lambda: [
    *[_recurrent(rule) for rule in ("linear", "gated", "delta", "gated_delta")],
    _recurrent("gated_delta", 4, True, scale=0.3),
]
MORE["CausalConvWithState"] = lambda: [
    call(single(2, 3, 5), single(3, 1, 3)),
    call(single(2, 3, 5), single(3, 1, 4), single(3), single(2, 3, 3), activation="silu", outputs=2),
    call(single(2, 3, 5), single(3, 1, 1), single(3), activation="swish"),
]
