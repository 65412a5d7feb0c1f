"""An eager training step of a ResNet-18 for 32×32 images (batch 32, SGD with momentum), beside PyTorch eager."""

from __future__ import annotations

import statistics
import time
from typing import Any

import sides

BATCH, SIZE, CLASSES = 32, 32, 10
WIDTHS = (64, 128, 256, 512)


def resnet18(nn: Any, functional: Any) -> Any:
    """The same page for both libraries: a 3×3 convolution, four stages of two blocks, a mean and a linear layer."""

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, inside: int, outside: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
            self.norm1, self.norm2 = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
            self.shortcut = nn.Identity()
            if stride > 1 or inside != outside:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
                )

        def forward(self, x: Any) -> Any:
            y = functional.relu(self.norm1(self.conv1(x)))
            return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))

    layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    inside = 64
    for i, outside in enumerate(WIDTHS):
        layers += [Block(inside, outside, 1 if i == 0 else 2), Block(outside, outside, 1)]
        inside = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, CLASSES))


def _figures(lib: Any) -> dict[str, float]:
    lib.manual_seed(0)
    model = resnet18(lib.nn, lib.nn.functional)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    criterion = lib.nn.CrossEntropyLoss()
    x, targets = lib.randn(BATCH, 3, SIZE, SIZE), lib.randint(0, CLASSES, (BATCH,))
    forward, whole = [], []
    for _ in range(8):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = criterion(model(x), targets)
        middle = time.perf_counter()
        loss.backward()
        optimizer.step()
        forward.append(middle - start)
        whole.append(time.perf_counter() - start)
    return {
        "ResNet-18 step, ms": statistics.median(whole[2:]) * 1e3,
        "of it forward, ms": statistics.median(forward[2:]) * 1e3,
    }


def run_ox() -> dict[str, float]:
    import ox

    return _figures(ox)


def run_torch() -> dict[str, float]:
    import torch

    return _figures(torch)


if __name__ == "__main__":
    sides.main({"ox": run_ox, "torch": run_torch}, unit="milliseconds, smaller is better")
