"""Clipping gradients, and parameters as one vector."""

from __future__ import annotations

from collections import Counter
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
    eager = MODE.get().recording is None and all(isinstance(p.grad.data, np.ndarray) for p in tensors)  # type: ignore[union-attr]
    with switched(grad=False):
        total = _fast_norm(tensors, norm_type) if eager else None
        if total is None:
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
        if eager:
            factor = min(max_norm / (float(total.data) + 1e-6), 1.0)
            if factor != 1:
                _scale(tensors, factor)
            return total
        one = scalar(1.0, total.data.dtype)
        factor_tensor = ops.Min(ops.Div(scalar(max_norm, total.data.dtype), total + 1e-6), one)
        for p in tensors:
            grad: Any = p.grad
            p.grad = ops.Mul(grad, cast(factor_tensor, grad.data.dtype))
    return total


def _fast_norm(tensors: list[Tensor], norm_type: float) -> Tensor | None:
    """The 2-norm of float32 or float64 gradients in one pass each, without temporaries; None for others."""
    arrays = [p.grad.data for p in tensors]  # type: ignore[union-attr]
    if norm_type != 2 or any(a.dtype.kind != "f" or a.dtype.itemsize < 4 for a in arrays):
        return None
    squares = 0.0
    with np.errstate(all="ignore"):
        for a in arrays:
            flat = a.reshape(-1)
            squares += float(np.dot(flat, flat))
    return Tensor(np.asarray(np.sqrt(squares), arrays[0].dtype))


def _scale(tensors: list[Tensor], factor: float) -> None:
    """Gradients times a number: in place, but where two share memory or it cannot be written."""
    grads: list[Any] = [p.grad for p in tensors]
    owners = [_owner(g.data) for g in grads]
    shared = {owner for owner, count in Counter(owners).items() if count > 1}
    for p, grad, owner in zip(tensors, grads, owners, strict=True):
        if owner in shared or not grad.data.flags.writeable:
            p.grad = ops.Mul(grad, scalar(factor, grad.data.dtype))
            continue
        np.multiply(grad.data, factor, out=grad.data)
        version = grad._shared_version()
        version[0] += 1
        version[1] = "clip_grad_norm_"


def _owner(array: Any) -> int:
    """The array whose memory this is, by id."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return id(array)


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
            p.grad = ops.Clip(grad, number(-clip_value, grad), number(clip_value, grad))
