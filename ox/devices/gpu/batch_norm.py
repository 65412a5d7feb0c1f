"""Batch normalization on a GPU: two launches, one where the statistics are given, one for running ones, three for the
gradient. Each function gives None for what it cannot do."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.elementwise import launch
from ox.devices.gpu.kernels import THREADS, TYPES, kernel, together
from ox.devices.gpu.multi_tensor import KINDS, is_on_device
from ox.dtypes import float32, float64

FILE = "device_batch_norm.cu"
MOST_CHANNELS = 65_535  # rows of a grid
MOST_PARTS, PER_PART = 64, 4096  # of one channel, and elements of each, about


def _computed(x: Any) -> Any:
    return float64 if x.dtype == np.float64 else float32


def _launch(name: str, x: Any, *arguments: Any) -> None:
    """Run a kernel on parts of the channels of x."""
    images, channels, inner = x.shape[0], x.shape[1], prod(x.shape[2:])
    vector = together(inner * x.itemsize) // x.itemsize
    function = kernel(name, FILE, x.dtype, f"#define VECTOR {vector}\n")
    function((_parts(x), channels), (THREADS,), (*arguments, images, channels, inner // vector))


def _aligned(array: Any) -> Any:
    """Contiguous, from a multiple of 16 bytes: elements that a thread loads one by one are added in another order."""
    array = cupy().ascontiguousarray(array)
    return array.copy() if array.data.ptr % 16 else array


def _parts(x: Any) -> int:
    return max(1, min(MOST_PARTS, int(x.size) // int(x.shape[1]) // PER_PART))


def _statistics(x: Any) -> Any:
    parts = cupy().empty((x.shape[1], _parts(x), 2), _computed(x))
    _launch("ox_device_batch_statistics", x, x, parts)
    return parts


def _usable(x: Any) -> bool:
    return x.ndim > 1 and x.size > 0 and x.shape[1] <= MOST_CHANNELS and x.dtype in TYPES


def batch_norm(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """BatchNormalization."""
    x, scale, bias, mean, variance = arrays
    if not _usable(x) or scale.dtype != bias.dtype or mean.dtype != variance.dtype:
        return None
    if any(a.dtype not in KINDS or a.shape != x.shape[1:2] for a in arrays[1:]):
        return None
    x = _aligned(x)
    scale, bias, mean, variance = map(cupy().ascontiguousarray, arrays[1:])  # read one by one
    y, train = cupy().empty(x.shape, x.dtype), attributes.get("training_mode", 0)
    parts = _statistics(x) if train else 0
    running = [cupy().empty(mean.shape, mean.dtype) for _ in range(2)] if train else []
    _launch(
        "ox_device_batch_normalize", x, x, y, parts, scale, bias, KINDS[scale.dtype], mean, variance,
        *(running or (0, 0)), KINDS[mean.dtype], np.float64(attributes.get("epsilon", 1e-5)),
        np.float64(attributes.get("momentum", 0.9)),
    )  # fmt: skip
    return (y, *running) if train else y


def batch_norm_gradient(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """BatchNormalizationGradient."""
    g, x, scale = arrays
    if not _usable(x) or g.shape != x.shape or scale.shape != x.shape[1:2]:
        return None
    if g.dtype != x.dtype or scale.dtype != x.dtype:
        return None
    g, x, scale = _aligned(g), _aligned(x), cupy().ascontiguousarray(scale)
    parts = _statistics(x)
    sums, result = cupy().empty_like(parts), cupy().empty(x.shape, x.dtype)
    to_scale, to_bias = cupy().empty(scale.shape, x.dtype), cupy().empty(scale.shape, x.dtype)
    _launch("ox_device_batch_gradient_sums", x, g, x, parts, sums)
    epsilon = np.float64(attributes.get("epsilon", 1e-5))
    _launch("ox_device_batch_norm_backward", x, g, x, scale, parts, sums, result, to_scale, to_bias, epsilon)
    return result, to_scale, to_bias


def running_statistics(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """RunningStatistics, of `part` and `correction` on the host."""
    given, numbers = arrays[:4], arrays[4:]
    first = given[0]
    if not all(isinstance(number, np.ndarray | np.generic) and number.size == 1 for number in numbers):
        return None
    if first.dtype not in TYPES or first.ndim != 1 or not first.size:
        return None
    if not all(is_on_device(a) and a.dtype == first.dtype and a.shape == first.shape for a in given):
        return None
    made = (cupy().empty(first.shape, first.dtype), cupy().empty(first.shape, first.dtype))
    function = kernel("ox_device_running_statistics", FILE, first.dtype, "#define VECTOR 1\n")
    launch(function, first.size, *(cupy().ascontiguousarray(a) for a in given), *made, *map(np.float64, numbers))
    return made
