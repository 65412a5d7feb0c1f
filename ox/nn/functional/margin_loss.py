"""Losses of margins: between examples, and between the right class and the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ox import ops
from ox.amp.policy import by_policy
from ox.core.constants import ints, on_device_of, scalar, scalar_like
from ox.core.mode import values_are_checked
from ox.core.promotion import promote_operands, upcast_half
from ox.dtypes import onnx_type
from ox.errors import ArgumentError, ShapeError
from ox.functions import neg, pairwise_distance
from ox.functions.operand_arguments import floating as floats
from ox.nn.functional.activation import logsigmoid
from ox.nn.functional.reduction import broadcastable, classes, floating, legacy, reduced
from ox.ops.index.in_range import check_in_later_runs
from ox.tensors.tensor import Tensor

__all__ = [
    "cosine_embedding_loss", "hinge_embedding_loss", "margin_ranking_loss", "multi_margin_loss",
    "multilabel_margin_loss", "multilabel_soft_margin_loss", "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]  # fmt: skip


def _positive_part(x: Tensor) -> Tensor:
    return ops.Clip(x, scalar_like(0.0, x))


@by_policy
@upcast_half
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The input where target is 1, max(0, margin - input) where it is -1.
    `torch.nn.functional.hinge_embedding_loss`."""
    x, t = promote_operands(input, target)
    zero = scalar_like(0.0, x)
    apart = ops.Where(ops.Equal(t, scalar_like(1, t)), zero, _positive_part(ops.Sub(scalar_like(margin, x), x)))
    near = ops.Where(ops.Equal(t, scalar_like(-1, t)), zero, x)
    return reduced(ops.Add(near, apart), legacy(size_average, reduce, reduction))


@by_policy
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos where target is 1, max(0, cos - margin) where it is -1; inputs [N, D] with target [N], or [D] with [].
    `torch.nn.functional.cosine_embedding_loss`."""
    reduction = legacy(size_average, reduce, reduction)
    rank = target.array.ndim
    if rank > 1 or input1.array.ndim != rank + 1 or input2.array.ndim != rank + 1:
        raise ShapeError(
            "cosine_embedding_loss takes inputs [N, D] with target [N], or [D] with []",
            got=", ".join(str(list(x.static_shape)) for x in (input1, input2, target)),
        )

    @upcast_half
    def loss(a: Tensor, b: Tensor) -> Tensor:  # the target decides on no type
        last, tiny = ints(-1), scalar_like(1e-12, a)
        products = [ops.ReduceSum(ops.Mul(x, y), last, keepdims=0) for x, y in ((a, b), (a, a), (b, b))]
        lengths = ops.Sqrt(ops.Mul(ops.Add(products[1], tiny), ops.Add(products[2], tiny)))
        cos = ops.Div(products[0], lengths)
        zero = scalar_like(0.0, cos)
        near = ops.Where(ops.Equal(target, scalar_like(1, target)), ops.Sub(scalar_like(1.0, cos), cos), zero)
        apart = _positive_part(ops.Sub(cos, scalar_like(margin, cos)))
        return reduced(ops.Add(near, ops.Where(ops.Equal(target, scalar_like(-1, target)), apart, zero)), reduction)

    return loss(*promote_operands(floats(input1), floats(input2)))


@by_policy
@upcast_half
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin - target·(input1 - input2)): target 1 where the first should be larger, else -1.
    `torch.nn.functional.margin_ranking_loss`."""
    if not input1.array.ndim == input2.array.ndim == target.array.ndim:
        raise ShapeError(
            "margin_ranking_loss takes tensors of one number of dimensions",
            got=", ".join(str(list(x.static_shape)) for x in (input1, input2, target)),
        )
    difference = ops.Sub(*promote_operands(input1, input2))
    product = ops.Mul(*promote_operands(neg(difference), target))
    product = floats(product)
    loss = _positive_part(ops.Add(product, scalar_like(margin, product)))
    return reduced(loss, legacy(size_average, reduce, reduction))


@by_policy
@upcast_half
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin + |anchor - positive| - |anchor - negative|) with p-norms over the last dimension.
    `torch.nn.functional.triplet_margin_loss`.

    Args:
        swap: where the positive is nearer to the negative than the anchor is, take that distance.
    """

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return pairwise_distance(a, b, p, eps)

    return _triplet(anchor, positive, negative, distance, margin, swap, legacy(size_average, reduce, reduction))


@upcast_half
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` with another distance; default `pairwise_distance`.
    `torch.nn.functional.triplet_margin_with_distance_loss`."""
    return _triplet(anchor, positive, negative, distance_function or pairwise_distance, margin, swap, reduction)


def _triplet(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    distance: Callable[[Tensor, Tensor], Tensor],
    margin: float,
    swap: bool,
    reduction: str,
) -> Tensor:
    if margin <= 0:
        raise ArgumentError("a triplet's margin is more than 0", got=str(margin))
    if not anchor.array.ndim == positive.array.ndim == negative.array.ndim:
        raise ShapeError(
            "a triplet's tensors have one number of dimensions",
            got=", ".join(str(list(x.static_shape)) for x in (anchor, positive, negative)),
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = ops.Min(far, distance(positive, negative))
    return reduced(_positive_part(ops.Add(ops.Sub(near, far), scalar_like(margin, near))), reduction)


def _rows(name: str, input: Tensor) -> Tensor:
    """[N, C], of which N may have been left out, and C where there is one class."""
    floating(name, input)
    if input.array.ndim > 2 or (not input.static_shape[-1:] > (0,) and input.array.ndim):
        raise ShapeError(f"{name} takes input [N, C] or [C]", got=f"input {list(input.static_shape)}")
    return input if input.array.ndim == 2 else ops.Reshape(input, ints(1, -1))


def _checked(name: str, target: Tensor, low: int, count: int) -> Tensor:
    t, outside = target.array, f"{name} met a class out of range"
    if values_are_checked() and t.size and isinstance(t, np.ndarray) and (int(t.min()) < low or int(t.max()) >= count):
        wrong = int(t.min()) if int(t.min()) < low else int(t.max())
        raise ShapeError(outside, expected=f"{low} to {count - 1}", got=str(wrong))
    checked: Tensor = check_in_later_runs(target, low, count - 1, outside, classes=True, on_device=True)
    return checked


@by_policy
@upcast_half
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The sum over the other classes of max(0, margin - x[target] + x[i])^p, times weight[target], divided by C.
    input [N, C] and target [N], or [C] and []. `torch.nn.functional.multi_margin_loss`."""
    reduction = legacy(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ArgumentError("multi_margin_loss has no such p", expected="1 or 2", got=str(p))
    x = _rows("multi_margin_loss", input)
    count = x.static_shape[1]
    alone = input.array.ndim < 2
    classes(
        "multi_margin_loss",
        target,
        target.static_shape if alone and target.array.size == 1 else input.static_shape[:-1],
        input.static_shape,
    )
    target = _checked("multi_margin_loss", target, 0, count)
    if weight is not None and weight.static_shape != (count,):
        raise ShapeError("multi_margin_loss takes one weight a class", got=str(list(weight.static_shape)))
    chosen = ops.Reshape(target, ints(1)) if alone else target
    column = ops.Unsqueeze(chosen, ints(1))
    right = ops.GatherElements(x, column, axis=1)
    short = ops.Relu(ops.Add(ops.Sub(x, right), scalar_like(margin, x)))
    short = ops.Mul(short, short) if p == 2 else short
    if weight is not None:
        short = ops.Mul(short, ops.Unsqueeze(ops.Gather(weight, chosen, axis=0), ints(1)))
    own = ops.Equal(column, _numbers(count, target))
    short = ops.Where(own, scalar_like(0.0, x), short)
    loss = ops.ReduceMean(short, ints(1), keepdims=0)
    return reduced(ops.Reshape(loss, ints(*target.static_shape)) if alone else loss, reduction)


def _numbers(count: int, like: Tensor) -> Tensor:
    """0, 1, ... count - 1 in the type of `like`."""
    made: Any = ops.Range(*(scalar(n, np.dtype(np.int64)) for n in (0, count, 1)))
    made = made if like.array.dtype == np.int64 else ops.Cast(made, to=onnx_type(like.array.dtype))
    return on_device_of(made, like)


@by_policy
@upcast_half
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The sum of max(0, 1 - x[j] + x[i]) over the target's classes j and all others i, divided by C.

    input [N, C] or [C], target of that shape: the classes up to the first -1 count.
    `torch.nn.functional.multilabel_margin_loss`.
    """
    reduction = legacy(size_average, reduce, reduction)
    x = _rows("multilabel_margin_loss", input)
    count = x.static_shape[1]
    classes("multilabel_margin_loss", target, input.static_shape, input.static_shape)
    target = _checked("multilabel_margin_loss", target, -1, count)
    t = target if target.array.ndim == 2 else ops.Reshape(target, ints(1, -1))
    ended = ops.Cast(ops.Less(t, scalar_like(0, t)), to=onnx_type(np.dtype(np.int64)))
    counted = ops.Equal(ops.CumSum(ended, scalar(1, np.dtype(np.int64))), scalar(0, np.dtype(np.int64)))
    safe = ops.Where(counted, t, scalar_like(0, t))
    valid = ops.Unsqueeze(counted, ints(2))
    # [N, labels, C]: which class a label means
    meant = ops.And(ops.Equal(ops.Unsqueeze(safe, ints(2)), _numbers(count, t)), valid)
    kind = onnx_type(x.array.dtype)
    among = ops.ReduceMax(ops.Cast(meant, to=kind), ints(1), keepdims=1)
    right = ops.Unsqueeze(ops.GatherElements(x, safe, axis=1), ints(2))
    short = ops.Relu(ops.Add(ops.Sub(ops.Unsqueeze(x, ints(1)), right), scalar_like(1.0, x)))
    short = ops.Mul(ops.Mul(short, ops.Cast(valid, to=kind)), ops.Sub(scalar_like(1.0, x), among))
    loss = ops.Div(ops.ReduceSum(short, ints(1, 2), keepdims=0), scalar_like(float(count), x))
    return reduced(loss if target.array.ndim == 2 else ops.Squeeze(loss, ints(0)), reduction)


@by_policy
@upcast_half
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over the last dimension of -(t·log σ(x) + (1 - t)·log σ(-x)), times weight.
    `torch.nn.functional.multilabel_soft_margin_loss`."""
    reduction = legacy(size_average, reduce, reduction)
    broadcastable("multilabel_soft_margin_loss", input, target)
    x, t = promote_operands(input, target)
    one = scalar_like(1.0, x)
    loss = ops.Neg(ops.Add(ops.Mul(t, logsigmoid(x)), ops.Mul(ops.Sub(one, t), logsigmoid(ops.Neg(x)))))
    loss = loss if weight is None else loss * weight
    return reduced(ops.ReduceMean(loss, ints(-1), keepdims=0), reduction)
