"""Functions that pick and write elements by index, and make tensors like another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.dtypes import DType
from ox.errors import ArgumentError
from ox.operands import cast, scalar
from ox.ops.dim import size_tensor
from ox.where import users_line

if TYPE_CHECKING:
    from ox.tensor import Tensor

from ox.functions.shapes import broadcast_to, sizes_of


def gather(x: Any, dim: int, index: Any) -> Tensor:
    """One element for each entry of `index`, along `dim`. `torch.gather`, ONNX GatherElements."""
    return ops.GatherElements(x, index, axis=dim)


def index_select(x: Any, dim: int, index: Any) -> Tensor:
    """Whole slices along `dim`. `torch.index_select`, ONNX Gather."""
    return ops.Gather(x, index, axis=dim)


def _spread(x: Any, index: Any, source: Any) -> Tensor:
    if hasattr(source, "node"):
        return source  # type: ignore[no-any-return]
    return broadcast_to(scalar(source, x.data.dtype), index.shape)


def scatter(x: Any, dim: int, index: Any, src: Any) -> Tensor:
    """`x` with `src` written at `index` along `dim`. `torch.scatter`, ONNX ScatterElements."""
    return ops.ScatterElements(x, index, _spread(x, index, src), axis=dim)


def scatter_add(x: Any, dim: int, index: Any, src: Any) -> Tensor:
    """`x` with `src` added at `index` along `dim`; repeated indices add up."""
    return ops.ScatterElements(x, index, _spread(x, index, src), axis=dim, reduction="add")


def full_like_shape(x: Any, shape: tuple[Any, ...], value: Any) -> Tensor:
    """A shape full of one number, in the type and on the device of `x`."""
    filled = ops.ConstantOfShape(size_tensor(sizes_of(shape)), value=np.full(1, value, x.data.dtype))
    return filled if x.device == "cpu" else to_device(filled, x.device)


def full_like(x: Any, value: Any, *, dtype: DType | None = None) -> Tensor:
    """The shape of `x` full of one number. `torch.full_like`."""
    return cast(full_like_shape(x, x.shape, value), dtype or x.data.dtype)


def zeros_like(x: Any, *, dtype: DType | None = None) -> Tensor:
    return full_like(x, 0, dtype=dtype)


def ones_like(x: Any, *, dtype: DType | None = None) -> Tensor:
    return full_like(x, 1, dtype=dtype)


def to_device(x: Any, device: str) -> Tensor:
    """The tensor on another device; gradients pass. Raises DeviceError when there is no such device."""
    if device.split(":")[0] not in ("cpu", "cuda"):
        raise ArgumentError(f"no device is called '{device}'", where=users_line(2), expected="cpu or cuda[:index]")
    from ox.autograd.transfer import transfer

    return transfer(x, device)
