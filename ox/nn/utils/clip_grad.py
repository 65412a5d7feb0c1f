"""Clipping gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import reduce
from math import inf
from typing import Any

import numpy as np

from ox import ops
from ox.core.constants import scalar, scalar_like
from ox.core.mode import MODE, switch_mode, values_are_checked
from ox.core.multi_tensor import count_kernel_write, owner, scale_in_place, sum_of_squares
from ox.core.promotion import cast, promote_operands
from ox.devices import cuda_state
from ox.devices.gpu.multi_tensor import Tensors, apart, beside, by_device, is_dense, is_on_device, kind_of
from ox.dtypes import FLOATING, DType, promote
from ox.errors import GradientError
from ox.ops.nn.normalization import computed_type
from ox.sparse.tensor import SparseTensor
from ox.tensors.tensor import Tensor, make_tensor

# Elements whose squares NumPy's BLAS adds up on one thread: its other threads, once awake, wait actively for tens of
# milliseconds and take the cores from what runs next.
_PIECE = 1 << 13


def _with_grad(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    chosen = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p for p in chosen if p.grad is not None]


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale gradients so that their norm, over all together, is at most `max_norm`. `torch.nn.utils.clip_grad_norm_`.

    Args:
        norm_type: of the norm, inf and -inf too; not 0.
        error_if_nonfinite: raise GradientError for a norm that is infinite or NaN, and change nothing.
        foreach: has no effect.

    Returns:
        The norm before, a tensor of no dimensions. With gradients on a GPU nothing waits for it, unless
        `error_if_nonfinite` asks for its value.
    """
    tensors = _with_grad(parameters)
    grads = _values([p.grad for p in tensors])
    total = _wide_norm(grads, norm_type, error_if_nonfinite)
    clip_grads_with_norm_(tensors, max_norm, total)
    return _in_common_type(total, grads)


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all elements of all tensors together. `torch.nn.utils.get_total_norm`; arguments as there."""
    chosen = _values([tensors] if isinstance(tensors, Tensor) else list(tensors))
    return _in_common_type(_wide_norm(chosen, norm_type, error_if_nonfinite), chosen)


def _values(tensors: list[Any]) -> list[Tensor]:
    return [t.coalesce().values() if isinstance(t, SparseTensor) else t for t in tensors]


def _common_type(tensors: list[Tensor]) -> DType:
    return reduce(promote, [t.array.dtype for t in tensors])


def _in_common_type(total: Tensor, tensors: list[Tensor]) -> Tensor:
    with switch_mode(grad=False):
        return cast(total, _common_type(tensors)) if tensors else total


def _wide_norm(chosen: list[Tensor], norm_type: float, error_if_nonfinite: bool) -> Tensor:
    """The norm of all tensors together; in float32 where they are of half precision, in which it may be infinite."""
    if not chosen:
        return make_tensor(np.zeros((), np.float32))
    with switch_mode(grad=False):
        total = _fast_norm(chosen, norm_type) if _eager(chosen) else _norm_on_device(chosen, norm_type)
        if total is None:
            total = total_norm(chosen, float(norm_type))
    if error_if_nonfinite and values_are_checked() and not np.isfinite(float(total)):
        names = [i for i, g in enumerate(chosen) if not np.isfinite(np.asarray(g)).all()]
        raise GradientError(
            "the norm of the gradients is not finite",
            expected="a finite norm",
            got=f"{float(total.array)}{f', from parameters {names[:8]}' if names else ''}",
            hint="a smaller learning rate, or look at the loss",
        )
    return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale gradients by max_norm / total_norm where that is below 1. `torch.nn.utils.clip_grads_with_norm_`."""
    tensors = _dense(_with_grad(parameters), lambda g: g * min(float(max_norm) / (float(total_norm.array) + 1e-6), 1.0))
    with switch_mode(grad=False):
        if _eager([p.grad for p in tensors]):  # type: ignore[misc]
            factor = min(float(max_norm) / (float(total_norm.array) + 1e-6), 1.0)
            if factor != 1:
                _scale(tensors, factor)
            return
        if MODE.get().recording is None:
            tensors = _clip_on_device(tensors, float(max_norm), total_norm)
            if not tensors:
                return
        kind = total_norm.array.dtype
        factor_tensor = ops.Min(ops.Div(scalar(float(max_norm), kind), total_norm + 1e-6), scalar(1.0, kind))
        for p in tensors:
            grad: Any = p.grad
            p.grad = cast(
                ops.Mul(*promote_operands(cast(grad, computed_type(grad.array.dtype)), factor_tensor)), grad.array.dtype
            )


def _dense(parameters: list[Tensor], clip: Callable[[Any], Any]) -> list[Tensor]:
    """Those with ordinary gradients; sparse ones are replaced by what `clip` makes of them."""
    for p in parameters:
        if isinstance(p.grad, SparseTensor):
            p.grad = clip(p.grad.detach())
    return [p for p in parameters if not isinstance(p.grad, SparseTensor)]


def _eager(tensors: list[Tensor]) -> bool:
    return MODE.get().recording is None and all(isinstance(t.array, np.ndarray) for t in tensors)


def _norm_on_device(tensors: list[Tensor], norm_type: float) -> Tensor | None:
    """The 2-norm of gradients on a GPU by two launches; None for others, and in a recording."""
    arrays = [t.array for t in tensors if t.array.size]
    if norm_type != 2 or MODE.get().recording is not None or not arrays or not all(map(is_on_device, arrays)):
        return None
    if not all(kind_of(a) is not None and is_dense(a) for a in arrays):
        return None
    kind, norms = computed_type(_common_type(tensors)), []
    for numbers in by_device(arrays):
        with cuda_state.at(arrays[numbers[0]]):
            norms.append(Tensors([arrays[i] for i in numbers]).norm(kind))
    if len(norms) > 1:  # of several GPUs: on the first one
        with cuda_state.at(norms[0]):
            norms = [Tensors([beside(norm, norms[0]) for norm in norms]).norm(kind)]
    return make_tensor(norms[0])


def _clip_on_device(tensors: list[Tensor], max_norm: float, total_norm: Tensor) -> list[Tensor]:
    """Scale gradients on a GPU by two launches. Returns those that this cannot do."""
    there = [p for p in tensors if is_on_device(p.grad.array)]  # type: ignore[union-attr]
    if not there or not is_on_device(total_norm.array) or kind_of(total_norm.array) is None:
        return tensors
    grads: list[Any] = [p.grad for p in there]
    fits = apart([grad.array for grad in grads])
    taken = [grad for grad, fit in zip(grads, fits, strict=True) if fit]
    arrays = [grad.array for grad in taken]
    for numbers in by_device(arrays):
        with cuda_state.at(arrays[numbers[0]]):
            Tensors([arrays[i] for i in numbers]).clip(max_norm, beside(total_norm.array, arrays[numbers[0]]))
    for grad in taken:
        count_kernel_write(grad, "clip_grad_norm_")
    done = {id(grad) for grad in taken}
    return [p for p in tensors if id(p.grad) not in done]


def _fast_norm(tensors: list[Tensor], norm_type: float) -> Tensor | None:
    """The 2-norm of gradients in one pass each, without temporaries but for half precision; None for other types."""
    arrays = [t.array for t in tensors]
    if norm_type != 2 or any(a.dtype not in FLOATING for a in arrays):
        return None
    squares = sum_of_squares(tensors)
    if squares is None:
        with np.errstate(all="ignore"):
            squares = sum(map(_squares, arrays))
    return make_tensor(np.asarray(np.sqrt(squares), computed_type(_common_type(tensors))))


def _squares(array: Any) -> float:
    """The sum of the squares of an array, by NumPy."""
    flat, squares = array.reshape(-1), 0.0
    flat = flat.astype(computed_type(flat.dtype), copy=False)
    if isinstance(flat, np.ndarray):
        whole = flat.size - flat.size % _PIECE
        pieces, flat = flat[:whole].reshape(-1, _PIECE), flat[whole:]
        squares = float(np.vecdot(pieces, pieces).sum(dtype=np.float64))
    return squares + float(np.dot(flat, flat))


def _scale(tensors: list[Tensor], factor: float) -> None:
    """Gradients times a number: in place, but where two share memory or it cannot be written."""
    grads: list[Any] = [p.grad for p in tensors]
    left, _ = scale_in_place(grads, factor, "clip_grad_norm_")
    remaining = {id(grad) for grad in left}
    owners = Counter(id(owner(grad.array)) for grad in grads)
    for p in tensors:
        grad: Any = p.grad
        if id(grad) not in remaining:
            continue
        if owners[id(owner(grad.array))] > 1 or not grad.array.flags.writeable:
            wide = computed_type(grad.array.dtype)
            p.grad = cast(ops.Mul(cast(grad, wide), scalar(factor, wide)), grad.array.dtype)
            continue
        with np.errstate(invalid="ignore"):  # an infinite gradient, which a GradScaler skips afterwards
            wide = computed_type(grad.array.dtype)
            np.multiply(grad.array, wide.type(factor), out=grad.array, casting="same_kind")
        count_kernel_write(grad, "clip_grad_norm_")


def total_norm(tensors: list[Tensor], norm_type: float) -> Tensor:
    """The norm of all tensors as one vector, in operators."""
    wide = computed_type(_common_type(tensors))
    sizes = [ops.Abs(cast(t, wide)) for t in tensors]
    if norm_type == inf:
        return ops.Max(*[ops.ReduceMax(a, keepdims=0) for a in sizes])
    if norm_type == -inf:
        return ops.Min(*[ops.ReduceMin(a, keepdims=0) for a in sizes])
    if not norm_type:
        raise GradientError(f"norm_type {norm_type} is no norm", expected="1, 2, inf, ...")
    parts = [ops.ReduceSum(_power(a, norm_type), keepdims=0) for a in sizes]
    total = parts[0]
    for part in parts[1:]:
        total = ops.Add(total, part)
    return ops.Sqrt(total) if norm_type == 2 else _power(total, 1 / norm_type)


def _power(x: Tensor, exponent: float) -> Tensor:
    if exponent in (1, 2):
        return x if exponent == 1 else ops.Mul(x, x)
    return ops.Pow(x, scalar(exponent, x.array.dtype))


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Limit every element of the gradients to ±clip_value. `torch.nn.utils.clip_grad_value_`."""
    with switch_mode(grad=False):
        for p in _dense(
            _with_grad(parameters), lambda g: g.coalesce()._with(g.coalesce().values().clamp(-clip_value, clip_value))
        ):
            grad: Any = p.grad
            clipped = ops.Clip(grad, scalar_like(-clip_value, grad), scalar_like(clip_value, grad))
            if MODE.get().recording is None:
                grad.assign(clipped, "clip_grad_value_")  # in place: other references to the gradient see it
            else:
                p.grad = clipped
