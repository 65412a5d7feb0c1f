"""Functions that put in order or choose by rank: sort, topk, kthvalue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ox import ops
from ox.core.promotion import cast
from ox.core.symbolic import size_tensor
from ox.dtypes import bool_, uint8
from ox.errors import BoundsError
from ox.functions.dimension_arguments import one_dim
from ox.functions.return_types import ValuesIndices
from ox.functions.shapes import narrow, reshape, squeeze

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = ["argsort", "kthvalue", "msort", "sort", "topk"]


def topk(input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:
    """The `k` largest (or smallest) along `dim` and their places, in order. `torch.topk`, ONNX TopK.

    Of equal values those that stand first; NaN counts as the greatest.

    Raises:
        BoundsError: `k` is below 0 or more than there are, or no such dimension.
    """
    dim = one_dim(dim, input.array.ndim)
    have = input.static_shape[dim] if input.array.ndim else 1
    if not 0 <= k <= have:
        raise BoundsError(
            f"topk cannot choose {int(k)} of {have}",
            expected=f"k from 0 to {have}",
            got=f"k={int(k)}, dim={dim}, shape {list(input.static_shape)}",
        )
    return _ranked(input, k, dim, largest)


def _ranked(x: Any, k: int, dim: int, largest: bool) -> ValuesIndices:
    if not x.array.ndim:
        one = _ranked(reshape(x, 1), k, 0, largest)
        return ValuesIndices(reshape(one.values, []), reshape(one.indices, [])) if k else one
    if x.array.dtype == bool_:  # ONNX does not order these
        values, indices = _ranked(cast(x, uint8), k, dim, largest)
        return ValuesIndices(cast(values, bool_), indices)
    return ValuesIndices(*ops.TopK(x, size_tensor([k]), axis=dim, largest=int(largest), outputs=2))


def sort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> ValuesIndices:
    """The values in order along `dim`, and where each stood. `torch.sort`, ONNX TopK of all.

    Always stable, NaN counts as the greatest.
    """
    dim = one_dim(dim, input.array.ndim)
    return _ranked(input, input.shape[dim] if input.array.ndim else 1, dim, descending)


def argsort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The int64 places that put `input` in order along `dim`. `torch.argsort`."""
    return sort(input, dim, descending, stable).indices


def msort(input: Any) -> Tensor:
    """Sorted along the first dimension. `torch.msort`."""
    return sort(input, 0).values


def kthvalue(input: Any, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The k-th smallest along `dim`, counted from 1, and its place. `torch.kthvalue`.

    Raises:
        BoundsError: `k` is below 1 or more than there are.
    """
    dim = one_dim(dim, input.array.ndim)
    have = input.static_shape[dim] if input.array.ndim else 1
    if not 1 <= k <= have:
        raise BoundsError(
            f"kthvalue cannot choose the {int(k)}th of {have}",
            expected=f"k from 1 to {have}",
            got=f"k={int(k)}, dim={dim}, shape {list(input.static_shape)}",
        )
    found = _ranked(input, k, dim, False)
    if not input.array.ndim:
        return found
    values, indices = (narrow(part, dim, k - 1, 1) for part in found)
    return ValuesIndices(values, indices) if keepdim else ValuesIndices(squeeze(values, dim), squeeze(indices, dim))
