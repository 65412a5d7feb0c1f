"""Functions between kinds of images and kinds of values. Names and meanings are torchvision's."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.core.operator import make_tensor
from ox.data.transforms.images import Pixels, bound, channels_first, is_pil, on_pixels, opened
from ox.dtypes import float32, is_floating
from ox.errors import DTypeError, ShapeError
from ox.tensors.tensor import Tensor


def pil_to_tensor(image: Any, /) -> Tensor:
    """A tensor [..., c, h, w] of an array [..., h, w, c] or a Pillow image; the values stay.
    `torchvision.transforms.functional.pil_to_tensor`.

    Raises:
        DTypeError: neither an array nor a Pillow image. ShapeError: an array of another layout.
    """
    if isinstance(image, Tensor) or not (isinstance(image, np.ndarray) or is_pil(image)):
        raise DTypeError("a tensor is made of an array [h, w, c] or a Pillow image", got=type(image).__name__)
    pixels, _ = opened(image, "to_tensor")
    return make_tensor(np.ascontiguousarray(channels_first(pixels)))


def to_tensor(image: Any, /) -> Tensor:
    """A tensor [..., c, h, w] of an array [..., h, w, c] or a Pillow image; bytes become float32 from 0 to 1, other
    values stay. `torchvision.transforms.functional.to_tensor`."""
    made = pil_to_tensor(image)
    array = made.array
    if array.dtype == np.bool_:
        return make_tensor(array.astype(float32))
    return make_tensor(np.multiply(array, np.float32(1 / 255), dtype=float32)) if array.dtype == np.uint8 else made


def to_image(image: Any, /) -> Tensor:
    """`pil_to_tensor`, but a tensor stays as it is. `torchvision.transforms.v2.functional.to_image`."""
    return image if isinstance(image, Tensor) else pil_to_tensor(image)


@on_pixels
def convert_image_dtype(pixels: Pixels, dtype: Any = float32) -> Pixels:
    """Another type of values, with white as white: 255 of uint8 is 1 of floats.
    `torchvision.transforms.functional.convert_image_dtype`.

    Raises:
        DTypeError: a type that is no number.
    """
    old, new = pixels.dtype, np.dtype(dtype)
    if old == new:
        return pixels
    if is_floating(new):
        return (pixels / np.float32(bound(old)) if old.kind in "iu" else pixels).astype(new)
    if new.kind in "iu" and is_floating(old):
        white = bound(new)
        return np.floor(pixels.astype(np.float64).clip(0, 1) * (white + 1 - 1e-3)).astype(new)
    if new.kind in "iu" and old.kind in "iu":
        steps = (int(bound(new)) + 1) / (int(bound(old)) + 1)
        wide = pixels.astype(np.int64)
        return (wide * int(steps) if steps >= 1 else wide // int(1 / steps)).astype(new)
    raise DTypeError("images must be numeric arrays", expected="float32 or uint8", got=f"{old} to {new}")


def to_dtype(image: Any, dtype: Any = float32, scale: bool = False) -> Any:
    """Another type of values, as `convert_image_dtype` makes it if `scale`, and else the same numbers.
    `torchvision.transforms.v2.functional.to_dtype`."""
    if scale:
        return convert_image_dtype(image, dtype)
    pixels, close = opened(image, "to_dtype")
    return close(pixels.astype(np.dtype(dtype)))


def to_pil_image(image: Any, mode: str | None = None, /) -> Any:
    """A Pillow image, to look at or to save. Floats from 0 to 1 become bytes.
    `torchvision.transforms.functional.to_pil_image`.

    Raises:
        ShapeError: many images, or channels that make no picture. DTypeError: values of another type.
    """
    from PIL import Image

    pixels, _ = opened(image, "to_pil_image")
    if pixels.ndim != 3 or pixels.shape[-1] not in (1, 2, 3, 4):
        raise ShapeError("to_pil_image takes one image", got=f"pixels {list(pixels.shape)}")
    if pixels.dtype.kind == "f":
        pixels = np.floor(pixels.astype(np.float64).clip(0, 1) * 255).astype(np.uint8)
    if pixels.dtype != np.uint8:
        raise DTypeError("to_pil_image takes bytes or floats", got=str(pixels.dtype))
    made = Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels))
    return made if mode is None else made.convert(mode)
