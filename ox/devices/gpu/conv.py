"""Convolutions on a GPU and their gradients: data unfolded by one kernel and multiplied by cuBLAS; with groups, one
kernel. Each function gives None for what it cannot do."""

from __future__ import annotations

from typing import Any

from ox.devices.gpu import cudnn_conv, cudnn_settings
from ox.devices.gpu.cublas import cublas
from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.elementwise import launch
from ox.devices.gpu.kernels import TYPES, together
from ox.devices.gpu.rowwise import launch as launch_rows
from ox.devices.gpu.windows import Window, at_rank, elements, transposed, window, window_kernel

FILE = "device_conv.cu"
CHUNK = 1 << 27  # elements of unfolded data at once; more images come one part after the other


def _usable(*arrays: Any) -> bool:
    """Whether these have one type that kernels compute with, and elements."""
    given = [a for a in arrays if a is not None]
    return given[0].dtype in TYPES and all(a.dtype == given[0].dtype and a.size for a in given)


def _contiguous(array: Any) -> Any:
    return None if array is None else cupy().ascontiguousarray(array)


def conv(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Conv."""
    x, w, bias = [*arrays, None][:3]
    group = attributes.get("group", 1)
    if not _usable(x, w, bias) or x.ndim != w.ndim or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        return None
    kernel = attributes.get("kernel_shape")
    if (kernel is not None and tuple(kernel) != w.shape[2:]) or (bias is not None and bias.shape != w.shape[:1]):
        return None
    found = window(x.shape[2:], w.shape[2:], attributes)
    if found is None:
        return None
    shape = (x.shape[0], w.shape[0], *at_rank(found.places, x.ndim - 2))
    made = cudnn_conv.forward(x, w, bias, found, shape)
    if made is not None:
        return made
    x, w, bias = _contiguous(x), _contiguous(w), _contiguous(bias)
    return _grouped(x, w, bias, group, found, shape) if group > 1 else _multiplied(xp, x, w, bias, found, shape)


def _grouped(x: Any, w: Any, bias: Any, group: int, found: Window, shape: tuple[int, ...]) -> Any:
    y = cupy().empty(shape, x.dtype)
    function, divisor = window_kernel("ox_device_grouped_conv", FILE, x.dtype, x, w, y)
    sizes = (divisor(group), w.shape[1], divisor(w.shape[0] // group))
    launch(function, y.size, x, w, 0 if bias is None else bias, y, *sizes, *found.numbers(divisor))
    return y


def _multiplied(xp: Any, x: Any, w: Any, bias: Any, found: Window, shape: tuple[int, ...]) -> Any:
    (images, channels), (_, places, taps) = x.shape[:2], elements(found)
    weights, added = w.reshape(w.shape[0], -1), None if bias is None else bias.reshape(-1, 1)
    if taps == 1 and found.places == found.sizes and found.strides == (1, 1, 1) and not any(found.befores):
        return _product(xp, weights, x.reshape(images, channels, places), added).reshape(shape)
    parts = []
    for some in _parts(images, channels * taps * places):
        columns = _unfolded(x[some], found, images_first=True)
        parts.append(_product(xp, weights, columns, added))
    return (parts[0] if len(parts) == 1 else cupy().concatenate(parts)).reshape(shape)


def _product(xp: Any, a: Any, b: Any, added: Any = None) -> Any:
    """a b + added, in TF32 where convolutions may use it."""
    return cublas(xp).matmul(a, b, added=added, allow_tf32=cudnn_settings.current().allow_tf32)


def _parts(images: int, columns: int) -> list[slice]:
    step = max(1, min(images, CHUNK // columns))
    return [slice(first, first + step) for first in range(0, images, step)]


def _unfolded(x: Any, found: Window, images_first: bool) -> Any:
    """Columns [N, C * taps, places] or [C * taps, N, places]."""
    (images, channels), (_, places, taps) = x.shape[:2], elements(found)
    rows = (images, channels * taps) if images_first else (channels * taps, images)
    columns = cupy().empty((*rows, places), x.dtype)
    last = found.places[-1]
    vector = together(last * x.itemsize) // x.itemsize
    function, divisor = window_kernel("ox_device_unfold", FILE, x.dtype, x, columns, vector=vector)
    launch(
        function, columns.size // vector, x, columns, 0 if images_first else divisor(images), channels,
        divisor(last // vector), *found.numbers(divisor),
    )  # fmt: skip
    return columns


def conv_transpose(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """ConvTranspose without sizes that are asked for."""
    x, w, bias = [*arrays, None][:3]
    group = attributes.get("group", 1)
    if not _usable(x, w, bias) or x.ndim != w.ndim or x.shape[1] != w.shape[0] or w.shape[0] % group:
        return None
    kernel = attributes.get("kernel_shape")
    if kernel is not None and tuple(kernel) != w.shape[2:]:
        return None
    found, channels = transposed(x.shape[2:], w.shape[2:], attributes), w.shape[1] * group
    if found is None or (bias is not None and bias.shape != (channels,)):
        return None
    shape = (x.shape[0], channels, *at_rank(found.sizes, x.ndim - 2))
    images = cudnn_conv.data(x, w, found, shape) if bias is None else None
    if images is not None:
        return images
    x, w, bias = _contiguous(x), _contiguous(w), _contiguous(bias)
    y = cupy().empty(shape, x.dtype)
    last = 0 if bias is None else bias
    if group > 1:
        function, divisor = window_kernel("ox_device_grouped_conv_transpose", FILE, x.dtype, x, w, y)
        sizes = (divisor(group), w.shape[0] // group, divisor(w.shape[1]))
        launch(function, y.size, x, w, last, y, *sizes, *found.numbers(divisor))
        return y
    _, places, taps = elements(found)
    weights = w.reshape(w.shape[0], -1).T
    for some in _parts(x.shape[0], channels * taps * places):
        part = x[some].reshape(-1, x.shape[1], places)
        _fold(_product(xp, weights, part), last, y[some], found)
    return y


def conv_weights(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """ConvWeights."""
    x, g = arrays
    kernel, group = tuple(map(int, attributes["kernel_shape"])), attributes.get("group", 1)
    if not _usable(x, g) or x.ndim != g.ndim or x.shape[0] != g.shape[0] or x.shape[1] % group or g.shape[1] % group:
        return None
    found = window(x.shape[2:], kernel, attributes)
    if found is None or at_rank(found.places, x.ndim - 2) != g.shape[2:]:
        return None
    shape = (g.shape[1], x.shape[1] // group, *kernel)
    made = cudnn_conv.weights(x, g, found, shape)
    if made is not None:
        return made
    x, g = _contiguous(x), _contiguous(g)
    if group > 1:
        result = cupy().empty(shape, x.dtype)
        # a warp for each element
        function, divisor = window_kernel("ox_device_grouped_conv_weights", FILE, x.dtype, x, g, result)
        launch_rows(
            function, result.size, x, g, result, x.shape[0], group, divisor(shape[1]), divisor(g.shape[1] // group),
            *found.numbers(divisor),
        )  # fmt: skip
        return result
    _, places, taps = elements(found)
    for some in _parts(x.shape[0], x.shape[1] * taps * places):
        columns = _unfolded(x[some], found, images_first=False)
        rows = cupy().ascontiguousarray(g[some].swapaxes(0, 1)).reshape(g.shape[1], -1)
        made = _product(xp, rows, columns.reshape(x.shape[1] * taps, -1).T, made)
    return made.reshape(shape)


def fold(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Col2Im, of sizes on the host."""
    columns, sizes, block = arrays[0], arrays[1].tolist(), arrays[2].tolist()
    found = window(sizes, block, attributes)
    if found is None or not _usable(columns) or columns.ndim != 3:
        return None
    _, places, taps = elements(found)
    if columns.shape[1] % taps or columns.shape[2] != places:
        return None
    images = cupy().empty((columns.shape[0], columns.shape[1] // taps, *sizes), columns.dtype)
    _fold(_contiguous(columns), 0, images, found)
    return images


def _fold(columns: Any, bias: Any, images: Any, found: Window) -> None:
    """Add up columns in images [N, C, ...]; `bias` is [C], or 0 for none."""
    function, divisor = window_kernel("ox_device_fold", FILE, images.dtype, columns, images)
    launch(function, images.size, columns, bias, images, divisor(images.shape[1]), *found.numbers(divisor))
