"""Boxes of images, brought to one size: RoiAlign MaxRoiPool."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from ox.core.constants import axes_tensor, constant, number, positions, size_like
from ox.core.operator import OPS, operator
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import T1, T2, XP, Array, T
from ox.core.upcast import in_float32
from ox.dtypes import FLOATS, int64, onnx_type
from ox.errors import ArgumentError, BoundsError, ShapeError
from ox.ops.index.gather import add_along

__all__ = ["MaxRoiPool", "RoiAlign"]


def _fits(name: str, X: Array, rois: Array, columns: int, images: Array) -> None:
    if X.ndim != 4 or rois.ndim != 2 or rois.shape[1] != columns or images.shape != rois.shape[:1]:
        raise ShapeError(
            f"{name} cannot take boxes {list(rois.shape)} of {list(X.shape)}",
            expected=f"X [N, C, H, W], rois [boxes, {columns}] and an image for each box",
        )
    if images.size and (int(images.min()) < 0 or int(images.max()) >= X.shape[0]):
        raise BoundsError(f"{name} has a box in an image that is not there", expected=f"0 to {X.shape[0] - 1}")


@operator("Y", kind="image", T1=FLOATS, T2=(int64,), amp="float32", batching="each")
@in_float32
def RoiAlign(
    xp: XP,
    X: T1,
    rois: T1,
    batch_indices: T2,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> T1:
    """Boxes rois [boxes, (x1, y1, x2, y2)] of the images X [N, C, H, W] that batch_indices names, as
    [boxes, C, output_height, output_width]: in each bin the mean or the largest of values sampled between places.
    `sampling_ratio` 0 takes as many samples as the bin has places. ONNX RoiAlign, `torchvision.ops.roi_align`."""
    _fits("RoiAlign", X, rois, 4, batch_indices)
    half = coordinate_transformation_mode == "half_pixel"
    if mode not in ("avg", "max") or not (half or coordinate_transformation_mode == "output_half_pixel"):
        raise ArgumentError(
            f"RoiAlign has no mode {mode!r} with {coordinate_transformation_mode!r}",
            expected="avg or max; half_pixel or output_half_pixel",
        )
    bins = (output_height, output_width)
    Y = xp.zeros((len(rois), X.shape[1], *bins), X.dtype)
    offset = 0.5 if half else 0.0
    for r, (box, image) in enumerate(zip(rois.tolist(), batch_indices.tolist(), strict=True)):
        ends = [edge * spatial_scale - offset for edge in box]
        lines = []
        for first, last, count, size in (
            (ends[1], ends[3], bins[0], X.shape[2]),
            (ends[0], ends[2], bins[1], X.shape[3]),
        ):
            length = last - first if half else max(last - first, 1.0)
            samples = sampling_ratio if sampling_ratio > 0 else int(np.ceil(length / count))
            steps = (np.arange(count)[:, None] + (np.arange(samples) + 0.5) / max(samples, 1)).ravel()
            lines.append((samples, *_line(first + steps * (length / count), size)))
        if lines[0][0] > 0 and lines[1][0] > 0:
            Y[r] = _bins(xp, X[image], lines, bins, mode)
    return Y


def _line(at: Any, size: int) -> tuple[Any, Any, Any, Any]:
    """Along one axis: the places on both sides of each sample, and their weights; none outside of the image."""
    inside = (at >= -1) & (at <= size)
    at = at.clip(0, size - 1)
    low = np.floor(at).astype(np.int64)
    part = at - low
    return low, np.minimum(low + 1, size - 1), np.where(inside, 1 - part, 0), np.where(inside, part, 0)


def _bins(xp: XP, image: Array, lines: list[Any], bins: tuple[int, int], mode: str) -> Array:
    """The bins of one box of one image [C, H, W]."""
    (high, top, bottom, over, under), (wide, left, right, before, behind) = (
        (line[0], *(xp.asarray(a) for a in line[1:])) for line in lines
    )
    corners = [
        image[:, rows[:, None], columns] * (down[:, None] * across).astype(image.dtype)
        for rows, down in ((top, over), (bottom, under))
        for columns, across in ((left, before), (right, behind))
    ]
    shape = (len(image), bins[0], high, bins[1], wide)
    if mode == "max":  # of the four weighted corners, as the standard has it
        return xp.stack(corners).max(axis=0).reshape(shape).max(axis=(2, 4))
    return sum(corners[1:], corners[0]).reshape(shape).mean(axis=(2, 4))


@RoiAlign.gradient("X", when=lambda attributes: attributes["mode"] == "avg")
def _(
    g: TensorBase,
    X_shape: tuple[int, ...],
    rois: TensorBase,
    batch_indices: TensorBase,
    coordinate_transformation_mode: str,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
) -> TensorBase:
    # a mean over samples is a matrix along each axis: [boxes, bins, places]
    half = coordinate_transformation_mode == "half_pixel"
    ends = OPS["Split"](rois.detach() * spatial_scale - (0.5 if half else 0.0), axis=1, num_outputs=4, outputs=4)
    down = _bin_weights(ends[1], ends[3], output_height, X_shape[2], sampling_ratio, half)
    across = _bin_weights(ends[0], ends[2], output_width, X_shape[3], sampling_ratio, half)
    down, across = (OPS["Unsqueeze"](m, axes_tensor([1])) for m in (down, across))
    boxes = OPS["MatMul"](OPS["MatMul"](OPS["Transpose"](down, perm=[0, 1, 3, 2]), g), across)
    return add_along(boxes, batch_indices, 0, X_shape[0])


def _bin_weights(
    first: TensorType, last: TensorBase, count: int, size: int, sampling_ratio: int, half: bool
) -> TensorType:
    """How much each place counts in the mean of each bin, [boxes, count, size]; the ends are [boxes, 1]."""
    length = last - first
    if not half:
        length = OPS["Max"](length, constant(1, length))
    kind = onnx_type(first.dtype)
    if sampling_ratio > 0:
        samples, most = constant(sampling_ratio, first), number(sampling_ratio, int64)
    else:
        samples = OPS["Max"](OPS["Ceil"](length / count), constant(0, first))
        most = OPS["Cast"](OPS["ReduceMax"](samples, keepdims=0), to=onnx_type(int64))
        samples = OPS["Unsqueeze"](samples, axes_tensor([2]))
    each = OPS["Cast"](OPS["Range"](number(0, int64), most, number(1, int64)), to=kind)
    counted = OPS["Cast"](OPS["Less"](each, samples), to=kind)  # boxes that take fewer samples
    many = OPS["Max"](samples, constant(1, first))
    bins = OPS["Unsqueeze"](OPS["Cast"](positions(count), to=kind), axes_tensor([1]))
    first, length = (OPS["Unsqueeze"](t, axes_tensor([2])) for t in (first, length))
    at = first + (bins + (each + 0.5) / many) * (length / count)
    top = size_like(size, at)
    met = OPS["And"](OPS["GreaterOrEqual"](at, constant(-1, at)), OPS["LessOrEqual"](at, top))
    weight = OPS["Cast"](met, to=kind) * counted / many
    at = OPS["Unsqueeze"](OPS["Clip"](at, constant(0, at), top - 1), axes_tensor([3]))
    near = 1 - OPS["Abs"](at - OPS["Cast"](positions(size), to=kind))
    near = OPS["Max"](near, constant(0, near)) * OPS["Unsqueeze"](weight, axes_tensor([3]))
    return OPS["ReduceSum"](near, axes_tensor([2]), keepdims=0)


@operator("Y", kind="image", T=FLOATS, amp="widest", batching="each", nondifferentiable="rois")
@in_float32
def MaxRoiPool(xp: XP, X: T, rois: T, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0) -> T:
    """The largest values in the bins of boxes rois [boxes, (image, x1, y1, x2, y2)] of X [N, C, H, W]:
    [boxes, C, *pooled_shape], 0 for a bin of no places. ONNX MaxRoiPool (R. Girshick, "Fast R-CNN", 2015)."""
    images = rois[:, 0].astype(np.int64) if rois.ndim == 2 and rois.shape[1] == 5 else rois
    _fits("MaxRoiPool", X, rois, 5, images)
    Y = xp.zeros((len(rois), X.shape[1], *pooled_shape), X.dtype)
    for r, box in enumerate(rois.tolist()):
        image = X[int(box[0])]
        edges = np.floor(np.array(box[1:]) * spatial_scale + 0.5)
        rows = _edges(edges[1], edges[3], pooled_shape[0], X.shape[2])
        columns = _edges(edges[0], edges[2], pooled_shape[1], X.shape[3])
        for (i, (top, bottom)), (j, (left, right)) in product(enumerate(rows), enumerate(columns)):
            if top < bottom and left < right:
                Y[r, :, i, j] = image[:, top:bottom, left:right].max(axis=(1, 2))
    return Y


def _edges(first: float, last: float, count: int, size: int) -> list[tuple[int, int]]:
    length = max(last - first + 1, 1.0)
    steps = np.arange(count + 1) * (length / count)
    begin = (np.floor(steps[:-1]) + first).clip(0, size).astype(int)
    return list(zip(begin.tolist(), (np.ceil(steps[1:]) + first).clip(0, size).astype(int).tolist(), strict=True))


@MaxRoiPool.gradient("X")
def _(
    g: TensorBase, X: TensorBase, rois: TensorBase, Y: TensorBase, pooled_shape: Sequence[int], spatial_scale: float
) -> TensorBase:
    parts = OPS["Split"](rois.detach(), axis=1, num_outputs=5, outputs=5)
    images = OPS["Squeeze"](OPS["Cast"](parts[0], to=onnx_type(int64)), axes_tensor([1]))
    edges = [OPS["Floor"](part * spatial_scale + 0.5) for part in parts[1:]]
    rows = _pixels_in_bin(edges[1], edges[3], pooled_shape[0], X.shape[2])
    columns = _pixels_in_bin(edges[0], edges[2], pooled_shape[1], X.shape[3])
    boxes = OPS["Gather"](X.detach(), images)
    total: Any = None
    for i, j in product(range(pooled_shape[0]), range(pooled_shape[1])):
        at = [axes_tensor([i]), axes_tensor([i + 1]), axes_tensor([2])]
        across = [axes_tensor([j]), axes_tensor([j + 1]), axes_tensor([3])]
        share, best = (OPS["Slice"](OPS["Slice"](t, *at), *across) for t in (g, Y.detach()))
        here = OPS["And"](_bin(rows, i, 3), _bin(columns, j, 2))
        won = OPS["Cast"](OPS["And"](OPS["Equal"](boxes, best), here), to=onnx_type(g.dtype))
        ties = OPS["ReduceSum"](won, axes_tensor([2, 3]))
        part = won * (share / OPS["Max"](ties, constant(1, ties)))
        total = part if total is None else total + part
    return add_along(total, images, 0, X.shape[0])


def _pixels_in_bin(first: TensorType, last: TensorBase, count: int, size: int) -> TensorType:
    """Which places lie in which bin, bool [boxes, count, size]; the ends are [boxes, 1]."""
    kind = onnx_type(first.dtype)
    length = OPS["Max"](last - first + 1, constant(1, first)) / count
    bins = OPS["Cast"](positions(count), to=kind)
    begin, end = (OPS["Floor"](bins * length) + first, OPS["Ceil"]((bins + 1) * length) + first)
    begin, end = (OPS["Unsqueeze"](t, axes_tensor([2])) for t in (begin, end))
    place = OPS["Cast"](positions(size), to=kind)
    return OPS["And"](OPS["GreaterOrEqual"](place, begin), OPS["Less"](place, end))


def _bin(met: TensorType, i: int, axis: int) -> TensorType:
    """One bin's places as [boxes, 1, H, 1] or, with axis 2, [boxes, 1, 1, W]."""
    one = OPS["Slice"](met, axes_tensor([i]), axes_tensor([i + 1]), axes_tensor([1]))
    return OPS["Unsqueeze"](one, axes_tensor([axis]))
