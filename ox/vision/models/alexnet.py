"""AlexNet as in "One weird trick" (Krizhevsky, https://arxiv.org/abs/1404.5997): `torchvision.models.alexnet`."""

from __future__ import annotations

from typing import Any

from ox import nn
from ox.tensors.tensor import Tensor
from ox.vision.models.weights import refuse_downloads


class AlexNet(nn.Module):
    """Five convolutions, three linear layers; images [n, 3, h, w], 63×63 or more. `torchvision.models.AlexNet`."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2),
            nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2),
            nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2),
        )  # fmt: skip
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(inplace=True),
            nn.Dropout(dropout), nn.Linear(4096, 4096), nn.ReLU(inplace=True),
            nn.Linear(4096, num_classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def alexnet(*, weights: Any = None, **options: Any) -> AlexNet:
    """61,100,840 parameters at 1,000 classes. `torchvision.models.alexnet`.

    Raises:
        ArgumentError: `weights` or `pretrained` ask for a download.
    """
    refuse_downloads("alexnet", weights, options)
    return AlexNet(**options)
