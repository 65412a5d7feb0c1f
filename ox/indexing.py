"""``x[...]`` and ``x[...] = v`` as operators: Slice, Squeeze, Unsqueeze, Gather; writes as ScatterElements or Where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.dtypes import bool_
from ox.errors import BoundsError, RecordError
from ox.functions import broadcast_to, like, reshape
from ox.operands import cast
from ox.ops import operator
from ox.ops.broadcast import axes_tensor
from ox.ops.dim import Dim, size_tensor
from ox.ops.mode import MODE
from ox.where import users_line

if TYPE_CHECKING:
    from ox.tensor import Tensor

_END = np.iinfo(np.int64).max


def get(x: Tensor, index: Any) -> Tensor:
    """The part of `x` that `index` names, with NumPy's and PyTorch's rules.

    Raises:
        BoundsError: an integer outside its dimension, too many indices, or an index of another kind.
        RecordError: a boolean mask under a recording, where the size of the result is not known.
    """
    parts = _expanded(x, index if isinstance(index, tuple) else (index,))
    x = _basic(x, parts)
    # dimensions of what is left, in order: one for each part that is no plain integer
    left = [p for p in parts if not isinstance(p, (int, np.integer))]
    arrays = [(d, p) for d, p in enumerate(left) if not isinstance(p, slice) and p is not None]
    return _advanced(x, arrays) if arrays else x


def _expanded(x: Tensor, index: tuple[Any, ...]) -> list[Any]:
    """One entry a dimension (and None for new ones): Ellipsis spelled out, lists and masks as integer tensors."""
    parts: list[Any] = []
    for part in index:
        if isinstance(part, (list, np.ndarray)):
            part = operator.as_input(np.asarray(part))
        if hasattr(part, "node"):
            if part.data.dtype == bool_:
                if MODE.get().recording is not None:
                    raise RecordError(
                        "a boolean mask gives a result whose size is not known while recording",
                        where=users_line(4),
                        hint="ox.where(mask, x, 0), or x.masked_fill(~mask, 0)",
                    )
                parts.extend(operator.as_input(a) for a in part.data.nonzero())
                continue
            if part.data.ndim == 0 and part._recorded is None:
                part = int(part.data)
        elif not (part is None or part is Ellipsis or isinstance(part, (slice, int, np.integer))):
            raise BoundsError(
                f"a tensor cannot be indexed by {type(part).__name__}",
                where=users_line(4),
                expected="int, slice, None, ..., list, array or tensor of integers or booleans",
            )
        parts.append(part)
    used = sum(p is not None and p is not Ellipsis for p in parts)
    rank = x.data.ndim
    if used > rank:
        raise BoundsError(
            f"{used} indices for a tensor of {rank} dimensions", where=users_line(4), got=str(list(x.data.shape))
        )
    fill = [slice(None)] * (rank - used)
    at = next((i for i, p in enumerate(parts) if p is Ellipsis), None)
    return [*parts, *fill] if at is None else [*parts[:at], *fill, *parts[at + 1 :]]


def _basic(x: Tensor, parts: list[Any]) -> Tensor:
    """Apply the integers, slices and new dimensions: at most one Slice, one Squeeze, one Unsqueeze."""
    starts, ends, axes, steps, dropped, added = [], [], [], [], [], []
    d = out = 0
    for part in parts:
        if part is None:
            added.append(out)
            out += 1
            continue
        if isinstance(part, (int, np.integer)):
            size = x.data.shape[d]
            if not -size <= part < size:
                raise BoundsError(
                    f"index {int(part)} is outside dimension {d}",
                    where=users_line(4),
                    expected=f"{-size} to {size - 1}",
                )
            starts.append(part)
            ends.append(_END if part == -1 else part + 1)
            axes.append(d)
            steps.append(1)
            dropped.append(d)
        else:
            if isinstance(part, slice) and part != slice(None):
                step = 1 if part.step is None else part.step
                if step <= 0:
                    raise BoundsError(
                        "a slice of a tensor needs a step above 0", where=users_line(4), got=f"step {step}"
                    )
                starts.append(0 if part.start is None else part.start)
                ends.append(_END if part.stop is None else part.stop)
                axes.append(d)
                steps.append(step)
            out += 1
        d += 1
    if axes:
        x = ops.Slice(x, size_tensor(starts), size_tensor(ends), axes_tensor(axes), size_tensor(steps))
    if dropped:
        x = ops.Squeeze(x, axes_tensor(dropped))
    return ops.Unsqueeze(x, axes_tensor(added)) if added else x


def _advanced(x: Tensor, arrays: list[tuple[int, Any]]) -> Tensor:
    """Integer tensors: one is a Gather; several adjoining ones index the merged dimension."""
    first, indices = arrays[0][0], [a for _, a in arrays]
    if len(arrays) == 1:
        return ops.Gather(x, indices[0], axis=first)
    dims = [d for d, _ in arrays]
    rank = x.data.ndim
    if dims != list(range(first, first + len(dims))):
        # not adjoining: their dimensions come first, as in NumPy
        rest = [d for d in range(rank) if d not in dims]
        x, first = ops.Transpose(x, perm=[*dims, *rest]), 0
    shape = x.shape
    flat: Any = None
    for size, i in zip(shape[first:], indices, strict=False):
        i = ops.Where(ops.Less(i, like(0, i)), i + size, i)  # negative counts from the end
        flat = i if flat is None else flat * size + i
    merged = reshape(x, [*shape[:first], -1, *shape[first + len(dims) :]])
    return ops.Gather(merged, flat, axis=first)


def put(x: Tensor, index: Any, value: Any) -> None:
    """Write `value`, broadcast, where `index` points; recorded and differentiated as a scatter."""
    mode = MODE.get()
    value = cast(like(value, x), x.data.dtype)
    if mode.recording is None and not (mode.grad and (x.node is not None or value.node is not None)):
        written = operator.make_tensor(x.data.copy())
        written.data[_plain(index)] = value.data
        x.assign(written, "x[...] = v")
        return
    if hasattr(index, "node") and index.data.dtype == bool_ and value.data.ndim == 0:
        while index.data.ndim < x.data.ndim:
            index = ops.Unsqueeze(index, axes_tensor([-1]))
        x.assign(ops.Where(index, value, x), "x[mask] = v")
        return
    shape = x.shape
    total: Any = x.numel()
    count = reshape(total.tensor, []) if isinstance(total, Dim) else operator.as_input(np.asarray(total, np.int64))
    every = ops.Range(operator.as_input(np.int64(0)), count, operator.as_input(np.int64(1)))
    chosen = get(reshape(every, shape), index)
    spread = broadcast_to(value, chosen.shape)
    flat = ops.ScatterElements(reshape(x, -1), reshape(chosen, -1), reshape(spread, -1), axis=0)
    x.assign(reshape(flat, shape), "x[...] = v")


def _plain(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(_plain(i) for i in index)
    return index.data if hasattr(index, "node") else index
