"""The form of a tensor: Reshape Flatten Transpose Squeeze Unsqueeze Expand Concat Split."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ox.core.broadcast import reshape_to, sum_to
from ox.core.constants import zeros
from ox.core.operator import operator
from ox.core.symbolic import size_tensor, sizes_of
from ox.core.tensor import TensorBase
from ox.core.types import XP, HostInt64, T
from ox.dtypes import ALL
from ox.errors import ShapeError

__all__ = ["Concat", "Expand", "Flatten", "Reshape", "Split", "Squeeze", "Transpose", "Unsqueeze"]


@operator("reshaped", kind="reshape", view=True, T=ALL, amp="widest")
def Reshape(xp: XP, data: T, shape: HostInt64, *, allowzero: int = 0) -> T:
    """The same elements in another shape; one size may be -1, and 0 copies the input's size unless `allowzero`.
    ONNX Reshape."""
    sizes = shape.tolist()
    if 0 in sizes and not allowzero:
        sizes = [data.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    try:
        return data.reshape(sizes)
    except ValueError:
        raise ShapeError(
            f"Reshape cannot make {sizes} of {list(data.shape)}",
            expected=f"sizes that multiply to {data.size}",
            got=f"{sizes}, which multiply to {prod(sizes)}" if -1 not in sizes else str(sizes),
        ) from None


@Reshape.gradient("data")
def _(g: TensorBase, data_shape: tuple[int, ...]) -> TensorBase:
    return reshape_to(g, data_shape)


@operator("output", kind="reshape", view=True, T=ALL, amp="widest")
def Flatten(xp: XP, input: T, *, axis: int = 1) -> T:
    """Two dimensions: those before `axis` and those from it on. ONNX Flatten."""
    axis = axis + input.ndim if axis < 0 else axis
    return input.reshape(prod(input.shape[:axis]), prod(input.shape[axis:]))


@Flatten.gradient("input")
def _(g: TensorBase, input_shape: tuple[int, ...]) -> TensorBase:
    return reshape_to(g, input_shape)


@operator("transposed", kind="permutation", view=True, T=ALL, amp="widest", batching="own")
def Transpose(xp: XP, data: T, *, perm: Sequence[int] | None = None) -> T:
    """Dimensions in the order `perm`, by default reversed. ONNX Transpose."""
    return data.transpose(perm)


@Transpose.gradient("data")
def _(g: TensorBase, perm: Sequence[int] | None) -> TensorBase:
    if perm is None:
        return Transpose(g)
    inverse = [0] * len(perm)
    for i, p in enumerate(perm):
        inverse[p] = i
    return Transpose(g, perm=inverse)


@operator("squeezed", kind="reshape", view=True, T=ALL, amp="widest")
def Squeeze(xp: XP, data: T, axes: HostInt64 = None) -> T:
    """Without the given axes of size 1, by default without all of them. ONNX Squeeze."""
    return data.squeeze(None if axes is None else tuple(axes.tolist()))


@Squeeze.gradient("data")
def _(g: TensorBase, axes: TensorBase | None, data_shape: tuple[int, ...]) -> TensorBase:
    return reshape_to(g, data_shape) if axes is None else Unsqueeze(g, axes)


@operator("expanded", kind="reshape", view=True, T=ALL, amp="widest")
def Unsqueeze(xp: XP, data: T, axes: HostInt64) -> T:
    """With new axes of size 1, at these places of the result. ONNX Unsqueeze."""
    return xp.expand_dims(data, tuple(axes.ravel().tolist()))


@Unsqueeze.gradient("data")
def _(g: TensorBase, axes: TensorBase) -> TensorBase:
    return Squeeze(g, axes)


@operator("output", kind="repetition", sized_by="shape", view=True, T=ALL, amp="widest", batching="own")
def Expand(xp: XP, input: T, shape: HostInt64) -> T:
    """Broadcast with `shape`; the NumPy result is a view, read-only where elements are repeated. ONNX Expand."""
    wanted = np.broadcast_shapes(input.shape, tuple(shape.tolist()))
    return input.reshape(wanted) if prod(wanted) == input.size else xp.broadcast_to(input, wanted)


@Expand.gradient("input")
def _(g: TensorBase, input_shape: tuple[int, ...]) -> TensorBase:
    return sum_to(g, input_shape)


@operator("concat_result", kind="concatenation", T=ALL, amp="widest", batching="own")
def Concat(xp: XP, *inputs: T, axis: int) -> T:
    """Joined along an existing axis. ONNX Concat."""
    return xp.concatenate(inputs, axis)


@Concat.gradient("inputs")
def _(g: TensorBase, inputs_shape: list[tuple[int, ...]], axis: int) -> Sequence[TensorBase]:
    sizes = [shape[axis] for shape in inputs_shape]
    return Split(g, size_tensor(sizes), axis=axis, outputs=len(sizes))


@operator("*outputs", kind="selection", view=True, T=ALL, amp="widest", batching="own")
def Split(
    xp: XP, input: T, split: HostInt64 = None, *, axis: int = 0, num_outputs: int | None = None, outputs: int = 1
) -> T:
    """Cut along an axis into pieces of the sizes `split`, or into `num_outputs` equal ones, the last one smaller where
    they do not fit. ONNX Split."""
    size = input.shape[axis]
    sizes = _pieces(size, num_outputs or outputs) if split is None else split.tolist()
    if sum(sizes) != size or any(n < 0 for n in sizes):
        raise ShapeError(
            f"Split of axis {axis} of {list(input.shape)} does not use it up",
            expected=f"sizes that add to {size}, none of them negative",
            got=str(sizes),
        )
    pieces, begin = [], 0
    before = (slice(None),) * (axis % input.ndim)
    for length in sizes:
        pieces.append(input[(*before, slice(begin, begin + length))])
        begin += length
    return tuple(pieces)


def _pieces(size: Any, count: int) -> list[Any]:
    """Equal sizes, the last one smaller; works for `ox.Dim` too."""
    if count == 1:
        return [size]
    length = (size + count - 1) // count
    return [length] * (count - 1) + [size - length * (count - 1)]


@Split.gradient("input")
def _(split: TensorBase | None, input_shape: tuple[int, ...], axis: int, *pieces: TensorBase | None) -> TensorBase:
    given = next(g for g in pieces if g is not None)
    axis %= len(input_shape)
    sizes = _pieces(input_shape[axis], len(pieces)) if split is None else sizes_of(split)
    return Concat(
        *[
            zeros([*input_shape[:axis], size, *input_shape[axis + 1 :]], given) if g is None else g
            for g, size in zip(pieces, sizes, strict=True)
        ],
        axis=axis,
    )
