"""VGG (Simonyan and Zisserman, https://arxiv.org/abs/1409.1556): `torchvision.models.vgg`."""

from __future__ import annotations

from typing import Any

from ox import nn
from ox.tensors.tensor import Tensor
from ox.vision.models.weights import refuse_downloads

# 3×3 convolutions of 64, 128, 256, 512 and 512 channels: how many before each halving (table 1 of the paper)
_BLOCKS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


class VGG(nn.Module):
    """`features`, and three linear layers over images [n, 3, h, w] of 32×32 or more. `torchvision.models.VGG`."""

    def __init__(
        self, features: nn.Module, num_classes: int = 1000, init_weights: bool = True, dropout: float = 0.5
    ) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout(dropout),
            nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(dropout),
            nn.Linear(4096, num_classes),
        )  # fmt: skip
        for module in self.modules() if init_weights else ():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
            if isinstance(module, (nn.Conv2d, nn.Linear)) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def _vgg(layers: int, batch_norm: bool, weights: Any, options: dict[str, Any]) -> VGG:
    refuse_downloads(f"vgg{layers}{'_bn' * batch_norm}", weights, options)
    features: list[nn.Module] = []
    inside = 3
    for block, count in enumerate(_BLOCKS[layers]):
        outside = min(64 << block, 512)
        for _ in range(count):
            norm = [nn.BatchNorm2d(outside)] if batch_norm else []
            features += [nn.Conv2d(inside, outside, 3, padding=1), *norm, nn.ReLU(inplace=True)]
            inside = outside
        features.append(nn.MaxPool2d(2, stride=2))
    return VGG(nn.Sequential(*features), **options)


def vgg11(*, weights: Any = None, **options: Any) -> VGG:
    """132,863,336 parameters at 1,000 classes. `torchvision.models.vgg11`.

    Raises:
        ArgumentError: `weights` or `pretrained` ask for a download.
    """
    return _vgg(11, False, weights, options)


def vgg11_bn(*, weights: Any = None, **options: Any) -> VGG:
    """132,868,840 parameters at 1,000 classes. `torchvision.models.vgg11_bn`.

    Raises:
        ArgumentError: `weights` or `pretrained` ask for a download.
    """
    return _vgg(11, True, weights, options)


def vgg13(*, weights: Any = None, **options: Any) -> VGG:
    """133,047,848 parameters at 1,000 classes. `torchvision.models.vgg13`.

    Raises:
        ArgumentError: `weights` or `pretrained` ask for a download.
    """
    return _vgg(13, False, weights, options)


def vgg13_bn(*, weights: Any = None, **options: Any) -> VGG:
    """133,053,736 parameters at 1,000 classes. `torchvision.models.vgg13_bn`.

    Raises:
        ArgumentError: `weights` or `pretrained` ask for a download.
    """
    return _vgg(13, True, weights, options)


def vgg16(*, weights: Any = None, **options: Any) -> VGG:
    """138,357,544 parameters at 1,000 classes. `torchvision.models.vgg16`.

    Raises:
        ArgumentError: `weights` or `pretrained` ask for a download.
    """
    return _vgg(16, False, weights, options)


def vgg16_bn(*, weights: Any = None, **options: Any) -> VGG:
    """138,365,992 parameters at 1,000 classes. `torchvision.models.vgg16_bn`.

    Raises:
        ArgumentError: `weights` or `pretrained` ask for a download.
    """
    return _vgg(16, True, weights, options)


def vgg19(*, weights: Any = None, **options: Any) -> VGG:
    """143,667,240 parameters at 1,000 classes. `torchvision.models.vgg19`.

    Raises:
        ArgumentError: `weights` or `pretrained` ask for a download.
    """
    return _vgg(19, False, weights, options)


def vgg19_bn(*, weights: Any = None, **options: Any) -> VGG:
    """143,678,248 parameters at 1,000 classes. `torchvision.models.vgg19_bn`.

    Raises:
        ArgumentError: `weights` or `pretrained` ask for a download.
    """
    return _vgg(19, True, weights, options)
