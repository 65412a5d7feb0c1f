"""Convolutional networks that classify images."""

from __future__ import annotations

from typing import Any

from architecture import architecture, normal, program

import ox
import ox.nn.functional as F
from ox import nn


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Any) -> Any:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """He et al., "Deep Residual Learning for Image Recognition", 2015."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(Bottleneck(8, 4, 16), Bottleneck(16, 4, 16))
        self.layer2 = nn.Sequential(Bottleneck(16, 8, 32, 2), Bottleneck(32, 8, 32))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(32, 10)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Any) -> Any:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer2(self.layer1(x))
        return self.fc(ox.flatten(self.avgpool(x), 1))


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, reduced: int, gate: type[nn.Module]) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Sequential(
            nn.Linear(channels, reduced), nn.ReLU(inplace=True), nn.Linear(reduced, channels), gate()
        )

    def forward(self, x: Any) -> Any:
        b, c, _, _ = x.size()
        y = self.fc(self.pool(x).view(b, c)).view(b, c, 1, 1)
        return x * y.expand_as(x)


class InvertedResidual(nn.Module):
    def __init__(
        self, cin: int, hidden: int, cout: int, stride: int, act: type[nn.Module], gate: type[nn.Module]
    ) -> None:
        super().__init__()
        self.use_res_connect = stride == 1 and cin == cout
        self.conv = nn.Sequential(
            nn.Conv2d(cin, hidden, 1, bias=False), nn.BatchNorm2d(hidden), act(),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden), act(),
            SqueezeExcite(hidden, hidden // 4, gate),
            nn.Conv2d(hidden, cout, 1, bias=False), nn.BatchNorm2d(cout),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        if self.use_res_connect:
            return x + self.conv(x)
        return self.conv(x)


class MobileNet(nn.Module):
    """Howard et al., "Searching for MobileNetV3", 2019."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.blocks = nn.Sequential(
            InvertedResidual(8, 16, 8, 1, nn.ReLU, nn.Hardsigmoid),
            InvertedResidual(8, 24, 16, 2, nn.Hardswish, nn.Hardsigmoid),
        )
        self.classifier = nn.Sequential(nn.Linear(16, 32), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(32, 10))

    def forward(self, x: Any) -> Any:
        return self.classifier(self.blocks(self.stem(x)).mean([2, 3]))


class StochasticDepth(nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Any) -> Any:
        if not self.training or self.p == 0:
            return x
        keep = 1 - self.p
        mask = ox.rand((x.shape[0],) + (1,) * (x.ndim - 1)) < keep
        return x / keep * mask


class EfficientNet(nn.Module):
    """Tan and Le, "EfficientNet", 2019: padding as TensorFlow's "same"."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8, momentum=0.01, eps=1e-3)
        self.block = InvertedResidual(8, 32, 8, 1, nn.SiLU, nn.Sigmoid)
        self.drop_path, self.head = StochasticDepth(0.1), nn.Linear(8, 10)

    def pad_same(self, x: Any, k: int, s: int) -> Any:
        ih, iw = x.shape[-2:]
        ph = max((-(ih // -s) - 1) * s + k - ih, 0)
        pw = max((-(iw // -s) - 1) * s + k - iw, 0)
        return F.pad(x, (pw // 2, pw - pw // 2, ph // 2, ph - ph // 2))

    def forward(self, x: Any) -> Any:
        x = F.silu(self.bn(self.stem(self.pad_same(x, 3, 2))))
        x = x + self.drop_path(self.block(x))
        return self.head(F.dropout(x.mean((-2, -1)), 0.2, self.training))


class Inception(nn.Module):
    """Szegedy et al., "Going Deeper with Convolutions", 2014: branches side by side, and a second head for training."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.MaxPool2d(3, stride=2, ceil_mode=True), nn.LocalResponseNorm(5)
        )
        self.branch1 = nn.Conv2d(8, 4, 1)
        self.branch2 = nn.Sequential(nn.Conv2d(8, 4, 1), nn.ReLU(True), nn.Conv2d(4, 8, 3, padding=1))
        self.branch3 = nn.Sequential(nn.Conv2d(8, 2, (1, 7), padding=(0, 3)), nn.Conv2d(2, 4, (7, 1), padding=(3, 0)))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), nn.Conv2d(8, 4, 1))
        self.aux, self.fc = nn.Linear(8, 10), nn.Linear(20, 10)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        aux = self.aux(x.mean((2, 3))) if self.training else None
        out = ox.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], dim=1)
        out = F.avg_pool2d(F.relu(out), kernel_size=3, stride=1, padding=1, count_include_pad=False)
        logits = self.fc(F.adaptive_max_pool2d(out, 1).squeeze(-1).squeeze(-1))
        return logits if aux is None else (logits, aux)


def _image(batch: int = 4, h: int = 32, w: int = 32) -> tuple[Any, ...]:
    return (normal(batch, 3, h, w),)


IMAGE = {"x": ["batch", 3, "h", "w"]}
SIZES = {"batch": (8, 3), "h": (32, 41), "w": (32, 56)}

MODELS = {
    **{
        make.__name__: architecture(make, _image, IMAGE, **SIZES)
        for make in (ResNet, MobileNet, EfficientNet, Inception)
    },
    "DenseNet": architecture(lambda: program(ox, "densenet").DenseNet(), _image, IMAGE, **SIZES),
    "ConvNeXt": architecture(
        lambda: program(ox, "convnext").ConvNeXt(num_classes=10, depths=[1, 1], dims=[8, 16]), _image, IMAGE, **SIZES
    ),
}
