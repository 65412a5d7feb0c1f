"""Models that answer for every pixel, or with boxes."""

from __future__ import annotations

import math
from typing import Any

from architecture import Dim, architecture, normal, program

import ox
import ox.nn.functional as F
from ox import nn
from ox.vision.ops import box_convert, deform_conv2d, nms


def conv_bn_relu(cin: int, cout: int, kernel: int = 3, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    padding = dilation * (kernel - 1) // 2
    return nn.Sequential(
        nn.Conv2d(cin, cout, kernel, stride, padding, dilation, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)
    )


class FPN(nn.Module):
    """Lin et al., "Feature Pyramid Networks", 2016; a dict of features."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleList(
            [conv_bn_relu(3, 8, stride=2), conv_bn_relu(8, 16, stride=2), conv_bn_relu(16, 32, stride=2)]
        )
        self.inner = nn.ModuleList([nn.Conv2d(c, 8, 1) for c in (8, 16, 32)])
        self.layer = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        features = []
        for stage in self.body:
            x = stage(x)
            features.append(x)
        last = self.inner[-1](features[-1])
        results = [self.layer[-1](last)]
        for i in range(len(features) - 2, -1, -1):
            lateral = self.inner[i](features[i])
            top_down = F.interpolate(last, size=lateral.shape[-2:], mode="nearest")
            last = lateral + top_down
            results.insert(0, self.layer[i](last))
        results.append(F.max_pool2d(results[-1], kernel_size=1, stride=2, padding=0))
        return {f"p{i}": y for i, y in enumerate(results)}


class YOLO(nn.Module):
    """A detector as Redmon and Farhadi, "YOLOv3", 2018, decodes it: a grid at each of two scales."""

    anchors = ((10.0, 13.0), (33.0, 23.0))

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.no, self.na = classes + 5, len(self.anchors)
        self.backbone = nn.ModuleList([conv_bn_relu(3, 8, stride=4), conv_bn_relu(8, 16, stride=2)])
        self.lateral = nn.Conv2d(24, 16, 1)
        self.detect = nn.ModuleList([nn.Conv2d(c, self.no * self.na, 1) for c in (16, 16)])
        self.register_buffer("anchor_grid", ox.tensor(self.anchors).view(1, -1, 1, 1, 2))

    def decode(self, y: Any, stride: int) -> Any:
        bs, _, ny, nx = y.shape
        y = y.view(bs, self.na, self.no, ny, nx).permute(0, 1, 3, 4, 2).contiguous()
        yv, xv = ox.meshgrid(ox.arange(ny), ox.arange(nx), indexing="ij")
        grid = ox.stack((xv, yv), 2).view((1, 1, ny, nx, 2)).float()
        y = y.sigmoid().clone()  # PyTorch keeps the sigmoid for its gradient
        y[..., 0:2] = (y[..., 0:2] * 2.0 - 0.5 + grid) * stride
        y[..., 2:4] = (y[..., 2:4] * 2) ** 2 * self.anchor_grid
        return y.view(bs, -1, self.no)

    def forward(self, x: Any) -> Any:
        p3 = self.backbone[0](x)
        p4 = self.backbone[1](p3)
        p3 = F.silu(self.lateral(ox.cat([p3, F.interpolate(p4, scale_factor=2.0, mode="nearest")], 1)))
        return ox.cat([self.decode(self.detect[0](p3), 4), self.decode(self.detect[1](p4), 8)], 1)


class SSD(nn.Module):
    """Liu et al., "SSD", 2015: default boxes for each cell, decoded; the boxes of the first image after suppression."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.classes = classes
        self.stem, self.extra = conv_bn_relu(3, 8, stride=4), conv_bn_relu(8, 8, stride=2)
        self.loc = nn.ModuleList([nn.Conv2d(8, 2 * 4, 3, padding=1) for _ in range(2)])
        self.conf = nn.ModuleList([nn.Conv2d(8, 2 * classes, 3, padding=1) for _ in range(2)])

    def priors(self, feature: Any, scale: float) -> Any:
        h, w = feature.shape[-2:]
        cy = (ox.arange(h, dtype=ox.float32) + 0.5) / h
        cx = (ox.arange(w, dtype=ox.float32) + 0.5) / w
        cy, cx = ox.meshgrid(cy, cx, indexing="ij")
        boxes = [
            ox.stack([cx, cy, ox.full_like(cx, scale * math.sqrt(r)), ox.full_like(cx, scale / math.sqrt(r))], -1)
            for r in (1.0, 2.0)
        ]
        return ox.stack(boxes, 2).reshape(-1, 4)

    def forward(self, x: Any) -> Any:
        a = self.stem(x)
        b = self.extra(a)
        loc = ox.cat([f(y).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4) for f, y in zip(self.loc, (a, b))], 1)
        conf = ox.cat(
            [f(y).permute(0, 2, 3, 1).reshape(x.shape[0], -1, self.classes) for f, y in zip(self.conf, (a, b))], 1
        )
        priors = ox.cat([self.priors(a, 0.2), self.priors(b, 0.5)])
        boxes = ox.cat(
            [priors[:, :2] + loc[..., :2] * 0.1 * priors[:, 2:], priors[:, 2:] * ox.exp(loc[..., 2:] * 0.2)], -1
        )
        boxes = box_convert(boxes, "cxcywh", "xyxy").clamp(0, 1)
        scores = F.softmax(conf, -1)
        kept = nms(boxes[0], scores[0, :, 1], 0.5)[:3]
        return boxes, scores, boxes[0][kept]


class DeepLab(nn.Module):
    """Chen et al., "Rethinking Atrous Convolution", 2017: dilated convolutions and pooled features."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(conv_bn_relu(3, 8, stride=2), conv_bn_relu(8, 16, stride=2))
        self.aspp = nn.ModuleList(
            [conv_bn_relu(16, 8, 1), conv_bn_relu(16, 8, dilation=2), conv_bn_relu(16, 8, dilation=4)]
        )
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 8, 1), nn.ReLU())
        self.project, self.classifier = conv_bn_relu(32, 8, 1), nn.Conv2d(8, 5, 1)

    def forward(self, x: Any) -> Any:
        input_shape = x.shape[-2:]
        features = self.backbone(x)
        res = [conv(features) for conv in self.aspp]
        res.append(F.interpolate(self.pool(features), size=features.shape[-2:], mode="bilinear", align_corners=False))
        y = self.classifier(self.project(ox.cat(res, dim=1)))
        return {"out": F.interpolate(y, size=input_shape, mode="bilinear", align_corners=False)}


class SuperResolution(nn.Module):
    """Shi et al., "Real-Time Single Image Super-Resolution", 2016, beside the image enlarged by cubic interpolation."""

    def __init__(self, upscale: int = 3) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 5, padding=2), nn.Conv2d(8, 8, 3, padding=1)
        self.conv3, self.pixel_shuffle = nn.Conv2d(8, upscale**2, 3, padding=1), nn.PixelShuffle(upscale)
        self.upscale, self.act = upscale, nn.PReLU()

    def forward(self, x: Any) -> Any:
        y = self.act(self.conv2(ox.tanh(self.conv1(x))))
        y = self.pixel_shuffle(self.conv3(y))
        return (y + F.interpolate(x, scale_factor=self.upscale, mode="bicubic", align_corners=False)).clamp(0, 1)


class DeformableNet(nn.Module):
    """Zhu et al., "Deformable ConvNets v2", 2018: a convolution whose places are learned."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.offset, self.mask = (
            nn.Conv2d(3, 8, 3, 2, 1),
            nn.Conv2d(8, 18, 3, 1, 1),
            nn.Conv2d(8, 9, 3, 1, 1),
        )
        self.weight, self.bias = nn.Parameter(ox.randn(8, 8, 3, 3) * 0.1), nn.Parameter(ox.zeros(8))
        nn.init.normal_(self.offset.weight, std=0.02)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.stem(x))
        mask = 2 * ox.sigmoid(self.mask(x))
        return F.relu(deform_conv2d(x, self.offset(x), self.weight, self.bias, padding=(1, 1), mask=mask))


class EncoderDecoder(nn.Module):
    """Badrinarayanan et al., "SegNet", 2015: unpooling with the indices of the pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.enc, self.dec = conv_bn_relu(3, 8), conv_bn_relu(8, 8)
        self.pool, self.unpool = nn.MaxPool2d(2, 2, return_indices=True), nn.MaxUnpool2d(2, 2)
        self.head = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x: Any) -> Any:
        y = self.enc(x)
        size = y.size()
        y, indices = self.pool(y)
        y = self.unpool(y, indices, output_size=size)
        return self.head(self.dec(y)).argmax(1)


def _image(batch: int, h: int, w: int, channels: int = 3) -> tuple[Any, ...]:
    return (normal(batch, channels, h, w),)


IMAGE = {"x": ["batch", 3, "h", "w"]}
SIZES = {"batch": (8, 3), "h": (32, 41), "w": (32, 56)}
EIGHTS = {"x": ["batch", 3, Dim("h", min=16, multiple_of=8), Dim("w", min=16, multiple_of=8)]}

MODELS = {
    **{make.__name__: architecture(make, _image, IMAGE, **SIZES) for make in (FPN, DeepLab)},
    "UNet": architecture(lambda: program(ox, "unet").UNet(n_channels=3, n_classes=2), _image, IMAGE, **SIZES),
    "SSD": architecture(SSD, _image, IMAGE, **SIZES, alone=True),
    "DeformableNet": architecture(DeformableNet, _image, IMAGE, **SIZES, lowest=19, alone=True),
    "YOLO": architecture(YOLO, _image, EIGHTS, batch=(8, 3), h=(32, 48), w=(32, 40)),
    "SegNet": architecture(EncoderDecoder, _image, IMAGE, **SIZES),
    "SuperResolution": architecture(
        SuperResolution,
        lambda batch, h, w: _image(batch, h, w, 1),
        {"x": ["batch", 1, "h", "w"]},
        batch=(8, 3),
        h=(12, 9),
        w=(12, 17),
    ),
}
