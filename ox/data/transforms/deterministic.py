"""Transforms without chance: kinds, sizes, values. Names and meanings are torchvision's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox.data.transforms import functional as F
from ox.data.transforms.base import DeterministicTransform
from ox.data.transforms.resizing import BILINEAR, mode_of, pair
from ox.dtypes import float32


class ToTensor(DeterministicTransform):
    """A float32 tensor [c, h, w] from 0 to 1, of an array [h, w, c] of bytes or a Pillow image; values of other types
    stay. `torchvision.transforms.ToTensor`."""

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.to_tensor(image)


class PILToTensor(DeterministicTransform):
    """A tensor [c, h, w] of an array [h, w, c] or a Pillow image; all values stay.
    `torchvision.transforms.PILToTensor`."""

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.pil_to_tensor(image)


class ToImage(DeterministicTransform):
    """`PILToTensor` that lets tensors pass. `torchvision.transforms.v2.ToImage`; ``ToDtype(ox.float32, scale=True)``
    behind it makes what `ToTensor` makes."""

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.to_image(image)


class ToPILImage(DeterministicTransform):
    """A Pillow image, to look at or to save. `torchvision.transforms.ToPILImage`."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.to_pil_image(image, self.mode)


class ToDtype(DeterministicTransform):
    """Another type of values. `torchvision.transforms.v2.ToDtype`.

    Args:
        scale: keep white white: 255 of uint8 is 1 of floats.
    """

    def __init__(self, dtype: Any, scale: bool = False) -> None:
        self.dtype, self.scale = dtype, scale

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.to_dtype(image, self.dtype, self.scale)


class ConvertImageDtype(DeterministicTransform):
    """Another type of values, with white as white. `torchvision.transforms.ConvertImageDtype`."""

    def __init__(self, dtype: Any = float32) -> None:
        self.dtype = dtype

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.convert_image_dtype(image, self.dtype)


class Normalize(DeterministicTransform):
    """``(value - mean) / std`` of floats, one of each a channel. `torchvision.transforms.Normalize`."""

    def __init__(self, mean: Any, std: Any, inplace: bool = False) -> None:
        self.mean, self.std = mean, std

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.normalize(image, self.mean, self.std)


class Resize(DeterministicTransform):
    """Another size: (h, w), or an int for the shorter side. `torchvision.transforms.Resize`; all else as for
    `functional.resize`."""

    def __init__(
        self, size: Any, interpolation: Any = BILINEAR, max_size: int | None = None, antialias: bool | None = True
    ) -> None:
        self.size = size if size is None or isinstance(size, int) else list(size)
        self.interpolation, self.max_size, self.antialias = mode_of(interpolation), max_size, antialias

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.resize(image, self.size, self.interpolation, self.max_size, self.antialias)


class CenterCrop(DeterministicTransform):
    """The middle, black where it reaches outside. `torchvision.transforms.CenterCrop`."""

    def __init__(self, size: Any) -> None:
        self.size = pair(size, "CenterCrop")

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.center_crop(image, self.size)


class Pad(DeterministicTransform):
    """A frame; see `functional.pad`. `torchvision.transforms.Pad`."""

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> None:
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.pad(image, self.padding, self.fill, self.padding_mode)


class Grayscale(DeterministicTransform):
    """Grey levels, in 1 or 3 equal channels. `torchvision.transforms.Grayscale`."""

    def __init__(self, num_output_channels: int = 1) -> None:
        self.num_output_channels = num_output_channels

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.rgb_to_grayscale(image, self.num_output_channels)


class FiveCrop(DeterministicTransform):
    """A tuple of the four corners and the middle. `torchvision.transforms.FiveCrop`."""

    def __init__(self, size: Any) -> None:
        self.size = pair(size, "FiveCrop")

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.five_crop(image, self.size)


class TenCrop(DeterministicTransform):
    """`FiveCrop`, and that of the flipped image. `torchvision.transforms.TenCrop`."""

    def __init__(self, size: Any, vertical_flip: bool = False) -> None:
        self.size, self.vertical_flip = pair(size, "TenCrop"), vertical_flip

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        return F.ten_crop(image, self.size, self.vertical_flip)
