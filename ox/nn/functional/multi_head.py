"""Attention of several heads with its projections."""

from __future__ import annotations

from typing import Any

from ox import ops
from ox.core.broadcast import expand_to
from ox.core.constants import ints, scalar_like, zeros
from ox.core.promotion import cast
from ox.dtypes import bool_, is_floating
from ox.errors import DTypeError, ShapeError
from ox.nn.functional.arguments import shaped
from ox.nn.functional.attention import attend, attended, causal_mask, in_blocks, in_blocks_on_device
from ox.nn.functional.projections import linear
from ox.tensors.tensor import Tensor

__all__ = ["multi_head_attention_forward"]


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    *,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """query [T, N, E], key [S, N, kdim], value [S, N, vdim], or without a batch [T, E] and so on: the output in the
    layout of the query, and the weights [N, T, S] (mean over heads), [N, heads, T, S], or None.
    `torch.nn.functional.multi_head_attention_forward`.

    Masks are bool with True where attention must not go (the opposite of `scaled_dot_product_attention`), or floats
    that are added. A row that may go nowhere gives zeros, where PyTorch gives NaN.

    Args:
        bias_k, bias_v: [1, 1, E], one more key and value for every sequence.
        add_zero_attn: one more key and value of zeros.
        key_padding_mask: [N, S], or [S] without a batch.
        attn_mask: [T, S] or [N·heads, T, S].
        static_k, static_v: [N·heads, S, E/heads], in place of the projected ones.
        is_causal: position t sees positions up to t; may replace an equal `attn_mask`.
        batch_first: query is [N, T, E] and so on (PyTorch has this in its module alone).

    Raises:
        ShapeError: dimensions that do not fit, or masks of other shapes.
        DTypeError: a mask that is neither bool nor floating.
    """
    single = query.array.ndim == 2
    batch_first = batch_first and not single
    _check_ranks(query, key, value, embed_dim_to_check, num_heads, batch_first)
    if single:
        query, key, value = _batched(query, key, value)
        key_padding_mask = None if key_padding_mask is None else _batch_of_one(key_padding_mask, 1)
    weights_in: Any = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight
    q, k, v = _project(query, key, value, weights_in, in_proj_bias)
    time, batch = (1, 0) if batch_first else (0, 1)
    t, n = q.shape[time], q.shape[batch]
    more = 0  # keys that are not in the masks
    if bias_k is not None and bias_v is not None:
        k, v = (
            ops.Concat(x, expand_to(b, [n, 1, x.shape[2]] if batch_first else [1, n, x.shape[2]]), axis=time)
            for x, b in ((k, bias_k), (v, bias_v))
        )
        more += 1
    head = embed_dim_to_check // num_heads
    q = _heads(q, num_heads, head, batch_first)
    k = _heads(k, num_heads, head, batch_first) if static_k is None else _static(static_k, n, num_heads, head)
    v = _heads(v, num_heads, head, batch_first) if static_v is None else _static(static_v, n, num_heads, head)
    if add_zero_attn:
        k, v = (ops.Concat(x, zeros([n, num_heads, 1, x.shape[3]], x), axis=2) for x in (k, v))
        more += 1
    s = k.shape[2]
    drop = dropout_p if training else 0.0
    causal = is_causal and attn_mask is None
    fused = not need_weights and (in_blocks(q, k) or in_blocks_on_device(q, k, v))
    plain_causal = causal and fused and not more  # for the kernel it is no mask
    allowed, bias = _masks(key_padding_mask, attn_mask, n, num_heads, t, s, more, causal and not plain_causal, q)
    weights = None
    if fused:
        result = attended(q, k, v, bias, allowed, drop, plain_causal, None)
    else:
        result, weights = attend(q, k, v, bias, allowed, drop, False, None)
    lead = [n, t] if batch_first else [t, n]
    merged = ops.Transpose(result, perm=[0, 2, 1, 3] if batch_first else [2, 0, 1, 3])
    merged = shaped(merged, [*lead, embed_dim_to_check])
    out = linear(merged, out_proj_weight, out_proj_bias)
    if single:
        out = ops.Squeeze(out, ints(1))
    if weights is None or not need_weights:
        return out, None
    weights = ops.ReduceMean(weights, ints(1), keepdims=0) if average_attn_weights else weights
    return out, ops.Squeeze(weights, ints(0)) if single else weights


def _check_ranks(query: Tensor, key: Tensor, value: Tensor, features: int, heads: int, batch_first: bool) -> None:
    q, k, v = query.static_shape, key.static_shape, value.static_shape
    what = None
    if len(q) not in (2, 3) or len(k) != len(q) or len(v) != len(q):
        lead = ("batch, T", "batch, S") if batch_first else ("T, batch", "S, batch")
        what = f"query [{lead[0]}, E], key and value [{lead[1]}, E], or all without the batch"
    elif q[-1] != features:
        what = f"query [..., {features}]"
    elif k[:-1] != v[:-1] or (len(q) == 3 and k[int(not batch_first)] != q[int(not batch_first)]):
        what = "key and value of one length, and all of one batch"
    elif features % heads:
        what = f"heads that divide {features}, not {heads}"
    if what is not None:
        raise ShapeError(
            "multi-head attention does not take these dimensions",
            expected=what,
            got=", ".join(str(list(x)) for x in (q, k, v)),
        )


def _batched(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each with a batch of one; what was one tensor stays one."""
    q = _batch_of_one(query, 1, 1)
    k = q if key is query else _batch_of_one(key, 1, 1)
    return q, k, k if value is key else _batch_of_one(value, 1, 1)


def _batch_of_one(x: Tensor, rank: int, axis: int = 0) -> Tensor:
    return ops.Unsqueeze(x, ints(axis)) if x.array.ndim == rank + int(axis > 0) else x


def _project(
    query: Tensor, key: Tensor, value: Tensor, weights: Any, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    if not isinstance(weights, tuple):
        if query is key and key is value:
            return ops.Split(linear(query, weights, bias), axis=-1, num_outputs=3, outputs=3)
        weights = ops.Split(weights, axis=0, num_outputs=3, outputs=3)
    biases = (None,) * 3 if bias is None else ops.Split(bias, axis=0, num_outputs=3, outputs=3)
    q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    return q, k, v


def _heads(x: Tensor, heads: int, size: int, batch_first: bool) -> Tensor:
    """[T, N, E] or [N, T, E] as [N, heads, T, E/heads]."""
    parted = shaped(x, [*x.shape[:2], heads, size])
    return ops.Transpose(parted, perm=[0, 2, 1, 3] if batch_first else [1, 2, 0, 3])


def _static(x: Tensor, batch: Any, heads: int, size: int) -> Tensor:
    shape = x.static_shape
    if len(shape) != 3 or shape[0] != int(batch) * heads or shape[2] != size:
        raise ShapeError("static keys and values", expected=f"[{int(batch) * heads}, S, {size}]", got=str(list(shape)))
    return shaped(x, [batch, heads, x.shape[1], size])


def _masks(
    padding: Tensor | None,
    mask: Tensor | None,
    n: Any,
    heads: int,
    t: Any,
    s: Any,
    more: int,
    causal: bool,
    like: Tensor,
) -> tuple[Tensor | None, Tensor | None]:
    """Where attention may go, and what is added to the scores, each broadcast to [N, heads, T, S]."""
    forbidden: list[Tensor] = []
    added: list[Tensor] = []
    own = s - more
    for given in (padding, mask):
        if given is None:
            continue
        if given is padding:
            _check_mask("key_padding_mask", given, [(int(n), int(own))])
            part = shaped(given, [n, 1, 1, own])
        else:
            _check_mask("attn_mask", given, [(int(t), int(own)), (int(n) * heads, int(t), int(own))])
            part = given if given.array.ndim == 2 else shaped(given, [n, heads, t, own])
        if more:
            nothing = scalar_like(False if part.array.dtype == bool_ else 0.0, part)
            part = ops.Pad(part, ints(0, more), nothing, ints(-1))
        if part.array.dtype == bool_:
            forbidden.append(part)
        else:
            added.append(cast(part, like.array.dtype))
    if causal:
        lower = causal_mask(t, own, like.array.dtype)
        added.append(ops.Pad(lower, ints(0, more), scalar_like(0.0, lower), ints(-1)) if more else lower)
    allowed = ops.Not(forbidden[0] if len(forbidden) == 1 else ops.Or(*forbidden)) if forbidden else None
    bias = None if not added else added[0] if len(added) == 1 else ops.Add(*added)
    return allowed, bias


def _check_mask(name: str, mask: Tensor, shapes: list[tuple[int, ...]]) -> None:
    if mask.array.dtype != bool_ and not is_floating(mask.array.dtype):
        raise DTypeError(f"{name} is not of {mask.array.dtype}", expected="bool or a floating type", hint="mask.bool()")
    if mask.static_shape not in shapes:
        raise ShapeError(
            f"{name} does not fit", expected=" or ".join(str(list(s)) for s in shapes), got=str(list(mask.static_shape))
        )
