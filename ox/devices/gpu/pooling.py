"""Pools and their gradients on a GPU, in one launch each. Each gives None for what it cannot do."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.elementwise import launch
from ox.devices.gpu.kernels import TYPES
from ox.devices.gpu.windows import Window, at_rank, window, window_kernel

FILE = "device_pool.cu"


def _window(x: Any, shape: tuple[int, ...], attributes: dict[str, Any]) -> Window | None:
    """The window over images of this shape. None for pads that crop."""
    if x.dtype not in TYPES or not x.size or x.ndim != len(shape) or 0 in shape:
        return None
    found = window(shape[2:], attributes["kernel_shape"], attributes)
    return found if found is not None and min(*found.befores, *found.behinds) >= 0 else None


def _of_places(x: Any, found: Window) -> Any:
    return cupy().empty((*x.shape[:2], *at_rank(found.places, x.ndim - 2)), x.dtype)


def max_pool(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """MaxPool of floats."""
    (x,) = arrays
    found = _window(x, x.shape, attributes)
    if found is None or attributes.get("storage_order"):
        return None
    x, y = cupy().ascontiguousarray(x), _of_places(x, found)
    indices = cupy().empty(y.shape, np.int64) if attributes.get("outputs", 1) > 1 else None
    function, divisor = window_kernel("ox_device_max_pool", FILE, x.dtype, x, y)
    launch(function, y.size, x, y, 0 if indices is None else indices, *found.numbers(divisor))
    return y if indices is None else (y, indices)


def max_pool_gradient(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """MaxPoolGradient that knows the windows."""
    g, indices = arrays
    shape = tuple(attributes["shape"])
    if not attributes.get("kernel_shape") or indices.dtype != np.int64 or indices.shape != g.shape:
        return None
    found = _window(g, shape, attributes)
    if found is None or at_rank(found.places, g.ndim - 2) != g.shape[2:] or shape[:2] != g.shape[:2]:
        return None
    g, indices, result = cupy().ascontiguousarray(g), cupy().ascontiguousarray(indices), cupy().empty(shape, g.dtype)
    function, divisor = window_kernel("ox_device_max_pool_backward", FILE, g.dtype, g, result)
    launch(function, result.size, g, indices, result, *found.reaching().numbers(divisor))
    return result


def _counted(found: Window, attributes: dict[str, Any]) -> tuple[int, ...]:
    """Between which elements taps count in an average: from, and up to."""
    if not attributes.get("count_include_pad"):
        return (0, 0, 0, *found.sizes)
    ends = [n + e for n, e in zip(found.sizes, found.behinds, strict=True)]
    return (*(-b for b in found.befores), *ends)


def average_pool(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """AveragePool."""
    (x,) = arrays
    found = _window(x, x.shape, attributes)
    if found is None:
        return None
    x, y = cupy().ascontiguousarray(x), _of_places(x, found)
    function, divisor = window_kernel("ox_device_average_pool", FILE, x.dtype, x, y)
    launch(function, y.size, x, y, *_counted(found, attributes), *found.numbers(divisor))
    return y


def average_pool_gradient(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """AveragePoolGradient."""
    (g,) = arrays
    shape = tuple(attributes["shape"])
    found = _window(g, shape, attributes)
    if found is None or at_rank(found.places, g.ndim - 2) != g.shape[2:] or shape[:2] != g.shape[:2]:
        return None
    g, result = cupy().ascontiguousarray(g), cupy().empty(shape, g.dtype)
    function, divisor = window_kernel("ox_device_average_pool_backward", FILE, g.dtype, g, result)
    launch(function, result.size, g, result, *_counted(found, attributes), *found.numbers(divisor))
    return result
