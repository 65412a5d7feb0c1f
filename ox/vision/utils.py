"""Many images as one, to look at: `torchvision.utils`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import IO, Any

from ox.autograd import no_grad
from ox.dtypes import is_floating, uint8
from ox.errors import ArgumentError, ShapeError, WriteError
from ox.functions import broadcast_to, stack
from ox.nn import functional as F
from ox.tensors.tensor import Tensor

__all__ = ["make_grid", "save_image"]


@no_grad()
def make_grid(
    tensor: Tensor | Sequence[Tensor],
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: tuple[float, float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
) -> Tensor:
    """Images of one size side by side. `torchvision.utils.make_grid`.

    Args:
        tensor: [n, c, h, w], [c, h, w], [h, w], or a sequence of [c, h, w]; a single channel becomes three.
        nrow: how many images stand in a row.
        padding: pixels around each image.
        normalize: bring values to 0 to 1, by their least and greatest one.
        value_range: the least and the greatest value, instead of those of the images.
        scale_each: take the least and the greatest value of each image, and not of all.
        pad_value: the value of the pixels between.

    Returns:
        [3, rows * (h + padding) + padding, columns * (w + padding) + padding], or [c, h, w] of a single image.

    Raises:
        ShapeError: no image, or no images.
        ArgumentError: `nrow` is no positive int, `padding` is negative, or `value_range` is no pair.
    """
    images = _images(tensor)
    if nrow < 1 or padding < 0:
        raise ArgumentError("a grid has a column or more, and no negative padding", got=f"{nrow=}, {padding=}")
    if normalize:
        images = _normalized(images, value_range, scale_each)
    n, c, h, w = images.shape
    if n == 1:
        return images[0]
    columns = min(nrow, n)
    rows = -(-n // columns)
    cells = F.pad(images, (padding, 0, padding, 0), value=pad_value)
    cells = F.pad(cells, (0, 0, 0, 0, 0, 0, 0, rows * columns - n), value=pad_value)
    cells = cells.reshape(rows, columns, c, h + padding, w + padding).permute(2, 0, 3, 1, 4)
    grid = cells.reshape(c, rows * (h + padding), columns * (w + padding))
    return F.pad(grid, (0, padding, 0, padding), value=pad_value)


def _images(tensor: Tensor | Sequence[Tensor]) -> Tensor:
    """[n, c, h, w], of three channels where there was one."""
    images = tensor if isinstance(tensor, Tensor) else stack(list(tensor), 0)
    if not 2 <= images.ndim <= 4 or 0 in images.shape:
        raise ShapeError(
            "a grid is made of images", expected="[n, c, h, w], [c, h, w] or [h, w]",
            got=str(list(images.shape)),
        )  # fmt: skip
    images = images.reshape([1] * (4 - images.ndim) + list(images.shape))
    n, c, h, w = images.shape
    return broadcast_to(images, (n, 3, h, w)) if c == 1 else images


def _normalized(images: Tensor, value_range: tuple[float, float] | None, scale_each: bool) -> Tensor:
    if value_range is not None:
        if not (isinstance(value_range, Iterable) and len(value_range) == 2):
            raise ArgumentError("value_range is the least and the greatest value", got=repr(value_range))  # fmt: skip
        low, high = value_range
        return (images.clamp(low, high) - low) / max(high - low, 1e-5)
    dims = (1, 2, 3) if scale_each else (0, 1, 2, 3)
    least, greatest = images.amin(dims, keepdim=True), images.amax(dims, keepdim=True)
    scaled = (images - least) / (greatest - least).clamp(min=1e-5)
    return scaled


def save_image(
    tensor: Tensor | Sequence[Tensor],
    fp: str | os.PathLike[str] | IO[bytes],
    format: str | None = None,
    **options: Any,
) -> None:
    """Write images, from 0 to 1, into one file. `torchvision.utils.save_image`.

    Args:
        tensor: as for `make_grid`.
        fp: the file, or where it goes.
        format: Pillow's name of the format, where `fp` has no suffix.
        **options: those of `make_grid`.

    Raises:
        WriteError: the file cannot be written, or Pillow does not support the format.
    """
    from PIL import Image

    grid = make_grid(tensor, **options)
    if is_floating(grid.dtype):
        grid = (grid * 255 + 0.5).clamp(0, 255)
    image = Image.fromarray(grid.permute(1, 2, 0).to(uint8).contiguous().cpu().numpy())
    try:
        image.save(fp, format=format)
    except (OSError, ValueError, KeyError) as error:
        raise WriteError(f"the image {fp} was not written", got=str(error), hint="a name such as out.png") from None
