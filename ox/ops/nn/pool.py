"""Pooling under a moving window: MaxPool AveragePool."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ox.core.broadcast import reshape_to
from ox.core.constants import axes_tensor, ones, zeros
from ox.core.function import function
from ox.core.operator import OPS, operator
from ox.core.symbolic import Dim
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, Array, Int64, T
from ox.core.upcast import downcast, in_float32
from ox.devices.summation import BLOCK
from ox.dtypes import FLOATS, HALF_TYPES, int8, uint8
from ox.errors import ShapeError
from ox.ops.index.gather import ScatterElements, product_of
from ox.ops.nn.window import Ints, Window, pad_to, padded

__all__ = ["AveragePool", "MaxPool"]


def ceil_padding(window: Window, sizes: Ints) -> tuple[list[int], list[tuple[Any, Any]]]:
    """How many places, and pads under which the window stays inside: at the end as many as its last place needs."""
    places = window.outputs(sizes)
    placed = window.padding(sizes)
    needed = [
        (before, (p - 1) * s + extent - n - before)
        for p, s, extent, n, (before, _) in zip(places, window.strides, window.extents, sizes, placed, strict=True)
    ]
    return places, needed


def spatial(name: str, X: Array, kernel: Ints) -> tuple[int, ...]:
    if X.ndim != len(kernel) + 2:
        raise ShapeError(
            f"{name} with kernel_shape {list(kernel)} needs {len(kernel) + 2} dimensions", got=f"X {list(X.shape)}"
        )
    return X.shape[2:]


@operator("Y Indices", kind="pooling", contraction=True, T=(*FLOATS, int8, uint8), amp="widest", batching="images")
def MaxPool(
    xp: XP,
    X: T,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
    outputs: int = 1,
) -> tuple[T, Int64]:
    """The largest value under a window over X [N, C, ...]; Indices says where it lay in the flattened X, with columns
    before rows where storage_order is 1. ONNX MaxPool, `torch.nn.functional.max_pool2d`."""
    window = Window(kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    sizes = spatial("MaxPool", X, window.kernel)
    places, around = ceil_padding(window, sizes)
    half = X.dtype in HALF_TYPES
    data = X.astype(np.float32) if half else X
    lowest = -np.inf if X.dtype in FLOATS else np.iinfo(X.dtype).min
    data = padded(xp, data, around, lowest)
    best: Any = None
    chosen: Any = None
    for tap, where in window.taps(places):
        values = data[(..., *where)]
        if best is None:
            best = values.copy()
            if outputs > 1:
                chosen = xp.empty(best.shape, np.int64)
                chosen[...] = _positions(tap, window, places, around, sizes, storage_order, xp)
        elif outputs > 1:
            better = values > best
            better |= (values != values) & (best == best)  # NaN wins, and the first one stays
            xp.copyto(best, values, where=better)
            here = _positions(tap, window, places, around, sizes, storage_order, xp)
            xp.copyto(chosen, xp.broadcast_to(here, chosen.shape), where=better)
        else:
            xp.maximum(best, values, out=best)
    Y = downcast(best, X.dtype) if half else best
    if outputs > 1:
        images = xp.arange(X.shape[0] * X.shape[1]) * prod(sizes)
        chosen += images.reshape(*X.shape[:2], *[1] * len(sizes))
        return Y, chosen
    return Y


def _positions(
    tap: Ints, window: Window, places: Ints, around: Sequence[tuple[int, int]], sizes: Ints, storage_order: int, xp: XP
) -> Array:
    """The index of this tap in the flattened image for each window; inside the pads, the nearest element."""
    rank = len(sizes)
    total: Any = 0
    order = range(rank) if not storage_order else range(rank - 1, -1, -1)
    scale = prod(sizes)
    for i in order:
        scale //= max(1, sizes[i])
        along = xp.arange(places[i]) * window.strides[i] + (tap[i] * window.dilations[i] - around[i][0])
        along = along.clip(0, sizes[i] - 1) * scale
        total = total + along.reshape([-1 if j == i else 1 for j in range(rank)])
    return total


@MaxPool.gradient("X")
def _(
    g: TensorBase,
    Indices: TensorBase,
    X_shape: tuple[int, ...],
    auto_pad: str,
    ceil_mode: int,
    dilations: Ints | None,
    kernel_shape: Ints,
    pads: Ints | None,
    storage_order: int,
    strides: Ints | None,
) -> TensorBase:
    if storage_order or any(isinstance(n, Dim) for n in X_shape):
        return _spread_back(g, Indices, X_shape, storage_order)
    window = Window(kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    made: TensorBase = MaxPoolGradient(
        g,
        Indices,
        **_of_gradient(window, X_shape),
    )
    return made


@function("dX", kind="gradient", fused=True, T=FLOATS, amp="widest")
def MaxPoolGradient(
    g: T,
    Indices: Int64,
    *,
    shape: Sequence[int],
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    ceil_mode: int = 0,
) -> T:
    """g [N, C, ...] added up at Indices of a flattened tensor of this shape. Kernels of a GPU also need the windows
    that gave the indices."""
    return _spread_back(g, Indices, tuple(shape), 0)


def _of_gradient(window: Window, shape: Sequence[int]) -> dict[str, Any]:
    """The attributes of a pool's gradient: the input's sizes, and the windows with their pads."""
    befores, behinds = zip(*window.padding(shape[2:]), strict=True)
    return {
        "shape": list(shape),
        "kernel_shape": list(window.kernel),
        "strides": list(window.strides),
        "dilations": list(window.dilations),
        "pads": [*befores, *behinds],
        "ceil_mode": int(bool(window.ceil) and not window.same),
    }


def _spread_back(g: TensorBase, Indices: TensorBase, X_shape: tuple[Any, ...], storage_order: int) -> TensorBase:
    flat = ScatterElements(
        zeros([product_of(X_shape)], g),
        OPS["Reshape"](Indices, axes_tensor([-1])),
        OPS["Reshape"](g, axes_tensor([-1])),
        axis=0,
        reduction="add",
    )
    if not storage_order:
        return reshape_to(flat, X_shape)
    rank = len(X_shape)
    turned = reshape_to(flat, [*X_shape[:2], *X_shape[:1:-1]])
    return OPS["Transpose"](turned, perm=[0, 1, *range(rank - 1, 1, -1)])


@operator("Y", kind="pooling", contraction=True, T=FLOATS, amp="widest", batching="images")
@in_float32
def AveragePool(
    xp: XP,
    X: T,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> T:
    """The mean under a window over X [N, C, ...]; pads count only with count_include_pad. ONNX AveragePool,
    `torch.nn.functional.avg_pool2d`."""
    window = Window(kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    sizes = spatial("AveragePool", X, window.kernel)
    places, around = ceil_padding(window, sizes)
    data = padded(xp, X, around)
    total: Any = None
    if xp is np and prod(window.kernel) > BLOCK:
        total = _wide_sums(data, window, places)
    else:
        for _, where in window.taps(places):
            if total is None:
                total = data[(..., *where)].copy()
            else:
                total += data[(..., *where)]
    if _always_full(window, count_include_pad):
        total /= prod(window.kernel)
        return total.astype(X.dtype, copy=False)
    counted = window.padding(sizes) if count_include_pad else [(0, 0)] * len(sizes)
    for i, n in enumerate(sizes):
        stand = xp.arange(places[i]) * window.strides[i] - around[i][0]
        taps = stand[:, None] + xp.arange(window.kernel[i]) * window.dilations[i]
        inside = ((taps >= -counted[i][0]) & (taps < n + counted[i][1])).sum(axis=1)
        shape = [-1 if j == i else 1 for j in range(len(sizes))]
        total /= xp.maximum(inside, 1).astype(X.dtype).reshape(shape)
    return total.astype(X.dtype, copy=False)


def _wide_sums(data: Array, window: Window, places: Ints) -> Array:
    """The sum under each window, added in float64."""
    rank = len(places)
    under: Array = np.lib.stride_tricks.sliding_window_view(data, window.extents, axis=tuple(range(-rank, 0)))
    steps = [slice(0, n * s, s) for n, s in zip(places, window.strides, strict=True)]
    under = under[(..., *steps, *[slice(None, None, d) for d in window.dilations])]
    made: Array = np.add.reduce(under, axis=tuple(range(-rank, 0)), dtype=np.float64)
    return made


def _always_full(window: Window, count_include_pad: int) -> bool:
    """Whether every place of the window counts all its taps."""
    if window.ceil and not window.same:
        return False
    return bool(count_include_pad) or not (window.same or any(window.pads))


def spread(g: TensorType, window: Window, shape: Ints) -> TensorType:
    """A cotangent of sums under a window over [N, C, ...] of `shape`, given to all that the window met."""
    images = reshape_to(g, [g.shape[0] * g.shape[1], 1, *g.shape[2:]])
    taps = ones([1, 1, *window.kernel], g)
    met = OPS["ConvTranspose"](images, taps, strides=window.strides, dilations=window.dilations)
    placed = pad_to(met, [-b for b, _ in window.padding(shape[2:])], shape[2:])
    return reshape_to(placed, [*g.shape[:2], *shape[2:]])


@AveragePool.gradient("X")
def _(
    g: TensorBase,
    X_shape: tuple[int, ...],
    auto_pad: str,
    ceil_mode: int,
    count_include_pad: int,
    dilations: Ints | None,
    kernel_shape: Ints,
    pads: Ints | None,
    strides: Ints | None,
) -> TensorBase:
    window = Window(kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    if any(isinstance(n, Dim) for n in X_shape):
        return _averaged_back(g, window, X_shape, count_include_pad)
    made: TensorBase = AveragePoolGradient(
        g,
        **_of_gradient(window, X_shape),
        count_include_pad=count_include_pad,
    )
    return made


@function("dX", kind="gradient", fused=True, T=FLOATS, amp="widest")
def AveragePoolGradient(
    g: T,
    *,
    shape: Sequence[int],
    kernel_shape: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    ceil_mode: int = 0,
    count_include_pad: int = 0,
) -> T:
    """g [N, C, ...], each divided by the taps that its window counts and given to all that it met in a tensor of this
    shape."""
    window = Window(kernel_shape, strides, dilations, pads, ceil_mode=ceil_mode)
    return _averaged_back(g, window, tuple(shape), count_include_pad)


def _averaged_back(g: TensorBase, window: Window, shape: tuple[Any, ...], count_include_pad: int) -> TensorBase:
    sizes = shape[2:]
    if _always_full(window, count_include_pad):
        g = g * (1 / prod(window.kernel))
    else:
        # how many taps count: the same window summed over ones
        placed = window.padding(sizes)
        counted = [n + b + e if count_include_pad else n for n, (b, e) in zip(sizes, placed, strict=True)]
        fronts = [0 if count_include_pad else b for b, _ in placed]
        covered = [(p - 1) * s + e for p, s, e in zip(g.shape[2:], window.strides, window.extents, strict=True)]
        inside = pad_to(ones([1, 1, *counted], g), fronts, covered)
        taps = ones([1, 1, *window.kernel], g)
        g = g / OPS["Conv"](inside, taps, strides=window.strides, dilations=window.dilations)
    return spread(g, window, shape)
