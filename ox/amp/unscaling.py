"""Gradients divided by the scale of a GradScaler, and looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.core import operator
from ox.core.constants import scalar
from ox.core.mode import switch_mode
from ox.core.multi_tensor import count_kernel_write, scale_in_place
from ox.core.operator import OPS
from ox.core.promotion import cast
from ox.devices import cuda, cuda_state
from ox.devices.gpu import multi_tensor as cuda_tensors
from ox.dtypes import float16, float32, float64, is_floating
from ox.errors import DTypeError

if TYPE_CHECKING:
    from ox.core.tensor import TensorBase

BY = "GradScaler.unscale_"


def with_gradients(optimizer: Any) -> Iterator[Any]:
    """The parameters of an optimizer that have a gradient.

    Raises:
        DTypeError: a gradient is float16.
    """
    for parameter in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
        if parameter.grad.dtype == float16:
            raise DTypeError(
                "GradScaler does not unscale float16 gradients",
                expected="float32 parameters, whose casts autocast makes",
                hint="no model.half(): ox.autocast alone",
            )
        yield parameter


def unscaled(scaler: Any, optimizer: Any) -> Any:
    """Divide all gradients in place.

    Returns:
        Whether there was an infinity or NaN: a bool, of gradients on a GPU alone a float32 array there that is 1 or 0;
        None if there is no gradient.

    Raises:
        DTypeError: float16 gradients.
    """
    flags: list[Any] = []
    dense: list[TensorBase] = []
    factor, sparse = None, False
    with switch_mode(grad=False, autocast=None):
        for parameter in with_gradients(optimizer):
            g = parameter.grad
            if getattr(g, "is_sparse", False):
                sparse = True
                factor = scaler._factor() if factor is None else factor
                g = g.coalesce()
                flags.append(_not_finite(g._values().array))
                parameter.grad = g * factor
            else:
                dense.append(g)
        on_device = [g for g in dense if cuda_tensors.is_on_device(g.array)]
        if on_device:
            scaler._move(on_device[0])
            for numbers in cuda_tensors.by_device([g.array for g in on_device]):
                flags.append(divided(scaler._scale_tensor, [on_device[i] for i in numbers]))
            dense = [g for g in dense if not cuda_tensors.is_on_device(g.array)]
            if not dense and not sparse:
                return _together(flags)
        factor = scaler._factor() if factor is None else factor
        left, found = scale_in_place(dense, factor, "GradScaler.unscale_")
        flags += [found] * (len(left) < len(dense))
        for g in left:
            flags.append(_not_finite(g.array))
            g.mul_(factor)  # type: ignore[attr-defined]
    return None if not flags else any(bool(flag) for flag in flags)


def _together(flags: Sequence[Any]) -> Any:
    """One flag of those of several GPUs, on the first one."""
    found = flags[0]
    with cuda_state.at(found):
        for flag in flags[1:]:
            found = cuda.cupy().maximum(found, cuda_tensors.beside(flag, found))
    return found


def divided(scale: TensorBase, gradients: Sequence[TensorBase]) -> Any:
    """Divide gradients of one GPU in place.

    Returns:
        A float32 array of no dimensions there: 1 where one held an infinity or NaN, else 0.
    """
    with cuda_state.at(gradients[0].array):
        return _divided(operator.make_tensor(cuda_tensors.beside(scale.array, gradients[0].array)), gradients)


def _divided(scale: TensorBase, gradients: Sequence[TensorBase]) -> Any:
    found = cuda.full((), 0, np.float32, str(scale.device))
    arrays = [g.array for g in gradients]
    together = cuda_tensors.apart(arrays)
    taken = [array for array, fits in zip(arrays, together, strict=True) if fits]
    if taken:
        cuda_tensors.Tensors(taken).unscale(scale.array, found)
    for gradient, fits in zip(gradients, together, strict=True):
        if fits:
            count_kernel_write(gradient, BY)
        else:
            finite = (gradient.array - gradient.array == 0).all()
            found[...] = cuda.cupy().maximum(found, (~finite).astype(np.float32))
            factor = cast(OPS["Div"](scalar(1.0, float64), cast(scale, float64)), float32)
            product = OPS["Mul"](gradient, cast(factor, gradient.array.dtype))
            gradient.assign(product, BY)  # type: ignore[attr-defined]
    return found


def _not_finite(array: Any) -> Any:
    """Whether an array holds an infinity or NaN: on a GPU a flag on the GPU, without a synchronization."""
    if isinstance(array, np.ndarray) and is_floating(array.dtype):
        with np.errstate(all="ignore"):
            if np.isfinite(np.add.reduce(array, axis=None)):  # a fraction of looking at each; a sum may overflow
                return False
    return ~np.isfinite(array).all()
