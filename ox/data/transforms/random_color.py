"""Transforms that by chance change colours. Names and meanings are torchvision's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox import random
from ox.data.transforms import functional as F
from ox.data.transforms.base import Sometimes, Transform
from ox.data.transforms.color import limits
from ox.data.transforms.rng import between, draw
from ox.errors import ArgumentError

ADJUST = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)


class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue, in a random order.
    `torchvision.transforms.ColorJitter`.

    Args:
        brightness, contrast, saturation: (least, most) factor, or a number: how far it may be from 1; 0 for never.
        hue: (least, most) turn of the wheel within -0.5 to 0.5, or a number for both directions.
    """

    draws = 8

    def __init__(
        self,
        brightness: Any = 0,
        contrast: Any = 0,
        saturation: Any = 0,
        hue: Any = 0,
        generator: random.Generator | None = None,
    ) -> None:
        self.brightness = self._limits(brightness, "brightness")
        self.contrast = self._limits(contrast, "contrast")
        self.saturation = self._limits(saturation, "saturation")
        self.hue = None if hue == 0 else limits(hue, "hue", 0.0, -0.5, 0.5)
        self.generator = generator

    @staticmethod
    def _limits(value: Any, name: str) -> Sequence[float] | None:
        return None if isinstance(value, int | float) and value == 0 else limits(value, name)

    @staticmethod
    def get_params(
        brightness: Sequence[float] | None,
        contrast: Sequence[float] | None,
        saturation: Sequence[float] | None,
        hue: Sequence[float] | None,
        generator: random.Generator | None = None,
    ) -> tuple[list[int], float | None, float | None, float | None, float | None]:
        """The order (0 brightness, 1 contrast, 2 saturation, 3 hue), and the four factors."""
        order, factors = _jitter((brightness, contrast, saturation, hue), draw(ColorJitter.draws, generator))
        return order, factors[0], factors[1], factors[2], factors[3]

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        order, factors = _jitter((self.brightness, self.contrast, self.saturation, self.hue), numbers)
        for i in order:
            factor = factors[i]
            if factor is not None:
                image = ADJUST[i](image, factor)
        return image


def _jitter(ranges: Sequence[Sequence[float] | None], numbers: Sequence[float]) -> tuple[list[int], list[float | None]]:
    order = np.argsort(numbers[:4], kind="stable").tolist()
    return order, [pair and between(n, *pair) for pair, n in zip(ranges, numbers[4:], strict=True)]  # type: ignore[misc]


class RandomGrayscale(Sometimes):
    """Grey, with probability `p`; the channels stay as many. `torchvision.transforms.RandomGrayscale`."""

    def __init__(self, p: float = 0.1, generator: random.Generator | None = None) -> None:
        super().__init__(p, generator)

    def transform(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.rgb_to_grayscale(image, F.get_dimensions(image)[0])


class GaussianBlur(Transform):
    """Blurred by a Gaussian of a deviation from a range. `torchvision.transforms.GaussianBlur`.

    Args:
        kernel_size: odd, in pixels; an int or [x, y].
        sigma: (least, most) deviation in pixels, or a number.
    """

    draws = 1

    def __init__(self, kernel_size: Any, sigma: Any = (0.1, 2.0), generator: random.Generator | None = None) -> None:
        self.kernel_size, self.generator = kernel_size, generator
        self.sigma = [float(sigma)] * 2 if isinstance(sigma, int | float) else [float(s) for s in sigma]
        if len(self.sigma) != 2 or not 0 < self.sigma[0] <= self.sigma[1]:
            raise ArgumentError("sigma is above 0: a number, or (least, most)", got=repr(sigma))

    @staticmethod
    def get_params(sigma_min: float, sigma_max: float, generator: random.Generator | None = None) -> float:
        """A deviation, for `functional.gaussian_blur`."""
        return between(draw(1, generator)[0], sigma_min, sigma_max)

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.gaussian_blur(image, self.kernel_size, between(numbers[0], *self.sigma))


class RandomInvert(Sometimes):
    """White becomes black, with probability `p`. `torchvision.transforms.RandomInvert`."""

    def transform(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.invert(image)


class RandomPosterize(Sometimes):
    """Only the first `bits` of each value, with probability `p`. `torchvision.transforms.RandomPosterize`."""

    def __init__(self, bits: int, p: float = 0.5, generator: random.Generator | None = None) -> None:
        super().__init__(p, generator)
        self.bits = bits

    def transform(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.posterize(image, self.bits)


class RandomSolarize(Sometimes):
    """Values from `threshold` on inverted, with probability `p`. `torchvision.transforms.RandomSolarize`."""

    def __init__(self, threshold: float, p: float = 0.5, generator: random.Generator | None = None) -> None:
        super().__init__(p, generator)
        self.threshold = threshold

    def transform(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.solarize(image, self.threshold)


class RandomAdjustSharpness(Sometimes):
    """Sharper or smoother, with probability `p`. `torchvision.transforms.RandomAdjustSharpness`."""

    def __init__(self, sharpness_factor: float, p: float = 0.5, generator: random.Generator | None = None) -> None:
        super().__init__(p, generator)
        self.sharpness_factor = sharpness_factor

    def transform(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.adjust_sharpness(image, self.sharpness_factor)


class RandomAutocontrast(Sometimes):
    """Each channel from black to white, with probability `p`. `torchvision.transforms.RandomAutocontrast`."""

    def transform(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.autocontrast(image)


class RandomEqualize(Sometimes):
    """Each channel's values about as frequent, with probability `p`. `torchvision.transforms.RandomEqualize`."""

    def transform(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.equalize(image)
