"""``x[...] = v``: straight into memory, and what gradients and recordings see of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.core import operator, views
from ox.core.constants import axes_tensor
from ox.core.memory_format import part_of, same_place
from ox.core.mode import MODE, cannot_record
from ox.core.tensor import is_tensor
from ox.devices import cpu, cuda, cuda_state
from ox.errors import ShapeError
from ox.functions import broadcast_to, reshape
from ox.functions.indexing import (
    as_parts,
    check_bounds,
    check_index_shapes,
    check_inside,
    get,
    index_arrays,
    is_mask,
    single_bool,
)  # fmt: skip
from ox.functions.operand_arguments import stored_like
from ox.tensors.slice_assignment import Block, copied_part, written_through

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

_OPERATION = "x[...] = v"


def setitem(x: Tensor, index: Any, value: Any) -> None:
    """Write `value`, broadcast, where `index` points; differentiated, and recorded as a scatter.

    Raises:
        BoundsError: as for `get`.
        ShapeError: `value` does not broadcast to what is written.
        GradientError: as for every write in place.
    """
    mode = MODE.get()
    value = stored_like(value, x, infinite_halves=True)
    if isinstance(index, bool) or (is_mask(index) and not index.array.ndim):  # all of x, or nothing
        rank = x.array.ndim
        while value.array.ndim > rank and value.static_shape[0] == 1:
            value = reshape(value, value.shape[1:])
        value = broadcast_to(value, x.shape) if value.array.ndim else value  # a number may lie in host memory
        x.assign(ops.Where(index if is_tensor(index) else operator.as_input(index), value, x), "x[mask] = v")
        return
    if (own_axis := single_bool(x, index)) is not None:
        setitem(*own_axis, value)
        return
    followed = mode.grad and (x.node is not None or value.node is not None or x._views_differentiable())
    if is_mask(index) and value.array.ndim == 0 and index.static_shape == x.static_shape[: index.array.ndim]:
        if mode.recording is not None or followed:
            while index.array.ndim < x.array.ndim:
                index = ops.Unsqueeze(index, axes_tensor([-1]))
            x.assign(ops.Where(index, value, x), "x[mask] = v")
            return
    elif mode.recording is not None:
        _record(x, index, value, followed)
        return
    _write(x, index, value, followed)


def _write(x: Tensor, index: Any, value: Tensor, followed: bool) -> None:
    """Into the memory; where a gradient follows, the places are remembered."""
    parts = as_parts(x, index)
    arrays = index_arrays(parts)
    check_index_shapes([a for _, a in arrays])
    for d, part in enumerate(p for p in parts if p is not None):
        if isinstance(part, int):
            check_inside(part, d, x.static_shape[d])
    if followed:
        x._refuse_write(_OPERATION)
    x.ensure_writable(_OPERATION)
    basic = (*(slice(None) if is_tensor(p) else p for p in parts), ...)
    part = x.array[basic]
    if not arrays and value._base is not None and same_place(part, value.array):
        return  # `x[i] += v` writes the view x[i] first, and then here once more
    for d, array in arrays:
        check_bounds(array, part.shape[d], "an index tensor")
    key: Any = [slice(None)] * part.ndim
    for d, array in arrays:
        key[d] = cpu(array.array) if isinstance(part, np.ndarray) else array.array
    key = tuple(key) or ...
    try:
        with cuda_state.at(part):
            part[key] = cpu(value.array) if isinstance(part, np.ndarray) else cuda.to_device(value.array, x.device)
    except (ValueError, IndexError):
        raise _does_not_fit(part[key].shape, value) from None
    x.count_write(_OPERATION)
    if followed:
        on_host = key if key is ... else tuple([k if isinstance(k, slice) else cpu(k) for k in key])
        places = _places(x)[basic][on_host]
        views.update_history(x, broadcast_to(_trimmed(value, places.ndim), places.shape), places)


def _places(x: Tensor) -> Any:
    """For each element of `x` its number in the tensor whose memory this is."""
    root = x if x._base is None else x._base
    part = part_of(x.array, root.array)
    if part is None:  # it has its own memory by now
        x._base = x._origin = None
        part = part_of(x.array, x.array)
        assert part is not None
    return part.places()


def _trimmed(value: Tensor, rank: int) -> Tensor:
    """Without leading dimensions of size 1 beyond `rank`, which an assignment ignores."""
    extra = value.array.ndim - rank
    if extra > 0 and value.static_shape[:extra] == (1,) * extra:
        return reshape(value, value.shape[extra:])
    return value


def _record(x: Tensor, index: Any, value: Tensor, followed: bool) -> None:
    """As Slices and a Concat, or as ScatterElements into the tensor whose memory it is."""
    mode = MODE.get()
    if followed:
        x._refuse_write(_OPERATION)
    if (
        value._base is not None
        and not index_arrays(as_parts(x, index))
        and same_place(get(x, index).array, value.array)
    ):
        return
    root = x if x._base is None else x._base
    block = Block.named_by(x, index)
    fresh = None
    if block is not None:
        fresh = written_through(x, root, block.replaced(x, _spread(value, copied_part(x, index))))
    if fresh is None:
        own = views.recompute_view(x, root, views.element_numbers(root))
        if own is None:
            cannot_record(views.unknown_view_error())
            _write(x, index, value, followed)
            return
        places = get(own, index)
        fresh = views.write_elements(root, places, _spread(value, places))
    x.ensure_writable(_OPERATION)
    root.array[...] = fresh.array
    x.count_write(_OPERATION)
    views.update_recording(root, fresh, mode.recording, followed)


def _spread(value: Tensor, part: Tensor) -> Tensor:
    """The value, broadcast to what is written."""
    value = _trimmed(value, part.array.ndim)
    try:
        return broadcast_to(value, part.shape)
    except ShapeError:
        raise _does_not_fit(part.static_shape, value) from None


def _does_not_fit(target: tuple[int, ...], value: Tensor) -> ShapeError:
    return ShapeError(
        "a value does not broadcast to what it is written to",
        expected=f"a shape that broadcasts to {list(target)}",
        got=str(list(value.static_shape)),
    )
