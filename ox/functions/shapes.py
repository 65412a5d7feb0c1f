"""Functions that rearrange: reshape, transpose, concatenate, split."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.errors import ShapeError
from ox.operands import cast, meet
from ox.ops.broadcast import axes_tensor
from ox.ops.dim import Dim, size_tensor
from ox.where import users_line

if TYPE_CHECKING:
    from ox.tensor import Tensor

Dims = int | Sequence[int] | None


def sizes_of(shape: tuple[Any, ...]) -> list[Any]:
    return list(shape[0]) if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)) else list(shape)


def reshape(x: Any, *shape: Any) -> Tensor:
    """The same elements in another shape; one size may be -1. `torch.reshape`; a view where memory allows."""
    sizes = sizes_of(shape)
    return ops.Reshape(x, size_tensor(sizes), allowzero=int(-1 not in sizes))


def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions `start_dim` to `end_dim` as one. `torch.flatten`."""
    rank = x.data.ndim
    start, end = start_dim % builtins.max(rank, 1), end_dim % builtins.max(rank, 1)
    if start == 1 and end == rank - 1 and rank > 1:
        return ops.Flatten(x, axis=1)
    shape = x.shape
    # only one size may be left open (-1): the merged one, so the others stay what they are at any batch size
    return reshape(x, [*shape[:start], -1, *shape[end + 1 :]])


def unflatten(x: Any, dim: int, sizes: Sequence[int]) -> Tensor:
    """One dimension as several."""
    shape, dim = x.shape, dim % x.data.ndim
    return reshape(x, [*shape[:dim], *sizes, *shape[dim + 1 :]])


def transpose(x: Any, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged."""
    perm = list(range(x.data.ndim))
    perm[dim0], perm[dim1] = perm[dim1], perm[dim0]
    return ops.Transpose(x, perm=perm)


def permute(x: Any, *dims: Any) -> Tensor:
    """The dimensions in another order."""
    return ops.Transpose(x, perm=[d % x.data.ndim for d in sizes_of(dims)])


def squeeze(x: Any, dim: Dims = None) -> Tensor:
    """Without dimensions of size 1: all of them, or those of `dim` that are 1."""
    shape = x.data.shape
    dims = range(len(shape)) if dim is None else [dim] if isinstance(dim, int) else dim
    chosen = [d % len(shape) for d in dims if shape[d] == 1]
    return ops.Squeeze(x, axes_tensor(chosen)) if chosen else x  # type: ignore[no-any-return]


def unsqueeze(x: Any, dim: int) -> Tensor:
    """With a new dimension of size 1 at `dim`."""
    return ops.Unsqueeze(x, axes_tensor([dim]))


def broadcast_to(x: Any, *shape: Any) -> Tensor:
    """Repeated along dimensions of size 1 without a copy where possible. ONNX Expand."""
    return ops.Expand(x, size_tensor(sizes_of(shape)))


def expand(x: Any, *shape: Any) -> Tensor:
    """`broadcast_to` where -1 keeps a size. `torch.Tensor.expand`."""
    sizes = sizes_of(shape)
    extra = len(sizes) - x.data.ndim
    return broadcast_to(x, [x.shape[i - extra] if s == -1 else s for i, s in enumerate(sizes)])


def repeat(x: Any, *counts: int) -> Tensor:
    """Copies side by side along each dimension. `torch.Tensor.repeat`."""
    for _ in range(len(counts) - x.data.ndim):
        x = unsqueeze(x, 0)
    for d, count in enumerate(sizes_of(counts)):
        if count != 1:
            x = ops.Concat(*[x] * count, axis=d)
    return x  # type: ignore[no-any-return]


def cat(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Joined along an existing dimension. `torch.cat`, ONNX Concat."""
    first = tensors[0]
    if builtins.any(t.data.dtype != first.data.dtype for t in tensors):
        for t in tensors[1:]:
            first, _ = meet(first, t)
        tensors = [cast(t, first.data.dtype) for t in tensors]
    return ops.Concat(*tensors, axis=dim)


def stack(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Joined along a new dimension. `torch.stack`."""
    return cat([unsqueeze(t, dim) for t in tensors], dim)


def split(x: Any, size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of `size` (the last may be smaller), or of the sizes given. `torch.split`."""
    if isinstance(size, int):
        total = x.data.shape[dim]
        count = -(-total // size)
        if not isinstance(x.shape[dim], Dim):
            size = [size] * (count - 1) + [total - size * (count - 1)]
        elif total == size * count:
            return ops.Split(x, axis=dim, num_outputs=count, outputs=count)  # type: ignore[no-any-return]
        else:
            raise ShapeError("split of a recorded size into unequal parts", where=users_line(2), hint="sizes as a list")
    return ops.Split(x, size_tensor(size), axis=dim, outputs=len(size))  # type: ignore[no-any-return]


def chunk(x: Any, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`chunks` parts as equal as can be. `torch.chunk`."""
    return split(x, -(-x.data.shape[dim] // chunks), dim)


def narrow(x: Any, dim: int, start: int, length: int) -> Tensor:
    """`length` elements along `dim` from `start`."""
    return ops.Slice(x, size_tensor([start]), size_tensor([start + length]), axes_tensor([dim]))


def unbind(x: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along `dim`, without it."""
    return tuple(squeeze(part, dim) for part in split(x, 1, dim))
