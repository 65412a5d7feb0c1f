"""What an image is here: an array is [h, w, c], a tensor is [c, h, w]. The type defines the layout, and every transform
gives back the type that it got. Pillow's images are taken as arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import numpy as np
from numpy.typing import NDArray

from ox.core.operator import make_tensor
from ox.dtypes import is_floating
from ox.errors import DeviceError, DTypeError, ShapeError
from ox.tensors.tensor import Tensor

Pixels = NDArray[Any]  # [..., h, w, c]: what the functions compute on
P = ParamSpec("P")
COLOURS = 4  # more channels than this, beside a side as short, are taken for the other layout


def is_pil(image: Any) -> bool:
    """A Pillow image, found without loading Pillow."""
    return type(image).__module__.startswith("PIL.")


def opened(image: Any, name: str) -> tuple[Pixels, Callable[[Pixels], Any]]:
    """The pixels of an image or of many, [..., h, w, c], and what makes the caller's kind of image of pixels.

    Raises:
        DTypeError: no image. ShapeError: the other layout, or too few dimensions. DeviceError: a tensor on a GPU.
    """
    if isinstance(image, Tensor):
        array = image.array
        if not isinstance(array, np.ndarray):
            raise DeviceError(f"{name} works on the CPU", got=str(image.device), hint="image.cpu()")
        _check(array, name, "a tensor", array.shape[-3:-2], array.shape[-1:], "[..., c, h, w]", "permute(2, 0, 1)")
        if array.ndim == 2:
            return array[..., np.newaxis], lambda pixels: make_tensor(np.ascontiguousarray(pixels[..., 0]))
        return channels_last(array), lambda pixels: make_tensor(np.ascontiguousarray(channels_first(pixels)))
    array = np.asarray(image) if is_pil(image) else image
    if not isinstance(array, np.ndarray):
        raise DTypeError(
            f"{name} takes images",
            expected="an array [h, w, c], a tensor [c, h, w] or a Pillow image",
            got=type(image).__name__,
        )
    if array.ndim == 2:
        _check(array, name, "an array", (), (), "", "")
        return array[..., np.newaxis], lambda pixels: pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    _check(array, name, "an array", array.shape[-1:], array.shape[-3:-2], "[..., h, w, c]", "np.moveaxis(x, 0, -1)")
    return array, lambda pixels: pixels


def channels_last(planes: NDArray[Any]) -> Pixels:
    """[..., c, h, w] seen as [..., h, w, c]; what `np.moveaxis` does, in a third of its time."""
    return planes.swapaxes(-3, -1).swapaxes(-3, -2)


def channels_first(pixels: Pixels) -> NDArray[Any]:
    """[..., h, w, c] seen as [..., c, h, w]."""
    return pixels.swapaxes(-3, -1).swapaxes(-2, -1)


def _check(
    array: NDArray[Any], name: str, kind: str, channels: tuple[int, ...], side: tuple[int, ...], layout: str, hint: str
) -> None:
    shape = array.shape
    if array.dtype.kind not in "buif" and not is_floating(array.dtype):
        raise DTypeError(f"{name} takes images of numbers", got=f"{kind} {array.dtype} {list(shape)}")
    if len(shape) < 2 or 0 in shape[-3:]:
        got = f"{kind} {array.dtype} {list(shape)}"
        raise ShapeError(f"{name} takes images", expected="at least two sides", got=got)
    if channels and channels[0] > COLOURS and side[0] <= COLOURS:
        raise ShapeError(
            f"{name} got an image of the other layout",
            expected=f"{kind} {layout}",
            got=f"{array.dtype} {list(shape)}",
            hint=hint,
        )


def on_pixels(kernel: Callable[Concatenate[Pixels, P], Pixels]) -> Callable[Concatenate[Any, P], Any]:
    """A function of images of every kind, from one of pixels [..., h, w, c]."""

    @wraps(kernel)
    def function(image: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        pixels, close = opened(image, kernel.__name__)
        return close(kernel(pixels, *args, **kwargs))

    return function


def size_of(image: Any, name: str) -> tuple[int, int]:
    """Height and width."""
    pixels, _ = opened(image, name)
    return pixels.shape[-3], pixels.shape[-2]


def bound(dtype: np.dtype[Any]) -> float:
    """The value of white: 255 for uint8, 1 for floats."""
    if dtype.kind in "iu":
        return float(np.iinfo(dtype).max)
    return 1.0


def clipped(values: NDArray[Any], dtype: np.dtype[Any]) -> Pixels:
    """From 0 to white, as `dtype`; integers are cut and not rounded, as in PyTorch and in Pillow."""
    return values.clip(0, bound(dtype)).astype(dtype)


def each(pixels: Pixels, function: Callable[[Pixels], Pixels]) -> Pixels:
    """`function` of each image [h, w, c] of [..., h, w, c]."""
    if pixels.ndim == 3:
        return function(pixels)
    flat = pixels.reshape(-1, *pixels.shape[-3:])
    made = np.stack([function(image) for image in flat])
    return made.reshape(*pixels.shape[:-3], *made.shape[1:])
