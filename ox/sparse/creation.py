"""Making sparse tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox import functions as F
from ox.core.operator import make_tensor
from ox.dtypes import DType, int64
from ox.errors import ArgumentError, BoundsError, DTypeError, ShapeError
from ox.functions.creation import as_tensor
from ox.sparse.tensor import SparseTensor, at
from ox.tensors.tensor import Tensor


def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Sequence[int] | None = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> SparseTensor:
    """Values [entries, ...] at int64 indices [sparse dimensions, entries]. `torch.sparse_coo_tensor`.

    Args:
        size: the shape; None is the smallest that holds all indices. In place of `values`: a tensor of no entries.
        is_coalesced: the coordinates are sorted and unique.

    Raises:
        ShapeError, BoundsError, DTypeError: what does not fit; always checked.
    """
    if values is None:
        return _empty(indices if size is None else size, dtype, device, requires_grad)
    value = as_tensor(values) if dtype is None else as_tensor(values, dtype=dtype)
    index = as_tensor(np.asarray(indices, np.int64) if not isinstance(indices, Tensor) else indices)
    value = value.reshape(1) if value.array.ndim == 0 and index.static_shape[-1:] == (1,) else value
    if device is not None:
        value = value.to(device=device)
    if index.array.dtype.kind not in "iu":
        raise DTypeError("indices are integers", got=str(index.array.dtype))
    index = index.to(int64).cpu()
    if index.array.ndim == 1 and not index.array.size:
        index = index.reshape(1, 0)
    if index.array.ndim != 2 or value.array.ndim < 1 or value.static_shape[0] != index.static_shape[1]:
        raise ShapeError(
            "indices and values of a sparse tensor do not fit",
            expected="indices [sparse dimensions, entries] and values [entries, ...]",
            got=f"{list(index.static_shape)} and {list(value.static_shape)}",
        )
    shape = _shape(index.numpy(), value.static_shape[1:], size)
    value = value.detach().requires_grad_() if requires_grad else value
    return SparseTensor(index, value, shape, bool(is_coalesced))


def of_file(indices: Any, values: Any, size: Sequence[int], is_coalesced: bool) -> SparseTensor:
    """What a file holds, of which only what is true is believed."""
    made = sparse_coo_tensor(indices, values, size)
    places = made._places()
    made._coalesced = is_coalesced is True and bool((places[1:] > places[:-1]).all())
    return made


def _empty(size: Any, dtype: DType | None, device: Any, requires_grad: bool) -> SparseTensor:
    from ox.functions.creation import zeros

    shape = tuple(int(s) for s in size)
    value = zeros(0, dtype=dtype, device=device, requires_grad=requires_grad)
    return SparseTensor(make_tensor(np.zeros((len(shape), 0), np.int64)), value, shape, True)


def _shape(index: Any, dense: tuple[int, ...], size: Sequence[int] | None) -> tuple[int, ...]:
    least = tuple(int(m) + 1 for m in index.max(1)) if index.shape[1] else (0,) * index.shape[0]
    if index.size and index.min() < 0:
        raise BoundsError("indices of a sparse tensor are not negative", got=str(int(index.min())))
    if size is None:
        return (*least, *dense)
    shape = tuple(int(s) for s in size)
    if len(shape) != len(index) + len(dense) or shape[len(index) :] != dense:
        raise ShapeError(
            "the size does not fit indices and values",
            expected=f"{len(index)} sparse dimensions, then {list(dense)}",
            got=str(list(shape)),
        )
    if any(m > s for m, s in zip(least, shape, strict=False)) and index.shape[1]:
        raise BoundsError(
            "an index is outside the size",
            expected=f"below {list(shape[: len(index)])}",
            got=str([m - 1 for m in least]),
        )
    return shape


def to_sparse(x: Tensor, sparse_dim: int | None = None) -> SparseTensor:
    """The elements that are not 0, or with `sparse_dim` the slices that have one. `torch.Tensor.to_sparse`. Depends on
    values, so it does not record."""
    rank = x.array.ndim
    count = rank if sparse_dim is None else sparse_dim
    if not 0 <= count <= rank or (rank and not count):
        raise ArgumentError("sparse_dim is 1 to the tensor's rank", got=f"{count} of {rank}")
    held = np.asarray(x.detach().cpu().numpy() != 0)
    if not rank:
        return SparseTensor(make_tensor(np.zeros((0, int(held)), np.int64)), x.reshape(1)[: int(held)], (), True)
    index = np.array(np.nonzero(held.any(tuple(range(count, rank)))), np.int64).reshape(count, -1)
    pattern = SparseTensor(make_tensor(index), x, x.static_shape, True)
    return SparseTensor(pattern._index, at(x, pattern), x.static_shape, True)


def sparse_mask(x: Tensor, mask: SparseTensor) -> SparseTensor:
    """The values of a dense tensor at the coordinates of a sparse one. `torch.Tensor.sparse_mask`."""
    if x.static_shape != mask.shape:
        raise ShapeError(
            "sparse_mask takes a mask of the same shape", expected=str(list(x.static_shape)), got=str(list(mask.shape))
        )
    return SparseTensor(mask._index, at(x, mask), mask.shape, mask.is_coalesced())


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: Any = None) -> SparseTensor:
    """Rows of `diagonals` as diagonals at `offsets` of a matrix; a row is read from the column on where it stands.
    `torch.sparse.spdiags`."""
    rows = diagonals if diagonals.array.ndim == 2 else diagonals.unsqueeze(0)
    places = np.atleast_1d(offsets.numpy())
    height, width = (int(s) for s in shape)
    if len(set(places.tolist())) != len(places) or len(places) != rows.static_shape[0]:
        raise ArgumentError("spdiags takes one offset a diagonal, each once", got=str(places.tolist()))
    entries = [
        (k, c - offset, c)
        for k, offset in enumerate(places.tolist())
        for c in range(min(width, rows.static_shape[1]))
        if 0 <= c - offset < height
    ]
    index = np.array(entries, np.int64).reshape(-1, 3).T
    flat = rows.reshape(-1)
    values = F.index_select(flat, 0, make_tensor(index[0] * rows.static_shape[1] + index[2]).to(flat.device))
    return SparseTensor(make_tensor(np.ascontiguousarray(index[1:])), values, (height, width))


def cleared(grad: Any) -> Any:
    """Zeros in place of a gradient: a sparse one without entries."""
    if not isinstance(grad, SparseTensor):
        return F.zeros_like(grad.detach())
    none = grad._values().detach()[:0]
    return SparseTensor(make_tensor(np.zeros((grad.sparse_dim(), 0), np.int64)), none, grad.shape, True)


__all__ = ["cleared", "sparse_coo_tensor", "sparse_mask", "spdiags", "to_sparse"]
