"""Operators that move elements and change none: where the rows go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from ox.serve.config.model_config import MOST as MOST_ROWS
from ox.serve.runtime.row_independence.node import MAX_FLOATS, MAX_INTEGERS, Node, axis_of, rule
from ox.serve.runtime.row_independence.size import (
    SIZE,
    VALUE,
    B,
    Polynomial,
    Size,
    batch_factor,
    divide,
    has_batch,
    is_count,
    is_exact,
    is_size,
    product,
)
from ox.serve.runtime.row_independence.state import UNKNOWN, Mixes, Tensor, constant

SLICE_TO_END = (1 << 31) - 1  # what exporters write for "to the end" is at least this


@rule("Reshape", counts=True, places=True)
def reshape(node: Node) -> Tensor:
    x = node[0]
    if node.has(1):
        target = node.elements(1)
    else:
        attribute = node.ints("shape")
        target = None if attribute is None else list[Size](attribute)
    if target is None:
        return _anywhere(x)
    return _reshaped(node, x, target, bool(node.integer("allowzero", 0)))


def _anywhere(x: Tensor) -> Tensor:
    if x.varies:
        raise Mixes("to a shape that is not known")
    return UNKNOWN


def _reshaped(node: Node, x: Tensor, target: Sequence[Size], zero: bool = False) -> Tensor:
    """The elements of `x` in another shape, where -1 is what remains and 0 what was there."""
    if x.dims is None:
        if x.varies:
            raise Mixes("its number of dimensions is not known")
        return Tensor(tuple(size if is_size(size) and not has_batch(size) else node.symbols.fresh() for size in target))
    if not zero and any(isinstance(size, Polynomial) and not is_size(size) for size in target):
        target = [size if isinstance(size, int) or is_size(size) else _perhaps_copied(node, size) for size in target]
    dims = [x.sizes[place] if size == 0 and not zero and place < x.rank else size for place, size in enumerate(target)]
    if x.integers is not None and all(isinstance(size, int) for size in dims):
        integers = x.integers.reshape([size for size in dims if isinstance(size, int)])
        return Tensor(integers.shape, integers=integers)
    if dims.count(-1) > 1:
        raise Mixes("to a shape that is not one")
    if x.counts:
        raise Mixes("the number of rows becomes data")
    carriers = [place for place, size in enumerate(dims) if has_batch(size)]
    rest = dims.index(-1) if -1 in dims else None
    if rest is not None:
        others = [size for place, size in enumerate(dims) if place != rest]
        quotient = divide(product(x.sizes), product(others)) if all(map(is_size, others)) else None
        if quotient is not None:
            dims[rest] = quotient
            carriers = [place for place, size in enumerate(dims) if has_batch(size)]
        elif x.axis is not None and (not carriers or rest < carriers[0]):
            raise Mixes("to a shape in which the rows cannot be followed")
    if x.axis is None:
        if carriers:
            raise Mixes("spreads a constant over the rows")
        return Tensor(tuple(size if is_size(size) else node.symbols.fresh() for size in dims))
    if len(carriers) != 1:
        raise Mixes("to a shape that does not have the rows on one axis" if carriers else "to a shape without the rows")
    axis = carriers[0]
    factor, before = batch_factor(dims[axis]), dims[:axis]
    if factor is None or not all(map(is_size, before)):
        raise Mixes("to a shape in which the rows cannot be followed")
    outer = divide(product(x.sizes[: x.axis]) * x.outer, product(before))
    if outer is None or divide(factor, outer) is None:
        raise Mixes("moves elements from one row to another")
    # What is behind the rows' axis cannot move them, known or not.
    dims[axis + 1 :] = [size if is_size(size) else node.symbols.fresh() for size in dims[axis + 1 :]]
    return Tensor(tuple(dims), axis, outer, None, x.place)


def _perhaps_copied(node: Node, size: Size) -> Size:
    """A size that may be 0, which says that what was there stays, and one that may be -1."""
    if has_batch(size):
        raise Mixes("to a shape in which the rows cannot be followed")
    return node.symbols.fresh(VALUE)


@rule("Flatten", places=True)
def flatten(node: Node) -> Tensor:
    x = node[0]
    axis = node.integer("axis", 1)
    axis = axis if axis == x.rank else axis_of(axis, x.rank)
    return _reshaped(node, x, [product(x.sizes[:axis]), product(x.sizes[axis:])], zero=True)


@rule("Transpose", places=True)
def transpose(node: Node) -> Tensor:
    x = node[0]
    order = node.ints("perm") or list(range(x.rank))[::-1]
    if sorted(order) != list(range(x.rank)):
        raise Mixes("perm is no order of the axes")
    if x.integers is not None:
        return constant(x.integers.transpose(order))
    axis = None if x.axis is None else order.index(x.axis)
    return Tensor(tuple(x.sizes[old] for old in order), axis, x.outer, None, x.place)


@rule("Squeeze", counts=True, places=True)
def squeeze(node: Node) -> Tensor:
    x = node[0]
    axes = node.axes("axes", 1)
    if not axes:
        if x.axis is not None or axes is None or any(isinstance(size, Polynomial) for size in x.sizes):
            return _anywhere(x)
        axes = [axis for axis, size in enumerate(x.sizes) if size == 1]
    gone = {axis_of(axis, x.rank) for axis in axes}
    if x.axis in gone:
        raise Mixes("removes the batch axis")
    kept = [size for axis, size in enumerate(x.sizes) if axis not in gone]
    if x.integers is not None:
        return constant(x.integers.reshape(kept))
    return x.with_dims(kept, -sum(axis < (x.axis or 0) for axis in gone))


@rule("Unsqueeze", counts=True, places=True)
def unsqueeze(node: Node) -> Tensor:
    x = node[0]
    axes = node.axes("axes", 1)
    if axes is None:
        return _anywhere(x)
    rank = x.rank + len(axes)
    new = {axis_of(axis, rank) for axis in axes}
    old = [axis for axis in range(rank) if axis not in new]
    if len(old) != x.rank:
        raise Mixes("axes appear twice")
    dims: list[Size] = [1] * rank
    for axis, size in zip(old, x.sizes, strict=True):
        dims[axis] = size
    if x.integers is not None:
        return constant(x.integers.reshape(dims))
    return Tensor(tuple(dims), None if x.axis is None else old[x.axis], x.outer, None, x.place)


@rule("Expand", counts=True, places=True)
def expand(node: Node) -> Tensor:
    x, target = node[0], node.elements(1)
    if target is None or x.dims is None:
        return _anywhere(x)
    rank = max(x.rank, len(target))
    sizes: list[Size] = [*[1] * (rank - x.rank), *x.sizes]
    wanted: list[Size] = [*[1] * (rank - len(target)), *target]
    if x.integers is not None and x.integers.size == 1:
        filled = filled_with(wanted, x.integers.ravel()[0])
        if filled is not None:
            return filled
    if x.counts:
        raise Mixes("the number of rows becomes data")
    axis = None if x.axis is None else x.axis + rank - x.rank
    outer = x.outer
    dims: list[Size] = []
    for place, (size, want) in enumerate(zip(sizes, wanted, strict=True)):
        if want in (1, size) or (place != axis and isinstance(size, int) and size > 1 and not has_batch(want)):
            dims.append(size)
        elif has_batch(want):
            if axis is not None or size != 1 or batch_factor(want) is None or not is_count(want):
                raise Mixes("to a shape that does not have the rows on one axis")
            axis, outer = place, 1  # the same for each row
            dims.append(want)
        elif place == axis:
            raise Mixes("to a shape that is not known where the rows are")
        else:
            dims.append(want if size == 1 and is_count(want) else node.symbols.fresh())
    return Tensor(tuple(dims), axis, outer, None, x.place)


def filled_with(sizes: Sequence[Size], value: Size) -> Tensor | None:
    """A tensor of one integer, if it is a small one."""
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) < len(sizes) or math.prod(known) > MAX_INTEGERS:
        return None
    return constant(np.full(known, value, object))


@rule("Tile", counts=True)
def tile(node: Node) -> Tensor:
    x, repeats = node[0], node.elements(1)
    if x.counts:
        raise Mixes("the number of rows becomes data")
    if node.version < 6 or repeats is None or x.dims is None:
        return _anywhere(x)
    if len(repeats) != x.rank:
        raise Mixes("repeats another number of axes")
    axis, outer = x.axis, x.outer
    dims: list[Size] = []
    for place, (size, repeat) in enumerate(zip(x.sizes, repeats, strict=True)):
        if has_batch(repeat):
            if axis is not None or batch_factor(repeat) is None or not is_count(size * repeat):
                raise Mixes("repeats rows for each row")
            axis, outer = place, 1  # the same for each row
        elif place == axis:
            if not is_size(repeat):
                raise Mixes("repeats rows an unknown number of times")
            outer = outer * repeat
        dims.append(size * repeat if is_count(repeat) else node.symbols.fresh())
    return Tensor(tuple(dims), axis, outer)


@rule("Concat", counts=True, places=True)
def concat(node: Node) -> Tensor:
    inputs = node.given
    if len(inputs) == 1:
        return inputs[0]
    if any(tensor.counts for tensor in inputs) or all(tensor.integers is not None for tensor in inputs):
        arrays = []
        for index, tensor in enumerate(inputs):
            values = node.elements(index)
            if values is None or tensor.rank != inputs[0].rank:
                raise Mixes("the number of rows becomes data")
            array = np.empty(len(values), object)
            array[:] = values
            arrays.append(array.reshape([size for size in tensor.sizes if isinstance(size, int)]))
        if sum(array.size for array in arrays) <= MAX_INTEGERS:
            return constant(np.concatenate(arrays, axis_of(node.integer("axis", 0), inputs[0].rank)))
        if any(tensor.counts for tensor in inputs):
            raise Mixes("the number of rows becomes data")
    if any(tensor.dims is None for tensor in inputs):
        if any(tensor.varies for tensor in inputs):
            raise Mixes("with a tensor whose number of dimensions is not known")
        return UNKNOWN
    first = inputs[0]
    if all(tensor.floats is not None for tensor in inputs):
        count = sum(len(tensor.floats or ()) for tensor in inputs)
        if count > MAX_FLOATS:
            return Tensor((count,))
        return Tensor((count,), floats=tuple(value for tensor in inputs for value in tensor.floats or ()))
    axis = axis_of(node.integer("axis", 1), first.rank)
    if any(tensor.rank != first.rank for tensor in inputs):
        raise Mixes("tensors of several ranks")
    column = first.place and axis == first.rank - 1 and first.sizes[axis] == 1
    if any(tensor.place for tensor in inputs[1:]) or (first.place and not column):
        raise Mixes("a row's own number becomes data")
    dims = list(first.sizes)
    for tensor in inputs[1:]:
        dims[axis] = dims[axis] + tensor.sizes[axis]
    for place, size in enumerate(dims):
        if place != axis and isinstance(size, Polynomial):  # a number, if one of them knows it
            known = [tensor.sizes[place] for tensor in inputs if isinstance(tensor.sizes[place], int)]
            dims[place] = known[0] if known and not has_batch(size) else size
    if all(tensor.axis is None for tensor in inputs):
        return Tensor(tuple(dims))
    lead, outer = _alike(inputs), first.outer
    if axis == lead.axis:
        inner = first.inner
        for tensor in inputs[1:]:
            if tensor.inner != inner:
                raise Mixes("puts rows of several lengths behind one another")
            outer = outer + tensor.outer
    elif any((tensor.outer, tensor.sizes[lead.axis or 0]) != (outer, first.sizes[lead.axis or 0]) for tensor in inputs):
        raise Mixes("rows meet other rows")
    return Tensor(tuple(dims), lead.axis, outer, column=column)


def _alike(inputs: Sequence[Tensor]) -> Tensor:
    if any(tensor.axis != inputs[0].axis for tensor in inputs):
        raise Mixes("with a tensor that is not there once for each row")
    return inputs[0]


@rule("Split", counts=True)
def split(node: Node) -> Sequence[Tensor]:
    x = node[0]
    axis, count = axis_of(node.integer("axis", 0), x.rank), node.count
    parts: list[Size] | None = None
    if node.has(1):
        parts = node.elements(1)
    elif (said := node.ints("split")) is not None:
        parts = list[Size](said)
    else:
        size = x.sizes[axis]
        if isinstance(size, int):
            each = -(-size // count)
            parts = [*[each] * (count - 1), size - each * (count - 1)]
        elif (share := divide(size, count)) is not None:
            parts = [share] * count
    if x.integers is not None:
        if parts is None or any(not isinstance(part, int) for part in parts):
            return [UNKNOWN] * count if not x.counts else _lost()
        ends = list(accumulate(part for part in parts if isinstance(part, int)))
        return [constant(part) for part in np.split(x.integers, ends[:-1], axis)]
    results = []
    for place in range(count):
        part = parts[place] if parts is not None and place < len(parts) else None
        dims, outer = list(x.sizes), x.outer
        if axis == x.axis:
            share = None if part is None else divide(part, B * x.inner)
            if share is None or not is_size(share) or has_batch(share):
                raise Mixes("splits the batch axis")
            outer = share
        elif part is not None and has_batch(part):
            raise Mixes("splits by the number of rows")
        dims[axis] = part if part is not None and is_size(part) else node.symbols.fresh()
        results.append(Tensor(tuple(dims), x.axis, outer))
    return results


def _lost() -> Sequence[Tensor]:
    raise Mixes("the number of rows becomes data")


@rule("Slice", counts=True, places=True)
def slice_(node: Node) -> Tensor:
    x = node[0]
    if node.ints("starts") is not None:
        starts, ends, axes, steps = node.ints("starts"), node.ints("ends"), node.ints("axes"), None
        first, last = list[Size](starts or []), list[Size](ends or [])
    else:
        first, last = node.elements(1) or [], node.elements(2) or []
        axes = node.numbers(3) if node.has(3) else None
        steps = node.elements(4) if node.has(4) else None
        if not first or len(first) != len(last) or (node.has(3) and axes is None):
            return _anywhere(x)
    axes = list(range(len(first))) if axes is None else axes
    strides = [1] * len(first) if steps is None else steps
    if x.integers is not None:
        return _sliced_integers(node, x, first, last, axes, strides)
    dims = list(x.sizes)
    for axis, start, end, step in zip(axes, first, last, strides, strict=True):
        axis = axis_of(axis, x.rank)
        size = dims[axis]
        far = MOST_ROWS if size == B else SLICE_TO_END
        to_the_end = (end == size and is_exact(end)) or (isinstance(end, int) and end >= far)
        whole = start == 0 and step == 1 and to_the_end
        if axis == x.axis and not whole:
            raise Mixes("takes some of the rows, or turns them round")
        if any(map(has_batch, (start, end, step))) and not whole:
            raise Mixes("cuts by the number of rows")
        if not whole:
            dims[axis] = _length(node, size, start, end, step)
    return x.with_dims(dims)


def _sliced_integers(
    node: Node, x: Tensor, first: Sequence[Size], last: Sequence[Size], axes: Sequence[int], strides: Sequence[Size]
) -> Tensor:
    assert x.integers is not None
    cut = [slice(None)] * x.rank
    for axis, *parts in zip(axes, first, last, strides, strict=True):
        start, end, step = parts
        if not (isinstance(start, int) and isinstance(end, int) and isinstance(step, int)) or step == 0:
            if x.counts:
                raise Mixes("the number of rows becomes data")
            return _cut(node, x, first, last, axes, strides)
        size = x.integers.shape[axis_of(axis, x.rank)]
        before = step < 0 and end < -size
        cut[axis_of(axis, x.rank)] = slice(start, None if before else end, step)
    return constant(x.integers[tuple(cut)])


def _cut(
    node: Node, x: Tensor, first: Sequence[Size], last: Sequence[Size], axes: Sequence[int], strides: Sequence[Size]
) -> Tensor:
    """A part of numbers whose size follows from other sizes: positions, up to the length of a text."""
    if any(map(has_batch, (*first, *last, *strides))):
        return UNKNOWN
    dims = list(x.sizes)
    for axis, start, end, step in zip(axes, first, last, strides, strict=True):
        place = axis_of(axis, x.rank)
        dims[place] = _length(node, dims[place], start, end, step)
    return Tensor(tuple(dims))


def _length(node: Node, size: Size, start: Size, end: Size, step: Size) -> Size:
    if all(isinstance(part, int) for part in (size, start, end, step)) and step:
        return len(range(size)[slice(start, end, step)])  # type: ignore[arg-type]
    if step == 1 and isinstance(start, int) and start >= 0 and isinstance(end, int):
        if end < 0 or end >= SLICE_TO_END:
            left = size - start + (end if end < 0 else 0)
            return left if is_count(left) else node.symbols.of(("slice", left))
    elif step == 1 and start == 0 and is_size(end) and is_exact(end) and is_size(size):
        return node.symbols.of(("slice", size, end), SIZE) if divide(size, end) is None else end  # the smaller of both
    return node.symbols.fresh()
