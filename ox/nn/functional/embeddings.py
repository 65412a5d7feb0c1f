"""Rows of a table by number: embedding, embedding_bag, one_hot."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox import ops
from ox.autograd.grad_mode import no_grad
from ox.core.argument_errors import check_tensor_arguments
from ox.core.constants import axes_tensor, ints, on_device_of, positions, scalar, scalar_like
from ox.core.mode import values_are_checked
from ox.core.promotion import cast
from ox.dtypes import int64
from ox.errors import ArgumentError, BoundsError, DTypeError, ShapeError
from ox.functions import broadcast_to, full_like_shape, narrow, norm, reshape, searchsorted, where
from ox.ops.index.in_range import check_in_later_runs
from ox.sparse.embedding_gradient import SparseRows
from ox.sparse.embedding_gradient import rows as sparse_rows
from ox.tensors.tensor import Tensor

_OUTSIDE = "an embedding index is out of range"


@check_tensor_arguments
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of weight [entries, features] at the int64 or int32 indices of input [...]: [..., features].
    `torch.nn.functional.embedding`, ONNX Gather.

    Args:
        padding_idx: this row gets no gradient.
        max_norm: rows that are read and whose norm is larger are first scaled down to it, in the weight itself.
        norm_type: which norm.
        scale_grad_by_freq: divide a row's gradient by how often it was read.
        sparse: the weight's gradient is an `ox.sparse.SparseTensor` of the rows that were read (in a recording it is
            dense); not together with scale_grad_by_freq.

    Raises:
        BoundsError: an index outside 0 .. entries - 1.
        DTypeError: indices that are no integers.
    """
    input = _checked(input, weight)
    if padding_idx is not None:
        padding_idx = _padding(padding_idx, weight)
    if max_norm is not None:
        _renormalize(input, weight, max_norm, norm_type)
    if sparse and scale_grad_by_freq and weight.node is not None:
        raise ArgumentError("a sparse gradient is not scaled by frequency", hint="sparse=False")
    rows = sparse_rows(weight, input, padding_idx) if sparse else ops.Gather(weight, input, axis=0)
    if rows.node is None or isinstance(rows.node, SparseRows):
        return rows
    if scale_grad_by_freq:
        flat = reshape(input, -1)
        ones = full_like_shape(weight, (flat.shape,), 1)
        counts = full_like_shape(weight, (weight.shape[0],), 0)
        often = ops.Gather(ops.ScatterElements(counts, flat, ones, reduction="add"), input)
        # the same value, with a gradient that is scaled
        rows = rows.detach() + (rows - rows.detach()) / ops.Unsqueeze(often, ints(-1))
    if padding_idx is None:
        return rows
    padding = ops.Equal(input, scalar_like(padding_idx, input))
    return ops.Where(ops.Unsqueeze(padding, ints(-1)), rows.detach(), rows)


def _padding(padding_idx: int, weight: Tensor) -> int:
    entries = int(weight.static_shape[0])
    if not -entries <= padding_idx < entries:
        raise ArgumentError("padding_idx is not in the table", expected=f"0 to {entries - 1}", got=str(padding_idx))
    return padding_idx % entries


def _checked(input: Tensor, weight: Tensor) -> Tensor:
    if weight.array.ndim != 2:
        raise ShapeError("an embedding's table is a matrix", got=str(list(weight.static_shape)))
    indices, entries = input.array, weight.static_shape[0]
    if indices.dtype.kind != "i" or indices.dtype.itemsize < 4:
        raise DTypeError(f"embedding does not take {indices.dtype} indices", expected="int64 or int32", hint="x.long()")
    if values_are_checked() and indices.size and isinstance(indices, np.ndarray):
        low, high = indices.min(), indices.max()
        if low < 0 or high >= entries:
            raise BoundsError(
                _OUTSIDE,
                expected=f"0 to {entries - 1}",
                got=str(low if low < 0 else high),
                hint=f"nn.Embedding({int(high) + 1}, {weight.static_shape[1]})" if low >= 0 else "indices of 0 or more",
            )
    checked: Tensor = check_in_later_runs(input, 0, int(entries) - 1, _OUTSIDE, on_device=True)
    return checked


def _renormalize(input: Tensor, weight: Tensor, max_norm: float, norm_type: float) -> None:
    with no_grad():
        flat = reshape(input, -1)
        rows = ops.Gather(weight, flat)
        length = norm(rows, norm_type, 1, True)
        scaled = where(length > max_norm, rows * (max_norm / (length + 1e-7)), rows)
        places = broadcast_to(reshape(flat, -1, 1), scaled.shape)
        # a row that comes twice is written twice with the same values
        weight.assign(ops.ScatterElements(weight, places, scaled), "embedding with max_norm")


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or greatest of the rows of each bag: [bags, features]. `torch.nn.functional.embedding_bag`.

    Args:
        input: indices [bags, n], or all bags one behind the other [total] with `offsets` [bags] where each begins.
        per_sample_weights: a factor for each index, with mode "sum".
        include_last_offset: the last offset is where the last bag ends.
        padding_idx: this index is left out of every bag.
        max_norm, norm_type, scale_grad_by_freq, sparse: as for `embedding`.

    Raises:
        ArgumentError: another mode, weights with a mode that has none, or offsets that do not begin at 0.
        ShapeError: offsets beside bags of one size, or none where they are needed.
    """
    _check_bags(input, offsets, mode, per_sample_weights)
    rows = embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    keep = None if padding_idx is None else ops.Not(ops.Equal(input, scalar_like(_padding(padding_idx, weight), input)))
    if per_sample_weights is not None:
        rows = rows * ops.Unsqueeze(per_sample_weights, ints(-1))
    if offsets is None:
        return _reduced(rows, None, None, keep, mode)
    bags = offsets.shape[0]
    which = searchsorted(cast(offsets, int64), on_device_of(positions(input.shape[0]), input), right=True) - 1
    made = _reduced(rows, which, bags, keep, mode)
    # elements after the last offset form an extra bag, which is dropped
    return narrow(made, 0, 0, bags - 1) if include_last_offset else made


def _check_bags(input: Tensor, offsets: Any, mode: str, weights: Any) -> None:
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError(f"embedding_bag has no mode {mode!r}", expected="sum, mean or max")
    if weights is not None and (mode != "sum" or weights.static_shape != input.static_shape):
        raise ArgumentError(
            "per_sample_weights are a factor for each index, with mode 'sum'",
            got=f"mode {mode!r}, {list(weights.static_shape)} for {list(input.static_shape)}",
        )
    if input.array.ndim not in (1, 2) or (input.array.ndim == 1) != (offsets is not None):
        raise ShapeError(
            "embedding_bag takes bags of one size, or a vector and offsets",
            expected="[bags, n] without offsets, or [total] with offsets",
            got=f"{list(input.static_shape)} {'without' if offsets is None else 'with'} offsets",
        )
    if offsets is not None:
        begins = offsets.array
        if begins.ndim != 1 or begins.dtype.kind != "i":
            raise ShapeError("offsets are a vector of whole numbers", got=str(list(begins.shape)))
        if isinstance(begins, np.ndarray) and begins.size and (begins[0] != 0 or begins.max() > input.static_shape[0]):
            raise ArgumentError("offsets begin with 0 and stay inside the input", got=str(begins.tolist()))


def _reduced(rows: Tensor, which: Tensor | None, bags: Any, keep: Tensor | None, mode: str) -> Tensor:
    """The rows of each bag as one: rows [bags, n, features], or rows [total, features] that go `which` [total] way."""
    left_out = float("-inf") if mode == "max" else 0.0
    if keep is not None:
        rows = where(ops.Unsqueeze(keep, ints(-1)), rows, left_out)
    made = _gathered(rows, which, bags, left_out)
    if mode == "sum":
        return made
    one = full_like_shape(rows, (rows.shape[:-1],), 1) if keep is None else cast(keep, rows.array.dtype)
    counts = _gathered(ops.Unsqueeze(one, ints(-1)), which, bags, 0.0)
    if mode == "max":
        return where(counts > 0, made, 0.0)
    return ops.Div(made, where(counts > 0, counts, 1.0))


def _gathered(rows: Tensor, which: Tensor | None, bags: Any, start: float) -> Tensor:
    """The sum of the rows of each bag, or their greatest where that begins with -inf."""
    if which is None:
        return (ops.ReduceMax if start else ops.ReduceSum)(rows, ints(1), keepdims=0)
    grid = broadcast_to(reshape(which, -1, 1), rows.shape)
    empty = full_like_shape(rows, ([bags, rows.shape[1]],), start)
    return ops.ScatterElements(empty, grid, rows, reduction="max" if start else "add")


@check_tensor_arguments
def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """int64 [..., classes], 1 at the position of each index; the number of classes is the largest index + 1 when
    -1. `torch.nn.functional.one_hot`, ONNX OneHot.

    Raises:
        DTypeError: indices that are not int64.
        BoundsError: an index below 0, or not below `num_classes`.
        ArgumentError: no indices and no `num_classes`.
    """
    indices = input.array
    if indices.dtype != int64:
        raise DTypeError("one_hot takes int64 indices", got=str(indices.dtype), hint="x.long()")
    if num_classes < 1 and (num_classes != -1 or not indices.size):
        raise ArgumentError("one_hot needs a number of classes", got=str(num_classes))
    if isinstance(indices, np.ndarray) and indices.size:
        low, high = int(indices.min()), int(indices.max())
        if low < 0 or -1 < num_classes <= high:
            raise BoundsError(
                "one_hot's index is not among the classes",
                expected=f"0 to {num_classes - 1}" if num_classes > 0 else "0 or more",
                got=str(low if low < 0 else high),
            )
    most = np.iinfo(int64).max if num_classes == -1 else num_classes - 1
    input = check_in_later_runs(input, 0, most, "one_hot's index is not among the classes", on_device=True)
    if num_classes == -1:
        depth = ops.Add(ops.ReduceMax(input, keepdims=0), scalar(1, int64))
    else:
        depth = scalar(num_classes, int64)
    return ops.OneHot(input, depth, on_device_of(axes_tensor([0, 1]), input))


__all__ = ["embedding", "embedding_bag", "one_hot"]
