"""Scaled dot-product attention."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ox import ops, random
from ox.amp.policy import by_policy
from ox.core.broadcast import expand_to
from ox.core.constants import ints, on_device_of, scalar, scalar_like
from ox.core.generator import default_generator, words_of
from ox.core.mode import MODE, switch_mode
from ox.core.mt19937 import tensors
from ox.core.operator import as_input
from ox.core.promotion import cast
from ox.core.symbolic import Dim
from ox.devices import cuda
from ox.devices.gpu import attention as cuda_attention
from ox.dtypes import HALF_TYPES, DType, bool_, float32, is_floating, onnx_type
from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.nn.functional.compiled_call import runs_compiled, runs_on_device
from ox.nn.functional.reduction import floating
from ox.ops.nn.attention import repeated
from ox.ops.nn.scaled_attention import BlockwiseAttention, ScaledAttention
from ox.tensors.tensor import Tensor

__all__ = ["scaled_dot_product_attention"]


@by_policy
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """query [..., T, E], key [..., S, E], value [..., S, V]: [..., T, V].
    `torch.nn.functional.scaled_dot_product_attention`.

    Args:
        attn_mask: broadcast to [..., T, S]; bool with True where attention may go, or floats that are added.
            A row that may go nowhere gives zeros.
        dropout_p: the probability with which a weight is dropped, whether training or not.
        is_causal: position t sees positions up to t.
        scale: default 1/sqrt(E).
        enable_gqa: the heads of query [..., heads, T, E] may be a multiple of those of key and value.
    """
    floating("attention", query)
    if is_causal and attn_mask is not None:
        raise ArgumentError("attention takes attn_mask or is_causal, not both")
    if not 0 <= dropout_p <= 1:
        raise ArgumentError("dropout_p is a probability", expected="0 to 1", got=str(dropout_p))
    group = _group(query, key, value) if enable_gqa else 1
    if group == 0:
        key, value, group = *(_as_many(query, x) for x in (key, value)), 1
    query, key, value = _alike(query, key, value, group)
    bias = allowed = None
    if attn_mask is not None:
        _check_mask(attn_mask, query, key)
        if attn_mask.array.dtype == bool_:
            allowed = attn_mask
        else:
            bias = cast(attn_mask, query.array.dtype)
    return attended(query, key, value, bias, allowed, dropout_p, is_causal, scale, group)


def _group(query: Tensor, key: Tensor, value: Tensor) -> int:
    """How many heads of the query share one of key and value; 0 where one has to be repeated or expanded before."""
    shapes = [x.static_shape for x in (query, key, value)]
    if min(map(len, shapes)) < 3 or shapes[1][:-2] != shapes[2][:-2] or shapes[0][:-3] != shapes[1][:-3]:
        return 0
    many, few = shapes[0][-3], shapes[1][-3]
    fits = few and many % few == 0 and (in_blocks(query, key) or in_blocks_on_device(query, key, value))
    return many // few if fits else 0


def in_blocks(query: Tensor, key: Tensor) -> bool:
    """Whether attention is one call of a compiled kernel; of 16-bit types, between conversions to float32 and back."""
    types = (float32, *HALF_TYPES) if MODE.get().autocast is None else HALF_TYPES
    return key.array.size > 0 and runs_compiled(query, types)


def in_blocks_on_device(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """The same on a GPU, in the type of the query."""
    found = key.array.size > 0 and value.array.size > 0 and runs_on_device(query, (float32, *HALF_TYPES), recorded=True)
    return found and cuda_attention.width_of(query.array, value.array) is not None


def attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    allowed: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    group: int = 1,
) -> Tensor:
    """Attention of tensors with the same leading dimensions, but for `group` heads of the query for each of the others.

    The gradient of `bias` needs all scores anyway, so that attention with one keeps them.
    """
    learned = bias is not None and MODE.get().grad and bias.requires_grad
    settings: dict[str, Any] = {"causal": int(is_causal), "group": group, "scale": _factor(query, scale)}
    shape = [*query.shape[:-1], key.shape[-2]]
    if not learned and in_blocks(query, key):
        if (dtype := query.array.dtype) != float32:
            with switch_mode(autocast=None):
                q, k, v = (cast(x, float32) for x in (query, key, value))
                added = None if bias is None else cast(bias, float32)
                return cast(attended(q, k, v, added, allowed, dropout_p, is_causal, scale, group), dtype)
        kept = _dropout_factors(shape, dropout_p, query.array.dtype) if dropout_p else None
        result: Tensor = BlockwiseAttention(query, key, value, allowed, bias, kept, outputs=1, **settings)
        return result
    if not learned and in_blocks_on_device(query, key, value):
        drops = _dropout_on_device(shape, dropout_p, query) if dropout_p else ()
        result = BlockwiseAttention(query, key, value, allowed, bias, *drops, outputs=1, p=dropout_p, **settings)
        return result
    key, value = (repeated(x, group) for x in (key, value))
    return attend(query, key, value, bias, allowed, dropout_p, is_causal, scale)[0]


def _dropout_on_device(shape: list[Any], p: float, query: Tensor) -> tuple[Tensor | None, ...]:
    """For BlockwiseAttention: what dropout leaves, or nothing and where its numbers begin."""
    if p < 1 and not random.is_torch_compatible():
        return None, *default_generator._skip(prod(shape), "attention_dropout")
    return (on_device_of(_dropout_factors(shape, p, query.array.dtype, query.device), query),)


def _factor(query: Tensor, scale: float | None) -> float:
    width = query.static_shape[-1]
    return float(width**-0.5 if scale is None else scale) if width else 1.0


def _check_mask(mask: Tensor, query: Tensor, key: Tensor) -> None:
    if mask.array.dtype != bool_ and not is_floating(mask.array.dtype):
        raise DTypeError(
            f"attention does not accept masks of type {mask.array.dtype}", expected="bool or a floating type"
        )
    full = (*query.static_shape[:-1], key.static_shape[-2])
    own = mask.static_shape
    if len(own) > len(full) or any(a not in (1, b) for a, b in zip(own[::-1], full[::-1], strict=False)):
        raise ShapeError("attn_mask does not fit", expected=f"broadcast to {list(full)}", got=str(list(own)))


def _as_many(query: Tensor, x: Tensor) -> Tensor:
    """Each head of key or value as often as query has heads for it."""
    many, few = query.static_shape[-3], x.static_shape[-3]
    if many % few:
        raise ShapeError("the heads of query must be a multiple of the others", got=f"{many} and {few}")
    return repeated(x, many // few)


def _alike(query: Tensor, key: Tensor, value: Tensor, group: int) -> tuple[Tensor, Tensor, Tensor]:
    """The three with the same leading dimensions, where they were to be broadcast; as they are for a group of heads."""
    shapes = [x.static_shape for x in (query, key, value)]
    fits = min(map(len, shapes)) > 1 and shapes[0][-1] == shapes[1][-1] and shapes[1][-2] == shapes[2][-2]
    kinds = {x.array.dtype for x in (query, key, value)}
    if not fits:
        raise ShapeError(
            "attention takes query [..., T, E], key [..., S, E] and value [..., S, V]",
            got=", ".join(str(list(s)) for s in shapes),
        )
    if len(kinds) > 1:
        raise DTypeError(
            "attention takes one type for query, key and value",
            got=", ".join(str(x.array.dtype) for x in (query, key, value)),
        )
    if group > 1 or shapes[0][:-2] == shapes[1][:-2] == shapes[2][:-2]:
        return query, key, value
    try:
        np.broadcast_shapes(*[s[:-2] for s in shapes])
    except ValueError:
        raise ShapeError(
            "the leading dimensions of attention do not fit",
            got=", ".join(str(list(s)) for s in shapes),
            hint="enable_gqa=True, for fewer heads of key and value" if len(shapes[0]) > 2 else None,
        ) from None
    rank = max(map(len, shapes)) - 2
    lead: list[Any] = [1] * rank
    for x in (query, key, value):
        for i, size in enumerate(x.shape[:-2], start=rank + 2 - x.array.ndim):
            lead[i] = size if int(size) != 1 else lead[i]
    q, k, v = (expand_to(x, [*lead, *x.shape[-2:]]) for x in (query, key, value))
    return q, k, v


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    allowed: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor]:
    """Attention of tensors with the same leading dimensions; also returns the weights [..., T, S]."""
    kept = None
    if is_causal:
        lower = causal_mask(query.shape[-2], key.shape[-2], query.array.dtype, query.device)
        bias = lower if bias is None else ops.Add(bias, lower)
    if dropout_p:
        kept = on_device_of(
            _dropout_factors([*query.shape[:-1], key.shape[-2]], dropout_p, query.array.dtype, query.device), query
        )
    result, weights = ScaledAttention(query, key, value, bias, allowed, kept, scale=_factor(query, scale))
    return result, weights if kept is None else ops.Mul(weights, kept)


def _dropout_factors(shape: list[Any], p: float, dtype: DType, device: Any = None) -> Tensor:
    """0 with probability p, else 1/(1 - p)."""
    if random.is_torch_compatible():
        words = words_of(None)
        assert words is not None
        return as_input(tensors.dropout_factors(words, np.empty(shape, dtype), p) if p < 1 else np.zeros(shape, dtype))
    drawn = random.uniform(shape, device=device, kind="attention_dropout")
    kept = ops.Cast(ops.GreaterOrEqual(drawn, scalar_like(p, drawn)), to=onnx_type(dtype))
    return ops.Mul(kept, scalar_like(1 / (1 - p) if p < 1 else 0.0, kept))


def causal_mask(rows: Any, columns: Any, dtype: DType, device: str = "cpu") -> Tensor:
    """[rows, columns] to add to scores: 0 where column <= row, -inf elsewhere; sizes may be `ox.Dim`."""
    if not isinstance(rows, Dim) and not isinstance(columns, Dim):
        return _causal_constant(rows, columns, dtype, device)
    zero, one = scalar(0, np.dtype(np.int64)), scalar(1, np.dtype(np.int64))
    row = ops.Unsqueeze(ops.Range(zero, scalar(rows, np.dtype(np.int64)), one), ints(1))
    column = ops.Range(zero, scalar(columns, np.dtype(np.int64)), one)
    return ops.Where(ops.LessOrEqual(column, row), scalar(0.0, dtype), scalar(-np.inf, dtype))


@lru_cache(maxsize=16)
def _causal_constant(rows: int, columns: int, dtype: DType, device: str) -> Tensor:
    array = np.triu(np.full((rows, columns), -np.inf, np.float32), 1).astype(dtype)
    if device != "cpu":
        return as_input(cuda.to_device(array, device))
    array.flags.writeable = False
    return as_input(array)
