"""Losses that compare values one by one. `reduction` is "mean", "sum" or "none"."""

from __future__ import annotations

import math

from ox import ops
from ox.amp.policy import by_policy
from ox.core.argument_errors import check_tensor_arguments
from ox.core.constants import scalar_like
from ox.core.mode import values_are_checked
from ox.core.promotion import promote_operands, upcast_half
from ox.devices import cuda_state
from ox.errors import ArgumentError, ShapeError
from ox.functions.operand_arguments import floating as floats
from ox.nn.functional.arguments import one_of
from ox.nn.functional.reduction import REDUCTIONS, broadcastable, floating, legacy, reduced, same_shape
from ox.ops.nn.binary_cross_entropy import BinaryCrossEntropy
from ox.tensors.tensor import Tensor

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "gaussian_nll_loss", "huber_loss", "kl_div", "l1_loss",
    "mse_loss", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss",
]  # fmt: skip


def _weighted(loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """With a weight for each value the mean divides by their sum."""
    if weight is None:
        return reduced(loss, reduction)
    same_shape("a weighted loss", loss, weight)
    loss, weight = promote_operands(loss, weight)
    total = reduced(ops.Mul(loss, weight), "sum" if reduction == "mean" else reduction)
    return ops.Div(total, ops.ReduceSum(weight, keepdims=0)) if reduction == "mean" else total


@by_policy
@upcast_half
@check_tensor_arguments
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """(input - target)²; with a `weight` of the result's shape the mean is a weighted one.
    `torch.nn.functional.mse_loss`."""
    broadcastable("mse_loss", input, target)
    x, t = promote_operands(input, target)
    floating("mse_loss", x)
    difference = ops.Sub(x, t)
    return _weighted(ops.Mul(difference, difference), weight, legacy(size_average, reduce, reduction))


@by_policy
@upcast_half
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """abs(input - target); with a `weight` of the result's shape the mean is a weighted one.
    `torch.nn.functional.l1_loss`."""
    broadcastable("l1_loss", input, target)
    return _weighted(
        ops.Abs(ops.Sub(*promote_operands(input, target))), weight, legacy(size_average, reduce, reduction)
    )


@by_policy
@upcast_half
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """With d = abs(input - target): d²/(2·beta) below beta, d - beta/2 from there on.
    `torch.nn.functional.smooth_l1_loss`."""
    reduction = legacy(size_average, reduce, reduction)
    if beta < 0:
        raise ArgumentError("beta is 0 or more", got=str(beta))
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    broadcastable("smooth_l1_loss", input, target)
    x, t = promote_operands(input, target)
    floating("smooth_l1_loss", x)
    difference = ops.Sub(x, t)
    size = ops.Abs(difference)
    inside, inner = _inner(difference, size, beta)
    near = ops.Mul(ops.Mul(inner, inner), scalar_like(0.5 / beta, size))
    far = ops.Sub(size, scalar_like(0.5 * beta, size))
    return reduced(ops.Where(inside, near, far), reduction)


def _inner(difference: Tensor, size: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """Which differences are less than a bound, and these; elsewhere 0, for a square may be infinite there."""
    inside = ops.Less(size, scalar_like(bound, size))
    return inside, ops.Where(inside, difference, scalar_like(0.0, size))


@by_policy
@upcast_half
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """With d = abs(input - target): d²/2 up to delta, delta·(d - delta/2) beyond. `torch.nn.functional.huber_loss`."""
    if delta <= 0:
        raise ArgumentError("delta is more than 0", got=str(delta))
    broadcastable("huber_loss", input, target)
    x, t = promote_operands(input, target)
    floating("huber_loss", x)
    difference = ops.Sub(x, t)
    size = ops.Abs(difference)
    inside, inner = _inner(difference, size, delta)
    near = ops.Mul(ops.Mul(inner, inner), scalar_like(0.5, size))
    far = ops.Mul(ops.Sub(size, scalar_like(0.5 * delta, size)), scalar_like(delta, size))
    loss = ops.Where(inside, near, far)
    return reduced(loss if weight is None else loss * weight, reduction)


@by_policy
@upcast_half
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-(t·log x + (1 - t)·log(1 - x)) of probabilities, each logarithm at least -100; `weight` is broadcast.
    `torch.nn.functional.binary_cross_entropy`.

    Raises:
        ArgumentError: (outside a recording) an input outside 0 to 1.
    """
    reduction = legacy(size_average, reduce, reduction)
    same_shape("binary_cross_entropy", input, target)
    floating("binary_cross_entropy", input, target)
    x, t = promote_operands(input, target)
    if values_are_checked() and x.array.size:
        with cuda_state.at(x.array):
            low, high = float(x.array.min()), float(x.array.max())
        if low < 0 or high > 1:
            raise ArgumentError(
                "binary_cross_entropy takes probabilities",
                expected="0 to 1",
                got=str(low if low < 0 else high),
                hint="binary_cross_entropy_with_logits for what no sigmoid has seen",
            )
    loss: Tensor = BinaryCrossEntropy(x, t)
    return reduced(loss if weight is None else loss * weight, reduction)


@by_policy
@upcast_half
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """-(pos_weight·t·log σ(x) + (1 - t)·log(1 - σ(x))), without overflow, of equal shapes.
    `torch.nn.functional.binary_cross_entropy_with_logits`.

    Args:
        weight: factor of each element, broadcast.
        pos_weight: factor of the positive part, broadcast (one a class for [N, classes]).
    """
    reduction = legacy(size_average, reduce, reduction)
    same_shape("binary_cross_entropy_with_logits", input, target)
    floating("binary_cross_entropy_with_logits", input, target)
    x, t = promote_operands(input, target)
    # -log σ(x) = ops.Softplus(-x) = softplus(x) - x, so the loss is (1 - t)·x + f·(softplus(x) - x), f = 1 + (p - 1)·t
    positive = ops.Softplus(ops.Neg(x))
    if pos_weight is not None:
        positive = ops.Mul(positive, (pos_weight - 1.0) * t + 1.0)
    loss = ops.Add(ops.Mul(1.0 - t, x), positive)
    return reduced(loss if weight is None else loss * weight, reduction)


@by_policy
@upcast_half
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """target·(log target - input), where input holds log-probabilities and, with `log_target`, target too; broadcast.
    `torch.nn.functional.kl_div`.

    Args:
        reduction: also "batchmean", the sum divided by the first size, which is the divergence itself.
    """
    reduction = one_of(legacy(size_average, reduce, reduction), "reduction", ("batchmean", *REDUCTIONS))
    floating("kl_div", input, target)
    x, t = promote_operands(input, target)
    if log_target:
        loss = ops.Mul(ops.Exp(t), ops.Sub(t, x))
    else:
        loss = ops.Sub(_log_times(t), ops.Mul(t, x))
    if reduction == "batchmean":
        count = input.shape[0] if input.array.ndim else 1
        return ops.Div(ops.ReduceSum(loss, keepdims=0), scalar_like(count, loss))
    return reduced(loss, reduction)


def _log_times(t: Tensor) -> Tensor:
    """t·log t, 0 at 0."""
    none = ops.Equal(t, scalar_like(0.0, t))
    return ops.Where(none, scalar_like(0.0, t), ops.Mul(t, ops.Log(ops.Where(none, scalar_like(1.0, t), t))))


@by_policy
@upcast_half
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """exp(x) - t·x, or without `log_input` x - t·log(x + eps); `full` adds Stirling's term where t > 1.
    `torch.nn.functional.poisson_nll_loss`."""
    reduction = legacy(size_average, reduce, reduction)
    x, t = promote_operands(floats(input), floats(target))
    if log_input:
        loss = ops.Sub(ops.Exp(x), ops.Mul(t, x))
    else:
        loss = ops.Sub(x, ops.Mul(t, ops.Log(ops.Add(x, scalar_like(eps, x)))))
    if full:
        large = ops.Greater(t, scalar_like(1.0, t))
        safe = ops.Where(large, t, scalar_like(1.0, t))
        stirling = ops.Add(
            ops.Sub(ops.Mul(safe, ops.Log(safe)), safe),
            ops.Mul(ops.Log(ops.Mul(safe, scalar_like(2 * math.pi, t))), scalar_like(0.5, t)),
        )
        loss = ops.Add(loss, ops.Where(large, stirling, scalar_like(0.0, t)))
    return reduced(loss, reduction)


@by_policy
@upcast_half
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log var + (input - target)²/var)/2 with var at least eps; `full` adds log(2π)/2.
    `torch.nn.functional.gaussian_nll_loss`.

    Args:
        var: of the input's shape, or without its last dimension, or with that one of size 1, or one number.

    Raises:
        ShapeError: another shape of var.
        ArgumentError: (outside a recording) a negative variance.
    """
    x, t = promote_operands(input, target)
    floating("gaussian_nll_loss", x)
    v = var if isinstance(var, Tensor) else scalar_like(float(var), x)
    shape, own = x.static_shape, v.static_shape
    if own != shape and v.array.ndim:
        if shape[:-1] == own:
            v = v.unsqueeze(-1)
        elif shape[:-1] != own[:-1] or own[-1] != 1:
            raise ShapeError("a variance does not fit", expected=f"var {list(shape)}", got=f"var {list(own)}")
    x, v = promote_operands(x, v)
    with cuda_state.at(v.array):
        least = float(v.array.min()) if values_are_checked() and v.array.size else 0.0
    if least < 0:
        raise ArgumentError("a variance is 0 or more", got=str(least))
    # the gradient passes as if nothing were clamped, so that a variance that fell below eps can rise again
    v = ops.Add(v, ops.Sub(ops.Clip(v.detach(), scalar_like(eps, v)), v.detach()))
    difference = ops.Sub(x, t)
    loss = ops.Mul(ops.Add(ops.Log(v), ops.Div(ops.Mul(difference, difference), v)), scalar_like(0.5, x))
    if full:
        loss = ops.Add(loss, scalar_like(0.5 * math.log(2 * math.pi), loss))
    return reduced(loss, reduction)


@by_policy
@upcast_half
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-target·input)) for targets of 1 and -1. `torch.nn.functional.soft_margin_loss`."""
    broadcastable("soft_margin_loss", input, target)
    loss = ops.Softplus(ops.Neg(ops.Mul(*promote_operands(input, target))))
    return reduced(loss, legacy(size_average, reduce, reduction))
