"""Functions that pick elements by their places, or by a mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ox import ops
from ox.errors import ShapeError
from ox.functions.dims import one_dim
from ox.functions.indices import as_mask, at_least_one, counted, fits, inside, together, vector
from ox.functions.shapes import broadcast_to, reshape, squeeze
from ox.where import users_line

if TYPE_CHECKING:
    from ox.tensor import Tensor


def gather(x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Tensor:
    """One element for each entry of `index`, along `dim`. `torch.gather`, ONNX GatherElements.

    Raises:
        BoundsError: an entry outside the dimension.
        ShapeError: another rank, or a size above that of `x` in another dimension.
    """
    dim = one_dim(dim, x.array.ndim)
    if not x.array.ndim or not index.array.ndim:
        return reshape(gather(at_least_one(x), 0, at_least_one(index)), index.shape)
    fits(x, dim, index, "gather")
    return ops.GatherElements(x, inside(index, x.array.shape[dim], "gather's index"), axis=dim)


def index_select(x: Any, dim: int, index: Any) -> Tensor:
    """Whole slices along `dim`, at the places in `index` [k]. `torch.index_select`, ONNX Gather.

    Raises:
        BoundsError: a place outside.
    """
    dim = one_dim(dim, x.array.ndim)
    if not x.array.ndim:
        return reshape(index_select(reshape(x, 1), 0, index), [])
    what = "index_select's index"
    return ops.Gather(x, inside(vector(index, what), x.array.shape[dim], what), axis=dim)


def take(x: Any, index: Any) -> Tensor:
    """The elements of the flattened `x` at `index`; negative places count from the end. `torch.take`."""
    index = inside(index, x.array.size, "take's index", negative=True)
    return ops.Gather(reshape(x, -1), counted(index, x.numel()), axis=0)


def take_along_dim(x: Any, indices: Any, dim: int | None = None) -> Tensor:
    """`gather` where `x` and `indices` are broadcast but along `dim`; of the flattened ones when None.
    `torch.take_along_dim`."""
    if dim is None:
        return gather(reshape(x, -1), 0, reshape(indices, -1))
    rank = x.array.ndim
    dim = one_dim(dim, rank)
    if rank != indices.array.ndim:
        raise ShapeError(
            "take_along_dim needs as many dimensions in the indices",
            where=users_line(2),
            expected=str(rank),
            got=str(indices.array.ndim),
        )
    sizes: list[Any] = []
    for d, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if d != dim and a != b and 1 not in (a, b):
            raise ShapeError(
                "take_along_dim cannot broadcast the indices",
                where=users_line(2),
                got=f"{list(indices.array.shape)} for {list(x.array.shape)}",
            )
        sizes.append(b if a == 1 else a)
    own, theirs = list(sizes), list(sizes)
    own[dim], theirs[dim] = x.shape[dim], indices.shape[dim]
    indices = inside(indices, x.array.shape[dim], "take_along_dim's indices", negative=True)
    return ops.GatherElements(_to(x, own), _to(indices, theirs), axis=dim)


def _to(x: Any, sizes: list[Any]) -> Any:
    return x if x.array.shape == tuple(sizes) else broadcast_to(x, sizes)


def masked_select(x: Any, mask: Any) -> Tensor:
    """The elements where `mask`, which is broadcast with `x`, in one dimension. `torch.masked_select`, ONNX
    Compress."""
    x, mask = together(x, as_mask(mask, "masked_select's mask"))
    return ops.Compress(x, reshape(mask, -1))


def nonzero(x: Any, *, as_tuple: bool = False) -> Any:
    """The places of what is not zero, [how many, dimensions], or one tensor a dimension. `torch.nonzero`, ONNX
    NonZero."""
    if as_tuple:
        rows = ops.NonZero(at_least_one(x))
        count = rows.array.shape[0]
        return tuple(squeeze(row, 0) for row in ops.Split(rows, axis=0, num_outputs=count, outputs=count))
    return ops.Transpose(ops.NonZero(x))


def argwhere(x: Any) -> Tensor:
    """`nonzero`. `torch.argwhere`."""
    return nonzero(x)  # type: ignore[no-any-return]


def select(x: Any, dim: int, index: int) -> Tensor:
    """The slice at `index` along `dim`, without that dimension. `torch.select`."""
    dim = one_dim(dim, x.array.ndim)
    return x[(*[slice(None)] * dim, index)]  # type: ignore[no-any-return]
