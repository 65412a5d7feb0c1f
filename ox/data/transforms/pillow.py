"""Pixels through Pillow, whose resampling is well kept and fast. Whole colours of 8 bits go at once, all else as one
plane of bytes or of float32 after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ox.data.transforms.images import Pixels

WHOLE = {3: "RGB", 4: "RGBA"}


def through(pixels: Pixels, function: Callable[[Any, Any], Any], fill: list[float] | None = None) -> Pixels:
    """``function(image, fill)`` of [h, w, c], where `fill` is what Pillow takes for that image's kind.

    Args:
        fill: a number per channel, for pixels outside.
    """
    from PIL import Image

    channels, dtype = pixels.shape[-1], pixels.dtype
    fill = fill or [0.0] * channels
    if dtype == np.uint8 and channels in WHOLE:
        image = Image.fromarray(np.ascontiguousarray(pixels), WHOLE[channels])
        return np.asarray(function(image, tuple(int(value) for value in fill)))
    planes = []
    for i in range(channels):
        plane = np.ascontiguousarray(pixels[..., i])
        if dtype in (np.uint8, np.bool_):
            made = function(Image.fromarray(plane.view(np.uint8)), int(fill[i]))
        else:
            made = function(Image.fromarray(plane.astype(np.float32)), float(fill[i]))
        planes.append(np.asarray(made))
    out = np.stack(planes, -1)
    if dtype.kind in "iu" and dtype != np.uint8:
        limits = np.iinfo(dtype)
        return out.round().clip(limits.min, limits.max).astype(dtype)
    return out.astype(dtype, copy=False)


def pointwise(pixels: Pixels, function: Callable[[Any], Any]) -> Pixels:
    """``function(image)`` of uint8 [..., h, w, 3], all images at once, for functions that look at single pixels."""
    from PIL import Image

    tall = np.ascontiguousarray(pixels).reshape(-1, *pixels.shape[-2:])
    made = np.asarray(function(Image.fromarray(tall)))
    return made.reshape(*pixels.shape[:-1], -1)
