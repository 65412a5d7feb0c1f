"""Normalization over the batch, over examples and over features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox import ops
from ox.amp.policy import by_policy
from ox.core.argument_errors import check_tensor_arguments
from ox.core.constants import full, ints, scalar_like
from ox.core.mode import MODE, switch_mode
from ox.core.promotion import row_major, upcast_half
from ox.core.symbolic import Dim, size_tensor
from ox.dtypes import DType, int64
from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.functions import finfo
from ox.functions.out_argument import write
from ox.nn.functional.arguments import product
from ox.nn.functional.reduction import floating
from ox.ops.nn.normalization import computed_type
from ox.ops.nn.rms_norm import window_sum
from ox.ops.nn.running_statistics import RunningStatistics
from ox.tensors.tensor import Tensor

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "normalize", "rms_norm"]


@check_tensor_arguments
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize [N, C, ...] over all but dimension 1. `torch.nn.functional.batch_norm`, ONNX BatchNormalization.

    Args:
        running_mean, running_var: [C]; written in place when training (the variance unbiased, as PyTorch has it),
            used instead of the batch's when not. None: the batch's own are used and not kept.
        momentum: the part of the new value in the running ones (1 less ONNX's momentum); a tensor of no dimensions
            for one that changes.
    """
    input = row_major(input)
    x = input.array
    if not training and (running_mean is None or running_var is None):
        raise ArgumentError("batch_norm without training needs running_mean and running_var")
    if (running_mean is None) != (running_var is None):
        raise ArgumentError("batch_norm keeps running_mean and running_var, or neither")
    if x.shape == (0,):  # neither samples nor channels
        return ops.Identity(input)
    given = next((t for t in (running_mean, weight, bias) if t is not None), None)
    if x.ndim < 2 or (given is not None and x.shape[1] != given.static_shape[0]):
        channels = x.shape[1] if given is None else given.static_shape[0]
        raise ShapeError(
            f"BatchNormalization over {channels} channels does not fit {list(x.shape)}",
            expected=f"input [batch, {channels}, ...]",
            got=f"input {list(x.shape)}",
        )
    channels = x.shape[1]
    if given is not None and x.dtype.itemsize > given.array.dtype.itemsize:
        # the operator takes a type for the input and one for the rest, which is for halves
        raise DTypeError(
            f"BatchNormalization over {given.array.dtype} does not take {x.dtype}",
            expected=f"input {given.array.dtype}",
            got=f"input {x.dtype}",
            hint=f"x.to(ox.{given.array.dtype})",
        )
    scale = full(1.0, channels, x.dtype, input.device) if weight is None else weight
    shift = full(0.0, channels, x.dtype, input.device) if bias is None else bias
    nothing = not x.size and MODE.get().recording is None  # whose statistics nobody knows
    if nothing and (running_mean is None or running_var is None):
        running_mean, running_var = (
            full(0.0, channels, x.dtype, input.device),
            full(1.0, channels, x.dtype, input.device),
        )
    if (nothing or not training) and running_mean is not None and running_var is not None:
        return ops.BatchNormalization(input, scale, shift, running_mean, running_var, epsilon=eps)
    # With ONNX's momentum 0 the "running" outputs are the batch's own mean and (biased) variance
    y, mean, var = ops.BatchNormalization(
        input,
        scale,
        shift,
        full(0.0, channels, x.dtype, input.device) if running_mean is None else running_mean,
        full(1.0, channels, x.dtype, input.device) if running_var is None else running_var,
        epsilon=eps,
        momentum=0.0,
        training_mode=1,
        outputs=3,
    )
    if running_mean is not None and running_var is not None and training:
        shape = input.shape
        with switch_mode(grad=False):
            count = product([shape[0], *shape[2:]])
            if count <= 1 and not isinstance(count, Dim):
                raise ShapeError(
                    "batch normalization needs more than one value a channel while training",
                    got=f"input {list(x.shape)}",
                    hint="a larger batch, or model.eval()",
                )
            part = momentum if isinstance(momentum, Tensor) else scalar_like(momentum, running_mean)
            # a recording, for a file or to be compiled, has the operators
            move = RunningStatistics if MODE.get().recording is None else RunningStatistics.body
            moved_mean, moved_var = move(running_mean, running_var, mean, var, part, _unbiased(count, var))
            running_mean.assign(moved_mean, "BatchNorm.running")
            running_var.assign(moved_var, "BatchNorm.running")
    return y


def _unbiased(count: Any, like: Tensor) -> Tensor:
    """n / (n - 1), computed in the graph where the batch size is open."""
    if isinstance(count, Dim):
        return ops.Div(scalar_like(count, like), scalar_like(count - 1, like))
    return scalar_like(count / (count - 1), like)


def _update_running(running: Tensor, now: Tensor, part: Tensor) -> None:
    running.assign(ops.Add(running, ops.Mul(ops.Sub(now, running), part)), "BatchNorm.running")


@check_tensor_arguments
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize over the last dimensions, which must be `normalized_shape`. `torch.nn.functional.layer_norm`,
    ONNX LayerNormalization."""
    input = row_major(input)
    x, shape = input.array, tuple(normalized_shape)
    _check_tail("LayerNormalization", x, shape)
    if weight is None:
        weight = _ones(shape, x.dtype, input.device)
    return ops.LayerNormalization(input, weight, bias, axis=-len(shape), epsilon=eps)


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divide by the root of the mean square over the last dimensions, which must be `normalized_shape`.
    `torch.nn.functional.rms_norm`, ONNX RMSNormalization.

    Args:
        eps: added to the mean; default the smallest step at 1 of the type that is computed in (for halves float32).
    """
    x, shape = input.array, tuple(normalized_shape)
    floating("rms_norm", input)
    _check_tail("RMSNormalization", x, shape)
    if weight is not None and weight.static_shape != shape:
        raise ShapeError("a weight does not fit", expected=f"{list(shape)}", got=str(list(weight.static_shape)))
    if weight is None:
        weight = _ones(shape, x.dtype, input.device)
    step = float(finfo(computed_type(x.dtype)).eps) if eps is None else eps
    return ops.RMSNormalization(input, weight, axis=-len(shape), epsilon=step)


def _check_tail(name: str, x: Any, shape: tuple[int, ...]) -> None:
    if not shape or x.shape[-len(shape) :] != shape:
        wanted = ", ".join(map(str, shape))
        raise ShapeError(
            f"{name} over [{wanted}] does not fit {list(x.shape)}",
            expected=f"input [..., {wanted}]" if shape else "at least one dimension",
            got=f"input {list(x.shape)}",
        )


def _ones(shape: tuple[int, ...], dtype: DType, device: str) -> Tensor:
    if any(isinstance(size, Dim) for size in shape):
        return ops.ConstantOfShape(size_tensor(shape), value=np.ones(1, dtype))
    ones = full(1.0, int(product(shape)), dtype, device)
    return ops.Reshape(ones, ints(*shape)) if len(shape) > 1 else ones


@check_tensor_arguments
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalize each group of channels of each example of [N, C, ...], times weight [C] plus bias [C].
    `torch.nn.functional.group_norm`, ONNX GroupNormalization."""
    input = row_major(input)
    x = input.array
    floating("group_norm", input)
    _check_channels("group_norm", input, weight, bias)
    if num_groups < 1 or x.shape[1] % num_groups:
        raise ArgumentError("num_groups must divide the channels", got=f"{x.shape[1]} channels, {num_groups} groups")
    if x.size == num_groups and x.size:
        raise ShapeError("group_norm needs more than one value a group", got=f"input {list(x.shape)}")
    scale, shift = _scale_and_shift(input, weight, bias)
    return ops.GroupNormalization(input, scale, shift, num_groups=num_groups, epsilon=eps)


def _check_channels(name: str, input: Tensor, *given: Tensor | None) -> None:
    """Raise unless the input is [N, C, ...] and what is given [C] of its type."""
    x = input.array
    for t in given:
        if x.ndim < 2 or (t is not None and t.static_shape != x.shape[1:2]):
            raise ShapeError(
                f"{name} takes input [N, C, ...] and one value a channel",
                got=f"input {list(x.shape)}" + ("" if t is None else f", {list(t.static_shape)}"),
            )


def _scale_and_shift(input: Tensor, weight: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    channels, dtype = input.static_shape[1], input.array.dtype
    return (
        full(1.0, channels, dtype, input.device) if weight is None else weight,
        full(0.0, channels, dtype, input.device) if bias is None else bias,
    )


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel of each example of [N, C, ...], times weight [C] plus bias [C].
    `torch.nn.functional.instance_norm`, ONNX InstanceNormalization.

    Args:
        running_mean, running_var: [C]; written in place with `use_input_stats` (the mean over the examples of their
            means and unbiased variances), used instead of the examples' own without.
        momentum: the part of the new value in the running ones.
    """
    input = row_major(input)
    floating("instance_norm", input)
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise ArgumentError("instance_norm needs use_input_stats, or running_mean and running_var")
        return batch_norm(input, running_mean, running_var, weight, bias, False, 0.0, eps)
    _check_channels("instance_norm", input, weight, bias, running_mean, running_var)
    shape = input.shape
    count = product(shape[2:])
    if count == 1 and not isinstance(count, Dim):
        raise ShapeError("instance_norm needs more than one value a channel", got=f"input {list(input.static_shape)}")
    scale, shift = _scale_and_shift(input, weight, bias)
    if running_mean is not None and running_var is not None:
        with switch_mode(grad=False):
            axes = ints(*range(2, input.array.ndim))
            mean = ops.ReduceMean(input.detach(), axes, keepdims=1)
            centered = ops.Sub(input.detach(), mean)
            var = ops.ReduceMean(ops.Mul(centered, centered), axes, keepdims=0)
            part = scalar_like(momentum, running_mean)
            first = ints(0)
            _update_running(running_mean, ops.ReduceMean(ops.Squeeze(mean, axes), first, keepdims=0), part)
            var = ops.ReduceMean(var, first, keepdims=0)
            _update_running(running_var, ops.Mul(var, _unbiased(count, var)), part)
    return ops.InstanceNormalization(input, scale, shift, epsilon=eps)


@by_policy
@upcast_half
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """input / (k + alpha·mean of the squares of `size` channels around)^beta; input [N, C, ...].
    `torch.nn.functional.local_response_norm`, ONNX LRN where the size is odd and the input has four dimensions.

    Of int64 the means drop their fractions, as PyTorch's do, and the result is float32.
    """
    whole = input.array.dtype == int64
    if not whole:
        floating("local_response_norm", input)
    if input.array.ndim < 3:
        raise ShapeError("local_response_norm takes [N, C, ...]", got=str(list(input.static_shape)))
    if size < 1:
        raise ArgumentError("a window has a size of 1 or more", got=str(size))
    if whole and not input.array.size:
        return ops.Identity(input)
    if input.array.ndim == 4 and size % 2 and not whole:
        return ops.LRN(input, size=size, alpha=float(alpha), beta=float(beta), bias=float(k))
    # an even window reaches one farther back than forward, ONNX's the other way
    squares = window_sum(ops.Mul(input, input), size // 2, size)
    if whole:
        return input / (squares // size * alpha + k) ** beta
    divisor = ops.Add(ops.Mul(squares, scalar_like(alpha / size, input)), scalar_like(k, input))
    return ops.Div(input, ops.Pow(divisor, scalar_like(beta, input)))


@upcast_half
@check_tensor_arguments
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Tensor:
    """Divide by the p-norm along `dim`, or by eps where that is larger; into `out` where it is given.
    `torch.nn.functional.normalize`."""
    if out is not None:
        return write(normalize(input, p, dim, eps), out, "normalize")
    size: Any = input.norm(p, dim, keepdim=True)
    return ops.Div(input, ops.Max(size, scalar_like(eps, size)))
