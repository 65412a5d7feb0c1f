"""Batches whose images are mixed with each other, and their classes in the same proportion."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox import random
from ox.core.operator import make_tensor
from ox.data.transforms.rng import draw, stream, whole
from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.tensors.tensor import Tensor


class _Mix(ABC):
    """The base: draws how much of each image stays, mixes each with its neighbour in the batch."""

    def __init__(
        self, *, alpha: float = 1.0, num_classes: int | None = None, generator: random.Generator | None = None
    ) -> None:
        if not alpha > 0 or math.isinf(alpha):
            raise ArgumentError(f"{type(self).__name__} takes an alpha above 0", got=repr(alpha))
        self.alpha, self.num_classes, self.generator = float(alpha), num_classes, generator

    def __call__(self, *batch: Any, generator: random.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Images and classes as they come from a loader, as two arguments or as one pair.

        Args:
            generator: instead of the transform's own.

        Returns:
            images: float [n, c, h, w], mixed. classes: float32 [n, num_classes], how much of each class; as
            `ox.nn.CrossEntropyLoss` takes them.

        Raises:
            ShapeError, DTypeError: no batch of float images and classes. ArgumentError: classes without their count,
                or beyond it.
        """
        name = type(self).__name__
        given = batch[0] if len(batch) == 1 else batch
        if not isinstance(given, list | tuple) or len(given) != 2 or not all(isinstance(t, Tensor) for t in given):
            raise ArgumentError(f"{name} takes a batch: images and classes, two tensors")
        images, classes = given[0].detach().array, given[1].detach().array
        if images.ndim != 4 or images.dtype.kind != "f":
            raise DTypeError(f"{name} takes float images [n, c, h, w]", got=f"{images.dtype} {list(images.shape)}")
        soft = self._soft(classes, len(images))
        numbers = draw(4, generator or self.generator)
        keep = float(stream(numbers[2:]).beta(self.alpha, self.alpha))
        mixed, keep = self._mixed(images, np.roll(images, 1, 0), keep, numbers)
        weight = np.float32(keep)
        return make_tensor(mixed), make_tensor(soft * weight + np.roll(soft, 1, 0) * (1 - weight))

    def _soft(self, classes: NDArray[Any], count: int) -> NDArray[np.float32]:
        name = type(self).__name__
        if classes.ndim == 2 and classes.dtype.kind == "f" and len(classes) == count:
            return classes.astype(np.float32)
        if classes.shape != (count,) or classes.dtype.kind not in "iu":
            raise ShapeError(
                f"{name} takes a class for each image",
                expected=f"int64 [{count}], or float [{count}, classes]",
                got=f"{classes.dtype} {list(classes.shape)}",
            )
        if self.num_classes is None:
            raise ArgumentError(f"{name} needs num_classes to mix classes", hint=f"{name}(num_classes=10)")
        if count and not (classes.min() >= 0 and classes.max() < self.num_classes):
            raise ArgumentError(
                f"{name} got a class that is none",
                expected=f"0 to {self.num_classes - 1}",
                got=f"{int(classes.min())} to {int(classes.max())}",
            )
        return np.eye(self.num_classes, dtype=np.float32)[classes]

    @abstractmethod
    def _mixed(
        self, images: NDArray[Any], others: NDArray[Any], keep: float, numbers: list[float]
    ) -> tuple[NDArray[Any], float]:
        """The batch mixed with its partners, and how much of each image is its own."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(alpha={self.alpha}, num_classes={self.num_classes})"


class MixUp(_Mix):
    """Each image is blended with another of its batch, by a Beta(alpha, alpha) number (Zhang and others, 2017,
    https://arxiv.org/abs/1710.09412). `torchvision.transforms.v2.MixUp`.

    Args:
        alpha: of the distribution; small ones mix little.
        num_classes: how many classes there are, where they come as numbers.
    """

    def _mixed(
        self, images: NDArray[Any], others: NDArray[Any], keep: float, numbers: list[float]
    ) -> tuple[NDArray[Any], float]:
        weight = images.dtype.type(keep)
        return images * weight + others * (1 - weight), keep


class CutMix(_Mix):
    """A rectangle of each image comes from another of its batch, with an area by a Beta(alpha, alpha) number (Yun and
    others, 2019, https://arxiv.org/abs/1905.04899). `torchvision.transforms.v2.CutMix`; all else as for `MixUp`."""

    def _mixed(
        self, images: NDArray[Any], others: NDArray[Any], keep: float, numbers: list[float]
    ) -> tuple[NDArray[Any], float]:
        rows, columns = images.shape[2:]
        part = math.sqrt(1 - keep) / 2
        y, x = whole(numbers[0], rows), whole(numbers[1], columns)
        down, across = int(part * rows), int(part * columns)
        top, bottom, left, right = max(y - down, 0), min(y + down, rows), max(x - across, 0), min(x + across, columns)
        mixed = images.copy()
        mixed[..., top:bottom, left:right] = others[..., top:bottom, left:right]
        return mixed, 1 - (bottom - top) * (right - left) / (rows * columns)
