"""Functions that pick elements by their places, or by a mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ox import ops
from ox.errors import ShapeError
from ox.functions.dimension_arguments import one_dim
from ox.functions.index_arguments import as_mask, at_least_one, broadcast_all, check_range, fits, from_start, vector
from ox.functions.like_creation import full_like_shape
from ox.functions.shapes import broadcast_to, reshape, squeeze
from ox.functions.zero_gradients import with_zero_gradient

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = ["argwhere", "gather", "index_select", "masked_select", "nonzero", "select", "take", "take_along_dim"]


def gather(input: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Tensor:
    """One element for each entry of `index`, along `dim`. `torch.gather`, ONNX GatherElements.

    Raises:
        BoundsError: an entry outside the dimension.
        ShapeError: another rank, or a size above that of `input` in another dimension.
    """
    dim = one_dim(dim, input.array.ndim)
    if not index.array.size:  # of any shape, as in PyTorch
        return with_zero_gradient(full_like_shape(input, (index.shape,), 0), input)
    if not input.array.ndim or not index.array.ndim:
        return reshape(gather(at_least_one(input), 0, at_least_one(index)), index.shape)
    fits(input, dim, index, "gather")
    return ops.GatherElements(input, check_range(index, input.static_shape[dim], "gather's index"), axis=dim)


def index_select(input: Any, dim: int, index: Any) -> Tensor:
    """Whole slices along `dim`, at the places in `index` [k]. `torch.index_select`, ONNX Gather.

    Raises:
        BoundsError: a place outside.
    """
    dim = one_dim(dim, input.array.ndim)
    if not input.array.ndim:
        return reshape(index_select(reshape(input, 1), 0, index), [])
    what = "index_select's index"
    return ops.Gather(input, check_range(vector(index, what), input.static_shape[dim], what), axis=dim)


def take(input: Any, index: Any) -> Tensor:
    """The elements of the flattened `input` at `index`; negative places count from the end. `torch.take`."""
    index = check_range(index, input.array.size, "take's index", negative=True)
    return ops.Gather(reshape(input, -1), from_start(index, input.numel()), axis=0)


def take_along_dim(input: Any, indices: Any, dim: int | None = None) -> Tensor:
    """`gather` where `input` and `indices` are broadcast but along `dim`; of the flattened ones when None.
    `torch.take_along_dim`."""
    if dim is None:
        return gather(reshape(input, -1), 0, reshape(indices, -1))
    rank = input.array.ndim
    dim = one_dim(dim, rank)
    if rank != indices.array.ndim:
        raise ShapeError(
            "take_along_dim needs as many dimensions in the indices", expected=str(rank), got=str(indices.array.ndim)
        )
    sizes: list[Any] = []
    for d, (a, b) in enumerate(zip(input.shape, indices.shape, strict=True)):
        if d != dim and a != b and 1 not in (a, b):
            raise ShapeError(
                "take_along_dim cannot broadcast the indices",
                got=f"{list(indices.static_shape)} for {list(input.static_shape)}",
            )
        sizes.append(b if a == 1 else a)
    own, theirs = list(sizes), list(sizes)
    own[dim], theirs[dim] = input.shape[dim], indices.shape[dim]
    indices = check_range(indices, input.static_shape[dim], "take_along_dim's indices", negative=True)
    return ops.GatherElements(_to(input, own), _to(indices, theirs), axis=dim)


def _to(x: Any, sizes: list[Any]) -> Any:
    return x if x.static_shape == tuple(sizes) else broadcast_to(x, sizes)


def masked_select(input: Any, mask: Any) -> Tensor:
    """The elements where `mask`, which is broadcast with `input`, in one dimension. `torch.masked_select`, ONNX
    Compress."""
    input, mask = broadcast_all(input, as_mask(mask, "masked_select's mask"))
    return ops.Compress(input, reshape(mask, -1))


def nonzero(input: Any, *, as_tuple: bool = False) -> Any:
    """The places of what is not zero, [how many, dimensions], or one tensor a dimension. `torch.nonzero`, ONNX
    NonZero."""
    if as_tuple:
        rows = ops.NonZero(at_least_one(input))
        count = rows.static_shape[0]
        return tuple(squeeze(row, 0) for row in ops.Split(rows, axis=0, num_outputs=count, outputs=count))
    return ops.Transpose(ops.NonZero(input))


def argwhere(input: Any) -> Tensor:
    """`nonzero`. `torch.argwhere`."""
    return nonzero(input)


def select(input: Any, dim: int, index: int) -> Tensor:
    """The slice at `index` along `dim`, without that dimension. `torch.select`."""
    dim = one_dim(dim, input.array.ndim)
    return input[(*[slice(None)] * dim, index)]
