"""ResNet: deep networks with residual connections.

A network of twenty plain convolutions trains worse than one of ten, because the gradient must pass through all of
them. In a ResNet (He, Zhang, Ren and Sun, https://arxiv.org/abs/1512.03385) each block *adds* its output to its input.
A block with zero weights changes nothing, so more blocks do no harm, and the gradient flows directly through the sums.

This module contains only the network: `from ox_models.resnet import resnet18`. Two recipes train it,
`ox train resnet18` on small images and `ox train resnet18_photos` on 224×224 crops of photographs. The parameters have
torchvision's names, so its weights load: `resnet18(1000).load_state_dict(ox.load("resnet18.safetensors"))`.
"""

import ox
from ox import nn


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a residual connection."""

    def __init__(self, inside: int, outside: int, stride: int = 1) -> None:
        super().__init__()
        # No bias: the normalization after each convolution would subtract it again.
        self.conv1 = nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        # If the block changes the size or the channels, so must the residual connection: a 1×1 convolution.
        self.downsample: nn.Module | None = None
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride=stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        around = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        result: ox.Tensor = self.relu(x + around)
        return result


class ResNet(nn.Module):
    """A stem, four stages, global average pooling and a linear layer.

    Args:
        blocks: number of blocks in each stage; (2, 2, 2, 2) has 18 layers, (3, 4, 6, 3) has 34.
        num_classes: number of scores.
        small: a stem for images of about 32×32. The stem of the paper reduces 224×224 to 56×56 before the first block;
            it would reduce 32×32 to 8×8.
        width: channels of the first stage; each stage has twice the channels and a quarter of the pixels of the last.
        channels: channels of the image; 3 for red, green, blue.
    """

    def __init__(
        self,
        blocks: tuple[int, int, int, int] = (2, 2, 2, 2),
        num_classes: int = 1000,
        small: bool = False,
        width: int = 64,
        channels: int = 3,
    ) -> None:
        super().__init__()
        self.conv1 = (
            nn.Conv2d(channels, width, 3, padding=1, bias=False)
            if small
            else nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
        )
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = stage(width, width, blocks[0], stride=1)
        self.layer2 = stage(width, 2 * width, blocks[1], stride=2)
        self.layer3 = stage(2 * width, 4 * width, blocks[2], stride=2)
        self.layer4 = stage(4 * width, 8 * width, blocks[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # He initialization: keeps the variance through ReLU layers
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, image: ox.Tensor) -> ox.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(image))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        scores: ox.Tensor = self.fc(self.avgpool(x).flatten(1))
        return scores


def stage(inside: int, outside: int, blocks: int, stride: int) -> nn.Sequential:
    """A sequence of blocks; the first one changes the size and the channels."""
    return nn.Sequential(
        BasicBlock(inside, outside, stride), *(BasicBlock(outside, outside) for _ in range(blocks - 1))
    )


def resnet18(num_classes: int = 1000, small: bool = False, width: int = 64, channels: int = 3) -> ResNet:
    """11.7 million parameters at 1,000 classes. `torchvision.models.resnet18`; `small` for 32×32."""
    return ResNet((2, 2, 2, 2), num_classes, small, width, channels)
