"""Convolutions by cuDNN, of float32 and halves. Each function tells whether cuDNN did it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox.devices import cudnn
from ox.devices.cuda_windows import Window, at_rank
from ox.devices.cudnn_graphs import DATA_TYPES, Convolution, Layout


def _rank(x: Any) -> int:
    """Of the spatial dimensions that cuDNN is given, which are two at least."""
    return max(2, int(x.ndim) - 2)


def _layout(x: Any) -> Layout:
    """Of an array [N, C, ...]."""
    more = (1,) * (_rank(x) + 2 - x.ndim)
    steps = tuple(step // x.itemsize for step in x.strides)
    return Layout((*x.shape[:2], *more, *x.shape[2:]), (*steps[:2], *(steps[1] for _ in more), *steps[2:]), x.dtype)


def convolution(kind: str, data: Any, weights: Any, places: Any, window: Window, bias: Any = None) -> Convolution:
    """The graph of arrays [N, C, ...], [M, C / group, ...] and [N, M, ...]."""
    rank = _rank(data)
    befores, behinds, strides, dilations = (
        at_rank(each, rank) for each in (window.befores, window.behinds, window.strides, window.dilations)
    )
    added = None
    if bias is not None:
        added = Layout((1, bias.size, *[1] * rank), (bias.size, *[1] * (rank + 1)), bias.dtype)
    layouts = (_layout(data), _layout(weights), _layout(places))
    return Convolution(kind, *layouts, befores, behinds, strides, dilations, added)


def _takes(x: Any, window: Window) -> bool:
    return x.dtype in DATA_TYPES and min(*window.befores, *window.behinds) >= 0


def _run(graph: Convolution, inputs: Sequence[Any], made: Any) -> bool:
    return cudnn.is_on() and cudnn.run(graph, [*map(cudnn.aligned, inputs), made])


def forward(x: Any, w: Any, bias: Any, window: Window, y: Any) -> bool:
    """y = x * w + bias."""
    if not _takes(x, window):
        return False
    graph = convolution("forward", x, w, y, window, bias)
    return _run(graph, [x, w] if bias is None else [x, w, bias], y)


def data(g: Any, w: Any, window: Window, x: Any) -> bool:
    """The data x from places g: what ConvTranspose makes of g."""
    return _takes(x, window) and _run(convolution("data", x, w, g, window), [g, w], x)


def weights(x: Any, g: Any, window: Window, w: Any) -> bool:
    """The gradient w of the weights from data x and gradients g of the places."""
    return _takes(x, window) and _run(convolution("weights", x, w, g, window), [x, g], w)
