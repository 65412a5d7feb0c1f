"""Boxes and regions of images: `torchvision.ops`. A box is (x1, y1, x2, y2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox import ops
from ox.autograd import no_grad
from ox.dtypes import float32, int64
from ox.errors import ArgumentError, ShapeError
from ox.functions import cat, maximum, minimum, stack
from ox.functions.creation import empty, ones, tensor, zeros
from ox.nn import functional as F
from ox.nn.base.module import Module
from ox.nn.functional.arguments import several
from ox.nn.layers.conv import Conv2d
from ox.tensors.tensor import Tensor

__all__ = [
    "DeformConv2d",
    "FrozenBatchNorm2d",
    "RoIAlign",
    "StochasticDepth",
    "batched_nms",
    "box_area",
    "box_convert",
    "box_iou",
    "clip_boxes_to_image",
    "deform_conv2d",
    "generalized_box_iou",
    "nms",
    "remove_small_boxes",
    "roi_align",
    "sigmoid_focal_loss",
    "stochastic_depth",
]

__path__: list[str] = []  # older paths lie below


def box_area(boxes: Tensor) -> Tensor:
    """Areas [n] of boxes [n, 4]. `torchvision.ops.box_area`."""
    sizes = boxes[..., 2:] - boxes[..., :2]
    return sizes[..., 0] * sizes[..., 1]


def _overlap(boxes1: Tensor, boxes2: Tensor) -> tuple[Tensor, Tensor]:
    """The areas [n, m] that two sets of boxes share, and those of their unions."""
    first, second = boxes1[:, None], boxes2[None]
    sizes = (minimum(first[..., 2:], second[..., 2:]) - maximum(first[..., :2], second[..., :2])).clamp(min=0)
    shared = sizes[..., 0] * sizes[..., 1]
    return shared, box_area(boxes1)[:, None] + box_area(boxes2)[None] - shared


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """The shared part [n, m] of the unions of boxes [n, 4] and [m, 4]. `torchvision.ops.box_iou`."""
    shared, union = _overlap(boxes1, boxes2)
    return shared / union


def generalized_box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """`box_iou` less the part of the enclosing box that neither fills (Rezatofighi and others, 2019,
    https://arxiv.org/abs/1902.09630). `torchvision.ops.generalized_box_iou`."""
    shared, union = _overlap(boxes1, boxes2)
    first, second = boxes1[:, None], boxes2[None]
    sizes = maximum(first[..., 2:], second[..., 2:]) - minimum(first[..., :2], second[..., :2])
    around = sizes[..., 0] * sizes[..., 1]
    return shared / union - (around - union) / around


def box_convert(boxes: Tensor, in_fmt: str, out_fmt: str) -> Tensor:
    """Boxes [..., 4] in another form. `torchvision.ops.box_convert`.

    Args:
        in_fmt, out_fmt: ``xyxy`` (two corners), ``xywh`` (a corner and the sizes) or ``cxcywh`` (the centre and the
            sizes).

    Raises:
        ArgumentError: another form.
    """
    forms = ("xyxy", "xywh", "cxcywh")
    if in_fmt not in forms or out_fmt not in forms:
        raise ArgumentError("boxes have no such form", expected=", ".join(forms), got=f"{in_fmt}, {out_fmt}")
    if in_fmt == out_fmt:
        return boxes.clone()
    a, b = boxes[..., :2], boxes[..., 2:]
    low = a - b / 2 if in_fmt == "cxcywh" else a
    high = b if in_fmt == "xyxy" else low + b
    if out_fmt == "xyxy":
        return cat([low, high], -1)
    return cat([(low + high) / 2 if out_fmt == "cxcywh" else low, high - low], -1)


def clip_boxes_to_image(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes [..., 4], cut at the edges of an image (height, width). `torchvision.ops.clip_boxes_to_image`."""
    height, width = size
    x, y = boxes[..., 0::2].clamp(0, width), boxes[..., 1::2].clamp(0, height)
    return stack([x, y], -1).reshape(boxes.shape)


def remove_small_boxes(boxes: Tensor, min_size: float) -> Tensor:
    """The numbers of the boxes of which both sizes are `min_size` or more. `torchvision.ops.remove_small_boxes`."""
    sizes = boxes[:, 2:] - boxes[:, :2]
    return (sizes >= min_size).all(1).nonzero().squeeze(1)


@no_grad()
def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The numbers of the boxes to keep, the best first: none that shares more than `iou_threshold` of the union with a
    better one that is kept. `torchvision.ops.nms`, ONNX NonMaxSuppression.

    Raises:
        ShapeError: not boxes [n, 4] and scores [n].
    """
    if boxes.ndim != 2 or boxes.shape[1] != 4 or tuple(scores.shape) != (boxes.shape[0],):
        raise ShapeError(
            "boxes and scores do not fit", expected="[n, 4] and [n]",
            got=f"{list(boxes.shape)} and {list(scores.shape)}",
        )  # fmt: skip
    most, threshold = tensor([boxes.shape[0]], dtype=int64), tensor([iou_threshold], dtype=float32)
    kept = ops.NonMaxSuppression(boxes[None].to(float32), scores[None, None].to(float32), most, threshold)
    return kept[:, 2]


@no_grad()
def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """`nms` among the boxes of each class (or image) that `idxs` [n] names. `torchvision.ops.batched_nms`."""
    if not boxes.shape[0]:
        return zeros(0, dtype=int64, device=boxes.device)
    apart = idxs.to(boxes.dtype) * (boxes.max() + 1)  # so far that no two classes meet
    return nms(boxes + apart[:, None], scores, iou_threshold)


def roi_align(
    input: Tensor, boxes: Tensor | Sequence[Tensor], output_size: int | tuple[int, int], spatial_scale: float = 1.0,
    sampling_ratio: int = -1, aligned: bool = False,
) -> Tensor:  # fmt: skip
    """The images within boxes, as [boxes, c, *output_size] (He and others, Mask R-CNN, 2017). ONNX RoiAlign.
    `torchvision.ops.roi_align`.

    Args:
        input: [n, c, h, w].
        boxes: [boxes, (image, x1, y1, x2, y2)], or for each image its [boxes, 4]; no gradient flows to them.
        output_size: height and width, or one int for both.
        spatial_scale: by which coordinates are multiplied.
        sampling_ratio: samples along a bin's side; 0 or less takes as many as the bin has pixels.
        aligned: pixels are points at their centres.
    """
    if isinstance(boxes, Tensor):
        images, corners = boxes[:, 0].to(int64), boxes[:, 1:]
    else:
        counts = [ones(len(own), dtype=int64, device=input.device) * i for i, own in enumerate(boxes)]
        images, corners = cat(counts), cat(list(boxes))
    height, width = (output_size, output_size) if isinstance(output_size, int) else output_size
    return ops.RoiAlign(
        input, corners.to(input.dtype).detach(), images, output_height=height, output_width=width,
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
        sampling_ratio=max(sampling_ratio, 0), spatial_scale=spatial_scale,
    )  # fmt: skip


class RoIAlign(Module):
    """`roi_align` as a module. `torchvision.ops.RoIAlign`."""

    def __init__(
        self, output_size: int | tuple[int, int], spatial_scale: float, sampling_ratio: int, aligned: bool = False
    ) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale
        self.sampling_ratio, self.aligned = sampling_ratio, aligned

    def forward(self, input: Tensor, rois: Tensor | Sequence[Tensor]) -> Tensor:
        return roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned)


def deform_conv2d(
    input: Tensor, offset: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0, dilation: int | tuple[int, int] = 1, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """A convolution [n, out, h', w'] whose taps are moved (Dai and others, 2017; with a mask, Zhu and others, 2018).
    ONNX DeformConv, opset 19. `torchvision.ops.deform_conv2d`.

    Args:
        input: [n, c, h, w].
        offset: [n, 2 · offset_groups · kh · kw, h', w'], by how much each tap at each place is moved down and right.
        weight: [out, c / groups, kh, kw].
        mask: [n, offset_groups · kh · kw, h', w'], by what each tap is multiplied.

    Raises:
        ShapeError: sizes that do not fit.
    """
    if input.ndim != 4 or weight.ndim != 4 or offset.ndim != 4:
        raise ShapeError(
            "deform_conv2d takes images, kernels and offsets of 4 dimensions",
            got=f"{list(input.shape)}, {list(weight.shape)}, {list(offset.shape)}",
        )
    kernel, channels = weight.static_shape[2:], input.static_shape[1]
    moves, own = offset.static_shape[1], weight.static_shape[1]
    if channels % own or moves % (2 * kernel[0] * kernel[1]) or not moves:
        raise ShapeError(
            "the channels of deform_conv2d do not fit",
            expected=f"a multiple of {own} for weights {list(weight.static_shape)}, "
            f"and of {2 * kernel[0] * kernel[1]} in the offset",
            got=f"{channels} and {moves}",
        )
    pads = several(padding, 2, "padding", 0)
    return ops.DeformConv(
        input, weight, offset, bias, mask, group=channels // own,
        offset_group=moves // (2 * kernel[0] * kernel[1]), kernel_shape=list(kernel), pads=[*pads, *pads],
        strides=list(several(stride, 2, "stride", 1)), dilations=list(several(dilation, 2, "dilation", 1)),
    )  # fmt: skip


class DeformConv2d(Module):
    """`deform_conv2d` with a weight and a bias of its own. `torchvision.ops.DeformConv2d`."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1, padding: int | tuple[int, int] = 0, dilation: int | tuple[int, int] = 1,
        groups: int = 1, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.stride, self.padding, self.dilation = stride, padding, dilation
        plain = Conv2d(in_channels, out_channels, kernel_size, groups=groups, bias=bias)
        self.weight, self.bias = plain.weight, plain.bias

    def forward(self, input: Tensor, offset: Tensor, mask: Tensor | None = None) -> Tensor:
        return deform_conv2d(input, offset, self.weight, self.bias, self.stride, self.padding, self.dilation, mask)


def sigmoid_focal_loss(
    inputs: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2, reduction: str = "none"
) -> Tensor:
    """Cross entropy in which easy examples weigh less (Lin and others, 2017, https://arxiv.org/abs/1708.02002).
    `torchvision.ops.sigmoid_focal_loss`.

    Args:
        inputs: logits.
        targets: 0 or 1, of the same shape.
        alpha: the weight of positives, and 1 - alpha of negatives; below 0 for none.
        gamma: how much less easy ones weigh.
        reduction: ``none``, ``mean`` or ``sum``.

    Raises:
        ArgumentError: another reduction.
    """
    if reduction not in ("none", "mean", "sum"):
        raise ArgumentError("no such reduction", expected="none, mean or sum", got=reduction)
    p = inputs.sigmoid()
    missed = 1 - (p * targets + (1 - p) * (1 - targets))
    loss = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none") * missed**gamma
    if alpha >= 0:
        loss = (alpha * targets + (1 - alpha) * (1 - targets)) * loss
    return loss if reduction == "none" else getattr(loss, reduction)()


def stochastic_depth(input: Tensor, p: float, mode: str, training: bool = True) -> Tensor:
    """0 with the chance `p`, for the whole batch or for each row, and scaled to the same mean otherwise (Huang and
    others, 2016, https://arxiv.org/abs/1603.09382). `torchvision.ops.stochastic_depth`.

    Raises:
        ArgumentError: `p` is no probability, or `mode` is neither ``batch`` nor ``row``.
    """
    if not 0 <= p <= 1 or mode not in ("batch", "row"):
        raise ArgumentError("a probability, and batch or row", expected="0 to 1, batch or row", got=f"{p}, {mode}")
    if not training or p == 0:
        return input
    rows = [input.shape[0] if mode == "row" else 1, *[1] * (input.ndim - 1)]
    noise = empty(*rows, dtype=input.dtype, device=input.device).bernoulli_(1 - p)
    return input * (noise / (1 - p) if p < 1 else noise)


class StochasticDepth(Module):
    """`stochastic_depth` as a module. `torchvision.ops.StochasticDepth`."""

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, input: Tensor) -> Tensor:
        return stochastic_depth(input, self.p, self.mode, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}, mode={self.mode}"


class FrozenBatchNorm2d(Module):
    """Batch normalization [n, c, h, w] by statistics and factors that stay. `torchvision.ops.FrozenBatchNorm2d`."""

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", ones(num_features))
        self.register_buffer("bias", zeros(num_features))
        self.register_buffer("running_mean", zeros(num_features))
        self.register_buffer("running_var", ones(num_features))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        state_dict.pop(f"{prefix}num_batches_tracked", None)  # which BatchNorm2d counts
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        offset = self.bias - self.running_mean * scale
        return x * scale.reshape(1, -1, 1, 1) + offset.reshape(1, -1, 1, 1)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}"
