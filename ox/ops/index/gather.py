"""Picking and placing by position: Slice Gather GatherElements ScatterElements."""

from math import prod
from typing import Any

import numpy as np

from ox.core.broadcast import expand_to, reshape_to
from ox.core.constants import axes_tensor, constant, on_device_of, zeros
from ox.core.function import function
from ox.core.operator import OPS, operator
from ox.core.symbolic import Dim, size_tensor, sizes_of
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, Array, HostTind, T, Tind
from ox.devices.summation import sum_over
from ox.dtypes import ALL, FLOATS, HALF_TYPES, int32, int64, is_floating, onnx_type
from ox.errors import ArgumentError
from ox.ops.shape.pad import pad_axes

__all__ = ["Gather", "GatherElements", "ScatterElements", "Slice"]

INDEX = (int32, int64)
LONG_RUN = 8
NARROW = 8  # elements of a slice below which a histogram of elements is faster than to sort the slices


@operator("output", kind="selection", view=True, T=ALL, Tind=INDEX, amp="widest", batching="own")
def Slice(xp: XP, data: T, starts: HostTind, ends: HostTind, axes: HostTind = None, steps: HostTind = None) -> T:
    """Every `step`-th place from start to before end along the given axes, by default the first ones. Negative places
    count from the end, places outside are moved to the border: Python's slices. ONNX Slice."""
    chosen = [slice(None)] * data.ndim
    first, last = starts.tolist(), ends.tolist()
    along = range(len(first)) if axes is None else axes.tolist()
    stride = [1] * len(first) if steps is None else steps.tolist()
    for axis, start, end, step in zip(along, first, last, stride, strict=True):
        if step < 0 and end < -data.shape[axis]:
            end = None  # before the first element: a slice needs None for that
        chosen[axis] = slice(start, end, step)
    return data[tuple(chosen)]


@Slice.gradient("data")
def _(
    g: TensorBase, data_shape: tuple[int, ...], starts: TensorBase, axes: TensorBase | None, steps: TensorBase | None
) -> TensorBase:
    first = sizes_of(starts)
    along = list(range(len(first))) if axes is None else [int(a) % len(data_shape) for a in axes.array]
    stride = [1] * len(first) if steps is None else [int(s) for s in steps.array]
    amounts = {}
    for axis, start, step in zip(along, first, stride, strict=True):
        n, length = data_shape[axis], g.shape[axis]
        begin = _first(start, n, step)
        if step < 0:
            begin = begin + (length - 1) * step
            g = Slice(g, axes_tensor([-1]), axes_tensor([-(2**62)]), axes_tensor([axis]), axes_tensor([-1]))
        if abs(step) > 1:
            # put |step| - 1 zeros behind every place
            g = pad_axes(OPS["Unsqueeze"](g, axes_tensor([axis + 1])), {axis + 1: (0, abs(step) - 1)})
            length = length * abs(step)
            g = reshape_to(g, [*g.shape[:axis], length, *g.shape[axis + 2 :]])
        amounts[axis] = (begin, n - begin - length)
    return pad_axes(g, amounts)


def _first(start: int, n: int, step: int) -> int:
    """The first place that a slice takes, for sizes that may be `ox.Dim`."""
    fixed = not isinstance(start, Dim)
    if fixed and start == -1:
        return n - 1
    top = n if step > 0 else n - 1
    place = max(min(start + n if start < 0 else start, top), 0)
    if fixed and not isinstance(n, Dim):
        return place

    def make() -> TensorBase:
        wanted = size_tensor([start])
        if not fixed or start < 0:
            wanted = OPS["Where"](OPS["Less"](wanted, axes_tensor([0])), OPS["Add"](wanted, size_tensor([n])), wanted)
        return OPS["Max"](OPS["Min"](wanted, size_tensor([top])), axes_tensor([0]))

    return start if fixed and start == 0 else Dim(place, make)


@operator("output", kind="selection", T=ALL, Tind=INDEX, amp="widest", batching="own", weights="data")
def Gather(xp: XP, data: T, indices: Tind, *, axis: int = 0) -> T:
    """The entries of `data` at `indices` along an axis, whose place the dimensions of `indices` take. ONNX Gather."""
    return xp.take(data, indices, axis=axis)


@Gather.gradient("data")
def _(g: TensorBase, data_shape: tuple[int, ...], indices: TensorBase, axis: int) -> TensorBase:
    axis %= len(data_shape)
    if indices.ndim != 1:
        count = product_of(indices.shape)
        g = reshape_to(g, [*g.shape[:axis], count, *g.shape[axis + indices.ndim :]])
        indices = reshape_to(indices, [count])
    return add_along(g, indices, axis, data_shape[axis])


def add_along(g: TensorType, indices: TensorBase, axis: int, n: int) -> TensorType:
    """Zeros with `n` places along `axis`, to which each slice of `g` is added at its place in `indices` [k]. Places may
    repeat."""
    if axis == 0 and g.ndim > 1 and g.dtype in FLOATS and not isinstance(n, Dim):
        made: TensorType = IndexAdd(g, indices, size=n)
        return made
    return _add_along(g, indices, axis, n)


@function("sums", kind="scatter", fused=True, T=FLOATS, Tind=INDEX, amp="widest")
def IndexAdd(g: T, indices: Tind, *, size: int) -> T:
    """Zeros [size, ...] to which each g[i] is added at indices[i]. `torch.Tensor.index_add`."""
    return _add_along(g, indices, 0, size)


def _add_along(g: TensorType, indices: TensorBase, axis: int, n: int) -> TensorType:
    """The axis goes last, for ONNX Runtime adds along the last axis of a matrix in order and fast; its ScatterND with a
    reduction would race."""
    rank = g.ndim
    if rank == 1:
        return ScatterElements(zeros([n], g), indices, g, axis=0, reduction="add")
    others = [i for i in range(rank) if i != axis]
    rest = [g.shape[i] for i in others]
    rows = product_of(rest)
    flat = OPS["Transpose"](g, perm=[*others, axis])
    if rank > 2:
        flat = reshape_to(flat, [rows, g.shape[axis]])
    places = expand_to(OPS["Unsqueeze"](indices, axes_tensor([0])), [rows, g.shape[axis]])
    flat = ScatterElements(zeros([rows, n], g), places, flat, axis=1, reduction="add")
    if rank > 2:
        flat = reshape_to(flat, [*rest, n])
    return OPS["Transpose"](flat, perm=[*range(axis), rank - 1, *range(axis, rank - 1)])


def product_of(sizes: Any) -> Any:
    """The number of elements, for sizes that may be `ox.Dim`."""
    total: Any = 1
    for size in sizes:
        total = total * size
    return total


@operator("output", kind="selection", T=ALL, Tind=INDEX, amp="widest", batching="elements")
def GatherElements(xp: XP, data: T, indices: Tind, *, axis: int = 0) -> T:
    """For each element of `indices` the entry of `data` at that place along `axis`, elsewhere at its own. ONNX
    GatherElements, `torch.gather`."""
    axis = axis % data.ndim
    row = _one_row(indices, axis)
    data = data[_extent(indices, axis)]
    if row is not None:
        return xp.take(data, row, axis=axis)
    return xp.take_along_axis(data, indices, axis)


@GatherElements.gradient("data")
def _(g: TensorBase, data_shape: tuple[int, ...], indices: TensorBase, axis: int) -> TensorBase:
    return ScatterElements(zeros(data_shape, g), indices, g, axis=axis, reduction="add")


@operator("output", kind="scatter", T=ALL, Tind=INDEX, amp="widest", batching="elements")
def ScatterElements(xp: XP, data: T, indices: Tind, updates: T, *, axis: int = 0, reduction: str = "none") -> T:
    """A copy of `data` in which each element of `updates` is put, added, multiplied, ... at its place in `indices`
    along `axis`, elsewhere at its own. Without a reduction places must not repeat. ONNX ScatterElements,
    `torch.scatter`."""
    axis = axis % data.ndim
    if indices.shape != updates.shape:
        raise ValueError(f"indices {list(indices.shape)} and updates {list(updates.shape)} differ")
    if reduction not in ("none", "add", "mul", "max", "min"):
        raise ArgumentError(f"ScatterElements has no reduction {reduction!r}", expected="none, add, mul, max or min")
    if not indices.size:
        return data.copy()
    row = _one_row(indices, axis)
    places = _checked(xp, indices if row is None else row, data.shape[axis])
    if reduction == "none":
        out = data.copy()
        extent = _extent(indices, axis)
        out[_grid(xp, places, axis) if row is None else (*extent[:axis], places, *extent[axis + 1 :])] = updates
        return out
    if reduction == "add" and is_floating(data.dtype):
        if row is not None and data.size >= NARROW * data.shape[axis] and xp is np:
            return _add_rows(data, places, updates, axis)
        return _add_elements(xp, data, places, updates, axis)
    half = data.dtype in HALF_TYPES
    out = data.astype(np.float32) if half else data.copy()
    places = places if row is None else xp.broadcast_to(_as_column(places, axis, data.ndim), indices.shape)
    update_at(xp, reduction, out, _grid(xp, places, axis), updates.astype(out.dtype, copy=False))
    return out.astype(data.dtype, copy=False)


UFUNCS = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}  # by the name of a reduction


def update_at(xp: XP, reduction: str, out: Array, places: tuple[Array, ...], updates: Array) -> None:
    """Add, multiply, ... updates to places of an array, which may repeat."""
    if xp is np or reduction != "mul":
        getattr(xp, UFUNCS[reduction]).at(out, places, updates)
        return
    host = out.get()  # CuPy has no multiply.at
    np.multiply.at(host, tuple([each.get() for each in places]), updates.get())
    out.set(host)


def _one_row(indices: Array, axis: int) -> Any:
    """The places along `axis` [k] if they are the same everywhere, as a broadcast's strides show; else None."""
    others = [i for i in range(indices.ndim) if i != axis]
    if not indices.size or any(indices.strides[i] and indices.shape[i] != 1 for i in others):
        return None
    return indices[tuple([slice(None) if i == axis else 0 for i in range(indices.ndim)])]


def _extent(indices: Array, axis: int) -> tuple[slice, ...]:
    """The part of the other tensor that `indices`, which may be smaller, speak of."""
    return tuple([slice(None) if i == axis else slice(n) for i, n in enumerate(indices.shape)])


def _as_column(row: Array, axis: int, rank: int) -> Array:
    return row.reshape([-1 if i == axis else 1 for i in range(rank)])


def _grid(xp: XP, places: Array, axis: int) -> tuple[Array, ...]:
    """An index for every axis, by which NumPy addresses the elements."""
    shape = places.shape
    return tuple([places if i == axis else _as_column(xp.arange(n), i, len(shape)) for i, n in enumerate(shape)])


def _checked(xp: XP, places: Array, n: int) -> Array:
    if xp is not np:  # to look would be to wait for the device
        return xp.where(places < 0, places + n, places)
    low, high = places.min(), places.max()
    if low < -n or high >= n:
        raise IndexError(f"place {low if low < -n else high} is outside of an axis of size {n}")
    return np.where(places < 0, places + n, places) if low < 0 else places


def _add_rows(data: Array, places: Array, updates: Array, axis: int) -> Array:
    """Whole slices go to the same place, as for an embedding: sorted by place, and each run summed."""
    wide = np.float32 if data.dtype in HALF_TYPES else data.dtype
    out = np.array(np.moveaxis(data, axis, 0), wide, order="C")
    moved = np.moveaxis(updates, axis, 0)
    part = out[(slice(None), *[slice(n) for n in moved.shape[1:]])]
    order = np.argsort(places, kind="stable")
    sorted_places = places[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_places[1:] != sorted_places[:-1]]))
    rows = moved.take(order, axis=0).astype(wide, copy=False)
    counts = np.diff(starts, append=len(rows))
    sums = rows[starts]
    # the second of each run, then the third, ...; long runs one by one (np.add.reduceat is ten times slower)
    for k in range(1, min(int(counts.max()), LONG_RUN)):
        reached = np.flatnonzero((counts > k) & (counts <= LONG_RUN))
        sums[reached] += rows[starts[reached] + k]
    for i in np.flatnonzero(counts > LONG_RUN):
        sums[i] = sum_over(np, rows[starts[i] : starts[i] + counts[i]], (0,))
    part[sorted_places[starts]] += sums
    return np.moveaxis(out.astype(data.dtype, copy=False), 0, axis)


def _add_elements(xp: XP, data: Array, places: Array, updates: Array, axis: int) -> Array:
    """Element by element: a histogram of flat indices, summed in float64."""
    if places.ndim != updates.ndim:
        places = xp.broadcast_to(_as_column(places, axis, data.ndim), updates.shape)
    if data.ndim == 1:
        flat = places
    else:
        flat = places.astype(np.int64) * prod(data.shape[axis + 1 :])
        for i, n in enumerate(places.shape):
            if i != axis:
                flat += _as_column(xp.arange(n) * prod(data.shape[i + 1 :]), i, data.ndim)
    terms = updates.ravel().astype(np.float64, copy=False)
    if xp is np:
        sums = np.bincount(flat.ravel(), weights=terms, minlength=data.size)
    else:  # whose bincount waits for the device
        sums = xp.zeros(data.size, np.float64)
        xp.add.at(sums, flat.ravel(), terms)
    return (data + sums.reshape(data.shape)).astype(data.dtype, copy=False)


@ScatterElements.gradient("data", "updates", when=lambda attributes: attributes["reduction"] in ("none", "add"))
def _(
    g: TensorBase, indices: TensorBase, axis: int, reduction: str, needs: tuple[bool, bool]
) -> tuple[TensorBase | None, TensorBase | None]:
    to_updates = GatherElements(g, indices, axis=axis) if needs[1] else None
    if reduction == "add" or not needs[0]:
        return g, to_updates
    return ScatterElements(g, indices, zeros(indices.shape, g), axis=axis), to_updates


@ScatterElements.gradient("data", "updates", when=lambda attributes: attributes["reduction"] not in ("none", "add"))
def _(
    g: TensorBase,
    data: TensorBase,
    indices: TensorBase,
    updates: TensorBase,
    output: TensorBase,
    axis: int,
    reduction: str,
) -> tuple[TensorBase, TensorBase]:
    return reduced_shares(g, data, indices, updates, output, axis, reduction)


def reduced_shares(
    g: TensorBase,
    data: TensorBase,
    indices: TensorBase,
    updates: TensorBase,
    output: TensorBase,
    axis: int,
    reduction: str,
) -> tuple[TensorBase, TensorBase]:
    """The cotangents of `data` and `updates` where these were multiplied, or the greatest or least of them taken."""
    if reduction == "mul":
        ones = on_device_of(expand_to(constant(1, g), data.shape), g)
        others = ScatterElements(ones, indices, updates, axis=axis, reduction="mul")
        # of what is 0, the product of all the others, which is 0, too, where another one is
        zero, one = constant(0, g), constant(1, g)
        none = OPS["Equal"](updates, zero)
        safe = OPS["Where"](none, one, updates)
        rest = ScatterElements(data, indices, safe, axis=axis, reduction="mul")
        kind = onnx_type(g.dtype)
        zeros_met = ScatterElements(ones * zero, indices, OPS["Cast"](none, to=kind), axis=axis, reduction="add")
        rest = OPS["Where"](OPS["Greater"](zeros_met, one), zero, rest)
        share = GatherElements(g * output, indices, axis=axis) / safe
        return g * others, OPS["Where"](none, GatherElements(g * rest, indices, axis=axis), share)
    # the extreme value's cotangent is shared by all that have it
    kind = onnx_type(g.dtype)
    won = OPS["Cast"](OPS["Equal"](data, output), to=kind)
    update_won = OPS["Cast"](OPS["Equal"](updates, GatherElements(output, indices, axis=axis)), to=kind)
    share = g / ScatterElements(won, indices, update_won, axis=axis, reduction="add")
    return share * won, GatherElements(share, indices, axis=axis) * update_won
