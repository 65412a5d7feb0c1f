"""Clipping gradients, and parameters as one vector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ox import ops
from ox.errors import GradientError
from ox.nn.functional.common import number
from ox.operands import cast, scalar
from ox.ops.explain import place
from ox.ops.mode import MODE, switched
from ox.tensor import Tensor


def _with_grad(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    chosen = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p for p in chosen if p.grad is not None]


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """Scale gradients so that their norm, over all together, is at most `max_norm`. `torch.nn.utils.clip_grad_norm_`.

    Args:
        norm_type: 1, 2 or inf.
        error_if_nonfinite: raise GradientError for a norm that is infinite or NaN, and change nothing.

    Returns:
        The norm before, a tensor of no dimensions.
    """
    tensors = _with_grad(parameters)
    if not tensors:
        return Tensor(np.zeros((), np.float32))
    with switched(grad=False):
        total = total_norm(tensors, float(norm_type))
        if error_if_nonfinite and MODE.get().recording is None and not np.isfinite(float(total.data)):
            names = [i for i, p in enumerate(tensors) if not np.isfinite(np.asarray(p.grad).sum())]
            raise GradientError(
                "the norm of the gradients is not finite",
                where=place(),
                expected="a finite norm",
                got=f"{float(total.data)}, from parameters {names[:8]}",
                hint="a smaller learning rate, or look at the loss",
            )
        factor = ops.Min(ops.Div(scalar(max_norm, total.data.dtype), total + 1e-6), scalar(1.0, total.data.dtype))
        if MODE.get().recording is None and isinstance(factor.data, np.ndarray) and factor.data == 1:
            return total
        for p in tensors:
            grad: Any = p.grad
            grad.assign(ops.Mul(grad, cast(factor, grad.data.dtype)), "clip_grad_norm_")
    return total


def total_norm(tensors: list[Tensor], norm_type: float) -> Tensor:
    """The norm of all gradients as one vector."""
    grads: list[Any] = [p.grad for p in tensors]
    if norm_type == float("inf"):
        return ops.Max(*[ops.ReduceMax(ops.Abs(g), keepdims=0) for g in grads])
    if norm_type not in (1.0, 2.0):
        raise GradientError(f"norm_type {norm_type} is not known", where=place(), expected="1, 2 or inf")
    parts = [ops.ReduceSum(ops.Mul(g, g) if norm_type == 2 else ops.Abs(g), keepdims=0) for g in grads]
    total = parts[0]
    for part in parts[1:]:
        total = ops.Add(total, cast(part, total.data.dtype))
    return ops.Sqrt(total) if norm_type == 2 else total


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Limit every element of the gradients to ±clip_value. `torch.nn.utils.clip_grad_value_`."""
    with switched(grad=False):
        for p in _with_grad(parameters):
            grad: Any = p.grad
            grad.assign(ops.Clip(grad, number(-clip_value, grad), number(clip_value, grad)), "clip_grad_value_")
