"""ResNet (He, Zhang, Ren and Sun, https://arxiv.org/abs/1512.03385): `torchvision.models.resnet`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ox import nn
from ox.tensors.tensor import Tensor
from ox.vision.models.weights import refuse_downloads

Norm = Callable[[int], nn.Module]


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and the way around them."""

    expansion = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = norm(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = norm(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        around = x if self.downsample is None else self.downsample(x)
        inside = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(inside + around)


class Bottleneck(nn.Module):
    """A 1×1, a 3×3 (which has the stride) and a 1×1 convolution to four times the channels, and the way around them."""

    expansion = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        self.conv1 = nn.Conv2d(inplanes, planes, 1, bias=False)
        self.bn1 = norm(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn2 = norm(planes)
        self.conv3 = nn.Conv2d(planes, planes * self.expansion, 1, bias=False)
        self.bn3 = norm(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        around = x if self.downsample is None else self.downsample(x)
        inside = self.relu(self.bn1(self.conv1(x)))
        inside = self.relu(self.bn2(self.conv2(inside)))
        return self.relu(self.bn3(self.conv3(inside)) + around)


class ResNet(nn.Module):
    """A stem, four stages, a mean over the image [n, 3, h, w], a linear layer. `torchvision.models.ResNet`.

    Args:
        block: BasicBlock, Bottleneck or a class with their arguments and an `expansion`.
        layers: how many blocks each stage has.
        zero_init_residual: each block begins as one that does nothing: its last norm has weight 0.
        norm_layer: makes a norm of a number of channels; None for BatchNorm2d.
    """

    def __init__(
        self,
        block: type[Any],
        layers: list[int],
        num_classes: int = 1000,
        zero_init_residual: bool = False,
        norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        self._norm_layer: Norm = norm_layer or nn.BatchNorm2d
        self.inplanes = 64
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = self._norm_layer(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], stride=2)
        self.layer3 = self._make_layer(block, 256, layers[2], stride=2)
        self.layer4 = self._make_layer(block, 512, layers[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif zero_init_residual and isinstance(module, (BasicBlock, Bottleneck)):
                last: Any = module.bn3 if isinstance(module, Bottleneck) else module.bn2
                nn.init.zeros_(last.weight)

    def _make_layer(self, block: type[Any], planes: int, blocks: int, stride: int = 1) -> nn.Sequential:
        outside = planes * block.expansion
        downsample = None
        if stride != 1 or self.inplanes != outside:
            downsample = nn.Sequential(
                nn.Conv2d(self.inplanes, outside, 1, stride=stride, bias=False), self._norm_layer(outside)
            )
        first = block(self.inplanes, planes, stride, downsample, norm_layer=self._norm_layer)
        self.inplanes = outside
        more = (block(outside, planes, norm_layer=self._norm_layer) for _ in range(blocks - 1))
        return nn.Sequential(first, *more)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def resnet18(*, weights: Any = None, **options: Any) -> ResNet:
    """11,689,512 parameters at 1,000 classes. `torchvision.models.resnet18`.

    Raises:
        ArgumentError: `weights` or `pretrained` ask for a download.
    """
    refuse_downloads("resnet18", weights, options)
    return ResNet(BasicBlock, [2, 2, 2, 2], **options)


def resnet34(*, weights: Any = None, **options: Any) -> ResNet:
    """21,797,672 parameters at 1,000 classes. `torchvision.models.resnet34`.

    Raises:
        ArgumentError: `weights` or `pretrained` ask for a download.
    """
    refuse_downloads("resnet34", weights, options)
    return ResNet(BasicBlock, [3, 4, 6, 3], **options)


def resnet50(*, weights: Any = None, **options: Any) -> ResNet:
    """25,557,032 parameters at 1,000 classes. `torchvision.models.resnet50`.

    Raises:
        ArgumentError: `weights` or `pretrained` ask for a download.
    """
    refuse_downloads("resnet50", weights, options)
    return ResNet(Bottleneck, [3, 4, 6, 3], **options)


def resnet101(*, weights: Any = None, **options: Any) -> ResNet:
    """44,549,160 parameters at 1,000 classes. `torchvision.models.resnet101`.

    Raises:
        ArgumentError: `weights` or `pretrained` ask for a download.
    """
    refuse_downloads("resnet101", weights, options)
    return ResNet(Bottleneck, [3, 4, 23, 3], **options)


def resnet152(*, weights: Any = None, **options: Any) -> ResNet:
    """60,192,808 parameters at 1,000 classes. `torchvision.models.resnet152`.

    Raises:
        ArgumentError: `weights` or `pretrained` ask for a download.
    """
    refuse_downloads("resnet152", weights, options)
    return ResNet(Bottleneck, [3, 8, 36, 3], **options)
