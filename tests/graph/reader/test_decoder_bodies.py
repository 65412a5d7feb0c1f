"""Attention, normalization and rotary positions of decoders, as ONNX Runtime's tools write them, beside its kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_call import check, written
from rows import rows

import ox
from ox.errors import LoadError

R = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return R.normal(size=shape).astype(np.float32)


X, SCALE = floats(2, 5, 8), floats(8)
NORMALIZATIONS: dict[str, tuple[str, str, list[Any], dict[str, Any], list[int]]] = {
    "simplified": ("SimplifiedLayerNormalization", "", [X, SCALE], {"axis": -1, "epsilon": 1e-3, "stash_type": 1}, [0]),
    "simplified, by default": ("SimplifiedLayerNormalization", "", [X, SCALE], {}, [0]),
    "skip": ("SkipSimplifiedLayerNormalization", "m", [X, floats(2, 5, 8), SCALE], {"epsilon": 1e-3}, [0]),
    "skip, with a sum": ("SkipSimplifiedLayerNormalization", "m", [X, floats(2, 5, 8), SCALE], {}, [0, 3]),
    "skip, with a bias": (
        "SkipSimplifiedLayerNormalization", "m", [X, floats(2, 5, 8), SCALE, floats(8)], {"epsilon": 1e-5}, [0, 3],
    ),
}  # fmt: skip


@rows("name", NORMALIZATIONS)
def test_normalization(tmp_path: Path, name: str) -> None:
    op, domain, inputs, attributes, used = NORMALIZATIONS[name]
    check(tmp_path, op, inputs, used, domain="com.microsoft" if domain else "", **attributes)


ANGLES = np.arange(12)[:, None] / 10 ** (np.arange(2) / 2)[None]
COS, SIN = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)
EACH = np.array([[3, 4, 5, 6, 7], [0, 1, 2, 3, 4]])
ROTARY: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "each position": ([X, EACH, COS, SIN], {}),
    "interleaved": ([X, EACH, COS, SIN], {"interleaved": 1}),
    "an offset": ([X, np.array([4]), COS, SIN], {}),
    "heads": ([floats(2, 3, 5, 4), EACH, COS, SIN], {}),
    "heads and an offset": ([floats(2, 3, 5, 4), np.array([2]), COS, SIN], {"interleaved": 1}),
    "as many heads as steps": ([floats(2, 4, 4, 4), EACH[:, :4], COS, SIN], {}),
    "as many heads as steps, and their number": ([floats(2, 4, 4, 4), EACH[:, :4], COS, SIN], {"num_heads": 4}),
    "a part of each head": ([floats(2, 5, 16), EACH, COS, SIN], {"num_heads": 2, "rotary_embedding_dim": 4}),
}


@rows("ranks", [True, False])
@rows("name", ROTARY)
def test_rotary_positions(tmp_path: Path, name: str, ranks: bool) -> None:
    inputs, attributes = ROTARY[name]
    check(tmp_path, "RotaryEmbedding", inputs, ranks=ranks, **attributes)


Q, K, V = floats(2, 5, 8), floats(2, 7, 8), floats(2, 7, 12)
PAST = floats(2, 2, 3, 4)
EVERY = np.array([[1, 1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1, 1]], np.int32)
ATTENTION: dict[str, tuple[list[Any], dict[str, Any], list[int]]] = {
    "plain": ([Q, K, V], {}, [0]),
    "a scale": ([Q, K, V], {"scale": 0.3}, [0]),
    "a bias": ([Q, K, V, floats(8 + 8 + 12)], {}, [0]),
    "causal": ([Q, floats(2, 5, 8), floats(2, 5, 8)], {"unidirectional": 1}, [0]),
    "causal, of more keys": ([Q, K, V], {"unidirectional": 1}, [0]),
    "causal, of an encoder": ([Q, floats(2, 2, 7, 4), floats(2, 2, 7, 4)], {"unidirectional": 1}, [0]),
    "ends": ([Q, K, V, None, np.array([4, 7], np.int32)], {}, [0]),
    "ends of one sample": ([Q[:1], K[:1], V[:1], None, np.array([4], np.int32)], {}, [0]),
    "ends and places": ([Q, K, V, None, np.array([4, 7, 0, 5, 10, 0, 7, 14], np.int32)], {}, [0]),
    "a mask of keys": ([Q, K, V, None, EVERY], {}, [0]),
    "a mask and its value": ([Q, K, V, None, EVERY], {"mask_filter_value": -2.0}, [0]),
    "a mask of pairs": ([Q, K, V, None, (floats(2, 5, 7) > -0.7).astype(np.int32)], {}, [0]),
    "a bias of scores": ([Q, K, V, None, None, floats(2, 2, 5, 7)], {}, [0]),
    "one bias of scores for all": ([Q, K, V, None, None, floats(1, 1, 5, 7)], {"scale": 1.5}, [0]),
    "of an encoder": ([Q, floats(2, 2, 7, 4), floats(2, 2, 7, 4)], {}, [0]),
    "of an encoder, as many heads as steps": ([floats(2, 2, 8), floats(2, 2, 2, 4), floats(2, 2, 2, 4)], {}, [0]),
    "of an encoder, a bias": ([Q, floats(2, 2, 7, 4), floats(2, 2, 7, 4), floats(24)], {}, [0]),
    "keys and values": ([Q, floats(2, 5, 8), floats(2, 5, 8)], {}, [0, 1, 2]),
    "a past": ([Q, floats(2, 5, 8), floats(2, 5, 8), None, None, None, PAST, 2 * PAST], {}, [0, 1, 2]),
    "a past, causal": (
        [Q, floats(2, 5, 8), floats(2, 5, 8), floats(24), None, floats(2, 2, 5, 8), PAST, 2 * PAST],
        {"unidirectional": 1}, [0, 1, 2],
    ),
}  # fmt: skip


@rows("ranks", [True, False])
@rows("name", ATTENTION)
def test_attention_of_heads(tmp_path: Path, name: str, ranks: bool) -> None:
    inputs, attributes, used = ATTENTION[name]
    check(tmp_path, "MultiHeadAttention", inputs, used, ranks=ranks, num_heads=2, **attributes)


def cached(count: int, size: int = 16) -> list[Any]:
    angles = np.arange(count)[:, None] / 10 ** (np.arange(size // 2) / 4)[None]
    return [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]


def grouped(steps: int, past: int, ends: list[int] | None = None, total: int | None = None, **more: Any) -> list[Any]:
    """Samples with four heads of 16 features, in two groups."""
    n, total = more.get("n", 2), past + steps if total is None else total
    ends = [total - 1] * n if ends is None else ends
    old = [floats(n, 2, past, 16), floats(n, 2, past, 16)] if past or more.get("empty") else [None, None]
    qkv = [floats(n, steps, 128), None, None] if more.get("packed") else [floats(n, steps, w) for w in (64, 32, 32)]
    caches = cached(32) if more.get("rotary") else [None, None]
    rest = [more.get("positions"), more.get("bias"), more.get("sink")]
    return [*qkv, *old, np.array(ends, np.int32), np.array(total, np.int32), *caches, *rest]


GROUPED: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "a prompt": (grouped(5, 0), {}),
    "a prompt and an empty past": (grouped(5, 0, empty=True), {}),
    "a step": (grouped(1, 6), {}),
    "steps": (grouped(3, 6, n=1), {}),
    "packed": (grouped(5, 0, packed=True), {}),
    "a scale": (grouped(5, 0), {"scale": 0.2}),
    "rotary": (grouped(5, 0, rotary=True), {"do_rotary": 1}),
    "rotary, interleaved": (grouped(5, 0, rotary=True), {"do_rotary": 1, "rotary_interleaved": 1}),
    "a rotary step": (grouped(1, 6, rotary=True, packed=True), {"do_rotary": 1}),
    "rotary steps": (grouped(3, 6, n=1, rotary=True), {"do_rotary": 1}),
    "a step of two lengths": (grouped(1, 6, [6, 3], 7, rotary=True), {"do_rotary": 1}),
    "a window": (grouped(7, 0), {"local_window_size": 3}),
    "a step in a window": (grouped(1, 6), {"local_window_size": 3}),
    "a soft cap": (grouped(5, 0), {"softcap": 2.0}),
    "a bias": (grouped(5, 0, bias=floats(1, 1, 5, 5)), {}),
    "a bias and a soft cap": (grouped(5, 0, bias=floats(2, 4, 5, 5)), {"softcap": 2.0}),
    "positions": (grouped(5, 0, rotary=True, positions=np.array([[3, 4, 5, 6, 7]] * 2)), {"do_rotary": 1}),
    "positions of a step": (grouped(1, 6, rotary=True, positions=np.array([[3], [9]])), {"do_rotary": 1}),
    "a smooth softmax": (grouped(5, 0), {"smooth_softmax": 1}),
    "sinks": (grouped(5, 0, sink=floats(4)), {}),
}


@rows("name", GROUPED)
def test_attention_of_groups(tmp_path: Path, name: str) -> None:
    inputs, attributes = GROUPED[name]
    n, total = len(inputs[5]), int(inputs[6])
    filled = (np.arange(total) <= inputs[5][:, None])[:, None, :, None]
    valid = [None, *[np.broadcast_to(filled, (n, 2, total, 16))] * 2]
    check(tmp_path, "GroupQueryAttention", inputs, [0, 1, 2], valid=valid, num_heads=4, kv_num_heads=2, **attributes)


@pytest.mark.parametrize("causal", [0, 1])
def test_packed_heads(tmp_path: Path, causal: int) -> None:
    """For which ONNX Runtime has no kernel on the CPU: the same as three tensors."""
    packed = floats(2, 5, 2, 3, 4)
    more = {"num_heads": 2, "unidirectional": causal}
    q, k, v = (packed[:, :, :, i].reshape(2, 5, 8) for i in range(3))
    expected = loaded(tmp_path, [q, k, v], more)
    np.testing.assert_allclose(loaded(tmp_path, [packed], more), expected, atol=1e-6)
    np.testing.assert_allclose(loaded(tmp_path, [q, packed[:, :, :, 1:]], more), expected, atol=1e-6)


def loaded(folder: Path, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    path = written(folder / "m.onnx", "MultiHeadAttention", inputs, [(0, 1)], "com.microsoft", **attributes)
    with ox.no_grad():
        return ox.export.load(path)(*map(ox.from_numpy, inputs)).numpy()


REFUSED: dict[str, tuple[str, list[Any], dict[str, Any], str]] = {
    "packed samples": ("RotaryEmbedding", [X, EACH, COS, SIN], {"is_packed_batching": 1}, "samples that are packed"),
    "a bias of packed heads": (
        "MultiHeadAttention", [floats(2, 5, 2, 3, 4), None, None, floats(24)], {"num_heads": 2}, "a bias of packed",
    ),
    "no heads": ("MultiHeadAttention", [Q, K, V], {}, "without num_heads"),
    "zero heads": ("MultiHeadAttention", [Q, K, V], {"num_heads": 0}, "with such a num_heads"),
    "zero groups": ("GroupQueryAttention", grouped(1, 6), {"num_heads": 4, "kv_num_heads": 0}, "such a kv_num_heads"),
    "unequal groups": ("GroupQueryAttention", grouped(1, 6), {"num_heads": 3, "kv_num_heads": 2}, "no equal groups"),
    "a quantized past": (
        "GroupQueryAttention", [*grouped(1, 6), floats(1)], {"num_heads": 4, "kv_num_heads": 2}, "a quantized past",
    ),
}  # fmt: skip


@rows("name", REFUSED)
def test_what_no_body_covers(tmp_path: Path, name: str) -> None:
    op, inputs, attributes, says = REFUSED[name]
    path = written(tmp_path / "m.onnx", op, inputs, [(0, 1)], "com.microsoft", **attributes)
    with pytest.raises(LoadError, match=says):
        ox.export.load(path)
