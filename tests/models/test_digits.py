"""The recipe that comes with ox keeps its promise."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import ox
from ox import train
from ox_models import digits
from ox_models.digits_data import split


def test_the_three_parts_share_nothing() -> None:
    parts = split()
    assert [len(part.labels) for part in parts] == [1149, 288, 360]
    seen = [{image.tobytes() for image in part.images} for part in parts]
    assert not seen[0] & seen[2]
    assert not seen[1] & seen[2]
    for part in parts:
        assert (part.images.dtype, part.labels.dtype) == (np.float32, np.int64)
        assert part.images.min() == 0
        assert part.images.max() == 1
        assert set(part.labels.tolist()) == set(range(10))


def test_augmentation_shifts_by_at_most_a_pixel() -> None:
    images = ox.tensor(np.random.RandomState(0).rand(50, 1, 8, 8).astype(np.float32))
    shifted, answers = digits.augment((images, ox.arange(50)), ox.Generator(1))
    assert shifted.shape == images.shape
    assert answers.tolist() == list(range(50))
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)))
    moves = []
    for i, image in enumerate(shifted.numpy()):
        fits = [(r, c) for r in range(3) for c in range(3) if np.array_equal(padded[i, :, r : r + 8, c : c + 8], image)]
        assert len(fits) == 1
        moves += fits
    assert len(set(moves)) == 9
    again, _ = digits.augment((images, ox.arange(50)), ox.Generator(1))
    assert np.array_equal(again.numpy(), shifted.numpy())


def test_held_back_accuracy_of_one_seed(tmp_path: Path) -> None:
    """The median of five seeds is measured by benchmarks/digits_accuracy.py."""
    run = train.train("digits", out=tmp_path)
    assert run.result is not None
    assert run.result["held_back"]["count"] == 360
    assert run.result["held_back"]["accuracy"] >= 0.985
