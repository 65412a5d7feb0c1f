"""Boxes and regions, beside plain loops and what their papers say."""

from __future__ import annotations

import numpy as np
import pytest
from rows import rows

import ox
from ox.vision import ops

BOXES = ox.tensor([[0.0, 0, 4, 4], [1, 1, 5, 5], [10, 10, 12, 14], [0, 0, 4, 3.9]])


def iou(a: list[float], b: list[float]) -> tuple[float, float]:
    """The shared part of the union, and that less what of the enclosing box is empty."""
    w, h = (max(0.0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (0, 1))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    union = sum(areas) - w * h
    around = np.prod([max(a[i + 2], b[i + 2]) - min(a[i], b[i]) for i in (0, 1)])
    return w * h / union, w * h / union - (around - union) / around


def test_overlap() -> None:
    rows = BOXES.tolist()
    expected = np.array([[iou(a, b) for b in rows[:2]] for a in rows])
    np.testing.assert_allclose(ops.box_iou(BOXES, BOXES[:2]).numpy(), expected[..., 0], rtol=1e-6)
    np.testing.assert_allclose(ops.generalized_box_iou(BOXES, BOXES[:2]).numpy(), expected[..., 1], rtol=1e-5)
    assert ops.box_area(BOXES).tolist() == pytest.approx([16, 16, 8, 15.6])


@rows("form", ["xyxy", "xywh", "cxcywh"])
@rows("to", ["xyxy", "xywh", "cxcywh"])
def test_forms(form: str, to: str) -> None:
    there = ops.box_convert(BOXES, "xyxy", form)
    again = ops.box_convert(ops.box_convert(there, form, to), to, "xyxy")
    np.testing.assert_allclose(again.numpy(), BOXES.numpy(), rtol=1e-6)
    assert ops.box_convert(BOXES[2:3], "xyxy", "cxcywh").tolist() == [[11, 12, 2, 4]]
    assert ops.box_convert(BOXES[2:3], "xyxy", "xywh").tolist() == [[10, 10, 2, 4]]


def test_suppression() -> None:
    scores = ox.tensor([0.7, 0.6, 0.9, 0.8])
    assert ops.nms(BOXES, scores, 0.5).tolist() == [2, 3, 1]
    assert ops.nms(BOXES, scores, 0.1).tolist() == [2, 3]
    assert ops.batched_nms(BOXES, scores, ox.tensor([0, 0, 0, 1]), 0.1).tolist() == [2, 3, 0]
    assert ops.nms(BOXES[:0], scores[:0], 0.5).shape == ops.batched_nms(BOXES[:0], scores[:0], scores[:0], 0.5).shape
    assert ops.nms(BOXES, scores, 0.5).dtype == ox.int64


def test_edges() -> None:
    boxes = ox.tensor([[-1.0, 2, 30, 9], [3, 3, 3.5, 8]])
    assert ops.clip_boxes_to_image(boxes, (8, 20)).tolist() == [[0, 2, 20, 8], [3, 3, 3.5, 8]]
    assert ops.remove_small_boxes(boxes, 1).tolist() == [0]


def test_regions() -> None:
    plane = ox.arange(36.0).reshape(1, 1, 6, 6)
    rois = ox.tensor([[0.0, 1, 1, 3, 3]])
    # four samples a bin, the mean of a plane: its value at the bin's centre
    np.testing.assert_allclose(
        ops.roi_align(plane, rois, 2, sampling_ratio=2).numpy().ravel(), [10.5, 11.5, 16.5, 17.5]
    )
    listed = ops.RoIAlign(2, 1.0, 2, aligned=True)(plane, [rois[:, 1:]])
    np.testing.assert_allclose(listed.numpy().ravel(), [7, 8, 13, 14])


def test_moved_taps() -> None:
    """By a whole pixel, a tap reads the pixel beside it; without moves, it is a convolution, and a mask multiplies."""
    x, layer = ox.randn(2, 4, 7, 6), ops.DeformConv2d(4, 6, 3, stride=2, padding=1, groups=2)
    still = ox.zeros(2, 2 * 2 * 9, 4, 3)
    plain = ox.nn.functional.conv2d(x, layer.weight, layer.bias, 2, 1, groups=2)
    np.testing.assert_allclose(layer(x, still).detach().numpy(), plain.detach().numpy(), atol=1e-5)
    weight = ox.ones(1, 4, 1, 1)
    moved = ops.deform_conv2d(x, ox.tensor([1.0, -1.0]).reshape(1, 2, 1, 1).expand(2, 2, 7, 6), weight)
    expected = ox.nn.functional.pad(x.sum(1, keepdim=True), (1, -1, -1, 1))
    np.testing.assert_allclose(moved.numpy(), expected.numpy(), atol=1e-5)
    halved = ops.deform_conv2d(x, ox.zeros(2, 2, 7, 6), weight, mask=ox.full((2, 1, 7, 6), 0.5))
    np.testing.assert_allclose(halved.numpy(), x.sum(1, keepdim=True).numpy() / 2, atol=1e-5)
    with pytest.raises(ox.errors.ShapeError, match="channels of deform_conv2d"):
        ops.deform_conv2d(x, ox.zeros(2, 3, 7, 6), weight)
    with pytest.raises(ox.errors.ShapeError, match="4 dimensions"):
        ops.deform_conv2d(x[0], ox.zeros(2, 2, 7, 6), weight)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_focal_loss(reduction: str) -> None:
    x, t = np.array([0.3, -2.0, 1.0]), np.array([1.0, 0.0, 0.0])
    p = 1 / (1 + np.exp(-x))
    right = np.where(t == 1, p, 1 - p)
    expected = -np.where(t == 1, 0.25, 0.75) * (1 - right) ** 2 * np.log(right)
    got = ops.sigmoid_focal_loss(ox.tensor(x), ox.tensor(t), reduction=reduction)
    np.testing.assert_allclose(got.numpy(), expected if reduction == "none" else getattr(expected, reduction)())
    plain = ops.sigmoid_focal_loss(ox.tensor(x), ox.tensor(t), alpha=-1, gamma=0)
    np.testing.assert_allclose(plain.numpy(), -np.log(right))


def test_stochastic_depth() -> None:
    ox.manual_seed(0)
    x = ox.ones(400, 2)
    rows = ops.StochasticDepth(0.25, "row")(x)
    assert bool((rows[:, 0] == rows[:, 1]).all()) and np.unique(rows.numpy()).tolist() == pytest.approx([0, 4 / 3])
    assert abs(rows.mean().item() - 1) < 0.1
    assert len(set(ops.stochastic_depth(x, 0.5, "batch").numpy().ravel())) == 1
    assert ops.StochasticDepth(0.5, "row").eval()(x) is x
    assert ops.stochastic_depth(x, 1.0, "row").sum().item() == 0


def test_frozen_batch_norm() -> None:
    plain, frozen = ox.nn.BatchNorm2d(3), ops.FrozenBatchNorm2d(3)
    plain(ox.randn(4, 3, 2, 2) * 3 + 1)
    frozen.load_state_dict(plain.state_dict())
    x = ox.randn(2, 3, 4, 4)
    np.testing.assert_allclose(frozen.train()(x).numpy(), plain.eval()(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert not list(frozen.parameters())


def test_refused() -> None:
    for wrong in (
        lambda: ops.nms(BOXES, ox.ones(3), 0.5), lambda: ops.box_convert(BOXES, "xyxy", "yxyx"),
        lambda: ops.sigmoid_focal_loss(BOXES, BOXES, reduction="max"), lambda: ops.stochastic_depth(BOXES, 2, "row"),
        lambda: ops.stochastic_depth(BOXES, 0.5, "rows"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"do not fit|no such|a probability"):
            wrong()


def test_older_paths() -> None:
    from ox.vision.ops.boxes import nms
    from ox.vision.ops.misc import FrozenBatchNorm2d

    assert nms is ops.nms and FrozenBatchNorm2d is ops.FrozenBatchNorm2d
