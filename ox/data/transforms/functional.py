"""The transforms as functions, with every number given by the caller. `torchvision.transforms.functional`.

An image is an array [h, w, c] or a tensor [c, h, w], or many of one size; the result is of the same kind. A Pillow
image is taken as an array.
"""

from __future__ import annotations

from typing import Any

from ox.data.transforms.color import (
    adjust_brightness,
    adjust_contrast,
    adjust_gamma,
    adjust_hue,
    adjust_saturation,
    adjust_sharpness,
    autocontrast,
    equalize,
    erase,
    gaussian_blur,
    invert,
    normalize,
    posterize,
    rgb_to_grayscale,
    solarize,
)
from ox.data.transforms.convert import (
    convert_image_dtype,
    pil_to_tensor,
    to_dtype,
    to_image,
    to_pil_image,
    to_tensor,
)
from ox.data.transforms.geometric import (
    affine,
    center_crop,
    crop,
    five_crop,
    hflip,
    pad,
    perspective,
    resized_crop,
    rotate,
    ten_crop,
    vflip,
)
from ox.data.transforms.images import opened
from ox.data.transforms.resizing import InterpolationMode, resize

horizontal_flip, vertical_flip, to_grayscale = hflip, vflip, rgb_to_grayscale


def get_dimensions(image: Any) -> list[int]:
    """Channels, height, width. `torchvision.transforms.functional.get_dimensions`."""
    pixels, _ = opened(image, "get_dimensions")
    return [pixels.shape[-1], pixels.shape[-3], pixels.shape[-2]]


def get_image_size(image: Any) -> list[int]:
    """Width, height. `torchvision.transforms.functional.get_image_size`."""
    return get_dimensions(image)[:0:-1]


__all__ = [
    "InterpolationMode",
    "adjust_brightness",
    "adjust_contrast",
    "adjust_gamma",
    "adjust_hue",
    "adjust_saturation",
    "adjust_sharpness",
    "affine",
    "autocontrast",
    "center_crop",
    "convert_image_dtype",
    "crop",
    "equalize",
    "erase",
    "five_crop",
    "gaussian_blur",
    "get_dimensions",
    "get_image_size",
    "hflip",
    "horizontal_flip",
    "invert",
    "normalize",
    "pad",
    "perspective",
    "pil_to_tensor",
    "posterize",
    "resize",
    "resized_crop",
    "rgb_to_grayscale",
    "rotate",
    "solarize",
    "ten_crop",
    "to_dtype",
    "to_grayscale",
    "to_image",
    "to_pil_image",
    "to_tensor",
    "vertical_flip",
    "vflip",
]
