"""Functions that change colours and values, and keep every pixel in its place. Names and meanings are torchvision's.

Bytes are changed by a table of 256 entries where one does, and by Pillow where neighbours in colour count; what is left
is computed in floats, where white is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox.core.tensor import is_tensor
from ox.data.transforms import pillow
from ox.data.transforms.images import Pixels, bound, clipped, each, on_pixels
from ox.errors import ArgumentError, DTypeError, ShapeError

GREY = (0.2989, 0.587, 0.114)  # how bright red, green and blue look (ITU-R BT.601)
LEVELS = np.arange(256, dtype=np.float32)


def _by_table(pixels: Pixels, table: NDArray[Any]) -> Pixels:
    """`table` of each byte."""
    data = bytearray(np.ascontiguousarray(pixels)).translate(table.astype(np.uint8).tobytes())
    return np.frombuffer(data, np.uint8).reshape(pixels.shape)


def _mapped(pixels: Pixels, function: Callable[[NDArray[Any]], NDArray[Any]]) -> Pixels:
    """`function` of each value, by a table where pixels are bytes."""
    if pixels.dtype == np.uint8:
        return _by_table(pixels, clipped(function(LEVELS), pixels.dtype))
    return clipped(function(_floats(pixels)), pixels.dtype)


def _floats(pixels: Pixels) -> NDArray[Any]:
    return pixels if pixels.dtype.kind == "f" and pixels.dtype.itemsize > 2 else pixels.astype(np.float32)


def _colours(pixels: Pixels, name: str) -> bool:
    """Whether there are colours; ShapeError for channels that are neither grey nor red, green and blue."""
    if pixels.shape[-1] not in (1, 3):
        raise ShapeError(
            f"{name} takes grey images or red, green and blue", expected="1 or 3 channels", got=f"{pixels.shape[-1]}"
        )
    return bool(pixels.shape[-1] == 3)


def _factor(value: float, name: str) -> float:
    if not value >= 0 or math.isinf(value):
        raise ArgumentError(f"{name} takes a factor of at least 0", got=str(value))
    return float(value)


def _grey(pixels: Pixels) -> Pixels:
    """[..., h, w, 1] of the same type."""
    if pixels.dtype == np.uint8:
        return pillow.pointwise(pixels, lambda image: image.convert("L"))
    mixed = _floats(pixels) @ np.array(GREY, np.result_type(pixels.dtype, np.float32))
    return clipped(mixed[..., np.newaxis], pixels.dtype)


@on_pixels
def rgb_to_grayscale(pixels: Pixels, num_output_channels: int = 1) -> Pixels:
    """Grey levels, in 1 or 3 equal channels. `torchvision.transforms.functional.rgb_to_grayscale`."""
    if num_output_channels not in (1, 3):
        raise ArgumentError("grey has 1 or 3 channels", got=str(num_output_channels))
    grey = _grey(pixels) if _colours(pixels, "rgb_to_grayscale") else pixels
    return np.repeat(grey, num_output_channels, -1)


@on_pixels
def adjust_brightness(pixels: Pixels, brightness_factor: float) -> Pixels:
    """0 is black, 1 the image, 2 twice as bright. `torchvision.transforms.functional.adjust_brightness`."""
    factor = _factor(brightness_factor, "adjust_brightness")
    return _mapped(pixels, lambda values: values * factor)


@on_pixels
def adjust_contrast(pixels: Pixels, contrast_factor: float) -> Pixels:
    """0 is all of the image's mean grey, 1 the image. `torchvision.transforms.functional.adjust_contrast`."""
    factor = _factor(contrast_factor, "adjust_contrast")
    colours = _colours(pixels, "adjust_contrast")

    def one(image: Pixels) -> Pixels:
        mean = float((_grey(image) if colours else image).mean(dtype=np.float64))
        mean = int(mean + 0.5) if image.dtype == np.uint8 else mean  # as Pillow does
        return _mapped(image, lambda values: values * factor + mean * (1 - factor))

    return each(pixels, one)


@on_pixels
def adjust_saturation(pixels: Pixels, saturation_factor: float) -> Pixels:
    """0 is grey, 1 the image, 2 twice the colour. `torchvision.transforms.functional.adjust_saturation`."""
    factor = _factor(saturation_factor, "adjust_saturation")
    if not _colours(pixels, "adjust_saturation"):
        return pixels
    if pixels.dtype == np.uint8:
        from PIL import ImageEnhance

        return pillow.pointwise(pixels, lambda image: ImageEnhance.Color(image).enhance(factor))
    return clipped(_floats(pixels) * factor + _grey(pixels) * (1 - factor), pixels.dtype)


@on_pixels
def adjust_hue(pixels: Pixels, hue_factor: float) -> Pixels:
    """Each colour turned on the wheel, by -0.5 to 0.5 of it. `torchvision.transforms.functional.adjust_hue`."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ArgumentError("adjust_hue takes -0.5 to 0.5", got=str(hue_factor))
    if not _colours(pixels, "adjust_hue"):
        return pixels
    if pixels.dtype == np.uint8:
        from PIL import Image

        steps = int(hue_factor * 255) % 256

        def turned(image: Any) -> Any:
            hue, *others = image.convert("HSV").split()
            hue = hue.point([(level + steps) % 256 for level in range(256)])
            return Image.merge("HSV", (hue, *others)).convert("RGB")

        return pillow.pointwise(pixels, turned)
    values = _floats(pixels)
    high, low = values.max(-1), values.min(-1)
    spread = high - low
    safe = np.where(spread == 0, 1, spread)
    red, green, blue = np.moveaxis(values, -1, 0)
    sixth = np.where(high == red, (green - blue) / safe, np.where(high == green, 2 + (blue - red) / safe, 0))
    sixth = np.where((high != red) & (high != green), 4 + (red - green) / safe, sixth) + 6 * hue_factor
    # a colour is `high` less a part of the spread that depends on how far it is on the wheel
    away = (np.array([5, 3, 1]) + sixth[..., np.newaxis]) % 6
    part = np.minimum(away, 4 - away).clip(0, 1)
    return clipped(high[..., np.newaxis] - spread[..., np.newaxis] * part, pixels.dtype)


@on_pixels
def adjust_gamma(pixels: Pixels, gamma: float, gain: float = 1) -> Pixels:
    """``gain * value ** gamma``, white being 1. `torchvision.transforms.functional.adjust_gamma`."""
    gamma, white = _factor(gamma, "adjust_gamma"), bound(pixels.dtype)
    if pixels.dtype == np.uint8:  # Pillow's table, which torchvision uses
        return _mapped(pixels, lambda values: (white + 1 - 1e-3) * gain * (values.astype(np.float64) / white) ** gamma)
    return _mapped(pixels, lambda values: white * gain * (values / white) ** gamma)


@on_pixels
def adjust_sharpness(pixels: Pixels, sharpness_factor: float) -> Pixels:
    """0 is smoothed, 1 the image, 2 twice as sharp; the outermost pixels stay.
    `torchvision.transforms.functional.adjust_sharpness`."""
    factor = _factor(sharpness_factor, "adjust_sharpness")
    rows, columns = pixels.shape[-3:-1]
    if rows < 3 or columns < 3:
        return pixels
    if pixels.dtype == np.uint8:
        from PIL import ImageEnhance

        return each(pixels, lambda one: pillow.through(one, lambda i, _: ImageEnhance.Sharpness(i).enhance(factor)))
    values = _floats(pixels)
    total = 4 * values[..., 1:-1, 1:-1, :]
    for down in range(3):
        for across in range(3):
            total = total + values[..., down : rows - 2 + down, across : columns - 2 + across, :]
    out = np.array(pixels)
    inner = values[..., 1:-1, 1:-1, :] * factor + total / 13 * (1 - factor)
    out[..., 1:-1, 1:-1, :] = clipped(inner, pixels.dtype)
    return out


@on_pixels
def invert(pixels: Pixels) -> Pixels:
    """White becomes black. `torchvision.transforms.functional.invert`."""
    white = bound(pixels.dtype)
    return _mapped(pixels, lambda values: white - values)


@on_pixels
def posterize(pixels: Pixels, bits: int) -> Pixels:
    """Only the first `bits` of each value's eight. `torchvision.transforms.functional.posterize`."""
    if not 0 <= bits <= 8:
        raise ArgumentError("posterize keeps 0 to 8 bits", got=str(bits))
    if pixels.dtype == np.uint8:
        return pixels & np.uint8(256 - (1 << (8 - bits)))
    if pixels.dtype.kind != "f":
        raise DTypeError("posterize takes bytes or floats", got=str(pixels.dtype))
    levels = 1 << bits
    return _mapped(pixels, lambda values: np.floor(values * levels).clip(0, levels - 1) / levels)


@on_pixels
def solarize(pixels: Pixels, threshold: float) -> Pixels:
    """Values from `threshold` on are inverted. `torchvision.transforms.functional.solarize`."""
    white = bound(pixels.dtype)
    return _mapped(pixels, lambda values: np.where(values >= threshold, white - values, values))


@on_pixels
def autocontrast(pixels: Pixels) -> Pixels:
    """Each channel's darkest value becomes black, its brightest white.
    `torchvision.transforms.functional.autocontrast`."""
    white = bound(pixels.dtype)

    def stretched(plane: Pixels) -> Pixels:
        low, high = float(plane.min()), float(plane.max())
        if low == high:
            return plane
        return _mapped(plane, lambda values: (values.astype(np.float64) - low) * (white / (high - low)))

    return each(pixels, lambda image: np.stack([stretched(plane) for plane in np.moveaxis(image, -1, 0)], -1))


@on_pixels
def equalize(pixels: Pixels) -> Pixels:
    """Each channel's values spread so that all are about as frequent; floats go by way of 256 levels.
    `torchvision.transforms.functional.equalize`."""

    def spread(plane: Pixels) -> Pixels:
        counts = np.bincount(plane.reshape(-1), minlength=256)
        last = counts[counts.nonzero()[0][-1]]
        step = int(counts.sum() - last) // 255
        if step == 0:
            return plane
        before = np.concatenate([[0], np.cumsum(counts)[:-1]])
        return _by_table(plane, ((before + step // 2) // step).clip(0, 255))

    def one(image: Pixels) -> Pixels:
        return np.stack([spread(plane) for plane in np.moveaxis(image, -1, 0)], -1)

    if pixels.dtype == np.uint8:
        return each(pixels, one)
    if pixels.dtype.kind != "f":
        raise DTypeError("equalize takes bytes or floats", got=str(pixels.dtype))
    return (each((pixels.clip(0, 1) * 255.999).astype(np.uint8), one) / np.float32(255)).astype(pixels.dtype)


@on_pixels
def gaussian_blur(pixels: Pixels, kernel_size: Any, sigma: Any = None) -> Pixels:
    """Blurred by a Gaussian; the image goes on mirrored. `torchvision.transforms.functional.gaussian_blur`.

    Args:
        kernel_size: odd, in pixels; an int or [x, y].
        sigma: the deviation in pixels, a number or [x, y]; default ``0.15 * kernel_size + 0.35``.
    """
    sizes = _numbers(kernel_size)
    if any(size != int(size) or size < 1 or size % 2 == 0 for size in sizes):
        raise ArgumentError("gaussian_blur takes odd, positive kernel sizes", got=repr(kernel_size))
    sigmas = [0.15 * size + 0.35 for size in sizes] if sigma is None else _numbers(sigma)
    if any(not value > 0 for value in sigmas):
        raise ArgumentError("gaussian_blur takes a sigma above 0", got=repr(sigma))
    values = _floats(pixels)
    for axis, size, deviation in ((-2, int(sizes[0]), sigmas[0]), (-3, int(sizes[1]), sigmas[1])):
        reach = size // 2
        if reach >= values.shape[axis]:
            raise ShapeError(
                "the kernel of gaussian_blur is too large for the image",
                expected=f"a kernel below {2 * values.shape[axis]}",
                got=str(size),
            )
        places = np.arange(-reach, reach + 1)
        weights = np.exp(-0.5 * (places / deviation) ** 2)
        weights = (weights / weights.sum()).astype(values.dtype)
        sides = [(0, 0)] * values.ndim
        sides[axis] = (reach, reach)
        padded = np.moveaxis(np.pad(values, sides, "reflect"), axis, 0)
        count = values.shape[axis]
        total = padded[reach : reach + count] * weights[reach]
        for i in range(reach):  # the same weight on both sides
            total += (padded[i : i + count] + padded[size - 1 - i : size - 1 - i + count]) * weights[i]
        values = np.moveaxis(total, 0, axis)
    return clipped(values.round(), pixels.dtype) if pixels.dtype.kind in "iu" else values.astype(pixels.dtype)


def _numbers(value: Any) -> list[float]:
    return [value, value] if isinstance(value, int | float) else [*value, *value][:2]


# -- values ----------------------------------------------------------------------------------------------------------


@on_pixels
def normalize(pixels: Pixels, mean: Any, std: Any, inplace: bool = False) -> Pixels:
    """``(value - mean) / std``, one of each a channel. `torchvision.transforms.functional.normalize`.

    Args:
        inplace: accepted for torchvision's scripts; the input is never changed.

    Raises:
        DTypeError: an image of integers. ArgumentError: a deviation of 0. ShapeError: not one number a channel.
    """
    if pixels.dtype.kind != "f":
        raise DTypeError("normalize takes floats", got=str(pixels.dtype), hint="ToTensor() before Normalize(...)")
    middle, spread = (np.atleast_1d(np.asarray(v, pixels.dtype)) for v in (mean, std))
    channels = pixels.shape[-1]
    if any(v.ndim > 1 or len(v) not in (1, channels) for v in (middle, spread)):
        raise ShapeError(
            "normalize takes one mean and one deviation a channel",
            expected=f"{channels} of each",
            got=f"{middle.size} and {spread.size}",
        )
    if not spread.all():
        raise ArgumentError("std of normalize must not be 0", got=repr(std))
    made = pixels - middle
    made /= spread
    return made


@on_pixels
def erase(pixels: Pixels, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Pixels:
    """A rectangle from (i, j), h × w, filled with `v`: a number, one a channel ([c, 1, 1]), or values [c, h, w].
    `torchvision.transforms.functional.erase`; the image given stays as it is."""
    out = np.array(pixels)
    value = np.asarray(v.array if is_tensor(v) else v)
    if value.ndim == 1:
        value = value[:, np.newaxis, np.newaxis]
    out[..., i : i + h, j : j + w, :] = np.moveaxis(value, 0, -1) if value.ndim == 3 else value
    return out


def check_probability(p: Any, name: str) -> float:
    """`p`, if it is one. Raises ArgumentError else."""
    if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= 1:
        raise ArgumentError(f"{name} takes a probability p from 0 to 1", got=repr(p))
    return float(p)


def limits(value: Any, name: str, middle: float = 1.0, low: float = 0.0, high: float = math.inf) -> Sequence[float]:
    """(least, most) of a number, which is how far from the middle, or of two."""
    if isinstance(value, int | float):
        pair = [max(middle - value, low) if middle else -value, middle + value]
        good = value >= 0
    else:
        pair = [float(v) for v in value]
        good = len(pair) == 2
    if not good or not low <= pair[0] <= pair[1] <= high:
        raise ArgumentError(
            f"{name} is a number of at least 0, or (least, most)", expected=f"{low} to {high}", got=repr(value)
        )
    return pair
