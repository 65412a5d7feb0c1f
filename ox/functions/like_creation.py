"""Tensors in the shape, type or place of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.core import operator
from ox.core.constants import is_made_on_gpu, stored
from ox.core.memory_format import check_ignored_format
from ox.core.symbolic import COMPUTED, size_tensor
from ox.devices import cuda
from ox.dtypes import NARROW, DType
from ox.errors import ArgumentError
from ox.functions.dimension_arguments import sizes_of

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = ["empty_like", "full_like", "ones_like", "zeros_like"]


def full_like_shape(
    x: Any,
    shape: tuple[Any, ...],
    value: Any,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A shape full of one number, but for `dtype` and `device` in the type and on the device of `x`; of complex numbers
    where `x` stands for them and no type is named."""
    one = stored(value, np.dtype(dtype or x.array.dtype), infinite_halves=True)
    sizes = size_tensor(sizes_of(shape))
    computed = isinstance(value, COMPUTED)
    device = device or x.device
    if is_made_on_gpu(device) and not computed and one.dtype not in NARROW:
        filled: Any = operator.make_tensor(
            cuda.full(tuple(sizes.array.tolist()), one.array[()], one.dtype, str(device))
        )
    else:
        filled = ops.Expand(one, sizes) if computed else ops.ConstantOfShape(sizes, value=one.array.reshape(1))
    if device != "cpu" and isinstance(filled.array, np.ndarray):
        filled = to_device(filled, device)
    if dtype is None and x.is_complex():
        filled = x.of_real(filled)
    return filled.requires_grad_() if requires_grad else filled


def full_like(
    input: Any,
    fill_value: Any,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """The shape of `input` full of one number. `torch.full_like`."""
    check_ignored_format(memory_format)
    stored(fill_value, np.dtype(dtype or input.array.dtype))  # raises for one that the type does not hold
    return full_like_shape(input, (input.shape,), fill_value, dtype, device, requires_grad)


def zeros_like(
    input: Any,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """The shape of `input` full of zeros. `torch.zeros_like`."""
    check_ignored_format(memory_format)
    return full_like_shape(input, (input.shape,), 0, dtype, device, requires_grad)


def ones_like(
    input: Any,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """The shape of `input` full of ones. `torch.ones_like`."""
    check_ignored_format(memory_format)
    return full_like_shape(input, (input.shape,), 1, dtype, device, requires_grad)


def empty_like(
    input: Any,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """The shape of `input`, with values not to be relied on (they are zeros). `torch.empty_like`."""
    check_ignored_format(memory_format)
    return full_like_shape(input, (input.shape,), 0, dtype, device, requires_grad)


def to_device(x: Any, device: str, non_blocking: bool = False) -> Tensor:
    """The tensor on another device; gradients pass. Raises DeviceError when there is no such device."""
    if device.split(":")[0] not in ("cpu", "cuda"):
        raise ArgumentError(f"no device is called '{device}'", expected="cpu or cuda[:index]")
    from ox.core.device_copy import transfer

    return transfer(x, device, non_blocking)
