"""Functions that join, cut and combine several tensors: hstack, tensor_split, meshgrid, block_diag, ..."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations as itertools_combinations
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.core import operator
from ox.core.constants import on_device_of
from ox.core.promotion import cast
from ox.core.symbolic import Dim
from ox.core.tensor import is_tensor
from ox.dtypes import promote
from ox.errors import ArgumentError, ShapeError
from ox.functions.diagonals import triu_indices
from ox.functions.dimension_arguments import one_dim
from ox.functions.gather_select import index_select
from ox.functions.index_arguments import broadcast_all, broadcast_sizes
from ox.functions.shapes import broadcast_to, cat, narrow, reshape, split, stack, transpose, unsqueeze
from ox.ops.shape.pad import pad_axes

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors", "cartesian_prod",
    "column_stack", "combinations", "dsplit", "dstack", "hsplit", "hstack", "meshgrid", "row_stack",
    "split_with_sizes", "tensor_split", "unsafe_chunk", "unsafe_split", "vsplit", "vstack",
]  # fmt: skip


def _several(tensors: tuple[Any, ...]) -> tuple[list[Any], bool]:
    """The tensors in ``f(a, b)`` or ``f([a, b])``, and whether ``f(a)`` was meant."""
    if len(tensors) == 1 and not is_tensor(tensors[0]):
        return list(tensors[0]), False
    return list(tensors), len(tensors) == 1


def _at_least(rank: int, x: Any) -> Any:
    have = x.array.ndim
    if have >= rank:
        return x
    if rank == 3 and have == 2:
        return unsqueeze(x, -1)
    shape = list(x.shape)
    return reshape(x, {1: [1], 2: [1, *shape], 3: [1, *(shape or [1]), 1]}[rank] if have else [1] * rank)


def _at_least_function(rank: int) -> Any:
    def function(*tensors: Any) -> Any:
        several, alone = _several(tensors)
        made = tuple(_at_least(rank, x) for x in several)
        return made[0] if alone else made

    function.__name__ = function.__qualname__ = f"atleast_{rank}d"
    function.__doc__ = f"With dimensions of size 1 up to {rank}. `torch.atleast_{rank}d`."
    return function


atleast_1d, atleast_2d, atleast_3d = map(_at_least_function, (1, 2, 3))


def hstack(tensors: Sequence[Any]) -> Tensor:
    """Side by side: along the second dimension, vectors along the first. `torch.hstack`."""
    rows = [_at_least(1, x) for x in tensors]
    return cat(rows, 0 if rows and rows[0].array.ndim == 1 else 1)


def vstack(tensors: Sequence[Any]) -> Tensor:
    """One below the other, vectors as rows. `torch.vstack`."""
    return cat([_at_least(2, x) for x in tensors], 0)


row_stack = vstack


def dstack(tensors: Sequence[Any]) -> Tensor:
    """One behind the other, along the third dimension. `torch.dstack`."""
    return cat([_at_least(3, x) for x in tensors], 2)


def column_stack(tensors: Sequence[Any]) -> Tensor:
    """Side by side, vectors as columns. `torch.column_stack`."""
    return cat([reshape(x, -1, 1) if x.array.ndim < 2 else x for x in tensors], 1)


def tensor_split(input: Any, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """So many parts, the first ones one longer where they do not fit, or parts that end at the given places.
    `torch.tensor_split`."""
    if not input.array.ndim:
        raise ShapeError("tensor_split needs a dimension", got="[]")
    dim = one_dim(dim, input.array.ndim)
    if is_tensor(indices_or_sections):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        size, count = input.shape[dim], indices_or_sections
        if count < 1:
            raise ArgumentError("tensor_split needs 1 section or more", got=str(count))
        return split(input, [(size + count - 1 - i) // count for i in range(count)], dim)
    part: list[Any] = [slice(None)] * input.array.ndim
    found, begin = [], 0
    for end in [*indices_or_sections, None]:
        part[dim] = slice(begin, end)
        found.append(input[tuple(part)])
        begin = end
    return tuple(found)


def _named_split(name: str, dim: int, least: int) -> Any:
    def function(input: Any, indices_or_sections: Any) -> tuple[Tensor, ...]:
        if input.array.ndim < least:
            raise ShapeError(f"{name} needs {least} dimensions or more", got=str(list(input.static_shape)))
        along = 0 if name == "hsplit" and input.array.ndim == 1 else dim
        size = input.static_shape[along]
        if isinstance(indices_or_sections, int) and (indices_or_sections < 1 or size % indices_or_sections):
            raise ArgumentError(f"{name} makes equal parts", got=f"{indices_or_sections} parts of {size}")
        return tensor_split(input, indices_or_sections, along)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Equal parts, or parts that end at places, along dimension {dim}. `torch.{name}`."
    return function


hsplit, vsplit, dsplit = _named_split("hsplit", 1, 1), _named_split("vsplit", 0, 2), _named_split("dsplit", 2, 3)


def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """All in the shape in which they meet. `torch.broadcast_tensors`."""
    return broadcast_all(*_several(tensors)[0])


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape in which shapes meet. `torch.broadcast_shapes`. Raises ShapeError where they do not."""
    return tuple(broadcast_sizes(*(tuple(s) if not isinstance(s, int) else (s,) for s in shapes)))


def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Each vector along its own dimension of a common grid; with "xy" the first two exchanged. `torch.meshgrid`.

    Raises:
        ArgumentError: no tensors, different types, or another indexing.
    """
    several, _ = _several(tensors)
    indexing = "ij" if indexing is None else indexing
    if indexing not in ("ij", "xy") or not several:
        raise ArgumentError("meshgrid takes tensors and an indexing", expected="'ij' or 'xy'")
    if len({x.array.dtype for x in several}) > 1 or any(x.array.ndim > 1 for x in several):
        raise ArgumentError("meshgrid takes vectors of one element type")
    several = [_at_least(1, x) for x in several]
    sizes = [x.shape[0] for x in several]
    places = list(range(len(several)))
    if indexing == "xy" and len(several) > 1:
        places[:2] = [1, 0]
    shape = [sizes[places.index(d)] for d in range(len(sizes))]
    return tuple(
        broadcast_to(reshape(x, [x.shape[0] if d == place else 1 for d in range(len(sizes))]), shape)
        for x, place in zip(several, places, strict=True)
    )


def cartesian_prod(*tensors: Any) -> Tensor:
    """All combinations of an element of each vector, one a row. `torch.cartesian_prod`."""
    several, alone = _several(tensors)
    if alone:
        return several[0]
    return stack([reshape(grid, -1) for grid in meshgrid(*several)], 1)


def combinations(input: Any, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of r elements of a vector in their order, one a row. `torch.combinations`."""
    if input.array.ndim != 1 or r < 0:
        raise ArgumentError("combinations takes a vector and a count")
    if r == 2 and isinstance(input.shape[0], Dim):
        size = input.shape[0]
        pairs = on_device_of(triu_indices(size, size, int(not with_replacement)), input)
        return transpose(ops.Gather(input, pairs, axis=0), 0, 1)
    choose = combinations_with_replacement if with_replacement else itertools_combinations
    chosen = np.array(list(choose(range(int(input.static_shape[0])), r)), np.int64).reshape(-1, r)
    if not chosen.size:
        return reshape(narrow(input, 0, 0, 0), 0, r) if r else narrow(input, 0, 0, 0)
    return reshape(
        index_select(input, 0, on_device_of(operator.as_input(chosen.reshape(-1)), input)), list(chosen.shape)
    )


def block_diag(*tensors: Any) -> Tensor:
    """Matrices along the diagonal of a larger one. `torch.block_diag`."""
    several, _ = _several(tensors)
    blocks = []
    for x in several:
        if x.array.ndim > 2:
            raise ShapeError("block_diag takes matrices", got=str(list(x.static_shape)))
        blocks.append(_at_least(2, x))
    dtype = blocks[0].array.dtype
    for block in blocks[1:]:
        dtype = promote(dtype, block.array.dtype)
    width: Any = sum(b.shape[1] for b in blocks)
    rows, before = [], 0
    for block in blocks:
        behind = width - before - block.shape[1]
        padded = _between(cast(block, dtype), before, behind)
        rows.append(padded)
        before = before + block.shape[1]
    return cat(rows, 0)


def _between(block: Any, before: Any, behind: Any) -> Any:
    """Zeros on both sides of a matrix."""
    if not isinstance(before, Dim) and not isinstance(behind, Dim) and not before and not behind:
        return block
    return pad_axes(block, {1: (before, behind)})


def unsafe_chunk(input: Any, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`chunk`. `torch.unsafe_chunk`."""
    from ox.functions.shapes import chunk

    return chunk(input, chunks, dim)


def unsafe_split(input: Any, split_size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """`split`. `torch.unsafe_split`."""
    return split(input, split_size, dim)


def split_with_sizes(input: Any, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """`split` into parts of the sizes given. `torch.Tensor.split_with_sizes`."""
    return split(input, split_sizes, dim)
