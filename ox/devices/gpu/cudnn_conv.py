"""Convolutions by cuDNN, of float32 and half precision. Each function gives None for what cuDNN does not do.

Images in half precision whose channels lie next to each other, [N, C, H, W] with the strides of [N, H, W, C], stay so,
and so does the result: cuDNN's kernels on tensor cores work in this order, and turn other images into it and back.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ox.devices.channels_last import from_end, is_channels_last, to_end
from ox.devices.gpu import cudnn
from ox.devices.gpu.cudnn_graphs import DATA_TYPES, Convolution, Layout, row_major
from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.windows import Window, at_rank
from ox.dtypes import HALF_TYPES, DType

Shape = tuple[int, ...]


def _layout(shape: Shape, dtype: DType, channels_last: bool) -> Layout:
    """Of a dense array [N, C, ...], with two spatial dimensions at least."""
    shape = (*shape[:2], *(1,) * (4 - len(shape)), *shape[2:])
    if not channels_last:
        return row_major(shape, dtype)
    _, channels, *sizes = shape
    inner = tuple(channels * prod(sizes[i + 1 :]) for i in range(len(sizes)))
    return Layout(shape, (channels * prod(sizes), 1, *inner), dtype)


def convolution(
    kind: str,
    data: Shape,
    weights: Shape,
    places: Shape,
    dtype: DType,
    window: Window,
    bias: bool = False,
    channels_last: bool = False,
) -> Convolution:
    """The graph of dense arrays [N, C, ...], [M, C / group, ...] and [N, M, ...], with a bias [M].

    Args:
        channels_last: whether they lie as [N, ..., C], [M, ..., C / group] and [N, ..., M].
    """
    rank = max(2, len(data) - 2)
    befores, behinds, strides, dilations = (
        at_rank(each, rank) for each in (window.befores, window.behinds, window.strides, window.dilations)
    )
    x, w, y = (_layout(shape, dtype, channels_last) for shape in (data, weights, places))
    added = _layout((1, weights[0], *[1] * rank), dtype, channels_last) if bias else None
    return Convolution(kind, x, w, y, befores, behinds, strides, dilations, added)


def _in_layout(x: Any, channels_last: bool) -> Any:
    """The array, or a copy that lies so."""
    if not channels_last:
        return cupy().ascontiguousarray(x)
    return from_end(cupy().ascontiguousarray(to_end(x)))


def _empty(shape: Shape, dtype: DType, channels_last: bool) -> Any:
    if not channels_last:
        return cupy().empty(shape, dtype)
    return from_end(cupy().empty((shape[0], *shape[2:], shape[1]), dtype))


def _run(kind: str, shapes: tuple[Shape, Shape, Shape], window: Window, inputs: list[Any], shape: Shape) -> Any:
    """The result of this shape; of inputs in the order of the graph's tensors, of which the first are images."""
    images, dtype = inputs[0], inputs[0].dtype
    if dtype not in DATA_TYPES or min(*window.befores, *window.behinds) < 0 or not cudnn.is_on():
        return None
    bias = inputs[2:]
    orders = (True, False) if dtype in HALF_TYPES and is_channels_last(images) else (False,)
    for channels_last in orders:
        graph = convolution(kind, *shapes, dtype, window, bool(bias), channels_last)
        if not cudnn.takes(graph):
            continue
        operands = [_in_layout(each, channels_last) for each in inputs[:2]] + [_in_layout(each, False) for each in bias]
        result = _empty(shape, dtype, channels_last)
        return result if cudnn.run(graph, [*map(cudnn.aligned, operands), result]) else None
    return None


def forward(x: Any, w: Any, bias: Any, window: Window, shape: Shape) -> Any:
    """x * w + bias, of the shape of the places."""
    return _run("forward", (x.shape, w.shape, shape), window, [x, w] if bias is None else [x, w, bias], shape)


def data(g: Any, w: Any, window: Window, shape: Shape) -> Any:
    """The data of this shape from places g: what ConvTranspose makes of g."""
    return _run("data", (shape, w.shape, g.shape), window, [g, w], shape)


def weights(x: Any, g: Any, window: Window, shape: Shape) -> Any:
    """The gradient of the weights, which have this shape, from data x and gradients g of the places."""
    return _run("weights", (x.shape, shape, g.shape), window, [x, g], shape)
