"""Functions that pick and write elements by index, and make tensors like another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.dtypes import DType
from ox.errors import ArgumentError, ShapeError
from ox.functions.dims import one_dim, sizes_of
from ox.functions.shapes import broadcast_to, narrow
from ox.operands import scalar
from ox.ops.dim import size_tensor
from ox.where import users_line

if TYPE_CHECKING:
    from ox.tensor import Tensor


def gather(x: Any, dim: int, index: Any) -> Tensor:
    """One element for each entry of `index`, along `dim`. `torch.gather`, ONNX GatherElements.

    Raises:
        BoundsError: an entry outside the dimension.
        ShapeError: another rank, or a size above that of `x` in another dimension.
    """
    dim = one_dim(dim, x.data.ndim)
    _fits(x, dim, index, "gather")
    return ops.GatherElements(x, index, axis=dim)


def index_select(x: Any, dim: int, index: Any) -> Tensor:
    """Whole slices along `dim`, at the places in `index` [k]. `torch.index_select`, ONNX Gather."""
    return ops.Gather(x, index, axis=one_dim(dim, x.data.ndim))


def _fits(x: Any, dim: int, index: Any, what: str) -> None:
    have, want = index.data.shape, x.data.shape
    if len(have) != len(want) or [1 for d in range(len(want)) if d != dim and have[d] > want[d]]:
        raise ShapeError(
            f"{what}: the index does not lie inside the tensor",
            where=users_line(3),
            expected=f"{len(want)} dimensions, none but dimension {dim} larger than those of {list(want)}",
            got=str(list(have)),
        )


def _spread(x: Any, dim: int, index: Any, source: Any, what: str) -> Tensor:
    """What is written for each entry of `index`: a number everywhere, or the corner of a tensor."""
    _fits(x, dim, index, what)
    if not hasattr(source, "node"):
        return broadcast_to(scalar(source, x.data.dtype), index.shape)
    have, want = source.data.shape, index.data.shape
    if have == want:
        return source  # type: ignore[no-any-return]
    if len(have) != len(want) or [1 for a, b in zip(have, want, strict=True) if a < b]:
        raise ShapeError(
            f"{what}: the source is smaller than the index",
            where=users_line(3),
            expected=f"at least {list(want)}",
            got=str(list(have)),
        )
    for d, (a, b) in enumerate(zip(have, index.shape, strict=True)):
        source = source if a == b else narrow(source, d, 0, b)
    return source  # type: ignore[no-any-return]


def scatter(x: Any, dim: int, index: Any, src: Any) -> Tensor:
    """`x` with `src` (a tensor of its type, or a number) written at `index` along `dim`; places should not repeat.
    `torch.scatter`, ONNX ScatterElements."""
    dim = one_dim(dim, x.data.ndim)
    return ops.ScatterElements(x, index, _spread(x, dim, index, src, "scatter"), axis=dim)


def scatter_add(x: Any, dim: int, index: Any, src: Any) -> Tensor:
    """`x` with `src` added at `index` along `dim`; repeated places add up. `torch.scatter_add`."""
    dim = one_dim(dim, x.data.ndim)
    return ops.ScatterElements(x, index, _spread(x, dim, index, src, "scatter_add"), axis=dim, reduction="add")


def full_like_shape(x: Any, shape: tuple[Any, ...], value: Any, dtype: DType | None = None) -> Tensor:
    """A shape full of one number, in the type (but for `dtype`) and on the device of `x`."""
    one = scalar(value, np.dtype(dtype or x.data.dtype)).data.reshape(1)
    filled = ops.ConstantOfShape(size_tensor(sizes_of(shape)), value=one)
    return filled if x.device == "cpu" else to_device(filled, x.device)


def full_like(x: Any, value: Any, *, dtype: DType | None = None) -> Tensor:
    """The shape of `x` full of one number. `torch.full_like`."""
    return full_like_shape(x, (x.shape,), value, dtype)


def zeros_like(x: Any, *, dtype: DType | None = None) -> Tensor:
    """The shape of `x` full of zeros. `torch.zeros_like`."""
    return full_like(x, 0, dtype=dtype)


def ones_like(x: Any, *, dtype: DType | None = None) -> Tensor:
    """The shape of `x` full of ones. `torch.ones_like`."""
    return full_like(x, 1, dtype=dtype)


def to_device(x: Any, device: str) -> Tensor:
    """The tensor on another device; gradients pass. Raises DeviceError when there is no such device."""
    if device.split(":")[0] not in ("cpu", "cuda"):
        raise ArgumentError(f"no device is called '{device}'", where=users_line(2), expected="cpu or cuda[:index]")
    from ox.autograd.transfer import transfer

    return transfer(x, device)
