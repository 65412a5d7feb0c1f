"""ResNet: networks that grew deep because every block may also do nothing.

A network of twenty plain convolutions learns worse than one of ten: the gradient has to find its way through all of
them. He, Zhang, Ren and Sun (https://arxiv.org/abs/1512.03385) let each block only *add* to what goes past it. A block
of zeros then changes nothing, twenty blocks are never worse than ten, and the gradient runs home along the sums.

This page is the network alone, to import: `from ox_models.resnet import resnet18`. Two recipes train it,
`ox train resnet18` on small images and `ox train resnet18_photos` on 224×224 crops of photographs. The names of the
parameters are torchvision's, so its weights load: `resnet18(1000).load_state_dict(ox.load("resnet18.safetensors"))`.
"""

import ox
from ox import nn


class BasicBlock(nn.Module):
    """Two convolutions that see a neighbourhood of 5×5, and the way around them."""

    def __init__(self, inside: int, outside: int, stride: int = 1) -> None:
        super().__init__()
        # No bias: the normalization behind each convolution would subtract it again.
        self.conv1 = nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        # Where the block halves the image or has more channels, the way around must do so, too: a 1×1 convolution.
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
    """A stem, four stages, a mean over the image, a linear layer.

    Args:
        blocks: how many of them in each stage; (2, 2, 2, 2) makes 18 layers, (3, 4, 6, 3) makes 34.
        num_classes: scores that come out.
        small: a stem for images of 32×32 or so. The stem of the paper takes 224×224 down to 56×56 before the first
            block; of 32×32 it would leave 8×8.
        width: channels of the first stage; each stage has twice those of the one before, on a quarter of the pixels.
        channels: of the image; 3 for red, green, blue.
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
            if isinstance(module, nn.Conv2d):  # ReLU throws half away; this start keeps the size of what is left
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, image: ox.Tensor) -> ox.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(image))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        scores: ox.Tensor = self.fc(self.avgpool(x).flatten(1))
        return scores


def stage(inside: int, outside: int, blocks: int, stride: int) -> nn.Sequential:
    """Blocks in a row; the first one halves the image and makes the channels."""
    return nn.Sequential(
        BasicBlock(inside, outside, stride), *(BasicBlock(outside, outside) for _ in range(blocks - 1))
    )


def resnet18(num_classes: int = 1000, small: bool = False, width: int = 64, channels: int = 3) -> ResNet:
    """11.7 million parameters at 1,000 classes. `torchvision.models.resnet18`; `small` for 32×32."""
    return ResNet((2, 2, 2, 2), num_classes, small, width, channels)
