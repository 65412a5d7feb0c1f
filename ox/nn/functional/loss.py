"""Losses. Reductions are "mean", "sum" or "none"."""

from __future__ import annotations

import numpy as np

from ox import ops
from ox.dtypes import is_floating, onnx_type
from ox.errors import DTypeError, ShapeError
from ox.nn.functional.activation import softplus
from ox.nn.functional.common import ints, number, one_of
from ox.operands import meet
from ox.ops.explain import place
from ox.ops.mode import MODE
from ox.tensor import Tensor

REDUCTIONS = ("mean", "sum", "none")


def _reduce(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return ops.ReduceMean(loss, keepdims=0)
    return ops.ReduceSum(loss, keepdims=0) if one_of(reduction, "reduction", REDUCTIONS) == "sum" else loss


def _same_shape(name: str, input: Tensor, target: Tensor) -> None:
    if input.data.shape != target.data.shape:
        raise ShapeError(
            f"{name} compares values one by one",
            where=place(),
            expected=f"target {list(input.data.shape)}",
            got=f"target {list(target.data.shape)}",
            hint="target.reshape(input.shape), or target.unsqueeze(1) for an output of one column",
        )


def mse_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """(input - target)², of equal shapes. `torch.nn.functional.mse_loss`."""
    _same_shape("mse_loss", input, target)
    difference = ops.Sub(*meet(input, target))
    return _reduce(ops.Mul(difference, difference), reduction)


def l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """abs(input - target), of equal shapes. `torch.nn.functional.l1_loss`."""
    _same_shape("l1_loss", input, target)
    return _reduce(ops.Abs(ops.Sub(*meet(input, target))), reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """-(pos_weight·t·log σ(x) + (1 - t)·log(1 - σ(x))), without overflow, of equal shapes.
    `torch.nn.functional.binary_cross_entropy_with_logits`.

    Args:
        weight: factor of each element, broadcast.
        pos_weight: factor of the positive part, broadcast (one a class for [N, classes]).
    """
    _same_shape("binary_cross_entropy_with_logits", input, target)
    x, t = meet(input, target)
    # -log σ(x) = softplus(-x) = softplus(x) - x, so the loss is (1 - t)·x + f·(softplus(x) - x), f = 1 + (p - 1)·t
    positive = softplus(ops.Neg(x))
    if pos_weight is not None:
        positive = ops.Mul(positive, (pos_weight - 1.0) * t + 1.0)
    loss = ops.Add(ops.Mul(1.0 - t, x), positive)
    return _reduce(loss if weight is None else loss * weight, reduction)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of logits [N, C, ...] (or [C]) with classes [N, ...] of an integer type, or with probabilities of
    the logits' shape. `torch.nn.functional.cross_entropy`.

    Args:
        weight: [C], one factor a class.
        ignore_index: targets of this value count nothing.
        label_smoothing: 0 to 1; this part of each target is spread over all classes.

    Raises:
        ShapeError: shapes that do not fit, or (outside a recording) a class out of range.
        DTypeError: a target that is neither integer nor floating.
    """
    axis = 0 if input.data.ndim == 1 else 1
    if is_floating(target.data.dtype):
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing, axis)
    _check_classes("cross_entropy", input, target, ignore_index, axis)
    logp = ops.LogSoftmax(input, axis=axis)
    return _nll(logp, target, weight, ignore_index, reduction, label_smoothing, axis)


def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """The negative of log-probabilities [N, C, ...] (or [C]) at the classes [N, ...]. `torch.nn.functional.nll_loss`.
    Arguments and errors as in `cross_entropy`."""
    axis = 0 if input.data.ndim == 1 else 1
    _check_classes("nll_loss", input, target, ignore_index, axis)
    return _nll(input, target, weight, ignore_index, reduction, 0.0, axis)


def _check_classes(name: str, input: Tensor, target: Tensor, ignore_index: int, axis: int) -> None:
    x, t = input.data, target.data
    if t.dtype.kind not in "iu":
        raise DTypeError(
            f"{name} does not take a {t.dtype} target", where=place(), expected="int64 classes", hint="target.long()"
        )
    if x.ndim == 0 or t.shape != x.shape[:axis] + x.shape[axis + 1 :]:
        fitting = [*x.shape[:axis], *x.shape[axis + 1 :]]
        raise ShapeError(
            f"{name} cannot score {list(x.shape)} against {list(t.shape)}",
            where=place(),
            expected=f"target {fitting} for input {list(x.shape)}",
            got=f"target {list(t.shape)}",
            hint="logits [batch, classes] and classes [batch]"
            if t.shape != x.shape
            else "target.argmax(1), or float probabilities",
        )
    if MODE.get().recording is None and t.size and isinstance(t, np.ndarray):
        low, high, classes = t.min(), t.max(), x.shape[axis]
        if low < 0 or high >= classes:
            wrong = t[((t < 0) | (t >= classes)) & (t != ignore_index)]
            if wrong.size:
                raise ShapeError(
                    f"{name} met a class out of range", where=place(), expected=f"0 to {classes - 1}", got=str(wrong[0])
                )


def _nll(
    logp: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    smoothing: float,
    axis: int,
) -> Tensor:
    one_of(reduction, "reduction", REDUCTIONS)
    valid = ops.Not(ops.Equal(target, number(ignore_index, target)))
    safe = ops.Where(valid, target, number(0, target))
    counted = ops.Cast(valid, to=onnx_type(logp.data.dtype))  # 1 where a target counts, 0 where it is ignored
    factor = counted if weight is None else ops.Mul(ops.Gather(weight, safe, axis=0), counted)
    picked = ops.Squeeze(ops.GatherElements(logp, ops.Unsqueeze(safe, ints(axis)), axis=axis), ints(axis))
    loss = ops.Neg(ops.Mul(picked, factor))
    spread = None
    if smoothing:
        # the mean over classes of -log p, each class with its weight
        every = logp if weight is None else ops.Mul(logp, _along(weight, logp, axis))
        spread = ops.Neg(ops.Mul(ops.ReduceMean(every, ints(axis), keepdims=0), counted))
        loss = ops.Add(ops.Mul(loss, number(1 - smoothing, loss)), ops.Mul(spread, number(smoothing, loss)))
    if reduction == "none":
        return loss
    total = ops.ReduceSum(loss, keepdims=0)
    return total if reduction == "sum" else ops.Div(total, ops.ReduceSum(factor, keepdims=0))


def _along(weight: Tensor, x: Tensor, axis: int) -> Tensor:
    """[C] as [1, C, 1, ...], to broadcast along `axis`."""
    return ops.Reshape(weight, ints(*[-1 if i == axis else 1 for i in range(x.data.ndim)]))


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float, axis: int
) -> Tensor:
    _same_shape("cross_entropy with probabilities", input, target)
    x, t = meet(input, target)
    if smoothing:
        t = t * (1 - smoothing) + smoothing / x.data.shape[axis]
    logp = ops.LogSoftmax(x, axis=axis)
    if weight is not None:
        logp = ops.Mul(logp, _along(weight, logp, axis))
    loss = ops.Neg(ops.ReduceSum(ops.Mul(logp, t), ints(axis), keepdims=0))
    return _reduce(loss, reduction)
