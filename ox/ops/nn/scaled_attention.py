"""Attention as ox trains with it: functions of the domain ``ox`` whose forward and backward are one call each."""

import math
from typing import Any

from ox.core.broadcast import reshape_to, sum_to
from ox.core.constants import axes_tensor, constant
from ox.core.function import function
from ox.core.operator import OPS
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import T1, T2, T, UInt64
from ox.dtypes import FLOATS, bool_, float16
from ox.ops.elementwise.activation import Softmax
from ox.ops.elementwise.arithmetic import Add, Exp, Mul, Sub
from ox.ops.elementwise.comparison import And, Equal, Not, Where
from ox.ops.nn.attention import repeated
from ox.ops.reduce.reduction import ReduceSum

__all__ = ["BlockwiseAttention", "ScaledAttention"]


@function("Y weights", kind="attention", fused=True, T=FLOATS, T2=(bool_,), amp="lower", nondifferentiable="kept")
def ScaledAttention(
    Q: T, K: T, V: T, bias: T = None, allowed: T2 = None, kept: T = None, *, scale: float = 1.0
) -> tuple[T, T]:
    """(weights·kept)·V, and the weights, which are softmax(scale·Q·Kᵀ + bias).

    Q [..., T, E], K [..., S, E], V [..., S, F] with the same leading dimensions; bias, allowed and kept are broadcast
    to [..., T, S].

    Args:
        allowed: where attention may go. A row that may go nowhere gives zeros.
        kept: what dropout leaves, a factor without a gradient.
    """
    scores = OPS["MatMul"](Mul(Q, constant(scale, Q)), _turned(K))
    if bias is not None:
        scores = Add(scores, bias)
    if allowed is not None:
        # not -inf: a row that may go nowhere would become NaN, here and in its gradient
        scores = Where(allowed, scores, constant(-1e30 if Q.dtype != float16 else -30000.0, Q))
    weights = Softmax(scores, axis=-1)
    if allowed is not None:
        weights = Where(allowed, weights, constant(0, Q))
    return OPS["MatMul"](weights if kept is None else Mul(weights, kept), V), weights


def _turned(x: TensorType) -> TensorType:
    """The last two axes swapped."""
    rank = x.array.ndim
    return OPS["Transpose"](x, perm=[*range(rank - 2), rank - 1, rank - 2])


@function("dQ dK dV", kind="gradient", fused=True, T=FLOATS, amp="widest")
def ScaledAttentionGradient(
    g: T, Q: T, K: T, V: T, Y: T, weights: T, kept: T = None, *, scale: float = 1.0
) -> tuple[T, T, T]:
    """The gradients of Q, K and V where only Y was used."""
    to_scores = _to_scores(g, V, Y, weights, kept, None)
    to_v = OPS["MatMul"](_turned(weights if kept is None else Mul(weights, kept)), g)
    return *_to_factors(to_scores, Q, K, scale), to_v


def _to_scores(
    g: TensorBase,
    V: TensorBase,
    Y: TensorBase,
    weights: TensorBase,
    kept: TensorBase | None,
    g_weights: TensorBase | None,
) -> TensorBase:
    back = OPS["MatMul"](g, _turned(V))
    back = back if kept is None else Mul(back, kept)
    # a row of weights times its cotangents has the sum of the row of Y times its own, which is shorter
    shared = ReduceSum(Mul(g, Y), axes_tensor([-1]), keepdims=1)
    if g_weights is not None:
        back = Add(back, g_weights)
        shared = Add(shared, ReduceSum(Mul(g_weights, weights), axes_tensor([-1]), keepdims=1))
    return Mul(weights, Sub(back, shared))


def _to_factors(to_scores: TensorBase, Q: TensorBase, K: TensorBase, scale: float) -> tuple[TensorBase, TensorBase]:
    factor = constant(scale, Q)
    return OPS["MatMul"](to_scores, Mul(K, factor)), OPS["MatMul"](_turned(to_scores), Mul(Q, factor))


@ScaledAttention.gradient("Q", "K", "V", "bias")
def _(
    g: TensorBase | None,
    g_weights: TensorBase | None,
    Q: TensorBase,
    K: TensorBase,
    V: TensorBase,
    Y: TensorBase,
    weights: TensorBase,
    kept: TensorBase | None,
    bias_shape: tuple[int, ...] | None,
    scale: float,
    needs: tuple[bool, ...],
) -> tuple[TensorBase | None, ...]:
    if g is not None and g_weights is None and not needs[3]:
        return *ScaledAttentionGradient(g, Q, K, V, Y, weights, kept, scale=scale), None
    g = Mul(Y, constant(0, Y)) if g is None else g
    to_scores = _to_scores(g, V, Y, weights, kept, g_weights)
    to_v = OPS["MatMul"](_turned(weights if kept is None else Mul(weights, kept)), g)
    to_bias = sum_to(to_scores, bias_shape) if needs[3] and bias_shape is not None else None
    return *_to_factors(to_scores, Q, K, scale), to_v, to_bias


@function(
    "Y logs", kind="attention", fused=True, T=FLOATS, T1=FLOATS, T2=(bool_,), amp="lower", nondifferentiable="kept"
)
def BlockwiseAttention(
    Q: T,
    K: T,
    V: T,
    allowed: T2 = None,
    bias: T = None,
    kept: T = None,
    key: UInt64 = None,
    counter: UInt64 = None,
    *,
    causal: int = 0,
    group: int = 1,
    p: float = 0.0,
    scale: float = 1.0,
) -> tuple[T, T1]:
    """(weights·kept)·V with weights softmax(scale·Q·Kᵀ + bias), and the logarithms of the softmax's sums [..., T];
    shapes as in `ScaledAttention`.

    Its kernels make no [..., T, S] of weights, which is what it is for: training on long sequences (Dao et al.,
    FlashAttention, 2022). On a GPU the logarithms are of float32, and 16-bit types may be cuDNN's.

    Args:
        allowed: where attention may go, broadcast to [..., T, S]. A row that may go nowhere gives zeros.
        bias: what is added to the scores, broadcast to [..., T, S]. Its gradient has the size [..., T, S].
        kept: what dropout leaves, factors without a gradient.
        key, counter: in place of `kept`: those of `PhiloxDropout`, with its `p`, which drops weights.
        causal: 1 where position t sees the positions up to t only.
        group: so many heads of Q [..., heads, T, E] share one of K and V.
    """
    weights, logs = _weights(Q, K, allowed, bias, causal, group, scale)
    kept = _kept(kept, key, counter, p, weights)
    weights = weights if kept is None else Mul(weights, kept)
    return OPS["MatMul"](weights, _for_each_head(V, group)), OPS["Squeeze"](logs, axes_tensor([-1]))


def _kept(
    kept: TensorBase | None, key: TensorBase | None, counter: TensorBase | None, p: float, weights: TensorBase
) -> TensorBase | None:
    """What dropout leaves of the weights."""
    if key is None:
        return kept
    ones = OPS["Expand"](constant(1, weights), OPS["Shape"](weights))
    made: TensorBase = OPS["ox.PhiloxDropout"](ones, key, counter, p=p)
    return made


def _for_each_head(x: TensorBase, group: int) -> TensorBase:
    """The heads of keys or values, each as often as queries share it."""
    return x if group == 1 else repeated(x, group)


def _sum_of_heads(g: TensorBase, like: TensorBase, group: int) -> TensorBase:
    """The gradient of what `_for_each_head` repeated."""
    if group == 1:
        return g
    *lead, rows, width = like.shape
    summed: TensorBase = ReduceSum(reshape_to(g, [*lead, group, rows, width]), axes_tensor([-3]), keepdims=0)
    return summed


def _weights(
    Q: TensorBase, K: TensorBase, allowed: Any, bias: Any, causal: int, group: int, scale: float
) -> tuple[TensorBase, TensorBase]:
    """The weights [..., T, S], and the logarithms of the softmax's sums [..., T, 1]."""
    scores = OPS["MatMul"](Mul(Q, constant(scale, Q)), _turned(_for_each_head(K, group)))
    if bias is not None:
        scores = Add(scores, bias)
        # a row of -inf alone may go nowhere
        somewhere = Not(Equal(OPS["ReduceMax"](scores, axes_tensor([-1]), keepdims=1), constant(-math.inf, Q)))
        allowed = somewhere if allowed is None else And(allowed, somewhere)
    if causal:
        lower = OPS["Trilu"](OPS["Expand"](constant(1, Q), OPS["Shape"](scores)), upper=0)
        seen = Equal(lower, constant(1, Q))
        allowed = seen if allowed is None else And(allowed, seen)
    if allowed is not None:
        scores = Where(allowed, scores, constant(-1e30 if Q.dtype != float16 else -30000.0, Q))
    logs = OPS["ReduceLogSumExp"](scores, axes_tensor([-1]), keepdims=1)
    weights = Exp(Sub(scores, logs))
    return weights if allowed is None else Where(allowed, weights, constant(0, Q)), logs


@function("dQ dK dV", kind="gradient", fused=True, T=FLOATS, T1=FLOATS, T2=(bool_,), amp="widest")
def BlockwiseAttentionGradient(
    g: T,
    Q: T,
    K: T,
    V: T,
    Y: T,
    logs: T1,
    allowed: T2 = None,
    bias: T = None,
    kept: T = None,
    key: UInt64 = None,
    counter: UInt64 = None,
    *,
    causal: int = 0,
    group: int = 1,
    p: float = 0.0,
    scale: float = 1.0,
) -> tuple[T, T, T]:
    """The gradients of Q, K and V, from BlockwiseAttention's outputs."""
    weights, _ = _weights(Q, K, allowed, bias, causal, group, scale)
    kept = _kept(kept, key, counter, p, weights)
    to_q, to_k, to_v, _ = _to_inputs(g, None, Q, K, V, Y, weights, kept, group, scale)
    return to_q, to_k, to_v


def _to_inputs(
    g: TensorBase,
    g_logs: TensorBase | None,
    Q: TensorBase,
    K: TensorBase,
    V: TensorBase,
    Y: TensorBase,
    weights: TensorBase,
    kept: TensorBase | None,
    group: int,
    scale: float,
) -> tuple[TensorBase, ...]:
    """The gradients of Q, K, V and the scores."""
    to_scores = _to_scores(g, _for_each_head(V, group), Y, weights, kept, None)
    if g_logs is not None:
        to_scores = Add(to_scores, Mul(weights, OPS["Unsqueeze"](g_logs, axes_tensor([-1]))))
    to_q, to_k = _to_factors(to_scores, Q, _for_each_head(K, group), scale)
    to_v = OPS["MatMul"](_turned(weights if kept is None else Mul(weights, kept)), g)
    return to_q, _sum_of_heads(to_k, K, group), _sum_of_heads(to_v, V, group), to_scores


@BlockwiseAttention.gradient("Q", "K", "V", "bias")
def _(
    g: TensorBase | None,
    g_logs: TensorBase | None,
    Q: TensorBase,
    K: TensorBase,
    V: TensorBase,
    Y: TensorBase,
    logs: TensorBase,
    allowed: TensorBase | None,
    bias: TensorBase | None,
    kept: TensorBase | None,
    key: TensorBase | None,
    counter: TensorBase | None,
    causal: int,
    group: int,
    p: float,
    scale: float,
    needs: tuple[bool, ...],
) -> tuple[TensorBase | None, ...]:
    if g is not None and g_logs is None and not needs[3]:
        made: tuple[TensorBase, TensorBase, TensorBase] = BlockwiseAttentionGradient(
            g, Q, K, V, Y, logs, allowed, bias, kept, key, counter, causal=causal, group=group, p=p, scale=scale
        )
        return *made, None
    g = Mul(Y, constant(0, Y)) if g is None else g
    weights, _ = _weights(Q, K, allowed, bias, causal, group, scale)
    kept = _kept(kept, key, counter, p, weights)
    *found, to_scores = _to_inputs(g, g_logs, Q, K, V, Y, weights, kept, group, scale)
    return *found, sum_to(to_scores, bias.shape) if needs[3] and bias is not None else None
