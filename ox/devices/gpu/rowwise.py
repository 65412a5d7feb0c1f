"""Kernels of rows on a GPU: softmax, norms, cross entropy, of float32 and halves, which they compute in float32 and
round once. Each gives None for what it cannot do."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ox.devices.gpu import cudnn_norm, device_checks
from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.kernels import MOST_BLOCKS, THREADS, TYPES, WARP, blocks_of_rows, kernel
from ox.dtypes import HALF_TYPES, DType, float32
from ox.errors import ShapeError

PARTS = 1024  # rows of sums, one a warp or a block, before they are added up
MOST_THREADS, LOSSES = 1024, 16_384  # of a block; and losses that one adds up
LONGEST_KEPT = 16 * THREADS  # elements of a row in a block's registers
ROWS_OF_PART, LONG_PART = 8, 64  # at least, and at most: they are added one after the other
# Elements of a row from which on a block works on it, and on one of most threads; no device has measured them
LONG_ROW, VERY_LONG_ROW = 2048, 16_384
BY_BLOCK = "#define BLOCK_ROWS\n"  # block_rows.h
SUM_THREADS, SUM_COLUMNS = 1024, 32  # of a block that adds up parts
NUMBERS = (float32, *HALF_TYPES)


def launch(function: Any, rows: int, *arguments: Any) -> None:
    """Run a kernel of rows, a warp each. Arguments are arrays on the GPU, whole numbers and numbers of NumPy."""
    function((blocks_of_rows(rows),), (THREADS,), (rows, *arguments))


def launch_rows(name: str, file: str, dtype: DType, columns: int, rows: int, *arguments: Any) -> None:
    """Run a kernel of rows of so many columns: a warp each, or where they are long, a block.

    Args:
        file: one that includes block_rows.h.
        rows, arguments: as in `launch`.
    """
    if columns < LONG_ROW:
        launch(kernel(name, file, dtype), rows, *arguments)
        return
    threads = THREADS if columns < VERY_LONG_ROW else MOST_THREADS
    kernel(name, file, dtype, BY_BLOCK)((min(rows, MOST_BLOCKS),), (threads,), (rows, *arguments))


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
        launch_rows(name, "device_rows.cu", x.dtype, columns, x.size // columns, *arrays, y, columns)
        return y

    return run


def _inner(x: Any, axis: int) -> tuple[tuple[int, ...], int]:
    """The normalized shape and its number of elements; 0 where there is nothing to do."""
    inner = x.shape[axis % x.ndim :] if x.ndim else ()
    return inner, prod(inner) if x.size else 0


def _have_type(arrays: list[Any]) -> bool:
    """Whether these have one type, which the kernels read."""
    dtype = arrays[0].dtype
    for a in arrays:
        if a is not None and a.dtype != dtype:
            return False
    return dtype in NUMBERS


def _parts(rows: int) -> int:
    return max(1, min(PARTS, rows // ROWS_OF_PART), rows // LONG_PART)


def _backward(
    of_parts: str, of_blocks: str, x: Any, inner: tuple[int, ...], parts: int, sums: Any, *arguments: Any
) -> list[Any]:
    """Run the gradient of a norm, and add up `sums` [K, parts, columns] in the gradients of K weights: a part is a
    block's, which keeps a row in registers; of very long rows, one that does not, and of short ones a warp's."""
    columns = sums.shape[2]
    if THREADS // 2 <= columns <= LONGEST_KEPT:
        lines = f"#define KEPT_COLUMNS {-(-columns // THREADS)}\n"
        function = kernel(of_blocks, "device_norms.cu", x.dtype, lines)
        function((parts,), (THREADS,), (parts, *arguments))
    else:
        launch_rows(of_parts, "device_norms.cu", x.dtype, columns, parts, *arguments)
    # each has memory of its own, so that a leaf can keep it as its gradient
    weights = [cupy().empty(inner, x.dtype) for _ in range(len(sums))]
    add_up = kernel("ox_device_sum_parts", "device_norms.cu", x.dtype)
    blocks = (-(-columns // SUM_COLUMNS), len(sums))
    add_up(blocks, (SUM_THREADS,), (parts, sums, weights[0], weights[-1], columns))
    return weights


def layer_norm(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """LayerNormalization with scale and bias of the normalized shape; of very long rows by cuDNN."""
    x, scale, bias = [*arrays, None][:3]
    inner, columns = _inner(x, attributes.get("axis", -1))
    if columns >= cudnn_norm.LONG_ROW and (result := cudnn_norm.layer_norm(xp, arrays, attributes)) is not None:
        return result
    if not columns or scale.shape != inner or not _have_type(arrays) or attributes.get("stash_type", 1) != 1:
        return None
    if bias is not None and bias.shape != inner:
        return None
    x, scale = cupy().ascontiguousarray(x), cupy().ascontiguousarray(scale)
    bias = 0 if bias is None else cupy().ascontiguousarray(bias)
    rows, y = x.size // columns, cupy().empty(x.shape, x.dtype)
    mean = inverse = 0
    has_statistics = attributes.get("outputs", 1) > 1
    if has_statistics:
        both = cupy().empty((2, *x.shape[: x.ndim - len(inner)], *[1] * len(inner)), float32)
        mean = both.data.ptr
        inverse = mean + both.nbytes // 2
    epsilon = np.float32(attributes.get("epsilon", 1e-5))
    launch_rows(
        "ox_layer_norm", "device_norms.cu", x.dtype, columns, rows, x, scale, bias, y, mean, inverse,
        epsilon, columns,
    )  # fmt: skip
    return (y, both[0], both[1]) if has_statistics else y


def layer_norm_gradient(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """LayerNormalizationGradient from statistics of float32; of very long rows by cuDNN."""
    g, x, scale, mean, inverse = arrays
    inner, columns = _inner(x, attributes.get("axis", -1))
    if columns >= cudnn_norm.LONG_ROW and (grads := cudnn_norm.layer_norm_gradient(xp, arrays, attributes)) is not None:
        return grads
    if not columns or scale.shape != inner or g.shape != x.shape or not _have_type(arrays[:3]):
        return None
    if not mean.dtype == inverse.dtype == float32:
        return None
    g, x, scale, mean, inverse = (cupy().ascontiguousarray(a) for a in arrays)
    rows = x.size // columns
    parts = _parts(rows)
    result, sums = cupy().empty(x.shape, x.dtype), cupy().empty((2, parts, columns), float32)
    half = sums.data.ptr + sums.nbytes // 2
    to_weights = _backward(
        "ox_layer_norm_backward",
        "ox_device_layer_norm_backward",
        x,
        inner,
        parts,
        sums,
        g,
        x,
        scale,
        mean,
        inverse,
        result,
        sums,
        half,
        rows,
        columns,
    )
    return (result, *to_weights)


def rms_norm(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """RMSNormalization with a scale of the normalized shape; of very long rows by cuDNN."""
    x, scale = arrays
    inner, columns = _inner(x, attributes.get("axis", -1))
    if columns >= cudnn_norm.LONG_ROW and (result := cudnn_norm.rms_norm(xp, arrays, attributes)) is not None:
        return result
    if not columns or scale.shape != inner or not _have_type(arrays) or attributes.get("stash_type", 1) != 1:
        return None
    x, scale = cupy().ascontiguousarray(x), cupy().ascontiguousarray(scale)
    rows, y = x.size // columns, cupy().empty(x.shape, x.dtype)
    epsilon = np.float32(attributes.get("epsilon", 1e-5))
    launch_rows(
        "ox_rms_norm", "device_norms.cu", x.dtype, columns, rows, x, scale, y, 0, epsilon, columns
    )  # fmt: skip
    return y


def rms_norm_gradient(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """RMSNormalizationGradient; of very long rows by cuDNN."""
    g, x, scale = arrays
    inner, columns = _inner(x, attributes.get("axis", -1))
    if columns >= cudnn_norm.LONG_ROW and (grads := cudnn_norm.rms_norm_gradient(xp, arrays, attributes)) is not None:
        return grads
    if not columns or scale.shape != inner or g.shape != x.shape or not _have_type(arrays):
        return None
    g, x, scale = (cupy().ascontiguousarray(a) for a in arrays)
    rows = x.size // columns
    parts = _parts(rows)
    result, sums = cupy().empty(x.shape, x.dtype), cupy().empty((1, parts, columns), float32)
    epsilon = np.float32(attributes.get("epsilon", 1e-5))
    to_weights = _backward(
        "ox_rms_norm_backward",
        "ox_device_rms_norm_backward",
        x,
        inner,
        parts,
        sums,
        g,
        x,
        scale,
        result,
        sums,
        epsilon,
        rows,
        columns,
    )
    return (result, *to_weights)


def _usable(scores: Any, target: Any, weight: Any) -> bool:
    """Whether kernels read these scores [N, C], classes [N] and weights [C]."""
    if scores.ndim != 2 or not scores.size or target.shape != scores.shape[:1]:
        return False
    return _have_type([scores, weight]) and (weight is None or weight.shape == scores.shape[1:])


def _losses(scores: Any, target: Any, weight: Any, ignored: int, spread: bool) -> tuple[Any, Any, Any]:
    """The losses [N], the logarithms, and the spreads, or 0."""
    rows, classes = scores.shape
    losses, logs, *spreads = (cupy().empty(rows, float32) for _ in range(2 + spread))
    last = spreads[0] if spread else 0
    check = device_checks.check(ShapeError, "cross_entropy met a class out of range", 0, classes - 1)
    launch_rows(
        "ox_device_cross_entropy", "device_losses.cu", scores.dtype, classes, rows, scores, target, weight, losses,
        logs, last, ignored, device_checks.address(), check, classes,
    )  # fmt: skip
    device_checks.after_launch()
    return losses, logs, last


def _operands(scores: Any, target: Any, weight: Any) -> tuple[Any, Any, Any]:
    """The three as kernels read them; 0 for no weights."""
    rows = cupy().ascontiguousarray
    return rows(scores), rows(target, np.int64), 0 if weight is None else rows(weight)


def weighted_cross_entropy(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """CrossEntropy and WeightedCrossEntropy."""
    scores, target, weight = [*arrays, None][:3]
    if not _usable(scores, target, weight):
        return None
    count = attributes.get("outputs", 2)
    outputs = _losses(*_operands(scores, target, weight), attributes.get("ignore_index", -100), spread=count == 3)
    return outputs[0] if count == 1 else outputs[:count]


def mean_cross_entropy(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """MeanCrossEntropy and MeanSmoothedCrossEntropy."""
    scores, target, weight = [*arrays, None][:3]
    if not _usable(scores, target, weight):
        return None
    ignored, smoothing = attributes.get("ignore_index", -100), np.float32(attributes.get("smoothing", 0.0))
    scores, target, weight = _operands(scores, target, weight)
    losses, logs, spreads = _losses(scores, target, weight, ignored, spread=bool(smoothing))
    loss, count = cupy().empty((), float32), cupy().empty((), float32)
    blocks = min(-(-losses.size // LOSSES), THREADS)
    sums = cupy().empty((3, blocks), np.float64) if blocks > 1 else 0
    kernel("ox_device_loss_sums", "device_losses.cu", scores.dtype)(
        (blocks,), (MOST_THREADS,),
        (losses.size, losses, spreads, target, weight, sums, loss, count, smoothing, ignored, scores.shape[1]),
    )  # fmt: skip
    if blocks > 1:
        mean = kernel("ox_device_mean_loss", "device_losses.cu", scores.dtype)
        mean((1,), (WARP,), (blocks, sums, int(bool(smoothing)), smoothing, loss, count))
    return loss, logs, count


def cross_entropy_gradient(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """CrossEntropyGradient and SmoothedCrossEntropyGradient, of one gradient for each row or for all."""
    g, scores, target, logs, weight = [*arrays, None][:5]
    smoothing = attributes.get("smoothing", 0.0)
    return _gradient(scores, target, logs, weight, g, g if smoothing else None, smoothing, attributes)


def weighted_cross_entropy_gradient(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """WeightedCrossEntropyGradient."""
    scores, target, logs, weight, g, to_spread = [*arrays, None, None, None][:6]
    return _gradient(scores, target, logs, weight, g, to_spread, None, attributes)


def _gradient(
    scores: Any, target: Any, logs: Any, weight: Any, g: Any, to_spread: Any, smoothing: float | None, attributes: Any
) -> Any:
    """The gradient of the scores from those of the losses and of the spreads, times what `smoothing` makes of them."""
    cotangents = [each for each in (g, to_spread) if each is not None]
    shape = cotangents[0].shape
    if not _usable(scores, target, weight) or shape not in (target.shape, ()) or logs.shape != target.shape:
        return None
    if any(each.dtype != float32 for each in (logs, *cotangents)) or any(each.shape != shape for each in cotangents):
        return None
    scores, target, weight = _operands(scores, target, weight)
    g, to_spread = (0 if each is None else cupy().ascontiguousarray(each) for each in (g, to_spread))
    logs, result = cupy().ascontiguousarray(logs), cupy().empty(scores.shape, scores.dtype)
    keep, rest = (1.0, 1.0) if smoothing is None else (1 - smoothing, smoothing)
    rows, classes = scores.shape
    launch_rows(
        "ox_device_cross_entropy_backward", "device_losses.cu", scores.dtype, classes, rows, scores, target, logs,
        weight, g, to_spread, result, np.float32(keep), np.float32(rest), attributes.get("ignore_index", -100),
        int(bool(shape)), classes,
    )  # fmt: skip
    return result
