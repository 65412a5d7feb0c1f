"""Eight photographs of surfaces from scikit-image; training, validation and test crops never overlap.

scikit-image names their sources, https://scikit-image.org/docs/stable/api/skimage.data.html; each is in the public
domain, CC0, or without known restrictions. `pip install scikit-image` contains the files; nothing is downloaded.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

import ox
from ox.data import Dataset, TensorDataset
from ox.data.transforms import functional as F
from ox.errors import RecipeError

SURFACES = {
    "brick wall": "brick", "grass": "grass", "gravel": "gravel", "the moon": "moon", "galaxies": "hubble_deep_field",
    "stained tissue": "immunohistochemistry", "a retina": "retina", "coins": "coins",
}  # fmt: skip
SIDE = 512  # the size of the square photographs
CROP = 224  # the input size of the network
PASSES = 60  # crops of each photograph per epoch


def photographs() -> list[NDArray[np.uint8]]:
    """The eight photographs: the middle square in grey at 512×512.

    Grey, because colour alone would nearly always identify the photograph. Texture and shape remain.

    Raises:
        RecipeError: scikit-image is not installed.
    """
    try:
        from skimage import data
    except ImportError as error:
        raise RecipeError(
            "the photographs come with scikit-image, which is not installed",
            expected="the package scikit-image",
            got=str(error),
            hint="pip install scikit-image",
        ) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # part of scikit-image
        return [square(getattr(data, name)()) for name in SURFACES.values()]


def square(photograph: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The middle square in grey, uint8 [512, 512]."""
    colours = photograph if photograph.ndim == 3 else photograph[..., np.newaxis].repeat(3, axis=2)
    middle = F.center_crop(colours, min(colours.shape[:2]))
    whole: NDArray[np.uint8] = F.resize(F.rgb_to_grayscale(middle), [SIDE, SIDE])[..., 0]
    return whole


def as_images(grey: ox.Tensor) -> ox.Tensor:
    """Converts uint8 [n, 1, 224, 224] to the usual input of image networks: float32 [n, 3, 224, 224] from 0 to 1."""
    scaled = grey.to(ox.float32) / 255
    images: ox.Tensor = scaled.expand(-1, 3, -1, -1).contiguous()
    return images


class LeftHalves(Dataset):
    """The training data: the left half of each photograph, uint8 [1, 512, 256], and its class, 60 times per epoch. The
    recipe's `augment` takes a random crop of it each time."""

    def __init__(self, photographs: list[NDArray[np.uint8]]) -> None:
        self.halves = np.stack([photograph[np.newaxis, :, : SIDE // 2] for photograph in photographs])

    def __len__(self) -> int:
        return PASSES * len(self.halves)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], np.int64]:
        return self.halves[index % len(self.halves)], np.int64(index % len(self.halves))


def crops(photographs: list[NDArray[np.uint8]], top: int) -> TensorDataset:
    """Nine crops of 128×128 from the right half of each photograph, from row `top` on, resized to 224×224."""
    corners = [(top + down, SIDE // 2 + left) for down in (0, 64, 128) for left in (0, 64, 128)]
    # One crop of each photograph, then the next of each, so that the first samples contain all classes. Crop before
    # resizing, because resizing uses neighbouring pixels.
    pieces = [each[y : y + 128, x : x + 128, np.newaxis] for y, x in corners for each in photographs]
    enlarged = F.resize(np.stack(pieces), [CROP, CROP])
    numbers = np.tile(np.arange(len(photographs), dtype=np.int64), len(corners))
    return TensorDataset(as_images(ox.from_numpy(enlarged.transpose(0, 3, 1, 2))), numbers)
