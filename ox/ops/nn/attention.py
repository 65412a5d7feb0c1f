"""Attention with heads, masks, windows and a cache, as ONNX has it."""

from typing import Any

import numpy as np

from ox.core.broadcast import reshape_to, sum_to
from ox.core.constants import axes_tensor, constant, number
from ox.core.operator import OPS, operator
from ox.core.symbolic import size_tensor
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import T1, T2, XP, Array, Int64, U
from ox.dtypes import ALL, FLOATS, bool_, onnx_type
from ox.errors import ArgumentError, ShapeError
from ox.ops.elementwise.activation import Softmax, Tanh
from ox.ops.elementwise.arithmetic import Add, Mul, Sub
from ox.ops.elementwise.comparison import And, Equal, GreaterOrEqual, Less, LessOrEqual, Where
from ox.ops.nn.normalization import as_type, computed_type, widely
from ox.ops.reduce.reduction import ReduceMax, ReduceSum

__all__ = ["Attention"]


SCORES, CAPPED, BIASED, WEIGHTS = range(4)  # what `qk_matmul_output` is, by its mode


@operator(
    "Y present_key present_value qk_matmul_output",
    kind="attention",
    T1=FLOATS,
    T2=FLOATS,
    U=ALL,
    ignore_fp_warnings=True,
    amp="lower",
    batching="each",
)
def Attention(
    xp: XP,
    Q: T1,
    K: T1,
    V: T2,
    attn_mask: U = None,
    past_key: T1 = None,
    past_value: T2 = None,
    nonpad_kv_seqlen: Int64 = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    outputs: int = 1,
) -> tuple[T1, T1, T2, T1]:
    """softmax(scale·Q·Kᵀ + mask)·V for each head. ONNX Attention.

    Q [N, heads, T, E], K [N, kv_heads, S, E], V [N, kv_heads, S, F], or [N, T, heads·E] and so on with `q_num_heads`
    and `kv_num_heads`; heads may be a multiple of kv_heads. The past ones go before K and V. A row that may go nowhere
    gives zeros. The work is done in float32, and for float64 in float64, independent of `softmax_precision`.
    `qk_matmul_output` is by mode the scores, with softcap, with the mask too, or the weights.
    """
    _check(Q, K, V, past_key, past_value, nonpad_kv_seqlen, q_num_heads, kv_num_heads)
    flat = Q.ndim == 3
    if flat:
        Q, K, V = (_heads(x, n) for x, n in ((Q, q_num_heads), (K, kv_num_heads), (V, kv_num_heads)))
    if past_key is not None:
        K = xp.concatenate([past_key, K], axis=2)
        V = xp.concatenate([past_value, V], axis=2)
    q, k, v = (widely(x) for x in (Q, K, V))
    times = Q.shape[1] // K.shape[1]
    if times > 1:
        k, v = xp.repeat(k, times, axis=1), xp.repeat(v, times, axis=1)
    kind = q.dtype
    scores = xp.matmul(q * kind.type(Q.shape[-1] ** -0.5 if scale is None else scale), k.swapaxes(-1, -2))
    seen = {SCORES: scores}
    if softcap:
        scores = xp.tanh(scores / kind.type(softcap)) * kind.type(softcap)
    seen[CAPPED] = scores
    t, s = scores.shape[-2:]
    before = 0 if past_key is None else past_key.shape[2]
    offset = before if nonpad_kv_seqlen is None else nonpad_kv_seqlen.reshape(-1, 1, 1, 1) - t
    bias = _bias(xp, attn_mask, nonpad_kv_seqlen, t, s, offset, is_causal, left_window_size, right_window_size, kind)
    if bias is not None:
        scores = scores + bias
    seen[BIASED] = scores
    weights = _softmax(xp, scores)
    if bias is not None:
        weights = xp.where(xp.isneginf(bias.max(axis=-1, keepdims=True)), weights.dtype.type(0), weights)
    seen[WEIGHTS] = weights
    Y = xp.matmul(weights.astype(v.dtype, copy=False), v).astype(Q.dtype, copy=False)
    if flat:
        Y = Y.transpose(0, 2, 1, 3).reshape(Y.shape[0], t, -1)
    return (Y, K, V, seen[qk_matmul_output_mode].astype(Q.dtype, copy=False))[:outputs]


def _check(
    Q: Array, K: Array, V: Array, past_key: Any, past_value: Any, lengths: Any, q_heads: Any, kv_heads: Any
) -> None:
    got = ", ".join(str(list(x.shape)) for x in (Q, K, V))
    if Q.ndim not in (3, 4) or K.ndim != Q.ndim or V.ndim != Q.ndim:
        raise ShapeError("Attention takes Q, K and V of 3 or of 4 dimensions", got=got)
    if (Q.ndim == 3) != (q_heads is not None and kv_heads is not None) or (
        Q.ndim == 4 and (q_heads is not None or kv_heads is not None)
    ):
        raise ArgumentError(
            "Attention needs q_num_heads and kv_num_heads for 3 dimensions, and neither for 4",
            got=f"{q_heads} and {kv_heads} for {got}",
        )
    if (past_key is None) != (past_value is None) or (past_key is not None and lengths is not None):
        raise ArgumentError("Attention takes past_key and past_value together, and not with nonpad_kv_seqlen")
    n, m = (q_heads, kv_heads) if Q.ndim == 3 else (Q.shape[1], K.shape[1])
    if not n or not m or n % m:
        raise ShapeError("the heads of Q must be a multiple of those of K and V", got=f"{n} and {m}")
    if Q.ndim == 3 and (Q.shape[2] % n or K.shape[2] % m or V.shape[2] % m):
        raise ShapeError("the heads must divide the features", got=f"{n} and {m} heads for {got}")


def _heads(x: Array, count: Any) -> Array:
    """[N, T, heads·E] as [N, heads, T, E]."""
    n, t, features = x.shape
    return x.reshape(n, t, count, features // count).transpose(0, 2, 1, 3)


def _softmax(xp: XP, x: Array) -> Array:
    most = x.max(axis=-1, keepdims=True) if x.shape[-1] else x.sum(axis=-1, keepdims=True)
    y = xp.exp(x - xp.where(xp.isneginf(most), x.dtype.type(0), most))
    total = y.sum(axis=-1, keepdims=True)
    y /= xp.where(total == 0, total.dtype.type(1), total)
    return y


def _bias(
    xp: XP, mask: Any, lengths: Any, t: int, s: int, offset: Any, causal: int, left: int, right: int, kind: Any
) -> Any:
    """What is added to the scores: 0 or the mask's number where attention may go, -inf elsewhere."""
    allowed: Any = None
    row, column = xp.arange(t).reshape(t, 1) + offset, xp.arange(s).reshape(1, s)
    fitting = []
    if causal:
        fitting.append(column <= row)
    if left >= 0:
        fitting.append(column >= row - left)
    if right >= 0:
        fitting.append(column <= row + right)
    if lengths is not None:
        fitting.append(column < lengths.reshape(-1, 1, 1, 1))
    for fits in fitting:
        allowed = fits if allowed is None else allowed & fits
    zero, never = kind.type(0), kind.type(-np.inf)
    bias = None if allowed is None else xp.where(allowed, zero, never)
    if mask is not None:
        if mask.shape[-1] < s:
            missing = [(0, 0)] * (mask.ndim - 1) + [(0, s - mask.shape[-1])]
            mask = xp.pad(mask, missing, constant_values=False if mask.dtype == bool_ else -np.inf)
        mask = xp.where(mask, zero, never) if mask.dtype == bool_ else mask.astype(kind)
        bias = mask if bias is None else bias + mask
    return bias


@Attention.gradient("Q", "K", "V", "attn_mask", "past_key", "past_value")
def _(
    g: TensorBase | None,
    g_key: TensorBase | None,
    g_value: TensorBase | None,
    g_scores: TensorBase | None,
    Q: TensorBase,
    K: TensorBase,
    V: TensorBase,
    attn_mask: TensorBase | None,
    past_key: TensorBase | None,
    past_value: TensorBase | None,
    nonpad_kv_seqlen: TensorBase | None,
    is_causal: int,
    kv_num_heads: int | None,
    left_window_size: int,
    q_num_heads: int | None,
    qk_matmul_output_mode: int,
    right_window_size: int,
    scale: float | None,
    softcap: float,
    needs: tuple[bool, ...],
) -> tuple[TensorBase | None, ...]:
    kind, wide, flat = Q.dtype, computed_type(Q.dtype), Q.ndim == 3
    q, k, v = (as_type(x, wide) for x in (Q, K, V))
    if flat:
        q, k, v = (_headed(x, n) for x, n in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads)))
    if past_key is not None and past_value is not None:
        k = OPS["Concat"](as_type(past_key, wide), k, axis=2)
        v = OPS["Concat"](as_type(past_value, wide), v, axis=2)
    times = int(q.static_shape[1]) // int(k.static_shape[1])
    kv_shape = (k.shape, v.shape)
    k, v = repeated(k, times), repeated(v, times)
    factor = constant(q.static_shape[-1] ** -0.5 if scale is None else scale, q)
    q = Mul(q, factor)
    scores = OPS["MatMul"](q, OPS["Transpose"](k, perm=[0, 1, 3, 2]))
    t, s = scores.shape[-2:]
    bent = Tanh(scores / softcap) if softcap else None
    capped = scores if bent is None else bent * softcap
    rows = None if nonpad_kv_seqlen is None else reshape_to(nonpad_kv_seqlen, [-1, 1, 1, 1])
    past = 0 if past_key is None else past_key.shape[2]
    bias = _recorded_bias(
        attn_mask, rows, t, s, past, (is_causal, left_window_size, right_window_size), constant(0, scores)
    )
    nowhere = None
    zero = constant(0, scores)
    biased = capped
    if bias is not None:
        nowhere = Equal(ReduceMax(bias, axes_tensor([-1]), keepdims=1), constant(-np.inf, scores))
        biased = Add(capped, Where(nowhere, zero, bias))
    weights = Softmax(biased, axis=-1)
    if nowhere is not None:
        weights = Where(nowhere, zero, weights)

    # backwards through weights·v, the softmax, the mask, the cap and q·kᵀ
    to_weights = to_v = back = None
    if g is not None:
        g = as_type(g, wide)
        g = _headed(g, q_num_heads) if flat else g
        to_weights = OPS["MatMul"](g, OPS["Transpose"](v, perm=[0, 1, 3, 2]))
        to_v = _gathered(OPS["MatMul"](OPS["Transpose"](weights, perm=[0, 1, 3, 2]), g), kv_shape[1], times)
    g_scores = None if g_scores is None else as_type(g_scores, wide)
    if g_scores is not None and qk_matmul_output_mode == WEIGHTS:
        to_weights = _sum(to_weights, g_scores)
    if to_weights is not None:
        share = Mul(to_weights, weights)
        back = Sub(share, Mul(weights, ReduceSum(share, axes_tensor([-1]), keepdims=1)))
    if g_scores is not None and qk_matmul_output_mode == BIASED:
        back = _sum(back, g_scores)
    to_mask = None
    if needs[3] and back is not None and attn_mask is not None:
        to_mask = _to_mask(back, attn_mask)
    if g_scores is not None and qk_matmul_output_mode == CAPPED:
        back = _sum(back, g_scores)
    if bent is not None and back is not None:
        back = Mul(back, Sub(constant(1, bent), Mul(bent, bent)))
    if g_scores is not None and qk_matmul_output_mode == SCORES:
        back = _sum(back, g_scores)
    to_q = to_k = None
    if back is not None:
        to_q = Mul(OPS["MatMul"](back, k), factor)
        to_k = _gathered(OPS["MatMul"](OPS["Transpose"](back, perm=[0, 1, 3, 2]), q), kv_shape[0], times)
    to_k = to_k if g_key is None else _sum(to_k, as_type(g_key, wide))
    to_v = to_v if g_value is None else _sum(to_v, as_type(g_value, wide))
    to_past_k, to_k = _parted(to_k, past_key)
    to_past_v, to_v = _parted(to_v, past_value)
    if flat:
        to_q, to_k, to_v = (_flattened(x) for x in (to_q, to_k, to_v))
    found = (to_q, to_k, to_v, to_mask, to_past_k, to_past_v)
    kinds = (kind, kind, V.dtype, attn_mask.dtype if attn_mask is not None else kind, kind, V.dtype)
    return tuple([None if x is None else as_type(x, d) for x, d in zip(found, kinds, strict=True)])


def _sum(a: TensorBase | None, b: TensorBase) -> TensorBase:
    return b if a is None else Add(a, b)


def _headed(x: TensorType, count: int | None) -> TensorType:
    assert count is not None
    return OPS["Transpose"](OPS["Reshape"](x, axes_tensor([0, 0, count, -1])), perm=[0, 2, 1, 3])


def _flattened(x: TensorBase | None) -> TensorBase | None:
    """[N, heads, T, E] as [N, T, heads·E]."""
    return None if x is None else OPS["Reshape"](OPS["Transpose"](x, perm=[0, 2, 1, 3]), axes_tensor([0, 0, -1]))


def repeated(x: TensorType, times: int) -> TensorType:
    """Each head of [..., heads, rows, width] so many times in a row."""
    if times == 1:
        return x
    *lead, heads, rows, width = x.shape
    ones = [1] * len(lead)
    again = OPS["Expand"](OPS["Unsqueeze"](x, axes_tensor([len(lead) + 1])), axes_tensor([*ones, 1, times, 1, 1]))
    return reshape_to(again, [*lead, heads * times, rows, width])


def _gathered(x: TensorType, shape: Any, times: int) -> TensorType:
    """The sum over the heads that `repeated` made of one."""
    if times == 1:
        return x
    return ReduceSum(reshape_to(x, [*shape[:2], times, *shape[2:]]), axes_tensor([2]), keepdims=0)


def _parted(x: TensorBase | None, past: TensorBase | None) -> tuple[TensorBase | None, TensorBase | None]:
    """What of a cotangent belongs to the past, and what to the present."""
    if x is None or past is None:
        return None, x
    cut, along = size_tensor([past.shape[2]]), axes_tensor([2])
    first = OPS["Slice"](x, axes_tensor([0]), cut, along)
    return first, OPS["Slice"](x, cut, axes_tensor([2**62]), along)


def _to_mask(back: TensorType, mask: TensorBase) -> TensorType:
    short = OPS["Slice"](back, axes_tensor([0]), size_tensor([mask.shape[-1]]), axes_tensor([-1]))
    return sum_to(short, mask.shape)


def _recorded_bias(
    mask: TensorBase | None,
    lengths: TensorBase | None,
    t: Any,
    s: Any,
    past: Any,
    limits: tuple[int, int, int],
    like: Any,
) -> TensorBase | None:
    """As `_bias`, in operators; sizes may be `ox.Dim`."""
    causal, left, right = limits
    allowed: TensorBase | None = None
    zero, never = constant(0, like), constant(-np.inf, like)
    int64 = np.dtype(np.int64)
    if causal or left >= 0 or right >= 0 or lengths is not None:
        column = _places(s)
        row = OPS["Unsqueeze"](_places(t), axes_tensor([1]))
        row = Add(row, size_tensor([past])) if lengths is None else Add(row, Sub(lengths, size_tensor([t])))
        fitting = []
        if causal:
            fitting.append(LessOrEqual(column, row))
        if left >= 0:
            fitting.append(GreaterOrEqual(column, Sub(row, number(left, int64))))
        if right >= 0:
            fitting.append(LessOrEqual(column, Add(row, number(right, int64))))
        if lengths is not None:
            fitting.append(Less(column, lengths))
        for fits in fitting:
            allowed = fits if allowed is None else And(allowed, fits)
    bias = None if allowed is None else Where(allowed, zero, never)
    if mask is None:
        return bias
    if mask.dtype == bool_:
        added = Where(mask, zero, never)
    else:
        added = mask if mask.dtype == like.dtype else OPS["Cast"](mask, to=onnx_type(like.dtype))
    if mask.static_shape[-1] < int(s):
        missing = size_tensor([0, s - mask.shape[-1]])
        added = OPS["Pad"](added, missing, never, axes_tensor([-1]))
    return added if bias is None else Add(bias, added)


def _places(count: Any) -> TensorBase:
    """int64 [count]: 0, 1, ..."""
    zero, one = number(0, np.dtype(np.int64)), number(1, np.dtype(np.int64))
    stop = OPS["Squeeze"](size_tensor([count]), axes_tensor([0]))
    return OPS["Range"](zero, stop, one)
