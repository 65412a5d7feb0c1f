"""``x[:, 2:4] = v`` as Slice and Concat: what a write to a block is in a recording, also through views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ox import ops
from ox.core import views
from ox.core.constants import axes_tensor
from ox.core.symbolic import Dim
from ox.functions.indexing import as_parts, get

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor


@dataclass(frozen=True)
class Block:
    """The part of a tensor between a start and a stop in each dimension.

    Attributes:
        ends: by dimension, start and stop, in order; a stop of None is the end of the dimension.
        dropped: the dimensions that an integer names, which the part does not have.
    """

    ends: dict[int, tuple[int, int | None]]
    dropped: list[int]

    @classmethod
    def named_by(cls, x: Tensor, index: Any) -> Block | None:
        """The part that integers and slices name; None for another index.

        In a dimension of a size that varies, the start may not be counted from the end and the stop from the start.
        """
        entries = index if isinstance(index, tuple) else (index,)
        if not all(entry is Ellipsis or isinstance(entry, slice) or _is_integer(entry) for entry in entries):
            return None
        return cls._between(x, as_parts(x, index))

    @classmethod
    def taken_by(cls, x: Tensor, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Block | None:
        """The part that a Slice takes; None where it is none, or its numbers are computed."""
        if any(t is not None and t._recorded is not None for t in (starts, ends, axes, steps)):
            return None
        first, last = starts.array.tolist(), ends.array.tolist()
        places = range(len(first)) if axes is None else axes.array.tolist()
        strides = [1] * len(first) if steps is None else steps.array.tolist()
        parts = [slice(None)] * x.array.ndim
        for axis, start, end, step in zip(places, first, last, strides, strict=True):
            parts[axis] = slice(start, None if end >= 2**31 - 1 else end, step)
        return cls._between(x, parts)

    @classmethod
    def _between(cls, x: Tensor, parts: Sequence[int | slice]) -> Block | None:
        ends = {}
        for d, (part, size) in enumerate(zip(parts, x.shape, strict=True)):
            found = _ends(part, size)
            if found is None:
                return None
            if found != (0, None):
                ends[d] = found
        return cls(ends, [d for d, part in enumerate(parts) if isinstance(part, int)])

    def replaced(self, x: Tensor, value: Tensor) -> Tensor:
        """`x` with a value of the part's shape in its place."""
        if self.dropped:
            value = ops.Unsqueeze(value, axes_tensor(self.dropped))
        return _joined(x, value, sorted(self.ends.items()))


def written_through(view: Tensor, root: Tensor, value: Tensor) -> Tensor | None:
    """`root` with the elements that its view shows replaced; None for a view that is not made of slices, integers,
    new dimensions and permutations."""
    if view is root:
        return value
    recorded: Any = view._recorded
    how = None if recorded is None or not recorded.active() else recorded.view_call
    if how is None:
        return None
    op, (base, *arguments), attributes, _, _ = how
    source = views.recompute_view(base, root, root)
    if source is not None and source is not root:
        source = views.in_own_memory(source, root)
    undone: Tensor | None = None
    if op is ops.Slice and source is not None:
        block = Block.taken_by(source, *arguments)
        undone = None if block is None else block.replaced(source, value)
    elif op in (ops.Squeeze, ops.Unsqueeze) and arguments and arguments[0] is not None:
        undone = (ops.Unsqueeze if op is ops.Squeeze else ops.Squeeze)(value, arguments[0])
    elif op is ops.Transpose and attributes.get("perm") is not None:
        undone = ops.Transpose(value, perm=[attributes["perm"].index(d) for d in range(value.array.ndim)])
    return None if undone is None else written_through(base, root, undone)


def copied_part(x: Tensor, index: Any) -> Tensor:
    """``x[index]`` that is no view: a write to memory computes all its living views again, and whether a temporary one
    still lives depends on the garbage collector."""
    part: Tensor = views.in_own_memory(get(x, index), x)
    return part


def _is_integer(entry: Any) -> bool:
    return isinstance(entry, int) and not isinstance(entry, (bool, Dim))


def _ends(part: int | slice, size: int) -> tuple[int, int | None] | None:
    """Start and stop of a part; (0, None) for all of a dimension, None where their order depends on the size."""
    if isinstance(part, int):
        part = slice(part, part + 1 or None)
    if part.step not in (None, 1) or isinstance(part.start, Dim) or isinstance(part.stop, Dim):
        return None
    if not isinstance(size, Dim):
        start, stop, _ = part.indices(size)
        return start, max(start, stop) if stop < size else None
    start, last = part.start or 0, part.stop
    if last is None or start == 0:
        return start, last
    if (start < 0) == (last < 0):
        return start, max(start, last)
    return (start, last) if last < 0 else None


def _joined(x: Tensor, block: Tensor, ends: list[tuple[int, tuple[int, int | None]]]) -> Tensor:
    """What stands before and after a block along its first dimension, and between them the rest with the block in."""
    if not ends:
        return block
    (d, (start, stop)), *others = ends
    whole = (slice(None),) * d
    inside = _joined(copied_part(x, (*whole, slice(start, stop))), block, others) if others else block
    pieces = [copied_part(x, (*whole, slice(0, start)))] if start else []
    pieces.append(inside)
    if stop is not None:
        # where it is short, nothing twice
        after = copied_part(x, (*whole, slice(start, None))) if stop < 0 < start else x
        pieces.append(copied_part(after, (*whole, slice(stop, None))))
    result: Tensor = ops.Concat(*pieces, axis=d)
    return result
