"""MobileNetV2 (Sandler and others, https://arxiv.org/abs/1801.04381): `torchvision.models.mobilenet_v2`."""

from __future__ import annotations

from typing import Any

from ox import nn
from ox.tensors.tensor import Tensor
from ox.vision.models.weights import refuse_downloads

# expansion, channels, blocks and first stride of each group: table 2 of the paper
_GROUPS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class InvertedResidual(nn.Module):
    """Expansion by a 1×1 convolution, a depthwise 3×3 convolution, projection; added to the input if shapes agree."""

    def __init__(self, inp: int, oup: int, stride: int, expand_ratio: int) -> None:
        super().__init__()
        self.stride, self.use_res_connect = stride, stride == 1 and inp == oup
        hidden = inp * expand_ratio
        layers: list[nn.Module] = [] if expand_ratio == 1 else [_unit(inp, hidden, 1)]
        layers += [_unit(hidden, hidden, 3, stride, hidden), nn.Conv2d(hidden, oup, 1, bias=False), nn.BatchNorm2d(oup)]
        self.conv = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """Seventeen inverted residuals over images [n, 3, h, w]. `torchvision.models.MobileNetV2`.

    Args:
        width_mult: all numbers of channels times this, rounded to a multiple of `round_nearest`.
    """

    def __init__(
        self, num_classes: int = 1000, width_mult: float = 1.0, round_nearest: int = 8, dropout: float = 0.2
    ) -> None:
        super().__init__()
        inside = _channels(32 * width_mult, round_nearest)
        self.last_channel = _channels(1280 * max(1.0, width_mult), round_nearest)
        layers: list[nn.Module] = [_unit(3, inside, 3, 2)]
        for expansion, channels, blocks, stride in _GROUPS:
            outside = _channels(channels * width_mult, round_nearest)
            for i in range(blocks):
                layers.append(InvertedResidual(inside, outside, stride if i == 0 else 1, expansion))
                inside = outside
        self.features = nn.Sequential(*layers, _unit(inside, self.last_channel, 1))
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(self.last_channel, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def mobilenet_v2(*, weights: Any = None, **options: Any) -> MobileNetV2:
    """3,504,872 parameters at 1,000 classes. `torchvision.models.mobilenet_v2`.

    Raises:
        ArgumentError: `weights` or `pretrained` ask for a download.
    """
    refuse_downloads("mobilenet_v2", weights, options)
    return MobileNetV2(**options)


def _unit(inside: int, outside: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inside, outside, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outside), nn.ReLU6(inplace=True))


def _channels(wanted: float, step: int) -> int:
    """The nearest multiple of `step`, not less than 90 % of what is wanted."""
    nearest = max(step, int(wanted + step / 2) // step * step)
    return nearest if nearest >= 0.9 * wanted else nearest + step
