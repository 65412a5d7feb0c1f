"""DeformConv: a convolution whose sampling points are moved by an offset input."""

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ox.core import operator as choke
from ox.core.broadcast import expand_to, reshape_to
from ox.core.constants import axes_tensor, constant, number, size_like
from ox.core.operator import OPS, operator
from ox.core.tensor import TensorBase
from ox.core.types import XP, Array, T
from ox.core.upcast import in_float32
from ox.dtypes import FLOATS
from ox.errors import ShapeError
from ox.ops.index.gather import product_of
from ox.ops.nn.normalization import as_type, computed_type
from ox.ops.nn.window import Ints, Window
from ox.ops.reduce.reduction import ReduceSum
from ox.ops.vision.interpolation import Axis, axis_between, pulls, sample, sampled_back

__all__ = ["DeformConv"]


@operator(
    "Y", kind="convolution", T=FLOATS, ignore_fp_warnings=True, amp="float32", batching="each", weights="W offset B"
)
@in_float32
def DeformConv(
    xp: XP,
    X: T,
    W: T,
    offset: T,
    B: T = None,
    mask: T = None,
    *,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    offset_group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> T:
    """Conv of X [N, C, ...] with W [M, C / group, ...] plus B [M], where each tap at each place is moved by `offset`
    [N, offset_group · taps · rank, ...] and multiplied by `mask` [N, offset_group · taps, ...]. Values between places
    are interpolated, beyond the data is 0. ONNX DeformConv, `torchvision.ops.deform_conv2d`.
    """
    window, places = _checked(X, W, offset, B, mask, dilations, group, kernel_shape, offset_group, pads, strides)
    N, C, *sizes = X.shape
    rank, taps, count = len(sizes), prod(window.kernel), prod(places)
    data = X.reshape(N, offset_group, C // offset_group, -1)
    moves = offset.reshape(N, offset_group, taps, rank, count)
    at = [moves[:, :, :, a] + xp.asarray(_rest(window, places, a, X.dtype)) for a in range(rank)]
    low = [xp.floor(p) for p in at]
    columns = xp.zeros((N, offset_group, C // offset_group, taps * count), X.dtype)
    for corner in product((0, 1), repeat=rank):
        weight: Array = xp.ones((), X.dtype)
        place: Array = 0
        for p, base, n, upper in zip(at, low, sizes, corner, strict=True):
            index = (base + upper).astype(np.int64)
            near = p - base if upper else 1 - (p - base)
            weight = weight * xp.where((index >= 0) & (index < n), near, 0)
            place = place * n + xp.clip(index, 0, n - 1)
        flat = xp.broadcast_to(place.reshape(N, offset_group, 1, -1), columns.shape)
        weight = weight.reshape(N, offset_group, 1, -1)
        met = xp.take_along_axis(data, flat, axis=3)
        columns += xp.where(weight == 0, 0, met * weight).astype(X.dtype, copy=False)
    columns = columns.reshape(N, offset_group, C // offset_group, taps, count)
    if mask is not None:
        columns *= mask.reshape(N, offset_group, 1, taps, count)
    M = W.shape[0]
    Y = xp.matmul(W.reshape(group, M // group, -1), columns.reshape(N, group, C // group * taps, count))
    Y = Y.reshape(N, M, *places)
    return Y if B is None else Y + B.reshape(-1, *[1] * rank)


def _checked(
    X: Array, W: Array, offset: Array, B: Any, mask: Any, dilations: Any, group: int, kernel: Any, parts: int,
    pads: Any, strides: Any,
) -> tuple[Window, list[int]]:  # fmt: skip
    if X.ndim < 3 or W.ndim != X.ndim or X.shape[1] != W.shape[1] * group or W.shape[0] % group or X.shape[1] % parts:
        raise ShapeError(
            f"DeformConv cannot apply a kernel {list(W.shape)} to {list(X.shape)}",
            got=f"group={group}, offset_group={parts}",
        )
    if kernel is not None and tuple(kernel) != W.shape[2:]:
        raise ShapeError(f"DeformConv has kernel_shape {list(kernel)} for weights {list(W.shape)}")
    window = Window(W.shape[2:], strides, dilations, pads)
    places, taps = window.outputs(X.shape[2:]), parts * prod(W.shape[2:])
    for name, given, channels in (("offset", offset, taps * (X.ndim - 2)), ("mask", mask, taps)):
        if given is not None and given.shape != (X.shape[0], channels, *places):
            raise ShapeError(
                f"DeformConv has a wrong {name}",
                expected=str([X.shape[0], channels, *places]),
                got=str(list(given.shape)),
            )
    if B is not None and B.shape != W.shape[:1]:
        raise ShapeError(f"DeformConv has a bias {list(B.shape)} for weights {list(W.shape)}")
    return window, places


def _taps_along(window: Window, axis: int) -> Any:
    """[taps, 1]: the position of each tap of the kernel along an axis, for the first output."""
    along = np.arange(window.kernel[axis]) * window.dilations[axis] - window.pads[axis]
    shape = [-1 if i == axis else 1 for i in range(len(window.kernel))]
    return np.broadcast_to(along.reshape(shape), window.kernel).reshape(-1, 1)


def _rest(window: Window, places: Ints, axis: int, dtype: Any) -> Any:
    """[taps, places]: the position of each tap for each output, without offsets."""
    along = np.arange(places[axis]) * window.strides[axis]
    shape = [-1 if i == axis else 1 for i in range(len(places))]
    return (_taps_along(window, axis) + np.broadcast_to(along.reshape(shape), places).reshape(1, -1)).astype(dtype)


def _axes(offset: TensorBase, window: Window, sizes: Ints, parts: int) -> list[Axis]:
    """Gradient side: what each tap at each place meets along each axis, [N · parts, taps · places]."""
    rank, taps, places = len(sizes), prod(window.kernel), offset.shape[2:]
    count = product_of(places)
    moves = reshape_to(offset, [offset.shape[0] * parts, taps, rank, count])
    found = []
    for a, n in enumerate(sizes):
        move = OPS["Gather"](moves, number(a, np.dtype(np.int64)), axis=2)
        along = OPS["Range"](constant(0, move), size_like(places[a], move), constant(1, move))
        along = OPS["Unsqueeze"](along, axes_tensor([i for i in range(rank) if i != a]))
        along = reshape_to(expand_to(along, places), [1, 1, count]) * float(window.strides[a])
        start = choke.as_input(_taps_along(window, a).astype(move.dtype))
        found.append(axis_between(reshape_to(move + along + start, [offset.shape[0] * parts, taps * count]), n))
    return found


@DeformConv.gradient("X", "W", "offset", "B", "mask")
def _(
    g: TensorBase,
    X: TensorBase,
    W: TensorBase,
    offset: TensorBase,
    mask: TensorBase | None,
    dilations: Ints | None,
    group: int,
    offset_group: int,
    pads: Ints | None,
    strides: Ints | None,
    needs: tuple[bool, ...],
) -> tuple[TensorBase | None, ...]:
    kind = X.dtype
    wide = computed_type(kind)
    g, x, w, moves = (as_type(t, wide) for t in (g, X, W, offset))
    window = Window(tuple(int(k) for k in W.shape[2:]), strides, dilations, pads)
    (N, C), sizes, parts = X.shape[:2], X.shape[2:], offset_group
    M, taps, count = int(W.shape[0]), prod(window.kernel), product_of(g.shape[2:])
    inner = W.shape[1] * taps
    to_bias = ReduceSum(g, axes_tensor([0, *range(2, g.ndim)]), keepdims=0) if needs[3] else None
    g = reshape_to(g, [N, group, M // group, count])

    axes = _axes(moves, window, sizes, parts)
    images = reshape_to(x, [N * parts, C // parts, *sizes])
    met = reshape_to(sample(images, axes, [taps * count]), [N, parts, C // parts, taps, count])
    seen = None if mask is None else reshape_to(as_type(mask, wide), [N, parts, 1, taps, count])
    columns = reshape_to(met if seen is None else met * seen, [N, group, inner, count])
    weights = reshape_to(w, [1, group, M // group, inner])
    to_weights = None
    if needs[1]:
        each = OPS["MatMul"](g, OPS["Transpose"](columns, perm=[0, 1, 3, 2]))
        to_weights = reshape_to(ReduceSum(each, axes_tensor([0]), keepdims=0), W.shape)
    back = OPS["MatMul"](OPS["Transpose"](weights, perm=[0, 1, 3, 2]), g)
    back = reshape_to(back, [N, parts, C // parts, taps, count])
    to_mask = None
    if mask is not None and needs[4]:
        to_mask = reshape_to(ReduceSum(back * met, axes_tensor([2]), keepdims=0), mask.shape)
    back = back if seen is None else back * seen
    back = reshape_to(back, [N * parts, C // parts, taps * count])
    to_x = reshape_to(sampled_back(back, images.shape, axes), X.shape) if needs[0] else None
    to_offset = None
    if needs[2]:
        each_axis = [reshape_to(p, [N, parts, taps, 1, count]) for p in pulls(back, images, axes)]
        to_offset = reshape_to(OPS["Concat"](*each_axis, axis=3), offset.shape)
    found = (to_x, to_weights, to_offset, to_bias, to_mask)
    return tuple([None if t is None else as_type(t, kind) for t in found])
