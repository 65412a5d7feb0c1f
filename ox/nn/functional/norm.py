"""Normalisation over the batch and over features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox import ops
from ox.errors import DTypeError, ShapeError
from ox.nn.functional.common import filled, ints, number, product
from ox.ops.dim import Dim
from ox.ops.explain import place
from ox.ops.mode import switched
from ox.tensor import Tensor


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
    """Normalise [N, C, ...] over all but dimension 1. `torch.nn.functional.batch_norm`, ONNX BatchNormalization.

    Args:
        running_mean, running_var: [C]; written in place when training (the variance unbiased, as PyTorch has it),
            used instead of the batch's when not. None: the batch's own are used and not kept.
        momentum: the part of the new value in the running ones (1 less ONNX's momentum); a tensor of no dimensions
            for one that changes.
    """
    x = input.data
    given = next((t for t in (running_mean, weight, bias) if t is not None), None)
    if x.ndim < 2 or (given is not None and x.shape[1] != given.data.shape[0]):
        channels = x.shape[1] if given is None else given.data.shape[0]
        raise ShapeError(
            f"BatchNormalization over {channels} channels does not fit {list(x.shape)}",
            where=place(),
            expected=f"input [batch, {channels}, ...]",
            got=f"input {list(x.shape)}",
        )
    channels = x.shape[1]
    if given is not None and x.dtype.itemsize > given.data.dtype.itemsize:
        # the operator takes a type for the input and one for the rest, which is for halves
        raise DTypeError(
            f"BatchNormalization over {given.data.dtype} does not take {x.dtype}",
            where=place(),
            expected=f"input {given.data.dtype}",
            got=f"input {x.dtype}",
            hint=f"x.to(ox.{given.data.dtype})",
        )
    scale = filled(1.0, channels, x.dtype) if weight is None else weight
    shift = filled(0.0, channels, x.dtype) if bias is None else bias
    if not training and running_mean is not None and running_var is not None:
        return ops.BatchNormalization(input, scale, shift, running_mean, running_var, epsilon=eps)
    # With ONNX's momentum 0 the "running" outputs are the batch's own mean and (biased) variance
    y, mean, var = ops.BatchNormalization(
        input,
        scale,
        shift,
        filled(0.0, channels, x.dtype) if running_mean is None else running_mean,
        filled(1.0, channels, x.dtype) if running_var is None else running_var,
        epsilon=eps,
        momentum=0.0,
        training_mode=1,
        outputs=3,
    )
    if running_mean is not None and running_var is not None and training:
        shape = input.shape
        with switched(grad=False):
            count = product([shape[0], *shape[2:]])
            if count <= 1 and not isinstance(count, Dim):
                raise ShapeError(
                    "batch normalisation needs more than one value a channel while training",
                    where=place(),
                    got=f"input {list(x.shape)}",
                    hint="a larger batch, or model.eval()",
                )
            part = momentum if isinstance(momentum, Tensor) else number(momentum, running_mean)
            _follow(running_mean, mean, part)
            _follow(running_var, ops.Mul(var, _unbiased(count, var)), part)
    return y  # type: ignore[no-any-return]


def _unbiased(count: Any, like: Tensor) -> Tensor:
    """n / (n - 1), computed in the graph where the batch size is open."""
    if isinstance(count, Dim):
        return ops.Div(number(count, like), number(count - 1, like))
    return number(count / (count - 1), like)


def _follow(running: Tensor, now: Tensor, part: Tensor) -> None:
    running.assign(ops.Add(running, ops.Mul(ops.Sub(now, running), part)), "BatchNorm.running")


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over the last dimensions, which must be `normalized_shape`. `torch.nn.functional.layer_norm`,
    ONNX LayerNormalization."""
    x, shape = input.data, tuple(normalized_shape)
    if x.shape[-len(shape) :] != shape:
        wanted = ", ".join(map(str, shape))
        raise ShapeError(
            f"LayerNormalization over [{wanted}] does not fit {list(x.shape)}",
            where=place(),
            expected=f"input [..., {wanted}]",
            got=f"input {list(x.shape)}",
        )
    if weight is None:
        weight = filled(1.0, int(product(shape)), x.dtype)
        if len(shape) > 1:
            weight = ops.Reshape(weight, ints(*shape))
    return ops.LayerNormalization(input, weight, bias, axis=-len(shape), epsilon=eps)
