"""What is known of a tensor: its sizes, where it carries the rows, its integers if they follow from sizes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ox.serve.runtime.row_independence.size import COUNT, SIZE, B, Size, Symbols, divide, has_batch, is_size

Integers: TypeAlias = NDArray[Any]  # of Size


class Mixes(Exception):
    """Why rows of what an operator gives do not depend on the same rows alone."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """A tensor whose rows depend on other rows, on their place, or on how many there are."""

    why: str


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor whose rows, if it has any, depend on the same rows of the inputs alone.

    Args:
        dims: its sizes; None if not even their number is known.
        axis: the axis that carries the rows; None if it does not depend on them.
        outer: the axis is as long as outer × B × something: row b of it is what has b in the middle.
        integers: its elements, as far as they follow from sizes and constants.
        place: each row holds its own number: 0, 1, 2, ...
        floats: its elements, if they are a few known floating-point numbers.
        column: the first element of its last axis is the row's own number, as indices of GatherND have it.

    A tensor with rows is, at row b, what it would be for that row alone; but for one of `place` or `column`. A tensor
    without rows is the same for every batch; but for one whose `integers` hold B.
    """

    dims: tuple[Size, ...] | None
    axis: int | None = None
    outer: Size = 1
    integers: Integers | None = None
    place: bool = False
    floats: tuple[float, ...] | None = None
    column: bool = False

    @property
    def rank(self) -> int:
        if self.dims is None:
            raise Mixes("its number of dimensions is not known")
        return len(self.dims)

    @property
    def sizes(self) -> tuple[Size, ...]:
        if self.dims is None:
            raise Mixes("its number of dimensions is not known")
        return self.dims

    @property
    def counts(self) -> bool:
        """Whether its elements tell how many rows there are."""
        return self.integers is not None and any(map(has_batch, self.integers.flat))

    @property
    def varies(self) -> bool:
        return self.axis is not None or self.counts

    @property
    def inner(self) -> Size:
        """What stands inside the rows on their own axis."""
        assert self.axis is not None
        inner = divide(self.sizes[self.axis], B * self.outer)
        if inner is None:
            raise Mixes("the rows cannot be followed")
        return inner

    def with_dims(self, dims: Sequence[Size], shift: int = 0) -> Tensor:
        """The same rows in other sizes, `shift` axes further on."""
        return Tensor(tuple(dims), None if self.axis is None else self.axis + shift, self.outer, None, self.place)


State: TypeAlias = Tensor | Mixed
UNKNOWN = Tensor(None)


def constant(integers: Any) -> Tensor:
    """A tensor of integers that are known."""
    array = np.array(integers, object)
    return Tensor(array.shape, integers=array)


def same(one: State, two: State) -> bool:
    """Whether the same is known of both."""
    if isinstance(one, Mixed) or isinstance(two, Mixed):
        return isinstance(one, Mixed) and isinstance(two, Mixed)
    if (one.dims, one.axis, one.outer, one.place) != (two.dims, two.axis, two.outer, two.place):
        return False
    if (one.floats, one.column) != (two.floats, two.column):
        return False
    return _same_integers(one, two)


def _same_integers(one: Tensor, two: Tensor) -> bool:
    if one.integers is None or two.integers is None:
        return one.integers is two.integers
    return bool(one.integers.tolist() == two.integers.tolist())


def join(one: State, two: State, symbols: Symbols, key: Hashable) -> State:
    """What holds for a tensor that is one or the other, and the batch does not tell which.

    A size that is not the same gets the symbol of `key`.
    """
    if isinstance(one, Mixed):
        return one
    if isinstance(two, Mixed):
        return two
    equal = _same_integers(one, two)
    if not equal and (one.counts or two.counts):
        return Mixed("the number of rows becomes data")
    elsewhere = Mixed("it has the rows in one place or another")
    if one.column or two.column:
        return Mixed("a row's own number becomes data")
    if (one.axis, one.outer, one.place) != (two.axis, two.outer, two.place):
        return elsewhere
    dims: tuple[Size, ...] | None = None
    if one.dims is not None and two.dims is not None and len(one.dims) == len(two.dims):
        pairs = enumerate(zip(one.dims, two.dims, strict=True))
        dims = tuple(a if a == b else symbols.of((key, axis)) for axis, (a, b) in pairs)
    if one.axis is not None and (dims is None or dims[one.axis] != one.sizes[one.axis]):
        return elsewhere
    floats = one.floats if one.floats == two.floats else None
    return Tensor(dims, one.axis, one.outer, one.integers if equal else None, one.place, floats)


def broadcast(tensors: Sequence[Tensor], symbols: Symbols) -> Tensor:
    """What an operator element by element makes of its inputs, by NumPy's rules.

    Raises:
        Mixes: rows would meet other rows, or something that is not there once for each.
    """
    first = tensors[0]
    if all(tensor.dims == first.dims for tensor in tensors) and first.dims is not None:
        if any(tensor.axis != first.axis or tensor.outer != first.outer for tensor in tensors):
            raise Mixes("rows meet other rows")
        return Tensor(first.dims, first.axis, first.outer)
    rows = [tensor for tensor in tensors if tensor.axis is not None]
    if any(tensor.dims is None for tensor in tensors):
        if rows:
            raise Mixes("with a tensor whose number of dimensions is not known")
        return UNKNOWN
    rank = max(tensor.rank for tensor in tensors)
    dims = tuple(
        _broadcast_size([t.sizes[back] for t in tensors if t.rank >= -back], symbols) for back in range(-rank, 0)
    )
    if not rows:
        return Tensor(dims)
    lead = rows[0]
    assert lead.axis is not None
    back = lead.axis - lead.rank
    for tensor in tensors:
        if tensor.axis is None:
            if tensor.rank >= -back and tensor.sizes[back] != 1:
                raise Mixes("rows meet a tensor with another size there")
        elif (tensor.axis - tensor.rank, tensor.outer, tensor.sizes[tensor.axis]) != (
            back, lead.outer, lead.sizes[lead.axis]
        ):  # fmt: skip
            raise Mixes("rows meet other rows")
    return Tensor((*dims[:back], lead.sizes[lead.axis], *dims[rank + back + 1 :]), rank + back, lead.outer)


def _broadcast_size(sizes: Sequence[Size], symbols: Symbols) -> Size:
    rest = {size for size in sizes if size != 1}
    if len(rest) <= 1:
        return rest.pop() if rest else 1
    known = [size for size in rest if isinstance(size, int)]
    return known[0] if known else symbols.fresh(SIZE if all(map(is_size, rest)) else COUNT)
