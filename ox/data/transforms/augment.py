"""Augmentation that chooses its transforms itself: RandAugment, TrivialAugmentWide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox import random
from ox.data.transforms import functional as F
from ox.data.transforms.base import Transform, as_array
from ox.data.transforms.images import opened, size_of
from ox.data.transforms.resizing import NEAREST, mode_of
from ox.data.transforms.rng import whole
from ox.errors import ArgumentError

SIGNED = {"ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness"}


def magnitudes(
    bins: int, shear: float, translate: tuple[float, float], turn: float, colour: float, bits: int
) -> dict[str, NDArray[Any] | None]:
    """Each operation's strengths, from weakest to strongest; None for an operation that has none."""
    return {
        "Identity": None,
        "ShearX": np.linspace(0, shear, bins),
        "ShearY": np.linspace(0, shear, bins),
        "TranslateX": np.linspace(0, translate[0], bins),
        "TranslateY": np.linspace(0, translate[1], bins),
        "Rotate": np.linspace(0, turn, bins),
        **{name: np.linspace(0, colour, bins) for name in ("Brightness", "Color", "Contrast", "Sharpness")},
        "Posterize": 8 - np.round(np.arange(bins) / ((bins - 1) / bits)).astype(np.int64),
        "Solarize": np.linspace(255, 0, bins),
        "AutoContrast": None,
        "Equalize": None,
    }


def operate(image: Any, name: str, strength: float, interpolation: str, fill: Any) -> Any:
    """One operation of the papers' list."""
    if name == "Identity":
        return as_array(image)
    if name in ("ShearX", "ShearY"):
        degrees = math.degrees(math.atan(strength))
        shear = (degrees, 0.0) if name == "ShearX" else (0.0, degrees)
        return F.affine(image, 0.0, (0, 0), 1.0, shear, interpolation, fill, (0, 0))
    if name in ("TranslateX", "TranslateY"):
        moved = (int(strength), 0) if name == "TranslateX" else (0, int(strength))
        return F.affine(image, 0.0, moved, 1.0, (0.0, 0.0), interpolation, fill)
    if name == "Rotate":
        return F.rotate(image, strength, interpolation, fill=fill)
    if name == "Posterize":
        return F.posterize(image, int(strength))
    if name == "Solarize":
        floats = opened(image, "solarize")[0].dtype.kind == "f"
        return F.solarize(image, strength / 255 if floats else strength)
    if name in ("AutoContrast", "Equalize"):
        return F.autocontrast(image) if name == "AutoContrast" else F.equalize(image)
    adjust = {
        "Brightness": F.adjust_brightness,
        "Color": F.adjust_saturation,
        "Contrast": F.adjust_contrast,
        "Sharpness": F.adjust_sharpness,
    }
    return adjust[name](image, 1.0 + strength)


class _Chosen(Transform):
    def _one(self, image: Any, table: dict[str, Any], bin: int, numbers: Sequence[float]) -> Any:
        name = list(table)[whole(numbers[0], len(table))]
        strengths = table[name]
        strength = 0.0 if strengths is None else float(strengths[bin])
        if name in SIGNED and numbers[1] < 0.5:
            strength = -strength
        return operate(image, name, strength, self.interpolation, self.fill)  # type: ignore[attr-defined]


class RandAugment(_Chosen):
    """Several operations after each other, each chosen evenly from 14, all of one strength (Cubuk and others, 2019,
    https://arxiv.org/abs/1909.13719). `torchvision.transforms.RandAugment`.

    Args:
        num_ops: how many.
        magnitude: how strong, from 0 to num_magnitude_bins - 1.
        interpolation, fill: see `functional.affine`.
    """

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Any = NEAREST,
        fill: Any = None,
        generator: random.Generator | None = None,
    ) -> None:
        if num_ops < 0 or num_magnitude_bins < 2 or not 0 <= magnitude < num_magnitude_bins:
            raise ArgumentError(
                "RandAugment takes a magnitude below the number of its bins",
                expected=f"0 to {num_magnitude_bins - 1}",
                got=f"{magnitude}, with num_ops={num_ops}",
            )
        self.num_ops, self.magnitude, self.num_magnitude_bins = num_ops, magnitude, num_magnitude_bins
        self.interpolation, self.fill, self.generator = mode_of(interpolation), fill, generator

    @property
    def draws(self) -> int:  # type: ignore[override]
        return 2 * self.num_ops

    def _table(self, height: int, width: int) -> dict[str, Any]:
        far = (150 / 331 * width, 150 / 331 * height)  # the papers' 150 pixels of 331
        return magnitudes(self.num_magnitude_bins, 0.3, far, 30.0, 0.9, 4)

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        table = self._table(*size_of(image, "RandAugment"))
        for i in range(self.num_ops):
            image = self._one(image, table, self.magnitude, numbers[2 * i : 2 * i + 2])
        return as_array(image)


class TrivialAugmentWide(_Chosen):
    """One operation of 14 at a strength of 31, each chosen evenly (Müller and Hutter, 2021,
    https://arxiv.org/abs/2103.10158). `torchvision.transforms.TrivialAugmentWide`."""

    draws = 3

    def __init__(
        self,
        num_magnitude_bins: int = 31,
        interpolation: Any = NEAREST,
        fill: Any = None,
        generator: random.Generator | None = None,
    ) -> None:
        if num_magnitude_bins < 2:
            raise ArgumentError("num_magnitude_bins is at least 2", got=str(num_magnitude_bins))
        self.num_magnitude_bins, self.fill, self.generator = num_magnitude_bins, fill, generator
        self.interpolation = mode_of(interpolation)

    def _table(self) -> dict[str, Any]:
        return magnitudes(self.num_magnitude_bins, 0.99, (32.0, 32.0), 135.0, 0.99, 6)

    def apply(self, image: Any, numbers: Sequence[float]) -> Any:
        return self._one(image, self._table(), whole(numbers[2], self.num_magnitude_bins), numbers)
