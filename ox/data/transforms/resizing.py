"""Images in other sizes: the ways to find pixels between pixels."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox.data.transforms import pillow
from ox.data.transforms.images import Pixels, each, on_pixels
from ox.errors import ArgumentError


class InterpolationMode(Enum):
    """How pixels between pixels are found. `torchvision.transforms.InterpolationMode`; the value or Pillow's number
    may stand for a mode, too."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


NEAREST, BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR
PILLOW = {"nearest": 0, "nearest-exact": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}


def mode_of(interpolation: Any) -> str:
    """The mode's value. Raises ArgumentError for what is no mode."""
    if isinstance(interpolation, int) and not isinstance(interpolation, bool):
        interpolation = next((name for name, number in PILLOW.items() if number == interpolation), interpolation)
    name = interpolation.value if isinstance(interpolation, InterpolationMode) else interpolation
    if name not in PILLOW:
        raise ArgumentError("there is no such interpolation", expected=", ".join(PILLOW), got=repr(name))
    return str(name)


def pair(size: Any, name: str) -> tuple[int, int]:
    """Height and width of an int, or of one or two ints."""
    values = [size] if isinstance(size, int | np.integer) else list(size)
    if len(values) not in (1, 2) or any(isinstance(v, bool) or int(v) != v or v < 1 for v in values):
        raise ArgumentError(f"{name} takes an int or (height, width), positive", got=repr(size))
    return int(values[0]), int(values[-1])


def resized(height: int, width: int, size: Any, max_size: int | None = None) -> tuple[int, int]:
    """The sides that `resize` makes: (h, w) as given, or an int for the shorter side and the longer one in proportion,
    of at most `max_size`."""
    if size is not None and not isinstance(size, int) and len(size) == 2:
        if max_size is not None:
            raise ArgumentError("max_size goes with one size, that of the shorter side", got=repr(size))
        return pair(size, "resize")
    short, long = min(height, width), max(height, width)
    if size is None:
        if max_size is None:
            raise ArgumentError("resize takes a size or a max_size")
        new_short, new_long = int(max_size * short / long), max_size
    else:
        new_short = pair(size, "resize")[0]
        new_long = int(new_short * long / short)
        if max_size is not None and max_size <= new_short:
            raise ArgumentError("max_size is more than the shorter side", expected=f"> {new_short}", got=str(max_size))
        if max_size is not None and new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
    new_short = max(new_short, 1)
    return (new_short, new_long) if height <= width else (new_long, new_short)


@on_pixels
def resize(
    pixels: Pixels, size: Any, interpolation: Any = BILINEAR, max_size: int | None = None, antialias: bool | None = True
) -> Pixels:
    """The image in another size. `torchvision.transforms.functional.resize`.

    Args:
        size: (h, w), or an int for the shorter side.
        interpolation: see `InterpolationMode`.
        max_size: the most that the longer side may become where `size` is an int.
        antialias: weigh all pixels that fall into one, as Pillow does; False looks at the nearest 2 or 4 a side.
    """
    height, width = pixels.shape[-3:-1]
    rows, columns = resized(height, width, size, max_size)
    mode = mode_of(interpolation)
    if (rows, columns) == (height, width):
        return pixels
    if mode in ("nearest", "nearest-exact") or pixels.dtype == np.bool_:
        half = 0.0 if mode == "nearest" else 0.5
        chosen = [
            np.minimum(((np.arange(new) + half) * (old / new)).astype(np.int64), old - 1)
            for new, old in ((rows, height), (columns, width))
        ]
        return pixels[..., chosen[0][:, np.newaxis], chosen[1], :]
    if antialias is not False:
        number = PILLOW[mode]
        return each(pixels, lambda one: pillow.through(one, lambda image, _: image.resize((columns, rows), number)))
    if mode not in ("bilinear", "bicubic"):
        raise ArgumentError(f"{mode} is always antialiased", hint="antialias=True")
    values = pixels.astype(np.result_type(pixels.dtype, np.float32))
    values = _taps(_taps(values, -3, rows, mode), -2, columns, mode)
    if pixels.dtype.kind in "iu":
        limits = np.iinfo(pixels.dtype)
        return values.round().clip(limits.min, limits.max).astype(pixels.dtype)
    return values.astype(pixels.dtype, copy=False)


def _taps(values: NDArray[Any], axis: int, new: int, mode: str) -> NDArray[Any]:
    """One axis resampled from the two or four nearest of each place; a border goes on as it is."""
    old = values.shape[axis]
    at = (np.arange(new) + 0.5) * (old / new) - 0.5
    if mode == "bilinear":
        at = at.clip(0, old - 1)
    first = np.floor(at).astype(np.int64)
    t = at - first
    if mode == "bilinear":
        weights = {0: 1 - t, 1: t}
    else:
        a = -0.75  # PyTorch's

        def near(d: NDArray[Any]) -> NDArray[Any]:
            return ((a + 2) * d - (a + 3)) * d * d + 1

        def far(d: NDArray[Any]) -> NDArray[Any]:
            return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

        weights = {-1: far(t + 1), 0: near(t), 1: near(1 - t), 2: far(2 - t)}
    shape = [1] * values.ndim
    shape[axis] = new
    return sum(
        np.take(values, (first + step).clip(0, old - 1), axis) * weight.reshape(shape).astype(values.dtype)
        for step, weight in weights.items()
    )
