"""Kernels of rows on a GPU: softmax, norms, cross entropy. Each gives None for what it cannot do."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ox.devices import cudnn_norm, device_checks
from ox.devices.cuda import cupy
from ox.devices.cuda_kernels import THREADS, TYPES, blocks_of_rows, kernel
from ox.devices.summation import sum_over
from ox.dtypes import float32
from ox.errors import ShapeError

PARTS = 1024  # rows of sums, one a warp, before they are added up
MOST_THREADS, LOSSES = 1024, 16_384  # of a block; and losses that one adds up
LONGEST_KEPT = 16 * THREADS  # elements of a row in a block's registers
ROWS_OF_PART, LONG_PART = 8, 64  # at least, and at most: they are added one after the other


def launch(function: Any, rows: int, *arguments: Any) -> None:
    """Run a kernel of rows. Arguments are arrays on the GPU, whole numbers and numbers of NumPy."""
    function((blocks_of_rows(rows),), (THREADS,), (rows, *arguments))


def of_rows(name: str) -> Any:
    """A kernel of device_rows.cu along the last axis, of one or two arrays of one shape."""

    def run(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        x = arrays[0]
        if attributes.get("axis", -1) not in (-1, x.ndim - 1) or not x.size or x.dtype not in TYPES:
            return None
        if x.dtype == np.float64 or any(a.shape != x.shape or a.dtype != x.dtype for a in arrays):
            return None
        arrays = [cupy().ascontiguousarray(a) for a in arrays]
        y = cupy().empty(x.shape, x.dtype)
        columns = x.shape[-1]
        launch(kernel(name, "device_rows.cu", x.dtype), x.size // columns, *arrays, y, columns)
        return y

    return run


def _inner(x: Any, axis: int) -> tuple[tuple[int, ...], int]:
    """The normalized shape and its number of elements; 0 where there is nothing to do."""
    inner = x.shape[axis % x.ndim :] if x.ndim else ()
    return inner, prod(inner) if x.size else 0


def _are_float32(arrays: list[Any]) -> bool:
    return all(a is None or a.dtype == float32 for a in arrays)


def _parts(rows: int) -> int:
    return max(1, min(PARTS, rows // ROWS_OF_PART), rows // LONG_PART)


def _backward(of_warps: str, of_blocks: str, parts: int, *arguments: Any) -> None:
    """Run the gradient of a norm, of which the last argument is the length of rows: a part is a block's, which keeps a
    row in registers; or a warp's, of short rows and of very long ones."""
    columns = arguments[-1]
    if not THREADS // 2 <= columns <= LONGEST_KEPT:
        launch(kernel(of_warps, "normalization.cu"), parts, *arguments)
        return
    lines = f"#define KEPT_COLUMNS {-(-columns // THREADS)}\n"
    kernel(of_blocks, "device_norms.cu", more=lines)((parts,), (THREADS,), (parts, *arguments))


def layer_norm(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """LayerNormalization of float32 with scale and bias of the normalized shape; of long rows, and then of halves, by
    cuDNN."""
    found = cudnn_norm.layer_norm(xp, arrays, attributes)
    if found is not None:
        return found
    x, scale, bias = [*arrays, None][:3]
    inner, columns = _inner(x, attributes.get("axis", -1))
    if not columns or scale.shape != inner or not _are_float32(arrays) or attributes.get("stash_type", 1) != 1:
        return None
    if bias is not None and bias.shape != inner:
        return None
    x, scale = cupy().ascontiguousarray(x), cupy().ascontiguousarray(scale)
    bias = 0 if bias is None else cupy().ascontiguousarray(bias)
    rows, y = x.size // columns, cupy().empty(x.shape, float32)
    statistics = (*x.shape[: x.ndim - len(inner)], *[1] * len(inner))
    both = cupy().empty((2, *statistics), float32)
    mean = both.data.ptr
    function = kernel("ox_layer_norm", "normalization.cu")
    epsilon = np.float32(attributes.get("epsilon", 1e-5))
    launch(function, rows, x, scale, bias, y, mean, mean + both.nbytes // 2, epsilon, columns)
    return y if attributes.get("outputs", 1) == 1 else (y, both[0], both[1])


def layer_norm_gradient(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """LayerNormalizationGradient of float32; of long rows, and then of halves, by cuDNN."""
    found = cudnn_norm.layer_norm_gradient(xp, arrays, attributes)
    if found is not None:
        return found
    g, x, scale, *_ = arrays
    inner, columns = _inner(x, attributes.get("axis", -1))
    if not columns or scale.shape != inner or g.shape != x.shape or not _are_float32(arrays):
        return None
    g, x, scale, mean, inverse = (cupy().ascontiguousarray(a) for a in arrays)
    rows = x.size // columns
    parts = _parts(rows)
    result, sums = cupy().empty(x.shape, float32), cupy().empty((2, parts, columns), float32)
    half = sums.data.ptr + sums.nbytes // 2
    _backward(
        "ox_layer_norm_backward", "ox_device_layer_norm_backward", parts, g, x, scale, mean, inverse, result, sums,
        half, rows, columns,
    )  # fmt: skip
    both = sum_over(cupy(), sums, (1,))
    return result, both[0].reshape(inner), both[1].reshape(inner)


def rms_norm(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """RMSNormalization of float32 with a scale of the normalized shape; of long rows, and then of halves, by cuDNN."""
    found = cudnn_norm.rms_norm(xp, arrays, attributes)
    if found is not None:
        return found
    x, scale = arrays
    inner, columns = _inner(x, attributes.get("axis", -1))
    if not columns or scale.shape != inner or not _are_float32(arrays) or attributes.get("stash_type", 1) != 1:
        return None
    x, scale = cupy().ascontiguousarray(x), cupy().ascontiguousarray(scale)
    rows, y = x.size // columns, cupy().empty(x.shape, float32)
    epsilon = np.float32(attributes.get("epsilon", 1e-5))
    launch(kernel("ox_rms_norm", "normalization.cu"), rows, x, scale, y, cupy().empty(rows, float32), epsilon, columns)
    return y


def rms_norm_gradient(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """RMSNormalizationGradient of float32; of long rows, and then of halves, by cuDNN."""
    found = cudnn_norm.rms_norm_gradient(xp, arrays, attributes)
    if found is not None:
        return found
    g, x, scale = arrays
    inner, columns = _inner(x, attributes.get("axis", -1))
    if not columns or scale.shape != inner or g.shape != x.shape or not _are_float32(arrays):
        return None
    g, x, scale = (cupy().ascontiguousarray(a) for a in arrays)
    rows = x.size // columns
    parts = _parts(rows)
    result, sums = cupy().empty(x.shape, float32), cupy().empty((parts, columns), float32)
    epsilon = np.float32(attributes.get("epsilon", 1e-5))
    _backward(
        "ox_rms_norm_backward", "ox_device_rms_norm_backward", parts, g, x, scale, result, sums, epsilon, rows, columns
    )
    return result, sum_over(cupy(), sums, (0,)).reshape(inner)


def cross_entropy(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """CrossEntropy of float32."""
    scores, target = arrays
    if scores.dtype != float32 or scores.ndim != 2 or not scores.size or target.shape != scores.shape[:1]:
        return None
    rows, classes = scores.shape
    scores, target = cupy().ascontiguousarray(scores), cupy().ascontiguousarray(target, np.int64)
    losses, logs = cupy().empty(rows, float32), cupy().empty(rows, float32)
    check = device_checks.check(ShapeError, "cross_entropy met a class out of range", 0, classes - 1)
    launch(
        kernel("ox_device_cross_entropy", "device_losses.cu"), rows, scores, target, losses, logs,
        attributes.get("ignore_index", -100), device_checks.address(), check, classes,
    )  # fmt: skip
    device_checks.after_launch()
    return losses if attributes.get("outputs", 2) == 1 else (losses, logs)


def mean_cross_entropy(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """MeanCrossEntropy of float32."""
    ignored = attributes.get("ignore_index", -100)
    found = cross_entropy(xp, arrays, {"ignore_index": ignored})
    if found is None:
        return None
    losses, logs = found
    loss, count = cupy().empty((), float32), cupy().empty((), float32)
    target = cupy().ascontiguousarray(arrays[1], np.int64)
    blocks = min(-(-losses.size // LOSSES), THREADS)
    sums = cupy().empty((2, blocks), np.float64) if blocks > 1 else 0
    sum_up = kernel("ox_device_loss_sums", "device_losses.cu")
    sum_up((blocks,), (MOST_THREADS,), (losses.size, losses, target, sums, loss, count, ignored))
    if blocks > 1:
        launch(kernel("ox_device_mean_loss", "device_losses.cu"), 1, sums, loss, count, blocks)
    return loss, logs, count


def cross_entropy_gradient(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """CrossEntropyGradient of float32, of one gradient for each row or for all."""
    g, scores, target, _ = arrays
    if not (g.dtype == scores.dtype == float32) or scores.ndim != 2 or not scores.size:
        return None
    rows, classes = scores.shape
    if target.shape != (rows,) or g.shape not in ((rows,), ()):
        return None
    step = int(g.shape == (rows,))
    g, scores = cupy().ascontiguousarray(g), cupy().ascontiguousarray(scores)
    target, result = cupy().ascontiguousarray(target, np.int64), cupy().empty(scores.shape, float32)
    launch(
        kernel("ox_device_cross_entropy_backward", "device_losses.cu"), rows, g, scores, target, result,
        attributes.get("ignore_index", -100), step, classes,
    )  # fmt: skip
    return result
