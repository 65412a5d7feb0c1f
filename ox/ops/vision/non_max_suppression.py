"""Boxes in images: NonMaxSuppression."""

from typing import Any

import numpy as np

from ox.core.operator import operator
from ox.core.types import XP, Float32, HostFloat32, HostInt64, Int64
from ox.dtypes import int64
from ox.errors import ShapeError

__all__ = ["NonMaxSuppression"]


@operator("selected_indices", kind="image", amp="widest", batching="each", data_dependent_shape=True)
def NonMaxSuppression(
    xp: XP,
    boxes: Float32,
    scores: Float32,
    max_output_boxes_per_class: HostInt64 = None,
    iou_threshold: HostFloat32 = None,
    score_threshold: HostFloat32 = None,
    *,
    center_point_box: int = 0,
) -> Int64:
    """The boxes to keep, [how many, (batch, class, box)]: in each class the best first, and none that shares more than
    `iou_threshold` of the joint area with a better one that is kept.

    Args:
        boxes: [batch, boxes, 4], two opposite corners y, x, y, x, or with `center_point_box` centre and size.
        scores: [batch, classes, boxes].

    ONNX NonMaxSuppression.
    """
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape[2] != 4 or boxes.shape[:2] != scores.shape[::2]:
        raise ShapeError(
            f"NonMaxSuppression of boxes {list(boxes.shape)} with scores {list(scores.shape)}",
            expected="[batch, boxes, 4] and [batch, classes, boxes]",
        )
    most = 0 if max_output_boxes_per_class is None else int(max_output_boxes_per_class.reshape(-1)[0])
    overlap = 0.0 if iou_threshold is None else float(iou_threshold.reshape(-1)[0])
    least = None if score_threshold is None else float(score_threshold.reshape(-1)[0])
    found: list[tuple[int, int, int]] = []
    # a walk from box to box, which is for the host
    corners = [_corners(b, center_point_box) for b in _on_host(boxes)]
    for batch, classes in enumerate(_on_host(scores)):
        for number, own in enumerate(classes):
            found += [(batch, number, box) for box in _selected(corners[batch], own, most, overlap, least)]
    return xp.asarray(np.array(found, int64).reshape(-1, 3))


def _on_host(array: Any) -> Any:
    return array if isinstance(array, np.ndarray) else array.get()


def _corners(boxes: Any, center_point_box: int) -> Any:
    """Lower and upper corners, [4, boxes]."""
    a, b, c, d = boxes.T
    if center_point_box:
        return np.stack([a - c / 2, b - d / 2, a + c / 2, b + d / 2])
    return np.stack([np.minimum(a, c), np.minimum(b, d), np.maximum(a, c), np.maximum(b, d)])


def _selected(corners: Any, scores: Any, most: int, overlap: float, least: float | None) -> list[int]:
    order = np.argsort(-scores, kind="stable")
    if least is not None:
        order = order[scores[order] > least]
    areas = (corners[2] - corners[0]) * (corners[3] - corners[1])
    kept: list[int] = []
    while len(order) and len(kept) < most:
        best, order = order[0], order[1:]
        kept.append(int(best))
        low = np.maximum(corners[:2, best, None], corners[:2, order])
        high = np.minimum(corners[2:, best, None], corners[2:, order])
        shared = np.prod(np.maximum(high - low, 0), axis=0)
        joint = areas[best] + areas[order] - shared
        order = order[~((joint > 0) & (shared > overlap * joint))]
    return kept
