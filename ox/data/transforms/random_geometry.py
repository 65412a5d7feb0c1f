"""Transforms that by chance cut, flip, turn and erase. Names and meanings are torchvision's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox import random
from ox.data.transforms import functional as F
from ox.data.transforms.base import Sometimes, Transform, as_array
from ox.data.transforms.color import limits
from ox.data.transforms.images import opened, size_of
from ox.data.transforms.resizing import BILINEAR, NEAREST, mode_of, pair
from ox.data.transforms.rng import between, draw, stream, whole
from ox.errors import ArgumentError, ShapeError

TRIES = 10  # for a rectangle that fits


class _Flip(Sometimes):
    def apply_batch(self, images: Any, numbers: NDArray[np.float64]) -> Any:
        pixels, close = opened(images, type(self).__name__)
        made, chosen = np.array(pixels), numbers[:, 0] < self.p
        made[chosen] = self.transform(pixels, ())[chosen]
        return close(made)


class RandomHorizontalFlip(_Flip):
    """Left and right changed, with probability `p`. `torchvision.transforms.RandomHorizontalFlip`."""

    def transform(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.hflip(image)


class RandomVerticalFlip(_Flip):
    """Top and bottom changed, with probability `p`. `torchvision.transforms.RandomVerticalFlip`."""

    def transform(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.vflip(image)


class RandomCrop(Transform):
    """A part of a given size from anywhere. `torchvision.transforms.RandomCrop`.

    Args:
        size: (h, w), or an int for both.
        padding, fill, padding_mode: a frame to put around first; see `functional.pad`.
        pad_if_needed: widen an image that is too small.

    Raises:
        ShapeError: an image smaller than the part.
    """

    draws = 2

    def __init__(
        self,
        size: Any,
        padding: Any = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
        generator: random.Generator | None = None,
    ) -> None:
        self.size, self.padding, self.pad_if_needed = pair(size, "RandomCrop"), padding, pad_if_needed
        self.fill, self.padding_mode, self.generator = fill, padding_mode, generator

    @staticmethod
    def get_params(
        img: Any, output_size: tuple[int, int], generator: random.Generator | None = None
    ) -> tuple[int, int, int, int]:
        """Top, left, height and width of a part, for `functional.crop` of an image and of what belongs to it."""
        return _part(*size_of(img, "RandomCrop"), output_size, draw(2, generator))

    def _framed(self, image: Any) -> Any:
        if self.padding is not None:
            image = F.pad(image, self.padding, self.fill, self.padding_mode)
        rows, columns = size_of(image, "RandomCrop")
        down, across = max(self.size[0] - rows, 0), max(self.size[1] - columns, 0)
        if self.pad_if_needed and (down or across):
            image = F.pad(image, [across, down], self.fill, self.padding_mode)
        return image

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        image = self._framed(image)
        return F.crop(image, *_part(*size_of(image, "RandomCrop"), self.size, numbers))

    def apply_batch(self, images: Any, numbers: NDArray[np.float64]) -> Any:
        pixels, close = opened(self._framed(images), "RandomCrop")
        rows, columns = pixels.shape[1:3]
        height, width = _part(rows, columns, self.size, (0.0, 0.0))[2:]
        top = (numbers[:, 0] * (rows - height + 1)).astype(np.int64)
        left = (numbers[:, 1] * (columns - width + 1)).astype(np.int64)
        made = np.empty_like(pixels, shape=(len(pixels), height, width, pixels.shape[-1]))
        for out, image, y, x in zip(made, pixels, top, left, strict=True):
            out[...] = image[y : y + height, x : x + width]
        return close(made)


def _part(rows: int, columns: int, size: tuple[int, int], numbers: Sequence[float]) -> tuple[int, int, int, int]:
    height, width = size
    if height > rows or width > columns:
        raise ShapeError(
            "the size of RandomCrop is larger than the image",
            expected=f"an image of at least {height} × {width}",
            got=f"{rows} × {columns}",
            hint="pad_if_needed=True",
        )
    return whole(numbers[0], rows - height + 1), whole(numbers[1], columns - width + 1), height, width


class RandomResizedCrop(Transform):
    """A part of random size and shape, resized to a given size. `torchvision.transforms.RandomResizedCrop`.

    Args:
        size: of the result: (h, w), or an int for both.
        scale: least and most of the image's area. ratio: least and most of width / height.
        interpolation, antialias: see `functional.resize`.
    """

    draws = 2 * TRIES + 2

    def __init__(
        self,
        size: Any,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: Any = BILINEAR,
        antialias: bool | None = True,
        generator: random.Generator | None = None,
    ) -> None:
        self.size = pair(size, "RandomResizedCrop")
        self.scale, self.ratio = _areas(scale, ratio, "RandomResizedCrop")
        self.interpolation, self.antialias, self.generator = mode_of(interpolation), antialias, generator

    @staticmethod
    def get_params(
        img: Any, scale: Sequence[float], ratio: Sequence[float], generator: random.Generator | None = None
    ) -> tuple[int, int, int, int]:
        """Top, left, height and width of a part, for `functional.resized_crop`."""
        size = size_of(img, "RandomResizedCrop")
        return RandomResizedCrop._part(size, scale, ratio, draw(RandomResizedCrop.draws, generator))

    @staticmethod
    def _part(
        size: tuple[int, int], scale: Sequence[float], ratio: Sequence[float], numbers: Sequence[float]
    ) -> tuple[int, int, int, int]:
        rows, columns = size
        for i in range(TRIES):
            height, width = _rectangle(rows * columns, scale, ratio, numbers[2 * i : 2 * i + 2])
            if 0 < width <= columns and 0 < height <= rows:
                top, left = whole(numbers[-2], rows - height + 1), whole(numbers[-1], columns - width + 1)
                return top, left, height, width
        # the middle, as large as the ratio lets it be
        width = min(columns, round(rows * max(ratio))) if columns / rows > max(ratio) else columns
        height = min(rows, round(columns / min(ratio))) if columns / rows < min(ratio) else rows
        return (rows - height) // 2, (columns - width) // 2, height, width

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        part = self._part(size_of(image, "RandomResizedCrop"), self.scale, self.ratio, numbers)
        return F.resized_crop(image, *part, self.size, self.interpolation, self.antialias)


def _areas(scale: Any, ratio: Any, name: str) -> tuple[Sequence[float], Sequence[float]]:
    bounds = [[float(v) for v in pair] for pair in (scale, ratio)]
    if any(len(pair) != 2 or not 0 < pair[0] <= pair[1] for pair in bounds):
        raise ArgumentError(f"{name} takes scale and ratio as (least, most), above 0", got=f"{scale} and {ratio}")
    return bounds[0], bounds[1]


def _rectangle(area: int, scale: Sequence[float], ratio: Sequence[float], numbers: Sequence[float]) -> tuple[int, int]:
    """Height and width: an even share of the area, and an even logarithm of width / height."""
    wanted = area * between(numbers[0], *scale)
    shape = math.exp(between(numbers[1], math.log(ratio[0]), math.log(ratio[1])))
    return round(math.sqrt(wanted / shape)), round(math.sqrt(wanted * shape))


class RandomRotation(Transform):
    """Turned by an angle of a range. `torchvision.transforms.RandomRotation`.

    Args:
        degrees: (least, most), or a number for both directions.
        interpolation, expand, center, fill: see `functional.rotate`.
    """

    draws = 1

    def __init__(
        self,
        degrees: Any,
        interpolation: Any = NEAREST,
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: Any = 0,
        generator: random.Generator | None = None,
    ) -> None:
        self.degrees = limits(degrees, "degrees", 0.0, -math.inf)
        self.interpolation, self.expand, self.center = mode_of(interpolation), expand, center
        self.fill, self.generator = fill, generator

    @staticmethod
    def get_params(degrees: Sequence[float], generator: random.Generator | None = None) -> float:
        """An angle, for `functional.rotate`."""
        return between(draw(1, generator)[0], *degrees)

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        angle = between(numbers[0], *self.degrees)
        return F.rotate(image, angle, self.interpolation, self.expand, self.center, self.fill)


class RandomAffine(Transform):
    """Turned, moved, scaled and sheared. `torchvision.transforms.RandomAffine`.

    Args:
        degrees: (least, most), or a number for both directions.
        translate: the most, as parts of width and height; None for none.
        scale: (least, most); None for none.
        shear: degrees along x: (least, most), or a number for both directions; four numbers for x and y.
        interpolation, fill, center: see `functional.affine`.
    """

    draws = 6

    def __init__(
        self,
        degrees: Any,
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: Any = None,
        interpolation: Any = NEAREST,
        fill: Any = 0,
        center: Sequence[float] | None = None,
        generator: random.Generator | None = None,
    ) -> None:
        self.degrees = limits(degrees, "degrees", 0.0, -math.inf)
        if translate is not None and (len(translate) != 2 or not all(0 <= t <= 1 for t in translate)):
            raise ArgumentError("translate is two parts, from 0 to 1", got=repr(translate))
        self.translate = translate
        self.scale = None if scale is None else _areas(scale, (1, 1), "RandomAffine")[0]
        self.shear = None if shear is None else self._shears(shear)
        self.interpolation, self.fill, self.center = mode_of(interpolation), fill, center
        self.generator = generator

    @staticmethod
    def _shears(shear: Any) -> Sequence[float]:
        if isinstance(shear, int | float) or len(shear) == 2:
            return [*limits(shear, "shear", 0.0, -math.inf), 0.0, 0.0]
        if len(shear) != 4:
            raise ArgumentError("shear is 1, 2 or 4 numbers of degrees", got=repr(shear))
        return [*limits(shear[:2], "shear", 0.0, -math.inf), *limits(shear[2:], "shear", 0.0, -math.inf)]

    @staticmethod
    def get_params(
        degrees: Sequence[float],
        translate: Sequence[float] | None,
        scale_ranges: Sequence[float] | None,
        shears: Sequence[float] | None,
        img_size: Sequence[int],
        generator: random.Generator | None = None,
    ) -> tuple[float, tuple[int, int], float, tuple[float, float]]:
        """Angle, translation, scale and shear for an image of (width, height), for `functional.affine`."""
        return _turn(degrees, translate, scale_ranges, shears, img_size, draw(RandomAffine.draws, generator))

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        size = size_of(image, "RandomAffine")[::-1]
        turn = _turn(self.degrees, self.translate, self.scale, self.shear, size, numbers)
        return F.affine(image, *turn, self.interpolation, self.fill, self.center)


def _turn(
    degrees: Sequence[float],
    translate: Sequence[float] | None,
    scales: Sequence[float] | None,
    shears: Sequence[float] | None,
    size: Sequence[int],
    numbers: Sequence[float],
) -> tuple[float, tuple[int, int], float, tuple[float, float]]:
    most = [part * side for part, side in zip(translate or (0, 0), size, strict=True)]
    moved = [round(between(number, -m, m)) for number, m in zip(numbers[1:3], most, strict=True)]
    low_x, high_x, low_y, high_y = [*(shears or ()), 0.0, 0.0, 0.0, 0.0][:4]
    return (
        between(numbers[0], *degrees),
        (moved[0], moved[1]),
        between(numbers[3], *(scales or (1.0, 1.0))),
        (between(numbers[4], low_x, high_x), between(numbers[5], low_y, high_y)),
    )


class RandomPerspective(Sometimes):
    """Seen from elsewhere, with probability `p`. `torchvision.transforms.RandomPerspective`.

    Args:
        distortion_scale: how far the corners move inwards, from 0 to 1.
        interpolation, fill: see `functional.perspective`.
    """

    draws = 9

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: Any = BILINEAR,
        fill: Any = 0,
        generator: random.Generator | None = None,
    ) -> None:
        super().__init__(p, generator)
        if not 0 <= distortion_scale <= 1:
            raise ArgumentError("distortion_scale is from 0 to 1", got=repr(distortion_scale))
        self.distortion_scale, self.interpolation = distortion_scale, mode_of(interpolation)
        self.fill = fill

    def transform(self, image: Any, numbers: Sequence[float]) -> Any:
        rows, columns = size_of(image, "RandomPerspective")
        right, bottom = columns - 1, rows - 1
        across, down = (int(self.distortion_scale * (side // 2)) + 1 for side in (columns, rows))
        x, y = ([whole(n, most) for n in part] for part, most in ((numbers[:4], across), (numbers[4:8], down)))
        start = [[0, 0], [right, 0], [right, bottom], [0, bottom]]
        end = [[x[0], y[0]], [right - x[1], y[1]], [right - x[2], bottom - y[2]], [x[3], bottom - y[3]]]
        return F.perspective(image, start, end, self.interpolation, self.fill)


class RandomErasing(Sometimes):
    """A rectangle erased, with probability `p` (Zhong and others, 2017). `torchvision.transforms.RandomErasing`.

    Args:
        scale: least and most of the image's area. ratio: least and most of height / width.
        value: a number, one a channel, or "random" for normal noise.
    """

    draws = 1 + 2 * TRIES + 4

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: Any = 0,
        inplace: bool = False,
        generator: random.Generator | None = None,
    ) -> None:
        super().__init__(p, generator)
        self.scale, self.ratio = _areas(scale, ratio, "RandomErasing")
        if isinstance(value, str) and value != "random":
            raise ArgumentError("RandomErasing takes a number, one a channel, or 'random'", got=repr(value))
        self.value = value

    def transform(self, image: Any, numbers: Sequence[float]) -> Any:
        rows, columns = size_of(image, "RandomErasing")
        for i in range(TRIES):
            width, height = _rectangle(rows * columns, self.scale, self.ratio, numbers[2 * i : 2 * i + 2])
            if 0 < height < rows and 0 < width < columns:
                top, left = whole(numbers[-4], rows - height + 1), whole(numbers[-3], columns - width + 1)
                value = self.value
                if value == "random":
                    channels = F.get_dimensions(image)[0]
                    value = stream(list(numbers[-2:])).standard_normal((channels, height, width)).astype(np.float32)
                return F.erase(image, top, left, height, width, value)
        return as_array(image)
