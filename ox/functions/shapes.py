"""Functions that rearrange: reshape, transpose, concatenate, split."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ox import ops
from ox.core.argument_errors import check_tensor_arguments
from ox.core.constants import axes_tensor
from ox.core.promotion import cast, row_major
from ox.core.symbolic import Dim, assume, is_named, size_tensor
from ox.core.tensor import is_tensor
from ox.core.views import in_own_memory
from ox.dtypes import promote
from ox.errors import ArgumentError, BoundsError, ShapeError
from ox.functions.dimension_arguments import Dims, one_dim, sizes_by_name, sizes_of, some_dims
from ox.functions.zero_gradients import with_zero_gradient

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = [
    "broadcast_to", "cat", "chunk", "concat", "concatenate", "expand", "flatten", "flip", "narrow", "permute",
    "repeat", "reshape", "split", "squeeze", "stack", "t", "transpose", "unbind", "unflatten", "unsqueeze",
]  # fmt: skip


def reshape(input: Any, *sizes: Any, shape: Any = None) -> Tensor:
    """The same elements in another shape, ``(2, 3)`` or ``((2, 3))``; one size may be -1. `torch.reshape`; a view where
    memory allows.

    Raises:
        ShapeError: the sizes do not multiply to the number of elements.
    """
    wanted = sizes_of(sizes) if shape is None else sizes_by_name("reshape", "shape", sizes, shape)
    if -1 in wanted and not input.array.size:
        wanted = _settled(input, wanted)
    elif -1 in wanted and 0 in wanted:
        raise ShapeError(
            "the size -1 cannot be computed beside a size of 0",
            got=f"{wanted} for {list(input.static_shape)}",
            hint="x.shape[0] for a size to keep",
        )
    elif wanted and builtins.min(wanted) < -1:
        raise ShapeError("a size is 0 or more, or -1 for what is left", got=str(wanted))
    return ops.Reshape(input, size_tensor(wanted), allowzero=int(-1 not in wanted))


def _settled(x: Any, sizes: list[Any]) -> list[Any]:
    """The sizes without -1, for a tensor without elements, where ONNX would read a 0 as a size to copy."""
    if 0 in sizes:
        raise ShapeError(
            "the size -1 is ambiguous for a tensor without elements",
            expected="a size for each dimension",
            got=f"{sizes} for {list(x.static_shape)}",
        )
    return [0 if s == -1 else s for s in sizes]


def flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions `start_dim` to `end_dim` as one. `torch.flatten`.

    Raises:
        BoundsError: no such dimension.
        ArgumentError: the start comes after the end.
    """
    rank = input.array.ndim
    start, end = one_dim(start_dim, rank), one_dim(end_dim, rank)
    if start > end:
        raise ArgumentError("flatten's start_dim comes after its end_dim", got=f"{start}, {end}")
    if start == 1 and end == rank - 1 and rank > 1:
        return ops.Flatten(input, axis=1)
    shape = input.shape
    if not input.array.size:
        return reshape(input, [*shape[:start], prod(shape[start : end + 1]), *shape[end + 1 :]])
    # only one size may be left open (-1): the merged one, so the others stay what they are at any batch size
    return reshape(input, [*shape[:start], -1, *shape[end + 1 :]])


def unflatten(input: Any, dim: int, sizes: Sequence[int]) -> Tensor:
    """One dimension as several, of which one may be -1. `torch.unflatten`."""
    shape, dim = input.shape, one_dim(dim, input.array.ndim)
    if -1 not in sizes and prod(sizes) != shape[dim]:
        raise ShapeError(
            f"unflatten does not use dimension {dim} up",
            expected=f"sizes that multiply to {shape[dim]}",
            got=str(list(sizes)),
        )
    return reshape(input, [*shape[:dim], *sizes, *shape[dim + 1 :]])


def transpose(input: Any, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged. `torch.transpose`."""
    rank = input.array.ndim
    dim0, dim1 = one_dim(dim0, rank), one_dim(dim1, rank)
    if not rank:
        return input
    perm = list(range(rank))
    perm[dim0], perm[dim1] = dim1, dim0
    return ops.Transpose(input, perm=perm)


def t(input: Any) -> Tensor:
    """A matrix with rows and columns exchanged; fewer dimensions stay. `torch.t`."""
    if input.array.ndim > 2:
        raise ShapeError("t() is for at most two dimensions", got=str(list(input.static_shape)), hint="x.mT")
    return ops.Transpose(input)


def permute(input: Any, *order: Any, dims: Any = None) -> Tensor:
    """The dimensions in another order. `torch.permute`."""
    rank = input.array.ndim
    wanted = sizes_of(order) if dims is None else sizes_by_name("permute", "dims", order, dims)
    perm = [one_dim(d, rank) for d in wanted]
    if sorted(perm) != list(range(rank)):
        raise ArgumentError("permute names each dimension once", expected=f"the numbers 0 to {rank - 1}", got=str(perm))
    return ops.Transpose(input, perm=perm)


def squeeze(input: Any, dim: Dims = None) -> Tensor:
    """Without dimensions of size 1: all of them, or those of `dim` that are 1. `torch.squeeze`."""
    shape, plain = input.shape, input.static_shape
    wanted = some_dims(dim, len(shape)) if shape and dim != () else []
    for d in wanted:
        if plain[d] != 1:  # one that is 1 must be it in every run, which ONNX checks
            assume("!=", shape[d], 1)
    chosen = [d for d in wanted if plain[d] == 1]
    return ops.Squeeze(input, axes_tensor(chosen)) if chosen else input


def unsqueeze(input: Any, dim: int) -> Tensor:
    """With a new dimension of size 1 at `dim`. `torch.unsqueeze`."""
    return ops.Unsqueeze(input, axes_tensor([one_dim(dim, input.array.ndim + 1)]))


def broadcast_to(input: Any, *size: Any) -> Tensor:
    """Repeated along dimensions of size 1, without a copy where possible. `torch.broadcast_to`, ONNX Expand.

    Raises:
        ShapeError: a size that is neither 1 nor the one wanted, or fewer dimensions.
    """
    sizes, own = sizes_of(size), input.static_shape
    extra = len(sizes) - len(own)
    if extra < 0 or builtins.any(have not in (1, want) for have, want in zip(own, sizes[extra:], strict=True)):
        raise ShapeError(
            f"{list(own)} does not broadcast to {[int(s) for s in sizes]}",
            expected="sizes that are equal, or 1 where they are to be repeated, counted from the last dimension",
        )
    return ops.Expand(input, size_tensor(sizes))


def expand(input: Any, *size: Any) -> Tensor:
    """`broadcast_to` where -1 keeps a size. `torch.Tensor.expand`."""
    sizes = sizes_of(size)
    extra = len(sizes) - input.array.ndim
    return broadcast_to(input, [input.shape[i - extra] if s == -1 and i >= extra else s for i, s in enumerate(sizes)])


def repeat(input: Any, *repeats: Any) -> Tensor:
    """Copies side by side along each dimension. `torch.Tensor.repeat`.

    Raises:
        ArgumentError: fewer counts than dimensions, or a negative one.
    """
    times = sizes_of(repeats)
    if len(times) < input.array.ndim or builtins.any(n < 0 for n in times):
        raise ArgumentError(
            "repeat takes a count for every dimension",
            expected=f"{input.array.ndim} counts or more, of 0 or more",
            got=str(times),
        )
    made = input
    for _ in range(len(times) - input.array.ndim):
        made = unsqueeze(made, 0)
    if builtins.any(isinstance(n, Dim) or n != 1 for n in times):
        made = ops.Tile(made, size_tensor(times))  # one sum in its gradient; that of Concat adds copy by copy
    return in_own_memory(made, input)


def cat(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Joined along an existing dimension, in the type in which all meet. `torch.cat`, ONNX Concat.

    Raises:
        ArgumentError: no tensors.
        ShapeError: they differ in another dimension.
    """
    tensors = list(tensors)
    if not tensors:
        raise ArgumentError("cat and stack need at least one tensor")
    for i, one in enumerate(tensors):
        if not is_tensor(one):
            raise ArgumentError(f"cat's tensor {i} is no tensor", got=type(one).__name__, hint="ox.tensor(it)")
        if not one.array.ndim:
            raise ShapeError(f"cat's tensor {i} has no dimensions", hint="ox.stack(tensors)")
    left_out: list[Any] = []
    if builtins.any(one.array.ndim > 1 for one in tensors):  # an empty vector goes with anything, as in PyTorch
        left_out = [one for one in tensors if one.static_shape == (0,)]
        tensors = [one for one in tensors if one.static_shape != (0,)]
    first = tensors[0]
    if builtins.any(one.array.dtype != first.array.dtype for one in tensors):
        dtype = first.array.dtype
        for one in tensors[1:]:
            dtype = promote(dtype, one.array.dtype)
        tensors = [cast(one, dtype) for one in tensors]
    return with_zero_gradient(row_major(ops.Concat(*tensors, axis=one_dim(dim, first.array.ndim))), *left_out)


concat = concatenate = cat


@check_tensor_arguments
def stack(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Joined along a new dimension. `torch.stack`."""
    return cat([unsqueeze(one, dim) for one in tensors], dim)


def split(tensor: Any, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of one size (the last may be smaller), or of the sizes given. `torch.split`.

    Raises:
        ArgumentError: a size below 1.
        ShapeError: sizes that do not add to the dimension.
    """
    dim, size = one_dim(dim, tensor.array.ndim), split_size_or_sections
    if isinstance(size, int):
        total = tensor.static_shape[dim]
        if size < 1:
            raise ArgumentError("split needs parts of 1 or more", got=str(size))
        count, recorded = builtins.max(1, -(-total // size)), tensor.shape[dim]
        if isinstance(recorded, Dim) and not is_named(recorded) and total == size * count:
            assume("==", recorded, total)
            return ops.Split(tensor, axis=dim, num_outputs=count, outputs=count)
        assume("==", -(-recorded // size), count)
        size = [size] * (count - 1) + [recorded - size * (count - 1)]
    return ops.Split(tensor, size_tensor(size), axis=dim, outputs=len(size))


def chunk(input: Any, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`chunks` parts as equal as can be, or fewer where there is less. `torch.chunk`."""
    if chunks < 1:
        raise ArgumentError("chunk needs 1 chunk or more", got=str(chunks))
    dim = one_dim(dim, input.array.ndim)
    total, recorded = input.static_shape[dim], input.shape[dim]
    if isinstance(recorded, Dim) and total and -(-total // -(-total // chunks)) == chunks:
        if chunks > 2 or total < chunks:  # two parts there are of any size from 2 on
            assume("==", -(-recorded // -(-recorded // chunks)), chunks)
        return ops.Split(input, axis=dim, num_outputs=chunks, outputs=chunks)
    return split(input, -(-total // chunks), dim) if total else split(input, [0] * chunks, dim)


def narrow(input: Any, dim: int, start: Any, length: int) -> Tensor:
    """`length` elements along `dim` from `start`, a number or an integer tensor []. `torch.narrow`.

    Raises:
        BoundsError: some of them are outside.
        ArgumentError: a start that is a tensor of another kind.
    """
    if is_tensor(start) and (start.array.ndim or start.array.dtype.kind not in "iu"):
        raise ArgumentError(
            "narrow starts at one whole number",
            expected="an int, or an integer tensor []",
            got=f"{start.array.dtype} {list(start.static_shape)}",
        )
    if not input.array.ndim:
        raise ShapeError("narrow needs a dimension", got="[]")
    dim = one_dim(dim, input.array.ndim)
    total = input.static_shape[dim]
    if start < -total or length < 0 or (start + total if start < 0 else start) + length > total:
        raise BoundsError(
            f"narrow reaches outside dimension {dim} of size {total}", got=f"start {int(start)}, length {int(length)}"
        )
    if start < 0:
        start = input.shape[dim] + start
    return ops.Slice(input, size_tensor([start]), size_tensor([start + length]), axes_tensor([dim]))


def unbind(input: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along `dim`, without it. `torch.unbind`."""
    if not input.array.ndim:
        raise ShapeError("unbind needs a dimension", got="[]")
    dim = one_dim(dim, input.array.ndim)
    return tuple(squeeze(part, dim) for part in split(input, 1, dim)) if input.static_shape[dim] else ()


def flip(input: Any, *dims: Any) -> Tensor:
    """Backwards along dimensions, a copy. `torch.flip`, ONNX Slice with steps of -1."""
    if dims == ((),):
        return in_own_memory(input, input)
    chosen = some_dims(sizes_of(dims), input.array.ndim)
    if not input.array.ndim:  # dimension 0 of a single number is named, too
        return in_own_memory(input, input)
    last, first, steps = [-1] * len(chosen), [-(2**62)] * len(chosen), [-1] * len(chosen)
    turned = ops.Slice(input, axes_tensor(last), axes_tensor(first), axes_tensor(chosen), axes_tensor(steps))
    return in_own_memory(turned, input)
