"""The gradient of a convolution's weights."""

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

from ox.core.broadcast import reshape_to
from ox.core.constants import axes_tensor
from ox.core.function import function
from ox.core.operator import OPS
from ox.core.symbolic import Dim, size_tensor
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, Array, T
from ox.dtypes import FLOATS
from ox.ops.index.gather import product_of
from ox.ops.nn.window import Ints, Window, pad_to, padded, tap_slices

MANY_TAPS, MANY_CHANNELS = 32, 64
CHUNK = 5 << 19  # elements of unfolded data that are multiplied at once: what the caches hold


def weight_gradient(
    x: TensorBase, g: TensorBase, window: Window, placed: Sequence[tuple[Any, Any]], kernel: Ints, group: int
) -> TensorBase:
    """The gradient for the kernel [M, C / group, ...] from the gradient `g` [N, M, ...] of the outputs; the kernel met
    `x` [N, C, ...]."""
    if group > 1 and (window.same or any(isinstance(n, Dim) for n in (*x.shape, *g.shape))):
        return _correlated(x, g, window, placed, kernel, group)
    pads = [*(b for b, _ in placed), *(e for _, e in placed)]
    if any(isinstance(p, Dim) for p in pads):
        x = _around(x, placed)
        pads = [0] * len(pads)
    return ConvWeights(
        x, g, dilations=list(window.dilations), kernel_shape=list(kernel), pads=pads, strides=list(window.strides),
        group=group,
    )  # fmt: skip


def _around(x: TensorType, placed: Sequence[tuple[Any, Any]]) -> TensorType:
    return pad_to(x, [b for b, _ in placed], [n + b + e for n, (b, e) in zip(x.shape[2:], placed, strict=True)])


@function("dW", kind="gradient", fused=True, T=FLOATS, amp="widest")
def ConvWeights(
    X: T,
    g: T,
    *,
    dilations: Sequence[int],
    kernel_shape: Sequence[int],
    pads: Sequence[int],
    strides: Sequence[int],
    group: int = 1,
) -> T:
    """The gradient [M, C / group, *kernel_shape] of a Conv's weights from its data X [N, C, ...] and a
    cotangent g [N, M, ...].

    Three ways in operators, each measured to be the fastest somewhere on a CPU: one product for each tap where there
    are many channels, one product over unfolded data, and else one Conv.
    """
    window = Window(kernel_shape, strides, dilations, pads)
    placed = window.padding(X.shape[2:])
    if group > 1 or prod(window.kernel) > MANY_TAPS:
        return _correlated(X, g, window, placed, window.kernel, group)
    x = _around(X, placed)
    if x.shape[1] >= MANY_CHANNELS and all(s == 1 for s in window.strides):
        return _by_tap(x, g, window)
    return _unfolded(x, g, window)


def by_columns(
    xp: XP, X: Array, g: Array, *, dilations: Ints, kernel_shape: Ints, pads: Ints, strides: Ints, group: int = 1
) -> Array:
    """Some images at a time, unfolded so that a column holds what one tap of one channel met at all their places."""
    if group > 1:
        settings: dict[str, Any] = {
            "dilations": dilations, "kernel_shape": kernel_shape, "pads": pads, "strides": strides,
        }  # fmt: skip
        pairs = zip(xp.split(X, group, axis=1), xp.split(g, group, axis=1), strict=True)
        return xp.concatenate([by_columns(xp, x, part, **settings) for x, part in pairs])
    window = Window(kernel_shape, strides, dilations, pads)
    places, taps = g.shape[2:], prod(window.kernel)
    (N, C), M, P = X.shape[:2], g.shape[1], prod(places)
    found = xp.zeros((M, C * taps), X.dtype)
    if not found.size or not X.size or not P:
        return found.reshape(M, C, *window.kernel)
    X = padded(xp, X, window.padding(X.shape[2:]))
    step = max(1, min(N, CHUNK // (C * taps * P)))
    for first in range(0, N, step):
        x = X[first : first + step].swapaxes(0, 1)
        n = x.shape[1]
        columns = xp.empty((C, *window.kernel, n, *places), X.dtype)
        for tap, where in window.taps(places):
            columns[(slice(None), *tap)] = x[(..., *where)]
        rows = xp.ascontiguousarray(g[first : first + step].swapaxes(0, 1)).reshape(M, n * P)
        found += xp.matmul(rows, columns.reshape(C * taps, n * P).T)
    return found.reshape(M, C, *window.kernel)


ConvWeights.large = by_columns


def _by_tap(x: TensorBase, g: TensorBase, window: Window) -> TensorBase:
    """x and g as matrices whose rows are the padded places of all images: a tap then is a product with x moved by some
    rows. g is zero where a row is no place of the window, so what moves over an edge does not count. Strides are 1."""
    rank = len(window.kernel)
    spatial = range(2, 2 + rank)
    C, M, sizes = x.shape[1], g.shape[1], x.shape[2:]
    steps = [product_of(sizes[i + 1 :]) for i in range(rank)]
    rows = x.shape[0] * product_of(sizes)
    last = sum((extent - 1) * step for extent, step in zip(window.extents, steps, strict=True))
    x = reshape_to(OPS["Transpose"](x, perm=[0, *spatial, 1]), [rows, C])
    g = OPS["Transpose"](pad_to(g, [0] * rank, sizes), perm=[1, 0, *spatial])
    g = OPS["Slice"](reshape_to(g, [M, rows]), axes_tensor([0]), size_tensor([rows - last]), axes_tensor([1]))
    found = []
    for tap in product(*map(range, window.kernel)):
        moved = sum(i * d * step for i, d, step in zip(tap, window.dilations, steps, strict=True))
        part = OPS["Slice"](x, size_tensor([moved]), size_tensor([rows - last + moved]), axes_tensor([0]))
        found.append(OPS["Unsqueeze"](OPS["MatMul"](g, part), axes_tensor([0])))
    return reshape_to(OPS["Transpose"](OPS["Concat"](*found, axis=0), perm=[1, 2, 0]), [M, C, *window.kernel])


def _unfolded(x: TensorBase, g: TensorBase, window: Window) -> TensorBase:
    """For each image a product of g with x unfolded into what each tap meets, and their sum."""
    rank = len(window.kernel)
    N, C, M, count = x.shape[0], x.shape[1], g.shape[1], product_of(g.shape[2:])
    columns = reshape_to(OPS["Concat"](*tap_slices(x, window), axis=1), [N, prod(window.kernel) * C, count])
    products = OPS["MatMul"](reshape_to(g, [N, M, count]), OPS["Transpose"](columns, perm=[0, 2, 1]))
    found = reshape_to(OPS["ReduceSum"](products, axes_tensor([0]), keepdims=0), [M, *window.kernel, C])
    return OPS["Transpose"](found, perm=[0, 1 + rank, *range(1, 1 + rank)])


def _correlated(
    x: TensorType, g: TensorBase, window: Window, placed: Sequence[tuple[Any, Any]], kernel: Ints, group: int
) -> TensorType:
    """x convolved with g: strides and dilations exchange their parts, and so do batch and channels."""
    rank = len(kernel)
    spatial = list(range(2, 2 + rank))
    if window.same and any(s > 1 for s in window.strides):
        sizes = [n + b + e for n, (b, e) in zip(x.shape[2:], placed, strict=True)]
        x = pad_to(x, [b for b, _ in placed], sizes)
        placed = [(0, 0)] * rank
    pads = [*(b for b, _ in placed), *(e for _, e in placed)]
    if group > 1:
        N, C = x.shape[:2]
        x = reshape_to(x, [N, group, C // group, *x.shape[2:]])
        x = OPS["Transpose"](x, perm=[2, 1, 0, *(i + 1 for i in spatial)])
        x = reshape_to(x, [C // group, N * group, *x.shape[3:]])
    else:
        x = OPS["Transpose"](x, perm=[1, 0, *spatial])
    weights = OPS["Transpose"](g, perm=[1, 0, *spatial])
    found = OPS["Conv"](x, weights, strides=window.dilations, dilations=window.strides, pads=pads, group=group)
    if any(s > d for s, d in zip(window.strides, window.dilations, strict=True)):
        # a last place that the stride did not reach would make the kernel longer
        found = OPS["Slice"](found, axes_tensor([0] * rank), size_tensor(kernel), axes_tensor(spatial))
    return OPS["Transpose"](found, perm=[1, 0, *spatial])
