"""The 1,797 handwritten digits that ship with ox, as NumPy arrays, and their fixed split.

Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository,
https://doi.org/10.24432/C50P49, CC BY 4.0; `data/ATTRIBUTION.txt` says what was changed.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

TRAIN, VALIDATION = 1149, 288  # images; the other 360 are the test set


class Part(NamedTuple):
    """Images as a model takes them, float32 [n, 1, 8, 8] from 0 (paper) to 1 (ink), and labels, int64 [n]."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


class Split(NamedTuple):
    train: Part
    validation: Part
    held_back: Part


def load_digits() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """All images and labels, in the order of the source.

    Returns:
        images: uint8 [1797, 8, 8], grey levels from 0 (paper) to 16 (ink).
        labels: uint8 [1797], the digit from 0 to 9.
    """
    with as_file(files("ox_models") / "data" / "digits.npz") as path, np.load(path, allow_pickle=False) as archive:
        images, labels = archive["images"], archive["labels"]
    return images, labels


def split() -> Split:
    """1,149 digits for training, 288 for validation, 360 for testing; the same in every run, process and NumPy version.

    The shuffle uses `RandomState`, whose stream NumPy has frozen, and not a run's seed: with another seed, digits of
    the test set would be used for training.
    """
    images, labels = load_digits()
    order = np.random.RandomState(0).permutation(len(labels))
    scaled = (images[order].astype(np.float32) / np.float32(16))[:, np.newaxis]
    numbers = labels[order].astype(np.int64)
    first, second = TRAIN, TRAIN + VALIDATION
    return Split(
        Part(scaled[:first], numbers[:first]),
        Part(scaled[first:second], numbers[first:second]),
        Part(scaled[second:], numbers[second:]),
    )
