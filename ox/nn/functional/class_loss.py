"""Losses of classes: cross_entropy, nll_loss, linear_cross_entropy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox import ops
from ox.amp.policy import by_policy
from ox.core.argument_errors import check_tensor_arguments
from ox.core.constants import ints, scalar_like
from ox.core.mode import values_are_checked
from ox.core.promotion import promote_operands, reading_halves, upcast_half
from ox.core.tensor import is_tensor
from ox.devices.gpu.multi_tensor import is_on_device
from ox.dtypes import HALF_TYPES, float32, is_floating, onnx_type
from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.nn.functional.arguments import one_of
from ox.nn.functional.compiled_call import runs_compiled, runs_on_device
from ox.nn.functional.projections import linear
from ox.nn.functional.reduction import REDUCTIONS, legacy, reduced, same_shape
from ox.ops.index.in_range import check_in_later_runs
from ox.ops.nn.cross_entropy import (
    CLASSES,
    CrossEntropy,
    MeanCrossEntropy,
    MeanSmoothedCrossEntropy,
    SoftCrossEntropy,
    WeightedCrossEntropy,
)
from ox.tensors.tensor import Tensor

__all__ = ["cross_entropy", "linear_cross_entropy", "nll_loss"]


def _cross_entropy_of_halves(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor | None:
    """`cross_entropy` in float32 of scores of float16 or bfloat16 that a GPU's kernels read; else None."""
    reduction = legacy(size_average, reduce, reduction)
    if not (is_tensor(input) and is_tensor(target) and input.array.dtype in HALF_TYPES and reduction in REDUCTIONS):
        return None
    if weight is not None and (not is_tensor(weight) or weight.static_shape != input.array.shape[1:]):
        return None
    if target.array.shape != input.array.shape[:1] or not (0 <= label_smoothing <= 1):
        return None
    if not _runs_on_device(input, target, weight):
        return None
    return _of_rows(input, target, weight, ignore_index, reduction, label_smoothing)


@by_policy
@upcast_half
@reading_halves(_cross_entropy_of_halves)
@check_tensor_arguments
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
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
    reduction = legacy(size_average, reduce, reduction)
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError("label_smoothing must be from 0 to 1", expected="0 to 1", got=str(label_smoothing))
    axis = 0 if input.array.ndim == 1 else 1
    _check_weight("cross_entropy", input, weight, axis)
    if is_floating(target.array.dtype):
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing, axis)
    _check_classes("cross_entropy", input, target, ignore_index, axis)
    fused = target.array.dtype in CLASSES and _runs_fused(input, weight)
    if fused or _runs_on_device(input, target, weight):
        return _of_rows(input, target, weight, ignore_index, reduction, label_smoothing)
    target = _check_later("cross_entropy", input, target, ignore_index, axis)
    logp = ops.LogSoftmax(input, axis=axis)
    return _nll(logp, target, weight, ignore_index, reduction, label_smoothing, axis)


@by_policy
@upcast_half
@check_tensor_arguments
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The negative of log-probabilities [N, C, ...] (or [C]) at the classes [N, ...]. `torch.nn.functional.nll_loss`.
    Arguments and errors as in `cross_entropy`."""
    reduction = legacy(size_average, reduce, reduction)
    axis = 0 if input.array.ndim == 1 else 1
    _check_weight("nll_loss", input, weight, axis)
    _check_classes("nll_loss", input, target, ignore_index, axis)
    target = _check_later("nll_loss", input, target, ignore_index, axis)
    return _nll(input, target, weight, ignore_index, reduction, 0.0, axis)


def _runs_fused(input: Tensor, weight: Tensor | None) -> bool:
    """Whether one call does the rows of these scores; it has no gradient for the weights."""
    fits = weight is None or (weight.array.dtype == float32 and not weight.requires_grad)
    return fits and input.array.ndim == 2 and runs_compiled(input)


def _runs_on_device(input: Tensor, target: Tensor, weight: Tensor | None) -> bool:
    """The same of a GPU."""
    fits = weight is None or (weight.array.dtype == input.array.dtype and not weight.requires_grad)
    return (
        fits
        and input.array.ndim == 2
        and target.array.dtype in CLASSES
        and runs_on_device(input, (float32, *HALF_TYPES))
    )


def _of_rows(
    input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str, smoothing: float
) -> Tensor:
    one_of(reduction, "reduction", REDUCTIONS)
    if reduction == "mean" and (weight is None or is_on_device(input.array)):
        mean: Tensor = (
            MeanSmoothedCrossEntropy(input, target, weight, outputs=1, smoothing=smoothing, ignore_index=ignore_index)
            if smoothing or weight is not None
            else MeanCrossEntropy(input, target, outputs=1, ignore_index=ignore_index)
        )
        return mean
    factor: Any = None
    if reduction == "mean":
        valid = _valid(target, ignore_index)
        factor = _counted(valid, input)
        if weight is not None:
            safe = ops.Where(valid, target, scalar_like(0, target))
            factor = ops.Mul(ops.Gather(weight, safe, axis=0), factor)
    if not smoothing:
        loss: Tensor = (
            CrossEntropy(input, target, outputs=1, ignore_index=ignore_index)
            if weight is None
            else WeightedCrossEntropy(input, target, weight, outputs=1, ignore_index=ignore_index)
        )
        return _summed(loss, factor, reduction)
    direct, _, spread = WeightedCrossEntropy(input, target, weight, outputs=3, ignore_index=ignore_index)
    return _mixed(direct, spread, factor, reduction, smoothing)


def _mixed(loss: Tensor, spread: Tensor, factor: Any, reduction: str, smoothing: float) -> Tensor:
    """Each part has its own mean, so that a total weight of 0 gives NaN whatever the other part is."""
    loss, spread = _summed(loss, factor, reduction), _summed(spread, factor, reduction)
    return ops.Add(ops.Mul(loss, scalar_like(1 - smoothing, loss)), ops.Mul(spread, scalar_like(smoothing, loss)))


def _valid(target: Tensor, ignore_index: int) -> Tensor:
    """Which targets are not ignored."""
    valid: Tensor = ops.Not(ops.Equal(target, scalar_like(ignore_index, target)))
    return valid


def _counted(valid: Tensor, like: Tensor) -> Tensor:
    """1 where a target counts, 0 where it is ignored, in the type of `like`."""
    return ops.Cast(valid, to=onnx_type(like.array.dtype))


def _check_classes(name: str, input: Tensor, target: Tensor, ignore_index: int, axis: int) -> None:
    x, t = input.array, target.array
    if t.dtype.kind not in "iu":
        raise DTypeError(
            f"{name} does not accept targets of type {t.dtype}", expected="int64 classes", hint="target.long()"
        )
    if x.ndim == 0 or t.shape != x.shape[:axis] + x.shape[axis + 1 :]:
        fitting = [*x.shape[:axis], *x.shape[axis + 1 :]]
        raise ShapeError(
            f"{name} cannot score {list(x.shape)} against {list(t.shape)}",
            expected=f"target {fitting} for input {list(x.shape)}",
            got=f"target {list(t.shape)}",
            hint="logits [batch, classes] and classes [batch]"
            if t.shape != x.shape
            else "target.argmax(1), or float probabilities",
        )
    if values_are_checked() and t.size and isinstance(t, np.ndarray):
        low, high, classes = np.minimum.reduce(t, None), np.maximum.reduce(t, None), x.shape[axis]
        if low < 0 or high >= classes:
            wrong = t[((t < 0) | (t >= classes)) & (t != ignore_index)]
            if wrong.size:
                raise ShapeError(f"{name} met a class out of range", expected=f"0 to {classes - 1}", got=str(wrong[0]))


def _check_later(name: str, input: Tensor, target: Tensor, ignore_index: int, axis: int) -> Tensor:
    """The target of a loss whose kernels do not look at the classes, as those of `_of_rows` do."""
    last, what = int(input.array.shape[axis]) - 1, f"{name} met a class out of range"
    checked: Tensor = check_in_later_runs(target, 0, last, what, classes=True, ignored=ignore_index, on_device=True)
    return checked


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
    valid = _valid(target, ignore_index)
    safe = ops.Where(valid, target, scalar_like(0, target))
    counted = _counted(valid, logp)
    weights = None if weight is None else ops.Gather(weight, safe, axis=0)
    factor = counted if weights is None else ops.Mul(weights, counted)
    picked = ops.Squeeze(ops.GatherElements(logp, ops.Unsqueeze(safe, ints(axis)), axis=axis), ints(axis))
    # Where and no factor of 0: the mean of a batch whose targets are all ignored is NaN, and its gradient is 0
    zero = scalar_like(0, logp)
    loss = ops.Where(valid, ops.Neg(picked if weights is None else ops.Mul(picked, weights)), zero)
    if smoothing:
        # the mean over classes of -log p, each class with its weight
        every = logp if weight is None else ops.Mul(logp, _along(weight, logp, axis))
        spread = ops.Where(valid, ops.Neg(ops.ReduceMean(every, ints(axis), keepdims=0)), zero)
        return _mixed(loss, spread, factor, reduction, smoothing)
    return _summed(loss, factor, reduction)


def _summed(loss: Tensor, factor: Tensor, reduction: str) -> Tensor:
    """The loss, its sum, or its mean by the weights of what is counted."""
    if reduction == "none":
        return loss
    total = ops.ReduceSum(loss, keepdims=0)
    return total if reduction == "sum" else ops.Div(total, ops.ReduceSum(factor, keepdims=0))


def _along(weight: Tensor, x: Tensor, axis: int) -> Tensor:
    """[C] as [1, C, 1, ...], to broadcast along `axis`."""
    return ops.Reshape(weight, ints(*[-1 if i == axis else 1 for i in range(x.array.ndim)]))


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float, axis: int
) -> Tensor:
    if target.array.ndim == input.array.ndim - 1:
        raise ShapeError(
            "cross_entropy takes classes as integers",
            expected=f"target int64 {list(target.static_shape)}",
            got=f"target {target.dtype} {list(target.static_shape)}",
            hint=f"target.long(), or .astype('int64') where it is made; probabilities are {list(input.static_shape)}",
        )  # fmt: skip
    same_shape("cross_entropy with probabilities", input, target)
    x, t = promote_operands(input, target)
    if t.array.dtype == float32 and _runs_fused(x, weight):
        return reduced(SoftCrossEntropy(x, t, weight, outputs=1, smoothing=smoothing), reduction)
    if smoothing:
        t = t * (1 - smoothing) + smoothing / x.static_shape[axis]
    logp = ops.LogSoftmax(x, axis=axis)
    if weight is not None:
        logp = ops.Mul(logp, _along(weight, logp, axis))
    loss = ops.Neg(ops.ReduceSum(ops.Mul(logp, t), ints(axis), keepdims=0))
    return reduced(loss, reduction)


def _check_weight(name: str, input: Tensor, weight: Tensor | None, axis: int) -> None:
    x = input.array
    if weight is not None and (x.ndim == 0 or weight.static_shape != x.shape[axis : axis + 1]):
        raise ShapeError(
            f"{name} takes one weight a class",
            expected=f"weight {list(x.shape[axis : axis + 1])}",
            got=f"weight {list(weight.static_shape)}",
        )


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """`cross_entropy` of `linear(input, linear_weight, linear_bias)`: input [N, in] or [in], weight [C, ..., in].
    `torch.nn.functional.linear_cross_entropy`.

    Args:
        options: how PyTorch works in chunks to save memory; taken and not followed, the result is the same.
    """
    x, w = input.array, linear_weight.array
    lead = x.shape[:-1]
    if x.ndim not in (1, 2) or w.ndim < 2 or x.shape[-1] != w.shape[-1] or (w.ndim > 2 and x.ndim == 1):
        raise ShapeError(
            "linear_cross_entropy takes input [N, in] or [in] and linear_weight [C, ..., in]",
            got=f"{list(x.shape)} and {list(w.shape)}",
        )
    if linear_bias is not None and linear_bias.static_shape != w.shape[:-1]:
        raise ShapeError(
            "a bias does not fit",
            expected=f"linear_bias {list(w.shape[:-1])}",
            got=f"linear_bias {list(linear_bias.static_shape)}",
        )
    if ignore_index is not None and target.static_shape == (*lead, *w.shape[:-1]):
        raise ArgumentError("ignore_index is for classes, not for probabilities")
    rows = linear_weight if w.ndim == 2 else linear_weight.reshape(-1, w.shape[-1])
    bias = linear_bias if linear_bias is None or w.ndim == 2 else linear_bias.reshape(-1)
    logits = linear(input, rows, bias)
    if w.ndim > 2:
        logits = logits.reshape(-1, *w.shape[:-1])
    return cross_entropy(
        logits,
        target,
        weight,
        ignore_index=-100 if ignore_index is None else ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
