"""Functions that move elements or dimensions: roll, rot90, movedim, tile, repeat_interleave, unfold, ..."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.core import operator
from ox.core.constants import axes_tensor, on_device_of, positions, scalar
from ox.core.promotion import cast
from ox.core.symbolic import Dim, size_tensor
from ox.core.tensor import is_tensor
from ox.core.views import in_own_memory
from ox.dtypes import int64
from ox.errors import ArgumentError, BoundsError, ShapeError
from ox.functions.dimension_arguments import one_dim, sizes_of
from ox.functions.index_arguments import as_index
from ox.functions.shapes import expand, flip, permute, reshape, transpose, unsqueeze

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = [
    "as_strided", "as_strided_scatter", "fliplr", "flipud", "moveaxis", "movedim", "ravel", "repeat_interleave",
    "roll", "rot90", "swapaxes", "swapdims", "tile", "unravel_index",
]  # fmt: skip

_END = np.iinfo(np.int64).max


def _int_list(value: Any) -> list[int]:
    several = [value] if hasattr(value, "__index__") else value
    return [v if isinstance(v, Dim) else int(v) for v in several]


def roll(input: Any, shifts: Any, dims: Any = None) -> Tensor:
    """Elements moved along dimensions, those that leave coming in at the other end; of the flattened tensor without
    `dims`. `torch.roll`.

    Raises:
        ArgumentError: other counts of shifts and dimensions.
    """
    if dims is None or dims == ():
        if len(_int_list(shifts)) != 1:
            raise ArgumentError("roll of the flattened tensor takes one shift", got=str(shifts))
        return reshape(roll(reshape(input, -1), shifts, 0), input.shape)
    made, amounts, along = input, _int_list(shifts), _int_list(dims)
    if len(amounts) != len(along):
        raise ArgumentError("roll needs a shift for each dimension", got=f"{shifts}, {dims}")
    if not input.array.ndim and along:
        raise ShapeError("roll along a dimension needs one", got="[]")
    for amount, dim in zip(amounts, along, strict=True):
        axis = one_dim(dim, input.array.ndim)
        size = input.shape[axis] if input.array.ndim else 1
        if isinstance(size, Dim) and (isinstance(amount, Dim) or abs(amount) > 1):
            # of no elements there is nothing to divide by the size
            places = ops.Mod(ops.Sub(positions(size), size_tensor([amount])), size.tensor)
            made = ops.Gather(made, on_device_of(places, made), axis=axis)
            continue
        if abs(amount) >= size:
            amount = amount % size if size else 0
        if amount:
            # places counted from the end, so that the size itself is not needed
            parts = [
                ops.Slice(made, axes_tensor([first]), axes_tensor([last]), axes_tensor([axis]))
                for first, last in ((-amount, _END), (0, -amount))
            ]
            made = ops.Concat(*parts, axis=axis)
    return in_own_memory(made, input)


def ravel(input: Any) -> Tensor:
    """One dimension. `torch.ravel`."""
    return reshape(input, -1)


def fliplr(input: Any) -> Tensor:
    """Columns backwards. `torch.fliplr`."""
    if input.array.ndim < 2:
        raise ShapeError("fliplr needs two dimensions or more", got=str(list(input.static_shape)))
    return flip(input, 1)


def flipud(input: Any) -> Tensor:
    """Rows backwards. `torch.flipud`."""
    if input.array.ndim < 1:
        raise ShapeError("flipud needs a dimension", got="[]")
    return flip(input, 0)


def rot90(input: Any, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Turned k times by a quarter, from the first of two dimensions to the second. `torch.rot90`."""
    if len(dims) != 2 or input.array.ndim < 2:
        raise ArgumentError("rot90 turns in two dimensions", got=f"{dims} of {input.array.ndim}")
    a, b = (one_dim(d, input.array.ndim) for d in dims)
    if a == b:
        raise ArgumentError("rot90 needs two different dimensions", got=str(dims))
    quarter = k % 4
    if quarter == 2:
        return flip(input, a, b)
    if quarter == 1:
        return transpose(flip(input, b), a, b)
    return flip(transpose(input, a, b), b) if quarter else in_own_memory(input, input)


def movedim(input: Any, source: Any, destination: Any) -> Tensor:
    """Dimensions at other places, the rest in the order they had. `torch.movedim`."""
    rank = input.array.ndim
    here = [one_dim(d, rank) for d in _int_list(source)]
    there = [one_dim(d, rank) for d in _int_list(destination)]
    if len(here) != len(there) or len(set(here)) != len(here) or len(set(there)) != len(there):
        raise ArgumentError(
            "movedim needs a new place for each dimension, none twice", got=f"{source} to {destination}"
        )
    order = [d for d in range(rank) if d not in here]
    for place, dim in sorted(zip(there, here, strict=True)):
        order.insert(place, dim)
    return permute(input, order) if rank else input


moveaxis = movedim


def swapaxes(input: Any, axis0: int, axis1: int) -> Tensor:
    """Two dimensions exchanged. `torch.swapaxes`."""
    return transpose(input, axis0, axis1)


def swapdims(input: Any, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged. `torch.swapdims`."""
    return transpose(input, dim0, dim1)


def tile(input: Any, *dims: Any) -> Tensor:
    """Copies side by side; counts speak of the last dimensions. `torch.tile`, ONNX Tile.

    Raises:
        ArgumentError: a negative count.
    """
    times = sizes_of(dims)
    if any(n < 0 for n in times):
        raise ArgumentError("tile takes counts of 0 or more", got=str(times))
    missing = input.array.ndim - len(times)
    times = [1] * missing + times
    if missing < 0:
        input = reshape(input, [*[1] * -missing, *input.shape])
    return ops.Tile(input, size_tensor(times)) if times else input


def repeat_interleave(
    input: Any = None, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element, or slice along `dim`, `repeats` times in a row: a number, or an int tensor with one for each. With
    one argument the places that those counts give. `torch.repeat_interleave`.

    Raises:
        ArgumentError: a negative count.
        ShapeError: not a count for each element.
    """
    if input is None:
        input, repeats = repeats, None
    if repeats is None:
        return _places(as_index(input, "repeat_interleave's repeats"))
    if dim is None:
        input, dim = reshape(input, -1), 0
    dim = one_dim(dim, input.array.ndim)
    if is_tensor(repeats) and repeats.array.size != 1:
        repeats = as_index(repeats, "repeat_interleave's repeats")
        if repeats.array.ndim != 1 or repeats.static_shape[0] != input.static_shape[dim]:
            raise ShapeError(
                "repeat_interleave needs a count for each slice",
                expected=f"[{input.static_shape[dim]}]",
                got=str(list(repeats.static_shape)),
            )
        return ops.Gather(input, _places(repeats), axis=dim)
    count = repeats if isinstance(repeats, Dim) else int(repeats)
    if count < 0:
        raise ArgumentError("repeat_interleave takes counts of 0 or more", got=str(count))
    if not input.array.ndim:
        return reshape(repeat_interleave(reshape(input, 1), count, 0), -1)
    shape = input.shape
    wide = expand(unsqueeze(input, dim + 1), [*shape[: dim + 1], count, *shape[dim + 1 :]])
    return in_own_memory(reshape(wide, [*shape[:dim], shape[dim] * count, *shape[dim + 1 :]]), input)


def _places(counts: Any) -> Tensor:
    """0 as often as the first count says, then 1, ..."""
    from ox.functions.histograms import bucketize

    if counts.array.ndim != 1:
        raise ShapeError("counts are a vector", got=str(list(counts.static_shape)))
    if isinstance(counts.array, np.ndarray) and (counts.array < 0).any():
        raise ArgumentError("repeat_interleave takes counts of 0 or more")
    ends = ops.CumSum(ops.Cast(counts, to=7), scalar(0, int64))
    total = ops.ReduceSum(ops.Cast(counts, to=7), keepdims=0)
    places = on_device_of(ops.Range(scalar(0, int64), total, scalar(1, int64)), ends)
    return bucketize(places, ends, right=True)


def unfold(x: Any, dimension: int, size: int, step: int) -> Tensor:
    """Windows of `size` along a dimension, one every `step`, with their elements as a new last dimension.
    `torch.Tensor.unfold`; here a copy.

    Raises:
        ArgumentError: a size above the dimension's, or a step below 1.
    """
    dim = one_dim(dimension, x.array.ndim)
    if not x.array.ndim and size in (0, 1):
        return x.reshape(-1)[:size]
    x = x if x.array.ndim else reshape(x, 1)
    have = x.static_shape[dim]
    if not 0 <= size <= have or step < 1:
        raise ArgumentError(
            f"unfold cannot cut windows of {size} from {have} every {step}",
            expected=f"a size from 0 to {have} and a step above 0",
        )
    total = x.shape[dim]
    count = (total - size) // step + 1
    first = positions(count) if isinstance(count, Dim) else operator.as_input(np.arange(count))
    places = unsqueeze(first * step, 1) + operator.as_input(np.arange(size))
    windows = ops.Gather(x, on_device_of(places, x), axis=dim)
    return movedim(windows, dim + 1, -1)


def as_strided(input: Any, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """The elements at a grid of places in the row-major memory of `input`. `torch.as_strided`; here a copy, with
    gradients that add up where places repeat.

    Raises:
        BoundsError: a place outside the memory.
    """
    places = _strided(input, size, stride, storage_offset or 0)
    return ops.Gather(reshape(input, -1), places, axis=0)


def as_strided_scatter(
    input: Any, src: Any, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """`input` with `src` at a grid of places in its row-major memory. `torch.as_strided_scatter`."""
    places = _strided(input, size, stride, storage_offset or 0)
    if src.static_shape != places.static_shape:
        raise ShapeError(
            "as_strided_scatter: the source does not fit",
            expected=str(list(places.static_shape)),
            got=str(list(src.static_shape)),
        )
    flat = ops.ScatterElements(reshape(input, -1), reshape(places, -1), reshape(src, -1))
    return reshape(flat, input.shape)


def _strided(x: Any, size: Sequence[int], stride: Sequence[int], offset: int) -> Tensor:
    """The places of a grid in the memory of `x`, int64 of the shape `size`."""
    sizes, steps = list(size), list(stride)
    if len(sizes) != len(steps):
        raise ArgumentError("as_strided needs a stride for each size", got=f"{sizes}, {steps}")
    last = offset + sum((n - 1) * s for n, s in zip(sizes, steps, strict=True) if n)
    if min([offset, *steps]) < 0 or (0 not in sizes and last >= x.array.size):
        raise BoundsError(
            "as_strided reaches outside the memory", expected=f"places 0 to {x.array.size - 1}", got=f"up to {last}"
        )
    places = np.full(sizes, offset, np.int64)
    for axis, (n, s) in enumerate(zip(sizes, steps, strict=True)):
        places += (np.arange(n) * s).reshape([-1 if i == axis else 1 for i in range(len(sizes))])
    return on_device_of(operator.as_input(places), x)


def unravel_index(indices: Any, shape: Any) -> tuple[Tensor, ...]:
    """The coordinates of flat places in a shape, one tensor a dimension. `torch.unravel_index`."""
    from ox.functions.pointwise import floor_divide, remainder

    left = cast(as_index(indices, "unravel_index's indices"), int64)
    found = []
    for n in reversed(sizes_of((shape,))):
        found.append(remainder(left, n))
        left = floor_divide(left, n)
    return tuple(reversed(found))
