"""Losses that ONNX has as operators: NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss."""

from typing import Any

import numpy as np

from ox.core.constants import axes_tensor, constant, number
from ox.core.operator import OPS, operator
from ox.core.symbolic import size_tensor
from ox.core.tensor import TensorBase
from ox.core.types import XP, Array, T, Tind
from ox.devices.summation import sum_over
from ox.dtypes import FLOATS, int32, int64, onnx_type
from ox.errors import ArgumentError, ShapeError
from ox.ops.elementwise.arithmetic import Add, Div, Exp, Mul, Neg, Sub
from ox.ops.elementwise.comparison import Equal, Where
from ox.ops.nn.normalization import as_type, computed_type, widely
from ox.ops.reduce.reduction import ReduceSum

__all__ = ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"]

REDUCTIONS = ("mean", "sum", "none")


@operator(
    "loss",
    kind="loss",
    T=FLOATS,
    Tind=(int32, int64),
    ignore_fp_warnings=True,
    amp="float32",
    batching="each",
)
def NegativeLogLikelihoodLoss(
    xp: XP, input: T, target: Tind, weight: T = None, *, ignore_index: int | None = None, reduction: str = "mean"
) -> T:
    """Minus the log-probabilities input [N, C, ...] at the classes target [N, ...], each times weight [C] at its class.

    The mean divides by the sum of the weights. Targets of `ignore_index` count nothing.
    ONNX NegativeLogLikelihoodLoss, `torch.nn.functional.nll_loss`.
    """
    _check("NegativeLogLikelihoodLoss", input, target, weight, reduction)
    return _scored(xp, widely(input), target, weight, ignore_index, reduction).astype(input.dtype, copy=False)


@operator(
    "output log_prob",
    kind="loss",
    T=FLOATS,
    Tind=(int32, int64),
    ignore_fp_warnings=True,
    amp="float32",
    batching="each",
)
def SoftmaxCrossEntropyLoss(
    xp: XP,
    scores: T,
    labels: Tind,
    weights: T = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    outputs: int = 1,
) -> tuple[T, T]:
    """`NegativeLogLikelihoodLoss` of LogSoftmax(scores, axis=1), which is the second output.
    ONNX SoftmaxCrossEntropyLoss, `torch.nn.functional.cross_entropy`."""
    _check("SoftmaxCrossEntropyLoss", scores, labels, weights, reduction)
    x = widely(scores)
    logp = x - x.max(axis=1, keepdims=True)
    logp -= xp.log(sum_over(xp, xp.exp(logp), (1,), True))
    loss = _scored(xp, logp, labels, weights, ignore_index, reduction).astype(scores.dtype, copy=False)
    return loss if outputs == 1 else (loss, logp.astype(scores.dtype, copy=False))


def _check(name: str, x: Array, target: Array, weight: Any, reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise ArgumentError(f"{name} has no reduction {reduction!r}", expected=" or ".join(map(repr, REDUCTIONS)))
    if x.ndim < 2 or target.shape != (x.shape[0], *x.shape[2:]):
        raise ShapeError(
            f"{name} cannot score {list(x.shape)} against {list(target.shape)}",
            expected="input [N, C, ...] and target [N, ...]",
        )
    if weight is not None and weight.shape != x.shape[1:2]:
        raise ShapeError(f"{name} needs a weight a class", expected=f"[{x.shape[1]}]", got=str(list(weight.shape)))


def _scored(xp: XP, logp: Array, target: Array, weight: Any, ignored: int | None, reduction: str) -> Array:
    counted = xp.ones(target.shape, bool) if ignored is None else target != ignored
    safe = xp.where(counted, target, target.dtype.type(0))
    if xp is np and safe.size and (safe.min() < 0 or safe.max() >= logp.shape[1]):
        wrong = safe[(safe < 0) | (safe >= logp.shape[1])][0]
        raise ShapeError("a class is out of range", expected=f"0 to {logp.shape[1] - 1}", got=str(wrong))
    factor = counted.astype(logp.dtype) if weight is None else widely(weight)[safe] * counted
    loss = -xp.take_along_axis(logp, xp.expand_dims(safe, 1), axis=1).squeeze(1) * factor
    loss = loss if ignored is None else xp.where(counted, loss, loss.dtype.type(0))
    if reduction == "none":
        return loss
    total = xp.asarray(_sum(xp, loss))
    return total if reduction == "sum" else xp.asarray(total / _sum(xp, factor))


def _sum(xp: XP, x: Array) -> Array:
    return sum_over(xp, x, tuple(range(x.ndim)))


@NegativeLogLikelihoodLoss.gradient("input")
def _(
    g: TensorBase,
    target: TensorBase,
    weight: TensorBase | None,
    input_shape: tuple[int, ...],
    input_dtype: Any,
    ignore_index: int | None,
    reduction: str,
) -> TensorBase:
    g = as_type(g, computed_type(input_dtype))
    return as_type(_to_log_probabilities(g, target, weight, input_shape, ignore_index, reduction), input_dtype)


@SoftmaxCrossEntropyLoss.gradient("scores")
def _(
    g: TensorBase | None,
    g_log: TensorBase | None,
    labels: TensorBase,
    weights: TensorBase | None,
    log_prob: TensorBase,
    scores_dtype: Any,
    ignore_index: int | None,
    reduction: str,
) -> TensorBase | None:
    wide, back = computed_type(scores_dtype), None
    if g is not None:
        back = _to_log_probabilities(as_type(g, wide), labels, weights, log_prob.shape, ignore_index, reduction)
    if g_log is not None:
        back = as_type(g_log, wide) if back is None else Add(back, as_type(g_log, wide))
    if back is None:
        return None
    total = ReduceSum(back, axes_tensor([1]), keepdims=1)
    return as_type(Sub(back, Mul(Exp(as_type(log_prob, wide)), total)), scores_dtype)


def _to_log_probabilities(
    g: TensorBase, target: TensorBase, weight: TensorBase | None, shape: Any, ignored: int | None, reduction: str
) -> TensorBase:
    """The cotangent of log-probabilities [N, C, ...]: nothing but at each example's class."""
    zero, one = constant(0, g), constant(1, g)
    safe, counted, out = target, one, None
    if ignored is not None:
        out = Equal(target, number(ignored, target.dtype))
        safe = Where(out, number(0, target.dtype), target)
        counted = Where(out, zero, one)
    factor = counted if weight is None else Mul(OPS["Gather"](as_type(weight, g.dtype), safe, axis=0), counted)
    if reduction == "mean":
        ones = OPS["Expand"](factor, OPS["Shape"](target))
        g = Div(g, ReduceSum(ones, keepdims=0))
    value = Neg(Mul(g, factor))
    if out is not None:  # where all targets are ignored, g is infinite
        value = Where(out, zero, value)
    if not value.array.ndim:
        value = OPS["Expand"](value, OPS["Shape"](target))
    kind = target.dtype
    stop = OPS["Squeeze"](size_tensor([shape[1]]), axes_tensor([0]))
    stop = stop if kind == int64 else OPS["Cast"](stop, to=onnx_type(kind))
    classes = OPS["Range"](number(0, kind), stop, number(1, kind))
    if len(shape) > 2:
        classes = OPS["Unsqueeze"](classes, axes_tensor(range(1, len(shape) - 1)))
    along = axes_tensor([1])
    return Where(Equal(OPS["Unsqueeze"](safe, along), classes), OPS["Unsqueeze"](value, along), zero)
