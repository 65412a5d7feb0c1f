"""Normalizations and their gradients on the compiled kernels: contiguous float32, with weights of the usual shapes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ox.devices.summation import sum_into, sum_over
from ox.kernels import Library, address

SMALLEST_IMAGE = 4  # pixels of a channel from which on reading it row by row is faster than NumPy
PARTS = 16  # pieces in which gradients of weights are summed, whatever the threads
LONG_PART = 64  # rows of a piece at most: they are added one after the other


def _inner(x: Any, axis: int) -> tuple[tuple[int, ...], int]:
    """The shape of the dimensions from an axis on, and the number of elements."""
    shape = x.shape[axis % x.ndim :]
    return shape, prod(shape)


def _parts(rows: int) -> int:
    return max(1, min(PARTS, rows // 8), rows // LONG_PART)


def layer_norm(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """LayerNormalization with a scale and bias of the normalized shape."""
    x, scale, *rest = arrays
    bias = rest[0] if rest else None
    inner, columns = _inner(x, attributes.get("axis", -1))
    if not columns or scale.shape != inner or attributes.get("stash_type", 1) != 1:
        return None
    if not (x.flags.c_contiguous and scale.flags.c_contiguous):
        return None
    if bias is not None and not (bias.shape == inner and bias.flags.c_contiguous):
        return None
    rows, y = x.size // columns, library.empty_like(x)
    statistics = (*x.shape[: x.ndim - len(inner)], *[1] * len(inner))
    mean, inverse = library.empty(statistics, np.float32), library.empty(statistics, np.float32)
    library.ox_layer_norm(
        rows, address(x), address(scale), 0 if bias is None else address(bias), address(y), address(mean),
        address(inverse), attributes.get("epsilon", 1e-5), columns,
    )  # fmt: skip
    return y if attributes.get("outputs", 1) == 1 else (y, mean, inverse)


def layer_norm_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """LayerNormalizationGradient."""
    g, x, scale, mean, inverse = arrays
    inner, columns = _inner(x, attributes.get("axis", -1))
    if not columns or scale.shape != inner or g.shape != x.shape:
        return None
    if not all(a.flags.c_contiguous for a in arrays):
        return None
    rows = x.size // columns
    parts = _parts(rows)
    result, sums = library.empty_like(x), library.empty((2, parts, columns), np.float32)
    library.ox_layer_norm_backward(
        parts, address(g), address(x), address(scale), address(mean), address(inverse), address(result),
        address(sums), address(sums) + 4 * parts * columns, rows, columns,
    )  # fmt: skip
    both = library.empty((2, columns), np.float32)
    library.call(sum_into, sums, (1,), both)
    return result, both[0].reshape(inner), both[1].reshape(inner)


def rms_norm(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """RMSNormalization with a scale of the normalized shape."""
    x, scale = arrays
    inner, columns = _inner(x, attributes.get("axis", -1))
    if not columns or scale.shape != inner or attributes.get("stash_type", 1) != 1:
        return None
    if not (x.flags.c_contiguous and scale.flags.c_contiguous):
        return None
    rows, y = x.size // columns, np.empty_like(x)
    inverse = np.empty(rows, np.float32)
    library.ox_rms_norm(
        rows, address(x), address(scale), address(y), address(inverse), attributes.get("epsilon", 1e-5), columns
    )
    return y


def rms_norm_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """RMSNormalizationGradient."""
    g, x, scale = arrays
    inner, columns = _inner(x, attributes.get("axis", -1))
    if not x.size or scale.shape != inner or g.shape != x.shape or not all(a.flags.c_contiguous for a in arrays):
        return None
    rows = x.size // columns
    parts = _parts(rows)
    result, sums = np.empty_like(x), np.empty((parts, columns), np.float32)
    library.ox_rms_norm_backward(
        parts, address(g), address(x), address(scale), address(result), address(sums), attributes.get("epsilon", 1e-5),
        rows, columns,
    )  # fmt: skip
    return result, sum_over(np, sums, (0,)).reshape(inner)


def group_norm(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """GroupNormalization of (N, C, ...)."""
    return _group_norm(library, arrays, attributes, attributes["num_groups"])


def instance_norm(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """InstanceNormalization of (N, C, ...): a group is a channel."""
    return _group_norm(library, arrays, attributes, arrays[0].shape[1] if arrays[0].ndim > 1 else 0)


def _group_norm(library: Library, arrays: list[Any], attributes: dict[str, Any], groups: int) -> Any:
    x, scale, bias = arrays
    if x.ndim < 2 or not x.size or groups < 1 or x.shape[1] % groups or scale.shape != x.shape[1:2]:
        return None
    if bias.shape != scale.shape or not all(a.flags.c_contiguous for a in arrays):
        return None
    rows, channels, size = x.shape[0] * groups, x.shape[1] // groups, prod(x.shape[2:])
    y, mean, inverse = np.empty_like(x), np.empty(rows, np.float32), np.empty(rows, np.float32)
    library.ox_group_norm(
        rows, address(x), address(scale), address(bias), address(y), address(mean), address(inverse),
        attributes.get("epsilon", 1e-5), groups, channels, size,
    )  # fmt: skip
    return y


def group_norm_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """GroupNormalizationGradient of (N, G, C, S)."""
    g, x, scale = arrays
    if not x.size or g.shape != x.shape or not all(a.flags.c_contiguous for a in arrays):
        return None
    samples, groups, channels, size = x.shape
    result, sums = np.empty_like(x), np.empty((2, samples, groups, channels), np.float32)
    library.ox_group_norm_backward(
        samples * groups, address(g), address(x), address(scale), address(result), address(sums),
        address(sums[1]), attributes.get("epsilon", 1e-5), groups, channels, size,
    )  # fmt: skip
    to_scale, to_bias = sum_over(np, sums, (1,))
    return result, to_scale, to_bias


def batch_norm(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """BatchNormalization of images (N, C, ...) in training mode, with momentum 0: two outputs are mean and variance."""
    x, scale, bias, *_ = arrays
    if not attributes.get("training_mode") or attributes.get("momentum", 0.9) or attributes.get("outputs", 1) != 3:
        return None
    if x.ndim < 2 or not x.size or any(a.shape != x.shape[1:2] for a in arrays[1:]):
        return None
    if not (x.flags.c_contiguous and scale.flags.c_contiguous and bias.flags.c_contiguous):
        return None
    samples, channels, size = x.shape[0], x.shape[1], prod(x.shape[2:])
    if size < SMALLEST_IMAGE:
        return None
    y, mean, variance = library.empty_like(x), library.empty(channels, np.float32), library.empty(channels, np.float32)
    library.ox_batch_norm(
        channels, address(x), address(scale), address(bias), address(y), address(mean), address(variance),
        attributes.get("epsilon", 1e-5), samples, size,
    )  # fmt: skip
    return y, mean, variance


def batch_norm_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """BatchNormalizationGradient of (N, C, ...)."""
    g, x, scale = arrays
    if x.ndim < 2 or not x.size or g.shape != x.shape or not all(a.flags.c_contiguous for a in arrays):
        return None
    samples, channels, size = x.shape[0], x.shape[1], prod(x.shape[2:])
    if size < SMALLEST_IMAGE:
        return None
    result = library.empty_like(x)
    to_scale, to_bias = library.empty(channels, np.float32), library.empty(channels, np.float32)
    library.ox_batch_norm_backward(
        channels, address(g), address(x), address(scale), address(result), address(to_scale), address(to_bias),
        attributes.get("epsilon", 1e-5), samples, size,
    )  # fmt: skip
    return result, to_scale, to_bias
